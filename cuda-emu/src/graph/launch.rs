//! One launch of an executable graph: its steps one after the other, in some order that the edges permit.

use std::collections::HashMap;
use std::sync::Arc;

use ptx_emu::Order;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::graph::compare;
use crate::graph::step::ExecStep;
use crate::graph::topology::Topology;
use crate::work::Work;
use crate::work::mark::{Mark, Reach};

/// One launch of an executable graph.
pub(crate) struct GraphLaunch {
    topology: Arc<Topology>,
    steps: Arc<Vec<ExecStep>>,
    /// The records that the graph waits for, by step, as they were when it was launched.
    waits: HashMap<usize, Arc<Mark>>,
    /// The events that the graph records, by step, reached at the latest when the run is dropped.
    records: HashMap<usize, Reach>,
    seed: u64,
}

impl GraphLaunch {
    /// Launch number `number` of the steps.
    pub(crate) fn new(
        device: &Device,
        topology: &Arc<Topology>,
        steps: &Arc<Vec<ExecStep>>,
        number: u64,
    ) -> Self {
        let numbered = || steps.iter().enumerate();
        let wait = |(i, step): (usize, &ExecStep)| match &step.work {
            Work::Wait(cell) => Some((i, cell.last()?)),
            _ => None,
        };
        let record = |(i, step): (usize, &ExecStep)| match &step.work {
            Work::Record(cell) => Some((i, cell.record())),
            _ => None,
        };
        Self {
            topology: Arc::clone(topology),
            steps: Arc::clone(steps),
            waits: numbered().filter_map(wait).collect(),
            records: numbered().filter_map(record).collect(),
            seed: device.config.seed.wrapping_add(number),
        }
    }

    /// Runs the launch, where nothing in it waits, on a thread of the pool that runs the blocks of kernels: handing
    /// each kernel over to the pool costs ten times as much as a small kernel.
    pub(crate) fn perform(self, device: &Device) -> Result {
        let waits = |step: &ExecStep| matches!(step.work, Work::Host(_) | Work::Wait(_));
        if self.steps.iter().any(waits) { self.run(device) } else { rayon::scope(|_| self.run(device)) }
    }

    /// Runs the steps, then compares what was traced.
    fn run(mut self, device: &Device) -> Result {
        let mut fresh = Vec::new();
        let mut random = self.seed;
        let order = device.config.order;
        let pick = |ready: &[usize]| match order {
            Order::InOrder => position_of(ready, ready.iter().min()),
            Order::Reversed => position_of(ready, ready.iter().max()),
            Order::Shuffled => (next_random(&mut random) % ready.len() as u64) as usize,
        };
        let (topology, steps, waits, records) = (&self.topology, &self.steps, &self.waits, &mut self.records);
        let visit = |i: usize| {
            if let Some(mark) = waits.get(&i) {
                mark.wait();
            }
            if steps[i].run(device, i)? {
                fresh.push(i);
            }
            records.remove(&i);
            Ok::<(), Error>(())
        };
        topology.walk(pick, visit)?;
        if fresh.is_empty() { Ok(()) } else { compare::compare(topology, steps, &fresh) }
    }
}

fn position_of(ready: &[usize], wanted: Option<&usize>) -> usize {
    ready.iter().position(|step| Some(step) == wanted).unwrap_or(0)
}

/// SplitMix64: every seed gives another order.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
