//! RMSNorm of a vector, added to the residual stream: `y += x * gamma / sqrt(mean(x^2) + epsilon)`,
//! for each token of a batch.
//!
//! Model families such as Gemma 3 normalize the outputs of attention and of the feed-forward
//! network before they add them. Each block processes a slice of a token's elements. Every slice
//! needs the sum of all squares. Each block therefore computes that sum over the whole vector, in
//! the same order and with the same bits. This avoids a second kernel and an exchange between
//! blocks.

use crate::harness::{Case, Variant};
use crate::shared::reduce::block_sum;
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;
use std::array::from_fn;

args! {
    /// Arguments of [`AddNormed`].
    pub struct AddNormedArgs {
        /// `[batch, n]`: the vectors to normalize
        x: In<f32>,
        /// `[n]`: weights of the norm
        gamma: In<f32>,
        /// `[batch, n]`: the residual stream
        y: InOut<f32>,
        /// The number of elements of a token, a multiple of 4.
        n: u32,
        /// A constant that is added to the mean square.
        epsilon: f32,
        /// The number of blocks of the grid, at least one for each token.
        blocks: u32,
        /// The bytes of dynamic shared memory. Pass the amount of the neighboring kernels, because
        /// a different amount would change the SM's carveout between the L1 cache and shared
        /// memory.
        shared: u32,
    }
}

/// Kernel that normalizes a vector and adds it to the residual stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddNormed {
    /// Whether the kernel starts during the previous one and waits for it (programmatic dependent
    /// launch, sm_90).
    pub overlap: bool,
    /// The number of tokens per launch.
    pub batch: u32,
}

const THREADS: u32 = 256;

impl AddNormed {
    /// The bytes of shared memory that the kernel declares itself.
    pub const SHARED: u32 = 128;
}

/// The number of elements that a block processes at once.
const STEP: u32 = 4 * THREADS;

impl KernelDef for AddNormed {
    type Args<S: Side> = AddNormedArgs<S>;

    fn name(&self) -> String {
        let plain = if self.overlap { "" } else { "_plain" };
        let batch = if self.batch == 1 {
            String::new()
        } else {
            format!("_batch_{}", self.batch)
        };
        format!("add_normed{plain}{batch}")
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &AddNormedArgs<Shape>) -> Result<Grid, ShapeError> {
        let batch = self.batch;
        let &AddNormedArgs { n, .. } = a;
        self.range("the kernel's batch", batch, 1, 1 << 16)?;
        self.range("n", n, 4, 1 << 24)?;
        self.multiple("n", n, 4)?;
        self.range("blocks", a.blocks, batch, 1 << 16)?;
        check_lengths! { self, a:
            gamma == n,
            x == batch * n,
            y == batch * n,
        }
        Ok(Grid {
            shared: a.shared,
            ..Grid::line(a.blocks)
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: AddNormedArgs<Dev<'k>>) {
        if self.overlap {
            k.grid_trigger();
        }

        k.section(
            "pipeline/add_normed/slice",
            "the token and the slice of this block",
        );
        let (item, slice, slices) = match self.batch {
            1 => (k.val(0), k.ctaid(), a.blocks),
            batch => (k.ctaid() % batch, k.ctaid() / batch, a.blocks / batch),
        };
        let row = item * a.n;
        let x = a.x.at(row).fresh();
        let y = a.y.at(row);
        if self.overlap {
            k.section(
                "pipeline/overlap/wait",
                "nothing before this wait reads results of earlier kernels",
            );
            k.grid_wait();
        }

        k.section(
            "pipeline/add_normed/sum_of_squares",
            "sum of the squares of all elements",
        );

        // Each block of a token sums all of its squares, which is cheaper than an exchange between
        // blocks.
        let mut squares = k.var(0.0);
        k.for_each(k.tid() * 4, a.n, STEP, |i| {
            for v in x.at(i).ld4() {
                squares.fma(v, v);
            }
        });
        let squares = block_sum(k, THREADS / 32, squares.get());

        k.section(
            "pipeline/add_normed/norm_and_add",
            "normalize and add the slice; surplus blocks have none",
        );
        let factor = squares.fma(a.n.cvt::<f32>().rcp(), a.epsilon).rsqrt();
        let first = slice.lt(slices).select(slice * STEP + k.tid() * 4, a.n);
        k.for_each(first, a.n, slices * STEP, |i| {
            let x = x.at(i).ld4();
            let gamma = a.gamma.at(i).ld4();
            let old = y.at(i).fresh().ld4();
            y.at(i)
                .st4(from_fn(|j| (x[j] * factor).fma(gamma[j], old[j])));
        });
    }

    fn reference(&self, a: AddNormedArgs<Cpu<'_>>) {
        let n = a.n as usize;
        for (x, y) in a.x.chunks(n).zip(a.y.chunks_mut(n)) {
            let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
            let mean = squares / n as f64;
            let factor = (mean + f64::from(a.epsilon)).sqrt().recip();
            for (i, y) in y.iter_mut().enumerate() {
                let normed = f64::from(x[i]) * factor * f64::from(a.gamma[i]);
                *y = (f64::from(*y) + normed) as f32;
            }
        }
    }
}

impl Variant for AddNormed {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Fewer elements than a warp has threads, fewer than a slice, one slice per block and idle
        // blocks, several slices per block, and all zeros.
        let spare = self.batch - 1;
        [
            (4, 1, 1.0),
            (100, 1, 1.0),
            (1152, 2, 1.0),
            (2560, 5, 1e3),
            (5376, 2, 1e-3),
            (64, 1, 0.0),
        ]
        .map(|(n, slices, magnitude)| self.case(seed, n, slices * self.batch + spare, magnitude))
        .into()
    }
}

impl AddNormed {
    fn case(&self, seed: u64, n: u32, blocks: u32, magnitude: f32) -> Case {
        let mut random = Random(seed);
        let count = (self.batch * n) as usize;
        let args = vec![
            CpuArg::F32((0..count).map(|_| random.unit() * magnitude).collect()),
            CpuArg::F32(random.units(n as usize)),
            CpuArg::F32(random.units(count)),
            CpuArg::scalar(n),
            CpuArg::scalar(1e-5f32),
            CpuArg::scalar(blocks),
            CpuArg::scalar(1024u32),
        ];

        // The bound of RmsNorm, whose rounding dominates. The addition rounds once more.
        Case {
            label: format!("n={n} blocks={blocks} magnitude={magnitude:e}"),
            args,
            bound: 2e-6,
        }
    }
}
