//! The options of a scheduler.

/// The options of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// The maximum number of requests that wait for a slot. A request is refused if as many wait or
    /// run as the engine has slots and the queue has places.
    pub queue: usize,
    /// The maximum number of tokens in a step that continues texts, over all sequences. A step of
    /// prompts only has as many as the engine can process, and so has a step while many prompts
    /// wait: see `CROWD` in `plan`.
    pub tokens_per_step: u32,
    /// The maximum number of decode steps per launch while no request waits.
    ///
    /// The tokens of a launch reach the clients together, and a new request waits for its end. With
    /// 64 sequences of an 8B model on an H100, launches of 4 steps generate 0.3 % fewer tokens per
    /// second than launches of 8, and launches of 2 steps 0.7 % fewer.
    pub steps_per_launch: u32,
    /// The length of prompt chunks in deterministic mode, or `None`.
    ///
    /// In deterministic mode, chunks end at multiples of this length for any other sequences,
    /// prompts and single tokens are processed in separate steps, and an evicted sequence repeats
    /// the steps that it took at first.
    pub exact_chunk: Option<u32>,
    /// The use of drafts, or `None` without drafts. An engine that proposes no drafts has none.
    pub speculation: Option<SpeculationOptions>,
}

/// The use of drafts: tokens that the engine proposes and that a step verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeculationOptions {
    /// The maximum number of sequences that generate while drafts are used. Steps of more sequences
    /// have too many rows for drafts to save time.
    pub sequences: u32,
    /// The maximum number of drafts per sequence in a step.
    pub drafts: u32,
    /// The rule by which the number of drafts follows from their success.
    pub length: DraftLengthRule,
}

/// The rule by which the number of drafts follows from their success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DraftLengthRule {
    /// As many as seem to be worth their time.
    #[default]
    Adaptive,
    /// As many as are allowed.
    Always,
}

impl Default for SpeculationOptions {
    fn default() -> SpeculationOptions {
        SpeculationOptions {
            sequences: 4,
            drafts: 7,
            length: DraftLengthRule::Adaptive,
        }
    }
}

impl Default for SchedulerOptions {
    fn default() -> SchedulerOptions {
        SchedulerOptions {
            queue: 256,
            tokens_per_step: 1024,
            steps_per_launch: 4,
            exact_chunk: None,
            speculation: None,
        }
    }
}
