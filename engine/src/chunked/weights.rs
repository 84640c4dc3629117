//! Facts about the weights that chunked passes need in addition to the tiles: a power-of-two scale
//! for each row, and the lengths of rows.

use warpwright_driver::Context;
use warpwright_driver::launch::Host;
use warpwright_driver::memory::{Buffer, View};
use warpwright_driver::stream::Stream;
use warpwright_kernels::matmul::{Append, Epilogue, RowBounds, RowBoundsArgs};
use warpwright_kernels::{Format, RowOrder};
use warpwright_model::layer::{Attention, QkvBias};
use warpwright_model::{Block, Config, Layer, Outline, Weight};

use crate::Error;
use crate::distinct::SharedKernels;
use crate::kernel_terms::{kernel_format, kernel_pairing};
use crate::pipeline::kinds::{Appending, PipelineFeedForward, PipelineLayer, PipelineNorms};
use crate::weights::packed::{Packed, PackedBlock, down, gate};

/// The rows of a matrix in one format and one row order, as tiles. Of experts, it describes the
/// matrix of one, and `tiles` and `unit` have those of all, one expert after the other.
pub(crate) struct MatrixRows {
    pub(crate) format: Format,
    pub(crate) order: RowOrder,
    pub(crate) tiles: View<u8>,
    /// The power-of-two scale of each row, `[rows]`: see [`RowBounds`].
    pub(crate) unit: View<f32>,
    pub(crate) rows: u32,
    /// The number of columns.
    pub(crate) n: u32,
    /// The index of the first row in the result.
    pub(crate) first: u32,
}

impl MatrixRows {
    /// Returns the description of one of `experts` equal matrices that these rows consist of.
    fn of_one(self, experts: u32) -> MatrixRows {
        MatrixRows {
            rows: self.rows / experts,
            ..self
        }
    }
}

/// Returns the length of a token's row of queries, keys and values that wait for a rotation, or 0
/// in models without one.
pub(super) fn raw_len(c: &Config) -> u32 {
    c.attentions()
        .filter(|attention| Appending::of(attention) == Appending::Rotation)
        .map(Attention::qkv_len)
        .max()
        .unwrap_or(0)
}

/// The matrices of a layer, with the parts of its description that its launches follow.
pub(crate) struct LayerRows {
    pub(crate) norms: PipelineNorms,
    pub(crate) attention: Attention,
    pub(crate) feed_forward: PipelineFeedForward,
    /// The kernel that appends keys and values.
    pub(crate) appending: Appending,
    /// The matrices of queries, keys and values. Neighbors of the same format are merged. They must
    /// have the same row order too, unless the epilogue knows the order of each.
    pub(crate) qkv: Vec<MatrixRows>,
    pub(crate) o: MatrixRows,
    pub(crate) gate_up: MatrixRows,
    pub(crate) down: MatrixRows,
    /// The greatest length of a gate row times the greatest length of an up row, which bounds the
    /// gated activations. Of experts, it is the greatest of all.
    pub(crate) bound: f32,
}

/// Returns the epilogue of the matmul of queries, keys and values.
pub(super) fn qkv_epilogue(attention: &Attention) -> Epilogue {
    match Appending::of(attention) {
        Appending::Product => Epilogue::Append(append(attention)),
        Appending::Rotation => Epilogue::Store,
    }
}

/// Returns the way in which queries and keys are rotated and appended.
fn append(attention: &Attention) -> Append {
    Append {
        head_dim: attention.head_dim,
        pairing: kernel_pairing(attention.pairing),
        bias: attention.bias == QkvBias::Each,
    }
}

/// Computes the row scales and bounds of all layers.
pub(crate) fn layers(
    context: &Context,
    outline: &Outline,
    weights: &Packed<View<u8>>,
) -> Result<Vec<LayerRows>, Error> {
    let mut bounds = Bounds {
        stream: Stream::new(context)?,
        kernels: SharedKernels::new(context),
    };
    let c = &outline.config;
    let blocks = outline.weights.blocks.iter().zip(&weights.blocks);
    let layers = c.layers.iter().zip(blocks);
    let layers = layers
        .map(|(layer, (block, tiles))| bounds.layer(c.hidden, layer, block, tiles))
        .collect();
    bounds.stream.synchronize()?;
    layers
}

/// Computes the row scales of a matrix outside the layers.
pub(crate) fn rows_of(
    context: &Context,
    format: Format,
    order: RowOrder,
    tiles: &View<u8>,
    rows: u32,
    n: u32,
) -> Result<MatrixRows, Error> {
    let mut bounds = Bounds {
        stream: Stream::new(context)?,
        kernels: SharedKernels::new(context),
    };
    let (rows, _) = bounds.rows(format, order, tiles, rows, n, 0)?;
    bounds.stream.synchronize()?;
    Ok(rows)
}

/// The stream and the kernels that compute the bounds.
struct Bounds<'c> {
    stream: Stream,
    kernels: SharedKernels<'c, RowBounds>,
}

impl Bounds<'_> {
    /// Computes the scales and bounds of a layer.
    fn layer(
        &mut self,
        hidden: u32,
        layer: &Layer,
        block: &Block<Weight>,
        tiles: &PackedBlock<View<u8>>,
    ) -> Result<LayerRows, Error> {
        let described =
            PipelineLayer::new(layer).expect("the pipeline has packed the weights of the layer");
        let PipelineLayer {
            norms,
            attention,
            feed_forward,
        } = described;
        let width = feed_forward.width();
        let experts = match feed_forward {
            PipelineFeedForward::Dense(_) => 1,
            PipelineFeedForward::Experts(experts) => experts.count,
        };
        let (gate_up, lengths) = self.rows(
            kernel_format(gate(block).format),
            RowOrder::GATE_UP,
            &tiles.gate_up,
            experts * 2 * width,
            hidden,
            0,
        )?;
        let lengths = self.stream.read(&lengths)?;

        // A tile has 16 rows: eight of gate, then eight of up.
        let longest = |half: usize| {
            let rows = lengths
                .chunks(16)
                .flat_map(|rows| rows.chunks(8).nth(half))
                .flatten();
            rows.fold(0.0f32, |longest, &length| longest.max(length))
        };
        let plain = RowOrder::PLAIN;
        Ok(LayerRows {
            norms,
            attention,
            feed_forward,
            appending: Appending::of(&attention),
            qkv: self.qkv(
                hidden,
                &attention,
                [&block.q, &block.k, &block.v],
                &tiles.qkv,
            )?,
            o: self
                .rows(
                    kernel_format(block.o.format),
                    plain,
                    &tiles.o,
                    hidden,
                    attention.q_len(),
                    0,
                )?
                .0,
            down: self
                .rows(
                    kernel_format(down(block).format),
                    plain,
                    &tiles.down,
                    experts * hidden,
                    width,
                    0,
                )?
                .0
                .of_one(experts),
            bound: longest(0) * longest(1),
            gate_up: gate_up.of_one(experts),
        })
    }

    fn qkv(
        &mut self,
        hidden: u32,
        attention: &Attention,
        matrices: [&Weight; 3],
        tiles: &View<u8>,
    ) -> Result<Vec<MatrixRows>, Error> {
        let (pairs, appended) = match qkv_epilogue(attention) {
            // The appending epilogue knows which rows are queries, keys and values, so their orders
            // may differ.
            Epilogue::Append(append) => (append.pairs(), true),
            _ => (append(attention).pairs(), false),
        };
        let orders = [pairs, pairs, RowOrder::PLAIN];
        let counts = [attention.q_len(), attention.kv_len(), attention.kv_len()];
        let mut merged: Vec<(Format, RowOrder, u32)> = vec![];
        for ((matrix, order), rows) in matrices.into_iter().zip(orders).zip(counts) {
            let stored = kernel_format(matrix.format);
            match merged.last_mut() {
                Some((format, last, sum)) if *format == stored && (appended || *last == order) => {
                    *sum += rows
                }
                _ => merged.push((stored, order, rows)),
            }
        }

        let mut all = vec![];
        let mut first = 0;
        let mut from = 0;
        for (format, order, rows) in merged {
            let to = from + rows as usize * format.row_bytes(hidden as usize);
            let tiles = tiles.view_range(from..to);
            all.push(self.rows(format, order, &tiles, rows, hidden, first)?.0);
            first += rows;
            from = to;
        }

        Ok(all)
    }

    /// Computes the scales of a matrix, and returns its rows with their lengths.
    fn rows(
        &mut self,
        format: Format,
        order: RowOrder,
        tiles: &View<u8>,
        rows: u32,
        n: u32,
        first: u32,
    ) -> Result<(MatrixRows, Buffer<f32>), Error> {
        let context = self.stream.context();
        let kernel = self.kernels.load(RowBounds { format })?;
        let unit = Buffer::uninit(context, rows as usize)?.labelled("unit");
        let length = Buffer::uninit(context, rows as usize)?.labelled("length");
        let args = RowBoundsArgs::<Host> {
            w: tiles,
            unit: &unit,
            length: &length,
            rows,
            n,
        };
        self.stream.launch(&kernel, args)?;
        Ok((
            MatrixRows {
                format,
                order,
                tiles: tiles.clone(),
                unit: unit.view(),
                rows,
                n,
                first,
            },
            length,
        ))
    }
}
