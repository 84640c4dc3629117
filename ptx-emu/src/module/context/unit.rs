//! The state of a kernel or function while it is decoded.

use std::collections::{HashMap, HashSet};

use crate::module::code::call::Routine;
use crate::module::code::instruction::KernelCode;
use crate::module::code::operand::{Constant, Special};
use crate::module::context::functions::Functions;
use crate::module::context::symbols::NameScope;
use crate::module::features;
use crate::module::parameter::Param;
use crate::module::registers::Bank;
use crate::syntax::ast::DeclaredVariable;
use crate::syntax::{Error, SourceText};

/// The context that the kernels of a module share.
pub(crate) struct ModuleContext<'a> {
    pub(crate) source: &'a SourceText<'a>,
    pub(crate) files: &'a [(u32, &'a str)],
    pub(crate) target: features::Target,
    pub(crate) variables: &'a [DeclaredVariable<'a>],
    pub(crate) functions: Functions<'a>,
    /// Names whose declarations have errors.
    pub(crate) broken: &'a [&'a str],
}

/// A kernel or function during decoding.
pub(crate) struct DecodingUnit<'a> {
    /// Whether it is a function.
    pub(crate) function: bool,
    pub(crate) routine: Routine,
    pub(crate) common: &'a ModuleContext<'a>,
    pub(crate) params: Vec<(Param, bool)>,
    pub(crate) scopes: Vec<NameScope<'a>>,
    pub(crate) scope: usize,
    pub(crate) code: KernelCode,
    pub(crate) slots: HashMap<(u32, u32), u32>,
    pub(crate) constants: HashMap<(Bank, Constant), u32>,
    pub(crate) specials: HashMap<Special, u32>,
    pub(crate) carry: Option<u32>,
    pub(crate) declarations: u32,
    pub(crate) dynamic_shared: u32,
    pub(crate) errors: Vec<Error>,
    /// Names whose local declarations have errors.
    pub(crate) broken: HashSet<&'a str>,
    /// Names of the module that cannot be used, for which an error was already reported.
    pub(crate) refused: HashSet<String>,
    /// The undeclared registers, by name without number: the index of the first error, and the
    /// number of further ones.
    pub(crate) undeclared: HashMap<String, (usize, usize)>,
    /// Whether instructions are missing because of errors that are reported elsewhere.
    pub(crate) incomplete: bool,
    /// Whether the code contains `wgmma`.
    pub(crate) multiplies: bool,
}

/// The end of the error that a variable is used as a register.
pub(crate) const IS_VARIABLE: &str = "is a variable: take its address with mov";

/// The end of the error that an address register has the wrong width.
pub(crate) const NARROW_ADDRESS: &str = "register; an address here is a .u64 or .b64";

/// The end of the error that a register is not declared.
pub(crate) const UNDECLARED: &str = " is not declared as a register";
