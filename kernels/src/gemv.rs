//! Matrix times vector, the matrix as a GGUF file holds it: `y[r] = sum over i of W[r,i] * x[i]`.
//!
//! Decoding is these products and little else, and each reads its matrix once, so the speed to reach is that of
//! memory. A warp takes [`ROWS`] rows, so that what it loads of `x` serves all of them; its lanes take pieces of
//! the rows' blocks ([`crate::piece`]), [`Split::depth`] at a time, and issue all loads of a round before the first
//! product. What is left after whole rounds goes piece by piece. A row's sum is that of its lanes' sums.
//!
//! Three kernels differ in what becomes of the sum: stored, stored with a bias, added to what is there.

use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use crate::format::Format;
use crate::piece::{Bytes, Group, Piece, Split, piece};
use crate::reduce::warp_sum;
use ptx_gen::*;
use std::array::from_fn;
use std::cell::OnceCell;

/// Rows of a warp.
const ROWS: usize = 2;
/// Warps of a block.
const WARPS: u32 = 4;

args! {
    /// Arguments of [`Gemv`].
    pub struct GemvArgs {
        /// `[rows, row_bytes]`, from an address that is a multiple of 16.
        w: In<u8>,
        /// `[n]`
        x: In<f32>,
        /// `[rows]`
        y: Out<f32>,
        /// Rows of the matrix.
        rows: u32,
        /// Row length in weights, a multiple of the format's block and of 4.
        n: u32,
    }
}

args! {
    /// Arguments of [`GemvBias`].
    pub struct GemvBiasArgs {
        /// `[rows, row_bytes]`, from an address that is a multiple of 16.
        w: In<u8>,
        /// `[n]`
        x: In<f32>,
        /// `[rows]`
        bias: In<f32>,
        /// `[rows]`
        y: Out<f32>,
        /// Rows of the matrix.
        rows: u32,
        /// Row length in weights, a multiple of the format's block and of 4.
        n: u32,
    }
}

args! {
    /// Arguments of [`GemvAdd`].
    pub struct GemvAddArgs {
        /// `[rows, row_bytes]`, from an address that is a multiple of 16.
        w: In<u8>,
        /// `[n]`
        x: In<f32>,
        /// `[rows]`
        y: InOut<f32>,
        /// Rows of the matrix.
        rows: u32,
        /// Row length in weights, a multiple of the format's block and of 4.
        n: u32,
    }
}

/// The kernel `y = W x`.
#[derive(Clone, Copy, Debug)]
pub struct Gemv {
    /// The format of `W`.
    pub format: Format,
}

/// The kernel `y = W x + bias`.
#[derive(Clone, Copy, Debug)]
pub struct GemvBias {
    /// The format of `W`.
    pub format: Format,
}

/// The kernel `y += W x`.
#[derive(Clone, Copy, Debug)]
pub struct GemvAdd {
    /// The format of `W`.
    pub format: Format,
}

impl KernelDef for Gemv {
    type Args<S: Side> = GemvArgs<S>;

    fn name(&self) -> String {
        format!("gemv_{}", self.format.suffix())
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn grid(&self, a: &GemvArgs<Shape>) -> Result<Grid, ShapeError> {
        contract(self, self.format, [a.w, a.x, a.y], a.rows, a.n)
    }

    fn program<'k>(&self, k: Builder<'k>, a: GemvArgs<Dev<'k>>) {
        let w = Matrix { format: self.format, bytes: a.w, rows: a.rows, n: a.n };
        product(k, w, a.x, |r, sum| a.y.at(r).st(sum));
    }

    fn reference(&self, a: GemvArgs<Cpu<'_>>) {
        for (r, sum) in exact(self.format, a.w, a.x).enumerate() {
            a.y[r] = sum as f32;
        }
    }
}

impl KernelDef for GemvBias {
    type Args<S: Side> = GemvBiasArgs<S>;

    fn name(&self) -> String {
        format!("gemv_bias_{}", self.format.suffix())
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn grid(&self, a: &GemvBiasArgs<Shape>) -> Result<Grid, ShapeError> {
        self.length("bias", a.bias, "rows", &[a.rows])?;
        contract(self, self.format, [a.w, a.x, a.y], a.rows, a.n)
    }

    fn program<'k>(&self, k: Builder<'k>, a: GemvBiasArgs<Dev<'k>>) {
        let w = Matrix { format: self.format, bytes: a.w, rows: a.rows, n: a.n };
        product(k, w, a.x, |r, sum| a.y.at(r).st(sum + a.bias.at(r).ld()));
    }

    fn reference(&self, a: GemvBiasArgs<Cpu<'_>>) {
        for (r, sum) in exact(self.format, a.w, a.x).enumerate() {
            a.y[r] = (sum + f64::from(a.bias[r])) as f32;
        }
    }
}

impl KernelDef for GemvAdd {
    type Args<S: Side> = GemvAddArgs<S>;

    fn name(&self) -> String {
        format!("gemv_add_{}", self.format.suffix())
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn grid(&self, a: &GemvAddArgs<Shape>) -> Result<Grid, ShapeError> {
        contract(self, self.format, [a.w, a.x, a.y], a.rows, a.n)
    }

    fn program<'k>(&self, k: Builder<'k>, a: GemvAddArgs<Dev<'k>>) {
        let w = Matrix { format: self.format, bytes: a.w, rows: a.rows, n: a.n };
        product(k, w, a.x, |r, sum| {
            let y = a.y.at(r);
            y.st(sum + y.ld())
        });
    }

    fn reference(&self, a: GemvAddArgs<Cpu<'_>>) {
        for (r, sum) in exact(self.format, a.w, a.x).enumerate() {
            a.y[r] = (sum + f64::from(a.y[r])) as f32;
        }
    }
}

/// What all three ask of lengths.
fn contract(
    kernel: &impl KernelDef,
    format: Format,
    [w, x, y]: [usize; 3],
    rows: u32,
    n: u32,
) -> Result<Grid, ShapeError> {
    kernel.matrix("w", w, format, rows, n)?;
    kernel.length("x", x, "n", &[n])?;
    kernel.length("y", y, "rows", &[rows])?;
    Ok(Grid::line(rows.div_ceil(ROWS as u32 * WARPS)))
}

/// A matrix in device memory.
struct Matrix<'k> {
    format: Format,
    bytes: Bytes<'k>,
    rows: U32<'k>,
    n: U32<'k>,
}

/// Gives the sum of each row to `done`, in one lane.
fn product<'k>(k: Builder<'k>, w: Matrix<'k>, x: Ptr<'k, f32, Read>, done: impl Fn(U32<'k>, F32<'k>)) {
    let first = (k.ctaid() * WARPS + k.warp()) * ROWS as u32;
    k.when(first.lt(w.rows), || {
        let rows = [first, first + 1];
        let lane = k.lane();
        for (row, sum) in rows.into_iter().zip(Lane::new(k, &w, x, rows, lane).sums(k, w.n, lane)) {
            let sum = warp_sum(sum.get());
            k.when(lane.eq(0) & row.lt(w.rows), || done(row, sum));
        }
    });
}

/// What a lane computes with: its piece, and where its rows and its activations start.
struct Lane<'k> {
    split: Split,
    piece: Box<dyn Piece<'k> + 'k>,
    rows: [Bytes<'k>; ROWS],
    x: Ptr<'k, f32, Read>,
}

impl<'k> Lane<'k> {
    /// A row past the end stands for the last, so that nobody reads outside.
    fn new(
        k: Builder<'k>,
        w: &Matrix<'k>,
        x: Ptr<'k, f32, Read>,
        rows: [U32<'k>; ROWS],
        lane: U32<'k>,
    ) -> Self {
        let split = Split::of(w.format);
        let piece = piece(w.format, k, lane);
        let (last, row_bytes) = (w.rows - 1, split.blocks(w.n) * split.bytes);
        let rows = rows.map(|row| w.bytes.row(row.min(last), row_bytes));
        let x = x.at(piece.first());
        Lane { split, piece, rows, x }
    }

    /// The lane's part of the sum of each row.
    fn sums(&self, k: Builder<'k>, n: U32<'k>, lane: U32<'k>) -> [Var<'k, f32>; ROWS] {
        let mut sums = from_fn(|_| k.var(0.0));
        let (first, blocks) = (self.split.block(lane), self.split.blocks(n));
        let (step, depth) = (self.split.blocks_of_warp(), self.split.depth);

        k.note(format!("whole rounds: {depth} pieces of each row"));
        let whole = blocks & !(step * depth - 1);
        k.for_each(first, whole, step * depth, |block| self.round(&mut sums, block, depth));
        k.note("the rest, piece by piece");
        k.for_each(first + whole, blocks, step, |block| self.round(&mut sums, block, 1));
        sums
    }

    /// Adds `pieces` pieces of each row, the first of them in `block`: all loads, then all products.
    fn round(&self, sums: &mut [Var<'k, f32>], block: U32<'k>, pieces: u32) {
        let x = self.x.row(block, 4 * self.split.len);
        let rows = self.rows.map(|row| self.piece.places(row.row(block, self.split.bytes)));
        let loaded: Vec<_> = (0..pieces)
            .map(|i| {
                let blocks = i * self.split.blocks_of_warp();
                let at = |place: &Bytes<'k>| place.row(blocks, self.split.bytes);
                let load = |row: &Vec<_>| self.piece.load(&row.iter().map(at).collect::<Vec<_>>());
                (
                    Activations::load(x.row(blocks, 4 * self.split.len), self.split.fours),
                    rows.each_ref().map(load),
                )
            })
            .collect();
        for (x, rows) in loaded {
            for (sum, words) in sums.iter_mut().zip(rows) {
                x.dot(sum, &self.piece.unpack(&words));
            }
        }
    }
}

/// The activations of a piece.
struct Activations<'k> {
    x: Vec<F32<'k>>,
    /// The sum of those from this index on that a group with an offset needs, once it has been made.
    sums: Vec<OnceCell<F32<'k>>>,
}

impl<'k> Activations<'k> {
    fn load(at: Ptr<'k, f32, Read>, fours: &[u32]) -> Self {
        let x: Vec<_> = fours.iter().flat_map(|&four| at.at(four).ld4()).collect();
        Activations { sums: vec![OnceCell::new(); x.len()], x }
    }

    /// `sum += scale * (q . x) + offset * (sum of x)` for each group.
    fn dot(&self, sum: &mut Var<'k, f32>, groups: &[Group<'k>]) {
        let mut start = 0;
        for group in groups {
            let x = &self.x[start..][..group.q.len()];
            match group.scale {
                Some(scale) => sum.fma(scale, dot(&group.q, x)),
                None => group.q.iter().zip(x).for_each(|(&q, &x)| sum.fma(q, x)),
            }
            if let Some(offset) = group.offset {
                let total = self.sums[start].get_or_init(|| x[1..].iter().fold(x[0], |a, &b| a + b));
                sum.fma(offset, *total);
            }
            start += x.len();
        }
    }
}

fn dot<'k>(a: &[F32<'k>], b: &[F32<'k>]) -> F32<'k> {
    let terms = a[1..].iter().zip(&b[1..]);
    terms.fold(a[0] * b[0], |sum, (&a, &b)| a.fma(b, sum))
}

/// The rows' sums in double precision, over the weights as the format defines them.
fn exact<'a>(format: Format, w: &'a [u8], x: &'a [f32]) -> impl Iterator<Item = f64> + 'a {
    w.chunks_exact(format.row_bytes(x.len())).map(move |row| {
        format.dequantize(row).iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum()
    })
}

impl Variant for Gemv {
    fn cases(&self, seed: u64) -> Vec<Case> {
        cases(self.format, seed, |_, rows| vec![vec![0.0; rows]])
    }
}

impl Variant for GemvBias {
    fn cases(&self, seed: u64) -> Vec<Case> {
        cases(self.format, seed, |random, rows| vec![random.units(rows), vec![0.0; rows]])
    }
}

impl Variant for GemvAdd {
    fn cases(&self, seed: u64) -> Vec<Case> {
        cases(self.format, seed, |random, rows| vec![random.units(rows)])
    }
}

/// Cases with `rest` between `x` and the sizes.
fn cases(format: Format, seed: u64, rest: impl Fn(&mut Random, usize) -> Vec<Vec<f32>>) -> Vec<Case> {
    let split = Split::of(format);
    let block = split.len as usize;
    let round = block * (split.blocks_of_warp() * split.depth) as usize;
    // One block; fewer blocks than lanes; whole rounds and a rest; more than one block of threads; long rows.
    let sizes =
        [(1, block), (2, 3 * block), (5, 2 * round + block), (9, round), (19, block), (3, 4096 + round)];
    let calm = sizes.into_iter().map(|(rows, n)| (rows, n, 1.0));
    let cases = calm.chain([(3, round, 1e4)]);
    cases.map(|(rows, n, outlier)| case(format, &mut Random(seed), [rows, n], outlier, &rest)).collect()
}

fn case(
    format: Format,
    random: &mut Random,
    [rows, n]: [usize; 2],
    outlier: f32,
    rest: &impl Fn(&mut Random, usize) -> Vec<Vec<f32>>,
) -> Case {
    let w = format.random(rows * n / format.block_len() as usize, random);
    // Activations with the signs of the first row make its sum about as large as that of the magnitudes, which is
    // what rounding errors are relative to.
    let mut x: Vec<f32> =
        format.dequantize(&w)[..n].iter().map(|w| 0.5 * random.unit() + w.signum()).collect();
    x.iter_mut().step_by(n.div_ceil(3)).for_each(|x| *x *= outlier);
    let mut args = vec![CpuArg::U8(w), CpuArg::F32(x)];
    args.extend(rest(random, rows).into_iter().map(CpuArg::F32));
    args.extend([rows, n].map(|v| CpuArg::scalar(v as u32)));
    Case { label: format!("rows={rows} n={n} outlier={outlier}"), args, bound: 1e-6 }
}
