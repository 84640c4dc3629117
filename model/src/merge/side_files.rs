//! The files next to the weights in a model folder: those that also belong next to merged weights,
//! and those that do not.

use std::ffi::OsString;
use std::path::Path;
use std::{fs, io};

use crate::Error;
use crate::Files;
use crate::folder::contents::{INDEX, ONE};

/// The names of the files next to a model's weights, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SideFiles {
    /// Settings, tokenizer, template, license and the like, which are also valid for merged
    /// weights.
    pub copied: Vec<String>,
    /// All other files, such as the weights in another format, which would lack the adapter.
    pub left: Vec<String>,
}

/// The extensions of files that are copied. Files without an extension, such as `LICENSE`, are
/// copied too.
const COPIED: [&str; 7] = ["json", "jinja", "model", "tiktoken", "txt", "md", "py"];

impl SideFiles {
    /// Lists the files in a model's folder, or none if the model is a single file. Names that begin
    /// with a dot are ignored.
    ///
    /// # Errors
    /// Returns [`Error::Read`] if the folder cannot be read, or [`Error::Open`] if a file to copy
    /// is a link without a target.
    pub fn list(files: &Files) -> Result<SideFiles, Error> {
        let mut others = SideFiles::default();
        let Files::Folder(folder) = files else {
            return Ok(others);
        };

        let shards: Vec<&str> = folder.shards().map(|(name, _)| name).collect();
        for name in names(&folder.path)? {
            let shown = name.to_string_lossy().into_owned();
            if shown.starts_with('.') || shards.contains(&shown.as_str()) {
                continue;
            }

            let along = name.to_str().is_some_and(|name| goes_along(name, &shards));
            if along && is_file(&folder.path.join(&name))? {
                others.copied.push(shown);
            } else {
                others.left.push(shown);
            }
        }

        Ok(others)
    }
}

/// Returns the names in a folder, in order.
fn names(folder: &Path) -> Result<Vec<OsString>, Error> {
    let names = fs::read_dir(folder).and_then(|entries| {
        entries
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<io::Result<Vec<_>>>()
    });
    let mut names = names.map_err(|source| Error::Read {
        path: folder.to_owned(),
        source,
    })?;
    names.sort_unstable();
    Ok(names)
}

/// Returns true if a file with this name is valid next to merged weights.
///
/// An index of shards is valid if the weights were found through it. An adapter is not, because
/// `transformers` would find it and add it a second time.
fn goes_along(name: &str, shards: &[&str]) -> bool {
    let known = name
        .rsplit_once('.')
        .is_none_or(|(_, end)| COPIED.contains(&end));
    match name {
        INDEX => shards != [ONE],
        "adapter_config.json" => false,
        _ => known && !name.ends_with(".index.json"),
    }
}

fn is_file(path: &Path) -> Result<bool, Error> {
    let found = fs::metadata(path).map_err(|source| Error::Open {
        path: path.to_owned(),
        source,
    })?;
    Ok(found.is_file())
}
