//! The decoder: a model on a device, ready to write tokens.
//!
//! A step is one graph launch. Token, position and the end of the text are state in device memory, so that the
//! host sends nothing; it reads each token from pinned memory after the step's event, while the next step
//! already runs. At most one step is wasted, after the end of a text.

use warpwright_driver::{
    CaptureMode, Context, Event, Graph, GraphExec, Queue, Recorder, Stream, Work, capture,
};

use crate::buffers::Buffers;
use crate::forward::Step;
use crate::kernels::Kernels;
use crate::model::{Outline, Weights};
use crate::weights::Loaded;
use crate::{Error, Model, memory, random, weights};

/// How a step reaches the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Launch {
    /// As one graph, built by hand.
    #[default]
    Graph,
    /// As one graph that the driver captured from a stream.
    Capture,
    /// Kernel by kernel.
    Eager,
}

/// What a decoder is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Positions that it has room for, at most the model's own.
    pub ctx: u32,
    /// How a step reaches the device.
    pub launch: Launch,
}

/// What a step is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// To make a token.
    Token,
    /// To take in a token of the prompt that is not its last; nobody needs its logits.
    Prompt,
}

/// A model on a device.
pub struct Decoder {
    pub(crate) step: Step,
    pub(crate) stream: Stream,
    /// Of alternate steps.
    events: [Event; 2],
    plan: Plan,
}

enum Plan {
    Graph {
        token: Recorded,
        prompt: Recorded,
    },
    /// Kernels launched by the latest step of each kind.
    Eager {
        token: usize,
        prompt: usize,
    },
}

struct Recorded {
    nodes: usize,
    exec: GraphExec,
}

impl Decoder {
    /// Loads the model and prepares its steps. `progress` hears the bytes of weights copied so far.
    ///
    /// # Errors
    /// A context that the model or the device has no room for, and what the driver refuses.
    pub fn new(
        context: &Context,
        model: &Model,
        options: Options,
        progress: impl FnMut(u64),
    ) -> Result<Decoder, Error> {
        Decoder::check(context, &model.outline, options)?;
        let kernels = Kernels::load(context, &model.outline)?;
        let weights = weights::upload(context, model, progress)?;
        Decoder::assemble(context, &model.outline, kernels, weights, options)
    }

    /// The same of a model that is no file: its weights are random, its texts nonsense.
    ///
    /// # Errors
    /// As [`new`](Decoder::new).
    pub fn random(context: &Context, outline: &Outline, options: Options) -> Result<Decoder, Error> {
        Decoder::check(context, outline, options)?;
        let kernels = Kernels::load(context, outline)?;
        let weights = random::weights(context, outline)?;
        Decoder::assemble(context, outline, kernels, weights, options)
    }

    /// The same weights under other options; `outline` is that of the model.
    ///
    /// # Errors
    /// As [`new`](Decoder::new).
    pub fn with_options(self, outline: &Outline, options: Options) -> Result<Decoder, Error> {
        check_context(outline, options.ctx)?;
        let Decoder { step: Step { kernels, weights, buffers, .. }, stream, plan, .. } = self;
        let context = stream.context().clone();
        // There may be no room for both the old and the new, and the stream keeps what it ran.
        drop((buffers, plan, stream));
        Decoder::assemble(&context, outline, kernels, weights, options)
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
        kernels: Kernels,
        weights: Weights<Loaded>,
        options: Options,
    ) -> Result<Decoder, Error> {
        let buffers = Buffers::new(context, outline, options.ctx)?;
        let step = Step { config: outline.config.clone(), kernels, weights, buffers };
        let plan = match options.launch {
            Launch::Eager => Plan::Eager { token: 0, prompt: 0 },
            Launch::Graph => Plan::graph(|kind| record(context, &step, kind))?,
            Launch::Capture => Plan::graph(|kind| captured(context, &step, kind))?,
        };
        let events = [Event::untimed(context)?, Event::untimed(context)?];
        Ok(Decoder { step, stream: Stream::new(context)?, events, plan })
    }

    /// Writes on from `prompt`: the likeliest token each time, at most `limit` of them, up to and with a token
    /// that ends the text, or until the context is full.
    ///
    /// # Errors
    /// A prompt that is empty, does not fit the context, or has a number that is no token.
    pub fn generate(&mut self, prompt: &[u32], limit: u32) -> Result<Generation<'_>, Error> {
        self.start(prompt)?;
        for _ in 1..prompt.len() {
            self.launch(Kind::Prompt)?;
        }
        let first = prompt.len() as u32 - 1;
        let limit = limit.min(self.step.buffers.ctx - first);
        Ok(Generation::new(self, first, limit))
    }

    /// Feeds `ids` one by one and gives the logits after each: rows of `vocab`.
    ///
    /// # Errors
    /// As [`generate`](Decoder::generate).
    pub fn logits(&mut self, ids: &[u32]) -> Result<Rows<'_>, Error> {
        self.start(ids)?;
        Ok(Rows { decoder: self, position: 0, end: ids.len() as u32 })
    }

    /// Kernels that a step launches: the graph's nodes, or those of the latest eager step of this kind.
    pub fn launches(&self, kind: Kind) -> usize {
        match (&self.plan, kind) {
            (Plan::Graph { token, .. }, Kind::Token) => token.nodes,
            (Plan::Graph { prompt, .. }, Kind::Prompt) => prompt.nodes,
            (Plan::Eager { token, .. }, Kind::Token) => *token,
            (Plan::Eager { prompt, .. }, Kind::Prompt) => *prompt,
        }
    }

    /// The graph of a step in Graphviz's language.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn dot(&self, kind: Kind) -> Result<String, Error> {
        Ok(record(self.stream.context(), &self.step, kind)?.dot())
    }

    /// Puts the decoder at the start of a prompt.
    fn start(&mut self, prompt: &[u32]) -> Result<(), Error> {
        let (b, vocab) = (&self.step.buffers, self.step.config.vocab);
        check_prompt(prompt, vocab, b.ctx)?;
        let state = [prompt[0], 0, 0, prompt.len() as u32, 0, 0, 0, 0];
        self.stream.write(&b.state, &state)?;
        self.stream.write(&b.prompt.view_range(0..prompt.len()), prompt)?;
        Ok(())
    }

    pub(crate) fn launch(&mut self, kind: Kind) -> Result<(), Error> {
        match (&mut self.plan, kind) {
            (Plan::Graph { token, .. }, Kind::Token) => token.exec.launch(&self.stream)?,
            (Plan::Graph { prompt, .. }, Kind::Prompt) => prompt.exec.launch(&self.stream)?,
            (Plan::Eager { token, .. }, Kind::Token) => *token = count(&self.stream, &self.step, kind)?,
            (Plan::Eager { prompt, .. }, Kind::Prompt) => *prompt = count(&self.stream, &self.step, kind)?,
        }
        Ok(())
    }
}

impl Plan {
    fn graph(of: impl Fn(Kind) -> Result<Graph, Error>) -> Result<Plan, Error> {
        let [token, prompt] = [Kind::Token, Kind::Prompt].map(|kind| Recorded::new(&of(kind)?));
        Ok(Plan::Graph { token: token?, prompt: prompt? })
    }
}

impl Recorded {
    fn new(graph: &Graph) -> Result<Recorded, Error> {
        Ok(Recorded { nodes: graph.nodes().len(), exec: graph.instantiate()? })
    }
}

/// The step as a graph.
fn record(context: &Context, step: &Step, kind: Kind) -> Result<Graph, Error> {
    let mut recorder = Recorder::new(context)?;
    step.run(&mut recorder, kind)?;
    Ok(recorder.finish())
}

/// The step as a graph that the driver made of what a stream was given.
fn captured(context: &Context, step: &Step, kind: Kind) -> Result<Graph, Error> {
    let stream = Stream::new(context)?;
    Ok(capture(&stream, CaptureMode::ThreadLocal, |queue| step.run(queue, kind))?)
}

/// Runs the step kernel by kernel and counts them.
fn count(stream: &Stream, step: &Step, kind: Kind) -> Result<usize, Error> {
    let mut counted = Counted { stream, count: 0 };
    step.run(&mut counted, kind)?;
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
    launched: u32,
    read: u32,
}

impl Iterator for Generation<'_> {
    type Item = Result<u32, Error>;

    fn next(&mut self) -> Option<Result<u32, Error>> {
        if self.read == self.limit {
            return None;
        }
        let token = self.step();
        // After an error or the end of the text there is nothing to wait for.
        let over = token.as_ref().map_or(true, |id| self.decoder.step.buffers.stop_tokens.contains(id));
        self.limit = if over { self.read } else { self.limit };
        Some(token)
    }
}

impl<'a> Generation<'a> {
    pub(crate) fn new(decoder: &'a mut Decoder, first: u32, limit: u32) -> Generation<'a> {
        Generation { decoder, first, limit, launched: 0, read: 0 }
    }

    /// Launches one step ahead, then waits for a token.
    fn step(&mut self) -> Result<u32, Error> {
        while self.launched < self.limit.min(self.read + 2) {
            self.decoder.launch(Kind::Token)?;
            self.decoder.events[self.launched as usize % 2].record(&self.decoder.stream)?;
            self.launched += 1;
        }
        self.decoder.events[self.read as usize % 2].synchronize()?;
        let position = self.first + self.read;
        self.read += 1;
        let (token, vocab) =
            (self.decoder.step.buffers.out.read(position as usize), self.decoder.step.config.vocab);
        if token < vocab { Ok(token) } else { Err(Error::NoToken { position }) }
    }
}

/// Logits, a row a token.
pub struct Rows<'a> {
    decoder: &'a mut Decoder,
    position: u32,
    end: u32,
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
        self.decoder.launch(Kind::Token)?;
        let row = self.decoder.stream.read(&self.decoder.step.buffers.logits)?;
        match row.iter().position(|x| !x.is_finite()) {
            Some(token) => Err(Error::Logit { position: self.position, token, value: row[token] }),
            None => Ok(row),
        }
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
