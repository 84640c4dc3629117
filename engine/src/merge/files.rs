//! The files of a model with its adapter added: those of the base, in which other numbers stand in the same places.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use crate::merge::fault::Fault;
use crate::merge::sum::{Change, Sum};
use crate::{Error, Model};

/// Bytes that are read at once, and written.
const PIECE: usize = 1 << 22;

/// A model whose adapter can be added to its weights.
pub struct Merge<'a> {
    model: &'a Model,
    /// By where they begin in the files.
    sums: BTreeMap<usize, Sum<'a>>,
}

/// A file of weights.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightFile {
    /// Where the base has it.
    pub path: PathBuf,
    /// Its bytes, in the range by which weights are read.
    range: Range<usize>,
}

impl WeightFile {
    /// Bytes of the file, of the base's as of the merged one.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.range.len() as u64
    }
}

impl<'a> Merge<'a> {
    /// Plans to add the adapter of a model to its weights. Without one the files are copies.
    ///
    /// # Errors
    ///
    /// A projection that has an adapter and is quantized, by name.
    pub fn new(model: &'a Model) -> Result<Merge<'a>, Error> {
        let outline = &model.outline;
        let layers = outline.adapter.iter().flat_map(|adapter| &adapter.layers);
        let mut sums = BTreeMap::new();
        for (block, layer) in outline.weights.blocks.iter().zip(layers) {
            for (weight, factors) in block.projections().into_iter().zip(layer) {
                let Some(factors) = factors else { continue };
                let path = || model.files.path().to_owned();
                let fault = |fault: Fault| Error::Merge {
                    path: path(),
                    fault: Box::new(fault),
                };
                sums.insert(
                    weight.range.start,
                    Sum::new(weight, factors).map_err(fault)?,
                );
            }
        }
        Ok(Merge { model, sums })
    }

    /// The files to write, in order.
    #[must_use]
    pub fn files(&self) -> Vec<WeightFile> {
        let files = self.model.files.of_weights().into_iter();
        files
            .map(|(path, range)| WeightFile { path, range })
            .collect()
    }

    /// Gives the bytes of a merged file to `sink`, in order and a few MiB at a time. Each sum is made in F64 and rounded
    /// once, to the format of the weight; all other bytes are those of the base. Behind the last file,
    /// [`Files::check`](crate::model::Files::check) says whether what was read is of the base as it was opened.
    ///
    /// # Errors
    ///
    /// Those of `sink`; a file that cannot be read; weights that are not finite, and sums beyond the weight's format.
    pub fn write<E: From<Error>>(
        &self,
        file: &WeightFile,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Change, E> {
        let (mut at, mut change) = (file.range.start, Change::default());
        for (start, sum) in self.sums.range(file.range.clone()) {
            self.copy(at..*start, &mut sink)?;
            change += self.add(sum, file, &mut sink)?;
            at = sum.weight.range.end;
        }
        self.copy(at..file.range.end, &mut sink)?;
        Ok(change)
    }

    fn copy<E: From<Error>>(
        &self,
        range: Range<usize>,
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        pieces(range, PIECE).try_for_each(|piece| sink(&self.model.files.data(&piece)?))
    }

    /// Gives the bytes of a projection with its adapter.
    fn add<E: From<Error>>(
        &self,
        sum: &Sum<'_>,
        file: &WeightFile,
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Change, E> {
        let (range, row) = (&sum.weight.range, sum.row_bytes());
        let mut change = Change {
            projections: 1,
            ..Change::default()
        };
        for piece in pieces(range.clone(), (PIECE / row).max(1) * row) {
            let mut bytes = self.model.files.data(&piece)?;
            change += sum.add((piece.start - range.start) / row, &mut bytes, &file.path)?;
            sink(&bytes)?;
        }
        Ok(change)
    }
}

/// A range in pieces of at most so many bytes.
fn pieces(range: Range<usize>, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    range
        .clone()
        .step_by(bytes)
        .map(move |start| start..range.end.min(start + bytes))
}
