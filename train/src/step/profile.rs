//! Where the time of a step goes.

use std::time::Duration;

use warpwright_driver::Recorder;

use super::precision::Part;
use super::trainer::Trainer;
use crate::Error;
use crate::reference::MicroBatch;

/// A kernel of a step, run by itself.
#[derive(Clone, PartialEq, Debug)]
pub struct TimedKernel {
    /// The part that it is of.
    pub part: Part,
    /// Its name; what fills memory or copies it is a word.
    pub kernel: String,
    /// The time between an event before it and one after it, launch included.
    pub time: Duration,
    /// Bytes of the tensors that it was given: read ones and written ones, those that are both twice.
    pub bytes: u64,
}

impl Trainer {
    /// The kernels of a step over this micro-batch, one after the other, each with its time. It is a step as any other,
    /// but slower: nothing overlaps.
    ///
    /// # Errors
    ///
    /// As [`step`](Trainer::step).
    pub fn profile(&mut self, micro: &MicroBatch) -> Result<Vec<TimedKernel>, Error> {
        let mut kernels = vec![];
        self.last_micro_batch(micro, |pass, stream| {
            for part in Part::ALL {
                let mut recorder = Recorder::new(stream.context())?;
                pass.part(&mut recorder, part)?;
                let profile = recorder.finish().profile(stream)?;
                kernels.extend(profile.rows.into_iter().map(|row| {
                    let (kernel, time, bytes) = (row.name, row.time, row.bytes);
                    TimedKernel {
                        part,
                        kernel,
                        time,
                        bytes,
                    }
                }));
            }
            Ok(())
        })?;
        Ok(kernels)
    }
}
