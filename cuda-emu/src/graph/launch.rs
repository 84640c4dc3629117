//! One launch of an executable graph: its steps one after the other, in some order that the edges permit.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use ptx_emu::Order;
use warpwright_driver_sys::{CUgraphConditionalNodeType, CUresult};

use crate::crew::run_in_pool;
use crate::device::Device;
use crate::error::{Error, Result, refuse};
use crate::graph::compare;
use crate::graph::draft::Part;
use crate::graph::step::ExecStep;
use crate::turns::next_random;
use crate::work::mark::{Mark, Reach};
use crate::work::order::{Clock, Moment};
use crate::work::{Branch, Work, WorkSite};

/// Rounds of one loop after which a launch ends with LAUNCH_TIMEOUT.
const MOST_ROUNDS: u32 = 1 << 20;

/// One launch of an executable graph.
pub(crate) struct GraphLaunch {
    parts: Arc<Vec<Part>>,
    steps: Arc<Vec<ExecStep>>,
    /// The conditions that a launch sets first.
    defaults: Vec<(Arc<AtomicU32>, u32)>,
    /// The records that the graph waits for, by step, as they were when it was launched.
    waits: HashMap<usize, Arc<Mark>>,
    /// The events that the graph records, by step, reached at the latest when the run is dropped.
    records: HashMap<usize, Reach>,
    seed: u64,
    /// Whether some of its steps may run at the same time.
    siblings: bool,
}

impl GraphLaunch {
    /// Launch number `number` of the steps.
    pub(crate) fn new(
        device: &Device,
        parts: &Arc<Vec<Part>>,
        steps: &Arc<Vec<ExecStep>>,
        defaults: Vec<(Arc<AtomicU32>, u32)>,
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
            parts: Arc::clone(parts),
            steps: Arc::clone(steps),
            defaults,
            waits: numbered().filter_map(wait).collect(),
            records: numbered().filter_map(record).collect(),
            seed: device.config.seed.wrapping_add(number),
            siblings: parts.len() > 1 || !parts.iter().all(|part| part.topology.is_chain()),
        }
    }

    /// Whether it waits for something that happens elsewhere.
    pub(crate) fn waits(&self) -> bool {
        let waits =
            |step: &ExecStep| matches!(step.work, Work::Host(_) | Work::Wait(_) | Work::Words(_));
        self.steps.iter().any(waits)
    }

    /// Comes after the events that it waits for.
    pub(crate) fn follow(&self, clock: &mut Clock) {
        self.waits.values().for_each(|mark| mark.follow(clock));
        let waits = |step: &ExecStep| matches!(&step.work, Work::Words(words) if words.waits());
        if self.steps.iter().any(waits) {
            clock.set_blind();
        }
    }

    /// Its events are reached when it ends.
    pub(crate) fn happens(&self, moment: &Arc<Moment>) {
        self.records
            .values()
            .for_each(|Reach(mark)| mark.happens(moment));
    }

    /// Runs the launch, where nothing in it waits, on a thread of the pool that runs the blocks of kernels: handing
    /// each kernel over to the pool costs ten times as much as a small kernel.
    pub(crate) fn perform(mut self, device: &Device, place: Place) -> Result {
        self.defaults
            .iter()
            .for_each(|(condition, value)| condition.store(*value, Relaxed));
        let waits = |step: &ExecStep| {
            let alone = matches!(&step.work, Work::Kernel(kernel) if kernel.cooperative);
            alone || matches!(step.work, Work::Host(_) | Work::Wait(_) | Work::Words(_))
        };
        if self.steps.iter().any(waits) {
            self.run(device, place, 0)
        } else {
            run_in_pool(device.config.threads, || self.run(device, place, 0))
        }
    }

    /// Runs the steps of a part, then compares what was traced.
    fn run(&mut self, device: &Device, place: Place, part: usize) -> Result {
        let parts = Arc::clone(&self.parts);
        let Part { first, topology } = &parts[part];
        let mut fresh = Vec::new();
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

    /// Runs one step. Returns whether it was traced for the first time.
    fn step(&mut self, device: &Device, place: Place, number: usize) -> Result<bool> {
        if let Some(mark) = self.waits.get(&number) {
            mark.wait();
        }
        let steps = Arc::clone(&self.steps);
        let fresh = match &steps[number].work {
            Work::Branch(branch) => self.branch(device, place, branch).map(|()| false)?,
            _ => run_step(device, place, &steps[number], number, self.siblings)?,
        };
        self.records.remove(&number);
        Ok(fresh)
    }

    /// Runs the bodies of a conditional node that its condition chooses.
    fn branch(&mut self, device: &Device, place: Place, branch: &Branch) -> Result {
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

/// The stream in which a launch runs, if all work is traced, and when it does.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) stream: Option<&'a str>,
    /// The number of its queue.
    pub(crate) queue: u32,
    pub(crate) moment: &'a Arc<Moment>,
}

/// Runs a step and compares it with other streams. Returns whether it was traced for the first time.
fn run_step(
    device: &Device,
    place: Place,
    step: &ExecStep,
    number: usize,
    siblings: bool,
) -> Result<bool> {
    let at = place
        .stream
        .map(|stream| format!("{stream}, node {number} of a graph"));
    if matches!(step.work, Work::Host(_)) {
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
