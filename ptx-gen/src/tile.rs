//! Tiles: boxes of a matrix as they lie in shared memory.
//!
//! A tile is what a tensor map copies, where its elements lie, and what a product of a warpgroup reads. All three follow
//! from one value, so that they cannot differ.
//!
//! `columns` is the contiguous dimension. A swizzle of `S` bytes cuts it into panels of `S` bytes, one after another: a
//! panel has all rows, `S` bytes each. In address bits, a swizzle of 128 bytes replaces bits 4 to 6 by their exclusive
//! or with bits 7 to 9, one of 64 bits 4 and 5 by that with 7 and 8, one of 32 bit 4 by that with bit 7. So the rows of
//! eight neighbours lie in different banks at every column. Without a swizzle panels have rows of 16 bytes.

use crate::ty::Kind;

/// How rows of a tile are spread over shared memory, so that columns are read without bank conflicts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Swizzle {
    /// As they are: panels of 16 bytes.
    None,
    /// Panels of 32 bytes.
    B32,
    /// Panels of 64 bytes.
    B64,
    /// Panels of 128 bytes.
    B128,
}

impl Swizzle {
    /// Bytes of a row of a panel.
    pub const fn bytes(self) -> u32 {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }

    /// Where the byte at this offset lies, counted from a multiple of [`alignment`](Swizzle::alignment).
    pub const fn apply(self, offset: u32) -> u32 {
        offset ^ (offset >> 3 & (self.bytes() - 16))
    }

    /// Bytes after which the pattern repeats: what a tile's address is a multiple of.
    pub const fn alignment(self) -> u32 {
        8 * self.bytes()
    }

    /// Its number in a descriptor ("Matrix Descriptor Format").
    pub(crate) const fn code(self) -> u64 {
        match self {
            Swizzle::None => 0,
            Swizzle::B128 => 1,
            Swizzle::B64 => 2,
            Swizzle::B32 => 3,
        }
    }
}

/// A box of a matrix in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tile {
    /// What it holds.
    pub elem: Kind,
    /// Rows: a multiple of 8.
    pub rows: u32,
    /// Elements of a row, which are contiguous in the matrix: whole panels.
    pub columns: u32,
    /// How rows are spread.
    pub swizzle: Swizzle,
    /// Rows that one copy brings: up to 256, and a part of `rows`.
    pub box_rows: u32,
}

impl Tile {
    /// Elements of a row of a panel.
    pub const fn panel_columns(self) -> u32 {
        self.swizzle.bytes() / self.elem_bytes()
    }

    /// Panels side by side.
    pub const fn panels(self) -> u32 {
        self.columns / self.panel_columns()
    }

    /// Bytes of a panel.
    pub const fn panel_bytes(self) -> u32 {
        self.rows * self.swizzle.bytes()
    }

    /// Bytes of the tile.
    pub const fn bytes(self) -> u32 {
        self.panels() * self.panel_bytes()
    }

    /// The box of the tensor map, in elements, the innermost dimension first: what one copy brings.
    pub const fn box_dims(self) -> [u32; 2] {
        [self.panel_columns(), self.box_rows]
    }

    /// Copies that bring the whole tile.
    pub const fn copies(self) -> u32 {
        self.panels() * (self.rows / self.box_rows)
    }

    /// Where an element lies: bytes from the tile's address on.
    pub const fn offset(self, row: u32, column: u32) -> u32 {
        let (panel, within) = (column / self.panel_columns(), column % self.panel_columns());
        let plain = row * self.swizzle.bytes() + within * self.elem_bytes();
        panel * self.panel_bytes() + self.swizzle.apply(plain)
    }

    const fn elem_bytes(self) -> u32 {
        elem_bytes(self.elem)
    }

    /// What is wrong with it, if something is.
    pub(crate) fn problem(self) -> Option<String> {
        let Tile {
            rows,
            columns,
            box_rows,
            ..
        } = self;
        let of = self.panel_columns();
        if rows == 0 || !rows.is_multiple_of(8) {
            return Some(format!("a tile of {rows} rows; a multiple of 8"));
        }
        if columns == 0 || !columns.is_multiple_of(of) {
            let (elem, bytes) = (self.elem.name(), self.swizzle.bytes());
            return Some(format!(
                "a tile of {columns} columns; panels of {bytes} bytes have {of} of {elem}"
            ));
        }
        if box_rows == 0
            || box_rows > 256
            || !rows.is_multiple_of(box_rows)
            || !box_rows.is_multiple_of(8)
        {
            return Some(format!(
                "a box of {box_rows} of {rows} rows; a part of them, a multiple of 8 up to 256"
            ));
        }
        None
    }
}

/// Bytes of what a tile may hold.
pub(crate) const fn elem_bytes(elem: Kind) -> u32 {
    match elem {
        Kind::U8 | Kind::S8 | Kind::E4m3 | Kind::E5m2 => 1,
        Kind::F16 | Kind::Bf16 => 2,
        _ => 4,
    }
}

/// The most dimensions of a tensor.
pub(crate) const MOST_DIMENSIONS: usize = 5;

/// What a tensor map copies at a time, of whatever a kernel declared it with: what the host needs to encode the map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MapBox {
    /// What the tensor holds.
    pub elem: Kind,
    /// How rows of the box are spread over shared memory.
    pub swizzle: Swizzle,
    rank: usize,
    dims: [u32; MOST_DIMENSIONS],
}

impl MapBox {
    /// A box of these elements in each dimension, the innermost first; of more than five the first five.
    pub fn new(elem: Kind, dims: &[u32], swizzle: Swizzle) -> Self {
        let at = |i: usize| dims.get(i).copied().unwrap_or(0);
        MapBox {
            elem,
            swizzle,
            rank: dims.len().min(MOST_DIMENSIONS),
            dims: [at(0), at(1), at(2), at(3), at(4)],
        }
    }

    /// Elements in each dimension, the innermost first.
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

    /// The patterns of the PTX manual's "Swizzling modes": units of 16 bytes of the first eight rows.
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
                "a tile of 12 rows; a multiple of 8",
            ),
            (
                Tile {
                    columns: 96,
                    ..good
                },
                "a tile of 96 columns; panels of 128 bytes have 64 of f16",
            ),
            (
                Tile {
                    box_rows: 48,
                    ..good
                },
                "a box of 48 of 128 rows; a part of them, a multiple of 8 up to 256",
            ),
        ];
        for (tile, wanted) in cases {
            assert_eq!(tile.problem().as_deref(), Some(wanted));
        }
    }
}
