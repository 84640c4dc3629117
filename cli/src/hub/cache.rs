//! The cache folder, in the layout that all clients of the hub share.
//!
//! ```text
//! models--ORG--REPO/refs/main               the commit of the branch
//! models--ORG--REPO/blobs/ETAG              the content of a file, named by its checksum
//! models--ORG--REPO/snapshots/COMMIT/NAME   a link to the content
//! .locks/models--ORG--REPO/ETAG.lock        locked while the content is downloaded
//! ```
//!
//! A content with its final name is complete, because it is renamed from `ETAG.incomplete` after
//! its checksum was verified. `refs/main` is written last, so the snapshot that it names contains
//! all files of the download.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::HubError;
use super::names;

/// The files of a repository in the cache.
pub(super) struct RepoCache {
    cache: PathBuf,
    folder_name: String,
}

/// A complete file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CachedFile {
    /// The name in the repository, with `/` between folders.
    pub(super) name: String,
    /// The path in the snapshot.
    pub(super) path: PathBuf,
    pub(super) size: u64,
}

pub(super) const CONFIG: &str = "config.json";
pub(super) const TOKENIZER: &str = "tokenizer.json";
pub(super) const TEKKEN: &str = "tekken.json";
pub(super) const WEIGHTS: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";

impl RepoCache {
    pub(super) fn new(cache: &Path, repo: &str) -> RepoCache {
        let folder_name = format!("models--{}", repo.replace('/', "--"));
        RepoCache {
            cache: cache.to_owned(),
            folder_name,
        }
    }

    /// Returns the folder of the repository.
    pub(super) fn folder(&self) -> PathBuf {
        self.cache.join(&self.folder_name)
    }

    pub(super) fn blobs(&self) -> PathBuf {
        self.folder().join("blobs")
    }

    pub(super) fn snapshots(&self) -> PathBuf {
        self.folder().join("snapshots")
    }

    pub(super) fn refs(&self) -> PathBuf {
        self.folder().join("refs")
    }

    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.snapshots().join(commit)
    }

    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.blobs().join(etag)
    }

    /// Returns the path of a partial download. Other clients also recognize it as incomplete.
    pub(super) fn part(&self, etag: &str) -> PathBuf {
        self.blobs().join(format!("{etag}.incomplete"))
    }

    pub(super) fn lock(&self, etag: &str) -> PathBuf {
        self.cache
            .join(".locks")
            .join(&self.folder_name)
            .join(format!("{etag}.lock"))
    }

    /// Returns the commit of the branch `main`, if a download of it has been completed.
    pub(super) fn commit(&self) -> Option<String> {
        let commit = fs::read_to_string(self.refs().join("main")).ok()?;
        let commit = commit.trim();
        if is_commit(commit) {
            Some(commit.to_owned())
        } else {
            None
        }
    }

    /// Lists the complete files of a snapshot, sorted by name. A link without content is left out.
    pub(super) fn files(&self, commit: &str) -> Vec<CachedFile> {
        let mut files = vec![];
        collect(&self.snapshot(commit), "", &mut files);
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files
    }

    /// Lists the commits that have a snapshot.
    pub(super) fn commits(&self) -> Vec<String> {
        let entries = fs::read_dir(self.snapshots())
            .into_iter()
            .flatten()
            .flatten();
        let names = entries
            .filter(|entry| entry.path().is_dir())
            .filter_map(|entry| entry.file_name().into_string().ok());
        let mut commits: Vec<String> = names.filter(|name| is_commit(name)).collect();
        commits.sort();
        commits
    }

    /// Creates the folders of a file in a snapshot, and returns the file's path.
    ///
    /// # Errors
    /// Returns an error if the name is unsafe, or if one of the folders is a link. A file in it
    /// would be written to the target of the link.
    pub(super) fn pointer(
        &self,
        repo: &str,
        commit: &str,
        name: &str,
    ) -> Result<PathBuf, HubError> {
        if let Some(problem) = names::problem(name) {
            return Err(HubError::Name {
                repo: repo.to_owned(),
                name: name.to_owned(),
                problem,
            });
        }

        let mut folder = self.snapshots();
        create_folder(&folder)?;

        // Each folder is created and checked separately, because `create_dir_all` would follow a
        // link.
        let parents = name.rsplit_once('/').map_or("", |(parents, _)| parents);
        for part in [commit]
            .into_iter()
            .chain(parents.split('/').filter(|part| !part.is_empty()))
        {
            folder.push(part);
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(HubError::Disk {
                        action: "create",
                        path: folder,
                        source: error,
                    });
                }
                Ok(()) | Err(_) => {}
            }
            if !fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir()) {
                let problem = "its folder in the cache is a link or a file";
                return Err(HubError::Name {
                    repo: repo.to_owned(),
                    name: name.to_owned(),
                    problem,
                });
            }
        }

        Ok(folder.join(name.rsplit_once('/').map_or(name, |(_, base)| base)))
    }

    /// Links `pointer` to the content `etag`. A link that exists there is replaced.
    ///
    /// # Errors
    /// Returns an error if the link cannot be created.
    pub(super) fn link(&self, pointer: &Path, etag: &str) -> Result<(), HubError> {
        let fault = |source| HubError::Disk {
            action: "create",
            path: pointer.to_owned(),
            source,
        };

        // The link is relative, so it stays valid when the user moves the cache.
        let depth = pointer
            .strip_prefix(self.folder())
            .map_or(0, |inside| inside.components().count() - 1);
        let mut target: PathBuf = std::iter::repeat_n("..", depth).collect();
        target.extend(["blobs", etag]);

        // A rename replaces the old link in one step, so other processes never see the file
        // missing.
        let temporary =
            pointer.with_file_name(format!(".warpwright-{}-{etag}", std::process::id()));
        let _ = fs::remove_file(&temporary);
        symlink(&target, &self.blob(etag), &temporary).map_err(fault)?;
        fs::rename(&temporary, pointer).map_err(|error| {
            let _ = fs::remove_file(&temporary);
            fault(error)
        })
    }

    /// Records the commit of the branch `main`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn set_commit(&self, commit: &str) -> Result<(), HubError> {
        if self.commit().as_deref() == Some(commit) {
            return Ok(());
        }

        let folder = self.refs();
        create_folder(&folder)?;
        let path = folder.join("main");
        let write = || {
            let mut file = tempfile::Builder::new()
                .prefix(".warpwright-")
                .tempfile_in(&folder)?;
            io::Write::write_all(&mut file, commit.as_bytes())?;
            file.persist(&path).map_err(|error| error.error)
        };
        write().map(drop).map_err(|source| HubError::Disk {
            action: "write",
            path: path.clone(),
            source,
        })
    }
}

/// Returns the names of all repositories in the cache, with their files.
pub(super) fn repositories(cache: &Path) -> Vec<(String, RepoCache)> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter_map(|name| Some(name.strip_prefix("models--")?.replace("--", "/")))
        .collect();
    names.sort();
    names
        .into_iter()
        .map(|repo| (repo.clone(), RepoCache::new(cache, &repo)))
        .collect()
}

/// Returns true if the files of a snapshot are a complete model in safetensors.
///
/// After an interrupted download, files that the index lists are missing.
pub(super) fn is_complete_folder(files: &[CachedFile]) -> bool {
    let find = |name: &str| files.iter().find(|file| file.name == name);
    if find(CONFIG).is_none() || find(TOKENIZER).or(find(TEKKEN)).is_none() {
        return false;
    }
    if find(WEIGHTS).is_some() {
        return true;
    }
    let Some(index) = find(INDEX).and_then(|index| fs::read(&index.path).ok()) else {
        return false;
    };

    weight_files(&index).is_ok_and(|names| names.iter().all(|name| find(name).is_some()))
}

/// Returns the names of the files in an index of weights, without duplicates.
///
/// # Errors
/// Returns the problem as a text if the index is malformed.
pub(super) fn weight_files(index: &[u8]) -> Result<Vec<String>, String> {
    let index: Value =
        serde_json::from_slice(index).map_err(|error| format!("{INDEX} is not JSON: {error}"))?;
    let map = index.get("weight_map").and_then(Value::as_object);
    let map = map
        .filter(|map| !map.is_empty())
        .ok_or_else(|| format!("{INDEX} has no \"weight_map\""))?;
    let mut names = vec![];
    for file in map.values() {
        let name = file
            .as_str()
            .ok_or_else(|| format!("{INDEX} has a tensor without a file"))?;
        names.push(name.to_owned());
    }

    names.sort();
    names.dedup();
    Ok(names)
}

/// Returns true if the text can be a commit. A server sends it, and it becomes the name of a
/// folder.
pub(super) fn is_commit(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

pub(super) fn create_folder(path: &Path) -> Result<(), HubError> {
    fs::create_dir_all(path).map_err(|source| HubError::Disk {
        action: "create",
        path: path.to_owned(),
        source,
    })
}

/// Collects the files below a folder. Links to folders are not followed, so this ends.
fn collect(folder: &Path, prefix: &str, files: &mut Vec<CachedFile>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };

        let path = entry.path();
        let name = format!("{prefix}{name}");
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&path, &format!("{name}/"), files);
        } else if let Ok(found) = fs::metadata(&path)
            && found.is_file()
        {
            files.push(CachedFile {
                name,
                path,
                size: found.len(),
            });
        }
    }
}

#[cfg(unix)]
fn symlink(target: &Path, _content: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

/// Creates a link on Windows. If the user lacks the privilege, the content is moved instead, as the
/// hub's Python client does.
#[cfg(windows)]
fn symlink(target: &Path, content: &Path, link: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, link).or_else(|_| fs::rename(content, link))
}
