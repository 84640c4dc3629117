//! From syntax tree to operations: names are resolved and operand types checked.
//!
//! Every instruction of the text becomes exactly one operation, so a label is the number of instructions
//! before it. Literals, special registers and addresses of variables become registers that hold their value
//! before the kernel starts: an operand is always a register.

use std::collections::HashMap;

use crate::code::{Address, Code, Constant, Guard, Op, Operand, PredSource, Region, Special, Step};
use crate::exec::regs::{Alu, Bank, Slots};
use crate::fault::{Place, RustPlace};
use crate::features;
use crate::flow;
use crate::isa::{self, Found};
use crate::module::Param;
use crate::parse::ast::{self, Number, OperandKind, Space, Statement, Variable};
use crate::parse::types::{Kind, Type};
use crate::parse::{At, Error, Parsed, Source, error};

/// First address of the shared space: not 0, so that a zero pointer is no variable.
pub(crate) const SHARED_BASE: u32 = 1024;
/// Unmapped bytes between shared variables.
const SHARED_GAP: u32 = 64;
/// Bytes of static shared memory a kernel may declare.
const MOST_STATIC_SHARED: u64 = 48 << 10;
/// Bytes of local memory a thread may have.
const MOST_LOCAL: u64 = 512 << 10;
/// Registers a kernel may use.
const MOST_REGISTERS: u32 = 1_000_000;

/// What the kernels of a module share.
pub(crate) struct Common<'a> {
    pub(crate) source: &'a Source<'a>,
    pub(crate) files: &'a [(u32, &'a str)],
    pub(crate) target: features::Target,
    pub(crate) variables: &'a [Variable<'a>],
}

/// A declared name.
#[derive(Clone, Debug)]
enum Named {
    Register { ty: Type, declaration: u32, at: At },
    Shared { address: u32, bytes: Option<u32> },
    Local { address: u32 },
    Label(u32),
    Targets(Vec<u32>),
}

#[derive(Debug, Default)]
struct Scope<'a> {
    parent: Option<usize>,
    names: HashMap<&'a str, Named>,
    /// `%r<N>`: type, declaration, count and place.
    families: HashMap<&'a str, (Type, u32, u32, At)>,
}

/// A register operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Register {
    pub(crate) ty: Type,
    pub(crate) slot: u32,
}

/// A kernel under way.
pub(crate) struct Unit<'a> {
    common: &'a Common<'a>,
    params: Vec<(Param, bool)>,
    scopes: Vec<Scope<'a>>,
    scope: usize,
    code: Code,
    slots: HashMap<(u32, u32), u32>,
    constants: HashMap<(Bank, Constant), u32>,
    specials: HashMap<Special, u32>,
    carry: Option<u32>,
    declarations: u32,
    dynamic_shared: u32,
    errors: Vec<Error>,
}

/// What one kernel becomes.
pub(crate) struct Decoded {
    pub(crate) code: Code,
    pub(crate) params: Vec<Param>,
    pub(crate) static_shared: u32,
    pub(crate) registers: u32,
}

/// Decodes one kernel.
pub(crate) fn decode<'a>(common: &'a Common<'a>, entry: &'a ast::Entry<'a>) -> Result<Decoded, Vec<Error>> {
    let mut unit = Unit {
        common,
        params: Vec::new(),
        scopes: vec![Scope::default()],
        scope: 0,
        code: Code::default(),
        slots: HashMap::new(),
        constants: HashMap::new(),
        specials: HashMap::new(),
        carry: None,
        declarations: 0,
        dynamic_shared: SHARED_BASE,
        errors: Vec::new(),
    };
    unit.parameters(&entry.params);
    let static_shared = unit.declare(entry);
    unit.instructions(entry);
    if unit.errors.is_empty() {
        flow::join(&mut unit.code.ops);
        let registers = unit.code.slots[0] + 2 * unit.code.slots[1];
        unit.code.names.sort();
        let params = unit.params.into_iter().map(|(p, _)| p).collect();
        return Ok(Decoded { code: unit.code, params, static_shared, registers });
    }
    Err(unit.errors)
}

/// Size and alignment of a variable in bytes; `None` when too large to count.
pub(crate) fn layout(v: &Variable<'_>) -> Option<(u64, u32)> {
    let element = v.ty.bytes() * v.vector;
    let bytes = u64::from(element).checked_mul(v.count.unwrap_or(0))?;
    Some((bytes, element.max(v.align)))
}

impl<'a> Unit<'a> {
    fn fail(&mut self, at: At, what: impl Into<String>) {
        self.errors.push(Error { at, what: what.into() });
    }

    fn parameters(&mut self, params: &[Variable<'a>]) {
        let mut offset = 0u64;
        for v in params {
            let Some((bytes, align)) = layout(v).filter(|(bytes, _)| *bytes > 0) else {
                self.fail(v.at, format!("parameter `{}` has no size", v.name));
                continue;
            };
            if self.params.iter().any(|(p, _)| p.name == v.name) {
                self.fail(v.at, format!("parameter `{}` is declared twice", v.name));
            }
            offset = offset.next_multiple_of(align.into());
            if offset + bytes > 32764 {
                return self.fail(v.at, "the parameters take more than 32764 bytes");
            }
            let param = Param { name: v.name.into(), offset: offset as u32, size: bytes as u32, align };
            self.params.push((param, v.array || v.vector > 1));
            offset += bytes;
        }
    }

    /// Declares all names and lays out shared and local memory; returns the static shared bytes.
    fn declare(&mut self, entry: &ast::Entry<'a>) -> u32 {
        let mentioned = mentioned(entry);
        let shared = |v: &&Variable<'a>| v.space == Space::Shared && mentioned.contains(v.name);
        let (mut cursor, mut total) = (SHARED_BASE, 0);
        let mut dynamic = Vec::new();
        for v in self.common.variables.iter().filter(shared) {
            self.declare_shared(v, &mut cursor, &mut total, &mut dynamic);
        }
        let (mut scope, mut index) = (0, 0);
        for statement in &entry.body {
            match statement {
                Statement::Open => {
                    self.scopes.push(Scope { parent: Some(scope), ..Scope::default() });
                    scope = self.scopes.len() - 1;
                }
                Statement::Close => scope = self.scopes[scope].parent.unwrap_or(0),
                Statement::Inst(_) => index += 1,
                Statement::Label(name, at) => self.name(scope, name, *at, Named::Label(index)),
                Statement::Registers(ty, names) => names.iter().for_each(|n| self.register(scope, *ty, n)),
                Statement::Variable(v) => {
                    self.scope = scope;
                    self.variable(v, &mut cursor, &mut total, &mut dynamic);
                }
                Statement::Targets(..) | Statement::Loc(_) => {}
            }
        }
        self.finish_shared(cursor, &dynamic);
        if total > MOST_STATIC_SHARED {
            self.fail(
                entry.at,
                format!("{total} bytes of static shared memory, at most {MOST_STATIC_SHARED}"),
            );
        }
        self.scope = 0;
        total as u32
    }

    fn name(&mut self, scope: usize, name: &'a str, at: At, named: Named) {
        let taken = self.scopes[scope].names.insert(name, named).is_some();
        if taken {
            self.fail(at, format!("`{name}` is declared twice in this scope"));
        }
    }

    fn register(&mut self, scope: usize, ty: Type, n: &ast::RegisterName<'a>) {
        let declaration = self.declarations;
        self.declarations += 1;
        if special(n.name).is_some() || PREDEFINED.contains(&n.name) {
            return self.fail(n.at, format!("`{}` is a special register and cannot be declared", n.name));
        }
        if ty == Type::B128 {
            return self.fail(n.at, "unsupported in ptx-emu: .b128 registers");
        }
        match n.count {
            None => self.name(scope, n.name, n.at, Named::Register { ty, declaration, at: n.at }),
            Some(count) => {
                let families = &mut self.scopes[scope].families;
                if families.insert(n.name, (ty, declaration, count, n.at)).is_some() {
                    self.fail(n.at, format!("`{}<..>` is declared twice in this scope", n.name));
                }
            }
        }
    }

    fn variable(
        &mut self,
        v: &Variable<'a>,
        cursor: &mut u32,
        total: &mut u64,
        dynamic: &mut Vec<(&'a str, u32)>,
    ) {
        match v.space {
            Space::Shared => self.declare_shared(v, cursor, total, dynamic),
            Space::Local => self.declare_local(v),
            _ => self.fail(v.at, "only .reg, .shared and .local variables can be declared in a kernel"),
        }
    }

    fn declare_shared(
        &mut self,
        v: &Variable<'a>,
        cursor: &mut u32,
        total: &mut u64,
        dynamic: &mut Vec<(&'a str, u32)>,
    ) {
        if !v.init.is_empty() {
            self.fail(v.at, "shared variables cannot be initialised");
        }
        let Some((bytes, align)) = layout(v).filter(|(bytes, _)| *bytes <= 1 << 24) else {
            return self.fail(v.at, format!("shared variable `{}` is too large", v.name));
        };
        if v.count.is_none() {
            if !v.external {
                self.fail(v.at, format!("`{}` has no size: only .extern .shared may lack one", v.name));
            }
            dynamic.push((v.name, align.max(16)));
            return self.name(self.scope, v.name, v.at, Named::Shared { address: 0, bytes: None });
        }
        let address = cursor.next_multiple_of(align.max(1));
        *cursor = address + bytes as u32 + SHARED_GAP;
        *total = total.next_multiple_of(align.max(1).into()) + bytes;
        if *total > 1 << 24 {
            *cursor = SHARED_BASE;
        }
        self.code.shared.push(Region { name: v.name.into(), address, bytes: bytes as u32, dynamic: false });
        self.name(self.scope, v.name, v.at, Named::Shared { address, bytes: Some(bytes as u32) });
    }

    /// Dynamic shared memory follows the static variables; all its names share one address.
    fn finish_shared(&mut self, cursor: u32, dynamic: &[(&'a str, u32)]) {
        let align = dynamic.iter().map(|(_, align)| *align).max().unwrap_or(16);
        self.dynamic_shared = cursor.next_multiple_of(align);
        let name = dynamic.first().map_or("dynamic shared memory", |(name, _)| name);
        let region = Region { name: name.into(), address: self.dynamic_shared, bytes: 0, dynamic: true };
        self.code.shared.push(region);
    }

    fn declare_local(&mut self, v: &Variable<'a>) {
        let Some((bytes, align)) = layout(v).filter(|(bytes, _)| *bytes > 0 && *bytes <= MOST_LOCAL) else {
            return self.fail(v.at, format!("local variable `{}` must have 1 to {MOST_LOCAL} bytes", v.name));
        };
        let address = self.code.local.next_multiple_of(align).max(align);
        self.code.local = address + bytes as u32;
        if u64::from(self.code.local) > MOST_LOCAL {
            self.code.local = 0;
            self.fail(v.at, format!("more than {MOST_LOCAL} bytes of local memory"));
        }
        self.name(self.scope, v.name, v.at, Named::Local { address });
    }

    fn instructions(&mut self, entry: &'a ast::Entry<'a>) {
        let mut next_scope = 0;
        let mut rust = None;
        for statement in &entry.body {
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
                        self.errors.push(e);
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
            Some(Step { guard: None, op: Op::Exit | Op::Trap | Op::Branch { .. } })
        ) {
            self.code.ops.push(Step { guard: None, op: Op::Exit });
            let (line, column) = self.common.source.place(entry.at);
            self.code.places.push(Place { line, column, text: "end of the kernel".into(), rust: None });
        }
    }

    fn targets(&mut self, name: &'a str, labels: &[(&'a str, At)]) {
        let found: Parsed<Vec<u32>> = labels.iter().map(|(label, at)| self.label(label, *at)).collect();
        match found {
            Ok(targets) => self.name(self.scope, name, labels[0].1, Named::Targets(targets)),
            Err(e) => self.errors.push(e),
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
        self.code.places.push(Place { line, column, text, rust });
    }

    fn instruction(&mut self, inst: &'a ast::Inst<'a>) -> Parsed<()> {
        let mods: Vec<&str> = inst.mods.iter().map(|(m, _)| *m).collect();
        if let Some(needs) = features::missing(inst.opcode, &mods, &self.common.target) {
            return error(inst.at, needs);
        }
        let guard = match inst.guard {
            None => None,
            Some(g) => Some(Guard { pred: self.typed(g.name, g.at, Type::Pred)?, negated: g.negated }),
        };
        let name = format!("{}{}", inst.opcode, mods.concat());
        let mut d = Decode { inst, next: 0, unit: self };
        let op = match isa::find(inst.opcode, &name) {
            Found::Row(row) => d.row(row),
            Found::Decoder(f) => f(&mut d),
            Found::Opcode(known) => {
                error(inst.at, format!("`{name}` is not an instruction; there are {}", known.join(", ")))
            }
            Found::Unsupported => error(inst.at, format!("unsupported in ptx-emu: {name}")),
            Found::Unknown => error(inst.at, format!("`{}` is not an instruction", inst.opcode)),
        }?;
        self.code.ops.push(Step { guard, op });
        Ok(())
    }

    fn lookup(&self, name: &str) -> Option<&Named> {
        let mut scope = Some(self.scope);
        while let Some(s) = scope {
            if let Some(named) = self.scopes[s].names.get(name) {
                return Some(named);
            }
            scope = self.scopes[s].parent;
        }
        None
    }

    /// The register called `name`: declared by itself, or one of `%r<N>`.
    fn find_register(&mut self, name: &'a str, at: At) -> Option<Register> {
        if let Some(&Named::Register { ty, declaration, at: declared }) = self.lookup(name) {
            return (declared < at).then(|| self.slot(ty, declaration, 0, name));
        }
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (prefix, number) = name.split_at(name.len() - digits);
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

    fn slot(&mut self, ty: Type, declaration: u32, number: u32, name: &str) -> Register {
        if let Some(&slot) = self.slots.get(&(declaration, number)) {
            return Register { ty, slot };
        }
        let slot = self.fresh(bank(ty));
        self.slots.insert((declaration, number), slot);
        self.code.names.push((bank(ty), slot, name.to_string()));
        Register { ty, slot }
    }

    fn fresh(&mut self, bank: Bank) -> u32 {
        let count = &mut self.code.slots[bank as usize];
        let slot = *count;
        if slot < MOST_REGISTERS {
            *count += 1;
        }
        slot.min(MOST_REGISTERS - 1)
    }

    fn typed(&mut self, name: &'a str, at: At, ty: Type) -> Parsed<u32> {
        let register = self.named_register(name, at)?;
        if ty.accepts(register.ty) {
            return Ok(register.slot);
        }
        error(at, format!("`{name}` is a {} register where {ty} was expected", register.ty))
    }

    fn named_register(&mut self, name: &'a str, at: At) -> Parsed<Register> {
        if let Some(register) = self.find_register(name, at) {
            return Ok(register);
        }
        let what = match self.lookup(name) {
            Some(Named::Shared { .. } | Named::Local { .. }) => "is a variable: take its address with mov",
            Some(Named::Label(_) | Named::Targets(_)) => "is a label",
            Some(Named::Register { .. }) => "is declared only after this instruction",
            None if special(name).is_some() => "is a special register: read it with mov or cvt",
            None if self.common.variables.iter().any(|v| v.name == name) => {
                "is a variable: take its address with mov"
            }
            None if self.params.iter().any(|(p, _)| p.name == name) => {
                "is a parameter: read it with ld.param"
            }
            None => "is not declared as a register",
        };
        error(at, format!("`{name}` {what}"))
    }

    fn label(&self, name: &str, at: At) -> Parsed<u32> {
        match self.lookup(name) {
            Some(Named::Label(index)) => Ok(*index),
            _ => error(at, format!("there is no label `{name}` in this scope")),
        }
    }

    /// The register that holds a constant.
    pub(crate) fn constant(&mut self, bank: Bank, value: Constant) -> u32 {
        if let Some(&slot) = self.constants.get(&(bank, value)) {
            return slot;
        }
        let slot = self.fresh(bank);
        self.constants.insert((bank, value), slot);
        self.code.constants.push((bank, slot, value));
        slot
    }

    fn special(&mut self, special: Special) -> u32 {
        if let Some(&slot) = self.specials.get(&special) {
            return slot;
        }
        let slot = self.fresh(Bank::W32);
        self.specials.insert(special, slot);
        self.code.specials.push((slot, special));
        slot
    }
}

/// All names that the operands of a kernel mention.
fn mentioned<'a>(entry: &ast::Entry<'a>) -> std::collections::HashSet<&'a str> {
    fn visit<'a>(operand: &ast::Operand<'a>, names: &mut std::collections::HashSet<&'a str>) {
        match &operand.kind {
            OperandKind::Name(n) | OperandKind::Sum(n, _) | OperandKind::Address(Some(n), _) => {
                _ = names.insert(n)
            }
            OperandKind::Vector(v) => v.iter().for_each(|o| visit(o, names)),
            _ => {}
        }
    }
    let mut names = std::collections::HashSet::new();
    for statement in &entry.body {
        if let Statement::Inst(inst) = statement {
            inst.operands.iter().for_each(|o| visit(o, &mut names));
        }
    }
    names
}

/// The bank that holds registers of a type.
pub(crate) fn bank(ty: Type) -> Bank {
    match ty.bits() {
        1 => Bank::Pred,
        64.. => Bank::W64,
        _ => Bank::W32,
    }
}

/// Special registers that are vectors or change while a warp lives.
const PREDEFINED: &[&str] =
    &["%tid", "%ntid", "%ctaid", "%nctaid", "%clock", "%clock_hi", "%clock64", "%globaltimer", "%gridid"];

/// The special register a name stands for, when it has one value for the life of a warp.
fn special(name: &str) -> Option<Special> {
    use crate::code::Compare::*;
    let dimension = |name: &str| match name {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    if let Some((register, part)) = name.split_once('.') {
        let d = dimension(part)?;
        return Some(match register {
            "%tid" => Special::Tid(d),
            "%ntid" => Special::Ntid(d),
            "%ctaid" => Special::Ctaid(d),
            "%nctaid" => Special::Nctaid(d),
            _ => return None,
        });
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

/// The instruction at hand, as its decoding function sees it.
pub(crate) struct Decode<'d, 'a> {
    pub(crate) inst: &'a ast::Inst<'a>,
    next: usize,
    unit: &'d mut Unit<'a>,
}

impl<'a> Decode<'_, 'a> {
    /// An error at the instruction.
    pub(crate) fn error<T>(&self, what: impl Into<String>) -> Parsed<T> {
        error(self.inst.at, what)
    }

    /// The full name of the instruction.
    pub(crate) fn name(&self) -> String {
        self.inst.mods.iter().fold(self.inst.opcode.to_string(), |name, (m, _)| name + m)
    }

    /// The next suffix, not consumed.
    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.inst.mods.get(self.next).map(|(m, _)| *m)
    }

    /// Consumes the next suffix when it is `suffix`.
    pub(crate) fn eat(&mut self, suffix: &str) -> bool {
        let found = self.peek() == Some(suffix);
        self.next += usize::from(found);
        found
    }

    /// Consumes the next suffix when it is one of `choices`.
    pub(crate) fn choose<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        let next = self.peek()?;
        let (_, value) = choices.iter().find(|(name, _)| *name == next)?;
        self.next += 1;
        Some(*value)
    }

    /// Consumes the next suffix, which must be one of `choices`.
    pub(crate) fn require<T: Copy>(&mut self, choices: &[(&str, T)]) -> Parsed<T> {
        match self.choose(choices) {
            Some(value) => Ok(value),
            None => self.expected(&choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")),
        }
    }

    fn expected<T>(&self, wanted: &str) -> Parsed<T> {
        match self.inst.mods.get(self.next) {
            Some((found, at)) => {
                error(*at, format!("`{found}` where {wanted} was expected in `{}`", self.name()))
            }
            None => self.error(format!("`{}` lacks {wanted}", self.name())),
        }
    }

    /// Consumes a type suffix, which must be one of `allowed`.
    pub(crate) fn ty(&mut self, allowed: &[Type]) -> Parsed<Type> {
        match self.peek().and_then(Type::parse).filter(|t| allowed.contains(t)) {
            Some(ty) => {
                self.next += 1;
                Ok(ty)
            }
            None => self.expected(&allowed.iter().map(|t| t.name()).collect::<Vec<_>>().join(", ")),
        }
    }

    /// Consumes all suffixes, which were read as a whole.
    pub(crate) fn skip(&mut self) {
        self.next = self.inst.mods.len();
    }

    /// Checks that all suffixes were consumed.
    pub(crate) fn end(&self) -> Parsed<()> {
        if self.peek().is_none() { Ok(()) } else { self.expected("no further suffix") }
    }

    /// Checks that there are no further suffixes, and `least` to `most` operands.
    pub(crate) fn operands(&self, least: usize, most: usize) -> Parsed<usize> {
        self.end()?;
        let n = self.inst.operands.len();
        if (least..=most).contains(&n) {
            return Ok(n);
        }
        let wanted = if least == most { least.to_string() } else { format!("{least} to {most}") };
        self.error(format!("`{}` takes {wanted} operands, not {n}", self.name()))
    }

    /// An operand by number.
    pub(crate) fn operand(&self, i: usize) -> &'a ast::Operand<'a> {
        &self.inst.operands[i]
    }

    /// A register operand of exactly the right type, to be written.
    pub(crate) fn dst(&mut self, i: usize, ty: Type) -> Parsed<u32> {
        self.element_dst(self.operand(i), ty)
    }

    /// As [`Decode::dst`], for an element of a vector; `_` gives a register nobody reads.
    pub(crate) fn element_dst(&mut self, o: &'a ast::Operand<'a>, ty: Type) -> Parsed<u32> {
        match o.kind {
            OperandKind::Name(name) => self.unit.typed(name, o.at, ty),
            OperandKind::Sink => Ok(self.unit.fresh(bank(ty))),
            _ => error(o.at, format!("a {ty} register was expected as destination")),
        }
    }

    /// A register or literal operand of the right type, to be read.
    pub(crate) fn src(&mut self, i: usize, ty: Type) -> Parsed<u32> {
        self.element_src(self.operand(i), ty)
    }

    /// As [`Decode::src`], for an element of a vector.
    pub(crate) fn element_src(&mut self, o: &'a ast::Operand<'a>, ty: Type) -> Parsed<u32> {
        match o.kind {
            OperandKind::Name("WARP_SZ") => Ok(self.unit.constant(Bank::W32, Constant::Bits(32))),
            OperandKind::Name(name) => self.unit.typed(name, o.at, ty),
            OperandKind::Number(n) => {
                let value = immediate(n, ty, o.at)?;
                Ok(self.unit.constant(bank(ty), Constant::Bits(value)))
            }
            _ => error(o.at, format!("a {ty} register or literal was expected")),
        }
    }

    /// A register at least as wide as `ty`, and its own type.
    pub(crate) fn wider(&mut self, o: &'a ast::Operand<'a>, ty: Type) -> Parsed<Register> {
        let OperandKind::Name(name) = o.kind else {
            return error(o.at, format!("a {ty} register was expected"));
        };
        let register = self.unit.named_register(name, o.at)?;
        if ty.accepts_wider(register.ty) {
            return Ok(register);
        }
        error(o.at, format!("`{name}` is a {} register where {ty} was expected", register.ty))
    }

    /// A register nobody reads.
    pub(crate) fn scratch(&mut self, bank: Bank) -> u32 {
        self.unit.fresh(bank)
    }

    /// The register that holds a value of type `V`.
    pub(crate) fn literal(&mut self, bank: Bank, bits: u64) -> u32 {
        self.unit.constant(bank, Constant::Bits(bits))
    }

    /// An integer literal operand.
    pub(crate) fn immediate(&self, i: usize, most: u64) -> Parsed<u64> {
        let o = self.operand(i);
        match o.kind {
            OperandKind::Number(Number::Int(n)) if (0..=i128::from(most)).contains(&n) => Ok(n as u64),
            _ => error(o.at, format!("an integer literal from 0 to {most} was expected")),
        }
    }

    /// A predicate to be written; `_` gives none.
    pub(crate) fn pred_dst(&mut self, name: &'a str, at: At) -> Parsed<Option<u32>> {
        if name == "_" { Ok(None) } else { self.unit.typed(name, at, Type::Pred).map(Some) }
    }

    /// A predicate to be read: `p`, `!p`, or a literal 0 or 1.
    pub(crate) fn pred(&mut self, i: usize) -> Parsed<PredSource> {
        let o = self.operand(i);
        match o.kind {
            OperandKind::Name(name) => {
                Ok(PredSource::Register { slot: self.unit.typed(name, o.at, Type::Pred)?, negated: false })
            }
            OperandKind::Not(name) => {
                Ok(PredSource::Register { slot: self.unit.typed(name, o.at, Type::Pred)?, negated: true })
            }
            OperandKind::Number(Number::Int(n)) => Ok(PredSource::Constant(n != 0)),
            _ => error(o.at, "a predicate was expected"),
        }
    }

    /// A destination `d`, `d|p` or `_|p`.
    pub(crate) fn dst_pair(&mut self, i: usize, ty: Type) -> Parsed<(Option<u32>, Option<u32>)> {
        let o = self.operand(i);
        match o.kind {
            OperandKind::Pair(d, p) => {
                let d = if d == "_" { None } else { Some(self.unit.typed(d, o.at, ty)?) };
                Ok((d, self.pred_dst(p, o.at)?))
            }
            _ => Ok((Some(self.dst(i, ty)?), None)),
        }
    }

    /// The elements of a vector operand, or the operand alone.
    pub(crate) fn elements(&self, i: usize) -> &'a [ast::Operand<'a>] {
        let o = self.operand(i);
        match &o.kind {
            OperandKind::Vector(elements) => elements,
            _ => std::slice::from_ref(o),
        }
    }

    /// The label an operand names.
    pub(crate) fn label(&self, i: usize) -> Parsed<u32> {
        let o = self.operand(i);
        match o.kind {
            OperandKind::Name(name) => self.unit.label(name, o.at),
            _ => error(o.at, "a label was expected"),
        }
    }

    /// The list of labels an operand names.
    pub(crate) fn label_list(&self, i: usize) -> Parsed<Vec<u32>> {
        let o = self.operand(i);
        match o.kind {
            OperandKind::Name(name) => match self.unit.lookup(name) {
                Some(Named::Targets(targets)) => Ok(targets.clone()),
                _ => error(o.at, format!("`{name}` is not a .branchtargets list declared before")),
            },
            _ => error(o.at, "a list of labels was expected"),
        }
    }

    /// The carry flag of extended-precision arithmetic.
    pub(crate) fn carry(&mut self) -> u32 {
        if self.unit.carry.is_none() {
            let slot = self.unit.fresh(Bank::Pred);
            self.unit.code.names.push((Bank::Pred, slot, "CC.CF".into()));
            self.unit.carry = Some(slot);
        }
        self.unit.carry.unwrap_or(0)
    }

    /// A number for a memory instruction.
    pub(crate) fn site(&mut self) -> u32 {
        self.unit.code.sites += 1;
        self.unit.code.sites - 1
    }

    /// The register that holds a special register's value.
    pub(crate) fn special(&mut self, name: &str) -> Option<u32> {
        special(name).map(|s| self.unit.special(s))
    }

    /// The register that holds the address of a variable plus `offset`, in the variable's own space.
    pub(crate) fn variable(&mut self, name: &str, offset: i64, wide: bool) -> Option<u32> {
        let bank = if wide { Bank::W64 } else { Bank::W32 };
        let value = match self.unit.lookup(name) {
            Some(Named::Shared { bytes: None, .. }) => {
                Constant::Bits((i64::from(self.unit.dynamic_shared) + offset) as u64)
            }
            Some(Named::Shared { address, .. } | Named::Local { address }) => {
                Constant::Bits((i64::from(*address) + offset) as u64)
            }
            _ => {
                let index = self
                    .unit
                    .common
                    .variables
                    .iter()
                    .position(|v| v.name == name && v.space != Space::Shared)?;
                Constant::Variable(index as u32, offset)
            }
        };
        Some(self.unit.constant(bank, value))
    }

    /// The parameter an address names: offset and size in the parameter block, and whether it is an array.
    pub(crate) fn param(&self, name: &str) -> Option<(&Param, bool)> {
        self.unit.params.iter().find(|(p, _)| p.name == name).map(|(p, array)| (p, *array))
    }

    /// The size of a static shared variable.
    pub(crate) fn shared_bytes(&self, name: &str) -> Option<u32> {
        match self.unit.lookup(name) {
            Some(Named::Shared { bytes, .. }) => *bytes,
            _ => None,
        }
    }

    /// An address operand: a register or variable, and an offset. `short` spaces take 32-bit registers too.
    pub(crate) fn address(&mut self, i: usize, short: bool) -> Parsed<Address> {
        let o = self.operand(i);
        let OperandKind::Address(base, offset) = o.kind else {
            return error(o.at, "an address in brackets was expected");
        };
        let Some(name) = base else {
            return Ok(Address { slot: self.literal(Bank::W64, 0), wide: true, offset });
        };
        if let Some(register) = self.unit.find_register(name, o.at) {
            let int = !matches!(register.ty.kind(), Kind::Float | Kind::Predicate | Kind::Alternate);
            return match register.ty.bits() {
                64 if int => Ok(Address { slot: register.slot, wide: true, offset }),
                32 if int && short => Ok(Address { slot: register.slot, wide: false, offset }),
                _ => error(
                    o.at,
                    format!("`{name}` is a {} register; an address here is a .u64 or .b64", register.ty),
                ),
            };
        }
        match self.variable(name, 0, true) {
            Some(slot) => Ok(Address { slot, wide: true, offset }),
            None => error(o.at, format!("`{name}` is not declared as a register or variable")),
        }
    }

    /// As [`Decode::row`], giving nothing when the registers do not have the row's sizes.
    pub(crate) fn attempt(&mut self, row: &isa::Row) -> Option<Op> {
        let fits = |d: &mut Self, i: usize, ty: Type| match d.operand(i).kind {
            OperandKind::Name(name) => d.unit.typed(name, d.operand(i).at, ty).is_ok(),
            _ => false,
        };
        let all = fits(self, 0, row.dst) && row.src.iter().enumerate().all(|(i, ty)| fits(self, i + 1, *ty));
        if all { self.row(row).ok() } else { None }
    }

    /// The source of a conversion: a register at least as wide as its type, a special register or a
    /// literal; and whether it is in the 64-bit bank.
    pub(crate) fn cvt_src(&mut self, ty: Type) -> Parsed<(u32, bool)> {
        let o = self.operand(1);
        match o.kind {
            OperandKind::Name(name) if ty.bits() == 32 && special(name).is_some() => match self.special(name)
            {
                Some(slot) => Ok((slot, false)),
                None => self.error("not a special register"),
            },
            OperandKind::Name(_) => {
                let register = self.wider(o, ty)?;
                Ok((register.slot, register.ty.bits() == 64))
            }
            _ => Ok((self.src(1, ty)?, ty.bits() == 64)),
        }
    }

    /// Decodes a table row: destination, then sources.
    pub(crate) fn row(&mut self, row: &isa::Row) -> Parsed<Op> {
        self.skip();
        self.operands(1 + row.src.len(), 1 + row.src.len())?;
        self.alu(row.run, row.dst, row.src)
    }

    /// An operation on registers: the first operand is the destination, the others are sources.
    pub(crate) fn alu(&mut self, run: Alu, dst: Type, src: &[Type]) -> Parsed<Op> {
        let d = self.dst(0, dst)?;
        let mut s = [0; 4];
        for (i, ty) in src.iter().enumerate() {
            s[i] = self.src(i + 1, *ty)?;
        }
        Ok(Op::Alu(run, Slots { d, e: 0, a: s[0], b: s[1], c: s[2], x: s[3] }))
    }

    /// A word register to be read, of the bank its type says.
    pub(crate) fn word(&mut self, i: usize, ty: Type) -> Parsed<Operand> {
        Ok(Operand { slot: self.src(i, ty)?, bits: ty.bits() })
    }
}

/// The bits of a literal used as a value of type `ty`.
fn immediate(n: Number, ty: Type, at: At) -> Parsed<u64> {
    let bits = ty.bits();
    match (n, ty.kind()) {
        (Number::Int(v), Kind::Bits | Kind::Unsigned | Kind::Signed) => {
            let (least, most) = (-(1i128 << (bits - 1)), (1i128 << bits) - 1);
            if (least..=most).contains(&v) {
                return Ok(v as u64 & u64::MAX >> (64 - bits));
            }
            error(at, format!("{v} does not fit {ty}"))
        }
        (Number::F32(v), Kind::Float | Kind::Bits) if bits == 32 && ty != Type::F16x2 => Ok(v.into()),
        (Number::F64(v), Kind::Float | Kind::Bits) if bits == 64 => Ok(v),
        (Number::F64(v), Kind::Float) if ty == Type::F32 => Ok((f64::from_bits(v) as f32).to_bits().into()),
        (Number::F32(v), Kind::Float) if ty == Type::F64 => Ok(f64::from(f32::from_bits(v)).to_bits()),
        _ => error(at, format!("this literal cannot be a {ty} operand")),
    }
}
