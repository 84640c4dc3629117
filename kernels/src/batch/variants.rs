//! The shipped variants of the kernels for many sequences.

use super::attention::BatchAttention;
use super::choose::ChooseTokens;
use super::gather::GatherRows;
use super::lora::{BatchLoraAdd, BatchLoraAppend, BatchLoraShrink, GateTokens, LoraParts};
use crate::format::dequantize::ColumnOrder;
use crate::harness::variants::Variants;
use crate::shared::Overlap;
use crate::simple::rope::Pairing;
use crate::simple::swiglu::Activation;

/// Returns the kernels of a step of many sequences, except the matmuls.
pub(crate) fn all() -> Variants {
    let mut list = Variants::default();
    let of = |head_dim, queries, group| BatchAttention::new(head_dim, queries, order(group));
    list.add([
        of(64, 1, 8),
        of(64, 7, 32),
        of(64, 20, 16),
        of(80, 1, 16),
        of(96, 1, 32),
        of(128, 1, 16),
        of(128, 4, 32),
        BatchAttention {
            overlap: Overlap::Early,
            ..of(128, 4, 32)
        },
        of(128, 16, 8),
        of(128, 2, 8).with_window(100),
        of(256, 4, 32),
        of(256, 2, 16).with_window(512),
    ]);
    list.add([GatherRows]);
    list.add([ChooseTokens]);
    list.add([BatchLoraShrink]);
    list.add(
        [LoraParts::One, LoraParts::Three, LoraParts::Halves].map(|parts| BatchLoraAdd { parts }),
    );
    list.add([
        BatchLoraAppend {
            head_dim: 64,
            pairing: Pairing::Interleaved,
        },
        BatchLoraAppend {
            head_dim: 128,
            pairing: Pairing::HalfSplit,
        },
    ]);
    list.add([
        GateTokens {
            activation: Activation::Silu,
            order: order(32),
        },
        GateTokens {
            activation: Activation::GeluTanh,
            order: order(8),
        },
    ]);
    list
}

/// Returns the order of columns in groups of this length.
fn order(group: u32) -> ColumnOrder {
    ColumnOrder { group }
}
