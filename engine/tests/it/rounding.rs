//! Texts in a batch, alone and among others that come, go and are swapped, compared bit by bit.

use std::collections::BTreeMap;

use warpwright_engine::{
    Batch, BatchItem, BatchOptions, BatchRounding, BatchWanted, PrefixScope, RowClass, SequenceId,
    SwappedSequence,
};
use warpwright_kernels::Random;

/// A request and the number of tokens to generate.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) prompt: Vec<u32>,
    pub(crate) reply: usize,
}

/// The bits of a text: its tokens, and the logits after positions where they were read.
#[derive(Default, Debug)]
struct Outcome {
    reply: Vec<u32>,
    logits: BTreeMap<usize, Vec<u32>>,
}

/// A text in the batch.
struct Running {
    index: usize,
    id: SequenceId,
    /// All tokens but those that are still to be generated.
    tokens: Vec<u32>,
    processed: usize,
    outcome: Outcome,
}

struct Simulation {
    batch: Batch,
    /// The maximum number of tokens in a step.
    tokens: usize,
    random: Random,
    /// The number of tokens found in the cache.
    cached: u32,
    /// The number of sequences that came back from the memory of the host.
    swaps: u32,
}

/// A batch, and texts for it.
pub(crate) struct RoundingCase<'a> {
    /// Creates a batch.
    pub(crate) create: &'a dyn Fn(BatchOptions) -> Batch,
    pub(crate) options: BatchOptions,
    pub(crate) vocab: u32,
    pub(crate) texts: Vec<Text>,
    /// The maximum number of texts in the batch at a time.
    pub(crate) together: usize,
}

/// The rows of logits that were compared.
#[derive(Debug, Default)]
pub(crate) struct RoundingCounts {
    pub(crate) compared: usize,
    /// The number of rows and texts that differ.
    pub(crate) different: usize,
    /// The number of tokens that were found in the cache.
    pub(crate) cached: u32,
    pub(crate) swaps: u32,
}

impl RoundingCase<'_> {
    fn simulation(&self, rounding: BatchRounding, seed: u64) -> Simulation {
        let options = BatchOptions {
            rounding,
            ..self.options
        };
        Simulation {
            batch: (self.create)(options),
            tokens: options.tokens as usize,
            random: Random(seed),
            cached: 0,
            swaps: 0,
        }
    }

    /// Runs the texts alone, then among each other with an empty cache, then as the beginnings of
    /// conversations that go on, and then once more with a warm cache.
    pub(crate) fn run(&self, rounding: BatchRounding) -> RoundingCounts {
        let mut alone = self.simulation(rounding, 1);
        let mut single = |texts: &[Text], salt: u64| -> Vec<Outcome> {
            // Every text has another scope, so that none finds the pages of another.
            let outcomes = (salt..).zip(texts).map(|(salt, text)| {
                let text = std::slice::from_ref(text);
                alone.run(text, 1, salt).remove(0)
            });
            outcomes.collect()
        };
        let wanted = single(&self.texts, 1 << 20);
        let later = self.turns(&wanted);
        let wanted_later = single(&later, 2 << 20);

        let mut counts = RoundingCounts::default();
        let mut simulation = self.simulation(rounding, 2);
        for (texts, wanted) in [
            (&self.texts, &wanted),
            (&later, &wanted_later),
            (&self.texts, &wanted),
        ] {
            let found = simulation.run(texts, self.together, 1);
            counts.add(wanted, &found);
        }
        assert_eq!(simulation.batch.page_counts().used, 0);
        counts.cached = simulation.cached;
        counts.swaps = simulation.swaps;
        counts
    }

    /// Returns the next turns of conversations: prompt, reply and a new message.
    fn turns(&self, outcomes: &[Outcome]) -> Vec<Text> {
        let turn = |(text, outcome): (&Text, &Outcome)| Text {
            prompt: [&text.prompt[..], &outcome.reply, &tokens(7, 12, self.vocab)].concat(),
            reply: text.reply.min(4),
        };
        self.texts.iter().zip(outcomes).map(turn).collect()
    }
}

impl Simulation {
    /// Runs the texts, of which at most `together` are in the batch at a time. They arrive in
    /// random steps.
    fn run(&mut self, texts: &[Text], together: usize, salt: u64) -> Vec<Outcome> {
        let mut waiting: Vec<usize> = (0..texts.len()).collect();
        let mut running: Vec<Running> = vec![];
        let mut swapped: Vec<(Running, SwappedSequence)> = vec![];
        let mut ended: BTreeMap<usize, Outcome> = BTreeMap::new();
        while ended.len() < texts.len() {
            let arrives = running.is_empty() && swapped.is_empty() || self.random.below(3) == 0;
            if arrives && !waiting.is_empty() && running.len() < together {
                let next = self.random.below(waiting.len() as u32) as usize;
                let index = waiting.swap_remove(next);
                running.push(self.join(index, &texts[index], salt));
            }

            // Sequences leave for the memory of the host now and then, and come back later.
            if together > 1 && !running.is_empty() && self.random.below(8) == 0 {
                let at = self.random.below(running.len() as u32) as usize;
                let text = running.swap_remove(at);
                let pages = self.batch.swap_out(text.id).unwrap();
                swapped.push((text, pages));
            }
            if !swapped.is_empty() && (running.is_empty() || self.random.below(3) == 0) {
                let (mut text, pages) = swapped.remove(0);
                text.id = self.batch.swap_in(&pages).unwrap();
                self.swaps += 1;
                running.push(text);
            }

            self.step(texts, &mut running);
            let (over, rest) = running
                .into_iter()
                .partition(|text| text.outcome.reply.len() >= texts[text.index].reply);
            running = rest;
            for text in over {
                let text: Running = text;
                self.batch.leave(text.id).unwrap();
                ended.insert(text.index, text.outcome);
            }
        }
        ended.into_values().collect()
    }

    fn join(&mut self, index: usize, text: &Text, salt: u64) -> Running {
        let scope = PrefixScope::salted(salt);
        let (id, cached) = self.batch.join_prompt(&text.prompt, scope).unwrap();
        self.cached += cached;
        Running {
            index,
            id,
            tokens: text.prompt.clone(),
            processed: cached as usize,
            outcome: Outcome::default(),
        }
    }

    fn step(&mut self, texts: &[Text], running: &mut [Running]) {
        let generates = |text: &Running| text.processed + 1 == text.tokens.len();
        let replies = running
            .iter()
            .all(|text| generates(text) && text.processed >= texts[text.index].prompt.len());
        let fewest = running
            .iter()
            .map(|text| texts[text.index].reply - text.outcome.reply.len())
            .min()
            .unwrap_or(0);
        if replies && fewest > 1 && self.random.below(3) == 0 {
            self.decode(running, fewest.min(3) as u32);
            return;
        }

        let mut left = self.tokens;
        let mut parts = vec![];
        for (at, text) in running.iter().enumerate() {
            let pending = text.tokens.len() - text.processed;
            let most = [1, 9, 50, 600][self.random.below(3) as usize]
                .min(pending)
                .min(left);
            if most > 0 && self.random.below(4) > 0 {
                let count = 1 + self.random.below(most as u32) as usize;
                left -= count;
                parts.push((at, count));
            }
        }
        if parts.is_empty() {
            return;
        }

        let item = |&(at, count): &(usize, usize)| {
            let text: &Running = &running[at];
            let end = text.processed + count;
            BatchItem {
                sequence: text.id,
                tokens: &text.tokens[text.processed..end],
                class: if text.processed < texts[text.index].prompt.len() {
                    RowClass::Prompt
                } else {
                    RowClass::Decode
                },
                wanted: if end == text.tokens.len() {
                    BatchWanted::Next
                } else {
                    BatchWanted::Nothing
                },
                matcher: None,
            }
        };
        let mut items: Vec<_> = parts.iter().map(item).collect();
        let stepped = self.batch.step_items(&mut items).unwrap();
        for ((at, count), stepped) in parts.into_iter().zip(stepped) {
            let text = &mut running[at];
            text.processed += count;
            if let Some(next) = stepped.next {
                self.record(text);
                text.tokens.push(next);
                text.outcome.reply.push(next);
            }
        }
    }

    fn decode(&mut self, running: &mut [Running], steps: u32) {
        let work: Vec<_> = running
            .iter()
            .map(|text| (text.id, text.tokens[text.processed]))
            .collect();
        let made = self.batch.decode(&work, steps).unwrap();
        for (text, made) in running.iter_mut().zip(made) {
            text.processed += made.len();
            self.record(text);
            text.tokens.extend(&made);
            text.outcome.reply.extend(made);
        }
    }

    /// Records the logits after the processed tokens, unless another pass of the step has
    /// overwritten them.
    fn record(&self, text: &mut Running) {
        if let Ok(logits) = self.batch.logits(text.id) {
            let bits = logits.iter().map(|x| x.to_bits()).collect();
            text.outcome.logits.insert(text.processed, bits);
        }
    }
}

impl RoundingCounts {
    /// Compares outcomes with those of the same texts alone.
    fn add(&mut self, alone: &[Outcome], found: &[Outcome]) {
        for (alone, found) in alone.iter().zip(found) {
            self.different += usize::from(alone.reply != found.reply);
            for (position, bits) in &found.logits {
                let Some(wanted) = alone.logits.get(position) else {
                    continue;
                };
                self.compared += 1;
                self.different += usize::from(wanted != bits);
            }
        }
    }
}

/// Returns tokens that no other seed gives.
pub(crate) fn tokens(seed: u32, count: u32, vocab: u32) -> Vec<u32> {
    let token = |i: u32| {
        let square = i.wrapping_mul(i).wrapping_mul(seed);
        (i * 37 + seed * 11).wrapping_add(square) % vocab
    };
    (0..count).map(token).collect()
}
