//! Test cases of kernels: arguments to run a kernel on, and the error that its result may have.

use crate::pipeline::block_float;
use ptx_gen::{AnyKernel, CpuArg, Param, ParamKind, f16};

/// A kernel with test cases.
pub trait Variant: AnyKernel {
    /// Returns small arguments that reach every branch of the program, for example odd sizes, edges
    /// and several rows.
    ///
    /// Equal seeds give equal cases.
    fn cases(&self, seed: u64) -> Vec<Case>;

    /// Returns the rows and columns of the matrix that a tensor map describes, for a case with
    /// these arguments.
    fn map_dims(&self, _param: &str, _args: &[CpuArg]) -> Option<[u32; 2]> {
        None
    }
}

/// Arguments for one run of a kernel.
#[derive(Clone, Debug)]
pub struct Case {
    /// The shapes in readable form: `rows=3 n=1100`.
    pub label: String,
    /// The arguments in order. Inputs are filled and outputs have the right length.
    pub args: Vec<CpuArg>,
    /// The maximum error, as [`Comparison::error`] measures it. If it is 0, the results must be
    /// equal.
    pub bound: f64,
}

/// The distance between the result of a run and the reference.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The largest difference of an output, relative to the largest magnitude in the reference of
    /// that output.
    ///
    /// Integers have an error of 0 or infinity, and so have values that are not finite. A 16-bit
    /// float that is adjacent to the expected one counts as [`NEIGHBOUR`], because a value close to
    /// a tie may round either way. In block floating point, only the part beyond one quantization
    /// step counts, plus [`NEIGHBOUR`].
    pub error: f64,
    /// The largest difference: argument, index, computed value and expected value.
    pub worst: Option<(String, usize, f64, f64)>,
}

/// The relative error of one `f32` rounding. Two correct ways to compute a value can differ by this
/// much.
pub const NEIGHBOUR: f64 = 1.0 / (1u64 << 24) as f64;

/// Compares the outputs of a run with the outputs of the reference.
///
/// Both lists hold the kernel's arguments in order, with equal lengths. Where 16-bit integers are
/// followed by their block scales (see [`block_float`]), the decoded values are compared.
pub fn compare(params: &[Param], found: &[CpuArg], wanted: &[CpuArg]) -> Comparison {
    let mut all = Comparison {
        error: 0.0,
        worst: None,
    };
    for (place, param) in params.iter().enumerate() {
        let (ParamKind::Buffer(_, access) | ParamKind::TensorMap(_, access)) = param.kind else {
            continue;
        };
        if !access.writes() {
            continue;
        }
        let ([found, wanted], grain) = meant(&found[place..], &wanted[place..]);
        // Errors are relative to the largest finite magnitude of the argument.
        let scale = wanted
            .iter()
            .filter(|w| w.is_finite())
            .fold(f64::MIN_POSITIVE, |m, w| m.max(w.abs()));
        if found.len() != wanted.len() {
            all.error = f64::INFINITY;
        }
        for (i, (&f, &w)) in found.iter().zip(&wanted).enumerate() {
            let error = difference(f, w, &grain, i, scale);
            if error > all.error {
                all = Comparison {
                    error,
                    worst: Some((param.name.to_string(), i, f, w)),
                };
            }
        }
    }
    all
}

fn difference(found: f64, wanted: f64, grain: &Grain, i: usize, scale: f64) -> f64 {
    if found == wanted || found.is_nan() && wanted.is_nan() {
        return 0.0;
    }
    let apart = (found - wanted).abs();
    match grain {
        Grain::Exact => f64::INFINITY,
        _ if !apart.is_finite() => f64::INFINITY,
        Grain::Half { bits, least }
            if apart <= wanted.abs().log2().floor().max(*least).exp2() / bits =>
        {
            NEIGHBOUR
        }
        // If the largest element of a block is slightly off, so is the block's scale. The adjacent
        // integer is then slightly more than one step away.
        Grain::BlockFloat(steps) => {
            (apart - f64::from(steps[i / block_float::BFP_BLOCK as usize])).max(0.0) / scale
                + NEIGHBOUR
        }
        _ => apart / scale,
    }
}

/// The resolution of the elements of a buffer.
enum Grain {
    /// Integers, which must be equal.
    Exact,
    /// `f32` elements.
    Single,
    /// A 16-bit float: the number of steps between two powers of 2, and the smallest exponent.
    Half { bits: f64, least: f64 },
    /// Block floating point with these block scales.
    BlockFloat(Vec<f32>),
}

/// Returns the values of the first argument and their resolution. Block floating point takes its
/// scales from the second argument.
fn meant(found: &[CpuArg], wanted: &[CpuArg]) -> ([Vec<f64>; 2], Grain) {
    let decoded = |args: &[CpuArg]| match args {
        [CpuArg::U16(values), CpuArg::F32(scales), ..] => {
            Some((block_float::decode(values, scales), scales.clone()))
        }
        _ => None,
    };
    if let (Some((found, _)), Some((wanted, scales))) = (decoded(found), decoded(wanted)) {
        return (
            [found, wanted].map(|v| v.into_iter().map(f64::from).collect()),
            Grain::BlockFloat(scales),
        );
    }
    let grain = match wanted[0] {
        CpuArg::F32(_) => Grain::Single,
        CpuArg::F16(_) => Grain::Half {
            bits: 1024.0,
            least: -14.0,
        },
        CpuArg::Bf16(_) => Grain::Half {
            bits: 128.0,
            least: -126.0,
        },
        _ => Grain::Exact,
    };
    ([found, wanted].map(|args| numbers(&args[0])), grain)
}

/// Returns the elements of a buffer as `f64`.
fn numbers(arg: &CpuArg) -> Vec<f64> {
    fn of<T: Copy>(v: &[T], f: impl Fn(T) -> f64) -> Vec<f64> {
        v.iter().map(|&x| f(x)).collect()
    }
    match arg {
        CpuArg::U8(v) => of(v, f64::from),
        CpuArg::S8(v) => of(v, f64::from),
        CpuArg::U16(v) => of(v, f64::from),
        CpuArg::U32(v) => of(v, f64::from),
        CpuArg::S32(v) => of(v, f64::from),
        CpuArg::U64(v) => of(v, |x| x as f64),
        CpuArg::F32(v) => of(v, f64::from),
        CpuArg::F16(v) => of(v, |x| x.to_f32().into()),
        CpuArg::Bf16(v) => of(v, |x| x.to_f32().into()),
        CpuArg::Scalar(_) => vec![],
    }
}

/// A reproducible generator of random values: SplitMix64 (Steele, Lea and Flood, "Fast Splittable
/// Pseudorandom Number Generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a value from -1 to 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Returns `n` values from -1 to 1.
    pub fn units(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    /// Returns `n` values from -1 to 1, rounded to `f16`.
    pub fn halves(&mut self, n: usize) -> Vec<f16> {
        (0..n).map(|_| f16::from_f32(self.unit())).collect()
    }

    /// Returns an integer below `n`.
    pub fn below(&mut self, n: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(n)) >> 32) as u32
    }
}
