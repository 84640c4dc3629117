//! The CUDA driver API as a table of functions, loaded at run time.
//!
//! [`Api`] holds one typed pointer per driver function. It is a plain value: [`Library`] fills it from `libcuda`,
//! an emulator fills it with its own functions, and a test starts from [`Api::empty`] and replaces what it needs. What
//! every program needs is required; any other function may be absent, and its field is an `Option`.
//!
//! The names are the exported ones of `cuda.h`, suffix included, because the suffix is the ABI: `cuMemAlloc` takes
//! 32-bit sizes, `cuMemAlloc_v2` takes `size_t`. Handles, codes and flags are transparent newtypes, so a value that a
//! newer driver returns stays representable.
//!
//! Nothing here is safe to call and nothing here checks. `warpwright-driver` is the safe layer.

#![allow(unsafe_code, non_snake_case, non_camel_case_types)]

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

/// Implements `Debug` as `Display`, so that `fn main() -> Result<(), E>` and `unwrap` print the sentence.
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
