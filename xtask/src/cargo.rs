//! Cargo, called from a program that Cargo has started.

use std::env;
use std::process::Command;

/// Returns a command that runs Cargo as a shell would run it.
///
/// `cargo run` tells the program its package in variables such as `CARGO_MANIFEST_DIR`. The build
/// script of `ring` watches these variables, so `ring` and its dependents would be compiled again
/// after each change between a shell and this program.
pub(crate) fn command() -> Command {
    let mut cargo = Command::new("cargo");
    for (name, _) in env::vars_os() {
        let of_package = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if of_package {
            cargo.env_remove(name);
        }
    }
    cargo
}
