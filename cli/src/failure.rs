//! How the program ends when it does not do its work: one sentence on stderr, and an exit code.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use warpwright_engine as engine;
use warpwright_train as train;

use crate::terminal::say;

/// The end of `warpwright --help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed while running: device, driver, download, logits that are not finite, a kernel that `check` found wrong
  2    wrong use, or an input file that cannot be used
  130  interrupted (Ctrl-C); 143 and 129 by SIGTERM and SIGHUP";

/// Why the program ends early. A variant is an exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something went wrong while running.
    Runtime(String),
    /// The arguments or an input file cannot be used.
    Input(String),
    /// The output already says what is wrong.
    Shown,
    /// The signal of this number came.
    Interrupted(i32),
    /// Whoever read our output has closed it, and knows.
    Closed,
}

impl Failure {
    /// What is wrong, if there is something to say.
    pub(crate) fn sentence(&self) -> Option<&str> {
        match self {
            Failure::Runtime(sentence) | Failure::Input(sentence) => Some(sentence),
            Failure::Shown | Failure::Interrupted(_) | Failure::Closed => None,
        }
    }

    /// Returns the failure as one after which the program cannot continue.
    pub(crate) fn fatal(self) -> Failure {
        match self {
            Failure::Input(sentence) => Failure::Runtime(sentence),
            Failure::Runtime(_) | Failure::Shown | Failure::Interrupted(_) | Failure::Closed => {
                self
            }
        }
    }

    /// Writes the sentence and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
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

/// An error while writing to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Runtime(format!("cannot write to standard output: {error}")),
        }
    }
}

impl From<warpwright_driver::Error> for Failure {
    fn from(error: warpwright_driver::Error) -> Self {
        Failure::Runtime(sentence(&error))
    }
}

/// A model, a tokenizer or a prompt that cannot be used is bad input; what a device says is not.
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

/// What a device or a disk says is no input.
impl From<train::Error> for Failure {
    fn from(error: train::Error) -> Self {
        match error {
            train::Error::Engine(error) => (*error).into(),
            train::Error::Driver(_) | train::Error::Write { .. } => {
                Failure::Runtime(sentence(&error))
            }
            _ => Failure::Input(sentence(&error)),
        }
    }
}

/// An error and what caused it, each cause once.
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
