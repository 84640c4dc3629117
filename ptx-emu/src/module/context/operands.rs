//! The interface by which decoding functions read an instruction: first the suffixes, then the
//! operands.

use crate::module::address_space::SHARED_WINDOW;
use crate::module::code::{Address, Constant, InstructionSpace, Op, PredSource, RegisterOperand};
use crate::module::context::functions::Functions;
use crate::module::context::names::{Register, bank, special};
use crate::module::context::row::ArithmeticRow;
use crate::module::context::symbols::DeclaredSymbol;
use crate::module::context::unit::{DecodingUnit, NARROW_ADDRESS};
use crate::module::parameter::Param;
use crate::module::registers::{Alu, Bank, OperandSlots};
use crate::syntax::ast::{DeclaredSpace, Number, OperandKind};
use crate::syntax::types::{Type, TypeKind};
use crate::syntax::{At, ErrorCause, Parsed, ast, error, unknown_form, unsupported};

/// The maximum number of suffixes of an instruction.
pub(crate) const MOST_SUFFIXES: usize = 64;

/// A rule of the manual that the suffixes of an instruction break.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BrokenRule {
    cause: ErrorCause,
    why: &'static str,
}

/// Returns a rule whose violation is invalid.
pub(crate) const fn invalid(why: &'static str) -> BrokenRule {
    BrokenRule {
        cause: ErrorCause::IllFormed,
        why,
    }
}

/// Returns a rule that other forms of the manual may lift.
pub(crate) const fn unknown(why: &'static str) -> BrokenRule {
    BrokenRule {
        cause: ErrorCause::UnknownForm,
        why,
    }
}

/// The order in which suffixes are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuffixOrder {
    /// The order of the manual.
    Manual,
    /// Any order, as in ptxas. Only types keep their order.
    Any,
}

/// An instruction that is being decoded.
pub(crate) struct Decode<'d, 'a> {
    pub(crate) inst: &'a ast::ParsedInstruction<'a>,
    /// The consumed suffixes, one bit for each.
    used: u64,
    order: SuffixOrder,
    unit: &'d mut DecodingUnit<'a>,
}

impl<'d, 'a> Decode<'d, 'a> {
    /// Starts to decode an instruction. No suffix is consumed.
    pub(crate) fn new(
        inst: &'a ast::ParsedInstruction<'a>,
        order: SuffixOrder,
        unit: &'d mut DecodingUnit<'a>,
    ) -> Decode<'d, 'a> {
        Decode {
            inst,
            used: 0,
            order,
            unit,
        }
    }

    /// Returns an error at the instruction.
    pub(crate) fn error<T>(&self, what: impl Into<String>) -> Parsed<T> {
        error(self.inst.at, what)
    }

    /// Returns the error that the instruction has no known form.
    pub(crate) fn unknown_form<T>(&self, what: impl Into<String>) -> Parsed<T> {
        unknown_form(self.inst.at, what)
    }

    /// Returns the error that a form is not implemented.
    pub(crate) fn unsupported<T>(&self, form: impl std::fmt::Display) -> Parsed<T> {
        unsupported(self.inst.at, form)
    }

    /// Returns the error that the instruction breaks a rule.
    pub(crate) fn breaks<T>(&self, rule: BrokenRule) -> Parsed<T> {
        let what = format!("`{}`: {}", self.name(), rule.why);
        match rule.cause {
            ErrorCause::UnknownForm => self.unknown_form(what),
            ErrorCause::IllFormed | ErrorCause::Unsupported => self.error(what),
        }
    }

    /// Returns the full name of the instruction.
    pub(crate) fn name(&self) -> String {
        self.inst
            .mods
            .iter()
            .fold(self.inst.opcode.to_string(), |name, (m, _)| name + m)
    }

    /// Returns the index of the first suffix that is not consumed.
    fn next(&self) -> usize {
        self.used.trailing_ones() as usize
    }

    /// Returns the next suffix without consuming it.
    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.inst.mods.get(self.next()).map(|(m, _)| *m)
    }

    /// Consumes the next suffix for which `wanted` returns a value. In any order, it may be a later
    /// suffix.
    fn take<T>(&mut self, wanted: impl Fn(&'a str) -> Option<T>) -> Option<T> {
        let left = (self.next()..self.inst.mods.len()).filter(|i| self.used >> i & 1 == 0);
        let most = if self.order == SuffixOrder::Any {
            usize::MAX
        } else {
            1
        };
        let (i, value) = left
            .take(most)
            .find_map(|i| Some((i, wanted(self.inst.mods[i].0)?)))?;
        self.used |= 1 << i;
        Some(value)
    }

    /// Consumes the next suffix if it is `suffix`.
    pub(crate) fn eat(&mut self, suffix: &str) -> bool {
        self.take(|next| (next == suffix).then_some(())).is_some()
    }

    /// Returns true if shuffles and votes may lack `.sync` and a mask.
    pub(crate) fn allows_maskless(&self) -> bool {
        let target = &self.unit.common.target;
        target.sm < 70 || target.version < (6, 4)
    }

    /// Returns true if the target schedules the lanes of a warp independently.
    pub(crate) fn schedules_independently(&self) -> bool {
        self.unit.common.target.schedules_lanes_independently()
    }

    /// Consumes the next suffix if it is one of `choices`.
    pub(crate) fn choose<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        self.take(|next| {
            choices
                .iter()
                .find(|(name, _)| *name == next)
                .map(|(_, value)| *value)
        })
    }

    /// Consumes the next suffix, which must be one of `choices`.
    pub(crate) fn require<T: Copy>(&mut self, choices: &[(&str, T)]) -> Parsed<T> {
        match self.choose(choices) {
            Some(value) => Ok(value),
            None => self.expected(
                &choices
                    .iter()
                    .map(|(name, _)| *name)
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
        }
    }

    fn expected<T>(&self, wanted: &str) -> Parsed<T> {
        match self.inst.mods.get(self.next()) {
            Some((found, at)) => unknown_form(
                *at,
                format!("`{found}` where {wanted} was expected in `{}`", self.name()),
            ),
            None => self.unknown_form(format!("`{}` lacks {wanted}", self.name())),
        }
    }

    /// Consumes a type suffix, which must be one of `allowed`.
    pub(crate) fn ty(&mut self, allowed: &[Type]) -> Parsed<Type> {
        match self.take(|next| Type::parse(next).filter(|t| allowed.contains(t))) {
            Some(ty) => Ok(ty),
            None => self.expected(
                &allowed
                    .iter()
                    .map(|t| t.name())
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
        }
    }

    /// Consumes all suffixes, because the caller has read them as a whole.
    pub(crate) fn skip(&mut self) {
        self.used = u64::MAX >> (MOST_SUFFIXES - self.inst.mods.len().clamp(1, MOST_SUFFIXES));
    }

    /// Checks that all suffixes are consumed.
    pub(crate) fn end(&self) -> Parsed<()> {
        if self.peek().is_none() {
            Ok(())
        } else {
            self.expected("no further suffix")
        }
    }

    /// Checks that all suffixes are consumed and that there are `least` to `most` operands. Returns
    /// their number.
    pub(crate) fn operands(&self, least: usize, most: usize) -> Parsed<usize> {
        self.end()?;
        let n = self.inst.operands.len();
        if (least..=most).contains(&n) {
            return Ok(n);
        }

        let wanted = if least == most {
            least.to_string()
        } else {
            format!("{least} to {most}")
        };
        self.error(format!(
            "`{}` takes {wanted} operands, not {n}",
            self.name()
        ))
    }

    /// Returns an operand.
    pub(crate) fn operand(&self, i: usize) -> &'a ast::ParsedOperand<'a> {
        &self.inst.operands[i]
    }

    /// Returns the register of a destination operand of exactly this type.
    pub(crate) fn dst(&mut self, i: usize, ty: Type) -> Parsed<u32> {
        self.element_dst(self.operand(i), ty)
    }

    /// Returns the register of a destination, which may be an element of a vector. `_` is a
    /// register that no instruction reads.
    pub(crate) fn element_dst(&mut self, o: &'a ast::ParsedOperand<'a>, ty: Type) -> Parsed<u32> {
        match o.kind {
            OperandKind::Name(name) => self.unit.typed(name, o.at, ty),
            OperandKind::Sink => Ok(self.unit.fresh(bank(ty))),
            _ => error(o.at, format!("a {ty} register was expected as destination")),
        }
    }

    /// Returns the register of a source operand of this type.
    pub(crate) fn src(&mut self, i: usize, ty: Type) -> Parsed<u32> {
        self.element_src(self.operand(i), ty)
    }

    /// Returns the register of a source operand, which may be an element of a vector.
    pub(crate) fn element_src(&mut self, o: &'a ast::ParsedOperand<'a>, ty: Type) -> Parsed<u32> {
        match o.kind {
            OperandKind::Name(name) => self.unit.typed(name, o.at, ty),
            OperandKind::Number(n) => {
                let value = immediate(n, ty, o.at)?;
                Ok(self.unit.constant(bank(ty), Constant::Bits(value)))
            }
            OperandKind::Sum(name, offset) => self.sum(name, offset, o.at, ty),
            _ => error(o.at, format!("a {ty} register or literal was expected")),
        }
    }

    /// Returns the register that contains the address of a variable plus an offset.
    fn sum(&mut self, name: &'a str, offset: i64, at: At, ty: Type) -> Parsed<u32> {
        if self.unit.find_register(name, at).is_some() {
            return unsupported(
                at,
                format!("`{name}{offset:+}`, a register with an offset as a value"),
            );
        }

        let integer = matches!(
            ty.kind(),
            TypeKind::Bits | TypeKind::Unsigned | TypeKind::Signed
        );

        // An address has 32 or 64 bits. In other types, ptxas accepts forms that are not
        // implemented.
        let fits = integer && matches!(ty.bits(), 32 | 64);
        match self
            .variable(name, offset, ty.bits() == 64)
            .filter(|_| fits)
        {
            Some(slot) => Ok(slot),
            None if self.variable(name, offset, true).is_some() => unsupported(
                at,
                format!("`{name}{offset:+}`, an address as a {ty} operand"),
            ),
            None => {
                self.unit.typed(name, at, ty)?;
                error(at, format!("a {ty} register or literal was expected"))
            }
        }
    }

    /// Returns the halves of a 128-bit destination, the lower one first. The halves of `_` are
    /// registers that no instruction reads.
    pub(crate) fn halves_dst(&mut self, o: &'a ast::ParsedOperand<'a>) -> Parsed<[u32; 2]> {
        match o.kind {
            OperandKind::Sink => Ok([Bank::W64; 2].map(|bank| self.unit.fresh(bank))),
            OperandKind::Name(name) => self
                .unit
                .typed(name, o.at, Type::B128)
                .map(|slot| [slot, slot + 1]),
            _ => error(o.at, "a .b128 register was expected as destination"),
        }
    }

    /// Returns the halves of a 128-bit source, the lower one first.
    pub(crate) fn halves_src(&mut self, o: &'a ast::ParsedOperand<'a>) -> Parsed<[u32; 2]> {
        match o.kind {
            OperandKind::Name(_) => self.halves_dst(o),
            OperandKind::Number(Number::Int(n)) => match u64::try_from(n) {
                Ok(low) => Ok([low, 0].map(|half| self.literal(Bank::W64, half))),
                Err(_) => unsupported(o.at, format!("the literal {n} as 128 bits")),
            },
            _ => error(o.at, "a .b128 register or an integer literal was expected"),
        }
    }

    /// Returns a register of this type by name.
    pub(crate) fn named(&mut self, name: &'a str, at: At, ty: Type) -> Parsed<u32> {
        self.unit.typed(name, at, ty)
    }

    /// Returns a register that is at least as wide as `ty`, with its type.
    pub(crate) fn wider(&mut self, o: &'a ast::ParsedOperand<'a>, ty: Type) -> Parsed<Register> {
        let OperandKind::Name(name) = o.kind else {
            return error(o.at, format!("a {ty} register was expected"));
        };

        let register = self.unit.named_register(name, o.at)?;
        if register.ty == Type::B128 {
            return unsupported(
                o.at,
                format!("`{name}`, a .b128 register, as an operand of type {ty}"),
            );
        }

        if ty.accepts_wider(register.ty) {
            return Ok(register);
        }

        error(
            o.at,
            format!(
                "`{name}` is a {} register where {ty} was expected",
                register.ty
            ),
        )
    }

    /// Returns a register that no instruction reads.
    pub(crate) fn scratch(&mut self, bank: Bank) -> u32 {
        self.unit.fresh(bank)
    }

    /// Returns the register that contains these bits.
    pub(crate) fn literal(&mut self, bank: Bank, bits: u64) -> u32 {
        self.unit.constant(bank, Constant::Bits(bits))
    }

    /// Returns the value of an integer literal operand.
    pub(crate) fn immediate(&self, i: usize, most: u64) -> Parsed<u64> {
        let o = self.operand(i);
        match o.kind {
            OperandKind::Number(Number::Int(n)) if (0..=i128::from(most)).contains(&n) => {
                Ok(n as u64)
            }
            _ => error(
                o.at,
                format!("an integer literal from 0 to {most} was expected"),
            ),
        }
    }

    /// Returns the slot of a destination predicate, or `None` for `_`.
    pub(crate) fn pred_dst(&mut self, name: &'a str, at: At) -> Parsed<Option<u32>> {
        if name == "_" {
            Ok(None)
        } else {
            self.unit.typed(name, at, Type::Pred).map(Some)
        }
    }

    /// Returns a source predicate: `p`, `!p`, or a literal 0 or 1.
    pub(crate) fn pred(&mut self, i: usize) -> Parsed<PredSource> {
        let o = self.operand(i);
        match o.kind {
            OperandKind::Name(name) => Ok(PredSource::Register {
                slot: self.unit.typed(name, o.at, Type::Pred)?,
                negated: false,
            }),
            OperandKind::Not(name) => Ok(PredSource::Register {
                slot: self.unit.typed(name, o.at, Type::Pred)?,
                negated: true,
            }),
            OperandKind::Number(Number::Int(n)) => Ok(PredSource::Constant(n != 0)),
            _ => error(o.at, "a predicate was expected"),
        }
    }

    /// Returns a destination `d`, `d|p` or `_|p`.
    pub(crate) fn dst_pair(&mut self, i: usize, ty: Type) -> Parsed<(Option<u32>, Option<u32>)> {
        let o = self.operand(i);
        match o.kind {
            OperandKind::Pair(d, p) => {
                let d = if d == "_" {
                    None
                } else {
                    Some(self.unit.typed(d, o.at, ty)?)
                };
                Ok((d, self.pred_dst(p, o.at)?))
            }
            _ => Ok((Some(self.dst(i, ty)?), None)),
        }
    }

    /// Returns the elements of a vector operand, or the operand itself.
    pub(crate) fn elements(&self, i: usize) -> &'a [ast::ParsedOperand<'a>] {
        let o = self.operand(i);
        match &o.kind {
            OperandKind::Vector(elements) => elements,
            _ => std::slice::from_ref(o),
        }
    }

    /// Returns the label that an operand names.
    pub(crate) fn label(&self, i: usize) -> Parsed<u32> {
        let o = self.operand(i);
        match o.kind {
            OperandKind::Name(name) => self.unit.label(name, o.at),
            _ => error(o.at, "a label was expected"),
        }
    }

    /// Returns the list of labels that an operand names.
    pub(crate) fn label_list(&self, i: usize) -> Parsed<Vec<u32>> {
        let o = self.operand(i);
        match o.kind {
            OperandKind::Name(name) => match self.unit.lookup(name) {
                Some(DeclaredSymbol::Targets(targets)) => Ok(targets.clone()),
                _ => error(
                    o.at,
                    format!("`{name}` is not a .branchtargets list declared before"),
                ),
            },
            _ => error(o.at, "a list of labels was expected"),
        }
    }

    /// Returns the slot of the carry flag of extended-precision arithmetic.
    pub(crate) fn carry(&mut self) -> u32 {
        if self.unit.carry.is_none() {
            let slot = self.unit.fresh(Bank::Pred);
            self.unit
                .routine
                .names
                .push((Bank::Pred, slot, "CC.CF".into()));
            self.unit.carry = Some(slot);
        }
        self.unit.carry.unwrap_or(0)
    }

    /// Returns the number of a new memory instruction.
    pub(crate) fn site(&mut self) -> u32 {
        self.unit.code.sites += 1;
        self.unit.code.sites - 1
    }

    /// Returns the register that contains a special register. The fourth component of a vector is
    /// 0.
    pub(crate) fn special(&mut self, name: &str) -> Option<u32> {
        if let Some(first) = name.strip_suffix(".w").or(name.strip_suffix(".a")) {
            special(&format!("{first}.x"))?;
            return Some(self.literal(Bank::W32, 0));
        }
        special(name).map(|s| self.unit.special(s))
    }

    /// Returns the register that contains the address of a variable plus `offset`, in the space of
    /// the variable.
    pub(crate) fn variable(&mut self, name: &str, offset: i64, wide: bool) -> Option<u32> {
        let bank = if wide { Bank::W64 } else { Bank::W32 };
        let value = match self.unit.lookup(name) {
            Some(DeclaredSymbol::Shared { bytes: None, .. }) => {
                // The dynamic variable has no address of its own. All its names share the end of
                // the static memory.
                Constant::Bits((i64::from(self.unit.dynamic_shared) + offset) as u64)
            }
            Some(DeclaredSymbol::Shared { address, .. }) => {
                Constant::Bits((i64::from(*address) + offset) as u64)
            }
            Some(DeclaredSymbol::Local { address, .. }) => {
                // The address depends on the call, so the frame is added when the function is
                // entered.
                Constant::Local((i64::from(*address) + offset) as u32)
            }
            _ => {
                let index = self
                    .unit
                    .common
                    .variables
                    .iter()
                    .position(|v| v.name == name && v.space != DeclaredSpace::Shared)?;
                Constant::Variable(index as u32, offset)
            }
        };
        Some(self.unit.constant(bank, value))
    }

    /// Returns the register that contains the address of a function.
    pub(crate) fn function_address(&mut self, name: &str) -> Option<u32> {
        let address = self.unit.common.functions.address(name)?;
        Some(self.literal(Bank::W64, address))
    }

    /// Returns the kernel parameter that an address names, and whether it is an array.
    pub(crate) fn param(&self, name: &str) -> Option<(&Param, bool)> {
        self.unit
            .params
            .iter()
            .find(|(p, _)| p.name == name)
            .map(|(p, array)| (p, *array))
    }

    /// Returns the size of a static shared variable in bytes.
    pub(crate) fn shared_bytes(&self, name: &str) -> Option<u32> {
        match self.unit.lookup(name) {
            Some(DeclaredSymbol::Shared { bytes, .. }) => *bytes,
            _ => None,
        }
    }

    /// Returns an address operand: a register or variable, and an offset. With `short`, 32-bit
    /// registers are accepted.
    pub(crate) fn address(&mut self, i: usize, short: bool) -> Parsed<Address> {
        let o = self.operand(i);
        let OperandKind::Address(base, offset) = o.kind else {
            return error(o.at, "an address in brackets was expected");
        };

        let Some(name) = base else {
            return Ok(Address {
                slot: self.literal(Bank::W64, 0),
                wide: true,
                offset,
            });
        };

        if let Some(register) = self.unit.find_register(name, o.at) {
            let int = !matches!(
                register.ty.kind(),
                TypeKind::Float | TypeKind::Predicate | TypeKind::Alternate
            );
            return match register.ty.bits() {
                64 if int => Ok(Address {
                    slot: register.slot,
                    wide: true,
                    offset,
                }),
                // Narrow registers are zero-extended, and the lanes of a 16-bit register are stored
                // in this way.
                16 if int => Ok(Address {
                    slot: register.slot,
                    wide: false,
                    offset,
                }),
                32 if int && short => Ok(Address {
                    slot: register.slot,
                    wide: false,
                    offset,
                }),
                _ => error(
                    o.at,
                    format!("`{name}` is a {} {NARROW_ADDRESS}", register.ty),
                ),
            };
        }

        // If the instruction names no state space, the address of a shared variable is generic.
        let shared = matches!(self.unit.lookup(name), Some(DeclaredSymbol::Shared { .. }));
        let base = if shared && !short {
            SHARED_WINDOW as i64
        } else {
            0
        };
        match self
            .variable(name, base, true)
            .or_else(|| self.function_address(name))
        {
            Some(slot) => Ok(Address {
                slot,
                wide: true,
                offset,
            }),
            None if self.param(name).is_some() => unsupported(
                o.at,
                format!("parameter `{name}` as an address of {}", self.inst.opcode),
            ),
            None => error(
                o.at,
                format!("`{name}` is not declared as a register or variable"),
            ),
        }
    }

    /// Returns the local space if the address operand names a local variable.
    pub(crate) fn local_by_name(&self, i: usize) -> Option<InstructionSpace> {
        match self.operand(i).kind {
            OperandKind::Address(Some(name), _) if self.is_local(name) => {
                Some(InstructionSpace::Local)
            }
            _ => None,
        }
    }

    /// Returns true if the name is a local variable.
    pub(crate) fn is_local(&self, name: &str) -> bool {
        matches!(self.unit.lookup(name), Some(DeclaredSymbol::Local { .. }))
    }

    /// Returns the `.param` variable of a call with this name: its offset in local memory and its
    /// size.
    pub(crate) fn passed_variable(&self, name: &str) -> Option<(u32, u32)> {
        match self.unit.lookup(name) {
            Some(DeclaredSymbol::Local { address, bytes }) => Some((*address, *bytes)),
            _ => None,
        }
    }

    /// Returns the register with this name.
    pub(crate) fn register(&mut self, name: &'a str, at: At) -> Option<Register> {
        self.unit.find_register(name, at)
    }

    /// Returns the functions of the module.
    pub(crate) fn functions(&self) -> &'a Functions<'a> {
        &self.unit.common.functions
    }

    /// Returns true if the instruction is in a function.
    pub(crate) fn in_function(&self) -> bool {
        self.unit.function
    }

    /// Returns the numbers of the functions in a `.calltargets` list.
    pub(crate) fn callees(&self, name: &str) -> Option<Vec<u32>> {
        match self.unit.lookup(name) {
            Some(DeclaredSymbol::Callees(list)) => Some(list.clone()),
            _ => None,
        }
    }

    /// Returns a new register without a name.
    pub(crate) fn temporary(&mut self, bank: Bank) -> u32 {
        self.unit.fresh(bank)
    }

    /// Decodes a table row like [`Decode::row`], or returns `None` if the registers have other
    /// sizes.
    pub(crate) fn attempt(&mut self, row: &ArithmeticRow) -> Option<Op> {
        let fits = |d: &mut Self, i: usize, ty: Type| match d.operand(i).kind {
            OperandKind::Name(name) => d.unit.typed(name, d.operand(i).at, ty).is_ok(),
            _ => false,
        };
        let all = fits(self, 0, row.dst)
            && row
                .src
                .iter()
                .enumerate()
                .all(|(i, ty)| fits(self, i + 1, *ty));
        if all { self.row(row).ok() } else { None }
    }

    /// Returns the source of a conversion, and whether it is in the 64-bit bank. It may be a
    /// register that is at least as wide as the type, a special register or a literal.
    pub(crate) fn cvt_src(&mut self, ty: Type) -> Parsed<(u32, bool)> {
        let o = self.operand(1);
        match o.kind {
            OperandKind::Name(name) => {
                if ty.bits() <= 32
                    && let Some(slot) = self.special(name)
                {
                    return Ok((slot, false));
                }
                let register = self.wider(o, ty)?;
                Ok((register.slot, register.ty.bits() == 64))
            }
            _ => Ok((self.src(1, ty)?, ty.bits() == 64)),
        }
    }

    /// Decodes a table row: the destination, followed by the sources.
    pub(crate) fn row(&mut self, row: &ArithmeticRow) -> Parsed<Op> {
        self.skip();
        self.operands(1 + row.src.len(), 1 + row.src.len())?;
        self.alu(row.run, row.dst, row.src)
    }

    /// Decodes an operation on registers whose first operand is the destination.
    pub(crate) fn alu(&mut self, run: Alu, dst: Type, src: &[Type]) -> Parsed<Op> {
        let d = self.dst(0, dst)?;
        let mut s = [0; 4];
        for (i, ty) in src.iter().enumerate() {
            s[i] = self.src(i + 1, *ty)?;
        }

        Ok(Op::Alu(
            run,
            OperandSlots {
                d,
                e: 0,
                a: s[0],
                b: s[1],
                c: s[2],
                x: s[3],
            },
        ))
    }

    /// Returns a source register in the bank of its type.
    pub(crate) fn word(&mut self, i: usize, ty: Type) -> Parsed<RegisterOperand> {
        Ok(RegisterOperand {
            slot: self.src(i, ty)?,
            bits: ty.bits(),
        })
    }
}

/// Returns the bits of a literal as a value of type `ty`.
fn immediate(n: Number, ty: Type, at: At) -> Parsed<u64> {
    let bits = ty.bits();
    match (n, ty.kind()) {
        // A constant has 64 bits, of which the instruction uses as many as its type has.
        (Number::Int(v), TypeKind::Bits | TypeKind::Unsigned | TypeKind::Signed) if bits <= 64 => {
            Ok(v as u64 & u64::MAX >> (64 - bits))
        }
        (Number::F32(v), TypeKind::Float | TypeKind::Bits) if bits == 32 && ty != Type::F16x2 => {
            Ok(v.into())
        }
        (Number::F64(v), TypeKind::Float | TypeKind::Bits) if bits == 64 => Ok(v),
        (Number::F64(v), TypeKind::Float) if ty == Type::F32 => {
            Ok((f64::from_bits(v) as f32).to_bits().into())
        }
        // ptxas 13.5 uses the bits of the `f32` without conversion, which the manual does not
        // mention.
        (Number::F32(_), TypeKind::Float) if ty == Type::F64 => {
            unsupported(at, "a hexadecimal single as a .f64 operand")
        }
        _ => error(at, format!("this literal cannot be a {ty} operand")),
    }
}

/// A function that decodes the current instruction.
pub(crate) type Decoder = fn(&mut Decode<'_, '_>) -> Parsed<Op>;
