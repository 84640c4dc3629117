//! Names of a kernel: registers and their slots, labels, constants and special registers.

use crate::module::code::{Constant, Special};
use crate::module::context::symbols::DeclaredSymbol;
use crate::module::context::unit::{DecodingUnit, IS_VARIABLE, UNDECLARED};
use crate::module::registers::Bank;
use crate::syntax::types::Type;
use crate::syntax::{At, Parsed, error, unsupported};

/// The maximum number of registers of a kernel.
const MOST_REGISTERS: u32 = 1_000_000;

/// A register operand. A 128-bit register consists of two 64-bit slots: `slot` is the lower half,
/// and the next slot is the upper half.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Register {
    pub(crate) ty: Type,
    pub(crate) slot: u32,
}

impl Register {
    /// Returns the slots of the register.
    pub(crate) fn slots(self) -> std::ops::RangeInclusive<u32> {
        self.slot..=self.slot + u32::from(self.ty == Type::B128)
    }
}

impl<'a> DecodingUnit<'a> {
    pub(crate) fn lookup(&self, name: &str) -> Option<&DeclaredSymbol> {
        let mut scope = Some(self.scope);
        while let Some(s) = scope {
            if let Some(named) = self.scopes[s].names.get(name) {
                return Some(named);
            }
            scope = self.scopes[s].parent;
        }
        None
    }

    /// Returns the register called `name`, which was declared directly or by a family `%r<N>`.
    pub(crate) fn find_register(&mut self, name: &'a str, at: At) -> Option<Register> {
        if let Some(&DeclaredSymbol::Register {
            ty,
            declaration,
            at: declared,
        }) = self.lookup(name)
        {
            // A register is visible only after its declaration, as in ptxas.
            return (declared < at).then(|| self.slot(ty, declaration, 0, name));
        }

        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (prefix, number) = name.split_at(name.len() - digits);

        // `%r<10>` declares `%r0` to `%r9`, and not `%r00`.
        if number.len() > 1 && number.starts_with('0') {
            return None;
        }

        let number: u32 = number.parse().ok()?;
        let mut scope = Some(self.scope);
        while let Some(s) = scope {
            match self.scopes[s].families.get(prefix) {
                Some(&(ty, declaration, count, declared)) if number < count && declared < at => {
                    return Some(self.slot(ty, declaration, number, name));
                }
                _ => scope = self.scopes[s].parent,
            }
        }

        None
    }

    pub(crate) fn slot(&mut self, ty: Type, declaration: u32, number: u32, name: &str) -> Register {
        if let Some(&slot) = self.slots.get(&(declaration, number)) {
            return Register { ty, slot };
        }

        let mut slot = self.fresh(bank(ty));
        if ty == Type::B128 {
            // The two halves of a 128-bit register are consecutive slots, and the lower one stands
            // for it.
            slot = self.fresh(bank(ty)) - 1;
            self.routine
                .names
                .push((bank(ty), slot + 1, name.to_string()));
        }

        self.slots.insert((declaration, number), slot);
        self.routine.names.push((bank(ty), slot, name.to_string()));
        Register { ty, slot }
    }

    pub(crate) fn fresh(&mut self, bank: Bank) -> u32 {
        let count = &mut self.routine.slots[bank as usize];
        let slot = *count;
        if slot < MOST_REGISTERS {
            *count += 1;
        }
        slot.min(MOST_REGISTERS - 1)
    }

    pub(crate) fn typed(&mut self, name: &'a str, at: At, ty: Type) -> Parsed<u32> {
        let register = self.named_register(name, at)?;
        if ty.accepts(register.ty) {
            return Ok(register.slot);
        }
        error(
            at,
            format!(
                "`{name}` is a {} register where {ty} was expected",
                register.ty
            ),
        )
    }

    pub(crate) fn named_register(&mut self, name: &'a str, at: At) -> Parsed<Register> {
        if let Some(register) = self.find_register(name, at) {
            return Ok(register);
        }
        // The message says what the name is, because a wrong kind of name is more frequent than a
        // missing declaration.
        let what = match self.lookup(name) {
            Some(DeclaredSymbol::Shared { .. } | DeclaredSymbol::Local { .. }) => IS_VARIABLE,
            Some(
                DeclaredSymbol::Label(_) | DeclaredSymbol::Targets(_) | DeclaredSymbol::Callees(_),
            ) => "is a label",
            Some(DeclaredSymbol::Register { .. }) => "is declared only after this instruction",
            None if LACKING.iter().any(|lacks| name.starts_with(lacks)) => {
                return unsupported(at, format!("special register `{name}`"));
            }
            None if special(name).is_some() => "is a special register: read it with mov or cvt",
            None if self.common.variables.iter().any(|v| v.name == name) => IS_VARIABLE,
            None if self.common.functions.is_kernel(name) => {
                return unsupported(at, format!("the address of the kernel `{name}`"));
            }
            None if self.common.functions.knows(name) => "is a function: take its address with mov",
            None if self.params.iter().any(|(p, _)| p.name == name) => {
                "is a parameter: read it with ld.param"
            }
            None => return error(at, format!("`{name}`{UNDECLARED}")),
        };
        error(at, format!("`{name}` {what}"))
    }

    pub(crate) fn label(&self, name: &str, at: At) -> Parsed<u32> {
        match self.lookup(name) {
            Some(DeclaredSymbol::Label(index)) => Ok(*index),
            _ => error(at, format!("there is no label `{name}` in this scope")),
        }
    }

    /// Returns the register that contains a constant.
    pub(crate) fn constant(&mut self, bank: Bank, value: Constant) -> u32 {
        if let Some(&slot) = self.constants.get(&(bank, value)) {
            return slot;
        }
        let slot = self.fresh(bank);
        self.constants.insert((bank, value), slot);
        self.routine.constants.push((bank, slot, value));
        slot
    }

    pub(crate) fn special(&mut self, special: Special) -> u32 {
        if let Some(&slot) = self.specials.get(&special) {
            return slot;
        }
        let slot = self.fresh(Bank::W32);
        self.specials.insert(special, slot);
        self.routine.specials.push((slot, special));
        slot
    }
}

/// Returns the bank of registers of a type.
pub(crate) fn bank(ty: Type) -> Bank {
    match ty.bits() {
        1 => Bank::Pred,
        64.. => Bank::W64,
        _ => Bank::W32,
    }
}

/// Special registers that are vectors, or that change during the life of a warp.
pub(crate) const PREDEFINED: &[&str] = &[
    "%tid",
    "%ntid",
    "%ctaid",
    "%nctaid",
    "%clock",
    "%clock_hi",
    "%clock64",
    "%globaltimer",
    "%globaltimer_lo",
    "%globaltimer_hi",
    "%gridid",
];

/// The prefixes of special registers in the manual that the emulator does not implement.
const LACKING: &[&str] = &[
    "%reserved_smem_offset",
    "%pm",
    "%gridid",
    "%globaltimer_",
    "%is_explicit_cluster",
    "%aggr_smem_size",
    "%current_graph_exec",
];

/// Returns the special register of a name, if its value does not change during the life of a warp.
pub(crate) fn special(name: &str) -> Option<Special> {
    use crate::module::code::Compare::*;
    let dimension = |name: &str| match name {
        "x" | "r" => Some(0),
        "y" | "g" => Some(1),
        "z" | "b" => Some(2),
        _ => None,
    };
    if let Some((register, part)) = name.split_once('.') {
        let d = dimension(part)?;
        return Some(match register {
            "%tid" => Special::Tid(d),
            "%ntid" => Special::Ntid(d),
            "%ctaid" => Special::Ctaid(d),
            "%nctaid" => Special::Nctaid(d),
            "%cluster_ctaid" => Special::ClusterCtaid(d),
            "%cluster_nctaid" => Special::ClusterNctaid(d),
            "%clusterid" => Special::ClusterId(d),
            "%nclusterid" => Special::NclusterId(d),
            _ => return None,
        });
    }

    if let Some(n) = name.strip_prefix("%envreg") {
        return n.parse().ok().filter(|n| *n < 32).map(Special::EnvReg);
    }

    Some(match name {
        "%laneid" => Special::LaneId,
        "%warpid" => Special::WarpId,
        "%nwarpid" => Special::NWarpId,
        "%smid" => Special::SmId,
        "%nsmid" => Special::NSmId,
        "%lanemask_eq" => Special::LaneMask(Eq),
        "%lanemask_lt" => Special::LaneMask(Lt),
        "%lanemask_le" => Special::LaneMask(Le),
        "%lanemask_gt" => Special::LaneMask(Gt),
        "%lanemask_ge" => Special::LaneMask(Ge),
        "%dynamic_smem_size" => Special::DynamicSmemSize,
        "%total_smem_size" => Special::TotalSmemSize,
        "%cluster_ctarank" => Special::ClusterCtaRank,
        "%cluster_nctarank" => Special::ClusterNctaRank,
        _ => return None,
    })
}
