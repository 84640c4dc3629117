//! A ring of tiles in shared memory. Each tile has a full and an empty mbarrier.

use super::definition::{GROUPS, TILES};
use ptx_gen::*;

/// The ring of tiles.
pub(super) struct Ring<'k> {
    full: Ptr<'k, u64, Shared>,
    empty: Ptr<'k, u64, Shared>,
    first: Ptr<'k, u8, Shared>,
    bytes: u32,
}

impl<'k> Ring<'k> {
    /// Creates a ring of tiles of `bytes` bytes at `first`.
    pub(super) fn new(k: Builder<'k>, first: Ptr<'k, u8, Shared>, bytes: u32) -> Self {
        Ring {
            full: k.shared("full", TILES),
            empty: k.shared("empty", TILES),
            first,
            bytes,
        }
    }

    /// Initializes the barriers, in one thread. Each warp that copies or multiplies arrives once
    /// per phase.
    pub(super) fn init(&self) {
        for tile in 0..TILES {
            self.full.at(tile).mbarrier().init(4);
            self.empty.at(tile).mbarrier().init(4 * GROUPS);
        }
    }

    /// Returns the full barrier of a tile.
    pub(super) fn full(&self, tile: U32<'k>) -> Mbarrier<'k> {
        self.full.at(tile).mbarrier()
    }

    /// Returns the empty barrier of a tile.
    pub(super) fn empty(&self, tile: U32<'k>) -> Mbarrier<'k> {
        self.empty.at(tile).mbarrier()
    }

    /// Returns the address of a tile.
    pub(super) fn tile(&self, tile: U32<'k>) -> Ptr<'k, u8, Shared> {
        self.first.row(tile, self.bytes)
    }
}

/// A position in the ring: a tile, and the parity of its phase.
pub(super) struct Cursor<'k> {
    pub(super) tile: Var<'k, u32>,
    pub(super) parity: Var<'k, u32>,
}

impl<'k> Cursor<'k> {
    /// Returns the position of the first tile.
    pub(super) fn start(k: Builder<'k>) -> Self {
        Cursor {
            tile: k.var(0),
            parity: k.var(0),
        }
    }

    /// Advances to the next tile. After the last tile comes the first one in the next phase.
    pub(super) fn advance(&mut self) {
        let next = self.tile.get() + 1;
        let wraps = next.eq(TILES);
        self.tile.set(wraps.select(0, next));
        let parity = self.parity.get();
        self.parity.set(wraps.select(parity ^ 1, parity));
    }
}
