//! A result that is written apart from its operands has the bits of a copy and a fold in place: in
//! all forms and at all addresses. No byte around it changes.

use super::super::stores::{BLOCK, copy_with, fold_into_with};
use super::super::{Stores, copy, finish, finishes, fold_into, prepare, prepares};
use super::*;

const AROUND: u8 = 0xa5;
const LINE: usize = 64;
const LONGEST: usize = 3 * BLOCK + 2 * LINE;

/// Lengths in bytes: short ones, and those next to the ends of steps and blocks.
fn lengths() -> impl Iterator<Item = usize> {
    let ends = [LINE, 2 * LINE, 3 * LINE, BLOCK - LINE, BLOCK, 2 * BLOCK, 3 * BLOCK];
    let near = ends.into_iter().flat_map(|end| [end - 8, end - 1, end, end + 1, end + 8]);
    (0..=8).chain(near).chain([BLOCK + 20, LONGEST])
}

fn forms() -> impl Iterator<Item = (Isa, Stores)> {
    let stores = [Stores::Cached, Stores::Streamed];
    isas().into_iter().flat_map(move |isa| stores.map(|stores| (isa, stores)))
}

/// Memory in which arrays begin at a chosen distance from a line.
struct AlignedBytes(Vec<u8>);

impl AlignedBytes {
    fn new() -> Self {
        Self(vec![AROUND; LINE + LINE + LONGEST + LINE])
    }

    fn range(&mut self, shift: usize, bytes: usize) -> std::ops::Range<usize> {
        let start = self.0.as_ptr().align_offset(LINE) + shift;
        start..start + bytes
    }

    fn holding(&mut self, shift: usize, array: &[u8]) -> &[u8] {
        let range = self.range(shift, array.len());
        self.0[range.clone()].copy_from_slice(array);
        &self.0[range]
    }

    /// Whether `write` writes `expected`. Panics if a byte around it changes.
    fn check(&mut self, shift: usize, expected: &[u8], write: impl FnOnce(&mut [u8])) -> bool {
        self.0.fill(AROUND);
        let range = self.range(shift, expected.len());
        write(&mut self.0[range.clone()]);
        let mut around = self.0[..range.start].iter().chain(&self.0[range.end..]);
        assert!(around.all(|byte| *byte == AROUND), "a byte outside of the array changed");
        &self.0[range] == expected
    }
}

#[test]
fn a_result_apart_has_the_bits_of_a_copy_and_a_fold_in_place() {
    let [mut into, mut left_memory, mut right_memory] = [(); 3].map(|()| AlignedBytes::new());
    for fold in folds() {
        let (dtype, redop) = (fold.dtype(), fold.redop());
        let pairs = tried(dtype, LONGEST / dtype.size());
        let left = array(dtype, pairs.iter().map(|(a, _)| *a));
        let right = array(dtype, pairs.iter().map(|(_, b)| *b));
        let mut expected = left.clone();
        fold_with(Isa::Baseline, fold, &mut expected, &right);
        for bytes in lengths().map(|bytes| bytes / dtype.size() * dtype.size()) {
            for shifts in [[0, 0, 0], [8, 1, 0], [4, 0, 3], [33, 32, 7], [63, 5, 9], [32, 60, 4]] {
                let left = left_memory.holding(shifts[1], &left[..bytes]);
                let right = right_memory.holding(shifts[2], &right[..bytes]);
                for (isa, stores) in forms() {
                    let right_bits = into.check(shifts[0], &expected[..bytes], |into| {
                        fold_into_with(isa, fold, into, left, right, stores);
                    });
                    let form = format_args!("{isa:?} {stores:?}, {bytes} bytes at {shifts:?}");
                    assert!(right_bits, "{dtype} {redop:?} {form}");
                }
            }
        }
    }
}

#[test]
fn a_result_that_cannot_be_streamed_is_copied_and_folded() {
    for fold in folds() {
        let (dtype, redop) = (fold.dtype(), fold.redop());
        let pairs = tried(dtype, 67);
        let left = array(dtype, pairs.iter().map(|(a, _)| *a));
        let right = array(dtype, pairs.iter().map(|(_, b)| *b));
        let expected = array(dtype, pairs.iter().map(|(a, b)| defined(fold, *a, *b)));
        let mut into = vec![AROUND; left.len()];
        let arrays = Arrays::Streamed { into: &mut into, left: &left, right: &right };
        elements(dtype).fold(Isa::Baseline, redop, arrays);
        assert_eq!(into, expected, "{dtype} {redop:?}");
    }
}

#[test]
fn a_copy_is_complete_at_every_length_and_address() {
    let from: Vec<u8> = (0..LONGEST).map(|index| (index % 251) as u8).collect();
    let [mut into_memory, mut from_memory] = [(); 2].map(|()| AlignedBytes::new());
    for bytes in lengths() {
        for (into_shift, from_shift) in
            (0..LINE).flat_map(|into| [0, 1, 37].map(|from| (into, from)))
        {
            let from = from_memory.holding(from_shift, &from[..bytes]);
            for (isa, stores) in forms() {
                let whole =
                    into_memory.check(into_shift, from, |into| copy_with(isa, into, from, stores));
                assert!(whole, "{isa:?} {stores:?}, {bytes} bytes at {into_shift}, {from_shift}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "copied arrays are equally long")]
fn a_copy_of_another_length_is_refused() {
    copy(&mut [0; 4], &[0; 5], Stores::Streamed);
}

#[test]
#[should_panic(expected = "folded arrays are equally long")]
fn a_fold_of_another_length_is_refused() {
    let sum = Fold::new(DataType::Uint8, RedOp::Sum).unwrap();
    fold_into(sum, &mut [0; 4], &[0; 4], &[0; 5], Stores::Streamed);
}

#[test]
fn a_fold_says_whether_it_prepares_and_finishes() {
    for fold in folds() {
        let (dtype, redop) = (fold.dtype(), fold.redop());
        let data = array(dtype, special(dtype));
        let changed = |change: fn(Fold, &mut [u8], usize), size| {
            let mut changed = data.clone();
            change(fold, &mut changed, size);
            changed != data
        };
        for size in [1, 2, 3] {
            assert_eq!(prepares(fold, size), changed(prepare, size), "{dtype} {redop:?} of {size}");
        }
        assert_eq!(finishes(fold), changed(finish, 2), "{dtype} {redop:?}");
    }
}
