//! Conversions between the buffers of a case and `f64`.

/// Returns the elements of a buffer as `f64`.
pub(super) fn wide(buffer: &[f32]) -> Vec<f64> {
    buffer.iter().copied().map(f64::from).collect()
}

/// Stores numbers in a buffer.
pub(super) fn narrow(numbers: &[f64], buffer: &mut [f32]) {
    for (to, &x) in buffer.iter_mut().zip(numbers) {
        *to = x as f32;
    }
}
