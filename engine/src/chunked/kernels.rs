//! The kernels of chunked passes, compiled when a pass first needs them.

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
use warpwright_model::Config;

use super::products::{self, ChunkGemm, LoadedGemm, PassShape, TensorCores, load};
use super::weights::{self, LayerRows, MatrixRows};
use super::workspace::CAPACITY;
use crate::distinct::SharedKernels;
use crate::kernel_terms::{kernel_activation, kernel_pairing};
use crate::pipeline::kernels::EmbedKernel;
use crate::pipeline::resolved::ResolvedEmbed;

/// The compiled kernels of chunked passes.
pub(crate) struct ChunkKernels {
    pub(super) cores: TensorCores,
    /// The embedding kernel of one token, from which the others are derived.
    resolved_embed: ResolvedEmbed,
    /// The embedding kernels, by their number of rows.
    pub(super) embed: BTreeMap<u32, EmbedKernel>,
    pub(super) norms: BTreeMap<NormTokens, Kernel<NormTokens>>,
    pub(super) products: BTreeMap<ChunkGemm, LoadedGemm>,
    /// The kernels of queries and keys together with values of another format, for few tokens.
    pub(super) pairs: BTreeMap<MatmulPair, Kernel<MatmulPair>>,
    /// The rotation kernels of models with head norms, by whether they overlap.
    pub(super) rotate: BTreeMap<bool, Kernel<RotateTokens>>,
    /// The attention kernel of each layer.
    pub(super) attention: Vec<AttentionKernel>,
    /// The attention kernels of rows that are the only ones of their sequences, for each layer. The
    /// index is 1 for kernels that overlap. Both are empty until they are prepared.
    pub(super) singles: [Vec<Arc<Kernel<BatchAttention>>>; 2],
    /// The kernels of models that norm the outputs of attention and the feed-forward, by the number
    /// of rows.
    pub(super) add_normed: BTreeMap<u32, Kernel<AddNormed>>,
}

/// The attention kernel of a layer. The usual head lengths have a kernel with `wgmma`.
pub(super) enum AttentionKernel {
    Wgmma(Arc<Kernel<PromptAttentionWgmma>>),
    Plain(Arc<Kernel<PromptAttention>>),
}

impl ChunkKernels {
    pub(crate) fn new(
        context: &Context,
        cores: TensorCores,
        c: &Config,
        layers: &[LayerRows],
        embed: ResolvedEmbed,
    ) -> Result<ChunkKernels, Error> {
        // Layers with the same window and weight order share a compiled kernel.
        let mut plain = SharedKernels::new(context);
        let mut wgmma = SharedKernels::new(context);
        let attention = (0..).zip(layers).map(|(index, layer)| {
            let window = c.attention(index).window;
            let order = order(&layer.o);
            Ok(if has_wgmma(cores, c) {
                let kernel = PromptAttentionWgmma::new(c.head_dim(), order);
                let kernel = window.map_or(kernel, |window| kernel.with_window(window));
                AttentionKernel::Wgmma(wgmma.load(kernel)?)
            } else {
                let kernel = PromptAttention::new(c.head_dim(), order);
                let kernel = window.map_or(kernel, |window| kernel.with_window(window));
                AttentionKernel::Plain(plain.load(kernel)?)
            })
        });
        Ok(ChunkKernels {
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

    /// Compiles attention of rows that are the only ones of their sequences, and returns the kernel
    /// of the first layer.
    pub(super) fn prepare_singles(
        &mut self,
        context: &Context,
        c: &Config,
        layers: &[LayerRows],
    ) -> Result<BatchAttention, Error> {
        let mut kernels = SharedKernels::new(context);
        for overlap in [false, true] {
            // Only devices with `wgmma` run overlapping passes: see `Chunked::overlaps`.
            if overlap && !self.cores.has_warpgroups() {
                continue;
            }
            let singles = (0..).zip(layers).map(|(index, layer)| {
                let kernel =
                    BatchAttention::new(c.head_dim(), c.heads() / c.kv_heads(), order(&layer.o));
                let kernel = c
                    .attention(index)
                    .window
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

    /// Compiles the kernels of passes with this shape.
    pub(crate) fn prepare(
        &mut self,
        context: &Context,
        c: &Config,
        layers: &[LayerRows],
        shape: PassShape,
    ) -> Result<(), Error> {
        let rows = fixed_rows(shape.bucket);
        let overlap = shape.overlap;
        if let Entry::Vacant(entry) = self.rotate.entry(overlap)
            && c.architecture.head_norms
        {
            entry.insert(load(context, rotate(c, overlap))?);
        }
        if let Entry::Vacant(entry) = self.embed.entry(rows) {
            entry.insert(EmbedKernel::load(
                context,
                with_rows(self.resolved_embed, rows),
            )?);
        }
        // Most layers have the formats of an earlier layer, so their kernels already exist.
        for layer in layers {
            self.prepare_norm(context, norms(layer, shape)[0])?;
            match qkv(self.cores, c, layer, shape, CAPACITY) {
                QkvMatmuls::Each(products) => {
                    for product in products {
                        self.prepare_product(context, product)?;
                    }
                }
                QkvMatmuls::Pair(pair) => {
                    if let Entry::Vacant(entry) = self.pairs.entry(pair) {
                        entry.insert(products::load(context, pair)?);
                    }
                }
            }
            self.prepare_rest(context, c, layer, shape, CAPACITY)?;
        }
        Ok(())
    }

    /// Compiles the kernels of a layer from the output projection on.
    pub(super) fn prepare_rest(
        &mut self,
        context: &Context,
        c: &Config,
        layer: &LayerRows,
        shape: PassShape,
        capacity: u32,
    ) -> Result<(), Error> {
        let rows = fixed_rows(shape.bucket);
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
        self.prepare_norm(context, norms(layer, shape)[1])?;
        let project = projection(c);
        let products = [
            (&layer.o, project),
            (&layer.gate_up, gated(c, layer)),
            (&layer.down, project),
        ];
        for (rows, epilogue) in products {
            self.prepare_product(context, self.cores.product(rows, epilogue, shape, capacity))?;
        }
        Ok(())
    }

    fn prepare_norm(&mut self, context: &Context, norm: NormTokens) -> Result<(), Error> {
        if let Entry::Vacant(entry) = self.norms.entry(norm) {
            entry.insert(load(context, norm)?);
        }
        Ok(())
    }

    fn prepare_product(&mut self, context: &Context, product: ChunkGemm) -> Result<(), Error> {
        if let Entry::Vacant(entry) = self.products.entry(product) {
            entry.insert(product.load(context)?);
        }
        Ok(())
    }
}

/// Returns the number of rows of a kernel that has it compiled in, for this many tokens.
pub(super) fn fixed_rows(tokens: u32) -> u32 {
    tokens.next_power_of_two().max(8)
}

/// Returns the embedding kernel for this many rows, without overlap.
fn with_rows(embed: ResolvedEmbed, rows: u32) -> ResolvedEmbed {
    match embed {
        ResolvedEmbed::Tiles(kernel) => ResolvedEmbed::Tiles(EmbedTiled {
            overlap: false,
            batch: rows,
            ..kernel
        }),
        ResolvedEmbed::Rows(kernel) => ResolvedEmbed::Rows(EmbedRows {
            overlap: false,
            batch: rows,
            ..kernel
        }),
    }
}

fn has_wgmma(cores: TensorCores, c: &Config) -> bool {
    cores.has_warpgroups() && matches!(c.head_dim(), 64 | 128)
}

/// Returns the maximum number of queries per work item of attention.
pub(crate) fn queries(cores: TensorCores, c: &Config) -> u32 {
    let plain = |order| PromptAttention::new(c.head_dim(), order).queries;
    if has_wgmma(cores, c) {
        PromptAttentionWgmma::QUERIES
    } else {
        plain(ColumnOrder { group: 8 })
    }
}

fn rotate(c: &Config, overlap: bool) -> RotateTokens {
    let family = c.architecture;
    RotateTokens {
        head_dim: c.head_dim(),
        pairing: kernel_pairing(family.pairing),
        bias: family.biases,
        norm: family.head_norms,
        overlap: early(overlap),
    }
}

/// Returns the order in which a matrix reads its columns.
pub(crate) fn order(rows: &MatrixRows) -> ColumnOrder {
    ColumnOrder::of(rows.format).expect("every packed format has a column order")
}

/// Returns true if the matrices of a layer read their normed input in two column orders.
pub(super) fn has_two_orders(layer: &LayerRows) -> bool {
    layer
        .qkv
        .iter()
        .any(|rows| order(rows) != order(&layer.qkv[0]))
}

/// Returns the norm kernels before attention and before the feed-forward.
pub(super) fn norms(layer: &LayerRows, shape: PassShape) -> [NormTokens; 2] {
    let first = order(&layer.qkv[0]);
    let second = layer.qkv.iter().map(order).find(|&order| order != first);
    let overlap = early(shape.overlap);
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

/// The matmuls of queries, keys and values.
pub(super) enum QkvMatmuls {
    /// One kernel per matrix.
    Each(Vec<ChunkGemm>),
    /// One kernel for two matrices.
    Pair(MatmulPair),
}

/// Selects the matmuls of queries, keys and values in a layer. Two matrices become one kernel if
/// there is one.
pub(super) fn qkv(
    cores: TensorCores,
    c: &Config,
    layer: &LayerRows,
    shape: PassShape,
    capacity: u32,
) -> QkvMatmuls {
    let epilogue = weights::qkv_epilogue(c);
    let pair = match &layer.qkv[..] {
        [first, second] => cores.pair([first, second], epilogue, shape, capacity),
        _ => None,
    };
    if let Some(pair) = pair {
        return QkvMatmuls::Pair(pair);
    }
    let product = |rows: &MatrixRows| cores.product(rows, epilogue, shape, capacity);
    QkvMatmuls::Each(layer.qkv.iter().map(product).collect())
}

/// Returns the overlap of a kernel that leaves multiprocessors to the next one.
fn early(overlap: bool) -> Overlap {
    if overlap { Overlap::Early } else { Overlap::No }
}

/// Returns the epilogue of the output projection and the down projection.
pub(super) fn projection(c: &Config) -> Epilogue {
    if c.architecture.norms_after {
        Epilogue::Store
    } else {
        Epilogue::Add
    }
}

/// Returns the epilogue of gate and up.
pub(super) fn gated(c: &Config, layer: &LayerRows) -> Epilogue {
    Epilogue::Gated(
        kernel_activation(c.architecture.activation),
        order(&layer.down),
    )
}

/// The maximum length of a row of activations, because kernels count the elements of a buffer in 31
/// bits.
const LONGEST: u32 = (1 << 31) / CAPACITY;

/// Returns the tensor cores, or the reason why there are no kernels for this device and these
/// sizes.
pub(crate) fn check(device: &Device, c: &Config) -> Result<TensorCores, String> {
    let (major, minor) = device.compute_capability();
    let cores = TensorCores::of_device(device).ok_or_else(|| {
        format!("its kernels need compute capability 8.0 and 99 KiB of shared memory, but the device has {major}.{minor}")
    })?;
    // Each of these sizes is the row length of one matmul, which reads panels of 64 columns, and
    // the number of rows of another, which computes 128 rows per job.
    let sizes = [
        ("hidden", c.hidden),
        ("heads * head_dim", c.q_len()),
        ("feed_forward", c.feed_forward()),
    ];
    if let Some((name, n)) = sizes.into_iter().find(|(_, n)| !n.is_multiple_of(128)) {
        return Err(format!("{name} is {n}, but must be a multiple of 128"));
    }
    let longest = c
        .hidden
        .max(c.feed_forward())
        .max(c.q_len() + 2 * c.kv_len());
    if longest > LONGEST {
        return Err(format!(
            "a row of activations has {longest} values, but at most {LONGEST} are supported"
        ));
    }
    Ok(cores)
}
