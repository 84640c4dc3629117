//! Decodes the statements of a kernel, one after another.

use std::collections::{HashMap, HashSet};

use crate::fault::{RustPlace, SourcePlace};
use crate::module::code::Preparation;
use crate::module::code::asynchronous::{LeftMatrix, Wgmma};
use crate::module::code::call::Routine;
use crate::module::code::instruction::{Instruction, KernelCode, Op, ResolvedGuard};
use crate::module::context::names::bank;
use crate::module::context::operands::{Decode, MOST_SUFFIXES, SuffixOrder};
use crate::module::context::symbols::{DeclaredSymbol, NameScope};
use crate::module::context::unit::{
    DecodingUnit, IS_VARIABLE, ModuleContext, NARROW_ADDRESS, UNDECLARED,
};
use crate::module::isa::OpcodeLookup;
use crate::module::registers::Bank;
use crate::module::{features, isa};
use crate::syntax::ast::{OperandKind, SourcePosition, Statement};
use crate::syntax::types::Type;
use crate::syntax::{At, Error, ErrorCause, Parsed, ast, error, unknown_form, unsupported};

/// Instructions whose first operand is a source.
const READERS: &[&str] = &[
    "st", "red", "stmatrix", "bar", "barrier", "cp", "mbarrier", "fence", "prefetch", "wgmma",
    "sust", "sured",
];

/// The maximum depth of inlined calls whose places are kept.
const MOST_INLINED: usize = 64;

/// Returns a name without the number of `%r<N>`.
pub(crate) fn family(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// Returns the operand form that an error is about, if ptxas 13.5 accepts it.
///
/// Such a form is unsupported and not ill-formed. `cargo xtask forms` found the cases.
fn lacking_operand(inst: &ast::ParsedInstruction<'_>, e: &Error) -> Option<String> {
    let opcode = inst.opcode;
    if matches!(opcode, "min" | "max") && inst.operands.len() == 4 {
        return Some(format!("{opcode} of three values"));
    }
    if e.what.starts_with("a barrier for 0 threads") {
        return Some(format!("{opcode} of 0 threads"));
    }

    // ptxas accepts 32-bit registers as addresses of these instructions in every space.
    let of_other_spaces = [
        "cp",
        "createpolicy",
        "fence",
        "ldmatrix",
        "stmatrix",
        "tensormap",
    ]
    .contains(&opcode)
        || inst
            .mods
            .iter()
            .any(|(suffix, _)| matches!(*suffix, ".async" | ".tensormap"));
    if of_other_spaces && e.what.ends_with(NARROW_ADDRESS) {
        return Some(format!(
            "a 32-bit register as a global or generic address of {opcode}"
        ));
    }

    let in_vector =
        |o: &ast::ParsedOperand<'_>| match &o.kind {
            OperandKind::Vector(elements) => elements
                .iter()
                .find(|element| element.at == e.at)
                .map(|e| match e.kind {
                    OperandKind::Number(_) | OperandKind::Sink | OperandKind::Sum(..) => Some(()),
                    _ => None,
                }),
            _ => None,
        };
    if inst.operands.iter().find_map(in_vector).flatten().is_some() {
        return Some(format!("this element of a vector of {opcode}"));
    }

    match inst.operands.iter().find(|o| o.at == e.at)?.kind {
        OperandKind::Sum(name, offset) => {
            Some(format!("`{name}{offset:+}` as an operand of {opcode}"))
        }
        OperandKind::Name(name) if opcode == "mov" && e.what.ends_with(IS_VARIABLE) => {
            Some(format!("this move of the address of `{name}`"))
        }
        OperandKind::Not(_) if opcode == "movmatrix" => Some("movmatrix of a predicate".into()),
        OperandKind::Number(ast::Number::F32(_)) if opcode == "fns" => {
            Some("fns of a hexadecimal single".into())
        }
        OperandKind::Number(ast::Number::Int(n)) if n < 0 && matches!(opcode, "cp" | "wgmma") => {
            Some(format!("{opcode} with the count {n}"))
        }
        _ => None,
    }
}

/// Returns the first operand with a `-` in front of a name.
pub(crate) fn negative<'a>(inst: &ast::ParsedInstruction<'a>) -> Option<(&'a str, At)> {
    inst.operands.iter().find_map(|o| match o.kind {
        OperandKind::Negative(name) => Some((name, o.at)),
        _ => None,
    })
}

impl<'a> DecodingUnit<'a> {
    pub(crate) fn new(
        common: &'a ModuleContext<'a>,
        entry: &'a ast::Entry<'a>,
    ) -> DecodingUnit<'a> {
        let statements = &entry.body.statements;
        DecodingUnit {
            common,
            function: entry.function,
            routine: Routine {
                name: entry.name.into(),
                align: 16,
                ..Routine::default()
            },
            params: Vec::new(),
            scopes: vec![NameScope::default()],
            scope: 0,
            code: KernelCode::default(),
            slots: HashMap::new(),
            constants: HashMap::new(),
            specials: HashMap::new(),
            carry: None,
            declarations: 0,
            dynamic_shared: 0,
            errors: Vec::new(),
            refused: HashSet::new(),
            undeclared: HashMap::new(),
            incomplete: false,
            // An error in `.reg .b32 %r<8>` concerns all registers of the family, so uses of `%r3`
            // are not reported as well.
            broken: entry.body.broken.iter().map(|name| family(name)).collect(),
            multiplies: statements
                .iter()
                .any(|s| matches!(s, Statement::Inst(i) if i.opcode == "wgmma")),
        }
    }

    pub(crate) fn fail(&mut self, at: At, what: impl Into<String>) {
        self.errors.push(Error::ill_formed(at, what));
    }

    /// Records the error that a form is not implemented.
    pub(crate) fn fail_unsupported(&mut self, at: At, form: impl std::fmt::Display) {
        self.errors.extend(unsupported::<()>(at, form).err());
    }

    /// Records an error. An error about a name with a broken declaration is recorded only once.
    fn record(&mut self, e: Error) {
        let of_module = |name: &&str| self.common.broken.contains(name);
        let mut names = e.what.split('`').skip(1).step_by(2);
        if names.clone().any(|name| self.broken.contains(family(name))) {
            self.incomplete = true;
            return;
        }

        let Some(name) = names.find(of_module) else {
            return self.record_own(e);
        };

        if self.refused.insert(name.to_string()) {
            self.errors
                .extend(unsupported::<()>(e.at, format!("the declaration of `{name}`")).err());
        }
    }

    /// Records an error. Undeclared registers whose names differ only in their number are counted
    /// once.
    fn record_own(&mut self, e: Error) {
        let register = e
            .what
            .strip_suffix(UNDECLARED)
            .map(|name| family(name.trim_matches('`')).to_string());
        if let Some(register) = register {
            if let Some((_, more)) = self.undeclared.get_mut(&register) {
                *more += 1;
                return;
            }
            self.undeclared.insert(register, (self.errors.len(), 0));
        }
        self.errors.push(e);
    }

    pub(crate) fn instructions(&mut self, entry: &'a ast::Entry<'a>) {
        let mut next_scope = 0;
        let mut inlined = HashMap::new();
        let mut place = (None, Vec::new());
        for statement in &entry.body.statements {
            match statement {
                Statement::Open => {
                    next_scope += 1;
                    self.scope = next_scope;
                }
                Statement::Close => self.scope = self.scopes[self.scope].parent.unwrap_or(0),
                Statement::Targets(name, labels) => self.targets(name, labels),
                Statement::Callees(name, list) => self.callees(name, list),
                Statement::Loc(loc) => {
                    // A later `.loc` may name this one as its caller, so the place of each is kept.
                    inlined.insert(loc.position, loc.inlined_at);
                    place = (self.rust_place(loc.position), self.callers(loc, &inlined));
                }
                Statement::Inst(inst) => {
                    self.place(inst, &place);
                    if let Err(e) = self.instruction(inst) {
                        self.record(e);
                    }
                }
                _ => {}
            }
            if self.errors.len() >= crate::syntax::parser::MOST_ERRORS {
                return;
            }
        }

        for (register, (first, more)) in self.undeclared.drain().filter(|(_, (_, more))| *more > 0)
        {
            self.errors[first].what +=
                &format!(", nor are {more} more uses of registers `{register}..`");
        }

        // The pass compares instructions with decoded operations, so it needs one for each
        // instruction.
        if self.errors.is_empty() {
            crate::module::decode::uninitialized_loads::mark(entry, &mut self.code.ops);
        }

        self.end(entry);
    }

    /// Appends the instruction that ends a body without a final `exit` or `ret`.
    pub(crate) fn end(&mut self, entry: &ast::Entry<'a>) {
        let last = self.code.ops.last();
        if !matches!(
            last,
            Some(Instruction {
                guard: None,
                op: Op::Exit | Op::Return | Op::Trap | Op::Branch { .. },
                ..
            })
        ) {
            let op = if self.function { Op::Return } else { Op::Exit };
            self.code.ops.push(Instruction {
                guard: None,
                preparation: Preparation::new(&op),
                op,
            });
            let (line, column) = self.common.source.place(entry.at);
            let text = if self.function {
                "end of the function"
            } else {
                "end of the kernel"
            }
            .into();
            self.code.places.push(SourcePlace {
                line,
                column,
                text,
                rust: None,
                callers: Vec::new(),
            });
        }
    }

    fn targets(&mut self, name: &'a str, labels: &[(&'a str, At)]) {
        let found: Parsed<Vec<u32>> = labels
            .iter()
            .map(|(label, at)| self.label(label, *at))
            .collect();
        match found {
            Ok(targets) => self.name(
                self.scope,
                name,
                labels[0].1,
                DeclaredSymbol::Targets(targets),
            ),
            Err(e) => self.record(e),
        }
    }

    fn callees(&mut self, name: &'a str, list: &[(&'a str, At)]) {
        let functions = &self.common.functions;
        let number = |&(name, at): &(&'a str, At)| match functions.number(name) {
            Some(number) => Ok(number),
            None => error(at, format!("there is no function `{name}` in this text")),
        };
        match list.iter().map(number).collect() {
            Ok(numbers) => self.name(
                self.scope,
                name,
                list[0].1,
                DeclaredSymbol::Callees(numbers),
            ),
            Err(e) => self.record(e),
        }
    }

    fn rust_place(&self, position: SourcePosition) -> Option<RustPlace> {
        let mut files = self.common.files.iter();
        let (_, file) = files.find(|(index, _)| *index == position.file)?;
        Some(RustPlace {
            file: (*file).into(),
            line: position.line,
            column: position.column,
        })
    }

    /// Returns the places where the code of a `.loc` was inlined, innermost call first. The latest
    /// `.loc` of each call has its place.
    fn callers(
        &self,
        loc: &ast::Loc,
        inlined: &HashMap<SourcePosition, Option<SourcePosition>>,
    ) -> Vec<RustPlace> {
        let mut next = loc.inlined_at;
        let chain = std::iter::from_fn(|| {
            let position = next?;
            next = inlined.get(&position).copied().flatten();
            Some(position)
        });
        chain
            .take(MOST_INLINED)
            .filter_map(|position| self.rust_place(position))
            .collect()
    }

    fn place(
        &mut self,
        inst: &ast::ParsedInstruction<'a>,
        (rust, callers): &(Option<RustPlace>, Vec<RustPlace>),
    ) {
        let (line, column) = self.common.source.place(inst.at);
        let text = self
            .common
            .source
            .text
            .get(inst.at as usize..inst.end as usize)
            .unwrap_or("");
        let text = text
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .chars()
            .take(200)
            .collect();
        self.code.places.push(SourcePlace {
            line,
            column,
            text,
            rust: rust.clone(),
            callers: callers.clone(),
        });
    }

    fn instruction(&mut self, inst: &'a ast::ParsedInstruction<'a>) -> Parsed<()> {
        if inst.mods.len() > MOST_SUFFIXES {
            return error(
                inst.at,
                format!("{} suffixes, at most {MOST_SUFFIXES}", inst.mods.len()),
            );
        }

        let mods: Vec<&str> = inst.mods.iter().map(|(m, _)| *m).collect();
        if let Some(needs) = features::missing(inst.opcode, &mods, &self.common.target) {
            return error(inst.at, needs);
        }

        // Only `vmad` has negated operands. The other decoders do not expect this form.
        if let Some((name, at)) = negative(inst) {
            return match inst.opcode {
                "vmad" => unsupported(at, format!("vmad with a negated operand, `-{name}`")),
                _ => error(
                    at,
                    format!("`-` in front of `{name}`: neg negates a register"),
                ),
            };
        }

        let guard = match inst.guard {
            None => None,
            Some(g) => Some(ResolvedGuard {
                pred: self.typed(g.name, g.at, Type::Pred)?,
                negated: g.negated,
            }),
        };
        let name = format!("{}{}", inst.opcode, mods.concat());

        // The order of the manual is tried first, because its errors name the suffix that is wrong.
        let op = match self.operation(inst, &name, SuffixOrder::Manual) {
            Err(e) if mods.len() > 1 => match self.operation(inst, &name, SuffixOrder::Any) {
                Err(other) if other.is_ill_formed() => Err(e),
                found => found,
            },
            found => found,
        };
        let op = match op {
            Err(e)
                if e.cause == ErrorCause::UnknownForm
                    && isa::is_in_manual(inst.opcode, &inst.mods) =>
            {
                unsupported(inst.at, &name)
            }
            Err(e) if e.is_ill_formed() => match lacking_operand(inst, &e) {
                Some(form) => unsupported(e.at, form),
                None => Err(e),
            },
            found => found,
        }?;
        self.code.ops.push(Instruction {
            guard,
            preparation: Preparation::new(&op),
            op,
        });
        self.mention(inst);
        if self.multiplies {
            let uses = self.uses(inst);
            self.code.uses.push(uses);
        }

        Ok(())
    }

    /// Decodes an instruction, with its suffixes in the given order.
    fn operation(
        &mut self,
        inst: &'a ast::ParsedInstruction<'a>,
        name: &str,
        order: SuffixOrder,
    ) -> Parsed<Op> {
        let found = match order {
            SuffixOrder::Manual => isa::find(inst.opcode, name),
            SuffixOrder::Any => isa::find_in_any_order(inst.opcode, &inst.mods),
        };
        // A row describes one full name with its operands. Instructions with many combinations of
        // suffixes have a decoder instead, which consumes the suffixes one by one.
        let mut d = Decode::new(inst, order, self);
        match found {
            OpcodeLookup::Row(row) => d.row(row),
            OpcodeLookup::Decoder(f) => f(&mut d),
            OpcodeLookup::Opcode(known) => unknown_form(
                inst.at,
                format!(
                    "`{name}` is not an instruction; there are {}",
                    known.join(", ")
                ),
            ),
            OpcodeLookup::Unsupported => unsupported(inst.at, name),
            OpcodeLookup::Unknown => {
                unknown_form(inst.at, format!("`{}` is not an instruction", inst.opcode))
            }
        }
    }

    /// Records the registers that the last instruction names.
    fn mention(&mut self, inst: &'a ast::ParsedInstruction<'a>) {
        let known = self.code.mentions.len() as u32;

        // Instructions that were added without a statement mention no registers, so their lists are
        // empty.
        self.code
            .mention_ends
            .resize(self.code.ops.len() - 1, known);
        let guard = inst.guard.iter().map(|guard| (guard.name, guard.at));
        let operands = inst.operands.iter().flat_map(ast::ParsedOperand::names);
        for (name, at) in guard.chain(operands) {
            let Some(register) = self.find_register(name, at) else {
                continue;
            };
            for slot in register.slots() {
                let register = (bank(register.ty), slot);
                if !self.code.mentions[known as usize..].contains(&register) {
                    self.code.mentions.push(register);
                }
            }
        }

        self.code.mention_ends.push(self.code.mentions.len() as u32);
    }

    /// Returns the 32-bit registers that an instruction reads, and those that it writes.
    fn uses(&mut self, inst: &'a ast::ParsedInstruction<'a>) -> [Box<[u32]>; 2] {
        let mut uses = [vec![], vec![]];
        for (i, operand) in inst.operands.iter().enumerate() {
            // The first operand is the destination, except in instructions that only read.
            let written = usize::from(i == 0 && !READERS.contains(&inst.opcode));
            let operands = match &operand.kind {
                OperandKind::Vector(elements) => elements,
                _ => std::slice::from_ref(operand),
            };
            for o in operands {
                if let OperandKind::Name(name) | OperandKind::Address(Some(name), _) = o.kind
                    && let Some(register) = self
                        .find_register(name, o.at)
                        .filter(|r| bank(r.ty) == Bank::W32)
                {
                    uses[written].push(register.slot);
                }
            }
        }
        uses.map(Vec::into_boxed_slice)
    }

    /// Marks the instructions that use registers of a `wgmma`.
    pub(crate) fn watch(&mut self) {
        let products = self.code.ops.iter().filter_map(|i| match &i.op {
            Op::Wgmma(product) => Some(product),
            _ => None,
        });
        let left = |product: &Wgmma| match &product.a {
            LeftMatrix::Registers(slots) => slots.clone(),
            LeftMatrix::Shared(_) => vec![],
        };
        let used: HashSet<u32> = products
            .flat_map(|p| p.d.iter().copied().chain(left(p)))
            .collect();
        for (i, uses) in self.code.ops.iter_mut().zip(&self.code.uses) {
            let shares = uses.iter().flatten().any(|slot| used.contains(slot));
            // A `wgmma` checks its own registers, and it may follow another one without a wait.
            if shares && !matches!(i.op, Op::Wgmma(_)) {
                i.preparation = i.preparation.with_product();
            }
        }
    }
}
