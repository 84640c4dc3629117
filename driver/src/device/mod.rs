//! The driver, its devices and their contexts.
//!
//! [`Driver::load`] finds the driver at run time. Its [devices](Device) are only described until
//! you create a [`Context`], which every other object of this crate belongs to:
//!
//! ```
//! use warpwright_driver::prelude::*;
//!
//! # fn main() -> Result<(), Error> {
//! # let driver = Driver::from_library(warpwright_cuda_emu::library())?;
//! # /*
//! let driver = Driver::load()?;
//! # */
//! let device = driver.device(0)?;
//! let context = Context::new(&device)?;
//! assert_eq!(context.device().name(), device.name());
//! # Ok(())
//! # }
//! ```
//!
//! - A context is the primary context of its device. Other code of the process can share it, and
//!   this crate never resets it.
//! - Every object keeps its context alive, and the context keeps the driver open. You can drop
//!   them in any order.
//! - An object of one driver is never passed to another driver. Calls with objects of two contexts
//!   return [`Error::WrongContext`](crate::error::Error::WrongContext).
//! - Each call makes the context current and then restores the previous one, so no thread needs any
//!   preparation.

pub(crate) mod context;
pub(crate) mod event;
pub(crate) mod launch_limits;
mod peer_access;
pub(crate) mod properties;

pub use crate::lifetime::driver::{Driver, driver_load_error, is_driver_available};
pub use context::{Context, Current};
pub use properties::{Device, Properties};
