//! The macro that generates the function table, and descriptions of its lines.

use std::ffi::CStr;
use std::fmt;

/// A line of the function table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// The exported name of the function.
    pub name: &'static str,
    /// The CUDA version that introduced the function, as 1000 * major + 10 * minor. It is 0 for a
    /// function that only an emulator has.
    pub since: i32,
    /// Whether a driver without the function is refused.
    pub required: bool,
}

/// The error for a driver that lacks a required function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MissingSymbol {
    /// The exported name of the function.
    pub name: &'static str,
    /// The CUDA version that introduced the function, as 1000 * major + 10 * minor.
    pub since: i32,
}

impl fmt::Display for MissingSymbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let major = self.since / 1000;
        let minor = self.since % 1000 / 10;
        write!(
            f,
            "the driver lacks {}, which CUDA {major}.{minor} introduced",
            self.name
        )
    }
}

impl std::error::Error for MissingSymbol {}

macro_rules! api {
    (
        required { $($since:literal $f:ident($($a:ident: $t:ty),*);)* }
        optional { $($osince:literal $o:ident($($oa:ident: $ot:ty),*);)* }
    ) => {
        /// The driver's functions. Each field has the exported name of its function.
        #[repr(C)]
        pub struct Api {
            $(
                #[doc = concat!("The function `", stringify!($f), "`, exported since ", $since, ".")]
                pub $f: unsafe extern "C" fn($($a: $t),*) -> CUresult,
            )*
            $(
                #[doc = concat!("The function `", stringify!($o), "`, exported since ", $osince, ", or `None` if the driver lacks it.")]
                pub $o: Option<unsafe extern "C" fn($($oa: $ot),*) -> CUresult>,
            )*
        }

        impl Clone for Api {
            fn clone(&self) -> Self {
                // Not derived, because derived code clones several hundred fields one by one, which
                // is slow to compile.
                // SAFETY: every field is a function pointer or `None`, which can be copied bitwise.
                unsafe { std::ptr::read(self) }
            }
        }

        impl Api {
            /// All functions of the table: the required ones, then the optional ones.
            pub const NAMES: &[Function] = &[
                $(Function { name: stringify!($f), since: $since, required: true },)*
                $(Function { name: stringify!($o), since: $osince, required: false },)*
            ];

            /// The names as the loader takes them.
            const C_NAMES: &[&CStr] = &[$(c_name(concat!(stringify!($f), "\0")),)* $(c_name(concat!(stringify!($o), "\0")),)*];

            /// Returns the line of a function with this exported name, or `None` if the table does
            /// not have it.
            pub fn function(name: &str) -> Option<&'static Function> {
                Self::NAMES.iter().find(|function| function.name == name)
            }

            /// Resolves the table through `symbol`, which returns null for an unknown name.
            ///
            /// # Errors
            /// Returns the first required function that is missing.
            ///
            /// # Safety
            /// - For each name, `symbol` must return null or the function that `cuda.h` declares
            ///   under that name.
            /// - The functions must stay valid while the table or a copy of it is used.
            pub unsafe fn load(mut symbol: impl FnMut(&CStr) -> *const c_void) -> Result<Self, MissingSymbol> {
                let mut found = [std::ptr::null(); Self::NAMES.len()];
                for ((place, function), name) in found.iter_mut().zip(Self::NAMES).zip(Self::C_NAMES) {
                    *place = symbol(name);
                    if place.is_null() && function.required {
                        return Err(MissingSymbol { name: function.name, since: function.since });
                    }
                }
                // SAFETY: the fields are function pointers in the order of the names, and `Option`
                // of a function pointer has the same layout. Required ones are not null, as checked
                // above. The caller guarantees their types.
                Ok(unsafe { std::mem::transmute::<[*const c_void; Self::NAMES.len()], Self>(found) })
            }

            /// Returns a table for tests, in which you replace the functions you need. Required
            /// functions return `NOT_SUPPORTED`, and optional ones are absent.
            pub fn empty() -> Self {
                Self {
                    $($f: {
                        unsafe extern "C" fn refuse($(_: $t),*) -> CUresult {
                            CUresult::NOT_SUPPORTED
                        }
                        refuse
                    },)*
                    $($o: None,)*
                }
            }
        }
    };
}

/// Returns the C string in a literal that ends with NUL.
pub(crate) const fn c_name(literal: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(literal.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("the literal ends with its only NUL"),
    }
}

pub(crate) use api;

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, c_void};

    use super::Function;
    use crate::{Api, CUresult};

    #[test]
    fn the_table_names_each_function_once_and_with_a_version() {
        let mut names: Vec<_> = Api::NAMES.iter().map(|f| f.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Api::NAMES.len());
        for f in Api::NAMES {
            let of_a_driver = f.name.starts_with("cu") && (2000..=13050).contains(&f.since);
            assert!(
                of_a_driver || (f.name.starts_with("emu") && f.since == 0 && !f.required),
                "{f:?}"
            );
            assert!(
                !f.required || f.since <= 12000,
                "{} needs more than the base driver",
                f.name
            );
        }
    }

    #[test]
    fn a_function_is_found_by_its_exported_name() {
        let found = Api::function("cuLibraryLoadData").copied();
        assert_eq!(
            found,
            Some(Function {
                name: "cuLibraryLoadData",
                since: 12000,
                required: false
            })
        );
        assert_eq!(Api::function("cuMemAlloc"), None);
    }

    #[test]
    fn a_missing_function_is_named_with_the_version_that_has_it() {
        // SAFETY: null is allowed for every name.
        let missing = unsafe { Api::load(|_| std::ptr::null()) }.err().unwrap();
        assert_eq!(
            missing.to_string(),
            "the driver lacks cuInit, which CUDA 2.0 introduced"
        );
    }

    #[test]
    fn optional_functions_may_be_missing() {
        let empty = Api::empty();
        let required: Vec<_> = Api::NAMES
            .iter()
            .filter(|f| f.required)
            .map(|f| f.name)
            .collect();
        let address = empty.cuInit as *const c_void;
        let symbol = |name: &CStr| {
            if required.contains(&name.to_str().unwrap()) {
                address
            } else {
                std::ptr::null()
            }
        };

        // SAFETY: only `cuInit` is called, and its address is of its type.
        let api = unsafe { Api::load(symbol) }.unwrap();

        // SAFETY: the function ignores its argument.
        assert_eq!(unsafe { (api.cuInit)(0) }, CUresult::NOT_SUPPORTED);
        assert!(api.cuLaunchKernelEx.is_none());
    }
}
