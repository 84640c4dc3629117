//! The division of a block of 256 weights among 16 lanes: a lane has four weights of each 32 in one
//! half of the block.

use crate::format::lanes::fragment::LaneSplit;
use ptx_gen::*;

/// Four consecutive weights of each 32 in half a block.
#[derive(Clone, Copy)]
pub(crate) struct FourOfEach32<'k> {
    /// The index of the half.
    pub(crate) half: U32<'k>,
    /// The index of the four weights in each 32.
    pub(crate) four: U32<'k>,
}

impl<'k> FourOfEach32<'k> {
    /// Returns the weights of a thread.
    pub(crate) fn of(thread: U32<'k>) -> Self {
        let lane = thread & 15;
        FourOfEach32 {
            half: lane >> 3,
            four: lane & 7,
        }
    }

    /// Returns the division of rows whose blocks have this number of bytes.
    pub(crate) const fn split(bytes: u32) -> LaneSplit {
        LaneSplit {
            len: 256,
            bytes,
            lanes: 16,
            float4s: &[0, 32, 64, 96],
        }
    }

    /// Returns the index of the first weight in the block.
    pub(crate) fn first(&self) -> U32<'k> {
        self.half.mad(128, self.four << 2)
    }
}
