//! One launch of an executable graph: its steps run one by one, in an order that the edges permit.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use ptx_emu::Order;
use warpwright_driver_sys::{CUgraphConditionalNodeType, CUresult};

use crate::crew::run_in_pool;
use crate::device::EmulatedDevice;
use crate::error::{Error, Result, refuse};
use crate::graph::compare;
use crate::graph::draft::GraphPart;
use crate::graph::step::ExecStep;
use crate::turns::next_random;
use crate::work::mark::{EventMark, PendingMark};
use crate::work::order::{Clock, Moment};
use crate::work::{Branch, StreamWork, WorkSite};

/// The number of rounds of one loop after which a launch ends with LAUNCH_TIMEOUT.
const MOST_ROUNDS: u32 = 1 << 20;

/// One launch of an executable graph.
pub(crate) struct GraphLaunch {
    parts: Arc<Vec<GraphPart>>,
    steps: Arc<Vec<ExecStep>>,
    /// The conditions that a launch sets first.
    defaults: Vec<(Arc<AtomicU32>, u32)>,
    /// The event records that the graph waits for, by step, as they were at the time of the launch.
    waits: HashMap<usize, Arc<EventMark>>,
    /// The events that the graph records, by step. They are reached at the latest when the launch
    /// is dropped.
    records: HashMap<usize, PendingMark>,
    seed: u64,
    /// Whether some of its steps may run at the same time.
    siblings: bool,
}

impl GraphLaunch {
    /// Returns launch number `number` of the steps.
    pub(crate) fn new(
        device: &EmulatedDevice,
        parts: &Arc<Vec<GraphPart>>,
        steps: &Arc<Vec<ExecStep>>,
        defaults: Vec<(Arc<AtomicU32>, u32)>,
        number: u64,
    ) -> Self {
        // The records to wait for are looked up now, because a later record of the event must not
        // affect this launch.
        let numbered = || steps.iter().enumerate();
        let wait = |(i, step): (usize, &ExecStep)| match &step.work {
            StreamWork::Wait(cell) => Some((i, cell.last()?)),
            _ => None,
        };
        let record = |(i, step): (usize, &ExecStep)| match &step.work {
            StreamWork::Record(cell) => Some((i, cell.record())),
            _ => None,
        };
        Self {
            parts: Arc::clone(parts),
            steps: Arc::clone(steps),
            defaults,
            waits: numbered().filter_map(wait).collect(),
            records: numbered().filter_map(record).collect(),
            seed: device.config.seed.wrapping_add(number),
            siblings: parts.len() > 1 || !parts.iter().all(|part| part.topology.is_chain()),
        }
    }

    /// Returns true if it waits for something outside of the graph.
    pub(crate) fn waits(&self) -> bool {
        let waits = |step: &ExecStep| {
            matches!(
                step.work,
                StreamWork::Host(_) | StreamWork::Wait(_) | StreamWork::Words(_)
            )
        };
        self.steps.iter().any(waits)
    }

    /// Orders `clock` after the events that it waits for.
    pub(crate) fn follow(&self, clock: &mut Clock) {
        for mark in self.waits.values() {
            mark.follow(clock);
        }
        let waits =
            |step: &ExecStep| matches!(&step.work, StreamWork::Words(words) if words.waits());
        if self.steps.iter().any(waits) {
            clock.set_blind();
        }
    }

    /// Records that its events are reached at `moment`, when it ends.
    pub(crate) fn happens(&self, moment: &Arc<Moment>) {
        for PendingMark(mark) in self.records.values() {
            mark.happens(moment);
        }
    }

    /// Performs the launch.
    ///
    /// If nothing in it waits, it runs on a thread of the pool that runs the blocks of kernels,
    /// because handing each kernel over to the pool costs ten times as much as a small kernel.
    pub(crate) fn perform(mut self, device: &EmulatedDevice, place: LaunchPlace) -> Result {
        for (condition, value) in &self.defaults {
            condition.store(*value, Relaxed);
        }
        let waits = |step: &ExecStep| {
            let alone = matches!(&step.work, StreamWork::Kernel(kernel) if kernel.cooperative);
            alone
                || matches!(
                    step.work,
                    StreamWork::Host(_) | StreamWork::Wait(_) | StreamWork::Words(_)
                )
        };
        if self.steps.iter().any(waits) {
            self.run(device, place, 0)
        } else {
            run_in_pool(device.config.threads, || self.run(device, place, 0))
        }
    }

    /// Runs the steps of a part, then compares the steps that were traced.
    fn run(&mut self, device: &EmulatedDevice, place: LaunchPlace, part: usize) -> Result {
        let parts = Arc::clone(&self.parts);
        let GraphPart { first, topology } = &parts[part];
        let mut fresh = Vec::new();

        // Every run of a part has another seed, so the rounds of a loop run in different orders.
        let mut random = self.seed;
        self.seed = self.seed.wrapping_add(1);
        let order = device.config.order;
        let pick = |ready: &[usize]| match order {
            Order::InOrder => position_of(ready, ready.iter().min()),
            Order::Reversed => position_of(ready, ready.iter().max()),
            Order::Shuffled => (next_random(&mut random) % ready.len() as u64) as usize,
        };
        let visit = |i: usize| {
            if self.step(device, place, first + i)? {
                fresh.push(i);
            }
            Ok::<(), Error>(())
        };
        topology.walk(pick, visit)?;
        let steps = &self.steps[*first..first + topology.waits.len()];
        if fresh.is_empty() {
            Ok(())
        } else {
            compare::compare(topology, steps, &fresh)
        }
    }

    /// Runs one step. Returns true if it was traced for the first time.
    fn step(&mut self, device: &EmulatedDevice, place: LaunchPlace, number: usize) -> Result<bool> {
        if let Some(mark) = self.waits.get(&number) {
            mark.wait();
        }

        let steps = Arc::clone(&self.steps);
        let fresh = match &steps[number].work {
            StreamWork::Branch(branch) => self.branch(device, place, branch).map(|()| false)?,
            _ => run_step(device, place, &steps[number], number, self.siblings)?,
        };
        self.records.remove(&number);
        Ok(fresh)
    }

    /// Runs the bodies of a conditional node that its condition selects.
    fn branch(&mut self, device: &EmulatedDevice, place: LaunchPlace, branch: &Branch) -> Result {
        use CUgraphConditionalNodeType as T;
        let value = || branch.condition.load(Relaxed);
        if branch.kind == T::WHILE {
            for _ in 0..MOST_ROUNDS {
                if value() == 0 {
                    return Ok(());
                }
                self.run(device, place, branch.bodies[0])?;
            }
            let text = format!(
                "a WHILE node of a graph has run {MOST_ROUNDS} times and its condition is not 0"
            );
            return refuse(CUresult::LAUNCH_TIMEOUT, text);
        }

        // An IF node has the body for true first. A SWITCH node selects by number, and a number
        // without a body runs nothing.
        let chosen = if branch.kind == T::IF {
            usize::from(value() == 0)
        } else {
            value() as usize
        };
        branch
            .bodies
            .get(chosen)
            .map_or(Ok(()), |&body| self.run(device, place, body))
    }
}

/// The stream in which a launch runs, and its moment.
#[derive(Clone, Copy)]
pub(crate) struct LaunchPlace<'a> {
    /// The name of the stream, if all work is traced.
    pub(crate) stream: Option<&'a str>,
    /// The number of its queue.
    pub(crate) queue: u32,
    pub(crate) moment: &'a Arc<Moment>,
}

/// Runs a step and compares it with other streams. Returns true if it was traced for the first
/// time.
fn run_step(
    device: &EmulatedDevice,
    place: LaunchPlace,
    step: &ExecStep,
    number: usize,
    siblings: bool,
) -> Result<bool> {
    let at = place
        .stream
        .map(|stream| format!("{stream}, node {number} of a graph"));
    if matches!(step.work, StreamWork::Host(_)) {
        device.order.learn(place.moment);
    }

    let site = WorkSite {
        traced: at.as_deref(),
        queue: place.queue,
        siblings,
    };
    let Some(touched) = step.run(device, number, site)? else {
        return Ok(false);
    };

    if let Some(at) = &at {
        compare::compare_streams(
            device,
            place.moment,
            (step.work.name(), at),
            Arc::clone(&touched),
        );
    }

    Ok(step.touched.set(touched).is_ok())
}

fn position_of(ready: &[usize], wanted: Option<&usize>) -> usize {
    ready
        .iter()
        .position(|step| Some(step) == wanted)
        .unwrap_or(0)
}
