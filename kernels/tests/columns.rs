//! Several columns at once give each column the bits that it has alone.

#[allow(dead_code, reason = "nothing is compared with a reference here")]
mod machine;

use machine::once;
use ptx_gen::CpuArg;
use warpwright_kernels::tiled::{
    AttentionChained, Finish, GateUp, Head, HeadNorm, Plan, Project, Qkv, Trigger,
};
use warpwright_kernels::{Format, Pairing, Variant};

/// Arguments of which each column has its part. The others are the same for all, caches among them.
const OF_COLUMN: [&str; 12] = [
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
    "part",
    "ticket of attention",
];
/// What is not looked at: parts lie otherwise, and several columns leave their states.
const IGNORED: [&str; 2] = ["part", "state"];

fn check(together: &dyn Variant, alone: &dyn Variant, columns: usize) {
    let params = together.params();
    let names: Vec<String> = params
        .iter()
        .map(|p| match p.name {
            "ticket" if together.name().starts_with("attention") => "ticket of attention".to_owned(),
            name => name.to_owned(),
        })
        .collect();
    let splits = |i: usize| OF_COLUMN.contains(&names[i].as_str());
    for case in together.cases(3) {
        let all = once(together, &case.args);
        let mut args = case.args.clone();
        for column in 0..columns {
            let given: Vec<CpuArg> = (0..args.len())
                .map(|i| if splits(i) { part(&args[i], column, columns) } else { args[i].clone() })
                .collect();
            let found = once(alone, &given);
            for (i, name) in names.iter().enumerate().filter(|(_, name)| !IGNORED.contains(&name.as_str())) {
                match splits(i) {
                    true => {
                        let wanted = part(&all[i], column, columns);
                        assert!(found[i] == wanted, "{}, {}: {name} {column}", together.name(), case.label);
                    }
                    false => args[i] = found[i].clone(),
                }
            }
        }
        for (i, name) in names.iter().enumerate().filter(|(i, _)| !splits(*i)) {
            assert!(args[i] == all[i], "{}, {}: {name}", together.name(), case.label);
        }
    }
}

/// A column's part of an argument.
fn part(arg: &CpuArg, column: usize, columns: usize) -> CpuArg {
    fn of<T: Clone>(v: &[T], column: usize, columns: usize) -> Vec<T> {
        assert!(v.len().is_multiple_of(columns), "each column has as many");
        v[v.len() / columns * column..][..v.len() / columns].to_vec()
    }
    match arg {
        CpuArg::F32(v) => CpuArg::F32(of(v, column, columns)),
        CpuArg::U16(v) => CpuArg::U16(of(v, column, columns)),
        CpuArg::U32(v) => CpuArg::U32(of(v, column, columns)),
        other => panic!("{other:?} is of no column"),
    }
}

#[test]
fn products_are_those_of_each_column_alone() {
    let formats =
        [Format::Q4_0, Format::Q8_0, Format::Q4_K, Format::Q5_K, Format::Q6_K, Format::F16, Format::BF16];
    for format in formats {
        let of = |plan| Project { format, plan };
        check(&of(Plan::SHIPPED.by(3)), &of(Plan::SHIPPED), 3);
    }
    let of = |plan| GateUp { format: Format::Q4_K, plan };
    check(&of(Plan::SHORT.by(8)), &of(Plan::SHORT), 8);
    let of = |plan| GateUp { format: Format::F16, plan };
    check(&of(Plan::HALVES.by(2)), &of(Plan::HALVES), 2);
    let of = |plan| Head { format: Format::Q6_K, plan };
    check(&of(Plan::SHIPPED.by(2)), &of(Plan::SHIPPED), 2);
}

#[test]
fn queries_keys_and_values_are_those_of_each_column_alone() {
    let formats = [Format::Q4_K, Format::Q4_K, Format::Q6_K];
    for finish in [Finish::Append, Finish::Raw] {
        let of = |plan| Qkv { finish, plan, ..Qkv::shipped(formats, Pairing::HalfSplit, true) };
        check(&of(Plan::SHIPPED.by(3)), &of(Plan::SHIPPED), 3);
    }
    let of = |columns| HeadNorm { chained: true, columns };
    check(&of(4), &of(1), 4);
}

#[test]
fn attention_is_that_of_each_column_alone() {
    for kernel in [AttentionChained::shipped(128, 4), AttentionChained::shipped(64, 9)] {
        let alone = AttentionChained { trigger: Trigger::Waited, ..kernel };
        check(&kernel.by(3), &alone, 3);
    }
}
