//! The narrow products of adapters: those of projections that share an input are one launch.

use std::array::from_fn;

use ptx_gen::bf16;
use warpwright_driver::{Error, Host, Queue, View};
use warpwright_kernels::train::half::lora::{LoraDownArgs, LoraGradientsArgs};

use super::pass::Step;
use crate::Projection;
use crate::step::common::{Place, Purpose};

/// A product `u = s x A^T`, or `du = s dy B`.
struct Down {
    x: View<bf16>,
    a: View<bf16>,
    u: View<bf16>,
    /// Length of a row of `x`.
    depth: u32,
}

/// A product that is added up: `u^T x`.
struct Gradient {
    u: View<bf16>,
    x: View<bf16>,
    sum: View<f32>,
    /// Length of a row of `x`.
    columns: u32,
}

/// Products of a launch.
const DOWNS: usize = 3;
const GRADIENTS: usize = 4;

impl Step {
    /// Computes `u = scale x A^T` of the adapters of projections that share an input.
    pub(super) fn adapter_inputs(
        &self,
        queue: &mut impl Queue,
        purpose: Purpose,
        l: usize,
        of: &[Projection],
        x: &View<bf16>,
    ) -> Result<(), Error> {
        let factor = match purpose {
            Purpose::Training => &self.constants.scale,
            Purpose::Evaluation => &self.constants.evaluation_scale,
        };
        let mut downs = vec![];
        for &p in of {
            let (Some([a, _]), Some(u)) = (self.adapter((l, p)), &self.buffers.kept.layer(l).u[p as usize])
            else {
                continue;
            };
            let x = match purpose {
                Purpose::Training => self.input(queue, (l, p), x)?,
                Purpose::Evaluation => x.clone(),
            };
            downs.push(Down { x, a, u: u.view(), depth: self.sizes.of(p)[1] });
            if self.dropout.is_some() {
                // The next one's mask overwrites this input.
                self.down(queue, &downs, factor)?;
                downs.clear();
            }
        }
        self.down(queue, &downs, factor)
    }

    /// `u` and B of a projection that has an adapter.
    pub(super) fn forward_pair(&self, (l, p): Place) -> Option<[View<bf16>; 2]> {
        let u = self.buffers.kept.layer(l).u[p as usize].as_ref()?;
        self.adapter((l, p)).map(|[_, b]| [u.view(), b])
    }

    /// `du` and A of a projection that has an adapter.
    pub(super) fn backward_pair(&self, (l, p): Place) -> Option<[View<bf16>; 2]> {
        self.adapter((l, p)).map(|[a, _]| [self.buffers.work.du[p as usize].view(), a])
    }

    /// `du = s dy B`, `dB^T += u^T dy` and `dA += du^T (m * x)` of projections that share the input `x`.
    pub(super) fn adapter_gradients(
        &self,
        queue: &mut impl Queue,
        l: usize,
        of: &[(Projection, &View<bf16>)],
        x: &View<bf16>,
    ) -> Result<(), Error> {
        let du = |p: Projection| self.buffers.work.du[p as usize].view();
        let down = |&(p, dy): &(Projection, &View<bf16>)| {
            let [_, b] = self.adapter((l, p))?;
            Some(Down { x: dy.clone(), a: b, u: du(p), depth: self.sizes.of(p)[0] })
        };
        self.down(queue, &of.iter().filter_map(down).collect::<Vec<_>>(), &self.constants.scale)?;
        let mut gradients = vec![];
        for &(p, dy) in of {
            let sums = self.flat.layout.of_projection(&self.flat.gradients, l, p);
            let (Some([da, db]), Some(u)) = (sums, &self.buffers.kept.layer(l).u[p as usize]) else {
                continue;
            };
            let ([n, k], input) = (self.sizes.of(p), self.input(queue, (l, p), x)?);
            gradients.push(Gradient { u: u.view(), x: dy.clone(), sum: db, columns: n });
            gradients.push(Gradient { u: du(p), x: input, sum: da, columns: k });
            if self.dropout.is_some() {
                // The next one's mask overwrites this input.
                self.add_gradients(queue, &gradients)?;
                gradients.clear();
            }
        }
        self.add_gradients(queue, &gradients)
    }

    fn down(&self, queue: &mut impl Queue, of: &[Down], factor: &View<f32>) -> Result<(), Error> {
        for of in of.chunks(DOWNS) {
            let [x, a, u] = [&of[0].x, &of[0].a, &of[0].u].map(|view| view.view_range(0..0));
            let none = Down { x, a, u, depth: 0 };
            let [a, b, c]: [&Down; DOWNS] = from_fn(|i| of.get(i).unwrap_or(&none));
            let args = LoraDownArgs::<Host> {
                x0: &a.x,
                x1: &b.x,
                x2: &c.x,
                a0: &a.a,
                a1: &b.a,
                a2: &c.a,
                factor,
                u0: &a.u,
                u1: &b.u,
                u2: &c.u,
                rows: self.sizes.tokens,
                depth0: a.depth,
                depth1: b.depth,
                depth2: c.depth,
            };
            queue.launch(&self.kernels.down, args)?;
        }
        Ok(())
    }

    fn add_gradients(&self, queue: &mut impl Queue, of: &[Gradient]) -> Result<(), Error> {
        for of in of.chunks(GRADIENTS) {
            let [u, x] = [&of[0].u, &of[0].x].map(|view| view.view_range(0..0));
            let none = Gradient { u, x, sum: of[0].sum.view_range(0..0), columns: 0 };
            let [a, b, c, d]: [&Gradient; GRADIENTS] = from_fn(|i| of.get(i).unwrap_or(&none));
            let args = LoraGradientsArgs::<Host> {
                u0: &a.u,
                u1: &b.u,
                u2: &c.u,
                u3: &d.u,
                x0: &a.x,
                x1: &b.x,
                x2: &c.x,
                x3: &d.x,
                sum0: &a.sum,
                sum1: &b.sum,
                sum2: &c.sum,
                sum3: &d.sum,
                rows: self.sizes.tokens,
                columns0: a.columns,
                columns1: b.columns,
                columns2: c.columns,
                columns3: d.columns,
            };
            queue.launch(&self.kernels.gradients, args)?;
        }
        Ok(())
    }
}
