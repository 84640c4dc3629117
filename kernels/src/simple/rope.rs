//! Rotary position embedding (RoPE, Su et al., 2021, arXiv:2104.09864) of a token's queries and
//! keys, and the append to the KV cache.
//!
//! A pair `(x, y)` of dimensions is rotated by `position * freq` revolutions: `(x cos t - y sin t,
//! x sin t + y cos t)`. Dimensions from `rope_dim` on are not rotated. Cosine and sine may be
//! multiplied by a magnitude. Queries are rotated in place. The rotated key and the value are
//! stored as `f16` in the cache row of the position.
//!
//! `sin.approx` is accurate to 2^-20.9 only on [-pi, pi]. Frequencies are therefore passed in
//! revolutions, as a sum of two `f32`. The kernel first subtracts the whole revolutions of the
//! exact product, so the error is equal at all positions.

use crate::harness::{Case, Variant};
use crate::shared::cache::{self, OwnRows, key, keys};
use crate::shared::state::{LEN, POSITION};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;
use std::f32::consts::TAU;

args! {
    /// Arguments of [`Rope`].
    pub struct RopeArgs {
        /// `[8]`: the decode state, see [`state`](crate::shared::state)
        state: In<u32>,
        /// `[rope_dim / 2, 2]`: revolutions per position, as [`revolutions`] splits them
        freq: In<f32>,
        /// `[heads, head_dim]`: the queries
        q: InOut<f32>,
        /// `[kv_heads, head_dim]`: the keys
        k: In<f32>,
        /// `[kv_heads, head_dim]`: the values
        v: In<f32>,
        /// `[ceil(ctx / 64), kv_heads, 64, head_dim]`: the cached keys, see [`cache`]
        k_cache: InOut<f16>,
        /// `[ceil(ctx / 64), kv_heads, 64, head_dim]`: the cached values, see [`cache`]
        v_cache: InOut<f16>,
        /// The number of query heads.
        heads: u32,
        /// The number of KV heads.
        kv_heads: u32,
        /// The number of dimensions of a head.
        head_dim: u32,
        /// The number of dimensions that are rotated, an even number.
        rope_dim: u32,
        /// The number of positions of the cache.
        ctx: u32,
    }
}

/// The pairing of dimensions in a rotation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pairing {
    /// GPT-J style (interleaved): `(2j, 2j + 1)`. GGML calls it "normal". Llama files use it.
    Interleaved,
    /// GPT-NeoX style (half-split): `(j, j + rope_dim / 2)`. GGML calls it "NeoX". Qwen files use
    /// it.
    HalfSplit,
}

/// Kernel that rotates and appends. Each block processes one head: first the queries, then the
/// keys, then the values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rope {
    /// The pairing of dimensions.
    pub pairing: Pairing,
    /// The factor of cosine and sine.
    pub magnitude: f32,
}

/// The number of threads of a block.
const THREADS: u32 = 64;

/// Splits a number of revolutions per position for the `freq` argument. Returns the nearest `f32`,
/// and the nearest `f32` to the remainder.
pub fn revolutions(v: f64) -> [f32; 2] {
    let high = v as f32;
    [high, (v - f64::from(high)) as f32]
}

/// Returns the angle of pair `j`, from -pi to pi, by the reduction that the module documentation
/// describes.
pub(crate) fn angle<'k>(freq: Ptr<'k, f32, ReadOnly>, j: U32<'k>, position: U32<'k>) -> F32<'k> {
    let [high, low] = freq.at(j * 2).ld2();
    let position = position.cvt::<f32>();
    let product = position * high;
    // The fused multiply-add returns the rounding error of the product exactly.
    let lost = position.fma(high, -product);
    (product - product.round() + position.fma(low, lost)) * TAU
}

/// Returns sine and cosine of each pair's angle in double precision.
pub(crate) fn exact_angles(freq: &[f32], position: u32) -> impl Iterator<Item = (f64, f64)> + '_ {
    freq.chunks(2).map(move |freq| {
        let revolutions = f64::from(position) * (f64::from(freq[0]) + f64::from(freq[1]));
        (revolutions.fract() * std::f64::consts::TAU).sin_cos()
    })
}

impl KernelDef for Rope {
    type Args<S: Side> = RopeArgs<S>;

    fn name(&self) -> String {
        let pairing = match self.pairing {
            Pairing::Interleaved => "interleaved",
            Pairing::HalfSplit => "half_split",
        };
        match self.magnitude {
            1.0 => format!("rope_{pairing}"),
            magnitude => format!("rope_{pairing}_magnitude_{:08x}", magnitude.to_bits()),
        }
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &RopeArgs<Shape>) -> Result<Grid, ShapeError> {
        let &RopeArgs { kv_heads, .. } = a;
        let &RopeArgs {
            head_dim,
            heads,
            rope_dim,
            ..
        } = a;
        self.require(self.magnitude.is_finite(), || {
            "the kernel's magnitude must be finite".into()
        })?;
        self.exactly("state", a.state, LEN)?;
        self.range("heads", heads, 1, 1 << 16)?;
        self.range("kv_heads", kv_heads, 1, 1 << 16)?;

        // Every position below 2^24 is exact as an f32.
        self.range("ctx", a.ctx, 1, 1 << 24)?;
        self.multiple("rope_dim", rope_dim, 2)?;
        self.require(rope_dim <= head_dim, || {
            format!(
                "rope_dim is {}, must be at most head_dim = {}",
                rope_dim, head_dim
            )
        })?;
        check_lengths! { self, a:
            freq == rope_dim,
            q == heads * head_dim,
            k == kv_heads * head_dim,
            v == kv_heads * head_dim,
        }
        for (name, found) in [("k_cache", a.k_cache), ("v_cache", a.v_cache)] {
            cache::check_own(self, name, found, [a.ctx, kv_heads, head_dim])?;
        }

        Ok(Grid::line(heads + 2 * kv_heads))
    }

    fn program<'k>(&self, k: Builder<'k>, a: RopeArgs<Dev<'k>>) {
        let block = k.ctaid();
        let position = a.state.at(POSITION).ld();
        k.when(block.lt(a.heads), || {
            let q = a.q.at(block * a.head_dim);
            self.each_pair(k, &a, position, |t| {
                let x = q.at(t.dims[0]).ld();
                let y = q.at(t.dims[1]).ld();
                let [x, y] = t.of(x, y);
                q.at(t.dims[0]).st(x);
                q.at(t.dims[1]).st(y);
            });
        })
        .otherwise(|| {
            let head = (block - a.heads) % a.kv_heads;
            let from = head * a.head_dim;
            let rows = OwnRows::new(a.kv_heads, head);
            let to = rows.at(position) * a.head_dim;

            k.section(
                "simple/rope/bounds",
                "positions past the cache are not stored",
            );
            k.when(position.lt(a.ctx), || {
                k.when(block.lt(a.heads + a.kv_heads), || {
                    let key = a.k.at(from);
                    let cache = a.k_cache.at(to);
                    self.each_pair(k, &a, position, |t| {
                        let x = key.at(t.dims[0]).ld();
                        let y = key.at(t.dims[1]).ld();
                        let rotated = t.of(x, y);
                        let [x, y] = keys(k, rotated);
                        cache.at(t.dims[0]).st(x);
                        cache.at(t.dims[1]).st(y);
                    });

                    // The dimensions after the rotated ones are copied.
                    append(k, k.tid() + a.rope_dim, a.head_dim, key, cache);
                })
                .otherwise(|| {
                    let first = k.tid();
                    let value = a.v.at(from);
                    let cache = a.v_cache.at(to);
                    append(k, first, a.head_dim, value, cache);
                });
            });
        });
    }

    fn reference(&self, a: RopeArgs<Cpu<'_>>) {
        let position = a.state[POSITION as usize];
        let ctx = a.ctx as usize;
        let head_dim = a.head_dim as usize;
        let half = a.rope_dim as usize / 2;
        let rotated = |x: &[f32]| {
            let mut rotated = x.to_vec();
            for (j, angle) in exact_angles(a.freq, position).enumerate() {
                let [sin, cos] = [angle.0, angle.1].map(|x| x * f64::from(self.magnitude));

                // The two dimensions of pair `j`.
                let [i, l] = match self.pairing {
                    Pairing::Interleaved => [2 * j, 2 * j + 1],
                    Pairing::HalfSplit => [j, j + half],
                };
                let x_i = f64::from(x[i]);
                let x_l = f64::from(x[l]);
                rotated[i] = (x_i * cos - x_l * sin) as f32;
                rotated[l] = (x_i * sin + x_l * cos) as f32;
            }
            rotated
        };
        for q in a.q.chunks_mut(head_dim) {
            q.copy_from_slice(&rotated(q));
        }

        // Positions past the cache are not stored.
        if position as usize >= ctx {
            return;
        }

        let halves = |x: &[f32]| x.iter().map(|&x| key(x)).collect::<Vec<_>>();
        for (head, (k, v)) in a.k.chunks(head_dim).zip(a.v.chunks(head_dim)).enumerate() {
            let row = cache::own_row(a.kv_heads as usize, head, position as usize);
            let to = row * head_dim..(row + 1) * head_dim;
            a.k_cache[to.clone()].copy_from_slice(&halves(&rotated(k)));
            a.v_cache[to].copy_from_slice(&halves(v));
        }
    }
}

/// Stores the elements of `x` from `from` on as `f16`, with steps of a block.
fn append<'k>(
    k: Builder<'k>,
    from: U32<'k>,
    n: U32<'k>,
    x: Ptr<'k, f32, ReadOnly>,
    to: Ptr<'k, f16, ReadWrite>,
) {
    k.for_each(from, n, THREADS, |i| {
        let x = x.at(i).ld();
        let [x, _] = keys(k, [x, x]);
        to.at(i).st(x);
    });
}

/// The rotation of one pair of dimensions.
struct PairRotation<'k> {
    dims: [U32<'k>; 2],
    sin: F32<'k>,
    cos: F32<'k>,
}

impl<'k> PairRotation<'k> {
    /// Returns the rotated pair.
    fn of(&self, x: F32<'k>, y: F32<'k>) -> [F32<'k>; 2] {
        [
            x.fma(self.cos, -(y * self.sin)),
            x.fma(self.sin, y * self.cos),
        ]
    }
}

impl Rope {
    /// Calls `body` with the rotation of each pair of the head, one per thread.
    fn each_pair<'k>(
        &self,
        k: Builder<'k>,
        a: &RopeArgs<Dev<'k>>,
        position: U32<'k>,
        body: impl FnOnce(PairRotation<'k>),
    ) {
        let half = a.rope_dim >> 1;
        k.for_each(k.tid(), half, THREADS, |j| {
            let angle = angle(a.freq, j, position);
            let dims = match self.pairing {
                Pairing::Interleaved => [j * 2, j * 2 + 1],
                Pairing::HalfSplit => [j, j + half],
            };
            let scaled = |x: F32<'k>| {
                if self.magnitude == 1.0 {
                    x
                } else {
                    x * self.magnitude
                }
            };
            body(PairRotation {
                dims,
                sin: scaled(angle.sin()),
                cos: scaled(angle.cos()),
            });
        });
    }
}

impl Variant for Rope {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // At position 0, only the rounding to `f16` is left, and the bound is exact. The last case
        // is past the cache, so only the queries are rotated.
        [
            (
                RopeCase {
                    heads: 3,
                    kv_heads: 1,
                    head_dim: 64,
                    rope_dim: 64,
                    ctx: 2,
                    position: 0,
                },
                0.0,
            ),
            (
                RopeCase {
                    heads: 2,
                    kv_heads: 2,
                    head_dim: 80,
                    rope_dim: 32,
                    ctx: 18,
                    position: 17,
                },
                ROTATION_BOUND,
            ),
            (
                RopeCase {
                    heads: 4,
                    kv_heads: 2,
                    head_dim: 256,
                    rope_dim: 256,
                    ctx: 5,
                    position: 4,
                },
                ROTATION_BOUND,
            ),
            (
                RopeCase {
                    heads: 1,
                    kv_heads: 1,
                    head_dim: 6,
                    rope_dim: 4,
                    ctx: 131_072,
                    position: 131_071,
                },
                ROTATION_BOUND,
            ),
            (
                RopeCase {
                    heads: 2,
                    kv_heads: 1,
                    head_dim: 32,
                    rope_dim: 32,
                    ctx: 7,
                    position: 7,
                },
                ROTATION_BOUND,
            ),
        ]
        .map(|(case, bound)| {
            case.filled(
                seed,
                if self.magnitude == 1.0 {
                    bound
                } else {
                    ROTATION_BOUND
                },
            )
        })
        .into()
    }
}

/// Returns the frequencies for a base of 10,000.
pub(crate) fn frequencies(rope_dim: u32) -> Vec<f32> {
    let freq = |j| {
        let exponent = -2.0 * f64::from(j) / f64::from(rope_dim);
        revolutions(10_000f64.powf(exponent) / std::f64::consts::TAU)
    };
    (0..rope_dim / 2).flat_map(freq).collect()
}

/// The error bound of a rotation. Sine and cosine are accurate to 2^-20.9 plus the rounding of the
/// angle, 2^-23, and two of them contribute to each result.
const ROTATION_BOUND: f64 = 3e-6;

#[derive(Debug)]
struct RopeCase {
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    rope_dim: u32,
    ctx: u32,
    position: u32,
}

impl RopeCase {
    fn filled(&self, seed: u64, bound: f64) -> Case {
        let mut random = Random(seed);
        let mut state = vec![0; LEN];
        state[POSITION as usize] = self.position;
        let kv = (self.kv_heads * self.head_dim) as usize;
        let cache = kv * (cache::pages(self.ctx) * cache::PAGE) as usize;
        let mut args = vec![
            CpuArg::U32(state),
            CpuArg::F32(frequencies(self.rope_dim)),
            CpuArg::F32(random.units((self.heads * self.head_dim) as usize)),
            CpuArg::F32(random.units(kv)),
            CpuArg::F32(random.units(kv)),
            CpuArg::F16(random.halves(cache)),
            CpuArg::F16(random.halves(cache)),
        ];
        let sizes = [
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.rope_dim,
            self.ctx,
        ];
        args.extend(sizes.map(CpuArg::scalar));
        Case {
            label: format!("{self:?}"),
            args,
            bound,
        }
    }
}
