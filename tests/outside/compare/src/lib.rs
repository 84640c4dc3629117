//! A library in place of the driver, whose functions return immediately without doing anything.

#![allow(non_snake_case, unused_variables)]

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use warpwright_driver_sys::*;

/// `name(argument: type, ..) { what it does }`
macro_rules! stubs {
    ($($name:ident($($arg:ident: $ty:ty),*) { $($body:tt)* })*) => {
        $(
            /// # Safety
            /// As `cuda.h` says of the function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                // SAFETY: the caller passes pointers to places of these types.
                #[allow(unused_unsafe)]
                unsafe { $($body)* }
                CUresult::SUCCESS
            }
        )*
    };
}

include!("../../../../driver/benches/stub/functions.rs");
