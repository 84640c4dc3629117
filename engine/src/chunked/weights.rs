//! What chunked prefill knows of the weights besides their tiles: a power of two for each row, and how long rows are.

use warpwright_driver::{Buffer, Context, Host, Stream, View};
use warpwright_kernels::matmul::{Append, Epilogue, RowBounds, RowBoundsArgs};
use warpwright_kernels::{Format, RowOrder};

use crate::Error;
use crate::distinct::Distinct;
use crate::model::config::Config;
use crate::model::outline::{Outline, Weight};
use crate::weights::packed::{Packed, PackedBlock};

/// Rows of a matrix of one format and one order, as tiles.
pub(crate) struct Rows {
    pub(crate) format: Format,
    pub(crate) order: RowOrder,
    pub(crate) tiles: View<u8>,
    /// `[rows]`: see [`RowBounds`]
    pub(crate) unit: View<f32>,
    pub(crate) rows: u32,
    /// Columns.
    pub(crate) n: u32,
    /// The first row of the result.
    pub(crate) first: u32,
}

/// The matrices of a layer.
pub(crate) struct LayerRows {
    /// Queries, keys and values: neighbours of the same format together, and of the same order unless the epilogue
    /// knows the orders of all.
    pub(crate) qkv: Vec<Rows>,
    pub(crate) o: Rows,
    pub(crate) gate_up: Rows,
    pub(crate) down: Rows,
    /// The longest row of gate times the longest of up.
    pub(crate) bound: f32,
}

/// The epilogue of queries, keys and values. Head norms need whole heads, so a kernel of their own rotates and appends.
pub(super) fn qkv_epilogue(c: &Config) -> Epilogue {
    if c.architecture.head_norms {
        Epilogue::Store
    } else {
        Epilogue::Append(append(c))
    }
}

/// How queries and keys are rotated.
fn append(c: &Config) -> Append {
    let family = c.architecture;
    Append {
        head_dim: c.head_dim,
        pairing: family.pairing,
        bias: family.biases,
    }
}

/// Finds the bounds of all layers.
pub(crate) fn layers(
    context: &Context,
    outline: &Outline,
    weights: &Packed<View<u8>>,
) -> Result<Vec<LayerRows>, Error> {
    let mut bounds = Bounds {
        stream: Stream::new(context)?,
        kernels: Distinct::new(context),
    };
    let layers = outline.weights.blocks.iter().zip(&weights.blocks);
    let layers = layers
        .map(|(block, tiles)| bounds.layer(&outline.config, block, tiles))
        .collect();
    bounds.stream.synchronize()?;
    layers
}

/// Finds the units of a matrix that is no layer's.
pub(crate) fn rows_of(
    context: &Context,
    format: Format,
    order: RowOrder,
    tiles: &View<u8>,
    rows: u32,
    n: u32,
) -> Result<Rows, Error> {
    let mut bounds = Bounds {
        stream: Stream::new(context)?,
        kernels: Distinct::new(context),
    };
    let (rows, _) = bounds.rows(format, order, tiles, rows, n, 0)?;
    bounds.stream.synchronize()?;
    Ok(rows)
}

struct Bounds<'c> {
    stream: Stream,
    kernels: Distinct<'c, RowBounds>,
}

impl Bounds<'_> {
    fn layer(
        &mut self,
        c: &Config,
        block: &crate::model::roles::Block<Weight>,
        tiles: &PackedBlock<View<u8>>,
    ) -> Result<LayerRows, Error> {
        let (gate_up, lengths) = self.rows(
            block.gate.format,
            RowOrder::GATE_UP,
            &tiles.gate_up,
            2 * c.feed_forward,
            c.hidden,
            0,
        )?;
        let lengths = self.stream.read(&lengths)?;
        let longest = |half: usize| {
            let rows = lengths
                .chunks(16)
                .flat_map(|rows| rows.chunks(8).nth(half))
                .flatten();
            rows.fold(0.0f32, |longest, &length| longest.max(length))
        };
        let plain = RowOrder::PLAIN;
        Ok(LayerRows {
            qkv: self.qkv(c, [&block.q, &block.k, &block.v], &tiles.qkv)?,
            o: self
                .rows(block.o.format, plain, &tiles.o, c.hidden, c.q_len(), 0)?
                .0,
            down: self
                .rows(
                    block.down.format,
                    plain,
                    &tiles.down,
                    c.hidden,
                    c.feed_forward,
                    0,
                )?
                .0,
            bound: longest(0) * longest(1),
            gate_up,
        })
    }

    fn qkv(
        &mut self,
        c: &Config,
        matrices: [&Weight; 3],
        tiles: &View<u8>,
    ) -> Result<Vec<Rows>, Error> {
        let (pairs, appended) = match qkv_epilogue(c) {
            Epilogue::Append(append) => (append.pairs(), true),
            _ => (append(c).pairs(), false),
        };
        let orders = [pairs, pairs, RowOrder::PLAIN];
        let counts = [c.q_len(), c.kv_len(), c.kv_len()];
        let mut merged: Vec<(Format, RowOrder, u32)> = vec![];
        for ((matrix, order), rows) in matrices.into_iter().zip(orders).zip(counts) {
            match merged.last_mut() {
                Some((format, last, sum))
                    if *format == matrix.format && (appended || *last == order) =>
                {
                    *sum += rows
                }
                _ => merged.push((matrix.format, order, rows)),
            }
        }
        let (mut all, mut first, mut from) = (vec![], 0, 0);
        for (format, order, rows) in merged {
            let to = from + rows as usize * format.row_bytes(c.hidden as usize);
            let tiles = tiles.view_range(from..to);
            all.push(self.rows(format, order, &tiles, rows, c.hidden, first)?.0);
            (first, from) = (first + rows, to);
        }
        Ok(all)
    }

    /// The rows, and their lengths.
    fn rows(
        &mut self,
        format: Format,
        order: RowOrder,
        tiles: &View<u8>,
        rows: u32,
        n: u32,
        first: u32,
    ) -> Result<(Rows, Buffer<f32>), Error> {
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
            Rows {
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
