//! The copy of a tile to shared memory, by a block of one warp.

use ptx_gen::*;

/// Copies `bytes` bytes, 16 at a time per lane, and publishes them to the warp.
pub(super) fn load_tile<'k>(
    k: Builder<'k>,
    from: Ptr<'k, u8, ReadOnly>,
    memory: Ptr<'k, u8, Shared>,
    bytes: u32,
) {
    k.for_each(k.lane(), bytes / 16, 32, |i| {
        let to = memory.row(i, 16).cast::<u32>();
        let words = from.row(i, 16).cast::<u32>().ld4();
        to.st4(words);
    });
    // The block is one warp, so a barrier of the warp publishes the tile.
    k.warp_barrier();
}
