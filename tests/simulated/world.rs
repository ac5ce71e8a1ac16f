//! A world of ranks on one thread, for tests: deterministic, and under a deadline.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use nexar::buffer::Buffers;
use nexar::comm::{Communicator, create_over};
use nexar::config::Config;
use nexar::error::Result;
use nexar::op::{Call, Op};
use nexar::rank::Rank;
use nexar::reduce;
use nexar::transport::mem::{MemWorld, Trouble};

/// No test of a simulated world needs longer, unless it hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs `body` on every rank of a world at once, and returns what each rank's gave.
pub fn run<T: 'static, F>(
    world: &Arc<MemWorld>,
    algo: &str,
    body: impl Fn(Arc<Communicator>) -> F,
) -> Vec<T>
where
    F: Future<Output = T> + 'static,
{
    let config = Config { algo: algo.to_owned(), ..Config::default() };
    let communicators = create_over(world, &config).unwrap();
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

pub fn quiet(size: usize) -> Arc<MemWorld> {
    MemWorld::new(size, Trouble::default()).unwrap()
}

/// How a call is made: with two buffers, or in place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placement {
    OutOfPlace,
    InPlace,
}

/// Bytes that differ by rank and position, the same in every run.
pub fn noise(rank: usize, bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(rank as u64 + 1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// How long the input and output of a rank are, in bytes.
pub fn lengths(call: &Call, rank: usize, size: usize) -> (usize, usize) {
    match *call {
        Call::AllReduce { count, fold } => both(count * fold.dtype().size()),
        Call::Reduce { count, fold, root } => {
            let bytes = count * fold.dtype().size();
            (bytes, if root == Rank(rank) { bytes } else { 0 })
        }
        Call::Broadcast { count, dtype, root } => {
            let bytes = count * dtype.size();
            (if root == Rank(rank) { bytes } else { 0 }, bytes)
        }
        Call::AllGather { count, dtype } => (count * dtype.size(), size * count * dtype.size()),
        Call::ReduceScatter { count, fold } => {
            (size * count * fold.dtype().size(), count * fold.dtype().size())
        }
        Call::Barrier => both(0),
    }
}

fn both(bytes: usize) -> (usize, usize) {
    (bytes, bytes)
}

/// Makes the call on this rank's noise and returns what its output then holds.
pub async fn make(
    communicator: &Communicator,
    call: Call,
    placement: Placement,
) -> Result<Vec<u8>> {
    let (rank, size) = (communicator.place().rank.0, communicator.place().size);
    let (reads, writes) = lengths(&call, rank, size);
    let input = noise(rank, reads);
    if placement == Placement::OutOfPlace || reads == 0 || writes == 0 {
        let mut output = vec![0xaa; writes];
        let buffers = Buffers::Apart { input: &input, output: &mut output };
        communicator.run_async(Op { call, buffers }).await?;
        assert_eq!(input, noise(rank, reads), "{call} changed its input");
        return Ok(output);
    }
    // In place, the smaller buffer is block `rank` of the larger.
    let mut memory = vec![0xaa; reads.max(writes)];
    let own = if reads == writes { 0 } else { rank * reads.min(writes) };
    let at = if reads > writes { 0 } else { own };
    memory[at..at + reads].copy_from_slice(&input);
    let buffers = Buffers::Shared { both: &mut memory };
    communicator.run_async(Op { call, buffers }).await?;
    let at = if writes > reads { 0 } else { own };
    for index in (0..at).chain(at + writes..memory.len()) {
        assert_eq!(memory[index], input[index], "{call} changed its input at {index}");
    }
    Ok(memory[at..at + writes].to_vec())
}

/// What `rank` must get, computed by one process in the order the algorithm's card states.
pub fn oracle(call: &Call, algorithm: &str, rank: usize, size: usize) -> Vec<u8> {
    let input = |rank| noise(rank, lengths(call, rank, size).0);
    match *call {
        Call::AllReduce { fold, .. } => {
            let inputs: Vec<_> = (0..size).map(input).collect();
            let element = fold.dtype().size();
            let count = inputs[0].len() / element;
            let mut result = Vec::new();
            for chunk in 0..size {
                let length = count / size + usize::from(chunk < count % size);
                let range = result.len()..result.len() + length * element;
                let shares: Vec<_> =
                    inputs.iter().map(|input| input[range.clone()].to_vec()).collect();
                let order = match algorithm {
                    "ring" => ring(chunk, size),
                    "recursive_doubling" => doubling(size),
                    other => panic!("no oracle for {other}"),
                };
                result.extend(fold_tree(fold, &order, shares));
            }
            result
        }
        Call::ReduceScatter { fold, .. } => {
            let block = lengths(call, rank, size).1;
            let shares = |from| input(from)[rank * block..(rank + 1) * block].to_vec();
            fold_tree(fold, &ring(rank, size), (0..size).map(shares).collect())
        }
        Call::Reduce { fold, root, .. } if root == Rank(rank) => {
            fold_tree(fold, &binomial(root.0, 0, size), (0..size).map(input).collect())
        }
        Call::Reduce { .. } | Call::Barrier => Vec::new(),
        Call::Broadcast { root, .. } => input(root.0),
        Call::AllGather { .. } => (0..size).flat_map(input).collect(),
    }
}

/// In which order ranks' shares are folded.
enum Order {
    Rank(usize),
    Both(Box<Self>, Box<Self>),
}

impl Order {
    fn then(self, next: Self) -> Self {
        Self::Both(Box::new(self), Box::new(next))
    }
}

/// Chunk's right neighbour first, round the ring, its owner last.
fn ring(chunk: usize, size: usize) -> Order {
    let ranks = (1..=size).map(|step| Order::Rank((chunk + step) % size));
    ranks.reduce(Order::then).unwrap()
}

/// Neighbouring groups of equal size; the first ranks in pairs where size is no power of two.
fn doubling(size: usize) -> Order {
    let groups = 1 << size.ilog2();
    let pairs = size - groups;
    let pair = |first| Order::Rank(first).then(Order::Rank(first + 1));
    let mut row: Vec<_> = (0..pairs).map(|i| pair(2 * i)).collect();
    row.extend((2 * pairs..size).map(Order::Rank));
    while row.len() > 1 {
        let mut shorter = Vec::new();
        let mut left = row.into_iter();
        while let (Some(one), Some(other)) = (left.next(), left.next()) {
            shorter.push(one.then(other));
        }
        row = shorter;
    }
    row.pop().unwrap()
}

/// A rank, counted from the root, folds its subtrees, nearest first.
fn binomial(root: usize, from_root: usize, size: usize) -> Order {
    let own = Order::Rank((root + from_root) % size);
    let bits = (0..usize::BITS).map(|bit| 1_usize << bit);
    let lower = bits
        .take_while(|bit| (from_root == 0 || from_root & (bit | (bit - 1)) == 0) && *bit < size);
    let children = lower.map(|bit| from_root + bit).filter(|child| *child < size);
    children.fold(own, |order, child| order.then(binomial(root, child, size)))
}

fn fold_tree(fold: nexar::op::Fold, order: &Order, mut shares: Vec<Vec<u8>>) -> Vec<u8> {
    fn walk(fold: nexar::op::Fold, order: &Order, shares: &[Vec<u8>]) -> Vec<u8> {
        match order {
            Order::Rank(rank) => shares[*rank].clone(),
            Order::Both(one, other) => {
                let mut result = walk(fold, one, shares);
                reduce::fold(fold, &mut result, &walk(fold, other, shares));
                result
            }
        }
    }
    let size = shares.len();
    shares.iter_mut().for_each(|share| reduce::prepare(fold, share, size));
    let mut result = walk(fold, order, &shares);
    reduce::finish(fold, &mut result, size);
    result
}
