//! Manual, "Logic and Shift Instructions", `prmt`, and moves that pack and unpack.

use crate::machine::{Row, check, s};

const TWO: &str = "32 = 32 32";
const THREE: &str = "32 = 32 32 32";

#[test]
fn logic() {
    let rows: &[Row] = &[
        (TWO, "and.b32 %d, %a, %b", &[0xff00, 0x0ff0], 0x0f00),
        (TWO, "or.b32 %d, %a, %b", &[0xff00, 0x0ff0], 0xfff0),
        (TWO, "xor.b32 %d, %a, %b", &[0xff00, 0x0ff0], 0xf0f0),
        ("32 = 32", "not.b32 %d, %a", &[0xff00], 0xffff_00ff),
        ("16 = 16", "not.b16 %d, %a", &[0xff00], 0x00ff),
        ("64 = 64", "not.b64 %d, %a", &[0], u64::MAX),
        ("32 = 32", "cnot.b32 %d, %a", &[0], 1),
        ("32 = 32", "cnot.b32 %d, %a", &[7], 0),
        ("1 = 1 1", "and.pred %d, %a, %b", &[1, 0], 0),
        ("1 = 1 1", "or.pred %d, %a, %b", &[1, 0], 1),
        ("1 = 1 1", "xor.pred %d, %a, %b", &[1, 1], 0),
        ("1 = 1", "not.pred %d, %a", &[0], 1),
        ("1 = 1", "not.pred %d, %a", &[1], 0),
        ("1 = 1", "mov.pred %d, %a", &[1], 1),
    ];
    check(rows);
}

/// A table `F(0xf0, 0xcc, 0xaa)` is its own value on those operands.
#[test]
fn lop3_computes_its_table() {
    let inst: Vec<String> = (0..256)
        .map(|table| format!("lop3.b32 %d, %a, %b, %c, {table}"))
        .collect();
    let rows: Vec<Row> = (0..256)
        .map(|t| (THREE, inst[t as usize].as_str(), &[0xf0, 0xcc, 0xaa][..], t))
        .collect();
    let low = |row: &Row<'_>| row.3 & 1 == 0;
    check(&rows.iter().copied().filter(low).collect::<Vec<_>>());

    // With bit 0 set, the 24 upper bits, where all operands are 0, are ones.
    let high: Vec<Row> = rows
        .iter()
        .copied()
        .filter(|r| !low(r))
        .map(|r| (r.0, r.1, r.2, r.3 | 0xffff_ff00))
        .collect();
    check(&high);
}

/// Shifts clamp at the width; `shf.wrap` takes the amount modulo 32.
#[test]
fn shifts() {
    let rows: &[Row] = &[
        (TWO, "shl.b32 %d, %a, %b", &[1, 31], 0x8000_0000),
        (TWO, "shl.b32 %d, %a, %b", &[1, 32], 0),
        (TWO, "shl.b32 %d, %a, %b", &[1, 0xffff_ffff], 0),
        (TWO, "shr.u32 %d, %a, %b", &[0x8000_0000, 31], 1),
        (TWO, "shr.u32 %d, %a, %b", &[0x8000_0000, 33], 0),
        (TWO, "shr.b32 %d, %a, %b", &[0x8000_0000, 32], 0),
        (TWO, "shr.s32 %d, %a, %b", &[0x8000_0000, 4], 0xf800_0000),
        (TWO, "shr.s32 %d, %a, %b", &[0x8000_0000, 99], 0xffff_ffff),
        ("16 = 16 32", "shl.b16 %d, %a, %b", &[0x8001, 1], 2),
        ("16 = 16 32", "shr.s16 %d, %a, %b", &[0x8000, 20], 0xffff),
        ("64 = 64 32", "shl.b64 %d, %a, %b", &[1, 63], 1 << 63),
        ("64 = 64 32", "shl.b64 %d, %a, %b", &[1, 64], 0),
        ("64 = 64 32", "shr.s64 %d, %a, %b", &[1 << 63, 64], u64::MAX),
        (
            THREE,
            "shf.l.wrap.b32 %d, %a, %b, %c",
            &[0x8000_0000, 1, 1],
            3,
        ),
        (
            THREE,
            "shf.l.wrap.b32 %d, %a, %b, %c",
            &[0x8000_0000, 1, 33],
            3,
        ),
        (
            THREE,
            "shf.l.clamp.b32 %d, %a, %b, %c",
            &[0x8000_0000, 1, 33],
            0x8000_0000,
        ),
        (
            THREE,
            "shf.r.wrap.b32 %d, %a, %b, %c",
            &[2, 1, 1],
            0x8000_0001,
        ),
        (THREE, "shf.r.clamp.b32 %d, %a, %b, %c", &[2, 1, 32], 1),
        (THREE, "shf.r.clamp.b32 %d, %a, %b, %c", &[2, 7, 77], 7),
    ];
    check(rows);
}

#[test]
fn permutes() {
    const A: u64 = 0x3322_1180;
    const B: u64 = 0x7766_5544;
    let rows: &[Row] = &[
        (THREE, "prmt.b32 %d, %a, %b, %c", &[A, B, 0x3210], A),
        (THREE, "prmt.b32 %d, %a, %b, %c", &[A, B, 0x7654], B),
        (
            THREE,
            "prmt.b32 %d, %a, %b, %c",
            &[A, B, 0x0123],
            0x8011_2233,
        ),
        (
            THREE,
            "prmt.b32 %d, %a, %b, %c",
            &[A, B, 0x8888],
            0xffff_ffff,
        ),
        (THREE, "prmt.b32 %d, %a, %b, %c", &[A, B, 0x9999], 0),
        (
            THREE,
            "prmt.b32 %d, %a, %b, %c",
            &[A, B, 0xf840],
            0x00ff_4480,
        ),
        (
            THREE,
            "prmt.b32.f4e %d, %a, %b, %c",
            &[A, B, 1],
            0x4433_2211,
        ),
        (
            THREE,
            "prmt.b32.b4e %d, %a, %b, %c",
            &[A, B, 0],
            0x5566_7780,
        ),
        (
            THREE,
            "prmt.b32.b4e %d, %a, %b, %c",
            &[A, B, 2],
            0x7780_1122,
        ),
        (
            THREE,
            "prmt.b32.rc8 %d, %a, %b, %c",
            &[A, B, 2],
            0x2222_2222,
        ),
        (
            THREE,
            "prmt.b32.ecl %d, %a, %b, %c",
            &[A, B, 2],
            0x3322_2222,
        ),
        (
            THREE,
            "prmt.b32.ecr %d, %a, %b, %c",
            &[A, B, 1],
            0x1111_1180,
        ),
        (
            THREE,
            "prmt.b32.rc16 %d, %a, %b, %c",
            &[A, B, 1],
            0x3322_3322,
        ),
    ];
    check(rows);
}

#[test]
fn moves() {
    let rows: &[Row] = &[
        (
            "32 = 16 16",
            "mov.b32 %d, {%a, %b}",
            &[0x1111, 0x2222],
            0x2222_1111,
        ),
        ("64 = 32 32", "mov.b64 %d, {%a, %b}", &[1, 2], 0x2_0000_0001),
        (
            "64 = 16 16 16 16",
            "mov.b64 %d, {%a, %b, %c, %e}",
            &[1, 2, 3, 4],
            0x0004_0003_0002_0001,
        ),
        ("16 = 32", "mov.b32 {_, %d}, %a", &[0x2222_1111], 0x2222),
        ("16 = 32", "mov.b32 {%d, _}, %a", &[0x2222_1111], 0x1111),
        ("32 = 64", "mov.b64 {_, %d}, %a", &[0x2_0000_0001], 2),
        (
            "16 = 64",
            "mov.b64 {_, _, %d, _}, %a",
            &[0x0004_0003_0002_0001],
            3,
        ),
        ("32 = 32", "mov.u32 %d, -1", &[0], s(-1)),
        ("32 = 32", "mov.b32 %d, 0f3F800000", &[0], 0x3f80_0000),
        ("32 = 32", "mov.f32 %d, 1.5", &[0], 0x3fc0_0000),
        (
            "64 = 32",
            "mov.f64 %d, 0d3FF0000000000000",
            &[0],
            0x3ff0_0000_0000_0000,
        ),
        ("32 = 32", "mov.u32 %d, WARP_SZ", &[0], 32),
        ("32 = 32", "mov.u32 %d, 0b101", &[0], 5),
        ("32 = 32", "mov.u32 %d, 017", &[0], 15),
        ("32 = 32", "mov.u32 %d, 0xFFU", &[0], 255),
    ];
    check(rows);
}
