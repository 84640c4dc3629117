//! The decoder: a model on a device, ready to generate tokens.
//!
//! A launch is a graph of one or several steps. Token, position and the done flag are state in device memory, so the
//! host sends nothing. It reads a launch's tokens from pinned memory after the launch's event, while the next launch
//! already runs. After the end of a text, steps change nothing: at most the rest of one launch and the next launch
//! are wasted.
//!
//! The pipeline prefills several tokens of a prompt per step and reads the weights once for all of them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use warpwright_driver::{
    CaptureMode, Context, Graph, GraphExec, Queue, Recorder, Stream, View, Work, capture,
};

use crate::Error;
use crate::Loading;
use crate::Model;
use crate::buffers::Buffers;
use crate::chunked::list::PassNode;
use crate::chunked::prompt::PromptChunks;
use crate::chunked::step::Wanted;
use crate::decode::in_flight::InFlight;
use crate::decode::memory;
use crate::decode::options::{Launch, Options};
use crate::decode::planned::{
    check_context, check_drafts, chunks, planned, preferred, resolve, size,
};
use crate::decode::row_kernels::RowKernels;
use crate::decode::sequence::Sequence;
use crate::model::config::Config;
use crate::model::outline::Outline;
use crate::pipeline::adapter::LoadedAdapter;
use crate::pipeline::kernels::Pipeline;
use crate::pipeline::path::Path;
use crate::pipeline::resolved::ResolvedStep;
use crate::pipeline::step::PipelineStep;
use crate::pipeline::workspace::Workspace;
use crate::simple::kernels::Kernels;
use crate::simple::products::Products;
use crate::simple::step as forward;
use crate::step::StepKind;
use crate::weights::info;
use crate::weights::packed::{Packed, packed};
use crate::weights::random::Pools;
use crate::weights::stored as weights;
use crate::weights::stored::Job;
use crate::weights::upload;

/// A model on a device.
pub struct Decoder {
    pub(crate) machine: Machine,
    pub(crate) stream: Stream,
    pub(crate) in_flight: InFlight,
    /// The tokens that are taken in.
    pub(crate) sequence: Sequence,
    steps: Steps,
    path: Path,
    loading: Loading,
    /// Best log-probabilities of each token.
    pub(crate) logprobs: u32,
    pub(crate) row_kernels: RowKernels,
}

/// Everything a step needs.
pub(crate) struct Machine {
    pub(crate) config: Config,
    pub(crate) buffers: Buffers,
    pass: Pass,
}

/// The forward pass, with its kernels and weights.
enum Pass {
    Simple {
        kernels: Box<Kernels>,
        products: Box<Products>,
    },
    Pipeline {
        weights: Packed<View<u8>>,
        /// Of a model that has one.
        adapter: Option<LoadedAdapter>,
        /// For steps of one token.
        single: Box<LoadedStep>,
        /// For steps of several tokens.
        batched: Option<Box<LoadedStep>>,
        /// For drafts, the fewest tokens first.
        verifying: Vec<LoadedStep>,
        /// For chunks of a prompt.
        chunked: Option<Box<PromptChunks>>,
    },
}

/// The kernels of a step of the pipeline, and their workspace.
struct LoadedStep {
    pipeline: Pipeline,
    workspace: Workspace,
}

enum Steps {
    Graph(Box<Graphs>),
    /// The number of kernels that the latest step of each kind launched.
    Eager(HashMap<StepKind, usize>),
}

struct Graphs {
    /// One graph per kind of step.
    steps: HashMap<StepKind, Recorded>,
    /// A graph of several decode steps, and their number.
    many: Option<(u32, Recorded)>,
}

impl Graphs {
    /// The graph of a kind of step that was recorded.
    fn step(&mut self, kind: StepKind) -> &mut Recorded {
        self.steps
            .get_mut(&kind)
            .expect("every kind of step of this decoder was recorded")
    }
}

struct Recorded {
    nodes: usize,
    exec: GraphExec,
}

impl Decoder {
    /// Loads the model and prepares its steps. `progress` is called with the bytes of weights copied so far, from
    /// other threads.
    ///
    /// # Errors
    /// A context that exceeds the model or the device's memory, and driver errors.
    pub fn new(
        context: &Context,
        model: &Model,
        options: Options,
        progress: impl FnMut(u64) + Send,
    ) -> Result<Decoder, Error> {
        let (start, outline) = (Instant::now(), &model.outline);
        Decoder::check(context, outline, options)?;
        let (mut decoder, end) = upload::with_uploader(context, model, progress, |jobs| {
            Decoder::make(context, outline, options, start, jobs.sink())
        })?;
        decoder.loading.weights = end - start;
        decoder.prepare_chunks(outline, options)?;
        decoder.loading.graphs = start.elapsed();
        Ok(decoder)
    }

    /// The same for a model without a file: its weights are random, its texts nonsense.
    ///
    /// # Errors
    /// As [`new`](Decoder::new).
    pub fn random(
        context: &Context,
        outline: &Outline,
        options: Options,
    ) -> Result<Decoder, Error> {
        let start = Instant::now();
        Decoder::check(context, outline, options)?;
        let mut pools = Pools::of(context, outline)?;
        let mut decoder = Decoder::make(context, outline, options, start, |job| pools.write(&job))?;
        pools.finish()?;
        decoder.loading.weights = start.elapsed();
        decoder.prepare_chunks(outline, options)?;
        decoder.loading.graphs = start.elapsed();
        Ok(decoder)
    }

    /// Allocates memory, requests the weights and prepares the steps. It does not wait for the weights.
    fn make<'a>(
        context: &Context,
        outline: &'a Outline,
        options: Options,
        start: Instant,
        request: impl FnMut(Job<'a>) -> Result<(), Error>,
    ) -> Result<Decoder, Error> {
        let resolved = preferred(context, outline, options);
        let path = Path::from(&resolved);
        let pass = match resolved {
            Ok(resolved) => {
                let weights = packed(outline).load(context, request)?;
                let adapter = LoadedAdapter::load(context, outline)?;
                let single = LoadedStep::new(context, resolved.single, None, options.ctx)?;
                let batched = resolved
                    .batched
                    .map(|step| LoadedStep::new(context, step, None, options.ctx));
                Pass::Pipeline {
                    weights,
                    adapter,
                    single: single.into(),
                    batched: batched.transpose()?.map(Box::new),
                    verifying: LoadedStep::each(context, resolved.verifying, options.ctx)?,
                    chunked: None,
                }
            }
            Err(_) => {
                let products =
                    Products::load(context, outline, &weights::load(context, outline, request)?)?;
                let kernels = Box::new(Kernels::load(context, outline)?);
                Pass::Simple {
                    kernels,
                    products: products.into(),
                }
            }
        };
        let (bytes, kernels) = (info::weight_bytes(outline), start.elapsed());
        let loading = Loading {
            bytes,
            weights: Duration::ZERO,
            kernels,
            graphs: kernels,
        };
        let mut decoder = Decoder::assemble(context, outline, pass, path, loading, options)?;
        decoder.loading.graphs = start.elapsed();
        Ok(decoder)
    }

    /// The same weights under other options; `outline` is that of the model.
    ///
    /// # Errors
    /// As [`new`](Decoder::new).
    pub fn with_options(self, outline: &Outline, options: Options) -> Result<Decoder, Error> {
        check_context(outline, options.ctx)?;
        options.choice.check()?;
        check_drafts(options, || self.path.clone())?;
        let Decoder {
            machine: Machine { pass, buffers, .. },
            stream,
            steps,
            path,
            loading,
            ..
        } = self;
        let context = stream.context().clone();
        // The device may not have enough memory for both, and the stream keeps its last work alive.
        drop((buffers, steps, stream));
        let pass = pass.with_options(&context, outline, options)?;
        let mut decoder = Decoder::assemble(&context, outline, pass, path, loading, options)?;
        decoder.prepare_chunks(outline, options)?;
        Ok(decoder)
    }

    /// Whether the model has the context and the device the memory; nothing is allocated.
    ///
    /// # Errors
    /// What is needed and what there is.
    pub fn check(context: &Context, outline: &Outline, options: Options) -> Result<(), Error> {
        memory::check(context, planned(context, outline, options)?, None)
    }

    /// The same for a model that verifies what another one, on the same device, drafts: whether there is memory for both.
    ///
    /// # Errors
    /// As [`check`](Decoder::check).
    pub fn check_with_draft(
        context: &Context,
        [(outline, options), (draft, draft_options)]: [(&Outline, Options); 2],
    ) -> Result<(), Error> {
        let model = planned(context, outline, options)?;
        memory::check(
            context,
            model,
            Some(planned(context, draft, draft_options)?),
        )
    }

    fn assemble(
        context: &Context,
        outline: &Outline,
        pass: Pass,
        path: Path,
        loading: Loading,
        options: Options,
    ) -> Result<Decoder, Error> {
        let overlap = path == Path::Overlapped;
        let buffers = Buffers::new(context, outline, options, overlap)?;
        let machine = Machine {
            config: outline.config.clone(),
            buffers,
            pass,
        };
        let steps = match options.launch {
            Launch::Eager => Steps::Eager(HashMap::new()),
            launch => Steps::graph(
                &machine.kinds(),
                options.tokens_per_launch,
                |kind, steps| machine.graph(context, launch, kind, steps),
            )?,
        };
        let (stream, in_flight) = (Stream::new(context)?, InFlight::new(context)?);
        let sequence = Sequence::default();
        let row_kernels = RowKernels::default();
        Ok(Decoder {
            machine,
            stream,
            in_flight,
            sequence,
            steps,
            path,
            loading,
            logprobs: 0,
            row_kernels,
        })
    }

    /// Which kernels decode.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How long it took to load the weights and to prepare the steps, when the decoder was new.
    pub fn loading(&self) -> &Loading {
        &self.loading
    }

    /// A step of the pipeline.
    pub(crate) fn pipeline_step(&self) -> Result<PipelineStep<'_>, Error> {
        let Machine { pass, buffers, .. } = &self.machine;
        match pass {
            Pass::Pipeline {
                single,
                weights,
                adapter,
                ..
            } => Ok(single.step(weights, buffers, adapter)),
            Pass::Simple { .. } => Err(Error::NoPipeline {
                path: self.path.clone(),
            }),
        }
    }

    /// Prepares the prefill of chunks, if the options ask for it and there are kernels. The weights are there.
    fn prepare_chunks(&mut self, outline: &Outline, options: Options) -> Result<(), Error> {
        let context = self.stream.context();
        let Pass::Pipeline {
            weights,
            single,
            chunked,
            ..
        } = &mut self.machine.pass
        else {
            return Ok(());
        };
        if let Some((cores, size)) = chunks(context, outline, options).filter(|_| chunked.is_none())
        {
            let embed = single.pipeline.resolved.embed;
            *chunked = Some(Box::new(PromptChunks::new(
                context, cores, outline, weights, embed, size,
            )?));
        }
        Ok(())
    }

    /// Tokens of a prompt of `tokens` that are prefilled at once, at most: a chunk, if there are kernels for that, the
    /// options ask for it, and the prompt is long enough.
    pub fn at_once(&self, tokens: u32) -> u32 {
        self.next_chunk(tokens)
            .unwrap_or_else(|| self.prefill_batch())
    }

    /// Tokens of the next chunk of a prompt of which `left` tokens are left; `None` if there is none.
    pub(crate) fn next_chunk(&self, left: u32) -> Option<u32> {
        match &self.machine.pass {
            Pass::Pipeline {
                chunked: Some(chunked),
                ..
            } => chunked.next(left),
            _ => None,
        }
    }

    /// Tokens of a prompt that one step of the pipeline prefills.
    pub fn prefill_batch(&self) -> u32 {
        self.machine
            .batched()
            .map_or(1, |step| step.pipeline.resolved.batch)
    }

    /// The number of kernels of a step: the graph's nodes, or the launches of the latest eager step of this kind; 0
    /// if there is none.
    pub fn launches(&self, kind: StepKind) -> usize {
        match &self.steps {
            Steps::Graph(graphs) => graphs.steps.get(&kind).map_or(0, |graph| graph.nodes),
            Steps::Eager(launched) => launched.get(&kind).copied().unwrap_or(0),
        }
    }

    /// The graph of a step in Graphviz's language.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn dot(&self, kind: StepKind) -> Result<String, Error> {
        Ok(self
            .machine
            .graph(self.stream.context(), Launch::Graph, kind, 1)?
            .dot())
    }

    /// Launches a step.
    pub(crate) fn launch(&mut self, kind: StepKind) -> Result<(), Error> {
        match &mut self.steps {
            Steps::Graph(graphs) => graphs.step(kind).exec.launch(&self.stream)?,
            Steps::Eager(launched) => {
                launched.insert(kind, count(&self.stream, &self.machine, kind)?);
            }
        }
        Ok(())
    }

    /// Launches up to `limit` decode steps; returns how many.
    pub(crate) fn launch_tokens(&mut self, limit: u32) -> Result<u32, Error> {
        let Steps::Graph(graphs) = &mut self.steps else {
            return self.launch(StepKind::Decode).map(|()| 1);
        };
        let (tokens, graph) = match &mut graphs.many {
            Some((tokens, graph)) if *tokens <= limit => (*tokens, graph),
            _ => (1, graphs.step(StepKind::Decode)),
        };
        graph.exec.launch(&self.stream)?;
        Ok(tokens)
    }
}

impl Pass {
    /// The same weights under other options.
    fn with_options(
        self,
        context: &Context,
        outline: &Outline,
        options: Options,
    ) -> Result<Pass, Error> {
        let Pass::Pipeline {
            weights,
            adapter,
            single,
            batched,
            verifying,
            chunked,
        } = self
        else {
            return Ok(self);
        };
        let resolved = resolve(context, outline, options).map_err(|problem| Error::Tuning {
            text: options.tuning.to_string(),
            problem: problem.to_string(),
        })?;
        let chunked = chunked
            .zip(size(options))
            .map(|(chunked, size)| chunked.with_size(context, size));
        let chunked = chunked.transpose()?;
        // The workspaces go before there are new ones.
        drop(verifying);
        let single = single.pipeline;
        let batched = batched.map(|step| step.pipeline);
        let single = LoadedStep::new(context, resolved.single, Some(single), options.ctx)?;
        let batched = resolved
            .batched
            .map(|step| LoadedStep::new(context, step, batched, options.ctx));
        Ok(Pass::Pipeline {
            weights,
            adapter,
            single: single.into(),
            batched: batched.transpose()?.map(Box::new),
            verifying: LoadedStep::each(context, resolved.verifying, options.ctx)?,
            chunked: chunked.map(Box::new),
        })
    }
}

impl LoadedStep {
    /// Compiles the kernels, unless there are the same already.
    fn new(
        context: &Context,
        resolved: ResolvedStep,
        old: Option<Pipeline>,
        ctx: u32,
    ) -> Result<LoadedStep, Error> {
        let workspace = Workspace::new(context, &resolved, ctx)?;
        let pipeline = match old {
            Some(old) if old.resolved == resolved => old,
            _ => Pipeline::load(context, resolved)?,
        };
        Ok(LoadedStep {
            pipeline,
            workspace,
        })
    }

    /// The same for several kinds of steps.
    fn each(
        context: &Context,
        steps: Vec<ResolvedStep>,
        ctx: u32,
    ) -> Result<Vec<LoadedStep>, Error> {
        steps
            .into_iter()
            .map(|step| LoadedStep::new(context, step, None, ctx))
            .collect()
    }

    fn step<'a>(
        &'a self,
        weights: &'a Packed<View<u8>>,
        buffers: &'a Buffers,
        adapter: &'a Option<LoadedAdapter>,
    ) -> PipelineStep<'a> {
        PipelineStep::new(
            &self.pipeline,
            weights,
            buffers,
            &self.workspace,
            adapter.as_ref(),
        )
    }
}

impl Machine {
    /// One step.
    fn run(&self, queue: &mut impl Queue, kind: StepKind) -> Result<(), warpwright_driver::Error> {
        let Machine {
            config,
            buffers,
            pass,
        } = self;
        match pass {
            _ if kind == StepKind::Choose => buffers.choose(queue),
            Pass::Simple { kernels, products } => forward::SimpleStep {
                config,
                kernels,
                products,
                buffers,
            }
            .run(queue, kind),
            Pass::Pipeline {
                single,
                weights,
                adapter,
                ..
            } => match kind {
                StepKind::LogitsBatch | StepKind::PrefillBatch => self
                    .batched()
                    .expect("only a batched pipeline has such steps")
                    .run(queue, kind),
                StepKind::Verify(tokens) => self
                    .verifying(tokens)
                    .expect("only what verifies has such steps")
                    .run(queue, kind),
                _ => single.step(weights, buffers, adapter).run(queue, kind),
            },
        }
    }

    /// Prefills a chunk, from the state's position on, of a prompt of which `left` tokens are left; gives how many tokens
    /// it has, 0 if there are no kernels for it.
    pub(crate) fn chunk(
        &mut self,
        queue: &mut impl Queue,
        left: u32,
        wanted: Wanted,
    ) -> Result<u32, Error> {
        let Pass::Pipeline {
            weights,
            chunked: Some(chunked),
            ..
        } = &mut self.pass
        else {
            return Ok(0);
        };
        let Some(tokens) = chunked.next(left) else {
            return Ok(0);
        };
        chunked.run(queue, weights, &self.buffers, tokens, wanted)?;
        Ok(tokens)
    }

    /// The kernels of the first chunk of a prompt, once it has been recorded.
    pub(crate) fn list_chunk(&self, tokens: u32) -> Vec<PassNode> {
        match &self.pass {
            Pass::Pipeline {
                chunked: Some(chunked),
                ..
            } => chunked.list(tokens),
            _ => vec![],
        }
    }

    /// Makes the token after the last one of a chunk of `tokens`, with its logits; or these alone, by the kind of step.
    pub(crate) fn end_chunk(
        &self,
        queue: &mut impl Queue,
        tokens: u32,
        kind: StepKind,
    ) -> Result<(), Error> {
        if let Pass::Pipeline {
            weights,
            adapter,
            single,
            chunked: Some(chunked),
            ..
        } = &self.pass
        {
            let last = chunked.rows(tokens - 1, 1);
            single
                .step(weights, &self.buffers, adapter)
                .end(queue, &last, kind)?;
        }
        Ok(())
    }

    /// Computes the logits of tokens of the latest chunk, from `first` on, a batch of them; gives where they are. `None`
    /// if there was no chunk, or no batch.
    pub(crate) fn chunk_logits(
        &self,
        queue: &mut impl Queue,
        first: u32,
    ) -> Result<Option<View<f32>>, Error> {
        let (
            Pass::Pipeline {
                chunked: Some(chunked),
                ..
            },
            Some(step),
        ) = (&self.pass, self.batched())
        else {
            return Ok(None);
        };
        let rows = chunked.rows(first, step.pipeline.resolved.batch);
        step.end(queue, &rows, StepKind::LogitsBatch)?;
        Ok(Some(step.logits()))
    }

    /// The residual stream of `count` tokens of the latest chunk, from `first` on; none without chunks.
    pub(crate) fn chunk_stream(&self, first: u32, count: u32) -> Option<View<f32>> {
        match &self.pass {
            Pass::Pipeline {
                chunked: Some(chunked),
                ..
            } => Some(chunked.rows(first, count)),
            _ => None,
        }
    }

    /// `[hidden]`: the weights of the last norm.
    pub(crate) fn norm(&self) -> Result<View<f32>, Error> {
        match &self.pass {
            Pass::Simple { products, .. } => Ok(products.norm.clone()),
            Pass::Pipeline { weights, .. } => Ok(weights.norm.cast()?),
        }
    }

    /// A step of the batched pipeline, if there is one.
    pub(crate) fn batched(&self) -> Option<PipelineStep<'_>> {
        let Pass::Pipeline {
            weights,
            adapter,
            batched: Some(batched),
            ..
        } = &self.pass
        else {
            return None;
        };
        Some(batched.step(weights, &self.buffers, adapter))
    }

    /// The step that verifies so many tokens, if there is one.
    pub(crate) fn verifying(&self, tokens: u32) -> Option<PipelineStep<'_>> {
        let Pass::Pipeline {
            weights,
            adapter,
            verifying,
            ..
        } = &self.pass
        else {
            return None;
        };
        let step = verifying
            .iter()
            .find(|step| step.pipeline.resolved.batch == tokens)?;
        Some(step.step(weights, &self.buffers, adapter))
    }

    /// The kinds of steps that the pass supports, and the buffers have room for.
    fn kinds(&self) -> Vec<StepKind> {
        let verify = [2, 4, 8]
            .into_iter()
            .filter(|tokens| self.verifying(*tokens).is_some());
        let batched = self
            .batched()
            .map(|_| [StepKind::PrefillBatch, StepKind::LogitsBatch]);
        let halves = self
            .buffers
            .allowed
            .as_ref()
            .map(|_| [StepKind::Logits, StepKind::Choose]);
        let more = batched.into_iter().chain(halves).flatten();
        let one = [StepKind::Decode, StepKind::Prefill].into_iter();
        one.chain(more)
            .chain(verify.map(StepKind::Verify))
            .collect()
    }

    /// This many steps as a graph.
    fn graph(
        &self,
        context: &Context,
        launch: Launch,
        kind: StepKind,
        steps: u32,
    ) -> Result<Graph, Error> {
        let mut recorder = match (launch, &self.pass) {
            (Launch::Capture, _) => return self.captured(context, kind, steps),
            (Launch::Graph, Pass::Pipeline { .. }) => Recorder::pipeline(context)?,
            _ => Recorder::new(context)?,
        };
        for _ in 0..steps {
            // Attention prefetches older rows of the cache before it waits: rows that previous steps wrote.
            recorder.full_edge();
            self.run(&mut recorder, kind)?;
        }
        Ok(recorder.finish())
    }

    /// This many steps as a graph that the driver captured from a stream.
    fn captured(&self, context: &Context, kind: StepKind, steps: u32) -> Result<Graph, Error> {
        let stream = Stream::new(context)?;
        Ok(capture(&stream, CaptureMode::ThreadLocal, |queue| {
            (0..steps).try_for_each(|_| self.run(queue, kind))
        })?)
    }
}

impl Steps {
    fn graph(
        kinds: &[StepKind],
        tokens: u32,
        of: impl Fn(StepKind, u32) -> Result<Graph, Error>,
    ) -> Result<Steps, Error> {
        let recorded = |kind, steps| Recorded::new(&of(kind, steps)?);
        let many = if tokens > 1 {
            Some((tokens, recorded(StepKind::Decode, tokens)?))
        } else {
            None
        };
        let steps = kinds.iter().map(|&kind| Ok((kind, recorded(kind, 1)?)));
        Ok(Steps::Graph(Box::new(Graphs {
            steps: steps.collect::<Result<_, Error>>()?,
            many,
        })))
    }
}

impl Recorded {
    fn new(graph: &Graph) -> Result<Recorded, Error> {
        Ok(Recorded {
            nodes: graph.nodes().len(),
            exec: graph.instantiate()?,
        })
    }
}

/// Launches the step kernel by kernel and counts the launches.
fn count(stream: &Stream, machine: &Machine, kind: StepKind) -> Result<usize, Error> {
    let mut counted = Counted { stream, count: 0 };
    machine.run(&mut counted, kind)?;
    Ok(counted.count)
}

/// A stream that counts launches.
struct Counted<'a> {
    stream: &'a Stream,
    count: usize,
}

impl Queue for Counted<'_> {
    fn context(&self) -> &Context {
        self.stream.context()
    }

    fn push(&mut self, work: Work) -> Result<(), warpwright_driver::Error> {
        self.count += 1;
        let mut stream = self.stream;
        stream.push(work)
    }
}
