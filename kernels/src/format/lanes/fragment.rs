//! The division of a row of weights among the lanes of a warp.
//!
//! The lanes divide a block among them. Each lane takes the same *fragment* of every block it
//! visits, so all values that depend on the fragment (offsets, masks) are computed once. A fragment
//! yields [`Group`]s: weights `scale * q + offset` with individual codes `q` and a common scale and
//! offset. The GEMV and the copy of a row are both built from the groups.

use ptx_gen::*;

/// The bytes of a matrix.
pub(crate) type Bytes<'k> = Ptr<'k, u8, ReadOnly>;

/// The division of a format's rows among the lanes of a warp. All sizes except the bytes are powers
/// of two.
pub(crate) struct LaneSplit {
    /// The number of weights of a block: ggml's block size, or 4 for formats without blocks.
    pub(crate) len: u32,
    /// The bytes of a block.
    pub(crate) bytes: u32,
    /// The number of lanes that share a block.
    pub(crate) lanes: u32,
    /// The offsets of a fragment's `float4`s within the block.
    pub(crate) float4s: &'static [u32],
}

impl LaneSplit {
    /// Returns the number of blocks in `n` weights.
    pub(crate) fn blocks<'k>(&self, n: U32<'k>) -> U32<'k> {
        n >> self.len.ilog2()
    }

    /// Returns the number of blocks that a warp processes at once.
    pub(crate) fn blocks_of_warp(&self) -> u32 {
        32 / self.lanes
    }

    /// Returns the block of `thread`, among the blocks that consecutive threads process at once.
    pub(crate) fn block<'k>(&self, thread: U32<'k>) -> U32<'k> {
        thread >> self.lanes.ilog2()
    }
}

/// The part of a block that one lane reads.
pub(crate) trait Fragment<'k> {
    /// Returns the index of the first weight in the block.
    fn first(&self) -> U32<'k>;
    /// Returns the addresses of the fragment's bytes in a block.
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>>;
    /// Loads the fragment's words at these addresses plus `bytes`.
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>>;
    /// Returns the fragment's weights, in the order of [`LaneSplit::float4s`].
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>>;
}

/// Weights `scale * q + offset`. A missing scale is 1, and a missing offset is 0.
pub(crate) struct Group<'k> {
    pub(crate) q: Vec<F32<'k>>,
    pub(crate) scale: Option<F32<'k>>,
    pub(crate) offset: Option<F32<'k>>,
}

/// A fragment of four unquantized weights.
pub(crate) struct Unquantized<'k, L, U> {
    pub(crate) first: U32<'k>,
    pub(crate) load: L,
    pub(crate) unpack: U,
}

impl<'k, L, U> Fragment<'k> for Unquantized<'k, L, U>
where
    L: Fn(Bytes<'k>) -> Vec<U32<'k>>,
    U: Fn(&[U32<'k>]) -> Vec<F32<'k>>,
{
    fn first(&self) -> U32<'k> {
        self.first
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        vec![block]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        (self.load)(addresses[0].at(bytes))
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        vec![Group {
            q: (self.unpack)(words),
            scale: None,
            offset: None,
        }]
    }
}
