//! `y = x w^T` for two `f16` matrices that are copied through tensor maps, with `f32` sums.

use crate::shared::tiled::{GROUPS, OUT, OutputShape, PART, Pair, ProductTile, Tiled};
use crate::shared::{Contract, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`Dense`].
    pub struct DenseArgs {
        /// `[rows, k]`: the tokens
        x: InMap<f16>,
        /// `[n, k]`: the weights
        w: InMap<f16>,
        /// `[rows, n]`: the result
        y: OutMap<f16>,
        /// The number of rows of `x`: tokens.
        rows: u32,
        /// The number of rows of `w`, a multiple of 8.
        n: u32,
        /// The row length, a multiple of 8.
        k: u32,
        /// The number of blocks. Pass the number of multiprocessors.
        blocks: u32,
    }
}

/// Kernel that multiplies two `f16` matrices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dense {
    /// The tile of a block.
    pub tile: ProductTile,
}

/// The bytes of the two tiles of shared memory through which results are stored.
const BESIDE: u32 = GROUPS * PART;

impl Dense {
    /// Returns the tiles that the tensor maps of `x`, `w` and `y` must copy.
    pub fn map_tiles(&self) -> [TileOf<f16>; 3] {
        [
            ProductTile::left(),
            self.tile.right(false),
            ProductTile::out(),
        ]
    }
}

impl KernelDef for Dense {
    type Args<S: Side> = DenseArgs<S>;

    fn name(&self) -> String {
        format!("dense_{}", self.tile.suffix())
    }

    fn block(&self) -> u32 {
        self.tile.block()
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(1)
    }

    fn cluster(&self) -> u32 {
        self.tile.cluster()
    }

    fn grid(&self, a: &DenseArgs<Shape>) -> Result<Grid, ShapeError> {
        let &DenseArgs { k, n, rows, .. } = a;
        self.range("rows", rows, 1, 1 << 24)?;
        self.range("k", k, 8, 1 << 24)?;
        self.range("blocks", a.blocks, 1, 1 << 16)?;
        self.multiple("k", k, 8)?;
        self.multiple("n", n, 8)?;
        check_lengths! { self, a:
            x == rows * k,
            w == n * k,
            y == rows * n,
        }
        Ok(self.tile.grid([rows, n], a.blocks, BESIDE))
    }

    fn program<'k>(&self, k: Builder<'k>, a: DenseArgs<Dev<'k>>) {
        let memory = k.tile_memory("tiles");
        let [x, w, y] = self.map_tiles();
        let pair = Pair {
            left: a.x.of(x),
            right: a.w.of(w),
            by_rows: false,
            depth: a.k,
        };
        let shape = OutputShape {
            rows: a.rows,
            columns: a.n,
        };
        let tiled = Tiled::new(k, memory, self.tile, BESIDE, shape, vec![pair], vec![]);
        let out = memory.at(self.tile.ring(BESIDE).memory());
        tiled.run(|leaving, summed| {
            let tile = a.y.of(y).at(out.row(leaving.group, PART));
            // A tile of results has 64 columns, which are the 128 bytes of the swizzle.
            for from in (0..self.tile.columns()).step_by(OUT as usize) {
                leaving.store(
                    &[(tile, &*summed.sums, from)],
                    [summed.column + from, summed.row],
                );
            }
        });
    }

    fn reference(&self, a: DenseArgs<Cpu<'_>>) {
        let n = a.n as usize;
        let k = a.k as usize;
        for (y, x) in a.y.chunks_exact_mut(n).zip(a.x.chunks_exact(k)) {
            for (y, w) in y.iter_mut().zip(a.w.chunks_exact(k)) {
                let sum: f32 = x.iter().zip(w).map(|(x, w)| x.to_f32() * w.to_f32()).sum();
                *y = f16::from_f32(sum);
            }
        }
    }
}
