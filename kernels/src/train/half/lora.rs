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
        self.multiple("depth", a.depth, 8)?;
        self.length("x", a.x, "rows * depth", &[a.rows, a.depth])?;
        self.length("a", a.a, "rank * depth", &[self.rank, a.depth])?;
        self.exactly("factor", a.factor, 1)?;
        self.length("u", a.u, "rows * rank", &[a.rows, self.rank])?;
        Ok(Grid {
            shared: self.warps() * TOKENS * self.rank * 4,
            ..Grid::line(a.rows.div_ceil(TOKENS))
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraDownArgs<Dev<'k>>) {
        let (lane, warp, row) = (k.lane(), k.warp(), k.ctaid() * TOKENS);
        let mut sums: Vec<Sums<f32>> = (0..self.rank / EIGHT).map(|_| Sums::zero(k)).collect();
        let span = AT_ONCE * CHUNK;
        k.section("train/lora/down_layout", "a lane has the same 8 elements of its row of both matrices: two products, in which they are out of order");
        k.for_each(warp * span, a.depth, self.warps() * span, |first| {
            let chunks: Vec<U32> = (0..AT_ONCE)
                .map(|i| first + (i * CHUNK) + (lane & 3) * EIGHT)
                .collect();
            let x: Vec<_> = chunks
                .iter()
                .map(|&at| self.load_x(k, &a, row, at))
                .collect();
            let all = |at: U32<'k>| {
                (0..self.rank / EIGHT)
                    .map(|n| self.load_a(k, &a, n, at))
                    .collect()
            };
            k.section("train/lora/down_rows", "rows of A");
            let ahead: Vec<Vec<_>> = if self.rank <= SMALL {
                chunks.iter().map(|&at| all(at)).collect()
            } else {
                vec![]
            };
            k.section(
                "train/lora/down_order",
                "from the last load on: what loads its inputs later keeps the others ahead of it",
            );
            for (i, [low, high]) in x.into_iter().enumerate().rev() {
                for (n, sums) in (0u32..).zip(&mut sums) {
                    let right = ahead
                        .get(i)
                        .map_or_else(|| self.load_a(k, &a, n, chunks[i]), |all| all[n as usize]);
                    for i in [0, 2] {
                        let left = LeftFragment([low[i], high[i], low[i + 1], high[i + 1]]);
                        sums.add_bf16(left, RightFragment([right[i], right[i + 1]]));
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
    /// Warps of a block: the more, the more loads are under way.
    fn warps(&self) -> u32 {
        if self.rank <= SMALL { 16 } else { 8 }
    }

    /// 8 elements, from `at` on, of two of 16 tokens. These loads and those of [`load_a`](Self::load_a) are relaxed, of
    /// which ptxas keeps the order: else it moves each to where its result is used, and few are under way at a time.
    fn load_x<'k>(
        &self,
        k: Builder<'k>,
        a: &LoraDownArgs<Dev<'k>>,
        row: U32<'k>,
        at: U32<'k>,
    ) -> [[U32<'k>; 4]; 2] {
        [0, 8].map(|further| {
            let token = row + (k.lane() >> 2) + further;
            load(
                k,
                a.x.at(token * a.depth + at),
                token.lt(a.rows) & at.lt(a.depth),
            )
        })
    }

    /// The same of a row of the `n`-th 8 of `a`.
    fn load_a<'k>(
        &self,
        k: Builder<'k>,
        a: &LoraDownArgs<Dev<'k>>,
        n: u32,
        at: U32<'k>,
    ) -> [U32<'k>; 4] {
        load(
            k,
            a.a.at(((k.lane() >> 2) + n * EIGHT) * a.depth + at),
            at.lt(a.depth),
        )
    }

    /// Adds the sums of all warps, in their order, and stores them.
    fn store<'k>(&self, k: Builder<'k>, a: &LoraDownArgs<Dev<'k>>, sums: &[Sums<'k, f32>]) {
        let (lane, warp, row) = (k.lane(), k.warp(), k.ctaid() * TOKENS);
        let (g, t) = (lane >> 2, lane & 3);
        k.section(
            "train/lora/down_sums",
            "the sums of all warps, in their order",
        );
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
        k.for_each(k.tid() * 2, TOKENS * self.rank, 64 * self.warps(), |i| {
            let of_warp = |warp: u32| parts.at(i + warp * (TOKENS * self.rank)).ld2();
            let sums = (1..self.warps())
                .map(of_warp)
                .fold(of_warp(0), |a, b| from_fn(|j| a[j] + b[j]));
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
        self.multiple("columns", a.columns, 8)?;
        self.length("u", a.u, "rows * rank", &[a.rows, self.rank])?;
        self.length("x", a.x, "rows * columns", &[a.rows, a.columns])?;
        self.length("sum", a.sum, "rank * columns", &[self.rank, a.columns])?;
        Ok(Grid::line(a.columns.div_ceil(COLUMNS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraGradientsArgs<Dev<'k>>) {
        let (lane, warp, column) = (k.lane(), k.warp(), k.ctaid() * COLUMNS);
        let tiles = self.rank / TOKENS;
        let mut sums: Vec<Vec<Sums<f32>>> = (0..tiles)
            .map(|_| (0..COLUMNS / EIGHT).map(|_| Sums::zero(k)).collect())
            .collect();
        let own = column + (lane & 3) * EIGHT;
        k.section(
            "train/lora/gradients_layout",
            "16 tokens at a time: 8 by 8 matrices whose rows are tokens, transposed",
        );
        let span = self.at_once() * TOKENS;
        k.for_each(warp * span, a.rows, GRADIENT_WARPS * span, |first| {
            let rows: Vec<U32> = (0..self.at_once()).map(|i| first + i * TOKENS).collect();
            let x: Vec<_> = rows
                .iter()
                .map(|&row| self.load_x(k, &a, row, own))
                .collect();
            k.section("train/lora/gradients_tokens", "the same tokens of u");
            let u = |row: U32<'k>| {
                (0..tiles)
                    .map(|tile| self.load_u(k, &a, row, tile))
                    .collect::<Vec<_>>()
            };
            let ahead: Vec<_> = if self.rank <= SMALL {
                rows.iter().map(|&row| u(row)).collect()
            } else {
                vec![]
            };
            k.section(
                "train/lora/gradients_multiply",
                "multiply, from the last load on",
            );
            for (i, (&row, x)) in rows.iter().zip(x).enumerate().rev() {
                let x = x.map(|half| half.map(|word| word.movmatrix()));
                for (tile, sums) in (0u32..).zip(&mut sums) {
                    let u = ahead
                        .get(i)
                        .map_or_else(|| self.load_u(k, &a, row, tile), |all| all[tile as usize]);
                    let left = LeftFragment(u.map(|word| word.movmatrix()));
                    for (i, sums) in sums.iter_mut().enumerate() {
                        sums.add_bf16(left, RightFragment([x[0][i], x[1][i]]));
                    }
                }
            }
        });
        let parts = k.shared::<f32>("parts", GRADIENT_WARPS * TOKENS * COLUMNS);
        for (tile, sums) in (0u32..).zip(&sums) {
            k.section(
                "train/lora/gradients_sums",
                "the sums of all warps for 16 of the rank, in their order",
            );
            self.put(k, parts, sums);
            k.barrier();
            k.for_each(k.tid(), TOKENS * COLUMNS, 32 * GRADIENT_WARPS, |i| {
                let of_warp = |warp: u32| parts.at(i + warp * (TOKENS * COLUMNS)).ld();
                let sum = (1..GRADIENT_WARPS)
                    .map(of_warp)
                    .fold(of_warp(0), |a, b| a + b);
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
        a.sum
            .iter_mut()
            .zip(sum)
            .for_each(|(to, sum)| *to = sum as f32);
    }
}

impl LoraGradients {
    /// Times 16 tokens that a warp takes at a time.
    fn at_once(&self) -> u32 {
        if self.rank <= SMALL { 4 } else { 1 }
    }

    /// 8 columns, from `own` on, of two of 16 tokens.
    fn load_x<'k>(
        &self,
        k: Builder<'k>,
        a: &LoraGradientsArgs<Dev<'k>>,
        row: U32<'k>,
        own: U32<'k>,
    ) -> [[U32<'k>; 4]; 2] {
        [0, 8].map(|half| {
            let token = row + (k.lane() >> 2) + half;
            load(
                k,
                a.x.at(token * a.columns + own),
                token.lt(a.rows) & own.lt(a.columns),
            )
        })
    }

    /// A lane's part of 16 tokens and 16 of the rank: 8 by 8 matrices.
    fn load_u<'k>(
        &self,
        k: Builder<'k>,
        a: &LoraGradientsArgs<Dev<'k>>,
        row: U32<'k>,
        tile: u32,
    ) -> [U32<'k>; 4] {
        [[0, 0], [0, 8], [8, 0], [8, 8]].map(|[down, further]| {
            let token = row + (k.lane() >> 2) + down;
            let mut word = k.var(0u32);
            let column = (k.lane() & 3) * 2 + (tile * TOKENS + further);
            a.u.at(token * self.rank + column)
                .fresh()
                .cast::<u32>()
                .ld_if(token.lt(a.rows), &mut word);
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

/// 8 elements, or zeros; a load of which ptxas keeps the order among others.
fn load<'k>(k: Builder<'k>, from: Ptr<'k, bf16, ReadOnly>, cond: Pred<'k>) -> [U32<'k>; 4] {
    let mut words = [0; 4].map(|_| k.var(0u32));
    from.fresh().cast::<u32>().ld4_if(cond, &mut words);
    words.map(|word| word.get())
}

fn matrix(random: &mut Random, rows: u32, columns: u32) -> CpuArg {
    CpuArg::Bf16(
        (0..rows * columns)
            .map(|_| bf16::from_f32(random.unit()))
            .collect(),
    )
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
            Case {
                label: format!("rows={rows} depth={depth}"),
                args,
                bound: 2e-6,
            }
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
            Case {
                label: format!("rows={rows} columns={columns}"),
                args,
                bound: 2e-6,
            }
        };
        [[1, 8], [37, 40], [300, 72]].map(case).into()
    }
}
