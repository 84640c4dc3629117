//! The error type of the crate. Each message says what is wrong, where it is, and what to do.

use std::path::PathBuf;

/// An error of this crate, from reading a model or its data to a training step.
///
/// `Debug` prints the same message as `Display`, so that a `main` that returns this error prints a
/// readable sentence.
#[derive(thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
#[non_exhaustive]
pub enum Error {
    #[error("{what} is {found}, but must be {wanted}")]
    Setting {
        what: &'static str,
        found: String,
        wanted: &'static str,
    },
    #[error("{tensor} has {found} elements, but must have {} x {} = {}", shape[0], shape[1], shape[0] * shape[1])]
    Length {
        tensor: String,
        found: usize,
        shape: [usize; 2],
    },
    #[error("there are weights of {found} layers, but must be of {wanted}")]
    Layers { found: usize, wanted: usize },
    #[error(
        "{what} of the micro-batch has {found} elements, but must have one for each of its {tokens} tokens"
    )]
    Micro {
        what: &'static str,
        found: usize,
        tokens: usize,
    },
    #[error("{what} {token} of token {index} is not in the vocabulary of {vocab}")]
    Token {
        what: &'static str,
        token: u32,
        index: usize,
        vocab: usize,
    },
    #[error(
        "the document of token {index} begins at token {start}, but must begin at the token or before it"
    )]
    Start { index: usize, start: u32 },
    #[error(
        "the loss is divided by 0 labelled tokens: set the number of labelled tokens of the step"
    )]
    Unlabelled,
    #[error("the step has no micro-batch: pass at least one")]
    Empty,
    #[error("a micro-batch has {found} tokens, but the trainer was created for at most {most}")]
    TooLong { found: usize, most: usize },
    #[error(
        "the micro-batch has number {found}, but {wanted} comes next, and dropout depends on the number"
    )]
    Number { found: u32, wanted: u32 },
    #[error("layer {layer} has other head norms than layer 0: all layers must have both or none")]
    HeadNorms { layer: usize },
    #[error("{projection} of layer {layer} has a bias, which a step on a device does not support")]
    Bias {
        projection: &'static str,
        layer: usize,
    },
    #[error("training in bf16 needs {needed}: use f32")]
    Precision { needed: String },
    #[error(
        "the document of token {index} begins before the document of the previous token: documents must be in order"
    )]
    Order { index: usize },
    #[error("{}: fine-tuning does not support {what}", path.display())]
    Family { path: PathBuf, what: String },
    #[error("{}, line {line}: it {problem}", path.display())]
    Data {
        path: PathBuf,
        line: usize,
        problem: String,
    },
    #[error("{}: the file contains no samples", path.display())]
    NoSamples { path: PathBuf },
    #[error(
        "{}: nothing to learn: {dropped} samples have nothing to learn among their first {len} tokens, and there are \
         no others",
        path.display()
    )]
    NothingToLearn {
        path: PathBuf,
        dropped: usize,
        len: usize,
    },
    #[error(
        "{}: all {excluded} samples are excluded by their marks, such as \"weight\": 0. Mark the samples to learn, or \
         remove the marks",
        path.display()
    )]
    AllExcluded { path: PathBuf, excluded: usize },
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot write {}: {source}", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: {problem}", path.display())]
    Checkpoint { path: PathBuf, problem: String },
    #[error(transparent)]
    Model(Box<warpwright_model::Error>),
    #[error(transparent)]
    Driver(Box<warpwright_driver::Error>),
}

impl From<warpwright_model::Error> for Error {
    fn from(error: warpwright_model::Error) -> Error {
        Error::Model(Box::new(error))
    }
}

impl From<warpwright_driver::Error> for Error {
    fn from(error: warpwright_driver::Error) -> Error {
        Error::Driver(Box::new(error))
    }
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Returns [`Error::Setting`] unless the setting is right.
    pub(crate) fn unless(
        right: bool,
        what: &'static str,
        found: impl ToString,
        wanted: &'static str,
    ) -> Result<(), Error> {
        if right {
            Ok(())
        } else {
            Err(Error::Setting {
                what,
                found: found.to_string(),
                wanted,
            })
        }
    }
}
