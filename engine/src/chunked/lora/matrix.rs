//! The adapters of one matrix, in host memory and on the device.

use std::ops::Range;

use warpwright_driver::Context;
use warpwright_driver::memory::{Buffer, View};
use warpwright_kernels::RowOrder;
use warpwright_kernels::batch::lora::LoraParts;
use warpwright_kernels::format::dequantize::ColumnOrder;
use warpwright_kernels::pipeline::lora::RANK_STEP;
use warpwright_model::Adapter;
use warpwright_model::adapter::LoraFactors;

use crate::chunked::kernels::order;
use crate::chunked::weights::LayerRows;
use crate::pipeline::kinds::PipelineFeedForward;

/// A matrix of a layer: a matmul, which joins one or more projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoraMatrix {
    Qkv,
    O,
    GateUp,
    Down,
}

impl LoraMatrix {
    /// Returns the projections that the matmul joins, as indices of
    /// [`PROJECTIONS`](warpwright_model::adapter::names::PROJECTIONS).
    pub(super) fn projections(self) -> Range<usize> {
        match self {
            LoraMatrix::Qkv => 0..3,
            LoraMatrix::O => 3..4,
            LoraMatrix::GateUp => 4..6,
            LoraMatrix::Down => 6..7,
        }
    }
}

/// The adapters of a matrix on the device.
pub(crate) struct DeviceLora {
    pub(super) parts: LoraParts,
    /// `s A` of each adapter, `[adapters, parts * rank, n]`, with the columns in the order of the
    /// matmul's input.
    pub(super) a: View<f32>,
    /// B transposed, of each adapter, `[adapters, rank, rows]`, with the rows in the order of the
    /// matmul's result.
    pub(super) b: View<f32>,
    pub(super) rank: u32,
    /// The number of rows of B.
    pub(super) rows: u32,
    /// The number of columns of A.
    pub(super) n: u32,
    /// The first rows of the second and the third of three projections.
    pub(super) firsts: [u32; 2],
}

/// The matrices of one adapter in host memory, in the layout of the device.
pub(super) struct HostLora {
    /// The largest rank of the projections, a multiple of [`RANK_STEP`].
    pub(super) rank: u32,
    /// `s A`, `[parts, rank, n]`, with the columns in the order of the matmul's input.
    a: Vec<f32>,
    /// B transposed, `[rank, rows]`, with the rows in the order of the matmul's result.
    b: Vec<f32>,
}

/// A buffer of the values of all adapters. Each adapter has `parts` parts of `len` values.
struct AdapterRows {
    name: String,
    parts: usize,
    len: usize,
}

impl AdapterRows {
    /// Copies the values to the device. A part of an adapter with a smaller rank has fewer values,
    /// and zeros follow.
    fn load(
        &self,
        context: &Context,
        adapters: &[Option<&HostLora>],
        values: impl Fn(&HostLora) -> &[f32],
    ) -> Result<View<f32>, crate::Error> {
        // A single adapter has the rank of the buffer.
        if let [Some(only)] = adapters {
            let buffer = Buffer::from_slice(context, values(only))?;
            return Ok(buffer.labelled(&self.name).view());
        }
        let len = adapters.len() * self.parts * self.len;
        let buffer = Buffer::zeroed(context, len)?.labelled(&self.name);
        for (index, host) in adapters.iter().enumerate() {
            let Some(host) = host else { continue };
            let values = values(host);
            let parts = values.chunks(values.len() / self.parts);
            for (part, values) in parts.enumerate() {
                let first = (index * self.parts + part) * self.len;
                buffer
                    .view_range(first..first + values.len())
                    .write(values)?;
            }
        }
        Ok(buffer.view())
    }
}

/// The sizes of a matrix, and the orders of its rows and columns.
pub(super) struct LoraMatrixShape {
    parts: LoraParts,
    /// The projections that the matmul joins, as indices of
    /// [`PROJECTIONS`](warpwright_model::adapter::names::PROJECTIONS).
    projections: Range<usize>,
    /// The number of rows of each projection.
    part_rows: Vec<u32>,
    /// The order of the columns of the matmul's input.
    order: ColumnOrder,
    n: u32,
}

impl LoraMatrixShape {
    /// Returns the shape of a matrix of a layer, or `None` for the matrices of experts, which have no
    /// adapters.
    pub(super) fn new(
        matrix: LoraMatrix,
        hidden: u32,
        layer: &LayerRows,
    ) -> Option<LoraMatrixShape> {
        let attention = &layer.attention;
        let width = match (matrix, &layer.feed_forward) {
            (LoraMatrix::GateUp | LoraMatrix::Down, PipelineFeedForward::Experts(_)) => {
                return None;
            }
            (_, feed_forward) => feed_forward.width(),
        };
        let [q, kv] = [attention.q_len(), attention.kv_len()];
        let projections = matrix.projections();
        Some(match matrix {
            LoraMatrix::Qkv => LoraMatrixShape {
                parts: LoraParts::Three,
                projections,
                part_rows: vec![q, kv, kv],
                order: order(&layer.qkv[0]),
                n: hidden,
            },
            LoraMatrix::O => LoraMatrixShape {
                parts: LoraParts::One,
                projections,
                part_rows: vec![hidden],
                order: order(&layer.o),
                n: q,
            },
            LoraMatrix::GateUp => LoraMatrixShape {
                parts: LoraParts::Halves,
                projections,
                part_rows: vec![width, width],
                order: order(&layer.gate_up),
                n: hidden,
            },
            LoraMatrix::Down => LoraMatrixShape {
                parts: LoraParts::One,
                projections,
                part_rows: vec![hidden],
                order: order(&layer.down),
                n: width,
            },
        })
    }

    /// Returns the number of rows and columns of each projection.
    pub(super) fn sizes(&self) -> impl Iterator<Item = (usize, [u32; 2])> {
        let projections = self.projections.clone().zip(&self.part_rows);
        projections.map(|(projection, &rows)| (projection, [rows, self.n]))
    }

    /// Returns the bytes of the matrices of this many adapters.
    pub(super) fn bytes(&self, rank: u32, adapters: usize) -> u64 {
        let a = u64::from(self.parts.count() * rank) * u64::from(self.n);
        let b = u64::from(rank) * u64::from(self.rows());
        4 * adapters as u64 * (a + b)
    }

    pub(super) fn rows(&self) -> u32 {
        self.part_rows.iter().sum()
    }

    /// Returns the projection and the row of each row of the matmul's result.
    fn result_rows(&self) -> Vec<(usize, u32)> {
        match self.parts {
            LoraParts::One | LoraParts::Three => {
                let parts = self.part_rows.iter().enumerate();
                let rows = parts.flat_map(|(part, &rows)| (0..rows).map(move |row| (part, row)));
                rows.collect()
            }
            // The sums of gate and up stay in the order of the tiles.
            LoraParts::Halves => {
                let order = RowOrder::GATE_UP;
                let blocks = 0..order.blocks(self.part_rows[0]);
                let row = move |block, r| (usize::from(r >= 8), order.source(block, r));
                let rows = blocks.flat_map(move |block| (0..16).map(move |r| row(block, r)));
                rows.collect()
            }
        }
    }

    /// Returns the matrices of an adapter in the layout of the device, or `None` if the adapter does
    /// not change the matrix.
    pub(super) fn prepare(&self, factors: &[Option<LoraFactors>]) -> Option<HostLora> {
        let rank = factors.iter().flatten().map(|factors| factors.rank).max()?;
        let rank = rank.next_multiple_of(RANK_STEP);
        let n = self.n as usize;
        let rows = self.result_rows();
        let mut a = vec![0.0; (self.parts.count() * rank) as usize * n];
        let mut parts = a.chunks_mut(rank as usize * n);
        for factors in factors {
            let part = parts.next().expect("each projection has a part");
            if let Some(factors) = factors {
                let scaled: Vec<f32> = factors.scaled_a().collect();
                for (to, from) in part.chunks_mut(n).zip(scaled.chunks(n)) {
                    for (column, &x) in (0..).zip(from) {
                        to[self.order.slot(column) as usize] = x;
                    }
                }
            }
        }

        let mut b = vec![0.0; rank as usize * rows.len()];
        for (index, &(part, row)) in rows.iter().enumerate() {
            let Some(factors) = &factors[part] else {
                continue;
            };
            let own = factors.rank as usize;
            let from = &factors.b[row as usize * own..][..own];
            for (i, &x) in from.iter().enumerate() {
                b[i * rows.len() + index] = x;
            }
        }
        Some(HostLora { rank, a, b })
    }

    /// Copies the matrices of all adapters to the device, with zeros up to this rank and for
    /// adapters that do not change the matrix.
    pub(super) fn load(
        &self,
        context: &Context,
        name: &str,
        rank: u32,
        adapters: &[Option<&HostLora>],
    ) -> Result<DeviceLora, crate::Error> {
        let parts = self.parts.count() as usize;
        let second = self.part_rows[0];
        let a = AdapterRows {
            name: format!("{name}.lora_a"),
            parts,
            len: (rank * self.n) as usize,
        };
        let b = AdapterRows {
            name: format!("{name}.lora_b"),
            parts: 1,
            len: (rank * self.rows()) as usize,
        };
        Ok(DeviceLora {
            parts: self.parts,
            a: a.load(context, adapters, |host| &host.a)?,
            b: b.load(context, adapters, |host| &host.b)?,
            rank,
            rows: self.rows(),
            n: self.n,
            firsts: [second, second + self.part_rows.get(1).unwrap_or(&0)],
        })
    }

    /// Returns the factors of an adapter for the projections that the matmul joins.
    pub(super) fn factors<'a>(
        &self,
        layer: usize,
        adapter: &'a Adapter,
    ) -> &'a [Option<LoraFactors>] {
        &adapter.layers[layer][self.projections.clone()]
    }
}

impl DeviceLora {
    /// Returns the number of columns of A.
    pub(crate) fn columns(&self) -> u32 {
        self.n
    }

    /// Returns the number of rows of A.
    pub(super) fn ranks(&self) -> u32 {
        self.parts.count() * self.rank
    }
}
