//! Vectors that are read in F32 although the files store other values.

use std::ops::Range;

use crate::Error;
use crate::format::wide::WideFormat;

/// A vector in a file, and the change of its values when it is read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredVector {
    /// The bytes in the file.
    pub(crate) from: Range<usize>,
    /// The format in the file.
    pub(crate) format: WideFormat,
    pub(crate) change: VectorChange,
}

/// A change of the values of a vector: `(x + plus) * times`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct VectorChange {
    pub(crate) plus: f64,
    pub(crate) times: f64,
}

impl VectorChange {
    /// No change.
    pub(crate) const NONE: VectorChange = VectorChange {
        plus: 0.0,
        times: 1.0,
    };
}

impl StoredVector {
    /// Returns the bytes of the vector in F32.
    pub(crate) fn len(&self) -> usize {
        self.from.len() / self.format.bytes() * 4
    }

    /// Fills `bytes` with bytes of the vector in F32, from offset `at`. `read` fills a buffer with
    /// bytes of the file. Each value is rounded once.
    pub(crate) fn read(
        &self,
        at: usize,
        bytes: &mut [u8],
        read: impl FnOnce(usize, &mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let width = self.format.bytes();
        let numbers = at / 4..(at + bytes.len()).div_ceil(4);
        let mut stored = vec![0; width * numbers.len()];
        read(self.from.start + width * numbers.start, &mut stored)?;
        let VectorChange { plus, times } = self.change;
        let changed = stored.chunks_exact(width).flat_map(|number| {
            let changed = (self.format.read(number) + plus) * times;
            (changed as f32).to_le_bytes()
        });
        let changed: Vec<u8> = changed.skip(at % 4).take(bytes.len()).collect();
        bytes.copy_from_slice(&changed);
        Ok(())
    }
}
