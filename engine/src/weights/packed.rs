//! The pipeline's weights on a device: the tensors that share a buffer, and the order in which
//! their rows become tiles.
//!
//! The tables are [`packed`] for the model and `buffers!` below for a transformer block, with one
//! row per buffer. Packing moves bits and adds none. The tables therefore determine the position of
//! every weight before any weight is read.

use std::convert::Infallible;

use warpwright_driver::Context;
use warpwright_driver::memory::View;
use warpwright_kernels::RowOrder;
use warpwright_model::layer::Mixer;
use warpwright_model::{Block, Layer, Outline, Weight};

use crate::Error;
use crate::kernel_terms::rotary_row_order;
use crate::weights::stored::{StoredBuffer, UploadJob};

/// A value per buffer of a model: the description of its contents, or the buffer itself.
#[derive(Debug, Clone)]
pub(crate) struct Packed<T> {
    /// The embedding, as the file stores it, or `None` if it is the LM head, whose tiles are read
    /// instead.
    pub(crate) embed: Option<T>,
    /// The LM head, as tiles.
    pub(crate) head: T,
    /// The transformer blocks, in order.
    pub(crate) blocks: Vec<PackedBlock<T>>,
    /// The weights of the last norm.
    pub(crate) norm: T,
}

/// Returns the contents of each buffer of a model's weights.
pub(crate) fn packed(outline: &Outline) -> Packed<StoredBuffer<'_>> {
    let w = &outline.weights;
    let layers = outline.config.layers.iter().zip(&w.blocks);
    Packed {
        // A model that shares the LM head with the embeddings has them once, as the head's tiles.
        embed: w.head.is_some().then(|| StoredBuffer::rows([&w.embed])),
        head: StoredBuffer::tiles(RowOrder::PLAIN, w.head()),
        blocks: layers.map(|(layer, b)| block(layer, b)).collect(),
        norm: StoredBuffer::rows([&w.norm]),
    }
}

/// `f` of a buffer that may be optional.
macro_rules! mapped {
    ($f:expr, $from:expr) => {
        $f($from)?
    };
    ($f:expr, $from:expr, $has:ident) => {
        $from.as_ref().map(&mut *$f).transpose()?
    };
}

/// Generates [`PackedBlock`] and the function that describes the contents of its buffers.
macro_rules! buffers {
    ($block:ident, $pairs:ident; $($(#[doc = $doc:literal])* $name:ident: $type:ty = $held:expr $(, $optional:ident)?;)*) => {
        /// The buffers of a transformer block: matrices as tiles, vectors in F32.
        #[derive(Debug, Clone)]
        pub(crate) struct PackedBlock<T> {
            $($(#[doc = $doc])* pub(crate) $name: $type,)*
        }

        /// Returns the contents of each buffer of a block. `$pairs` is the row order that rotary
        /// pairs need.
        fn block<'a>(layer: &Layer, $block: &'a Block<Weight>) -> PackedBlock<StoredBuffer<'a>> {
            // Every row of a mixer belongs to this kind.
            let Mixer::Attention(attention) = &layer.mixer;
            let $pairs = rotary_row_order(attention);
            PackedBlock { $($name: $held,)* }
        }

        impl<T> PackedBlock<T> {
            /// Returns the tiles of gate and up and those of down, if the feed-forward is dense.
            pub(crate) fn dense(&self) -> Option<[&T; 2]> {
                Some([self.gate_up.as_ref()?, self.down.as_ref()?])
            }

            fn try_map<'a, U, E>(
                &'a self,
                f: &mut impl FnMut(&'a T) -> Result<U, E>,
            ) -> Result<PackedBlock<U>, E> {
                Ok(PackedBlock { $($name: mapped!(f, &self.$name $(, $optional)?),)* })
            }
        }
    };
}

buffers! { b, pairs;
    attn_norm: T = StoredBuffer::rows(&b.attn_norm);
    qkv: T = StoredBuffer::tiles(pairs, &b.q)
        .then(StoredBuffer::tiles(pairs, &b.k))
        .then(StoredBuffer::tiles(RowOrder::PLAIN, &b.v));
    /// The biases of queries, keys and values.
    bias: Option<T> = StoredBuffer::all_of([&b.q_bias, &b.k_bias, &b.v_bias]), optional;
    /// The head norms of queries and keys.
    qk_norm: Option<T> = StoredBuffer::all_of([&b.q_norm, &b.k_norm]), optional;
    o: T = StoredBuffer::tiles(RowOrder::PLAIN, &b.o);
    /// The bias of the output projection.
    o_bias: Option<T> = StoredBuffer::all_of([&b.o_bias]), optional;
    /// The attention sinks.
    sinks: Option<T> = StoredBuffer::all_of([&b.sinks]), optional;
    attn_post_norm: Option<T> = StoredBuffer::all_of([&b.attn_post_norm]), optional;
    ffn_norm: T = StoredBuffer::rows(&b.ffn_norm);
    /// The gate and up matrices of a dense feed-forward.
    gate_up: Option<T> = b.dense()
        .map(|[gate, up, _]| StoredBuffer::tiles_of_two(RowOrder::GATE_UP, gate, up)), optional;
    /// The down matrix of a dense feed-forward.
    down: Option<T> = b.dense()
        .map(|[_, _, down]| StoredBuffer::tiles(RowOrder::PLAIN, down)), optional;
    /// The rows of the router.
    router: Option<T> = StoredBuffer::all_of([&b.router]), optional;
    /// The gate matrices of all experts, as the file stores them.
    gate_experts: Option<T> = StoredBuffer::all_of([&b.gate_experts]), optional;
    /// The up matrices of all experts, as the file stores them.
    up_experts: Option<T> = StoredBuffer::all_of([&b.up_experts]), optional;
    /// The down matrices of all experts, as the file stores them.
    down_experts: Option<T> = StoredBuffer::all_of([&b.down_experts]), optional;
    /// The biases of the router and of the experts.
    expert_biases: Option<T> = StoredBuffer::all_of([
        &b.router_bias, &b.gate_experts_bias, &b.up_experts_bias, &b.down_experts_bias,
    ]), optional;
    /// The gate of the shared expert's output.
    shared_router: Option<T> = StoredBuffer::all_of([&b.shared_router]), optional;
    /// The three matrices of the shared expert, as the file stores them.
    shared: Option<T> = StoredBuffer::all_of([&b.gate_shared, &b.up_shared, &b.down_shared]), optional;
    ffn_post_norm: Option<T> = StoredBuffer::all_of([&b.ffn_post_norm]), optional;
}

impl<'a> Packed<StoredBuffer<'a>> {
    /// Allocates the buffers and requests the upload of their contents.
    pub(crate) fn load(
        &self,
        context: &Context,
        mut request: impl FnMut(UploadJob<'a>) -> Result<(), Error>,
    ) -> Result<Packed<View<u8>>, Error> {
        self.try_map(|stored| stored.load(context, &mut request))
    }
}

impl<T> Packed<T> {
    /// Returns the embedding.
    pub(crate) fn embed(&self) -> &T {
        self.embed.as_ref().unwrap_or(&self.head)
    }

    /// Returns an iterator over all buffers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let mut all = vec![];
        let Ok(_) = self.try_map(|buffer| {
            all.push(buffer);
            Ok::<_, Infallible>(())
        });
        all.into_iter()
    }

    fn try_map<'a, U, E>(
        &'a self,
        mut f: impl FnMut(&'a T) -> Result<U, E>,
    ) -> Result<Packed<U>, E> {
        Ok(Packed {
            embed: self.embed.as_ref().map(&mut f).transpose()?,
            head: f(&self.head)?,
            blocks: self
                .blocks
                .iter()
                .map(|b| b.try_map(&mut f))
                .collect::<Result<_, _>>()?,
            norm: f(&self.norm)?,
        })
    }
}
