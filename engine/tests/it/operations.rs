//! Random operations on a batch, each sequence compared with itself alone.
//!
//! A sequence's history is what it was given, in which pieces, and where it was rolled back. With one bucket, a replay of
//! the history alone gives the same bits, wherever the pages are and whoever else was in the steps.

use warpwright_driver::Context;
use warpwright_engine::{Batch, BatchOptions, Error, SequenceId};
use warpwright_kernels::Random;
use warpwright_model::Model;

/// Something that a sequence was made to do.
#[derive(Clone, Debug)]
enum Did {
    Step(Vec<u32>),
    Decode(u32, u32),
    RollBack(u32),
}

/// A sequence of the batch.
struct Followed {
    id: SequenceId,
    history: Vec<Did>,
    /// Its tokens in the cache.
    len: u32,
    /// The token that its latest step chose.
    next: Option<u32>,
}

/// What happened, for people.
#[derive(Default, Debug)]
pub(crate) struct Counts {
    pub(crate) joined: u32,
    pub(crate) forked: u32,
    pub(crate) left: u32,
    pub(crate) rolled_back: u32,
    pub(crate) stepped: u32,
    pub(crate) decoded: u32,
    pub(crate) full: u32,
    pub(crate) compared: u32,
}

struct Operations<'a> {
    batch: Batch,
    alone: Batch,
    random: Random,
    vocab: u32,
    /// Tokens of a step, at most.
    bucket: u32,
    ctx: u32,
    followed: Vec<Followed>,
    counts: Counts,
    model: &'a Model,
}

/// Runs so many operations, whose steps have as many tokens as the bucket at most; fails if a sequence has other bits than
/// alone, or a page is lost.
pub(crate) fn run(
    context: &Context,
    model: &Model,
    [count, bucket]: [u32; 2],
    seed: u64,
) -> Result<Counts, String> {
    let ctx = model.outline.config.context.min(320);
    let options = BatchOptions {
        bucket: Some(bucket),
        tokens: bucket,
        positions: 20 * 64,
        steps_per_launch: 4,
        ..BatchOptions::new(8, ctx)
    };
    let new =
        |options| Batch::new(context, model, options, |_| ()).map_err(|error| error.to_string());
    let alone = BatchOptions {
        positions: ctx.next_multiple_of(64),
        ..options
    };
    let mut operations = Operations {
        batch: new(options)?,
        alone: new(alone)?,
        random: Random(seed),
        vocab: model.outline.config.vocab,
        bucket,
        ctx,
        followed: vec![],
        counts: Counts::default(),
        model,
    };
    for operation in 0..count {
        operations
            .act()
            .map_err(|error| format!("operation {operation} of seed {seed}: {error}"))?;
    }

    operations.end()
}

impl Operations<'_> {
    fn act(&mut self) -> Result<(), String> {
        let kind = self.random.below(10);
        let done = match kind {
            0 => self.join(),
            1 => self.fork(),
            2 => self.leave(),
            3 => self.roll_back(),
            4 | 5 => self.decode(),
            _ => self.step(),
        };
        match done {
            // What a user would meet, too: nothing has happened then.
            Err(Error::BatchFull { .. } | Error::NoPages { .. } | Error::SequenceLength { .. }) => {
                self.counts.full += 1;
                self.followed_ok()
            }
            Err(error) => Err(error.to_string()),
            Ok(()) => self.followed_ok(),
        }
    }

    /// Whether the batch has the tokens that it should have.
    fn followed_ok(&self) -> Result<(), String> {
        for one in &self.followed {
            let tokens = self
                .batch
                .tokens(one.id)
                .map_err(|error| error.to_string())?;
            if tokens.len() as u32 != one.len {
                return Err(format!(
                    "{} tokens, not {}: {:?}",
                    tokens.len(),
                    one.len,
                    one.history
                ));
            }
        }
        Ok(())
    }

    fn pick(&mut self) -> Option<usize> {
        let count = self.followed.len() as u32;
        (count > 0).then(|| self.random.below(count) as usize)
    }

    fn join(&mut self) -> Result<(), Error> {
        let id = self.batch.join()?;
        self.followed.push(Followed {
            id,
            history: vec![],
            len: 0,
            next: None,
        });
        self.counts.joined += 1;
        Ok(())
    }

    fn fork(&mut self) -> Result<(), Error> {
        let Some(of) = self.pick() else {
            return self.join();
        };

        let len = self.random.below(self.followed[of].len + 1);
        let id = self.batch.fork(self.followed[of].id, len)?;
        let history = [&self.followed[of].history[..], &[Did::RollBack(len)]].concat();
        self.followed.push(Followed {
            id,
            history,
            len,
            next: None,
        });
        self.counts.forked += 1;
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Error> {
        let Some(index) = self.pick() else {
            return Ok(());
        };
        let one = self.followed.swap_remove(index);
        self.counts.left += 1;
        self.batch.leave(one.id)
    }

    fn roll_back(&mut self) -> Result<(), Error> {
        let Some(index) = self.pick() else {
            return Ok(());
        };

        let len = self.random.below(self.followed[index].len + 1);
        let one = &mut self.followed[index];
        self.batch.roll_back(one.id, len)?;
        one.history.push(Did::RollBack(len));
        (one.len, one.next) = (len, None);
        self.counts.rolled_back += 1;
        Ok(())
    }

    /// Some sequences, some by a token and some by many; one of them is compared.
    fn step(&mut self) -> Result<(), Error> {
        let (mut left, mut work) = (self.bucket, vec![]);
        for index in 0..self.followed.len() {
            if self.random.below(3) == 0 || left == 0 {
                continue;
            }
            let most = [1, 5, 80][self.random.below(3) as usize].min(left);
            let count = 1 + self.random.below(most);
            let tokens: Vec<u32> = (0..count).map(|_| self.random.below(self.vocab)).collect();
            left -= count;
            work.push((index, tokens));
        }

        if work.is_empty() {
            return self.join();
        }

        let given: Vec<_> = work
            .iter()
            .map(|(index, tokens)| (self.followed[*index].id, tokens.as_slice()))
            .collect();
        let next = self.batch.step(&given)?;
        for ((index, tokens), next) in work.iter().zip(next) {
            let one = &mut self.followed[*index];
            one.len += tokens.len() as u32;
            one.next = Some(next);
            one.history.push(Did::Step(tokens.clone()));
        }

        self.counts.stepped += 1;
        let (index, _) = work[self.random.below(work.len() as u32) as usize];
        self.compare(index)
    }

    fn decode(&mut self) -> Result<(), Error> {
        let steps = 1 + self.random.below(9);
        let ready = (0..self.followed.len()).filter(|&index| self.followed[index].next.is_some());
        let ready: Vec<usize> = ready.collect();
        if ready.is_empty() {
            return self.step();
        }

        let token = |index: &usize| self.followed[*index].next.expect("it was filtered");
        let given: Vec<_> = ready
            .iter()
            .map(|index| (self.followed[*index].id, token(index)))
            .collect();
        let made = self.batch.decode(&given, steps)?;
        for ((index, (_, token)), made) in ready.iter().zip(&given).zip(made) {
            let one = &mut self.followed[*index];
            one.history.push(Did::Decode(*token, steps));
            one.len += made.len() as u32;
            let end = made.last().copied();
            one.next = end.filter(|end| !self.model.outline.stop.contains(end));
        }

        self.counts.decoded += 1;
        self.compare(ready[0])
    }

    /// The latest logits of a sequence, and those of its replay.
    fn compare(&mut self, index: usize) -> Result<(), Error> {
        let one = &self.followed[index];
        let found = self.batch.logits(one.id)?;
        let alone = self.alone.join()?;
        for did in &one.history {
            match did {
                Did::Step(tokens) => drop(self.alone.step(&[(alone, tokens)])?),
                Did::Decode(token, steps) => drop(self.alone.decode(&[(alone, *token)], *steps)?),
                Did::RollBack(len) => self.alone.roll_back(alone, *len)?,
            }
        }

        let wanted = self.alone.logits(alone)?;
        self.alone.leave(alone)?;
        self.counts.compared += 1;
        let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(
            bits(&found),
            bits(&wanted),
            "{:?}, {} of {} positions",
            one.history,
            one.len,
            self.ctx
        );
        Ok(())
    }

    /// All leave, and all pages are free.
    fn end(mut self) -> Result<Counts, String> {
        for one in std::mem::take(&mut self.followed) {
            self.batch
                .leave(one.id)
                .map_err(|error| error.to_string())?;
        }
        let (free, all) = self.batch.free_pages();
        if free == all {
            Ok(self.counts)
        } else {
            Err(format!("{free} of {all} pages are free at the end"))
        }
    }
}
