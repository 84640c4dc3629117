//! Asks git which commit is checked out. Where it does not say, as in a package without a repository, the program is
//! built all the same.

use std::path::Path;
use std::process::Command;

fn main() {
    let commit = git(&["rev-parse", "--short=10", "HEAD"]);
    let note = commit.map_or(String::new(), |commit| format!(" ({commit})"));
    println!("cargo::rustc-env=WARPWRIGHT_COMMIT={note}");
    println!("cargo::rerun-if-changed=build.rs");

    // The log of HEAD changes with each commit. Not so `index`, which git writes whenever it is asked something.
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file]).filter(|path| Path::new(path).exists());
        if let Some(path) = path {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// The first line that git prints, if it ends well.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned)
}
