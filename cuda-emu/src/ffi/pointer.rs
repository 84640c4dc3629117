//! Pointers and other arguments of a C caller.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;

use warpwright_driver_sys::*;

use crate::error::{Result, refuse, require};
use crate::image;

/// An argument as C passes it, and its conversion to a type for safe code.
pub(crate) trait CArgument {
    type Inside;

    /// Converts the argument.
    ///
    /// # Safety
    /// - The caller must ensure that the contract of the driver API allows the value for this
    ///   argument.
    unsafe fn convert(self) -> Self::Inside;
}

/// A pointer to a `T` or an array of `T` that the driver writes and, where the API says so, reads.
pub(crate) struct Out<'a, T>(*mut T, PhantomData<&'a mut T>);

/// A pointer to a `T` or an array of `T` that the driver reads.
pub(crate) struct In<'a, T>(*const T, PhantomData<&'a T>);

impl<T> Clone for Out<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<'_, T> {}

impl<T> Clone for In<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<'_, T> {}

impl<T: 'static> CArgument for *mut T {
    type Inside = Out<'static, T>;

    unsafe fn convert(self) -> Self::Inside {
        Out(self, PhantomData)
    }
}

impl<T: 'static> CArgument for *const T {
    type Inside = In<'static, T>;

    unsafe fn convert(self) -> Self::Inside {
        In(self, PhantomData)
    }
}

macro_rules! by_value {
    ($($type:ty),* $(,)?) => {$(
        impl CArgument for $type {
            type Inside = Self;

            unsafe fn convert(self) -> Self {
                self
            }
        }
    )*};
}

by_value!(
    c_int,
    c_uint,
    u8,
    u16,
    u64,
    usize,
    CUresult,
    CUcontext,
    CUmodule,
    CUfunction,
    CUstream,
    CUevent,
    CUgraph,
    CUgraphNode,
    CUgraphExec,
    CUdevice_attribute,
    CUfunction_attribute,
    CUstreamCaptureMode,
    CUhostFn,
    CUstream_flags,
    CUevent_flags,
    CUmemhostalloc_flags,
    CUmemhostregister_flags,
    CUgraphInstantiate_flags,
    CUgraphDebugDot_flags,
    CUctx_flags,
    CUmemAttach_flags,
    CUevent_record_flags,
    CUstreamUpdateCaptureDependencies_flags,
    CUstreamWaitValue_flags,
    CUstreamWriteValue_flags,
    CUuserObject_flags,
    CUuserObjectRetain_flags,
    CUgraphConditional_flags,
    CUoccupancy_flags,
    CUipcMem_flags,
    CUkernel,
    CUlibrary,
    CUlinkState,
    CUmemoryPool,
    CUuserObject,
    CUarray,
    CUlogsCallbackHandle,
    CUlimit,
    CUfunc_cache,
    CUjitInputType,
    CUlaunchAttributeID,
    CUpointer_attribute,
    CUmemPool_attribute,
    CUgraphMem_attribute,
    CUmem_advise,
    CUmem_range_attribute,
    CUmemAllocationType,
    CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType,
    CUmemRangeHandleType,
    CUmemLocation,
    CUdevice_P2PAttribute,
    CUexecAffinityType,
    CUipcMemHandle,
    CUipcEventHandle,
    CUstreamCallback,
    CUlogsCallback,
    CUtensorMapDataType,
    CUtensorMapInterleave,
    CUtensorMapSwizzle,
    CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill,
    CUtensorMapIm2ColWideMode,
    CUflushGPUDirectRDMAWritesTarget,
    CUflushGPUDirectRDMAWritesScope,
);

impl<'a, T> Out<'a, T> {
    /// Wraps a pointer that the caller wrote into a structure or an array that it passed.
    pub(super) fn inner(pointer: *mut T) -> Self {
        Self(pointer, PhantomData)
    }

    /// Returns a NULL pointer.
    pub(crate) const fn null() -> Self {
        Self(std::ptr::null_mut(), PhantomData)
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the address, for memory of the caller that outlives the call.
    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }

    /// Returns a pointer to element `index` of an array of the caller.
    pub(super) fn element(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index), PhantomData)
    }

    /// Returns the same pointer with another type, for arguments that the API declares as `void*`.
    pub(crate) fn cast<U>(self) -> Out<'a, U> {
        Out(self.0.cast(), PhantomData)
    }

    /// Writes a result. Returns an error for a NULL pointer.
    pub(crate) fn set(self, value: T) -> Result {
        require(!self.is_null(), || "a result pointer is NULL".into())?;
        self.set_if(value);
        Ok(())
    }

    /// Writes a result if the pointer is not NULL.
    pub(crate) fn set_if(self, value: T) {
        if !self.is_null() {
            // SAFETY: the pointer is not NULL, so by the contract of the API it is valid for one
            // write.
            unsafe { self.0.write(value) }
        }
    }

    /// Writes element `index` of an array of the caller.
    pub(crate) fn set_at(self, index: usize, value: T) {
        // SAFETY: the caller passed a count above `index`, so by contract the array has this
        // element.
        unsafe { self.0.add(index).write(value) }
    }

    /// Writes an array that the caller made large enough.
    pub(crate) fn set_all(self, values: impl IntoIterator<Item = T>) {
        for (i, value) in values.into_iter().enumerate() {
            self.set_at(i, value);
        }
    }
}

impl<T: Copy> Out<'_, T> {
    /// Reads an argument that is also written.
    pub(crate) fn get(self) -> Result<T> {
        In(self.0.cast_const(), PhantomData).get()
    }

    /// Returns the first `count` elements.
    pub(crate) fn slice(self, count: usize) -> Result<&'static [T]> {
        In(self.0.cast_const(), PhantomData).slice(count)
    }
}

impl<'a, T: Copy> In<'a, T> {
    /// Returns the value to which the pointer points.
    pub(crate) fn get(self) -> Result<T> {
        require(!self.is_null(), || "an argument pointer is NULL".into())?;
        // SAFETY: the pointer is not NULL, so by the contract of the API it is valid for one read.
        // The read does not require alignment.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Returns the first `count` elements. NULL is allowed for an empty array.
    pub(crate) fn slice(self, count: usize) -> Result<&'a [T]> {
        if count == 0 {
            return Ok(&[]);
        }
        require(!self.is_null(), || format!("an array of {count} is NULL"))?;
        require(self.0.is_aligned(), || "an array is not aligned".into())?;
        // SAFETY: the pointer is not NULL and aligned. By contract the caller passed the length of
        // its array.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) })
    }
}

impl<T> In<'_, T> {
    /// Wraps a pointer that the caller wrote into a structure or an array that it passed.
    pub(super) fn inner(pointer: *const T) -> Self {
        Self(pointer, PhantomData)
    }

    /// Returns a NULL pointer.
    pub(crate) const fn null() -> Self {
        Self(std::ptr::null(), PhantomData)
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the address, for memory of the caller that outlives the call.
    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }
}

impl<'a> In<'a, c_char> {
    /// Returns the bytes of a C string without its NUL.
    pub(crate) fn bytes(self) -> Result<&'a [u8]> {
        require(!self.is_null(), || "a string is NULL".into())?;
        // SAFETY: the pointer is not NULL, so by contract it is a string that ends with NUL.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// Returns a C string, or an error if it is not UTF-8.
    pub(crate) fn text(self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?)
            .or_else(|_| refuse(CUresult::INVALID_VALUE, "a string is not UTF-8"))
    }
}

impl Out<'_, c_char> {
    /// Writes `text`, truncated to `capacity` bytes including a NUL. Returns the number of bytes
    /// written.
    pub(crate) fn set_text(self, text: &str, capacity: usize) -> usize {
        if self.is_null() || capacity == 0 {
            return 0;
        }
        let bytes = &text.as_bytes()[..text.len().min(capacity - 1)];
        self.set_all(bytes.iter().chain(&[0]).map(|&b| b as c_char));
        bytes.len() + 1
    }
}

impl Out<'static, CUlaunchAttribute> {
    /// Returns the attributes of a launch, which were converted together with its configuration.
    pub(crate) fn from_config(config: &CUlaunchConfig) -> Self {
        Self(config.attrs, PhantomData)
    }
}

impl Out<'static, *mut c_void> {
    /// Returns an array of the caller that outlives the call, as the API specifies for it. See
    /// [`Out::address`].
    pub(crate) fn of_address(address: usize) -> Self {
        Self(address as *mut *mut c_void, PhantomData)
    }
}

/// Wraps a pointer that the caller wrote into an array that it passed.
pub(crate) fn at(pointer: *mut c_void) -> Out<'static, c_void> {
    Out(pointer, PhantomData)
}

/// Wraps the address of a C string that the caller passed as an untyped pointer.
pub(crate) fn as_text(address: usize) -> Out<'static, c_char> {
    Out(address as *mut c_char, PhantomData)
}

/// Returns the bytes of a module image, whose length depends on its first bytes.
///
/// It is a fat binary or the descriptor of one, the header of machine code, or a text up to its
/// NUL.
pub(crate) fn image_of(image: In<'_, c_void>) -> Result<&[u8]> {
    require(!image.is_null(), || "the image is NULL".into())?;
    let image = if begins(image, &image::DESCRIPTOR) {
        described(image)
    } else {
        image
    };
    require(!image.is_null(), || {
        "the descriptor does not point to a fat binary".into()
    })?;
    if begins(image, &image::FAT_BINARY) {
        let length = image::length(run(image, image::HEADER));
        return Ok(run(image, length));
    }

    if begins(image, &image::ELF) {
        Ok(run(image, image::ELF_HEADER))
    } else {
        In(image.0.cast::<c_char>(), PhantomData).bytes()
    }
}

/// Returns true if an image begins with these bytes. Bytes after the first difference are not read.
fn begins(image: In<'_, c_void>, bytes: &[u8]) -> bool {
    // SAFETY: an image has at least one byte, and a byte that is not NUL is followed by another
    // one.
    bytes
        .iter()
        .enumerate()
        .all(|(i, byte)| unsafe { image.0.cast::<u8>().add(i).read() } == *byte)
}

/// Returns the first `bytes` bytes of an image.
fn run<'a>(image: In<'a, c_void>, bytes: usize) -> &'a [u8] {
    // SAFETY: an image of its kind has a header, which states this length, and the caller keeps the
    // image during the call.
    unsafe { std::slice::from_raw_parts(image.0.cast(), bytes) }
}

/// Returns the fat binary of a descriptor, which is its second word.
fn described<'a>(image: In<'a, c_void>) -> In<'a, c_void> {
    // SAFETY: the caller passed such a descriptor of three words, and keeps it and its target
    // during the call.
    In(
        unsafe { image.0.cast::<*const c_void>().add(1).read_unaligned() },
        PhantomData,
    )
}
