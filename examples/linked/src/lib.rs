//! Kernels that the programs of this project share, declared for the PTX in `kernels.ptx`.

use warpwright_driver::{Context, Error, LaunchConfig, Module, kernel};

kernel! {
    /// `y = factor x`
    pub struct Scale = "scale"(x: &[f32], y: &mut [f32], n: u32, factor: f32);
}

kernel! {
    /// `z = x + y`
    pub struct Sum = "sum"(x: &[f32], y: &[f32], z: &mut [f32], n: u32);
}

kernel! {
    /// `y = y + factor x`
    pub struct Saxpy = "saxpy"(x: &[f32], y: &mut [f32], n: u32, factor: f32);
}

/// The kernels, loaded.
pub struct Kernels {
    /// `y = factor x`
    pub scale: Scale,
    /// `z = x + y`
    pub sum: Sum,
    /// `y = y + factor x`
    pub saxpy: Saxpy,
}

impl Kernels {
    /// Compiles the PTX for the context's device.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn load(context: &Context) -> Result<Self, Error> {
        let module = Module::load(context, include_str!("kernels.ptx"))?;
        // SAFETY: the three kernels read and write what is declared, below `n`; every launch here gives them as much.
        unsafe {
            Ok(Self { scale: Scale::load(&module)?, sum: Sum::load(&module)?, saxpy: Saxpy::load(&module)? })
        }
    }
}

/// Blocks of 128 threads for `n` elements, as the PTX has it.
pub fn blocks(n: u32) -> LaunchConfig {
    LaunchConfig::line(n.div_ceil(128), 128)
}

/// Compares every element with its index times `factor`, exactly: the numbers are small integers.
///
/// # Panics
/// If one differs.
pub fn check(what: &str, got: &[f32], factor: f32) {
    for (i, v) in got.iter().enumerate() {
        assert_eq!(*v, i as f32 * factor, "{what}: element {i}");
    }
    println!("{what}: {} elements are right, the last is {}", got.len(), got[got.len() - 1]);
}
