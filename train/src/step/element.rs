//! The element types of a step.

use std::borrow::Cow;

use warpwright_driver::memory::{Element, bf16};

/// The element type of the activations, of their gradients, and of the matrices that matmuls read.
pub(super) trait StepElement: Element {
    /// The value 0.
    const ZERO: Self;

    /// Rounds values to this type.
    fn round(values: &[f32]) -> Cow<'_, [Self]>;
}

impl StepElement for f32 {
    const ZERO: f32 = 0.0;

    fn round(values: &[f32]) -> Cow<'_, [f32]> {
        Cow::Borrowed(values)
    }
}

impl StepElement for bf16 {
    const ZERO: bf16 = bf16(0);

    fn round(values: &[f32]) -> Cow<'_, [bf16]> {
        values.iter().map(|&value| bf16::from_f32(value)).collect()
    }
}
