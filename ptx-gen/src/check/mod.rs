//! The validator: what the types cannot say. All errors at once, each with the Rust place and what to do instead.
//!
//! - *form*: operands are what the row says, names and notes are what PTX allows;
//! - *scope*: a value is used only inside the block that defines it;
//! - *uniformity*: what a block or a warp must reach together stands in no branch that splits it;
//! - *overlap*: every block of a kernel that overlaps others waits for them;
//! - *mbarriers*: what is made, arrived at, expected and copied can end the phases that are waited for;
//! - *products*: what a warpgroup multiplies beside its instructions is touched by none of them until it waits;
//! - *limits*: threads, parameters and shared memory are what every device has.
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
use walk::Found;

/// Bytes of parameters that every target takes (PTX manual, "Kernel Function Parameters").
const MAX_PARAMS: u32 = 4352;
/// Threads that every target's multiprocessor holds (CUDA programming guide, "Compute Capabilities").
const MAX_RESIDENT: u32 = 1024;
/// Bytes of static shared memory that every target has.
const MAX_STATIC_SHARED: u32 = 48 * 1024;

/// The largest third dimension of a block (CUDA programming guide, "Compute Capabilities").
const MAX_BLOCK_Z: u32 = 64;

/// Blocks of a cluster that every target with clusters can launch (CUDA programming guide, "Thread Block Clusters").
const MAX_CLUSTER: u32 = 8;

/// The program with its needs, if nothing is wrong with it, nor was when it was built.
///
/// # Errors
/// Everything that is.
pub(crate) fn checked(mut p: Program, mut errors: Vec<BuildError>) -> Result<Program, Errors> {
    errors.extend(limits(&p));
    errors.extend(names(&p));
    let Found {
        errors: found,
        uses,
        needs,
    } = walk::walk(&p);
    errors.extend(found);
    errors.extend(mbarrier::check(&p, uses));
    errors.extend(wgmma::check(&p));
    p.needs = needs;
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
    let params = p.params.iter().fold(0, |at: u32, q| {
        let (size, align) = q.kind.layout();
        at.next_multiple_of(align.max(1)) + size
    });
    let shared = p.static_shared();
    whole(
        p.block == 0 || p.block > 1024 || !p.block.is_multiple_of(32),
        ErrorKind::Limit(format!(
            "{}: {} threads in a block; a multiple of 32 from 32 to 1024",
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
            "{}: a block of {x} x {y} x {z} threads; their product must be the {} threads of the block, and the last at most \
             {MAX_BLOCK_Z}",
            p.name, p.block
        )),
    );
    let resident = p.blocks_per_sm.map(|blocks| blocks.saturating_mul(p.block));
    whole(
        resident.is_some_and(|threads| threads == 0 || threads > MAX_RESIDENT),
        ErrorKind::Limit(format!(
            "{}: {} threads asked for on a multiprocessor; 1 to {MAX_RESIDENT}",
            p.name,
            resident.unwrap_or_default()
        )),
    );
    whole(
        p.cluster == 0 || p.cluster > MAX_CLUSTER,
        ErrorKind::Limit(format!(
            "{}: clusters of {} blocks; 1 to {MAX_CLUSTER}",
            p.name, p.cluster
        )),
    );
    whole(
        params > MAX_PARAMS,
        ErrorKind::Limit(format!(
            "{}: {params} bytes of parameters; at most {MAX_PARAMS}",
            p.name
        )),
    );
    whole(
        shared > MAX_STATIC_SHARED,
        ErrorKind::Limit(format!(
            "{}: {shared} bytes of static shared memory; at most {MAX_STATIC_SHARED}, more is dynamic",
            p.name
        )),
    );
    errors
}

/// Roles that do not take all warpgroups, or more registers than the block is launched with: they would wait for ever.
pub(crate) fn roles(roles: &[(u32, u32)], block: u32, launched: u32) -> Vec<BuildError> {
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
            format!("a role with {n} registers a thread; a multiple of 8 from 24 to 240")
        }
        None if threads != block => {
            format!("roles for {threads} threads, and the block has {block}")
        }
        None if wanted > block * launched => format!(
            "roles that ask for {wanted} registers, and {block} threads are launched with {launched} each, {}; the last \
             to ask would wait for ever",
            block * launched
        ),
        None => return vec![],
    };
    vec![BuildError {
        at: None,
        kind: ErrorKind::Limit(problem),
    }]
}

/// Names that PTX does not allow, then those that two symbols of the kernel's scope have.
fn names(p: &Program) -> Vec<BuildError> {
    let mut errors = vec![];
    let mut report = |kind| errors.push(BuildError { at: None, kind });
    let mut symbols = vec![];
    p.params.iter().for_each(|param| symbols.push(param.name));
    p.shared.iter().for_each(|array| symbols.push(&array.name));
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
