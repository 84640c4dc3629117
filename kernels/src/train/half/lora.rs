//! The matmuls of adapters whose result has the rank as one dimension: `u`, `du`, and the gradients
//! of `A` and `B`.
//!
//! ```text
//! u  = s x A^T        du = s dy B          (LoraDown, which takes B as B^T)
//! dA += du^T x        dB^T += u^T dy       (LoraGradients)
//! ```
//!
//! Both read a long matrix once, and memory bounds their time. They therefore multiply with
//! `mma.sync` directly from registers. The sum is split among the warps of a block, and the sums of
//! the warps are then added in the order of the warps.

use super::buffers::{narrow, wide};
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use crate::train::products::{add_scaled, nt, tn};
use ptx_gen::*;
use std::array::from_fn;

args! {
    /// Arguments of [`LoraDown`].
    pub struct LoraDownArgs {
        /// `[rows, depth]`: the input
        x: In<bf16>,
        /// `[rank, depth]`: the matrix of the adapter
        a: In<bf16>,
        /// `[1]`: the scale `s`
        factor: In<f32>,
        /// `[rows, rank]`: the result
        u: Out<bf16>,
        /// The number of tokens.
        rows: u32,
        /// The length of a row of `x`, a multiple of 8.
        depth: u32,
    }
}

/// Kernel for `u = s x A^T`, with 16 tokens per block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraDown {
    /// The rank of the adapter: a multiple of 16, at most 256.
    pub rank: u32,
}

args! {
    /// Arguments of [`LoraGradients`].
    pub struct LoraGradientsArgs {
        /// `[rows, rank]`: `du`, or `u`
        u: In<bf16>,
        /// `[rows, columns]`: `x`, or `dy`
        x: In<bf16>,
        /// `[rank, columns]`: the result is added to it.
        sum: InOut<f32>,
        /// The number of tokens.
        rows: u32,
        /// The length of a row of `x`, a multiple of 8.
        columns: u32,
    }
}

/// Kernel for `sum += u^T x`, with 32 columns per block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraGradients {
    /// The rank of the adapter: a multiple of 16, at most 128.
    pub rank: u32,
}

/// The number of rows of the sums of a matrix instruction.
const TOKENS: u32 = 16;
/// The number of columns of these sums.
const EIGHT: u32 = 8;
/// The number of loads that a lane starts together.
const AT_ONCE: u32 = 4;
/// The number of elements of `depth` that the four lanes of a row load together.
const CHUNK: u32 = 32;
/// The largest rank for which a lane has registers to load both operands of several steps ahead, so
/// that no load waits for another.
const SMALL: u32 = 32;
/// The number of columns of a block that computes gradients. With more columns, fewer blocks would
/// fit a multiprocessor at a time.
const COLUMNS: u32 = 32;
/// The number of warps of such a block.
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
        let &LoraDownArgs { depth, rows, .. } = a;
        let rank = self.rank;
        self.multiple("the kernel's rank", rank, 16)?;
        self.range("the kernel's rank", rank, 16, 256)?;
        self.range("rows", rows, 1, 1 << 24)?;
        self.multiple("depth", depth, 8)?;
        check_lengths! { self, a:
            x == rows * depth,
            a == rank * depth,
        }
        self.exactly("factor", a.factor, 1)?;
        check_lengths! { self, a:
            u == rows * rank,
        }
        Ok(Grid {
            shared: self.warps() * TOKENS * rank * 4,
            ..Grid::line(rows.div_ceil(TOKENS))
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraDownArgs<Dev<'k>>) {
        let lane = k.lane();
        let warp = k.warp();
        let row = k.ctaid() * TOKENS;
        let mut sums: Vec<Sums<f32>> = (0..self.rank / EIGHT).map(|_| Sums::zero(k)).collect();
        let span = AT_ONCE * CHUNK;

        k.section(
            "train/lora/down_layout",
            "a lane loads 8 contiguous elements of its row of both matrices, and multiplies them in \
             a permuted order",
        );
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

            // A larger rank would need too many registers, so its rows are loaded when used.
            let ahead: Vec<Vec<_>> = if self.rank <= SMALL {
                chunks.iter().map(|&at| all(at)).collect()
            } else {
                vec![]
            };

            k.section(
                "train/lora/down_order",
                "from the last load on, because a step that loads its inputs late keeps the loads \
                 before it ahead",
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
        for u in &mut u {
            *u *= f64::from(a.factor[0]);
        }
        narrow(&u, a.u);
    }
}

impl LoraDown {
    /// Returns the number of warps of a block. More warps have more loads in flight.
    fn warps(&self) -> u32 {
        if self.rank <= SMALL { 16 } else { 8 }
    }

    /// Loads 8 elements, from `at` on, of the lane's two of 16 tokens.
    ///
    /// These loads and the loads of [`load_a`](Self::load_a) are relaxed, and ptxas keeps the order
    /// of relaxed loads. It would move other loads to their uses, and few would be in flight.
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

    /// Loads 8 elements, from `at` on, of the lane's row in the `n`-th eight rows of `a`.
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

    /// Adds the sums of all warps in their order, and stores the result.
    fn store<'k>(&self, k: Builder<'k>, a: &LoraDownArgs<Dev<'k>>, sums: &[Sums<'k, f32>]) {
        let lane = k.lane();
        let warp = k.warp();
        let row = k.ctaid() * TOKENS;
        let g = lane >> 2;
        let t = lane & 3;

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
            // The warps are added in a fixed order, so that equal inputs give equal bits.
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
        let &LoraGradientsArgs { columns, rows, .. } = a;
        let rank = self.rank;
        self.multiple("the kernel's rank", rank, 16)?;
        self.range("the kernel's rank", rank, 16, 128)?;
        self.range("rows", rows, 1, 1 << 24)?;
        self.multiple("columns", columns, 8)?;
        check_lengths! { self, a:
            u == rows * rank,
            x == rows * columns,
            sum == rank * columns,
        }
        Ok(Grid::line(columns.div_ceil(COLUMNS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraGradientsArgs<Dev<'k>>) {
        let lane = k.lane();
        let warp = k.warp();
        let column = k.ctaid() * COLUMNS;
        let tiles = self.rank / TOKENS;
        let mut sums: Vec<Vec<Sums<f32>>> = (0..tiles)
            .map(|_| (0..COLUMNS / EIGHT).map(|_| Sums::zero(k)).collect())
            .collect();
        let own = column + (lane & 3) * EIGHT;

        k.section(
            "train/lora/gradients_layout",
            "16 tokens at a time, as 8 by 8 matrices whose rows are tokens, transposed",
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

            // The sum is over tokens, which are rows in memory. `movmatrix` transposes them in
            // registers.
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

            // The next tile reuses the shared memory.
            k.barrier();
        }
    }

    fn reference(&self, a: LoraGradientsArgs<Cpu<'_>>) {
        let mut product = vec![0.0; a.sum.len()];
        tn(&wide(a.u), &wide(a.x), a.columns as usize, &mut product);
        let mut sum: Vec<f64> = a.sum.iter().copied().map(f64::from).collect();
        add_scaled(1.0, &product, &mut sum);
        for (to, sum) in a.sum.iter_mut().zip(sum) {
            *to = sum as f32;
        }
    }
}

impl LoraGradients {
    /// Returns the number of groups of 16 tokens that a warp loads together.
    fn at_once(&self) -> u32 {
        if self.rank <= SMALL { 4 } else { 1 }
    }

    /// Loads 8 columns, from `own` on, of the lane's two of 16 tokens.
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

    /// Loads the lane's elements of 16 tokens and 16 of the rank, as four 8 by 8 matrices.
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

    /// Stores a warp's sums at the places of their columns.
    ///
    /// A lane has loaded eight contiguous columns, two for each of the four matrices. Column `c` of
    /// matrix `i` is therefore column `8 (c / 2) + 2 i + c mod 2` of the result.
    fn put<'k>(&self, k: Builder<'k>, parts: Ptr<'k, f32, Shared>, sums: &[Sums<'k, f32>]) {
        let lane = k.lane();
        let warp = k.warp();
        let g = lane >> 2;
        let t = lane & 3;
        let own = parts.at((warp * TOKENS + g) * COLUMNS + t * EIGHT);
        for (i, sums) in (0u32..).zip(sums) {
            for half in 0..2u32 {
                let pair = [0, 1].map(|j| sums.0[2 * half as usize + j].get());
                own.at(half * 8 * COLUMNS + 2 * i).st2(pair);
            }
        }
    }
}

/// Loads 8 elements, or zeros if `cond` is false. ptxas keeps the order of these loads.
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
    /// Returns cases with one token, with more tokens than a block has, and with lengths that leave
    /// lanes, warps and loads without elements.
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
