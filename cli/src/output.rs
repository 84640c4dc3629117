//! Output files: there whole, or not at all, and never in place of the input.
//!
//! Until all of a file is written it is a temporary one beside its target. Those under way are kept in a list, by
//! which a signal removes them and by which two options that name one file are refused.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempPath;

use crate::failure::Failure;

/// Where an option says that something be written.
pub(crate) struct Output<'a> {
    /// The option, as the user writes it.
    pub(crate) option: &'static str,
    /// A file, or `-` for standard output.
    pub(crate) path: &'a Path,
    /// The file or the folder that is read meanwhile.
    pub(crate) input: Option<&'a Path>,
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
            return self.through(io::stdout().lock(), fill);
        }
        if is_stream(self.path) {
            let file = File::create(self.path).map_err(|error| self.fault(error))?;
            return self.through(file, fill);
        }
        self.to_file(fill)
    }

    /// Whether it may be written at all. [`write`](Output::write) asks too; this is for those who work before.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let standard = self.path == Path::new("-");
        let refused = match self.content {
            Content::Bytes if standard && io::stdout().is_terminal() => {
                "would write bytes to a terminal; name a file or a pipe"
            }
            Content::Aside if standard => "would mix with the table on standard output; name a file",
            _ if self.input.is_some_and(|input| is_of(input, self.path)) => {
                "is the model that is read; name another file"
            }
            _ => return Ok(()),
        };
        Err(Failure::Input(format!("{} {} {refused}", self.option, self.path.display())))
    }

    /// Writes to what cannot be replaced by a rename.
    fn through<R>(
        &self,
        to: impl Write,
        fill: impl FnOnce(&mut Sink<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut to = BufWriter::new(to);
        let filled = fill(&mut Sink { to: &mut to, output: self })?;
        to.flush().map_err(|error| self.fault(error))?;
        Ok(filled)
    }

    fn to_file<R>(&self, fill: impl FnOnce(&mut Sink<'_>) -> Result<R, Failure>) -> Result<R, Failure> {
        let target = target(self.path).map_err(|error| self.fault(error))?;
        let (file, _kept) = self.beside(&target)?;
        let filled = self.through(file, fill)?;
        persist(&target).map_err(|error| self.fault(error))?;
        Ok(filled)
    }

    /// A temporary file in the target's folder, with the target's permissions or those that the user's mask leaves.
    fn beside(&self, target: &Path) -> Result<(File, Kept), Failure> {
        let mut list = list();
        if list.iter().any(|(known, _)| known == target) {
            let path = self.path.display();
            return Err(Failure::Input(format!("{} {path} is the file of another option too", self.option)));
        }
        let (file, path) = temporary(target).map_err(|error| self.fault(error))?;
        list.push((target.to_owned(), path));
        Ok((file, Kept(target.to_owned())))
    }

    fn fault(&self, error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::Closed;
        }
        let to = if self.path == Path::new("-") {
            "to standard output".into()
        } else {
            self.path.display().to_string()
        };
        Failure::Runtime(format!("cannot write {to}: {error}"))
    }
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
    output: &'a Output<'a>,
}

impl Sink<'_> {
    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.to.write_all(bytes).map_err(|error| self.output.fault(error))
    }
}

/// Files under way: the target of each, and the temporary file, which goes with its entry.
static LIST: Mutex<Vec<(PathBuf, TempPath)>> = Mutex::new(vec![]);

fn list() -> MutexGuard<'static, Vec<(PathBuf, TempPath)>> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all temporary files. For a program that ends now: nobody can make another one.
pub(crate) fn forget_all() {
    let mut list = list();
    list.clear();
    std::mem::forget(list);
}

/// Removes the entry of a target, however its writing ends.
struct Kept(PathBuf);

impl Drop for Kept {
    fn drop(&mut self) {
        list().retain(|(target, _)| *target != self.0);
    }
}

/// Renames the temporary file to its target.
fn persist(target: &Path) -> io::Result<()> {
    let mut list = list();
    let index = list.iter().position(|(known, _)| known == target).expect("it is there until it is done");
    let (_, path) = list.swap_remove(index);
    path.persist(target).map_err(|error| error.error)
}

fn temporary(target: &Path) -> io::Result<(File, TempPath)> {
    let folder = folder(target);
    // Asked for first, because the error of the temporary file names a path that nobody gave.
    fs::metadata(folder)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".warpwright-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let (file, path) = builder.tempfile_in(folder)?.into_parts();
    if let Ok(known) = fs::metadata(target) {
        fs::set_permissions(&path, known.permissions())?;
    }
    Ok((file, path))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A device, a pipe or a folder, or what the system shows as a file and is none.
fn is_stream(path: &Path) -> bool {
    let shown = ["/dev", "/proc"].into_iter().any(|folder| path.starts_with(folder));
    shown || fs::metadata(path).is_ok_and(|found| !found.is_file())
}

/// The file that is written where a path is named: a link's target, not the link.
fn target(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        // A circle of links, for example.
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut path = path.to_owned();
    while let Ok(next) = fs::read_link(&path) {
        path = folder(&path).join(next);
    }
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
    Ok(fs::canonicalize(folder(&path))?.join(name))
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
