//! Faults, planted in what a device runs: in its kernels, or in an argument of a launch.
//!
//! A faulty kernel has name, arguments and launch contract of the one that it stands in for, so the step launches it
//! without knowing ([`hooked`](crate::hooked)). Most run the right program and change what goes into it, or what came
//! out of it.

mod attention;
mod batch;
mod optimizer;
mod parts;

use ptx_gen::{AnyKernel, Builder, Cpu, Dev, Grid, KernelDef, Shape, ShapeError, Side};
use warpwright_kernels::Pairing;
use warpwright_kernels::train::attention::{
    DocumentAttention, KeyGradients, QueryGradients, SumGroups,
};
use warpwright_kernels::train::dropout::AddMasked;
use warpwright_kernels::train::linear::BroadcastRow;
use warpwright_kernels::train::nf4::Nf4Dequantize;
use warpwright_kernels::train::optimizer::adamw::AdamWUpdate;
use warpwright_kernels::train::optimizer::clip::SquareSums;
use warpwright_kernels::train::optimizer::micro_batch::FetchMicroBatch;
use warpwright_kernels::train::optimizer::schedule::Decay;
use warpwright_kernels::train::optimizer::state::EndStep;
use warpwright_kernels::train::products::{MatmulLayout, Product};
use warpwright_kernels::train::rms_norm::RmsNormBackward;
use warpwright_kernels::train::rope::{Direction, RotateHeads};
use warpwright_kernels::train::swiglu::SwiGluBackward;

use crate::hooked::{Argument, Changes};
use crate::planted::Fault;
use crate::setup::Setup;
use attention::{Backward, Forward};
use batch::{Fetch, List};
use optimizer::{End, Update};
use parts::{Groups, NormBackward, Rotated};

/// A kernel with another program. Its argument list, name and launch contract are the kernel's.
pub(crate) struct Faulty<K, P> {
    kernel: K,
    program: P,
}

/// What a faulty kernel does.
pub(crate) trait Program<K: KernelDef>: Sync {
    /// Appends the program to `k`.
    fn program<'k>(&self, kernel: &K, k: Builder<'k>, a: K::Args<Dev<'k>>);
}

impl<K: KernelDef, P: Program<K>> KernelDef for Faulty<K, P> {
    type Args<S: Side> = K::Args<S>;

    fn name(&self) -> String {
        KernelDef::name(&self.kernel)
    }

    fn block(&self) -> u32 {
        KernelDef::block(&self.kernel)
    }

    fn grid(&self, a: &K::Args<Shape>) -> Result<Grid, ShapeError> {
        self.kernel.grid(a)
    }

    fn program<'k>(&self, k: Builder<'k>, a: K::Args<Dev<'k>>) {
        self.program.program(&self.kernel, k, a);
    }

    fn reference(&self, _: K::Args<Cpu<'_>>) {
        unreachable!("a faulty kernel has none");
    }
}

/// As `train/src/step/kernels.rs` has them; otherwise no kernel has the name, and the test says so.
const THREADS: u32 = 256;
const SLOTS: u32 = 4;

fn faulty<K: KernelDef + 'static, P: Program<K> + 'static>(
    kernel: K,
    program: P,
) -> Box<dyn AnyKernel> {
    Box::new(Faulty { kernel, program })
}

/// Where a fault is planted: a phrase for the table, and the changes.
pub(crate) struct Site {
    pub(crate) place: &'static str,
    pub(crate) changes: Changes,
}

fn site(place: &'static str, kernels: Vec<Box<dyn AnyKernel>>) -> Site {
    Site {
        place,
        changes: Changes {
            kernels,
            argument: None,
        },
    }
}

impl Fault {
    /// Where it is in what a device runs of this setup; none if it is in the host's part.
    pub(crate) fn site(self, setup: &Setup) -> Option<Site> {
        self.in_the_step(setup)
            .or_else(|| self.in_attention(setup))
            .or_else(|| self.in_a_layer(setup))
    }

    /// In what is around the layers: batch, loop and optimizer.
    fn in_the_step(self, setup: &Setup) -> Option<Site> {
        let end = |program: End| {
            faulty(
                EndStep {
                    decay: Decay::Cosine,
                },
                program,
            )
        };
        let update = |program: Update| faulty(AdamWUpdate { threads: THREADS }, program);
        let fetch = |program: Fetch| {
            faulty(
                FetchMicroBatch {
                    threads: THREADS,
                    slots: SLOTS,
                },
                program,
            )
        };
        let (row, accum) = (setup.len as u32, setup.accum as u32);
        Some(match self {
            Fault::FrozenStep => site("kernel: end of the step", vec![end(End::FirstStep)]),
            Fault::SkipCaptureStep => site("kernel: end of the step", vec![end(End::FirstSkipped)]),
            Fault::FrozenBatch => site("kernel: fetch of the batch", vec![fetch(Fetch::First)]),
            Fault::PerLayerClip => site(
                "kernels: sums of squares, end of the step, AdamW",
                vec![
                    faulty(SquareSums { threads: THREADS }, optimizer::ByLayer),
                    end(End::ClipByLayer),
                    update(Update::ClipByLayer),
                ],
            ),
            Fault::NoClip => site(
                "kernel: end of the step, of an infinite `max_norm`",
                vec![end(End::NoClip)],
            ),
            Fault::Bf16Master => site("kernel: AdamW", vec![update(Update::Bf16)]),
            Fault::NoBiasCorrection => {
                site("kernel: end of the step", vec![end(End::NoCorrections)])
            }
            Fault::EpsInside => site("kernel: AdamW", vec![update(Update::EpsInside)]),
            Fault::L2Decay => site("kernel: AdamW", vec![update(Update::L2)]),
            Fault::PaddingInLoss => site(
                "kernel: fetch of the batch",
                vec![fetch(Fetch::All(List::Labels))],
            ),
            Fault::PackingLeak => site(
                "kernel: fetch of the batch",
                vec![fetch(Fetch::All(List::Starts { row }))],
            ),
            Fault::MeanOfMicro => site(
                "kernel: fetch of the batch",
                vec![fetch(Fetch::OwnMean { accum })],
            ),
            Fault::DropoutMaskBackward => Site {
                place: "kernel: mask, and an argument of its launches in the backward",
                changes: Changes {
                    kernels: vec![faulty(AddMasked { threads: THREADS }, parts::OtherMask)],
                    argument: Some(MASK_OF_THE_BACKWARD),
                },
            },
            _ => return None,
        })
    }

    /// In attention, RoPE among it.
    fn in_attention(self, setup: &Setup) -> Option<Site> {
        let head_dim = setup.config.head_dim as u32;
        let queries = |program: Backward| faulty(QueryGradients { head_dim }, program);
        let keys = |program: Backward| faulty(KeyGradients { head_dim }, program);
        let rotate = |direction| RotateHeads {
            pairing: Pairing::HalfSplit,
            direction,
        };
        let back = |program: Rotated| faulty(rotate(Direction::Backward), program);
        let interleaved = |direction| {
            let other = RotateHeads {
                pairing: Pairing::Interleaved,
                direction,
            };
            faulty(rotate(direction), Rotated::As(other))
        };
        let (group, of_both) = (
            "kernel: sum of a group",
            "kernels: gradients of queries, of keys",
        );
        Some(match self {
            Fault::NoDelta => site(
                "kernel: gradients of queries",
                vec![queries(Backward::NoDelta)],
            ),
            Fault::NoScoreScaleBackward => site(
                of_both,
                vec![queries(Backward::Unscaled), keys(Backward::Unscaled)],
            ),
            Fault::MaskOffByOne => site(
                "kernels: attention, gradients of queries, of keys",
                vec![
                    faulty(DocumentAttention { head_dim }, Forward),
                    queries(Backward::SeesNext),
                    keys(Backward::SeesNext),
                ],
            ),
            Fault::GroupFirst => site(group, vec![faulty(SumGroups, Groups::First)]),
            Fault::GroupMean => site(group, vec![faulty(SumGroups, Groups::Mean)]),
            Fault::NoRopeBackward => site(
                "kernel: RoPE backward, of no token",
                vec![back(Rotated::Nothing)],
            ),
            Fault::RopeBackwardSign => site(
                "kernel: RoPE backward",
                vec![back(Rotated::As(rotate(Direction::Forward)))],
            ),
            Fault::InterleavedRope => {
                let both = [Direction::Forward, Direction::Backward].map(interleaved);
                site("kernels: RoPE, both ways", both.into())
            }
            _ => return None,
        })
    }

    /// In another operation of the layers.
    fn in_a_layer(self, setup: &Setup) -> Option<Site> {
        let norm = |program: NormBackward| {
            let kernel = RmsNormBackward { threads: THREADS };
            site("kernel: RMSNorm backward", vec![faulty(kernel, program)])
        };
        Some(match self {
            Fault::DropAttentionSkip => norm(NormBackward::Replaces(attention_gains(setup))),
            Fault::NormBackwardWithoutMean => norm(NormBackward::WithoutMean),
            Fault::SiluBackward => {
                let kernel = SwiGluBackward { threads: THREADS };
                site(
                    "kernel: SwiGLU backward",
                    vec![faulty(kernel, parts::SlopeOfSigmoid)],
                )
            }
            Fault::LoraScaleBackward => {
                let program = parts::Unscaled {
                    rank: setup.lora.rank as u32,
                };
                site(
                    "kernel: product NN",
                    vec![faulty(
                        Product {
                            form: MatmulLayout::Nn,
                            width: 4,
                        },
                        program,
                    )],
                )
            }
            Fault::NoBias => site(
                "kernel: rows of the bias",
                vec![faulty(BroadcastRow, parts::Zeros)],
            ),
            Fault::NibbleSwap => {
                let kernel = Nf4Dequantize { threads: THREADS };
                site(
                    "kernel: NF4 to f32",
                    vec![faulty(kernel, parts::SwappedNibbles)],
                )
            }
            _ => return None,
        })
    }
}

/// The number of an input, from the last kernel of the head on to the end of the micro-batch.
const MASK_OF_THE_BACKWARD: Argument = Argument {
    kernel: "train_add_masked",
    count: 7,
    index: 5,
    add: parts::OTHER,
    between: ["train_logit_gradients", "train_end_micro_batch"],
};

/// The first gain of each norm before attention: by it a kernel knows which norm it is.
fn attention_gains(setup: &Setup) -> Vec<f32> {
    let weights = setup.weights(&|nf4| setup.unpack(nf4));
    weights
        .layers
        .iter()
        .map(|layer| layer.attention_norm[0] as f32)
        .collect()
}
