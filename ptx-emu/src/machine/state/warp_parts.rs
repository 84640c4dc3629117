//! The parts of a warp: the positions of its lanes, the lanes that run apart, and what it remembers
//! while it polls.

use crate::machine::state::barrier_state::BarrierUse;
use crate::machine::state::standstill::Polled;
use crate::module::code::instruction::BarrierKind;
use crate::module::registers::Regs;

/// The position and the registers of lanes that run together.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneContext {
    pub(crate) now: WarpFrame,
    pub(crate) stack: Vec<WarpFrame>,
    pub(crate) floor: usize,
    pub(crate) calls: Vec<WaitingCaller>,
    pub(crate) regs: Regs,
    pub(crate) lost: Vec<LostRegister>,
    pub(crate) returned: u32,
    pub(crate) routine: u32,
    pub(crate) frame: u32,
    pub(crate) top: u32,
}

/// The reason why a strand does not run.
#[derive(Debug)]
pub(crate) enum StrandState {
    Runnable,
    /// It polled when it last ran, and nothing has happened since.
    Polled,
    /// It has come to the place where it diverged from a strand that can run.
    AtJoin,
    /// It waits for the other lanes that its mask names.
    Waits(Meeting),
    /// It waits for the whole warp at an `.aligned` instruction.
    Aligned,
}

/// A group of lanes that is not running.
#[derive(Debug)]
pub(crate) struct Strand {
    pub(crate) context: LaneContext,
    pub(crate) state: StrandState,
    /// The barrier whose result its registers receive when the warp is released.
    pub(crate) reduction: Option<BarrierKind>,
}

/// One call of a context: its position, its routine and local memory, and its part of the stack.
pub(crate) struct CallLevel {
    pub(crate) now: WarpFrame,
    pub(crate) routine: u32,
    pub(crate) frame: u32,
    pub(crate) stack: std::ops::Range<usize>,
}

/// Lanes that run together, or wait to do so.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WarpFrame {
    pub(crate) pc: u32,
    /// The reconvergence point, where these lanes stop and wait for others.
    pub(crate) join: u32,
    pub(crate) mask: u32,
}

/// A register that a shuffle filled from uninitialized lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostRegister {
    pub(crate) slot: u32,
    pub(crate) pc: u32,
    pub(crate) lanes: u32,
}

impl LostRegister {
    /// Keeps some of the lanes. Returns false if none is left.
    pub(crate) fn keep(&mut self, lanes: u32) -> bool {
        self.lanes &= lanes;
        self.lanes != 0
    }
}

/// A caller that waits for the function it called.
#[derive(Clone, Debug)]
pub(crate) struct WaitingCaller {
    pub(crate) regs: Regs,
    /// Its position, which is the call.
    pub(crate) now: WarpFrame,
    pub(crate) floor: usize,
    pub(crate) returned: u32,
    pub(crate) lost: Vec<LostRegister>,
    pub(crate) routine: u32,
    pub(crate) frame: u32,
    pub(crate) top: u32,
    /// The lanes that execute the function.
    pub(crate) lanes: u32,
    /// The functions that other lanes of the same call have yet to call, with their lanes.
    pub(crate) next: Vec<(u32, u32)>,
}

/// The polling state of a warp.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Polling {
    /// The number of turns without an effect.
    pub(crate) quiet: u32,
    /// Whether the last turn had no effect.
    pub(crate) again: bool,
    /// The state hash at the last sleep or failed wait.
    pub(crate) slept: u64,
    /// The last instruction that read memory, and the address.
    pub(crate) asked: Option<(u32, u64)>,
    /// Whether the loop contains a strong load or an atomic, which indicates a wait.
    pub(crate) asks: bool,
    /// The memory that the warp has read since its last effect.
    pub(crate) polled: Polled,
    /// The number of examinations in a row that did not show whether the loop ends by itself.
    pub(crate) unknown: u32,
    /// Whether a wait for an mbarrier has failed since the last effect.
    pub(crate) failed: bool,
    /// Whether `try_wait` returns false at once instead of suspending the warp.
    pub(crate) impatient: bool,
    /// The number of failed waits for an mbarrier since the last effect, while the warp is patient.
    pub(crate) yields: u32,
}

impl Polling {
    /// Returns true if the warp polled in its last turn.
    pub(crate) fn is_again(&self) -> bool {
        self.again
    }

    /// Returns the memory that the warp polls.
    pub(crate) fn polled(&self) -> Polled {
        if self.again {
            self.polled
        } else {
            Polled::Block
        }
    }

    /// Returns the last instruction that read memory while the warp polled, and the address.
    pub(crate) fn asked(&self) -> Option<(u32, u64)> {
        self.asked
    }

    /// Returns true if the loop in which the warp polls contains a failed wait for an mbarrier.
    pub(crate) fn awaits_mbarrier(&self) -> bool {
        self.again && self.failed
    }

    /// Records a failed wait for an mbarrier, if the warp paused for one.
    pub(crate) fn note_failed(&mut self, pause: Pause) {
        self.failed |= pause == Pause::Yields;
    }

    /// Returns true if `try_wait` must not suspend the warp.
    pub(crate) fn is_impatient(&self) -> bool {
        self.impatient
    }
}

/// An instruction that lanes execute together, wherever they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meeting {
    /// The kind of instruction and its qualifiers.
    pub(crate) kind: String,
    /// The mask that the lanes name, or all lanes for a barrier.
    pub(crate) named: u32,
    pub(crate) at: MeetingPlace,
    /// The instruction, where lanes can meet at the same one only.
    pub(crate) pc: Option<u32>,
}

/// The kind of place where lanes meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeetingPlace {
    /// An instruction with a mask.
    Mask,
    /// A barrier of the block.
    Barrier(BarrierUse),
    /// A wait at the barrier of the cluster.
    Cluster,
}

impl Meeting {
    pub(crate) fn named(&self) -> u32 {
        self.named
    }
}

/// The reason why a warp stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It executed its share of instructions.
    Turn,
    /// It waits at a barrier or for an mbarrier.
    Waits,
    /// Its wait for an mbarrier failed. It tries again after the other warps ran.
    Yields,
    /// It executed `nanosleep`, which polling loops often contain.
    Sleeps,
    /// It polls. It did nothing that another thread can see.
    Spins,
    /// It polls and is in the state in which it was before, so that only another thread can end its
    /// loop.
    Stays,
    /// All its lanes have exited.
    Ended,
}
