//! The list of files in a repository, with sizes and checksums.

use serde::Deserialize;

use super::cache::is_commit;
use super::client::{Client, Subject};
use super::error::HubError;
use super::names;

/// The files of a repository at one commit.
pub(super) struct Listing {
    pub(super) commit: String,
    pub(super) files: Vec<ListedFile>,
}

/// An entry of the list.
pub(super) struct ListedFile {
    pub(super) name: String,
    /// The size in bytes. Mirrors may leave it out.
    pub(super) size: Option<u64>,
    /// The checksum. Mirrors may leave it out.
    pub(super) checksum: Option<Checksum>,
}

/// The checksum of a file. Its text is the name of the content in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Checksum {
    /// The SHA-256 of the content, for files in LFS.
    Sha256(String),
    /// The SHA-1 of the content with git's header in front of it, for all other files.
    GitSha1(String),
    /// A tag that is not a checksum, as some mirrors send it.
    Unknown(String),
}

/// The data that a download of a file needs.
pub(super) struct RemoteFile {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) checksum: Checksum,
}

impl Checksum {
    /// Parses an entity tag. Returns `None` if it cannot be the name of a file in the cache.
    fn from_tag(tag: &str) -> Option<Checksum> {
        let tag = tag.trim().trim_start_matches("W/").trim_matches('"');
        let hexadecimal = tag.bytes().all(|byte| byte.is_ascii_hexdigit());
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        match tag.len() {
            64 if hexadecimal => Some(Checksum::Sha256(tag.to_owned())),
            40 if hexadecimal => Some(Checksum::GitSha1(tag.to_owned())),
            1..=128 if tag.bytes().all(known) && !tag.starts_with('.') => {
                Some(Checksum::Unknown(tag.to_owned()))
            }
            _ => None,
        }
    }

    /// Returns the name of the content in the cache.
    pub(super) fn etag(&self) -> &str {
        match self {
            Checksum::Sha256(text) | Checksum::GitSha1(text) | Checksum::Unknown(text) => text,
        }
    }
}

#[derive(Deserialize)]
struct RepositoryInfo {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    #[serde(default)]
    size: Option<u64>,
    #[serde(rename = "blobId", default)]
    blob_id: Option<String>,
    #[serde(default)]
    lfs: Option<LargeFile>,
}

#[derive(Deserialize)]
struct LargeFile {
    #[serde(alias = "oid")]
    sha256: String,
    #[serde(default)]
    size: Option<u64>,
}

impl Listing {
    /// Requests the list of the branch `main`.
    ///
    /// # Errors
    /// Returns an error if the repository cannot be read or the answer is malformed.
    pub(super) fn load(client: &Client, repo: &str) -> Result<Listing, HubError> {
        let url = client
            .address(&format!("/api/models/{repo}/revision/main"))
            .with_query("blobs=true");
        let text = client.text(&url, Subject { repo, file: None })?;
        let fault = |problem: String| HubError::Answer {
            url: url.to_string(),
            problem,
        };
        let info: RepositoryInfo = serde_json::from_str(&text)
            .map_err(|error| fault(format!("it is not a list of files: {error}")))?;
        if !is_commit(&info.sha) {
            return Err(fault(format!("{:?} is not a commit", info.sha)));
        }

        let mut files: Vec<ListedFile> = vec![];
        for sibling in info.siblings {
            let Sibling {
                rfilename: name,
                size,
                blob_id,
                lfs,
            } = sibling;
            let (size, checksum) = match lfs {
                Some(lfs) => {
                    let checksum = Checksum::from_tag(&lfs.sha256);
                    // Without a valid checksum, a corrupt content would not be noticed.
                    let Some(checksum @ Checksum::Sha256(_)) = checksum else {
                        return Err(fault(format!(
                            "{:?} is not a SHA-256, for {name:?}",
                            lfs.sha256
                        )));
                    };
                    (lfs.size.or(size), Some(checksum))
                }
                None => (size, blob_id.as_deref().and_then(Checksum::from_tag)),
            };
            files.push(ListedFile {
                name,
                size,
                checksum,
            });
        }

        files.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(twice) = files.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(fault(format!("it lists {:?} twice", twice[0].name)));
        }

        Ok(Listing {
            commit: info.sha,
            files,
        })
    }

    pub(super) fn find(&self, name: &str) -> Option<&ListedFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Returns a file with its size and checksum. They are requested if the list does not contain
    /// them.
    ///
    /// # Errors
    /// Returns an error if the name is unsafe, or if the hub announces no size or checksum.
    pub(super) fn remote(
        &self,
        client: &Client,
        repo: &str,
        file: &ListedFile,
    ) -> Result<RemoteFile, HubError> {
        let name = file.name.clone();
        if let Some(problem) = names::problem(&name) {
            return Err(HubError::Name {
                repo: repo.to_owned(),
                name,
                problem,
            });
        }

        if let (Some(size), Some(checksum)) = (file.size, &file.checksum) {
            return Ok(RemoteFile {
                name,
                size,
                checksum: checksum.clone(),
            });
        }

        let url = client.address(&format!("/{repo}/resolve/{}/{name}", self.commit));
        let answer = client.head(
            &url,
            Subject {
                repo,
                file: Some(&name),
            },
        )?;
        let missing = |what: &str| HubError::Answer {
            url: url.to_string(),
            problem: format!("it announces no {what}"),
        };

        // For a large file, the answer is a redirect. Its own length and tag are in the headers
        // `x-linked-..`, and the plain headers describe the redirect.
        let size = answer
            .header("x-linked-size")
            .or_else(|| answer.header("content-length"));
        let size = size
            .and_then(|size| size.parse().ok())
            .or(file.size)
            .ok_or_else(|| missing("size"))?;
        let tag = answer
            .header("x-linked-etag")
            .or_else(|| answer.header("etag"));
        let checksum = file
            .checksum
            .clone()
            .or_else(|| tag.and_then(Checksum::from_tag));
        Ok(RemoteFile {
            name,
            size,
            checksum: checksum.ok_or_else(|| missing("checksum"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Checksum;

    #[test]
    fn tags_are_classified() {
        let (long, short) = ("ab".repeat(32), "cd".repeat(20));
        assert_eq!(
            Checksum::from_tag(&format!("\"{long}\"")),
            Some(Checksum::Sha256(long))
        );
        assert_eq!(
            Checksum::from_tag(&format!("W/\"{short}\"")),
            Some(Checksum::GitSha1(short))
        );
        assert_eq!(
            Checksum::from_tag("\"abc-1.2\""),
            Some(Checksum::Unknown("abc-1.2".to_owned()))
        );
        for tag in [
            "",
            "\"\"",
            "../x",
            "a/b",
            "a\\b",
            ".x",
            "a b",
            "ä",
            &"x".repeat(129),
        ] {
            assert_eq!(Checksum::from_tag(tag), None, "{tag:?}");
        }
    }
}
