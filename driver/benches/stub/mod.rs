//! A driver whose functions do nothing, so that only this crate's own time is measured.

#![allow(unsafe_code, non_snake_case, unused_variables)]

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use warpwright_driver::sys::*;

/// `name(argument: type, ..) { what it does }`
macro_rules! stubs {
    ($($name:ident($($arg:ident: $ty:ty),*) { $($body:tt)* })*) => {
        /// The functions.
        pub(crate) fn api() -> Api {
            let mut api = Api::empty();
            $(api.$name = {
                unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                    // SAFETY: the crate passes pointers to places of these types.
                    #[allow(unused_unsafe)]
                    unsafe { $($body)* }
                    CUresult::SUCCESS
                }
                ($name as unsafe extern "C" fn($($ty),*) -> CUresult).into()
            };)*
            api
        }
    };
}

include!("functions.rs");
