//! The kernels, weights and buffers of a step in `bf16`.

use std::sync::Mutex;

use warpwright_driver::Context;
use warpwright_driver::memory::{Buffer, bf16};
use warpwright_kernels::train::half::nested::NestedDequantize;

use super::kernels::Bf16Kernels;
use super::limits::padded;
use super::maps::MapCache;
use super::packed::PackedLayer;
use super::scratch::Bf16Scratch;
use super::workspaces::MatmulMatrices;
use crate::reference::Adapters;
use crate::settings::{Settings, Unpacking};
use crate::step::adapters::Arrangement;
use crate::step::buffers::{BufferShapes, DeviceAllocator, StepBuffers};
use crate::step::state::StepState;
use crate::step::weights::{DeviceWeights, Matrix, Unnesting, check, upload};
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
    pub(super) state: StepState,
    pub(super) kernels: Bf16Kernels,
    pub(super) weights: DeviceWeights<bf16>,
    /// The matrices of each layer, if they can be unpacked together.
    pub(super) packed: Vec<Option<PackedLayer>>,
    /// The buffer whose empty view is passed to kernels that have no bytes to read.
    pub(super) no_bytes: Buffer<u8>,
    /// Whether matmuls unpack the matrices of the next one.
    pub(super) unpacks_ahead: bool,
    /// The matrices that the last recorded matmul unpacks.
    pub(super) pending: Mutex<Option<MatmulMatrices<'static>>>,
    pub(super) unnesting: Option<Unnesting<NestedDequantize>>,
    pub(super) buffers: StepBuffers<Buffer<bf16>>,
    pub(super) scratch: Bf16Scratch,
    pub(super) maps: MapCache,
}

impl Bf16Step {
    /// Allocates the buffers and loads the kernels.
    pub(crate) fn new(
        context: &Context,
        settings: &Settings,
        shapes: &BufferShapes<'_>,
        weights: &Weights<Vec<f32>, Matrix>,
        adapters: &Adapters,
    ) -> Result<Bf16Step, Error> {
        let sizes = shapes.sizes;
        let arrangement = Arrangement::Padded {
            rank: padded(settings.lora.rank),
        };
        let state = StepState::new(context, settings, *sizes, arrangement, adapters)?;
        let allocator = DeviceAllocator::new(context);
        let buffers = StepBuffers::new(&allocator, shapes)?;
        let scratch = Bf16Scratch::new(&allocator, shapes, state.adapters.layout.len())?;
        let kernels = Bf16Kernels::load(context, settings, sizes)?;
        check(&settings.config, weights)?;

        // Built before the other weights, because the matrices of such a layer are views of its one
        // buffer.
        let packed: Vec<Option<PackedLayer>> = weights
            .layers
            .iter()
            .enumerate()
            .map(|(l, layer)| PackedLayer::new(context, l, &layer.projections))
            .collect::<Result<_, _>>()?;
        let weights_on_device = upload(context, &settings.config, weights, |of| {
            Some(packed[of.layer].as_ref()?.of(&[of.projection]))
        })?;
        Ok(Bf16Step {
            state,
            kernels,
            weights: weights_on_device,
            packed,
            no_bytes: Buffer::zeroed(context, 1)?.labelled("no bytes"),
            unpacks_ahead: unpacks_ahead(settings.unpacking, sizes.tokens),
            pending: Mutex::default(),
            unnesting: Unnesting::new(context, NestedDequantize, weights)?,
            buffers,
            scratch,
            maps: MapCache::default(),
        })
    }
}
