//! Products of a projection with its adapter on the tensor cores of sm_90a, forward and backward:
//!
//! ```text
//! NT: y  = factor (x W^T + u B^T) + bias + residual      W [columns, depth]
//! NN: dx = factor (dy W + du A) + residual               W [depth, columns]
//! ```
//!
//! `B` is given as `B^T` `[rank, columns]`, so that in both forms the second pair of operands is `[rows, rank]` and
//! `[rank, columns]`. It is what `rank` more elements of `depth` would be: one sum, rounded once.
//!
//! A block has three warpgroups. One thread of the first asks for tiles of 64 elements of `depth`, into a ring of stages;
//! each of the others multiplies 64 rows of `x` with all columns of a tile. What is outside of a matrix is read as 0, so a
//! rank below 64 takes a stage, most of it zeros. A block takes tile after tile of `y`, in bands of 8 tiles of rows, column
//! after column, so that what is multiplied at a time is nearly square and comes from the L2 cache.

use super::{narrow, wide};
use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use crate::train::products::{Form, add_scaled, nn, nt};
use ptx_gen::*;

args! {
    /// Arguments of [`LoraLinear`].
    pub struct LoraLinearArgs {
        /// `[rows, depth]`
        x: InMap<bf16>,
        /// NT: `[columns, depth]`; NN: `[depth, columns]`
        w: InMap<bf16>,
        /// `[rows, rank]`; anything if `rank` is 0
        u: InMap<bf16>,
        /// `[rank, columns]`; anything if `rank` is 0
        b: InMap<bf16>,
        /// `[columns]` if the kernel adds a bias, else empty
        bias: In<f32>,
        /// `[rows, columns]` if the kernel adds one, else empty
        residual: In<bf16>,
        /// `[1]`: what the products are multiplied by. It is in memory, so that a graph freezes no factor of a batch.
        factor: In<f32>,
        /// `[rows, columns]`
        y: OutMap<bf16>,
        /// Tokens.
        rows: u32,
        /// Length of a row of `y`, a multiple of 8.
        columns: u32,
        /// Length of a row of `x`, a multiple of 8.
        depth: u32,
        /// Rank of the adapter, a multiple of 8; 0 without one.
        rank: u32,
        /// Blocks, as many as the device has multiprocessors.
        blocks: u32,
    }
}

/// The kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraLinear {
    /// NT or NN.
    pub form: Form,
    /// Columns of a tile: a multiple of 64 up to 256.
    pub tile: u32,
    /// Whether a bias is added.
    pub bias: bool,
    /// Whether a residual is added.
    pub residual: bool,
}

args! {
    /// Arguments of [`Logits`].
    pub struct LogitsArgs {
        /// `[rows, depth]`
        x: InMap<bf16>,
        /// `[columns, depth]`
        w: InMap<bf16>,
        /// `[rows, columns]`
        y: Out<f32>,
        /// Tokens.
        rows: u32,
        /// Rows of the vocabulary, a multiple of 2.
        columns: u32,
        /// Length of a row of `x`, a multiple of 8.
        depth: u32,
        /// Blocks, as many as the device has multiprocessors.
        blocks: u32,
    }
}

/// `y = x W^T` in `f32`, in the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logits;

/// Rows of `x` that a warpgroup multiplies, and elements of `depth` in a stage.
const X: TileOf<bf16> = TileOf::new(64, DEPTH, Swizzle::B128);
const DEPTH: u32 = 64;
/// What leaves at a time.
const Y: TileOf<bf16> = TileOf::new(64, 64, Swizzle::B128);
/// Warpgroups that multiply.
const GROUPS: u32 = 2;
const ROWS: u32 = GROUPS * 64;
/// Tiles of rows in a band.
const BAND: u32 = 8;
/// Shared memory of a block of sm_90 less what the barriers take, in bytes.
const SHARED: u32 = 231_424;
/// Columns of a tile of logits.
const LOGITS: u32 = 256;

/// A product by tiles: what both kernels share.
struct Tiled<'k> {
    k: Builder<'k>,
    shape: Product<'k>,
    ring: Ring<'k>,
    /// Columns of a tile.
    tile: u32,
}

/// The sizes of `y`.
#[derive(Clone, Copy)]
struct Product<'k> {
    rows: U32<'k>,
    columns: U32<'k>,
}

/// Operands, of which the inner dimension may be that of the columns or of the rows.
#[derive(Clone, Copy)]
struct Pair<'k> {
    left: Tiles<'k, bf16, Read>,
    right: Tiles<'k, bf16, Read>,
    /// Whether the inner dimension of the right one is that of its rows.
    by_rows: bool,
    depth: U32<'k>,
}

/// Stages of tiles with so many columns, beside so many bytes.
const fn ring(tile: u32, beside: u32) -> RingShape {
    let bytes = GROUPS * X.bytes() + tile * DEPTH * 2;
    let most = (SHARED - beside) / bytes;
    RingShape { stages: if most < 6 { most } else { 6 }, bytes, readers: 4 * GROUPS, blocks: 1 }
}

/// The tile of a right operand of so many columns.
const fn right(tile: u32, by_rows: bool) -> TileOf<bf16> {
    match by_rows {
        true => TileOf::new(DEPTH, tile, Swizzle::B128),
        false => TileOf::new(tile, DEPTH, Swizzle::B128),
    }
}

impl<'k> Tiled<'k> {
    /// Makes the ring in this memory. All threads of the block.
    fn new(k: Builder<'k>, memory: Ptr<'k, u8, Shared>, tile: u32, beside: u32, shape: Product<'k>) -> Self {
        let ring = k.ring(memory, ring(tile, beside));
        k.when(k.tid().eq(0), || ring.init());
        k.barrier();
        Tiled { k, shape, ring, tile }
    }

    /// Runs `body` with the first row and column of each tile of the block.
    fn each_tile(&self, body: impl FnOnce(U32<'k>, U32<'k>)) {
        let Product { rows, columns, .. } = self.shape;
        let (down, across) = ((rows + (ROWS - 1)) / ROWS, (columns + (self.tile - 1)) / self.tile);
        let k = self.k;
        k.for_each(k.ctaid(), down * across, k.nctaid(), |tile| {
            let band = tile / (across * BAND);
            let (first, within) = (band * BAND, tile - band * (across * BAND));
            let height = (down - first).min(BAND);
            body((first + within % height) * ROWS, within / height * self.tile);
        })
    }

    /// The thread that asks for copies.
    fn load(&self, pairs: &[Pair<'k>]) {
        let mut at = self.ring.start();
        self.each_tile(|row, column| {
            for pair in pairs {
                self.k.for_each(0, pair.depth, DEPTH, |depth| {
                    self.ring.fill(&mut at, |stage, landed| {
                        for group in 0..GROUPS {
                            let x = pair.left.at(stage.at(group * X.bytes()));
                            x.load(depth, row + 64 * group, landed);
                        }
                        let right = pair.right.at(stage.at(GROUPS * X.bytes()));
                        let [first, second] = if pair.by_rows { [column, depth] } else { [depth, column] };
                        right.load(first, second, landed);
                    })
                });
            }
        })
    }

    /// A warpgroup that multiplies: `store` gets the sums of its rows, and the tile's first row and column. The first
    /// pair has a depth above 0.
    fn multiply(
        &self,
        pairs: &[Pair<'k>],
        group: U32<'k>,
        store: impl Fn(&mut Accumulators<'k, f32>, U32<'k>, U32<'k>),
    ) {
        let (k, ring) = (self.k, &self.ring);
        let mut at = ring.start();
        let mut sums = Accumulators::zero(k, self.tile);
        self.each_tile(|row, column| {
            for (i, pair) in pairs.iter().enumerate() {
                k.for_each(0, pair.depth, DEPTH, |depth| {
                    let stage = ring.wait(&at);
                    let x = pair.left.at(stage.row(group, X.bytes())).by_columns();
                    let w = pair.right.at(stage.at(GROUPS * X.bytes()));
                    let w = if pair.by_rows { w.by_rows() } else { w.by_columns() };
                    k.wgmma_fence();
                    let later = if i == 0 { depth.ne(0) } else { k.always() };
                    sums.multiply_tiles(x, w, later);
                    k.wgmma_commit();
                    // All but these are done, so the stage before has been read.
                    k.wgmma_wait(1);
                    match i {
                        0 => _ = k.when(depth.ne(0), || ring.release_before(&at)),
                        _ => ring.release_before(&at),
                    }
                    ring.advance(&mut at);
                });
            }
            k.wgmma_wait(0);
            ring.release_before(&at);
            store(&mut sums, row + group * 64, column);
        });
    }
}

/// What the tensor maps of a [`LoraLinear`] copy.
#[derive(Clone, Copy)]
pub struct MapTiles {
    /// Of `x` and `u`.
    pub x: TileOf<bf16>,
    /// Of `w`.
    pub w: TileOf<bf16>,
    /// Of `b`.
    pub b: TileOf<bf16>,
    /// Of `y`.
    pub y: TileOf<bf16>,
}

impl Logits {
    /// What the tensor map of `x` copies.
    pub const X: TileOf<bf16> = X;
    /// What the tensor map of `w` copies.
    pub const W: TileOf<bf16> = right(LOGITS, false);
}

impl LoraLinear {
    /// Columns of a tile. Which is best depends on the shape of `y` and on the device's multiprocessors.
    pub const TILES: [u32; 4] = [256, 192, 128, 64];

    /// What the tensor maps copy.
    pub fn map_tiles(&self) -> MapTiles {
        MapTiles { x: X, w: right(self.tile, self.form == Form::Nn), b: right(self.tile, true), y: Y }
    }

    /// Tiles of a product of so many rows and columns.
    pub fn tiles(&self, rows: u32, columns: u32) -> u32 {
        rows.div_ceil(ROWS) * columns.div_ceil(self.tile)
    }

    fn ring(&self) -> RingShape {
        ring(self.tile, GROUPS * Y.bytes())
    }

    fn pairs<'k>(&self, a: &LoraLinearArgs<Dev<'k>>) -> [Pair<'k>; 2] {
        let by_rows = self.form == Form::Nn;
        let of = |left: TensorMap<'k, bf16, Read>, right: Tiles<'k, bf16, Read>, by_rows, depth| Pair {
            left: left.of(X),
            right,
            by_rows,
            depth,
        };
        [
            of(a.x, a.w.of(right(self.tile, by_rows)), by_rows, a.depth),
            of(a.u, a.b.of(right(self.tile, true)), true, a.rank),
        ]
    }

    /// What is done with the sums of 64 rows before they are rounded. A lane has pairs of columns of two rows.
    fn finish<'k>(
        &self,
        k: Builder<'k>,
        a: &LoraLinearArgs<Dev<'k>>,
        sums: &mut Accumulators<'k, f32>,
        [row, column]: [U32<'k>; 2],
    ) {
        let (factor, lane) = (a.factor.ld(), k.lane());
        let row = row + ((k.tid() & 127) / 32 * 16 + (lane >> 2));
        let column = column + (lane & 3) * 2;
        for eight in 0..self.tile / 8 {
            if eight % 8 == 0 {
                k.note("factor, bias and residual of 64 columns");
            }
            let column = column + 8 * eight;
            let inside = column.lt(a.columns);
            let mut bias = [k.var(0.0), k.var(0.0)];
            if self.bias {
                a.bias.at(column).ld2_if(inside, &mut bias);
            }
            for half in 0..2 {
                let mut residual = k.var(0u32);
                if self.residual {
                    let row = row + 8 * half;
                    let from = a.residual.at(row * a.columns + column).cast::<u32>();
                    from.ld_if(inside & row.lt(a.rows), &mut residual);
                }
                let residual = residual.get();
                let added = [residual << 16, residual & 0xffff_0000].map(|bits| bits.bits::<f32>());
                for (i, added) in added.into_iter().enumerate() {
                    let sum = &mut sums.0[(4 * eight + 2 * half) as usize + i];
                    sum.set(sum.get().fma(factor, bias[i].get() + added));
                }
            }
        }
    }
}

impl KernelDef for LoraLinear {
    type Args<S: Side> = LoraLinearArgs<S>;

    fn name(&self) -> String {
        let form = if self.form == Form::Nn { "nn" } else { "nt" };
        let bias = if self.bias { "_bias" } else { "" };
        let residual = if self.residual { "_residual" } else { "" };
        format!("train_linear_{form}_{}{bias}{residual}", self.tile)
    }

    fn block(&self) -> u32 {
        128 * (1 + GROUPS)
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(1)
    }

    fn grid(&self, a: &LoraLinearArgs<Shape>) -> Result<Grid, ShapeError> {
        self.require(self.form != Form::Tn, || "there is no form TN of it".into())?;
        self.range("rows", a.rows, 1, 1 << 24)?;
        self.range("blocks", a.blocks, 1, 1 << 16)?;
        self.multiple("columns", a.columns, 8)?;
        self.multiple("depth", a.depth, 8)?;
        self.require(a.rank.is_multiple_of(8), || format!("rank is {}, must be a multiple of 8", a.rank))?;
        self.length("x", a.x, "rows * depth", &[a.rows, a.depth])?;
        self.length("w", a.w, "columns * depth", &[a.columns, a.depth])?;
        if a.rank > 0 {
            self.length("u", a.u, "rows * rank", &[a.rows, a.rank])?;
            self.length("b", a.b, "rank * columns", &[a.rank, a.columns])?;
        }
        self.length("bias", a.bias, "columns", &[if self.bias { a.columns } else { 0 }])?;
        let residual = if self.residual { a.rows } else { 0 };
        self.length("residual", a.residual, "rows * columns", &[residual, a.columns])?;
        self.exactly("factor", a.factor, 1)?;
        self.length("y", a.y, "rows * columns", &[a.rows, a.columns])?;
        let tiles = self.tiles(a.rows, a.columns);
        let shared = self.ring().memory() + GROUPS * Y.bytes();
        Ok(Grid { shared, ..Grid::line(tiles.min(a.blocks)) })
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraLinearArgs<Dev<'k>>) {
        let memory = k.tile_memory("tiles");
        let shape = Product { rows: a.rows, columns: a.columns };
        let tiled = Tiled::new(k, memory, self.tile, GROUPS * Y.bytes(), shape);
        let pairs = self.pairs(&a);
        let out = memory.at(self.ring().memory());
        let multiply = |group: U32<'k>| {
            let y = a.y.of(Y).at(out.row(group, Y.bytes()));
            let first = (k.tid() & 127).eq(0);
            // A barrier of the threads of the warpgroup.
            let together =
                || k.when(group.eq(0), || k.barrier_part(1, 128)).otherwise(|| k.barrier_part(2, 128));
            tiled.multiply(&pairs, group, |sums, row, column| {
                self.finish(k, &a, sums, [row, column]);
                k.note("round, and store 64 columns at a time");
                for from in (0..self.tile).step_by(64) {
                    k.when(first, || k.wait_stores_read(0));
                    together();
                    y.put(sums, from);
                    k.fence_async();
                    together();
                    k.when(first, || {
                        y.store(column + from, row);
                        k.commit_stores();
                    });
                }
            });
            k.when(first, || k.wait_stores(0));
        };
        k.roles(vec![
            Role::new(1, 40, |_| _ = k.when(k.tid().eq(0), || tiled.load(&pairs))),
            Role::new(GROUPS, 232, multiply),
        ]);
    }

    fn reference(&self, a: LoraLinearArgs<Cpu<'_>>) {
        let (columns, depth, rank) = (a.columns as usize, a.depth as usize, a.rank as usize);
        let mut y = vec![0.0; a.rows as usize * columns];
        let (x, w) = (wide(a.x), wide(a.w));
        match self.form {
            Form::Nt => nt(&x, &w, depth, &mut y),
            _ => nn(&x, &w, columns, &mut y),
        }
        if rank > 0 {
            nn(&wide(a.u), &wide(a.b), columns, &mut y);
        }
        y.iter_mut().for_each(|y| *y *= f64::from(a.factor[0]));
        // Empty, if the kernel adds none.
        let bias: Vec<f64> = a.bias.iter().copied().map(f64::from).collect();
        y.chunks_exact_mut(columns).for_each(|y| add_scaled(1.0, &bias, y));
        add_scaled(1.0, &wide(a.residual), &mut y);
        narrow(&y, a.y);
    }
}

impl KernelDef for Logits {
    type Args<S: Side> = LogitsArgs<S>;

    fn name(&self) -> String {
        "train_logits".into()
    }

    fn block(&self) -> u32 {
        128 * (1 + GROUPS)
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(1)
    }

    fn grid(&self, a: &LogitsArgs<Shape>) -> Result<Grid, ShapeError> {
        self.range("rows", a.rows, 1, 1 << 24)?;
        self.range("blocks", a.blocks, 1, 1 << 16)?;
        self.multiple("columns", a.columns, 2)?;
        self.multiple("depth", a.depth, 8)?;
        self.length("x", a.x, "rows * depth", &[a.rows, a.depth])?;
        self.length("w", a.w, "columns * depth", &[a.columns, a.depth])?;
        self.length("y", a.y, "rows * columns", &[a.rows, a.columns])?;
        let tiles = a.rows.div_ceil(ROWS) * a.columns.div_ceil(LOGITS);
        Ok(Grid { shared: ring(LOGITS, 0).memory(), ..Grid::line(tiles.min(a.blocks)) })
    }

    fn program<'k>(&self, k: Builder<'k>, a: LogitsArgs<Dev<'k>>) {
        let memory = k.tile_memory("tiles");
        let shape = Product { rows: a.rows, columns: a.columns };
        let tiled = Tiled::new(k, memory, LOGITS, 0, shape);
        let (left, right) = (a.x.of(X), a.w.of(right(LOGITS, false)));
        let pairs = [Pair { left, right, by_rows: false, depth: a.depth }];
        let multiply = |group: U32<'k>| {
            tiled.multiply(&pairs, group, |sums, row, column| {
                let lane = k.lane();
                let row = row + ((k.tid() & 127) / 32 * 16 + (lane >> 2));
                let column = column + (lane & 3) * 2;
                for eight in 0..LOGITS / 8 {
                    if eight % 8 == 0 {
                        k.note("store 64 columns");
                    }
                    for half in 0..2 {
                        let (row, column) = (row + 8 * half, column + 8 * eight);
                        let at = (4 * eight + 2 * half) as usize;
                        k.when(row.lt(a.rows) & column.lt(a.columns), || {
                            a.y.at(row * a.columns + column).st2([0, 1].map(|i| sums.0[at + i].get()));
                        });
                    }
                }
            });
        };
        k.roles(vec![
            Role::new(1, 40, |_| _ = k.when(k.tid().eq(0), || tiled.load(&pairs))),
            Role::new(GROUPS, 232, multiply),
        ]);
    }

    fn reference(&self, a: LogitsArgs<Cpu<'_>>) {
        let mut y = vec![0.0; a.y.len()];
        nt(&wide(a.x), &wide(a.w), a.depth as usize, &mut y);
        a.y.iter_mut().zip(&y).for_each(|(to, &y)| *to = y as f32);
    }
}

/// The sum of a product's magnitudes is at most this many times its largest, and tensor cores cut off: a bound on what
/// sums of numbers from -1 to 1 lose, beside the rounding of `y`.
const BOUND: f64 = 2e-6;

fn matrix(random: &mut Random, rows: u32, columns: u32) -> CpuArg {
    let number = |_| bf16::from_f32(random.unit());
    CpuArg::Bf16((0..rows * columns).map(number).collect())
}

impl Variant for LoraLinear {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |[rows, columns, depth, rank, blocks]: [u32; 5]| {
            let mut random = Random(seed);
            let residual = if self.residual { rows } else { 0 };
            let args = vec![
                matrix(&mut random, rows, depth),
                matrix(&mut random, columns, depth),
                matrix(&mut random, rows, rank.max(8)),
                matrix(&mut random, rank.max(8), columns),
                CpuArg::F32(random.units(if self.bias { columns as usize } else { 0 })),
                matrix(&mut random, residual, columns),
                CpuArg::F32(vec![0.5]),
                matrix(&mut random, rows, columns),
                CpuArg::scalar(rows),
                CpuArg::scalar(columns),
                CpuArg::scalar(depth),
                CpuArg::scalar(rank),
                CpuArg::scalar(blocks),
            ];
            let label = format!("rows={rows} columns={columns} depth={depth} rank={rank} blocks={blocks}");
            Case { label, args, bound: BOUND }
        };
        let mut cases = vec![[1, 8, 8, 0, 1], [64, 72, 200, 72, 1]];
        if self.tile == 128 {
            cases.push([130, 136, 136, 8, 2]);
        }
        if !self.bias && !self.residual {
            // Two bands of rows, of which the last is short; a block has several tiles.
            cases.push([1100, self.tile + 8, 8, 0, 3]);
        }
        cases.into_iter().map(case).collect()
    }

    fn map_dims(&self, param: &str, args: &[CpuArg]) -> Option<[u32; 2]> {
        let [rows, columns, depth, rank] = [8, 9, 10, 11].map(|i| scalar(&args[i]));
        Some(match param {
            "x" => [rows, depth],
            "w" if self.form == Form::Nt => [columns, depth],
            "w" => [depth, columns],
            "u" => [rows, rank.max(8)],
            "b" => [rank.max(8), columns],
            _ => [rows, columns],
        })
    }
}

impl Variant for Logits {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |[rows, columns, depth, blocks]: [u32; 4]| {
            let mut random = Random(seed);
            let args = vec![
                matrix(&mut random, rows, depth),
                matrix(&mut random, columns, depth),
                CpuArg::F32(vec![0.0; (rows * columns) as usize]),
                CpuArg::scalar(rows),
                CpuArg::scalar(columns),
                CpuArg::scalar(depth),
                CpuArg::scalar(blocks),
            ];
            let label = format!("rows={rows} columns={columns} depth={depth} blocks={blocks}");
            Case { label, args, bound: BOUND }
        };
        [[1, 2, 8, 1], [130, 266, 136, 2]].map(case).into()
    }

    fn map_dims(&self, param: &str, args: &[CpuArg]) -> Option<[u32; 2]> {
        let [rows, columns, depth] = [3, 4, 5].map(|i| scalar(&args[i]));
        Some(if param == "x" { [rows, depth] } else { [columns, depth] })
    }
}

fn scalar(arg: &CpuArg) -> u32 {
    match arg {
        CpuArg::Scalar(bits) => *bits as u32,
        _ => 0,
    }
}
