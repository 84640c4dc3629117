//! Checks of arithmetic: divisions by zero, NaN and infinity, and conversions that saturate.
//!
//! Integer divisions by zero and conversions of values out of range are faults where they happen. A
//! NaN without a NaN operand, and an infinity from finite operands, mark their register. Arithmetic
//! and copies propagate the mark. The fault is raised only when a thread stores or passes on a
//! marked value, because functions such as `powf` compute many intermediate values that they
//! discard. The error names the place where the value appeared.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fault::OtherPlace;
use crate::module::analysis::instruction_text::{Register, key};
use crate::module::lane_mask::lanes;
use crate::module::registers::{Bank, Regs};
use crate::sanitize::arithmetic::rules::Rule;
use crate::sanitize::execution_context::ExecutionContext;
use crate::sanitize::observer::Observer;
use crate::syntax::types::Type;
use crate::{Class, Fault};

/// The NaN and infinite values that a worker follows.
#[derive(Debug)]
pub(crate) struct Values {
    /// The effects of each instruction.
    rules: Arc<[Rule]>,
    /// The numbers of the marks by the instruction where a value appeared.
    numbers: BTreeMap<u32, u32>,
    /// The findings by number, starting at 1.
    origins: Vec<Fault>,
    pending: Option<PendingValues>,
}

/// An instruction that is about to be executed: its lanes, and the values and marks of its sources.
#[derive(Clone, Debug)]
struct PendingValues {
    pc: u32,
    mask: u32,
    sources: Vec<[u64; 32]>,
    marks: Vec<[u32; 32]>,
}

/// The kind of a float. For a pair, it is the worse of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FloatClass {
    Finite,
    Infinite,
    Nan,
}

/// Returns the kind of a float from the masks of its exponent and fraction.
const fn sort_of(bits: u64, exponent: u64, fraction: u64) -> FloatClass {
    match (bits & exponent == exponent, bits & fraction) {
        (false, _) => FloatClass::Finite,
        (true, 0) => FloatClass::Infinite,
        (true, _) => FloatClass::Nan,
    }
}

fn sort(ty: Type, bits: u64) -> FloatClass {
    let half = |bits| sort_of(bits, 0x7c00, 0x3ff);
    let brain = |bits| sort_of(bits, 0x7f80, 0x7f);
    let single = |bits| sort_of(bits, 0x7f80_0000, 0x7f_ffff);
    match ty {
        Type::F16 => half(bits),
        Type::F16x2 => half(bits).max(half(bits >> 16)),
        Type::Bf16 => brain(bits),
        Type::Bf16x2 => brain(bits).max(brain(bits >> 16)),
        Type::F32 | Type::Tf32 => single(bits),
        Type::F32x2 => single(bits).max(single(bits >> 32)),
        Type::F64 => sort_of(bits, 0x7ff0 << 48, (1 << 52) - 1),
        _ => FloatClass::Finite,
    }
}

/// Returns true if a value in a register may be infinite or NaN.
fn may_be_spoilt(bank: Bank, bits: u64) -> bool {
    let word = |bits| {
        [Type::F32, Type::F16x2]
            .iter()
            .any(|ty| sort(*ty, bits) != FloatClass::Finite)
    };
    match bank {
        Bank::W64 => sort(Type::F64, bits) != FloatClass::Finite || word(bits) || word(bits >> 32),
        _ => word(bits),
    }
}

/// Formats a number for a finding.
fn show(ty: Type, bits: u64) -> String {
    let pair = |ty: Type, width: u32| {
        let low = bits & (1 << width) - 1;
        let high = bits >> width & (1 << width) - 1;
        format!("({}, {})", show(ty, low), show(ty, high))
    };
    match ty {
        Type::F16 => format!("{:?}", half::f16::from_bits(bits as u16)),
        Type::Bf16 => format!("{:?}", half::bf16::from_bits(bits as u16)),
        Type::F32 | Type::Tf32 => format!("{:?}", f32::from_bits(bits as u32)),
        Type::F64 => format!("{:?}", f64::from_bits(bits)),
        Type::F16x2 => pair(Type::F16, 16),
        Type::Bf16x2 => pair(Type::Bf16, 16),
        Type::F32x2 => pair(Type::F32, 32),
        Type::S64 => (bits as i64).to_string(),
        Type::S32 => (bits as i32).to_string(),
        Type::S16 => (bits as i16).to_string(),
        _ => (bits & u64::MAX >> (64 - ty.bits().clamp(1, 64))).to_string(),
    }
}

/// Converts a float to `f64`, which is exact.
fn double(ty: Type, bits: u64) -> f64 {
    match ty {
        Type::F16 => half::f16::from_bits(bits as u16).into(),
        Type::Bf16 => half::bf16::from_bits(bits as u16).into(),
        Type::F64 => f64::from_bits(bits),
        _ => f32::from_bits(bits as u32).into(),
    }
}

/// Returns true if an integer type has no value near a float, so that a conversion saturates or
/// returns 0.
fn saturates(value: f64, to: Type) -> bool {
    let least = if matches!(to, Type::S8 | Type::S16 | Type::S32 | Type::S64) {
        -2f64.powi(to.bits() as i32 - 1)
    } else {
        0.0
    };
    let most = if least < 0.0 {
        -least
    } else {
        2f64.powi(to.bits() as i32)
    };
    !(value > least - 1.0 && value < most)
}

fn is_written(regs: &Regs, (bank, slot): Register, mask: u32) -> bool {
    let defined = if bank == Bank::W64 {
        &regs.w64.defined
    } else {
        &regs.w32.defined
    };
    defined[slot as usize] & mask == mask
}

/// Returns the mark of a register in a lane.
fn mark(regs: &Regs, register: Register, lane: usize) -> u32 {
    regs.spoilt
        .of(key(register), lane, regs.bits(register, lane))
}

fn set(regs: &mut Regs, register: Register, lane: usize, of: u32) {
    let bits = regs.bits(register, lane);
    regs.spoilt.set(key(register), lane, bits, of);
}

impl Observer for Values {
    fn before(&mut self, context: &impl ExecutionContext, mask: u32) {
        if mask == 0 {
            return;
        }

        // The checks change the other fields while they look at a rule.
        let rules = self.rules.clone();
        let pending = match &rules[context.pc() as usize] {
            Rule::Divides { a, b } => {
                self.divides(context, mask, *a, *b);
                None
            }
            Rule::Rounds { a, to } => {
                self.rounds(context, mask, *a, *to);
                None
            }
            Rule::Uses(registers) => {
                for register in registers {
                    self.uses(context, mask, *register);
                }
                None
            }
            Rule::Computes { sources, .. } => {
                pending(context, mask, sources.iter().map(|(register, _)| *register))
            }
            Rule::Passes { from, .. } => pending(context, mask, from.iter().copied()),
            Rule::Exchanges { from, .. } => pending(context, mask, [*from].into_iter()),
            Rule::Fills(_) => pending(context, mask, [].into_iter()),
            Rule::Nothing => None,
        };
        self.pending = pending;
    }

    fn interrupted(&mut self) {
        self.pending = None;
    }

    fn after(&mut self, context: &mut impl ExecutionContext) {
        let Some(p) = self.pending.take() else {
            return;
        };
        let rules = self.rules.clone();
        match &rules[p.pc as usize] {
            Rule::Computes { d, sources } => lanes(p.mask).for_each(|lane| {
                let sort = sort(d.1, context.regs().bits(d.0, lane));
                let of = if sort == FloatClass::Finite {
                    0
                } else {
                    self.spoilt(context, &p, lane, sort, sources)
                };
                set(context.regs_mut(), d.0, lane, of);
            }),
            Rule::Passes { to, exactly, .. } => {
                for register in to {
                    pass(context.regs_mut(), &p, *register, *exactly);
                }
            }
            Rule::Exchanges { to, .. } => exchange(context.regs_mut(), &p, *to),
            Rule::Fills(to) => {
                for register in to {
                    for lane in lanes(p.mask) {
                        set(context.regs_mut(), *register, lane, 0);
                    }
                }
            }
            Rule::Nothing | Rule::Divides { .. } | Rule::Rounds { .. } | Rule::Uses(_) => {}
        }
    }
}

impl Values {
    /// Creates a check of a kernel whose instructions have these effects.
    pub(crate) fn new(rules: Arc<[Rule]>) -> Values {
        Values {
            rules,
            numbers: BTreeMap::new(),
            origins: Vec::new(),
            pending: None,
        }
    }

    /// Returns the mark of an infinite or NaN result.
    fn spoilt(
        &mut self,
        context: &impl ExecutionContext,
        p: &PendingValues,
        lane: usize,
        result: FloatClass,
        sources: &[(Register, Type)],
    ) -> u32 {
        if let Some(of) = p.marks.iter().map(|marks| marks[lane]).find(|of| *of != 0) {
            return of;
        }

        let worst = sources
            .iter()
            .zip(&p.sources)
            .map(|((_, ty), values)| sort(*ty, values[lane]))
            .max();
        let appears = worst.is_none_or(|worst| {
            worst < result && (result == FloatClass::Nan || worst == FloatClass::Finite)
        });
        if !appears {
            return 0;
        }

        let operands = sources
            .iter()
            .zip(&p.sources)
            .map(|((_, ty), values)| show(*ty, values[lane]));
        let operands = operands.collect::<Vec<_>>().join(", ");
        self.first_seen(context, p.pc, lane, || match result {
            FloatClass::Nan => format!("NaN appears here, of {operands}"),
            _ => format!("an infinity appears here, of {operands}"),
        })
    }

    /// Returns the number of the place where a value first became infinite or NaN.
    fn first_seen(
        &mut self,
        context: &impl ExecutionContext,
        pc: u32,
        lane: usize,
        what: impl FnOnce() -> String,
    ) -> u32 {
        if let Some(of) = self.numbers.get(&pc) {
            return *of;
        }
        let mut fault = context.fault(1 << lane, Class::NotFinite, what());
        fault.instead = "check the operands before, or the result before it is used";
        self.origins.push(*fault);
        let of = self.origins.len() as u32;
        self.numbers.insert(pc, of);
        of
    }

    /// Reports a marked register that is stored or passed on.
    fn uses(&mut self, context: &impl ExecutionContext, mask: u32, register: Register) {
        if context.regs().spoilt.is_empty() {
            return;
        }

        let Some((lane, of)) = lanes(mask)
            .map(|lane| (lane, mark(context.regs(), register, lane)))
            .find(|(_, of)| *of != 0)
        else {
            return;
        };

        let who = format!("{} lane {lane}", context.warp_name());
        let other = OtherPlace {
            place: context.place(context.pc()),
            did: "handed it on",
            who,
        };
        let origin = self.origins.get(of as usize - 1).cloned();
        if let Some(fault) = origin {
            context.report(Fault {
                other: Some(other.clone()),
                ..fault
            });
        }
    }

    fn divides(
        &mut self,
        context: &impl ExecutionContext,
        mask: u32,
        (a, ty): (Register, Type),
        b: Register,
    ) {
        if !is_written(context.regs(), a, mask) || !is_written(context.regs(), b, mask) {
            return;
        }

        let zero = |lane: &usize| show(ty, context.regs().bits(b, *lane)) == "0";
        let Some(lane) = lanes(mask).find(zero) else {
            return;
        };

        let what = format!("{} is divided by 0", show(ty, context.regs().bits(a, lane)));
        let mut fault = context.fault(1 << lane, Class::DivisionByZero, what);
        fault.instead = "check the divisor before: the result of a division by zero is unspecified";
        context.report(*fault);
    }

    fn rounds(
        &mut self,
        context: &impl ExecutionContext,
        mask: u32,
        (a, ty): (Register, Type),
        to: Type,
    ) {
        if !is_written(context.regs(), a, mask) {
            return;
        }

        self.uses(context, mask, a);
        let marked = |lane: usize| mark(context.regs(), a, lane) != 0;
        let saturates = |lane: &usize| {
            !marked(*lane) && saturates(double(ty, context.regs().bits(a, *lane)), to)
        };
        let Some(lane) = lanes(mask).find(saturates) else {
            return;
        };

        let what = format!(
            "{} is converted to a {to}, which does not hold it",
            show(ty, context.regs().bits(a, lane))
        );
        let mut fault = context.fault(1 << lane, Class::Saturated, what);
        fault.instead = "check the number before: the conversion returns the nearest integer of the type, and 0 for NaN";
        context.report(*fault);
    }
}

/// Returns the state to examine after an instruction, if its sources are initialized.
fn pending(
    context: &impl ExecutionContext,
    mask: u32,
    sources: impl Iterator<Item = Register> + Clone,
) -> Option<PendingValues> {
    let all = |register: Register| std::array::from_fn(|lane| context.regs().bits(register, lane));
    let marks =
        |register: Register| std::array::from_fn(|lane| mark(context.regs(), register, lane));
    let marked = sources
        .clone()
        .filter(|_| !context.regs().spoilt.is_empty());
    Some(PendingValues {
        pc: context.pc(),
        mask,
        marks: marked.map(marks).collect(),
        sources: sources.map(all).collect(),
    })
}

/// Passes the marks of the sources on to a register that is one of them, or contains a part of one.
fn pass(regs: &mut Regs, p: &PendingValues, to: Register, exactly: bool) {
    for lane in lanes(p.mask) {
        let value = regs.bits(to, lane);
        let same = |values: &[u64; 32]| !exactly || values[lane] == value;
        let found = p
            .sources
            .iter()
            .zip(&p.marks)
            .filter(|(values, _)| same(values))
            .map(|(_, marks)| marks[lane]);
        let of = found
            .max()
            .filter(|_| may_be_spoilt(to.0, value))
            .unwrap_or(0);
        set(regs, to, lane, of);
    }
}

/// Passes the marks of other lanes on to a register.
fn exchange(regs: &mut Regs, p: &PendingValues, to: Register) {
    let [(from, marks)] = &p.sources.iter().zip(&p.marks).collect::<Vec<_>>()[..] else {
        return;
    };
    for lane in lanes(p.mask) {
        let value = regs.bits(to, lane);
        let of = (0..32)
            .find(|i| marks[*i] != 0 && from[*i] == value)
            .map_or(0, |i| marks[i]);
        set(regs, to, lane, of);
    }
}
