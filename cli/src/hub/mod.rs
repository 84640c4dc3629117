//! Models of the Hugging Face hub: `hf:ORG/REPO[:FILE or :QUANT]`.
//!
//! [`resolve`] returns the path of a model, from the cache if it is there. Files are kept in the hub's own cache folder,
//! in the layout of the hub's other clients, so all of them find each other's files.
//!
//! The crate `hf-hub` is not used. Version 1.0 brings 160 more crates, among them an asynchronous runtime. Version 0.5
//! compares no checksum, appends to the part if a server ignores ranges, and reads neither `HF_TOKEN` nor
//! `HF_HUB_CACHE`. It also depends on a crate under the MPL, which `deny.toml` does not allow. The HTTP library is
//! `ureq`, with the certificates of the system.

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
use warpwright_engine::{self as engine, Model};

use self::cache::{CONFIG, INDEX, RepoCache, TOKENIZER, WEIGHTS, is_complete_folder, weight_files};
use self::client::Client;
use self::download::{Download, check_space};
pub(crate) use self::error::HubError;
use self::listing::{ListedFile, Listing, RemoteFile};
pub(crate) use self::reference::{HubReference, PREFIX};
pub(crate) use self::remove::remove;
use self::select::{Candidate, Selected, select};
use self::settings::HubSettings;
pub(crate) use self::stored::{StoredModels, stored_models};
use crate::progress::Bar;
use crate::terminal::say;

/// The small files of a folder in safetensors that a model, a tokenizer or a chat template is read from.
const SMALL_FILES: &[&str] = &[
    TOKENIZER,
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

/// Returns the path of a model: a GGUF file, or a folder.
///
/// A model that is complete in the cache is used without contacting the hub. Another one is downloaded, after its size
/// is written to standard error.
pub(crate) fn resolve(reference: &HubReference) -> Result<PathBuf, HubError> {
    let settings = HubSettings::from_environment()?;
    match cached(&settings, reference) {
        Some(path) => Ok(path),
        None => load(&settings, reference),
    }
}

/// Returns the path of a model, which is updated if the hub has another one by now.
pub(crate) fn pull(reference: &HubReference) -> Result<PathBuf, HubError> {
    let settings = HubSettings::from_environment()?;
    match settings.offline {
        true => cached(&settings, reference).ok_or_else(|| offline(&settings, reference)),
        false => load(&settings, reference),
    }
}

fn offline(settings: &HubSettings, reference: &HubReference) -> HubError {
    HubError::Offline {
        name: reference.to_string(),
        cache: settings.cache.clone(),
    }
}

/// Returns the path of a model that is complete in the cache.
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
        Selected::File(name) => files
            .iter()
            .find(|file| file.name == name)
            .map(|file| file.path.clone()),
        Selected::Folder => is_complete_folder(&files).then(|| cache.snapshot(&commit)),
    }
}

/// Downloads what the cache does not have of a model, and returns its path.
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
        Selected::Folder => {
            pull.folder()?;
            cache.snapshot(&listing.commit)
        }
    };
    cache.set_commit(&listing.commit)?;
    Ok(path)
}

/// The files of one commit, on their way into the cache.
struct Pull<'a> {
    client: &'a Client,
    listing: &'a Listing,
    repo: &'a str,
    download: Download<'a>,
}

impl Pull<'_> {
    fn no_model(&self, problem: String) -> HubError {
        HubError::NoModel {
            repo: self.repo.to_owned(),
            problem,
        }
    }

    /// Returns a listed file with its size and checksum.
    fn remote(&self, name: &str) -> Result<RemoteFile, HubError> {
        let missing = || self.no_model(format!("it has no {name}"));
        let file: &ListedFile = self.listing.find(name).ok_or_else(missing)?;
        self.listing.remote(self.client, self.repo, file)
    }

    /// Downloads a model in safetensors.
    fn folder(&self) -> Result<(), HubError> {
        let has = |name: &str| self.listing.find(name).is_some();
        let weights = if has(WEIGHTS) { WEIGHTS } else { INDEX };
        if !has(CONFIG) || !has(weights) {
            return Err(self.no_model(
                "it has neither GGUF files nor config.json with model.safetensors or its index"
                    .to_owned(),
            ));
        }
        if !has(TOKENIZER) {
            return Err(self.no_model(format!(
                "it has no {TOKENIZER}, which a folder in safetensors needs"
            )));
        }
        // The configuration decides whether the rest is worth loading.
        let config = self.small_file(CONFIG)?;
        self.check_family(&config)?;
        let mut names: Vec<String> = SMALL_FILES
            .iter()
            .filter(|name| has(name))
            .map(|name| (*name).to_owned())
            .collect();
        if weights == INDEX {
            let index = self.small_file(INDEX)?;
            let shards = weight_files(&index).map_err(|problem| self.no_model(problem))?;
            // The engine looks for all weights in the folder itself.
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

    /// Downloads a file that decides what else is downloaded, and returns its content.
    fn small_file(&self, name: &str) -> Result<Vec<u8>, HubError> {
        let file = self.remote(name)?;
        // The largest index of known models has some megabytes.
        if file.size > 64 << 20 {
            return Err(self.no_model(format!(
                "{name} has {}, which is too long for it",
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
            // The configuration was accepted, and there are no weights next to it.
            Err(engine::Error::Folder { path, .. }) if path == folder.path() => Ok(()),
            Ok(_) => Ok(()),
            Err(error) => {
                let sentence = crate::failure::sentence(&error);
                // The folder's name means nothing to the user.
                let place = format!("{}", folder.path().join(CONFIG).display());
                Err(self.no_model(sentence.replace(&place, CONFIG)))
            }
        }
    }

    /// Downloads files, after their size is stated and the disk is found to have space for them.
    fn files(&self, name: &str, files: &[RemoteFile]) -> Result<(), HubError> {
        let total: u64 = files.iter().map(|file| file.size).sum();
        let missing: u64 = files.iter().map(|file| self.download.missing(file)).sum();
        let folder = self.download.cache.blobs();
        cache::create_folder(&folder)?;
        if missing > 0 {
            let size = match missing == total {
                true => format!("{}", HumanBytes(total)),
                false => format!("{} of {}", HumanBytes(missing), HumanBytes(total)),
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
        let mut before = 0;
        for file in files {
            self.download.run(file, &bar, before)?;
            before += file.size;
        }
        Ok(())
    }
}
