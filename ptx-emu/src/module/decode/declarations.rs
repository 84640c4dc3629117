//! Declarations of a kernel: parameters, registers, labels, and the layout of shared and local
//! memory.

use std::collections::{HashMap, HashSet};

use crate::module::address_space::{RESERVED, SHARED_BASE};
use crate::module::code::{Formal, RegisterOperand, SharedRegion, UNDECLARED_DYNAMIC};
use crate::module::context::names::{PREDEFINED, special};
use crate::module::context::symbols::{DeclaredSymbol, NameScope, layout};
use crate::module::context::unit::DecodingUnit;
use crate::module::parameter::Param;
use crate::syntax::ast::{DeclaredSpace, DeclaredVariable, Statement};
use crate::syntax::types::Type;
use crate::syntax::{At, Error, Parsed, ast, error, unsupported};

/// The number of unmapped bytes between shared variables.
const SHARED_GAP: u32 = 64;
/// The maximum size of the static shared memory of a kernel in bytes.
const MOST_STATIC_SHARED: u64 = 48 << 10;
/// The maximum size of the local memory of a thread in bytes.
const MOST_LOCAL: u64 = 512 << 10;
const RESERVED_BYTES: u32 = 1024;

/// The layout of the shared memory of a kernel and of the functions that it may call.
#[derive(Debug)]
pub(crate) struct SharedLayout<'a> {
    pub(crate) regions: Vec<SharedRegion>,
    cursor: u32,
    /// The size of the static variables in bytes.
    pub(crate) total: u64,
    dynamic: Vec<(&'a str, u32)>,
    /// The variables of the module that are used.
    module: HashMap<&'a str, DeclaredSymbol>,
}

impl<'a> DecodingUnit<'a> {
    pub(crate) fn parameters(&mut self, params: &[DeclaredVariable<'a>]) {
        let mut offset = 0u64;
        for v in params {
            let Some((bytes, align)) = layout(v).filter(|(bytes, _)| *bytes > 0) else {
                self.fail(v.at, format!("parameter `{}` has no size", v.name));
                continue;
            };

            if self.params.iter().any(|(p, _)| p.name == v.name) {
                self.fail(v.at, format!("parameter `{}` is declared twice", v.name));
            }

            // Parameters are laid out like the members of a C structure (PTX ISA, "Kernel Function
            // Parameters").
            offset = offset.next_multiple_of(align.into());
            if offset + bytes > 32764 {
                return self.fail(v.at, "the parameters take more than 32764 bytes");
            }

            let name = v.name.into();
            let ty = type_of(v);
            let param = Param {
                name,
                ty,
                offset: offset as u32,
                size: bytes as u32,
                align,
            };
            self.params.push((param, v.array || v.vector > 1));
            offset += bytes;
        }
    }

    /// Returns the locations of the parameters of a function, in its local memory or in registers.
    pub(crate) fn formals(&mut self, formals: &[DeclaredVariable<'a>]) -> Vec<Formal> {
        formals.iter().map(|v| self.formal(v)).collect()
    }

    fn formal(&mut self, v: &DeclaredVariable<'a>) -> Formal {
        if v.space == DeclaredSpace::Reg {
            let declaration = self.declarations;
            self.declarations += 1;
            self.name(
                0,
                v.name,
                v.at,
                DeclaredSymbol::Register {
                    ty: v.ty,
                    declaration,
                    at: 0,
                },
            );
            if v.ty != Type::Pred && (v.ty.bits() < 16 || v.ty.bits() > 64) {
                self.fail_unsupported(v.at, format!("{} registers as parameters", v.ty));
            }

            let slot = self.slot(v.ty, declaration, 0, v.name).slot;
            return Formal::Register(RegisterOperand {
                slot,
                bits: v.ty.bits(),
            });
        }

        // Only variadic functions have such a parameter, and they are not supported.
        if v.count.is_none() {
            let what = format!(
                "`{}`, a parameter that takes any number of arguments",
                v.name
            );
            self.errors.extend(unsupported::<()>(v.at, what).err());
            return Formal::Local {
                offset: 0,
                bytes: 0,
            };
        }

        self.declare_local(v);
        match self.scopes[0].names.get(v.name) {
            Some(DeclaredSymbol::Local { address, bytes }) => Formal::Local {
                offset: *address,
                bytes: *bytes,
            },
            _ => Formal::Local {
                offset: 0,
                bytes: 0,
            },
        }
    }

    /// Declares all names, and lays out shared and local memory.
    pub(crate) fn declare(&mut self, entry: &ast::Entry<'a>, layout: &mut SharedLayout<'a>) {
        // Names of the module are entered first, so that a declaration of the kernel hides them.
        for (name, declared) in &layout.module {
            self.scopes[0]
                .names
                .entry(name)
                .or_insert_with(|| declared.clone());
        }

        let mut scope = 0;
        let mut index = 0;
        for statement in &entry.body.statements {
            match statement {
                Statement::Open => {
                    self.scopes.push(NameScope {
                        parent: Some(scope),
                        ..NameScope::default()
                    });
                    scope = self.scopes.len() - 1;
                }
                Statement::Close => scope = self.scopes[scope].parent.unwrap_or(0),
                // Each statement becomes one instruction, so a label is the number of instructions
                // before it.
                Statement::Inst(_) => index += 1,
                Statement::Label(name, at) => {
                    self.name(scope, name, *at, DeclaredSymbol::Label(index))
                }
                Statement::Registers(ty, names) => {
                    for n in names {
                        self.register(scope, *ty, n);
                    }
                }
                Statement::Variable(v) => {
                    self.scope = scope;
                    self.variable(v, layout);
                }
                Statement::Targets(..)
                | Statement::Callees(..)
                | Statement::Prototype
                | Statement::Loc(_) => {}
            }
        }

        self.scope = 0;
    }

    pub(crate) fn name(&mut self, scope: usize, name: &'a str, at: At, named: DeclaredSymbol) {
        let taken = self.scopes[scope].names.insert(name, named).is_some();
        if taken {
            self.fail(at, format!("`{name}` is declared twice in this scope"));
        }
    }

    fn register(&mut self, scope: usize, ty: Type, n: &ast::RegisterName<'a>) {
        let declaration = self.declarations;
        self.declarations += 1;

        // The declaration is counted before this check, so that later registers keep their numbers.
        if special(n.name).is_some() || PREDEFINED.contains(&n.name) {
            return self.fail(
                n.at,
                format!("`{}` is a special register and cannot be declared", n.name),
            );
        }

        match n.count {
            None => self.name(
                scope,
                n.name,
                n.at,
                DeclaredSymbol::Register {
                    ty,
                    declaration,
                    at: n.at,
                },
            ),
            Some(count) => {
                let families = &mut self.scopes[scope].families;
                if families
                    .insert(n.name, (ty, declaration, count, n.at))
                    .is_some()
                {
                    self.fail(
                        n.at,
                        format!("`{}<..>` is declared twice in this scope", n.name),
                    );
                }
            }
        }
    }

    fn variable(&mut self, v: &DeclaredVariable<'a>, layout: &mut SharedLayout<'a>) {
        match v.space {
            DeclaredSpace::Shared => match layout.place(v) {
                Ok(declared) => self.name(self.scope, v.name, v.at, declared),
                Err(e) => self.errors.push(e),
            },
            // An argument of a call belongs to the thread, like a local variable.
            DeclaredSpace::Local | DeclaredSpace::Param => self.declare_local(v),
            _ => self.fail(
                v.at,
                "only .reg, .shared and .local variables can be declared in a kernel",
            ),
        }
    }

    fn declare_local(&mut self, v: &DeclaredVariable<'a>) {
        let Some((bytes, align)) =
            layout(v).filter(|(bytes, _)| *bytes > 0 && *bytes <= MOST_LOCAL)
        else {
            return self.fail(
                v.at,
                format!(
                    "local variable `{}` must have 1 to {MOST_LOCAL} bytes",
                    v.name
                ),
            );
        };

        let local = &mut self.routine.local;

        // The first variable is not at address 0, so that a null pointer is never a variable.
        let address = local.next_multiple_of(align).max(align);
        *local = address + bytes as u32;
        self.routine.align = self.routine.align.max(align);
        if u64::from(self.routine.local) > MOST_LOCAL {
            self.routine.local = 0;
            self.fail(
                v.at,
                format!("more than {MOST_LOCAL} bytes of local memory"),
            );
        }

        self.name(
            self.scope,
            v.name,
            v.at,
            DeclaredSymbol::Local {
                address,
                bytes: bytes as u32,
            },
        );
    }
}

/// Returns the declared type of a variable.
fn type_of(v: &DeclaredVariable<'_>) -> String {
    let vector = if v.vector > 1 {
        format!(".v{} ", v.vector)
    } else {
        String::new()
    };
    let array = v
        .count
        .filter(|_| v.array)
        .map_or(String::new(), |count| format!("[{count}]"));
    format!("{vector}{}{array}", v.ty)
}

impl<'a> SharedLayout<'a> {
    /// Lays out the variables of a module that `mentioned` contains.
    pub(crate) fn new(
        variables: &[DeclaredVariable<'a>],
        mentioned: &HashSet<&'a str>,
        errors: &mut Vec<Error>,
    ) -> Self {
        let module = HashMap::new();
        let mut layout = SharedLayout {
            regions: Vec::new(),
            cursor: SHARED_BASE,
            total: 0,
            dynamic: Vec::new(),
            module,
        };
        let shared = |v: &&DeclaredVariable<'a>| {
            v.space == DeclaredSpace::Shared && mentioned.contains(v.name)
        };
        for v in variables.iter().filter(shared) {
            match layout.place(v) {
                Ok(declared) => _ = layout.module.insert(v.name, declared),
                Err(e) => errors.push(e),
            }
        }

        // The reserved memory comes last, because its size does not count towards the limit.
        if let Some(name) = mentioned.get(RESERVED) {
            layout.reserve(name);
        }

        layout
    }

    /// Lays out shared memory that belongs to no variable and does not count towards the limit.
    /// Devices from sm_80 on reserve it for CUDA's own headers.
    fn reserve(&mut self, name: &'a str) {
        let address = self.cursor.next_multiple_of(RESERVED_BYTES);
        self.cursor = address + RESERVED_BYTES + SHARED_GAP;
        let region = SharedRegion {
            name: RESERVED.into(),
            address,
            bytes: RESERVED_BYTES,
            dynamic: false,
        };
        self.regions.push(region);
        self.module.insert(
            name,
            DeclaredSymbol::Shared {
                address,
                bytes: Some(RESERVED_BYTES),
            },
        );
    }

    fn place(&mut self, v: &DeclaredVariable<'a>) -> Parsed<DeclaredSymbol> {
        if !v.init.is_empty() {
            return error(v.at, "shared variables cannot be initialized");
        }
        let Some((bytes, align)) = layout(v).filter(|(bytes, _)| *bytes <= 1 << 24) else {
            return error(v.at, format!("shared variable `{}` is too large", v.name));
        };

        if v.count.is_none() {
            if !v.external {
                let what = format!(
                    "`{}` has no size: only .extern .shared may lack one",
                    v.name
                );
                return error(v.at, what);
            }
            // The address is known only after all static variables were placed, see `finish`.
            self.dynamic.push((v.name, align.max(16)));
            return Ok(DeclaredSymbol::Shared {
                address: 0,
                bytes: None,
            });
        }

        let address = self.cursor.next_multiple_of(align.max(1));
        self.cursor = address + bytes as u32 + SHARED_GAP;
        self.total = self.total.next_multiple_of(align.max(1).into()) + bytes;

        // The error is reported by `too_much`. The cursor is reset so that it cannot overflow
        // meanwhile.
        if self.total > 1 << 24 {
            self.cursor = SHARED_BASE;
        }

        self.regions.push(SharedRegion {
            name: v.name.into(),
            address,
            bytes: bytes as u32,
            dynamic: false,
        });
        Ok(DeclaredSymbol::Shared {
            address,
            bytes: Some(bytes as u32),
        })
    }

    /// Places the dynamic shared memory after the static variables and returns its address, which
    /// all its names share.
    pub(crate) fn finish(&mut self) -> u32 {
        let align = self
            .dynamic
            .iter()
            .map(|(_, align)| *align)
            .max()
            .unwrap_or(16);
        let address = self.cursor.next_multiple_of(align);
        let name = self
            .dynamic
            .first()
            .map_or(UNDECLARED_DYNAMIC, |(name, _)| name);
        self.regions.push(SharedRegion {
            name: name.into(),
            address,
            bytes: 0,
            dynamic: true,
        });
        address
    }

    /// Returns the error that a kernel has too much static shared memory, if it has.
    pub(crate) fn too_much(&self, at: At) -> Option<Error> {
        let what = format!(
            "{} bytes of static shared memory, at most {MOST_STATIC_SHARED}",
            self.total
        );
        (self.total > MOST_STATIC_SHARED).then(|| Error::ill_formed(at, what))
    }
}
