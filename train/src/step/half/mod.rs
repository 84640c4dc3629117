//! A step in `bf16` on tensor cores: sm_90a.
//!
//! Tensors in memory are `bf16`, sums `f32`; adapters, moments and gradients are `f32`, and each pass begins with a rounded
//! copy of the adapters. A projection is one product with its adapter and whatever is added to it, by
//! [`LoraLinear`](warpwright_kernels::train::half::linear::LoraLinear); NF4 is unpacked before it by a kernel of its own.
//!
//! | file | holds |
//! |---|---|
//! | `kernels.rs` | the loaded kernels, and which tile a product takes |
//! | `maps.rs` | tensor maps, made once |
//! | `weights.rs` | frozen weights on the device |
//! | `buffers.rs` | what the forward keeps, and workspace |
//! | `linear.rs` | projections, forward and backward |
//! | `forward.rs`, `backward.rs` | the layers and the head |

mod backward;
mod buffers;
mod forward;
mod kernels;
mod linear;
mod maps;
mod weights;

use std::ops::Deref;

use warpwright_driver::{Context, Error as DriverError, Queue};

pub(super) use buffers::Buffers;
use kernels::Kernels;
use maps::Maps;
use weights::DeviceWeights;

use super::adapters::Arrangement;
use super::buffers::Layers;
use super::common::{Common, Purpose};
use super::sizes::Sizes;
use super::trainer::Settings;
use super::weights::Matrix;
use crate::reference::Adapters;
use crate::{Error, Weights};

/// A step in `bf16`.
pub(super) struct Step {
    pub(super) common: Common,
    kernels: Kernels,
    weights: DeviceWeights,
    pub(super) buffers: Buffers,
    maps: Maps,
}

impl Deref for Step {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

/// The rank as kernels take it: the next multiple of what a matrix instruction has rows of.
pub(super) fn padded(rank: u32) -> u32 {
    rank.next_multiple_of(16)
}

/// The largest rank, for which a thread that makes gradients has registers.
const MOST_RANK: u32 = 128;
/// The longest head whose attention has kernels.
const MOST_HEAD_DIM: u32 = 128;

/// Why these sizes have no step in `bf16` on this device, if they have none.
pub(super) fn unsupported(context: &Context, sizes: &Sizes) -> Option<String> {
    let capability = context.device().compute_capability();
    if capability != (9, 0) {
        let (major, minor) = capability;
        return Some(format!("compute capability 9.0, and {} has {major}.{minor}", context.device()));
    }
    let Sizes { vocab, hidden, feed_forward, head_dim, rank, .. } = *sizes;
    let eights =
        [("vocab", vocab), ("hidden", hidden), ("feed_forward", feed_forward), ("keys", sizes.keys())];
    if let Some((name, size)) = eights.into_iter().find(|(_, size)| !size.is_multiple_of(8)) {
        return Some(format!("sizes that are multiples of 8, and {name} is {size}"));
    }
    if !head_dim.is_multiple_of(16) || head_dim > MOST_HEAD_DIM {
        return Some(format!(
            "heads of a multiple of 16 up to {MOST_HEAD_DIM} dimensions, not of {head_dim}"
        ));
    }
    (rank > MOST_RANK).then(|| format!("a rank up to {MOST_RANK}, not {rank}"))
}

impl Step {
    pub(super) fn new(
        context: &Context,
        settings: &Settings,
        sizes: Sizes,
        weights: &Weights<Vec<f32>, Matrix>,
        adapters: &Adapters,
        layers: &Layers<'_>,
    ) -> Result<Step, Error> {
        let arrangement = Arrangement::Padded { rank: padded(sizes.rank) };
        let common = Common::new(context, settings, sizes, arrangement, adapters)?;
        let buffers = Buffers::allocate(context, &sizes, layers, &common)?;
        Ok(Step {
            kernels: Kernels::load(context, settings, &sizes, layers.head_norms)?,
            weights: weights::upload(context, &settings.config, weights)?,
            buffers,
            maps: Maps::default(),
            common,
        })
    }

    /// Forward and backward of the next micro-batch.
    pub(super) fn micro_batch(&self, queue: &mut impl Queue) -> Result<(), DriverError> {
        self.forward(queue, Purpose::Training)?;
        self.head(queue)?;
        self.backward(queue)?;
        self.common.end_micro_batch(queue, &self.buffers.head.losses)
    }

    /// The losses of the next micro-batch, without dropout. It counts nothing and adds to nothing.
    pub(super) fn evaluate(&self, queue: &mut impl Queue) -> Result<(), DriverError> {
        self.forward(queue, Purpose::Evaluation)?;
        self.losses(queue)
    }
}
