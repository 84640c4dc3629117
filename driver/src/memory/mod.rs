//! Device memory, host memory that the device can access, and the types of elements.
//!
//! | memory | types |
//! |---|---|
//! | on the device | [`Buffer`], allocated by the driver or from a [`MemoryPool`] |
//! | on the device, and growing in place | [`GrowableBuffer`], from [`PhysicalMemory`] that is mapped into an [`AddressRange`] |
//! | on the host | [`Pinned`], [`Registered`] and [`Managed`] |
//! | of another process | [`MemoryHandle`] |
//!
//! All of them dereference to a [`View`], which is a range of elements. Kernels, copies and fills
//! take views. A [`Region`] is a view without the type of its elements, and [`Boxed`] is a view of
//! two or three dimensions. A [`TensorMap`] describes a view to the copy engine (TMA), and an
//! [`AccessWindow`] to the L2 cache. A [`Staging`] uploads large host memory at the speed of the
//! bus.
//!
//! An [`Element`] is a type that may be in device memory. Numbers and arrays are elements, and so
//! are your own structs with `#[derive(Element)]` (feature `derive`).
//!
//! - A view shares its allocation. Queued work keeps views, so memory is freed only after the work
//!   that uses it. You can drop a buffer at any time.
//! - Every element type is valid for any bytes. Device memory therefore needs no initialization to
//!   be read, although the emulator reports reads of uninitialized memory.
//! - Copies between host and device wait for conflicting work that was queued before, see
//!   [`ordering`](crate::ordering).
//! - Safe code never gets a slice of host memory that the device can write, because the device
//!   could write it while you read.

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
