//! The conversions of small floats against independent oracles: for 16 bits the crate half, for 8
//! bits a search through all 256 values in exact arithmetic.

use half::{bf16, f16};

use super::*;

/// f32 equal to, next to and between all values of a format, and others of every size.
fn wide_values<S: Small>(codes: std::ops::RangeInclusive<u32>) -> Vec<f32> {
    let mut finite: Vec<f32> = codes.map(S::widen).filter(|wide| wide.is_finite()).collect();
    finite.sort_by(f32::total_cmp);
    let middles = finite.windows(2).map(|two| two[0] / 2.0 + two[1] / 2.0);
    let beyond = [448.0, 464.0, 480.0, 57344.0, 61440.0, 65504.0, 65520.0, 65536.0, 1e38];
    let beyond = beyond.into_iter().flat_map(|x: f32| [x, -x]);
    let exact = finite.iter().copied().chain(middles).chain(beyond);
    let near = exact.flat_map(|x| [x.next_down(), x, x.next_up()]);
    let every_size = (0..1 << 16).map(|upper: u32| f32::from_bits(upper << 16 | 0x5a5a));
    let all = near.chain(every_size).chain([f32::INFINITY, f32::NEG_INFINITY]);
    all.filter(|wide| !wide.is_nan()).collect()
}

fn agrees<S: Small>(from_bits: fn(u16) -> f32, to_bits: fn(f32) -> u16) {
    for code in 0..=0xffff {
        let (wide, expected) = (S::widen(code.into()), from_bits(code));
        let same = wide.to_bits() == expected.to_bits() || wide.is_nan() && expected.is_nan();
        assert!(same, "{code:x} is {expected}, not {wide}");
    }
    for wide in wide_values::<S>(0..=0xffff) {
        assert_eq!(S::narrow(wide), to_bits(wide).into(), "{wide}");
    }
    assert_eq!(S::narrow(f32::NAN), to_bits(f32::NAN).into());
}

#[test]
fn f16_and_bf16_are_converted_as_the_crate_half_does() {
    agrees::<F16>(
        |bits| f16::from_bits(bits).to_f32_const(),
        |wide| f16::from_f32_const(wide).to_bits(),
    );
    agrees::<Bf16>(
        |bits| bf16::from_bits(bits).to_f32_const(),
        |wide| bf16::from_f32_const(wide).to_bits(),
    );
}

/// An 8-bit format as its specification has it.
struct Specified {
    mantissa: u32,
    bias: i32,
    /// The last code of a finite number.
    last_finite: u8,
    infinity: Option<u8>,
    nan: u8,
}

const E4M3: Specified =
    Specified { mantissa: 3, bias: 7, last_finite: 0x7e, infinity: None, nan: 0x7f };
const E5M2: Specified =
    Specified { mantissa: 2, bias: 15, last_finite: 0x7b, infinity: Some(0x7c), nan: 0x7e };

impl Specified {
    /// The value of a code without sign, if all codes were numbers.
    fn number(&self, code: u8) -> f64 {
        let exponent = i32::from(code) >> self.mantissa;
        let fraction = f64::from(code & ((1 << self.mantissa) - 1)) / f64::from(1 << self.mantissa);
        match exponent {
            0 => fraction * 2_f64.powi(1 - self.bias),
            _ => (1.0 + fraction) * 2_f64.powi(exponent - self.bias),
        }
    }

    fn widen(&self, code: u8) -> f64 {
        let magnitude = code & 0x7f;
        let wide = match magnitude {
            _ if Some(magnitude) == self.infinity => f64::INFINITY,
            _ if magnitude > self.last_finite => f64::NAN,
            _ => self.number(magnitude),
        };
        if code < 0x80 { wide } else { -wide }
    }

    /// The code of the nearest number; of two equally near ones, the even code. Infinity counts as
    /// the number that its code would be.
    fn narrow(&self, wide: f64) -> u8 {
        let last = self.infinity.unwrap_or(self.last_finite);
        let size = wide.abs().min(self.number(last));
        let distance = |code: &u8| (self.number(*code) - size).abs();
        let better =
            |a: &u8, b: &u8| distance(a).total_cmp(&distance(b)).then((a % 2).cmp(&(b % 2)));
        let nearest = (0..=last).min_by(better).unwrap();
        if wide.is_nan() { self.nan } else { nearest | u8::from(wide.is_sign_negative()) << 7 }
    }
}

#[test]
fn floats_of_8_bits_are_converted_as_a_search_through_all_values_finds() {
    fn agrees<S: Small>(specified: &Specified) {
        for code in 0..=0xff {
            let (wide, expected) = (S::widen(code.into()), specified.widen(code) as f32);
            let same = wide.to_bits() == expected.to_bits() || wide.is_nan() && expected.is_nan();
            assert!(same, "{code:x} is {expected}, not {wide}");
        }
        for wide in wide_values::<S>(0..=0xff).into_iter().chain([f32::NAN]) {
            assert_eq!(S::narrow(wide), specified.narrow(wide.into()).into(), "{wide}");
        }
    }
    agrees::<E4m3>(&E4M3);
    agrees::<E5m2>(&E5M2);
}

#[test]
fn bits_above_an_element_do_not_change_it() {
    fn check<S: Small>(codes: std::ops::RangeInclusive<u32>, above: u32) {
        for code in codes {
            assert_eq!(S::widen(code).to_bits(), S::widen(code | above).to_bits(), "{code:x}");
        }
    }
    check::<F16>(0..=0xffff, 0xa5a5_0000);
    check::<Bf16>(0..=0xffff, 0xa5a5_0000);
    check::<E4m3>(0..=0xff, 0xa5a5_a500);
    check::<E5m2>(0..=0xff, 0xa5a5_a500);
}
