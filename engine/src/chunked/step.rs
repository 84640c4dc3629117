//! The launches of a pass.

use warpwright_driver::{Buffer, Context, Element, Error, Host, Queue, View, f16};
use warpwright_kernels::batch::{BatchAttention, BatchAttentionArgs};
use warpwright_kernels::matmul::{
    AppendArgs, Epilogue, MatmulArgs, MatmulPair, MatmulPairArgs, NormTokens, NormTokensArgs,
};
use warpwright_kernels::pipeline::EmbedTokenArgs;
use warpwright_kernels::prompt::{Item, PromptAttentionArgs, RotateTokensArgs};
use warpwright_kernels::{AddNormedArgs, state};

use super::kernels::{self, AttentionKernel, Kernels, Qkv};
use super::products::{Chosen, Cores, Product};
use super::span::Span;
use super::weights::{self, LayerRows, Rows};
use super::workspace::{self, LAST_CAPACITY, Panels, Workspace};
use crate::model::config::Config;
use crate::model::outline::Outline;
use crate::pipeline::kernels::EmbedKernel;
use crate::pipeline::resolved::ResolvedEmbed;
use crate::weights::packed::{Packed, PackedBlock};

/// The forward pass of a model over many tokens at once.
pub(crate) struct Chunked {
    pub(super) config: Config,
    pub(super) kernels: Kernels,
    pub(super) layers: Vec<LayerRows>,
    pub(crate) workspace: Workspace,
}

/// What a pass takes in. The states of its tokens are in the workspace.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    /// Tokens, at most [`CHUNK`](super::CHUNK).
    pub(crate) tokens: u32,
    pub(crate) chosen: Chosen,
    pub(crate) wanted: Wanted,
    /// The first rows, if they are the only ones of their sequences.
    pub(crate) singles: Option<Singles<'a>>,
    /// `[items, 4]`: the work items of attention, which the other rows are
    pub(crate) items: &'a View<u32>,
    pub(crate) cache: PagedCache<'a>,
}

/// The tokens whose residual stream somebody reads after a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    All,
    /// The last one alone. Of the others, the last layer computes keys and values and nothing else: its attention,
    /// output projection and feed-forward are a 32nd of the work of a model of 32 layers.
    Last,
}

/// Rows that are the only ones of their sequences, and what their attention works with: see [`BatchAttention`].
#[derive(Clone, Copy)]
pub(crate) struct Singles<'a> {
    pub(crate) rows: u32,
    /// How their positions are split: at most so many times, for so many units.
    pub(crate) splits: u32,
    pub(crate) units: u32,
    pub(crate) partials: &'a Buffer<f32>,
    pub(crate) ticket: &'a Buffer<u32>,
}

/// Keys and values of all layers, and which pages are whose.
#[derive(Clone, Copy)]
pub(crate) struct PagedCache<'a> {
    /// `[pages, kv_heads, 64, head_dim]`, one a layer
    pub(crate) k: &'a [Buffer<f16>],
    /// As `k`
    pub(crate) v: &'a [Buffer<f16>],
    /// Pages of each.
    pub(crate) pages: u32,
    /// `[sequences, max_pages]`: the page table
    pub(crate) table: &'a View<u32>,
    pub(crate) sequences: u32,
    pub(crate) max_pages: u32,
    /// `[ropes, head_dim / 2, 2]`: revolutions a position
    pub(crate) freq: &'a Buffer<f32>,
}

impl Chunked {
    /// After the weights are there: it reads them.
    pub(crate) fn new(
        context: &Context,
        cores: Cores,
        outline: &Outline,
        weights: &Packed<View<u8>>,
        embed: ResolvedEmbed,
    ) -> Result<Chunked, crate::Error> {
        let layers = weights::layers(context, outline, weights)?;
        let config = outline.config.clone();
        let two_orders = layers.iter().any(kernels::has_two_orders);
        Ok(Chunked {
            kernels: Kernels::new(context, cores, &config, &layers, embed)?,
            workspace: Workspace::new(context, &config, two_orders)?,
            layers,
            config,
        })
    }

    /// The residual stream of `count` tokens of the latest pass, from `first` on.
    pub(crate) fn rows(&self, first: u32, count: u32) -> View<f32> {
        let len = self.config.hidden;
        self.workspace
            .x
            .view_range((first * len) as usize..((first + count) * len) as usize)
    }

    /// Compiles attention of rows that are the only ones of their sequences; gives that of a layer.
    pub(crate) fn prepare_singles(&mut self, context: &Context) -> Result<BatchAttention, Error> {
        self.kernels
            .prepare_singles(context, &self.config, &self.layers)
    }

    /// Compiles what such passes need.
    pub(crate) fn prepare(&mut self, context: &Context, chosen: Chosen) -> Result<(), Error> {
        self.kernels
            .prepare(context, &self.config, &self.layers, chosen)
    }

    /// Compiles what the last token of passes needs that want no other.
    pub(crate) fn prepare_last(&mut self, context: &Context) -> Result<(), Error> {
        let layer = self.layers.last().expect("models have layers");
        self.kernels
            .prepare_rest(context, &self.config, layer, LAST, LAST_CAPACITY)
    }

    /// Whether the kernels of a graph with so many tokens, of which each is a sequence's only one, are to overlap. It
    /// changes no result.
    pub(crate) fn overlaps(&self, bucket: u32) -> bool {
        let hidden = self.config.hidden;
        let gains = OVERLAPPED
            .into_iter()
            .any(|(most, below)| bucket <= most && hidden < below);
        self.kernels.cores.has_warpgroups() && gains
    }

    /// Runs a pass whose kernels are prepared.
    pub(crate) fn run(
        &self,
        queue: &mut impl Queue,
        weights: &Packed<View<u8>>,
        given: Given<'_>,
    ) -> Result<(), Error> {
        Pass {
            chunked: self,
            weights,
            given,
            span: Span::WHOLE,
        }
        .run(queue)
    }
}

/// Up to how many rows the kernels of a graph overlap, in models whose hidden state is shorter than this.
///
/// Measured by `bench --batch` with eleven shapes on an H100: 64 rows gain 1 to 9 % if they overlap (Llama-3.2-3B loses
/// 0.9 %), those of 8B 0.4 %, and on an H200 these lose 6 %. 128 rows gain 2 to 6 % up to 1,536 elements; longer ones lose
/// up to 0.8 % or gain up to 1.8.
const OVERLAPPED: [(u32, u32); 3] = [(32, u32::MAX), (64, 4096), (128, 2048)];
/// How the kernels of a single token are chosen.
pub(super) const LAST: Chosen = Chosen {
    bucket: 1,
    overlap: false,
};

/// A pass with all it needs, or its last token.
struct Pass<'a> {
    chunked: &'a Chunked,
    weights: &'a Packed<View<u8>>,
    given: Given<'a>,
    span: Span,
}

impl<'a> Pass<'a> {
    fn run(&self, queue: &mut impl Queue) -> Result<(), Error> {
        self.embed(queue)?;
        let last = self.chunked.layers.len() - 1;
        for (index, (rows, block)) in self
            .chunked
            .layers
            .iter()
            .zip(&self.weights.blocks)
            .enumerate()
        {
            self.norm(queue, &block.attn_norm, self.norms(rows)[0])?;
            self.qkv(queue, index, rows, block)?;
            match self.given.wanted {
                Wanted::Last if index == last => {
                    self.last_token().rest(queue, index, rows, block)?
                }
                _ => self.rest(queue, index, rows, block)?,
            }
        }
        Ok(())
    }

    /// A layer from attention on.
    fn rest(
        &self,
        queue: &mut impl Queue,
        index: usize,
        rows: &LayerRows,
        block: &PackedBlock<View<u8>>,
    ) -> Result<(), Error> {
        self.attention(queue, index)?;
        self.project(
            queue,
            &rows.o,
            &self.chunked.workspace.heads,
            block.attn_post_norm.as_ref(),
        )?;
        self.norm(queue, &block.ffn_norm, self.norms(rows)[1])?;
        self.gate_up(queue, rows)?;
        self.project(
            queue,
            &rows.down,
            &self.chunked.workspace.inner,
            block.ffn_post_norm.as_ref(),
        )
    }

    /// The last token as a pass of its own.
    fn last_token(&self) -> Pass<'a> {
        let (items, singles) = (&*self.chunked.workspace.last_item, None);
        let given = Given {
            tokens: 1,
            chosen: LAST,
            items,
            singles,
            ..self.given
        };
        Pass {
            given,
            span: Span::last(self.given.tokens),
            ..*self
        }
    }

    /// The rows of the pass's tokens in a buffer where tokens keep their places.
    fn rows<T: Element>(&self, all: &Buffer<T>, len: u32) -> View<T> {
        self.span.rows(all, self.given.tokens, len)
    }

    /// Rows of the kernels that have their number compiled in.
    fn fixed_rows(&self) -> u32 {
        kernels::fixed_rows(self.given.chosen.bucket)
    }

    /// The tokens' embeddings and angles.
    fn embed(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (w, c, rows) = (
            &self.chunked.workspace,
            &self.chunked.config,
            self.fixed_rows(),
        );
        let kernels = &self.chunked.kernels;
        let rope_dim = c.rope.dim * c.ropes().len() as u32;
        let args = EmbedTokenArgs::<Host> {
            state: &Workspace::rows(&w.state, rows, state::LEN as u32),
            table: self.weights.embed(),
            freq: self.given.cache.freq,
            y: &Workspace::rows(&w.x, rows, c.hidden),
            angles: &Workspace::rows(&w.angles, rows, rope_dim),
            n: c.hidden,
            vocab: c.vocab,
            rope_dim,
            blocks: 16 * kernels.cores.sms,
            shared: 0,
        };
        match &kernels.embed[&rows] {
            EmbedKernel::Tiles(kernel) => queue.launch(kernel, args),
            EmbedKernel::Rows(kernel) => queue.launch(kernel, args),
        }
    }

    fn norms(&self, rows: &LayerRows) -> [NormTokens; 2] {
        kernels::norms(rows, self.given.chosen)
    }

    fn norm(
        &self,
        queue: &mut impl Queue,
        gamma: &View<u8>,
        norm: NormTokens,
    ) -> Result<(), Error> {
        let (w, c) = (&self.chunked.workspace, &self.chunked.config);
        let second = w
            .normed2
            .as_ref()
            .filter(|_| norm.second.is_some())
            .unwrap_or(&w.nothing.halves);
        let args = NormTokensArgs::<Host> {
            x: &self.rows(&w.x, c.hidden),
            gamma: &gamma.cast()?,
            y: &self.span.activations(&w.normed.values, c.hidden),
            y2: second,
            y_scale: &Workspace::rows(&w.normed.scale, self.given.tokens, 1),
            squares: &Workspace::rows(&w.squares, self.given.tokens, 1),
            n: c.hidden,
            capacity: self.span.capacity,
            epsilon: c.epsilon,
        };
        queue.launch(&self.chunked.kernels.norms[&norm], args)
    }

    /// Queries, keys and values, normed and rotated; keys and values go to the cache.
    fn qkv(
        &self,
        queue: &mut impl Queue,
        index: usize,
        rows: &LayerRows,
        block: &PackedBlock<View<u8>>,
    ) -> Result<(), Error> {
        let (w, c, kernels) = (
            &self.chunked.workspace,
            &self.chunked.config,
            &self.chunked.kernels,
        );
        let first = kernels::order(&rows.qkv[0]);
        let y_rows = workspace::raw_len(c);
        let bias = floats(&block.bias, &w.nothing.floats)?;
        let operand = |rows: &Rows| {
            let second = w.normed2.as_ref().filter(|_| kernels::order(rows) != first);
            self.operand(second.unwrap_or(&w.normed.values), &w.normed.scale, rows.n)
        };
        match kernels::qkv(
            kernels.cores,
            c,
            rows,
            self.given.chosen,
            self.span.capacity,
        ) {
            Qkv::Each(products) => {
                for (rows, product) in rows.qkv.iter().zip(products) {
                    let operand = operand(rows);
                    let args = self.args(self.blocks(&product), rows, &operand);
                    let args = match &w.raw {
                        Some(raw) => MatmulArgs::<Host> {
                            y: raw,
                            y_rows,
                            ..args
                        },
                        None => MatmulArgs::<Host> {
                            y_rows,
                            append: self.append(index, &bias),
                            ..args
                        },
                    };
                    kernels.products[&product].launch(queue, args)?;
                }
            }
            Qkv::Pair(pair) => {
                let operands = [&rows.qkv[0], &rows.qkv[1]].map(|rows| (rows, operand(rows)));
                self.pair(queue, &pair, operands, (index, &bias))?;
            }
        }
        match &w.raw {
            Some(raw) => self.rotate(queue, index, raw, block),
            None => Ok(()),
        }
    }

    /// Queries and keys, and values, as one kernel.
    fn pair(
        &self,
        queue: &mut impl Queue,
        pair: &MatmulPair,
        [(first, operand), (second, operand2)]: [(&Rows, Operand); 2],
        (index, bias): (usize, &View<f32>),
    ) -> Result<(), Error> {
        let (w, c, kernels) = (
            &self.chunked.workspace,
            &self.chunked.config,
            &self.chunked.kernels,
        );
        let [partials, tickets] = pair.first.scratch(first.rows, self.given.tokens);
        let [partials, partials2] = halves(&w.scratch.partials, partials);
        let [tickets, tickets2] = halves(&w.scratch.tickets, tickets);
        let args = MatmulPairArgs::<Host> {
            first: MatmulArgs::<Host> {
                y_rows: workspace::raw_len(c),
                append: self.append(index, bias),
                partials: &partials,
                tickets: &tickets,
                ..self.args(kernels.cores.sms, first, &operand)
            },
            w2: &second.tiles,
            unit2: &second.unit,
            x2: &operand2.values,
            rows2: second.rows,
            partials2: &partials2,
            tickets2: &tickets2,
        };
        queue.launch(&kernels.pairs[pair], args)
    }

    fn append<'s>(&'s self, index: usize, bias: &'s View<f32>) -> AppendArgs<Host<'s>> {
        let (cache, w, c) = (
            self.given.cache,
            &self.chunked.workspace,
            &self.chunked.config,
        );
        AppendArgs::<Host> {
            bias,
            angles: &w.angles,
            state: &w.state,
            pages: cache.table,
            q: &w.q,
            k_cache: &cache.k[index],
            v_cache: &cache.v[index],
            heads: c.heads,
            kv_heads: c.kv_heads,
            cache_pages: cache.pages,
            sequences: cache.sequences,
            max_pages: cache.max_pages,
            angle_row: c.ropes().len() as u32 * c.rope.dim,
            angle_first: c.rope_of(index as u32) * c.rope.dim,
            scale: c.score_scale(),
        }
    }

    fn gate_up(&self, queue: &mut impl Queue, rows: &LayerRows) -> Result<(), Error> {
        let (w, c) = (&self.chunked.workspace, &self.chunked.config);
        let epilogue = kernels::gated(c, rows);
        let matmul = self.chosen(&rows.gate_up, epilogue);
        let operand = self.operand(&w.normed.values, &w.normed.scale, c.hidden);
        let args = MatmulArgs::<Host> {
            squares: &self.span.activations(&w.squares, 1),
            gated: &self.span.activations(&w.inner.values, c.feed_forward),
            gated_scale: &self.span.activations(&w.inner.scale, 1),
            bound: rows.bound,
            y: &w.nothing.floats,
            y_rows: c.feed_forward,
            ..self.args(self.blocks(&matmul), &rows.gate_up, &operand)
        };
        self.chunked.kernels.products[&matmul].launch(queue, args)
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
        let to = match &w.projected {
            Some(projected) => self.span.activations(projected, c.hidden),
            None => self.span.rows(&w.x, self.span.capacity, c.hidden),
        };
        let operand = self.operand(&x.values, &x.scale, rows.n);
        let matmul = self.chosen(rows, kernels::projection(c));
        let args = MatmulArgs::<Host> {
            y: &to,
            y_rows: c.hidden,
            ..self.args(self.blocks(&matmul), rows, &operand)
        };
        self.chunked.kernels.products[&matmul].launch(queue, args)?;
        self.add_normed(queue, gamma)
    }

    /// Adds the norm of a projection to the residual stream, for models with norms after.
    fn add_normed(&self, queue: &mut impl Queue, gamma: Option<&View<u8>>) -> Result<(), Error> {
        let (w, c) = (&self.chunked.workspace, &self.chunked.config);
        let rows = self.fixed_rows();
        let (Some(kernel), Some(projected), Some(gamma)) = (
            self.chunked.kernels.add_normed.get(&rows),
            &w.projected,
            gamma,
        ) else {
            return Ok(());
        };
        let args = AddNormedArgs::<Host> {
            x: &Workspace::rows(projected, rows, c.hidden),
            gamma: &gamma.cast()?,
            y: &self.span.rows(&w.x, rows, c.hidden),
            n: c.hidden,
            epsilon: c.epsilon,
            blocks: rows,
            shared: 0,
        };
        queue.launch(kernel, args)
    }
}

/// The first elements of a buffer, and the others.
fn halves<T: Element>(buffer: &Buffer<T>, first: usize) -> [View<T>; 2] {
    [
        buffer.view_range(0..first),
        buffer.view_range(first..buffer.len()),
    ]
}

/// The left operand of a product.
struct Operand {
    values: View<f16>,
    scale: View<f32>,
}

impl Pass<'_> {
    fn operand(&self, values: &Buffer<f16>, scale: &Buffer<f32>, n: u32) -> Operand {
        Operand {
            values: self.span.activations(values, n),
            scale: self.span.activations(scale, 1),
        }
    }

    /// The kernel of a product.
    fn chosen(&self, rows: &Rows, epilogue: Epilogue) -> Product {
        self.chunked
            .kernels
            .cores
            .product(rows, epilogue, self.given.chosen, self.span.capacity)
    }

    /// Blocks of its grid at most.
    fn blocks(&self, product: &Product) -> u32 {
        self.chunked.kernels.cores.blocks(product)
    }

    /// What the arguments of all products have.
    fn args<'s>(&'s self, blocks: u32, rows: &'s Rows, x: &'s Operand) -> MatmulArgs<Host<'s>> {
        let w = &self.chunked.workspace;
        MatmulArgs::<Host> {
            w: &rows.tiles,
            unit: &rows.unit,
            x: &x.values,
            x_scale: &x.scale,
            squares: &w.nothing.floats,
            y: &w.nothing.floats,
            gated: &w.nothing.halves,
            gated_scale: &w.nothing.floats,
            bound: 0.0,
            rows: rows.rows,
            n: rows.n,
            y_rows: 0,
            y_first: rows.first,
            tokens_given: self.given.tokens,
            capacity: self.span.capacity,
            blocks,
            partials: &w.scratch.partials,
            tickets: &w.scratch.tickets,
            append: w.nothing.append(),
        }
    }

    /// Bias, norms and rotation; keys and values go to the cache.
    fn rotate(
        &self,
        queue: &mut impl Queue,
        index: usize,
        raw: &Buffer<f32>,
        block: &PackedBlock<View<u8>>,
    ) -> Result<(), Error> {
        let (cache, w, c) = (
            self.given.cache,
            &self.chunked.workspace,
            &self.chunked.config,
        );
        let rope = (c.rope_of(index as u32) * c.head_dim) as usize;
        let args = RotateTokensArgs::<Host> {
            x: raw,
            bias: &floats(&block.bias, &w.nothing.floats)?,
            gamma: &floats(&block.qk_norm, &w.nothing.floats)?,
            freq: &cache.freq.view_range(rope..rope + c.head_dim as usize),
            state: &w.state,
            pages: cache.table,
            q: &w.q,
            k_cache: &cache.k[index],
            v_cache: &cache.v[index],
            heads: c.heads,
            kv_heads: c.kv_heads,
            cache_pages: cache.pages,
            sequences: cache.sequences,
            max_pages: cache.max_pages,
            tokens: self.given.tokens,
            capacity: self.span.capacity,
            epsilon: c.epsilon,
            scale: c.score_scale(),
        };
        queue.launch(
            &self.chunked.kernels.rotate[&self.given.chosen.overlap],
            args,
        )
    }

    fn attention(&self, queue: &mut impl Queue, index: usize) -> Result<(), Error> {
        if let Some(singles) = self.given.singles.filter(|singles| singles.rows > 0) {
            self.attend_singles(queue, index, singles)?;
        }
        if !self.given.items.is_empty() {
            self.attend_items(queue, index)?;
        }
        Ok(())
    }

    fn attend_singles(
        &self,
        queue: &mut impl Queue,
        index: usize,
        singles: Singles<'_>,
    ) -> Result<(), Error> {
        let (cache, w, c) = (
            self.given.cache,
            &self.chunked.workspace,
            &self.chunked.config,
        );
        let args = BatchAttentionArgs::<Host> {
            state: &w.state,
            pages: cache.table,
            q: &w.q,
            k_cache: &cache.k[index],
            v_cache: &cache.v[index],
            y: &w.heads.values,
            y_scale: &w.heads.scale,
            partials: singles.partials,
            ticket: singles.ticket,
            heads: c.heads,
            kv_heads: c.kv_heads,
            cache_pages: cache.pages,
            sequences: cache.sequences,
            max_pages: cache.max_pages,
            rows: singles.rows,
            capacity: self.span.capacity,
            splits: singles.splits,
            units: singles.units,
        };
        let overlap = usize::from(self.given.chosen.overlap);
        queue.launch(&self.chunked.kernels.singles[overlap][index], args)
    }

    fn attend_items(&self, queue: &mut impl Queue, index: usize) -> Result<(), Error> {
        let (cache, w, c) = (
            self.given.cache,
            &self.chunked.workspace,
            &self.chunked.config,
        );
        let args = PromptAttentionArgs::<Host> {
            q: &self.span.rows(&w.q, self.span.capacity, c.q_len()),
            k_cache: &cache.k[index],
            v_cache: &cache.v[index],
            pages: cache.table,
            items: self.given.items,
            y: &self.span.activations(&w.heads.values, c.q_len()),
            y_scale: &self.span.activations(&w.heads.scale, 1),
            heads: c.heads,
            kv_heads: c.kv_heads,
            cache_pages: cache.pages,
            sequences: cache.sequences,
            max_pages: cache.max_pages,
            item_count: self.given.items.len() as u32 / Item::LEN as u32,
            capacity: self.span.capacity,
        };
        match &self.chunked.kernels.attention[index] {
            AttentionKernel::Wgmma(kernel) => queue.launch(kernel, args),
            AttentionKernel::Plain(kernel) => queue.launch(kernel, args),
        }
    }
}

/// Weights that a model may have; else none.
fn floats(weights: &Option<View<u8>>, none: &Buffer<f32>) -> Result<View<f32>, Error> {
    weights.as_ref().map_or_else(|| Ok(none.view()), View::cast)
}
