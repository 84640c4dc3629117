//! Untyped launch arguments.

use ptx_gen::{Kind, Scalar, ShapeArg, Ty};

use crate::error::Error;
use crate::memory::element::bytes_of;
use crate::memory::{ByValue, Element, ElementType, Region, TensorMap, TensorMapBuilder, View};
use crate::module::ParameterType;

/// An untyped argument of a launch.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// # let module = Module::load(&context, SCALE)?;
/// # let params = [Parameter::value::<u32>("n"), Parameter::value::<f32>("a"), Parameter::buffer::<f32>("y", Access::ReadWrite)];
/// # // SAFETY: the kernel stays below `n` and has these parameters.
/// # let scale = unsafe { module.function("scale", &params) }?;
/// let y = Buffer::from_slice(&context, &[1.0f32, 2.0])?;
/// let args = vec![HostArg::scalar(2u32), HostArg::scalar(3.0f32), HostArg::from(&*y)];
/// stream.run_launch(&Launch::new(&scale, LaunchConfig::line(1, 32), args)?)?;
/// assert_eq!(stream.read(&y)?, [3.0, 6.0]);
/// // Another type is an error.
/// let args = vec![HostArg::scalar(2u32), HostArg::scalar(3u32), HostArg::from(&*y)];
/// let refused = Launch::new(&scale, LaunchConfig::line(1, 32), args).unwrap_err();
/// assert_eq!(refused.to_string(), "kernel scale: argument 1 (a) is a u32 value; it takes a f32 value");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum HostArg {
    /// A buffer in device memory or accessible host memory.
    Buffer(Region),
    /// A scalar: its type, and its bits extended with zeros.
    Scalar(Kind, u64),
    /// Another value that is passed by value.
    Value(HostValue),
}

/// A value of any type: its type and its bytes.
///
/// Use [`HostArg::value`] to create one.
///
/// ```
/// # const STORE: &str = "
/// # .version 7.0
/// # .target sm_70
/// # .address_size 64
/// # .visible .entry store(.param .align 4 .b8 pair[8], .param .u64 y)
/// # {
/// #     .reg .b32 %r<2>; .reg .b64 %y;
/// #     ld.param.u32 %r0, [pair];
/// #     ld.param.u32 %r1, [pair+4];
/// #     ld.param.u64 %y, [y];
/// #     st.global.u32 [%y], %r0;
/// #     st.global.u32 [%y+4], %r1;
/// #     ret;
/// # }
/// # ";
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// // y = pair
/// let module = Module::load(&context, STORE)?;
/// let params = [Parameter::value::<[u32; 2]>("pair"), Parameter::buffer::<u32>("y", Access::Write)];
/// // SAFETY: these are the kernel's parameters, and `y` has two elements.
/// let store = unsafe { module.function("store", &params) }?;
/// let y = Buffer::<u32>::zeroed(&context, 2)?;
/// let args = vec![HostArg::value([5u32, 6]), HostArg::from(&*y)];
/// stream.run_launch(&Launch::new(&store, LaunchConfig::line(1, 1), args)?)?;
/// assert_eq!(stream.read(&y)?, [5, 6]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct HostValue {
    ty: ElementType,
    bytes: Box<[u8]>,
    /// The number of elements of the tensor, if the value is a tensor map.
    elements: Option<usize>,
    /// The memory of the tensor, if the value is a tensor map and the memory is known.
    tensor: Option<Region>,
}

/// A tensor map as an argument of a kernel of `ptx-gen`.
///
/// An argument from [`TensorMapBuilder::arg`] knows its tensor. A launch keeps the tensor alive and
/// is ordered by it, as by a buffer. An argument from [`new`](Self::new) does not know its tensor,
/// so you must keep the tensor alive and order the launches yourself.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let matrix = Buffer::<f32>::zeroed(&context, 64 * 32)?;
/// let tiles = TensorMapBuilder::new(&matrix, &[32, 64]).boxed(&[32, 8]);
/// // SAFETY: the matrix lives until the kernels that take the map have run.
/// let map = unsafe { tiles.encode() }?; // an error below compute capability 9.0
/// // SAFETY: the matrix lives until the kernels that take the map have run, and it has this many elements.
/// let tiles = unsafe { MapArg::new(map, matrix.len()) }; // a field `InMap<f32>` of a kernel's arguments takes `&tiles`
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MapArg(HostValue);

impl MapArg {
    /// Creates an argument from the map of a tensor with `elements` elements.
    ///
    /// # Safety
    /// - Every launch that takes the argument must fulfill the obligations of
    ///   [`TensorMapBuilder::encode`].
    /// - The tensor must have that many elements, because the kernel's contract relies on the
    ///   number.
    pub unsafe fn new(map: TensorMap, elements: usize) -> Self {
        Self::encoded(map, elements, None)
    }

    fn encoded(map: TensorMap, elements: usize, tensor: Option<Region>) -> Self {
        let bytes = bytes_of(&map).into();
        Self(HostValue {
            ty: TensorMap::VALUE_TYPE,
            bytes,
            elements: Some(elements),
            tensor,
        })
    }

    /// Returns the number of elements of the tensor.
    pub(crate) fn elements(&self) -> usize {
        self.0.elements.unwrap_or(0)
    }

    pub(crate) fn value(&self) -> &HostValue {
        &self.0
    }
}

impl<T: Element> TensorMapBuilder<T> {
    /// Encodes the tensor map as an argument of a kernel of `ptx-gen`.
    ///
    /// The view counts as an argument too. A launch keeps it alive and is ordered with other work
    /// on it, and a recorder adds edges for it. A kernel that writes it must not take another
    /// argument with the same bytes.
    ///
    /// # Errors
    /// Returns the errors of [`encode`](Self::encode).
    ///
    /// # Safety
    /// Box and swizzle must be those of the [tile](Self::tile) of the parameter that takes the map.
    /// Copies of another box would access shared memory that the kernel has not reserved for them.
    pub unsafe fn arg(&self) -> Result<MapArg, Error> {
        // SAFETY: the argument contains the region, so that launches keep the tensor alive and are
        // ordered with other work on it. The caller guarantees box and swizzle.
        let map = unsafe { self.encode() }?;
        Ok(MapArg::encoded(
            map,
            self.elements(),
            Some(self.region().clone()),
        ))
    }
}

impl HostArg {
    /// Creates a scalar argument of a type that kernels of `ptx-gen` take.
    pub fn scalar<T: Scalar>(value: T) -> Self {
        Self::Scalar(<T as Ty>::KIND, value.to_bits64())
    }

    /// Creates an argument that is passed by value.
    pub fn value<T: ByValue>(value: T) -> Self {
        Self::Value(HostValue {
            ty: T::VALUE_TYPE,
            bytes: bytes_of(&value).into(),
            elements: None,
            tensor: None,
        })
    }

    /// Returns the shape that the launch contract sees: the length of a buffer or tensor, or a
    /// scalar.
    pub fn shape(&self) -> ShapeArg {
        match self {
            Self::Buffer(region) => ShapeArg::Len(region.bytes() / region.elem().size().max(1)),
            Self::Scalar(_, bits) => ShapeArg::Scalar(*bits),
            // Kernels of `ptx-gen` take only buffers, tensors and scalars, so no contract looks at
            // other values.
            Self::Value(value) => value.elements.map_or(ShapeArg::Scalar(0), ShapeArg::Len),
        }
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Buffer(region) => format!("a buffer of {} ({region})", region.elem().name()),
            Self::Scalar(kind, _) => format!("a {} value", kind.name()),
            Self::Value(HostValue { ty, .. }) => {
                format!("a {} value of {} bytes", ty.name(), ty.size())
            }
        }
    }

    pub(crate) fn fits(&self, wanted: ParameterType) -> bool {
        match (wanted, self) {
            (ParameterType::Buffer(elem, _), Self::Buffer(region)) => region.elem() == elem,
            (ParameterType::Value(ty), Self::Scalar(kind, _)) => ty.kind() == Some(*kind),
            (ParameterType::Value(wanted), Self::Value(value)) => value.ty == wanted,
            _ => false,
        }
    }
}

impl HostValue {
    /// Returns the memory of a tensor map's tensor, if it is known.
    pub(crate) fn tensor(&self) -> Option<&Region> {
        self.tensor.as_ref()
    }

    /// Returns the bytes in 64-bit words. The last word is padded with zeros.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.bytes.chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        })
    }
}

impl From<&MapArg> for HostArg {
    fn from(map: &MapArg) -> Self {
        Self::Value(map.0.clone())
    }
}

impl<T> From<&View<T>> for HostArg {
    fn from(view: &View<T>) -> Self {
        Self::Buffer(view.region().clone())
    }
}

impl<T> From<View<T>> for HostArg {
    fn from(view: View<T>) -> Self {
        Self::from(&view)
    }
}
