//! Checks of asynchronous matmuls: fences before them, waits after them, and no interference in
//! between.
//!
//! The walk follows the program with an abstract state: the committed groups, the matmuls since the
//! last commit, and the registers used since the last fence. Where branches join, and where a loop
//! repeats, the state is the union of both paths. A wait for all but `n` groups keeps the latest
//! `n`. States only grow along a loop, so a few rounds reach a fixed point.

use super::error::{BuildError, ErrorKind, Misused};
use crate::ir::*;
use crate::isa::{Effect, Slot, WgmmaStep};
use crate::ty::Class;

/// A register, independent of the type it is used as.
type Id = (Class, u32);

/// Registers in order, each with a line that uses it.
#[derive(Clone, Default, PartialEq)]
struct Used(Vec<(Id, At)>);

/// The number of groups that are tracked separately. Earlier groups are merged into one.
const GROUPS: usize = 8;

/// The registers that matmuls in flight use, and the last matmul of the group.
#[derive(Clone, Default, PartialEq)]
struct WgmmaGroup {
    sums: Used,
    left: Used,
    asked: Option<(At, usize)>,
}

/// The abstract state at a point of the program.
#[derive(Clone, Default, PartialEq)]
struct Now {
    /// The committed groups in flight, the latest last.
    groups: Vec<WgmmaGroup>,
    open: WgmmaGroup,
    /// The registers read since the last fence.
    read: Used,
    written: Used,
    fenced: bool,
}

struct WgmmaWalk<'p> {
    products: Vec<&'p Inst>,
    errors: Vec<BuildError>,
}

pub(super) fn check(p: &Program) -> Vec<BuildError> {
    let mut any = false;
    p.each_inst(&mut |i| any |= i.op.effect == Effect::Wgmma(WgmmaStep::Multiply));
    if !any {
        return vec![];
    }

    let mut walk = WgmmaWalk {
        products: vec![],
        errors: vec![],
    };
    let mut now = Now::default();
    walk.stmts(&p.body, &mut now);
    let left = now
        .groups
        .iter()
        .chain([&now.open])
        .find_map(|group| group.asked);
    if let Some((_, product)) = left {
        walk.report(walk.products[product], Misused::NeverWaited);
    }

    walk.errors
}

impl Used {
    fn get(&self, reg: &Reg) -> Option<At> {
        self.find(reg.id()).ok().map(|n| self.0[n].1)
    }

    fn insert(&mut self, reg: &Reg, at: At) {
        match self.find(reg.id()) {
            Ok(n) => self.0[n].1 = at,
            Err(n) => self.0.insert(n, (reg.id(), at)),
        }
    }

    fn join(&mut self, other: &Used) {
        for (id, at) in &other.0 {
            if let Err(n) = self.find(*id) {
                self.0.insert(n, (*id, *at));
            }
        }
    }

    fn find(&self, id: Id) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |(id, _)| *id)
    }
}

impl WgmmaGroup {
    fn join(&mut self, other: &WgmmaGroup) {
        self.sums.join(&other.sums);
        self.left.join(&other.left);
        self.asked = self.asked.or(other.asked);
    }
}

impl Now {
    /// Merges the state of another path into this one.
    fn join(&mut self, other: &Now) {
        self.open.join(&other.open);

        // Groups are matched from the latest backwards, because waits count from the latest.
        for (n, group) in other.groups.iter().rev().enumerate() {
            match self.groups.len().checked_sub(n + 1) {
                Some(i) => self.groups[i].join(group),
                None => self.groups.insert(0, group.clone()),
            }
        }

        self.read.join(&other.read);
        self.written.join(&other.written);
        self.fenced &= other.fenced;
    }

    fn commit(&mut self) {
        self.groups.push(std::mem::take(&mut self.open));
        if self.groups.len() > GROUPS {
            let first = self.groups.remove(0);
            self.groups[0].join(&first);
        }
    }

    fn all(&self) -> impl Iterator<Item = &WgmmaGroup> {
        self.groups.iter().chain([&self.open])
    }
}

impl<'p> WgmmaWalk<'p> {
    fn stmts(&mut self, stmts: &'p [Stmt], now: &mut Now) {
        for s in stmts {
            match s {
                Stmt::Note(..) => {}
                Stmt::Inst(i) => self.inst(i, now),
                Stmt::If { body, other, .. } => {
                    let mut otherwise = now.clone();
                    self.stmts(body, now);
                    self.stmts(other, &mut otherwise);
                    now.join(&otherwise);
                }
                Stmt::Loop { cond, body, .. } => self.cycle(cond, body, now),
            }
        }
    }

    /// Walks a loop until the state at its start no longer grows. The loop ends after its
    /// condition.
    fn cycle(&mut self, cond: &'p [Stmt], body: &'p [Stmt], now: &mut Now) {
        let errors = self.errors.len();
        loop {
            // Only the last round sees the final state, so the errors of earlier rounds are
            // dropped.
            self.errors.truncate(errors);
            let start = now.clone();
            self.stmts(cond, now);
            let end = now.clone();
            self.stmts(body, now);
            now.join(&start);
            if *now == start {
                *now = end;
                return;
            }
        }
    }

    fn inst(&mut self, i: &'p Inst, now: &mut Now) {
        match i.op.effect {
            Effect::Wgmma(WgmmaStep::Fence) => {
                now.read.0.clear();
                now.written.0.clear();
                now.fenced = true;
            }
            Effect::Wgmma(WgmmaStep::Commit) => now.commit(),
            Effect::Wgmma(WgmmaStep::Wait) => {
                let keep = match i.src.first() {
                    Some(Operand::Imm(imm)) => imm.bits as usize,
                    _ => 0,
                };
                let done = now.groups.len().saturating_sub(keep);
                now.groups.drain(..done);
            }
            Effect::Wgmma(WgmmaStep::Multiply) => self.product(i, now),
            _ => self.other(i, now),
        }
    }

    /// Checks an instruction other than a matmul.
    fn other(&mut self, i: &'p Inst, now: &mut Now) {
        // The matmul writes its accumulators, so even reading them is an error. The left matrix is
        // only read and must not be written.
        let read = i.src.iter().flat_map(Operand::registers);
        for (reg, writes) in read
            .map(|r| (r, false))
            .chain(i.dst.iter().map(|r| (r, true)))
        {
            if let Some(at) = now.all().find_map(|group| group.sums.get(reg)) {
                self.report(i, Misused::Sums(*reg, at));
            } else if let Some(at) = now
                .all()
                .find_map(|group| group.left.get(reg))
                .filter(|_| writes)
            {
                self.report(i, Misused::Left(*reg, at));
            }
            let used = if writes {
                &mut now.written
            } else {
                &mut now.read
            };
            used.insert(reg, i.at);
        }
    }

    fn product(&mut self, i: &'p Inst, now: &mut Now) {
        let left: &[Reg] = match (i.op.form.src.first(), i.src.first()) {
            (Some(Slot::Regs(..)), Some(Operand::Group(regs))) => regs,
            _ => &[],
        };
        if !now.fenced {
            self.report(i, Misused::NeverFenced);
        }

        // Accumulators must be fenced after reads and writes, the left matrix only after writes.
        let sums = i
            .dst
            .iter()
            .find_map(|r| Some((r, now.written.get(r).or_else(|| now.read.get(r))?)));
        let used = sums.or_else(|| left.iter().find_map(|r| Some((r, now.written.get(r)?))));
        if let Some((reg, at)) = used.filter(|_| now.fenced) {
            self.report(i, Misused::NotFenced(*reg, at));
        }

        let known = self
            .products
            .iter()
            .position(|product| std::ptr::eq(*product, i));
        now.open.asked = Some((i.at, known.unwrap_or(self.products.len())));
        if known.is_none() {
            self.products.push(i);
        }
        for r in &i.dst {
            now.open.sums.insert(r, i.at);
        }
        for r in left {
            now.open.left.insert(r, i.at);
        }
    }

    fn report(&mut self, i: &Inst, problem: Misused) {
        let kind = ErrorKind::Wgmma {
            text: crate::print::inst(i),
            problem,
        };
        let error = BuildError {
            at: Some(i.at),
            kind,
        };
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}
