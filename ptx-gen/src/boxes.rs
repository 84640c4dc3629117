//! Boxes of tensors of one to five dimensions, as tensor maps copy them.
//!
//! A box lies in shared memory row after row, a row being its innermost dimension. Where a row is as long as the swizzle,
//! the box is a [`Tile`] of as many rows as there are in all, and products read it as one.

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

/// A box of a tensor of `N` dimensions, elements of `E`: a constant of a kernel, as [`TileOf`](crate::TileOf) is.
///
/// ```
/// use ptx_gen::{Swizzle, TensorBox, f16};
///
/// /// 64 elements of 4 heads of 8 tokens: 32 rows of 128 bytes.
/// const HEADS: TensorBox<f16, 3> = TensorBox::new([64, 4, 8], Swizzle::B128);
/// assert_eq!(HEADS.bytes(), 64 * 4 * 8 * 2);
/// // Element 8 of head 1 of token 2: row 9, whose units of 16 bytes are exchanged in pairs.
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
    /// Elements in each dimension, the innermost first: 1 to 256. A row is a multiple of 16 bytes; with a swizzle as
    /// many bytes as that has. The program that uses another box is refused.
    pub const fn new(dims: [u32; N], swizzle: Swizzle) -> Self {
        TensorBox {
            dims,
            swizzle,
            elem: PhantomData,
        }
    }

    /// Rows, of all other dimensions together.
    pub const fn rows(self) -> u32 {
        let (mut rows, mut i) = (1, 1);
        while i < N {
            rows = self.dims[i].saturating_mul(rows);
            i += 1;
        }
        rows
    }

    /// Bytes of a row.
    pub const fn row_bytes(self) -> u32 {
        self.dims[0].saturating_mul(elem_bytes(E::KIND))
    }

    /// Bytes of the box.
    pub const fn bytes(self) -> u32 {
        self.rows().saturating_mul(self.row_bytes())
    }

    /// Where an element lies: bytes from the box's address on.
    pub fn offset(self, place: [u32; N]) -> u32 {
        let outer = self.dims.iter().zip(place).skip(1).rev();
        let row = outer.fold(0, |row, (dim, at)| row * dim + at);
        self.swizzle
            .apply(row * self.row_bytes() + place[0] * elem_bytes(E::KIND))
    }

    /// The tile that the box is, if its rows are as long as those of a panel.
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

    /// What is wrong with it, if something is.
    fn problem(self) -> Option<String> {
        let (dims, row) = (self.dims, self.row_bytes());
        if !(1..=MOST_DIMENSIONS).contains(&N) {
            return Some(format!("a box of {N} dimensions; 1 to {MOST_DIMENSIONS}"));
        }
        if dims.iter().any(|n| !(1..=256).contains(n)) {
            return Some(format!(
                "a box of {dims:?} elements; 1 to 256 in each dimension"
            ));
        }
        if self.swizzle == Swizzle::None && !row.is_multiple_of(16) {
            return Some(format!("a box with rows of {row} bytes; a multiple of 16"));
        }
        let span = self.swizzle.bytes();
        (self.swizzle != Swizzle::None && row != span)
            .then(|| format!("a box with rows of {row} bytes and a swizzle of {span}; as many"))
    }
}

impl<E: TileElem, const N: usize> From<TensorBox<E, N>> for MapBox {
    fn from(b: TensorBox<E, N>) -> Self {
        MapBox::new(E::KIND, &b.dims, b.swizzle)
    }
}

impl<'k, T: Elem, A: Copy> TensorArg<'k, T, A> {
    /// The map as one that copies such boxes of a tensor of `N` dimensions. The host encodes it for the same box.
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

/// A tensor map and the box that it copies.
#[derive(Clone, Copy)]
pub struct Boxes<'k, E: TileElem, A, const N: usize> {
    map: TensorArg<'k, E::Memory, A>,
    shape: TensorBox<E, N>,
}

impl<'k, E: TileElem, A: Copy, const N: usize> Boxes<'k, E, A, N> {
    /// The box in shared memory at this address: a multiple of 128 and of the swizzle's alignment.
    pub fn at(self, at: Ptr<'k, u8, Shared>) -> StagedBox<'k, E, A, N> {
        StagedBox { boxes: self, at }
    }
}

/// A box in shared memory, with the map that copies it.
#[derive(Clone, Copy)]
pub struct StagedBox<'k, E: TileElem, A, const N: usize> {
    boxes: Boxes<'k, E, A, N>,
    at: Ptr<'k, u8, Shared>,
}

impl<'k, E: TileElem, A: Copy, const N: usize> StagedBox<'k, E, A, N> {
    /// The box's address.
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
            let (rows, row, span) = (shape.rows(), shape.row_bytes(), shape.swizzle.bytes());
            let what = format!(
                "a box with {rows} rows of {row} bytes as an operand of products; a multiple of 8, of {span} bytes"
            );
            self.k().error(ErrorKind::Limit(what));
            Tile { elem: E::KIND, rows: 8, columns: 16, swizzle: shape.swizzle, box_rows: 8 }
        })
    }

    /// The rows of the box as an operand of products whose inner dimension is a row's: "K-major".
    #[track_caller]
    pub fn by_columns(self) -> Descriptor<'k, E> {
        Descriptor::along_columns(self.at, self.tile())
    }

    /// The same where the inner dimension is that of the rows: "MN-major". 16-bit elements.
    #[track_caller]
    pub fn by_rows(self) -> Descriptor<'k, E> {
        Descriptor::along_rows(self.at, self.tile())
    }
}

impl<'k, E: TileElem, const N: usize> StagedBox<'k, E, ReadOnly, N> {
    /// Copies the box that begins at this place of the tensor here, the innermost coordinate first; `landed` counts
    /// [`bytes`](TensorBox::bytes), whatever is outside of the tensor being 0. Coordinates count from 0, and may be
    /// negative: `i32` bits. The innermost is a multiple of 16 bytes. One thread asks for all. sm_90.
    #[track_caller]
    pub fn load(self, place: [U32<'k>; N], landed: Mbarrier<'k>) {
        let src = [self.at.addr(), self.place(place), landed.address()];
        self.k().inst(&isa::TENSOR_LOAD, Kind::U32, None, [], src)
    }

    /// The same to the blocks of the cluster that `blocks` has bits for: to the same place of each, counted by the
    /// mbarrier at the same place of each. sm_90a.
    #[track_caller]
    pub fn load_to(self, place: [U32<'k>; N], landed: Mbarrier<'k>, blocks: U32<'k>) {
        let mask = self.k().blocks_mask(blocks);
        let src = [self.at.addr(), self.place(place), landed.address(), mask];
        self.k()
            .inst(&isa::TENSOR_LOAD_TO, Kind::U32, None, [], src)
    }
}

impl<'k, E: TileElem, A: Stores + Copy, const N: usize> StagedBox<'k, E, A, N> {
    /// Copies the box to this place of the tensor, and leaves out what is beyond its end. No coordinate is negative, and
    /// the innermost is a multiple of 16 bytes. One thread asks, after [`fence_async`](Builder::fence_async) by all that
    /// wrote the box. sm_90.
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
                "a box of [64, 257] elements; 1 to 256 in each dimension",
            ),
            (
                TensorBox::<f16, 2>::new([12, 8], Swizzle::None).problem(),
                "a box with rows of 24 bytes; a multiple of 16",
            ),
            (
                TensorBox::<f16, 3>::new([16, 8, 1], Swizzle::B64).problem(),
                "a box with rows of 32 bytes and a swizzle of 64; as many",
            ),
            (
                TensorBox::<f16, 6>::new([8; 6], Swizzle::None).problem(),
                "a box of 6 dimensions; 1 to 5",
            ),
        ];
        for (found, wanted) in wrong {
            assert_eq!(found.as_deref(), Some(wanted));
        }
    }
}
