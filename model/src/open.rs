//! Opens a model: a GGUF file, or a Hugging Face folder.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::Error;
use crate::architecture::outline;
use crate::architecture::outline::Outline;
use crate::config::json::families::{NormWeights, text_config};
use crate::config::json::read as config;
use crate::folder::contents::Folder;
use crate::folder::folder_fault::Fault;
use crate::folder::names::{FolderNames, NamedFolder, TextPart};
use crate::folder::special::{
    GENERATION, TEKKEN, TEMPLATE_JINJA, TEMPLATE_JSON, TOKENIZER, TOKENIZER_CONFIG,
};
use crate::folder::{read, special};
use crate::format::nf4::Nf4Matrix;
use crate::format::stored_vector::VectorChange;
use crate::gguf::file::Gguf;
use crate::gguf::keys::MAX_SIZE;
use crate::tokenizer::codec::Tokenizer;
use crate::tokenizer::json::vocabulary;

/// An opened and checked model, whose weights are not loaded yet.
///
/// It is a GGUF file or a Hugging Face folder. A decoder or a batch of the engine
/// loads its weights.
#[derive(Debug)]
pub struct Model {
    /// The open files with the weights.
    pub files: Files,
    /// The hyperparameters and the shapes of the weights.
    pub outline: Outline,
}

/// The open files of a model.
#[derive(Debug)]
pub enum Files {
    /// A GGUF file, or the GGUF files of a split model.
    Gguf(Gguf),
    /// A Hugging Face folder.
    Folder(Folder),
}

const CONFIG: &str = "config.json";

impl Model {
    /// Opens a GGUF file or a Hugging Face folder, and checks everything but the values of the
    /// tensors. The path of the first file of a split model opens all of them.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is damaged, or if a key, a tensor or the model
    /// family is not supported. The message names it.
    pub fn open(path: &Path) -> Result<Model, Error> {
        if path.is_dir() {
            return open_folder(path);
        }
        let mut gguf = Gguf::open(path)?;
        let mut outline = outline::of_gguf(&gguf)?;
        let factor = outline.config.logit_factor;
        if factor != 1.0 {
            let norm = &mut outline.weights.norm;
            norm.range = gguf.scale(norm.range.clone(), factor);
        }
        Ok(Model {
            files: Files::Gguf(gguf),
            outline,
        })
    }

    /// Returns the tokenizer, which is built from the same files.
    ///
    /// # Errors
    /// Returns an error if the vocabulary is missing, damaged, or of a kind that is not supported.
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        match &self.files {
            Files::Gguf(gguf) => Tokenizer::from_gguf(gguf),
            Files::Folder(folder) => {
                let config = text_values(&folder.path)?;
                let vocab = Some(self.outline.config.vocab);
                vocabulary::read(&folder.path, vocab, &config).map(Tokenizer::new)
            }
        }
    }
}

impl Tokenizer {
    /// Opens the tokenizer of a GGUF file or a Hugging Face folder. The other contents of a model
    /// are not needed.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is damaged, or if the vocabulary is missing,
    /// damaged, or not supported.
    pub fn open(path: &Path) -> Result<Tokenizer, Error> {
        if !path.is_dir() {
            return Tokenizer::from_gguf(&Gguf::open(path)?);
        }

        let config = text_values(path)?;
        let vocab = config
            .get("vocab_size")
            .and_then(Value::as_u64)
            .and_then(|n| u32::try_from(n).ok());
        let vocab = vocab.filter(|vocab| *vocab <= MAX_SIZE);
        vocabulary::read(path, vocab, &config).map(Tokenizer::new)
    }
}

/// Returns the keys of `config.json` that describe the text. Without such keys, the tokenizer does
/// not need them.
fn text_values(path: &Path) -> Result<Map<String, Value>, Error> {
    let values = read::object(path, CONFIG)?.unwrap_or_default();
    Ok(text_config(&values).map_or(values, |text| text.values))
}

fn open_folder(path: &Path) -> Result<Model, Error> {
    let Some(values) = read::object(path, CONFIG)? else {
        return Err(Error::Folder {
            path: path.to_owned(),
            fault: Box::new(Fault::NoConfig),
        });
    };

    let of_config = |problem| Error::Model {
        path: path.join(CONFIG),
        problem: Box::new(problem),
    };
    let text = text_config(&values).map_err(of_config)?;
    let values = text.values.clone();
    let config::ForwardConfig {
        family,
        config,
        rope_factors,
        tied,
    } = config::read(text).map_err(of_config)?;
    let mut folder = Folder::open(path)?;
    let names = FolderNames {
        architecture: family.architecture,
        part: TextPart::of(&folder),
    };
    folder.change(|tensor| VectorChange {
        plus: match family.norm_weights {
            NormWeights::LessOne if names.is_norm(tensor) => 1.0,
            NormWeights::LessOne | NormWeights::Stored => 0.0,
        },
        times: if names.is_last_norm(tensor) {
            config.logit_factor
        } else {
            1.0
        },
    });
    folder.widen(|tensor| names.is_in_f32(tensor));
    let of_tensors = |problem| Error::Model {
        path: path.to_owned(),
        problem: Box::new(problem),
    };
    let named = NamedFolder {
        folder: &folder,
        names,
        tied,
    };
    let weights = outline::layout(&named, &config).map_err(of_tensors)?;
    named.check_strays(&weights).map_err(of_tensors)?;
    let stop = special::stop(path, &values, config.vocab)?;
    let outline = Outline {
        config,
        weights,
        stop,
        rope_factors,
        adapter: None,
    };
    Ok(Model {
        files: Files::Folder(folder),
        outline,
    })
}

impl Files {
    /// Returns the path of the file or the folder.
    pub fn path(&self) -> &Path {
        match self {
            Files::Gguf(gguf) => &gguf.path,
            Files::Folder(folder) => &folder.path,
        }
    }

    /// Returns the paths of all files from which the model was read, in order.
    pub fn paths(&self) -> Vec<PathBuf> {
        match self {
            Files::Gguf(gguf) => gguf.files().map(|(path, _)| path.to_owned()).collect(),
            Files::Folder(folder) => {
                let others = [
                    CONFIG,
                    GENERATION,
                    TOKENIZER,
                    TEKKEN,
                    TOKENIZER_CONFIG,
                    TEMPLATE_JINJA,
                    TEMPLATE_JSON,
                ];
                let names = others
                    .into_iter()
                    .chain(folder.shards().map(|(name, _)| name));
                names
                    .map(|name| folder.path.join(name))
                    .filter(|path| path.exists())
                    .collect()
            }
        }
    }

    /// The files that weights are in, each with its bytes in the range by which weights are read.
    pub(crate) fn of_weights(&self) -> Vec<(PathBuf, Range<usize>)> {
        match self {
            Files::Gguf(gguf) => gguf
                .files()
                .map(|(path, range)| (path.to_owned(), range))
                .collect(),
            Files::Folder(folder) => folder
                .shards()
                .map(|(name, range)| (folder.path.join(name), range))
                .collect(),
        }
    }

    /// Returns the GGUF file, if the model is one.
    pub fn gguf(&self) -> Option<&Gguf> {
        match self {
            Files::Gguf(gguf) => Some(gguf),
            Files::Folder(_) => None,
        }
    }

    /// Returns the bytes of a weight, given by its range.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or has become shorter.
    pub fn data(&self, range: &Range<usize>) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; range.len()];
        self.read(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the NF4 codes of a matrix, given by its range, or `None` if the files do not store
    /// it in NF4.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or has become shorter.
    pub fn nf4(&self, range: &Range<usize>) -> Result<Option<Nf4Matrix>, Error> {
        match self {
            Files::Gguf(_) => Ok(None),
            Files::Folder(folder) => folder.nf4(range.start),
        }
    }

    /// Fills `bytes` with the bytes of a weight from offset `start`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or has become shorter.
    pub fn read(&self, start: usize, bytes: &mut [u8]) -> Result<(), Error> {
        match self {
            Files::Gguf(gguf) => gguf.read(start, bytes),
            Files::Folder(folder) => folder.read(start, bytes),
        }
    }

    /// Checks that the files have not been modified since they were opened, so that all data read
    /// from them belong together.
    ///
    /// # Errors
    /// Returns an error if a file was written to in the meantime.
    pub fn check(&self) -> Result<(), Error> {
        match self {
            Files::Gguf(gguf) => gguf.check(),
            Files::Folder(folder) => folder.check(),
        }
    }
}
