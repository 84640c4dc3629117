//! The device functions of a module: names, numbers, addresses, and the call graph.

use std::collections::{HashMap, HashSet};

use crate::module::context::symbols::mentioned;
use crate::syntax::ast;
use crate::syntax::ast::{Initial, OperandKind, Statement};

/// The first address of a function. It lies between the windows of other spaces and global memory.
const FIRST: u64 = 0x4_0000_0000;
/// The size of the address range of the functions of a module.
const MODULE: u64 = 1 << 20;
/// The distance of the addresses of two functions.
const STEP: u64 = 16;

/// The device functions of a module.
pub(crate) struct Functions<'a> {
    /// The functions with a definition, by number.
    pub(crate) defined: Vec<&'a ast::Entry<'a>>,
    numbers: HashMap<&'a str, u32>,
    declared: HashMap<&'a str, &'a ast::Entry<'a>>,
    /// The names of the kernels, whose addresses cannot be taken here.
    kernels: HashSet<&'a str>,
    /// The address of the first function.
    base: u64,
    /// The functions whose address is taken. Every indirect call may call them.
    taken: Vec<u32>,
}

/// Returns the address of function `number` of module `module`.
fn address(module: u64, number: u32) -> u64 {
    FIRST + module * MODULE + (u64::from(number) + 1) * STEP
}

impl<'a> Functions<'a> {
    /// Collects the functions of module number `module`.
    pub(crate) fn new(
        module: u64,
        ast: &'a ast::Module<'a>,
        variables: &[ast::DeclaredVariable<'a>],
    ) -> Functions<'a> {
        let defined: Vec<&ast::Entry<'_>> = ast.functions.iter().filter(|f| f.defined).collect();
        let mut numbers: HashMap<&str, u32> = defined
            .iter()
            .enumerate()
            .map(|(i, f)| (f.name, i as u32))
            .collect();

        // An alias has the number of its function, so that calls and addresses of both are the
        // same.
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

    /// Returns the number of a function that is defined.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Returns the declaration or the definition of a function.
    pub(crate) fn declared(&self, name: &str) -> Option<&'a ast::Entry<'a>> {
        self.declared.get(name).copied()
    }

    /// Returns true if a function has this name.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.declared.contains_key(name) || self.numbers.contains_key(name)
    }

    /// Returns true if a kernel has this name.
    pub(crate) fn is_kernel(&self, name: &str) -> bool {
        self.kernels.contains(name)
    }

    /// Returns the address of a function that is defined.
    pub(crate) fn address(&self, name: &str) -> Option<u64> {
        self.number(name).map(|number| self.address_of(number))
    }

    /// Returns the address of a function by number.
    pub(crate) fn address_of(&self, number: u32) -> u64 {
        self.base + u64::from(number) * STEP
    }

    /// Returns the functions that are mentioned elsewhere than as the target of a call.
    fn taken(&self, ast: &'a ast::Module<'a>, variables: &[ast::DeclaredVariable<'a>]) -> Vec<u32> {
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
            // A name in a call is its target or its prototype. In any other instruction, it is an
            // address.
            for operand in moves.flat_map(|i| &i.operands) {
                if let OperandKind::Name(name) | OperandKind::Sum(name, _) = operand.kind {
                    taken.extend(self.number(name));
                }
            }
        }

        let mut taken: Vec<u32> = taken.into_iter().collect();

        // The order of a hash set would make numbers of routines differ from run to run.
        taken.sort_unstable();
        taken
    }

    /// Returns the functions that a kernel or function may call, directly or indirectly, and all
    /// names that they mention.
    ///
    /// The functions are in order of discovery. The flag is true for a function that is only called
    /// through its address.
    pub(crate) fn reached(&self, root: &ast::Entry<'a>) -> (Vec<(u32, bool)>, HashSet<&'a str>) {
        let mut names = HashSet::new();
        let mut order = Vec::<(u32, bool)>::new();
        let mut seen = HashSet::new();
        let mut next = 0;
        let mut entry: &ast::Entry<'a> = root;
        loop {
            let mut own = HashSet::new();
            mentioned(entry, &mut own);
            let mut found: Vec<u32> = own.iter().filter_map(|name| self.number(name)).collect();

            // The order of discovery decides the order of the code, so it must not depend on a hash
            // map.
            found.sort_unstable();
            names.extend(own);
            for (number, by_address) in &mut order {
                if found.contains(number) {
                    *by_address = false;
                }
            }

            order.extend(
                found
                    .into_iter()
                    .filter(|number| seen.insert(*number))
                    .map(|number| (number, false)),
            );

            // An indirect call may have any function as its target whose address is taken
            // somewhere.
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

/// Returns true if a call has a target that is not the name of a function.
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
