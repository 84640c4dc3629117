//! Manual, "Integer Arithmetic Instructions" and "Extended-Precision Integer Arithmetic Instructions".

use crate::machine::{Row, check, s};

const TWO: &str = "32 = 32 32";
const THREE: &str = "32 = 32 32 32";
const MIN: u64 = 0x8000_0000;
const MIN64: u64 = 0x8000_0000_0000_0000;

#[test]
fn add_sub_mul() {
    let rows: &[Row] = &[
        (TWO, "add.u32 %d, %a, %b", &[0xffff_ffff, 2], 1),
        (TWO, "add.s32 %d, %a, %b", &[0x7fff_ffff, 1], MIN),
        (
            TWO,
            "add.sat.s32 %d, %a, %b",
            &[0x7fff_ffff, 1],
            0x7fff_ffff,
        ),
        (TWO, "add.sat.s32 %d, %a, %b", &[MIN, s(-1)], MIN),
        ("16 = 16 16", "add.u16 %d, %a, %b", &[0xffff, 3], 2),
        ("64 = 64 64", "add.s64 %d, %a, %b", &[u64::MAX, 1], 0),
        (TWO, "sub.s32 %d, %a, %b", &[0, 1], s(-1)),
        (TWO, "sub.sat.s32 %d, %a, %b", &[MIN, 1], MIN),
        ("64 = 64 64", "sub.u64 %d, %a, %b", &[0, 1], u64::MAX),
        (TWO, "mul.lo.u32 %d, %a, %b", &[0x10001, 0x10001], 0x20001),
        (
            TWO,
            "mul.hi.u32 %d, %a, %b",
            &[0xffff_ffff, 0xffff_ffff],
            0xffff_fffe,
        ),
        (TWO, "mul.hi.s32 %d, %a, %b", &[s(-1), s(-1)], 0),
        (TWO, "mul.hi.s32 %d, %a, %b", &[MIN, 2], s(-1)),
        (
            "64 = 32 32",
            "mul.wide.u32 %d, %a, %b",
            &[0xffff_ffff, 0xffff_ffff],
            0xffff_fffe_0000_0001,
        ),
        (
            "64 = 32 32",
            "mul.wide.s32 %d, %a, %b",
            &[s(-3), 5],
            -15i64 as u64,
        ),
        (
            "32 = 16 16",
            "mul.wide.s16 %d, %a, %b",
            &[0xfffd, 5],
            s(-15),
        ),
        (
            "16 = 16 16",
            "mul.hi.u16 %d, %a, %b",
            &[0xffff, 0xffff],
            0xfffe,
        ),
        (
            "64 = 64 64",
            "mul.hi.u64 %d, %a, %b",
            &[u64::MAX, u64::MAX],
            u64::MAX - 1,
        ),
        (
            "64 = 64 64",
            "mul.hi.s64 %d, %a, %b",
            &[u64::MAX, 2],
            u64::MAX,
        ),
        (THREE, "mad.lo.s32 %d, %a, %b, %c", &[s(-2), 3, 10], 4),
        (THREE, "mad.hi.u32 %d, %a, %b, %c", &[MIN, 4, 1], 3),
        (
            THREE,
            "mad.hi.sat.s32 %d, %a, %b, %c",
            &[0x4000_0000, 8, 0x7fff_ffff],
            0x7fff_ffff,
        ),
        (
            "64 = 32 32 64",
            "mad.wide.u32 %d, %a, %b, %c",
            &[0xffff_ffff, 2, 2],
            0x2_0000_0000,
        ),
        (
            "64 = 32 32 64",
            "mad.wide.s32 %d, %a, %b, %c",
            &[s(-1), 2, 1],
            u64::MAX,
        ),
        (TWO, "mul24.lo.u32 %d, %a, %b", &[0xff00_0003, 5], 15),
        (TWO, "mul24.lo.s32 %d, %a, %b", &[0x00ff_ffff, 5], s(-5)),
        (
            TWO,
            "mul24.hi.u32 %d, %a, %b",
            &[0xff_ffff, 0xff_ffff],
            0xffff_fe00,
        ),
        (
            THREE,
            "mad24.lo.u32 %d, %a, %b, %c",
            &[0xff00_0003, 5, 1],
            16,
        ),
        (THREE, "sad.s32 %d, %a, %b, %c", &[s(-5), 5, 1], 11),
        (THREE, "sad.u32 %d, %a, %b, %c", &[3, 10, 1], 8),
    ];
    check(rows);
}

#[test]
fn div_rem_abs_min_max() {
    let rows: &[Row] = &[
        (TWO, "div.s32 %d, %a, %b", &[s(-7), 2], s(-3)),
        (TWO, "rem.s32 %d, %a, %b", &[s(-7), 2], s(-1)),
        (TWO, "rem.s32 %d, %a, %b", &[7, s(-2)], 1),
        (TWO, "div.s32 %d, %a, %b", &[MIN, s(-1)], MIN),
        (TWO, "div.u32 %d, %a, %b", &[0xffff_fff9, 2], 0x7fff_fffc),
        (
            "64 = 64 64",
            "div.u64 %d, %a, %b",
            &[u64::MAX, 10],
            u64::MAX / 10,
        ),
        (
            "64 = 64 64",
            "rem.s64 %d, %a, %b",
            &[-9i64 as u64, 4],
            u64::MAX,
        ),
        ("32 = 32", "abs.s32 %d, %a", &[s(-9)], 9),
        ("32 = 32", "abs.s32 %d, %a", &[MIN], MIN),
        ("64 = 64", "abs.s64 %d, %a", &[u64::MAX], 1),
        ("32 = 32", "neg.s32 %d, %a", &[MIN], MIN),
        ("16 = 16", "neg.s16 %d, %a", &[1], 0xffff),
        (TWO, "min.s32 %d, %a, %b", &[s(-1), 1], s(-1)),
        (TWO, "min.u32 %d, %a, %b", &[s(-1), 1], 1),
        (TWO, "max.s32 %d, %a, %b", &[s(-1), 1], 1),
        (TWO, "max.u32 %d, %a, %b", &[s(-1), 1], 0xffff_ffff),
        (TWO, "max.relu.s32 %d, %a, %b", &[s(-1), s(-2)], 0),
        ("64 = 64 64", "min.s64 %d, %a, %b", &[u64::MAX, 1], u64::MAX),
        ("16 = 16 16", "max.s16 %d, %a, %b", &[0xffff, 1], 1),
    ];
    check(rows);
}

#[test]
fn bits() {
    let rows: &[Row] = &[
        ("32 = 32", "popc.b32 %d, %a", &[0xf0f0_0001], 9),
        ("32 = 64", "popc.b64 %d, %a", &[u64::MAX], 64),
        ("32 = 32", "clz.b32 %d, %a", &[0], 32),
        ("32 = 32", "clz.b32 %d, %a", &[1], 31),
        ("32 = 64", "clz.b64 %d, %a", &[0], 64),
        ("32 = 32", "brev.b32 %d, %a", &[1], MIN),
        ("64 = 64", "brev.b64 %d, %a", &[1], MIN64),
        ("32 = 32", "bfind.u32 %d, %a", &[0], 0xffff_ffff),
        ("32 = 32", "bfind.u32 %d, %a", &[1], 0),
        ("32 = 32", "bfind.u32 %d, %a", &[MIN], 31),
        ("32 = 32", "bfind.s32 %d, %a", &[s(-1)], 0xffff_ffff),
        ("32 = 32", "bfind.s32 %d, %a", &[s(-2)], 0),
        ("32 = 32", "bfind.shiftamt.u32 %d, %a", &[1], 31),
        ("32 = 64", "bfind.u64 %d, %a", &[MIN64], 63),
        ("32 = 64", "bfind.shiftamt.s64 %d, %a", &[1], 63),
    ];
    check(rows);
}

/// `bfe`: a field beyond the top is filled with zeros, or with the sign of its last bit that exists.
#[test]
fn fields() {
    const BFE: &str = "32 = 32 32 32";
    let rows: &[Row] = &[
        (BFE, "bfe.u32 %d, %a, %b, %c", &[0x1234_5678, 8, 8], 0x56),
        (BFE, "bfe.u32 %d, %a, %b, %c", &[0x1234_5678, 8, 0], 0),
        (BFE, "bfe.u32 %d, %a, %b, %c", &[0xffff_ffff, 28, 8], 0xf),
        (BFE, "bfe.u32 %d, %a, %b, %c", &[0xffff_ffff, 32, 8], 0),
        (
            BFE,
            "bfe.u32 %d, %a, %b, %c",
            &[0xffff_ffff, 0, 32],
            0xffff_ffff,
        ),
        (
            BFE,
            "bfe.u32 %d, %a, %b, %c",
            &[0x1234_5678, 0x100 + 8, 0x100 + 8],
            0x56,
        ),
        (
            BFE,
            "bfe.s32 %d, %a, %b, %c",
            &[0x0000_00f0, 4, 4],
            0xffff_ffff,
        ),
        (BFE, "bfe.s32 %d, %a, %b, %c", &[0x0000_0070, 4, 4], 7),
        (
            BFE,
            "bfe.s32 %d, %a, %b, %c",
            &[0x8000_0000, 28, 8],
            0xffff_fff8,
        ),
        (
            BFE,
            "bfe.s32 %d, %a, %b, %c",
            &[0x8000_0000, 40, 8],
            0xffff_ffff,
        ),
        (BFE, "bfe.s32 %d, %a, %b, %c", &[0x8000_0000, 40, 0], 0),
        (
            "64 = 64 32 32",
            "bfe.u64 %d, %a, %b, %c",
            &[0x1234_5678_9abc_def0, 32, 16],
            0x5678,
        ),
        (
            "64 = 64 32 32",
            "bfe.s64 %d, %a, %b, %c",
            &[MIN64, 60, 8],
            0xffff_ffff_ffff_fff8,
        ),
        (
            "32 = 32 32 32 32",
            "bfi.b32 %d, %a, %b, %c, %e",
            &[0xff, 0x1234_5678, 8, 8],
            0x1234_ff78,
        ),
        (
            "32 = 32 32 32 32",
            "bfi.b32 %d, %a, %b, %c, %e",
            &[0xff, 0x1234_5678, 8, 0],
            0x1234_5678,
        ),
        (
            "32 = 32 32 32 32",
            "bfi.b32 %d, %a, %b, %c, %e",
            &[0xff, 0, 28, 8],
            0xf000_0000,
        ),
        (
            "32 = 32 32 32 32",
            "bfi.b32 %d, %a, %b, %c, %e",
            &[0xff, 5, 32, 8],
            5,
        ),
        (
            "64 = 64 64 32 32",
            "bfi.b64 %d, %a, %b, %c, %e",
            &[0xab, 0, 56, 8],
            0xab00_0000_0000_0000,
        ),
        ("32 = 32 32", "bmsk.clamp.b32 %d, %a, %b", &[4, 8], 0xff0),
        (
            "32 = 32 32",
            "bmsk.clamp.b32 %d, %a, %b",
            &[28, 40],
            0xf000_0000,
        ),
        ("32 = 32 32", "bmsk.wrap.b32 %d, %a, %b", &[36, 8], 0xff0),
    ];
    check(rows);
}

#[test]
fn dot_products() {
    let rows: &[Row] = &[
        (
            THREE,
            "dp4a.u32.u32 %d, %a, %b, %c",
            &[0xffff_ffff, 0xffff_ffff, 1],
            4 * 255 * 255 + 1,
        ),
        (
            THREE,
            "dp4a.s32.s32 %d, %a, %b, %c",
            &[0xffff_ffff, 0x0102_0304, 0],
            s(-10),
        ),
        (
            THREE,
            "dp4a.s32.s32 %d, %a, %b, %c",
            &[0x8080_8080, 0x8080_8080, 0],
            4 * 128 * 128,
        ),
        (
            THREE,
            "dp4a.u32.s32 %d, %a, %b, %c",
            &[0xff00_00ff, 0xff00_00ff, 3],
            s(-507),
        ),
        (
            THREE,
            "dp4a.s32.u32 %d, %a, %b, %c",
            &[0x0000_0080, 0x0000_00ff, 0],
            s(-128 * 255),
        ),
        (
            THREE,
            "dp4a.s32.s32 %d, %a, %b, %c",
            &[0x0101_0101, 0x0101_0101, 0x7fff_ffff],
            0x8000_0003,
        ),
    ];
    check(rows);
}

/// The carry flag of one instruction is the carry in of the next.
#[test]
fn carries() {
    const LOW: u64 = 0xffff_ffff;
    let add = ".reg .b32 %x;\nadd.cc.u32 %x, %a, %b;\naddc.u32 %d, %c, %e";
    let sub = ".reg .b32 %x;\nsub.cc.u32 %x, %a, %b;\nsubc.u32 %d, %c, %e";
    let mad = ".reg .b32 %x;\nmad.lo.cc.u32 %x, %a, %b, %c;\nmadc.hi.u32 %d, %a, %b, %e";
    let add64 = ".reg .b64 %x;\nadd.cc.u64 %x, %a, %b;\naddc.cc.u64 %d, %c, %e";
    const FOUR: &str = "32 = 32 32 32 32";
    let rows: &[Row] = &[
        (FOUR, add, &[LOW, 1, 0, 0], 1),
        (FOUR, add, &[LOW, 0, 5, 6], 11),
        (FOUR, sub, &[0, 1, 5, 1], 3),
        (FOUR, sub, &[1, 1, 5, 1], 4),
        (
            FOUR,
            mad,
            &[LOW, LOW, LOW, 7],
            0xffff_fffe + 8 - 0x1_0000_0000,
        ),
        ("64 = 64 64 64 64", add64, &[u64::MAX, 1, 2, 3], 6),
    ];
    check(rows);
}

/// Subtraction leaves the carry out of `a + !b + 1`: 1 means no borrow. Chains may mix additions and subtractions.
#[test]
fn carries_of_mixed_chains() {
    const LOW: u64 = 0xffff_ffff;
    const FOUR: &str = "32 = 32 32 32 32";
    let chain = |first: &str, second: &str| {
        format!(".reg .b32 %x;\n{first} %x, %a, %b;\n{second} %d, %c, %e")
    };
    let three = |first: &str, second: &str, third: &str| {
        format!(".reg .b32 %x;\n{first} %x, %a, %b;\n{second} %x, %c, %e;\n{third} %d, %c, %e")
    };
    let product = ".reg .b32 %x;\nsub.cc.u32 %x, %a, %b;\nmadc.lo.u32 %d, %c, %e, %c";
    let after_product = ".reg .b32 %x;\nmad.lo.cc.u32 %x, %a, %b, %c;\nsubc.u32 %d, %c, %e";
    let rows: &[(String, [u64; 4], u64)] = &[
        (chain("sub.cc.u32", "addc.u32"), [1, 1, 0, 0], 1),
        (chain("sub.cc.u32", "addc.u32"), [0, 1, 0, 0], 0),
        (chain("sub.cc.s32", "addc.s32"), [LOW, 3, 10, 20], 31),
        (chain("add.cc.u32", "subc.u32"), [LOW, 1, 5, 1], 4),
        (chain("add.cc.u32", "subc.u32"), [LOW, 0, 5, 1], 3),
        (chain("add.cc.u32", "subc.u32"), [0, 0, 0, 0], LOW),
        (
            three("sub.cc.u32", "subc.cc.u32", "addc.u32"),
            [0, 1, 7, 7],
            14,
        ),
        (
            three("sub.cc.u32", "subc.cc.u32", "addc.u32"),
            [1, 1, 7, 7],
            15,
        ),
        (
            three("sub.cc.u32", "addc.cc.u32", "subc.u32"),
            [1, 1, LOW, 0],
            LOW,
        ),
        (
            three("sub.cc.u32", "addc.cc.u32", "subc.u32"),
            [0, 1, LOW, 0],
            LOW - 1,
        ),
        (
            three("add.cc.u32", "subc.cc.u32", "addc.cc.u32"),
            [LOW, 1, 3, 4],
            7,
        ),
        (
            three("add.cc.u32", "addc.cc.u32", "subc.cc.u32"),
            [LOW, LOW, LOW, 0],
            LOW,
        ),
        (product.into(), [5, 5, 3, 4], 16),
        (product.into(), [4, 5, 3, 4], 15),
        (after_product.into(), [LOW, 1, 1, 0], 1),
        (after_product.into(), [2, 3, 1, 0], 0),
    ];
    let rows: Vec<Row> = rows
        .iter()
        .map(|(inst, inputs, wanted)| (FOUR, &**inst, &inputs[..], *wanted))
        .collect();
    check(&rows);
}

/// The high half of a signed product is signed, with carries too.
#[test]
fn carries_of_signed_products() {
    const FOUR: &str = "32 = 32 32 32 32";
    let out = ".reg .b32 %x;\nmad.hi.cc.s32 %x, %a, %b, %c;\nadd.u32 %d, %x, %e";
    let carry = ".reg .b32 %x;\nmad.hi.cc.s32 %x, %a, %b, %c;\naddc.u32 %d, %e, %e";
    let wide = ".reg .b64 %x;\nmad.hi.cc.s64 %x, %a, %b, %c;\naddc.u64 %d, %x, %e";
    let rows: &[Row] = &[
        (FOUR, out, &[s(-1), s(-1), 5, 0], 5),
        (FOUR, out, &[s(-1), 1, 0, 0], s(-1)),
        (FOUR, out, &[MIN, 2, 3, 0], 2),
        (FOUR, carry, &[s(-1), 1, 1, 3], 7),
        (FOUR, carry, &[s(-1), s(-1), s(-1), 3], 6),
        ("64 = 64 64 64 64", wide, &[u64::MAX, u64::MAX, 4, 1], 5),
        ("64 = 64 64 64 64", wide, &[u64::MAX, 2, 1, 1], 2),
    ];
    check(rows);
}

/// Division of 128 bits by 128 bits, one bit a step: the carry out of the trial subtraction is the quotient's bit,
/// as in the code that nvcc makes of `__int128`.
#[test]
fn divides_128_bits_by_the_carry() {
    let body = "
        .reg .b64 %n<2>, %d<2>, %r<2>, %q<2>, %x<2>, %bit; .reg .b32 %i; .reg .pred %p;
        ld.global.v2.u64 {%n0, %n1}, [%in]; ld.global.v2.u64 {%d0, %d1}, [%in+16];
        mov.u64 %r0, 0; mov.u64 %r1, 0; mov.u64 %q0, 0; mov.u64 %q1, 0; mov.u32 %i, 0;
    STEP:
        add.cc.u64 %n0, %n0, %n0; addc.cc.u64 %n1, %n1, %n1;
        addc.cc.u64 %r0, %r0, %r0; addc.u64 %r1, %r1, %r1;
        sub.cc.u64 %x0, %r0, %d0; subc.cc.u64 %x1, %r1, %d1;
        addc.cc.u64 %q0, %q0, %q0; addc.u64 %q1, %q1, %q1;
        and.b64 %bit, %q0, 1; setp.ne.u64 %p, %bit, 0;
        @%p mov.u64 %r0, %x0; @%p mov.u64 %r1, %x1;
        add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 128; @%p bra STEP;
        st.global.v2.u64 [%out], {%q0, %q1}; st.global.v2.u64 [%out+16], {%r0, %r1};";
    let rows: [(u128, u128); 5] = [
        (u128::MAX, 7),
        (1 << 100 | 12345, 1 << 64 | 3),
        (
            0xfedc_ba98_7654_3210_0123_4567_89ab_cdef,
            0x1_0000_0000_0000_0001,
        ),
        (5, 1 << 120),
        (1 << 127, (1 << 127) - 1),
    ];
    let words = |x: u128| (0..4).map(move |i| (x >> (32 * i)) as u32);
    for (n, d) in rows {
        let input: Vec<u32> = words(n).chain(words(d)).collect();
        let wanted: Vec<u32> = words(n / d).chain(words(n % d)).collect();
        assert_eq!(
            crate::machine::words(body, &input, 8, crate::machine::SETUP),
            wanted,
            "{n} / {d}"
        );
    }
}
