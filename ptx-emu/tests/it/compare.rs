//! Manual, "Comparison and Selection Instructions".

use crate::machine::{Row, check, f, g, s};

const NAN: u64 = f(f32::NAN);

#[test]
fn integers_compare_signed_and_unsigned() {
    const P: &str = "1 = 32 32";
    let rows: &[Row] = &[
        (P, "setp.eq.s32 %d, %a, %b", &[5, 5], 1),
        (P, "setp.ne.b32 %d, %a, %b", &[5, 5], 0),
        (P, "setp.lt.s32 %d, %a, %b", &[s(-1), 1], 1),
        (P, "setp.lt.u32 %d, %a, %b", &[s(-1), 1], 0),
        (P, "setp.lo.u32 %d, %a, %b", &[1, 2], 1),
        (P, "setp.ls.u32 %d, %a, %b", &[2, 2], 1),
        (P, "setp.hi.u32 %d, %a, %b", &[s(-1), 1], 1),
        (P, "setp.hs.u32 %d, %a, %b", &[1, 1], 1),
        (P, "setp.ge.s32 %d, %a, %b", &[s(-1), 1], 0),
        ("1 = 16 16", "setp.gt.s16 %d, %a, %b", &[0xffff, 0], 0),
        ("1 = 64 64", "setp.gt.u64 %d, %a, %b", &[u64::MAX, 0], 1),
        ("1 = 64 64", "setp.le.s64 %d, %a, %b", &[u64::MAX, 0], 1),
    ];
    check(rows);
}

/// Ordered comparisons are false with a NaN, unordered ones true.
#[test]
fn floats_compare_ordered_and_unordered() {
    let ops = [
        "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
    ];

    // Results for (1, 2), (2, 1), (1, 1), (1, NaN).
    let wanted = [
        [0, 0, 1, 0],
        [1, 1, 0, 0],
        [1, 0, 0, 0],
        [1, 0, 1, 0],
        [0, 1, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 1, 1],
        [1, 1, 0, 1],
        [1, 0, 0, 1],
        [1, 0, 1, 1],
        [0, 1, 0, 1],
        [0, 1, 1, 1],
        [1, 1, 1, 0],
        [0, 0, 0, 1],
    ];
    let inputs = [
        [f(1.0), f(2.0)],
        [f(2.0), f(1.0)],
        [f(1.0), f(1.0)],
        [f(1.0), NAN],
    ];
    let wide = [
        [g(1.0), g(2.0)],
        [g(2.0), g(1.0)],
        [g(1.0), g(1.0)],
        [g(1.0), g(f64::NAN)],
    ];
    let single: Vec<String> = ops
        .iter()
        .map(|op| format!("setp.{op}.f32 %d, %a, %b"))
        .collect();
    let double: Vec<String> = ops
        .iter()
        .map(|op| format!("setp.{op}.f64 %d, %a, %b"))
        .collect();
    let mut rows: Vec<Row> = Vec::new();
    for (op, wanted) in wanted.iter().enumerate() {
        for (case, wanted) in wanted.iter().enumerate() {
            rows.push(("1 = 32 32", &single[op], &inputs[case], *wanted));
            rows.push(("1 = 64 64", &double[op], &wide[case], *wanted));
        }
    }

    check(&rows);
}

#[test]
fn zeros_and_subnormals() {
    let rows: &[Row] = &[
        ("1 = 32 32", "setp.eq.f32 %d, %a, %b", &[f(0.0), f(-0.0)], 1),
        ("1 = 32 32", "setp.gt.f32 %d, %a, %b", &[1, 0], 1),
        ("1 = 32 32", "setp.gt.ftz.f32 %d, %a, %b", &[1, 0], 0),
        ("1 = 16 16", "setp.lt.f16 %d, %a, %b", &[0x3c00, 0x4000], 1),
        ("1 = 16 16", "setp.lt.bf16 %d, %a, %b", &[0x3f80, 0x4000], 1),
    ];
    check(rows);
}

/// `p = (a op b) bool c`, `q = !(a op b) bool c`.
#[test]
fn comparisons_combine_with_a_predicate() {
    const P: &str = "1 = 32 32 1";
    let rows: &[Row] = &[
        (P, "setp.lt.and.s32 %d, %a, %b, %c", &[1, 2, 1], 1),
        (P, "setp.lt.and.s32 %d, %a, %b, %c", &[1, 2, 0], 0),
        (P, "setp.lt.and.s32 %d, %a, %b, !%c", &[1, 2, 0], 1),
        (P, "setp.lt.or.s32 %d, %a, %b, %c", &[2, 1, 1], 1),
        (P, "setp.lt.xor.s32 %d, %a, %b, %c", &[1, 2, 1], 0),
        ("1 = 32 32", "setp.lt.s32 _|%d, %a, %b", &[1, 2], 0),
        (P, "setp.lt.and.s32 _|%d, %a, %b, %c", &[2, 1, 1], 1),
        (P, "setp.lt.or.s32 _|%d, %a, %b, %c", &[1, 2, 1], 1),
    ];
    check(rows);
}

#[test]
fn selection() {
    let rows: &[Row] = &[
        ("32 = 32 32 1", "selp.b32 %d, %a, %b, %c", &[7, 9, 1], 7),
        ("32 = 32 32 1", "selp.f32 %d, %a, %b, %c", &[7, 9, 0], 9),
        ("64 = 64 64 1", "selp.b64 %d, %a, %b, %c", &[7, 9, 0], 9),
        ("16 = 16 16 1", "selp.b16 %d, %a, %b, %c", &[7, 9, 1], 7),
        (
            "32 = 32 32 32",
            "slct.u32.s32 %d, %a, %b, %c",
            &[7, 9, 0],
            7,
        ),
        (
            "32 = 32 32 32",
            "slct.u32.s32 %d, %a, %b, %c",
            &[7, 9, s(-1)],
            9,
        ),
        (
            "32 = 32 32 32",
            "slct.f32.f32 %d, %a, %b, %c",
            &[7, 9, f(-0.0)],
            7,
        ),
        (
            "32 = 32 32 32",
            "slct.u32.f32 %d, %a, %b, %c",
            &[7, 9, NAN],
            9,
        ),
        (
            "32 = 32 32",
            "set.lt.u32.s32 %d, %a, %b",
            &[s(-1), 0],
            0xffff_ffff,
        ),
        (
            "32 = 32 32",
            "set.lt.f32.s32 %d, %a, %b",
            &[s(-1), 0],
            f(1.0),
        ),
        ("32 = 32 32", "set.gt.u32.f32 %d, %a, %b", &[f(1.0), NAN], 0),
        (
            "32 = 32 32 1",
            "set.gt.and.u32.f32 %d, %a, %b, %c",
            &[f(1.0), 0, 1],
            0xffff_ffff,
        ),
    ];
    check(rows);
}

/// The source that `selp` does not choose may be undefined.
#[test]
fn selp_reads_only_what_it_chooses() {
    let inst = ".reg .b32 %never;\nselp.b32 %d, %a, %never, %b";
    check(&[("32 = 32 1", inst, &[7, 1], 7)]);
}

#[test]
fn properties() {
    const P: &str = "1 = 32";
    let rows: &[Row] = &[
        (P, "testp.finite.f32 %d, %a", &[f(1.0)], 1),
        (P, "testp.finite.f32 %d, %a", &[NAN], 0),
        (P, "testp.infinite.f32 %d, %a", &[f(f32::INFINITY)], 1),
        (P, "testp.number.f32 %d, %a", &[f(f32::INFINITY)], 1),
        (P, "testp.notanumber.f32 %d, %a", &[NAN], 1),
        (P, "testp.normal.f32 %d, %a", &[f(1.0)], 1),
        (P, "testp.subnormal.f32 %d, %a", &[1], 1),
        ("1 = 64", "testp.subnormal.f64 %d, %a", &[1], 1),
        (
            "32 = 32 32",
            "copysign.f32 %d, %a, %b",
            &[f(-2.0), f(3.0)],
            f(-3.0),
        ),
    ];
    check(rows);
}
