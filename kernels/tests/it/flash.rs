//! Tests of the flash kernels of training that one bound for all outputs of a kernel cannot
//! express.

use crate::machine::once;
use ptx_gen::{CpuArg, Param, ParamKind, ShapeArg};
use warpwright_kernels::Variant;
use warpwright_kernels::train::flash::{
    FlashForward, FlashKeys, FlashQueries, SummedHeads, TensorOp,
};

const FORWARD: FlashForward = FlashForward::new(64);
const QUERIES: FlashQueries = FlashQueries::new(64);
const KEYS: FlashKeys = FlashKeys {
    head_dim: 64,
    parts: SummedHeads::Heads,
    op: TensorOp::Mma,
};

fn numbers(arg: &CpuArg) -> Vec<f64> {
    match arg {
        CpuArg::F32(v) => v.iter().map(|&x| x.into()).collect(),
        CpuArg::Bf16(v) => v.iter().map(|x| x.to_f32().into()).collect(),
        other => panic!("{other:?} has no numbers"),
    }
}

/// Returns the distance of each output from the reference, relative to the norm of the reference,
/// for documents that are longer and shorter than tiles.
fn distances(kernel: &dyn Variant) -> Vec<(&'static str, f64)> {
    let case = kernel.cases(2).swap_remove(1);
    let found = once(kernel, &case.args);
    let mut wanted = case.args;
    kernel.reference_on(&mut wanted).unwrap();
    let length = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let distance = |(name, found, wanted): (&'static str, &CpuArg, &CpuArg)| {
        let found = numbers(found);
        let wanted = numbers(wanted);
        let apart = length(&mut found.iter().zip(&wanted).map(|(f, w)| f - w));
        (name, apart / length(&mut wanted.iter().copied()))
    };
    let written =
        |param: &Param| matches!(param.kind, ParamKind::Buffer(_, access) if access.writes());
    let outputs = kernel.params().into_iter().zip(found.iter().zip(&wanted));
    let outputs = outputs.filter(|(param, _)| written(param));
    outputs
        .map(|(param, (found, wanted))| distance((param.name, found, wanted)))
        .collect()
}

/// The bound: an operand that is not rounded, or rounded twice, gives 1e-3 or more.
#[test]
fn rounds_what_the_reference_rounds() {
    let groups = FlashKeys {
        parts: SummedHeads::Groups,
        ..KEYS
    };
    let kernels: [&dyn Variant; 4] = [&FORWARD, &QUERIES, &KEYS, &groups];
    for (name, distance) in kernels.into_iter().flat_map(distances) {
        println!("{name} {distance:e}");
        // Weights are relative to the maximum so far and not to the final one, and `o` is rounded.
        let most = if name == "o" { 2e-3 } else { 2e-5 };
        assert!(distance <= most, "{name} is {distance:e} away");
    }
}

/// The first tokens of documents are in device memory. With any values there, no kernel accesses
/// memory outside of its arguments, and all kernels end.
#[test]
fn first_tokens_out_of_range_do_no_harm() {
    let kernels: [&dyn Variant; 3] = [&FORWARD, &QUERIES, &KEYS];
    for kernel in kernels {
        for f in [
            |_| u32::MAX,
            |i: u32| i ^ 40,
            |i: u32| u32::MAX - i,
            |i: u32| 7 * i,
            |i: u32| i + 1,
        ] {
            let mut args = kernel.cases(1).swap_remove(1).args;
            let CpuArg::U32(starts) = &mut args[3] else {
                panic!("{}: starts", kernel.name())
            };
            starts
                .iter_mut()
                .zip(0..)
                .for_each(|(start, i)| *start = f(i));
            once(kernel, &args);
        }
    }
}

/// Returns the message with which a kernel rejects a changed case of seven heads and 33 tokens.
fn refusal(kernel: &dyn Variant, change: Option<(&str, ShapeArg)>) -> String {
    // Kernels of another head length have equal arguments.
    let like: [&dyn Variant; 3] = [&FORWARD, &QUERIES, &KEYS];
    let names = |kernel: &dyn Variant| {
        kernel
            .params()
            .iter()
            .map(|param| param.name)
            .collect::<Vec<_>>()
    };
    let like = like
        .into_iter()
        .find(|like| names(*like) == names(kernel))
        .expect("one of three");
    let mut args: Vec<ShapeArg> = like.cases(1)[2].args.iter().map(CpuArg::shape).collect();
    if let Some((name, to)) = change {
        args[names(kernel)
            .iter()
            .position(|&other| other == name)
            .expect("an argument")] = to;
    }

    kernel
        .geometry(&args)
        .expect_err("the change is wrong")
        .what
}

/// A kernel, the changed argument, and the message.
type Refused<'a> = (&'a dyn Variant, Option<(&'a str, ShapeArg)>, &'a str);

#[test]
fn contracts_say_what_is_wrong() {
    use ShapeArg::{Len, Scalar};
    let of = FlashForward::new;
    let groups = FlashKeys {
        parts: SummedHeads::Groups,
        ..KEYS
    };
    let refused: [Refused<'_>; 13] = [
        (
            &of(144),
            None,
            "the kernel's head_dim is 144, must be 16 to 128",
        ),
        (
            &of(72),
            None,
            "the kernel's head_dim is 72, must be a positive multiple of 16",
        ),
        (
            &FORWARD.with_queries(96),
            None,
            "the kernel's queries is 96, must be 64 or 128",
        ),
        (
            &QUERIES.with_queries(0),
            None,
            "the kernel's queries is 0, must be 64 or 128",
        ),
        (
            &of(80).with_queries(128),
            None,
            "the kernel's queries is 128, must be 64 for a head_dim of 80",
        ),
        (
            &FORWARD,
            Some(("tokens", Scalar(0))),
            "tokens is 0, must be 1 to 2097152",
        ),
        (
            &FORWARD,
            Some(("kv_heads", Scalar(0))),
            "kv_heads is 0, must be 1 to 65536",
        ),
        (
            &FORWARD,
            Some(("kv_heads", Scalar(2))),
            "heads is 7, must be a positive multiple of 2",
        ),
        (
            &FORWARD,
            Some(("starts", Len(34))),
            "starts has 34 elements, must have tokens = 33",
        ),
        (
            &FORWARD,
            Some(("tokens", Scalar(34))),
            "q has 14784 elements, must have tokens * heads * head_dim = 15232",
        ),
        (
            &KEYS,
            Some(("dk", Len(2112))),
            "dk has 2112 elements, must have tokens * heads * head_dim = 14784",
        ),
        (
            &groups,
            None,
            "dk has 14784 elements, must have tokens * kv_heads * head_dim = 2112",
        ),
        (
            &QUERIES,
            Some(("delta", Len(230))),
            "delta has 230 elements, must have tokens * heads = 231",
        ),
    ];
    for (kernel, change, message) in refused {
        assert_eq!(refusal(kernel, change), message);
    }
}
