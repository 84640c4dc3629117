//! The narrow products of adapters: what an input gives in the space of the rank, and gradients of `A` and `B`.
//!
//! ```text
//! u  = s x A^T        du = s dy B          (LoraDown: B is given as B^T)
//! dA += du^T x        dB^T += u^T dy       (LoraGradients)
//! ```
//!
//! Both read a long matrix once, and are bound by that: they multiply with `mma.sync`, straight from registers. What is
//! summed is cut among the warps of a block, whose sums are then added in the order of the warps.

use super::{narrow, wide};
use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use crate::train::products::{add_scaled, nt, tn};
use ptx_gen::*;
use std::array::from_fn;

args! {
    /// Arguments of [`LoraDown`]. A second and a third product are empty, and their lengths 0, where there are none.
    pub struct LoraDownArgs {
        /// `[rows, depth0]`
        x0: In<bf16>,
        /// `[rows, depth1]`
        x1: In<bf16>,
        /// `[rows, depth2]`
        x2: In<bf16>,
        /// `[rank, depth0]`
        a0: In<bf16>,
        /// `[rank, depth1]`
        a1: In<bf16>,
        /// `[rank, depth2]`
        a2: In<bf16>,
        /// `[1]`: the scale `s`
        factor: In<f32>,
        /// `[rows, rank]`
        u0: Out<bf16>,
        /// `[rows, rank]`
        u1: Out<bf16>,
        /// `[rows, rank]`
        u2: Out<bf16>,
        /// Tokens.
        rows: u32,
        /// Length of a row of `x0`, a multiple of 8 above 0.
        depth0: u32,
        /// Of a row of `x1`, a multiple of 8.
        depth1: u32,
        /// Of a row of `x2`, a multiple of 8; 0 if `depth1` is.
        depth2: u32,
    }
}

/// `u = s x A^T` of up to three adapters, 16 tokens of one of them a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraDown {
    /// Rank of the adapters: a multiple of 16 up to 256.
    pub rank: u32,
}

args! {
    /// Arguments of [`LoraGradients`]. Products after the first are empty, and their lengths 0, where there are none.
    pub struct LoraGradientsArgs {
        /// `[rows, rank]`: `du`, or `u`
        u0: In<bf16>,
        /// `[rows, rank]`
        u1: In<bf16>,
        /// `[rows, rank]`
        u2: In<bf16>,
        /// `[rows, rank]`
        u3: In<bf16>,
        /// `[rows, columns0]`: `x`, or `dy`
        x0: In<bf16>,
        /// `[rows, columns1]`
        x1: In<bf16>,
        /// `[rows, columns2]`
        x2: In<bf16>,
        /// `[rows, columns3]`
        x3: In<bf16>,
        /// `[rank, columns0]`: the product is added to it.
        sum0: InOut<f32>,
        /// `[rank, columns1]`
        sum1: InOut<f32>,
        /// `[rank, columns2]`
        sum2: InOut<f32>,
        /// `[rank, columns3]`
        sum3: InOut<f32>,
        /// Tokens.
        rows: u32,
        /// Length of a row of `x0`, a multiple of 8 above 0.
        columns0: u32,
        /// Of a row of `x1`, a multiple of 8.
        columns1: u32,
        /// Of a row of `x2`, a multiple of 8; 0 if `columns1` is.
        columns2: u32,
        /// Of a row of `x3`, a multiple of 8; 0 if `columns2` is.
        columns3: u32,
    }
}

/// `sum += u^T x` of up to four adapters or gradients, 32 columns of one of them a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraGradients {
    /// Rank of the adapters: a multiple of 16 up to 128.
    pub rank: u32,
}

/// The product of a block of [`LoraDown`].
struct Down<'k> {
    x: Ptr<'k, bf16, Read>,
    a: Ptr<'k, bf16, Read>,
    u: Ptr<'k, bf16, Write>,
    rows: U32<'k>,
    depth: U32<'k>,
}

/// The product of a block of [`LoraGradients`].
struct Gradient<'k> {
    u: Ptr<'k, bf16, Read>,
    x: Ptr<'k, bf16, Read>,
    sum: Ptr<'k, f32, ReadWrite>,
    rows: U32<'k>,
    columns: U32<'k>,
}

/// Rows and columns of the sums of a matrix instruction, and what it sums.
const TOKENS: u32 = 16;
const EIGHT: u32 = 8;
/// Loads of a lane at a time, and elements of `depth` that the lanes of a row have of one.
const AT_ONCE: u32 = 4;
const CHUNK: u32 = 32;
/// The largest rank of which a lane has registers for several loads ahead, so that none waits for another.
const SMALL: u32 = 32;
/// Columns of a block that makes gradients, and its warps: with more, fewer blocks are on a multiprocessor at a time.
const COLUMNS: u32 = 32;
const GRADIENT_WARPS: u32 = 8;

impl KernelDef for LoraDown {
    type Args<S: Side> = LoraDownArgs<S>;

    fn name(&self) -> String {
        format!("train_lora_down_{}", self.rank)
    }

    fn block(&self) -> u32 {
        32 * self.warps()
    }

    fn grid(&self, a: &LoraDownArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("the kernel's rank", self.rank, 16)?;
        self.range("the kernel's rank", self.rank, 16, 256)?;
        self.range("rows", a.rows, 1, 1 << 24)?;
        self.exactly("factor", a.factor, 1)?;
        self.range("depth0", a.depth0, 8, 1 << 24)?;
        let depths = [a.depth0, a.depth1, a.depth2];
        let items = leading(self, "depth", &depths)?;
        let operands = [(a.x0, a.a0, a.u0), (a.x1, a.a1, a.u1), (a.x2, a.a2, a.u2)];
        for (i, ((x, a_of, u), depth)) in operands.into_iter().zip(depths).enumerate() {
            let rows = if depth == 0 { 0 } else { a.rows };
            self.length(&format!("x{i}"), x, "rows * depth", &[a.rows, depth])?;
            self.length(&format!("a{i}"), a_of, "rank * depth", &[self.rank, depth])?;
            self.length(&format!("u{i}"), u, "rows * rank", &[rows, self.rank])?;
        }
        let shared = self.warps() * TOKENS * self.rank * 4;
        Ok(Grid { shared, ..Grid::plane(a.rows.div_ceil(TOKENS), items) })
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraDownArgs<Dev<'k>>) {
        let factor = a.factor;
        let a = Down {
            x: chosen(k, &[a.x0, a.x1, a.x2]),
            a: chosen(k, &[a.a0, a.a1, a.a2]),
            u: chosen(k, &[a.u0, a.u1, a.u2]),
            rows: a.rows,
            depth: chosen_length(k, &[a.depth0, a.depth1, a.depth2]),
        };
        let (lane, warp, row) = (k.lane(), k.warp(), k.ctaid() * TOKENS);
        let mut sums: Vec<Sums<f32>> = (0..self.rank / EIGHT).map(|_| Sums::zero(k)).collect();
        let span = AT_ONCE * CHUNK;
        k.note("a lane has the same 8 elements of its row of both matrices: two products, in which they are out of order");
        k.for_each(warp * span, a.depth, self.warps() * span, |first| {
            let chunks: Vec<U32> = (0..AT_ONCE).map(|i| first + (i * CHUNK) + (lane & 3) * EIGHT).collect();
            let x: Vec<_> = chunks.iter().map(|&at| self.load_x(k, &a, row, at)).collect();
            let all = |at: U32<'k>| (0..self.rank / EIGHT).map(|n| self.load_a(k, &a, n, at)).collect();
            k.note("rows of A");
            let ahead: Vec<Vec<_>> =
                if self.rank <= SMALL { chunks.iter().map(|&at| all(at)).collect() } else { vec![] };
            k.note("from the last load on: what loads its inputs later keeps the others ahead of it");
            for (i, [low, high]) in x.into_iter().enumerate().rev() {
                for (n, sums) in (0u32..).zip(&mut sums) {
                    let right =
                        ahead.get(i).map_or_else(|| self.load_a(k, &a, n, chunks[i]), |all| all[n as usize]);
                    for i in [0, 2] {
                        let left = A([low[i], high[i], low[i + 1], high[i + 1]]);
                        sums.add_bf16(left, B([right[i], right[i + 1]]));
                    }
                }
            }
        });
        self.store(k, &a, factor, &sums);
    }

    fn reference(&self, a: LoraDownArgs<Cpu<'_>>) {
        let items =
            [(a.x0, a.a0, a.u0, a.depth0), (a.x1, a.a1, a.u1, a.depth1), (a.x2, a.a2, a.u2, a.depth2)];
        for (x, down, to, depth) in items.into_iter().filter(|(.., depth)| *depth > 0) {
            let mut u = vec![0.0; to.len()];
            nt(&wide(x), &wide(down), depth as usize, &mut u);
            u.iter_mut().for_each(|u| *u *= f64::from(a.factor[0]));
            narrow(&u, to);
        }
    }
}

impl LoraDown {
    /// Warps of a block: the more, the more loads are under way.
    fn warps(&self) -> u32 {
        if self.rank <= SMALL { 16 } else { 8 }
    }

    /// 8 elements, from `at` on, of two of 16 tokens. These loads and those of [`load_a`](Self::load_a) are relaxed, of
    /// which ptxas keeps the order: else it moves each to where its result is used, and few are under way at a time.
    fn load_x<'k>(&self, k: Builder<'k>, a: &Down<'k>, row: U32<'k>, at: U32<'k>) -> [[U32<'k>; 4]; 2] {
        [0, 8].map(|further| {
            let token = row + (k.lane() >> 2) + further;
            load(k, a.x.at(token * a.depth + at), token.lt(a.rows) & at.lt(a.depth))
        })
    }

    /// The same of a row of the `n`-th 8 of `a`.
    fn load_a<'k>(&self, k: Builder<'k>, a: &Down<'k>, n: u32, at: U32<'k>) -> [U32<'k>; 4] {
        load(k, a.a.at(((k.lane() >> 2) + n * EIGHT) * a.depth + at), at.lt(a.depth))
    }

    /// Adds the sums of all warps, in their order, and stores them.
    fn store<'k>(&self, k: Builder<'k>, a: &Down<'k>, factor: Ptr<'k, f32, Read>, sums: &[Sums<'k, f32>]) {
        let (lane, warp, row) = (k.lane(), k.warp(), k.ctaid() * TOKENS);
        let (g, t) = (lane >> 2, lane & 3);
        k.note("the sums of all warps, in their order");
        let parts = k.dynamic_shared::<f32>("parts");
        let own = parts.at((warp * TOKENS + g) * self.rank + t * 2);
        for (n, sums) in (0u32..).zip(sums) {
            for half in 0..2u32 {
                let pair = [0, 1].map(|i| sums.0[2 * half as usize + i].get());
                own.at(half * 8 * self.rank + n * EIGHT).st2(pair);
            }
        }
        k.barrier();
        let factor = factor.ld();
        k.for_each(k.tid() * 2, TOKENS * self.rank, 64 * self.warps(), |i| {
            let of_warp = |warp: u32| parts.at(i + warp * (TOKENS * self.rank)).ld2();
            let sums = (1..self.warps()).map(of_warp).fold(of_warp(0), |a, b| from_fn(|j| a[j] + b[j]));
            let token = row + i / self.rank;
            k.when(token.lt(a.rows), || {
                let word = (sums[0] * factor).pack_bf16(sums[1] * factor);
                a.u.at(row * self.rank + i).cast::<u32>().st(word);
            });
        });
    }
}

impl KernelDef for LoraGradients {
    type Args<S: Side> = LoraGradientsArgs<S>;

    fn name(&self) -> String {
        format!("train_lora_gradients_{}", self.rank)
    }

    fn block(&self) -> u32 {
        32 * GRADIENT_WARPS
    }

    fn grid(&self, a: &LoraGradientsArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("the kernel's rank", self.rank, 16)?;
        self.range("the kernel's rank", self.rank, 16, 128)?;
        self.range("rows", a.rows, 1, 1 << 24)?;
        self.range("columns0", a.columns0, 8, 1 << 24)?;
        let columns = [a.columns0, a.columns1, a.columns2, a.columns3];
        let items = leading(self, "columns", &columns)?;
        let operands =
            [(a.u0, a.x0, a.sum0), (a.u1, a.x1, a.sum1), (a.u2, a.x2, a.sum2), (a.u3, a.x3, a.sum3)];
        for (i, ((u, x, sum), columns)) in operands.into_iter().zip(columns).enumerate() {
            let rows = if columns == 0 { 0 } else { a.rows };
            self.length(&format!("u{i}"), u, "rows * rank", &[rows, self.rank])?;
            self.length(&format!("x{i}"), x, "rows * columns", &[a.rows, columns])?;
            self.length(&format!("sum{i}"), sum, "rank * columns", &[self.rank, columns])?;
        }
        let longest = columns.into_iter().fold(0, u32::max);
        Ok(Grid::plane(longest.div_ceil(COLUMNS), items))
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraGradientsArgs<Dev<'k>>) {
        let gradient = Gradient {
            u: chosen(k, &[a.u0, a.u1, a.u2, a.u3]),
            x: chosen(k, &[a.x0, a.x1, a.x2, a.x3]),
            sum: chosen(k, &[a.sum0, a.sum1, a.sum2, a.sum3]),
            rows: a.rows,
            columns: chosen_length(k, &[a.columns0, a.columns1, a.columns2, a.columns3]),
        };
        let column = k.ctaid() * COLUMNS;
        k.when(column.lt(gradient.columns), || self.block_program(k, &gradient, column));
    }

    fn reference(&self, a: LoraGradientsArgs<Cpu<'_>>) {
        let items = [
            (a.u0, a.x0, a.sum0, a.columns0),
            (a.u1, a.x1, a.sum1, a.columns1),
            (a.u2, a.x2, a.sum2, a.columns2),
            (a.u3, a.x3, a.sum3, a.columns3),
        ];
        for (u, x, to, columns) in items.into_iter().filter(|(.., columns)| *columns > 0) {
            let mut product = vec![0.0; to.len()];
            tn(&wide(u), &wide(x), columns as usize, &mut product);
            let mut sum: Vec<f64> = to.iter().copied().map(f64::from).collect();
            add_scaled(1.0, &product, &mut sum);
            to.iter_mut().zip(sum).for_each(|(to, sum)| *to = sum as f32);
        }
    }
}

impl LoraGradients {
    /// The sums of 32 columns.
    fn block_program<'k>(&self, k: Builder<'k>, a: &Gradient<'k>, column: U32<'k>) {
        let (lane, warp) = (k.lane(), k.warp());
        let tiles = self.rank / TOKENS;
        let mut sums: Vec<Vec<Sums<f32>>> =
            (0..tiles).map(|_| (0..COLUMNS / EIGHT).map(|_| Sums::zero(k)).collect()).collect();
        let own = column + (lane & 3) * EIGHT;
        k.note("16 tokens at a time: 8 by 8 matrices whose rows are tokens, transposed");
        let span = self.at_once() * TOKENS;
        k.for_each(warp * span, a.rows, GRADIENT_WARPS * span, |first| {
            let rows: Vec<U32> = (0..self.at_once()).map(|i| first + i * TOKENS).collect();
            let x: Vec<_> = rows.iter().map(|&row| self.load_x(k, a, row, own)).collect();
            k.note("the same tokens of u");
            let u = |row: U32<'k>| (0..tiles).map(|tile| self.load_u(k, a, row, tile)).collect::<Vec<_>>();
            let ahead: Vec<_> =
                if self.rank <= SMALL { rows.iter().map(|&row| u(row)).collect() } else { vec![] };
            k.note("multiply, from the last load on");
            for (i, (&row, x)) in rows.iter().zip(x).enumerate().rev() {
                let x = x.map(|half| half.map(|word| word.movmatrix()));
                for (tile, sums) in (0u32..).zip(&mut sums) {
                    let u =
                        ahead.get(i).map_or_else(|| self.load_u(k, a, row, tile), |all| all[tile as usize]);
                    let left = A(u.map(|word| word.movmatrix()));
                    for (i, sums) in sums.iter_mut().enumerate() {
                        sums.add_bf16(left, B([x[0][i], x[1][i]]));
                    }
                }
            }
        });
        let parts = k.shared::<f32>("parts", GRADIENT_WARPS * TOKENS * COLUMNS);
        for (tile, sums) in (0u32..).zip(&sums) {
            k.note("the sums of all warps for 16 of the rank, in their order");
            self.put(k, parts, sums);
            k.barrier();
            k.for_each(k.tid(), TOKENS * COLUMNS, 32 * GRADIENT_WARPS, |i| {
                let of_warp = |warp: u32| parts.at(i + warp * (TOKENS * COLUMNS)).ld();
                let sum = (1..GRADIENT_WARPS).map(of_warp).fold(of_warp(0), |a, b| a + b);
                let column = column + (i & (COLUMNS - 1));
                k.when(column.lt(a.columns), || {
                    let to = a.sum.at((i / COLUMNS + tile * TOKENS) * a.columns + column);
                    to.st(to.ld() + sum);
                });
            });
            k.barrier();
        }
    }

    /// Times 16 tokens that a warp takes at a time.
    fn at_once(&self) -> u32 {
        if self.rank <= SMALL { 4 } else { 1 }
    }

    /// 8 columns, from `own` on, of two of 16 tokens.
    fn load_x<'k>(&self, k: Builder<'k>, a: &Gradient<'k>, row: U32<'k>, own: U32<'k>) -> [[U32<'k>; 4]; 2] {
        [0, 8].map(|half| {
            let token = row + (k.lane() >> 2) + half;
            load(k, a.x.at(token * a.columns + own), token.lt(a.rows) & own.lt(a.columns))
        })
    }

    /// A lane's part of 16 tokens and 16 of the rank: 8 by 8 matrices.
    fn load_u<'k>(&self, k: Builder<'k>, a: &Gradient<'k>, row: U32<'k>, tile: u32) -> [U32<'k>; 4] {
        [[0, 0], [0, 8], [8, 0], [8, 8]].map(|[down, further]| {
            let token = row + (k.lane() >> 2) + down;
            let mut word = k.var(0u32);
            let column = (k.lane() & 3) * 2 + (tile * TOKENS + further);
            a.u.at(token * self.rank + column).fresh().cast::<u32>().ld_if(token.lt(a.rows), &mut word);
            word.get()
        })
    }

    /// Puts a warp's sums at the places of their columns. Column `c` of matrix `i` of 8 columns is two of the four that
    /// lane `c / 2` of a row has loaded at once: `8 (c / 2) + 2 i + c mod 2`.
    fn put<'k>(&self, k: Builder<'k>, parts: Ptr<'k, f32, Shared>, sums: &[Sums<'k, f32>]) {
        let (lane, warp) = (k.lane(), k.warp());
        let (g, t) = (lane >> 2, lane & 3);
        let own = parts.at((warp * TOKENS + g) * COLUMNS + t * EIGHT);
        for (i, sums) in (0u32..).zip(sums) {
            for half in 0..2u32 {
                let pair = [0, 1].map(|j| sums.0[2 * half as usize + j].get());
                own.at(half * 8 * COLUMNS + 2 * i).st2(pair);
            }
        }
    }
}

/// What the products of a launch have, of that of the block.
fn chosen<'k, T: Elem, A: Space>(k: Builder<'k>, of: &[Ptr<'k, T, A>]) -> Ptr<'k, T, A> {
    let rest = (1u32..).zip(&of[1..]);
    rest.fold(of[0], |chosen, (i, &other)| k.ctaid_y().eq(i).select_ptr(other, chosen))
}

/// Likewise of lengths.
fn chosen_length<'k>(k: Builder<'k>, of: &[U32<'k>]) -> U32<'k> {
    let rest = (1u32..).zip(&of[1..]);
    rest.fold(of[0], |chosen, (i, &other)| k.ctaid_y().eq(i).select(other, chosen))
}

/// How many lengths there are before those that are 0; all are multiples of 8.
fn leading(kernel: &impl Contract, name: &str, lengths: &[u32]) -> Result<u32, ShapeError> {
    let items = lengths.iter().take_while(|&&length| length > 0).count();
    for (i, &length) in lengths.iter().enumerate() {
        kernel.require(length.is_multiple_of(8) && (i < items || length == 0), || {
            format!("{name}{i} is {length}, must be a multiple of 8, and 0 behind one that is")
        })?;
    }
    Ok(items as u32)
}

/// 8 elements, or zeros; a load of which ptxas keeps the order among others.
fn load<'k>(k: Builder<'k>, from: Ptr<'k, bf16, Read>, cond: Pred<'k>) -> [U32<'k>; 4] {
    let mut words = [0; 4].map(|_| k.var(0u32));
    from.fresh().cast::<u32>().ld4_if(cond, &mut words);
    words.map(|word| word.get())
}

fn matrix(random: &mut Random, rows: u32, columns: u32) -> CpuArg {
    CpuArg::Bf16((0..rows * columns).map(|_| bf16::from_f32(random.unit())).collect())
}

impl Variant for LoraDown {
    /// One token; more than a block of them; lengths that leave lanes, warps and loads without elements; several products.
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(rows, depths): (u32, [u32; 3])| {
            let mut random = Random(seed);
            let rows_of = |depth: u32| if depth == 0 { 0 } else { rows };
            let x = depths.map(|depth| matrix(&mut random, rows, depth));
            let a = depths.map(|depth| matrix(&mut random, self.rank, depth));
            let u = depths.map(|depth| matrix(&mut random, rows_of(depth), self.rank));
            let mut args: Vec<CpuArg> = x.into_iter().chain(a).collect();
            args.push(CpuArg::F32(vec![0.75]));
            args.extend(u.into_iter().chain([CpuArg::scalar(rows)]).chain(depths.map(CpuArg::scalar)));
            Case { label: format!("rows={rows} depths={depths:?}"), args, bound: 2e-6 }
        };
        [(1, [8, 0, 0]), (17, [200, 8, 0]), (40, [1160, 136, 1032])].map(case).into()
    }
}

impl Variant for LoraGradients {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(rows, columns): (u32, [u32; 4])| {
            let mut random = Random(seed);
            let rows_of = |columns: u32| if columns == 0 { 0 } else { rows };
            let u = columns.map(|columns| matrix(&mut random, rows_of(columns), self.rank));
            let x = columns.map(|columns| matrix(&mut random, rows, columns));
            let sums = columns.map(|columns| CpuArg::F32(random.units((self.rank * columns) as usize)));
            let mut args: Vec<CpuArg> = u.into_iter().chain(x).chain(sums).collect();
            args.extend([rows].into_iter().chain(columns).map(CpuArg::scalar));
            Case { label: format!("rows={rows} columns={columns:?}"), args, bound: 2e-6 }
        };
        [(1, [8, 0, 0, 0]), (37, [40, 136, 0, 0]), (300, [72, 8, 40, 104])].map(case).into()
    }
}
