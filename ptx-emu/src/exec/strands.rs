//! Lanes of a warp that run apart from the others.
//!
//! As long as no lane of a warp waits for another one, its lanes reconverge behind each branch. When the running lanes
//! poll, and others of their warp wait to reconverge with them or have not begun their side of the branch, these run on
//! alone: each group is then a strand with its own stack of frames, and with the calls that it is in and the others are not.
//! At a `.sync` or `.aligned` instruction that names lanes of several strands they wait for each other, and run together
//! again: in one call, if they have called the same function from the same place.

use super::block::{Checked, Worker};
use super::call::Suspended;
use super::lanes;
use super::warp::{Frame, Warp};
use crate::code::{EXECUTING, Op};

/// Lanes that wait while others of their warp run.
#[derive(Debug)]
pub(crate) struct Strand {
    now: Frame,
    stack: Vec<Frame>,
    /// Calls that it shares with those that run meanwhile.
    depth: usize,
    /// Calls that it is in beyond these, outermost first.
    inner: Vec<Inner>,
    /// Whether it polled when it last ran.
    polled: bool,
    /// Whether it waits at an instruction for other lanes.
    gathers: bool,
}

/// A call of a strand, and the strands that wait within it.
#[derive(Debug)]
struct Inner {
    call: Suspended,
    apart: Vec<Strand>,
}

fn only(frame: &Frame, lanes: u32) -> Frame {
    Frame { mask: frame.mask & lanes, ..*frame }
}

/// Where lanes are: in each call the instruction, the routine and its local memory, and where frames go on.
type Shape = Vec<[u32; 4]>;

fn add_level(shape: &mut Shape, now: &Frame, stack: &[Frame], [routine, memory]: [u32; 2]) {
    shape.push([now.pc, now.join, routine, memory]);
    let waiting = stack.iter().filter(|frame| frame.mask != 0);
    shape.extend(waiting.map(|frame| [frame.pc, frame.join, u32::MAX, u32::MAX]));
}

impl Strand {
    fn lanes(&self) -> u32 {
        self.stack.iter().fold(self.now.mask, |all, frame| all | frame.mask)
    }

    fn shape(&self) -> Shape {
        let mut shape = Shape::new();
        add_level(&mut shape, &self.now, &self.stack, [0, 0]);
        for Inner { call, .. } in &self.inner {
            add_level(&mut shape, &call.now, &call.stack, [call.routine, call.frame]);
        }
        shape
    }

    fn frames(&self) -> Box<dyn Iterator<Item = &Frame> + '_> {
        let within = |inner| {
            let Inner { call, apart }: &Inner = inner;
            call.stack.iter().chain([&call.now]).chain(apart.iter().flat_map(Strand::frames))
        };
        Box::new(self.stack.iter().chain([&self.now]).chain(self.inner.iter().flat_map(within)))
    }

    /// Takes up the lanes of another strand, of the same shape.
    fn absorb(&mut self, other: Strand) {
        add_masks((&mut self.now, &mut self.stack), (other.now, &other.stack));
        for (own, Inner { call, apart }) in self.inner.iter_mut().zip(other.inner) {
            add_masks((&mut own.call.now, &mut own.call.stack), (call.now, &call.stack));
            own.call.absorb(call);
            own.apart.extend(apart);
        }
    }
}

fn add_masks((now, stack): (&mut Frame, &mut [Frame]), (other, others): (Frame, &[Frame])) {
    now.mask |= other.mask;
    stack.iter_mut().zip(others).for_each(|(frame, other)| frame.mask |= other.mask);
}

impl Warp {
    /// Every frame: of the running lanes, of those that wait for them, and of those that run apart.
    pub(super) fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.stack.iter().chain([&self.now]).chain(self.apart.iter().flat_map(Strand::frames))
    }

    /// The frames of the running lanes in their call number `depth`: the one that runs or calls, and those that wait.
    fn level(&self, depth: usize) -> (&Frame, &[Frame]) {
        let floor = |depth: usize| self.calls.get(depth).map_or(self.floor, |call| call.floor);
        let end = if depth == self.calls.len() { self.stack.len() } else { floor(depth + 1) };
        (self.calls.get(depth).map_or(&self.now, |call| &call.now), &self.stack[floor(depth)..end])
    }

    /// The shape that the running lanes would have as a strand of some depth.
    fn shape_from(&self, depth: usize) -> Shape {
        let mut shape = Shape::new();
        for k in depth..=self.calls.len() {
            let (now, stack) = self.level(k);
            let at = self.calls.get(k).map_or([self.routine, self.frame], |call| [call.routine, call.frame]);
            add_level(&mut shape, now, stack, if k == depth { [0, 0] } else { at });
        }
        shape
    }

    /// The lanes that wait, in call number `depth`, for the running ones.
    fn waiting(&self, depth: usize) -> u32 {
        let (now, stack) = self.level(depth);
        let gone = self.exited | self.calls.get(depth).map_or(self.returned, |call| call.returned);
        stack.iter().fold(0, |all, frame| all | frame.mask) & !now.mask & !gone
    }

    /// Takes the running lanes away, with their stack and the calls beyond a depth.
    fn park(&mut self, depth: usize, polled: bool, gathers: bool) -> Strand {
        let mut inner = Vec::new();
        while self.calls.len() > depth {
            let within = self.calls.len();
            let (apart, rest) = std::mem::take(&mut self.apart).into_iter().partition(|s| s.depth == within);
            self.apart = rest;
            inner.extend(self.suspend().map(|call| Inner { call, apart }));
        }
        inner.reverse();
        let mut stack = self.stack.split_off(self.floor);
        stack.retain(|frame| frame.mask != 0);
        Strand { now: std::mem::take(&mut self.now), stack, depth, inner, polled, gathers }
    }

    /// Runs a strand; the warp is where the strand has left it, and nobody runs.
    fn unpark(&mut self, strand: Strand) {
        self.now = strand.now;
        self.stack.extend(strand.stack);
        for Inner { call, apart } in strand.inner {
            self.proceed(call);
            self.apart.extend(apart);
        }
        // Its lanes may have exited in the meantime with none left.
        if self.now.mask & !(self.exited | self.returned) == 0 {
            self.resume();
        }
    }

    /// Runs a strand instead of the running lanes.
    fn switch(&mut self, to: usize, polled: bool, gathers: bool) {
        let next = self.apart.remove(to);
        let own = self.park(next.depth, polled, gathers);
        self.apart.push(own);
        self.unpark(next);
    }

    /// A strand that can go on, first one that has not polled since.
    fn find_apart(&self) -> Option<usize> {
        let find = |which: fn(&Strand) -> bool| self.apart.iter().position(which);
        find(|strand| !strand.gathers && !strand.polled).or_else(|| find(|strand| !strand.gathers))
    }

    /// The running lanes poll: runs others of the warp that have not polled since; whether there are any.
    pub(super) fn run_others(&mut self) -> bool {
        if self.split() {
            return true;
        }
        let next = self.find_apart();
        if let Some(next) = next.filter(|next| !self.apart[*next].polled) {
            self.switch(next, true, false);
            return true;
        }
        // All have polled: the next time another one begins.
        self.others_may_run();
        if let Some(next) = next {
            self.switch(next, false, false);
        }
        false
    }

    /// Strands that have polled may find something else now.
    pub(super) fn others_may_run(&mut self) {
        self.apart.iter_mut().for_each(|strand| strand.polled = false);
    }

    /// Lets the lanes run that wait for the running ones, in the same call or in one of its callers; whether there are any.
    fn split(&mut self) -> bool {
        let Some(depth) = (0..=self.calls.len()).rev().find(|depth| self.waiting(*depth) != 0) else {
            return false;
        };
        let rest = self.waiting(depth);
        let mut own = self.park(depth, true, false);
        self.stack.extend(own.stack.iter().map(|frame| only(frame, rest)));
        let lanes = own.now.mask;
        own.stack.iter_mut().for_each(|frame| frame.mask &= lanes);
        own.stack.retain(|frame| frame.mask != 0);
        self.apart.push(own);
        self.resume();
        true
    }

    /// The running lanes have ended: runs a strand that waits at the same depth of calls; whether there is one.
    pub(super) fn run_apart(&mut self) -> bool {
        let depth = self.calls.len();
        let find = |of: fn(&Strand) -> bool| self.apart.iter().position(|s| s.depth == depth && of(s));
        let Some(next) = find(|strand| !strand.gathers).or_else(|| find(|_| true)) else { return false };
        let strand = self.apart.remove(next);
        self.unpark(strand);
        true
    }

    /// Joins the strands that wait at the same instruction as the running lanes.
    fn merge(&mut self) {
        let same = |w: &Warp, s: &Strand| s.gathers && s.shape() == w.shape_from(s.depth);
        while let Some(at) = self.apart.iter().position(|strand| same(self, strand)) {
            let other = self.apart.remove(at);
            let mut own = self.park(other.depth, false, false);
            own.absorb(other);
            self.unpark(own);
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
        let Some(next) = self.find_apart() else { return self.now.mask != before };
        self.switch(next, false, true);
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
        if named == EXECUTING {
            return Ok(false);
        }
        let masks = *w.regs.get::<u32>(named, mask).map_err(|u| self.undefined(w, u))?;
        let named = lanes(mask).fold(0, |all, lane| all | masks[lane]);
        Ok(w.gather(named))
    }
}
