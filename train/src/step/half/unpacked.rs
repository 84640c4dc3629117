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
use warpwright_driver::{Buffer, Error, Host, Queue, View};
use warpwright_kernels::train::half::convert::Nf4DequantizeArgs;
use warpwright_kernels::train::half::linear::AheadArgs;
use warpwright_kernels::train::half::nested::NestedDequantizeArgs;
use warpwright_kernels::train::nested::NestedArgs;

use super::pass::Bf16Step;
use super::weights::Bf16DeviceMatrix;
use super::workspaces::{Pending, Way, before, weights};
use crate::Projection::{self, Down, Gate, K, O, Q, Up, V};
use crate::step::common::Place;
use crate::step::weights::{DeviceNested, Unnesting};

/// The matrices of one matmul: a layer and its projections, which are adjacent in a workspace.
pub(super) type Matrices<'a> = (usize, &'a [Projection]);

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
    /// Clears the pending matrices, and returns true if they are the matrices `of` layer `l`, so
    /// that the next matmul can read them.
    pub(super) fn take_pending(&self, way: Way, (l, of): Matrices<'_>) -> bool {
        let pending = self.pending().take();
        // The recomputation of a layer ends where its backward pass begins. Matrices that were then
        // unpacked on the way forward serve the backward pass only if they are in the same place.
        let is_there = |unpacked| {
            of.iter()
                .all(|&p| self.start(unpacked, p) == self.start(way, p))
        };
        pending
            .is_some_and(|(unpacked, layer, all)| (layer, &*all) == (l, of) && is_there(unpacked))
    }

    /// Returns the matrix of a matmul that reads only this one.
    pub(super) fn matrix(
        &self,
        queue: &mut impl Queue,
        way: Way,
        (l, p): Place,
    ) -> Result<View<bf16>, Error> {
        let unpacked = self.take_pending(way, (l, &[p]));
        self.matrix_of(queue, way, (l, p), unpacked)
    }

    /// Returns a matrix of the next matmul.
    ///
    /// If it is in NF4 and not `is_unpacked` yet, a separate kernel unpacks it first.
    pub(super) fn matrix_of(
        &self,
        queue: &mut impl Queue,
        way: Way,
        (l, p): Place,
        is_unpacked: bool,
    ) -> Result<View<bf16>, Error> {
        let matrix = &self.weights.layers[l].projections[p as usize];
        let w = self.place(way, p);
        let n = self.weights_of(p) as u32;
        match matrix {
            Bf16DeviceMatrix::Bf16(w) => return Ok(w.view()),
            _ if is_unpacked => {}
            Bf16DeviceMatrix::Nf4 { packed, absmax } => {
                let args = Nf4DequantizeArgs::<Host> {
                    packed,
                    absmax,
                    w: &w,
                    n,
                };
                queue.launch(&self.kernels.dequantize, args)?;
            }
            Bf16DeviceMatrix::Nested(DeviceNested {
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
    pub(super) fn unpack_ahead(&self, next: Option<(Way, Matrices<'_>)>) -> UnpackedAhead {
        let found = next
            .filter(|_| self.unpacks_ahead)
            .and_then(|(way, (l, of))| {
                let (packed, absmax) = self.weights.packed(l, of)?;
                let (workspace, start) = self.start(way, *of.first()?);
                let n = of.iter().map(|&p| self.weights_of(p)).sum::<usize>();
                // The next matmul asks for this record, to know that its matrices are unpacked.
                *self.pending() = Some((way, l, of.to_vec()));
                let unpacked = self.workspaces()[workspace].view_range(start..start + n);
                Some(UnpackedAhead {
                    packed,
                    absmax,
                    unpacked,
                })
            });
        found.unwrap_or_else(|| self.nothing_ahead())
    }

    /// Returns the arguments of a matmul that unpacks nothing.
    pub(super) fn nothing_ahead(&self) -> UnpackedAhead {
        UnpackedAhead {
            packed: self.no_bytes.view_range(0..0),
            absmax: self.constants.one.view_range(0..0),
            unpacked: self.buffers.work.w.view_range(0..0),
        }
    }

    /// Clears the pending matrices at the start of a pass, because an earlier pass may have failed.
    pub(super) fn nothing_pending(&self) {
        *self.pending() = None;
    }

    /// Locks the pending matrices.
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the two workspaces. The second is the buffer of the logits' gradients, which the
    /// layers do not use.
    fn workspaces(&self) -> [&Buffer<bf16>; 2] {
        [&self.buffers.work.w, &self.buffers.head.dl]
    }

    /// Returns the index of a matrix's workspace and its first element there.
    ///
    /// If separate kernels unpack, both directions use the places of the forward pass. The places
    /// of the backward pass keep more matrices unpacked, which was 2 % slower for a model of 0.5B.
    fn start(&self, way: Way, p: Projection) -> (usize, usize) {
        let way = if self.unpacks_ahead {
            way
        } else {
            Way::Forward
        };
        let (workspace, before) = before(way, p);
        (workspace, before.iter().map(|&p| self.weights_of(p)).sum())
    }

    /// Returns the view of a workspace into which a matrix is unpacked.
    fn place(&self, way: Way, p: Projection) -> View<bf16> {
        let (workspace, start) = self.start(way, p);
        self.workspaces()[workspace].view_range(start..start + self.weights_of(p))
    }

    /// Returns the number of weights in a matrix.
    fn weights_of(&self, p: Projection) -> usize {
        weights(&self.sizes, p)
    }

    /// Returns the matrices of the matmul that follows a projection in the forward pass.
    pub(super) fn after(&self, (l, p): Place) -> Option<(Way, Matrices<'static>)> {
        let (l, of): Matrices<'static> = match p {
            Q => (l, &[K]),
            K => (l, &[V]),
            V => (l, &[O]),
            O => (l, &[Gate]),
            Gate => (l, &[Up]),
            Up => (l, &[Down]),
            Down if l + 1 < self.buffers.kept.layers() => (l + 1, &[Q]),
            Down => return None,
        };
        Some((Way::Forward, (l, of)))
    }

    /// Returns the matrices of the matmul that follows in the backward pass.
    ///
    /// `p` is the projection of the current matmul, or the last one if it sums over several.
    pub(super) fn after_backward(&self, (l, p): Place) -> Option<(Way, Matrices<'static>)> {
        let sums = self.dropout.is_none();
        let (l, of): Matrices<'static> = match p {
            Down => (l, if sums { &[Gate, Up] } else { &[Up] }),
            Up if !sums => (l, &[Gate]),
            Gate | Up => (l, &[O]),
            // The embedding is frozen, so the gradient of layer 0's input is not computed.
            O if l == 0 => return None,
            O => (l, if sums { &[Q, K, V] } else { &[Q] }),
            Q => (l, &[K]),
            K => (l, &[V]),
            // A recomputed layer begins with Q, whose place this matmul still reads.
            V if l == 0 || self.buffers.kept.is_overwritten(l - 1) => return None,
            V => (l - 1, &[Down]),
        };
        Some((Way::Backward, (l, of)))
    }
}
