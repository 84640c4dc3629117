//! The contents of weight buffers: the tensors that a buffer stores, and their form.
//!
//! A table of these contents drives allocation and upload. `info` and the memory check add up its
//! bytes. The pipeline's table is [`packed`](crate::weights::packed::packed), and the table of the
//! simple kernels is [`unpacked`].

use std::convert::Infallible;

use warpwright_driver::Context;
use warpwright_driver::memory::{Buffer, View};
use warpwright_kernels::{Format, RowOrder};
use warpwright_model::{Outline, Weight, Weights};

use crate::Error;
use crate::kernel_terms::kernel_format;
use crate::weights::padding::PaddedRows;

/// The contents of a buffer: its parts, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct StoredBuffer<'a>(Vec<StoredPart<'a>>);

/// A weight, or two interleaved weights, in a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredPart<'a> {
    pub(crate) weight: &'a Weight,
    /// The second matrix of the same shape and format, if the tiles have rows of both.
    pub(crate) other: Option<&'a Weight>,
    /// The order in which rows become tiles, or `None` to store the bytes of the file.
    pub(crate) tiles: Option<RowOrder>,
}

/// A part to upload.
pub(crate) struct UploadJob<'a> {
    pub(crate) part: StoredPart<'a>,
    /// The destination on the device, with as many bytes as the part.
    pub(crate) to: View<u8>,
}

impl<'a> StoredPart<'a> {
    fn rows(weight: &'a Weight) -> StoredPart<'a> {
        StoredPart {
            weight,
            other: None,
            tiles: None,
        }
    }

    pub(crate) fn format(&self) -> Format {
        kernel_format(self.weight.format)
    }

    /// Returns the one or two weights of the part.
    pub(crate) fn weights(&self) -> impl Iterator<Item = &'a Weight> {
        [self.weight].into_iter().chain(self.other)
    }

    /// Returns the rows of the part if they are padded to whole tiles.
    pub(crate) fn padded_rows(&self) -> Option<PaddedRows> {
        self.tiles?;
        let rows = PaddedRows::new(self.format(), self.weight.row_len());
        (rows.padded > rows.stored).then_some(rows)
    }

    /// Returns the bytes on the device of `stored` bytes of a weight, which are whole rows if the
    /// part has tiles.
    pub(crate) fn padded_bytes(&self, stored: usize) -> usize {
        self.padded_rows()
            .map_or(stored, |rows| rows.padded_bytes(stored))
    }

    fn bytes(&self) -> usize {
        self.padded_bytes(self.file_bytes())
    }

    fn file_bytes(&self) -> usize {
        self.weights().map(|weight| weight.range.len()).sum()
    }
}

impl<'a> StoredBuffer<'a> {
    /// Returns the contents of weights as the file stores them.
    pub(crate) fn rows(weights: impl IntoIterator<Item = &'a Weight>) -> StoredBuffer<'a> {
        StoredBuffer(weights.into_iter().map(StoredPart::rows).collect())
    }

    /// Returns the contents of optional weights as the file stores them, or `None` if one is
    /// missing.
    pub(crate) fn all_of<const N: usize>(
        weights: [&'a Option<Weight>; N],
    ) -> Option<StoredBuffer<'a>> {
        weights
            .into_iter()
            .map(|weight| weight.as_ref().map(StoredPart::rows))
            .collect::<Option<_>>()
            .map(StoredBuffer)
    }

    /// Returns the contents of a matrix as tiles.
    pub(crate) fn tiles(order: RowOrder, weight: &'a Weight) -> StoredBuffer<'a> {
        StoredBuffer(vec![StoredPart {
            weight,
            other: None,
            tiles: Some(order),
        }])
    }

    /// Returns the contents of two matrices as tiles with rows of both.
    pub(crate) fn tiles_of_two(
        order: RowOrder,
        weight: &'a Weight,
        other: &'a Weight,
    ) -> StoredBuffer<'a> {
        StoredBuffer(vec![StoredPart {
            weight,
            other: Some(other),
            tiles: Some(order),
        }])
    }

    /// Appends the parts of `others`.
    pub(crate) fn then(mut self, others: StoredBuffer<'a>) -> StoredBuffer<'a> {
        self.0.extend(others.0);
        self
    }

    /// Returns the bytes of the buffer's parts in the file, without the padding of rows.
    pub(crate) fn file_bytes(&self) -> usize {
        self.0.iter().map(StoredPart::file_bytes).sum()
    }

    /// Returns the bytes of the buffer.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(StoredPart::bytes).sum()
    }

    /// Allocates the buffer and requests the upload of its parts.
    pub(crate) fn load(
        &self,
        context: &Context,
        request: &mut impl FnMut(UploadJob<'a>) -> Result<(), Error>,
    ) -> Result<View<u8>, Error> {
        let name = self.0.first().map_or("", |part| &part.weight.name);
        let buffer = Buffer::uninit(context, self.bytes())?.labelled(name).view();
        let mut start = 0;
        for &part in &self.0 {
            let end = start + part.bytes();
            request(UploadJob {
                part,
                to: buffer.view_range(start..end),
            })?;
            start = end;
        }

        Ok(buffer)
    }
}

/// Returns the contents of each buffer of the simple kernels: one tensor, as the file stores it.
/// The factors of the rotary frequencies stay on the host.
pub(crate) fn unpacked(outline: &Outline) -> Weights<StoredBuffer<'_>> {
    let Ok(weights) = outline
        .weights
        .try_map(|weight| Ok::<_, Infallible>(StoredBuffer::rows([weight])));
    Weights {
        rope_factors: None,
        rope_factors_long: None,
        rope_factors_short: None,
        ..weights
    }
}

/// Allocates the buffers of the simple kernels and requests the upload of their contents.
pub(crate) fn load<'a>(
    context: &Context,
    outline: &'a Outline,
    mut request: impl FnMut(UploadJob<'a>) -> Result<(), Error>,
) -> Result<Weights<View<u8>>, Error> {
    unpacked(outline).try_map(|stored| stored.load(context, &mut request))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::packed::packed;
    use warpwright_model::shape::{QUANTIZATIONS, SHAPES};

    /// Equal totals let the memory check run before the kernels are chosen. Tiles add only their
    /// padding.
    #[test]
    fn both_tables_have_the_same_bytes() {
        for (shape, quantization) in SHAPES.iter().flat_map(|s| QUANTIZATIONS.map(|q| (s, q))) {
            let Ok(outline) = Outline::of(shape, quantization) else {
                continue;
            };

            let packed: usize = packed(&outline).iter().map(StoredBuffer::file_bytes).sum();
            let unpacked: usize = unpacked(&outline).iter().map(StoredBuffer::bytes).sum();
            let all: usize = outline
                .weights
                .iter()
                .map(|weight| weight.range.len())
                .sum();
            assert_eq!(
                [packed, unpacked],
                [all, all],
                "{} {}",
                shape.name,
                quantization.name
            );
        }
    }
}
