//! How far values are the same, and how far threads run together.

use std::fmt;

/// How far a value is the same, or how far threads run together: over the block, four warps, a warp, or one lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// The same in every thread of the block.
    Block,
    /// The same in each warpgroup: four warps, the first of a number that four divides.
    Warpgroup,
    /// The same in the lanes of each warp.
    Warp,
    /// Each lane has its own.
    Lane,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["block", "warpgroup", "warp", "lane"][*self as usize])
    }
}
