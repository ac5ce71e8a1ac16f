//! How fast arrays are folded, beside the machine's limit: `cargo bench --bench reduce`.
//!
//! The limit is the plain `into[i] += from[i]` on f32, compiled for AVX2 where the CPU has it. Each
//! kernel and the limit take turns on the same arrays, in the first cache, in the second and in
//! memory, so that other work of the machine slows both. Rates are bytes of `into` per second, the
//! best of criterion's samples; the share of the limit is the median of all turns.
#![expect(unsafe_code, reason = "the limit is compiled for AVX2 once the CPU was asked for it")]

use std::time::{Duration, Instant};

use bytemuck::{cast_slice, cast_slice_mut};
use criterion::{Criterion, Throughput};

use nexar::dtype::DataType;
use nexar::op::{Fold, RedOp};
use nexar::reduce;

const PLACES: [(&str, usize); 3] = [("L1", 16 << 10), ("L2", 256 << 10), ("memory", 64 << 20)];

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

/// Prepared and finished in place, as Avg over one rank, which changes no value.
const PREPARED: [DataType; 3] = [DataType::Float32, DataType::Float16, DataType::Bfloat16];
const FINISHED: [DataType; 3] = [DataType::Int8, DataType::Int32, DataType::Int64];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    let tables = PLACES.map(|(place, bytes)| table(&mut criterion, place, bytes));
    criterion.final_summary();
    print(&tables);
}

/// What was measured at one place.
type Table = Vec<Row>;

struct Row {
    name: String,
    /// GB/s.
    rate: f64,
    /// Of the limit.
    share: f64,
}

fn table(criterion: &mut Criterion, place: &str, bytes: usize) -> Table {
    let mut group = criterion.benchmark_group(place);
    group.throughput(Throughput::Bytes(bytes as u64));
    let mut rows = Table::new();
    let mut arrays = [Array::new(bytes), Array::new(bytes)];
    let [into, from] = arrays.each_mut().map(Array::bytes);

    let mut row = |name: String, filling: Fold, work: &dyn Fn(&mut [u8], &[u8])| {
        fill(filling, into, from);
        let mut turns = Vec::new();
        group.bench_function(&name, |bencher| {
            bencher.iter_custom(|times| {
                let limit = time(times, || limit(into, from));
                let kernel = time(times, || work(into, from));
                turns.push([limit, kernel].map(|time| time.as_secs_f64() / times as f64));
                kernel
            });
        });
        let best = turns.iter().map(|[_, kernel]| *kernel).fold(f64::INFINITY, f64::min);
        let mut shares: Vec<_> = turns.iter().map(|[limit, kernel]| limit / kernel).collect();
        shares.sort_by(f64::total_cmp);
        let share = shares.get(shares.len() / 2).copied().unwrap_or(f64::NAN);
        rows.push(Row { name, rate: bytes as f64 / best / 1e9, share });
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

fn time(times: u64, mut work: impl FnMut()) -> Duration {
    let start = Instant::now();
    (0..times).for_each(|_| work());
    start.elapsed()
}

/// Values that neither the fold nor the limit drives to subnormals, which some CPUs are slow with.
fn fill(fold: Fold, into: &mut [u8], from: &mut [u8]) {
    into.fill(0x3f);
    let redop = if fold.redop() == RedOp::Avg { RedOp::Sum } else { fold.redop() };
    reduce::identity(Fold::new(fold.dtype(), redop).unwrap(), from);
}

/// Memory that begins at a cache line.
struct Array {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Array {
    fn new(bytes: usize) -> Self {
        // Not zeros, which the system would map to one page for all.
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

fn print(tables: &[Table]) {
    print!("\n{:<22}", "GB/s (of the limit)");
    PLACES.iter().for_each(|(place, _)| print!("{place:>17}"));
    println!();
    for (index, row) in tables[0].iter().enumerate() {
        print!("{:<22}", row.name);
        tables.iter().map(|table| &table[index]).for_each(|row| {
            print!("{:>9.2} ({:>5.2})", row.rate, row.share);
        });
        println!();
    }
}
