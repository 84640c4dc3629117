//! `y = W x` for many tokens: weights of any format of tiles, unpacked into registers, times panels of activations in
//! shared memory, on the tensor cores of sm_90.
//!
//! A block of three warpgroups computes 128 rows for [`Matmul::tokens`] tokens at a time, and takes one such job after
//! another. Two producer warps copy tiles of weights and panels of activations into two rings. Each of the eight
//! consumer warps unpacks the tiles of its 16 rows; four warps together are the left operand of a `wgmma`, in registers.
//! While the tensor cores multiply 64 columns, a warp unpacks the next 64.
//!
//! The sums are added in the order of the columns by one warpgroup, so a row's bits depend on its own token alone.

use super::activations::{PANEL, TOKENS};
use super::epilogue::{Epilogue, Sums};
use crate::contract::Contract;
use crate::format::Format;
use crate::format::dequantize::{Dequantizer, SET};
use crate::format::tile::{self, ROWS, RowOrder};
use ptx_gen::*;

/// Row blocks of a job, one for each consumer warp.
const ROW_BLOCKS: u32 = 8;
/// Warps that multiply.
const CONSUMERS: u32 = 8;
/// All threads: two warpgroups that multiply, and one that copies.
const THREADS: u32 = 384;
/// Registers of a thread that copies, and of one that multiplies: together at most `THREADS * 168`.
const FEW: u32 = 40;
const MANY: u32 = 232;
/// Shared memory of a block of sm_90.
const SHARED: u32 = 232_448;
/// The barriers of the rings, before the stages, which are aligned to 1024.
const BARRIERS: u32 = 1024;
/// Stages of the ring of panels, at most.
const MAX_STAGES: u32 = 8;

/// The kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Matmul {
    /// The format of `W`.
    pub format: Format,
    /// What is done with the sums.
    pub epilogue: Epilogue,
    /// Which row of the result a row of a tile is.
    pub rows: RowOrder,
    /// Tokens of a job, a multiple of 8 up to 256.
    pub tokens: u32,
}

args! {
    /// Arguments of [`Matmul`].
    pub struct MatmulArgs {
        /// Tiles of `[rows, n]`
        w: In<u8>,
        /// `[rows]`: the power of two of each row, in the order of the tiles.
        unit: In<f32>,
        /// `[n / 64, capacity, 64]`: see [`activations`]
        x: In<f16>,
        /// `[capacity]`: what each token's sums are multiplied by.
        x_scale: In<f32>,
        /// `[capacity]`: the sum of the squares of each token's activations, if the epilogue asks for it; else empty.
        squares: In<f32>,
        /// What becomes of the sums, `[capacity, y_rows]`: added to, or stored.
        y: InOut<f32>,
        /// The gated activations, `[y_rows / 64, capacity, 64]`, if the epilogue makes them; else empty.
        gated: Out<f16>,
        /// `[capacity]`: their scales.
        gated_scale: Out<f32>,
        /// What bounds the gated activations: see [`Epilogue::Gated`].
        bound: f32,
        /// Rows of the matrix, a multiple of 16.
        rows: u32,
        /// Columns, a multiple of the tile's.
        n: u32,
        /// Rows of `y`, of which the product has some.
        y_rows: u32,
        /// The first of them.
        y_first: u32,
        /// Tokens.
        tokens_given: u32,
        /// Tokens that buffers have room for, a multiple of the kernel's.
        capacity: u32,
        /// Blocks of the grid.
        blocks: u32,
    }
}

/// The stages of both rings.
#[derive(Clone, Copy)]
struct Stages {
    weights: u32,
    weight_bytes: u32,
    panels: u32,
    panel_bytes: u32,
}

impl Stages {
    fn shared(&self) -> u32 {
        BARRIERS + self.weights * self.weight_bytes.next_multiple_of(1024) + self.panels * self.panel_bytes
    }
}

impl Matmul {
    /// As many stages as fit: at least four panels and two of weights, then weights up to four.
    fn stages(&self) -> Stages {
        let panel_bytes = self.tokens * 2 * PANEL;
        let weight_bytes = ROW_BLOCKS * tile::of(self.format).bytes;
        let mut stages = Stages { weights: 2, weight_bytes, panels: 4, panel_bytes };
        loop {
            let more = [
                Stages { weights: stages.weights + 1, ..stages },
                Stages { panels: stages.panels + 2, ..stages },
            ];
            let fits = |s: &&Stages| s.shared() <= SHARED && s.weights <= 4 && s.panels <= MAX_STAGES;
            match more.iter().find(fits) {
                Some(&next) => stages = next,
                None => return stages,
            }
        }
    }

    /// Jobs for a matrix of so many rows and so many tokens.
    pub fn jobs(&self, rows: u32, tokens: u32) -> u32 {
        (rows / ROWS).div_ceil(ROW_BLOCKS) * tokens.div_ceil(self.tokens)
    }
}

impl KernelDef for Matmul {
    type Args<S: Side> = MatmulArgs<S>;

    fn name(&self) -> String {
        let RowOrder { per, stride, step, delta } = self.rows;
        let order = match self.rows {
            RowOrder::PLAIN => String::new(),
            RowOrder::GATE_UP => String::new(),
            _ => format!("_rows{per}_{stride}_{step}_{delta}"),
        };
        format!("matmul_{}_{}_{}{order}", self.epilogue.name(), self.format.suffix(), self.tokens)
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(1)
    }

    fn grid(&self, a: &MatmulArgs<Shape>) -> Result<Grid, ShapeError> {
        let tile = tile::of(self.format);
        self.multiple("the kernel's tokens", self.tokens, TOKENS)?;
        self.range("the kernel's tokens", self.tokens, TOKENS, 256)?;
        self.multiple("rows", a.rows, self.rows.stride.max(ROWS))?;
        self.multiple("n", a.n, tile.columns)?;
        self.multiple("n", a.n, SET)?;
        self.multiple("capacity", a.capacity, self.tokens)?;
        self.range("tokens_given", a.tokens_given, 1, a.capacity)?;
        let tiles = (a.rows / ROWS) as usize * (a.n / tile.columns) as usize;
        self.exactly("w", a.w, tiles * tile.bytes as usize)?;
        self.length("unit", a.unit, "rows", &[a.rows])?;
        self.length("x", a.x, "capacity * n", &[a.capacity, a.n])?;
        self.length("x_scale", a.x_scale, "capacity", &[a.capacity])?;
        self.epilogue.contract(self, a)?;
        self.range("blocks", a.blocks, 1, 1 << 16)?;
        let blocks = a.blocks.min(self.jobs(a.rows, a.tokens_given));
        Ok(Grid { shared: self.stages().shared(), ..Grid::line(blocks) })
    }

    fn program<'k>(&self, k: Builder<'k>, a: MatmulArgs<Dev<'k>>) {
        k.note("shared memory: barriers, weights, panels of activations");
        let stages = self.stages();
        let base = k.tile_memory("memory");
        let rings = Rings { base, stages };
        let weights = rings.weights();
        let panels = rings.panels();
        k.when(k.tid().eq(0), || {
            weights.init(CONSUMERS);
            panels.init(CONSUMERS);
            k.fence_mbarriers();
        });
        k.barrier();
        let row_jobs = (a.rows / ROWS + (ROW_BLOCKS - 1)) / ROW_BLOCKS;
        let token_jobs = (a.tokens_given + (self.tokens - 1)) / self.tokens;
        let jobs = Jobs { k, row_jobs, token_jobs };
        let block = Block { k, matmul: self, a: &a, jobs, weights, panels };
        k.when(k.warpgroup().eq(CONSUMERS / 4), || {
            k.give_registers(FEW);
            k.when(k.tid().eq(32 * CONSUMERS), || block.copy_weights());
            k.when(k.tid().eq(32 * (CONSUMERS + 1)), || block.copy_panels());
        })
        .otherwise(|| {
            k.take_registers(MANY);
            block.multiply();
        });
    }

    fn reference(&self, a: MatmulArgs<Cpu<'_>>) {
        super::epilogue::reference(self, a);
    }
}

/// Both rings.
struct Rings<'k> {
    base: Ptr<'k, u8, Shared>,
    stages: Stages,
}

impl<'k> Rings<'k> {
    fn weights(&self) -> Ring<'k> {
        let Stages { weights, weight_bytes, .. } = self.stages;
        let size = weight_bytes.next_multiple_of(1024);
        Ring { barriers: self.base, first: self.base.at(BARRIERS), size, count: weights }
    }

    fn panels(&self) -> Ring<'k> {
        let Stages { panels, panel_bytes, .. } = self.stages;
        let weights = self.weights();
        let first = weights.first.at(weights.size * weights.count);
        Ring { barriers: self.base.at(BARRIERS / 2), first, size: panel_bytes, count: panels }
    }
}

/// Stages in shared memory, each with a barrier that says it is full, and one that says it is empty.
struct Ring<'k> {
    barriers: Ptr<'k, u8, Shared>,
    first: Ptr<'k, u8, Shared>,
    size: u32,
    count: u32,
}

impl<'k> Ring<'k> {
    fn init(&self, consumers: u32) {
        for stage in 0..self.count {
            self.barriers.at(16 * stage).cast::<u64>().mbarrier().init(1);
            self.barriers.at(16 * stage + 8).cast::<u64>().mbarrier().init(consumers);
        }
    }

    fn full(&self, at: &Cursor<'k>) -> Mbarrier<'k> {
        self.barriers.row(&at.stage, 16).cast::<u64>().mbarrier()
    }

    fn empty(&self, at: &Cursor<'k>) -> Mbarrier<'k> {
        self.barriers.row(&at.stage, 16).at(8).cast::<u64>().mbarrier()
    }

    fn stage(&self, at: &Cursor<'k>) -> Ptr<'k, u8, Shared> {
        self.first.row(&at.stage, self.size)
    }

    fn step(&self, k: Builder<'k>, at: &mut Cursor<'k>) {
        at.stage += 1;
        k.when(at.stage.get().ge(self.count), || {
            at.stage.set(0);
            at.parity ^= 1;
        });
    }
}

/// A position in a ring: a stage, and the parity of its phase.
struct Cursor<'k> {
    stage: Var<'k, u32>,
    parity: Var<'k, u32>,
}

impl<'k> Cursor<'k> {
    fn new(k: Builder<'k>) -> Self {
        Cursor { stage: k.var(0), parity: k.var(0) }
    }
}

/// Which rows and tokens a job is of: all tokens of the same rows follow each other.
struct Jobs<'k> {
    k: Builder<'k>,
    row_jobs: U32<'k>,
    token_jobs: U32<'k>,
}

impl<'k> Jobs<'k> {
    /// Each job of this block: the number of its rows, the number of its tokens.
    fn each(&self, job: impl FnOnce(U32<'k>, U32<'k>)) {
        let k = self.k;
        let (all, blocks) = (self.row_jobs * self.token_jobs, k.nctaid());
        k.for_each(k.ctaid(), all, blocks, |i| job(i / self.token_jobs, i % self.token_jobs));
    }
}

/// A block's view of the product.
struct Block<'a, 'k> {
    k: Builder<'k>,
    matmul: &'a Matmul,
    a: &'a MatmulArgs<Dev<'k>>,
    jobs: Jobs<'k>,
    weights: Ring<'k>,
    panels: Ring<'k>,
}

impl<'k> Block<'_, 'k> {
    fn row_tiles(&self) -> U32<'k> {
        self.a.n / tile::of(self.matmul.format).columns
    }

    /// One thread: copies the tiles of each job's row blocks, column after column.
    fn copy_weights(&self) {
        let (k, bytes) = (self.k, tile::of(self.matmul.format).bytes);
        k.note("producer of weights");
        let mut at = Cursor::new(k);
        let policy = k.evict_first();
        let (row_tiles, last) = (self.row_tiles(), self.a.rows / ROWS - 1);
        self.jobs.each(|rows, _| {
            let sources: Vec<_> = (0..ROW_BLOCKS)
                .map(|i| {
                    // Row blocks past the end are read as the last one, and not stored.
                    let block = (rows * ROW_BLOCKS + i).min(last);
                    self.a.w.row(block * row_tiles, bytes)
                })
                .collect();
            k.for_each(0, row_tiles, 1, |column| {
                self.weights.empty(&at).wait(at.parity.get() ^ 1);
                let (stage, full) = (self.weights.stage(&at), self.weights.full(&at));
                full.arrive_expect(ROW_BLOCKS * bytes);
                for (i, source) in (0..).zip(&sources) {
                    source.row(column, bytes).bulk_copy(stage.at(i * bytes), bytes, full, policy);
                }
                self.weights.step(k, &mut at);
            });
        });
    }

    /// One thread: copies the panels of each job's tokens.
    fn copy_panels(&self) {
        let (k, tokens) = (self.k, self.matmul.tokens);
        k.note("producer of activations");
        let mut at = Cursor::new(k);
        let policy = k.evict_last();
        let panels = self.a.n / PANEL;
        self.jobs.each(|_, token_job| {
            let first = token_job * tokens;
            k.for_each(0, panels, 1, |panel| {
                self.panels.empty(&at).wait(at.parity.get() ^ 1);
                let full = self.panels.full(&at);
                full.arrive_expect(tokens * 2 * PANEL);
                let source = self.a.x.row(panel.mad(self.a.capacity, first), 2 * PANEL).cast::<u8>();
                source.bulk_copy(self.panels.stage(&at), tokens * 2 * PANEL, full, policy);
                self.panels.step(k, &mut at);
            });
        });
    }

    /// A consumer warp: all its jobs.
    fn multiply(&self) {
        let k = self.k;
        let mut sums = Accumulators::zero(k, self.matmul.tokens);
        let (mut weights, mut panels) = (Cursor::new(k), Cursor::new(k));
        self.jobs.each(|rows, token_job| {
            let row_block = rows * ROW_BLOCKS + k.warp();
            self.job(row_block, &mut sums, [&mut weights, &mut panels]);
            k.note("epilogue");
            let at = Sums { k, row_block, token: token_job * self.matmul.tokens, sums: &sums };
            self.matmul.epilogue.store(self.matmul, self.a, at);
        });
    }

    /// The sums of a job.
    fn job(
        &self,
        row_block: U32<'k>,
        sums: &mut Accumulators<'k, f32>,
        [weights, panels]: [&mut Cursor<'k>; 2],
    ) {
        let (k, format) = (self.k, self.matmul.format);
        let dequantizer = self.dequantizer(row_block);
        let (leader, always) = (k.lane().eq(0), k.always());
        let (mut before, mut running) = (k.var(0), k.var(0));
        k.for_each(0, self.row_tiles(), 1, |column| {
            k.note("a tile of each warp");
            self.weights.full(weights).wait(&weights.parity);
            let tile = self.weights.stage(weights).row(k.warp(), tile::of(format).bytes);
            let scales = dequantizer.scales(tile);
            for set in 0..dequantizer.sets() {
                let codes = dequantizer.codes(tile, set);
                for half in 0..2 {
                    k.note("unpack 64 columns, multiply them");
                    let steps = 4 * half..4 * half + 4;
                    let a: Vec<A> = steps
                        .map(|i| dequantizer.fragment(&codes[i as usize], &scales, 8 * set + i))
                        .collect();
                    if set + 1 == dequantizer.sets() && half == 1 {
                        k.warp_barrier();
                        k.when(leader, || self.weights.empty(weights).arrive());
                    }
                    self.panels.full(panels).wait(&panels.parity);
                    let at = self.panels.stage(panels);
                    let x = Descriptor::<f16>::by_columns(at, self.matmul.tokens, PANEL, Swizzle::B128);
                    k.wgmma_fence();
                    for (i, a) in (0..).zip(a) {
                        let add = if set + half + i == 0 { column.gt(0) } else { always };
                        sums.multiply_registers::<f16, f16>(a, x.inner(16 * i), add);
                    }
                    k.wgmma_commit();
                    k.wgmma_wait(1);
                    k.when(leader & running.get().gt(0), || self.give_back(&before));
                    before.set(panels.stage.get());
                    running.set(1);
                    self.panels.step(k, panels);
                }
            }
            self.weights.step(k, weights);
        });
        k.wgmma_wait(0);
        k.when(leader, || self.give_back(&before));
    }

    /// With the powers of two of the lane's rows.
    fn dequantizer(&self, row_block: U32<'k>) -> Dequantizer<'k> {
        let last = self.a.rows / ROWS - 1;
        let row = row_block.min(last) * ROWS + (self.k.lane() >> 2);
        let unit = [0, 8].map(|r| self.a.unit.at(row).at(r).ld());
        Dequantizer::new(self.k, self.matmul.format, unit)
    }

    /// Says that this warp has read a panel.
    fn give_back(&self, stage: &Var<'k, u32>) {
        self.panels.barriers.row(stage, 16).at(8).cast::<u64>().mbarrier().arrive();
    }
}
