//! Control instructions other than branches.
//!
//! Branches have no rows, because the printer derives them from the tree of `If` and `Loop`
//! statements.

use super::op::*;

#[rustfmt::skip] // one row a line
table! {
    /// Control flow and miscellaneous instructions.
    CONTROL, "Control Flow and Miscellaneous Instructions";
    TRAP      = op("trap",          &[], NULLARY, Effect::Control, "stop the kernel with an error");
    NANOSLEEP = op("nanosleep.u32", &[], form(&[], &[Is(U32)]), Effect::Control, "suspend the thread for about a nanoseconds").needs(70, 6, 3);
    SETMAXNREG_INC = op("setmaxnreg.inc.sync.aligned.u32", &[], form(&[], &[Lit(24, 256)]), Effect::Control, "wait for registers until each thread has a of them").needs(90, 8, 0).specific().together(Level::Warpgroup);
    SETMAXNREG_DEC = op("setmaxnreg.dec.sync.aligned.u32", &[], form(&[], &[Lit(24, 256)]), Effect::Control, "release registers until each thread has a of them").needs(90, 8, 0).specific().together(Level::Warpgroup);
}
