//! Lanes of a warp that run apart from the others.
//!
//! As long as no lane of a warp waits for another one, its lanes reconverge behind each branch. When the running lanes
//! poll, and others of their warp wait to reconverge with them or have not begun their side of the branch, these run on
//! alone: each group is then a strand with its own stack of frames. At a `.sync` or `.aligned` instruction that names
//! lanes of several strands they wait for each other, and run together again.

use super::block::{Checked, Worker};
use super::lanes;
use super::warp::{Frame, Warp};
use crate::code::Op;

/// Lanes that wait while others of their warp run.
#[derive(Clone, Debug)]
pub(crate) struct Strand {
    now: Frame,
    stack: Vec<Frame>,
    /// Calls in which it is.
    depth: usize,
    /// Whether it polled when it last ran.
    polled: bool,
    /// Whether it waits at an instruction for other lanes.
    gathers: bool,
}

impl Strand {
    fn lanes(&self) -> u32 {
        self.stack.iter().fold(self.now.mask, |all, frame| all | frame.mask)
    }

    fn has_shape_of(&self, now: &Frame, stack: &[Frame]) -> bool {
        let same = |a: &Frame, b: &Frame| (a.pc, a.join) == (b.pc, b.join);
        same(&self.now, now)
            && self.stack.len() == stack.len()
            && self.stack.iter().zip(stack).all(|(a, b)| same(a, b))
    }
}

fn only(frame: &Frame, lanes: u32) -> Frame {
    Frame { mask: frame.mask & lanes, ..*frame }
}

impl Warp {
    /// Every frame: of the running lanes, of those that wait for them, and of those that run apart.
    pub(super) fn frames(&self) -> impl Iterator<Item = &Frame> {
        let apart = self.apart.iter().flat_map(|strand| strand.stack.iter().chain([&strand.now]));
        self.stack.iter().chain([&self.now]).chain(apart)
    }

    /// Takes the running lanes away, with their stack.
    fn park(&mut self, polled: bool, gathers: bool) {
        let stack = self.stack.split_off(self.floor);
        let now = std::mem::take(&mut self.now);
        self.apart.push(Strand { now, stack, depth: self.calls.len(), polled, gathers });
    }

    /// Runs one of the strands that wait.
    fn unpark(&mut self, at: usize) {
        let strand = self.apart.remove(at);
        self.now = strand.now;
        self.stack.extend(strand.stack);
        // Its lanes may have exited in the meantime with none left.
        if self.now.mask & !(self.exited | self.returned) == 0 {
            self.resume();
        }
    }

    fn find_apart(&self, which: impl Fn(&Strand) -> bool) -> Option<usize> {
        self.apart.iter().position(|strand| strand.depth == self.calls.len() && which(strand))
    }

    /// The running lanes poll: runs others of the warp that have not polled since; whether there are any.
    pub(super) fn run_others(&mut self) -> bool {
        if self.split() {
            return true;
        }
        let next = self.find_apart(|strand| !strand.gathers && !strand.polled);
        if let Some(next) = next {
            self.park(true, false);
            self.unpark(next);
            return true;
        }
        // All have polled: the next time another one begins.
        self.others_may_run();
        if let Some(next) = self.find_apart(|strand| !strand.gathers) {
            self.park(false, false);
            self.unpark(next);
        }
        false
    }

    /// Strands that have polled may find something else now.
    pub(super) fn others_may_run(&mut self) {
        self.apart.iter_mut().for_each(|strand| strand.polled = false);
    }

    /// Lets the lanes run that wait for the running ones; whether there are any.
    fn split(&mut self) -> bool {
        let own = self.now.mask;
        let beneath = &self.stack[self.floor..];
        let gone = self.exited | self.returned;
        let rest = beneath.iter().fold(0, |all, frame| all | frame.mask) & !own & !gone;
        if rest == 0 {
            return false;
        }
        let others: Vec<Frame> = beneath.iter().map(|frame| only(frame, rest)).collect();
        self.stack[self.floor..].iter_mut().for_each(|frame| frame.mask &= own);
        self.park(true, false);
        self.stack.extend(others);
        self.resume();
        true
    }

    /// The running lanes have ended: runs a strand that waits at the same depth of calls; whether there is one.
    pub(super) fn run_apart(&mut self) -> bool {
        let next = self.find_apart(|strand| !strand.gathers).or_else(|| self.find_apart(|_| true));
        next.map(|next| self.unpark(next)).is_some()
    }

    /// Joins the strands that wait at the same instruction as the running lanes.
    fn merge(&mut self) {
        while let Some(at) = self
            .find_apart(|strand| strand.gathers && strand.has_shape_of(&self.now, &self.stack[self.floor..]))
        {
            let strand = self.apart.remove(at);
            self.now.mask |= strand.now.mask;
            let frames = self.stack[self.floor..].iter_mut().zip(&strand.stack);
            frames.for_each(|(frame, other)| frame.mask |= other.mask);
        }
    }

    /// Before an instruction that lanes execute together: whether the running ones must wait for others, of `named`, or
    /// have just been joined by some.
    fn gather(&mut self, named: u32) -> bool {
        let missing = |w: &Warp| named & w.present() & !w.now.mask;
        let apart = self.apart.iter().fold(0, |all, strand| all | strand.lanes());
        if missing(self) & apart == 0 {
            return false;
        }
        let before = self.now.mask;
        self.merge();
        if missing(self) == 0 {
            return self.now.mask != before;
        }
        let Some(next) = self
            .find_apart(|strand| !strand.gathers && !strand.polled)
            .or_else(|| self.find_apart(|strand| !strand.gathers))
        else {
            return self.now.mask != before;
        };
        self.park(false, true);
        self.unpark(next);
        true
    }
}

impl Worker<'_, '_> {
    /// As [`Warp::gather`], for an operation that lanes of `mask` are about to execute.
    #[cold]
    pub(super) fn gathers(&self, w: &mut Warp, mask: u32, op: &Op) -> Checked<bool> {
        let named = match op {
            Op::Shuffle(s) => s.mask,
            Op::Vote { mask, .. }
            | Op::Match { mask, .. }
            | Op::Redux { mask, .. }
            | Op::Elect { mask, .. }
            | Op::WarpBarrier { mask } => *mask,
            Op::Barrier(_)
            | Op::ClusterArrive { .. }
            | Op::ClusterWait
            | Op::SetMaxRegisters { .. }
            | Op::Mma(_)
            | Op::LoadMatrix(_)
            | Op::StoreMatrix(_)
            | Op::MoveMatrix { .. }
            | Op::Product(_)
            | Op::LoadFragment(_)
            | Op::StoreFragment(_)
            | Op::Wgmma(_)
            | Op::WgmmaFence
            | Op::WgmmaCommit
            | Op::WgmmaWait { .. } => return Ok(w.gather(u32::MAX)),
            _ => return Ok(false),
        };
        let masks = *w.regs.get::<u32>(named, mask).map_err(|u| self.undefined(w, u))?;
        let named = lanes(mask).fold(0, |all, lane| all | masks[lane]);
        Ok(w.gather(named))
    }
}
