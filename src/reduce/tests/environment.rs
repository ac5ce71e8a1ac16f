//! The floating-point environment of the caller changes no bit of a result, and no reduction
//! changes the environment.

use super::*;
use crate::op::Reducer;
use crate::reduce::environment::tests::{OTHERS, in_environment};
use crate::reduce::stores::{Stores, fold_into_with};

/// Around the sizes of blocks and steps, and enough for every pair of special elements.
const COUNTS: [usize; 4] = [1, 2, 67, 1500];

/// Checks that `work` on `data` has the same result in every environment as in the default one.
fn same_bits_everywhere(name: &str, data: &[u8], work: impl Fn(&mut [u8])) {
    let mut expected = data.to_vec();
    work(&mut expected);
    for environment in OTHERS {
        let mut result = data.to_vec();
        in_environment(environment, || work(&mut result));
        assert!(result == expected, "{name} in {environment:x?}");
    }
}

#[test]
fn the_environment_of_the_caller_changes_no_bit_of_a_float_reduction() {
    for fold in folds().filter(|fold| FLOATS.contains(&fold.dtype())) {
        let (dtype, redop) = (fold.dtype(), fold.redop());
        let all = elements(dtype);
        for (isa, count) in isas().into_iter().flat_map(|isa| COUNTS.map(|count| (isa, count))) {
            let pairs = tried(dtype, count);
            let left = array(dtype, pairs.iter().map(|(a, _)| *a));
            let right = array(dtype, pairs.iter().map(|(_, b)| *b));
            let name = |what| format!("{what}, {dtype} {redop:?}, {count} elements, {isa:?}");
            same_bits_everywhere(&name("fold"), &left, |data| fold_with(isa, fold, data, &right));
            for stores in [Stores::Cached, Stores::Streamed] {
                same_bits_everywhere(&name("fold_into"), &vec![0; left.len()], |into| {
                    fold_into_with(isa, fold, into, &left, &right, stores);
                });
            }
            for size in [1, 3] {
                let prepare = |data: &mut [u8]| all.prepare(isa, redop, data, size);
                same_bits_everywhere(&name("prepare"), &left, prepare);
            }
            let scalar = &right[..dtype.size()];
            let premultiply = |data: &mut [u8]| all.premultiply(isa, scalar, data);
            same_bits_everywhere(&name("premultiply"), &left, premultiply);
            if redop != RedOp::Avg {
                let identity = |data: &mut [u8]| all.identity(isa, redop, data);
                same_bits_everywhere(&name("identity"), &left, identity);
            }
        }
    }
}

#[test]
fn floats_are_folded_inline_only_in_the_default_environment() {
    let reducer = |dtype| Reducer::Known(Fold::new(dtype, RedOp::Sum).unwrap());
    let (float, integer) = (reducer(DataType::Float32), reducer(DataType::Int32));
    assert!(float.can_fold_inline() && integer.can_fold_inline());
    for environment in OTHERS {
        let mut can = [true; 2];
        in_environment(environment, || can = [float.can_fold_inline(), integer.can_fold_inline()]);
        assert_eq!(can, [false, true], "{environment:x?}");
    }
}
