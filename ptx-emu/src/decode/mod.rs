//! From syntax tree to decoded instructions: resolves names and checks operand types.
//!
//! Every instruction of the text becomes exactly one decoded instruction, so a label is the number of instructions
//! before it. Every operand is a register: literals, special registers and addresses of variables are put into
//! registers before the kernel starts.
//!
//! [`declare`] reads the declarations of a kernel, [`names`] resolves names, and [`operands`] gives the decoding
//! functions of [`isa`] access to suffixes and operands.

mod declare;
mod names;
mod operands;

use std::collections::{HashMap, HashSet};

use declare::{Declared, NameScope};
pub(crate) use declare::{SHARED_BASE, layout};
pub(crate) use names::bank;
pub(crate) use operands::Decode;

use crate::async_code::{LeftMatrix, Wgmma};
use crate::code::{Code, Constant, Instruction, Op, ResolvedGuard, Special};
use crate::exec::regs::Bank;
use crate::fault::{RustPlace, SourcePlace};
use crate::features;
use crate::flow;
use crate::isa::{self, Lookup};
use crate::module::Param;
use crate::parse::ast::{self, OperandKind, Statement, Variable};
use crate::parse::types::Type;
use crate::parse::{At, Error, Parsed, Source, error, unsupported};

/// What the kernels of a module share.
pub(crate) struct Common<'a> {
    pub(crate) source: &'a Source<'a>,
    pub(crate) files: &'a [(u32, &'a str)],
    pub(crate) target: features::Target,
    pub(crate) variables: &'a [Variable<'a>],
    /// Whether the function that sets conditions is declared.
    pub(crate) sets_conditions: bool,
    /// Names that items with errors were about to declare.
    pub(crate) broken: &'a [&'a str],
}

/// A kernel while it is decoded.
pub(crate) struct Unit<'a> {
    common: &'a Common<'a>,
    params: Vec<(Param, bool)>,
    scopes: Vec<NameScope<'a>>,
    scope: usize,
    code: Code,
    slots: HashMap<(u32, u32), u32>,
    constants: HashMap<(Bank, Constant), u32>,
    specials: HashMap<Special, u32>,
    carry: Option<u32>,
    declarations: u32,
    dynamic_shared: u32,
    errors: Vec<Error>,
    /// Names that declarations with errors were about to declare.
    broken: HashSet<&'a str>,
    /// Names of the module that cannot be used, as an error says already.
    refused: HashSet<String>,
    /// Whether instructions are missing because of errors that stand elsewhere.
    incomplete: bool,
    /// Whether it has products of warpgroups.
    multiplies: bool,
}

/// Instructions whose first operand is read.
const READERS: &[&str] =
    &["st", "red", "stmatrix", "bar", "barrier", "cp", "mbarrier", "fence", "prefetch", "wgmma"];

/// What one kernel becomes.
pub(crate) struct Decoded {
    pub(crate) code: Code,
    /// What is wrong with it: if anything is, it cannot run.
    pub(crate) errors: Vec<Error>,
    pub(crate) params: Vec<Param>,
    pub(crate) static_shared: u32,
    pub(crate) registers: u32,
}

/// Decodes one kernel.
pub(crate) fn decode<'a>(common: &'a Common<'a>, entry: &'a ast::Entry<'a>) -> Decoded {
    let statements = &entry.body.statements;
    let mut unit = Unit {
        common,
        params: Vec::new(),
        scopes: vec![NameScope::default()],
        scope: 0,
        code: Code::default(),
        slots: HashMap::new(),
        constants: HashMap::new(),
        specials: HashMap::new(),
        carry: None,
        declarations: 0,
        dynamic_shared: SHARED_BASE,
        errors: Vec::new(),
        refused: HashSet::new(),
        incomplete: false,
        broken: entry.body.broken.iter().map(|name| family(name)).collect(),
        multiplies: statements.iter().any(|s| matches!(s, Statement::Inst(i) if i.opcode == "wgmma")),
    };
    unit.parameters(&entry.params);
    let static_shared = unit.declare(entry);
    unit.instructions(entry);
    unit.errors.extend(entry.errors.iter().cloned());
    if unit.errors.is_empty() && !unit.incomplete {
        unit.watch();
        flow::join(&mut unit.code.ops);
        unit.code.names.sort();
    }
    let registers = unit.code.slots[0] + 2 * unit.code.slots[1];
    let params = unit.params.into_iter().map(|(p, _)| p).collect();
    Decoded { code: unit.code, errors: unit.errors, params, static_shared, registers }
}

/// A name without the number of `%r<N>`.
fn family(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

impl<'a> Unit<'a> {
    fn fail(&mut self, at: At, what: impl Into<String>) {
        self.errors.push(Error { at, what: what.into() });
    }

    /// Keeps an error, unless it is about a name whose declaration has an error itself: then it says so once.
    fn record(&mut self, e: Error) {
        let of_module = |name: &&str| self.common.broken.contains(name);
        let mut names = e.what.split('`').skip(1).step_by(2);
        if names.clone().any(|name| self.broken.contains(family(name))) {
            self.incomplete = true;
            return;
        }
        let Some(name) = names.find(of_module) else { return self.errors.push(e) };
        if self.refused.insert(name.to_string()) {
            self.errors.extend(unsupported::<()>(e.at, format!("the declaration of `{name}`")).err());
        }
    }

    fn instructions(&mut self, entry: &'a ast::Entry<'a>) {
        let mut next_scope = 0;
        let mut rust = None;
        for statement in &entry.body.statements {
            match statement {
                Statement::Open => {
                    next_scope += 1;
                    self.scope = next_scope;
                }
                Statement::Close => self.scope = self.scopes[self.scope].parent.unwrap_or(0),
                Statement::Targets(name, labels) => self.targets(name, labels),
                Statement::Loc(loc) => rust = self.rust_place(loc),
                Statement::Inst(inst) => {
                    self.place(inst, rust.clone());
                    if let Err(e) = self.instruction(inst) {
                        self.record(e);
                    }
                }
                _ => {}
            }
            if self.errors.len() >= crate::parse::parser::MOST_ERRORS {
                return;
            }
        }
        if !matches!(
            self.code.ops.last(),
            Some(Instruction { guard: None, op: Op::Exit | Op::Trap | Op::Branch { .. }, .. })
        ) {
            self.code.ops.push(Instruction { guard: None, op: Op::Exit, watched: false });
            let (line, column) = self.common.source.place(entry.at);
            self.code.places.push(SourcePlace { line, column, text: "end of the kernel".into(), rust: None });
        }
    }

    fn targets(&mut self, name: &'a str, labels: &[(&'a str, At)]) {
        let found: Parsed<Vec<u32>> = labels.iter().map(|(label, at)| self.label(label, *at)).collect();
        match found {
            Ok(targets) => self.name(self.scope, name, labels[0].1, Declared::Targets(targets)),
            Err(e) => self.record(e),
        }
    }

    fn rust_place(&self, loc: &ast::Loc) -> Option<RustPlace> {
        let (_, file) = self.common.files.iter().find(|(index, _)| *index == loc.file)?;
        Some(RustPlace { file: (*file).into(), line: loc.line, column: loc.column })
    }

    fn place(&mut self, inst: &ast::Inst<'a>, rust: Option<RustPlace>) {
        let (line, column) = self.common.source.place(inst.at);
        let text = self.common.source.text.get(inst.at as usize..inst.end as usize).unwrap_or("");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(200).collect();
        self.code.places.push(SourcePlace { line, column, text, rust });
    }

    fn instruction(&mut self, inst: &'a ast::Inst<'a>) -> Parsed<()> {
        let mods: Vec<&str> = inst.mods.iter().map(|(m, _)| *m).collect();
        if let Some(needs) = features::missing(inst.opcode, &mods, &self.common.target) {
            return error(inst.at, needs);
        }
        let guard = match inst.guard {
            None => None,
            Some(g) => {
                Some(ResolvedGuard { pred: self.typed(g.name, g.at, Type::Pred)?, negated: g.negated })
            }
        };
        let name = format!("{}{}", inst.opcode, mods.concat());
        let mut d = Decode::new(inst, self);
        let op = match isa::find(inst.opcode, &name) {
            Lookup::Row(row) => d.row(row),
            Lookup::Decoder(f) => f(&mut d),
            Lookup::Opcode(known) => {
                error(inst.at, format!("`{name}` is not an instruction; there are {}", known.join(", ")))
            }
            Lookup::Unsupported => unsupported(inst.at, name),
            Lookup::Unknown => error(inst.at, format!("`{}` is not an instruction", inst.opcode)),
        }?;
        self.code.ops.push(Instruction { guard, op, watched: false });
        if self.multiplies {
            let uses = self.uses(inst);
            self.code.uses.push(uses);
        }
        Ok(())
    }

    /// The 32-bit registers that an instruction reads, and those that it writes.
    fn uses(&mut self, inst: &'a ast::Inst<'a>) -> [Box<[u32]>; 2] {
        let mut uses = [vec![], vec![]];
        for (i, operand) in inst.operands.iter().enumerate() {
            let written = usize::from(i == 0 && !READERS.contains(&inst.opcode));
            let operands = match &operand.kind {
                OperandKind::Vector(elements) => elements,
                _ => std::slice::from_ref(operand),
            };
            for o in operands {
                if let OperandKind::Name(name) | OperandKind::Address(Some(name), _) = o.kind
                    && let Some(register) = self.find_register(name, o.at).filter(|r| bank(r.ty) == Bank::W32)
                {
                    uses[written].push(register.slot);
                }
            }
        }
        uses.map(Vec::into_boxed_slice)
    }

    /// Marks the instructions that use registers of products of warpgroups.
    fn watch(&mut self) {
        let products = self.code.ops.iter().filter_map(|i| match &i.op {
            Op::Wgmma(product) => Some(product),
            _ => None,
        });
        let left = |product: &Wgmma| match &product.a {
            LeftMatrix::Registers(slots) => slots.clone(),
            LeftMatrix::Shared(_) => vec![],
        };
        let used: HashSet<u32> = products.flat_map(|p| p.d.iter().copied().chain(left(p))).collect();
        for (i, uses) in self.code.ops.iter_mut().zip(&self.code.uses) {
            let watched = uses.iter().flatten().any(|slot| used.contains(slot));
            i.watched = watched && !matches!(i.op, Op::Wgmma(_));
        }
    }
}
