//! The blocks of one host thread. They run one after another, and take turns where they wait for each other.
//!
//! A block runs until it ends, or until all its warps that can run poll, sleep or wait. Then another block begins, or one
//! that has begun goes on. Under some schedules of traced launches several blocks run in turns, though none waits. When
//! every block that has begun waits and no other is left, nobody can end the waiting.

use std::collections::VecDeque;

use super::block::Worker;
use super::grid::{Grid, mix};
use super::trace::{Recorder, Running};
use super::turns::Progress;
use crate::launch::{Stats, Trace};

/// Blocks of one thread that may wait at a time, unless the launch is cooperative.
const MOST_WAITING: usize = 1024;

/// Blocks that run in turns where blocks are interleaved, and rounds of turns that each gets at most.
const INTERLEAVED: usize = 4;
const MOST_ROUNDS: u64 = 4;

/// How long a host thread backs off while its blocks wait for those of other threads.
const BACK_OFF: std::time::Duration = std::time::Duration::from_micros(20);

/// Turns of each block, and instructions in all, after which blocks wait in vain that do nothing but ask: they count, or
/// look at a clock, and so are never twice in the same state.
const MOST_TURNS: u64 = 4096;
const MOST_ASKED: u64 = 1 << 22;

/// A block that has begun and not ended.
struct Live<'g, 'a> {
    turn: u64,
    worker: Worker<'g, 'a>,
    /// Its part of the record, in a traced launch.
    running: Option<Running>,
    /// What it had done when it last stopped.
    effects: u64,
}

/// The blocks of one host thread.
pub(super) struct Rotation<'g, 'a> {
    grid: &'g Grid<'a>,
    live: VecDeque<Live<'g, 'a>>,
    spare: Vec<Worker<'g, 'a>>,
    recorder: Option<Box<Recorder>>,
    /// Whether no block of another host thread can end what these wait for.
    alone: bool,
    /// Whether the last block to run waits.
    waits: bool,
    /// Whether the last block to run has ended.
    ended: bool,
    still: Still,
    /// Turns of blocks so far.
    turns: u64,
}

/// How long nobody has done anything that others can see.
#[derive(Default)]
struct Still {
    /// Turns of blocks, and those of them in a row after which the block was in the state it was in before.
    turns: u64,
    same: u64,
    /// Instructions executed.
    asked: u64,
}

impl<'g, 'a> Rotation<'g, 'a> {
    pub(super) fn new(grid: &'g Grid<'a>, alone: bool) -> Self {
        let recorder = (grid.trace == Trace::On).then(Box::default);
        Rotation {
            grid,
            live: VecDeque::new(),
            spare: Vec::new(),
            recorder,
            alone,
            waits: false,
            ended: false,
            still: Still::default(),
            turns: 0,
        }
    }

    /// Runs blocks until none are left.
    pub(super) fn run(mut self) -> Stats {
        while let Some(mut block) = self.next() {
            let before = block.worker.stats.warp_instructions;
            let progress = self.advance(&mut block);
            let asked = block.worker.stats.warp_instructions - before;
            match progress {
                Some(Progress::Waits { proven }) => self.keep(block, asked, proven),
                Some(Progress::Paused) => {
                    (self.waits, self.still) = (false, Still::default());
                    self.live.push_back(block);
                }
                Some(Progress::Ended) | None => {
                    (self.waits, self.still) = (false, Still::default());
                    self.ended = true;
                    if let (Some(recorder), Some(running)) = (&mut self.recorder, block.running) {
                        recorder.end(running);
                    }
                    self.spare.push(block.worker);
                }
            }
        }
        self.finish()
    }

    /// The block that runs next: a new one if the last one waits or there is no other.
    fn next(&mut self) -> Option<Live<'g, 'a>> {
        let room = self.live.len() < MOST_WAITING || self.grid.cooperative;
        let more = self.grid.interleaves && self.live.len() < INTERLEAVED;
        if (self.live.is_empty() || self.waits && room || more)
            && let Some(turn) = self.grid.take()
        {
            (self.waits, self.still) = (false, Still::default());
            return Some(self.begin(turn));
        }
        // Who waits for the one that has just ended has mostly begun last.
        match std::mem::take(&mut self.ended) {
            true => self.live.pop_back(),
            false => self.live.pop_front(),
        }
    }

    fn begin(&mut self, turn: u64) -> Live<'g, 'a> {
        let mut worker = self.spare.pop().unwrap_or_else(|| Worker::new(self.grid));
        worker.begin(self.grid.block(turn));
        let running = self.recorder.as_mut().map(|recorder| recorder.begin());
        let effects = worker.effects;
        Live { turn, worker, running, effects }
    }

    /// Lets a block run; none if it has a fault, which is recorded.
    fn advance(&mut self, block: &mut Live<'g, 'a>) -> Option<Progress> {
        if let (Some(recorder), Some(running)) = (&mut self.recorder, block.running.take()) {
            recorder.resume(running);
        }
        std::mem::swap(&mut self.recorder, &mut block.worker.recorder);
        self.turns += 1;
        let rounds = match self.grid.interleaves {
            true => 1 + mix(self.grid.schedule.seed ^ self.turns << 20) % MOST_ROUNDS,
            false => u64::MAX,
        };
        let progress = block.worker.advance(rounds);
        std::mem::swap(&mut self.recorder, &mut block.worker.recorder);
        block.running = self.recorder.as_mut().map(|recorder| recorder.suspend());
        progress.map_err(|fault| self.grid.record(block.turn, fault, block.worker.postponed.take())).ok()
    }

    /// Keeps a block that waits.
    fn keep(&mut self, mut block: Live<'g, 'a>, asked: u64, proven: bool) {
        let effects = block.worker.effects;
        if std::mem::replace(&mut block.effects, effects) != effects {
            self.still = Still::default();
        }
        self.still.turns += 1;
        self.still.asked += asked;
        self.still.same = if proven { self.still.same + 1 } else { 0 };
        self.live.push_back(block);
        let all = self.live.len() as u64;
        let asked_enough = self.still.asked >= MOST_ASKED && self.still.turns >= MOST_TURNS * all;
        // In two rounds each block has looked at what the last one to do something has done.
        let in_vain = self.still.same > 2 * all || asked_enough;
        self.waits = true;
        let nobody_left = self.grid.left() == 0 || all as usize >= MOST_WAITING;
        if in_vain && nobody_left {
            self.give_up();
        }
    }

    /// Nobody here can go on: ends the blocks, unless those of other host threads may help.
    fn give_up(&mut self) {
        if !self.alone {
            return std::thread::sleep(BACK_OFF);
        }
        let Some(first) = self.live.iter().min_by_key(|block| block.turn) else { return };
        let others = self.live.iter().filter(|block| block.turn != first.turn).map(|block| &block.worker);
        let fault = first.worker.waits_in_vain(others);
        self.grid.record(first.turn, fault, None);
        self.spare.extend(self.live.drain(..).map(|block| block.worker));
        (self.waits, self.still) = (false, Still::default());
    }

    fn finish(self) -> Stats {
        let grid = self.grid;
        let mut stats = Stats::default();
        let workers = self.spare.into_iter().chain(self.live.into_iter().map(|block| block.worker));
        workers.for_each(|worker| stats.add(&worker.finish()));
        let place = |pc: u32| grid.code.places[pc as usize].clone();
        let find = |base| grid.table.reach(base).map(|a| a.info());
        stats.accesses = self.recorder.map(|r| r.finish(&grid.launch.kernel.name, place, find));
        stats
    }
}
