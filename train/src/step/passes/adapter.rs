//! The adapter of a projection: its term of the output, and its gradients.

use warpwright_driver::Error;
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;

use super::operations::{AdapterProduct, PassPurpose, StepOperations};
use crate::projection::LayerProjection;

/// The operands of the matmul that adds an adapter's term: `u B^T` to an output, or `du A` to the
/// gradient of an input.
pub(crate) struct AdapterTerm<E> {
    /// `u` or `du`
    pub(crate) u: View<E>,
    /// B or A
    pub(crate) factor: View<E>,
}

/// Computes `u = scale x A^T` and returns `u` and B, or returns `None` if the projection has no
/// adapter.
pub(crate) fn term<O: StepOperations>(
    step: &O,
    queue: &mut impl Queue,
    purpose: PassPurpose,
    of: LayerProjection,
    x: &View<O::Element>,
) -> Result<Option<AdapterTerm<O::Element>>, Error> {
    let u = &step.buffers().kept.layer(of.layer).u[of.projection as usize];
    let (Some(adapter), Some(u)) = (step.adapter(of), u) else {
        return Ok(None);
    };

    let constants = &step.state().constants;
    let (x, factor) = match purpose {
        PassPurpose::Training => (input(step, queue, of, x)?, &constants.scale),
        PassPurpose::Evaluation => (x.clone(), &constants.evaluation_scale),
    };
    let product = AdapterProduct::U {
        x: &x,
        a: &adapter.a,
        factor,
        u,
    };
    step.adapter_product(queue, of, product)?;
    Ok(Some(AdapterTerm {
        u: u.view(),
        factor: adapter.b,
    }))
}

/// Adds the gradients of a projection's adapter to the sums of the step, and returns `du` and A.
/// Returns `None` if the projection has no adapter.
///
/// With `s` for the adapter's scale and `m` for the mask of dropout, the gradients are `du = s dy
/// B`, `dB = dy^T u` and `dA = du^T (m * x)`.
pub(crate) fn gradients<O: StepOperations>(
    step: &O,
    queue: &mut impl Queue,
    of: LayerProjection,
    x: &View<O::Element>,
    dy: &View<O::Element>,
) -> Result<Option<AdapterTerm<O::Element>>, Error> {
    let adapters = &step.state().adapters;
    let sums = adapters.layout.views(&adapters.gradients, of);
    let u = &step.buffers().kept.layer(of.layer).u[of.projection as usize];
    let (Some(adapter), Some(sums), Some(u)) = (step.adapter(of), sums, u) else {
        return Ok(None);
    };

    let du = step.du(of.projection);
    let b = &adapter.b;
    step.adapter_product(queue, of, AdapterProduct::UGradient { dy, b, du })?;
    let sum = &sums.b;
    step.adapter_product(queue, of, AdapterProduct::BGradient { dy, u, sum })?;

    // Only now, because the masked input is in scratch memory that other projections use too.
    let x = &input(step, queue, of, x)?;
    let sum = &sums.a;
    step.adapter_product(queue, of, AdapterProduct::AGradient { du, x, sum })?;
    Ok(Some(AdapterTerm {
        u: du.clone(),
        factor: adapter.a,
    }))
}

/// Returns the input of an adapter: `x`, or a copy of `x` after dropout.
///
/// The backward pass draws the same random numbers as the forward pass, so masks are not kept.
fn input<O: StepOperations>(
    step: &O,
    queue: &mut impl Queue,
    of: LayerProjection,
    x: &View<O::Element>,
) -> Result<View<O::Element>, Error> {
    match step.state().dropout {
        Some(threshold) => step.dropout(queue, of, threshold, x),
        None => Ok(x.clone()),
    }
}
