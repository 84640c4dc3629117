//! Locks of the cache, shared with the hub's other clients: a file that is locked while a content is loaded.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::cache::create_folder;
use super::error::HubError;

/// A lock. It is released when this value is dropped, or when the process ends in any way.
pub(super) struct CacheLock(#[expect(dead_code, reason = "the open file is the lock")] File);

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

impl CacheLock {
    /// Waits for the lock. Calls `wait` once if another process has it.
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
            // Some clients delete the file before they release it. A lock on a deleted file excludes no one.
            Ok(()) if !is_at(&file, path) => Ok(None),
            Ok(()) => Ok(Some(CacheLock(file))),
        }
    }
}

#[cfg(unix)]
fn lock(file: &File) -> io::Result<()> {
    use rustix::fs::{FlockOperation, flock};
    Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?)
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(locked), Ok(named)) => identity(locked) == identity(named),
        (Ok(_) | Err(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

/// The file is not locked there: two processes then load the same content, and the checksum finds a mixture.
#[cfg(not(unix))]
fn lock(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    fs::metadata(path).is_ok()
}

fn is_locked(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}
