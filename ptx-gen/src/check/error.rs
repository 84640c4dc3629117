//! What can be wrong with a program, and how it is said.

use crate::ir::{At, Level, Reg};
use std::fmt;

/// Everything that is wrong with a program.
#[derive(Clone, PartialEq, Eq)]
pub struct Errors(pub Vec<BuildError>);

/// One thing that is wrong, and where.
#[derive(Clone, PartialEq, Eq)]
pub struct BuildError {
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
    /// A product of a warpgroup and other instructions are in each other's way.
    Wgmma {
        /// The instruction, as printed.
        text: String,
        /// What is wrong.
        problem: Misused,
    },
    /// The tensor map of this parameter is used for tiles of different boxes or swizzles.
    TwoTiles(&'static str),
    /// A note is not ASCII.
    NotAscii,
    /// A name that PTX does not allow.
    BadName(String),
    /// Two parameters or shared arrays have this name.
    SameName(String),
    /// More than a device has.
    Limit(String),
}

impl fmt::Display for BuildError {
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
            ErrorKind::Wgmma { text, problem } => write!(f, "`{text}`: {problem}"),
            ErrorKind::TwoTiles(param) => write!(
                f,
                "the tensor map `{param}` is used for tiles of different boxes or swizzles; a map copies one box: pass one \
                 map for each"
            ),
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
impl std::error::Error for BuildError {}
impl std::error::Error for Errors {}

/// Why a barrier's phases do not end as they should, wherever addresses lead and whatever a launch brings.
///
/// What depends on either, as most of what a ring of barriers can get wrong, the emulator finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmatched {
    /// No `mbarrier.init` makes it.
    NotMade,
    /// A count that no barrier has.
    Count(u64),
    /// A wait, and no arrival.
    NoArrival,
    /// A wait, and too few arrivals for one phase.
    TooFew {
        /// How many arrive at most.
        arrive: u64,
        /// How many end a phase at least.
        count: u64,
    },
    /// The lanes of a warp arrive at once at a barrier for fewer; its count.
    TooMany(u64),
    /// Bytes are expected, and none copied.
    NotCopied,
    /// Bytes are copied, and none expected.
    NotExpected,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unmatched::NotMade => {
                f.write_str("nothing makes this mbarrier; `init` it in one thread, before a barrier of the block")
            }
            Unmatched::Count(count) => write!(f, "a count of {count}; an mbarrier's is 1 to {MOST}"),
            Unmatched::NoArrival => {
                f.write_str("nobody arrives at this mbarrier, so that its first phase never ends; `arrive` at it")
            }
            Unmatched::TooFew { arrive, count } => write!(
                f,
                "at most {arrive} arrive at this mbarrier, and its first phase ends after {count}; `init` it for those \
                 that arrive"
            ),
            Unmatched::TooMany(count) => write!(
                f,
                "{LANES} lanes arrive at once at an mbarrier whose phase ends after {count}; let one lane arrive, or \
                 `init` it for {LANES} a warp"
            ),
            Unmatched::NotCopied => {
                f.write_str("no bulk copy brings bytes to this mbarrier, so that its phase never ends; `arrive` at it")
            }
            Unmatched::NotExpected => f.write_str(
                "nobody expects the bytes of this copy, so that the phase of its mbarrier does not end with them; \
                 `arrive_expect` them",
            ),
        }
    }
}

/// How instructions are in the way of a product that runs beside them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misused {
    /// It uses sums of a product that may be under way, which this place asked for.
    Sums(Reg, At),
    /// It changes the left matrix, in registers, of such a product.
    Left(Reg, At),
    /// A product uses a register that an instruction here has used since the last `wgmma.fence`.
    NotFenced(Reg, At),
    /// A product that nothing orders after the instructions before: there was no `wgmma.fence`.
    NeverFenced,
    /// A product that nothing waits for.
    NeverWaited,
}

impl fmt::Display for Misused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misused::Sums(reg, at) => write!(
                f,
                "{reg} is a sum of the product of line {}, which may be under way; `wgmma_wait` for its group first",
                at.line()
            ),
            Misused::Left(reg, at) => write!(
                f,
                "{reg} is the left matrix of the product of line {}, which may be under way; `wgmma_wait` for its group, \
                 or use other registers",
                at.line()
            ),
            Misused::NotFenced(reg, at) => write!(
                f,
                "{reg} was used in line {}, and no `wgmma_fence` orders this product after that; put one between",
                at.line()
            ),
            Misused::NeverFenced => {
                f.write_str("no `wgmma_fence` comes before this product; put one before the first")
            }
            Misused::NeverWaited => f.write_str(
                "the kernel may end with this product under way; `wgmma_commit` and `wgmma_wait(0)`",
            ),
        }
    }
}

/// The longest name.
pub(super) const MAX_NAME: usize = 255;

/// The most arrivals that a phase can wait for (PTX manual, "mbarrier.init").
pub(super) const MOST: u64 = (1 << 20) - 1;
/// Lanes of a warp.
pub(super) const LANES: u64 = 32;
