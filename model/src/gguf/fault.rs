//! Errors about GGUF files.

/// Arrays of arrays of arrays are allowed; no known file needs even two levels.
pub(crate) const MAX_NESTING: u32 = 3;

/// An error in a GGUF file.
#[derive(Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
pub enum Fault {
    #[error("not a GGUF file: {0}")]
    Magic(String),
    #[error("a big-endian GGUF file; only little-endian ones are supported")]
    BigEndian,
    #[error("GGUF version {0}; versions 2 and 3 are supported")]
    Version(u32),
    #[error("the file goes on after the {0} bytes that were read")]
    Beyond(usize),
    #[error("the file ends inside {what}: {need} bytes are needed at offset {at}, {left} are left")]
    Truncated {
        what: String,
        at: usize,
        need: u64,
        left: usize,
    },
    #[error(
        "the header counts {count} {what}, but the {left} bytes that follow hold at most {most}"
    )]
    Count {
        what: &'static str,
        count: u64,
        left: usize,
        most: u64,
    },
    #[error("{what} is not UTF-8")]
    NotUtf8 { what: String },
    #[error("{what} has value type {id}; GGUF defines 0 to 12")]
    ValueType { what: String, id: u32 },
    #[error("{what} is a bool of value {byte}; 0 and 1 are allowed")]
    NotBool { what: String, byte: u8 },
    #[error("{what} nests arrays deeper than {MAX_NESTING}")]
    Nesting { what: String },
    #[error("{what} is an array of {count}, but the {left} bytes that follow hold at most {most}")]
    ArrayLength {
        what: String,
        count: u64,
        left: usize,
        most: u64,
    },
    #[error("the header counts {count} {what}; at most {most} are supported")]
    Many {
        what: &'static str,
        count: u64,
        most: u64,
    },
    #[error("key {0:?} appears twice")]
    DuplicateKey(String),
    #[error("tensor {0:?} appears twice")]
    DuplicateTensor(String),
    #[error(
        "key {key:?} is {found}, in a file that is one part of a split model; expected a whole number \
         up to 65535"
    )]
    SplitKey { key: &'static str, found: String },
    #[error(
        "this is part {part} of {count} of a split model: open its first part{}, and the others are read with it",
        first.as_ref().map_or(String::new(), |first| format!(", {first:?}"))
    )]
    LaterPart {
        part: u64,
        count: u64,
        first: Option<String>,
    },
    #[error(
        "this is the first of {count} parts of a split model, but its name does not end in {ending:?}, so the others \
         cannot be found: restore the names, or merge the parts with llama.cpp's `llama-gguf-split --merge FIRST-PART \
         OUT.gguf`"
    )]
    SplitName { count: u64, ending: String },
    #[error(
        "{name:?}, one of the {count} parts of this split model, is missing in the same directory"
    )]
    MissingPart { name: String, count: u64 },
    #[error(
        "this is {found}, but the first part needs {wanted}: the two belong to different models"
    )]
    OtherPart { found: String, wanted: String },
    #[error(
        "the {count} parts of this split model have {found} tensors, but split.tensors.count is {wanted}"
    )]
    SplitTensors {
        found: usize,
        count: u64,
        wanted: u64,
    },
    #[error("general.alignment is {0}; it must be an unsigned power of two from 1 to 2^30")]
    Alignment(String),
    #[error("tensor {tensor:?} has {count} dimensions; 1 to 4 are allowed")]
    DimensionCount { tensor: String, count: u32 },
    #[error("tensor {tensor:?} has shape {dims:?}: a dimension is zero")]
    ZeroDimension { tensor: String, dims: Vec<u64> },
    #[error("tensor {tensor:?} has shape {dims:?}: its size does not fit 64 bits")]
    TooLarge { tensor: String, dims: Vec<u64> },
    #[error("tensor {tensor:?} has type number {id}, which ggml does not define")]
    TensorType { tensor: String, id: u32 },
    #[error(
        "tensor {tensor:?} is {kind} with rows of {len} elements; {kind} needs a multiple of {block}"
    )]
    RowLength {
        tensor: String,
        kind: &'static str,
        len: u64,
        block: u64,
    },
    #[error(
        "tensor {tensor:?} lies at data offset {offset}, which is not a multiple of {alignment}"
    )]
    Misaligned {
        tensor: String,
        offset: u64,
        alignment: u64,
    },
    #[error(
        "tensor {tensor:?} needs {bytes} bytes at data offset {offset}, but the file has {available} bytes of data"
    )]
    Outside {
        tensor: String,
        bytes: u64,
        offset: u64,
        available: usize,
    },
    #[error("tensors {first:?} and {second:?} overlap")]
    Overlap { first: String, second: String },
}
