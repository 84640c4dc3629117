//! Chunks of a decoder's prompt: the tokens come from its prompt and state, on the device.

use warpwright_driver::{Buffer, Context, Error, Host, Kernel, Queue, View};
use warpwright_kernels::pipeline::{SplitPrompt, SplitPromptArgs};
use warpwright_kernels::prompt::{ChunkItems, ChunkItemsArgs};
use warpwright_kernels::{cache, state};

use super::list::{Attended, PassNode};
use super::products::{Chosen, Cores};
use super::step::{Chunked, Given, PagedCache, Wanted};
use super::workspace::Workspace;
use super::{LEAST, kernels};
use crate::buffers::Buffers;
use crate::model::outline::Outline;
use crate::pipeline::resolved::ResolvedEmbed;
use crate::signed;
use crate::weights::packed::Packed;

/// What chunks are made for.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// Positions of the cache.
    pub(crate) ctx: u32,
    /// Tokens of a chunk, at most: [`LEAST`] to [`CHUNK`](super::CHUNK).
    pub(crate) longest: u32,
}

/// Chunked prefill of a decoder.
pub(crate) struct PromptChunks {
    chunked: Chunked,
    split_prompt: Kernel<SplitPrompt>,
    /// Tokens of a chunk, at most.
    longest: u32,
    /// The work items of attention, which are the same for all layers but the last.
    items: Kernel<ChunkItems>,
    /// Queries of a work item, at most.
    queries: u32,
    /// `[1, pages]`: the page table of the only sequence, all pages in their order
    table: View<u32>,
}

impl PromptChunks {
    /// After the weights are there: it reads them.
    pub(crate) fn new(
        context: &Context,
        cores: Cores,
        outline: &Outline,
        weights: &Packed<View<u8>>,
        embed: ResolvedEmbed,
        Size { ctx, longest }: Size,
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

    /// The same for another context and other chunks.
    pub(crate) fn with_size(
        self,
        context: &Context,
        Size { ctx, longest }: Size,
    ) -> Result<PromptChunks, Error> {
        let split_prompt = match longest == self.longest {
            true => self.split_prompt,
            false => signed::load(context, SplitPrompt { batch: longest })?,
        };
        Ok(PromptChunks {
            split_prompt,
            longest,
            table: table(context, ctx)?,
            ..self
        })
    }

    /// Tokens of the next chunk, if `left` are left of the prompt; `None` if they are too few for one.
    pub(crate) fn next(&self, left: u32) -> Option<u32> {
        (left >= LEAST).then(|| left.min(self.longest))
    }

    /// The residual stream of `count` tokens of the latest chunk, from `first` on.
    pub(crate) fn rows(&self, first: u32, count: u32) -> View<f32> {
        self.chunked.rows(first, count)
    }

    /// The kernels of the first chunk of a prompt, of so many tokens, that has been [recorded](PromptChunks::run).
    pub(crate) fn list(&self, tokens: u32) -> Vec<PassNode> {
        let items = || PassNode::plain("items", &self.items);
        let first = [
            PassNode::plain("prompt", &self.split_prompt),
            items(),
            items(),
        ];
        let pass = self
            .chunked
            .list(chosen(tokens), Attended::Beginning(tokens));
        first.into_iter().chain(pass).collect()
    }

    /// Takes in the next `tokens` tokens of the prompt, a [whole chunk](PromptChunks::next), and advances the state past
    /// them. Of the tokens that are not wanted, the residual stream is that before the last layer.
    pub(crate) fn run(
        &mut self,
        queue: &mut impl Queue,
        weights: &Packed<View<u8>>,
        b: &Buffers,
        tokens: u32,
        wanted: Wanted,
    ) -> Result<(), Error> {
        let chosen = chosen(tokens);
        self.chunked.prepare(&queue.context().clone(), chosen)?;
        if wanted == Wanted::Last {
            self.chunked.prepare_last(queue.context())?;
        }
        let w = &self.chunked.workspace;
        let items = &w.items(tokens.div_ceil(self.queries));
        let batch_state = &Workspace::rows(&w.state, self.longest, state::LEN as u32);
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
        if wanted == Wanted::Last {
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
            Given {
                tokens,
                chosen,
                wanted,
                singles: None,
                items,
                cache,
            },
        )
    }
}

fn chosen(tokens: u32) -> Chosen {
    Chosen {
        bucket: tokens,
        overlap: false,
    }
}

fn table(context: &Context, ctx: u32) -> Result<View<u32>, Error> {
    let pages: Vec<u32> = (0..cache::pages(ctx)).collect();
    Ok(Buffer::from_slice(context, &pages)?
        .labelled("chunk.pages")
        .view())
}
