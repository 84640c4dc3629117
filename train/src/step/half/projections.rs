//! Projections with their adapters in `bf16`, forward and backward.
//!
//! Each matmul unpacks the matrices of the matmul that follows it, so the order of the launches
//! here is that of `unpacked.rs`.

use ptx_gen::bf16;
use warpwright_driver::Error;
use warpwright_driver::launch::Host;
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;
use warpwright_kernels::train::half::convert::ApplyMaskArgs;
use warpwright_kernels::train::half::linear::{LoraSwiGluArgs, LoraSwiGluBackwardArgs};
use warpwright_kernels::train::products::MatmulLayout;

use super::linear::{LinearOperands, MatmulShape, sum_args};
use super::step::Bf16Step;
use super::workspaces::{MatmulMatrices, PassDirection};
use crate::Projection::{self, Down, Gate, Up};
use crate::projection::LayerProjection;
use crate::step::passes::adapter::{self, AdapterTerm};
use crate::step::passes::operations::{OutputGradient, PassPurpose};
use crate::step::sizes::ProjectionShape;

impl Bf16Step {
    /// Computes `y = x W^T + u B^T`, and adds the bias and a residual if there are any.
    pub(super) fn linear_forward(
        &self,
        queue: &mut impl Queue,
        purpose: PassPurpose,
        of: LayerProjection,
        x: &View<bf16>,
        residual: Option<&View<bf16>>,
        y: &View<bf16>,
    ) -> Result<(), Error> {
        let ProjectionShape { n, k } = self.state.sizes.projection(of.projection);
        let adapter = adapter::term(self, queue, purpose, of, x)?;
        let w = self.matrix(queue, PassDirection::Forward, of)?;
        let operands = LinearOperands {
            layout: MatmulLayout::Nt,
            x,
            w: &w,
            adapter: adapter.as_ref(),
            bias: self.weights.bias(of).map(|bias| &**bias),
            residual,
            factor: &self.state.constants.one,
            y,
            shape: MatmulShape {
                rows: self.state.sizes.tokens,
                columns: n,
                depth: k,
            },
            ahead: self.unpack_ahead(self.after(of)),
        };
        self.linear(queue, &operands)
    }

    /// Computes the up projection of layer `l` and `a = silu(g) up` in one matmul.
    pub(super) fn swiglu_linear_forward(
        &self,
        queue: &mut impl Queue,
        purpose: PassPurpose,
        l: usize,
    ) -> Result<(), Error> {
        let of = Up.of_layer(l);
        let layer = self.buffers.kept.layer(l);
        let inputs = self.buffers.kept.inputs(l);
        let ProjectionShape {
            n: columns,
            k: depth,
        } = self.state.sizes.projection(Up);
        let rows = self.state.sizes.tokens;
        let kernel = self.kernels.gated(rows, columns);
        let tiles = kernel.def().map_tiles();
        let adapter = adapter::term(self, queue, purpose, of, &inputs.x2)?;
        let w = self.matrix(queue, PassDirection::Forward, of)?;
        let ahead = self.unpack_ahead(self.after(of));
        let shape = MatmulShape {
            rows,
            columns,
            depth,
        };
        let x = &inputs.x2;
        let term = self.term(MatmulLayout::Nt, x, &w, shape, adapter.as_ref(), tiles)?;
        let map = |view: &View<bf16>| self.maps.of(view, [rows, columns], tiles.y);
        let g = map(&layer.g)?;
        let up = map(&layer.up)?;
        let a = map(&inputs.a)?;
        let args = LoraSwiGluArgs::<Host> {
            x: &term.x,
            w: &term.w,
            u: &term.u,
            b: &term.factor,
            g: &g,
            up: &up,
            a: &a,
            rows,
            columns,
            depth,
            rank: term.rank,
            blocks: self.kernels.blocks,
            ahead: ahead.args(),
        };
        queue.launch(kernel, args)
    }

    /// Computes `dx`, the gradient of a projection's input `x` plus a residual, and adds the
    /// gradients of its adapter to the sums of the step.
    pub(super) fn linear_backward(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        x: &View<bf16>,
        dy: &View<bf16>,
        residual: Option<&View<bf16>>,
        dx: &View<bf16>,
    ) -> Result<(), Error> {
        let ProjectionShape { n, k } = self.state.sizes.projection(of.projection);
        let adapter = adapter::gradients(self, queue, of, x, dy)?;

        // Dropout masks the adapter's term only. The fused kernel cannot do that, so a separate
        // kernel computes the term, which then serves as the residual.
        let masked = match (&adapter, self.state.dropout) {
            (Some(term), Some(_)) => Some(self.masked_dx(queue, of, term, residual)?),
            _ => None,
        };
        let w = self.matrix(queue, PassDirection::Backward, of)?;
        let operands = LinearOperands {
            layout: MatmulLayout::Nn,
            x: dy,
            w: &w,
            adapter: if masked.is_some() {
                None
            } else {
                adapter.as_ref()
            },
            bias: None,
            residual: masked.as_ref().or(residual),
            factor: &self.state.constants.one,
            y: dx,
            shape: MatmulShape {
                rows: self.state.sizes.tokens,
                columns: k,
                depth: n,
            },
            ahead: self.unpack_ahead(self.after_backward(of)),
        };
        self.linear(queue, &operands)
    }

    /// Computes the gradient buffer `dx` of an input that several projections share, with one
    /// matmul after the other, as dropout requires.
    pub(super) fn linear_backward_in_turn(
        &self,
        queue: &mut impl Queue,
        l: usize,
        x: &View<bf16>,
        outputs: &[OutputGradient<'_, bf16>],
    ) -> Result<(), Error> {
        let mut order: Vec<_> = outputs.iter().collect();

        // The order of `after_backward` is that of the forward pass, but with Up before Gate.
        if order[0].projection == Gate {
            order.reverse();
        }

        // Each matmul adds the result of the previous one, so two buffers alternate. The last
        // result is in `dx`.
        let dx = &self.buffers.gradients.dx;
        let partial = &self.scratch.partial_dx;
        let last = order.len() - 1;
        let mut sum: Option<&View<bf16>> = None;
        for (i, output) in order.into_iter().enumerate() {
            let to = if (last - i).is_multiple_of(2) {
                dx
            } else {
                partial
            };
            let of = output.projection.of_layer(l);
            self.linear_backward(queue, of, x, output.dy, sum, to)?;
            sum = Some(to);
        }

        Ok(())
    }

    /// Computes the gradient buffer `dx` of an input `x` that two or three projections share in one
    /// matmul, and adds the gradients of their adapters to the sums of the step.
    ///
    /// Dropout is not supported.
    pub(super) fn linear_sum_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
        x: &View<bf16>,
        outputs: &[OutputGradient<'_, bf16>],
    ) -> Result<(), Error> {
        let dx = &self.buffers.gradients.dx;
        let rows = self.state.sizes.tokens;
        let columns = self.state.sizes.hidden;
        let kernel = self.kernels.sum(rows, columns);
        let tiles = kernel.def().map_tiles();
        let projections: Vec<Projection> = outputs.iter().map(|of| of.projection).collect();

        // The previous matmul unpacked the matrices of all terms or of none.
        let is_unpacked = self.take_pending(MatmulMatrices {
            direction: PassDirection::Backward,
            layer: l,
            projections: &projections,
        });
        let mut terms = vec![];
        for &OutputGradient { projection, dy } in outputs {
            let of = projection.of_layer(l);
            let adapter = adapter::gradients(self, queue, of, x, dy)?;
            let w = if is_unpacked {
                self.unpacked_view(PassDirection::Backward, projection)
            } else {
                self.unpack(queue, PassDirection::Backward, of)?
            };
            let shape = MatmulShape {
                rows,
                columns,
                depth: self.state.sizes.projection(projection).n,
            };
            terms.push(self.term(MatmulLayout::Nn, dy, &w, shape, adapter.as_ref(), tiles)?);
        }

        let last = projections[projections.len() - 1].of_layer(l);
        let ahead = self.unpack_ahead(self.after_backward(last));
        let y = self.maps.of(dx, [rows, columns], tiles.y)?;
        let blocks = self.kernels.blocks;
        let args = sum_args(&terms, &y, [rows, columns], blocks, ahead.args());
        queue.launch(kernel, args)
    }

    /// Computes `dg` and `dup` from `dh`, back through the down projection of layer `l` and SwiGLU
    /// in one matmul, and adds the gradients of the projection's adapter to the sums of the step.
    ///
    /// Dropout is not supported.
    pub(super) fn swiglu_linear_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
    ) -> Result<(), Error> {
        let of = Down.of_layer(l);
        let layer = self.buffers.kept.layer(l);
        let a = &self.buffers.kept.inputs(l).a;
        let gradients = &self.buffers.gradients;
        let dy = &*gradients.dh;
        let ProjectionShape {
            n: depth,
            k: columns,
        } = self.state.sizes.projection(Down);
        let rows = self.state.sizes.tokens;
        let kernel = self.kernels.swiglu_linear(rows, columns);
        let tiles = kernel.def().map_tiles();
        let adapter = adapter::gradients(self, queue, of, a, dy)?;
        let w = self.matrix(queue, PassDirection::Backward, of)?;
        let ahead = self.unpack_ahead(self.after_backward(of));
        let shape = MatmulShape {
            rows,
            columns,
            depth,
        };
        let term = self.term(MatmulLayout::Nn, dy, &w, shape, adapter.as_ref(), tiles)?;
        let map = |view: &View<bf16>| self.maps.of(view, [rows, columns], tiles.y);
        let g = map(&layer.g)?;
        let up = map(&layer.up)?;
        let dg = map(&gradients.dg)?;
        let dup = map(&gradients.dup)?;
        let args = LoraSwiGluBackwardArgs::<Host> {
            x: &term.x,
            w: &term.w,
            u: &term.u,
            a: &term.factor,
            g: &g,
            up: &up,
            dg: &dg,
            dup: &dup,
            rows,
            columns,
            depth,
            rank: term.rank,
            blocks: self.kernels.blocks,
            ahead: ahead.args(),
        };
        queue.launch(kernel, args)
    }

    /// Computes `m * (du A)` plus a residual, in which `m` is the mask of dropout.
    fn masked_dx(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        term: &AdapterTerm<bf16>,
        residual: Option<&View<bf16>>,
    ) -> Result<View<bf16>, Error> {
        let rows = self.state.sizes.tokens;
        let columns = self.state.sizes.projection(of.projection).k;
        let all = 0..self.state.sizes.rows(columns);
        let product = self.scratch.masked.view_range(all.clone());
        let sum = self.scratch.masked_sum.view_range(all);
        let operands = LinearOperands {
            layout: MatmulLayout::Nn,
            x: &term.u,
            w: &term.factor,
            adapter: None,
            bias: None,
            residual: None,
            factor: &self.state.constants.one,
            y: &product,
            shape: MatmulShape {
                rows,
                columns,
                depth: self.padded_rank(),
            },
            ahead: self.nothing_ahead(),
        };
        self.linear(queue, &operands)?;
        self.mask(queue, of, &product, residual, &sum)?;
        Ok(sum)
    }

    /// Computes `y = m * x` plus a residual, in which `m` is the mask of dropout.
    pub(super) fn mask(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        x: &View<bf16>,
        residual: Option<&View<bf16>>,
        y: &View<bf16>,
    ) -> Result<(), Error> {
        let nothing = x.view_range(0..0);
        let kernel = if residual.is_some() {
            &self.kernels.add_mask
        } else {
            &self.kernels.mask
        };
        let args = ApplyMaskArgs::<Host> {
            x,
            residual: residual.unwrap_or(&nothing),
            y,
            counters: &self.state.carried.counters,
            seed: &self.state.constants.seed,
            n: x.len() as u32,
            stream: of.dropout_stream(),
            threshold: self.state.dropout.unwrap_or(0),
        };
        queue.launch(kernel, args)
    }
}
