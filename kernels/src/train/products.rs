//! The three matrix products of training: NT forward, NN for gradients of inputs, TN for gradients of weights.
//!
//! Each adds to `sum`, so that a product of two pairs of operands, `[x | u] [W | B]^T`, is one sum with one rounding.
//!
//! The kernel is the naive one: a thread sums an element of the product, or four neighbours, in the order of the columns.
//! Either way an element has the same bits.

use super::{narrow, wide};
use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use ptx_gen::*;

/// `sum[m,n] += x[m,k] w[n,k]^T`; both operands have rows of `k`.
pub fn nt(x: &[f64], w: &[f64], k: usize, sum: &mut [f64]) {
    let n = w.len() / k;
    for (x, sum) in x.chunks_exact(k).zip(sum.chunks_exact_mut(n)) {
        for (w, sum) in w.chunks_exact(k).zip(sum) {
            *sum += dot(x, w);
        }
    }
}

/// `sum[m,k] += y[m,n] w[n,k]`
pub fn nn(y: &[f64], w: &[f64], k: usize, sum: &mut [f64]) {
    let n = w.len() / k;
    for (y, sum) in y.chunks_exact(n).zip(sum.chunks_exact_mut(k)) {
        for (&y, w) in y.iter().zip(w.chunks_exact(k)) {
            add_scaled(y, w, sum);
        }
    }
}

/// `sum[n,k] += y[m,n]^T x[m,k]`
pub fn tn(y: &[f64], x: &[f64], k: usize, sum: &mut [f64]) {
    let n = sum.len() / k;
    for (y, x) in y.chunks_exact(n).zip(x.chunks_exact(k)) {
        for (&y, sum) in y.iter().zip(sum.chunks_exact_mut(k)) {
            add_scaled(y, x, sum);
        }
    }
}

/// `sum of x[i] y[i]`
pub(super) fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// `sum[i] += factor x[i]`
pub fn add_scaled(factor: f64, x: &[f64], sum: &mut [f64]) {
    for (sum, x) in sum.iter_mut().zip(x) {
        *sum += factor * x;
    }
}

/// Which product: what its operands are, and over what it sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `a[rows,depth] b[columns,depth]^T`: [`nt`]
    Nt,
    /// `a[rows,depth] b[depth,columns]`: [`nn`]
    Nn,
    /// `a[depth,rows]^T b[depth,columns]`: [`tn`]
    Tn,
}

args! {
    /// Arguments of [`Product`].
    pub struct ProductArgs {
        /// The first operand: see [`Form`].
        a: In<f32>,
        /// The second operand: see [`Form`].
        b: In<f32>,
        /// `[rows, columns]`: `factor` times the product is added to it.
        sum: InOut<f32>,
        /// `[1]`: what the product is multiplied by. It is in memory, so that a graph freezes no factor of a batch.
        factor: In<f32>,
        /// Rows of the product.
        rows: u32,
        /// Columns of the product.
        columns: u32,
        /// Products that are summed for each element.
        depth: u32,
    }
}

/// The kernel.
pub struct Product {
    /// Which product.
    pub form: Form,
    /// Columns of a thread: 1, or 4 where columns are a multiple of 4, and the depth of NT and NN too.
    pub width: u32,
}

const THREADS: u32 = 256;

impl KernelDef for Product {
    type Args<S: Side> = ProductArgs<S>;

    fn name(&self) -> String {
        let form = match self.form {
            Form::Nt => "nt",
            Form::Nn => "nn",
            Form::Tn => "tn",
        };
        let width = if self.width == 1 { "" } else { "_wide" };
        format!("train_product_{form}{width}")
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &ProductArgs<Shape>) -> Result<Grid, ShapeError> {
        for (name, size) in [("rows", a.rows), ("columns", a.columns), ("depth", a.depth)] {
            self.range(name, size, 1, 1 << 30)?;
        }
        self.multiple("columns", a.columns, self.width)?;
        self.multiple("depth", a.depth, self.step())?;
        self.length("a", a.a, "rows * depth", &[a.rows, a.depth])?;
        self.length("b", a.b, "columns * depth", &[a.columns, a.depth])?;
        self.length("sum", a.sum, "rows * columns", &[a.rows, a.columns])?;
        self.exactly("factor", a.factor, 1)?;
        Ok(Grid::line(
            (a.rows * (a.columns / self.width)).div_ceil(THREADS),
        ))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ProductArgs<Dev<'k>>) {
        let (i, each) = (k.ctaid() * THREADS + k.tid(), a.columns / self.width);
        k.when(i.lt(a.rows * each), || {
            let (row, column) = (i / each, i % each * self.width);
            let mut sums: Vec<_> = (0..self.width).map(|_| k.var(0.0)).collect();
            k.for_each(0, a.depth, self.step(), |d| {
                self.add(&a, [row, column, d], &mut sums)
            });
            let (to, factor) = (a.sum.at(row * a.columns + column), a.factor.ld());
            for (j, sum) in (0u32..).zip(sums) {
                to.at(j).st(sum.get().fma(factor, to.at(j).ld()));
            }
        });
    }

    fn reference(&self, a: ProductArgs<Cpu<'_>>) {
        let (x, y) = (wide(a.a), wide(a.b));
        let mut product = vec![0.0; a.sum.len()];
        match self.form {
            Form::Nt => nt(&x, &y, a.depth as usize, &mut product),
            Form::Nn => nn(&x, &y, a.columns as usize, &mut product),
            Form::Tn => tn(&x, &y, a.columns as usize, &mut product),
        }
        let mut sum = wide(a.sum);
        add_scaled(f64::from(a.factor[0]), &product, &mut sum);
        narrow(&sum, a.sum);
    }
}

impl Product {
    /// Products of an element that are added at once.
    fn step(&self) -> u32 {
        if self.form == Form::Tn { 1 } else { self.width }
    }

    /// Adds the products from depth `d` on to the sums of a thread's columns.
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
            Form::Nt => {
                let x = load(a.a.at(row * a.depth + d));
                for (j, sum) in (0u32..).zip(sums) {
                    let y = load(a.b.at((column + j) * a.depth + d));
                    x.iter().zip(y).for_each(|(&x, y)| sum.fma(x, y));
                }
            }
            Form::Nn => {
                for (t, x) in (0u32..).zip(load(a.a.at(row * a.depth + d))) {
                    let y = load(a.b.at((d + t) * a.columns + column));
                    sums.iter_mut().zip(y).for_each(|(sum, y)| sum.fma(x, y));
                }
            }
            Form::Tn => {
                let (x, y) = (
                    a.a.at(d * a.rows + row).ld(),
                    load(a.b.at(d * a.columns + column)),
                );
                sums.iter_mut().zip(y).for_each(|(sum, y)| sum.fma(x, y));
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
            // A sum of 300 products passes 300 roundings, which mostly cancel: about the root of them.
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
