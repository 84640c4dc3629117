//! Weights as buffers on a device: which tensors a buffer holds, and in what form.
//!
//! A table of them drives allocation and upload, and `info` and the memory check count its bytes. The pipeline's table
//! is [`packed`](crate::weights::packed::packed), that of the simple kernels is [`unpacked`].

use std::convert::Infallible;

use warpwright_driver::{Buffer, Context, View};
use warpwright_kernels::{Format, RowOrder};

use crate::Error;
use crate::model::outline::{Outline, Weight, Weights};

/// What a buffer holds: its parts, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Stored<'a>(Vec<Part<'a>>);

/// Weights that are uploaded together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) weight: &'a Weight,
    /// A matrix of the same shape and format: tiles then have rows of both.
    pub(crate) other: Option<&'a Weight>,
    /// The order in which rows become tiles; `None` for the file's bytes.
    pub(crate) tiles: Option<RowOrder>,
}

/// A part to be uploaded.
pub(crate) struct Job<'a> {
    pub(crate) part: Part<'a>,
    /// Its place on the device, with as many bytes.
    pub(crate) to: View<u8>,
}

impl<'a> Part<'a> {
    fn rows(weight: &'a Weight) -> Part<'a> {
        Part {
            weight,
            other: None,
            tiles: None,
        }
    }

    pub(crate) fn format(&self) -> Format {
        self.weight.format
    }

    /// One weight or two.
    pub(crate) fn weights(&self) -> impl Iterator<Item = &'a Weight> {
        [self.weight].into_iter().chain(self.other)
    }

    fn bytes(&self) -> usize {
        self.weights().map(|weight| weight.range.len()).sum()
    }
}

impl<'a> Stored<'a> {
    /// Weights as the file has them.
    pub(crate) fn rows(weights: impl IntoIterator<Item = &'a Weight>) -> Stored<'a> {
        Stored(weights.into_iter().map(Part::rows).collect())
    }

    /// The same of weights that a model has all of, or none.
    pub(crate) fn all_of<const N: usize>(weights: [&'a Option<Weight>; N]) -> Option<Stored<'a>> {
        weights
            .into_iter()
            .map(|weight| weight.as_ref().map(Part::rows))
            .collect::<Option<_>>()
            .map(Stored)
    }

    /// A matrix as tiles.
    pub(crate) fn tiles(order: RowOrder, weight: &'a Weight) -> Stored<'a> {
        Stored(vec![Part {
            weight,
            other: None,
            tiles: Some(order),
        }])
    }

    /// Two matrices as tiles that have rows of both.
    pub(crate) fn tiles_of_two(
        order: RowOrder,
        weight: &'a Weight,
        other: &'a Weight,
    ) -> Stored<'a> {
        Stored(vec![Part {
            weight,
            other: Some(other),
            tiles: Some(order),
        }])
    }

    /// These parts, and then others.
    pub(crate) fn then(mut self, others: Stored<'a>) -> Stored<'a> {
        self.0.extend(others.0);
        self
    }

    /// Bytes of the buffer.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(Part::bytes).sum()
    }

    /// Allocates the buffer and requests its parts.
    pub(crate) fn load(
        &self,
        context: &Context,
        request: &mut impl FnMut(Job<'a>) -> Result<(), Error>,
    ) -> Result<View<u8>, Error> {
        let name = self.0.first().map_or("", |part| &part.weight.name);
        let buffer = Buffer::uninit(context, self.bytes())?.labelled(name).view();
        let mut start = 0;
        for &part in &self.0 {
            let end = start + part.bytes();
            request(Job {
                part,
                to: buffer.view_range(start..end),
            })?;
            start = end;
        }
        Ok(buffer)
    }
}

/// What each buffer of the simple kernels holds: a tensor as the file has it. The factors of the rotary frequencies
/// stay on the host.
pub(crate) fn unpacked(outline: &Outline) -> Weights<Stored<'_>> {
    let Ok(weights) = outline
        .weights
        .try_map(|weight| Ok::<_, Infallible>(Stored::rows([weight])));
    Weights {
        rope_factors: None,
        rope_factors_long: None,
        rope_factors_short: None,
        ..weights
    }
}

/// Allocates the buffers of the simple kernels and requests what is to be in them.
pub(crate) fn load<'a>(
    context: &Context,
    outline: &'a Outline,
    mut request: impl FnMut(Job<'a>) -> Result<(), Error>,
) -> Result<Weights<View<u8>>, Error> {
    unpacked(outline).try_map(|stored| stored.load(context, &mut request))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::shape::{QUANTIZATIONS, SHAPES};
    use crate::weights::packed::packed;

    /// So that what is free can be compared with what is needed before a path is chosen.
    #[test]
    fn both_tables_have_the_same_bytes() {
        for (shape, quantization) in SHAPES.iter().flat_map(|s| QUANTIZATIONS.map(|q| (s, q))) {
            let Ok(outline) = Outline::of(shape, quantization) else {
                continue;
            };
            let packed: usize = packed(&outline).iter().map(Stored::bytes).sum();
            let unpacked: usize = unpacked(&outline).iter().map(Stored::bytes).sum();
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
