//! Faulty kernels of the end of a step.

use ptx_gen::{Builder, Dev, F32, KernelDef, U32};
use warpwright_kernels::shared::reduce::block_sum;
use warpwright_kernels::train::optimizer::adamw::{AdamWUpdate, AdamWUpdateArgs};
use warpwright_kernels::train::optimizer::clip::{PARTS, SquareSums, SquareSumsArgs};
use warpwright_kernels::train::optimizer::state::{
    CORRECTIONS, EndStep, EndStepArgs, SKIPPED, STEP,
};

use super::Program;

/// The end of a step.
pub(super) enum End {
    /// Learning rate and bias corrections are those of the first step, for ever.
    FirstStep,
    /// The first step is counted, and updates nothing.
    FirstSkipped,
    /// The bias corrections are 1.
    NoCorrections,
    /// The largest norm is infinite.
    NoClip,
    /// The clip of the second of two layers is where `taken` is, as its bits.
    ClipByLayer,
}

impl Program<EndStep> for End {
    fn program<'k>(&self, of: &EndStep, k: Builder<'k>, a: EndStepArgs<Dev<'k>>) {
        let (parts, rates, taken, counters, carried) =
            (a.parts, a.rates, a.taken, a.counters, a.carried);
        let (slots, max_norm) = (a.slots, a.max_norm);
        let first = |body: &dyn Fn()| {
            k.when(k.tid().eq(0), body);
        };
        match self {
            End::NoClip => {
                return of.program(
                    k,
                    EndStepArgs {
                        max_norm: k.val(f32::INFINITY),
                        ..a
                    },
                );
            }
            End::FirstStep => first(&|| {
                // Records go on from slot to slot by the sum of the two.
                let [step, skipped] = [STEP, SKIPPED].map(|i| counters.at(i));
                skipped.st((skipped.ld() + step.ld()) % slots);
                step.st(0u32);
                (0..2).for_each(|i| carried.at(CORRECTIONS + i).st(0.0));
            }),
            _ => (),
        }

        of.program(k, a);
        first(&|| match self {
            End::FirstSkipped => {
                k.when(counters.at(STEP).ld().eq(1), || taken.st(0u32));
            }
            End::NoCorrections => (1..3).for_each(|i| rates.at(i).st(1.0)),
            End::ClipByLayer => {
                let clip = |layer: u32| {
                    let mut sum = k.var(0.0);
                    k.for_each(layer * HALF, (layer + 1) * HALF, 1, |i| {
                        sum.set(sum.get() + parts.at(i).ld())
                    });
                    (max_norm / (sum.get().sqrt_rn() + 1e-6)).min(1.0)
                };
                rates.at(3).st(clip(0));
                taken.st(clip(1).bits::<u32>());
            }
            _ => (),
        });
    }
}

/// Parts of a layer's sum of squares, of two layers.
const HALF: u32 = PARTS / 2;

/// Sums of squares of each half of the gradients, which is a layer.
pub(super) struct ByLayer;

impl Program<SquareSums> for ByLayer {
    fn program<'k>(&self, of: &SquareSums, k: Builder<'k>, a: SquareSumsArgs<Dev<'k>>) {
        let (layer, of_layer, part) = (k.ctaid() / HALF, a.n >> 1, k.ctaid() % HALF);
        let first = layer * of_layer + (part * of.threads + k.tid()) * 4;
        let mut sum = k.var(0.0);
        k.for_each(first, (layer + 1) * of_layer, HALF * of.threads * 4, |i| {
            a.g.at(i).ld4().into_iter().for_each(|g| sum.fma(g, g));
        });
        let sum = block_sum(k, of.threads / 32, sum.get());
        k.when(k.tid().eq(0), || a.parts.at(k.ctaid()).st(sum));
    }
}

/// AdamW.
pub(super) enum Update {
    /// Each half of the parameters has a clip of its own: see [`End::ClipByLayer`].
    ClipByLayer,
    /// Parameters are rounded to bf16.
    Bf16,
    /// `sqrt(v / c2 + eps)`
    EpsInside,
    /// Weight decay is added to the gradient.
    L2,
}

impl Program<AdamWUpdate> for Update {
    fn program<'k>(&self, of: &AdamWUpdate, k: Builder<'k>, a: AdamWUpdateArgs<Dev<'k>>) {
        let (p, n, i) = (a.p, a.n, (k.ctaid() * of.threads + k.tid()) * 4);
        if let Update::Bf16 = self {
            of.program(k, a);
            let at = |j: u32| p.at(i + j);
            k.when(i.lt(n), || (0..4).for_each(|j| at(j).st(bf16(at(j).ld()))));
            return;
        }
        k.when(i.lt(n) & a.taken.ld().ne(0), || {
            (0..4).for_each(|j| self.element(&a, i + j))
        });
    }
}

impl Update {
    fn element<'k>(&self, a: &AdamWUpdateArgs<Dev<'k>>, i: U32<'k>) {
        let [lr, c1, c2, clip] = a.rates.ld4();
        let (g, p, m, v) = (
            a.g.at(i).ld(),
            a.p.at(i).ld(),
            a.m.at(i).ld(),
            a.v.at(i).ld(),
        );
        let clip = match self {
            Update::ClipByLayer => i.lt(a.n >> 1).select(clip, a.taken.ld().bits::<f32>()),
            _ => clip,
        };
        let (g, kept) = match self {
            Update::L2 => (a.decay.fma(p, g * clip), p),
            _ => (g * clip, p * (-lr).fma(a.decay, 1.0)),
        };
        let m = (-a.beta1 + 1.0).fma(g - m, m);
        let v = a.beta2.fma(v, (-a.beta2 + 1.0) * g * g);
        let root = match self {
            Update::EpsInside => (v / c2 + a.eps).sqrt_rn(),
            _ => v.sqrt_rn() / c2.sqrt_rn() + a.eps,
        };
        a.p.at(i).st(kept - lr / c1 * m / root);
        a.m.at(i).st(m);
        a.v.at(i).st(v);
    }
}

/// Rounded to nearest, ties to even.
fn bf16(x: F32<'_>) -> F32<'_> {
    let bits = x.bits::<u32>();
    ((bits + ((bits >> 16) & 1) + 0x7fff) & 0xffff_0000u32).bits::<f32>()
}
