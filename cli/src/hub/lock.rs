//! Locks of the cache. A client locks a file while it downloads a content, so that no other client
//! does the same.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::cache::create_folder;
use super::error::HubError;

/// A lock on a content. It is released when the value is dropped or the process ends.
pub(super) struct CacheLock(#[expect(dead_code, reason = "the open file is the lock")] File);

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

impl CacheLock {
    /// Waits for the lock. Calls `wait` once if another process has it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created or locked.
    pub(super) fn wait(path: &Path, wait: impl FnOnce()) -> Result<CacheLock, HubError> {
        let mut wait = Some(wait);
        loop {
            if let Some(lock) = CacheLock::try_new(path)? {
                return Ok(lock);
            }
            if let Some(wait) = wait.take() {
                wait();
            }
            thread::sleep(PAUSE);
        }
    }

    /// Returns the lock, or `None` if another process has it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created or locked.
    pub(super) fn try_new(path: &Path) -> Result<Option<CacheLock>, HubError> {
        let fault = |source| HubError::Disk {
            action: "lock",
            path: path.to_owned(),
            source,
        };
        if let Some(folder) = path.parent() {
            create_folder(folder)?;
        }

        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = match open {
            Err(error) if is_locked(&error) => return Ok(None),
            opened => opened.map_err(fault)?,
        };
        match lock(&file) {
            Err(error) if is_locked(&error) => Ok(None),
            Err(error) => Err(fault(error)),
            // Some clients delete the file before they release it. A lock on a deleted file has no
            // effect, because other clients lock the new file with the same name.
            Ok(()) if !is_at(&file, path) => Ok(None),
            Ok(()) => Ok(Some(CacheLock(file))),
        }
    }
}

/// Locks a file, or fails with `WouldBlock` if another process has the lock.
#[cfg(unix)]
fn lock(file: &File) -> io::Result<()> {
    use rustix::fs::{FlockOperation, flock};
    Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?)
}

/// Returns true if `path` still names the open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(locked), Ok(named)) => identity(locked) == identity(named),
        (Ok(_) | Err(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

/// Does nothing on other systems. If two processes download the same content, the checksum reveals
/// a mixture.
#[cfg(not(unix))]
fn lock(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    fs::metadata(path).is_ok()
}

/// Returns true if the error means that another process has the lock.
fn is_locked(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}
