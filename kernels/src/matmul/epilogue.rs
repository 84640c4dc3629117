//! The epilogue of a matmul of many tokens: the use of its sums.

use super::activations::{self, PANEL};
use super::append;
use super::definition::{Epilogue, MatmulArgs};
use super::lane_sums::{AT_ONCE, LaneSums};
use crate::format::Format;
use crate::format::dequantize::ColumnOrder;
use crate::format::tile::{self, ROWS, RowOrder};
use crate::shared::Contract;
use crate::simple::swiglu::Activation;
use ptx_gen::*;
use std::ops::Range;

impl Epilogue {
    /// Returns the part of a kernel's name.
    pub(super) fn name(self) -> String {
        match self {
            Epilogue::Store => "store".into(),
            Epilogue::Add => "add".into(),
            Epilogue::Gated(activation, order) => {
                format!("gated{}_{}", activation.suffix(), order.group)
            }
            Epilogue::Append(append) => append.name(),
        }
    }

    /// Checks the arguments of a kernel with this epilogue and rows in this order.
    pub(super) fn contract(
        self,
        kernel: &impl Contract,
        order: RowOrder,
        a: &MatmulArgs<Shape>,
    ) -> Result<(), ShapeError> {
        let (y, gated, capacity) = match self {
            Epilogue::Gated(..) => (0, a.capacity, a.capacity),
            Epilogue::Append(_) => (0, 0, 0),
            Epilogue::Store | Epilogue::Add => (a.capacity, 0, 0),
        };
        let results = if gated > 0 { a.rows / 2 } else { a.rows };
        kernel.range("y_rows", a.y_rows, results, u32::MAX)?;
        kernel.range("y_first", a.y_first, 0, a.y_rows - results)?;
        kernel.length("y", a.y, "capacity * y_rows", &[y, a.y_rows])?;
        kernel.length("gated", a.gated, "capacity * y_rows", &[gated, a.y_rows])?;
        kernel.length("gated_scale", a.gated_scale, "capacity", &[capacity])?;
        kernel.length("squares", a.squares, "capacity", &[capacity])?;
        kernel.require(gated == 0 || a.y_rows.is_multiple_of(2 * PANEL), || {
            format!(
                "y_rows is {}, must be a multiple of 128 for activations",
                a.y_rows
            )
        })?;

        // A lane stores two features in one word.
        kernel.require(gated == 0 || a.y_first.is_multiple_of(2), || {
            format!(
                "y_first is {}, must be a multiple of 2 for activations",
                a.y_first
            )
        })?;
        match self {
            Epilogue::Append(append) => append.contract(kernel, order, a)?,
            _ => a.append.nothing(kernel)?,
        }

        let in_order = order == RowOrder::GATE_UP;
        kernel.require((gated > 0) == in_order, || {
            format!("{:?} with rows in the order {:?}", self, order)
        })
    }

    /// Stores a lane's sums.
    pub(super) fn store<'k>(self, order: RowOrder, a: &MatmulArgs<Dev<'k>>, at: LaneSums<'_, 'k>) {
        let k = at.k;
        k.when(at.row_block.lt(a.rows / ROWS), || {
            let unit = at.row_block.mad(ROWS, k.lane() >> 2);

            // The exponent of the reciprocal of a power of two is 254 minus its exponent.
            let reciprocal = |r: u32| {
                let bits = a.unit.at(unit).at(r).ld().bits::<u32>();
                ((bits * u32::MAX) + 0x7f00_0000).bits::<f32>()
            };
            let reciprocals = [reciprocal(0), reciprocal(8)];
            match self {
                Epilogue::Gated(activation, columns) => {
                    at.gated(a, reciprocals, activation, columns)
                }
                Epilogue::Append(append) => at.append(a, append, order, reciprocals),
                Epilogue::Store | Epilogue::Add => {
                    at.plain(self == Epilogue::Add, order, a, reciprocals)
                }
            }
        });
    }
}

impl<'k> LaneSums<'_, 'k> {
    /// Calls `body` for each group of eight tokens, with the lane's first token of it and the
    /// scaled sums of both tokens and rows.
    fn each(
        &self,
        a: &MatmulArgs<Dev<'k>>,
        reciprocals: [F32<'k>; 2],
        body: impl Fn(u32, U32<'k>, [[F32<'k>; 2]; 2]),
    ) {
        let first = self.token + (self.k.lane() & 3) * 2;
        for (j, sums) in (0..).zip(self.sums.0.chunks(4)) {
            self.k
                .section("matmul/epilogue/eight_tokens", "sums of eight tokens");
            let token = first + 8 * j;
            let scales = self.scales(a, j);
            let row = |r: usize| [0, 1].map(|i| sums[2 * r + i].get() * scales[i] * reciprocals[r]);
            body(j, token, [row(0), row(1)]);
        }
    }

    /// Returns the address of the lane's first row.
    fn first_row(&self, order: RowOrder, a: &MatmulArgs<Dev<'k>>) -> Ptr<'k, f32, ReadWrite> {
        let g = self.k.lane() >> 2;
        let group = self.row_block / order.per;
        let row =
            (self.row_block % order.per * 8 + g) * order.step + group * order.stride + a.y_first;
        a.y.at(row)
    }

    /// Returns the addresses of the lane's sums of a group of eight tokens, given its first row.
    fn places(
        &self,
        delta: u32,
        a: &MatmulArgs<Dev<'k>>,
        y: Ptr<'k, f32, ReadWrite>,
        group: u32,
    ) -> [Ptr<'k, f32, ReadWrite>; 4] {
        let token = self.token + (self.k.lane() & 3) * 2 + 8 * group;
        let rows = [0, 1].map(|i| y.row(token + i, a.y_rows * 4));
        [rows[0], rows[1], rows[0].at(delta), rows[1].at(delta)]
    }

    /// Stores the sums or adds them to `y`.
    fn plain(
        &self,
        add: bool,
        order: RowOrder,
        a: &MatmulArgs<Dev<'k>>,
        reciprocals: [F32<'k>; 2],
    ) {
        let k = self.k;
        let y = self.first_row(order, a);
        let put = |place: Ptr<'k, f32, ReadWrite>, sum| {
            if add {
                place.red_add(sum)
            } else {
                place.st(sum)
            }
        };

        // Only the last job of a row has fewer tokens, so the common case needs no conditions.
        let whole = (self.token + self.sums.columns()).le(a.tokens_given);
        k.when(whole, || {
            self.all_tokens(order.delta, a, reciprocals, y, put)
        })
        .otherwise(|| {
            self.each(a, reciprocals, |group, token, sums| {
                let places = self.places(order.delta, a, y, group);
                for i in 0..2 {
                    k.when((token + i).lt(a.tokens_given), || {
                        for (r, sums) in sums.into_iter().enumerate() {
                            put(places[2 * r + i as usize], sums[i as usize]);
                        }
                    });
                }
            });
        });
    }

    /// Stores the sums of a job whose tokens all exist. There are no conditions, and many scales
    /// are loaded at once.
    fn all_tokens(
        &self,
        delta: u32,
        a: &MatmulArgs<Dev<'k>>,
        reciprocals: [F32<'k>; 2],
        y: Ptr<'k, f32, ReadWrite>,
        put: impl Fn(Ptr<'k, f32, ReadWrite>, F32<'k>),
    ) {
        for (j, sums) in (0..).zip(self.sums.0.chunks(4 * AT_ONCE as usize)) {
            self.k
                .section("matmul/epilogue/tokens", "sums of many tokens");
            let groups = AT_ONCE * j..AT_ONCE * j + sums.len() as u32 / 4;

            // All loads precede the stores, so that their latencies overlap.
            let places: Vec<_> = groups
                .clone()
                .flat_map(|group| self.places(delta, a, y, group))
                .collect();
            let scales: Vec<_> = groups.map(|group| self.scales(a, group)).collect();
            for (i, (place, sum)) in places.iter().zip(sums).enumerate() {
                put(
                    *place,
                    sum.get() * scales[i / 4][i % 2] * reciprocals[i % 4 / 2],
                );
            }
        }
    }

    /// Stores the gated activations of many tokens. Their scales are loaded together. A warp
    /// transposes the values of eight tokens with `movmatrix`, so that a lane stores two features
    /// of one token in one 32-bit store.
    fn gated(
        &self,
        a: &MatmulArgs<Dev<'k>>,
        reciprocals: [F32<'k>; 2],
        activation: Activation,
        order: ColumnOrder,
    ) {
        let k = self.k;
        let lane = k.lane();
        let feature = self.row_block * 8 + a.y_first;
        let two = feature + (lane & 3) * 2;
        let four = two & !3u32;

        // The second pair of four features is 8 slots after the first.
        let slot = order.slot_of_four(four) + ((two & 2) << 2);

        // One lane per token writes the scale, in the warp that has the first features.
        let writes_scales = feature.eq(0) & (lane >> 2).eq(0);
        for (j, sums) in (0..).zip(self.sums.0.chunks(4 * AT_ONCE as usize)) {
            k.section("matmul/epilogue/gated", "gated sums of many tokens");
            let groups = AT_ONCE * j..AT_ONCE * j + sums.len() as u32 / 4;
            let scales: Vec<_> = groups.clone().map(|group| self.scales(a, group)).collect();
            let units: Vec<_> = groups.clone().map(|group| self.units(a, group)).collect();
            let gated = sums
                .chunks(4)
                .zip(&scales)
                .zip(&units)
                .map(|((sums, scales), units)| {
                    // The lane has two tokens. Row `g` is their gate, row `g + 8` their up.
                    let of_token = |i: usize| {
                        let row = |r: usize| sums[2 * r + i].get() * scales[i] * reciprocals[r];
                        let [gate, up] = [0, 1].map(row);
                        let sigmoid = activation.sigmoid(gate);
                        let gated = gate * sigmoid * up * units[i][0];
                        gated.cvt::<f16>()
                    };
                    let [low, high] = [0, 1].map(of_token);
                    low.pack(high).bits::<u32>()
                });
            let gated: Vec<_> = gated.collect();
            for ((group, gated), units) in groups.zip(gated).zip(units) {
                k.section(
                    "matmul/epilogue/gated_store",
                    "store the gated sums of eight tokens",
                );
                let first = self.token + 8 * group;
                let token = first + (lane >> 2);
                let place = activations::place(a.gated, a.capacity, token, slot).cast::<u32>();
                let gated = gated.movmatrix();
                k.when(token.lt(a.tokens_given), || place.st(gated));
                for (i, [_, scale]) in (0..).zip(units) {
                    let token = first + (lane & 3) * 2 + i;
                    let writes = writes_scales & token.lt(a.tokens_given);
                    k.when(writes, || a.gated_scale.at(token).st(scale));
                }
            }
        }
    }

    /// Returns the powers of two of the lane's gated activations of a group of eight tokens, and
    /// their reciprocals.
    fn units(&self, a: &MatmulArgs<Dev<'k>>, group: u32) -> [[F32<'k>; 2]; 2] {
        let token = self.token + (self.k.lane() & 3) * 2 + 8 * group;
        self.of_two(a.squares, token)
            .map(|squares| activations::unit(squares * a.bound))
    }
}

/// Computes a matmul in double precision, from rounded activations and exact weights.
pub(super) fn reference(
    format: Format,
    epilogue: Epilogue,
    rows: RowOrder,
    a: &mut MatmulArgs<Cpu<'_>>,
) {
    let definition = Reference {
        format,
        epilogue,
        rows,
    };
    let tokens = 0..a.tokens_given as usize;
    let w = a.w;
    definition.rows(a, w, tokens);
}

/// The properties of a matmul that its results depend on.
pub(super) struct Reference {
    pub(super) format: Format,
    pub(super) epilogue: Epilogue,
    pub(super) rows: RowOrder,
}

impl Reference {
    /// Computes the results of some tokens, with the matrix `w`.
    pub(super) fn rows(&self, a: &mut MatmulArgs<Cpu<'_>>, w: &[u8], tokens: Range<usize>) {
        let weights = tile::dequantize(self.format, w, a.n as usize);
        tokens.for_each(|token| self.token(a, &weights, token));
    }

    /// Computes the results of a token.
    fn token(&self, a: &mut MatmulArgs<Cpu<'_>>, weights: &[f32], token: usize) {
        let n = a.n as usize;
        let capacity = a.capacity as usize;
        let rows = a.rows as usize;
        let order = ColumnOrder::of(self.format).expect("a format with a tile");
        let slot = |k: usize| activations::index(capacity, token, order.slot(k as u32) as usize);
        let x: Vec<f64> = (0..n)
            .map(|k| f64::from(a.x[slot(k)].to_f32()) * f64::from(a.x_scale[token]))
            .collect();
        let dot = |w: &[f32]| {
            w.iter()
                .zip(&x)
                .map(|(&w, x)| f64::from(w) * x)
                .sum::<f64>()
        };
        let sums: Vec<f64> = weights.chunks(n).map(dot).collect();
        match self.epilogue {
            Epilogue::Gated(activation, order) => {
                let unit = activations::unit_of(a.squares[token] * a.bound);
                a.gated_scale[token] = 1.0 / unit;
                for feature in 0..rows / 2 {
                    let at = feature / 8 * ROWS as usize + feature % 8;
                    let gated = activation.exact(sums[at]) * sums[at + 8] * f64::from(unit);
                    let slot = order.slot(feature as u32 + a.y_first) as usize;
                    let to = activations::index(capacity, token, slot);
                    a.gated[to] = f16::from_f32(gated as f32);
                }
            }
            Epilogue::Append(append) => append::reference(append, a, token, &sums),
            Epilogue::Store | Epilogue::Add => {
                for (i, sum) in sums.iter().enumerate() {
                    let row = self.rows.source(i as u32 / ROWS, i as u32 % ROWS) + a.y_first;
                    let y = &mut a.y[token * a.y_rows as usize + row as usize];
                    let old = if self.epilogue == Epilogue::Add {
                        f64::from(*y)
                    } else {
                        0.0
                    };
                    *y = (old + sum) as f32;
                }
            }
        }
    }
}
