//! Soft caps, which bound scores and logits (Gemma Team, "Gemma 2", 2024, arXiv:2408.00118): `y = cap
//! * tanh(x / cap)`.
//!
//! `tanh.approx` is accurate to 2^-11 only. The kernels use `tanh(u) = 1 - 2 / (1 + e^(2u))`. For
//! large `u` the power is infinite and the result is the cap. Its absolute error is a few roundings
//! of the cap.

use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;
use std::f32::consts::LOG2_E;

args! {
    /// Arguments of [`SoftCap`].
    pub struct SoftCapArgs {
        /// `[n]`: the logits, which are replaced
        y: InOut<f32>,
        /// The number of logits.
        n: u32,
        /// The bound.
        cap: f32,
    }
}

/// Kernel that bounds logits, with one logit per thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SoftCap;

/// The number of threads of a block.
const THREADS: u32 = 256;

/// Returns `cap * tanh(x / cap)` times log2(e), for a score that was multiplied by log2(e) too.
pub(crate) fn capped_log2<'k>(k: Builder<'k>, x: F32<'k>, cap: f32) -> F32<'k> {
    let top = cap * LOG2_E;
    let power = (x * (2.0 / cap)).ex2();
    (power + 1.0).rcp().fma(k.val(-2.0 * top), k.val(top))
}

/// Returns `cap * tanh(x / cap)` in double precision.
pub(crate) fn exact(x: f64, cap: f64) -> f64 {
    cap * (x / cap).tanh()
}

impl KernelDef for SoftCap {
    type Args<S: Side> = SoftCapArgs<S>;

    fn name(&self) -> String {
        "soft_cap".to_owned()
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &SoftCapArgs<Shape>) -> Result<Grid, ShapeError> {
        let &SoftCapArgs { n, .. } = a;
        check_lengths! { self, a:
            y == n,
        }
        Ok(Grid::line(n.div_ceil(THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: SoftCapArgs<Dev<'k>>) {
        let i = k.ctaid() * THREADS + k.tid();
        k.when(i.lt(a.n), || {
            let y = a.y.at(i);
            let power = (y.ld() * a.cap.rcp() * (2.0 * LOG2_E)).ex2();
            y.st((power + 1.0).rcp().fma(a.cap * -2.0, a.cap));
        });
    }

    fn reference(&self, a: SoftCapArgs<Cpu<'_>>) {
        for y in a.y {
            *y = exact(f64::from(*y), f64::from(a.cap)) as f32;
        }
    }
}

impl Variant for SoftCap {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Less than a warp, whole blocks, and one more. Logits far below the cap, about as large, and
        // far above.
        [
            (1, 1.0, 30.0),
            (512, 40.0, 30.0),
            (513, 1e4, 30.0),
            (100, 60.0, 50.0),
        ]
        .map(|(n, size, cap)| case(seed, n, size, cap))
        .into()
    }
}

fn case(seed: u64, n: usize, size: f32, cap: f32) -> Case {
    let mut random = Random(seed);
    let mut y: Vec<f32> = (0..n).map(|_| random.unit() * size).collect();
    // The error is relative to the largest element, which is near the cap.
    y[0] = 2.0 * cap;
    Case {
        label: format!("n={n} size={size} cap={cap}"),
        args: vec![
            CpuArg::F32(y),
            CpuArg::scalar(n as u32),
            CpuArg::scalar(cap),
        ],
        // The exponent has an error of 3 roundings of at most 2 log2(e) times the ratio, of which
        // tanh leaves at most 2. Then follow ex2, rcp and a multiply-add.
        bound: 2e-6,
    }
}
