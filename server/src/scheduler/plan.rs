//! The choice of a step's work.
//!
//! Every sequence that generates gets one row. The prompts get the rest of the token budget, the
//! oldest first. No prompt can therefore delay the tokens of other sequences for longer than one
//! step of this budget. In deterministic mode, prompts and tokens take turns instead.

use super::options::SchedulerOptions;
use super::sequence::{Recompute, RunningSequence, SequencePhase};
use crate::engine::{EngineLimits, PageCounts, TokenOrigin, Wanted};

/// The work of the next step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StepPlan {
    /// No sequence is running.
    Idle,
    /// Every sequence generates this many tokens in one launch.
    Decode { steps: u32 },
    /// These sequences process tokens. They are in the order of the running sequences.
    Step(Vec<PlannedRow>),
}

/// The work of a sequence in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlannedRow {
    /// The index of the running sequence.
    pub(super) index: usize,
    /// The number of known tokens to process.
    pub(super) tokens: usize,
    /// The number of drafts to verify after them.
    pub(super) drafts: usize,
    pub(super) origin: TokenOrigin,
    pub(super) wanted: Wanted,
}

/// The kind of rows that a step of prompts or tokens had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum LatestRows {
    #[default]
    Prompts,
    Tokens,
}

/// Everything that a plan depends on.
pub(super) struct PlanInput<'a> {
    /// The running sequences, the oldest first.
    pub(super) running: &'a [RunningSequence],
    /// The number of requests that wait for something else than the running sequences.
    pub(super) waiting: usize,
    pub(super) limits: EngineLimits,
    pub(super) options: SchedulerOptions,
    pub(super) pages: PageCounts,
    pub(super) latest: LatestRows,
    /// The maximum number of tokens that a step with drafts chooses.
    pub(super) verified_per_step: usize,
}

impl PlannedRow {
    /// Returns the number of rows that the step has for this sequence.
    fn rows(&self) -> usize {
        self.tokens + self.drafts
    }
}

impl StepPlan {
    /// Returns true if a sequence verifies drafts.
    pub(super) fn has_drafts(&self) -> bool {
        match self {
            StepPlan::Idle | StepPlan::Decode { .. } => false,
            StepPlan::Step(rows) => rows.iter().any(|row| row.drafts > 0),
        }
    }
}

impl SchedulerOptions {
    /// Returns the way in which evicted sequences are recomputed.
    pub(super) fn recompute(&self) -> Recompute {
        match self.exact_chunk {
            Some(_) => Recompute::SameSteps,
            None => Recompute::Chunks,
        }
    }
}

/// The number of prompts from which a step is as large as the engine allows.
///
/// Larger steps process more tokens per second, because each reads the weights once, but the texts
/// wait longer for their next tokens. With few prompts, the texts matter more. With many, the users
/// who wait for their first token do.
const CROWD: usize = 8;

/// Plans the next step.
pub(super) fn plan(input: &PlanInput<'_>) -> StepPlan {
    let recompute = input.options.recompute();
    let mut prompts = vec![];
    let mut tokens = vec![];
    for (index, sequence) in input.running.iter().enumerate() {
        match sequence.phase(recompute) {
            SequencePhase::Prompt => prompts.push(index),
            SequencePhase::Replay | SequencePhase::Decode => tokens.push(index),
        }
    }
    if prompts.is_empty() && tokens.is_empty() {
        return StepPlan::Idle;
    }

    let steps = decode_steps(input, &prompts);
    if steps > 1 {
        return StepPlan::Decode { steps };
    }

    let mut rows = match input.options.exact_chunk {
        Some(chunk) => exact_rows(input, chunk, &prompts, tokens),
        None => shared_rows(input, &prompts, tokens),
    };
    rows.sort_unstable_by_key(|row| row.index);
    StepPlan::Step(rows)
}

/// Returns the number of decode steps for one launch of all sequences.
fn decode_steps(input: &PlanInput<'_>, prompts: &[usize]) -> u32 {
    let running = input.running;
    let budget = input.token_budget();
    let single = input.waiting > 0
        || !prompts.is_empty()
        || running.len() > budget
        || running
            .iter()
            .any(|sequence| sequence.request.grammar.is_some() || sequence.pending() != 1)
        || running.iter().any(|sequence| !sequence.drafts.is_empty());
    if single {
        return 1;
    }

    // The sequence that ends first frees its slot and pages, so the launch ends with it.
    let remaining = running.iter().map(|sequence| sequence.request.remaining());
    let most = input.options.steps_per_launch as usize;
    let mut steps = remaining.min().unwrap_or(0).min(most);
    let available = input.pages.free + input.pages.kept;
    while steps > 1 && input.new_pages(steps) > available {
        steps /= 2;
    }
    steps.max(1) as u32
}

/// Returns the rows of a step in which prompts share the budget with generating sequences.
fn shared_rows(input: &PlanInput<'_>, prompts: &[usize], tokens: Vec<usize>) -> Vec<PlannedRow> {
    let budget = if tokens.is_empty() {
        input.limits.tokens_per_step as usize
    } else {
        input.shared_budget(prompts.len())
    };

    // With more sequences than tokens in a step, prompts keep a quarter of it. With one token per
    // step, prompts and sequences take turns.
    let kept = match (prompts.is_empty(), input.latest) {
        (true, _) => 0,
        (false, LatestRows::Prompts) if budget == 1 => 0,
        (false, _) => (budget / 4).max(1),
    };
    let mut rows = token_rows(input, tokens, budget - kept);
    let used: usize = rows.iter().map(PlannedRow::rows).sum();
    let mut left = budget - used;
    for &index in prompts {
        if left == 0 {
            break;
        }
        let sequence = &input.running[index];
        let row = chunk_row(index, sequence, sequence.pending().min(left));
        left -= row.tokens;
        rows.push(row);
    }
    rows
}

/// Returns the rows of a step in deterministic mode: either prompts or tokens.
fn exact_rows(
    input: &PlanInput<'_>,
    chunk: u32,
    prompts: &[usize],
    tokens: Vec<usize>,
) -> Vec<PlannedRow> {
    let tokens_next = prompts.is_empty() || input.latest == LatestRows::Prompts;
    if tokens_next && !tokens.is_empty() {
        return token_rows(input, tokens, input.token_budget());
    }

    let mut rows = vec![];
    let mut left = input.limits.tokens_per_step as usize;
    for &index in prompts {
        let sequence = &input.running[index];
        let chunk = chunk as usize;
        let end = (sequence.processed / chunk + 1) * chunk;
        let count = end.min(sequence.request.prompt) - sequence.processed;

        // A chunk is never split. The first one always fits, because the chunk length is limited
        // by the engine's step.
        if count > left {
            break;
        }
        left -= count;
        rows.push(chunk_row(index, sequence, count));
    }
    rows
}

/// Returns rows of one token each for at most `most` sequences. Those that have waited longest
/// come first. Drafts take what these rows leave of `most`.
fn token_rows(input: &PlanInput<'_>, mut tokens: Vec<usize>, most: usize) -> Vec<PlannedRow> {
    tokens.sort_by_key(|&index| input.running[index].last_step);
    tokens.truncate(most);
    let row = |index: usize| PlannedRow {
        index,
        tokens: 1,
        drafts: 0,
        origin: TokenOrigin::Model,
        wanted: if input.running[index].pending() == 1 {
            Wanted::Next
        } else {
            Wanted::Nothing
        },
    };
    let mut rows: Vec<PlannedRow> = tokens.into_iter().map(row).collect();

    // Every running sequence may choose a token in the step, also after the end of its prompt.
    let chosen = input.verified_per_step.saturating_sub(input.running.len());
    let mut left = chosen.min(most.saturating_sub(rows.len()));
    for row in &mut rows {
        let drafts = input.running[row.index].drafts.len().min(left);
        if drafts > 0 {
            left -= drafts;
            row.drafts = drafts;
            row.wanted = Wanted::Verified;
        }
    }
    rows
}

/// Returns the row of the next `tokens` tokens of a prompt.
fn chunk_row(index: usize, sequence: &RunningSequence, tokens: usize) -> PlannedRow {
    let request = &sequence.request;
    let end = sequence.processed + tokens;
    let following = request.tokens.get(end).copied();
    let wanted = match (&request.scores, following) {
        (Some(scores), following) => Wanted::Scored {
            best: scores.best,
            following,
        },
        (None, Some(_)) => Wanted::Nothing,
        (None, None) if request.remaining() == 0 => Wanted::Nothing,
        (None, None) => Wanted::Next,
    };
    PlannedRow {
        index,
        tokens,
        drafts: 0,
        origin: TokenOrigin::Prompt,
        wanted,
    }
}

impl PlanInput<'_> {
    /// Returns the maximum number of tokens in a step that continues texts.
    fn token_budget(&self) -> usize {
        let most = self.limits.tokens_per_step;
        self.options.tokens_per_step.clamp(1, most) as usize
    }

    /// Returns the maximum number of tokens in a step of prompts and texts.
    fn shared_budget(&self, prompts: usize) -> usize {
        if prompts + self.waiting >= CROWD {
            self.limits.tokens_per_step as usize
        } else {
            self.token_budget()
        }
    }

    /// Returns the number of pages that `steps` more tokens of each sequence take.
    fn new_pages(&self, steps: usize) -> u32 {
        let page = self.limits.page_len as usize;
        let new = |sequence: &RunningSequence| {
            let len = sequence.processed;
            (len + steps).div_ceil(page) - len.div_ceil(page)
        };
        self.running.iter().map(new).sum::<usize>() as u32
    }
}
