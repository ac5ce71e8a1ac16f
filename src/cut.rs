//! A large collective as a sequence of smaller ones.
//!
//! What lies on a device goes through host memory of a bounded size, so its calls are made piece by piece.
//! Ranks with host buffers must then cut in the same places: cuts follow from what all ranks know of a call.
//! Leaves to others what happens between two pieces. Invariant: the pieces of a call, made one after another,
//! do what the call does; none needs more host memory than `SLOT` if all its buffers lie on a device.

use std::ops::Range;

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::op::{Counts, Op};
use crate::rank::Place;

/// Most bytes of host memory that a piece takes.
pub const SLOT: usize = 8 << 20;

/// Pieces begin at a multiple of this, which every element's size divides and copies like.
const ALIGNMENT: usize = 512;

/// Where an operation is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// How many bytes of each block, or of the whole, a piece has.
    width: usize,
    pub pieces: usize,
}

impl Cut {
    /// `None` if the operation is made as a whole.
    pub fn of(op: &Op<'_>, place: Place) -> Option<Self> {
        let (longest, copies) = match op {
            Op::AllReduce { count, reducer, .. }
            | Op::Reduce { count, reducer, .. }
            | Op::Scan { count, reducer, .. }
            | Op::ExScan { count, reducer, .. } => (count * reducer.dtype().size(), 1),
            Op::Broadcast { count, dtype, .. } => (count * dtype.size(), 1),
            Op::AllReduceBucketed { buckets, .. } => (buckets.iter().map(|b| b.len()).sum(), 1),
            Op::AllGather { blocks, .. } | Op::ReduceScatter { blocks, .. } => {
                (blocks.longest(), place.size + 1)
            }
            Op::Gather { counts: Counts::Each(count), dtype, .. }
            | Op::Scatter { counts: Counts::Each(count), dtype, .. } => {
                (count * dtype.size(), place.size + 1)
            }
            Op::AllToAll { counts: Counts::Each(count), dtype, .. } => {
                (count * dtype.size(), 2 * place.size)
            }
            // Each rank knows but its own counts.
            Op::Gather { .. } | Op::Scatter { .. } | Op::AllToAll { .. } => return None,
            Op::Barrier | Op::Split { .. } => return None,
        };
        let width = (SLOT / copies / ALIGNMENT * ALIGNMENT).max(ALIGNMENT);
        let pieces = longest.div_ceil(width);
        (pieces > 1).then_some(Self { width, pieces })
    }

    /// A piece of the operation, on the same memory.
    pub fn piece<'b>(&self, op: &'b mut Op<'_>, index: usize) -> Op<'b> {
        let range = index * self.width..(index + 1) * self.width;
        match op {
            Op::AllReduce { reducer, buffers, .. } => {
                let (buffers, count) = linear(buffers, &range, reducer.dtype().size());
                Op::AllReduce { count, reducer: reducer.clone(), buffers }
            }
            Op::Reduce { reducer, root, buffers, .. } => {
                let (buffers, count) = linear(buffers, &range, reducer.dtype().size());
                Op::Reduce { count, reducer: reducer.clone(), root: *root, buffers }
            }
            Op::Scan { reducer, buffers, .. } => {
                let (buffers, count) = linear(buffers, &range, reducer.dtype().size());
                Op::Scan { count, reducer: reducer.clone(), buffers }
            }
            Op::ExScan { reducer, buffers, .. } => {
                let (buffers, count) = linear(buffers, &range, reducer.dtype().size());
                Op::ExScan { count, reducer: reducer.clone(), buffers }
            }
            Op::Broadcast { dtype, root, buffers, .. } => {
                let (buffers, count) = linear(buffers, &range, dtype.size());
                Op::Broadcast { count, dtype: *dtype, root: *root, buffers }
            }
            Op::AllGather { dtype, blocks, buffers, .. } => {
                let blocks = parts_of(blocks, &range);
                let buffers = of_input(buffers, &range);
                Op::AllGather {
                    counts: listed(&blocks, dtype.size()),
                    dtype: *dtype,
                    blocks,
                    buffers,
                }
            }
            Op::ReduceScatter { reducer, blocks, buffers, .. } => {
                let blocks = parts_of(blocks, &range);
                let (counts, buffers) =
                    (listed(&blocks, reducer.dtype().size()), of_output(buffers, &range));
                Op::ReduceScatter { counts, reducer: reducer.clone(), blocks, buffers }
            }
            Op::AllToAll { dtype, sent, received, buffers, .. } => Op::AllToAll {
                counts: Counts::Pairwise,
                dtype: *dtype,
                sent: parts_of(sent, &range),
                received: parts_of(received, &range),
                buffers: whole(buffers),
            },
            Op::Gather { dtype, root, blocks, buffers, .. } => Op::Gather {
                counts: Counts::Pairwise,
                dtype: *dtype,
                root: *root,
                blocks: parts_of(blocks, &range),
                buffers: of_input(buffers, &range),
            },
            Op::Scatter { dtype, root, blocks, buffers, .. } => Op::Scatter {
                counts: Counts::Pairwise,
                dtype: *dtype,
                root: *root,
                blocks: parts_of(blocks, &range),
                buffers: of_output(buffers, &range),
            },
            Op::AllReduceBucketed { reducer, buckets, .. } => {
                let buckets = within(buckets, &range);
                let size = reducer.dtype().size();
                let counts: Vec<_> = buckets.iter().map(|bucket| bucket.len() / size).collect();
                let counts = Counts::listed(&counts);
                Op::AllReduceBucketed { counts, reducer: reducer.clone(), buckets }
            }
            Op::Barrier | Op::Split { .. } => unreachable!("it is made as a whole"),
        }
    }
}

/// The part of a range that lies in another one, counted from its own beginning.
fn clip(of: Range<usize>, range: &Range<usize>) -> Range<usize> {
    let at = |offset: usize| of.end.min(of.start + offset);
    at(range.start)..at(range.end)
}

fn parts_of(blocks: &Blocks, range: &Range<usize>) -> Blocks {
    Blocks::at(blocks.iter().map(|block| clip(block, range)).collect())
}

/// What an algorithm is chosen by: the list that a caller would pass.
fn listed(blocks: &Blocks, element: usize) -> Counts {
    let counts: Vec<_> = blocks.iter().map(|block| block.len() / element).collect();
    Counts::listed(&counts)
}

/// The same part of both, of which one may be empty; and how many elements it has.
fn linear<'b>(
    buffers: &'b mut Buffers<'_>,
    range: &Range<usize>,
    element: usize,
) -> (Buffers<'b>, usize) {
    let bytes = match buffers {
        Buffers::Apart { input, output } => input.len().max(output.len()),
        Buffers::Shared { both } => both.len(),
    };
    let count = clip(0..bytes, range).len() / element;
    let buffers = match buffers {
        Buffers::Apart { input, output } => Buffers::Apart {
            input: &input[clip(0..input.len(), range)],
            output: {
                let part = clip(0..output.len(), range);
                &mut output[part]
            },
        },
        Buffers::Shared { both } => {
            let part = clip(0..both.len(), range);
            Buffers::Shared { both: &mut both[part] }
        }
    };
    (buffers, count)
}

fn whole<'b>(buffers: &'b mut Buffers<'_>) -> Buffers<'b> {
    match buffers {
        Buffers::Apart { input, output } => Buffers::Apart { input, output },
        Buffers::Shared { both } => Buffers::Shared { both },
    }
}

/// The input is this rank's block alone, the output has those of all.
fn of_input<'b>(buffers: &'b mut Buffers<'_>, range: &Range<usize>) -> Buffers<'b> {
    match buffers {
        Buffers::Apart { input, output } => {
            Buffers::Apart { input: &input[clip(0..input.len(), range)], output }
        }
        Buffers::Shared { both } => Buffers::Shared { both },
    }
}

/// The other way round.
fn of_output<'b>(buffers: &'b mut Buffers<'_>, range: &Range<usize>) -> Buffers<'b> {
    match buffers {
        Buffers::Apart { input, output } => {
            let part = clip(0..output.len(), range);
            Buffers::Apart { input, output: &mut output[part] }
        }
        Buffers::Shared { both } => Buffers::Shared { both },
    }
}

/// What of a list of buffers lies in a range, if they were one behind another.
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
    use crate::dtype::DataType;
    use crate::op::{Fold, RedOp, Reducer};
    use crate::rank::Rank;

    const PLACE: Place = Place { rank: Rank(1), size: 3 };

    fn sum() -> Reducer {
        Reducer::Known(Fold::new(DataType::Int32, RedOp::Sum).unwrap())
    }

    /// Cuts on purpose where no call of a program is that small.
    fn cut(width: usize, longest: usize) -> Cut {
        Cut { width, pieces: longest.div_ceil(width) }
    }

    /// Writes the number of its piece to every byte that a piece may write.
    fn mark(op: &mut Op<'_>, cut: Cut, write: impl Fn(Op<'_>, u8)) {
        (0..cut.pieces).for_each(|index| write(cut.piece(op, index), index as u8 + 1));
    }

    fn write_all(buffers: Buffers<'_>, number: u8) {
        let mut buffers = buffers;
        buffers.output_mut().fill(number);
    }

    #[test]
    fn pieces_of_one_buffer_follow_each_other_and_the_last_is_as_long_as_what_is_left() {
        let (input, mut output) = ([7; 40], [0; 40]);
        let buffers = Buffers::Apart { input: &input, output: &mut output };
        let mut op = Op::AllReduce { count: 10, reducer: sum(), buffers };
        mark(&mut op, cut(16, 40), |piece, number| match piece {
            Op::AllReduce { count, buffers, .. } => {
                assert_eq!(buffers.input().len(), count * 4);
                assert_eq!(count, if number == 3 { 2 } else { 4 });
                write_all(buffers, number);
            }
            _ => panic!("it is an all-reduce"),
        });
        let expected: Vec<u8> = [[1; 16], [2; 16]].concat().into_iter().chain([3; 8]).collect();
        assert_eq!(output[..], expected);
    }

    #[test]
    fn a_rank_without_input_or_output_has_the_same_pieces() {
        let mut output = [0; 40];
        let buffers = Buffers::Apart { input: &[], output: &mut output };
        let mut op = Op::Broadcast { count: 10, dtype: DataType::Int32, root: Rank(0), buffers };
        let counts: Vec<_> = (0..3)
            .map(|index| match cut(16, 40).piece(&mut op, index) {
                Op::Broadcast { count, .. } => count,
                _ => panic!("it is a broadcast"),
            })
            .collect();
        assert_eq!(counts, [4, 4, 2]);
    }

    #[test]
    fn pieces_of_blocks_have_a_part_of_each_also_where_blocks_differ() {
        let (input, mut output) = ([7; 12], [0; 40]);
        // Of 3, 3 and 2 elements, with a gap.
        let blocks = Blocks::at(vec![0..12, 16..28, 28..36]);
        let buffers = Buffers::Apart { input: &input, output: &mut output };
        let counts = Counts::listed(&[3, 3, 2]);
        let mut op = Op::AllGather { counts, dtype: DataType::Int32, blocks, buffers };
        mark(&mut op, cut(8, 12), |piece, number| match piece {
            Op::AllGather { counts, blocks, mut buffers, .. } => {
                assert_eq!(buffers.input().len(), if number == 1 { 8 } else { 4 });
                let total = blocks.iter().map(|block| block.len() / 4).sum();
                assert!(matches!(counts, Counts::Listed { total: told, .. } if told == total));
                blocks.iter().for_each(|block| buffers.output_mut()[block].fill(number));
            }
            _ => panic!("it is an all-gather"),
        });
        let mut expected = [0; 40];
        for (range, number) in [(0..8, 1), (8..12, 2), (16..24, 1), (24..28, 2), (28..36, 1)] {
            expected[range].fill(number);
        }
        assert_eq!(output, expected);
    }

    #[test]
    fn a_list_of_buffers_is_cut_as_if_they_were_one() {
        let (mut a, mut b, mut c) = ([0; 12], [0; 0], [0; 20]);
        let mut op = Op::AllReduceBucketed {
            counts: Counts::listed(&[3, 0, 5]),
            reducer: sum(),
            buckets: vec![&mut a, &mut b, &mut c],
        };
        mark(&mut op, cut(16, 32), |piece, number| match piece {
            Op::AllReduceBucketed { buckets, .. } => {
                buckets.into_iter().for_each(|bucket| bucket.fill(number));
            }
            _ => panic!("it is a list of all-reduces"),
        });
        assert_eq!(a, [1; 12]);
        assert_eq!(c[..], [[1; 4].as_slice(), &[2; 16]].concat());
    }

    #[test]
    fn a_piece_fits_its_room_whatever_is_on_a_device() {
        for size in 2..70 {
            let place = Place::new(Rank(0), size);
            let count = 64 << 20;
            let buffers = || Buffers::Apart { input: &[], output: &mut [] };
            let dtype = DataType::Int8;
            let ops = [
                (1, Op::Broadcast { count, dtype, root: Rank(0), buffers: buffers() }),
                (
                    size + 1,
                    Op::AllGather {
                        counts: Counts::Each(count),
                        dtype,
                        blocks: Blocks::equal(count, size),
                        buffers: buffers(),
                    },
                ),
                (
                    2 * size,
                    Op::AllToAll {
                        counts: Counts::Each(count),
                        dtype,
                        sent: Blocks::equal(count, size),
                        received: Blocks::equal(count, size),
                        buffers: buffers(),
                    },
                ),
            ];
            for (copies, op) in ops {
                let cut = Cut::of(&op, place).expect("it is large");
                assert!(cut.width * copies <= SLOT && cut.width * cut.pieces >= count);
            }
        }
    }

    #[test]
    fn what_fits_a_room_is_not_cut_and_neither_is_what_ranks_know_differently() {
        let buffers = || Buffers::Apart { input: &[], output: &mut [] };
        let (dtype, root) = (DataType::Int8, Rank(0));
        let broadcast = |count| Op::Broadcast { count, dtype, root, buffers: buffers() };
        assert_eq!(Cut::of(&broadcast(SLOT), PLACE), None);
        assert_eq!(Cut::of(&broadcast(SLOT + 1), PLACE).map(|cut| cut.pieces), Some(2));
        let blocks = Blocks::equal(SLOT, 3);
        let varying = Op::AllToAll {
            counts: Counts::Pairwise,
            dtype,
            sent: blocks.clone(),
            received: blocks,
            buffers: buffers(),
        };
        assert_eq!(Cut::of(&varying, PLACE), None);
    }
}
