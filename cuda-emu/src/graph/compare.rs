//! Race detection in graphs: finds missing edges in the traces of a launch.
//!
//! Two steps that no path of edges orders may run at the same time on a GPU, so their accesses are
//! compared. On a GPU the two kernels of a programmatic edge may overlap, but here the second runs
//! after the first has ended. The accesses of a kernel before its `griddepcontrol.wait` are
//! therefore compared with every kernel that may still be running at that point. A kernel that ends
//! without waiting is reported.

use std::sync::Arc;

use ptx_emu::{Accesses, AllocationInfo, Conflict, SourcePlace};
use warpwright_driver_sys::CUresult;

use crate::device::EmulatedDevice;
use crate::error::{Error, Result};
use crate::graph::step::ExecStep;
use crate::graph::topology::{Topology, has};
use crate::report::{Details, deeds};
use crate::work::order::{Moment, Unordered};

/// Compares the steps that were traced in this launch with all steps that are not ordered with
/// them.
pub(crate) fn compare(topology: &Topology, steps: &[ExecStep], fresh: &[usize]) -> Result {
    Comparison { topology, steps }.orders(fresh)
}

/// Compares a piece of work with unordered work of other streams and of calls, and reports the
/// races.
///
/// On a GPU the two may run at the same time or in the opposite order.
pub(crate) fn compare_streams(
    device: &EmulatedDevice,
    moment: &Arc<Moment>,
    (name, place): (&str, &str),
    touched: Arc<Accesses>,
) {
    for Unordered {
        first,
        second,
        conflict,
    } in device
        .order
        .compare(moment, format!("{name} ({place})"), touched)
    {
        let text = format!(
            "StreamRace: nothing orders {first} and {second}\n{}\n  let one stream wait for an event that the other \
             records (cuStreamWaitEvent), or wait for the first before the call that enqueues the second",
            story(&first, &second, &conflict, "")
        );
        device.finding(text, &Details::of_conflict(&conflict));
    }
}

struct Comparison<'a> {
    topology: &'a Topology,
    steps: &'a [ExecStep],
}

impl Comparison<'_> {
    fn orders(&self, fresh: &[usize]) -> Result {
        let touched = |i: usize| self.steps[i].accesses();
        for (a, b) in (0..self.steps.len()).flat_map(|b| (0..b).map(move |a| (a, b))) {
            let new = fresh.contains(&a) || fresh.contains(&b);
            // Pairs of steps that were traced before have been compared before.
            if !new || self.topology.ordered(a, b) {
                continue;
            }
            if let Some(first) = touched(a)
                && let Some(second) = touched(b)
                && let Some(conflict) = first.conflict(second)
            {
                return Err(self.missing_edge(a, b, &conflict));
            }
        }
        if self.topology.programmatic.is_empty() {
            Ok(())
        } else {
            self.overlaps()
        }
    }

    /// Finds kernels after a programmatic edge that do not wait, or that access shared bytes before
    /// they wait.
    fn overlaps(&self) -> Result {
        for &(a, b) in &self.topology.programmatic {
            if self.steps[b]
                .accesses()
                .is_some_and(|accesses| !accesses.waited())
            {
                return Err(self.missing_wait(a, b));
            }
        }

        // A disabled step has no accesses and no known triggers, so it does not count as late.
        let late = |step: usize| {
            self.steps[step]
                .accesses()
                .is_some_and(|a| a.triggers().iter().all(|t| t.waited))
        };
        let before = self.topology.before();
        let ended = self.topology.ended(late);
        for (a, b) in (0..self.steps.len()).flat_map(|b| (0..self.steps.len()).map(move |a| (a, b)))
        {
            if !has(&before[b], a) || has(&ended[b], a) {
                continue;
            }
            if let Some(first) = self.steps[a].accesses()
                && let Some(second) = self.steps[b].accesses()
                && let Some(conflict) = second.before_wait_conflict(first)
            {
                return Err(self.early_access(a, b, &conflict));
            }
        }

        Ok(())
    }

    fn missing_edge(&self, a: usize, b: usize, c: &Conflict) -> Error {
        let a = self.node(a);
        let b = self.node(b);
        failed(format!(
            "MissingEdge: no path of edges orders {a} and {b}\n{}\n  add an edge between them",
            story(&a, &b, c, "")
        ))
        .with(Details::of_conflict(c))
    }

    fn missing_wait(&self, a: usize, b: usize) -> Error {
        let a = self.node(a);
        let b = self.node(b);
        failed(format!(
            "MissingWait: {b} follows {a} by a programmatic edge and ends without griddepcontrol.wait in some block\n  \
             what comes after {b} cannot rely on {a}\n  \
             execute griddepcontrol.wait in every block, or make the edge a full one"
        ))
    }

    fn early_access(&self, a: usize, b: usize, c: &Conflict) -> Error {
        let a = self.node(a);
        let b = self.node(b);
        failed(format!(
            "EarlyAccess: {b} may start before {a} ends, because of a programmatic edge\n{}\n  \
             execute griddepcontrol.wait before, or make the edge a full one",
            story(&a, &b, c, ", before its griddepcontrol.wait")
        ))
        .with(Details::of_conflict(c))
    }

    fn node(&self, step: usize) -> String {
        format!("node {step} ({})", self.steps[step].work.name())
    }
}

fn failed(text: String) -> Error {
    Error::new(CUresult::LAUNCH_FAILED, text)
}

/// Describes the accesses of two pieces of work to the same bytes. `when` qualifies the second one.
fn story(a: &str, b: &str, c: &Conflict, when: &str) -> String {
    let (did, does) = deeds(c.kind);

    // A copy or a fill has no line.
    let at = |place: &SourcePlace| {
        if place.line == 0 {
            String::new()
        } else {
            format!(" at {place}")
        }
    };
    let AllocationInfo { label, base, bytes } = &c.allocation;
    let offset = c.address - base;
    let first = at(&c.first.1);
    let second = at(&c.second.1);
    format!(
        "  {a} {did} offset {offset} of `{label}` (0x{base:x}, {bytes} bytes){first}\n  {b} {does} it{second}{when}"
    )
}
