//! The kernels of chunked passes, compiled when a pass first needs them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use warpwright_driver::device::Device;
use warpwright_driver::launch::Kernel;
use warpwright_driver::{Context, Error};
use warpwright_kernels::batch::BatchAttention;
use warpwright_kernels::format::dequantize::ColumnOrder;
use warpwright_kernels::matmul::{Epilogue, MatmulPair, NormTokens};
use warpwright_kernels::pipeline::{EmbedRows, EmbedTiled};
use warpwright_kernels::prompt::{PromptAttention, PromptAttentionWgmma, RotateTokens};
use warpwright_kernels::{AddNormed, Overlap};
use warpwright_model::Config;
use warpwright_model::layer::{Attention, Experts, GateActivation, QkvBias};

use super::experts::kernels::{ExpertKernels, ExpertMatrixRows, LoadedExpertKernels};
use super::experts::sorted_rows::most_rows_of;
use super::loaded;
use super::products::{ChunkGemm, LoadedGemm, PassShape, TensorCores, load};
use super::weights::{self, LayerRows, MatrixRows};
use super::workspace::CAPACITY;
use crate::distinct::SharedKernels;
use crate::kernel_terms::{kernel_activation, kernel_pairing};
use crate::pipeline::Unsupported;
use crate::pipeline::kernels::EmbedKernel;
use crate::pipeline::kinds::{Appending, PipelineFeedForward, PipelineLayer, PipelineNorms};
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
    /// The rotation kernels of layers with head norms.
    rotate: Vec<Kernel<RotateTokens>>,
    /// The attention kernel of each layer.
    pub(super) attention: Vec<AttentionKernel>,
    /// The attention kernels of rows that are the only ones of their sequences, for each layer. The
    /// index is 1 for kernels that overlap. Both are empty until they are prepared.
    pub(super) singles: [Vec<Arc<Kernel<BatchAttention>>>; 2],
    /// The kernels of models that norm the outputs of attention and the feed-forward, by the number
    /// of rows.
    pub(super) add_normed: BTreeMap<u32, Kernel<AddNormed>>,
    /// The kernels of mixtures of experts.
    pub(super) experts: LoadedExpertKernels,
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
        layers: &[LayerRows],
        embed: ResolvedEmbed,
    ) -> Result<ChunkKernels, Error> {
        // Layers with the same window and weight order share a compiled kernel.
        let mut plain = SharedKernels::new(context);
        let mut wgmma = SharedKernels::new(context);
        let attention = layers.iter().map(|layer| {
            let Attention {
                head_dim, window, ..
            } = layer.attention;
            let order = order(&layer.o);
            Ok(if has_wgmma(cores, head_dim) {
                let kernel = PromptAttentionWgmma::new(head_dim, order);
                let kernel = window.map_or(kernel, |window| kernel.with_window(window));
                AttentionKernel::Wgmma(wgmma.load(kernel)?)
            } else {
                let kernel = PromptAttention::new(head_dim, order);
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
            rotate: vec![],
            attention: attention.collect::<Result<_, Error>>()?,
            singles: [vec![], vec![]],
            add_normed: BTreeMap::new(),
            experts: LoadedExpertKernels::default(),
        })
    }

    /// Compiles attention of rows that are the only ones of their sequences, and returns the kernel
    /// of the first layer.
    pub(super) fn prepare_singles(
        &mut self,
        context: &Context,
        layers: &[LayerRows],
    ) -> Result<BatchAttention, Error> {
        let mut kernels = SharedKernels::new(context);
        for overlap in [false, true] {
            // Only devices with `wgmma` run overlapping passes: see `Chunked::overlaps`.
            if overlap && !self.cores.has_warpgroups() {
                continue;
            }
            let singles = layers.iter().map(|layer| {
                let attention = &layer.attention;
                let kernel =
                    BatchAttention::new(attention.head_dim, attention.group(), order(&layer.o));
                let kernel = attention
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
        layers: &[LayerRows],
        shape: PassShape,
    ) -> Result<(), Error> {
        let rows = fixed_rows(shape.bucket);
        if let Entry::Vacant(entry) = self.embed.entry(rows) {
            entry.insert(EmbedKernel::load(
                context,
                with_rows(self.resolved_embed, rows),
            )?);
        }

        // Most layers have the formats of an earlier layer, so their kernels already exist.
        for layer in layers {
            loaded::prepare(context, &mut self.norms, norms(layer, shape)[0])?;
            match layer.appending {
                Appending::Product => {}
                Appending::Rotation => self.prepare_rotation(context, layer, shape)?,
            }

            match qkv(self.cores, layer, shape, CAPACITY) {
                QkvMatmuls::Each(products) => {
                    for product in products {
                        self.prepare_product(context, product)?;
                    }
                }
                QkvMatmuls::Pair(pair) => loaded::prepare(context, &mut self.pairs, pair)?,
            }

            self.prepare_rest(context, layer, shape, CAPACITY)?;
        }

        Ok(())
    }

    /// Compiles the kernels of a layer from the output projection on.
    pub(super) fn prepare_rest(
        &mut self,
        context: &Context,
        layer: &LayerRows,
        shape: PassShape,
        capacity: u32,
    ) -> Result<(), Error> {
        let rows = fixed_rows(shape.bucket);
        if let Entry::Vacant(entry) = self.add_normed.entry(rows)
            && layer.norms == PipelineNorms::BeforeAndAfter
        {
            entry.insert(load(
                context,
                AddNormed {
                    overlap: false,
                    batch: rows,
                },
            )?);
        }

        loaded::prepare(context, &mut self.norms, norms(layer, shape)[1])?;
        let project = projection(layer);
        self.prepare_product(
            context,
            self.cores.product(&layer.o, project, shape, capacity),
        )?;
        match &layer.feed_forward {
            PipelineFeedForward::Dense(_) => {
                for (rows, epilogue) in [(&layer.gate_up, gated(layer)), (&layer.down, project)] {
                    let product = self.cores.product(rows, epilogue, shape, capacity);
                    self.prepare_product(context, product)?;
                }
                Ok(())
            }
            PipelineFeedForward::Experts(experts) => {
                let kernels = expert_kernels(self.cores, layer, experts, shape);
                self.experts.prepare(context, &kernels)
            }
        }
    }

    /// Compiles the matmuls that store the sums of these matrices.
    pub(super) fn prepare_sums<'m>(
        &mut self,
        context: &Context,
        matrices: impl Iterator<Item = &'m MatrixRows>,
        shape: PassShape,
    ) -> Result<(), Error> {
        for rows in matrices {
            let product = self.cores.product(rows, Epilogue::Store, shape, CAPACITY);
            self.prepare_product(context, product)?;
        }
        Ok(())
    }

    fn prepare_rotation(
        &mut self,
        context: &Context,
        layer: &LayerRows,
        shape: PassShape,
    ) -> Result<(), Error> {
        let wanted = rotate(&layer.attention, shape.overlap);
        if !self.rotate.iter().any(|kernel| *kernel.def() == wanted) {
            self.rotate.push(load(context, wanted)?);
        }
        Ok(())
    }

    /// Returns the rotation kernel of a layer with head norms, which must be prepared.
    pub(super) fn rotation(&self, layer: &LayerRows, overlap: bool) -> &Kernel<RotateTokens> {
        let wanted = rotate(&layer.attention, overlap);
        let mut kernels = self.rotate.iter();
        kernels
            .find(|kernel| *kernel.def() == wanted)
            .expect("the kernels of the pass are prepared")
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

fn has_wgmma(cores: TensorCores, head_dim: u32) -> bool {
    cores.has_warpgroups() && matches!(head_dim, 64 | 128)
}

/// Returns the maximum number of queries per work item of attention.
pub(crate) fn queries(cores: TensorCores, c: &Config) -> u32 {
    let head_dim = c.head_dim();
    let plain = |order| PromptAttention::new(head_dim, order).queries;
    if has_wgmma(cores, head_dim) {
        PromptAttentionWgmma::QUERIES
    } else {
        plain(ColumnOrder { group: 8 })
    }
}

fn rotate(attention: &Attention, overlap: bool) -> RotateTokens {
    RotateTokens {
        head_dim: attention.head_dim,
        pairing: kernel_pairing(attention.pairing),
        bias: attention.bias == QkvBias::Each,
        // Without head norms, the matmul rotates.
        norm: true,
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
    layer: &LayerRows,
    shape: PassShape,
    capacity: u32,
) -> QkvMatmuls {
    let epilogue = weights::qkv_epilogue(&layer.attention);
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
pub(super) fn projection(layer: &LayerRows) -> Epilogue {
    match layer.norms {
        PipelineNorms::Before => Epilogue::Add,
        PipelineNorms::BeforeAndAfter => Epilogue::Store,
    }
}

/// Returns the epilogue of gate and up.
pub(super) fn gated(layer: &LayerRows) -> Epilogue {
    Epilogue::Gated(
        kernel_activation(layer.feed_forward.activation()),
        order(&layer.down),
    )
}

/// Selects the kernels of a layer's mixture of experts.
pub(super) fn expert_kernels(
    cores: TensorCores,
    layer: &LayerRows,
    experts: &Experts,
    shape: PassShape,
) -> ExpertKernels {
    let matrices = ExpertMatrixRows {
        gate_up: &layer.gate_up,
        down: &layer.down,
        down_order: order(&layer.down),
    };
    ExpertKernels::new(cores, experts, &matrices, shape)
}

/// The maximum length of a row of activations, because kernels count the elements of a buffer in 31
/// bits.
const LONGEST: u32 = MOST_ELEMENTS / CAPACITY;
const MOST_ELEMENTS: u32 = 1 << 31;

/// Returns the tensor cores, or the reason why there are no kernels for this device and these
/// sizes.
pub(crate) fn check(device: &Device, c: &Config) -> Result<TensorCores, String> {
    let (major, minor) = device.compute_capability();
    let cores = TensorCores::of_device(device).ok_or_else(|| {
        format!("its kernels need compute capability 8.0 and 99 KiB of shared memory, but the device has {major}.{minor}")
    })?;
    for layer in &c.layers {
        let layer = PipelineLayer::new(layer).map_err(|reason| reason.to_string())?;
        check_layer(c, &layer)?;
    }
    Ok(cores)
}

/// Returns the reason why there are no kernels for a layer.
fn check_layer(c: &Config, layer: &PipelineLayer) -> Result<(), String> {
    check_kinds(layer).map_err(|reason| reason.to_string())?;
    let attention = &layer.attention;

    // Each of these sizes is the row length of one matmul, which reads panels of 64 columns, and
    // the number of rows of another, which computes 128 rows per job.
    let width = layer.feed_forward.width();
    let sizes = [
        ("hidden", c.hidden),
        ("heads * head_dim", attention.q_len()),
        ("feed_forward", width),
    ];
    if let Some((name, n)) = sizes.into_iter().find(|(_, n)| !n.is_multiple_of(128)) {
        return Err(format!("{name} is {n}, but must be a multiple of 128"));
    }

    let longest = c.hidden.max(width).max(attention.qkv_len());
    if longest > LONGEST {
        return Err(format!(
            "a row of activations has {longest} values, but at most {LONGEST} are supported"
        ));
    }

    match &layer.feed_forward {
        PipelineFeedForward::Dense(_) => Ok(()),
        PipelineFeedForward::Experts(experts) => {
            let rows = most_rows_of(experts);
            let elements = u64::from(rows) * u64::from(c.hidden.max(width));
            if elements <= u64::from(MOST_ELEMENTS) {
                return Ok(());
            }
            Err(format!(
                "the rows of experts are {rows} x {} values, but at most {MOST_ELEMENTS} are supported",
                c.hidden.max(width)
            ))
        }
    }
}

/// Returns an error for a kind of layer that the pipeline may decode, but that chunks have no
/// kernels for.
fn check_kinds(layer: &PipelineLayer) -> Result<(), Unsupported> {
    if layer.attention.sinks {
        return Err(Unsupported::Sinks);
    }
    if layer.attention.output_bias {
        return Err(Unsupported::OutputBias);
    }
    match layer.feed_forward.activation() {
        GateActivation::Silu | GateActivation::GeluTanh => {}
        GateActivation::ClampedSwiglu => return Err(Unsupported::ClampedSwiglu),
    }
    match &layer.feed_forward {
        PipelineFeedForward::Dense(_) => Ok(()),
        PipelineFeedForward::Experts(experts) if experts.shared.is_some() => {
            Err(Unsupported::SharedExpert)
        }
        PipelineFeedForward::Experts(experts) if experts.biases => Err(Unsupported::ExpertBiases),
        PipelineFeedForward::Experts(_) => Ok(()),
    }
}
