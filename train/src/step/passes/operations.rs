//! The operations of which forward and backward passes consist.

use warpwright_driver::Error;
use warpwright_driver::memory::{Buffer, View};
use warpwright_driver::stream::Queue;

use crate::Projection;
use crate::projection::LayerProjection;
use crate::step::adapters::AdapterViews;
use crate::step::buffers::{LayerBuffers, RotatedBuffers, StepBuffers};
use crate::step::element::StepElement;
use crate::step::state::StepState;
use crate::step::weights::DeviceWeights;

/// The purpose of a forward pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassPurpose {
    /// A forward pass with dropout, which a backward pass follows.
    Training,
    /// A forward pass without dropout, of which only the losses are needed.
    Evaluation,
}

/// An RMSNorm in a pass.
pub(crate) struct RmsNorm<'a, E> {
    /// The input.
    pub(crate) x: &'a View<E>,
    pub(crate) gains: &'a View<f32>,
    /// The reciprocal norms, which the forward pass writes and the backward pass reads.
    pub(crate) inv: &'a View<f32>,
}

/// A projection, and the gradient of its output.
pub(crate) struct OutputGradient<'a, E> {
    pub(crate) projection: Projection,
    pub(crate) dy: &'a View<E>,
}

/// The gradients of the outputs of the projections before attention.
pub(crate) struct AttentionGradients<'a, E> {
    pub(crate) dq: &'a View<E>,
    pub(crate) dk: &'a View<E>,
    pub(crate) dv: &'a View<E>,
}

/// A product of an adapter's factors, one side of which has the length of the rank.
pub(crate) enum AdapterProduct<'a, E> {
    /// `u = factor x A^T`
    U {
        x: &'a View<E>,
        a: &'a View<E>,
        factor: &'a View<f32>,
        u: &'a View<E>,
    },
    /// `du = scale dy B`
    UGradient {
        dy: &'a View<E>,
        b: &'a View<E>,
        du: &'a View<E>,
    },
    /// `sum += dy^T u`
    BGradient {
        dy: &'a View<E>,
        u: &'a View<E>,
        sum: &'a View<f32>,
    },
    /// `sum += du^T x`
    AGradient {
        du: &'a View<E>,
        x: &'a View<E>,
        sum: &'a View<f32>,
    },
}

/// The tokens whose logits are in memory at the same time, with views of their rows.
pub(crate) struct HeadChunk<E> {
    pub(crate) tokens: u32,
    /// `[tokens, hidden]`
    pub(crate) x: View<E>,
    /// `[tokens, hidden]`
    pub(crate) dx: View<E>,
    /// `[tokens]`
    pub(crate) labels: View<i32>,
    /// `[tokens, vocab]`
    pub(crate) logits: View<f32>,
    /// `[tokens]`
    pub(crate) lse: View<f32>,
    /// `[tokens]`
    pub(crate) losses: View<f32>,
}

/// A step in one precision: its buffers, and the kernels that compute the operations of a pass.
///
/// Each operation queues its kernels. It reads and writes only its arguments and the buffers that
/// its documentation names, and scratch memory of the implementation.
pub(crate) trait StepOperations {
    /// The element type of activations and of frozen matrices.
    type Element: StepElement;

    /// Whether the backward pass ends with the gradient of the embedded tokens.
    ///
    /// The embedding is frozen, so nothing reads this gradient. A precision that leaves it out
    /// computes only the gradients of adapters in front of the first attention block.
    const EMBEDDING_GRADIENT: bool;

    /// Returns the state that does not depend on the precision.
    fn state(&self) -> &StepState;

    /// Returns the frozen weights.
    fn weights(&self) -> &DeviceWeights<Self::Element>;

    /// Returns the activations and gradients.
    fn buffers(&self) -> &StepBuffers<Buffer<Self::Element>>;

    /// Prepares the adapters, and looks up the embeddings of the tokens, which become the first
    /// residual stream.
    fn embed(&self, queue: &mut impl Queue) -> Result<(), Error>;

    /// Computes `y`, the norm of its input, and the reciprocal norms.
    fn norm(
        &self,
        queue: &mut impl Queue,
        norm: &RmsNorm<'_, Self::Element>,
        y: &View<Self::Element>,
    ) -> Result<(), Error>;

    /// Adds the gradient of a norm's input to `dh`, given the gradient `dy` of its output.
    fn norm_backward(
        &self,
        queue: &mut impl Queue,
        norm: &RmsNorm<'_, Self::Element>,
        dy: &View<Self::Element>,
    ) -> Result<(), Error>;

    /// Computes `y = x W^T + u B^T`, and adds the bias and a residual if there are any.
    fn project(
        &self,
        queue: &mut impl Queue,
        purpose: PassPurpose,
        of: LayerProjection,
        x: &View<Self::Element>,
        residual: Option<&View<Self::Element>>,
        y: &View<Self::Element>,
    ) -> Result<(), Error>;

    /// Returns the buffer for the output of a projection of queries or keys, before the head norm
    /// and RoPE.
    fn unrotated<'a>(
        &'a self,
        projection: Projection,
        heads: &'a RotatedBuffers<Buffer<Self::Element>>,
    ) -> &'a View<Self::Element>;

    /// Applies the head norm, if the model has one, and RoPE to queries or keys.
    fn rotate(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        heads: &RotatedBuffers<Buffer<Self::Element>>,
    ) -> Result<(), Error>;

    /// Computes attention and the logarithms of its sums of exponentials.
    fn attention(
        &self,
        queue: &mut impl Queue,
        layer: &LayerBuffers<Buffer<Self::Element>>,
    ) -> Result<(), Error>;

    /// Computes the gradients of the outputs of the projections before attention, from `d_o`. It
    /// goes back through attention, RoPE and the head norms.
    fn attention_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
    ) -> Result<AttentionGradients<'_, Self::Element>, Error>;

    /// Computes the up projection of layer `l` and `a = silu(g) up`.
    fn project_swiglu(
        &self,
        queue: &mut impl Queue,
        purpose: PassPurpose,
        l: usize,
    ) -> Result<(), Error>;

    /// Computes `a = silu(g) up` of layer `l` again.
    fn swiglu(&self, queue: &mut impl Queue, l: usize) -> Result<(), Error>;

    /// Computes `dg` and `dup` from `dh`, back through the down projection of layer `l` and SwiGLU,
    /// and adds the gradients of the projection's adapter to the sums of the step.
    fn project_swiglu_backward(&self, queue: &mut impl Queue, l: usize) -> Result<(), Error>;

    /// Computes `dx`, the gradient of a projection's input `x`, from the gradient `dy` of its
    /// output, and adds the gradients of its adapter to the sums of the step.
    fn project_backward(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        x: &View<Self::Element>,
        dy: &View<Self::Element>,
        dx: &View<Self::Element>,
    ) -> Result<(), Error>;

    /// Computes the gradient buffer `dx` from the gradients of all projections that have the input
    /// `x`, and adds the gradients of their adapters to the sums of the step.
    fn project_input_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
        x: &View<Self::Element>,
        outputs: &[OutputGradient<'_, Self::Element>],
    ) -> Result<(), Error>;

    /// Returns A and B of a projection as matmuls read them, or `None` if it has no adapter.
    fn adapter(&self, of: LayerProjection) -> Option<AdapterViews<Self::Element>>;

    /// Returns the buffer for the gradient of `u`.
    fn du(&self, projection: Projection) -> &View<Self::Element>;

    /// Returns a copy of `x`, the input of a projection, with the elements that dropout keeps.
    ///
    /// The copy stays valid until the next projection.
    fn dropout(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        threshold: u32,
        x: &View<Self::Element>,
    ) -> Result<View<Self::Element>, Error>;

    /// Computes one of the products of an adapter.
    fn adapter_product(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        product: AdapterProduct<'_, Self::Element>,
    ) -> Result<(), Error>;

    /// Prepares the head, before the gradients of its chunks are computed.
    fn begin_head(&self, queue: &mut impl Queue) -> Result<(), Error>;

    /// Computes the logits of a chunk.
    fn logits(&self, queue: &mut impl Queue, chunk: &HeadChunk<Self::Element>)
    -> Result<(), Error>;

    /// Computes the gradients of a chunk's logits and of the head's input, `chunk.dx`. The logits
    /// are not valid afterwards.
    fn logits_backward(
        &self,
        queue: &mut impl Queue,
        chunk: &HeadChunk<Self::Element>,
    ) -> Result<(), Error>;
}
