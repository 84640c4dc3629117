//! Tensor maps, the tiles that they copy, copies out of shared memory, and matmul operands.

use crate::asynchronous::Mbarrier;
use crate::build::{Builder, Src, U32, U64, lit};
use crate::check::{BuildError, ErrorKind};
use crate::elem::Elem;
use crate::ir::{Operand, Reg};
use crate::isa;
use crate::mem::{Ptr, Shared, Stores};
use crate::tile::{MapBox, Swizzle, Tile};
use crate::ty::{Kind, bf16, f16, sealed};
use std::marker::PhantomData;
use std::panic::Location;

/// The maximum number of blocks in a cluster that every device from sm_90 on supports (CUDA C++
/// Programming Guide, "Thread Block Clusters").
const MOST_BLOCKS: u32 = 8;

/// An element type of tiles. The trait is sealed.
pub trait TileElem: sealed::Sealed + Copy + 'static {
    /// The PTX type.
    const KIND: Kind;
    /// The element type of a buffer or tensor that stores such elements.
    type Memory: Elem;
}

/// The shape of a tile with elements `E`: a constant of a kernel.
///
/// One constant describes the tile on both sides. The program uses it with
/// [`TensorArg::of`](crate::TensorArg::of) for copies, layout and matmul operands. The host encodes
/// the tensor map from it with `TensorMapBuilder::tile` of the driver crate.
///
/// # Example
/// ```
/// use ptx_gen::{Swizzle, TileOf, f16};
///
/// /// 128 rows of 64 elements. Two blocks of a cluster copy half of the rows each.
/// const WEIGHTS: TileOf<f16> = TileOf::new(128, 64, Swizzle::B128).in_parts(2);
/// assert_eq!(WEIGHTS.bytes(), 128 * 64 * 2);
/// assert_eq!((WEIGHTS.tile().box_dims(), WEIGHTS.tile().copies()), ([64, 64], 2));
/// ```
pub struct TileOf<E>(Tile, PhantomData<E>);

impl<E> Clone for TileOf<E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E> Copy for TileOf<E> {}

impl<E: TileElem> TileOf<E> {
    /// Returns a tile of `rows` rows with `columns` elements each, which one copy transfers.
    ///
    /// `rows` must be a multiple of 8, at most 256. `columns` must fill whole panels of the
    /// swizzle. Building a program that uses another tile returns an error.
    pub const fn new(rows: u32, columns: u32, swizzle: Swizzle) -> Self {
        TileOf(
            Tile {
                elem: E::KIND,
                rows,
                columns,
                swizzle,
                box_rows: rows,
            },
            PhantomData,
        )
    }

    /// Divides the rows into `parts` equal slices and lets one copy transfer one slice.
    pub const fn in_parts(self, parts: u32) -> Self {
        let box_rows = match parts {
            0 => 0,
            _ => self.0.rows / parts,
        };
        TileOf(Tile { box_rows, ..self.0 }, PhantomData)
    }

    /// Returns the layout of the tile.
    pub const fn tile(self) -> Tile {
        self.0
    }

    /// Returns the size of the tile in bytes.
    pub const fn bytes(self) -> u32 {
        self.0.bytes()
    }
}

impl<E> From<TileOf<E>> for MapBox {
    fn from(tile: TileOf<E>) -> Self {
        tile.0.into()
    }
}

/// An `f32` of which a matmul reads the upper 19 bits.
#[expect(non_camel_case_types, reason = "named after the PTX type")]
#[derive(Clone, Copy)]
pub struct tf32;
/// An 8-bit float with 4 exponent and 3 fraction bits.
#[expect(non_camel_case_types, reason = "named after the PTX type")]
#[derive(Clone, Copy)]
pub struct e4m3;
/// An 8-bit float with 5 exponent and 2 fraction bits.
#[expect(non_camel_case_types, reason = "named after the PTX type")]
#[derive(Clone, Copy)]
pub struct e5m2;

impl sealed::Sealed for tf32 {}
impl sealed::Sealed for e4m3 {}
impl sealed::Sealed for e5m2 {}

macro_rules! tile_elems {
    ($($t:ty: $kind:ident in $memory:ty;)*) => {$(
        impl TileElem for $t {
            const KIND: Kind = Kind::$kind;
            type Memory = $memory;
        }
    )*};
}
tile_elems! {
    f16: F16 in f16;
    bf16: Bf16 in bf16;
    tf32: Tf32 in f32;
    u8: U8 in u8;
    i8: S8 in i8;
    e4m3: E4m3 in u8;
    e5m2: E5m2 in u8;
}

/// A tensor map that the kernel receives by value. The access `A` is [`ReadOnly`](crate::ReadOnly)
/// or [`WriteOnly`](crate::WriteOnly).
///
/// Call [`of`](TensorArg::of) to copy tiles of a matrix, or [`boxes`](TensorArg::boxes) to copy
/// boxes of a tensor. Tensor maps need sm_90.
#[derive(Clone, Copy)]
pub struct TensorArg<'k, T, A> {
    pub(crate) k: Builder<'k>,
    /// The register that holds the generic address of the map.
    pub(crate) address: Reg,
    pub(crate) name: &'static str,
    of: PhantomData<(T, A)>,
}

impl<'k, T: Elem, A: Copy> TensorArg<'k, T, A> {
    pub(crate) fn new(k: Builder<'k>, address: Reg, name: &'static str) -> Self {
        TensorArg {
            k,
            address,
            name,
            of: PhantomData,
        }
    }

    /// Returns the map as one that copies tiles of this shape from a matrix.
    ///
    /// The host must encode the map for the same tile.
    #[track_caller]
    pub fn of<E: TileElem<Memory = T>>(self, tile: TileOf<E>) -> Tiles<'k, E, A> {
        let tile = tile.tile();
        self.k.declare_tile(self.name, tile);

        // A tile without rows per copy has already been reported. The program continues with the
        // whole tile, so that the divisions below are defined.
        let tile = if tile.box_rows == 0 {
            Tile {
                box_rows: tile.rows.max(1),
                ..tile
            }
        } else {
            tile
        };
        Tiles {
            map: self,
            tile,
            elem: PhantomData,
        }
    }

    /// Returns the map as one that copies tiles of `rows` rows and `columns` columns, each with one
    /// copy.
    ///
    /// The host must encode the map for the box and the swizzle that
    /// [`Program::tile`](crate::Program::tile) returns.
    #[track_caller]
    pub fn tiles<E: TileElem<Memory = T>>(
        self,
        rows: u32,
        columns: u32,
        swizzle: Swizzle,
    ) -> Tiles<'k, E, A> {
        self.tiles_in_parts(rows, columns, swizzle, 1)
    }

    /// Returns the map as one that copies tiles with one copy per slice, of `parts` equal slices of
    /// the rows.
    #[track_caller]
    pub fn tiles_in_parts<E: TileElem<Memory = T>>(
        self,
        rows: u32,
        columns: u32,
        swizzle: Swizzle,
        parts: u32,
    ) -> Tiles<'k, E, A> {
        self.of(TileOf::new(rows, columns, swizzle).in_parts(parts))
    }

    /// Prefetches the tensor map (`prefetch.tensormap`). Needs sm_90.
    ///
    /// One thread should call it early in the kernel.
    #[track_caller]
    pub fn prefetch(self) {
        let address = Operand::Addr(crate::ir::Base::Reg(self.address), 0);
        self.k
            .inst(&isa::TENSOR_PREFETCH, Kind::U32, None, [], [address])
    }
}

/// A tensor map together with the tile that it copies.
#[derive(Clone, Copy)]
pub struct Tiles<'k, E: TileElem, A> {
    map: TensorArg<'k, E::Memory, A>,
    tile: Tile,
    elem: PhantomData<E>,
}

impl<'k, E: TileElem, A: Copy> Tiles<'k, E, A> {
    /// Returns the layout of the tile.
    pub fn tile(self) -> Tile {
        self.tile
    }

    /// Returns the tile at the address `at` in shared memory, a multiple of [`Swizzle::alignment`].
    pub fn at(self, at: Ptr<'k, u8, Shared>) -> Staged<'k, E, A> {
        Staged { tiles: self, at }
    }
}

/// A tile in shared memory together with the map that copies it.
#[derive(Clone, Copy)]
pub struct Staged<'k, E: TileElem, A> {
    tiles: Tiles<'k, E, A>,
    at: Ptr<'k, u8, Shared>,
}

impl<'k, E: TileElem, A: Copy> Staged<'k, E, A> {
    /// Returns the layout of the tile.
    pub fn tile(self) -> Tile {
        self.tiles.tile
    }

    /// Returns the address of the tile.
    pub fn ptr(self) -> Ptr<'k, u8, Shared> {
        self.at
    }

    pub(crate) fn k(self) -> Builder<'k> {
        self.tiles.map.k
    }

    /// Returns the destination and the source of each copy, for the slices `parts` of every panel.
    #[track_caller]
    fn boxes(
        self,
        column: U32<'k>,
        row: U32<'k>,
        parts: std::ops::Range<u32>,
    ) -> Vec<(Operand, Operand)> {
        let tile = self.tiles.tile;

        // The box of the map is one panel wide, so every panel needs its own copies.
        let panels = 0..tile.panels();
        let boxes = panels.flat_map(|panel| parts.clone().map(move |part| (panel, part)));
        let one = |(panel, part): (u32, u32)| {
            let to = panel * tile.panel_bytes() + part * tile.box_rows * tile.swizzle.bytes();
            let column = self.shifted(column, panel * tile.panel_columns());
            let row = self.shifted(row, part * tile.box_rows);
            let place = [self.tiles.map.address, column.reg, row.reg];
            (self.at.at(to).addr(), Operand::Tensor(place.into()))
        };
        boxes.map(one).collect()
    }

    #[track_caller]
    fn shifted(self, v: U32<'k>, by: u32) -> U32<'k> {
        if by == 0 { v } else { v + by }
    }
}

impl<'k, E: TileElem> Staged<'k, E, crate::mem::ReadOnly> {
    /// Copies the tile that begins at `column` and `row` of the matrix to shared memory
    /// (`cp.async.bulk.tensor.2d`). Needs sm_90.
    ///
    /// `landed` counts [`bytes`](Tile::bytes) bytes, and elements outside the matrix are 0. The
    /// column must be a multiple of 16 bytes. One thread issues the copies.
    #[track_caller]
    pub fn load(self, column: U32<'k>, row: U32<'k>, landed: Mbarrier<'k>) {
        let parts = 0..self.tile().rows / self.tile().box_rows;
        for (to, place) in self.boxes(column, row, parts) {
            self.k().inst(
                &isa::TENSOR_LOAD,
                Kind::U32,
                None,
                [],
                [to, place, landed.address()],
            )
        }
    }

    /// Copies slice `part` of the tile to several blocks of the cluster (`cp.async.bulk.tensor.2d`
    /// with `.multicast::cluster`). Needs sm_90a.
    ///
    /// Each set bit of `blocks` selects a block. The copy goes to the same address in each of them,
    /// and the mbarrier at the same address in each of them counts the bytes.
    #[track_caller]
    pub fn load_part_to(
        self,
        column: U32<'k>,
        row: U32<'k>,
        part: u32,
        landed: Mbarrier<'k>,
        blocks: U32<'k>,
    ) {
        let mask = self.k().blocks_mask(blocks);
        for (to, place) in self.boxes(column, row, part..part + 1) {
            let src = [to, place, landed.address(), mask.clone()];
            self.k()
                .inst(&isa::TENSOR_LOAD_TO, Kind::U32, None, [], src)
        }
    }
}

impl<'k, E: TileElem> Staged<'k, E, crate::mem::ReadOnly> {
    /// Copies the tile to the same address in every block of the cluster. Needs sm_90a.
    ///
    /// Each block copies one slice to all blocks, so the number of blocks must equal the number of
    /// [slices](TileOf::in_parts). In each block, the mbarrier at the same address counts all bytes
    /// of the tile. One thread of each block calls this method.
    #[track_caller]
    pub fn load_for_cluster(self, column: U32<'k>, row: U32<'k>, landed: Mbarrier<'k>) {
        let tile = self.tile();
        let k = self.k();
        let parts = tile.rows / tile.box_rows;
        if parts == 1 {
            return self.load(column, row, landed);
        }

        if parts > MOST_BLOCKS {
            let what = format!(
                "a tile has {parts} parts, one for each block of the cluster: expected at most {MOST_BLOCKS}"
            );
            return k.error(ErrorKind::Limit(what));
        }

        let rank = k.cluster_rank();

        // Each block copies its own slice. Moving the tile's address by the rank makes slice 0 of
        // the moved tile the slice of this block.
        let part = Staged {
            at: self.at.row(rank, tile.box_rows * tile.swizzle.bytes()),
            ..self
        };
        part.load_part_to(
            column,
            row + rank * tile.box_rows,
            0,
            landed,
            k.val((1 << parts) - 1),
        )
    }
}

impl<'k, E: TileElem, A: Stores + Copy> Staged<'k, E, A> {
    /// Copies the tile from shared memory to `column` and `row` of the matrix
    /// (`cp.async.bulk.tensor.2d`). Needs sm_90.
    ///
    /// Elements beyond the end of the matrix are skipped. The column must be a multiple of 16
    /// bytes, and neither coordinate may be negative. One thread issues the copies, after all
    /// writers of the tile have executed [`fence_async`](Builder::fence_async).
    #[track_caller]
    pub fn store(self, column: U32<'k>, row: U32<'k>) {
        let parts = 0..self.tile().rows / self.tile().box_rows;
        for (from, place) in self.boxes(column, row, parts) {
            self.k()
                .inst(&isa::TENSOR_STORE, Kind::U32, None, [], [place, from])
        }
    }
}

impl<'k, E: TileElem, A: Copy> Staged<'k, E, A> {
    /// Returns the tile as an operand of a matmul whose inner dimension is the columns ("K-major").
    #[track_caller]
    pub fn by_columns(self) -> Descriptor<'k, E> {
        Descriptor::along_columns(self.at, self.tiles.tile)
    }

    /// Returns the tile as an operand of a matmul whose inner dimension is the rows ("MN-major").
    ///
    /// Elements must have 16 bits.
    #[track_caller]
    pub fn by_rows(self) -> Descriptor<'k, E> {
        Descriptor::along_rows(self.at, self.tiles.tile)
    }
}

/// A tile in shared memory as an operand of a matmul of a warpgroup.
///
/// It consists of the matrix descriptor that `wgmma` reads and the layout of the tile.
#[derive(Clone, Copy)]
pub struct Descriptor<'k, E> {
    pub(crate) bits: U64<'k>,
    pub(crate) tile: Tile,
    /// Whether the inner dimension is the rows.
    pub(crate) transposed: bool,
    elem: PhantomData<E>,
}

impl<'k, E: TileElem> Descriptor<'k, E> {
    /// Returns the number of elements along the inner dimension.
    pub(crate) fn inner_len(self) -> u32 {
        if self.transposed {
            self.tile.rows
        } else {
            self.tile.columns
        }
    }

    /// Returns the operand that begins at element `from` of the inner dimension.
    ///
    /// `from` must be a multiple of the elements that one matmul reads, which have 32 bytes.
    #[track_caller]
    pub fn inner(self, from: u32) -> Self {
        let tile = self.tile;
        let bytes = if self.transposed {
            from * tile.swizzle.bytes()
        } else {
            let panel = from / tile.panel_columns();
            panel * tile.panel_bytes() + from % tile.panel_columns() * E::KIND.bytes()
        };
        self.moved(bytes)
    }

    /// Returns the operand that begins at element `from` of the other dimension.
    ///
    /// `from` must be a multiple of 8 rows or of the columns of a panel.
    #[track_caller]
    pub fn outer(self, from: u32) -> Self {
        let tile = self.tile;
        let bytes = if self.transposed {
            from / tile.panel_columns() * tile.panel_bytes()
        } else {
            from * tile.swizzle.bytes()
        };
        self.moved(bytes)
    }

    #[track_caller]
    fn moved(self, bytes: u32) -> Self {
        if bytes == 0 {
            self
        } else {
            Descriptor {
                bits: self.bits + u64::from(bytes / 16),
                ..self
            }
        }
    }
}

impl<'k> Builder<'k> {
    #[track_caller]
    pub(crate) fn error(self, kind: ErrorKind) {
        self.state.borrow_mut().errors.push(BuildError {
            at: Some(Location::caller()),
            kind,
        })
    }

    #[track_caller]
    fn declare_tile(self, param: &'static str, tile: Tile) {
        if let Some(problem) = tile.problem() {
            return self.error(ErrorKind::Limit(problem));
        }
        self.declare_box(param, tile.into());
        let mut state = self.state.borrow_mut();
        if state.tiles.iter().all(|(name, _)| *name != param) {
            state.tiles.push((param, tile));
        }
    }

    /// Records the box of a tensor map. A map can copy only one box, so a second box is an error.
    #[track_caller]
    pub(crate) fn declare_box(self, param: &'static str, copied: MapBox) {
        let known = self
            .state
            .borrow()
            .boxes
            .iter()
            .find(|(name, _)| *name == param)
            .map(|(_, b)| *b);
        match known {
            Some(other) if other != copied => self.error(ErrorKind::TwoTiles(param)),
            Some(_) => {}
            None => self.state.borrow_mut().boxes.push((param, copied)),
        }
    }

    /// Returns `blocks`, one bit per block of the cluster, as the 16-bit operand of multicast
    /// copies.
    #[track_caller]
    pub(crate) fn blocks_mask(self, blocks: U32<'k>) -> Operand {
        let mask = self.fresh::<f16>();
        self.inst(
            &isa::CVT_BLOCKS,
            Kind::U32,
            None,
            [mask.reg],
            [Operand::Reg(blocks.reg)],
        );
        Operand::Reg(mask.reg)
    }

    /// Orders this thread's accesses to shared memory with asynchronous copies and matmuls
    /// (`fence.proxy.async.shared::cta`). Needs sm_90.
    ///
    /// Copies and `wgmma` access shared memory through the async proxy. They see what a thread
    /// wrote only after that thread has executed this fence, followed by a barrier.
    #[track_caller]
    pub fn fence_async(self) {
        self.inst(&isa::FENCE_ASYNC, Kind::U32, None, [], [])
    }

    /// Orders this thread's accesses to the shared memory of all blocks of the cluster with
    /// asynchronous copies and matmuls (`fence.proxy.async.shared::cluster`). Needs sm_90.
    #[track_caller]
    pub fn fence_async_in_cluster(self) {
        self.inst(&isa::FENCE_CLUSTER, Kind::U32, None, [], [])
    }

    /// Groups the copies out of shared memory that this thread issued since the last group
    /// (`cp.async.bulk.commit_group`). Needs sm_90.
    #[track_caller]
    pub fn commit_stores(self) {
        self.inst(&isa::BULK_COMMIT, Kind::U32, None, [], [])
    }

    /// Waits until at most `groups` of the latest groups of copies out of shared memory of this
    /// thread are in flight (`cp.async.bulk.wait_group`). Needs sm_90.
    #[track_caller]
    pub fn wait_stores(self, groups: u32) {
        self.inst(&isa::BULK_WAIT, Kind::U32, None, [], [lit(groups)])
    }

    /// Waits until at most `groups` of the latest groups of this thread still read shared memory
    /// (`cp.async.bulk.wait_group.read`). Needs sm_90.
    ///
    /// The shared memory of the other groups may then be overwritten.
    #[track_caller]
    pub fn wait_stores_read(self, groups: u32) {
        self.inst(&isa::BULK_WAIT_READ, Kind::U32, None, [], [lit(groups)])
    }
}

impl<'k, T: Elem> Ptr<'k, T, Shared> {
    /// Copies `bytes` bytes from shared memory to global memory asynchronously (`cp.async.bulk`).
    /// Needs sm_90.
    ///
    /// `bytes` and both addresses must be multiples of 16. One thread issues the copy, after all
    /// writers of the memory have executed [`fence_async`](Builder::fence_async). Wait for it with
    /// [`commit_stores`](Builder::commit_stores) and [`wait_stores`](Builder::wait_stores).
    #[track_caller]
    pub fn bulk_store<A: Stores>(self, to: Ptr<'k, T, A>, bytes: impl Src<'k, u32>) {
        self.k.inst(
            &isa::BULK_STORE,
            Kind::U32,
            None,
            [],
            [to.addr(), self.addr(), bytes.operand()],
        )
    }
}

impl<'k, E: TileElem> Descriptor<'k, E> {
    /// Returns the operand for a tile that no tensor map copies, with the columns as inner
    /// dimension.
    ///
    /// The address must be a multiple of [`Swizzle::alignment`]. Elements must be stored at the
    /// offsets that [`Tile::offset`] returns.
    #[track_caller]
    pub fn by_columns(at: Ptr<'k, u8, Shared>, rows: u32, columns: u32, swizzle: Swizzle) -> Self {
        Self::along_columns(at, Self::whole(at, rows, columns, swizzle))
    }

    /// Returns the operand for a tile that no tensor map copies, with the rows as inner dimension.
    ///
    /// The address must be a multiple of [`Swizzle::alignment`]. Elements must have 16 bits and be
    /// stored at the offsets that [`Tile::offset`] returns.
    #[track_caller]
    pub fn by_rows(at: Ptr<'k, u8, Shared>, rows: u32, columns: u32, swizzle: Swizzle) -> Self {
        Self::along_rows(at, Self::whole(at, rows, columns, swizzle))
    }

    #[track_caller]
    fn whole(at: Ptr<'k, u8, Shared>, rows: u32, columns: u32, swizzle: Swizzle) -> Tile {
        // No copy uses this tile, so the rows per copy are only a valid placeholder.
        let tile = Tile {
            elem: E::KIND,
            rows,
            columns,
            swizzle,
            box_rows: 8,
        };
        if let Some(problem) = tile.problem() {
            at.k.error(ErrorKind::Limit(problem));
        }
        tile
    }

    #[track_caller]
    pub(crate) fn along_columns(at: Ptr<'k, u8, Shared>, tile: Tile) -> Self {
        // The leading offset is the distance between 16-byte units of the inner dimension. With a
        // swizzle it is fixed and ignored. The stride is the distance between groups of eight rows.
        let leading = if tile.swizzle == Swizzle::None {
            tile.panel_bytes()
        } else {
            16
        };
        let bits = describe(at, leading, tile.swizzle.alignment(), tile.swizzle);
        Descriptor {
            bits,
            tile,
            transposed: false,
            elem: PhantomData,
        }
    }

    #[track_caller]
    pub(crate) fn along_rows(at: Ptr<'k, u8, Shared>, tile: Tile) -> Self {
        if tile.elem.bytes() != 2 {
            let what = format!(
                "a tile of {} can only be read along its columns: reading along rows needs 16-bit elements",
                tile.elem.name()
            );
            at.k.error(ErrorKind::Limit(what));
        }

        // The leading offset is the distance between panels, and the stride that between groups of
        // eight rows. Without a swizzle the manual swaps their roles.
        let panels = tile.panel_bytes();
        let rows = tile.swizzle.alignment();
        let (leading, stride) = if tile.swizzle == Swizzle::None {
            (rows, panels)
        } else {
            (panels, rows)
        };
        let bits = describe(at, leading, stride, tile.swizzle);
        Descriptor {
            bits,
            tile,
            transposed: true,
            elem: PhantomData,
        }
    }
}

/// Returns a matrix descriptor (PTX manual, "Matrix Descriptor Format").
///
/// Bits 0 to 13 are the address, bits 16 to 29 the leading byte offset and bits 32 to 45 the stride
/// byte offset, each divided by 16. Bits 62 and 63 are the swizzle.
#[track_caller]
fn describe<'k>(at: Ptr<'k, u8, Shared>, leading: u32, stride: u32, swizzle: Swizzle) -> U64<'k> {
    let fixed = u64::from(leading >> 4 & 0x3fff) << 16
        | u64::from(stride >> 4 & 0x3fff) << 32
        | swizzle.code() << 62;
    let address = (at.address() & 0x3_ffffu32) >> 4u32;
    address.cvt::<u64>() | fixed
}
