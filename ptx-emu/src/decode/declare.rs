//! Declarations of a kernel: parameters, registers, labels, and the layout of shared and local memory.

use std::collections::{HashMap, HashSet};

use super::Unit;
use super::names::{PREDEFINED, special};
use crate::code::Region;
use crate::module::Param;
use crate::parse::At;
use crate::parse::ast::{self, OperandKind, StateSpace, Statement, Variable};
use crate::parse::types::Type;

/// First address of the shared space: not 0, so that a zero pointer is no variable.
pub(crate) const SHARED_BASE: u32 = 1024;
/// Unmapped bytes between shared variables.
const SHARED_GAP: u32 = 64;
/// Bytes of static shared memory a kernel may declare.
const MOST_STATIC_SHARED: u64 = 48 << 10;
/// Bytes of local memory a thread may have.
const MOST_LOCAL: u64 = 512 << 10;

/// A declared name.
#[derive(Clone, Debug)]
pub(super) enum Declared {
    Register { ty: Type, declaration: u32, at: At },
    Shared { address: u32, bytes: Option<u32> },
    Local { address: u32 },
    Label(u32),
    Targets(Vec<u32>),
}

#[derive(Debug, Default)]
pub(super) struct NameScope<'a> {
    pub(super) parent: Option<usize>,
    pub(super) names: HashMap<&'a str, Declared>,
    /// `%r<N>`: type, declaration, count and place.
    pub(super) families: HashMap<&'a str, (Type, u32, u32, At)>,
}

/// Size and alignment of a variable in bytes; `None` when too large to count.
pub(crate) fn layout(v: &Variable<'_>) -> Option<(u64, u32)> {
    let element = v.ty.bytes() * v.vector;
    let bytes = u64::from(element).checked_mul(v.count.unwrap_or(0))?;
    Some((bytes, element.max(v.align)))
}

impl<'a> Unit<'a> {
    pub(super) fn parameters(&mut self, params: &[Variable<'a>]) {
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
    pub(super) fn declare(&mut self, entry: &ast::Entry<'a>) -> u32 {
        let mentioned = mentioned(entry);
        let shared = |v: &&Variable<'a>| v.space == StateSpace::Shared && mentioned.contains(v.name);
        let (mut cursor, mut total) = (SHARED_BASE, 0);
        let mut dynamic = Vec::new();
        for v in self.common.variables.iter().filter(shared) {
            self.declare_shared(v, &mut cursor, &mut total, &mut dynamic);
        }
        let (mut scope, mut index) = (0, 0);
        for statement in &entry.body.statements {
            match statement {
                Statement::Open => {
                    self.scopes.push(NameScope { parent: Some(scope), ..NameScope::default() });
                    scope = self.scopes.len() - 1;
                }
                Statement::Close => scope = self.scopes[scope].parent.unwrap_or(0),
                Statement::Inst(_) => index += 1,
                Statement::Label(name, at) => self.name(scope, name, *at, Declared::Label(index)),
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

    pub(super) fn name(&mut self, scope: usize, name: &'a str, at: At, named: Declared) {
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
            self.broken.insert(n.name);
            return self.fail(n.at, "unsupported in ptx-emu: .b128 registers");
        }
        match n.count {
            None => self.name(scope, n.name, n.at, Declared::Register { ty, declaration, at: n.at }),
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
            StateSpace::Shared => self.declare_shared(v, cursor, total, dynamic),
            // What is passed to a function is the thread's own, as a local variable is.
            StateSpace::Local | StateSpace::Param => self.declare_local(v),
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
            return self.name(self.scope, v.name, v.at, Declared::Shared { address: 0, bytes: None });
        }
        let address = cursor.next_multiple_of(align.max(1));
        *cursor = address + bytes as u32 + SHARED_GAP;
        *total = total.next_multiple_of(align.max(1).into()) + bytes;
        if *total > 1 << 24 {
            *cursor = SHARED_BASE;
        }
        self.code.shared.push(Region { name: v.name.into(), address, bytes: bytes as u32, dynamic: false });
        self.name(self.scope, v.name, v.at, Declared::Shared { address, bytes: Some(bytes as u32) });
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
        self.name(self.scope, v.name, v.at, Declared::Local { address });
    }
}

/// All names that the operands of a kernel mention.
fn mentioned<'a>(entry: &ast::Entry<'a>) -> HashSet<&'a str> {
    fn visit<'a>(operand: &ast::Operand<'a>, names: &mut HashSet<&'a str>) {
        match &operand.kind {
            OperandKind::Name(n) | OperandKind::Sum(n, _) | OperandKind::Address(Some(n), _) => {
                _ = names.insert(n)
            }
            OperandKind::Vector(v) | OperandKind::Tensor(_, v) => v.iter().for_each(|o| visit(o, names)),
            _ => {}
        }
    }
    let mut names = HashSet::new();
    for statement in &entry.body.statements {
        if let Statement::Inst(inst) = statement {
            inst.operands.iter().for_each(|o| visit(o, &mut names));
        }
    }
    names
}
