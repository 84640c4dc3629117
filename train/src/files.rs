//! Atomic writes: files and folders that are either complete or absent.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::Error;

/// Writes a file under a temporary name, and renames it once all of it is on the disk.
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

/// Fills a folder under a temporary name, and renames it once it is complete. An existing folder is
/// replaced, and stays complete until then.
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
        // A folder cannot be renamed over another one, so the old one is moved away first and
        // restored if the rename fails.
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

/// Returns the temporary name of an incomplete file or folder.
fn part(path: &Path) -> PathBuf {
    hidden(path, "part")
}

fn hidden(path: &Path, end: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{end}"))
}

/// Returns the problem of a file that cannot be parsed although this crate wrote it.
pub(crate) fn damaged(error: &dyn std::error::Error) -> String {
    format!("the file is damaged ({error}): resume from another checkpoint")
}
