//! Every form of every loop gives the bits of the definition: for both instruction sets, at all
//! lengths around the sizes of words, blocks and lines, and at all addresses.

use super::*;

const LONGEST: usize = 67;

/// Calls `check` with two slices that hold the arrays at every pair of addresses modulo 8, and
/// checks that no byte around the first changes.
fn at_every_address(into: &[u8], from: &[u8], mut check: impl FnMut(&mut [u8], &[u8])) {
    const AROUND: u8 = 0xa5;
    for shift in 0..8 {
        let mut shifted = vec![AROUND; shift];
        shifted.extend_from_slice(from);
        for start in 0..8 {
            let mut memory = vec![AROUND; start + into.len() + 8];
            memory[start..start + into.len()].copy_from_slice(into);
            check(&mut memory[start..start + into.len()], &shifted[shift..]);
            let (before, rest) = memory.split_at(start);
            let around = before.iter().chain(&rest[into.len()..]);
            assert!(around.eq(&vec![AROUND; start + 8]), "a byte outside of the array changed");
        }
    }
}

#[test]
fn every_fold_gives_the_bits_of_the_definition_at_every_length_and_address() {
    for fold in folds() {
        let dtype = fold.dtype();
        let pairs = tried(dtype, LONGEST);
        let into = array(dtype, pairs.iter().map(|(a, _)| *a));
        let from = array(dtype, pairs.iter().map(|(_, b)| *b));
        let expected = array(dtype, pairs.iter().map(|(a, b)| defined(fold, *a, *b)));
        for isa in isas() {
            for bytes in (0..=LONGEST).map(|count| count * dtype.size()) {
                at_every_address(&into[..bytes], &from[..bytes], |into, from| {
                    fold_with(isa, fold, into, from);
                    assert_eq!(into, &expected[..bytes], "{dtype} {:?} {isa:?}", fold.redop());
                });
            }
        }
    }
}

#[test]
fn every_pair_of_special_elements_folds_as_defined_and_commutes() {
    for fold in folds() {
        let dtype = fold.dtype();
        let special = special(dtype);
        let pairs = special.iter().flat_map(|a| special.iter().map(|b| (*a, *b)));
        let (a, b): (Vec<_>, Vec<_>) = pairs.unzip();
        check_long(fold, &a, &b);
        for (a, b) in a.into_iter().zip(b) {
            let (one, other) = (defined(fold, a, b), defined(fold, b, a));
            assert_eq!(one, other, "{dtype} {:?}: {a:x} and {b:x}", fold.redop());
        }
    }
}

fn check_long(fold: Fold, a: &[u64], b: &[u64]) {
    let dtype = fold.dtype();
    for isa in isas() {
        let mut into = array(dtype, a.iter().copied());
        let from = array(dtype, b.iter().copied());
        fold_with(isa, fold, &mut into, &from);
        for (result, (a, b)) in bits(dtype, &into).into_iter().zip(a.iter().zip(b)) {
            let expected = defined(fold, *a, *b);
            assert_eq!(result, expected, "{dtype} {:?} {isa:?}: {a:x} and {b:x}", fold.redop());
        }
    }
}

fn common_folds(dtype: DataType) -> impl Iterator<Item = Fold> {
    let redops = [RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::Min];
    redops.into_iter().map(move |redop| Fold::new(dtype, redop).unwrap())
}

#[test]
fn all_values_of_16_bits_fold_as_defined_with_special_partners() {
    let all: Vec<u64> = (0..=0xffff).collect();
    for dtype in [DataType::Float16, DataType::Bfloat16] {
        for fold in common_folds(dtype) {
            for partner in special(dtype).into_iter().step_by(2) {
                check_long(fold, &all, &vec![partner; all.len()]);
            }
        }
    }
}

#[test]
fn all_pairs_of_8_bit_floats_fold_as_defined() {
    let a: Vec<u64> = (0..=0xffff).map(|pair| pair >> 8).collect();
    let b: Vec<u64> = (0..=0xffff).map(|pair| pair & 0xff).collect();
    for dtype in [DataType::Float8e4m3, DataType::Float8e5m2] {
        common_folds(dtype).for_each(|fold| check_long(fold, &a, &b));
    }
}

#[test]
fn one_nan_among_67_elements_is_found_at_every_index() {
    for dtype in FLOATS {
        let one = bits(dtype, &identity_of(dtype, RedOp::Prod))[0];
        for redop in [RedOp::Max, RedOp::Min] {
            let nan = defined(Fold::new(dtype, RedOp::Sum).unwrap(), special(dtype)[0], one);
            for (index, isa) in (0..LONGEST).flat_map(|index| isas().map(|isa| (index, isa))) {
                let ones = array(dtype, [one; LONGEST]);
                let with_nan = |nan| {
                    let element = |at| if at == index { nan } else { one };
                    array(dtype, (0..LONGEST).map(element))
                };
                // The sign of a NaN has no meaning.
                let negative = with_nan(nan | 1 << (8 * dtype.size() - 1));
                for (mut into, from) in [(ones.clone(), &negative), (negative.clone(), &ones)] {
                    fold_with(isa, Fold::new(dtype, redop).unwrap(), &mut into, from);
                    assert_eq!(into, with_nan(nan), "{dtype} {redop:?} {isa:?} at {index}");
                }
            }
        }
    }
}

fn identity_of(dtype: DataType, redop: RedOp) -> Vec<u8> {
    let mut element = vec![0; dtype.size()];
    elements(dtype).identity(Isa::Baseline, redop, &mut element);
    element
}

#[test]
fn premultiply_gives_the_bits_of_the_definition_at_every_length_and_address() {
    for dtype in DataType::ALL {
        let product = Fold::new(dtype, RedOp::Prod).unwrap();
        let pairs = tried(dtype, LONGEST);
        let data = array(dtype, pairs.iter().map(|(a, _)| *a));
        for scalar in special(dtype) {
            let expected = array(dtype, pairs.iter().map(|(a, _)| defined(product, *a, scalar)));
            let scalar = array(dtype, [scalar]);
            for isa in isas() {
                for bytes in (0..=LONGEST).step_by(11).map(|count| count * dtype.size()) {
                    at_every_address(&data[..bytes], &[], |data, _| {
                        elements(dtype).premultiply(isa, &scalar, data);
                        assert_eq!(data, &expected[..bytes], "{dtype} {isa:?}");
                    });
                }
            }
        }
    }
}

#[test]
fn prepare_finish_and_identity_are_the_same_in_all_forms() {
    for fold in folds() {
        let (dtype, redop) = (fold.dtype(), fold.redop());
        let data = array(dtype, tried(dtype, LONGEST).iter().map(|(a, _)| *a));
        for size in [1, 2, 3, 7, 1000] {
            let [one, other] = isas().map(|isa| {
                let [mut prepared, mut finished] = [data.clone(), data.clone()];
                elements(dtype).prepare(isa, redop, &mut prepared, size);
                elements(dtype).finish(isa, redop, &mut finished, size);
                (prepared, finished)
            });
            assert_eq!(one, other, "{dtype} {redop:?}");
        }
        if redop != RedOp::Avg {
            let [one, other] = isas().map(|isa| {
                let mut filled = data.clone();
                elements(dtype).identity(isa, redop, &mut filled);
                filled
            });
            assert_eq!(one, other, "{dtype} {redop:?}");
        }
    }
}
