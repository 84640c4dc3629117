//! Proposal of a command that runs a kernel, with an argument for each parameter.
//!
//! The instructions of the kernel show which parameters are addresses, and the types of their
//! elements. The command is tried with small buffers before it is shown. After an error, the
//! proposal is improved: a buffer grows, a buffer that is read and written becomes `inout`, and the
//! dynamic shared memory grows.

pub(crate) mod argument;

use std::path::Path;
use std::time::Duration;

use ptx_emu::check::{Check, Finding, Problem};
use ptx_emu::{Class, Fault, Kernel, Module};

use super::bind;
use super::invocation::Invocation;
use crate::shell::quoted;
use argument::{ProposedArgument, ProposedRole, propose};

/// The largest number of elements in a buffer.
const MOST_ELEMENTS: usize = 1 << 20;

/// The block sizes to try if the kernel does not fix one. The first one is the default.
const THREADS: &[u32] = &[32, 64, 128, 256, 512, 1024];

/// The size of the dynamic shared memory at first, in bytes.
const SHARED: u32 = 16;
/// The largest dynamic shared memory in bytes.
const MOST_SHARED: u32 = 227 << 10;

/// The largest number of trial launches.
const MOST_TRIALS: usize = 40;

/// The number of instructions of a block after which a trial ends.
const FUEL: u64 = 1 << 16;

/// A proposed launch of a kernel.
#[derive(Clone)]
struct Proposal {
    /// The number of threads in a block.
    threads: u32,
    /// The size of the dynamic shared memory in bytes.
    shared: u32,
    arguments: Vec<ProposedArgument>,
}

/// The outcome of a trial.
enum Trial {
    Clean,
    /// The proposal was changed because of a finding.
    Changed,
    /// No change of the proposal can avoid the finding.
    Failed,
}

/// Returns a command that runs a kernel of a file.
pub(crate) fn command(
    path: &Path,
    module: &Module,
    kernel: &Kernel,
    prints: Prints,
    invocation: Invocation,
) -> String {
    let uses = kernel.parameter_uses();
    let numbered = kernel.params.iter().zip(&uses).enumerate();
    let arguments: Vec<ProposedArgument> = numbered
        .flat_map(|(i, (param, usage))| propose(kernel, i, param, usage))
        .collect();
    let first = Proposal {
        threads: THREADS[0].min(most_threads(kernel)),
        shared: 0,
        arguments,
    };

    // The output of a kernel that prints would mix with the listing, so such a kernel is not tried.
    let mut proposal = match prints {
        Prints::Nothing => tried(module, kernel, &first),
        Prints::Text => first,
    };
    if kernel.dynamic_shared().is_some() && proposal.shared == 0 {
        proposal.shared = SHARED;
    }

    let [x, y, z] = grid(kernel);
    let grid = if [y, z] == [1, 1] {
        x.to_string()
    } else {
        format!("{x},{y},{z}")
    };
    let args = proposal
        .arguments
        .iter()
        .map(|argument| format!(" --arg {}", quoted(&argument.text())));
    let block = if kernel.reqntid.is_some() {
        String::new()
    } else {
        format!(" --block {}", proposal.threads)
    };
    let smem = if proposal.shared == 0 {
        String::new()
    } else {
        format!(" --smem {}", proposal.shared)
    };
    let path = quoted(&path.display().to_string());
    let name = quoted(&kernel.name);
    format!(
        "{} {path} -k {name} --grid {grid}{block}{smem}{}",
        invocation.words(),
        args.collect::<String>()
    )
}

/// Tries the proposal with several block sizes, because many kernels need a size that their PTX
/// does not state.
///
/// Returns the first proposal without findings, or the one with the smallest block.
fn tried(module: &Module, kernel: &Kernel, first: &Proposal) -> Proposal {
    let larger = THREADS.iter().copied().filter(|threads| {
        kernel.reqntid.is_none() && *threads > first.threads && *threads <= most_threads(kernel)
    });
    let mut smallest = None;
    for threads in std::iter::once(first.threads).chain(larger) {
        let mut proposal = Proposal {
            threads,
            ..first.clone()
        };
        for _ in 0..MOST_TRIALS {
            match improve(module, kernel, &mut proposal) {
                Trial::Clean => return proposal,
                Trial::Changed => {}
                Trial::Failed => break,
            }
        }
        smallest.get_or_insert(proposal);
    }

    smallest.unwrap_or_else(|| first.clone())
}

/// Returns the largest number of threads in a block, at least 1.
fn most_threads(kernel: &Kernel) -> u32 {
    let product = |size: [u32; 3]| size.iter().fold(1, |all: u32, n| all.saturating_mul(*n));
    kernel.maxntid.map_or(u32::MAX, product).max(1)
}

/// Returns the smallest grid: one block, or one cluster.
fn grid(kernel: &Kernel) -> [u32; 3] {
    kernel.cluster.unwrap_or([1; 3])
}

/// The output of the kernels in a file. A trial must not print.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prints {
    Nothing,
    Text,
}

/// Tries a proposal, and changes it according to the first finding.
fn improve(module: &Module, kernel: &Kernel, proposal: &mut Proposal) -> Trial {
    let Some(findings) = trial(module, kernel, proposal) else {
        return Trial::Failed;
    };
    let changed = match findings.into_iter().next().map(|finding| finding.problem) {
        None => return Trial::Clean,
        Some(Problem::Changed(place)) => {
            change_role(&mut proposal.arguments, &place.buffer, ProposedRole::In)
        }
        Some(Problem::Fault(fault)) => improve_after(kernel, proposal, &fault),
        Some(Problem::Mismatch(_)) => false,
    };
    if changed {
        Trial::Changed
    } else {
        Trial::Failed
    }
}

/// Changes a proposal after a fault. Returns false if no change can help.
fn improve_after(kernel: &Kernel, proposal: &mut Proposal, fault: &Fault) -> bool {
    let label = fault
        .allocation
        .as_ref()
        .map(|allocation| allocation.label.clone())
        .unwrap_or_default();
    match fault.class {
        Class::OutOfBounds if fault.what.starts_with("shared memory") => {
            if kernel.dynamic_shared().is_none() || proposal.shared >= MOST_SHARED {
                return false;
            }
            proposal.shared = (proposal.shared * 2).clamp(SHARED, MOST_SHARED);
            true
        }
        Class::OutOfBounds => {
            // A larger buffer helps only if the access was past its end, and not before its start.
            let beyond = fault.address.zip(fault.allocation.as_ref());
            let beyond = beyond.is_some_and(|(address, allocation)| address >= allocation.base);
            proposal
                .arguments
                .iter_mut()
                .any(|argument| match argument {
                    ProposedArgument::Buffer { name, count, .. }
                        if *name == label && beyond && *count < MOST_ELEMENTS =>
                    {
                        *count *= 2;
                        true
                    }
                    ProposedArgument::Buffer { .. } | ProposedArgument::Other(_) => false,
                })
        }
        Class::UninitialisedGlobal => {
            change_role(&mut proposal.arguments, &label, ProposedRole::Out)
        }
        _ => false,
    }
}

/// Changes the role of a buffer to `inout` if it is `from`. Returns false if there is no such
/// buffer.
fn change_role(arguments: &mut [ProposedArgument], buffer: &str, from: ProposedRole) -> bool {
    arguments.iter_mut().any(|argument| match argument {
        ProposedArgument::Buffer { name, role, .. } if name == buffer && *role == from => {
            *role = ProposedRole::InOut;
            true
        }
        ProposedArgument::Buffer { .. } | ProposedArgument::Other(_) => false,
    })
}

/// Runs the kernel like the proposed command. Returns the findings, or `None` if the command cannot
/// be tried.
fn trial(module: &Module, kernel: &Kernel, proposal: &Proposal) -> Option<Vec<Finding>> {
    let mut check = Check::new(module, &kernel.name).ok()?;
    check.grid = grid(kernel);
    check.block = kernel.reqntid.unwrap_or([proposal.threads, 1, 1]);
    check.dynamic_shared = proposal.shared;

    // Instructions limit a trial rather than time, so that the proposal does not depend on the
    // speed of the machine.
    check.fuel = FUEL;
    check.limit = Duration::from_secs(60);
    let given: Result<Vec<_>, String> = proposal
        .arguments
        .iter()
        .map(|argument| argument.text().parse())
        .collect();
    bind::bind(&mut check, &given.ok()?, &[], 0).ok()?;
    Some(check.run().ok()?.findings)
}
