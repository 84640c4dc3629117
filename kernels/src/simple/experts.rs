//! The products of a mixture of experts, for one token.
//!
//! A slot is one of the chosen experts. [`ExpertGemv`] multiplies the matrix of each slot's expert by
//! a vector, with one plane of the grid per slot. The gate and up projections of all slots read the
//! same vector, and the down projection of a slot reads the slot's own. [`CombineExperts`] and
//! [`AddExperts`] then add the slots' weighted results in the order of the slots, so the result does
//! not depend on scheduling. [`AddGated`] adds the shared expert.
//!
//! The indices of the experts are read from device memory. Every kernel bounds an index before it
//! forms an address with it.

use crate::format::Format;
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use crate::simple::choose_experts::{MAX_CHOSEN, MAX_EXPERTS};
use crate::simple::gemv::{Matrix, Team, WARPS, exact, gemv};
use ptx_gen::*;
use std::f32::consts::LOG2_E;

args! {
    /// Arguments of [`ExpertGemv`].
    pub struct ExpertGemvArgs {
        /// `[experts, rows, row_bytes]`: the matrices, at an address that is a multiple of 16
        w: In<u8>,
        /// `[slots]`: the expert of each slot
        index: In<u32>,
        /// `[n]`: the vector of all slots if `x_step` is 0, or `[slots, n]`: the vector of each slot
        x: In<f32>,
        /// `[slots, rows]`: the results
        y: Out<f32>,
        /// The number of matrices.
        experts: u32,
        /// The number of slots.
        slots: u32,
        /// The number of rows of a matrix.
        rows: u32,
        /// The row length in weights, a multiple of the format's block and of 4.
        n: u32,
        /// The distance between the vectors of two slots: 0 or `n`.
        x_step: u32,
    }
}

args! {
    /// Arguments of [`AddExpertBias`].
    pub struct AddExpertBiasArgs {
        /// `[experts, n]`: the biases
        bias: In<f32>,
        /// `[slots]`: the expert of each slot
        index: In<u32>,
        /// `[slots, n]`: the values that the biases are added to
        y: InOut<f32>,
        /// The number of experts.
        experts: u32,
        /// The number of slots.
        slots: u32,
        /// The number of values of a slot.
        n: u32,
    }
}

args! {
    /// Arguments of [`CombineExperts`].
    pub struct CombineExpertsArgs {
        /// `[slots]`: the weight of each slot
        weight: In<f32>,
        /// `[slots, n]`: the results of the slots
        x: In<f32>,
        /// `[n]`: the weighted sum
        y: Out<f32>,
        /// The number of slots.
        slots: u32,
        /// The number of values of a slot.
        n: u32,
    }
}

args! {
    /// Arguments of [`AddExperts`].
    pub struct AddExpertsArgs {
        /// `[slots]`: the weight of each slot
        weight: In<f32>,
        /// `[slots, n]`: the results of the slots
        x: In<f32>,
        /// `[n]`: the vector that the weighted sum is added to
        y: InOut<f32>,
        /// The number of slots.
        slots: u32,
        /// The number of values of a slot.
        n: u32,
    }
}

args! {
    /// Arguments of [`AddGated`].
    pub struct AddGatedArgs {
        /// `[1]`: the logit of the gate
        gate: In<f32>,
        /// `[n]`: the result of the shared expert
        x: In<f32>,
        /// `[n]`: the vector that the gated result is added to
        y: InOut<f32>,
        /// The number of values.
        n: u32,
    }
}

/// Kernel that computes `y[s] = W[index[s]] x` for every slot `s`, or `W[index[s]] x[s]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpertGemv {
    /// The format of `W`.
    pub format: Format,
    /// The threads that compute two rows.
    pub team: Team,
}

/// Kernel that computes `y[s] += bias[index[s]]`, with one value per thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddExpertBias;

/// Kernel that computes `y = sum over s of weight[s] * x[s]`, with one value per thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CombineExperts;

/// Kernel that computes `y += sum over s of weight[s] * x[s]`, with one value per thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddExperts;

/// Kernel that computes `y += sigmoid(gate) * x`, with one value per thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddGated;

/// The number of threads of a block that computes one value per thread.
const THREADS: u32 = 256;

impl KernelDef for ExpertGemv {
    type Args<S: Side> = ExpertGemvArgs<S>;

    fn name(&self) -> String {
        format!("expert_gemv_{}{}", self.format.suffix(), self.team.suffix())
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(self.format.of().loads().blocks)
    }

    fn grid(&self, a: &ExpertGemvArgs<Shape>) -> Result<Grid, ShapeError> {
        let &ExpertGemvArgs {
            experts,
            slots,
            rows,
            n,
            x_step,
            ..
        } = a;
        self.range("experts", experts, 1, MAX_EXPERTS)?;
        self.range("slots", slots, 1, MAX_CHOSEN)?;
        // The kernel counts the rows of all matrices in 32 bits.
        self.range("rows", rows, 1, u32::MAX / MAX_EXPERTS)?;
        self.matrix("w", a.w, self.format, experts * rows, n)?;
        self.require(x_step == 0 || x_step == n, || {
            format!("x_step is {x_step}, must be 0 or n = {n}")
        })?;
        let vectors = if x_step == 0 { 1 } else { slots };
        self.length("x", a.x, "the number of vectors * n", &[vectors, n])?;
        check_lengths! { self, a:
            index == slots,
            y == slots * rows,
        }
        Ok(Grid::plane(self.team.blocks(rows), slots))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ExpertGemvArgs<Dev<'k>>) {
        k.section(
            "simple/experts/matrix",
            "matrix of the slot's expert; an index past the end is replaced by the last one",
        );
        let slot = k.ctaid_y();
        let expert = a.index.at(slot).ld().min(a.experts - 1);
        let split = self.format.split();
        let row_bytes = split.blocks(a.n) * split.bytes;
        let w = Matrix {
            format: self.format,
            bytes: a.w.row(expert * a.rows, row_bytes),
            rows: a.rows,
            n: a.n,
        };
        let x = a.x.at(slot * a.x_step);
        let y = a.y.at(slot * a.rows);
        gemv(k, self.team, w, x, |r, sum| y.at(r).st(sum));
    }

    fn reference(&self, a: ExpertGemvArgs<Cpu<'_>>) {
        let rows = a.rows as usize;
        let n = a.n as usize;
        let bytes = rows * self.format.row_bytes(n);
        for (slot, y) in a.y.chunks_mut(rows).enumerate() {
            let expert = bounded(a.index[slot], a.experts);
            let w = &a.w[expert * bytes..][..bytes];
            let x = &a.x[slot * a.x_step as usize..][..n];
            for (y, sum) in y.iter_mut().zip(exact(self.format, w, x)) {
                *y = sum as f32;
            }
        }
    }
}

/// Returns the expert that the kernels read for this index.
fn bounded(index: u32, experts: u32) -> usize {
    index.min(experts - 1) as usize
}

impl KernelDef for AddExpertBias {
    type Args<S: Side> = AddExpertBiasArgs<S>;

    fn name(&self) -> String {
        "add_expert_bias".to_owned()
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &AddExpertBiasArgs<Shape>) -> Result<Grid, ShapeError> {
        let &AddExpertBiasArgs {
            experts, slots, n, ..
        } = a;
        self.range("experts", experts, 1, MAX_EXPERTS)?;
        self.range("slots", slots, 1, MAX_CHOSEN)?;
        check_lengths! { self, a:
            bias == experts * n,
            index == slots,
            y == slots * n,
        }
        Ok(Grid::plane(n.div_ceil(THREADS), slots))
    }

    fn program<'k>(&self, k: Builder<'k>, a: AddExpertBiasArgs<Dev<'k>>) {
        let slot = k.ctaid_y();
        let i = k.ctaid() * THREADS + k.tid();
        k.when(i.lt(a.n), || {
            let expert = a.index.at(slot).ld().min(a.experts - 1);
            let bias = a.bias.at(expert * a.n + i).ld();
            let y = a.y.at(slot * a.n + i);
            y.st(y.ld() + bias);
        });
    }

    fn reference(&self, a: AddExpertBiasArgs<Cpu<'_>>) {
        let n = a.n as usize;
        for (y, &index) in a.y.chunks_mut(n).zip(a.index) {
            let bias = &a.bias[bounded(index, a.experts) * n..][..n];
            for (y, b) in y.iter_mut().zip(bias) {
                *y = (f64::from(*y) + f64::from(*b)) as f32;
            }
        }
    }
}

impl KernelDef for CombineExperts {
    type Args<S: Side> = CombineExpertsArgs<S>;

    fn name(&self) -> String {
        "combine_experts".to_owned()
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &CombineExpertsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &CombineExpertsArgs { slots, n, .. } = a;
        self.range("slots", slots, 1, MAX_CHOSEN)?;
        check_lengths! { self, a:
            weight == slots,
            x == slots * n,
            y == n,
        }
        Ok(Grid::line(n.div_ceil(THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: CombineExpertsArgs<Dev<'k>>) {
        let i = k.ctaid() * THREADS + k.tid();
        k.when(i.lt(a.n), || {
            let sum = weighted_sum(k, a.weight, a.x.at(i), a.slots, a.n);
            a.y.at(i).st(sum);
        });
    }

    fn reference(&self, a: CombineExpertsArgs<Cpu<'_>>) {
        for (i, y) in a.y.iter_mut().enumerate() {
            *y = exact_sum(a.weight, &a.x[i..], a.n) as f32;
        }
    }
}

impl KernelDef for AddExperts {
    type Args<S: Side> = AddExpertsArgs<S>;

    fn name(&self) -> String {
        "add_experts".to_owned()
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &AddExpertsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &AddExpertsArgs { slots, n, .. } = a;
        self.range("slots", slots, 1, MAX_CHOSEN)?;
        check_lengths! { self, a:
            weight == slots,
            x == slots * n,
            y == n,
        }
        Ok(Grid::line(n.div_ceil(THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: AddExpertsArgs<Dev<'k>>) {
        let i = k.ctaid() * THREADS + k.tid();
        k.when(i.lt(a.n), || {
            let sum = weighted_sum(k, a.weight, a.x.at(i), a.slots, a.n);
            let y = a.y.at(i);
            y.st(y.ld() + sum);
        });
    }

    fn reference(&self, a: AddExpertsArgs<Cpu<'_>>) {
        for (i, y) in a.y.iter_mut().enumerate() {
            *y = (f64::from(*y) + exact_sum(a.weight, &a.x[i..], a.n)) as f32;
        }
    }
}

impl KernelDef for AddGated {
    type Args<S: Side> = AddGatedArgs<S>;

    fn name(&self) -> String {
        "add_gated".to_owned()
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &AddGatedArgs<Shape>) -> Result<Grid, ShapeError> {
        let &AddGatedArgs { n, .. } = a;
        self.exactly("gate", a.gate, 1)?;
        check_lengths! { self, a:
            x == n,
            y == n,
        }
        Ok(Grid::line(n.div_ceil(THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: AddGatedArgs<Dev<'k>>) {
        let i = k.ctaid() * THREADS + k.tid();
        k.when(i.lt(a.n), || {
            // For a large negative logit the power is infinite and its reciprocal is 0.
            let power = (a.gate.ld() * -LOG2_E).ex2();
            let gate = (power + 1.0).rcp();
            let y = a.y.at(i);
            y.st(gate.fma(a.x.at(i).ld(), y.ld()));
        });
    }

    fn reference(&self, a: AddGatedArgs<Cpu<'_>>) {
        let gate = 1.0 / (1.0 + (-f64::from(a.gate[0])).exp());
        for (y, &x) in a.y.iter_mut().zip(a.x) {
            *y = (f64::from(*y) + gate * f64::from(x)) as f32;
        }
    }
}

/// Returns the weighted sum over the slots, in their order. `x` is the value of the first slot.
fn weighted_sum<'k>(
    k: Builder<'k>,
    weight: Ptr<'k, f32, ReadOnly>,
    x: Ptr<'k, f32, ReadOnly>,
    slots: U32<'k>,
    n: U32<'k>,
) -> F32<'k> {
    let mut sum = k.var(0.0);
    k.for_each(0, slots, 1, |slot| {
        sum.fma(weight.at(slot).ld(), x.at(slot * n).ld());
    });
    sum.get()
}

/// Returns the weighted sum over the slots in double precision.
fn exact_sum(weight: &[f32], x: &[f32], n: u32) -> f64 {
    weight
        .iter()
        .zip(x.iter().step_by(n as usize))
        .map(|(&weight, &x)| f64::from(weight) * f64::from(x))
        .sum()
}

impl Variant for ExpertGemv {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let split = self.format.split();
        let block = split.len as usize;
        let round = block
            * (split.blocks_of_warp() * self.team.warps() * self.format.of().loads().depth)
                as usize;

        // One expert. Experts out of order, one of them twice, and one slot with an index past the
        // end. Vectors of each slot, with more than one block of threads per slot.
        [
            (1, 1, vec![0], 3, block, false),
            (5, 3, vec![4, 0, 2], 5, round + block, false),
            (3, 4, vec![2, u32::MAX, 0, 2], 9, 3 * block, true),
        ]
        .map(|(experts, slots, index, rows, n, own)| {
            ExpertCase {
                experts,
                slots,
                index,
                rows,
                n,
                own,
            }
            .filled(self.format, seed)
        })
        .into()
    }
}

/// A test case of [`ExpertGemv`].
struct ExpertCase {
    experts: usize,
    slots: usize,
    index: Vec<u32>,
    rows: usize,
    n: usize,
    /// Whether each slot has its own vector.
    own: bool,
}

impl ExpertCase {
    fn filled(self, format: Format, seed: u64) -> Case {
        let mut random = Random(seed);
        let blocks = self.experts * self.rows * self.n / format.block_len() as usize;
        let w = format.random(blocks, 1.0, &mut random);

        // With the signs of the first row of the expert, the sum of that row is about as large as the
        // sum of the magnitudes, to which rounding errors are relative.
        let bytes = self.rows * format.row_bytes(self.n);
        let vectors = if self.own { self.slots } else { 1 };
        let x: Vec<f32> = self.index[..vectors]
            .iter()
            .flat_map(|&index| {
                let expert = bounded(index, self.experts as u32);
                let row = format.dequantize(&w[expert * bytes..][..format.row_bytes(self.n)]);
                row.iter()
                    .map(|w| 0.5 * random.unit() + w.signum())
                    .collect::<Vec<_>>()
            })
            .collect();
        let x_step = if self.own { self.n } else { 0 };
        let mut args = vec![
            CpuArg::U8(w),
            CpuArg::U32(self.index),
            CpuArg::F32(x),
            CpuArg::F32(vec![0.0; self.slots * self.rows]),
        ];
        let sizes = [self.experts, self.slots, self.rows, self.n, x_step];
        args.extend(sizes.map(|v| CpuArg::scalar(v as u32)));
        Case {
            label: format!(
                "experts={} slots={} rows={} n={} x_step={x_step}",
                self.experts, self.slots, self.rows, self.n
            ),
            args,
            bound: 1e-6,
        }
    }
}

impl Variant for AddExpertBias {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // An index past the end, a partial block of threads, and one value more than a block.
        let cases: [(u32, &[u32], u32); 3] = [
            (1, &[0], 1),
            (4, &[3, u32::MAX, 0], 100),
            (9, &[8, 1], THREADS + 1),
        ];
        cases
            .map(|(experts, index, n)| {
                let mut random = Random(seed);
                let slots = index.len() as u32;
                Case {
                    label: format!("experts={experts} slots={slots} n={n}"),
                    args: vec![
                        CpuArg::F32(random.units((experts * n) as usize)),
                        CpuArg::U32(index.to_vec()),
                        CpuArg::F32(random.units((slots * n) as usize)),
                        CpuArg::scalar(experts),
                        CpuArg::scalar(slots),
                        CpuArg::scalar(n),
                    ],
                    bound: 1e-6,
                }
            })
            .into()
    }
}

/// The slots and values of the cases of the sums: one value, a partial block of threads, and one
/// value more than a block with the most slots.
const SUMS: [(u32, u32); 3] = [(1, 1), (8, 100), (MAX_CHOSEN, THREADS + 1)];

/// Returns a case with the weights and results of the slots.
fn sum_case(seed: u64, (slots, n): (u32, u32), y: impl Fn(&mut Random) -> Vec<f32>) -> Case {
    let mut random = Random(seed);
    Case {
        label: format!("slots={slots} n={n}"),
        args: vec![
            CpuArg::F32(random.units(slots as usize)),
            CpuArg::F32(random.units((slots * n) as usize)),
            CpuArg::F32(y(&mut random)),
            CpuArg::scalar(slots),
            CpuArg::scalar(n),
        ],
        // A sum of up to 64 terms that partly cancel.
        bound: 2e-6,
    }
}

impl Variant for CombineExperts {
    fn cases(&self, seed: u64) -> Vec<Case> {
        SUMS.map(|shape| sum_case(seed, shape, |_| vec![0.0; shape.1 as usize]))
            .into()
    }
}

impl Variant for AddExperts {
    fn cases(&self, seed: u64) -> Vec<Case> {
        SUMS.map(|shape| sum_case(seed, shape, |random| random.units(shape.1 as usize)))
            .into()
    }
}

impl Variant for AddGated {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Gates in the middle, at both ends, and NaN, which must not be lost.
        [
            (1, 0.0),
            (100, -3.0),
            (THREADS + 1, 3.0),
            (4, 1e4),
            (4, -1e4),
            (4, f32::NAN),
        ]
        .map(|(n, gate)| {
            let mut random = Random(seed);
            Case {
                label: format!("n={n} gate={gate}"),
                args: vec![
                    CpuArg::F32(vec![gate]),
                    CpuArg::F32(random.units(n as usize)),
                    CpuArg::F32(random.units(n as usize)),
                    CpuArg::scalar(n),
                ],
                bound: 1e-6,
            }
        })
        .into()
    }
}
