//! Comparisons and selections.

use super::case::{Exact, expand};
use super::scalar::{Form, Table, listed, plain};

/// Comparisons of floats, of signed numbers, and of unsigned ones.
const OF_FLOATS: &str = "{.eq,.ne,.lt,.le,.gt,.ge,.equ,.neu,.ltu,.leu,.gtu,.geu,.num,.nan}";
const OF_SIGNED: &str = "{.eq,.ne,.lt,.le,.gt,.ge}";
const OF_UNSIGNED: &str = "{.eq,.ne,.lt,.le,.gt,.ge,.lo,.ls,.hi,.hs}";
const OF_BITS: &str = "{.eq,.ne}";

/// Types that are compared: comparisons, name, register, and whether tiny numbers can be flushed.
const COMPARED: [(&str, &str, &str, &str); 15] = [
    (OF_BITS, ".b16", "b16", ""),
    (OF_BITS, ".b32", "b32", ""),
    (OF_BITS, ".b64", "b64", ""),
    (OF_UNSIGNED, ".u16", "b16", ""),
    (OF_UNSIGNED, ".u32", "b32", ""),
    (OF_UNSIGNED, ".u64", "b64", ""),
    (OF_SIGNED, ".s16", "b16", ""),
    (OF_SIGNED, ".s32", "b32", ""),
    (OF_SIGNED, ".s64", "b64", ""),
    (OF_FLOATS, ".f64", "f64", ""),
    (OF_FLOATS, ".f32", "f32", "{,.ftz}"),
    (OF_FLOATS, ".f16", "f16", "{,.ftz}"),
    (OF_FLOATS, ".f16x2", "f16x2", "{,.ftz}"),
    (OF_FLOATS, ".bf16", "bf16", ""),
    (OF_FLOATS, ".bf16x2", "bf16x2", ""),
];

const CHOSEN: &Table = &[
    (
        "testp{.finite,.infinite,.number,.notanumber,.normal,.subnormal}.f32",
        "p = f32",
        "",
    ),
    (
        "testp{.finite,.infinite,.number,.notanumber,.normal,.subnormal}.f64",
        "p = f64",
        "",
    ),
    ("selp{.b16,.u16,.s16}", "b16 = b16 b16 p", ""),
    ("selp{.b32,.u32,.s32,.f32}", "b32 = b32 b32 p", ""),
    ("selp{.b64,.u64,.s64,.f64}", "b64 = b64 b64 p", ""),
    ("slct{.b16,.u16,.s16}.s32", "b16 = b16 b16 b32", ""),
    ("slct{.b32,.u32,.s32,.f32}.s32", "b32 = b32 b32 b32", ""),
    ("slct{.b64,.u64,.s64,.f64}.s32", "b64 = b64 b64 b32", ""),
    ("slct{.b16,.u16,.s16}.f32", "b16 = b16 b16 f32", ""),
    (
        "slct{,.ftz}{.b32,.u32,.s32,.f32}.f32",
        "b32 = b32 b32 f32",
        "",
    ),
    ("slct{.b64,.u64,.s64,.f64}.f32", "b64 = b64 b64 f32", ""),
];

pub(crate) fn forms() -> Vec<Form> {
    let mut all = listed(CHOSEN, Exact::Bits);
    for compared in &COMPARED {
        predicates(&mut all, *compared);
    }
    for compared in &COMPARED {
        numbers(&mut all, *compared);
    }
    all
}

fn push(all: &mut Vec<Form>, pattern: &str, types: &str) {
    let operands = plain(types);
    let form = |name| Form {
        text: format!("{name} {operands}"),
        types: types.to_owned(),
        exact: Exact::Bits,
    };
    all.extend(expand(pattern).into_iter().map(form));
}

/// `setp`: both predicates, where there are two, alone and combined with a third one.
fn predicates(all: &mut Vec<Form>, (comparisons, name, register, ftz): (&str, &str, &str, &str)) {
    let to = if matches!(register, "f16" | "bf16") {
        "p"
    } else {
        "pq"
    };
    push(
        all,
        &format!("setp{comparisons}{ftz}{name}"),
        &format!("{to} = {register} {register}"),
    );
    let some = if comparisons == OF_BITS {
        "{.ne}"
    } else {
        "{.lt,.ge}"
    };
    let combined = format!("setp{some}{{.and,.or,.xor}}{ftz}{name}");
    push(all, &combined, &format!("{to} = {register} {register} p"));
}

/// `set`: numbers as results.
fn numbers(all: &mut Vec<Form>, (comparisons, name, register, ftz): (&str, &str, &str, &str)) {
    let some = match comparisons {
        OF_BITS => "{.eq,.ne}",
        OF_SIGNED => "{.eq,.lt,.ge}",
        OF_UNSIGNED => "{.ne,.lo,.hs}",
        _ => "{.ne,.lt,.geu,.equ,.num,.nan}",
    };
    let to: &[(&str, &str)] = match register {
        "f16x2" => &[("{.u32,.s32}", "b32"), (".f16x2", "f16x2")],
        "bf16x2" => &[("{.u32,.s32}", "b32"), (".bf16x2", "bf16x2")],
        "f16" => &[
            ("{.u16,.s16}", "b16"),
            ("{.u32,.s32}", "b32"),
            (".f16", "f16"),
        ],
        "bf16" => &[
            ("{.u16,.s16}", "b16"),
            ("{.u32,.s32}", "b32"),
            (".bf16", "bf16"),
        ],
        _ => &[
            ("{.u32,.s32}", "b32"),
            (".f32", "f32"),
            (".f16", "f16"),
            (".bf16", "bf16"),
        ],
    };
    for (names, result) in to {
        // Tiny numbers are not flushed where the result is of bf16.
        let ftz = if *result == "bf16" { "" } else { ftz };
        push(
            all,
            &format!("set{some}{ftz}{names}{name}"),
            &format!("{result} = {register} {register}"),
        );
        let first = expand(some)[1].clone();
        let combined = format!("set{first}{{.and,.or,.xor}}{ftz}{names}{name}");
        push(
            all,
            &combined,
            &format!("{result} = {register} {register} p"),
        );
    }
}
