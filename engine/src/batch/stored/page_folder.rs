//! The folder of page files: its permissions, its size, and writes that leave no half files.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::page_file;
use super::page_format::PageKey;
use crate::Error;

/// The name of the folder with the files, in the folder that the user names.
const NAME: &str = "warpwright-pages";
/// The file that a process locks while it writes.
const LOCK: &str = "lock";
/// The ending of files with pages.
const PAGE: &str = "page";
/// The ending of files that are being written.
const TEMPORARY: &str = "partial";

/// A private folder with files of pages.
#[derive(Debug, Clone)]
pub(crate) struct FolderPath {
    path: PathBuf,
}

/// A file with a page.
#[derive(Debug, Clone)]
pub(crate) struct FoundPage {
    pub(crate) key: PageKey,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// The time when the page was used, as far as it was recorded.
    pub(crate) used: SystemTime,
}

/// A file of the cache folder that is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IgnoredFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The reason, as a sentence that begins with "it" or with the property that differs.
    pub reason: String,
}

/// The files of a folder.
#[derive(Debug)]
pub(crate) struct FolderFiles {
    pub(crate) pages: Vec<FoundPage>,
    /// The files that have no page.
    pub(crate) others: Vec<IgnoredFile>,
}

/// A folder that no other process writes to.
pub(crate) struct LockedFolder<'f> {
    folder: &'f FolderPath,
    /// The lock is released when the file is closed.
    _lock: File,
}

impl FolderPath {
    /// Creates the folder in `parent` if it is missing, and checks that other users cannot access it.
    pub(crate) fn open(parent: &Path) -> Result<FolderPath, Error> {
        let path = parent.join(NAME);
        let folder = FolderPath { path };
        folder.create(parent).map_err(|source| Error::PageFile {
            what: "use the cache folder",
            path: folder.path.clone(),
            source,
        })?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn create(&self, parent: &Path) -> io::Result<()> {
        private_folders().recursive(true).create(parent)?;
        match private_folders().create(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            // It is checked below in both cases.
            Ok(()) | Err(_) => {}
        }

        // A link could lead to a folder of somebody else.
        let metadata = fs::symlink_metadata(&self.path)?;
        if !metadata.is_dir() {
            return Err(io::Error::other("it is not a folder"));
        }
        let lock = self.open_lock()?;
        check_private(&metadata, &lock.metadata()?)
    }

    fn open_lock(&self) -> io::Result<File> {
        let mut options = private_files();
        options
            .create(true)
            .truncate(false)
            .open(self.path.join(LOCK))
    }

    /// Returns all files with pages, and the other files with the reason why they are none.
    pub(crate) fn list(&self) -> Result<FolderFiles, Error> {
        let mut pages = vec![];
        let mut others = vec![];
        let failed = |source| Error::PageFile {
            what: "list the cache folder",
            path: self.path.clone(),
            source,
        };
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.file_name().is_some_and(|name| name == LOCK) {
                continue;
            }
            match found_page(&path) {
                Ok(page) => pages.push(page),
                Err(reason) => others.push(IgnoredFile { path, reason }),
            }
        }

        // The order of a folder is arbitrary.
        pages.sort_by_key(|page| page.key);
        others.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(FolderFiles { pages, others })
    }

    pub(crate) fn path_of(&self, key: PageKey) -> PathBuf {
        self.path.join(format!("{key}.{PAGE}"))
    }

    /// Locks the folder for writing and removes what an interrupted process has left.
    pub(crate) fn lock(&self) -> Result<LockedFolder<'_>, Error> {
        let failed = |source| Error::PageFile {
            what: "lock the cache folder",
            path: self.path.clone(),
            source,
        };
        let lock = self.open_lock().map_err(failed)?;
        try_lock(&lock).map_err(failed)?;
        for IgnoredFile { path, .. } in self.list()?.others {
            if path.extension().is_some_and(|ending| ending == TEMPORARY) {
                remove(&path)?;
            }
        }
        Ok(LockedFolder {
            folder: self,
            _lock: lock,
        })
    }
}

impl LockedFolder<'_> {
    /// Writes a page. An existing file of the key is replaced only by the complete new one.
    pub(crate) fn write(&self, key: PageKey, bytes: &[u8], used: SystemTime) -> Result<(), Error> {
        let path = self.folder.path_of(key);
        let temporary = path.with_extension(TEMPORARY);
        write_renamed(&path, &temporary, |file| {
            page_file::write(file, bytes)?;
            file.set_modified(used)
        })
    }

    /// Records that a saved page was used.
    pub(crate) fn touch(&self, key: PageKey, used: SystemTime) -> Result<(), Error> {
        let path = self.folder.path_of(key);
        let touched = OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_modified(used));
        touched.map_err(|source| Error::PageFile {
            what: "write",
            path,
            source,
        })
    }

    pub(crate) fn remove(&self, page: &FoundPage) -> Result<(), Error> {
        remove(&page.path)
    }
}

/// Returns times for pages in the order of their value. Files that are used at the same time are
/// removed in the opposite order.
pub(crate) fn times(now: SystemTime) -> impl Iterator<Item = SystemTime> {
    (0..).map(move |rank| now - Duration::from_millis(rank))
}

/// Removes a file. It is no error if another process was faster.
fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::PageFile {
            what: "remove",
            path: path.to_owned(),
            source,
        }),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a private file under a temporary name and renames it. After an error the temporary file
/// is removed, and a file at `path` is as it was.
fn write_renamed(
    path: &Path,
    temporary: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), Error> {
    let written = private_files()
        .create_new(true)
        .open(temporary)
        .and_then(|mut file| write(&mut file))
        .and_then(|()| fs::rename(temporary, path));
    written.map_err(|source| {
        // The error of the write is the one to report. If the removal fails too, the next process
        // that locks the folder tries again.
        let _ = fs::remove_file(temporary);
        Error::PageFile {
            what: "write",
            path: path.to_owned(),
            source,
        }
    })
}

fn found_page(path: &Path) -> Result<FoundPage, String> {
    let metadata = fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is no file".to_owned());
    }
    if path.extension().is_some_and(|ending| ending == TEMPORARY) {
        return Err("it was not written completely".to_owned());
    }

    let name = path.file_stem().and_then(|stem| stem.to_str());
    let key = name.and_then(PageKey::parse);
    let key = key.filter(|_| path.extension().is_some_and(|ending| ending == PAGE));
    Ok(FoundPage {
        key: key.ok_or("its name is not that of a page")?,
        path: path.to_owned(),
        bytes: metadata.len(),
        used: metadata.modified().map_err(|error| error.to_string())?,
    })
}

/// Returns a builder of folders that only their owner can access.
fn private_folders() -> DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix sets the mode"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// Returns options that create files that only their owner can access.
fn private_files() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Returns an error if others than the owner of `own`, a file of this process, can access a folder.
#[cfg(unix)]
fn check_private(folder: &fs::Metadata, own: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    if folder.uid() != own.uid() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if folder.mode() & 0o077 != 0 {
        return Err(io::Error::other(
            "other users can access it: remove their permissions with chmod 700",
        ));
    }
    Ok(())
}

/// Locks a file, or returns an error if another process has locked it.
#[cfg(unix)]
fn try_lock(file: &File) -> io::Result<()> {
    use rustix::fs::{FlockOperation, flock};
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(io::Error::other("another process is saving its pages"))
        }
        locked => Ok(locked?),
    }
}

/// Does nothing on other systems. Two processes that save the same page write the same bytes.
#[cfg(not(unix))]
fn try_lock(_file: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn check_private(_folder: &fs::Metadata, _own: &fs::Metadata) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::page_format::PageFormat;
    use super::super::page_format::tests::properties;
    use super::*;
    use crate::batch::pages::prefixes::PrefixScope;

    fn key(number: u32) -> PageKey {
        PageFormat::new(&properties()).key(None, PrefixScope::default(), &[number])
    }

    fn names(folder: &FolderPath) -> Vec<String> {
        let FolderFiles { pages, others } = folder.list().unwrap();
        let paths = pages.into_iter().map(|page| page.path);
        let paths = paths.chain(others.into_iter().map(|file| file.path));
        paths
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect()
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_has_access() {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let parent = tempfile::tempdir().unwrap();
        let parent = parent.path().join("a").join("b");
        let folder = FolderPath::open(&parent).unwrap();
        folder
            .lock()
            .unwrap()
            .write(key(1), b"page", SystemTime::now())
            .unwrap();
        assert_eq!(mode(&parent), 0o700);
        assert_eq!(mode(folder.path()), 0o700);
        assert_eq!(mode(&folder.path_of(key(1))), 0o600);
        assert_eq!(mode(&folder.path().join(LOCK)), 0o600);

        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o750)).unwrap();
        let error = FolderPath::open(&parent).unwrap_err().to_string();
        assert!(error.contains("chmod 700"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_and_a_file_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let path = parent.path().join(NAME);
        std::os::unix::fs::symlink(other.path(), &path).unwrap();
        let error = FolderPath::open(parent.path()).unwrap_err().to_string();
        assert!(error.contains("it is not a folder"), "{error}");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(FolderPath::open(parent.path()).is_err());
        assert!(FolderPath::open(&path).is_err());
    }

    /// A write that fails, for example because the disk is full, leaves what was there.
    #[test]
    fn a_failed_write_changes_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let folder = FolderPath::open(parent.path()).unwrap();
        let locked = folder.lock().unwrap();
        locked.write(key(1), b"old", SystemTime::now()).unwrap();
        let path = folder.path_of(key(1));
        let failed = write_renamed(&path, &path.with_extension(TEMPORARY), |file| {
            page_file::write(file, b"ne")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        let error = failed.unwrap_err().to_string();
        assert!(
            error.starts_with("cannot write ") && error.contains("no storage space"),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(&folder), [format!("{}.page", key(1))]);
    }

    #[test]
    fn what_an_interrupted_process_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = FolderPath::open(parent.path()).unwrap();
        let half = folder.path_of(key(1)).with_extension(TEMPORARY);
        fs::write(&half, "half").unwrap();
        fs::write(folder.path().join("notes.txt"), "of the user").unwrap();
        fs::create_dir(folder.path().join(format!("{}.page", key(2)))).unwrap();
        let FolderFiles { pages, others } = folder.list().unwrap();
        assert_eq!((pages.len(), others.len()), (0, 3));
        let locked = folder.lock().unwrap();
        assert!(!half.exists());
        assert_eq!(names(&folder).len(), 2);

        let error = folder.lock().err().unwrap().to_string();
        assert!(error.contains("another process is saving"), "{error}");
        drop(locked);
        folder.lock().unwrap();
    }

    #[test]
    fn times_keep_the_order() {
        let now = SystemTime::now();
        let times: Vec<_> = times(now).take(3).collect();
        assert!(times[0] == now && times[0] > times[1] && times[1] > times[2]);
    }
}
