//! The logits of a router: `logits = W (x * gamma / sqrt(mean(x^2) + epsilon))`, in `f32`, and plus
//! a bias in some families.

use crate::harness::{Case, Variant};
use crate::pipeline::bias::{self, BiasedProduct, WithBias};
use crate::pipeline::gemv::choose_experts::MAX_EXPERTS;
use crate::pipeline::gemv::lora;
use crate::pipeline::reference;
use crate::shared::reduce::block_sums_and_max;
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;
use std::array::from_fn;

args! {
    /// Arguments of [`ExpertLogits`].
    pub struct ExpertLogitsArgs {
        /// `[count, n]`: the router
        w: In<f32>,
        /// `[n]`: the residual stream
        x: In<f32>,
        /// `[n]`: weights of the norm
        gamma: In<f32>,
        /// `[count]`: the logits
        logits: Out<f32>,
        /// The number of experts.
        count: u32,
        /// The row length, a multiple of 4.
        n: u32,
        /// A constant that is added to the mean square.
        epsilon: f32,
        /// The number of blocks of the grid, at least one for each expert.
        blocks: u32,
        /// The bytes of dynamic shared memory. Pass the amount of the neighboring kernels, because
        /// a different amount would change the SM's carveout between the L1 cache and shared
        /// memory.
        shared: u32,
    }
}

/// Kernel that computes the logits of a router, one per block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpertLogits {
    /// Whether the kernel starts during the previous one and waits for it (programmatic dependent
    /// launch, sm_90).
    pub overlap: bool,
}

const THREADS: u32 = 256;
const WARPS: u32 = THREADS / 32;
/// The number of elements that a block processes at once.
const STEP: u32 = 4 * THREADS;
/// The number of steps whose weights a thread loads before the wait.
const EARLY: u32 = 2;

impl ExpertLogits {
    /// The bytes of shared memory that the kernel declares itself.
    pub const SHARED: u32 = 128;
}

/// Returns the four elements from `i` on, or zeros if they are not `inside`.
fn load4<'k, A: Loads>(
    k: Builder<'k>,
    from: Ptr<'k, f32, A>,
    i: U32<'k>,
    inside: Pred<'k>,
) -> [F32<'k>; 4] {
    let mut loaded = from_fn(|_| k.var(0.0));
    from.at(i).ld4_if(inside, &mut loaded);
    loaded.map(|v| v.get())
}

impl KernelDef for ExpertLogits {
    type Args<S: Side> = ExpertLogitsArgs<S>;

    fn name(&self) -> String {
        let plain = if self.overlap { "" } else { "_plain" };
        format!("expert_logits{plain}")
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &ExpertLogitsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &ExpertLogitsArgs { count, n, .. } = a;
        self.range("count", count, 1, MAX_EXPERTS)?;
        self.range("n", n, 4, 1 << 24)?;
        self.multiple("n", n, 4)?;
        self.range("blocks", a.blocks, count, 1 << 16)?;
        check_lengths! { self, a:
            w == count * n,
            x == n,
            gamma == n,
            logits == count,
        }
        Ok(Grid {
            shared: a.shared,
            ..Grid::line(a.blocks)
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: ExpertLogitsArgs<Dev<'k>>) {
        self.program_biased(k, a, None);
    }

    fn reference(&self, a: ExpertLogitsArgs<Cpu<'_>>) {
        self.reference_biased(a, None);
    }
}

impl BiasedProduct for ExpertLogits {
    fn rows(a: &ExpertLogitsArgs<Shape>) -> u32 {
        a.count
    }

    fn program_biased<'k>(
        &self,
        k: Builder<'k>,
        a: ExpertLogitsArgs<Dev<'k>>,
        bias: Option<Ptr<'k, f32, Fresh>>,
    ) {
        if self.overlap {
            k.grid_trigger();
        }

        k.section(
            "pipeline/experts/router_row",
            "the weights of this block's expert, which no kernel writes",
        );

        // Surplus blocks read the last row and store nothing.
        let expert = k.ctaid().min(a.count - 1);
        let row = a.w.row(expert, a.n * 4);
        let early: Vec<_> = (0..EARLY)
            .map(|step| {
                let i = k.tid() * 4 + step * STEP;
                let inside = i.lt(a.n);
                let w = load4(k, row, i, inside);
                let gamma = load4(k, a.gamma, i, inside);
                (i, inside, from_fn::<_, 4, _>(|j| w[j] * gamma[j]))
            })
            .collect();
        if self.overlap {
            k.section(
                "pipeline/overlap/wait",
                "nothing before this wait reads results of earlier kernels",
            );
            k.grid_wait();
        }

        k.section(
            "pipeline/experts/router_product",
            "multiply, and add the squares",
        );
        let x = a.x.fresh();
        let bias = bias.map(|bias| bias.at(expert).ld());
        let mut sum = k.var(0.0);
        let mut squares = k.var(0.0);
        let early = early
            .into_iter()
            .map(|(i, inside, w)| (load4(k, x, i, inside), w))
            .collect::<Vec<_>>();
        for (x, w) in early {
            for (x, w) in x.into_iter().zip(w) {
                sum.fma(x, w);
                squares.fma(x, x);
            }
        }
        k.for_each(k.tid() * 4 + EARLY * STEP, a.n, STEP, |i| {
            let x = x.at(i).ld4();
            let w = row.at(i).ld4();
            let gamma = a.gamma.at(i).ld4();
            for j in 0..4 {
                sum.fma(x[j], w[j] * gamma[j]);
                squares.fma(x[j], x[j]);
            }
        });
        let [sum, squares, _] =
            block_sums_and_max(k, WARPS, [sum.get(), squares.get()], k.val(0.0));
        let factor = squares.fma(a.n.cvt::<f32>().rcp(), a.epsilon).rsqrt();
        k.when(k.tid().eq(0) & k.ctaid().lt(a.count), || {
            let to = a.logits.at(k.ctaid());
            let logit = sum * factor;
            to.st(bias.map_or(logit, |bias| logit + bias))
        });
    }

    fn reference_biased(&self, a: ExpertLogitsArgs<Cpu<'_>>, bias: Option<&[f32]>) {
        let x = reference::normed(a.x, a.gamma, a.epsilon);
        let rows = a.w.chunks(a.n as usize);
        for (expert, (logit, row)) in a.logits.iter_mut().zip(rows).enumerate() {
            let sum: f64 = row.iter().zip(&x).map(|(&w, x)| f64::from(w) * x).sum();
            *logit = (sum + bias::exact(bias, expert)) as f32;
        }
    }
}

impl Variant for WithBias<ExpertLogits> {
    fn cases(&self, seed: u64) -> Vec<Case> {
        bias::cases(&self.0, seed, |args| lora::size(&args[4]))
    }
}

impl Variant for ExpertLogits {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Fewer elements than threads, idle blocks, a partial step, several steps after the early
        // ones, and all zeros.
        [
            (1, 4, 1, 1.0),
            (8, 100, 11, 1.0),
            (5, 1152, 5, 1e3),
            (3, 2048, 4, 1.0),
            (2, 4100, 2, 1e-3),
            (4, 64, 4, 0.0),
        ]
        .map(|(count, n, blocks, magnitude)| {
            let mut random = Random(seed);
            let x = (0..n).map(|_| random.unit() * magnitude).collect();
            let args = vec![
                CpuArg::F32(random.units((count * n) as usize)),
                CpuArg::F32(x),
                CpuArg::F32(random.units(n as usize)),
                CpuArg::F32(vec![0.0; count as usize]),
                CpuArg::scalar(count),
                CpuArg::scalar(n),
                CpuArg::scalar(1e-5f32),
                CpuArg::scalar(blocks),
                CpuArg::scalar(1024u32),
            ];
            Case {
                label: format!("count={count} n={n} blocks={blocks} magnitude={magnitude:e}"),
                args,
                bound: 2e-6,
            }
        })
        .into()
    }
}
