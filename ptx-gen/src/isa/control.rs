//! Control flow that is not in the tree, and the odd ones.
//!
//! Branches are printed from the tree of `If` and `Loop`: they have no rows.

use super::op::*;

#[rustfmt::skip] // one row a line
table! {
    /// Control flow and miscellaneous.
    CONTROL, "Control Flow and Miscellaneous Instructions";
    TRAP      = op("trap",          &[], NULLARY, Effect::Control, "stop the kernel with an error");
    NANOSLEEP = op("nanosleep.u32", &[], form(&[], &[Is(U32)]), Effect::Control, "sleep for about this many nanoseconds").needs(70, 6, 3);
    SETMAXNREG_INC = op("setmaxnreg.inc.sync.aligned.u32", &[], form(&[], &[Lit(24, 256)]), Effect::Control, "take registers, until each thread has this many").needs(90, 8, 0).specific().together(Level::Warpgroup);
    SETMAXNREG_DEC = op("setmaxnreg.dec.sync.aligned.u32", &[], form(&[], &[Lit(24, 256)]), Effect::Control, "give registers back, until each thread has this many").needs(90, 8, 0).specific().together(Level::Warpgroup);
}
