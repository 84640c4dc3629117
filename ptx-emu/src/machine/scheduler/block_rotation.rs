//! The blocks of one host thread. They run one after another, and take turns where they wait for
//! each other.
//!
//! A block runs until it ends, or until all its warps that can run poll, sleep or wait. Then
//! another block begins, or one that has begun continues. Under some schedules of traced launches
//! several blocks run in turns, though none waits. When every block that has begun waits and no
//! other can begin, the rotation [rests](crate::machine::state::standstill) until another host
//! thread, or something outside of the launch, changes memory.

use std::collections::VecDeque;

use crate::launch::{Stats, Trace};
use crate::machine::scheduler::warp_turns::BlockProgress;
use crate::machine::scheduler::{wait_reasons, warp_turns};
use crate::machine::seeded_choice::mix;
use crate::machine::state::block::Block;
use crate::machine::state::grid::GridState;
use crate::machine::state::standstill::{ChangeStamp, Rest};
use crate::sanitize::race::global::launch_recorder::{LaunchRecorder, Running};

/// The number of blocks that are interleaved, and the maximum number of rounds of each turn.
const INTERLEAVED: usize = 4;
const MOST_ROUNDS: u64 = 4;

/// A block that has begun and not ended.
struct LiveBlock<'g, 'a> {
    turn: u64,
    block: Block<'g, 'a>,
    /// The state of its record, in a traced launch.
    running: Option<Running>,
    /// The effects of the block when it last stopped.
    effects: u64,
}

/// The blocks of one host thread.
pub(crate) struct Rotation<'g, 'a> {
    grid: &'g GridState<'a>,
    live: VecDeque<LiveBlock<'g, 'a>>,
    spare: Vec<Block<'g, 'a>>,
    recorder: Option<Box<LaunchRecorder>>,
    /// The number of this rotation in the launch.
    number: usize,
    /// Whether the last block that ran waits.
    waits: bool,
    /// Whether the last block that ran has ended.
    ended: bool,
    still: Still,
    /// The number of turns of blocks so far.
    turns: u64,
}

/// A period in which neither these blocks nor anything else had an effect.
#[derive(Default)]
struct Still {
    /// The stamp before the period began.
    stamp: ChangeStamp,
    /// The number of turns, and of consecutive turns in which a block was proved to wait.
    turns: u64,
    same: u64,
    /// The number of times that all blocks were at rest.
    rounds: u32,
}

impl<'g, 'a> Rotation<'g, 'a> {
    pub(crate) fn new(grid: &'g GridState<'a>) -> Self {
        let recorder = (grid.trace == Trace::On).then(Box::default);
        Rotation {
            grid,
            live: VecDeque::new(),
            spare: Vec::new(),
            recorder,
            number: grid.standstill.join(),
            waits: false,
            ended: false,
            still: Still::default(),
            turns: 0,
        }
    }

    /// Runs blocks until none are left, or until the launch ends because it stands still.
    pub(crate) fn run(mut self) -> Stats {
        while let Some(mut live) = self.next() {
            if self.waits {
                let stamp = self.grid.standstill.stamp();
                if stamp != self.still.stamp {
                    self.still = Still {
                        stamp,
                        ..Still::default()
                    };
                }
            }

            let fuel = live.block.turns.fuel;
            let progress = self.advance(&mut live);
            match progress {
                Some(BlockProgress::Waits { proven }) => {
                    self.waits = true;
                    // A wait that only others can end is limited by time. Fuel limits loops that
                    // may end by themselves.
                    if proven && live.block.turns.effects == live.effects {
                        live.block.turns.fuel = fuel;
                    }
                    if self.keep(live, proven) {
                        break;
                    }
                }
                Some(BlockProgress::Paused) => {
                    self.changed();
                    self.live.push_back(live);
                }
                Some(BlockProgress::Ended) | None => {
                    self.grid.release();
                    self.changed();
                    self.ended = true;
                    if let (Some(recorder), Some(running)) = (&mut self.recorder, live.running) {
                        recorder.end(running);
                    }
                    self.spare.push(live.block);
                }
            }
        }

        let waiting = self
            .live
            .iter()
            .map(|live| wait_reasons::waits(&live.block, live.turn));
        self.grid.standstill.leave(self.number, waiting);
        self.finish()
    }

    /// Records an effect that other blocks can see.
    fn changed(&mut self) {
        self.waits = false;
        self.still = Still::default();
        self.grid.standstill.changed();
    }

    /// Returns the block that runs next. It is a new one if the last one waits or there is no
    /// other.
    fn next(&mut self) -> Option<LiveBlock<'g, 'a>> {
        let more = self.grid.interleaves && self.live.len() < INTERLEAVED;
        if (self.live.is_empty() || self.waits || more)
            && let Some(turn) = self.grid.take()
        {
            self.changed();
            return Some(self.begin(turn));
        }
        // The blocks that waited for the ended block have mostly started last.
        if std::mem::take(&mut self.ended) {
            self.live.pop_back()
        } else {
            self.live.pop_front()
        }
    }

    fn begin(&mut self, turn: u64) -> LiveBlock<'g, 'a> {
        let mut block = self.spare.pop().unwrap_or_else(|| Block::new(self.grid));
        block.begin(self.grid.block(turn));
        let running = self.recorder.as_mut().map(|recorder| recorder.begin());
        let effects = block.turns.effects;
        LiveBlock {
            turn,
            block,
            running,
            effects,
        }
    }

    /// Runs a block. Returns `None` if it has a fault, which is recorded.
    fn advance(&mut self, live: &mut LiveBlock<'g, 'a>) -> Option<BlockProgress> {
        if let (Some(recorder), Some(running)) = (&mut self.recorder, live.running.take()) {
            recorder.resume(running);
        }

        std::mem::swap(&mut self.recorder, &mut live.block.recorder);
        self.turns += 1;
        let rounds = if self.grid.interleaves {
            1 + mix(self.grid.schedule.seed ^ self.turns << 20) % MOST_ROUNDS
        } else {
            u64::MAX
        };
        let progress = warp_turns::advance(&mut live.block, rounds);
        std::mem::swap(&mut self.recorder, &mut live.block.recorder);
        live.running = self.recorder.as_mut().map(|recorder| recorder.suspend());
        progress
            .map_err(|fault| {
                self.grid
                    .record(live.turn, fault, live.block.turns.postponed.take())
            })
            .ok()
    }

    /// Keeps a waiting block. Returns true if the launch ends because it stands still.
    fn keep(&mut self, mut live: LiveBlock<'g, 'a>, proven: bool) -> bool {
        let effects = live.block.turns.effects;
        let did = std::mem::replace(&mut live.effects, effects) != effects;
        self.live.push_back(live);
        if did {
            self.changed();
            self.waits = true;
            self.still.stamp = self.grid.standstill.stamp();
        }

        self.still.turns += 1;
        self.still.same = if proven { self.still.same + 1 } else { 0 };
        let all = self.live.len() as u64;

        // After two rounds, each block has seen all effects of the last block that did something.
        let in_vain = self.still.same > 2 * all;
        if self.grid.standstill.is_decided() {
            return true;
        }
        if !in_vain || self.grid.can_begin() || !self.still.turns.is_multiple_of(all) {
            return false;
        }

        self.still.rounds = self.still.rounds.saturating_add(1);
        let Still { stamp, rounds, .. } = self.still;
        let polled = self
            .live
            .iter()
            .map(|live| warp_turns::polled(&live.block))
            .max()
            .unwrap_or_default();
        self.grid.standstill.rest(
            self.number,
            Rest {
                stamp,
                polled,
                rounds,
            },
        )
    }

    fn finish(self) -> Stats {
        let grid = self.grid;
        let mut stats = Stats::default();
        let blocks = self
            .spare
            .into_iter()
            .chain(self.live.into_iter().map(|live| live.block));
        blocks.for_each(|block| stats.add(&block.finish()));
        let place = |pc: u32| grid.code.places[pc as usize].clone();
        let find = |base| grid.table.reach(base).map(|a| a.info());
        stats.accesses = self
            .recorder
            .map(|r| r.finish(&grid.launch.kernel.name, place, find));
        stats
    }
}
