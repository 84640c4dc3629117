//! Every case of every kernel on the emulator: right under every schedule, and the same bits under all of them.

mod machine;
mod sampling;

use std::sync::atomic::{AtomicUsize, Ordering};

use machine::check;
use ptx_emu::Module;
use ptx_gen::{Target, print, print_with_lines};
use warpwright_kernels::{ALL, Case, Variant};

const SEED: u64 = 1;

#[test]
fn all_kernels_compute_their_reference() {
    let failures: Vec<String> = each_in_parallel(&ALL, |kernel| failures(*kernel)).concat();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// What goes wrong with a kernel: the first failure of each case on each target.
///
/// One text has line numbers, so that a fault names the Rust place. The other is what ships; it has the same
/// instructions, so one schedule is enough.
fn failures(kernel: &dyn Variant) -> Vec<String> {
    let program = kernel.build().unwrap_or_else(|e| panic!("{}: {e}", kernel.name()));
    let runs = |target: &Target| target.sm >= program.sm() && (target.specific || !program.specific());
    let oldest = Target::ALL.into_iter().find(runs).expect("the newest target has every row");
    let hopper = Target::named("sm_90a").expect("in the table");
    let schedules = if program.waits() { machine::MANY } else { machine::FEW };
    let texts = [(print_with_lines(&program, oldest), schedules), (print(&program, hopper), 1)];
    let cases = kernel.cases(SEED);
    let on = |text: String, schedules: u64| {
        let module = Module::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", kernel.name()));
        let code = module.kernel(&kernel.name()).expect("the module holds the kernel").clone();
        let failure = |case: &Case| {
            let e = check(kernel, &code, case, schedules).err()?;
            Some(format!("{} for {}, {}: {e}", kernel.name(), module.target(), case.label))
        };
        cases.iter().filter_map(failure).collect::<Vec<_>>()
    };
    let on = |(text, schedules)| on(Result::expect(text, "every kernel runs on sm_90a"), schedules);
    texts.into_iter().flat_map(on).collect()
}

/// `work` on each item, on as many threads as there are cores; results in the items' order.
fn each_in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let index = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < items.len());
        std::iter::from_fn(index).map(|i| (i, work(&items[i]))).collect::<Vec<_>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a failure has been printed")).collect()
    });
    results.sort_by_key(|&(i, _)| i);
    results.into_iter().map(|(_, result)| result).collect()
}
