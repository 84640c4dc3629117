//! The forward pass as a chain of kernels that overlap, over packed weights.
//!
//! The same sums as in `forward.rs`, in five kernels a block: queries, keys and values (norm, three products, bias,
//! rotation, append to the cache; where heads are normed, a sixth kernel does the last two); attention; the output projection; gate and up (norm, two products, the gate); the
//! down projection. Before them one that embeds the token, behind them the LM head, which chooses and steps on. Each
//! brings weights while the one before still runs, and waits for its end before it reads anything else.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use warpwright_driver::{Buffer, Context, Error, Kernel, Queue, View};
use warpwright_kernels::advance::AdvanceArgs;
use warpwright_kernels::tiled::{
    AttentionChained, AttentionChainedArgs, EmbedRows, EmbedTiled, GateUp, GateUpArgs, Head, HeadArgs,
    HeadNorm, HeadNormArgs, Layout, Project, ProjectArgs, Qkv, QkvArgs, StartArgs,
};
use warpwright_kernels::{Advance, Format};

use crate::buffers::Buffers;
use crate::decoder::Kind;
use crate::gguf::Tensor;
use crate::model::{self, Outline, Weights};
use crate::packed::{Block, Packed};
use crate::path::Fit;
use crate::weights::{Loaded, format};

/// The kernels, each with the device's part of its launches.
pub(crate) struct Chain {
    pub(crate) fit: Fit,
    start: Start,
    qkv: BTreeMap<[Format; 3], Kernel<Qkv>>,
    /// Where heads are normed.
    head_norm: Option<Kernel<HeadNorm>>,
    attention: Kernel<AttentionChained>,
    project: BTreeMap<Project, Kernel<Project>>,
    gate_up: BTreeMap<Format, Kernel<GateUp>>,
    head: Kernel<Head>,
    advance: Kernel<Advance>,
}

/// The kernel that embeds a token.
enum Start {
    Tiles(Kernel<EmbedTiled>),
    Rows(Kernel<EmbedRows>),
}

/// What the kernels of the chain need besides the buffers that every path has.
pub(crate) struct Links {
    /// `[head_dim / 2, 2]`: cosine and sine at the position
    angles: Buffer<f32>,
    /// `[heads + 2 * kv_heads, head_dim]`: queries, keys and values whose heads are not normed yet
    raw: Buffer<f32>,
    /// `[blocks]`: the largest logit of each block of the LM head, and its token
    value: Buffer<f32>,
    index: Buffer<u32>,
    /// `[1]`: blocks of the LM head that are done
    head_ticket: Buffer<u32>,
    /// `[units]`: ranges of attention that are done
    attention_ticket: Buffer<u32>,
    /// Ranges into which attention splits the positions.
    splits: u32,
    /// Times, which no kernel here takes.
    stamps: Buffer<u64>,
}

impl Chain {
    /// The kernels of a model that fits.
    pub(crate) fn load(context: &Context, fit: Fit, outline: &Outline) -> Result<Chain, crate::Error> {
        let w = &outline.weights;
        let mut chain = Chain {
            start: Start::load(context, w)?,
            qkv: BTreeMap::new(),
            head_norm: fit.head_norm().map(|kernel| Kernel::load(context, kernel)).transpose()?,
            attention: Kernel::load(context, fit.attention())?,
            project: BTreeMap::new(),
            gate_up: BTreeMap::new(),
            head: Kernel::load(context, laid(fit.head(format(w.head()))).0)?,
            advance: Kernel::load(context, Advance)?,
            fit,
        };
        w.blocks.iter().try_for_each(|block| chain.load_block(context, block))?;
        Ok(chain)
    }

    /// The kernels of a block, those that no block before it had.
    fn load_block(&mut self, context: &Context, b: &model::Block<Tensor>) -> Result<(), Error> {
        let fit = &self.fit;
        let formats = [&b.q, &b.k, &b.v].map(format);
        once(&mut self.qkv, formats, || Kernel::load(context, laid(fit.qkv(formats)).0))?;
        for project in [laid(fit.o(format(&b.o))).0, laid(fit.down(format(&b.down))).0] {
            once(&mut self.project, project, || Kernel::load(context, project))?;
        }
        let format = format(&b.gate);
        once(&mut self.gate_up, format, || Kernel::load(context, laid(fit.gate_up(format)).0))
    }
}

fn once<K: Ord, V>(
    map: &mut BTreeMap<K, V>,
    key: K,
    value: impl FnOnce() -> Result<V, Error>,
) -> Result<(), Error> {
    if let Entry::Vacant(entry) = map.entry(key) {
        entry.insert(value()?);
    }
    Ok(())
}

/// What a [`Fit`] has, it has for every matrix of its model.
fn laid<T>(laid: Result<T, String>) -> T {
    laid.expect("the fit was checked with every matrix")
}

impl Start {
    fn load(context: &Context, w: &Weights<Tensor>) -> Result<Start, Error> {
        let format = format(&w.embed);
        Ok(match w.head {
            None => Start::Tiles(Kernel::load(context, EmbedTiled { format })?),
            Some(_) => Start::Rows(Kernel::load(context, EmbedRows { format })?),
        })
    }
}

impl Links {
    pub(crate) fn new(context: &Context, fit: &Fit, ctx: u32) -> Result<Links, crate::Error> {
        let (blocks, units) = (fit.blocks as usize, fit.attention_units() as usize);
        Ok(Links {
            angles: Buffer::uninit(context, fit.config.head_dim as usize)?.labelled("angles"),
            raw: Buffer::uninit(context, (fit.config.q_len() + 2 * fit.config.kv_len()) as usize)?
                .labelled("raw"),
            value: Buffer::uninit(context, blocks)?.labelled("head.value"),
            index: Buffer::uninit(context, blocks)?.labelled("head.index"),
            head_ticket: Buffer::zeroed(context, 1)?.labelled("head.ticket"),
            attention_ticket: Buffer::zeroed(context, units)?.labelled("attention.ticket"),
            splits: fit.splits(ctx),
            stamps: Buffer::zeroed(context, 1)?.labelled("stamps"),
        })
    }
}

/// Everything a step needs.
pub(crate) struct Step<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) weights: &'a Packed,
    pub(crate) buffers: &'a Buffers,
    pub(crate) links: &'a Links,
}

impl Step<'_> {
    /// One step.
    pub(crate) fn run(&self, queue: &mut impl Queue, kind: Kind) -> Result<(), Error> {
        self.start(queue)?;
        for (index, block) in self.weights.blocks.iter().enumerate() {
            self.qkv(queue, index, block)?;
            self.head_norm(queue, index, block)?;
            self.attention(queue, index)?;
            let (b, fit) = (self.buffers, &self.chain.fit);
            self.project(queue, &block.o, &b.heads, laid(fit.o(block.o.format)))?;
            self.gate_up(queue, block)?;
            self.project(queue, &block.down, &b.inner, laid(fit.down(block.down.format)))?;
        }
        match kind {
            Kind::Token => self.head(queue),
            Kind::Prompt => self.advance(queue),
        }
    }

    fn start(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (b, fit) = (self.buffers, &self.chain.fit);
        let c = &fit.config;
        let args = StartArgs {
            state: b.state.view(),
            table: self.weights.embed.bytes.clone(),
            freq: b.freq.view(),
            y: b.x.view(),
            angles: self.links.angles.view(),
            n: c.hidden,
            vocab: c.vocab,
            rope_dim: c.rope_dim,
            blocks: fit.blocks,
            shared: fit.shared,
        };
        match &self.chain.start {
            Start::Tiles(kernel) => queue.launch(kernel, args),
            Start::Rows(kernel) => queue.launch(kernel, args),
        }
    }

    fn qkv(&self, queue: &mut impl Queue, index: usize, w: &Block) -> Result<(), Error> {
        let (b, fit) = (self.buffers, &self.chain.fit);
        let c = &fit.config;
        let (_, layout) = laid(fit.qkv(w.formats));
        let args = QkvArgs {
            w: w.qkv.clone(),
            x: b.x.view(),
            gamma: w.attn_norm.clone(),
            // Without a bias it is not read, but must be something.
            bias: w.bias.clone().unwrap_or(w.attn_norm.clone()),
            state: b.state.view(),
            angles: self.links.angles.view(),
            q: if w.qk_norm.is_some() { self.links.raw.view() } else { b.q.view() },
            k_cache: b.k_cache[index].view(),
            v_cache: b.v_cache[index].view(),
            heads: c.heads,
            kv_heads: c.kv_heads,
            head_dim: c.head_dim,
            ctx: b.ctx,
            n: c.hidden,
            epsilon: c.epsilon,
            blocks: layout.blocks,
            parts: layout.parts,
            stages: layout.stages,
            shared: layout.shared,
            stamps: self.links.stamps.view(),
        };
        queue.launch(&self.chain.qkv[&w.formats], args)
    }

    /// Norm, rotation and append to the cache, where the kernel before leaves them.
    fn head_norm(&self, queue: &mut impl Queue, index: usize, w: &Block) -> Result<(), Error> {
        let (Some(kernel), Some(gamma)) = (&self.chain.head_norm, &w.qk_norm) else {
            return Ok(());
        };
        let (b, fit) = (self.buffers, &self.chain.fit);
        let c = &fit.config;
        let args = HeadNormArgs {
            x: self.links.raw.view(),
            gamma: gamma.clone(),
            state: b.state.view(),
            angles: self.links.angles.view(),
            q: b.q.view(),
            k_cache: b.k_cache[index].view(),
            v_cache: b.v_cache[index].view(),
            heads: c.heads,
            kv_heads: c.kv_heads,
            head_dim: c.head_dim,
            ctx: b.ctx,
            epsilon: c.epsilon,
            blocks: fit.blocks,
            shared: fit.attention_shared,
        };
        queue.launch(kernel, args)
    }

    fn attention(&self, queue: &mut impl Queue, index: usize) -> Result<(), Error> {
        let (b, fit, splits) = (self.buffers, &self.chain.fit, self.links.splits);
        let c = &fit.config;
        let part = c.heads * splits * (c.head_dim + 2);
        let args = AttentionChainedArgs {
            state: b.state.view(),
            q: b.q.view(),
            k_cache: b.k_cache[index].view(),
            v_cache: b.v_cache[index].view(),
            y: b.heads.view(),
            part: b.part.view_range(0..part as usize),
            ticket: self.links.attention_ticket.view(),
            heads: c.heads,
            kv_heads: c.kv_heads,
            ctx: b.ctx,
            splits,
            scale: 1.0 / (c.head_dim as f32).sqrt(),
            blocks: fit.blocks.max(fit.attention_units() * splits),
            shared: fit.attention_shared,
        };
        queue.launch(&self.chain.attention, args)
    }

    /// Adds `W x` to the residual stream.
    fn project(
        &self,
        queue: &mut impl Queue,
        w: &Loaded,
        x: &View<f32>,
        (kernel, layout): (Project, Layout),
    ) -> Result<(), Error> {
        let y = self.buffers.x.view();
        let args = ProjectArgs {
            w: w.bytes.clone(),
            x: x.clone(),
            rows: y.len() as u32,
            n: x.len() as u32,
            y,
            blocks: layout.blocks,
            parts: layout.parts,
            stages: layout.stages,
            shared: layout.shared,
            stamps: self.links.stamps.view(),
        };
        queue.launch(&self.chain.project[&kernel], args)
    }

    fn gate_up(&self, queue: &mut impl Queue, w: &Block) -> Result<(), Error> {
        let (b, fit) = (self.buffers, &self.chain.fit);
        let (_, layout) = laid(fit.gate_up(w.gate_up.format));
        let args = GateUpArgs {
            w: w.gate_up.bytes.clone(),
            x: b.x.view(),
            gamma: w.ffn_norm.clone(),
            y: b.inner.view(),
            rows: fit.config.feed_forward,
            n: fit.config.hidden,
            epsilon: fit.config.epsilon,
            blocks: layout.blocks,
            parts: layout.parts,
            stages: layout.stages,
            shared: layout.shared,
            stamps: self.links.stamps.view(),
        };
        queue.launch(&self.chain.gate_up[&w.gate_up.format], args)
    }

    /// The logits, the likeliest token, and the next position.
    fn head(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (b, fit, head) = (self.buffers, &self.chain.fit, &self.weights.head);
        let (_, layout) = laid(fit.head(head.format));
        let args = HeadArgs {
            w: head.bytes.clone(),
            x: b.x.view(),
            gamma: self.weights.norm.clone(),
            logits: b.logits.view(),
            value: self.links.value.view(),
            index: self.links.index.view(),
            ticket: self.links.head_ticket.view(),
            prompt: b.prompt.view(),
            stop: b.stop.view(),
            state: b.state.view(),
            out: b.out.view(),
            rows: fit.config.vocab,
            n: fit.config.hidden,
            epsilon: fit.config.epsilon,
            stops: b.stop_tokens.len() as u32,
            ctx: b.ctx,
            blocks: layout.blocks,
            parts: layout.parts,
            stages: layout.stages,
            shared: layout.shared,
            stamps: self.links.stamps.view(),
        };
        queue.launch(&self.chain.head, args)
    }

    fn advance(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = self.buffers;
        let args = AdvanceArgs {
            token: b.token.view(),
            prompt: b.prompt.view(),
            stop: b.stop.view(),
            state: b.state.view(),
            out: b.out.view(),
            stops: b.stop_tokens.len() as u32,
            ctx: b.ctx,
        };
        queue.launch(&self.chain.advance, args)
    }
}
