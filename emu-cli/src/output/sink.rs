//! The sink of an output, and the errors while writing to it.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::temporary;
use crate::failure::Failure;

/// The content of an output that is being written.
pub struct OutputSink<'a> {
    to: &'a mut dyn Write,
    /// The path in messages.
    path: &'a Path,
}

impl OutputSink<'_> {
    /// Appends bytes.
    ///
    /// # Errors
    /// Returns an error if they cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.to
            .write_all(bytes)
            .map_err(|error| fault(self.path, error))
    }
}

/// Writes to an open file or stream. `path` names it in messages.
pub(super) fn through<R, E: From<Failure>>(
    path: &Path,
    to: impl Write,
    fill: impl FnOnce(&mut OutputSink<'_>) -> Result<R, E>,
) -> Result<R, E> {
    let mut to = BufWriter::new(to);
    let filled = fill(&mut OutputSink { to: &mut to, path })?;
    to.flush().map_err(|error| fault(path, error))?;
    Ok(filled)
}

/// Returns the failure for an error while writing to `path`.
pub(super) fn fault(path: &Path, error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::Closed;
    }
    let to = if path == Path::new("-") {
        "to standard output".into()
    } else {
        path.display().to_string()
    };
    Failure::Runtime(format!("cannot write {to}: {error}"))
}

/// Returns the absolute path that is written. A link is followed, so the link itself is never
/// replaced.
pub(super) fn target(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        // For example, links that form a circle would make the loop below endless.
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }

    let mut path = path.to_owned();
    while let Ok(next) = fs::read_link(&path) {
        path = temporary::parent(&path).join(next);
    }

    let name = path
        .file_name()
        .ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
    Ok(fs::canonicalize(temporary::parent(&path))?.join(name))
}
