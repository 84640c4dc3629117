//! Download of a file into the cache. It resumes partial downloads and verifies the checksum before
//! the file appears.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use indicatif::HumanBytes;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use ureq::http::StatusCode;

use super::cache::{RepoCache, create_folder};
use super::client::{Client, FailedAttempt, HubAnswer, Patience, Subject, body};
use super::error::HubError;
use super::listing::{Checksum, RemoteFile};
use super::lock::CacheLock;
use crate::terminal::progress::Bar;
use warpwright_emu::terminal::say;

/// The number of bytes that an attempt must add to reset the count of failed attempts.
const PROGRESS: u64 = 1 << 20;

/// The source and the target of downloads: a repository at one commit, and the cache.
pub(super) struct Download<'a> {
    pub(super) client: &'a Client,
    pub(super) cache: &'a RepoCache,
    pub(super) repo: &'a str,
    pub(super) commit: &'a str,
}

impl Download<'_> {
    /// Returns true if the cache contains the complete file.
    pub(super) fn is_cached(&self, file: &RemoteFile) -> bool {
        has_size(&self.cache.blob(file.checksum.etag()), file.size)
    }

    /// Returns the number of bytes of the file that are not on the disk yet.
    pub(super) fn missing(&self, file: &RemoteFile) -> u64 {
        if self.is_cached(file) {
            return 0;
        }
        let part = fs::metadata(self.cache.part(file.checksum.etag())).map_or(0, |part| part.len());
        file.size.saturating_sub(part)
    }

    /// Downloads the file unless the cache has it, and returns its path in the snapshot.
    ///
    /// `before` is the total size of the files before this one, for the progress bar.
    ///
    /// # Errors
    /// Returns an error if the download fails repeatedly, or if the disk cannot be written.
    pub(super) fn run(
        &self,
        file: &RemoteFile,
        bar: &Bar,
        before: u64,
    ) -> Result<PathBuf, HubError> {
        let pointer = self.cache.pointer(self.repo, self.commit, &file.name)?;
        if has_size(&pointer, file.size) {
            return Ok(pointer);
        }

        let etag = file.checksum.etag();
        create_folder(&self.cache.blobs())?;
        let _lock = CacheLock::wait(&self.cache.lock(etag), || {
            bar.suspend(|| {
                say(format!(
                    "waiting for another process that loads {}",
                    file.name
                ))
            });
        })?;

        // Another process may have downloaded it while this one waited for the lock.
        if !has_size(&self.cache.blob(etag), file.size) {
            self.load(file, bar, before)?;
        }

        self.cache.link(&pointer, etag)?;
        Ok(pointer)
    }

    /// Downloads the content. After an error, the partial file stays for the next run, unless its
    /// bytes are wrong.
    fn load(&self, file: &RemoteFile, bar: &Bar, before: u64) -> Result<(), HubError> {
        let etag = file.checksum.etag();
        let mut part = PartFile::open(&self.cache.part(etag), file)?;
        if part.len > 0 {
            bar.suspend(|| {
                say(format!(
                    "continuing {} at {}",
                    file.name,
                    HumanBytes(part.len)
                ))
            });
        }

        let mut patience = Patience::default();
        while part.len < file.size {
            let start = part.len;
            if let Err(attempt) = self.transfer(file, &mut part, bar, before) {
                // A connection that breaks often but makes progress should still finish.
                if part.len >= start + PROGRESS {
                    patience.renew();
                }
                patience.wait(attempt, &|line| bar.suspend(|| say(line)))?;
            }
        }

        bar.set_position(before + file.size);
        part.finish(file, &self.cache.blob(etag))
    }

    /// Requests the rest of the file and appends the bytes that arrive.
    fn transfer(
        &self,
        file: &RemoteFile,
        part: &mut PartFile,
        bar: &Bar,
        before: u64,
    ) -> Result<(), FailedAttempt> {
        // Each attempt starts at the hub, because the signed addresses that it redirects to expire.
        let url = self.client.address(&format!(
            "/{}/resolve/{}/{}",
            self.repo, self.commit, file.name
        ));
        let subject = Subject {
            repo: self.repo,
            file: Some(&file.name),
        };
        let from = if part.len > 0 { Some(part.len) } else { None };
        let answer = self.client.get(&url, subject, from)?;
        let again = |problem: String| {
            let error = HubError::Answer {
                url: answer.url.to_string(),
                problem,
            };
            FailedAttempt::Retry { error, after: None }
        };
        if answer
            .header("content-encoding")
            .is_some_and(|encoding| !encoding.eq_ignore_ascii_case("identity"))
        {
            return Err(again(
                "it is compressed, which was not requested".to_owned(),
            ));
        }

        let start = match answer.response.status() {
            StatusCode::PARTIAL_CONTENT if part.len > 0 => part.len,
            StatusCode::OK => 0,
            status => {
                part.clear()?;
                return Err(again(format!(
                    "its status is {status}, which does not fit the request"
                )));
            }
        };
        if start > 0 {
            let range = answer.header("content-range").unwrap_or_default();
            if !is_rest(range, start, file.size) {
                let problem = format!(
                    "it has the range {range:?}, but the bytes from {start} on of {} were requested",
                    file.size
                );
                part.clear()?;
                return Err(again(problem));
            }
        }

        // This check comes before the partial file is cleared. Otherwise the login page of a public
        // network would destroy a partial download.
        let announced = answer
            .header("content-length")
            .and_then(|length| length.parse::<u64>().ok());
        let expected = file.size - start;
        if let Some(announced) = announced.filter(|announced| *announced != expected) {
            return Err(again(format!(
                "it has {announced} bytes, but {expected} are expected"
            )));
        }

        if start < part.len {
            // The server ignores ranges and sends all bytes again.
            bar.suspend(|| {
                say(format!(
                    "{} cannot be continued, it is loaded from the beginning",
                    file.name
                ))
            });
            part.clear()?;
        }

        let HubAnswer { response, url } = answer;
        let mut reader = response.into_body().into_reader();
        let mut buffer = vec![0; 1 << 18];
        loop {
            bar.set_position(before + part.len);
            let read = match reader.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.map_err(|error| body(&url, error))?,
            };
            if read == 0 {
                break;
            }

            if part.len + read as u64 > file.size {
                part.remove();
                return Err(FailedAttempt::Stop(HubError::Long {
                    file: file.name.clone(),
                    expected: file.size,
                }));
            }

            part.append(&buffer[..read])?;
        }

        if part.len < file.size {
            let problem = format!("it ends after {} of {} bytes", part.len, file.size);
            let error = HubError::Answer {
                url: url.to_string(),
                problem,
            };
            return Err(FailedAttempt::Retry { error, after: None });
        }

        Ok(())
    }
}

/// A partial file.
struct PartFile {
    path: PathBuf,
    file: File,
    len: u64,
    hasher: Hasher,
    size: u64,
}

/// The checksum of the bytes so far.
enum Hasher {
    Sha256(Sha256),
    GitSha1(Sha1),
    None,
}

impl Hasher {
    fn new(checksum: &Checksum, size: u64) -> Hasher {
        match checksum {
            Checksum::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Checksum::GitSha1(_) => {
                Hasher::GitSha1(Sha1::new_with_prefix(format!("blob {size}\0")))
            }
            Checksum::Unknown(_) => Hasher::None,
        }
    }

    fn restart(&mut self, size: u64) {
        *self = match self {
            Hasher::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Hasher::GitSha1(_) => Hasher::GitSha1(Sha1::new_with_prefix(format!("blob {size}\0"))),
            Hasher::None => Hasher::None,
        };
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::GitSha1(hasher) => hasher.update(bytes),
            Hasher::None => {}
        }
    }

    /// Returns the checksum in hexadecimal, if there is one.
    fn finish(self) -> Option<String> {
        match self {
            Hasher::Sha256(hasher) => Some(format!("{:x}", hasher.finalize())),
            Hasher::GitSha1(hasher) => Some(format!("{:x}", hasher.finalize())),
            Hasher::None => None,
        }
    }
}

impl PartFile {
    /// Opens or creates a partial file, and hashes the bytes that it contains.
    fn open(path: &Path, remote: &RemoteFile) -> Result<PartFile, HubError> {
        let fault = |source| HubError::Disk {
            action: "write",
            path: path.to_owned(),
            source,
        };

        // With a link, the bytes would be written to another place.
        if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(fault(io::Error::other("it is not a file")));
        }

        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let mut file = options.map_err(fault)?;
        let mut hasher = Hasher::new(&remote.checksum, remote.size);
        let mut len = 0;
        let mut buffer = vec![0; 1 << 18];
        loop {
            let read = file.read(&mut buffer).map_err(fault)?;
            if read == 0 {
                break;
            }
            hasher.update(&buffer[..read]);
            len += read as u64;
        }

        let mut part = PartFile {
            path: path.to_owned(),
            file,
            len,
            hasher,
            size: remote.size,
        };
        if part.len > part.size {
            part.clear()?;
        }

        Ok(part)
    }

    /// Appends bytes.
    fn append(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        // On a full disk, some of the bytes are written. They are correct, so the next run can
        // continue after them.
        let fault = |source| HubError::Disk {
            action: "write",
            path: self.path.clone(),
            source,
        };
        self.file.write_all(bytes).map_err(fault)?;
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Removes all bytes from the file.
    fn clear(&mut self) -> Result<(), HubError> {
        let fault = |source| HubError::Disk {
            action: "write",
            path: self.path.clone(),
            source,
        };
        self.file.set_len(0).map_err(fault)?;
        io::Seek::rewind(&mut self.file).map_err(fault)?;
        self.len = 0;
        self.hasher.restart(self.size);
        Ok(())
    }

    /// Deletes the file, because its bytes are wrong.
    fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Verifies the checksum, and renames the file to its final name.
    fn finish(self, remote: &RemoteFile, blob: &Path) -> Result<(), HubError> {
        let PartFile {
            path, file, hasher, ..
        } = self;
        let expected = remote.checksum.etag();
        match hasher.finish() {
            Some(found) if !found.eq_ignore_ascii_case(expected) => {
                let _ = fs::remove_file(&path);
                let file = remote.name.clone();
                let expected = expected.to_owned();
                return Err(HubError::Checksum {
                    file,
                    expected,
                    found,
                });
            }
            Some(_) => {}
            None => say(format!(
                "warning: the server announces no checksum of {}; only its size is checked",
                remote.name
            )),
        }

        // The final name promises a complete content, so all bytes must be on the disk before the
        // rename.
        let moved = file.sync_all().and_then(|()| fs::rename(&path, blob));
        moved.map_err(|source| HubError::Disk {
            action: "write",
            path: blob.to_owned(),
            source,
        })
    }
}

/// Returns true if the header `bytes A-B/SIZE` describes the rest of a file from `start` on.
fn is_rest(range: &str, start: u64, size: u64) -> bool {
    let Some((range, total)) = range
        .strip_prefix("bytes ")
        .and_then(|range| range.split_once('/'))
    else {
        return false;
    };
    let Some((first, last)) = range.split_once('-') else {
        return false;
    };
    first.trim().parse() == Ok(start)
        && last.trim().parse() == Ok(size - 1)
        && (total.trim() == "*" || total.trim().parse() == Ok(size))
}

/// Returns true if the path is a file of this size.
fn has_size(path: &Path, size: u64) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == size)
}

/// Checks that the disk of the cache has space for `needed` more bytes.
///
/// # Errors
/// Returns an error if it has not. If the system does not report the free space, there is no error.
pub(super) fn check_space(folder: &Path, needed: u64) -> Result<(), HubError> {
    match free_space(folder) {
        Some(free) if free < needed => Err(HubError::Space {
            needed,
            free,
            folder: folder.to_owned(),
        }),
        Some(_) | None => Ok(()),
    }
}

#[cfg(unix)]
fn free_space(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Returns `None` on other systems, where a full disk is only noticed when a write fails.
#[cfg(not(unix))]
fn free_space(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::is_rest;

    #[test]
    fn ranges_are_compared() {
        for range in ["bytes 5-9/10", "bytes 5-9/*"] {
            assert!(is_rest(range, 5, 10), "{range}");
        }
        for range in [
            "",
            "bytes",
            "5-9/10",
            "bytes 0-9/10",
            "bytes 5-8/10",
            "bytes 5-9/11",
            "bytes 5-9",
            "bytes 6-9/10",
            "bytes */10",
            "bytes 5-/10",
            "bytes x-y/z",
            "items 5-9/10",
            "bytes -5/10",
        ] {
            assert!(!is_rest(range, 5, 10), "{range}");
        }
    }
}
