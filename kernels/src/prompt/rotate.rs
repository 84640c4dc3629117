//! Queries, keys and values of many tokens, after their product: bias, head norm, rotary embedding, and the append to the
//! paged KV cache. Each token has its own position and sequence.
//!
//! The steps of [`HeadNorm`](crate::pipeline::HeadNorm) and of [`Qkv`](crate::pipeline::Qkv), for many tokens. A block
//! takes a token, a team of lanes one head after another. A lane has four rotary pairs, the same in each head, so it
//! computes their angles once, as [`Rope`](crate::Rope) does.
//!
//! Queries become what scores are computed from: binary16, times the factor of the scores and `log2(e)`. That factor is
//! below 1 for all heads longer than 2, so it exceeds the range of binary16 only where the query itself does; the query
//! is NaN there, as a [key](crate::cache) is.
//!
//! Nothing is done for a token whose state is done. One whose page is not there, by its state or by the page table, has
//! its key and value dropped: nothing is written outside of the caches, whatever those say.

use crate::cache::{self, PAGE, key, key_pair};
use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use crate::overlap::Overlap;
use crate::pipeline::normed;
use crate::reduce::lanes_sum;
use crate::simple::rope::{Pairing, angle, exact_angles, frequencies};
use crate::state::{DONE, LEN, POSITION, SEQUENCE, StepState};
use ptx_gen::*;
use std::array::from_fn;
use std::f32::consts::LOG2_E;

args! {
    /// Arguments of [`RotateTokens`].
    pub struct RotateTokensArgs {
        /// `[capacity, heads + 2 * kv_heads, head_dim]`: queries, keys, values
        x: In<f32>,
        /// `[heads + 2 * kv_heads, head_dim]`, if the kernel adds it; else empty.
        bias: In<f32>,
        /// `[2, head_dim]`: weights of the norms of queries and of keys, if the kernel has them; else empty.
        gamma: In<f32>,
        /// `[head_dim / 2, 2]`: revolutions a position, as [`revolutions`](crate::simple::rope::revolutions) splits them
        freq: In<f32>,
        /// `[rows, 8]`, at least `tokens` rows: the position, below `2^24`, and the sequence of each token, and whether it
        /// is done. See [`state`](crate::state)
        state: In<u32>,
        /// `[sequences, max_pages]`: the page table. Pages that this launch writes belong to one sequence alone
        pages: In<u32>,
        /// `[capacity, heads, head_dim]`: times `scale * log2(e)`; NaN beyond the range of binary16. Not written for
        /// tokens that are done.
        q: Out<f16>,
        /// `[cache_pages, kv_heads, 64, head_dim]`: see [`cache`]
        k_cache: InOut<f16>,
        /// As `k_cache`
        v_cache: InOut<f16>,
        /// Query heads.
        heads: u32,
        /// KV heads.
        kv_heads: u32,
        /// Pages of the caches.
        cache_pages: u32,
        /// Sequences of the page table.
        sequences: u32,
        /// Pages of a sequence, at most.
        max_pages: u32,
        /// Tokens.
        tokens: u32,
        /// Tokens that buffers have room for.
        capacity: u32,
        /// Added to the mean square.
        epsilon: f32,
        /// Factor of the scores: `1 / sqrt(head_dim)`.
        scale: f32,
    }
}

/// The kernel. All dimensions of a head are rotated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RotateTokens {
    /// Dimensions of a head: a multiple of 8, at most 256.
    pub head_dim: u32,
    /// Which dimensions make a rotary pair.
    pub pairing: Pairing,
    /// Whether a bias is added.
    pub bias: bool,
    /// Whether queries and keys are normed.
    pub norm: bool,
    /// How it overlaps with the kernels before and after it.
    pub overlap: Overlap,
}

const THREADS: u32 = 256;
/// Rotary pairs of a lane, and dimensions.
const PAIRS: usize = 4;
const DIMS: u32 = 8;

/// Both dimensions of each pair of a lane.
type Pairs<'k> = [[F32<'k>; 2]; PAIRS];

impl RotateTokens {
    /// Lanes that share a head: a power of two, of which the first `head_dim / 8` have dimensions.
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
        self.multiple("the kernel's head_dim", self.head_dim, DIMS)?;
        self.range("the kernel's head_dim", self.head_dim, DIMS, 32 * DIMS)?;
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
        let (formula, row) = ("(heads + 2 * kv_heads) * head_dim", [rows, self.head_dim]);
        let [capacity, height, width] = [a.capacity, rows, self.head_dim];
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
            &[if self.norm { 2 } else { 0 }, self.head_dim],
        )?;
        self.length("freq", a.freq, "head_dim", &[self.head_dim])?;
        self.length(
            "q",
            a.q,
            "capacity * heads * head_dim",
            &[a.capacity, a.heads, self.head_dim],
        )?;
        for (name, found) in [("k_cache", a.k_cache), ("v_cache", a.v_cache)] {
            cache::check_pages(
                self,
                (name, found),
                [a.cache_pages, a.kv_heads, self.head_dim],
            )?;
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
            k.note("the angles of four pairs at the token's position, and its page");
            let lane = RotaryLane::new(k, self, &a, state);
            let (heads, teams) = (a.heads + a.kv_heads * 2, THREADS / self.team());
            k.note("a head to each team");
            k.for_each(0, (heads + (teams - 1)) / teams, 1, |round| {
                let index = round * teams + k.tid() / self.team();
                lane.process(index.min(heads - 1), index.lt(heads));
            });
        });
    }

    fn reference(&self, a: RotateTokensArgs<Cpu<'_>>) {
        let dim = self.head_dim as usize;
        let (heads, kv_heads) = (a.heads as usize, a.kv_heads as usize);
        let all = heads + 2 * kv_heads;
        for (row, x) in a.x.chunks(dim).enumerate().take(a.tokens as usize * all) {
            let (token, i) = (row / all, row % all);
            let state = &a.state[token * LEN..][..LEN];
            if state[DONE as usize] != 0 {
                continue;
            }
            let [position, sequence] = [POSITION, SEQUENCE].map(|word| state[word as usize]);
            let mut x = x.to_vec();
            a.bias
                .iter()
                .skip(i * dim)
                .zip(&mut x)
                .for_each(|(b, x)| *x += b);
            let x = match i < heads + kv_heads {
                true => self.rotated(
                    &x,
                    a.gamma,
                    usize::from(i >= heads),
                    a.freq,
                    position,
                    a.epsilon,
                ),
                false => x.into_iter().map(f64::from).collect(),
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
            to.into_iter()
                .flatten()
                .zip(x)
                .for_each(|(to, x)| *to = key((x * factor) as f32));
        }
    }
}

impl RotateTokens {
    /// A query (`which` 0) or a key (1), normed and rotated.
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
        let mut y: Vec<f64> = match self.norm {
            true => normed(x, &gamma[which * dim..][..dim], epsilon),
            false => x.iter().map(|&x| x.into()).collect(),
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
    /// Which of the head's lanes it is; lanes without dimensions repeat the last.
    number: U32<'k>,
    /// Whether it has dimensions.
    inside: Pred<'k>,
    token: U32<'k>,
    /// The row of its key, or value, of the first head in the cache, and whether there is one.
    cached: U32<'k>,
    kept: Pred<'k>,
    /// Cosine and sine of its pairs.
    angles: Pairs<'k>,
}

impl<'a, 'k> RotaryLane<'a, 'k> {
    /// The lane of a token with this state.
    fn new(
        k: Builder<'k>,
        def: &'a RotateTokens,
        a: &'a RotateTokensArgs<Dev<'k>>,
        state: Ptr<'k, u32, ReadOnly>,
    ) -> Self {
        let (position, sequence) = (state.at(POSITION).ld(), state.at(SEQUENCE).ld());
        let (number, lanes) = (k.tid() % def.team(), def.head_dim / DIMS);
        let inside = number.lt(lanes);
        let (number, token) = (number.min(lanes - 1), k.ctaid());
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

    /// Head `index` of queries, keys and values; whole warp.
    fn process(&self, index: U32<'k>, exists: Pred<'k>) {
        let (k, def, a) = (self.k, self.def, self.a);
        let heads = a.heads + a.kv_heads * 2;
        let x =
            a.x.row(self.token, heads * (4 * def.head_dim))
                .row(index, 4 * def.head_dim);
        let mut x = if def.overlap.waits() {
            self.load(x.fresh())
        } else {
            self.load(x.stream())
        };
        let (keys, values) = (index.ge(a.heads), index.ge(a.heads + a.kv_heads));
        if def.bias {
            let bias = self.load(a.bias.row(index, 4 * def.head_dim));
            x = from_fn(|i| from_fn(|half| x[i][half] + bias[i][half]));
        }
        let y = if def.norm { self.normed(x, keys) } else { x };
        k.note("rotate");
        let rotated = |i: usize| {
            let ([u, v], [cos, sin]) = (y[i], self.angles[i]);
            let rotated = [u * cos - v * sin, u * sin + v * cos];
            [0, 1].map(|half| values.select(x[i][half], rotated[half]))
        };
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

    /// Queries or keys over the root of their mean square.
    fn normed(&self, x: Pairs<'k>, keys: Pred<'k>) -> Pairs<'k> {
        let (k, def, a) = (self.k, self.def, self.a);
        k.note("head norm");
        let squares = x.iter().flatten().fold(k.val(0.0), |sum, &x| x.fma(x, sum));
        let sum = lanes_sum(def.team() - 1, self.inside.select(squares, 0.0));
        let factor = (sum * (1.0 / def.head_dim as f32) + a.epsilon).rsqrt();
        let gamma = self.load(a.gamma.row(keys.select(1, 0), 4 * def.head_dim));
        from_fn(|i| from_fn(|half| x[i][half] * factor * gamma[i][half]))
    }

    /// The lane's pairs of a head.
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

    /// Stores them as binary16.
    fn store<A: Stores>(&self, head: Ptr<'k, f16, A>, y: Pairs<'k>) {
        let word = |x: F32<'k>, y: F32<'k>| key_pair(self.k, [x, y]).bits::<u32>();
        match self.def.pairing {
            Pairing::Interleaved => {
                head.at(self.number * DIMS)
                    .cast::<u32>()
                    .st4(y.map(|[x, y]| word(x, y)));
            }
            Pairing::HalfSplit => {
                let own = head.at(self.number * PAIRS as u32);
                for (half, at) in [0, self.def.head_dim / 2].into_iter().enumerate() {
                    let words = [word(y[0][half], y[1][half]), word(y[2][half], y[3][half])];
                    own.at(at).cast::<u32>().st2(words);
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
        // A head to some of the teams; several to a team; numbers beyond binary16. Positions around the end of a page;
        // of several sequences, in turn; of a sequence, and past pages, that the table does not have.
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
    /// Position and sequence of each; that of [`DROPPED`] is done.
    tokens: &'static [(u32, u32)],
    capacity: u32,
    /// The largest number.
    size: f32,
}

/// The sequence of a token that is done.
const DROPPED: u32 = u32::MAX;

/// The page table of the cases: pages of three sequences in no order, one that the caches do not have, and one that no
/// sequence has.
const TABLE: [[u32; 3]; 3] = [[4, 9, 2], [7, 0, 5], [3, 10, 1]];
const CACHE_PAGES: u32 = 9;

impl RotateCase {
    fn filled(&self, kernel: &RotateTokens, seed: u64) -> Case {
        let mut random = Random(seed);
        let (dim, rows) = (
            kernel.head_dim as usize,
            (self.heads + 2 * self.kv_heads) as usize,
        );
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
