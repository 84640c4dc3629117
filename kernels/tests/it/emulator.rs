//! Test that every case of every kernel is right on the emulator, with equal bits under every
//! schedule.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::machine::check;
use ptx_emu::Module;
use ptx_gen::{Target, print, print_with_lines};
use warpwright_kernels::{ALL, Case, Variant};

const SEED: u64 = 1;

#[test]
fn all_kernels_compute_their_reference() {
    let failures: Vec<String> = each_in_parallel(&ALL, |kernel| failures(*kernel)).concat();
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Returns the failures of a kernel: the first failure of each case on each target.
///
/// One text has line numbers, so that a failure names the place in Rust. The other is the shipped
/// text. It has equal instructions, so one schedule suffices.
fn failures(kernel: &dyn Variant) -> Vec<String> {
    let program = kernel
        .build()
        .unwrap_or_else(|e| panic!("{}: {e}", kernel.name()));
    let runs =
        |target: &Target| target.sm >= program.sm() && (target.specific || !program.specific());
    let oldest = Target::ALL
        .into_iter()
        .find(runs)
        .expect("the newest target has every row");
    let hopper = Target::named("sm_90a").expect("in the table");
    let schedules = if program.waits() {
        crate::machine::MANY
    } else {
        crate::machine::FEW
    };
    let texts = [
        (print_with_lines(&program, oldest), schedules),
        (print(&program, hopper), 1),
    ];
    let cases = kernel.cases(SEED);
    let on = |text: String, schedules: u64| {
        let module = Module::parse(&text)
            .and_then(Module::complete)
            .unwrap_or_else(|e| panic!("{}: {e}", kernel.name()));
        let code = module
            .kernel(&kernel.name())
            .expect("the module holds the kernel")
            .clone();
        let failure = |case: &Case| {
            let e = check(kernel, &code, case, schedules).err()?;
            Some(format!(
                "{} for {}, {}: {e}",
                kernel.name(),
                module.target(),
                case.label
            ))
        };
        cases.iter().filter_map(failure).collect::<Vec<_>>()
    };
    let on = |(text, schedules)| {
        on(
            Result::expect(text, "every kernel runs on sm_90a"),
            schedules,
        )
    };
    texts.into_iter().flat_map(on).collect()
}

/// The kernels that cover each place where a stage that was read by loads is released to bulk
/// copies: consumers of decoding, matmuls of many tokens, and epilogues of training.
#[test]
fn stages_given_back_without_a_fence_are_found() {
    for name in [
        "project_q8_0_2x4_first",
        "matmul_add_q8_0_64",
        "train_linear_nt_128_residual",
    ] {
        let found = planted(name, without_fences_of_loads);
        let wanted = "ProxyFence: a copy overwrites shared memory that an ordinary load reads";
        assert!(found.starts_with(wanted), "{name}: {found}");
    }
}

/// Returns the failures of a kernel with a changed text.
fn planted(name: &str, change: impl Fn(&str) -> String) -> String {
    let kernel = *ALL
        .iter()
        .find(|kernel| kernel.name() == name)
        .unwrap_or_else(|| panic!("no {name}"));
    let program = kernel.build().unwrap_or_else(|e| panic!("{name}: {e}"));
    let text =
        print(&program, Target::named("sm_90a").expect("in the table")).expect("runs on sm_90a");
    let changed = change(&text);
    assert_ne!(changed, text, "{name} has what is changed");
    let module = Module::parse(&changed)
        .and_then(Module::complete)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let code = module.kernel(name).expect("the module holds the kernel");
    let found = kernel
        .cases(SEED)
        .iter()
        .find_map(|case| check(kernel, code, case, 1).err());
    found.unwrap_or_else(|| panic!("{name}: nothing is found"))
}

/// Returns the text without the fences that follow loads. Fences for stored data that is copied
/// follow `stmatrix` and stay.
fn without_fences_of_loads(text: &str) -> String {
    let follows_loads = |before: &str, line: &str| {
        line.trim().starts_with("fence.proxy.async.shared::")
            && !before.trim().starts_with("stmatrix")
    };
    let lines = std::iter::once("").chain(text.lines()).zip(text.lines());
    let kept: Vec<&str> = lines
        .filter(|(before, line)| !follows_loads(before, line))
        .map(|(_, l)| l)
        .collect();
    assert!(kept.len() < text.lines().count(), "there is a fence");
    kept.join("\n")
}

/// Runs `work` for each item on as many threads as there are cores. Returns the results in the
/// order of the items.
fn each_in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let index = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < items.len());
        std::iter::from_fn(index)
            .map(|i| (i, work(&items[i])))
            .collect::<Vec<_>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a failure has been printed"))
            .collect()
    });
    results.sort_by_key(|&(i, _)| i);
    results.into_iter().map(|(_, result)| result).collect()
}
