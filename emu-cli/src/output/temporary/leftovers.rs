//! Removal of temporary files and folders whose writer was killed.

#[cfg(unix)]
use std::fs::DirEntry;
use std::path::Path;
#[cfg(unix)]
use std::time::Duration;

/// The beginning of every temporary name. [`LETTERS`] letters or digits follow.
pub(super) const PREFIX: &str = ".warpwright-";
/// The number of random characters that `tempfile` appends to the prefix.
#[cfg(unix)]
const LETTERS: usize = 6;

/// Removes the leftovers in a folder whose locks are free. A running writer still has its lock.
///
/// Errors are ignored, because a leftover does no harm except that it takes space.
#[cfg(unix)]
pub(super) fn remove(folder: &Path) {
    use std::fs::{self, File};

    use rustix::fs::{FlockOperation, flock};
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };

    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else {
            continue;
        };

        let is_leftover = entry.file_name().to_str().is_some_and(is_temporary_name);
        if !is_leftover || kind.is_symlink() || !is_older(&entry, YOUNG) {
            continue;
        }

        let path = entry.path();
        let Ok(file) = File::open(&path) else {
            continue;
        };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }

        let _ = if kind.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
    }
}

#[cfg(not(unix))]
pub(super) fn remove(_: &Path) {}

/// The age up to which a temporary file is left alone, because its writer may not have locked it
/// yet.
#[cfg(unix)]
const YOUNG: Duration = Duration::from_secs(2);

/// Returns true if an entry was last modified more than `age` ago.
#[cfg(unix)]
fn is_older(entry: &DirEntry, age: Duration) -> bool {
    let modified = entry.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|elapsed| elapsed > age))
}

/// Returns true if the name could be a temporary name of this program.
#[cfg(unix)]
fn is_temporary_name(name: &str) -> bool {
    let letters = name.strip_prefix(PREFIX);
    letters.is_some_and(|letters| {
        letters.len() == LETTERS && letters.chars().all(|c| c.is_ascii_alphanumeric())
    })
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::SystemTime;

    use rustix::fs::{FlockOperation, flock};

    use super::*;

    #[test]
    fn only_old_leftovers_with_a_free_lock_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, seconds: u64| {
            let path = folder.path().join(name);
            fs::write(&path, "x").unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds))
                .unwrap();
            file
        };
        make(".warpwright-Ab3dE9", 60);
        make(".warpwright-young1", 0);
        make(".warpwright-toolong", 60);
        make(".warpwright-notes.", 60);
        make("warpwright-abcdef", 60);
        let locked = make(".warpwright-locked", 60);
        flock(&locked, FlockOperation::NonBlockingLockExclusive).unwrap();
        fs::create_dir(folder.path().join(".warpwright-folder")).unwrap();
        fs::write(folder.path().join(".warpwright-folder/weights"), "x").unwrap();
        let times = File::open(folder.path().join(".warpwright-folder")).unwrap();
        times
            .set_modified(SystemTime::now() - Duration::from_secs(60))
            .unwrap();
        drop(times);
        remove(folder.path());
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let kept = [
            ".warpwright-locked",
            ".warpwright-notes.",
            ".warpwright-toolong",
            ".warpwright-young1",
            "warpwright-abcdef",
        ];
        assert_eq!(left, kept);
    }
}
