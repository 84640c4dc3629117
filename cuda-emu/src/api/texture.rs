//! Texture objects and surface objects.

use ptx_emu::{AddressMode, Coordinates, Filter, Image, ImageError, ImageShape, ReadMode, Sampler};
use warpwright_driver_sys::*;

use crate::api::array::texel;
use crate::api::export::exports;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out};
use crate::machine::Machine;
use crate::queue::Ticket;
use crate::state::images::ImageObject;
use crate::state::{DriverState, capture};

exports! {
    table {
        5000 cuTexObjectCreate cuTexObjectCreate(texture: *mut CUtexObject, resource: *const CUDA_RESOURCE_DESC, how: *const CUDA_TEXTURE_DESC, view: *const CUDA_RESOURCE_VIEW_DESC) => create_texture;
        5000 cuTexObjectDestroy cuTexObjectDestroy(texture: CUtexObject) => destroy_texture;
        5000 cuTexObjectGetResourceDesc cuTexObjectGetResourceDesc(resource: *mut CUDA_RESOURCE_DESC, texture: CUtexObject) => texture_resource;
        5000 cuTexObjectGetTextureDesc cuTexObjectGetTextureDesc(how: *mut CUDA_TEXTURE_DESC, texture: CUtexObject) => texture_how;
        5000 cuTexObjectGetResourceViewDesc cuTexObjectGetResourceViewDesc(view: *mut CUDA_RESOURCE_VIEW_DESC, texture: CUtexObject) => texture_view;
        5000 cuSurfObjectCreate cuSurfObjectCreate(surface: *mut CUsurfObject, resource: *const CUDA_RESOURCE_DESC) => create_surface;
        5000 cuSurfObjectDestroy cuSurfObjectDestroy(surface: CUsurfObject) => destroy_surface;
        5000 cuSurfObjectGetResourceDesc cuSurfObjectGetResourceDesc(resource: *mut CUDA_RESOURCE_DESC, surface: CUsurfObject) => surface_resource;
    }
    more {}
}

/// The alignment of linear memory behind a texture in bytes, which is an attribute of the devices.
pub(crate) const TEXTURE_ALIGNMENT: u32 = 256;
/// The alignment of the pitch of such memory in bytes.
pub(crate) const TEXTURE_PITCH_ALIGNMENT: u32 = 32;

/// The supported flags of textures: integers, normalized coordinates, and two without an effect
/// here.
const FLAGS: u32 = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | 0x20 | 0x40;

fn invalid<T>(error: ImageError) -> Result<T> {
    refuse(CUresult::INVALID_VALUE, error.to_string())
}

/// Returns the image of a resource.
fn image(s: &DriverState, resource: &CUDA_RESOURCE_DESC) -> Result<Image> {
    require(resource.flags == 0, || {
        format!("the flags of the resource are {:#x}, not 0", resource.flags)
    })?;
    let res = &resource.res;
    match resource.resType {
        CUresourcetype::ARRAY => {
            let array = CUarray(std::ptr::without_provenance_mut(res.pointer as usize));
            Ok(s.array(array)?.1.image.clone())
        }
        CUresourcetype::LINEAR => {
            let format = texel(res.format, res.numChannels)?;
            let texels = res.width / format.bytes() as usize;

            // Here the width is in bytes, unlike for 2D memory.
            linear(s, res, res.width)?;
            require(texels > 0 && texels <= 1 << 28, || {
                format!("{texels} texels of linear memory: expected 1 to 2^28")
            })?;
            let extent = [texels as u32, 1, 1];
            Ok(Image {
                address: res.pointer,
                ..Image::new(format, ImageShape::Linear, extent)
            })
        }
        CUresourcetype::PITCH2D => {
            let format = texel(res.format, res.numChannels)?;
            let size = u32::try_from(res.width)
                .ok()
                .zip(u32::try_from(res.height).ok());
            let Some((width, height)) = size.filter(|(w, h)| *w > 0 && *h > 0) else {
                return refuse(
                    CUresult::INVALID_VALUE,
                    format!("{} x {} texels", res.width, res.height),
                );
            };

            require(
                res.pitchInBytes
                    .is_multiple_of(TEXTURE_PITCH_ALIGNMENT as usize),
                || {
                    format!(
                        "a pitch of {} bytes: expected a multiple of {TEXTURE_PITCH_ALIGNMENT}",
                        res.pitchInBytes
                    )
                },
            )?;
            let image = Image::new(format, ImageShape::D2, [width, height, 1]);
            let image = Image {
                address: res.pointer,
                pitch: res.pitchInBytes as u64,
                ..image
            };
            image.check().or_else(invalid)?;
            linear(s, res, image.bytes() as usize)?;
            Ok(image)
        }
        CUresourcetype::MIPMAPPED_ARRAY => {
            refuse(CUresult::NOT_SUPPORTED, "mipmapped arrays are not emulated")
        }
        other => refuse(
            CUresult::INVALID_VALUE,
            format!("unknown resource type {other:?}"),
        ),
    }
}

/// Checks linear memory behind a texture.
fn linear(s: &DriverState, res: &CUDA_RESOURCE_DESC_res, bytes: usize) -> Result {
    let address = res.pointer;
    require(address.is_multiple_of(TEXTURE_ALIGNMENT.into()), || {
        format!("texels at 0x{address:x}: expected a multiple of {TEXTURE_ALIGNMENT}")
    })?;
    let inside = s
        .device
        .range(address)
        .is_some_and(|(base, of)| bytes as u64 <= of - (address - base));
    require(inside, || {
        format!("{bytes} bytes at 0x{address:x} do not lie within one live allocation")
    })
}

fn address_mode(mode: CUaddress_mode) -> Result<AddressMode> {
    Ok(match mode {
        CUaddress_mode::WRAP => AddressMode::Wrap,
        CUaddress_mode::CLAMP => AddressMode::Clamp,
        CUaddress_mode::MIRROR => AddressMode::Mirror,
        CUaddress_mode::BORDER => AddressMode::Border,
        other => {
            return refuse(
                CUresult::INVALID_VALUE,
                format!("unknown address mode {other:?}"),
            );
        }
    })
}

fn sampler(image: &Image, how: &CUDA_TEXTURE_DESC) -> Result<Sampler> {
    if how.flags & !FLAGS != 0 {
        return refuse(
            CUresult::NOT_SUPPORTED,
            format!("textures with the flags {:#x} are not emulated", how.flags),
        );
    }

    let has = |flag: u32| how.flags & flag != 0;
    let read = if has(CU_TRSF_READ_AS_INTEGER) {
        ReadMode::Element
    } else {
        ReadMode::NormalizedFloat
    };

    // For linear memory the driver ignores the filter, the address mode and the coordinates.
    if image.shape == ImageShape::Linear {
        return Ok(Sampler {
            read,
            ..Sampler::POINT
        });
    }

    let [x, y, z] = how.addressMode;
    Ok(Sampler {
        address: [address_mode(x)?, address_mode(y)?, address_mode(z)?],
        filter: match how.filterMode {
            CUfilter_mode::POINT => Filter::Point,
            CUfilter_mode::LINEAR => Filter::Linear,
            other => {
                return refuse(
                    CUresult::INVALID_VALUE,
                    format!("unknown filter mode {other:?}"),
                );
            }
        },
        read,
        coordinates: if has(CU_TRSF_NORMALIZED_COORDINATES) {
            Coordinates::Normalized
        } else {
            Coordinates::Texels
        },
        border: how.borderColor.map(f32::to_bits),
    })
}

fn create_texture(
    m: &'static Machine,
    texture: Out<CUtexObject>,
    resource: In<CUDA_RESOURCE_DESC>,
    how: In<CUDA_TEXTURE_DESC>,
    view: In<CUDA_RESOURCE_VIEW_DESC>,
) -> Result {
    require(!texture.is_null(), || "the result pointer is NULL".into())?;
    let resource = resource.get()?;
    let how = how.get()?;
    if !view.is_null() {
        return refuse(CUresult::NOT_SUPPORTED, "resource views are not emulated");
    }

    let mut s = m.state();
    let context = s.context()?;
    let image = image(&s, &resource)?;
    let handle = m
        .device
        .memory
        .add_texture(&image, &sampler(&image, &how)?)
        .or_else(invalid)?;
    s.images.insert(
        handle,
        ImageObject {
            context,
            resource,
            how: Some(how),
        },
    );
    texture.set(handle)
}

fn create_surface(
    m: &'static Machine,
    surface: Out<CUsurfObject>,
    resource: In<CUDA_RESOURCE_DESC>,
) -> Result {
    require(!surface.is_null(), || "the result pointer is NULL".into())?;
    let resource = resource.get()?;
    let mut s = m.state();
    let context = s.context()?;
    require(resource.resType == CUresourcetype::ARRAY, || {
        format!("a surface of {:?}: expected an array", resource.resType)
    })?;
    let image = image(&s, &resource)?;
    let array = CUarray(std::ptr::without_provenance_mut(
        resource.res.pointer as usize,
    ));

    // A surface writes to its array, which the program must have allowed.
    let flags = s.array(array)?.1.descriptor.Flags;
    require(flags & CUDA_ARRAY3D_SURFACE_LDST != 0, || {
        "the array was created without CUDA_ARRAY3D_SURFACE_LDST".into()
    })?;
    let handle = m.device.memory.add_surface(&image).or_else(invalid)?;
    s.images.insert(
        handle,
        ImageObject {
            context,
            resource,
            how: None,
        },
    );
    surface.set(handle)
}

/// The kind of an image object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ImageObjectKind {
    Texture,
    Surface,
}

fn find(s: &DriverState, handle: u64, wanted: ImageObjectKind) -> Result<&ImageObject> {
    let is = |object: &&ImageObject| object.how.is_some() == (wanted == ImageObjectKind::Texture);
    let name = if wanted == ImageObjectKind::Texture {
        "texture"
    } else {
        "surface"
    };
    match s.images.get(&handle).filter(is) {
        Some(object) => Ok(object),
        None => refuse(
            CUresult::INVALID_VALUE,
            format!("0x{handle:x} is not the handle of a {name}"),
        ),
    }
}

/// Destroys an object after all work of the context, which may use it.
fn destroy(m: &'static Machine, handle: u64, wanted: ImageObjectKind) -> Result {
    let mut s = m.state();
    s.context()?;
    capture::refuse_unsafe(&mut s)?;
    let context = find(&s, handle, wanted)?.context;
    s.images.remove(&handle);
    let waiting = s.outstanding(context);
    drop(s);
    waiting.iter().for_each(Ticket::wait);
    m.device.memory.remove_object(handle).or_else(invalid)
}

fn destroy_texture(m: &'static Machine, texture: CUtexObject) -> Result {
    destroy(m, texture, ImageObjectKind::Texture)
}

fn destroy_surface(m: &'static Machine, surface: CUsurfObject) -> Result {
    destroy(m, surface, ImageObjectKind::Surface)
}

fn texture_resource(
    m: &'static Machine,
    resource: Out<CUDA_RESOURCE_DESC>,
    texture: CUtexObject,
) -> Result {
    resource.set(find(&m.state(), texture, ImageObjectKind::Texture)?.resource)
}

fn surface_resource(
    m: &'static Machine,
    resource: Out<CUDA_RESOURCE_DESC>,
    surface: CUsurfObject,
) -> Result {
    resource.set(find(&m.state(), surface, ImageObjectKind::Surface)?.resource)
}

fn texture_how(m: &'static Machine, how: Out<CUDA_TEXTURE_DESC>, texture: CUtexObject) -> Result {
    match find(&m.state(), texture, ImageObjectKind::Texture)?.how {
        Some(desc) => how.set(desc),
        None => Ok(()),
    }
}

fn texture_view(
    m: &'static Machine,
    _: Out<CUDA_RESOURCE_VIEW_DESC>,
    texture: CUtexObject,
) -> Result {
    find(&m.state(), texture, ImageObjectKind::Texture)?;
    refuse(
        CUresult::INVALID_VALUE,
        "the texture was created without a resource view",
    )
}
