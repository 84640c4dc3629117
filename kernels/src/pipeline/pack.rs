//! Packs GGUF rows into tiles. One warp packs a tile, and each lane writes its own words (see
//! `format/lanes/pack.rs`).

use crate::format::Format;
use crate::format::lanes::pack::{PackLane, TileRow};
use crate::format::tile::{RowOrder, Tile, pack};
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random};
use ptx_gen::*;

/// The number of warps of a block.
const WARPS: u32 = 4;
/// The maximum number of tiles, because rows times tiles of a row are counted in 32 bits.
const MAX_TILES: u32 = 1 << 27;

args! {
    /// Arguments of [`Pack`].
    pub struct PackArgs {
        /// `[row_blocks / per * stride, row_bytes]`: the rows of the lower half of each row block,
        /// at an address that is a multiple of 16. See [`RowOrder`].
        lo: In<u8>,
        /// `[row_blocks / per * stride, row_bytes]`: the rows of the upper half, at an address that
        /// is a multiple of 16. It may be `lo`.
        hi: In<u8>,
        /// `[row_blocks, n / columns, bytes]`: the [tiles](crate::Tile), at an address that is a
        /// multiple of 16
        y: Out<u8>,
        /// The row length in weights, a multiple of the tile's columns.
        n: u32,
        /// The number of row blocks, a multiple of `per`.
        row_blocks: u32,
        /// The field [`RowOrder::per`].
        per: u32,
        /// The field [`RowOrder::stride`].
        stride: u32,
        /// The field [`RowOrder::step`].
        step: u32,
        /// The field [`RowOrder::delta`].
        delta: u32,
    }
}

/// Kernel that packs rows into tiles. The format must have a tile.
#[derive(Clone, Copy, Debug)]
pub struct Pack {
    /// The format of the rows.
    pub format: Format,
}

impl KernelDef for Pack {
    type Args<S: Side> = PackArgs<S>;

    fn name(&self) -> String {
        format!("pack_{}", self.format.suffix())
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(4)
    }

    fn grid(&self, a: &PackArgs<Shape>) -> Result<Grid, ShapeError> {
        let columns = self.format.tile().map_or(0, |tile| tile.columns);
        self.multiple("n", a.n, columns)?;
        self.groups(a)?;
        let most = MAX_TILES / (a.n / columns);
        self.require(a.row_blocks <= most, || {
            format!(
                "row_blocks is {}, must be at most {most} for n = {}",
                a.row_blocks, a.n
            )
        })?;
        self.sizes(a)?;
        Ok(Grid::line((a.row_blocks * (a.n / columns)).div_ceil(WARPS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: PackArgs<Dev<'k>>) {
        let Tile { columns, bytes } = self.format.tile().expect("the format has a tile");
        let lane = k.lane();
        let index = k.ctaid() * WARPS + k.warp();
        let row_tiles = a.n >> columns.ilog2();
        k.when(index.lt(a.row_blocks * row_tiles), || {
            // A lane packs row `lane / 4` of both halves of the row block, as `mma` distributes
            // rows.
            let row_block = index / row_tiles;
            let column = index % row_tiles;
            let row = (((row_block % a.per) << 3) + (lane >> 2)) * a.step;
            let row = row_block / a.per * a.stride + row;
            let row_of = |matrix, row: U32<'k>| TileRow {
                matrix,
                index: row * row_tiles + column,
            };
            let rows = [row_of(a.lo, row), row_of(a.hi, row + a.delta)];
            let tile = a.y.row(index, bytes);
            let packer = PackLane {
                k,
                lane,
                t: lane & 3,
                rows,
                tile,
                row_bytes: self.format.row_bytes(columns as usize) as u32,
            };
            self.format.pack_tile(&packer);
        });
    }

    fn reference(&self, a: PackArgs<Cpu<'_>>) {
        let rows = RowOrder {
            per: a.per,
            stride: a.stride,
            step: a.step,
            delta: a.delta,
        };
        a.y.copy_from_slice(&pack(self.format, rows, a.lo, a.hi, a.n as usize));
    }
}

impl Pack {
    /// Checks that row blocks form whole groups, and that the rows of a group stay inside it.
    fn groups(&self, a: &PackArgs<Shape>) -> Result<(), ShapeError> {
        self.range("per", a.per, 1, 1 << 16)?;
        self.multiple("row_blocks", a.row_blocks, a.per)?;
        let last = u64::from(8 * a.per - 1) * u64::from(a.step) + u64::from(a.delta);
        self.require(last < u64::from(a.stride), || {
            format!(
                "stride is {}, must be above (8 * per - 1) * step + delta = {last}",
                a.stride
            )
        })
    }

    /// Checks the buffers' sizes.
    fn sizes(&self, a: &PackArgs<Shape>) -> Result<(), ShapeError> {
        let rows = (a.row_blocks / a.per) as usize * a.stride as usize;
        let row = self.format.row_bytes(a.n as usize);
        for (name, found) in [("lo", a.lo), ("hi", a.hi)] {
            self.require(found == rows * row, || {
                format!("{name} has {found} bytes, must have {rows} rows of {row} bytes each")
            })?;
        }

        let wanted = a.row_blocks as usize * 16 * row;
        self.require(a.y == wanted, || {
            format!(
                "y has {} bytes, must have {} row blocks of {} bytes each",
                a.y,
                a.row_blocks,
                16 * row
            )
        })
    }
}

impl Variant for Pack {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // The cases cover each row order, fewer and more tiles than warps, and rows with an odd and
        // with an even number of blocks.
        [
            (RowOrder::PLAIN, 1, 1),
            (RowOrder::PLAIN, 3, 3),
            (RowOrder::half_split(64), 2, 2),
            (RowOrder::interleaved(32), 3, 1),
            (RowOrder::GATE_UP, 2, 3),
        ]
        .map(|(rows, groups, tiles)| self.case(&mut Random(seed), rows, groups, tiles))
        .into()
    }
}

impl Pack {
    /// Returns a case with `groups` groups of rows that are `tiles` tiles long.
    fn case(&self, random: &mut Random, rows: RowOrder, groups: u32, tiles: u32) -> Case {
        let n = tiles * self.format.tile().map_or(0, |tile| tile.columns);
        let row_blocks = groups * rows.per;
        let blocks = groups * rows.stride * n / self.format.block_len();
        let lo = self.format.random(blocks as usize, 1.0, random);
        let hi = if rows == RowOrder::GATE_UP {
            self.format.random(blocks as usize, 1.0, random)
        } else {
            lo.clone()
        };
        let y = vec![0; row_blocks as usize * 16 * self.format.row_bytes(n as usize)];
        let mut args = vec![CpuArg::U8(lo), CpuArg::U8(hi), CpuArg::U8(y)];
        let sizes = [n, row_blocks, rows.per, rows.stride, rows.step, rows.delta];
        args.extend(sizes.map(CpuArg::scalar));
        Case {
            label: format!("groups={groups} n={n} {rows:?}"),
            args,
            bound: 0.0,
        }
    }
}
