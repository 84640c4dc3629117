//! Tests that NaN and infinity propagate to the logits, which the engine rejects.

use crate::machine::once;
use ptx_gen::{CpuArg, f16};
use warpwright_kernels::pipeline::{
    AngleSet, GateUp, HeadNorm, LmHead, PipelinedAttention, Plan, Project, ProjectOutput, Qkv,
    block_float,
};
use warpwright_kernels::prompt::RotateTokens;
use warpwright_kernels::{Activation, Case, Format, Overlap, Pairing, Rope, Variant};

/// Returns the elements of the argument `y` after a kernel ran with `bad` as element `i` of the
/// argument `of`.
fn left(kernel: &dyn Variant, case: &Case, of: &str, bad: f32) -> Vec<f32> {
    let place = |name| {
        kernel
            .params()
            .iter()
            .position(|p| p.name == name)
            .expect("an argument of that name")
    };
    let mut args = case.args.clone();
    match &mut args[place(of)] {
        CpuArg::F32(v) => v[0] = bad,
        CpuArg::F16(v) => v[0] = f16::from_f32(bad),
        other => panic!("{of} is {other:?}"),
    }

    let found = once(kernel, &args);
    match &found[place("y")..] {
        [CpuArg::F32(y), ..] => y.clone(),
        [CpuArg::U16(values), CpuArg::F32(scales), ..] => block_float::decode(values, scales),
        other => panic!("y is {:?}", other[0]),
    }
}

#[test]
fn nan_and_infinity_propagate_through_kernels() {
    // The first case of each kernel has one row block and one position.
    let project = |format| Project {
        format,
        output: ProjectOutput::Residual,
        plan: Plan::DEFAULT,
    };
    let gate_up = GateUp {
        format: Format::Q4_K,
        activation: Activation::Silu,
        plan: Plan::DEFAULT,
    };
    let attention = PipelinedAttention::new(64, 1);
    let kernels: [(&dyn Variant, &str); 6] = [
        (&project(Format::Q4_K), "x_scale"),
        (&project(Format::Q6_K), "x_scale"),
        (
            &Project {
                format: Format::BF16,
                output: ProjectOutput::Residual,
                plan: Plan::HALF,
            },
            "x_scale",
        ),
        (&gate_up, "x"),
        (&attention, "v_cache"),
        (&attention, "k_cache"),
    ];
    for (kernel, of) in kernels {
        let case = &kernel.cases(1)[0];
        for bad in [f32::NAN, f32::INFINITY] {
            let y = left(kernel, case, of, bad);
            let block = &y[..block_float::BFP_BLOCK as usize];
            assert!(
                block.iter().all(|y| !y.is_finite()),
                "{} from {bad}: {block:?}",
                kernel.name()
            );
        }
    }
}

/// An infinite key could remove its position from attention if the query has the other sign.
#[test]
fn a_key_beyond_f16_is_none() {
    let qkv = Qkv::with_default_plan([Format::Q8_0; 3], Pairing::HalfSplit, true);
    let rotate = RotateTokens {
        head_dim: 64,
        pairing: Pairing::Interleaved,
        bias: true,
        norm: true,
        overlap: Overlap::No,
    };
    let kernels: [(&dyn Variant, &str); 5] = [
        (
            &RotateTokens {
                norm: false,
                ..rotate
            },
            "bias",
        ),
        (&rotate, "gamma"),
        (
            &Rope {
                pairing: Pairing::HalfSplit,
                magnitude: 1.0,
            },
            "k",
        ),
        (&qkv, "bias"),
        (
            &HeadNorm {
                overlap: true,
                batch: 1,
                angles: AngleSet::ONLY,
            },
            "gamma",
        ),
    ];
    for (kernel, of) in kernels {
        let mut lost = 0;
        for case in kernel.cases(1) {
            let place = |name| {
                kernel
                    .params()
                    .iter()
                    .position(|p| p.name == name)
                    .expect("an argument")
            };
            let mut args = case.args.clone();
            let CpuArg::F32(values) = &mut args[place(of)] else {
                panic!("{of} is no f32")
            };
            for value in values {
                *value *= 1e7;
            }
            let CpuArg::F16(cache) = &once(kernel, &args)[place("k_cache")] else {
                panic!("no cache")
            };

            assert!(
                cache.iter().all(|k| !k.to_f32().is_infinite()),
                "{} on {}",
                kernel.name(),
                case.label
            );
            lost += cache.iter().filter(|k| k.to_f32().is_nan()).count();
        }
        assert!(lost > 0, "{} kept every key", kernel.name());
    }
}

/// The reciprocals of these activations are subnormal, and an approximation flushes them to zero.
#[test]
fn activations_near_the_end_of_the_range_are_not_lost() {
    let plan = Plan::DEFAULT;
    let qkv = [Format::Q8_0; 3];
    let qkv = Qkv::with_default_plan(qkv, Pairing::HalfSplit, false);

    // One weight of the norm is that large, and the others are zero. The last stored number is
    // large.
    let kernels: [(&dyn Variant, f32, &str); 3] = [
        (
            &LmHead {
                format: Format::F16,
                plan: Plan::HALF,
            },
            1.5e38,
            "logits",
        ),
        (&qkv, 1.5e38, "q"),
        (
            &GateUp {
                format: Format::Q4_K,
                activation: Activation::Silu,
                plan,
            },
            2e19,
            "y",
        ),
    ];
    for (kernel, large, of) in kernels {
        let params = kernel.params();
        let place = |name| {
            params
                .iter()
                .position(|p| p.name == name)
                .expect("an argument")
        };
        let case = &kernel.cases(1)[0];
        let mut args = case.args.clone();
        let CpuArg::F32(gamma) = &mut args[place("gamma")] else {
            panic!("gamma is no f32")
        };

        gamma.fill(0.0);
        gamma[0] = large;
        let mut wanted = args.clone();
        kernel.reference_on(&mut wanted).expect("the arguments fit");
        let found = once(kernel, &args);
        let numbers = |args: &[CpuArg]| match &args[place(of)..] {
            [CpuArg::F32(y), ..] => y.clone(),
            [CpuArg::U16(values), CpuArg::F32(scales), ..] => block_float::decode(values, scales),
            other => panic!("{of} is {:?}", other[0]),
        };
        let wanted = numbers(&wanted);
        let found = numbers(&found);
        let largest = wanted.iter().fold(0.0, |m: f32, y| m.max(y.abs()));
        assert!(largest > 1e36, "{}: {largest}", kernel.name());
        for (wanted, found) in wanted.iter().zip(&found) {
            // The sum of a group of codes may be infinite, which the engine rejects, but it is not
            // lost.
            let kept = (found - wanted).abs() < 1e-3 * largest
                || !found.is_finite()
                || !wanted.is_finite();
            assert!(kept, "{}: {found}, wanted {wanted}", kernel.name());
        }
    }
}
