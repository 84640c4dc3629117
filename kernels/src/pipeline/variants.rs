//! The shipped variants of the pipeline: combinations of formats and plans, and single exceptions.

use super::add_normed::AddNormed;
use super::advance::Advance;
use super::attention::{PipelinedAttention, WithSinks};
use super::bias::WithBias;
use super::embed::{EmbedRows, EmbedTiled};
use super::experts::down::ExpertDown;
use super::experts::gate_up::{ExpertActivation, ExpertGateUp, WithExpertBiases};
use super::experts::logits::ExpertLogits;
use super::gate_up::GateUp;
use super::gemv::lora::WithLora;
use super::gemv::plan::Plan;
use super::head::LmHead;
use super::head_norm::{AngleSet, HeadNorm};
use super::lora_a::{LoraA, LoraANormed};
use super::pack::Pack;
use super::paged::Paged;
use super::place_drafts::PlaceDrafts;
use super::project::{Project, ProjectOutput};
use super::qkv::{Qkv, QkvOutput};
use super::split_prompt::SplitPrompt;
use crate::format::Format::{self, *};
use crate::format::activations::ActivationBytes;
use crate::harness::sizes::heads;
use crate::harness::variants::Variants;
use crate::simple::choose_experts::Weighting;
use crate::simple::embed::EmbeddingScale;
use crate::simple::rope::Pairing;
use crate::simple::swiglu::Activation;

/// Returns an embedding without a scale of one token.
fn tiles(format: Format) -> EmbedTiled {
    EmbedTiled {
        format,
        overlap: true,
        batch: 1,
        scale: EmbeddingScale::One,
    }
}

/// Returns an embedding without a scale of one token.
fn rows(format: Format) -> EmbedRows {
    EmbedRows {
        format,
        overlap: true,
        batch: 1,
        scale: EmbeddingScale::One,
    }
}

/// Returns the embeddings of all formats.
pub(crate) fn embeddings() -> Variants {
    let mut list = Variants::default();
    list.add(Format::tiled().map(tiles));
    list.add(Format::ALL.map(rows));
    list.add([EmbedTiled {
        overlap: false,
        ..tiles(Q6_K)
    }]);
    list.add([EmbedRows {
        overlap: false,
        ..rows(Q4_K)
    }]);
    list.add([EmbedTiled {
        batch: 8,
        ..tiles(Q6_K)
    }]);
    list.add([EmbedRows {
        batch: 8,
        ..rows(Q4_K)
    }]);
    list
}

/// Returns the embeddings that scale.
pub(crate) fn scaled_embeddings() -> Variants {
    let mut list = Variants::default();
    list.add([EmbedTiled {
        scale: EmbeddingScale::RootOfLength,
        ..tiles(Q8_0)
    }]);
    list.add([EmbedRows {
        batch: 8,
        scale: EmbeddingScale::RootOfLength,
        ..rows(Q6_K)
    }]);
    list
}

/// Returns the kernels of a layer and the LM head, with and without an adapter, and the kernels
/// that distribute the tokens of a batch.
pub(crate) fn layer() -> Variants {
    let mut list = Variants::default();
    list.append(qkv());
    list.append(attention());
    list.append(project());
    list.append(gate_up());
    list.append(experts());
    list.append(head());
    list.append(gpt_oss());
    list.append(lora());
    list.append(paged());
    list.add([8, 1100].map(|batch| SplitPrompt { batch }));
    list.add([2, 8].map(|batch| PlaceDrafts { batch }));
    list
}

/// Returns the kernel that advances the state.
pub(crate) fn advance() -> Variants {
    let mut list = Variants::default();
    list.add([Advance]);
    list
}

/// Returns the kernels that pack tiles.
pub(crate) fn pack() -> Variants {
    let mut list = Variants::default();
    list.add(Format::tiled().map(|format| Pack { format }));
    list
}

/// Returns the projections to queries, keys and values.
fn qkv() -> Variants {
    let mut list = Variants::default();
    use Pairing::*;
    let mixed = [Q4_K, Q4_K, Q6_K];
    let of = Qkv::with_default_plan;
    let with = |plan, qkv| Qkv { plan, ..qkv };
    let raw = |qkv| Qkv {
        output: QkvOutput::Raw,
        ..qkv
    };
    list.add([
        of([Q4_K; 3], Interleaved, false),
        of(mixed, HalfSplit, true),
        of([Q8_0; 3], HalfSplit, false),
        of([BF16; 3], Interleaved, true),
        of([F16; 3], HalfSplit, false),
        of([Q4_0; 3], Interleaved, false),
        of([Q5_K, Q5_K, Q6_K], HalfSplit, true),
        with(
            three(Plan::DEFAULT),
            of([Q2_K, Q2_K, Q3_K], Interleaved, false),
        ),
        of([IQ4_XS, IQ4_XS, Q5_K], HalfSplit, false),
        with(Plan::DEFAULT_ASYNC, of(mixed, HalfSplit, true)),
        with(Plan::HALF_SHORT_ROWS, of([BF16; 3], HalfSplit, true)),
        with(Plan::HALF, of([BF16; 3], Interleaved, false)),
        raw(of(mixed, HalfSplit, false)),
        raw(of([BF16; 3], HalfSplit, true)),
        with(Plan::DEFAULT.with_batch(8), of(mixed, HalfSplit, true)),
        with(Plan::HALF.with_batch(8), of([BF16; 3], Interleaved, false)),
        with(
            three(Plan::DEFAULT.with_batch(8)),
            of([Q2_K, Q2_K, Q4_K], Interleaved, false),
        ),
        raw(with(
            Plan::DEFAULT.with_batch(8),
            of([Q5_K; 3], HalfSplit, false),
        )),
    ]);
    list
}

/// Returns head norms and attention.
fn attention() -> Variants {
    let mut list = Variants::default();
    let norm = |overlap, batch, angles| HeadNorm {
        overlap,
        batch,
        angles,
    };
    let of_two = |index| AngleSet { index, count: 2 };
    list.add(
        [(true, 1), (false, 1), (true, 8)]
            .map(|(overlap, batch)| norm(overlap, batch, AngleSet::ONLY)),
    );
    list.add([(1, 1), (8, 0), (8, 1)].map(|(batch, index)| norm(true, batch, of_two(index))));
    let of = PipelinedAttention::new;
    list.add(
        heads()
            .chain([(128, 9), (128, 16)])
            .map(|(head_dim, queries)| of(head_dim, queries)),
    );
    list.add([
        of(64, 7).with_batch(8),
        of(128, 1).with_batch(3),
        of(128, 4).with_batch(8),
        of(128, 9).with_batch(2),
    ]);
    let sequential = PipelinedAttention::without_overlap;
    list.add([
        sequential(64, 1),
        sequential(128, 4),
        sequential(256, 9),
        sequential(128, 4).with_batch(8),
    ]);
    list.add([
        of(96, 1).with_window(2047),
        of(128, 2).with_window(1024),
        of(256, 2).with_window(1024),
        of(256, 4).with_window(512),
        of(256, 4).with_window(512).with_batch(8),
        sequential(256, 2).with_window(1024),
    ]);
    list
}

/// Returns the projections to the residual stream.
fn project() -> Variants {
    let mut list = Variants::default();
    let project = |format, plan| Project {
        format,
        output: ProjectOutput::Residual,
        plan,
    };
    list.add(Format::tiled().map(|format| project(format, Plan::large(format).after(format))));
    let exceptions = [
        (Q4_K, Plan::TWELVE_WARPS_THROTTLED),
        (Q6_K, Plan::TWELVE_WARPS),
        (Q6_K, Plan::THROTTLED),
        (Q6_K, Plan::TWELVE_WARPS_THROTTLED),
        (BF16, Plan::HALF_SHORT_ROWS),
        (Q4_K, Plan::DEFAULT_ASYNC),
        (Q4_K, Plan::DEFAULT.with_batch(8)),
        (Q4_0, Plan::DEFAULT.with_batch(4)),
        (Q2_K, Plan::DEFAULT.with_batch(4)),
        (Q3_K, three(Plan::THROTTLED)),
        (Q3_K, three(Plan::DEFAULT.with_batch(4))),
        (Q6_K, Plan::DEFAULT.with_batch(8)),
        (F16, Plan::HALF.with_batch(4)),
        (BF16, Plan::HALF_SHORT_ROWS.with_batch(8)),
        (Q4_K, Plan::DEFAULT_ASYNC.with_batch(4)),
        (Q6_K, Plan::TWELVE_WARPS.with_batch(4)),
    ];
    list.add(exceptions.map(|(format, plan)| project(format, plan)));
    let raw = [
        (Q4_K, Plan::THROTTLED),
        (Q8_0, Plan::DEFAULT),
        (BF16, Plan::HALF),
        (Q8_0, Plan::DEFAULT.with_batch(8)),
    ];
    list.add(raw.map(|(format, plan)| Project {
        output: ProjectOutput::Raw,
        ..project(format, plan)
    }));
    list.add(
        [(true, 1), (false, 1), (true, 8)].map(|(overlap, batch)| AddNormed { overlap, batch }),
    );
    list
}

/// Returns the first half of feed-forward networks.
fn gate_up() -> Variants {
    let mut list = Variants::default();
    let gate_up = |format, plan| GateUp {
        format,
        activation: Activation::Silu,
        plan,
    };
    list.add(Format::tiled().map(|format| gate_up(format, Plan::large(format).after(format))));
    let exceptions = [
        (BF16, Plan::HALF_SHORT_ROWS),
        (Q8_0, Plan::DEFAULT_ASYNC),
        (Q4_K, Plan::DEFAULT.with_batch(8)),
        (Q8_0, Plan::DEFAULT.with_batch(8)),
        (MXFP4, Plan::DEFAULT.with_batch(4)),
        (F16, Plan::HALF.with_batch(2)),
    ];
    list.add(exceptions.map(|(format, plan)| gate_up(format, plan)));
    let gelu = [
        (Q4_K, Plan::THROTTLED),
        (Q8_0, Plan::DEFAULT),
        (BF16, Plan::HALF),
        (Q8_0, Plan::DEFAULT.with_batch(8)),
    ];
    let gelu = gelu.map(|(format, plan)| GateUp {
        activation: Activation::GeluTanh,
        ..gate_up(format, plan)
    });
    list.add(gelu);
    list
}

/// Returns the kernels of mixtures of experts.
fn experts() -> Variants {
    let mut list = Variants::default();
    list.add([true, false].map(|overlap| ExpertLogits { overlap }));
    let gate_up = |format| ExpertGateUp {
        format,
        activation: ExpertActivation::Gated(Activation::Silu),
        weighting: Weighting::Chosen,
        per_lane: 2,
        stride: None,
        plan: Plan::large(format),
    };
    list.add(Format::tiled().map(gate_up));
    list.add([
        ExpertGateUp {
            plan: Plan::TWELVE_WARPS,
            per_lane: 4,
            ..gate_up(Q4_K)
        },
        ExpertGateUp {
            activation: ExpertActivation::Gated(Activation::GeluTanh),
            weighting: Weighting::All,
            per_lane: 16,
            ..gate_up(Q8_0)
        },
        ExpertGateUp {
            plan: Plan::HALF_SHORT_ROWS,
            ..gate_up(BF16)
        },
    ]);
    let down = |format, plan| ExpertDown { format, plan };
    list.add(Format::tiled().map(|format| down(format, Plan::large(format))));
    list.add([
        down(Q4_K, Plan::TWELVE_WARPS),
        down(Q6_K, Plan::TWELVE_WARPS),
        down(BF16, Plan::HALF_SHORT_ROWS),
    ]);
    list
}

/// Returns the kernels of what only gpt-oss has: sinks, biases of all projections, the clamped
/// SwiGLU, and rows that are padded to whole tiles.
fn gpt_oss() -> Variants {
    let mut list = Variants::default();
    let of = PipelinedAttention::new;
    list.add(
        [
            of(64, 8),
            of(64, 8).with_window(128),
            of(128, 9),
            of(64, 7).with_batch(2),
            PipelinedAttention::without_overlap(64, 1),
        ]
        .map(WithSinks),
    );
    let padded = |plan: Plan| plan.with_row_len(Some(480));
    list.add([Qkv {
        plan: padded(Plan::DEFAULT),
        ..Qkv::with_default_plan([Q8_0; 3], Pairing::HalfSplit, true)
    }]);
    let project = |format, plan| Project {
        format,
        output: ProjectOutput::Residual,
        plan,
    };
    list.add(
        [
            project(Q8_0, Plan::DEFAULT),
            project(BF16, Plan::HALF_SHORT_ROWS),
        ]
        .map(WithBias),
    );
    list.add([GateUp {
        format: Q8_0,
        activation: Activation::Silu,
        plan: padded(Plan::DEFAULT),
    }]);
    list.add([true, false].map(|overlap| WithBias(ExpertLogits { overlap })));
    let gate_up = |format, plan| ExpertGateUp {
        format,
        activation: ExpertActivation::ClampedSwiglu,
        weighting: Weighting::Chosen,
        per_lane: 1,
        stride: None,
        plan,
    };
    list.add([
        WithExpertBiases(ExpertGateUp {
            stride: Some(64),
            ..gate_up(MXFP4, padded(Plan::DEFAULT))
        }),
        WithExpertBiases(gate_up(F16, Plan::HALF)),
    ]);
    let down = |format, plan| ExpertDown { format, plan };
    list.add([down(MXFP4, Plan::DEFAULT), down(F16, Plan::HALF)].map(WithBias));
    list.add([LmHead {
        format: Q8_0,
        plan: padded(Plan::DEFAULT),
    }]);
    list
}

/// Returns the LM heads.
fn head() -> Variants {
    let mut list = Variants::default();
    list.add(Format::tiled().map(|format| LmHead {
        format,
        plan: Plan::large(format),
    }));
    let exceptions = [
        (BF16, Plan::DEFAULT_ASYNC),
        (Q6_K, Plan::DEFAULT.with_batch(8)),
        (BF16, Plan::HALF.with_batch(4)),
    ];
    list.add(exceptions.map(|(format, plan)| LmHead { format, plan }));
    list
}

/// Returns the kernels with an adapter: each epilogue, each way to copy, one token and several.
fn lora() -> Variants {
    let mut list = Variants::default();
    let sets = [(true, 1), (false, 1), (true, 8)];
    list.add(sets.map(|(overlap, batch)| LoraA { overlap, batch }));
    list.add(sets.map(|(overlap, batch)| LoraANormed { overlap, batch }));
    let mixed = Qkv::with_default_plan([Q4_K, Q4_K, Q6_K], Pairing::HalfSplit, true);
    let raw = Qkv {
        bias: false,
        output: QkvOutput::Raw,
        ..mixed
    };
    let qkv = [
        mixed,
        Qkv {
            plan: Plan::DEFAULT_ASYNC,
            ..mixed
        },
        Qkv {
            plan: Plan::DEFAULT.with_batch(8),
            ..mixed
        },
        Qkv::with_default_plan([Q4_K; 3], Pairing::Interleaved, false),
        Qkv {
            plan: Plan::HALF,
            ..Qkv::with_default_plan([BF16; 3], Pairing::Interleaved, false)
        },
        raw,
    ];
    list.add(qkv.map(WithLora));
    let project = |format, output, plan| Project {
        format,
        output,
        plan,
    };
    let project = [
        project(Q4_K, ProjectOutput::Residual, Plan::THROTTLED),
        project(Q6_K, ProjectOutput::Residual, Plan::TWELVE_WARPS_THROTTLED),
        project(Q6_K, ProjectOutput::Residual, Plan::DEFAULT.with_batch(8)),
        project(BF16, ProjectOutput::Residual, Plan::HALF),
        project(Q4_K, ProjectOutput::Residual, Plan::DEFAULT_ASYNC),
        project(Q8_0, ProjectOutput::Raw, Plan::DEFAULT),
    ];
    list.add(project.map(WithLora));
    let gate_up = |format, activation, plan| GateUp {
        format,
        activation,
        plan,
    };
    let gate_up = [
        gate_up(Q4_K, Activation::Silu, Plan::THROTTLED),
        gate_up(Q4_K, Activation::Silu, Plan::DEFAULT.with_batch(8)),
        gate_up(BF16, Activation::GeluTanh, Plan::HALF),
    ];
    list.add(gate_up.map(WithLora));
    list
}

/// Returns the kernels over a paged cache: each epilogue that appends, and attention with one split
/// and several, groups, windows and batches.
fn paged() -> Variants {
    let mut list = Variants::default();
    use Pairing::*;
    let mixed = Qkv::with_default_plan([Q4_K, Q4_K, Q6_K], HalfSplit, true);
    let qkv = [
        mixed,
        Qkv::with_default_plan([Q4_K; 3], Interleaved, false),
        Qkv {
            plan: Plan::HALF,
            ..Qkv::with_default_plan([BF16; 3], Interleaved, false)
        },
        Qkv {
            plan: Plan::DEFAULT_ASYNC,
            ..mixed
        },
        Qkv {
            plan: Plan::DEFAULT.with_batch(8),
            ..mixed
        },
    ];
    list.add(qkv.map(Paged));
    let norm = |overlap, batch| HeadNorm {
        overlap,
        batch,
        angles: AngleSet::ONLY,
    };
    list.add([norm(true, 1), norm(false, 1), norm(true, 8)].map(Paged));
    let of = PipelinedAttention::new;
    let attention = [
        of(64, 1),
        of(64, 7),
        of(128, 4),
        of(128, 9),
        of(256, 4).with_window(512),
        of(128, 4).with_batch(8),
        of(64, 7).with_batch(2),
        PipelinedAttention::without_overlap(128, 4),
    ];
    list.add(attention.map(Paged));
    list
}

/// Returns the plan with three bytes per activation.
fn three(plan: Plan) -> Plan {
    Plan {
        bytes: ActivationBytes::Three,
        ..plan
    }
}
