//! Checks of the disk: free space and permissions.

use std::io;
use std::path::Path;
#[cfg(unix)]
use std::path::PathBuf;

/// Returns the free bytes on the disk of a folder that exists or will be created, if the system
/// reports them.
#[cfg(unix)]
pub(super) fn free(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(&existing(folder)?).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Returns the reason why a folder cannot be created or written, or `None` if it can or the system
/// does not report it.
#[cfg(unix)]
pub(super) fn refusal(folder: &Path) -> Option<io::Error> {
    use rustix::fs::{Access, access};
    let error = access(&existing(folder)?, Access::WRITE_OK | Access::EXEC_OK).err()?;
    Some(error.into())
}

/// Returns the folder, or its nearest ancestor that exists.
#[cfg(unix)]
fn existing(folder: &Path) -> Option<PathBuf> {
    let folder = std::path::absolute(folder).ok()?;
    folder
        .ancestors()
        .find(|folder| folder.exists())
        .map(Path::to_owned)
}

#[cfg(not(unix))]
pub(super) fn free(_: &Path) -> Option<u64> {
    None
}

#[cfg(not(unix))]
pub(super) fn refusal(_: &Path) -> Option<io::Error> {
    None
}
