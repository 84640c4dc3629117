//! Runs the program as a user does, in the repository's top folder.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The small model of the README.
pub(crate) const MODEL: &str = "assets/rustdoc-7m-Q4_K_M.gguf";

/// The program with these arguments, not yet started.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpwright"));
    command
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .args(arguments);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// How a run ended.
#[derive(Debug, PartialEq)]
pub(crate) struct End {
    /// Exit code.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl From<Output> for End {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
        End {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> End {
    command(arguments)
        .output()
        .expect("the program starts")
        .into()
}
