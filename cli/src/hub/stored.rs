//! The list of models in the cache.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::cache::{CachedFile, RepoCache, is_complete_folder, repositories};
use super::error::HubError;
use super::{names, settings};

/// A model in the cache.
#[derive(Serialize)]
pub(crate) struct StoredModel {
    /// `ORG/REPO`.
    pub(crate) repo: String,
    /// The name of the GGUF file in the repository, or `None` for a folder in safetensors. A model in
    /// several files has the name of the first one.
    pub(crate) file: Option<String>,
    /// The size of the file, or of all files of the model, in bytes.
    pub(crate) size: u64,
    /// The quantization, if the name of the file contains one.
    pub(crate) quant: Option<String>,
    /// The commit that the file was downloaded from.
    pub(crate) commit: String,
    /// The path of the file or the folder.
    pub(crate) path: PathBuf,
}

/// The models of a cache folder.
pub(crate) struct StoredModels {
    /// The cache folder.
    pub(crate) cache: PathBuf,
    pub(crate) models: Vec<StoredModel>,
    /// The number of bytes of interrupted downloads, by repository.
    pub(crate) unfinished: Vec<(String, u64)>,
}

/// Lists the models in the cache, sorted by repository and file.
///
/// Commits can share the content of a file. Such a file is listed once, with the current commit if
/// that contains it.
///
/// # Errors
/// Returns an error if the cache folder cannot be determined.
pub(crate) fn stored_models() -> Result<StoredModels, HubError> {
    let cache = settings::cache_folder()?;
    let mut models = vec![];
    let mut unfinished = vec![];
    for (repo, files) in repositories(&cache) {
        let current = files.commit();
        let mut commits = files.commits();
        commits.sort_by_key(|commit| Some(commit) != current.as_ref());
        let mut seen = BTreeSet::new();
        for commit in commits {
            list(&repo, &files, &commit, &mut seen, &mut models);
        }

        let bytes = unfinished_bytes(&files.blobs());
        if bytes > 0 {
            unfinished.push((repo, bytes));
        }
    }

    Ok(StoredModels {
        cache,
        models,
        unfinished,
    })
}

/// Adds the models of a commit to `models`. `seen` contains the files of the commits before it.
fn list(
    repo: &str,
    cache: &RepoCache,
    commit: &str,
    seen: &mut BTreeSet<(String, PathBuf)>,
    models: &mut Vec<StoredModel>,
) {
    let files = cache.files(commit);

    // Snapshots of several commits usually link to the same content.
    let mut is_new = |file: &CachedFile| {
        let content = fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
        seen.insert((file.name.clone(), content))
    };
    let (gguf, others): (Vec<&CachedFile>, Vec<&CachedFile>) = files
        .iter()
        .partition(|file| file.name.to_ascii_lowercase().ends_with(".gguf"));
    for file in &gguf {
        // Parts of a model are listed with the first one, if that is there.
        let first = names::model(&file.name);
        let is_first = first == file.name || !gguf.iter().any(|other| other.name == first);
        if is_first && is_new(file) {
            let parts = gguf
                .iter()
                .filter(|part| part.name == file.name || names::model(&part.name) == file.name);
            models.push(StoredModel {
                repo: repo.to_owned(),
                file: Some(file.name.clone()),
                size: parts.map(|part| part.size).sum(),
                quant: names::quantization(&file.name),
                commit: commit.to_owned(),
                path: file.path.clone(),
            });
        }
    }

    if is_complete_folder(&files) {
        let new = others.iter().filter(|file| is_new(file)).count();
        if new > 0 {
            models.push(StoredModel {
                repo: repo.to_owned(),
                file: None,
                size: others.iter().map(|file| file.size).sum(),
                quant: None,
                commit: commit.to_owned(),
                path: cache.snapshot(commit),
            });
        }
    }
}

/// Returns the size of the partial files of interrupted downloads, in bytes.
fn unfinished_bytes(blobs: &Path) -> u64 {
    let entries = fs::read_dir(blobs).into_iter().flatten().flatten();
    let parts = entries.filter(|entry| {
        entry
            .path()
            .extension()
            .is_some_and(|end| end == "incomplete")
    });
    parts
        .filter_map(|part| part.metadata().ok())
        .map(|part| part.len())
        .sum()
}
