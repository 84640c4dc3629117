//! Faults that a training step may have, planted: in an operation, in the data, or in the loop around the steps.

use warpwright_kernels::train::attention::{Heads, Saved};
use warpwright_kernels::train::linear::Weight;
use warpwright_kernels::train::lora::Factors;
use warpwright_kernels::train::nf4::{self, Nf4};
use warpwright_kernels::train::optimizer::adamw::{AdamW, Parameters, Rates};
use warpwright_kernels::train::optimizer::clip;
use warpwright_kernels::train::rope::Angles;
use warpwright_kernels::train::{nested, products};
use warpwright_model::RopePairing;
use warpwright_train::reference::{
    Adapters, Applied, MicroBatch, Moments, Norm, Ops, Record, References, State, Storage, Trainer,
    Weights,
};
use warpwright_train::{Error, Training};

use crate::setup::Setup;

macro_rules! faults {
    ($($variant:ident $name:literal;)*) => {
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub(crate) enum Fault {
            $($variant,)*
        }

        impl Fault {
            /// All, under the names of `faults.json`.
            pub(crate) const ALL: &'static [(&'static str, Fault)] = &[$(($name, Fault::$variant)),*];
        }
    };
}

faults! {
    FrozenStep "frozen_step";
    SkipCaptureStep "skip_capture_step";
    FrozenBatch "frozen_batch";
    PerLayerClip "per_layer_clip";
    NoClip "no_clip";
    Bf16Master "bf16_master";
    NoBiasCorrection "no_bias_correction";
    EpsInside "eps_inside";
    L2Decay "l2_decay";
    DropAttentionSkip "drop_attn_skip";
    NormBackwardWithoutMean "norm_bwd_no_mean";
    SiluBackward "silu_bwd";
    LoraScaleBackward "lora_scale_bwd";
    NoDelta "no_delta";
    NoScoreScaleBackward "no_qk_scale_bwd";
    GroupFirst "gqa_first";
    GroupMean "gqa_mean";
    NoRopeBackward "no_rope_bwd";
    RopeBackwardSign "rope_bwd_sign";
    InterleavedRope "gptj_rope";
    NoBias "no_bias";
    MaskOffByOne "mask_off_by_one";
    PaddingInLoss "pad_in_loss";
    NibbleSwap "nibble_swap";
    NestedWithoutOffset "nested_no_offset";
    MeanOfMicro "mean_of_micro";
    DropoutMaskBackward "dropout_mask_bwd";
    PackingLeak "packing_leak";
}

/// In an operation.
impl Ops for Fault {
    fn rms_norm_backward(
        &self,
        which: Norm,
        dy: &[f64],
        x: &[f64],
        g: &[f64],
        inv: &[f64],
        sum: &mut [f64],
    ) {
        match self {
            Fault::NormBackwardWithoutMean => {
                let inv = inv.iter().flat_map(|inv| std::iter::repeat_n(inv, g.len()));
                let gains = g.iter().cycle();
                sum.iter_mut()
                    .zip(dy)
                    .zip(inv)
                    .zip(gains)
                    .for_each(|(((s, dy), inv), g)| *s += inv * g * dy);
                return;
            }
            Fault::DropAttentionSkip if which == Norm::Attention => sum.fill(0.0),
            _ => (),
        }
        References.rms_norm_backward(which, dy, x, g, inv, sum);
    }

    fn lora_du(&self, dy: &[f64], factors: &Factors<'_>) -> Vec<f64> {
        let scale = if *self == Fault::LoraScaleBackward {
            1.0
        } else {
            factors.scale
        };
        References.lora_du(dy, &Factors { scale, ..*factors })
    }

    fn lora_da(&self, du: &[f64], x: &[f64], factors: &Factors<'_>) -> Vec<f64> {
        References.lora_da(du, x, &self.masked_again(factors))
    }

    fn linear_backward(&self, dy: &[f64], weight: &Weight<'_>, lora: Applied<'_>) -> Vec<f64> {
        let factors = lora.map(|(factors, _)| self.masked_again(factors));
        References.linear_backward(dy, weight, factors.as_ref().zip(lora.map(|(_, du)| du)))
    }

    fn rope_backward(&self, dy: &[f64], angles: &Angles) -> Vec<f64> {
        match self {
            Fault::NoRopeBackward => dy.to_vec(),
            Fault::RopeBackwardSign => References.rope(dy, angles),
            _ => References.rope_backward(dy, angles),
        }
    }

    fn attention(&self, at: &Heads<'_>, q: &[f64], k: &[f64], v: &[f64]) -> (Vec<f64>, Vec<f64>) {
        self.seeing(at, |at| References.attention(at, q, k, v))
    }

    fn attention_delta(&self, at: &Heads<'_>, grad: &[f64], o: &[f64]) -> Vec<f64> {
        let delta = References.attention_delta(at, grad, o);
        if *self == Fault::NoDelta {
            vec![0.0; delta.len()]
        } else {
            delta
        }
    }

    fn attention_backward(
        &self,
        at: &Heads<'_>,
        saved: &Saved<'_>,
        grad: &[f64],
        delta: &[f64],
    ) -> [Vec<f64>; 3] {
        let [dq, dk, dv] = self.seeing(at, |at| {
            References.attention_backward(at, saved, grad, delta)
        });
        let factor = if *self == Fault::NoScoreScaleBackward {
            (at.head_dim as f64).sqrt()
        } else {
            1.0
        };
        let [dq, dk] = [dq, dk].map(|x| x.into_iter().map(|x| x * factor).collect());
        [dq, dk, dv]
    }

    fn sum_groups(&self, at: &Heads<'_>, parts: &[f64]) -> Vec<f64> {
        let group = at.heads / at.kv_heads;
        match self {
            Fault::GroupFirst => parts
                .chunks(group * at.head_dim)
                .flat_map(|group| group[..at.head_dim].to_vec())
                .collect(),
            Fault::GroupMean => References
                .sum_groups(at, parts)
                .into_iter()
                .map(|sum| sum / group as f64)
                .collect(),
            _ => References.sum_groups(at, parts),
        }
    }

    fn swiglu_backward(&self, da: &[f64], g: &[f64], up: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (mut dg, dup) = References.swiglu_backward(da, g, up);
        if *self == Fault::SiluBackward {
            let sigmoid = |g: f64| (1.0 + (-g).exp()).recip();
            dg = da
                .iter()
                .zip(g)
                .zip(up)
                .map(|((da, &g), up)| da * up * sigmoid(g))
                .collect();
        }
        (dg, dup)
    }

    fn adamw(&self, adamw: &AdamW, at: Parameters<'_>, g: &[f64], rates: &Rates) {
        match self {
            Fault::EpsInside => eps_inside(adamw, at, g, rates),
            Fault::L2Decay => {
                let mut g: Vec<f64> = g.iter().map(|g| g * rates.clip).collect();
                products::add_scaled(adamw.decay, at.p, &mut g);
                let adamw = AdamW {
                    decay: 0.0,
                    ..*adamw
                };
                References.adamw(
                    &adamw,
                    at,
                    &g,
                    &Rates {
                        clip: 1.0,
                        ..*rates
                    },
                );
            }
            _ => References.adamw(adamw, at, g, rates),
        }
    }
}

/// AdamW with `sqrt(v / c2 + eps)`.
fn eps_inside(adamw: &AdamW, at: Parameters<'_>, g: &[f64], rates: &Rates) {
    let Parameters { p, m, v } = at;
    let before: Vec<f64> = p.to_vec();
    References.adamw(adamw, Parameters { p, m, v }, g, rates);
    let [c1, c2] = rates.corrections;
    for i in 0..p.len() {
        let step = rates.lr / c1 * m[i] / (v[i] / c2 + adamw.eps).sqrt();
        p[i] = before[i] * (1.0 - rates.lr * adamw.decay) - step;
    }
}

impl Fault {
    /// An adapter with the mask of another micro-batch.
    fn masked_again<'a>(&self, factors: &Factors<'a>) -> Factors<'a> {
        let mut factors = *factors;
        if let (Fault::DropoutMaskBackward, Some(mask)) = (self, &mut factors.mask) {
            mask.micro += 1000;
        }
        factors
    }

    /// Attention where a token may also see the next one of its row.
    fn seeing<T>(&self, at: &Heads<'_>, attention: impl FnOnce(&Heads<'_>) -> T) -> T {
        if *self != Fault::MaskOffByOne {
            return attention(at);
        }

        let last = |i: usize| {
            at.visible[i + 1..]
                .first()
                .is_none_or(|next| next.start > i)
        };
        let wider = |i: usize| at.visible[i].start..i + 2 - usize::from(last(i));
        let visible: Vec<_> = (0..at.visible.len()).map(wider).collect();
        attention(&Heads {
            visible: &visible,
            ..*at
        })
    }
}

/// In the data.
impl Fault {
    pub(crate) fn weights(&self, setup: &Setup) -> Weights {
        let swapped = |nf4: &Nf4| {
            let packed: Vec<u8> = nf4.packed.iter().map(|byte| byte.rotate_left(4)).collect();
            setup.unpack(&Nf4 {
                packed,
                absmax: nf4.absmax.clone(),
            })
        };
        let without_offset = |nf4: &Nf4| {
            let nested = nested::Nested {
                offset: 0.0,
                ..nested::quantize(&nf4.absmax)
            };
            nf4::dequantize(&nf4.packed, &nested::dequantize(&nested))
        };
        let mut weights = match self {
            Fault::NibbleSwap => setup.weights(&swapped),
            Fault::NestedWithoutOffset => setup.weights(&without_offset),
            _ => setup.weights(&|nf4| setup.unpack(nf4)),
        };
        if *self == Fault::NoBias {
            weights
                .layers
                .iter_mut()
                .for_each(|layer| layer.biases = Default::default());
        }

        weights
    }

    pub(crate) fn pairing(&self) -> RopePairing {
        if *self == Fault::InterleavedRope {
            RopePairing::Interleaved
        } else {
            RopePairing::HalfSplit
        }
    }

    pub(crate) fn training(&self, setup: &Setup) -> Training {
        let unclipped = matches!(self, Fault::NoClip | Fault::PerLayerClip);
        let max_norm = if unclipped {
            f64::INFINITY
        } else {
            setup.training.max_norm
        };
        Training {
            max_norm,
            ..setup.training.clone()
        }
    }

    pub(crate) fn micros(&self, setup: &Setup, step: usize) -> Vec<MicroBatch> {
        let mut micros = setup.micros(if *self == Fault::FrozenBatch { 1 } else { step });
        for micro in &mut micros {
            match self {
                Fault::PaddingInLoss => {
                    micro
                        .labels
                        .iter_mut()
                        .for_each(|label| *label = label.or(Some(0)));
                    micro.n = micro.labels.len();
                }
                Fault::MeanOfMicro => micro.n = micro.labelled() * setup.accum,
                Fault::PackingLeak => {
                    let row = |token: usize| (token / setup.len * setup.len) as u32;
                    micro.starts = (0..micro.ids.len()).map(row).collect();
                }
                _ => (),
            }
        }
        micros
    }
}

/// In the loop.
impl Fault {
    pub(crate) fn step(
        &self,
        setup: &Setup,
        trainer: &mut Trainer<'_>,
        step: usize,
    ) -> Result<Record, Error> {
        let (loss, mut gradients) = trainer.gradients(&self.micros(setup, step))?;
        let before: (Adapters, Moments) = (trainer.adapters.clone(), trainer.moments.clone());
        match self {
            Fault::FrozenStep => trainer.state = State::default(),
            Fault::NoBiasCorrection => trainer.state.corrections = [1.0; 2],
            Fault::PerLayerClip => clip_layers(&mut gradients, setup.training.max_norm),
            _ => (),
        }

        let record = trainer.update(loss, &gradients);
        match self {
            Fault::SkipCaptureStep if step == 1 => (trainer.adapters, trainer.moments) = before,
            Fault::Bf16Master => {
                trainer
                    .adapters
                    .tensors_mut()
                    .flatten()
                    .for_each(|x| *x = Storage::Bf16.round(*x));
            }
            _ => (),
        }

        Ok(record)
    }
}

fn clip_layers(gradients: &mut Adapters, max: f64) {
    for layer in &mut gradients.layers {
        let tensors = layer
            .iter()
            .flatten()
            .flat_map(|adapter| [&adapter.a[..], &adapter.b]);
        let factor = clip::factor(clip::norm(tensors), max);
        let tensors = layer
            .iter_mut()
            .flatten()
            .flat_map(|adapter| [&mut adapter.a, &mut adapter.b]);
        tensors.flatten().for_each(|x| *x *= factor);
    }
}
