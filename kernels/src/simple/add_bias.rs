//! The addition of a bias: `y += bias`.

use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`AddBias`].
    pub struct AddBiasArgs {
        /// `[n]`: the bias
        bias: In<f32>,
        /// `[n]`: the values that the bias is added to
        y: InOut<f32>,
        /// The number of values.
        n: u32,
    }
}

/// Kernel that adds a bias, with one value per thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddBias;

/// The number of threads of a block.
const THREADS: u32 = 256;

impl KernelDef for AddBias {
    type Args<S: Side> = AddBiasArgs<S>;

    fn name(&self) -> String {
        "add_bias".to_owned()
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &AddBiasArgs<Shape>) -> Result<Grid, ShapeError> {
        let &AddBiasArgs { n, .. } = a;
        check_lengths! { self, a:
            bias == n,
            y == n,
        }
        Ok(Grid::line(n.div_ceil(THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: AddBiasArgs<Dev<'k>>) {
        let i = k.ctaid() * THREADS + k.tid();
        k.when(i.lt(a.n), || {
            let y = a.y.at(i);
            y.st(y.ld() + a.bias.at(i).ld());
        });
    }

    fn reference(&self, a: AddBiasArgs<Cpu<'_>>) {
        for (y, bias) in a.y.iter_mut().zip(a.bias) {
            *y = (f64::from(*y) + f64::from(*bias)) as f32;
        }
    }
}

impl Variant for AddBias {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // One value, a partial block of threads, and one value more than a block.
        [1, 100, THREADS + 1]
            .map(|n| {
                let mut random = Random(seed);
                Case {
                    label: format!("n={n}"),
                    args: vec![
                        CpuArg::F32(random.units(n as usize)),
                        CpuArg::F32(random.units(n as usize)),
                        CpuArg::scalar(n),
                    ],
                    bound: 1e-6,
                }
            })
            .into()
    }
}
