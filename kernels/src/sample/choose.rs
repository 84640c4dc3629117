//! The last kernel of sampling: it chooses the next token, records log-probabilities, and advances
//! the state.
//!
//! One block processes a row. It also clears the row's histogram for the next step. Inside a
//! prompt, the next token is the prompt's. A sequence is done at a stop token, at its limit, or if
//! no token was chosen because a logit was not finite.
//!
//! A record has the values from which the host computes log-probabilities, at temperature 1 and
//! before any filter: `ln p = z - largest - ln(mass / 2^44)`.

use super::block::{self, warp_max};
use super::draw::{Draw, DrawStart, Mask, TokenItem};
use super::few::{self, FEW};
use super::gather::{load_largest, mask_words};
use super::limits::{BINS, MAX_BEST, RECORD_HEAD, THREADS};
use super::rows::{self, CpuRow, RowsArgs, SampledRow};
use super::token_args::SampleTokenArgs;
use super::weight::halves;
use super::{SampleParams, blocks, reference};
use crate::shared::state::{DONE, LEN, LIMIT, NO_TOKEN, POSITION, PROMPT_LEN, TOKEN};
use crate::shared::{Contract, check_lengths, philox};
use ptx_gen::*;

/// Kernel that chooses the next token and advances the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampleToken {
    /// True if the kernel starts before the previous one ends and waits for it on the device
    /// (programmatic dependent launch), which needs sm_90.
    pub overlap: bool,
}

impl KernelDef for SampleToken {
    type Args<S: Side> = SampleTokenArgs<S>;

    fn name(&self) -> String {
        format!("sample_token{}", if self.overlap { "" } else { "_plain" })
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &SampleTokenArgs<Shape>) -> Result<Grid, ShapeError> {
        let &SampleTokenArgs { stops, .. } = a;
        let RowsArgs {
            vocab,
            count,
            capacity,
            sequences,
            max_tokens,
            ..
        } = a.of;
        rows::check(self, &a.of, a.state)?;
        check_lengths! { self, a:
            z == capacity * vocab,
        }
        self.at_least(
            "largest",
            a.largest,
            "count * blocks",
            &[count, blocks(vocab)],
        )?;
        self.at_least("mask", a.mask, "count * words", &[count, mask_words(vocab)])?;
        check_lengths! { self, a:
            listed >= count,
        }
        self.at_least(
            "mass",
            a.mass,
            "count * 2 * blocks",
            &[count, 2, blocks(vocab)],
        )?;
        self.at_least("histogram", a.histogram, "count * 1024", &[count, BINS])?;
        check_lengths! { self, a:
            tokens == sequences * max_tokens,
            stop >= stops,
            out == sequences * max_tokens,
        }
        self.range("record", a.record, 0, RECORD_HEAD + 2 * MAX_BEST)?;
        let formula = "sequences * max_tokens * record";
        self.at_least(
            "records",
            a.records,
            formula,
            &[sequences, max_tokens, a.record],
        )?;
        Ok(Grid::plane(1, count))
    }

    fn program<'k>(&self, k: Builder<'k>, a: SampleTokenArgs<Dev<'k>>) {
        rows::trigger(k, self.overlap);
        let row = SampledRow::load(k, &a.of, a.state);
        let chooser = Chooser {
            k,
            a: &a,
            row: &row,
            word: k.shared("word", 1),
        };

        // The random word depends on nothing that the kernels before write.
        chooser.draw_word();
        row.wait(k, self.overlap);
        row.process(k, || chooser.run());
    }

    fn reference(&self, mut a: SampleTokenArgs<Cpu<'_>>) {
        for row in rows::on_cpu(&a.of, a.state) {
            let vocab = a.of.vocab as usize;
            let params = SampleParams::of_words(&a.of.params[row.sequence * SampleParams::WORDS..]);
            let z = &a.z[row.index * vocab..][..vocab];
            let chosen = reference::choose(z, &params, row.position as u32).unwrap_or(NO_TOKEN);

            // The next step counts into the same histogram.
            let bins = BINS as usize;
            a.histogram[row.index * bins..][..bins].fill(0);

            let at = row.sequence * a.of.max_tokens as usize + row.position;
            let record = a.record as usize;
            if record > 0 && chosen != NO_TOKEN {
                let best = params.best.min((a.record - RECORD_HEAD) / 2);
                let words = reference::record(z, chosen, best);
                a.records[at * record..][..words.len()].copy_from_slice(&words);
            }

            step_on_cpu(&mut a, &row, chosen);
        }
    }
}

fn step_on_cpu(a: &mut SampleTokenArgs<Cpu<'_>>, row: &CpuRow, chosen: u32) {
    let state = &mut a.state[row.state * LEN..][..LEN];
    let max = a.of.max_tokens;
    let next = row.position + 1;
    let limit = match state[LIMIT as usize] {
        0 => max,
        limit => limit.min(max),
    };
    let first = row.sequence * max as usize;
    let prompted = (next as u32) < state[PROMPT_LEN as usize].min(max);
    let token = if prompted {
        a.tokens[first + next]
    } else {
        chosen
    };
    a.out[first + row.position] = token;
    let ends = !prompted && a.stop[..a.stops as usize].contains(&token);

    // A stop token is stored like any other token, and ends the sequence after it.
    let goes_on = (next as u32) < limit && token != NO_TOKEN;
    if goes_on {
        a.tokens[first + next] = token;
        state[TOKEN as usize] = token;
        state[POSITION as usize] = next as u32;
    }

    if ends || !goes_on {
        state[DONE as usize] = 1;
    }
}

/// The block that chooses the token of a row.
struct Chooser<'a, 'k> {
    k: Builder<'k>,
    a: &'a SampleTokenArgs<Dev<'k>>,
    row: &'a SampledRow<'k>,
    /// The random word. The first thread writes it before the block's first barrier.
    word: Ptr<'k, u32, Shared>,
}

impl<'k> Chooser<'_, 'k> {
    fn draw_word(&self) {
        let k = self.k;
        let zero = k.val(0);

        k.section("sample/token/random", "a random word");
        k.when(k.tid().eq(0), || {
            let [word, ..] =
                philox::on_device([self.row.position, zero, zero, zero], self.row.params.seed);
            self.word.st(word);
        });
    }

    fn run(&self) {
        let k = self.k;
        let a = self.a;
        let row = self.row;
        let blocks = (a.of.vocab + (super::limits::CHUNK - 1)) / super::limits::CHUNK;

        k.section(
            "sample/token/inputs",
            "results of the kernels before, all loaded at once",
        );
        let largest = load_largest(k, a.largest.row(row.index, blocks * 4), blocks);
        let vectors = (a.of.vocab + 127) / 128;
        let mask = Mask::load(k, a.mask.row(row.index, vectors * 16), vectors);
        let listed = k.shared::<u32>("entries", 1);
        let count = k.shared::<u32>("length", 1);
        k.when(k.tid().eq(0), || {
            listed.st(a.listed.at(row.index).fresh().ld());
            count.st(0);
        });

        // The next step's first kernel adds to a histogram of zeros.
        a.histogram.row(row.index, 4 * BINS).at(k.tid()).st(0);

        // The barriers of the maximum also publish the random word, the number of listed tokens and
        // the count.
        let most = block::max(k, largest.get());
        let mut chosen = k.var(NO_TOKEN);
        k.when(most.lt(f32::INFINITY), || {
            let mut draw = Draw::new(
                k,
                a,
                row,
                DrawStart {
                    most,
                    blocks,
                    word: self.word,
                },
            );
            let token = draw.token(&mask, count, listed.ld());
            chosen.set(token);

            // Loads the row again, so that it occupies no registers during the draw.
            let row = SampledRow::load(k, &a.of, a.state);
            k.when(a.record.gt(0) & row.params.best.gt(0), || {
                self.record(&mut draw, &row, token)
            });
        });

        k.section(
            "sample/token/next",
            "the next token; no thread reads the state any more",
        );

        // The loads of the row above must end before one thread writes the state.
        k.barrier();
        k.when(k.tid().eq(0), || self.step(chosen.get()));
    }

    /// Stores the values from which the host computes log-probabilities.
    fn record(&self, draw: &mut Draw<'_, 'k>, row: &SampledRow<'k>, token: U32<'k>) {
        let k = self.k;
        let a = self.a;

        k.section("sample/token/record", "the record");
        let place = row.sequence.mad(a.of.max_tokens, row.position);
        let record = a.records.row(place, a.record * 4);
        k.when(k.tid().eq(0), || {
            let [low, high] = halves(draw.total.ld());
            let z = draw.z(token);
            let words = [draw.most.bits(), low, high, z.bits()];
            for (word, i) in words.into_iter().zip(0..) {
                record.at(i).st(word);
            }
        });
        let best = row.params.best.min((a.record - RECORD_HEAD) / 2);

        // Each round finds the largest key below the one before. `best` is at most 32, so this is
        // cheaper than a sort.
        draw.look_at_enough(best);
        let tops = block::totals(k);
        let top = k.shared::<u64>("top", 1);
        let mut before = k.var(u64::MAX);
        k.for_each(0, best.min(a.of.vocab), 1, |i| {
            let mut own = k.var(0u64);
            draw.items.each(|item: TokenItem<'k>| {
                let key = item.order();
                k.when(key.lt(before.get()), || own.max_with(key));
            });
            let own = warp_max(own.get());
            k.when(k.lane().eq(0), || tops.at(k.warp()).st(own));
            k.barrier();
            k.when(k.warp().eq(0), || {
                let best = warp_max(tops.at(k.lane()).ld());
                k.when(k.lane().eq(0), || top.st(best));
            });
            k.barrier();
            before.set(top.ld());
            k.when(k.tid().eq(0), || {
                let token = TokenItem::token_of(before.get());
                record.at(i * 2 + RECORD_HEAD).st(token);
                let to = record.at(i * 2 + (RECORD_HEAD + 1));
                let z = draw.z(token);
                to.st(z.bits::<u32>());
            });
        });
    }

    /// Stores the token and advances the state. Only one thread calls it.
    fn step(&self, chosen: U32<'k>) {
        let k = self.k;
        let a = self.a;
        let row = SampledRow::load(k, &a.of, a.state);
        let state = a.state.row(row.state, 4 * LEN as u32);
        let next = row.position + 1;
        let tokens = a.tokens.row(row.sequence, a.of.max_tokens * 4);
        let length = |word: u32| {
            let length = state.at(word).fresh().ld();
            length.min(a.of.max_tokens)
        };
        let [prompt, limit] = [PROMPT_LEN, LIMIT].map(length);

        // A state without a limit ends with its buffer.
        let limit = limit.eq(0).select(a.of.max_tokens, limit);
        let mut token = k.var(chosen);

        // A prompt may contain stop tokens, so only a chosen token is compared with them.
        k.when(next.lt(prompt), || token.set(tokens.at(next).fresh().ld()))
            .otherwise(|| {
                k.for_each(0, a.stops, 1, |i| {
                    k.when(a.stop.at(i).ld().eq(&token), || state.at(DONE).st(1));
                });
            });
        let out = a.out.row(row.sequence, a.of.max_tokens * 4);
        out.at(row.position).st(&token);
        k.when(next.lt(limit) & token.get().ne(NO_TOKEN), || {
            tokens.at(next).st(&token);
            state.at(TOKEN).st(&token);
            state.at(POSITION).st(next);
        })
        .otherwise(|| state.at(DONE).st(1));
    }
}

impl<'k> Draw<'_, 'k> {
    /// Returns the drawn token, given a mask with the first `listed` tokens.
    ///
    /// The whole block must call it, with zero at `count`.
    fn token(&mut self, mask: &Mask<'k>, count: Ptr<'k, u32, Shared>, listed: U32<'k>) -> U32<'k> {
        let k = self.k;
        let params = &self.row.params;
        let mut token = k.var(0);
        k.when(listed.gt(0), || {
            k.section("sample/draw/listed", "the listed tokens");
            self.items.list(mask, count, listed);
        });

        // If nothing is listed, the difference wraps around and is not few.
        let few = (listed - 1).lt(FEW) & params.top_k.gt(0) & params.typical_p.eq(0);
        k.when(few, || token.set(few::choose(self, listed)))
            .otherwise(|| token.set(self.select(listed)));
        token.get()
    }
}
