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
