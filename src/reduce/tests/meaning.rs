//! The guarantees of reductions, by example.

use bytemuck::{Pod, bytes_of, pod_read_unaligned};
use half::{bf16, f16};

use super::super::{finish, fold, identity, premultiply, prepare};
use super::*;

fn folded<T: Pod>(dtype: DataType, redop: RedOp, a: T, b: T) -> T {
    let mut into = bytes_of(&a).to_vec();
    fold(Fold::new(dtype, redop).unwrap(), &mut into, bytes_of(&b));
    pod_read_unaligned(&into)
}

#[test]
fn integers_wrap_and_compare_by_their_signedness() {
    assert_eq!(folded(DataType::Int8, RedOp::Sum, 127_i8, 1), -128);
    assert_eq!(folded(DataType::Uint8, RedOp::Prod, 16_u8, 17), 16);
    assert_eq!(folded(DataType::Int8, RedOp::Max, -1_i8, 1), 1);
    assert_eq!(folded(DataType::Uint8, RedOp::Max, 255_u8, 1), 255);
    assert_eq!(folded(DataType::Int64, RedOp::Min, i64::MIN, i64::MAX), i64::MIN);
    assert_eq!(folded(DataType::Uint16, RedOp::BitXor, 0xf0f0_u16, 0xffff), 0x0f0f);
    assert_eq!(folded(DataType::Int32, RedOp::LogicalAnd, 8_i32, -3), 1);
    assert_eq!(folded(DataType::Int32, RedOp::LogicalXor, 8_i32, -3), 0);
}

#[test]
fn a_nan_operand_gives_the_canonical_nan_of_its_type() {
    let canonical = [
        (DataType::Float32, 0x7fc0_0000),
        (DataType::Float64, 0x7ff8_0000_0000_0000),
        (DataType::Float16, 0x7e00),
        (DataType::Bfloat16, 0x7fc0),
        (DataType::Float8e4m3, 0x7f),
        (DataType::Float8e5m2, 0x7e),
    ];
    for (dtype, canonical) in canonical {
        let sign = 1_u64 << (8 * dtype.size() - 1);
        for redop in [RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::Min] {
            for (a, b) in [(canonical | sign, 0), (0, canonical | sign), (sign - 1, sign - 1)] {
                let mut into = array(dtype, [a]);
                fold(Fold::new(dtype, redop).unwrap(), &mut into, &array(dtype, [b]));
                assert_eq!(bits(dtype, &into), [canonical], "{dtype} {redop:?}");
            }
        }
        // Infinity minus infinity; e4m3 has no infinity.
        if dtype != DataType::Float8e4m3 {
            let infinity = bits(dtype, &identity_of(dtype, RedOp::Min))[0];
            let mut into = array(dtype, [infinity]);
            let sum = Fold::new(dtype, RedOp::Sum).unwrap();
            fold(sum, &mut into, &array(dtype, [infinity | sign]));
            assert_eq!(bits(dtype, &into), [canonical], "{dtype}");
        }
    }
}

#[test]
fn minus_zero_is_less_than_zero_in_every_float_type() {
    for dtype in FLOATS {
        let minus = 1_u64 << (8 * dtype.size() - 1);
        for (a, b) in [(0, minus), (minus, 0)] {
            for (redop, expected) in [(RedOp::Min, minus), (RedOp::Max, 0)] {
                let mut into = array(dtype, [a]);
                fold(Fold::new(dtype, redop).unwrap(), &mut into, &array(dtype, [b]));
                assert_eq!(bits(dtype, &into), [expected], "{dtype} {redop:?}");
            }
        }
    }
}

#[test]
fn small_floats_round_to_nearest_even() {
    let sum = |a, b| {
        folded(
            DataType::Bfloat16,
            RedOp::Sum,
            bf16::from_f32(a).to_bits(),
            bf16::from_f32(b).to_bits(),
        )
    };
    assert_eq!(sum(256.0, 1.0), bf16::from_f32(256.0).to_bits()); // a tie goes down to even
    assert_eq!(sum(258.0, 1.0), bf16::from_f32(260.0).to_bits()); // and up to even
    let sum = |a, b| {
        let sum = folded(
            DataType::Float16,
            RedOp::Sum,
            f16::from_f32(a).to_bits(),
            f16::from_f32(b).to_bits(),
        );
        f16::from_bits(sum).to_f32()
    };
    assert_eq!(sum(1.0, 0.99951), 2.0); // 1.99951 is a tie that carries into the exponent
    assert_eq!(F16::narrow(1.9998), f16::from_f32(2.0).to_bits().into());
    assert_eq!(sum(2048.0, 1.0), 2048.0);
    assert_eq!(sum(2050.0, 1.0), 2052.0);
    let sum = |dtype, a: u8, b: u8| folded(dtype, RedOp::Sum, a, b);
    assert_eq!(sum(DataType::Float8e4m3, 0x58, 0x38), 0x58); // 16 + 1 = 16
    assert_eq!(sum(DataType::Float8e4m3, 0x59, 0x38), 0x5a); // 18 + 1 = 20
    assert_eq!(sum(DataType::Float8e5m2, 0x48, 0x3c), 0x48); // 8 + 1 = 8
    assert_eq!(sum(DataType::Float8e5m2, 0x49, 0x3c), 0x4a); // 10 + 1 = 12
}

#[test]
fn overflow_gives_infinity_or_in_a_type_without_it_the_largest_number() {
    let sum = |dtype, a: u8, b: u8| folded(dtype, RedOp::Sum, a, b);
    assert_eq!(sum(DataType::Float8e5m2, 0x7b, 0x7b), 0x7c);
    assert_eq!(sum(DataType::Float8e5m2, 0xfb, 0xfb), 0xfc);
    assert_eq!(sum(DataType::Float8e4m3, 0x7e, 0x7e), 0x7e);
    assert_eq!(sum(DataType::Float8e4m3, 0xfe, 0xfe), 0xfe);
    assert_eq!(folded(DataType::Float16, RedOp::Sum, 0x7bff_u16, 0x7bff), 0x7c00);
    assert_eq!(folded(DataType::Bfloat16, RedOp::Sum, 0x7f7f_u16, 0x7f7f), 0x7f80);
}

#[test]
fn avg_scales_floats_first_and_divides_integers_last() {
    let avg = |dtype| Fold::new(dtype, RedOp::Avg).unwrap();
    let mut float = 3.0_f32.to_ne_bytes();
    prepare(avg(DataType::Float32), &mut float, 4);
    finish(avg(DataType::Float32), &mut float, 4);
    assert_eq!(f32::from_ne_bytes(float), 0.75);
    let mut eight = [0x48_u8]; // 4 in e4m3
    prepare(avg(DataType::Float8e4m3), &mut eight, 3);
    assert_eq!(eight, [0x3b], "4/3 is nearest to 1.375");
    let mut int = (-7_i32).to_ne_bytes();
    prepare(avg(DataType::Int32), &mut int, 2);
    finish(avg(DataType::Int32), &mut int, 2);
    assert_eq!(i32::from_ne_bytes(int), -3);
    let mut byte = [100_u8];
    finish(avg(DataType::Int8), &mut byte, 300);
    assert_eq!(byte, [0], "a size that does not fit the type still divides");
}

#[test]
fn integers_are_divided_exactly_towards_zero() {
    fn check<T: Integer + Into<i128> + std::fmt::Debug>(values: impl Iterator<Item = T> + Clone) {
        for size in [1, 2, 3, 5, 7, 10, 127, 128, 255, 256, 1000, 32767, 65536, 1 << 31] {
            for value in values.clone() {
                let expected = value.into() / size as i128;
                assert_eq!(value.divide(size).into(), expected, "{value:?} / {size}");
            }
        }
    }
    check(i8::MIN..=i8::MAX);
    check(u8::MIN..=u8::MAX);
    check(i16::MIN..=i16::MAX);
    check(u16::MIN..=u16::MAX);
    let around = [0, 1, 2, 3, 1000, 65535, 65536, 1 << 30, 1 << 31, u32::MAX];
    let words = around.into_iter().flat_map(|x| (0..2000_u32).map(move |d| x.wrapping_sub(d)));
    check(words.clone());
    check(words.clone().map(|word| word as i32));
    let long = words.map(|word| u64::from(word) << 32 | u64::from(!word));
    check(long.clone());
    check(long.map(|word| word as i64));
}

#[test]
fn logical_operators_convert_elements_to_zero_and_one() {
    let or = Fold::new(DataType::Int32, RedOp::LogicalOr).unwrap();
    let mut data = [[0, 0, 0, 0], [0, 7, 0, 0], [0xff; 4]].concat();
    prepare(or, &mut data, 1);
    assert_eq!(data, [[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]].concat());
}

#[test]
fn a_single_rank_gets_canonical_nans_and_no_other_change() {
    for dtype in FLOATS {
        let sum = Fold::new(dtype, RedOp::Sum).unwrap();
        let mut data = array(dtype, special(dtype));
        prepare(sum, &mut data, 1);
        let minus_zero = 1 << (8 * dtype.size() - 1);
        // Adding -0 changes no number, but makes NaNs canonical.
        let expected: Vec<_> =
            special(dtype).into_iter().map(|x| defined(sum, x, minus_zero)).collect();
        assert_eq!(bits(dtype, &data), expected, "{dtype}");
    }
}

fn identity_of(dtype: DataType, redop: RedOp) -> Vec<u8> {
    let mut element = vec![0; dtype.size()];
    identity(Fold::new(dtype, redop).unwrap(), &mut element);
    element
}

#[test]
fn the_identity_changes_no_element() {
    for fold in folds().filter(|fold| fold.redop() != RedOp::Avg) {
        let (dtype, redop) = (fold.dtype(), fold.redop());
        let identity = bits(dtype, &identity_of(dtype, redop))[0];
        let logical = [RedOp::LogicalAnd, RedOp::LogicalOr, RedOp::LogicalXor].contains(&redop);
        let values = if logical { vec![0, 1] } else { special(dtype) };
        let nan = |bits| !dtype.is_integer() && is_nan(dtype, bits);
        // The contract's identity of a sum is +0, which turns -0 into +0.
        let minus_zero = 1 << (8 * dtype.size() - 1);
        let kept = |bits: &u64| !nan(*bits) && (redop != RedOp::Sum || *bits != minus_zero);
        for value in values.into_iter().filter(kept) {
            assert_eq!(defined(fold, value, identity), value, "{dtype} {redop:?}");
        }
    }
}

fn is_nan(dtype: DataType, bits: u64) -> bool {
    let canonical = special(dtype)[0];
    defined(Fold::new(dtype, RedOp::Max).unwrap(), bits, bits) == canonical
}

#[test]
fn identities_are_those_of_the_contract() {
    let of = |dtype, redop| bits(dtype, &identity_of(dtype, redop))[0];
    assert_eq!(of(DataType::Int32, RedOp::Max), 0x8000_0000);
    assert_eq!(of(DataType::Uint32, RedOp::Max), 0);
    assert_eq!(of(DataType::Int8, RedOp::Min), 0x7f);
    assert_eq!(of(DataType::Uint64, RedOp::Min), u64::MAX);
    assert_eq!(of(DataType::Int16, RedOp::BitAnd), 0xffff);
    assert_eq!(of(DataType::Int16, RedOp::LogicalAnd), 1);
    assert_eq!(of(DataType::Int16, RedOp::LogicalXor), 0);
    assert_eq!(of(DataType::Float32, RedOp::Sum), 0);
    assert_eq!(of(DataType::Float32, RedOp::Prod), 0x3f80_0000);
    assert_eq!(of(DataType::Float64, RedOp::Min), 0x7ff0_0000_0000_0000);
    assert_eq!(of(DataType::Float16, RedOp::Max), 0xfc00);
    assert_eq!(of(DataType::Bfloat16, RedOp::Prod), 0x3f80);
    assert_eq!(of(DataType::Float8e5m2, RedOp::Max), 0xfc);
    assert_eq!(of(DataType::Float8e4m3, RedOp::Max), 0xfe);
    assert_eq!(of(DataType::Float8e4m3, RedOp::Min), 0x7e);
}

#[test]
fn premultiply_multiplies_in_the_arithmetic_of_the_type() {
    let mut ints = [[3, 0, 0, 0], [255, 255, 255, 255]].concat();
    premultiply(DataType::Int32, &(-2_i32).to_ne_bytes(), &mut ints);
    assert_eq!(ints, [(-6_i32).to_ne_bytes(), 2_i32.to_ne_bytes()].concat());
    let mut byte = [200_u8];
    premultiply(DataType::Uint8, &[3], &mut byte);
    assert_eq!(byte, [88], "integers wrap");
    let mut half = f16::from_f32(0.1).to_bits().to_ne_bytes();
    premultiply(DataType::Float16, &f16::from_f32(3.0).to_bits().to_ne_bytes(), &mut half);
    let exact = f16::from_f32(0.1).to_f32() * 3.0;
    assert_eq!(u16::from_ne_bytes(half), f16::from_f32(exact).to_bits());
    let mut eight = [0x7e_u8, 0xff];
    premultiply(DataType::Float8e4m3, &[0x40], &mut eight);
    assert_eq!(eight, [0x7e, 0x7f], "448 * 2 stays 448, and a NaN becomes the canonical one");
}
