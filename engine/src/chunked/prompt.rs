//! Chunks of a decoder's prompt, whose tokens are read from the prompt and the state on the device.

use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::{Buffer, View};
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Error};
use warpwright_kernels::pipeline::{SplitPrompt, SplitPromptArgs};
use warpwright_kernels::prompt::{ChunkItems, ChunkItemsArgs};
use warpwright_kernels::shared::{cache, state};
use warpwright_model::Outline;

use super::list::{Attended, PassNode};
use super::products::{ColumnSplits, PassShape, TensorCores};
use super::step::{Chunked, PagedCache, PassInput, WantedRows};
use super::workspace::ChunkWorkspace;
use super::{LEAST, kernels};
use crate::buffers::DecoderBuffers;
use crate::pipeline::resolved::ResolvedEmbed;
use crate::signed;
use crate::weights::packed::Packed;

/// The size of chunks and of the context.
#[derive(Clone, Copy)]
pub(crate) struct ChunkSize {
    /// The number of positions in the cache.
    pub(crate) ctx: u32,
    /// The maximum number of tokens per chunk: [`LEAST`] to [`CHUNK`](super::CHUNK).
    pub(crate) longest: u32,
}

/// The chunked prefill of a decoder.
pub(crate) struct PromptChunks {
    chunked: Chunked,
    split_prompt: Kernel<SplitPrompt>,
    /// The maximum number of tokens per chunk.
    longest: u32,
    /// The kernel that generates the work items of attention. They are the same for all layers but
    /// the last.
    items: Kernel<ChunkItems>,
    /// The maximum number of queries per work item.
    queries: u32,
    /// The page table of the only sequence, `[1, pages]`, with all pages in order.
    table: View<u32>,
}

impl PromptChunks {
    /// Allocates the buffers and computes the bounds of the weights, which must be on the device.
    pub(crate) fn new(
        context: &Context,
        cores: TensorCores,
        outline: &Outline,
        weights: &Packed<View<u8>>,
        embed: ResolvedEmbed,
        ChunkSize { ctx, longest }: ChunkSize,
    ) -> Result<PromptChunks, crate::Error> {
        let queries = kernels::queries(cores, &outline.config);
        Ok(PromptChunks {
            chunked: Chunked::new(context, cores, outline, weights, embed)?,
            split_prompt: signed::load(context, SplitPrompt { batch: longest })?,
            longest,
            items: signed::load(context, ChunkItems { queries })?,
            queries,
            table: table(context, ctx)?,
        })
    }

    /// Returns the prefill for another context and other chunk sizes.
    pub(crate) fn with_size(
        self,
        context: &Context,
        ChunkSize { ctx, longest }: ChunkSize,
    ) -> Result<PromptChunks, Error> {
        let split_prompt = if longest == self.longest {
            self.split_prompt
        } else {
            signed::load(context, SplitPrompt { batch: longest })?
        };
        Ok(PromptChunks {
            split_prompt,
            longest,
            table: table(context, ctx)?,
            ..self
        })
    }

    /// Returns the length of the next chunk, or `None` if fewer than [`LEAST`] tokens of the prompt
    /// are left.
    pub(crate) fn next(&self, left: u32) -> Option<u32> {
        if left < LEAST {
            return None;
        }
        Some(left.min(self.longest))
    }

    /// Returns the residual stream of `count` tokens of the latest chunk, starting at token
    /// `first`.
    pub(crate) fn rows(&self, first: u32, count: u32) -> View<f32> {
        self.chunked.rows(first, count)
    }

    /// Returns the kernels of a prompt's first chunk of `tokens` tokens, which must have been
    /// [recorded](PromptChunks::run).
    pub(crate) fn list(&self, tokens: u32) -> Vec<PassNode> {
        let items = || PassNode::plain("items", &self.items);
        let first = [
            PassNode::plain("prompt", &self.split_prompt),
            items(),
            items(),
        ];
        let pass = self
            .chunked
            .list(pass_shape(tokens), Attended::Beginning(tokens));
        first.into_iter().chain(pass).collect()
    }

    /// Queues the prefill of the next `tokens` prompt tokens, a [whole chunk](PromptChunks::next),
    /// and advances the state past them.
    ///
    /// For tokens that are not wanted, the residual stream stays at the input of the last layer.
    pub(crate) fn run(
        &mut self,
        queue: &mut impl Queue,
        weights: &Packed<View<u8>>,
        b: &DecoderBuffers,
        tokens: u32,
        wanted: WantedRows,
    ) -> Result<(), Error> {
        let shape = pass_shape(tokens);
        self.chunked.prepare(&queue.context().clone(), shape)?;
        if wanted == WantedRows::Last {
            self.chunked.prepare_last(queue.context())?;
        }

        let w = &self.chunked.workspace;
        let items = &w.items(tokens.div_ceil(self.queries));
        let batch_state = &ChunkWorkspace::rows(&w.state, self.longest, state::LEN as u32);
        let args = SplitPromptArgs::<Host> {
            prompt: &b.prompt,
            state: &b.state,
            batch_state,
            ctx: b.ctx,
        };
        queue.launch(&self.split_prompt, args)?;
        queue.launch(
            &self.items,
            ChunkItemsArgs::<Host> {
                state: &w.state,
                items,
                tokens,
            },
        )?;

        // The last token attends by itself in the last layer, so it has its own work item.
        if wanted == WantedRows::Last {
            let state = &w.state_of(tokens - 1);
            queue.launch(
                &self.items,
                ChunkItemsArgs::<Host> {
                    state,
                    items: &w.last_item,
                    tokens: 1,
                },
            )?;
        }

        let pages = cache::pages(b.ctx);
        let cache = PagedCache {
            k: &b.k_cache,
            v: &b.v_cache,
            pages,
            table: &self.table,
            sequences: 1,
            max_pages: pages,
            freq: &b.freq,
        };
        self.chunked.run(
            queue,
            weights,
            PassInput {
                tokens,
                shape,
                wanted,
                singles: None,
                items,
                cache,
                lora: None,
            },
        )
    }
}

/// Returns the shape of a chunk's pass.
fn pass_shape(tokens: u32) -> PassShape {
    PassShape {
        bucket: tokens,
        splits: ColumnSplits::Fastest,
        overlap: false,
    }
}

/// Allocates the page table of a single sequence.
fn table(context: &Context, ctx: u32) -> Result<View<u32>, Error> {
    let pages: Vec<u32> = (0..cache::pages(ctx)).collect();
    Ok(Buffer::from_slice(context, &pages)?
        .labelled("chunk.pages")
        .view())
}
