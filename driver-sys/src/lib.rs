//! The CUDA driver API as a table of functions that is loaded at run time.
//!
//! [`Api`] holds a typed function pointer for each driver function. [`Library`] fills it from the
//! installed driver. An emulator can fill it with its own functions, and a test can start from
//! [`Api::empty`] and replace the functions it needs. Functions that every program needs are
//! required. Every other function may be absent, so its field is an `Option`.
//!
//! ```no_run
//! use warpwright_driver_sys::{CUresult, Library};
//!
//! let library = Library::find()?;
//! let mut count = 0;
//! // SAFETY: `cuInit` takes no pointer, and `count` is a variable that the driver may write.
//! let code = unsafe {
//!     assert_eq!((library.api().cuInit)(0), CUresult::SUCCESS);
//!     (library.api().cuDeviceGetCount)(&mut count)
//! };
//! assert_eq!(code, CUresult::SUCCESS);
//! println!("{count} devices, driver for CUDA {}", library.version());
//! # Ok::<(), warpwright_driver_sys::LoadError>(())
//! ```
//!
//! Functions have the exported names of `cuda.h` including their suffix, because the suffix selects
//! the ABI. For example, `cuMemAlloc` takes a 32-bit size, and `cuMemAlloc_v2` takes a `size_t`.
//! Handles, codes and flags are transparent newtypes, so that values of newer drivers stay
//! representable.
//!
//! All calls are `unsafe`, and nothing is checked here. `warpwright-driver` is the safe layer.

#![allow(unsafe_code, reason = "the crate declares a C API")]
#![allow(
    non_snake_case,
    non_camel_case_types,
    reason = "the names match those of cuda.h"
)]

mod api;
mod codes;
mod flags;
mod handles;
mod images;
mod library;
mod result;
mod structs;
mod table;

pub use api::{Function, MissingSymbol};
pub use codes::*;
pub use flags::*;
pub use handles::*;
pub use images::*;
pub use library::{Attempt, Library, LoadError, NAMES, OVERRIDE, Problem};
pub use result::CUresult;
pub use structs::*;
pub use table::Api;

const _: () = assert!(
    size_of::<usize>() == 8,
    "the CUDA driver exists for 64-bit processes only"
);

/// Implements `Debug` through `Display`, so that `fn main() -> Result<(), E>` and `unwrap` print
/// the sentence.
macro_rules! debug_is_display {
    ($($error:ty),* $(,)?) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )*};
}

debug_is_display!(CUresult, LoadError, MissingSymbol, Problem);
