//! The device side of a batch: its buffers, the data that the host writes to them, and the launches
//! of a step.

use std::collections::BTreeMap;

use warpwright_driver::Context;
use warpwright_driver::graph::{Graph, GraphExec, Recorder};
use warpwright_driver::memory::{Buffer, Staging, View, f16};
use warpwright_driver::stream::{Queue, Stream};
use warpwright_kernels::batch::BatchAttention;
use warpwright_kernels::format::dequantize::ColumnOrder;
use warpwright_kernels::prompt::Item;
use warpwright_kernels::shared::cache::{self, PAGE};
use warpwright_kernels::shared::state::{self, StepState};
use warpwright_kernels::simple::rope::revolutions;
use warpwright_model::layer::{Attention, Mixer};
use warpwright_model::{Config, Layer, Outline};

use super::head::{BatchHead, HeadShape, SelectedRows};
use super::lone::LoneSteps;
use super::options::{BatchOptions, MAX_SEQUENCES};
use super::sequences::PageCopy;
use super::steps::row_class::RowClass;
use crate::Error;
use crate::chunked::list::{Attended, PassNode};
use crate::chunked::lora::launch::LoraPass;
use crate::chunked::lora::pool::LoraPool;
use crate::chunked::products::{ColumnSplits, PassShape, TensorCores};
use crate::chunked::step::{Chunked, PagedCache, PassInput, Singles, WantedRows};
use crate::pipeline::resolved::ResolvedEmbed;
use crate::weights::packed::Packed;

/// The weights, caches, kernels and graphs of a batch.
pub(super) struct BatchDevice {
    pub(super) stream: Stream,
    /// The pinned memory of what the host writes for each step. A write from other memory would wait
    /// for the device, and a step has up to a dozen writes.
    staging: Staging,
    pub(super) config: Config,
    pub(super) options: BatchOptions,
    pub(super) weights: Packed<View<u8>>,
    pub(super) chunked: Chunked,
    pub(super) head: BatchHead,
    /// The steps of few sequences.
    pub(super) lone: LoneSteps,
    /// The keys, one buffer per layer, `[pages, kv_heads, 64, head_dim]`.
    pub(super) k_cache: Vec<Buffer<f16>>,
    /// The values, with the shape of `k_cache`.
    pub(super) v_cache: Vec<Buffer<f16>>,
    /// The page table, `[sequences, max_pages]`.
    table: View<u32>,
    max_pages: u32,
    pub(super) freq: Buffer<f32>,
    /// The partial results of attention of single tokens: see `BatchAttention`.
    partials: Buffer<f32>,
    /// The tickets of attention of single tokens: see `BatchAttention`.
    ticket: Buffer<u32>,
    /// The attention kernel of single tokens.
    attention: BatchAttention,
    /// The instantiated graphs, by rows and kind.
    graphs: BTreeMap<(StepRows, GraphKind), GraphExec>,
    /// The adapters that rows can have.
    lora: Option<LoraPool>,
}

/// The rows of a decode step, and the kernels that process them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StepRows {
    /// This many rows, with the kernels of the pipeline: see `lone`.
    Lone(u32),
    /// The rows of a bucket, with the kernels of a batch.
    Bucket(u32),
    /// The rows of a bucket, of which some have adapters.
    Adapted(u32),
}

/// The adapters of the rows of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowAdapters {
    /// No row has an adapter.
    None,
    /// Some rows have adapters.
    Some,
}

/// The work of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GraphKind {
    /// This many decode steps.
    Steps(u32),
    /// The logits of a decode step, without the choice of tokens.
    Logits,
    /// One decode step whose rows may be consecutive positions of a sequence. Its kernels do not
    /// overlap, because attention would read keys before the rows of this step have written them.
    Drafts,
}

/// The input of a step.
#[derive(Debug, Clone)]
pub(super) struct StepInput {
    /// The state of each row.
    pub(super) states: Vec<StepState>,
    /// The number of rows at the beginning that are the only ones of their sequences, or that verify
    /// drafts.
    pub(super) singles: u32,
    /// The work items of attention, which cover the other rows.
    pub(super) items: Vec<Item>,
    /// The rows that go through the LM head.
    pub(super) selected: Vec<u32>,
    pub(super) splits: ColumnSplits,
}

impl StepInput {
    /// Returns a step without rows.
    pub(super) fn new(splits: ColumnSplits) -> StepInput {
        StepInput {
            states: vec![],
            singles: 0,
            items: vec![],
            selected: vec![],
            splits,
        }
    }
}

/// The sizes that determine the launches of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepSizes {
    tokens: u32,
    shape: PassShape,
    singles: u32,
    items: u32,
    selected: u32,
    head: HeadShape,
    /// Whether the selected rows are the first rows in their order, so that none is moved.
    in_order: bool,
    adapters: RowAdapters,
}

impl BatchDevice {
    /// Allocates everything but the weights, which must be on the device.
    pub(super) fn new(
        context: &Context,
        cores: TensorCores,
        outline: &Outline,
        weights: Packed<View<u8>>,
        embed: ResolvedEmbed,
        options: BatchOptions,
    ) -> Result<BatchDevice, Error> {
        let c = &outline.config;
        let sms = context.device().properties().multiprocessors;
        let caches = |name: &str| -> Result<Vec<Buffer<f16>>, Error> {
            let layers = c.layers.iter().enumerate();
            let cache = |(i, layer): (usize, &Layer)| {
                let len = page_len(layer) * options.pages() as usize;
                Ok(Buffer::uninit(context, len)?.labelled(&format!("{name}.{i}")))
            };
            layers.map(cache).collect()
        };
        let factors = outline
            .rope_factors
            .as_ref()
            .map(|factors| factors.of(options.ctx));
        let freq = c.ropes.iter().flat_map(|rope| rope.revolutions(factors));
        let freq: Vec<f32> = freq.flat_map(revolutions).collect();
        let max_pages = cache::pages(options.ctx);
        let mut chunked = Chunked::new(context, cores, outline, &weights, embed)?;
        let table = Buffer::zeroed(context, (options.sequences * max_pages) as usize)?
            .labelled("pages")
            .view();

        // The attention kernel decides how many partial results and tickets it needs.
        let attention = chunked.prepare_singles(context)?;
        let partials = partials_len(&attention, c, &options, sms);
        let tickets = (MAX_SEQUENCES * c.kv_heads() * attention.groups()) as usize;
        Ok(BatchDevice {
            stream: Stream::new(context)?,
            staging: Staging::new(context, STAGING_CHUNKS, STAGING_CHUNK_BYTES)?,
            head: BatchHead::new(context, cores, outline, &weights.head, &options)?,
            k_cache: caches("k_cache")?,
            v_cache: caches("v_cache")?,
            lone: LoneSteps::new(context, outline, &options, &table)?,
            table,
            max_pages,
            freq: Buffer::from_slice(context, &freq)?.labelled("freq"),
            partials: Buffer::uninit(context, partials)?.labelled("attention.partials"),
            ticket: Buffer::zeroed(context, tickets)?.labelled("attention.ticket"),
            attention,
            graphs: BTreeMap::new(),
            lora: None,
            config: c.clone(),
            options,
            weights,
            chunked,
        })
    }

    /// Copies pages in every layer.
    pub(super) fn copy_pages(&self, copies: &[PageCopy]) -> Result<(), Error> {
        let page = |cache: &Buffer<f16>, page: u32, len: usize| {
            cache.view_range(page as usize * len..(page as usize + 1) * len)
        };
        for PageCopy { from, to } in copies {
            for caches in [&self.k_cache, &self.v_cache] {
                for (cache, layer) in caches.iter().zip(&self.config.layers) {
                    let len = page_len(layer);
                    self.stream
                        .copy(&page(cache, *from, len), &page(cache, *to, len))?;
                }
            }
        }
        Ok(())
    }

    /// Writes rows of the page table.
    pub(super) fn write_pages(&mut self, rows: &[(u32, Vec<u32>)]) -> Result<(), Error> {
        for (row, pages) in rows.iter().filter(|(_, pages)| !pages.is_empty()) {
            let first = (row * self.max_pages) as usize;
            let to = self.table.view_range(first..first + pages.len());
            self.staging.write(&self.stream, &to, pages)?;
        }
        Ok(())
    }

    /// Writes the input of a step to the device.
    fn write(&mut self, input: &StepInput) -> Result<(), Error> {
        let w = &self.chunked.workspace;
        let states: Vec<u32> = input.states.iter().flat_map(|row| row.words()).collect();
        let to = w.state.view_range(0..states.len());
        self.staging.write(&self.stream, &to, &states)?;
        if !input.items.is_empty() {
            let items: Vec<u32> = input.items.iter().flat_map(|item| item.words()).collect();
            let to = w.items(input.items.len() as u32);
            self.staging.write(&self.stream, &to, &items)?;
        }

        if !input.selected.is_empty() {
            let to = self.head.selected.view_range(0..input.selected.len());
            self.staging.write(&self.stream, &to, &input.selected)?;
        }
        Ok(())
    }

    /// Launches a step of these rows kernel by kernel.
    pub(super) fn step(&mut self, input: &StepInput) -> Result<(), Error> {
        let sizes = self.logits(input)?;
        self.choose(sizes)
    }

    /// Launches a step kernel by kernel without the choice of tokens, and returns the sizes that
    /// the choice needs.
    pub(super) fn logits(&mut self, input: &StepInput) -> Result<StepSizes, Error> {
        let sizes = self.sizes(input);
        self.write(input)?;
        self.prepare(sizes)?;
        self.launch_logits(&mut &self.stream, sizes)?;
        Ok(sizes)
    }

    /// Launches a step of rows that are the only ones of their sequences as a graph.
    pub(super) fn step_graph(&mut self, states: Vec<StepState>) -> Result<StepSizes, Error> {
        let rows = self.write_rows(states)?;
        self.launch_graph(rows, 1)?;
        Ok(self.decode_sizes(rows))
    }

    /// Launches a step as a graph whose rows may be consecutive positions of a sequence. The kernels
    /// are those of a batch for any number of rows.
    pub(super) fn draft_graph(&mut self, states: Vec<StepState>) -> Result<StepSizes, Error> {
        let rows = self.write_batch_rows(states)?;
        self.launch_recorded(rows, GraphKind::Drafts)?;
        Ok(self.decode_sizes(rows))
    }

    /// Works like [`step_graph`](BatchDevice::step_graph), but without the choice of tokens.
    pub(super) fn logits_graph(&mut self, states: Vec<StepState>) -> Result<StepSizes, Error> {
        let rows = self.write_rows(states)?;
        self.launch_recorded(rows, GraphKind::Logits)?;
        Ok(self.decode_sizes(rows))
    }

    /// Queues the choice of tokens from the logits of the latest step, if it has any.
    pub(super) fn choose(&self, sizes: StepSizes) -> Result<(), Error> {
        Ok(self.queue_choice(&mut &self.stream, sizes)?)
    }

    /// Returns the sizes of a step of these rows.
    fn sizes(&self, input: &StepInput) -> StepSizes {
        let tokens = input.states.len() as u32;
        let selected = input.selected.len() as u32;
        StepSizes {
            tokens,
            shape: PassShape {
                bucket: self.options.bucket_of(tokens),
                splits: input.splits,
                overlap: false,
            },
            singles: input.singles,
            items: input.items.len() as u32,
            selected,
            head: HeadShape {
                bucket: self.options.bucket_of(selected),
                splits: input.splits,
            },
            in_order: false,
            adapters: row_adapters(&input.states),
        }
    }

    /// Queues the choice of tokens from the logits of the latest step, among the allowed ones.
    pub(super) fn choose_constrained(&self, sizes: StepSizes) -> Result<(), Error> {
        if sizes.selected == 0 {
            return Ok(());
        }
        let state = self.states(sizes);
        Ok(self
            .head
            .choose_constrained(&mut &self.stream, &state, sizes.selected)?)
    }

    /// Writes the states of a decode step and marks the other rows as done. Returns the rows with
    /// their kernels.
    pub(super) fn write_rows(&mut self, states: Vec<StepState>) -> Result<StepRows, Error> {
        // The kernels of the pipeline apply no adapters of single rows.
        if row_adapters(&states) == RowAdapters::Some {
            return self.write_batch_rows(states);
        }
        let Some(rows) = self.lone.rows(states.len() as u32) else {
            return self.write_batch_rows(states);
        };

        // These kernels also compute rows that are done, so each needs a sequence with tokens.
        let idle = states.first().map_or(StepState::IDLE, |first| StepState {
            done: true,
            ..*first
        });
        self.write_states(states, rows, idle)?;
        Ok(StepRows::Lone(rows))
    }

    /// Works like [`write_rows`](BatchDevice::write_rows), with the kernels of a batch for any number
    /// of rows.
    fn write_batch_rows(&mut self, states: Vec<StepState>) -> Result<StepRows, Error> {
        let adapters = row_adapters(&states);
        let bucket = self.write_bucket(states)?;
        Ok(match adapters {
            RowAdapters::None => StepRows::Bucket(bucket),
            RowAdapters::Some => StepRows::Adapted(bucket),
        })
    }

    /// Writes the states of a decode step with the kernels of a batch, and marks the other rows of
    /// the bucket as idle. Returns the bucket.
    pub(super) fn write_bucket(&mut self, states: Vec<StepState>) -> Result<u32, Error> {
        let bucket = self.options.bucket_of(states.len() as u32);
        self.write_states(states, bucket, StepState::IDLE)?;
        Ok(bucket)
    }

    /// Writes the states of a decode step as the first of `rows` rows. The others are `idle`.
    fn write_states(
        &mut self,
        mut states: Vec<StepState>,
        rows: u32,
        idle: StepState,
    ) -> Result<(), Error> {
        states.resize(rows as usize, idle);
        let selected = (0..rows).collect();
        self.write(&StepInput {
            states,
            selected,
            ..StepInput::new(self.options.splits(RowClass::Decode))
        })
    }

    /// Launches `steps` decode steps of these rows as one graph.
    pub(super) fn launch_graph(&mut self, rows: StepRows, steps: u32) -> Result<(), Error> {
        self.launch_recorded(rows, GraphKind::Steps(steps))
    }

    fn launch_recorded(&mut self, rows: StepRows, what: GraphKind) -> Result<(), Error> {
        self.build_graph(rows, what)?;
        let graph = self
            .graphs
            .get_mut(&(rows, what))
            .expect("it was inserted if it was missing");
        Ok(graph.launch(&self.stream)?)
    }

    /// Builds a graph, unless it exists.
    pub(super) fn build_graph(&mut self, rows: StepRows, what: GraphKind) -> Result<(), Error> {
        if !self.graphs.contains_key(&(rows, what)) {
            let graph = self.record(rows, what)?.instantiate()?;
            self.graphs.insert((rows, what), graph);
        }
        Ok(())
    }

    /// Returns the rows that decode steps of this many sequences compute, without adapters and, if
    /// any are loaded, with adapters.
    pub(super) fn all_step_rows(&self, sequences: u32) -> impl Iterator<Item = StepRows> {
        let bucket = self.options.bucket_of(sequences);
        let plain = match self.lone.rows(sequences) {
            Some(rows) => StepRows::Lone(rows),
            None => StepRows::Bucket(bucket),
        };
        std::iter::once(plain).chain(self.adapted_rows(bucket))
    }

    /// Returns the rows of steps with the kernels of a batch for this bucket, without adapters and,
    /// if any are loaded, with adapters.
    pub(super) fn all_batch_rows(&self, bucket: u32) -> impl Iterator<Item = StepRows> + use<> {
        std::iter::once(StepRows::Bucket(bucket)).chain(self.adapted_rows(bucket))
    }

    /// Returns the rows of steps with adapters, if any are loaded.
    fn adapted_rows(&self, bucket: u32) -> Option<StepRows> {
        self.lora.as_ref().map(|_| StepRows::Adapted(bucket))
    }

    /// Compiles the kernels of steps with prompts in this bucket, with any number of rows of the LM
    /// head that is in the same bucket.
    pub(super) fn compile_pass(&mut self, bucket: u32) -> Result<(), Error> {
        let splits = self.options.splits(RowClass::Prompt);
        let context = self.stream.context();
        let shape = PassShape {
            bucket,
            splits,
            overlap: false,
        };
        self.chunked.prepare(context, shape)?;
        Ok(self.head.prepare(context, HeadShape { bucket, splits })?)
    }

    /// Records one decode step with the kernels of a batch as a graph.
    pub(super) fn graph(&mut self, bucket: u32) -> Result<Graph, Error> {
        self.record(StepRows::Bucket(bucket), GraphKind::Steps(1))
    }

    fn record(&mut self, rows: StepRows, what: GraphKind) -> Result<Graph, Error> {
        if let StepRows::Lone(rows) = rows {
            return self.record_lone(rows, what);
        }

        let mut sizes = self.decode_sizes(rows);
        if what == GraphKind::Drafts {
            sizes.shape.overlap = false;
        }
        self.prepare(sizes)?;
        let context = self.stream.context();
        let mut recorder = if sizes.shape.overlap {
            Recorder::pipeline(context)?
        } else {
            Recorder::new(context)?
        };
        match what {
            GraphKind::Steps(steps) => {
                for _ in 0..steps {
                    self.launch(&mut recorder, sizes)?;
                }
            }
            GraphKind::Logits => self.launch_logits(&mut recorder, sizes)?,
            GraphKind::Drafts => self.launch(&mut recorder, sizes)?,
        }

        Ok(recorder.finish())
    }

    /// Returns the sizes of a decode step.
    fn decode_sizes(&self, rows: StepRows) -> StepSizes {
        let (bucket, adapters) = match rows {
            StepRows::Lone(bucket) | StepRows::Bucket(bucket) => (bucket, RowAdapters::None),
            StepRows::Adapted(bucket) => (bucket, RowAdapters::Some),
        };
        StepSizes {
            tokens: bucket,
            shape: self.pass_shape(bucket, adapters),
            adapters,
            singles: bucket,
            items: 0,
            selected: bucket,
            head: self.head_shape(bucket),
            in_order: true,
        }
    }

    /// Returns the parameters by which the kernels of a graph are selected.
    fn pass_shape(&self, bucket: u32, adapters: RowAdapters) -> PassShape {
        let overlap = match adapters {
            RowAdapters::None => self.chunked.overlaps(bucket),
            // The kernels of adapters do not wait for their predecessors inside.
            RowAdapters::Some => false,
        };
        PassShape {
            bucket,
            splits: self.options.splits(RowClass::Decode),
            overlap,
        }
    }

    /// Returns the shape of the LM head in a decode step.
    fn head_shape(&self, bucket: u32) -> HeadShape {
        HeadShape {
            bucket,
            splits: self.options.splits(RowClass::Decode),
        }
    }

    /// Returns the kernels of a step of a [graph](BatchDevice::graph), which must have been
    /// recorded. `attended` is the number of positions that each row attends to.
    pub(super) fn list(&self, bucket: u32, attended: &[u32]) -> Vec<PassNode> {
        let pass = self.chunked.list(
            self.pass_shape(bucket, RowAdapters::None),
            Attended::Each(attended),
        );
        pass.into_iter()
            .chain(
                self.head
                    .list(self.head_shape(bucket), attended.len() as u32),
            )
            .collect()
    }

    /// Compiles the kernels of a step.
    fn prepare(&mut self, sizes: StepSizes) -> Result<(), Error> {
        let context = self.stream.context();
        self.chunked.prepare(context, sizes.shape)?;
        if let (RowAdapters::Some, Some(pool)) = (sizes.adapters, &self.lora) {
            self.chunked.prepare_lora(context, pool, sizes.shape)?;
        }
        Ok(self.head.prepare(context, sizes.head)?)
    }

    /// Replaces the adapters that rows can have. No launch may be in flight.
    pub(super) fn set_adapters(&mut self, lora: Option<LoraPool>) {
        // These graphs contain the addresses of the old adapters.
        self.graphs.retain(|(rows, _), _| match rows {
            StepRows::Lone(_) | StepRows::Bucket(_) => true,
            StepRows::Adapted(_) => false,
        });
        self.lora = lora;
    }

    /// Queues a step.
    fn launch(&self, queue: &mut impl Queue, sizes: StepSizes) -> Result<(), Error> {
        self.launch_logits(queue, sizes)?;
        Ok(self.queue_choice(queue, sizes)?)
    }

    fn queue_choice(
        &self,
        queue: &mut impl Queue,
        sizes: StepSizes,
    ) -> Result<(), warpwright_driver::Error> {
        if sizes.selected == 0 {
            return Ok(());
        }
        self.head.choose(
            queue,
            &self.config,
            &self.options,
            &self.states(sizes),
            sizes.selected,
        )
    }

    /// Queues the logits of some rows of the latest pass, and the records of their most likely
    /// tokens if there are to be any. The logits overwrite all earlier ones.
    pub(super) fn score_rows(
        &mut self,
        rows: &[u32],
        splits: ColumnSplits,
        best: u32,
    ) -> Result<(), Error> {
        self.logits_of_rows(rows, splits)?;
        match &self.head.sampler {
            Some(sampler) if best > 0 => {
                let state = self.chunked.workspace.state.view();
                let rows = self.head.sampled(&state, rows.len() as u32);
                Ok(sampler.run(&mut &self.stream, rows)?)
            }
            _ => Ok(()),
        }
    }

    /// Queues the logits of some rows of the latest pass. They overwrite all earlier logits.
    pub(super) fn logits_of_rows(
        &mut self,
        rows: &[u32],
        splits: ColumnSplits,
    ) -> Result<(), Error> {
        let count = rows.len() as u32;
        let shape = HeadShape {
            bucket: self.options.bucket_of(count),
            splits,
        };
        let to = self.head.selected.view_range(0..rows.len());
        self.staging.write(&self.stream, &to, rows)?;
        self.head.prepare(self.stream.context(), shape)?;
        let w = &self.chunked.workspace;
        let selected = SelectedRows {
            x: &w.x,
            count,
            in_order: false,
            shape,
            scratch: &w.scratch,
        };
        Ok(self.head.logits_of(
            &mut &self.stream,
            &self.config,
            &self.weights.norm,
            selected,
        )?)
    }

    /// Returns the states of a step's rows.
    fn states(&self, sizes: StepSizes) -> View<u32> {
        self.chunked
            .workspace
            .state
            .view_range(0..sizes.tokens as usize * state::LEN)
    }

    /// Launches a pass of these rows without the LM head. Their sequences are rows of `table`,
    /// `[sequences, max_pages]`.
    pub(super) fn stream_pass(
        &mut self,
        input: &StepInput,
        table: &View<u32>,
        sequences: u32,
    ) -> Result<(), Error> {
        let sizes = self.sizes(input);
        self.write(input)?;
        self.prepare(sizes)?;
        self.launch_pass(&mut &self.stream, sizes, table, sequences)
    }

    /// Returns the residual stream of some rows of the latest pass.
    pub(super) fn stream_rows(&self, first: u32, count: u32) -> View<f32> {
        self.chunked.rows(first, count)
    }

    /// Returns the weights of the last norm.
    pub(super) fn last_norm(&self) -> Result<View<f32>, Error> {
        Ok(self.weights.norm.cast()?)
    }

    /// Queues the forward pass of a step. The sequences of its rows are rows of `table`.
    fn launch_pass(
        &self,
        queue: &mut impl Queue,
        sizes: StepSizes,
        table: &View<u32>,
        sequences: u32,
    ) -> Result<(), Error> {
        let c = &self.config;
        let sms = self.stream.context().device().properties().multiprocessors;
        let cache = PagedCache {
            k: &self.k_cache,
            v: &self.v_cache,
            pages: self.options.pages(),
            table,
            sequences,
            max_pages: self.max_pages,
            freq: &self.freq,
        };
        let units = self
            .attention
            .units(self.options.attention_bucket(sizes.singles), c.kv_heads());
        let singles = Singles {
            rows: sizes.singles,
            splits: self.attention.splits(units, self.options.ctx, sms),
            units,
            partials: &self.partials,
            ticket: &self.ticket,
        };
        let lora = match sizes.adapters {
            RowAdapters::None => None,
            RowAdapters::Some => Some(LoraPass {
                pool: self.lora.as_ref().ok_or(Error::NoAdapter)?,
                // Rows of a prompt have the same adapter, so a block reads its matrices once.
                tile: if sizes.items > 0 { 8 } else { 1 },
            }),
        };
        let w = &self.chunked.workspace;
        let input = PassInput {
            lora,
            tokens: sizes.tokens,
            shape: sizes.shape,
            wanted: WantedRows::All,
            singles: Some(singles),
            items: &w.items(sizes.items),
            cache,
        };
        Ok(self.chunked.run(queue, &self.weights, input)?)
    }

    /// Queues the forward pass and the LM head of a step.
    fn launch_logits(&self, queue: &mut impl Queue, sizes: StepSizes) -> Result<(), Error> {
        self.launch_pass(queue, sizes, &self.table, self.options.sequences)?;
        if sizes.selected == 0 {
            return Ok(());
        }

        let w = &self.chunked.workspace;
        let selected = SelectedRows {
            x: &w.x,
            count: sizes.selected,
            in_order: sizes.in_order,
            shape: sizes.head,
            scratch: &w.scratch,
        };
        Ok(self
            .head
            .logits_of(queue, &self.config, &self.weights.norm, selected)?)
    }
}

/// Returns whether any of these rows has an adapter.
fn row_adapters(states: &[StepState]) -> RowAdapters {
    if states.iter().any(|state| state.adapter.is_some()) {
        RowAdapters::Some
    } else {
        RowAdapters::None
    }
}

/// The number of writes of a step that need not wait for an earlier one.
const STAGING_CHUNKS: usize = 16;
/// The bytes of a chunk: the states of 2,048 tokens.
const STAGING_CHUNK_BYTES: usize = 64 << 10;

/// The buckets of steps with one token per sequence.
const BUCKETS: [u32; 7] = [8, 16, 32, 64, 128, 192, 256];

/// Returns the number of partial results of attention that any bucket needs.
fn partials_len(attention: &BatchAttention, c: &Config, options: &BatchOptions, sms: u32) -> usize {
    let of = |rows| {
        let splits = attention.splits(attention.units(rows, c.kv_heads()), options.ctx, sms);
        attention.partials_len(rows, c.heads(), splits)
    };
    BUCKETS
        .map(of)
        .into_iter()
        .max()
        .expect("the list of buckets is not empty")
}

/// Returns the number of key elements per page of a layer.
pub(super) fn page_len(layer: &Layer) -> usize {
    match &layer.mixer {
        Mixer::Attention(attention) => (attention.kv_len() * PAGE) as usize,
    }
}

/// Returns the bytes of the buffers of this module, except the caches.
pub(super) fn bytes(c: &Config, options: &BatchOptions, sms: u32) -> u64 {
    let attention = BatchAttention::new(
        c.head_dim(),
        c.most_of_attention(Attention::group),
        ColumnOrder { group: 8 },
    );
    let partials = 4 * partials_len(&attention, c, options, sms) as u64;
    let table = 4 * u64::from(options.sequences) * u64::from(cache::pages(options.ctx));
    partials + table + 4 * u64::from(MAX_SEQUENCES * c.heads())
}
