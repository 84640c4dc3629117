//! The kernels, weights and buffers of a step in `bf16`.

use std::ops::Deref;
use std::sync::Mutex;

use warpwright_driver::{Buffer, Context};
use warpwright_kernels::train::half::nested::NestedDequantize;

use super::buffers::Bf16Buffers;
use super::kernels::Bf16Kernels;
use super::limits::padded;
use super::maps::Maps;
use super::weights::{DeviceWeights, upload};
use super::workspaces::Pending;
use crate::reference::Adapters;
use crate::step::adapters::Arrangement;
use crate::step::buffers::Layers;
use crate::step::common::CommonState;
use crate::step::settings::{Settings, Unpacking};
use crate::step::sizes::TrainingSizes;
use crate::step::weights::{Matrix, Unnesting};
use crate::{Error, Weights};

/// The number of tokens from which matmuls unpack ahead. With 1,024 tokens this is not faster, and
/// with fewer it is slower (docs/lab/README.md).
const AHEAD: u32 = 2048;

/// Returns true if matmuls unpack the matrices of the next one.
fn unpacks_ahead(unpacking: Unpacking, tokens: u32) -> bool {
    match unpacking {
        Unpacking::Fitting => tokens >= AHEAD,
        Unpacking::Ahead => true,
        Unpacking::Apart => false,
    }
}

/// A step in `bf16`: its kernels, weights and buffers.
pub(crate) struct Bf16Step {
    pub(crate) common: CommonState,
    pub(super) kernels: Bf16Kernels,
    pub(super) weights: DeviceWeights,
    /// The buffer whose empty view is passed to kernels that have no bytes to read.
    pub(super) no_bytes: Buffer<u8>,
    /// Whether matmuls unpack the matrices of the next one.
    pub(super) unpacks_ahead: bool,
    /// The matrices that the last recorded matmul unpacks.
    pub(super) pending: Mutex<Pending>,
    pub(super) unnesting: Option<Unnesting<NestedDequantize>>,
    pub(crate) buffers: Bf16Buffers,
    pub(super) maps: Maps,
}

impl Deref for Bf16Step {
    type Target = CommonState;

    fn deref(&self) -> &CommonState {
        &self.common
    }
}

impl Bf16Step {
    /// Allocates the buffers and loads the kernels.
    pub(crate) fn new(
        context: &Context,
        settings: &Settings,
        sizes: TrainingSizes,
        weights: &Weights<Vec<f32>, Matrix>,
        adapters: &Adapters,
        layers: &Layers<'_>,
    ) -> Result<Bf16Step, Error> {
        let arrangement = Arrangement::Padded {
            rank: padded(sizes.rank),
        };
        let common = CommonState::new(context, settings, sizes, arrangement, adapters)?;
        let buffers = Bf16Buffers::allocate(context, &sizes, layers, &common)?;
        Ok(Bf16Step {
            kernels: Bf16Kernels::load(context, settings, &sizes, layers.head_norms)?,
            weights: upload(context, &settings.config, weights)?,
            no_bytes: Buffer::zeroed(context, 1)?.labelled("no bytes"),
            unpacks_ahead: unpacks_ahead(settings.unpacking, sizes.tokens),
            pending: Mutex::default(),
            unnesting: Unnesting::new(context, NestedDequantize, weights)?,
            buffers,
            maps: Maps::default(),
            common,
        })
    }
}
