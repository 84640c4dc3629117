//! Textures and surfaces: memory that kernels read by coordinates, through a handle.
//!
//! An [`Image`] describes the texels and their position in memory. A texture is an image with a
//! [`Sampler`], which describes how it is read between and beyond its texels. A surface is an image
//! alone. [`Memory::add_texture`] and [`Memory::add_surface`] return the 64-bit handle that a
//! kernel receives.
//!
//! The memory of an image is ordinary memory. It is filled, copied and freed as such, and the
//! accesses of kernels are checked and traced as such.
//!
//! [`Memory::add_texture`]: crate::Memory::add_texture [`Memory::add_surface`]:
//! crate::Memory::add_surface

use crate::machine::device::images::image_error::ImageError;
use crate::machine::device::images::texel_format::TexelFormat;

/// An array of texels in memory.
///
/// A row has `extent[0]` texels, rows are `pitch` bytes apart, and `extent[1]` rows are a slice.
///
/// # Example: a texture of 4 by 2 texels
/// ```
/// use ptx_emu::{ChannelType, Image, Memory, Sampler, ImageShape, TexelFormat};
///
/// let memory = Memory::new(1 << 20);
/// let format = TexelFormat { channel: ChannelType::F32, channels: 1 };
/// let mut image = Image::new(format, ImageShape::D2, [4, 2, 1]);
/// assert_eq!(image.bytes(), 4 * 2 * 4);
///
/// image.address = memory.alloc(image.bytes())?;
/// let handle = memory.add_texture(&image, &Sampler::POINT)?;
/// assert_ne!(handle, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The address of the first texel, a multiple of 16.
    pub address: u64,
    /// The format of a texel.
    pub format: TexelFormat,
    /// The number and the meaning of the coordinates.
    pub shape: ImageShape,
    /// The width, the height, and the depth or number of layers, in texels.
    ///
    /// A direction that the shape lacks has 1. Each face of a cube map is a layer, so a cube has 6.
    pub extent: [u32; 3],
    /// The distance of rows in bytes, a multiple of the texel size.
    ///
    /// It must be a multiple of 16 if a surface is accessed in wider units than a texel.
    pub pitch: u64,
}

/// The number and the meaning of the coordinates of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageShape {
    /// Ordinary memory that is read by index, as by `tex1Dfetch`. Texels beyond the ends are zero.
    Linear,
    /// One dimension: x.
    D1,
    /// Two dimensions: x and y.
    D2,
    /// Three dimensions: x, y and z.
    D3,
    /// An array of one-dimensional layers: the index of the layer, and x.
    Layers1,
    /// An array of two-dimensional layers: the index of the layer, x and y.
    Layers2,
    /// A cube map: a direction, which selects one of six faces.
    Cube,
    /// An array of cube maps: the index of the cube, and a direction.
    Cubes,
}

/// The settings with which a texture is read, as in `cudaTextureDesc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampler {
    /// The treatment of coordinates outside of the texels, in x, y and z.
    pub address: [AddressMode; 3],
    /// The interpolation between texels.
    pub filter: Filter,
    /// The conversion of integer channels.
    pub read: ReadMode,
    /// The unit of floating-point coordinates.
    pub coordinates: Coordinates,
    /// The color of the border for [`AddressMode::Border`], as the bits of four channels after
    /// conversion.
    pub border: [u32; 4],
}

/// The treatment of a coordinate outside of the texels (CUDA C++ Programming Guide, "Texture
/// Fetching").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressMode {
    /// Repeats the texels. Coordinates in texels are clamped instead.
    Wrap,
    /// Reads the texel at the edge.
    Clamp,
    /// Repeats the texels, every other time mirrored. Coordinates in texels are clamped instead.
    Mirror,
    /// Reads the color of the border.
    Border,
}

/// The interpolation between texels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Reads the texel that contains the coordinate.
    Point,
    /// Returns the mean of the 2, 4 or 8 nearest texels, weighted by distance in steps of 1/256.
    Linear,
}

/// The conversion of integer channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Returns integers.
    Element,
    /// Returns floats from 0 to 1 for unsigned integers, and from -1 to 1 for signed ones. 32-bit
    /// integers are not converted.
    NormalizedFloat,
}

/// The unit of floating-point coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coordinates {
    /// Texels.
    Texels,
    /// The extent of the image, so that coordinates range from 0 to 1.
    Normalized,
}

impl Sampler {
    /// A sampler that reads the texel at coordinates in texels and clamps at the edges.
    pub const POINT: Sampler = Sampler {
        address: [AddressMode::Clamp; 3],
        filter: Filter::Point,
        read: ReadMode::Element,
        coordinates: Coordinates::Texels,
        border: [0; 4],
    };

    /// Returns true if the sampler returns floats for a format.
    pub(crate) fn gives_floats(&self, format: TexelFormat) -> bool {
        format.channel.is_float()
            || self.read == ReadMode::NormalizedFloat && format.channel.bytes() < 4
    }
}

impl ImageShape {
    /// Returns the name in findings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ImageShape::Linear => "linear",
            ImageShape::D1 => "1D",
            ImageShape::D2 => "2D",
            ImageShape::D3 => "3D",
            ImageShape::Layers1 => "1D layered",
            ImageShape::Layers2 => "2D layered",
            ImageShape::Cube => "cube map",
            ImageShape::Cubes => "layered cube map",
        }
    }

    /// Returns whether an image of this shape may have more than one texel or layer in y and in z.
    fn has(self) -> [bool; 2] {
        match self {
            ImageShape::Linear | ImageShape::D1 => [false, false],
            ImageShape::D2 => [true, false],
            ImageShape::Layers1 => [false, true],
            ImageShape::D3 | ImageShape::Layers2 | ImageShape::Cube | ImageShape::Cubes => {
                [true, true]
            }
        }
    }

    /// Returns the maximum extent in each direction, as for compute capability 7.5 and later.
    fn most(self) -> [u32; 3] {
        match self {
            ImageShape::Linear => [1 << 28, 1, 1],
            ImageShape::D1 => [131_072, 1, 1],
            ImageShape::D2 => [131_072, 65_536, 1],
            ImageShape::D3 => [16_384; 3],
            ImageShape::Layers1 => [32_768, 1, 2_048],
            ImageShape::Layers2 => [32_768, 32_768, 2_048],
            ImageShape::Cube => [32_768, 32_768, 6],
            ImageShape::Cubes => [32_768, 32_768, 2_046],
        }
    }
}

impl Image {
    /// Creates an image at address 0 whose rows are contiguous. [`Image::bytes`] returns the memory
    /// that it needs.
    pub fn new(format: TexelFormat, shape: ImageShape, extent: [u32; 3]) -> Image {
        let pitch = u64::from(extent[0]) * u64::from(format.bytes());
        Image {
            address: 0,
            format,
            shape,
            extent,
            pitch,
        }
    }

    /// Returns the number of bytes of a row that contain texels.
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.extent[0]) * u64::from(self.format.bytes())
    }

    /// Returns the number of bytes from the first texel to the end of the last one.
    pub fn bytes(&self) -> u64 {
        let rows = u64::from(self.extent[1]) * u64::from(self.extent[2]);
        self.pitch
            .saturating_mul(rows.saturating_sub(1))
            .saturating_add(self.row_bytes())
    }

    /// Returns the address of a byte of a row.
    pub(crate) fn place(&self, byte: u64, [y, z]: [u32; 2]) -> u64 {
        let row = u64::from(z) * u64::from(self.extent[1]) + u64::from(y);
        self.address
            .wrapping_add(row.wrapping_mul(self.pitch))
            .wrapping_add(byte)
    }

    /// Checks the fields.
    ///
    /// # Errors
    /// Returns [`ImageError::Image`] with the broken rule.
    pub fn check(&self) -> Result<(), ImageError> {
        let wrong = |what: String| Err(ImageError::Image(what));
        let ([w, h, d], most, name) = (self.extent, self.shape.most(), self.shape.name());
        let [rows, slices] = self.shape.has();
        if !matches!(self.format.channels, 1 | 2 | 4) {
            return wrong(format!(
                "{} channels: it has 1, 2 or 4",
                self.format.channels
            ));
        }

        if w == 0 || h == 0 || d == 0 {
            return wrong(format!(
                "a size of {w} x {h} x {d} texels: each must be at least 1"
            ));
        }

        // A direction that the shape lacks must have one texel, and no direction may exceed the
        // limit of devices.
        if !rows && h > 1
            || !slices && d > 1
            || [w, h, d].iter().zip(most).any(|(n, most)| *n > most)
        {
            let [mw, mh, md] = most;
            return wrong(format!(
                "{w} x {h} x {d} texels of a {name} image, which has at most {mw} x {mh} x {md}"
            ));
        }

        let cubes = matches!(self.shape, ImageShape::Cube | ImageShape::Cubes);
        if cubes && (w != h || d % 6 != 0) {
            return wrong(format!(
                "{w} x {h} x {d} texels as a {name}, which has square faces and a multiple of 6 of them"
            ));
        }

        let texel = self.format.bytes();
        if self.pitch < self.row_bytes() || !self.pitch.is_multiple_of(texel.into()) {
            let pitch = self.pitch;
            let row = self.row_bytes();
            return wrong(format!(
                "a pitch of {pitch} bytes: at least the {row} of a row, and a multiple of the {texel} of a texel"
            ));
        }

        if !self.address.is_multiple_of(16) {
            return wrong(format!(
                "texels at 0x{:x}, which is not a multiple of 16",
                self.address
            ));
        }

        // The end of the image must be an address, because texels are found by addition.
        match self.address.checked_add(self.bytes()) {
            Some(_) => Ok(()),
            None => wrong(format!(
                "{} bytes at 0x{:x}, because addresses have 64 bits",
                self.bytes(),
                self.address
            )),
        }
    }
}
