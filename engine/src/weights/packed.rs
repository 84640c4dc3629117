//! The pipeline's weights on a device: which tensors share a buffer, and in which order their rows become tiles.
//!
//! The table is [`packed`]. Packing moves bits and adds none, so the table says where all weights lie before any of
//! them is there.

use warpwright_driver::{Context, View};
use warpwright_kernels::{Pairing, RowOrder};

use crate::Error;
use crate::model::config::Config;
use crate::model::outline::{Outline, Weight};
use crate::model::roles::Block;
use crate::weights::stored::{Job, Stored};

/// One `T` for each buffer: what it holds, or the buffer.
#[derive(Debug, Clone)]
pub(crate) struct Packed<T> {
    /// The file's rows; `None` if the LM head's tiles serve.
    pub(crate) embed: Option<T>,
    /// Tiles.
    pub(crate) head: T,
    /// In order.
    pub(crate) blocks: Vec<PackedBlock<T>>,
    pub(crate) norm: T,
}

/// The buffers of a transformer block: matrices as tiles, vectors in F32.
#[derive(Debug, Clone)]
pub(crate) struct PackedBlock<T> {
    pub(crate) attn_norm: T,
    pub(crate) qkv: T,
    /// Of q, k and v.
    pub(crate) bias: Option<T>,
    /// The norms of the heads of q and k.
    pub(crate) qk_norm: Option<T>,
    pub(crate) o: T,
    pub(crate) attn_post_norm: Option<T>,
    pub(crate) ffn_norm: T,
    pub(crate) gate_up: T,
    pub(crate) down: T,
    pub(crate) ffn_post_norm: Option<T>,
}

/// What each buffer of a model's weights holds.
pub(crate) fn packed(outline: &Outline) -> Packed<Stored<'_>> {
    let w = &outline.weights;
    Packed {
        embed: w.head.is_some().then(|| Stored::rows([&w.embed])),
        head: Stored::tiles(RowOrder::PLAIN, w.head()),
        blocks: w.blocks.iter().map(|b| block(&outline.config, b)).collect(),
        norm: Stored::rows([&w.norm]),
    }
}

fn block<'a>(c: &Config, b: &'a Block<Weight>) -> PackedBlock<Stored<'a>> {
    let pairs = match c.architecture.pairing {
        Pairing::Interleaved => RowOrder::interleaved(c.head_dim),
        Pairing::HalfSplit => RowOrder::half_split(c.head_dim),
    };
    PackedBlock {
        attn_norm: Stored::rows([&b.attn_norm]),
        qkv: Stored::tiles(pairs, &b.q)
            .then(Stored::tiles(pairs, &b.k))
            .then(Stored::tiles(RowOrder::PLAIN, &b.v)),
        bias: Stored::all_of([&b.q_bias, &b.k_bias, &b.v_bias]),
        qk_norm: Stored::all_of([&b.q_norm, &b.k_norm]),
        o: Stored::tiles(RowOrder::PLAIN, &b.o),
        attn_post_norm: Stored::all_of([&b.attn_post_norm]),
        ffn_norm: Stored::rows([&b.ffn_norm]),
        gate_up: Stored::tiles_of_two(RowOrder::GATE_UP, &b.gate, &b.up),
        down: Stored::tiles(RowOrder::PLAIN, &b.down),
        ffn_post_norm: Stored::all_of([&b.ffn_post_norm]),
    }
}

impl<'a> Packed<Stored<'a>> {
    /// Allocates the buffers and requests what is to be in them.
    pub(crate) fn load(
        &self,
        context: &Context,
        mut request: impl FnMut(Job<'a>) -> Result<(), Error>,
    ) -> Result<Packed<View<u8>>, Error> {
        self.try_map(|stored| stored.load(context, &mut request))
    }
}

impl<T> Packed<T> {
    /// The embedding.
    pub(crate) fn embed(&self) -> &T {
        self.embed.as_ref().unwrap_or(&self.head)
    }

    /// Every buffer.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let blocks = self.blocks.iter().flat_map(PackedBlock::iter);
        self.embed.iter().chain([&self.head]).chain(blocks).chain([&self.norm])
    }

    fn try_map<U, E>(&self, mut f: impl FnMut(&T) -> Result<U, E>) -> Result<Packed<U>, E> {
        Ok(Packed {
            embed: self.embed.as_ref().map(&mut f).transpose()?,
            head: f(&self.head)?,
            blocks: self.blocks.iter().map(|b| b.try_map(&mut f)).collect::<Result<_, _>>()?,
            norm: f(&self.norm)?,
        })
    }
}

impl<T> PackedBlock<T> {
    fn iter(&self) -> impl Iterator<Item = &T> {
        let always = [&self.attn_norm, &self.qkv, &self.o, &self.ffn_norm, &self.gate_up, &self.down];
        let others = [&self.bias, &self.qk_norm, &self.attn_post_norm, &self.ffn_post_norm];
        always.into_iter().chain(others.into_iter().flatten())
    }

    fn try_map<U, E>(&self, f: &mut impl FnMut(&T) -> Result<U, E>) -> Result<PackedBlock<U>, E> {
        Ok(PackedBlock {
            attn_norm: f(&self.attn_norm)?,
            qkv: f(&self.qkv)?,
            bias: self.bias.as_ref().map(&mut *f).transpose()?,
            qk_norm: self.qk_norm.as_ref().map(&mut *f).transpose()?,
            o: f(&self.o)?,
            attn_post_norm: self.attn_post_norm.as_ref().map(&mut *f).transpose()?,
            ffn_norm: f(&self.ffn_norm)?,
            gate_up: f(&self.gate_up)?,
            down: f(&self.down)?,
            ffn_post_norm: self.ffn_post_norm.as_ref().map(&mut *f).transpose()?,
        })
    }
}
