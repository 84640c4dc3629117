//! Clipping by the global norm ([Pascanu et al., 2012](https://arxiv.org/abs/1211.5063)): one norm over the gradients of
//! all adapters, as PyTorch's `clip_grad_norm_` has it.

/// The Euclidean norm of all tensors together.
pub fn norm<'a>(gradients: impl IntoIterator<Item = &'a [f64]>) -> f64 {
    gradients.into_iter().flatten().map(|g| g * g).sum::<f64>().sqrt()
}

/// What gradients of this norm are multiplied by: `min(1, max / (norm + 1e-6))`.
pub fn factor(norm: f64, max: f64) -> f64 {
    (max / (norm + 1e-6)).min(1.0)
}
