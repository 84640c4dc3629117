//! Errors in PTX text, and errors that a kernel cannot be launched.

use std::fmt;

/// The cause of an error: invalid text, or a form that the emulator does not implement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The text is not understood.
    ///
    /// `cargo xtask forms` compares the parser with ptxas 13.5. No form in its tables that ptxas
    /// accepts is ill-formed here.
    IllFormed,
    /// The text may be valid, but the emulator does not implement this form, for example
    /// `tex.2d.v4.f32.f32`.
    Unsupported(String),
}

/// One error in a text.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The line, starting at 1.
    pub line: u32,
    /// The column, starting at 1.
    pub column: u32,
    /// The cause of the error.
    pub kind: ErrorKind,
    /// The description of the error, and the text that was expected.
    pub what: String,
    /// The line of the text, shortened if it is very long.
    pub text: String,
}

/// The errors in a text, ordered by place. There is at least one.
///
/// `Display` prints the first twenty errors and the number of the others.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseErrors(pub Vec<ParseError>);

/// The reason why [`Module::kernel`](crate::Module::kernel) does not return a kernel.
#[derive(Clone, PartialEq, Eq)]
pub enum KernelError {
    /// The module has no kernel with this name.
    NotFound {
        /// The name.
        name: String,
        /// The names of the kernels in the module, in the order of the text.
        known: Vec<String>,
    },
    /// The kernel exists and cannot run.
    Refused {
        /// The name.
        name: String,
        /// The errors in the kernel and in the functions that it uses.
        errors: ParseErrors,
    },
}

/// The maximum number of errors that `Display` prints.
const SHOWN: usize = 20;

impl ParseErrors {
    /// Returns true if one of the errors is [`ErrorKind::IllFormed`].
    pub fn is_ill_formed(&self) -> bool {
        self.0
            .iter()
            .any(|error| error.kind == ErrorKind::IllFormed)
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}, column {}: {}\n    {}",
            self.line, self.column, self.what, self.text
        )
    }
}

impl fmt::Display for ParseErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{error}", if i == 0 { "" } else { "\n" })?;
        }
        match self.0.len().checked_sub(SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, "\nand {more} more"),
        }
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelError::NotFound { name, known } if known.is_empty() => {
                write!(
                    f,
                    "there is no kernel {name}; the module has none that can run"
                )
            }
            KernelError::NotFound { name, known } => {
                write!(
                    f,
                    "there is no kernel {name}; the module has {}",
                    known.join(", ")
                )
            }
            KernelError::Refused { name, errors } => {
                write!(f, "kernel {name} cannot run here:\n{errors}")
            }
        }
    }
}

impl std::error::Error for ParseError {}
impl std::error::Error for ParseErrors {}
impl std::error::Error for KernelError {}
