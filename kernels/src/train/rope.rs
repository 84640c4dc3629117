//! Rotary position embedding ([Su et al., 2021](https://arxiv.org/abs/2104.09864)) and its
//! gradient.
//!
//! A pair `(x, y)` of a head is rotated by `t = position frequency` to `(x cos t - y sin t, y cos t
//! + x sin t)`. A rotation is orthogonal, so the gradient is rotated by the negative angle.
//!
//! The kernel computes angles like the decoding kernel, with [`simple::rope`](crate::simple::rope).

use super::buffers::{narrow, wide};
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use crate::simple::rope::{Pairing, angle, revolutions};
use ptx_gen::*;
use std::f64::consts::TAU;

/// The cosines and sines of the angles of every token.
#[derive(Clone, Debug)]
pub struct Angles {
    /// The dimensions that form a pair.
    pub pairing: Pairing,
    /// `[tokens, head_dim / 2]`
    pub cos: Vec<f64>,
    /// `[tokens, head_dim / 2]`
    pub sin: Vec<f64>,
    /// The number of pairs of a head.
    pub pairs: usize,
}

/// Returns `theta^(-2 j / head_dim)` for each pair `j`, in radians per position.
pub fn frequencies(theta: f64, head_dim: usize) -> Vec<f64> {
    (0..head_dim / 2)
        .map(|j| theta.powf((2 * j) as f64 / head_dim as f64).recip())
        .collect()
}

impl Angles {
    /// Returns the angles of tokens at these positions.
    pub fn new(positions: &[u32], frequencies: &[f64], pairing: Pairing) -> Angles {
        let angles = positions
            .iter()
            .flat_map(|&p| frequencies.iter().map(move |f| f64::from(p) * f));
        let (sin, cos) = angles.map(f64::sin_cos).unzip();
        Angles {
            pairing,
            cos,
            sin,
            pairs: frequencies.len(),
        }
    }
}

/// Returns the rotated `x` `[tokens, heads, head_dim]`.
pub fn forward(x: &[f64], angles: &Angles) -> Vec<f64> {
    rotate(x, angles, 1.0)
}

/// Returns the gradient `dx` `[tokens, heads, head_dim]` for the gradient `dy` of the result of
/// [`forward`].
pub fn backward(dy: &[f64], angles: &Angles) -> Vec<f64> {
    rotate(dy, angles, -1.0)
}

fn rotate(x: &[f64], angles: &Angles, sign: f64) -> Vec<f64> {
    let pairs = angles.pairs;
    let tokens = angles.cos.len() / pairs;
    let mut rotated = x.to_vec();
    let of_token = angles
        .cos
        .chunks_exact(pairs)
        .zip(angles.sin.chunks_exact(pairs));
    for (token, (cos, sin)) in rotated.chunks_exact_mut(x.len() / tokens).zip(of_token) {
        for head in token.chunks_exact_mut(2 * pairs) {
            for j in 0..pairs {
                let (i, k) = match angles.pairing {
                    Pairing::HalfSplit => (j, j + pairs),
                    Pairing::Interleaved => (2 * j, 2 * j + 1),
                };
                let x = head[i];
                let y = head[k];
                let cos = cos[j];
                let sin = sign * sin[j];
                head[i] = x * cos - y * sin;
                head[k] = y * cos + x * sin;
            }
        }
    }

    rotated
}

/// The direction of a rotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The rotation of [`forward`].
    Forward,
    /// The inverse rotation of [`backward`].
    Backward,
}

args! {
    /// Arguments of [`RotateHeads`].
    pub struct RotateHeadsArgs {
        /// `[tokens]`: the position of each token
        positions: In<u32>,
        /// `[head_dim / 2, 2]`: revolutions per position, split by [`revolutions`]
        freq: In<f32>,
        /// `[tokens, heads, head_dim]`: the heads, rotated in place
        x: InOut<f32>,
        /// The number of tokens.
        tokens: u32,
        /// The number of heads of a token.
        heads: u32,
        /// The number of dimensions of a head, an even number.
        head_dim: u32,
    }
}

/// Kernel that rotates heads in place, with a pair per thread. Its references are [`forward`] and
/// [`backward`].
pub struct RotateHeads {
    /// The dimensions that form a pair.
    pub pairing: Pairing,
    /// The direction of the rotation.
    pub direction: Direction,
}

const THREADS: u32 = 256;

impl KernelDef for RotateHeads {
    type Args<S: Side> = RotateHeadsArgs<S>;

    fn name(&self) -> String {
        let pairing = match self.pairing {
            Pairing::Interleaved => "interleaved",
            Pairing::HalfSplit => "half_split",
        };
        match self.direction {
            Direction::Forward => format!("train_rope_{pairing}"),
            Direction::Backward => format!("train_rope_backward_{pairing}"),
        }
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &RotateHeadsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &RotateHeadsArgs {
            head_dim,
            heads,
            tokens,
            ..
        } = a;
        self.multiple("head_dim", head_dim, 2)?;
        self.range("heads", heads, 1, 1 << 16)?;
        check_lengths! { self, a:
            positions == tokens,
            freq == head_dim,
            x == tokens * heads * head_dim,
        }
        Ok(Grid::line((a.x as u32 / 2).div_ceil(THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: RotateHeadsArgs<Dev<'k>>) {
        let pairs = a.head_dim >> 1;
        let i = k.ctaid() * THREADS + k.tid();
        let head = i / pairs;
        let j = i % pairs;
        k.when(i.lt(a.tokens * a.heads * pairs), || {
            self.rotate(&a, head, j)
        });
    }

    fn reference(&self, a: RotateHeadsArgs<Cpu<'_>>) {
        let frequencies: Vec<f64> = a
            .freq
            .chunks(2)
            .map(|freq| (f64::from(freq[0]) + f64::from(freq[1])) * TAU)
            .collect();
        let angles = Angles::new(a.positions, &frequencies, self.pairing);
        let rotated = match self.direction {
            Direction::Forward => forward(&wide(a.x), &angles),
            Direction::Backward => backward(&wide(a.x), &angles),
        };
        narrow(&rotated, a.x);
    }
}

impl RotateHeads {
    /// Rotates pair `j` of a head. `head` counts the heads of all tokens.
    fn rotate<'k>(&self, a: &RotateHeadsArgs<Dev<'k>>, head: U32<'k>, j: U32<'k>) {
        let token = head / a.heads;
        let pairs = a.head_dim >> 1;
        let (first, second) = match self.pairing {
            Pairing::HalfSplit => (j, j + pairs),
            Pairing::Interleaved => (j * 2, j * 2 + 1),
        };
        let x = a.x.at(head * a.head_dim);
        let t = angle(a.freq, j, a.positions.at(token).ld());
        let sin = t.sin();
        let cos = t.cos();

        // The inverse rotation has the negative sine.
        let sin = if self.direction == Direction::Forward {
            sin
        } else {
            -sin
        };
        let p = x.at(first).ld();
        let q = x.at(second).ld();
        x.at(first).st(p.fma(cos, -(q * sin)));
        x.at(second).st(q.fma(cos, p * sin));
    }
}

impl Variant for RotateHeads {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(tokens, heads, head_dim): (usize, usize, usize)| {
            let mut random = Random(seed);
            let freq = frequencies(1e6, head_dim)
                .into_iter()
                .flat_map(|f| revolutions(f / TAU));
            let positions = (0..tokens).map(|t| if t == 0 { 0 } else { random.below(100_000) });
            let args = vec![
                CpuArg::U32(positions.collect()),
                CpuArg::F32(freq.collect()),
                CpuArg::F32(random.units(tokens * heads * head_dim)),
                CpuArg::scalar(tokens as u32),
                CpuArg::scalar(heads as u32),
                CpuArg::scalar(head_dim as u32),
            ];

            // The sine and the cosine of the device are within 2^-20.9.
            Case {
                label: format!("tokens={tokens} heads={heads} head_dim={head_dim}"),
                args,
                bound: 1.5e-6,
            }
        };
        [(1, 1, 2), (3, 3, 16), (5, 4, 128)].map(case).into()
    }
}
