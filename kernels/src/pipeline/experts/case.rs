//! Test cases of the GEMVs over chosen experts.

use crate::format::Format;
use crate::format::tile;
use crate::harness::Case;
use crate::pipeline::Packed;
use crate::pipeline::gemv::case::GemvCase;
use crate::shared::Random;

/// The sizes of a test case.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpertCase {
    /// The number of experts.
    pub(super) count: u32,
    /// The number of chosen experts.
    pub(super) chosen: u32,
    /// The number of rows of one matrix of an expert.
    pub(super) rows: u32,
    /// The row length of an expert.
    pub(super) n: u32,
    pub(super) blocks: u32,
    /// Whether several experts have the largest logit.
    pub(super) ties: bool,
}

/// Returns the tiles of an expert.
pub(super) fn experts_of(w: &[u8], count: u32, index: u32) -> &[u8] {
    let len = w.len() / count as usize;
    &w[index as usize * len..][..len]
}

impl ExpertCase {
    /// Returns cases with one chosen expert, all experts chosen, a block without work, stages with
    /// tiles of two experts, more tiles than stages, experts that a block shares with others, and
    /// ties. No case has more than `most` experts.
    pub(super) fn all(format: Format, most: u32) -> Vec<ExpertCase> {
        let columns = tile::of(format).columns;
        [
            (1, 1, 16, 1, 2, false),
            (3, 3, 16, 3, 2, false),
            (6, 2, 48, 1, 4, true),
            (40, 8, 16, 3, 1, false),
            (33, 5, 32, 5, 3, true),
        ]
        .map(|(count, chosen, rows, tiles, blocks, ties)| ExpertCase {
            count: count.min(most),
            chosen,
            rows,
            n: tiles * columns,
            blocks,
            ties,
        })
        .into()
    }

    /// Returns random tiles of all experts, and the activations of one expert.
    pub(super) fn packed(&self, format: Format, rows: u32, n: u32, seed: u64) -> (Random, Packed) {
        let shape = GemvCase {
            rows: self.count * rows,
            n,
            ..self.gemv(n)
        };
        Packed::random(format, shape, seed)
    }

    /// Returns the sizes of the GEMV, whose rows have `n` weights.
    pub(super) fn gemv(&self, n: u32) -> GemvCase {
        GemvCase {
            rows: self.rows,
            n,
            blocks: self.blocks,
            batch: 1,
            outlier: 1.0,
        }
    }

    /// Returns logits. With ties, there are only five different ones, and 0 has both signs.
    pub(super) fn logits(&self, random: &mut Random) -> Vec<f32> {
        let mut logit = || {
            let logit = 4.0 * random.unit();
            if self.ties {
                logit.signum() * (logit.abs() / 2.0).floor()
            } else {
                logit
            }
        };
        (0..self.count).map(|_| logit()).collect()
    }

    /// Returns different experts in a random order.
    pub(super) fn some_experts(&self, random: &mut Random) -> Vec<u32> {
        let mut all: Vec<u32> = (0..self.count).collect();
        (0..self.chosen)
            .map(|_| all.remove(random.below(all.len() as u32) as usize))
            .collect()
    }

    /// Returns the case with its sizes as the label.
    pub(super) fn labelled(&self, case: Case) -> Case {
        let ExpertCase {
            count,
            chosen,
            rows,
            n,
            blocks,
            ties,
        } = self;
        let ties = if *ties { " ties" } else { "" };
        Case {
            label: format!("count={count} chosen={chosen} rows={rows} n={n} blocks={blocks}{ties}"),
            ..case
        }
    }
}
