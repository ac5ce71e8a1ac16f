//! Speed of the reduction kernels, relative to the machine's limit: `cargo bench --bench reduce`.
//!
//! The limit is the plain `into[i] += from[i]` on f32, compiled for AVX2 where the CPU has it. Each
//! kernel and the limit take turns on the same arrays, in the L1 cache, in the L2 cache and in
//! memory, so that other work on the machine slows both. Rates are bytes of `into` per second, the
//! best of criterion's samples; the share of the limit is the median of all turns.
//!
//! A second table has kernels that write their result to a third array. Its limit is the plain
//! `into[i] = left[i] + right[i]`, and memcpy for a copy.
#![expect(unsafe_code, reason = "the limit is compiled for AVX2 once the CPU was asked for it")]

use std::time::{Duration, Instant};

use bytemuck::{cast_slice, cast_slice_mut};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};

use nexar::dtype::DataType;
use nexar::op::{Fold, RedOp, Reducer};
use nexar::reduce::{self, Side, Stores};

const SIZES: [(&str, usize); 3] = [("L1", 16 << 10), ("L2", 256 << 10), ("memory", 64 << 20)];

const SIZES_APART: [(&str, usize); 3] =
    [("64 KiB", 64 << 10), ("1 MiB", 1 << 20), ("64 MiB", 64 << 20)];

const FOLDS: [(DataType, RedOp); 20] = [
    (DataType::Float32, RedOp::Sum),
    (DataType::Float64, RedOp::Sum),
    (DataType::Int32, RedOp::Sum),
    (DataType::Float16, RedOp::Sum),
    (DataType::Bfloat16, RedOp::Sum),
    (DataType::Float8e4m3, RedOp::Sum),
    (DataType::Float8e5m2, RedOp::Sum),
    (DataType::Uint8, RedOp::Sum),
    (DataType::Int64, RedOp::Sum),
    (DataType::Float32, RedOp::Prod),
    (DataType::Uint8, RedOp::Prod),
    (DataType::Int32, RedOp::Prod),
    (DataType::Int64, RedOp::Prod),
    (DataType::Float32, RedOp::Max),
    (DataType::Float64, RedOp::Max),
    (DataType::Float16, RedOp::Max),
    (DataType::Bfloat16, RedOp::Max),
    (DataType::Float8e4m3, RedOp::Max),
    (DataType::Int64, RedOp::Max),
    (DataType::Int32, RedOp::LogicalAnd),
];

const FOLDS_APART: [(DataType, RedOp); 6] = [
    (DataType::Float32, RedOp::Sum),
    (DataType::Float64, RedOp::Sum),
    (DataType::Int32, RedOp::Sum),
    (DataType::Float16, RedOp::Sum),
    (DataType::Bfloat16, RedOp::Sum),
    (DataType::Float32, RedOp::Max),
];

/// Types whose `prepare` and `finish` are measured in place, as Avg over one rank: no value
/// changes.
const PREPARED: [DataType; 3] = [DataType::Float32, DataType::Float16, DataType::Bfloat16];
const FINISHED: [DataType; 3] = [DataType::Int8, DataType::Int32, DataType::Int64];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    let tables = SIZES.map(|(label, bytes)| table(&mut criterion, label, bytes));
    let apart = SIZES_APART.map(|(label, bytes)| table_apart(&mut criterion, label, bytes));
    criterion.final_summary();
    print(&SIZES, &tables);
    print(&SIZES_APART, &apart);
}

/// The rows of one array size.
type Table = Vec<Row>;

struct Row {
    name: String,
    /// GB/s.
    rate: f64,
    /// Relative to the limit.
    share: f64,
}

fn table(criterion: &mut Criterion, label: &str, bytes: usize) -> Table {
    let mut group = criterion.benchmark_group(label);
    group.throughput(Throughput::Bytes(bytes as u64));
    let mut rows = Table::new();
    let mut arrays = [Array::new(bytes), Array::new(bytes)];
    let [into, from] = arrays.each_mut().map(Array::bytes);

    let mut row = |name: String, filling: Fold, work: &dyn Fn(&mut [u8], &[u8])| {
        fill(filling, into, from);
        rows.push(turns(&mut group, name, bytes, |times| {
            [time(times, || limit(into, from)), time(times, || work(into, from))]
        }));
    };

    for (dtype, redop) in FOLDS {
        let fold = Fold::new(dtype, redop).unwrap();
        let name = format!("{dtype} {}", redop.name());
        row(name, fold, &|into, from| reduce::fold(fold, into, from));
    }
    for dtype in PREPARED {
        let avg = Fold::new(dtype, RedOp::Avg).unwrap();
        row(format!("{dtype} prepare"), avg, &|into, _| reduce::prepare(avg, into, 1));
    }
    for dtype in FINISHED {
        let avg = Fold::new(dtype, RedOp::Avg).unwrap();
        row(format!("{dtype} finish"), avg, &|into, _| reduce::finish(avg, into, 1));
    }
    rows
}

/// Writes the result of two operands to a third array.
type Work<'a> = &'a dyn Fn(&mut [u8], &[u8], &[u8]);

fn table_apart(criterion: &mut Criterion, label: &str, bytes: usize) -> Table {
    let mut group = criterion.benchmark_group(label);
    group.throughput(Throughput::Bytes(bytes as u64));
    let mut rows = Table::new();
    let mut arrays = [(); 3].map(|()| Array::new(bytes));
    let [into, left, right] = arrays.each_mut().map(Array::bytes);

    for (dtype, redop) in FOLDS_APART {
        let fold = Fold::new(dtype, redop).unwrap();
        let reducer = Reducer::Known(fold);
        fill(fold, left, right);
        let name = |way: &str| format!("{dtype} {} {way}", redop.name());
        let mut row = |way: &str, work: Work<'_>| {
            rows.push(turns(&mut group, name(way), bytes, |times| {
                let limit = time(times, || limit_apart(into, left, right));
                [limit, time(times, || work(into, left, right))]
            }));
        };
        row("copy, fold", &|into, left, right| {
            into.copy_from_slice(left);
            reducer.fold(into, right, Side::Right);
        });
        for stores in [Stores::Cached, Stores::Streamed] {
            row(&format!("{stores:?}"), &|into, left, right| {
                reducer.fold_into(into, left, right, stores);
            });
        }
    }
    rows.push(turns(&mut group, "copy Streamed".to_owned(), bytes, |times| {
        let limit = time(times, || into.copy_from_slice(left));
        [limit, time(times, || reduce::copy(into, left, Stores::Streamed))]
    }));
    rows
}

/// Measures one row. `turn` returns the times of the limit and of the kernel for that many calls.
fn turns(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: String,
    bytes: usize,
    mut turn: impl FnMut(u64) -> [Duration; 2],
) -> Row {
    let mut turns = Vec::new();
    group.bench_function(&name, |bencher| {
        bencher.iter_custom(|times| {
            let [limit, kernel] = turn(times);
            turns.push([limit, kernel].map(|time| time.as_secs_f64() / times as f64));
            kernel
        });
    });
    let best = turns.iter().map(|[_, kernel]| *kernel).fold(f64::INFINITY, f64::min);
    let mut shares: Vec<_> = turns.iter().map(|[limit, kernel]| limit / kernel).collect();
    shares.sort_by(f64::total_cmp);
    let share = shares.get(shares.len() / 2).copied().unwrap_or(f64::NAN);
    Row { name, rate: bytes as f64 / best / 1e9, share }
}

fn time(times: u64, mut work: impl FnMut()) -> Duration {
    let start = Instant::now();
    (0..times).for_each(|_| work());
    start.elapsed()
}

/// Writes values of which neither kernel nor limit makes subnormals, which are slow on some CPUs.
fn fill(fold: Fold, into: &mut [u8], from: &mut [u8]) {
    into.fill(0x3f);
    let redop = if fold.redop() == RedOp::Avg { RedOp::Sum } else { fold.redop() };
    reduce::identity(Fold::new(fold.dtype(), redop).unwrap(), from);
}

/// Memory aligned to a cache line.
struct Array {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Array {
    fn new(bytes: usize) -> Self {
        // Not zeros, because the system would map them all to one page.
        let memory = vec![1; bytes + 64];
        let start = memory.as_ptr().align_offset(64);
        Self { memory, start, bytes }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

fn limit(into: &mut [u8], from: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        #[target_feature(enable = "avx2")]
        fn with_avx2(into: &mut [f32], from: &[f32]) {
            add(into, from);
        }
        // SAFETY: the CPU was just asked for AVX2.
        return unsafe { with_avx2(cast_slice_mut(into), cast_slice(from)) };
    }
    add(cast_slice_mut(into), cast_slice(from));
}

#[inline(always)]
fn add(into: &mut [f32], from: &[f32]) {
    for (a, b) in into.iter_mut().zip(from) {
        *a += b;
    }
}

fn limit_apart(into: &mut [u8], left: &[u8], right: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        #[target_feature(enable = "avx2")]
        fn with_avx2(into: &mut [f32], left: &[f32], right: &[f32]) {
            add_apart(into, left, right);
        }
        // SAFETY: the CPU was just asked for AVX2.
        return unsafe { with_avx2(cast_slice_mut(into), cast_slice(left), cast_slice(right)) };
    }
    add_apart(cast_slice_mut(into), cast_slice(left), cast_slice(right));
}

#[inline(always)]
fn add_apart(into: &mut [f32], left: &[f32], right: &[f32]) {
    for (into, (a, b)) in into.iter_mut().zip(left.iter().zip(right)) {
        *into = a + b;
    }
}

fn print(sizes: &[(&str, usize)], tables: &[Table]) {
    print!("\n{:<26}", "GB/s (of the limit)");
    sizes.iter().for_each(|(label, _)| print!("{label:>17}"));
    println!();
    for (index, row) in tables[0].iter().enumerate() {
        print!("{:<26}", row.name);
        tables.iter().map(|table| &table[index]).for_each(|row| {
            print!("{:>9.2} ({:>5.2})", row.rate, row.share);
        });
        println!();
    }
}
