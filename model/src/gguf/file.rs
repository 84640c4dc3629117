//! GGUF files, versions 2 and 3: an open file, and its checked directory.
//!
//! A file has a header (magic, version, two counts), key-value pairs, tensor descriptions, padding,
//! and the data of the tensors, all little-endian. See `docs/gguf.md` in the ggml repository. The
//! contents are not trusted. Each count is compared with the remaining bytes before any allocation,
//! and all sums are checked for overflow. The tensors of a [`Gguf`] are inside the file, aligned,
//! and do not overlap.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::file::StableFile;
use crate::format::stored_vector::{StoredVector, VectorChange};
use crate::format::tensor_type::{TENSOR_TYPES, TensorType};
use crate::format::wide::WideFormat;
use crate::gguf::fault::Fault;
use crate::gguf::kind;
use crate::gguf::reader::ByteReader;
use crate::gguf::split::SplitPart;
use crate::gguf::value;
use crate::gguf::value::Value;

/// An open GGUF file and its directory.
///
/// A model that is split into several files is opened as one. Its tensors are in a single range of
/// bytes, in which the files come one after the other.
#[derive(Debug)]
pub struct Gguf {
    /// The path of the file, or of the first file of a split model.
    pub path: PathBuf,
    /// The metadata, and the tensor descriptions of all files.
    pub directory: Directory,
    /// The files, each with the offset of its first byte. The first offset is 0.
    files: Vec<(usize, StableFile)>,
    /// The vector that is read with other values, see [`scale`](Gguf::scale).
    scaled: Option<StoredVector>,
}

/// The part of a file before the tensor data.
#[derive(Debug, Clone, PartialEq)]
pub struct Directory {
    /// The version of the format: 2 or 3.
    pub version: u32,
    /// The metadata by key.
    pub metadata: BTreeMap<String, Value>,
    /// The tensors by name.
    pub tensors: BTreeMap<String, Tensor>,
}

/// The description of a tensor: its shape, its format and its position in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// The name, unique in the file.
    pub name: String,
    /// The dimensions, the contiguous one first: a `[rows, n]` matrix is `[n, rows]`.
    pub dims: Vec<u64>,
    /// The number format.
    pub kind: &'static TensorType,
    /// The byte range in the file, or in all files of a split model.
    pub range: Range<usize>,
}

/// The alignment of tensor data, unless `general.alignment` sets another one.
pub const ALIGNMENT: u64 = 32;

/// The most metadata pairs, and tensors. Each takes more memory than bytes in the file; the largest
/// known files have about a hundred pairs and two thousand tensors.
const MAX_COUNT: u64 = 1 << 16;

/// The least bytes of a key-value pair: a key's length, a value type, a value of one byte.
const MIN_PAIR: u64 = 13;

/// The least bytes of a tensor description: a name's length, one dimension, a type, an offset.
const MIN_TENSOR: u64 = 32;

/// The number of bytes of the directory that are read first. This is many times the size of a
/// directory without a vocabulary.
const FIRST: u64 = 1 << 20;

impl Gguf {
    /// Opens a file and reads its directory. If it is the first file of a split model, the others
    /// are opened too.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, if its directory is damaged, or if a file of a
    /// split model is missing or belongs to another model.
    pub fn open(path: &Path) -> Result<Gguf, Error> {
        let (file, directory) = open_part(path)?;
        let mut gguf = Gguf {
            path: path.to_owned(),
            directory,
            files: vec![(0, file)],
            scaled: None,
        };
        let fault = |fault| fault_of(path, fault);
        let Some(split) = SplitPart::read(&gguf.directory.metadata).map_err(fault)? else {
            return Ok(gguf);
        };

        for (no, path) in (1..).zip(split.others(path).map_err(fault)?) {
            gguf.append(split, no, &path)?;
        }
        let found = gguf.directory.tensors.len();
        split.check_tensors(found).map_err(fault)?;
        Ok(gguf)
    }

    /// Opens the file of a split model with number `no` and adds its tensors.
    fn append(&mut self, split: SplitPart, no: u64, path: &Path) -> Result<(), Error> {
        let fault = |fault| fault_of(path, fault);
        let (file, directory) = open_part(path)?;
        split.check(no, &directory.metadata).map_err(fault)?;
        let start = self.len();
        for (name, tensor) in directory.tensors {
            let Range { start: at, end } = tensor.range;
            let tensor = Tensor {
                range: start + at..start + end,
                ..tensor
            };
            if self
                .directory
                .tensors
                .insert(name.clone(), tensor)
                .is_some()
            {
                return Err(fault(Fault::DuplicateTensor(name)));
            }
        }
        self.files.push((start, file));
        Ok(())
    }

    /// Returns the bytes of a tensor of this file, given by its range.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or has become shorter.
    pub fn data(&self, range: &Range<usize>) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; range.len()];
        self.read(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the bytes of all files.
    pub(crate) fn len(&self) -> usize {
        self.files.iter().map(|(_, file)| file.len() as usize).sum()
    }

    /// Returns the files, each with its bytes in the range of all files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, Range<usize>)> {
        let files = self.files.iter();
        files.map(|(start, file)| (file.path(), *start..start + file.len() as usize))
    }

    /// Multiplies the values of a vector by a factor when they are read. Returns its new range, which
    /// begins behind the file, so that the bytes of the file stay readable.
    pub(crate) fn scale(&mut self, vector: Range<usize>, factor: f64) -> Range<usize> {
        let vector = StoredVector {
            step: 1,
            from: vector,
            format: WideFormat::F32,
            change: VectorChange {
                times: factor,
                ..VectorChange::NONE
            },
        };
        let start = self.len();
        let range = start..start + vector.len();
        self.scaled = Some(vector);
        range
    }

    /// Fills `bytes` with the bytes of a tensor from offset `start`, or of a vector behind the files.
    pub(crate) fn read(&self, start: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let file = |start: usize, bytes: &mut [u8]| {
            // The first file begins at 0, so there is one before `start`.
            let last = self.files.partition_point(|(first, _)| *first <= start) - 1;
            let (first, file) = &self.files[last];
            file.read((start - first) as u64, bytes)
        };
        match &self.scaled {
            Some(vector) if start >= self.len() => vector.read(start - self.len(), bytes, file),
            _ => file(start, bytes),
        }
    }

    /// Checks that the files have not been modified since they were opened, so that all data read
    /// from them belong together.
    ///
    /// # Errors
    /// Returns an error if a file was written to in the meantime.
    pub fn check(&self) -> Result<(), Error> {
        self.files.iter().try_for_each(|(_, file)| file.check())
    }
}

/// Opens a file and reads its directory.
fn open_part(path: &Path) -> Result<(StableFile, Directory), Error> {
    // Opening a pipe would wait for a writer.
    let found = std::fs::metadata(path).map_err(|source| Error::Open {
        path: path.to_owned(),
        source,
    })?;
    if let Some(what) = kind::of(&found) {
        return Err(Error::NoFile {
            path: path.to_owned(),
            what,
        });
    }

    let file = StableFile::open(path)?;
    let directory = directory(path, &file)?;
    Ok((file, directory))
}

fn fault_of(path: &Path, fault: Fault) -> Error {
    Error::Gguf {
        path: path.to_owned(),
        fault: Box::new(fault),
    }
}

/// Reads as much of the file as its directory takes, or a few times that.
fn directory(path: &Path, file: &StableFile) -> Result<Directory, Error> {
    let (mut bytes, mut most) = (vec![], FIRST);
    loop {
        let read = bytes.len();
        bytes.resize(file.len().min(most) as usize, 0);
        file.read(read as u64, &mut bytes[read..])?;
        most *= 4;
        match Directory::read_first(&bytes, file.len() as usize) {
            Err(Fault::Beyond(_)) => {}
            Ok(directory) => return file.check().map(|()| directory),
            Err(fault) => {
                file.check()?;
                return Err(fault_of(path, fault));
            }
        }
    }
}

impl Directory {
    /// Parses the directory of a file, given all of its bytes.
    ///
    /// # Errors
    /// Returns the first error in the directory.
    pub fn read(file: &[u8]) -> Result<Directory, Fault> {
        Directory::read_first(file, file.len())
    }

    /// Reads the directory of a file of `len` bytes from the first of them; [`Fault::Beyond`] if it
    /// takes more.
    fn read_first(first: &[u8], len: usize) -> Result<Directory, Fault> {
        let mut r = ByteReader {
            file: first,
            len,
            at: 0,
        };
        let version = header(&mut r)?;
        let tensor_count = r.u64("the tensor count")?;
        let pair_count = r.u64("the metadata count")?;
        r.room("metadata pairs", pair_count, MIN_PAIR)?;
        r.room("tensors", tensor_count, MIN_TENSOR)?;
        few("metadata pairs", pair_count)?;
        few("tensors", tensor_count)?;
        let metadata = pairs(&mut r, pair_count)?;
        let alignment = alignment(&metadata)?;
        let found = (0..tensor_count)
            .map(|i| description(&mut r, i))
            .collect::<Result<Vec<_>, _>>()?;
        let data = (r.at as u64).next_multiple_of(alignment).min(len as u64) as usize;
        let tensors = place(found, data..len, alignment)?;
        Ok(Directory {
            version,
            metadata,
            tensors,
        })
    }
}

fn header(r: &mut ByteReader<'_>) -> Result<u32, Fault> {
    let magic: [u8; 4] = r.array("the magic number")?;
    if &magic != b"GGUF" {
        return Err(Fault::Magic(kind::named(r.file)));
    }
    match r.u32("the version")? {
        version @ (2 | 3) => Ok(version),
        version if version.swap_bytes() <= 3 && version != 0 => Err(Fault::BigEndian),
        version => Err(Fault::Version(version)),
    }
}

fn few(what: &'static str, count: u64) -> Result<(), Fault> {
    if count > MAX_COUNT {
        Err(Fault::Many {
            what,
            count,
            most: MAX_COUNT,
        })
    } else {
        Ok(())
    }
}

fn pairs(r: &mut ByteReader<'_>, count: u64) -> Result<BTreeMap<String, Value>, Fault> {
    let mut pairs = BTreeMap::new();
    for i in 0..count {
        let key = r
            .string(|| format!("the name of metadata pair {i}"))?
            .to_owned();
        let what = || format!("key {key:?}");
        let id = r.u32_of(what)?;
        let value = value::read(r, id, &what)?;
        if pairs.contains_key(&key) {
            return Err(Fault::DuplicateKey(key));
        }

        pairs.insert(key, value);
    }
    Ok(pairs)
}

fn alignment(metadata: &BTreeMap<String, Value>) -> Result<u64, Fault> {
    match metadata.get("general.alignment") {
        None => Ok(ALIGNMENT),
        Some(&Value::Unsigned(n)) if n.is_power_of_two() && n <= 1 << 30 => Ok(n),
        Some(other) => Err(Fault::Alignment(other.to_string())),
    }
}

/// A tensor description as written: the offset counts from the start of the data.
struct Description {
    name: String,
    dims: Vec<u64>,
    kind: &'static TensorType,
    bytes: u64,
    offset: u64,
}

fn description(r: &mut ByteReader<'_>, index: u64) -> Result<Description, Fault> {
    let tensor = r
        .string(|| format!("the name of tensor {index}"))?
        .to_owned();
    let what = || format!("the description of tensor {tensor:?}");
    let count = r.u32_of(what)?;
    if !(1..=4).contains(&count) {
        return Err(Fault::DimensionCount { tensor, count });
    }

    let dims = (0..count)
        .map(|_| r.u64_of(what))
        .collect::<Result<Vec<_>, _>>()?;
    let id = r.u32_of(what)?;
    let offset = r.u64_of(what)?;
    let Some(kind) = TENSOR_TYPES.iter().find(|kind| kind.id == id) else {
        return Err(Fault::TensorType { tensor, id });
    };

    let bytes = size(&tensor, &dims, kind)?;
    Ok(Description {
        name: tensor,
        dims,
        kind,
        bytes,
        offset,
    })
}

fn size(tensor: &str, dims: &[u64], kind: &'static TensorType) -> Result<u64, Fault> {
    let tensor = tensor.to_owned();
    if dims.contains(&0) {
        return Err(Fault::ZeroDimension {
            tensor,
            dims: dims.to_vec(),
        });
    }

    let len = dims[0];
    let block = kind.block_len;
    if !len.is_multiple_of(block) {
        return Err(Fault::RowLength {
            tensor,
            kind: kind.name,
            len,
            block,
        });
    }

    dims.iter()
        .try_fold(1u64, |product, n| product.checked_mul(*n))
        .and_then(|elements| (elements / block).checked_mul(kind.block_bytes))
        .ok_or_else(|| Fault::TooLarge {
            tensor,
            dims: dims.to_vec(),
        })
}

/// Checks each tensor's place in `data` and that no two share a byte.
fn place(
    found: Vec<Description>,
    data: Range<usize>,
    alignment: u64,
) -> Result<BTreeMap<String, Tensor>, Fault> {
    let mut tensors = BTreeMap::new();
    for Description {
        name,
        dims,
        kind,
        bytes,
        offset,
    } in found
    {
        if tensors.contains_key(&name) {
            return Err(Fault::DuplicateTensor(name));
        }

        if !offset.is_multiple_of(alignment) {
            return Err(Fault::Misaligned {
                tensor: name,
                offset,
                alignment,
            });
        }

        if offset
            .checked_add(bytes)
            .is_none_or(|end| end > data.len() as u64)
        {
            return Err(Fault::Outside {
                tensor: name,
                bytes,
                offset,
                available: data.len(),
            });
        }

        let start = data.start + offset as usize;
        let range = start..start + bytes as usize;
        tensors.insert(
            name.clone(),
            Tensor {
                name,
                dims,
                kind,
                range,
            },
        );
    }

    let mut order: Vec<&Tensor> = tensors.values().collect();
    order.sort_by_key(|t| t.range.start);
    match order
        .windows(2)
        .find(|pair| pair[0].range.end > pair[1].range.start)
    {
        Some(pair) => Err(Fault::Overlap {
            first: pair[0].name.clone(),
            second: pair[1].name.clone(),
        }),
        None => Ok(tensors),
    }
}
