//! Files without a name (`O_TMPFILE`). The system deletes them when the process ends.

use std::fs::File;
use std::io;
use std::path::Path;

/// Creates a file without a name in a folder. Returns `None` if the system or the file system does
/// not support this.
#[cfg(target_os = "linux")]
pub(super) fn create(folder: &Path) -> io::Result<Option<File>> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use rustix::io::Errno;

    // Without /proc the file could not be given a name later.
    if !Path::new(DESCRIPTORS).is_dir() {
        return Ok(None);
    }

    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match openat(CWD, folder, flags, Mode::from_raw_mode(0o666)) {
        Ok(file) => Ok(Some(file.into())),
        // Kernels and file systems without O_TMPFILE see an attempt to open a folder for writing.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Gives a file without a name this path, which must not exist.
#[cfg(target_os = "linux")]
pub(super) fn link(file: &File, path: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    use rustix::fs::{AtFlags, CWD, linkat};
    let descriptor = format!("{DESCRIPTORS}/{}", file.as_raw_fd());
    Ok(linkat(CWD, descriptor, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

/// The folder with a link to each open file of this process.
#[cfg(target_os = "linux")]
const DESCRIPTORS: &str = "/proc/self/fd";

#[cfg(not(target_os = "linux"))]
pub(super) fn create(_: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn link(_: &File, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
