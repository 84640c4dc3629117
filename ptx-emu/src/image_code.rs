//! Decoded instructions on textures and surfaces.

use crate::code::{Atomic, Code, Op, Transfer, Width};
use crate::exec::regs::{Bank, Undefined};

/// An instruction on a texture or surface.
#[derive(Clone, Debug)]
pub(crate) enum OfImage {
    /// `tex` and `tld4`
    Fetch(Fetch),
    /// `suld`, `sust` and `sured`
    Surface(SurfaceAccess),
    /// `txq` and `suq`
    Query(ImageQuery),
}

impl Code {
    /// Whether some fetch writes a register that has no value.
    pub(crate) fn fetches_to(&self, u: Undefined) -> bool {
        let fetches = |op: &Op| matches!(op, Op::Image(of) if of.fetches_to(u.slot));
        u.bank == Bank::W32 && self.ops.iter().any(|step| fetches(&step.op))
    }
}

impl OfImage {
    /// Whether it may leave a register without a value: of a channel that a texture does not have.
    pub(crate) fn fetches_to(&self, slot: u32) -> bool {
        matches!(self, Self::Fetch(fetch) if fetch.d.contains(&Some(slot)))
    }

    /// Whether it changes memory.
    pub(crate) fn stores(&self) -> bool {
        matches!(self, Self::Surface(access) if !matches!(access.act, SurfaceAct::Load(_)))
    }
}

/// What the coordinates of an instruction name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Geometry {
    D1,
    D2,
    D3,
    A1,
    A2,
    Cube,
    ACube,
}

/// Where an instruction accesses an image: slots of the handle, of a layer's index, and of the coordinates.
#[derive(Clone, Debug)]
pub(crate) struct ImagePlace {
    pub(crate) geometry: Geometry,
    pub(crate) handle: u32,
    pub(crate) layer: Option<u32>,
    pub(crate) at: Vec<u32>,
}

/// What coordinates are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CoordinateType {
    Float,
    Integer,
}

/// A fetch from a texture.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    pub(crate) place: ImagePlace,
    pub(crate) coordinates: CoordinateType,
    /// Whether it reads floats.
    pub(crate) floats: bool,
    /// Of `tld4`: the channel that it takes of four texels.
    pub(crate) gathers: Option<usize>,
    /// Whole texels that are added to the coordinates.
    pub(crate) offset: Vec<u32>,
    pub(crate) d: [Option<u32>; 4],
    /// A predicate: whether the texels are resident.
    pub(crate) resident: Option<u32>,
}

/// What becomes of an access outside of a surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    Trap,
    Clamp,
    Zero,
}

/// An access of a surface: as of global memory, once the address is known.
#[derive(Clone, Debug)]
pub(crate) struct SurfaceAccess {
    pub(crate) place: ImagePlace,
    pub(crate) outside: Outside,
    pub(crate) act: SurfaceAct,
}

/// What is done to a surface.
#[derive(Clone, Debug)]
pub(crate) enum SurfaceAct {
    Load(Transfer),
    Store(Transfer),
    /// `sured.b`
    Reduce(Atomic),
    /// `sured.p`, whose x counts texels: of unsigned integers, and of signed ones.
    ReduceTexel([Atomic; 2]),
}

impl SurfaceAccess {
    /// Bytes that a lane accesses.
    pub(crate) fn bytes(&self) -> u32 {
        match &self.act {
            SurfaceAct::Load(t) | SurfaceAct::Store(t) => {
                let Width { bytes, .. } = t.width;
                bytes * t.regs.len() as u32
            }
            SurfaceAct::Reduce(atomic) | SurfaceAct::ReduceTexel([atomic, _]) => atomic.bytes,
        }
    }
}

/// A question about a texture or surface.
#[derive(Clone, Debug)]
pub(crate) struct ImageQuery {
    pub(crate) of_texture: bool,
    pub(crate) handle: u32,
    pub(crate) asked: Asked,
    pub(crate) d: u32,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Width,
    Height,
    Depth,
    ChannelType,
    ChannelOrder,
    Normalized,
    Layers,
    Levels,
    Samples,
}
