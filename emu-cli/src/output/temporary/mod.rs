//! Temporary files and folders. Output is written to one next to its target, until it is complete.
//!
//! On Linux the file has no name (`O_TMPFILE`) until it is complete, so a killed process leaves
//! nothing behind. Folders, and files on file systems without `O_TMPFILE`, have a hidden name, and
//! their writer locks them. The next process that writes into the same folder removes such a
//! leftover if its lock is free.
//!
//! A list contains the outputs in progress, so a signal can remove them, and two options cannot
//! name the same file.

mod leftovers;
mod unnamed;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{Builder, TempDir, TempPath};

/// An output in progress. Dropping the value removes it.
enum TemporaryOutput {
    /// A second handle of a file without a name.
    Unnamed(File),
    /// A file with a hidden name, and its lock.
    Named(TempPath, Lock),
    /// A folder with a hidden name, and its lock.
    Folder(TempDir, Lock),
}

/// All outputs in progress, by their targets.
static LIST: Mutex<Vec<(PathBuf, TemporaryOutput)>> = Mutex::new(vec![]);

fn list() -> MutexGuard<'static, Vec<(PathBuf, TemporaryOutput)>> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all outputs in progress. Call this before the program exits.
///
/// The list stays locked, so no other thread can create a file before the exit.
pub fn forget_all() {
    let mut list = list();
    list.clear();
    std::mem::forget(list);
}

/// A temporary file or folder for the target with this path. Dropping the value removes it, unless
/// it was persisted.
pub(super) struct Temporary(PathBuf);

/// The result of creating a temporary file.
pub(super) enum TemporaryCreation {
    /// The new file.
    Free(File, Temporary),
    /// The target is already being written for another option.
    UnderWay,
}

impl Temporary {
    /// Creates a file for the target. It has the permissions of an existing target, or the default
    /// ones of the user.
    pub(super) fn file(target: &Path) -> io::Result<TemporaryCreation> {
        // The list stays locked until the file is in it, so that a signal cannot miss the file.
        let mut list = list();
        if list.iter().any(|(known, _)| known == target) {
            return Ok(TemporaryCreation::UnderWay);
        }

        leftovers::remove(parent(target));
        if let Some(file) = unnamed::create(parent(target))? {
            if let Ok(known) = fs::metadata(target) {
                file.set_permissions(known.permissions())?;
            }
            list.push((
                target.to_owned(),
                TemporaryOutput::Unnamed(file.try_clone()?),
            ));
            return Ok(TemporaryCreation::Free(file, Temporary(target.to_owned())));
        }

        let made = builder(target, 0o666)?
            .tempfile_in(parent(target))
            .map_err(nameless)?;
        let (file, path) = made.into_parts();
        let lock = Lock::new(file.try_clone()?);
        keep_permissions(target, &path)?;
        list.push((target.to_owned(), TemporaryOutput::Named(path, lock)));
        Ok(TemporaryCreation::Free(file, Temporary(target.to_owned())))
    }

    /// Creates a folder next to the target, with permissions like those of a file.
    pub(super) fn folder(target: &Path) -> io::Result<Temporary> {
        let mut list = list();
        leftovers::remove(parent(target));
        let folder = builder(target, 0o777)?
            .tempdir_in(parent(target))
            .map_err(nameless)?;
        let lock = Lock::new(File::open(folder.path())?);
        keep_permissions(target, folder.path())?;
        list.push((target.to_owned(), TemporaryOutput::Folder(folder, lock)));
        Ok(Temporary(target.to_owned()))
    }

    /// Creates a file in the folder. The list is locked meanwhile, so that no file appears while a
    /// signal removes the folder.
    pub(super) fn inside(&self, name: &str) -> io::Result<File> {
        let list = list();
        let (_, entry) = list
            .iter()
            .find(|(known, _)| *known == self.0)
            .expect(LISTED);
        match entry {
            TemporaryOutput::Folder(folder, _) => File::create_new(folder.path().join(name)),
            TemporaryOutput::Unnamed(_) | TemporaryOutput::Named(..) => {
                Err(io::ErrorKind::NotADirectory.into())
            }
        }
    }

    /// Moves the output to its target. A folder can only replace an empty folder.
    pub(super) fn persist(&self) -> io::Result<()> {
        let mut list = list();
        let index = list
            .iter()
            .position(|(known, _)| *known == self.0)
            .expect(LISTED);
        match list.swap_remove(index).1 {
            TemporaryOutput::Unnamed(file) => {
                // A link cannot replace an existing file. So the file first gets a temporary name,
                // and is then renamed.
                let named = builder(&self.0, 0o666)?
                    .make_in(parent(&self.0), |path| unnamed::link(&file, path));
                let path = named.map_err(nameless)?.into_temp_path();
                path.persist(&self.0).map_err(|error| error.error)
            }
            TemporaryOutput::Named(path, _lock) => {
                path.persist(&self.0).map_err(|error| error.error)
            }
            TemporaryOutput::Folder(folder, _lock) => {
                if self.0.exists() {
                    fs::remove_dir(&self.0)?;
                }
                fs::rename(folder.path(), &self.0)?;
                let _ = folder.keep();
                Ok(())
            }
        }
    }
}

/// An exclusive lock on a file or folder that is being written. It is released when the value is
/// dropped.
///
/// On a file system without locks, the file stays unlocked.
struct Lock {
    _file: File,
}

impl Lock {
    fn new(file: File) -> Lock {
        #[cfg(unix)]
        let _ = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        Lock { _file: file }
    }
}

/// The reason why the entry of a [`Temporary`] is in the list.
const LISTED: &str = "an output is in the list until it is complete";

/// Removes the entry of the target from the list, and with it the temporary file.
impl Drop for Temporary {
    fn drop(&mut self) {
        list().retain(|(target, _)| *target != self.0);
    }
}

/// Returns the error without the temporary name, which the user does not know.
fn nameless(error: io::Error) -> io::Error {
    error.kind().into()
}

/// Returns a builder of temporary files and folders next to a target. The folder of the target must
/// exist.
fn builder(target: &Path, mode: u32) -> io::Result<Builder<'static, 'static>> {
    fs::metadata(parent(target))?;
    let mut builder = Builder::new();
    builder.prefix(leftovers::PREFIX);
    set_mode(&mut builder, mode);
    Ok(builder)
}

#[cfg(unix)]
fn set_mode(builder: &mut Builder<'static, 'static>, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    builder.permissions(fs::Permissions::from_mode(mode));
}

#[cfg(not(unix))]
fn set_mode(_: &mut Builder<'static, 'static>, _: u32) {}

/// Gives a temporary file the permissions of an existing target.
fn keep_permissions(target: &Path, path: &Path) -> io::Result<()> {
    match fs::metadata(target) {
        Ok(known) => fs::set_permissions(path, known.permissions()),
        Err(_) => Ok(()),
    }
}

/// Returns the folder that contains a path.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
