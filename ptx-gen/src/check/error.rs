//! Validation errors and their messages.

use crate::ir::{At, Level, Reg};
use std::fmt;

/// All errors that validation found in a program.
///
/// `Display` and `Debug` print one error per line.
#[derive(Clone, PartialEq, Eq)]
pub struct Errors(pub Vec<BuildError>);

/// One validation error and its location in the Rust source.
///
/// `Display` prints the file and the line, the problem and the remedy. The [crate page](crate)
/// shows one.
#[derive(Clone, PartialEq, Eq)]
pub struct BuildError {
    /// The call that caused the error, or `None` if the error concerns the whole kernel.
    pub at: Option<At>,
    /// The problem.
    pub kind: ErrorKind,
}

/// A problem that validation can find in a program.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A value is used outside the block that defines it.
    OutOfScope {
        /// The value.
        reg: Reg,
        /// The call that defines the value.
        defined: At,
    },
    /// An instruction that a group of threads must execute together is inside a branch that splits
    /// the group.
    Diverged {
        /// The mnemonic of the instruction.
        mnemonic: String,
        /// The group of threads that must execute it together.
        needs: Level,
        /// The branch or loop that splits the group.
        branch: At,
    },
    /// An `otherwise` is in a different block than its `when`.
    Elsewhere,
    /// An operand does not fit the instruction.
    Operand {
        /// The instruction, as printed.
        text: String,
        /// The problem with the operand.
        what: String,
    },
    /// A `griddepcontrol.wait` is in a branch or loop that a block may skip.
    MayNotWait,
    /// The kernel lets the next one start early but does not wait for the one before. The field is
    /// its name.
    NeverWaits(String),
    /// The phases of an mbarrier cannot end as the program expects.
    Mbarrier {
        /// The instruction, as printed.
        text: String,
        /// The mismatch.
        problem: Unmatched,
    },
    /// Another instruction interferes with an asynchronous matmul.
    Wgmma {
        /// The instruction, as printed.
        text: String,
        /// The interference.
        problem: Misused,
    },
    /// The tensor map of this parameter is used for different boxes or swizzles.
    TwoTiles(&'static str),
    /// A note contains a character that is not ASCII.
    NotAscii,
    /// A name is not a valid PTX identifier.
    BadName(String),
    /// Two parameters or shared arrays have this name.
    SameName(String),
    /// A limit of the hardware or of PTX is exceeded. The field is the whole message.
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
                "{reg} is used outside the block that defines it (line {}): carry it out in a `var`",
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
            ErrorKind::NotAscii => f.write_str("the note is not ASCII, which PTX requires for comments: rewrite it in ASCII"),
            ErrorKind::BadName(name) => write!(
                f,
                "`{name}` is not a PTX name: use a letter or underscore, then letters, digits, underscores and dollar \
                 signs, at most {MAX_NAME} characters"
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

/// A reason why the phases of an mbarrier cannot end, for every possible address and launch.
///
/// Problems that depend on addresses or on the launch are found by the emulator. Most errors in
/// rings of mbarriers are of that kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unmatched {
    /// No `mbarrier.init` initializes it.
    NotMade,
    /// The count is outside the range of mbarriers.
    Count(u64),
    /// A thread waits, but no thread arrives.
    NoArrival,
    /// A thread waits, but too few threads arrive to end one phase.
    TooFew {
        /// The maximum number of arrivals.
        arrive: u64,
        /// The minimum number of arrivals that ends a phase.
        count: u64,
    },
    /// All lanes of a warp arrive together at an mbarrier with this smaller count.
    TooMany(u64),
    /// Bytes are expected, but no copy brings them.
    NotCopied,
    /// A copy brings bytes that are not expected.
    NotExpected,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unmatched::NotMade => {
                f.write_str("this mbarrier is never initialized; call `init` in one thread, before a barrier of the block")
            }
            Unmatched::Count(count) => write!(f, "invalid count {count}: an mbarrier counts 1 to {MOST} arrivals"),
            Unmatched::NoArrival => {
                f.write_str("no thread arrives at this mbarrier, so its first phase never ends; call `arrive`")
            }
            Unmatched::TooFew { arrive, count } => write!(
                f,
                "at most {arrive} threads arrive at this mbarrier, but its first phase ends after {count}; `init` it \
                 with the number that arrive"
            ),
            Unmatched::TooMany(count) => write!(
                f,
                "{LANES} lanes arrive together at an mbarrier whose phase ends after {count}; let one lane arrive, or \
                 `init` it with {LANES} per warp"
            ),
            Unmatched::NotCopied => {
                f.write_str("no bulk copy brings bytes to this mbarrier, so its phase never ends; call `arrive` instead")
            }
            Unmatched::NotExpected => f.write_str(
                "the bytes of this copy are not expected, so the phase of its mbarrier does not wait for them; call \
                 `arrive_expect`",
            ),
        }
    }
}

/// An instruction that interferes with an asynchronous matmul of a warpgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Misused {
    /// The register is an accumulator of a matmul, issued at this line, that may be in flight.
    Sums(Reg, At),
    /// The register belongs to the left matrix of a matmul, issued at this line, that may be in
    /// flight, and is changed.
    Left(Reg, At),
    /// The register was used at this line since the last `wgmma.fence`, and a matmul uses it.
    NotFenced(Reg, At),
    /// No `wgmma.fence` precedes the matmul.
    NeverFenced,
    /// No instruction waits for the matmul.
    NeverWaited,
}

impl fmt::Display for Misused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misused::Sums(reg, at) => write!(
                f,
                "{reg} is an accumulator of the matmul of line {}, which may be in flight; `wgmma_wait` for its group first",
                at.line()
            ),
            Misused::Left(reg, at) => write!(
                f,
                "{reg} is in the left matrix of the matmul of line {}, which may be in flight; `wgmma_wait` for its \
                 group, or use other registers",
                at.line()
            ),
            Misused::NotFenced(reg, at) => write!(
                f,
                "{reg} was used in line {}, and no `wgmma_fence` orders this matmul after that; add one in between",
                at.line()
            ),
            Misused::NeverFenced => {
                f.write_str("no `wgmma_fence` precedes this matmul; add one before the first matmul")
            }
            Misused::NeverWaited => f.write_str(
                "the kernel may end while this matmul is in flight; call `wgmma_commit` and `wgmma_wait(0)`",
            ),
        }
    }
}

/// The maximum length of a name.
pub(super) const MAX_NAME: usize = 255;

/// The maximum number of arrivals of a phase (PTX manual, "mbarrier.init").
pub(super) const MOST: u64 = (1 << 20) - 1;
/// The number of lanes of a warp.
pub(super) const LANES: u64 = 32;
