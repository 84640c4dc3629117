//! Test that each token of a batch gets bit for bit the results of a batch of one.

use crate::machine::once;
use ptx_gen::CpuArg;
use warpwright_kernels::format::activations::ActivationBytes;
use warpwright_kernels::pipeline::{
    AngleSet, GateUp, HeadNorm, LmHead, Paged, PipelinedAttention, Plan, Project, ProjectOutput,
    Qkv, QkvOutput,
};
use warpwright_kernels::{Activation, Format, Pairing, Variant};

/// The arguments with one row per token. The other arguments, for example the caches, are shared.
const PER_TOKEN: [&str; 12] = [
    "x",
    "x_scale",
    "y",
    "y_scale",
    "q",
    "angles",
    "state",
    "logits",
    "value",
    "index",
    "partials",
    "ticket of attention",
];
/// The arguments that are not compared: partial results have another layout, and a larger batch
/// does not update its states.
const IGNORED: [&str; 2] = ["partials", "state"];

/// Returns the plan with three bytes per activation.
fn three(plan: Plan) -> Plan {
    Plan {
        bytes: ActivationBytes::Three,
        ..plan
    }
}

fn check(batched: &dyn Variant, single: &dyn Variant, batch: usize) {
    let params = batched.params();
    let names: Vec<String> = params
        .iter()
        .map(|p| match p.name {
            "ticket" if batched.name().starts_with("attention") => "ticket of attention".to_owned(),
            name => name.to_owned(),
        })
        .collect();
    let splits = |i: usize| PER_TOKEN.contains(&names[i].as_str());
    for case in batched.cases(3) {
        let all = once(batched, &case.args);
        let mut args = case.args.clone();
        for item in 0..batch {
            let given: Vec<CpuArg> = (0..args.len())
                .map(|i| {
                    if splits(i) {
                        slice(&args[i], item, batch)
                    } else {
                        args[i].clone()
                    }
                })
                .collect();
            let found = once(single, &given);
            for (i, name) in names
                .iter()
                .enumerate()
                .filter(|(_, name)| !IGNORED.contains(&name.as_str()))
            {
                if splits(i) {
                    let wanted = slice(&all[i], item, batch);
                    assert!(
                        found[i] == wanted,
                        "{}, {}: {name} {item}",
                        batched.name(),
                        case.label
                    );
                } else {
                    args[i] = found[i].clone();
                }
            }
        }

        for (i, name) in names.iter().enumerate().filter(|(i, _)| !splits(*i)) {
            assert!(
                args[i] == all[i],
                "{}, {}: {name}",
                batched.name(),
                case.label
            );
        }
    }
}

/// Returns a token's slice of an argument.
fn slice(arg: &CpuArg, item: usize, batch: usize) -> CpuArg {
    fn of<T: Clone>(v: &[T], item: usize, batch: usize) -> Vec<T> {
        assert!(v.len().is_multiple_of(batch), "each token has as many");
        v[v.len() / batch * item..][..v.len() / batch].to_vec()
    }
    match arg {
        CpuArg::F32(v) => CpuArg::F32(of(v, item, batch)),
        CpuArg::U16(v) => CpuArg::U16(of(v, item, batch)),
        CpuArg::U32(v) => CpuArg::U32(of(v, item, batch)),
        other => panic!("{other:?} has no rows per token"),
    }
}

#[test]
fn products_are_those_of_a_batch_of_one() {
    let formats = [
        Format::Q4_0,
        Format::Q8_0,
        Format::Q4_K,
        Format::Q5_K,
        Format::Q6_K,
        Format::F16,
        Format::BF16,
    ];
    for format in formats {
        let of = |plan| Project {
            format,
            output: ProjectOutput::Residual,
            plan,
        };
        check(&of(Plan::DEFAULT.with_batch(3)), &of(Plan::DEFAULT), 3);
    }

    let of = |plan| Project {
        format: Format::Q3_K,
        output: ProjectOutput::Residual,
        plan,
    };
    check(
        &of(three(Plan::DEFAULT.with_batch(3))),
        &of(three(Plan::DEFAULT)),
        3,
    );
    let of = |plan| GateUp {
        format: Format::Q4_K,
        activation: Activation::Silu,
        plan,
    };
    check(
        &of(Plan::TWELVE_WARPS.with_batch(8)),
        &of(Plan::TWELVE_WARPS),
        8,
    );
    let of = |plan| GateUp {
        format: Format::F16,
        activation: Activation::GeluTanh,
        plan,
    };
    check(&of(Plan::HALF.with_batch(2)), &of(Plan::HALF), 2);
    let of = |plan| LmHead {
        format: Format::Q6_K,
        plan,
    };
    check(&of(Plan::DEFAULT.with_batch(2)), &of(Plan::DEFAULT), 2);
}

#[test]
fn queries_keys_and_values_are_those_of_a_batch_of_one() {
    let formats = [Format::Q4_K, Format::Q4_K, Format::Q6_K];
    for output in [QkvOutput::Append, QkvOutput::Raw] {
        let of = |plan| Qkv {
            output,
            plan,
            ..Qkv::with_default_plan(formats, Pairing::HalfSplit, true)
        };
        check(&of(Plan::DEFAULT.with_batch(3)), &of(Plan::DEFAULT), 3);
    }

    let formats = [Format::Q2_K, Format::Q2_K, Format::Q4_K];
    let of = |plan| Qkv {
        plan,
        ..Qkv::with_default_plan(formats, Pairing::Interleaved, false)
    };
    check(
        &of(three(Plan::DEFAULT.with_batch(3))),
        &of(three(Plan::DEFAULT)),
        3,
    );
    let of = |batch| HeadNorm {
        overlap: true,
        batch,
        angles: AngleSet::ONLY,
    };
    check(&of(4), &of(1), 4);
}

#[test]
fn tokens_of_several_sequences_are_those_of_batches_of_one() {
    let formats = [Format::Q4_K, Format::Q4_K, Format::Q6_K];
    let qkv = |plan| Qkv {
        plan,
        ..Qkv::with_default_plan(formats, Pairing::HalfSplit, true)
    };
    check(
        &Paged(qkv(Plan::DEFAULT.with_batch(3))),
        &Paged(qkv(Plan::DEFAULT)),
        3,
    );
    let norm = |batch| HeadNorm {
        overlap: true,
        batch,
        angles: AngleSet::ONLY,
    };
    check(&Paged(norm(4)), &Paged(norm(1)), 4);
    let attention = PipelinedAttention::new(128, 4);
    check(&Paged(attention.with_batch(3)), &Paged(attention), 3);
}

#[test]
fn attention_is_that_of_a_batch_of_one() {
    for kernel in [
        PipelinedAttention::new(128, 4),
        PipelinedAttention::new(64, 9),
    ] {
        check(&kernel.with_batch(3), &kernel, 3);
    }
}
