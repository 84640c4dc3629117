//! `y = W x` for many tokens: weights of any format of tiles, unpacked into registers, times panels of activations in
//! shared memory, on the tensor cores of sm_90.
//!
//! A block of three warpgroups computes 128 rows for [`Matmul::tokens`] tokens at a time, and takes one such job after
//! another; a block of five, 256 rows. Two producer warps copy tiles of weights and panels of activations into two
//! rings. Each of the other warps unpacks the tiles of its 16 rows; four warps together are the left operand of a
//! `wgmma`, in registers. While the tensor cores multiply 64 columns, a warp unpacks the next 64.
//!
//! The sums are added in the order of the columns by one warpgroup, or by one for each part of the columns and then in
//! the order of the parts. So a row's bits depend on its own token alone, and on the widths and the split.

use super::activations::{PANEL, TOKENS};
use super::append::AppendArgs;
use super::epilogue::{Epilogue, Sums};
use super::form::{BARRIERS, Form, Stages};
use super::ring::{Cursor, Ring};
use super::split::{Jobs, Part};
use crate::contract::Contract;
use crate::format::Format;
use crate::format::dequantize::{Dequantizer, SET};
use crate::format::tile::{self, ROWS, RowOrder};
use crate::overlap::Overlap;
use ptx_gen::*;

/// Tokens of a job up to which registers have room for what the epilogue needs.
const MOST_LOADED: u32 = 128;
/// Parts of the columns at most.
pub(super) const MAX_SPLIT: u32 = 16;

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
    /// Tokens of a job of the last rows, those whose jobs of `tokens` would not fill a round of the blocks: fewer than
    /// `tokens`; or 0, if all jobs are alike.
    pub tail: u32,
    /// Parts of the columns, for different blocks: 1 to 16.
    pub split: u32,
    /// How blocks divide a multiprocessor.
    pub form: Form,
    /// How it overlaps with the kernels before and after it.
    pub overlap: Overlap,
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
        /// Tokens that buffers have room for, a multiple of those of each of the kernel's jobs.
        capacity: u32,
        /// Blocks of the grid at most.
        blocks: u32,
        /// If columns are split, the sums of parts; may be longer than [`Matmul::scratch`].
        partials: InOut<f32>,
        /// If columns are split, one for each warp of a job: zero before and after; may be longer.
        tickets: InOut<u32>,
        /// For queries, keys and values.
        append: AppendArgs,
    }
}

impl MatmulArgs<Shape> {
    /// What every kernel of the product asks for: the format of its weights, the order of its rows and its tokens are
    /// given.
    pub(super) fn check(
        &self,
        kernel: &impl Contract,
        (format, rows, tokens): (Format, RowOrder, u32),
        epilogue: Epilogue,
    ) -> Result<(), ShapeError> {
        let tile = tile::of(format);
        kernel.multiple("rows", self.rows, rows.stride.max(ROWS))?;
        kernel.multiple("n", self.n, tile.columns)?;
        kernel.multiple("n", self.n, SET)?;
        kernel.multiple("capacity", self.capacity, tokens)?;
        kernel.range("tokens_given", self.tokens_given, 1, self.capacity)?;
        let tiles = (self.rows / ROWS) as usize * (self.n / tile.columns) as usize;
        kernel.exactly("w", self.w, tiles * tile.bytes as usize)?;
        kernel.length("unit", self.unit, "rows", &[self.rows])?;
        kernel.length("x", self.x, "capacity * n", &[self.capacity, self.n])?;
        kernel.length("x_scale", self.x_scale, "capacity", &[self.capacity])?;
        epilogue.contract(kernel, rows, self)?;
        kernel.range("blocks", self.blocks, 1, 1 << 16)
    }
}

impl Matmul {
    /// With jobs of one width, without a split or overlap, one block to a multiprocessor.
    pub const fn new(format: Format, epilogue: Epilogue, rows: RowOrder, tokens: u32) -> Matmul {
        Matmul {
            format,
            epilogue,
            rows,
            tokens,
            tail: 0,
            split: 1,
            form: Form::Whole,
            overlap: Overlap::No,
        }
    }

    /// Jobs for a matrix of so many rows and so many tokens, if all have [`tokens`](Matmul::tokens).
    pub fn jobs(&self, rows: u32, tokens: u32) -> u32 {
        (rows / ROWS).div_ceil(self.row_blocks()) * tokens.div_ceil(self.tokens)
    }

    /// What the kernel asks of its arguments.
    pub(super) fn check_all(&self, a: &MatmulArgs<Shape>) -> Result<(), ShapeError> {
        self.multiple("the kernel's tokens", self.tokens, TOKENS)?;
        self.range(
            "the kernel's tokens",
            self.tokens,
            TOKENS,
            self.form.most_tokens(),
        )?;
        a.check(self, (self.format, self.rows, self.tokens), self.epilogue)?;
        self.check_tail(a.capacity)?;
        self.range(
            "the kernel's split",
            self.split,
            1,
            MAX_SPLIT.min(a.n / tile::of(self.format).columns),
        )?;
        let [partials, tickets] = self.scratch(a.rows, a.tokens_given);
        self.room("partials", a.partials, partials)?;
        self.room("tickets", a.tickets, tickets)
    }

    /// The reference.
    pub(super) fn add_reference(&self, a: &mut MatmulArgs<Cpu<'_>>) {
        if self.split > 1 {
            super::split::reference(self, a);
        }
        super::epilogue::reference(self.format, self.epilogue, self.rows, a);
    }

    /// The format and the widths, and the split, as names have them.
    pub(super) fn name_of_matrix(&self) -> [String; 2] {
        let tail = if self.tail == 0 {
            String::new()
        } else {
            format!("_tail{}", self.tail)
        };
        let split = if self.split == 1 {
            String::new()
        } else {
            format!("_k{}", self.split)
        };
        [
            format!("{}_{}{tail}", self.format.suffix(), self.tokens),
            split,
        ]
    }

    /// Row blocks of a job, one for each warp that multiplies.
    pub(super) fn row_blocks(&self) -> u32 {
        4 * self.form.groups()
    }
}

impl KernelDef for Matmul {
    type Args<S: Side> = MatmulArgs<S>;

    fn name(&self) -> String {
        let RowOrder {
            per,
            stride,
            step,
            delta,
        } = self.rows;
        let order = match self.rows {
            RowOrder::PLAIN => String::new(),
            RowOrder::GATE_UP => String::new(),
            // The epilogue says it.
            _ if matches!(self.epilogue, Epilogue::Append(_)) => "_pairs".into(),
            _ => format!("_rows{per}_{stride}_{step}_{delta}"),
        };
        let (form, overlap) = (self.form.suffix(), self.overlap.suffix());
        let (epilogue, [matrix, split]) = (self.epilogue.name(), self.name_of_matrix());
        format!("matmul_{epilogue}_{matrix}{order}{split}{form}{overlap}")
    }

    fn block(&self) -> u32 {
        128 * (self.form.groups() + 1)
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(self.form.resident())
    }

    fn grid(&self, a: &MatmulArgs<Shape>) -> Result<Grid, ShapeError> {
        self.check_all(a)?;
        let blocks = a.blocks.min(self.items(a.rows, a.tokens_given));
        Ok(Grid {
            shared: Stages::of(self).shared(),
            ..Grid::line(blocks)
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: MatmulArgs<Dev<'k>>) {
        program(k, Stages::of(self), &[(*self, a)]);
    }

    fn reference(&self, mut a: MatmulArgs<Cpu<'_>>) {
        self.add_reference(&mut a);
    }
}

/// The program of one product, or of two with other matrices, whose blocks are of the same form.
///
/// Blocks take the jobs of the second from the last block on, as the last round of the first may leave those without one.
pub(super) fn program<'k>(k: Builder<'k>, stages: Stages, all: &[(Matmul, MatmulArgs<Dev<'k>>)]) {
    let (matmul, _) = all[0];
    k.section(
        "matmul/wgmma/shared",
        "shared memory: barriers, weights, panels of activations",
    );
    let rings = Rings {
        base: k.tile_memory("memory"),
        stages,
    };
    let (weights, panels) = (rings.weights(), rings.panels());
    matmul.overlap.start(k);
    k.when(k.tid().eq(0), || {
        // Every lane reads tiles, and releases their stage.
        weights.init(32 * matmul.row_blocks());
        panels.init(matmul.row_blocks());
        k.fence_mbarriers();
    });
    k.barrier();
    let blocks = (0..).zip(all).map(|(i, (matmul, a))| {
        let jobs = Jobs::new(k, matmul, a, i > 0);
        Block {
            k,
            matmul,
            a,
            jobs,
            weights: rings.weights(),
            panels: rings.panels(),
            depth: stages.depth,
        }
    });
    let blocks: Vec<_> = blocks.collect();
    let [many, few] = matmul.form.registers();
    k.roles(vec![
        Role::new(matmul.form.groups(), many, |_| multiply(k, &blocks)),
        Role::new(1, few, |_| copy(k, &blocks)),
    ]);
}

/// The warpgroup that copies.
fn copy<'k>(k: Builder<'k>, blocks: &[Block<'_, 'k>]) {
    let first = blocks[0].matmul.row_blocks();
    k.when(k.warp().eq(first), || {
        k.section("matmul/wgmma/weight_producer", "producer of weights");
        let mut at = Cursor::new(k);
        blocks.iter().for_each(|block| block.copy_weights(&mut at));
    });
    k.when(k.warp().eq(first + 1), || {
        k.section(
            "matmul/wgmma/activation_producer",
            "producer of activations",
        );
        if blocks[0].matmul.overlap.waits() {
            k.grid_wait();
        }
        let mut at = Cursor::new(k);
        blocks.iter().for_each(|block| block.copy_panels(&mut at));
    });
}

/// A consumer warp: all its jobs.
fn multiply<'k>(k: Builder<'k>, blocks: &[Block<'_, 'k>]) {
    let overlap = blocks[0].matmul.overlap;
    if overlap.waits() {
        k.section(
            "matmul/wgmma/overlap_wait",
            "activations, their scales and the results are other kernels' too",
        );
        k.grid_wait();
    }
    let [mut weights, mut panels] = [0, 1].map(|_| Cursor::new(k));
    blocks
        .iter()
        .for_each(|block| block.multiply([&mut weights, &mut panels]));
    overlap.end(k);
}

/// Both rings.
struct Rings<'k> {
    base: Ptr<'k, u8, Shared>,
    stages: Stages,
}

impl<'k> Rings<'k> {
    fn weights(&self) -> Ring<'k> {
        let Stages {
            weights,
            weight_bytes,
            ..
        } = self.stages;
        let size = weight_bytes.next_multiple_of(1024);
        Ring {
            barriers: self.base,
            first: self.base.at(BARRIERS),
            size,
            count: weights,
        }
    }

    fn panels(&self) -> Ring<'k> {
        let Stages {
            panels,
            panel_bytes,
            ..
        } = self.stages;
        let weights = self.weights();
        let first = weights.first.at(weights.size * weights.count);
        Ring {
            barriers: self.base.at(BARRIERS / 2),
            first,
            size: panel_bytes,
            count: panels,
        }
    }
}

/// A block's view of the product.
struct Block<'a, 'k> {
    k: Builder<'k>,
    matmul: &'a Matmul,
    a: &'a MatmulArgs<Dev<'k>>,
    jobs: Jobs<'a, 'k>,
    weights: Ring<'k>,
    panels: Ring<'k>,
    /// Panels of a stage.
    depth: u32,
}

impl<'k> Block<'_, 'k> {
    /// A warp: copies the tiles of each job's row blocks, column after column, a row block by each lane.
    fn copy_weights(&self, at: &mut Cursor<'k>) {
        let (k, row_blocks) = (self.k, self.matmul.row_blocks());
        let policy = k.evict_first();
        let tile = tile::of(self.matmul.format);
        let (row_tiles, last) = (self.a.n / tile.columns, self.a.rows / ROWS - 1);
        let mut copy = |part: Part<'k>| {
            // Row blocks past the end are read as the last one, and not stored.
            let block = (part.rows * row_blocks + k.lane()).min(last);
            let source = self.a.w.row(block.mad(row_tiles, part.first), tile.bytes);
            k.for_each(0, part.count, 1, |column| {
                self.weights
                    .fill(k, at, (row_blocks, tile.bytes), |to, landed| {
                        source
                            .row(column, tile.bytes)
                            .bulk_copy(to, tile.bytes, landed, policy);
                    });
            });
        };
        self.jobs.each(&mut copy);
        self.jobs.each_of_tail(&mut copy);
    }

    /// A warp: copies the panels of each job's tokens, a panel of a stage by each lane.
    fn copy_panels(&self, at: &mut Cursor<'k>) {
        let (k, depth) = (self.k, self.depth);
        let policy = k.evict_last();
        let of_tile = tile::of(self.matmul.format).columns / PANEL;
        let mut copy = |part: Part<'k>| {
            let (first, bytes) = (part.first.mad(of_tile, k.lane()), part.width * 2 * PANEL);
            k.for_each(0, part.count * of_tile, depth, |panel| {
                self.panels.fill(k, at, (depth, bytes), |to, landed| {
                    let source = self
                        .a
                        .x
                        .row((first + panel).mad(self.a.capacity, part.token), 2 * PANEL);
                    source.cast::<u8>().bulk_copy(to, bytes, landed, policy);
                });
            });
        };
        self.jobs.each(&mut copy);
        self.jobs.each_of_tail(&mut copy);
    }

    /// A consumer warp: all its jobs.
    fn multiply(&self, [weights, panels]: [&mut Cursor<'k>; 2]) {
        let k = self.k;
        let mut sums = Accumulators::zero(k, self.matmul.tokens);
        self.jobs
            .each(|part| self.compute(&part, &mut sums, [&mut *weights, &mut *panels]));
        if self.matmul.tail > 0 {
            let mut sums = Accumulators::zero(k, self.matmul.tail);
            self.jobs
                .each_of_tail(|part| self.compute(&part, &mut sums, [&mut *weights, &mut *panels]));
        }
    }

    /// A job, or a part of one.
    fn compute(&self, part: &Part<'k>, sums: &mut Accumulators<'k, f32>, at: [&mut Cursor<'k>; 2]) {
        let row_block = part.rows * self.matmul.row_blocks() + self.k.warp();
        let scales = self.load_scales(part, row_block, sums);
        self.job(part, row_block, sums, at);
        let store = |sums: &Accumulators<'k, f32>| {
            self.k.section("matmul/wgmma/epilogue", "epilogue");
            let at = self.sums(part, row_block, sums, &scales);
            self.matmul.epilogue.store(self.matmul.rows, self.a, at);
        };
        match self.matmul.split {
            1 => store(sums),
            _ => self.jobs.complete(part, row_block, sums, store),
        }
    }

    /// The scales of a job's tokens, where registers have room for them while the sums are computed.
    fn load_scales(
        &self,
        part: &Part<'k>,
        row_block: U32<'k>,
        sums: &Accumulators<'k, f32>,
    ) -> Vec<[F32<'k>; 2]> {
        if self.matmul.form != Form::Whole || part.width > MOST_LOADED {
            return vec![];
        }
        self.k
            .section("matmul/wgmma/epilogue_loads", "what the epilogue needs");
        self.sums(part, row_block, sums, &[]).load_scales(self.a)
    }

    /// What the epilogue is given.
    fn sums<'s>(
        &self,
        part: &Part<'k>,
        row_block: U32<'k>,
        sums: &'s Accumulators<'k, f32>,
        loaded: &'s [[F32<'k>; 2]],
    ) -> Sums<'s, 'k> {
        Sums {
            k: self.k,
            row_block,
            token: part.token,
            sums,
            loaded,
            overlap: self.matmul.overlap.waits(),
        }
    }

    /// The sums of a part of a job.
    fn job(
        &self,
        part: &Part<'k>,
        row_block: U32<'k>,
        sums: &mut Accumulators<'k, f32>,
        [weights, panels]: [&mut Cursor<'k>; 2],
    ) {
        let (k, format) = (self.k, self.matmul.format);
        let dequantizer = self.dequantizer(row_block);
        let (leader, always) = (k.lane().eq(0), k.always());
        let (mut before, mut running) = (k.var(0), k.var(0));
        k.for_each(0, part.count, 1, |column| {
            k.section("matmul/wgmma/warp_tile", "a tile of each warp");
            self.weights.full(weights).wait(&weights.parity);
            let tile = self
                .weights
                .stage(weights)
                .row(k.warp(), tile::of(format).bytes);
            let scales = dequantizer.scales(tile);
            for set in 0..dequantizer.sets() {
                let codes = dequantizer.codes(tile, set);
                for half in 0..2 {
                    k.section("matmul/wgmma/multiply", "unpack 64 columns, multiply them");
                    let steps = 4 * half..4 * half + 4;
                    let a: Vec<LeftFragment> = steps
                        .map(|i| dequantizer.fragment(&codes[i as usize], &scales, 8 * set + i))
                        .collect();
                    if set + 1 == dequantizer.sets() && half == 1 {
                        // Else the next copy may overtake loads of the stage whose results are used later.
                        k.fence_async();
                        self.weights.empty(weights).arrive();
                    }
                    let panel = (2 * set + half) % self.depth;
                    if panel == 0 {
                        self.panels.full(panels).wait(&panels.parity);
                    }
                    let add = |i| {
                        if set + half + i == 0 {
                            column.gt(0)
                        } else {
                            always
                        }
                    };
                    self.add_panel(self.panels.stage(panels), panel, a, sums, add);
                    if panel == 0 {
                        k.when(leader & running.get().gt(0), || {
                            self.panels.give_back(&before)
                        });
                        before.set(panels.stage.get());
                        running.set(1);
                    }
                    if panel + 1 == self.depth {
                        self.panels.step(k, panels);
                    }
                }
            }
            self.weights.step(k, weights);
        });
        k.wgmma_wait(0);
        k.when(leader, || self.panels.give_back(&before));
    }

    /// Adds the product of 64 columns with a panel of a stage, once the one before is done.
    fn add_panel(
        &self,
        stage: Ptr<'k, u8, Shared>,
        panel: u32,
        columns: Vec<LeftFragment<'k>>,
        sums: &mut Accumulators<'k, f32>,
        add: impl Fn(u32) -> Pred<'k>,
    ) {
        let (k, tokens) = (self.k, sums.columns());
        let at = stage.at(panel * tokens * 2 * PANEL);
        let x = Descriptor::<f16>::by_columns(at, tokens, PANEL, Swizzle::B128);
        k.wgmma_fence();
        for (i, a) in (0..).zip(columns) {
            let add = add(i);
            sums.multiply_registers::<f16, f16>(a, x.inner(16 * i), add);
        }
        k.wgmma_commit();
        k.wgmma_wait(1);
    }

    /// With the powers of two of the lane's rows.
    fn dequantizer(&self, row_block: U32<'k>) -> Dequantizer<'k> {
        let last = self.a.rows / ROWS - 1;
        let row = row_block.min(last) * ROWS + (self.k.lane() >> 2);
        let unit = [0, 8].map(|r| self.a.unit.at(row).at(r).ld());
        Dequantizer::new(self.k, self.matmul.format, unit)
    }
}
