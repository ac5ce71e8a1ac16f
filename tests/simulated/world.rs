//! Runs all ranks of a world on one thread: deterministic, and with a deadline.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use nexar::buffer::Buffers;
use nexar::collective::select::Row;
use nexar::comm::{Communicator, create_over};
use nexar::config::Config;
use nexar::error::Result;
use nexar::op::Op;
use nexar::transport::injection::{Faults, FaultyWorld};

use crate::case::{Case, Collective};

/// A rank that has not ended after this time hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// The value of each byte of a buffer before a call writes it.
pub const UNTOUCHED: u8 = 0xaa;

/// Runs `body` on every rank of a world concurrently. Returns the results by rank.
pub fn run<T: 'static, F>(
    world: &Arc<FaultyWorld>,
    algo: &str,
    body: impl Fn(Arc<Communicator>) -> F,
) -> Vec<T>
where
    F: Future<Output = T> + 'static,
{
    let config = Config { algo: algo.to_owned(), ..Config::default() };
    let communicators = create_over(world.meshes(), &config).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let spawn = |communicator| tokio::task::spawn_local(body(communicator));
        let tasks: Vec<_> = communicators.into_iter().map(spawn).collect();
        let mut results = Vec::new();
        for task in tasks {
            let ended = tokio::time::timeout(DEADLINE, task).await;
            results.push(ended.expect("a rank hangs").expect("a rank panicked"));
        }
        results
    })
}

/// Creates a world in which an algorithm can run: with two hosts, to which ranks alternate, if it
/// needs several.
pub fn world_for(row: &Row, size: usize, faults: Faults) -> Arc<FaultyWorld> {
    match row.name {
        "hierarchical" => FaultyWorld::on_hosts((0..size).map(|rank| rank % 2).collect(), faults),
        _ => FaultyWorld::new(size, faults),
    }
    .unwrap()
}

pub fn quiet(size: usize) -> Arc<FaultyWorld> {
    FaultyWorld::new(size, Faults::default()).unwrap()
}

/// Whether a call has two buffers or is in place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placement {
    OutOfPlace,
    InPlace,
}

/// Executes the call on this rank's input and returns its output. Checks that nothing else changed.
pub async fn execute(
    communicator: &Arc<Communicator>,
    case: &Case,
    placement: Placement,
) -> Result<Vec<u8>> {
    let rank = communicator.me().rank.0;
    let input = case.input(rank);
    if case.collective == Collective::AllReduceBucketed {
        return execute_bucketed(communicator, case, input).await;
    }
    let writes = case.output_bytes(rank);
    let in_place = case.in_place(rank).filter(|_| placement == Placement::InPlace);
    let Some((reads_at, writes_at)) = in_place else {
        let mut output = vec![UNTOUCHED; writes];
        let buffers = Buffers::Apart { input: &input, output: &mut output };
        communicator.run_async(case.op(rank, buffers)).await?;
        return Ok(output);
    };
    let mut memory = vec![UNTOUCHED; (reads_at + input.len()).max(writes_at + writes)];
    memory[reads_at..reads_at + input.len()].copy_from_slice(&input);
    let before = memory.clone();
    communicator.run_async(case.op(rank, Buffers::Shared { both: &mut memory })).await?;
    let written = writes_at..writes_at + writes;
    for index in (0..memory.len()).filter(|index| !written.contains(index)) {
        assert_eq!(memory[index], before[index], "{case:?} changed its input at {index}");
    }
    let mut output = memory[written].to_vec();
    // In place, the bytes between the blocks of the output are input and must not change.
    for index in case.gaps(rank) {
        assert_eq!(output[index], before[index], "{case:?} wrote between blocks at {index}");
        output[index] = UNTOUCHED;
    }
    Ok(output)
}

/// Executes the call with its input cut into buckets of various lengths.
async fn execute_bucketed(
    communicator: &Arc<Communicator>,
    case: &Case,
    mut data: Vec<u8>,
) -> Result<Vec<u8>> {
    let counts = case.bucket_counts();
    let (mut rest, mut buckets) = (&mut data[..], Vec::new());
    for count in &counts {
        let (bucket, others) = rest.split_at_mut(count * case.reducer.dtype().size());
        buckets.push(bucket);
        rest = others;
    }
    let (counts, reducer) = (case.counts(), case.reducer.clone());
    communicator.run_async(Op::all_reduce_bucketed(counts, reducer, buckets)).await?;
    Ok(data)
}
