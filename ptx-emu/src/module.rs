//! A parsed module and its kernels.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::code::Code;
use crate::decode::{Common, Decoded, decode, layout};
use crate::features::Target;
use crate::memory::{Memory, Static};
use crate::memory_error::MemoryError;
use crate::parse::ast::{self, Number, StateSpace};
use crate::parse::types::Type;
use crate::parse::{Error, Source, listing, parser};
use crate::parse_error::{KernelError, ParseError, ParseErrors};

/// A PTX module: parsed, verified and decoded.
#[derive(Debug)]
pub struct Module {
    version: (u32, u32),
    target: String,
    kernels: Vec<Arc<Kernel>>,
    refused: Vec<RefusedKernel>,
    errors: Vec<ParseError>,
    statics: Arc<Statics>,
}

/// One `.entry` of a module.
#[derive(Debug)]
pub struct Kernel {
    /// Name of the entry.
    pub name: String,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Bytes of static shared memory.
    pub static_shared: u32,
    /// Threads a block must have, from `.reqntid`.
    pub reqntid: Option<[u32; 3]>,
    /// Threads a block may have, from `.maxntid`.
    pub maxntid: Option<[u32; 3]>,
    /// Blocks of a cluster, from `.reqnctapercluster`.
    pub cluster: Option<[u32; 3]>,
    /// Blocks that a multiprocessor must be able to hold, from `.minnctapersm`.
    pub minnctapersm: Option<u32>,
    /// Registers declared, in 32-bit units, predicates not counted.
    pub registers: u32,
    pub(crate) code: Code,
    pub(crate) statics: Arc<Statics>,
}

/// One kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name in the text.
    pub name: String,
    /// Byte offset in the parameter block.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
}

/// A kernel of a module that cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedKernel {
    /// Name of the entry.
    pub name: String,
    /// Parameters in order, as far as they could be read.
    pub params: Vec<Param>,
    /// What is wrong with it and with the functions that it uses, in order of place.
    pub errors: ParseErrors,
}

/// A `.global` or `.const` variable of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name in the text.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
}

impl Module {
    /// Parses, verifies and decodes `text`.
    ///
    /// A kernel that cannot run keeps its errors, and the others run: see [`refused`](Module::refused).
    /// [`complete`](Module::complete) asks for all of them.
    ///
    /// # Errors
    /// Everything wrong with the text, if the text of the module itself is wrong: its header, its variables, or what
    /// stands between its kernels.
    pub fn parse(text: &str) -> Result<Module, ParseErrors> {
        let source = Source::new(text);
        build(&source).map_err(|errors| ParseErrors(source.reports(errors)))
    }

    /// The module, if all of its kernels can run.
    ///
    /// # Errors
    /// Everything wrong with its text.
    pub fn complete(self) -> Result<Module, ParseErrors> {
        if self.errors.is_empty() { Ok(self) } else { Err(ParseErrors(self.errors)) }
    }

    /// Everything wrong with the text, in order of place and each once: of its kernels, and of functions and variables
    /// that a kernel may use or not.
    pub fn errors(&self) -> &[ParseError] {
        &self.errors
    }

    /// The labels and instructions of `text` as the parser understood them, one a string, written from its syntax
    /// tree: labels end in a colon, instructions in a semicolon; integers are decimal, floats `0f` and their bits.
    ///
    /// # Errors
    /// As [`parse`](Module::parse), but only for syntax.
    pub fn listing(text: &str) -> Result<Vec<String>, ParseErrors> {
        let source = Source::new(text);
        let module = parser::parse(text).map_err(|errors| ParseErrors(source.reports(errors)))?;
        match with_syntax(module.errors.clone(), &module) {
            errors if errors.is_empty() => Ok(listing::listing(&module)),
            errors => Err(ParseErrors(source.reports(errors))),
        }
    }

    /// The kernels that can run, in order of the text.
    pub fn kernels(&self) -> impl Iterator<Item = &Arc<Kernel>> {
        self.kernels.iter()
    }

    /// The kernels that cannot run, in order of the text.
    pub fn refused(&self) -> impl Iterator<Item = &RefusedKernel> {
        self.refused.iter()
    }

    /// The kernel called `name`.
    ///
    /// # Errors
    /// There is none, or it cannot run, and why.
    pub fn kernel(&self, name: &str) -> Result<&Arc<Kernel>, KernelError> {
        let refused = || self.refused.iter().find(|k| k.name == name);
        self.kernels.iter().find(|k| k.name == name).ok_or_else(|| match refused() {
            Some(k) => KernelError::Refused { name: name.into(), errors: k.errors.clone() },
            None => {
                let known = self.kernels.iter().map(|k| k.name.clone()).collect();
                KernelError::NotFound { name: name.into(), known }
            }
        })
    }

    /// `.version` as (major, minor).
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// `.target` architecture, such as `sm_80`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The `.global` and `.const` variables.
    pub fn variables(&self) -> impl Iterator<Item = Variable> {
        self.statics.variables.iter().map(|v| Variable { name: v.name.clone(), bytes: v.bytes })
    }

    /// Address of a `.global` or `.const` variable in `memory`, allocated and initialised the first time.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`].
    pub fn address(&self, memory: &Memory, name: &str) -> Result<Option<u64>, MemoryError> {
        self.address_on(0, memory, name)
    }

    /// Address of a variable in the memory of a device, allocated and initialised the first time that the module runs
    /// or is asked.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`].
    pub fn address_on(&self, device: u32, memory: &Memory, name: &str) -> Result<Option<u64>, MemoryError> {
        let Some(index) = self.statics.variables.iter().position(|v| v.name == name) else { return Ok(None) };
        Ok(Some(memory.statics(device, self.statics.id, &self.statics.variables)?[index]))
    }

    /// Frees the module's variables in `memory`.
    pub fn unload(&self, memory: &Memory) {
        memory.forget_statics(self.statics.id);
    }
}

/// A module's variables, under a number that no other module has.
#[derive(Debug)]
pub(crate) struct Statics {
    pub(crate) id: u64,
    pub(crate) variables: Vec<Static>,
}

fn build(source: &Source<'_>) -> Result<Module, Vec<Error>> {
    let ast = parser::parse(source.text)?;
    let (target, mut errors) = target(&ast);
    let (statics, of_variables) = statics(&ast.variables);
    let statics = Arc::new(statics);
    errors.extend(of_variables);
    errors.extend(ast.errors.iter().cloned());
    errors.extend(doubles(&ast.entries));
    let Some(target) = target else { return Err(with_syntax(errors, &ast)) };
    let common = Common {
        source,
        files: &ast.files,
        target,
        variables: &ast.variables,
        sets_conditions: ast.sets_conditions,
        broken: &ast.broken,
    };
    let (version, wrong) = (common.target.version, errors.iter().any(Error::is_ill_formed));
    let (mut kernels, mut refused) = (Vec::new(), Vec::new());
    for entry in &ast.entries {
        let mut decoded = decode(&common, entry);
        let own = std::mem::take(&mut decoded.errors);
        if own.is_empty() {
            kernels.push(Arc::new(kernel(entry, decoded, &statics)));
            continue;
        }
        errors.extend(own.iter().cloned());
        let (name, params) = (entry.name.into(), decoded.params);
        refused.push(RefusedKernel { name, params, errors: ParseErrors(source.reports(own)) });
    }
    if wrong {
        return Err(errors);
    }
    let target = ast.target.map_or("", |(name, _)| name).into();
    Ok(Module { version, target, kernels, refused, errors: source.reports(errors), statics })
}

/// The target, unless the header is wrong.
fn target(ast: &ast::Module<'_>) -> (Option<Target>, Vec<Error>) {
    let fail = |at, what| (None, vec![Error { at, what }]);
    match (ast.version, ast.target) {
        (None, _) if ast.errors.is_empty() => fail(0, "no `.version` directive".into()),
        (Some((_, at)), None) if ast.errors.is_empty() => {
            fail(at, "no `.target` directive after `.version`".into())
        }
        (Some((version, _)), Some((name, at))) => match Target::new(version, name) {
            Ok(target) => (Some(target), Vec::new()),
            Err(what) => fail(at, what),
        },
        _ => (None, Vec::new()),
    }
}

/// Adds the errors in the syntax of kernels, which cannot be decoded without a target.
fn with_syntax(mut errors: Vec<Error>, ast: &ast::Module<'_>) -> Vec<Error> {
    errors.extend(ast.entries.iter().flat_map(|entry| entry.errors.iter().cloned()));
    errors
}

/// Kernels that have the name of another before them.
fn doubles(entries: &[ast::Entry<'_>]) -> Vec<Error> {
    let mut names = HashSet::new();
    let again = entries.iter().filter(|entry| !names.insert(entry.name));
    again.map(|e| Error { at: e.at, what: format!("kernel `{}` is defined twice", e.name) }).collect()
}

fn kernel(entry: &ast::Entry<'_>, decoded: Decoded, statics: &Arc<Statics>) -> Kernel {
    Kernel {
        name: entry.name.into(),
        params: decoded.params,
        static_shared: decoded.static_shared,
        reqntid: entry.reqntid,
        maxntid: entry.maxntid,
        cluster: entry.cluster,
        minnctapersm: entry.minnctapersm,
        registers: decoded.registers,
        code: decoded.code,
        statics: statics.clone(),
    }
}

/// The variables of a module, shared ones left out (empty, so that numbers agree).
fn statics(variables: &[ast::Variable<'_>]) -> (Statics, Vec<Error>) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut errors = Vec::new();
    let mut out = Vec::new();
    for v in variables {
        let shared = v.space == StateSpace::Shared;
        let bytes =
            if shared { Some(0) } else { layout(v).map(|(bytes, _)| bytes).filter(|b| *b <= MOST_STATIC) };
        let Some(bytes) = bytes else {
            errors.push(Error { at: v.at, what: format!("`{}` has more than {MOST_STATIC} bytes", v.name) });
            continue;
        };
        if !shared && (v.external || v.count.is_none() || v.space == StateSpace::Local) {
            errors.push(Error {
                at: v.at,
                what: format!("`{}`: this variable has no definition here", v.name),
            });
        }
        let init: Vec<u8> = v.init.iter().flat_map(|n| encode(*n, v.ty)).collect();
        if init.len() as u64 > bytes && !shared {
            errors.push(Error {
                at: v.at,
                what: format!("`{}` has more initial values than elements", v.name),
            });
        }
        out.push(Static { name: v.name.into(), constant: v.space == StateSpace::Const, bytes, init });
    }
    (Statics { id: NEXT.fetch_add(1, Relaxed), variables: out }, errors)
}

/// Bytes of `.global` or `.const` a variable may have.
const MOST_STATIC: u64 = 1 << 28;

/// An initial value as bytes.
fn encode(n: Number, ty: Type) -> Vec<u8> {
    let bits = match (n, ty) {
        (Number::Int(v), _) => v as u64,
        (Number::F32(b), Type::F64) => f64::from(f32::from_bits(b)).to_bits(),
        (Number::F32(b), _) => b.into(),
        (Number::F64(b), Type::F32) => (f64::from_bits(b) as f32).to_bits().into(),
        (Number::F64(b), _) => b,
    };
    bits.to_le_bytes()[..(ty.bytes() as usize).min(8)].to_vec()
}
