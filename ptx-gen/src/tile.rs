//! The layout of tiles: boxes of a matrix in shared memory.
//!
//! Tensor maps copy tiles, kernels address their elements, and matmuls of a warpgroup read them.
//! All three derive the layout from the same [`Tile`] value, so they cannot disagree.
//!
//! The columns of a tile are its contiguous dimension. A swizzle of `S` bytes divides the columns
//! into panels of `S` bytes, stored one after another. A panel contains all rows, `S` bytes of
//! each. Without a swizzle, panels have rows of 16 bytes.
//!
//! A swizzle XORs address bits, as in "Swizzling modes" of the PTX manual. With 128 bytes, bits 4
//! to 6 are XORed with bits 7 to 9. With 64 bytes, bits 4 and 5 are XORed with bits 7 and 8. With
//! 32 bytes, bit 4 is XORed with bit 7. As a result, eight consecutive rows use different banks at
//! every column.

use crate::ty::Kind;

/// The permutation of 16-byte units in a tile, which avoids bank conflicts when a column is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Swizzle {
    /// No permutation. Panels have rows of 16 bytes.
    None,
    /// Panels with rows of 32 bytes.
    B32,
    /// Panels with rows of 64 bytes.
    B64,
    /// Panels with rows of 128 bytes.
    B128,
}

impl Swizzle {
    /// Returns the length of a row of a panel in bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }

    /// Returns the offset at which the byte with offset `offset` is stored.
    ///
    /// Both offsets are relative to a multiple of [`alignment`](Swizzle::alignment).
    pub const fn apply(self, offset: u32) -> u32 {
        offset ^ (offset >> 3 & (self.bytes() - 16))
    }

    /// Returns the number of bytes after which the pattern repeats, which is the alignment of a
    /// tile.
    pub const fn alignment(self) -> u32 {
        8 * self.bytes()
    }

    /// Returns the encoding in a matrix descriptor (PTX manual, "Matrix Descriptor Format").
    pub(crate) const fn code(self) -> u64 {
        match self {
            Swizzle::None => 0,
            Swizzle::B128 => 1,
            Swizzle::B64 => 2,
            Swizzle::B32 => 3,
        }
    }
}

/// The layout of a box of a matrix in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tile {
    /// The element type.
    pub elem: Kind,
    /// The number of rows, a multiple of 8.
    pub rows: u32,
    /// The number of elements in a row, which are contiguous in the matrix. A row has whole panels.
    pub columns: u32,
    /// The swizzle.
    pub swizzle: Swizzle,
    /// The number of rows that one copy transfers: at most 256, and a divisor of `rows`.
    pub box_rows: u32,
}

impl Tile {
    /// Returns the number of elements in a row of a panel.
    pub const fn panel_columns(self) -> u32 {
        self.swizzle.bytes() / self.elem_bytes()
    }

    /// Returns the number of panels.
    pub const fn panels(self) -> u32 {
        self.columns / self.panel_columns()
    }

    /// Returns the size of a panel in bytes.
    pub const fn panel_bytes(self) -> u32 {
        self.rows * self.swizzle.bytes()
    }

    /// Returns the size of the tile in bytes.
    pub const fn bytes(self) -> u32 {
        self.panels() * self.panel_bytes()
    }

    /// Returns the box of the tensor map in elements, the innermost dimension first: the data of
    /// one copy.
    pub const fn box_dims(self) -> [u32; 2] {
        [self.panel_columns(), self.box_rows]
    }

    /// Returns the number of copies that transfer the whole tile.
    pub const fn copies(self) -> u32 {
        self.panels() * (self.rows / self.box_rows)
    }

    /// Returns the offset of an element from the address of the tile, in bytes.
    pub const fn offset(self, row: u32, column: u32) -> u32 {
        let panel = column / self.panel_columns();
        let within = column % self.panel_columns();
        let plain = row * self.swizzle.bytes() + within * self.elem_bytes();
        panel * self.panel_bytes() + self.swizzle.apply(plain)
    }

    const fn elem_bytes(self) -> u32 {
        elem_bytes(self.elem)
    }

    /// Returns the reason why a tensor map cannot copy the tile, if there is one.
    pub(crate) fn problem(self) -> Option<String> {
        let Tile {
            rows,
            columns,
            box_rows,
            ..
        } = self;
        let of = self.panel_columns();
        if rows == 0 || !rows.is_multiple_of(8) {
            return Some(format!("a tile has {rows} rows: expected a multiple of 8"));
        }

        if columns == 0 || !columns.is_multiple_of(of) {
            let elem = self.elem.name();
            let bytes = self.swizzle.bytes();
            return Some(format!(
                "a tile has {columns} columns: expected a multiple of {of}, the {elem} elements in {bytes} bytes"
            ));
        }

        if box_rows == 0
            || box_rows > 256
            || !rows.is_multiple_of(box_rows)
            || !box_rows.is_multiple_of(8)
        {
            return Some(format!(
                "a box has {box_rows} of {rows} rows: expected a divisor that is a multiple of 8, at most 256"
            ));
        }

        None
    }
}

/// Returns the size in bytes of an element of a tile.
pub(crate) const fn elem_bytes(elem: Kind) -> u32 {
    match elem {
        Kind::U8 | Kind::S8 | Kind::E4m3 | Kind::E5m2 => 1,
        Kind::F16 | Kind::Bf16 => 2,
        _ => 4,
    }
}

/// The maximum number of dimensions of a tensor map.
pub(crate) const MOST_DIMENSIONS: usize = 5;

/// The box that a tensor map copies: the information that the host needs to encode the map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MapBox {
    /// The element type of the tensor.
    pub elem: Kind,
    /// The swizzle of the box in shared memory.
    pub swizzle: Swizzle,
    rank: usize,
    dims: [u32; MOST_DIMENSIONS],
}

impl MapBox {
    /// Returns a box with `dims` elements along each dimension, the innermost first.
    ///
    /// Only the first five dimensions are used.
    pub fn new(elem: Kind, dims: &[u32], swizzle: Swizzle) -> Self {
        let at = |i: usize| dims.get(i).copied().unwrap_or(0);
        MapBox {
            elem,
            swizzle,
            rank: dims.len().min(MOST_DIMENSIONS),
            dims: [at(0), at(1), at(2), at(3), at(4)],
        }
    }

    /// Returns the number of elements along each dimension, the innermost first.
    pub fn dims(&self) -> &[u32] {
        &self.dims[..self.rank]
    }
}

impl From<Tile> for MapBox {
    fn from(tile: Tile) -> Self {
        MapBox::new(tile.elem, &tile.box_dims(), tile.swizzle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(swizzle: Swizzle, rows: u32, columns: u32) -> Tile {
        Tile {
            elem: Kind::F16,
            rows,
            columns,
            swizzle,
            box_rows: rows,
        }
    }

    #[test]
    fn every_element_has_its_own_place() {
        for swizzle in [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128] {
            let tile = tile(swizzle, 24, 128);
            let mut taken = vec![false; tile.bytes() as usize / 2];
            for at in (0..24).flat_map(|row| (0..128).map(move |column| tile.offset(row, column))) {
                assert!(
                    !std::mem::replace(&mut taken[at as usize / 2], true),
                    "{swizzle:?}: {at}"
                );
            }
        }
    }

    /// The expected patterns are those of "Swizzling modes" in the PTX manual.
    #[test]
    fn units_of_rows_are_where_the_manual_says() {
        let units = |swizzle, row| {
            let tile = tile(swizzle, 8, 64);
            let at = |unit| tile.offset(row, 8 * unit) / 16;
            (0..tile.panel_columns() / 8).map(at).collect::<Vec<_>>()
        };
        assert_eq!(units(Swizzle::B128, 0), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(units(Swizzle::B128, 1), [9, 8, 11, 10, 13, 12, 15, 14]);
        assert_eq!(units(Swizzle::B128, 6), [54, 55, 52, 53, 50, 51, 48, 49]);
        assert_eq!(units(Swizzle::B64, 1), [4, 5, 6, 7]);
        assert_eq!(units(Swizzle::B64, 2), [9, 8, 11, 10]);
        assert_eq!(units(Swizzle::B32, 3), [6, 7]);
        assert_eq!(units(Swizzle::B32, 4), [9, 8]);
        assert_eq!(units(Swizzle::None, 5), [5]);
    }

    #[test]
    fn tiles_that_no_copy_brings_are_refused() {
        let good = tile(Swizzle::B128, 128, 64);
        assert_eq!(good.problem(), None);
        let cases = [
            (
                Tile {
                    rows: 12,
                    box_rows: 12,
                    ..good
                },
                "a tile has 12 rows: expected a multiple of 8",
            ),
            (
                Tile {
                    columns: 96,
                    ..good
                },
                "a tile has 96 columns: expected a multiple of 64, the f16 elements in 128 bytes",
            ),
            (
                Tile {
                    box_rows: 48,
                    ..good
                },
                "a box has 48 of 128 rows: expected a divisor that is a multiple of 8, at most 256",
            ),
        ];
        for (tile, wanted) in cases {
            assert_eq!(tile.problem().as_deref(), Some(wanted));
        }
    }
}
