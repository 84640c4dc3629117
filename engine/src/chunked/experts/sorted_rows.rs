//! The number of rows that are sorted by expert.

use std::collections::BTreeSet;

use warpwright_kernels::matmul::experts::SortTokens;
use warpwright_model::Config;
use warpwright_model::layer::Experts;

use crate::chunked::CHUNK;
use crate::chunked::products::{TensorCores, expert_groups};

/// The rows of a pass that are sorted by expert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SortedRows {
    /// The number of rows of a group. A group has one expert, and a job of a matmul has one group.
    pub(crate) group: u32,
    /// The number of rows in the worst case, a multiple of `group`.
    pub(crate) capacity: u32,
}

impl SortedRows {
    /// Returns the rows of a pass in a bucket of `tokens` tokens.
    pub(crate) fn new(cores: TensorCores, experts: &Experts, tokens: u32) -> SortedRows {
        let group = cores.expert_group(experts, tokens);
        SortedRows {
            group,
            capacity: capacity(experts, tokens, group),
        }
    }
}

fn capacity(experts: &Experts, tokens: u32, group: u32) -> u32 {
    SortTokens::capacity(tokens, experts.chosen, experts.count, group)
}

/// Returns the largest number of sorted rows in a pass, on every device.
pub(crate) fn most_rows_of(experts: &Experts) -> u32 {
    // The groups of few tokens are smaller, so the capacity does not always grow with the tokens.
    let of_tokens = |tokens| {
        expert_groups(experts, tokens)
            .map(|group| capacity(experts, tokens, group))
            .into_iter()
    };
    let all = (1..=CHUNK).flat_map(of_tokens);
    all.max().expect("a pass has at least one token")
}

/// Returns the largest number of sorted rows in a pass of any layer, or 0 without experts.
pub(crate) fn most_rows(c: &Config) -> u32 {
    let mut counted = BTreeSet::new();
    let different = c
        .experts()
        .filter(|experts| counted.insert((experts.count, experts.chosen)));
    different.map(most_rows_of).max().unwrap_or(0)
}
