//! The kernels of a decode step, one after the other.

use super::engine::{Batch, row_state};
use super::sequences::SequenceId;
use crate::Error;
use crate::chunked::list::{TimedNode, timed};

impl Batch {
    /// The kernels of a decode step of these sequences, given the token that each goes on with, one after the other, each
    /// with its time: those of the fastest of `rounds` steps, which are all the same one. The kernels are those of the
    /// graph of [`decode`](Batch::decode), where some overlap; here none does. The sequences keep the tokens that they
    /// had.
    ///
    /// # Errors
    /// As [`decode`](Batch::decode), but for the tokens that are chosen, which nobody reads.
    pub fn profile(
        &mut self,
        work: &[(SequenceId, u32)],
        rounds: u32,
    ) -> Result<Vec<TimedNode>, Error> {
        self.check_work(
            work.iter()
                .map(|(id, token)| (*id, std::slice::from_ref(token))),
        )?;
        let counts: Vec<_> = work.iter().map(|(id, _)| (*id, 1)).collect();
        self.reserve(&counts)?;
        self.latest.clear();
        let times = self.time_nodes(work, rounds);
        work.iter()
            .for_each(|(id, _)| self.sequences.release_rest(*id));
        times
    }

    fn time_nodes(
        &mut self,
        work: &[(SequenceId, u32)],
        rounds: u32,
    ) -> Result<Vec<TimedNode>, Error> {
        let firsts = work
            .iter()
            .map(|(id, _)| Ok(self.sequences.get(*id)?.tokens.len() as u32));
        let firsts = firsts.collect::<Result<Vec<_>, Error>>()?;
        let states = || {
            work.iter()
                .zip(&firsts)
                .map(|((id, token), &at)| row_state(*id, *token, at, at + 1))
        };
        let bucket = self.device.write_rows(states().collect())?;
        let graph = self.device.graph(bucket)?;
        // To warm up.
        let mut fastest = graph.profile(&self.device.stream)?;
        for round in 0..rounds {
            self.device.write_rows(states().collect())?;
            let profile = graph.profile(&self.device.stream)?;
            if round == 0 || profile.time() < fastest.time() {
                fastest = profile;
            }
        }
        let attended: Vec<u32> = firsts.iter().map(|first| first + 1).collect();
        Ok(timed(self.device.list(bucket, &attended), &fastest))
    }
}
