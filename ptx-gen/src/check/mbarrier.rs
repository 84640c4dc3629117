//! Mbarrier checks: finds counts that cannot match for any launch.
//!
//! A phase ends when as many threads have arrived as `mbarrier.init` specified and all expected
//! bytes have been copied. The address of an mbarrier is often unknown before the kernel runs,
//! because a ring computes it from the stage. The check therefore approximates each address by a
//! [`SharedPlace`] and treats all mbarriers that may be the same as one. It reports only errors
//! that occur for every possible address:
//!
//! - An mbarrier is used but never initialized, or its count is out of range.
//! - A thread waits at an mbarrier at which no thread arrives, or at which too few threads arrive
//!   to end one phase. Arrivals outside of loops are counted as if the whole block executed them,
//!   and compared with the smallest count that the mbarrier may have.
//! - All lanes of a warp arrive together at an mbarrier whose count is below 32. Several phases
//!   would then begin and end within one instruction, and no wait could distinguish them.
//! - Bytes are expected that no bulk copy brings, or a copy brings bytes that are not expected.
//!
//! Limits: a wait for the literal parity 1 needs no arrival, because it succeeds immediately on a
//! new mbarrier. Counts that are not literals are assumed to be correct. Everything that depends on
//! a launch is left to the emulator, for example the number of arrivals, the stage, the number of
//! bytes, or a wait that is one phase late.

use super::error::{BuildError, ErrorKind, LANES, MOST, Unmatched};
use super::per_register::PerRegister;
use crate::ir::*;
use crate::isa::{self, Completion, Effect, MbarrierStep, Slot};

/// A predicate that selects instructions on an mbarrier by their effect.
type Those = fn(Effect) -> bool;

const ARRIVALS: Those = |effect| matches!(effect, Effect::Mbarrier(step) if step.arrives());
const WAITS: Those = |effect| effect == Effect::Mbarrier(MbarrierStep::Wait);
const COPIES: Those = |effect| effect == Effect::Copy(Completion::Mbarrier);
const EXPECTS: Those = |effect| effect == Effect::Mbarrier(MbarrierStep::ArriveExpect);
const INITS: Those = |effect| effect == Effect::Mbarrier(MbarrierStep::Init);

/// An approximate address in shared memory. Arrays are numbered, and all dynamic arrays share one
/// number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SharedPlace {
    /// A byte offset in an array.
    At(usize, i64),
    /// An unknown offset in an array.
    In(usize),
    /// An unknown address.
    Unknown,
}

/// The loops around an instruction.
#[derive(Default)]
pub(super) struct Loops {
    pub(super) depth: u32,
    /// The loop whose condition contains the instruction.
    pub(super) condition: Option<At>,
}

/// An instruction on an mbarrier.
pub(super) struct MbarrierUse<'a> {
    inst: &'a Inst,
    at: At,
    /// The register of the address and a byte offset.
    address: (Reg, i32),
    place: SharedPlace,
    /// Whether whole warps execute it with one address each.
    whole: bool,
    looped: bool,
}

/// Returns the register and the offset of the mbarrier that the instruction uses, if it uses one.
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

pub(super) fn check(p: &Program, mut uses: Vec<MbarrierUse<'_>>) -> Vec<BuildError> {
    if uses.is_empty() {
        return vec![];
    }

    let mut places = places(p);
    for u in &mut uses {
        u.place = places.at(&u.address.0).offset(u.address.1);
    }

    let error = |u: &MbarrierUse<'_>| {
        // Threads of all blocks of the cluster may arrive.
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

fn problem(u: &MbarrierUse<'_>, uses: &[MbarrierUse<'_>], block: u64) -> Option<Unmatched> {
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

    // One count that is not a literal makes the smallest and the largest count unknown.
    let counts: Option<Vec<u64>> = here(INITS).map(MbarrierUse::number).collect();
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

impl<'a> MbarrierUse<'a> {
    /// Returns the use of `inst`. An error at a wait is reported at the loop that contains it.
    pub(super) fn new(inst: &'a Inst, address: (Reg, i32), whole: bool, around: &Loops) -> Self {
        let at = around
            .condition
            .filter(|_| WAITS(inst.op.effect))
            .unwrap_or(inst.at);
        MbarrierUse {
            inst,
            at,
            address,
            place: SharedPlace::Unknown,
            whole,
            looped: around.depth > 0,
        }
    }

    /// Returns the literal operand after the address: a count, a number of bytes or a parity.
    fn number(&self) -> Option<u64> {
        match self.inst.src.get(1) {
            Some(Operand::Imm(imm)) => Some(imm.bits),
            _ => None,
        }
    }
}

impl SharedPlace {
    /// Returns true if the mbarriers of 8 bytes at both addresses may overlap.
    fn may_be(self, other: SharedPlace) -> bool {
        match (self, other) {
            (SharedPlace::At(a, i), SharedPlace::At(b, j)) => a == b && i.abs_diff(j) < 8,
            (
                SharedPlace::At(a, _) | SharedPlace::In(a),
                SharedPlace::At(b, _) | SharedPlace::In(b),
            ) => a == b,
            _ => true,
        }
    }

    fn offset(self, by: i32) -> SharedPlace {
        match self {
            SharedPlace::At(array, at) => SharedPlace::At(array, at + i64::from(by)),
            other => other,
        }
    }
}

/// Returns the approximate address in each register. An index is assumed to stay within its array.
fn places(p: &Program) -> PerRegister<SharedPlace> {
    let mut places: PerRegister<Option<SharedPlace>> = PerRegister::new(p, None);
    p.each_inst(&mut |i| {
        let place = match &*i.src {
            [Operand::Symbol(name)] => {
                array(p, name).map_or(SharedPlace::Unknown, |n| SharedPlace::At(n, 0))
            }
            [_, _, Operand::Reg(base)] if *i.op == isa::MAD_LO => match *places.at(base) {
                Some(SharedPlace::At(n, _) | SharedPlace::In(n)) => SharedPlace::In(n),
                _ => SharedPlace::Unknown,
            },
            // `Ptr::row` adds an index of bytes without a multiplication.
            [Operand::Reg(base), _] if *i.op == isa::ADD => match *places.at(base) {
                Some(SharedPlace::At(n, _) | SharedPlace::In(n)) => SharedPlace::In(n),
                _ => SharedPlace::Unknown,
            },
            _ => SharedPlace::Unknown,
        };
        for d in &i.dst {
            let known = places.at(d);
            // A register that is written twice is known only if both writes agree.
            *known = Some(if known.is_none_or(|k| k == place) {
                place
            } else {
                SharedPlace::Unknown
            });
        }
    });
    PerRegister {
        starts: places.starts,
        values: places
            .values
            .into_iter()
            .map(|place| place.unwrap_or(SharedPlace::Unknown))
            .collect(),
    }
}

/// Returns the number of an array. All dynamic arrays are the same memory and share one number.
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
