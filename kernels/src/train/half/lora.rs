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
    /// Arguments of [`LoraDown`].
    pub struct LoraDownArgs {
        /// `[rows, depth]`
        x: In<bf16>,
        /// `[rank, depth]`
        a: In<bf16>,
        /// `[1]`: the scale `s`
        factor: In<f32>,
        /// `[rows, rank]`
        u: Out<bf16>,
        /// Tokens.
        rows: u32,
        /// Length of a row of `x`, a multiple of 8.
        depth: u32,
    }
}

/// `u = s x A^T`, 16 tokens a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraDown {
    /// Rank of the adapter: a multiple of 16 up to 256.
    pub rank: u32,
}

args! {
    /// Arguments of [`LoraGradients`].
    pub struct LoraGradientsArgs {
        /// `[rows, rank]`: `du`, or `u`
        u: In<bf16>,
        /// `[rows, columns]`: `x`, or `dy`
        x: In<bf16>,
        /// `[rank, columns]`: the product is added to it.
        sum: InOut<f32>,
        /// Tokens.
        rows: u32,
        /// Length of a row of `x`, a multiple of 8.
        columns: u32,
    }
}

/// `sum += u^T x`, 32 columns a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraGradients {
    /// Rank of the adapter: a multiple of 16 up to 128.
    pub rank: u32,
}

/// Rows and columns of the sums of a matrix instruction, and what it sums.
const TOKENS: u32 = 16;
const EIGHT: u32 = 8;
/// Warps of a block that makes `u`, and elements of `depth` that a warp takes at a time, and in one load of its lanes.
const DOWN_WARPS: u32 = 8;
const AT_ONCE: u32 = 4;
const CHUNK: u32 = 32;
/// Columns of a block that makes gradients.
const COLUMNS: u32 = 32;

impl KernelDef for LoraDown {
    type Args<S: Side> = LoraDownArgs<S>;

    fn name(&self) -> String {
        format!("train_lora_down_{}", self.rank)
    }

    fn block(&self) -> u32 {
        32 * DOWN_WARPS
    }

    fn grid(&self, a: &LoraDownArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("the kernel's rank", self.rank, 16)?;
        self.range("the kernel's rank", self.rank, 16, 256)?;
        self.range("rows", a.rows, 1, 1 << 24)?;
        self.multiple("depth", a.depth, 8)?;
        self.length("x", a.x, "rows * depth", &[a.rows, a.depth])?;
        self.length("a", a.a, "rank * depth", &[self.rank, a.depth])?;
        self.exactly("factor", a.factor, 1)?;
        self.length("u", a.u, "rows * rank", &[a.rows, self.rank])?;
        Ok(Grid { shared: DOWN_WARPS * TOKENS * self.rank * 4, ..Grid::line(a.rows.div_ceil(TOKENS)) })
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraDownArgs<Dev<'k>>) {
        let (lane, warp, row) = (k.lane(), k.warp(), k.ctaid() * TOKENS);
        let (g, t) = (lane >> 2, lane & 3);
        let mut sums: Vec<Sums<f32>> = (0..self.rank / EIGHT).map(|_| Sums::zero(k)).collect();
        let span = AT_ONCE * CHUNK;
        k.note("a lane has the same 8 elements of its row of both matrices: two products, in which they are out of order");
        k.for_each(warp * span, a.depth, DOWN_WARPS * span, |first| {
            let chunks: Vec<U32> = (0..AT_ONCE).map(|i| first + (i * CHUNK) + t * EIGHT).collect();
            let zeros = || [0; 4].map(|_| k.var(0u32));
            let load = |from: Ptr<'k, bf16, Read>, cond: Pred<'k>| {
                let mut words = zeros();
                from.cast::<u32>().ld4_if(cond, &mut words);
                words.map(|word| word.get())
            };
            let rows = |&at: &U32<'k>| {
                [0, 8].map(|further| {
                    let token = row + g + further;
                    load(a.x.at(token * a.depth + at), token.lt(a.rows) & at.lt(a.depth))
                })
            };
            let x: Vec<[[U32; 4]; 2]> = chunks.iter().map(rows).collect();
            for (&at, [low, high]) in chunks.iter().zip(x) {
                for (n, sums) in (0u32..).zip(&mut sums) {
                    let right = load(a.a.at((g + n * EIGHT) * a.depth + at), at.lt(a.depth));
                    for i in [0, 2] {
                        let left = A([low[i], high[i], low[i + 1], high[i + 1]]);
                        sums.add_bf16(left, B([right[i], right[i + 1]]));
                    }
                }
            }
        });
        self.store(k, &a, &sums);
    }

    fn reference(&self, a: LoraDownArgs<Cpu<'_>>) {
        let mut u = vec![0.0; a.u.len()];
        nt(&wide(a.x), &wide(a.a), a.depth as usize, &mut u);
        u.iter_mut().for_each(|u| *u *= f64::from(a.factor[0]));
        narrow(&u, a.u);
    }
}

impl LoraDown {
    /// Adds the sums of all warps, in their order, and stores them.
    fn store<'k>(&self, k: Builder<'k>, a: &LoraDownArgs<Dev<'k>>, sums: &[Sums<'k, f32>]) {
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
        let factor = a.factor.ld();
        k.for_each(k.tid() * 2, TOKENS * self.rank, 64 * DOWN_WARPS, |i| {
            let of_warp = |warp: u32| parts.at(i + warp * (TOKENS * self.rank)).ld2();
            let sums = (1..DOWN_WARPS).map(of_warp).fold(of_warp(0), |a, b| from_fn(|j| a[j] + b[j]));
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
        32 * self.warps()
    }

    fn grid(&self, a: &LoraGradientsArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("the kernel's rank", self.rank, 16)?;
        self.range("the kernel's rank", self.rank, 16, 128)?;
        self.range("rows", a.rows, 1, 1 << 24)?;
        self.multiple("columns", a.columns, 8)?;
        self.length("u", a.u, "rows * rank", &[a.rows, self.rank])?;
        self.length("x", a.x, "rows * columns", &[a.rows, a.columns])?;
        self.length("sum", a.sum, "rank * columns", &[self.rank, a.columns])?;
        Ok(Grid::line(a.columns.div_ceil(COLUMNS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraGradientsArgs<Dev<'k>>) {
        let (lane, warp, column) = (k.lane(), k.warp(), k.ctaid() * COLUMNS);
        let (g, t) = (lane >> 2, lane & 3);
        let tiles = self.rank / TOKENS;
        let mut sums: Vec<Vec<Sums<f32>>> =
            (0..tiles).map(|_| (0..COLUMNS / EIGHT).map(|_| Sums::zero(k)).collect()).collect();
        let own = column + t * EIGHT;
        k.note("16 tokens at a time: 8 by 8 matrices whose rows are tokens, transposed");
        k.for_each(warp * TOKENS, a.rows, self.warps() * TOKENS, |row| {
            let x: [[U32; 4]; 2] = from_fn(|half| {
                let token = row + g + 8 * half as u32;
                let mut words = [0; 4].map(|_| k.var(0u32));
                let from = a.x.at(token * a.columns + own).cast::<u32>();
                from.ld4_if(token.lt(a.rows) & own.lt(a.columns), &mut words);
                words.map(|word| word.get().movmatrix())
            });
            for (tile, sums) in (0u32..).zip(&mut sums) {
                let eight = |half: u32, further: u32| {
                    let token = row + g + 8 * half;
                    let mut word = k.var(0u32);
                    let from = a.u.at(token * self.rank + (tile * TOKENS + further) + t * 2).cast::<u32>();
                    from.ld_if(token.lt(a.rows), &mut word);
                    word.get().movmatrix()
                };
                let left = A([eight(0, 0), eight(0, 8), eight(1, 0), eight(1, 8)]);
                for (i, sums) in sums.iter_mut().enumerate() {
                    sums.add_bf16(left, B([x[0][i], x[1][i]]));
                }
            }
        });
        let parts = k.shared::<f32>("parts", self.warps() * TOKENS * COLUMNS);
        for (tile, sums) in (0u32..).zip(&sums) {
            k.note("the sums of all warps for 16 of the rank, in their order");
            self.put(k, parts, sums);
            k.barrier();
            k.for_each(k.tid(), TOKENS * COLUMNS, 32 * self.warps(), |i| {
                let of_warp = |warp: u32| parts.at(i + warp * (TOKENS * COLUMNS)).ld();
                let sum = (1..self.warps()).map(of_warp).fold(of_warp(0), |a, b| a + b);
                let column = column + (i & (COLUMNS - 1));
                k.when(column.lt(a.columns), || {
                    let to = a.sum.at((i / COLUMNS + tile * TOKENS) * a.columns + column);
                    to.st(to.ld() + sum);
                });
            });
            k.barrier();
        }
    }

    fn reference(&self, a: LoraGradientsArgs<Cpu<'_>>) {
        let mut product = vec![0.0; a.sum.len()];
        tn(&wide(a.u), &wide(a.x), a.columns as usize, &mut product);
        let mut sum: Vec<f64> = a.sum.iter().copied().map(f64::from).collect();
        add_scaled(1.0, &product, &mut sum);
        a.sum.iter_mut().zip(sum).for_each(|(to, sum)| *to = sum as f32);
    }
}

impl LoraGradients {
    /// Warps of a block: a thread has a sum for each of the rank, and of twice as many threads half the registers.
    fn warps(&self) -> u32 {
        if self.rank > 64 { 8 } else { 16 }
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

fn matrix(random: &mut Random, rows: u32, columns: u32) -> CpuArg {
    CpuArg::Bf16((0..rows * columns).map(|_| bf16::from_f32(random.unit())).collect())
}

impl Variant for LoraDown {
    /// One token; more than a block of them; lengths that leave lanes, warps and loads without elements.
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |[rows, depth]: [u32; 2]| {
            let mut random = Random(seed);
            let args = vec![
                matrix(&mut random, rows, depth),
                matrix(&mut random, self.rank, depth),
                CpuArg::F32(vec![0.75]),
                matrix(&mut random, rows, self.rank),
                CpuArg::scalar(rows),
                CpuArg::scalar(depth),
            ];
            Case { label: format!("rows={rows} depth={depth}"), args, bound: 2e-6 }
        };
        [[1, 8], [17, 200], [40, 1160]].map(case).into()
    }
}

impl Variant for LoraGradients {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |[rows, columns]: [u32; 2]| {
            let mut random = Random(seed);
            let args = vec![
                matrix(&mut random, rows, self.rank),
                matrix(&mut random, rows, columns),
                CpuArg::F32(random.units((self.rank * columns) as usize)),
                CpuArg::scalar(rows),
                CpuArg::scalar(columns),
            ];
            Case { label: format!("rows={rows} columns={columns}"), args, bound: 2e-6 }
        };
        [[1, 8], [37, 40], [300, 72]].map(case).into()
    }
}
