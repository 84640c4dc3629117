//! The kernels of a chunk of a prompt, one after the other.

use warpwright_driver::Recorder;
use warpwright_kernels::state;

use crate::Decoder;
use crate::Error;
use crate::chunked::list::{TimedNode, timed};
use crate::chunked::step::Wanted;

impl Decoder {
    /// The kernels of the first chunk of a prompt of `tokens` tokens, one after the other, each with its time.
    ///
    /// # Errors
    /// A prompt that is not prefilled in chunks, and driver errors.
    pub fn profile_chunk(&mut self, tokens: u32) -> Result<Vec<TimedNode>, Error> {
        self.reset();
        // A chunk begins at the state's position, which stays 0 with a prompt of no tokens.
        self.stream
            .write(&self.machine.buffers.state, &[0; state::LEN])?;
        let mut recorder = Recorder::new(self.stream.context())?;
        let taken = self.machine.chunk(&mut recorder, tokens, Wanted::Last)?;
        if taken == 0 {
            return Err(Error::NoChunk {
                tokens,
                path: self.path().clone(),
            });
        }
        let graph = recorder.finish();
        // Once to warm up.
        graph.profile(&self.stream)?;
        Ok(timed(
            self.machine.list_chunk(taken),
            &graph.profile(&self.stream)?,
        ))
    }
}
