//! The launches of a chunk.

use warpwright_driver::{Buffer, Context, Element, Error, Host, Queue, View, f16};
use warpwright_kernels::AddNormedArgs;
use warpwright_kernels::matmul::{Epilogue, MatmulArgs, NormTokensArgs};
use warpwright_kernels::pipeline::{EmbedTokenArgs, SplitPromptArgs};
use warpwright_kernels::prompt::{PromptAttentionArgs, RotateTokensArgs};

use super::kernels::{self, AttentionKernel, Kernels};
use super::weights::{LayerRows, Rows};
use super::workspace::{CAPACITY, Panels, Workspace};
use super::{CHUNK, weights};
use crate::buffers::Buffers;
use crate::model::config::Config;
use crate::model::outline::Outline;
use crate::pipeline::kernels::EmbedKernel;
use crate::pipeline::resolved::ResolvedEmbed;
use crate::weights::packed::{Packed, PackedBlock};

/// Chunked prefill of a model.
pub(crate) struct Chunked {
    config: Config,
    kernels: Kernels,
    layers: Vec<LayerRows>,
    workspace: Workspace,
}

/// A chunk of the prompt.
#[derive(Clone, Copy)]
pub(crate) struct Chunk {
    /// The position of its first token.
    pub(crate) position: u32,
    /// Tokens, at most [`CHUNK`].
    pub(crate) tokens: u32,
}

impl Chunked {
    /// After the weights are there: it reads them.
    pub(crate) fn new(
        context: &Context,
        outline: &Outline,
        weights: &Packed<View<u8>>,
        embed: ResolvedEmbed,
    ) -> Result<Chunked, crate::Error> {
        let layers = weights::layers(context, outline, weights)?;
        let two_orders = layers.iter().any(|layer| kernels::norms(layer)[0].second.is_some());
        let config = outline.config.clone();
        Ok(Chunked {
            kernels: Kernels::new(context, &config, &layers, embed)?,
            workspace: Workspace::new(context, &config, two_orders)?,
            layers,
            config,
        })
    }

    /// The residual stream of `count` tokens of the latest chunk, from `first` on.
    pub(crate) fn rows(&self, first: u32, count: u32) -> View<f32> {
        let len = self.config.hidden;
        self.workspace.x.view_range((first * len) as usize..((first + count) * len) as usize)
    }

    /// Runs a chunk, and advances the state past it.
    pub(crate) fn run(
        &mut self,
        queue: &mut impl Queue,
        weights: &Packed<View<u8>>,
        buffers: &Buffers,
        chunk: Chunk,
    ) -> Result<(), Error> {
        let context = &queue.context().clone();
        self.kernels.prepare(context, &self.config, &self.layers, chunk.tokens)?;
        Step { chunked: self, weights, buffers, chunk }.run(queue)
    }
}

/// A chunk with all it needs.
struct Step<'a> {
    chunked: &'a Chunked,
    weights: &'a Packed<View<u8>>,
    buffers: &'a Buffers,
    chunk: Chunk,
}

impl Step<'_> {
    fn run(&self, queue: &mut impl Queue) -> Result<(), Error> {
        self.embed(queue)?;
        for (index, (rows, block)) in self.chunked.layers.iter().zip(&self.weights.blocks).enumerate() {
            self.norm(queue, &block.attn_norm, kernels::norms(rows)[0])?;
            self.qkv(queue, rows)?;
            self.rotate(queue, index, block)?;
            self.attention(queue, index)?;
            self.project(queue, &rows.o, &self.chunked.workspace.heads, block.attn_post_norm.as_ref())?;
            self.norm(queue, &block.ffn_norm, kernels::norms(rows)[1])?;
            self.gate_up(queue, rows)?;
            self.project(queue, &rows.down, &self.chunked.workspace.inner, block.ffn_post_norm.as_ref())?;
        }
        Ok(())
    }

    /// The first rows of a buffer: those of the chunk's tokens.
    fn rows<T: Element>(&self, all: &Buffer<T>, len: u32) -> View<T> {
        Workspace::rows(all, self.chunk.tokens, len)
    }

    /// The tokens' states, embeddings and angles; the decoder's state moves past them.
    fn embed(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (b, w, c) = (self.buffers, &self.chunked.workspace, &self.chunked.config);
        let (kernels, ctx) = (&self.chunked.kernels, b.ctx);
        let args = SplitPromptArgs::<Host> { prompt: &b.prompt, state: &b.state, batch_state: &w.state, ctx };
        queue.launch(&kernels.split_prompt, args)?;
        let args = EmbedTokenArgs::<Host> {
            state: &w.state,
            table: self.weights.embed(),
            freq: &b.freq,
            y: &Workspace::rows(&w.x, CHUNK, c.hidden),
            angles: &w.angles,
            n: c.hidden,
            vocab: c.vocab,
            rope_dim: c.rope.dim * c.ropes().len() as u32,
            blocks: 16 * kernels.sms,
            shared: 0,
        };
        match &kernels.embed {
            EmbedKernel::Tiles(kernel) => queue.launch(kernel, args),
            EmbedKernel::Rows(kernel) => queue.launch(kernel, args),
        }
    }

    fn norm(
        &self,
        queue: &mut impl Queue,
        gamma: &View<u8>,
        norm: warpwright_kernels::matmul::NormTokens,
    ) -> Result<(), Error> {
        let (w, c) = (&self.chunked.workspace, &self.chunked.config);
        let second = w.normed2.as_ref().filter(|_| norm.second.is_some()).unwrap_or(&w.none16);
        let args = NormTokensArgs::<Host> {
            x: &self.rows(&w.x, c.hidden),
            gamma: &gamma.cast()?,
            y: &w.normed.values,
            y2: second,
            y_scale: &self.rows(&w.normed.scale, 1),
            squares: &self.rows(&w.squares, 1),
            n: c.hidden,
            capacity: CAPACITY,
            epsilon: c.epsilon,
        };
        queue.launch(&self.chunked.kernels.norms[&norm], args)
    }

    fn qkv(&self, queue: &mut impl Queue, rows: &LayerRows) -> Result<(), Error> {
        let (w, c) = (&self.chunked.workspace, &self.chunked.config);
        let first = kernels::order(&rows.qkv[0]);
        rows.qkv.iter().try_for_each(|rows| {
            let second = w.normed2.as_ref().filter(|_| kernels::order(rows) != first);
            let operand = Operand { values: second.unwrap_or(&w.normed.values), scale: &w.normed.scale };
            let to = Stored { y: &w.raw, rows: c.q_len() + 2 * c.kv_len() };
            self.product(queue, rows, Epilogue::Store, operand, to)
        })
    }

    fn gate_up(&self, queue: &mut impl Queue, rows: &LayerRows) -> Result<(), Error> {
        let (w, c) = (&self.chunked.workspace, &self.chunked.config);
        let epilogue = kernels::gated(c, rows);
        let matmul = kernels::product(self.chunked.kernels.sms, &rows.gate_up, epilogue, self.chunk.tokens);
        let args = MatmulArgs::<Host> {
            squares: &w.squares,
            gated: &w.inner.values,
            gated_scale: &w.inner.scale,
            bound: rows.bound,
            y: &w.none,
            y_rows: c.feed_forward,
            ..self.args(&rows.gate_up, Operand::of(&w.normed))
        };
        queue.launch(&self.chunked.kernels.products[&matmul], args)
    }

    /// Adds `W x` to the residual stream; or its norm, for models with norms after.
    fn project(
        &self,
        queue: &mut impl Queue,
        rows: &Rows,
        x: &Panels,
        gamma: Option<&View<u8>>,
    ) -> Result<(), Error> {
        let (w, c) = (&self.chunked.workspace, &self.chunked.config);
        let to = Stored { y: w.projected.as_ref().unwrap_or(&w.x), rows: c.hidden };
        self.product(queue, rows, kernels::projection(c), Operand::of(x), to)?;
        let (Some(kernel), Some(projected), Some(gamma)) =
            (&self.chunked.kernels.add_normed, &w.projected, gamma)
        else {
            return Ok(());
        };
        let args = AddNormedArgs::<Host> {
            x: &Workspace::rows(projected, CHUNK, c.hidden),
            gamma: &gamma.cast()?,
            y: &Workspace::rows(&w.x, CHUNK, c.hidden),
            n: c.hidden,
            epsilon: c.epsilon,
            blocks: CHUNK,
            shared: 0,
        };
        queue.launch(kernel, args)
    }

    fn product(
        &self,
        queue: &mut impl Queue,
        rows: &Rows,
        epilogue: Epilogue,
        x: Operand<'_>,
        to: Stored<'_>,
    ) -> Result<(), Error> {
        let matmul = kernels::product(self.chunked.kernels.sms, rows, epilogue, self.chunk.tokens);
        let args = MatmulArgs::<Host> { y: to.y, y_rows: to.rows, ..self.args(rows, x) };
        queue.launch(&self.chunked.kernels.products[&matmul], args)
    }
}

/// The left operand of a product.
#[derive(Clone, Copy)]
struct Operand<'a> {
    values: &'a Buffer<f16>,
    scale: &'a Buffer<f32>,
}

impl<'a> Operand<'a> {
    fn of(panels: &'a Panels) -> Operand<'a> {
        Operand { values: &panels.values, scale: &panels.scale }
    }
}

/// Where a product's sums go.
#[derive(Clone, Copy)]
struct Stored<'a> {
    y: &'a Buffer<f32>,
    /// Of a token.
    rows: u32,
}

impl Step<'_> {
    /// What the arguments of all products have.
    fn args<'s>(&'s self, rows: &'s Rows, x: Operand<'s>) -> MatmulArgs<Host<'s>> {
        let w = &self.chunked.workspace;
        MatmulArgs::<Host> {
            w: &rows.tiles,
            unit: &rows.unit,
            x: x.values,
            x_scale: x.scale,
            squares: &w.none,
            y: &w.none,
            gated: &w.none16,
            gated_scale: &w.none,
            bound: 0.0,
            rows: rows.rows,
            n: rows.n,
            y_rows: 0,
            y_first: rows.first,
            tokens_given: self.chunk.tokens,
            capacity: CAPACITY,
            blocks: self.chunked.kernels.sms,
        }
    }

    /// Bias, norms and rotation; keys and values go to the cache.
    fn rotate(
        &self,
        queue: &mut impl Queue,
        index: usize,
        block: &PackedBlock<View<u8>>,
    ) -> Result<(), Error> {
        let (b, w, c) = (self.buffers, &self.chunked.workspace, &self.chunked.config);
        let floats = |weights: &Option<View<u8>>| match weights {
            Some(weights) => weights.cast(),
            None => Ok(w.none.view()),
        };
        let rope = (c.rope_of(index as u32) * c.head_dim) as usize;
        let args = RotateTokensArgs::<Host> {
            x: &w.raw,
            bias: &floats(&block.bias)?,
            gamma: &floats(&block.qk_norm)?,
            freq: &b.freq.view_range(rope..rope + c.head_dim as usize),
            q: &w.q,
            k_cache: &b.k_cache[index],
            v_cache: &b.v_cache[index],
            heads: c.heads,
            kv_heads: c.kv_heads,
            ctx: b.ctx,
            position: self.chunk.position,
            tokens: self.chunk.tokens,
            capacity: CAPACITY,
            epsilon: c.epsilon,
            scale: c.score_scale(),
        };
        queue.launch(&self.chunked.kernels.rotate, args)
    }

    fn attention(&self, queue: &mut impl Queue, index: usize) -> Result<(), Error> {
        let (b, w, c) = (self.buffers, &self.chunked.workspace, &self.chunked.config);
        let args = PromptAttentionArgs::<Host> {
            q: &w.q,
            k_cache: &b.k_cache[index],
            v_cache: &b.v_cache[index],
            y: &w.heads.values,
            y_scale: &w.heads.scale,
            heads: c.heads,
            kv_heads: c.kv_heads,
            ctx: b.ctx,
            position: self.chunk.position,
            tokens: self.chunk.tokens,
            capacity: CAPACITY,
        };
        match &self.chunked.kernels.attention[index] {
            AttentionKernel::Wgmma(kernel) => queue.launch(kernel, args),
            AttentionKernel::Plain(kernel) => queue.launch(kernel, args),
        }
    }
}
