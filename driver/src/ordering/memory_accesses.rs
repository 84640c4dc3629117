//! The memory accesses of queued work, and the hazards between them.

use ptx_gen::Access;

use crate::memory::Region;
use crate::module::Parameter;

/// An access by reference: the name of the argument, its bytes, and the kind of access.
#[derive(Clone, Copy)]
pub(crate) struct MemoryAccess<'a> {
    pub(crate) name: &'static str,
    pub(crate) region: &'a Region,
    pub(crate) access: Access,
}

/// An iterator over the accesses of an operation: the buffers of a launch, the source and target of
/// a copy or a fill, or the accesses of another node.
#[derive(Clone, Default)]
pub(crate) struct AccessIter<'a> {
    pub(crate) params: &'a [Parameter],
    pub(crate) held: std::slice::Iter<'a, KeptBuffer>,
    pub(crate) from: Option<MemoryAccess<'a>>,
    pub(crate) to: Option<MemoryAccess<'a>>,
    pub(crate) uses: std::slice::Iter<'a, Use>,
}

impl<'a> Iterator for AccessIter<'a> {
    type Item = MemoryAccess<'a>;

    #[inline]
    fn next(&mut self) -> Option<MemoryAccess<'a>> {
        if let Some(held) = self.held.next() {
            return Some(MemoryAccess {
                name: self.params[held.index as usize].name,
                region: &held.region,
                access: held.access,
            });
        }
        self.from
            .take()
            .or_else(|| self.to.take())
            .or_else(|| self.uses.next().map(Use::touch))
    }
}

/// An access of a work item to a range of memory.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?.labelled("x");
/// let y = Buffer::<f32>::zeroed(&context, 4)?.labelled("y");
/// let uses = Work::copy(&x, &y)?.uses();
/// let written: Vec<_> = uses.iter().filter(|used| used.access.writes()).map(|used| used.region.name()).collect();
/// assert_eq!(written, ["y"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Use {
    /// The name of the argument. For a copy it is `from` or `to`, for a fill `to`.
    pub name: &'static str,
    /// The bytes that are accessed.
    pub region: Region,
    /// The kind of access.
    pub access: Access,
    /// Whether a kernel is known to read the bytes with `ld.global.nc`. They must not be written
    /// while such a kernel runs.
    pub noncoherent: bool,
}

impl Use {
    /// Returns the access by reference.
    pub(crate) fn touch(&self) -> MemoryAccess<'_> {
        MemoryAccess {
            name: self.name,
            region: &self.region,
            access: self.access,
        }
    }
}

/// A buffer argument that a prepared launch keeps alive.
pub(crate) struct KeptBuffer {
    pub(crate) region: Region,
    pub(crate) access: Access,
    /// The index of the argument.
    pub(crate) index: u32,
}

/// Returns the hazard between two accesses to the same bytes, or `None` if both only read.
pub(crate) fn hazard(earlier: Access, later: Access) -> Option<Hazard> {
    match (earlier.writes(), later.writes()) {
        (false, false) => None,
        (true, _) if later.reads() => Some(Hazard::ReadAfterWrite),
        (true, _) => Some(Hazard::WriteAfterWrite),
        (false, true) => Some(Hazard::WriteAfterRead),
    }
}

/// The reason why one operation must run after another.
///
/// ```
/// # use warpwright_driver::ordering::Hazard;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let y = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut graph = Graph::new(&context)?;
/// let filled = graph.fill(&[], &x, 1.0)?;
/// let copied = graph.copy(&[filled], &x, &y)?;
/// assert_eq!(graph.reasons(filled, copied)?[0].0, Hazard::ReadAfterWrite);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hazard {
    /// The later operation reads what the earlier one wrote.
    ReadAfterWrite,
    /// The later operation overwrites what the earlier one read.
    WriteAfterRead,
    /// The later operation overwrites what the earlier one wrote.
    WriteAfterWrite,
}

impl Hazard {
    /// Returns `RAW`, `WAR` or `WAW`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadAfterWrite => "RAW",
            Self::WriteAfterRead => "WAR",
            Self::WriteAfterWrite => "WAW",
        }
    }
}
