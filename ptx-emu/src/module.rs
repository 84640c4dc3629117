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
use crate::parse::{At, Error, Parsed, Source, error, listing, parser, unsupported, vectors};
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
    refused_functions: Vec<RefusedFunction>,
    declaration_errors: Vec<ParseError>,
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
        let Some(param) = self.params.get(number) else {
            return Vec::new();
        };
        let mut fields: Vec<Param> = Vec::new();
        for (offset, size) in crate::exec::parameter_loads(&self.code) {
            let inside = offset >= param.offset && offset + size <= param.offset + param.size;
            let free = fields
                .iter()
                .all(|f| offset + size <= f.offset || f.offset + f.size <= offset);
            if inside && free {
                let name = format!("{}_{}", param.name, offset - param.offset);
                fields.push(Param {
                    name,
                    ty: format!(".b{}", 8 * size),
                    offset,
                    size,
                    align: size,
                });
            }
        }
        fields.sort_by_key(|field| field.offset);
        let uses = crate::exec::parameter_uses(&self.code, &fields);
        fields
            .iter_mut()
            .for_each(|field| field.offset -= param.offset);
        fields.into_iter().zip(uses).collect()
    }

    /// Returns the name of a variable of dynamic shared memory (`.extern .shared`) that the kernel uses, if there is one.
    pub fn dynamic_shared(&self) -> Option<&str> {
        self.code
            .declared_dynamic()
            .map(|region| region.name.as_str())
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

/// A function of a module that cannot run and that no kernel calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedFunction {
    /// Name of the function.
    pub name: String,
    /// Errors of the function and of the functions that it calls, in order of place.
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
    /// A kernel that cannot run keeps its errors, and the others run: see [`refused`](Module::refused). A declaration
    /// with an error refuses only the kernels that use it. [`complete`](Module::complete) asks for all of them.
    ///
    /// # Errors
    /// Returns all errors of the text if its header is wrong, or if something other than a declaration is between its
    /// kernels.
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
        if self.errors.is_empty() {
            Ok(self)
        } else {
            Err(ParseErrors(self.errors))
        }
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
        let module =
            parser::parse(text, &names).map_err(|errors| ParseErrors(source.reports(errors)))?;
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

    /// The functions that cannot run and that no kernel calls, in order of the text.
    pub fn refused_functions(&self) -> impl Iterator<Item = &RefusedFunction> {
        self.refused_functions.iter()
    }

    /// The errors outside of kernels and functions, in order of place. A kernel that uses what one of them declares is
    /// refused.
    pub fn declaration_errors(&self) -> &[ParseError] {
        &self.declaration_errors
    }

    /// The kernel called `name`.
    ///
    /// # Errors
    /// There is none, or it cannot run, and why.
    pub fn kernel(&self, name: &str) -> Result<&Arc<Kernel>, KernelError> {
        let refused = || self.refused.iter().find(|k| k.name == name);
        self.kernels
            .iter()
            .find(|k| k.name == name)
            .ok_or_else(|| match refused() {
                Some(k) => KernelError::Refused {
                    name: name.into(),
                    errors: k.errors.clone(),
                },
                None => {
                    let known = self.kernels.iter().map(|k| k.name.clone()).collect();
                    KernelError::NotFound {
                        name: name.into(),
                        known,
                    }
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
        own.map(|v| Variable {
            name: v.name.clone(),
            bytes: v.bytes,
        })
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
    pub fn address_on(
        &self,
        device: u32,
        memory: &Memory,
        name: &str,
    ) -> Result<Option<u64>, MemoryError> {
        let found = self
            .statics
            .variables
            .iter()
            .position(|v| v.name == name && !v.shared);
        let Some(index) = found else { return Ok(None) };
        Ok(Some(
            memory.statics(device, self.statics.id, &self.statics.variables)?[index],
        ))
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

/// Decodes a module.
///
/// An error in a declaration concerns only those who use it: the name becomes unknown, and a kernel that mentions it is
/// refused. Only errors in the header, and text between declarations, make the whole module unusable.
fn build(source: &Source<'_>) -> Result<Module, Vec<Error>> {
    let names = vectors::names(source.text);
    let mut ast = parser::parse(source.text, &names)?;
    forget_declared(&mut ast);
    let (target, mut errors) = target(&ast);
    errors.extend(ast.errors.iter().cloned());
    let Some(target) = target.filter(|_| !ast.unusable) else {
        return Err(with_syntax(errors, &ast));
    };
    let doubles = doubles(&ast);
    let double = |name: &str| doubles.iter().any(|double| double.name == name);
    let mut broken = std::mem::take(&mut ast.broken);
    broken.extend(
        doubles
            .iter()
            .filter(|double| !double.kernel)
            .map(|double| double.name),
    );
    ast.functions.retain(|function| !double(function.name));
    let mut variables = std::mem::take(&mut ast.variables);
    variables.retain(|v| !double(v.name));
    let id = NEXT.fetch_add(1, Relaxed);
    let functions = Functions::new(id, &ast, &variables);
    let (statics, of_variables) = statics(id, &mut variables, &functions, &mut broken);
    let statics = Arc::new(statics);
    let mut of_module = errors;
    of_module.extend(of_variables);
    of_module.extend(doubles.iter().map(|double| double.error.clone()));
    let common = Common {
        source,
        files: &ast.files,
        target,
        variables: &variables,
        functions,
        broken: &broken,
    };
    let version = common.target.version;
    let mut kernels = Vec::new();
    let mut refused = Vec::new();
    let mut reached = HashSet::new();
    let mut errors = Vec::new();
    for entry in &ast.entries {
        let mut decoded = decode(&common, entry);
        reached.extend(decoded.reached.iter().copied());
        let mut own = std::mem::take(&mut decoded.errors);
        let twice = doubles
            .iter()
            .filter(|double| double.kernel && double.name == entry.name);
        own.extend(twice.map(|double| double.error.clone()));
        if own.is_empty() {
            kernels.push(Arc::new(kernel(entry, decoded, &statics)));
            continue;
        }
        errors.extend(own.iter().cloned());
        let (name, params) = (entry.name.into(), decoded.params);
        refused.push(RefusedKernel {
            name,
            params,
            errors: ParseErrors(source.reports(own)),
        });
    }
    let mut refused_functions = Vec::new();
    for (number, function) in (0..).zip(&common.functions.defined) {
        if reached.contains(&number) {
            continue;
        }
        let own = decode(&common, function).errors;
        if !own.is_empty() {
            errors.extend(own.iter().cloned());
            let errors = ParseErrors(source.reports(own));
            refused_functions.push(RefusedFunction {
                name: function.name.into(),
                errors,
            });
        }
    }
    let target = ast.target.map_or("", |(name, _)| name).into();
    errors.extend(of_module.iter().cloned());
    Ok(Module {
        version,
        target,
        kernels,
        refused,
        refused_functions,
        declaration_errors: source.reports(of_module),
        errors: source.reports(errors),
        statics,
    })
}

/// Leaves out declarations of variables that the module defines, too.
fn forget_declared(ast: &mut ast::Module<'_>) {
    let defined: HashSet<&str> = ast
        .variables
        .iter()
        .filter(|v| !v.external)
        .map(|v| v.name)
        .collect();
    ast.variables
        .retain(|v| !v.external || !defined.contains(v.name));
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

/// A name that is defined twice.
struct Double<'a> {
    name: &'a str,
    /// Whether a kernel is among the definitions.
    kernel: bool,
    error: Error,
}

/// Finds the variables, kernels and functions that have the name of another before them.
fn doubles<'a>(ast: &ast::Module<'a>) -> Vec<Double<'a>> {
    let mut names = HashSet::new();
    let variables = ast
        .variables
        .iter()
        .filter(|v| !v.external)
        .map(|v| ("variable", v.name, v.at));
    let defined = ast
        .entries
        .iter()
        .chain(ast.functions.iter().filter(|f| f.defined));
    let kind = |e: &ast::Entry<'_>| if e.function { "function" } else { "kernel" };
    let all = variables.chain(defined.map(|e| (kind(e), e.name, e.at)));
    let again = all.filter(|(_, name, _)| !names.insert(*name));
    let double = |(kind, name, at)| {
        let kernel = ast.entries.iter().any(|entry| entry.name == name);
        Double {
            name,
            kernel,
            error: Error {
                at,
                what: format!("{kind} `{name}` is defined twice"),
            },
        }
    };
    again.map(double).collect()
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

/// Lays out the variables of a module. Shared ones are empty, so that numbers agree.
///
/// A variable with an error is removed, and its name is added to `broken`.
fn statics<'a>(
    id: u64,
    variables: &mut Vec<ast::Variable<'a>>,
    functions: &Functions<'_>,
    broken: &mut Vec<&'a str>,
) -> (Statics, Vec<Error>) {
    let mut errors = Vec::new();
    loop {
        let known: HashSet<&str> = broken.iter().copied().collect();
        let mut wrong = HashSet::new();
        let mut made = Vec::new();
        for v in variables.iter() {
            match allocation(v, variables, functions) {
                Ok(one) => made.push(one),
                Err(e) => {
                    wrong.insert(v.name);
                    // An initial value that names a broken variable is not another error.
                    let follows = e
                        .what
                        .split('`')
                        .skip(1)
                        .step_by(2)
                        .any(|name| known.contains(name));
                    errors.extend((!follows).then_some(e));
                }
            }
        }
        if wrong.is_empty() {
            return (
                Statics {
                    id,
                    variables: made,
                },
                errors,
            );
        }
        // Numbers of variables change with each that is removed, so that all others are laid out again.
        variables.retain(|v| !wrong.contains(v.name));
        broken.extend(wrong);
    }
}

/// Returns the bytes of a variable before a kernel runs.
fn allocation(
    v: &ast::Variable<'_>,
    variables: &[ast::Variable<'_>],
    functions: &Functions<'_>,
) -> Parsed<Static> {
    let constant = v.space == StateSpace::Const;
    let shared = v.space == StateSpace::Shared;
    let mut made = Static {
        name: v.name.into(),
        constant,
        shared,
        bytes: 0,
        init: Vec::new(),
        addresses: Vec::new(),
    };
    if shared {
        return Ok(made);
    }
    if v.external {
        return unsupported(
            v.at,
            format!("`{}`, a variable that another text defines", v.name),
        );
    }
    if v.count.is_none() || v.space == StateSpace::Local {
        return error(
            v.at,
            format!("`{}`: this variable has no definition here", v.name),
        );
    }
    let Some((bytes, _)) = layout(v).filter(|(bytes, _)| *bytes <= MOST_STATIC) else {
        return unsupported(
            v.at,
            format!("`{}`, a variable of more than {MOST_STATIC} bytes", v.name),
        );
    };
    made.bytes = bytes;
    for initial in &v.init {
        initialize(&mut made, initial, v, variables, functions)?;
        if made.init.len() as u64 > bytes {
            return error(
                v.at,
                format!("`{}` has more initial values than elements", v.name),
            );
        }
    }
    Ok(made)
}

/// Adds an initial value to a variable.
fn initialize(
    to: &mut Static,
    initial: &Initial<'_>,
    v: &ast::Variable<'_>,
    variables: &[ast::Variable<'_>],
    functions: &Functions<'_>,
) -> Parsed<()> {
    let ty = v.ty;
    let (name, at, offset, mask) = match *initial {
        Initial::Number(n) => {
            to.init.extend(encode(n, ty, v.at)?);
            return Ok(());
        }
        Initial::Zeros(count) => {
            // The caller compares the size afterwards, so it may not grow beyond that.
            let bytes = count.saturating_mul(ty.bytes().into()).min(to.bytes + 1);
            to.init.extend(std::iter::repeat_n(0, bytes as usize));
            return Ok(());
        }
        Initial::Address {
            name,
            at,
            offset,
            mask,
        } => (name, at, offset, mask),
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
        (None, None) if functions.knows(name) => {
            return unsupported(
                at,
                format!("the address of `{name}`, which this text does not define"),
            );
        }
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

/// Returns an initial value as bytes.
fn encode(n: Number, ty: Type, at: At) -> Parsed<Vec<u8>> {
    let integer = matches!(ty.kind(), Kind::Bits | Kind::Unsigned | Kind::Signed);
    let bits = match (n, ty) {
        (Number::Int(v), _) if integer && ty.bits() <= 64 => v as u64,
        (Number::F32(b), Type::F32 | Type::B32) => b.into(),
        (Number::F64(b), Type::F32 | Type::B32) => (f64::from_bits(b) as f32).to_bits().into(),
        (Number::F64(b), Type::F64 | Type::B64) => b,
        // ptxas 13.5 stores the bits of the single without conversion, which no manual says.
        (Number::F32(_), Type::F64 | Type::B64) => {
            return unsupported(
                at,
                format!("a hexadecimal single as the initial value of a {ty} variable"),
            );
        }
        (Number::F32(_) | Number::F64(_), Type::B8 | Type::B16 | Type::B128)
        | (Number::Int(_), Type::B128) => {
            return unsupported(at, format!("this initial value of a {ty} variable"));
        }
        (Number::Int(_), _) => {
            return error(
                at,
                format!("an integer as the initial value of a {ty} variable"),
            );
        }
        _ => {
            return error(
                at,
                format!("a float as the initial value of a {ty} variable"),
            );
        }
    };
    Ok(bits.to_le_bytes()[..ty.bytes() as usize].to_vec())
}
