//! Device memory, host memory that the device can access, and the types of elements.
//!
//! | memory | type | created by |
//! |---|---|---|
//! | of the device | [`Buffer`] | [`Buffer::zeroed`], [`Buffer::from_slice`], [`Buffer::uninit`] |
//! | of the device, in the order of a stream | [`Buffer`] | [`Stream::alloc`], or [`Stream::alloc_from`] with a [`MemoryPool`] |
//! | of the device, growing in place | [`GrowableBuffer`] | [`GrowableBuffer::reserve`] |
//! | of the device, mapped by hand | [`AddressRange`] | [`AddressRange::reserve`], and [`PhysicalMemory`] that is mapped into it |
//! | of the device, in another process | [`Buffer`] | [`Buffer::export`] there and a [`MemoryHandle`] here |
//! | of the host, pinned | [`Pinned`] | [`Pinned::zeroed`] |
//! | of the host, pinned later | [`Registered`] | [`Registered::new`] |
//! | of both, moved by the driver | [`Managed`] | [`Managed::zeroed`] |
//!
//! Kernels, copies and fills take a [`View`], which is a range of elements of any of them. Most
//! types dereference to a view, so that `&buffer` is enough:
//!
//! ```
//! use warpwright_driver::memory::{GrowableBuffer, Pinned};
//! use warpwright_driver::prelude::*;
//!
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
//! let stream = Stream::new(&context)?;
//! let x = Buffer::from_slice(&context, &[1.0f32, 2.0, 3.0])?;
//! let host = Pinned::<f32>::zeroed(&context, 3)?;
//! stream.copy(&x, &host)?; // queued
//! stream.synchronize()?;
//! assert_eq!(host.to_vec(), [1.0, 2.0, 3.0]);
//!
//! let mut growing = GrowableBuffer::<f32>::reserve(&context, 1 << 20)?; // addresses for 2^20 elements
//! growing.grow(2)?;
//! stream.copy(&x.view_range(1..3), &growing.view())?;
//! growing.grow(100)?; // the address stays
//! assert_eq!(stream.read(&growing.view())?[..2], [2.0, 3.0]);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Region`] is a view without the type of its elements, and [`Boxed`] is a view of two or three
//! dimensions. A [`TensorMap`] describes a view to the copy engine (TMA), and an [`AccessWindow`]
//! to the L2 cache. A [`Staging`] uploads large host memory at the speed of the bus.
//!
//! An [`Element`] is a type that may be in device memory. Numbers and arrays are elements, and so
//! are your own structs with `#[derive(Element)]` (feature `derive`).
//!
//! - A view shares its allocation. Queued work keeps views, so memory is freed only after the work
//!   that uses it. You can drop a buffer at any time.
//! - Every bit pattern is a valid value of an element type. It is therefore safe to read memory
//!   that was not initialized, although the emulator reports kernels that do.
//! - [`View::write`] and [`View::to_vec`] wait for the work that was queued before them. Until they
//!   return, conflicting work is refused.
//! - Safe code never gets a slice of host memory that the device can write, because the device
//!   could write it while you read.
//!
//! [`Stream::alloc`]: crate::stream::Stream::alloc
//! [`Stream::alloc_from`]: crate::stream::Stream::alloc_from

pub(crate) mod access_window;
pub(crate) mod allocation;
pub(crate) mod boxed;
pub(crate) mod buffer;
pub(crate) mod element;
pub(crate) mod host;
mod ipc;
pub(crate) mod mapping;
pub(crate) mod pinned;
mod pool;
pub(crate) mod region;
mod staging;
pub(crate) mod tensor_map;
pub(crate) mod transfer;

pub use access_window::AccessWindow;
pub use boxed::Boxed;
pub use buffer::{Buffer, View};
pub use element::{ByValue, Element, ElementType};
pub use host::{Managed, Registered};
pub use ipc::MemoryHandle;
pub use mapping::{AddressRange, GrowableBuffer, PhysicalMemory};
pub use pinned::Pinned;
pub use pool::MemoryPool;
pub use ptx_gen::{Kind, Swizzle, bf16, f16};
pub use region::Region;
pub use staging::Staging;
pub use tensor_map::{TensorMap, TensorMapBuilder};
#[cfg(feature = "derive")]
pub use warpwright_driver_derive::Element;
