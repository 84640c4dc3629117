//! Validation: the checks that Rust's types cannot express. All errors are reported at the same
//! time.
//!
//! - *Form*: operands match the instruction, and names and notes are valid PTX.
//! - *Scope*: a value is used only inside the block that defines it.
//! - *Uniformity*: instructions that a block or a warp must execute together are not in a branch
//!   that splits it.
//! - *Overlap*: every block of a kernel that lets others overlap waits for the kernels before it.
//! - *Mbarriers*: initializations, arrivals, expected bytes and copies can end the phases that are
//!   waited for.
//! - *Matmuls*: no instruction touches the registers of an asynchronous matmul before the wait.
//! - *Limits*: threads, parameters and shared memory are within the limits of every device.
//!
//! One walk looks at each instruction.

mod error;
mod form;
mod mbarrier;
#[cfg(test)]
mod naive;
mod noncoherent;
mod overlap;
mod per_register;
mod walk;
mod wgmma;

use crate::ir::*;
use crate::target::Version;

use error::MAX_NAME;
pub use error::{BuildError, ErrorKind, Errors, Misused, Unmatched};
use walk::WalkFindings;

/// The maximum size of all parameters in bytes on every target (PTX manual, "Kernel Function
/// Parameters").
const MAX_PARAMS: u32 = 4352;
/// The number of threads that a multiprocessor of every target can hold (CUDA C++ Programming
/// Guide, "Compute Capabilities").
const MAX_RESIDENT: u32 = 1024;
/// The maximum size of static shared memory in bytes on every target.
const MAX_STATIC_SHARED: u32 = 48 * 1024;

/// The maximum third dimension of a block (CUDA C++ Programming Guide, "Compute Capabilities").
const MAX_BLOCK_Z: u32 = 64;

/// The number of blocks in a cluster that every target with clusters can launch (CUDA C++
/// Programming Guide, "Thread Block Clusters").
const MAX_CLUSTER: u32 = 8;

/// Validates a program and computes its needs.
///
/// # Errors
/// Returns `errors`, which were found while the program was built, and all errors that the checks
/// find.
pub(crate) fn checked(mut p: Program, mut errors: Vec<BuildError>) -> Result<Program, Errors> {
    errors.extend(limits(&p));
    errors.extend(names(&p));
    let WalkFindings {
        errors: found,
        uses,
        needs,
    } = walk::walk(&p);
    errors.extend(found);
    errors.extend(mbarrier::check(&p, uses));
    errors.extend(wgmma::check(&p));
    p.needs = needs;

    // The launch attribute for clusters has requirements even if no instruction does.
    if p.cluster > 1 {
        p.needs.sm = p.needs.sm.max(90);
        p.needs.version = p.needs.version.max(Version(7, 8));
    }

    if errors.is_empty() {
        Ok(p)
    } else {
        Err(Errors(errors))
    }
}

fn limits(p: &Program) -> Vec<BuildError> {
    let mut errors = vec![];
    let mut whole = |fails: bool, kind: ErrorKind| {
        if fails {
            errors.push(BuildError { at: None, kind })
        }
    };

    // Each parameter is aligned to its size, as in the parameter buffer of the driver.
    let params = p.params.iter().fold(0, |at: u32, q| {
        let (size, align) = q.kind.layout();
        at.next_multiple_of(align.max(1)) + size
    });
    let shared = p.static_shared();
    whole(
        p.block == 0 || p.block > 1024 || !p.block.is_multiple_of(32),
        ErrorKind::Limit(format!(
            "{}: {} threads in a block: expected a multiple of 32 from 32 to 1024",
            p.name, p.block
        )),
    );
    let [x, y, z] = p.shape;
    let threads = [x, y, z]
        .iter()
        .fold(1, |all: u64, n| all.saturating_mul(u64::from(*n)));
    whole(
        threads != u64::from(p.block) || z > MAX_BLOCK_Z,
        ErrorKind::Limit(format!(
            "{}: a block of {x} x {y} x {z} threads: expected a product of {}, and at most {MAX_BLOCK_Z} in the last \
             dimension",
            p.name, p.block
        )),
    );
    let resident = p.blocks_per_sm.map(|blocks| blocks.saturating_mul(p.block));
    whole(
        resident.is_some_and(|threads| threads == 0 || threads > MAX_RESIDENT),
        ErrorKind::Limit(format!(
            "{}: {} threads requested per multiprocessor: expected 1 to {MAX_RESIDENT}",
            p.name,
            resident.unwrap_or_default()
        )),
    );
    whole(
        p.cluster == 0 || p.cluster > MAX_CLUSTER,
        ErrorKind::Limit(format!(
            "{}: clusters of {} blocks: expected 1 to {MAX_CLUSTER}",
            p.name, p.cluster
        )),
    );
    whole(
        params > MAX_PARAMS,
        ErrorKind::Limit(format!(
            "{}: {params} bytes of parameters: expected at most {MAX_PARAMS}",
            p.name
        )),
    );
    whole(
        shared > MAX_STATIC_SHARED,
        ErrorKind::Limit(format!(
            "{}: {shared} bytes of static shared memory: expected at most {MAX_STATIC_SHARED}, use dynamic shared \
             memory for more",
            p.name
        )),
    );
    errors
}

/// Returns an error if roles do not take all warpgroups, or need more registers than the block has
/// at launch.
///
/// With too many registers, the last `setmaxnreg.inc` would wait forever.
pub(crate) fn roles(roles: &[(u32, u32)], block: u32, launched: u32) -> Vec<BuildError> {
    // `setmaxnreg` moves registers between the warpgroups of a block, so only their sum is limited.
    let threads: u32 = roles.iter().map(|(groups, _)| 128 * groups).sum();
    let wanted: u32 = roles
        .iter()
        .map(|(groups, registers)| 128 * groups * registers)
        .sum();
    let bad = roles
        .iter()
        .find(|(_, n)| !n.is_multiple_of(8) || !(24..=240).contains(n));
    let problem = match bad {
        _ if roles.is_empty() => return vec![],
        Some((_, n)) => {
            format!("a role with {n} registers per thread: expected a multiple of 8 from 24 to 240")
        }
        None if threads != block => {
            format!("roles for {threads} threads: expected the {block} threads of the block")
        }
        None if wanted > block * launched => format!(
            "roles need {wanted} registers, but {block} threads have {launched} each at launch, {} in total: the last \
             role would wait forever",
            block * launched
        ),
        None => return vec![],
    };
    vec![BuildError {
        at: None,
        kind: ErrorKind::Limit(problem),
    }]
}

/// Returns errors for names that PTX does not allow, then for names that two symbols share.
fn names(p: &Program) -> Vec<BuildError> {
    let mut errors = vec![];
    let mut report = |kind| errors.push(BuildError { at: None, kind });

    // Parameters and shared arrays share one scope in PTX.
    let mut symbols = vec![];
    symbols.extend(p.params.iter().map(|param| param.name));
    symbols.extend(p.shared.iter().map(|array| array.name.as_str()));
    for name in [p.name.as_str()].iter().chain(&symbols) {
        if !is_name(name) {
            report(ErrorKind::BadName((*name).into()));
        }
    }

    symbols.sort_unstable();
    for names in symbols.chunk_by(|a, b| a == b) {
        if names.len() > 1 {
            report(ErrorKind::SameName(names[0].into()));
        }
    }

    errors
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    name.len() <= MAX_NAME
        && chars
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$')
}
