//! Rows of 16-bit numbers in shared memory, of which `ldmatrix` reads columns of eight rows without bank conflicts.
//!
//! A row is cut into units of 16 bytes; eight rows of a unit must lie in different banks. If a row is a multiple of eight
//! units, unit `u` of row `r` is at `u ^ (r mod 8)`. Else rows have a stride of an odd number of units.

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
        SharedRows { bytes: if swizzled { 16 * units } else { 16 * (units | 1) }, units, swizzled }
    }

    /// Where a unit begins, in bytes.
    pub(crate) fn place<'k>(self, row: U32<'k>, unit: U32<'k>) -> U32<'k> {
        let unit = if self.swizzled { unit ^ (row & 7) } else { unit };
        row * self.bytes + (unit << 4)
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
                let unit = if rows.swizzled { unit ^ (row & 7) } else { unit };
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
