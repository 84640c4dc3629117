//! Accesses of floats through parameters that are certain, for notes about arguments of another type.
//!
//! Only the type of the instruction counts, such as `ld.global.f32`. Bits and integers are not
//! certain, because compilers also move floats with `ld.global.b32` and copy memory with
//! `ld.global.v4.u32`.

use std::collections::BTreeSet;

use crate::module::analysis::element_type::ElementType;
use crate::module::analysis::instruction_text::{Register, parts, split};
use crate::module::analysis::parameter_use::{
    Sources, accesses, address_operands, kernel_instructions, loaded_params, passed_params,
    register_sources, wide_registers,
};
use crate::module::code::KernelCode;
use crate::module::parameter::Param;

/// An access of a float at an address that certainly belongs to a parameter, from
/// [`Kernel::float_access`](crate::Kernel::float_access).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatAccess {
    /// The type in the instruction.
    pub element: ElementType,
    /// Whether the instruction loads.
    pub loads: bool,
    /// Whether the instruction stores.
    pub stores: bool,
    /// The line in the PTX text.
    pub line: u32,
}

/// Returns the first access of a parameter's memory as a float.
///
/// Returns `None` unless every access through the parameter is certain and has this type.
pub(crate) fn float_access(
    code: &KernelCode,
    params: &[Param],
    number: usize,
) -> Option<FloatAccess> {
    let sources = register_sources(code, params);
    let uncertain = uncertain(code, params, &sources);
    if kernel_instructions(code).any(|pc| passed_params(code, pc, &sources).contains(&number)) {
        return None;
    }

    let mut first: Option<FloatAccess> = None;
    let all = accesses(code, &sources);
    for access in all.iter().filter(|access| access.params.contains(&number)) {
        let is_certain =
            access.params.len() == 1 && access.address.iter().all(|r| !uncertain.contains(r));
        let place = &code.places[access.pc];
        let element = float_type(parts(place).0).filter(|_| is_certain)?;
        let known = first.get_or_insert(FloatAccess {
            element,
            loads: access.loads,
            stores: access.stores,
            line: place.line,
        });
        if known.element != element {
            return None;
        }
    }

    first
}

/// Returns the type of an instruction's elements, if it is a float.
fn float_type(name: &str) -> Option<ElementType> {
    let element = name.split('.').filter_map(ElementType::parse).next_back();
    element.filter(|element| element.is_float())
}

/// Returns the registers that hold an address of a parameter at one instruction, and may hold
/// something else at another.
fn uncertain(code: &KernelCode, params: &[Param], sources: &Sources) -> BTreeSet<Register> {
    let mut found = BTreeSet::new();
    loop {
        let before = found.len();
        for pc in kernel_instructions(code).filter(|pc| loaded_params(code, *pc, params).is_empty())
        {
            let (name, operands) = parts(&code.places[pc]);
            if !is_certain(name, &address_operands(code, pc), sources, &found) {
                let (first, _) = split(operands);
                let written = wide_registers(code, pc, first).into_iter();
                found.extend(written.filter(|register| sources.contains_key(register)));
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// Returns true if the first operand of an instruction is an address of the parameters of its other
/// operands, or if the instruction does not write its first operand.
fn is_certain(
    name: &str,
    from: &[Register],
    sources: &Sources,
    uncertain: &BTreeSet<Register>,
) -> bool {
    let opcode = name.split('.').next().unwrap_or("");
    let is_address = |register: &Register| sources.contains_key(register);
    let is_derived = match opcode {
        "st" | "red" | "cp" | "bar" | "barrier" | "mbarrier" | "prefetch" => return true,
        // A selection between an address and something else may be either.
        "selp" => from.len() == 2 && from.iter().all(is_address),
        _ => from.iter().any(is_address),
    };
    is_derived && from.iter().all(|register| !uncertain.contains(register))
}
