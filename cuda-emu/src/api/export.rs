//! Exported functions: declared with one line each, and entered through one function.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use warpwright_driver_sys::CUresult;

use crate::error::{Error, Result};
use crate::machine::{self, Machine};
use crate::report::Details;

/// The error codes of code that does not load, which programs seldom explain.
const IMAGES: &[CUresult] = &[
    CUresult::INVALID_IMAGE,
    CUresult::NO_BINARY_FOR_GPU,
    CUresult::INVALID_PTX,
    CUresult::UNSUPPORTED_PTX_VERSION,
];

/// Runs the body of an exported function.
///
/// It stops panics, which must not unwind into C, and rejects calls before `cuInit`.
pub(crate) fn enter(name: &'static str, body: impl FnOnce(&'static Machine) -> Result) -> CUresult {
    let machine = machine::current();
    let result = catch_unwind(AssertUnwindSafe(|| {
        machine.admit(name)?;
        body(machine)
    }));
    match result {
        Ok(Ok(())) => CUresult::SUCCESS,
        Ok(Err(Error { code, text, .. })) => {
            // A limit of the emulator is a finding like a fault, because the program itself is
            // correct.
            if code == CUresult::NOT_SUPPORTED && !text.is_empty() {
                machine
                    .device
                    .finding(format!("{name}: {text}"), &Details::default());
            } else if !text.is_empty() {
                if IMAGES.contains(&code) {
                    machine.device.report_refused(&format!("{name}: {text}"));
                }
                machine.device.log.add(format!("{name}: {text}"));
            }
            code
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no text");
            let text = format!("{name}: the emulator panicked: {text}");
            machine.device.finding(text, &Details::default());
            CUresult::UNKNOWN
        }
    }
}

/// An exported function: its base name, the driver version that introduced this ABI, and its
/// exported name.
pub(crate) struct Export {
    pub(crate) base: &'static str,
    pub(crate) since: u32,
    pub(crate) symbol: &'static str,
    /// Whether it is a field of [`Api`](warpwright_driver_sys::Api).
    pub(crate) tabled: bool,
    pub(crate) address: fn() -> *const c_void,
}

/// Returns true if a driver of `version` has the functions of version `since`.
pub(crate) fn has(version: u32, since: u32) -> bool {
    since <= version
}

/// A field of [`Api`](warpwright_driver_sys::Api): a required or an optional function.
pub(crate) trait Field<F> {
    /// Sets the field. An optional function stays absent if the driver is too old.
    fn fill(&mut self, function: F, exists: bool);
}

impl<F> Field<F> for F {
    fn fill(&mut self, function: F, _exists: bool) {
        *self = function;
    }
}

impl<F> Field<F> for Option<F> {
    fn fill(&mut self, function: F, exists: bool) {
        *self = exists.then_some(function);
    }
}

/// Declares the exported functions of a chapter, with one line each: `since base symbol(arguments)
/// => body`.
///
/// The body is a safe function of the machine and of the arguments as `CArgument` converts them.
/// Functions in `table` are also fields of [`Api`](warpwright_driver_sys::Api), for which the
/// compiler compares the types. Functions in `more` are only exported.
macro_rules! exports {
    (
        table { $($ts:literal $tb:ident $t:ident($($ta:ident: $tt:ty),*) => $tf:path;)* }
        more { $($ms:literal $mb:ident $m:ident($($ma:ident: $mt:ty),*) => $mf:path;)* }
    ) => {
        $crate::api::export::exported! {
            $(true $ts $tb $t($($ta: $tt),*) => $tf;)*
            $(false $ms $mb $m($($ma: $mt),*) => $mf;)*
        }

        /// Sets the fields of this chapter that a driver of `version` has.
        pub(crate) fn fill_api(api: &mut warpwright_driver_sys::Api, version: u32) {
            $({
                type Function = unsafe extern "C" fn($($tt),*) -> warpwright_driver_sys::CUresult;
                $crate::api::export::Field::<Function>::fill(&mut api.$t, $t, $crate::api::export::has(version, $ts));
            })*
        }
    };
}

/// Declares the functions themselves and the list of them.
macro_rules! exported {
    ($($tabled:literal $since:literal $base:ident $symbol:ident($($arg:ident: $type:ty),*) => $body:path;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn $symbol($($arg: $type),*) -> warpwright_driver_sys::CUresult {
                $crate::api::export::enter(stringify!($symbol), move |machine| {
                    // SAFETY: the caller keeps the contract of the driver API for every argument.
                    $body(machine, $(unsafe { $crate::ffi::pointer::CArgument::convert($arg) }),*)
                })
            }
        )*

        /// The functions of this chapter.
        pub(crate) const EXPORTS: &[$crate::api::export::Export] = &[$($crate::api::export::Export {
            base: stringify!($base),
            since: $since,
            symbol: stringify!($symbol),
            tabled: $tabled,
            address: || $symbol as *const std::ffi::c_void,
        }),*];
    };
}

pub(crate) use {exported, exports};
