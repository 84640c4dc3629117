//! Atomics and reductions, in which each thread has a separate address. The results are the value
//! before and the value after.

use super::case::{Case, Cases, Exact, expand, kernel, list};
use super::operands::operand;
use super::scalar::THREADS;
use warpwright_kernels::Random;

/// The operations: names in which a state space replaces `@`, and the type, which is the last part.
const OPERATIONS: &[(&str, &str)] = &[
    ("{atom,red}@{.add,.min,.max}{.u32,.s32}", "b32"),
    ("{atom,red}@{.add,.min,.max}.u64", "b64"),
    ("{atom,red}@{.min,.max}.s64", "b64"),
    ("{atom,red}@{.and,.or,.xor}.b32", "b32"),
    ("{atom,red}@{.and,.or,.xor}.b64", "b64"),
    ("{atom,red}@{.inc,.dec}.u32", "b32"),
    ("atom@.exch.b32", "b32"),
    ("atom@.exch.b64", "b64"),
    ("atom@.exch.b128", "b128"),
    ("atom@.cas.b16", "b16"),
    ("atom@.cas.b32", "b32"),
    ("atom@.cas.b64", "b64"),
    ("atom@.cas.b128", "b128"),
    ("{atom,red}@.add.f32", "f32"),
    ("{atom,red}@.add.f64", "f64"),
    ("{atom,red}@.add.noftz.f16", "f16"),
    ("{atom,red}@.add.noftz.f16x2", "f16x2"),
    ("{atom,red}@.add.noftz.bf16", "bf16"),
    ("{atom,red}@.add.noftz.bf16x2", "bf16x2"),
];

/// The operations on vectors, which exist for global memory only.
const VECTORS: &[(&str, &str)] = &[
    ("{atom,red}.global.add{.v2,.v4}.f32", "f32"),
    (
        "{atom,red}.global{.add,.min,.max}.noftz{.v2,.v4,.v8}.f16",
        "f16",
    ),
    (
        "{atom,red}.global{.add,.min,.max}.noftz{.v2,.v4,.v8}.bf16",
        "bf16",
    ),
    (
        "{atom,red}.global{.add,.min,.max}.noftz{.v2,.v4}.f16x2",
        "f16x2",
    ),
    (
        "{atom,red}.global{.add,.min,.max}.noftz{.v2,.v4}.bf16x2",
        "bf16x2",
    ),
];

pub(crate) fn cases() -> Cases {
    let spaces = [".global", ".shared"].into_iter().flat_map(|space| {
        let of = move |(pattern, ty): &(&str, &'static str)| (pattern.replace('@', space), *ty);
        OPERATIONS.iter().map(of)
    });
    let vectors = VECTORS
        .iter()
        .map(|(pattern, ty)| ((*pattern).to_owned(), *ty));
    let all = spaces.chain(vectors);
    Box::new(
        all.flat_map(|(pattern, ty)| expand(&pattern).into_iter().map(move |name| case(name, ty))),
    )
}

/// Bits of a register of a type.
fn bits(ty: &str) -> usize {
    match ty {
        "f16" | "bf16" | "b16" => 16,
        "f64" | "b64" => 64,
        "b128" => 128,
        _ => 32,
    }
}

fn case(name: String, ty: &'static str) -> Case {
    let result = match ty {
        "f32" | "f64" => ty,
        "f16" | "f16x2" => "f16",
        "bf16" | "bf16x2" => "bf16",
        _ => "b64",
    };
    Case {
        text: text(&name, ty),
        name,
        inputs: Box::new(move || inputs(ty)),
        stored: 4 * THREADS,
        geometry: (THREADS as u32 / 128, 128),
        each: [6, 4],
        result,
        exact: Exact::Bits,
        image: None,
    }
}

/// 16 bytes of each thread that are there before, 16 of an operand, and 16 of another one.
fn inputs(ty: &str) -> Vec<u64> {
    let (mut words, mut random) = (vec![], Random(11));
    let (of, width) = if ty == "b128" {
        ("b64", 64)
    } else {
        (ty, bits(ty))
    };
    for _ in 0..THREADS {
        let mut word = || {
            (0..64 / width)
                .map(|i| operand(of, &mut random) << (i * width))
                .sum::<u64>()
        };
        let mut own: [u64; 6] = std::array::from_fn(|_| word());

        // Some words start with the operand, so that comparisons succeed and counters reach their
        // limit.
        if of.starts_with('b') && own[5].is_multiple_of(3) {
            (own[0], own[1]) = (own[2], own[3]);
        }

        words.extend(own);
    }

    words
}

/// Registers of a type that are operands, `%{name}0` and on: how they are made of the words
/// `%{from}0` to `%{from}3`, and how these are made of them.
fn moves(ty: &str, count: usize, from: &str, name: &str) -> [String; 2] {
    let used = (count * bits(ty)).div_ceil(32);
    let both = |to: String, of: String| {
        [
            format!("mov.b32 {to}, {of};\n"),
            format!("mov.b32 {of}, {to};\n"),
        ]
    };
    let each = |of: &dyn Fn(usize) -> [String; 2]| {
        (0..used)
            .map(of)
            .fold([String::new(), String::new()], |all, [to, back]| {
                [all[0].clone() + &to, all[1].clone() + &back]
            })
    };
    let [low, high] = [list(from, 0, 2), list(from, 2, 2)];
    match bits(ty) {
        16 => each(&|i| both(list(name, 2 * i, 2), format!("%{from}{i}"))),
        32 => each(&|i| both(format!("%{name}{i}"), format!("%{from}{i}"))),
        64 => [
            format!("mov.b64 %{name}0, {low};\n"),
            format!("mov.b64 {low}, %{name}0;\n"),
        ],
        _ => [
            format!(
                "mov.b64 %l0, {low};\nmov.b64 %l1, {high};\nmov.b128 %{name}0, {{%l0, %l1}};\n"
            ),
            format!(
                "mov.b128 {{%l0, %l1}}, %{name}0;\nmov.b64 {low}, %l0;\nmov.b64 {high}, %l1;\n"
            ),
        ],
    }
}

/// The kernel that does it once in each thread.
fn text(name: &str, ty: &str) -> String {
    let count = [".v2.", ".v4.", ".v8."]
        .iter()
        .position(|v| name.contains(v))
        .map_or(1, |i| 2 << i);
    let operands = |of: &str| {
        if count == 1 {
            format!("%{of}0")
        } else {
            list(of, 0, count)
        }
    };
    let (shared, returns) = (name.contains(".shared"), name.starts_with("atom"));
    let declared = format!(
        ".shared .align 16 .b8 s[2048];\n.reg .b32 %m<4>, %wb<4>, %wc<4>, %wo<4>, %s;\n.reg .b64 %to, %l<2>;\n\
         .reg .b{width} %b<8>, %c<8>, %o<8>;",
        width = bits(ty)
    );
    let place = if shared { "[%s]" } else { "[%to]" };
    let space = if shared { "shared" } else { "global" };
    let mut body = format!(
        "mad.wide.u32 %at, %t, 48, %in;\nmad.wide.u32 %to, %t, 32, %out;\nmov.u32 %s, s;\nmad.lo.u32 %s, %i, 16, %s;\n\
         ld.global.v4.b32 {}, [%at];\nld.global.v4.b32 {}, [%at+16];\nld.global.v4.b32 {}, [%at+32];\n\
         st.{space}.v4.b32 {place}, {};\n",
        list("m", 0, 4),
        list("wb", 0, 4),
        list("wc", 0, 4),
        list("m", 0, 4),
    );
    (0..4).for_each(|i| body += &format!("mov.b32 %wo{i}, 0;\n"));
    body += &moves(ty, count, "wb", "b")[0];
    body += &moves(ty, count, "wc", "c")[0];
    let third = if name.contains(".cas") {
        format!(", {}", operands("c"))
    } else {
        String::new()
    };
    let to = if returns {
        format!("{}, ", operands("o"))
    } else {
        String::new()
    };
    body += &format!("{name} {to}{place}, {}{third};\n", operands("b"));
    if returns {
        // Of a pair of halves, of which one is given.
        let other = if bits(ty) == 16 && count == 1 {
            "mov.b16 %o1, 0;\n"
        } else {
            ""
        };
        body += other;
        body += &moves(ty, count, "wo", "o")[1];
    }

    if shared {
        body += &format!(
            "ld.shared.v4.b32 {0}, [%s];\nst.global.v4.b32 [%to], {0};\n",
            list("m", 0, 4)
        );
    }

    body += &format!("st.global.v4.b32 [%to+16], {};", list("wo", 0, 4));
    kernel(&declared, &body)
}
