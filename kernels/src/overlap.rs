//! How a kernel overlaps with the ones before and after it: programmatic dependent launch, sm_90.

use ptx_gen::Builder;

/// What a kernel does for an overlap. It changes no result.
///
/// A kernel that waits and lets nobody start before it exits gains nothing: on an H200, each such kernel took 2 to 3 us
/// more in a graph than behind a full edge (`docs/lab/README.md`). So there is no such form.
///
/// Source: CUDA C++ Programming Guide, Programmatic Dependent Launch and Synchronization; PTX ISA, `griddepcontrol`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Overlap {
    /// Nothing: it starts when the one before it has ended.
    #[default]
    No,
    /// It waits by itself for the end of the one before it, and the next one may start when all blocks have stored their
    /// results.
    Late,
    /// It waits, and the next one may start at once.
    Early,
}

impl Overlap {
    /// Whether it waits by itself.
    pub const fn waits(self) -> bool {
        !matches!(self, Overlap::No)
    }

    /// The end of the kernel's name.
    pub const fn suffix(self) -> &'static str {
        match self {
            Overlap::No => "",
            Overlap::Late => "_late",
            Overlap::Early => "_first",
        }
    }

    /// At the start of a program: lets the next kernel start, if it may at once.
    pub(crate) fn start(self, k: Builder<'_>) {
        if self == Overlap::Early {
            k.grid_trigger();
        }
    }

    /// Behind the last stores of a program: lets the next kernel start, if it may then.
    pub(crate) fn end(self, k: Builder<'_>) {
        if self == Overlap::Late {
            k.grid_trigger();
        }
    }
}
