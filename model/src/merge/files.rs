//! The files of a model with its adapter added: the files of the base, with other values in the
//! same places.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use crate::merge::fault::MergeFault;
use crate::merge::sum::{MergeStats, MergedSum};
use crate::{Error, Model};

/// The number of bytes that are read and written at a time.
const BLOCK: usize = 1 << 22;

/// A plan to add a model's adapter to its weights.
///
/// Create it with [`Merge::new`], then [`write`](Merge::write) each of its [`files`](Merge::files).
pub struct Merge<'a> {
    model: &'a Model,
    /// The merged weights, by the position at which they begin in the files.
    sums: BTreeMap<usize, MergedSum<'a>>,
}

/// A file of weights.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightFile {
    /// The path of the base's file.
    pub path: PathBuf,
    /// The bytes of the file, in the address range of all weight files.
    range: Range<usize>,
}

impl WeightFile {
    /// Returns the size of the file in bytes. The merged file is as large as the base's.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.range.len() as u64
    }
}

impl<'a> Merge<'a> {
    /// Plans to add the adapter of a model to its weights. The files of a model without an adapter
    /// are copied.
    ///
    /// # Errors
    /// Returns [`Error::Merge`] if a projection with an adapter is quantized, or if the model is
    /// split into several GGUF files.
    pub fn new(model: &'a Model) -> Result<Merge<'a>, Error> {
        let files = model.files.of_weights().len();
        if model.files.gguf().is_some() && files > 1 {
            return Err(Error::Merge {
                path: model.files.path().to_owned(),
                fault: Box::new(MergeFault::Split { files }),
            });
        }

        let outline = &model.outline;
        let layers = outline.adapter.iter().flat_map(|adapter| &adapter.layers);
        let mut sums = BTreeMap::new();
        for (block, layer) in outline.weights.blocks.iter().zip(layers) {
            for (weight, factors) in block.projections().into_iter().zip(layer) {
                let (Some(weight), Some(factors)) = (weight, factors) else {
                    continue;
                };
                let path = || model.files.path().to_owned();
                let fault = |fault: MergeFault| Error::Merge {
                    path: path(),
                    fault: Box::new(fault),
                };
                sums.insert(
                    weight.range.start,
                    MergedSum::new(weight, factors).map_err(fault)?,
                );
            }
        }

        Ok(Merge { model, sums })
    }

    /// Returns the files to write, in order.
    #[must_use]
    pub fn files(&self) -> Vec<WeightFile> {
        let files = self.model.files.of_weights().into_iter();
        files
            .map(|(path, range)| WeightFile { path, range })
            .collect()
    }

    /// Passes the bytes of a merged file to `sink`, in order and a few MiB at a time, and returns
    /// statistics about the change.
    ///
    /// Each sum is computed in F64 and rounded once, to the format of the weight. All other bytes
    /// are copied from the base. After the last file, call
    /// [`Files::check`](crate::Files::check) to make sure that the base has not changed
    /// meanwhile.
    ///
    /// # Errors
    /// - The errors of `sink`.
    /// - [`Error::Read`] if a file cannot be read.
    /// - [`Error::Weight`] if a weight is not finite.
    /// - [`Error::Merge`] if a sum is out of range for the weight's format.
    pub fn write<E: From<Error>>(
        &self,
        file: &WeightFile,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<MergeStats, E> {
        let mut at = file.range.start;
        let mut change = MergeStats::default();
        for (start, sum) in self.sums.range(file.range.clone()) {
            self.copy(at..*start, &mut sink)?;
            change += self.add(sum, file, &mut sink)?;
            at = sum.weight.range.end;
        }
        self.copy(at..file.range.end, &mut sink)?;
        Ok(change)
    }

    /// Passes unchanged bytes to the sink.
    fn copy<E: From<Error>>(
        &self,
        range: Range<usize>,
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for block in blocks(range, BLOCK) {
            sink(&self.model.files.data(&block)?)?;
        }
        Ok(())
    }

    /// Passes the bytes of a projection with its adapter added to the sink.
    fn add<E: From<Error>>(
        &self,
        sum: &MergedSum<'_>,
        file: &WeightFile,
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<MergeStats, E> {
        let range = &sum.weight.range;
        let row = sum.row_bytes();
        let mut change = MergeStats {
            projections: 1,
            ..MergeStats::default()
        };

        // Rows are added as a whole, so a block ends at the end of a row.
        for block in blocks(range.clone(), (BLOCK / row).max(1) * row) {
            let mut bytes = self.model.files.data(&block)?;
            change += sum.add((block.start - range.start) / row, &mut bytes, &file.path)?;
            sink(&bytes)?;
        }

        Ok(change)
    }
}

/// Splits a range into blocks of at most `bytes` bytes.
fn blocks(range: Range<usize>, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    range
        .clone()
        .step_by(bytes)
        .map(move |start| start..range.end.min(start + bytes))
}
