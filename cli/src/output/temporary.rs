//! Temporary files and folders: what is written is one, beside its target, until all of it is there.
//!
//! Those under way are kept in a list, by which a signal removes them and by which two options that name one file are
//! refused.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{Builder, TempDir, TempPath};

/// What goes when its entry does.
enum Entry {
    File(TempPath),
    Folder(TempDir),
}

impl Entry {
    fn path(&self) -> &Path {
        match self {
            Entry::File(path) => path,
            Entry::Folder(folder) => folder.path(),
        }
    }
}

/// What is under way, by its target.
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
    /// A file in the target's folder, with the target's permissions or those that the user's mask leaves.
    pub(super) fn file(target: &Path) -> io::Result<Taken> {
        let mut list = list();
        if list.iter().any(|(known, _)| known == target) {
            return Ok(Taken::UnderWay);
        }
        let made = builder(target, 0o666)?.tempfile_in(parent(target)).map_err(nameless)?;
        let (file, path) = made.into_parts();
        keep_permissions(target, &path)?;
        list.push((target.to_owned(), Entry::File(path)));
        Ok(Taken::Free(file, Temporary(target.to_owned())))
    }

    /// A folder beside the target, with permissions as those of a file.
    pub(super) fn folder(target: &Path) -> io::Result<Temporary> {
        let mut list = list();
        let folder = builder(target, 0o777)?.tempdir_in(parent(target)).map_err(nameless)?;
        keep_permissions(target, folder.path())?;
        list.push((target.to_owned(), Entry::Folder(folder)));
        Ok(Temporary(target.to_owned()))
    }

    /// A new file in the folder. None is made while a signal ends the program.
    pub(super) fn inside(&self, name: &str) -> io::Result<File> {
        let list = list();
        let (_, entry) = list.iter().find(|(known, _)| *known == self.0).expect(LISTED);
        File::create_new(entry.path().join(name))
    }

    /// Renames it to its target. A folder takes the place of an empty one only.
    pub(super) fn persist(&self) -> io::Result<()> {
        let mut list = list();
        let index = list.iter().position(|(known, _)| *known == self.0).expect(LISTED);
        match list.swap_remove(index).1 {
            Entry::File(path) => path.persist(&self.0).map_err(|error| error.error),
            Entry::Folder(folder) => {
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

/// Why an entry is found.
const LISTED: &str = "it is in the list until it is done";

/// Removes the entry of a target, however its writing ends.
impl Drop for Temporary {
    fn drop(&mut self) {
        list().retain(|(target, _)| *target != self.0);
    }
}

/// The error without the temporary name, which nobody gave.
fn nameless(error: io::Error) -> io::Error {
    error.kind().into()
}

/// What makes temporary files and folders beside a target, in a folder that is there.
fn builder(target: &Path, mode: u32) -> io::Result<Builder<'static, 'static>> {
    fs::metadata(parent(target))?;
    let mut builder = Builder::new();
    builder.prefix(".warpwright-");
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
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
