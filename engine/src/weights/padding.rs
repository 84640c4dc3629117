//! The padding of rows to whole tiles.
//!
//! Formats with blocks of 32 weights have tiles of 256 columns, so a row of such a format may end
//! inside a tile. Its tiles then have zeros behind the row. Rows are padded on the host, because a row
//! of a file is copied there anyway.

use warpwright_kernels::Format;

/// Returns the number of weights of a row of `n` weights after its padding. Formats without tiles
/// have none.
pub(crate) fn padded_len(format: Format, n: u32) -> u32 {
    format
        .tile()
        .map_or(n, |tile| n.next_multiple_of(tile.columns))
}

/// The rows of a matrix in a file and on the device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PaddedRows {
    /// The bytes of a row in the file.
    pub(crate) stored: usize,
    /// The bytes of a row on the device.
    pub(crate) padded: usize,
}

impl PaddedRows {
    /// Returns the rows of `n` weights in a format.
    pub(crate) fn new(format: Format, n: u32) -> PaddedRows {
        PaddedRows {
            stored: format.row_bytes(n as usize),
            padded: format.row_bytes(padded_len(format, n) as usize),
        }
    }

    /// Returns the bytes on the device of whole rows that have this many bytes in the file.
    pub(crate) fn padded_bytes(&self, stored: usize) -> usize {
        stored / self.stored * self.padded
    }

    /// Fills bytes from `start` on of padded rows. `read` reads bytes of the same rows without
    /// padding, from a byte on.
    pub(crate) fn read<E>(
        &self,
        start: usize,
        bytes: &mut [u8],
        read: impl FnOnce(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let first = start / self.padded;
        let rows = (start + bytes.len()).div_ceil(self.padded) - first;
        let mut stored = vec![0; rows * self.stored];
        read(first * self.stored, &mut stored)?;
        bytes.fill(0);
        for (i, row) in stored.chunks_exact(self.stored).enumerate() {
            // The row's place relative to the bytes, which may begin or end inside the row.
            let at = i * self.padded;
            let skipped = start - first * self.padded;
            let from = skipped.saturating_sub(at).min(row.len());
            let to = (skipped + bytes.len()).saturating_sub(at).min(row.len());
            if from < to {
                bytes[at + from - skipped..at + to - skipped].copy_from_slice(&row[from..to]);
            }
        }

        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_in_pieces_of_any_size() {
        let rows = PaddedRows {
            stored: 3,
            padded: 5,
        };
        let file: Vec<u8> = (1..=12).collect();
        let whole = [
            1, 2, 3, 0, 0, 4, 5, 6, 0, 0, 7, 8, 9, 0, 0, 10, 11, 12, 0, 0,
        ];
        assert_eq!(rows.padded_bytes(file.len()), whole.len());
        for start in 0..whole.len() {
            for end in start..=whole.len() {
                let mut bytes = vec![0xff; end - start];
                let read = |at: usize, to: &mut [u8]| {
                    to.copy_from_slice(&file[at..at + to.len()]);
                    Ok::<_, ()>(())
                };
                rows.read(start, &mut bytes, read).unwrap();
                assert_eq!(bytes, whole[start..end], "{start}..{end}");
            }
        }
    }

    #[test]
    fn only_rows_that_end_inside_a_tile_are_padded() {
        let cases = [
            (Format::MXFP4, 2880, 3072),
            (Format::Q8_0, 1536, 1536),
            (Format::F16, 704, 768),
            (Format::F16, 640, 640),
            (Format::F32, 100, 100),
        ];
        for (format, n, padded) in cases {
            assert_eq!(padded_len(format, n), padded, "{} {n}", format.name());
        }
    }
}
