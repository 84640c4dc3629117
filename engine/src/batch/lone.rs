//! Decode steps of few sequences with the kernels of the pipeline, which decode a single sequence
//! faster than the kernels of a batch.
//!
//! The kernels read and write the same pages as all others (see
//! [`Paged`](warpwright_kernels::pipeline::Paged)). A sequence therefore moves from one set of
//! kernels to the other between two steps, and nothing is copied. The pipeline computes only the
//! logits. The tokens are chosen from them as in every other step, so sampling, grammars, stop
//! tokens and limits need nothing here.

use warpwright_driver::Context;
use warpwright_driver::memory::{Buffer, Pinned, View};
use warpwright_kernels::shared::cache;
use warpwright_kernels::shared::state::StepState;
use warpwright_model::layer::Attention;
use warpwright_model::{Config, Outline};

use super::options::{BatchOptions, MAX_LONE_ROWS};
use crate::Error;
use crate::pipeline::cache::PageTable;
use crate::pipeline::kernels::Pipeline;
use crate::pipeline::resolved::{MAX_SPLITS, ResolvedPipeline, ResolvedStep};
use crate::pipeline::workspace::PipelineWorkspace;
use crate::simple::experts::expert_bytes;

/// The steps of few sequences.
pub(super) struct LoneSteps {
    /// The steps, the fewest rows first.
    steps: Vec<LoneStep>,
    pub(super) table: PageTable,
    /// The states for the LM head, `[rows, 8]`. They are done, so it chooses no tokens.
    pub(super) idle: View<u32>,
    /// A prompt of one token, which is not read.
    pub(super) prompt: View<u32>,
    /// The tokens that the LM head would choose for position 0, which it does not.
    pub(super) out: Pinned<u32>,
}

/// The step of a number of rows.
pub(super) struct LoneStep {
    pub(super) pipeline: Pipeline,
    pub(super) workspace: PipelineWorkspace,
    /// The queries, `[rows, heads, head_dim]`.
    pub(super) q: View<f32>,
}

impl LoneStep {
    fn new(context: &Context, resolved: ResolvedStep, ctx: u32) -> Result<LoneStep, Error> {
        let queries = resolved.batch as usize * resolved.config.q_len() as usize;
        Ok(LoneStep {
            q: Buffer::uninit(context, queries)?.labelled("lone.q").view(),
            workspace: PipelineWorkspace::new(context, &resolved, ctx)?,
            pipeline: Pipeline::load(context, resolved)?,
        })
    }

    fn rows(&self) -> u32 {
        self.pipeline.resolved.batch
    }
}

impl LoneSteps {
    /// Compiles the kernels and allocates their buffers. `pages` is the page table, `[sequences,
    /// max_pages]`.
    pub(super) fn new(
        context: &Context,
        outline: &Outline,
        options: &BatchOptions,
        pages: &View<u32>,
    ) -> Result<LoneSteps, Error> {
        let sizes = sizes(&outline.config, options);
        let resolved = ResolvedPipeline::paged(outline, context.device(), sizes);
        let resolved = resolved.map_err(|why| Error::NoBatch {
            why: why.to_string(),
        })?;
        let steps = resolved
            .into_iter()
            .map(|step| LoneStep::new(context, step, options.ctx));

        // The head stores what it would choose at the position of a state. Position 1 is outside of
        // `out`.
        let idle = StepState {
            position: 1,
            ..StepState::IDLE
        };
        let idle = idle.words().repeat(MAX_LONE_ROWS as usize);
        Ok(LoneSteps {
            steps: steps.collect::<Result<_, _>>()?,
            table: PageTable {
                pages: pages.clone(),
                cache_pages: options.pages(),
                sequences: options.sequences,
                max_pages: cache::pages(options.ctx),
            },
            idle: Buffer::from_slice(context, &idle)?
                .labelled("lone.idle")
                .view(),
            prompt: Buffer::zeroed(context, 1)?.labelled("lone.prompt").view(),
            out: Pinned::zeroed(context, 1)?.labelled("lone.out"),
        })
    }

    /// Returns the number of rows of the smallest step that fits.
    pub(super) fn rows(&self, wanted: u32) -> Option<u32> {
        let mut rows = self.steps.iter().map(LoneStep::rows);
        rows.find(|rows| *rows >= wanted)
    }

    /// Returns the step of this many rows, which must be one of [`rows`](LoneSteps::rows).
    pub(super) fn step(&self, rows: u32) -> &LoneStep {
        let mut steps = self.steps.iter();
        steps
            .find(|step| step.rows() == rows)
            .expect("the number of rows is that of a step")
    }
}

/// Returns the numbers of rows that have a step: powers of two, up to the first that is large
/// enough.
///
/// The GEMVs over experts multiply one token, so models with experts have a step of one row only.
fn sizes(c: &Config, options: &BatchOptions) -> impl Iterator<Item = u32> + use<> {
    let most = match c.experts().next() {
        Some(_) => options.lone_rows().min(1),
        None => options.lone_rows(),
    };
    [1, 2, 4, 8]
        .into_iter()
        .filter(move |rows| *rows < 2 * most)
}

/// Returns the bytes of the buffers of all steps.
pub(super) fn bytes(c: &Config, options: &BatchOptions) -> u64 {
    let partials =
        c.most_of_attention(|attention: &Attention| attention.q_len() + attention.q_len() / 2);
    let floats = [
        // The output of a projection before it is normed.
        c.hidden,
        2 * c.q_len(),
        c.most_of_attention(Attention::qkv_len),
        c.feed_forward(),
        c.angles_len(),
    ];
    let floats: u64 = floats.into_iter().map(u64::from).sum();
    let row = 4 * (floats + u64::from(partials) * u64::from(MAX_SPLITS));
    let rows: u32 = sizes(c, options).sum();
    // The simple kernels need a little more for experts than those of the pipeline.
    u64::from(rows) * (row + expert_bytes(c))
}
