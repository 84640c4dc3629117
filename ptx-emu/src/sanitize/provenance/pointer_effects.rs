//! The effects of instructions on pointers, derived from their names, for the checks of
//! [`provenance`](crate::sanitize::provenance::pointer_checks).

use std::collections::BTreeMap;

use crate::module::analysis::instruction_text::{Register, named, parts, split};
use crate::module::code::{Address, InstructionSpace, KernelCode, Op, RegisterOperand, Width};
use crate::module::context::names::bank;
use crate::module::registers::{Bank, OperandSlots};
use crate::sanitize::arithmetic::rules::types;

/// The effect of an instruction on pointers.
#[derive(Clone, Debug)]
pub(crate) enum PointerEffect {
    Nothing,
    /// The result is the start of an object in local memory, with the size up to the next object.
    Frame {
        d: Register,
        offset: u64,
        bytes: u64,
    },
    /// The result points into a shared variable, by number.
    Shared {
        d: Register,
        region: usize,
    },
    /// Loads parameters into 64-bit registers, which may then point into an allocation.
    Loads(Vec<Register>),
    /// The result is one of the sources, or the same address in another space.
    Copies {
        d: Register,
        from: Vec<Register>,
        moved: bool,
    },
    /// Adds a value that is not a pointer, or masks bits.
    Moves {
        d: Register,
        sources: Vec<Register>,
    },
    /// The result is a difference of two pointers, which is not a pointer.
    Subtracts {
        d: Register,
        a: Register,
        b: Register,
    },
    /// Accesses memory. A loaded value may point into an allocation.
    Accesses {
        address: Address,
        bytes: u32,
        space: InstructionSpace,
        loads: Vec<Register>,
    },
}

/// The start offsets of the objects in the local memory of each routine.
type Frames = BTreeMap<u32, Vec<u64>>;

/// Returns the effect of each instruction.
pub(crate) fn origins(code: &KernelCode) -> Vec<PointerEffect> {
    let mut frames = Frames::new();
    for pc in 0..code.ops.len() {
        if let Some(offset) = frame_offset(code, pc) {
            frames.entry(routine(code, pc)).or_default().push(offset);
        }
    }

    for offsets in frames.values_mut() {
        offsets.sort_unstable();
    }

    (0..code.ops.len())
        .map(|pc| origin(code, pc, &frames))
        .collect()
}

fn routine(code: &KernelCode, pc: usize) -> u32 {
    code.routines
        .partition_point(|r| r.start as usize <= pc)
        .saturating_sub(1) as u32
}

/// Returns the offset of an object in local memory, by the form in which compilers take its
/// address: `add.u64 %rd1, %SP, 16`.
fn frame_offset(code: &KernelCode, pc: usize) -> Option<u64> {
    let (name, operands) = parts(&code.places[pc]);
    let mut operands = operands.split(',').map(str::trim);
    let stack = matches!(operands.nth(1), Some("%SP" | "%SPL"));
    (stack && name.starts_with("add.") && name.ends_with("64"))
        .then(|| operands.next()?.parse().ok())
        .flatten()
}

fn origin(code: &KernelCode, pc: usize, frames: &Frames) -> PointerEffect {
    match &code.ops[pc].op {
        Op::Alu(_, slots) => of_arithmetic(code, pc, slots, frames),
        Op::Window { d, a, .. } => PointerEffect::Copies {
            d: (Bank::W64, *d),
            from: vec![(Bank::W64, *a)],
            moved: true,
        },
        Op::LoadParam(p) => PointerEffect::Loads(pointers(p.width, &p.regs)),
        Op::Load(t) | Op::Store(t) => {
            let loads = if matches!(code.ops[pc].op, Op::Load(_)) {
                pointers(t.width, &t.regs)
            } else {
                vec![]
            };
            let bytes = t.width.bytes * t.regs.len() as u32;
            PointerEffect::Accesses {
                address: t.address,
                bytes,
                space: t.space,
                loads,
            }
        }
        Op::Atomic(a) => PointerEffect::Accesses {
            address: a.address,
            bytes: a.bytes,
            space: a.space,
            loads: vec![],
        },
        _ => PointerEffect::Nothing,
    }
}

/// Returns the registers of a load that are as wide as pointers.
fn pointers(width: Width, regs: &[Option<RegisterOperand>]) -> Vec<Register> {
    let wide = regs
        .iter()
        .flatten()
        .filter(|r| r.bits == 64 && width.bytes == 8);
    wide.map(|r| (Bank::W64, r.slot)).collect()
}

fn of_arithmetic(
    code: &KernelCode,
    pc: usize,
    slots: &OperandSlots,
    frames: &Frames,
) -> PointerEffect {
    let (name, operands) = parts(&code.places[pc]);
    let (first, others) = split(operands);
    let to = named(code, pc, first);
    let [d] = to[..] else {
        return PointerEffect::Nothing;
    };

    let variable = others
        .trim_start_matches(',')
        .trim()
        .split(['+', ' '])
        .next()
        .unwrap_or("");
    let region = code
        .shared
        .iter()
        .position(|region| region.name == variable);
    let same = |slot: u32| (d.0, slot);
    match (name.split('.').next().unwrap_or(""), region) {
        ("mov", Some(region)) => PointerEffect::Shared { d, region },
        ("mov" | "cvta" | "selp", _) => PointerEffect::Copies {
            d,
            from: named(code, pc, others),
            moved: false,
        },
        ("cvt", _) if !name.contains(".f") => PointerEffect::Copies {
            d,
            from: named(code, pc, others),
            moved: false,
        },
        ("add", _) if frame_offset(code, pc).is_some() => {
            let own = frame_offset(code, pc).unwrap_or(0);
            let offsets = frames.get(&routine(code, pc)).into_iter().flatten();
            let next = offsets.copied().find(|offset| *offset > own);
            PointerEffect::Frame {
                d,
                offset: own,
                bytes: next.map_or(u64::MAX, |next| next - own),
            }
        }
        ("add" | "and" | "or" | "xor", _) if is_word(name) => PointerEffect::Moves {
            d,
            sources: vec![same(slots.a), same(slots.b)],
        },
        ("sub", _) if is_word(name) => PointerEffect::Subtracts {
            d,
            a: same(slots.a),
            b: same(slots.b),
        },
        ("mad", _) if is_word(name) => {
            let Some((_, [a, ..])) = types(name) else {
                return PointerEffect::Nothing;
            };
            let factor = |slot: u32| (bank(*a), slot);
            PointerEffect::Moves {
                d,
                sources: vec![factor(slots.a), factor(slots.b), same(slots.c)],
            }
        }
        _ => PointerEffect::Nothing,
    }
}

/// Returns true if an instruction operates on whole words, as address computations do.
fn is_word(name: &str) -> bool {
    ["u32", "s32", "b32", "u64", "s64", "b64"]
        .iter()
        .any(|ty| name.ends_with(ty))
        && !name.contains(".cc")
}
