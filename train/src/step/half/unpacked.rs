//! Frozen matrices as products take them, in `bf16`.
//!
//! Those in NF4 are unpacked into a workspace that the product before does not read: by idle warps
//! of that product ([`AheadArgs`]), or by a kernel of its own that may run beside it. The latter is
//! how few tokens are faster, as products then leave multiprocessors free (docs/lab/README.md);
//! and it unpacks what no product comes before, and layers of which some matrix has nested `absmax`
//! or is not packed.

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

/// The matrices of one product: projections of a layer, one after another in a workspace.
pub(super) type Matrices<'a> = (usize, &'a [Projection]);

/// What a product unpacks for the next one.
pub(super) struct UnpackedAhead {
    packed: View<u8>,
    absmax: View<f32>,
    unpacked: View<bf16>,
}

impl UnpackedAhead {
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
    /// What is pending is taken: whether it is these matrices, which the next product takes.
    pub(super) fn take_pending(&self, way: Way, (l, of): Matrices<'_>) -> bool {
        let pending = self.pending().take();
        // A layer that is computed again goes forward up to the product that its backward begins
        // with.
        let is_there = |unpacked| {
            of.iter()
                .all(|&p| self.start(unpacked, p) == self.start(way, p))
        };
        pending
            .is_some_and(|(unpacked, layer, all)| (layer, &*all) == (l, of) && is_there(unpacked))
    }

    /// The matrix of a product, which takes no other.
    pub(super) fn matrix(
        &self,
        queue: &mut impl Queue,
        way: Way,
        (l, p): Place,
    ) -> Result<View<bf16>, Error> {
        let unpacked = self.take_pending(way, (l, &[p]));
        self.matrix_of(queue, way, (l, p), unpacked)
    }

    /// A matrix of the next product, unpacked by a kernel of its own if it is packed.
    pub(super) fn matrix_of(
        &self,
        queue: &mut impl Queue,
        way: Way,
        (l, p): Place,
        is_unpacked: bool,
    ) -> Result<View<bf16>, Error> {
        let matrix = &self.weights.layers[l].projections[p as usize];
        let (w, n) = (self.place(way, p), self.weights_of(p) as u32);
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
                // Loaded with the weights.
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

    /// Lets a product unpack the matrices of the next one, if it can: they are pending from then
    /// on.
    pub(super) fn unpack_ahead(&self, next: Option<(Way, Matrices<'_>)>) -> UnpackedAhead {
        let found = next
            .filter(|_| self.unpacks_ahead)
            .and_then(|(way, (l, of))| {
                let (packed, absmax) = self.weights.packed(l, of)?;
                let (workspace, start) = self.start(way, *of.first()?);
                let n = of.iter().map(|&p| self.weights_of(p)).sum::<usize>();
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

    /// For a product that unpacks nothing.
    pub(super) fn nothing_ahead(&self) -> UnpackedAhead {
        UnpackedAhead {
            packed: self.no_bytes.view_range(0..0),
            absmax: self.constants.one.view_range(0..0),
            unpacked: self.buffers.work.w.view_range(0..0),
        }
    }

    /// At the start of a pass: one before may have ended early.
    pub(super) fn nothing_pending(&self) {
        *self.pending() = None;
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The second is where the head has gradients of logits, which no layer needs.
    fn workspaces(&self) -> [&Buffer<bf16>; 2] {
        [&self.buffers.work.w, &self.buffers.head.dl]
    }

    /// The workspace of a matrix, and its first weight there. Where kernels unpack, the places of
    /// the forward serve both ways: more matrices unpacked at a time were 2 % slower for 0.5B.
    fn start(&self, way: Way, p: Projection) -> (usize, usize) {
        let way = if self.unpacks_ahead {
            way
        } else {
            Way::Forward
        };
        let (workspace, before) = before(way, p);
        (workspace, before.iter().map(|&p| self.weights_of(p)).sum())
    }

    fn place(&self, way: Way, p: Projection) -> View<bf16> {
        let (workspace, start) = self.start(way, p);
        self.workspaces()[workspace].view_range(start..start + self.weights_of(p))
    }

    fn weights_of(&self, p: Projection) -> usize {
        weights(&self.sizes, p)
    }

    /// What comes after a forward product.
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

    /// What comes after a backward product of a projection, or of several that end with it.
    pub(super) fn after_backward(&self, (l, p): Place) -> Option<(Way, Matrices<'static>)> {
        let sums = self.dropout.is_none();
        let (l, of): Matrices<'static> = match p {
            Down => (l, if sums { &[Gate, Up] } else { &[Up] }),
            Up if !sums => (l, &[Gate]),
            Gate | Up => (l, &[O]),
            // Nobody reads the gradient of the embedded tokens.
            O if l == 0 => return None,
            O => (l, if sums { &[Q, K, V] } else { &[Q] }),
            Q => (l, &[K]),
            K => (l, &[V]),
            // A layer that is computed again begins with Q, where this product still reads its own.
            V if l == 0 || self.buffers.kept.is_overwritten(l - 1) => return None,
            V => (l - 1, &[Down]),
        };
        Some((Way::Backward, (l, of)))
    }
}
