//! Instantiated graphs: launches, changes of their nodes, and profiles.

pub(crate) mod graph_exec;
pub(crate) mod instantiate;
pub(crate) mod profile;
pub(crate) mod set_work;
mod update;
