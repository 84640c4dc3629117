//! Output files. A file is either complete or absent, and never replaces an input of the same
//! command.

mod folder;
mod temporary;

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
pub(crate) use folder::{FilesOf, OutputFolder, is_used};
pub(crate) use temporary::forget_all;
use temporary::{Temporary, TemporaryCreation};

/// An output that an option names.
pub(crate) struct Output<'a> {
    /// The option, as the user writes it.
    pub(crate) option: &'static str,
    /// A file, or `-` for standard output.
    pub(crate) path: &'a Path,
    /// The files and folders that the command reads, each with a word for it in messages.
    pub(crate) inputs: Vec<(&'static str, &'a Path)>,
    pub(crate) content: OutputContent,
}

/// The kind of content of an output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputContent {
    /// Text.
    Text,
    /// Binary data, which must not be written to a terminal.
    Bytes,
    /// Text that must not go to standard output, because the command prints something else there.
    Aside,
}

impl Output<'_> {
    /// Writes the output: `fill` receives a sink for the content.
    ///
    /// The path is checked and the file is created before `fill` runs, so a wrong path costs no
    /// work.
    ///
    /// # Errors
    /// Returns an error if the path cannot be used or written, or if `fill` fails. Then there is no
    /// new file.
    pub(crate) fn write<R>(
        &self,
        fill: impl FnOnce(&mut OutputSink<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.check()?;
        if self.path == Path::new("-") {
            return through(self.path, io::stdout().lock(), fill);
        }
        if is_stream(self.path) {
            let file = File::create(self.path).map_err(|error| self.fault(error))?;
            return through(self.path, file, fill);
        }
        self.to_file(fill)
    }

    /// Checks that the path may be written. [`write`](Output::write) does that too. Call this
    /// before expensive work.
    ///
    /// # Errors
    /// Returns an error if the path is an input of the command, or if standard output does not suit
    /// the content.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let standard = self.path == Path::new("-");
        let read = self
            .inputs
            .iter()
            .find(|(_, input)| is_of(input, self.path));
        let refused = match (self.content, read) {
            (OutputContent::Bytes, _) if standard && io::stdout().is_terminal() => {
                "would write binary data to a terminal; name a file or a pipe"
            }
            (OutputContent::Aside, _) if standard => {
                "would mix with the table on standard output; name a file"
            }
            (_, Some((what, _))) => {
                &format!("is the {what} that the command reads; name another file")
            }
            (_, None) => return Ok(()),
        };
        Err(Failure::Input(format!(
            "{} {} {refused}",
            self.option,
            self.path.display()
        )))
    }

    /// Writes to a temporary file, which takes the place of the target at the end.
    fn to_file<R>(
        &self,
        fill: impl FnOnce(&mut OutputSink<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let target = target(self.path).map_err(|error| self.fault(error))?;
        let (file, temporary) = match Temporary::file(&target).map_err(|error| self.fault(error))? {
            TemporaryCreation::Free(file, temporary) => (file, temporary),
            TemporaryCreation::UnderWay => {
                let path = self.path.display();
                return Err(Failure::Input(format!(
                    "{} {path} is also the file of another option; name two files",
                    self.option
                )));
            }
        };
        let filled = through(self.path, file, fill)?;
        temporary.persist().map_err(|error| self.fault(error))?;
        Ok(filled)
    }

    fn fault(&self, error: io::Error) -> Failure {
        fault(self.path, error)
    }
}

/// Writes to an open file or stream. `path` names it in messages.
fn through<R>(
    path: &Path,
    to: impl Write,
    fill: impl FnOnce(&mut OutputSink<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let mut to = BufWriter::new(to);
    let filled = fill(&mut OutputSink { to: &mut to, path })?;
    to.flush().map_err(|error| fault(path, error))?;
    Ok(filled)
}

/// Returns the failure for an error while writing to `path`.
fn fault(path: &Path, error: io::Error) -> Failure {
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

/// Writes an optional output. Without one, `fill` runs without a sink.
pub(crate) fn write_if<R>(
    output: Option<Output<'_>>,
    fill: impl FnOnce(Option<&mut OutputSink<'_>>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    match output {
        None => fill(None),
        Some(output) => output.write(|sink| fill(Some(sink))),
    }
}

/// The content of an output that is being written.
pub(crate) struct OutputSink<'a> {
    to: &'a mut dyn Write,
    /// The path in messages.
    path: &'a Path,
}

impl OutputSink<'_> {
    /// Appends bytes.
    ///
    /// # Errors
    /// Returns an error if they cannot be written.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.to
            .write_all(bytes)
            .map_err(|error| fault(self.path, error))
    }
}

/// Returns true if the path is not a regular file: a device, a pipe or a folder.
///
/// Everything in `/dev` and `/proc` counts, because the system shows some of these entries as
/// regular files.
fn is_stream(path: &Path) -> bool {
    let shown = ["/dev", "/proc"]
        .into_iter()
        .any(|folder| path.starts_with(folder));
    shown || fs::metadata(path).is_ok_and(|found| !found.is_file())
}

/// Returns the absolute path that is written. A link is followed, so the link itself is never
/// replaced.
fn target(path: &Path) -> io::Result<PathBuf> {
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

/// Returns true if a path leads to the model's file, or to a file in the model's folder.
fn is_of(model: &Path, path: &Path) -> bool {
    let inside = fs::read_dir(model).into_iter().flatten().flatten();
    same_file(model, path) || inside.into_iter().any(|file| same_file(&file.path(), path))
}

#[cfg(unix)]
fn same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    matches!((identity(a), identity(b)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(not(unix))]
fn same_file(a: &Path, b: &Path) -> bool {
    matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}
