//! Output files: there whole, or not at all, and never in place of the input.

mod folder;
mod temporary;

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
pub(crate) use folder::{FilesOf, OutputFolder, is_used};
pub(crate) use temporary::forget_all;
use temporary::{Taken, Temporary};

/// Where an option says that something be written.
pub(crate) struct Output<'a> {
    /// The option, as the user writes it.
    pub(crate) option: &'static str,
    /// A file, or `-` for standard output.
    pub(crate) path: &'a Path,
    /// The files and folders that are read meanwhile, and what they are.
    pub(crate) inputs: Vec<(&'static str, &'a Path)>,
    pub(crate) content: Content,
}

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Something to read.
    Text,
    /// Bytes, which no terminal shows.
    Bytes,
    /// Something to read, of which standard output has something else.
    Aside,
}

impl Output<'_> {
    /// Writes through `fill`. Whatever can be refused is so before `fill` is called: a path that cannot be written
    /// costs no work.
    pub(crate) fn write<R>(
        &self,
        fill: impl FnOnce(&mut Sink<'_>) -> Result<R, Failure>,
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

    /// Whether it may be written at all. [`write`](Output::write) asks too; this is for those who work before.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let standard = self.path == Path::new("-");
        let read = self
            .inputs
            .iter()
            .find(|(_, input)| is_of(input, self.path));
        let refused = match (self.content, read) {
            (Content::Bytes, _) if standard && io::stdout().is_terminal() => {
                "would write bytes to a terminal; name a file or a pipe"
            }
            (Content::Aside, _) if standard => {
                "would mix with the table on standard output; name a file"
            }
            (_, Some((what, _))) => &format!("is the {what} that is read; name another file"),
            (_, None) => return Ok(()),
        };
        Err(Failure::Input(format!(
            "{} {} {refused}",
            self.option,
            self.path.display()
        )))
    }

    fn to_file<R>(
        &self,
        fill: impl FnOnce(&mut Sink<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let target = target(self.path).map_err(|error| self.fault(error))?;
        let (file, temporary) = match Temporary::file(&target).map_err(|error| self.fault(error))? {
            Taken::Free(file, temporary) => (file, temporary),
            Taken::UnderWay => {
                let path = self.path.display();
                return Err(Failure::Input(format!(
                    "{} {path} is the file of another option too",
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

/// Writes to what is shown as this path.
fn through<R>(
    path: &Path,
    to: impl Write,
    fill: impl FnOnce(&mut Sink<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let mut to = BufWriter::new(to);
    let filled = fill(&mut Sink { to: &mut to, path })?;
    to.flush().map_err(|error| fault(path, error))?;
    Ok(filled)
}

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

/// Writes through `fill` where the user named a file.
pub(crate) fn write_if<R>(
    output: Option<Output<'_>>,
    fill: impl FnOnce(Option<&mut Sink<'_>>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    match output {
        None => fill(None),
        Some(output) => output.write(|sink| fill(Some(sink))),
    }
}

/// An output that is being written.
pub(crate) struct Sink<'a> {
    to: &'a mut dyn Write,
    /// For errors.
    path: &'a Path,
}

impl Sink<'_> {
    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.to
            .write_all(bytes)
            .map_err(|error| fault(self.path, error))
    }
}

/// A device, a pipe or a folder, or what the system shows as a file and is none.
fn is_stream(path: &Path) -> bool {
    let shown = ["/dev", "/proc"]
        .into_iter()
        .any(|folder| path.starts_with(folder));
    shown || fs::metadata(path).is_ok_and(|found| !found.is_file())
}

/// The file or folder that is written where a path is named: a link's target, not the link.
fn target(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        // A circle of links, for example.
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

/// Whether a path leads to a model's file, or to one in its folder.
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
