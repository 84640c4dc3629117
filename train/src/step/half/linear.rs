//! Launches of matmuls, with the term of an adapter.

use std::sync::Arc;

use ptx_gen::bf16;
use warpwright_driver::Error;
use warpwright_driver::launch::{Host, MapArg};
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;
use warpwright_kernels::train::half::linear::{AheadArgs, LoraLinearArgs, LoraSumArgs, MapTiles};
use warpwright_kernels::train::products::MatmulLayout;

use super::kernels::LinearVariant;
use super::limits::padded;
use super::step::Bf16Step;
use super::unpacked::UnpackedAhead;
use crate::step::passes::adapter::AdapterTerm;

/// The shape of a matmul.
#[derive(Clone, Copy)]
pub(super) struct MatmulShape {
    /// The rows of the output.
    pub(super) rows: u32,
    /// The columns of the output.
    pub(super) columns: u32,
    /// The length of a row of `x`.
    pub(super) depth: u32,
}

/// The operands of a matmul `y = factor x W + u B`, to which a bias and a residual may be added.
/// See [`LoraLinear`](warpwright_kernels::train::half::linear::LoraLinear).
pub(super) struct LinearOperands<'a> {
    pub(super) layout: MatmulLayout,
    pub(super) x: &'a View<bf16>,
    pub(super) w: &'a View<bf16>,
    pub(super) adapter: Option<&'a AdapterTerm<bf16>>,
    pub(super) bias: Option<&'a View<f32>>,
    pub(super) residual: Option<&'a View<bf16>>,
    pub(super) factor: &'a View<f32>,
    pub(super) y: &'a View<bf16>,
    pub(super) shape: MatmulShape,
    /// The matrices that the kernel unpacks for the next matmul.
    pub(super) ahead: UnpackedAhead,
}

/// The tensor maps and lengths of one projection, a term of a sum of matmuls.
pub(super) struct MappedTerm {
    /// `x` or `dy`
    pub(super) x: Arc<MapArg>,
    pub(super) w: Arc<MapArg>,
    /// `u` or `du`
    pub(super) u: Arc<MapArg>,
    /// B or A
    pub(super) factor: Arc<MapArg>,
    pub(super) depth: u32,
    pub(super) rank: u32,
}

impl Bf16Step {
    /// Launches a matmul.
    pub(super) fn linear(
        &self,
        queue: &mut impl Queue,
        of: &LinearOperands<'_>,
    ) -> Result<(), Error> {
        let MatmulShape {
            rows,
            columns,
            depth,
        } = of.shape;
        let variant = LinearVariant {
            layout: of.layout,
            bias: of.bias.is_some(),
            residual: of.residual.is_some(),
        };
        let kernel = self.kernels.linear(variant, rows, columns);
        let tiles = kernel.def().map_tiles();
        let term = self.term(of.layout, of.x, of.w, of.shape, of.adapter, tiles)?;

        // Without a residual, the kernel does not read its map. The map must still be valid, so it
        // describes 8 elements of `x`.
        let residual = match of.residual {
            Some(residual) => self.maps.of(residual, [rows, columns], tiles.y)?,
            None => self.maps.of(of.x, [1, 8], tiles.y)?,
        };
        let y = self.maps.of(of.y, [rows, columns], tiles.y)?;
        let no_bias = of.factor.view_range(0..0);
        let args = LoraLinearArgs::<Host> {
            x: &term.x,
            w: &term.w,
            u: &term.u,
            b: &term.factor,
            bias: of.bias.unwrap_or(&no_bias),
            residual: &residual,
            factor: of.factor,
            y: &y,
            rows,
            columns,
            depth,
            rank: term.rank,
            blocks: self.kernels.blocks,
            ahead: of.ahead.args(),
        };
        queue.launch(kernel, args)
    }

    /// Returns the maps of `x`, `W`, `u` and B with the layout [`MatmulLayout::Nt`], or of `dy`,
    /// `W`, `du` and A with the layout [`MatmulLayout::Nn`].
    pub(super) fn term(
        &self,
        layout: MatmulLayout,
        x: &View<bf16>,
        w: &View<bf16>,
        shape: MatmulShape,
        adapter: Option<&AdapterTerm<bf16>>,
        tiles: MapTiles,
    ) -> Result<MappedTerm, Error> {
        let MatmulShape {
            rows,
            columns,
            depth,
        } = shape;
        let rank = if adapter.is_some() {
            self.padded_rank()
        } else {
            0
        };
        let [u, factor] = match adapter {
            Some(adapter) => [
                self.maps.of(&adapter.u, [rows, rank], tiles.x)?,
                self.maps.of(&adapter.factor, [rank, columns], tiles.b)?,
            ],
            // The kernel does not read them. The maps must still be valid, so they describe 8
            // elements of the first pair.
            None => [
                self.maps.of(x, [1, 8], tiles.x)?,
                self.maps.of(w, [1, 8], tiles.b)?,
            ],
        };
        let matrix = if layout == MatmulLayout::Nt {
            [columns, depth]
        } else {
            [depth, columns]
        };
        Ok(MappedTerm {
            x: self.maps.of(x, [rows, depth], tiles.x)?,
            w: self.maps.of(w, matrix, tiles.w)?,
            u,
            factor,
            depth,
            rank,
        })
    }

    /// Returns the rank of the adapters, padded as kernels require.
    pub(super) fn padded_rank(&self) -> u32 {
        padded(self.state.sizes.rank as usize) as u32
    }
}

/// Returns the arguments of a matmul that sums two or three terms.
pub(super) fn sum_args<'a>(
    terms: &'a [MappedTerm],
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
        a0: &a.factor,
        a1: &b.factor,
        a2: &c.factor,
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
