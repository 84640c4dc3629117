//! The state of a step that does not depend on the precision: batches, adapters and counters, and
//! the kernels that update them.
//!
//! The update computes the norm of all gradients, clips them to it, applies the learning-rate
//! schedule and runs AdamW.

use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::{Buffer, Pinned, View};
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Error as DriverError};
use warpwright_kernels::simple::rope::revolutions;
use warpwright_kernels::train::cross_entropy::{TokenLosses, TokenLossesArgs};
use warpwright_kernels::train::dropout::threshold;
use warpwright_kernels::train::optimizer::adamw::{AdamW, AdamWUpdate, AdamWUpdateArgs};
use warpwright_kernels::train::optimizer::clip::{SquareSums, SquareSumsArgs};
use warpwright_kernels::train::optimizer::micro_batch::{FetchMicroBatch, FetchMicroBatchArgs};
use warpwright_kernels::train::optimizer::schedule::Schedule;
use warpwright_kernels::train::optimizer::state::{CARRIED, COUNTERS, RECORD};
use warpwright_kernels::train::optimizer::state::{
    EndMicroBatch, EndMicroBatchArgs, EndStep, EndStepArgs,
};

use super::adapters::{AdapterLayout, Arrangement, FlatAdapters};
use super::batch_slots::{BatchSlots, SLOTS};
use super::sizes::TrainingSizes;
use crate::reference::Adapters;
use crate::settings::Settings;
use crate::signed::load;
use crate::{Config, Error, Lora, Training};

/// The number of steps whose records the host can still read.
pub(super) const RECORDS: u32 = 64;

/// The buffers and kernels of a step that do not depend on the precision.
pub(crate) struct StepState {
    kernels: StateKernels,
    pub(super) sizes: TrainingSizes,
    pub(super) eps: f32,
    /// The number of tokens whose logits are in memory at the same time.
    pub(super) head_chunk: u32,
    /// The adapters, their moments and their gradients.
    pub(super) adapters: FlatAdapters,
    pub(super) slots: BatchSlots,
    pub(super) constants: Constants,
    pub(super) carried: CarriedState,
    /// The threshold of dropout, or `None` without dropout.
    pub(super) dropout: Option<u32>,
    training: Training,
}

/// The kernels that fetch a micro-batch, compute its losses, and end a micro-batch and a step.
struct StateKernels {
    fetch: Kernel<FetchMicroBatch>,
    losses: Kernel<TokenLosses>,
    end_micro_batch: Kernel<EndMicroBatch>,
    square_sums: Kernel<SquareSums>,
    end_step: Kernel<EndStep>,
    adamw: Kernel<AdamWUpdate>,
}

/// Values in device memory that no step changes.
pub(super) struct Constants {
    /// `[1]`: 1
    pub(super) one: Buffer<f32>,
    /// `[1]`: the scale of the adapters times the scale of dropout
    pub(super) scale: Buffer<f32>,
    /// `[1]`: the scale of the adapters alone
    pub(super) evaluation_scale: Buffer<f32>,
    /// `[head_dim / 2, 2]`: revolutions of RoPE
    pub(super) freq: Buffer<f32>,
    /// `[2]`: the key of dropout
    pub(super) seed: Buffer<u32>,
}

/// The state that passes from step to step, and the records that a step leaves for the host (see
/// [`state`](warpwright_kernels::train::optimizer::state)).
pub(super) struct CarriedState {
    pub(super) counters: Buffer<u32>,
    /// The sums and factors that pass from micro-batch to micro-batch.
    pub(super) values: Buffer<f32>,
    pub(super) rates: Buffer<f32>,
    pub(super) taken: Buffer<u32>,
    pub(super) records: Pinned<f32>,
    pub(super) outcomes: Pinned<u32>,
}

impl StepState {
    /// Allocates the buffers, writes `adapters` to the device and loads the kernels.
    pub(super) fn new(
        context: &Context,
        settings: &Settings,
        sizes: TrainingSizes,
        arrangement: Arrangement,
        adapters: &Adapters,
    ) -> Result<StepState, Error> {
        let Settings {
            config,
            lora,
            training,
            ..
        } = settings;
        let layout = AdapterLayout::new(config, lora, arrangement);
        Ok(StepState {
            kernels: StateKernels::load(context, training)?,
            sizes,
            eps: config.eps as f32,
            head_chunk: settings.chunk(),
            adapters: FlatAdapters::new(context, layout, adapters)?,
            slots: BatchSlots::new(context, sizes.tokens)?,
            constants: Constants::new(context, config, lora)?,
            carried: CarriedState::new(context)?,
            dropout: (lora.dropout > 0.0).then(|| threshold(lora.dropout)),
            training: training.clone(),
        })
    }

    /// Copies the next micro-batch from host memory.
    pub(super) fn fetch(&self, queue: &mut impl Queue) -> Result<(), DriverError> {
        let batch = &self.slots.batch;
        let counters = &self.carried.counters;
        let args = FetchMicroBatchArgs::<Host> {
            slots: &self.slots.ring,
            counters,
            batch: &batch.all,
            words: self.slots.words,
        };
        queue.launch(&self.kernels.fetch, args)
    }

    /// Computes the loss of each token from its logits.
    pub(super) fn losses(
        &self,
        queue: &mut impl Queue,
        args: TokenLossesArgs<Host<'_>>,
    ) -> Result<(), DriverError> {
        queue.launch(&self.kernels.losses, args)
    }

    /// Counts a micro-batch and adds its losses to the loss of the step.
    pub(super) fn end_micro_batch(
        &self,
        queue: &mut impl Queue,
        losses: &View<f32>,
    ) -> Result<(), DriverError> {
        let args = EndMicroBatchArgs::<Host> {
            losses,
            factor: &self.slots.batch.factor,
            counters: &self.carried.counters,
            carried: &self.carried.values,
            tokens: self.sizes.tokens,
        };
        queue.launch(&self.kernels.end_micro_batch, args)
    }

    /// Updates the adapters with the clipped gradients, and clears the gradients for the next step.
    pub(super) fn update(&self, queue: &mut impl Queue) -> Result<(), DriverError> {
        let flat = &self.adapters;
        let parts = &flat.squares;
        let state = &self.carried;
        let n = flat.layout.len() as u32;
        queue.launch(
            &self.kernels.square_sums,
            SquareSumsArgs::<Host> {
                g: &flat.gradients,
                parts,
                n,
            },
        )?;
        let Schedule {
            lr,
            lr_min,
            warmup,
            total,
            ..
        } = self.training.schedule;
        let AdamW {
            beta1,
            beta2,
            eps,
            decay,
        } = self.training.adamw;
        let rates = &state.rates;
        let taken = &state.taken;
        let args = EndStepArgs::<Host> {
            parts,
            counters: &state.counters,
            carried: &state.values,
            rates,
            taken,
            records: &state.records,
            outcomes: &state.outcomes,
            slots: RECORDS,
            lr: lr as f32,
            lr_min: lr_min as f32,
            warmup,
            // A schedule that ends with the warmup still needs a divisor.
            decay_steps: total.saturating_sub(warmup).max(1),
            max_norm: self.training.max_norm as f32,
            beta1: beta1 as f32,
            beta2: beta2 as f32,
        };

        // `EndStep` decides whether the step is taken and computes the clip factor and the learning
        // rate, which AdamW then reads from `taken` and `rates`. The host learns them later, from
        // the records.
        queue.launch(&self.kernels.end_step, args)?;
        let args = AdamWUpdateArgs::<Host> {
            p: &flat.parameters,
            m: &flat.moments[0],
            v: &flat.moments[1],
            g: &flat.gradients,
            rates,
            taken,
            n,
            beta1: beta1 as f32,
            beta2: beta2 as f32,
            eps: eps as f32,
            decay: decay as f32,
        };
        queue.launch(&self.kernels.adamw, args)?;
        queue.fill(&flat.gradients, 0.0)
    }
}

impl StateKernels {
    /// Loads the kernels.
    fn load(context: &Context, training: &Training) -> Result<StateKernels, Error> {
        let threads = 256;
        let decay = training.schedule.decay;
        Ok(StateKernels {
            fetch: load(
                context,
                FetchMicroBatch {
                    threads,
                    slots: SLOTS,
                },
            )?,
            losses: load(context, TokenLosses { threads })?,
            end_micro_batch: load(context, EndMicroBatch { threads })?,
            square_sums: load(context, SquareSums { threads })?,
            end_step: load(context, EndStep { decay })?,
            adamw: load(context, AdamWUpdate { threads })?,
        })
    }
}

impl Constants {
    /// Computes the constants and copies them to the device.
    pub(super) fn new(context: &Context, config: &Config, lora: &Lora) -> Result<Constants, Error> {
        let turns = |radians: &f64| revolutions(radians / std::f64::consts::TAU);
        let freq: Vec<f32> = config.frequencies.iter().flat_map(turns).collect();
        let alone = Lora {
            dropout: 0.0,
            ..lora.clone()
        };
        let scale = |lora: &Lora| Buffer::from_slice(context, &[lora.scale() as f32]);
        Ok(Constants {
            one: Buffer::from_slice(context, &[1.0])?.labelled("one"),
            scale: scale(lora)?.labelled("the adapters' scale"),
            evaluation_scale: scale(&alone)?.labelled("the adapters' scale without dropout"),
            freq: Buffer::from_slice(context, &freq)?.labelled("frequencies"),
            seed: Buffer::from_slice(context, &[lora.seed as u32, (lora.seed >> 32) as u32])?
                .labelled("seed"),
        })
    }
}

impl CarriedState {
    /// Allocates the state of a training run that has taken no step.
    pub(super) fn new(context: &Context) -> Result<CarriedState, Error> {
        Ok(CarriedState {
            counters: Buffer::zeroed(context, COUNTERS)?.labelled("counters"),
            values: Buffer::zeroed(context, CARRIED)?.labelled("carried"),
            rates: Buffer::zeroed(context, 4)?.labelled("rates"),
            taken: Buffer::zeroed(context, 1)?.labelled("taken"),
            records: Pinned::zeroed(context, (RECORDS * RECORD) as usize)?.labelled("records"),
            outcomes: Pinned::zeroed(context, RECORDS as usize)?.labelled("outcomes"),
        })
    }
}
