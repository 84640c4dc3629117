//! Faulty kernels of a layer, but for attention.

use std::f32::consts::LOG2_E;

use ptx_gen::{Builder, Dev, KernelDef};
use warpwright_kernels::shared::philox::on_device;
use warpwright_kernels::train::attention::{SumGroups, SumGroupsArgs};
use warpwright_kernels::train::dropout::{AddMasked, AddMaskedArgs};
use warpwright_kernels::train::linear::{BroadcastRow, BroadcastRowArgs};
use warpwright_kernels::train::nf4::{BLOCK, Nf4Dequantize, Nf4DequantizeArgs, VALUES};
use warpwright_kernels::train::optimizer::state::MICRO;
use warpwright_kernels::train::products::{Product, ProductArgs};
use warpwright_kernels::train::rms_norm::{RmsNormBackward, RmsNormBackwardArgs};
use warpwright_kernels::train::rope::{RotateHeads, RotateHeadsArgs};
use warpwright_kernels::train::swiglu::{SwiGluBackward, SwiGluBackwardArgs};

use super::Program;

/// The backward of a norm.
pub(super) enum NormBackward {
    /// `dx = inv g dy`
    WithoutMean,
    /// In norms with one of these first gains `dx` replaces what it should be added to.
    Replaces(Vec<f32>),
}

impl Program<RmsNormBackward> for NormBackward {
    fn program<'k>(&self, of: &RmsNormBackward, k: Builder<'k>, a: RmsNormBackwardArgs<Dev<'k>>) {
        let (first, step) = (k.tid() * 4, of.threads * 4);
        let row = k.ctaid() * a.n;
        match self {
            NormBackward::WithoutMean => {
                let (dy, sum, inv) = (a.dy.at(row), a.sum.at(row), a.inv.at(k.ctaid()).ld());
                k.for_each(first, a.n, step, |i| {
                    let (dy, g, passed) = (dy.at(i).ld4(), a.g.at(i).ld4(), sum.at(i).ld4());
                    sum.at(i)
                        .st4(std::array::from_fn(|j| inv.fma(g[j] * dy[j], passed[j])));
                });
            }
            NormBackward::Replaces(gains) => {
                let (gain, zero) = (a.g.ld(), k.val(0.0));
                for known in gains {
                    k.when(gain.eq(*known), || {
                        k.for_each(first, a.n, step, |i| a.sum.at(row).at(i).st4([zero; 4]));
                    });
                }
                of.program(k, a);
            }
        }
    }
}

/// `dg` without the second term of the slope: `da up sg`.
pub(super) struct SlopeOfSigmoid;

impl Program<SwiGluBackward> for SlopeOfSigmoid {
    fn program<'k>(&self, of: &SwiGluBackward, k: Builder<'k>, a: SwiGluBackwardArgs<Dev<'k>>) {
        let (da, g, up, dg, n) = (a.da, a.g, a.up, a.dg, a.n);
        of.program(k, a);
        let i = (k.ctaid() * of.threads + k.tid()) * 4;
        k.when(i.lt(n), || {
            let (da, g, up) = (da.at(i).ld4(), g.at(i).ld4(), up.at(i).ld4());
            let sigmoid = |j: usize| ((-g[j] * LOG2_E).ex2() + 1.0).rcp_rn();
            dg.at(i)
                .st4(std::array::from_fn(|j| da[j] * up[j] * sigmoid(j)));
        });
    }
}

/// A product with as many columns as the rank, which is `du`, loses its factor again. It was added to zeros.
pub(super) struct Unscaled {
    pub(super) rank: u32,
}

impl Program<Product> for Unscaled {
    fn program<'k>(&self, of: &Product, k: Builder<'k>, a: ProductArgs<Dev<'k>>) {
        let (sum, factor, rows, columns) = (a.sum, a.factor, a.rows, a.columns);
        let (i, each) = (
            k.ctaid() * KernelDef::block(of) + k.tid(),
            columns / of.width,
        );
        of.program(k, a);
        k.when(i.lt(rows * each) & columns.eq(self.rank), || {
            let to = sum.at(i / each * columns + i % each * of.width);
            (0..of.width).for_each(|j| to.at(j).st(to.at(j).ld() / factor.ld()));
        });
    }
}

/// What the heads of a group give to their key.
pub(super) enum Groups {
    /// What the first gives.
    First,
    /// The mean.
    Mean,
}

impl Program<SumGroups> for Groups {
    fn program<'k>(&self, of: &SumGroups, k: Builder<'k>, a: SumGroupsArgs<Dev<'k>>) {
        let i = k.ctaid() * KernelDef::block(of) + k.tid();
        k.when(i.lt(a.n), || {
            let first = a
                .parts
                .at(i / a.head_dim * a.group * a.head_dim + i % a.head_dim);
            let mut sum = k.var(first.ld());
            if matches!(self, Groups::Mean) {
                k.for_each(1, a.group, 1, |j| {
                    sum.set(sum.get() + first.at(j * a.head_dim).ld())
                });
                sum.set(sum.get() / a.group.cvt::<f32>());
            }

            a.sum.at(i).st(sum.get());
        });
    }
}

/// A rotation of heads.
pub(super) enum Rotated {
    /// Of no token.
    Nothing,
    /// By another kernel.
    As(RotateHeads),
}

impl Program<RotateHeads> for Rotated {
    fn program<'k>(&self, of: &RotateHeads, k: Builder<'k>, a: RotateHeadsArgs<Dev<'k>>) {
        match self {
            Rotated::Nothing => of.program(
                k,
                RotateHeadsArgs {
                    tokens: k.val(0),
                    ..a
                },
            ),
            Rotated::As(other) => other.program(k, a),
        }
    }
}

/// Rows of zeros in place of the bias.
pub(super) struct Zeros;

impl Program<BroadcastRow> for Zeros {
    fn program<'k>(&self, of: &BroadcastRow, k: Builder<'k>, a: BroadcastRowArgs<Dev<'k>>) {
        let i = k.ctaid() * KernelDef::block(of) + k.tid();
        k.when(i.lt(a.rows * a.n), || a.y.at(i).st(0.0));
    }
}

/// The first of two weights from the low nibble.
pub(super) struct SwappedNibbles;

impl Program<Nf4Dequantize> for SwappedNibbles {
    fn program<'k>(&self, of: &Nf4Dequantize, k: Builder<'k>, a: Nf4DequantizeArgs<Dev<'k>>) {
        let values = k.shared::<f32>("values", VALUES.len() as u32);
        k.when(k.tid().eq(0), || {
            (0u32..)
                .zip(VALUES)
                .for_each(|(i, value)| values.at(i).st(value));
        });
        k.barrier();
        let first = (k.ctaid() * of.threads + k.tid()) * 8;
        k.when(first.lt(a.n), || {
            let word = a.packed.cast::<u32>().at(first / 8).ld();
            let absmax = a.absmax.at(first / BLOCK as u32).ld();
            (0..8).for_each(|j| {
                a.w.at(first + j)
                    .st(values.at(word.bfe(4 * j, 4)).ld() * absmax)
            });
        });
    }
}

/// What is added to the number of an input, where a mask is that of another micro-batch.
pub(super) const OTHER: u32 = 1000;

/// Masks of inputs from [`OTHER`] on are those of a later micro-batch, of the inputs that many before.
pub(super) struct OtherMask;

impl Program<AddMasked> for OtherMask {
    fn program<'k>(&self, of: &AddMasked, k: Builder<'k>, a: AddMaskedArgs<Dev<'k>>) {
        let group = k.ctaid() * of.threads + k.tid();
        k.when((group * 4).lt(a.n), || {
            let more = a.stream.ge(OTHER).select(OTHER, 0u32);
            let counter = [
                group,
                k.val(0u32),
                a.stream - more,
                a.counters.at(MICRO).ld() + more,
            ];
            let words = on_device(counter, [0, 1].map(|word| a.seed.at(word).ld()));
            for (j, word) in (0..).zip(words) {
                let (x, sum) = (a.x.at(group * 4 + j).ld(), a.sum.at(group * 4 + j));
                sum.st(sum.ld() + (word >> 8).ge(a.threshold).select(x, 0.0));
            }
        });
    }
}
