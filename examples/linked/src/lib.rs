//! The kernels that the programs of this package share, declared for the PTX in `kernels.ptx`.

use warpwright_driver::prelude::*;

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
    /// Returns an error if the driver cannot load the PTX.
    pub fn load(context: &Context) -> Result<Self, Error> {
        Self::of(&Module::load(context, include_str!("kernels.ptx"))?)
    }

    /// The kernels of a module that was made of the PTX.
    ///
    /// # Errors
    /// Another module.
    pub fn of(module: &Module) -> Result<Self, Error> {
        // SAFETY: the three kernels access their arguments as declared, below index `n`, and every
        // launch here passes buffers of at least `n` elements.
        unsafe {
            Ok(Self {
                scale: Scale::load(module)?,
                sum: Sum::load(module)?,
                saxpy: Saxpy::load(module)?,
            })
        }
    }
}

/// Blocks of 128 threads for `n` elements, as the PTX has it.
pub fn blocks(n: u32) -> LaunchConfig {
    LaunchConfig::line(n.div_ceil(128), 128)
}

/// Returns the first argument of the program, which is a count, or `usual` if there is none.
///
/// # Errors
/// Returns an error if the argument is not a valid count.
pub fn argument(what: &str, usual: u32) -> Result<u32, String> {
    count(std::env::args().nth(1).as_deref(), what, usual)
}

fn count(given: Option<&str>, what: &str, usual: u32) -> Result<u32, String> {
    let parse = |text: &str| {
        text.parse()
            .map_err(|e| format!("{text:?} is no number of {what}: {e}"))
    };
    given.map_or(Ok(usual), parse)
}

/// Compares every element with its index times `factor`, exactly: the numbers are small integers.
///
/// # Panics
/// If one differs.
pub fn check(what: &str, got: &[f32], factor: f32) {
    for (i, v) in got.iter().enumerate() {
        assert_eq!(*v, i as f32 * factor, "{what}: element {i}");
    }
    println!(
        "{what}: {} elements are right, the last is {}",
        got.len(),
        got[got.len() - 1]
    );
}

#[test]
fn an_argument_is_a_number_or_an_error() {
    assert_eq!(count(None, "launches", 100), Ok(100));
    assert_eq!(count(Some("7"), "launches", 100), Ok(7));
    let wrong = r#""abc" is no number of launches: invalid digit found in string"#;
    assert_eq!(count(Some("abc"), "launches", 100), Err(wrong.to_string()));
}
