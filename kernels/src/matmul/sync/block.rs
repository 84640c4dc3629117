//! The program of a block of [`MatmulSync`](super::definition::MatmulSync).

use super::definition::{MatmulSync, PAIR, WARPS, WEIGHT_STAGES};
use crate::format::dequantize::{Dequantizer, TileScales};
use crate::format::lanes::codes::Codes;
use crate::format::tile::{self, ROWS};
use crate::matmul::activations::PANEL;
use crate::matmul::definition::MatmulArgs;
use crate::matmul::expert_table::ExpertTable;
use crate::matmul::lane_sums::LaneSums;
use ptx_gen::*;

/// The number of bytes that a thread copies at a time.
const UNIT: u32 = 16;

/// The values that the threads of a block compute at the start.
pub(crate) struct SyncBlock<'a, 'k> {
    k: Builder<'k>,
    def: &'a MatmulSync,
    a: &'a MatmulArgs<Dev<'k>>,
    /// The ring of weights.
    weights: Ptr<'k, u8, Shared>,
    /// The ring of panels.
    panels: Ptr<'k, u8, Shared>,
    /// The number of stages of the ring of panels.
    stages: u32,
    /// The number of tiles of a row.
    row_tiles: U32<'k>,
}

/// A warp's share of a job.
struct Job<'k> {
    /// The arguments of the matmul, with the matrix of the job.
    a: MatmulArgs<Dev<'k>>,
    /// The warp's first row block, which may be past the end.
    row_block: U32<'k>,
    /// The first token.
    token: U32<'k>,
    /// The warp's row blocks. Row blocks past the end are read as the last one, and not stored.
    blocks: Vec<U32<'k>>,
}

/// The sums of a row block, for each eight tokens.
type RowBlockSums<'k> = Vec<ptx_gen::Sums<'k, f32>>;

/// The stage of a panel, and the stage of the previous panel.
struct PanelStages<'k> {
    now: Var<'k, u32>,
    before: Var<'k, u32>,
}

impl<'a, 'k> SyncBlock<'a, 'k> {
    /// Divides the shared memory.
    pub(crate) fn new(k: Builder<'k>, def: &'a MatmulSync, a: &'a MatmulArgs<Dev<'k>>) -> Self {
        k.section(
            "matmul/sync/shared",
            "shared memory: weights, panels of activations",
        );
        let weights = k.tile_memory("memory");
        let panels = weights.at(WEIGHT_STAGES * def.weight_bytes());

        // The contract rejects a kernel that does not fit, so the fallback is never launched.
        let stages = def.stages().unwrap_or(2);
        SyncBlock {
            k,
            def,
            a,
            weights,
            panels,
            stages,
            row_tiles: a.n / tile::of(def.format).columns,
        }
    }

    /// Emits the loop over the jobs of the block. All tokens of the same rows follow each other, so
    /// that their weights come from the L2 cache.
    pub(super) fn run(&self) {
        let k = self.k;
        let a = self.a;
        let def = self.def;
        let row_jobs = (a.rows / ROWS + (def.job_blocks() - 1)) / def.job_blocks();
        let token_jobs = (a.tokens_given + (def.tokens - 1)) / def.tokens;
        k.for_each(k.ctaid(), row_jobs * token_jobs, k.nctaid(), |i| {
            self.compute(&self.job(*a, i / token_jobs, i % token_jobs));
        });
    }

    /// Emits the loop over the jobs of rows that are sorted by expert. All rows of the same tokens
    /// follow each other, so that their activations come from the L2 cache.
    pub(crate) fn run_experts(&self, table: &ExpertTable<'k>) {
        let k = self.k;
        let a = self.a;
        let def = self.def;
        let row_jobs = (a.rows / ROWS + (def.job_blocks() - 1)) / def.job_blocks();

        // This kernel never overlaps, so a plain load suffices, and it is uniform in the block.
        let groups = table.used.ld().min(a.capacity) / def.tokens;
        k.for_each(k.ctaid(), row_jobs * groups, k.nctaid(), |i| {
            let group = i / row_jobs;
            let rows = table.rows(table.entry(group));
            let first = rows.expert * (a.rows / ROWS);
            let matrix = MatmulArgs {
                w: a.w.row(first * self.row_tiles, tile::of(def.format).bytes),
                ..rows.args(a, group * def.tokens)
            };
            self.compute(&self.job(matrix, i % row_jobs, group));
        });
    }

    /// Computes a job and stores its results.
    fn compute(&self, job: &Job<'k>) {
        let k = self.k;
        let def = self.def;
        let sums = self.multiply(job);

        k.section("matmul/sync/epilogue", "epilogue");
        for (b, sums) in (0..).zip(sums) {
            // Sums of `mma` have the layout of a warp's accumulators of `wgmma`, so the epilogues
            // serve both.
            let sums = Accumulators(sums.into_iter().flat_map(|sums| sums.0).collect());
            let at = LaneSums {
                k,
                row_block: job.row_block + b,
                token: job.token,
                sums: &sums,
                loaded: &[],
                overlap: false,
            };
            def.epilogue.store(def.rows, &job.a, at);
        }
    }

    /// Returns the warp's share of a job of the matrix that `a` has.
    fn job(&self, a: MatmulArgs<Dev<'k>>, rows: U32<'k>, tokens: U32<'k>) -> Job<'k> {
        let k = self.k;
        let def = self.def;
        let row_block = rows * def.job_blocks() + k.warp() * def.row_blocks;
        let last = a.rows / ROWS - 1;
        let blocks = (0..def.row_blocks)
            .map(|b| (row_block + b).min(last))
            .collect();
        Job {
            a,
            row_block,
            token: tokens * def.tokens,
            blocks,
        }
    }

    /// Creates the dequantizer with the powers of two of the lane's rows.
    fn dequantizer(&self, job: &Job<'k>, block: U32<'k>) -> Dequantizer<'k> {
        let row = job.a.unit.at(block * ROWS + (self.k.lane() >> 2));
        Dequantizer::new(self.k, self.def.format, [0, 8].map(|r| row.at(r).ld()))
    }

    /// Computes the sums of a job, for each row block.
    fn multiply(&self, job: &Job<'k>) -> Vec<RowBlockSums<'k>> {
        let k = self.k;
        let def = self.def;
        let row_tiles = self.row_tiles;
        let row_block = || {
            (0..def.tokens / 8)
                .map(|_| ptx_gen::Sums::zero(k))
                .collect()
        };
        let mut sums: Vec<RowBlockSums> = job.blocks.iter().map(|_| row_block()).collect();

        k.section(
            "matmul/sync/first_copies",
            "copy the first tile and panels, after the block is done with the previous job",
        );
        k.barrier();
        self.copy_tiles(job, k.val(0));
        for panel in 0..self.stages - 1 {
            self.copy_panel(job, k.val(panel), k.val(panel));
            k.commit_copies();
        }

        let mut stage = PanelStages {
            now: k.var(0),
            before: k.var(self.stages - 1),
        };
        k.for_each(0, row_tiles, 1, |column| {
            let mut codes = vec![];
            let mut scales = vec![];
            let tiles = self.tiles(column);
            let rows: Vec<_> = job
                .blocks
                .iter()
                .map(|&block| self.dequantizer(job, block))
                .collect();
            for panel in 0..def.tile_panels() {
                self.advance(job, column, panel, &stage);
                if panel == 0 {
                    scales = rows
                        .iter()
                        .zip(&tiles)
                        .map(|(row, &tile)| row.scales(tile))
                        .collect();
                }

                // Codes are unpacked for a set of 128 columns, which is two panels.
                if panel % 2 == 0 {
                    let of = |(row, &tile): (&Dequantizer<'k>, _)| row.codes(tile, panel / 2);
                    codes = rows.iter().zip(&tiles).map(of).collect();
                }

                let x = self.panels.row(&stage.now, def.panel_bytes());
                self.multiply_panel(&rows, &codes, &scales, panel, x, &mut sums);
                self.step(&mut stage);
            }
        });
        sums
    }

    /// Waits for a panel, and for the tiles before their first panel. Then requests the next panel
    /// and tiles.
    fn advance(&self, job: &Job<'k>, column: U32<'k>, panel: u32, stage: &PanelStages<'k>) {
        let k = self.k;

        k.section("matmul/sync/panel", "wait for a panel and copy a later one");
        k.wait_copies(self.stages - 2);

        // After the barrier, the copies of all threads have arrived, and all warps are done with
        // the stage that is filled next.
        k.barrier();
        let ahead = column * self.def.tile_panels() + (panel + self.stages - 1);
        self.copy_panel(job, ahead, stage.before.get());
        if panel == 0 {
            k.when((column + 1).lt(self.row_tiles), || {
                self.copy_tiles(job, column + 1)
            });
        }

        k.commit_copies();
    }

    /// Advances to the next stage.
    fn step(&self, stage: &mut PanelStages<'k>) {
        stage.before.set(stage.now.get());
        stage.now += 1;
        self.k
            .when(stage.now.get().ge(self.stages), || stage.now.set(0));
    }

    /// Returns the warp's tiles of a column.
    fn tiles(&self, column: U32<'k>) -> Vec<Ptr<'k, u8, Shared>> {
        let bytes = tile::of(self.def.format).bytes;
        let stage = self
            .weights
            .row(column % WEIGHT_STAGES, self.def.weight_bytes());
        let first = stage.row(self.k.warp(), self.def.row_blocks * bytes);
        (0..self.def.row_blocks)
            .map(|b| first.at(b * bytes))
            .collect()
    }

    /// Requests the warp's tiles of a column.
    fn copy_tiles(&self, job: &Job<'k>, column: U32<'k>) {
        let bytes = tile::of(self.def.format).bytes;
        for (&block, to) in job.blocks.iter().zip(self.tiles(column)) {
            let from = job.a.w.row(block.mad(self.row_tiles, column), bytes);
            self.copy(self.k.lane(), 32, bytes / UNIT, from, to);
        }
    }

    /// Requests a panel, if there is one. The whole block must call it.
    fn copy_panel(&self, job: &Job<'k>, panel: U32<'k>, stage: U32<'k>) {
        let k = self.k;
        let a = self.a;
        let def = self.def;
        k.when(panel.lt(a.n / PANEL), || {
            let from =
                a.x.row(panel.mad(a.capacity, job.token), 2 * PANEL)
                    .cast::<u8>();
            let to = self.panels.row(stage, def.panel_bytes());
            self.copy(k.tid(), 32 * WARPS, def.panel_bytes() / UNIT, from, to);
        });
    }

    /// Copies `count` units. Thread `first` of `threads` copies every `threads`th unit.
    fn copy(
        &self,
        first: U32<'k>,
        threads: u32,
        count: u32,
        from: Ptr<'k, u8, ReadOnly>,
        to: Ptr<'k, u8, Shared>,
    ) {
        let from = from.row(first, UNIT);
        let to = to.row(first, UNIT);
        for done in (0..count).step_by(threads as usize) {
            let copy = || from.at(done * UNIT).copy16(to.at(done * UNIT));
            if done + threads <= count {
                copy();
            } else {
                self.k.when(first.lt(count - done), copy);
            }
        }
    }

    /// Multiplies 64 columns and adds the results to the sums.
    fn multiply_panel(
        &self,
        rows: &[Dequantizer<'k>],
        codes: &[Vec<Codes<'k>>],
        scales: &[TileScales<'k>],
        panel: u32,
        x: Ptr<'k, u8, Shared>,
        sums: &mut [RowBlockSums<'k>],
    ) {
        let k = self.k;

        // The lanes of one `ldmatrix` address two units of 16 bytes of eight tokens, then of the
        // next eight.
        let lane = k.lane();
        let row = (lane & 7) + (lane >> 4) * 8;
        let unit = ((lane >> 3) & 1) ^ (lane & 7);
        let place = row * (2 * PANEL) + (unit << 4);
        for i in 0..PANEL / 16 {
            k.section(
                "matmul/sync/multiply",
                "unpack 16 columns and multiply them",
            );
            let step = 4 * panel + i;
            let of = |(b, row): (usize, &Dequantizer<'k>)| {
                row.fragment(&codes[b][(step % 8) as usize], &scales[b], step)
            };
            let a: Vec<LeftFragment> = rows.iter().enumerate().map(of).collect();
            let x = x.row(place ^ (32 * i), 1);
            for j in 0..self.def.tokens / PAIR {
                let [b0, b1, b2, b3] = x.at(j * PAIR * 2 * PANEL).cast::<f16>().ldmatrix4();
                for (sums, &a) in sums.iter_mut().zip(&a) {
                    let eight = 2 * j as usize;
                    sums[eight].add_f16(a, RightFragment([b0, b1]));
                    sums[eight + 1].add_f16(a, RightFragment([b2, b3]));
                }
            }
        }
    }
}
