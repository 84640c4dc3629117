//! Asynchronous reductions: in global memory by bulk copies, and in the shared memory of another
//! block.

use super::case::{Case, Cases, Exact, expand, kernel, list};
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

/// Reductions in the shared memory of another block.
const STORES: &[(&str, &str)] = &[
    ("{.add,.min,.max,.inc,.dec}.u32", "b32"),
    ("{.add,.min,.max}.s32", "b32"),
    (".add.u64", "b64"),
    ("{.and,.or,.xor}.b32", "b32"),
];

/// Blocks in pairs.
const PAIRED: usize = 390;

pub(crate) fn cases() -> Cases {
    type Make = fn(&str, &'static str) -> Case;
    let all: [(&[(&str, &'static str)], Make); 2] = [(COPIES, copy), (STORES, store)];
    Box::new(all.into_iter().flat_map(|(table, make)| {
        let of = move |(pattern, ty): &(&str, &'static str)| {
            let ty = *ty;
            expand(pattern).into_iter().map(move |name| make(&name, ty))
        };
        table.iter().flat_map(of)
    }))
}

/// A block's threads fill memory, and one of them copies onto it.
fn copy(name: &str, ty: &'static str) -> Case {
    let name = format!("cp.reduce.async.bulk.global.shared::cta.bulk_group{name}");
    let declared = ".shared .align 128 .b8 s[2048];\n.reg .b32 %m<4>, %v<4>, %s;\n.reg .b64 %to;\n.reg .pred %p;";
    let (before, operands) = (list("m", 0, 4), list("v", 0, 4));
    let body = format!(
        "mov.u32 %s, s;\nmad.lo.u32 %s, %i, 16, %s;\nmad.wide.u32 %at, %t, 32, %in;\nmad.wide.u32 %to, %t, 16, %out;\n\
         ld.global.v4.b32 {before}, [%at];\nld.global.v4.b32 {operands}, [%at+16];\nsetp.eq.u32 %p, %i, 0;\n\
         st.global.v4.b32 [%to], {before};\nst.shared.v4.b32 [%s], {operands};\nfence.proxy.async;\nbar.sync 0;\n\
         @%p {name} [%to], [%s], 2048;\n@%p cp.async.bulk.commit_group;\n@%p cp.async.bulk.wait_group 0;",
    );
    case(name, kernel(declared, &body), ty, THREADS / 128)
}

fn case(name: String, text: String, ty: &'static str, blocks: usize) -> Case {
    Case {
        name,
        text,
        inputs: Box::new(move || inputs(ty)),
        stored: 2 * 128 * blocks,
        geometry: (blocks as u32, 128),
        each: [4, 2],
        result: if matches!(ty, "b32" | "b64") {
            "b64"
        } else {
            ty
        },
        exact: Exact::Bits,
        image: None,
    }
}

/// Two blocks of a cluster reduce words of each other, each thread its own, and wait for all.
fn store(name: &str, ty: &'static str) -> Case {
    let name =
        format!("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes{name}");
    let (bytes, value) = if ty == "b64" { (8, "%w") } else { (4, "%v0") };
    let declared = ".shared .align 16 .b8 s[2048];\n.shared .align 8 .b64 bar;\n.reg .b32 %m<4>, %v<4>, %s, %x, %rs, %rx, %o;\n\
                    .reg .b64 %to, %w;\n.reg .pred %p;";
    let (before, operands) = (list("m", 0, 4), list("v", 0, 4));
    let body = format!(
        "mov.u32 %s, s;\nmad.lo.u32 %s, %i, 16, %s;\nmov.u32 %x, bar;\nmad.wide.u32 %at, %t, 32, %in;\n\
         mad.wide.u32 %to, %t, 16, %out;\nld.global.v4.b32 {before}, [%at];\nld.global.v4.b32 {operands}, [%at+16];\n\
         setp.eq.u32 %p, %i, 0;\n@%p mbarrier.init.shared.b64 [%x], 1;\n@%p fence.mbarrier_init.release.cluster;\n\
         st.shared.v4.b32 [%s], {before};\nbar.sync 0;\n\
         @%p mbarrier.arrive.expect_tx.shared.b64 _, [%x], {};\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n\
         mov.u32 %o, %cluster_ctarank;\nxor.b32 %o, %o, 1;\nmapa.shared::cluster.u32 %rs, %s, %o;\n\
         mapa.shared::cluster.u32 %rx, %x, %o;\nmov.b64 %w, {{%v0, %v1}};\n{name} [%rs], {value}, [%rx];\n\
         waiting:\nmbarrier.try_wait.parity.shared.b64 %p, [%x], 0;\n@!%p bra waiting;\n\
         ld.shared.v4.b32 {before}, [%s];\nst.global.v4.b32 [%to], {before};\n\
         barrier.cluster.arrive;\nbarrier.cluster.wait;",
        128 * bytes,
    );
    let text = kernel(declared, &body).replace(")\n{", ")\n.reqnctapercluster 2, 1, 1\n{");
    case(name, text, ty, PAIRED)
}

/// 16 bytes of each thread that are there before, and 16 of operands.
fn inputs(ty: &str) -> Vec<u64> {
    let width = match ty {
        "f16" | "bf16" => 16,
        "f64" | "b64" => 64,
        _ => 32,
    };
    let mut random = Random(13);
    let word = |_| {
        (0..64 / width)
            .map(|i| operand(ty, &mut random) << (i * width))
            .sum::<u64>()
    };
    (0..4 * THREADS).map(word).collect()
}
