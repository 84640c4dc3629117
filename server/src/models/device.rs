//! Models on a device.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpwright_driver::Context;
use warpwright_engine::info::weight_bytes;
use warpwright_engine::{
    BatchDraftModel, BatchDraftOptions, BatchOptions, BatchRounding, Decoder, Error, Launch,
    Options, PageFolder, PrefixReuse, PromptLookup, same_vocabulary,
};
use warpwright_model::Model;

use super::adapters::{AdapterEntry, AdapterOptions, AdapterTable};
use super::loader::{LoadError, LoadProgress, ModelEntry, ModelLoader};
use super::opened::OpenedModel;
use super::overrides::RequestOverrides;
use super::served::ServedModel;
use crate::engine::{BatchEngine, DecoderEngine, DraftSource, Engine};
use crate::scheduler::{Scheduler, SchedulerOptions, SpeculationOptions};

/// The maximum number of positions per sequence, unless more are asked for. Agents send prompts of
/// several thousand tokens, and the memory of longer contexts is better used for more sequences.
const USUAL_CTX: u32 = 8192;

/// The maximum number of sequences at a time, unless another one is asked for.
const USUAL_SEQUENCES: u32 = 64;

/// The number of positions per page of a batch's cache.
const PAGE: u64 = 64;

/// The length of prompt chunks in deterministic mode.
const EXACT_CHUNK: u32 = 512;

/// The maximum number of tokens of prompts that a draft model processes between two steps, so that
/// the other texts go on.
const DRAFTED_PER_STEP: u32 = 1024;

/// Opens the device. A function, because the context belongs to the thread that loads the model.
pub type OpenContext = Arc<dyn Fn() -> Result<Context, String> + Send + Sync>;

/// The options of a model on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceOptions {
    /// The number of positions per sequence, or `None` for the usual number.
    pub ctx: Option<u32>,
    /// The maximum number of sequences at a time, or `None` for the usual number.
    pub sequences: Option<u32>,
    /// The maximum number of requests that wait for a slot.
    pub queue: usize,
    /// The dependence of a text on other requests.
    pub repetition: Repetition,
    /// The folder that keeps pages of the cache over a restart.
    pub cache: Option<CacheFolder>,
    /// The adapters.
    pub adapters: AdapterOptions,
    /// The drafts of texts, or `None` without drafts.
    pub drafts: Option<DraftOptions>,
}

/// The drafts of texts, and their use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftOptions {
    /// The source of the drafts.
    pub source: DraftOrigin,
    /// The use of the drafts.
    pub speculation: SpeculationOptions,
}

/// The source of drafts, before a model is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftOrigin {
    /// Prompt lookup: the tokens that followed the latest tokens when they occurred before.
    Lookup {
        /// The maximum number of latest tokens to look for.
        longest: u32,
    },
    /// A smaller model with the same vocabulary, in this file or folder.
    Model(PathBuf),
}

/// The dependence of a text on other requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Repetition {
    /// A request may get another text if other requests run with it, because the fastest kernels
    /// round differently for other numbers of rows.
    #[default]
    Fastest,
    /// A request gets the same text, regardless of the requests that run at the same time.
    Exact,
}

/// A folder that keeps pages of the cache over a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheFolder {
    /// The folder.
    pub path: PathBuf,
    /// The maximum size of its files in bytes.
    pub bytes: u64,
}

/// Loads models on a device.
pub struct DeviceLoader {
    open: OpenContext,
    options: DeviceOptions,
    overrides: RequestOverrides,
}

/// An engine, and the reason for its choice.
struct ChosenEngine {
    engine: Box<dyn Engine>,
    /// The engine as the end of the sentence "serving .. by ..".
    description: String,
    /// The loaded adapters with their keys.
    adapters: Vec<(AdapterEntry, String)>,
}

/// The result of an attempt to load a batch.
enum BatchAttempt {
    Loaded(Box<BatchEngine>),
    /// There are no kernels for batches of this model on this device, for this reason.
    Unsupported(String),
}

impl DeviceLoader {
    /// Returns a loader for the device that `open` opens.
    pub fn new(
        open: OpenContext,
        options: DeviceOptions,
        overrides: RequestOverrides,
    ) -> DeviceLoader {
        DeviceLoader {
            open,
            options,
            overrides,
        }
    }

    /// Loads the weights into a batch if there are kernels for it, and into a decoder otherwise.
    fn engine(
        &self,
        context: &Context,
        opened: &OpenedModel,
        progress: &LoadProgress,
    ) -> Result<ChosenEngine, LoadError> {
        let model = &opened.model;
        progress.set(0, weight_bytes(&model.outline));
        // The draft model is loaded first, because the cache of the other one is made to fit into
        // the memory that is left.
        let drafts = self.draft_source(context, opened, progress)?;
        let device = context.device().name();
        let why = if self.prefers_decoder(context) {
            "the emulator is faster with one: --sequences 2 makes a batch".to_owned()
        } else {
            match self
                .batch(context, model, progress)
                .map_err(|error| drafts.explain(error))?
            {
                BatchAttempt::Loaded(mut engine) => {
                    self.keep_pages(&mut engine, model)?;
                    let adapters = self.load_adapters(&mut engine, model)?;
                    engine.set_drafts(drafts.source);

                    // The emulator compiles each kernel in milliseconds.
                    if !is_emulator(context)
                        && let Err(error) = self.compile(&mut engine)
                    {
                        // A step that needs the kernel reports the error to its requests.
                        tracing::warn!(%error, "cannot compile all kernels ahead");
                    }
                    return Ok(ChosenEngine {
                        engine,
                        description: format!("the kernels for batches on {device}"),
                        adapters,
                    });
                }
                BatchAttempt::Unsupported(why) => why,
            }
        };

        if let Some(option) = self.batch_option() {
            return Err(LoadError::Failed(format!(
                "{option} needs the kernels for batches, and this model has none here: {why}"
            )));
        }
        let engine = self.decoder(context, model, progress)?;
        Ok(ChosenEngine {
            engine: Box::new(engine),
            description: format!("a decoder on {device} ({why})"),
            adapters: vec![],
        })
    }

    /// Returns the source of drafts. A draft model is loaded.
    fn draft_source(
        &self,
        context: &Context,
        opened: &OpenedModel,
        progress: &LoadProgress,
    ) -> Result<LoadedDrafts, LoadError> {
        let Some(DraftOptions {
            source,
            speculation,
        }) = &self.options.drafts
        else {
            return Ok(LoadedDrafts::of_source(DraftSource::Nothing));
        };
        match source {
            DraftOrigin::Lookup { longest } => {
                let lookup = PromptLookup {
                    longest: *longest,
                    ..PromptLookup::default()
                };
                Ok(LoadedDrafts::of_source(DraftSource::Lookup(lookup)))
            }
            DraftOrigin::Model(path) => {
                let options = BatchDraftOptions {
                    texts: speculation.sequences,
                    ctx: self.ctx(&opened.model),
                    tokens_per_call: DRAFTED_PER_STEP,
                };
                load_draft_model(context, opened, path, options, progress)
            }
        }
    }

    /// Compiles the kernels of all steps.
    fn compile(&self, engine: &mut BatchEngine) -> Result<(), Error> {
        engine.compile(log_compilation())?;
        let Some(DraftOptions { speculation, .. }) = &self.options.drafts else {
            return Ok(());
        };
        engine.compile_drafts(speculation.sequences * (speculation.drafts + 1))
    }

    /// Returns true if no option needs a batch, and if a batch is slower than a decoder.
    fn prefers_decoder(&self, context: &Context) -> bool {
        is_emulator(context) && self.batch_option().is_none()
    }

    /// Returns the first option that only a batch has.
    fn batch_option(&self) -> Option<&'static str> {
        let options = &self.options;
        if options.sequences.is_some_and(|sequences| sequences > 1) {
            return Some("--sequences");
        }
        if options.repetition == Repetition::Exact {
            return Some("--deterministic");
        }
        if let Some(drafts) = &options.drafts {
            return Some(match drafts.source {
                DraftOrigin::Lookup { .. } => "--lookup",
                DraftOrigin::Model(_) => "--draft",
            });
        }
        if options.cache.is_some() {
            return Some("--cache-dir");
        }
        if !options.adapters.loaded.is_empty() {
            return Some("--lora");
        }
        options.adapters.folder.as_ref().map(|_| "--lora-dir")
    }

    fn ctx(&self, model: &Model) -> u32 {
        let most = model.outline.config.context;
        self.options.ctx.unwrap_or_else(|| USUAL_CTX.min(most))
    }

    fn batch(
        &self,
        context: &Context,
        model: &Model,
        progress: &LoadProgress,
    ) -> Result<BatchAttempt, LoadError> {
        let total = weight_bytes(&model.outline);
        let load =
            |options| BatchEngine::load(context, model, options, |done| progress.set(done, total));
        let options = self.batch_options(model);
        let mut loaded = load(options);
        if let Err(Error::BatchMemory { room, .. }) = &loaded {
            // All sequences with a full context do not fit. As many pages as fit serve as many
            // sequences as there are short ones. A little is left free for other programs.
            let pages = room / PAGE;
            let spare = if self.options.adapters.are_used() {
                // Adapters are loaded next to the pages.
                pages / 8
            } else {
                pages / 32
            };
            let positions = (pages - spare) * PAGE;
            if positions >= u64::from(options.ctx.next_multiple_of(PAGE as u32)) {
                loaded = load(BatchOptions {
                    positions: positions as u32,
                    ..options
                });
            }
        }
        match loaded {
            Ok(engine) => Ok(BatchAttempt::Loaded(Box::new(engine))),
            Err(Error::NoBatch { why }) => Ok(BatchAttempt::Unsupported(why)),
            Err(error) => Err(failure(&error)),
        }
    }

    fn batch_options(&self, model: &Model) -> BatchOptions {
        let sequences = self.options.sequences.unwrap_or(USUAL_SEQUENCES);
        let options = BatchOptions {
            steps_per_launch: self.scheduler_options().steps_per_launch,
            ..BatchOptions::new(sequences, self.ctx(model))
        };
        match self.options.repetition {
            Repetition::Fastest => options,
            Repetition::Exact => BatchOptions {
                rounding: BatchRounding::Same,
                // Only pages of prompts are reused, because tokens that the model chose are computed
                // by other kernels than prompts.
                reuse: PrefixReuse::Chunks(PAGE as u32),
                ..options
            },
        }
    }

    /// Loads the adapters that are loaded with the model, and returns their keys.
    fn load_adapters(
        &self,
        engine: &mut BatchEngine,
        model: &Model,
    ) -> Result<Vec<(AdapterEntry, String)>, LoadError> {
        let mut loaded = vec![];
        let prepare = engine.adapter_preparation();
        let prepare = prepare.expect("a batch has adapters");
        for entry in &self.options.adapters.loaded {
            let failed =
                |error: String| LoadError::Failed(format!("--lora {}: {error}", entry.name));
            let adapter = model
                .outline
                .read_adapter(&entry.path)
                .map_err(|error| failed(error.to_string()))?;
            let prepared = prepare(&adapter).map_err(|error| failed(error.to_string()))?;
            let key = engine
                .load_adapter(Arc::new(prepared))
                .map_err(|error| failed(error.to_string()))?;
            tracing::info!(name = entry.name, path = %entry.path.display(), "loaded an adapter");
            loaded.push((entry.clone(), key));
        }
        Ok(loaded)
    }

    /// Makes the engine keep pages in the folder, and reports the pages that it finds there.
    fn keep_pages(&self, engine: &mut BatchEngine, model: &Model) -> Result<(), LoadError> {
        let Some(CacheFolder { path, bytes }) = &self.options.cache else {
            return Ok(());
        };
        let opened = PageFolder::open(path, model, *bytes);
        let found = opened.and_then(|folder| engine.keep_pages_in(folder));
        let found = found.map_err(|error| failure(&error))?;
        for file in &found.ignored {
            tracing::debug!(path = %file.path.display(), reason = file.reason, "not used");
        }
        tracing::info!(
            folder = %path.display(),
            pages = found.pages,
            bytes = found.bytes,
            ignored = found.ignored.len(),
            "kept pages"
        );
        Ok(())
    }

    fn decoder(
        &self,
        context: &Context,
        model: &Model,
        progress: &LoadProgress,
    ) -> Result<DecoderEngine, LoadError> {
        let total = weight_bytes(&model.outline);
        let options = Options::new(self.ctx(model), Launch::Graph);
        Decoder::check(context, &model.outline, options)
            .and_then(|_| {
                DecoderEngine::load(context, model, options, |done| progress.set(done, total))
            })
            .map_err(|error| failure(&error))
    }

    fn scheduler_options(&self) -> SchedulerOptions {
        SchedulerOptions {
            queue: self.options.queue,
            exact_chunk: match self.options.repetition {
                Repetition::Fastest => None,
                Repetition::Exact => Some(EXACT_CHUNK),
            },
            speculation: self
                .options
                .drafts
                .as_ref()
                .map(|drafts| drafts.speculation),
            ..SchedulerOptions::default()
        }
    }
}

/// Returns a function that logs the progress of a compilation. A short one logs nothing.
fn log_compilation() -> impl FnMut(usize, usize) {
    const INTERVAL: Duration = Duration::from_secs(5);
    let mut latest = Instant::now();
    move |done, all| {
        if latest.elapsed() >= INTERVAL {
            latest = Instant::now();
            tracing::info!(
                "compiled the kernels of {done} of {all} step sizes; the driver keeps them for later starts"
            );
        }
    }
}

/// The source of drafts, and the device memory that it takes.
struct LoadedDrafts {
    source: DraftSource,
    bytes: u64,
}

impl LoadedDrafts {
    /// Returns a source that takes no device memory.
    fn of_source(source: DraftSource) -> LoadedDrafts {
        LoadedDrafts { source, bytes: 0 }
    }

    /// Adds the memory of the draft model to an error about too little memory.
    fn explain(&self, error: LoadError) -> LoadError {
        match error {
            LoadError::Memory(message) if self.bytes > 0 => LoadError::Memory(format!(
                "{message}; --draft takes {} MB in addition: leave it out, or lower --draft-sequences or --ctx",
                self.bytes.div_ceil(1_000_000)
            )),
            error => error,
        }
    }
}

/// Loads a draft model, which must have the vocabulary of the opened one.
fn load_draft_model(
    context: &Context,
    opened: &OpenedModel,
    path: &Path,
    options: BatchDraftOptions,
    progress: &LoadProgress,
) -> Result<LoadedDrafts, LoadError> {
    let named = |error: String| format!("--draft {}: {error}", path.display());
    let refused = |error: String| LoadError::Failed(named(error));
    let draft = Model::open(path).map_err(|error| refused(error.to_string()))?;
    let tokenizer = draft
        .tokenizer()
        .map_err(|error| refused(error.to_string()))?;
    same_vocabulary(&opened.tokenizer, &tokenizer).map_err(|error| refused(error.to_string()))?;

    let total = weight_bytes(&draft.outline);
    let memory = || context.memory().map(|(free, _)| free as u64);
    let before = memory().map_err(|error| refused(error.to_string()))?;
    let outline = &opened.model.outline;
    let loaded = BatchDraftModel::load(context, &draft, outline, options, |done| {
        progress.set(done, total);
    });
    let mut model = loaded.map_err(|error| match failure(&error) {
        LoadError::Memory(message) => LoadError::Memory(named(message)),
        LoadError::Failed(message) => refused(message),
    })?;
    // The emulator compiles each kernel in milliseconds.
    if !is_emulator(context)
        && let Err(error) = model.compile(log_compilation())
    {
        tracing::warn!(%error, "cannot compile all kernels of the draft model ahead");
    }
    let after = memory().map_err(|error| refused(error.to_string()))?;
    let bytes = before.saturating_sub(after);
    tracing::info!(path = %path.display(), bytes, "loaded the draft model");
    Ok(LoadedDrafts {
        source: DraftSource::Model(Box::new(model)),
        bytes,
    })
}

impl ModelLoader for DeviceLoader {
    fn load(&self, entry: &ModelEntry, progress: &LoadProgress) -> Result<ServedModel, LoadError> {
        let mut opened = OpenedModel::open(&entry.path).map_err(LoadError::Failed)?;
        self.overrides
            .apply(&mut opened)
            .map_err(LoadError::Failed)?;
        for warning in &opened.warnings {
            tracing::warn!(model = entry.name, "{warning}");
        }

        let context = (self.open)().map_err(LoadError::Failed)?;
        let chosen = self.engine(&context, &opened, progress)?;
        opened.description.engine = chosen.description;
        let scheduler = Scheduler::start(chosen.engine, self.scheduler_options());
        let options = &self.options.adapters;
        let adapters = options.are_used().then(|| {
            Arc::new(AdapterTable::new(
                entry.name.clone(),
                scheduler.clone(),
                opened.model.outline.clone(),
                options.folder.clone(),
                chosen.adapters,
            ))
        });
        Ok(ServedModel {
            adapters,
            ..opened.serve(entry.name.clone(), scheduler)
        })
    }
}

/// Translates an error of the engine.
fn failure(error: &Error) -> LoadError {
    let is_memory = matches!(
        error,
        Error::Memory { .. }
            | Error::BatchMemory { .. }
            | Error::Driver(warpwright_driver::Error::OutOfMemory { .. })
    );
    if is_memory {
        LoadError::Memory(error.to_string())
    } else {
        LoadError::Failed(error.to_string())
    }
}
/// Returns true if the device is the emulator.
fn is_emulator(context: &Context) -> bool {
    context.driver().api().emuMemSetLabel.is_some()
}
