//! Models on the Hugging Face hub: `hf:ORG/REPO[:FILE or :QUANT]`.
//!
//! [`resolve`] returns the path of a model, and downloads it unless the cache has it. Files are
//! kept in the cache folder that all clients of the hub share, in the same layout, so each client
//! finds the files of the others.
//!
//! This module does not use the crate `hf-hub`, for these reasons. Version 1.0 needs 160 more
//! crates, among them an asynchronous runtime. Version 0.5 verifies no checksums, and appends to a
//! partial file even if the server ignores ranges. It does not read `HF_TOKEN` or `HF_HUB_CACHE`,
//! and it depends on a crate under the MPL, which `deny.toml` does not allow. The HTTP library is
//! `ureq` with the system's certificates.

mod cache;
mod client;
mod download;
mod error;
mod listing;
mod lock;
mod names;
mod reference;
mod remove;
mod select;
mod settings;
mod stored;
mod url;

use std::fs;
use std::path::PathBuf;

use indicatif::HumanBytes;
use warpwright_model::Model;

use self::cache::{
    CONFIG, CachedFile, INDEX, RepoCache, TEKKEN, TOKENIZER, WEIGHTS, is_complete_folder,
    weight_files,
};
use self::client::Client;
use self::download::{Download, check_space};
pub(crate) use self::error::HubError;
use self::listing::{ListedFile, Listing, RemoteFile};
pub(crate) use self::names::PREFIX;
pub(crate) use self::reference::HubReference;
pub(crate) use self::remove::remove;
use self::select::{Candidate, Selected, select};
use self::settings::HubSettings;
pub(crate) use self::stored::{StoredModels, stored_models};
use crate::terminal::progress::Bar;
use warpwright_emu::terminal::say;

/// The small files of a safetensors folder that the engine may read: tokenizer, settings and chat
/// template.
const SMALL_FILES: &[&str] = &[
    TOKENIZER,
    TEKKEN,
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
];

/// Returns the path of a model: a GGUF file or a folder.
///
/// If the cache contains the complete model, the hub is not contacted. Otherwise the model is
/// downloaded, after its size is printed to stderr.
///
/// # Errors
/// Returns an error if the model does not exist or cannot be downloaded.
pub(crate) fn resolve(reference: &HubReference) -> Result<PathBuf, HubError> {
    let settings = HubSettings::from_environment()?;
    match cached(&settings, reference) {
        Some(path) => Ok(path),
        None => load(&settings, reference),
    }
}

/// Downloads the current version of a model, as far as the cache does not have it, and returns its
/// path.
///
/// # Errors
/// Returns an error if the model does not exist or cannot be downloaded.
pub(crate) fn pull(reference: &HubReference) -> Result<PathBuf, HubError> {
    let settings = HubSettings::from_environment()?;
    if settings.offline {
        cached(&settings, reference).ok_or_else(|| offline(&settings, reference))
    } else {
        load(&settings, reference)
    }
}

/// Returns the error about a model that is not in the cache while the hub must not be contacted.
fn offline(settings: &HubSettings, reference: &HubReference) -> HubError {
    HubError::Offline {
        name: reference.to_string(),
        cache: settings.cache.clone(),
    }
}

/// Returns the path of a model if the cache contains all of its files.
fn cached(settings: &HubSettings, reference: &HubReference) -> Option<PathBuf> {
    let cache = RepoCache::new(&settings.cache, &reference.repo);
    let commit = cache.commit()?;
    let files = cache.files(&commit);
    let candidates: Vec<Candidate> = files
        .iter()
        .map(|file| Candidate {
            name: &file.name,
            size: Some(file.size),
        })
        .collect();
    match select(reference, &candidates).ok()? {
        Selected::File(name) => path_of(&files, name),
        Selected::Parts(names) => path_of(&files, names[0]),
        Selected::Folder if is_complete_folder(&files) => Some(cache.snapshot(&commit)),
        Selected::Folder => None,
    }
}

/// Returns the path of a file in the cache.
fn path_of(files: &[CachedFile], name: &str) -> Option<PathBuf> {
    let file = files.iter().find(|file| file.name == name);
    file.map(|file| file.path.clone())
}

/// Downloads the files of a model that the cache does not have, and returns the model's path.
fn load(settings: &HubSettings, reference: &HubReference) -> Result<PathBuf, HubError> {
    if settings.offline {
        return Err(offline(settings, reference));
    }

    let client = Client::new(settings);
    let repo = reference.repo.as_str();
    let listing = Listing::load(&client, repo)?;
    let candidates: Vec<Candidate> = listing
        .files
        .iter()
        .map(|file| Candidate {
            name: &file.name,
            size: file.size,
        })
        .collect();
    let cache = RepoCache::new(&settings.cache, repo);
    let pull = Pull {
        client: &client,
        listing: &listing,
        repo,
        download: Download {
            client: &client,
            cache: &cache,
            repo,
            commit: &listing.commit,
        },
    };
    let path = match select(reference, &candidates)? {
        Selected::File(name) => {
            let file = pull.remote(name)?;
            pull.files(&format!("{PREFIX}{repo}:{name}"), &[file])?;
            cache.snapshot(&listing.commit).join(name)
        }
        Selected::Parts(names) => {
            let files = names.iter().map(|name| pull.remote(name));
            let files = files.collect::<Result<Vec<_>, _>>()?;
            let first = names[0];
            pull.files(&format!("{PREFIX}{repo}:{first}"), &files)?;
            cache.snapshot(&listing.commit).join(first)
        }
        Selected::Folder => {
            pull.folder()?;
            cache.snapshot(&listing.commit)
        }
    };

    // The branch is recorded last, so an interrupted download leaves the old version in use.
    cache.set_commit(&listing.commit)?;
    Ok(path)
}

/// A download of files of one commit into the cache.
struct Pull<'a> {
    client: &'a Client,
    listing: &'a Listing,
    repo: &'a str,
    download: Download<'a>,
}

impl Pull<'_> {
    /// Returns the error about a repository that has no usable model.
    fn no_model(&self, problem: String) -> HubError {
        HubError::NoModel {
            repo: self.repo.to_owned(),
            problem,
        }
    }

    /// Returns the size and the checksum of a file.
    fn remote(&self, name: &str) -> Result<RemoteFile, HubError> {
        let missing = || self.no_model(format!("it has no {name}"));
        let file: &ListedFile = self.listing.find(name).ok_or_else(missing)?;
        self.listing.remote(self.client, self.repo, file)
    }

    /// Downloads a model in safetensors, with its tokenizer and its settings.
    fn folder(&self) -> Result<(), HubError> {
        let has = |name: &str| self.listing.find(name).is_some();
        let weights = if has(WEIGHTS) { WEIGHTS } else { INDEX };
        if !has(CONFIG) || !has(weights) {
            return Err(self.no_model(
                "it has neither GGUF files nor config.json with model.safetensors or its index"
                    .to_owned(),
            ));
        }

        if !has(TOKENIZER) && !has(TEKKEN) {
            return Err(self.no_model(format!(
                "it has no {TOKENIZER} and no {TEKKEN}, one of which a folder in safetensors needs"
            )));
        }

        // The configuration comes first, because an unsupported model must fail before gigabytes
        // are downloaded.
        let config = self.small_file(CONFIG)?;
        self.check_family(&config)?;
        // The second tokenizer is read only without the first.
        let is_needed = |name: &&&str| has(name) && (**name != TEKKEN || !has(TOKENIZER));
        let mut names: Vec<String> = SMALL_FILES
            .iter()
            .filter(is_needed)
            .map(|name| (*name).to_owned())
            .collect();
        if weights == INDEX {
            let index = self.small_file(INDEX)?;
            let shards = weight_files(&index).map_err(|problem| self.no_model(problem))?;
            // The engine does not look for weights in subfolders.
            if let Some(shard) = shards.iter().find(|name| name.contains('/')) {
                return Err(self.no_model(format!(
                    "{INDEX} names the file {shard:?} in another folder"
                )));
            }
            names.extend(shards);
        } else {
            names.push(WEIGHTS.to_owned());
        }

        let files = names
            .iter()
            .map(|name| self.remote(name))
            .collect::<Result<Vec<_>, _>>()?;
        self.files(&format!("{PREFIX}{}", self.repo), &files)
    }

    /// Downloads a file whose content decides which other files are needed, and returns the
    /// content.
    fn small_file(&self, name: &str) -> Result<Vec<u8>, HubError> {
        let file = self.remote(name)?;

        // The largest known index has a few megabytes.
        if file.size > 64 << 20 {
            return Err(self.no_model(format!(
                "{name} has {}, and at most 64 MiB are plausible",
                HumanBytes(file.size)
            )));
        }

        let path = self.download.run(&file, &Bar::hidden(), 0)?;
        fs::read(&path).map_err(|source| HubError::Disk {
            action: "read",
            path,
            source,
        })
    }

    /// Returns an error if the engine does not support the model that `config.json` describes.
    fn check_family(&self, config: &[u8]) -> Result<(), HubError> {
        let folder = tempfile::tempdir();
        let written = folder
            .and_then(|folder| fs::write(folder.path().join(CONFIG), config).map(|()| folder));
        let path = std::env::temp_dir();
        let folder = written.map_err(|source| HubError::Disk {
            action: "write to",
            path,
            source,
        })?;
        match Model::open(folder.path()) {
            // The configuration is fine: the error is about the weights, which are not in this
            // folder.
            Err(warpwright_model::Error::Folder { path, .. }) if path == folder.path() => Ok(()),
            Ok(_) => Ok(()),
            Err(error) => {
                let sentence = crate::failure::sentence(&error);
                // The user does not know the temporary folder.
                let place = format!("{}", folder.path().join(CONFIG).display());
                Err(self.no_model(sentence.replace(&place, CONFIG)))
            }
        }
    }

    /// Prints the size of the missing files, checks that the disk has space for them, and downloads
    /// them.
    fn files(&self, name: &str, files: &[RemoteFile]) -> Result<(), HubError> {
        let total: u64 = files.iter().map(|file| file.size).sum();
        let missing: u64 = files.iter().map(|file| self.download.missing(file)).sum();
        let folder = self.download.cache.blobs();
        cache::create_folder(&folder)?;
        if missing > 0 {
            let size = if missing == total {
                HumanBytes(total).to_string()
            } else {
                format!("{} of {}", HumanBytes(missing), HumanBytes(total))
            };
            say(format!(
                "downloading {name} ({size}) to {}",
                self.download.cache.folder().display()
            ));
            check_space(&folder, missing)?;
        }

        let bar = if missing > 0 {
            Bar::new(
                "{bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta}",
                total,
            )
        } else {
            Bar::hidden()
        };

        // The bar shows all files together.
        let mut before = 0;
        for file in files {
            self.download.run(file, &bar, before)?;
            before += file.size;
        }

        Ok(())
    }
}
