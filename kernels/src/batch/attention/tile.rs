//! Tiles of keys or values in shared memory: 16 [rows](crate::shared::shared_rows) that a warp
//! copies and `ldmatrix` reads.

use super::definition::TILE;
use crate::shared::divided::divided;
use crate::shared::shared_rows::SharedRows;
use ptx_gen::*;

/// The share of a lane in copying tiles: one unit of every few rows.
pub(super) struct Copier<'k> {
    k: Builder<'k>,
    rows: SharedRows,
    /// The lane's first row.
    pub(super) row: U32<'k>,
    /// The unit that the lane copies.
    pub(super) unit: U32<'k>,
    /// The offsets of the unit in the lane's first rows, until the permutation of units repeats.
    places: Vec<U32<'k>>,
}

impl<'k> Copier<'k> {
    /// Divides the units of a tile among the lanes.
    pub(super) fn new(k: Builder<'k>, rows: SharedRows) -> Self {
        let (row, unit) = divided(k.lane(), rows.units);
        let step = 32 / rows.units;
        let different = if rows.swizzled { (8 / step).max(1) } else { 1 };
        let places = (0..different)
            .map(|i| rows.place(row + i * step, unit))
            .collect();
        Copier {
            k,
            rows,
            row,
            unit,
            places,
        }
    }

    /// Copies a tile. `from` returns the address of the lane's unit in the row that is a number of
    /// rows after the lane's first row.
    pub(super) fn copy(
        &self,
        to: Ptr<'k, u8, Shared>,
        from: impl Fn(u32) -> Ptr<'k, f16, ReadOnly>,
    ) {
        let step = 32 / self.rows.units;
        let period = self.places.len() as u32;
        for i in 0..TILE.div_ceil(step) {
            let further = i * step;
            let to = to
                .row(self.places[(i % period) as usize], 1)
                .at(i / period * period * step * self.rows.bytes);
            let rows = step.min(TILE - further);
            let copy = || from(further).copy16(to.cast());
            if rows * self.rows.units == 32 {
                copy();
            } else {
                self.k.when(self.row.lt(rows), copy);
            }
        }
    }
}

/// The addresses that a lane passes to `ldmatrix` for a tile: rows 0 to 7 of a pair of units, then
/// rows 8 to 15.
pub(super) struct Matrices<'k> {
    swizzled: bool,
    /// The addresses of the first pairs. Later pairs are at a constant offset from them.
    first: Vec<Ptr<'k, f16, Shared>>,
}

impl<'k> Matrices<'k> {
    /// Returns the lane's offset in any tile.
    pub(super) fn place(k: Builder<'k>, rows: SharedRows) -> U32<'k> {
        let lane = k.lane();
        rows.place((lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1)
    }

    /// Creates the addresses for the tile at `tile`.
    pub(super) fn new(rows: SharedRows, tile: Ptr<'k, u8, Shared>, place: U32<'k>) -> Self {
        let pairs = if rows.swizzled { 4 } else { 1 };
        let first = |pair: u32| tile.row(place ^ (32 * pair), 1).cast();
        Matrices {
            swizzled: rows.swizzled,
            first: (0..pairs).map(first).collect(),
        }
    }

    /// Returns the address in a pair of units.
    pub(super) fn at(&self, pair: u32) -> Ptr<'k, f16, Shared> {
        if self.swizzled {
            self.first[pair as usize % 4].at(pair / 4 * 64)
        } else {
            self.first[0].at(pair * 16)
        }
    }
}
