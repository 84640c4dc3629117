//! Output files. A file is either complete or absent, and never replaces an input of the same
//! command.

mod folder;
mod sink;
mod temporary;

use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::path::Path;

use crate::failure::Failure;
pub use folder::{FilesOf, OutputFolder, is_used};
pub use sink::OutputSink;
use sink::{fault, target, through};
pub use temporary::forget_all;
use temporary::{Temporary, TemporaryCreation};

/// An output that an option names.
pub struct Output<'a> {
    /// The option, as the user writes it.
    pub option: &'static str,
    /// A file, or `-` for standard output.
    pub path: &'a Path,
    /// The files and folders that the command reads, each with a word for it in messages.
    pub inputs: Vec<(&'static str, &'a Path)>,
    /// The kind of content, which decides where it may go.
    pub content: OutputContent,
}

/// The kind of content of an output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OutputContent {
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
    pub fn write<R, E: From<Failure>>(
        &self,
        fill: impl FnOnce(&mut OutputSink<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
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
    pub fn check(&self) -> Result<(), Failure> {
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
    fn to_file<R, E: From<Failure>>(
        &self,
        fill: impl FnOnce(&mut OutputSink<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let target = target(self.path).map_err(|error| self.fault(error))?;
        let created = Temporary::file(&target).map_err(|error| self.fault(error))?;
        let (file, temporary) = match created {
            TemporaryCreation::Free(file, temporary) => (file, temporary),
            TemporaryCreation::UnderWay => {
                let path = self.path.display();
                return Err(Failure::Input(format!(
                    "{} {path} is also the file of another option; name two files",
                    self.option
                ))
                .into());
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

/// Writes an optional output. Without one, `fill` runs without a sink.
///
/// # Errors
/// Returns an error if the output cannot be written, or if `fill` fails.
pub fn write_if<R, E: From<Failure>>(
    output: Option<Output<'_>>,
    fill: impl FnOnce(Option<&mut OutputSink<'_>>) -> Result<R, E>,
) -> Result<R, E> {
    match output {
        None => fill(None),
        Some(output) => output.write(|sink| fill(Some(sink))),
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
