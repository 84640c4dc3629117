//! The names and keys of a model in several GGUF files, as llama.cpp's `llama-gguf-split` writes them.
//!
//! The files of a model have the names `NAME-00001-of-00003.gguf` and so on. The first one has the
//! metadata of the model, and each has some of the tensors. Three keys in every file describe the
//! split: `split.no` counts from 0, `split.count` is the number of files, and `split.tensors.count`
//! is the number of tensors in all of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::gguf::fault::Fault;
use crate::gguf::value::Value;

/// The position of a file among those of its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SplitPart {
    /// The number of the file, from 0.
    no: u64,
    /// The number of files.
    count: u64,
    /// The number of tensors in all files.
    tensors: u64,
}

/// The most files of a model. The key has 16 bits.
const MAX_FILES: u64 = (1 << 16) - 1;

impl SplitPart {
    /// Reads the keys of a file. Returns `None` if the file has the whole model.
    pub(crate) fn read(metadata: &BTreeMap<String, Value>) -> Result<Option<SplitPart>, Fault> {
        let number = |key: &'static str| match metadata.get(key) {
            None => Ok(None),
            Some(Value::Unsigned(n)) => Ok(Some(*n)),
            // The count of tensors is signed in files of llama.cpp.
            Some(Value::Signed(n)) if *n >= 0 => Ok(Some(*n as u64)),
            Some(other) => Err(Fault::SplitKey {
                key,
                found: other.to_string(),
            }),
        };
        let count = number("split.count")?.unwrap_or(0);
        if count <= 1 {
            return Ok(None);
        }
        if count > MAX_FILES {
            return Err(Fault::SplitKey {
                key: "split.count",
                found: count.to_string(),
            });
        }

        let missing = |key| Fault::SplitKey {
            key,
            found: "missing".to_owned(),
        };
        let no = number("split.no")?.ok_or_else(|| missing("split.no"))?;
        let tensors = number("split.tensors.count")?;
        Ok(Some(SplitPart {
            no,
            count,
            tensors: tensors.ok_or_else(|| missing("split.tensors.count"))?,
        }))
    }

    /// Returns the paths of the other files, in order, for the first file of a model.
    pub(crate) fn others(self, first: &Path) -> Result<Vec<PathBuf>, Fault> {
        let SplitPart { no, count, .. } = self;
        let name = first.file_name().unwrap_or_default().to_string_lossy();
        let prefix = name.strip_suffix(&ending(no, count));
        if no != 0 {
            return Err(Fault::LaterPart {
                part: no + 1,
                count,
                first: prefix.map(|prefix| format!("{prefix}{}", ending(0, count))),
            });
        }

        let prefix = prefix.ok_or_else(|| Fault::SplitName {
            count,
            ending: ending(0, count),
        })?;
        let path = |no| first.with_file_name(format!("{prefix}{}", ending(no, count)));
        let others: Vec<PathBuf> = (1..count).map(path).collect();
        match others.iter().find(|path| !path.exists()) {
            Some(path) => Err(Fault::MissingPart {
                name: path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into(),
                count,
            }),
            None => Ok(others),
        }
    }

    /// Checks the keys of the file with number `no`, counted from 0, of a model whose first file has
    /// these keys.
    pub(crate) fn check(self, no: u64, metadata: &BTreeMap<String, Value>) -> Result<(), Fault> {
        let wanted = SplitPart { no, ..self };
        let found = SplitPart::read(metadata)?;
        if found == Some(wanted) {
            return Ok(());
        }
        let described = |part: SplitPart| {
            format!(
                "part {} of {} with {} tensors in all",
                part.no + 1,
                part.count,
                part.tensors
            )
        };
        Err(Fault::OtherPart {
            found: found.map_or("a whole model".to_owned(), described),
            wanted: described(wanted),
        })
    }

    /// Checks the number of tensors in all files.
    pub(crate) fn check_tensors(self, found: usize) -> Result<(), Fault> {
        if found as u64 == self.tensors {
            Ok(())
        } else {
            Err(Fault::SplitTensors {
                found,
                count: self.count,
                wanted: self.tensors,
            })
        }
    }
}

/// Returns the end of the name of a file, which has number `no` from 0.
fn ending(no: u64, count: u64) -> String {
    format!("-{:05}-of-{count:05}.gguf", no + 1)
}
