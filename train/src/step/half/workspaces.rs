//! The positions of unpacked matrices in the two workspaces.

use crate::Projection::{self, Down, Gate, K, O, Q, Up, V};
use crate::step::sizes::TrainingSizes;

/// The direction of a pass, which decides where its matrices are unpacked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Forward,
    Backward,
}

/// The matrices that the last recorded matmul unpacks: the direction that decides their places, the
/// layer and the projections.
pub(super) type Pending = Option<(Way, usize, Vec<Projection>)>;

/// Returns the index of the workspace into which a matrix is unpacked, and the matrices that
/// precede it there.
///
/// The matrices of consecutive matmuls do not overlap, because one is unpacked while the current
/// matmul still reads the other.
pub(super) fn before(way: Way, p: Projection) -> (usize, &'static [Projection]) {
    match (way, p) {
        (_, Q) => (0, &[]),
        (_, K) => (0, &[Q]),
        (_, V) => (0, &[Q, K]),
        (_, Down) => (1, &[]),
        (Way::Forward, O) => (0, &[Q, K, V]),
        (Way::Forward, Gate) => (1, &[]),
        (Way::Forward, Up) => (0, &[]),
        (Way::Backward, O) => (1, &[]),
        (Way::Backward, Gate) => (0, &[]),
        (Way::Backward, Up) => (0, &[Gate]),
    }
}

/// Returns the number of weights that each of the two workspaces must fit.
pub(super) fn room(sizes: &TrainingSizes) -> [usize; 2] {
    let all = [Way::Forward, Way::Backward]
        .into_iter()
        .flat_map(|way| Projection::ALL.map(|p| (way, p)));
    let mut room = [0; 2];
    for (way, p) in all {
        let (workspace, before) = before(way, p);
        let end: usize = before.iter().chain([&p]).map(|&p| weights(sizes, p)).sum();
        room[workspace] = end.max(room[workspace]);
    }
    room
}

/// Returns the number of weights in a projection's matrix.
pub(super) fn weights(sizes: &TrainingSizes, p: Projection) -> usize {
    sizes.of(p).map(|n| n as usize).iter().product()
}
