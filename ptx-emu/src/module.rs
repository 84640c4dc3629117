//! A parsed module and its kernels.

use std::fmt;
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

/// A PTX module: parsed, verified and decoded.
#[derive(Debug)]
pub struct Module {
    version: (u32, u32),
    target: String,
    kernels: Vec<Arc<Kernel>>,
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

/// One thing wrong with the text.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// What is wrong and what would be right.
    pub what: String,
    /// The line of text, shortened when very long.
    pub text: String,
}

/// Everything wrong with the text, in order of place; never empty.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseErrors(pub Vec<ParseError>);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}\n    {}", self.line, self.column, self.what, self.text)
    }
}

impl fmt::Display for ParseErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for ParseError {}
impl std::error::Error for ParseErrors {}

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
    /// # Errors
    /// Everything wrong with the text, each with line and column; at most some twenty.
    pub fn parse(text: &str) -> Result<Module, ParseErrors> {
        let source = Source::new(text);
        build(&source).map_err(|mut errors| {
            errors.sort_by_key(|e| e.at);
            ParseErrors(errors.iter().map(|e| source.report(e)).collect())
        })
    }

    /// The labels and instructions of `text` as the parser understood them, one a string, written from its syntax
    /// tree: labels end in a colon, instructions in a semicolon; integers are decimal, floats `0f` and their bits.
    ///
    /// # Errors
    /// As [`parse`](Module::parse), but only for syntax.
    pub fn listing(text: &str) -> Result<Vec<String>, ParseErrors> {
        let source = Source::new(text);
        let module = parser::parse(text).map_err(|errors| errors.iter().map(|e| source.report(e)).collect());
        module.map(|module| listing::listing(&module)).map_err(ParseErrors)
    }

    /// The kernels in order of the text.
    pub fn kernels(&self) -> impl Iterator<Item = &Arc<Kernel>> {
        self.kernels.iter()
    }

    /// The kernel called `name`.
    pub fn kernel(&self, name: &str) -> Option<&Arc<Kernel>> {
        self.kernels.iter().find(|k| k.name == name)
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
    let fail = |at, what| Err(vec![Error { at, what }]);
    let Some((version, at)) = ast.version else { return fail(0, "no `.version` directive".into()) };
    let Some((name, target_at)) = ast.target else {
        return fail(at, "no `.target` directive after `.version`".into());
    };
    let target = match Target::new(version, name) {
        Ok(target) => target,
        Err(what) => return fail(target_at, what),
    };
    let (statics, mut errors) = statics(&ast.variables);
    let statics = Arc::new(statics);
    let common = Common {
        source,
        files: &ast.files,
        target,
        variables: &ast.variables,
        sets_conditions: ast.sets_conditions,
    };
    let mut kernels: Vec<Arc<Kernel>> = Vec::new();
    for entry in &ast.entries {
        if kernels.iter().any(|k| k.name == entry.name) {
            errors.push(Error { at: entry.at, what: format!("kernel `{}` is defined twice", entry.name) });
        }
        match decode(&common, entry) {
            Ok(decoded) => kernels.push(Arc::new(kernel(entry, decoded, &statics))),
            Err(more) => errors.extend(more),
        }
    }
    if errors.is_empty() {
        Ok(Module { version, target: name.into(), kernels, statics })
    } else {
        Err(errors)
    }
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
