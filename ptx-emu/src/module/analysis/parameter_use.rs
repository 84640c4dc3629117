//! The way in which a kernel uses its parameters, read from its instructions: which ones are
//! addresses of memory that it loads or stores, and of which elements.
//!
//! A register holds an address of a parameter if it is loaded from the parameter, or computed from
//! such a register by a move, a sum or a difference. A product is an offset and no address. The
//! result is a guess, made to propose arguments.

use std::collections::{BTreeMap, BTreeSet};

use crate::module::analysis::element_type::ElementType;
use crate::module::analysis::instruction_text::{Register, named, parts, split};
use crate::module::code::{KernelCode, Op};
use crate::module::parameter::Param;
use crate::module::registers::Bank;

/// The use of a parameter by a kernel, as far as
/// [`Kernel::parameter_uses`](crate::Kernel::parameter_uses) can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParameterUse {
    /// Whether the kernel loads from the address in the parameter.
    pub loads: bool,
    /// Whether the kernel stores to the address in the parameter.
    pub stores: bool,
    /// Whether the kernel reads the parameter.
    pub reads: bool,
    /// The type of the elements at the address, or of the parameter itself if it is not an address.
    pub element: Option<ElementType>,
}

/// The parameters from which each register may be derived.
pub(crate) type Sources = BTreeMap<Register, BTreeSet<usize>>;

/// Passes over the instructions after which sources are complete, except in strange code.
const MOST_PASSES: usize = 8;

/// An access through an address that is derived from parameters.
pub(crate) struct ParameterAccess {
    /// The index of the instruction.
    pub(crate) pc: usize,
    /// The registers of the address.
    pub(crate) address: Vec<Register>,
    pub(crate) params: BTreeSet<usize>,
    pub(crate) loads: bool,
    pub(crate) stores: bool,
    element: Option<ElementType>,
}

/// Returns the instructions of the kernel itself. Registers of functions have the same numbers.
pub(crate) fn kernel_instructions(code: &KernelCode) -> std::ops::Range<usize> {
    0..code
        .routines
        .get(1)
        .map_or(code.ops.len(), |function| function.start as usize)
}

/// Returns the use of each parameter.
pub(crate) fn parameter_uses(code: &KernelCode, params: &[Param]) -> Vec<ParameterUse> {
    let mut uses = vec![ParameterUse::default(); params.len()];
    let sources = sources(code, params, &mut uses);
    let accesses = accesses(code, &sources);
    let certain: BTreeSet<usize> = accesses
        .iter()
        .filter(|a| a.params.len() == 1)
        .flat_map(|a| a.params.iter().copied())
        .collect();
    for access in &accesses {
        // Where an address has several sources, those that are addresses elsewhere are the likely
        // ones.
        let likely: Vec<usize> = access.params.intersection(&certain).copied().collect();
        let all: Vec<usize> = access.params.iter().copied().collect();
        for param in if likely.is_empty() { all } else { likely } {
            let known = &mut uses[param];
            let first = !(known.loads || known.stores);
            known.loads |= access.loads;
            known.stores |= access.stores;
            if first || known.element.is_none() {
                known.element = access.element;
            }
        }
    }

    for param in kernel_instructions(code).flat_map(|pc| passed_params(code, pc, &sources)) {
        let known = &mut uses[param];
        if !known.loads && !known.stores {
            known.loads = true;
            known.stores = true;
        }
    }

    uses
}

/// Returns the accesses of the kernel through its parameters.
pub(crate) fn accesses(code: &KernelCode, sources: &Sources) -> Vec<ParameterAccess> {
    kernel_instructions(code)
        .filter_map(|pc| access(code, pc, sources))
        .collect()
}

/// Returns the parameters of which an instruction stores an address for a function or to the stack:
/// they may be used in any way.
pub(crate) fn passed_params(code: &KernelCode, pc: usize, sources: &Sources) -> BTreeSet<usize> {
    let (name, operands) = parts(&code.places[pc]);
    if !name.starts_with("st.param") && !name.starts_with("st.local") {
        return BTreeSet::new();
    }

    let value = operands.rsplit(']').next().unwrap_or("");
    let registers = named(code, pc, value);
    registers
        .iter()
        .flat_map(|register| sources.get(register).into_iter().flatten().copied())
        .collect()
}

/// Returns the offset and the size of each part of the parameters that the kernel loads, widest
/// first.
pub(crate) fn parameter_loads(code: &KernelCode) -> Vec<(u32, u32)> {
    let loads = code.ops[kernel_instructions(code)]
        .iter()
        .filter_map(|step| match &step.op {
            Op::LoadParam(load) => Some(load),
            _ => None,
        });
    let mut parts: Vec<(u32, u32)> = loads
        .flat_map(|load| {
            let used = (0..)
                .zip(&load.regs)
                .filter(|(_, register)| register.is_some());
            used.map(|(i, _)| (load.offset + i * load.width.bytes, load.width.bytes))
        })
        .collect();
    parts.sort_unstable_by_key(|(offset, size)| (std::cmp::Reverse(*size), *offset));
    parts.dedup();
    parts
}

/// Returns the parameters from which registers are derived. Notes which parameters are read, and
/// the types of those in registers.
fn sources(code: &KernelCode, params: &[Param], uses: &mut [ParameterUse]) -> Sources {
    let sources = register_sources(code, params);
    for pc in kernel_instructions(code) {
        for (param, register) in loaded_params(code, pc, params) {
            uses[param].reads = true;
            let float = float_of(code, &[register], params[param].size);
            let whole = float.filter(|float| float.bytes() == params[param].size as usize);
            uses[param].element = uses[param].element.or(whole);
        }
    }
    sources
}

/// Returns the parameters from which registers are derived.
pub(crate) fn register_sources(code: &KernelCode, params: &[Param]) -> Sources {
    let mut sources = Sources::new();
    for _ in 0..MOST_PASSES {
        let before = sources.values().map(BTreeSet::len).sum::<usize>();
        for pc in kernel_instructions(code) {
            derive(code, pc, params, &mut sources);
        }
        if sources.values().map(BTreeSet::len).sum::<usize>() == before {
            break;
        }
    }
    sources
}

/// Returns the parameters that an instruction loads, each with its register.
pub(crate) fn loaded_params(
    code: &KernelCode,
    pc: usize,
    params: &[Param],
) -> Vec<(usize, Register)> {
    let Op::LoadParam(load) = &code.ops[pc].op else {
        return Vec::new();
    };
    let parts = (0..).zip(&load.regs).filter_map(|(i, register)| {
        let register = (*register)?;
        let at = load.offset + i * load.width.bytes;
        let param = params
            .iter()
            .position(|p| (p.offset..p.offset + p.size).contains(&at))?;
        let bank = if register.bits == 64 {
            Bank::W64
        } else {
            Bank::W32
        };
        Some((param, (bank, register.slot)))
    });
    parts.collect()
}

fn derive(code: &KernelCode, pc: usize, params: &[Param], sources: &mut Sources) {
    for (param, register) in loaded_params(code, pc, params) {
        if register.0 == Bank::W64 {
            sources.entry(register).or_default().insert(param);
        }
    }

    let (_, operands) = parts(&code.places[pc]);
    let (first, _) = split(operands);
    let derived: BTreeSet<usize> = address_operands(code, pc)
        .iter()
        .flat_map(|register| sources.get(register).into_iter().flatten().copied())
        .collect();
    if derived.is_empty() {
        return;
    }
    for to in wide_registers(code, pc, first) {
        sources.entry(to).or_default().extend(&derived);
    }
}

/// Returns the 64-bit registers that a fragment of an instruction names.
pub(crate) fn wide_registers(code: &KernelCode, pc: usize, text: &str) -> Vec<Register> {
    let mut registers = named(code, pc, text);
    registers.retain(|(bank, _)| *bank == Bank::W64);
    registers
}

/// Returns the 64-bit registers from which an instruction may compute an address, in addition to
/// offsets.
pub(crate) fn address_operands(code: &KernelCode, pc: usize) -> Vec<Register> {
    let (name, operands) = parts(&code.places[pc]);
    let (_, others) = split(operands);
    let last = others.rsplit(',').next().unwrap_or("");
    let second = others
        .trim_start_matches(',')
        .split(',')
        .next()
        .unwrap_or("");
    let from = match name.split('.').next().unwrap_or("") {
        "mov" | "cvta" | "add" | "selp" | "and" | "or" => others,
        "cvt" if !name.contains(".f") => others,
        "sub" => second,
        "mad" => last,
        _ => return Vec::new(),
    };
    wide_registers(code, pc, from)
}

/// Returns the access of an instruction to memory through a parameter.
fn access(code: &KernelCode, pc: usize, sources: &Sources) -> Option<ParameterAccess> {
    let (name, operands) = parts(&code.places[pc]);
    let mut suffixes = name.split('.');
    let opcode = suffixes.next().unwrap_or("");
    let elsewhere = [".shared", ".local", ".param", ".const"]
        .iter()
        .any(|space| name.contains(space));
    let (loads, stores, operand) = match opcode {
        "cp" if name.contains(".async") && name.contains(".global.shared") => (false, true, 0),
        "cp" if name.contains(".async") => (true, false, 1),
        _ if elsewhere => return None,
        "ld" | "ldu" => (true, false, 0),
        "st" => (false, true, 0),
        "atom" | "red" => (true, true, 0),
        "wmma" if name.contains(".load") => (true, false, 0),
        "wmma" if name.contains(".store") => (false, true, 0),
        _ => return None,
    };
    let mut brackets = operands
        .split('[')
        .skip(1)
        .map(|rest| rest.split(']').next().unwrap_or(""));
    let address = named(code, pc, brackets.nth(operand)?);
    let params: BTreeSet<usize> = address
        .iter()
        .flat_map(|register| sources.get(register).into_iter().flatten().copied())
        .collect();
    if params.is_empty() {
        return None;
    }

    let values: Vec<Register> = named(code, pc, operands)
        .into_iter()
        .filter(|register| !address.contains(register))
        .collect();
    let element = suffixes
        .filter_map(|suffix| element(code, suffix, &values))
        .next_back();
    Some(ParameterAccess {
        pc,
        address,
        params,
        loads,
        stores,
        element,
    })
}

/// Returns the elements that the type of an instruction stands for, with the registers that hold
/// them.
fn element(code: &KernelCode, suffix: &str, values: &[Register]) -> Option<ElementType> {
    let (name, bytes) = match suffix {
        "f16x2" => ("f16", 2),
        "bf16x2" => ("bf16", 2),
        "b8" => ("u8", 1),
        "b16" => ("u16", 2),
        "b32" => ("u32", 4),
        "b64" => ("u64", 8),
        known => return ElementType::parse(known),
    };
    if suffix.ends_with("x2") {
        return ElementType::parse(name);
    }
    float_of(code, values, bytes).or_else(|| ElementType::parse(name))
}

/// Returns the floats that registers hold, by the instructions that use the registers: directly or
/// after one move.
fn float_of(code: &KernelCode, values: &[Register], bytes: u32) -> Option<ElementType> {
    let mut all: BTreeSet<Register> = values.iter().copied().collect();
    let touches = |pc: usize, all: &BTreeSet<Register>| {
        code.mentioned(pc as u32).iter().any(|r| all.contains(r))
    };
    let is_move = |pc: usize| parts(&code.places[pc]).0.starts_with("mov.");
    let near: BTreeSet<Register> = kernel_instructions(code)
        .filter(|pc| is_move(*pc) && touches(*pc, &all))
        .flat_map(|pc| code.mentioned(pc as u32).iter().copied())
        .collect();
    all.extend(near);
    let types: &[(&str, &str)] = match bytes {
        2 => &[("f16", "f16"), ("bf16", "bf16")],
        4 => &[
            ("f32", "f32"),
            ("f16x2", "f16"),
            ("bf16x2", "bf16"),
            ("f16", "f16"),
            ("bf16", "bf16"),
        ],
        8 => &[("f64", "f64"), ("f32", "f32"), ("f16x2", "f16")],
        _ => &[],
    };
    let mut used = kernel_instructions(code)
        .filter(|pc| touches(*pc, &all))
        .flat_map(|pc| {
            let suffixes = parts(&code.places[pc]).0.split('.').skip(1);
            suffixes
                .filter_map(|suffix| types.iter().find(|(known, _)| *known == suffix))
                .map(|(_, name)| *name)
        });
    used.next().and_then(ElementType::parse)
}
