//! The positions of unpacked matrices in the two workspaces.

use crate::Projection::{self, Down, Gate, K, O, Q, Up, V};
use crate::step::sizes::TrainingSizes;

/// The direction of a pass, which decides where its matrices are unpacked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PassDirection {
    Forward,
    Backward,
}

/// The matrices of one matmul, which are adjacent in a workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct MatmulMatrices<'a> {
    /// The direction that decides the positions of the matrices.
    pub(super) direction: PassDirection,
    pub(super) layer: usize,
    pub(super) projections: &'a [Projection],
}

/// Returns the index of the workspace into which a matrix is unpacked, and the matrices that
/// precede it there.
///
/// The matrices of consecutive matmuls do not overlap, because one is unpacked while the current
/// matmul still reads the other.
pub(super) fn before(direction: PassDirection, p: Projection) -> (usize, &'static [Projection]) {
    match (direction, p) {
        (_, Q) => (0, &[]),
        (_, K) => (0, &[Q]),
        (_, V) => (0, &[Q, K]),
        (_, Down) => (1, &[]),
        (PassDirection::Forward, O) => (0, &[Q, K, V]),
        (PassDirection::Forward, Gate) => (1, &[]),
        (PassDirection::Forward, Up) => (0, &[]),
        (PassDirection::Backward, O) => (1, &[]),
        (PassDirection::Backward, Gate) => (0, &[]),
        (PassDirection::Backward, Up) => (0, &[Gate]),
    }
}

/// Returns the number of weights that each of the two workspaces must fit.
pub(super) fn capacity(sizes: &TrainingSizes) -> [usize; 2] {
    let all = [PassDirection::Forward, PassDirection::Backward]
        .into_iter()
        .flat_map(|direction| Projection::ALL.map(|p| (direction, p)));
    let mut capacity = [0; 2];
    for (direction, p) in all {
        let (workspace, before) = before(direction, p);
        let all = before.iter().chain([&p]);
        let end: usize = all.map(|&p| sizes.projection(p).weights()).sum();
        capacity[workspace] = end.max(capacity[workspace]);
    }

    capacity
}
