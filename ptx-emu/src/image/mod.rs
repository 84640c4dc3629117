//! Textures and surfaces: memory that kernels read through a handle, by coordinates.
//!
//! An [`Image`] says where texels lie in memory and how many there are. A texture is an image and a [`Sampler`], which says
//! how it is read between and beyond its texels; a surface is an image alone. [`Memory::add_texture`] and
//! [`Memory::add_surface`] give the 64-bit handle that a kernel takes. The memory of an image stays ordinary memory: it is
//! filled, copied and freed as such, and what kernels do to it is checked and traced as such.
//!
//! [`Memory::add_texture`]: crate::Memory::add_texture
//! [`Memory::add_surface`]: crate::Memory::add_surface

mod error;
mod format;
mod objects;

pub use error::ImageError;
pub use format::{ChannelType, TexelFormat};
pub(crate) use objects::{Object, Objects};

/// Texels in memory: rows of `extent[0]` texels, `pitch` bytes apart, of which `extent[1]` make a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The address of the first texel: a multiple of 16.
    pub address: u64,
    /// What a texel is.
    pub format: TexelFormat,
    /// How many coordinates it has, and what they mean.
    pub shape: Shape,
    /// Width, height, and depth or layers in texels; 1 where the shape has no such direction. The faces of cubes are
    /// layers: 6 for each.
    pub extent: [u32; 3],
    /// Bytes from a row to the next: a multiple of the texel's size; of 16, where a surface is accessed in wider pieces.
    pub pitch: u64,
}

/// How many coordinates an image has, and what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Texels in ordinary memory that are read by their index, as `tex1Dfetch` does; zero beyond its ends.
    Linear,
    /// x
    D1,
    /// x, y
    D2,
    /// x, y, z
    D3,
    /// A layer's index, and x.
    Layers1,
    /// A layer's index, and x, y.
    Layers2,
    /// A direction, which leads to one of the six faces of a cube.
    Cube,
    /// A cube's index, and a direction.
    Cubes,
}

/// How a texture is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampler {
    /// What lies outside, in x, y and z.
    pub address: [AddressMode; 3],
    /// What lies between texels.
    pub filter: Filter,
    /// What integers in memory are to the kernel.
    pub read: Read,
    /// What coordinates that are floats count.
    pub coordinates: Coordinates,
    /// The texel outside where the address mode is [`AddressMode::Border`]: the bits of four channels as a kernel reads them.
    pub border: [u32; 4],
}

/// What a coordinate outside of the texels stands for (CUDA C++ Programming Guide, "Texture Fetching").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressMode {
    /// The texels are repeated. Of coordinates that count texels, as [`AddressMode::Clamp`].
    Wrap,
    /// The texel at the edge.
    Clamp,
    /// The texels are repeated, every other time in reverse. Of coordinates that count texels, as [`AddressMode::Clamp`].
    Mirror,
    /// The texel of the border.
    Border,
}

/// What lies between texels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// The texel around the coordinate.
    Point,
    /// The mean of the 2, 4 or 8 texels next to it, weighted by distance in steps of 1/256.
    Linear,
}

/// What integers in memory are to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Integers.
    Element,
    /// Floats: unsigned integers from 0 to 1, signed ones from -1 to 1. Integers of 32 bits stay what they are.
    NormalizedFloat,
}

/// What coordinates that are floats count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coordinates {
    /// Texels.
    Texels,
    /// Widths, heights or depths of the image: it reaches from 0 to 1.
    Normalized,
}

impl Sampler {
    /// The texel around coordinates that count texels, clamped at the edges.
    pub const POINT: Sampler = Sampler {
        address: [AddressMode::Clamp; 3],
        filter: Filter::Point,
        read: Read::Element,
        coordinates: Coordinates::Texels,
        border: [0; 4],
    };

    /// Whether a kernel reads floats from texels of a format.
    pub(crate) fn gives_floats(&self, format: TexelFormat) -> bool {
        format.channel.is_float()
            || self.read == Read::NormalizedFloat && format.channel.bytes() < 4
    }
}

impl Shape {
    /// What it is called in findings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Shape::Linear => "linear",
            Shape::D1 => "1D",
            Shape::D2 => "2D",
            Shape::D3 => "3D",
            Shape::Layers1 => "1D layered",
            Shape::Layers2 => "2D layered",
            Shape::Cube => "cube map",
            Shape::Cubes => "layered cube map",
        }
    }

    /// The directions in which an image of it may have more than one texel or layer: y, and z.
    fn has(self) -> [bool; 2] {
        match self {
            Shape::Linear | Shape::D1 => [false, false],
            Shape::D2 => [true, false],
            Shape::Layers1 => [false, true],
            Shape::D3 | Shape::Layers2 | Shape::Cube | Shape::Cubes => [true, true],
        }
    }

    /// The most texels in each direction, as devices of compute capability 7.5 and later have it.
    fn most(self) -> [u32; 3] {
        match self {
            Shape::Linear => [1 << 28, 1, 1],
            Shape::D1 => [131_072, 1, 1],
            Shape::D2 => [131_072, 65_536, 1],
            Shape::D3 => [16_384; 3],
            Shape::Layers1 => [32_768, 1, 2_048],
            Shape::Layers2 => [32_768, 32_768, 2_048],
            Shape::Cube => [32_768, 32_768, 6],
            Shape::Cubes => [32_768, 32_768, 2_046],
        }
    }
}

impl Image {
    /// An image at address 0 whose rows follow each other without gaps: [`Image::bytes`] says how much memory it needs.
    pub fn new(format: TexelFormat, shape: Shape, extent: [u32; 3]) -> Image {
        let pitch = u64::from(extent[0]) * u64::from(format.bytes());
        Image {
            address: 0,
            format,
            shape,
            extent,
            pitch,
        }
    }

    /// Bytes of a row that hold texels.
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.extent[0]) * u64::from(self.format.bytes())
    }

    /// Bytes from its first texel to behind its last one.
    pub fn bytes(&self) -> u64 {
        let rows = u64::from(self.extent[1]) * u64::from(self.extent[2]);
        self.pitch
            .saturating_mul(rows.saturating_sub(1))
            .saturating_add(self.row_bytes())
    }

    /// The address of a byte of a row.
    pub(crate) fn place(&self, byte: u64, [y, z]: [u32; 2]) -> u64 {
        let row = u64::from(z) * u64::from(self.extent[1]) + u64::from(y);
        self.address
            .wrapping_add(row.wrapping_mul(self.pitch))
            .wrapping_add(byte)
    }

    /// Whether there may be such an image.
    ///
    /// # Errors
    /// [`ImageError::Image`], with what it cannot have.
    pub fn check(&self) -> Result<(), ImageError> {
        let wrong = |what: String| Err(ImageError::Image(what));
        let ([w, h, d], most, name) = (self.extent, self.shape.most(), self.shape.name());
        let [rows, slices] = self.shape.has();
        if !matches!(self.format.channels, 1 | 2 | 4) {
            return wrong(format!("{} channels, not 1, 2 or 4", self.format.channels));
        }
        if w == 0 || h == 0 || d == 0 {
            return wrong(format!("a size of {w} x {h} x {d} texels"));
        }
        if !rows && h > 1
            || !slices && d > 1
            || [w, h, d].iter().zip(most).any(|(n, most)| *n > most)
        {
            let [mw, mh, md] = most;
            return wrong(format!(
                "{w} x {h} x {d} texels of a {name} image, which has at most {mw} x {mh} x {md}"
            ));
        }
        let cubes = matches!(self.shape, Shape::Cube | Shape::Cubes);
        if cubes && (w != h || d % 6 != 0) {
            return wrong(format!(
                "{w} x {h} x {d} texels of a {name}, which has faces of equal sides, 6 each"
            ));
        }
        let texel = self.format.bytes();
        if self.pitch < self.row_bytes() || !self.pitch.is_multiple_of(texel.into()) {
            let (pitch, row) = (self.pitch, self.row_bytes());
            return wrong(format!(
                "rows of {row} bytes every {pitch}: not less, and a multiple of the texel's {texel}"
            ));
        }
        if !self.address.is_multiple_of(16) {
            return wrong(format!(
                "texels at 0x{:x}, which is no multiple of 16",
                self.address
            ));
        }
        match self.address.checked_add(self.bytes()) {
            Some(_) => Ok(()),
            None => wrong(format!("{} bytes at 0x{:x}", self.bytes(), self.address)),
        }
    }
}
