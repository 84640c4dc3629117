//! The first half of an adapter: `u = s A x`, for each row with its own A.
//!
//! `x` is the input of a matmul, in the layout of
//! [`activations`](crate::matmul::activations). The columns of A are in the order of its slots. A
//! warp computes one element of `u` after another, each in the same order of additions.

use super::adapter_row::{AdapterRow, adapter_of, states};
use crate::harness::{Case, Variant};
use crate::matmul::activations::{self, PANEL, TOKENS};
use crate::pipeline::lora::RANK_STEP;
use crate::shared::reduce::warp_sum;
use crate::shared::state::LEN;
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`BatchLoraShrink`].
    pub struct BatchLoraShrinkArgs {
        /// `[adapters, ranks, n]`: `s A` of each adapter, with the columns in the order of the
        /// slots of `x`
        a: In<f32>,
        /// `[n / 64, capacity, 64]`: the activations, see
        /// [`activations`](crate::matmul::activations)
        x: In<f16>,
        /// `[capacity]`: the factor that restores each row's values
        x_scale: In<f32>,
        /// `[rows, 8]`: the state of each row with its adapter. There are at least `tokens` rows.
        /// See [`state`](crate::shared::state).
        state: In<u32>,
        /// `[tokens, ranks]`: the result. Rows without an adapter are not written. The buffer may
        /// be longer.
        u: Out<f32>,
        /// The number of adapters.
        adapters: u32,
        /// The number of rows of A, of all projections together, a multiple of 4.
        ranks: u32,
        /// The row length, a multiple of 128.
        n: u32,
        /// The number of rows of `x`.
        tokens: u32,
        /// The capacity of `x` in rows, a multiple of 8.
        capacity: u32,
        /// The number of rows that a block processes. It does not change the results.
        tile: u32,
    }
}

/// Kernel that computes `u = s A x`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchLoraShrink;

/// The number of threads of a block.
const THREADS: u32 = 256;
const WARPS: u32 = THREADS / 32;
/// The number of columns that a lane loads at once: 16 bytes of activations.
const UNIT: u32 = 8;
/// The maximum number of adapters.
pub(super) const MAX_ADAPTERS: u32 = 1 << 10;

impl KernelDef for BatchLoraShrink {
    type Args<S: Side> = BatchLoraShrinkArgs<S>;

    fn name(&self) -> String {
        "batch_lora_shrink".into()
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &BatchLoraShrinkArgs<Shape>) -> Result<Grid, ShapeError> {
        let &BatchLoraShrinkArgs {
            adapters,
            ranks,
            n,
            tokens,
            capacity,
            tile,
            ..
        } = a;
        self.range("adapters", adapters, 1, MAX_ADAPTERS)?;
        self.multiple("ranks", ranks, RANK_STEP)?;
        self.range("ranks", ranks, 1, 1 << 12)?;
        self.multiple("n", n, 2 * PANEL)?;
        self.range("n", n, 1, 1 << 24)?;
        self.multiple("capacity", capacity, TOKENS)?;
        self.range("tokens", tokens, 1, capacity)?;
        self.range("tile", tile, 1, 1 << 12)?;
        check_lengths! { self, a:
            a == adapters * ranks * n,
            x == capacity * n,
            x_scale == capacity,
            state >= tokens * 8,
            u >= tokens * ranks,
        }
        Ok(Grid::plane(ranks.div_ceil(WARPS), tokens.div_ceil(tile)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: BatchLoraShrinkArgs<Dev<'k>>) {
        let rank = k.ctaid() * WARPS + k.warp();
        let first = k.ctaid_y() * a.tile;
        let end = (first + a.tile).min(a.tokens);
        k.when(rank.lt(a.ranks), || {
            k.for_each(first, end, 1, |token| {
                // All lanes of a warp have the same row, so they take the same branch.
                let adapter = AdapterRow::load(a.state, token, a.adapters);
                k.when(adapter.exists, || {
                    let weights = a.a.row(adapter.index.mad(a.ranks, rank), a.n * 4);
                    let sum = multiply(k, &a, token, weights);
                    k.when(k.lane().eq(0), || {
                        let scaled = sum * a.x_scale.at(token).ld();
                        a.u.row(token, a.ranks * 4).at(rank).st(scaled);
                    });
                });
            });
        });
    }

    fn reference(&self, a: BatchLoraShrinkArgs<Cpu<'_>>) {
        let n = a.n as usize;
        let ranks = a.ranks as usize;
        for token in 0..a.tokens as usize {
            let Some(adapter) = adapter_of(a.state, token, a.adapters) else {
                continue;
            };
            let x = |slot| {
                let value = a.x[activations::index(a.capacity as usize, token, slot)];
                f64::from(value.to_f32())
            };
            for rank in 0..ranks {
                let weights = &a.a[(adapter * ranks + rank) * n..][..n];
                let terms = weights.iter().enumerate();
                let sum: f64 = terms.map(|(slot, &w)| f64::from(w) * x(slot)).sum();
                a.u[token * ranks + rank] = (sum * f64::from(a.x_scale[token])) as f32;
            }
        }
    }
}

/// Returns the product of a row of A and the unscaled activations of a token, in every lane.
fn multiply<'k>(
    k: Builder<'k>,
    a: &BatchLoraShrinkArgs<Dev<'k>>,
    token: U32<'k>,
    weights: Ptr<'k, f32, ReadOnly>,
) -> F32<'k> {
    k.section(
        "batch/lora/multiply",
        "a lane multiplies units of eight columns",
    );
    let mut sum = k.var(0.0);
    k.for_each(k.lane(), a.n / UNIT, 32, |unit| {
        let w = [0, 4].map(|half| weights.row(unit, 4 * UNIT).at(half).ld4());
        let x = activations::place(a.x, a.capacity, token, unit * UNIT);
        let x = x.cast::<u32>().ld4();
        let x = x.map(|word| word.bits::<f16x2>().unpack());
        for (w, x) in w.concat().into_iter().zip(x.concat()) {
            sum.fma(w, x.cvt::<f32>());
        }
    });
    warp_sum(sum.get())
}

impl Variant for BatchLoraShrink {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(adapters, ranks, n, tile): (u32, u32, u32, u32), rows: &[Option<u32>]| {
            let mut random = Random(seed);
            let tokens = rows.len() as u32;
            let capacity = tokens.next_multiple_of(TOKENS);
            // All values have one sign, so a sum is as large as the sum of its magnitudes.
            let mut positive = |len: u32| -> Vec<f32> {
                let units = random.units(len as usize).into_iter();
                units.map(|x| 1.5 + x).collect()
            };
            let x = positive(capacity * n);
            let mut args = vec![
                CpuArg::F32(positive(adapters * ranks * n)),
                CpuArg::F16(x.into_iter().map(f16::from_f32).collect()),
                CpuArg::F32(positive(capacity)),
                CpuArg::U32(states(rows)),
                CpuArg::F32(vec![-7.0; (tokens * ranks + 3) as usize]),
            ];
            args.extend([adapters, ranks, n, tokens, capacity, tile].map(CpuArg::scalar));
            Case {
                label: format!("adapters={adapters} ranks={ranks} n={n} tile={tile} rows={rows:?}"),
                args,
                bound: 4e-6,
            }
        };
        vec![
            case((1, 4, 128, 1), &[Some(0)]),
            case((3, 12, 384, 1), &[Some(2), None, Some(0), Some(3)]),
            case(
                (2, 20, 640, 4),
                &[None, Some(1), Some(1), Some(0), None, Some(1)],
            ),
        ]
    }
}

const _: () = assert!(LEN == 8);
