//! A file that must not change while it is read.
//!
//! The file is read by offset instead of mapped, because the process would be killed if a mapped
//! file were truncated. Data read while another process writes may be half old and half new. After
//! reading, the caller must therefore check that the length and the modification time are still the
//! same. A file that is replaced by a rename is a different file, so the open one stays as it is.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::Error;

/// An open file, and its length and modification time when it was opened.
#[derive(Debug)]
pub(crate) struct StableFile {
    path: PathBuf,
    file: File,
    found: FileStamp,
}

/// The attributes that change when a file is written.
#[derive(Debug, PartialEq)]
struct FileStamp {
    len: u64,
    modified: Option<SystemTime>,
}

impl StableFile {
    pub(crate) fn open(path: &Path) -> Result<StableFile, Error> {
        let io = |source| Error::Open {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(io)?;
        let found = FileStamp::of(&file.metadata().map_err(io)?);
        Ok(StableFile {
            path: path.to_owned(),
            file,
            found,
        })
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub(crate) fn len(&self) -> u64 {
        self.found.len
    }

    /// Fills `bytes` with those from `offset` on.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        read_exact_at(&self.file, offset, bytes).map_err(|source| match source.kind() {
            ErrorKind::UnexpectedEof => self.changed(),
            _ => Error::Read {
                path: self.path.clone(),
                source,
            },
        })
    }

    /// Whether all that was read is of the file as it was opened.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let found = self.file.metadata();
        let found = found.map_err(|source| Error::Read {
            path: self.path.clone(),
            source,
        })?;
        if FileStamp::of(&found) == self.found {
            Ok(())
        } else {
            Err(self.changed())
        }
    }

    fn changed(&self) -> Error {
        Error::Changed {
            path: self.path.clone(),
        }
    }
}

impl FileStamp {
    fn of(metadata: &Metadata) -> FileStamp {
        FileStamp {
            len: metadata.len(),
            modified: metadata.modified().ok(),
        }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut offset: u64, mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, bytes, offset)?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        bytes = &mut bytes[read..];
        offset += read as u64;
    }
    Ok(())
}
