//! Runs the program as a user does, in the repository's top folder.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use crate::shortened::shortened;

/// The small model of the README.
pub(crate) const MODEL: &str = "assets/rustdoc-7m-Q4_K_M.gguf";

/// The small model with fewer layers. The first call of [`command`] writes it.
pub(crate) const SHORTER: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/rustdoc-2-layers.gguf");

fn write_shorter_model() {
    static WRITTEN: OnceLock<()> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let path = Path::new(SHORTER);

        // Another process of this test may read the file meanwhile.
        let new = path.with_extension(std::process::id().to_string());
        fs::write(&new, shortened(&root.join(MODEL))).expect("it is written");
        fs::rename(&new, path).expect("it is renamed");
    });
}

/// The program with these arguments, not yet started.
pub(crate) fn command(arguments: &[&str]) -> Command {
    // Arguments may name this file.
    write_shorter_model();
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
