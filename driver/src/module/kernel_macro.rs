//! The macro [`kernel!`](crate::kernel), and the comparison of declared parameters with PTX.

use crate::error::Error;
use crate::module::{Parameter, ParameterType, ptx};

/// Declares a kernel of any PTX as a type with typed arguments.
///
/// A parameter is one of these:
///
/// - `&[T]`: a buffer that the kernel reads.
/// - `&mut [T]`: a buffer that the kernel writes, or reads and writes.
/// - `T`: a value.
///
/// `T` is an [`Element`](crate::memory::Element): a number, an array, or your own plain struct.
///
/// The macro generates three methods:
///
/// - `load` finds the kernel in a module and compares the declaration with it. It checks the number
///   of parameters, their sizes and offsets, and whether each is an address, an integer or a float.
///   It is `unsafe`, because the accesses of the program cannot be checked.
/// - `launch` queues the kernel in a stream. It is safe.
/// - `with` prepares a launch, for example for a graph. It is safe.
///
/// ```
/// use warpwright_driver::prelude::*;
///
/// kernel! {
///     /// `y = a x + y`, in one dimension.
///     pub struct Saxpy = "saxpy"(n: u32, a: f32, x: &[f32], y: &mut [f32]);
/// }
///
/// const PTX: &str = "
/// .version 7.0
/// .target sm_70
/// .address_size 64
/// .visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)
/// {
///     .reg .pred %p; .reg .b32 %r<5>; .reg .f32 %f<4>; .reg .b64 %rd<6>;
///     ld.param.u32 %r1, [n];
///     ld.param.f32 %f1, [a];
///     ld.param.u64 %rd1, [x];
///     ld.param.u64 %rd2, [y];
///     mov.u32 %r2, %ctaid.x;
///     mov.u32 %r3, %ntid.x;
///     mov.u32 %r4, %tid.x;
///     mad.lo.u32 %r2, %r2, %r3, %r4;
///     setp.ge.u32 %p, %r2, %r1;
///     @%p ret;
///     mul.wide.u32 %rd3, %r2, 4;
///     add.u64 %rd4, %rd1, %rd3;
///     add.u64 %rd5, %rd2, %rd3;
///     ld.global.f32 %f2, [%rd4];
///     ld.global.f32 %f3, [%rd5];
///     fma.rn.f32 %f3, %f1, %f2, %f3;
///     st.global.f32 [%rd5], %f3;
///     ret;
/// }
/// ";
///
/// # fn main() -> Result<(), Error> {
/// # let driver = Driver::from_library(warpwright_cuda_emu::library())?;
/// # let context = Context::new(&driver.device(0)?)?;
/// let module = Module::load(&context, PTX)?;
/// // SAFETY: the kernel stays below `n`, and every buffer below has that many elements.
/// let saxpy = unsafe { Saxpy::load(&module) }?;
/// let x = Buffer::from_slice(&context, &[1.0, 2.0, 3.0])?;
/// let y = Buffer::from_slice(&context, &[10.0, 10.0, 10.0])?;
/// let stream = Stream::new(&context)?;
/// saxpy.launch(&stream, LaunchConfig::line(1, 128), 3, 2.0, &x, &y)?;
/// assert_eq!(stream.read(&y)?, [12.0, 14.0, 16.0]);
///
/// kernel! { struct Wrong = "saxpy"(n: u32, a: u32, x: &[f32], y: &mut [f32]); }
/// // SAFETY: the call returns an error.
/// let refused = unsafe { Wrong::load(&module) }.map(drop).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "kernel saxpy: parameter 1 (a) is u32, an integer of 4 bytes, in the declaration and .f32 in the module"
/// );
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! kernel {
    ($(#[$m:meta])* $vis:vis struct $name:ident = $entry:literal ( $($args:tt)* );) => {
        $crate::kernel!(@parse [$(#[$m])* $vis struct $name = $entry] [] $($args)*);
    };
    (@parse $head:tt [$($done:tt)*] $arg:ident: &mut [$t:ty] $(, $($rest:tt)*)?) => {
        $crate::kernel!(@parse $head [$($done)* ($arg, &$crate::memory::View<$t>,
            $crate::module::Parameter::buffer::<$t>(stringify!($arg), $crate::ordering::Access::ReadWrite),
            $crate::launch::HostArg::from($arg))] $($($rest)*)?);
    };
    (@parse $head:tt [$($done:tt)*] $arg:ident: &[$t:ty] $(, $($rest:tt)*)?) => {
        $crate::kernel!(@parse $head [$($done)* ($arg, &$crate::memory::View<$t>,
            $crate::module::Parameter::buffer::<$t>(stringify!($arg), $crate::ordering::Access::Read),
            $crate::launch::HostArg::from($arg))] $($($rest)*)?);
    };
    (@parse $head:tt [$($done:tt)*] $arg:ident: $t:ty $(, $($rest:tt)*)?) => {
        $crate::kernel!(@parse $head [$($done)* ($arg, $t,
            $crate::module::Parameter::value::<$t>(stringify!($arg)),
            $crate::launch::HostArg::value($arg))] $($($rest)*)?);
    };
    (@parse [$(#[$m:meta])* $vis:vis struct $name:ident = $entry:literal]
        [$(($arg:ident, $t:ty, $parameter:expr, $host:expr))*]) => {
        $(#[$m])*
        #[derive(Clone, Debug)]
        $vis struct $name($crate::module::Function);

        #[allow(dead_code, clippy::too_many_arguments)]
        impl $name {
            /// Finds the kernel in a module and compares its parameters with the declaration.
            ///
            /// # Errors
            /// Returns an error if the module has no such kernel, or if its parameters differ.
            ///
            /// # Safety
            /// For all arguments that the kernel is launched with:
            ///
            /// - It must access only its buffers, within their lengths.
            /// - It must write only buffers that are declared `&mut`.
            /// - Two of its threads must not access the same bytes without an order if one of them
            ///   writes.
            #[allow(unsafe_code)]
            $vis unsafe fn load(module: &$crate::module::Module) -> Result<Self, $crate::error::Error> {
                // SAFETY: the parameters are those of the declaration, and the caller guarantees
                // the accesses of the kernel.
                unsafe { module.function($entry, &[$($parameter),*]) }.map(Self)
            }

            /// Returns the loaded function.
            $vis fn function(&self) -> &$crate::module::Function {
                &self.0
            }

            /// Prepares a launch with these arguments, for a graph or to queue it many times.
            ///
            /// # Errors
            /// Returns the errors of `Launch::new`.
            $vis fn with(
                &self,
                config: $crate::launch::LaunchConfig,
                $($arg: $t),*
            ) -> Result<$crate::launch::Launch, $crate::error::Error> {
                $crate::launch::Launch::new(&self.0, config, vec![$($host),*])
            }

            /// Queues the kernel in a stream.
            ///
            /// # Errors
            /// Returns the errors of `Launch::new` and `Stream::run`.
            $vis fn launch(
                &self,
                stream: &$crate::stream::Stream,
                config: $crate::launch::LaunchConfig,
                $($arg: $t),*
            ) -> Result<(), $crate::error::Error> {
                stream.run_launch(&self.with(config, $($arg),*)?)
            }
        }
    };
}

/// Compares declared parameters with the PTX, as far as it is known.
///
/// # Errors
/// Returns [`Error::Signature`] for the first parameter that differs.
pub(crate) fn compare(text: &str, kernel: &str, declared: &[Parameter]) -> Result<(), Error> {
    let Some(found) = ptx::parameters(text, kernel) else {
        return Ok(());
    };
    for (index, (parameter, found)) in declared.iter().zip(&found).enumerate() {
        if !fits(parameter.ty, found) {
            return Err(Error::Signature {
                kernel: kernel.to_string(),
                index,
                name: parameter.name.to_string(),
                declared: describe(parameter.ty),
                loaded: found.to_string(),
            });
        }
    }
    Ok(())
}

/// Returns true if a parameter of the PTX can have the declared type. Signed and unsigned integers
/// match, because compilers use either.
fn fits(declared: ParameterType, found: &ptx::Parameter) -> bool {
    let float = |ty: &str| matches!(ty, "f16" | "f32" | "f64");
    match declared {
        ParameterType::Buffer(..) => {
            matches!(found.ty.as_str(), "u64" | "s64" | "b64") && found.bytes == 8
        }
        ParameterType::Value(ty) if found.array || !is_number(ty.name()) => {
            ty.size() == found.bytes && found.align.is_multiple_of(ty.align())
        }
        ParameterType::Value(ty) => {
            ty.size() == found.bytes
                && (found.ty.starts_with('b') || float(ty.name()) == float(&found.ty))
        }
    }
}

fn is_number(name: &str) -> bool {
    matches!(
        name.as_bytes(),
        [b'u' | b's' | b'i' | b'f', b'0'..=b'9', ..]
    )
}

fn describe(ty: ParameterType) -> String {
    match ty {
        ParameterType::Buffer(elem, _) => format!("an address of {}", elem.name()),
        ParameterType::Value(ty) if ty.name().starts_with('f') => {
            format!("{}, a float of {} bytes,", ty.name(), ty.size())
        }
        ParameterType::Value(ty) if is_number(ty.name()) => {
            format!("{}, an integer of {} bytes,", ty.name(), ty.size())
        }
        ParameterType::Value(ty) => {
            format!(
                "{}, of {} bytes aligned to {},",
                ty.name(),
                ty.size(),
                ty.align()
            )
        }
    }
}
