//! Errors of the program: each is one sentence on stderr and an exit code.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use warpwright_engine as engine;
use warpwright_model as model;
use warpwright_train as train;

/// The table of exit codes at the end of `warpwright --help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    runtime error: device, driver, download or disk, logits that are not finite, or findings of `check` and `emu`
  2    wrong usage, or an input file that cannot be used
  130  interrupted by Ctrl-C (SIGTERM: 143, SIGHUP: 129)";

/// The reason why the program ends early. Each variant has its own exit code or way to report.
///
/// It has the variants of [`warpwright_emu::Failure`]. Only a type of this crate can be converted
/// from the errors of the engine.
#[derive(Debug)]
pub(crate) enum Failure {
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
    pub(crate) fn sentence(&self) -> Option<&str> {
        match self {
            Failure::Runtime(sentence) | Failure::Input(sentence) => Some(sentence),
            Failure::Shown | Failure::Interrupted(_) | Failure::Closed => None,
        }
    }

    /// Returns the failure as a runtime error, so that a caller that recovers from bad input does
    /// not recover from it.
    pub(crate) fn fatal(self) -> Failure {
        match self {
            Failure::Input(sentence) => Failure::Runtime(sentence),
            Failure::Runtime(_) | Failure::Shown | Failure::Interrupted(_) | Failure::Closed => {
                self
            }
        }
    }

    /// Prints the error message to stderr and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        warpwright_emu::Failure::from(self).report()
    }
}

impl From<warpwright_emu::Failure> for Failure {
    fn from(failure: warpwright_emu::Failure) -> Failure {
        match failure {
            warpwright_emu::Failure::Runtime(sentence) => Failure::Runtime(sentence),
            warpwright_emu::Failure::Input(sentence) => Failure::Input(sentence),
            warpwright_emu::Failure::Shown => Failure::Shown,
            warpwright_emu::Failure::Interrupted(signal) => Failure::Interrupted(signal),
            warpwright_emu::Failure::Closed => Failure::Closed,
        }
    }
}

impl From<Failure> for warpwright_emu::Failure {
    fn from(failure: Failure) -> warpwright_emu::Failure {
        match failure {
            Failure::Runtime(sentence) => warpwright_emu::Failure::Runtime(sentence),
            Failure::Input(sentence) => warpwright_emu::Failure::Input(sentence),
            Failure::Shown => warpwright_emu::Failure::Shown,
            Failure::Interrupted(signal) => warpwright_emu::Failure::Interrupted(signal),
            Failure::Closed => warpwright_emu::Failure::Closed,
        }
    }
}

/// Converts an error that occurred while writing to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        warpwright_emu::Failure::from(error).into()
    }
}

impl From<warpwright_driver::Error> for Failure {
    fn from(error: warpwright_driver::Error) -> Self {
        Failure::Runtime(sentence(&error))
    }
}

/// Converts an error of the engine. Errors of the device are runtime errors, and all others are bad
/// input.
impl From<engine::Error> for Failure {
    fn from(error: engine::Error) -> Self {
        let sentence = sentence(&error);
        match error {
            engine::Error::Driver(_)
            | engine::Error::OtherTokens
            | engine::Error::Logit { .. }
            | engine::Error::NoToken { .. } => Failure::Runtime(sentence),
            _ => Failure::Input(sentence),
        }
    }
}

/// Converts an error about a model's files, which are bad input.
impl From<model::Error> for Failure {
    fn from(error: model::Error) -> Self {
        Failure::Input(sentence(&error))
    }
}

/// Converts an error of training. Errors of the device or the disk are runtime errors, and all
/// others are bad input.
impl From<train::Error> for Failure {
    fn from(error: train::Error) -> Self {
        match error {
            train::Error::Model(error) => (*error).into(),
            train::Error::Driver(_) | train::Error::Write { .. } => {
                Failure::Runtime(sentence(&error))
            }
            _ => Failure::Input(sentence(&error)),
        }
    }
}

/// Joins an error and its causes with colons. A cause that the text already contains is left out.
pub(crate) fn sentence(error: &dyn Error) -> String {
    let mut sentence = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !sentence.contains(&text) {
            sentence = format!("{sentence}: {text}");
        }
        cause = error.source();
    }

    sentence
}
