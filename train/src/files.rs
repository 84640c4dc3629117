//! Files and folders that are there whole, or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::Error;

/// Writes a file under another name, and renames it when all of it is on the disk.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let part = part(path);
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)
    });
    written.map_err(|source| {
        let _ = fs::remove_file(&part);
        Error::Write {
            path: path.to_owned(),
            source,
        }
    })
}

/// Fills a folder under another name, and renames it when it is full. One that is there is replaced, and whole
/// until then.
pub(crate) fn folder(
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<(), Error> {
    let part = part(path);
    let fault = |source| Error::Write {
        path: path.to_owned(),
        source,
    };
    let _ = fs::remove_dir_all(&part);
    fs::create_dir_all(&part).map_err(fault)?;
    let filled = fill(&part).and_then(|()| {
        let old = hidden(path, "old");
        let _ = fs::remove_dir_all(&old);
        if path.exists() {
            fs::rename(path, &old).map_err(fault)?;
        }
        let renamed = fs::rename(&part, path).inspect_err(|_| drop(fs::rename(&old, path)));
        renamed.map_err(fault)?;
        let _ = fs::remove_dir_all(&old);
        Ok(())
    });
    if filled.is_err() {
        let _ = fs::remove_dir_all(&part);
    }
    filled
}

/// The name that something has until it is whole.
fn part(path: &Path) -> PathBuf {
    hidden(path, "part")
}

fn hidden(path: &Path, end: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{end}"))
}

/// The problem of a file that is not as it was written.
pub(crate) fn damaged(error: &dyn std::error::Error) -> String {
    format!("it is damaged: {error}; go on from another checkpoint")
}
