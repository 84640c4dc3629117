//! `W + s B A`, a few rows at a time.

use std::thread;

use warpwright_kernels::Format;

use crate::Error;
use crate::adapter::data::Factors;
use crate::merge::fault::Fault;
use crate::merge::wide::Wide;
use crate::model::outline::Weight;

/// What merging did, as sums of squares.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Change {
    /// Projections to which something was added.
    pub projections: usize,
    /// Of the numbers of `s B A`.
    pub added: f64,
    /// Of the differences between `W + s B A` and what was written.
    pub rounded: f64,
}

impl Change {
    /// What rounding took of what the adapter adds, as the ratio of their L2 norms; 0 if it adds nothing.
    #[must_use]
    pub fn lost(&self) -> f64 {
        if self.added > 0.0 {
            (self.rounded / self.added).sqrt()
        } else {
            0.0
        }
    }
}

impl std::ops::AddAssign for Change {
    fn add_assign(&mut self, other: Change) {
        self.projections += other.projections;
        self.added += other.added;
        self.rounded += other.rounded;
    }
}

/// A projection to which its adapter is to be added.
pub(crate) struct Sum<'a> {
    pub(crate) weight: &'a Weight,
    factors: &'a Factors,
    wide: Wide,
}

/// A number that cannot be written: the index of its weight in the row, and what it is or would be.
enum Bad {
    Weight(usize, f64),
    Sum(usize, f64),
}

impl<'a> Sum<'a> {
    /// The sum, if the weight's format holds it.
    pub(crate) fn new(weight: &'a Weight, factors: &'a Factors) -> Result<Sum<'a>, Fault> {
        if weight.nf4.is_some() {
            return Err(Fault::Nf4 {
                tensor: weight.name.clone(),
            });
        }
        match Wide::of(weight.format) {
            Some(wide) => Ok(Sum {
                weight,
                factors,
                wide,
            }),
            None => Err(Fault::Quantized {
                tensor: weight.name.clone(),
                format: weight.format,
            }),
        }
    }

    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.weight.row_len() as usize * self.wide.bytes()
    }

    /// Adds to whole rows, of which this is the first, in their bytes. The rows are shared out to the processor's cores;
    /// which has which changes nothing.
    pub(crate) fn add(
        &self,
        first: usize,
        rows: &mut [u8],
        path: &std::path::Path,
    ) -> Result<Change, Error> {
        let count = rows.len() / self.row_bytes();
        let each = count.div_ceil(thread::available_parallelism().map_or(1, usize::from));
        let shares = rows.chunks_mut(each * self.row_bytes()).enumerate();
        let changes: Vec<_> = thread::scope(|scope| {
            let add =
                |(share, rows)| scope.spawn(move || self.add_each(first + share * each, rows));
            let threads: Vec<_> = shares.map(add).collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("it does not panic"))
                .collect()
        });
        let mut sum = Change::default();
        for (row, change) in (first..).zip(changes) {
            sum += change.map_err(|bad| self.error(row, bad, path))?;
        }
        Ok(sum)
    }

    fn add_each(&self, first: usize, rows: &mut [u8]) -> Vec<Result<Change, Bad>> {
        let mut added = vec![0.0; self.weight.row_len() as usize];
        let rows = rows.chunks_exact_mut(self.row_bytes());
        rows.zip(first..)
            .map(|(row, index)| self.add_row(index, row, &mut added))
            .collect()
    }

    /// Adds to a row. `added` is room for what is added.
    fn add_row(&self, row: usize, bytes: &mut [u8], added: &mut [f64]) -> Result<Change, Bad> {
        self.product(row, added);
        let mut change = Change::default();
        for (i, (bytes, added)) in bytes
            .chunks_exact_mut(self.wide.bytes())
            .zip(added)
            .enumerate()
        {
            change += self.add_one(i, bytes, *added)?;
        }
        Ok(change)
    }

    fn add_one(&self, i: usize, bytes: &mut [u8], added: f64) -> Result<Change, Bad> {
        let weight = self.wide.read(bytes);
        if !weight.is_finite() {
            return Err(Bad::Weight(i, weight));
        }
        // A weight of -0 stays one.
        if added == 0.0 {
            return Ok(Change::default());
        }
        let sum = weight + added;
        let written = self.wide.write(sum, bytes);
        match written.is_finite() {
            true => Ok(Change {
                projections: 0,
                added: added * added,
                rounded: (written - sum).powi(2),
            }),
            false => Err(Bad::Sum(i, sum)),
        }
    }

    /// A row of `s B A`.
    fn product(&self, row: usize, product: &mut [f64]) {
        let Factors { rank, scale, a, b } = self.factors;
        let (rank, n) = (*rank as usize, product.len());
        product.fill(0.0);
        for (b, a) in b[row * rank..][..rank].iter().zip(a.chunks_exact(n)) {
            let by = f64::from(*b) * scale;
            product
                .iter_mut()
                .zip(a)
                .for_each(|(sum, a)| *sum += by * f64::from(*a));
        }
    }

    fn error(&self, row: usize, bad: Bad, path: &std::path::Path) -> Error {
        let at = |column: usize| row * self.weight.row_len() as usize + column;
        let (path, tensor, format): (_, _, Format) = (
            path.to_owned(),
            self.weight.name.clone(),
            self.weight.format,
        );
        match bad {
            Bad::Weight(i, value) => Error::Weight {
                path,
                tensor,
                index: at(i),
                value: value as f32,
            },
            Bad::Sum(i, value) => {
                let fault = Fault::TooLarge {
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
