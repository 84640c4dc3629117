//! `y = W x` for many tokens on the tensor cores of sm_90: weights of any tiled format, unpacked
//! into registers, times panels of activations in shared memory.
//!
//! A block of three warpgroups computes 128 rows for [`Matmul::tokens`] tokens at a time, and takes
//! one such job after another. A block of five warpgroups computes 256 rows. Two producer warps
//! copy tiles of weights and panels of activations into two rings. Each of the other warps unpacks
//! the tiles of its 16 rows. Four warps together form the left operand of a `wgmma`, in registers.
//! While the tensor cores multiply 64 columns, a warp unpacks the next 64.
//!
//! Products are added in the order of the columns by one warpgroup. If the columns are split, each
//! slice is summed in this way, and then the slices are added in their order. The bits of a row's
//! result therefore depend only on its own token, on the widths and on the split.

use super::ring::{Cursor, Ring};
use super::sm_share::SmShare;
use super::split::{JobSlice, Jobs, UsedExperts};
use super::stages::{BARRIERS, Stages};
use crate::format::Format;
use crate::format::dequantize::{Dequantizer, SET};
use crate::format::tile::{self, ROWS, RowOrder};
use crate::matmul::activations::{PANEL, TOKENS};
use crate::matmul::definition::{Epilogue, MAX_SPLIT, Matmul, MatmulArgs};
use crate::matmul::expert_table::ExpertTable;
use crate::matmul::lane_sums::LaneSums;
use crate::shared::Contract;
use ptx_gen::*;

/// The maximum number of tokens of a job for which registers can hold the operands of the epilogue
/// during the multiplication.
const MOST_LOADED: u32 = 128;

/// The place of the number of rows in use, between the barriers and the stages.
const USED: u32 = BARRIERS - 16;

impl MatmulArgs<Shape> {
    /// Checks the arguments that every matmul kernel has, given the format of its weights, the
    /// order of its rows and its tokens.
    pub(crate) fn check(
        &self,
        kernel: &impl Contract,
        format: Format,
        rows: RowOrder,
        tokens: u32,
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
    /// Checks all arguments.
    pub(crate) fn check_all(&self, a: &MatmulArgs<Shape>) -> Result<(), ShapeError> {
        self.multiple("the kernel's tokens", self.tokens, TOKENS)?;
        self.range(
            "the kernel's tokens",
            self.tokens,
            TOKENS,
            self.form.most_tokens(),
        )?;
        a.check(self, self.format, self.rows, self.tokens, self.epilogue)?;
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

    /// Returns the bytes of dynamic shared memory of a block.
    pub(crate) fn shared(&self) -> u32 {
        Stages::of(self).shared()
    }

    /// Computes the reference.
    pub(crate) fn add_reference(&self, a: &mut MatmulArgs<Cpu<'_>>) {
        if self.split > 1 {
            super::split::reference(self, a);
        }
        crate::matmul::epilogue::reference(self.format, self.epilogue, self.rows, a);
    }

    /// Returns the parts of the name that describe the matrix: format and widths, and the split.
    pub(crate) fn name_of_matrix(&self) -> [String; 2] {
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
            // The epilogue's name already contains it.
            _ if matches!(self.epilogue, Epilogue::Append(_)) => "_pairs".into(),
            _ => format!("_rows{per}_{stride}_{step}_{delta}"),
        };
        let form = self.form.suffix();
        let overlap = self.overlap.suffix();
        let epilogue = self.epilogue.name();
        let [matrix, split] = self.name_of_matrix();
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
            shared: self.shared(),
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

/// Emits the program of one matmul, or of two with different matrices whose blocks have the same
/// form.
///
/// Blocks take the jobs of the second matmul starting from the last block, because the last round
/// of the first may leave those blocks without a job.
pub(crate) fn program<'k>(k: Builder<'k>, stages: Stages, all: &[(Matmul, MatmulArgs<Dev<'k>>)]) {
    block(k, stages, all, None);
}

/// Emits the program of a matmul of rows that are sorted by expert.
pub(crate) fn program_of_experts<'k>(
    k: Builder<'k>,
    matmul: Matmul,
    a: MatmulArgs<Dev<'k>>,
    table: ExpertTable<'k>,
) {
    block(k, Stages::of(&matmul), &[(matmul, a)], Some(table));
}

/// Emits the program of a block. All of its matmuls have the same experts, if any.
fn block<'k>(
    k: Builder<'k>,
    stages: Stages,
    all: &[(Matmul, MatmulArgs<Dev<'k>>)],
    experts: Option<ExpertTable<'k>>,
) {
    let (matmul, _) = all[0];

    k.section(
        "matmul/wgmma/shared",
        "shared memory: barriers, weights, panels of activations",
    );
    let rings = Rings {
        base: k.tile_memory("memory"),
        stages,
    };
    let weights = rings.weights();
    let panels = rings.panels();
    matmul.overlap.start(k);
    k.when(k.tid().eq(0), || {
        // Every lane that reads a tile arrives at its empty barrier. A panel is read by `wgmma`,
        // for which one lane per warp arrives.
        weights.init(32 * matmul.row_blocks());
        panels.init(matmul.row_blocks());
        k.fence_mbarriers();
    });
    let used = rings.base.at(USED).cast::<u32>();
    if let Some(table) = &experts {
        k.section(
            "matmul/wgmma/experts",
            "an earlier kernel writes the table of experts: even the copies of weights wait for it",
        );
        if matmul.overlap.waits() {
            k.grid_wait();
        }
        k.when(k.tid().eq(0), || used.st(table.used_rows()));
    }
    k.barrier();
    let experts = experts.map(|table| UsedExperts {
        table,
        // All threads read the value that one has loaded, so the loops over jobs are uniform.
        rows: used.ld(),
    });
    let blocks = (0..).zip(all).map(|(i, (matmul, a))| {
        let jobs = Jobs::new(k, matmul, a, i > 0, experts);
        MatmulBlock {
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

    // Multiplying threads need registers for their sums. The copying warpgroup gives up most of its
    // own (`setmaxnreg`).
    let [many, few] = matmul.form.registers();
    k.roles(vec![
        Role::new(matmul.form.groups(), many, |_| multiply(k, &blocks)),
        Role::new(1, few, |_| copy(k, &blocks)),
    ]);
}

/// Emits the warpgroup that copies.
fn copy<'k>(k: Builder<'k>, blocks: &[MatmulBlock<'_, 'k>]) {
    let first = blocks[0].matmul.row_blocks();
    k.when(k.warp().eq(first), || {
        k.section("matmul/wgmma/weight_producer", "producer of weights");
        let mut at = Cursor::new(k);
        for block in blocks {
            block.copy_weights(&mut at);
        }
    });
    k.when(k.warp().eq(first + 1), || {
        k.section(
            "matmul/wgmma/activation_producer",
            "producer of activations",
        );

        // Weights never change, so only this producer and the consumers wait for earlier kernels.
        if blocks[0].matmul.overlap.waits() {
            k.grid_wait();
        }

        let mut at = Cursor::new(k);
        for block in blocks {
            block.copy_panels(&mut at);
        }
    });
}

/// Emits a consumer warp with all its jobs.
fn multiply<'k>(k: Builder<'k>, blocks: &[MatmulBlock<'_, 'k>]) {
    let overlap = blocks[0].matmul.overlap;
    if overlap.waits() {
        k.section(
            "matmul/wgmma/overlap_wait",
            "scales and results belong to earlier kernels too: wait for them",
        );
        k.grid_wait();
    }

    let [mut weights, mut panels] = [0, 1].map(|_| Cursor::new(k));
    for block in blocks {
        block.multiply([&mut weights, &mut panels]);
    }

    overlap.end(k);
}

/// The shared memory of both rings.
struct Rings<'k> {
    base: Ptr<'k, u8, Shared>,
    stages: Stages,
}

impl<'k> Rings<'k> {
    /// Returns the ring of weights.
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

    /// Returns the ring of activations.
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

/// A block's view of a matmul.
struct MatmulBlock<'a, 'k> {
    k: Builder<'k>,
    matmul: &'a Matmul,
    a: &'a MatmulArgs<Dev<'k>>,
    jobs: Jobs<'a, 'k>,
    weights: Ring<'k>,
    panels: Ring<'k>,
    /// The number of panels of a stage.
    depth: u32,
}

impl<'k> MatmulBlock<'_, 'k> {
    /// Copies the tiles of each job's row blocks, column by column, one row block per lane. Only
    /// the producer warp of weights may run it.
    fn copy_weights(&self, at: &mut Cursor<'k>) {
        let k = self.k;
        let row_blocks = self.matmul.row_blocks();

        // A block reads each weight once, while other blocks soon read the same activations.
        let policy = k.evict_first();
        let tile = tile::of(self.matmul.format);
        let row_tiles = self.a.n / tile.columns;
        let last = self.a.rows / ROWS - 1;
        let mut copy = |part: JobSlice<'k>| {
            // Row blocks past the end are read as the last one, and not stored.
            let block = (part.rows * row_blocks + k.lane()).min(last);
            let block = match part.expert {
                Some(group) => group.expert.mad(last + 1, block),
                None => block,
            };
            let source = self.a.w.row(block.mad(row_tiles, part.first), tile.bytes);
            k.for_each(0, part.count, 1, |column| {
                self.weights
                    .fill(k, at, row_blocks, tile.bytes, |to, landed| {
                        source
                            .row(column, tile.bytes)
                            .bulk_copy(to, tile.bytes, landed, policy);
                    });
            });
        };
        self.jobs.each(&mut copy);
        self.jobs.each_of_tail(&mut copy);
    }

    /// Copies the panels of each job's tokens, one panel of a stage per lane. Only the producer
    /// warp of activations may run it.
    fn copy_panels(&self, at: &mut Cursor<'k>) {
        let k = self.k;
        let depth = self.depth;

        // Every row block reads the activations again, so they should stay in the L2 cache. With
        // experts, all row blocks read the rows of a group at about the same time, and not again.
        let policy = if self.jobs.has_experts() {
            k.evict_first()
        } else {
            k.evict_last()
        };
        let of_tile = tile::of(self.matmul.format).columns / PANEL;
        let mut copy = |part: JobSlice<'k>| {
            let first = part.first.mad(of_tile, k.lane());
            let bytes = part.width * 2 * PANEL;
            k.for_each(0, part.count * of_tile, depth, |panel| {
                self.panels.fill(k, at, depth, bytes, |to, landed| {
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

    /// Emits all jobs of a consumer warp.
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

    /// Computes a job, or a slice of one, and stores its results.
    fn compute(
        &self,
        part: &JobSlice<'k>,
        sums: &mut Accumulators<'k, f32>,
        at: [&mut Cursor<'k>; 2],
    ) {
        let row_block = part.rows * self.matmul.row_blocks() + self.k.warp();
        let scales = self.load_scales(part, row_block, sums);
        let a = self.args(part);
        self.job(part, self.dequantizer(&a, row_block), sums, at);
        let store = |sums: &Accumulators<'k, f32>| {
            self.k.section("matmul/wgmma/epilogue", "epilogue");
            let at = self.sums(part, row_block, sums, &scales);
            self.matmul.epilogue.store(self.matmul.rows, &a, at);
        };
        match self.matmul.split {
            1 => store(sums),
            _ => self.jobs.complete(part, row_block, sums, store),
        }
    }

    /// Returns the arguments of a job.
    fn args(&self, part: &JobSlice<'k>) -> MatmulArgs<Dev<'k>> {
        match part.expert {
            Some(group) => group.args(self.a, part.token),
            None => *self.a,
        }
    }

    /// Loads the scales of a job's tokens before the multiplication, if registers can hold them
    /// meanwhile.
    fn load_scales(
        &self,
        part: &JobSlice<'k>,
        row_block: U32<'k>,
        sums: &Accumulators<'k, f32>,
    ) -> Vec<[F32<'k>; 2]> {
        if self.matmul.form != SmShare::Whole || part.width > MOST_LOADED {
            return vec![];
        }

        self.k.section(
            "matmul/wgmma/epilogue_loads",
            "load the operands of the epilogue",
        );
        self.sums(part, row_block, sums, &[]).load_scales(self.a)
    }

    /// Returns the input of the epilogue.
    fn sums<'s>(
        &self,
        part: &JobSlice<'k>,
        row_block: U32<'k>,
        sums: &'s Accumulators<'k, f32>,
        loaded: &'s [[F32<'k>; 2]],
    ) -> LaneSums<'s, 'k> {
        LaneSums {
            k: self.k,
            row_block,
            token: part.token,
            sums,
            loaded,
            overlap: self.matmul.overlap.waits(),
        }
    }

    /// Computes the sums of a slice of a job.
    fn job(
        &self,
        part: &JobSlice<'k>,
        dequantizer: Dequantizer<'k>,
        sums: &mut Accumulators<'k, f32>,
        [weights, panels]: [&mut Cursor<'k>; 2],
    ) {
        let k = self.k;
        let format = self.matmul.format;
        let leader = k.lane().eq(0);
        let always = k.always();

        // `before` is the stage of the panels whose `wgmma` may still be running.
        let mut before = k.var(0);
        let mut running = k.var(0);
        k.for_each(0, part.count, 1, |column| {
            k.section("matmul/wgmma/warp_tile", "one tile for each warp");
            self.weights.full(weights).wait(&weights.parity);
            let tile = self
                .weights
                .stage(weights)
                .row(k.warp(), tile::of(format).bytes);
            let scales = dequantizer.scales(tile);
            for set in 0..dequantizer.sets() {
                let codes = dequantizer.codes(tile, set);
                for half in 0..2 {
                    k.section(
                        "matmul/wgmma/multiply",
                        "unpack 64 columns and multiply them",
                    );
                    let steps = 4 * half..4 * half + 4;
                    let a: Vec<LeftFragment> = steps
                        .map(|i| dequantizer.fragment(&codes[i as usize], &scales, 8 * set + i))
                        .collect();
                    if set + 1 == dequantizer.sets() && half == 1 {
                        // The tile has been read into registers, so its stage can be released.
                        // Without the fence, the next copy may overtake loads whose results are
                        // used later.
                        k.fence_async();
                        self.weights.empty(weights).arrive();
                    }

                    let panel = (2 * set + half) % self.depth;
                    if panel == 0 {
                        self.panels.full(panels).wait(&panels.parity);
                    }

                    // The first matrix instruction of a job overwrites the sums.
                    let add = |i| {
                        if set + half + i == 0 {
                            column.gt(0)
                        } else {
                            always
                        }
                    };
                    self.add_panel(self.panels.stage(panels), panel, a, sums, add);
                    if panel == 0 {
                        // The previous `wgmma` group is complete now, so its panels can be
                        // released.
                        k.when(leader & running.get().gt(0), || {
                            self.panels.release(&before)
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
        k.when(leader, || self.panels.release(&before));
    }

    /// Multiplies 64 columns by a panel of a stage. When it returns, the previous group of `wgmma`
    /// is complete.
    fn add_panel(
        &self,
        stage: Ptr<'k, u8, Shared>,
        panel: u32,
        columns: Vec<LeftFragment<'k>>,
        sums: &mut Accumulators<'k, f32>,
        add: impl Fn(u32) -> Pred<'k>,
    ) {
        let k = self.k;
        let tokens = sums.columns();
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

    /// Creates the dequantizer with the powers of two of the lane's rows.
    fn dequantizer(&self, a: &MatmulArgs<Dev<'k>>, row_block: U32<'k>) -> Dequantizer<'k> {
        let last = a.rows / ROWS - 1;
        let row = row_block.min(last) * ROWS + (self.k.lane() >> 2);
        let unit = [0, 8].map(|r| a.unit.at(row).at(r).ld());
        Dequantizer::new(self.k, self.matmul.format, unit)
    }
}
