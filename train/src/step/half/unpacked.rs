//! Unpacking of frozen matrices to `bf16`, the type that matmuls read.
//!
//! An NF4 matrix is unpacked into a workspace that the previous matmul does not read, so the two
//! can overlap. There are two ways:
//!
//! - Idle warps of the previous matmul unpack it ([`AheadArgs`]).
//! - A separate kernel unpacks it, and may run concurrently with the previous matmul. This is
//!   faster for few tokens, because matmuls then leave multiprocessors free (docs/lab/README.md).
//!   It also unpacks matrices that no matmul precedes, and all matrices of layers in which one has
//!   a nested `absmax` or is not in NF4.

use std::sync::{MutexGuard, PoisonError};

use ptx_gen::bf16;
use warpwright_driver::Error;
use warpwright_driver::launch::Host;
use warpwright_driver::memory::{Buffer, View};
use warpwright_driver::stream::Queue;
use warpwright_kernels::train::half::convert::Nf4DequantizeArgs;
use warpwright_kernels::train::half::linear::AheadArgs;
use warpwright_kernels::train::half::nested::NestedDequantizeArgs;
use warpwright_kernels::train::nested::NestedArgs;

use super::step::Bf16Step;
use super::workspaces::{MatmulMatrices, PassDirection, before};
use crate::Projection::{self, Down, Gate, K, O, Q, Up, V};
use crate::projection::LayerProjection;
use crate::step::weights::{DeviceMatrix, DeviceNested, PackedMatrix, Unnesting};

/// The matrices that a matmul unpacks for the next one.
pub(super) struct UnpackedAhead {
    packed: View<u8>,
    absmax: View<f32>,
    unpacked: View<bf16>,
}

impl UnpackedAhead {
    /// Returns the kernel arguments.
    pub(super) fn args(&self) -> AheadArgs<Host<'_>> {
        let UnpackedAhead {
            packed,
            absmax,
            unpacked,
        } = self;
        AheadArgs {
            packed,
            absmax,
            unpacked,
            n: unpacked.len() as u32,
        }
    }
}

impl Bf16Step {
    /// Clears the pending matrices, and returns true if they are the matrices of the next matmul,
    /// so that it can read them.
    pub(super) fn take_pending(&self, next: MatmulMatrices<'_>) -> bool {
        let Some(pending) = self.pending().take() else {
            return false;
        };
        // The recomputation of a layer ends where its backward pass begins. Matrices that were then
        // unpacked on the way forward serve the backward pass only if they are in the same place.
        let is_there =
            |p: &Projection| self.start(pending.direction, *p) == self.start(next.direction, *p);
        pending.layer == next.layer
            && pending.projections == next.projections
            && next.projections.iter().all(is_there)
    }

    /// Returns the matrix of a matmul that reads only this one.
    pub(super) fn matrix(
        &self,
        queue: &mut impl Queue,
        direction: PassDirection,
        of: LayerProjection,
    ) -> Result<View<bf16>, Error> {
        let is_unpacked = self.take_pending(MatmulMatrices {
            direction,
            layer: of.layer,
            projections: &[of.projection],
        });
        if is_unpacked {
            return Ok(self.unpacked_view(direction, of.projection));
        }
        self.unpack(queue, direction, of)
    }

    /// Returns a matrix of the next matmul. If it is in NF4, a separate kernel unpacks it first.
    pub(super) fn unpack(
        &self,
        queue: &mut impl Queue,
        direction: PassDirection,
        of: LayerProjection,
    ) -> Result<View<bf16>, Error> {
        let w = self.unpacked_view(direction, of.projection);
        let n = self.weights_of(of.projection) as u32;
        match self.weights.matrix(of) {
            DeviceMatrix::Unpacked(w) => return Ok(w.view()),
            DeviceMatrix::Nf4(PackedMatrix { packed, absmax }) => {
                let args = Nf4DequantizeArgs::<Host> {
                    packed,
                    absmax,
                    w: &w,
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
                queue.launch(
                    kernel,
                    NestedDequantizeArgs::<Host> {
                        from,
                        w: &w,
                        n,
                        offset: *offset,
                    },
                )?;
            }
        }

        Ok(w)
    }

    /// Returns the arguments with which a matmul unpacks the matrices of the `next` one, and marks
    /// those as pending. Returns empty arguments if this is not possible.
    pub(super) fn unpack_ahead(&self, next: Option<MatmulMatrices<'static>>) -> UnpackedAhead {
        next.filter(|_| self.unpacks_ahead)
            .and_then(|next| self.unpack_next(next))
            .unwrap_or_else(|| self.nothing_ahead())
    }

    /// Marks matrices as pending and returns the arguments that unpack them, or returns `None` if
    /// they cannot be unpacked together.
    fn unpack_next(&self, next: MatmulMatrices<'static>) -> Option<UnpackedAhead> {
        let PackedMatrix { packed, absmax } =
            self.packed[next.layer].as_ref()?.of(next.projections);
        let (workspace, start) = self.start(next.direction, *next.projections.first()?);
        let n: usize = next.projections.iter().map(|&p| self.weights_of(p)).sum();

        // The next matmul asks for this record, to know that its matrices are unpacked.
        *self.pending() = Some(next);
        Some(UnpackedAhead {
            packed,
            absmax,
            unpacked: self.workspaces()[workspace].view_range(start..start + n),
        })
    }

    /// Returns the arguments of a matmul that unpacks nothing.
    pub(super) fn nothing_ahead(&self) -> UnpackedAhead {
        UnpackedAhead {
            packed: self.no_bytes.view_range(0..0),
            absmax: self.state.constants.one.view_range(0..0),
            unpacked: self.scratch.w.view_range(0..0),
        }
    }

    /// Clears the pending matrices at the start of a pass, because an earlier pass may have failed.
    pub(super) fn nothing_pending(&self) {
        *self.pending() = None;
    }

    /// Locks the pending matrices.
    fn pending(&self) -> MutexGuard<'_, Option<MatmulMatrices<'static>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the two workspaces. The second is the buffer of the logits' gradients, which the
    /// layers do not use.
    fn workspaces(&self) -> [&Buffer<bf16>; 2] {
        [&self.scratch.w, &self.scratch.dl]
    }

    /// Returns the index of a matrix's workspace and its first element there.
    ///
    /// If separate kernels unpack, both directions use the places of the forward pass. The places
    /// of the backward pass keep more matrices unpacked, which was 2 % slower for a model of 0.5B.
    fn start(&self, direction: PassDirection, p: Projection) -> (usize, usize) {
        let direction = if self.unpacks_ahead {
            direction
        } else {
            PassDirection::Forward
        };
        let (workspace, before) = before(direction, p);
        (workspace, before.iter().map(|&p| self.weights_of(p)).sum())
    }

    /// Returns the view of a workspace into which a matrix is unpacked.
    pub(super) fn unpacked_view(&self, direction: PassDirection, p: Projection) -> View<bf16> {
        let (workspace, start) = self.start(direction, p);
        self.workspaces()[workspace].view_range(start..start + self.weights_of(p))
    }

    /// Returns the number of weights in a matrix.
    fn weights_of(&self, p: Projection) -> usize {
        self.state.sizes.projection(p).weights()
    }

    /// Returns the matrices of the matmul that follows a projection in the forward pass.
    pub(super) fn after(&self, of: LayerProjection) -> Option<MatmulMatrices<'static>> {
        let mut layer = of.layer;
        let projections: &'static [Projection] = match of.projection {
            Q => &[K],
            K => &[V],
            V => &[O],
            O => &[Gate],
            Gate => &[Up],
            Up => &[Down],
            Down => {
                layer += 1;
                &[Q]
            }
        };
        if layer == self.buffers.kept.layers() {
            return None;
        }

        Some(MatmulMatrices {
            direction: PassDirection::Forward,
            layer,
            projections,
        })
    }

    /// Returns the matrices of the matmul that follows in the backward pass.
    ///
    /// `of` is the projection of the current matmul, or the last one if it sums over several.
    pub(super) fn after_backward(&self, of: LayerProjection) -> Option<MatmulMatrices<'static>> {
        let sums = self.state.dropout.is_none();
        let mut layer = of.layer;
        let projections: &'static [Projection] = match of.projection {
            Down if sums => &[Gate, Up],
            Down => &[Up],
            Up if !sums => &[Gate],
            Gate | Up => &[O],
            // The embedding is frozen, so the gradient of layer 0's input is not computed.
            O if layer == 0 => return None,
            O if sums => &[Q, K, V],
            O => &[Q],
            Q => &[K],
            K => &[V],
            // A recomputed layer begins with Q, whose place this matmul still reads.
            V if layer == 0 || self.buffers.kept.is_overwritten(layer - 1) => return None,
            V => {
                layer -= 1;
                &[Down]
            }
        };
        Some(MatmulMatrices {
            direction: PassDirection::Backward,
            layer,
            projections,
        })
    }
}
