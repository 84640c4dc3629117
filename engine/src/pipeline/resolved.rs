//! The decisions about the pipeline: the kernel, the plan and the layout of each GEMV, for a model,
//! a device and a tuning.
//!
//! They are made once. Kernels are compiled from a [`ResolvedPipeline`], launches use its layouts,
//! and `info`, `bench` and the choice of a [`KernelPath`] read it. Nothing else in the engine
//! chooses a plan or computes a layout.

use std::ops::RangeInclusive;

use ptx_gen::KernelDef;
use warpwright_driver::device::Device;
use warpwright_kernels::format::activations::ActivationBytes;
use warpwright_kernels::pipeline::{
    AngleSet, Copies, EmbedRows, EmbedTiled, ExpertActivation, ExpertDown, ExpertGateUp,
    ExpertLogits, GateUp, HeadNorm, Layout, LmHead, LoraProduct, PipelinedAttention, PlaceDrafts,
    Plan, Project, ProjectOutput, Qkv, QkvOutput, Segments, SplitPrompt, WithBias,
    WithExpertBiases, WithLora,
};
use warpwright_kernels::{AddNormed, Format};
use warpwright_model::layer::{Attention, Dense, Experts, GateActivation, QkvBias};
use warpwright_model::rope::{Rope, Scaling};
use warpwright_model::{Block, Config, Layer, Outline, Weight};

use super::adapter::ResolvedLora;
use super::cache_layout::CacheLayout;
use super::gemv_kind::GemvKind;
use super::kinds::{Appending, PipelineFeedForward, PipelineLayer, PipelineNorms};
use super::target::KernelTarget;
use super::unsupported::Unsupported;
use crate::kernel_terms::{
    kernel_activation, kernel_embedding_scale, kernel_format, kernel_pairing, kernel_weighting,
};
use crate::pipeline::path::KernelPath;
use crate::pipeline::tuning::{Tuning, default_plan, default_plan_with};
use crate::weights::padding::padded_len;
use crate::weights::{lora_tiles, packed};

/// The pipeline of a model on a device.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResolvedPipeline {
    /// The step of one token.
    pub(crate) single: ResolvedStep,
    /// The step of several tokens, if the options request one.
    pub(crate) batched: Option<ResolvedStep>,
    /// The steps that verify drafts, the shortest first: see
    /// [`with_drafts`](ResolvedPipeline::with_drafts).
    pub(crate) verifying: Vec<ResolvedStep>,
    /// The reason why the kernels do not overlap, or `None` if they do.
    pub(crate) sequential: Option<Unsupported>,
}

/// The kernels of a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResolvedStep {
    pub(crate) config: Config,
    /// The index of the only rotary embedding that rotates, in models in which the QKV kernel rotates
    /// and other layers are not rotated.
    pub(crate) rotated: Option<u32>,
    /// The layout of the cache.
    pub(crate) cache: CacheLayout,
    /// The number of tokens in the step.
    pub(crate) batch: u32,
    /// The number of tokens among which the multiprocessors are divided when attention splits
    /// positions. With 1, a step has the splits of a step of one token.
    sharing: u32,
    /// The number of multiprocessors of the device.
    pub(crate) sms: u32,
    /// The shared memory of a GEMV's block, in bytes.
    pub(crate) shared: u32,
    /// Whether the kernels record timestamps.
    pub(crate) profile: bool,
    /// The kernel that assigns prompt tokens, for batches.
    pub(crate) split_prompt: Option<SplitPrompt>,
    /// The kernel that assigns drafts, for steps that verify them.
    pub(crate) place_drafts: Option<PlaceDrafts>,
    pub(crate) embed: ResolvedEmbed,
    /// The kernels of each layer, in order.
    pub(crate) layers: Vec<ResolvedLayer>,
    /// The attention kernel without a window. The layers differ only in the window.
    pub(crate) attention: PipelinedAttention,
    /// The kernel that norms the outputs of attention and the feed-forward, in models that do.
    pub(crate) add_normed: Option<AddNormed>,
    /// The kernels in front of GEMVs with an adapter.
    pub(crate) lora: Option<ResolvedLora>,
    pub(crate) head: ResolvedGemv<LmHead>,
}

/// The kernel that embeds a token. It reads the tiles of the LM head if the model has no other
/// matrix, and rows otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ResolvedEmbed {
    /// The table is stored as tiles.
    Tiles(EmbedTiled),
    /// The table is stored as rows.
    Rows(EmbedRows),
}

/// The kernels of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ResolvedLayer {
    /// The description from which the kernels follow.
    pub(crate) described: PipelineLayer,
    pub(crate) qkv: ResolvedGemv<Qkv>,
    /// The head norm, in models that have one.
    pub(crate) head_norm: Option<HeadNorm>,
    pub(crate) attention: PipelinedAttention,
    pub(crate) o: ResolvedGemv<Project>,
    pub(crate) feed_forward: ResolvedFeedForward,
}

/// The kernels of a feed-forward network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ResolvedFeedForward {
    Dense {
        gate_up: ResolvedGemv<GateUp>,
        down: ResolvedGemv<Project>,
    },
    /// A mixture of experts. Both GEMVs have the same number of blocks, because each block of the
    /// second one reads the choice of the same block of the first one.
    Experts {
        logits: ExpertLogits,
        gate_up: ResolvedGemv<ExpertGateUp>,
        down: ResolvedGemv<ExpertDown>,
        biases: ExpertBiasKind,
    },
}

/// The biases of a mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpertBiasKind {
    None,
    /// The router and the three projections of the experts have biases. The kernels are then
    /// [`WithBias`] and [`WithExpertBiases`] of the resolved ones.
    All,
}

/// The kernel of a GEMV, which includes its formats and its plan, and its launch layout on the
/// device.
///
/// The plan's batch is the number of tokens per launch. It is smaller than the step's batch if the
/// activations of all tokens do not fit into shared memory. The GEMV is then launched several
/// times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ResolvedGemv<K> {
    pub(crate) kernel: K,
    pub(crate) layout: Layout,
    /// Whether the GEMV has an adapter, so that the kernel is [`WithLora`] of this one.
    pub(crate) lora: bool,
}

impl<K: LoraProduct> ResolvedGemv<K> {
    /// Returns the name of the kernel that is launched.
    fn name(&self) -> String {
        if self.lora {
            WithLora(self.kernel).name()
        } else {
            self.kernel.name()
        }
    }
}

/// The maximum number of query heads per block of attention.
const ATTENTION_QUERIES: u32 = 8;
/// The maximum number of query heads that share a KV head.
const MAX_GROUP: u32 = 2 * ATTENTION_QUERIES;
/// The maximum number of dimensions per head.
const MAX_HEAD_DIM: u32 = 256;
/// The maximum number of blocks per multiprocessor that a GEMV runs one after the other. With
/// timestamps it is 1.
const MAX_ROUNDS: u32 = 16;
/// The maximum product of tokens and warps per block in a batch that has the plan of one token,
/// because each warp keeps the sums of each token in registers.
const MAX_SUMS: u32 = 64;
/// The maximum number of activations of three bytes, which take 70 KiB. More would leave too little
/// shared memory for the ring if two blocks share a multiprocessor of sm_90.
const MAX_OF_THREE: u32 = 20_480;
/// The maximum number of splits of attention.
pub(crate) const MAX_SPLITS: u32 = 64;

impl ResolvedPipeline {
    /// Resolves the step of one token, and the step of `batch` tokens if `batch` is above 1.
    /// Returns the reason if the pipeline does not support the model.
    pub(crate) fn for_model(
        outline: &Outline,
        device: &Device,
        tuning: Tuning,
        batch: u32,
    ) -> Result<ResolvedPipeline, Unsupported> {
        let target = KernelTarget::for_device(device)?;
        if outline.config.logit_cap.is_some() {
            return Err(Unsupported::SoftCaps);
        }
        for layer in &outline.config.layers {
            check_layer(&outline.config, &target, &PipelineLayer::new(layer)?)?;
        }
        let resolver = |shared| Resolver {
            outline,
            tuning,
            target,
            batch: 1,
            shared,
            like: None,
        };
        let single = |shared| resolver(tuning.shared.unwrap_or(shared)).step();

        // Prefer blocks of which two fit on a multiprocessor. Long rows may need all of its shared
        // memory.
        let single = single(target.preferred).or_else(|_| single(target.whole))?;

        // A batch has the plans of one token, so that its sums have the same order. It records no
        // timestamps.
        let shared = target.whole.max(single.shared);
        let tuning = Tuning {
            profile: false,
            ..tuning
        };
        // The kernels of several tokens have none of these kinds, so prompts are prefilled token by
        // token.
        let batched = if batch > 1 && single.check_several(outline).is_ok() {
            let resolver = Resolver {
                tuning,
                batch,
                ..resolver(shared)
            };
            Some(resolver.step()?)
        } else {
            None
        };
        Ok(ResolvedPipeline {
            single,
            batched,
            verifying: vec![],
            sequential: target.sequential(),
        })
    }

    /// Returns the steps of sequences over a paged cache, for these numbers of rows. Each row is the
    /// token of another sequence. The caller assigns the tokens and chooses the next ones.
    ///
    /// Models with experts have only the step of one row.
    pub(crate) fn paged(
        outline: &Outline,
        device: &Device,
        rows: impl Iterator<Item = u32>,
    ) -> Result<Vec<ResolvedStep>, Unsupported> {
        rows.map(|rows| {
            let ResolvedPipeline {
                single, batched, ..
            } = ResolvedPipeline::for_model(outline, device, Tuning::default(), rows)?;
            if rows > 1 {
                single.check_several(outline)?;
            }
            Ok(ResolvedStep {
                cache: CacheLayout::Paged,
                split_prompt: None,
                ..batched.unwrap_or(single)
            })
        })
        .collect()
    }

    /// Adds steps that verify drafts, for these numbers of tokens.
    ///
    /// Each of their tokens has the same bits as in a step of one token. Sums are divided among the
    /// same number of warps, attention among the same number of splits, and matrices among the same
    /// number of blocks where that matters.
    pub(crate) fn with_drafts(
        self,
        outline: &Outline,
        device: &Device,
        tuning: Tuning,
        tokens: impl Iterator<Item = u32>,
    ) -> Result<ResolvedPipeline, Unsupported> {
        let target = KernelTarget::for_device(device)?;
        let like = Some(self.single.shared);
        let shared = target.whole.max(self.single.shared);
        let tuning = Tuning {
            profile: false,
            ..tuning
        };
        let step = |batch| {
            Resolver {
                outline,
                tuning,
                target,
                batch,
                shared,
                like,
            }
            .step()
        };
        let mut tokens = tokens.peekable();
        if tokens.peek().is_some() {
            self.single.check_several(outline)?;
        }
        let verifying = tokens.map(step).collect::<Result<_, _>>()?;
        Ok(ResolvedPipeline { verifying, ..self })
    }
}

impl KernelPath {
    /// Returns the set of kernels that decodes a model on a device.
    pub fn for_model(outline: &Outline, device: &Device, tuning: Tuning) -> KernelPath {
        KernelPath::from_resolved(&ResolvedPipeline::for_model(outline, device, tuning, 1))
    }

    /// Returns the set of kernels that follows from the decisions about the pipeline.
    pub(crate) fn from_resolved(resolved: &Result<ResolvedPipeline, Unsupported>) -> KernelPath {
        match resolved {
            Ok(ResolvedPipeline {
                sequential: None, ..
            }) => KernelPath::Overlapped,
            Ok(ResolvedPipeline {
                sequential: Some(reason),
                ..
            }) => KernelPath::Sequential {
                reason: reason.clone(),
            },
            Err(reason) => KernelPath::Simple {
                reason: reason.clone(),
            },
        }
    }
}

impl ResolvedStep {
    /// Returns the reason why there are no kernels of several tokens for the model: they multiply no
    /// experts and no padded rows.
    pub(crate) fn check_several(&self, outline: &Outline) -> Result<(), Unsupported> {
        for layer in &self.layers {
            layer.described.dense()?;
        }
        check_whole_rows(outline)
    }

    /// Returns the name of a GEMV's kernel.
    pub(crate) fn kernel(&self, product: GemvKind, layer: usize) -> String {
        self.described(product, layer).0
    }

    /// Returns the formats of a GEMV without duplicates, such as `Q4_K + Q6_K`.
    pub(crate) fn formats(&self, product: GemvKind, layer: usize) -> String {
        let mut formats = self.described(product, layer).1;
        formats.dedup();
        formats
            .iter()
            .map(|format| format.name())
            .collect::<Vec<_>>()
            .join(" + ")
    }

    /// Returns the kernel name and the formats of a GEMV.
    fn described(&self, product: GemvKind, layer: usize) -> (String, Vec<Format>) {
        let layer = &self.layers[layer];
        match product {
            GemvKind::Qkv => (layer.qkv.name(), layer.qkv.kernel.formats.to_vec()),
            GemvKind::O if layer.described.attention.output_bias => {
                (WithBias(layer.o.kernel).name(), vec![layer.o.kernel.format])
            }
            GemvKind::O => (layer.o.name(), vec![layer.o.kernel.format]),
            GemvKind::GateUp => match layer.feed_forward {
                ResolvedFeedForward::Dense { gate_up, .. } => {
                    (gate_up.name(), vec![gate_up.kernel.format])
                }
                ResolvedFeedForward::Experts {
                    gate_up, biases, ..
                } => {
                    let name = match biases {
                        ExpertBiasKind::None => gate_up.kernel.name(),
                        ExpertBiasKind::All => WithExpertBiases(gate_up.kernel).name(),
                    };
                    (name, vec![gate_up.kernel.format])
                }
            },
            GemvKind::Down => match layer.feed_forward {
                ResolvedFeedForward::Dense { down, .. } => (down.name(), vec![down.kernel.format]),
                ResolvedFeedForward::Experts { down, biases, .. } => {
                    let name = match biases {
                        ExpertBiasKind::None => down.kernel.name(),
                        ExpertBiasKind::All => WithBias(down.kernel).name(),
                    };
                    (name, vec![down.kernel.format])
                }
            },
            GemvKind::Head => (self.head.kernel.name(), vec![self.head.kernel.format]),
        }
    }

    /// Returns the maximum number of blocks of a GEMV.
    pub(crate) fn max_blocks(&self) -> u32 {
        self.sms * MAX_ROUNDS
    }

    /// Returns the largest number of inputs of a down projection with their padding, of all chosen
    /// experts together.
    pub(crate) fn inner_len(&self) -> u32 {
        let lengths = self.layers.iter().map(ResolvedLayer::inner_len);
        lengths.max().unwrap_or(0)
    }

    /// Returns the largest number of inputs of an output projection with their padding.
    pub(crate) fn heads_len(&self) -> u32 {
        let lengths = self.layers.iter().map(ResolvedLayer::heads_len);
        lengths.max().unwrap_or(0)
    }

    /// Returns the row length of a matrix over the residual stream, with its padding.
    pub(crate) fn hidden_len(&self, format: Format) -> u32 {
        padded_len(format, self.config.hidden)
    }

    /// Returns the number of blocks that attention of this many tokens needs without splits: one
    /// per KV head, or more if its query heads need several.
    fn attention_units(&self, tokens: u32) -> u32 {
        let units = |attention: &Attention| {
            attention.kv_heads * attention.group().div_ceil(ATTENTION_QUERIES)
        };
        tokens * self.config.most_of_attention(units)
    }

    /// Returns the number of blocks of attention: one per multiprocessor, or more if it needs them.
    pub(crate) fn attention_blocks(&self, splits: u32) -> u32 {
        self.sms.max(self.attention_units(self.batch) * splits)
    }

    /// Returns the number of splits of attention: as many as there are multiprocessors for.
    pub(crate) fn splits(&self, ctx: u32) -> u32 {
        let useful = ctx.div_ceil(self.attention.min_split_positions());
        (self.sms / self.attention_units(self.sharing))
            .min(useful)
            .clamp(1, MAX_SPLITS)
    }
}

impl ResolvedLayer {
    /// Returns the row length of the output projection, with its padding.
    pub(crate) fn heads_len(&self) -> u32 {
        padded_len(self.o.kernel.format, self.described.attention.q_len())
    }

    /// Returns true if the inputs of the down projection have padding.
    pub(crate) fn pads_inner(&self) -> bool {
        let unpadded = match &self.described.feed_forward {
            PipelineFeedForward::Dense(dense) => dense.width,
            PipelineFeedForward::Experts(experts) => experts.chosen * experts.width,
        };
        self.inner_len() > unpadded
    }

    /// Returns the format of the gate and up projections.
    pub(crate) fn gate_up_format(&self) -> Format {
        match &self.feed_forward {
            ResolvedFeedForward::Dense { gate_up, .. } => gate_up.kernel.format,
            ResolvedFeedForward::Experts { gate_up, .. } => gate_up.kernel.format,
        }
    }

    /// Returns the number of inputs of the down projection with their padding, of all chosen experts
    /// together.
    pub(crate) fn inner_len(&self) -> u32 {
        match (&self.described.feed_forward, &self.feed_forward) {
            (PipelineFeedForward::Dense(dense), ResolvedFeedForward::Dense { down, .. }) => {
                padded_len(down.kernel.format, dense.width)
            }
            (PipelineFeedForward::Experts(experts), ResolvedFeedForward::Experts { down, .. }) => {
                experts.chosen * padded_len(down.kernel.format, experts.width)
            }
            _ => unreachable!("the kernels follow from the layer"),
        }
    }
}

/// Returns the reason why the pipeline does not support a layer, or sizes that all layers share.
fn check_layer(
    c: &Config,
    target: &KernelTarget,
    layer: &PipelineLayer,
) -> Result<(), Unsupported> {
    let multiple = |what, found: u32, multiple| {
        if found.is_multiple_of(multiple) {
            return Ok(());
        }
        Err(Unsupported::Multiple {
            what,
            found,
            multiple,
        })
    };
    let attention = &layer.attention;
    let head_dim = attention.head_dim;
    multiple("head_dim", head_dim, 16)?;
    multiple("the hidden size", c.hidden, 16)?;
    match &layer.feed_forward {
        PipelineFeedForward::Dense(dense) => multiple("the feed-forward size", dense.width, 8)?,
        PipelineFeedForward::Experts(experts) => {
            multiple("the feed-forward size of an expert", experts.width, 8)?;
            if target.copies != Copies::Bulk {
                return Err(target.below(9));
            }
        }
    }
    multiple("the vocabulary size", c.vocab, 16)?;
    if head_dim > MAX_HEAD_DIM {
        return Err(Unsupported::HeadDim {
            found: head_dim,
            max: MAX_HEAD_DIM,
        });
    }

    let group = attention.group();
    if group > MAX_GROUP {
        return Err(Unsupported::Group {
            found: group,
            max: MAX_GROUP,
        });
    }

    // The QKV kernel rotates by one set of angles. Only the head norm kernel can choose between
    // several.
    if c.ropes.len() > 1
        && Appending::of(attention) == Appending::Product
        && only_rotation(c).is_none()
    {
        return Err(Unsupported::TwoRopes);
    }

    let rope_dim = c.rope(attention).dim;
    if rope_dim != head_dim {
        return Err(Unsupported::PartialRope { rope_dim, head_dim });
    }

    Ok(())
}

/// Returns the index of the only rotary embedding that rotates, if the QKV kernel rotates and other
/// layers are not rotated. Those layers then read constant angles.
fn only_rotation(c: &Config) -> Option<u32> {
    let rotates = |attention: &Attention| Appending::of(attention) == Appending::Product;
    if c.ropes.len() == 1 || !c.attentions().all(rotates) {
        return None;
    }

    let still = |rope: &Rope| rope.scaling == Scaling::Still;
    let mut rotated = (0..).zip(&c.ropes).filter(|(_, rope)| !still(rope));
    let (only, _) = rotated.next()?;
    rotated.next().is_none().then_some(only)
}

/// Returns the reason why the pipeline does not support the matrices of a layer.
fn check_block(b: &Block<Weight>) -> Result<(), Unsupported> {
    let gate = packed::gate(b);
    let up = packed::up(b);
    let down = packed::down(b);
    for matrix in [&b.q, &b.k, &b.v, &b.o, gate, up, down] {
        check_matrix(matrix)?;
    }

    let encoding = |w: &Weight| kernel_format(w.format).encoding();
    for other in [&b.k, &b.v] {
        if encoding(&b.q) != encoding(other) {
            return Err(mixed(
                &b.q,
                other,
                "their activations are encoded differently",
            ));
        }
    }

    // Gate and up are interleaved row by row in shared tiles.
    if gate.format != up.format {
        return Err(mixed(gate, up, "the two must have the same format"));
    }

    Ok(())
}

fn mixed(a: &Weight, b: &Weight, why: &'static str) -> Unsupported {
    Unsupported::Mixed {
        tensors: [a, b].map(|w| (w.name.clone(), w.format)),
        why,
    }
}

/// Returns the reason why the pipeline does not support a matrix.
fn check_matrix(w: &Weight) -> Result<(), Unsupported> {
    match kernel_format(w.format).tile() {
        None => Err(Unsupported::Layout {
            tensor: w.name.clone(),
            format: w.format,
        }),
        Some(_) => Ok(()),
    }
}

/// Returns the reason why kernels that support no padding do not support a matrix: its rows are not
/// whole tiles.
fn check_whole(w: &Weight) -> Result<(), Unsupported> {
    match kernel_format(w.format).tile() {
        Some(tile) if !w.row_len().is_multiple_of(tile.columns) => Err(Unsupported::RowLength {
            tensor: w.name.clone(),
            len: w.row_len(),
            multiple: tile.columns,
        }),
        Some(_) | None => Ok(()),
    }
}

/// Returns the first matrix of a model whose rows are padded, as the reason why kernels that support
/// no padding do not support the model.
pub(crate) fn check_whole_rows(outline: &Outline) -> Result<(), Unsupported> {
    let w = &outline.weights;
    for b in &w.blocks {
        for matrix in [
            &b.q,
            &b.k,
            &b.v,
            &b.o,
            packed::gate(b),
            packed::up(b),
            packed::down(b),
        ] {
            check_whole(matrix)?;
        }
    }
    check_whole(w.head())
}

/// The inputs of the decisions about one step.
#[derive(Clone, Copy)]
struct Resolver<'a> {
    outline: &'a Outline,
    tuning: Tuning,
    target: KernelTarget,
    batch: u32,
    /// The shared memory of a GEMV's block.
    shared: u32,
    /// The shared memory of a block in the step of one token, if this step must have its bits.
    like: Option<u32>,
}

impl Resolver<'_> {
    fn step(&self) -> Result<ResolvedStep, Unsupported> {
        let w = &self.outline.weights;
        let batch = self.batch;
        let overlap = self.target.overlaps();

        // A shared matrix is checked here too, because the embeddings then serve as the head.
        check_matrix(w.head())?;
        if w.head.is_none() {
            // The embedding reads the tiles too.
            check_whole(w.head())?;
        }
        if self.batch > 1 || self.outline.adapter.is_some() {
            check_whole_rows(self.outline)?;
        }
        let head = self.head(kernel_format(w.head().format))?;
        let config = self.outline.config.clone();
        let layers = config
            .layers
            .iter()
            .zip(&w.blocks)
            .enumerate()
            .map(|(i, (layer, b))| self.layer(i as u32, layer, b))
            .collect::<Result<Vec<_>, _>>()?;
        let first = layers.first().expect("a model has at least one layer");
        let attention = PipelinedAttention {
            window: None,
            ..first.attention
        };
        let add_normed = config
            .has_norms_after()
            .then_some(AddNormed { overlap, batch });
        Ok(ResolvedStep {
            rotated: only_rotation(&config),
            config,
            cache: CacheLayout::Own,
            batch,
            sharing: if self.like.is_some() { 1 } else { batch },
            sms: self.target.sms,
            shared: self.shared,
            profile: self.tuning.profile,
            split_prompt: (batch > 1 && self.like.is_none()).then_some(SplitPrompt { batch }),
            place_drafts: self.like.map(|_| PlaceDrafts { batch }),
            embed: self.embed(),
            layers,
            attention,
            add_normed,
            lora: ResolvedLora::for_model(self.outline, overlap, batch),
            head,
        })
    }

    fn embed(&self) -> ResolvedEmbed {
        let w = &self.outline.weights;
        let overlap = self.target.overlaps();
        let batch = self.batch;
        let format = kernel_format(w.embed.format);
        let scale = kernel_embedding_scale(self.outline.config.embedding_scale);
        match w.head {
            None => ResolvedEmbed::Tiles(EmbedTiled {
                format,
                overlap,
                batch,
                scale,
            }),
            Some(_) => ResolvedEmbed::Rows(EmbedRows {
                format,
                overlap,
                batch,
                scale,
            }),
        }
    }

    /// Resolves the kernels of a layer from its description.
    fn layer(
        &self,
        index: u32,
        layer: &Layer,
        b: &Block<Weight>,
    ) -> Result<ResolvedLayer, Unsupported> {
        let layer = PipelineLayer::new(layer)?;
        check_block(b)?;
        if layer.attention.output_bias && self.outline.adapter.is_some() {
            return Err(Unsupported::OutputBias);
        }
        let PipelineLayer {
            norms,
            attention,
            feed_forward,
        } = &layer;
        let output = match norms {
            PipelineNorms::Before => ProjectOutput::Residual,
            PipelineNorms::BeforeAndAfter => ProjectOutput::Raw,
        };
        Ok(ResolvedLayer {
            described: layer,
            qkv: self.adapted(GemvKind::Qkv, index, self.qkv(attention, b)?),
            head_norm: self.head_norm(attention),
            attention: self.attention(attention),
            o: self.adapted(GemvKind::O, index, self.o(attention, output, b)?),
            feed_forward: match feed_forward {
                PipelineFeedForward::Dense(dense) => ResolvedFeedForward::Dense {
                    gate_up: self.adapted(GemvKind::GateUp, index, self.gate_up(dense, b)?),
                    down: self.adapted(GemvKind::Down, index, self.down(dense, output, b)?),
                },
                PipelineFeedForward::Experts(experts) => self.experts(experts, b)?,
            },
        })
    }

    /// Resolves a mixture of experts.
    ///
    /// The plans differ from those of dense layers. On an H100, a token of Qwen3-30B-A3B in BF16 takes
    /// 15 % less time with `2x2` than with `1x8` for gate and up. With `2x4` for down instead of
    /// `2x6`, a token takes 0.5 % less time in Q4_K_M, and 0.6 % less in BF16 instead of `2x2`.
    fn experts(
        &self,
        experts: &Experts,
        b: &Block<Weight>,
    ) -> Result<ResolvedFeedForward, Unsupported> {
        let width = padded_len(kernel_format(packed::down(b).format), experts.width);
        let inner = experts.chosen * width;
        let without_limit = |plan| Plan {
            prefetch_limit: None,
            ..self.plan(plan)
        };

        let format = kernel_format(packed::gate(b).format);
        let hidden = padded_len(format, self.outline.config.hidden);
        let plan = without_limit(self.tuning.gate_up.unwrap_or(Plan::large(format)));
        let gate_up = ExpertGateUp {
            format,
            activation: match experts.activation {
                GateActivation::ClampedSwiglu => ExpertActivation::ClampedSwiglu,
                activation => ExpertActivation::Gated(kernel_activation(activation)),
            },
            weighting: kernel_weighting(experts.weighting),
            per_lane: experts.count.div_ceil(32).next_power_of_two(),
            stride: (width > experts.width).then_some(width),
            plan: plan.with_row_len(self.padded_from(format)),
        };

        let format = kernel_format(packed::down(b).format);
        let bytes = self.activation_bytes(inner, b);
        let down = ExpertDown {
            format,
            plan: without_limit(self.tuning.down.unwrap_or(Plan::DEFAULT))
                .with_bytes(format, bytes),
        };

        // Each block of the second GEMV reads the choice of the same block of the first one.
        let rows = gate_up.segments(experts.chosen, experts.width);
        let columns = down.segments(self.outline.config.hidden);
        let most = if self.tuning.profile { 1 } else { MAX_ROUNDS };
        let layouts = (1..=most).find_map(|rounds| {
            let blocks = rounds * self.target.sms;
            Some([
                rows.layout(gate_up.plan, hidden, blocks, self.shared)?,
                columns.layout(down.plan, inner, blocks, self.shared)?,
            ])
        });
        let [first, second] = layouts.ok_or(Unsupported::SharedMemory {
            product: GemvKind::Down,
            n: inner,
            shared: self.shared,
        })?;
        Ok(ResolvedFeedForward::Experts {
            logits: ExpertLogits {
                overlap: self.target.overlaps(),
            },
            biases: if experts.biases {
                ExpertBiasKind::All
            } else {
                ExpertBiasKind::None
            },
            gate_up: ResolvedGemv {
                kernel: gate_up,
                layout: first,
                lora: false,
            },
            down: ResolvedGemv {
                kernel: down,
                layout: second,
                lora: false,
            },
        })
    }

    fn head_norm(&self, attention: &Attention) -> Option<HeadNorm> {
        match Appending::of(attention) {
            Appending::Product => None,
            Appending::Rotation => Some(HeadNorm {
                overlap: self.target.overlaps(),
                batch: self.batch,
                angles: AngleSet {
                    index: attention.rope,
                    count: self.outline.config.ropes.len() as u32,
                },
            }),
        }
    }

    fn attention(&self, attention: &Attention) -> PipelinedAttention {
        PipelinedAttention {
            head_dim: attention.head_dim,
            queries: attention.group(),
            window: attention.window,
            overlap: self.target.overlaps(),
            // A tuning sets the shared memory of GEMVs only.
            memory: self.target.preferred,
            batch: self.batch,
            profile: self.tuning.profile,
        }
    }

    /// Returns a GEMV of a layer, marked if it has an adapter.
    fn adapted<K>(&self, product: GemvKind, layer: u32, of: ResolvedGemv<K>) -> ResolvedGemv<K> {
        ResolvedGemv {
            lora: lora_tiles::shape(self.outline, product, layer as usize).is_some(),
            ..of
        }
    }

    /// Returns the bytes of an integer activation in the GEMVs of QKV and of the down projection,
    /// whose rows have `n` weights. The result does not depend on the batch of the kernel.
    ///
    /// Other GEMVs use two bytes. Three are used where rounding matters most. Keys and values are rounded to binary16,
    /// and a small error can move them across a rounding boundary. Those GEMVs are QKV, which
    /// computes them, and the down projection, which feeds QKV of the next layer. A file in Q2_K
    /// uses three bytes in all layers.
    fn activation_bytes(&self, n: u32, b: &Block<Weight>) -> ActivationBytes {
        // Two activations take 7 bytes including their scales. The ring needs the rest of a block's
        // shared memory.
        let shared = self.tuning.shared.unwrap_or(self.target.preferred);
        let fit = n <= MAX_OF_THREE && u64::from(n) * 7 / 2 <= u64::from(shared) * 5 / 8;
        let [q, k, v] = [&b.q, &b.k, &b.v].map(|w| kernel_format(w.format).activation_bytes());
        if fit {
            q.max(k).max(v)
        } else {
            ActivationBytes::Two
        }
    }

    fn qkv(
        &self,
        attention: &Attention,
        b: &Block<Weight>,
    ) -> Result<ResolvedGemv<Qkv>, Unsupported> {
        let formats = [&b.q, &b.k, &b.v].map(|w| kernel_format(w.format));
        let hidden = padded_len(formats[0], self.outline.config.hidden);
        let bytes = self.activation_bytes(hidden, b);
        let default = || default_plan_with(bytes, formats[0], attention.qkv_len(), hidden);
        let plan = self
            .plan(self.tuning.qkv.unwrap_or_else(default))
            .with_bytes(formats[0], bytes)
            .with_row_len(self.padded_from(formats[0]));

        let output = match Appending::of(attention) {
            Appending::Product => QkvOutput::Append,
            Appending::Rotation => QkvOutput::Raw,
        };
        let kernel = Qkv {
            formats,
            pairing: kernel_pairing(attention.pairing),
            bias: attention.bias == QkvBias::Each,
            output,
            plan,
        };
        let segments = kernel.segments(attention.heads, attention.kv_heads, attention.head_dim);
        let (plan, layout) = self.fit(GemvKind::Qkv, &segments, kernel.plan, hidden)?;
        Ok(ResolvedGemv {
            kernel: Qkv { plan, ..kernel },
            layout,
            lora: false,
        })
    }

    /// Resolves the output projection. The QKV matrices before it usually have its format.
    fn o(
        &self,
        attention: &Attention,
        output: ProjectOutput,
        b: &Block<Weight>,
    ) -> Result<ResolvedGemv<Project>, Unsupported> {
        let format = kernel_format(b.o.format);
        let n = padded_len(format, attention.q_len());
        let default = || default_plan(format, self.outline.config.hidden, n).after(format);
        let plan = self.plan(self.tuning.o.unwrap_or_else(default));
        let kernel = Project {
            format,
            output,
            plan,
        };
        self.project(GemvKind::O, kernel, n)
    }

    /// Resolves the down projection, which follows gate and up.
    fn down(
        &self,
        dense: &Dense,
        output: ProjectOutput,
        b: &Block<Weight>,
    ) -> Result<ResolvedGemv<Project>, Unsupported> {
        let hidden = self.outline.config.hidden;
        let format = kernel_format(packed::down(b).format);
        let width = padded_len(format, dense.width);
        let bytes = self.activation_bytes(width, b);
        let before = kernel_format(packed::gate(b).format);
        let default = || default_plan_with(bytes, format, hidden, width).after(before);
        let plan = self
            .plan(self.tuning.down.unwrap_or_else(default))
            .with_bytes(format, bytes);
        let kernel = Project {
            format,
            output,
            plan,
        };
        self.project(GemvKind::Down, kernel, width)
    }

    /// Resolves a projection that is added to the residual stream.
    fn project(
        &self,
        product: GemvKind,
        kernel: Project,
        n: u32,
    ) -> Result<ResolvedGemv<Project>, Unsupported> {
        let segments = kernel.segments(self.outline.config.hidden);
        let (plan, layout) = self.fit(product, &segments, kernel.plan, n)?;
        Ok(ResolvedGemv {
            kernel: Project { plan, ..kernel },
            layout,
            lora: false,
        })
    }

    /// Resolves gate and up. The output projection before them usually has their format.
    fn gate_up(
        &self,
        dense: &Dense,
        b: &Block<Weight>,
    ) -> Result<ResolvedGemv<GateUp>, Unsupported> {
        let format = kernel_format(packed::gate(b).format);
        let hidden = padded_len(format, self.outline.config.hidden);
        let default = || default_plan(format, 2 * dense.width, hidden).after(format);
        let plan = self.plan(self.tuning.gate_up.unwrap_or_else(default));
        let kernel = GateUp {
            format,
            activation: kernel_activation(dense.activation),
            plan: plan.with_row_len(self.padded_from(format)),
        };
        let segments = kernel.segments(dense.width);
        let (plan, layout) = self.fit(GemvKind::GateUp, &segments, kernel.plan, hidden)?;
        Ok(ResolvedGemv {
            kernel: GateUp { plan, ..kernel },
            layout,
            lora: false,
        })
    }

    fn head(&self, format: Format) -> Result<ResolvedGemv<LmHead>, Unsupported> {
        let c = &self.outline.config;
        let hidden = padded_len(format, c.hidden);
        let default = || default_plan(format, c.vocab, hidden);
        let plan = self.plan(self.tuning.head.unwrap_or_else(default));
        let kernel = LmHead {
            format,
            plan: plan.with_row_len(self.padded_from(format)),
        };
        let segments = kernel.segments(c.vocab);
        let (plan, layout) = self.fit(GemvKind::Head, &segments, kernel.plan, hidden)?;
        Ok(ResolvedGemv {
            kernel: LmHead { plan, ..kernel },
            layout,
            lora: false,
        })
    }

    /// Returns the length of the residual stream if rows of this format are padded.
    fn padded_from(&self, format: Format) -> Option<u32> {
        let hidden = self.outline.config.hidden;
        (padded_len(format, hidden) > hidden).then_some(hidden)
    }

    /// Returns the plan, adjusted to the device and the batch.
    fn plan(&self, plan: Plan) -> Plan {
        let plan = match plan {
            // Twelve warps have too few registers each for the sums of a whole batch.
            Plan::TWELVE_WARPS | Plan::TWELVE_WARPS_THROTTLED
                if self.batch > 1 && self.like.is_none() =>
            {
                Plan::DEFAULT
            }
            plan => plan,
        };
        let prefetch_limit = plan.prefetch_limit.filter(|_| self.target.overlaps());
        Plan {
            copies: self.target.copies,
            prefetch_limit,
            profile: self.tuning.profile,
            ..plan
        }
    }

    /// Returns the plan with the largest number of tokens per launch that fits into shared memory,
    /// and its layout.
    fn fit(
        &self,
        product: GemvKind,
        segments: &Segments,
        plan: Plan,
        n: u32,
    ) -> Result<(Plan, Layout), Unsupported> {
        // With more blocks, each has fewer rows and so fewer sums in shared memory.
        let most = if self.tuning.profile { 1 } else { MAX_ROUNDS };
        let mut batches = (0..=self.batch.ilog2()).map(|halvings| self.batch >> halvings);
        let found = batches.find_map(|batch| {
            let single = plan;
            let plan = if batch == 1 {
                plan
            } else {
                plan.with_batch(batch)
            };
            let layout = |rounds| segments.layout(plan, n, rounds * self.target.sms, self.shared);
            let mut rounds = match self.like {
                None => 1..=most,
                Some(_) if batch * plan.warps() > MAX_SUMS => return None,
                Some(shared) => self.rounds_like(segments, single, n, shared)?,
            };
            let layout = rounds.find_map(layout)?;

            // A block waits for the progress of the same block of the previous GEMV, so both need
            // one block per multiprocessor.
            let prefetch_limit = plan
                .prefetch_limit
                .filter(|_| layout.blocks == self.target.sms);
            Some((
                Plan {
                    prefetch_limit,
                    ..plan
                },
                layout,
            ))
        });
        found.ok_or(Unsupported::SharedMemory {
            product,
            n,
            shared: self.shared,
        })
    }

    /// Returns the numbers of blocks per multiprocessor for which rows have the same sums as in a
    /// step of one token.
    ///
    /// The tiles of a row that a warp gets depend on the rows before it in its block, so the number
    /// must be the same. If each warp has the same number of tiles of each row, any number is fine.
    fn rounds_like(
        &self,
        segments: &Segments,
        single: Plan,
        n: u32,
        shared: u32,
    ) -> Option<RangeInclusive<u32>> {
        let row_tiles = n / segments.0[0].0.tile()?.columns;
        if row_tiles.is_multiple_of(single.warps()) {
            return Some(1..=MAX_ROUNDS);
        }

        let layout = |rounds: &u32| {
            segments
                .layout(single, n, rounds * self.target.sms, shared)
                .is_some()
        };
        let rounds = (1..=MAX_ROUNDS).find(layout)?;
        Some(rounds..=rounds)
    }
}

#[cfg(test)]
mod tests {
    use warpwright_driver::Driver;

    use super::*;
    use warpwright_model::shape::{QUANTIZATIONS, SHAPES};

    /// The batch has the plans of one token, but for twelve warps, and activations of as many
    /// bytes.
    #[test]
    fn what_decodes_one_token_decodes_a_batch() {
        let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
        let device = &driver.devices().unwrap()[0];
        for (shape, quantization) in SHAPES.iter().flat_map(|s| QUANTIZATIONS.map(|q| (s, q))) {
            let Ok(outline) = Outline::of(shape, quantization) else {
                continue;
            };

            let name = format!("{} {}", shape.name, quantization.name);
            let Ok(single) = ResolvedPipeline::for_model(&outline, device, Tuning::default(), 1)
            else {
                assert!(
                    ResolvedPipeline::for_model(&outline, device, Tuning::default(), 8).is_err(),
                    "{name}"
                );
                continue;
            };

            assert_eq!(single.batched, None, "{name}");
            let both = ResolvedPipeline::for_model(&outline, device, Tuning::default(), 8).unwrap();
            assert_eq!(both.single, single.single, "{name}");
            if single.single.check_several(&outline).is_err() {
                assert_eq!(both.batched, None, "{name}");
                continue;
            }
            let batched = both.batched.unwrap();
            assert_eq!(batched.layers.len(), single.single.layers.len(), "{name}");
            for (one, many) in single.single.layers.iter().zip(&batched.layers) {
                let warps = |plan: Plan| if plan.groups == 6 { 8 } else { plan.warps() };
                let [(_, one_down), (_, many_down)] = [one, many].map(dense);
                assert_eq!(
                    warps(one_down.kernel.plan),
                    many_down.kernel.plan.warps(),
                    "{name}"
                );
                assert_eq!(one.qkv.kernel.formats, many.qkv.kernel.formats, "{name}");
                let three = |l: &ResolvedLayer| {
                    let (gate_up, down) = dense(l);
                    let plans = [
                        l.qkv.kernel.plan,
                        l.o.kernel.plan,
                        gate_up.kernel.plan,
                        down.kernel.plan,
                    ];
                    plans.map(|plan| plan.bytes == ActivationBytes::Three)
                };
                let two_bits = quantization.name == "q2_k";
                let down = two_bits && shape.hyperparameters.feed_forward <= MAX_OF_THREE;
                assert_eq!(three(one), [two_bits, false, false, down], "{name}");
                assert_eq!(three(many), three(one), "{name}");
            }
        }
    }

    /// Rows of 18,944 activations of three bytes would take most of it.
    #[test]
    fn little_shared_memory_takes_activations_of_two_bytes() {
        let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
        let device = &driver.devices().unwrap()[0];
        let tuning = Tuning {
            shared: Some(90_112),
            ..Tuning::default()
        };
        let shape = SHAPES
            .iter()
            .find(|shape| shape.name == "qwen2.5-7b")
            .unwrap();
        let two_bits = QUANTIZATIONS
            .into_iter()
            .find(|q| q.name == "q2_k")
            .unwrap();
        let resolved =
            ResolvedPipeline::for_model(&Outline::of(shape, two_bits).unwrap(), device, tuning, 1)
                .unwrap();
        let layer = &resolved.single.layers[0];
        let bytes = [layer.qkv.kernel.plan, dense(layer).1.kernel.plan].map(|plan| plan.bytes);
        assert_eq!(bytes, [ActivationBytes::Three, ActivationBytes::Two]);
    }

    /// As many warps, as many blocks unless rows are divided evenly, and as many splits.
    #[test]
    fn what_verifies_divides_its_sums_as_one_token_does() {
        let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
        let device = &driver.devices().unwrap()[0];
        let tuning = Tuning::default();
        let mut resolved = 0;
        for (shape, quantization) in SHAPES.iter().flat_map(|s| QUANTIZATIONS.map(|q| (s, q))) {
            let Ok(outline) = Outline::of(shape, quantization) else {
                continue;
            };
            let Ok(one) = ResolvedPipeline::for_model(&outline, device, tuning, 1) else {
                continue;
            };

            let name = format!("{} {}", shape.name, quantization.name);
            if outline.config.experts().next().is_some() {
                let refused = one.with_drafts(&outline, device, tuning, [2, 8].into_iter());
                let reason = if outline.config.architecture.sinks_and_biases {
                    Unsupported::Sinks
                } else {
                    Unsupported::Experts
                };
                assert_eq!(refused, Err(reason), "{name}");
                continue;
            }
            let one = one
                .with_drafts(&outline, device, tuning, [2, 8].into_iter())
                .unwrap();
            let c = &outline.config;
            for step in &one.verifying {
                assert_eq!(
                    [300, 4096].map(|n| step.splits(n)),
                    [300, 4096].map(|n| one.single.splits(n))
                );
                for (a, b) in one.single.layers.iter().zip(&step.layers) {
                    let [(a, of_a), (b, of_b)] =
                        [a, b].map(|layer| (dense(layer).1.kernel, dense(layer).1.layout));
                    same(
                        &name,
                        a.format,
                        c.feed_forward(),
                        [(a.plan, of_a), (b.plan, of_b)],
                    );
                }

                let [(a, of_a), (b, of_b)] =
                    [one.single.head, step.head].map(|head| (head.kernel, head.layout));
                same(&name, a.format, c.hidden, [(a.plan, of_a), (b.plan, of_b)]);
            }

            resolved += 1;
        }

        assert!(resolved > 9);
    }

    /// Returns the kernels of a dense feed-forward.
    fn dense(layer: &ResolvedLayer) -> (ResolvedGemv<GateUp>, ResolvedGemv<Project>) {
        match layer.feed_forward {
            ResolvedFeedForward::Dense { gate_up, down } => (gate_up, down),
            ResolvedFeedForward::Experts { .. } => panic!("the layer has experts"),
        }
    }

    fn same(name: &str, format: Format, n: u32, [one, many]: [(Plan, Layout); 2]) {
        let warps = one.0.warps();
        assert_eq!(warps, many.0.warps(), "{name}");
        assert!(
            many.0.batch > 1 && many.0.batch * warps <= MAX_SUMS,
            "{name}: {:?}",
            many.0
        );
        let even = n.is_multiple_of(format.tile().unwrap().columns * warps);
        assert!(
            one.1.blocks == many.1.blocks || even,
            "{name}: {one:?} {many:?}"
        );
    }
}
