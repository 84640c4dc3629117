//! Matmuls in `f32`, and the frozen matrices that they read.

use warpwright_driver::Error;
use warpwright_driver::launch::Host;
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;
use warpwright_kernels::train::dropout::AddMaskedArgs;
use warpwright_kernels::train::nested::{NestedArgs, NestedDequantizeArgs};
use warpwright_kernels::train::nf4::Nf4DequantizeArgs;
use warpwright_kernels::train::products::ProductArgs;

use super::kernels::MatmulKernels;
use super::step::F32Step;
use crate::projection::LayerProjection;
use crate::step::passes::adapter::{self, AdapterTerm};
use crate::step::sizes::ProjectionShape;
use crate::step::weights::{DeviceMatrix, DeviceNested, PackedMatrix, Unnesting};

/// The operands of `sum += factor a b`, in the matrix layout of `kernels`.
pub(super) struct AddedProduct<'a> {
    pub(super) kernels: &'a MatmulKernels,
    pub(super) a: &'a View<f32>,
    pub(super) b: &'a View<f32>,
    pub(super) sum: &'a View<f32>,
    pub(super) factor: &'a View<f32>,
    pub(super) rows: u32,
    pub(super) columns: u32,
    /// The number of products in each element of the sum.
    pub(super) depth: u32,
}

impl F32Step {
    /// Launches a matmul.
    pub(super) fn add_product(
        &self,
        queue: &mut impl Queue,
        product: &AddedProduct<'_>,
    ) -> Result<(), Error> {
        let AddedProduct {
            kernels,
            a,
            b,
            sum,
            factor,
            rows,
            columns,
            depth,
        } = *product;
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

    /// Returns a frozen matrix. An NF4 matrix is unpacked to scratch memory first, where it stays
    /// valid until the next call.
    pub(super) fn matrix(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
    ) -> Result<View<f32>, Error> {
        let weights = self.state.sizes.projection(of.projection).weights();
        let n = weights as u32;
        let unpacked = self.scratch.w.view_range(0..weights);
        match self.weights.matrix(of) {
            DeviceMatrix::Unpacked(w) => return Ok(w.view()),
            DeviceMatrix::Nf4(PackedMatrix { packed, absmax }) => {
                let args = Nf4DequantizeArgs::<Host> {
                    packed,
                    absmax,
                    w: &unpacked,
                    n,
                };
                queue.launch(&self.kernels.dequantize, args)?;
            }
            DeviceMatrix::Nested(DeviceNested {
                packed,
                codes,
                scales,
                offset,
            }) => {
                // `Unnesting::new` returns the kernel if any matrix is nested.
                let Unnesting { kernel, map } =
                    self.unnesting.as_ref().expect("some matrix is nested");
                let from = NestedArgs::<Host> {
                    packed,
                    codes,
                    scales,
                    map,
                };
                let args = NestedDequantizeArgs::<Host> {
                    from,
                    w: &unpacked,
                    n,
                    offset: *offset,
                };
                queue.launch(kernel, args)?;
            }
        }

        Ok(unpacked)
    }

    /// Adds the gradient of a projection's input to `dx`: first the adapter's term, then `dy W`.
    pub(super) fn add_input_gradient(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        x: &View<f32>,
        dy: &View<f32>,
        dx: &View<f32>,
    ) -> Result<(), Error> {
        let ProjectionShape { n, k } = self.state.sizes.projection(of.projection);
        if let Some(term) = adapter::gradients(self, queue, of, x, dy)? {
            self.add_adapter_dx(queue, of, &term, dx)?;
        }

        let w = self.matrix(queue, of)?;
        self.add_product(
            queue,
            &AddedProduct {
                kernels: &self.kernels.nn,
                a: dy,
                b: &w,
                sum: dx,
                factor: &self.state.constants.one,
                rows: self.state.sizes.tokens,
                columns: k,
                depth: n,
            },
        )
    }

    /// Computes `dx += m * (du A)`, in which `m` is the mask of dropout.
    fn add_adapter_dx(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        term: &AdapterTerm<f32>,
        dx: &View<f32>,
    ) -> Result<(), Error> {
        let product = AddedProduct {
            kernels: &self.kernels.nn,
            a: &term.u,
            b: &term.factor,
            sum: dx,
            factor: &self.state.constants.one,
            rows: self.state.sizes.tokens,
            columns: self.state.sizes.projection(of.projection).k,
            depth: self.state.sizes.rank,
        };
        let Some(threshold) = self.state.dropout else {
            return self.add_product(queue, &product);
        };

        // The masked input was here. It is not needed any more.
        let unmasked = self.scratch.masked.view_range(0..dx.len());
        queue.fill(&unmasked, 0.0)?;
        self.add_product(
            queue,
            &AddedProduct {
                sum: &unmasked,
                ..product
            },
        )?;
        self.add_masked(queue, of, threshold, &unmasked, dx)
    }

    /// Computes `sum += m * x`, in which `m` is the mask of dropout.
    pub(super) fn add_masked(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        threshold: u32,
        x: &View<f32>,
        sum: &View<f32>,
    ) -> Result<(), Error> {
        queue.launch(
            &self.kernels.add_masked,
            AddMaskedArgs {
                x,
                sum,
                counters: &self.state.carried.counters,
                seed: &self.state.constants.seed,
                n: self.state.sizes.tokens * self.state.sizes.projection(of.projection).k,
                stream: of.dropout_stream(),
                threshold,
            },
        )
    }
}
