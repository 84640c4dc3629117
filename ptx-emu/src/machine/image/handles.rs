//! The handles of textures and surfaces, and the checks of their shapes.

use crate::fault::{Class, Fault};
use crate::machine::device::allocation_words;
use crate::machine::device::images::bound_images::BoundImage;
use crate::machine::device::images::descriptor::{Image, ImageShape, Sampler};
use crate::machine::memory::lane_access;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::code::image::{ImageGeometry, ImagePlace};

/// Returns the shapes that an instruction can read.
pub(crate) fn shapes(geometry: ImageGeometry, of_texture: bool) -> &'static [ImageShape] {
    match (geometry, of_texture) {
        (ImageGeometry::D1, true) => &[ImageShape::D1, ImageShape::Linear],
        (ImageGeometry::D1, false) => &[ImageShape::D1],
        (ImageGeometry::D2, _) => &[ImageShape::D2],
        (ImageGeometry::D3, _) => &[ImageShape::D3],
        (ImageGeometry::A1, _) => &[ImageShape::Layers1],
        (ImageGeometry::A2, true) => &[ImageShape::Layers2],
        // The faces of cubes are layers to stores and loads.
        (ImageGeometry::A2, false) => &[ImageShape::Layers2, ImageShape::Cube, ImageShape::Cubes],
        (ImageGeometry::Cube, _) => &[ImageShape::Cube],
        (ImageGeometry::ACube, _) => &[ImageShape::Cubes],
    }
}

/// Returns the handles of the lanes, which a register or a texture reference contains.
pub(crate) fn handles(block: &Block<'_, '_>, w: &Warp, mask: u32, slot: u32) -> Checked<[u64; 32]> {
    let given = w
        .regs
        .get::<u64>(slot, mask)
        .map_err(|u| block.undefined(w, u))?;
    Ok(given.map(|handle| referred(block, handle).unwrap_or(handle)))
}

/// Returns the contents of the reference at an address.
fn referred(block: &Block<'_, '_>, address: u64) -> Option<u64> {
    let variable = block.grid.table.find(address)?;
    let whole = variable.base == address && variable.bytes == 8;
    whole.then(|| allocation_words::read(variable, 0, 8))
}

pub(crate) fn texture<'g>(
    block: &Block<'g, '_>,
    w: &Warp,
    lane: usize,
    handle: u64,
) -> Checked<(&'g Image, &'g Sampler)> {
    match block.grid.table.objects().find(handle) {
        Some(BoundImage::Texture(image, sampler)) => Ok((image, sampler)),
        found => Err(no_object(block, w, lane, handle, "texture", found)),
    }
}

pub(crate) fn surface<'g>(
    block: &Block<'g, '_>,
    w: &Warp,
    lane: usize,
    handle: u64,
) -> Checked<&'g Image> {
    match block.grid.table.objects().find(handle) {
        Some(BoundImage::Surface(image)) => Ok(image),
        found => Err(no_object(block, w, lane, handle, "surface", found)),
    }
}

#[cold]
fn no_object(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    handle: u64,
    wanted: &str,
    found: Option<&BoundImage>,
) -> Box<Fault> {
    let removed = block.grid.table.objects().removed(handle);
    let class = if removed {
        Class::AfterFree
    } else {
        Class::Descriptor
    };
    let what = match found {
        Some(BoundImage::Texture(..)) => {
            format!("0x{handle:x} is the handle of a texture, not of a {wanted}")
        }
        Some(BoundImage::Surface(_)) => {
            format!("0x{handle:x} is the handle of a surface, not of a {wanted}")
        }
        None if removed => format!("the {wanted} 0x{handle:x} is used after it was destroyed"),
        None if handle == 0 => format!("there is no {wanted}: the handle is 0"),
        None => format!("0x{handle:x} is not the handle of a {wanted}: it was never created"),
    };
    let mut fault = block.fault(w, 1 << lane, class, what);
    fault.instead = match (removed, wanted) {
        (true, _) => "destroy it only after the last launch that uses it",
        (false, "texture") => "pass what cuTexObjectCreate gave, as a parameter of 64 bits",
        (false, _) => "pass what cuSurfObjectCreate gave, as a parameter of 64 bits",
    };
    fault
}

/// Checks that an image has the coordinates of an instruction.
pub(crate) fn check_shape(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    image: &Image,
    place: &ImagePlace,
    kind: &str,
) -> Checked<()> {
    let wanted = shapes(place.geometry, kind == "texture");
    if wanted.contains(&image.shape) {
        return Ok(());
    }

    let has = image.shape.name();
    let reads = wanted[0].name();
    let what = format!("a {kind} is {has}, where this instruction is of a {reads} one");
    let mut fault = block.fault(w, 1 << lane, Class::Descriptor, what);
    fault.instead =
        "make it of an array with these dimensions, or use the function of its dimensions";
    lane_access::locate(block, &mut fault, image.address);
    Err(fault)
}

/// Returns the z of the layer or cube that a lane names.
pub(crate) fn check_layer(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    image: &Image,
    layer: u32,
    kind: &str,
) -> Checked<u32> {
    let (of, faces) = if image.shape == ImageShape::Cubes && kind == "texture" {
        ("cube", 6)
    } else {
        ("layer", 1)
    };
    let layers = image.extent[2] / faces;
    if layer < layers {
        return Ok(layer * faces);
    }

    let what = format!("{of} {} of a {kind} of {layers}", layer.cast_signed());
    let mut fault = block.fault(w, 1 << lane, Class::OutOfBounds, what);
    fault.instead = "check the index against the number of layers";
    lane_access::locate(block, &mut fault, image.address);
    Err(fault)
}
