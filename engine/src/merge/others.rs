//! What stands in a Hugging Face folder beside the weights: what goes along with merged ones, and what does not.

use std::ffi::OsString;
use std::path::Path;
use std::{fs, io};

use crate::Error;
use crate::model::Files;
use crate::model::folder::contents::{INDEX, ONE};

/// Names in a folder, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Others {
    /// Settings, tokenizer, template, licence and the like: right for merged weights too.
    pub copied: Vec<String>,
    /// Everything else, such as the same weights in another format: they would be those without the adapter.
    pub left: Vec<String>,
}

/// How names end that are copied; those without an end are too, such as `LICENSE`.
const COPIED: [&str; 7] = ["json", "jinja", "model", "tiktoken", "txt", "md", "py"];

impl Others {
    /// Those of a model's folder; none of a file. Names that begin with a dot are not looked at.
    ///
    /// # Errors
    ///
    /// A folder that cannot be read; a link that leads nowhere and would be copied.
    pub fn of(files: &Files) -> Result<Others, Error> {
        let mut others = Others::default();
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
            match along && is_file(&folder.path.join(&name))? {
                true => others.copied.push(shown),
                false => others.left.push(shown),
            }
        }
        Ok(others)
    }
}

/// What is in a folder, in order.
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

/// Whether a file of this name is right beside merged weights. An index is if the weights were found by it. An adapter
/// would be added a second time: transformers adds one that it finds.
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
