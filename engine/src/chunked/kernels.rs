//! The kernels of chunked prefill, compiled when a chunk of some length first needs them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use warpwright_driver::{Context, Device, Error, Kernel};
use warpwright_kernels::batch::BatchAttention;
use warpwright_kernels::format::dequantize::ColumnOrder;
use warpwright_kernels::matmul::{Epilogue, MatmulPair, NormTokens};
use warpwright_kernels::pipeline::{EmbedRows, EmbedTiled};
use warpwright_kernels::prompt::{PromptAttention, PromptAttentionWgmma, RotateTokens};
use warpwright_kernels::{AddNormed, Overlap};

use super::products::{self, Chosen, Cores, Product, ProductKernel, load};
use super::weights::{self, LayerRows, Rows};
use super::workspace::CAPACITY;
use crate::distinct::Distinct;
use crate::model::config::Config;
use crate::pipeline::kernels::EmbedKernel;
use crate::pipeline::resolved::ResolvedEmbed;

/// The kernels.
pub(crate) struct Kernels {
    pub(super) cores: Cores,
    /// How tokens are embedded, and the kernels by their number of rows.
    resolved_embed: ResolvedEmbed,
    pub(super) embed: BTreeMap<u32, EmbedKernel>,
    pub(super) norms: BTreeMap<NormTokens, Kernel<NormTokens>>,
    pub(super) products: BTreeMap<Product, ProductKernel>,
    /// Of queries and keys, and of values in another format, with few tokens.
    pub(super) pairs: BTreeMap<MatmulPair, Kernel<MatmulPair>>,
    /// For models with head norms, by whether it overlaps.
    pub(super) rotate: BTreeMap<bool, Kernel<RotateTokens>>,
    /// Of each layer.
    pub(super) attention: Vec<AttentionKernel>,
    /// Of each layer, for rows that are the only ones of their sequences, by whether it overlaps, if they have been asked
    /// for.
    pub(super) singles: [Vec<Arc<Kernel<BatchAttention>>>; 2],
    /// For models with norms after attention and the feed-forward, by the number of rows.
    pub(super) add_normed: BTreeMap<u32, Kernel<AddNormed>>,
}

/// Attention of a layer: on products of warpgroups for the usual lengths of heads.
pub(super) enum AttentionKernel {
    Wgmma(Arc<Kernel<PromptAttentionWgmma>>),
    Plain(Arc<Kernel<PromptAttention>>),
}

impl Kernels {
    pub(crate) fn new(
        context: &Context,
        cores: Cores,
        c: &Config,
        layers: &[LayerRows],
        embed: ResolvedEmbed,
    ) -> Result<Kernels, Error> {
        let (mut plain, mut wgmma) = (Distinct::new(context), Distinct::new(context));
        let attention = (0..).zip(layers).map(|(index, layer)| {
            let (window, order) = (c.window_of(index), order(&layer.o));
            Ok(if has_wgmma(cores, c) {
                let kernel = PromptAttentionWgmma::new(c.head_dim, order);
                let kernel = window.map_or(kernel, |window| kernel.with_window(window));
                AttentionKernel::Wgmma(wgmma.load(kernel)?)
            } else {
                let kernel = PromptAttention::new(c.head_dim, order);
                let kernel = window.map_or(kernel, |window| kernel.with_window(window));
                AttentionKernel::Plain(plain.load(kernel)?)
            })
        });
        Ok(Kernels {
            cores,
            resolved_embed: embed,
            embed: BTreeMap::new(),
            norms: BTreeMap::new(),
            products: BTreeMap::new(),
            pairs: BTreeMap::new(),
            rotate: BTreeMap::new(),
            attention: attention.collect::<Result<_, Error>>()?,
            singles: [vec![], vec![]],
            add_normed: BTreeMap::new(),
        })
    }

    /// Compiles attention of rows that are the only ones of their sequences.
    pub(super) fn prepare_singles(
        &mut self,
        context: &Context,
        c: &Config,
        layers: &[LayerRows],
    ) -> Result<BatchAttention, Error> {
        let mut kernels = Distinct::new(context);
        for overlap in [false, true]
            .into_iter()
            .filter(|&overlap| !overlap || self.cores.has_warpgroups())
        {
            let singles = (0..).zip(layers).map(|(index, layer)| {
                let kernel = BatchAttention::new(c.head_dim, c.heads / c.kv_heads, order(&layer.o));
                let kernel = c
                    .window_of(index)
                    .map_or(kernel, |window| kernel.with_window(window));
                kernels.load(BatchAttention {
                    overlap: early(overlap),
                    ..kernel
                })
            });
            self.singles[usize::from(overlap)] = singles.collect::<Result<_, Error>>()?;
        }
        Ok(*self.singles[0][0].def())
    }

    /// Compiles what passes of this bucket need.
    pub(crate) fn prepare(
        &mut self,
        context: &Context,
        c: &Config,
        layers: &[LayerRows],
        chosen: Chosen,
    ) -> Result<(), Error> {
        let (rows, overlap) = (fixed_rows(chosen.bucket), chosen.overlap);
        if let Entry::Vacant(entry) = self.rotate.entry(overlap)
            && c.architecture.head_norms
        {
            entry.insert(load(context, rotate(c, overlap))?);
        }
        if let Entry::Vacant(entry) = self.embed.entry(rows) {
            entry.insert(EmbedKernel::load(
                context,
                of_rows(self.resolved_embed, rows),
            )?);
        }
        for layer in layers {
            self.prepare_norm(context, norms(layer, chosen)[0])?;
            match qkv(self.cores, c, layer, chosen, CAPACITY) {
                Qkv::Each(products) => {
                    products
                        .into_iter()
                        .try_for_each(|product| self.prepare_product(context, product))?;
                }
                Qkv::Pair(pair) => {
                    if let Entry::Vacant(entry) = self.pairs.entry(pair) {
                        entry.insert(products::load(context, pair)?);
                    }
                }
            }
            self.prepare_rest(context, c, layer, chosen, CAPACITY)?;
        }
        Ok(())
    }

    /// Compiles what a layer needs after attention.
    pub(super) fn prepare_rest(
        &mut self,
        context: &Context,
        c: &Config,
        layer: &LayerRows,
        chosen: Chosen,
        capacity: u32,
    ) -> Result<(), Error> {
        let rows = fixed_rows(chosen.bucket);
        if let Entry::Vacant(entry) = self.add_normed.entry(rows)
            && c.architecture.norms_after
        {
            entry.insert(load(
                context,
                AddNormed {
                    overlap: false,
                    batch: rows,
                },
            )?);
        }
        self.prepare_norm(context, norms(layer, chosen)[1])?;
        let project = projection(c);
        let products = [
            (&layer.o, project),
            (&layer.gate_up, gated(c, layer)),
            (&layer.down, project),
        ];
        for (rows, epilogue) in products {
            self.prepare_product(
                context,
                self.cores.product(rows, epilogue, chosen, capacity),
            )?;
        }
        Ok(())
    }

    fn prepare_norm(&mut self, context: &Context, norm: NormTokens) -> Result<(), Error> {
        if let Entry::Vacant(entry) = self.norms.entry(norm) {
            entry.insert(load(context, norm)?);
        }
        Ok(())
    }

    fn prepare_product(&mut self, context: &Context, product: Product) -> Result<(), Error> {
        if let Entry::Vacant(entry) = self.products.entry(product) {
            entry.insert(product.load(context)?);
        }
        Ok(())
    }
}

/// Rows of a kernel that has their number compiled in, for so many tokens.
pub(super) fn fixed_rows(tokens: u32) -> u32 {
    tokens.next_power_of_two().max(8)
}

fn of_rows(embed: ResolvedEmbed, rows: u32) -> ResolvedEmbed {
    let (overlap, batch) = (false, rows);
    match embed {
        ResolvedEmbed::Tiles(kernel) => ResolvedEmbed::Tiles(EmbedTiled {
            overlap,
            batch,
            ..kernel
        }),
        ResolvedEmbed::Rows(kernel) => ResolvedEmbed::Rows(EmbedRows {
            overlap,
            batch,
            ..kernel
        }),
    }
}

fn has_wgmma(cores: Cores, c: &Config) -> bool {
    cores.has_warpgroups() && matches!(c.head_dim, 64 | 128)
}

/// Queries of a work item, at most.
pub(crate) fn queries(cores: Cores, c: &Config) -> u32 {
    let plain = |order| PromptAttention::new(c.head_dim, order).queries;
    if has_wgmma(cores, c) {
        PromptAttentionWgmma::QUERIES
    } else {
        plain(ColumnOrder { group: 8 })
    }
}

fn rotate(c: &Config, overlap: bool) -> RotateTokens {
    let family = c.architecture;
    RotateTokens {
        head_dim: c.head_dim,
        pairing: family.pairing,
        bias: family.biases,
        norm: family.head_norms,
        overlap: early(overlap),
    }
}

/// In which order a matrix takes its columns.
pub(crate) fn order(rows: &Rows) -> ColumnOrder {
    ColumnOrder::of(rows.format).expect("the pipeline has tiles alone")
}

/// Whether the matrices of a layer take its normed input in two orders of columns.
pub(super) fn has_two_orders(layer: &LayerRows) -> bool {
    layer
        .qkv
        .iter()
        .any(|rows| order(rows) != order(&layer.qkv[0]))
}

/// The norms before attention and before the feed-forward of a pass.
pub(super) fn norms(layer: &LayerRows, chosen: Chosen) -> [NormTokens; 2] {
    let first = order(&layer.qkv[0]);
    let second = layer.qkv.iter().map(order).find(|&order| order != first);
    let overlap = early(chosen.overlap);
    [
        NormTokens {
            order: first,
            second,
            overlap,
        },
        NormTokens {
            order: order(&layer.gate_up),
            second: None,
            overlap,
        },
    ]
}

/// The products of queries, keys and values.
pub(super) enum Qkv {
    /// One for each of the matrices.
    Each(Vec<Product>),
    /// Both matrices as one.
    Pair(MatmulPair),
}

/// Those of a layer: two matrices that append are one kernel where that can be.
pub(super) fn qkv(
    cores: Cores,
    c: &Config,
    layer: &LayerRows,
    chosen: Chosen,
    capacity: u32,
) -> Qkv {
    let epilogue = weights::qkv_epilogue(c);
    let pair = match &layer.qkv[..] {
        [first, second] => cores.pair([first, second], epilogue, chosen, capacity),
        _ => None,
    };
    let of = |rows: &Rows| cores.product(rows, epilogue, chosen, capacity);
    pair.map_or_else(|| Qkv::Each(layer.qkv.iter().map(of).collect()), Qkv::Pair)
}

/// How a kernel overlaps that leaves multiprocessors to the next one.
fn early(overlap: bool) -> Overlap {
    if overlap { Overlap::Early } else { Overlap::No }
}

/// The epilogue of the output and the down projection.
pub(super) fn projection(c: &Config) -> Epilogue {
    if c.architecture.norms_after {
        Epilogue::Store
    } else {
        Epilogue::Add
    }
}

/// The epilogue of gate and up.
pub(super) fn gated(c: &Config, layer: &LayerRows) -> Epilogue {
    Epilogue::Gated(c.architecture.activation, order(&layer.down))
}

/// The longest row of a chunk: kernels count the elements of a buffer in 31 bits.
const LONGEST: u32 = (1 << 31) / CAPACITY;

/// Whether there are kernels for this device and these sizes; else why not.
pub(crate) fn check(device: &Device, c: &Config) -> Result<Cores, String> {
    let (major, minor) = device.compute_capability();
    let cores = Cores::of(device).ok_or_else(|| {
        format!("its kernels need compute capability 8.0 and 99 KiB of shared memory; the device has {major}.{minor}")
    })?;
    // Activations come in panels.
    let sizes = [
        ("hidden", c.hidden),
        ("heads * head_dim", c.q_len()),
        ("feed_forward", c.feed_forward),
    ];
    if let Some((name, n)) = sizes.into_iter().find(|(_, n)| !n.is_multiple_of(128)) {
        return Err(format!("{name} is {n}, and must be a multiple of 128"));
    }
    let longest = c.hidden.max(c.feed_forward).max(c.q_len() + 2 * c.kv_len());
    if longest > LONGEST {
        return Err(format!(
            "a row of activations has {longest} numbers, more than {LONGEST}"
        ));
    }
    Ok(cores)
}
