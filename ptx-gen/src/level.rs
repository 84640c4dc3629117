//! Groups of threads: the scope of a uniform value, and of an instruction that threads execute
//! together.

use std::fmt;

/// The largest group of threads in which a value is uniform, or that must execute an instruction
/// together.
///
/// Levels are ordered from the largest group to the smallest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// All threads of the block.
    Block,
    /// Four consecutive warps, of which the first has an index divisible by four.
    Warpgroup,
    /// The 32 lanes of a warp.
    Warp,
    /// A single lane. A value of this level may differ from lane to lane.
    Lane,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["block", "warpgroup", "warp", "lane"][*self as usize])
    }
}
