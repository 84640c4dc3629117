//! The launches of a chunked pass.

mod experts;

use warpwright_driver::launch::Host;
use warpwright_driver::memory::{Buffer, Element, View, f16};
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Error};
use warpwright_kernels::AddNormedArgs;
use warpwright_kernels::batch::{BatchAttention, BatchAttentionArgs};
use warpwright_kernels::matmul::{
    AppendArgs, Epilogue, MatmulArgs, MatmulPair, MatmulPairArgs, NormTokens, NormTokensArgs,
};
use warpwright_kernels::pipeline::EmbedTokenArgs;
use warpwright_kernels::prompt::{Item, PromptAttentionArgs, RotateTokensArgs};
use warpwright_kernels::shared::state;
use warpwright_model::layer::Attention;
use warpwright_model::{Config, Outline};

use crate::chunked::kernels::{self, AttentionKernel, ChunkKernels, QkvMatmuls};
use crate::chunked::lora::launch::{GatedRows, LoraPass, LoraRows};
use crate::chunked::lora::matrix::DeviceLora;
use crate::chunked::lora::pool::{GateUpLora, HostAdapter, LoraPool, LoraShapes};
use crate::chunked::panels::Panels;
use crate::chunked::products::{ChunkGemm, ColumnSplits, PassShape, TensorCores};
use crate::chunked::span::Span;
use crate::chunked::weights::{self, LayerRows, MatrixRows};
use crate::chunked::workspace::{ChunkWorkspace, LAST_CAPACITY};
use crate::pipeline::kernels::EmbedKernel;
use crate::pipeline::kinds::{Appending, PipelineFeedForward, PipelineNorms};
use crate::pipeline::resolved::ResolvedEmbed;
use crate::weights::packed::{Packed, PackedBlock};

/// The forward pass of a model over many tokens at once.
pub(crate) struct Chunked {
    pub(super) config: Config,
    pub(super) kernels: ChunkKernels,
    pub(super) layers: Vec<LayerRows>,
    pub(crate) workspace: ChunkWorkspace,
}

/// The input of a pass. The states of its tokens are in the workspace.
#[derive(Clone, Copy)]
pub(crate) struct PassInput<'a> {
    /// The number of tokens, at most [`CHUNK`](super::CHUNK).
    pub(crate) tokens: u32,
    pub(crate) shape: PassShape,
    pub(crate) wanted: WantedRows,
    /// The first rows, if they are the only ones of their sequences.
    pub(crate) singles: Option<Singles<'a>>,
    /// The work items of attention, `[items, 4]`, which cover the other rows.
    pub(crate) items: &'a View<u32>,
    pub(crate) cache: PagedCache<'a>,
    /// The adapters, if rows of the pass have any. All rows must be wanted then.
    pub(crate) lora: Option<LoraPass<'a>>,
}

/// The tokens whose residual stream is read after a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WantedRows {
    /// All tokens.
    All,
    /// Only the last token. For the others, the last layer computes keys and values and nothing
    /// else. Its attention, output projection and feed-forward are 1/32 of the work of a model with
    /// 32 layers.
    Last,
}

/// The rows that are the only ones of their sequences, with the scratch memory of their attention:
/// see [`BatchAttention`].
#[derive(Clone, Copy)]
pub(crate) struct Singles<'a> {
    pub(crate) rows: u32,
    /// The maximum number of splits of the positions.
    pub(crate) splits: u32,
    /// The number of work units that are split.
    pub(crate) units: u32,
    pub(crate) partials: &'a Buffer<f32>,
    pub(crate) ticket: &'a Buffer<u32>,
}

/// The keys and values of all layers, and the page table.
#[derive(Clone, Copy)]
pub(crate) struct PagedCache<'a> {
    /// The keys, one buffer per layer, `[pages, kv_heads, 64, head_dim]`.
    pub(crate) k: &'a [Buffer<f16>],
    /// The values, with the shape of `k`.
    pub(crate) v: &'a [Buffer<f16>],
    /// The number of pages per layer.
    pub(crate) pages: u32,
    /// The page table, `[sequences, max_pages]`.
    pub(crate) table: &'a View<u32>,
    pub(crate) sequences: u32,
    pub(crate) max_pages: u32,
    /// The revolutions per position of each rotated pair, `[ropes, head_dim / 2, 2]`.
    pub(crate) freq: &'a Buffer<f32>,
}

impl Chunked {
    /// Allocates the buffers and computes the bounds of the weights, which must be on the device.
    pub(crate) fn new(
        context: &Context,
        cores: TensorCores,
        outline: &Outline,
        weights: &Packed<View<u8>>,
        embed: ResolvedEmbed,
    ) -> Result<Chunked, crate::Error> {
        let layers = weights::layers(context, outline, weights)?;
        let config = outline.config.clone();
        let two_orders = layers.iter().any(kernels::has_two_orders);
        Ok(Chunked {
            kernels: ChunkKernels::new(context, cores, &layers, embed)?,
            workspace: ChunkWorkspace::new(context, &config, two_orders)?,
            layers,
            config,
        })
    }

    /// Returns the residual stream of `count` tokens of the latest pass, starting at token `first`.
    pub(crate) fn rows(&self, first: u32, count: u32) -> View<f32> {
        let len = self.config.hidden;
        self.workspace
            .x
            .view_range((first * len) as usize..((first + count) * len) as usize)
    }

    /// Compiles attention of rows that are the only ones of their sequences, and returns the kernel
    /// of the first layer.
    pub(crate) fn prepare_singles(&mut self, context: &Context) -> Result<BatchAttention, Error> {
        self.kernels.prepare_singles(context, &self.layers)
    }

    /// Compiles the kernels of passes with this shape.
    pub(crate) fn prepare(&mut self, context: &Context, shape: PassShape) -> Result<(), Error> {
        self.kernels.prepare(context, &self.layers, shape)
    }

    /// Compiles the kernels that process only the last token in the last layer.
    pub(crate) fn prepare_last(&mut self, context: &Context) -> Result<(), Error> {
        let layer = self.layers.last().expect("a model has at least one layer");
        self.kernels
            .prepare_rest(context, layer, LAST, LAST_CAPACITY)
    }

    /// Returns the shapes that adapters must have.
    pub(crate) fn lora_shapes(&self) -> LoraShapes {
        LoraShapes::new(&self.layers, self.config.hidden)
    }

    /// Copies adapters to the device. There must be at least one. `shapes` are the shapes of this
    /// model.
    pub(crate) fn load_adapters(
        &self,
        context: &Context,
        shapes: &LoraShapes,
        adapters: &[&HostAdapter],
    ) -> Result<LoraPool, crate::Error> {
        LoraPool::load(context, &self.layers, shapes, adapters)
    }

    /// Compiles the kernels that passes with this shape need for adapters, in addition to all
    /// others.
    pub(crate) fn prepare_lora(
        &mut self,
        context: &Context,
        pool: &LoraPool,
        shape: PassShape,
    ) -> Result<(), Error> {
        self.kernels.prepare_sums(context, pool.gate_up(), shape)
    }

    /// Returns true if the kernels of a graph should overlap, for this many tokens with one
    /// sequence each. The choice does not change the results.
    pub(crate) fn overlaps(&self, bucket: u32) -> bool {
        let hidden = self.config.hidden;
        let gains = OVERLAPPED
            .into_iter()
            .any(|(most, below)| bucket <= most && hidden < below);
        self.kernels.cores.has_warpgroups() && gains
    }

    /// Queues a pass whose kernels are prepared.
    pub(crate) fn run(
        &self,
        queue: &mut impl Queue,
        weights: &Packed<View<u8>>,
        input: PassInput<'_>,
    ) -> Result<(), Error> {
        ChunkedPass {
            chunked: self,
            weights,
            input,
            span: Span::WHOLE,
        }
        .run(queue)
    }
}

/// The maximum number of rows for which the kernels of a graph overlap, and the hidden size below
/// which they do.
///
/// The limits were measured with `bench batch` for eleven model shapes on an H100. 64 rows gain 1
/// to 9 % by overlapping (Llama-3.2-3B loses 0.9 %). Models of 8B gain 0.4 % there, but lose 6 % on
/// an H200. 128 rows gain 2 to 6 % up to a hidden size of 1,536. Larger models lose up to 0.8 % or
/// gain up to 1.8 %.
const OVERLAPPED: [(u32, u32); 3] = [(32, u32::MAX), (64, 4096), (128, 2048)];
/// The shape of a pass over a single token.
pub(super) const LAST: PassShape = PassShape {
    bucket: 1,
    splits: ColumnSplits::Fastest,
    overlap: false,
};

/// A pass, or its last token only, with everything that its launches need.
struct ChunkedPass<'a> {
    chunked: &'a Chunked,
    weights: &'a Packed<View<u8>>,
    input: PassInput<'a>,
    span: Span,
}

impl<'a> ChunkedPass<'a> {
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
            if let Some(lora) = self.input.lora {
                let w = &self.chunked.workspace;
                self.shrink(queue, lora, lora.layer(index).qkv(), &w.normed)?;
            }
            self.qkv(queue, index, rows, block)?;
            match self.input.wanted {
                WantedRows::Last if index == last => {
                    self.last_token().rest(queue, index, rows, block)?
                }
                _ => self.rest(queue, index, rows, block)?,
            }
        }

        Ok(())
    }

    /// Queues a layer from attention on.
    fn rest(
        &self,
        queue: &mut impl Queue,
        index: usize,
        rows: &LayerRows,
        block: &PackedBlock<View<u8>>,
    ) -> Result<(), Error> {
        let lora = self.input.lora.map(|lora| (lora, lora.layer(index)));
        self.attention(queue, index, &rows.attention)?;
        self.project(
            queue,
            rows,
            Projection {
                rows: &rows.o,
                x: &self.chunked.workspace.heads,
                lora: lora.and_then(|(lora, layer)| Some((lora, layer.o()?))),
            },
            block.attn_post_norm.as_ref(),
        )?;
        self.norm(queue, &block.ffn_norm, self.norms(rows)[1])?;
        match &rows.feed_forward {
            PipelineFeedForward::Dense(_) => self.dense(queue, index, rows, block),
            PipelineFeedForward::Experts(experts) => self.experts(queue, rows, experts, block),
        }
    }

    /// Queues a dense feed-forward, whose input is normed.
    fn dense(
        &self,
        queue: &mut impl Queue,
        index: usize,
        rows: &LayerRows,
        block: &PackedBlock<View<u8>>,
    ) -> Result<(), Error> {
        let lora = self.input.lora.map(|lora| (lora, lora.layer(index)));
        match lora.and_then(|(lora, layer)| Some((lora, layer.gate_up()?))) {
            Some((lora, gate_up)) => self.gate_up_with_lora(queue, rows, lora, gate_up)?,
            None => self.gate_up(queue, rows)?,
        }
        self.project(
            queue,
            rows,
            Projection {
                rows: &rows.down,
                x: &self.chunked.workspace.inner,
                lora: lora.and_then(|(lora, layer)| Some((lora, layer.down()?))),
            },
            block.ffn_post_norm.as_ref(),
        )
    }

    /// Returns the pass over only the last token.
    fn last_token(&self) -> ChunkedPass<'a> {
        let input = PassInput {
            tokens: 1,
            shape: LAST,
            items: &self.chunked.workspace.last_item,
            singles: None,
            ..self.input
        };
        ChunkedPass {
            input,
            span: Span::last(self.input.tokens),
            ..*self
        }
    }

    /// Returns the rows of the pass's tokens in a buffer in which tokens keep their rows.
    fn rows<T: Element>(&self, all: &Buffer<T>, len: u32) -> View<T> {
        self.span.rows(all, self.input.tokens, len)
    }

    /// Returns the number of rows of the kernels that have it compiled in.
    fn fixed_rows(&self) -> u32 {
        kernels::fixed_rows(self.input.shape.bucket)
    }

    /// Queues the embeddings and the rotation angles of the tokens.
    fn embed(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let w = &self.chunked.workspace;
        let c = &self.chunked.config;
        let rows = self.fixed_rows();
        let kernels = &self.chunked.kernels;
        let rope_dim = c.rotated_len();
        let args = EmbedTokenArgs::<Host> {
            state: &ChunkWorkspace::rows(&w.state, rows, state::LEN as u32),
            table: self.weights.embed(),
            freq: self.input.cache.freq,
            y: &ChunkWorkspace::rows(&w.x, rows, c.hidden),
            angles: &ChunkWorkspace::rows(&w.angles, rows, rope_dim),
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
        kernels::norms(rows, self.input.shape)
    }

    fn norm(
        &self,
        queue: &mut impl Queue,
        gamma: &View<u8>,
        norm: NormTokens,
    ) -> Result<(), Error> {
        let w = &self.chunked.workspace;
        let c = &self.chunked.config;

        // A norm with one order ignores `y2`, but the launch needs a valid buffer.
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
            y_scale: &ChunkWorkspace::rows(&w.normed.scale, self.input.tokens, 1),
            squares: &ChunkWorkspace::rows(&w.squares, self.input.tokens, 1),
            n: c.hidden,
            capacity: self.span.capacity,
            epsilon: c.epsilon,
        };
        queue.launch(&self.chunked.kernels.norms[&norm], args)
    }

    /// Queues the matmuls of queries, keys and values, their norms and rotation, and the append of
    /// keys and values to the cache.
    fn qkv(
        &self,
        queue: &mut impl Queue,
        index: usize,
        rows: &LayerRows,
        block: &PackedBlock<View<u8>>,
    ) -> Result<(), Error> {
        let w = &self.chunked.workspace;
        let kernels = &self.chunked.kernels;
        let first = kernels::order(&rows.qkv[0]);
        let attention = &rows.attention;
        let y_rows = attention.qkv_len();

        let raw = match rows.appending {
            Appending::Product => None,
            Appending::Rotation => w.raw.as_ref(),
        };
        let bias = floats(&block.bias, &w.nothing.floats)?;

        // A matrix in the second column order reads the second copy of the normed input.
        let operand = |rows: &MatrixRows| {
            let second = w.normed2.as_ref().filter(|_| kernels::order(rows) != first);
            self.operand(second.unwrap_or(&w.normed.values), &w.normed.scale, rows.n)
        };
        match kernels::qkv(kernels.cores, rows, self.input.shape, self.span.capacity) {
            QkvMatmuls::Each(products) => {
                for (rows, product) in rows.qkv.iter().zip(products) {
                    let operand = operand(rows);
                    let args = self.args(self.blocks(&product), rows, &operand);
                    let args = match raw {
                        Some(raw) => MatmulArgs::<Host> {
                            y: raw,
                            y_rows,
                            ..args
                        },
                        None => MatmulArgs::<Host> {
                            y_rows,
                            append: self.append(index, attention, &bias),
                            ..args
                        },
                    };
                    kernels.products[&product].launch(queue, args)?;
                }
            }
            QkvMatmuls::Pair(pair) => {
                let operands = [&rows.qkv[0], &rows.qkv[1]].map(|rows| (rows, operand(rows)));
                self.pair(queue, &pair, operands, index, attention, &bias)?;
            }
        }

        match raw {
            Some(raw) => {
                if let Some(lora) = self.input.lora {
                    let layer = lora.layer(index);
                    lora.add(queue, layer.qkv(), self.lora_rows(), &raw.view())?;
                }
                self.rotate(queue, index, rows, raw, block)
            }
            None => match self.input.lora {
                Some(lora) => {
                    let append = self.append(index, attention, &bias);
                    let layer = lora.layer(index);
                    lora.append(queue, layer.qkv(), rows, self.input.tokens, &append)
                }
                None => Ok(()),
            },
        }
    }

    /// Queues the matmuls of queries and keys, and of values, as one kernel.
    fn pair(
        &self,
        queue: &mut impl Queue,
        pair: &MatmulPair,
        [(first, operand), (second, operand2)]: [(&MatrixRows, MatmulOperand); 2],
        index: usize,
        attention: &Attention,
        bias: &View<f32>,
    ) -> Result<(), Error> {
        let w = &self.chunked.workspace;
        let kernels = &self.chunked.kernels;

        // Both matmuls run at the same time, so each has its own part of the scratch memory.
        let [partials, tickets] = pair.first.scratch(first.rows, self.input.tokens);
        let [partials, partials2] = split_at(&w.scratch.partials, partials);
        let [tickets, tickets2] = split_at(&w.scratch.tickets, tickets);
        let args = MatmulPairArgs::<Host> {
            first: MatmulArgs::<Host> {
                y_rows: attention.qkv_len(),
                append: self.append(index, attention, bias),
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

    /// Returns the arguments by which a matmul rotates and appends in layer `index`.
    fn append<'s>(
        &'s self,
        index: usize,
        attention: &Attention,
        bias: &'s View<f32>,
    ) -> AppendArgs<Host<'s>> {
        let cache = self.input.cache;
        let w = &self.chunked.workspace;
        let c = &self.chunked.config;
        AppendArgs::<Host> {
            bias,
            angles: &w.angles,
            state: &w.state,
            pages: cache.table,
            q: &w.q,
            k_cache: &cache.k[index],
            v_cache: &cache.v[index],
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            cache_pages: cache.pages,
            sequences: cache.sequences,
            max_pages: cache.max_pages,
            angle_row: c.rotated_len(),
            angle_first: attention.rope * c.rope(attention).dim,
            scale: c.score_scale(attention),
        }
    }

    /// Queues the matmul of gate and up, and the gate.
    fn gate_up(&self, queue: &mut impl Queue, rows: &LayerRows) -> Result<(), Error> {
        let w = &self.chunked.workspace;
        let c = &self.chunked.config;
        let epilogue = kernels::gated(rows);
        let matmul = self.gemm(&rows.gate_up, epilogue);
        let operand = self.operand(&w.normed.values, &w.normed.scale, c.hidden);
        let args = MatmulArgs::<Host> {
            squares: &self.span.activations(&w.squares, 1),
            gated: &self
                .span
                .activations(&w.inner.values, rows.feed_forward.width()),
            gated_scale: &self.span.activations(&w.inner.scale, 1),
            bound: rows.bound,
            y: &w.nothing.floats,
            y_rows: rows.feed_forward.width(),
            ..self.args(self.blocks(&matmul), &rows.gate_up, &operand)
        };
        self.chunked.kernels.products[&matmul].launch(queue, args)
    }

    /// Works like [`gate_up`](ChunkedPass::gate_up) for rows of which some have adapters. The sums
    /// are stored, and gated after the adapters are added.
    fn gate_up_with_lora(
        &self,
        queue: &mut impl Queue,
        rows: &LayerRows,
        pass: LoraPass<'_>,
        gate_up: &GateUpLora,
    ) -> Result<(), Error> {
        let w = &self.chunked.workspace;
        let c = &self.chunked.config;
        self.shrink(queue, pass, Some(gate_up.lora()), &w.normed)?;
        let tiles = gate_up.tiles();
        let matmul = self.gemm(tiles, Epilogue::Store);
        let operand = self.operand(&w.normed.values, &w.normed.scale, c.hidden);
        let sums = pass.sums(gate_up);
        let args = MatmulArgs::<Host> {
            y: &sums,
            y_rows: tiles.rows,
            ..self.args(self.blocks(&matmul), tiles, &operand)
        };
        self.chunked.kernels.products[&matmul].launch(queue, args)?;
        pass.add(queue, Some(gate_up.lora()), self.lora_rows(), &sums)?;
        let gated = GatedRows {
            sums: &sums,
            squares: &self.span.activations(&w.squares, 1),
            gated: &self
                .span
                .activations(&w.inner.values, rows.feed_forward.width()),
            gated_scale: &self.span.activations(&w.inner.scale, 1),
        };
        pass.gate(queue, rows, self.lora_rows(), gated)
    }

    /// Returns the rows of the pass for the kernels of adapters.
    fn lora_rows(&self) -> LoraRows<'_> {
        LoraRows {
            tokens: self.input.tokens,
            state: &self.chunked.workspace.state,
        }
    }

    /// Queues the first half of the adapters of a matmul with this input.
    fn shrink(
        &self,
        queue: &mut impl Queue,
        pass: LoraPass<'_>,
        lora: Option<&DeviceLora>,
        x: &Panels,
    ) -> Result<(), Error> {
        let Some(lora) = lora else { return Ok(()) };
        let operand = self.operand(&x.values, &x.scale, lora.columns());
        pass.shrink(
            queue,
            lora,
            self.lora_rows(),
            &operand.values,
            &operand.scale,
        )
    }

    /// Queues the addition of `W x` to the residual stream, or of its norm in layers that norm it.
    fn project(
        &self,
        queue: &mut impl Queue,
        layer: &LayerRows,
        Projection { rows, x, lora }: Projection<'_>,
        gamma: Option<&View<u8>>,
    ) -> Result<(), Error> {
        let w = &self.chunked.workspace;
        let c = &self.chunked.config;
        let projected = match layer.norms {
            PipelineNorms::Before => None,
            PipelineNorms::BeforeAndAfter => w.projected.as_ref(),
        };
        let to = match projected {
            Some(projected) => self.span.activations(projected, c.hidden),
            None => self.span.rows(&w.x, self.span.capacity, c.hidden),
        };
        let operand = self.operand(&x.values, &x.scale, rows.n);
        let matmul = self.gemm(rows, kernels::projection(layer));
        let args = MatmulArgs::<Host> {
            y: &to,
            y_rows: c.hidden,
            ..self.args(self.blocks(&matmul), rows, &operand)
        };
        self.chunked.kernels.products[&matmul].launch(queue, args)?;
        if let Some((pass, lora)) = lora {
            self.shrink(queue, pass, Some(lora), x)?;
            pass.add(queue, Some(lora), self.lora_rows(), &to)?;
        }
        self.add_normed(queue, gamma)
    }

    /// Queues the addition of a projection's norm to the residual stream, in layers that norm it.
    fn add_normed(&self, queue: &mut impl Queue, gamma: Option<&View<u8>>) -> Result<(), Error> {
        let w = &self.chunked.workspace;
        let c = &self.chunked.config;
        let rows = self.fixed_rows();
        let Some(kernel) = self.chunked.kernels.add_normed.get(&rows) else {
            return Ok(());
        };
        let (Some(projected), Some(gamma)) = (&w.projected, gamma) else {
            return Ok(());
        };

        let args = AddNormedArgs::<Host> {
            x: &ChunkWorkspace::rows(projected, rows, c.hidden),
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

/// A matrix whose product is added to the residual stream, with its input and its adapters.
struct Projection<'a> {
    rows: &'a MatrixRows,
    x: &'a Panels,
    lora: Option<(LoraPass<'a>, &'a DeviceLora)>,
}

/// Returns the first elements of a buffer, and the rest.
fn split_at<T: Element>(buffer: &Buffer<T>, first: usize) -> [View<T>; 2] {
    [
        buffer.view_range(0..first),
        buffer.view_range(first..buffer.len()),
    ]
}

/// The activations that a matmul reads.
struct MatmulOperand {
    values: View<f16>,
    scale: View<f32>,
}

impl ChunkedPass<'_> {
    fn operand(&self, values: &Buffer<f16>, scale: &Buffer<f32>, n: u32) -> MatmulOperand {
        MatmulOperand {
            values: self.span.activations(values, n),
            scale: self.span.activations(scale, 1),
        }
    }

    /// Returns the kernel of a matmul.
    fn gemm(&self, rows: &MatrixRows, epilogue: Epilogue) -> ChunkGemm {
        self.chunked
            .kernels
            .cores
            .product(rows, epilogue, self.input.shape, self.span.capacity)
    }

    /// Returns the maximum number of blocks of a matmul.
    fn blocks(&self, product: &ChunkGemm) -> u32 {
        self.chunked.kernels.cores.blocks(product)
    }

    /// Returns the arguments that all matmuls have. Those of the epilogues are empty.
    fn args<'s>(
        &'s self,
        blocks: u32,
        rows: &'s MatrixRows,
        x: &'s MatmulOperand,
    ) -> MatmulArgs<Host<'s>> {
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
            tokens_given: self.input.tokens,
            capacity: self.span.capacity,
            blocks,
            partials: &w.scratch.partials,
            tickets: &w.scratch.tickets,
            append: w.nothing.append(),
        }
    }

    /// Queues the biases, head norms and rotation, and the append of keys and values to the cache.
    fn rotate(
        &self,
        queue: &mut impl Queue,
        index: usize,
        rows: &LayerRows,
        raw: &Buffer<f32>,
        block: &PackedBlock<View<u8>>,
    ) -> Result<(), Error> {
        let cache = self.input.cache;
        let w = &self.chunked.workspace;
        let c = &self.chunked.config;
        let attention = &rows.attention;
        let head_dim = attention.head_dim as usize;

        // In models with two ropes, the frequencies of the second follow those of the first.
        let rope = attention.rope as usize * head_dim;
        let args = RotateTokensArgs::<Host> {
            x: raw,
            bias: &floats(&block.bias, &w.nothing.floats)?,
            gamma: &floats(&block.qk_norm, &w.nothing.floats)?,
            freq: &cache.freq.view_range(rope..rope + head_dim),
            state: &w.state,
            pages: cache.table,
            q: &w.q,
            k_cache: &cache.k[index],
            v_cache: &cache.v[index],
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            cache_pages: cache.pages,
            sequences: cache.sequences,
            max_pages: cache.max_pages,
            tokens: self.input.tokens,
            capacity: self.span.capacity,
            epsilon: c.epsilon,
            scale: c.score_scale(attention),
        };
        let overlap = self.input.shape.overlap;
        queue.launch(self.chunked.kernels.rotation(rows, overlap), args)
    }

    fn attention(
        &self,
        queue: &mut impl Queue,
        index: usize,
        attention: &Attention,
    ) -> Result<(), Error> {
        if let Some(singles) = self.input.singles.filter(|singles| singles.rows > 0) {
            self.attend_singles(queue, index, attention, singles)?;
        }
        if !self.input.items.is_empty() {
            self.attend_items(queue, index, attention)?;
        }
        Ok(())
    }

    /// Queues attention of rows that are the only ones of their sequences.
    fn attend_singles(
        &self,
        queue: &mut impl Queue,
        index: usize,
        attention: &Attention,
        singles: Singles<'_>,
    ) -> Result<(), Error> {
        let cache = self.input.cache;
        let w = &self.chunked.workspace;
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
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            cache_pages: cache.pages,
            sequences: cache.sequences,
            max_pages: cache.max_pages,
            rows: singles.rows,
            capacity: self.span.capacity,
            splits: singles.splits,
            units: singles.units,
        };
        let overlap = usize::from(self.input.shape.overlap);
        queue.launch(&self.chunked.kernels.singles[overlap][index], args)
    }

    /// Queues attention of the rows that the work items cover.
    fn attend_items(
        &self,
        queue: &mut impl Queue,
        index: usize,
        attention: &Attention,
    ) -> Result<(), Error> {
        let cache = self.input.cache;
        let w = &self.chunked.workspace;
        let args = PromptAttentionArgs::<Host> {
            q: &self.span.rows(&w.q, self.span.capacity, attention.q_len()),
            k_cache: &cache.k[index],
            v_cache: &cache.v[index],
            pages: cache.table,
            items: self.input.items,
            y: &self.span.activations(&w.heads.values, attention.q_len()),
            y_scale: &self.span.activations(&w.heads.scale, 1),
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            cache_pages: cache.pages,
            sequences: cache.sequences,
            max_pages: cache.max_pages,
            item_count: self.input.items.len() as u32 / Item::LEN as u32,
            capacity: self.span.capacity,
        };
        match &self.chunked.kernels.attention[index] {
            AttentionKernel::Wgmma(kernel) => queue.launch(kernel, args),
            AttentionKernel::Plain(kernel) => queue.launch(kernel, args),
        }
    }
}

/// Returns optional weights, or an empty view if the model does not have them.
fn floats(weights: &Option<View<u8>>, none: &Buffer<f32>) -> Result<View<f32>, Error> {
    weights.as_ref().map_or_else(|| Ok(none.view()), View::cast)
}
