//! The launches of the pipeline.
//!
//! The pipeline computes the same sums as `simple/step.rs` in five kernels per layer:
//! - QKV: norm, three GEMVs, bias, rotary embedding, and the append to the cache
//! - attention
//! - the output projection
//! - gate and up: norm, two GEMVs, and the gate
//! - the down projection
//!
//! In layers with a mixture of experts, a kernel computes the router's logits before gate and up.
//! The last two kernels then multiply by the chosen experts.
//!
//! In layers with head norms, the first kernel stops after the bias, and a sixth kernel norms,
//! rotates and appends. Layers that norm the outputs of attention and the feed-forward have one
//! more kernel for each. The projection in front of it stores its sums, and the kernel norms them
//! and adds them to the residual stream.
//!
//! A step starts with a kernel that embeds the token and ends with the LM head, which chooses a
//! token and advances the state. Each kernel prefetches weights while its predecessor still runs.
//! It waits for the predecessor's end before it reads anything else.
//!
//! The same pipeline prefills several prompt tokens as a batch: see `warpwright_kernels::pipeline`.
//! It then starts with a kernel that assigns the tokens, and ends before the choice of a token.
//! Drafts are verified by a batch that chooses the token after each. If the activations of a whole
//! batch do not fit into shared memory, a GEMV is launched several times with a smaller batch.

use std::cell::Cell;

use warpwright_driver::Error;
use warpwright_driver::launch::Host;
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;
use warpwright_kernels::pipeline::advance::AdvanceArgs;
use warpwright_kernels::pipeline::{PlaceDraftsArgs, SplitPromptArgs};

use super::adapter::LoadedAdapter;
use super::gemv_kind::GemvKind;
use super::kernels::Pipeline;
use super::pass::{HeadBuffers, PassCache, PipelinePass};
use super::workspace::PipelineWorkspace;
use crate::buffers::DecoderBuffers;
use crate::step::StepKind;
use crate::weights::packed::Packed;

/// Everything that a step of a decoder's pipeline needs.
pub(crate) struct PipelineStep<'a> {
    pub(crate) pass: PipelinePass<'a>,
    buffers: &'a DecoderBuffers,
}

impl<'a> PipelineStep<'a> {
    pub(crate) fn new(
        pipeline: &'a Pipeline,
        weights: &'a Packed<View<u8>>,
        buffers: &'a DecoderBuffers,
        workspace: &'a PipelineWorkspace,
        adapter: Option<&'a LoadedAdapter>,
    ) -> Self {
        let cache = PassCache {
            k: &buffers.k_cache,
            v: &buffers.v_cache,
            table: None,
            ctx: buffers.ctx,
            freq: &buffers.freq,
        };
        let pass = PipelinePass {
            pipeline,
            weights,
            workspace,
            adapter,
            cache,
            vectors: workspace.vectors(buffers),
            sequence: Cell::new(0),
        };
        PipelineStep { pass, buffers }
    }

    /// Returns the step with other kernels.
    pub(crate) fn with_pipeline(self, pipeline: &'a Pipeline) -> Self {
        PipelineStep {
            pass: PipelinePass {
                pipeline,
                ..self.pass
            },
            ..self
        }
    }

    /// Queues one step for every token of the batch.
    pub(crate) fn run(&self, queue: &mut impl Queue, kind: StepKind) -> Result<(), Error> {
        // Progress is compared only within a step, so the numbers start again.
        self.pass.sequence.set(0);
        self.split_prompt(queue)?;
        self.place_drafts(queue)?;
        self.pass.layers(queue)?;
        match kind {
            StepKind::Decode | StepKind::LogitsBatch => {
                self.head(queue, &self.pass.weights.head, &self.pass.vectors.x)
            }
            StepKind::Logits => {
                self.head_alone(queue, &self.pass.weights.head, &self.pass.vectors.x)
            }
            StepKind::Prefill => self.advance(queue),
            StepKind::PrefillBatch | StepKind::Choose => Ok(()),
            StepKind::Verify(_) => {
                self.head(queue, &self.pass.weights.head, &self.pass.vectors.x)?;
                self.buffers.sample_drafts(
                    queue,
                    &self.pass.vectors.logits,
                    &self.pass.vectors.state,
                )
            }
        }
    }

    /// Returns the logits of each token of the batch.
    pub(crate) fn logits(&self) -> View<f32> {
        self.pass.vectors.logits.clone()
    }

    /// Returns the residual stream of each token of the batch.
    pub(crate) fn residual_stream(&self) -> View<f32> {
        self.pass.vectors.x.clone()
    }

    /// Queues the assignment of prompt tokens to the batch.
    fn split_prompt(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let Some(kernel) = &self.pass.pipeline.split_prompt else {
            return Ok(());
        };

        let b = self.buffers;
        let batch_state = &self.pass.vectors.state;
        queue.launch(
            kernel,
            SplitPromptArgs {
                prompt: &b.prompt,
                state: &b.state,
                batch_state,
                ctx: b.ctx,
            },
        )
    }

    /// Queues the assignment of drafts to the batch.
    fn place_drafts(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = self.buffers;
        let (Some(kernel), Some(drafts)) = (&self.pass.pipeline.place_drafts, &b.drafts) else {
            return Ok(());
        };

        let drafts = &drafts.given;
        let batch_state = &self.pass.vectors.state;
        queue.launch(
            kernel,
            PlaceDraftsArgs {
                drafts,
                tokens: &b.prompt,
                batch_state,
                ctx: b.ctx,
            },
        )
    }

    /// Queues a GEMV of a layer over these tiles, which may be another layer's if the formats are
    /// the same.
    pub(crate) fn product(
        &self,
        queue: &mut impl Queue,
        product: GemvKind,
        layer: usize,
        tiles: &View<u8>,
    ) -> Result<(), Error> {
        let described = self.pass.layer(layer);
        let attention = &described.attention;
        match product {
            GemvKind::Qkv => self.pass.qkv(queue, layer, attention, tiles),
            GemvKind::O => self.pass.o(queue, layer, tiles),
            GemvKind::GateUp => self.pass.gate_up(queue, layer, described, tiles),
            GemvKind::Down => self.pass.down(queue, layer, described, tiles),
            GemvKind::Head => self.head(queue, tiles, &self.pass.vectors.x),
        }
    }

    /// Queues the end of a step that other kernels began: the LM head for rows of the residual
    /// stream, the choice of the next token, and the update of the state. With
    /// [`StepKind::Logits`], it queues only the logits.
    pub(crate) fn end(
        &self,
        queue: &mut impl Queue,
        x: &View<f32>,
        kind: StepKind,
    ) -> Result<(), Error> {
        self.pass.sequence.set(0);
        match kind {
            StepKind::Logits => self.head_alone(queue, &self.pass.weights.head, x),
            _ => self.head(queue, &self.pass.weights.head, x),
        }
    }

    /// Queues the logits and the choice of the next token. For a batch of one it also updates the
    /// state.
    fn head(&self, queue: &mut impl Queue, tiles: &View<u8>, x: &View<f32>) -> Result<(), Error> {
        // The head chooses the argmax itself. A sampler chooses in additional kernels after it.
        if self.buffers.sampler.is_none() || self.pass.pipeline.resolved.batch > 1 {
            let head = self.head_buffers(&self.pass.vectors.state);
            return self.pass.lm_head(queue, tiles, x, head);
        }
        self.head_alone(queue, tiles, x)?;
        self.buffers.sample(queue).map(drop)
    }

    /// Queues the logits without a choice, by giving the head a state that is done.
    fn head_alone(
        &self,
        queue: &mut impl Queue,
        tiles: &View<u8>,
        x: &View<f32>,
    ) -> Result<(), Error> {
        let state = match &self.buffers.sampler {
            Some(sampler) => &sampler.idle,
            None => &self.pass.vectors.state,
        };
        self.pass.lm_head(queue, tiles, x, self.head_buffers(state))
    }

    /// Returns the buffers by which the head chooses tokens for these states.
    fn head_buffers(&self, state: &View<u32>) -> HeadBuffers<'a> {
        let b = self.buffers;
        HeadBuffers {
            prompt: &b.prompt,
            stop: &b.stop,
            stops: b.stop_tokens.len() as u32,
            out: &b.out,
            state: state.clone(),
            ctx: b.ctx,
        }
    }

    /// Queues the update of the state without logits.
    fn advance(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = self.buffers;
        let args = AdvanceArgs::<Host> {
            token: &b.token,
            prompt: &b.prompt,
            stop: &b.stop,
            state: &b.state,
            out: &b.out,
            stops: b.stop_tokens.len() as u32,
            ctx: b.ctx,
        };
        queue.launch(&self.pass.pipeline.advance, args)
    }
}
