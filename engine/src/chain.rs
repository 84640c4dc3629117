//! The forward pass as a chain of kernels that overlap, over packed weights.
//!
//! The same sums as in `forward.rs`, in five kernels a block: queries, keys and values (norm, three products, bias,
//! rotation, append to the cache); attention; the output projection; gate and up (norm, two products, the gate); the
//! down projection. Where heads are normed, the first stops at the bias, and a sixth behind it norms, turns and
//! appends. Before them one that embeds the token, behind them the LM head, which chooses and steps on. Each brings
//! weights while the one before still runs, and waits for its end before it reads anything else.
//!
//! The same chain takes several tokens of a prompt at once, each a column of its kernels: see
//! `warpwright_kernels::tiled`. It begins with a kernel that deals the columns their tokens, and ends where one token's
//! chain would choose. A product that has no memory for all columns takes some of them after the others.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use warpwright_driver::{Buffer, Context, Elem, Error, Kernel, Queue, View};
use warpwright_kernels::advance::AdvanceArgs;
use warpwright_kernels::tiled::{
    AttentionChained, AttentionChainedArgs, Deal, DealArgs, EmbedRows, EmbedTiled, GateUp, GateUpArgs, Head,
    HeadArgs, HeadNorm, HeadNormArgs, Layout, Project, ProjectArgs, Qkv, QkvArgs, StartArgs, eights, plan,
};
use warpwright_kernels::{Advance, Format, state};

use crate::buffers::Buffers;
use crate::decoder::Kind;
use crate::gguf::Tensor;
use crate::kernels::by_key;
use crate::model::{Outline, Weights};
use crate::packed::{Block, Packed};
use crate::path::Fit;
use crate::weights::{Loaded, format};

/// Kernels of a layer.
const NODES: usize = 5;

/// The kernels, each with the device's part of its launches.
pub(crate) struct Chain {
    pub(crate) fit: Fit,
    /// Where there are several columns.
    deal: Option<Kernel<Deal>>,
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

/// What the kernels of the chain need besides the buffers that every path has. Of what is of a column, there is one
/// for each after the other.
pub(crate) struct Links {
    /// `[head_dim / 2, 2]`, of a column: cosine and sine at the position
    angles: Buffer<f32>,
    /// `[heads + 2 * kv_heads, head_dim]`, of a column: queries, keys and values whose heads are not normed yet
    raw: Buffer<f32>,
    /// `[most_blocks]`, of a column: the largest logit of each block of the LM head, and its token
    value: Buffer<f32>,
    index: Buffer<u32>,
    /// `[1]`: blocks of the LM head that are done
    head_ticket: Buffer<u32>,
    /// `[heads, head_dim]`, of a column: what attention leaves for the output projection
    heads: Eights,
    /// `[feed_forward]`, of a column: what gate and up leave for the down projection
    inner: Eights,
    /// `[heads, splits, part]`, of a column: what ranges of attention leave
    attention_part: Buffer<f32>,
    /// `[tickets]`, of a column: ranges of attention that are done
    attention_ticket: Buffer<u32>,
    /// `[most_blocks]`: the turn of the latest product that has asked for its last tile
    asked: Buffer<u32>,
    /// Ranges into which attention splits the positions.
    splits: u32,
    /// Of several columns; of one, these are the buffers that every path has.
    columns: Option<Vectors>,
    /// `[nodes, node_stamps]` where the kernels profile, else anything: see `warpwright_kernels::tiled::plan`.
    stamps: Buffer<u64>,
    /// Stamps of a kernel; none if none profile.
    node_stamps: usize,
}

/// Activations for a projection: see `warpwright_kernels::tiled::eights`.
struct Eights {
    values: Buffer<u16>,
    scales: Buffer<f32>,
}

impl Eights {
    fn new(context: &Context, name: &str, len: u32) -> Result<Eights, Error> {
        let scales = (len / eights::EIGHT) as usize;
        Ok(Eights {
            values: Buffer::uninit(context, len as usize)?.labelled(name),
            scales: Buffer::uninit(context, scales)?.labelled(&format!("{name}.scales")),
        })
    }
}

/// What a token has, of each column.
#[derive(Clone)]
struct Vectors {
    state: View<u32>,
    /// `[hidden]`
    x: View<f32>,
    /// `[heads, head_dim]`
    q: View<f32>,
    /// `[vocab]`
    logits: View<f32>,
}

impl Vectors {
    fn new(context: &Context, fit: &Fit) -> Result<Vectors, Error> {
        let c = &fit.config;
        let floats = |name: &str, len: u32| -> Result<View<f32>, Error> {
            let len = fit.columns as usize * len as usize;
            Ok(Buffer::uninit(context, len)?.labelled(&format!("columns.{name}")).view())
        };
        let state = Buffer::zeroed(context, fit.columns as usize * state::LEN)?.labelled("columns.state");
        Ok(Vectors {
            state: state.view(),
            x: floats("x", c.hidden)?,
            q: floats("q", c.q_len())?,
            logits: floats("logits", c.vocab)?,
        })
    }

    fn of(b: &Buffers) -> Vectors {
        Vectors { state: b.state.view(), x: b.x.view(), q: b.q.view(), logits: b.logits.view() }
    }
}

impl Chain {
    /// The kernels of a model that fits.
    pub(crate) fn load(context: &Context, fit: Fit, outline: &Outline) -> Result<Chain, Error> {
        let (w, blocks) = (&outline.weights, || outline.weights.blocks.iter());
        let qkv = blocks().map(|b| [&b.q, &b.k, &b.v].map(format));
        let down = |b: &crate::model::Block<Tensor>| fit.down(format(&b.gate), format(&b.down));
        let projects = blocks().flat_map(|b| [fit.o(format(&b.o)), down(b)]);
        let deal = (fit.columns > 1).then_some(Deal { columns: fit.columns });
        Ok(Chain {
            deal: deal.map(|kernel| Kernel::load(context, kernel)).transpose()?,
            start: Start::load(context, w, &fit)?,
            qkv: by_key(context, qkv, |formats| laid(fit.qkv(formats)).0)?,
            head_norm: fit.head_norm().map(|kernel| Kernel::load(context, kernel)).transpose()?,
            attention: Kernel::load(context, fit.attention())?,
            project: by_key(context, projects.map(|project| laid(project).0), |project| project)?,
            gate_up: by_key(context, blocks().map(|b| format(&b.gate)), |format| {
                laid(fit.gate_up(format)).0
            })?,
            head: Kernel::load(context, laid(fit.head(format(w.head()))).0)?,
            advance: Kernel::load(context, Advance)?,
            fit,
        })
    }
}

/// What a [`Fit`] has, it has for every matrix of its model.
fn laid<T>(laid: Result<T, String>) -> T {
    laid.expect("the fit was checked with every matrix")
}

impl Start {
    fn load(context: &Context, w: &Weights<Tensor>, fit: &Fit) -> Result<Start, Error> {
        let (format, chained, columns) = (format(&w.embed), fit.overlaps(), fit.columns);
        Ok(match w.head {
            None => Start::Tiles(Kernel::load(context, EmbedTiled { format, chained, columns })?),
            Some(_) => Start::Rows(Kernel::load(context, EmbedRows { format, chained, columns })?),
        })
    }
}

impl Links {
    pub(crate) fn new(context: &Context, fit: &Fit, ctx: u32) -> Result<Links, crate::Error> {
        let (blocks, c, attention) = (fit.most_blocks() as usize, &fit.config, fit.attention());
        let floats = |len: u32| Buffer::uninit(context, fit.columns as usize * len as usize);
        let (splits, nodes) = (fit.splits(ctx), NODES * fit.config.layers as usize + 1);
        let tickets = (fit.columns * attention.tickets(c.kv_heads)) as usize;
        let node_stamps =
            if fit.tuning.profile { (fit.attention_blocks(splits) * plan::STAMPS) as usize } else { 0 };
        Ok(Links {
            angles: floats(c.head_dim)?.labelled("angles"),
            raw: floats(c.q_len() + 2 * c.kv_len())?.labelled("raw"),
            value: floats(fit.most_blocks())?.labelled("head.value"),
            index: Buffer::uninit(context, fit.columns as usize * blocks)?.labelled("head.index"),
            head_ticket: Buffer::zeroed(context, 1)?.labelled("head.ticket"),
            heads: Eights::new(context, "heads", fit.columns * c.q_len())?,
            inner: Eights::new(context, "inner", fit.columns * c.feed_forward)?,
            attention_part: floats(c.heads * splits * attention.part())?.labelled("attention.part"),
            attention_ticket: Buffer::zeroed(context, tickets)?.labelled("attention.ticket"),
            asked: Buffer::zeroed(context, blocks)?.labelled("asked"),
            splits,
            columns: (fit.columns > 1).then(|| Vectors::new(context, fit)).transpose()?,
            stamps: Buffer::zeroed(context, (nodes * node_stamps).max(1))?.labelled("stamps"),
            node_stamps,
        })
    }

    /// Where a kernel leaves its times.
    fn stamps(&self, node: usize) -> View<u64> {
        match self.node_stamps {
            0 => self.stamps.view(),
            len => self.stamps.view_range(node * len..(node + 1) * len),
        }
    }

    /// The times of the latest step, kernel by kernel: of each block, by [`Stamp`](plan::Stamp).
    pub(crate) fn times(&self) -> Result<Vec<Vec<[u64; 8]>>, Error> {
        let stamps = self.stamps.to_vec()?;
        let blocks = |node: &[u64]| node.as_chunks().0.to_vec();
        Ok(stamps.chunks(self.node_stamps).map(blocks).collect())
    }
}

/// A product of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Product {
    /// Queries, keys and values.
    Qkv,
    /// The projection behind attention.
    O,
    /// The first half of the feed-forward block.
    GateUp,
    /// Its second half.
    Down,
    /// The LM head.
    Head,
}

impl Product {
    /// Those of each layer.
    pub const OF_LAYER: [Product; 4] = [Product::Qkv, Product::O, Product::GateUp, Product::Down];

    /// As a [`Tuning`](crate::Tuning) names it.
    pub fn name(self) -> &'static str {
        match self {
            Product::Qkv => "qkv",
            Product::O => "o",
            Product::GateUp => "gate_up",
            Product::Down => "down",
            Product::Head => "head",
        }
    }
}

/// Everything a step needs.
pub(crate) struct Step<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) weights: &'a Packed,
    pub(crate) buffers: &'a Buffers,
    pub(crate) links: &'a Links,
    /// Products launched so far.
    pub(crate) turn: Cell<u32>,
}

impl<'a> Step<'a> {
    pub(crate) fn new(chain: &'a Chain, weights: &'a Packed, buffers: &'a Buffers, links: &'a Links) -> Self {
        Step { chain, weights, buffers, links, turn: Cell::new(0) }
    }

    /// One step; of several columns, one of each.
    pub(crate) fn run(&self, queue: &mut impl Queue, kind: Kind) -> Result<(), Error> {
        self.turn.set(0);
        self.deal(queue)?;
        self.start(queue)?;
        for (index, block) in self.weights.blocks.iter().enumerate() {
            self.qkv(queue, index, block)?;
            self.head_norm(queue, index, block)?;
            self.attention(queue, index)?;
            self.o(queue, index, &block.o)?;
            self.gate_up(queue, index, block)?;
            self.down(queue, index, block)?;
        }
        match kind {
            Kind::Token | Kind::Tokens => self.head(queue, &self.weights.head),
            Kind::Prompt => self.advance(queue),
            Kind::Prompts => Ok(()),
        }
    }

    /// The logits after each column.
    pub(crate) fn logits(&self) -> View<f32> {
        self.vectors().logits
    }

    fn vectors(&self) -> Vectors {
        self.links.columns.clone().unwrap_or_else(|| Vectors::of(self.buffers))
    }

    /// The blocks' turns, and that of the next product.
    fn asked(&self, blocks: u32) -> (View<u32>, u32) {
        let turn = self.turn.get();
        self.turn.set(turn + 1);
        (self.links.asked.view_range(0..blocks as usize), turn)
    }

    /// All columns, so many at a time, and what the rows of a buffer that has one for each are of those.
    fn parts(&self, at_once: u32) -> impl Iterator<Item = Part> {
        let columns = self.chain.fit.columns;
        (0..columns)
            .step_by(at_once as usize)
            .map(move |first| Part { range: first..first + at_once, columns })
    }

    /// Deals the columns their tokens, where there are several.
    fn deal(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (Some(kernel), b) = (&self.chain.deal, self.buffers) else {
            return Ok(());
        };
        let (prompt, state) = (b.prompt.view(), b.state.view());
        queue.launch(kernel, DealArgs { prompt, state, columns: self.vectors().state, ctx: b.ctx })
    }

    /// A product of a layer, with other tiles of its format.
    pub(crate) fn product(
        &self,
        queue: &mut impl Queue,
        product: Product,
        index: usize,
        tiles: View<u8>,
    ) -> Result<(), Error> {
        let block = self.weights.blocks[index].clone();
        let loaded = |like: &Loaded| Loaded { bytes: tiles.clone(), format: like.format };
        match product {
            Product::Qkv => self.qkv(queue, index, &Block { qkv: tiles, ..block }),
            Product::O => self.o(queue, index, &loaded(&block.o)),
            Product::GateUp => {
                self.gate_up(queue, index, &Block { gate_up: loaded(&block.gate_up), ..block })
            }
            Product::Down => self.down(queue, index, &Block { down: loaded(&block.down), ..block }),
            Product::Head => self.head(queue, &loaded(&self.weights.head)),
        }
    }

    /// The tiles of a product of a layer.
    pub(crate) fn tiles(&self, product: Product, index: usize) -> &View<u8> {
        let block = &self.weights.blocks[index];
        match product {
            Product::Qkv => &block.qkv,
            Product::O => &block.o.bytes,
            Product::GateUp => &block.gate_up.bytes,
            Product::Down => &block.down.bytes,
            Product::Head => &self.weights.head.bytes,
        }
    }

    /// Their formats, each once: `Q4_K + Q6_K`.
    pub(crate) fn formats(&self, product: Product, index: usize) -> String {
        let block = &self.weights.blocks[index];
        let mut formats = match product {
            Product::Qkv => block.formats.to_vec(),
            Product::O => vec![block.o.format],
            Product::GateUp => vec![block.gate_up.format],
            Product::Down => vec![block.down.format],
            Product::Head => vec![self.weights.head.format],
        };
        formats.dedup();
        formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(" + ")
    }

    /// The name of the kernel of a product of a layer.
    pub(crate) fn kernel(&self, product: Product, index: usize) -> &str {
        let (block, chain) = (&self.weights.blocks[index], self.chain);
        let project = |kernel| chain.project[&kernel].function();
        let function = match product {
            Product::Qkv => chain.qkv[&block.formats].function(),
            Product::O => project(laid(chain.fit.o(block.o.format)).0),
            Product::GateUp => chain.gate_up[&block.gate_up.format].function(),
            Product::Down => project(laid(chain.fit.down(block.gate_up.format, block.down.format)).0),
            Product::Head => chain.head.function(),
        };
        function.name()
    }

    /// The name of the kernel of attention.
    pub(crate) fn attention_kernel(&self) -> &str {
        self.chain.attention.function().name()
    }

    /// Bytes of keys and values that attention of a layer over so many positions reads, in f16.
    pub(crate) fn kv_bytes(&self, attended: u32) -> u64 {
        2 * 2 * u64::from(self.chain.fit.config.kv_len()) * u64::from(attended)
    }

    fn start(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (b, v, fit) = (self.buffers, self.vectors(), &self.chain.fit);
        let c = &fit.config;
        let args = StartArgs {
            state: v.state,
            table: self.weights.embed.bytes.clone(),
            freq: b.freq.view(),
            y: v.x,
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
        let (b, v, fit) = (self.buffers, self.vectors(), &self.chain.fit);
        let c = &fit.config;
        let (kernel, layout) = laid(fit.qkv(w.formats));
        let q = if w.qk_norm.is_some() { self.links.raw.view() } else { v.q };
        self.parts(kernel.plan.columns).try_for_each(|part| {
            let (asked, turn) = self.asked(layout.blocks);
            let args = QkvArgs {
                w: w.qkv.clone(),
                x: part.of(&v.x),
                gamma: w.attn_norm.clone(),
                // Without a bias it is not read, but must be something.
                bias: w.bias.clone().unwrap_or(w.attn_norm.clone()),
                state: part.of(&v.state),
                angles: part.of(&self.links.angles),
                q: part.of(&q),
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
                asked,
                turn,
                stamps: self.links.stamps(NODES * index),
            };
            queue.launch(&self.chain.qkv[&w.formats], args)
        })
    }

    /// Norm, rotation and append to the cache, where the kernel before leaves them.
    fn head_norm(&self, queue: &mut impl Queue, index: usize, w: &Block) -> Result<(), Error> {
        let (Some(kernel), Some(gamma)) = (&self.chain.head_norm, &w.qk_norm) else {
            return Ok(());
        };
        let (b, v, fit) = (self.buffers, self.vectors(), &self.chain.fit);
        let c = &fit.config;
        let args = HeadNormArgs {
            x: self.links.raw.view(),
            gamma: gamma.clone(),
            state: v.state,
            angles: self.links.angles.view(),
            q: v.q,
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

    pub(crate) fn attention(&self, queue: &mut impl Queue, index: usize) -> Result<(), Error> {
        let (b, v, fit, splits) = (self.buffers, self.vectors(), &self.chain.fit, self.links.splits);
        let c = &fit.config;
        let args = AttentionChainedArgs {
            state: v.state,
            q: v.q,
            k_cache: b.k_cache[index].view(),
            v_cache: b.v_cache[index].view(),
            y: self.links.heads.values.view(),
            y_scale: self.links.heads.scales.view(),
            part: self.links.attention_part.view(),
            ticket: self.links.attention_ticket.view(),
            heads: c.heads,
            kv_heads: c.kv_heads,
            ctx: b.ctx,
            splits,
            scale: 1.0 / (c.head_dim as f32).sqrt(),
            blocks: fit.attention_blocks(splits),
            shared: fit.attention_shared,
            stamps: self.links.stamps(NODES * index + 1),
        };
        queue.launch(&self.chain.attention, args)
    }

    fn o(&self, queue: &mut impl Queue, index: usize, w: &Loaded) -> Result<(), Error> {
        let laid = laid(self.chain.fit.o(w.format));
        self.project(queue, NODES * index + 2, w, &self.links.heads, laid)
    }

    fn down(&self, queue: &mut impl Queue, index: usize, w: &Block) -> Result<(), Error> {
        let laid = laid(self.chain.fit.down(w.gate_up.format, w.down.format));
        self.project(queue, NODES * index + 4, &w.down, &self.links.inner, laid)
    }

    /// Adds `W x` to the residual stream.
    fn project(
        &self,
        queue: &mut impl Queue,
        node: usize,
        w: &Loaded,
        x: &Eights,
        (kernel, layout): (Project, Layout),
    ) -> Result<(), Error> {
        let (y, columns) = (self.vectors().x, self.chain.fit.columns);
        self.parts(kernel.plan.columns).try_for_each(|part| {
            let (asked, turn) = self.asked(layout.blocks);
            let args = ProjectArgs {
                w: w.bytes.clone(),
                x: part.of(&x.values),
                x_scale: part.of(&x.scales),
                rows: y.len() as u32 / columns,
                n: x.values.len() as u32 / columns,
                y: part.of(&y),
                blocks: layout.blocks,
                parts: layout.parts,
                stages: layout.stages,
                shared: layout.shared,
                asked,
                turn,
                stamps: self.links.stamps(node),
            };
            queue.launch(&self.chain.project[&kernel], args)
        })
    }

    fn gate_up(&self, queue: &mut impl Queue, index: usize, w: &Block) -> Result<(), Error> {
        let (v, fit) = (self.vectors(), &self.chain.fit);
        let (kernel, layout) = laid(fit.gate_up(w.gate_up.format));
        self.parts(kernel.plan.columns).try_for_each(|part| {
            let (asked, turn) = self.asked(layout.blocks);
            let args = GateUpArgs {
                w: w.gate_up.bytes.clone(),
                x: part.of(&v.x),
                gamma: w.ffn_norm.clone(),
                y: part.of(&self.links.inner.values),
                y_scale: part.of(&self.links.inner.scales),
                rows: fit.config.feed_forward,
                n: fit.config.hidden,
                epsilon: fit.config.epsilon,
                blocks: layout.blocks,
                parts: layout.parts,
                stages: layout.stages,
                shared: layout.shared,
                asked,
                turn,
                stamps: self.links.stamps(NODES * index + 3),
            };
            queue.launch(&self.chain.gate_up[&w.gate_up.format], args)
        })
    }

    /// The logits and the likeliest token; of one column, the next position too.
    fn head(&self, queue: &mut impl Queue, head: &Loaded) -> Result<(), Error> {
        let (b, v, fit) = (self.buffers, self.vectors(), &self.chain.fit);
        let (kernel, layout) = laid(fit.head(head.format));
        let blocks = (kernel.plan.columns * layout.blocks) as usize;
        self.parts(kernel.plan.columns).try_for_each(|part| {
            let (asked, turn) = self.asked(layout.blocks);
            let args = HeadArgs {
                w: head.bytes.clone(),
                x: part.of(&v.x),
                gamma: self.weights.norm.clone(),
                logits: part.of(&v.logits),
                value: self.links.value.view_range(0..blocks),
                index: self.links.index.view_range(0..blocks),
                ticket: self.links.head_ticket.view(),
                prompt: b.prompt.view(),
                stop: b.stop.view(),
                state: part.of(&v.state),
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
                asked,
                turn,
                stamps: self.links.stamps(NODES * self.weights.blocks.len()),
            };
            queue.launch(&self.chain.head, args)
        })
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

/// Some of the columns.
struct Part {
    range: Range<u32>,
    /// All of them.
    columns: u32,
}

impl Part {
    /// What a buffer has of these columns, which has as much of each.
    fn of<T: Elem>(&self, all: &View<T>) -> View<T> {
        let len = all.len() / self.columns as usize;
        all.view_range(self.range.start as usize * len..self.range.end as usize * len)
    }
}
