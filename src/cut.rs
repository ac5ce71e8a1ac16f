//! A large collective as a sequence of smaller ones.
//!
//! Data of a device passes through host memory of a bounded size, so a call on it is executed piece
//! by piece. Ranks with host buffers must cut in the same places, so the cuts depend only on values
//! that all ranks know of a call. Leaves to others the work between two pieces. Invariant: the
//! pieces of a call, executed one after another, have the result of the call; none needs more host
//! memory than `SLOT` if all its buffers are on a device.

use std::ops::Range;

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::dtype::ElementType;
use crate::op::{Call, Collective, Counts, Op, OpMemory};
use crate::rank::RankOf;

/// Limit of the host memory that a piece takes, in bytes.
pub const SLOT: usize = 8 << 20;

/// Where elements allow it, every piece begins at a multiple of this, in bytes: it is fast to copy
/// from. The size of every built-in type divides it.
const ALIGNMENT: usize = 512;

/// Where an operation is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Most bytes that a piece has of each block, or of the buffer if it is one block.
    width: usize,
    pub pieces: usize,
}

impl Cut {
    /// `None` if the operation is executed as a whole: it is short, each rank knows only its own
    /// counts, or a piece cannot hold even one element of each block.
    pub fn of(op: &Op<'_>, me: RankOf) -> Option<Self> {
        let (call, OpMemory { sent, received, .. }) = (op.call(), &op.memory);
        if call.counts() == Counts::Pairwise {
            return None; // each rank knows only its own counts
        }
        let (longest, copies) = match (sent.is_empty(), received.is_empty()) {
            (true, true) => (call.bytes(), 1),
            (true, false) => (received.longest(), me.size + 1),
            (false, true) => (sent.longest(), me.size + 1),
            (false, false) => (sent.longest(), 2 * me.size),
        };
        let dtype = call.dtype()?;
        let unit = match dtype {
            ElementType::Known(_) => ALIGNMENT,
            ElementType::Opaque(size) => size.get(),
        };
        let width = SLOT / copies / unit * unit;
        if width == 0 {
            return None;
        }
        let pieces = longest.div_ceil(width);
        (pieces > 1).then_some(Self { width, pieces })
    }

    /// A piece of the operation, on the same memory.
    pub fn piece<'b>(&self, op: &'b mut Op<'_>, index: usize) -> Op<'b> {
        let (range, call) = (index * self.width..(index + 1) * self.width, op.call());
        op.part(|memory| {
            let memory = part_of(memory, &range);
            (counts(&call, &memory, &range), memory)
        })
    }
}

/// The part of each block that lies in a range, or of a buffer that is one block.
fn part_of<'b>(memory: &'b mut OpMemory<'_>, range: &Range<usize>) -> OpMemory<'b> {
    let OpMemory { sent, received, buffers, buckets } = memory;
    let (sent, received) = (parts_of(sent, range), parts_of(received, range));
    let buffers = match buffers {
        Buffers::Apart { input, output } => {
            let read = if sent.is_empty() { clip(0..input.len(), range) } else { 0..input.len() };
            let whole = 0..output.len();
            let written = if received.is_empty() { clip(whole, range) } else { whole };
            Buffers::Apart { input: &input[read], output: &mut output[written] }
        }
        Buffers::Shared { both } => {
            let (whole, is_linear) = (0..both.len(), sent.is_empty() && received.is_empty());
            let used = if is_linear { clip(whole, range) } else { whole };
            Buffers::Shared { both: &mut both[used] }
        }
    };
    OpMemory { sent, received, buffers, buckets: within(buckets, range) }
}

/// The counts that a caller would pass for a part. An algorithm is chosen by them.
fn counts(call: &Call, part: &OpMemory<'_>, range: &Range<usize>) -> Counts {
    let element = call.dtype().map_or(1, |dtype| dtype.size());
    let listed = |bytes: Vec<usize>| {
        Counts::listed(&bytes.iter().map(|bytes| bytes / element).collect::<Vec<_>>())
    };
    let lengths = |blocks: &Blocks| blocks.iter().map(|block| block.len()).collect();
    match call.collective() {
        Collective::AllGather => listed(lengths(&part.received)),
        Collective::ReduceScatter => listed(lengths(&part.sent)),
        Collective::AllReduceBucketed => {
            listed(part.buckets.iter().map(|bucket| bucket.len()).collect())
        }
        Collective::AllToAll | Collective::Gather | Collective::Scatter => Counts::Pairwise,
        _ => Counts::Each(clip(0..call.bytes(), range).len() / element),
    }
}

/// The part of `of` that lies in `range`, which counts from the beginning of `of`.
fn clip(of: Range<usize>, range: &Range<usize>) -> Range<usize> {
    let at = |offset: usize| of.end.min(of.start + offset);
    at(range.start)..at(range.end)
}

fn parts_of(blocks: &Blocks, range: &Range<usize>) -> Blocks {
    Blocks::at(blocks.iter().map(|block| clip(block, range)).collect())
}

/// The parts of a list of buffers that lie in a range of their concatenation.
fn within<'b>(buckets: &'b mut [&mut [u8]], range: &Range<usize>) -> Vec<&'b mut [u8]> {
    let mut begin = 0;
    let mut parts = Vec::new();
    for bucket in buckets {
        let here = begin..begin + bucket.len();
        let (start, end) = (range.start.max(here.start), range.end.min(here.end));
        if start < end {
            parts.push(&mut bucket[start - begin..end - begin]);
        }
        begin = here.end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{DataType, ElementSize};
    use crate::op::{Fold, RedOp, Reducer};
    use crate::rank::Rank;

    const ME: RankOf = RankOf { rank: Rank(1), size: 3 };

    fn sum() -> Reducer {
        Reducer::Known(Fold::new(DataType::Int32, RedOp::Sum).unwrap())
    }

    /// Cuts at a width that is smaller than that of any real call.
    fn cut(width: usize, longest: usize) -> Cut {
        Cut { width, pieces: longest.div_ceil(width) }
    }

    /// Calls `write` with each piece and its number, from 1.
    fn mark(op: &mut Op<'_>, cut: Cut, write: impl Fn(Op<'_>, u8)) {
        (0..cut.pieces).for_each(|index| write(cut.piece(op, index), index as u8 + 1));
    }

    #[test]
    fn pieces_of_one_buffer_are_contiguous_and_the_last_has_the_remainder() {
        let (input, mut output) = ([7; 40], [0; 40]);
        let buffers = Buffers::Apart { input: &input, output: &mut output };
        let mut op = Op::all_reduce(10, sum(), buffers);
        mark(&mut op, cut(16, 40), |mut piece, number| {
            let count = if number == 3 { 2 } else { 4 };
            assert_eq!(piece.call(), Call::all_reduce(count, sum().reduction()));
            assert_eq!(piece.memory.buffers.input().len(), count * 4);
            piece.memory.buffers.output_mut().fill(number);
        });
        let expected: Vec<u8> = [[1; 16], [2; 16]].concat().into_iter().chain([3; 8]).collect();
        assert_eq!(output[..], expected);
    }

    #[test]
    fn a_rank_without_an_input_has_the_same_pieces() {
        let mut output = [0; 40];
        let buffers = Buffers::Apart { input: &[], output: &mut output };
        let mut op = Op::broadcast(10, DataType::Int32.into(), Rank(0), buffers);
        let call = |index| cut(16, 40).piece(&mut op, index).call();
        let expected =
            [4, 4, 2].map(|count| Call::broadcast(count, DataType::Int32.into(), Rank(0)));
        assert_eq!((0..3).map(call).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_piece_has_a_part_of_each_block_even_if_block_lengths_differ() {
        let (input, mut output) = ([7; 12], [0; 40]);
        // Blocks of 3, 3 and 2 elements, with a gap.
        let blocks = Blocks::at(vec![0..12, 16..28, 28..36]);
        let buffers = Buffers::Apart { input: &input, output: &mut output };
        let counts = Counts::listed(&[3, 3, 2]);
        let mut op = Op::all_gather(counts, DataType::Int32.into(), blocks, buffers);
        mark(&mut op, cut(8, 12), |piece, number| {
            let counts = piece.call().counts();
            let OpMemory { received, mut buffers, .. } = piece.memory;
            assert_eq!(buffers.input().len(), if number == 1 { 8 } else { 4 });
            let total = received.iter().map(|block| block.len() / 4).sum();
            assert!(matches!(counts, Counts::Listed { total: listed, .. } if listed == total));
            received.iter().for_each(|block| buffers.output_mut()[block].fill(number));
        });
        let mut expected = [0; 40];
        for (range, number) in [(0..8, 1), (8..12, 2), (16..24, 1), (24..28, 2), (28..36, 1)] {
            expected[range].fill(number);
        }
        assert_eq!(output, expected);
    }

    #[test]
    fn pieces_have_whole_elements_and_an_element_that_fits_none_is_not_cut() {
        let cut_of = |bytes, count, size| {
            let dtype = ElementType::Opaque(ElementSize::new(bytes).unwrap());
            let mut output = vec![0; bytes * count * size];
            let (input, blocks) = (vec![0; bytes * count], Blocks::equal(bytes * count, size));
            let buffers = Buffers::Apart { input: &input, output: &mut output };
            let mut op = Op::all_gather(Counts::Each(count), dtype, blocks, buffers);
            let cut = Cut::of(&op, RankOf::new(Rank(0), size))?;
            for index in 0..cut.pieces {
                let piece = cut.piece(&mut op, index);
                let lengths: Vec<_> = piece.memory.received.iter().map(|part| part.len()).collect();
                assert!(lengths.iter().all(|length| length % bytes == 0), "{bytes}: {lengths:?}");
                assert!(!piece.call().is_empty());
            }
            Some((cut.width, cut.pieces))
        };
        let width = SLOT / 3 / 4094 * 4094;
        assert_eq!(cut_of(4094, 2000, 2), Some((width, (2000 * 4094_usize).div_ceil(width))));
        assert_eq!(cut_of(ElementSize::MOST, 2, 2), None, "three of them are longer than a slot");
    }

    #[test]
    fn a_list_of_buffers_is_cut_as_if_they_were_one_buffer() {
        let (mut a, mut b, mut c) = ([0; 12], [0; 0], [0; 20]);
        let buckets: Vec<&mut [u8]> = vec![&mut a, &mut b, &mut c];
        let mut op = Op::all_reduce_bucketed(Counts::listed(&[3, 0, 5]), sum(), buckets);
        mark(&mut op, cut(16, 32), |piece, number| {
            piece.memory.buckets.into_iter().for_each(|bucket| bucket.fill(number));
        });
        assert_eq!(a, [1; 12]);
        assert_eq!(c[..], [[1; 4].as_slice(), &[2; 16]].concat());
    }

    #[test]
    fn a_piece_fits_a_slot_whichever_buffers_are_on_a_device() {
        for size in 2..70 {
            let me = RankOf::new(Rank(0), size);
            let count = 64 << 20;
            let (counts, dtype) = (Counts::Each(count), DataType::Int8);
            let (blocks, none) = (|| Blocks::equal(count, size), Buffers::none);
            let ops = [
                (1, Op::broadcast(count, dtype.into(), Rank(0), none())),
                (size + 1, Op::all_gather(counts, dtype.into(), blocks(), none())),
                (2 * size, Op::all_to_all(counts, dtype.into(), blocks(), blocks(), none())),
            ];
            for (copies, op) in ops {
                let cut = Cut::of(&op, me).expect("it is large");
                assert!(cut.width * copies <= SLOT && cut.width * cut.pieces >= count);
            }
        }
    }

    #[test]
    fn a_call_that_fits_a_slot_or_has_pairwise_counts_is_not_cut() {
        let (dtype, root) = (DataType::Int8, Rank(0));
        let broadcast = |count| Op::broadcast(count, dtype.into(), root, Buffers::none());
        assert_eq!(Cut::of(&broadcast(SLOT), ME), None);
        assert_eq!(Cut::of(&broadcast(SLOT + 1), ME).map(|cut| cut.pieces), Some(2));
        let blocks = Blocks::equal(SLOT, 3);
        let (counts, none) = (Counts::Pairwise, Buffers::none());
        let varying = Op::all_to_all(counts, dtype.into(), blocks.clone(), blocks, none);
        assert_eq!(Cut::of(&varying, ME), None);
    }
}
