//! The three matmuls of training: NT for the forward pass, NN for gradients of inputs, and TN for
//! gradients of weights.
//!
//! Each of them adds to `sum`. A matmul of two pairs of operands, `[x | u] [W | B]^T`, is therefore
//! one sum with one rounding.
//!
//! The kernel is the simple one: a thread sums one element of the result, or four neighbors, in the
//! order of the depth. The order is equal in both cases, and so are the bits.

use super::buffers::{narrow, wide};
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

/// Adds `x[m,k] w[n,k]^T` to `sum[m,n]`. Both operands have rows of `k` elements.
pub fn nt(x: &[f64], w: &[f64], k: usize, sum: &mut [f64]) {
    let n = w.len() / k;
    for (x, sum) in x.chunks_exact(k).zip(sum.chunks_exact_mut(n)) {
        for (w, sum) in w.chunks_exact(k).zip(sum) {
            *sum += dot(x, w);
        }
    }
}

/// Adds `y[m,n] w[n,k]` to `sum[m,k]`.
pub fn nn(y: &[f64], w: &[f64], k: usize, sum: &mut [f64]) {
    let n = w.len() / k;
    for (y, sum) in y.chunks_exact(n).zip(sum.chunks_exact_mut(k)) {
        for (&y, w) in y.iter().zip(w.chunks_exact(k)) {
            add_scaled(y, w, sum);
        }
    }
}

/// Adds `y[m,n]^T x[m,k]` to `sum[n,k]`.
pub fn tn(y: &[f64], x: &[f64], k: usize, sum: &mut [f64]) {
    let n = sum.len() / k;
    for (y, x) in y.chunks_exact(n).zip(x.chunks_exact(k)) {
        for (&y, sum) in y.iter().zip(sum.chunks_exact_mut(k)) {
            add_scaled(y, x, sum);
        }
    }
}

/// Returns the sum of `x[i] y[i]`.
pub(super) fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// Adds `factor x[i]` to each `sum[i]`.
pub fn add_scaled(factor: f64, x: &[f64], sum: &mut [f64]) {
    for (sum, x) in sum.iter_mut().zip(x) {
        *sum += factor * x;
    }
}

/// The layout of the operands of a matmul: which of them is transposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MatmulLayout {
    /// `a[rows,depth] b[columns,depth]^T`, like [`nt`].
    Nt,
    /// `a[rows,depth] b[depth,columns]`, like [`nn`].
    Nn,
    /// `a[depth,rows]^T b[depth,columns]`, like [`tn`].
    Tn,
}

args! {
    /// Arguments of [`Product`].
    pub struct ProductArgs {
        /// The first operand, with the shape that [`MatmulLayout`] gives.
        a: In<f32>,
        /// The second operand, with the shape that [`MatmulLayout`] gives.
        b: In<f32>,
        /// `[rows, columns]`: `factor` times the result is added to it.
        sum: InOut<f32>,
        /// `[1]`: the factor of the result. It is in memory, so that a captured graph stays valid
        /// when the factor of a batch changes.
        factor: In<f32>,
        /// The number of rows of the result.
        rows: u32,
        /// The number of columns of the result.
        columns: u32,
        /// The number of terms of each element.
        depth: u32,
    }
}

/// Kernel of a matmul in `f32`.
pub struct Product {
    /// The layout of the operands.
    pub form: MatmulLayout,
    /// The number of columns of a thread: 1 or 4. For 4, the number of columns must be a multiple
    /// of 4, and with NT and NN the depth too.
    pub width: u32,
}

const THREADS: u32 = 256;

impl KernelDef for Product {
    type Args<S: Side> = ProductArgs<S>;

    fn name(&self) -> String {
        let form = match self.form {
            MatmulLayout::Nt => "nt",
            MatmulLayout::Nn => "nn",
            MatmulLayout::Tn => "tn",
        };
        let width = if self.width == 1 { "" } else { "_wide" };
        format!("train_product_{form}{width}")
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &ProductArgs<Shape>) -> Result<Grid, ShapeError> {
        let &ProductArgs {
            columns,
            depth,
            rows,
            ..
        } = a;
        for (name, size) in [("rows", rows), ("columns", columns), ("depth", depth)] {
            self.range(name, size, 1, 1 << 30)?;
        }

        self.multiple("columns", columns, self.width)?;
        self.multiple("depth", depth, self.step())?;
        check_lengths! { self, a:
            a == rows * depth,
            b == columns * depth,
            sum == rows * columns,
        }
        self.exactly("factor", a.factor, 1)?;
        let threads = rows * (columns / self.width);
        Ok(Grid::line(threads.div_ceil(THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ProductArgs<Dev<'k>>) {
        let i = k.ctaid() * THREADS + k.tid();
        let each = a.columns / self.width;
        k.when(i.lt(a.rows * each), || {
            let row = i / each;
            let column = i % each * self.width;
            let mut sums: Vec<_> = (0..self.width).map(|_| k.var(0.0)).collect();
            k.for_each(0, a.depth, self.step(), |d| {
                self.add(&a, [row, column, d], &mut sums)
            });

            // The factor and the old sum enter with one fused operation, and one rounding.
            let to = a.sum.at(row * a.columns + column);
            let factor = a.factor.ld();
            for (j, sum) in (0u32..).zip(sums) {
                let element = to.at(j);
                let product = sum.get();
                let old = to.at(j).ld();
                element.st(product.fma(factor, old));
            }
        });
    }

    fn reference(&self, a: ProductArgs<Cpu<'_>>) {
        let x = wide(a.a);
        let y = wide(a.b);
        let mut product = vec![0.0; a.sum.len()];
        match self.form {
            MatmulLayout::Nt => nt(&x, &y, a.depth as usize, &mut product),
            MatmulLayout::Nn => nn(&x, &y, a.columns as usize, &mut product),
            MatmulLayout::Tn => tn(&x, &y, a.columns as usize, &mut product),
        }

        let mut sum = wide(a.sum);
        add_scaled(f64::from(a.factor[0]), &product, &mut sum);
        narrow(&sum, a.sum);
    }
}

impl Product {
    /// Returns the number of terms of an element that are added at once.
    fn step(&self) -> u32 {
        // The columns of a transposed first operand are not contiguous, so it is loaded one by one.
        if self.form == MatmulLayout::Tn {
            1
        } else {
            self.width
        }
    }

    /// Adds the terms from depth `d` on to the sums of a thread's columns.
    fn add<'k>(
        &self,
        a: &ProductArgs<Dev<'k>>,
        [row, column, d]: [U32<'k>; 3],
        sums: &mut [Var<'k, f32>],
    ) {
        let load = |from: Ptr<'k, f32, ReadOnly>| match self.width {
            1 => vec![from.ld()],
            _ => from.ld4().to_vec(),
        };
        match self.form {
            MatmulLayout::Nt => {
                let x = load(a.a.at(row * a.depth + d));
                for (j, sum) in (0u32..).zip(sums) {
                    let y = load(a.b.at((column + j) * a.depth + d));
                    for (&x, y) in x.iter().zip(y) {
                        sum.fma(x, y);
                    }
                }
            }
            MatmulLayout::Nn => {
                let terms = load(a.a.at(row * a.depth + d));
                for (t, x) in (0u32..).zip(terms) {
                    let y = load(a.b.at((d + t) * a.columns + column));
                    for (sum, y) in sums.iter_mut().zip(y) {
                        sum.fma(x, y);
                    }
                }
            }
            MatmulLayout::Tn => {
                // Terms of a transposed operand are a row apart in memory, so one is loaded per
                // step.
                let x = a.a.at(d * a.rows + row).ld();
                let y = load(a.b.at(d * a.columns + column));
                for (sum, y) in sums.iter_mut().zip(y) {
                    sum.fma(x, y);
                }
            }
        }
    }
}

impl Variant for Product {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(rows, columns, depth): (u32, u32, u32)| {
            let mut random = Random(seed);
            let mut matrix = |rows, columns| CpuArg::F32(random.units((rows * columns) as usize));
            let args = vec![
                matrix(rows, depth),
                matrix(columns, depth),
                matrix(rows, columns),
                CpuArg::F32(vec![0.5]),
                CpuArg::scalar(rows),
                CpuArg::scalar(columns),
                CpuArg::scalar(depth),
            ];

            // A sum of 300 terms passes 300 roundings, which mostly cancel. The error is about the
            // root of their number.
            Case {
                label: format!("rows={rows} columns={columns} depth={depth}"),
                args,
                bound: 3e-6,
            }
        };
        let shapes = match self.width {
            1 => [(1, 1, 1), (3, 5, 7), (17, 33, 300), (48, 11, 64)],
            _ => [(1, 4, 4), (3, 8, 12), (17, 36, 300), (48, 12, 64)],
        };
        shapes.map(case).into()
    }
}
