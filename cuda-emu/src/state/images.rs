//! Arrays, textures and surfaces, as plain data.

use ptx_emu::Image;
use warpwright_driver_sys::*;

use crate::error::{Result, require};
use crate::handle::ContextId;

/// An array, whose texels are stored row by row in an allocation.
pub(crate) struct ImageArray {
    pub(crate) context: ContextId,
    pub(crate) image: Image,
    /// The descriptor with which it was created.
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR_v2,
}

/// A texture object, or a surface object if it has no texture descriptor.
pub(crate) struct ImageObject {
    pub(crate) context: ContextId,
    pub(crate) resource: CUDA_RESOURCE_DESC,
    pub(crate) how: Option<CUDA_TEXTURE_DESC>,
}

/// A box within an array.
pub(crate) struct ArrayBox {
    pub(crate) at: [usize; 3],
    pub(crate) size: [usize; 3],
}

impl ImageArray {
    /// Returns the address of a box.
    ///
    /// # Errors
    /// Returns an error if the box is not within the array or cuts a texel.
    pub(crate) fn place(&self, part: &ArrayBox) -> Result<u64> {
        let Image {
            address,
            format,
            extent,
            pitch,
            ..
        } = &self.image;
        let texel = format.bytes() as usize;

        // The first dimension of a box is in bytes, the others are in rows and slices.
        let all = [
            self.image.row_bytes() as usize,
            extent[1] as usize,
            extent[2] as usize,
        ];
        let inside = (0..3).all(|i| part.at[i] <= all[i] && part.size[i] <= all[i] - part.at[i]);
        require(inside, || {
            let [x, y, z] = part.at;
            let [w, h, d] = part.size;
            let [row, rows, slices] = all;
            format!(
                "a box of {w} bytes x {h} x {d} at ({x}, {y}, {z}) exceeds an array of {row} bytes x {rows} x {slices}"
            )
        })?;
        let whole = part.at[0].is_multiple_of(texel) && part.size[0].is_multiple_of(texel);
        require(whole, || {
            format!(
                "{} bytes at byte {} cut texels of {texel} bytes",
                part.size[0], part.at[0]
            )
        })?;
        let row = part.at[2] as u64 * u64::from(extent[1]) + part.at[1] as u64;
        Ok(address + row * pitch + part.at[0] as u64)
    }
}
