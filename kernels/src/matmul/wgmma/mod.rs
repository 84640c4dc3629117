//! The matmul with `wgmma`: its blocks, its rings and its jobs.

pub(super) mod kernel;
pub(super) mod pair;
mod ring;
pub(super) mod sm_share;
pub(super) mod split;
mod stages;

pub use pair::{MatmulPair, MatmulPairArgs};
pub use sm_share::SmShare;
