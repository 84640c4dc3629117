//! The name of a model on the hub: `hf:ORG/REPO[:FILE or :QUANT]`.

use std::fmt;
use std::str::FromStr;

use super::error::HubError;
use super::names::{self, PREFIX};

/// A model on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubReference {
    /// The repository, `ORG/REPO`.
    pub(crate) repo: String,
    /// The name of a file or of a quantization, if there is one.
    pub(crate) selection: Option<String>,
}

impl FromStr for HubReference {
    type Err = HubError;

    fn from_str(text: &str) -> Result<HubReference, HubError> {
        let fault = |problem| HubError::Reference {
            text: text.to_owned(),
            problem,
        };
        let name = text
            .strip_prefix(PREFIX)
            .ok_or_else(|| fault("it does not begin with hf:"))?;

        // Names of repositories have no colon, so the first one begins the selection.
        let (repo, selection) = match name.split_once(':') {
            Some((repo, selection)) => (repo, Some(selection)),
            None => (name, None),
        };
        if let Some(problem) = repo_problem(repo) {
            return Err(fault(problem));
        }

        match selection {
            Some("") => {
                return Err(fault(
                    "there is no file or quantization after the second colon",
                ));
            }
            Some(selection) => {
                if let Some(problem) = names::problem(selection) {
                    return Err(fault(problem));
                }
            }
            None => {}
        }

        Ok(HubReference {
            repo: repo.to_owned(),
            selection: selection.map(str::to_owned),
        })
    }
}

impl fmt::Display for HubReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.selection {
            Some(selection) => write!(f, "{PREFIX}{}:{selection}", self.repo),
            None => write!(f, "{PREFIX}{}", self.repo),
        }
    }
}

/// Returns the problem of a repository name, if it breaks the hub's rules.
///
/// The rules also protect the cache folder. Without `..`, a name cannot leave it. Without `--`,
/// which separates the organization from the repository in the name of a folder, two names cannot
/// share a folder.
fn repo_problem(repo: &str) -> Option<&'static str> {
    let Some((organization, name)) = repo.split_once('/') else {
        return Some("the repository is not ORG/REPO");
    };
    if repo.len() > 192 {
        return Some("the repository's name is too long");
    }

    for part in [organization, name] {
        if part.is_empty() || part.contains('/') {
            return Some("the repository is not ORG/REPO");
        }

        if part
            .bytes()
            .any(|byte| !byte.is_ascii_alphanumeric() && !b"._-".contains(&byte))
        {
            return Some("the names of repositories consist of letters, digits, '.', '_' and '-'");
        }

        if part.starts_with(['.', '-']) || part.ends_with(['.', '-']) {
            return Some("the names of repositories neither begin nor end with '.' or '-'");
        }

        if part.contains("..") || part.contains("--") || part.ends_with(".git") {
            return Some(
                "the names of repositories contain neither '..' nor '--', and do not end with .git",
            );
        }
    }

    None
}

#[cfg(test)]
mod tests {
    use super::HubReference;

    #[test]
    fn names_are_parsed() {
        let cases = [
            ("hf:org/repo", "org/repo", None),
            ("hf:org/repo:Q4_K_M", "org/repo", Some("Q4_K_M")),
            (
                "hf:org/repo:model-Q8_0.gguf",
                "org/repo",
                Some("model-Q8_0.gguf"),
            ),
            ("hf:org/repo:a/b/c.gguf", "org/repo", Some("a/b/c.gguf")),
            ("hf:Org-1/Repo_2.5-B", "Org-1/Repo_2.5-B", None),
            ("hf:a/b:größer 1.gguf", "a/b", Some("größer 1.gguf")),
        ];
        for (text, repo, selection) in cases {
            let parsed: HubReference = text.parse().expect(text);
            assert_eq!(
                (parsed.repo.as_str(), parsed.selection.as_deref()),
                (repo, selection),
                "{text}"
            );
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn other_names_are_refused() {
        let long = format!("hf:org/{}", "r".repeat(200));
        for text in [
            "org/repo",
            "hf:",
            "hf:repo",
            "hf:/repo",
            "hf:org/",
            "hf:org/repo/file",
            "hf:org/repo:",
            "hf:../repo",
            "hf:org/..",
            "hf:.org/repo",
            "hf:org/repo-",
            "hf:org--x/repo",
            "hf:or g/repo",
            "hf:https://host/org/repo",
            "hf://org/repo",
            "hf:org/repo:../x.gguf",
            "hf:org/repo:/etc/passwd",
            "hf:org/repo:a\\b",
            "hf:org/repo:C:x",
            "hf:org/repo:a//b",
            "hf:org/repo:a/./b",
            "hf:org/repo:a\0b",
            "hf:org/repo:a\nb",
            "hf:org/repo.git",
            "hf:ö/r",
            &long,
        ] {
            assert!(text.parse::<HubReference>().is_err(), "{text:?}");
        }
    }
}
