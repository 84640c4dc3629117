//! The list of shipped kernels: the combinations of formats and plans, and single exceptions.

use std::sync::LazyLock;

use crate::batch::{BatchAttention, ChooseTokens, GatherRows};
use crate::format::activations::ActivationBytes;
use crate::format::dequantize::ColumnOrder;
use crate::format::tile::RowOrder;
use crate::matmul::{
    Append, DequantizeTiles, Epilogue, Matmul, MatmulPair, MatmulSync, NormTokens, RowBounds,
    SmShare,
};
use crate::overlap::Overlap;
use crate::pipeline::{
    AngleSet, EmbedRows, EmbedTiled, GateUp, HeadNorm, LmHead, LoraA, LoraANormed, Pack,
    PipelinedAttention, PlaceDrafts, Plan, Project, ProjectOutput, Qkv, QkvOutput, SplitPrompt,
    WithLora,
};
use crate::prompt::{ChunkItems, PromptAttention, PromptAttentionWgmma, RotateTokens};
use crate::sample::{AllowTokens, SampleAdjust, SampleGather, SampleToken};
use crate::simple::attention::{Attention, AttentionCombine};
use crate::tiled::ProductTile;
use crate::train::adamw::AdamWUpdate;
use crate::train::attention::{DocumentAttention, KeyGradients, QueryGradients, SumGroups};
use crate::train::clip::SquareSums;
use crate::train::cross_entropy::{LogitGradients, TokenLosses};
use crate::train::dropout::AddMasked;
use crate::train::embed::EmbedTokens;
use crate::train::flash::{FlashForward, FlashKeys, FlashQueries, SummedHeads, TensorOp};
use crate::train::half::linear::{Logits, LoraLinear, LoraSum, LoraSwiGlu, LoraSwiGluBackward};
use crate::train::half::lora::{LoraDown, LoraGradients};
use crate::train::half::rotate::{HeadsBackward, RotateForward};
use crate::train::half::{
    convert, cross_entropy as logits, embed as tokens, nested as unpack, norm, swiglu,
};
use crate::train::linear::BroadcastRow;
use crate::train::micro_batch::FetchMicroBatch;
use crate::train::nested::NestedDequantize;
use crate::train::nf4::Nf4Dequantize;
use crate::train::products::{self, Product};
use crate::train::rms_norm::{RmsNormBackward, RmsNormForward};
use crate::train::rope::{Direction, RotateHeads};
use crate::train::schedule::Decay;
use crate::train::state::{EndMicroBatch, EndStep};
use crate::train::swiglu::SwiGluBackward;
use crate::{
    Activation, AddNormed, Advance, ArgmaxBlocks, ArgmaxFinal, Embed, EmbeddingScale, Format, Gemv,
    GemvAdd, GemvBias, LogLikelihood, Multiply, Pairing, Read, RmsNorm, Rope, SwiGlu, Team,
    Variant,
};
use Format::*;

/// Every shipped variant: the kernels of a forward pass in order, then packing and measuring, then
/// training.
///
/// A model may need other variants, for its own formats, head lengths and plans, because kernels
/// are generated when a model is loaded. The list combines each format with each kernel, and each
/// plan with at least one format.
pub static ALL: LazyLock<Vec<&'static dyn Variant>> = LazyLock::new(|| {
    let mut list = List(Vec::new());
    list.embeddings();
    list.simple();
    list.qkv();
    list.attention();
    list.project();
    list.gate_up();
    list.head();
    list.lora();
    list.rest();
    list.train();
    list.0
});

/// Returns the formats that can be packed into tiles.
fn tiled() -> impl Iterator<Item = Format> {
    Format::ALL
        .into_iter()
        .filter(|format| format.tile().is_some())
}

struct List(Vec<&'static dyn Variant>);

impl List {
    /// Adds kernels, which live as long as the program.
    fn add<K: Variant + 'static>(&mut self, kernels: impl IntoIterator<Item = K>) {
        self.0.extend(
            kernels
                .into_iter()
                .map(|kernel| Box::leak(Box::new(kernel)) as &dyn Variant),
        );
    }

    fn embeddings(&mut self) {
        let one = EmbeddingScale::One;
        let root = EmbeddingScale::RootOfLength;
        let tiles = |format| EmbedTiled {
            format,
            overlap: true,
            batch: 1,
            scale: one,
        };
        let rows = |format| EmbedRows {
            format,
            overlap: true,
            batch: 1,
            scale: one,
        };
        self.add(Format::ALL.map(|format| Embed { format, scale: one }));
        self.add(tiled().map(tiles));
        self.add(Format::ALL.map(rows));
        self.add([EmbedTiled {
            overlap: false,
            ..tiles(Q6_K)
        }]);
        self.add([EmbedRows {
            overlap: false,
            ..rows(Q4_K)
        }]);
        self.add([EmbedTiled {
            batch: 8,
            ..tiles(Q6_K)
        }]);
        self.add([EmbedRows {
            batch: 8,
            ..rows(Q4_K)
        }]);
        self.add([Embed {
            format: Q8_0,
            scale: root,
        }]);
        self.add([EmbedTiled {
            scale: root,
            ..tiles(Q8_0)
        }]);
        self.add([EmbedRows {
            batch: 8,
            scale: root,
            ..rows(Q6_K)
        }]);
    }

    fn simple(&mut self) {
        let teams = || {
            Format::ALL
                .into_iter()
                .flat_map(|format| [Team::Warp, Team::Block].map(|t| (format, t)))
        };
        self.add([RmsNorm { threads: 256 }, RmsNorm { threads: 1024 }]);
        self.add(teams().map(|(format, team)| Gemv { format, team }));
        self.add(teams().map(|(format, team)| GemvBias { format, team }));
        self.add(teams().map(|(format, team)| GemvAdd { format, team }));
        let rope = |pairing, magnitude| Rope { pairing, magnitude };
        self.add([
            rope(Pairing::Interleaved, 1.0),
            rope(Pairing::HalfSplit, 1.0),
        ]);
        self.add([rope(Pairing::HalfSplit, 1.190_238_1)]);
        let attention = |(head_dim, queries), window| Attention {
            head_dim,
            queries,
            window,
        };
        self.add(heads().map(|heads| attention(heads, None)));
        let windows = [(96, 1, 2047), (128, 2, 1024), (256, 2, 1024), (256, 4, 512)];
        self.add(
            windows.map(|(head_dim, queries, window)| attention((head_dim, queries), Some(window))),
        );
        self.add(HEADS.map(|(head_dim, _)| AttentionCombine { head_dim }));
        self.add([
            LogLikelihood { threads: 256 },
            LogLikelihood { threads: 1024 },
        ]);
    }

    fn qkv(&mut self) {
        use Pairing::*;
        let mixed = [Q4_K, Q4_K, Q6_K];
        let of = Qkv::with_default_plan;
        let with = |plan, qkv| Qkv { plan, ..qkv };
        let raw = |qkv| Qkv {
            output: QkvOutput::Raw,
            ..qkv
        };
        self.add([
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
    }

    fn attention(&mut self) {
        let norm = |overlap, batch, angles| HeadNorm {
            overlap,
            batch,
            angles,
        };
        let of_two = |index| AngleSet { index, count: 2 };
        self.add(
            [(true, 1), (false, 1), (true, 8)]
                .map(|(overlap, batch)| norm(overlap, batch, AngleSet::ONLY)),
        );
        self.add([(1, 1), (8, 0), (8, 1)].map(|(batch, index)| norm(true, batch, of_two(index))));
        let of = PipelinedAttention::new;
        self.add(
            heads()
                .chain([(128, 9), (128, 16)])
                .map(|(head_dim, queries)| of(head_dim, queries)),
        );
        self.add([
            of(64, 7).with_batch(8),
            of(128, 1).with_batch(3),
            of(128, 4).with_batch(8),
            of(128, 9).with_batch(2),
        ]);
        let sequential = PipelinedAttention::without_overlap;
        self.add([
            sequential(64, 1),
            sequential(128, 4),
            sequential(256, 9),
            sequential(128, 4).with_batch(8),
        ]);
        self.add([
            of(96, 1).with_window(2047),
            of(128, 2).with_window(1024),
            of(256, 2).with_window(1024),
            of(256, 4).with_window(512),
            of(256, 4).with_window(512).with_batch(8),
            sequential(256, 2).with_window(1024),
        ]);
    }

    fn project(&mut self) {
        let project = |format, plan| Project {
            format,
            output: ProjectOutput::Residual,
            plan,
        };
        self.add(tiled().map(|format| project(format, Plan::large(format).after(format))));
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
        self.add(exceptions.map(|(format, plan)| project(format, plan)));
        let raw = [
            (Q4_K, Plan::THROTTLED),
            (Q8_0, Plan::DEFAULT),
            (BF16, Plan::HALF),
            (Q8_0, Plan::DEFAULT.with_batch(8)),
        ];
        self.add(raw.map(|(format, plan)| Project {
            output: ProjectOutput::Raw,
            ..project(format, plan)
        }));
        self.add(
            [(true, 1), (false, 1), (true, 8)].map(|(overlap, batch)| AddNormed { overlap, batch }),
        );
    }

    fn gate_up(&mut self) {
        let gate_up = |format, plan| GateUp {
            format,
            activation: Activation::Silu,
            plan,
        };
        self.add(tiled().map(|format| gate_up(format, Plan::large(format).after(format))));
        let exceptions = [
            (BF16, Plan::HALF_SHORT_ROWS),
            (Q8_0, Plan::DEFAULT_ASYNC),
            (Q4_K, Plan::DEFAULT.with_batch(8)),
            (Q8_0, Plan::DEFAULT.with_batch(8)),
            (MXFP4, Plan::DEFAULT.with_batch(4)),
            (F16, Plan::HALF.with_batch(2)),
        ];
        self.add(exceptions.map(|(format, plan)| gate_up(format, plan)));
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
        self.add(gelu);
    }

    fn head(&mut self) {
        self.add(tiled().map(|format| LmHead {
            format,
            plan: Plan::large(format),
        }));
        let exceptions = [
            (BF16, Plan::DEFAULT_ASYNC),
            (Q6_K, Plan::DEFAULT.with_batch(8)),
            (BF16, Plan::HALF.with_batch(4)),
        ];
        self.add(exceptions.map(|(format, plan)| LmHead { format, plan }));
    }

    fn sample(&mut self) {
        self.add([true, false].map(|overlap| AllowTokens { overlap }));
        self.add([true, false].map(|overlap| SampleAdjust { overlap }));
        self.add([true, false].map(|overlap| SampleGather { overlap }));
        self.add([true, false].map(|overlap| SampleToken { overlap }));
    }

    /// Adds the kernels with an adapter: each epilogue, each way to copy, one token and several.
    fn lora(&mut self) {
        let sets = [(true, 1), (false, 1), (true, 8)];
        self.add(sets.map(|(overlap, batch)| LoraA { overlap, batch }));
        self.add(sets.map(|(overlap, batch)| LoraANormed { overlap, batch }));
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
        self.add(qkv.map(WithLora));
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
        self.add(project.map(WithLora));
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
        self.add(gate_up.map(WithLora));
    }

    fn rest(&mut self) {
        self.add([8, 1100].map(|batch| SplitPrompt { batch }));
        self.add([2, 8].map(|batch| PlaceDrafts { batch }));
        let activations = [Activation::Silu, Activation::GeluTanh];
        self.add(activations.map(|activation| SwiGlu {
            threads: 256,
            activation,
        }));
        self.add([ArgmaxBlocks { threads: 256 }]);
        self.add([ArgmaxFinal]);
        self.add([Advance]);
        self.sample();
        self.add(tiled().map(|format| Pack { format }));
        self.add(tiled().map(|format| DequantizeTiles { format }));
        self.add(tiled().map(|format| RowBounds { format }));
        let order = |group| ColumnOrder { group };
        let norm = |group, second: Option<u32>| NormTokens {
            order: order(group),
            second: second.map(order),
            overlap: Overlap::No,
        };
        self.matmul(order);
        self.prompt(order);
        self.batch(order);
        self.add([
            norm(8, None),
            norm(16, None),
            norm(32, None),
            norm(32, Some(16)),
        ]);
        self.add([NormTokens {
            overlap: Overlap::Early,
            ..norm(32, Some(16))
        }]);
        self.add(Read::ALL);
        self.add(Multiply::ALL);
    }
}

impl List {
    fn train(&mut self) {
        let threads = 256;
        self.add([Nf4Dequantize { threads }]);
        self.add([NestedDequantize { threads }]);
        self.add([RmsNormForward { threads }]);
        self.add([RmsNormBackward { threads }]);
        self.add([SwiGluBackward { threads }]);
        let dims = [16, 80, 128];
        self.add(dims.map(|head_dim| DocumentAttention { head_dim }));
        self.add(dims.map(|head_dim| QueryGradients { head_dim }));
        self.add(dims.map(|head_dim| KeyGradients { head_dim }));
        self.add([SumGroups]);
        self.flash();
        self.add([TokenLosses { threads }]);
        self.add([LogitGradients { threads }]);
        self.add([AdamWUpdate { threads }]);
        self.add([FetchMicroBatch { threads, slots: 4 }]);
        self.add([EmbedTokens { threads }]);
        self.add([BroadcastRow]);
        self.add([AddMasked { threads }]);
        self.add([EndMicroBatch { threads }]);
        self.add([SquareSums { threads }]);
        self.add([Decay::Cosine, Decay::Linear, Decay::Constant].map(|decay| EndStep { decay }));
        let forms = [
            products::MatmulLayout::Nt,
            products::MatmulLayout::Nn,
            products::MatmulLayout::Tn,
        ];
        self.add(
            forms
                .into_iter()
                .flat_map(|form| [1, 4].map(|width| Product { form, width })),
        );
        let pairings = [Pairing::Interleaved, Pairing::HalfSplit];
        let directions = [Direction::Forward, Direction::Backward];
        let rotate = |pairing| directions.map(|direction| RotateHeads { pairing, direction });
        self.add(pairings.into_iter().flat_map(rotate));
        self.train_in_bf16();
    }

    fn train_in_bf16(&mut self) {
        let [a, b, ..] = ProductTile::ALL.map(ProductTile::in_pairs);
        for tile in ProductTile::ALL.into_iter().chain([a, b]) {
            let linear = |form| LoraLinear {
                form,
                tile,
                bias: false,
                residual: false,
            };
            let [nt, nn] = [products::MatmulLayout::Nt, products::MatmulLayout::Nn].map(linear);
            self.add([
                nt,
                LoraLinear { bias: true, ..nt },
                LoraLinear {
                    residual: true,
                    ..nt
                },
            ]);
            self.add([
                nn,
                LoraLinear {
                    residual: true,
                    ..nn
                },
            ]);
            self.add([LoraSwiGlu { tile }]);
            self.add([LoraSum { tile }]);
            self.add([LoraSwiGluBackward { tile }]);
        }
        self.add([Logits]);
        self.add([16, 48, 128].map(|rank| LoraDown { rank }));
        self.add([16, 48, 64, 128].map(|rank| LoraGradients { rank }));
        let threads = 256;
        self.add([tokens::EmbedTokens { threads }]);
        self.add([norm::RmsNormForward { threads }]);
        self.add([norm::RmsNormBackward { threads }]);
        self.add([swiglu::SwiGluForward { threads }]);
        self.add([swiglu::SwiGluBackward { threads }]);
        self.add([logits::LogitGradients { threads }]);
        self.add([convert::Round]);
        self.add([convert::Nf4Dequantize]);
        self.add([unpack::NestedDequantize]);
        self.add([false, true].map(|add| convert::ApplyMask { add }));
        let rotate = |head_dim, pairing, norm| RotateForward {
            head_dim,
            pairing,
            norm,
        };
        let back = |head_dim, pairing, norm| HeadsBackward {
            head_dim,
            pairing,
            norm,
        };
        use Pairing::*;
        self.add([
            rotate(64, HalfSplit, false),
            rotate(128, Interleaved, false),
            rotate(128, HalfSplit, true),
        ]);
        self.add([
            back(64, Some(HalfSplit), false),
            back(128, Some(Interleaved), false),
        ]);
        self.add([back(128, Some(HalfSplit), true), back(80, None, false)]);
    }

    /// Adds the kernels of FlashAttention. Short heads come first, because a snapshot shows a
    /// section as the first kernel contains it.
    fn flash(&mut self) {
        let of = FlashForward::new;
        self.add([of(16), of(48), of(64), of(128), of(64).with_queries(128)]);
        self.add([64, 128].map(|head_dim| of(head_dim).with_op(TensorOp::Wgmma)));
        let of = FlashQueries::new;
        self.add([of(16), of(48), of(64), of(128), of(128).with_queries(128)]);
        self.add([64, 128].map(|head_dim| of(head_dim).with_op(TensorOp::Wgmma)));
        let of = |head_dim, parts| FlashKeys {
            head_dim,
            parts,
            op: TensorOp::Mma,
        };
        self.add([16, 48, 64, 128].map(|head_dim| of(head_dim, SummedHeads::Heads)));
        self.add([16, 128].map(|head_dim| of(head_dim, SummedHeads::Groups)));
        let together = |kernel| FlashKeys {
            op: TensorOp::Wgmma,
            ..kernel
        };
        self.add(
            [
                of(64, SummedHeads::Heads),
                of(128, SummedHeads::Heads),
                of(128, SummedHeads::Groups),
            ]
            .map(together),
        );
    }

    fn prompt(&mut self, order: impl Fn(u32) -> ColumnOrder) {
        use Pairing::*;
        let rotate = |head_dim, pairing, bias, norm| RotateTokens {
            head_dim,
            pairing,
            bias,
            norm,
            overlap: Overlap::No,
        };
        self.add([
            RotateTokens {
                overlap: Overlap::Early,
                ..rotate(128, HalfSplit, true, true)
            },
            rotate(128, Interleaved, false, false),
            rotate(64, Interleaved, false, false),
            rotate(80, HalfSplit, true, false),
            rotate(96, HalfSplit, false, false),
            rotate(128, HalfSplit, true, false),
            rotate(128, HalfSplit, false, true),
            rotate(256, HalfSplit, true, true),
        ]);
        self.add([64, 128].map(|queries| ChunkItems { queries }));
        let of = |head_dim, group| PromptAttention::new(head_dim, order(group));
        self.add([
            of(64, 8),
            of(64, 32).with_queries(64),
            of(80, 16),
            of(96, 32),
            of(128, 16),
            of(128, 32).with_queries(64),
            of(128, 8).with_window(100),
            of(256, 32),
            of(256, 16).with_window(512),
        ]);
        let of = |head_dim, group| PromptAttentionWgmma::new(head_dim, order(group));
        self.add([
            of(64, 8),
            of(128, 16),
            of(128, 32),
            of(64, 32).with_window(100),
            of(128, 8).with_window(200),
        ]);
    }

    fn batch(&mut self, order: impl Fn(u32) -> ColumnOrder) {
        let of = |head_dim, queries, group| BatchAttention::new(head_dim, queries, order(group));
        self.add([
            of(64, 1, 8),
            of(64, 7, 32),
            of(64, 20, 16),
            of(80, 1, 16),
            of(96, 1, 32),
            of(128, 1, 16),
            of(128, 4, 32),
            BatchAttention {
                overlap: Overlap::Early,
                ..of(128, 4, 32)
            },
            of(128, 16, 8),
            of(128, 2, 8).with_window(100),
            of(256, 4, 32),
            of(256, 2, 16).with_window(512),
        ]);
        self.add([GatherRows]);
        self.add([ChooseTokens]);
    }

    fn matmul(&mut self, order: impl Fn(u32) -> ColumnOrder) {
        let of = |format, epilogue| Matmul::new(format, epilogue, RowOrder::PLAIN, 64);
        self.add(tiled().map(|format| of(format, Epilogue::Add)));
        self.add([Matmul {
            tokens: 256,
            ..of(Q6_K, Epilogue::Add)
        }]);
        self.add([Matmul {
            rows: RowOrder::half_split(128),
            tokens: 256,
            ..of(Q4_K, Epilogue::Store)
        }]);
        let gated = |activation, group| Epilogue::Gated(activation, order(group));
        let gate_up = |format, epilogue| Matmul {
            rows: RowOrder::GATE_UP,
            tokens: 128,
            ..of(format, epilogue)
        };
        self.add([
            gate_up(Q4_K, gated(Activation::Silu, 16)),
            gate_up(Q8_0, gated(Activation::Silu, 32)),
            Matmul {
                tokens: 256,
                tail: 128,
                ..gate_up(Q4_K, gated(Activation::Silu, 16))
            },
            gate_up(BF16, gated(Activation::GeluTanh, 8)),
        ]);
        let narrow = |tokens, split, matmul| Matmul {
            tokens,
            split,
            overlap: Overlap::Early,
            ..matmul
        };
        let half = |matmul| Matmul {
            form: SmShare::Half,
            ..matmul
        };
        self.add([
            half(narrow(8, 1, gate_up(Q4_K, gated(Activation::Silu, 32)))),
            narrow(16, 2, gate_up(Q4_K, gated(Activation::Silu, 32))),
            narrow(8, 4, of(Q4_K, Epilogue::Store)),
            Matmul {
                overlap: Overlap::Late,
                ..narrow(16, 4, of(Q4_K, Epilogue::Add))
            },
            narrow(32, 3, of(Q6_K, Epilogue::Add)),
            half(narrow(16, 8, of(BF16, Epilogue::Add))),
            Matmul {
                overlap: Overlap::No,
                ..narrow(128, 2, of(Q4_K, Epilogue::Add))
            },
            Matmul {
                tail: 64,
                ..narrow(128, 1, of(Q4_K, Epilogue::Add))
            },
            Matmul {
                form: SmShare::Tall,
                ..narrow(64, 1, of(Q8_0, Epilogue::Store))
            },
            Matmul {
                rows: RowOrder::half_split(128),
                ..half(narrow(32, 1, of(Q6_K, Epilogue::Store)))
            },
        ]);
        let append = |head_dim, pairing, bias| Append {
            head_dim,
            pairing,
            bias,
        };
        let pairs = |format, append: Append| Matmul {
            rows: append.pairs(),
            ..of(format, Epilogue::Append(append))
        };
        self.add([
            pairs(Q4_K, append(128, Pairing::Interleaved, false)),
            Matmul {
                tokens: 256,
                ..pairs(Q4_K, append(128, Pairing::HalfSplit, true))
            },
            Matmul {
                tokens: 256,
                ..pairs(BF16, append(128, Pairing::Interleaved, false))
            },
            narrow(16, 3, pairs(Q4_K, append(64, Pairing::HalfSplit, true))),
            narrow(64, 4, pairs(Q6_K, append(128, Pairing::Interleaved, false))),
            Matmul {
                tokens: 128,
                ..of(
                    Q6_K,
                    Epilogue::Append(append(128, Pairing::HalfSplit, true)),
                )
            },
        ]);
        self.matmul_pairs();
        self.matmul_sync(&order);
    }

    fn matmul_pairs(&mut self) {
        let of = |tokens, parts, format, append, rows| Matmul {
            tokens,
            split: parts,
            ..Matmul::new(format, Epilogue::Append(append), rows, 64)
        };
        let both = |append: Append, [first, second]: [(Format, u32, u32); 2], overlap| {
            let product = |(format, tokens, parts), rows| Matmul {
                overlap,
                ..of(tokens, parts, format, append, rows)
            };
            let first = product(first, append.pairs());
            let second = product(second, RowOrder::PLAIN);
            MatmulPair::of(first, second).expect("they go together")
        };
        let llama = Append {
            head_dim: 128,
            pairing: Pairing::Interleaved,
            bias: false,
        };
        let qwen = Append {
            head_dim: 64,
            pairing: Pairing::HalfSplit,
            bias: true,
        };
        self.add([
            both(llama, [(Q4_K, 64, 2), (Q6_K, 64, 3)], Overlap::No),
            both(qwen, [(Q4_K, 16, 3), (Q5_K, 16, 2)], Overlap::Early),
            both(llama, [(Q4_K, 128, 2), (Q6_K, 128, 2)], Overlap::No),
        ]);
    }

    fn matmul_sync(&mut self, order: impl Fn(u32) -> ColumnOrder) {
        let of = |format, epilogue, tokens, row_blocks| MatmulSync {
            format,
            epilogue,
            rows: RowOrder::PLAIN,
            tokens,
            row_blocks,
        };
        self.add(tiled().map(|format| of(format, Epilogue::Add, 96, 2)));
        let gated = |activation, group| Epilogue::Gated(activation, order(group));
        let gate_up = |kernel| MatmulSync {
            rows: RowOrder::GATE_UP,
            ..kernel
        };
        self.add([
            of(Q6_K, Epilogue::Add, 128, 1),
            of(Q8_0, Epilogue::Add, 16, 1),
            of(F16, Epilogue::Store, 128, 1),
            MatmulSync {
                rows: RowOrder::half_split(128),
                ..of(Q4_K, Epilogue::Store, 64, 2)
            },
            MatmulSync {
                rows: RowOrder::half_split(128),
                ..of(
                    Q4_K,
                    Epilogue::Append(Append {
                        head_dim: 128,
                        pairing: Pairing::HalfSplit,
                        bias: true,
                    }),
                    96,
                    2,
                )
            },
            gate_up(of(Q4_K, gated(Activation::Silu, 16), 128, 1)),
            gate_up(of(BF16, gated(Activation::GeluTanh, 32), 48, 2)),
        ]);
    }
}

/// The head lengths of existing models, and for each the numbers of query heads per KV head.
const HEADS: [(u32, &[u32]); 5] = [
    (64, &[1, 2, 3, 4, 7, 8]),
    (80, &[1]),
    (96, &[1]),
    (128, &[1, 2, 3, 4, 5, 6, 7, 8]),
    (256, &[1, 2, 4, 8]),
];

/// Returns the plan with three bytes per activation.
fn three(plan: Plan) -> Plan {
    Plan {
        bytes: ActivationBytes::Three,
        ..plan
    }
}

fn heads() -> impl Iterator<Item = (u32, u32)> {
    HEADS
        .into_iter()
        .flat_map(|(head_dim, queries)| queries.iter().map(move |&queries| (head_dim, queries)))
}
