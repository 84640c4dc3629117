//! The comparison of the results of a run with the reference.

use crate::pipeline::block_float;
use ptx_gen::{CpuArg, Param, ParamKind};

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
