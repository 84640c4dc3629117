//! Boxes of tensors with one to five dimensions, as tensor maps copy them.
//!
//! A box lies in shared memory row by row, where a row is its innermost dimension. If a row has
//! exactly the length of the swizzle, the box has the layout of a [`Tile`] with the same total
//! number of rows. Matmuls can then read the box as a tile.

use crate::asynchronous::Mbarrier;
use crate::build::{Builder, U32};
use crate::check::ErrorKind;
use crate::elem::Elem;
use crate::ir::{Operand, Reg};
use crate::isa;
use crate::mem::{Ptr, ReadOnly, Shared, Stores};
use crate::tensor::{Descriptor, TensorArg, TileElem};
use crate::tile::{MOST_DIMENSIONS, MapBox, Swizzle, Tile, elem_bytes};
use crate::ty::Kind;
use std::marker::PhantomData;

/// The shape of a box of an `N`-dimensional tensor with elements `E`: a constant of a kernel.
///
/// Like [`TileOf`](crate::TileOf), it describes the copy to the program and the tensor map to the
/// host.
///
/// # Example
/// ```
/// use ptx_gen::{Swizzle, TensorBox, f16};
///
/// /// 64 elements of 4 heads of 8 tokens: 32 rows of 128 bytes.
/// const HEADS: TensorBox<f16, 3> = TensorBox::new([64, 4, 8], Swizzle::B128);
/// assert_eq!(HEADS.bytes(), 64 * 4 * 8 * 2);
/// // Element 8 of head 1 of token 2 is in row 9, where the swizzle exchanges the first two units.
/// assert_eq!(HEADS.offset([8, 1, 2]), 9 * 128);
/// ```
pub struct TensorBox<E, const N: usize> {
    dims: [u32; N],
    swizzle: Swizzle,
    elem: PhantomData<E>,
}

impl<E, const N: usize> Clone for TensorBox<E, N> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E, const N: usize> Copy for TensorBox<E, N> {}

impl<E: TileElem, const N: usize> TensorBox<E, N> {
    /// Returns a box with `dims` elements along each dimension, the innermost first.
    ///
    /// Each dimension has 1 to 256 elements. With a swizzle, a row must have exactly as many bytes
    /// as the swizzle. Without one, it must be a multiple of 16 bytes. Building a program that uses
    /// another box returns an error.
    pub const fn new(dims: [u32; N], swizzle: Swizzle) -> Self {
        TensorBox {
            dims,
            swizzle,
            elem: PhantomData,
        }
    }

    /// Returns the number of rows: the product of all dimensions except the innermost.
    pub const fn rows(self) -> u32 {
        // A `const fn` cannot use iterators.
        let mut rows: u32 = 1;
        let mut i = 1;
        while i < N {
            rows = self.dims[i].saturating_mul(rows);
            i += 1;
        }
        rows
    }

    /// Returns the length of a row in bytes.
    pub const fn row_bytes(self) -> u32 {
        self.dims[0].saturating_mul(elem_bytes(E::KIND))
    }

    /// Returns the size of the box in bytes.
    pub const fn bytes(self) -> u32 {
        self.rows().saturating_mul(self.row_bytes())
    }

    /// Returns the offset of an element from the address of the box, in bytes.
    pub fn offset(self, place: [u32; N]) -> u32 {
        let outer = self.dims.iter().zip(place).skip(1).rev();
        let row = outer.fold(0, |row, (dim, at)| row * dim + at);
        self.swizzle
            .apply(row * self.row_bytes() + place[0] * elem_bytes(E::KIND))
    }

    /// Returns the tile with the same layout, if the rows have the length of the swizzle.
    fn tile(self) -> Option<Tile> {
        let Self { dims, swizzle, .. } = self;
        let fits = self.row_bytes() == swizzle.bytes() && self.rows().is_multiple_of(8);
        fits.then_some(Tile {
            elem: E::KIND,
            rows: self.rows(),
            columns: dims[0],
            swizzle,
            box_rows: 8,
        })
    }

    /// Returns the reason why a tensor map cannot copy the box, if there is one.
    fn problem(self) -> Option<String> {
        let dims = self.dims;
        let row = self.row_bytes();
        let span = self.swizzle.bytes();
        if !(1..=MOST_DIMENSIONS).contains(&N) {
            return Some(format!(
                "a box has {N} dimensions: expected 1 to {MOST_DIMENSIONS}"
            ));
        }

        if dims.iter().any(|n| !(1..=256).contains(n)) {
            return Some(format!(
                "a box has {dims:?} elements: expected 1 to 256 in each dimension"
            ));
        }

        if self.swizzle == Swizzle::None {
            if !row.is_multiple_of(16) {
                return Some(format!(
                    "a box has rows of {row} bytes: expected a multiple of 16"
                ));
            }
        } else if row != span {
            return Some(format!(
                "a box has rows of {row} bytes: expected {span}, the bytes of its swizzle"
            ));
        }

        None
    }
}

impl<E: TileElem, const N: usize> From<TensorBox<E, N>> for MapBox {
    fn from(b: TensorBox<E, N>) -> Self {
        MapBox::new(E::KIND, &b.dims, b.swizzle)
    }
}

impl<'k, T: Elem, A: Copy> TensorArg<'k, T, A> {
    /// Returns the map as one that copies boxes of this shape from an `N`-dimensional tensor.
    ///
    /// The host must encode the map for the same box.
    #[track_caller]
    pub fn boxes<E: TileElem<Memory = T>, const N: usize>(
        self,
        shape: TensorBox<E, N>,
    ) -> Boxes<'k, E, A, N> {
        match shape.problem() {
            Some(problem) => self.k.error(ErrorKind::Limit(problem)),
            None => self.k.declare_box(self.name, shape.into()),
        }
        Boxes { map: self, shape }
    }
}

/// A tensor map together with the shape of the box that it copies.
#[derive(Clone, Copy)]
pub struct Boxes<'k, E: TileElem, A, const N: usize> {
    map: TensorArg<'k, E::Memory, A>,
    shape: TensorBox<E, N>,
}

impl<'k, E: TileElem, A: Copy, const N: usize> Boxes<'k, E, A, N> {
    /// Returns the box at the address `at` in shared memory.
    ///
    /// The address must be a multiple of 128 and of [`Swizzle::alignment`].
    pub fn at(self, at: Ptr<'k, u8, Shared>) -> StagedBox<'k, E, A, N> {
        StagedBox { boxes: self, at }
    }
}

/// A box in shared memory together with the map that copies it.
#[derive(Clone, Copy)]
pub struct StagedBox<'k, E: TileElem, A, const N: usize> {
    boxes: Boxes<'k, E, A, N>,
    at: Ptr<'k, u8, Shared>,
}

impl<'k, E: TileElem, A: Copy, const N: usize> StagedBox<'k, E, A, N> {
    /// Returns the address of the box.
    pub fn ptr(self) -> Ptr<'k, u8, Shared> {
        self.at
    }

    fn k(self) -> Builder<'k> {
        self.boxes.map.k
    }

    fn place(self, place: [U32<'k>; N]) -> Operand {
        let coordinates = place.iter().map(|v| v.reg);
        let regs: Vec<Reg> = std::iter::once(self.boxes.map.address)
            .chain(coordinates)
            .collect();
        Operand::Tensor(regs.into())
    }

    #[track_caller]
    fn tile(self) -> Tile {
        let shape = self.boxes.shape;
        shape.tile().unwrap_or_else(|| {
            let rows = shape.rows();
            let row = shape.row_bytes();
            let span = shape.swizzle.bytes();
            let what = format!(
                "a box with {rows} rows of {row} bytes cannot be an operand of a matmul: expected a \
                 multiple of 8 rows of {span} bytes"
            );
            self.k().error(ErrorKind::Limit(what));
            Tile { elem: E::KIND, rows: 8, columns: 16, swizzle: shape.swizzle, box_rows: 8 }
        })
    }

    /// Returns the box as an operand of a matmul whose inner dimension is the row ("K-major").
    #[track_caller]
    pub fn by_columns(self) -> Descriptor<'k, E> {
        Descriptor::along_columns(self.at, self.tile())
    }

    /// Returns the box as an operand of a matmul whose inner dimension crosses the rows
    /// ("MN-major").
    ///
    /// Elements must have 16 bits.
    #[track_caller]
    pub fn by_rows(self) -> Descriptor<'k, E> {
        Descriptor::along_rows(self.at, self.tile())
    }
}

impl<'k, E: TileElem, const N: usize> StagedBox<'k, E, ReadOnly, N> {
    /// Copies the box that begins at `place` of the tensor to shared memory
    /// (`cp.async.bulk.tensor`). Needs sm_90.
    ///
    /// `place` has the innermost coordinate first. Coordinates may be negative when read as `i32`,
    /// and elements outside the tensor are 0. The innermost coordinate must be a multiple of 16
    /// bytes. `landed` counts [`bytes`](TensorBox::bytes) bytes. One thread issues the copy.
    #[track_caller]
    pub fn load(self, place: [U32<'k>; N], landed: Mbarrier<'k>) {
        let src = [self.at.addr(), self.place(place), landed.address()];
        self.k().inst(&isa::TENSOR_LOAD, Kind::U32, None, [], src)
    }

    /// Copies the box to several blocks of the cluster (`cp.async.bulk.tensor` with
    /// `.multicast::cluster`). Needs sm_90a.
    ///
    /// Each set bit of `blocks` selects a block. The copy goes to the same address in each of them,
    /// and the mbarrier at the same address in each of them counts the bytes.
    #[track_caller]
    pub fn load_to(self, place: [U32<'k>; N], landed: Mbarrier<'k>, blocks: U32<'k>) {
        let mask = self.k().blocks_mask(blocks);
        let src = [self.at.addr(), self.place(place), landed.address(), mask];
        self.k()
            .inst(&isa::TENSOR_LOAD_TO, Kind::U32, None, [], src)
    }
}

impl<'k, E: TileElem, A: Stores + Copy, const N: usize> StagedBox<'k, E, A, N> {
    /// Copies the box from shared memory to `place` of the tensor (`cp.async.bulk.tensor`). Needs
    /// sm_90.
    ///
    /// Elements beyond the end of the tensor are skipped. No coordinate may be negative, and the
    /// innermost must be a multiple of 16 bytes. One thread issues the copy, after all writers of
    /// the box have executed [`fence_async`](Builder::fence_async).
    #[track_caller]
    pub fn store(self, place: [U32<'k>; N]) {
        let src = [self.place(place), self.at.addr()];
        self.k().inst(&isa::TENSOR_STORE, Kind::U32, None, [], src)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ty::f16;

    #[test]
    fn boxes_that_no_copy_brings_are_refused() {
        assert_eq!(
            TensorBox::<f16, 4>::new([32, 2, 3, 256], Swizzle::B64).problem(),
            None
        );
        assert_eq!(
            TensorBox::<f16, 1>::new([24], Swizzle::None).problem(),
            None
        );
        let wrong = [
            (
                TensorBox::<u8, 2>::new([64, 257], Swizzle::B64).problem(),
                "a box has [64, 257] elements: expected 1 to 256 in each dimension",
            ),
            (
                TensorBox::<f16, 2>::new([12, 8], Swizzle::None).problem(),
                "a box has rows of 24 bytes: expected a multiple of 16",
            ),
            (
                TensorBox::<f16, 3>::new([16, 8, 1], Swizzle::B64).problem(),
                "a box has rows of 32 bytes: expected 64, the bytes of its swizzle",
            ),
            (
                TensorBox::<f16, 6>::new([8; 6], Swizzle::None).problem(),
                "a box has 6 dimensions: expected 1 to 5",
            ),
        ];
        for (found, wanted) in wrong {
            assert_eq!(found.as_deref(), Some(wanted));
        }
    }
}
