//! Temporary files and folders: output goes to one, next to its target, until all of it is written.
//!
//! On Linux the file has no name (`O_TMPFILE`) until it is complete, so that a process that is killed leaves nothing. Where
//! the file system does not support this, and for folders, it has a hidden name and its writer holds a lock on it. Whoever
//! writes into the same folder later removes such a leftover if its lock is free.
//!
//! Outputs in progress are kept in a list. By this list, a signal removes them, and two options that name the same file are
//! refused.

mod leftovers;
mod unnamed;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{Builder, TempDir, TempPath};

/// An output in progress. It is removed when the value is dropped.
enum Entry {
    /// A file without a name, by another handle of it.
    Unnamed(File),
    /// A file with a hidden name, and its lock.
    Named(TempPath, Lock),
    /// A folder with a hidden name, and its lock.
    Folder(TempDir, Lock),
}

/// All outputs in progress, by their targets.
static LIST: Mutex<Vec<(PathBuf, Entry)>> = Mutex::new(vec![]);

fn list() -> MutexGuard<'static, Vec<(PathBuf, Entry)>> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all that is under way. For a program that ends now: nobody can make another file.
pub(crate) fn forget_all() {
    let mut list = list();
    list.clear();
    std::mem::forget(list);
}

/// A temporary file or folder of this target. It is removed with this value, unless it persists.
pub(super) struct Temporary(PathBuf);

/// Whether a target can be written.
pub(super) enum Taken {
    /// It is now.
    Free(File, Temporary),
    /// It is already.
    UnderWay,
}

impl Temporary {
    /// Creates a file for this target, with the target's permissions or those that the user's mask leaves.
    pub(super) fn file(target: &Path) -> io::Result<Taken> {
        let mut list = list();
        if list.iter().any(|(known, _)| known == target) {
            return Ok(Taken::UnderWay);
        }
        leftovers::remove(parent(target));
        if let Some(file) = unnamed::create(parent(target))? {
            if let Ok(known) = fs::metadata(target) {
                file.set_permissions(known.permissions())?;
            }
            list.push((target.to_owned(), Entry::Unnamed(file.try_clone()?)));
            return Ok(Taken::Free(file, Temporary(target.to_owned())));
        }
        let made = builder(target, 0o666)?
            .tempfile_in(parent(target))
            .map_err(nameless)?;
        let (file, path) = made.into_parts();
        let lock = Lock::of(file.try_clone()?);
        keep_permissions(target, &path)?;
        list.push((target.to_owned(), Entry::Named(path, lock)));
        Ok(Taken::Free(file, Temporary(target.to_owned())))
    }

    /// Creates a folder next to the target, with permissions like those of a file.
    pub(super) fn folder(target: &Path) -> io::Result<Temporary> {
        let mut list = list();
        leftovers::remove(parent(target));
        let folder = builder(target, 0o777)?
            .tempdir_in(parent(target))
            .map_err(nameless)?;
        let lock = Lock::of(File::open(folder.path())?);
        keep_permissions(target, folder.path())?;
        list.push((target.to_owned(), Entry::Folder(folder, lock)));
        Ok(Temporary(target.to_owned()))
    }

    /// Creates a file in the folder. None is created while a signal ends the program.
    pub(super) fn inside(&self, name: &str) -> io::Result<File> {
        let list = list();
        let (_, entry) = list
            .iter()
            .find(|(known, _)| *known == self.0)
            .expect(LISTED);
        match entry {
            Entry::Folder(folder, _) => File::create_new(folder.path().join(name)),
            Entry::Unnamed(_) | Entry::Named(..) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Moves the output to its target. A folder takes the place of an empty folder only.
    pub(super) fn persist(&self) -> io::Result<()> {
        let mut list = list();
        let index = list
            .iter()
            .position(|(known, _)| *known == self.0)
            .expect(LISTED);
        match list.swap_remove(index).1 {
            Entry::Unnamed(file) => {
                let named = builder(&self.0, 0o666)?
                    .make_in(parent(&self.0), |path| unnamed::link(&file, path));
                let path = named.map_err(nameless)?.into_temp_path();
                path.persist(&self.0).map_err(|error| error.error)
            }
            Entry::Named(path, _lock) => path.persist(&self.0).map_err(|error| error.error),
            Entry::Folder(folder, _lock) => {
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

/// An exclusive lock on a file or a folder that is being written, held while the value lives. A file system without locks
/// leaves it unlocked.
struct Lock {
    _file: File,
}

impl Lock {
    fn of(file: File) -> Lock {
        #[cfg(unix)]
        let _ = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        Lock { _file: file }
    }
}

/// Why an entry is found.
const LISTED: &str = "it is in the list until it is done";

/// Removes the entry of a target, however its writing ends.
impl Drop for Temporary {
    fn drop(&mut self) {
        list().retain(|(target, _)| *target != self.0);
    }
}

/// Returns the error without the temporary name, which means nothing to a user.
fn nameless(error: io::Error) -> io::Error {
    error.kind().into()
}

/// Returns a builder of temporary files and folders next to a target. The folder of the target must exist.
fn builder(target: &Path, mode: u32) -> io::Result<Builder<'static, 'static>> {
    fs::metadata(parent(target))?;
    let mut builder = Builder::new();
    builder.prefix(leftovers::PREFIX);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(mode));
    }
    Ok(builder)
}

fn keep_permissions(target: &Path, path: &Path) -> io::Result<()> {
    match fs::metadata(target) {
        Ok(known) => fs::set_permissions(path, known.permissions()),
        Err(_) => Ok(()),
    }
}

/// The folder that a path is in.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
