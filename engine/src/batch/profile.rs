//! The times of the kernels of a decode step, measured one after the other.

#[cfg(test)]
use warpwright_driver::graph::Graph;
use warpwright_kernels::shared::state::StepState;

#[cfg(test)]
use super::device::GraphKind;
use super::engine::Batch;
use super::sequence_id::SequenceId;
use crate::Error;
use crate::chunked::list::{TimedNode, timed};

impl Batch {
    /// Runs a decode step of these sequences kernel by kernel and returns the time of each kernel.
    ///
    /// Each sequence is given with its next token. The step is repeated `rounds` times, and the
    /// times of the fastest one are returned. The graph of [`decode`](Batch::decode) has the same
    /// kernels, unless it decodes few sequences with other ones: see
    /// [`BatchOptions::lone_rows`](field@crate::BatchOptions::lone_rows). Some of them overlap there, but
    /// none do here. The sequences are unchanged afterwards.
    ///
    /// # Errors
    /// Returns the errors of [`decode`](Batch::decode), except those about the chosen tokens, which
    /// are not read. Returns [`Error::ProfileAdapter`] if a sequence has an adapter, because a profile
    /// has no names for the kernels that apply adapters.
    pub fn profile(
        &mut self,
        work: &[(SequenceId, u32)],
        rounds: u32,
    ) -> Result<Vec<TimedNode>, Error> {
        self.check_work(
            work.iter()
                .map(|(id, token)| (*id, std::slice::from_ref(token))),
        )?;
        if work
            .iter()
            .any(|(id, _)| self.adapters.of_sequence(*id).is_some())
        {
            return Err(Error::ProfileAdapter);
        }
        let counts: Vec<_> = work.iter().map(|(id, _)| (*id, 1)).collect();
        self.reserve(&counts)?;
        self.latest.clear();
        let times = self.time_nodes(work, rounds);
        for (id, _) in work {
            self.sequences.release_rest(*id);
        }

        times
    }

    /// Times the kernels of a step whose pages are reserved.
    fn time_nodes(
        &mut self,
        work: &[(SequenceId, u32)],
        rounds: u32,
    ) -> Result<Vec<TimedNode>, Error> {
        let firsts = work
            .iter()
            .map(|(id, _)| Ok(self.sequences.get(*id)?.tokens.len() as u32));
        let firsts = firsts.collect::<Result<Vec<_>, Error>>()?;
        let states: Vec<StepState> = work
            .iter()
            .zip(&firsts)
            .map(|((id, token), &at)| self.row_state(*id, *token, at, at + 1))
            .collect();
        let bucket = self.device.write_bucket(states.clone())?;
        let graph = self.device.graph(bucket)?;

        // The first run warms up the caches and loads the kernels.
        let mut fastest = graph.profile(&self.device.stream)?;
        for round in 0..rounds {
            self.device.write_bucket(states.clone())?;
            let profile = graph.profile(&self.device.stream)?;
            if round == 0 || profile.time() < fastest.time() {
                fastest = profile;
            }
        }

        let attended: Vec<u32> = firsts.iter().map(|first| first + 1).collect();
        Ok(timed(self.device.list(bucket, &attended), &fastest))
    }

    /// Returns the graph of a decode step of this many sequences with the kernels of the pipeline.
    #[cfg(test)]
    pub(crate) fn lone_graph(&mut self, rows: u32) -> Result<Graph, Error> {
        self.device.record_lone(rows, GraphKind::Steps(1))
    }

    /// Returns the graph of a decode step of `bucket` rows.
    #[cfg(test)]
    pub(crate) fn decode_graph(&mut self, bucket: u32) -> Result<Graph, Error> {
        self.device.graph(bucket)
    }
}
