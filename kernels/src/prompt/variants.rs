//! The shipped variants of attention and rotation for prompts.

use super::attention::{PromptAttention, PromptAttentionWgmma};
use super::item::ChunkItems;
use super::rotate::RotateTokens;
use crate::format::dequantize::ColumnOrder;
use crate::harness::variants::Variants;
use crate::shared::Overlap;
use crate::simple::rope::Pairing;

/// Returns the kernels of a prompt, except the matmuls.
pub(crate) fn all() -> Variants {
    let mut list = Variants::default();
    use Pairing::*;
    let rotate = |head_dim, pairing, bias, norm| RotateTokens {
        head_dim,
        pairing,
        bias,
        norm,
        overlap: Overlap::No,
    };
    list.add([
        RotateTokens {
            overlap: Overlap::Early,
            ..rotate(128, HalfSplit, true, true)
        },
        rotate(128, Interleaved, false, false),
        rotate(64, Interleaved, false, false),
        rotate(80, HalfSplit, true, false),
        rotate(96, HalfSplit, false, false),
        rotate(128, HalfSplit, true, false),
        rotate(128, HalfSplit, false, true),
        rotate(256, HalfSplit, true, true),
    ]);
    list.add([64, 128].map(|queries| ChunkItems { queries }));
    let of = |head_dim, group| PromptAttention::new(head_dim, order(group));
    list.add([
        of(64, 8),
        of(64, 32).with_queries(64),
        of(80, 16),
        of(96, 32),
        of(128, 16),
        of(128, 32).with_queries(64),
        of(128, 8).with_window(100),
        of(256, 32),
        of(256, 16).with_window(512),
    ]);
    let of = |head_dim, group| PromptAttentionWgmma::new(head_dim, order(group));
    list.add([
        of(64, 8),
        of(128, 16),
        of(128, 32),
        of(64, 32).with_window(100),
        of(128, 8).with_window(200),
    ]);
    list
}

/// Returns the order of columns in groups of this length.
fn order(group: u32) -> ColumnOrder {
    ColumnOrder { group }
}
