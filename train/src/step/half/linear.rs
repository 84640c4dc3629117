//! Launches of projections with their adapters, forward and backward.

use std::sync::Arc;

use ptx_gen::bf16;
use warpwright_driver::{Error, Host, MapArg, Queue, View};
use warpwright_kernels::train::half::convert::ApplyMaskArgs;
use warpwright_kernels::train::half::linear::{
    AheadArgs, LoraLinearArgs, LoraSumArgs, LoraSwiGluArgs, LoraSwiGluBackwardArgs, MapTiles,
};
use warpwright_kernels::train::half::lora::{LoraDownArgs, LoraGradientsArgs};
use warpwright_kernels::train::products::MatmulLayout;

use super::buffers::Bf16LayerBuffers;
use super::limits::padded;
use super::pass::Bf16Step;
use super::unpacked::UnpackedAhead;
use super::workspaces::Way;
use crate::Projection;
use crate::step::common::{Place, Purpose};

/// The operands of a matmul `y = factor x W + u B`, to which a bias and a residual may be added.
/// See [`LoraLinear`](warpwright_kernels::train::half::linear::LoraLinear).
pub(super) struct Linear<'a> {
    pub(super) form: MatmulLayout,
    pub(super) x: &'a View<bf16>,
    pub(super) w: &'a View<bf16>,
    /// The second pair of operands, `u` and B.
    pub(super) adapter: Option<[&'a View<bf16>; 2]>,
    pub(super) bias: Option<&'a View<f32>>,
    pub(super) residual: Option<&'a View<bf16>>,
    pub(super) factor: &'a View<f32>,
    pub(super) y: &'a View<bf16>,
    /// The rows and columns of `y`, and the length of a row of `x`.
    pub(super) shape: [u32; 3],
    /// The matrices that the kernel unpacks for the next matmul.
    pub(super) ahead: UnpackedAhead,
}

/// The tensor maps and lengths of one projection, a term of a sum of matmuls.
struct Term {
    x: Arc<MapArg>,
    w: Arc<MapArg>,
    u: Arc<MapArg>,
    a: Arc<MapArg>,
    depth: u32,
    rank: u32,
}

impl Bf16Step {
    /// Launches a matmul.
    pub(super) fn linear(&self, queue: &mut impl Queue, of: &Linear<'_>) -> Result<(), Error> {
        let [rows, columns, depth] = of.shape;
        let rank = if of.adapter.is_some() {
            self.padded_rank()
        } else {
            0
        };
        let added = [of.bias.is_some(), of.residual.is_some()];
        let kernel = self.kernels.linear(of.form, added, [rows, columns]);
        let tiles = kernel.def().map_tiles();
        let w = if of.form == MatmulLayout::Nt {
            [columns, depth]
        } else {
            [depth, columns]
        };
        // Without an adapter, the kernel does not read the second pair. Its maps must still be
        // valid, so they describe 8 elements of the first pair.
        let [u, b] = of.adapter.unwrap_or([of.x, of.w]);
        let shapes = match of.adapter {
            Some(_) => [[rows, rank], [rank, columns]],
            None => [[1, 8], [1, 8]],
        };
        let residual = match of.residual {
            Some(residual) => self.maps.of(residual, [rows, columns], tiles.y)?,
            None => self.maps.of(of.x, [1, 8], tiles.y)?,
        };
        let maps = [
            self.maps.of(of.x, [rows, depth], tiles.x)?,
            self.maps.of(of.w, w, tiles.w)?,
            self.maps.of(u, shapes[0], tiles.x)?,
            self.maps.of(b, shapes[1], tiles.b)?,
            self.maps.of(of.y, [rows, columns], tiles.y)?,
        ];
        let [x, w, u, b, y] = maps.each_ref().map(|map| &**map);
        let no_bias = of.factor.view_range(0..0);
        let args = LoraLinearArgs::<Host> {
            x,
            w,
            u,
            b,
            bias: of.bias.unwrap_or(&no_bias),
            residual: &residual,
            factor: of.factor,
            y,
            rows,
            columns,
            depth,
            rank,
            blocks: self.kernels.blocks,
            ahead: of.ahead.args(),
        };
        queue.launch(kernel, args)
    }

    /// Computes `y = x W^T + u B^T`, and adds the bias and a residual if there are any.
    pub(super) fn project(
        &self,
        queue: &mut impl Queue,
        purpose: Purpose,
        (l, p): Place,
        x: &View<bf16>,
        residual: Option<&View<bf16>>,
        y: &View<bf16>,
    ) -> Result<(), Error> {
        let [n, k] = self.sizes.of(p);
        let rows = self.sizes.tokens;
        let pair = self.adapter_u(queue, purpose, (l, p), x)?;
        let w = self.matrix(queue, Way::Forward, (l, p))?;
        let bias = self.weights.layers[l].biases[p as usize].as_ref();
        let linear = Linear {
            form: MatmulLayout::Nt,
            x,
            w: &w,
            adapter: pair.as_ref().map(|[u, b]| [u, b]),
            bias: bias.map(|bias| &**bias),
            residual,
            factor: &self.constants.one,
            y,
            shape: [rows, n, k],
            ahead: self.unpack_ahead(self.after((l, p))),
        };
        self.linear(queue, &linear)
    }

    /// Computes the projection `up` of the feed-forward block, and `a = silu(g) up`.
    pub(super) fn gated_linear(
        &self,
        queue: &mut impl Queue,
        purpose: Purpose,
        l: usize,
        x: &View<bf16>,
        [g, up, a]: [&View<bf16>; 3],
    ) -> Result<(), Error> {
        let place = (l, Projection::Up);
        let [columns, depth] = self.sizes.of(place.1);
        let rows = self.sizes.tokens;
        let kernel = self.kernels.gated([rows, columns]);
        let tiles = kernel.def().map_tiles();
        let pair = self.adapter_u(queue, purpose, place, x)?;
        let w = self.matrix(queue, Way::Forward, place)?;
        let ahead = self.unpack_ahead(self.after(place));
        let Term {
            x,
            w,
            u,
            a: b,
            depth,
            rank,
        } = self.term(
            MatmulLayout::Nt,
            [x, &w],
            [rows, columns, depth],
            pair,
            tiles,
        )?;
        let map = |view: &View<bf16>| self.maps.of(view, [rows, columns], tiles.y);
        let g = map(g)?;
        let up = map(up)?;
        let a = map(a)?;
        let args = LoraSwiGluArgs::<Host> {
            x: &x,
            w: &w,
            u: &u,
            b: &b,
            g: &g,
            up: &up,
            a: &a,
            rows,
            columns,
            depth,
            rank,
            blocks: self.kernels.blocks,
            ahead: ahead.args(),
        };
        queue.launch(kernel, args)
    }

    /// Computes `u = scale x A^T` and returns `u` and B, or returns `None` if the projection has no
    /// adapter.
    pub(super) fn adapter_u(
        &self,
        queue: &mut impl Queue,
        purpose: Purpose,
        (l, p): Place,
        x: &View<bf16>,
    ) -> Result<Option<[View<bf16>; 2]>, Error> {
        let u = &self.buffers.kept.layer(l).u[p as usize];
        let (Some([a, b]), Some(u)) = (self.adapter((l, p)), u) else {
            return Ok(None);
        };
        let (x, factor) = match purpose {
            Purpose::Training => (self.input(queue, (l, p), x)?, &self.constants.scale),
            Purpose::Evaluation => (x.clone(), &self.constants.evaluation_scale),
        };
        let rows = self.sizes.tokens;
        let depth = self.sizes.of(p)[1];
        let args = LoraDownArgs::<Host> {
            x: &x,
            a: &a,
            factor,
            u,
            rows,
            depth,
        };
        queue.launch(&self.kernels.down, args)?;
        Ok(Some([u.view(), b]))
    }

    /// Computes `dx`, the gradient of a projection's input `x` plus a residual, and adds the
    /// gradients of its adapter to the sums of the step.
    pub(super) fn project_backward(
        &self,
        queue: &mut impl Queue,
        (l, p): Place,
        [dy, x]: [&View<bf16>; 2],
        residual: Option<&View<bf16>>,
        dx: &View<bf16>,
    ) -> Result<(), Error> {
        let [n, k] = self.sizes.of(p);
        let rows = self.sizes.tokens;
        let adapter = self.adapter((l, p));
        if let Some([_, b]) = &adapter {
            self.adapter_gradients(queue, (l, p), [dy, x], b)?;
        }
        let du = &self.buffers.work.du[p as usize];
        let pair = adapter.as_ref().map(|[a, _]| [&**du, a]);
        // Dropout masks the adapter's term only. The fused kernel cannot do that, so a separate
        // kernel computes the term, which then serves as the residual.
        let masked = match (&adapter, self.dropout) {
            (Some([a, _]), Some(_)) => Some(self.masked_dx(queue, (l, p), a, residual)?),
            _ => None,
        };
        let w = self.matrix(queue, Way::Backward, (l, p))?;
        let linear = Linear {
            form: MatmulLayout::Nn,
            x: dy,
            w: &w,
            adapter: if masked.is_some() { None } else { pair },
            bias: None,
            residual: masked.as_ref().or(residual),
            factor: &self.constants.one,
            y: dx,
            shape: [rows, k, n],
            ahead: self.unpack_ahead(self.after_backward((l, p))),
        };
        self.linear(queue, &linear)
    }

    /// Computes `dx`, the gradient of the input `x` that two or three projections share, and adds
    /// the gradients of their adapters to the sums of the step.
    ///
    /// `of` lists the projections and the gradients of their outputs. Dropout is not supported.
    pub(super) fn sum_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
        of: &[(Projection, &View<bf16>)],
        x: &View<bf16>,
        dx: &View<bf16>,
    ) -> Result<(), Error> {
        let rows = self.sizes.tokens;
        let columns = dx.len() as u32 / self.sizes.tokens;
        let kernel = self.kernels.sum([rows, columns]);
        let tiles = kernel.def().map_tiles();
        let mut terms = vec![];
        let projections: Vec<_> = of.iter().map(|(p, _)| *p).collect();
        // The previous matmul unpacked the matrices of all terms or of none.
        let unpacked = self.take_pending(Way::Backward, (l, &projections));
        for &(p, dy) in of {
            let du = self.adapter_du(queue, (l, p), [dy, x])?;
            let w = self.matrix_of(queue, Way::Backward, (l, p), unpacked)?;
            let n = self.sizes.of(p)[0];
            terms.push(self.term(MatmulLayout::Nn, [dy, &w], [rows, columns, n], du, tiles)?);
        }
        let ahead = self.unpack_ahead(self.after_backward((l, projections[of.len() - 1])));
        let y = self.maps.of(dx, [rows, columns], tiles.y)?;
        let ahead = ahead.args();
        queue.launch(
            kernel,
            sum_args(&terms, &y, [rows, columns], self.kernels.blocks, ahead),
        )
    }

    /// Computes the gradients of `g` and `up` from `dy`, the gradient of the feed-forward block's
    /// output, and adds the gradients of the down projection's adapter to the sums of the step.
    ///
    /// Dropout is not supported.
    pub(super) fn swiglu_linear_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
        dy: &View<bf16>,
        layer: &Bf16LayerBuffers,
        [dg, dup]: [&View<bf16>; 2],
    ) -> Result<(), Error> {
        let place = (l, Projection::Down);
        let [depth, columns] = self.sizes.of(place.1);
        let rows = self.sizes.tokens;
        let kernel = self.kernels.swiglu_linear([rows, columns]);
        let tiles = kernel.def().map_tiles();
        let du = self.adapter_du(queue, place, [dy, &self.buffers.kept.inputs(l).a])?;
        let w = self.matrix(queue, Way::Backward, place)?;
        let ahead = self.unpack_ahead(self.after_backward(place));
        let Term {
            x,
            w,
            u,
            a,
            depth,
            rank,
        } = self.term(
            MatmulLayout::Nn,
            [dy, &w],
            [rows, columns, depth],
            du,
            tiles,
        )?;
        let map = |view: &View<bf16>| self.maps.of(view, [rows, columns], tiles.y);
        let g = map(&layer.g)?;
        let up = map(&layer.up)?;
        let dg = map(dg)?;
        let dup = map(dup)?;
        let args = LoraSwiGluBackwardArgs::<Host> {
            x: &x,
            w: &w,
            u: &u,
            a: &a,
            g: &g,
            up: &up,
            dg: &dg,
            dup: &dup,
            rows,
            columns,
            depth,
            rank,
            blocks: self.kernels.blocks,
            ahead: ahead.args(),
        };
        queue.launch(kernel, args)
    }

    /// Returns the maps of `dy`, `W`, `du` and A, or of `x`, `W`, `u` and B for the layout
    /// [`MatmulLayout::Nt`].
    fn term(
        &self,
        form: MatmulLayout,
        [dy, w]: [&View<bf16>; 2],
        [rows, columns, depth]: [u32; 3],
        adapter: Option<[View<bf16>; 2]>,
        tiles: MapTiles,
    ) -> Result<Term, Error> {
        let rank = if adapter.is_some() {
            self.padded_rank()
        } else {
            0
        };
        let [u, a] = match &adapter {
            Some([du, a]) => [
                self.maps.of(du, [rows, rank], tiles.x)?,
                self.maps.of(a, [rank, columns], tiles.b)?,
            ],
            // The kernel does not read them, but the maps must be valid.
            None => [
                self.maps.of(dy, [1, 8], tiles.x)?,
                self.maps.of(w, [1, 8], tiles.b)?,
            ],
        };
        let shape = if form == MatmulLayout::Nt {
            [columns, depth]
        } else {
            [depth, columns]
        };
        let x = self.maps.of(dy, [rows, depth], tiles.x)?;
        let w = self.maps.of(w, shape, tiles.w)?;
        Ok(Term {
            x,
            w,
            u,
            a,
            depth,
            rank,
        })
    }

    /// Adds the gradients of a projection's adapter to the sums of the step, and returns `du` and
    /// A.
    ///
    /// Returns `None` if the projection has no adapter.
    pub(super) fn adapter_du(
        &self,
        queue: &mut impl Queue,
        (l, p): Place,
        [dy, x]: [&View<bf16>; 2],
    ) -> Result<Option<[View<bf16>; 2]>, Error> {
        let Some([a, b]) = self.adapter((l, p)) else {
            return Ok(None);
        };
        self.adapter_gradients(queue, (l, p), [dy, x], &b)?;
        Ok(Some([self.buffers.work.du[p as usize].view(), a]))
    }

    /// Computes `du = s dy B`, `dB^T += u^T dy` and `dA += du^T (m * x)`.
    fn adapter_gradients(
        &self,
        queue: &mut impl Queue,
        (l, p): Place,
        [dy, x]: [&View<bf16>; 2],
        b: &View<bf16>,
    ) -> Result<(), Error> {
        let [n, k] = self.sizes.of(p);
        let rows = self.sizes.tokens;
        let du = &self.buffers.work.du[p as usize];
        let factor = &self.constants.scale;
        queue.launch(
            &self.kernels.down,
            LoraDownArgs::<Host> {
                x: dy,
                a: b,
                factor,
                u: du,
                rows,
                depth: n,
            },
        )?;
        let gradients = self.flat.layout.of_projection(&self.flat.gradients, l, p);
        if let (Some([da, db]), Some(u)) = (gradients, &self.buffers.kept.layer(l).u[p as usize]) {
            let up = &self.kernels.gradients;
            queue.launch(
                up,
                LoraGradientsArgs::<Host> {
                    u,
                    x: dy,
                    sum: &db,
                    rows,
                    columns: n,
                },
            )?;
            let input = self.input(queue, (l, p), x)?;
            queue.launch(
                up,
                LoraGradientsArgs::<Host> {
                    u: du,
                    x: &input,
                    sum: &da,
                    rows,
                    columns: k,
                },
            )?;
        }
        Ok(())
    }

    /// Computes `m * (du A)` plus a residual, in which `m` is the mask of dropout.
    fn masked_dx(
        &self,
        queue: &mut impl Queue,
        (l, p): Place,
        a: &View<bf16>,
        residual: Option<&View<bf16>>,
    ) -> Result<View<bf16>, Error> {
        let rows = self.sizes.tokens;
        let k = self.sizes.of(p)[1];
        let work = &self.buffers.work;
        let [product, sum] = work
            .masked
            .each_ref()
            .map(|all| all.view_range(0..self.sizes.rows(k)));
        let linear = Linear {
            form: MatmulLayout::Nn,
            x: &work.du[p as usize],
            w: a,
            adapter: None,
            bias: None,
            residual: None,
            factor: &self.constants.one,
            y: &product,
            shape: [rows, k, self.padded_rank()],
            ahead: self.nothing_ahead(),
        };
        self.linear(queue, &linear)?;
        self.mask(queue, (l, p), &product, residual, &sum)?;
        Ok(sum)
    }

    /// Returns the input of an adapter: `x`, or a copy of `x` after dropout.
    fn input(
        &self,
        queue: &mut impl Queue,
        place: Place,
        x: &View<bf16>,
    ) -> Result<View<bf16>, Error> {
        if self.dropout.is_none() {
            return Ok(x.clone());
        }
        let masked = self.buffers.work.masked[0].view_range(0..x.len());
        self.mask(queue, place, x, None, &masked)?;
        Ok(masked)
    }

    /// Computes `y = m * x` plus a residual, in which `m` is the mask of dropout.
    fn mask(
        &self,
        queue: &mut impl Queue,
        (l, p): Place,
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
            counters: &self.state.counters,
            seed: &self.constants.seed,
            n: x.len() as u32,
            stream: (Projection::ALL.len() * l) as u32 + p as u32,
            threshold: self.dropout.unwrap_or(0),
        };
        queue.launch(kernel, args)
    }

    /// Returns A as `[rank, k]` and B transposed as `[rank, n]`, both rounded to `bf16`, or `None`
    /// if the projection has no adapter.
    fn adapter(&self, (l, p): Place) -> Option<[View<bf16>; 2]> {
        self.flat
            .layout
            .of_projection(&self.buffers.work.adapters, l, p)
    }

    /// Returns the rank of the adapters, padded as kernels require.
    fn padded_rank(&self) -> u32 {
        padded(self.sizes.rank)
    }
}

/// Returns the arguments of a matmul that sums two or three terms.
fn sum_args<'a>(
    terms: &'a [Term],
    y: &'a MapArg,
    [rows, columns]: [u32; 2],
    blocks: u32,
    ahead: AheadArgs<Host<'a>>,
) -> LoraSumArgs<Host<'a>> {
    // The kernel takes three terms. If there are two, the first is passed again with lengths of 0.
    let [a, b, c] = [&terms[0], &terms[1], terms.get(2).unwrap_or(&terms[0])];
    let third = |length: u32| if terms.len() > 2 { length } else { 0 };
    LoraSumArgs {
        x0: &a.x,
        x1: &b.x,
        x2: &c.x,
        w0: &a.w,
        w1: &b.w,
        w2: &c.w,
        u0: &a.u,
        u1: &b.u,
        u2: &c.u,
        a0: &a.a,
        a1: &b.a,
        a2: &c.a,
        y,
        rows,
        columns,
        depth0: a.depth,
        depth1: b.depth,
        depth2: third(c.depth),
        rank0: a.rank,
        rank1: b.rank,
        rank2: third(c.rank),
        blocks,
        ahead,
    }
}
