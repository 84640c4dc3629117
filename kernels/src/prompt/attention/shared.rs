//! Queries, keys and values in shared memory: [rows](crate::shared_rows) that a block copies, and of which `ldmatrix` reads.

use crate::shared_rows::SharedRows;
use ptx_gen::*;

/// What a lane tells `ldmatrix`: its own row and unit of every pair of units.
pub(super) struct Matrices<'k> {
    rows: SharedRows,
    /// Of the first pairs; with an offset, of all.
    first: Vec<Ptr<'k, u8, Shared>>,
}

impl<'k> Matrices<'k> {
    /// From `first` on, where the lane's row and unit, 0 or 1, are at `place`.
    pub(super) fn new(rows: SharedRows, first: Ptr<'k, u8, Shared>, place: U32<'k>) -> Self {
        let pairs = if rows.swizzled { 4 } else { 1 };
        Matrices { rows, first: (0..pairs).map(|pair| first.row(place ^ (32 * pair), 1)).collect() }
    }

    /// Row `row` further, a multiple of 8, of pair of units `pair`.
    pub(super) fn at(&self, row: u32, pair: u32) -> Ptr<'k, f16, Shared> {
        let n = self.first.len() as u32;
        self.first[(pair % n) as usize].at(row * self.rows.bytes + pair / n * n * 32).cast()
    }
}

/// A thread's part of copying rows: unit `unit` of rows `row`, `row + step`, ...
pub(super) struct Copier<'k> {
    k: Builder<'k>,
    rows: SharedRows,
    row: U32<'k>,
    pub(super) unit: U32<'k>,
    step: u32,
    /// Where the first is.
    first: U32<'k>,
}

impl<'k> Copier<'k> {
    pub(super) fn new(k: Builder<'k>, rows: SharedRows, threads: u32) -> Self {
        let (row, unit) = crate::pipeline::attention::divided(k.tid(), rows.units);
        Copier { k, rows, row, unit, step: threads / rows.units, first: rows.place(row, unit) }
    }

    /// Copies `count` rows from where `from` says a row's unit is: the thread's first row, and how much further.
    pub(super) fn copy(
        &self,
        count: u32,
        to: Ptr<'k, u8, Shared>,
        from: impl Fn(U32<'k>, u32) -> Ptr<'k, f16, Read>,
    ) {
        for further in (0..count).step_by(self.step as usize) {
            let rows = self.step.min(count - further);
            let copy = || from(self.row, further).copy16(self.place(to, further).cast());
            // All threads have a row if units divide them.
            match rows * self.rows.units == self.step * self.rows.units && self.all() {
                true => copy(),
                false => _ = self.k.when(self.row.lt(rows), copy),
            }
        }
    }

    fn all(&self) -> bool {
        self.step * self.rows.units == 32 * super::WARPS
    }

    fn place(&self, to: Ptr<'k, u8, Shared>, further: u32) -> Ptr<'k, u8, Shared> {
        match self.rows.swizzled && !further.is_multiple_of(8) {
            true => to.row(self.rows.place(self.row + further, self.unit), 1),
            false => to.row(self.first, 1).at(further * self.rows.bytes),
        }
    }
}
