//! The weights of a folder: its safetensors files, read as one.
//!
//! The files stand one after the other in one range of bytes, so that a weight is a range of it,
//! whichever file it is in. Kernels want norms and biases in F32, which most folders have in 16
//! bits: these follow the files, converted when they are read. So do matrices in NF4, unpacked,
//! matrices in MXFP4, in the blocks of GGUF files, and the matrices of experts, which are in several
//! places of the files.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use serde_json::{Map, Value};

use crate::Error;
use crate::folder::experts;
use crate::folder::experts::{ExpertTensor, StackedExperts};
use crate::folder::folder_fault::Fault;
use crate::folder::four_bit;
use crate::folder::four_bit::FourBit;
use crate::folder::mxfp4;
use crate::folder::mxfp4::Mxfp4Rows;
use crate::folder::read;
use crate::folder::shard::Shard;
use crate::folder::tensor::FolderTensor;
use crate::format::nf4::Nf4Matrix;
use crate::format::stored_vector::{StoredVector, VectorChange};
use crate::format::wide::WideFormat;

pub(crate) const ONE: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// The open files of a model folder, and its tensors.
#[derive(Debug)]
pub struct Folder {
    /// The path of the folder.
    pub path: PathBuf,
    /// The files with their offsets, for weights and everything else, in order.
    shards: Vec<(usize, Shard)>,
    tensors: BTreeMap<String, FolderTensor>,
    /// The tensors that have another number format in the files, by their start.
    converted: BTreeMap<usize, Converted>,
    /// The offset behind all files and converted tensors.
    end: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Converted {
    /// That is read in F32.
    Vector(StoredVector),
    /// That is unpacked.
    Matrix(FourBit),
    /// Whose matrices are in several places.
    Experts(StackedExperts),
    /// Whose codes and scales are in two tensors.
    Mxfp4(Mxfp4Rows),
}

impl Folder {
    /// Returns the JSON object in a file of the folder, or `None` if there is no such file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not a JSON object.
    pub fn json_object(&self, name: &str) -> Result<Option<Map<String, Value>>, Error> {
        read::object(&self.path, name)
    }

    /// Opens all files of weights.
    pub(crate) fn open(path: &Path) -> Result<Folder, Error> {
        let mut start = 0;
        let mut shards = vec![];
        for shard in files(path)? {
            let len = shard.file.len() as usize;
            shards.push((start, shard));
            start += len;
        }

        let mut folder = Folder {
            path: path.to_owned(),
            shards,
            tensors: BTreeMap::new(),
            converted: BTreeMap::new(),
            end: start,
        };
        let fault = |fault| Error::Folder {
            path: path.to_owned(),
            fault: Box::new(fault),
        };
        let end = folder.collect(start).map_err(fault)?;
        let end = folder.unpack(end)?;
        let end = folder.join_mxfp4(end).map_err(fault)?;
        let end = folder.split_biases(end);
        folder.end = folder.stack_experts(end).map_err(fault)?;
        Ok(folder)
    }

    /// Changes the values of vectors when they are read.
    pub(crate) fn change(&mut self, change: impl Fn(&str) -> VectorChange) {
        let mut end = self.end;
        for (name, tensor) in &mut self.tensors {
            let change = change(name);
            let format = match (tensor.shape.len(), WideFormat::for_dtype(tensor.dtype)) {
                (1, Some(format)) if change != VectorChange::NONE => format,
                _ => continue,
            };
            let from = tensor.range.clone();
            let vector = StoredVector {
                from,
                step: 1,
                format,
                change,
            };
            let range = end..end + vector.len();
            self.converted.insert(end, Converted::Vector(vector));
            end = range.end;
            tensor.in_f32 = Some(range);
        }
        self.end = end;
    }

    /// Lists the tensors of all files; vectors in F32 begin at `end`. Gives where they end.
    fn collect(&mut self, mut end: usize) -> Result<usize, Fault> {
        let mut places: BTreeMap<&str, &str> = BTreeMap::new();
        for (start, shard) in &self.shards {
            for tensor in &shard.tensors {
                if let Some(first) = places.insert(&tensor.name, &shard.name) {
                    return Err(Fault::Twice {
                        tensor: tensor.name.clone(),
                        first: first.to_owned(),
                        second: shard.name.clone(),
                    });
                }

                let first = start + tensor.start as usize;
                let range = first..first + tensor.bytes as usize;
                let in_f32 = match (tensor.shape.len(), tensor.dtype) {
                    (1, Dtype::F32) => Some(range.clone()),
                    (1, dtype) => WideFormat::for_dtype(dtype).map(|format| {
                        let vector = StoredVector {
                            from: range.clone(),
                            step: 1,
                            format,
                            change: VectorChange::NONE,
                        };
                        let start = end;
                        end += vector.len();
                        self.converted.insert(start, Converted::Vector(vector));
                        start..end
                    }),
                    _ => None,
                };
                let own = FolderTensor {
                    dtype: tensor.dtype,
                    shape: tensor.shape.clone(),
                    range,
                    in_f32,
                    nf4: None,
                    mxfp4: false,
                };
                self.tensors.insert(tensor.name.clone(), own);
            }
        }
        Ok(end)
    }

    /// Lists NF4 matrices under the format that they represent, from offset `end`. Returns the offset
    /// where they end.
    fn unpack(&mut self, mut end: usize) -> Result<usize, Error> {
        let mut tensors = std::mem::take(&mut self.tensors);
        for (name, matrix) in four_bit::take(&mut tensors, &self.path, &|range| self.bytes(range))?
        {
            let tensor = matrix.tensor(end);
            self.converted.insert(end, Converted::Matrix(matrix));
            end = tensor.range.end;
            tensors.insert(name, tensor);
        }

        self.tensors = tensors;
        Ok(end)
    }

    /// Lists MXFP4 matrices as one tensor each, from offset `end`. Returns the offset where they end.
    fn join_mxfp4(&mut self, mut end: usize) -> Result<usize, Fault> {
        for (name, tensor, rows) in mxfp4::take(&mut self.tensors)? {
            let range = end..end + rows.len();
            self.converted.insert(end, Converted::Mxfp4(rows));
            end = range.end;
            self.tensors.insert(name, FolderTensor { range, ..tensor });
        }
        Ok(end)
    }

    /// Lists the biases of gates and of up projections, which alternate in one tensor, as two tensors
    /// in F32 from offset `end`. Returns the offset where they end.
    fn split_biases(&mut self, mut end: usize) -> usize {
        for (name, tensor, vector) in experts::take_biases(&mut self.tensors) {
            let range = end..end + vector.len();
            self.converted.insert(end, Converted::Vector(vector));
            end = range.end;
            let in_f32 = Some(range.clone());
            let tensor = FolderTensor {
                range,
                in_f32,
                ..tensor
            };
            self.tensors.insert(name, tensor);
        }
        end
    }

    /// Lists the matrices of experts as one tensor each, from offset `end`. Returns the offset where
    /// they end.
    fn stack_experts(&mut self, mut end: usize) -> Result<usize, Fault> {
        for expert in experts::take(&mut self.tensors)? {
            let ExpertTensor {
                name,
                tensor,
                stacked,
            } = expert;
            let range = end..end + stacked.len();
            self.converted.insert(end, Converted::Experts(stacked));
            end = range.end;
            self.tensors.insert(name, FolderTensor { range, ..tensor });
        }
        Ok(end)
    }

    /// Reads matrices in F32, for example the routers of experts.
    pub(crate) fn widen(&mut self, is_wide: impl Fn(&str) -> bool) {
        let mut end = self.end;
        for (name, tensor) in &mut self.tensors {
            if tensor.shape.len() != 2 || tensor.nf4.is_some() || !is_wide(name) {
                continue;
            }
            let range = tensor.range.clone();
            tensor.in_f32 = match WideFormat::for_dtype(tensor.dtype) {
                Some(WideFormat::F32) => Some(range),
                Some(format) => {
                    let vector = StoredVector {
                        from: range,
                        step: 1,
                        format,
                        change: VectorChange::NONE,
                    };
                    let range = end..end + vector.len();
                    self.converted.insert(end, Converted::Vector(vector));
                    end = range.end;
                    Some(range)
                }
                None => None,
            };
        }
        self.end = end;
    }

    fn bytes(&self, range: &Range<usize>) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; range.len()];
        // Of nothing there may be no file.
        if !range.is_empty() {
            self.read_file(range.start, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Returns the codes of a matrix that begins at `start`, if the files have it in NF4.
    pub(crate) fn nf4(&self, start: usize) -> Result<Option<Nf4Matrix>, Error> {
        match self.converted.get(&start) {
            Some(Converted::Matrix(matrix)) => matrix.nf4(&|range| self.bytes(range)).map(Some),
            _ => Ok(None),
        }
    }

    pub(crate) fn tensor(&self, name: &str) -> Option<&FolderTensor> {
        self.tensors.get(name)
    }

    /// All names, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Fills `bytes` with the bytes of a tensor from offset `start`.
    pub(crate) fn read(&self, start: usize, bytes: &mut [u8]) -> Result<(), Error> {
        match self.converted.range(..=start).next_back() {
            Some((first, Converted::Vector(vector))) => {
                vector.read(start - first, bytes, |start, bytes| {
                    self.read_file(start, bytes)
                })
            }
            Some((first, Converted::Matrix(matrix))) => {
                matrix.read(start - first, bytes, &|range| self.bytes(range))
            }
            // A matrix of an expert may itself be converted.
            Some((first, Converted::Experts(experts))) => {
                experts.read(start - first, bytes, |start, bytes| self.read(start, bytes))
            }
            Some((first, Converted::Mxfp4(rows))) => {
                rows.read(start - first, bytes, |start, bytes| {
                    self.read_file(start, bytes)
                })
            }
            None => self.read_file(start, bytes),
        }
    }

    fn read_file(&self, start: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let last = self.shards.partition_point(|(first, _)| *first <= start) - 1;
        let (first, shard) = &self.shards[last];
        shard.file.read((start - first) as u64, bytes)
    }

    /// Whether all files are still those that were opened.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (_, shard) in &self.shards {
            shard.file.check()?;
        }
        Ok(())
    }

    /// The files of weights: their names, and their bytes in the range that all files make.
    pub(crate) fn shards(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        let range = |start: usize, shard: &Shard| start..start + shard.file.len() as usize;
        self.shards
            .iter()
            .map(move |(start, shard)| (shard.name.as_str(), range(*start, shard)))
    }
}

/// The files of weights: one, or those that an index names. As in transformers, one file comes
/// before an index.
fn files(folder: &Path) -> Result<Vec<Shard>, Error> {
    if folder.join(ONE).exists() {
        return Ok(vec![Shard::open(folder, ONE)?]);
    }

    let Some(index) = read::object(folder, INDEX)? else {
        let pickle = ["pytorch_model.bin", "pytorch_model.bin.index.json"];
        let pickle = pickle.iter().any(|name| folder.join(name).exists());
        return Err(Error::Folder {
            path: folder.to_owned(),
            fault: Box::new(Fault::NoWeights { pickle }),
        });
    };

    let fault = |fault| Error::Folder {
        path: folder.join(INDEX),
        fault: Box::new(fault),
    };
    let map = index
        .get("weight_map")
        .and_then(Value::as_object)
        .ok_or_else(|| fault(Fault::NoWeightMap))?;
    let places = map
        .iter()
        .map(|(tensor, file)| place(tensor, file))
        .collect::<Result<Vec<_>, _>>();
    let places = places.map_err(fault)?;
    let names: BTreeSet<&str> = places.iter().map(|(_, file)| *file).collect();
    if let Some(file) = names.iter().find(|file| !folder.join(file).exists()) {
        return Err(Error::Folder {
            path: folder.to_owned(),
            fault: Box::new(Fault::NoShard {
                file: (*file).to_owned(),
            }),
        });
    }

    let shards = names
        .iter()
        .map(|name| Shard::open(folder, name))
        .collect::<Result<Vec<_>, _>>()?;
    let has = |(tensor, file): &(&str, &str)| {
        let shard = shards.iter().find(|shard| shard.name == *file);
        shard.is_some_and(|s| {
            s.tensors
                .binary_search_by(|t| t.name.as_str().cmp(tensor))
                .is_ok()
        })
    };
    match places.iter().find(|place| !has(place)) {
        Some((tensor, file)) => Err(fault(Fault::NotInShard {
            tensor: (*tensor).to_owned(),
            file: (*file).to_owned(),
        })),
        None => Ok(shards),
    }
}

/// A row of the index: a tensor, and its file in the same folder.
fn place<'a>(tensor: &'a str, file: &'a Value) -> Result<(&'a str, &'a str), Fault> {
    let name = file.as_str().filter(|name| {
        Path::new(name)
            .file_name()
            .is_some_and(|last| last == *name)
    });
    let wrong = || Fault::ShardName {
        tensor: tensor.to_owned(),
        file: file.as_str().unwrap_or("").to_owned(),
    };
    name.map(|name| (tensor, name)).ok_or_else(wrong)
}
