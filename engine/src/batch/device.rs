//! The device's part of a batch: buffers, what the host writes to them, and the launches of a step.

use std::collections::BTreeMap;

use warpwright_driver::{Buffer, Context, Graph, GraphExec, Queue, Recorder, Stream, View, f16};
use warpwright_kernels::batch::BatchAttention;
use warpwright_kernels::cache::{self, PAGE};
use warpwright_kernels::format::dequantize::ColumnOrder;
use warpwright_kernels::prompt::Item;
use warpwright_kernels::simple::rope::revolutions;
use warpwright_kernels::state::{self, StepState};

use super::head::{Head, Selected};
use super::options::{BatchOptions, MAX_SEQUENCES, bucket};
use super::sequences::PageCopy;
use crate::Error;
use crate::chunked::list::{Attended, PassNode};
use crate::chunked::products::{Chosen, Cores};
use crate::chunked::step::{Chunked, Given, PagedCache, Singles, Wanted};
use crate::model::config::Config;
use crate::model::outline::Outline;
use crate::pipeline::resolved::ResolvedEmbed;
use crate::weights::packed::Packed;

/// Weights, caches, kernels and graphs.
pub(super) struct Device {
    pub(super) stream: Stream,
    pub(super) config: Config,
    options: BatchOptions,
    weights: Packed<View<u8>>,
    chunked: Chunked,
    pub(super) head: Head,
    /// `[pages, kv_heads, 64, head_dim]`, one a layer
    k_cache: Vec<Buffer<f16>>,
    /// As `k_cache`
    v_cache: Vec<Buffer<f16>>,
    /// `[sequences, max_pages]`: the page table
    table: View<u32>,
    max_pages: u32,
    freq: Buffer<f32>,
    /// Partial results of attention of single tokens, and tickets: see `BatchAttention`
    partials: Buffer<f32>,
    ticket: Buffer<u32>,
    /// Attention of single tokens, of a layer.
    attention: BatchAttention,
    /// By bucket and what they do.
    graphs: BTreeMap<(u32, Recorded), GraphExec>,
}

/// What a graph does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Recorded {
    /// So many decode steps.
    Steps(u32),
    /// The logits of a decode step, and no choice.
    Logits,
}

/// What the host knows of a step.
#[derive(Debug, Clone, Default)]
pub(super) struct Input {
    /// Of each row: see `warpwright_kernels::state`.
    pub(super) states: Vec<StepState>,
    /// The first so many rows are the only ones of their sequences.
    pub(super) singles: u32,
    /// Of the other rows.
    pub(super) items: Vec<Item>,
    /// The rows that go through the head.
    pub(super) selected: Vec<u32>,
}

/// The numbers that the launches of a step depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    tokens: u32,
    chosen: Chosen,
    singles: u32,
    items: u32,
    selected: u32,
    selected_bucket: u32,
    /// Whether the selected rows are the first ones in their order.
    in_order: bool,
}

impl Device {
    /// Allocates everything but the weights, which are there.
    pub(super) fn new(
        context: &Context,
        cores: Cores,
        outline: &Outline,
        weights: Packed<View<u8>>,
        embed: ResolvedEmbed,
        options: BatchOptions,
    ) -> Result<Device, Error> {
        let c = &outline.config;
        let sms = context.device().properties().multiprocessors;
        let caches = |name: &str| -> Result<Vec<Buffer<f16>>, Error> {
            let len = page_len(c) * options.pages() as usize;
            (0..c.layers)
                .map(|i| Ok(Buffer::uninit(context, len)?.labelled(&format!("{name}.{i}"))))
                .collect()
        };
        let factors = outline
            .rope_factors
            .as_ref()
            .map(|factors| factors.of(options.ctx));
        let freq = c
            .ropes()
            .into_iter()
            .flat_map(|rope| rope.revolutions(factors));
        let freq: Vec<f32> = freq.flat_map(revolutions).collect();
        let max_pages = cache::pages(options.ctx);
        let mut chunked = Chunked::new(context, cores, outline, &weights, embed)?;
        let attention = chunked.prepare_singles(context)?;
        let partials = partials_len(&attention, c, &options, sms);
        let tickets = (MAX_SEQUENCES * c.kv_heads * attention.groups()) as usize;
        Ok(Device {
            stream: Stream::new(context)?,
            head: Head::new(context, cores, outline, &weights.head, &options)?,
            k_cache: caches("k_cache")?,
            v_cache: caches("v_cache")?,
            table: Buffer::zeroed(context, (options.sequences * max_pages) as usize)?
                .labelled("pages")
                .view(),
            max_pages,
            freq: Buffer::from_slice(context, &freq)?.labelled("freq"),
            partials: Buffer::uninit(context, partials)?.labelled("attention.partials"),
            ticket: Buffer::zeroed(context, tickets)?.labelled("attention.ticket"),
            attention,
            graphs: BTreeMap::new(),
            config: c.clone(),
            options,
            weights,
            chunked,
        })
    }

    /// Copies pages, all layers of each.
    pub(super) fn copy_pages(&self, copies: &[PageCopy]) -> Result<(), Error> {
        let len = page_len(&self.config);
        let page = |cache: &Buffer<f16>, page: u32| {
            cache.view_range(page as usize * len..(page as usize + 1) * len)
        };
        for PageCopy { from, to } in copies {
            for cache in self.k_cache.iter().chain(&self.v_cache) {
                self.stream.copy(&page(cache, *from), &page(cache, *to))?;
            }
        }
        Ok(())
    }

    /// Writes rows of the page table.
    pub(super) fn write_pages(&self, rows: &[(u32, Vec<u32>)]) -> Result<(), Error> {
        for (row, pages) in rows.iter().filter(|(_, pages)| !pages.is_empty()) {
            let first = (row * self.max_pages) as usize;
            self.stream
                .write(&self.table.view_range(first..first + pages.len()), pages)?;
        }
        Ok(())
    }

    fn write(&self, input: &Input) -> Result<(), Error> {
        let w = &self.chunked.workspace;
        let states: Vec<u32> = input.states.iter().flat_map(|row| row.words()).collect();
        self.stream
            .write(&w.state.view_range(0..states.len()), &states)?;
        if !input.items.is_empty() {
            let items: Vec<u32> = input.items.iter().flat_map(|item| item.words()).collect();
            self.stream
                .write(&w.items(input.items.len() as u32), &items)?;
        }
        let selected = self.head.selected.view_range(0..input.selected.len());
        Ok(self.stream.write(&selected, &input.selected)?)
    }

    /// One step of these rows, launched kernel by kernel.
    pub(super) fn step(&mut self, input: &Input) -> Result<(), Error> {
        let sizes = self.sizes(input);
        self.write(input)?;
        self.prepare(sizes)?;
        self.launch(&mut &self.stream, sizes)
    }

    fn sizes(&self, input: &Input) -> Sizes {
        let (tokens, selected) = (input.states.len() as u32, input.selected.len() as u32);
        Sizes {
            tokens,
            chosen: Chosen {
                bucket: self.bucket(tokens),
                overlap: false,
            },
            singles: input.singles,
            items: input.items.len() as u32,
            selected,
            selected_bucket: self.bucket(selected),
            in_order: false,
        }
    }

    /// The same without the choice of tokens: as a graph, if each row is the only one of its sequence. Gives what the
    /// choice is to be told.
    pub(super) fn step_logits(&mut self, input: &Input) -> Result<Sizes, Error> {
        if input.items.is_empty() {
            let bucket = self.write_rows(input.states.clone())?;
            self.launch_recorded(bucket, Recorded::Logits)?;
            return Ok(self.decode_sizes(bucket));
        }
        let sizes = self.sizes(input);
        self.write(input)?;
        self.prepare(sizes)?;
        self.launch_logits(&mut &self.stream, sizes)?;
        Ok(sizes)
    }

    /// Chooses tokens, of those that are allowed, by the logits of the latest step.
    pub(super) fn choose_within(&self, sizes: Sizes) -> Result<(), Error> {
        let state = self.states(sizes);
        Ok(self
            .head
            .choose_within(&mut &self.stream, &state, sizes.selected)?)
    }

    /// The bucket of so many tokens.
    fn bucket(&self, tokens: u32) -> u32 {
        bucket(tokens).max(self.options.bucket.unwrap_or(0))
    }

    /// Writes what the rows of decode steps begin with, and leaves the other rows of their bucket without work. Gives the
    /// bucket.
    pub(super) fn write_rows(&self, mut states: Vec<StepState>) -> Result<u32, Error> {
        let bucket = self.bucket(states.len() as u32);
        states.resize(bucket as usize, StepState::IDLE);
        let selected = (0..bucket).collect();
        self.write(&Input {
            states,
            selected,
            ..Input::default()
        })?;
        Ok(bucket)
    }

    /// Launches so many decode steps of the rows of a bucket as a graph.
    pub(super) fn launch_graph(&mut self, bucket: u32, steps: u32) -> Result<(), Error> {
        self.launch_recorded(bucket, Recorded::Steps(steps))
    }

    fn launch_recorded(&mut self, bucket: u32, what: Recorded) -> Result<(), Error> {
        if !self.graphs.contains_key(&(bucket, what)) {
            let graph = self.record(bucket, what)?.instantiate()?;
            self.graphs.insert((bucket, what), graph);
        }
        let graph = self
            .graphs
            .get_mut(&(bucket, what))
            .expect("it was just made");
        Ok(graph.launch(&self.stream)?)
    }

    /// The graph of a decode step.
    pub(super) fn graph(&mut self, bucket: u32) -> Result<Graph, Error> {
        self.record(bucket, Recorded::Steps(1))
    }

    fn record(&mut self, bucket: u32, what: Recorded) -> Result<Graph, Error> {
        let sizes = self.decode_sizes(bucket);
        self.prepare(sizes)?;
        let context = self.stream.context();
        let mut recorder = if sizes.chosen.overlap {
            Recorder::pipeline(context)?
        } else {
            Recorder::new(context)?
        };
        match what {
            Recorded::Steps(steps) => {
                (0..steps).try_for_each(|_| self.launch(&mut recorder, sizes))?;
            }
            Recorded::Logits => self.launch_logits(&mut recorder, sizes)?,
        }
        Ok(recorder.finish())
    }

    /// Those of a decode step.
    fn decode_sizes(&self, bucket: u32) -> Sizes {
        Sizes {
            tokens: bucket,
            chosen: self.chosen(bucket),
            singles: bucket,
            items: 0,
            selected: bucket,
            selected_bucket: bucket,
            in_order: true,
        }
    }

    /// How the kernels of a graph are chosen.
    fn chosen(&self, bucket: u32) -> Chosen {
        Chosen {
            bucket,
            overlap: self.chunked.overlaps(bucket),
        }
    }

    /// The kernels of a step of a [graph](Device::graph) that has been made, whose rows attend so many positions.
    pub(super) fn list(&self, bucket: u32, attended: &[u32]) -> Vec<PassNode> {
        let pass = self
            .chunked
            .list(self.chosen(bucket), Attended::Each(attended));
        pass.into_iter()
            .chain(self.head.list(bucket, attended.len() as u32))
            .collect()
    }

    fn prepare(&mut self, sizes: Sizes) -> Result<(), Error> {
        let context = self.stream.context();
        self.chunked.prepare(context, sizes.chosen)?;
        Ok(self.head.prepare(context, sizes.selected_bucket)?)
    }

    fn launch(&self, queue: &mut impl Queue, sizes: Sizes) -> Result<(), Error> {
        self.launch_logits(queue, sizes)?;
        Ok(self.head.choose(
            queue,
            &self.config,
            &self.options,
            &self.states(sizes),
            sizes.selected,
        )?)
    }

    /// What the rows of a step begin with.
    fn states(&self, sizes: Sizes) -> View<u32> {
        self.chunked
            .workspace
            .state
            .view_range(0..sizes.tokens as usize * state::LEN)
    }

    fn launch_logits(&self, queue: &mut impl Queue, sizes: Sizes) -> Result<(), Error> {
        let (c, sms) = (
            &self.config,
            self.stream.context().device().properties().multiprocessors,
        );
        let cache = PagedCache {
            k: &self.k_cache,
            v: &self.v_cache,
            pages: self.options.pages(),
            table: &self.table,
            sequences: self.options.sequences,
            max_pages: self.max_pages,
            freq: &self.freq,
        };
        let units = self.attention.units(self.bucket(sizes.singles), c.kv_heads);
        let singles = Singles {
            rows: sizes.singles,
            splits: self.attention.splits(units, self.options.ctx, sms),
            units,
            partials: &self.partials,
            ticket: &self.ticket,
        };
        let Sizes {
            tokens,
            chosen,
            items,
            selected,
            selected_bucket,
            in_order,
            ..
        } = sizes;
        let w = &self.chunked.workspace;
        let (wanted, singles, items) = (Wanted::All, Some(singles), &w.items(items));
        let given = Given {
            tokens,
            chosen,
            wanted,
            singles,
            items,
            cache,
        };
        self.chunked.run(queue, &self.weights, given)?;
        let selected = Selected {
            x: &w.x,
            count: selected,
            in_order,
            bucket: selected_bucket,
            scratch: &w.scratch,
        };
        Ok(self
            .head
            .logits_of(queue, c, &self.weights.norm, selected)?)
    }
}

/// Buckets of rows of one token each.
const BUCKETS: [u32; 6] = [8, 16, 32, 64, 128, 256];

/// The length of the partial results of attention, for any bucket.
fn partials_len(attention: &BatchAttention, c: &Config, options: &BatchOptions, sms: u32) -> usize {
    let of = |rows| {
        let splits = attention.splits(attention.units(rows, c.kv_heads), options.ctx, sms);
        attention.partials_len(rows, c.heads, splits)
    };
    BUCKETS
        .map(of)
        .into_iter()
        .max()
        .expect("there are buckets")
}

/// Numbers of a page of a layer's keys.
fn page_len(c: &Config) -> usize {
    (c.kv_len() * PAGE) as usize
}

/// Bytes of the buffers here but for the caches.
pub(super) fn bytes(c: &Config, options: &BatchOptions, sms: u32) -> u64 {
    let attention = BatchAttention::new(c.head_dim, c.heads / c.kv_heads, ColumnOrder { group: 8 });
    let partials = 4 * partials_len(&attention, c, options, sms) as u64;
    let table = 4 * u64::from(options.sequences) * u64::from(cache::pages(options.ctx));
    partials + table + 4 * u64::from(MAX_SEQUENCES * c.heads)
}
