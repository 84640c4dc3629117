//! Writes the part of a GGUF file (version 3) before the tensors' data. See `docs/gguf.md` in the
//! ggml repository.

use crate::format::tensor_type::TensorType;
use crate::gguf::file::ALIGNMENT;

/// A metadata value to write.
#[derive(Debug, Clone, Copy)]
pub enum Scalar<'a> {
    /// An unsigned 32-bit integer, type 4 of GGUF.
    U32(u32),
    /// A 32-bit float, type 6 of GGUF.
    F32(f32),
    /// A string, type 8 of GGUF.
    Text(&'a str),
}

/// The beginning of a file: metadata and tensor descriptions. The tensor data follow in the same
/// order.
#[derive(Debug, Default)]
pub struct Head {
    pairs: Vec<u8>,
    pair_count: u64,
    tensors: Vec<u8>,
    tensor_count: u64,
    /// The offset of the next tensor's data, relative to the end of this head.
    offset: u64,
}

impl Head {
    /// Adds a key, which must be new.
    #[must_use]
    pub fn pair(mut self, key: &str, value: Scalar<'_>) -> Head {
        text(&mut self.pairs, key);
        let id: u32 = match value {
            Scalar::U32(_) => 4,
            Scalar::F32(_) => 6,
            Scalar::Text(_) => 8,
        };
        self.pairs.extend(id.to_le_bytes());
        match value {
            Scalar::U32(n) => self.pairs.extend(n.to_le_bytes()),
            Scalar::F32(x) => self.pairs.extend(x.to_le_bytes()),
            Scalar::Text(value) => text(&mut self.pairs, value),
        }

        self.pair_count += 1;
        self
    }

    /// Adds a tensor, whose name must be new. `dims` are its dimensions, the contiguous one first,
    /// which must be a multiple of the block length of `kind`.
    #[must_use]
    pub fn tensor(mut self, name: &str, dims: &[u64], kind: &TensorType) -> Head {
        text(&mut self.tensors, name);
        self.tensors.extend((dims.len() as u32).to_le_bytes());
        for n in dims {
            self.tensors.extend(n.to_le_bytes());
        }

        self.tensors.extend(kind.id.to_le_bytes());
        self.tensors.extend(self.offset.to_le_bytes());
        let bytes = dims.iter().product::<u64>() / kind.block_len * kind.block_bytes;
        self.offset = (self.offset + bytes).next_multiple_of(ALIGNMENT);
        self.tensor_count += 1;
        self
    }

    /// Returns the bytes of the file up to the data of the first tensor. The data of each tensor
    /// must be followed by its [`padding`].
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let counts = [self.tensor_count, self.pair_count]
            .map(u64::to_le_bytes)
            .concat();
        let mut out = [b"GGUF\x03\0\0\0", &counts[..], &self.pairs, &self.tensors].concat();
        out.extend(padding(out.len() as u64));
        out
    }
}

/// Returns the zeros that follow a tensor of `bytes` bytes, up to the position of the next tensor.
#[must_use]
pub fn padding(bytes: u64) -> &'static [u8] {
    const ZEROS: [u8; ALIGNMENT as usize] = [0; ALIGNMENT as usize];
    &ZEROS[..(bytes.next_multiple_of(ALIGNMENT) - bytes) as usize]
}

/// A string: its length and its bytes.
fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
