//! The gate of a feed-forward network, after an adapter was added to the sums of gate and up: `f(g)
//! up`, as the input of the next matmul.
//!
//! The epilogue of a matmul ([`Epilogue::Gated`](crate::matmul::Epilogue::Gated)) does the same
//! without an adapter. A row without an adapter gets the same bits from both. Its power of two
//! follows from a bound of the values, because the epilogue knows a part of the values only. The
//! bound does not cover an adapter, so the power of two of a row with an adapter follows from the
//! values themselves.

use super::adapter_row::{AdapterRow, adapter_of, states};
use super::shrink::MAX_ADAPTERS;
use crate::format::dequantize::ColumnOrder;
use crate::harness::{Case, Variant};
use crate::matmul::activations::{self, PANEL, TOKENS};
use crate::shared::reduce::block_max;
use crate::shared::{Contract, Random, check_lengths};
use crate::simple::swiglu::Activation;
use ptx_gen::*;

args! {
    /// Arguments of [`GateTokens`].
    pub struct GateTokensArgs {
        /// `[capacity, 2 * width]`: the sums. Of 16 columns, the first eight belong to the gate
        /// projection and the others to the up projection.
        y: In<f32>,
        /// `[rows, 8]`: the state of each row with its adapter. There are at least `tokens` rows.
        /// See [`state`](crate::shared::state).
        state: In<u32>,
        /// `[capacity]`: the sum of the squares of each row of the input of gate and up
        squares: In<f32>,
        /// `[width / 64, capacity, 64]`: the gated activations, see
        /// [`activations`](crate::matmul::activations)
        gated: Out<f16>,
        /// `[capacity]`: the factor that restores each row's values
        gated_scale: Out<f32>,
        /// The greatest length of a row of gate times the greatest length of a row of up.
        bound: f32,
        /// The width of the feed-forward network, a multiple of 128.
        width: u32,
        /// The number of adapters.
        adapters: u32,
        /// The number of rows.
        tokens: u32,
        /// The capacity of the buffers in rows, a multiple of 8.
        capacity: u32,
    }
}

/// Kernel that gates the sums of gate and up, one row per block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GateTokens {
    /// The activation function.
    pub activation: Activation,
    /// The column order of the result.
    pub order: ColumnOrder,
}

/// The number of threads of a block.
const THREADS: u32 = 256;

impl KernelDef for GateTokens {
    type Args<S: Side> = GateTokensArgs<S>;

    fn name(&self) -> String {
        let activation = self.activation.suffix();
        format!("gate_tokens{activation}_{}", self.order.group)
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &GateTokensArgs<Shape>) -> Result<Grid, ShapeError> {
        let &GateTokensArgs {
            width,
            tokens,
            capacity,
            ..
        } = a;
        self.multiple("width", width, 2 * PANEL)?;
        self.multiple("capacity", capacity, TOKENS)?;
        self.range("tokens", tokens, 1, capacity)?;
        self.range("adapters", a.adapters, 1, MAX_ADAPTERS)?;
        check_lengths! { self, a:
            y == capacity * 2 * width,
            state >= tokens * 8,
            squares == capacity,
            gated == capacity * width,
            gated_scale == capacity,
        }
        Ok(Grid::line(tokens))
    }

    fn program<'k>(&self, k: Builder<'k>, a: GateTokensArgs<Dev<'k>>) {
        let token = k.ctaid();
        let row = a.y.row(token, a.width * 8);
        let adapter = AdapterRow::load(a.state, token, a.adapters);

        // The whole block has one row, so all threads take the same branch.
        let mut largest = k.var(0.0);
        k.when(adapter.exists, || {
            k.section("batch/gate/largest", "the largest gated value of the row");
            let mut of_thread = k.var(0.0);
            k.for_each(k.tid(), a.width / 2, THREADS, |pair| {
                for gated in self.gated(row, pair * 2) {
                    of_thread.set(of_thread.get().max(gated.abs()));
                }
            });
            largest.set(block_max(k, THREADS / 32, of_thread.get()));
        });
        let bound = a.squares.at(token).ld() * a.bound;
        let [unit, scale] = activations::unit(adapter.exists.select(largest.get(), bound));
        k.when(k.tid().eq(0), || a.gated_scale.at(token).st(scale));

        k.section("batch/gate/store", "store two gated values at a time");
        k.for_each(k.tid(), a.width / 2, THREADS, |pair| {
            let two = pair * 2;
            // The second pair of four features is 8 slots after the first.
            let slot = self.order.slot_of_four(two & !3u32) + ((two & 2) << 2);
            let [low, high] = self
                .gated(row, two)
                .map(|gated| (gated * unit).cvt::<f16>());
            let place = activations::place(a.gated, a.capacity, token, slot);
            place.cast::<u32>().st(low.pack(high).bits::<u32>());
        });
    }

    fn reference(&self, a: GateTokensArgs<Cpu<'_>>) {
        let width = a.width as usize;
        for token in 0..a.tokens as usize {
            let row = &a.y[token * 2 * width..][..2 * width];
            let gated = |feature: usize| {
                let at = feature / 8 * 16 + feature % 8;
                self.activation.exact(row[at].into()) * f64::from(row[at + 8])
            };
            let gated: Vec<f64> = (0..width).map(gated).collect();
            let largest = match adapter_of(a.state, token, a.adapters) {
                Some(_) => gated.iter().fold(0.0, |most: f64, x| most.max(x.abs())) as f32,
                None => a.squares[token] * a.bound,
            };
            let unit = activations::unit_of(largest);
            a.gated_scale[token] = 1.0 / unit;
            for (feature, gated) in (0..).zip(gated) {
                let slot = self.order.slot(feature) as usize;
                let to = activations::index(a.capacity as usize, token, slot);
                a.gated[to] = f16::from_f32((gated * f64::from(unit)) as f32);
            }
        }
    }
}

impl GateTokens {
    /// Returns the gated values of two features of a row, the first at an even index.
    fn gated<'k>(&self, row: Ptr<'k, f32, ReadOnly>, two: U32<'k>) -> [F32<'k>; 2] {
        let at = row.at((two >> 3) * 16 + (two & 7));
        let gate = at.ld2();
        let up = at.at(8).ld2();
        // The order of the multiplications is that of the epilogue.
        [0, 1].map(|i| gate[i] * self.activation.sigmoid(gate[i]) * up[i])
    }
}

impl Variant for GateTokens {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |width: u32, magnitude: f32, rows: &[Option<u32>]| {
            let mut random = Random(seed);
            let tokens = rows.len() as u32;
            let capacity = tokens.next_multiple_of(TOKENS);
            let y = random.units((capacity * 2 * width) as usize);
            let squares = random.units(capacity as usize);
            let mut args = vec![
                CpuArg::F32(y.into_iter().map(|y| magnitude * y).collect()),
                CpuArg::U32(states(rows)),
                CpuArg::F32(squares.into_iter().map(|x| 1.5 + x).collect()),
                CpuArg::F16(vec![f16(0); (capacity * width) as usize]),
                CpuArg::F32(vec![0.0; capacity as usize]),
                CpuArg::scalar(10.0 * magnitude * magnitude),
            ];
            args.extend([width, 2, tokens, capacity].map(CpuArg::scalar));
            Case {
                label: format!("width={width} magnitude={magnitude} rows={rows:?}"),
                args,
                bound: 2e-6,
            }
        };
        vec![
            case(128, 1.0, &[Some(0), None]),
            case(640, 30.0, &[None, Some(1), Some(2)]),
        ]
    }
}
