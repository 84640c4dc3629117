//! Cases: arguments to run a kernel on, and how far from its reference it may be.

use ptx_gen::{AnyKernel, CpuArg, Param, ParamKind};

/// A kernel with cases to run it on.
pub trait Variant: AnyKernel {
    /// Small arguments that reach every branch of the program: odd sizes, edges, several rows.
    ///
    /// The same `seed` gives the same cases.
    fn cases(&self, seed: u64) -> Vec<Case>;
}

/// Arguments for one run.
#[derive(Clone, Debug)]
pub struct Case {
    /// The shapes, for people: `rows=3 n=1100`.
    pub label: String,
    /// The arguments, in order: inputs filled, outputs of the right length.
    pub args: Vec<CpuArg>,
    /// The largest error allowed, as [`Comparison::error`] measures it; 0 asks for the same numbers.
    pub bound: f64,
}

/// How far a run is from the reference.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The largest difference of an output, relative to the largest magnitude in that output's reference.
    ///
    /// Integers differ by 0 or infinity; so does what is not finite.
    pub error: f64,
    /// Where the largest difference is: argument, index, number found, number wanted.
    pub worst: Option<(String, usize, f64, f64)>,
}

/// Compares the outputs of a run with those of the reference.
///
/// Both lists are of the kernel's arguments, in order and of the same lengths.
pub fn compare(params: &[Param], found: &[CpuArg], wanted: &[CpuArg]) -> Comparison {
    let mut all = Comparison { error: 0.0, worst: None };
    for ((param, found), wanted) in params.iter().zip(found).zip(wanted) {
        if !matches!(param.kind, ParamKind::Buffer(_, access) if access.writes()) {
            continue;
        }
        let (found, exact) = numbers(found);
        let (wanted, _) = numbers(wanted);
        let scale = wanted.iter().filter(|w| w.is_finite()).fold(f64::MIN_POSITIVE, |m, w| m.max(w.abs()));
        if found.len() != wanted.len() {
            all.error = f64::INFINITY;
        }
        for (i, (&f, &w)) in found.iter().zip(&wanted).enumerate() {
            let error = difference(f, w, exact, scale);
            if error > all.error {
                all = Comparison { error, worst: Some((param.name.to_string(), i, f, w)) };
            }
        }
    }
    all
}

fn difference(found: f64, wanted: f64, exact: bool, scale: f64) -> f64 {
    if found == wanted || found.is_nan() && wanted.is_nan() {
        0.0
    } else if exact || !found.is_finite() || !wanted.is_finite() {
        f64::INFINITY
    } else {
        (found - wanted).abs() / scale
    }
}

/// The numbers of a buffer, and whether they must be exactly right.
fn numbers(arg: &CpuArg) -> (Vec<f64>, bool) {
    fn of<T: Copy>(v: &[T], f: impl Fn(T) -> f64) -> Vec<f64> {
        v.iter().map(|&x| f(x)).collect()
    }
    match arg {
        CpuArg::U8(v) => (of(v, f64::from), true),
        CpuArg::S8(v) => (of(v, f64::from), true),
        CpuArg::U16(v) => (of(v, f64::from), true),
        CpuArg::U32(v) => (of(v, f64::from), true),
        CpuArg::S32(v) => (of(v, f64::from), true),
        CpuArg::U64(v) => (of(v, |x| x as f64), true),
        CpuArg::F32(v) => (of(v, f64::from), false),
        CpuArg::F16(v) => (of(v, |x| x.to_f32().into()), false),
        CpuArg::Bf16(v) => (of(v, |x| x.to_f32().into()), false),
        CpuArg::Scalar(_) => (vec![], true),
    }
}

/// Reproducible numbers: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from -1 to 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// `n` numbers from -1 to 1.
    pub fn units(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u32) -> u32 {
        ((self.bits() >> 32) * u64::from(n) >> 32) as u32
    }
}
