//! The file of a page.
//!
//! | bytes | contents |
//! |---|---|
//! | 8 | `wwpages1` |
//! | 4 | the length of the header, little-endian |
//! | | the header: a JSON object with `format`, `scope`, `parent`, `index` and `tokens` |
//! | | the page, as little-endian words: see `kept::transfer` |
//! | 32 | the SHA-256 of all bytes before |

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use warpwright_kernels::shared::cache::PAGE;

use super::page_format::{PageFormat, PageKey};
use crate::batch::pages::prefixes::PrefixScope;

const MAGIC: &[u8; 8] = b"wwpages1";
/// The maximum length of a header. Those of this version have less than 4 KiB.
const MAX_HEADER: usize = 64 << 10;
/// The length of the checksum.
const CHECKSUM: usize = 32;

/// The identity of a saved page: all that its key is a hash of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageHeader {
    pub(crate) scope: PrefixScope,
    /// The key of the page before it, or `None` for the first page of a prompt.
    pub(crate) parent: Option<PageKey>,
    /// The number of pages before it.
    pub(crate) index: u32,
    /// The tokens of its 64 positions.
    pub(crate) tokens: Vec<u32>,
}

/// The reason why a file is not used.
#[derive(Debug)]
pub(crate) struct Unusable(pub(crate) String);

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Unusable {
        Unusable(format!("it cannot be read: {error}"))
    }
}

fn unusable<T>(reason: impl Into<String>) -> Result<T, Unusable> {
    Err(Unusable(reason.into()))
}

impl PageHeader {
    pub(crate) fn key(&self, format: &PageFormat) -> PageKey {
        format.key(self.parent, self.scope, &self.tokens)
    }

    fn json(&self, format: &PageFormat) -> Value {
        json!({
            "format": format.properties(),
            "scope": [self.scope.salt, self.scope.adapter, self.scope.class],
            "parent": self.parent.map(|parent| parent.to_string()),
            "index": self.index,
            "tokens": self.tokens,
        })
    }

    fn parse(header: &Value, format: &PageFormat) -> Result<PageHeader, Unusable> {
        if let Some(difference) = format.difference(&header["format"]) {
            return unusable(difference);
        }

        let numbers = |value: &Value| -> Option<Vec<u64>> {
            value.as_array()?.iter().map(Value::as_u64).collect()
        };
        let Some([salt, adapter, class]) = numbers(&header["scope"])
            .as_deref()
            .and_then(|scope: &[u64]| <[u64; 3]>::try_from(scope).ok())
        else {
            return unusable("its header has no scope");
        };
        let parent = match &header["parent"] {
            Value::Null => None,
            Value::String(key) => match PageKey::parse(key) {
                Some(key) => Some(key),
                None => return unusable("its header has a damaged key"),
            },
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                return unusable("its header has a damaged key");
            }
        };
        let tokens = numbers(&header["tokens"]).unwrap_or_default();
        let tokens: Result<Vec<u32>, _> = tokens.into_iter().map(u32::try_from).collect();
        let Some(tokens) = tokens.ok().filter(|tokens| tokens.len() == PAGE as usize) else {
            return unusable("its header does not have 64 tokens");
        };
        let index = header["index"]
            .as_u64()
            .and_then(|index| u32::try_from(index).ok());
        let Some(index) = index.filter(|index| (*index == 0) == parent.is_none()) else {
            return unusable("its header has no index that agrees with its key");
        };
        Ok(PageHeader {
            scope: PrefixScope {
                salt,
                adapter,
                class,
            },
            parent,
            index,
            tokens,
        })
    }
}

/// Returns the length of a page's file.
pub(crate) fn len(format: &PageFormat, header: &PageHeader) -> u64 {
    let header = header.json(format).to_string().len();
    (MAGIC.len() + 4 + header + 8 * format.page_words() + CHECKSUM) as u64
}

/// Returns the bytes of a page's file.
pub(crate) fn encode(format: &PageFormat, header: &PageHeader, words: &[u64]) -> Vec<u8> {
    assert_eq!(words.len(), format.page_words());
    let header = header.json(format).to_string();
    let start = MAGIC.len() + 4 + header.len();
    let mut bytes = Vec::with_capacity(start + 8 * words.len() + CHECKSUM);
    bytes.extend(MAGIC);
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.resize(start + 8 * words.len(), 0);
    for (to, word) in bytes[start..].chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    let checksum = Sha256::digest(&bytes);
    bytes.extend(checksum);
    bytes
}

/// Reads the header of a file, without the checksum.
pub(crate) fn read_header(path: &Path, format: &PageFormat) -> Result<PageHeader, Unusable> {
    let mut file = File::open(path)?;
    let mut start = [0; 12];
    if file.read_exact(&mut start).is_err() {
        return unusable("it is too short");
    }
    let len = header_len(&start)?;
    let mut header = vec![0; len];
    if file.read_exact(&mut header).is_err() {
        return unusable("it is too short");
    }
    let expected = start.len() + len + 8 * format.page_words() + CHECKSUM;
    let header = parse_header(&header, format)?;
    let found = file.metadata()?.len();
    if found != expected as u64 {
        return unusable(format!("it has {found} bytes and not {expected}"));
    }
    Ok(header)
}

/// Reads a file and returns the words of its page, after checking that it is complete and that its
/// header is the given one.
pub(crate) fn read_words(
    path: &Path,
    format: &PageFormat,
    wanted: &PageHeader,
) -> Result<Vec<u64>, Unusable> {
    let bytes = std::fs::read(path)?;
    let (header, words) = decode(&bytes, format)?;
    if header != *wanted {
        return unusable("its header has changed");
    }
    Ok(words)
}

fn decode(bytes: &[u8], format: &PageFormat) -> Result<(PageHeader, Vec<u64>), Unusable> {
    let Some((contents, checksum)) = bytes.split_last_chunk::<CHECKSUM>() else {
        return unusable("it is too short");
    };
    let Some((start, rest)) = contents.split_first_chunk::<12>() else {
        return unusable("it is too short");
    };
    let Some((header, page)) = rest.split_at_checked(header_len(start)?) else {
        return unusable("it is too short");
    };
    if Sha256::digest(contents).as_slice() != checksum {
        return unusable("its checksum is wrong: it is damaged");
    }
    let header = parse_header(header, format)?;
    if page.len() != 8 * format.page_words() {
        return unusable("its page has another length");
    }

    let words = page.as_chunks::<8>().0.iter();
    let words = words.map(|word| u64::from_le_bytes(*word)).collect();
    Ok((header, words))
}

/// Returns the length of the header from the first bytes of a file.
fn header_len(start: &[u8; 12]) -> Result<usize, Unusable> {
    let (magic, len) = start.split_at(MAGIC.len());
    if magic != MAGIC {
        return unusable("it does not begin with wwpages1");
    }
    let mut bytes = [0; 4];
    bytes.copy_from_slice(len);
    let len = u32::from_le_bytes(bytes) as usize;
    if len > MAX_HEADER {
        return unusable(format!(
            "its header has {len} bytes, more than {MAX_HEADER}"
        ));
    }
    Ok(len)
}

fn parse_header(header: &[u8], format: &PageFormat) -> Result<PageHeader, Unusable> {
    match serde_json::from_slice(header) {
        Ok(header) => PageHeader::parse(&header, format),
        Err(error) => unusable(format!("its header is no JSON: {error}")),
    }
}

/// Writes the bytes of a page's file.
pub(crate) fn write(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::super::page_format::tests::properties;
    use super::*;

    fn format() -> PageFormat {
        PageFormat::new(&properties())
    }

    fn header() -> PageHeader {
        PageHeader {
            scope: PrefixScope {
                salt: u64::MAX,
                adapter: 2,
                class: 3,
            },
            parent: Some(format().key(None, PrefixScope::default(), &[5])),
            index: 1,
            tokens: (0..64).collect(),
        }
    }

    fn file() -> Vec<u8> {
        let words: Vec<u64> = (0..24).map(|word| word << 40).collect();
        encode(&format(), &header(), &words)
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, file()).unwrap();
        assert_eq!(len(&format(), &header()), file().len() as u64);
        assert_eq!(read_header(&path, &format()).unwrap(), header());
        let words = read_words(&path, &format(), &header()).unwrap();
        assert_eq!(words, (0..24).map(|word| word << 40).collect::<Vec<_>>());
        let other = PageHeader {
            index: 2,
            ..header()
        };
        let refused = read_words(&path, &format(), &other).unwrap_err();
        assert_eq!(refused.0, "its header has changed");
    }

    /// Every byte that changes and every length but the right one is found.
    #[test]
    fn a_damaged_file_is_refused() {
        let whole = file();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            assert!(decode(&bytes, &format()).is_err(), "byte {at}");
            assert!(decode(&whole[..at], &format()).is_err(), "{at} bytes");
        }
        let mut longer = whole.clone();
        longer.push(0);
        assert!(decode(&longer, &format()).is_err());
        let mut huge = whole;
        huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let reason = decode(&huge, &format()).unwrap_err().0;
        assert!(reason.contains("more than 65536"), "{reason}");
    }

    /// Headers that have a right checksum but make no sense.
    #[test]
    fn a_header_that_makes_no_sense_is_refused() {
        let good = header().json(&format());
        assert_eq!(PageHeader::parse(&good, &format()).unwrap(), header());
        let changes = [
            ("format", json!(1)),
            ("scope", json!([1, 2])),
            ("scope", json!([1, 2, -3])),
            ("parent", json!("zz")),
            ("parent", json!(7)),
            ("parent", Value::Null),
            ("index", json!(0)),
            ("index", json!(1u64 << 40)),
            ("tokens", json!([1])),
            ("tokens", json!("text")),
            ("tokens", json!(vec![u64::MAX; 64])),
        ];
        for (name, value) in changes {
            let mut bad = good.clone();
            bad[name] = value;
            assert!(PageHeader::parse(&bad, &format()).is_err(), "{bad}");
        }
        assert!(PageHeader::parse(&json!([]), &format()).is_err());
    }
}
