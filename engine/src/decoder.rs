//! The decoder: a model on a device, ready to write tokens.
//!
//! A launch is a graph of one step or of several. Token, position and the end of the text are state in device memory,
//! so that the host sends nothing; it reads a launch's tokens from pinned memory after the launch's event, while the
//! next one already runs. After the end of a text, steps change nothing: at most the rest of a launch and the next
//! are wasted.
//!
//! A chain takes in a prompt several tokens at once, for which it reads the weights once.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use warpwright_driver::{
    CaptureMode, Context, Event, Graph, GraphExec, Queue, Recorder, Stream, Work, capture,
};

use crate::buffers::Buffers;
use crate::chain::{self, Chain, Links};
use crate::config::Config;
use crate::kernels::Kernels;
use crate::model::{Outline, Weights};
use crate::packed::Packed;
use crate::path::{Fit, Path};
use crate::random::Pools;
use crate::tuning::Tuning;
use crate::upload::Job;
use crate::weights::Loaded;
use crate::{Error, Loading, Model, forward, info, memory, packed, upload, weights};

/// How a step reaches the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Launch {
    /// As one graph, built by hand. Where the path is a chain, its kernels overlap.
    #[default]
    Graph,
    /// As one graph, built by hand, in which no kernels overlap.
    Plain,
    /// As one graph that the driver captured from a stream.
    Capture,
    /// Kernel by kernel.
    Eager,
}

/// Which kernels to decode with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefer {
    /// The fastest that take the model on the device.
    #[default]
    Fast,
    /// Those that take every model on every device.
    Simple,
}

/// What a decoder is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Positions that it has room for, at most the model's own.
    pub ctx: u32,
    /// How a step reaches the device.
    pub launch: Launch,
    /// Tokens of one launch, if it is a graph and so many are wanted.
    pub tokens_per_launch: u32,
    /// Tokens of a prompt that a chain takes in at once: 1, 2, 4 or 8. What is between counts as the one below.
    pub columns: u32,
    /// Which kernels to decode with; fixed once the weights are loaded.
    pub prefer: Prefer,
    /// How kernels of the chain divide their blocks.
    pub tuning: Tuning,
}

impl Options {
    /// The rest as it is best.
    pub fn new(ctx: u32, launch: Launch) -> Options {
        Options {
            ctx,
            launch,
            tokens_per_launch: 8,
            columns: 8,
            prefer: Prefer::Fast,
            tuning: Tuning::default(),
        }
    }

    fn at_once(&self) -> u32 {
        1 << self.columns.clamp(1, 8).ilog2()
    }
}

/// What a step is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// To make a token.
    Token,
    /// To take in a token of the prompt that is not its last; nobody needs its logits.
    Prompt,
    /// To take in as many tokens of the prompt at once as [`Options::columns`] says.
    Prompts,
    /// The same with the logits after each.
    Tokens,
}

/// A model on a device.
pub struct Decoder {
    pub(crate) machine: Machine,
    pub(crate) stream: Stream,
    /// Of alternate launches.
    events: [Event; 2],
    plan: Plan,
    path: Path,
    loading: Loading,
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
        weights: Weights<Loaded>,
    },
    Chained {
        chain: Box<Chain>,
        weights: Packed,
        links: Box<Links>,
        /// The same for several columns.
        columns: Option<Box<(Chain, Links)>>,
    },
}

enum Plan {
    Graph(Box<Graphs>),
    /// Kernels launched by the latest step of each kind.
    Eager(HashMap<Kind, usize>),
}

struct Graphs {
    /// Steps of each kind that the decoder has.
    steps: HashMap<Kind, Recorded>,
    /// So many steps for tokens in one, if more than one.
    many: Option<(u32, Recorded)>,
}

struct Recorded {
    nodes: usize,
    exec: GraphExec,
}

impl Decoder {
    /// Loads the model and prepares its steps. `progress` hears the bytes of weights copied so far, from other
    /// threads.
    ///
    /// # Errors
    /// A context that the model or the device has no room for, and what the driver refuses.
    pub fn new(
        context: &Context,
        model: &Model,
        options: Options,
        progress: impl FnMut(u64) + Send,
    ) -> Result<Decoder, Error> {
        let (start, outline) = (Instant::now(), &model.outline);
        Decoder::check(context, outline, options)?;
        let (mut decoder, end) = upload::beside(context, model, progress, |jobs| {
            Decoder::make(context, outline, options, start, jobs.taker())
        })?;
        decoder.loading.weights = end - start;
        Ok(decoder)
    }

    /// The same of a model that is no file: its weights are random, its texts nonsense.
    ///
    /// # Errors
    /// As [`new`](Decoder::new).
    pub fn random(context: &Context, outline: &Outline, options: Options) -> Result<Decoder, Error> {
        let start = Instant::now();
        Decoder::check(context, outline, options)?;
        let mut pools = Pools::of(context, outline)?;
        let mut decoder = Decoder::make(context, outline, options, start, |job| pools.write(&job))?;
        pools.finish()?;
        decoder.loading.weights = start.elapsed();
        Ok(decoder)
    }

    /// Allocates what the model needs, asks for its weights and prepares its steps, whether the weights are there or
    /// not.
    fn make<'a>(
        context: &Context,
        outline: &'a Outline,
        options: Options,
        start: Instant,
        ask: impl FnMut(Job<'a>) -> Result<(), Error>,
    ) -> Result<Decoder, Error> {
        let fit = Fit::of(outline, context.device(), options.tuning, options.prefer);
        let path = Path::from(&fit);
        let pass = match fit {
            Ok(fit) => Pass::chained(context, fit, outline, options, packed::load(context, outline, ask)?)?,
            Err(_) => {
                let weights = weights::load(context, outline, ask)?;
                Pass::Simple { kernels: Box::new(Kernels::load(context, outline)?), weights }
            }
        };
        let (bytes, kernels) = (info::weight_bytes(outline), start.elapsed());
        let loading = Loading { bytes, weights: Duration::ZERO, kernels, graphs: kernels };
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
        let Decoder { machine: Machine { pass, buffers, .. }, stream, plan, path, loading, .. } = self;
        let context = stream.context().clone();
        // There may be no room for both the old and the new, and the stream keeps what it ran.
        drop((buffers, plan, stream));
        let pass = pass.with_options(&context, outline, options)?;
        Decoder::assemble(&context, outline, pass, path, loading, options)
    }

    /// Whether the model has the context and the device the memory; nothing is allocated.
    ///
    /// # Errors
    /// What is needed and what there is.
    pub fn check(context: &Context, outline: &Outline, options: Options) -> Result<(), Error> {
        check_context(outline, options.ctx)?;
        memory::check(context, outline, options.ctx)
    }

    fn assemble(
        context: &Context,
        outline: &Outline,
        pass: Pass,
        path: Path,
        loading: Loading,
        options: Options,
    ) -> Result<Decoder, Error> {
        let buffers = Buffers::new(context, outline, options.ctx)?;
        let machine = Machine { config: outline.config.clone(), buffers, pass };
        let plan = match options.launch {
            Launch::Eager => Plan::Eager(HashMap::new()),
            launch => Plan::graph(machine.kinds(), options.tokens_per_launch, |kind, steps| {
                machine.graph(context, launch, kind, steps)
            })?,
        };
        let events = [Event::untimed(context)?, Event::untimed(context)?];
        Ok(Decoder { machine, stream: Stream::new(context)?, events, plan, path, loading })
    }

    /// Which kernels decode.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How long it took to load the weights and to prepare the steps, when the decoder was new.
    pub fn loading(&self) -> &Loading {
        &self.loading
    }

    /// A step of the chain.
    pub(crate) fn chained(&self) -> Result<chain::Step<'_>, Error> {
        let Machine { pass, buffers, .. } = &self.machine;
        match pass {
            Pass::Chained { chain, weights, links, .. } => {
                Ok(chain::Step::new(chain, weights, buffers, links))
            }
            Pass::Simple { .. } => Err(Error::NoChain { path: self.path.clone() }),
        }
    }

    /// Writes on from `prompt`: the likeliest token each time, at most `limit` of them, up to and with a token
    /// that ends the text, or until the context is full.
    ///
    /// # Errors
    /// A prompt that is empty, does not fit the context, or has a number that is no token.
    pub fn generate(&mut self, prompt: &[u32], limit: u32) -> Result<Generation<'_>, Error> {
        self.start(prompt)?;
        self.take_in(prompt.len() as u32 - 1)?;
        let first = prompt.len() as u32 - 1;
        let limit = limit.min(self.machine.buffers.ctx - first);
        Ok(Generation::new(self, first, limit))
    }

    /// Takes in so many tokens of the prompt, the last excluded.
    pub(crate) fn take_in(&mut self, mut left: u32) -> Result<(), Error> {
        let columns = self.columns();
        while left > 0 {
            let (kind, taken) =
                if left.min(columns) > 1 { (Kind::Prompts, columns) } else { (Kind::Prompt, 1) };
            self.launch(kind)?;
            left -= taken.min(left);
        }
        Ok(())
    }

    /// Tokens of a prompt that are taken in at once.
    pub fn columns(&self) -> u32 {
        self.machine.columns().map_or(1, |step| step.chain.fit.columns)
    }

    /// Feeds `ids` and gives the logits after each: rows of `vocab`.
    ///
    /// # Errors
    /// As [`generate`](Decoder::generate).
    pub fn logits(&mut self, ids: &[u32]) -> Result<Rows<'_>, Error> {
        self.start(ids)?;
        Ok(Rows { decoder: self, position: 0, end: ids.len() as u32, read: VecDeque::new() })
    }

    /// Kernels that a step launches: the graph's nodes, or those of the latest eager step of this kind. 0 if there is
    /// no such step.
    pub fn launches(&self, kind: Kind) -> usize {
        match &self.plan {
            Plan::Graph(graphs) => graphs.steps.get(&kind).map_or(0, |graph| graph.nodes),
            Plan::Eager(launched) => launched.get(&kind).copied().unwrap_or(0),
        }
    }

    /// The graph of a step in Graphviz's language.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn dot(&self, kind: Kind) -> Result<String, Error> {
        Ok(self.machine.graph(self.stream.context(), Launch::Graph, kind, 1)?.dot())
    }

    /// Puts the decoder at the start of a prompt.
    pub(crate) fn start(&mut self, prompt: &[u32]) -> Result<(), Error> {
        let (b, vocab) = (&self.machine.buffers, self.machine.config.vocab);
        check_prompt(prompt, vocab, b.ctx)?;
        let state = [prompt[0], 0, 0, prompt.len() as u32, 0, 0, 0, 0];
        self.stream.write(&b.state, &state)?;
        self.stream.write(&b.prompt.view_range(0..prompt.len()), prompt)?;
        Ok(())
    }

    /// A step of a kind that the decoder has.
    pub(crate) fn launch(&mut self, kind: Kind) -> Result<(), Error> {
        match &mut self.plan {
            Plan::Graph(graphs) => graphs.steps[&kind].exec.launch(&self.stream)?,
            Plan::Eager(launched) => {
                launched.insert(kind, count(&self.stream, &self.machine, kind)?);
            }
        }
        Ok(())
    }

    /// One launch that makes up to `limit` tokens, and how many it makes.
    pub(crate) fn launch_tokens(&mut self, limit: u32) -> Result<u32, Error> {
        let Plan::Graph(graphs) = &self.plan else {
            return self.launch(Kind::Token).map(|()| 1);
        };
        let (tokens, graph) = match &graphs.many {
            Some((tokens, graph)) if *tokens <= limit => (*tokens, graph),
            _ => (1, &graphs.steps[&Kind::Token]),
        };
        graph.exec.launch(&self.stream)?;
        Ok(tokens)
    }
}

impl Pass {
    /// Compiles the kernels; the weights may still be on their way.
    fn chained(
        context: &Context,
        fit: Fit,
        outline: &Outline,
        options: Options,
        weights: Packed,
    ) -> Result<Pass, Error> {
        let load = |fit: Fit| {
            let links = Links::new(context, &fit, options.ctx)?;
            Ok::<_, Error>((Chain::load(context, fit, outline)?, links))
        };
        let columns = Some(options.at_once()).filter(|&columns| columns > 1).map(|columns| fit.by(columns));
        let columns = columns.map(load).transpose()?.map(Box::new);
        let (chain, links) = load(fit)?;
        Ok(Pass::Chained { chain: Box::new(chain), weights, links: Box::new(links), columns })
    }

    /// The same weights under other options.
    fn with_options(self, context: &Context, outline: &Outline, options: Options) -> Result<Pass, Error> {
        match self {
            Pass::Chained { chain, weights, columns, .. }
                if chain.fit.tuning == options.tuning
                    && columns.as_ref().map_or(1, |columns| columns.0.fit.columns) == options.at_once() =>
            {
                let links = Box::new(Links::new(context, &chain.fit, options.ctx)?);
                let columns = columns.map(|columns| {
                    let links = Links::new(context, &columns.0.fit, options.ctx)?;
                    Ok::<_, Error>(Box::new((columns.0, links)))
                });
                Ok(Pass::Chained { chain, weights, links, columns: columns.transpose()? })
            }
            Pass::Chained { weights, .. } => {
                let fit = Fit::of(outline, context.device(), options.tuning, Prefer::Fast);
                let wrong = |problem| Error::Tuning { text: options.tuning.to_string(), problem };
                Pass::chained(context, fit.map_err(wrong)?, outline, options, weights)
            }
            simple => Ok(simple),
        }
    }
}

impl Machine {
    /// One step.
    fn run(&self, queue: &mut impl Queue, kind: Kind) -> Result<(), warpwright_driver::Error> {
        let Machine { config, buffers, pass } = self;
        match pass {
            Pass::Simple { kernels, weights } => {
                forward::Step { config, kernels, weights, buffers }.run(queue, kind)
            }
            Pass::Chained { chain, weights, links, .. } => match kind {
                Kind::Token | Kind::Prompt => {
                    chain::Step::new(chain, weights, buffers, links).run(queue, kind)
                }
                Kind::Tokens | Kind::Prompts => {
                    self.columns().expect("only chains of columns have such steps").run(queue, kind)
                }
            },
        }
    }

    /// A step of several columns, where the pass has them.
    fn columns(&self) -> Option<chain::Step<'_>> {
        let Pass::Chained { weights, columns: Some(columns), .. } = &self.pass else {
            return None;
        };
        let (chain, links) = &**columns;
        Some(chain::Step::new(chain, weights, &self.buffers, links))
    }

    /// The kinds of steps that the pass has.
    fn kinds(&self) -> &'static [Kind] {
        match self.columns() {
            None => &[Kind::Token, Kind::Prompt],
            Some(_) => &[Kind::Token, Kind::Prompt, Kind::Prompts, Kind::Tokens],
        }
    }

    /// So many steps as a graph.
    fn graph(&self, context: &Context, launch: Launch, kind: Kind, steps: u32) -> Result<Graph, Error> {
        let mut recorder = match (launch, &self.pass) {
            (Launch::Capture, _) => return self.captured(context, kind, steps),
            (Launch::Graph, Pass::Chained { .. }) => Recorder::chain(context)?,
            _ => Recorder::new(context)?,
        };
        for _ in 0..steps {
            // Attention reads the cache's older rows before it waits: what steps before this one wrote.
            recorder.part();
            self.run(&mut recorder, kind)?;
        }
        Ok(recorder.finish())
    }

    /// So many steps as a graph that the driver made of what a stream was given.
    fn captured(&self, context: &Context, kind: Kind, steps: u32) -> Result<Graph, Error> {
        let stream = Stream::new(context)?;
        Ok(capture(&stream, CaptureMode::ThreadLocal, |queue| {
            (0..steps).try_for_each(|_| self.run(queue, kind))
        })?)
    }
}

impl Plan {
    fn graph(
        kinds: &[Kind],
        tokens: u32,
        of: impl Fn(Kind, u32) -> Result<Graph, Error>,
    ) -> Result<Plan, Error> {
        let recorded = |kind, steps| Recorded::new(&of(kind, steps)?);
        let many = if tokens > 1 { Some((tokens, recorded(Kind::Token, tokens)?)) } else { None };
        let steps = kinds.iter().map(|&kind| Ok((kind, recorded(kind, 1)?)));
        Ok(Plan::Graph(Box::new(Graphs { steps: steps.collect::<Result<_, Error>>()?, many })))
    }
}

impl Recorded {
    fn new(graph: &Graph) -> Result<Recorded, Error> {
        Ok(Recorded { nodes: graph.nodes().len(), exec: graph.instantiate()? })
    }
}

/// Runs the step kernel by kernel and counts them.
fn count(stream: &Stream, machine: &Machine, kind: Kind) -> Result<usize, Error> {
    let mut counted = Counted { stream, count: 0 };
    machine.run(&mut counted, kind)?;
    Ok(counted.count)
}

/// A stream that counts what it takes.
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

/// Tokens as they are made.
pub struct Generation<'a> {
    decoder: &'a mut Decoder,
    /// The position of the first token's step.
    first: u32,
    limit: u32,
    /// Tokens of all launches.
    launched: u32,
    /// Tokens of those that are over.
    made: u32,
    read: u32,
    /// Tokens of all launches up to each that may not be over.
    under_way: VecDeque<u32>,
    /// Launches that are over.
    over: usize,
}

impl Iterator for Generation<'_> {
    type Item = Result<u32, Error>;

    fn next(&mut self) -> Option<Result<u32, Error>> {
        if self.read == self.limit {
            return None;
        }
        let token = self.step();
        // After an error or the end of the text there is nothing to wait for.
        let over = token.as_ref().map_or(true, |id| self.decoder.machine.buffers.stop_tokens.contains(id));
        self.limit = if over { self.read } else { self.limit };
        Some(token)
    }
}

impl<'a> Generation<'a> {
    pub(crate) fn new(decoder: &'a mut Decoder, first: u32, limit: u32) -> Generation<'a> {
        let under_way = VecDeque::new();
        Generation { decoder, first, limit, launched: 0, made: 0, read: 0, under_way, over: 0 }
    }

    /// Tokens of the launches that are over: those that came, those that come without waiting, and steps past the end
    /// of the text.
    pub fn made(&self) -> u32 {
        self.made
    }

    /// Keeps two launches under way, then waits for the earlier.
    fn wait(&mut self) -> Result<(), Error> {
        while self.under_way.len() < 2 && self.launched < self.limit {
            self.launched += self.decoder.launch_tokens(self.limit - self.launched)?;
            let event = &self.decoder.events[(self.over + self.under_way.len()) % 2];
            event.record(&self.decoder.stream)?;
            self.under_way.push_back(self.launched);
        }
        self.decoder.events[self.over % 2].synchronize()?;
        self.over += 1;
        self.made = self.under_way.pop_front().expect("tokens are wanted, so a launch is under way");
        Ok(())
    }

    fn step(&mut self) -> Result<u32, Error> {
        if self.read == self.made {
            self.wait()?;
        }
        let position = self.first + self.read;
        self.read += 1;
        let (token, vocab) =
            (self.decoder.machine.buffers.out.read(position as usize), self.decoder.machine.config.vocab);
        if token < vocab { Ok(token) } else { Err(Error::NoToken { position }) }
    }
}

/// Logits, a row a token.
pub struct Rows<'a> {
    decoder: &'a mut Decoder,
    position: u32,
    end: u32,
    /// Rows of a launch that nobody has seen.
    read: VecDeque<Vec<f32>>,
}

impl Iterator for Rows<'_> {
    type Item = Result<Vec<f32>, Error>;

    fn next(&mut self) -> Option<Result<Vec<f32>, Error>> {
        if self.position == self.end {
            return None;
        }
        let row = self.row();
        self.position = if row.is_ok() { self.position + 1 } else { self.end };
        Some(row)
    }
}

impl Rows<'_> {
    fn row(&mut self) -> Result<Vec<f32>, Error> {
        let row = match self.read.pop_front() {
            Some(row) => row,
            None => self.launch()?,
        };
        match row.iter().position(|x| !x.is_finite()) {
            Some(token) => Err(Error::Logit { position: self.position, token, value: row[token] }),
            None => Ok(row),
        }
    }

    /// The rows of one token or of several; gives the first of them.
    fn launch(&mut self) -> Result<Vec<f32>, Error> {
        let left = self.end - self.position;
        if left.min(self.decoder.columns()) == 1 {
            self.decoder.launch(Kind::Token)?;
            return Ok(self.decoder.stream.read(&self.decoder.machine.buffers.logits)?);
        }
        self.decoder.launch(Kind::Tokens)?;
        let Decoder { machine, stream, .. } = &*self.decoder;
        let step = machine.columns().expect("there are several columns");
        let (vocab, columns) = (machine.config.vocab as usize, step.chain.fit.columns.min(left) as usize);
        let rows = stream.read(&step.logits().view_range(0..columns * vocab))?;
        self.read.extend(rows.chunks(vocab).map(<[f32]>::to_vec));
        Ok(self.read.pop_front().expect("there is a column"))
    }
}

fn check_context(outline: &Outline, ctx: u32) -> Result<(), Error> {
    let limit = outline.config.context;
    if (1..=limit).contains(&ctx) { Ok(()) } else { Err(Error::Context { ctx, limit }) }
}

/// Refuses a prompt that would make the device read what is not there.
fn check_prompt(prompt: &[u32], vocab: u32, ctx: u32) -> Result<(), Error> {
    if prompt.is_empty() {
        return Err(Error::NoPrompt);
    }
    if prompt.len() > ctx as usize {
        return Err(Error::PromptLength { len: prompt.len(), ctx });
    }
    match prompt.iter().position(|id| *id >= vocab) {
        Some(index) => Err(Error::PromptToken { index, id: prompt[index], vocab }),
        None => Ok(()),
    }
}
