//! The fingerprint of a model's files.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};
use warpwright_model::Model;

use crate::Error;

/// The bytes at the beginning of a file that are hashed. They contain the header of a GGUF file
/// with its table of tensors, and that of a safetensors file.
const HEAD: u64 = 16 << 20;
/// The number of blocks that are hashed in the rest of a file, at equal distances.
const SAMPLES: u64 = 1024;
/// The bytes of such a block.
const SAMPLE_BYTES: u64 = 4 << 10;

/// A number that identifies the contents of a model's files.
///
/// It covers, for each file, the size, the time of the last change, the first 16 MiB and 1,024
/// blocks of 4 KiB at equal distances. The names of files do not count. Someone who changes other
/// bytes on purpose and restores the time is not noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModelFingerprint(pub(crate) [u8; 32]);

impl ModelFingerprint {
    /// Reads the fingerprint of a model's files.
    ///
    /// # Errors
    /// Returns [`Error::PageFile`] if a file cannot be read.
    pub(crate) fn read(model: &Model) -> Result<ModelFingerprint, Error> {
        let mut hash = Sha256::new();
        for path in model.files.paths() {
            hash_file(&path, &mut hash).map_err(|source| Error::PageFile {
                what: "read the model file",
                path: path.clone(),
                source,
            })?;
        }
        Ok(ModelFingerprint(hash.finalize().into()))
    }
}

fn hash_file(path: &Path, hash: &mut Sha256) -> io::Result<()> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    let len = metadata.len();
    // A time before 1970 is as good as any.
    let changed = metadata.modified()?.duration_since(UNIX_EPOCH);
    let changed = changed.map_or(0, |changed| changed.as_nanos());
    hash.update(len.to_le_bytes());
    hash.update(changed.to_le_bytes());
    io::copy(&mut (&mut file).take(HEAD), hash)?;
    let step = (len.saturating_sub(HEAD) / SAMPLES).max(SAMPLE_BYTES);
    let mut start = HEAD;
    while start < len {
        file.seek(SeekFrom::Start(start))?;
        io::copy(&mut (&mut file).take(SAMPLE_BYTES), hash)?;
        start += step;
    }
    Ok(())
}
