//! The launches of decode steps with the kernels of the pipeline: see `lone`.

use std::cell::Cell;

use warpwright_driver::graph::{Graph, Recorder};
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;
use warpwright_kernels::shared::state;

use super::device::{BatchDevice, GraphKind};
use crate::Error;
use crate::pipeline::pass::{HeadBuffers, PassCache, PipelinePass};
use crate::pipeline::workspace::BatchVectors;

impl BatchDevice {
    /// Records decode steps of this many rows.
    pub(super) fn record_lone(&self, rows: u32, what: GraphKind) -> Result<Graph, Error> {
        let mut recorder = Recorder::pipeline(self.stream.context())?;
        let state = self.lone_state(rows);
        match what {
            GraphKind::Steps(steps) => {
                for _ in 0..steps {
                    // Attention reads cache rows of earlier steps before it waits for its
                    // predecessor, so those steps must have completed.
                    recorder.full_edge();
                    self.lone_logits(&mut recorder, rows)?;
                    self.head
                        .choose(&mut recorder, &self.config, &self.options, &state, rows)?;
                }
            }
            GraphKind::Logits => self.lone_logits(&mut recorder, rows)?,
            GraphKind::Drafts => unreachable!("drafts are verified by the kernels of a batch"),
        }

        Ok(recorder.finish())
    }

    /// Returns the states of the rows.
    fn lone_state(&self, rows: u32) -> View<u32> {
        let states = &self.chunked.workspace.state;
        states.view_range(0..rows as usize * state::LEN)
    }

    /// Queues the logits of a step.
    pub(super) fn lone_logits(&self, queue: &mut impl Queue, rows: u32) -> Result<(), Error> {
        let lone = &self.lone;
        let step = lone.step(rows);

        // The rows of a pass stay in the workspace of the other kernels, where a failed step is
        // examined.
        let len = rows as usize * self.config.hidden as usize;
        let x = self.chunked.workspace.x.view_range(0..len);
        let pass = PipelinePass {
            pipeline: &step.pipeline,
            weights: &self.weights,
            workspace: &step.workspace,
            adapter: None,
            cache: PassCache {
                k: &self.k_cache,
                v: &self.v_cache,
                table: Some(&lone.table),
                ctx: self.options.ctx,
                freq: &self.freq,
            },
            vectors: BatchVectors {
                state: self.lone_state(rows),
                x: x.clone(),
                q: step.q.clone(),
                logits: self.head.first_logits(rows),
            },
            sequence: Cell::new(0),
        };
        pass.layers(queue)?;
        let head = HeadBuffers {
            prompt: &lone.prompt,
            stop: self.head.stop(),
            stops: 0,
            out: &lone.out,
            state: lone.idle.view_range(0..rows as usize * state::LEN),
            ctx: 1,
        };
        Ok(pass.lm_head(queue, &self.weights.head, &x, head)?)
    }
}
