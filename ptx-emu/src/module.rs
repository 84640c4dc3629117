//! A parsed module and its kernels.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::code::Code;
use crate::decode::{Common, Decoded, Functions, decode, layout};
use crate::exec::ParameterUse;
use crate::features::Target;
use crate::memory::Memory;
use crate::memory_error::MemoryError;
use crate::parse::ast::{self, Initial, Number, StateSpace};
use crate::parse::types::{Kind, Type};
use crate::parse::{Error, Parsed, Source, error, listing, parser, vectors};
use crate::parse_error::{KernelError, ParseError, ParseErrors};
use crate::runtime::linked;
use crate::statics::{Relocation, Static};

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

impl Kernel {
    /// Returns how the kernel uses each of its parameters, as far as its instructions show it. This is a guess: it does not
    /// follow addresses through memory and calls.
    pub fn parameter_uses(&self) -> Vec<ParameterUse> {
        crate::exec::parameter_uses(&self.code, &self.params)
    }

    /// Returns the parts of a parameter that the kernel loads separately, such as the members of a structure, in order of
    /// their offsets. The offsets count from the start of the parameter.
    pub fn parameter_fields(&self, number: usize) -> Vec<(Param, ParameterUse)> {
        let Some(param) = self.params.get(number) else { return Vec::new() };
        let mut fields: Vec<Param> = Vec::new();
        for (offset, size) in crate::exec::parameter_loads(&self.code) {
            let inside = offset >= param.offset && offset + size <= param.offset + param.size;
            let free = fields.iter().all(|f| offset + size <= f.offset || f.offset + f.size <= offset);
            if inside && free {
                let name = format!("{}_{}", param.name, offset - param.offset);
                fields.push(Param { name, ty: format!(".b{}", 8 * size), offset, size, align: size });
            }
        }
        fields.sort_by_key(|field| field.offset);
        let uses = crate::exec::parameter_uses(&self.code, &fields);
        fields.iter_mut().for_each(|field| field.offset -= param.offset);
        fields.into_iter().zip(uses).collect()
    }

    /// Returns the name of a variable of dynamic shared memory (`.extern .shared`) that the kernel uses, if there is one.
    pub fn dynamic_shared(&self) -> Option<&str> {
        self.code.declared_dynamic().map(|region| region.name.as_str())
    }
}

/// One kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name in the text.
    pub name: String,
    /// Type in the text, such as `.u64` or `.b8[24]`.
    pub ty: String,
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
        let text = linked(text);
        let source = Source::new(&text);
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
        let names = vectors::names(text);
        let module = parser::parse(text, &names).map_err(|errors| ParseErrors(source.reports(errors)))?;
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
        let own = self.statics.variables.iter().filter(|v| !v.shared);
        own.map(|v| Variable { name: v.name.clone(), bytes: v.bytes })
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
        let found = self.statics.variables.iter().position(|v| v.name == name && !v.shared);
        let Some(index) = found else { return Ok(None) };
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
    let names = vectors::names(source.text);
    let mut ast = parser::parse(source.text, &names)?;
    forget_declared(&mut ast);
    let (target, mut errors) = target(&ast);
    let id = NEXT.fetch_add(1, Relaxed);
    let functions = Functions::new(id, &ast);
    let (statics, of_variables) = statics(id, &ast.variables, &functions);
    let statics = Arc::new(statics);
    errors.extend(of_variables);
    errors.extend(ast.errors.iter().cloned());
    errors.extend(doubles(&ast));
    let Some(target) = target else { return Err(with_syntax(errors, &ast)) };
    let common = Common {
        source,
        files: &ast.files,
        target,
        variables: &ast.variables,
        functions,
        broken: &ast.broken,
    };
    let (version, wrong) = (common.target.version, errors.iter().any(Error::is_ill_formed));
    let (mut kernels, mut refused, mut reached) = (Vec::new(), Vec::new(), HashSet::new());
    for entry in &ast.entries {
        let mut decoded = decode(&common, entry);
        reached.extend(decoded.reached.iter().copied());
        let own = std::mem::take(&mut decoded.errors);
        if own.is_empty() {
            kernels.push(Arc::new(kernel(entry, decoded, &statics)));
            continue;
        }
        errors.extend(own.iter().cloned());
        let (name, params) = (entry.name.into(), decoded.params);
        refused.push(RefusedKernel { name, params, errors: ParseErrors(source.reports(own)) });
    }
    let functions = (0..).zip(&common.functions.defined).filter(|(number, _)| !reached.contains(number));
    errors.extend(functions.flat_map(|(_, function)| decode(&common, function).errors));
    if wrong {
        return Err(errors);
    }
    let target = ast.target.map_or("", |(name, _)| name).into();
    Ok(Module { version, target, kernels, refused, errors: source.reports(errors), statics })
}

/// Leaves out declarations of variables that the module defines, too.
fn forget_declared(ast: &mut ast::Module<'_>) {
    let defined: HashSet<&str> = ast.variables.iter().filter(|v| !v.external).map(|v| v.name).collect();
    ast.variables.retain(|v| !v.external || !defined.contains(v.name));
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
    let entries = ast.entries.iter().chain(&ast.functions);
    errors.extend(entries.flat_map(|entry| entry.errors.iter().cloned()));
    errors
}

/// Variables, kernels and functions that have the name of another before them.
fn doubles(ast: &ast::Module<'_>) -> Vec<Error> {
    let mut names = HashSet::new();
    let variables = ast.variables.iter().filter(|v| !v.external).map(|v| ("variable", v.name, v.at));
    let defined = ast.entries.iter().chain(ast.functions.iter().filter(|f| f.defined));
    let kind = |e: &ast::Entry<'_>| if e.function { "function" } else { "kernel" };
    let all = variables.chain(defined.map(|e| (kind(e), e.name, e.at)));
    let again = all.filter(|(_, name, _)| !names.insert(*name));
    again.map(|(kind, name, at)| Error { at, what: format!("{kind} `{name}` is defined twice") }).collect()
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

/// Numbers of modules.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The variables of a module, shared ones left out (empty, so that numbers agree).
fn statics(id: u64, variables: &[ast::Variable<'_>], functions: &Functions<'_>) -> (Statics, Vec<Error>) {
    let mut errors = Vec::new();
    let mut out = Vec::new();
    for v in variables {
        let shared = v.space == StateSpace::Shared;
        let bytes =
            if shared { Some(0) } else { layout(v).map(|(bytes, _)| bytes).filter(|b| *b <= MOST_STATIC) };
        let bytes = bytes.unwrap_or_else(|| {
            errors.push(Error { at: v.at, what: format!("`{}` has more than {MOST_STATIC} bytes", v.name) });
            0
        });
        if !shared && (v.external || v.count.is_none() || v.space == StateSpace::Local) {
            errors.push(Error {
                at: v.at,
                what: format!("`{}`: this variable has no definition here", v.name),
            });
        }
        let (name, constant) = (v.name.into(), v.space == StateSpace::Const);
        let mut made = Static { name, constant, shared, bytes, init: Vec::new(), addresses: Vec::new() };
        for initial in v.init.iter().filter(|_| !shared) {
            errors.extend(initialise(&mut made, initial, v.ty, variables, functions).err());
        }
        if made.init.len() as u64 > bytes && !shared {
            errors.push(Error {
                at: v.at,
                what: format!("`{}` has more initial values than elements", v.name),
            });
            made.addresses.clear();
        }
        out.push(made);
    }
    (Statics { id, variables: out }, errors)
}

/// Adds an initial value to a variable of elements of a type.
fn initialise(
    to: &mut Static,
    initial: &Initial<'_>,
    ty: Type,
    variables: &[ast::Variable<'_>],
    functions: &Functions<'_>,
) -> Parsed<()> {
    let (name, at, offset, mask) = match *initial {
        Initial::Number(n) => {
            to.init.extend(encode(n, ty));
            return Ok(());
        }
        Initial::Address { name, at, offset, mask } => (name, at, offset, mask),
    };
    let variable = variables.iter().position(|v| v.name == name);
    if let Some(v) = variable.map(|i| &variables[i])
        && !matches!(v.space, StateSpace::Global | StateSpace::Const)
    {
        return error(
            at,
            format!("`{name}` has no address before a kernel runs: only .global and .const have"),
        );
    }
    let base = match (variable, functions.address(name)) {
        (None, None) => return error(at, format!("there is no variable or function `{name}`")),
        (None, Some(address)) => address,
        _ => 0,
    };
    if ty.bytes() < 4 && mask == u64::MAX || ty.kind() == Kind::Float {
        return error(at, format!("an address does not fit {ty}"));
    }
    to.addresses.push(Relocation {
        offset: to.init.len() as u64,
        bytes: ty.bytes().min(8),
        variable: variable.map(|i| i as u32),
        added: base.wrapping_add_signed(offset),
        mask,
    });
    to.init.extend(std::iter::repeat_n(0, ty.bytes() as usize));
    Ok(())
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
