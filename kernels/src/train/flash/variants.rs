//! The shipped variants of FlashAttention.

use super::block::TensorOp;
use super::forward::FlashForward;
use super::keys::{FlashKeys, SummedHeads};
use super::queries::FlashQueries;
use crate::harness::variants::Variants;

/// Returns the kernels of FlashAttention. Short heads come first, because a snapshot shows a
/// section as the first kernel contains it.
pub(crate) fn all() -> Variants {
    let mut list = Variants::default();
    let of = FlashForward::new;
    list.add([of(16), of(48), of(64), of(128), of(64).with_queries(128)]);
    list.add([64, 128].map(|head_dim| of(head_dim).with_op(TensorOp::Wgmma)));
    let of = FlashQueries::new;
    list.add([of(16), of(48), of(64), of(128), of(128).with_queries(128)]);
    list.add([64, 128].map(|head_dim| of(head_dim).with_op(TensorOp::Wgmma)));
    let of = |head_dim, parts| FlashKeys {
        head_dim,
        parts,
        op: TensorOp::Mma,
    };
    list.add([16, 48, 64, 128].map(|head_dim| of(head_dim, SummedHeads::Heads)));
    list.add([16, 128].map(|head_dim| of(head_dim, SummedHeads::Groups)));
    let together = |kernel| FlashKeys {
        op: TensorOp::Wgmma,
        ..kernel
    };
    list.add(
        [
            of(64, SummedHeads::Heads),
            of(128, SummedHeads::Heads),
            of(128, SummedHeads::Groups),
        ]
        .map(together),
    );
    list
}
