//! The sizes that a step in `bf16` supports, and the padding of the rank.

use warpwright_driver::Context;

use crate::step::sizes::TrainingSizes;

/// Returns the rank rounded up to a multiple of 16, the rows of a matrix instruction.
pub(crate) fn padded(rank: usize) -> usize {
    rank.next_multiple_of(16)
}

/// The largest supported rank. Kernels that compute gradients have no registers for more.
const MOST_RANK: u32 = 128;
/// The largest supported number of dimensions in a head.
const MOST_HEAD_DIM: u32 = 128;

/// Returns the missing requirement if the device or the sizes do not support a step in `bf16`, and
/// `None` if they do.
pub(crate) fn unsupported(context: &Context, sizes: &TrainingSizes) -> Option<String> {
    let capability = context.device().compute_capability();
    if capability != (9, 0) {
        let (major, minor) = capability;
        return Some(format!(
            "compute capability 9.0, and {} has {major}.{minor}",
            context.device()
        ));
    }

    let TrainingSizes {
        vocab,
        hidden,
        feed_forward,
        head_dim,
        rank,
        ..
    } = *sizes;

    // Tensor maps need rows of whole 16 bytes, which are 8 elements of `bf16`.
    let eights = [
        ("vocab", vocab),
        ("hidden", hidden),
        ("feed_forward", feed_forward),
        ("keys", sizes.keys()),
    ];
    if let Some((name, size)) = eights.into_iter().find(|(_, size)| !size.is_multiple_of(8)) {
        return Some(format!(
            "sizes that are multiples of 8, and {name} is {size}"
        ));
    }

    if !head_dim.is_multiple_of(16) || head_dim > MOST_HEAD_DIM {
        return Some(format!(
            "heads of a multiple of 16 up to {MOST_HEAD_DIM} dimensions, not of {head_dim}"
        ));
    }

    if rank > MOST_RANK {
        return Some(format!("a rank up to {MOST_RANK}, not {rank}"));
    }

    None
}
