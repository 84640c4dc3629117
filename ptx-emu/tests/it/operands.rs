//! Forms of operands: constant expressions, negated predicates, arrays, offsets and components of special registers.
//!
//! The values of constant expressions are those that ptxas 13.5 writes for the initial value of a variable. Those of
//! instructions come from its machine code, or from an H100.

use ptx_emu::{ErrorKind, Memory, Module};

use crate::machine::{SETUP, Setup, kernel, launch, words};

/// Declares what the statements below use.
const NAMES: &str = "
    .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %l<8>; .reg .f32 %f<4>; .reg .f64 %d<4>;
    .reg .v2 .b32 %w; .shared .align 16 .b32 sh[4]; .local .align 8 .b32 lo[4];
    mov.u32 %r1, 11; mov.u32 %r2, 22; setp.eq.u32 %p1, %r1, %r2; setp.ne.u32 %p2, %r1, %r2;\n";

/// Runs a statement that leaves its result in `%r0`.
fn result(statement: &str) -> u32 {
    let module = ".global .align 8 .b32 g[8] = {10, 11, 12, 13, 14, 15, 16, 17};\n\
                  .const .b16 c[4] = {20, 21, 22, 23};\n.global .align 8 .v2 .b32 gv[2] = {{30, 31}, {32, 33}};\n\
                  .global .b32 gm[2][2] = {{40, 41}, {42, 43}};\n";
    let body = format!("{NAMES}{statement}\nst.global.u32 [%out], %r0;");
    let text = kernel(&body).replace(".visible .entry", &format!("{module}.visible .entry"));

    // Threads that use the same shared memory without order would race.
    let block = if statement.contains("sh") && !statement.contains("shfl") {
        1
    } else {
        32
    };
    let (out, _) = launch(&text, &[0; 4], 4, Setup { block, ..SETUP })
        .unwrap_or_else(|fault| panic!("{fault}"));
    u32::from_le_bytes([out[0], out[1], out[2], out[3]])
}

fn check(rows: &[(&str, u32)]) {
    let wrong: Vec<String> = rows
        .iter()
        .map(|(statement, wanted)| (statement, result(statement), *wanted))
        .filter(|(_, found, wanted)| found != wanted)
        .map(|(statement, found, wanted)| format!("{statement} leaves {found:#x}, not {wanted:#x}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn predicates_may_be_negated() {
    check(&[
        ("selp.b32 %r0, %r1, %r2, !%p1;", 11),
        ("selp.b32 %r0, %r1, %r2, !%p2;", 22),
        ("selp.b32 %r0, %r1, %r2, ! %p1;", 11),
        ("selp.b32 %r0, 1, 2, 7;", 1),
        ("selp.b32 %r0, 1, 2, !7;", 2),
        ("selp.u32 %r0, WARP_SZ, -1, %p1;", u32::MAX),
        ("selp.f64 %d0, 2.0, 3.0, !%p1; cvt.rzi.u32.f64 %r0, %d0;", 2),
        ("selp.b16 %h0, 5, 6, !%p2; cvt.u32.u16 %r0, %h0;", 6),
        ("mov.pred %p3, !%p1; selp.b32 %r0, %r1, %r2, %p3;", 11),
        ("mov.pred %p3, !%p2; selp.b32 %r0, %r1, %r2, %p3;", 22),
        ("mov.pred %p3, 2; selp.b32 %r0, 7, 8, %p3;", 7),
        ("mov.pred %p3, !2; selp.b32 %r0, 7, 8, %p3;", 8),
        ("mov.pred %p3, !WARP_SZ; selp.b32 %r0, 7, 8, %p3;", 8),
        ("and.pred %p3, !%p1, %p2; selp.b32 %r0, 7, 8, %p3;", 7),
        ("and.pred %p3, !1, %p2; selp.b32 %r0, 7, 8, %p3;", 8),
        ("not.pred %p3, !%p2; selp.b32 %r0, 7, 8, %p3;", 7),
        (
            "setp.eq.and.u32 %p3, %r1, 11, !%p1; selp.b32 %r0, 7, 8, %p3;",
            7,
        ),
        ("set.eq.and.u32.u32 %r0, %r1, 11, !%p2;", 0),
        ("vote.sync.ballot.b32 %r0, !%p1, -1;", u32::MAX),
        ("bar.red.popc.u32 %r0, 0, !%p1;", 32),
    ]);
}

/// Of both operands of a negated selection, only the chosen one is read.
#[test]
fn a_negated_selection_reads_one_operand() {
    assert_eq!(result("selp.b32 %r0, 5, %r7, !%p1;"), 5);
    assert_eq!(result("selp.b32 %r0, %r7, 5, !%p2;"), 5);
}

#[test]
fn constants_have_signs_parentheses_and_operators() {
    check(&[
        ("add.s32 %r0, %r1, +5;", 16),
        ("add.s32 %r0, %r1, ++5;", 16),
        ("add.s32 %r0, %r1, -+5;", 6),
        ("add.s32 %r0, %r1, - -5;", 16),
        ("add.s32 %r0, %r1, -(5);", 6),
        ("add.s32 %r0, %r1, -/* five */5;", 6),
        ("add.s32 %r0, %r1, WARP_SZ*2;", 75),
        ("add.s32 %r0, %r1, -WARP_SZ;", 11u32.wrapping_sub(32)),
        ("add.s32 %r0, %r1, (WARP_SZ-1)<<1;", 73),
        ("add.s32 %r0, %r1, !WARP_SZ;", 11),
        ("add.s64 %l0, 1, WARP_SZ; cvt.u32.u64 %r0, %l0;", 33),
        ("mov.u64 %l0, WARP_SZ; cvt.u32.u64 %r0, %l0;", 32),
        ("mov.u16 %h0, WARP_SZ+1; cvt.u32.u16 %r0, %h0;", 33),
        ("mov.f32 %f1, +1.0; mov.b32 %r0, %f1;", 0x3f80_0000),
        ("mov.f32 %f1, -.5; mov.b32 %r0, %f1;", 0xbf00_0000),
        ("mov.f32 %f1, +.5e-3; mov.b32 %r0, %f1;", 0x3a03_126f),
        ("mov.f32 %f1, 5.e3; mov.b32 %r0, %f1;", 0x459c_4000),
        ("mov.f32 %f1, 1.0+0.5*3.0; mov.b32 %r0, %f1;", 0x4020_0000),
        (
            "mov.f32 %f1, 0d3ff0000000000000; mov.b32 %r0, %f1;",
            0x3f80_0000,
        ),
        ("mov.b64 %l0, {+1, WARP_SZ*2}; mov.b64 {_, %r0}, %l0;", 64),
        (
            "st.shared.v2.b32 [sh], {WARP_SZ*2, (3)}; ld.shared.b32 %r0, [sh+4];",
            3,
        ),
        ("bar.sync 0, WARP_SZ; mov.u32 %r0, 1;", 1),
        ("bar.sync 1-1; mov.u32 %r0, 1;", 1),
        ("lop3.b32 %r0, %r1, 5, -1, 0x40+0x40;", 1),
        ("shfl.sync.idx.b32 %r0, %t, WARP_SZ-1, WARP_SZ-1, -1;", 31),
        ("mov.u32 %r0, 0x1FFFFFFFF;", u32::MAX),
        ("mov.u32 %r0, -9223372036854775809;", u32::MAX),
    ]);
}

#[test]
fn arrays_and_symbols_have_elements_and_offsets() {
    check(&[
        ("ld.global.u32 %r0, g[1];", 11),
        ("ld.global.u32 %r0, g[1+1];", 12),
        ("ld.global.u32 %r0, [g+4*2];", 12),
        ("ld.global.u32 %r0, [g + 4];", 11),
        ("ld.global.u32 %r0, [g+4-4];", 10),
        ("ld.global.u32 %r0, [g+(1<<2)];", 11),
        ("ld.global.u32 %r0, [g+WARP_SZ-4];", 17),
        ("ld.u32 %r0, g[3];", 13),
        ("ld.const.u16 %h0, c[2]; cvt.u32.u16 %r0, %h0;", 22),
        // ptxas counts in the scalar type, also where elements are vectors or rows.
        ("ld.global.u32 %r0, gv[1];", 31),
        ("ld.global.u32 %r0, gm[3];", 43),
        ("mov.u64 %l0, g[2]; ld.global.u32 %r0, [%l0];", 12),
        ("mov.u64 %l0, g+8; ld.global.u32 %r0, [%l0+-4];", 11),
        ("cvta.global.u64 %l0, g[2]; ld.u32 %r0, [%l0];", 12),
        ("add.u64 %l0, 4, g+8; ld.global.u32 %r0, [%l0];", 13),
        ("st.shared.u32 sh[2], 9; ld.shared.u32 %r0, [sh+8];", 9),
        (
            "st.shared.u32 [sh+4], 8; mov.u32 %r1, sh[1]; ld.shared.u32 %r0, [%r1];",
            8,
        ),
        ("st.local.u32 lo[3], 7; ld.local.u32 %r0, [lo+12];", 7),
        (
            "ld.param.u64 %l0, [out]; setp.eq.u64 %p3, %l0, %out; selp.u32 %r0, 1, 0, %p3;",
            1,
        ),
        (
            "{ .param .b32 a[2]; st.param.b32 a[1], 6; ld.param.b32 %r0, [a+4]; }",
            6,
        ),
        (
            "st.shared.u32 [sh], 4; mov.u16 %h0, 1024; ld.shared.u32 %r0, [%h0];",
            4,
        ),
    ]);
}

#[test]
fn special_registers_have_four_components() {
    check(&[
        ("mov.u32 %r0, %ntid.x;", 32),
        ("mov.u32 %r0, %ntid.r;", 32),
        ("mov.u32 %r0, %ntid.g;", 1),
        ("mov.u32 %r0, %ntid.w;", 0),
        ("mov.u32 %r0, %nctaid.a;", 0),
        ("mov.u16 %h0, %ntid.x; cvt.u32.u16 %r0, %h0;", 32),
        ("mov.v4.u32 {%r3, %r0, %r4, %r5}, %ntid;", 1),
        ("cvt.u64.u32 %l0, %ntid.x; cvt.u32.u64 %r0, %l0;", 32),
        ("mov.b32 %w.x, 3; mov.b32 %w.y, 4; mov.b32 %r0, %w.g;", 4),
    ]);
}

/// The 64 bits of constant expressions, as ptxas 13.5 stores them.
const EXPRESSIONS: &[(&str, u64)] = &[
    ("-7/2", -3i64 as u64),
    ("-7U/2", 0x7fff_ffff_ffff_fffc),
    ("-7 % 3", 0),
    ("-5>>1", -3i64 as u64),
    ("~0>>1", i64::MAX as u64),
    ("(.s64)~0>>1", u64::MAX),
    ("(.u64)-1>>1", i64::MAX as u64),
    ("(.s64)0xffffffffffffffff>>1", u64::MAX),
    ("-(.u64)5/2", 0x7fff_ffff_ffff_fffd),
    ("0xffffffffffffffff>>1", i64::MAX as u64),
    ("9223372036854775807+2>>1", 0xc000_0000_0000_0000),
    ("9223372036854775808>>1", 0x4000_0000_0000_0000),
    ("-9223372036854775809", i64::MAX as u64),
    ("0x8000000000000000/-1", 0),
    ("1<<64", 1),
    ("1<<-1", 1 << 63),
    ("-1>>65", u64::MAX),
    ("-1<1U", 0),
    ("-1<1", 1),
    ("(1U-2)>>1", i64::MAX as u64),
    ("(-1&-1U)>>1", i64::MAX as u64),
    ("(-1|-1)>>1", u64::MAX),
    ("(!1U)-2>>1", u64::MAX),
    ("(1?-1:0U)>>1", u64::MAX),
    ("(0?-1:0U-2)>>1", i64::MAX as u64),
    ("1?2?3:4:5", 3),
    ("0?2:0?4:5", 5),
    ("1|2^3&4", 3),
    ("1&3==3", 1),
    ("10-2-3", 5),
    ("2--3", 5),
    ("1<2<3", 1),
    ("-1.0<2.0", 1),
    ("2&&0", 0),
    ("010", 8),
    ("0x1FU", 31),
    ("(WARP_SZ-64)>>1", -16i64 as u64),
];

#[test]
fn constant_expressions_have_the_values_of_ptxas() {
    let declared: String = EXPRESSIONS
        .iter()
        .enumerate()
        .map(|(i, (expression, _))| format!(".global .u64 g{i} = {expression};\n"))
        .collect();
    let text = format!(".version 8.0\n.target sm_90\n{declared}");
    let module = Module::parse(&text)
        .and_then(Module::complete)
        .unwrap_or_else(|e| panic!("{e}"));
    let memory = Memory::new(1 << 20);
    for (i, (expression, wanted)) in EXPRESSIONS.iter().enumerate() {
        assert_eq!(
            u64::from_le_bytes(initial(&module, &memory, &format!("g{i}"))),
            *wanted,
            "{expression}"
        );
    }
}

/// The first bytes of a variable before a kernel runs.
fn initial<const N: usize>(module: &Module, memory: &Memory, name: &str) -> [u8; N] {
    let address = module
        .address(memory, name)
        .expect("there is room")
        .expect("it is declared");
    let mut bytes = [0; N];
    memory
        .read(address, &mut bytes)
        .expect("it has these bytes");
    bytes
}

#[test]
fn initial_values_keep_the_shape_of_their_braces() {
    let text = ".version 8.0\n.target sm_90\n\
        .global .u8 a[2][2] = {{1}, {3, 4}};\n.global .u8 b[][2] = {{1, 2}, {3}, {5, 6}};\n\
        .global .u8 c[2][2][2] = {{{1}}, {{5, 6}, {7}}};\n.global .v2 .u8 d[2] = {{1, 2}, {3, 4}};\n\
        .global .u8 e[8] = {};\n.global .b32 f = 1.0;\n.global .b64 h = 1.0;\n.global .f32 i = 1.5;\n\
        .global .u8 j[4] = {300, -1, +7, WARP_SZ};";
    let module = Module::parse(text)
        .and_then(Module::complete)
        .unwrap_or_else(|e| panic!("{e}"));
    let memory = Memory::new(1 << 20);
    assert_eq!(initial(&module, &memory, "a"), [1, 0, 3, 4]);
    assert_eq!(initial(&module, &memory, "b"), [1, 2, 3, 0, 5, 6]);
    assert_eq!(initial(&module, &memory, "c"), [1, 0, 0, 0, 5, 6, 7, 0]);
    assert_eq!(initial(&module, &memory, "d"), [1, 2, 3, 4]);
    assert_eq!(initial(&module, &memory, "e"), [0; 8]);
    assert_eq!(initial(&module, &memory, "f"), 1f32.to_le_bytes());
    assert_eq!(initial(&module, &memory, "h"), 1f64.to_le_bytes());
    assert_eq!(initial(&module, &memory, "i"), 1.5f32.to_le_bytes());
    assert_eq!(initial(&module, &memory, "j"), [44, 255, 7, 32]);
}

/// Forms that ptxas 13.5 accepts and the emulator does not have are unsupported, never ill-formed.
#[test]
fn operands_that_are_lacking_are_unsupported() {
    let rows = [
        (
            "ld.global.u32 %r0, sh[%r1];",
            "`sh[%r1]`, an array with a register as its index",
        ),
        (
            "mov.u32 %r0, sh[%r1+1];",
            "`sh[%r1]`, an array with a register as its index",
        ),
        (
            "mov.u32 %r0, %r1+4;",
            "`%r1+4`, a register with an offset as a value",
        ),
        (
            "add.u32 %r0, %r1, %r2+4;",
            "`%r2+4`, a register with an offset as a value",
        ),
        (
            "vmad.s32.s32.s32 %r0, %r1, %r2, -%r1;",
            "vmad with a negated operand, `-%r1`",
        ),
        (
            "add.s32 %r0, %r1, 18446744073709551616;",
            "`18446744073709551616`, which does not fit 64 bits",
        ),
        (
            "add.f64 %d0, %d1, 0f3f800000;",
            "a hexadecimal single as a .f64 operand",
        ),
        ("mov.u64 %l0, %gridid;", "special register `%gridid`"),
        ("mov.b64 %l0, {%f1, 1.0};", "a float as a part of a mov.b64"),
        ("mov.u64 %l0, k;", "the address of the kernel `k`"),
    ];
    for (statement, wanted) in rows {
        let text = kernel(&format!("{NAMES}{statement}"));
        let errors = Module::parse(&text)
            .and_then(Module::complete)
            .expect_err(statement);
        assert_eq!(
            errors.0[0].kind,
            ErrorKind::Unsupported(wanted.into()),
            "{statement}"
        );
    }
}

/// Forms that ptxas 13.5 rejects.
#[test]
fn operands_that_are_wrong_are_named() {
    let rows = [
        ("add.s32 %r0, %r1, 5%3;", "`%3` where `;` was expected"),
        (
            "add.s32 %r0, %r1, (.s32)5;",
            "`.s32` where a number was expected",
        ),
        (
            "add.f32 %f0, %f1, 1.0*2;",
            "`*` between an integer and a float",
        ),
        ("add.f32 %f0, %f1, !1.0;", "`!` takes an integer"),
        (
            "add.f32 %f0, %f1, -0f3f800000;",
            "`-` in front of a hexadecimal single such as 0f3f800000",
        ),
        (
            "add.s32 %r0, %r1, 1.0/0.0;",
            "a constant is divided by zero",
        ),
        (
            "add.s32 %r0, %r1, -%r2;",
            "`-` in front of `%r2`: neg negates a register",
        ),
        (
            "add.s32 %r0, %r1, +%r2;",
            "`+` where an operand was expected",
        ),
        (
            "mov.u32 %r0, %r1[1];",
            "`%r1` is not an array, so it has no elements",
        ),
        (
            "ld.shared.u32 %r0, [sh[1]];",
            "`[` where a number was expected",
        ),
        ("mov.pred %p0, !!%p1;", "`!` where a predicate was expected"),
        ("mov.pred %p0, 1.0;", "a predicate was expected"),
        ("ld.shared.u32 %r0, sh[1.0];", "an offset is an integer"),
        ("ld.shared.u32 %r0, sh[1;", "`;` where `]` was expected"),
    ];
    for (statement, wanted) in rows {
        let text = kernel(&format!("{NAMES}{statement}"));
        let errors = Module::parse(&text)
            .and_then(Module::complete)
            .expect_err(statement);
        assert_eq!(errors.0[0].what, wanted, "{statement}");
        assert_eq!(errors.0[0].kind, ErrorKind::IllFormed, "{statement}");
    }
}

/// A register that hides an array has no elements, and the parameters of one kernel are unknown in the next.
#[test]
fn arrays_belong_to_their_scopes() {
    let text = ".version 8.0\n.target sm_90\n.global .u32 g[4];\n\
        .entry a(.param .u8 p[8]) { .reg .u32 %r; { .reg .b64 g; ld.global.u32 %r, g[1]; } }\n\
        .entry b() { .reg .u32 %r; ld.param.u32 %r, p[1]; }\n\
        .entry c(.param .u32 p[8]) { .reg .u32 %r; ld.param.u32 %r, p[7]; ld.global.u32 %r, g[3]; }";
    let module = Module::parse(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        module
            .kernels()
            .map(|k| k.name.as_str())
            .collect::<Vec<_>>(),
        ["c"]
    );
    let found: Vec<_> = module
        .errors()
        .iter()
        .map(|e| (e.line, e.what.as_str()))
        .collect();
    let wanted = [
        (4, "`g` is not an array, so it has no elements"),
        (5, "`p` is not an array, so it has no elements"),
    ];
    assert_eq!(found, wanted);
}

/// Random operands in random instructions: nothing panics, and the listing of a listing is the listing.
#[test]
fn random_operands_are_refused_or_run() {
    const PARTS: &[&str] = &[
        "5",
        "-",
        "+",
        "!",
        "~",
        "(",
        ")",
        "*",
        "<<",
        "?",
        ":",
        "WARP_SZ",
        "%r1",
        "%p1",
        "sh",
        "[",
        "]",
        "1.0",
        ".5",
        "0f3f800000",
        "{",
        "}",
        ",",
        "_",
        "|",
        "%tid.x",
        "0x7fffffffffffffff",
        "-9223372036854775808",
        "/",
        " % ",
        "U",
        ".w",
        "sh[1]",
        "lo",
        ".b0",
        "(.u64)",
        "1e5",
        "==",
    ];
    const STARTS: &[&str] = &[
        "add.s32 %r0, %r1, ",
        "mov.u32 %r0, ",
        "ld.shared.u32 %r0, ",
        "st.shared.v2.u32 [sh], ",
        "selp.b32 %r0, 1, 2, ",
        "mov.pred %p0, ",
        "bar.sync ",
        "shfl.sync.idx.b32 %r0, %r1, ",
        "setp.eq.and.u32 %p0, %r1, ",
        "cvt.u64.u32 %l0, ",
        "vmad.s32.s32.s32 %r0, ",
        "call ",
        "mov.b64 ",
        "tex.1d.v4.f32.s32 ",
        "atom.shared.add.u32 %r0, ",
    ];
    let mut state = 3u64;
    let mut below = |n: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for _ in 0..4000 {
        let mut statement = STARTS[below(STARTS.len())].to_string();
        for _ in 0..=below(7) {
            statement += PARTS[below(PARTS.len())];
        }
        let text = kernel(&format!("{NAMES}{statement};"));
        if let Err(errors) = Module::parse(&text).and_then(Module::complete) {
            assert!(!errors.to_string().is_empty());
        }
    }
}

/// Values do not depend on how many lanes run.
#[test]
fn negated_selections_choose_by_lane() {
    let body = format!(
        "{NAMES}setp.lt.u32 %p0, %t, 4; selp.b32 %r0, 1, 2, !%p0; mul.wide.u32 %l0, %t, 4; add.u64 %l0, %out, %l0; \
         st.global.u32 [%l0], %r0;"
    );
    let found = words(&body, &[0], 32, SETUP);
    let wanted: Vec<u32> = (0..32).map(|lane| if lane < 4 { 2 } else { 1 }).collect();
    assert_eq!(found, wanted);
}
