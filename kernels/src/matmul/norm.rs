//! RMSNorm of many tokens, as the input of a matmul: `y = x gamma / sqrt(mean(x^2) + epsilon)`, for
//! each token.

use super::activations::{self, PANEL, TOKENS};
use crate::format::dequantize::ColumnOrder;
use crate::harness::{Case, Variant};
use crate::shared::reduce::block_sums_and_max;
use crate::shared::{Contract, Overlap, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`NormTokens`].
    pub struct NormTokensArgs {
        /// `[tokens, n]`: the residual stream
        x: In<f32>,
        /// `[n]`: weights of the norm
        gamma: In<f32>,
        /// `[n / 64, capacity, 64]`: the activations, see [`activations`]
        y: Out<f16>,
        /// `[n / 64, capacity, 64]`: the activations in the kernel's second column order, or empty
        /// without one
        y2: Out<f16>,
        /// `[tokens]`: the factor that restores each token's values
        y_scale: Out<f32>,
        /// `[tokens]`: the sum of the squares of each token's `y`
        squares: Out<f32>,
        /// The number of columns, a multiple of 128.
        n: u32,
        /// The capacity of `y` in tokens, a multiple of 8.
        capacity: u32,
        /// A constant that is added to the mean square.
        epsilon: f32,
    }
}

/// Kernel that normalizes tokens, one per block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NormTokens {
    /// The column order of `y`.
    pub order: ColumnOrder,
    /// The column order of `y2`.
    pub second: Option<ColumnOrder>,
    /// The overlap with the kernels before and after it.
    pub overlap: Overlap,
}

/// The number of threads of a block.
const THREADS: u32 = 256;
/// The distance between the elements of a thread.
const STEP: u32 = 4 * THREADS;
/// The number of four-element loads that a thread has in flight.
const AT_ONCE: u32 = 4;

impl KernelDef for NormTokens {
    type Args<S: Side> = NormTokensArgs<S>;

    fn name(&self) -> String {
        let second = self
            .second
            .map_or(String::new(), |order| format!("_{}", order.group));
        format!(
            "norm_tokens_{}{second}{}",
            self.order.group,
            self.overlap.suffix()
        )
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &NormTokensArgs<Shape>) -> Result<Grid, ShapeError> {
        let &NormTokensArgs { capacity, n, .. } = a;
        let tokens = a.y_scale as u32;
        self.multiple("n", n, 2 * PANEL)?;
        self.multiple("capacity", capacity, TOKENS)?;
        self.range("tokens", tokens, 1, capacity)?;
        check_lengths! { self, a:
            x == tokens * n,
            gamma == n,
            squares == tokens,
            y == capacity * n,
        }
        self.length(
            "y2",
            a.y2,
            "capacity * n",
            &[if self.second.is_some() { capacity } else { 0 }, n],
        )?;
        Ok(Grid::line(tokens))
    }

    fn program<'k>(&self, k: Builder<'k>, a: NormTokensArgs<Dev<'k>>) {
        if self.overlap.waits() {
            self.overlap.start(k);
            k.grid_wait();
        }

        let token = k.ctaid();
        let x = a.x.fresh().at(token * a.n);

        k.section(
            "matmul/norm/load_first",
            "load the first elements, which stay in registers",
        );
        let kept = load(k, &a, x, k.tid() * 4);

        k.section(
            "matmul/norm/statistics",
            "sum of x^2; sum and maximum of (x gamma)^2 and |x gamma|",
        );
        let [mut squares, mut largest, mut scaled] = [0.0; 3].map(|zero| k.var(zero));
        let mut add = |four: &Four<'k>| {
            for (v, gamma) in four.x.into_iter().zip(four.gamma) {
                squares.fma(v, v);
                let y = v * gamma;
                scaled.fma(y, y);
                largest.set(largest.get().max(y.abs()));
            }
        };
        kept.iter().for_each(&mut add);
        each_other(k, &a, x, |four| add(&four));

        // One barrier reduces all three. The largest magnitude determines the token's power of two.
        let [squares, scaled, largest] = block_sums_and_max(
            k,
            THREADS / 32,
            [squares.get(), scaled.get()],
            largest.get(),
        );
        let mean = squares * a.n.cvt::<f32>().rcp();
        let rms = (mean + a.epsilon).rsqrt();
        let [unit, scale] = activations::unit(largest * rms);
        k.when(k.tid().eq(0), || {
            a.y_scale.at(token).st(scale);
            a.squares.at(token).st(scaled * (rms * rms));
        });

        k.section(
            "matmul/norm/scale",
            "y = x gamma / sqrt(mean + epsilon), times a power of two",
        );
        let to = [
            Some((a.y, self.order)),
            self.second.map(|order| (a.y2, order)),
        ];
        let store = |&Four { i, there, x, gamma }: &Four<'k>| {
            let y: [F32; 4] = std::array::from_fn(|j| x[j] * gamma[j] * rms * unit);
            let pack = |low: F32<'k>, high: F32<'k>| {
                let low = low.cvt::<f16>();
                let high = high.cvt::<f16>();
                low.pack(high)
            };
            let pairs = [pack(y[0], y[1]), pack(y[2], y[3])];
            k.when(there, || {
                for (y, order) in to.iter().flatten() {
                    let slot = order.slot_of_four(i);
                    for (half, pair) in (0..).zip(pairs) {
                        // The second pair of four columns is 8 slots after the first.
                        let to = activations::place(*y, a.capacity, token, slot + 8 * half);
                        to.cast::<u32>().st(pair.bits::<u32>());
                    }
                }
            });
        };
        kept.iter().for_each(store);
        each_other(k, &a, x, |four| store(&four));
        self.overlap.end(k);
    }

    fn reference(&self, a: NormTokensArgs<Cpu<'_>>) {
        let n = a.n as usize;
        let capacity = a.capacity as usize;
        for (token, x) in a.x.chunks(n).enumerate() {
            let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
            let mean = squares / n as f64;
            let rms = (mean + f64::from(a.epsilon)).sqrt().recip();
            let y: Vec<f64> = x
                .iter()
                .zip(a.gamma)
                .map(|(&x, &g)| f64::from(x) * f64::from(g) * rms)
                .collect();

            // A power of two brings the values into the range of `f16`.
            let largest = y.iter().fold(0.0, |most: f64, y| most.max(y.abs()));
            let unit = activations::unit_of(largest as f32);
            a.y_scale[token] = 1.0 / unit;
            a.squares[token] = y.iter().map(|y| y * y).sum::<f64>() as f32;

            for (k, y) in y.iter().enumerate() {
                let value = f16::from_f32((y * f64::from(unit)) as f32);
                let index = |order: ColumnOrder| {
                    let slot = order.slot(k as u32) as usize;
                    activations::index(capacity, token, slot)
                };
                a.y[index(self.order)] = value;
                if let Some(order) = self.second {
                    a.y2[index(order)] = value;
                }
            }
        }
    }
}

/// Four elements of a token, or zeros past the end.
struct Four<'k> {
    i: U32<'k>,
    /// Whether the elements are before the end.
    there: Pred<'k>,
    x: [F32<'k>; 4],
    gamma: [F32<'k>; 4],
}

/// Issues several loads of a thread, the first at an element. Elements past the end are zeros.
fn load<'k>(
    k: Builder<'k>,
    a: &NormTokensArgs<Dev<'k>>,
    x: Ptr<'k, f32, impl Loads>,
    first: U32<'k>,
) -> Vec<Four<'k>> {
    let four = |j: u32| {
        let i = first + STEP * j;

        // All loads are issued before the first result is used, so that their latencies overlap.
        let there = i.lt(a.n);
        let [mut of_x, mut of_gamma] = [(); 2].map(|()| [0.0; 4].map(|zero| k.var(zero)));
        x.at(i).ld4_if(there, &mut of_x);
        a.gamma.at(i).ld4_if(there, &mut of_gamma);
        Four {
            i,
            there,
            x: of_x.map(|v| v.get()),
            gamma: of_gamma.map(|v| v.get()),
        }
    };
    (0..AT_ONCE).map(four).collect()
}

/// Calls `body` with all elements of a thread after the first [`load`].
fn each_other<'k>(
    k: Builder<'k>,
    a: &NormTokensArgs<Dev<'k>>,
    x: Ptr<'k, f32, impl Loads>,
    mut body: impl FnMut(Four<'k>),
) {
    k.for_each(k.tid() * 4 + STEP * AT_ONCE, a.n, STEP * AT_ONCE, |first| {
        k.section(
            "matmul/norm/load",
            "several loads of x and gamma, zeros past the end",
        );
        let loaded = load(k, a, x, first);

        k.section("matmul/norm/add", "process each of them");
        loaded.into_iter().for_each(&mut body);
    });
}

impl Variant for NormTokens {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(tokens, capacity, n, magnitude): (usize, usize, usize, f32)| {
            let mut random = Random(seed);
            let x = (0..tokens * n).map(|_| random.unit() * magnitude).collect();
            let second = if self.second.is_some() {
                capacity * n
            } else {
                0
            };
            let args = vec![
                CpuArg::F32(x),
                CpuArg::F32(random.units(n)),
                CpuArg::F16(vec![f16(0); capacity * n]),
                CpuArg::F16(vec![f16(0); second]),
                CpuArg::F32(vec![0.0; tokens]),
                CpuArg::F32(vec![0.0; tokens]),
                CpuArg::scalar(n as u32),
                CpuArg::scalar(capacity as u32),
                CpuArg::scalar(1e-5f32),
            ];
            Case {
                label: format!("tokens={tokens} of {capacity} n={n} magnitude={magnitude:e}"),
                args,
                bound: 2e-6,
            }
        };
        [
            (3, 8, 128, 1.0),
            (8, 8, 256, 1e15),
            (9, 16, 1280, 1e-3),
            (2, 8, 8320, 1.0),
            (1, 8, 128, 0.0),
        ]
        .map(case)
        .into()
    }
}
