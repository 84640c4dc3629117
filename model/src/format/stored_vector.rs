//! Vectors that are read in F32 although the files store other values.

use std::ops::Range;

use crate::Error;
use crate::format::wide::WideFormat;

/// A vector in a file, and the change of its values when it is read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredVector {
    /// The bytes in the file, from the first value of the vector on.
    pub(crate) from: Range<usize>,
    /// The distance of two values in the file, in values: 2 if every other value belongs to the
    /// vector, and otherwise 1.
    pub(crate) step: usize,
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
        (self.from.len() / self.format.bytes()).div_ceil(self.step) * 4
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
        // The values between two values of the vector are read too, and skipped.
        let between = (numbers.len().saturating_sub(1)) * self.step;
        let count = if numbers.is_empty() { 0 } else { between + 1 };
        let mut stored = vec![0; width * count];
        read(
            self.from.start + width * self.step * numbers.start,
            &mut stored,
        )?;
        let VectorChange { plus, times } = self.change;
        let stored = stored.chunks_exact(width).step_by(self.step);
        let changed = stored.flat_map(|number| {
            let changed = (self.format.read(number) + plus) * times;
            (changed as f32).to_le_bytes()
        });
        let changed: Vec<u8> = changed.skip(at % 4).take(bytes.len()).collect();
        bytes.copy_from_slice(&changed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every other value of eight, in both halves and at any offset.
    #[test]
    fn every_other_value_is_read() {
        let file: Vec<u8> = (0..8u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
        for first in [0, 1] {
            let vector = StoredVector {
                from: 4 * first..32,
                step: 2,
                format: WideFormat::F32,
                change: VectorChange::NONE,
            };
            assert_eq!(vector.len(), 16);
            let wanted: Vec<u8> = (0..4u8)
                .flat_map(|i| f32::from(2 * i + first as u8).to_le_bytes())
                .collect();
            for range in [0..16, 3..9, 4..8, 15..16, 5..5] {
                let mut bytes = vec![0; range.len()];
                let read = |start: usize, bytes: &mut [u8]| {
                    bytes.copy_from_slice(&file[start..start + bytes.len()]);
                    Ok(())
                };
                vector.read(range.start, &mut bytes, read).unwrap();
                assert_eq!(bytes, wanted[range]);
            }
        }
    }
}
