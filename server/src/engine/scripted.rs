//! An engine that answers from scripts, for tests without a model.
//!
//! It counts tokens, positions and pages as a real engine does, and it panics where its caller
//! breaks the rules of [`Engine`]. Only the tokens come from a function.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use warpwright_engine::{LogProbabilities, Sampling};
use warpwright_model::Matcher;

use super::interface::{
    ChosenToken, DraftRequest, Engine, EngineError, EngineLimits, Joined, PageCounts,
    PrepareAdapter, SequenceKey, SequenceStart, StepWork, Stepped, Wanted,
};

/// A function that returns the reply to a prompt. A token that ends texts belongs to the reply.
pub type Script = Box<dyn FnMut(&[u32]) -> Vec<u32> + Send>;

/// The length of a [`ScriptedEngine`]'s embeddings.
pub const EMBEDDING_LEN: usize = 16;

/// The maximum number of interrupted replies that are remembered.
const MAX_INTERRUPTED: usize = 1024;

/// A failure that a [`ScriptedEngine`] shows on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlannedFailure {
    /// The device is lost in the step after this many steps.
    LostAfter(u64),
    /// The engine panics in the step after this many steps.
    PanicAfter(u64),
    /// The step after this many steps finds no page, once.
    NoPagesAfter(u64),
    /// Every sequence that contains this token fails when it is stepped.
    BadToken(u32),
}

/// A call of [`Engine::step`] or [`Engine::decode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRecord {
    /// The number of decode steps, or 0 for [`Engine::step`].
    pub decode_steps: u32,
    /// The sequences of the step with the position of their first token and the number of tokens.
    pub rows: Vec<StepRow>,
}

/// A sequence in a [`StepRecord`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepRow {
    /// The sequence.
    pub key: SequenceKey,
    /// The position of the first given token.
    pub position: u32,
    /// The number of given tokens, without drafts.
    pub tokens: u32,
    /// The number of drafts.
    pub drafts: u32,
}

/// The calls of an engine that have succeeded, in order. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct StepLog(Arc<Mutex<Vec<StepRecord>>>);

impl StepLog {
    /// Returns the calls so far.
    pub fn records(&self) -> Vec<StepRecord> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn push(&self, record: StepRecord) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(record);
    }
}

/// The behavior of a [`ScriptedEngine`] at prompts that begin like an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrefixReuse {
    /// Every prompt is processed as a whole.
    #[default]
    None,
    /// Full pages of sequences that have left are kept and reused.
    Pages,
}

/// A function that returns drafts after the tokens of a sequence, at most as many as its second
/// argument.
pub type DraftScript = Box<dyn FnMut(&[u32], usize) -> Vec<u32> + Send>;

/// The drafts of a [`ScriptedEngine`].
struct ScriptedDrafts {
    script: DraftScript,
    /// The maximum number of tokens that a step with drafts chooses.
    verified_per_step: u32,
}

/// An engine that answers from scripts.
///
/// # Example: an engine that repeats the prompt
///
/// ```
/// use warpwright_server::engine::{EngineLimits, ScriptedEngine};
///
/// let limits = EngineLimits {
///     sequences: 4,
///     ctx: 256,
///     tokens_per_step: 64,
///     pages: 64,
///     page_len: 16,
///     vocab: 1000,
///     logprobs: 5,
/// };
/// let end = 2;
/// let engine = ScriptedEngine::new(
///     limits,
///     vec![end],
///     Box::new(move |prompt| [prompt, &[end]].concat()),
/// );
/// # let _ = engine;
/// ```
pub struct ScriptedEngine {
    limits: EngineLimits,
    stop: Vec<u32>,
    script: Script,
    step_delay: Duration,
    token_delay: Duration,
    reuse: PrefixReuse,
    drafts: Option<ScriptedDrafts>,
    adapters: Vec<String>,
    prepare: Option<PrepareAdapter>,
    failures: Vec<PlannedFailure>,
    log: StepLog,
    /// The number of steps so far.
    steps: u64,
    joined: u64,
    running: BTreeMap<SequenceKey, ScriptedSequence>,
    /// The prefixes that are kept, the least recently used first.
    kept: VecDeque<KeptPrefix>,
    /// Replies whose sequences left before their end. A sequence that starts with the same tokens
    /// continues one of them.
    interrupted: VecDeque<InterruptedReply>,
    lost: Option<String>,
}

/// A sequence of a [`ScriptedEngine`].
struct ScriptedSequence {
    /// The tokens that are processed.
    tokens: Vec<u32>,
    sampling: Sampling,
    salt: u64,
    adapter: Option<String>,
    /// The reply, once a token of it was wanted.
    reply: Option<ScriptedReply>,
}

/// The reply of a sequence.
#[derive(Clone)]
struct ScriptedReply {
    tokens: Vec<u32>,
    /// The number of tokens chosen so far.
    chosen: usize,
    /// The latest chosen token.
    latest: Option<u32>,
}

/// The tokens of a sequence that has left.
struct KeptPrefix {
    tokens: Vec<u32>,
    salt: u64,
    adapter: Option<String>,
}

/// A reply whose sequence left before its end.
struct InterruptedReply {
    /// The tokens of the sequence, including the one that was chosen but not processed.
    tokens: Vec<u32>,
    reply: ScriptedReply,
}

impl ScriptedEngine {
    /// Returns an engine with these sizes and tokens that end texts. `script` is called with all
    /// tokens of a sequence when its first token is wanted.
    ///
    /// After the end of a reply, its tokens are repeated. An empty reply is the first of `stop`, or
    /// token 0.
    pub fn new(limits: EngineLimits, stop: Vec<u32>, script: Script) -> ScriptedEngine {
        ScriptedEngine {
            limits,
            stop,
            script,
            step_delay: Duration::ZERO,
            token_delay: Duration::ZERO,
            reuse: PrefixReuse::None,
            drafts: None,
            adapters: vec![],
            prepare: None,
            failures: vec![],
            log: StepLog::default(),
            steps: 0,
            joined: 0,
            running: BTreeMap::new(),
            kept: VecDeque::new(),
            interrupted: VecDeque::new(),
            lost: None,
        }
    }

    /// Sleeps this long in every step, and this long again for every token in it.
    pub fn with_delays(mut self, step: Duration, token: Duration) -> ScriptedEngine {
        self.step_delay = step;
        self.token_delay = token;
        self
    }

    /// Sets the behavior at prompts that begin like an earlier one.
    pub fn with_prefix_reuse(mut self, reuse: PrefixReuse) -> ScriptedEngine {
        self.reuse = reuse;
        self
    }

    /// Proposes and verifies drafts. A step with drafts chooses at most `verified_per_step` tokens,
    /// which must not be less than the number of sequences.
    pub fn with_drafts(mut self, verified_per_step: u32, script: DraftScript) -> ScriptedEngine {
        self.drafts = Some(ScriptedDrafts {
            script,
            verified_per_step,
        });
        self
    }

    /// Sets the names of the loaded adapters.
    pub fn with_adapters(mut self, adapters: Vec<String>) -> ScriptedEngine {
        self.adapters = adapters;
        self
    }

    /// Sets the function that prepares adapters. The engine loads none.
    pub fn with_adapter_preparation(mut self, prepare: PrepareAdapter) -> ScriptedEngine {
        self.prepare = Some(prepare);
        self
    }

    /// Adds a failure that the engine will show.
    pub fn with_failure(mut self, failure: PlannedFailure) -> ScriptedEngine {
        self.failures.push(failure);
        self
    }

    /// Returns the list that the engine writes its calls to.
    pub fn log(&self) -> StepLog {
        self.log.clone()
    }

    /// Returns an error if the device is lost.
    fn check_lost(&self) -> Result<(), EngineError> {
        match &self.lost {
            Some(reason) => Err(EngineError::Lost(reason.clone())),
            None => Ok(()),
        }
    }

    /// Shows the planned failures of the next step over these sequences.
    fn fail_as_planned(&mut self, work: &[(SequenceKey, &[u32])]) -> Result<(), EngineError> {
        for index in 0..self.failures.len() {
            match self.failures[index] {
                PlannedFailure::LostAfter(steps) if self.steps >= steps => {
                    let reason = "a planned failure".to_owned();
                    self.lost = Some(reason.clone());
                    return Err(EngineError::Lost(reason));
                }
                PlannedFailure::PanicAfter(steps) if self.steps >= steps => {
                    panic!("a planned panic of the scripted engine")
                }
                PlannedFailure::NoPagesAfter(steps) if self.steps >= steps => {
                    self.failures.remove(index);
                    return Err(EngineError::NoPages { needed: 1, free: 0 });
                }
                PlannedFailure::BadToken(token) => self.fail_at(token, work)?,
                PlannedFailure::LostAfter(_)
                | PlannedFailure::PanicAfter(_)
                | PlannedFailure::NoPagesAfter(_) => {}
            }
        }
        Ok(())
    }

    /// Fails for the first sequence that contains this token.
    fn fail_at(&self, token: u32, work: &[(SequenceKey, &[u32])]) -> Result<(), EngineError> {
        for (key, tokens) in work {
            if tokens.contains(&token) || self.running[key].tokens.contains(&token) {
                return Err(EngineError::Sequence {
                    key: *key,
                    reason: format!("a planned failure at token {token}"),
                });
            }
        }
        Ok(())
    }

    /// Checks the rules of a step, and takes pages for `more` tokens per sequence.
    fn begin(&mut self, work: &[(SequenceKey, &[u32])], more: usize) -> Result<(), EngineError> {
        self.check_lost()?;
        let mut named = HashSet::new();
        let mut total = 0;
        for (key, tokens) in work {
            let sequence = self
                .running
                .get(key)
                .expect("a step names joined sequences");
            assert!(named.insert(*key), "a step names a sequence once");
            assert!(!tokens.is_empty(), "a step gives each sequence tokens");
            let vocab = self.limits.vocab;
            assert!(
                tokens.iter().all(|token| *token < vocab),
                "ids are below {vocab}"
            );
            let len = sequence.tokens.len() + tokens.len() + more;
            assert!(
                len <= self.limits.ctx as usize,
                "a sequence fits into the context"
            );
            total += tokens.len();
        }

        let most = self.limits.tokens_per_step as usize;
        assert!(
            (1..=most).contains(&total),
            "a step has 1 to {most} tokens, not {total}"
        );
        self.fail_as_planned(work)?;
        self.take_pages(work, more)
    }

    /// Frees kept pages as far as a step needs them.
    fn take_pages(
        &mut self,
        work: &[(SequenceKey, &[u32])],
        more: usize,
    ) -> Result<(), EngineError> {
        let needed: u32 = work
            .iter()
            .map(|(key, tokens)| {
                let len = self.running[key].tokens.len();
                self.pages_of(len + tokens.len() + more) - self.pages_of(len)
            })
            .sum();
        let pages = self.pages();
        let available = pages.free + pages.kept;
        if needed > available {
            return Err(EngineError::NoPages {
                needed: needed - available,
                free: available,
            });
        }

        self.free_kept(needed);
        Ok(())
    }

    /// Drops kept prefixes until this many pages are free.
    fn free_kept(&mut self, needed: u32) {
        while self.pages().free < needed && self.kept.pop_front().is_some() {}
    }

    fn pages_of(&self, tokens: usize) -> u32 {
        tokens.div_ceil(self.limits.page_len as usize) as u32
    }

    /// Returns the next scripted token of a sequence whose tokens so far are `tokens`.
    fn scripted(&mut self, key: SequenceKey, tokens: &[u32]) -> u32 {
        let mut reply = match self.running[&key].reply.clone() {
            Some(reply) => reply,
            None => self.resumed(tokens).unwrap_or_else(|| ScriptedReply {
                tokens: (self.script)(tokens),
                chosen: 0,
                latest: None,
            }),
        };
        if reply.tokens.is_empty() {
            reply.tokens = vec![self.stop.first().copied().unwrap_or(0)];
        }
        let next = reply.tokens[reply.chosen % reply.tokens.len()];
        assert!(
            next < self.limits.vocab,
            "scripts have ids of the vocabulary"
        );
        self.sequence(key).reply = Some(reply);
        next
    }

    /// Returns the scripted tokens of a sequence up to the first draft that is not among them.
    /// `given` is its next token and the drafts.
    fn verified(&mut self, key: SequenceKey, given: &[u32]) -> Vec<u32> {
        let tokens = [&self.running[&key].tokens, &given[..1]].concat();
        let mut verified = vec![self.scripted(key, &tokens)];
        let reply = self.running[&key].reply.as_ref();
        let reply = reply.expect("it was chosen from");
        while given.get(verified.len()) == verified.last() {
            let next = (reply.chosen + verified.len()) % reply.tokens.len();
            verified.push(reply.tokens[next]);
        }
        verified
    }

    /// Checks the rules of a step with drafts.
    fn check_drafts(&self, work: &[StepWork<'_>]) {
        let verifies = |item: &&StepWork<'_>| item.wanted == Wanted::Verified;
        if !work.iter().any(|item| verifies(&item)) {
            return;
        }
        let most = self.drafts.as_ref().map_or(0, |of| of.verified_per_step);
        let mut chosen = 0;
        for item in work {
            if verifies(&item) {
                assert!(item.matcher.is_none(), "drafts follow no grammar");
                chosen += item.tokens.len();
            } else {
                chosen += 1;
            }
        }
        assert!(
            chosen <= most as usize,
            "a step chooses {most} tokens at most"
        );
    }

    /// Removes and returns the interrupted reply of a sequence with exactly these tokens.
    fn resumed(&mut self, tokens: &[u32]) -> Option<ScriptedReply> {
        let index = self
            .interrupted
            .iter()
            .position(|interrupted| interrupted.tokens == tokens)?;
        self.interrupted.remove(index).map(|found| found.reply)
    }

    fn sequence(&mut self, key: SequenceKey) -> &mut ScriptedSequence {
        self.running
            .get_mut(&key)
            .expect("the sequence was checked")
    }

    /// Appends processed tokens to a sequence, and records the token chosen after them.
    fn advance(&mut self, key: SequenceKey, tokens: &[u32], chosen: Option<u32>) {
        let sequence = self.sequence(key);
        sequence.tokens.extend(tokens);
        if let (Some(reply), Some(token)) = (&mut sequence.reply, chosen) {
            reply.chosen += 1;
            reply.latest = Some(token);
        }
    }

    fn chosen_token(&self, key: SequenceKey, token: u32) -> ChosenToken {
        let best = self.running[&key].sampling.logprobs;
        ChosenToken {
            token,
            probabilities: (best > 0).then(|| self.probabilities(token, best)),
        }
    }

    /// Returns log-probabilities that depend on the token only. It is the most likely one.
    fn probabilities(&self, token: u32, best: u32) -> LogProbabilities {
        let mut share = 0.5 + f64::from(token % 64) / 160.0;
        let chosen = share.ln();
        let best = best.min(self.limits.vocab);
        let best = (0..best).map(|rank| {
            let at = (share.ln(), (token + rank) % self.limits.vocab);
            // Each rank has less than half of what the earlier ones have left.
            share *= (1.0 - share).min(0.4);
            (at.1, at.0)
        });
        LogProbabilities {
            chosen,
            best: best.collect(),
        }
    }

    fn sleep(&self, steps: u32, tokens: usize) {
        let delay = self.step_delay * steps + self.token_delay * tokens as u32;
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
    }

    /// Records a call. `drafts` is the number of drafts among the tokens of each sequence.
    fn record(&self, decode_steps: u32, work: &[(SequenceKey, &[u32])], drafts: &[usize]) {
        let rows = work
            .iter()
            .zip(drafts)
            .map(|((key, tokens), drafts)| StepRow {
                key: *key,
                position: self.running[key].tokens.len() as u32,
                tokens: (tokens.len() - drafts) as u32,
                drafts: *drafts as u32,
            });
        self.log.push(StepRecord {
            decode_steps,
            rows: rows.collect(),
        });
    }
}

/// Returns the wanted token if a grammar allows it, or else the first allowed token.
fn allowed_token(key: SequenceKey, matcher: &mut Matcher, wanted: u32) -> Result<u32, EngineError> {
    let allowed = matcher.allowed().map_err(|error| EngineError::Sequence {
        key,
        reason: error.to_string(),
    })?;
    let bit = |token: u32| allowed[token as usize / 32] >> (token % 32) & 1 == 1;
    if bit(wanted) {
        return Ok(wanted);
    }
    let first = (0..allowed.len() as u32 * 32).find(|token| bit(*token));
    Ok(first.expect("a matcher allows at least one token"))
}

impl Engine for ScriptedEngine {
    fn limits(&self) -> EngineLimits {
        self.limits
    }

    fn stop(&self) -> &[u32] {
        &self.stop
    }

    fn pages(&self) -> PageCounts {
        let used = self
            .running
            .values()
            .map(|sequence| self.pages_of(sequence.tokens.len()))
            .sum();
        let kept = self
            .kept
            .iter()
            .map(|prefix| self.pages_of(prefix.tokens.len()))
            .sum();
        PageCounts {
            used,
            kept,
            free: self.limits.pages - used - kept,
        }
    }

    fn join(&mut self, start: &SequenceStart<'_>) -> Result<Joined, EngineError> {
        self.check_lost()?;
        let space = self.running.len() < self.limits.sequences as usize;
        assert!(space, "the engine has space for another sequence");
        if let Some(name) = start.adapter
            && !self.adapters.iter().any(|adapter| adapter == name)
        {
            let reason = format!("no adapter with the name {name} is loaded");
            return Err(EngineError::Unsupported(reason));
        }

        let page = self.limits.page_len as usize;
        let common = |prefix: &KeptPrefix| {
            if prefix.salt != start.salt || prefix.adapter.as_deref() != start.adapter {
                return 0;
            }
            let pairs = prefix.tokens.iter().zip(start.prompt);
            pairs.take_while(|(kept, given)| kept == given).count()
        };
        let cached = self.kept.iter().map(common).max().unwrap_or(0);
        // The last token of the prompt must be processed.
        let cached = cached.min(start.prompt.len().saturating_sub(1)) / page * page;
        let pages = self.pages_of(cached);
        self.free_kept(pages);
        let cached = if self.pages().free < pages { 0 } else { cached };

        let key = SequenceKey(self.joined);
        self.joined += 1;
        let sequence = ScriptedSequence {
            tokens: start.prompt[..cached].to_vec(),
            sampling: start.sampling.clone(),
            salt: start.salt,
            adapter: start.adapter.map(str::to_owned),
            reply: None,
        };
        self.running.insert(key, sequence);
        Ok(Joined {
            key,
            cached: cached as u32,
        })
    }

    fn leave(&mut self, key: SequenceKey) {
        let sequence = self
            .running
            .remove(&key)
            .expect("only joined sequences leave");
        // A reply that has ended is not continued.
        let unfinished = |reply: &ScriptedReply| {
            let latest = reply.latest.as_ref();
            latest.is_some_and(|token| !self.stop.contains(token))
        };
        if let Some(reply) = sequence.reply.filter(unfinished) {
            let mut tokens = sequence.tokens.clone();
            tokens.extend(reply.latest);
            if self.interrupted.len() == MAX_INTERRUPTED {
                self.interrupted.pop_front();
            }
            self.interrupted
                .push_back(InterruptedReply { tokens, reply });
        }

        let page = self.limits.page_len as usize;
        let full = sequence.tokens.len() / page * page;
        if self.reuse == PrefixReuse::Pages && full > 0 {
            self.kept.push_back(KeptPrefix {
                tokens: sequence.tokens[..full].to_vec(),
                salt: sequence.salt,
                adapter: sequence.adapter,
            });
        }
    }

    fn step(&mut self, work: &mut [StepWork<'_>]) -> Result<Vec<Stepped>, EngineError> {
        let given: Vec<(SequenceKey, &[u32])> =
            work.iter().map(|item| (item.key, item.tokens)).collect();
        self.check_drafts(work);
        self.begin(&given, 0)?;
        let drafts: Vec<usize> = work
            .iter()
            .map(|item| match item.wanted {
                Wanted::Verified => item.tokens.len() - 1,
                Wanted::Nothing | Wanted::Next | Wanted::Scored { .. } => 0,
            })
            .collect();

        // No grammar advances before all tokens are chosen, so that an error changes nothing.
        let mut chosen = vec![];
        for item in work.iter_mut() {
            if !item.wanted.chooses() {
                chosen.push(vec![]);
                continue;
            }
            if item.wanted == Wanted::Verified {
                chosen.push(self.verified(item.key, item.tokens));
                continue;
            }
            let tokens = [&self.running[&item.key].tokens, item.tokens].concat();
            let token = self.scripted(item.key, &tokens);
            let token = match &mut item.matcher {
                Some(matcher) => allowed_token(item.key, matcher, token)?,
                None => token,
            };
            chosen.push(vec![token]);
        }
        self.record(0, &given, &drafts);
        self.steps += 1;
        self.sleep(1, given.iter().map(|(_, tokens)| tokens.len()).sum());

        let mut results = vec![];
        for (item, chosen) in work.iter_mut().zip(chosen) {
            let mut stepped = Stepped::default();
            if item.wanted == Wanted::Verified {
                // Rejected drafts do not become tokens of the sequence.
                for (given, token) in item.tokens.iter().zip(chosen) {
                    self.advance(item.key, &[*given], Some(token));
                    stepped.verified.push(self.chosen_token(item.key, token));
                }
                results.push(stepped);
                continue;
            }
            let token = chosen.first().copied();
            self.advance(item.key, item.tokens, token);
            if let Some(token) = token {
                if let Some(matcher) = &mut item.matcher {
                    let taken = matcher.take_chosen(token);
                    taken.expect("an allowed token can be taken");
                }
                stepped.next = Some(self.chosen_token(item.key, token));
            }
            if let Wanted::Scored { best, following } = item.wanted {
                let followers = item.tokens[1..].iter().copied().chain(following);
                stepped.scored = followers
                    .map(|token| self.probabilities(token, best))
                    .collect();
            }
            results.push(stepped);
        }
        Ok(results)
    }

    fn adapter_preparation(&self) -> Option<PrepareAdapter> {
        self.prepare.clone()
    }

    fn verified_per_step(&self) -> u32 {
        self.drafts.as_ref().map_or(0, |of| of.verified_per_step)
    }

    fn draft(&mut self, work: &[DraftRequest<'_>]) -> Result<Vec<Vec<u32>>, EngineError> {
        self.check_lost()?;
        let Some(drafts) = &mut self.drafts else {
            return Ok(vec![vec![]; work.len()]);
        };
        let drafts = work
            .iter()
            .map(|request| (drafts.script)(request.tokens, request.most));
        Ok(drafts.collect())
    }

    fn decode(
        &mut self,
        work: &[(SequenceKey, u32)],
        steps: u32,
    ) -> Result<Vec<Vec<ChosenToken>>, EngineError> {
        assert!(steps > 0, "a decode has steps");
        let given: Vec<(SequenceKey, &[u32])> = work
            .iter()
            .map(|(key, token)| (*key, std::slice::from_ref(token)))
            .collect();
        self.begin(&given, steps as usize - 1)?;
        self.record(steps, &given, &vec![0; given.len()]);
        self.steps += u64::from(steps);
        self.sleep(steps, work.len() * steps as usize);

        let mut results = vec![];
        for (key, first) in work {
            let mut given = *first;
            let mut made = vec![];
            for _ in 0..steps {
                let tokens = [&self.running[key].tokens[..], &[given]].concat();
                let token = self.scripted(*key, &tokens);
                self.advance(*key, &[given], Some(token));
                made.push(self.chosen_token(*key, token));
                given = token;
                if self.stop.contains(&token) {
                    break;
                }
            }
            results.push(made);
        }
        Ok(results)
    }

    fn embed(&mut self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, EngineError> {
        self.check_lost()?;
        let embed = |text: &Vec<u32>| {
            let mut sums = [0.0; EMBEDDING_LEN];
            for (position, token) in text.iter().enumerate() {
                let index = (*token as usize * 7 + position) % EMBEDDING_LEN;
                sums[index] += 1.0;
            }
            let length = sums.iter().map(|x: &f32| x * x).sum::<f32>().sqrt();
            sums.map(|x| x / length).to_vec()
        };
        self.sleep(1, texts.iter().map(Vec::len).sum());
        Ok(texts.iter().map(embed).collect())
    }
}
