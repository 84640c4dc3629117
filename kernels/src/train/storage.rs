//! How numbers are stored between operations.

use ptx_gen::bf16;

/// The type of a tensor in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// Nothing is rounded.
    F64,
    /// Rounded to `f32`.
    F32,
    /// Rounded to `f32`, then to `bf16`, as a kernel does with a sum.
    Bf16,
}

impl Storage {
    /// What is read back where `x` was stored. Ties go to even.
    pub fn round(self, x: f64) -> f64 {
        match self {
            Storage::F64 => x,
            Storage::F32 => f64::from(x as f32),
            Storage::Bf16 => f64::from(bf16::from_f32(x as f32).to_f32()),
        }
    }

    /// A tensor after it was stored.
    pub fn store(self, mut tensor: Vec<f64>) -> Vec<f64> {
        if self != Storage::F64 {
            tensor.iter_mut().for_each(|x| *x = self.round(*x));
        }
        tensor
    }
}
