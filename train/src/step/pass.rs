//! The state of an `f32` step on the device, and the operations that its forward and backward
//! passes share, such as projections with their adapters.

use std::ops::Deref;

use warpwright_driver::{Error, Host, Kernel, Queue, View};
use warpwright_kernels::train::dropout::AddMaskedArgs;
use warpwright_kernels::train::linear::BroadcastRowArgs;
use warpwright_kernels::train::nested::{NestedArgs, NestedDequantize, NestedDequantizeArgs};
use warpwright_kernels::train::nf4::Nf4DequantizeArgs;
use warpwright_kernels::train::products::ProductArgs;
use warpwright_kernels::train::rms_norm::RmsNormForwardArgs;
use warpwright_kernels::train::rope::{RotateHeads, RotateHeadsArgs};

use super::buffers::F32Buffers;
use super::common::{CommonState, Place, Purpose};
use super::kernels::{F32Kernels, MatmulKernels};
use super::sizes::TrainingSizes;
use super::weights::{DeviceMatrix, DeviceNested, DeviceWeights, Unnesting};
use crate::Projection;

/// A step in `f32`: its kernels, weights and buffers.
pub(super) struct F32Step {
    pub(super) common: CommonState,
    pub(super) kernels: F32Kernels,
    pub(super) weights: DeviceWeights,
    pub(super) unnesting: Option<Unnesting<NestedDequantize>>,
    pub(super) buffers: F32Buffers,
}

impl Deref for F32Step {
    type Target = CommonState;

    fn deref(&self) -> &CommonState {
        &self.common
    }
}

impl F32Step {
    /// Computes `sum += factor a b`, in the matrix layout of `kernels`.
    pub(super) fn product(
        &self,
        queue: &mut impl Queue,
        kernels: &MatmulKernels,
        [a, b, sum]: [&View<f32>; 3],
        factor: &View<f32>,
        [rows, columns, depth]: [u32; 3],
    ) -> Result<(), Error> {
        let wide = columns.is_multiple_of(4) && depth.is_multiple_of(4);
        let kernel = if wide { &kernels.wide } else { &kernels.narrow };
        queue.launch(
            kernel,
            ProductArgs {
                a,
                b,
                sum,
                factor,
                rows,
                columns,
                depth,
            },
        )
    }

    /// Adds `x W^T + u B^T` to `y`, the output of a projection and of its adapter.
    pub(super) fn project(
        &self,
        queue: &mut impl Queue,
        purpose: Purpose,
        (l, p): Place,
        x: &View<f32>,
        y: &View<f32>,
    ) -> Result<(), Error> {
        let [n, k] = self.sizes.of(p);
        let m = self.sizes.tokens;
        let one = &self.constants.one;
        let w = self.matrix(queue, (l, p))?;
        self.product(queue, &self.kernels.nt, [x, &w, y], one, [m, n, k])?;
        match self.adapter_u(queue, purpose, (l, p), x)? {
            Some([u, b]) => self.product(
                queue,
                &self.kernels.nt,
                [&u, &b, y],
                one,
                [m, n, self.sizes.rank],
            ),
            None => Ok(()),
        }
    }

    /// Computes `u = scale x A^T` and returns `u` and B, or returns `None` if the projection has no
    /// adapter.
    pub(super) fn adapter_u(
        &self,
        queue: &mut impl Queue,
        purpose: Purpose,
        (l, p): Place,
        x: &View<f32>,
    ) -> Result<Option<[View<f32>; 2]>, Error> {
        let u = &self.buffers.kept.layer(l).u[p as usize];
        let (Some([a, b]), Some(u)) = (self.adapter((l, p)), u) else {
            return Ok(None);
        };
        let (x, scale) = match purpose {
            Purpose::Training => (self.input(queue, (l, p), x)?, &self.constants.scale),
            Purpose::Evaluation => (x.clone(), &self.constants.evaluation_scale),
        };
        let m = self.sizes.tokens;
        let k = self.sizes.of(p)[1];
        let rank = self.sizes.rank;
        queue.fill(u, 0.0)?;
        self.product(queue, &self.kernels.nt, [&x, &a, u], scale, [m, rank, k])?;
        Ok(Some([u.view(), b]))
    }

    /// Sets `y` to the bias or to zeros, and adds the projection to it as
    /// [`project`](Self::project).
    pub(super) fn project_afresh(
        &self,
        queue: &mut impl Queue,
        purpose: Purpose,
        (l, p): Place,
        x: &View<f32>,
        y: &View<f32>,
    ) -> Result<(), Error> {
        match &self.weights.layers[l].biases[p as usize] {
            Some(row) => {
                let rows = self.sizes.tokens;
                let n = self.sizes.of(p)[0];
                queue.launch(&self.kernels.bias, BroadcastRowArgs { row, y, rows, n })?;
            }
            None => queue.fill(y, 0.0)?,
        }
        self.project(queue, purpose, (l, p), x, y)
    }

    /// Adds the gradient of a projection's input to `dx`, and the gradients of its adapter to the
    /// sums of the step.
    pub(super) fn project_backward(
        &self,
        queue: &mut impl Queue,
        (l, p): Place,
        dy: &View<f32>,
        x: &View<f32>,
        dx: &View<f32>,
    ) -> Result<(), Error> {
        let [n, k] = self.sizes.of(p);
        let m = self.sizes.tokens;
        let rank = self.sizes.rank;
        let F32Kernels { nn, tn, .. } = &self.kernels;
        let one = &self.constants.one;
        let gradients = self.flat.layout.of_projection(&self.flat.gradients, l, p);
        let u = &self.buffers.kept.layer(l).u[p as usize];
        if let (Some([a, b]), Some([da, db]), Some(u)) = (self.adapter((l, p)), gradients, u) {
            let du = &self.buffers.work.du;
            queue.fill(du, 0.0)?;
            self.product(queue, nn, [dy, &b, du], &self.constants.scale, [m, rank, n])?;
            self.product(queue, tn, [dy, u, &db], one, [n, rank, m])?;
            // With dropout, `input` is in `work.masked`, which `add_adapter_dx` overwrites.
            let input = self.input(queue, (l, p), x)?;
            self.product(queue, tn, [du, &input, &da], one, [rank, k, m])?;
            self.add_adapter_dx(queue, (l, p), &a, dx)?;
        }
        let w = self.matrix(queue, (l, p))?;
        self.product(queue, nn, [dy, &w, dx], one, [m, k, n])
    }

    /// Computes `dx += m * (du A)`, in which `m` is the mask of dropout.
    fn add_adapter_dx(
        &self,
        queue: &mut impl Queue,
        place: Place,
        a: &View<f32>,
        dx: &View<f32>,
    ) -> Result<(), Error> {
        let m = self.sizes.tokens;
        let k = self.sizes.of(place.1)[1];
        let rank = self.sizes.rank;
        let nn = &self.kernels.nn;
        let one = &self.constants.one;
        let work = &self.buffers.work;
        let Some(threshold) = self.dropout else {
            return self.product(queue, nn, [&work.du, a, dx], one, [m, k, rank]);
        };
        let all = work.masked.view_range(0..dx.len());
        queue.fill(&all, 0.0)?;
        self.product(queue, nn, [&work.du, a, &all], one, [m, k, rank])?;
        self.add_masked(queue, place, threshold, &all, dx)
    }

    /// Returns the input of an adapter: `x`, or a copy of `x` after dropout.
    fn input(
        &self,
        queue: &mut impl Queue,
        place: Place,
        x: &View<f32>,
    ) -> Result<View<f32>, Error> {
        let Some(threshold) = self.dropout else {
            return Ok(x.clone());
        };
        let masked = self.buffers.work.masked.view_range(0..x.len());
        queue.fill(&masked, 0.0)?;
        self.add_masked(queue, place, threshold, x, &masked)?;
        Ok(masked)
    }

    /// Computes `sum += m * x`, in which `m` is the mask of dropout.
    fn add_masked(
        &self,
        queue: &mut impl Queue,
        (l, p): Place,
        threshold: u32,
        x: &View<f32>,
        sum: &View<f32>,
    ) -> Result<(), Error> {
        let n = self.sizes.tokens * self.sizes.of(p)[1];
        // Each projection draws from a separate stream of random numbers. The backward pass draws
        // the same numbers again, so masks are not kept.
        let stream = (Projection::ALL.len() * l) as u32 + p as u32;
        let counters = &self.state.counters;
        let seed = &self.constants.seed;
        queue.launch(
            &self.kernels.add_masked,
            AddMaskedArgs {
                x,
                sum,
                counters,
                seed,
                n,
                stream,
                threshold,
            },
        )
    }

    /// Returns A and B of a projection, or `None` if it has no adapter.
    fn adapter(&self, (l, p): Place) -> Option<[View<f32>; 2]> {
        self.flat.layout.of_projection(&self.flat.parameters, l, p)
    }

    /// Returns a frozen matrix. An NF4 matrix is unpacked to the workspace first, where it stays
    /// valid until the next call.
    fn matrix(&self, queue: &mut impl Queue, (l, p): Place) -> Result<View<f32>, Error> {
        let [n, k] = self.sizes.of(p);
        match &self.weights.layers[l].projections[p as usize] {
            DeviceMatrix::F32(w) => Ok(w.view()),
            DeviceMatrix::Nf4 { packed, absmax } => {
                let w = self.buffers.work.w.view_range(0..n as usize * k as usize);
                let args = Nf4DequantizeArgs::<Host> {
                    packed,
                    absmax,
                    w: &w,
                    n: n * k,
                };
                queue.launch(&self.kernels.dequantize, args)?;
                Ok(w)
            }
            DeviceMatrix::Nested(DeviceNested {
                packed,
                codes,
                scales,
                offset,
            }) => {
                let w = self.buffers.work.w.view_range(0..n as usize * k as usize);
                // `Unnesting::new` returns the kernel if any matrix is nested.
                let Unnesting { kernel, map } =
                    self.unnesting.as_ref().expect("some matrix is nested");
                let n = n * k;
                let offset = *offset;
                let from = NestedArgs::<Host> {
                    packed,
                    codes,
                    scales,
                    map,
                };
                let args = NestedDequantizeArgs::<Host> {
                    from,
                    w: &w,
                    n,
                    offset,
                };
                queue.launch(kernel, args)?;
                Ok(w)
            }
        }
    }

    /// Computes `y`, the RMSNorm of `x` with gains `g`, and the reciprocal norms `inv`.
    pub(super) fn norm(
        &self,
        queue: &mut impl Queue,
        [x, g, y, inv]: [&View<f32>; 4],
    ) -> Result<(), Error> {
        let args = RmsNormForwardArgs::<Host> {
            x,
            g,
            y,
            inv,
            n: g.len() as u32,
            eps: self.eps,
        };
        queue.launch(&self.kernels.norm, args)
    }

    /// Applies the rotation of `kernel` to heads in place.
    pub(super) fn rotate(
        &self,
        queue: &mut impl Queue,
        kernel: &Kernel<RotateHeads>,
        x: &View<f32>,
        heads: u32,
    ) -> Result<(), Error> {
        let TrainingSizes {
            tokens, head_dim, ..
        } = self.sizes;
        let positions = &self.slots.batch.positions;
        let freq = &self.constants.freq;
        queue.launch(
            kernel,
            RotateHeadsArgs {
                positions,
                freq,
                x,
                tokens,
                heads,
                head_dim,
            },
        )
    }
}
