//! One safetensors file: which tensors are in it, and where.

use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use crate::Error;
use crate::file::StableFile;
use crate::folder::folder_fault::Fault;
use crate::gguf::kind;

/// An open file and its tensors.
#[derive(Debug)]
pub(crate) struct Shard {
    /// Its name in the folder.
    pub(crate) name: String,
    pub(crate) file: StableFile,
    pub(crate) tensors: Vec<StoredTensor>,
}

/// A tensor in a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredTensor {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    /// The contiguous dimension last.
    pub(crate) shape: Vec<usize>,
    /// Its first byte in the file.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

/// Bytes of the length in front of the header.
const LENGTH: u64 = 8;

/// Bytes that tell another kind of file.
const FIRST: u64 = 64;

/// The longest header that the format allows.
const MAX_HEADER: u64 = 100_000_000;

impl Shard {
    /// Opens a file of a folder, and reads its header.
    pub(crate) fn open(folder: &Path, name: &str) -> Result<Shard, Error> {
        let path = folder.join(name);

        // Opening a pipe would wait for a writer.
        let found = std::fs::metadata(&path).map_err(|source| Error::Open {
            path: path.clone(),
            source,
        })?;
        if !found.is_file() {
            return Err(Error::NoFile {
                path,
                what: "no file",
            });
        }

        let file = StableFile::open(&path)?;
        let header = header(&file)?;
        let tensors = header.and_then(|(bytes, data)| tensors(&bytes, data, file.len()));
        let tensors = tensors.map_err(|fault| Error::Folder {
            path,
            fault: Box::new(fault),
        })?;
        file.check()?;
        Ok(Shard {
            name: name.to_owned(),
            file,
            tensors,
        })
    }
}

/// The header's bytes, and where the tensors' data begins.
fn header(file: &StableFile) -> Result<Result<(Vec<u8>, u64), Fault>, Error> {
    let short = |what: String| {
        Ok(Err(Fault::Safetensors(format!(
            "it is no safetensors file: {what}"
        ))))
    };
    let mut first = vec![0; file.len().min(FIRST) as usize];
    file.read(0, &mut first)?;
    if let Some(what) = kind::known(&first).filter(|_| first.get(8) != Some(&b'{')) {
        return Ok(Err(Fault::Safetensors(what.to_owned())));
    }

    if file.len() < LENGTH {
        return short(format!(
            "it has {} bytes, and the length of the header takes {LENGTH}",
            file.len()
        ));
    }

    let mut length = [0; LENGTH as usize];
    file.read(0, &mut length)?;
    let length = u64::from_le_bytes(length);
    let left = file.len() - LENGTH;
    if length > left.min(MAX_HEADER) {
        return short(format!(
            "its header would take {length} bytes, and {left} follow"
        ));
    }

    let mut bytes = vec![0; length as usize];
    file.read(LENGTH, &mut bytes)?;
    Ok(Ok((bytes, LENGTH + length)))
}

/// The tensors of a header. The library holds types, shapes and offsets against each other.
fn tensors(header: &[u8], data: u64, len: u64) -> Result<Vec<StoredTensor>, Fault> {
    let metadata: Metadata = serde_json::from_slice(header).map_err(|error| {
        Fault::Safetensors(format!("its header is no safetensors header: {error}"))
    })?;
    let found = len - data;
    let needed = metadata.data_len() as u64;
    if found != needed {
        let what = format!(
            "it has {found} bytes of data, and its header says {needed}: download it again"
        );
        return Err(Fault::Safetensors(what));
    }

    let mut tensors: Vec<StoredTensor> = metadata
        .tensors()
        .into_iter()
        .map(|(name, info)| {
            let (start, end) = info.data_offsets;
            StoredTensor {
                name,
                dtype: info.dtype,
                shape: info.shape.clone(),
                start: data + start as u64,
                bytes: (end - start) as u64,
            }
        })
        .collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}
