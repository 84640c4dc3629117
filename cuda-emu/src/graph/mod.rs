//! Graphs as data: nodes and edges, the steps of an executable graph, and the execution and checks
//! of a launch.

pub(crate) mod compare;
pub(crate) mod difference;
pub(crate) mod draft;
pub(crate) mod launch;
pub(crate) mod nodes;
pub(crate) mod step;
pub(crate) mod topology;
