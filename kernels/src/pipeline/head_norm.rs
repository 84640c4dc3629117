//! Head norm of queries and keys between the QKV projection and attention: norm, rotary embedding,
//! and the append to the KV cache.
//!
//! It is for models with head norms (Qwen3). Several blocks of [`Qkv`](super::Qkv) compute the row
//! blocks of one head, so none of them has the sum of squares. In this kernel, a block is one warp,
//! which processes one head at a time. A lane holds the pairs of dimensions `j` and `j + head_dim /
//! 2`. Values are copied without a norm.
//!
//! Each token of a batch is at its own position and has its own heads.
//!
//! Blocks without a head repeat the last one and store nothing, so that all blocks take the same
//! time. The next kernel's blocks then become resident evenly, one per SM.

use super::batch::BatchItem;
use super::gemv::case::HeadsCase;
use super::gemv::plan::MAX_BATCH;
use super::paged::{self, CacheKernel, CacheSizes, PageTableArgs, Paged, TokenPlace};
use crate::harness::{Case, Variant};
use crate::shared::cache::{self, CachePages, key, keys};
use crate::shared::reduce::warp_sum;
use crate::shared::state::{LEN, StepState};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;
use std::array::from_fn;

args! {
    /// Arguments of [`HeadNorm`].
    pub struct HeadNormArgs {
        /// `[batch, heads + 2 * kv_heads, head_dim]`: queries, keys and values
        x: In<f32>,
        /// `[2, head_dim]`: weights of the norms of queries and of keys
        gamma: In<f32>,
        /// `[batch, 8]`: the decode states, see [`state`](crate::shared::state)
        state: In<u32>,
        /// `[batch, sets, head_dim / 2, 2]`: cosine and sine at the position
        angles: In<f32>,
        /// `[batch, heads, head_dim]`: the rotated queries
        q: Out<f32>,
        /// `[ceil(ctx / 64), kv_heads, 64, head_dim]`: the keys, see [`cache`]
        k_cache: InOut<f16>,
        /// `[ceil(ctx / 64), kv_heads, 64, head_dim]`: the values, see [`cache`]
        v_cache: InOut<f16>,
        /// The number of query heads.
        heads: u32,
        /// The number of KV heads.
        kv_heads: u32,
        /// The number of dimensions of a head: an even number, at most 256.
        head_dim: u32,
        /// The number of positions of the cache.
        ctx: u32,
        /// A constant that is added to the mean square.
        epsilon: f32,
        /// The number of blocks of the grid.
        blocks: u32,
        /// The bytes of dynamic shared memory. Pass the amount of the neighboring kernels, because
        /// a different amount would change the SM's carveout between the L1 cache and shared
        /// memory.
        shared: u32,
    }
}

/// Kernel that normalizes and rotates the heads, and appends keys and values to the cache. The
/// pairing is NeoX (half-split), because no supported model has head norms with another pairing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeadNorm {
    /// Whether the kernel starts during the previous one and waits for it (programmatic dependent
    /// launch, sm_90).
    pub overlap: bool,
    /// The number of tokens per batch.
    pub batch: u32,
    /// The set of angles to rotate by.
    pub angles: AngleSet,
}

/// One of several sets of angles. Models whose layers use different rotations have more than one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AngleSet {
    /// The index of the set.
    pub index: u32,
    /// The number of sets.
    pub count: u32,
}

impl AngleSet {
    /// The set of a model whose layers all use the same rotation.
    pub const ONLY: AngleSet = AngleSet { index: 0, count: 1 };

    /// Returns the suffix of a kernel's name.
    fn suffix(self) -> String {
        if self == AngleSet::ONLY {
            String::new()
        } else {
            format!("_angles_{}_of_{}", self.index, self.count)
        }
    }

    /// Returns the angles of a token, for heads of `head_dim` dimensions.
    fn of<'k>(
        self,
        all: Ptr<'k, f32, ReadOnly>,
        item: BatchItem<'k>,
        head_dim: U32<'k>,
    ) -> Ptr<'k, f32, ReadOnly> {
        match self {
            AngleSet::ONLY => item.of(all, head_dim),
            AngleSet { index, count } => {
                item.of_with(all, || head_dim * count).at(head_dim * index)
            }
        }
    }
}

/// The number of lanes of the warp that is a block.
const WARP: u32 = 32;
/// The maximum head dimension.
const MAX_HEAD_DIM: u32 = 256;
/// The number of pairs that a lane holds at the maximum head dimension.
const PAIRS: usize = (MAX_HEAD_DIM / 2 / WARP) as usize;

impl KernelDef for HeadNorm {
    type Args<S: Side> = HeadNormArgs<S>;

    fn name(&self) -> String {
        let plain = if self.overlap { "" } else { "_plain" };
        let batch = if self.batch == 1 {
            String::new()
        } else {
            format!("_batch_{}", self.batch)
        };
        format!("head_norm{}{plain}{batch}", self.angles.suffix())
    }

    fn block(&self) -> u32 {
        WARP
    }

    fn grid(&self, a: &HeadNormArgs<Shape>) -> Result<Grid, ShapeError> {
        self.grid_over(a, CachePages::Own)
    }

    fn program<'k>(&self, k: Builder<'k>, a: HeadNormArgs<Dev<'k>>) {
        self.program_over(k, a, None);
    }

    fn reference(&self, a: HeadNormArgs<Cpu<'_>>) {
        self.reference_over(a, None);
    }
}

impl CacheKernel for HeadNorm {
    fn ctx(a: &HeadNormArgs<Shape>) -> u32 {
        a.ctx
    }

    fn grid_over(&self, a: &HeadNormArgs<Shape>, pages: CachePages) -> Result<Grid, ShapeError> {
        let &HeadNormArgs { head_dim, .. } = a;
        self.multiple("head_dim", head_dim, 2)?;
        self.range("head_dim", head_dim, 2, MAX_HEAD_DIM)?;
        self.range("heads", a.heads, 1, 1 << 16)?;
        self.range("kv_heads", a.kv_heads, 1, 1 << 16)?;
        self.range("ctx", a.ctx, 1, 1 << 24)?;
        self.range("blocks", a.blocks, 1, 1 << 16)?;
        self.range("the kernel's batch", self.batch, 1, MAX_BATCH)?;
        let batched = |name, found, formula, factors: &[u32]| {
            super::contract::batched(self, self.batch, name, found, formula, factors)
        };
        let heads = a.heads + 2 * a.kv_heads;
        batched(
            "x",
            a.x,
            "(heads + 2 * kv_heads) * head_dim",
            &[heads, head_dim],
        )?;
        check_lengths! { self, a:
            gamma == 2 * head_dim,
        }
        self.exactly("state", a.state, self.batch as usize * LEN)?;
        self.range(
            "the kernel's set of angles",
            self.angles.index,
            0,
            self.angles.count - 1,
        )?;
        match self.angles {
            AngleSet::ONLY => batched("angles", a.angles, "head_dim", &[head_dim])?,
            AngleSet { count, .. } => {
                batched("angles", a.angles, "sets * head_dim", &[count, head_dim])?
            }
        }

        batched("q", a.q, "heads * head_dim", &[a.heads, head_dim])?;
        for (name, found) in [("k_cache", a.k_cache), ("v_cache", a.v_cache)] {
            pages.check(self, name, found, [a.ctx, a.kv_heads, head_dim])?;
        }

        Ok(Grid {
            shared: a.shared,
            ..Grid::line(a.blocks)
        })
    }

    fn program_over<'k>(
        &self,
        k: Builder<'k>,
        a: HeadNormArgs<Dev<'k>>,
        table: Option<PageTableArgs<Dev<'k>>>,
    ) {
        if self.overlap {
            k.grid_trigger();
        }

        k.section("pipeline/head_norm/weights", "weights of the norms");
        let lane = NormLane::new(k, self.angles, &a);
        let sizes = CacheSizes {
            kv_heads: a.kv_heads,
            ctx: a.ctx,
        };
        let place = |item: BatchItem<'k>| TokenPlace::load(k, table, a.state, item, sizes);

        // A state does not change while kernels over a paged cache run.
        let early = (self.batch == 1 && table.is_some()).then(|| place(BatchItem::ONLY));
        if self.overlap {
            k.section(
                "pipeline/overlap/wait",
                "nothing before this wait reads results of earlier kernels",
            );
            k.grid_wait();
        }

        // A single token has one place for all heads, so it is loaded once.
        let only = (self.batch == 1).then(|| early.unwrap_or_else(|| place(BatchItem::ONLY)));
        let heads = a.heads + a.kv_heads * 2;
        let all = if self.batch == 1 {
            heads
        } else {
            heads * self.batch
        };

        k.section("pipeline/head_norm/head", "one head for each warp");
        k.for_each(0, (all + a.blocks - 1) / a.blocks, 1, |round| {
            let i = round * a.blocks + k.ctaid();
            let row = i.min(all - 1);
            let (item, index, place) = match only {
                Some(place) => (BatchItem::ONLY, row, place),
                None => {
                    let item = BatchItem::new(row / heads);
                    (item, row % heads, place(item))
                }
            };
            let keys = index.ge(a.heads);
            let values = index.ge(a.heads + a.kv_heads);
            lane.process(
                NormedHead {
                    row,
                    item,
                    index,
                    exists: i.lt(all),
                    keys,
                    values,
                },
                place,
            );
        });
    }

    fn reference_over(&self, a: HeadNormArgs<Cpu<'_>>, table: Option<PageTableArgs<Cpu<'_>>>) {
        let dim = a.head_dim as usize;
        let heads = a.heads as usize;
        let kv_heads = a.kv_heads as usize;
        let rotated = |x: &[f32], gamma: &[f32], angles: &[f32]| -> Vec<f32> {
            let normed = super::reference::normed(x, gamma, a.epsilon);
            let half = dim / 2;
            let value = |d: usize| {
                let [cos, sin] = [0, 1].map(|i| f64::from(angles[2 * (d % half) + i]));
                let x = normed[d % half];
                let y = normed[d % half + half];
                let rotated = if d < half {
                    x * cos - y * sin
                } else {
                    x * sin + y * cos
                };
                rotated as f32
            };
            (0..dim).map(value).collect()
        };

        // A token's heads are queries, then keys, then values.
        let all_heads = heads + 2 * kv_heads;
        for (row, x) in a.x.chunks(dim).enumerate() {
            let item = row / all_heads;
            let i = row % all_heads;
            let AngleSet { index, count } = self.angles;
            let set = item * count as usize + index as usize;
            let angles = &a.angles[set * dim..][..dim];
            let (y, cache) = match i {
                _ if i < heads => {
                    let y = rotated(x, &a.gamma[..dim], angles);
                    a.q[(item * heads + i) * dim..][..dim].copy_from_slice(&y);
                    continue;
                }
                _ if i < heads + kv_heads => (rotated(x, &a.gamma[dim..], angles), &mut *a.k_cache),
                _ => (x.to_vec(), &mut *a.v_cache),
            };
            let state = &a.state[item * LEN..][..LEN];
            let head = (i - heads) % kv_heads;
            if let Some(row) = paged::appended_row(table.as_ref(), state, [kv_heads, head], a.ctx) {
                let row = &mut cache[row * dim..][..dim];
                for (to, y) in row.iter_mut().zip(y) {
                    *to = key(y);
                }
            }
        }
    }
}

/// One lane of a warp.
struct NormLane<'a, 'k> {
    k: Builder<'k>,
    angles: AngleSet,
    a: &'a HeadNormArgs<Dev<'k>>,
    /// The norm weights of the lane's pairs, of queries and then of keys. They are constant, so
    /// they are loaded before the wait.
    gamma: [[Pair<'k>; PAIRS]; 2],
}

/// The two dimensions of a rotary pair.
type Pair<'k> = [F32<'k>; 2];

/// The head that a warp processes.
#[derive(Clone, Copy)]
struct NormedHead<'k> {
    /// The index among the heads of the whole batch.
    row: U32<'k>,
    item: BatchItem<'k>,
    /// The index among the queries, keys and values of its token.
    index: U32<'k>,
    /// Whether the block stores the head.
    exists: Pred<'k>,
    /// Whether the head is a key or a value.
    keys: Pred<'k>,
    /// Whether the head is a value.
    values: Pred<'k>,
}

impl<'a, 'k> NormLane<'a, 'k> {
    /// Loads the norm weights of the lane's pairs.
    fn new(k: Builder<'k>, angles: AngleSet, a: &'a HeadNormArgs<Dev<'k>>) -> Self {
        let gamma = [0, 1].map(|m| from_fn(|i| pair(k, a, a.gamma.row(m, a.head_dim * 4), i)));
        NormLane {
            k,
            angles,
            a,
            gamma,
        }
    }

    /// Normalizes, rotates and stores a head.
    fn process(&self, head: NormedHead<'k>, place: TokenPlace<'k>) {
        let k = self.k;
        let a = self.a;

        k.section(
            "pipeline/head_norm/angles",
            "load the head and the angles of its position",
        );
        let x: [Pair; PAIRS] =
            from_fn(|i| pair(k, a, a.x.row(head.row, a.head_dim * 4).fresh(), i));
        let angles: [Pair; PAIRS] = from_fn(|i| {
            let mut angle = [k.var(1.0), k.var(0.0)];
            let angles = self.angles.of(a.angles, head.item, a.head_dim);
            let own = angles.row(j(k, i), 8).fresh();
            own.ld2_if(has(k, a, i), &mut angle);
            angle.map(|v| v.get())
        });

        k.section("pipeline/head_norm/sum_of_squares", "sum of squares");
        let squares = x.iter().flatten().fold(k.val(0.0), |sum, &x| x.fma(x, sum));
        let mean = warp_sum(squares) * a.head_dim.cvt::<f32>().rcp();
        let factor = (mean + a.epsilon).rsqrt();
        for (i, (x, [cos, sin])) in x.into_iter().zip(angles).enumerate() {
            k.section(
                "pipeline/head_norm/rotate",
                "normalize, rotate and store a pair of dimensions",
            );
            let gamma = |half: usize| {
                head.keys
                    .select(self.gamma[1][i][half], self.gamma[0][i][half])
            };
            let [u, v]: Pair = from_fn(|half| x[half] * factor * gamma(half));
            let rotated = [u * cos - v * sin, u * sin + v * cos];

            // Values are neither normalized nor rotated. A select keeps the warp together.
            let y = from_fn(|half| head.values.select(x[half], rotated[half]));
            k.when(head.exists & has(k, a, i), || self.store(i, y, head, place));
        }
    }

    /// Stores a pair of the head, unless it is a key or a value without a place in the cache.
    fn store(&self, i: usize, y: Pair<'k>, head: NormedHead<'k>, place: TokenPlace<'k>) {
        let k = self.k;
        let a = self.a;
        let [first, second] = dims(k, a, i);
        let append = |cache: Ptr<'k, f16, ReadWrite>, kv_head: U32<'k>| {
            let row = cache.row(place.row(a.kv_heads, kv_head), a.head_dim * 2);
            let y = keys(k, y);
            row.at(first).st(y[0]);
            row.at(second).st(y[1]);
        };
        k.when(!head.keys, || {
            let row = a.q.row(head.item.plus(head.index, a.heads), a.head_dim * 4);
            row.at(first).st(y[0]);
            row.at(second).st(y[1]);
        });
        let kv_head = head.index - a.heads;
        let inside = place.is_stored();
        k.when(head.keys & !head.values & inside, || {
            append(a.k_cache, kv_head)
        });
        k.when(head.values & inside, || {
            append(a.v_cache, kv_head - a.kv_heads)
        });
    }
}

/// Returns the index in the head of the lane's pair `i`.
fn j(k: Builder<'_>, i: usize) -> U32<'_> {
    k.lane() + WARP * i as u32
}

/// Returns true if the lane has a pair `i`.
fn has<'k>(k: Builder<'k>, a: &HeadNormArgs<Dev<'k>>, i: usize) -> Pred<'k> {
    j(k, i).lt(a.head_dim / 2)
}

/// Returns the two dimensions of the lane's pair `i`.
fn dims<'k>(k: Builder<'k>, a: &HeadNormArgs<Dev<'k>>, i: usize) -> [U32<'k>; 2] {
    [j(k, i), j(k, i) + a.head_dim / 2]
}

/// Loads pair `i` of a row. Returns zeros if the head does not have the pair.
fn pair<'k, A: Loads>(
    k: Builder<'k>,
    a: &HeadNormArgs<Dev<'k>>,
    row: Ptr<'k, f32, A>,
    i: usize,
) -> Pair<'k> {
    dims(k, a, i).map(|d| {
        let mut v = k.var(0.0);
        row.at(d).ld_if(has(k, a, i), &mut v);
        v.get()
    })
}

impl Variant for Paged<HeadNorm> {
    fn cases(&self, seed: u64) -> Vec<Case> {
        self.append_cases(seed)
    }
}

impl Variant for HeadNorm {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // The cases have one head per block and idle blocks, several heads per block, pairs that
        // fill less than a warp, one warp or several, and a full cache.
        let shapes = [
            [4, 2, 128, 65, 63, 11],
            [6, 1, 16, 3, 0, 3],
            [2, 2, 64, 64, 64, 6],
            [3, 1, 256, 70, 65, 1],
        ];
        shapes
            .into_iter()
            .map(|shape| self.case(HeadsCase::new(shape), seed))
            .collect()
    }
}

impl HeadNorm {
    fn case(&self, shape: HeadsCase, seed: u64) -> Case {
        let HeadsCase {
            heads,
            kv_heads: kv,
            head_dim: dim,
            ctx,
            position,
            blocks,
        } = shape;
        let mut random = Random(seed);
        let batch = self.batch;
        let rows = batch * self.angles.count;
        let radians = (0..rows).flat_map(|i| (0..dim / 2).map(move |j| (i + j) as f32));
        let angles = radians
            .flat_map(|angle| [angle.cos(), angle.sin()])
            .collect();
        let state = (0..batch)
            .flat_map(|i| {
                StepState {
                    position: position + i,
                    ..StepState::default()
                }
                .words()
            })
            .collect();
        let cache = random.halves((kv * cache::pages(ctx) * cache::PAGE * dim) as usize);
        let mut args = vec![
            CpuArg::F32(random.units((batch * (heads + 2 * kv) * dim) as usize)),
            CpuArg::F32(random.units(2 * dim as usize)),
            CpuArg::U32(state),
            CpuArg::F32(angles),
            CpuArg::F32(vec![0.0; (batch * heads * dim) as usize]),
            CpuArg::F16(cache.clone()),
            CpuArg::F16(cache),
        ];
        args.extend([heads, kv, dim, ctx].map(CpuArg::scalar));
        args.push(CpuArg::scalar(1e-5f32));
        args.extend([blocks, 1024].map(CpuArg::scalar));
        let label = format!(
            "heads={heads} kv_heads={kv} head_dim={dim} position={position} blocks={blocks}"
        );

        // The bound of RmsNorm, plus two products.
        Case {
            label,
            args,
            bound: 3e-6,
        }
    }
}
