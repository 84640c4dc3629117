//! Attention of one token over the KV cache, split over positions: `softmax(scale * q k^T) v`.
//!
//! [`Attention`] assigns a contiguous range of positions and a few query heads of one KV head to
//! each block. Each key and value is then read once per block (Flash-Decoding, Dao et al., 2023). A
//! team of lanes processes one position, with 8 dimensions per lane. The softmax is online (Milakov
//! and Gimelshein, 2018, arXiv:1805.02867). With scores in log2 units, a team keeps the running
//! maximum `m`, the sum `s` of `2^(score - m)` and the weighted values. A new maximum rescales the
//! old sums by `2^(m_old - m_new)`. At the end, the teams of a block are rescaled to their common
//! maximum and added. [`AttentionCombine`] does the same for the blocks of a head, and
//! [`AttentionCombineSinks`] also adds the weight of the head's sink.

use crate::harness::{Case, Variant};
use crate::shared::attend::attend;
use crate::shared::cache::{self, OwnRows};
use crate::shared::constant::Constant;
use crate::shared::reduce::{block_max, block_sum, lanes_max, lanes_sum};
use crate::shared::state::{LEN, POSITION};
use crate::shared::{Contract, Random, check_lengths};
use crate::simple::soft_cap;
use ptx_gen::*;
use std::array::from_fn;
use std::f32::consts::LOG2_E;

args! {
    /// Arguments of [`Attention`].
    pub struct AttentionArgs {
        /// `[8]`: the decode state, see [`state`](crate::shared::state). The token attends to the
        /// positions up to `POSITION`.
        state: In<u32>,
        /// `[heads, head_dim]`: the queries
        q: In<f32>,
        /// `[ceil(ctx / 64), kv_heads, 64, head_dim]`: the keys, see [`cache`]
        k_cache: In<f16>,
        /// `[ceil(ctx / 64), kv_heads, 64, head_dim]`: the values, see [`cache`]
        v_cache: In<f16>,
        /// `[heads, splits, head_dim + 2]`: for each split the weighted values, the sum of the
        /// weights, and the maximum in log2
        partials: Out<f32>,
        /// The number of query heads.
        heads: u32,
        /// The number of KV heads.
        kv_heads: u32,
        /// The number of positions of the cache.
        ctx: u32,
        /// The number of splits of the positions.
        splits: u32,
        /// The factor of the scores: `1 / sqrt(head_dim)`.
        scale: f32,
    }
}

args! {
    /// Arguments of [`AttentionCombine`].
    pub struct AttentionCombineArgs {
        /// `[heads, splits, head_dim + 2]`: the partial results, see [`AttentionArgs`]
        partials: In<f32>,
        /// `[heads, head_dim]`: the result
        y: Out<f32>,
        /// The number of query heads.
        heads: u32,
        /// The number of partial results per head.
        splits: u32,
    }
}

args! {
    /// Arguments of [`AttentionCombineSinks`].
    pub struct AttentionCombineSinksArgs {
        /// `[heads, splits, head_dim + 2]`: the partial results, see [`AttentionArgs`]
        partials: In<f32>,
        /// `[heads]`: the score of each head's sink
        sinks: In<f32>,
        /// `[heads, head_dim]`: the result
        y: Out<f32>,
        /// The number of query heads.
        heads: u32,
        /// The number of partial results per head.
        splits: u32,
    }
}

/// Kernel that computes the partial results, with one block per `queries` heads and range of
/// positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attention {
    /// The number of dimensions of a head: a multiple of 8, at most 256.
    pub head_dim: u32,
    /// The number of query heads of a block: a divisor of `heads / kv_heads`.
    pub queries: u32,
    /// The size of the window in positions, including the token's own. `None` attends to all
    /// positions.
    pub window: Option<u32>,
    /// The bound of the scores, which are then `cap * tanh(score / cap)`. `None` bounds nothing.
    pub soft_cap: Option<Constant>,
}

/// Kernel that combines the partial results, with one block per head.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AttentionCombine {
    /// The number of dimensions of a head, at most 1024.
    pub head_dim: u32,
}

/// Kernel that combines the partial results of heads with an attention sink, with one block per
/// head.
///
/// A sink is a learned score that takes part in the softmax but has no value (Xiao et al., 2023,
/// arXiv:2309.17453; Agarwal et al., "gpt-oss", 2025, arXiv:2508.10925).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AttentionCombineSinks {
    /// The number of dimensions of a head, at most 1024.
    pub head_dim: u32,
}

/// The number of warps of a block of [`Attention`].
const WARPS: u32 = 4;
/// The number of dimensions of a lane: 16 bytes of the cache.
const DIMS: usize = 8;
/// The number of partial results that a thread of [`AttentionCombine`] has in flight.
const PARTIALS_IN_FLIGHT: u32 = 8;
/// The maximum number of splits. One weight per split must fit into the shared memory of every
/// device.
const MAX_SPLITS: u32 = 8192;

impl KernelDef for Attention {
    type Args<S: Side> = AttentionArgs<S>;

    fn name(&self) -> String {
        let window = self
            .window
            .map_or(String::new(), |window| format!("_window_{window}"));
        let cap = self
            .soft_cap
            .map_or(String::new(), |cap| format!("_cap_{}", cap.suffix()));
        format!("attention_{}_{}{window}{cap}", self.head_dim, self.queries)
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    /// Returns a number of blocks that leaves 64 registers per thread, where ptxas would use 48 and
    /// spill one.
    fn blocks_per_sm(&self) -> Option<u32> {
        (self.head_dim == 256 && self.queries == 1).then_some(8)
    }

    fn grid(&self, a: &AttentionArgs<Shape>) -> Result<Grid, ShapeError> {
        let &AttentionArgs { heads, .. } = a;
        let head_dim = self.head_dim;
        self.multiple("the kernel's head_dim", head_dim, DIMS as u32)?;
        self.range("the kernel's head_dim", head_dim, DIMS as u32, 256)?;
        self.range("the kernel's window", self.window.unwrap_or(1), 1, 1 << 24)?;
        self.exactly("state", a.state, LEN)?;
        self.range("kv_heads", a.kv_heads, 1, heads)?;
        self.multiple("heads", heads, a.kv_heads)?;
        self.multiple("heads / kv_heads", heads / a.kv_heads, self.queries)?;
        self.range("ctx", a.ctx, 1, 1 << 24)?;
        self.range("splits", a.splits, 1, MAX_SPLITS)?;
        check_lengths! { self, a:
            q == heads * head_dim,
        }
        for (name, found) in [("k_cache", a.k_cache), ("v_cache", a.v_cache)] {
            cache::check_own(self, name, found, [a.ctx, a.kv_heads, head_dim])?;
        }

        let part = [heads, a.splits, head_dim + 2];
        self.length(
            "partials",
            a.partials,
            "heads * splits * (head_dim + 2)",
            &part,
        )?;
        Ok(Grid::plane(heads / self.queries, a.splits))
    }

    fn program<'k>(&self, k: Builder<'k>, a: AttentionArgs<Dev<'k>>) {
        let heads = k.ctaid() * self.queries;
        let split = k.ctaid_y();

        k.section(
            "simple/attention/loop",
            "divide the positions into full iterations",
        );
        let n = a.state.at(POSITION).ld().min(a.ctx - 1) + 1;
        let counted = self.window.map_or(n, |window| n.min(window));
        let steps = (counted + (self.step() - 1)) / self.step();
        let share = (steps + a.splits - 1) / a.splits * self.step();
        let begin = split * share;
        let begin = self.window.map_or(begin, |_| begin + (n - counted));
        let end = (begin + share).min(n);

        let width = self.head_dim + 2;
        let part = |query| {
            a.partials
                .row((heads + query) * a.splits + split, 4 * width)
        };
        k.when(begin.lt(end), || {
            self.attend(k, &a, heads, begin, end, &part)
        })
        .otherwise(|| {
            k.for_each(k.tid(), self.queries * width, 32 * WARPS, |i| {
                let max = (i % width).eq(width - 1);
                part(i / width)
                    .at(i % width)
                    .st(max.select(f32::NEG_INFINITY, 0.0));
            });
        });
    }

    fn reference(&self, a: AttentionArgs<Cpu<'_>>) {
        let dim = self.head_dim as usize;
        let ctx = a.ctx as usize;
        let splits = a.splits as usize;
        let n = ctx.min(a.state[POSITION as usize] as usize + 1);
        let start = n - self.window.map_or(n, |window| n.min(window as usize));

        // A split is a whole number of steps of a block.
        let step = self.step() as usize;
        let steps = (n - start).div_ceil(step);
        let share = steps.div_ceil(splits) * step;
        for (i, part) in a.partials.chunks_mut(dim + 2).enumerate() {
            let head = i / splits;
            let split = i % splits;
            let kv_head = head / (a.heads / a.kv_heads) as usize;
            let row = |p: usize| {
                let first = cache::own_row(a.kv_heads as usize, kv_head, p) * dim;
                [a.k_cache, a.v_cache].map(|cache| &cache[first..][..dim])
            };
            let q: Vec<f64> = a.q[head * dim..][..dim].iter().map(|&q| q.into()).collect();
            let scale = f64::from(a.scale);
            let capped = |score: f64| match self.soft_cap {
                None => score,
                Some(cap) => soft_cap::exact(score, cap.value().into()),
            };
            let to_log2 = |dot: f64| capped(dot * scale) * std::f64::consts::LOG2_E;
            let bound = |split: usize| (start + split * share).min(n);
            let positions = bound(split)..bound(split + 1);
            let attended = attend(&q, positions.map(row), to_log2);
            let others = [attended.sum, attended.max];
            for (to, v) in part
                .iter_mut()
                .zip(attended.values.into_iter().chain(others))
            {
                *to = v as f32;
            }
        }
    }
}

impl Attention {
    /// Returns the number of lanes of a team.
    fn team(&self) -> u32 {
        (self.head_dim / DIMS as u32).next_power_of_two()
    }

    /// Returns the number of positions that a team has in flight. With many queries per lane, more
    /// positions would spill registers.
    fn ahead(&self) -> u32 {
        if self.queries > 4 { 1 } else { 2 }
    }

    /// Returns the number of positions that the teams of a block process per iteration.
    fn step(&self) -> u32 {
        32 / self.team() * WARPS * self.ahead()
    }

    /// Processes the block's positions for its query heads.
    fn attend<'k>(
        &self,
        k: Builder<'k>,
        a: &AttentionArgs<Dev<'k>>,
        heads: U32<'k>,
        begin: U32<'k>,
        end: U32<'k>,
        part: &dyn Fn(U32<'k>) -> Ptr<'k, f32, WriteOnly>,
    ) {
        let lane = k.lane();
        let warp = k.warp();
        let teams = 32 / self.team();
        let first_dim = (lane & (self.team() - 1)) * DIMS as u32;
        let dim = first_dim.min(self.head_dim - DIMS as u32);

        k.section(
            "simple/attention/queries",
            "queries in log2 units; lanes past head_dim repeat its end with weight 0",
        );
        let factor = first_dim.lt(self.head_dim).select(a.scale * LOG2_E, 0.0);
        let mut queries: Vec<Query> = (0..self.queries)
            .map(|i| Query::new(k, a.q.at((heads + i) * self.head_dim + dim), factor))
            .collect();

        k.section(
            "simple/attention/positions",
            "each team processes every n-th position",
        );
        let kv_head = heads / (a.heads / a.kv_heads);
        let rows = OwnRows::new(a.kv_heads, kv_head);
        let keys = a.k_cache.at(dim);
        let values = a.v_cache.at(dim);

        // The team's number in the block is the offset of its first position.
        let mine = warp * teams + (lane >> self.team().ilog2());
        let last = end - 1;
        k.for_each(begin, end, self.step(), |base| {
            let positions: Vec<_> = (0..self.ahead())
                .map(|i| base + mine + i * teams * WARPS)
                .collect();

            // Positions past the end read the last row, and get no weight below.
            let cached: Vec<_> = positions.iter().map(|p| rows.at(p.min(last))).collect();
            let load = |cache: Ptr<'k, f16, ReadOnly>| -> Vec<_> {
                let row = |&row: &U32<'k>| cache.row(row, 2 * self.head_dim).cast::<u32>().ld4();
                cached.iter().map(row).collect()
            };

            // All loads are issued before the first key is used.
            let keys = load(keys);
            let values = load(values);
            let keys: Vec<_> = keys.into_iter().map(unpack8).collect();
            let score = |query: &Query<'k>, (key, position): (&[F32<'k>; DIMS], &U32<'k>)| {
                let score = lanes_sum(self.team() - 1, query.dot(*key));
                let score = match self.soft_cap {
                    None => score,
                    Some(cap) => soft_cap::capped_log2(k, score, cap.value()),
                };
                position.le(last).select(score, f32::NEG_INFINITY)
            };
            let scores = |query| {
                keys.iter()
                    .zip(&positions)
                    .map(|key| score(query, key))
                    .collect()
            };
            let scores: Vec<Vec<_>> = queries.iter().map(scores).collect();
            let values: Vec<_> = values.into_iter().map(unpack8).collect();
            for (query, scores) in queries.iter_mut().zip(scores) {
                query.add(&scores, &values);
            }
        });
        self.gather(k, &mut queries, part);
    }
}

/// Converts four words of two `f16` values each to floats.
fn unpack8(words: [U32<'_>; 4]) -> [F32<'_>; DIMS] {
    let pairs = words.map(|word| word.bits::<f16x2>().unpack());
    from_fn(|i| pairs[i / 2][i % 2].cvt::<f32>())
}

/// A query head in one lane: its dimensions, and the team's running sums.
struct Query<'k> {
    q: [F32<'k>; DIMS],
    max: Var<'k, f32>,
    sum: Var<'k, f32>,
    acc: [Var<'k, f32>; DIMS],
}

impl<'k> Query<'k> {
    /// Loads a query. The maximum starts at `f32::MIN` instead of minus infinity, because infinity
    /// minus infinity would be NaN.
    fn new(k: Builder<'k>, at: Ptr<'k, f32, ReadOnly>, factor: F32<'k>) -> Query<'k> {
        let q = [at.ld4(), at.at(4).ld4()];
        let q = from_fn(|i| q[i / 4][i % 4] * factor);
        Query {
            q,
            max: k.var(f32::MIN),
            sum: k.var(0.0),
            acc: from_fn(|_| k.var(0.0)),
        }
    }

    /// Returns the lane's share of a score.
    fn dot(&self, key: [F32<'k>; DIMS]) -> F32<'k> {
        (1..DIMS).fold(self.q[0] * key[0], |sum, i| self.q[i].fma(key[i], sum))
    }

    /// Adds the weighted values of some positions.
    fn add(&mut self, scores: &[F32<'k>], values: &[[F32<'k>; DIMS]]) {
        let max = scores
            .iter()
            .fold(self.max.get(), |max, &score| max.max(score));
        self.rescale(max);
        for (&score, value) in scores.iter().zip(values) {
            let weight = (score - max).ex2();
            self.sum += weight;
            for (acc, &v) in self.acc.iter_mut().zip(value) {
                acc.fma(weight, v);
            }
        }
    }

    /// Rescales the sums to a new maximum.
    fn rescale(&mut self, max: F32<'k>) {
        let shrink = (self.max.get() - max).ex2();
        self.max.set(max);
        self.sum *= shrink;
        for acc in &mut self.acc {
            *acc *= shrink;
        }
    }
}

impl Attention {
    /// Rescales the teams of the block to their common maximum, and stores the sum of their sums.
    fn gather<'k>(
        &self,
        k: Builder<'k>,
        queries: &mut [Query<'k>],
        part: &dyn Fn(U32<'k>) -> Ptr<'k, f32, WriteOnly>,
    ) {
        let lane = k.lane();
        let warp = k.warp();
        let tid = k.tid();

        // The bits of a lane's number that differ between teams.
        let across = 31 & !(self.team() - 1);
        let sums = self.head_dim + 1;
        let row = self.head_dim.next_multiple_of(4) + 4;
        let maxima = k.shared::<f32>("maxima", WARPS * self.queries);
        let rows = k.shared::<f32>("rows", WARPS * self.queries * row);

        k.section(
            "simple/attention/block_maximum",
            "maximum of each query over the block",
        );
        for (i, query) in (0..).zip(&*queries) {
            let max = lanes_max(across, query.max.get());
            k.when(lane.eq(0), || maxima.at(warp * self.queries + i).st(max));
        }

        k.barrier();

        k.section(
            "simple/attention/rescale",
            "rescale the warp's sums to the maximum",
        );
        for (i, query) in (0..).zip(queries) {
            let maxima = (0..WARPS).map(|w| maxima.at(w * self.queries + i).ld());
            let max = maxima.reduce(|a, b| a.max(b)).expect("a block has warps");
            query.rescale(max);
            let sum = lanes_sum(across, query.sum.get());
            let acc: [_; DIMS] = from_fn(|j| lanes_sum(across, query.acc[j].get()));
            let row = rows.at((warp * self.queries + i) * row);
            k.when(lane.lt(self.head_dim / DIMS as u32), || {
                let at = row.at(lane * DIMS as u32);
                at.st4(from_fn(|j| acc[j]));
                at.at(4).st4(from_fn(|j| acc[j + 4]));
            });
            k.when(lane.eq(0), || row.at(self.head_dim).st(sum));
            k.when(tid.eq(0), || part(k.val(i)).at(sums).st(max));
        }

        k.barrier();

        k.section("simple/attention/block_sums", "sum over the warps");
        k.for_each(tid, self.queries * sums, 32 * WARPS, |i| {
            let query = i / sums;
            let d = i % sums;
            let of_warp = |w: u32| rows.at((query + w * self.queries) * row + d).ld();
            let to = part(query).at(d);
            let sum = (0..WARPS).map(of_warp).reduce(|a, b| a + b);
            to.st(sum.expect("a block has warps"));
        });
    }
}

impl KernelDef for AttentionCombine {
    type Args<S: Side> = AttentionCombineArgs<S>;

    fn name(&self) -> String {
        format!("attention_combine_{}", self.head_dim)
    }

    fn block(&self) -> u32 {
        self.head_dim.next_multiple_of(32)
    }

    fn grid(&self, a: &AttentionCombineArgs<Shape>) -> Result<Grid, ShapeError> {
        combine_grid(self, self.head_dim, [a.partials, a.y], a.heads, a.splits)
    }

    fn program<'k>(&self, k: Builder<'k>, a: AttentionCombineArgs<Dev<'k>>) {
        let partials = Partials {
            partials: a.partials,
            splits: a.splits,
            head_dim: self.head_dim,
        };
        partials.combine(k, None, |d, v| a.y.at(d).st(v));
    }

    fn reference(&self, a: AttentionCombineArgs<Cpu<'_>>) {
        combine_exactly(self.head_dim, a.splits, a.partials, |_| None, a.y);
    }
}

impl KernelDef for AttentionCombineSinks {
    type Args<S: Side> = AttentionCombineSinksArgs<S>;

    fn name(&self) -> String {
        format!("attention_combine_sinks_{}", self.head_dim)
    }

    fn block(&self) -> u32 {
        self.head_dim.next_multiple_of(32)
    }

    fn grid(&self, a: &AttentionCombineSinksArgs<Shape>) -> Result<Grid, ShapeError> {
        let &AttentionCombineSinksArgs { heads, .. } = a;
        check_lengths! { self, a:
            sinks == heads,
        }
        combine_grid(self, self.head_dim, [a.partials, a.y], heads, a.splits)
    }

    fn program<'k>(&self, k: Builder<'k>, a: AttentionCombineSinksArgs<Dev<'k>>) {
        let partials = Partials {
            partials: a.partials,
            splits: a.splits,
            head_dim: self.head_dim,
        };
        let sink = a.sinks.at(k.ctaid()).ld() * LOG2_E;
        partials.combine(k, Some(sink), |d, v| a.y.at(d).st(v));
    }

    fn reference(&self, a: AttentionCombineSinksArgs<Cpu<'_>>) {
        let sink = |head: usize| Some(f64::from(a.sinks[head]) * std::f64::consts::LOG2_E);
        combine_exactly(self.head_dim, a.splits, a.partials, sink, a.y);
    }
}

/// Checks the lengths that both kernels share. Returns the grid.
fn combine_grid(
    kernel: &impl KernelDef,
    head_dim: u32,
    [partials, y]: [usize; 2],
    heads: u32,
    splits: u32,
) -> Result<Grid, ShapeError> {
    kernel.range("the kernel's head_dim", head_dim, 1, 1024)?;
    kernel.range("splits", splits, 1, MAX_SPLITS)?;
    let part = [heads, splits, head_dim + 2];
    kernel.length(
        "partials",
        partials,
        "heads * splits * (head_dim + 2)",
        &part,
    )?;
    kernel.length("y", y, "heads * head_dim", &[heads, head_dim])?;
    Ok(Grid {
        shared: 4 * splits,
        ..Grid::line(heads)
    })
}

/// The partial results of all heads, in device memory.
struct Partials<'k> {
    partials: Ptr<'k, f32, ReadOnly>,
    splits: U32<'k>,
    head_dim: u32,
}

impl<'k> Partials<'k> {
    /// Combines the partial results of the block's head, and calls `store` with the index and the
    /// value of each result. `sink` is a further score in log2 units, which has a weight but no
    /// value.
    fn combine(&self, k: Builder<'k>, sink: Option<F32<'k>>, store: impl Fn(U32<'k>, F32<'k>)) {
        let head = k.ctaid();
        let tid = k.tid();
        let threads = self.head_dim.next_multiple_of(32);
        let row = |split: U32<'k>| {
            self.partials
                .row(head * self.splits + split, 4 * (self.head_dim + 2))
        };
        let weights = k.dynamic_shared::<f32>("weights");

        k.section(
            "simple/attention/combine_maximum",
            "maximum of the partial results",
        );
        let mut max = k.var(f32::NEG_INFINITY);
        k.for_each(tid, self.splits, threads, |i| {
            max.max_with(row(i).at(self.head_dim + 1).ld())
        });
        let max = block_max(k, threads / 32, max.get());

        // A sink far above all scores leaves them without weight, and one far below changes nothing.
        let max = sink.map_or(max, |sink| max.max(sink));

        k.section(
            "simple/attention/combine_weights",
            "weights of the partial results and their sum; its barrier also publishes the weights",
        );
        let mut sum = k.var(0.0);
        k.for_each(tid, self.splits, threads, |i| {
            let weight = (row(i).at(self.head_dim + 1).ld() - max).ex2();
            weights.at(i).st(weight);
            sum.fma(weight, row(i).at(self.head_dim).ld());
        });
        let sum = block_sum(k, threads / 32, sum.get());
        let sum = sink.map_or(sum, |sink| sum + (sink - max).ex2());

        k.section(
            "simple/attention/combine_values",
            "weighted values, with several partial results in flight",
        );
        k.when(tid.lt(self.head_dim), || {
            let mut acc = k.var(0.0);
            k.for_each(0, self.splits, PARTIALS_IN_FLIGHT, |first| {
                for i in (0..PARTIALS_IN_FLIGHT).map(|i| first + i) {
                    let at = i.min(self.splits - 1);
                    let weight = i.lt(self.splits).select(weights.at(at).ld(), 0.0);
                    acc.fma(weight, row(at).at(tid).ld());
                }
            });
            store(head * self.head_dim + tid, acc.get() * sum.rcp());
        });
    }
}

/// Combines the partial results in double precision. `sink` returns the further score of a head in
/// log2 units, if it has one.
fn combine_exactly(
    head_dim: u32,
    splits: u32,
    partials: &[f32],
    sink: impl Fn(usize) -> Option<f64>,
    y: &mut [f32],
) {
    let dim = head_dim as usize;
    let parts = partials.chunks((dim + 2) * splits as usize);
    for (head, (y, parts)) in y.chunks_mut(dim).zip(parts).enumerate() {
        let sink = sink(head);
        let max = parts
            .chunks(dim + 2)
            .map(|part| f64::from(part[dim + 1]))
            .chain(sink)
            .fold(f64::NEG_INFINITY, f64::max);
        let mut sums = vec![0.0; dim + 1];
        sums[dim] = sink.map_or(0.0, |sink| (sink - max).exp2());
        for part in parts.chunks(dim + 2) {
            let weight = (f64::from(part[dim + 1]) - max).exp2();
            for (sum, &v) in sums.iter_mut().zip(part) {
                *sum += weight * f64::from(v);
            }
        }

        for (y, acc) in y.iter_mut().zip(&sums) {
            *y = (acc / sums[dim]) as f32;
        }
    }
}

impl Variant for Attention {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let step = self.step();
        // One position. Splits without work. Whole steps and one more. A position past the cache,
        // which is clamped. Many positions.
        [
            AttentionCase {
                position: 0,
                ctx: 1,
                splits: 1,
                kv_heads: 1,
                groups: 1,
            },
            AttentionCase {
                position: 4,
                ctx: 9,
                splits: 3,
                kv_heads: 2,
                groups: 1,
            },
            AttentionCase {
                position: 2 * step - 1,
                ctx: 3 * step,
                splits: 2,
                kv_heads: 1,
                groups: 2,
            },
            AttentionCase {
                position: 5 * step,
                ctx: 5 * step + 1,
                splits: 2,
                kv_heads: 2,
                groups: 1,
            },
            AttentionCase {
                position: 50,
                ctx: 31,
                splits: 1,
                kv_heads: 1,
                groups: 1,
            },
            AttentionCase {
                position: 4098,
                ctx: 4100,
                splits: 24,
                kv_heads: 1,
                groups: 1,
            },
        ]
        .into_iter()
        .chain(self.window.into_iter().flat_map(window_cases))
        .map(|case| case.filled(self, seed))
        .collect()
    }
}

/// Returns a window that the positions just fill, one that they exceed by one, and one that begins
/// inside of a step.
fn window_cases(window: u32) -> [AttentionCase; 3] {
    [(window - 1, 1), (window, 2), (2 * window + 5, 5)].map(|(position, splits)| AttentionCase {
        position,
        ctx: position + 1,
        splits,
        kv_heads: 2,
        groups: 1,
    })
}

#[derive(Debug)]
struct AttentionCase {
    position: u32,
    ctx: u32,
    splits: u32,
    kv_heads: u32,
    /// The number of blocks that share a KV head.
    groups: u32,
}

impl AttentionCase {
    fn filled(&self, kernel: &Attention, seed: u64) -> Case {
        let mut random = Random(seed);
        let dim = kernel.head_dim as usize;
        let heads = self.kv_heads * self.groups * kernel.queries;
        let mut state = vec![0; LEN];
        state[POSITION as usize] = self.position;
        let cache = (self.kv_heads * cache::pages(self.ctx) * cache::PAGE) as usize * dim;
        let mut args = vec![
            CpuArg::U32(state),
            CpuArg::F32(random.units(heads as usize * dim)),
            CpuArg::F16(random.halves(cache)),
            CpuArg::F16(random.halves(cache)),
            CpuArg::F32(vec![0.0; (heads * self.splits) as usize * (dim + 2)]),
        ];
        args.extend([heads, self.kv_heads, self.ctx, self.splits].map(CpuArg::scalar));

        // The factor is larger than in models, so that the weights differ by powers of ten.
        args.push(CpuArg::scalar(4.0 / (dim as f32).sqrt()));

        // A score below 16 in log2 units is a sum of some 13 roundings of 2^-21 that mostly cancel.
        // The sums add their own. A device rounds the power and the reciprocal of a cap to 2^-22 and
        // 2^-23, and a score near 0 has the difference of two numbers as large as the cap.
        let cap = kernel.soft_cap.map_or(0.0, Constant::value);
        Case {
            label: format!("{self:?}"),
            args,
            bound: 4e-6 + f64::from(cap) * 3e-7,
        }
    }
}

impl Variant for AttentionCombine {
    fn cases(&self, seed: u64) -> Vec<Case> {
        combine_shapes(KernelDef::block(self))
            .map(|shape| combine_case(self.head_dim, seed, shape, &[]))
            .into()
    }
}

impl Variant for AttentionCombineSinks {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Sinks among the scores, far below all of them, and above.
        let sinks = [[2.0], [-100.0], [15.0], [0.0]];
        combine_shapes(KernelDef::block(self))
            .into_iter()
            .zip(&sinks)
            .map(|(shape, sinks)| combine_case(self.head_dim, seed, shape, sinks))
            .collect()
    }
}

/// The shape of a case: the heads, and of the splits of each head those with positions.
struct CombineShape {
    heads: u32,
    splits: u32,
    busy: u32,
}

/// Returns shapes of one and several splits, also more than a block has threads.
fn combine_shapes(threads: u32) -> [CombineShape; 4] {
    [(1, 1, 1), (3, 5, 2), (2, 9, 9), (1, threads + 3, threads)].map(|(heads, splits, busy)| {
        CombineShape {
            heads,
            splits,
            busy,
        }
    })
}

/// Creates a case. Of the `splits` partial results of a head, the last ones are empty, and the
/// others differ widely. The sinks are the buffer after the partial results, if there are any, and
/// each head adds 1 to the previous one.
fn combine_case(head_dim: u32, seed: u64, shape: CombineShape, sink: &[f32]) -> Case {
    let mut random = Random(seed);
    let dim = head_dim as usize;
    let CombineShape {
        heads,
        splits,
        busy,
    } = shape;
    let part = (0..heads * splits).flat_map(|i| {
        if i % splits >= busy {
            let mut idle = vec![0.0; dim + 2];
            idle[dim + 1] = f32::NEG_INFINITY;
            return idle;
        }

        let sum = 10.0 * random.unit().abs() + 1.0;
        let values = random
            .units(dim)
            .into_iter()
            .map(|v| v * sum)
            .collect::<Vec<_>>();
        [values, vec![sum, 20.0 * random.unit()]].concat()
    });
    let mut args = vec![CpuArg::F32(part.collect())];
    args.extend(
        sink.iter()
            .map(|sink| CpuArg::F32((0..heads).map(|head| sink + head as f32).collect())),
    );
    args.extend([
        CpuArg::F32(vec![0.0; heads as usize * dim]),
        CpuArg::scalar(heads),
        CpuArg::scalar(splits),
    ]);
    Case {
        label: format!("heads={heads} splits={splits} busy={busy} sink={sink:?}"),
        args,
        // The exponent of a weight, up to 40, is rounded to 2^-19, where the weight hardly
        // counts. ex2, rcp and the roundings of the sums are a few ulp.
        bound: 3e-6,
    }
}
