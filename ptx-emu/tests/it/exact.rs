//! Doubles under directed rounding, against integers of any size.
//!
//! A finite double is an integer times 2^-1074, so a sum, a product or a remainder can be compared exactly.

use crate::machine::{SETUP, Setup, kernel, launch};

/// A signed integer: its sign, and 32-bit digits from the lowest on.
#[derive(Clone, Debug)]
struct Big(bool, Vec<u32>);

impl Big {
    /// `x * 2^1074`
    fn of(x: f64) -> Big {
        let (field, low) = (x.to_bits() >> 52 & 0x7ff, x.to_bits() & ((1 << 52) - 1));
        let (mantissa, shift) = if field == 0 {
            (low, 0)
        } else {
            (low | 1 << 52, field as u32 - 1)
        };
        Big(
            x.is_sign_negative(),
            vec![mantissa as u32, (mantissa >> 32) as u32],
        )
        .shifted(shift)
    }

    fn shifted(&self, by: u32) -> Big {
        let mut digits = vec![0; by as usize / 32];
        let mut carry = 0u64;
        for digit in &self.1 {
            let wide = (u64::from(*digit) << (by % 32)) | carry;
            digits.push(wide as u32);
            carry = wide >> 32;
        }
        digits.push(carry as u32);
        Big(self.0, digits)
    }

    fn times(&self, other: &Big) -> Big {
        let mut digits = vec![0u32; self.1.len() + other.1.len()];
        for (i, a) in self.1.iter().enumerate() {
            let mut carry = 0u64;
            for (j, b) in other.1.iter().enumerate() {
                let wide = u64::from(*a) * u64::from(*b) + u64::from(digits[i + j]) + carry;
                digits[i + j] = wide as u32;
                carry = wide >> 32;
            }
            digits[i + other.1.len()] = carry as u32;
        }
        Big(self.0 != other.0, digits)
    }

    fn magnitude(&self, other: &Big) -> std::cmp::Ordering {
        let digit = |x: &Big, i: usize| x.1.get(i).copied().unwrap_or(0);
        (0..self.1.len().max(other.1.len()))
            .rev()
            .map(|i| digit(self, i).cmp(&digit(other, i)))
            .find(|o| o.is_ne())
            .unwrap_or(std::cmp::Ordering::Equal)
    }

    fn plus(&self, other: &Big) -> Big {
        let (large, small) = if self.magnitude(other).is_lt() {
            (other, self)
        } else {
            (self, other)
        };
        let sign = if large.0 == small.0 { 1 } else { -1 };
        let (mut digits, mut carry) = (Vec::new(), 0i64);
        for i in 0..large.1.len().max(small.1.len()) + 1 {
            let digit = |x: &Big| i64::from(x.1.get(i).copied().unwrap_or(0));
            let wide = digit(large) + sign * digit(small) + carry;
            digits.push(wide as u32);
            carry = wide >> 32;
        }

        Big(large.0, digits)
    }

    /// Whether it is below, at or above zero.
    fn sign(&self) -> i32 {
        let zero = self.1.iter().all(|d| *d == 0);
        if zero {
            0
        } else if self.0 {
            -1
        } else {
            1
        }
    }

    fn minus(&self, other: &Big) -> Big {
        self.plus(&Big(!other.0, other.1.clone()))
    }
}

/// The sign of the exact result less `x`; infinities are beyond everything.
fn beyond(op: &str, [a, b, c]: [f64; 3], x: f64) -> i32 {
    if x.is_infinite() {
        return if x > 0.0 { -1 } else { 1 };
    }

    let big = Big::of;

    // Products have the scale 2^2148.
    let scaled = |x: f64| Big::of(x).shifted(1074);
    let product = |a: f64, b: f64| big(a).times(&big(b));
    match op {
        "add" => big(a).plus(&big(b)).minus(&big(x)).sign(),
        "sub" => big(a).minus(&big(b)).minus(&big(x)).sign(),
        "mul" => product(a, b).minus(&scaled(x)).sign(),
        "fma" => product(a, b).plus(&scaled(c)).minus(&scaled(x)).sign(),
        "div" => scaled(a).minus(&product(x, b)).sign() * b.signum() as i32,
        "rcp" => scaled(1.0).minus(&product(x, a)).sign() * a.signum() as i32,
        _ if x < 0.0 => 1,
        _ => scaled(a).minus(&product(x, x)).sign(),
    }
}

/// Whether `x` is the exact result rounded as the mode says.
fn rounded(op: &str, mode: &str, operands: [f64; 3], x: f64) -> bool {
    let side = beyond(op, operands, x);
    // Toward zero is down for what is above it.
    let down = mode == "rm" || mode == "rz" && x.is_sign_positive();
    match (side, down) {
        (0, _) => true,
        (1, true) => x.next_up() > x && beyond(op, operands, x.next_up()) < 0,
        (-1, false) => x.next_down() < x && beyond(op, operands, x.next_down()) > 0,
        _ => false,
    }
}

fn operands() -> Vec<f64> {
    let mut state = 9u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state ^ state >> 29
    };
    let corners = [
        f64::MIN_POSITIVE,
        f64::MAX,
        5e-324,
        1.0,
        -1.0,
        1.0 + f64::EPSILON,
        1e-308,
        -4e-320,
        3.0,
    ];
    (0..3 * 32 * 20)
        .map(|i| match i % 7 {
            0 => corners[next() as usize % corners.len()],
            // Close exponents and few mantissa bits: cancellation and exact results.
            1 | 2 => f64::from_bits(next() & 0x800f_0000_0000_0003 | (1020 + next() % 6) << 52),
            3 => f64::from_bits(next() & 0x800f_ffff_ffff_ffff),
            4 => f64::from_bits(next() & 0x800f_ffff_ffff_ffff | (1000 + next() % 60) << 52),
            _ => f64::from_bits(next()),
        })
        .map(|x| if x.is_finite() && x != 0.0 { x } else { 1.5 })
        .collect()
}

#[test]
fn directed_doubles_are_rounded_as_told() {
    let inputs = operands();
    let bytes: Vec<u8> = inputs
        .iter()
        .flat_map(|x| x.to_bits().to_le_bytes())
        .collect();
    let ops = [
        ("add", 2),
        ("sub", 2),
        ("mul", 2),
        ("fma", 3),
        ("div", 2),
        ("rcp", 1),
        ("sqrt", 1),
    ];
    let mut checked = 0;
    for (op, sources) in ops {
        for mode in ["rz", "rm", "rp"] {
            let list = ["%f0", "%f1", "%f2"][..sources].join(", ");
            let body = format!(
                ".reg .f64 %f<4>; .reg .b32 %i; .reg .b64 %at;
                mov.u32 %i, %ctaid.x; mad.lo.u32 %i, %i, 32, %t; mad.wide.u32 %at, %i, 24, %in;
                ld.global.f64 %f0, [%at]; ld.global.f64 %f1, [%at+8]; ld.global.f64 %f2, [%at+16];
                {op}.{mode}.f64 %f3, {list};
                mad.wide.u32 %at, %i, 8, %out; st.global.f64 [%at], %f3;"
            );
            let room = inputs.len() as u64 / 3 * 8;
            let setup = Setup {
                grid: inputs.len() as u32 / 96,
                ..SETUP
            };
            let (out, _) =
                launch(&kernel(&body), &bytes, room, setup).unwrap_or_else(|f| panic!("{f}"));
            for (x, found) in inputs.as_chunks::<3>().0.iter().zip(out.as_chunks::<8>().0) {
                let found = f64::from_bits(u64::from_le_bytes(*found));
                if op == "sqrt" && x[0] < 0.0 {
                    assert!(found.is_nan());
                    continue;
                }

                assert!(
                    rounded(op, mode, *x, found),
                    "{op}.{mode}.f64 of {x:?} is {found:e}"
                );
                checked += 1;
            }
        }
    }

    assert!(checked > 10_000, "{checked}");
}

/// Zeros, infinities and what is none do not depend on the mode, but for a sum that cancels.
#[test]
fn special_doubles() {
    use crate::machine::{Row, check, g};
    let (inf, zero, negative) = (g(f64::INFINITY), g(0.0), g(-0.0));
    const TWO: &str = "64 = 64 64";
    let rows: &[Row] = &[
        (TWO, "add.rm.f64 %d, %a, %b", &[g(1.5), g(-1.5)], negative),
        (TWO, "add.rp.f64 %d, %a, %b", &[g(1.5), g(-1.5)], zero),
        (TWO, "add.rm.f64 %d, %a, %b", &[zero, negative], negative),
        (TWO, "sub.rm.f64 %d, %a, %b", &[zero, zero], negative),
        (TWO, "add.rm.f64 %d, %a, %b", &[zero, zero], zero),
        (TWO, "mul.rp.f64 %d, %a, %b", &[g(1e300), g(1e300)], inf),
        (
            TWO,
            "mul.rz.f64 %d, %a, %b",
            &[g(1e300), g(-1e300)],
            g(f64::MIN),
        ),
        (
            TWO,
            "mul.rz.f64 %d, %a, %b",
            &[inf, g(-2.0)],
            g(f64::NEG_INFINITY),
        ),
        (
            TWO,
            "div.rp.f64 %d, %a, %b",
            &[g(1.0), negative],
            g(f64::NEG_INFINITY),
        ),
        (
            "64 = 64 64 64",
            "fma.rm.f64 %d, %a, %b, %c",
            &[g(2.0), g(3.0), g(-6.0)],
            negative,
        ),
        (
            "64 = 64 64 64",
            "fma.rz.f64 %d, %a, %b, %c",
            &[g(1e300), g(1e300), g(f64::NEG_INFINITY)],
            g(f64::NEG_INFINITY),
        ),
        (
            "64 = 64 64 64",
            "fma.rp.f64 %d, %a, %b, %c",
            &[zero, g(5.0), g(7.0)],
            g(7.0),
        ),
        ("64 = 64", "sqrt.rm.f64 %d, %a", &[negative], negative),
        ("64 = 64", "rcp.rz.f64 %d, %a", &[inf], zero),
        // The tables beside the two gross approximations.
        ("64 = 64", "rcp.approx.ftz.f64 %d, %a", &[g(4.0)], g(0.25)),
        (
            "64 = 64",
            "rcp.approx.ftz.f64 %d, %a",
            &[g(-1e-310)],
            g(f64::NEG_INFINITY),
        ),
        (
            "64 = 64",
            "rcp.approx.ftz.f64 %d, %a",
            &[g(f64::NEG_INFINITY)],
            negative,
        ),
        ("64 = 64", "rcp.approx.ftz.f64 %d, %a", &[g(1.7e308)], zero),
        // 1/3 is 0x3fd5_5555_5555_5555.
        (
            "64 = 64",
            "rcp.approx.ftz.f64 %d, %a",
            &[g(3.0)],
            0x3fd5_5555_0000_0000,
        ),
        (
            "64 = 64",
            "rcp.approx.ftz.f64 %d, %a",
            &[0x3ff0_0000_ffff_ffff],
            g(1.0),
        ),
        (
            "64 = 64",
            "rsqrt.approx.ftz.f64 %d, %a",
            &[g(16.0)],
            g(0.25),
        ),
        (
            "64 = 64",
            "rsqrt.approx.ftz.f64 %d, %a",
            &[negative],
            g(f64::NEG_INFINITY),
        ),
        ("64 = 64", "rsqrt.approx.ftz.f64 %d, %a", &[inf], zero),
    ];
    check(rows);
}
