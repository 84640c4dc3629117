//! The sum `W + s B A`, computed a few rows at a time.

use std::thread;

use crate::Error;
use crate::adapter::data::LoraFactors;
use crate::architecture::outline::Weight;
use crate::format::wide::WideFormat;
use crate::merge::fault::MergeFault;

/// Statistics of a merge, as sums of squares.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MergeStats {
    /// The number of projections to which an adapter was added.
    pub projections: usize,
    /// The sum of the squares of `s B A`.
    pub added: f64,
    /// The sum of the squares of the rounding errors: the differences between `W + s B A` and the
    /// weights written.
    pub rounded: f64,
}

impl MergeStats {
    /// Returns the part of the adapter that was lost to rounding, as the ratio of L2 norms, or 0 if
    /// the adapter adds nothing.
    #[must_use]
    pub fn lost(&self) -> f64 {
        if self.added > 0.0 {
            (self.rounded / self.added).sqrt()
        } else {
            0.0
        }
    }
}

impl std::ops::AddAssign for MergeStats {
    fn add_assign(&mut self, other: MergeStats) {
        self.projections += other.projections;
        self.added += other.added;
        self.rounded += other.rounded;
    }
}

/// A projection to which its adapter is added.
pub(crate) struct MergedSum<'a> {
    pub(crate) weight: &'a Weight,
    factors: &'a LoraFactors,
    wide: WideFormat,
}

/// A value that cannot be written, with the column of its weight.
enum BadValue {
    /// The weight itself is not finite.
    Weight(usize, f64),
    /// The sum is out of range for the format.
    Sum(usize, f64),
}

impl<'a> MergedSum<'a> {
    /// Creates the sum, or returns an error if the weight is quantized.
    pub(crate) fn new(
        weight: &'a Weight,
        factors: &'a LoraFactors,
    ) -> Result<MergedSum<'a>, MergeFault> {
        if weight.nf4.is_some() {
            return Err(MergeFault::Nf4 {
                tensor: weight.name.clone(),
            });
        }
        match WideFormat::for_weights(weight.format) {
            Some(wide) => Ok(MergedSum {
                weight,
                factors,
                wide,
            }),
            None => Err(MergeFault::Quantized {
                tensor: weight.name.clone(),
                format: weight.format,
            }),
        }
    }

    /// Returns the bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.weight.row_len() as usize * self.wide.bytes()
    }

    /// Adds the adapter to the bytes of whole rows, of which `first` is the index of the first one.
    /// The rows are divided among the processor's cores, which does not change the result.
    pub(crate) fn add(
        &self,
        first: usize,
        rows: &mut [u8],
        path: &std::path::Path,
    ) -> Result<MergeStats, Error> {
        let count = rows.len() / self.row_bytes();
        let per_thread = count.div_ceil(thread::available_parallelism().map_or(1, usize::from));
        let shares = rows.chunks_mut(per_thread * self.row_bytes()).enumerate();
        let changes: Vec<_> = thread::scope(|scope| {
            let add = |(share, rows)| {
                scope.spawn(move || self.add_each(first + share * per_thread, rows))
            };
            let threads: Vec<_> = shares.map(add).collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("adding rows does not panic"))
                .collect()
        });

        // The statistics are added in the order of rows, because sums of floats depend on it.
        let mut sum = MergeStats::default();
        for (row, change) in (first..).zip(changes) {
            sum += change.map_err(|bad| self.error(row, bad, path))?;
        }

        Ok(sum)
    }

    fn add_each(&self, first: usize, rows: &mut [u8]) -> Vec<Result<MergeStats, BadValue>> {
        let mut added = vec![0.0; self.weight.row_len() as usize];
        let rows = rows.chunks_exact_mut(self.row_bytes());
        rows.zip(first..)
            .map(|(row, index)| self.add_row(index, row, &mut added))
            .collect()
    }

    /// Adds the adapter to a row. `added` is scratch memory for a row of `s B A`.
    fn add_row(
        &self,
        row: usize,
        bytes: &mut [u8],
        added: &mut [f64],
    ) -> Result<MergeStats, BadValue> {
        self.product(row, added);
        let mut change = MergeStats::default();
        for (i, (bytes, added)) in bytes
            .chunks_exact_mut(self.wide.bytes())
            .zip(added)
            .enumerate()
        {
            change += self.add_one(i, bytes, *added)?;
        }

        Ok(change)
    }

    fn add_one(&self, i: usize, bytes: &mut [u8], added: f64) -> Result<MergeStats, BadValue> {
        let weight = self.wide.read(bytes);
        if !weight.is_finite() {
            return Err(BadValue::Weight(i, weight));
        }

        // The weight is left alone, because adding 0 to -0 would change its sign.
        if added == 0.0 {
            return Ok(MergeStats::default());
        }

        let sum = weight + added;
        let written = self.wide.write(sum, bytes);
        if !written.is_finite() {
            return Err(BadValue::Sum(i, sum));
        }

        Ok(MergeStats {
            projections: 0,
            added: added * added,
            rounded: (written - sum).powi(2),
        })
    }

    /// Computes a row of `s B A`.
    fn product(&self, row: usize, product: &mut [f64]) {
        let LoraFactors { rank, scale, a, b } = self.factors;
        let rank = *rank as usize;
        let n = product.len();
        product.fill(0.0);
        for (b, a) in b[row * rank..][..rank].iter().zip(a.chunks_exact(n)) {
            let by = f64::from(*b) * scale;
            for (sum, a) in product.iter_mut().zip(a) {
                *sum += by * f64::from(*a);
            }
        }
    }

    fn error(&self, row: usize, bad: BadValue, path: &std::path::Path) -> Error {
        let at = |column: usize| row * self.weight.row_len() as usize + column;
        let path = path.to_owned();
        let tensor = self.weight.name.clone();
        let format = self.weight.format;
        match bad {
            BadValue::Weight(i, value) => Error::Weight {
                path,
                tensor,
                index: at(i),
                value: value as f32,
            },
            BadValue::Sum(i, value) => {
                let fault = MergeFault::TooLarge {
                    tensor,
                    index: at(i),
                    value,
                    format,
                };
                Error::Merge {
                    path,
                    fault: Box::new(fault),
                }
            }
        }
    }
}
