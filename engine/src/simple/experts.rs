//! A mixture of experts with the simple kernels.
//!
//! The router's logits choose the experts on the device, and each chosen expert is a slot. The
//! products of all slots run in one launch, which reads the indices of the experts from device
//! memory. The results are added in the order of the slots, so they do not depend on scheduling.

use std::sync::Arc;

use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::{Buffer, View};
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Error};
use warpwright_kernels::simple::choose_experts::{ChooseExpertsArgs, MAX_CHOSEN, MAX_EXPERTS};
use warpwright_kernels::simple::experts::{
    AddExpertBiasArgs, AddExpertsArgs, AddGatedArgs, CombineExpertsArgs, ExpertGemvArgs,
};
use warpwright_kernels::{
    AddExpertBias, AddExperts, AddGated, ChooseExperts, CombineExperts, ExpertGemv, Gemv, GemvAdd,
    Team,
};
use warpwright_model::layer::{Experts, SharedExpert};
use warpwright_model::{Config, Weight};

use crate::distinct::SharedKernels;
use crate::kernel_terms::{kernel_format, kernel_weighting};
use crate::simple::added_bias::AddedBias;
use crate::simple::gate::{GateKernel, GateVectors};
use crate::simple::matrix::GemvMatrix;

/// The experts of a layer, with their kernels.
pub(crate) struct SimpleExperts {
    /// The rows of the router.
    pub(crate) router: GemvMatrix<Gemv>,
    /// The bias of the router, if it has one.
    router_bias: Option<AddedBias>,
    pub(crate) gate: ExpertMatrices,
    pub(crate) up: ExpertMatrices,
    pub(crate) down: ExpertMatrices,
    pub(crate) shared: Option<SimpleSharedExpert>,
    choose: Arc<Kernel<ChooseExperts>>,
    combine: Arc<Kernel<CombineExperts>>,
    add: Arc<Kernel<AddExperts>>,
}

/// The expert that every token passes.
pub(crate) struct SimpleSharedExpert {
    pub(crate) gate: GemvMatrix<Gemv>,
    pub(crate) up: GemvMatrix<Gemv>,
    pub(crate) down: SharedDown,
}

/// The down projection of a shared expert, whose result is added to the results of the experts.
pub(crate) enum SharedDown {
    /// `y += W x`.
    Plain(GemvMatrix<GemvAdd>),
    /// `y += sigmoid(w . input) * W x`.
    Gated {
        down: GemvMatrix<Gemv>,
        /// The vector `w`, as a matrix of one row.
        router: GemvMatrix<Gemv>,
        add: Arc<Kernel<AddGated>>,
    },
}

/// The matrices of all experts of a layer, one after the other, and their kernel.
pub(crate) struct ExpertMatrices {
    kernel: Arc<Kernel<ExpertGemv>>,
    /// The weights, as the file stores them.
    w: View<u8>,
    /// The biases of all experts, `[experts, rows]`, and their kernel, if they have biases.
    bias: Option<(Arc<Kernel<AddExpertBias>>, View<f32>)>,
    experts: u32,
    rows: u32,
    n: u32,
}

/// The intermediate results of a mixture of experts. Layers use them one after the other.
pub(crate) struct ExpertBuffers {
    /// The logits of the router, `[count]`.
    logits: Buffer<f32>,
    /// The expert of each slot, `[chosen]`.
    index: Buffer<u32>,
    /// The weight of each slot, `[chosen]`.
    weight: Buffer<f32>,
    /// The outputs of the gate projections, `[chosen, width]`, or those of the shared expert.
    gate: Buffer<f32>,
    /// The outputs of the up projections, with the length of `gate`.
    up: Buffer<f32>,
    /// The inputs of the down projections, with the length of `gate`.
    inner: Buffer<f32>,
    /// The outputs of the down projections, `[chosen, hidden]`.
    slots: Buffer<f32>,
    /// The logit of the shared expert's gate, `[1]`.
    shared_logit: Buffer<f32>,
    /// The output of the shared expert before its gate, `[hidden]`.
    shared: Buffer<f32>,
    /// The sum of all experts before it is normed, `[hidden]`.
    pub(crate) sum: Buffer<f32>,
}

/// The largest sizes of the mixtures of a model.
struct ExpertSizes {
    count: u32,
    chosen: u32,
    /// The length of the gate projections of a token.
    gate: u32,
    hidden: u32,
}

impl ExpertSizes {
    /// Returns the sizes, or `None` if the model has no experts.
    fn of(c: &Config) -> Option<ExpertSizes> {
        let most = |size: fn(&Experts) -> u32| c.experts().map(size).max();
        Some(ExpertSizes {
            count: most(|experts| experts.count)?,
            chosen: most(|experts| experts.chosen)?,
            gate: most(|experts| {
                let shared = experts.shared.map_or(0, |shared| shared.width);
                shared.max(experts.chosen * experts.width)
            })?,
            hidden: c.hidden,
        })
    }
}

/// Returns the bytes of the intermediate results of experts.
pub(crate) fn expert_bytes(c: &Config) -> u64 {
    ExpertSizes::of(c).map_or(0, |sizes| {
        let ExpertSizes {
            count,
            chosen,
            gate,
            hidden,
        } = sizes;
        let [count, chosen, gate, hidden] = [count, chosen, gate, hidden].map(u64::from);
        4 * (count + 2 * chosen + 3 * gate + (chosen + 2) * hidden + 1)
    })
}

/// Returns true if the kernels cannot compute a mixture of experts, because it is too large.
pub(crate) fn too_many(experts: &Experts) -> bool {
    experts.count > MAX_EXPERTS || experts.chosen > MAX_CHOSEN
}

impl ExpertBuffers {
    /// Allocates the buffers, or returns `None` if the model has no experts.
    pub(crate) fn new(context: &Context, c: &Config) -> Result<Option<ExpertBuffers>, Error> {
        let Some(sizes) = ExpertSizes::of(c) else {
            return Ok(None);
        };
        let floats = |name: &str, len: u32| {
            Buffer::uninit(context, len as usize).map(|buffer| buffer.labelled(name))
        };
        Ok(Some(ExpertBuffers {
            logits: floats("experts.logits", sizes.count)?,
            index: Buffer::zeroed(context, sizes.chosen as usize)?.labelled("experts.index"),
            weight: floats("experts.weight", sizes.chosen)?,
            gate: floats("experts.gate", sizes.gate)?,
            up: floats("experts.up", sizes.gate)?,
            inner: floats("experts.inner", sizes.gate)?,
            slots: floats("experts.slots", sizes.chosen * sizes.hidden)?,
            shared_logit: floats("experts.shared_logit", 1)?,
            shared: floats("experts.shared", sizes.hidden)?,
            sum: floats("experts.sum", sizes.hidden)?,
        }))
    }
}

/// The kernels of experts that were loaded so far.
pub(crate) struct ExpertKernels<'c> {
    gemv: SharedKernels<'c, ExpertGemv>,
    choose: SharedKernels<'c, ChooseExperts>,
    combine: SharedKernels<'c, CombineExperts>,
    add: SharedKernels<'c, AddExperts>,
    add_gated: SharedKernels<'c, AddGated>,
    bias: SharedKernels<'c, AddExpertBias>,
}

/// The weights of a layer's experts.
pub(crate) struct ExpertWeights<'a> {
    pub(crate) router: GemvMatrix<Gemv>,
    pub(crate) router_bias: Option<AddedBias>,
    pub(crate) gate: ExpertWeight<'a>,
    pub(crate) up: ExpertWeight<'a>,
    pub(crate) down: ExpertWeight<'a>,
    pub(crate) shared: Option<SimpleSharedExpert>,
}

/// The matrices of all experts: their description, their bytes, and their biases.
pub(crate) struct ExpertWeight<'a> {
    pub(crate) weight: &'a Weight,
    pub(crate) w: &'a View<u8>,
    pub(crate) bias: Option<View<f32>>,
}

impl<'c> ExpertKernels<'c> {
    pub(crate) fn new(context: &'c Context) -> ExpertKernels<'c> {
        ExpertKernels {
            gemv: SharedKernels::new(context),
            choose: SharedKernels::new(context),
            combine: SharedKernels::new(context),
            add: SharedKernels::new(context),
            add_gated: SharedKernels::new(context),
            bias: SharedKernels::new(context),
        }
    }

    /// Loads the kernels of a layer's experts.
    pub(crate) fn experts(
        &mut self,
        experts: &Experts,
        weights: ExpertWeights<'_>,
    ) -> Result<SimpleExperts, Error> {
        let weighting = kernel_weighting(experts.weighting);
        Ok(SimpleExperts {
            router: weights.router,
            router_bias: weights.router_bias,
            gate: self.matrices(weights.gate)?,
            up: self.matrices(weights.up)?,
            down: self.matrices(weights.down)?,
            shared: weights.shared,
            choose: self.choose.load(ChooseExperts { weighting })?,
            combine: self.combine.load(CombineExperts)?,
            add: self.add.load(AddExperts)?,
        })
    }

    /// Loads the down projection of a shared expert with a gate.
    pub(crate) fn gated(
        &mut self,
        down: GemvMatrix<Gemv>,
        router: GemvMatrix<Gemv>,
    ) -> Result<SharedDown, Error> {
        Ok(SharedDown::Gated {
            down,
            router,
            add: self.add_gated.load(AddGated)?,
        })
    }

    fn matrices(&mut self, matrices: ExpertWeight<'_>) -> Result<ExpertMatrices, Error> {
        let ExpertWeight { weight, w, bias } = matrices;
        let format = kernel_format(weight.format);
        let rows = weight.rows();
        let n = weight.row_len();
        let team = Team::of(format, rows, n);
        Ok(ExpertMatrices {
            kernel: self.gemv.load(ExpertGemv { format, team })?,
            w: w.clone(),
            bias: match bias {
                Some(bias) => Some((self.bias.load(AddExpertBias)?, bias)),
                None => None,
            },
            experts: weight.matrices(),
            rows,
            n,
        })
    }
}

/// The vectors that a mixture of experts reads and writes.
pub(crate) struct ExpertPass<'a> {
    pub(crate) described: &'a Experts,
    pub(crate) layer: &'a SimpleExperts,
    pub(crate) gate: &'a GateKernel,
    pub(crate) buffers: &'a ExpertBuffers,
    /// The input of the experts, `[hidden]`.
    pub(crate) x: &'a View<f32>,
}

/// The destination of the sum of the experts.
pub(crate) enum ExpertOutput<'a> {
    /// The sum is added to this vector, which may be the input.
    Added(&'a View<f32>),
    /// The sum replaces this vector, which is not the input.
    Stored(&'a View<f32>),
}

impl ExpertPass<'_> {
    /// Queues the experts and the shared expert.
    pub(crate) fn run(
        &self,
        queue: &mut impl Queue,
        output: ExpertOutput<'_>,
    ) -> Result<(), Error> {
        let b = self.buffers;
        let Experts { chosen, width, .. } = *self.described;
        self.choose(queue)?;
        let inner = chosen * width;
        let [gate, up] = [&b.gate, &b.up].map(|buffer| part(buffer, inner));
        self.products(queue, &self.layer.gate, self.x, Inputs::One, &gate)?;
        self.products(queue, &self.layer.up, self.x, Inputs::One, &up)?;
        let inner = self.activate(queue, inner)?;
        let slots = part(&b.slots, chosen * self.layer.down.rows);
        self.products(queue, &self.layer.down, &inner, Inputs::Each, &slots)?;

        // The shared expert reads the input too, and the sum may be added to the input.
        if let (Some(shared), Some(described)) = (&self.layer.shared, &self.described.shared) {
            self.shared_inner(queue, shared, described)?;
        }
        let y = self.sum(queue, &slots, output)?;
        if let (Some(shared), Some(described)) = (&self.layer.shared, &self.described.shared) {
            self.add_shared(queue, shared, described, y)?;
        }
        Ok(())
    }

    /// Queues the router and the choice of the experts.
    fn choose(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = self.buffers;
        let Experts {
            count,
            chosen,
            weight_scale,
            ..
        } = *self.described;
        let logits = part(&b.logits, count);
        self.layer.router.launch(queue, self.x, &logits)?;
        if let Some(bias) = &self.layer.router_bias {
            bias.launch(queue, &logits)?;
        }
        let args = ChooseExpertsArgs::<Host> {
            logits: &logits,
            index: &b.index.view_range(0..chosen as usize),
            weight: &part(&b.weight, chosen),
            count,
            chosen,
            scale: weight_scale,
        };
        queue.launch(&self.layer.choose, args)
    }

    /// Queues the product of each slot, and the addition of its bias.
    fn products(
        &self,
        queue: &mut impl Queue,
        matrices: &ExpertMatrices,
        x: &View<f32>,
        inputs: Inputs,
        y: &View<f32>,
    ) -> Result<(), Error> {
        let chosen = self.described.chosen;
        let ExpertMatrices {
            kernel,
            w,
            bias,
            experts,
            rows,
            n,
        } = matrices;
        let index = &self.buffers.index.view_range(0..chosen as usize);
        let args = ExpertGemvArgs::<Host> {
            w,
            index,
            x,
            y,
            experts: *experts,
            slots: chosen,
            rows: *rows,
            n: *n,
            x_step: match inputs {
                Inputs::One => 0,
                Inputs::Each => *n,
            },
        };
        queue.launch(kernel, args)?;
        let Some((kernel, bias)) = bias else {
            return Ok(());
        };
        let args = AddExpertBiasArgs::<Host> {
            bias,
            index,
            y,
            experts: *experts,
            slots: chosen,
            n: *rows,
        };
        queue.launch(kernel, args)
    }

    /// Queues the activation of `n` gates, and returns its results.
    fn activate(&self, queue: &mut impl Queue, n: u32) -> Result<View<f32>, Error> {
        let b = self.buffers;
        let inner = part(&b.inner, n);
        let vectors = GateVectors {
            gate: &part(&b.gate, n),
            up: &part(&b.up, n),
            y: &inner,
        };
        self.gate.launch(queue, vectors)?;
        Ok(inner)
    }

    /// Queues the parts of the shared expert that read the input.
    fn shared_inner(
        &self,
        queue: &mut impl Queue,
        shared: &SimpleSharedExpert,
        described: &SharedExpert,
    ) -> Result<(), Error> {
        let b = self.buffers;
        let width = described.width;
        shared.gate.launch(queue, self.x, &part(&b.gate, width))?;
        shared.up.launch(queue, self.x, &part(&b.up, width))?;
        self.activate(queue, width)?;
        match &shared.down {
            SharedDown::Plain(_) => Ok(()),
            SharedDown::Gated { router, .. } => router.launch(queue, self.x, &b.shared_logit),
        }
    }

    /// Queues the sum over the slots, and returns its destination.
    fn sum<'o>(
        &self,
        queue: &mut impl Queue,
        x: &View<f32>,
        output: ExpertOutput<'o>,
    ) -> Result<&'o View<f32>, Error> {
        let slots = self.described.chosen;
        let n = self.layer.down.rows;
        let weight = &part(&self.buffers.weight, slots);
        match output {
            ExpertOutput::Added(y) => {
                let args = AddExpertsArgs::<Host> {
                    weight,
                    x,
                    y,
                    slots,
                    n,
                };
                queue.launch(&self.layer.add, args)?;
                Ok(y)
            }
            ExpertOutput::Stored(y) => {
                let args = CombineExpertsArgs::<Host> {
                    weight,
                    x,
                    y,
                    slots,
                    n,
                };
                queue.launch(&self.layer.combine, args)?;
                Ok(y)
            }
        }
    }

    /// Queues the addition of the shared expert to `y`.
    fn add_shared(
        &self,
        queue: &mut impl Queue,
        shared: &SimpleSharedExpert,
        described: &SharedExpert,
        y: &View<f32>,
    ) -> Result<(), Error> {
        let b = self.buffers;
        let inner = part(&b.inner, described.width);
        match &shared.down {
            SharedDown::Plain(down) => down.launch(queue, &inner, y),
            SharedDown::Gated { down, add, .. } => {
                down.launch(queue, &inner, &b.shared)?;
                let args = AddGatedArgs::<Host> {
                    gate: &b.shared_logit,
                    x: &b.shared,
                    y,
                    n: down.rows,
                };
                queue.launch(add, args)
            }
        }
    }
}

/// The inputs of the products of all slots.
#[derive(Clone, Copy)]
enum Inputs {
    /// All slots read the same vector.
    One,
    /// Each slot reads its own vector.
    Each,
}

/// Returns the first `len` elements of a buffer.
fn part(buffer: &Buffer<f32>, len: u32) -> View<f32> {
    buffer.view_range(0..len as usize)
}
