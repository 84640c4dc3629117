//! Modules: parsed PTX text, its kernels, and its variables.

pub(crate) mod address_space;
pub(crate) mod analysis;
pub(crate) mod code;
pub(crate) mod context;
pub(crate) mod control_flow;
pub(crate) mod decode;
pub(crate) mod device_runtime;
pub(crate) mod features;
pub(crate) mod isa;
pub(crate) mod lane_mask;
pub(crate) mod parameter;
pub(crate) mod registers;
pub(crate) mod static_variables;
pub(crate) mod tensor_map;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::module::analysis::float_access::FloatAccess;
use crate::module::analysis::parameter_use::ParameterUse;
use crate::module::code::KernelCode;
pub(crate) use crate::module::context::functions::Functions;
pub(crate) use crate::module::context::symbols::layout;
use crate::module::context::unit::ModuleContext;
pub(crate) use crate::module::decode::{Decoded, decode};
use crate::module::device_runtime::linked;
use crate::module::features::Target;
use crate::module::parameter::Param;
use crate::module::static_variables::{Relocation, Static};
use crate::syntax::ast::{DeclaredSpace, Initial, Number};
use crate::syntax::parse_error::{KernelError, ParseError, ParseErrors};
use crate::syntax::types::{Type, TypeKind};
use crate::syntax::{
    At, Error, Parsed, SourceText, ast, error, listing, parser, unsupported, vector_names,
};

/// A PTX module that was parsed, checked and decoded.
///
/// # Example
/// ```
/// use ptx_emu::Module;
///
/// let module = Module::parse("
///     .version 7.0
///     .target sm_75
///     .address_size 64
///     .visible .entry nothing() { ret; }
///     .visible .entry wrong() { add.u32 %r0, %r1, 1; ret; }
/// ")?;
/// assert_eq!(module.target(), "sm_75");
/// assert!(module.kernel("nothing").is_ok());
///
/// // `wrong` uses registers that it does not declare. The other kernel still runs.
/// let refused: Vec<&str> = module.refused().map(|kernel| kernel.name.as_str()).collect();
/// assert_eq!(refused, ["wrong"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Module {
    version: (u32, u32),
    target: String,
    kernels: Vec<Arc<Kernel>>,
    refused: Vec<RefusedKernel>,
    refused_functions: Vec<RefusedFunction>,
    declaration_errors: Vec<ParseError>,
    errors: Vec<ParseError>,
    pub(crate) statics: Arc<Statics>,
}

/// A kernel (`.entry`) that can run. [`Module::kernel`] returns it.
#[derive(Debug)]
pub struct Kernel {
    /// The name of the entry.
    pub name: String,
    /// The parameters in the order of the text.
    pub params: Vec<Param>,
    /// The size of the static shared memory in bytes.
    pub static_shared: u32,
    /// The number of threads that a block must have, from `.reqntid`.
    pub reqntid: Option<[u32; 3]>,
    /// The maximum number of threads of a block, from `.maxntid`.
    pub maxntid: Option<[u32; 3]>,
    /// The number of blocks per cluster, from `.reqnctapercluster`.
    pub cluster: Option<[u32; 3]>,
    /// The number of blocks that a multiprocessor must be able to hold, from `.minnctapersm`.
    pub minnctapersm: Option<u32>,
    /// The number of declared registers in 32-bit units, without predicates.
    pub registers: u32,
    pub(crate) code: KernelCode,
    pub(crate) statics: Arc<Statics>,
}

impl Kernel {
    /// Returns a guess of how the kernel uses each parameter.
    ///
    /// The guess follows addresses through registers, but not through memory and calls.
    pub fn parameter_uses(&self) -> Vec<ParameterUse> {
        crate::module::analysis::parameter_use::parameter_uses(&self.code, &self.params)
    }

    /// Returns an access of the kernel to the memory at the address in a parameter, if its elements
    /// are certainly floats.
    ///
    /// `number` counts the parameters from 0. Returns `None` if the kernel accesses the memory with
    /// other types, too, or passes the address to a function.
    pub fn float_access(&self, number: usize) -> Option<FloatAccess> {
        crate::module::analysis::float_access::float_access(&self.code, &self.params, number)
    }

    /// Returns true if the kernel, or a function that it may call, reads a special register that
    /// depends on the number of threads in a block, for example `%tid`, `%ntid` or `%laneid`.
    pub fn reads_thread_index(&self) -> bool {
        self.code.reads_thread_index()
    }

    /// Returns true if the kernel, or a function that it may call, reads a special register that
    /// depends on the number of blocks, for example `%ctaid` or `%nctaid`.
    pub fn reads_block_index(&self) -> bool {
        self.code.reads_block_index()
    }

    /// Returns the members of a parameter that the kernel loads separately, ordered by offset.
    ///
    /// The parameter may be a structure, for example. Offsets count from the start of the
    /// parameter.
    pub fn parameter_fields(&self, number: usize) -> Vec<(Param, ParameterUse)> {
        let Some(param) = self.params.get(number) else {
            return Vec::new();
        };

        let mut fields: Vec<Param> = Vec::new();
        for (offset, size) in crate::module::analysis::parameter_use::parameter_loads(&self.code) {
            // The loads come widest first. A narrower load inside a field reads a part of that
            // field and is not a field.
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

        // The uses are found by offsets from the start of all parameters, so the offsets change
        // only afterwards.
        let uses = crate::module::analysis::parameter_use::parameter_uses(&self.code, &fields);
        for field in fields.iter_mut() {
            field.offset -= param.offset;
        }

        fields.into_iter().zip(uses).collect()
    }

    /// Returns the name of a dynamic shared variable (`.extern .shared`) that the kernel uses.
    pub fn dynamic_shared(&self) -> Option<&str> {
        self.code
            .declared_dynamic()
            .map(|region| region.name.as_str())
    }
}

/// A kernel of a module that cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedKernel {
    /// The name of the entry.
    pub name: String,
    /// The parameters that could be parsed.
    pub params: Vec<Param>,
    /// The errors of the kernel and of the functions that it uses, ordered by place.
    pub errors: ParseErrors,
}

/// A function of a module that cannot run and that no kernel calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedFunction {
    /// The name of the function.
    pub name: String,
    /// The errors of the function and of the functions that it calls, ordered by place.
    pub errors: ParseErrors,
}

/// A `.global` or `.const` variable of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name in the text.
    pub name: String,
    /// The size in bytes.
    pub bytes: u64,
}

impl Module {
    /// Parses, checks and decodes PTX text.
    ///
    /// A kernel with an error is listed in [`refused`](Module::refused), and the other kernels can
    /// run. An error in a declaration refuses only the kernels that use it. Call
    /// [`complete`](Module::complete) to require that all kernels can run.
    ///
    /// # Errors
    /// Returns all errors of the text if its header is wrong, or if there is something other than a
    /// declaration between its kernels.
    pub fn parse(text: &str) -> Result<Module, ParseErrors> {
        let text = linked(text);
        let source = SourceText::new(&text);
        build(&source).map_err(|errors| ParseErrors(source.reports(errors)))
    }

    /// Returns the module if its text has no errors.
    ///
    /// # Errors
    /// Returns all errors of the text.
    pub fn complete(self) -> Result<Module, ParseErrors> {
        if self.errors.is_empty() {
            Ok(self)
        } else {
            Err(ParseErrors(self.errors))
        }
    }

    /// Returns all errors of the text, ordered by place. They include the errors of functions and
    /// variables that no kernel uses.
    pub fn errors(&self) -> &[ParseError] {
        &self.errors
    }

    /// Returns the labels and instructions of `text` as the parser understands them, one per
    /// string.
    ///
    /// Labels end in a colon and instructions in a semicolon. Integers are decimal, and floats are
    /// `0f` with their bits. Use it to compare the parser with other tools.
    ///
    /// # Errors
    /// Returns the syntax errors of the text. Names and types are not checked.
    pub fn listing(text: &str) -> Result<Vec<String>, ParseErrors> {
        let source = SourceText::new(text);
        let names = vector_names::names(text);
        let module =
            parser::parse(text, &names).map_err(|errors| ParseErrors(source.reports(errors)))?;
        match with_syntax(module.errors.clone(), &module) {
            errors if errors.is_empty() => Ok(listing::listing(&module)),
            errors => Err(ParseErrors(source.reports(errors))),
        }
    }

    /// Returns the kernels that can run, in the order of the text.
    pub fn kernels(&self) -> impl Iterator<Item = &Arc<Kernel>> {
        self.kernels.iter()
    }

    /// Returns the kernels that cannot run, in the order of the text.
    pub fn refused(&self) -> impl Iterator<Item = &RefusedKernel> {
        self.refused.iter()
    }

    /// Returns the functions that cannot run and that no kernel calls, in the order of the text.
    pub fn refused_functions(&self) -> impl Iterator<Item = &RefusedFunction> {
        self.refused_functions.iter()
    }

    /// Returns the errors outside of kernels and functions, ordered by place. A kernel that uses a
    /// broken declaration is refused.
    pub fn declaration_errors(&self) -> &[ParseError] {
        &self.declaration_errors
    }

    /// Returns the kernel with the name `name`.
    ///
    /// # Errors
    /// - [`KernelError::NotFound`] if the module has no such kernel.
    /// - [`KernelError::Refused`] if the kernel cannot run.
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

    /// Returns the major and the minor number of `.version`, for example `(7, 0)`.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Returns the architecture in `.target`, for example `sm_80`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the `.global` and `.const` variables of the module.
    ///
    /// Shared variables are not included, because they exist once per block.
    pub fn variables(&self) -> impl Iterator<Item = Variable> {
        let own = self.statics.variables.iter().filter(|v| !v.shared);
        own.map(|v| Variable {
            name: v.name.clone(),
            bytes: v.bytes,
        })
    }
}

/// The variables of a module, and the number of the module.
#[derive(Debug)]
pub(crate) struct Statics {
    pub(crate) id: u64,
    pub(crate) variables: Vec<Static>,
}

/// Decodes a module.
///
/// An error in a declaration makes the name unknown, so that only kernels that mention it are
/// refused. Only errors in the header, and text between declarations, make the whole module
/// unusable.
fn build(source: &SourceText<'_>) -> Result<Module, Vec<Error>> {
    let names = vector_names::names(source.text);
    let mut ast = parser::parse(source.text, &names)?;

    // An external declaration next to a definition would otherwise count as a second definition.
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

    // A name with two definitions is unknown to the kernels, because no caller can tell which is
    // meant.
    ast.functions.retain(|function| !double(function.name));
    let mut variables = std::mem::take(&mut ast.variables);
    variables.retain(|v| !double(v.name));

    // Memory identifies the variables of a module by this number, so it must be unique in the
    // process.
    let id = NEXT.fetch_add(1, Relaxed);
    let functions = Functions::new(id, &ast, &variables);
    let (statics, of_variables) = statics(id, &mut variables, &functions, &mut broken);
    let statics = Arc::new(statics);
    let mut of_module = errors;
    of_module.extend(of_variables);
    of_module.extend(doubles.iter().map(|double| double.error.clone()));
    let common = ModuleContext {
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
        let name = entry.name.into();
        let params = decoded.params;
        refused.push(RefusedKernel {
            name,
            params,
            errors: ParseErrors(source.reports(own)),
        });
    }

    let mut refused_functions = Vec::new();

    // A function that no kernel reaches was not decoded yet, but its errors must be reported as
    // well.
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

/// Removes the declarations of variables that the module also defines.
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

/// Returns the target, or the errors of the header.
fn target(ast: &ast::Module<'_>) -> (Option<Target>, Vec<Error>) {
    let fail = |at, what| (None, vec![Error::ill_formed(at, what)]);
    // If the parser reported errors, they already explain a missing directive.
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

/// Adds the syntax errors of kernels, because kernels cannot be decoded without a target.
fn with_syntax(mut errors: Vec<Error>, ast: &ast::Module<'_>) -> Vec<Error> {
    let entries = ast.entries.iter().chain(&ast.functions);
    errors.extend(entries.flat_map(|entry| entry.errors.iter().cloned()));
    errors
}

/// A second definition of a name.
struct Double<'a> {
    name: &'a str,
    /// Whether one of the definitions is a kernel.
    kernel: bool,
    error: Error,
}

/// Returns the variables, kernels and functions that have the same name as an earlier one.
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

    // The first definition is kept. The error is reported at each later one.
    let again = all.filter(|(_, name, _)| !names.insert(*name));
    let double = |(kind, name, at)| {
        let kernel = ast.entries.iter().any(|entry| entry.name == name);
        Double {
            name,
            kernel,
            error: Error::ill_formed(at, format!("{kind} `{name}` is defined twice")),
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

/// The number of the next module.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Lays out the variables of a module. Shared variables are empty, so that the numbering stays the
/// same.
///
/// A variable with an error is removed, and its name is added to `broken`.
fn statics<'a>(
    id: u64,
    variables: &mut Vec<ast::DeclaredVariable<'a>>,
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
                    // An initial value that names a broken variable is not a second error.
                    let follows = e
                        .what
                        .split('`')
                        .skip(1)
                        .step_by(2)
                        .any(|name| known.contains(name));
                    if !follows {
                        errors.push(e);
                    }
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

        // A removed variable changes the numbers of the following ones, so all variables are laid
        // out again.
        variables.retain(|v| !wrong.contains(v.name));
        broken.extend(wrong);
    }
}

/// Returns the initial bytes of a variable.
fn allocation(
    v: &ast::DeclaredVariable<'_>,
    variables: &[ast::DeclaredVariable<'_>],
    functions: &Functions<'_>,
) -> Parsed<Static> {
    let constant = v.space == DeclaredSpace::Const;
    let shared = v.space == DeclaredSpace::Shared;
    let mut made = Static {
        name: v.name.into(),
        constant,
        shared,
        bytes: 0,
        init: Vec::new(),
        addresses: Vec::new(),
    };

    // Shared memory has a layout per kernel and no initial values, so it takes no space here.
    if shared {
        return Ok(made);
    }

    if v.external {
        return unsupported(
            v.at,
            format!("`{}`, a variable that another text defines", v.name),
        );
    }

    if v.count.is_none() || v.space == DeclaredSpace::Local {
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

/// Appends an initial value to a variable.
fn initialize(
    to: &mut Static,
    initial: &Initial<'_>,
    v: &ast::DeclaredVariable<'_>,
    variables: &[ast::DeclaredVariable<'_>],
    functions: &Functions<'_>,
) -> Parsed<()> {
    let ty = v.ty;
    let (name, at, offset, mask) = match *initial {
        Initial::Number(n) => {
            to.init.extend(encode(n, ty, v.at)?);
            return Ok(());
        }
        Initial::Zeros(count) => {
            // The caller compares the size afterwards, so the value must not grow far beyond it.
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
        && !matches!(v.space, DeclaredSpace::Global | DeclaredSpace::Const)
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
    if ty.bytes() < 4 && mask == u64::MAX || ty.kind() == TypeKind::Float {
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

/// The maximum size of a `.global` or `.const` variable in bytes.
const MOST_STATIC: u64 = 1 << 28;

/// Returns an initial value as bytes.
fn encode(n: Number, ty: Type, at: At) -> Parsed<Vec<u8>> {
    let integer = matches!(
        ty.kind(),
        TypeKind::Bits | TypeKind::Unsigned | TypeKind::Signed
    );
    let bits = match (n, ty) {
        (Number::Int(v), _) if integer && ty.bits() <= 64 => v as u64,
        (Number::F32(b), Type::F32 | Type::B32) => b.into(),
        (Number::F64(b), Type::F32 | Type::B32) => (f64::from_bits(b) as f32).to_bits().into(),
        (Number::F64(b), Type::F64 | Type::B64) => b,
        // ptxas 13.5 stores the bits of the `f32` without conversion, which the manual does not
        // mention.
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
