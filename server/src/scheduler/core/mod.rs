//! The state of a scheduler, without threads.

#[cfg(test)]
mod random_tests;
mod state;

pub(super) use state::{DeviceLost, SchedulerCore, TurnResult};
