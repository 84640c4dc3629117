//! The instruction table is whole: walked row by row.

use ptx_gen::isa::{
    Completion, Effect, GridStep, MbarrierStep, MemoryOrder, Op, StateSpace, Uniformity, WgmmaStep,
};
use ptx_gen::{Target, isa, print, samples};
use std::collections::BTreeSet;

#[test]
fn rows_are_unique_documented_and_typed() {
    let (mut ids, mut forms) = (BTreeSet::new(), BTreeSet::new());
    for op in isa::all() {
        assert!(ids.insert(op.id), "{} stands twice", op.id);
        let form = format!("{} {:?} {:?} {:?}", op.template, op.types, op.from, op.form);
        assert!(forms.insert(form), "{} repeats {}", op.id, op.template);
        assert!(
            !op.doc.is_empty() && op.doc.len() <= 100,
            "{}: {}",
            op.id,
            op.doc
        );
        assert!(
            op.doc.is_ascii() && !op.doc.ends_with('.'),
            "{}: {}",
            op.id,
            op.doc
        );
        assert_eq!(
            op.template.contains("$s"),
            !op.from.is_empty() && *op != isa::BITS,
            "{}",
            op.id
        );
        let typed = ["$t", "$m", "$b"].iter().any(|s| op.template.contains(s));
        assert_eq!(typed, !op.types.is_empty(), "{}", op.id);
    }
}

#[test]
fn every_row_has_samples_for_every_type() {
    let samples = samples();
    for op in isa::all() {
        let of_row = samples.iter().filter(|s| s.op == op).count();
        assert_eq!(of_row, op.instances().count(), "{}", op.id);
    }
    let names: BTreeSet<&str> = samples.iter().map(|s| s.program.name.as_str()).collect();
    assert_eq!(names.len(), samples.len(), "two samples of one name");
}

#[test]
fn samples_print_where_their_row_allows() {
    for s in samples() {
        for target in Target::ALL {
            match print(&s.program, target) {
                Ok(text) => {
                    assert!(text.is_ascii());
                    assert!(
                        text.contains(s.op.template.split(['$', ' ']).next().expect("one part"))
                    );
                }
                Err(e) => assert!(
                    target.sm < e.needs && e.needs <= 120 || e.specific && target.name != "sm_90a",
                    "{e}"
                ),
            }
        }
    }
}

#[test]
fn printing_twice_gives_the_same_bytes() {
    let text = |t| {
        samples()
            .iter()
            .map(|s| print(&s.program, t).unwrap_or_default())
            .collect::<String>()
    };
    let target = Target::named("sm_90").expect("a target");
    assert_eq!(text(target), text(target));
}

#[test]
fn targets_of_devices() {
    let cases = [
        ((7, 0), None),
        ((7, 5), Some("sm_75")),
        ((8, 0), Some("sm_80")),
        ((8, 7), Some("sm_86")),
        ((8, 9), Some("sm_89")),
        ((9, 0), Some("sm_90a")),
        ((10, 0), Some("sm_100")),
        ((10, 3), Some("sm_100")),
        ((12, 1), Some("sm_120")),
    ];
    for ((major, minor), want) in cases {
        assert_eq!(
            Target::for_device(major, minor).map(|t| t.name),
            want,
            "{major}.{minor}"
        );
    }
}

/// What the words of a mnemonic say that it does, by the manual. Written without the table, which is held to it.
fn effect(op: &Op) -> Effect {
    let words: Vec<&str> = op.template.split(['.', ' ', ',']).collect();
    let has = |word: &str| words.contains(&word);
    let step = Effect::Mbarrier;
    match words[0] {
        "ld" => Effect::Load(space(&words), order(&words, MemoryOrder::Weak)),
        "st" => Effect::Store(space(&words), order(&words, MemoryOrder::Weak)),
        "atom" | "red" => Effect::Atomic(space(&words), order(&words, MemoryOrder::Relaxed)),
        "ldmatrix" => Effect::LoadMatrix,
        "stmatrix" => Effect::StoreMatrix,
        "movmatrix" => Effect::Exchange(Uniformity::Differs),
        "wgmma" if has("fence") => Effect::Wgmma(WgmmaStep::Fence),
        "wgmma" if has("commit_group") => Effect::Wgmma(WgmmaStep::Commit),
        "wgmma" if has("wait_group") => Effect::Wgmma(WgmmaStep::Wait),
        "wgmma" => Effect::Wgmma(WgmmaStep::Multiply),
        "prefetch" => Effect::Prefetch,
        "cp" if has("prefetch") => Effect::Prefetch,
        "cp" if has("commit_group") || has("wait_group") || has("wait_all") => Effect::CopyGroup,
        "cp" if has("bulk_group") => Effect::Copy(Completion::BulkGroup),
        "cp" if has("bulk") => Effect::Copy(Completion::Mbarrier),
        "cp" if has("mbarrier") => step(MbarrierStep::ArriveCopied),
        "cp" => Effect::Copy(Completion::Group),
        "mbarrier" if has("init") => step(MbarrierStep::Init),
        "mbarrier" if has("inval") => step(MbarrierStep::Invalidate),
        "mbarrier" if has("expect_tx") => step(MbarrierStep::ArriveExpect),
        "mbarrier" if has("arrive") => step(MbarrierStep::Arrive),
        "mbarrier" if has("test_wait") || has("try_wait") => step(MbarrierStep::Wait),
        "fence" | "membar" => Effect::Fence,
        "bar" | "barrier" => Effect::Barrier,
        "griddepcontrol" if has("wait") => Effect::Grid(GridStep::Wait),
        "griddepcontrol" => Effect::Grid(GridStep::Trigger),
        // A vote and a reduction give one value; what a shuffle gives depends on how lanes are addressed.
        "vote" | "redux" => Effect::Exchange(Uniformity::Same(ptx_gen::Level::Warp)),
        "shfl" if has("idx") || has("bfly") => Effect::Exchange(Uniformity::AsOperands),
        "shfl" | "elect" => Effect::Exchange(Uniformity::Differs),
        "trap" | "nanosleep" | "setmaxnreg" => Effect::Control,
        _ => Effect::Pure,
    }
}

fn space(words: &[&str]) -> StateSpace {
    let spaces = [
        ("global", StateSpace::Global),
        ("shared", StateSpace::Shared),
        ("shared::cluster", StateSpace::Cluster),
        ("param", StateSpace::Param),
    ];
    let found = spaces.into_iter().find(|(word, _)| words.contains(word));
    found
        .map(|(_, space)| space)
        .unwrap_or_else(|| panic!("{words:?} names no state space"))
}

fn order(words: &[&str], otherwise: MemoryOrder) -> MemoryOrder {
    let orders = [
        ("nc", MemoryOrder::Noncoherent),
        ("relaxed", MemoryOrder::Relaxed),
        ("acquire", MemoryOrder::Acquire),
        ("release", MemoryOrder::Release),
        ("acq_rel", MemoryOrder::AcquireRelease),
    ];
    orders
        .into_iter()
        .find(|(word, _)| words.contains(word))
        .map_or(otherwise, |(_, order)| order)
}

#[test]
fn a_row_states_what_its_mnemonic_says() {
    for op in isa::all() {
        assert_eq!(op.effect, effect(op), "{}: {}", op.id, op.template);
    }
}

#[test]
fn an_instruction_with_the_address_of_an_mbarrier_says_that_it_is_on_one() {
    for op in isa::all() {
        assert_eq!(
            op.form.src.contains(&isa::Slot::Barrier),
            op.effect.is_on_mbarrier(),
            "{}",
            op.id
        );
    }
}
