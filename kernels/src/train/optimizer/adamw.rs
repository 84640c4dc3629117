//! AdamW: Adam ([Kingma and Ba, 2014](https://arxiv.org/abs/1412.6980)) with decoupled weight decay
//! ([Loshchilov and Hutter, 2017](https://arxiv.org/abs/1711.05101)), with the formulas of
//! PyTorch's `AdamW`.
//!
//! ```text
//! p <- p (1 - lr decay)
//! m <- m + (1 - beta1) (g - m)
//! v <- beta2 v + (1 - beta2) g^2
//! p <- p - lr / c1 m / (sqrt v / sqrt c2 + eps)
//! ```
//!
//! `g` is the gradient times the factor of the clip. The bias corrections `c = 1 - beta^t` are
//! carried from step to step as `c <- fma(c, beta, 1 - beta)`. This needs no power and does not
//! cancel at small `t`.

use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use crate::train::buffers::{narrow, wide};
use ptx_gen::*;
use std::array::from_fn;

/// The constants of the optimizer. The default is PyTorch's, except that there is no weight decay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AdamW {
    /// The decay rate of the first moment, 0.9 by default.
    pub beta1: f64,
    /// The decay rate of the second moment, 0.999 by default.
    pub beta2: f64,
    /// The constant that is added to the root of the second moment, 1e-8 by default.
    pub eps: f64,
    /// The weight decay, 0 by default.
    pub decay: f64,
}

impl Default for AdamW {
    fn default() -> AdamW {
        AdamW {
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            decay: 0.0,
        }
    }
}

/// The values of a step that an update needs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// The learning rate.
    pub lr: f64,
    /// The bias corrections `1 - beta1^t` and `1 - beta2^t`.
    pub corrections: [f64; 2],
    /// The factor of the gradients from [`clip`](super::clip).
    pub clip: f64,
}

/// The parameters and their moments, as slices of one length.
#[derive(Debug)]
pub struct Parameters<'a> {
    /// The parameters.
    pub p: &'a mut [f64],
    /// The first moments.
    pub m: &'a mut [f64],
    /// The second moments.
    pub v: &'a mut [f64],
}

impl AdamW {
    /// Returns the bias corrections of the next step. Before the first step they are 0.
    pub fn next_corrections(&self, [c1, c2]: [f64; 2]) -> [f64; 2] {
        [
            c1.mul_add(self.beta1, 1.0 - self.beta1),
            c2.mul_add(self.beta2, 1.0 - self.beta2),
        ]
    }

    /// Updates parameters and moments with the gradients `g`.
    pub fn update(&self, at: Parameters<'_>, g: &[f64], rates: &Rates) {
        let [c1, c2] = rates.corrections;
        for (((p, m), v), g) in at.p.iter_mut().zip(at.m).zip(at.v).zip(g) {
            let g = g * rates.clip;
            *p *= 1.0 - rates.lr * self.decay;
            *m += (1.0 - self.beta1) * (g - *m);
            *v = self.beta2 * *v + (1.0 - self.beta2) * g * g;
            *p -= rates.lr / c1 * *m / (v.sqrt() / c2.sqrt() + self.eps);
        }
    }
}

args! {
    /// Arguments of [`AdamWUpdate`].
    pub struct AdamWUpdateArgs {
        /// `[n]`: the parameters
        p: InOut<f32>,
        /// `[n]`: the first moments
        m: InOut<f32>,
        /// `[n]`: the second moments
        v: InOut<f32>,
        /// `[n]`: the gradients
        g: In<f32>,
        /// `[4]`: the learning rate, the two bias corrections and the factor of the clip
        rates: In<f32>,
        /// `[1]`: 0 if the step is skipped, in which case nothing is written
        taken: In<u32>,
        /// The number of parameters, a multiple of 4.
        n: u32,
        /// The decay of the first moment.
        beta1: f32,
        /// The decay of the second moment.
        beta2: f32,
        /// The constant that is added to the root of the second moment.
        eps: f32,
        /// The weight decay.
        decay: f32,
    }
}

/// Kernel of an update, with 4 parameters per thread. Its reference is [`AdamW::update`].
///
/// All that changes from step to step is in memory, so a captured graph stays valid.
pub struct AdamWUpdate {
    /// The number of threads of a block.
    pub threads: u32,
}

impl KernelDef for AdamWUpdate {
    type Args<S: Side> = AdamWUpdateArgs<S>;

    fn name(&self) -> String {
        format!("train_adamw_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &AdamWUpdateArgs<Shape>) -> Result<Grid, ShapeError> {
        let &AdamWUpdateArgs { n, .. } = a;
        self.multiple("n", n, 4)?;
        check_lengths! { self, a:
            p == n,
            m == n,
            v == n,
            g == n,
        }
        self.exactly("rates", a.rates, 4)?;
        self.exactly("taken", a.taken, 1)?;
        Ok(Grid::line(n.div_ceil(4 * self.threads)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: AdamWUpdateArgs<Dev<'k>>) {
        let i = (k.ctaid() * self.threads + k.tid()) * 4;
        k.when(i.lt(a.n) & a.taken.ld().ne(0), || {
            let [lr, c1, c2, clip] = a.rates.ld4();

            // All loads come first, so that their latencies overlap.
            let g = a.g.at(i).ld4();
            let p = a.p.at(i).ld4();
            let m = a.m.at(i).ld4();
            let v = a.v.at(i).ld4();
            let g = g.map(|g| g * clip);

            k.section(
                "train/adamw/moments",
                "m += (1 - beta1) * (g - m), v = beta2 * v + (1 - beta2) * g^2",
            );
            let fresh1 = -a.beta1 + 1.0;
            let fresh2 = -a.beta2 + 1.0;
            let m: [_; 4] = from_fn(|j| fresh1.fma(g[j] - m[j], m[j]));
            let v: [_; 4] = from_fn(|j| a.beta2.fma(v[j], fresh2 * g[j] * g[j]));

            k.section(
                "train/adamw/parameter",
                "p = p * (1 - lr * decay) - lr / c1 * m / (sqrt(v) / sqrt(c2) + eps)",
            );
            let kept = (-lr).fma(a.decay, 1.0);
            let rate = lr / c1;
            let root = c2.sqrt_rn();
            let step = |j: usize| {
                let scaled = rate * m[j];
                let deviation = v[j].sqrt_rn() / root + a.eps;
                scaled / deviation
            };
            let to = a.p.at(i);
            let p = from_fn(|j| p[j].fma(kept, -step(j)));
            to.st4(p);
            a.m.at(i).st4(m);
            a.v.at(i).st4(v);
        });
    }

    fn reference(&self, a: AdamWUpdateArgs<Cpu<'_>>) {
        if a.taken[0] == 0 {
            return;
        }

        let [lr, c1, c2, clip] = from_fn(|i| f64::from(a.rates[i]));
        let [beta1, beta2, eps, decay] = [a.beta1, a.beta2, a.eps, a.decay].map(f64::from);
        let [mut p, mut m, mut v] = [wide(a.p), wide(a.m), wide(a.v)];
        let at = Parameters {
            p: &mut p,
            m: &mut m,
            v: &mut v,
        };
        let rates = Rates {
            lr,
            corrections: [c1, c2],
            clip,
        };
        AdamW {
            beta1,
            beta2,
            eps,
            decay,
        }
        .update(at, &wide(a.g), &rates);
        narrow(&p, a.p);
        narrow(&m, a.m);
        narrow(&v, a.v);
    }
}

impl Variant for AdamWUpdate {
    /// Returns cases with a first step from moments of zeros, where some gradients are 0, with
    /// later steps, and with a skipped step.
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(n, moments, corrections, taken): (usize, f32, [f32; 2], u32)| {
            let mut random = Random(seed);
            let mut g = random.units(n);
            g[0] = 0.0;
            let m = random.units(n).into_iter().map(|m| m * moments).collect();
            let v = random
                .units(n)
                .into_iter()
                .map(|v| v.abs() * moments)
                .collect();
            let args = vec![
                CpuArg::F32(random.units(n)),
                CpuArg::F32(m),
                CpuArg::F32(v),
                CpuArg::F32(g),
                CpuArg::F32(vec![2e-3, corrections[0], corrections[1], 0.25]),
                CpuArg::U32(vec![taken]),
                CpuArg::scalar(n as u32),
                CpuArg::scalar(0.9f32),
                CpuArg::scalar(0.999f32),
                CpuArg::scalar(1e-8f32),
                CpuArg::scalar(0.01f32),
            ];

            // There are at most four roundings of the largest number.
            Case {
                label: format!("n={n} moments={moments} taken={taken}"),
                args,
                bound: 2.5e-7,
            }
        };
        let edge = 4 * self.threads as usize;
        [
            (4, 0.0, [0.1, 0.001], 1),
            (edge, 0.3, [0.9, 0.02], 1),
            (edge + 20, 1e-3, [1.0, 0.7], 1),
            (20, 0.3, [0.9, 0.02], 0),
        ]
        .map(case)
        .into()
    }
}
