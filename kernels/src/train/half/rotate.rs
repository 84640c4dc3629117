//! The operations between the projections of queries or keys and attention, in bf16: head norm and
//! rotation, forward and backward.
//!
//! ```text
//! forward:   y  = rotate(norm(x))                  x and inv are kept
//! backward:  dx = norm'(rotate^-1(sum of parts))   a part per query head of a group, in the order
//!                                                  of the heads
//! ```
//!
//! The formulas are those of [`rms_norm`] and [`rope`], without a rounding between them. A warp
//! takes a head of a token, and a lane has two pairs of the head, or more.

use super::buffers::{narrow, units, wide};
use super::rows::unpack;
use crate::harness::{Case, Variant};
use crate::shared::reduce::warp_sum;
use crate::shared::{Contract, Random, check_lengths};
use crate::simple::rope::{Pairing, angle, revolutions};
use crate::train::rope::{self, Angles, Direction, frequencies};
use crate::train::{buffers, rms_norm};
use ptx_gen::*;
use std::f64::consts::TAU;

args! {
    /// Arguments of [`RotateForward`].
    pub struct RotateForwardArgs {
        /// `[tokens]`: the position of each token
        positions: In<u32>,
        /// `[head_dim / 2, 2]`: revolutions per position, split by [`revolutions`]
        freq: In<f32>,
        /// `[tokens, heads, head_dim]`: the heads
        x: In<bf16>,
        /// `[head_dim]`: the gains of the head norm, or empty without one
        g: In<f32>,
        /// `[tokens, heads, head_dim]`: the results
        y: Out<bf16>,
        /// `[tokens, heads]`: the scales for the backward pass, or empty without a head norm
        inv: Out<f32>,
        /// The number of tokens.
        tokens: u32,
        /// The number of heads of a token.
        heads: u32,
        /// The constant that is added to the mean of the squares of a head.
        eps: f32,
    }
}

/// Kernel of the optional head norm and the rotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RotateForward {
    /// The number of dimensions of a head: a multiple of 4, at most 256.
    pub head_dim: u32,
    /// The dimensions that form a pair.
    pub pairing: Pairing,
    /// True if there is a head norm.
    pub norm: bool,
}

args! {
    /// Arguments of [`HeadsBackward`].
    pub struct HeadsBackwardArgs {
        /// `[tokens]`: the position of each token
        positions: In<u32>,
        /// `[head_dim / 2, 2]`: revolutions per position, split by [`revolutions`]
        freq: In<f32>,
        /// `[tokens, heads, group, head_dim]`: the gradients, which are summed over the group
        parts: In<f32>,
        /// `[tokens, heads, head_dim]`: the inputs of the head norm, or empty without one
        x: In<bf16>,
        /// `[head_dim]`: the gains of the head norm, or empty without one
        g: In<f32>,
        /// `[tokens, heads]`: the scales of the forward pass, or empty without a head norm
        inv: In<f32>,
        /// `[tokens, heads, head_dim]`: the gradient of `x`
        dx: Out<bf16>,
        /// The number of tokens.
        tokens: u32,
        /// The number of heads of a token.
        heads: u32,
        /// The number of query heads of a group.
        group: u32,
    }
}

/// Kernel that sums gradients over groups, rotates them back, and takes them through the head norm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeadsBackward {
    /// The number of dimensions of a head: a multiple of 4, at most 256.
    pub head_dim: u32,
    /// The dimensions that form a pair, or `None` if heads are not rotated.
    pub pairing: Option<Pairing>,
    /// True if there is a head norm.
    pub norm: bool,
}

const WARPS: u32 = 8;

/// The pairs `j` and `j + 1` of a head, with an even `j`: two runs of two neighboring elements.
struct Quad<'k> {
    /// True if the head has these pairs.
    exists: Pred<'k>,
    /// The first pair.
    j: U32<'k>,
    /// The indices at which the two runs begin in the head.
    at: [U32<'k>; 2],
    pairing: Pairing,
}

/// The elements of a quad, in the order of the head.
type Four<'k> = [[F32<'k>; 2]; 2];

/// Returns the quads of this lane.
fn quads<'k>(k: Builder<'k>, head_dim: u32, pairing: Pairing) -> Vec<Quad<'k>> {
    let pairs = head_dim / 2;
    let of = |i: u32| {
        let j = (k.lane() + 32 * i) * 2;
        let at = match pairing {
            Pairing::HalfSplit => [j, j + pairs],
            Pairing::Interleaved => [j * 2, j * 2 + 2],
        };
        Quad {
            exists: j.lt(pairs),
            j,
            at,
            pairing,
        }
    };
    (0..head_dim.div_ceil(4 * 32)).map(of).collect()
}

impl<'k> Quad<'k> {
    /// Loads the elements from a head in `bf16`. They are zeros if the quad does not exist.
    fn load(&self, k: Builder<'k>, head: Ptr<'k, bf16, ReadOnly>) -> Four<'k> {
        self.at.map(|at| {
            let mut word = k.var(0u32);
            head.at(at).cast::<u32>().ld_if(self.exists, &mut word);
            unpack(word.get())
        })
    }

    /// Loads the elements from a head in `f32`. They are zeros if the quad does not exist.
    fn load_f32(&self, k: Builder<'k>, head: Ptr<'k, f32, ReadOnly>) -> Four<'k> {
        self.at.map(|at| {
            let mut two = [k.var(0.0), k.var(0.0)];
            head.at(at).ld2_if(self.exists, &mut two);
            two.map(|v| v.get())
        })
    }

    /// Stores the elements, if the quad exists.
    fn store(&self, k: Builder<'k>, head: Ptr<'k, bf16, WriteOnly>, v: Four<'k>) {
        k.when(self.exists, || {
            for (at, [low, high]) in self.at.into_iter().zip(v) {
                head.at(at).cast::<u32>().st(low.pack_bf16(high));
            }
        });
    }

    /// Returns the elements rotated by the angles of a position, or back by the negative angles.
    fn rotate(
        &self,
        freq: Ptr<'k, f32, ReadOnly>,
        position: U32<'k>,
        direction: Direction,
        v: Four<'k>,
    ) -> Four<'k> {
        // A lane without pairs takes the angle of the first pair, whose frequency is in bounds.
        let j = self.exists.select(self.j, 0u32);
        let turned = |further: u32, [p, q]: [F32<'k>; 2]| {
            let t = angle(freq, j + further, position);
            let sin = t.sin();
            let cos = t.cos();
            let sin = match direction {
                Direction::Forward => sin,
                Direction::Backward => -sin,
            };
            [p.fma(cos, -(q * sin)), q.fma(cos, p * sin)]
        };
        let [a, b] = v;
        match self.pairing {
            Pairing::HalfSplit => {
                let first = turned(0, [a[0], b[0]]);
                let second = turned(1, [a[1], b[1]]);
                [[first[0], second[0]], [first[1], second[1]]]
            }
            Pairing::Interleaved => [turned(0, a), turned(1, b)],
        }
    }
}

/// Returns the dot product of two heads. All lanes of the warp must call it.
fn dot<'k>(k: Builder<'k>, a: &[Four<'k>], b: &[Four<'k>]) -> F32<'k> {
    let mut sum = k.var(0.0);
    let a = a.iter().flatten().flatten();
    let b = b.iter().flatten().flatten();
    for (&a, &b) in a.zip(b) {
        sum.fma(a, b);
    }
    warp_sum(sum.get())
}

fn map<'k>(a: &Four<'k>, b: &Four<'k>, f: impl Fn(F32<'k>, F32<'k>) -> F32<'k>) -> Four<'k> {
    [0, 1].map(|i| [0, 1].map(|j| f(a[i][j], b[i][j])))
}

fn suffix(pairing: Pairing) -> &'static str {
    match pairing {
        Pairing::Interleaved => "interleaved",
        Pairing::HalfSplit => "half_split",
    }
}

impl KernelDef for RotateForward {
    type Args<S: Side> = RotateForwardArgs<S>;

    fn name(&self) -> String {
        let norm = if self.norm { "_normed" } else { "" };
        format!(
            "train_bf16_rotate_{}_{}{norm}",
            self.head_dim,
            suffix(self.pairing)
        )
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn grid(&self, a: &RotateForwardArgs<Shape>) -> Result<Grid, ShapeError> {
        let &RotateForwardArgs { tokens, .. } = a;
        let dim = self.head_dim;
        let rows = tokens.saturating_mul(a.heads);
        self.multiple("the kernel's head_dim", dim, 4)?;
        self.range("the kernel's head_dim", dim, 4, 256)?;
        self.range("tokens * heads", rows, 1, 1 << 28)?;
        check_lengths! { self, a:
            positions == tokens,
        }
        self.length("freq", a.freq, "head_dim", &[dim])?;
        self.length("x", a.x, "tokens * heads * head_dim", &[rows, dim])?;
        self.length("y", a.y, "tokens * heads * head_dim", &[rows, dim])?;
        let [normed, dims] = if self.norm { [rows, dim] } else { [0; 2] };
        self.length("g", a.g, "head_dim", &[dims])?;
        self.length("inv", a.inv, "tokens * heads", &[normed])?;
        Ok(Grid::line(rows.div_ceil(WARPS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: RotateForwardArgs<Dev<'k>>) {
        let row = k.ctaid() * WARPS + k.warp();
        k.when(row.lt(a.tokens * a.heads), || {
            let dim = self.head_dim;
            let quads = quads(k, self.head_dim, self.pairing);
            let load = |quad: &Quad<'k>| quad.load(k, a.x.at(row * dim));
            let mut x: Vec<Four> = quads.iter().map(load).collect();
            if self.norm {
                k.section(
                    "train/rotate/half_norm",
                    "inv = 1 / sqrt(mean(x^2) + eps), x * inv * g",
                );

                // Lanes without pairs have zeros, which add nothing to the sum.
                let mean = dot(k, &x, &x) / dim as f32;
                let inv = (mean + a.eps).sqrt_rn().rcp_rn();
                k.when(k.lane().eq(0), || a.inv.at(row).st(inv));
                for (x, quad) in x.iter_mut().zip(&quads) {
                    let gains = quad.load_f32(k, a.g);
                    *x = map(x, &gains, |x, g| x * inv * g);
                }
            }

            k.section("train/rotate/half_rotate", "rotate");
            let position = a.positions.at(row / a.heads).ld();
            for (x, quad) in x.into_iter().zip(&quads) {
                let to = a.y.at(row * dim);
                let rotated = quad.rotate(a.freq, position, Direction::Forward, x);
                quad.store(k, to, rotated);
            }
        });
    }

    fn reference(&self, a: RotateForwardArgs<Cpu<'_>>) {
        let mut x = wide(a.x);
        if self.norm {
            let gains = buffers::wide(a.g);
            let (y, inv) = rms_norm::forward(&x, &gains, f64::from(a.eps));
            x = y;
            buffers::narrow(&inv, a.inv);
        }
        let angles = angles(a.positions, a.freq, self.pairing);
        narrow(&rope::forward(&x, &angles), a.y);
    }
}

impl KernelDef for HeadsBackward {
    type Args<S: Side> = HeadsBackwardArgs<S>;

    fn name(&self) -> String {
        let norm = if self.norm { "_normed" } else { "" };
        let rotated = self.pairing.map_or("plain", suffix);
        format!(
            "train_bf16_heads_backward_{}_{rotated}{norm}",
            self.head_dim
        )
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn grid(&self, a: &HeadsBackwardArgs<Shape>) -> Result<Grid, ShapeError> {
        let &HeadsBackwardArgs { tokens, .. } = a;
        let dim = self.head_dim;
        let rows = tokens.saturating_mul(a.heads);
        self.multiple("the kernel's head_dim", dim, 4)?;
        self.range("the kernel's head_dim", dim, 4, 256)?;
        self.range("tokens * heads", rows, 1, 1 << 28)?;
        self.range("group", a.group, 1, 1 << 16)?;
        check_lengths! { self, a:
            positions == tokens,
        }
        self.length("freq", a.freq, "head_dim", &[dim])?;
        self.length(
            "parts",
            a.parts,
            "tokens * heads * group * head_dim",
            &[rows, a.group, dim],
        )?;
        let [normed, dims] = if self.norm { [rows, dim] } else { [0; 2] };
        self.length("x", a.x, "tokens * heads * head_dim", &[normed, dim])?;
        self.length("g", a.g, "head_dim", &[dims])?;
        self.length("inv", a.inv, "tokens * heads", &[normed])?;
        self.length("dx", a.dx, "tokens * heads * head_dim", &[rows, dim])?;
        Ok(Grid::line(rows.div_ceil(WARPS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: HeadsBackwardArgs<Dev<'k>>) {
        let row = k.ctaid() * WARPS + k.warp();
        k.when(row.lt(a.tokens * a.heads), || {
            let dim = self.head_dim;
            let quads = quads(k, dim, self.pairing.unwrap_or(Pairing::Interleaved));

            k.section("train/rotate/half_group_sum", "the sum over the group");
            let mut dy: Vec<Four> = quads
                .iter()
                .map(|quad| self.sum(k, &a, quad, row))
                .collect();
            if self.pairing.is_some() {
                k.section("train/rotate/half_rotate_back", "rotate back");
                let position = a.positions.at(row / a.heads).ld();
                dy = dy
                    .into_iter()
                    .zip(&quads)
                    .map(|(dy, quad)| quad.rotate(a.freq, position, Direction::Backward, dy))
                    .collect();
            }

            if self.norm {
                k.section(
                    "train/rotate/half_norm_backward",
                    "inv * (g * dy - xh * mean(g * dy * xh)), xh = x * inv",
                );
                let inv = a.inv.at(row).ld();
                let normalized = |quad: &Quad<'k>| {
                    let x = quad.load(k, a.x.at(row * dim));
                    map_one(x, |x| x * inv)
                };
                let xh: Vec<Four> = quads.iter().map(normalized).collect();
                for (dy, quad) in dy.iter_mut().zip(&quads) {
                    let gains = quad.load_f32(k, a.g);
                    *dy = map(dy, &gains, |dy, g| dy * g);
                }

                // `dy` is now `g dy`, which the formula uses twice.
                let mean = dot(k, &dy, &xh) / dim as f32;
                for (dy, xh) in dy.iter_mut().zip(&xh) {
                    *dy = map(dy, xh, |dy, xh| inv * (dy - xh * mean));
                }
            }

            for (dy, quad) in dy.into_iter().zip(&quads) {
                quad.store(k, a.dx.at(row * dim), dy);
            }
        });
    }

    fn reference(&self, a: HeadsBackwardArgs<Cpu<'_>>) {
        let group = a.group as usize;
        let dim = self.head_dim as usize;
        let parts = buffers::wide(a.parts);
        let sum = |parts: &[f64]| {
            (0..dim)
                .map(|i| (0..group).map(|head| parts[head * dim + i]).sum())
                .collect::<Vec<f64>>()
        };
        let mut dy: Vec<f64> = parts.chunks_exact(group * dim).flat_map(sum).collect();
        if let Some(pairing) = self.pairing {
            let angles = angles(a.positions, a.freq, pairing);
            dy = rope::backward(&dy, &angles);
        }

        if self.norm {
            let mut dx = vec![0.0; dy.len()];
            let [g, inv] = [a.g, a.inv].map(buffers::wide);
            rms_norm::backward(&dy, &wide(a.x), &g, &inv, &mut dx);
            dy = dx;
        }

        narrow(&dy, a.dx);
    }
}

impl HeadsBackward {
    /// Returns the sum of a quad over the query heads of a group.
    fn sum<'k>(
        &self,
        k: Builder<'k>,
        a: &HeadsBackwardArgs<Dev<'k>>,
        quad: &Quad<'k>,
        row: U32<'k>,
    ) -> Four<'k> {
        let mut sum = [0; 4].map(|_| k.var(0.0));
        // The order of the heads is fixed, so that equal inputs give equal bits.
        k.for_each(0, a.group, 1, |head| {
            let first = (row * a.group + head) * self.head_dim;
            let part = quad.load_f32(k, a.parts.at(first));
            for (sum, part) in sum.iter_mut().zip(part.into_iter().flatten()) {
                *sum += part;
            }
        });
        [[sum[0].get(), sum[1].get()], [sum[2].get(), sum[3].get()]]
    }
}

fn map_one<'k>(a: Four<'k>, f: impl Fn(F32<'k>) -> F32<'k>) -> Four<'k> {
    a.map(|two| two.map(&f))
}

fn angles(positions: &[u32], freq: &[f32], pairing: Pairing) -> Angles {
    let frequencies: Vec<f64> = freq
        .chunks(2)
        .map(|freq| (f64::from(freq[0]) + f64::from(freq[1])) * TAU)
        .collect();
    Angles::new(positions, &frequencies, pairing)
}

/// Returns positions of `tokens` tokens, and frequencies.
fn places(random: &mut Random, tokens: usize, head_dim: u32) -> [CpuArg; 2] {
    let freq = frequencies(1e6, head_dim as usize)
        .into_iter()
        .flat_map(|f| revolutions(f / TAU));
    let positions = (0..tokens).map(|t| if t == 0 { 0 } else { random.below(100_000) });
    [
        CpuArg::U32(positions.collect()),
        CpuArg::F32(freq.collect()),
    ]
}

/// The bound: the sine and the cosine are within 2^-20.9, and a norm adds the errors of a sum and a
/// root.
const BOUND: f64 = 3e-6;

impl Variant for RotateForward {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(tokens, heads): (usize, usize)| {
            let mut random = Random(seed);
            let mut args = Vec::from(places(&mut random, tokens, self.head_dim));
            let dim = self.head_dim as usize;
            let rows = tokens * heads;
            let [dims, normed] = if self.norm { [dim, rows] } else { [0; 2] };
            args.extend([
                CpuArg::Bf16(units(&mut random, rows * dim)),
                CpuArg::F32(random.units(dims)),
                CpuArg::Bf16(vec![bf16(0); rows * dim]),
                CpuArg::F32(vec![0.0; normed]),
                CpuArg::scalar(tokens as u32),
                CpuArg::scalar(heads as u32),
                CpuArg::scalar(1e-6f32),
            ]);
            Case {
                label: format!("tokens={tokens} heads={heads}"),
                args,
                bound: BOUND,
            }
        };
        [(1, 1), (5, 3)].map(case).into()
    }
}

impl Variant for HeadsBackward {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(tokens, heads, group): (usize, usize, usize)| {
            let mut random = Random(seed);
            let [positions, freq] = places(&mut random, tokens, self.head_dim);
            let dim = self.head_dim as usize;
            let rows = tokens * heads;
            let [dims, normed] = if self.norm { [dim, rows] } else { [0; 2] };
            let args = vec![
                positions,
                freq,
                CpuArg::F32(random.units(rows * group * dim)),
                CpuArg::Bf16(units(&mut random, normed * dim)),
                CpuArg::F32(random.units(dims)),
                CpuArg::F32(random.units(normed)),
                CpuArg::Bf16(vec![bf16(0); rows * dim]),
                CpuArg::scalar(tokens as u32),
                CpuArg::scalar(heads as u32),
                CpuArg::scalar(group as u32),
            ];
            Case {
                label: format!("tokens={tokens} heads={heads} group={group}"),
                args,
                bound: BOUND,
            }
        };
        [(1, 1, 1), (5, 3, 2)].map(case).into()
    }
}
