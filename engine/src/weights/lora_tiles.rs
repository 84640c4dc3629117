//! The adapter matrices of a GEMV, which joins one or more projections.
//!
//! A is `[parts * rank, n]`, one projection after the other. The rows of B are in the order of the
//! GEMV's tiles. If the projections have different ranks, or some have no adapter, the rest is
//! filled with zeros.

use warpwright_kernels::RowOrder;
use warpwright_kernels::pipeline::lora::RANK_STEP;
use warpwright_model::adapter::LoraFactors;
use warpwright_model::layer::Mixer;
use warpwright_model::{Adapter, Layer, Outline, Weight};

use crate::kernel_terms::rotary_row_order;
use crate::pipeline::GemvKind;

/// The sizes of a GEMV's adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoraShape {
    /// The number of projections that the GEMV joins.
    pub(crate) parts: u32,
    /// The number of columns of B, a multiple of [`RANK_STEP`].
    pub(crate) rank: u32,
    /// The number of rows of B.
    pub(crate) rows: u32,
    /// The number of columns of A.
    pub(crate) n: u32,
}

impl LoraShape {
    /// Returns the number of rows of A.
    pub(crate) fn ranks(&self) -> u32 {
        self.parts * self.rank
    }

    /// Returns the bytes of A and B.
    fn bytes(&self) -> u64 {
        4 * (u64::from(self.ranks()) * u64::from(self.n)
            + u64::from(self.rows) * u64::from(self.rank))
    }
}

/// The two matrices of a GEMV's adapter.
pub(crate) struct LoraMatrices {
    pub(crate) shape: LoraShape,
    /// The matrix A, `[parts * rank, n]`.
    pub(crate) a: Vec<f32>,
    /// The matrix B, `[rows, rank]`.
    pub(crate) b: Vec<f32>,
}

/// A projection of a GEMV, with its adapter.
struct LoraSlice<'a> {
    weight: &'a Weight,
    factors: Option<&'a LoraFactors>,
}

/// Returns the projections that a GEMV joins, in the order of its tiles. The LM head has none.
fn parts<'a>(
    outline: &'a Outline,
    adapter: &'a Adapter,
    product: GemvKind,
    layer: usize,
) -> Vec<LoraSlice<'a>> {
    let range = match product {
        GemvKind::Qkv => 0..3,
        GemvKind::O => 3..4,
        GemvKind::GateUp => 4..6,
        GemvKind::Down => 6..7,
        GemvKind::Head => 0..0,
    };
    let weights = outline.weights.blocks[layer].projections();
    // A layer with experts has no dense gate, up and down.
    let part = |p: usize| {
        weights[p].map(|weight| LoraSlice {
            weight,
            factors: adapter.layers[layer][p].as_ref(),
        })
    };
    range.filter_map(part).collect()
}

/// Returns the sizes of a GEMV's adapter, or `None` if it has no adapter.
pub(crate) fn shape(outline: &Outline, product: GemvKind, layer: usize) -> Option<LoraShape> {
    let parts = parts(outline, outline.adapter.as_ref()?, product, layer);
    let rank = parts
        .iter()
        .filter_map(|part| part.factors)
        .map(|factors| factors.rank)
        .max()?;
    Some(LoraShape {
        parts: parts.len() as u32,
        rank: rank.next_multiple_of(RANK_STEP),
        rows: parts.iter().map(|part| part.weight.rows()).sum(),
        n: parts[0].weight.row_len(),
    })
}

/// Returns the matrices of a GEMV's adapter, or `None` if it has no adapter.
pub(crate) fn matrices(outline: &Outline, product: GemvKind, layer: usize) -> Option<LoraMatrices> {
    let shape = shape(outline, product, layer)?;
    let parts = parts(outline, outline.adapter.as_ref()?, product, layer);
    let rank = shape.rank as usize;
    let n = shape.n as usize;

    // All projections of the GEMV get the largest rank. The zeros of padding add nothing.
    let mut a = vec![0.0; shape.ranks() as usize * n];
    for (part, a) in parts.iter().zip(a.chunks_mut(rank * n)) {
        if let Some(factors) = part.factors {
            for (a, scaled) in a.iter_mut().zip(factors.scaled_a()) {
                *a = scaled;
            }
        }
    }

    let mut b = vec![0.0; shape.rows as usize * rank];
    for ((part, row), b) in
        tile_rows(&outline.config.layers[layer], product, &parts).zip(b.chunks_mut(rank))
    {
        if let Some(factors) = parts[part].factors {
            let rank = factors.rank as usize;
            b[..rank].copy_from_slice(&factors.b[row as usize * rank..][..rank]);
        }
    }

    Some(LoraMatrices { shape, a, b })
}

/// Returns the projection and the row of each row of a GEMV's tiles, in the order in which
/// `weights/packed.rs` packs them.
fn tile_rows(
    layer: &Layer,
    product: GemvKind,
    parts: &[LoraSlice],
) -> impl Iterator<Item = (usize, u32)> {
    let Mixer::Attention(attention) = &layer.mixer;
    let pairs = rotary_row_order(attention);

    // The first eight rows of a tile come from the first matrix, and the rest from the second one.
    let rows = |order: RowOrder, lo: usize, hi: usize| {
        let blocks = order.blocks(parts[lo].weight.rows());
        let part = move |r| if r < 8 { lo } else { hi };
        (0..blocks).flat_map(move |block| (0..16).map(move |r| (part(r), order.source(block, r))))
    };
    let orders = match product {
        GemvKind::Qkv => vec![
            rows(pairs, 0, 0),
            rows(pairs, 1, 1),
            rows(RowOrder::PLAIN, 2, 2),
        ],
        GemvKind::GateUp => vec![rows(RowOrder::GATE_UP, 0, 1)],
        GemvKind::O | GemvKind::Down => vec![rows(RowOrder::PLAIN, 0, 0)],
        GemvKind::Head => vec![],
    };
    orders.into_iter().flatten()
}

/// Returns the matrices of a single projection, or `None` if it has no adapter. The rank is padded
/// with zeros, and the rows are in the order of the file.
pub(crate) fn projection(
    outline: &Outline,
    layer: usize,
    projection: usize,
) -> Option<LoraMatrices> {
    let factors = outline.adapter.as_ref()?.layers[layer][projection].as_ref()?;
    let weight = outline.weights.blocks[layer].projections()[projection]?;
    let own = factors.rank as usize;
    let rank = factors.rank.next_multiple_of(RANK_STEP);
    let mut a: Vec<f32> = factors.scaled_a().collect();
    a.resize((rank * weight.row_len()) as usize, 0.0);
    let wide = |row: &[f32]| [row, &vec![0.0; rank as usize - own]].concat();
    let b = factors.b.chunks(own).flat_map(wide).collect();
    let shape = LoraShape {
        parts: 1,
        rank,
        rows: weight.rows(),
        n: weight.row_len(),
    };
    Some(LoraMatrices { shape, a, b })
}

/// Returns the sizes of all adapters in a model's layers.
pub(crate) fn shapes(outline: &Outline) -> impl Iterator<Item = LoraShape> {
    let layers = 0..outline.weights.blocks.len();
    layers.flat_map(move |l| {
        GemvKind::OF_LAYER
            .into_iter()
            .filter_map(move |p| shape(outline, p, l))
    })
}

/// Returns the largest number of rows of A in a GEMV.
pub(crate) fn max_ranks(outline: &Outline) -> u32 {
    shapes(outline)
        .map(|shape| shape.ranks())
        .max()
        .unwrap_or(0)
}

/// Returns the bytes of an adapter on a device, or 0 without one. They include the intermediate
/// results of a batch of eight.
pub(crate) fn bytes(outline: &Outline) -> u64 {
    let matrices: u64 = shapes(outline).map(|shape| shape.bytes()).sum();
    matrices + 4 * 9 * u64::from(max_ranks(outline))
}
