//! The validator: what the types cannot say. All errors at once, each with the Rust place and what to do instead.
//!
//! Five levels, each one walk:
//! - *scope*: a value is used only inside the block that defines it;
//! - *uniformity*: what a block or a warp must reach together stands in no branch that splits it, and every block
//!   of a kernel that overlaps others waits for them;
//! - *mbarriers*: what is made, arrived at, expected and copied can end the phases that are waited for;
//! - *form*: operands are what the row says, names and notes are what PTX allows;
//! - *limits*: threads, parameters and shared memory are what every device has.

mod form;
mod mbarrier;
mod noncoherent;
mod scope;
mod uniformity;

use crate::ir::*;
use std::fmt;

pub use mbarrier::Unmatched;

/// Everything that is wrong with a program.
#[derive(Clone, PartialEq, Eq)]
pub struct Errors(pub Vec<Error>);

/// One thing that is wrong, and where.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    /// The Rust place; `None` for what concerns the whole kernel.
    pub at: Option<At>,
    /// What is wrong.
    pub kind: ErrorKind,
}

/// What can be wrong with a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// A value left the block that defines it.
    OutOfScope {
        /// The value.
        reg: Reg,
        /// Where it is defined.
        defined: At,
    },
    /// An instruction that threads must reach together stands where they are apart.
    Diverged {
        /// The instruction.
        mnemonic: String,
        /// How far they must be together.
        needs: Level,
        /// The branch or loop that splits them.
        branch: At,
    },
    /// An `otherwise` is in a different block than its `when`.
    Elsewhere,
    /// An operand is not what the row says.
    Operand {
        /// The instruction, as printed.
        text: String,
        /// What is wrong with it.
        what: String,
    },
    /// A wait for the kernels before stands where a block may pass it by.
    MayNotWait,
    /// The kernel lets the next one start early, but never waits itself.
    NeverWaits(String),
    /// The phases of an mbarrier cannot end as they should.
    Mbarrier {
        /// The instruction, as printed.
        text: String,
        /// What does not match.
        problem: Unmatched,
    },
    /// A note is not ASCII.
    NotAscii,
    /// A name that PTX does not allow.
    BadName(String),
    /// Two parameters or shared arrays have this name.
    SameName(String),
    /// More than a device has.
    Limit(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = self.at {
            write!(f, "{}:{}: ", at.file(), at.line())?;
        }
        match &self.kind {
            ErrorKind::OutOfScope { reg, defined } => write!(
                f,
                "{reg} is used outside the block that defines it (line {}); carry it out in a `var`",
                defined.line()
            ),
            ErrorKind::Diverged { mnemonic, needs, branch } => write!(
                f,
                "`{mnemonic}` needs the whole {needs}, but the branch of line {} splits it; move it out, or branch \
                 on a value that is the same in the whole {needs}",
                branch.line()
            ),
            ErrorKind::Elsewhere => f.write_str(
                "this `otherwise` is in a different block than its `when`; write it right after the `when`",
            ),
            ErrorKind::Operand { text, what } => write!(f, "`{text}`: {what}"),
            ErrorKind::MayNotWait => write!(
                f,
                "a block may end without this `griddepcontrol.wait`, and the next kernel relies on every block for the \
                 kernels before; move it out of the branch or loop"
            ),
            ErrorKind::NeverWaits(kernel) => write!(
                f,
                "{kernel}: lets the next kernel start early but never waits for the one before, so the next one \
                 cannot rely on it; call `grid_wait` in every block"
            ),
            ErrorKind::Mbarrier { text, problem } => write!(f, "`{text}`: {problem}"),
            ErrorKind::NotAscii => write!(f, "PTX is ASCII, comments too: spell the note in ASCII"),
            ErrorKind::BadName(name) => write!(
                f,
                "`{name}` is no PTX name: a letter or underscore, then letters, digits, underscores and dollars, \
                 at most {MAX_NAME}"
            ),
            ErrorKind::SameName(name) => {
                write!(f, "two parameters or shared arrays are named `{name}`; rename one of them")
            }
            ErrorKind::Limit(what) => f.write_str(what),
        }
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, e) in self.0.iter().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            write!(f, "{newline}{e}")?;
        }
        Ok(())
    }
}
impl std::error::Error for Error {}
impl std::error::Error for Errors {}

const MAX_NAME: usize = 255;
/// Bytes of parameters that every target takes (PTX manual, "Kernel Function Parameters").
const MAX_PARAMS: u32 = 4352;
/// Threads that every target's multiprocessor holds (CUDA programming guide, "Compute Capabilities").
const MAX_RESIDENT: u32 = 1024;
/// Bytes of static shared memory that every target has.
const MAX_STATIC_SHARED: u32 = 48 * 1024;

/// The program, if nothing is wrong with it, nor was when it was built.
///
/// # Errors
/// Everything that is.
pub(crate) fn checked(p: Program, mut errors: Vec<Error>) -> Result<Program, Errors> {
    errors.extend(limits(&p));
    errors.extend(names(&p));
    errors.extend(form::check(&p));
    errors.extend(scope::check(&p));
    let (mut levels, found) = uniformity::check(&p);
    errors.extend(found);
    errors.extend(mbarrier::check(&p, &mut levels));
    if errors.is_empty() { Ok(p) } else { Err(Errors(errors)) }
}

/// A value for each register of a program.
struct PerRegister<T> {
    /// Where each class begins.
    starts: [usize; 5],
    values: Vec<T>,
}

impl<T: Clone> PerRegister<T> {
    fn new(p: &Program, value: T) -> Self {
        let mut starts = [0; 5];
        for class in 1..5 {
            starts[class] = starts[class - 1] + p.registers[class - 1] as usize;
        }
        let all = starts[4] + p.registers[4] as usize;
        PerRegister { starts, values: vec![value; all] }
    }

    fn at(&mut self, reg: Reg) -> &mut T {
        &mut self.values[self.starts[reg.kind.class() as usize] + reg.n as usize]
    }
}

fn limits(p: &Program) -> Vec<Error> {
    let mut errors = vec![];
    let mut whole = |fails: bool, kind: ErrorKind| {
        if fails {
            errors.push(Error { at: None, kind })
        }
    };
    let params = p.params.iter().fold(0, |at: u32, q| {
        let size = q.kind.kind().bytes();
        at.next_multiple_of(size.max(1)) + size
    });
    let shared = p.static_shared();
    whole(
        p.block == 0 || p.block > 1024 || !p.block.is_multiple_of(32),
        ErrorKind::Limit(format!(
            "{}: {} threads in a block; a multiple of 32 from 32 to 1024",
            p.name, p.block
        )),
    );
    let resident = p.blocks_per_sm.map(|blocks| blocks.saturating_mul(p.block));
    whole(
        resident.is_some_and(|threads| threads == 0 || threads > MAX_RESIDENT),
        ErrorKind::Limit(format!(
            "{}: {} threads asked for on a multiprocessor; 1 to {MAX_RESIDENT}",
            p.name,
            resident.unwrap_or_default()
        )),
    );
    whole(
        params > MAX_PARAMS,
        ErrorKind::Limit(format!("{}: {params} bytes of parameters; at most {MAX_PARAMS}", p.name)),
    );
    whole(
        shared > MAX_STATIC_SHARED,
        ErrorKind::Limit(format!(
            "{}: {shared} bytes of static shared memory; at most {MAX_STATIC_SHARED}, more is dynamic",
            p.name
        )),
    );
    errors
}

/// Names that PTX does not allow, then those that two symbols of the kernel's scope have.
fn names(p: &Program) -> Vec<Error> {
    let symbols: Vec<&str> =
        p.params.iter().map(|q| q.name).chain(p.shared.iter().map(|s| s.name.as_str())).collect();
    let bad = std::iter::once(p.name.as_str()).chain(symbols.iter().copied()).filter(|name| !is_name(name));
    let bad = bad.map(|name| ErrorKind::BadName(name.into()));
    let mut sorted = symbols.clone();
    sorted.sort_unstable();
    let same = sorted.chunk_by(|a, b| a == b).filter(|names| names.len() > 1).map(|names| names[0]);
    let same = same.map(|name| ErrorKind::SameName(name.into()));
    bad.chain(same).map(|kind| Error { at: None, kind }).collect()
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    name.len() <= MAX_NAME
        && chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$')
}
