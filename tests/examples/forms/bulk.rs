//! Reductions of global memory by bulk copies.

use super::case::{Case, Exact, expand, kernel, list};
use super::operands::operand;
use super::scalar::THREADS;
use warpwright_kernels::Random;

/// By bulk copies: names, and the type of an element.
const COPIES: &[(&str, &str)] = &[
    ("{.add,.min,.max,.inc,.dec}.u32", "b32"),
    ("{.add,.min,.max}.s32", "b32"),
    ("{.add,.min,.max}.u64", "b64"),
    ("{.min,.max}.s64", "b64"),
    ("{.and,.or,.xor}.b32", "b32"),
    ("{.and,.or,.xor}.b64", "b64"),
    (".add.f32", "f32"),
    (".add.f64", "f64"),
    ("{.min,.max,.add.noftz}.f16", "f16"),
    ("{.min,.max,.add.noftz}.bf16", "bf16"),
];

pub(crate) fn cases() -> Box<dyn Iterator<Item = Case>> {
    Box::new(COPIES.iter().flat_map(|(pattern, ty)| expand(pattern).into_iter().map(|name| case(&name, ty))))
}

/// A block's threads fill memory, and one of them copies onto it.
fn case(name: &str, ty: &'static str) -> Case {
    let name = format!("cp.reduce.async.bulk.global.shared::cta.bulk_group{name}");
    let declared =
        ".shared .align 128 .b8 s[2048];\n.reg .b32 %m<4>, %v<4>, %s;\n.reg .b64 %to;\n.reg .pred %p;";
    let (before, operands) = (list("m", 0, 4), list("v", 0, 4));
    let body = format!(
        "mov.u32 %s, s;\nmad.lo.u32 %s, %i, 16, %s;\nmad.wide.u32 %at, %t, 32, %in;\nmad.wide.u32 %to, %t, 16, %out;\n\
         ld.global.v4.b32 {before}, [%at];\nld.global.v4.b32 {operands}, [%at+16];\nsetp.eq.u32 %p, %i, 0;\n\
         st.global.v4.b32 [%to], {before};\nst.shared.v4.b32 [%s], {operands};\nfence.proxy.async;\nbar.sync 0;\n\
         @%p {name} [%to], [%s], 2048;\n@%p cp.async.bulk.commit_group;\n@%p cp.async.bulk.wait_group 0;",
    );
    Case {
        name,
        text: kernel(declared, &body),
        inputs: Box::new(move || inputs(ty)),
        stored: 2 * THREADS,
        geometry: (THREADS as u32 / 128, 128),
        each: [4, 2],
        result: if matches!(ty, "b32" | "b64") { "b64" } else { ty },
        exact: Exact::Bits,
        image: None,
    }
}

/// 16 bytes of each thread that are there before, and 16 of operands.
fn inputs(ty: &str) -> Vec<u64> {
    let width = match ty {
        "f16" | "bf16" => 16,
        "f64" | "b64" => 64,
        _ => 32,
    };
    let mut random = Random(13);
    let word = |_| (0..64 / width).map(|i| operand(ty, &mut random) << (i * width)).sum::<u64>();
    (0..4 * THREADS).map(word).collect()
}
