//! The device functions of a module: by name, by number, and which of them a kernel may call.

use std::collections::{HashMap, HashSet};

use super::declare::mentioned;
use crate::parse::ast::{self, Initial, OperandKind, Statement};

/// First address of a function: between the windows of other spaces and global memory.
const FIRST: u64 = 0x4_0000_0000;
/// Bytes of addresses that the functions of a module have.
const MODULE: u64 = 1 << 20;
/// Bytes from one function to the next.
const STEP: u64 = 16;

/// The device functions of a module.
pub(crate) struct Functions<'a> {
    /// Those that are defined, by number.
    pub(crate) defined: Vec<&'a ast::Entry<'a>>,
    numbers: HashMap<&'a str, u32>,
    declared: HashMap<&'a str, &'a ast::Entry<'a>>,
    /// Names of the kernels, which have no address here.
    kernels: HashSet<&'a str>,
    /// The address of the first.
    base: u64,
    /// Whose address is taken, so that any call through a register may call them.
    taken: Vec<u32>,
}

/// The address of function `number` of module `module`.
fn address(module: u64, number: u32) -> u64 {
    FIRST + module * MODULE + (u64::from(number) + 1) * STEP
}

impl<'a> Functions<'a> {
    /// The functions of module number `module`.
    pub(crate) fn new(
        module: u64,
        ast: &'a ast::Module<'a>,
        variables: &[ast::Variable<'a>],
    ) -> Functions<'a> {
        let defined: Vec<&ast::Entry<'_>> = ast.functions.iter().filter(|f| f.defined).collect();
        let mut numbers: HashMap<&str, u32> = defined
            .iter()
            .enumerate()
            .map(|(i, f)| (f.name, i as u32))
            .collect();
        for (name, other) in &ast.aliases {
            if let Some(number) = numbers.get(other).copied() {
                numbers.insert(name, number);
            }
        }
        let declared = ast.functions.iter().map(|f| (f.name, f)).collect();
        let kernels = ast.entries.iter().map(|entry| entry.name).collect();
        let mut functions = Functions {
            defined,
            numbers,
            declared,
            kernels,
            base: address(module, 0),
            taken: Vec::new(),
        };
        functions.taken = functions.taken(ast, variables);
        functions
    }

    /// The number of a function that is defined.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// The declaration of a function, or its definition.
    pub(crate) fn declared(&self, name: &str) -> Option<&'a ast::Entry<'a>> {
        self.declared.get(name).copied()
    }

    /// Whether a name is that of a function.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.declared.contains_key(name) || self.numbers.contains_key(name)
    }

    /// Returns true if a kernel has this name.
    pub(crate) fn is_kernel(&self, name: &str) -> bool {
        self.kernels.contains(name)
    }

    /// The address of a function that is defined.
    pub(crate) fn address(&self, name: &str) -> Option<u64> {
        self.number(name).map(|number| self.address_of(number))
    }

    /// The address of a function by its number.
    pub(crate) fn address_of(&self, number: u32) -> u64 {
        self.base + u64::from(number) * STEP
    }

    /// Returns the functions that are mentioned elsewhere than as the target of a call.
    fn taken(&self, ast: &'a ast::Module<'a>, variables: &[ast::Variable<'a>]) -> Vec<u32> {
        if self.defined.is_empty() {
            return Vec::new();
        }
        let of_variable = |init: &Initial<'_>| match init {
            Initial::Address { name, .. } => self.number(name),
            Initial::Number(_) | Initial::Zeros(_) => None,
        };
        let mut taken: HashSet<u32> = variables
            .iter()
            .flat_map(|v| &v.init)
            .filter_map(of_variable)
            .collect();
        for body in ast
            .functions
            .iter()
            .chain(&ast.entries)
            .map(|entry| &entry.body.statements)
        {
            let inst = |s: &'a Statement<'a>| {
                if let Statement::Inst(i) = s {
                    Some(i)
                } else {
                    None
                }
            };
            let moves = body.iter().filter_map(inst).filter(|i| i.opcode != "call");
            for operand in moves.flat_map(|i| &i.operands) {
                if let OperandKind::Name(name) | OperandKind::Sum(name, _) = operand.kind {
                    taken.extend(self.number(name));
                }
            }
        }
        let mut taken: Vec<u32> = taken.into_iter().collect();
        taken.sort_unstable();
        taken
    }

    /// The functions that a kernel or function may call, directly or not, in order of discovery; whether each is only
    /// called by its address; and all names that it and they mention.
    pub(crate) fn reached(&self, root: &ast::Entry<'a>) -> (Vec<(u32, bool)>, HashSet<&'a str>) {
        let mut names = HashSet::new();
        let (mut order, mut seen) = (Vec::<(u32, bool)>::new(), HashSet::new());
        let mut next = 0;
        let mut entry: &ast::Entry<'a> = root;
        loop {
            let mut own = HashSet::new();
            mentioned(entry, &mut own);
            let mut found: Vec<u32> = own.iter().filter_map(|name| self.number(name)).collect();
            found.sort_unstable();
            names.extend(own);
            order
                .iter_mut()
                .filter(|(number, _)| found.contains(number))
                .for_each(|f| f.1 = false);
            order.extend(
                found
                    .into_iter()
                    .filter(|number| seen.insert(*number))
                    .map(|number| (number, false)),
            );
            if calls_by_address(entry, self) {
                let taken = self.taken.iter().filter(|number| seen.insert(**number));
                order.extend(taken.map(|number| (*number, true)));
            }
            let Some((number, _)) = order.get(next) else {
                return (order, names);
            };
            entry = self.defined[*number as usize];
            next += 1;
        }
    }
}

/// Whether it has a call whose target is no function's name.
fn calls_by_address(entry: &ast::Entry<'_>, functions: &Functions<'_>) -> bool {
    let calls = |s: &Statement<'_>| match s {
        Statement::Inst(i) if i.opcode == "call" => {
            let target = i.operands.iter().find_map(|o| match o.kind {
                OperandKind::Name(name) => Some(name),
                _ => None,
            });
            target.is_some_and(|name| !functions.knows(name))
        }
        _ => false,
    };
    entry.body.statements.iter().any(calls)
}
