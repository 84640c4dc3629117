//! Tensor maps: descriptions of tensors for the copy engine of compute capability 9.0 (TMA).

use driver_sys::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle,
};

use ptx_gen::{Kind, MapBox, Swizzle};

use crate::error::Error;
use crate::memory::element::sealed::Sealed;
use crate::memory::{ByValue, Element, ElementType, Region, View};

/// A tensor map that is passed to a kernel by value, with
/// [`HostArg::value`](crate::launch::HostArg::value) or `map: TensorMap` in
/// [`kernel!`](crate::kernel).
///
/// A map contains an address and keeps no memory alive. Therefore [`TensorMapBuilder::encode`], the
/// only function that returns a map, is `unsafe`. A map is not an [`Element`], because the bytes of
/// an element can come from anywhere.
///
/// A kernel declares a map as 128 bytes aligned to 64, as the headers of CUDA 12 do, or aligned to
/// 128, as the headers of CUDA 13 do.
///
/// See [`TensorMapBuilder`] for an example. A map cannot be read from memory:
///
/// ```compile_fail,E0277
/// use warpwright_driver::{Context, Error};
/// use warpwright_driver::memory::{Buffer, TensorMap};
///
/// fn forge(context: &Context) -> Result<Buffer<TensorMap>, Error> {
///     Buffer::zeroed(context, 1)
/// }
/// ```
///
/// ```
/// # use warpwright_driver::memory::TensorMap;
/// # use warpwright_driver::module::ParameterType;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// kernel! {
///     /// `sum` over the tiles of a matrix.
///     pub struct SumTiles = "sum_tiles"(tiles: TensorMap, sum: &mut [f32]);
/// }
///
/// let tiles = Parameter::value::<TensorMap>("tiles"); // the same parameter without the macro
/// let ParameterType::Value(ty) = tiles.ty else { panic!("it is no buffer") };
/// assert_eq!((ty.size(), ty.align()), (128, 64));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct TensorMap([u64; 16]);

impl Sealed for TensorMap {}

impl ByValue for TensorMap {
    const VALUE_TYPE: ElementType = ElementType::tensor_map::<Self>();
}

impl std::fmt::Debug for TensorMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TensorMap")
    }
}

/// A builder for tensor maps: the dimensions of a tensor, innermost first, and the box of one copy.
///
/// ```
/// # use warpwright_driver::memory::Swizzle;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let matrix = Buffer::<f32>::zeroed(&context, 64 * 32)?; // 64 rows of 32
/// let tiles = TensorMapBuilder::new(&matrix, &[32, 64]).boxed(&[32, 8]).swizzle(Swizzle::B128);
/// // SAFETY: the matrix lives until the kernels that take the map have run.
/// let map = unsafe { tiles.encode() }?; // an error below compute capability 9.0
/// let argument = HostArg::value(map); // for a kernel with such a parameter
/// # Ok(())
/// # }
/// ```
///
/// For a kernel of `ptx-gen`, the tile that the kernel copies determines the box, the swizzle and
/// the type:
///
/// ```
/// # use warpwright_driver::memory::Swizzle;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// use ptx_gen::TileOf;
///
/// /// The kernel uses it as `a.x.of(X)`.
/// const X: TileOf<f16> = TileOf::new(128, 64, Swizzle::B128);
///
/// let matrix = Buffer::<f16>::zeroed(&context, 300 * 200)?; // 300 rows of 200
/// // SAFETY: the matrix lives until the kernels that take the map have run.
/// let x: MapArg = unsafe { TensorMapBuilder::matrix(&matrix, 300, 200).tile(X).arg() }?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TensorMapBuilder<T> {
    view: View<T>,
    dims: Vec<u64>,
    strides: Vec<u64>,
    boxed: Vec<u32>,
    swizzle: Swizzle,
    /// The element type of the kernel's tile, if a tile was set.
    holds: Option<Kind>,
}

impl<T: Element> TensorMapBuilder<T> {
    /// Describes a row-major matrix.
    pub fn matrix(view: &View<T>, rows: usize, columns: usize) -> Self {
        Self::new(view, &[columns as u64, rows as u64])
    }

    /// Describes a contiguous tensor with these dimensions, innermost first.
    pub fn new(view: &View<T>, dims: &[u64]) -> Self {
        let bytes = size_of::<T>() as u64;
        let strides = dims.iter().scan(bytes, |stride, dim| {
            *stride = stride.saturating_mul(*dim);
            Some(*stride)
        });
        let strides = strides.take(dims.len().saturating_sub(1)).collect();
        Self {
            view: view.clone(),
            dims: dims.to_vec(),
            strides,
            boxed: vec![1; dims.len()],
            swizzle: Swizzle::None,
            holds: None,
        }
    }

    /// Sets the box and the swizzle from the tile of a kernel.
    ///
    /// The tile is a [`TileOf`](ptx_gen::TileOf) or a [`TensorBox`](ptx_gen::TensorBox) that the
    /// kernel declares, or the result of [`Program::map_box`](ptx_gen::Program::map_box) for one of
    /// its parameters. [`encode`](Self::encode) returns an error if the tile has another element
    /// type than the view or another number of dimensions than the tensor.
    #[must_use]
    pub fn tile(self, tile: impl Into<MapBox>) -> Self {
        let tile = tile.into();
        Self {
            holds: Some(tile.elem),
            boxed: tile.dims().to_vec(),
            swizzle: tile.swizzle,
            ..self
        }
    }

    /// Sets the distances in bytes between neighbors in every dimension but the innermost. They
    /// must be multiples of 16.
    #[must_use]
    pub fn strides(self, strides: &[u64]) -> Self {
        Self {
            strides: strides.to_vec(),
            ..self
        }
    }

    /// Sets the box of one copy in elements, with at most 256 in each dimension.
    #[must_use]
    pub fn boxed(self, boxed: &[u32]) -> Self {
        Self {
            boxed: boxed.to_vec(),
            ..self
        }
    }

    /// Sets the pattern that spreads rows over the banks of shared memory. A row of the box must
    /// not have more bytes than the pattern.
    #[must_use]
    pub fn swizzle(self, swizzle: Swizzle) -> Self {
        Self { swizzle, ..self }
    }

    /// Returns the tensor map. Elements outside the tensor are read as zero.
    ///
    /// # Errors
    /// - [`Error::Transfer`] if the tensor exceeds the view, or if the numbers of dimensions,
    ///   strides and box sizes do not match.
    /// - [`Error::Transfer`] if tensor maps do not support the element type.
    /// - [`Error::Driver`] if the driver refuses the box, for example because its rows are not a
    ///   multiple of 16 bytes or exceed the swizzle.
    ///
    /// # Safety
    /// For every launch that takes the map or a copy of it:
    ///
    /// - The view must stay alive until the kernel has completed.
    /// - The kernel must be ordered with other work on the view, because the launch does not know
    ///   the view.
    /// - Box, swizzle and element type must be those that the kernel was written for. Copies of
    ///   another box would access shared memory that the kernel has not reserved for them.
    pub unsafe fn encode(&self) -> Result<TensorMap, Error> {
        self.check()?;
        let mut map = CUtensorMap::zeroed();
        let context = self.view.context();
        let _current = context.enter()?;
        let driver = context.driver();
        let ty = self.data_type()?;
        let rank = self.dims.len() as u32;
        let ones = vec![1u32; self.dims.len()];
        let address = std::ptr::without_provenance_mut(self.view.address() as usize);
        let swizzle = match self.swizzle {
            Swizzle::None => CUtensorMapSwizzle::NONE,
            Swizzle::B32 => CUtensorMapSwizzle::_32B,
            Swizzle::B64 => CUtensorMapSwizzle::_64B,
            Swizzle::B128 => CUtensorMapSwizzle::_128B,
        };
        let dims = self.dims.as_ptr();
        let strides = self.strides.as_ptr();
        let boxed = self.boxed.as_ptr();
        let ones = ones.as_ptr();
        let plain = CUtensorMapInterleave::NONE;
        let l2 = CUtensorMapL2promotion::L2_128B;
        let fill = CUtensorMapFloatOOBfill::NONE;

        // SAFETY: `map` is a local variable that the driver may write. `check` has made sure that
        // the arrays have `rank` elements, and the strides one less.
        unsafe {
            cu_optional!(
                driver,
                cuTensorMapEncodeTiled(
                    &mut map, ty, rank, address, dims, strides, boxed, ones, plain, swizzle, l2,
                    fill
                )
            )
        }?;

        // SAFETY: both types consist of 128 bytes of integers, so every bit pattern is valid.
        Ok(unsafe { std::mem::transmute::<CUtensorMap, TensorMap>(map) })
    }

    /// Returns the memory of the tensor.
    pub(crate) fn region(&self) -> &Region {
        self.view.region()
    }

    /// Returns the number of elements of the tensor.
    pub(crate) fn elements(&self) -> usize {
        self.dims
            .iter()
            .fold(1u64, |product, dim| product.saturating_mul(*dim)) as usize
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |problem: String| {
            Err(Error::Transfer {
                what: "tensor map",
                problem,
            })
        };

        // The driver gets only an address and cannot check any of this against the view.
        if let Some(holds) = self
            .holds
            .filter(|holds| memory_of(*holds) != T::TYPE.name())
        {
            let holds = holds.name();
            let own = T::TYPE.name();
            return refuse(format!(
                "the kernel's tile contains {holds} elements, but the view contains {own}"
            ));
        }

        let rank = self.dims.len();
        if !(1..=5).contains(&rank) || self.strides.len() + 1 != rank || self.boxed.len() != rank {
            let strides = self.strides.len();
            let boxed = self.boxed.len();
            return refuse(format!(
                "{rank} dimensions, {strides} strides and a box of {boxed}; it has 1 to 5 dimensions, one stride less, \
                 and as many in the box"
            ));
        }

        let inner = self.dims[0].saturating_mul(size_of::<T>() as u64);
        let reach = self.dims[1..]
            .iter()
            .zip(&self.strides)
            .fold(inner, |reach, (dim, stride)| {
                reach.saturating_add(dim.saturating_sub(1).saturating_mul(*stride))
            });
        if self.dims.contains(&0) || reach > self.view.region().bytes() as u64 {
            let view = self.view.region();
            let bytes = self.view.region().bytes();
            return refuse(format!(
                "{:?} elements take {reach} bytes of {view}, which has {bytes}",
                self.dims
            ));
        }

        Ok(())
    }

    fn data_type(&self) -> Result<CUtensorMapDataType, Error> {
        // The size counts as well, because an array has the name of its elements.
        Ok(match (T::TYPE.name(), size_of::<T>()) {
            ("u8" | "s8", 1) => CUtensorMapDataType::UINT8,
            ("u16", 2) => CUtensorMapDataType::UINT16,
            ("u32", 4) => CUtensorMapDataType::UINT32,
            ("s32", 4) => CUtensorMapDataType::INT32,
            ("u64", 8) => CUtensorMapDataType::UINT64,
            ("s64", 8) => CUtensorMapDataType::INT64,
            ("f16", 2) => CUtensorMapDataType::FLOAT16,
            ("bf16", 2) => CUtensorMapDataType::BFLOAT16,
            ("f32", 4) => CUtensorMapDataType::FLOAT32,
            ("f64", 8) => CUtensorMapDataType::FLOAT64,
            (name, bytes) => {
                let problem =
                    format!("elements of {bytes} bytes ({name}); use numbers of 1 to 8 bytes");
                return Err(Error::Transfer {
                    what: "tensor map",
                    problem,
                });
            }
        })
    }
}

/// Returns the name of the element type that a buffer for these tiles has.
fn memory_of(tile: Kind) -> &'static str {
    match tile {
        Kind::Tf32 => Kind::F32.name(),
        Kind::E4m3 | Kind::E5m2 => Kind::U8.name(),
        kind => kind.name(),
    }
}
