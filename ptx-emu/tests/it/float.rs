//! Manual, "Floating-Point Instructions", single and double precision.

use crate::machine::{Row, check, f, g};

const TWO: &str = "32 = 32 32";
const THREE: &str = "32 = 32 32 32";
const ONE: &str = "32 = 32";
const NAN: u64 = 0x7fff_ffff;
const QUIET: u64 = 0x7fc0_0000;
const INF: u64 = 0x7f80_0000;
const NEGATIVE_ZERO: u64 = 0x8000_0000;
/// One unit in the last place of 1.
const ULP: f32 = f32::EPSILON;
/// Half a unit: ties.
const HALF_ULP: u64 = f(ULP / 2.0);

#[test]
fn rounding_modes() {
    let rows: &[Row] = &[
        (TWO, "add.f32 %d, %a, %b", &[f(1.0), HALF_ULP], f(1.0)),
        (
            TWO,
            "add.rn.f32 %d, %a, %b",
            &[f(1.0 + ULP), HALF_ULP],
            f(1.0 + 2.0 * ULP),
        ),
        (
            TWO,
            "add.rz.f32 %d, %a, %b",
            &[f(1.0 + ULP), HALF_ULP],
            f(1.0 + ULP),
        ),
        (
            TWO,
            "add.rm.f32 %d, %a, %b",
            &[f(-1.0), f(-1e-20)],
            f(-1.0 - ULP),
        ),
        (
            TWO,
            "add.rp.f32 %d, %a, %b",
            &[f(1.0), f(1e-20)],
            f(1.0 + ULP),
        ),
        (TWO, "add.rp.f32 %d, %a, %b", &[f(-1.0), f(-1e-20)], f(-1.0)),
        (
            TWO,
            "add.rm.f32 %d, %a, %b",
            &[f(1.0), f(-1.0)],
            NEGATIVE_ZERO,
        ),
        (TWO, "add.f32 %d, %a, %b", &[f(1.0), f(-1.0)], 0),
        (
            TWO,
            "sub.rm.f32 %d, %a, %b",
            &[f(1.0), f(1e-20)],
            f(1.0 - ULP / 2.0),
        ),
        (
            TWO,
            "mul.rn.f32 %d, %a, %b",
            &[f(1.0 + ULP), f(1.0 + ULP)],
            f(1.0 + 2.0 * ULP),
        ),
        (
            TWO,
            "mul.rp.f32 %d, %a, %b",
            &[f(1.0 + ULP), f(1.0 + ULP)],
            f(1.0 + 3.0 * ULP),
        ),
        (
            TWO,
            "mul.rz.f32 %d, %a, %b",
            &[f(f32::MAX), f(2.0)],
            f(f32::MAX),
        ),
        (
            TWO,
            "mul.rp.f32 %d, %a, %b",
            &[f(f32::MAX), f(-2.0)],
            f(f32::MIN),
        ),
        (TWO, "mul.rn.f32 %d, %a, %b", &[f(f32::MAX), f(2.0)], INF),
        (
            TWO,
            "div.rn.f32 %d, %a, %b",
            &[f(1.0), f(3.0)],
            f(1.0 / 3.0),
        ),
        (TWO, "div.rz.f32 %d, %a, %b", &[f(1.0), f(3.0)], 0x3eaa_aaaa),
        (TWO, "div.rp.f32 %d, %a, %b", &[f(1.0), f(3.0)], 0x3eaa_aaab),
        (
            TWO,
            "div.rm.f32 %d, %a, %b",
            &[f(-1.0), f(3.0)],
            0xbeaa_aaab,
        ),
        (TWO, "div.rm.f32 %d, %a, %b", &[f(6.0), f(3.0)], f(2.0)),
        (
            ONE,
            "sqrt.rn.f32 %d, %a",
            &[f(2.0)],
            f(std::f32::consts::SQRT_2),
        ),
        (ONE, "sqrt.rz.f32 %d, %a", &[f(2.0)], 0x3fb5_04f3),
        (ONE, "sqrt.rp.f32 %d, %a", &[f(2.0)], 0x3fb5_04f4),
        (ONE, "rcp.rn.f32 %d, %a", &[f(3.0)], f(1.0 / 3.0)),
        (ONE, "rcp.rz.f32 %d, %a", &[f(3.0)], 0x3eaa_aaaa),
    ];
    check(rows);
}

/// `fma` rounds once: ties that only the infinitely precise sum decides, and subnormal results.
#[test]
fn fma_rounds_once() {
    let tiny = f32::from_bits(1);
    let big_odd = f(8_388_609.0);
    let rows: &[Row] = &[
        (
            THREE,
            "fma.rn.f32 %d, %a, %b, %c",
            &[f(1.0 + ULP), f(1.0 - ULP), f(-1.0)],
            f(-ULP * ULP),
        ),
        (
            THREE,
            "fma.rn.f32 %d, %a, %b, %c",
            &[f(4097.0), f(4097.0), f(0.5)],
            f(4097.0f32.mul_add(4097.0, 0.5)),
        ),
        (
            THREE,
            "fma.rn.f32 %d, %a, %b, %c",
            &[big_odd, big_odd, f(-1e-30)],
            f(8_388_609f32.mul_add(8_388_609.0, -1e-30)),
        ),
        // 1 + 2^-24 is a tie, which a little more or less decides.
        (
            THREE,
            "fma.rn.f32 %d, %a, %b, %c",
            &[f(2f32.powi(-12)), f(2f32.powi(-12)), f(1.0)],
            f(1.0),
        ),
        (
            THREE,
            "fma.rn.f32 %d, %a, %b, %c",
            &[f(2f32.powi(-12) * (1.0 + ULP)), f(2f32.powi(-12)), f(1.0)],
            f(1.0 + ULP),
        ),
        // 2^-150 + 2^-197 more than a multiple of 2^-149: above the tie by less than a double shows.
        (
            THREE,
            "fma.rn.f32 %d, %a, %b, %c",
            &[
                f(2f32.powi(-75) * (1.0 + ULP)),
                f(2f32.powi(-75)),
                f(2f32.powi(-127)),
            ],
            (1 << 22) + 1,
        ),
        (
            THREE,
            "fma.rn.f32 %d, %a, %b, %c",
            &[f(2f32.powi(-75)), f(2f32.powi(-75)), f(2f32.powi(-127))],
            1 << 22,
        ),
        (
            THREE,
            "fma.rz.f32 %d, %a, %b, %c",
            &[f(1.0), f(1.0), f(1e-20)],
            f(1.0),
        ),
        (
            THREE,
            "fma.rp.f32 %d, %a, %b, %c",
            &[f(1.0), f(1.0), f(1e-20)],
            f(1.0 + ULP),
        ),
        (
            THREE,
            "fma.rn.ftz.f32 %d, %a, %b, %c",
            &[f(tiny), f(1e30), f(1.0)],
            f(1.0),
        ),
        (
            THREE,
            "fma.rn.sat.f32 %d, %a, %b, %c",
            &[f(2.0), f(2.0), f(1.0)],
            f(1.0),
        ),
        (
            THREE,
            "mad.rn.f32 %d, %a, %b, %c",
            &[f(2.0), f(3.0), f(4.0)],
            f(10.0),
        ),
        (
            "64 = 64 64 64",
            "fma.rn.f64 %d, %a, %b, %c",
            &[g(1e16), g(1.0), g(1.0)],
            g(1e16),
        ),
    ];
    check(rows);
}

#[test]
fn special_values() {
    let subnormal = f(1e-40);
    let rows: &[Row] = &[
        (TWO, "add.f32 %d, %a, %b", &[INF, f(f32::NEG_INFINITY)], NAN),
        (TWO, "add.f32 %d, %a, %b", &[QUIET, f(1.0)], NAN),
        (TWO, "mul.f32 %d, %a, %b", &[INF, 0], NAN),
        (TWO, "add.ftz.f32 %d, %a, %b", &[subnormal, subnormal], 0),
        (
            TWO,
            "add.ftz.f32 %d, %a, %b",
            &[f(-1e-40), f(-1e-40)],
            NEGATIVE_ZERO,
        ),
        (TWO, "add.f32 %d, %a, %b", &[1, 2], 3),
        (
            TWO,
            "mul.ftz.f32 %d, %a, %b",
            &[f(1e-20), f(-1e-20)],
            NEGATIVE_ZERO,
        ),
        (TWO, "add.sat.f32 %d, %a, %b", &[f(1.0), f(1.0)], f(1.0)),
        (TWO, "add.sat.f32 %d, %a, %b", &[QUIET, f(1.0)], 0),
        (TWO, "sub.sat.f32 %d, %a, %b", &[f(1.0), f(2.0)], 0),
        (TWO, "min.f32 %d, %a, %b", &[QUIET, f(1.0)], f(1.0)),
        (
            TWO,
            "min.f32 %d, %a, %b",
            &[0, NEGATIVE_ZERO],
            NEGATIVE_ZERO,
        ),
        (TWO, "max.f32 %d, %a, %b", &[NEGATIVE_ZERO, 0], 0),
        (TWO, "max.f32 %d, %a, %b", &[QUIET, QUIET], NAN),
        (TWO, "max.NaN.f32 %d, %a, %b", &[QUIET, f(1.0)], NAN),
        (TWO, "min.ftz.f32 %d, %a, %b", &[subnormal, f(1.0)], 0),
        (ONE, "abs.f32 %d, %a", &[f(-2.5)], f(2.5)),
        (ONE, "neg.f32 %d, %a", &[0], NEGATIVE_ZERO),
        (ONE, "neg.ftz.f32 %d, %a", &[subnormal], NEGATIVE_ZERO),
        (
            TWO,
            "div.approx.f32 %d, %a, %b",
            &[f(1.0), f(8e37)],
            f(1.0 / 8e37),
        ),
        (TWO, "div.approx.f32 %d, %a, %b", &[f(1.0), f(2e38)], 0),
        (TWO, "div.approx.f32 %d, %a, %b", &[INF, f(2e38)], NAN),
        (TWO, "div.full.f32 %d, %a, %b", &[f(6.0), f(2.0)], f(3.0)),
        (TWO, "div.rn.f32 %d, %a, %b", &[0, 0], NAN),
        (
            TWO,
            "div.rn.f32 %d, %a, %b",
            &[f(-1.0), 0],
            f(f32::NEG_INFINITY),
        ),
        (
            "64 = 64 64",
            "add.f64 %d, %a, %b",
            &[g(0.1), g(0.2)],
            g(0.1 + 0.2),
        ),
        (
            "64 = 64 64",
            "div.rn.f64 %d, %a, %b",
            &[g(1.0), g(3.0)],
            g(1.0 / 3.0),
        ),
        (
            "64 = 64",
            "sqrt.rn.f64 %d, %a",
            &[g(2.0)],
            g(std::f64::consts::SQRT_2),
        ),
        (
            "64 = 64 64",
            "max.f64 %d, %a, %b",
            &[g(f64::NAN), g(1.0)],
            g(1.0),
        ),
        (
            "64 = 64 64",
            "min.f64 %d, %a, %b",
            &[g(0.0), g(-0.0)],
            g(-0.0),
        ),
    ];
    check(rows);
}

/// The tables of special inputs beside each `.approx` instruction.
#[test]
fn approximations_keep_special_values() {
    let negative_infinity = f(f32::NEG_INFINITY);
    let subnormal = f(1e-40);
    let rows: &[Row] = &[
        (
            ONE,
            "rcp.approx.f32 %d, %a",
            &[NEGATIVE_ZERO],
            negative_infinity,
        ),
        (ONE, "rcp.approx.ftz.f32 %d, %a", &[subnormal], INF),
        (ONE, "rcp.approx.ftz.f32 %d, %a", &[f(4.0)], f(0.25)),
        (ONE, "rcp.approx.ftz.f32 %d, %a", &[f(3e38)], 0),
        (
            ONE,
            "sqrt.approx.f32 %d, %a",
            &[NEGATIVE_ZERO],
            NEGATIVE_ZERO,
        ),
        (ONE, "sqrt.approx.f32 %d, %a", &[f(-1.0)], NAN),
        (ONE, "rsqrt.approx.f32 %d, %a", &[0], INF),
        (
            ONE,
            "rsqrt.approx.f32 %d, %a",
            &[NEGATIVE_ZERO],
            negative_infinity,
        ),
        (ONE, "rsqrt.approx.f32 %d, %a", &[INF], 0),
        (ONE, "rsqrt.approx.f32 %d, %a", &[f(4.0)], f(0.5)),
        (ONE, "ex2.approx.f32 %d, %a", &[negative_infinity], 0),
        (ONE, "ex2.approx.f32 %d, %a", &[f(3.0)], f(8.0)),
        (ONE, "ex2.approx.f32 %d, %a", &[f(-149.0)], 1),
        (ONE, "ex2.approx.ftz.f32 %d, %a", &[f(-149.0)], 0),
        (ONE, "ex2.approx.ftz.f32 %d, %a", &[subnormal], f(1.0)),
        (ONE, "lg2.approx.f32 %d, %a", &[0], negative_infinity),
        (ONE, "lg2.approx.f32 %d, %a", &[f(-1.0)], NAN),
        (ONE, "lg2.approx.f32 %d, %a", &[f(8.0)], f(3.0)),
        (
            ONE,
            "lg2.approx.ftz.f32 %d, %a",
            &[subnormal],
            negative_infinity,
        ),
        (
            ONE,
            "sin.approx.f32 %d, %a",
            &[NEGATIVE_ZERO],
            NEGATIVE_ZERO,
        ),
        (ONE, "sin.approx.f32 %d, %a", &[INF], NAN),
        (ONE, "cos.approx.f32 %d, %a", &[0], f(1.0)),
        (ONE, "tanh.approx.f32 %d, %a", &[INF], f(1.0)),
        (
            ONE,
            "tanh.approx.f32 %d, %a",
            &[f(0.5)],
            f(0.5f64.tanh() as f32),
        ),
        ("64 = 64", "rsqrt.approx.f64 %d, %a", &[g(4.0)], g(0.5)),
    ];
    check(rows);
}

/// Random operands, many of them near ties, against the host's fused multiply-add.
#[test]
fn fma_agrees_with_the_host() {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u32
    };

    // Few mantissa bits make exact ties frequent.
    let mut operand =
        || f32::from_bits((next() << 1 & 0x807f_f000) | ((next() % 254 + 1) << 23) | (next() % 3));
    let inputs: Vec<f32> = (0..3 * 32 * 64).map(|_| operand()).collect();
    let wanted: Vec<u32> = inputs
        .chunks(3)
        .map(|x| x[0].mul_add(x[1], x[2]))
        .map(|x| if x.is_nan() { NAN as u32 } else { x.to_bits() })
        .collect();
    let body = "
        .reg .f32 %f<4>; .reg .b32 %i; .reg .b64 %at;
        mov.u32 %i, %ctaid.x;
        mad.lo.u32 %i, %i, 32, %t;
        mad.wide.u32 %at, %i, 12, %in;
        ld.global.f32 %f0, [%at];
        ld.global.f32 %f1, [%at+4];
        ld.global.f32 %f2, [%at+8];
        fma.rn.f32 %f3, %f0, %f1, %f2;
        mad.wide.u32 %at, %i, 4, %out;
        st.global.f32 [%at], %f3;";
    let bits: Vec<u32> = inputs.iter().map(|x| x.to_bits()).collect();
    let setup = crate::machine::Setup {
        grid: 64,
        ..crate::machine::SETUP
    };
    assert_eq!(crate::machine::words(body, &bits, 32 * 64, setup), wanted);
}
