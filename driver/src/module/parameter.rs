//! Declared kernel parameters.

use ptx_gen::{Access, Param, ParamKind};

use crate::memory::{ByValue, Element, ElementType};

/// A declared parameter of a kernel: its name and its type.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let module = Module::load(&context, SCALE)?;
/// let n = Parameter::value::<u32>("n");
/// let y = Parameter::buffer::<f32>("y", Access::ReadWrite);
/// // SAFETY: the kernel stays below `n` and has these parameters.
/// let scale = unsafe { module.function("scale", &[n, Parameter::value::<f32>("a"), y]) }?;
/// assert_eq!(scale.params()[2], y);
/// // SAFETY: the call returns an error, because `a` has 4 bytes.
/// assert!(unsafe { module.function("scale", &[n, Parameter::value::<f64>("a"), y]) }.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// The name, which appears in error messages and graph plots.
    pub name: &'static str,
    /// The type of the argument that it takes.
    pub ty: ParameterType,
}

/// The type of a kernel parameter.
///
/// ```
/// # use warpwright_driver::module::ParameterType;
/// # use warpwright_driver::prelude::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let module = Module::load(&context, SCALE)?;
/// # let params = [Parameter::value::<u32>("n"), Parameter::value::<f32>("a"), Parameter::buffer::<f32>("y", Access::ReadWrite)];
/// # // SAFETY: the kernel stays below `n` and has these parameters.
/// # let scale = unsafe { module.function("scale", &params) }?;
/// let written = scale.params().iter().filter(|param| match param.ty {
///     ParameterType::Buffer(_, access) => access.writes(),
///     _ => false, // values, and types of later versions
/// });
/// assert_eq!(written.map(|param| param.name).collect::<Vec<_>>(), ["y"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ParameterType {
    /// The address of elements in device memory, and the access of the kernel to them.
    Buffer(ElementType, Access),
    /// A value that is passed in the parameter list.
    Value(ElementType),
}

impl Parameter {
    /// Declares a buffer of `T`.
    pub const fn buffer<T: Element>(name: &'static str, access: Access) -> Self {
        Self {
            name,
            ty: ParameterType::Buffer(T::TYPE, access),
        }
    }

    /// Declares a `T` that is passed by value.
    pub const fn value<T: ByValue>(name: &'static str) -> Self {
        Self {
            name,
            ty: ParameterType::Value(T::VALUE_TYPE),
        }
    }

    /// Returns the access to a buffer. A value counts as read.
    pub(crate) fn access(&self) -> Access {
        match self.ty {
            ParameterType::Buffer(_, access) => access,
            ParameterType::Value(_) => Access::Read,
        }
    }
}

impl From<&Param> for Parameter {
    fn from(param: &Param) -> Self {
        let ty = match param.kind {
            ParamKind::Buffer(kind, access) => ParameterType::Buffer(kind.into(), access),
            ParamKind::Scalar(kind) => ParameterType::Value(kind.into()),
            ParamKind::TensorMap(..) => ParameterType::Value(crate::memory::TensorMap::VALUE_TYPE),
        };
        Self {
            name: param.name,
            ty,
        }
    }
}

impl ParameterType {
    /// Returns a description, for example `a buffer of f32` or `a f32 value`.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Buffer(elem, _) => format!("a buffer of {}", elem.name()),
            Self::Value(ty) => format!("a {} value", ty.name()),
        }
    }

    /// Returns the offset and the size of a parameter that follows `end` bytes of other parameters.
    ///
    /// `found` is the offset that the driver reports. A type aligned to 64 bytes, such as a tensor
    /// map, may be aligned to 128 as well. The alignment applies to the address in constant memory,
    /// where the parameters of sm_90 begin at 0x210. For example, on an H200 a tensor map that
    /// comes first is at offset 48. If `found` is one of the possible offsets, it is returned.
    pub(crate) fn place_after(self, end: usize, found: usize) -> (usize, usize) {
        let (size, align) = self.layout();
        let wide = if align == 64 { 128 } else { align };
        let place = |align: usize, base: usize| (end + base).next_multiple_of(align) - base;
        let places = [
            place(align, 0),
            place(align, 0x210),
            place(wide, 0),
            place(wide, 0x210),
        ];
        (
            if places.contains(&found) {
                found
            } else {
                places[0]
            },
            size,
        )
    }

    /// Returns the size and the alignment in the parameter list in bytes.
    fn layout(self) -> (usize, usize) {
        match self {
            Self::Buffer(..) => (8, 8),
            Self::Value(ty) => (ty.size(), ty.align()),
        }
    }
}
