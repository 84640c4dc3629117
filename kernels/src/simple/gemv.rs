//! GEMV with a matrix as a GGUF file stores it: `y[r] = sum over i of W[r,i] * x[i]`.
//!
//! Decoding consists mostly of these GEMVs. Each reads its matrix once, so memory bandwidth is the
//! bound. A [`Team`] of threads computes two rows, so each loaded element of `x` is used twice. Its
//! lanes process fragments of the rows' blocks (`format/lanes/fragment.rs`), several at a time, and
//! issue all loads of an iteration before the first multiplication. The remainder is processed one
//! fragment at a time. The result of a row is the sum over the lanes.
//!
//! A team is a warp if there are enough rows to fill the device with warps. For few, long rows, a
//! team is a block of warps, which keeps more loads in flight.
//!
//! Three kernels share the GEMV and differ in the epilogue: store, add a bias and store, or add to
//! the output. The GEMV of experts (`experts.rs`) differs in the address of its matrix.

use crate::format::Format;
use crate::format::lanes::fragment::{Bytes, Fragment, Group, LaneSplit};
use crate::harness::{Case, Variant};
use crate::shared::reduce::{block_sum, warp_sum};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;
use std::array::from_fn;

/// The number of rows of a team.
const ROWS: usize = 2;
/// The number of warps of a block.
pub(crate) const WARPS: u32 = 4;

/// The threads that compute two rows together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Team {
    /// One warp.
    Warp,
    /// A block of four warps.
    Block,
}

impl Team {
    /// Returns the team for a matrix of `rows` rows of `n` weights.
    ///
    /// It is a block if each of its warps has blocks of a row to process, and if warps alone would
    /// be too few. For example, 8192 rows are 31 warps for each of 132 SMs.
    pub fn of(format: Format, rows: u32, n: u32) -> Team {
        let split = format.split();
        let visited = WARPS * split.blocks_of_warp();
        if rows < 8192 && n / split.len >= visited {
            Team::Block
        } else {
            Team::Warp
        }
    }

    /// Returns the number of blocks that compute `rows` rows.
    pub(crate) fn blocks(self, rows: u32) -> u32 {
        rows.div_ceil(ROWS as u32 * WARPS / self.warps())
    }

    /// Returns the number of warps of a team.
    pub(crate) fn warps(self) -> u32 {
        match self {
            Team::Warp => 1,
            Team::Block => WARPS,
        }
    }

    /// Returns the suffix of a kernel's name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Team::Warp => "",
            Team::Block => "_block",
        }
    }

    /// Returns the sum of `v` over the team, in every thread. The whole team must call it.
    fn sum<'k>(self, k: Builder<'k>, v: F32<'k>) -> F32<'k> {
        match self {
            Team::Warp => warp_sum(v),
            Team::Block => block_sum(k, WARPS, v),
        }
    }
}

args! {
    /// Arguments of [`Gemv`].
    pub struct GemvArgs {
        /// `[rows, row_bytes]`: the matrix, at an address that is a multiple of 16
        w: In<u8>,
        /// `[n]`: the vector
        x: In<f32>,
        /// `[rows]`: the result
        y: Out<f32>,
        /// The number of rows of the matrix.
        rows: u32,
        /// The row length in weights, a multiple of the format's block and of 4.
        n: u32,
    }
}

args! {
    /// Arguments of [`GemvBias`].
    pub struct GemvBiasArgs {
        /// `[rows, row_bytes]`: the matrix, at an address that is a multiple of 16
        w: In<u8>,
        /// `[n]`: the vector
        x: In<f32>,
        /// `[rows]`: the bias
        bias: In<f32>,
        /// `[rows]`: the result
        y: Out<f32>,
        /// The number of rows of the matrix.
        rows: u32,
        /// The row length in weights, a multiple of the format's block and of 4.
        n: u32,
    }
}

args! {
    /// Arguments of [`GemvAdd`].
    pub struct GemvAddArgs {
        /// `[rows, row_bytes]`: the matrix, at an address that is a multiple of 16
        w: In<u8>,
        /// `[n]`: the vector
        x: In<f32>,
        /// `[rows]`: the vector that the result is added to
        y: InOut<f32>,
        /// The number of rows of the matrix.
        rows: u32,
        /// The row length in weights, a multiple of the format's block and of 4.
        n: u32,
    }
}

/// Kernel that computes `y = W x`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gemv {
    /// The format of `W`.
    pub format: Format,
    /// The threads that compute two rows.
    pub team: Team,
}

/// Kernel that computes `y = W x + bias`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GemvBias {
    /// The format of `W`.
    pub format: Format,
    /// The threads that compute two rows.
    pub team: Team,
}

/// Kernel that computes `y += W x`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GemvAdd {
    /// The format of `W`.
    pub format: Format,
    /// The threads that compute two rows.
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
        Some(self.format.of().loads().blocks)
    }

    fn grid(&self, a: &GemvArgs<Shape>) -> Result<Grid, ShapeError> {
        contract(self, self.format, self.team, [a.w, a.x, a.y], a.rows, a.n)
    }

    fn program<'k>(&self, k: Builder<'k>, a: GemvArgs<Dev<'k>>) {
        let w = Matrix {
            format: self.format,
            bytes: a.w,
            rows: a.rows,
            n: a.n,
        };
        gemv(k, self.team, w, a.x, |r, sum| a.y.at(r).st(sum));
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
        Some(self.format.of().loads().blocks)
    }

    fn grid(&self, a: &GemvBiasArgs<Shape>) -> Result<Grid, ShapeError> {
        let &GemvBiasArgs { rows, .. } = a;
        check_lengths! { self, a:
            bias == rows,
        }
        contract(self, self.format, self.team, [a.w, a.x, a.y], rows, a.n)
    }

    fn program<'k>(&self, k: Builder<'k>, a: GemvBiasArgs<Dev<'k>>) {
        let w = Matrix {
            format: self.format,
            bytes: a.w,
            rows: a.rows,
            n: a.n,
        };
        gemv(k, self.team, w, a.x, |r, sum| {
            a.y.at(r).st(sum + a.bias.at(r).ld())
        });
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
        Some(self.format.of().loads().blocks)
    }

    fn grid(&self, a: &GemvAddArgs<Shape>) -> Result<Grid, ShapeError> {
        contract(self, self.format, self.team, [a.w, a.x, a.y], a.rows, a.n)
    }

    fn program<'k>(&self, k: Builder<'k>, a: GemvAddArgs<Dev<'k>>) {
        let w = Matrix {
            format: self.format,
            bytes: a.w,
            rows: a.rows,
            n: a.n,
        };
        gemv(k, self.team, w, a.x, |r, sum| {
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

/// Checks the lengths that all three kernels share. Returns the grid.
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
    Ok(Grid::line(team.blocks(rows)))
}

/// A matrix in device memory.
pub(crate) struct Matrix<'k> {
    pub(crate) format: Format,
    pub(crate) bytes: Bytes<'k>,
    pub(crate) rows: U32<'k>,
    pub(crate) n: U32<'k>,
}

/// Computes two rows per team, and calls `done` with the sum of each row in one thread.
pub(crate) fn gemv<'k>(
    k: Builder<'k>,
    team: Team,
    w: Matrix<'k>,
    x: Ptr<'k, f32, ReadOnly>,
    done: impl Fn(U32<'k>, F32<'k>),
) {
    let (lane, thread, index) = match team {
        Team::Warp => (k.lane(), k.lane(), k.ctaid() * WARPS + k.warp()),
        Team::Block => (k.lane(), k.tid(), k.ctaid()),
    };
    let first = index * ROWS as u32;
    k.when(first.lt(w.rows), || {
        let rows = [first, first + 1];
        let sums = GemvLane::new(k, lane, team, &w, rows, x).sums(k, thread);
        for (row, sum) in rows.into_iter().zip(sums) {
            k.section("simple/gemv/row_sum", "sum of a row over the team");
            let sum = team.sum(k, sum.get());
            k.when(thread.eq(0) & row.lt(w.rows), || done(row, sum));
        }
    });
}

/// The state of a lane.
struct GemvLane<'k> {
    k: Builder<'k>,
    format: Format,
    split: LaneSplit,
    fragment: Box<dyn Fragment<'k> + 'k>,
    depth: u32,
    /// The number of blocks that the team's lanes process at once.
    step: u32,
    /// The number of blocks of a row.
    blocks: U32<'k>,
    rows: [Bytes<'k>; ROWS],
    /// The activations of the lane's fragment in the first block.
    x: Ptr<'k, f32, ReadOnly>,
}

/// One loaded fragment: its activations, and its words of each row.
struct LoadedFragment<'k> {
    x: Vec<F32<'k>>,
    rows: [Vec<U32<'k>>; ROWS],
}

impl<'k> GemvLane<'k> {
    /// Creates the state of a lane. A row past the end is replaced by the last row, so that no
    /// thread reads out of bounds.
    fn new(
        k: Builder<'k>,
        lane: U32<'k>,
        team: Team,
        w: &Matrix<'k>,
        rows: [U32<'k>; ROWS],
        x: Ptr<'k, f32, ReadOnly>,
    ) -> Self {
        let split = w.format.split();
        let fragment = w.format.of().fragment(k, lane);
        let blocks = split.blocks(w.n);
        let last = w.rows - 1;
        let row_bytes = blocks * split.bytes;
        let rows = rows.map(|row| w.bytes.row(row.min(last), row_bytes));
        let x = x.at(fragment.first());
        let step = split.blocks_of_warp() * team.warps();
        let depth = w.format.of().loads().depth;
        GemvLane {
            k,
            format: w.format,
            split,
            fragment,
            depth,
            step,
            blocks,
            rows,
            x,
        }
    }

    /// Begins a section that exists once for each format.
    fn section(&self, id: &str, what: &str) {
        self.k.section(
            self.format.section(id),
            format!("{}: {what}", self.format.name()),
        );
    }

    /// Returns the contribution of one thread of the team to the sum of each row.
    fn sums(&self, k: Builder<'k>, thread: U32<'k>) -> [Var<'k, f32>; ROWS] {
        let mut sums = from_fn(|_| k.var(0.0));
        let first = self.split.block(thread);
        let step = self.step;
        let stride = step * self.depth;
        let whole = self.blocks & !(stride - 1);

        k.section(
            "simple/gemv/deep_loop",
            "several fragments of each row at once",
        );
        k.for_each(first, whole, stride, |block| {
            self.round(&mut sums, block, self.depth)
        });

        k.section("simple/gemv/rest", "the remaining fragments, one at a time");
        k.for_each(first + whole, self.blocks, step, |block| {
            self.round(&mut sums, block, 1)
        });
        sums
    }

    /// Adds `fragments` fragments of each row, starting in block `block`. All loads come before all
    /// multiplications, so that more bytes are in flight.
    fn round(&self, sums: &mut [Var<'k, f32>; ROWS], block: U32<'k>, fragments: u32) {
        for loaded in self.load(block, fragments) {
            let rows = loaded.rows.map(|words| {
                self.section("fragment_unpack", "unpack a fragment");
                self.fragment.unpack(&words)
            });
            self.section("fragment_multiply", "multiply a fragment of each row");
            add(sums, &rows, &loaded.x);
        }
    }

    /// Loads fragments of each row and their activations.
    fn load(&self, block: U32<'k>, fragments: u32) -> Vec<LoadedFragment<'k>> {
        let LaneSplit {
            len,
            bytes,
            float4s,
            ..
        } = self.split;
        let x = self.x.row(block, 4 * len);
        let rows = self
            .rows
            .map(|row| self.fragment.addresses(row.row(block, bytes)));
        let loaded = |blocks| LoadedFragment {
            x: float4s
                .iter()
                .flat_map(|four| x.at(blocks * len + four).ld4())
                .collect(),
            rows: rows.each_ref().map(|addresses| {
                self.section("fragment_load", "load a fragment");
                self.fragment.load(addresses, blocks * bytes)
            }),
        };
        let activations = |i| {
            self.k
                .section("simple/gemv/activations", "activations of a fragment");
            loaded(i * self.step)
        };
        (0..fragments).map(activations).collect()
    }
}

/// Adds `scale * (q . x) + offset * (sum of x)` for each group of each row. The rows share the sum
/// of `x`.
fn add<'k>(sums: &mut [Var<'k, f32>; ROWS], rows: &[Vec<Group<'k>>; ROWS], mut x: &[F32<'k>]) {
    for g in 0..rows[0].len() {
        let (here, rest) = x.split_at(rows[0][g].q.len());
        let total = rows[0][g]
            .offset
            .map(|_| here[1..].iter().fold(here[0], |sum, &x| sum + x));
        for (sum, row) in sums.iter_mut().zip(rows) {
            let Group { q, scale, offset } = &row[g];
            match scale {
                Some(scale) => sum.fma(*scale, dot(q, here)),
                None => {
                    for (&q, &x) in q.iter().zip(here) {
                        sum.fma(q, x);
                    }
                }
            }
            if let (Some(offset), Some(total)) = (*offset, total) {
                sum.fma(offset, total);
            }
        }

        x = rest;
    }
}

/// Returns the dot product of two slices, as a chain of multiply-adds.
fn dot<'k>(a: &[F32<'k>], b: &[F32<'k>]) -> F32<'k> {
    let terms = a[1..].iter().zip(&b[1..]);
    terms.fold(a[0] * b[0], |sum, (&a, &b)| a.fma(b, sum))
}

/// Returns the sums of the rows in double precision, over the weights as the format defines them.
pub(crate) fn exact<'a>(
    format: Format,
    w: &'a [u8],
    x: &'a [f32],
) -> impl Iterator<Item = f64> + 'a {
    w.chunks_exact(format.row_bytes(x.len())).map(move |row| {
        format
            .dequantize(row)
            .iter()
            .zip(x)
            .map(|(&w, &x)| f64::from(w) * f64::from(x))
            .sum()
    })
}

impl Variant for Gemv {
    fn cases(&self, seed: u64) -> Vec<Case> {
        cases(self.format, self.team, seed, |_, rows| {
            vec![vec![0.0; rows]]
        })
    }
}

impl Variant for GemvBias {
    fn cases(&self, seed: u64) -> Vec<Case> {
        cases(self.format, self.team, seed, |random, rows| {
            vec![random.units(rows), vec![0.0; rows]]
        })
    }
}

impl Variant for GemvAdd {
    fn cases(&self, seed: u64) -> Vec<Case> {
        cases(self.format, self.team, seed, |random, rows| {
            vec![random.units(rows)]
        })
    }
}

/// Returns cases with the buffers of `rest` between `x` and the sizes.
fn cases(
    format: Format,
    team: Team,
    seed: u64,
    rest: impl Fn(&mut Random, usize) -> Vec<Vec<f32>>,
) -> Vec<Case> {
    let split = format.split();
    let block = split.len as usize;
    let round =
        block * (split.blocks_of_warp() * team.warps() * format.of().loads().depth) as usize;

    // One block. Fewer blocks than lanes. Full iterations and a remainder. More than one block of
    // threads. Long rows.
    let sizes = [
        (1, block),
        (2, 3 * block),
        (5, 2 * round + block),
        (9, round),
        (19, block),
        (3, 4096 + round),
    ];
    let calm = sizes.into_iter().map(|(rows, n)| (rows, n, 1.0));
    let cases = calm.chain([(3, round, 1e4)]);
    cases
        .map(|(rows, n, outlier)| case(format, &mut Random(seed), [rows, n], outlier, &rest))
        .collect()
}

fn case(
    format: Format,
    random: &mut Random,
    [rows, n]: [usize; 2],
    outlier: f32,
    rest: &impl Fn(&mut Random, usize) -> Vec<Vec<f32>>,
) -> Case {
    let w = format.random(rows * n / format.block_len() as usize, 1.0, random);

    // With the signs of the first row, the sum of that row is about as large as the sum of the
    // magnitudes, to which rounding errors are relative.
    let mut x: Vec<f32> = format.dequantize(&w)[..n]
        .iter()
        .map(|w| 0.5 * random.unit() + w.signum())
        .collect();
    for x in x.iter_mut().step_by(n.div_ceil(3)) {
        *x *= outlier;
    }

    let mut args = vec![CpuArg::U8(w), CpuArg::F32(x)];
    args.extend(rest(random, rows).into_iter().map(CpuArg::F32));
    args.extend([rows, n].map(|v| CpuArg::scalar(v as u32)));
    Case {
        label: format!("rows={rows} n={n} outlier={outlier}"),
        args,
        bound: 1e-6,
    }
}
