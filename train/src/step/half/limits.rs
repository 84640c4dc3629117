//! What sizes a step in `bf16` takes, and how it has the rank.

use warpwright_driver::Context;

use crate::step::sizes::TrainingSizes;

/// The rank as kernels take it: the next multiple of what a matrix instruction has rows of.
pub(crate) fn padded(rank: u32) -> u32 {
    rank.next_multiple_of(16)
}

/// The largest rank, for which a thread that makes gradients has registers.
const MOST_RANK: u32 = 128;
/// The longest head whose attention has kernels.
const MOST_HEAD_DIM: u32 = 128;

/// Why these sizes have no step in `bf16` on this device, if they have none.
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
    (rank > MOST_RANK).then(|| format!("a rank up to {MOST_RANK}, not {rank}"))
}
