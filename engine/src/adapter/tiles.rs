//! The matrices of a product's adapter: those of all projections that the product joins.
//!
//! A is `[parts * rank, n]`, part after part. B has the rows of the product's tiles, in their order. Where the parts
//! have different ranks, or some have no adapter, zeros fill the rest.

use warpwright_kernels::pipeline::lora::RANK_STEP;
use warpwright_kernels::{Pairing, RowOrder};

use crate::adapter::data::{Adapter, Factors};
use crate::model::outline::{Outline, Weight};
use crate::pipeline::Product;

/// The sizes of a product's adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoraShape {
    /// Projections that the product joins.
    pub(crate) parts: u32,
    /// Columns of B, a multiple of [`RANK_STEP`].
    pub(crate) rank: u32,
    /// Rows of B.
    pub(crate) rows: u32,
    /// Columns of A.
    pub(crate) n: u32,
}

impl LoraShape {
    /// Rows of A.
    pub(crate) fn ranks(&self) -> u32 {
        self.parts * self.rank
    }

    /// Bytes of A and B.
    fn bytes(&self) -> u64 {
        4 * (u64::from(self.ranks()) * u64::from(self.n)
            + u64::from(self.rows) * u64::from(self.rank))
    }
}

/// The two matrices of a product's adapter.
pub(crate) struct Matrices {
    pub(crate) shape: LoraShape,
    /// `[parts * rank, n]`
    pub(crate) a: Vec<f32>,
    /// `[rows, rank]`
    pub(crate) b: Vec<f32>,
}

/// A projection of a product.
struct Part<'a> {
    weight: &'a Weight,
    factors: Option<&'a Factors>,
}

/// The projections that a product joins, in the order of its tiles; none of the LM head.
fn parts<'a>(
    outline: &'a Outline,
    adapter: &'a Adapter,
    product: Product,
    layer: usize,
) -> Vec<Part<'a>> {
    let range = match product {
        Product::Qkv => 0..3,
        Product::O => 3..4,
        Product::GateUp => 4..6,
        Product::Down => 6..7,
        Product::Head => 0..0,
    };
    let weights = outline.weights.blocks[layer].projections();
    let part = |p: usize| Part {
        weight: weights[p],
        factors: adapter.layers[layer][p].as_ref(),
    };
    range.map(part).collect()
}

/// The sizes of a product's adapter, if it has one.
pub(crate) fn shape(outline: &Outline, product: Product, layer: usize) -> Option<LoraShape> {
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

/// The matrices of a product's adapter, if it has one.
pub(crate) fn matrices(outline: &Outline, product: Product, layer: usize) -> Option<Matrices> {
    let shape = shape(outline, product, layer)?;
    let parts = parts(outline, outline.adapter.as_ref()?, product, layer);
    let (rank, n) = (shape.rank as usize, shape.n as usize);
    let mut a = vec![0.0; shape.ranks() as usize * n];
    for (part, a) in parts.iter().zip(a.chunks_mut(rank * n)) {
        if let Some(factors) = part.factors {
            a.iter_mut()
                .zip(factors.scaled_a())
                .for_each(|(a, scaled)| *a = scaled);
        }
    }
    let mut b = vec![0.0; shape.rows as usize * rank];
    for ((part, row), b) in tile_rows(outline, product, &parts).zip(b.chunks_mut(rank)) {
        if let Some(factors) = parts[part].factors {
            let rank = factors.rank as usize;
            b[..rank].copy_from_slice(&factors.b[row as usize * rank..][..rank]);
        }
    }
    Some(Matrices { shape, a, b })
}

/// Part and row of each row of a product's tiles: as `weights/packed.rs` packs them.
fn tile_rows(
    outline: &Outline,
    product: Product,
    parts: &[Part],
) -> impl Iterator<Item = (usize, u32)> {
    let c = &outline.config;
    let pairs = match c.architecture.pairing {
        Pairing::Interleaved => RowOrder::interleaved(c.head_dim),
        Pairing::HalfSplit => RowOrder::half_split(c.head_dim),
    };
    let of = |order: RowOrder, lo: usize, hi: usize| {
        let blocks = order.blocks(parts[lo].weight.rows());
        let part = move |r| if r < 8 { lo } else { hi };
        (0..blocks).flat_map(move |block| (0..16).map(move |r| (part(r), order.source(block, r))))
    };
    let orders = match product {
        Product::Qkv => vec![of(pairs, 0, 0), of(pairs, 1, 1), of(RowOrder::PLAIN, 2, 2)],
        Product::GateUp => vec![of(RowOrder::GATE_UP, 0, 1)],
        Product::O | Product::Down => vec![of(RowOrder::PLAIN, 0, 0)],
        Product::Head => vec![],
    };
    orders.into_iter().flatten()
}

/// The matrices of a projection alone, its rank filled up with zeros, if it has an adapter. Rows are in the order of
/// the file.
pub(crate) fn projection(outline: &Outline, layer: usize, projection: usize) -> Option<Matrices> {
    let factors = outline.adapter.as_ref()?.layers[layer][projection].as_ref()?;
    let weight = outline.weights.blocks[layer].projections()[projection];
    let (own, rank) = (
        factors.rank as usize,
        factors.rank.next_multiple_of(RANK_STEP),
    );
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
    Some(Matrices { shape, a, b })
}

/// The products of a model's layers that have an adapter.
pub(crate) fn shapes(outline: &Outline) -> impl Iterator<Item = LoraShape> {
    let layers = 0..outline.weights.blocks.len();
    layers.flat_map(move |l| {
        Product::OF_LAYER
            .into_iter()
            .filter_map(move |p| shape(outline, p, l))
    })
}

/// The largest number of rows of A of a product.
pub(crate) fn max_ranks(outline: &Outline) -> u32 {
    shapes(outline)
        .map(|shape| shape.ranks())
        .max()
        .unwrap_or(0)
}

/// Bytes of an adapter on a device, with what its products read and write for a batch of eight; 0 without one.
pub(crate) fn bytes(outline: &Outline) -> u64 {
    let matrices: u64 = shapes(outline).map(|shape| shape.bytes()).sum();
    matrices + 4 * 9 * u64::from(max_ranks(outline))
}
