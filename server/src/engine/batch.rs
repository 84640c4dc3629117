//! An engine over a batch, for many sequences at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use warpwright_driver::Context;
use warpwright_engine::{
    AdapterId, Batch, BatchDraftModel, BatchDraftRequest, BatchItem, BatchOptions, BatchWanted,
    Drafter, Error, LoadablePages, PageFolder, PrefixScope, PreparedAdapter, PromptLookup,
    RowClass, Sampling, SequenceId, TokenChoice,
};
use warpwright_model::Model;

use super::interface::{
    ChosenToken, DraftRequest, Engine, EngineError, EngineLimits, Joined, PageCounts,
    PrepareAdapter, SequenceKey, SequenceStart, StepWork, Stepped, TokenOrigin, Wanted,
};

/// The number of positions per page of a batch.
const PAGE: u32 = 64;

/// The maximum number of best log-probabilities per token.
const LOGPROBS: u32 = 20;

/// The maximum number of bytes of saved pages that are loaded before a prompt needs them, so that
/// the server starts within seconds.
const PRELOADED_BYTES: u64 = 4 << 30;

/// An engine over a [`Batch`].
pub struct BatchEngine {
    batch: Batch,
    limits: EngineLimits,
    stop: Vec<u32>,
    joined: u64,
    sequences: BTreeMap<SequenceKey, BatchSequence>,
    /// The folder in which pages are saved.
    folder: Option<PageFolder>,
    /// The source of drafts.
    drafts: DraftSource,
    lost: Option<String>,
}

/// The source of the drafts of a [`BatchEngine`].
pub enum DraftSource {
    /// There are no drafts.
    Nothing,
    /// The tokens that followed the latest tokens when they occurred before in the same text.
    Lookup(PromptLookup),
    /// A smaller model with the same vocabulary.
    Model(Box<BatchDraftModel>),
}

/// A sequence of a [`BatchEngine`].
struct BatchSequence {
    id: SequenceId,
    sampling: Sampling,
    /// The number that cached prefixes must share.
    salt: u64,
}

impl BatchEngine {
    /// Uploads the weights of `model` and returns an engine without sequences. The options need not
    /// allow sampling.
    ///
    /// `progress` is called from other threads with the number of bytes copied so far.
    ///
    /// # Errors
    /// Returns the errors of [`Batch::new`].
    pub fn load(
        context: &Context,
        model: &Model,
        options: BatchOptions,
        progress: impl FnMut(u64) + Send,
    ) -> Result<BatchEngine, Error> {
        let options = BatchOptions {
            choice: TokenChoice::Constrained { logprobs: LOGPROBS },
            ..options
        };
        let batch = Batch::new(context, model, options, progress)?;
        let (_, pages) = batch.free_pages();
        Ok(BatchEngine {
            batch,
            limits: EngineLimits {
                sequences: options.sequences,
                ctx: options.ctx,
                tokens_per_step: options.tokens,
                pages,
                page_len: PAGE,
                vocab: model.outline.config.vocab,
                logprobs: LOGPROBS,
            },
            stop: model.outline.stop.clone(),
            joined: 0,
            sequences: BTreeMap::new(),
            folder: None,
            drafts: DraftSource::Nothing,
            lost: None,
        })
    }

    /// Makes the saved pages of a folder available to prompts, and saves pages there when the server
    /// shuts down. Returns the available pages.
    ///
    /// The most recently used pages are loaded now, up to half of the cache and 4 GiB. Others are
    /// loaded when a prompt needs them, which delays the step.
    ///
    /// # Errors
    /// Returns the errors of [`Batch::load_kept`] and [`Batch::preload_kept`].
    pub fn keep_pages_in(&mut self, folder: PageFolder) -> Result<LoadablePages, Error> {
        let loadable = self.batch.load_kept(&folder)?;
        if loadable.pages > 0 {
            let page_bytes = (loadable.bytes / u64::from(loadable.pages)).max(1);
            let most = (PRELOADED_BYTES / page_bytes).min(u64::from(self.limits.pages / 2));
            self.batch.preload_kept(most as u32)?;
        }
        self.folder = Some(folder);
        Ok(loadable)
    }

    /// Sets the source of drafts.
    pub fn set_drafts(&mut self, drafts: DraftSource) {
        self.drafts = drafts;
    }

    /// Builds the graphs of steps with up to `rows` tokens and drafts: see
    /// [`Batch::compile_drafts`].
    ///
    /// # Errors
    /// Returns a driver error if a kernel cannot be compiled.
    pub fn compile_drafts(&mut self, rows: u32) -> Result<(), Error> {
        self.batch.compile_drafts(rows)
    }

    /// Compiles the kernels of all steps, so that no request waits for them: see
    /// [`Batch::compile`].
    ///
    /// # Errors
    /// Returns a driver error if a kernel cannot be compiled.
    pub fn compile(&mut self, progress: impl FnMut(usize, usize)) -> Result<(), Error> {
        self.batch.compile(progress)
    }

    /// Returns the batch.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    fn check_lost(&self) -> Result<(), EngineError> {
        match &self.lost {
            Some(reason) => Err(EngineError::Lost(reason.clone())),
            None => Ok(()),
        }
    }

    /// Translates an error of the batch.
    fn failed(&mut self, error: &Error) -> EngineError {
        match error {
            Error::Driver(_) => {
                let reason = error.to_string();
                self.lost = Some(reason.clone());
                EngineError::Lost(reason)
            }
            Error::NoPages { needed, free, .. } => EngineError::NoPages {
                needed: *needed,
                free: *free,
            },
            Error::InSequence { sequence, error } => {
                let found = self
                    .sequences
                    .iter()
                    .find(|(_, found)| found.id == *sequence);
                match found {
                    Some((key, _)) => EngineError::Sequence {
                        key: *key,
                        reason: error.to_string(),
                    },
                    None => EngineError::Unsupported(error.to_string()),
                }
            }
            _ => EngineError::Unsupported(error.to_string()),
        }
    }

    fn sequence(&self, key: SequenceKey) -> &BatchSequence {
        self.sequences
            .get(&key)
            .expect("work names joined sequences")
    }

    /// Returns the number of processed tokens of a sequence.
    fn len(&self, key: SequenceKey) -> Result<u32, Error> {
        Ok(self.batch.tokens(self.sequence(key).id)?.len() as u32)
    }

    /// Returns a token that was chosen after a position, with its log-probabilities if they are
    /// wanted.
    fn chosen(&self, key: SequenceKey, token: u32, position: u32) -> Result<ChosenToken, Error> {
        let BatchSequence { id, sampling, .. } = self.sequence(key);
        let probabilities = if sampling.logprobs > 0 {
            self.batch.log_probabilities(*id, position)?
        } else {
            None
        };
        Ok(ChosenToken {
            token,
            probabilities,
        })
    }

    fn step_items(
        &mut self,
        work: &mut [StepWork<'_>],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Vec<Stepped>, Error> {
        let items = work.iter_mut().map(|work| BatchItem {
            sequence: self.sequences[&work.key].id,
            tokens: work.tokens,
            class: match work.origin {
                TokenOrigin::Prompt => RowClass::Prompt,
                TokenOrigin::Model => RowClass::Decode,
            },
            wanted: match work.wanted {
                Wanted::Nothing => BatchWanted::Nothing,
                Wanted::Next => BatchWanted::Next,
                Wanted::Verified => BatchWanted::Verified,
                Wanted::Scored { best, following } => BatchWanted::Scored { best, following },
            },
            matcher: work.matcher.as_deref_mut(),
        });
        let mut items: Vec<BatchItem<'_>> = items.collect();
        let results = self.batch.step_items_with(&mut items, meanwhile)?;

        let mut stepped = vec![];
        for (work, result) in work.iter().zip(results) {
            let next = match result.next {
                Some(token) => Some(self.chosen(work.key, token, self.len(work.key)? - 1)?),
                None => None,
            };
            // The sequence has the first given token and the accepted drafts now.
            let first = self.len(work.key)? - result.verified.len() as u32;
            let verified = (first..)
                .zip(result.verified)
                .map(|(position, token)| self.chosen(work.key, token, position));
            stepped.push(Stepped {
                next,
                verified: verified.collect::<Result<_, Error>>()?,
                scored: result.scored,
            });
        }
        Ok(stepped)
    }

    fn decode_steps(
        &mut self,
        work: &[(SequenceKey, u32)],
        steps: u32,
    ) -> Result<Vec<Vec<ChosenToken>>, Error> {
        let mut firsts = vec![];
        let mut given = vec![];
        for (key, token) in work {
            firsts.push(self.len(*key)?);
            given.push((self.sequence(*key).id, *token));
        }
        let made = self.batch.decode(&given, steps)?;
        let mut results = vec![];
        for (((key, _), first), tokens) in work.iter().zip(firsts).zip(made) {
            let chosen = (first..)
                .zip(tokens)
                .map(|(position, token)| self.chosen(*key, token, position));
            results.push(chosen.collect::<Result<_, Error>>()?);
        }
        Ok(results)
    }

    /// Returns the loaded adapter with a key.
    fn adapter(&self, key: &str) -> Result<AdapterId, Error> {
        let mut adapters = self.batch.adapters();
        let found = adapters.find(|adapter| adapter_key(*adapter) == key);
        found.ok_or(Error::NoAdapter)
    }

    fn join_batch(&mut self, start: &SequenceStart<'_>) -> Result<(SequenceId, u32), Error> {
        let adapter = start.adapter.map(|key| self.adapter(key)).transpose()?;
        let scope = PrefixScope {
            adapter: adapter.map_or(0, AdapterId::scope),
            ..PrefixScope::salted(start.salt)
        };
        let (id, cached) = self.batch.join_prompt(start.prompt, scope)?;
        for file in self.batch.take_ignored_files() {
            tracing::warn!(file = %file.path.display(), "a saved page is ignored: {}", file.reason);
        }
        let set = self.batch.set_sampling(id, start.sampling);
        if let Err(error) = set {
            self.batch.leave(id)?;
            return Err(error);
        }
        Ok((id, cached))
    }
}

impl Engine for BatchEngine {
    fn limits(&self) -> EngineLimits {
        self.limits
    }

    fn stop(&self) -> &[u32] {
        &self.stop
    }

    fn pages(&self) -> PageCounts {
        let pages = self.batch.page_counts();
        PageCounts {
            used: pages.used,
            kept: pages.kept,
            free: pages.free,
        }
    }

    fn join(&mut self, start: &SequenceStart<'_>) -> Result<Joined, EngineError> {
        self.check_lost()?;
        let joined = self.join_batch(start);
        let (id, cached) = joined.map_err(|error| self.failed(&error))?;
        let key = SequenceKey(self.joined);
        self.joined += 1;
        let sequence = BatchSequence {
            id,
            sampling: start.sampling.clone(),
            salt: start.salt,
        };
        self.sequences.insert(key, sequence);
        Ok(Joined { key, cached })
    }

    fn leave(&mut self, key: SequenceKey) {
        let sequence = self.sequences.remove(&key);
        let sequence = sequence.expect("only joined sequences leave");
        let left = self.batch.leave(sequence.id);
        left.expect("the batch has the sequences of the engine");
        if let DraftSource::Model(model) = &mut self.drafts {
            model.forget(key.0);
        }
    }

    fn step(&mut self, work: &mut [StepWork<'_>]) -> Result<Vec<Stepped>, EngineError> {
        self.step_with(work, &mut || ())
    }

    fn step_with(
        &mut self,
        work: &mut [StepWork<'_>],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Vec<Stepped>, EngineError> {
        self.check_lost()?;
        let stepped = self.step_items(work, meanwhile);
        stepped.map_err(|error| self.failed(&error))
    }

    fn verified_per_step(&self) -> u32 {
        self.batch.verified_per_step()
    }

    fn draft(&mut self, work: &[DraftRequest<'_>]) -> Result<Vec<Vec<u32>>, EngineError> {
        self.check_lost()?;
        let drafts = match &mut self.drafts {
            DraftSource::Nothing => Ok(vec![vec![]; work.len()]),
            DraftSource::Lookup(lookup) => work
                .iter()
                .map(|request| lookup.draft(request.tokens, request.most as u32))
                .collect(),
            DraftSource::Model(model) => {
                let requests = work.iter().map(|request| {
                    let sequence = &self.sequences[&request.key];
                    BatchDraftRequest {
                        text: request.key.0,
                        tokens: request.tokens,
                        most: request.most as u32,
                        sampling: &sequence.sampling,
                        salt: sequence.salt,
                    }
                });
                model.draft(&requests.collect::<Vec<_>>())
            }
        };
        drafts.map_err(|error| self.failed(&error))
    }

    fn draft_cost(&self) -> f64 {
        match &self.drafts {
            DraftSource::Nothing | DraftSource::Lookup(_) => 0.0,
            DraftSource::Model(model) => model.cost(),
        }
    }

    fn decode(
        &mut self,
        work: &[(SequenceKey, u32)],
        steps: u32,
    ) -> Result<Vec<Vec<ChosenToken>>, EngineError> {
        self.check_lost()?;
        let decoded = self.decode_steps(work, steps);
        decoded.map_err(|error| self.failed(&error))
    }

    fn embed(&mut self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, EngineError> {
        self.check_lost()?;
        let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        let vectors = self.batch.embed(&texts);
        vectors.map_err(|error| self.failed(&error))
    }

    fn adapter_preparation(&self) -> Option<PrepareAdapter> {
        let preparer = self.batch.adapter_preparer();
        Some(Arc::new(move |adapter| {
            let prepared = preparer.prepare(adapter);
            prepared.map_err(|error| EngineError::Unsupported(error.to_string()))
        }))
    }

    fn load_adapter(&mut self, adapter: Arc<PreparedAdapter>) -> Result<String, EngineError> {
        self.check_lost()?;
        match self.batch.load_prepared(adapter) {
            Ok(id) => Ok(adapter_key(id)),
            // The adapters that were loaded before are still there.
            Err(Error::Driver(error @ warpwright_driver::Error::OutOfMemory { .. })) => {
                Err(EngineError::Unsupported(error.to_string()))
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn unload_adapter(&mut self, key: &str) -> Result<(), EngineError> {
        self.check_lost()?;
        let unloaded = self
            .adapter(key)
            .and_then(|id| self.batch.unload_adapter(id));
        unloaded.map_err(|error| self.failed(&error))
    }

    fn save(&mut self) -> Result<(), String> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let saved = self.batch.save_kept(folder);
        let saved = saved.map_err(|error| format!("the pages are not saved: {error}"))?;
        tracing::info!(?saved, folder = %folder.path().display(), "saved the pages of prompts");
        Ok(())
    }
}

/// Returns the key of an adapter.
fn adapter_key(adapter: AdapterId) -> String {
    format!("{:016x}", adapter.scope())
}
