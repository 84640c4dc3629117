//! Removal of models from the cache. If anything is unexpected there, nothing is removed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::cache::RepoCache;
use super::error::{HubChoice, HubChoices, HubError};
use super::lock::CacheLock;
use super::names::PREFIX;
use super::reference::HubReference;
use super::{names, settings};

/// The report of a removal.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    /// The number of removed files, including partial downloads.
    pub(crate) files: usize,
    /// The number of bytes that were freed.
    pub(crate) bytes: u64,
    /// The number of contents that stay in the store that all repositories share.
    pub(crate) shared: usize,
}

/// The folders that clients of the hub create in a repository's folder.
const KNOWN: &[&str] = &["blobs", "refs", "snapshots", ".no_exist", "trees"];

/// Removes a repository or one of its files from the cache.
///
/// # Errors
/// Returns an error and removes nothing in each of these cases: a file is not part of the cache
/// layout, another repository needs a content, or another process is downloading a content.
pub(crate) fn remove(reference: &HubReference) -> Result<Removed, HubError> {
    let root = settings::cache_folder()?;
    let cache = RepoCache::new(&root, &reference.repo);
    let found = fs::symlink_metadata(cache.folder());
    let not_cached = || HubError::NotCached {
        name: reference.to_string(),
        cache: root.clone(),
    };
    if !found.map_err(|_| not_cached())?.is_dir() {
        return Err(unsure(
            &cache.folder(),
            "it is a link or a file, where a folder is expected",
        ));
    }

    let plan = RemovalPlan::new(&cache, reference, &root)?.ok_or_else(not_cached)?;

    // A process keeps the lock of a content until the snapshot links to it. With all locks taken,
    // the plan stays valid.
    let etags: BTreeSet<String> = plan
        .contents
        .iter()
        .filter_map(|content| etag(content))
        .collect();
    let mut locks = vec![];
    for etag in &etags {
        let lock = CacheLock::try_new(&cache.lock(etag))?;
        locks.push(lock.ok_or_else(|| HubError::Busy {
            repo: reference.repo.clone(),
        })?);
    }

    if RemovalPlan::new(&cache, reference, &root)?.as_ref() != Some(&plan) {
        return Err(HubError::Busy {
            repo: reference.repo.clone(),
        });
    }

    plan.carry_out(&cache)
}

/// The files to remove.
#[derive(Debug, PartialEq, Eq)]
struct RemovalPlan {
    /// Links in snapshots.
    pointers: Vec<PathBuf>,
    /// Contents in the folder `blobs`.
    contents: BTreeSet<PathBuf>,
    scope: RemovalScope,
}

/// The extent of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemovalScope {
    Repository,
    File,
}

/// A file of a snapshot.
struct Pointer {
    name: String,
    path: PathBuf,
    /// The content that the file links to, or `None` if it is not a link.
    content: Option<PathBuf>,
}

impl RemovalPlan {
    /// Lists the files to remove. Returns `None` if the model is not in the cache.
    fn new(
        cache: &RepoCache,
        reference: &HubReference,
        root: &Path,
    ) -> Result<Option<RemovalPlan>, HubError> {
        let mut pointers = vec![];
        collect(&cache.snapshots(), &cache.blobs(), &mut pointers)?;
        let (scope, removed): (RemovalScope, Vec<&Pointer>) = match &reference.selection {
            None => {
                check_entries(&cache.folder())?;
                (RemovalScope::Repository, pointers.iter().collect())
            }
            Some(selection) => {
                let Some(model) = chosen(reference, selection, &pointers)? else {
                    return Ok(None);
                };
                (
                    RemovalScope::File,
                    pointers
                        .iter()
                        .filter(|pointer| names::model(&pointer.name) == model)
                        .collect(),
                )
            }
        };
        let contents = match scope {
            RemovalScope::Repository => contents(&cache.blobs())?,
            RemovalScope::File => {
                let kept: BTreeSet<&PathBuf> = pointers
                    .iter()
                    .filter(|pointer| !removed.iter().any(|removed| removed.path == pointer.path))
                    .filter_map(|pointer| pointer.content.as_ref())
                    .collect();
                let contents = removed
                    .iter()
                    .filter_map(|pointer| pointer.content.as_ref());

                // The content of a broken link does not exist.
                let exists = |content: &&PathBuf| fs::symlink_metadata(content).is_ok();
                contents
                    .filter(|content| !kept.contains(content))
                    .filter(exists)
                    .cloned()
                    .collect()
            }
        };
        check_others(root, cache, &contents)?;
        let pointers = removed
            .into_iter()
            .map(|pointer| pointer.path.clone())
            .collect();
        Ok(Some(RemovalPlan {
            pointers,
            contents,
            scope,
        }))
    }

    /// Removes the files.
    fn carry_out(&self, cache: &RepoCache) -> Result<Removed, HubError> {
        let mut removed = Removed::default();
        for path in &self.pointers {
            // A link takes no space. Its content is counted below.
            let found = fs::symlink_metadata(path).map_err(|source| fault(path, source))?;
            if found.is_file() {
                removed.bytes += found.len();
            }
            removed.files += 1;
            fs::remove_file(path).map_err(|source| fault(path, source))?;
            self.prune(cache, path)?;
        }

        for path in &self.contents {
            let found = fs::symlink_metadata(path).map_err(|source| fault(path, source))?;
            if found.is_file() {
                removed.bytes += found.len();
            } else {
                removed.shared += 1;
            }

            if path.extension().is_some_and(|end| end == "incomplete") {
                removed.files += 1;
            }

            fs::remove_file(path).map_err(|source| fault(path, source))?;
        }

        let is_empty = |folder: PathBuf| {
            fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none())
        };
        if self.scope == RemovalScope::Repository
            || (is_empty(cache.snapshots()) && is_empty(cache.blobs()))
        {
            self.remove_rest(cache)?;
        }

        Ok(removed)
    }

    /// Removes the folders that became empty, and the references to a commit without files.
    fn prune(&self, cache: &RepoCache, path: &Path) -> Result<(), HubError> {
        let snapshots = cache.snapshots();
        let mut folder = path.parent();
        while let Some(empty) =
            folder.filter(|folder| **folder != *snapshots && fs::remove_dir(folder).is_ok())
        {
            if empty.parent() == Some(&snapshots) {
                let commit = empty.file_name().unwrap_or_default().to_string_lossy();
                remove_names(&cache.refs(), &commit)?;
            }
            folder = empty.parent();
        }

        Ok(())
    }

    /// Removes the folder of a repository that has no contents any more. Folders with files stay.
    fn remove_rest(&self, cache: &RepoCache) -> Result<(), HubError> {
        for known in KNOWN {
            let folder = cache.folder().join(known);
            if !folder.exists() {
                continue;
            }
            match *known {
                // These contain only references and records of the clients.
                "refs" | ".no_exist" | "trees" => {
                    fs::remove_dir_all(&folder).map_err(|source| fault(&folder, source))?;
                }
                _ => remove_empty(&folder)?,
            }
        }
        remove_empty(&cache.folder())
    }
}

fn fault(path: &Path, source: io::Error) -> HubError {
    HubError::Disk {
        action: "remove",
        path: path.to_owned(),
        source,
    }
}

fn unsure(path: &Path, problem: &'static str) -> HubError {
    HubError::Layout {
        path: path.to_owned(),
        problem,
    }
}

/// Returns the name of the lock of a content, or of a part of it.
fn etag(content: &Path) -> Option<String> {
    let name = content.file_name()?.to_str()?;
    let Some(part) = name.strip_suffix(".incomplete") else {
        return Some(name.to_owned());
    };

    // The hub's Python client appends eight hexadecimal digits that identify the process.
    let etag = match part.rsplit_once('.') {
        Some((etag, process))
            if process.len() == 8 && process.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            etag
        }
        Some(_) | None => part,
    };
    Some(etag.to_owned())
}

/// Returns the name of the cached file that a selection matches. For a model in several files, it is
/// the name of the first one, whichever part the selection names.
fn chosen(
    reference: &HubReference,
    selection: &str,
    pointers: &[Pointer],
) -> Result<Option<String>, HubError> {
    if let Some(pointer) = pointers.iter().find(|pointer| pointer.name == selection) {
        return Ok(Some(names::model(&pointer.name)));
    }

    let label = |name: &str| names::quantization(name).filter(|_| names::is_gguf_model(name));
    let matches =
        |name: &str| label(name).is_some_and(|label| names::is_quantization(&label, selection));
    let found: BTreeSet<String> = pointers
        .iter()
        .map(|pointer| pointer.name.as_str())
        .filter(|name| matches(name))
        .map(names::model)
        .collect();

    // The user must choose, because a removal cannot be undone.
    if found.len() > 1 {
        let repo = &reference.repo;
        let choice = |name: &String| HubChoice {
            name: format!("{PREFIX}{repo}:{name}"),
            size: None,
        };
        let choices = HubChoices(found.iter().map(choice).collect());
        return Err(HubError::Several {
            repo: repo.clone(),
            wanted: selection.to_owned(),
            choices,
        });
    }

    Ok(found.into_iter().next())
}

/// Collects the files of all snapshots, including broken links.
fn collect(snapshots: &Path, blobs: &Path, pointers: &mut Vec<Pointer>) -> Result<(), HubError> {
    for snapshot in entries(snapshots)? {
        if !is_folder(&snapshot) {
            return Err(unsure(&snapshot, "it is not the folder of a commit"));
        }
        collect_below(&snapshot, "", blobs, pointers)?;
    }
    Ok(())
}

fn collect_below(
    folder: &Path,
    prefix: &str,
    blobs: &Path,
    pointers: &mut Vec<Pointer>,
) -> Result<(), HubError> {
    for path in entries(folder)? {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(unsure(&path, "its name is not valid UTF-8"));
        };

        let name = format!("{prefix}{name}");

        // A link to a folder must not be followed, because it could lead out of the cache.
        let kind = fs::symlink_metadata(&path)
            .map_err(|source| fault(&path, source))?
            .file_type();
        if kind.is_dir() {
            collect_below(&path, &format!("{name}/"), blobs, pointers)?;
        } else if kind.is_symlink() {
            let content =
                content(&path, blobs).ok_or_else(|| unsure(&path, "it links to another place"))?;
            pointers.push(Pointer {
                name,
                path,
                content: Some(content),
            });
        } else if kind.is_file() {
            pointers.push(Pointer {
                name,
                path,
                content: None,
            });
        } else {
            return Err(unsure(&path, "it is neither a file nor a link"));
        }
    }
    Ok(())
}

/// Returns the content that a link leads to, if it is in `blobs`.
///
/// Only one link is followed, because a content may itself be a link to the store that all
/// repositories share.
fn content(link: &Path, blobs: &Path) -> Option<PathBuf> {
    let target = link.parent()?.join(fs::read_link(link).ok()?);
    let name = target.file_name()?;
    let folder = fs::canonicalize(target.parent()?).ok()?;
    if folder == fs::canonicalize(blobs).ok()? {
        Some(blobs.join(name))
    } else {
        None
    }
}

/// Lists the contents and the partial downloads.
fn contents(blobs: &Path) -> Result<BTreeSet<PathBuf>, HubError> {
    let entries = entries(blobs)?;
    match entries.iter().find(|path| is_folder(path)) {
        Some(folder) => Err(unsure(folder, "a folder is not a content")),
        None => Ok(entries.into_iter().collect()),
    }
}

/// Returns an error if the folder of a repository has an entry that clients of the hub do not
/// create.
fn check_entries(folder: &Path) -> Result<(), HubError> {
    for path in entries(folder)? {
        let known = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| KNOWN.contains(&name));
        if !known || !is_folder(&path) {
            return Err(unsure(&path, "the hub's clients do not create it"));
        }
    }
    Ok(())
}

/// Returns an error if another repository has a link to one of the contents.
fn check_others(
    root: &Path,
    cache: &RepoCache,
    contents: &BTreeSet<PathBuf>,
) -> Result<(), HubError> {
    let own = cache.folder();
    for other in entries(root)? {
        let is_repository = other
            .file_name()
            .is_some_and(|name| name.to_string_lossy().contains("--"));
        if other != own && is_repository && is_folder(&other) {
            check_links(&other, &cache.blobs(), contents)?;
        }
    }
    Ok(())
}

fn check_links(folder: &Path, blobs: &Path, contents: &BTreeSet<PathBuf>) -> Result<(), HubError> {
    for path in entries(folder)? {
        if is_folder(&path) {
            check_links(&path, blobs, contents)?;
        } else if content(&path, blobs).is_some_and(|content| contents.contains(&content)) {
            return Err(unsure(&path, "it links to a content that would be removed"));
        }
    }
    Ok(())
}

/// Removes the files of `refs` that name the commit.
fn remove_names(refs: &Path, commit: &str) -> Result<(), HubError> {
    for path in entries(refs)? {
        if is_folder(&path) {
            remove_names(&path, commit)?;
        } else if fs::read_to_string(&path).is_ok_and(|text| text.trim() == commit) {
            fs::remove_file(&path).map_err(|source| fault(&path, source))?;
        }
    }
    Ok(())
}

/// Removes a folder that contains only folders. If another process has added a file meanwhile, the
/// folder stays.
fn remove_empty(folder: &Path) -> Result<(), HubError> {
    for path in entries(folder)? {
        if is_folder(&path) {
            remove_empty(&path)?;
        }
    }
    match fs::remove_dir(folder) {
        Err(error)
            if !matches!(
                error.kind(),
                ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound
            ) =>
        {
            Err(fault(folder, error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns true for a folder, and false for a link to one.
fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Lists the entries of a folder in order. A folder that does not exist has none.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, HubError> {
    let fault = |source| HubError::Disk {
        action: "read",
        path: folder.to_owned(),
        source,
    };
    let read = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(vec![]),
        read => read.map_err(fault)?,
    };
    let mut paths = read
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(fault)?;
    paths.sort();
    Ok(paths)
}
