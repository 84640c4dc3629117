//! A gated linear unit (Shazeer, "GLU Variants Improve Transformer", 2020, arXiv:2002.05202): `y =
//! f(gate) * up`. `f` is SiLU (SwiGLU) or GELU (GeGLU), see [`Activation`].
//!
//! [`ClampedSwiGlu`] is the variant of gpt-oss, which bounds its inputs (`modeling_gpt_oss.py` in
//! transformers).
//!
//! For large `-g`, the power is infinite and its reciprocal is 0. The result is then 0, which is
//! correct.

use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;
use std::array::from_fn;
use std::f32::consts::LOG2_E;

args! {
    /// Arguments of [`SwiGlu`].
    pub struct SwiGluArgs {
        /// `[n]`: the gate projection
        gate: In<f32>,
        /// `[n]`: the up projection
        up: In<f32>,
        /// `[n]`: the result
        y: Out<f32>,
        /// The number of elements, a multiple of 4.
        n: u32,
    }
}

/// The activation function of a feed-forward network. Both functions are `g * sigmoid(z)`, with
/// different `z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Activation {
    /// SiLU: `g / (1 + e^-g)`.
    Silu,
    /// GELU in its approximation with tanh (Hendrycks and Gimpel, 2016, arXiv:1606.08415): `g / 2 *
    /// (1 + tanh(u))` with `u = sqrt(2 / pi) * (g + 0.044715 g^3)`. It equals `g * sigmoid(2 u)`.
    GeluTanh,
}

/// The factor `2 sqrt(2 / pi)` of GELU.
const GELU_FACTOR: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::SQRT_2;
/// The coefficient of the cube in GELU.
const GELU_CUBE: f64 = 0.044715;

impl Activation {
    /// Returns the suffix of a kernel's name, which is empty for SiLU.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Activation::Silu => "",
            Activation::GeluTanh => "_gelu_tanh",
        }
    }

    /// Returns the factor of `g`: the sigmoid of `z`.
    pub(crate) fn sigmoid(self, g: F32<'_>) -> F32<'_> {
        let z = match self {
            Activation::Silu => g * -LOG2_E,
            Activation::GeluTanh => {
                let [linear, cube] = [1.0, GELU_CUBE].map(|c| (-GELU_FACTOR * c) as f32 * LOG2_E);
                (g * g).fma(cube, linear) * g
            }
        };
        (z.ex2() + 1.0).rcp()
    }

    /// Returns the function in double precision.
    pub(crate) fn exact(self, g: f64) -> f64 {
        let z = match self {
            Activation::Silu => g,
            Activation::GeluTanh => GELU_FACTOR * (g + GELU_CUBE * g.powi(3)),
        };
        g / (1.0 + (-z).exp())
    }
}

/// Kernel that computes a gated linear unit, with 4 elements per thread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SwiGlu {
    /// The number of threads of a block.
    pub threads: u32,
    /// The activation function `f`.
    pub activation: Activation,
}

args! {
    /// Arguments of [`ClampedSwiGlu`].
    pub struct ClampedSwiGluArgs {
        /// `[n]`: the gate projection
        gate: In<f32>,
        /// `[n]`: the up projection
        up: In<f32>,
        /// `[n]`: the result
        y: Out<f32>,
        /// The number of elements.
        n: u32,
        /// The factor of the gate in the sigmoid.
        alpha: f32,
        /// The bound of both inputs: `gate <= limit` and `-limit <= up <= limit`.
        limit: f32,
    }
}

/// The factor of the gate in the sigmoid of the clamped SwiGLU of gpt-oss.
pub const CLAMPED_ALPHA: f32 = 1.702;
/// The bound of the inputs of the clamped SwiGLU of gpt-oss.
pub const CLAMPED_LIMIT: f32 = 7.0;

/// The clamped SwiGLU on the device: `g * sigmoid(alpha * g) * (u + 1)` with bounded inputs.
#[derive(Clone, Copy)]
pub(crate) struct ClampedUnit<'k> {
    pub(crate) alpha: F32<'k>,
    pub(crate) limit: F32<'k>,
}

impl<'k> ClampedUnit<'k> {
    /// Returns the value, but at most the limit.
    pub(crate) fn below(self, v: F32<'k>) -> F32<'k> {
        // A minimum would replace NaN by the bound. A selection keeps it, because NaN compares
        // greater than nothing.
        v.gt(self.limit).select(self.limit, v)
    }

    /// Returns the sigmoid and the bounded `u` of two inputs that are [`below`](ClampedUnit::below)
    /// the limit.
    pub(crate) fn sigmoid_and_up(self, gate: F32<'k>, up: F32<'k>) -> [F32<'k>; 2] {
        let lowest = self.limit * -1.0;
        let up = up.lt(lowest).select(lowest, up);
        let power = (gate * self.alpha * -LOG2_E).ex2();
        [(power + 1.0).rcp(), up]
    }
}

/// Returns the clamped SwiGLU in double precision.
pub(crate) fn clamped_exactly(gate: f64, up: f64, alpha: f64, limit: f64) -> f64 {
    // `clamp` keeps NaN.
    let gate = gate.clamp(f64::NEG_INFINITY, limit);
    let up = up.clamp(-limit, limit);
    gate / (1.0 + (-alpha * gate).exp()) * (up + 1.0)
}

/// Kernel that computes `g * sigmoid(alpha * g) * (u + 1)` with the bounded inputs `g` and `u`, one
/// element per thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClampedSwiGlu;

/// The number of threads of a block of [`ClampedSwiGlu`].
const CLAMPED_THREADS: u32 = 256;

impl KernelDef for ClampedSwiGlu {
    type Args<S: Side> = ClampedSwiGluArgs<S>;

    fn name(&self) -> String {
        "swiglu_clamped".to_owned()
    }

    fn block(&self) -> u32 {
        CLAMPED_THREADS
    }

    fn grid(&self, a: &ClampedSwiGluArgs<Shape>) -> Result<Grid, ShapeError> {
        let &ClampedSwiGluArgs { n, .. } = a;
        check_lengths! { self, a:
            gate == n,
            up == n,
            y == n,
        }
        Ok(Grid::line(n.div_ceil(CLAMPED_THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ClampedSwiGluArgs<Dev<'k>>) {
        let i = k.ctaid() * CLAMPED_THREADS + k.tid();
        k.when(i.lt(a.n), || {
            let unit = ClampedUnit {
                alpha: a.alpha,
                limit: a.limit,
            };
            let gate = unit.below(a.gate.at(i).ld());
            let up = unit.below(a.up.at(i).ld());
            let [sigmoid, up] = unit.sigmoid_and_up(gate, up);
            a.y.at(i).st(gate * sigmoid * (up + 1.0));
        });
    }

    fn reference(&self, a: ClampedSwiGluArgs<Cpu<'_>>) {
        let limit = f64::from(a.limit);
        let alpha = f64::from(a.alpha);
        for ((y, &gate), &up) in a.y.iter_mut().zip(a.gate).zip(a.up) {
            *y = clamped_exactly(gate.into(), up.into(), alpha, limit) as f32;
        }
    }
}

impl Variant for ClampedSwiGlu {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // One element, a whole block, one more, and inputs far beyond the bounds. NaN must not be
        // lost in either input.
        let edge = CLAMPED_THREADS as usize;
        let none: &[(usize, f32)] = &[];
        [
            (1, 1.0, none, none),
            (edge, 10.0, none, none),
            (edge + 1, 1e4, none, none),
            (5, 10.0, &[(3, f32::NAN)], &[(1, f32::NAN)]),
            (5, 10.0, &[(0, f32::INFINITY)], &[(4, f32::NEG_INFINITY)]),
        ]
        .map(|(n, size, gates, ups)| {
            let mut random = Random(seed);
            let mut gate: Vec<f32> = (0..n).map(|_| random.unit() * size).collect();
            let mut up: Vec<f32> = (0..n).map(|_| random.unit() * size).collect();
            for (values, special) in [(&mut gate, gates), (&mut up, ups)] {
                for &(i, v) in special {
                    values[i] = v;
                }
            }
            Case {
                label: format!("n={n} size={size} gates={gates:?} ups={ups:?}"),
                args: vec![
                    CpuArg::F32(gate),
                    CpuArg::F32(up),
                    CpuArg::F32(vec![0.0; n]),
                    CpuArg::scalar(n as u32),
                    CpuArg::scalar(CLAMPED_ALPHA),
                    CpuArg::scalar(CLAMPED_LIMIT),
                ],
                bound: 1e-6,
            }
        })
        .into()
    }
}

impl KernelDef for SwiGlu {
    type Args<S: Side> = SwiGluArgs<S>;

    fn name(&self) -> String {
        format!("swiglu_{}{}", self.threads, self.activation.suffix())
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &SwiGluArgs<Shape>) -> Result<Grid, ShapeError> {
        let &SwiGluArgs { n, .. } = a;
        self.multiple("n", n, 4)?;
        check_lengths! { self, a:
            gate == n,
            up == n,
            y == n,
        }
        Ok(Grid::line(n.div_ceil(4 * self.threads)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: SwiGluArgs<Dev<'k>>) {
        let i = (k.ctaid() * self.threads + k.tid()) * 4;
        k.when(i.lt(a.n), || {
            let gate = a.gate.at(i).ld4();
            let up = a.up.at(i).ld4();
            a.y.at(i).st4(from_fn(|j| {
                gate[j] * self.activation.sigmoid(gate[j]) * up[j]
            }));
        });
    }

    fn reference(&self, a: SwiGluArgs<Cpu<'_>>) {
        for ((y, &gate), &up) in a.y.iter_mut().zip(a.gate).zip(a.up) {
            let gate = f64::from(gate);
            let up = f64::from(up);
            *y = (self.activation.exact(gate) * up) as f32;
        }
    }
}

impl Variant for SwiGlu {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let edge = 4 * self.threads as usize;
        [(4, 1.0), (100, 10.0), (edge, 100.0), (edge + 4, 1e4)]
            .map(|(n, size)| case(seed, n, size))
            .into()
    }
}

fn case(seed: u64, n: usize, size: f32) -> Case {
    let mut random = Random(seed);
    let mut gate: Vec<f32> = (0..n).map(|_| random.unit() * size).collect();
    gate[..2].copy_from_slice(&[-size, size]);
    Case {
        label: format!("n={n} size={size}"),
        args: vec![
            CpuArg::F32(gate),
            CpuArg::F32(random.units(n)),
            CpuArg::F32(vec![0.0; n]),
            CpuArg::scalar(n as u32),
        ],
        // Where the result is near the largest, the error of the power's exponent, |g| * 2^-24, is
        // at most a few roundings. ex2, rcp and two multiplications add 4 ulp.
        bound: 1e-6,
    }
}
