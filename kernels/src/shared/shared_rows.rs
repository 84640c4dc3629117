//! Rows of 16-bit elements in shared memory that `ldmatrix` reads without bank conflicts.
//!
//! A row consists of units of 16 bytes. `ldmatrix` reads one unit of eight consecutive rows at a
//! time, so these eight units must lie in different banks. If a row has a multiple of eight units,
//! unit `u` of row `r` is stored at `u ^ (r mod 8)`. Otherwise rows have a stride of an odd number
//! of units.

use super::divided::divided;
use ptx_gen::*;

/// The number of elements of a unit of 16 bytes.
const UNIT: u32 = 8;

/// The layout of the rows.
#[derive(Clone, Copy)]
pub(crate) struct SharedRows {
    /// The distance between two rows, in bytes.
    pub(crate) bytes: u32,
    /// The number of units of a row that hold elements.
    pub(crate) units: u32,
    /// Whether the units of a row are permuted.
    pub(crate) swizzled: bool,
}

impl SharedRows {
    /// Returns the layout of rows of `elements` elements, a multiple of 16.
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

    /// Returns the offset of a unit in bytes.
    pub(crate) fn place<'k>(self, row: U32<'k>, unit: U32<'k>) -> U32<'k> {
        let unit = if self.swizzled {
            unit ^ (row & 7)
        } else {
            unit
        };
        row * self.bytes + (unit << 4)
    }
}

/// The addresses that a lane passes to `ldmatrix`: its own row and unit in every pair of units.
pub(crate) struct Matrices<'k> {
    rows: SharedRows,
    /// The addresses of the first pairs. Later pairs are at a constant offset from them.
    first: Vec<Ptr<'k, u8, Shared>>,
}

impl<'k> Matrices<'k> {
    /// Creates the addresses for the rows at `first`. `place` is the offset of the lane's row in
    /// its unit, 0 or 1.
    pub(crate) fn new(rows: SharedRows, first: Ptr<'k, u8, Shared>, place: U32<'k>) -> Self {
        let pairs = if rows.swizzled { 4 } else { 1 };
        Matrices {
            rows,
            first: (0..pairs)
                .map(|pair| first.row(place ^ (32 * pair), 1))
                .collect(),
        }
    }

    /// Returns the address in pair `pair`, `row` rows further. `row` must be a multiple of 8, so
    /// that the permutation stays the same.
    pub(crate) fn at(&self, row: u32, pair: u32) -> Ptr<'k, f16, Shared> {
        let n = self.first.len() as u32;
        self.first[(pair % n) as usize]
            .at(row * self.rows.bytes + pair / n * n * 32)
            .cast()
    }
}

/// The share of one thread in copying rows: unit `unit` of rows `row`, `row + step` and so on.
pub(crate) struct Copier<'k> {
    k: Builder<'k>,
    rows: SharedRows,
    threads: u32,
    row: U32<'k>,
    /// The unit that this thread copies.
    pub(crate) unit: U32<'k>,
    step: u32,
    /// The offset of the thread's unit in its first row.
    first: U32<'k>,
}

impl<'k> Copier<'k> {
    /// Divides the rows among the `threads` threads of the block.
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

    /// Starts asynchronous copies of `count` rows to `to`. `from` returns the source of the
    /// thread's unit, given the thread's first row and a number of further rows.
    pub(crate) fn copy<T: Elem>(
        &self,
        count: u32,
        to: Ptr<'k, u8, Shared>,
        from: impl Fn(U32<'k>, u32) -> Ptr<'k, T, ReadOnly>,
    ) {
        for further in (0..count).step_by(self.step as usize) {
            let rows = self.step.min(count - further);
            let copy = || from(self.row, further).copy16(self.place(to, further).cast());
            // If the units divide the threads, every thread has a row, and no check is needed.
            if rows == self.step && self.all_copy() {
                copy();
            } else {
                self.k.when(self.row.lt(rows), copy);
            }
        }
    }

    /// Returns true if every thread has a unit to copy.
    fn all_copy(&self) -> bool {
        self.step * self.rows.units == self.threads
    }

    /// Returns the address of the thread's unit, `further` rows after its first row.
    fn place(&self, to: Ptr<'k, u8, Shared>, further: u32) -> Ptr<'k, u8, Shared> {
        // The permutation repeats every 8 rows. Only for other distances must it be computed anew.
        if self.rows.swizzled && !further.is_multiple_of(8) {
            to.row(self.rows.place(self.row + further, self.unit), 1)
        } else {
            to.row(self.first, 1).at(further * self.rows.bytes)
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
