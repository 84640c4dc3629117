//! The kernels of chunked prefill, compiled when a chunk of some length first needs them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use ptx_gen::KernelDef;
use warpwright_driver::{Context, Error, Kernel};
use warpwright_kernels::AddNormed;
use warpwright_kernels::format::dequantize::ColumnOrder;
use warpwright_kernels::matmul::{Epilogue, Matmul, NormTokens};
use warpwright_kernels::pipeline::SplitPrompt;
use warpwright_kernels::prompt::{PromptAttention, PromptAttentionWgmma, RotateTokens};

use super::CHUNK;
use super::weights::{LayerRows, Rows};
use super::workspace::CAPACITY;
use crate::distinct::Distinct;
use crate::model::config::Config;
use crate::pipeline::kernels::EmbedKernel;
use crate::pipeline::resolved::ResolvedEmbed;
use crate::signed;

/// The kernels.
pub(crate) struct Kernels {
    /// Multiprocessors of the device.
    pub(super) sms: u32,
    pub(super) split_prompt: Kernel<SplitPrompt>,
    pub(super) embed: EmbedKernel,
    pub(super) norms: BTreeMap<NormTokens, Kernel<NormTokens>>,
    pub(super) products: BTreeMap<Matmul, Kernel<Matmul>>,
    pub(super) rotate: Kernel<RotateTokens>,
    /// Of each layer.
    pub(super) attention: Vec<AttentionKernel>,
    /// For models with norms after attention and the feed-forward.
    pub(super) add_normed: Option<Kernel<AddNormed>>,
}

/// Attention of a layer: on products of warpgroups for the usual lengths of heads.
pub(super) enum AttentionKernel {
    Wgmma(Arc<Kernel<PromptAttentionWgmma>>),
    Plain(Arc<Kernel<PromptAttention>>),
}

impl Kernels {
    pub(crate) fn new(
        context: &Context,
        c: &Config,
        layers: &[LayerRows],
        embed: ResolvedEmbed,
    ) -> Result<Kernels, Error> {
        let (mut plain, mut wgmma) = (Distinct::new(context), Distinct::new(context));
        let attention = (0..).zip(layers).map(|(index, layer)| {
            let (window, order) = (c.window_of(index), order(&layer.o));
            Ok(if matches!(c.head_dim, 64 | 128) {
                let kernel = PromptAttentionWgmma::new(c.head_dim, order);
                let kernel = window.map_or(kernel, |window| kernel.with_window(window));
                AttentionKernel::Wgmma(wgmma.load(kernel)?)
            } else {
                let kernel = PromptAttention::new(c.head_dim, order);
                let kernel = window.map_or(kernel, |window| kernel.with_window(window));
                AttentionKernel::Plain(plain.load(kernel)?)
            })
        });
        let add = c.architecture.norms_after.then_some(AddNormed { overlap: false, batch: CHUNK });
        Ok(Kernels {
            sms: context.device().properties().multiprocessors,
            split_prompt: load(context, SplitPrompt { batch: CHUNK })?,
            embed: EmbedKernel::load(context, in_chunks(embed))?,
            norms: BTreeMap::new(),
            products: BTreeMap::new(),
            rotate: load(context, rotate(c))?,
            attention: attention.collect::<Result<_, Error>>()?,
            add_normed: add.map(|kernel| load(context, kernel)).transpose()?,
        })
    }

    /// Compiles what a chunk of this length needs.
    pub(crate) fn prepare(
        &mut self,
        context: &Context,
        c: &Config,
        layers: &[LayerRows],
        tokens: u32,
    ) -> Result<(), Error> {
        for layer in layers {
            for norm in norms(layer) {
                if let Entry::Vacant(entry) = self.norms.entry(norm) {
                    entry.insert(load(context, norm)?);
                }
            }
            for product in products(self.sms, c, layer, tokens) {
                if let Entry::Vacant(entry) = self.products.entry(product) {
                    entry.insert(load(context, product)?);
                }
            }
        }
        Ok(())
    }
}

/// Loads a kernel that prefers shared memory, as the products do: a multiprocessor changes the split between kernels
/// only when it is idle.
fn load<K: KernelDef>(context: &Context, kernel: K) -> Result<Kernel<K>, Error> {
    let kernel = signed::load(context, kernel)?;
    kernel.function().prefer_shared()?;
    Ok(kernel)
}

fn in_chunks(embed: ResolvedEmbed) -> ResolvedEmbed {
    match embed {
        ResolvedEmbed::Tiles(kernel) => ResolvedEmbed::Tiles(warpwright_kernels::pipeline::EmbedTiled {
            overlap: false,
            batch: CHUNK,
            ..kernel
        }),
        ResolvedEmbed::Rows(kernel) => ResolvedEmbed::Rows(warpwright_kernels::pipeline::EmbedRows {
            overlap: false,
            batch: CHUNK,
            ..kernel
        }),
    }
}

fn rotate(c: &Config) -> RotateTokens {
    let family = c.architecture;
    RotateTokens {
        head_dim: c.head_dim,
        pairing: family.pairing,
        bias: family.biases,
        norm: family.head_norms,
    }
}

/// In which order a matrix takes its columns.
pub(super) fn order(rows: &Rows) -> ColumnOrder {
    ColumnOrder::of(rows.format).expect("the pipeline has tiles alone")
}

/// The norms before attention and before the feed-forward.
pub(super) fn norms(layer: &LayerRows) -> [NormTokens; 2] {
    let first = order(&layer.qkv[0]);
    let second = layer.qkv.iter().map(order).find(|&order| order != first);
    [NormTokens { order: first, second }, NormTokens { order: order(&layer.gate_up), second: None }]
}

/// All products of a layer.
fn products(sms: u32, c: &Config, layer: &LayerRows, tokens: u32) -> Vec<Matmul> {
    let of = |rows: &Rows, epilogue| product(sms, rows, epilogue, tokens);
    let qkv = layer.qkv.iter().map(|rows| of(rows, Epilogue::Store));
    let project = projection(c);
    let rest = [of(&layer.o, project), of(&layer.gate_up, gated(c, layer)), of(&layer.down, project)];
    qkv.chain(rest).collect()
}

/// The epilogue of the output and the down projection.
pub(super) fn projection(c: &Config) -> Epilogue {
    if c.architecture.norms_after { Epilogue::Store } else { Epilogue::Add }
}

/// The epilogue of gate and up.
pub(super) fn gated(c: &Config, layer: &LayerRows) -> Epilogue {
    Epilogue::Gated(c.architecture.activation, order(&layer.down))
}

/// The product of these rows with so many tokens.
pub(super) fn product(sms: u32, rows: &Rows, epilogue: Epilogue, tokens: u32) -> Matmul {
    let of = |width| Matmul { format: rows.format, epilogue, rows: rows.order, tokens: width };
    let cost = |width: &u32| of(*width).jobs(rows.rows, tokens).div_ceil(sms) * (width + FIXED);
    of(WIDTHS.into_iter().min_by_key(cost).expect("there are widths"))
}

/// Tokens of a block of a product.
const WIDTHS: [u32; 4] = [256, 192, 128, 64];
/// What a block's job costs besides its tokens, in tokens: measured on an H200 with rows of 4,096 weights.
const FIXED: u32 = 36;

/// The longest row of a chunk: kernels count the elements of a buffer in 31 bits.
const LONGEST: u32 = (1 << 31) / CAPACITY;

/// Whether there are kernels for these sizes: activations come in panels.
pub(crate) fn supports(c: &Config) -> bool {
    let panels = [c.hidden, c.q_len(), c.feed_forward].into_iter().all(|n| n.is_multiple_of(128));
    let longest = c.hidden.max(c.feed_forward).max(c.q_len() + 2 * c.kv_len());
    panels && longest <= LONGEST
}
