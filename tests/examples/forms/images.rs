//! Arrays, and their textures and surfaces, created with raw driver calls.

use std::ptr::null;

use warpwright_driver::Context;
use warpwright_driver::sys::{
    Api, CU_TRSF_NORMALIZED_COORDINATES, CU_TRSF_READ_AS_INTEGER, CUDA_ARRAY3D_CUBEMAP,
    CUDA_ARRAY3D_DESCRIPTOR_v2, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SURFACE_LDST,
    CUDA_ARRAY3D_TEXTURE_GATHER, CUDA_MEMCPY3D_v2, CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC,
    CUaddress_mode, CUarray, CUarray_format, CUdeviceptr, CUfilter_mode, CUmemorytype,
    CUresourcetype, CUresult,
};

use super::Failure;

/// Directions of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Memory that is read by a texel's index.
    Linear,
    D1,
    D2,
    D3,
    Layers1,
    Layers2,
    Cube,
    Cubes,
}

/// The settings with which a texture is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampler {
    pub(crate) mode: CUaddress_mode,
    pub(crate) filter: CUfilter_mode,
    pub(crate) normalized: bool,
    /// Whether integers stay integers.
    pub(crate) integers: bool,
}

/// Texels, and how they are read, or that they are a surface.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) shape: Shape,
    /// Width, height, and depth or layers; 1 where there is no such direction.
    pub(crate) extent: [usize; 3],
    pub(crate) format: CUarray_format,
    pub(crate) channels: usize,
    pub(crate) sampler: Option<Sampler>,
    pub(crate) texels: Vec<u8>,
}

/// The bytes of a channel.
pub(crate) fn bytes(format: CUarray_format) -> usize {
    match format {
        CUarray_format::UNSIGNED_INT8 | CUarray_format::SIGNED_INT8 => 1,
        CUarray_format::UNSIGNED_INT16 | CUarray_format::SIGNED_INT16 | CUarray_format::HALF => 2,
        _ => 4,
    }
}

/// An image on a device.
pub(crate) struct Object<'a> {
    context: &'a Context,
    image: &'a Image,
    array: CUarray,
    memory: CUdeviceptr,
    pub(crate) handle: u64,
}

/// An error for a code that is none of success.
fn done(what: &str, code: CUresult) -> Result<(), Failure> {
    match code {
        CUresult::SUCCESS => Ok(()),
        other => Err(format!("{what}: {other:?}").into()),
    }
}

/// A function that a driver may lack.
fn there<F>(function: Option<F>) -> Result<F, Failure> {
    function.ok_or_else(|| "the driver has no arrays".into())
}

impl Image {
    pub(crate) fn is_surface(&self) -> bool {
        self.sampler.is_none()
    }

    /// Bytes of a row, rows, and slices.
    fn size(&self) -> [usize; 3] {
        [
            self.extent[0] * self.channels * bytes(self.format),
            self.extent[1],
            self.extent[2],
        ]
    }

    /// Makes it on a device.
    pub(crate) fn on<'a>(&'a self, context: &'a Context) -> Result<Object<'a>, Failure> {
        let _current = context.enter()?;
        let mut object = Object {
            context,
            image: self,
            array: CUarray::NULL,
            memory: 0,
            handle: 0,
        };
        let mut resource = CUDA_RESOURCE_DESC::zeroed();
        if self.shape == Shape::Linear {
            object.fill_memory()?;
            resource.resType = CUresourcetype::LINEAR;
            (resource.res.pointer, resource.res.width) = (object.memory, self.texels.len());
            (resource.res.format, resource.res.numChannels) = (self.format, self.channels as u32);
        } else {
            object.fill_array()?;
            resource.res.pointer = object.array.0.expose_provenance() as u64;
        }

        object.name(&resource)?;
        Ok(object)
    }

    fn descriptor(&self) -> CUDA_ARRAY3D_DESCRIPTOR_v2 {
        let mut flags = match self.shape {
            Shape::Layers1 | Shape::Layers2 => CUDA_ARRAY3D_LAYERED,
            Shape::Cube => CUDA_ARRAY3D_CUBEMAP,
            Shape::Cubes => CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED,
            _ => 0,
        };
        flags |= if self.is_surface() {
            CUDA_ARRAY3D_SURFACE_LDST
        } else {
            0
        };

        // Channels of 2D textures are gathered.
        flags |= if self.shape == Shape::D2 && !self.is_surface() {
            CUDA_ARRAY3D_TEXTURE_GATHER
        } else {
            0
        };
        let [w, h, d] = self.extent;
        let flat = matches!(self.shape, Shape::D1 | Shape::Layers1);
        CUDA_ARRAY3D_DESCRIPTOR_v2 {
            Width: w,
            Height: if flat { 0 } else { h },
            Depth: if matches!(self.shape, Shape::D1 | Shape::D2) {
                0
            } else {
                d
            },
            Format: self.format,
            NumChannels: self.channels as u32,
            Flags: flags,
        }
    }
}

impl Object<'_> {
    fn api(&self) -> &'static Api {
        self.context.driver().api()
    }

    fn fill_memory(&mut self) -> Result<(), Failure> {
        let (api, texels) = (self.api(), &self.image.texels);

        // SAFETY: the address is ours to write.
        done("cuMemAlloc", unsafe {
            (api.cuMemAlloc_v2)(&mut self.memory, texels.len())
        })?;
        let copy = there(api.cuMemcpyHtoD_v2)?;

        // SAFETY: the memory has as many bytes as the texels.
        done("cuMemcpyHtoD", unsafe {
            copy(self.memory, texels.as_ptr().cast(), texels.len())
        })
    }

    fn fill_array(&mut self) -> Result<(), Failure> {
        let (api, descriptor) = (self.api(), self.image.descriptor());
        let create = there(api.cuArray3DCreate_v2)?;

        // SAFETY: the handle is ours to write, and the descriptor a value of this function.
        done("cuArray3DCreate", unsafe {
            create(&mut self.array, &descriptor)
        })?;
        let [row, rows, slices] = self.image.size();
        self.copy(&CUDA_MEMCPY3D_v2 {
            srcMemoryType: CUmemorytype::HOST,
            srcHost: self.image.texels.as_ptr().cast(),
            srcPitch: row,
            srcHeight: rows,
            dstMemoryType: CUmemorytype::ARRAY,
            dstArray: self.array,
            WidthInBytes: row,
            Height: rows,
            Depth: slices,
            ..CUDA_MEMCPY3D_v2::zeroed()
        })
    }

    fn copy(&self, copy: &CUDA_MEMCPY3D_v2) -> Result<(), Failure> {
        let run = there(self.api().cuMemcpy3D_v2)?;
        // SAFETY: the host memory has rows and slices as large as the rows and slices of the array.
        done("cuMemcpy3D", unsafe { run(copy) })
    }

    /// Makes the texture or surface.
    fn name(&mut self, resource: &CUDA_RESOURCE_DESC) -> Result<(), Failure> {
        let api = self.api();
        let Some(sampler) = self.image.sampler else {
            let create = there(api.cuSurfObjectCreate)?;
            // SAFETY: the handle is ours to write, and the array lives as long as this.
            return done("cuSurfObjectCreate", unsafe {
                create(&mut self.handle, resource)
            });
        };

        let mut how = CUDA_TEXTURE_DESC::zeroed();
        (how.addressMode, how.filterMode) = ([sampler.mode; 3], sampler.filter);
        how.flags |= if sampler.normalized {
            CU_TRSF_NORMALIZED_COORDINATES
        } else {
            0
        };
        how.flags |= if sampler.integers {
            CU_TRSF_READ_AS_INTEGER
        } else {
            0
        };
        if !sampler.integers {
            how.borderColor = [0.25, -0.5, 3.0, 1.0];
        }

        let create = there(api.cuTexObjectCreate)?;

        // SAFETY: the handle is ours to write, and the memory lives as long as this.
        done("cuTexObjectCreate", unsafe {
            create(&mut self.handle, resource, &how, null())
        })
    }

    /// The texels of an array, in words.
    pub(crate) fn texels(&self) -> Result<Vec<u64>, Failure> {
        let _current = self.context.enter()?;
        let [row, rows, slices] = self.image.size();
        let mut words = vec![0u64; (row * rows * slices).div_ceil(8)];
        self.copy(&CUDA_MEMCPY3D_v2 {
            srcMemoryType: CUmemorytype::ARRAY,
            srcArray: self.array,
            dstMemoryType: CUmemorytype::HOST,
            dstHost: words.as_mut_ptr().cast(),
            dstPitch: row,
            dstHeight: rows,
            WidthInBytes: row,
            Height: rows,
            Depth: slices,
            ..CUDA_MEMCPY3D_v2::zeroed()
        })?;
        Ok(words)
    }
}

impl Drop for Object<'_> {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else {
            return;
        };

        let api = self.api();
        let destroy = if self.image.is_surface() {
            api.cuSurfObjectDestroy
        } else {
            api.cuTexObjectDestroy
        };
        if let Some(destroy) = destroy.filter(|_| self.handle != 0) {
            // SAFETY: the kernels that use it were waited for.
            let _gone = unsafe { destroy(self.handle) };
        }

        if let Some(destroy) = api.cuArrayDestroy.filter(|_| self.array != CUarray::NULL) {
            // SAFETY: its texture or surface is gone.
            let _gone = unsafe { destroy(self.array) };
        }

        if self.memory != 0 {
            // SAFETY: its texture is gone.
            let _gone = unsafe { (api.cuMemFree_v2)(self.memory) };
        }
    }
}
