//! Errors of the program: each is one sentence on stderr and an exit code.

use std::io;
use std::process::ExitCode;

use crate::terminal::say;

/// The reason why the program ends early. Each variant has its own exit code or way to report.
#[derive(Debug)]
pub enum Failure {
    /// An error while running, for example of the device or the disk. Exit code 1.
    Runtime(String),
    /// Arguments or an input file that cannot be used. Exit code 2.
    Input(String),
    /// A failure that the output has already reported. Exit code 1.
    Shown,
    /// A signal with this number. Exit code 128 plus the number, as in a shell.
    Interrupted(i32),
    /// A closed standard output, for example of `| head`. It is not an error, so the exit code is
    /// 0.
    Closed,
}

impl Failure {
    /// Returns the error message, if the failure has one.
    pub fn sentence(&self) -> Option<&str> {
        match self {
            Failure::Runtime(sentence) | Failure::Input(sentence) => Some(sentence),
            Failure::Shown | Failure::Interrupted(_) | Failure::Closed => None,
        }
    }

    /// Prints the error message to stderr and returns the exit code.
    pub fn report(self) -> ExitCode {
        if let Some(sentence) = self.sentence() {
            say(format!("error: {sentence}"));
        }
        ExitCode::from(match self {
            Failure::Runtime(_) | Failure::Shown => 1,
            Failure::Input(_) => 2,
            Failure::Interrupted(signal) => 128 + signal as u8,
            Failure::Closed => 0,
        })
    }
}

/// Converts an error that occurred while writing to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Runtime(format!("cannot write to standard output: {error}")),
        }
    }
}

/// Prints an error of clap, or the help or the version that clap returns as an error, and returns
/// the exit code.
pub fn report_usage(error: &clap::Error) -> ExitCode {
    match error.print() {
        // Help and version go to stdout, which may be closed.
        Err(fault) if !error.use_stderr() => Failure::from(fault).report(),
        _ => ExitCode::from(error.exit_code() as u8),
    }
}
