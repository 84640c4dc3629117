//! What work does to which bytes.

use ptx_gen::Access;

use crate::{Parameter, Region};

/// What a piece of work does to some bytes, lent: the argument's name, the bytes, and what is done to them.
pub(crate) type Touch<'a> = (&'static str, &'a Region, Access);

/// What a piece of work does to bytes, one after the other: the buffers of a launch, the ends of a copy or a fill, or
/// what else a node uses.
#[derive(Clone, Default)]
pub(crate) struct Touches<'a> {
    pub(crate) params: &'a [Parameter],
    pub(crate) held: std::slice::Iter<'a, Held>,
    pub(crate) from: Option<Touch<'a>>,
    pub(crate) to: Option<Touch<'a>>,
    pub(crate) uses: std::slice::Iter<'a, Use>,
}

impl<'a> Iterator for Touches<'a> {
    type Item = Touch<'a>;

    #[inline]
    fn next(&mut self) -> Option<Touch<'a>> {
        if let Some(held) = self.held.next() {
            return Some((self.params[held.index as usize].name, &held.region, held.access));
        }
        self.from.take().or_else(|| self.to.take()).or_else(|| self.uses.next().map(Use::touch))
    }
}

/// What a piece of work does to some bytes.
///
/// An example is at [`Work`](crate::Work).
#[derive(Clone, Debug)]
pub struct Use {
    /// The argument's name.
    pub name: &'static str,
    /// The bytes.
    pub region: Region,
    /// What is done to them.
    pub access: Access,
    /// Whether a kernel is known to read them by `ld.global.nc`, which nobody may write while it is there.
    pub noncoherent: bool,
}

impl Use {
    /// The same, lent.
    pub(crate) fn touch(&self) -> Touch<'_> {
        (self.name, &self.region, self.access)
    }
}

/// A buffer that a launch keeps.
pub(crate) struct Held {
    pub(crate) region: Region,
    pub(crate) access: Access,
    /// Which argument it is.
    pub(crate) index: u32,
}
