//! The share of a multiprocessor that a matmul block takes: warpgroups, registers, and stages in
//! shared memory.

use super::activations::PANEL;
use super::kernel::Matmul;
use crate::format::tile;

/// The division of a multiprocessor among blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SmShare {
    /// One block, which computes 128 rows of a matrix at a time.
    Whole,
    /// Two blocks of 128 rows each. One multiplies while the other begins or ends. Up to 64 tokens.
    Half,
    /// One block of 256 rows. Up to 64 tokens.
    Tall,
}

/// The bytes of the rings' barriers. They precede the stages, which are aligned to 1024.
pub(super) const BARRIERS: u32 = 1024;
/// The bytes of shared memory of a block on sm_90.
const SHARED: u32 = 232_448;
/// The bytes of shared memory of each of two blocks on a multiprocessor.
const HALF_SHARED: u32 = 115_712;
/// The maximum number of stages of a ring.
const MAX_STAGES: u32 = 8;

impl SmShare {
    /// Returns the number of warpgroups that multiply.
    pub(super) const fn groups(self) -> u32 {
        match self {
            SmShare::Whole | SmShare::Half => 2,
            SmShare::Tall => 4,
        }
    }

    /// Returns the number of blocks that fit on a multiprocessor.
    pub const fn resident(self) -> u32 {
        match self {
            SmShare::Whole | SmShare::Tall => 1,
            SmShare::Half => 2,
        }
    }

    /// Returns the registers of a thread that multiplies, and of a thread that copies
    /// (`setmaxnreg`).
    pub(super) const fn registers(self) -> [u32; 2] {
        match self {
            SmShare::Whole => [232, 40],
            SmShare::Half => [104, 24],
            SmShare::Tall => [112, 24],
        }
    }

    /// Returns the largest number of tokens whose sums fit in the registers.
    pub(super) const fn most_tokens(self) -> u32 {
        match self {
            SmShare::Whole => 256,
            SmShare::Half | SmShare::Tall => 64,
        }
    }

    /// Returns the maximum bytes of shared memory of a block.
    const fn shared(self) -> u32 {
        match self {
            SmShare::Whole | SmShare::Tall => SHARED,
            SmShare::Half => HALF_SHARED,
        }
    }

    /// Returns the part of a kernel's name.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            SmShare::Whole => "",
            SmShare::Half => "_half",
            SmShare::Tall => "_tall",
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
    /// The number of panels of a stage.
    pub(super) depth: u32,
}

impl Stages {
    /// Returns the bytes of shared memory of both rings.
    pub(super) fn shared(&self) -> u32 {
        BARRIERS
            + self.weights * self.weight_bytes.next_multiple_of(1024)
            + self.panels * self.panel_bytes
    }

    /// Returns the largest stages that fit. With few tokens, both rings hold equally many columns.
    /// With many tokens, there are at least four panels and two tiles.
    pub(super) fn of(matmul: &Matmul) -> Stages {
        Stages::of_both(matmul, matmul)
    }

    /// Returns the stages for the matmuls of two matrices, whose tiles have equally many columns.
    pub(super) fn of_both(matmul: &Matmul, other: &Matmul) -> Stages {
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
