//! The models in a folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::loader::ModelEntry;

/// The maximum depth of models below the folder.
const DEPTH: usize = 3;

/// Returns true if the path is a folder with the files of one model.
pub fn is_model_folder(path: &Path) -> bool {
    path.join("config.json").is_file()
}

/// Returns the models in a folder and in its folders, in order of their names: GGUF files, and
/// Hugging Face folders.
///
/// A name is the path below the folder without `.gguf`, such as `qwen/Qwen3-0.6B-Q8_0`. Of a GGUF
/// file in several parts, only the first one is a model.
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub fn models_in(folder: &Path) -> io::Result<Vec<ModelEntry>> {
    let mut found = BTreeMap::new();
    collect(folder, "", 0, &mut found)?;
    Ok(found.into_values().collect())
}

fn collect(
    folder: &Path,
    prefix: &str,
    depth: usize,
    found: &mut BTreeMap<String, ModelEntry>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(file) = path.file_name().and_then(|name| name.to_str()) else {
            tracing::warn!(path = %path.display(), "the name is not UTF-8, so no request could use it");
            continue;
        };
        if file.starts_with('.') {
            continue;
        }
        let name = format!("{prefix}{file}");
        if path.is_dir() {
            if is_model_folder(&path) {
                let bytes = folder_bytes(&path)?;
                found.insert(name.clone(), ModelEntry { name, path, bytes });
            } else if depth + 1 < DEPTH {
                collect(&path, &format!("{name}/"), depth + 1, found)?;
            }
            continue;
        }

        let Some(stem) = name.strip_suffix(".gguf") else {
            continue;
        };
        if is_later_part(stem) {
            continue;
        }
        let bytes = path.metadata()?.len();
        let name = stem.to_owned();
        found.insert(name.clone(), ModelEntry { name, path, bytes });
    }
    Ok(())
}

/// Returns true if a name ends like `-00002-of-00003`, with a number above 1.
fn is_later_part(stem: &str) -> bool {
    let number = |text: &str| {
        let digits = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten()
    };
    let Some((rest, total)) = stem.rsplit_once("-of-") else {
        return false;
    };
    let Some((_, part)) = rest.rsplit_once('-') else {
        return false;
    };
    number(total).is_some() && number(part).is_some_and(|part| part > 1)
}

fn folder_bytes(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let metadata = entry?.path().metadata()?;
        if metadata.is_file() {
            bytes += metadata.len();
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_by_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "12345").unwrap();
        };
        for name in [
            "b.gguf",
            "notes.txt",
            ".hidden.gguf",
            "split-00001-of-00002.gguf",
            "split-00002-of-00002.gguf",
            "org/a/config.json",
            "org/a/model.safetensors",
            "org/c-00002-of-2.gguf",
            "1/2/3/4/too-deep.gguf",
        ] {
            write(name);
        }
        let found = models_in(folder.path()).unwrap();
        let found: Vec<(&str, u64)> = found
            .iter()
            .map(|entry| (&*entry.name, entry.bytes))
            .collect();
        assert_eq!(
            found,
            [
                ("b", 5),
                ("org/a", 10),
                ("org/c-00002-of-2", 5),
                ("split-00001-of-00002", 5),
            ]
        );
    }

    #[test]
    fn a_folder_that_does_not_exist_is_an_error() {
        assert!(models_in(Path::new("/does/not/exist")).is_err());
    }
}
