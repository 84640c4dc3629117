//! What a block of a product has of a multiprocessor: warpgroups, registers, stages in shared memory.

use super::activations::PANEL;
use super::product::Matmul;
use crate::format::tile;

/// How blocks divide a multiprocessor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Form {
    /// One block, 128 rows of a matrix at a time.
    Whole,
    /// Two blocks, 128 rows each: one multiplies while the other begins or ends. Up to 64 tokens.
    Half,
    /// One block, 256 rows at a time. Up to 64 tokens.
    Tall,
}

/// The barriers of the rings, before the stages, which are aligned to 1024.
pub(super) const BARRIERS: u32 = 1024;
/// Shared memory of a block of sm_90, and of each of two on a multiprocessor.
const SHARED: u32 = 232_448;
const HALF_SHARED: u32 = 115_712;
/// Stages of a ring at most.
const MAX_STAGES: u32 = 8;

impl Form {
    /// Warpgroups that multiply.
    pub(super) const fn groups(self) -> u32 {
        match self {
            Form::Whole | Form::Half => 2,
            Form::Tall => 4,
        }
    }

    /// Blocks that a multiprocessor holds.
    pub const fn resident(self) -> u32 {
        match self {
            Form::Whole | Form::Tall => 1,
            Form::Half => 2,
        }
    }

    /// Registers of a thread that multiplies, and of one that copies.
    pub(super) const fn registers(self) -> [u32; 2] {
        match self {
            Form::Whole => [232, 40],
            Form::Half => [104, 24],
            Form::Tall => [112, 24],
        }
    }

    /// Tokens that the registers have room for.
    pub(super) const fn most_tokens(self) -> u32 {
        match self {
            Form::Whole => 256,
            Form::Half | Form::Tall => 64,
        }
    }

    const fn shared(self) -> u32 {
        match self {
            Form::Whole | Form::Tall => SHARED,
            Form::Half => HALF_SHARED,
        }
    }

    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Form::Whole => "",
            Form::Half => "_half",
            Form::Tall => "_tall",
        }
    }
}

/// The stages of both rings.
#[derive(Clone, Copy)]
pub(super) struct Stages {
    pub(super) weights: u32,
    pub(super) weight_bytes: u32,
    pub(super) panels: u32,
    pub(super) panel_bytes: u32,
    /// Panels of a stage.
    pub(super) depth: u32,
}

impl Stages {
    pub(super) fn shared(&self) -> u32 {
        BARRIERS
            + self.weights * self.weight_bytes.next_multiple_of(1024)
            + self.panels * self.panel_bytes
    }

    /// As many as fit: both rings hold equally many columns of few tokens; of many, at least four panels and two tiles.
    pub(super) fn of(matmul: &Matmul) -> Stages {
        Stages::of_both(matmul, matmul)
    }

    /// For the products of two matrices, whose tiles have as many columns.
    pub(super) fn of_both(matmul: &Matmul, other: &Matmul) -> Stages {
        let of_tile = tile::of(matmul.format).columns / PANEL;
        let bytes = [matmul, other].map(|matmul| tile::of(matmul.format).bytes);
        let tokens = matmul.tokens.max(other.tokens);
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
