//! What is wrong with a text, and whether the text or the emulator is to blame.

use std::fmt;

/// The cause of an error: the text, or a gap in the emulator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The reader does not understand the text. `cargo xtask forms` compares the reader with ptxas 13.5, and no form of
    /// its tables that ptxas accepts is ill-formed here.
    IllFormed,
    /// The text may be valid, but ptx-emu does not have this form, for example `tex.2d.v4.f32.f32`.
    Unsupported(String),
}

/// One error of a text.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// Whether the text is wrong, or the emulator lacks something.
    pub kind: ErrorKind,
    /// The error, and the text that was expected.
    pub what: String,
    /// The line of text, shortened when very long.
    pub text: String,
}

/// The errors of a text in order of place, at least one. `Display` writes the first twenty and the number of the others.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseErrors(pub Vec<ParseError>);

/// Why there is no kernel of a name to launch.
#[derive(Clone, PartialEq, Eq)]
pub enum KernelError {
    /// The module has no such kernel.
    NotFound {
        /// The name.
        name: String,
        /// The kernels that it has, in order of the text.
        known: Vec<String>,
    },
    /// The kernel is there and cannot run.
    Refused {
        /// The name.
        name: String,
        /// What is wrong with the kernel and the functions that it uses.
        errors: ParseErrors,
    },
}

/// Errors that `Display` writes before it only counts.
const SHOWN: usize = 20;

impl ParseErrors {
    /// Returns true if the reader does not understand the text somewhere.
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
