//! The types in which tensors are stored between operations.

use ptx_gen::bf16;

/// The type of a tensor in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// 64 bits: nothing is rounded.
    F64,
    /// 32 bits.
    F32,
    /// `bf16`, rounded to `f32` first, as a kernel rounds a sum.
    Bf16,
}

impl Storage {
    /// Returns the value that is read back after `x` was stored. Ties round to even.
    pub fn round(self, x: f64) -> f64 {
        match self {
            Storage::F64 => x,
            Storage::F32 => f64::from(x as f32),
            Storage::Bf16 => f64::from(bf16::from_f32(x as f32).to_f32()),
        }
    }

    /// Returns the tensor that is read back after `tensor` was stored.
    pub fn store(self, mut tensor: Vec<f64>) -> Vec<f64> {
        if self != Storage::F64 {
            for x in &mut tensor {
                *x = self.round(*x);
            }
        }
        tensor
    }
}
