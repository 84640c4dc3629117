//! The times of the kernels of a prompt's first chunk, measured one after the other.

use warpwright_driver::graph::Recorder;
use warpwright_kernels::shared::state;

use crate::Decoder;
use crate::Error;
use crate::chunked::list::{TimedNode, timed};
use crate::chunked::step::WantedRows;

impl Decoder {
    /// Runs the first chunk of a prompt of `tokens` tokens kernel by kernel, and returns the time
    /// of each kernel.
    ///
    /// # Errors
    /// Returns [`Error::NoChunk`] if the prompt is not prefilled in chunks, or a driver error.
    pub fn profile_chunk(&mut self, tokens: u32) -> Result<Vec<TimedNode>, Error> {
        self.reset();

        // A chunk begins at the state's position. With a prompt of length 0 the position stays 0
        // when the chunk is repeated.
        self.stream
            .write(&self.machine.buffers.state, &[0; state::LEN])?;
        let mut recorder = Recorder::new(self.stream.context())?;
        let count = self
            .machine
            .chunk(&mut recorder, tokens, WantedRows::Last)?;
        if count == 0 {
            return Err(Error::NoChunk {
                tokens,
                path: self.path().clone(),
            });
        }

        let graph = recorder.finish();

        // The first run warms up the caches and loads the kernels.
        graph.profile(&self.stream)?;
        Ok(timed(
            self.machine.list_chunk(count),
            &graph.profile(&self.stream)?,
        ))
    }
}
