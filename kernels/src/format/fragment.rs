//! How the lanes of a warp divide a row of weights.
//!
//! The lanes divide a block among them, and each lane takes the same *fragment* of every block it visits, so
//! everything that depends on the fragment (offsets, masks) is computed once. A fragment gives [`Group`]s: weights
//! `scale * q + offset` with individual codes `q` and common scale and offset. Both the matrix-vector product and the
//! copy of a row are built from the groups.

use super::Format;
use ptx_gen::*;

/// The bytes of a matrix.
pub(crate) type Bytes<'k> = Ptr<'k, u8, ReadOnly>;

/// How the lanes of a warp divide a format's rows. All sizes except the bytes are powers of two.
pub(crate) struct LaneSplit {
    /// Weights in a block: ggml's block size, or 4 for unblocked formats.
    pub(crate) len: u32,
    /// Bytes of a block.
    pub(crate) bytes: u32,
    /// Lanes that share a block.
    pub(crate) lanes: u32,
    /// The `float4`s of a fragment: the offset of each within the block.
    pub(crate) float4s: &'static [u32],
}

impl LaneSplit {
    /// The division of `format`.
    pub(crate) fn of(format: Format) -> LaneSplit {
        format.of().split()
    }

    /// The number of blocks in `n` weights.
    pub(crate) fn blocks<'k>(&self, n: U32<'k>) -> U32<'k> {
        n >> self.len.ilog2()
    }

    /// Blocks that a warp processes at once.
    pub(crate) fn blocks_of_warp(&self) -> u32 {
        32 / self.lanes
    }

    /// The block of `thread`, among the blocks that consecutive threads process at once.
    pub(crate) fn block<'k>(&self, thread: U32<'k>) -> U32<'k> {
        thread >> self.lanes.ilog2()
    }
}

/// The part of a block that one lane reads.
pub(crate) trait Fragment<'k> {
    /// Its first weight, relative to the block's first.
    fn first(&self) -> U32<'k>;
    /// Where its bytes are.
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>>;
    /// Loads its words, at these addresses plus `bytes`.
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>>;
    /// Its weights, in the order of [`LaneSplit::float4s`].
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>>;
}

/// Weights `scale * q + offset`; a missing scale is 1, a missing offset is 0.
pub(crate) struct Group<'k> {
    pub(crate) q: Vec<F32<'k>>,
    pub(crate) scale: Option<F32<'k>>,
    pub(crate) offset: Option<F32<'k>>,
}

/// Four unquantized weights.
pub(super) struct Unquantized<'k, L, U> {
    pub(super) first: U32<'k>,
    pub(super) load: L,
    pub(super) unpack: U,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_make_up_whole_blocks() {
        for format in Format::ALL {
            let LaneSplit {
                len,
                bytes,
                lanes,
                float4s,
            } = LaneSplit::of(format);
            assert_eq!(len % format.block_len(), 0, "{}", format.name());
            assert_eq!(
                format.row_bytes(len as usize),
                bytes as usize,
                "{}",
                format.name()
            );
            assert_eq!(lanes * 4 * float4s.len() as u32, len, "{}", format.name());
        }
    }
}
