//! The number of blocks and threads of a launch.
//!
//! PTX need not declare the number of threads in a block. A default of one thread would hide most
//! errors: a kernel that computes an index from `%tid` would run for the first elements only, and
//! the check would find nothing. So such a kernel needs `--block`.

use ptx_emu::Kernel;

use super::args::LaunchArgs;

/// The number of blocks and threads of a launch, and notes about the defaults that were used.
#[derive(Debug, PartialEq)]
pub(crate) struct LaunchExtents {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) notes: Vec<String>,
}

/// Returns the extents that the options and the kernel define. `listing` is the command that lists
/// the file.
///
/// # Errors
/// Returns a message if neither defines the number of threads, and the kernel depends on it.
pub(crate) fn choose(
    kernel: &Kernel,
    launch: &LaunchArgs,
    listing: &str,
) -> Result<LaunchExtents, String> {
    let mut notes = Vec::new();
    let declared = launch.block.or(kernel.reqntid);
    let block = match (declared, kernel.maxntid) {
        (Some(block), _) => block,
        (None, Some(most)) => {
            notes.push(format!(
                "blocks of {} threads ran, the most that .maxntid allows; --block chooses fewer",
                words(most)
            ));
            most
        }
        (None, None) if kernel.reads_thread_index() || kernel.reads_block_index() => {
            return Err(format!(
                "{} does not declare a block size: pass --block, for example --block 128 (`{listing}` proposes a command)",
                kernel.name
            ));
        }
        (None, None) => {
            notes.push(
                "one thread per block ran, because the kernel does not read its thread index; --block chooses more"
                    .to_owned(),
            );
            [1; 3]
        }
    };
    if launch.grid.is_none() && kernel.reads_block_index() {
        notes.push("one block ran; --grid chooses more".to_owned());
    }

    Ok(LaunchExtents {
        grid: launch.grid.unwrap_or([1; 3]),
        block,
        notes,
    })
}

/// Formats an extent without its trailing ones, for example `16` or `16x4`.
fn words(extent: [u32; 3]) -> String {
    let [x, y, z] = extent;
    match (y, z) {
        (1, 1) => x.to_string(),
        (_, 1) => format!("{x}x{y}"),
        (_, _) => format!("{x}x{y}x{z}"),
    }
}
