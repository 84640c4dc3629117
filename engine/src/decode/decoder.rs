//! The decoder: a model on a device, ready to generate tokens.
//!
//! A launch is a graph of one or more steps. The token, its position and the done flag are state in
//! device memory, so the host transfers nothing per step. Each step writes its token to pinned
//! memory. The host reads it after the launch's event, while the next launch already runs. Once a
//! text has ended, further steps change nothing. At most the rest of one launch and one more launch
//! are wasted.
//!
//! Prompts are prefilled several tokens at a time. The pipeline then reads the weights once for all
//! of them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use warpwright_driver::Context;
use warpwright_driver::graph::{CaptureMode, Graph, GraphExec, Recorder, capture};
use warpwright_driver::memory::View;
use warpwright_driver::stream::{Queue, Stream, Work};
use warpwright_model::{Config, Model, Outline};

use crate::Error;
use crate::Loading;
use crate::buffers::DecoderBuffers;
use crate::chunked::list::PassNode;
use crate::chunked::prompt::PromptChunks;
use crate::chunked::step::WantedRows;
use crate::decode::in_flight::InFlight;
use crate::decode::memory;
use crate::decode::options::{Launch, Options};
use crate::decode::planned::{
    check_context, check_drafts, chunks, planned, preferred, resolve, size,
};
use crate::decode::row_kernels::RowKernels;
use crate::decode::sequence::DecoderSequence;
use crate::pipeline::adapter::LoadedAdapter;
use crate::pipeline::kernels::Pipeline;
use crate::pipeline::path::KernelPath;
use crate::pipeline::resolved::ResolvedStep;
use crate::pipeline::step::PipelineStep;
use crate::pipeline::workspace::PipelineWorkspace;
use crate::simple::kernels::SimpleKernels;
use crate::simple::products::SimpleWeights;
use crate::simple::step as forward;
use crate::step::StepKind;
use crate::weights::info;
use crate::weights::packed::{Packed, packed};
use crate::weights::random::RandomPools;
use crate::weights::stored as weights;
use crate::weights::stored::UploadJob;
use crate::weights::upload;

/// A model on a device, with the keys and values of one sequence of tokens.
///
/// Create one with [`Decoder::new`], append a prompt with [`prefill`](Decoder::prefill), and
/// iterate over [`decode`](Decoder::decode). To step many sequences together, use a
/// [`Batch`](crate::Batch).
pub struct Decoder {
    pub(crate) machine: DecoderMachine,
    pub(crate) stream: Stream,
    pub(crate) in_flight: InFlight,
    /// The prefilled tokens, and those read from generations.
    pub(crate) sequence: DecoderSequence,
    steps: Steps,
    path: KernelPath,
    loading: Loading,
    /// The number of best log-probabilities that are recorded per token.
    pub(crate) logprobs: u32,
    pub(crate) row_kernels: RowKernels,
}

/// Everything that a step needs: the configuration, the buffers, and the kernels with their
/// weights.
pub(crate) struct DecoderMachine {
    pub(crate) config: Config,
    pub(crate) buffers: DecoderBuffers,
    pass: DecoderPass,
}

/// A forward pass, with its kernels and weights.
enum DecoderPass {
    /// The simple kernels, which read weights as a file stores them.
    Simple {
        kernels: Box<SimpleKernels>,
        products: Box<SimpleWeights>,
    },
    /// The pipeline, which reads packed weights.
    Pipeline {
        weights: Packed<View<u8>>,
        /// The adapter, if the model has one.
        adapter: Option<LoadedAdapter>,
        /// The step of one token.
        single: Box<LoadedStep>,
        /// The step of several prompt tokens.
        batched: Option<Box<LoadedStep>>,
        /// The steps that verify drafts, the smallest batch first.
        verifying: Vec<LoadedStep>,
        /// The pass over chunks of a prompt.
        chunked: Option<Box<PromptChunks>>,
    },
}

/// The compiled kernels of a pipeline step, and their workspace.
struct LoadedStep {
    pipeline: Pipeline,
    workspace: PipelineWorkspace,
}

/// The launchable steps of a decoder.
enum Steps {
    /// One launch per graph.
    Graph(Box<DecoderGraphs>),
    /// One launch per kernel, with the number of launches of the latest step of each kind.
    Eager(HashMap<StepKind, usize>),
}

/// The instantiated graphs of a decoder.
struct DecoderGraphs {
    /// The graph of one step, for each kind of step.
    steps: HashMap<StepKind, RecordedGraph>,
    /// The graph of several decode steps, and their number.
    many: Option<(u32, RecordedGraph)>,
}

impl DecoderGraphs {
    /// Returns the graph of a kind of step, which must have been recorded.
    fn step(&mut self, kind: StepKind) -> &mut RecordedGraph {
        self.steps
            .get_mut(&kind)
            .expect("every kind of step of this decoder was recorded")
    }
}

/// An instantiated graph and its number of nodes.
struct RecordedGraph {
    nodes: usize,
    exec: GraphExec,
}

impl Decoder {
    /// Uploads the weights of `model` and prepares its steps.
    ///
    /// Kernels are compiled and graphs are built while the weights are copied. `progress` is called
    /// from other threads with the number of bytes copied so far.
    ///
    /// # Errors
    /// - [`Error::Context`] if the model has fewer positions than `options.ctx`.
    /// - [`Error::Memory`] if the device has too little free memory. Nothing has been allocated
    ///   then.
    /// - An error that names the option if the options exclude each other or do not fit the model.
    /// - [`Error::Model`] if the model's files cannot be read any more.
    /// - [`Error::Driver`] if a driver call fails.
    pub fn new(
        context: &Context,
        model: &Model,
        options: Options,
        progress: impl FnMut(u64) + Send,
    ) -> Result<Decoder, Error> {
        let start = Instant::now();
        let outline = &model.outline;
        Decoder::check(context, outline, options)?;
        let (mut decoder, end) = upload::with_uploader(context, model, progress, |jobs| {
            Decoder::make(context, outline, options, start, jobs.sink())
        })?;
        decoder.loading.weights = end - start;
        decoder.prepare_chunks(outline, options)?;
        decoder.loading.graphs = start.elapsed();
        Ok(decoder)
    }

    /// Creates a decoder with random weights for a model that has no file. Its texts are nonsense.
    ///
    /// Benchmarks use it to measure large models without downloading them.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Decoder::new) that do not concern files.
    pub fn random(
        context: &Context,
        outline: &Outline,
        options: Options,
    ) -> Result<Decoder, Error> {
        let start = Instant::now();
        Decoder::check(context, outline, options)?;
        let mut pools = RandomPools::for_model(context, outline)?;
        let mut decoder = Decoder::make(context, outline, options, start, |job| pools.write(&job))?;
        pools.finish()?;
        decoder.loading.weights = start.elapsed();
        decoder.prepare_chunks(outline, options)?;
        decoder.loading.graphs = start.elapsed();
        Ok(decoder)
    }

    /// Allocates memory, requests the weights and prepares the steps, without waiting for the
    /// weights to arrive.
    fn make<'a>(
        context: &Context,
        outline: &'a Outline,
        options: Options,
        start: Instant,
        request: impl FnMut(UploadJob<'a>) -> Result<(), Error>,
    ) -> Result<Decoder, Error> {
        let resolved = preferred(context, outline, options);
        let path = KernelPath::from_resolved(&resolved);
        let pass = match resolved {
            Ok(resolved) => {
                // The weights are requested first, so that they travel while the kernels compile.
                let weights = packed(outline).load(context, request)?;
                let adapter = LoadedAdapter::load(context, outline)?;
                let single = LoadedStep::new(context, resolved.single, None, options.ctx)?;
                let batched = resolved
                    .batched
                    .map(|step| LoadedStep::new(context, step, None, options.ctx));
                DecoderPass::Pipeline {
                    weights,
                    adapter,
                    single: single.into(),
                    batched: batched.transpose()?.map(Box::new),
                    verifying: LoadedStep::each(context, resolved.verifying, options.ctx)?,
                    chunked: None,
                }
            }
            Err(_) => {
                let products = SimpleWeights::load(
                    context,
                    outline,
                    &weights::load(context, outline, request)?,
                )?;
                let kernels = Box::new(SimpleKernels::load(context, outline)?);
                DecoderPass::Simple {
                    kernels,
                    products: products.into(),
                }
            }
        };
        let bytes = info::weight_bytes(outline);
        let kernels = start.elapsed();
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

    /// Returns a decoder with the same weights and other options.
    ///
    /// The weights stay on the device. Kernels are compiled only where the options change them.
    /// `outline` must be the outline of the decoder's model.
    /// [`Options::prefer`](field@Options::prefer) is ignored, because the weights are already
    /// packed for one set of kernels.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Decoder::new), and [`Error::Tuning`] if the kernels cannot be
    /// tuned as requested. The decoder is lost then.
    pub fn with_options(self, outline: &Outline, options: Options) -> Result<Decoder, Error> {
        check_context(outline, options.ctx)?;
        options.choice.check()?;
        check_drafts(options, || self.path.clone())?;
        let Decoder {
            machine: DecoderMachine { pass, buffers, .. },
            stream,
            steps,
            path,
            loading,
            ..
        } = self;
        let context = stream.context().clone();

        // The old buffers go first, because the device may not have enough memory for both. The
        // stream goes too, because it keeps its last work alive.
        drop((buffers, steps, stream));
        let pass = pass.with_options(&context, outline, options)?;
        let mut decoder = Decoder::assemble(&context, outline, pass, path, loading, options)?;
        decoder.prepare_chunks(outline, options)?;
        Ok(decoder)
    }

    /// Checks that a decoder with these options can be created, without allocating anything.
    ///
    /// # Errors
    /// Returns [`Error::Context`] if the model has too few positions, [`Error::Memory`] if the
    /// device has too little free memory, or the error of an option.
    pub fn check(context: &Context, outline: &Outline, options: Options) -> Result<(), Error> {
        memory::check(context, planned(context, outline, options)?, None)
    }

    /// Checks that a model and its draft model fit on the device together. The first pair is the
    /// model that verifies, the second is the draft model.
    ///
    /// # Errors
    /// Returns the errors of [`check`](Decoder::check).
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

    /// Allocates the buffers of a decoder and builds its graphs.
    fn assemble(
        context: &Context,
        outline: &Outline,
        pass: DecoderPass,
        path: KernelPath,
        loading: Loading,
        options: Options,
    ) -> Result<Decoder, Error> {
        let overlap = path == KernelPath::Overlapped;
        let buffers = DecoderBuffers::new(context, outline, options, overlap)?;
        let machine = DecoderMachine {
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
        let stream = Stream::new(context)?;
        let in_flight = InFlight::new(context)?;
        Ok(Decoder {
            machine,
            stream,
            in_flight,
            sequence: DecoderSequence::default(),
            steps,
            path,
            loading,
            logprobs: 0,
            row_kernels: RowKernels::default(),
        })
    }

    /// Returns the set of kernels that this decoder uses.
    pub fn path(&self) -> &KernelPath {
        &self.path
    }

    /// Returns the times that it took to upload the weights and to prepare the steps.
    pub fn loading(&self) -> &Loading {
        &self.loading
    }

    /// Returns the pipeline's step of one token, or an error if the decoder uses the simple
    /// kernels.
    pub(crate) fn pipeline_step(&self) -> Result<PipelineStep<'_>, Error> {
        let DecoderMachine { pass, buffers, .. } = &self.machine;
        match pass {
            DecoderPass::Pipeline {
                single,
                weights,
                adapter,
                ..
            } => Ok(single.step(weights, buffers, adapter)),
            DecoderPass::Simple { .. } => Err(Error::NoPipeline {
                path: self.path.clone(),
            }),
        }
    }

    /// Prepares the prefill of chunks, if the options enable it and there are kernels for it. The
    /// weights must have arrived, because the bounds of their rows are computed here.
    fn prepare_chunks(&mut self, outline: &Outline, options: Options) -> Result<(), Error> {
        let context = self.stream.context();
        let DecoderPass::Pipeline {
            weights,
            single,
            chunked,
            ..
        } = &mut self.machine.pass
        else {
            return Ok(());
        };

        // Chunks that exist already were made for these weights and stay.
        if chunked.is_some() {
            return Ok(());
        }

        if let Some((cores, size)) = chunks(context, outline, options) {
            let embed = single.pipeline.resolved.embed;
            *chunked = Some(Box::new(PromptChunks::new(
                context, cores, outline, weights, embed, size,
            )?));
        }

        Ok(())
    }

    /// Returns the maximum number of tokens that one launch prefills, for a prompt of `tokens`
    /// tokens.
    ///
    /// It is the length of a chunk if the model, the device and the options allow chunks and the
    /// prompt is long enough. Otherwise it is [`prefill_batch`](Decoder::prefill_batch).
    pub fn at_once(&self, tokens: u32) -> u32 {
        self.next_chunk(tokens)
            .unwrap_or_else(|| self.prefill_batch())
    }

    /// Returns the length of the next chunk if `left` prompt tokens remain, or `None` if they are
    /// not prefilled as a chunk.
    pub(crate) fn next_chunk(&self, left: u32) -> Option<u32> {
        match &self.machine.pass {
            DecoderPass::Pipeline {
                chunked: Some(chunked),
                ..
            } => chunked.next(left),
            _ => None,
        }
    }

    /// Returns the number of prompt tokens that one step of the pipeline prefills.
    pub fn prefill_batch(&self) -> u32 {
        self.machine
            .batched()
            .map_or(1, |step| step.pass.pipeline.resolved.batch)
    }

    /// Returns the number of kernels in a step.
    ///
    /// For graphs it is the number of nodes. For eager launches it is the number of launches in the
    /// latest step of this kind, or 0 if there was none.
    pub fn launches(&self, kind: StepKind) -> usize {
        match &self.steps {
            Steps::Graph(graphs) => graphs.steps.get(&kind).map_or(0, |graph| graph.nodes),
            Steps::Eager(launched) => launched.get(&kind).copied().unwrap_or(0),
        }
    }

    /// Returns the graph of a step in the DOT language of Graphviz.
    ///
    /// # Errors
    /// Returns an error if the driver cannot create the graph.
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

    /// Launches up to `limit` decode steps and returns their number.
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

impl DecoderPass {
    /// Returns the pass with the same weights for other options.
    fn with_options(
        self,
        context: &Context,
        outline: &Outline,
        options: Options,
    ) -> Result<DecoderPass, Error> {
        let DecoderPass::Pipeline {
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

        // Free the old workspaces before new ones are allocated, because both may not fit.
        drop(verifying);
        let single = single.pipeline;
        let batched = batched.map(|step| step.pipeline);
        let single = LoadedStep::new(context, resolved.single, Some(single), options.ctx)?;
        let batched = resolved
            .batched
            .map(|step| LoadedStep::new(context, step, batched, options.ctx));
        Ok(DecoderPass::Pipeline {
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
    /// Allocates the workspace and compiles the kernels, unless `old` has the same kernels already.
    fn new(
        context: &Context,
        resolved: ResolvedStep,
        old: Option<Pipeline>,
        ctx: u32,
    ) -> Result<LoadedStep, Error> {
        let workspace = PipelineWorkspace::new(context, &resolved, ctx)?;
        let pipeline = match old {
            Some(old) if old.resolved == resolved => old,
            _ => Pipeline::load(context, resolved)?,
        };
        Ok(LoadedStep {
            pipeline,
            workspace,
        })
    }

    /// Loads several steps, which share nothing.
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

    /// Returns the step over these weights and buffers.
    fn step<'a>(
        &'a self,
        weights: &'a Packed<View<u8>>,
        buffers: &'a DecoderBuffers,
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

impl DecoderMachine {
    /// Queues one step.
    pub(crate) fn run(
        &self,
        queue: &mut impl Queue,
        kind: StepKind,
    ) -> Result<(), warpwright_driver::Error> {
        let DecoderMachine {
            config,
            buffers,
            pass,
        } = self;
        match pass {
            _ if kind == StepKind::Choose => buffers.choose(queue),
            DecoderPass::Simple { kernels, products } => forward::SimpleStep {
                config,
                kernels,
                products,
                buffers,
            }
            .run(queue, kind),
            DecoderPass::Pipeline {
                single,
                weights,
                adapter,
                ..
            } => match kind {
                StepKind::LogitsBatch | StepKind::PrefillBatch => self
                    .batched()
                    .expect("only a batched pipeline has batched steps")
                    .run(queue, kind),
                StepKind::Verify(tokens) => self
                    .verifying(tokens)
                    .expect("verifying steps exist for every batch size that is launched")
                    .run(queue, kind),
                _ => single.step(weights, buffers, adapter).run(queue, kind),
            },
        }
    }

    /// Prefills a chunk at the state's position and returns its length.
    ///
    /// `left` is the number of prompt tokens that remain. The length is 0 if they are not prefilled
    /// as a chunk.
    pub(crate) fn chunk(
        &mut self,
        queue: &mut impl Queue,
        left: u32,
        wanted: WantedRows,
    ) -> Result<u32, Error> {
        let DecoderPass::Pipeline {
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

    /// Returns the kernels of the first chunk of a prompt, which must have been recorded.
    pub(crate) fn list_chunk(&self, tokens: u32) -> Vec<PassNode> {
        match &self.pass {
            DecoderPass::Pipeline {
                chunked: Some(chunked),
                ..
            } => chunked.list(tokens),
            _ => vec![],
        }
    }

    /// Queues the end of a chunk of `tokens` tokens: the LM head for its last token and the choice
    /// of the next token. With [`StepKind::Logits`], it queues only the LM head.
    pub(crate) fn end_chunk(
        &self,
        queue: &mut impl Queue,
        tokens: u32,
        kind: StepKind,
    ) -> Result<(), Error> {
        if let DecoderPass::Pipeline {
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

    /// Queues the LM head for one batch of tokens of the latest chunk, starting at token `first`,
    /// and returns a view of their logits. Returns `None` if there are no chunks or no batched
    /// step.
    pub(crate) fn chunk_logits(
        &self,
        queue: &mut impl Queue,
        first: u32,
    ) -> Result<Option<View<f32>>, Error> {
        let DecoderPass::Pipeline {
            chunked: Some(chunked),
            ..
        } = &self.pass
        else {
            return Ok(None);
        };

        let Some(step) = self.batched() else {
            return Ok(None);
        };

        let rows = chunked.rows(first, step.pass.pipeline.resolved.batch);
        step.end(queue, &rows, StepKind::LogitsBatch)?;
        Ok(Some(step.logits()))
    }

    /// Returns the residual stream of `count` tokens of the latest chunk, starting at token
    /// `first`, or `None` without chunks.
    pub(crate) fn chunk_stream(&self, first: u32, count: u32) -> Option<View<f32>> {
        match &self.pass {
            DecoderPass::Pipeline {
                chunked: Some(chunked),
                ..
            } => Some(chunked.rows(first, count)),
            _ => None,
        }
    }

    /// Returns the weights of the last norm, `[hidden]`.
    pub(crate) fn norm(&self) -> Result<View<f32>, Error> {
        match &self.pass {
            DecoderPass::Simple { products, .. } => Ok(products.norm.clone()),
            DecoderPass::Pipeline { weights, .. } => Ok(weights.norm.cast()?),
        }
    }

    /// Returns the pipeline's step of several tokens, if there is one.
    pub(crate) fn batched(&self) -> Option<PipelineStep<'_>> {
        let DecoderPass::Pipeline {
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

    /// Returns the step that verifies `tokens` tokens, if there is one.
    pub(crate) fn verifying(&self, tokens: u32) -> Option<PipelineStep<'_>> {
        let DecoderPass::Pipeline {
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

    /// Returns the kinds of steps that the pass supports and the buffers can hold.
    fn kinds(&self) -> Vec<StepKind> {
        let mut kinds = vec![StepKind::Decode, StepKind::Prefill];
        if self.batched().is_some() {
            kinds.extend([StepKind::PrefillBatch, StepKind::LogitsBatch]);
        }
        if self.buffers.allowed.is_some() {
            kinds.extend([StepKind::Logits, StepKind::Choose]);
        }

        let verifying = [2, 4, 8]
            .into_iter()
            .filter(|tokens| self.verifying(*tokens).is_some());
        kinds.extend(verifying.map(StepKind::Verify));
        kinds
    }

    /// Records `steps` steps as a graph.
    fn graph(
        &self,
        context: &Context,
        launch: Launch,
        kind: StepKind,
        steps: u32,
    ) -> Result<Graph, Error> {
        let mut recorder = match (launch, &self.pass) {
            (Launch::Capture, _) => return self.captured(context, kind, steps),
            (Launch::Graph, DecoderPass::Pipeline { .. }) => Recorder::pipeline(context)?,
            _ => Recorder::new(context)?,
        };
        for _ in 0..steps {
            // Attention prefetches cache rows of earlier positions before it waits for its
            // predecessor. Earlier steps wrote those rows, so they must have completed, and an
            // overlapping edge would not guarantee that.
            recorder.full_edge();
            self.run(&mut recorder, kind)?;
        }
        Ok(recorder.finish())
    }

    /// Captures `steps` steps from a stream as a graph.
    fn captured(&self, context: &Context, kind: StepKind, steps: u32) -> Result<Graph, Error> {
        let stream = Stream::new(context)?;
        Ok(capture(&stream, CaptureMode::ThreadLocal, |queue| {
            for _ in 0..steps {
                self.run(queue, kind)?;
            }
            Ok(())
        })?)
    }
}

impl Steps {
    /// Instantiates the graph of each kind of step, and one of `tokens` decode steps.
    fn graph(
        kinds: &[StepKind],
        tokens: u32,
        record: impl Fn(StepKind, u32) -> Result<Graph, Error>,
    ) -> Result<Steps, Error> {
        let recorded = |kind, steps| RecordedGraph::new(&record(kind, steps)?);
        let many = if tokens > 1 {
            Some((tokens, recorded(StepKind::Decode, tokens)?))
        } else {
            None
        };
        let steps = kinds.iter().map(|&kind| Ok((kind, recorded(kind, 1)?)));
        Ok(Steps::Graph(Box::new(DecoderGraphs {
            steps: steps.collect::<Result<_, Error>>()?,
            many,
        })))
    }
}

impl RecordedGraph {
    fn new(graph: &Graph) -> Result<RecordedGraph, Error> {
        Ok(RecordedGraph {
            nodes: graph.nodes().len(),
            exec: graph.instantiate()?,
        })
    }
}

/// Launches a step kernel by kernel and returns the number of launches.
fn count(stream: &Stream, machine: &DecoderMachine, kind: StepKind) -> Result<usize, Error> {
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
