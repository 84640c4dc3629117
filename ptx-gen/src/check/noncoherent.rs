//! Finds the parameters that a program reads with `ld.global.nc`.
//!
//! PTX allows such loads only for memory that no thread writes while the kernel runs. Their cache
//! is not kept coherent and is emptied only when a kernel starts. Only the caller knows which
//! kernels overlap, so this module reports the parameters and does not judge them.
//!
//! An address depends on a parameter if the value of the parameter flows into it through any number
//! of registers. The result is exact or too large: a pointer that is selected from two parameters
//! counts for both.

use super::per_register::PerRegister;
use crate::ir::*;
use crate::isa::{Effect, MemoryOrder};
use std::collections::BTreeSet;

/// The parameters whose value flows into a register, each listed once.
type Sources = Vec<&'static str>;

impl Program {
    /// Returns the names of the buffers that the program reads with `ld.global.nc`.
    ///
    /// No other kernel may write these buffers while this kernel runs. With a programmatic
    /// dependency, this kernel starts before its predecessors have ended.
    pub fn noncoherent(&self) -> BTreeSet<&'static str> {
        let mut sources = PerRegister::new(self, Sources::new());
        while spread(self, &mut sources) {}
        let mut found = BTreeSet::new();
        self.each_inst(&mut |i| {
            if matches!(i.op.effect, Effect::Load(_, MemoryOrder::Noncoherent)) {
                found.extend(all(i, &mut sources));
            }
        });
        found
    }
}

/// Propagates sources from operands to results once, in program order. Returns true if any source
/// is new.
fn spread(p: &Program, sources: &mut PerRegister<Sources>) -> bool {
    let mut more = false;
    p.each_inst(&mut |i| {
        let from = if is_address(i) {
            all(i, sources)
        } else {
            Vec::from_iter(buffer(p, i))
        };
        for d in &i.dst {
            more |= add(sources.at(d), &from);
        }
    });
    more
}

/// Returns true if the result may be an address that is computed from the operands.
fn is_address(i: &Inst) -> bool {
    // Global addresses have 64 bits. A value that is loaded from memory does not come from the
    // operands.
    i.dst.iter().any(|d| d.kind.bytes() == 8) && !i.op.effect.loads()
}

/// Returns the buffer whose address the instruction loads.
fn buffer(p: &Program, i: &Inst) -> Option<&'static str> {
    let Some(Operand::Addr(Base::Symbol(name), _)) = i.src.first() else {
        return None;
    };
    let param = p.params.iter().find(|param| param.name == *name)?;
    matches!(param.kind, ParamKind::Buffer(..)).then_some(param.name)
}

/// Adds sources. Returns true if any is new.
fn add(known: &mut Sources, from: &[&'static str]) -> bool {
    let before = known.len();
    for name in from {
        if !known.contains(name) {
            known.push(name);
        }
    }
    known.len() > before
}

fn all(i: &Inst, sources: &mut PerRegister<Sources>) -> Sources {
    let mut found = Sources::new();
    for r in i.src.iter().flat_map(Operand::registers) {
        add(&mut found, sources.at(r));
    }
    found
}
