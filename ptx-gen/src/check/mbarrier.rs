//! Mbarriers: counts that cannot match, whatever the kernel is launched with.
//!
//! A phase ends when as many have arrived as `mbarrier.init` said, and all bytes expected have landed. Which barrier an
//! instruction names is often known only as the kernel runs: a ring computes its address from the stage. So a barrier
//! here is what is known of it, a [`Place`], and what may be one barrier counts as one. Refused is what is wrong
//! wherever the addresses lead:
//!
//! - any use of a barrier that nothing makes, and a count that no barrier has;
//! - a wait for a barrier at which nobody arrives, or at which fewer arrive in all than end one phase: arrivals in no
//!   loop, each by the whole block, against the least count that the barrier may have;
//! - all lanes of a warp arriving at once at one barrier whose count is below 32: phases would begin and end within the
//!   instruction, and no wait could tell them apart;
//! - bytes expected that no bulk copy brings, and copies whose bytes nobody expects.
//!
//! A wait for the literal parity 1 may be alone: on a new barrier it passes at once. Counts that are not literals are
//! taken for right. All that depends on numbers of a launch - which threads arrive and how often, at which stage, how
//! many bytes, whether a wait is a phase late - is left to the emulator.

use super::error::{BuildError, ErrorKind, LANES, MOST, Unmatched};
use super::per_register::PerRegister;
use crate::ir::*;
use crate::isa::{self, Completion, Effect, MbarrierStep, Slot};

/// Instructions on a barrier, by what they do to it.
type Those = fn(Effect) -> bool;

const ARRIVALS: Those = |effect| matches!(effect, Effect::Mbarrier(step) if step.arrives());
const WAITS: Those = |effect| effect == Effect::Mbarrier(MbarrierStep::Wait);
const COPIES: Those = |effect| effect == Effect::Copy(Completion::Mbarrier);
const EXPECTS: Those = |effect| effect == Effect::Mbarrier(MbarrierStep::ArriveExpect);
const INITS: Those = |effect| effect == Effect::Mbarrier(MbarrierStep::Init);

/// What is known of an address in shared memory; arrays by number, all dynamic ones under that of the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// This byte of an array.
    At(usize, i64),
    /// Somewhere in an array.
    In(usize),
    /// Anywhere.
    Unknown,
}

/// The loops around a place.
#[derive(Default)]
pub(super) struct Loops {
    pub(super) depth: u32,
    /// The loop in whose condition it is.
    pub(super) condition: Option<At>,
}

/// An instruction on a barrier.
pub(super) struct Use<'a> {
    inst: &'a Inst,
    at: At,
    /// Its register, and the bytes from there on.
    address: (Reg, i32),
    place: Place,
    /// Whether whole warps execute it, each with one address.
    whole: bool,
    looped: bool,
}

/// The register and the offset of an address of a barrier, if the instruction has one.
pub(super) fn address(inst: &Inst) -> Option<(Reg, i32)> {
    let slot = inst
        .op
        .form
        .src
        .iter()
        .position(|slot| *slot == Slot::Barrier)?;
    match inst.src.get(slot) {
        Some(Operand::Addr(Base::Reg(base), by)) => Some((*base, *by)),
        _ => None,
    }
}

pub(super) fn check(p: &Program, mut uses: Vec<Use<'_>>) -> Vec<BuildError> {
    if uses.is_empty() {
        return vec![];
    }
    let mut places = places(p);
    for u in &mut uses {
        u.place = places.at(&u.address.0).offset(u.address.1);
    }
    let error = |u: &Use<'_>| {
        // Blocks of a cluster may arrive as well.
        let problem = problem(u, &uses, u64::from(p.block) * u64::from(p.cluster))?;
        let kind = ErrorKind::Mbarrier {
            text: crate::print::inst(u.inst),
            problem,
        };
        Some(BuildError {
            at: Some(u.at),
            kind,
        })
    };
    uses.iter().filter_map(error).collect()
}

fn problem(u: &Use<'_>, uses: &[Use<'_>], block: u64) -> Option<Unmatched> {
    let is = |those: Those| those(u.inst.op.effect);
    let here = |those: Those| {
        uses.iter()
            .filter(move |o| those(o.inst.op.effect) && u.place.may_be(o.place))
    };
    if is(INITS) {
        return u
            .number()
            .filter(|count| !(1..=MOST).contains(count))
            .map(Unmatched::Count);
    }
    if here(INITS).next().is_none() {
        return Some(Unmatched::NotMade);
    }
    // None of them is known where one of them is not.
    let counts: Option<Vec<u64>> = here(INITS).map(Use::number).collect();
    let counts = counts.unwrap_or_default();
    if is(ARRIVALS) && u.whole && counts.iter().max().is_some_and(|most| *most < LANES) {
        return counts.into_iter().max().map(Unmatched::TooMany);
    }
    if is(EXPECTS) && u.number() != Some(0) && here(COPIES).next().is_none() {
        return Some(Unmatched::NotCopied);
    }
    if is(COPIES) && here(EXPECTS).next().is_none() {
        return Some(Unmatched::NotExpected);
    }
    if !is(WAITS) || u.number() == Some(1) {
        return None;
    }
    let arrive = block * here(ARRIVALS).count() as u64;
    match counts.into_iter().min() {
        _ if arrive == 0 => Some(Unmatched::NoArrival),
        Some(count) if arrive < count && !here(ARRIVALS).any(|a| a.looped) => {
            Some(Unmatched::TooFew { arrive, count })
        }
        _ => None,
    }
}

impl<'a> Use<'a> {
    /// One at this address, `whole` and `looped` as it stands. An error at a wait is one at its loop.
    pub(super) fn new(inst: &'a Inst, address: (Reg, i32), whole: bool, around: &Loops) -> Self {
        let at = around
            .condition
            .filter(|_| WAITS(inst.op.effect))
            .unwrap_or(inst.at);
        Use {
            inst,
            at,
            address,
            place: Place::Unknown,
            whole,
            looped: around.depth > 0,
        }
    }

    /// The literal beside the barrier: a count, bytes, or a parity.
    fn number(&self) -> Option<u64> {
        match self.inst.src.get(1) {
            Some(Operand::Imm(imm)) => Some(imm.bits),
            _ => None,
        }
    }
}

impl Place {
    /// Whether the eight bytes at both may share one.
    fn may_be(self, other: Place) -> bool {
        match (self, other) {
            (Place::At(a, i), Place::At(b, j)) => a == b && i.abs_diff(j) < 8,
            (Place::At(a, _) | Place::In(a), Place::At(b, _) | Place::In(b)) => a == b,
            _ => true,
        }
    }

    fn offset(self, by: i32) -> Place {
        match self {
            Place::At(array, at) => Place::At(array, at + i64::from(by)),
            other => other,
        }
    }
}

/// What each register holds of an address in shared memory. An index stays within the array it is added to.
fn places(p: &Program) -> PerRegister<Place> {
    let mut places: PerRegister<Option<Place>> = PerRegister::new(p, None);
    p.each_inst(&mut |i| {
        let place = match &*i.src {
            [Operand::Symbol(name)] => array(p, name).map_or(Place::Unknown, |n| Place::At(n, 0)),
            [_, _, Operand::Reg(base)] if *i.op == isa::MAD_LO => match *places.at(base) {
                Some(Place::At(n, _) | Place::In(n)) => Place::In(n),
                _ => Place::Unknown,
            },
            // An index of bytes.
            [Operand::Reg(base), _] if *i.op == isa::ADD => match *places.at(base) {
                Some(Place::At(n, _) | Place::In(n)) => Place::In(n),
                _ => Place::Unknown,
            },
            _ => Place::Unknown,
        };
        for d in &i.dst {
            let known = places.at(d);
            // Written twice, it is what both agree in.
            *known = Some(if known.is_none_or(|k| k == place) {
                place
            } else {
                Place::Unknown
            });
        }
    });
    PerRegister {
        starts: places.starts,
        values: places
            .values
            .into_iter()
            .map(|place| place.unwrap_or(Place::Unknown))
            .collect(),
    }
}

/// The number of an array, where all dynamic ones are the same memory.
fn array(p: &Program, name: &str) -> Option<usize> {
    let array = p.shared.iter().find(|s| s.name == name)?;
    p.shared.iter().position(|s| {
        if array.bytes.is_none() {
            s.bytes.is_none()
        } else {
            s.name == name
        }
    })
}
