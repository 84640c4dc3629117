//! Names of instructions, including combinations that may not exist, and operands for them.

use super::form::{InstructionForm, list};
use super::matrices;

/// Names with alternatives in braces, and their operands.
///
/// A letter in the operands stands for a register:
///
/// - `T` has the size of the last type in the name, `D` of the first and `S` of the second. `W` is
///   twice as large as `T`.
/// - `p` is a predicate. `b`, `h`, `r`, `l` and `q` have 8, 16, 32, 64 and 128 bits.
const PATTERNS: &[(&str, &str)] = &[
    // Integer arithmetic.
    (
        "{add,sub}{,.cc}{,.sat}{.u16,.u32,.u64,.s16,.s32,.s64,.u16x2,.s16x2,.u8x4,.s8x4,.b32}",
        "T, T, T",
    ),
    ("{addc,subc}{,.cc}{.u16,.u32,.u64,.s32,.s64}", "T, T, T"),
    ("mul{,.hi,.lo}{.u16,.u32,.u64,.s16,.s32,.s64}", "T, T, T"),
    ("mul.wide{.u16,.u32,.u64,.s16,.s32,.s64}", "W, T, T"),
    (
        "{mad,madc}{,.hi,.lo}{,.cc}{,.sat}{.u16,.u32,.u64,.s16,.s32,.s64}",
        "T, T, T, T",
    ),
    (
        "mad.wide{,.cc}{.u16,.u32,.u64,.s16,.s32,.s64}",
        "W, T, T, W",
    ),
    ("mul24{,.hi,.lo}{.u32,.s32}", "T, T, T"),
    ("mad24{,.hi,.lo}{,.sat}{.u32,.s32}", "T, T, T, T"),
    ("sad{.u16,.u32,.u64,.s16,.s32,.s64}", "T, T, T, T"),
    ("{div,rem}{.u8,.u16,.u32,.u64,.s16,.s32,.s64}", "T, T, T"),
    ("{abs,neg}{.u32,.s16,.s32,.s64,.s16x2}", "T, T"),
    (
        "{min,max}{,.relu}{.u16,.u32,.u64,.s16,.s32,.s64,.u16x2,.s16x2,.u8x4,.s8x4}",
        "T, T, T",
    ),
    ("{popc,clz}{.u32,.b32,.b64}", "r, T"),
    ("bfind{,.shiftamt}{.u32,.u64,.s32,.s64,.b32}", "r, T"),
    ("brev{.b32,.b64,.u32}", "T, T"),
    ("fns.b32", "r, r, r, r"),
    ("bfe{.u32,.u64,.s32,.s64,.b32}", "T, T, r, r"),
    ("bfi{.b32,.b64,.u32}", "T, T, T, r, r"),
    ("szext{.wrap,.clamp}{.u32,.s32,.u64}", "T, T, r"),
    ("bmsk{.wrap,.clamp}{.b32,.b64}", "T, r, r"),
    ("dp4a{.u32,.s32}{.u32,.s32}", "r, r, r, r"),
    ("dp2a{.lo,.hi}{.u32,.s32}{.u32,.s32}", "r, r, r, r"),
    ("clmad{.lo,.hi}{.u64,.u32}", "T, T, T, T"),
    // Floating point.
    (
        "{add,sub,mul}{,.rn,.rz,.rm,.rp,.rna,.rs}{,.ftz}{,.sat}{.f32,.f32x2,.f64,.f16,.f16x2,.bf16,.bf16x2}",
        "T, T, T",
    ),
    (
        "{add,sub}{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32{.f16,.bf16}",
        "r, h, r",
    ),
    ("mul{,.rn,.rz,.rm,.rp}{,.sat}.f32{.f16,.bf16}", "r, h, h"),
    (
        "fma{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32{.f16,.bf16}",
        "r, h, h, r",
    ),
    (
        "{fma,mad}{,.rn,.rz,.rm,.rp,.rna}{,.ftz}{,.sat,.relu,.oob,.oob.relu}{.f32,.f32x2,.f64,.f16,.f16x2,.bf16,.bf16x2}",
        "T, T, T, T",
    ),
    (
        "div{,.approx,.full,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}{.f32,.f64,.f16}",
        "T, T, T",
    ),
    (
        "{rcp,sqrt}{,.approx,.rn,.rz,.rm,.rp}{,.ftz}{.f32,.f64,.f16}",
        "T, T",
    ),
    ("rsqrt{,.approx}{,.ftz}{.f32,.f64}", "T, T"),
    (
        "{min,max}{,.ftz}{,.NaN}{,.abs,.xorsign.abs}{.f32,.f64,.f16,.f16x2,.bf16,.bf16x2,.f32x2}",
        "T, T, T",
    ),
    (
        "{min,max}{,.ftz}{,.NaN}{,.abs,.xorsign.abs}{.f32,.f16,.f16x2,.bf16,.bf16x2}",
        "T, T, T, T",
    ),
    (
        "{tanh,ex2}{,.approx}{,.ftz}{.f32,.f64,.f16,.f16x2,.bf16,.bf16x2}",
        "T, T",
    ),
    ("{lg2,sin,cos}{,.approx}{,.ftz}{.f32,.f64,.f16}", "T, T"),
    (
        "{abs,neg}{,.ftz}{.f32,.f64,.f16,.f16x2,.bf16,.bf16x2,.f32x2}",
        "T, T",
    ),
    (
        "testp{.finite,.infinite,.number,.notanumber,.normal,.subnormal}{.f32,.f64,.f16}",
        "p, T",
    ),
    ("copysign{.f32,.f64,.f16}", "T, T, T"),
    // Comparison and selection.
    (
        "setp{.eq,.lt,.lo,.ls,.hs,.equ,.geu,.num,.nan}{,.and,.or,.xor}{,.ftz}{.b16,.b32,.b64,.u16,.u32,.u64,.s16,.s32,.s64,.f32,.f64,.f16,.f16x2,.bf16,.bf16x2}",
        "p|p, T, T#",
    ),
    (
        "set{.eq,.lt,.hs,.geu,.num}{,.and,.or,.xor}{,.ftz}{.u16,.u32,.s16,.s32,.f16,.f16x2,.bf16,.bf16x2,.f32}{.b32,.u16,.u32,.s64,.f32,.f64,.f16,.f16x2,.bf16,.bf16x2}",
        "D, T, T#",
    ),
    (
        "selp{.b16,.b32,.b64,.u16,.u32,.u64,.s16,.s32,.s64,.f32,.f64,.f16,.pred}",
        "T, T, T, p",
    ),
    (
        "slct{,.ftz}{.b16,.b32,.b64,.u16,.u32,.u64,.s16,.s32,.s64,.f32,.f64}{.s32,.f32,.u32}",
        "D, D, D, r",
    ),
    // Logic and shifts.
    ("{and,or,xor}{.pred,.b16,.b32,.b64,.u32}", "T, T, T"),
    ("{not,cnot}{.pred,.b16,.b32,.b64}", "T, T"),
    ("lop3.b32", "r, r, r, r, 7"),
    ("lop3{.and,.or}.b32", "r|p, r, r, r, 7, p"),
    ("lop3.b64", "l, l, l, l, 7"),
    ("shf{.l,.r}{.wrap,.clamp}{.b32,.b64}", "T, T, T, r"),
    (
        "{shl,shr}{.b16,.b32,.b64,.u16,.u32,.u64,.s16,.s32,.s64}",
        "T, T, r",
    ),
    ("prmt.b32{,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16}", "r, r, r, r"),
    // Moves.
    (
        "mov{.pred,.b8,.b16,.b32,.b64,.b128,.u16,.u32,.u64,.s16,.s32,.s64,.f16,.f16x2,.bf16,.f32,.f64}",
        "T, T",
    ),
    ("mov.b128", "q, {l, l}"),
    ("mov.b128", "{l, l}, q"),
    ("mov.b16", "h, {b, b}"),
    ("mov.b32", "r, {b, b, b, b}"),
    ("mov.b64", "l, {h, h, h, h}"),
    (
        "ld{,.weak,.volatile,.relaxed.cta,.relaxed.cluster,.acquire.gpu,.acquire.sys,.mmio.relaxed.sys}{,.global,.shared,.shared::cta,.shared::cluster,.local,.const,.param}{,.nc}{.b8,.u32,.f64,.b128,.f16}",
        "T, [l]",
    ),
    (
        "ld{,.global}{,.nc}{,.ca,.cg,.cs,.lu,.cv,.L1::evict_normal,.L1::evict_unchanged,.L1::evict_first,.L1::evict_last,.L1::no_allocate,.L2::evict_first,.L2::evict_last,.L2::evict_normal}{,.L2::64B,.L2::128B,.L2::256B}{.b32,.v2.f32,.v4.b32}",
        "V, [l]",
    ),
    (
        "ld{,.global}{,.nc}{,.L1::no_allocate}{,.L2::evict_last}.L2::cache_hint{,.L2::128B}{.b32,.v4.f32}",
        "V, [l], l",
    ),
    (
        "ld.global{,.nc}{,.L2::evict_last}{,.L1::no_allocate}{.v8.b32,.v8.f32,.v4.b64,.v4.u64,.v2.b64,.v2.b128,.v4.f64,.v8.u16}",
        "V, [l]",
    ),
    (
        "st.global{,.L2::evict_last}{,.L1::no_allocate}{.v8.b32,.v8.f32,.v4.b64,.v4.u64,.v2.b64,.v4.f64,.v8.u16}",
        "[l], V",
    ),
    (
        "ldu{,.global}{.b8,.u32,.f64,.v2.f32,.v4.b32,.b128}",
        "V, [l]",
    ),
    (
        "st{,.weak,.volatile,.relaxed.cta,.relaxed.cluster,.release.gpu,.release.sys,.mmio.relaxed.sys}{,.global,.shared,.shared::cta,.shared::cluster,.local}{.b8,.u32,.f64,.b128}",
        "[l], T",
    ),
    (
        "st{,.global}{,.wb,.cg,.cs,.wt,.L1::evict_normal,.L1::evict_unchanged,.L1::evict_first,.L1::evict_last,.L1::no_allocate,.L2::evict_first,.L2::evict_last}{.b32,.v2.f32,.v4.b32}",
        "[l], V",
    ),
    (
        "st{,.global}{,.L1::no_allocate}.L2::cache_hint{.b32,.v4.f32}",
        "[l], V, l",
    ),
    (
        "st.async{,.weak}{,.shared::cluster}.mbarrier::complete_tx::bytes{.b32,.b64,.u32,.s64,.f32,.v2.b32,.v4.b32,.v2.f64}",
        "[r], V, [r]",
    ),
    (
        "st.async.mmio.release{.gpu,.sys}.global{.b8,.b32,.b64}",
        "[l], T",
    ),
    (
        "red.async.relaxed.cluster{,.shared::cluster}.mbarrier::complete_tx::bytes{.inc,.dec,.min,.max,.and,.or,.xor,.add}{.u32,.s32,.u64,.b32}",
        "[r], T, [r]",
    ),
    (
        "red.async.mmio.release{.gpu,.sys}.global.add{.u32,.s32,.u64}",
        "[l], T",
    ),
    ("st.bulk{,.weak}{,.shared::cta}", "[r], l, 0"),
    (
        "multimem.ld_reduce{,.weak,.relaxed.sys,.acquire.gpu}{,.global}{.min,.max,.add,.and,.or,.xor}{,.acc::f32,.acc::f16}{.u32,.s64,.b32,.f32,.f64,.f16x2,.v4.f16x2,.v4.bf16x2,.v2.f32}",
        "V, [l]",
    ),
    (
        "multimem.st{,.weak,.relaxed.sys,.release.gpu}{,.global}{.u32,.b64,.f32,.v4.f16x2,.v2.f32}",
        "[l], V",
    ),
    (
        "multimem.red{,.relaxed.sys,.release.gpu}{,.global}{.min,.max,.add,.and,.or,.xor}{.u32,.u64,.b32,.f32,.v4.f16x2,.v2.f32}",
        "[l], V",
    ),
    (
        "multimem.cp.async.bulk.bulk_group.global.shared::cta",
        "[l], [r], r",
    ),
    (
        "multimem.cp.reduce.async.bulk.bulk_group.global.shared::cta.add{.u32,.f32,.noftz.f16}",
        "[l], [r], r",
    ),
    (
        "prefetch{,.global,.local}{.L1,.L2,.L2::evict_last,.L2::evict_normal}",
        "[l]",
    ),
    ("prefetch{,.const,.param}.tensormap", "[l]"),
    ("prefetchu.L1", "[l]"),
    ("applypriority{,.global}.L2::evict_normal", "[l], 128"),
    ("discard{,.global}.L2", "[l], 128"),
    (
        "createpolicy.fractional.L2{::evict_last,::evict_normal,::evict_first,::evict_unchanged}{,.L2::evict_first,.L2::evict_unchanged}.b64",
        "l, 0f3F000000",
    ),
    (
        "createpolicy.range{,.global}.L2{::evict_last,::evict_normal,::evict_first,::evict_unchanged}{,.L2::evict_first,.L2::evict_unchanged}.b64",
        "l, [l], r, r",
    ),
    ("createpolicy.cvt.L2.b64", "l, l"),
    (
        "isspacep{.global,.shared,.shared::cta,.shared::cluster,.const,.local,.param,.param::entry}",
        "p, l",
    ),
    (
        "cvta{,.to}{.global,.shared,.shared::cta,.shared::cluster,.const,.local,.param,.param::entry}{.u64,.u32}",
        "T, T",
    ),
    ("mapa{,.shared::cluster}{.u32,.u64}", "T, T, r"),
    ("getctarank{,.shared::cluster}{.u32,.u64}", "r, T"),
    ("movmatrix.sync.aligned.m8n8.trans.b16", "r, r"),
    // Conversions.
    (
        "cvt{,.rn,.rz,.rm,.rp,.rna,.rni,.rzi,.rmi,.rpi}{,.ftz}{,.sat}{.u8,.u16,.u32,.u64,.s8,.s16,.s32,.s64,.f16,.bf16,.f32,.f64}{.u8,.u16,.u32,.u64,.s8,.s16,.s32,.s64,.f16,.bf16,.f32,.f64}",
        "D, T",
    ),
    ("cvt{.rn,.rz,.rna}{,.satfinite}{,.relu}.tf32.f32", "r, r"),
    ("cvt{.rn,.rz}{,.relu}{,.satfinite}{.f16,.bf16}.f32", "D, T"),
    (
        "cvt{.rn,.rz}{,.relu}{,.satfinite}{.f16x2,.bf16x2,.tf32x2}.f32",
        "D, T, T",
    ),
    (
        "cvt{,.rn,.rz}{,.satfinite}{,.relu}{.e4m3x2,.e5m2x2,.e2m3x2,.e3m2x2,.e2m1x2,.ue8m0x2,.s2f6x2,.ue5m3x2}.f32",
        "D, r, r",
    ),
    (
        "cvt{,.rn,.rz,.rp}{,.satfinite}{,.relu}{.e4m3x2,.e5m2x2,.e2m3x2,.e3m2x2,.e2m1x2,.ue8m0x2,.s2f6x2}{.f16x2,.bf16x2}",
        "D, r",
    ),
    ("cvt{.rp,.rz}{,.satfinite}.ue8m0x2.f32", "D, r, r"),
    (
        "cvt.rn{,.relu}{,.satfinite}{.f16x2,.bf16x2}{.e4m3x2,.e5m2x2,.e2m3x2,.e3m2x2,.e2m1x2,.ue8m0x2,.s2f6x2}",
        "r, T",
    ),
    (
        "cvt.rs{,.relu}{,.satfinite}{.f16x2,.bf16x2}.f32",
        "r, r, r, r",
    ),
    (
        "cvt.rs{,.relu}{,.satfinite}{.e4m3x4,.e5m2x4,.e2m3x4,.e3m2x4,.e2m1x4}.f32",
        "D, {r, r, r, r}, r",
    ),
    ("cvt.pack.sat{.u16,.s16}.s32", "r, r, r"),
    (
        "cvt.pack.sat{.u8,.s8,.u4,.s4,.u2,.s2}.s32.b32",
        "r, r, r, r",
    ),
    // Asynchronous copies.
    (
        "cp.async{.ca,.cg}{.shared,.shared::cta,.shared::cluster}.global{,.L2::64B,.L2::128B,.L2::256B}",
        "[r], [l], 16",
    ),
    (
        "cp.async{.ca,.cg}.shared.global{,.L2::64B,.L2::128B}",
        "[r], [l], 16, r",
    ),
    (
        "cp.async{.ca,.cg}.shared.global{,.L2::64B,.L2::128B}",
        "[r], [l], 16, p",
    ),
    (
        "cp.async{.ca,.cg}.shared.global.L2::cache_hint{,.L2::128B}",
        "[r], [l], 16, l",
    ),
    ("cp.async{.commit_group,.wait_all}", ""),
    ("cp.async.wait_group", "1"),
    (
        "cp.async.mbarrier.arrive{,.noinc}{,.shared,.shared::cta}.b64",
        "[l]",
    ),
    (
        "cp.async.bulk{.shared::cluster,.shared::cta}.global.mbarrier::complete_tx::bytes",
        "[r], [l], r, [r]",
    ),
    (
        "cp.async.bulk{.shared::cluster,.shared::cta}.global.mbarrier::complete_tx::bytes.L2::cache_hint",
        "[r], [l], r, [r], l",
    ),
    (
        "cp.async.bulk{.shared::cluster,.shared::cta}.global.mbarrier::complete_tx::bytes.ignore_oob",
        "[r], [l], r, r, r, [r]",
    ),
    (
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
        "[r], [l], r, [r], h",
    ),
    (
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint",
        "[r], [l], r, [r], h, l",
    ),
    (
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes",
        "[r], [r], r, [r]",
    ),
    ("cp.async.bulk.global.shared::cta.bulk_group", "[l], [r], r"),
    (
        "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint",
        "[l], [r], r, l",
    ),
    (
        "cp.async.bulk.global.shared::cta.bulk_group.cp_mask",
        "[l], [r], r, h",
    ),
    ("cp.async.bulk.prefetch.L2.global", "[l], r"),
    (
        "cp.async.bulk.prefetch.L2.global.L2::cache_hint",
        "[l], r, l",
    ),
    ("cp.async.bulk.commit_group", ""),
    ("cp.async.bulk.wait_group{,.read}", "0"),
    (
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes{.and,.or,.xor,.add,.inc,.dec,.min,.max}{.s32,.u32,.u64,.b32,.f32}",
        "[r], [r], r, [r]",
    ),
    (
        "cp.reduce.async.bulk.global.shared::cta.bulk_group{.and,.or,.xor,.add,.inc,.dec,.min,.max,.add.noftz}{.f16,.bf16,.b32,.u32,.s32,.b64,.u64,.s64,.f32,.f64}",
        "[l], [r], r",
    ),
    (
        "cp.async.bulk.prefetch.tensor{.1d,.2d}.L2.global{,.tile}",
        "[l, X]",
    ),
    (
        "cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4",
        "[l, {r, r, r, r, r}]",
    ),
    (
        "cp.async.bulk.tensor{.1d,.2d,.3d,.4d,.5d}{.shared::cluster,.shared::cta}.global{,.tile}.mbarrier::complete_tx::bytes{,.cta_group::1,.cta_group::2}",
        "[r], [l, X], [r]",
    ),
    (
        "cp.async.bulk.tensor{.1d,.2d}.shared::cluster.global{,.tile}.mbarrier::complete_tx::bytes.multicast::cluster{,.cta_group::1}",
        "[r], [l, X], [r], h",
    ),
    (
        "cp.async.bulk.tensor{.1d,.2d}.shared::cluster.global{,.tile}.mbarrier::complete_tx::bytes.L2::cache_hint",
        "[r], [l, X], [r], l",
    ),
    (
        "cp.async.bulk.tensor{.3d,.4d,.5d}.shared::cluster.global.im2col.mbarrier::complete_tx::bytes",
        "[r], [l, X], [r], Y",
    ),
    (
        "cp.async.bulk.tensor{.3d,.4d}.shared::cluster.global{.im2col::w,.im2col::w::128}.mbarrier::complete_tx::bytes",
        "[r], [l, X], [r], {h, h}",
    ),
    (
        "cp.async.bulk.tensor.2d{.shared::cluster,.shared::cta}.global.tile::gather4.mbarrier::complete_tx::bytes",
        "[r], [l, {r, r, r, r, r}], [r]",
    ),
    (
        "cp.async.bulk.tensor{.1d,.2d,.3d}.global.shared::cta{,.tile,.im2col_no_offs}.bulk_group",
        "[l, X], [r]",
    ),
    (
        "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group",
        "[l, {r, r, r, r, r}], [r]",
    ),
    (
        "cp.reduce.async.bulk.tensor{.1d,.2d}.global.shared::cta{.add,.min,.max,.inc,.dec,.and,.or,.xor}{,.tile}.bulk_group",
        "[l, X], [r]",
    ),
    (
        "tensormap.replace.tile.global_address{,.global,.shared::cta}.b1024.b64",
        "[l], l",
    ),
    (
        "tensormap.replace.tile{.rank,.interleave_layout,.swizzle_mode,.fill_mode,.elemtype,.swizzle_atomicity}{,.global,.shared::cta}.b1024.b32",
        "[l], 1",
    ),
    (
        "tensormap.replace.tile{.box_dim,.global_dim,.element_stride}{,.global,.shared::cta}.b1024.b32",
        "[l], 1, r",
    ),
    (
        "tensormap.replace.tile.global_stride{,.global,.shared::cta}.b1024.b64",
        "[l], 1, l",
    ),
    (
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release{.cta,.gpu,.sys}.sync.aligned",
        "[l], [r], 128",
    ),
    // Textures and surfaces.
    (
        "tex.1d{.v4.s32,.v4.u32,.v4.f32,.v2.f16x2}{.s32,.f32}",
        "V4, [l, {r}]",
    ),
    (
        "tex.1d{.v4.s32,.v4.u32,.v4.f32}{.s32,.f32}",
        "V4, [l, l, {r}]",
    ),
    (
        "tex{.2d,.a1d}{.v4.s32,.v4.u32,.v4.f32}{.s32,.f32}",
        "V4, [l, {r, r}]",
    ),
    (
        "tex{.3d,.a2d,.cube,.acube,.2dms}{.v4.s32,.v4.u32,.v4.f32}{.s32,.f32}",
        "V4, [l, {r, r, r, r}]",
    ),
    ("tex.level.2d{.v4.s32,.v4.f32}.f32", "V4, [l, {r, r}], r"),
    (
        "tex.grad.2d{.v4.s32,.v4.f32}.f32",
        "V4, [l, {r, r}], {r, r}, {r, r}",
    ),
    (
        "tld4{.r,.g,.b,.a}.2d{.v4.s32,.v4.u32,.v4.f32}.f32",
        "V4, [l, {r, r}]",
    ),
    (
        "txq{.width,.height,.depth,.channel_data_type,.channel_order,.normalized_coords,.array_size,.num_mipmap_levels,.num_samples}.b32",
        "r, [l]",
    ),
    (
        "suq{.width,.height,.depth,.channel_data_type,.channel_order,.array_size,.memory_layout}.b32",
        "r, [l]",
    ),
    (
        "suld.b.1d{.b8,.b16,.b32,.b64,.v2.b32,.v4.b32,.v2.b64}{.trap,.clamp,.zero}",
        "V4, [l, {r}]",
    ),
    (
        "suld.b{.2d,.a1d}{.b8,.b16,.b32,.b64,.v2.b32,.v4.b32,.v2.b64}{.trap,.clamp,.zero}",
        "V4, [l, {r, r}]",
    ),
    (
        "suld.b{.3d,.a2d}{.b8,.b16,.b32,.v4.b32}{.trap,.clamp,.zero}",
        "V4, [l, {r, r, r, r}]",
    ),
    (
        "sust.b.1d{.b8,.b16,.b32,.b64,.v2.b32,.v4.b32}{.trap,.clamp,.zero}",
        "[l, {r}], V4",
    ),
    (
        "sust{.b,.p}{.2d,.a1d}{.b8,.b16,.b32,.b64,.v2.b32,.v4.b32}{.trap,.clamp,.zero}",
        "[l, {r, r}], V4",
    ),
    (
        "sured{.b,.p}.1d{.add,.min,.max,.and,.or}{.u32,.u64,.s32,.b32,.s64}{.trap,.clamp,.zero}",
        "[l, {r}], T",
    ),
    ("istypep{.texref,.samplerref,.surfref}", "p, l"),
    // Barriers and fences.
    ("{bar,barrier}{,.cta}.sync{,.aligned}", "0"),
    ("{bar,barrier}{,.cta}{.sync,.arrive}{,.aligned}", "0, 64"),
    ("{bar,barrier}{,.cta}.red{,.aligned}.popc.u32", "r, 0, p"),
    (
        "{bar,barrier}{,.cta}.red{,.aligned}{.and,.or}.pred",
        "p, 0, p",
    ),
    ("bar.warp.sync", "r"),
    ("barrier.cluster.arrive{,.release,.relaxed}{,.aligned}", ""),
    ("barrier.cluster.wait{,.acquire}{,.aligned}", ""),
    (
        "fence{,.sc,.acq_rel,.acquire,.release}{.cta,.cluster,.gpu,.sys}",
        "",
    ),
    ("fence.acquire.sync_restrict::shared::cluster.cluster", ""),
    ("fence.release.sync_restrict::shared::cta.cluster", ""),
    ("fence.mbarrier_init.release{.cluster,.cta}", ""),
    (
        "fence.proxy{.alias,.async,.async.global,.async.shared::cta,.async.shared::cluster,.async::generic}",
        "",
    ),
    (
        "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster",
        "",
    ),
    (
        "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster",
        "",
    ),
    (
        "fence.proxy.tensormap::generic.release{.cta,.cluster,.gpu,.sys}",
        "",
    ),
    (
        "fence.proxy.tensormap::generic.acquire{.cta,.cluster,.gpu,.sys}",
        "[l], 128",
    ),
    ("membar{.cta,.gl,.sys}", ""),
    ("membar.proxy{.alias,.async}", ""),
    // Atomics.
    (
        "atom{,.relaxed,.acq_rel}{,.cta,.cluster,.gpu,.sys}{,.global,.shared,.shared::cluster}{.add,.inc,.dec,.min,.max,.and,.or,.xor,.exch}{.b16,.b32,.b64,.b128,.u32,.u64,.s32,.s64,.f32,.f64,.f32x2}",
        "T, [l], T",
    ),
    (
        "atom{,.acquire,.release}{,.gpu,.sys}{,.global,.shared::cta}.cas{.b16,.b32,.b64,.b128,.u32,.u64,.s32}",
        "T, [l], T, T",
    ),
    (
        "atom{,.relaxed}{,.gpu}{,.global,.shared}{.add,.min,.max}{,.noftz}{.f16,.f16x2,.bf16,.bf16x2}",
        "T, [l], T",
    ),
    (
        "atom{,.relaxed}{,.gpu}{,.global,.shared}{.add,.min,.max}{,.noftz}{.v2,.v4,.v8}{.f16,.f16x2,.bf16,.bf16x2,.f32}",
        "V, [l], V",
    ),
    (
        "atom{,.global}.add.L2::cache_hint{.u32,.f32}",
        "T, [l], T, l",
    ),
    (
        "red{,.relaxed,.release}{,.cta,.cluster,.gpu,.sys}{,.global,.shared,.shared::cluster}{.add,.inc,.dec,.min,.max,.and,.or,.xor}{.b32,.b64,.u32,.u64,.s32,.s64,.f32,.f64}",
        "[l], T",
    ),
    (
        "red{,.relaxed}{,.gpu}{,.global,.shared}{.add,.min,.max}{,.noftz}{.f16,.f16x2,.bf16,.bf16x2}",
        "[l], T",
    ),
    (
        "red{,.relaxed}{,.gpu}{,.global,.shared}{.add,.min,.max}{,.noftz}{.v2,.v4,.v8}{.f16,.f16x2,.bf16,.bf16x2,.f32}",
        "[l], V",
    ),
    ("red{,.global}.add.L2::cache_hint{.u32,.f32}", "[l], T, l"),
    // Warps.
    ("vote{.sync,}{.all,.any,.uni}.pred", "p, p, r"),
    ("vote.sync.ballot.b32", "r, p, r"),
    ("match{.any,.all}.sync{.b32,.b64}", "r, T, r"),
    ("activemask.b32", "r"),
    (
        "redux.sync{.add,.min,.max,.and,.or,.xor}{,.abs}{,.NaN}{.u32,.s32,.b32,.f32}",
        "r, r, r",
    ),
    ("shfl.sync{.up,.down,.bfly,.idx}.b32", "r|p, r, r, r, r"),
    ("elect.sync", "r|p, r"),
    ("griddepcontrol{.launch_dependents,.wait}", ""),
    // mbarriers.
    ("mbarrier.init{,.shared,.shared::cta}.b64", "[l], r"),
    ("mbarrier.inval{,.shared,.shared::cta}.b64", "[l]"),
    (
        "mbarrier{.expect_tx,.complete_tx}{,.relaxed.cta,.relaxed.cluster}{,.shared,.shared::cta,.shared::cluster}.b64",
        "[l], r",
    ),
    (
        "mbarrier{.arrive,.arrive_drop}{,.release.cta,.release.cluster,.relaxed.cta,.relaxed.cluster}{,.shared,.shared::cta}.b64",
        "l, [l]",
    ),
    (
        "mbarrier{.arrive,.arrive_drop}{,.release.cta,.relaxed.cluster}{,.shared}.b64",
        "l, [l], r",
    ),
    (
        "mbarrier{.arrive,.arrive_drop}.expect_tx{,.release.cta,.release.cluster,.relaxed.cta,.relaxed.cluster}{,.shared,.shared::cta}.b64",
        "l, [l], r",
    ),
    (
        "mbarrier{.arrive,.arrive_drop}{,.expect_tx}{,.release.cluster,.relaxed.cluster}{.shared::cluster}.b64",
        "_, [l], r",
    ),
    (
        "mbarrier{.arrive,.arrive_drop}.noComplete{,.release.cta}{,.shared}.b64",
        "l, [l], r",
    ),
    (
        "mbarrier{.test_wait,.try_wait}{,.acquire.cta,.acquire.cluster,.relaxed.cta,.relaxed.cluster}{,.shared,.shared::cta}.b64",
        "p, [l], l",
    ),
    (
        "mbarrier{.test_wait,.try_wait}.parity{,.acquire.cta,.relaxed.cluster}{,.shared,.shared::cta}.b64",
        "p, [l], r",
    ),
    ("mbarrier.pending_count.b64", "r, l"),
    (
        "clusterlaunchcontrol.try_cancel.async{,.shared::cta}.mbarrier::complete_tx::bytes{,.multicast::cluster::all}.b128",
        "[r], [r]",
    ),
    (
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128",
        "p, q",
    ),
    (
        "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128",
        "r, q",
    ),
    (
        "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128",
        "{r, r, r, r}, q",
    ),
    // Matrices.
    (
        "ldmatrix.sync.aligned.m8n8.x1{,.trans}{.shared,.shared::cta}.b16",
        "{r}, [r]",
    ),
    (
        "ldmatrix.sync.aligned.m8n8.x4{,.trans}{,.shared,.shared::cta}.b16",
        "{r, r, r, r}, [l]",
    ),
    (
        "ldmatrix.sync.aligned{.m16n16,.m8n16}.x1{,.trans}{,.shared}{.b8,.b8x16.b6x16_p32,.b8x16.b4x16_p64}",
        "{r}, [l]",
    ),
    (
        "ldmatrix.sync.aligned{.m16n16,.m8n16}.x2{,.trans}{,.shared}{.b8,.b8x16.b6x16_p32,.b8x16.b4x16_p64}",
        "{r, r}, [l]",
    ),
    (
        "ldmatrix.sync.aligned{.m16n16,.m8n16}.x2{,.trans}{,.shared}{.b8,.b8x16.b6x16_p32,.b8x16.b4x16_p64}",
        "{r, r, r, r}, [l]",
    ),
    (
        "stmatrix.sync.aligned.m8n8.x1{,.trans}{,.shared,.shared::cta}.b16",
        "[l], {r}",
    ),
    (
        "stmatrix.sync.aligned{.m8n8,.m16n8}.x2{,.trans}{,.shared}{.b16,.b8}",
        "[l], {r, r}",
    ),
    ("wgmma.fence.sync.aligned", ""),
    ("wgmma.commit_group.sync.aligned", ""),
    ("wgmma.wait_group.sync.aligned", "0"),
    // Video.
    (
        "{vadd,vsub,vabsdiff,vmin,vmax}{.u32,.s32}{.u32,.s32}{.u32,.s32}{,.sat}",
        "r, r, r",
    ),
    (
        "{vadd,vsub,vabsdiff,vmin,vmax}{.u32,.s32}{.u32,.s32}{.u32,.s32}{,.sat}{.add,.min,.max}",
        "r, r, r, r",
    ),
    (
        "{vshl,vshr}{.u32,.s32}.u32.u32{,.sat}{.clamp,.wrap}{,.add}",
        "r, r, r#",
    ),
    (
        "vmad{.u32,.s32}{.u32,.s32}{.u32,.s32}{,.sat}{,.shr7,.shr15}",
        "r, r, r, r",
    ),
    (
        "vset{.u32,.s32}{.u32,.s32}{.eq,.ne,.lt,.le,.gt,.ge}",
        "r, r, r",
    ),
    (
        "{vadd2,vsub2,vavrg2,vabsdiff2,vmin2,vmax2,vadd4,vsub4,vavrg4,vabsdiff4,vmin4,vmax4}{.u32,.s32}{.u32,.s32}{.u32,.s32}{,.sat,.add}",
        "r, r, r, r",
    ),
    (
        "{vset2,vset4}{.u32,.s32}{.u32,.s32}{.eq,.lt}{,.add}",
        "r, r, r, r",
    ),
    // The rest.
    ("nanosleep.u32", "r"),
    ("pmevent", "1"),
    ("pmevent.mask", "3"),
    ("{trap,brkpt,exit,ret}", ""),
    ("bra{,.uni}", "E"),
    ("setmaxnreg{.inc,.dec}.sync.aligned.u32", "40"),
    ("alloca{.u32,.u64}", "T, T"),
    ("stacksave{.u32,.u64}", "T"),
    ("stackrestore{.u32,.u64}", "T"),
];

/// The types, and the bits in their registers.
const TYPES: &[(&str, u32)] = &[
    ("pred", 1),
    ("b8", 8),
    ("u8", 16),
    ("s8", 16),
    ("b16", 16),
    ("u16", 16),
    ("s16", 16),
    ("b32", 32),
    ("u32", 32),
    ("s32", 32),
    ("b64", 64),
    ("u64", 64),
    ("s64", 64),
    ("b128", 128),
    ("f16", 16),
    ("bf16", 16),
    ("f32", 32),
    ("f64", 64),
    ("f16x2", 32),
    ("bf16x2", 32),
    ("f32x2", 64),
    ("u16x2", 32),
    ("s16x2", 32),
    ("u8x4", 32),
    ("s8x4", 32),
    ("tf32", 32),
    ("e4m3x2", 16),
    ("e5m2x2", 16),
    ("e2m3x2", 16),
    ("e3m2x2", 16),
    ("e2m1x2", 8),
    ("ue8m0x2", 16),
    ("s2f6x2", 16),
    ("ue5m3x2", 16),
    ("e4m3x4", 32),
    ("e5m2x4", 32),
    ("e2m3x4", 32),
    ("e3m2x4", 32),
    ("e2m1x4", 16),
    ("tf32x2", 64),
];

/// Returns every form of the table and of the matrix instructions.
///
/// A name that is tried with several operands has a form for each, one after the other.
pub(super) fn forms() -> Vec<InstructionForm> {
    rows()
        .into_iter()
        .flatten()
        .chain(matrices::products())
        .collect()
}

/// Returns the forms of each row of the table, without matrix instructions.
pub(super) fn rows() -> Vec<Vec<InstructionForm>> {
    let row = |(pattern, operands): &(&str, &str)| {
        expand(pattern)
            .into_iter()
            .map(|name| form(name, operands))
            .collect()
    };
    PATTERNS.iter().map(row).collect()
}

/// Returns the names that a pattern stands for.
fn expand(pattern: &str) -> Vec<String> {
    let Some((head, rest)) = pattern.split_once('{') else {
        return vec![pattern.to_owned()];
    };
    let (choices, tail) = rest.split_once('}').unwrap_or((rest, ""));
    let tails = expand(tail);
    choices
        .split(',')
        .flat_map(|c| tails.iter().map(move |t| format!("{head}{c}{t}")))
        .collect()
}

/// Returns a name with its operands.
fn form(name: String, operands: &str) -> InstructionForm {
    let line = format!("{name} {};", written(&name, operands));
    InstructionForm { name, line }
}

/// Replaces the letters in `operands` by registers, all different.
fn written(name: &str, operands: &str) -> String {
    let sizes: Vec<u32> = name.split('.').filter_map(size).collect();
    let first = sizes.first().copied().unwrap_or(32);
    let last = sizes.last().copied().unwrap_or(32);

    // `setp` and similar instructions take another operand if they combine their result with it.
    let combined = [".and.", ".or.", ".xor.", ".add"]
        .iter()
        .any(|c| name.contains(c));
    let operands = operands.replace(
        '#',
        if !combined {
            ""
        } else if name.starts_with('v') {
            ", r"
        } else {
            ", p"
        },
    );
    let mut next = 0;
    let mut register = |size: u32| {
        next += 1;
        format!("%{}{next}", letter(size))
    };
    let mut out = String::new();
    let mut words = operands.as_str();
    while !words.is_empty() {
        let end = words
            .find(|c: char| !c.is_alphanumeric())
            .unwrap_or(words.len())
            .max(1);
        let (word, rest) = words.split_at(end);
        words = rest;
        out += &match word {
            "T" => register(last),
            "D" => register(first),
            "S" => register(sizes.get(1).copied().unwrap_or(32)),
            "W" => register(2 * last),
            "V" => vector(name, last, &mut register),
            "V4" => vector(name, first, &mut register),
            "X" => list((0..dimensions(name)).map(|_| register(32)).collect()),
            "Y" => list((2..dimensions(name)).map(|_| register(16)).collect()),
            "p" => register(1),
            "b" => register(8),
            "h" => register(16),
            "r" => register(32),
            "l" => register(64),
            "q" => register(128),
            other => other.to_owned(),
        };
    }

    out
}

/// Returns the letter in the names of registers of a size.
fn letter(size: u32) -> char {
    match size {
        1 => 'p',
        8 => 'b',
        16 => 'h',
        32 => 'r',
        64 => 'l',
        _ => 'q',
    }
}

/// Returns the size of a type's registers.
fn size(suffix: &str) -> Option<u32> {
    TYPES
        .iter()
        .find(|(ty, _)| *ty == suffix)
        .map(|(_, size)| *size)
}

/// Returns a register, or a list if the name has a suffix such as `.v4`.
fn vector(name: &str, size: u32, register: &mut impl FnMut(u32) -> String) -> String {
    let count = [".v2.", ".v4.", ".v8."]
        .iter()
        .position(|v| name.contains(v))
        .map_or(1, |i| 2 << i);
    match count {
        1 => register(size.max(16)),
        n => list((0..n).map(|_| register(size)).collect()),
    }
}

/// Returns the number of dimensions in a name such as `.2d`.
fn dimensions(name: &str) -> usize {
    (1..=5)
        .find(|n| name.contains(&format!(".{n}d")))
        .unwrap_or(1)
}
