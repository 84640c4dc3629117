//! Tests of the kernels of a mixture of experts: their cases on the emulator, and planted faults.

use crate::machine::{FEW, check};
use ptx_emu::Module;
use ptx_gen::{AnyKernel, Target, print};
use warpwright_kernels::{
    AddBias, AddExpertBias, AddExperts, AddGated, AttentionCombine, AttentionCombineSinks,
    ChooseExperts, ClampedSwiGlu, CombineExperts, ExpertGemv, Format, Team, Variant, Weighting,
};

/// Returns the first failure of a kernel's cases, if its text is changed.
fn failure(kernel: &dyn Variant, change: impl Fn(&str) -> String) -> Option<String> {
    let name = kernel.name();
    let program = kernel.build().unwrap_or_else(|e| panic!("{name}: {e}"));
    let text = print(&program, Target::ALL[0]).unwrap_or_else(|e| panic!("{name}: {e}"));
    let module = Module::parse(&change(&text))
        .and_then(Module::complete)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let code = module.kernel(&name).expect("the module holds the kernel");
    let cases = kernel.cases(1);
    cases.iter().find_map(|case| {
        let e = check(kernel, code, case, FEW).err()?;
        Some(format!("{name}, {}: {e}", case.label))
    })
}

/// Returns the text without line `at` of the lines that `is` selects.
fn without(text: &str, is: impl Fn(&str) -> bool, at: usize) -> String {
    let mut seen = 0;
    let kept: Vec<&str> = text
        .lines()
        .filter(|line| {
            let found = is(line.trim());
            seen += usize::from(found);
            !(found && seen - 1 == at)
        })
        .collect();
    assert!(seen > at, "{at} of {seen} lines:\n{text}");
    kept.join("\n")
}

fn is_barrier(line: &str) -> bool {
    line.starts_with("bar.sync") || line.starts_with("barrier.sync")
}

/// Replaces the text `from`, which must occur `times` times.
fn replaced(text: &str, from: &str, to: &str, times: usize) -> String {
    assert_eq!(text.matches(from).count(), times, "{from} in:\n{text}");
    text.replace(from, to)
}

const CHOICES: [ChooseExperts; 2] = [
    ChooseExperts {
        weighting: Weighting::All,
    },
    ChooseExperts {
        weighting: Weighting::Chosen,
    },
];

#[test]
fn choices_equal_their_reference() {
    for kernel in CHOICES {
        assert_eq!(failure(&kernel, str::to_owned), None);
    }
}

#[test]
fn experts_of_every_format_equal_their_reference() {
    for format in Format::ALL {
        for team in [Team::Warp, Team::Block] {
            assert_eq!(failure(&ExpertGemv { format, team }, str::to_owned), None);
        }
    }
}

#[test]
fn a_missing_barrier_of_the_choice_is_found() {
    for kernel in CHOICES {
        let text = print(&kernel.build().expect("builds"), Target::ALL[0]).expect("prints");
        let barriers = text.lines().filter(|line| is_barrier(line.trim())).count();
        assert_eq!(barriers, 2, "{text}");
        for at in 0..barriers {
            let found = failure(&kernel, |text| without(text, is_barrier, at));
            let found = found.unwrap_or_else(|| panic!("{} without barrier {at}", kernel.name()));
            assert!(found.contains("race") || found.contains("Race"), "{found}");
        }
    }
}

#[test]
fn the_wrong_weighting_is_found() {
    // Each kernel's text under the name of the other.
    let names = CHOICES.map(|kernel| kernel.name());
    for i in 0..2 {
        let program = CHOICES[1 - i].build().expect("builds");
        let other = print(&program, Target::ALL[0]).expect("prints");
        let other = other.replace(&names[1 - i], &names[i]);
        let found = failure(&CHOICES[i], |_| other.clone());
        assert!(
            found.is_some_and(|e| e.contains("\"weight\"")),
            "{}",
            names[i]
        );
    }
}

/// One slot more than chosen writes outside of the buffers, and one less leaves a slot unwritten.
#[test]
fn one_slot_more_or_less_is_found() {
    let added = |text: &str, by: i32| -> String {
        let load = text
            .lines()
            .find(|line| line.contains("[chosen]"))
            .expect("the kernel loads the number of chosen experts");
        let register = load
            .split_whitespace()
            .nth(1)
            .expect("a register")
            .trim_end_matches(',');
        replaced(
            text,
            load,
            &format!("{load}\n\tadd.s32 {register}, {register}, {by};"),
            1,
        )
    };
    for kernel in CHOICES {
        for by in [1, -1] {
            let found = failure(&kernel, |text| added(text, by));
            assert!(found.is_some(), "{} by {by}", kernel.name());
        }
    }
}

/// A slot past the end of the sum reads outside of the buffers.
#[test]
fn an_unbounded_index_is_found() {
    let kernel = ExpertGemv {
        format: Format::F32,
        team: Team::Warp,
    };
    let found = failure(&kernel, |text| {
        // The first minimum bounds the index. It becomes a copy.
        let bound = text
            .lines()
            .find(|line| line.trim().starts_with("min.u32"))
            .expect("a bound");
        let words: Vec<&str> = bound.split_whitespace().collect();
        let copy = format!("\tmov.u32 {} {};", words[1], words[2].trim_end_matches(','));
        text.replacen(bound, &copy, 1)
    });
    assert!(found.is_some_and(|e| e.contains("index") || e.contains("outside")));
}

#[test]
fn sums_equal_their_reference() {
    let kernels: [&dyn Variant; 8] = [
        &AddBias,
        &AddExpertBias,
        &AddExperts,
        &CombineExperts,
        &AddGated,
        &ClampedSwiGlu,
        &AttentionCombine { head_dim: 64 },
        &AttentionCombineSinks { head_dim: 64 },
    ];
    for kernel in kernels {
        assert_eq!(failure(kernel, str::to_owned), None);
    }
}
