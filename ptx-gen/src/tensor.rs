//! Tensor maps and the tiles that they copy; copies out of shared memory.

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

/// Blocks of a cluster that every device of sm_90 and newer takes, at most (CUDA C++ Programming Guide, "Thread Block
/// Clusters").
const MOST_BLOCKS: u32 = 8;

/// What a tile holds. Sealed.
pub trait TileElem: sealed::Sealed + Copy + 'static {
    /// The type.
    const KIND: Kind;
    /// What a buffer of it holds.
    type Memory: Elem;
}

/// A [`Tile`] of elements of `E`: a constant of a kernel, from which the program has the copy, the layout and the operand
/// of products ([`TensorArg::of`](crate::TensorArg::of)), and the host the tensor map (the driver's
/// `TensorMapBuilder::tile`).
///
/// ```
/// use ptx_gen::{Swizzle, TileOf, f16};
///
/// /// 128 rows of 64 elements. Two blocks of a cluster bring half of the rows each.
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
    /// Rows, elements of a row, and how rows are spread. One copy brings all rows.
    ///
    /// Rows are a multiple of 8 up to 256, columns whole panels; the program that uses another tile is refused.
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

    /// The same, one copy bringing one of so many equal parts of the rows.
    pub const fn in_parts(self, parts: u32) -> Self {
        let box_rows = match parts {
            0 => 0,
            _ => self.0.rows / parts,
        };
        TileOf(Tile { box_rows, ..self.0 }, PhantomData)
    }

    /// Where elements lie, and what a copy brings.
    pub const fn tile(self) -> Tile {
        self.0
    }

    /// Bytes of the tile.
    pub const fn bytes(self) -> u32 {
        self.0.bytes()
    }
}

impl<E> From<TileOf<E>> for MapBox {
    fn from(tile: TileOf<E>) -> Self {
        tile.0.into()
    }
}

/// `f32` of which a product reads the upper 19 bits.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
pub struct tf32;
/// An 8-bit float of 4 exponent and 3 fraction bits.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
pub struct e4m3;
/// An 8-bit float of 5 exponent and 2 fraction bits.
#[allow(non_camel_case_types)]
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

/// A tensor map that the kernel was given by value; `A` says whether it reads or writes the tensor.
#[derive(Clone, Copy)]
pub struct TensorArg<'k, T, A> {
    pub(crate) k: Builder<'k>,
    /// Its generic address.
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

    /// The map as one that copies such tiles of a matrix.
    ///
    /// The host encodes it for the same tile.
    #[track_caller]
    pub fn of<E: TileElem<Memory = T>>(self, tile: TileOf<E>) -> Tiles<'k, E, A> {
        let tile = tile.tile();
        self.k.declare_tile(self.name, tile);
        // A tile without parts is an error by now; what copies it goes on with the whole.
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

    /// The map as one that copies tiles of these rows and columns, whole, from a matrix.
    ///
    /// The host encodes it for the tile's box and swizzle, which [`Program::tile`](crate::Program::tile) gives.
    #[track_caller]
    pub fn tiles<E: TileElem<Memory = T>>(
        self,
        rows: u32,
        columns: u32,
        swizzle: Swizzle,
    ) -> Tiles<'k, E, A> {
        self.tiles_in_parts(rows, columns, swizzle, 1)
    }

    /// The same where one copy brings one of so many parts of the rows.
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

    /// Brings the map into its cache. By one thread, early. sm_90.
    #[track_caller]
    pub fn prefetch(self) {
        let address = Operand::Addr(crate::ir::Base::Reg(self.address), 0);
        self.k
            .inst(&isa::TENSOR_PREFETCH, Kind::U32, None, [], [address])
    }
}

/// A tensor map and the tile that it copies.
#[derive(Clone, Copy)]
pub struct Tiles<'k, E: TileElem, A> {
    map: TensorArg<'k, E::Memory, A>,
    tile: Tile,
    elem: PhantomData<E>,
}

impl<'k, E: TileElem, A: Copy> Tiles<'k, E, A> {
    /// Where elements lie, and what a copy brings.
    pub fn tile(self) -> Tile {
        self.tile
    }

    /// The tile in shared memory at this address, a multiple of the swizzle's alignment.
    pub fn at(self, at: Ptr<'k, u8, Shared>) -> Staged<'k, E, A> {
        Staged { tiles: self, at }
    }
}

/// A tile in shared memory, with the map that copies it.
#[derive(Clone, Copy)]
pub struct Staged<'k, E: TileElem, A> {
    tiles: Tiles<'k, E, A>,
    at: Ptr<'k, u8, Shared>,
}

impl<'k, E: TileElem, A: Copy> Staged<'k, E, A> {
    /// Where elements lie, and what a copy brings.
    pub fn tile(self) -> Tile {
        self.tiles.tile
    }

    /// The tile's address.
    pub fn ptr(self) -> Ptr<'k, u8, Shared> {
        self.at
    }

    pub(crate) fn k(self) -> Builder<'k> {
        self.tiles.map.k
    }

    /// The copies of the parts: where in shared memory, and at which place of the tensor.
    #[track_caller]
    fn boxes(
        self,
        column: U32<'k>,
        row: U32<'k>,
        parts: std::ops::Range<u32>,
    ) -> Vec<(Operand, Operand)> {
        let tile = self.tiles.tile;
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
    /// Copies the tile that begins at this column and row of the matrix here; `landed` counts
    /// [`bytes`](Tile::bytes), whatever is outside of the matrix being 0. The column is a multiple of 16 bytes. One
    /// thread asks for all. sm_90.
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

    /// Copies part `part` of the tile that begins here to the blocks of the cluster that `blocks` has bits for: to the
    /// same place of each, counted by the mbarrier at the same place of each. sm_90a.
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
    /// Copies the tile that begins at this column and row of the matrix to the same place of every block of the cluster,
    /// each of which asks for one part: the blocks are as many as the tile's [parts](TileOf::in_parts). In each,
    /// the mbarrier at the same place counts all bytes of the tile. One thread of each block asks. sm_90a.
    #[track_caller]
    pub fn load_for_cluster(self, column: U32<'k>, row: U32<'k>, landed: Mbarrier<'k>) {
        let (tile, k) = (self.tile(), self.k());
        let parts = tile.rows / tile.box_rows;
        if parts == 1 {
            return self.load(column, row, landed);
        }
        if parts > MOST_BLOCKS {
            let what = format!(
                "a tile in {parts} parts, one for each block of a cluster; at most {MOST_BLOCKS}"
            );
            return k.error(ErrorKind::Limit(what));
        }
        let rank = k.cluster_rank();
        // The part as if it were all that a copy brings, at its place in the tile.
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
    /// Copies the tile to this column and row of the matrix, a column that is a multiple of 16 bytes and neither negative,
    /// and leaves out what is beyond the end. One thread asks,
    /// after [`fence_async`](Builder::fence_async) by all that wrote the tile. sm_90.
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
    /// The tile as an operand of products whose inner dimension is that of the columns: "K-major".
    #[track_caller]
    pub fn by_columns(self) -> Descriptor<'k, E> {
        Descriptor::along_columns(self.at, self.tiles.tile)
    }

    /// The tile as an operand of products whose inner dimension is that of the rows: "MN-major". 16-bit elements.
    #[track_caller]
    pub fn by_rows(self) -> Descriptor<'k, E> {
        Descriptor::along_rows(self.at, self.tiles.tile)
    }
}

/// A tile in shared memory as an operand of a product: how it is described, with the tile that it describes.
#[derive(Clone, Copy)]
pub struct Descriptor<'k, E> {
    pub(crate) bits: U64<'k>,
    pub(crate) tile: Tile,
    /// Whether the inner dimension is that of the rows.
    pub(crate) transposed: bool,
    elem: PhantomData<E>,
}

impl<'k, E: TileElem> Descriptor<'k, E> {
    /// Elements of the inner dimension.
    pub(crate) fn inner_len(self) -> u32 {
        if self.transposed {
            self.tile.rows
        } else {
            self.tile.columns
        }
    }

    /// The part of the tile from this element of the inner dimension on: a multiple of what one product takes.
    #[track_caller]
    pub fn inner(self, from: u32) -> Self {
        let tile = self.tile;
        let bytes = match self.transposed {
            true => from * tile.swizzle.bytes(),
            false => {
                let panel = from / tile.panel_columns();
                panel * tile.panel_bytes() + from % tile.panel_columns() * E::KIND.bytes()
            }
        };
        self.moved(bytes)
    }

    /// The part from this element of the other dimension on: a multiple of 8 rows, or of the columns of a panel.
    #[track_caller]
    pub fn outer(self, from: u32) -> Self {
        let tile = self.tile;
        let bytes = match self.transposed {
            true => from / tile.panel_columns() * tile.panel_bytes(),
            false => from * tile.swizzle.bytes(),
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

    /// Remembers what a map copies: one map serves one box alone.
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

    /// A bit for each block of the cluster, as the copies to several blocks take them.
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

    /// Orders this thread's accesses to shared memory with those of copies and products beside it: after it, and after
    /// a barrier, they read what this thread wrote. sm_90.
    #[track_caller]
    pub fn fence_async(self) {
        self.inst(&isa::FENCE_ASYNC, Kind::U32, None, [], [])
    }

    /// The same of accesses to shared memory of all blocks of the cluster.
    #[track_caller]
    pub fn fence_async_in_cluster(self) {
        self.inst(&isa::FENCE_CLUSTER, Kind::U32, None, [], [])
    }

    /// Makes the copies out of shared memory that this thread asked for since the last group a group. sm_90.
    #[track_caller]
    pub fn commit_stores(self) {
        self.inst(&isa::BULK_COMMIT, Kind::U32, None, [], [])
    }

    /// Waits until at most `groups` of this thread's latest groups of copies out of shared memory are under way.
    #[track_caller]
    pub fn wait_stores(self, groups: u32) {
        self.inst(&isa::BULK_WAIT, Kind::U32, None, [], [lit(groups)])
    }

    /// Waits until at most `groups` of them still read shared memory, which may then be written again.
    #[track_caller]
    pub fn wait_stores_read(self, groups: u32) {
        self.inst(&isa::BULK_WAIT_READ, Kind::U32, None, [], [lit(groups)])
    }
}

impl<'k, T: Elem> Ptr<'k, T, Shared> {
    /// Copies `bytes` bytes, a multiple of 16, to global memory. Both addresses are multiples of 16. sm_90.
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
    /// The tile at this address, a multiple of the swizzle's alignment, as an operand of products whose inner dimension
    /// is that of the columns: for tiles that no tensor map brings. Elements lie where [`Tile::offset`] says.
    #[track_caller]
    pub fn by_columns(at: Ptr<'k, u8, Shared>, rows: u32, columns: u32, swizzle: Swizzle) -> Self {
        Self::along_columns(at, Self::whole(at, rows, columns, swizzle))
    }

    /// The same where the inner dimension is that of the rows. 16-bit elements.
    #[track_caller]
    pub fn by_rows(at: Ptr<'k, u8, Shared>, rows: u32, columns: u32, swizzle: Swizzle) -> Self {
        Self::along_rows(at, Self::whole(at, rows, columns, swizzle))
    }

    #[track_caller]
    fn whole(at: Ptr<'k, u8, Shared>, rows: u32, columns: u32, swizzle: Swizzle) -> Tile {
        // No copy brings it, and a box may be of any of its rows.
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
        // The distances between units of the inner dimension, which a swizzle fixes, and between eight rows.
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
                "a tile of {} is read along its columns alone; 16-bit elements are not",
                tile.elem.name()
            );
            at.k.error(ErrorKind::Limit(what));
        }
        // The distances between panels, and between eight rows. Without a swizzle they stand the other way round.
        let (panels, rows) = (tile.panel_bytes(), tile.swizzle.alignment());
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

/// Bits 0 to 13 are the address, 16 to 29 the leading and 32 to 45 the stride byte offset, all over 16; 62 and 63 the
/// swizzle ("Matrix Descriptor Format").
#[track_caller]
fn describe<'k>(at: Ptr<'k, u8, Shared>, leading: u32, stride: u32, swizzle: Swizzle) -> U64<'k> {
    let fixed = u64::from(leading >> 4 & 0x3fff) << 16
        | u64::from(stride >> 4 & 0x3fff) << 32
        | swizzle.code() << 62;
    let address = (at.address() & 0x3_ffffu32) >> 4u32;
    address.cvt::<u64>() | fixed
}
