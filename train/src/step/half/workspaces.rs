//! Where matrices are unpacked: which of two workspaces, and where in it.

use crate::Projection::{self, Down, Gate, K, O, Q, Up, V};
use crate::step::sizes::TrainingSizes;

/// Which way a pass goes: it decides where matrices are unpacked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Forward,
    Backward,
}

/// What the latest product that was recorded unpacks: where, and the matrices.
pub(super) type Pending = Option<(Way, usize, Vec<Projection>)>;

/// The workspace that a matrix is unpacked into, and the matrices before it there. Those of
/// products that follow each other are apart, so that one is unpacked while a product reads the
/// other.
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

/// Weights that the two workspaces have room for.
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

pub(super) fn weights(sizes: &TrainingSizes, p: Projection) -> usize {
    sizes.of(p).map(|n| n as usize).iter().product()
}
