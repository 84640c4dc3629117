//! Runs a launch: checks it, hands its blocks to host threads, and collects what was found.

use std::sync::{Mutex, PoisonError};

use crate::fault::{Class, Fault, OtherPlace};
use crate::launch::{Launch, LaunchSite, Schedule, Stats, Trace};
use crate::machine::device::device_memory::Memory;
use crate::machine::scheduler::block_rotation::Rotation;
use crate::machine::scheduler::wait_reasons::standstill_fault;
use crate::machine::state::grid::{GridState, refuse};
use crate::sanitize::race::global::launch_accesses::Accesses;
use crate::watch::{Faults, Watch};
use crate::watched::{Found, Watched};

/// Runs a launch to its end, or until faults stop it.
pub(crate) fn run(
    memory: &Memory,
    launch: &Launch<'_>,
    schedule: &Schedule,
    trace: Trace,
    place: &LaunchSite<'_>,
    watch: &Watch,
) -> Watched {
    let mut grid = match GridState::new(memory, launch, schedule, trace, place, watch) {
        Ok(grid) => grid,
        Err(refused) => {
            return Watched {
                found: vec![Found {
                    fault: *refused,
                    blocks: 0,
                    ended: true,
                }],
                ..Watched::default()
            };
        }
    };
    let mut stats = run_blocks(&grid);
    let unbegun = grid.left();
    let standstill = std::mem::take(&mut grid.standstill);
    if let Some((verdict, lasted, waiting)) = standstill.into_verdict() {
        let turn = waiting.first().map_or(0, |block| block.turn);
        let fault = standstill_fault(verdict, lasted, waiting, unbegun);
        if let Some(fault) = fault {
            grid.record(turn, fault, None);
        }
    }

    if grid.workspace != 0 {
        // It was allocated for this launch, and no kernel can free it.
        let _ = memory.free(grid.workspace);
    }

    grid.print(place);
    stats.conditions = grid
        .conditions
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    grid.table.live().iter().for_each(|a| a.advance());
    let mut found = grid
        .faults
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(turn, _)| *turn);
    if watch.faults == Faults::First {
        let first = found.first().map(|(turn, _)| *turn);
        found.retain(|(turn, _)| Some(*turn) == first);
    }

    let mut found: Vec<Found> = found.into_iter().map(|(_, found)| found).collect();
    if found.is_empty() || watch.faults == Faults::EachBlock {
        let written = stats
            .accesses
            .as_ref()
            .and_then(|a| read_only_written(launch, schedule, a));
        found.extend(written.map(|fault| Found {
            fault: *fault,
            blocks: 1,
            ended: true,
        }));
    }

    let mut findings = grid
        .findings
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    findings.sort_by_key(|fault| fault.place.as_ref().map(|place| (place.line, place.column)));
    found.extend(findings.into_iter().map(|fault| Found {
        fault,
        blocks: 1,
        ended: false,
    }));
    let observed = grid
        .observed
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let profile = observed
        .as_ref()
        .and_then(|observed| observed.profile(grid.code));
    let notes = grid
        .notes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let steps = observed
        .map(|observed| observed.into_steps())
        .unwrap_or_default();
    Watched {
        stats,
        found,
        notes,
        profile,
        steps,
    }
}

/// Returns the fault that a launch writes data that it loads with `.nc`.
pub(crate) fn read_only_written(
    launch: &Launch<'_>,
    schedule: &Schedule,
    accesses: &Accesses,
) -> Option<Box<Fault>> {
    let (load, store, address) = accesses.read_only_written()?;
    let what = "data loaded with .nc is written during the same launch".to_string();
    Some(Box::new(Fault {
        class: Class::ReadOnlyWritten,
        instead: "load it without .nc, or write elsewhere",
        place: Some(load.place.clone()),
        other: Some(OtherPlace {
            place: store.place.clone(),
            did: "wrote",
            who: "a thread".into(),
        }),
        address: Some(address),
        allocation: Some(load.allocation.clone()),
        ..*refuse(launch, schedule, what)
    }))
}

/// Runs the blocks of a launch on host threads.
fn run_blocks(grid: &GridState<'_>) -> Stats {
    let wanted = match (grid.trace, grid.schedule.threads) {
        (Trace::On, _) => 1,
        // Asking for the number of threads starts them.
        (_, 0) if grid.clusters == 1 => 1,
        (_, 0) => rayon::current_num_threads(),
        (_, n) => n,
    };
    let threads = (wanted as u64).min(grid.clusters) as usize;
    if threads <= 1 {
        return Rotation::new(grid).run();
    }

    let total = Mutex::new(Stats::default());
    rayon::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|_| {
                let stats = Rotation::new(grid).run();
                total
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .add(&stats);
            });
        }
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}
