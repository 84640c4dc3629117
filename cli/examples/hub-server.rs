//! Serves files as the repository `org/repo` of a Hugging Face hub, to try `pull` without a
//! network.
//!
//! ```sh
//! cargo run -p warpwright --example hub-server -- assets/rustdoc-7m-Q4_K_M.gguf
//! ```
//!
//! The first line of its output is the setting that other programs need, for example
//! `HF_ENDPOINT=http://127.0.0.1:41234`. The server runs until it is interrupted.

#[expect(
    dead_code,
    reason = "the tests of the program also use the server's faults"
)]
#[path = "../tests/it/hub/server.rs"]
mod server;

use std::path::{Path, PathBuf};
use std::{env, fs, process, thread};

use server::{File, Server};

fn main() {
    let paths: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        eprintln!("usage: hub-server FILE...");
        process::exit(2);
    }

    let files: Vec<File> = paths.iter().map(|path| file(path)).collect();
    let server = Server::new(&files);
    println!("HF_ENDPOINT={}", server.endpoint);
    println!("serving hf:org/repo; end with Ctrl-C");

    // Threads of the server answer.
    loop {
        thread::park();
    }
}

/// Reads a file, which the hub stores as it stores large files.
fn file(path: &Path) -> File {
    let content = fs::read(path).unwrap_or_else(|error| {
        eprintln!("error: cannot read {}: {error}", path.display());
        process::exit(2);
    });
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    File::lfs(&name, &content)
}
