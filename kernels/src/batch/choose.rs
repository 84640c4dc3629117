//! The end of a step of many sequences: the largest logit of each row, and the update of its state.
//!
//! Several blocks share a row of logits. Each stores the largest logit of its share and draws a
//! ticket. The last block reduces the shares. Ties go to the lowest index. A logit that is not
//! finite counts as infinity and therefore wins. The chosen token is then [`NO_TOKEN`].
//!
//! The chosen token is stored for the host and becomes the token of the next position. A sequence
//! is done when it chose a stop token or no token, or when it has no capacity for another one. If
//! no token was chosen, the state does not change otherwise.

use crate::harness::{Case, Variant};
use crate::shared::state::{DONE, LEN, LIMIT, NO_TOKEN, POSITION, SEQUENCE, TOKEN};
use crate::shared::{Contract, Random, check_lengths};
use crate::simple::argmax::{Best, NONE, best_of, first_largest, key, key_on_cpu};
use ptx_gen::*;
use std::array::from_fn;

args! {
    /// Arguments of [`ChooseTokens`].
    pub struct ChooseTokensArgs {
        /// `[capacity, vocab]`: the logits, of which `count` rows are read
        logits: In<f32>,
        /// `[count]`: the row of `state` that belongs to each row of logits. The rows must be
        /// distinct. A row outside of `state` is skipped. The buffer may be longer.
        rows: In<u32>,
        /// `[count, blocks]`: the largest logit of each share, or infinity if one of its logits is
        /// not finite. The buffer may be longer.
        value: InOut<f32>,
        /// `[count, blocks]`: the index of the largest logit of each share, or `u32::MAX` for an
        /// empty share. The buffer may be longer.
        index: InOut<u32>,
        /// `[count]`: the tickets, which must be zero before the launch and are zero after it. The
        /// buffer may be longer.
        ticket: InOut<u32>,
        /// `[stops]`: tokens that end a sequence. The buffer may be longer.
        stop: In<u32>,
        /// `[states, 8]`: the states, see [`state`](crate::shared::state). A state that is done is
        /// skipped, and so is one whose sequence or position is outside of `out`.
        state: InOut<u32>,
        /// `[sequences, max_tokens]`: the token that follows each position, for the host
        out: Out<u32>,
        /// The number of logits of a row, a multiple of 4.
        vocab: u32,
        /// The number of rows.
        count: u32,
        /// The capacity of `logits` in rows.
        capacity: u32,
        /// The number of blocks that share a row. It should be large enough that `count * blocks`
        /// fills the device.
        blocks: u32,
        /// The number of stop tokens.
        stops: u32,
        /// The number of rows of `state`.
        states: u32,
        /// The number of sequences.
        sequences: u32,
        /// The number of positions of a sequence in `out`.
        max_tokens: u32,
    }
}

/// Kernel that chooses the token with the largest logit for each row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChooseTokens;

/// The number of threads of a block.
const THREADS: u32 = 256;
/// The number of lanes of a warp.
const WARP: u32 = 32;
/// The number of logits of a load.
const WIDTH: u32 = 4;
/// The number of loads that a thread has in flight.
const IN_FLIGHT: u32 = 4;

impl KernelDef for ChooseTokens {
    type Args<S: Side> = ChooseTokensArgs<S>;

    fn name(&self) -> String {
        "choose_tokens".into()
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &ChooseTokensArgs<Shape>) -> Result<Grid, ShapeError> {
        let &ChooseTokensArgs {
            blocks,
            capacity,
            count,
            max_tokens,
            sequences,
            stops,
            vocab,
            ..
        } = a;
        self.multiple("vocab", vocab, WIDTH)?;
        self.range("count", count, 1, u16::MAX.into())?;
        self.range("capacity", capacity, count, 1 << 24)?;
        self.range("blocks", blocks, 1, 1 << 16)?;
        self.range("sequences", sequences, 1, 1 << 16)?;
        self.range("max_tokens", max_tokens, 1, 1 << 24)?;
        check_lengths! { self, a:
            logits == capacity * vocab,
            rows >= count,
            value >= count * blocks,
            index >= count * blocks,
            ticket >= count,
            stop >= stops,
        }
        self.length("state", a.state, "states * 8", &[a.states, LEN as u32])?;
        check_lengths! { self, a:
            out == sequences * max_tokens,
        }
        Ok(Grid::plane(blocks, count))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ChooseTokensArgs<Dev<'k>>) {
        let of = a.rows.at(k.ctaid_y()).ld();
        k.when(of.lt(a.states), || {
            let row = ChosenRow::new(k, &a, of);
            k.when(row.counts(), || row.process());
        });
    }

    fn reference(&self, a: ChooseTokensArgs<Cpu<'_>>) {
        let vocab = a.vocab as usize;
        let blocks = a.blocks as usize;
        let share = share_on_cpu(a.vocab, a.blocks);
        let rows = a.logits.chunks(vocab).zip(a.rows).take(a.count as usize);
        for (i, (logits, &row)) in rows.enumerate() {
            let Some(state) = a.state.chunks_mut(LEN).nth(row as usize) else {
                continue;
            };

            let [position, sequence] = [POSITION, SEQUENCE].map(|word| state[word as usize]);
            if state[DONE as usize] != 0 || sequence >= a.sequences || position >= a.max_tokens {
                continue;
            }

            let keys = || {
                logits
                    .iter()
                    .zip(0..)
                    .map(|(&x, token)| (key_on_cpu(x), token))
            };
            for block in 0..blocks {
                let (value, index) = first_largest(keys().skip(block * share).take(share));
                a.value[i * blocks + block] = value;
                a.index[i * blocks + block] = index;
            }

            let (value, token) = first_largest(keys());
            let chosen = if value < f32::INFINITY {
                token
            } else {
                NO_TOKEN
            };
            let out = sequence as usize * a.max_tokens as usize;
            a.out[out + position as usize] = chosen;
            let stops = a.stop[..a.stops as usize].contains(&chosen);
            step_on_cpu(state, chosen, stops);
        }
    }
}

/// Returns the number of logits of a block's share.
fn share_on_cpu(vocab: u32, blocks: u32) -> usize {
    ((vocab / WIDTH).div_ceil(blocks) * WIDTH) as usize
}

/// Updates a state after the choice of a token.
fn step_on_cpu(state: &mut [u32], chosen: u32, stops: bool) {
    if chosen != NO_TOKEN {
        state[TOKEN as usize] = chosen;
        state[POSITION as usize] += 1;
    }
    let full = state[POSITION as usize] >= state[LIMIT as usize];
    if stops || full || chosen == NO_TOKEN {
        state[DONE as usize] = 1;
    }
}

/// A row of logits and its state.
struct ChosenRow<'a, 'k> {
    k: Builder<'k>,
    a: &'a ChooseTokensArgs<Dev<'k>>,
    row: U32<'k>,
    state: Ptr<'k, u32, ReadWrite>,
    position: U32<'k>,
    done: U32<'k>,
    sequence: U32<'k>,
    limit: U32<'k>,
}

impl<'a, 'k> ChosenRow<'a, 'k> {
    /// Loads the state of row `of`.
    fn new(k: Builder<'k>, a: &'a ChooseTokensArgs<Dev<'k>>, of: U32<'k>) -> Self {
        let state = a.state.row(of, 4 * LEN as u32);
        let words = [POSITION, DONE, SEQUENCE, LIMIT];
        let [position, done, sequence, limit] = words.map(|word| state.at(word).ld());
        ChosenRow {
            k,
            a,
            row: k.ctaid_y(),
            state,
            position,
            done,
            sequence,
            limit,
        }
    }

    /// Returns whether the row is to be processed.
    fn counts(&self) -> Pred<'k> {
        let placed = self.sequence.lt(self.a.sequences) & self.position.lt(self.a.max_tokens);
        self.done.eq(0) & placed
    }

    /// Finds the largest logit of the block's share. The last block of the row chooses the token.
    fn process(&self) {
        let k = self.k;
        let a = self.a;

        k.section(
            "batch/choose/thread_maximum",
            "largest logit of the thread's share",
        );
        let best = self.of_thread().of_warp();

        k.section("batch/choose/block_maximum", "largest logit of the block");
        let warps = THREADS / WARP;
        let values = k.shared::<f32>("values", warps);
        let indices = k.shared::<u32>("indices", warps);
        k.when(k.lane().eq(0), || {
            values.at(k.warp()).st(best.value);
            indices.at(k.warp()).st(best.index);
        });
        k.barrier();
        k.when(k.warp().eq(0), || {
            let of = |i| Best {
                value: values.at(i).ld(),
                index: indices.at(i).ld(),
            };
            let best = best_of(k, k.lane(), warps, WARP, of).of_warp();
            let mut drawn = k.var(0);
            k.when(k.lane().eq(0), || {
                let at = self.row.mad(a.blocks, k.ctaid());
                a.value.at(at).st(best.value);
                a.index.at(at).st(best.index);
                drawn.set(a.ticket.at(self.row).ticket(a.blocks - 1));
            });

            k.section(
                "batch/choose/last_block",
                "the last block to finish chooses",
            );
            let drawn = drawn.get().broadcast();

            // The barrier extends the acquire of the ticket from lane 0 to the warp.
            k.warp_barrier();
            k.when(drawn.eq(a.blocks - 1), || self.choose());
        });
    }

    /// Returns the largest logit of the thread's share of the block's logits. Several loads are in
    /// flight. Loads past the end repeat the last one.
    fn of_thread(&self) -> Best<'k> {
        let k = self.k;
        let a = self.a;
        let loads = a.vocab / WIDTH;
        let share = (loads + (a.blocks - 1)) / a.blocks;
        let first = k.ctaid() * share;
        let end = (first + share).min(loads);
        let logits = a.logits.row(self.row, a.vocab * 4);
        let mut value = k.var(f32::NEG_INFINITY);
        let mut index = k.var(NONE);
        k.for_each(first + k.tid(), end, IN_FLIGHT * THREADS, |i| {
            let place = |j: usize| {
                let load = (i + j as u32 * THREADS).min(end - 1);
                load * WIDTH
            };
            let places: [U32; IN_FLIGHT as usize] = from_fn(place);
            let loaded = places.map(|at| logits.at(at).stream().ld4());
            for (at, four) in places.into_iter().zip(loaded) {
                for (j, logit) in (0..).zip(four) {
                    // Indices increase, so the first of equal logits stays.
                    let logit = key(logit);
                    let wins = logit.gt(&value);
                    value.set(wins.select(logit, &value));
                    index.set(wins.select(at + j, &index));
                }
            }
        });
        Best {
            value: value.get(),
            index: index.get(),
        }
    }

    /// Reduces the shares and updates the state. Only one warp may run it.
    fn choose(&self) {
        let k = self.k;
        let a = self.a;
        let of = |block: U32<'k>| {
            let at = self.row.mad(a.blocks, block);
            Best {
                value: a.value.at(at).fresh().ld(),
                index: a.index.at(at).fresh().ld(),
            }
        };
        let best = best_of(k, k.lane(), a.blocks, WARP, of).of_warp();
        let chosen = best.value.lt(f32::INFINITY).select(best.index, NO_TOKEN);

        k.section(
            "batch/choose/end_of_sequence",
            "check whether the token ends the sequence",
        );
        let mut stops = k.var(0);
        k.for_each(k.lane(), a.stops, WARP, |i| {
            k.when(a.stop.at(i).ld().eq(chosen), || stops.set(1));
        });
        let stops = stops.get().eq(1).any();
        k.when(k.lane().eq(0), || {
            let next = self.position + 1;
            let out = a.out.row(self.sequence, a.max_tokens * 4);
            out.at(self.position).st(chosen);

            // A stop token is stored like any other token, and ends the sequence after it.
            let none = chosen.eq(NO_TOKEN);
            k.when(!none, || {
                self.state.at(TOKEN).st(chosen);
                self.state.at(POSITION).st(next);
            });
            let full = next.ge(self.limit);
            k.when(stops | none | full, || self.state.at(DONE).st(1));
        });
    }
}

/// A test case of one row.
#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Ties,
    NotANumber,
    Infinite,
    Done,
    Stop,
    AfterTheStops,
    LastPosition,
    NoState,
    NoPlace,
    NoSequence,
}

const KINDS: [Kind; 11] = [
    Kind::Plain,
    Kind::Ties,
    Kind::NotANumber,
    Kind::Done,
    Kind::Stop,
    Kind::LastPosition,
    Kind::Infinite,
    Kind::AfterTheStops,
    Kind::NoState,
    Kind::NoPlace,
    Kind::NoSequence,
];

/// The number of positions of a sequence in the cases.
const MAX_TOKENS: u32 = 9;
const STOPS: [u32; 35] = {
    let mut stops = [u32::MAX - 1; 35];
    stops[33] = 3;
    stops[34] = 2;
    stops
};

impl Variant for ChooseTokens {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // A load for each of a few threads. Shares of one round and of several. Blocks with nothing
        // to do.
        let cases = [
            (1, 1, 4, 1),
            (5, 8, 1000, 3),
            (8, 8, 9000, 2),
            (17, 24, 300, 90),
            (17, 17, 64, 1),
            (8, 64, 160, 33),
        ];
        cases.map(|shape| case(shape, seed)).into()
    }
}

fn case((count, capacity, vocab, blocks): (u32, u32, u32, u32), seed: u64) -> Case {
    let mut random = Random(seed);
    let states = count + 2;
    let sequences = count + 3;
    let mut logits = random.units((capacity * vocab) as usize);
    let mut state: Vec<u32> = (0..states * LEN as u32).map(|_| random.below(7)).collect();
    let rows: Vec<u32> = (0..count).rev().chain([u32::MAX]).collect();
    let mut given = rows.clone();
    for i in 0..count as usize {
        let kind = KINDS[i % KINDS.len()];
        let mut write = |word: u32, to: u32| state[rows[i] as usize * LEN + word as usize] = to;
        for (word, to) in [
            (DONE, 0),
            (SEQUENCE, rows[i] + 1),
            (LIMIT, 8),
            (POSITION, 5),
        ] {
            write(word, to);
        }

        match kind {
            Kind::Done => write(DONE, 1),
            Kind::LastPosition => write(LIMIT, 6),
            Kind::NoPlace => write(POSITION, MAX_TOKENS),
            Kind::NoSequence => write(SEQUENCE, sequences),
            Kind::NoState => given[i] = states,
            _ => {}
        }

        fill(&mut logits[i * vocab as usize..][..vocab as usize], kind);
    }

    let shares = (count * blocks) as usize;
    let mut args = vec![
        CpuArg::F32(logits),
        CpuArg::U32(given),
        CpuArg::F32(vec![7.0; shares]),
        CpuArg::U32(vec![7; shares + 1]),
        CpuArg::U32(vec![0; count as usize + 1]),
        CpuArg::U32(STOPS.into()),
        CpuArg::U32(state),
        CpuArg::U32(vec![0; (sequences * MAX_TOKENS) as usize]),
    ];
    args.extend(
        [
            vocab, count, capacity, blocks, 34, states, sequences, MAX_TOKENS,
        ]
        .map(CpuArg::scalar),
    );
    Case {
        label: format!("count={count} vocab={vocab} blocks={blocks}"),
        args,
        bound: 0.0,
    }
}

fn fill(logits: &mut [f32], kind: Kind) {
    let n = logits.len();
    let special: &[(usize, f32)] = match kind {
        Kind::Ties => &[(n - 1, 2.0), (n / 2, 2.0), (n / 3, 2.0)],
        Kind::NotANumber => &[(n - 1, 2.0), (n / 2, f32::NAN)],
        Kind::Infinite => &[(n / 3, f32::NEG_INFINITY)],
        Kind::Stop => &[(3, 2.0)],
        Kind::AfterTheStops => &[(2, 2.0)],
        _ => &[],
    };
    for &(at, logit) in special {
        logits[at] = logit;
    }
}
