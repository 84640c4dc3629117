//! Tensor maps: how the copy engine of compute capability 9.0 finds boxes of a tensor in memory.

use driver_sys::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle,
};

use ptx_gen::{Kind, MapBox, Swizzle};

use crate::element::sealed::Sealed;
use crate::element::{ByValue, Element, ElementType};
use crate::{Error, Region, View};

/// A tensor map that is passed to a kernel by value, with `HostArg::value` or `map: TensorMap` in
/// [`kernel!`](crate::kernel).
///
/// A map contains an address and keeps nothing alive. Therefore [`TensorMapBuilder::encode`], the only function that
/// returns a map, is `unsafe`. A map is not an [`Element`], because the bytes of an element can come from anywhere.
///
/// Kernels declare a map as 128 bytes aligned to 64, as the headers of CUDA 12 do, or to 128, as the headers of CUDA 13
/// do.
///
/// An example is at [`TensorMapBuilder`]. A map cannot be read from memory:
///
/// ```compile_fail,E0277
/// use warpwright_driver::{Buffer, Context, Error, TensorMap};
///
/// fn forge(context: &Context) -> Result<Buffer<TensorMap>, Error> {
///     Buffer::zeroed(context, 1)
/// }
/// ```
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// kernel! {
///     /// `sum` over the tiles of a matrix.
///     pub struct SumTiles = "sum_tiles"(tiles: TensorMap, sum: &mut [f32]);
/// }
///
/// let tiles = Parameter::value::<TensorMap>("tiles"); // the same by hand
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

/// A tensor map in the making: a tensor of up to five dimensions, the innermost first, and the box that is copied.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let matrix = Buffer::<f32>::zeroed(&context, 64 * 32)?; // 64 rows of 32
/// let tiles = TensorMapBuilder::new(&matrix, &[32, 64]).boxed(&[32, 8]).swizzle(Swizzle::B128);
/// // SAFETY: the matrix lives until the kernels that take the map have run.
/// let map = unsafe { tiles.encode() }?; // an error below compute capability 9.0
/// let argument = HostArg::value(map); // of a kernel with such a parameter
/// # Ok(())
/// # }
/// ```
///
/// For a kernel of `ptx-gen` the tile that it copies says the box, the swizzle and the type:
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// use ptx_gen::TileOf;
///
/// /// In the program: `a.x.of(X)`.
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
    /// What the kernel's tile holds, if one was given.
    holds: Option<Kind>,
}

impl<T: Element> TensorMapBuilder<T> {
    /// A matrix of so many rows and columns, one row after the other.
    pub fn matrix(view: &View<T>, rows: usize, columns: usize) -> Self {
        Self::new(view, &[columns as u64, rows as u64])
    }

    /// A tensor of these dimensions, the innermost first, one row after the other.
    pub fn new(view: &View<T>, dims: &[u64]) -> Self {
        let bytes = size_of::<T>() as u64;
        let strides = dims.iter().scan(bytes, |stride, dim| {
            *stride = stride.saturating_mul(*dim);
            Some(*stride)
        });
        let strides = strides.take(dims.len().saturating_sub(1)).collect();
        let (dims, boxed) = (dims.to_vec(), vec![1; dims.len()]);
        Self {
            view: view.clone(),
            dims,
            strides,
            boxed,
            swizzle: Swizzle::None,
            holds: None,
        }
    }

    /// The box and the swizzle of a kernel's tile: a [`TileOf`](ptx_gen::TileOf) or a
    /// [`TensorBox`](ptx_gen::TensorBox) that the kernel declares, or what
    /// [`Program::map_box`](ptx_gen::Program::map_box) says of one of its parameters.
    ///
    /// [`encode`](Self::encode) refuses a tile of other elements than the view's, and one of other dimensions than the
    /// tensor's.
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

    /// The distances between neighbours of every dimension but the innermost, in bytes: multiples of 16.
    #[must_use]
    pub fn strides(self, strides: &[u64]) -> Self {
        Self {
            strides: strides.to_vec(),
            ..self
        }
    }

    /// The box that one copy takes, in elements: up to 256 in each dimension.
    #[must_use]
    pub fn boxed(self, boxed: &[u32]) -> Self {
        Self {
            boxed: boxed.to_vec(),
            ..self
        }
    }

    /// Sets how rows are spread over shared memory. A row of the box must not have more bytes than the pattern.
    #[must_use]
    pub fn swizzle(self, swizzle: Swizzle) -> Self {
        Self { swizzle, ..self }
    }

    /// Returns the tensor map. Elements outside of the tensor are read as zero.
    ///
    /// # Errors
    /// Returns an error if
    /// - dimensions or strides reach beyond the view, or their numbers do not fit together,
    /// - there are no tensor maps of the type,
    /// - the driver refuses the box, for example one whose rows are not a multiple of 16 bytes or are longer than the
    ///   swizzle.
    ///
    /// # Safety
    /// For every launch that takes the map or a copy of it, the caller must ensure that
    /// - the view is kept alive until the kernel has run,
    /// - the kernel's work is ordered with other work on the view, because the launch does not know of the view,
    /// - box, swizzle and element type are those for which the kernel was written, because copies of another box would
    ///   reach shared memory that the kernel has not set aside for them.
    pub unsafe fn encode(&self) -> Result<TensorMap, Error> {
        self.check()?;
        let (mut map, context) = (CUtensorMap::zeroed(), self.view.context());
        let (_current, driver, ty) = (context.enter()?, context.driver(), self.data_type()?);
        let (rank, ones) = (self.dims.len() as u32, vec![1u32; self.dims.len()]);
        let address = std::ptr::without_provenance_mut(self.view.address() as usize);
        let swizzle = match self.swizzle {
            Swizzle::None => CUtensorMapSwizzle::NONE,
            Swizzle::B32 => CUtensorMapSwizzle::_32B,
            Swizzle::B64 => CUtensorMapSwizzle::_64B,
            Swizzle::B128 => CUtensorMapSwizzle::_128B,
        };
        let (dims, strides) = (self.dims.as_ptr(), self.strides.as_ptr());
        let (boxed, ones) = (self.boxed.as_ptr(), ones.as_ptr());
        let plain = CUtensorMapInterleave::NONE;
        let (l2, fill) = (
            CUtensorMapL2promotion::L2_128B,
            CUtensorMapFloatOOBfill::NONE,
        );
        // SAFETY: the map is ours to write; the arrays have `rank` elements, the strides one less.
        unsafe {
            cu_if_there!(
                driver,
                cuTensorMapEncodeTiled(
                    &mut map, ty, rank, address, dims, strides, boxed, ones, plain, swizzle, l2,
                    fill
                )
            )
        }?;
        // SAFETY: both are 128 bytes, of which every pattern is a value.
        Ok(unsafe { std::mem::transmute::<CUtensorMap, TensorMap>(map) })
    }

    /// The memory in which the tensor lies.
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
        if let Some(holds) = self
            .holds
            .filter(|holds| memory_of(*holds) != T::TYPE.name())
        {
            let (holds, own) = (holds.name(), T::TYPE.name());
            return refuse(format!(
                "the kernel's tile is of {holds}, and the view of {own}"
            ));
        }
        let rank = self.dims.len();
        if !(1..=5).contains(&rank) || self.strides.len() + 1 != rank || self.boxed.len() != rank {
            let (strides, boxed) = (self.strides.len(), self.boxed.len());
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
            let (view, bytes) = (self.view.region(), self.view.region().bytes());
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

/// What a buffer holds for tiles of this.
fn memory_of(tile: Kind) -> &'static str {
    match tile {
        Kind::Tf32 => Kind::F32.name(),
        Kind::E4m3 | Kind::E5m2 => Kind::U8.name(),
        kind => kind.name(),
    }
}
