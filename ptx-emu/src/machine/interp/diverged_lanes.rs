//! Independent thread scheduling: lanes of a warp that run apart from the others.
//!
//! As long as no lane waits for another one, the lanes of a warp have one stack of frames, and
//! reconverge behind each branch. When the running lanes poll, or [wait for
//! others](crate::machine::interp::lane_meetings) at an instruction, the rest of the warp goes
//! on without them. Each group is then a strand with its own calls, frames and registers. The lanes
//! of a group are copied out of the registers and back into them when two strands become one again.
//!
//! Two strands become one where they diverged: a strand that reaches that place waits there as long
//! as the other strand can run. It goes on alone if the other one polls or waits for lanes itself,
//! because nothing in PTX promises that diverged lanes reconverge. Lanes that return from a
//! function reconverge in the same way behind the call.

use crate::machine::state::warp::Warp;
use crate::machine::state::warp_parts::{
    CallLevel, LaneContext, Meeting, Strand, StrandState, WarpFrame,
};
use crate::module::code::KernelCode;
use crate::module::control_flow::reaches;

impl LaneContext {
    pub(crate) fn frames(&self) -> impl Iterator<Item = &WarpFrame> {
        self.stack
            .iter()
            .chain([&self.now])
            .chain(self.calls.iter().map(|call| &call.now))
    }

    /// Returns the lanes of the context, some of which may have exited.
    pub(crate) fn lanes(&self) -> u32 {
        self.frames().fold(0, |all, frame| all | frame.mask)
    }

    fn levels(&self) -> Vec<CallLevel> {
        let floors = self
            .calls
            .iter()
            .map(|call| call.floor)
            .chain([self.floor, self.stack.len()]);
        let floors: Vec<usize> = floors.collect();
        let callers = self
            .calls
            .iter()
            .map(|call| (call.now, call.routine, call.frame));
        let all = callers.chain([(self.now, self.routine, self.frame)]);
        let level = |((now, routine, frame), ends): (_, &[usize])| CallLevel {
            now,
            routine,
            frame,
            stack: ends[0]..ends[1],
        };
        all.zip(floors.windows(2)).map(level).collect()
    }

    /// Returns true if the first `depth` calls of two contexts are the same.
    fn shares_calls(&self, other: &LaneContext, depth: usize) -> bool {
        if self.calls.len() < depth || other.calls.len() < depth {
            return false;
        }

        let own = self.levels();
        let others = other.levels();
        let same = |k: usize| {
            own[k].now.pc == others[k].now.pc
                && (own[k + 1].routine, own[k + 1].frame)
                    == (others[k + 1].routine, others[k + 1].frame)
        };
        (0..depth).all(same)
    }

    /// Returns true if lanes of this context may come to a place where the lanes of the innermost
    /// call of `other` are, and would reconverge with them there.
    fn comes_to(&self, other: &LaneContext, code: &KernelCode) -> bool {
        let depth = other.calls.len();
        self.shares_calls(other, depth) && {
            let level = &self.levels()[depth];
            let place = (other.now.pc, other.now.join);
            let mut frames = self.stack[level.stack.clone()].iter();
            frames.any(|frame| frame.mask != 0 && (frame.pc, frame.join) == place)
                && reaches(&code.ops, level.now.pc, other.now.pc)
        }
    }

    /// Returns true if both contexts are at the same instructions of the same calls.
    fn is_beside(&self, other: &LaneContext) -> bool {
        let position = |frame: &WarpFrame| {
            if frame.mask == 0 {
                None
            } else {
                Some((frame.pc, frame.join))
            }
        };
        let same = |(a, b): (&CallLevel, &CallLevel)| {
            let waiting = |c: &LaneContext, level: &CallLevel| -> Vec<_> {
                c.stack[level.stack.clone()]
                    .iter()
                    .filter_map(position)
                    .collect()
            };
            position(&a.now) == position(&b.now)
                && (a.routine, a.frame) == (b.routine, b.frame)
                && waiting(self, a) == waiting(other, b)
        };
        self.calls.len() == other.calls.len() && self.levels().iter().zip(&other.levels()).all(same)
    }

    /// Keeps some of the lanes, and the frames that these are in.
    fn restrict(&mut self, lanes: u32) {
        self.now.mask &= lanes;
        self.returned &= lanes;
        self.lost.retain_mut(|lost| lost.keep(lanes));
        for call in &mut self.calls {
            call.now.mask &= lanes;
            call.returned &= lanes;
            call.lanes &= lanes;
            call.lost.retain_mut(|lost| lost.keep(lanes));
            for (_, mask) in &mut call.next {
                *mask &= lanes;
            }
            call.next.retain(|(_, mask)| *mask != 0);
        }

        for frame in &mut self.stack {
            frame.mask &= lanes;
        }

        self.drop_empty_frames();
    }

    fn drop_empty_frames(&mut self) {
        let kept = |end: usize| {
            self.stack[..end]
                .iter()
                .filter(|frame| frame.mask != 0)
                .count()
        };
        let floors: Vec<usize> = self.calls.iter().map(|call| kept(call.floor)).collect();
        self.floor = kept(self.floor);
        self.calls
            .iter_mut()
            .zip(floors)
            .for_each(|(call, floor)| call.floor = floor);
        self.stack.retain(|frame| frame.mask != 0);
    }

    /// Merges the lanes of a context that is [at the same place](Context::is_beside) as this one.
    fn absorb(&mut self, mut other: LaneContext) {
        self.drop_empty_frames();
        other.drop_empty_frames();
        let lanes = other.lanes();
        if self.now.mask == 0 {
            self.now = other.now;
        }

        self.now.mask |= other.now.mask;
        self.stack
            .iter_mut()
            .zip(&other.stack)
            .for_each(|(own, other)| own.mask |= other.mask);
        self.regs.take_lanes(&other.regs, lanes);
        self.lost.extend(other.lost);
        self.returned |= other.returned;
        self.top = self.top.max(other.top);
        for (own, other) in self.calls.iter_mut().zip(other.calls) {
            own.now.mask |= other.now.mask;
            own.regs.take_lanes(&other.regs, lanes);
            own.lost.extend(other.lost);
            own.returned |= other.returned;
            own.top = own.top.max(other.top);
            own.lanes |= other.lanes;
            own.next.extend(other.next);
        }
    }
}

impl Strand {
    fn new(context: LaneContext, state: StrandState) -> Strand {
        Strand {
            context,
            state,
            reduction: None,
        }
    }

    pub(crate) fn is_runnable(&self) -> bool {
        matches!(self.state, StrandState::Runnable)
    }

    fn is_at_join(&self) -> bool {
        matches!(self.state, StrandState::AtJoin)
    }

    fn has_polled(&self) -> bool {
        matches!(self.state, StrandState::Polled)
    }

    /// Returns the instruction at which the strand waits for other lanes.
    pub(crate) fn meeting(&self) -> Option<&Meeting> {
        match &self.state {
            StrandState::Waits(meeting) => Some(meeting),
            StrandState::Runnable
            | StrandState::Polled
            | StrandState::AtJoin
            | StrandState::Aligned => None,
        }
    }
}

impl Warp {
    /// Iterates over every frame: of the running lanes, of those that wait for them, and of those
    /// that run apart.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &WarpFrame> {
        let callers = self.calls.iter().map(|call| &call.now);
        let apart = self.apart.iter().flat_map(|strand| strand.context.frames());
        self.stack
            .iter()
            .chain([&self.now])
            .chain(callers)
            .chain(apart)
    }

    /// Exchanges the running context for another one.
    pub(crate) fn swap_context(&mut self, context: &mut LaneContext) {
        std::mem::swap(&mut self.now, &mut context.now);
        std::mem::swap(&mut self.stack, &mut context.stack);
        std::mem::swap(&mut self.floor, &mut context.floor);
        std::mem::swap(&mut self.calls, &mut context.calls);
        std::mem::swap(&mut self.regs, &mut context.regs);
        std::mem::swap(&mut self.lost, &mut context.lost);
        std::mem::swap(&mut self.returned, &mut context.returned);
        std::mem::swap(&mut self.routine, &mut context.routine);
        std::mem::swap(&mut self.frame, &mut context.frame);
        std::mem::swap(&mut self.top, &mut context.top);
    }

    fn take_context(&mut self) -> LaneContext {
        let mut context = LaneContext::default();
        self.swap_context(&mut context);
        context
    }

    /// Returns to the kernel's own registers when a fault has ended the launch while lanes were
    /// apart.
    pub(crate) fn forget_strands(&mut self) {
        let Some(mut strand) = self.apart.drain(..).next() else {
            return;
        };
        if self.regs.w32.defined.is_empty()
            && self.regs.w64.defined.is_empty()
            && self.regs.pred.is_empty()
        {
            self.swap_context(&mut strand.context);
        }
    }

    /// Returns the lanes that run or wait for the running ones, and have not exited.
    pub(crate) fn lanes(&self) -> u32 {
        let callers = self.calls.iter().map(|call| &call.now);
        let frames = self.stack.iter().chain([&self.now]).chain(callers);
        frames.fold(0, |all, frame| all | frame.mask) & self.present()
    }

    /// Returns the lanes that are in other strands than the running one, and have not exited.
    pub(crate) fn lanes_apart(&self) -> u32 {
        self.apart
            .iter()
            .fold(0, |all, strand| all | strand.context.lanes())
            & self.present()
    }

    /// Parks some of the running lanes. The rest of their strand continues, if there is any.
    pub(crate) fn park(&mut self, lanes: u32, state: StrandState, code: &KernelCode) {
        let rest = self.lanes() & !lanes;
        let mut context = self.take_context();
        if rest != 0 {
            let mut others = context.clone();
            others.restrict(rest);
            self.swap_context(&mut others);
            context.restrict(lanes);
        }

        self.apart.push(Strand::new(context, state));
        if rest != 0 && self.now.mask == 0 {
            self.resume();
            self.reconverge(code);
        }
    }

    /// Parks some lanes of the running instruction. The others are before the instruction, and
    /// reconverge behind it.
    pub(crate) fn park_here(&mut self, lanes: u32, state: StrandState, code: &KernelCode) {
        let next = self.now.pc + 1;
        if lanes != self.now.mask && self.now.join != next {
            self.stack.push(WarpFrame {
                pc: next,
                ..self.now
            });
            self.now.join = next;
        }
        self.park(lanes, state, code);
    }

    /// Runs a strand in place of the running one, which has no lanes or is parked.
    pub(crate) fn unpark(&mut self, index: usize) {
        let mut strand = self.apart.remove(index);
        self.swap_context(&mut strand.context);
        if self.now.mask & !(self.exited | self.returned) == 0 {
            self.resume();
        }
    }

    /// Lets strands that have polled ask again, because something may have changed.
    pub(crate) fn others_may_run(&mut self) {
        for strand in self.apart.iter_mut().filter(|strand| strand.has_polled()) {
            strand.state = StrandState::Runnable;
        }
    }

    /// Returns the strand to run next, unless all wait or have polled.
    pub(crate) fn runnable(&self) -> Option<usize> {
        let runnable = self.apart.iter().position(Strand::is_runnable);
        runnable.or_else(|| self.apart.iter().position(Strand::is_at_join))
    }

    /// Runs another strand in place of the running one, which has no lanes or is parked. Returns
    /// false if all wait.
    pub(crate) fn pick(&mut self, code: &KernelCode) -> bool {
        let Some(next) = self
            .runnable()
            .or_else(|| self.apart.iter().position(Strand::has_polled))
        else {
            return false;
        };

        let at_join = self.apart[next].is_at_join();
        self.unpark(next);
        if at_join && self.now.mask != 0 {
            let own = self.take_context();
            self.note_forced(own.now.mask, |strand| strand.context.comes_to(&own, code));
            self.put_back(own);
        }

        true
    }

    fn put_back(&mut self, mut context: LaneContext) {
        self.swap_context(&mut context);
    }

    /// Records that lanes went on from a place where a strand that waits for them would have to
    /// come. If they exit, they have missed it.
    fn note_forced(&mut self, lanes: u32, comes: impl Fn(&Strand) -> bool) {
        for strand in &self.apart {
            if let Some(meeting) = strand.meeting()
                && comes(strand)
            {
                self.forced |= lanes & meeting.named();
            }
        }
    }

    /// Takes up the strands that wait where the running lanes reconverge, and waits for those that
    /// can still come.
    #[cold]
    pub(crate) fn reconverge(&mut self, code: &KernelCode) {
        if self.now.mask == 0 || self.apart.is_empty() {
            return;
        }

        let mut own = self.take_context();
        let arrived = |own: &LaneContext, s: &Strand| s.is_at_join() && s.context.is_beside(own);
        while let Some(at) = self.apart.iter().position(|strand| arrived(&own, strand)) {
            own.absorb(self.apart.remove(at).context);
        }

        let comes = |strand: &Strand| strand.context.comes_to(&own, code);
        match self
            .apart
            .iter()
            .position(|strand| strand.is_runnable() && comes(strand))
        {
            Some(next) => {
                self.apart.push(Strand::new(own, StrandState::AtJoin));
                self.unpark(next);
            }
            None => {
                self.note_forced(own.now.mask, comes);
                self.put_back(own);
            }
        }
    }

    /// Takes up the strands that have returned from the same call, and waits for those that are
    /// still in it. Returns true if the call is over for the running lanes, and false if another
    /// strand runs now.
    pub(crate) fn reconverge_behind_call(&mut self) -> bool {
        let mut own = self.take_context();
        while let Some(at) = self
            .apart
            .iter()
            .position(|strand| strand.is_at_join() && strand.context.is_beside(&own))
        {
            own.absorb(self.apart.remove(at).context);
        }

        let depth = own.calls.len();
        let comes = |strand: &Strand| strand.context.shares_calls(&own, depth);
        match self
            .apart
            .iter()
            .position(|strand| strand.is_runnable() && comes(strand))
        {
            Some(next) => {
                self.apart.push(Strand::new(own, StrandState::AtJoin));
                self.unpark(next);
                false
            }
            None => {
                let lanes = own.lanes() & self.present();
                self.note_forced(lanes, comes);
                self.put_back(own);
                true
            }
        }
    }

    /// Makes one strand of those that are at the same place.
    pub(crate) fn merge_runnable(&mut self) {
        let mut at = 0;
        while at < self.apart.len() {
            let mut other = at + 1;
            while other < self.apart.len() {
                let [own, next] = [&self.apart[at], &self.apart[other]];
                let plain = own.reduction.is_none() && next.reduction.is_none();
                if plain
                    && own.is_runnable()
                    && next.is_runnable()
                    && own.context.is_beside(&next.context)
                {
                    let next = self.apart.remove(other);
                    self.apart[at].context.absorb(next.context);
                } else {
                    other += 1;
                }
            }
            at += 1;
        }
    }

    /// Takes up the strands that wait for the whole warp at the running instruction. Returns true
    /// if there were any.
    pub(crate) fn absorb_aligned(&mut self) -> bool {
        let mut own = self.take_context();
        let before = own.now.mask;
        let arrived = |own: &LaneContext, s: &Strand| {
            matches!(s.state, StrandState::Aligned) && s.context.is_beside(own)
        };
        while let Some(at) = self.apart.iter().position(|strand| arrived(&own, strand)) {
            own.absorb(self.apart.remove(at).context);
        }

        let joined = own.now.mask != before;
        self.put_back(own);
        joined
    }
}
