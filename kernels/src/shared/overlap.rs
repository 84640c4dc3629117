//! The overlap of a kernel with the kernels before and after it: programmatic dependent launch, on
//! sm_90 and newer.

use ptx_gen::Builder;

/// The part that a kernel takes in programmatic dependent launch. It changes no result.
///
/// There is no variant that waits without letting the next kernel start early, because it gains
/// nothing. On an H200, each such kernel took 2 to 3 us longer in a graph than after a full edge
/// (`docs/lab/README.md`).
///
/// Source: CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization". PTX
/// ISA, `griddepcontrol`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Overlap {
    /// No overlap: the kernel starts when the previous one has completed.
    #[default]
    No,
    /// The kernel waits for the previous one itself. The next kernel may start when all blocks have
    /// stored their results.
    Late,
    /// The kernel waits for the previous one itself. The next kernel may start immediately.
    Early,
}

impl Overlap {
    /// Returns true if the kernel waits for the previous one itself.
    pub const fn waits(self) -> bool {
        !matches!(self, Overlap::No)
    }

    /// Returns the suffix of the kernel's name.
    pub const fn suffix(self) -> &'static str {
        match self {
            Overlap::No => "",
            Overlap::Late => "_late",
            Overlap::Early => "_first",
        }
    }

    /// Lets the next kernel start, if it may start immediately. Belongs at the start of a program.
    pub(crate) fn start(self, k: Builder<'_>) {
        if self == Overlap::Early {
            k.grid_trigger();
        }
    }

    /// Lets the next kernel start, if it had to wait for the results. Belongs after the last stores
    /// of a program.
    pub(crate) fn end(self, k: Builder<'_>) {
        if self == Overlap::Late {
            k.grid_trigger();
        }
    }
}
