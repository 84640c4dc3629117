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

    /// Returns the largest rank of the adapters, a multiple of [`RANK_STEP`], or `None` if no
    /// adapter changes the matrix.
    pub(super) fn rank(&self, layer: usize, adapters: &[&Adapter]) -> Option<u32> {
        let of_adapter = |adapter: &&Adapter| {
            let projections = &adapter.layers[layer][self.projections.clone()];
            projections
                .iter()
                .flatten()
                .map(|factors| factors.rank)
                .max()
        };
        let rank = adapters.iter().filter_map(of_adapter).max()?;
        Some(rank.next_multiple_of(RANK_STEP))
    }

    /// Returns the bytes of the matrices of this many adapters.
    pub(super) fn bytes(&self, rank: u32, adapters: usize) -> u64 {
        let a = u64::from(self.parts.count() * rank) * u64::from(self.n);
        let b = u64::from(rank) * u64::from(self.rows());
        4 * adapters as u64 * (a + b)
    }

    fn rows(&self) -> u32 {
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

    /// Copies the matrices of all adapters to the device, with zeros up to this rank.
    pub(super) fn load(
        &self,
        context: &Context,
        name: &str,
        rank: u32,
        factors: &[&[Option<LoraFactors>]],
    ) -> Result<DeviceLora, crate::Error> {
        let rank = rank as usize;
        let n = self.n as usize;
        let rows = self.result_rows();
        let mut a = vec![0.0; factors.len() * self.parts.count() as usize * rank * n];
        let mut parts = a.chunks_mut(rank * n);
        for factors in factors.iter().flat_map(|adapter| adapter.iter()) {
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

        let mut b = vec![0.0; factors.len() * rank * rows.len()];
        for (factors, b) in factors.iter().zip(b.chunks_mut(rank * rows.len())) {
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
        }

        let copy = |values: &[f32], factor: &str| -> Result<View<f32>, crate::Error> {
            let label = format!("{name}.lora_{factor}");
            Ok(Buffer::from_slice(context, values)?.labelled(&label).view())
        };
        let second = self.part_rows[0];
        Ok(DeviceLora {
            parts: self.parts,
            a: copy(&a, "a")?,
            b: copy(&b, "b")?,
            rank: rank as u32,
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
