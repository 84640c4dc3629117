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
    /// The weights of the last norm, and its bias if it has one.
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
        norm: StoredBuffer::rows([&w.norm].into_iter().chain(&w.norm_bias)),
    }
}

/// The message of a block without a matrix that the reader of models requires.
const FEED_FORWARD: &str = "a layer has the matrices of a dense feed-forward or of experts";

/// Returns the gate matrix of a block, or the gate matrices of its experts.
pub(crate) fn gate<T>(block: &Block<T>) -> &T {
    let gate = block.gate.as_ref().or(block.gate_experts.as_ref());
    gate.expect(FEED_FORWARD)
}

/// Returns the tiles of the gate and up matrices. In a block without a gate, they are the tiles of
/// the up matrix.
fn gate_up(block: &Block<Weight>) -> StoredBuffer<'_> {
    if block.gate.is_none() && block.gate_experts.is_none() {
        return StoredBuffer::tiles(RowOrder::PLAIN, up(block));
    }
    StoredBuffer::tiles_of_two(RowOrder::GATE_UP, gate(block), up(block))
}

/// Returns the up matrix of a block, or the up matrices of its experts.
pub(crate) fn up<T>(block: &Block<T>) -> &T {
    let up = block.up.as_ref().or(block.up_experts.as_ref());
    up.expect(FEED_FORWARD)
}

/// Returns the down matrix of a block, or the down matrices of its experts.
pub(crate) fn down<T>(block: &Block<T>) -> &T {
    let down = block.down.as_ref().or(block.down_experts.as_ref());
    down.expect(FEED_FORWARD)
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
    /// The gate and up matrices of a dense feed-forward, or of all experts, one expert after the
    /// other.
    gate_up: T = gate_up(b);
    /// The down matrix of a dense feed-forward, or those of all experts.
    down: T = StoredBuffer::tiles(RowOrder::PLAIN, down(b));
    /// The biases of the norms before attention and before the feed-forward.
    norm_biases: Option<T> = StoredBuffer::all_of([&b.attn_norm_bias, &b.ffn_norm_bias]), optional;
    /// The biases of a dense feed-forward.
    dense_biases: Option<T> = StoredBuffer::all_of([&b.up_bias, &b.down_bias]), optional;
    /// The rows of the router.
    router: Option<T> = StoredBuffer::all_of([&b.router]), optional;
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
