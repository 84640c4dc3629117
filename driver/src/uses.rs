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
            return Some((
                self.params[held.index as usize].name,
                &held.region,
                held.access,
            ));
        }
        self.from
            .take()
            .or_else(|| self.to.take())
            .or_else(|| self.uses.next().map(Use::touch))
    }
}

/// What a piece of work does to some bytes.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let (x, y) = (Buffer::<f32>::zeroed(&context, 4)?.labelled("x"), Buffer::<f32>::zeroed(&context, 4)?.labelled("y"));
/// let uses = Work::copy(&x, &y)?.uses();
/// let written: Vec<_> = uses.iter().filter(|used| used.access.writes()).map(|used| used.region.name()).collect();
/// assert_eq!(written, ["y"]);
/// # Ok(())
/// # }
/// ```
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
