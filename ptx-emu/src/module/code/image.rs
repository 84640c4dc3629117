//! Decoded instructions on textures and surfaces.

use crate::module::code::{Atomic, Transfer, Width};

/// An instruction on a texture or surface.
#[derive(Clone, Debug)]
pub(crate) enum OfImage {
    /// `tex` and `tld4`.
    Fetch(Fetch),
    /// `suld`, `sust` and `sured`.
    Surface(SurfaceAccess),
    /// `txq` and `suq`.
    Query(ImageQuery),
}

impl OfImage {
    /// Returns true if the instruction may leave a register uninitialized, because a texture lacks
    /// a channel.
    pub(crate) fn fetches_to(&self, slot: u32) -> bool {
        matches!(self, Self::Fetch(fetch) if fetch.d.contains(&Some(slot)))
    }

    /// Returns true if the instruction writes memory.
    pub(crate) fn stores(&self) -> bool {
        matches!(self, Self::Surface(access) if !matches!(access.act, SurfaceAct::Load(_)))
    }
}

/// The geometry that the instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageGeometry {
    D1,
    D2,
    D3,
    A1,
    A2,
    Cube,
    ACube,
}

/// The operands that select a texel: slots of the handle, of the layer and of the coordinates.
#[derive(Clone, Debug)]
pub(crate) struct ImagePlace {
    pub(crate) geometry: ImageGeometry,
    pub(crate) handle: u32,
    pub(crate) layer: Option<u32>,
    pub(crate) at: Vec<u32>,
}

/// The type of the coordinates.
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
    /// Whether the result consists of floats.
    pub(crate) floats: bool,
    /// The channel that `tld4` gathers from four texels.
    pub(crate) gathers: Option<usize>,
    /// The slots of the offsets in texels that are added to the coordinates.
    pub(crate) offset: Vec<u32>,
    pub(crate) d: [Option<u32>; 4],
    /// The predicate that receives whether the texels are resident.
    pub(crate) resident: Option<u32>,
}

/// The treatment of an access outside of a surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutsideAccess {
    Trap,
    Clamp,
    Zero,
}

/// An access to a surface. It behaves like an access to global memory once its address is known.
#[derive(Clone, Debug)]
pub(crate) struct SurfaceAccess {
    pub(crate) place: ImagePlace,
    pub(crate) outside: OutsideAccess,
    pub(crate) act: SurfaceAct,
}

/// The operation on a surface.
#[derive(Clone, Debug)]
pub(crate) enum SurfaceAct {
    Load(Transfer),
    Store(Transfer),
    /// `sured.b`.
    Reduce(Atomic),
    /// `sured.p`, whose x coordinate counts texels. It has one atomic for unsigned and one for
    /// signed texels.
    ReduceTexel([Atomic; 2]),
}

impl SurfaceAccess {
    /// Returns the number of bytes that a lane accesses.
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

/// A query of a property of a texture or surface.
#[derive(Clone, Debug)]
pub(crate) struct ImageQuery {
    pub(crate) of_texture: bool,
    pub(crate) handle: u32,
    pub(crate) asked: Asked,
    pub(crate) d: u32,
}

/// The property of a texture or surface.
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
