//! Provenance of pointers: an address that was derived from one object must not be used to access
//! another.
//!
//! A register is marked when it receives the address of a variable, or is loaded with an address in
//! an allocation. Copies, sums with values that are not pointers, and masks propagate the mark. Any
//! other operation removes the mark, and the pointer is not checked from then on. Local memory is
//! divided at the addresses that the compiled code takes.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::fault::AllocationInfo;
use crate::module::address_space::{ResolvedAddress, resolve};
use crate::module::analysis::instruction_text::{Register, key};
use crate::module::code::{Address, InstructionSpace};
use crate::module::lane_mask::lanes;
use crate::module::registers::{Bank, Regs};
use crate::sanitize::execution_context::ExecutionContext;
use crate::sanitize::observer::Observer;
use crate::sanitize::provenance::pointer_effects::PointerEffect;
use crate::{Class, Fault};

/// The objects from which the pointers of a worker are derived.
#[derive(Debug)]
pub(crate) struct Provenance {
    /// The effects of each instruction.
    effects: Arc<[PointerEffect]>,
    /// The objects by number, starting at 1.
    objects: Vec<MemoryObject>,
    numbers: FxHashMap<MemoryObject, u32>,
    pending: Option<PendingProvenance>,
}

/// A variable or an allocation: its first address in its space, and the address after its last
/// byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct MemoryObject {
    space: ResolvedAddress,
    start: u64,
    end: u64,
    /// For local memory, the offset of the object in the memory of its call.
    offset: u64,
}

/// The mark of a value computed from two pointers, which belongs to neither object.
const BETWEEN: u32 = u32::MAX;

/// An instruction that is about to be executed.
#[derive(Debug)]
struct PendingProvenance {
    pc: u32,
    mask: u32,
    /// The values and the marks of its sources.
    sources: Vec<([u64; 32], [u32; 32])>,
}

fn mark(regs: &Regs, register: Register, lane: usize) -> u32 {
    regs.pointers
        .of(key(register), lane, regs.bits(register, lane))
}

fn set(regs: &mut Regs, register: Register, lane: usize, of: u32) {
    let bits = regs.bits(register, lane);
    regs.pointers.set(key(register), lane, bits, of);
}

fn pending(
    context: &impl ExecutionContext,
    mask: u32,
    sources: &[Register],
) -> Option<PendingProvenance> {
    let all = |register: &Register| {
        let value = |lane| context.regs().bits(*register, lane);
        let of = |lane| mark(context.regs(), *register, lane);
        (std::array::from_fn(value), std::array::from_fn(of))
    };
    Some(PendingProvenance {
        pc: context.pc(),
        mask,
        sources: sources.iter().map(all).collect(),
    })
}

impl Observer for Provenance {
    fn before(&mut self, context: &impl ExecutionContext, mask: u32) {
        if mask == 0 {
            return;
        }

        // The checks change the other fields while they look at an effect.
        let effects = self.effects.clone();
        let pending = match &effects[context.pc() as usize] {
            PointerEffect::Nothing => None,
            PointerEffect::Frame { .. }
            | PointerEffect::Shared { .. }
            | PointerEffect::Loads(_) => pending(context, mask, &[]),
            PointerEffect::Copies { from, .. } => pending(context, mask, from),
            PointerEffect::Moves { sources, .. } => pending(context, mask, sources),
            PointerEffect::Subtracts { a, b, .. } => pending(context, mask, &[*a, *b]),
            PointerEffect::Accesses {
                address,
                bytes,
                space,
                ..
            } => {
                self.check_origin(context, mask, address, (*bytes, *space));
                pending(context, mask, &[])
            }
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
        let effects = self.effects.clone();
        for lane in lanes(p.mask) {
            let marks = || p.sources.iter().map(|(_, marks)| marks[lane]);
            let (d, of) = match &effects[p.pc as usize] {
                PointerEffect::Frame { d, offset, bytes } => (
                    d,
                    self.object_of_frame(context, *d, lane, (*offset, *bytes)),
                ),
                PointerEffect::Shared { d, region } => (d, self.object_of_shared(context, *region)),
                PointerEffect::Loads(to) | PointerEffect::Accesses { loads: to, .. } => {
                    for d in to {
                        self.loaded(context, *d, lane);
                    }
                    continue;
                }
                PointerEffect::Copies { d, moved, .. } => {
                    (d, copied(context.regs(), &p, *d, lane, *moved))
                }
                PointerEffect::Moves { d, .. } => (d, sum(marks())),
                PointerEffect::Subtracts { d, .. } => {
                    (d, difference(p.sources[0].1[lane], p.sources[1].1[lane]))
                }
                PointerEffect::Nothing => continue,
            };
            set(context.regs_mut(), *d, lane, of);
        }
    }
}

impl Provenance {
    /// Creates a check of a kernel whose instructions have these effects.
    pub(crate) fn new(effects: Arc<[PointerEffect]>) -> Provenance {
        Provenance {
            effects,
            objects: Vec::new(),
            numbers: FxHashMap::default(),
            pending: None,
        }
    }

    /// Returns the number of an object.
    fn number(&mut self, object: MemoryObject) -> u32 {
        if let Some(number) = self.numbers.get(&object) {
            return *number;
        }
        self.objects.push(object);
        let number = self.objects.len() as u32;
        self.numbers.insert(object, number);
        number
    }
}

impl Provenance {
    fn object_of_frame(
        &mut self,
        context: &impl ExecutionContext,
        d: Register,
        lane: usize,
        (offset, bytes): (u64, u64),
    ) -> u32 {
        let value = context.regs().bits(d, lane);
        let start = match resolve(value) {
            (ResolvedAddress::Local, at) => context.local_address(lane, at),
            _ => Some(value),
        };
        let end = |start: u64| start.saturating_add(bytes);
        let object = |start| MemoryObject {
            space: ResolvedAddress::Local,
            start,
            end: end(start),
            offset,
        };
        start.map_or(0, |start| self.number(object(start)))
    }

    fn object_of_shared(&mut self, context: &impl ExecutionContext, region: usize) -> u32 {
        let region = &context.code().shared[region];
        let bytes = if region.dynamic {
            context.dynamic_shared()
        } else {
            region.bytes
        };
        let start = region.address.into();
        self.number(MemoryObject {
            space: ResolvedAddress::Shared,
            start,
            end: start + u64::from(bytes),
            offset: 0,
        })
    }

    /// Marks a loaded register if its value is an address in an allocation.
    fn loaded(&mut self, context: &mut impl ExecutionContext, d: Register, lane: usize) {
        let found = context.allocation_range(context.regs().bits(d, lane));
        let space = ResolvedAddress::Global;
        let object = found.map(|range| MemoryObject {
            space,
            start: range.start,
            end: range.end,
            offset: 0,
        });
        let of = object.map_or(0, |object| self.number(object));
        set(context.regs_mut(), d, lane, of);
    }

    /// Checks that the addresses of an access are within their objects, or unmapped.
    fn check_origin(
        &mut self,
        context: &impl ExecutionContext,
        mask: u32,
        address: &Address,
        (bytes, space): (u32, InstructionSpace),
    ) {
        let register = (
            if address.wide { Bank::W64 } else { Bank::W32 },
            address.slot,
        );
        if context.regs().pointers.is_empty()
            || context
                .regs()
                .defined(if address.wide { 64 } else { 32 }, address.slot)
                & mask
                != mask
        {
            return;
        }
        for lane in lanes(mask) {
            let of = mark(context.regs(), register, lane);
            let known = self.objects.get(of.wrapping_sub(1) as usize).copied();
            let at = context
                .regs()
                .bits(register, lane)
                .wrapping_add_signed(address.offset);
            let Some((object, at)) = known.zip(within(context, lane, space, at)) else {
                continue;
            };
            if let Some(fault) = strayed(context, lane, object, (at, bytes)) {
                return context.report(fault);
            }
        }
    }
}

/// Returns the finding that an access has strayed from its object into another one.
fn strayed(
    context: &impl ExecutionContext,
    lane: usize,
    object: MemoryObject,
    ((space, at), bytes): ((ResolvedAddress, u64), u32),
) -> Option<Fault> {
    let end = at.saturating_add(bytes.into());
    if space != object.space || at >= object.start && end <= object.end {
        return None;
    }

    let between = |from: AllocationInfo, to: AllocationInfo| {
        (
            format!(
                "an address that was derived from `{}` leads into `{}`",
                from.label, to.label
            ),
            Some(from),
        )
    };
    let (what, from) = match space {
        ResolvedAddress::Global => {
            between(context.allocation(object.start)?, context.allocation(at)?)
        }
        // The blocks of a cluster share one arena, in which an address does not identify a
        // variable.
        ResolvedAddress::Shared if context.is_cluster() => return None,
        ResolvedAddress::Shared => between(
            context.shared_variable(object.start)?,
            variable_at(context, at)?,
        ),
        // Outside of all local memory it is a fault.
        _ if at == 0 || end > context.local_end() => return None,
        _ => (outside(object, at), None),
    };
    let mut fault = context.fault(1 << lane, Class::OutOfBounds, what);
    fault.instead = "check the index against the length";
    fault.address = Some(at);
    fault.allocation = from;
    Some(*fault)
}

/// Returns the shared variable that contains an address.
fn variable_at(context: &impl ExecutionContext, at: u64) -> Option<AllocationInfo> {
    context
        .shared_variable(at)
        .filter(|found| (found.base..found.base + found.bytes).contains(&at))
}

/// Returns the space to which an address leads, and the address in it.
fn within(
    context: &impl ExecutionContext,
    lane: usize,
    space: InstructionSpace,
    at: u64,
) -> Option<(ResolvedAddress, u64)> {
    match space {
        InstructionSpace::Global | InstructionSpace::Const => Some((ResolvedAddress::Global, at)),
        InstructionSpace::Shared | InstructionSpace::Cluster => Some((ResolvedAddress::Shared, at)),
        InstructionSpace::Local => Some((ResolvedAddress::Local, at)),
        InstructionSpace::Param => None,
        InstructionSpace::Generic => match resolve(at) {
            (ResolvedAddress::Local, at) => {
                Some((ResolvedAddress::Local, context.local_address(lane, at)?))
            }
            found => Some(found),
        },
    }
}

/// Describes a local address that has left its variable.
fn outside(object: MemoryObject, at: u64) -> String {
    let offset = object.offset.wrapping_add(at.wrapping_sub(object.start)) as i64;
    let size = object
        .end
        .checked_sub(object.start)
        .filter(|_| object.end < u64::MAX);
    let size = size.map_or(String::new(), |size| format!(" of {size} bytes"));
    format!(
        "an address that was derived from the local variable{size} at offset {} leads to offset {offset}, \
         where another one is",
        object.offset
    )
}

/// Returns the mark of a copy: the mark of the source with this value, or of the only source if it
/// was moved to another space.
fn copied(regs: &Regs, p: &PendingProvenance, d: Register, lane: usize, moved: bool) -> u32 {
    let value = regs.bits(d, lane);
    let found = p
        .sources
        .iter()
        .filter(|(values, _)| moved || values[lane] == value)
        .map(|(_, marks)| marks[lane]);
    found.max().unwrap_or(0)
}

/// Returns the mark of a sum: the only mark of its operands, if there is one.
fn sum(mut marks: impl Iterator<Item = u32>) -> u32 {
    let mut marked = marks.by_ref().filter(|of| *of != 0);
    match (marked.next(), marked.next()) {
        (Some(of), None) => of,
        (Some(_), Some(_)) => BETWEEN,
        _ => 0,
    }
}

fn difference(a: u32, b: u32) -> u32 {
    match (a, b) {
        (of, 0) => of,
        _ => BETWEEN,
    }
}
