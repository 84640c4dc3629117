//! The stages of the rings in shared memory.

use crate::format::tile;
use crate::matmul::activations::PANEL;
use crate::matmul::definition::Matmul;

/// The bytes of the rings' barriers. They precede the stages, which are aligned to 1024.
pub(crate) const BARRIERS: u32 = 1024;

/// The maximum number of stages of a ring.
pub(crate) const MAX_STAGES: u32 = 8;

/// The stages of both rings.
#[derive(Clone, Copy)]
pub(crate) struct Stages {
    pub(crate) weights: u32,
    pub(crate) weight_bytes: u32,
    pub(crate) panels: u32,
    pub(crate) panel_bytes: u32,
    /// The number of panels of a stage.
    pub(crate) depth: u32,
}

impl Stages {
    /// Returns the bytes of shared memory of both rings.
    pub(crate) fn shared(&self) -> u32 {
        BARRIERS
            + self.weights * self.weight_bytes.next_multiple_of(1024)
            + self.panels * self.panel_bytes
    }

    /// Returns the largest stages that fit. With few tokens, both rings hold equally many columns.
    /// With many tokens, there are at least four panels and two tiles.
    pub(crate) fn of(matmul: &Matmul) -> Stages {
        Stages::of_both(matmul, matmul)
    }

    /// Returns the stages for the matmuls of two matrices, whose tiles have equally many columns.
    pub(crate) fn of_both(matmul: &Matmul, other: &Matmul) -> Stages {
        let of_tile = tile::of(matmul.format).columns / PANEL;
        let bytes = [matmul, other].map(|matmul| tile::of(matmul.format).bytes);
        let tokens = matmul.tokens.max(other.tokens);

        // The fewer tokens, the shorter the copy of a panel. Several panels then share a stage, so
        // that fewer barriers are needed.
        let depth = match tokens {
            0..=32 => of_tile,
            33..=64 => 2,
            _ => 1,
        };
        let [least, most] = if depth > 1 { [2, MAX_STAGES] } else { [4, 4] };
        let mut stages = Stages {
            weights: 2,
            weight_bytes: matmul.row_blocks() * bytes[0].max(bytes[1]),
            panels: least,
            panel_bytes: depth * tokens * 2 * PANEL,
            depth,
        };
        loop {
            let Stages {
                weights, panels, ..
            } = stages;
            let more = match depth {
                1 => [(weights + 1, panels), (weights, panels + 2)],
                _ => [
                    (weights + 1, panels.max((weights + 1) * of_tile / depth)),
                    (weights + 1, panels),
                ],
            };
            let next = |(weights, panels)| Stages {
                weights,
                panels,
                ..stages
            };
            let fits = |s: &Stages| {
                s.shared() <= matmul.form.shared() && s.weights <= most && s.panels <= MAX_STAGES
            };
            match more.map(next).into_iter().find(fits) {
                Some(next) => stages = next,
                None => return stages,
            }
        }
    }
}
