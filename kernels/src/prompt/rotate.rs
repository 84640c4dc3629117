//! Queries, keys and values of many tokens, after their matmul: bias, head norm, rotary embedding,
//! and the append to the paged KV cache. Each token has its own position and sequence.
//!
//! The steps are the steps of [`HeadNorm`](crate::pipeline::HeadNorm) and
//! [`Qkv`](crate::pipeline::Qkv), for many tokens. A block processes a token, and a team of lanes
//! processes one head after another. A lane has four rotary pairs, which are at the same dimensions
//! in each head. It therefore computes their angles once, as [`Rope`](crate::Rope) does.
//!
//! Queries are stored in `f16`, times the factor of the scores and `log2(e)`. The combined factor
//! is below 1 for all heads with more than 2 dimensions. A query thus exceeds the range of `f16`
//! only if it did so before. It is then stored as NaN, like a [key](crate::shared::cache).
//!
//! A token whose state is done is skipped. If a token's page does not exist, according to its state
//! or the page table, its key and value are dropped. No state or table can make the kernel write
//! outside of the caches.

use crate::harness::{Case, Variant};
use crate::pipeline::reference::normed;
use crate::shared::cache::{self, PAGE, key, key_pair};
use crate::shared::reduce::lanes_sum;
use crate::shared::state::{DONE, LEN, POSITION, SEQUENCE, StepState};
use crate::shared::{Contract, Overlap, Random, check_lengths};
use crate::simple::rope::{Pairing, angle, exact_angles, frequencies};
use ptx_gen::*;
use std::array::from_fn;
use std::f32::consts::LOG2_E;

args! {
    /// Arguments of [`RotateTokens`].
    pub struct RotateTokensArgs {
        /// `[capacity, heads + 2 * kv_heads, head_dim]`: queries, keys and values
        x: In<f32>,
        /// `[heads + 2 * kv_heads, head_dim]`: the bias, if the kernel adds one, else empty
        bias: In<f32>,
        /// `[2, head_dim]`: weights of the norms of queries and of keys, if the kernel has norms,
        /// else empty
        gamma: In<f32>,
        /// `[head_dim / 2, 2]`: revolutions per position, as
        /// [`revolutions`](crate::simple::rope::revolutions) splits them
        freq: In<f32>,
        /// `[rows, 8]`: the state of each token with its position, below `2^24`, its sequence, and
        /// its end flag. There are at least `tokens` rows. See [`state`](crate::shared::state).
        state: In<u32>,
        /// `[sequences, max_pages]`: the page table. A page that this launch writes must belong to
        /// a single sequence.
        pages: In<u32>,
        /// `[capacity, heads, head_dim]`: the queries times `scale * log2(e)`, or NaN beyond the
        /// range of `f16`. It is not written for tokens that are done.
        q: Out<f16>,
        /// `[cache_pages, kv_heads, 64, head_dim]`: the keys, see [`cache`]
        k_cache: InOut<f16>,
        /// `[cache_pages, kv_heads, 64, head_dim]`: the values, see [`cache`]
        v_cache: InOut<f16>,
        /// The number of query heads.
        heads: u32,
        /// The number of KV heads.
        kv_heads: u32,
        /// The number of pages of the caches.
        cache_pages: u32,
        /// The number of sequences of the page table.
        sequences: u32,
        /// The maximum number of pages of a sequence.
        max_pages: u32,
        /// The number of tokens.
        tokens: u32,
        /// The capacity of the buffers in tokens.
        capacity: u32,
        /// A constant that is added to the mean square.
        epsilon: f32,
        /// The factor of the scores: `1 / sqrt(head_dim)`.
        scale: f32,
    }
}

/// Kernel that rotates queries and keys of many tokens, and appends keys and values. All dimensions
/// of a head are rotated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RotateTokens {
    /// The number of dimensions of a head: a multiple of 8, at most 256.
    pub head_dim: u32,
    /// The pairing of dimensions in the rotation.
    pub pairing: Pairing,
    /// Whether a bias is added.
    pub bias: bool,
    /// Whether queries and keys are normalized.
    pub norm: bool,
    /// The overlap with the kernels before and after it.
    pub overlap: Overlap,
}

/// The number of threads of a block.
const THREADS: u32 = 256;
/// The number of rotary pairs of a lane.
const PAIRS: usize = 4;
/// The number of dimensions of a lane.
const DIMS: u32 = 8;

/// Both dimensions of each pair of a lane.
type Pairs<'k> = [[F32<'k>; 2]; PAIRS];

impl RotateTokens {
    /// Returns the number of lanes that share a head: a power of two. The first `head_dim / 8` of
    /// them have dimensions.
    fn team(&self) -> u32 {
        (self.head_dim / DIMS).next_power_of_two()
    }
}

impl KernelDef for RotateTokens {
    type Args<S: Side> = RotateTokensArgs<S>;

    fn name(&self) -> String {
        let pairing = match self.pairing {
            Pairing::Interleaved => "interleaved",
            Pairing::HalfSplit => "half_split",
        };
        let bias = if self.bias { "_bias" } else { "" };
        let norm = if self.norm { "_norm" } else { "" };
        let first = self.overlap.suffix();
        format!(
            "rotate_tokens_{}_{pairing}{bias}{norm}{first}",
            self.head_dim
        )
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &RotateTokensArgs<Shape>) -> Result<Grid, ShapeError> {
        let head_dim = self.head_dim;
        self.multiple("the kernel's head_dim", head_dim, DIMS)?;
        self.range("the kernel's head_dim", head_dim, DIMS, 32 * DIMS)?;
        self.range("heads", a.heads, 1, 1 << 16)?;
        self.range("kv_heads", a.kv_heads, 1, 1 << 16)?;
        self.range("tokens", a.tokens, 1, a.capacity)?;
        self.require(a.state.is_multiple_of(LEN) && a.state / LEN >= a.tokens as usize, || {
            format!(
                "state has {} elements, must have 8 for each row, and at least tokens = {} rows",
                a.state, a.tokens
            )
        })?;
        cache::check_table(self, a.pages, [a.sequences, a.max_pages])?;
        let rows = a.heads + 2 * a.kv_heads;
        let formula = "(heads + 2 * kv_heads) * head_dim";
        let row = [rows, head_dim];
        let [capacity, height, width] = [a.capacity, rows, head_dim];
        self.length(
            "x",
            a.x,
            &format!("capacity * {formula}"),
            &[capacity, height, width],
        )?;
        self.length("bias", a.bias, formula, if self.bias { &row } else { &[0] })?;
        self.length(
            "gamma",
            a.gamma,
            "2 * head_dim",
            &[if self.norm { 2 } else { 0 }, head_dim],
        )?;
        check_lengths! { self, a:
            freq == head_dim,
        }
        self.length(
            "q",
            a.q,
            "capacity * heads * head_dim",
            &[a.capacity, a.heads, head_dim],
        )?;
        for (name, found) in [("k_cache", a.k_cache), ("v_cache", a.v_cache)] {
            cache::check_pages(self, name, found, [a.cache_pages, a.kv_heads, head_dim])?;
        }

        Ok(Grid::line(a.tokens))
    }

    fn program<'k>(&self, k: Builder<'k>, a: RotateTokensArgs<Dev<'k>>) {
        if self.overlap.waits() {
            self.overlap.start(k);
            k.grid_wait();
        }
        let state = a.state.row(k.ctaid(), 4 * LEN as u32);
        k.when(state.at(DONE).ld().eq(0), || {
            k.section(
                "prompt/rotate/angles",
                "angles of four pairs at the token's position, and its page",
            );
            let lane = RotaryLane::new(k, self, &a, state);
            let heads = a.heads + a.kv_heads * 2;
            let teams = THREADS / self.team();

            k.section("prompt/rotate/head", "one head for each team");
            k.for_each(0, (heads + (teams - 1)) / teams, 1, |round| {
                let index = round * teams + k.tid() / self.team();
                // All teams run every round, because the head norm needs whole warps.
                lane.process(index.min(heads - 1), index.lt(heads));
            });
        });
    }

    fn reference(&self, a: RotateTokensArgs<Cpu<'_>>) {
        let dim = self.head_dim as usize;
        let heads = a.heads as usize;
        let kv_heads = a.kv_heads as usize;
        let all = heads + 2 * kv_heads;
        for (row, x) in a.x.chunks(dim).enumerate().take(a.tokens as usize * all) {
            let token = row / all;
            let i = row % all;
            let state = &a.state[token * LEN..][..LEN];
            if state[DONE as usize] != 0 {
                continue;
            }

            let [position, sequence] = [POSITION, SEQUENCE].map(|word| state[word as usize]);
            let mut x = x.to_vec();
            for (b, x) in a.bias.iter().skip(i * dim).zip(&mut x) {
                *x += b;
            }

            let x = if i < heads + kv_heads {
                self.rotated(
                    &x,
                    a.gamma,
                    usize::from(i >= heads),
                    a.freq,
                    position,
                    a.epsilon,
                )
            } else {
                x.into_iter().map(f64::from).collect()
            };
            let cached = |head| {
                let table = [a.sequences, a.max_pages, a.cache_pages];
                cache::paged_row(
                    a.pages,
                    table,
                    sequence,
                    [kv_heads, head],
                    position as usize,
                )
            };
            let factor = if i < heads {
                f64::from(a.scale) * std::f64::consts::LOG2_E
            } else {
                1.0
            };
            let to = match i {
                _ if i < heads => Some(&mut a.q[(token * heads + i) * dim..]),
                _ if i < heads + kv_heads => {
                    cached(i - heads).map(|row| &mut a.k_cache[row * dim..])
                }
                _ => cached(i - heads - kv_heads).map(|row| &mut a.v_cache[row * dim..]),
            };
            for (to, x) in to.into_iter().flatten().zip(x) {
                *to = key((x * factor) as f32);
            }
        }
    }
}

impl RotateTokens {
    /// Returns a query (`which` 0) or a key (`which` 1), normalized and rotated.
    fn rotated(
        &self,
        x: &[f32],
        gamma: &[f32],
        which: usize,
        freq: &[f32],
        position: u32,
        epsilon: f32,
    ) -> Vec<f64> {
        let dim = x.len();
        let mut y: Vec<f64> = if self.norm {
            normed(x, &gamma[which * dim..][..dim], epsilon)
        } else {
            x.iter().map(|&x| x.into()).collect()
        };
        for (j, (sin, cos)) in exact_angles(freq, position).enumerate() {
            let [i, l] = match self.pairing {
                Pairing::Interleaved => [2 * j, 2 * j + 1],
                Pairing::HalfSplit => [j, j + dim / 2],
            };
            [y[i], y[l]] = [y[i] * cos - y[l] * sin, y[i] * sin + y[l] * cos];
        }

        y
    }
}

/// A lane of a team.
struct RotaryLane<'a, 'k> {
    k: Builder<'k>,
    def: &'a RotateTokens,
    a: &'a RotateTokensArgs<Dev<'k>>,
    /// The lane's index in the head. Lanes without dimensions repeat the last one.
    number: U32<'k>,
    /// Whether the lane has dimensions.
    inside: Pred<'k>,
    token: U32<'k>,
    /// The row of the token's key or value in the cache, for the first head.
    cached: U32<'k>,
    /// Whether that row exists.
    kept: Pred<'k>,
    /// Cosine and sine of the lane's pairs.
    angles: Pairs<'k>,
}

impl<'a, 'k> RotaryLane<'a, 'k> {
    /// Creates the lane of a token with this state.
    fn new(
        k: Builder<'k>,
        def: &'a RotateTokens,
        a: &'a RotateTokensArgs<Dev<'k>>,
        state: Ptr<'k, u32, ReadOnly>,
    ) -> Self {
        let position = state.at(POSITION).ld();
        let sequence = state.at(SEQUENCE).ld();
        let number = k.tid() % def.team();
        let lanes = def.head_dim / DIMS;
        let inside = number.lt(lanes);

        // A lane without dimensions repeats the last ones, so that no load is out of bounds.
        let number = number.min(lanes - 1);
        let token = k.ctaid();
        let angles = from_fn(|i| {
            let angle = angle(a.freq, number * PAIRS as u32 + i as u32, position);
            [angle.cos(), angle.sin()]
        });
        let index = position >> PAGE.ilog2();
        let known = sequence.lt(a.sequences) & index.lt(a.max_pages);
        let mut page = k.var(u32::MAX);
        a.pages
            .row(sequence, a.max_pages * 4)
            .at(index)
            .ld_if(known, &mut page);
        let cached = page.get() * a.kv_heads * PAGE + (position & (PAGE - 1));
        let kept = page.get().lt(a.cache_pages);
        RotaryLane {
            k,
            def,
            a,
            number,
            inside,
            token,
            cached,
            kept,
            angles,
        }
    }

    /// Processes head `index` of queries, keys and values. Whole warps must call it.
    fn process(&self, index: U32<'k>, exists: Pred<'k>) {
        let k = self.k;
        let def = self.def;
        let a = self.a;
        let heads = a.heads + a.kv_heads * 2;
        let token_heads = a.x.row(self.token, heads * (4 * def.head_dim));
        let x = token_heads.row(index, 4 * def.head_dim);
        let mut x = if def.overlap.waits() {
            self.load(x.fresh())
        } else {
            self.load(x.stream())
        };
        let keys = index.ge(a.heads);
        let values = index.ge(a.heads + a.kv_heads);
        if def.bias {
            let bias = self.load(a.bias.row(index, 4 * def.head_dim));
            x = from_fn(|i| from_fn(|half| x[i][half] + bias[i][half]));
        }

        let y = if def.norm { self.normed(x, keys) } else { x };

        k.section("prompt/rotate/rotate", "rotate the pairs");
        let rotated = |i: usize| {
            let [u, v] = y[i];
            let [cos, sin] = self.angles[i];
            let rotated = [u * cos - v * sin, u * sin + v * cos];
            [0, 1].map(|half| values.select(x[i][half], rotated[half]))
        };

        // Queries take the scale of attention and the factor of base-2 exponentials, so that
        // attention multiplies neither.
        let factor = keys.select(1.0, a.scale * LOG2_E);
        let y = from_fn(|i| rotated(i).map(|y| y * factor));
        k.when(exists & self.inside, || {
            let row = 2 * def.head_dim;
            let cached = |head: U32<'k>| head.mad(PAGE, self.cached);
            k.when(!keys, || {
                self.store(a.q.row(self.token * a.heads + index, row), y)
            });
            k.when(keys & !values & self.kept, || {
                self.store(a.k_cache.row(cached(index - a.heads), row), y)
            });
            k.when(values & self.kept, || {
                self.store(a.v_cache.row(cached(index - a.heads - a.kv_heads), row), y);
            });
        });
    }

    /// Returns queries or keys divided by the root of their mean square, times the weights of the
    /// norm.
    fn normed(&self, x: Pairs<'k>, keys: Pred<'k>) -> Pairs<'k> {
        let k = self.k;
        let def = self.def;
        let a = self.a;

        k.section("prompt/rotate/head_norm", "head norm");
        let squares = x.iter().flatten().fold(k.val(0.0), |sum, &x| x.fma(x, sum));

        // Lanes without dimensions repeat others and must not count twice.
        let own = self.inside.select(squares, 0.0);
        let sum = lanes_sum(def.team() - 1, own);
        let mean = sum * (1.0 / def.head_dim as f32);
        let factor = (mean + a.epsilon).rsqrt();
        let gamma = self.load(a.gamma.row(keys.select(1, 0), 4 * def.head_dim));
        from_fn(|i| from_fn(|half| x[i][half] * factor * gamma[i][half]))
    }

    /// Loads the lane's pairs of a head.
    fn load<A: Loads>(&self, head: Ptr<'k, f32, A>) -> Pairs<'k> {
        match self.def.pairing {
            Pairing::Interleaved => {
                let own = head.at(self.number * DIMS);
                let dims = [own.ld4(), own.at(4).ld4()];
                from_fn(|i| [0, 1].map(|half| dims[i / 2][i % 2 * 2 + half]))
            }
            Pairing::HalfSplit => {
                let own = head.at(self.number * PAIRS as u32);
                let dims = [own.ld4(), own.at(self.def.head_dim / 2).ld4()];
                from_fn(|i| [dims[0][i], dims[1][i]])
            }
        }
    }

    /// Stores the lane's pairs as `f16`.
    fn store<A: Stores>(&self, head: Ptr<'k, f16, A>, y: Pairs<'k>) {
        let word = |x: F32<'k>, y: F32<'k>| key_pair(self.k, [x, y]).bits::<u32>();
        match self.def.pairing {
            Pairing::Interleaved => {
                let to = head.at(self.number * DIMS).cast::<u32>();
                to.st4(y.map(|[x, y]| word(x, y)));
            }
            Pairing::HalfSplit => {
                let own = head.at(self.number * PAIRS as u32);
                // The first dimensions of the pairs are adjacent, and so are the second ones.
                for (half, at) in [0, self.def.head_dim / 2].into_iter().enumerate() {
                    let low = word(y[0][half], y[1][half]);
                    let high = word(y[2][half], y[3][half]);
                    own.at(at).cast::<u32>().st2([low, high]);
                }
            }
        }
    }
}

impl Variant for RotateTokens {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let plain = RotateCase {
            heads: 2,
            kv_heads: 1,
            tokens: &[(0, 0)],
            capacity: 8,
            size: 1.0,
        };
        // One head for some of the teams. Several heads per team, and values beyond the range of
        // `f16`. Positions around the end of a page. Tokens of several sequences in turn. A
        // sequence, and positions past pages, that the table does not contain.
        [
            plain,
            RotateCase {
                heads: 28,
                kv_heads: 4,
                tokens: &[(63, 1), (0, 0), (64, 1), (65, 1)],
                ..plain
            },
            RotateCase {
                heads: 4,
                kv_heads: 2,
                tokens: &[
                    (180, 2),
                    (7, 1),
                    (2, 3),
                    (191, 0),
                    (192, 0),
                    (500, 1),
                    (5, DROPPED),
                    (99, 2),
                ],
                size: 1e5,
                ..plain
            },
        ]
        .map(|case| case.filled(self, seed))
        .into()
    }
}

#[derive(Clone, Copy, Debug)]
struct RotateCase {
    heads: u32,
    kv_heads: u32,
    /// The position and sequence of each token. A token of the sequence [`DROPPED`] is done.
    tokens: &'static [(u32, u32)],
    capacity: u32,
    /// The magnitude of the values.
    size: f32,
}

/// The sequence of a token that is done.
const DROPPED: u32 = u32::MAX;

/// The page table of the cases: pages of three sequences in no particular order. It has one page
/// that the caches do not contain, and lacks one that no sequence has.
const TABLE: [[u32; 3]; 3] = [[4, 9, 2], [7, 0, 5], [3, 10, 1]];
const CACHE_PAGES: u32 = 9;

impl RotateCase {
    fn filled(&self, kernel: &RotateTokens, seed: u64) -> Case {
        let mut random = Random(seed);
        let dim = kernel.head_dim as usize;
        let rows = (self.heads + 2 * self.kv_heads) as usize;
        let mut sized = |n: usize| {
            (0..n)
                .map(|_| random.unit() * self.size)
                .collect::<Vec<_>>()
        };
        let x = sized(self.capacity as usize * rows * dim);
        let bias = sized(if kernel.bias { rows * dim } else { 0 });
        let gamma = random.units(if kernel.norm { 2 * dim } else { 0 });
        let cache = (CACHE_PAGES * self.kv_heads * PAGE) as usize * dim;
        let state = self.tokens.iter().flat_map(|&(position, sequence)| {
            let done = sequence == DROPPED;
            StepState {
                position,
                done,
                sequence: if done { 0 } else { sequence },
                ..StepState::default()
            }
            .words()
        });
        let mut args = vec![
            CpuArg::F32(x),
            CpuArg::F32(bias),
            CpuArg::F32(gamma),
            CpuArg::F32(frequencies(kernel.head_dim)),
            CpuArg::U32(state.collect()),
            CpuArg::U32(TABLE.concat()),
            CpuArg::F16(vec![f16(0); (self.capacity * self.heads) as usize * dim]),
            CpuArg::F16(random.halves(cache)),
            CpuArg::F16(random.halves(cache)),
        ];
        let tokens = self.tokens.len() as u32;
        let sizes = [
            self.heads,
            self.kv_heads,
            CACHE_PAGES,
            3,
            3,
            tokens,
            self.capacity,
        ];
        args.extend(sizes.map(CpuArg::scalar));
        args.extend([1e-5, 1.0 / (dim as f32).sqrt()].map(CpuArg::scalar));

        // The bounds of the norm and of the rotation.
        Case {
            label: format!("{self:?}"),
            args,
            bound: 5e-6,
        }
    }
}
