//! Models of the hub, loaded from a server on this machine.

mod cache;
mod faults;
mod models;
mod names;
mod pull;
pub(crate) mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::program::{End, command};
use server::{COMMIT, File, Server};

/// A server and an empty cache.
pub(crate) struct Hub {
    pub(crate) server: Server,
    pub(crate) home: TempDir,
}

impl Hub {
    pub(crate) fn new(files: &[File]) -> Hub {
        Hub {
            server: Server::new(files),
            home: tempfile::tempdir().expect("a folder for a test"),
        }
    }

    /// The program with these arguments and the test's hub, and without the user's own settings.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        self.environment(&mut command);
        command
    }

    pub(crate) fn environment(&self, command: &mut Command) {
        for (variable, _) in std::env::vars_os() {
            let name = variable.to_string_lossy().to_ascii_uppercase();
            if name.starts_with("HF_") || name.starts_with("HUGGING") || name.ends_with("_PROXY") {
                command.env_remove(&variable);
            }
        }

        command
            .env_remove("TRANSFORMERS_OFFLINE")
            .env_remove("XDG_CACHE_HOME");
        command
            .env("HF_ENDPOINT", &self.server.endpoint)
            .env("HF_HOME", self.home.path());
        command.env("HF_HUB_DOWNLOAD_TIMEOUT", "1");
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> End {
        self.command(arguments)
            .output()
            .expect("the program starts")
            .into()
    }

    /// The folder of the repository in the cache.
    pub(crate) fn folder(&self) -> PathBuf {
        self.home.path().join("hub/models--org--repo")
    }

    pub(crate) fn snapshot(&self, name: &str) -> PathBuf {
        self.folder().join("snapshots").join(COMMIT).join(name)
    }

    pub(crate) fn blob(&self, file: &File) -> PathBuf {
        self.folder().join("blobs").join(file.etag())
    }

    pub(crate) fn part(&self, file: &File) -> PathBuf {
        self.folder()
            .join("blobs")
            .join(format!("{}.incomplete", file.etag()))
    }

    /// Asserts that a run printed the path of a file, and that the file is complete at every place of the cache.
    pub(crate) fn assert_pulled(&self, end: &End, file: &File) {
        let path = self.snapshot(&file.name);
        assert_eq!(
            (end.code, end.out.as_str()),
            (Some(0), format!("{}\n", path.display()).as_str()),
            "{end:?}"
        );
        assert!(
            fs::read(&path).expect("it is there") == file.content,
            "{}",
            file.name
        );
        assert!(fs::read(self.blob(file)).expect("it is there") == file.content);
        assert!(!self.part(file).exists());
        assert_eq!(
            fs::read_to_string(self.folder().join("refs/main")).expect("it is there"),
            COMMIT
        );
    }

    /// Asserts that a run failed, and that no file has a final name.
    pub(crate) fn assert_failed(&self, end: &End, code: i32, message: &str) {
        assert_eq!((end.code, end.out.as_str()), (Some(code), ""), "{end:?}");
        let message = message.replace("{endpoint}", &self.server.endpoint);
        let last = end
            .err
            .lines()
            .rfind(|line| line.starts_with("error: "))
            .unwrap_or(&end.err);
        assert!(
            last.contains(&message),
            "{message:?} is not in {:?}",
            end.err
        );
        for folder in ["blobs", "snapshots"] {
            let files = files_below(&self.folder().join(folder));
            let complete: Vec<&PathBuf> = files
                .iter()
                .filter(|path| path.extension().is_none_or(|end| end != "incomplete"))
                .collect();
            assert!(complete.is_empty(), "{complete:?}");
        }
    }
}

/// All files below a folder, in order.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = vec![];
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().expect("it is there").is_dir() {
            files.extend(files_below(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }

    files.sort();
    files
}

/// Bytes that differ at every place.
pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()[7])
        .collect()
}

/// A small file that is taken without a name.
pub(crate) fn usual() -> File {
    File::lfs("model-Q4_K_M.gguf", &content(100_000))
}
