//! The thread that owns the engine.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::check::usable_ctx;
use super::super::core::{DeviceLost, SchedulerCore, TurnResult};
use super::super::request::EndReason;
use super::super::sequence::ServedRequest;
use super::shared::{Arrival, SchedulerStage, SharedState, WaitMode};

/// The minimum time between two updates of the status while the same sequences run.
const STATUS_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a scheduler until it is shut down, or its device is lost.
pub(super) fn run(mut core: SchedulerCore, shared: &Arc<SharedState>) {
    let mut loop_state = ThreadLoop {
        shared,
        arrived: 0,
        published: None,
    };
    // A panic must not leave requests without an answer. The core is used only to answer them.
    let ended = catch_unwind(AssertUnwindSafe(|| loop_state.work(&mut core)));
    let lost = match ended {
        Ok(Ok(())) => None,
        Ok(Err(DeviceLost(reason))) => Some(reason),
        Err(panic) => Some(format!("the engine panicked: {}", panic_message(&*panic))),
    };

    if let Some(reason) = lost {
        tracing::error!(reason, "the device is lost");
        for arrival in shared.lose(&reason) {
            loop_state.accept(&mut core, arrival);
        }
        core.lose(&reason);
        shared.publish(core.lost_status(&reason), 0, Duration::ZERO);
        core.send_events();
    }

    // The engine of a lost device may panic when it is dropped.
    if catch_unwind(AssertUnwindSafe(|| drop(core))).is_err() {
        tracing::error!("the engine panicked while it was dropped");
    }
    shared.set_stopped();
}

/// The loop of the thread.
struct ThreadLoop<'a> {
    shared: &'a SharedState,
    /// The number of requests so far.
    arrived: u64,
    /// The latest update of the status, with the number of sequence changes at that time.
    published: Option<(Instant, u64)>,
}

impl ThreadLoop<'_> {
    fn work(&mut self, core: &mut SchedulerCore) -> Result<(), DeviceLost> {
        let mut mode = WaitMode::Poll;
        loop {
            let (arrivals, stage) = self.shared.take(mode);
            for arrival in arrivals {
                self.accept(core, arrival);
            }
            match stage {
                SchedulerStage::Open => {}
                SchedulerStage::Closing { deadline } => {
                    let over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
                    if over || core.load() == 0 {
                        core.end_all(EndReason::Shutdown);
                        self.publish(core);
                        core.send_events();
                        core.save();
                        return Ok(());
                    }
                }
                SchedulerStage::Lost(reason) => return Err(DeviceLost(reason)),
            }

            let result = core.turn()?;
            mode = match result {
                TurnResult::Idle => WaitMode::Block,
                TurnResult::Worked => WaitMode::Poll,
            };
            if self.publishes(core, result) {
                self.publish(core);
            }
            // Other events are sent in the next turn, while the device computes.
            if result == TurnResult::Idle {
                core.send_events();
            }
        }
    }

    fn accept(&mut self, core: &mut SchedulerCore, arrival: Arrival) {
        match arrival {
            Arrival::Generate {
                request,
                events,
                arrived,
            } => {
                let ctx = usable_ctx(&self.shared.limits);
                let number = self.arrived;
                self.arrived += 1;
                core.accept(ServedRequest::new(number, *request, events, arrived, ctx));
            }
            Arrival::Embed(job) => core.accept_embedding(job),
            Arrival::LoadAdapter(job) => core.load_adapter(job),
            Arrival::UnloadAdapter(key) => core.unload_adapter(key),
        }
    }

    /// Returns true if the status is to be published after a turn.
    fn publishes(&self, core: &SchedulerCore, result: TurnResult) -> bool {
        let Some((time, changes)) = self.published else {
            return true;
        };
        result == TurnResult::Idle || changes != core.changes() || time.elapsed() >= STATUS_INTERVAL
    }

    fn publish(&mut self, core: &mut SchedulerCore) {
        let now = Instant::now();
        self.published = Some((now, core.changes()));
        self.shared
            .publish(core.status(), core.load(), core.retry_after(now));
    }
}

/// Returns the text of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        return text;
    }
    panic
        .downcast_ref::<String>()
        .map_or("no message", String::as_str)
}
