//! The disk: what may be written, and room for it.

use std::io;
use std::path::Path;
#[cfg(unix)]
use std::path::PathBuf;

/// Bytes that are free where a folder is, or will be; none where the system does not say.
#[cfg(unix)]
pub(super) fn free(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(&there(folder)?).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Why nothing can be written where a folder is, or will be, as far as the system says.
#[cfg(unix)]
pub(super) fn refusal(folder: &Path) -> Option<io::Error> {
    use rustix::fs::{Access, access};
    let error = access(&there(folder)?, Access::WRITE_OK | Access::EXEC_OK).err()?;
    Some(error.into())
}

/// The folder, or the nearest one above it that is there.
#[cfg(unix)]
fn there(folder: &Path) -> Option<PathBuf> {
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
