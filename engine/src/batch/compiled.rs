//! Compilation of all kernels of a batch before its first step.

use std::collections::BTreeSet;

use super::device::{GraphKind, StepRows};
use super::engine::Batch;
use crate::Error;

impl Batch {
    /// Compiles the kernels of steps of every size, and builds the graphs of decode steps.
    ///
    /// A batch compiles the kernels of a size at the first step of that size, which then takes up
    /// to some seconds. Call this method where no step may take that long, for example in a server.
    /// The driver keeps compiled kernels in a cache on disk, so only the first call on a machine is
    /// slow.
    ///
    /// `progress` is called with the number of sizes that are compiled, and of all sizes.
    ///
    /// # Errors
    /// Returns a driver error if a kernel cannot be compiled.
    pub fn compile(&mut self, mut progress: impl FnMut(usize, usize)) -> Result<(), Error> {
        let options = self.options;
        let rows: BTreeSet<StepRows> = (1..=options.sequences)
            .flat_map(|rows| self.device.all_step_rows(rows))
            .collect();
        let buckets: BTreeSet<u32> = (1..=options.tokens)
            .map(|tokens| options.bucket_of(tokens))
            .collect();
        let all = rows.len() + buckets.len();
        let mut done = 0;
        for rows in rows {
            for what in [
                GraphKind::Steps(1),
                GraphKind::Steps(options.steps_per_launch),
                GraphKind::Logits,
            ] {
                self.device.build_graph(rows, what)?;
            }
            done += 1;
            progress(done, all);
        }

        for bucket in buckets {
            self.device.compile_pass(bucket)?;
            done += 1;
            progress(done, all);
        }
        Ok(())
    }

    /// Builds the graphs of decode steps with up to `rows` tokens and drafts: see
    /// [`BatchWanted::Verified`](crate::BatchWanted::Verified). If adapters are loaded, the graphs of
    /// steps with adapters are among them.
    ///
    /// # Errors
    /// Returns a driver error if a kernel cannot be compiled.
    pub fn compile_drafts(&mut self, rows: u32) -> Result<(), Error> {
        let options = self.options;
        let buckets: BTreeSet<u32> = (2..=rows.min(self.verified_per_step()))
            .map(|rows| options.bucket_of(rows))
            .collect();
        for bucket in buckets {
            for rows in self.device.all_batch_rows(bucket) {
                self.device.build_graph(rows, GraphKind::Drafts)?;
            }
        }
        Ok(())
    }
}
