//! AllToAllV, GatherV and ScatterV on one host, with counts of every kind: zero, short enough to be
//! published with the counts, several parts, one rank with everything. And with wrong counts.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use nexar::blocks::Blocks;
use nexar::buffer::Buffers;
use nexar::collective::table::parse;
use nexar::collective::{Exchange, perform};
use nexar::comm::Communicator;
use nexar::dtype::{DataType, ElementType};
use nexar::error::{Code, Error, Result};
use nexar::op::{Counts, Op};
use nexar::rank::Rank;
use nexar::transport::{CallHistory, Lane};
use proptest::prelude::*;

use crate::world::{UNTOUCHED, quiet, run};

/// The algorithms for few ranks, and those for many.
const ALGORITHMS: [&str; 2] = [
    "alltoall:paired,gather:flat_v,scatter:paired",
    "alltoall:flat_v,gather:flat_v,scatter:flat_v",
];
const COUNTS: Counts = Counts::Pairwise;
const BYTES: ElementType = ElementType::Known(DataType::Uint8);

/// By sender and receiver: how many bytes.
type Lengths = Vec<Vec<usize>>;

fn lengths(size: usize) -> impl Strategy<Value = Lengths> {
    let length = prop_oneof![
        3 => Just(0_usize),
        3 => 0..40_usize,
        2 => 7000..9000_usize,
        1 => 65_000..66_000_usize,
        1 => 0..400_000_usize,
    ];
    prop::collection::vec(prop::collection::vec(length, size), size)
}

fn byte(from: usize, to: usize, index: usize) -> u8 {
    (index * 7 + index / 251 + from * 31 + to * 101) as u8
}

/// Blocks in descending order of ranks, with gaps of one byte.
fn spread(lengths: impl DoubleEndedIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut end = 0;
    let mut ranges: Vec<_> = lengths
        .rev()
        .map(|length| {
            let start = end + 1;
            end = start + length;
            start..end
        })
        .collect();
    ranges.reverse();
    ranges
}

/// A buffer with these blocks, filled by `content` of the rank of a block and an index in it.
fn filled(ranges: &[Range<usize>], content: impl Fn(usize, usize) -> u8) -> Vec<u8> {
    let extent = ranges.iter().map(|range| range.end).max().unwrap_or(0);
    let mut bytes = vec![UNTOUCHED; extent];
    for (rank, range) in ranges.iter().enumerate() {
        for (index, byte) in bytes[range.clone()].iter_mut().enumerate() {
            *byte = content(rank, index);
        }
    }
    bytes
}

fn untouched(ranges: &[Range<usize>]) -> Vec<u8> {
    filled(ranges, |_, _| UNTOUCHED)
}

/// Which bytes rank `from` sends.
fn sent(lengths: &Lengths, from: usize) -> Vec<Range<usize>> {
    spread(lengths[from].iter().copied())
}

/// Where rank `to` receives.
fn received(lengths: &Lengths, to: usize) -> Vec<Range<usize>> {
    spread(lengths.iter().map(|of_sender| of_sender[to]))
}

async fn all_to_all(communicator: &Arc<Communicator>, lengths: &Lengths) -> Result<Vec<u8>> {
    let me = communicator.me().rank.0;
    let (sent, received) = (sent(lengths, me), received(lengths, me));
    let input = filled(&sent, |to, index| byte(me, to, index));
    let mut output = untouched(&received);
    let buffers = Buffers::Apart { input: &input, output: &mut output };
    let (sent, received) = (Blocks::at(sent), Blocks::at(received));
    let op = Op::all_to_all(COUNTS, BYTES, sent, received, buffers);
    communicator.run_async(op).await?;
    Ok(output)
}

/// The same in place: both directions of a pair have the length of the one from the lower rank.
async fn all_to_all_in_place(communicator: &Arc<Communicator>, lengths: &Lengths) {
    let (me, size) = (communicator.me().rank.0, communicator.me().size);
    let ranges = spread((0..size).map(|peer| lengths[me.min(peer)][me.max(peer)]));
    let mut both = filled(&ranges, |to, index| byte(me, to, index));
    let (sent, received) = (Blocks::at(ranges.clone()), Blocks::at(ranges.clone()));
    let buffers = Buffers::Shared { both: &mut both };
    communicator.run_async(Op::all_to_all(COUNTS, BYTES, sent, received, buffers)).await.unwrap();
    assert!(both == filled(&ranges, |from, index| byte(from, me, index)), "{lengths:?}, {me}");
}

/// Every rank sends the block for itself, at the root in place if it has any byte.
async fn gather(communicator: &Arc<Communicator>, lengths: &Lengths, root: usize) {
    let (me, size) = (communicator.me().rank.0, communicator.me().size);
    let own: Vec<_> = (0..lengths[me][me]).map(|index| byte(me, me, index)).collect();
    let ranges = spread((0..size).map(|from| lengths[from][from]));
    let all = || filled(&ranges, |from, index| byte(from, from, index));
    let gather = |blocks, buffers| Op::gather(COUNTS, BYTES, Rank(root), blocks, buffers);
    if me != root {
        let buffers = Buffers::Apart { input: &own, output: &mut [] };
        communicator.run_async(gather(Blocks::at(Vec::new()), buffers)).await.unwrap();
        return;
    }
    let mut output = untouched(&ranges);
    if own.is_empty() {
        let buffers = Buffers::Apart { input: &own, output: &mut output };
        communicator.run_async(gather(Blocks::at(ranges.clone()), buffers)).await.unwrap();
    } else {
        output[ranges[me].clone()].copy_from_slice(&own);
        let buffers = Buffers::Shared { both: &mut output };
        communicator.run_async(gather(Blocks::at(ranges.clone()), buffers)).await.unwrap();
    }
    assert!(output == all(), "{lengths:?}, {me}");
}

async fn scatter(communicator: &Arc<Communicator>, lengths: &Lengths, root: usize) {
    let me = communicator.me().rank.0;
    let scatter = |blocks, buffers| Op::scatter(COUNTS, BYTES, Rank(root), blocks, buffers);
    let mut own = vec![UNTOUCHED; lengths[root][me]];
    if me == root {
        let ranges = sent(lengths, root);
        let input = filled(&ranges, |to, index| byte(root, to, index));
        let buffers = Buffers::Apart { input: &input, output: &mut own };
        communicator.run_async(scatter(Blocks::at(ranges), buffers)).await.unwrap();
    } else {
        let buffers = Buffers::Apart { input: &[], output: &mut own };
        communicator.run_async(scatter(Blocks::at(Vec::new()), buffers)).await.unwrap();
    }
    let expected = (0..own.len()).map(|index| byte(root, me, index));
    assert!(own.iter().copied().eq(expected), "{lengths:?}, {me}");
}

/// Several calls in each lane, so that ranks must have counted the same epochs.
fn check(size: usize, all: Vec<Lengths>) {
    ALGORITHMS.iter().for_each(|algorithms| check_by(algorithms, size, all.clone()));
}

fn check_by(algorithms: &str, size: usize, all: Vec<Lengths>) {
    run(&quiet(size), algorithms, move |communicator| {
        let all = all.clone();
        async move {
            let me = communicator.me().rank.0;
            for (number, lengths) in all.iter().enumerate() {
                let output = all_to_all(&communicator, lengths).await.unwrap();
                let expected = filled(&received(lengths, me), |from, index| byte(from, me, index));
                assert!(output == expected, "{lengths:?}, {me}");
                all_to_all_in_place(&communicator, lengths).await;
                gather(&communicator, lengths, number % size).await;
                scatter(&communicator, lengths, number % size).await;
                communicator.run_async(Op::barrier()).await.unwrap();
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn blocks_of_any_lengths_arrive_and_all_ranks_count_the_same_epochs(
        (size, all) in (1_usize..9).prop_flat_map(|size| {
            (Just(size), prop::collection::vec(lengths(size), 1..5))
        }),
    ) {
        check(size, all);
    }
}

#[test]
fn one_rank_may_have_everything() {
    for size in 1..=8 {
        let lonely = |from: usize, to: usize, bytes: usize| {
            let mut lengths = vec![vec![0; size]; size];
            lengths[from % size][to % size] = bytes;
            lengths
        };
        let row = |from: usize, bytes: usize| {
            let mut lengths = vec![vec![0; size]; size];
            lengths[from % size] = vec![bytes; size];
            lengths
        };
        check(
            size,
            vec![
                lonely(0, 1, 1),
                lonely(1, 0, 1 << 20),
                lonely(2, 2, (1 << 20) + 5),
                row(0, 3),
                row(1, 100_003),
                vec![vec![0; size]; size],
            ],
        );
    }
}

/// Rank 0 passes `first` where rank 1 passes `second` for the block from rank 0 to rank 1.
#[test]
fn no_byte_of_a_block_is_written_whose_lengths_differ() {
    for (first, second) in [(5, 6), (6, 5), (0, 4), (4, 0), (300_000, 1), (1, 300_000)] {
        for (size, algorithms) in (2..5).flat_map(|size| ALGORITHMS.map(|name| (size, name))) {
            let results = run(&quiet(size), algorithms, move |communicator| async move {
                let me = communicator.me().rank.0;
                let mut lengths = vec![vec![100; size]; size];
                lengths[0][1] = if me == 0 { first } else { second };
                let (sent, received) = (sent(&lengths, me), received(&lengths, me));
                let input = filled(&sent, |_, _| 7);
                let mut output = untouched(&received);
                let block = received[0].clone();
                let buffers = Buffers::Apart { input: &input, output: &mut output };
                let (sent, received) = (Blocks::at(sent), Blocks::at(received));
                let op = Op::all_to_all(COUNTS, BYTES, sent, received, buffers);
                let error = match communicator.run_async(op).await {
                    Ok(()) => communicator.run_async(Op::barrier()).await.unwrap_err(),
                    Err(error) => error,
                };
                assert!(me != 1 || output[block].iter().all(|byte| *byte == UNTOUCHED));
                error
            });
            for error in results {
                let pair = format!("rank 0 sends {first} bytes to rank 1, which expects {second}");
                assert!(error.to_string().contains(&pair), "{error}");
                assert_eq!(error.code(), Code::InvalidUsage);
            }
        }
    }
}

#[test]
fn a_rank_that_only_sends_a_short_block_does_not_wait_for_the_root() {
    let returned = Arc::new(AtomicUsize::new(0));
    for length in [0, 8, 4096] {
        let returned = Arc::clone(&returned);
        run(&quiet(3), "", move |communicator| {
            let returned = Arc::clone(&returned);
            async move {
                let lengths = vec![vec![length; 3]; 3];
                if communicator.me().rank == Rank(0) {
                    // The root does not call before the others have returned.
                    while returned.load(Ordering::Relaxed) < 2 {
                        tokio::task::yield_now().await;
                    }
                    returned.store(0, Ordering::Relaxed);
                }
                gather(&communicator, &lengths, 0).await;
                if communicator.me().rank != Rank(0) {
                    returned.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
}

/// What a member that breaks the protocol publishes as counts: its total, then for rank 0 the bytes
/// before its block, its bytes, and those expected of it.
struct Forged {
    total: u64,
    before: u64,
    sent: u64,
    expected: u64,
}

/// Rank 0 exchanges `LENGTH` bytes with rank 1, which publishes forged counts and nothing else.
/// `None` if rank 0 still waits.
fn exchange_with(forged: &Forged) -> Option<Error> {
    const LENGTH: usize = 20_000;
    let mut meshes = quiet(2).meshes().into_iter();
    let ranks = [meshes.next().unwrap(), meshes.next().unwrap()];
    let input = [7; 2 * LENGTH];
    let mut output = [UNTOUCHED; 2 * LENGTH];
    let blocks = || Blocks::equal(LENGTH, 2);
    let buffers = Buffers::Apart { input: &input, output: &mut output };
    let mut op = Op::all_to_all(COUNTS, BYTES, blocks(), blocks(), buffers);
    let call = op.call();
    let exchange =
        |rank: usize| Exchange::new(&ranks[rank], Lane(0), 0, call, CallHistory::default());
    let (honest, forger) = (exchange(0), exchange(1));
    let forge = async {
        let words = [forged.total, forged.before, forged.sent, forged.expected];
        let bytes: Vec<_> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let epochs = forger.epochs(0, 1);
        let published = 8 * 7 + (8 << 10);
        epochs.publish(0, published, |slot, _| slot[..32].copy_from_slice(&bytes)).await.unwrap();
    };
    let selection = parse("alltoall:flat_v").unwrap();
    let ended = {
        let mut both =
            Box::pin(async { tokio::join!(perform(&honest, &selection, &mut op), forge).0 });
        let mut context = Context::from_waker(Waker::noop());
        // Each poll ends: the work of rank 0 is bounded by its own counts.
        let mut ended = None;
        for _ in 0..20 {
            if let std::task::Poll::Ready(result) = both.as_mut().poll(&mut context) {
                ended = Some(result.expect_err("rank 1 has sent no data"));
                break;
            }
        }
        ended
    };
    drop(op);
    assert!(output[LENGTH..].iter().all(|byte| *byte == UNTOUCHED));
    ended
}

#[test]
fn forged_counts_are_an_error_or_a_wait_and_never_more_work_than_ones_own_counts_explain() {
    let usual = || Forged { total: 20_000, before: 0, sent: 20_000, expected: 20_000 };
    let error = |forged: Forged| exchange_with(&forged).expect("it does not wait").to_string();
    let wrong = error(Forged { sent: 1 << 60, ..usual() });
    assert!(wrong.contains("rank 1 sends 1152921504606846976 bytes to rank 0"), "{wrong}");
    let wrong = error(Forged { expected: 3, ..usual() });
    assert!(wrong.contains("rank 0 sends 20000 bytes to rank 1, which expects 3"), "{wrong}");
    for forged in [
        Forged { total: 19_999, ..usual() },
        Forged { total: 0, ..usual() },
        Forged { before: 1, ..usual() },
        Forged { before: u64::MAX, ..usual() },
    ] {
        let wrong = error(forged);
        assert!(wrong.contains("rank 1 broke the protocol"), "{wrong}");
    }
    for total in [20_000, 1 << 40, 1 << 60, u64::MAX] {
        assert!(exchange_with(&Forged { total, ..usual() }).is_none(), "{total}");
    }
}
