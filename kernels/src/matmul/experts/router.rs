//! The logits of a router for many tokens: `logits = W (x * gamma / sqrt(mean(x^2) + epsilon))`, in
//! `f32`.
//!
//! A block computes a tile of tokens and experts. It copies 64 columns of both at a time through
//! registers to shared memory, in one of two buffers, while it multiplies the previous 64 columns from
//! the other. Loads from global memory are several stages ahead. The threads form four groups. Group `q` multiplies the columns whose fourth is `q` modulo 4, and the
//! sums of the groups are added in their order. The order of a logit's sum therefore depends on the
//! number of columns only: not on other tokens, and not on the size of the tile.

use crate::harness::{Case, Variant};
use crate::pipeline::gemv::choose_experts::MAX_EXPERTS;
use crate::pipeline::reference;
use crate::shared::reduce::lanes_sum;
use crate::shared::{Contract, Overlap, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`RouterLogits`].
    pub struct RouterLogitsArgs {
        /// `[count, n]`: the router
        w: In<f32>,
        /// `[tokens, n]`: the residual stream. The buffer may be longer
        x: In<f32>,
        /// `[n]`: weights of the norm
        gamma: In<f32>,
        /// `[tokens, count]`: the logits
        logits: Out<f32>,
        /// The number of tokens.
        tokens: u32,
        /// The number of experts, at most 512.
        count: u32,
        /// The row length, a multiple of 64.
        n: u32,
        /// A constant that is added to the mean square.
        epsilon: f32,
    }
}

/// Kernel that computes the logits of a router for many tokens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RouterLogits {
    /// The tile of a block. It changes no bits.
    pub tile: RouterTile,
    /// The overlap with the kernels before and after it.
    pub overlap: Overlap,
}

/// The tokens and experts of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RouterTile {
    /// 8 tokens and 16 experts, so that few tokens have many blocks.
    Small,
    /// 32 tokens and 64 experts, so that a thread uses each value that it reads often.
    Large,
}

/// The number of threads of a block.
const THREADS: u32 = 256;
/// The number of groups of threads that divide the columns.
const GROUPS: u32 = 4;
/// The number of threads of a group.
const GROUP: u32 = THREADS / GROUPS;
/// The number of threads of a group along each side of the tile.
const SIDE: u32 = 8;
/// The number of columns of a stage.
const COLUMNS: u32 = 64;
/// The number of four-element vectors of a row of a stage.
const VECTORS: u32 = COLUMNS / 4;
/// The number of rows that the block copies at once.
const ROWS: u32 = THREADS / VECTORS;
/// The length of a row in shared memory, padded so that eight adjacent rows are in different banks.
const PITCH: u32 = COLUMNS + 4;

impl RouterTile {
    /// Returns the numbers of tokens and experts.
    const fn sides(self) -> [u32; 2] {
        match self {
            RouterTile::Small => [8, 16],
            RouterTile::Large => [32, 64],
        }
    }

    /// Returns the number of stages that a thread loads ahead, an even number. A small tile is
    /// multiplied in a fraction of the latency of a load, so it loads further ahead.
    const fn ahead(self) -> u32 {
        match self {
            RouterTile::Small => 4,
            RouterTile::Large => 2,
        }
    }

    /// Returns the elements of a stage.
    const fn stage(self) -> u32 {
        let [tokens, experts] = self.sides();
        (tokens + experts) * PITCH
    }
}

impl RouterLogits {
    /// Creates the kernel for `tokens` tokens, without overlap.
    pub const fn new(tokens: u32) -> RouterLogits {
        RouterLogits {
            // 256 tokens and 128 experts have 256 small tiles but 16 large ones.
            tile: if tokens <= 256 {
                RouterTile::Small
            } else {
                RouterTile::Large
            },
            overlap: Overlap::No,
        }
    }
}

impl KernelDef for RouterLogits {
    type Args<S: Side> = RouterLogitsArgs<S>;

    fn name(&self) -> String {
        let [tokens, experts] = self.tile.sides();
        format!("router_logits_{tokens}x{experts}{}", self.overlap.suffix())
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &RouterLogitsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &RouterLogitsArgs {
            tokens, count, n, ..
        } = a;
        self.range("count", count, 1, MAX_EXPERTS)?;
        self.multiple("n", n, COLUMNS)?;
        self.range("n", n, COLUMNS, 1 << 24)?;
        self.range("tokens", tokens, 1, 1 << 18)?;
        check_lengths! { self, a:
            w == count * n,
            x >= tokens * n,
            gamma == n,
            logits == tokens * count,
        }
        let [token_tile, expert_tile] = self.tile.sides();
        Ok(Grid {
            shared: 2 * self.tile.stage() * 4,
            ..Grid::plane(count.div_ceil(expert_tile), tokens.div_ceil(token_tile))
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: RouterLogitsArgs<Dev<'k>>) {
        if self.overlap.waits() {
            self.overlap.start(k);
            k.grid_wait();
        }
        RouterBlock::new(k, self.tile, &a).run();
        self.overlap.end(k);
    }

    fn reference(&self, a: RouterLogitsArgs<Cpu<'_>>) {
        let n = a.n as usize;
        let count = a.count as usize;
        for (x, logits) in a.x.chunks(n).zip(a.logits.chunks_mut(count)) {
            let x = reference::normed(x, a.gamma, a.epsilon);
            for (logit, row) in logits.iter_mut().zip(a.w.chunks(n)) {
                let sum: f64 = row.iter().zip(&x).map(|(&w, x)| f64::from(w) * x).sum();
                *logit = sum as f32;
            }
        }
    }
}

/// The values that a thread computes at the start.
struct RouterBlock<'a, 'k> {
    k: Builder<'k>,
    a: &'a RouterLogitsArgs<Dev<'k>>,
    tile: RouterTile,
    /// Two stages, each with the tokens' rows before the experts'.
    memory: Ptr<'k, f32, Shared>,
    /// The factor of each token's sums.
    factors: Ptr<'k, f32, Shared>,
    /// The row that the thread copies, among the rows that are copied at once.
    row: U32<'k>,
    /// The first of the four columns that the thread copies.
    column: U32<'k>,
    first_token: U32<'k>,
    first_expert: U32<'k>,
}

/// The columns of a stage that a thread has loaded but not yet stored in shared memory.
struct LoadedColumns<'k> {
    x: Vec<[Var<'k, f32>; 4]>,
    w: Vec<[Var<'k, f32>; 4]>,
    gamma: [Var<'k, f32>; 4],
}

impl<'a, 'k> RouterBlock<'a, 'k> {
    fn new(k: Builder<'k>, tile: RouterTile, a: &'a RouterLogitsArgs<Dev<'k>>) -> Self {
        let [tokens, experts] = tile.sides();
        RouterBlock {
            k,
            a,
            tile,
            memory: k.dynamic_shared("stages"),
            factors: k.shared("factors", tokens),
            row: k.tid() / VECTORS,
            column: k.tid() % VECTORS * 4,
            first_token: k.ctaid_y() * tokens,
            first_expert: k.ctaid() * experts,
        }
    }

    /// Emits the whole block.
    fn run(&self) {
        let k = self.k;
        let [tokens, experts] = self.tile.sides();
        let four = || [0.0; 4].map(|zero| k.var(zero));
        let mut loaded: Vec<_> = (0..self.tile.ahead())
            .map(|_| LoadedColumns {
                x: (0..tokens.div_ceil(ROWS)).map(|_| four()).collect(),
                w: (0..experts.div_ceil(ROWS)).map(|_| four()).collect(),
                gamma: four(),
            })
            .collect();
        let mut squares: Vec<_> = loaded[0].x.iter().map(|_| k.var(0.0)).collect();
        let mut sums: Vec<_> = (0..tokens / SIDE * (experts / SIDE))
            .map(|_| k.var(0.0))
            .collect();

        k.section("matmul/experts/router_first", "load the first stages");
        for (i, loaded) in (0..).zip(&mut loaded) {
            self.load(k.val(COLUMNS * i), loaded);
        }

        let step = COLUMNS * self.tile.ahead();
        k.for_each(0, self.a.n, step, |first| {
            for (i, loaded) in (0..).zip(&mut loaded) {
                k.section(
                    "matmul/experts/router_stage",
                    "store the loaded columns, load later ones, and multiply",
                );
                let column = first + COLUMNS * i;
                k.when(column.lt(self.a.n), || {
                    // The buffer was multiplied two stages ago, before the previous barrier.
                    let stage = self.memory.at(i % 2 * self.tile.stage());
                    self.store(stage, loaded, &mut squares);
                    self.load(column + step, loaded);
                    k.barrier();
                    self.multiply(stage, &mut sums);
                });
            }
        });

        self.reduce_squares(&squares);
        self.finish(&sums);
    }

    /// Returns true if the thread copies row `self.row + ROWS * i` of `rows`, or `None` if every
    /// thread does.
    fn copies(&self, i: u32, rows: u32) -> Option<Pred<'k>> {
        (ROWS * (i + 1) > rows).then(|| self.row.lt(rows - ROWS * i))
    }

    /// Loads the columns from `column` on, if they exist. Rows past the last token or expert are
    /// read as the last one, and their sums are not stored.
    fn load(&self, column: U32<'k>, to: &mut LoadedColumns<'k>) {
        let a = self.a;
        let exist = column.lt(a.n);
        let column = column + self.column;
        a.gamma.at(column).ld4_if(exist, &mut to.gamma);
        for (i, x) in (0..).zip(&mut to.x) {
            let token = (self.first_token + self.row + ROWS * i).min(a.tokens - 1);
            a.x.fresh().row(token, a.n * 4).at(column).ld4_if(exist, x);
        }
        for (i, w) in (0..).zip(&mut to.w) {
            let expert = (self.first_expert + self.row + ROWS * i).min(a.count - 1);
            a.w.row(expert, a.n * 4).at(column).ld4_if(exist, w);
        }
    }

    /// Stores loaded columns in a stage, and adds the squares of the tokens.
    fn store(
        &self,
        stage: Ptr<'k, f32, Shared>,
        loaded: &LoadedColumns<'k>,
        squares: &mut [Var<'k, f32>],
    ) {
        let k = self.k;
        let [tokens, experts] = self.tile.sides();
        let to = stage.row(self.row, PITCH * 4).at(self.column);
        let put = |i: u32, first: u32, rows: u32, four: [F32<'k>; 4]| {
            let to = to.at((first + ROWS * i) * PITCH);
            match self.copies(i, rows) {
                Some(copies) => {
                    k.when(copies, || to.st4(four));
                }
                None => to.st4(four),
            }
        };
        for (i, (x, squares)) in (0..).zip(loaded.x.iter().zip(squares)) {
            for x in x {
                squares.fma(x, x);
            }
            let normed = std::array::from_fn(|j| x[j].get() * &loaded.gamma[j]);
            put(i, 0, tokens, normed);
        }
        for (i, w) in (0..).zip(&loaded.w) {
            put(i, tokens, experts, std::array::from_fn(|j| w[j].get()));
        }
    }

    /// Adds the products of a stage. A thread has every eighth token and every eighth expert of the
    /// tile, which makes the rows that a warp reads at once adjacent.
    fn multiply(&self, stage: Ptr<'k, f32, Shared>, sums: &mut [Var<'k, f32>]) {
        let k = self.k;
        let [tokens, experts] = self.tile.sides();
        let thread = k.tid() % GROUP;
        let group = k.tid() / GROUP;
        let x = stage.row(thread / SIDE, PITCH * 4).row(group, 16);
        let w = stage
            .at(tokens * PITCH)
            .row(thread % SIDE, PITCH * 4)
            .row(group, 16);
        for step in 0..VECTORS / GROUPS {
            let read = |from: Ptr<'k, f32, Shared>, rows: u32| -> Vec<_> {
                (0..rows / SIDE)
                    .map(|i| from.at(SIDE * i * PITCH + step * GROUPS * 4).ld4())
                    .collect()
            };
            let x = read(x, tokens);
            let w = read(w, experts);
            for (x, sums) in x.iter().zip(sums.chunks_mut(w.len())) {
                for (w, sum) in w.iter().zip(sums) {
                    for (x, w) in x.iter().zip(w) {
                        sum.fma(*x, *w);
                    }
                }
            }
        }
    }

    /// Publishes the factor of each token: `1 / sqrt(mean(x^2) + epsilon)`.
    fn reduce_squares(&self, squares: &[Var<'k, f32>]) {
        let k = self.k;
        let [tokens, _] = self.tile.sides();
        k.section(
            "matmul/experts/router_factor",
            "sixteen threads have the squares of a token",
        );
        for (i, squares) in (0..).zip(squares) {
            let sum = lanes_sum(VECTORS - 1, squares.get());
            let mean = sum * self.a.n.cvt::<f32>().rcp();
            let factor = (mean + self.a.epsilon).rsqrt();
            let first = self.column.eq(0);
            let stores = self
                .copies(i, tokens)
                .map_or(first, |copies| first & copies);
            k.when(stores, || self.factors.at(self.row + ROWS * i).st(factor));
        }
    }

    /// Adds the sums of the groups, and stores the logits.
    fn finish(&self, sums: &[Var<'k, f32>]) {
        let k = self.k;
        let a = self.a;
        let [_, experts] = self.tile.sides();
        let thread = k.tid() % GROUP;
        let group = k.tid() / GROUP;
        let per_group = sums.len() as u32 * GROUP;

        k.section(
            "matmul/experts/router_groups",
            "all groups but the first publish their sums, where the stages were",
        );
        k.barrier();
        k.when(group.gt(0), || {
            let to = self.memory.row(group - 1, per_group * 4).at(thread);
            for (i, sum) in (0..).zip(sums) {
                to.at(GROUP * i).st(sum);
            }
        });
        k.barrier();

        k.section(
            "matmul/experts/router_store",
            "the first group adds them in their order",
        );
        k.when(group.eq(0), || {
            let per_token = experts / SIDE;
            for (i, sum) in (0..).zip(sums) {
                let row = thread / SIDE + i / per_token * SIDE;
                let token = self.first_token + row;
                let expert = self.first_expert + thread % SIDE + i % per_token * SIDE;
                let sum = (1..GROUPS).fold(sum.get(), |sum, group| {
                    let other = self
                        .memory
                        .at((group - 1) * per_group + GROUP * i)
                        .at(thread);
                    sum + other.ld()
                });
                let logit = sum * self.factors.at(row).ld();
                let exists = token.lt(a.tokens) & expert.lt(a.count);
                k.when(exists, || a.logits.at(token.mad(a.count, expert)).st(logit));
            }
        });
    }
}

impl Variant for RouterLogits {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // One stage, and an odd and an even number of stages. Tiles that are not full, more than one
        // tile of each side, and zeros.
        let [token_tile, expert_tile] = self.tile.sides();
        let case = |tokens: u32, count: u32, n: u32, magnitude: f32| {
            let mut random = Random(seed);
            let x = (0..(tokens + 1) * n)
                .map(|_| random.unit() * magnitude)
                .collect();
            let mut args = vec![
                CpuArg::F32(random.units((count * n) as usize)),
                CpuArg::F32(x),
                CpuArg::F32(random.units(n as usize)),
                CpuArg::F32(vec![0.0; (tokens * count) as usize]),
            ];
            args.extend([tokens, count, n].map(CpuArg::scalar));
            args.push(CpuArg::scalar(1e-5f32));
            Case {
                label: format!("tokens={tokens} count={count} n={n} magnitude={magnitude:e}"),
                args,
                bound: 2e-6,
            }
        };
        vec![
            case(token_tile + 1, expert_tile + 3, 192, 1.0),
            case(3, 5, 128, 1e3),
            case(1, expert_tile, 64, 0.0),
        ]
    }
}
