//! The choice of a file in a repository, by its name or its quantization.

use super::error::{HubChoice, HubChoices, HubError};
use super::names;
use super::names::{PREFIX, PartName};
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
    /// The files of a model in several GGUF files, in order.
    Parts(Vec<&'a str>),
    /// The repository as a folder, because it has no GGUF file.
    Folder,
}

/// Chooses a model from the files of a repository.
///
/// # Errors
/// Returns an error with the choices if the reference matches no model or several, or if a part of
/// the model is missing.
pub(super) fn select<'a>(
    reference: &HubReference,
    files: &[Candidate<'a>],
) -> Result<Selected<'a>, HubError> {
    let repo = &reference.repo;
    let later = |name: &str| PartName::of(name).is_some_and(|part| part.part > 1);
    // The first part of a model stands for all of them.
    let models: Vec<&Candidate> = files
        .iter()
        .filter(|file| names::is_gguf_model(file.name) && !later(file.name))
        .collect();
    let choices = || choices(repo, files, models.iter().copied());
    if let Some(selection) = &reference.selection {
        if let Some(file) = files.iter().find(|file| file.name == selection) {
            return match PartName::of(file.name) {
                Some(part) if part.part > 1 => Err(HubError::LaterPart {
                    repo: repo.clone(),
                    file: file.name.to_owned(),
                    part: part.part,
                    parts: part.count,
                    first: part.first(),
                }),
                Some(_) | None => selected(repo, files, file.name),
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
    let (in_parts, whole): (Vec<&Candidate>, Vec<&Candidate>) =
        matching.partition(|file| PartName::of(file.name).is_some());
    match (whole.as_slice(), in_parts.as_slice()) {
        ([file], _) | ([], [file]) => selected(repo, files, file.name),
        ([], []) => {
            let repo = repo.clone();
            let wanted = wanted.to_owned();
            Err(HubError::NoQuantization {
                repo,
                wanted,
                choices: choices(),
            })
        }
        ([_, _, ..], _) | ([], [_, _, ..]) => {
            let several = whole.iter().chain(&in_parts).copied();
            let choices = self::choices(repo, files, several);
            Err(HubError::Several {
                repo: repo.clone(),
                wanted: wanted.to_owned(),
                choices,
            })
        }
    }
}

/// Returns the file with this name, or all parts of the model whose first part has this name.
fn selected<'a>(
    repo: &str,
    files: &[Candidate<'a>],
    name: &'a str,
) -> Result<Selected<'a>, HubError> {
    let Some(part) = PartName::of(name) else {
        return Ok(Selected::File(name));
    };

    let find = |number: u32| {
        let wanted = part.other(number);
        let found = files.iter().find(|file| file.name == wanted);
        found.map(|file| file.name).ok_or(HubError::MissingPart {
            repo: repo.to_owned(),
            file: wanted,
            first: part.first(),
        })
    };
    let names = (1..=part.count).map(find).collect::<Result<_, _>>()?;
    Ok(Selected::Parts(names))
}

/// Returns the list of choices for an error message: some of all files.
fn choices<'a>(
    repo: &str,
    all: &[Candidate],
    chosen: impl Iterator<Item = &'a Candidate<'a>>,
) -> HubChoices {
    // A file with an unsafe name cannot be downloaded, so it is not a choice.
    let chosen = chosen.filter(|file| names::problem(file.name).is_none());
    HubChoices(
        chosen
            .map(|file| HubChoice {
                name: format!("{PREFIX}{repo}:{}", file.name),
                size: size(all, file),
            })
            .collect(),
    )
}

/// Returns the size of a file, or of all parts of the model whose first part it is.
fn size(all: &[Candidate], file: &Candidate) -> Option<u64> {
    let Some(part) = PartName::of(file.name) else {
        return file.size;
    };
    let size = |number: u32| {
        let name = part.other(number);
        all.iter().find(|other| other.name == name)?.size
    };
    (1..=part.count).map(size).sum()
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

        // The first of several files, by its name and by its quantization.
        let parts = &[
            "x/m-Q8_0-00002-of-00003.gguf",
            "x/m-Q8_0-00001-of-00003.gguf",
            "x/m-Q8_0-00003-of-00003.gguf",
            "m-Q4_0.gguf",
        ];
        let in_order = vec![parts[1], parts[0], parts[2]];
        for reference in ["hf:o/r:q8_0", "hf:o/r:x/m-Q8_0-00001-of-00003.gguf"] {
            assert_eq!(
                chosen(reference, parts),
                Ok(Selected::Parts(in_order.clone())),
                "{reference}"
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
                "hf:o/r",
                &[
                    "m-Q8_0-00001-of-00002.gguf",
                    "m-Q8_0-00002-of-00002.gguf",
                    "m-Q4_0.gguf",
                ],
                "o/r has no Q4_K_M file; choose one of:\n  hf:o/r:m-Q8_0-00001-of-00002.gguf\n  hf:o/r:m-Q4_0.gguf",
            ),
            (
                "hf:o/r:Q8_0",
                &["m-Q8_0-00001-of-00003.gguf", "m-Q8_0-00003-of-00003.gguf"],
                "o/r has no file \"m-Q8_0-00002-of-00003.gguf\", which is a part of the model \
                 \"m-Q8_0-00001-of-00003.gguf\"",
            ),
            (
                "hf:o/r:m-Q8_0-00002-of-00002.gguf",
                &["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"],
                "\"m-Q8_0-00002-of-00002.gguf\" of o/r is part 2 of 2 of a model; choose its first part, \
                 hf:o/r:m-Q8_0-00001-of-00002.gguf",
            ),
            (
                "hf:o/r:Q8_0",
                &["a-Q8_0-00001-of-00002.gguf", "b-Q8_0-00001-of-00002.gguf"],
                "o/r has several Q8_0 files; choose one of:\n  hf:o/r:a-Q8_0-00001-of-00002.gguf\n  \
                 hf:o/r:b-Q8_0-00001-of-00002.gguf",
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
