//! The choice of a file in a repository, by its name or its quantization.

use super::error::{HubChoice, HubChoices, HubError};
use super::names;
use super::names::PREFIX;
use super::reference::HubReference;

/// The default quantization.
const USUAL: &str = "Q4_K_M";

/// A file that can be chosen.
pub(super) struct Candidate<'a> {
    pub(super) name: &'a str,
    /// The size in bytes, if it is known.
    pub(super) size: Option<u64>,
}

/// The choice of a model in a repository.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Selected<'a> {
    /// A GGUF file with this name.
    File(&'a str),
    /// The repository as a folder, because it has no GGUF file.
    Folder,
}

/// Chooses a model from the files of a repository.
///
/// # Errors
/// Returns an error with the choices if the reference matches no model or several, or if the model
/// is split into parts.
pub(super) fn select<'a>(
    reference: &HubReference,
    files: &[Candidate<'a>],
) -> Result<Selected<'a>, HubError> {
    let repo = &reference.repo;
    let models: Vec<&Candidate> = files
        .iter()
        .filter(|file| names::is_gguf_model(file.name))
        .collect();
    let whole = || {
        models
            .iter()
            .copied()
            .filter(|file| names::parts(file.name).is_none())
    };
    let choices = || choices(repo, whole());
    if let Some(selection) = &reference.selection {
        if let Some(file) = files.iter().find(|file| file.name == selection) {
            return match split(repo, file.name, choices()) {
                Some(error) => Err(error),
                None => Ok(Selected::File(file.name)),
            };
        }
        if selection.contains('/') || selection.to_ascii_lowercase().ends_with(".gguf") {
            let repo = repo.clone();
            let file = selection.clone();
            return Err(HubError::NoFile {
                repo,
                file,
                choices: choices(),
            });
        }
    } else if models.is_empty() {
        return Ok(Selected::Folder);
    }

    let wanted = reference.selection.as_deref().unwrap_or(USUAL);
    let matching: Vec<(&Candidate, String)> = models
        .iter()
        .filter_map(|file| Some((*file, names::quantization(file.name)?)))
        .filter(|(_, label)| names::is_quantization(label, wanted))
        .collect();

    // `UD-Q4_K_M` matches `Q4_K_M` too, but only if there is no file with exactly that label.
    let exact = |label: &String| label.eq_ignore_ascii_case(wanted);
    let any_exact = matching.iter().any(|(_, label)| exact(label));
    let matching = matching
        .iter()
        .filter(|(_, label)| !any_exact || exact(label))
        .map(|(file, _)| *file);
    let (split_up, whole): (Vec<&Candidate>, Vec<&Candidate>) =
        matching.partition(|file| names::parts(file.name).is_some());
    match (whole.as_slice(), split_up.first()) {
        ([file], _) => Ok(Selected::File(file.name)),
        ([], Some(file)) => Err(split(repo, file.name, choices())
            .unwrap_or_else(|| unreachable!("a file among the split ones has parts"))),
        ([], None) => {
            let repo = repo.clone();
            let wanted = wanted.to_owned();
            Err(HubError::NoQuantization {
                repo,
                wanted,
                choices: choices(),
            })
        }
        ([_, _, ..], _) => {
            let choices = self::choices(repo, whole.iter().copied());
            Err(HubError::Several {
                repo: repo.clone(),
                wanted: wanted.to_owned(),
                choices,
            })
        }
    }
}

/// Returns the error about a model that is split into parts, if the file is a part.
fn split(repo: &str, file: &str, choices: HubChoices) -> Option<HubError> {
    let parts = names::parts(file)?;
    Some(HubError::Split {
        repo: repo.to_owned(),
        file: file.to_owned(),
        parts,
        choices,
    })
}

/// Returns the list of choices for an error message.
fn choices<'a>(repo: &str, files: impl Iterator<Item = &'a Candidate<'a>>) -> HubChoices {
    // A file with an unsafe name cannot be downloaded, so it is not a choice.
    let files = files.filter(|file| names::problem(file.name).is_none());
    HubChoices(
        files
            .map(|file| HubChoice {
                name: format!("{PREFIX}{repo}:{}", file.name),
                size: file.size,
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::{Candidate, Selected, select};
    use crate::hub::reference::HubReference;

    fn chosen(reference: &str, names: &[&'static str]) -> Result<Selected<'static>, String> {
        let reference: HubReference = reference.parse().expect(reference);
        let files: Vec<Candidate> = names
            .iter()
            .map(|name| Candidate { name, size: None })
            .collect();
        select(&reference, &files).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_is_chosen() {
        let cases: &[(&str, &[&'static str], &str)] = &[
            (
                "hf:o/r",
                &["m-Q8_0.gguf", "m-Q4_K_M.gguf", "README.md"],
                "m-Q4_K_M.gguf",
            ),
            ("hf:o/r", &["m.q4_k_m.gguf"], "m.q4_k_m.gguf"),
            (
                "hf:o/r:q8_0",
                &["m-Q8_0.gguf", "m-Q4_K_M.gguf"],
                "m-Q8_0.gguf",
            ),
            (
                "hf:o/r:Q8_0",
                &["mmproj-Q8_0.gguf", "m-Q8_0.gguf", "imatrix-Q8_0.gguf"],
                "m-Q8_0.gguf",
            ),
            (
                "hf:o/r:mmproj-Q8_0.gguf",
                &["mmproj-Q8_0.gguf", "m-Q8_0.gguf"],
                "mmproj-Q8_0.gguf",
            ),
            (
                "hf:o/r:config.json",
                &["config.json", "m-Q8_0.gguf"],
                "config.json",
            ),
            (
                "hf:o/r:Q4_K_M",
                &["a-UD-Q4_K_M.gguf", "a-Q4_K_M.gguf"],
                "a-Q4_K_M.gguf",
            ),
            (
                "hf:o/r:UD-Q4_K_M",
                &["a-UD-Q4_K_M.gguf", "a-Q4_K_M.gguf"],
                "a-UD-Q4_K_M.gguf",
            ),
            (
                "hf:o/r:Q4_K_XL",
                &["a-UD-Q4_K_XL.gguf", "a-Q4_K_M.gguf"],
                "a-UD-Q4_K_XL.gguf",
            ),
            ("hf:o/r:BF16", &["BF16/m.gguf", "F16/m.gguf"], "BF16/m.gguf"),
            (
                "hf:o/r:BF16/m.gguf",
                &["BF16/m.gguf", "F16/m.gguf"],
                "BF16/m.gguf",
            ),
            (
                "hf:o/r",
                &["m-Q4_K_M-00001-of-00001.gguf"],
                "m-Q4_K_M-00001-of-00001.gguf",
            ),
            (
                "hf:o/r",
                &["m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M.gguf"],
                "m-Q4_K_M.gguf",
            ),
            (
                "hf:o/r",
                &["m-Q4_K_M.gguf", "x/m-Q4_K_S.gguf", "m-Q4_K.gguf"],
                "m-Q4_K_M.gguf",
            ),
        ];
        for (reference, names, file) in cases {
            assert_eq!(
                chosen(reference, names),
                Ok(Selected::File(file)),
                "{reference} {names:?}"
            );
        }

        assert_eq!(
            chosen("hf:o/r", &["config.json", "model.safetensors"]),
            Ok(Selected::Folder)
        );
        assert_eq!(chosen("hf:o/r", &[]), Ok(Selected::Folder));
    }

    #[test]
    fn choices_are_listed() {
        let cases: &[(&str, &[&'static str], &str)] = &[
            (
                "hf:o/r",
                &["m-Q8_0.gguf", "../m-Q5_0.gguf", "mmproj-F16.gguf", "x.md"],
                "o/r has no Q4_K_M file; choose one of:\n  hf:o/r:m-Q8_0.gguf",
            ),
            (
                "hf:o/r",
                &["model.gguf"],
                "o/r has no Q4_K_M file; choose one of:\n  hf:o/r:model.gguf",
            ),
            (
                "hf:o/r",
                &["a-Q4_K_M.gguf", "b-Q4_K_M.gguf", "c-Q8_0.gguf"],
                "o/r has several Q4_K_M files; choose one of:\n  hf:o/r:a-Q4_K_M.gguf\n  hf:o/r:b-Q4_K_M.gguf",
            ),
            (
                "hf:o/r:Q8_0",
                &[
                    "m-Q8_0-00001-of-00002.gguf",
                    "m-Q8_0-00002-of-00002.gguf",
                    "m-Q4_0.gguf",
                ],
                "\"m-Q8_0-00001-of-00002.gguf\" of o/r is one of 2 parts of a model, and split models are not supported; \
                 choose one of:\n  hf:o/r:m-Q4_0.gguf",
            ),
            (
                "hf:o/r:m-Q8_0-00002-of-00002.gguf",
                &["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"],
                "\"m-Q8_0-00002-of-00002.gguf\" of o/r is one of 2 parts of a model, and split models are not supported",
            ),
            (
                "hf:o/r:x.gguf",
                &["y.gguf"],
                "o/r has no file \"x.gguf\"; choose one of:\n  hf:o/r:y.gguf",
            ),
            ("hf:o/r:a/x", &["config.json"], "o/r has no file \"a/x\""),
            (
                "hf:o/r:Q4_K",
                &["m-Q4_K_M.gguf"],
                "o/r has no Q4_K file; choose one of:\n  hf:o/r:m-Q4_K_M.gguf",
            ),
            (
                "hf:o/r:F16",
                &["m-BF16.gguf"],
                "o/r has no F16 file; choose one of:\n  hf:o/r:m-BF16.gguf",
            ),
            (
                "hf:o/r:Q4_K_M",
                &["config.json", "model.safetensors"],
                "o/r has no Q4_K_M file",
            ),
            (
                "hf:o/r:M-q8_0.GGUF",
                &["m-Q8_0.gguf"],
                "o/r has no file \"M-q8_0.GGUF\"; choose one of:\n  hf:o/r:m-Q8_0.gguf",
            ),
        ];
        for (reference, names, message) in cases {
            assert_eq!(
                chosen(reference, names),
                Err((*message).to_owned()),
                "{reference} {names:?}"
            );
        }

        let many: Vec<&'static str> = (0..50)
            .map(|n| &*Box::leak(format!("m{n:02}-Q8_0.gguf").into_boxed_str()))
            .collect();
        let message = chosen("hf:o/r", &many).expect_err("none is usual");
        assert!(
            message.ends_with("\n  hf:o/r:m39-Q8_0.gguf\n  and 10 more"),
            "{message}"
        );
    }
}
