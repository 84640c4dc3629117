//! Video instructions.

use super::case::Exact;
use super::scalar::{Form, Table, listed};

const FORMS: &Table = &[
    (
        "{vadd,vsub,vabsdiff,vmin,vmax}{.u32,.s32}{.u32,.s32}{.u32,.s32}{,.sat}",
        "b32 = b32 b32",
        "",
    ),
    (
        "{vadd,vsub,vabsdiff,vmin,vmax}{.u32,.s32}{.u32,.s32}{.u32,.s32}{,.sat}{.add,.min,.max}",
        "b32 = b32 b32 b32",
        "",
    ),
    (
        "{vadd,vsub,vabsdiff,vmin,vmax}{.u32,.s32}{.u32,.s32}{.u32,.s32}.sat.add",
        "b32 = b32 b32 b32",
        "%d, %a.h1, %b.b2, %c",
    ),
    (
        "{vadd,vsub,vabsdiff,vmin,vmax}{.u32.u32.u32,.s32.s32.s32}",
        "b32 = b32 b32 b32",
        "%d.b1, %a.h0, %b.h1, %c",
    ),
    (
        "{vshl,vshr}{.u32,.s32}{.u32,.s32}.u32{,.sat}{.clamp,.wrap}",
        "b32 = b32 b32",
        "",
    ),
    (
        "{vshl,vshr}{.u32,.s32}{.u32,.s32}.u32{,.sat}{.clamp,.wrap}{.add,.max}",
        "b32 = b32 b32 b32",
        "",
    ),
    (
        "vmad{.u32,.s32}{.u32,.s32}{.u32,.s32}{,.sat}{,.shr7,.shr15}",
        "b32 = b32 b32 b32",
        "",
    ),
    (
        "vmad{.u32.u32.u32,.s32.s32.s32,.s32.u32.s32}.po.sat.shr15",
        "b32 = b32 b32 b32",
        "%d, %a.h0, %b.h1, %c",
    ),
    (
        "vset{.u32,.s32}{.u32,.s32}{.eq,.ne,.lt,.le,.gt,.ge}",
        "b32 = b32 b32",
        "",
    ),
    (
        "{vadd2,vsub2,vavrg2,vabsdiff2,vmin2,vmax2}{.u32,.s32}{.u32,.s32}{.u32,.s32}{,.sat,.add}",
        "b32 = b32 b32 b32",
        "",
    ),
    (
        "{vadd4,vsub4,vavrg4,vabsdiff4,vmin4,vmax4}{.u32,.s32}{.u32,.s32}{.u32,.s32}{,.sat,.add}",
        "b32 = b32 b32 b32",
        "",
    ),
    (
        "{vset2,vset4}{.u32,.s32}{.u32,.s32}{.eq,.lt,.ge}{,.add}",
        "b32 = b32 b32 b32",
        "",
    ),
    (
        "vmax4{.u32.u32.u32,.s32.s32.s32,.s32.u32.s32,.u32.s32.u32}",
        "b32 = b32 b32 b32",
        "%d.b20, %a.b7310, %b.b0246, %c",
    ),
    (
        "vadd2{.u32.u32.u32,.s32.s32.s32,.s32.u32.s32}.sat",
        "b32 = b32 b32 b32",
        "%d.h1, %a.h03, %b.h21, %c",
    ),
];

pub(crate) fn forms() -> Vec<Form> {
    listed(FORMS, Exact::Bits)
}
