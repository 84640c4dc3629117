//! Matrix times vector, the matrix as a GGUF file holds it: `y[r] = sum over i of W[r,i] * x[i]`.
//!
//! Decoding is these products and little else, and each reads its matrix once, so the speed to reach is that of
//! memory. A [`Team`] takes two rows, so that what it loads of `x` serves both; its lanes take pieces of the rows'
//! blocks (`piece.rs`), several at a time, and issue all loads of a round before the first product. What is left
//! after whole rounds goes piece by piece. A row's sum is that of its lanes' sums.
//!
//! The team is a warp where there are rows enough to fill a device with warps, and a block of warps for few and
//! long rows, which would otherwise leave memory idle.
//!
//! Three kernels differ in what becomes of the sum: stored, stored with a bias, added to what is there.

use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use crate::format::Format;
use crate::piece::{Bytes, Group, Piece, Split, piece};
use crate::reduce::{block_sum, warp_sum};
use ptx_gen::*;
use std::array::from_fn;

/// Rows of a team.
const ROWS: usize = 2;
/// Warps of a block.
const WARPS: u32 = 4;

/// Who takes two rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Team {
    /// A warp.
    Warp,
    /// A block of four warps.
    Block,
}

impl Team {
    /// The team for a matrix of `rows` rows of `n` weights.
    ///
    /// A block pays where each of its warps has blocks of a row to visit, and where warps alone would be too few:
    /// 8192 rows are 31 warps for each of 132 multiprocessors.
    pub fn of(format: Format, rows: u32, n: u32) -> Team {
        let split = Split::of(format);
        let visited = WARPS * split.blocks_of_warp();
        if rows < 8192 && n / split.len >= visited { Team::Block } else { Team::Warp }
    }

    /// Warps of a team.
    fn warps(self) -> u32 {
        match self {
            Team::Warp => 1,
            Team::Block => WARPS,
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Team::Warp => "",
            Team::Block => "_block",
        }
    }

    /// The sum of `v` over the team, in every thread. Whole team.
    fn sum<'k>(self, k: Builder<'k>, v: F32<'k>) -> F32<'k> {
        match self {
            Team::Warp => warp_sum(v),
            Team::Block => block_sum(k, WARPS, v),
        }
    }
}

/// What keeps memory busy: bytes in flight.
struct Tuning {
    /// Pieces of each row that a lane loads in a round.
    depth: u32,
    /// Blocks of a multiprocessor: the most that leave registers for all those loads.
    blocks: u32,
}

const fn tuning(format: Format) -> Tuning {
    match format {
        Format::F32 | Format::F16 | Format::BF16 | Format::Q8_0 => Tuning { depth: 4, blocks: 8 },
        Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 => Tuning { depth: 4, blocks: 5 },
        Format::Q4_K | Format::Q5_K | Format::Q6_K => Tuning { depth: 2, blocks: 5 },
    }
}

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
    /// Who takes two of its rows.
    pub team: Team,
}

/// The kernel `y = W x + bias`.
#[derive(Clone, Copy, Debug)]
pub struct GemvBias {
    /// The format of `W`.
    pub format: Format,
    /// Who takes two of its rows.
    pub team: Team,
}

/// The kernel `y += W x`.
#[derive(Clone, Copy, Debug)]
pub struct GemvAdd {
    /// The format of `W`.
    pub format: Format,
    /// Who takes two of its rows.
    pub team: Team,
}

impl KernelDef for Gemv {
    type Args<S: Side> = GemvArgs<S>;

    fn name(&self) -> String {
        format!("gemv_{}{}", self.format.suffix(), self.team.suffix())
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(tuning(self.format).blocks)
    }

    fn grid(&self, a: &GemvArgs<Shape>) -> Result<Grid, ShapeError> {
        contract(self, self.format, self.team, [a.w, a.x, a.y], a.rows, a.n)
    }

    fn program<'k>(&self, k: Builder<'k>, a: GemvArgs<Dev<'k>>) {
        let w = Matrix { format: self.format, bytes: a.w, rows: a.rows, n: a.n };
        product(k, self.team, w, a.x, |r, sum| a.y.at(r).st(sum));
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
        format!("gemv_bias_{}{}", self.format.suffix(), self.team.suffix())
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(tuning(self.format).blocks)
    }

    fn grid(&self, a: &GemvBiasArgs<Shape>) -> Result<Grid, ShapeError> {
        self.length("bias", a.bias, "rows", &[a.rows])?;
        contract(self, self.format, self.team, [a.w, a.x, a.y], a.rows, a.n)
    }

    fn program<'k>(&self, k: Builder<'k>, a: GemvBiasArgs<Dev<'k>>) {
        let w = Matrix { format: self.format, bytes: a.w, rows: a.rows, n: a.n };
        product(k, self.team, w, a.x, |r, sum| a.y.at(r).st(sum + a.bias.at(r).ld()));
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
        format!("gemv_add_{}{}", self.format.suffix(), self.team.suffix())
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(tuning(self.format).blocks)
    }

    fn grid(&self, a: &GemvAddArgs<Shape>) -> Result<Grid, ShapeError> {
        contract(self, self.format, self.team, [a.w, a.x, a.y], a.rows, a.n)
    }

    fn program<'k>(&self, k: Builder<'k>, a: GemvAddArgs<Dev<'k>>) {
        let w = Matrix { format: self.format, bytes: a.w, rows: a.rows, n: a.n };
        product(k, self.team, w, a.x, |r, sum| {
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
    team: Team,
    [w, x, y]: [usize; 3],
    rows: u32,
    n: u32,
) -> Result<Grid, ShapeError> {
    kernel.matrix("w", w, format, rows, n)?;
    kernel.length("x", x, "n", &[n])?;
    kernel.length("y", y, "rows", &[rows])?;
    Ok(Grid::line(rows.div_ceil(ROWS as u32 * WARPS / team.warps())))
}

/// A matrix in device memory.
struct Matrix<'k> {
    format: Format,
    bytes: Bytes<'k>,
    rows: U32<'k>,
    n: U32<'k>,
}

/// Gives the sum of each row to `done`, in one thread.
fn product<'k>(
    k: Builder<'k>,
    team: Team,
    w: Matrix<'k>,
    x: Ptr<'k, f32, Read>,
    done: impl Fn(U32<'k>, F32<'k>),
) {
    let (lane, thread, index) = match team {
        Team::Warp => (k.lane(), k.lane(), k.ctaid() * WARPS + k.warp()),
        Team::Block => (k.lane(), k.tid(), k.ctaid()),
    };
    let first = index * ROWS as u32;
    k.when(first.lt(w.rows), || {
        let rows = [first, first + 1];
        let sums = Lane::new(k, lane, team, &w, rows, x).sums(k, thread);
        for (row, sum) in rows.into_iter().zip(sums) {
            let sum = team.sum(k, sum.get());
            k.when(thread.eq(0) & row.lt(w.rows), || done(row, sum));
        }
    });
}

/// What a lane computes with.
struct Lane<'k> {
    split: Split,
    piece: Box<dyn Piece<'k> + 'k>,
    depth: u32,
    /// Blocks that the team's lanes visit at once.
    step: u32,
    /// Blocks of a row.
    blocks: U32<'k>,
    rows: [Bytes<'k>; ROWS],
    /// The activations of the lane's piece of the first block.
    x: Ptr<'k, f32, Read>,
}

/// What is loaded of one piece: its activations, and its words of each row.
struct Loaded<'k> {
    x: Vec<F32<'k>>,
    rows: [Vec<U32<'k>>; ROWS],
}

impl<'k> Lane<'k> {
    /// A row past the end stands for the last, so that nobody reads outside.
    fn new(
        k: Builder<'k>,
        lane: U32<'k>,
        team: Team,
        w: &Matrix<'k>,
        rows: [U32<'k>; ROWS],
        x: Ptr<'k, f32, Read>,
    ) -> Self {
        let split = Split::of(w.format);
        let piece = piece(w.format, k, lane);
        let blocks = split.blocks(w.n);
        let (last, row_bytes) = (w.rows - 1, blocks * split.bytes);
        let rows = rows.map(|row| w.bytes.row(row.min(last), row_bytes));
        let x = x.at(piece.first());
        let step = split.blocks_of_warp() * team.warps();
        Lane { split, piece, depth: tuning(w.format).depth, step, blocks, rows, x }
    }

    /// The part of the sum of each row that is the team's `thread`'s.
    fn sums(&self, k: Builder<'k>, thread: U32<'k>) -> [Var<'k, f32>; ROWS] {
        let mut sums = from_fn(|_| k.var(0.0));
        let (first, step) = (self.split.block(thread), self.step);
        let stride = step * self.depth;
        let whole = self.blocks & !(stride - 1);
        k.note(format!("whole rounds: {} pieces of each row", self.depth));
        k.for_each(first, whole, stride, |block| self.round(&mut sums, block, self.depth));
        k.note("the rest, piece by piece");
        k.for_each(first + whole, self.blocks, step, |block| self.round(&mut sums, block, 1));
        sums
    }

    /// Adds `pieces` pieces of each row, the first of them in `block`: all loads, then all products.
    fn round(&self, sums: &mut [Var<'k, f32>; ROWS], block: U32<'k>, pieces: u32) {
        for loaded in self.load(block, pieces) {
            let rows = loaded.rows.map(|words| self.piece.unpack(&words));
            add(sums, &rows, &loaded.x);
        }
    }

    fn load(&self, block: U32<'k>, pieces: u32) -> Vec<Loaded<'k>> {
        let Split { len, bytes, fours, .. } = self.split;
        let x = self.x.row(block, 4 * len);
        let rows = self.rows.map(|row| self.piece.places(row.row(block, bytes)));
        let loaded = |blocks| Loaded {
            x: fours.iter().flat_map(|four| x.at(blocks * len + four).ld4()).collect(),
            rows: rows.each_ref().map(|places| self.piece.load(places, blocks * bytes)),
        };
        (0..pieces).map(|i| loaded(i * self.step)).collect()
    }
}

/// `sum += scale * (q . x) + offset * (sum of x)` for each group of each row, whose sum of `x` the rows share.
fn add<'k>(sums: &mut [Var<'k, f32>; ROWS], rows: &[Vec<Group<'k>>; ROWS], mut x: &[F32<'k>]) {
    for g in 0..rows[0].len() {
        let (here, rest) = x.split_at(rows[0][g].q.len());
        let total = rows[0][g].offset.map(|_| here[1..].iter().fold(here[0], |sum, &x| sum + x));
        for (sum, row) in sums.iter_mut().zip(rows) {
            let Group { q, scale, offset } = &row[g];
            match scale {
                Some(scale) => sum.fma(*scale, dot(q, here)),
                None => q.iter().zip(here).for_each(|(&q, &x)| sum.fma(q, x)),
            }
            if let (Some(offset), Some(total)) = (*offset, total) {
                sum.fma(offset, total);
            }
        }
        x = rest;
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
        cases(self.format, self.team, seed, |_, rows| vec![vec![0.0; rows]])
    }
}

impl Variant for GemvBias {
    fn cases(&self, seed: u64) -> Vec<Case> {
        cases(self.format, self.team, seed, |random, rows| vec![random.units(rows), vec![0.0; rows]])
    }
}

impl Variant for GemvAdd {
    fn cases(&self, seed: u64) -> Vec<Case> {
        cases(self.format, self.team, seed, |random, rows| vec![random.units(rows)])
    }
}

/// Cases with `rest` between `x` and the sizes.
fn cases(
    format: Format,
    team: Team,
    seed: u64,
    rest: impl Fn(&mut Random, usize) -> Vec<Vec<f32>>,
) -> Vec<Case> {
    let split = Split::of(format);
    let block = split.len as usize;
    let round = block * (split.blocks_of_warp() * team.warps() * tuning(format).depth) as usize;
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
    let w = format.random(rows * n / format.block_len() as usize, 1.0, random);
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
