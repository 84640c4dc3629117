//! Which parameters a program reads by `ld.global.nc`.
//!
//! The manual allows such loads for memory that nobody writes while the kernel is there: their cache is not kept
//! coherent, and only emptied when a kernel starts. Whether that holds is for those to say who see several kernels at
//! once, so this is told and not judged here.
//!
//! An address comes from a parameter if the parameter's value goes into it, through any number of registers. That is
//! more than the truth where a pointer is chosen between two parameters, and never less.

use super::per_register::PerRegister;
use crate::ir::*;
use crate::isa::{Effect, MemoryOrder};
use std::collections::BTreeSet;

/// The parameters whose value is part of another's: few, each once.
type Sources = Vec<&'static str>;

impl Program {
    /// The names of the buffers that it reads by `ld.global.nc`. Nobody may write them while the kernel is there,
    /// which by a programmatic edge begins before the kernels before it have ended.
    pub fn noncoherent(&self) -> BTreeSet<&'static str> {
        let mut sources = PerRegister::new(self, Sources::new());
        while spread(self, &mut sources) {}
        let mut found = BTreeSet::new();
        self.each_inst(&mut |i| {
            if matches!(i.op.effect, Effect::Load(_, MemoryOrder::Noncoherent)) {
                all(i, &mut sources)
                    .into_iter()
                    .for_each(|name| _ = found.insert(name));
            }
        });
        found
    }
}

/// Carries sources from operands to results once, in program order; whether any were new.
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

/// Whether its result may be an address computed from its operands: of 64 bits, and not out of memory.
fn is_address(i: &Inst) -> bool {
    i.dst.iter().any(|d| d.kind.bytes() == 8) && !i.op.effect.loads()
}

/// The buffer whose address it loads.
fn buffer(p: &Program, i: &Inst) -> Option<&'static str> {
    let Some(Operand::Addr(Base::Symbol(name), _)) = i.src.first() else {
        return None;
    };
    let param = p.params.iter().find(|param| param.name == *name)?;
    matches!(param.kind, ParamKind::Buffer(..)).then_some(param.name)
}

/// Adds sources; whether any were new.
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
