//! Checks that no kernel has integer operations whose result is obvious from a literal: `x + 0`, `x
//! * 1`, `x >> 0` and similar ones.
//!
//! The builder omits them. This test reads the PTX with the parser of the emulator instead of
//! trusting the builder.

use ptx_emu::Module;
use ptx_gen::{Target, print};
use warpwright_kernels::ALL;

/// The operations and literals for which `x op literal` is `x` or a literal.
const NEEDLESS: [(&str, &[&str]); 9] = [
    ("add", &["0"]),
    ("sub", &["0"]),
    ("or", &["0"]),
    ("xor", &["0"]),
    ("shl", &["0"]),
    ("shr", &["0"]),
    ("and", &["0", "4294967295", "-1", "18446744073709551615"]),
    ("mul.lo", &["0", "1"]),
    ("div", &["1"]),
];

/// Why an instruction is needless, if it is.
fn needless(inst: &str) -> Option<String> {
    let (mnemonic, operands) = inst.trim_end_matches(';').split_once(' ')?;

    // Floating point: `x + 0` is not `x` where `x` is -0.
    let (op, ty) = mnemonic.rsplit_once('.')?;
    if !["u32", "s32", "u64", "s64", "b32", "b64"].contains(&ty) {
        return None;
    }

    let operands: Vec<&str> = operands.split(", ").collect();
    let is = |n: usize, literals: &[&str]| operands.get(n).is_some_and(|o| literals.contains(o));
    let known = NEEDLESS
        .iter()
        .any(|(name, literals)| op == *name && is(2, literals))
        || op == "mad.lo" && (is(1, &["0", "1"]) || is(2, &["0", "1"]) || is(3, &["0"]))
        || op == "mad.wide" && (is(1, &["0"]) || is(2, &["0"]));
    known.then(|| inst.to_owned())
}

#[test]
fn no_kernel_has_one() {
    let target = Target::named("sm_90a").expect("a target");
    let mut found = vec![];
    for kernel in ALL.iter() {
        let program = kernel.build().unwrap_or_else(|e| panic!("{e}"));
        let text = print(&program, target).unwrap_or_else(|e| panic!("{e}"));
        let listing = Module::listing(&text).unwrap_or_else(|e| panic!("{e}"));
        assert!(listing.len() > 10, "{} has a program", kernel.name());
        found.extend(
            listing
                .iter()
                .filter_map(|i| needless(i))
                .map(|i| format!("{}: {i}", kernel.name())),
        );
    }

    assert!(
        found.is_empty(),
        "{} instructions:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn they_are_told_from_others() {
    for inst in [
        "add.u32 %r1, %r0, 0;",
        "mul.lo.s32 %r1, %r0, 1;",
        "shr.u32 %r1, %r0, 0;",
        "and.b32 %r1, %r0, 4294967295;",
        "mad.lo.u32 %r1, %r0, 1, %r2;",
        "mad.wide.u32 %rd1, 0, %r2, %rd0;",
    ] {
        assert!(needless(inst).is_some(), "{inst}");
    }
    for inst in [
        "add.u32 %r1, %r0, 1;",
        "mul.lo.u32 %r1, %r0, 10;",
        "add.rn.f32 %f1, %f0, 0f00000000;",
        "mov.u32 %r1, 0;",
        "setp.eq.u32 %p1, %r0, 0;",
        "mad.wide.u32 %rd1, %r2, 1, %rd0;",
        "shr.s32 %r1, %r0, 1;",
        "ret;",
    ] {
        assert!(needless(inst).is_none(), "{inst}");
    }
}
