//! Rows of 16-bit numbers in shared memory, of which `ldmatrix` reads columns of eight rows without bank conflicts.
//!
//! A row is cut into units of 16 bytes; eight rows of a unit must lie in different banks. If a row is a multiple of eight
//! units, unit `u` of row `r` is at `u ^ (r mod 8)`. Else rows have a stride of an odd number of units.

use crate::pipeline::attention::divided;
use ptx_gen::*;

/// Elements of a unit of 16 bytes.
const UNIT: u32 = 8;

/// How rows lie.
#[derive(Clone, Copy)]
pub(crate) struct SharedRows {
    /// The stride.
    pub(crate) bytes: u32,
    /// Units of a row that hold numbers.
    pub(crate) units: u32,
    /// Whether units are permuted.
    pub(crate) swizzled: bool,
}

impl SharedRows {
    /// Rows of so many elements, a multiple of 16.
    pub(crate) const fn of(elements: u32) -> SharedRows {
        let units = elements / UNIT;
        let swizzled = units.is_multiple_of(8);
        SharedRows {
            bytes: if swizzled {
                16 * units
            } else {
                16 * (units | 1)
            },
            units,
            swizzled,
        }
    }

    /// Where a unit begins, in bytes.
    pub(crate) fn place<'k>(self, row: U32<'k>, unit: U32<'k>) -> U32<'k> {
        let unit = if self.swizzled {
            unit ^ (row & 7)
        } else {
            unit
        };
        row * self.bytes + (unit << 4)
    }
}

/// What a lane tells `ldmatrix`: its own row and unit of every pair of units.
pub(crate) struct Matrices<'k> {
    rows: SharedRows,
    /// Of the first pairs; with an offset, of all.
    first: Vec<Ptr<'k, u8, Shared>>,
}

impl<'k> Matrices<'k> {
    /// From `first` on, where the lane's row and unit, 0 or 1, are at `place`.
    pub(crate) fn new(rows: SharedRows, first: Ptr<'k, u8, Shared>, place: U32<'k>) -> Self {
        let pairs = if rows.swizzled { 4 } else { 1 };
        Matrices {
            rows,
            first: (0..pairs)
                .map(|pair| first.row(place ^ (32 * pair), 1))
                .collect(),
        }
    }

    /// Row `row` further, a multiple of 8, of pair of units `pair`.
    pub(crate) fn at(&self, row: u32, pair: u32) -> Ptr<'k, f16, Shared> {
        let n = self.first.len() as u32;
        self.first[(pair % n) as usize]
            .at(row * self.rows.bytes + pair / n * n * 32)
            .cast()
    }
}

/// A thread's part of copying rows: unit `unit` of rows `row`, `row + step`, ...
pub(crate) struct Copier<'k> {
    k: Builder<'k>,
    rows: SharedRows,
    threads: u32,
    row: U32<'k>,
    /// The thread's unit.
    pub(crate) unit: U32<'k>,
    step: u32,
    /// Where the first is.
    first: U32<'k>,
}

impl<'k> Copier<'k> {
    /// Of the block's threads, `threads` in number.
    pub(crate) fn new(k: Builder<'k>, rows: SharedRows, threads: u32) -> Self {
        let (row, unit) = divided(k.tid(), rows.units);
        Copier {
            k,
            rows,
            threads,
            row,
            unit,
            step: threads / rows.units,
            first: rows.place(row, unit),
        }
    }

    /// Copies `count` rows from where `from` says a row's unit is: the thread's first row, and how much further.
    pub(crate) fn copy<T: Elem>(
        &self,
        count: u32,
        to: Ptr<'k, u8, Shared>,
        from: impl Fn(U32<'k>, u32) -> Ptr<'k, T, ReadOnly>,
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
        self.step * self.rows.units == self.threads
    }

    fn place(&self, to: Ptr<'k, u8, Shared>, further: u32) -> Ptr<'k, u8, Shared> {
        match self.rows.swizzled && !further.is_multiple_of(8) {
            true => to.row(self.rows.place(self.row + further, self.unit), 1),
            false => to.row(self.first, 1).at(further * self.rows.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_rows_of_a_unit_are_in_different_banks() {
        for elements in (16..=256).step_by(16) {
            let rows = SharedRows::of(elements);
            let bank = |row: u32, unit: u32| {
                let unit = if rows.swizzled {
                    unit ^ (row & 7)
                } else {
                    unit
                };
                (row * rows.bytes / 16 + unit) % 8
            };
            for unit in 0..rows.units {
                let mut banks: Vec<u32> = (0..8).map(|row| bank(row, unit)).collect();
                banks.sort_unstable();
                assert_eq!(banks, [0, 1, 2, 3, 4, 5, 6, 7], "{elements} {unit}");
            }
        }
    }
}
