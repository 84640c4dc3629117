//! The measured time of each kernel of a step.

use std::time::Duration;

use warpwright_driver::graph::Recorder;

use super::passes::run::StepPhase;
use super::trainer::Trainer;
use crate::Error;
use crate::reference::MicroBatch;

/// The measured time of a kernel of a step, which ran by itself.
#[derive(Clone, PartialEq, Debug)]
pub struct TimedKernel {
    /// The phase to which the kernel belongs.
    pub part: StepPhase,
    /// The name of the kernel, or a word for operations that fill or copy memory.
    pub kernel: String,
    /// The time between an event before the kernel and one after it, which includes the launch.
    pub time: Duration,
    /// The bytes of the tensors that the kernel reads and writes. A tensor that is both read and
    /// written counts twice.
    pub bytes: u64,
}

impl Trainer {
    /// Takes a step over this micro-batch kernel by kernel, and returns the time of each kernel. It
    /// is a complete step, but slower than others because nothing overlaps.
    ///
    /// # Errors
    /// Returns the errors of [`step`](Trainer::step).
    pub fn profile(&mut self, micro: &MicroBatch) -> Result<Vec<TimedKernel>, Error> {
        let mut kernels = vec![];
        self.last_micro_batch(micro, |step, stream| {
            for part in StepPhase::ALL {
                let mut recorder = Recorder::new(stream.context())?;
                step.run_phase(&mut recorder, part)?;
                let profile = recorder.finish().profile(stream)?;
                kernels.extend(profile.rows.into_iter().map(|row| {
                    let kernel = row.name;
                    let time = row.time;
                    let bytes = row.bytes;
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
