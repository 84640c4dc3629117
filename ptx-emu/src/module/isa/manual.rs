//! Forms of the PTX manual that rows and decoding functions do not implement.
//!
//! A form that is not decoded is refused as unsupported if it is in this table, and as invalid
//! otherwise. The table contains forms that ptxas accepts, as found by `cargo xtask forms`. Braces
//! enclose alternatives, and suffixes may have any order.

use std::collections::HashSet;
use std::sync::OnceLock;

use crate::module::context::row::{expand, sorted};
use crate::syntax::At;

const FORMS: &[&str] = &[
    // Integer arithmetic, halves of registers, and SIMD video.
    "add{,.sat}{.u16x2,.s16x2}",
    "sub{,.sat}{.u16x2,.s16x2}",
    "{min,max}{.u16x2,.s16x2,.relu.s16x2}",
    "{add,sub}{,.sat}{.u8x4,.s8x4}",
    "{min,max}{.u8x4,.s8x4,.relu.s8x4}",
    "add.sat.u32",
    "{addc,subc}.u16",
    "madc{.hi,.lo}{.u16,.s16}",
    "madc.hi.sat.s32",
    "lop3{.and,.or}.b32",
    "slct.ftz{.b16,.u16,.s16,.b64,.u64,.s64,.f64}.f32",
    "dp2a{.lo,.hi}{.u32,.s32}{.u32,.s32}",
    "szext{.wrap,.clamp}{.u32,.s32}",
    "fns.b32",
    "clmad{.lo,.hi}.u64",
    // Floating point.
    "{add,sub,mul}{,.rn,.rz,.rm,.rp}{,.ftz}{.f32,.sat.f32,.f32x2}",
    "{add,sub,mul}{,.rn,.rz,.rm,.rp}.f64",
    "{add,sub,mul}{,.rn}{,.ftz}{,.sat}{.f16,.f16x2}",
    "{add,sub,mul}{,.rn}{.bf16,.bf16x2}",
    "add{,.rn,.rz,.rm,.rp}{,.sat}.f32{.f16,.bf16}",
    "sub{,.rn,.rz,.rm,.rp}{,.sat}.f32{.f16,.bf16}",
    "fma{.rn,.rz,.rm,.rp}{,.sat}.f32{.f16,.bf16}",
    "fma{.rn,.rz,.rm,.rp}{,.ftz}{.f32,.sat.f32,.f32x2}",
    "fma{.rn,.rz,.rm,.rp}.f64",
    "fma.rn{,.ftz}{,.sat,.relu}{.f16,.f16x2}",
    "fma.rn{,.relu}{.bf16,.bf16x2}",
    "fma.rn.oob{,.relu}{.f16,.f16x2,.bf16,.bf16x2}",
    "fma{.rz,.rm,.rp}{,.oob}{,.relu}{.bf16,.bf16x2}",
    "mad{.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32",
    "mad{.rn,.rz,.rm,.rp}.f64",
    "div{.approx,.full,.rn,.rz,.rm,.rp}{,.ftz}.f32",
    "div{.rn,.rz,.rm,.rp}.f64",
    "rcp{.approx,.rn,.rz,.rm,.rp}{,.ftz}.f32",
    "rcp{.rn,.rz,.rm,.rp,.approx.ftz}.f64",
    "rcp{.rn,.rz,.rm,.rp}.ftz.f64",
    "{min,max}{,.ftz}{,.NaN}.abs.f32",
    "sqrt{.approx,.rn,.rz,.rm,.rp}{,.ftz}.f32",
    "sqrt{.rn,.rz,.rm,.rp}.f64",
    "rsqrt.approx{,.ftz}{.f32,.f64}",
    "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}{.f32,.f16,.f16x2}",
    "{min,max}{,.NaN}{,.xorsign.abs}{.bf16,.bf16x2}",
    "tanh.approx{.f32,.f16,.f16x2,.bf16,.bf16x2}",
    "ex2.approx{.f32,.ftz.f32,.f16,.f16x2,.ftz.bf16,.ftz.bf16x2}",
    "lg2.approx{,.ftz}.f32",
    "sin.approx{,.ftz}.f32",
    "cos.approx{,.ftz}.f32",
    "{abs,neg}{,.ftz}{.f32,.f16,.f16x2}",
    "{abs,neg}{.bf16,.bf16x2}",
    "testp{.finite,.infinite,.number,.notanumber,.normal,.subnormal}{.f32,.f64}",
    "copysign{.f32,.f64}",
    // Conversions to and from 8, 6 and 4 bits.
    "cvt.rn.satfinite{,.relu}{.e4m3x2,.e5m2x2,.e2m3x2,.e3m2x2,.e2m1x2}{.f32,.f16x2,.bf16x2}",
    "cvt.rn{,.relu}{,.satfinite}.f16x2{.e4m3x2,.e5m2x2,.e2m3x2,.e3m2x2,.e2m1x2}",
    "cvt{.rz,.rp}{,.satfinite}.ue8m0x2{.f32,.bf16x2}",
    "cvt.rn.bf16x2.ue8m0x2",
    "cvt.rn{,.relu}{,.satfinite}.bf16x2{.e4m3x2,.e5m2x2,.s2f6x2}",
    "cvt.rn{,.relu}.bf16x2{.e2m3x2,.e3m2x2,.e2m1x2}",
    "cvt.rn.satfinite{,.relu}.s2f6x2{.f32,.bf16x2}",
    "cvt{.rn,.rz,.rm,.rp}{.f32.bf16,.f64.bf16,.ftz.f32.bf16}",
    "cvt.f16.bf16",
    "cvt.rs{,.relu}{,.satfinite}{.f16x2,.bf16x2}.f32",
    "cvt.rs{,.relu}.satfinite{.e4m3x4,.e5m2x4,.e2m3x4,.e3m2x4,.e2m1x4}.f32",
    "cvt{.rn,.rz,.rna}{,.satfinite}{,.relu}.tf32.f32",
    "cvt{.rn,.rz}{,.relu}{,.satfinite}{.f16x2,.bf16x2}.f32",
    "cvt.pack.sat{.u16,.s16}.s32",
    "cvt.pack.sat{.u8,.s8,.u4,.s4,.u2,.s2}.s32.b32",
    // Atomics on 16-bit floats and on vectors.
    "atom{,.relaxed,.acquire,.release,.acq_rel}{,.cta,.cluster,.gpu,.sys}{,.global,.shared,.shared::cta,.shared::cluster}{.add,.min,.max}.noftz{.f16,.f16x2,.bf16,.bf16x2}",
    "red{,.relaxed,.release}{,.cta,.cluster,.gpu,.sys}{,.global,.shared,.shared::cta,.shared::cluster}{.add,.min,.max}.noftz{.f16,.f16x2,.bf16,.bf16x2}",
    "atom{,.relaxed,.acquire,.release,.acq_rel}{,.cta,.cluster,.gpu,.sys}{,.global}{.add,.min,.max}.noftz{.v2,.v4,.v8}{.f16,.f16x2,.bf16,.bf16x2}",
    "red{,.relaxed,.release}{,.cta,.cluster,.gpu,.sys}{,.global}{.add,.min,.max}.noftz{.v2,.v4,.v8}{.f16,.f16x2,.bf16,.bf16x2}",
    "atom{,.relaxed,.acquire,.release,.acq_rel}{,.cta,.cluster,.gpu,.sys}{,.global}.add{.v2,.v4}.f32",
    "red{,.relaxed,.release}{,.cta,.cluster,.gpu,.sys}{,.global}.add{.v2,.v4}.f32",
    "atom{,.relaxed,.acquire,.release,.acq_rel}{,.cta,.cluster,.gpu,.sys}{,.global,.shared,.shared::cta,.shared::cluster}{.add,.min,.max}.s64",
    "{atom,red}{,.relaxed}{,.cta,.cluster,.gpu,.sys}{,.global}.add.noftz{.v2,.v4}.f32",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group{,.L2::cache_hint}.add.noftz.f32",
    "mbarrier{.arrive,.arrive_drop}{,.expect_tx}.relaxed{.cta,.cluster}{,.shared,.shared::cta,.shared::cluster}.b64",
    "mbarrier{.test_wait,.try_wait}{,.parity}.relaxed{.cta,.cluster}{,.shared,.shared::cta}.b64",
    "fence.acquire.sync_restrict::shared::cluster.cluster",
    "fence.release.sync_restrict::shared::cta.cluster",
    "membar.proxy{.alias,.async,.async.global,.async.shared::cta,.async.shared::cluster}",
    // Warp instructions.
    "redux.sync{.min,.max}{,.abs}{,.NaN}.f32",
    // Moves.
    "ld.global{,.nc}{,.L1::no_allocate}.v8{.b16,.u16,.s16,.f16}",
    "st.global{,.L1::no_allocate}.v8{.b16,.u16,.s16,.f16}",
    "cvta{,.to}{.global,.shared,.shared::cta,.shared::cluster,.const,.local,.param,.param::entry}.u32",
    "cp.async.bulk.global.shared::cta.bulk_group{,.L2::cache_hint}.cp_mask",
    "red.async.relaxed.cluster.mbarrier::complete_tx::bytes{.add,.inc,.dec,.min,.max}.u32",
    "red.async.relaxed.cluster.mbarrier::complete_tx::bytes{.add.u64,.add.s32,.min.s32,.max.s32,.and.b32,.or.b32,.xor.b32}",
    "prefetch{.global,}{.L2::evict_last,.L2::evict_normal}",
    "createpolicy.range{,.global}{.L2::evict_last,.L2::evict_normal,.L2::evict_first,.L2::evict_unchanged}.b64",
    "createpolicy.cvt.L2.b64",
    // Textures and surfaces.
    "tex{,.base,.level,.grad}{.1d,.2d,.3d,.a1d,.a2d,.cube,.acube}{.v4.f16,.v2.f16x2}{.s32,.f32}",
    "tex{,.base}{.2dms,.a2dms}{.v4.s32,.v4.u32,.v4.f32}.s32",
    "tld4{.r,.g,.b,.a}{.2d,.a2d,.cube,.acube}{.v4.f16,.v2.f16x2}.f32",
    "txq.level{.width,.height,.depth}.b32",
    "txq{.force_unnormalized_coords,.filter_mode,.addr_mode_0,.addr_mode_1,.addr_mode_2}.b32",
    "suq.memory_layout.b32",
    "sust.p{.1d,.2d,.3d,.a1d,.a2d}{,.v2,.v4}.b32{.trap,.clamp,.zero}",
    // Bulk copies to multicast addresses.
    "multimem.cp.async.bulk.bulk_group.global.shared::cta{,.cp_mask}",
    "multimem.cp.reduce.async.bulk.bulk_group.global.shared::cta{.and,.or,.xor}{.b32,.b64}",
    "multimem.cp.reduce.async.bulk.bulk_group.global.shared::cta.add{.u32,.s32,.u64,.f32,.f64,.noftz.f16,.noftz.bf16}",
    "multimem.cp.reduce.async.bulk.bulk_group.global.shared::cta{.inc,.dec}.u32",
    "multimem.cp.reduce.async.bulk.bulk_group.global.shared::cta{.min,.max}{.u32,.s32,.u64,.s64,.f16,.bf16}",
];

/// Opcodes and first suffixes of instructions of which no form is decoded.
const FAMILIES: &[(&str, &str)] = &[
    ("mma", ".sp"),
    ("mma", ".sp::ordered_metadata"),
    ("st", ".bulk"),
];

/// Returns true if the manual has a form.
pub(crate) fn has(opcode: &str, suffixes: &[(&str, At)]) -> bool {
    if suffixes
        .first()
        .is_some_and(|(first, _)| FAMILIES.contains(&(opcode, first)))
    {
        return true;
    }

    static KNOWN: OnceLock<HashSet<String>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        FORMS
            .iter()
            .flat_map(|form| expand(form))
            .map(|name| key(&name))
            .collect()
    });
    known.contains(&sorted(
        opcode,
        suffixes
            .iter()
            .map(|(s, _)| s.trim_start_matches('.'))
            .collect(),
    ))
}

/// Returns the key of a full name.
pub(crate) fn key(name: &str) -> String {
    let mut parts = name.split('.');
    let opcode = parts.next().unwrap_or_default();
    sorted(opcode, parts.collect())
}
