//! The second half of an adapter: `y += B u`, for each row with its own B.

use super::adapter_row::{AdapterRow, TransposedB, adapter_of, dot, states};
use super::parts::LoraParts;
use super::shrink::MAX_ADAPTERS;
use crate::harness::{Case, Variant};
use crate::pipeline::lora::{MAX_RANK, RANK_STEP};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`BatchLoraAdd`].
    pub struct BatchLoraAddArgs {
        /// `[adapters, rank, rows]`: B transposed, of each adapter
        b: In<f32>,
        /// `[tokens, parts, rank]`: `s A x` of each projection that the matmul joins. The buffer
        /// may be longer.
        u: In<f32>,
        /// `[rows, 8]`: the state of each row with its adapter. There are at least `tokens` rows.
        /// See [`state`](crate::shared::state).
        state: In<u32>,
        /// `[tokens, rows]`: the result of the matmul. Rows without an adapter are not changed. The
        /// buffer may be longer.
        y: InOut<f32>,
        /// The number of adapters.
        adapters: u32,
        /// The number of columns of B, a multiple of 4.
        rank: u32,
        /// The number of rows of B.
        rows: u32,
        /// The first row of the second of three projections, otherwise ignored.
        second: u32,
        /// The first row of the third of three projections, otherwise ignored.
        third: u32,
        /// The number of rows of `y`.
        tokens: u32,
        /// The number of rows of `y` that a block processes. It does not change the results.
        tile: u32,
    }
}

/// Kernel that computes `y += B u`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BatchLoraAdd {
    /// The projections that the matmul joins.
    pub parts: LoraParts,
}

/// The number of threads of a block, each of which computes one row of B.
const THREADS: u32 = 256;

impl KernelDef for BatchLoraAdd {
    type Args<S: Side> = BatchLoraAddArgs<S>;

    fn name(&self) -> String {
        format!("batch_lora_add{}", self.parts.suffix())
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &BatchLoraAddArgs<Shape>) -> Result<Grid, ShapeError> {
        let &BatchLoraAddArgs {
            adapters,
            rank,
            rows,
            tokens,
            tile,
            ..
        } = a;
        let parts = self.parts.count();
        self.range("adapters", adapters, 1, MAX_ADAPTERS)?;
        self.multiple("rank", rank, RANK_STEP)?;
        self.range("rank", rank, 1, MAX_RANK)?;
        self.range("rows", rows, 1, 1 << 24)?;
        self.parts.check(self, rows, [a.second, a.third])?;
        self.range("tokens", tokens, 1, u16::MAX.into())?;
        self.range("tile", tile, 1, 1 << 12)?;
        check_lengths! { self, a:
            b == adapters * rank * rows,
            u >= tokens * parts * rank,
            state >= tokens * 8,
            y >= tokens * rows,
        }
        Ok(Grid::plane(rows.div_ceil(THREADS), tokens.div_ceil(tile)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: BatchLoraAddArgs<Dev<'k>>) {
        let row = k.ctaid() * THREADS + k.tid();
        let first = k.ctaid_y() * a.tile;
        let end = (first + a.tile).min(a.tokens);
        let part = self.parts.of(k, row, [a.second, a.third]);
        k.when(row.lt(a.rows), || {
            k.for_each(first, end, 1, |token| {
                let adapter = AdapterRow::load(a.state, token, a.adapters);
                k.when(adapter.exists, || {
                    k.section("batch/lora/add", "add the product with one row of B");
                    let b = TransposedB {
                        k,
                        b: a.b.row(adapter.index, a.rank * a.rows * 4),
                        rank: a.rank,
                        rows: a.rows,
                    };
                    let u = a.u.row(token, a.rank * (4 * self.parts.count()));
                    let sum = b.dot(row, u.row(part, a.rank * 4));
                    let y = a.y.row(token, a.rows * 4).at(row);
                    y.st(y.ld() + sum);
                });
            });
        });
    }

    fn reference(&self, a: BatchLoraAddArgs<Cpu<'_>>) {
        let rank = a.rank as usize;
        let rows = a.rows as usize;
        let parts = self.parts.count() as usize;
        for token in 0..a.tokens as usize {
            let Some(adapter) = adapter_of(a.state, token, a.adapters) else {
                continue;
            };
            let b = &a.b[adapter * rank * rows..][..rank * rows];
            for row in 0..rows {
                let part = self.parts.on_cpu(row as u32, [a.second, a.third]) as usize;
                let u = &a.u[(token * parts + part) * rank..][..rank];
                let y = &mut a.y[token * rows + row];
                *y = (f64::from(*y) + dot(b, rows, row, u)) as f32;
            }
        }
    }
}

impl Variant for BatchLoraAdd {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(adapters, rank, rows, tile): (u32, u32, u32, u32),
                    states_of: &[Option<u32>]| {
            let mut random = Random(seed);
            let tokens = states_of.len() as u32;
            // All values have one sign, so a sum is as large as the sum of its magnitudes.
            let mut positive = |len: u32| -> Vec<f32> {
                let units = random.units(len as usize).into_iter();
                units.map(|x| 1.5 + x).collect()
            };
            let mut args = vec![
                CpuArg::F32(positive(adapters * rank * rows)),
                CpuArg::F32(positive(tokens * self.parts.count() * rank + 4)),
                CpuArg::U32(states(states_of)),
                CpuArg::F32(positive(tokens * rows + 5)),
            ];
            let firsts = [rows / 2, rows / 2 + 8];
            let sizes = [adapters, rank, rows, firsts[0], firsts[1], tokens, tile];
            args.extend(sizes.map(CpuArg::scalar));
            Case {
                label: format!(
                    "adapters={adapters} rank={rank} rows={rows} tile={tile} of={states_of:?}"
                ),
                args,
                bound: 4e-6,
            }
        };
        vec![
            case((1, 4, 32, 1), &[Some(0)]),
            case((3, 8, 272, 1), &[Some(2), None, Some(0), Some(3)]),
            case(
                (2, 20, 48, 4),
                &[None, Some(1), Some(1), Some(0), None, Some(1)],
            ),
        ]
    }
}
