//! Which kernel, plan and layout each product of the pipeline has: decided once, for a model, a device and a tuning.
//!
//! Kernels are compiled from a [`Resolved`], launches take its layouts, and `info`, `bench` and the choice of a path
//! read it. Nothing else in the engine chooses a plan or computes a layout.

use std::ops::RangeInclusive;

use ptx_gen::KernelDef;
use warpwright_driver::Device;
use warpwright_kernels::format::activations::{ActivationBytes, Encoding};
use warpwright_kernels::pipeline::{
    AngleSet, EmbedRows, EmbedTiled, GateUp, HeadNorm, Layout, LmHead, LoraProduct,
    PipelinedAttention, PlaceDrafts, Plan, Project, ProjectOutput, Qkv, QkvOutput, Segments,
    SplitPrompt, WithLora,
};
use warpwright_kernels::{AddNormed, Format};

use super::adapter::ResolvedLora;
use super::product::Product;
use super::target::Target;
use super::unsupported::Unsupported;
use crate::adapter::tiles;
use crate::model::config::Config;
use crate::model::outline::{Outline, Weight};
use crate::model::roles::Block;
use crate::pipeline::path::Path;
use crate::pipeline::tuning::{Tuning, default_plan, default_plan_with};

/// The pipeline of a model on a device.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resolved {
    /// A step of one token.
    pub(crate) single: ResolvedStep,
    /// A step of several tokens, if the options ask for it.
    pub(crate) batched: Option<ResolvedStep>,
    /// Steps that verify drafts, the shortest first: see [`with_drafts`](Resolved::with_drafts).
    pub(crate) verifying: Vec<ResolvedStep>,
    /// Why its kernels do not overlap, if they do not.
    pub(crate) sequential: Option<Unsupported>,
}

/// All kernels of a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResolvedStep {
    pub(crate) config: Config,
    /// Tokens of the step.
    pub(crate) batch: u32,
    /// Tokens that share the device's SMs where attention splits positions: 1 for the splits of a step of one token.
    sharing: u32,
    /// SMs of the device.
    pub(crate) sms: u32,
    /// Shared memory of a product's block, in bytes.
    pub(crate) shared: u32,
    /// Whether the kernels record timestamps.
    pub(crate) profile: bool,
    /// For several tokens of a prompt.
    pub(crate) split_prompt: Option<SplitPrompt>,
    /// For drafts.
    pub(crate) place_drafts: Option<PlaceDrafts>,
    pub(crate) embed: ResolvedEmbed,
    /// In order.
    pub(crate) layers: Vec<ResolvedLayer>,
    /// What the attention of all layers has in common: all but the window.
    pub(crate) attention: PipelinedAttention,
    /// For models that norm what attention and the feed-forward give.
    pub(crate) add_normed: Option<AddNormed>,
    /// For models with an adapter.
    pub(crate) lora: Option<ResolvedLora>,
    pub(crate) head: ResolvedProduct<LmHead>,
}

/// The kernel that embeds a token: over the LM head's tiles if the model has no other matrix, else over rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ResolvedEmbed {
    Tiles(EmbedTiled),
    Rows(EmbedRows),
}

/// The kernels of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ResolvedLayer {
    pub(crate) qkv: ResolvedProduct<Qkv>,
    /// For models that normalize heads.
    pub(crate) head_norm: Option<HeadNorm>,
    pub(crate) attention: PipelinedAttention,
    pub(crate) o: ResolvedProduct<Project>,
    pub(crate) gate_up: ResolvedProduct<GateUp>,
    pub(crate) down: ResolvedProduct<Project>,
}

/// A product's kernel, which has the formats and the plan, and how it is launched on the device.
///
/// The plan's batch is the number of tokens of a launch. It is smaller than the step's if the activations of all do
/// not fit shared memory; the product is then launched several times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ResolvedProduct<K> {
    pub(crate) kernel: K,
    pub(crate) layout: Layout,
    /// Whether the product has an adapter, and the kernel is [`WithLora`] of this one.
    pub(crate) lora: bool,
}

impl<K: LoraProduct> ResolvedProduct<K> {
    /// The name of the kernel that is launched.
    fn name(&self) -> String {
        if self.lora {
            WithLora(self.kernel).name()
        } else {
            self.kernel.name()
        }
    }
}

/// Query heads per block of attention, at most.
const ATTENTION_QUERIES: u32 = 8;
/// Query heads that share a KV head, at most.
const MAX_GROUP: u32 = 2 * ATTENTION_QUERIES;
/// Dimensions of a head, at most.
const MAX_HEAD_DIM: u32 = 256;
/// Blocks of a product per SM, at most, which then run one after the other; with timestamps only one.
const MAX_ROUNDS: u32 = 16;
/// Tokens times warps of a block, at most, where a batch has the plan of one token: each warp has sums of each token in
/// registers.
const MAX_SUMS: u32 = 64;
/// Activations of three bytes, at most: 70 KiB. More would leave the ring too few of the stages that two blocks of an SM of
/// sm_90 have room for.
const MAX_OF_THREE: u32 = 20_480;
/// Ranges of positions into which attention is split, at most.
const MAX_SPLITS: u32 = 64;

impl Resolved {
    /// Resolves steps of one token, and of `batch` tokens if that is more than one.
    pub(crate) fn of(
        outline: &Outline,
        device: &Device,
        tuning: Tuning,
        batch: u32,
    ) -> Result<Resolved, Unsupported> {
        let target = Target::of(device)?;
        check_config(&outline.config)?;
        let resolver = |shared| Resolver {
            outline,
            tuning,
            target,
            batch: 1,
            shared,
            like: None,
        };
        let single = |shared| resolver(tuning.shared.unwrap_or(shared)).step();
        let single = single(target.preferred).or_else(|_| single(target.whole))?;
        // Its plans are those of one token, so that its sums are too. It records no timestamps.
        let shared = target.whole.max(single.shared);
        let tuning = Tuning {
            profile: false,
            ..tuning
        };
        let batched = (batch > 1)
            .then(|| {
                Resolver {
                    tuning,
                    batch,
                    ..resolver(shared)
                }
                .step()
            })
            .transpose()?;
        Ok(Resolved {
            single,
            batched,
            verifying: vec![],
            sequential: target.sequential(),
        })
    }

    /// The same with steps that verify so many tokens. Each token of theirs has the bits of a step of one token: sums
    /// are divided among as many warps, matrices among as many blocks where that matters, and attention among as many
    /// splits.
    pub(crate) fn with_drafts(
        self,
        outline: &Outline,
        device: &Device,
        tuning: Tuning,
        tokens: impl Iterator<Item = u32>,
    ) -> Result<Resolved, Unsupported> {
        let target = Target::of(device)?;
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
        let verifying = tokens.map(step).collect::<Result<_, _>>()?;
        Ok(Resolved { verifying, ..self })
    }
}

impl Path {
    /// The path of a model on a device.
    pub fn of(outline: &Outline, device: &Device, tuning: Tuning) -> Path {
        Path::from(&Resolved::of(outline, device, tuning, 1))
    }

    pub(crate) fn from(resolved: &Result<Resolved, Unsupported>) -> Path {
        match resolved {
            Ok(Resolved {
                sequential: None, ..
            }) => Path::Overlapped,
            Ok(Resolved {
                sequential: Some(reason),
                ..
            }) => Path::Sequential {
                reason: reason.clone(),
            },
            Err(reason) => Path::Simple {
                reason: reason.clone(),
            },
        }
    }
}

impl ResolvedStep {
    /// The name of a product's kernel.
    pub(crate) fn kernel(&self, product: Product, layer: usize) -> String {
        self.described(product, layer).0
    }

    /// The formats of a product, without duplicates: `Q4_K + Q6_K`.
    pub(crate) fn formats(&self, product: Product, layer: usize) -> String {
        let mut formats = self.described(product, layer).1;
        formats.dedup();
        formats
            .iter()
            .map(|format| format.name())
            .collect::<Vec<_>>()
            .join(" + ")
    }

    fn described(&self, product: Product, layer: usize) -> (String, Vec<Format>) {
        let layer = &self.layers[layer];
        match product {
            Product::Qkv => (layer.qkv.name(), layer.qkv.kernel.formats.to_vec()),
            Product::O => (layer.o.name(), vec![layer.o.kernel.format]),
            Product::GateUp => (layer.gate_up.name(), vec![layer.gate_up.kernel.format]),
            Product::Down => (layer.down.name(), vec![layer.down.kernel.format]),
            Product::Head => (self.head.kernel.name(), vec![self.head.kernel.format]),
        }
    }

    /// Blocks of a product, at most.
    pub(crate) fn max_blocks(&self) -> u32 {
        self.sms * MAX_ROUNDS
    }

    /// KV heads of so many tokens, each counted as often as its query heads need blocks.
    fn attention_units(&self, tokens: u32) -> u32 {
        let groups = (self.config.heads / self.config.kv_heads).div_ceil(ATTENTION_QUERIES);
        tokens * self.config.kv_heads * groups
    }

    /// Blocks of attention: one per SM, or more if it needs them.
    pub(crate) fn attention_blocks(&self, splits: u32) -> u32 {
        self.sms.max(self.attention_units(self.batch) * splits)
    }

    /// Ranges of positions into which attention is split: as many as there are SMs for.
    pub(crate) fn splits(&self, ctx: u32) -> u32 {
        let useful = ctx.div_ceil(self.attention.min_split_positions());
        (self.sms / self.attention_units(self.sharing))
            .min(useful)
            .clamp(1, MAX_SPLITS)
    }
}

fn check_config(c: &Config) -> Result<(), Unsupported> {
    let multiple = |what, found: u32, multiple| match found % multiple {
        0 => Ok(()),
        _ => Err(Unsupported::Multiple {
            what,
            found,
            multiple,
        }),
    };
    multiple("head_dim", c.head_dim, 16)?;
    multiple("the hidden size", c.hidden, 16)?;
    multiple("the feed-forward size", c.feed_forward, 8)?;
    multiple("the vocabulary size", c.vocab, 16)?;
    let (head_dim, rope_dim) = (c.head_dim, c.rope.dim);
    match c.heads / c.kv_heads {
        _ if head_dim > MAX_HEAD_DIM => Err(Unsupported::HeadDim {
            found: head_dim,
            max: MAX_HEAD_DIM,
        }),
        found if found > MAX_GROUP => Err(Unsupported::Group {
            found,
            max: MAX_GROUP,
        }),
        _ if c.local.is_some() && !c.architecture.head_norms => Err(Unsupported::TwoRopes),
        _ if rope_dim != head_dim => Err(Unsupported::PartialRope { rope_dim, head_dim }),
        _ => Ok(()),
    }
}

fn check_block(b: &Block<Weight>) -> Result<(), Unsupported> {
    [&b.q, &b.k, &b.v, &b.o, &b.gate, &b.up, &b.down]
        .into_iter()
        .try_for_each(check_matrix)?;
    let encoding = |w: &Weight| Encoding::of(w.format);
    for other in [&b.k, &b.v] {
        if encoding(&b.q) != encoding(other) {
            return Err(mixed(
                &b.q,
                other,
                "their activations are encoded differently",
            ));
        }
    }
    match b.gate.format == b.up.format {
        true => Ok(()),
        false => Err(mixed(&b.gate, &b.up, "the two must have the same format")),
    }
}

fn mixed(a: &Weight, b: &Weight, why: &'static str) -> Unsupported {
    Unsupported::Mixed {
        tensors: [a, b].map(|w| (w.name.clone(), w.format)),
        why,
    }
}

fn check_matrix(w: &Weight) -> Result<(), Unsupported> {
    let (tensor, len) = (w.name.clone(), w.row_len());
    match w.format.tile() {
        None => Err(Unsupported::Layout {
            tensor,
            format: w.format,
        }),
        Some(tile) if len % tile.columns != 0 => Err(Unsupported::RowLength {
            tensor,
            len,
            multiple: tile.columns,
        }),
        Some(_) => Ok(()),
    }
}

/// Decides the kernels of one step.
#[derive(Clone, Copy)]
struct Resolver<'a> {
    outline: &'a Outline,
    tuning: Tuning,
    target: Target,
    batch: u32,
    /// Shared memory of a product's block.
    shared: u32,
    /// For bits of a step of one token, the shared memory of its blocks.
    like: Option<u32>,
}

impl Resolver<'_> {
    fn step(&self) -> Result<ResolvedStep, Unsupported> {
        let (w, batch, overlap) = (&self.outline.weights, self.batch, self.target.overlaps());
        check_matrix(w.head())?;
        let head = self.head(w.head().format)?;
        let layers = (0..)
            .zip(&w.blocks)
            .map(|(i, b)| self.layer(i, b))
            .collect::<Result<_, _>>()?;
        let config = self.outline.config.clone();
        let add_normed = config
            .architecture
            .norms_after
            .then_some(AddNormed { overlap, batch });
        Ok(ResolvedStep {
            config,
            batch,
            sharing: if self.like.is_some() { 1 } else { batch },
            sms: self.target.sms,
            shared: self.shared,
            profile: self.tuning.profile,
            split_prompt: (batch > 1 && self.like.is_none()).then_some(SplitPrompt { batch }),
            place_drafts: self.like.map(|_| PlaceDrafts { batch }),
            embed: self.embed(),
            layers,
            attention: self.attention(None),
            add_normed,
            lora: ResolvedLora::of(self.outline, overlap, batch),
            head,
        })
    }

    fn embed(&self) -> ResolvedEmbed {
        let (w, overlap, batch) = (&self.outline.weights, self.target.overlaps(), self.batch);
        let (format, scale) = (
            w.embed.format,
            self.outline.config.architecture.embedding_scale,
        );
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

    fn attention(&self, window: Option<u32>) -> PipelinedAttention {
        let c = &self.outline.config;
        PipelinedAttention {
            head_dim: c.head_dim,
            queries: c.heads / c.kv_heads,
            window,
            overlap: self.target.overlaps(),
            // Whatever the tuning says.
            memory: self.target.preferred,
            batch: self.batch,
            profile: self.tuning.profile,
        }
    }

    fn layer(&self, index: u32, b: &Block<Weight>) -> Result<ResolvedLayer, Unsupported> {
        check_block(b)?;
        let c = &self.outline.config;
        let (overlap, batch) = (self.target.overlaps(), self.batch);
        let angles = AngleSet {
            index: c.rope_of(index),
            count: c.ropes().len() as u32,
        };
        Ok(ResolvedLayer {
            qkv: self.adapted(Product::Qkv, index, self.qkv(b)?),
            head_norm: c.architecture.head_norms.then_some(HeadNorm {
                overlap,
                batch,
                angles,
            }),
            attention: self.attention(c.window_of(index)),
            o: self.adapted(Product::O, index, self.o(b.o.format)?),
            gate_up: self.adapted(Product::GateUp, index, self.gate_up(b.gate.format)?),
            down: self.adapted(Product::Down, index, self.down(b)?),
        })
    }

    /// The product of a layer, with its adapter if it has one.
    fn adapted<K>(
        &self,
        product: Product,
        layer: u32,
        of: ResolvedProduct<K>,
    ) -> ResolvedProduct<K> {
        ResolvedProduct {
            lora: tiles::shape(self.outline, product, layer as usize).is_some(),
            ..of
        }
    }

    /// Bytes of an activation's integer in a product of a layer. It decides for all kernels, whatever their batch.
    ///
    /// Keys and values are rounded to binary16; what shifts them over a border of it counts most. That is the product that
    /// they come from, and down, which those of the next layer come from; a file in Q2_K has it in all its layers.
    fn activation_bytes(&self, product: Product, b: &Block<Weight>) -> ActivationBytes {
        let n = match product {
            Product::Qkv => b.q.row_len(),
            Product::Down => b.down.row_len(),
            Product::O | Product::GateUp | Product::Head => return ActivationBytes::Two,
        };
        // With their scales they take 7 bytes for two. The ring needs the rest of a block's shared memory.
        let shared = self.tuning.shared.unwrap_or(self.target.preferred);
        let fit = n <= MAX_OF_THREE && u64::from(n) * 7 / 2 <= u64::from(shared) * 5 / 8;
        let [q, k, v] = [&b.q, &b.k, &b.v].map(|w| w.format.activation_bytes());
        if fit {
            q.max(k).max(v)
        } else {
            ActivationBytes::Two
        }
    }

    fn qkv(&self, b: &Block<Weight>) -> Result<ResolvedProduct<Qkv>, Unsupported> {
        let (c, formats) = (&self.outline.config, [&b.q, &b.k, &b.v].map(|w| w.format));
        let bytes = self.activation_bytes(Product::Qkv, b);
        let default = || default_plan_with(bytes, formats[0], c.q_len() + 2 * c.kv_len(), c.hidden);
        let plan = self
            .plan(self.tuning.qkv.unwrap_or_else(default))
            .with_bytes(formats[0], bytes);
        let output = if c.architecture.head_norms {
            QkvOutput::Raw
        } else {
            QkvOutput::Append
        };
        let kernel = Qkv {
            formats,
            pairing: c.architecture.pairing,
            bias: c.architecture.biases,
            output,
            plan,
        };
        let segments = kernel.segments(c.heads, c.kv_heads, c.head_dim);
        let (plan, layout) = self.fit(Product::Qkv, &segments, kernel.plan, c.hidden)?;
        Ok(ResolvedProduct {
            kernel: Qkv { plan, ..kernel },
            layout,
            lora: false,
        })
    }

    /// The output projection. The queries before it usually have its format.
    fn o(&self, format: Format) -> Result<ResolvedProduct<Project>, Unsupported> {
        let c = &self.outline.config;
        let default = || default_plan(format, c.hidden, c.q_len()).after(format);
        self.project(
            Product::O,
            format,
            self.plan(self.tuning.o.unwrap_or_else(default)),
            c.q_len(),
        )
    }

    /// The down projection, after gate and up.
    fn down(&self, b: &Block<Weight>) -> Result<ResolvedProduct<Project>, Unsupported> {
        let (c, format) = (&self.outline.config, b.down.format);
        let bytes = self.activation_bytes(Product::Down, b);
        let default =
            || default_plan_with(bytes, format, c.hidden, c.feed_forward).after(b.gate.format);
        let plan = self
            .plan(self.tuning.down.unwrap_or_else(default))
            .with_bytes(format, bytes);
        self.project(Product::Down, format, plan, c.feed_forward)
    }

    fn project(
        &self,
        product: Product,
        format: Format,
        plan: Plan,
        n: u32,
    ) -> Result<ResolvedProduct<Project>, Unsupported> {
        let output = if self.outline.config.architecture.norms_after {
            ProjectOutput::Raw
        } else {
            ProjectOutput::Residual
        };
        let kernel = Project {
            format,
            output,
            plan,
        };
        let segments = kernel.segments(self.outline.config.hidden);
        let (plan, layout) = self.fit(product, &segments, kernel.plan, n)?;
        Ok(ResolvedProduct {
            kernel: Project { plan, ..kernel },
            layout,
            lora: false,
        })
    }

    /// Gate and up. The output projection before them usually has their format.
    fn gate_up(&self, format: Format) -> Result<ResolvedProduct<GateUp>, Unsupported> {
        let c = &self.outline.config;
        let default = || default_plan(format, 2 * c.feed_forward, c.hidden).after(format);
        let kernel = GateUp {
            format,
            activation: c.architecture.activation,
            plan: self.plan(self.tuning.gate_up.unwrap_or_else(default)),
        };
        let segments = kernel.segments(c.feed_forward);
        let (plan, layout) = self.fit(Product::GateUp, &segments, kernel.plan, c.hidden)?;
        Ok(ResolvedProduct {
            kernel: GateUp { plan, ..kernel },
            layout,
            lora: false,
        })
    }

    fn head(&self, format: Format) -> Result<ResolvedProduct<LmHead>, Unsupported> {
        let c = &self.outline.config;
        let default = || default_plan(format, c.vocab, c.hidden);
        let kernel = LmHead {
            format,
            plan: self.plan(self.tuning.head.unwrap_or_else(default)),
        };
        let segments = kernel.segments(c.vocab);
        let (plan, layout) = self.fit(Product::Head, &segments, kernel.plan, c.hidden)?;
        Ok(ResolvedProduct {
            kernel: LmHead { plan, ..kernel },
            layout,
            lora: false,
        })
    }

    /// The plan as the device and the batch allow it.
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

    /// The plan with as many tokens per launch as fit shared memory, and its layout.
    fn fit(
        &self,
        product: Product,
        segments: &Segments,
        plan: Plan,
        n: u32,
    ) -> Result<(Plan, Layout), Unsupported> {
        // More blocks have fewer rows each, and so fewer sums.
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
            // A block waits for the progress of the same block of the previous product.
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

    /// Blocks for each SM with which rows have the sums that they have in a step of one token. A warp's tiles of a row
    /// depend on the rows that its block has before, unless each warp has as many of each row: then any number does.
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
    use crate::model::shape::{QUANTIZATIONS, SHAPES};

    /// The batch has the plans of one token, but for twelve warps, and activations of as many bytes.
    #[test]
    fn what_decodes_one_token_decodes_a_batch() {
        let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
        let device = &driver.devices().unwrap()[0];
        for (shape, quantization) in SHAPES.iter().flat_map(|s| QUANTIZATIONS.map(|q| (s, q))) {
            let Ok(outline) = Outline::of(shape, quantization) else {
                continue;
            };
            let name = format!("{} {}", shape.name, quantization.name);
            let Ok(single) = Resolved::of(&outline, device, Tuning::default(), 1) else {
                assert!(
                    Resolved::of(&outline, device, Tuning::default(), 8).is_err(),
                    "{name}"
                );
                continue;
            };
            assert_eq!(single.batched, None, "{name}");
            let both = Resolved::of(&outline, device, Tuning::default(), 8).unwrap();
            assert_eq!(both.single, single.single, "{name}");
            let batched = both.batched.unwrap();
            assert_eq!(batched.layers.len(), single.single.layers.len(), "{name}");
            for (one, many) in single.single.layers.iter().zip(&batched.layers) {
                let warps = |plan: Plan| if plan.groups == 6 { 8 } else { plan.warps() };
                assert_eq!(
                    warps(one.down.kernel.plan),
                    many.down.kernel.plan.warps(),
                    "{name}"
                );
                assert_eq!(one.qkv.kernel.formats, many.qkv.kernel.formats, "{name}");
                let three = |l: &ResolvedLayer| {
                    let plans = [
                        l.qkv.kernel.plan,
                        l.o.kernel.plan,
                        l.gate_up.kernel.plan,
                        l.down.kernel.plan,
                    ];
                    plans.map(|plan| plan.bytes == ActivationBytes::Three)
                };
                let two_bits = quantization.name == "q2_k";
                let down = two_bits && shape.config.feed_forward <= MAX_OF_THREE;
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
            Resolved::of(&Outline::of(shape, two_bits).unwrap(), device, tuning, 1).unwrap();
        let layer = &resolved.single.layers[0];
        let bytes = [layer.qkv.kernel.plan, layer.down.kernel.plan].map(|plan| plan.bytes);
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
            let Ok(one) = Resolved::of(&outline, device, tuning, 1) else {
                continue;
            };
            let name = format!("{} {}", shape.name, quantization.name);
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
                        [a, b].map(|layer| (layer.down.kernel, layer.down.layout));
                    same(
                        &name,
                        a.format,
                        c.feed_forward,
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
