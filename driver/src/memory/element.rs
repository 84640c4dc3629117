//! The types of buffer elements and of kernel arguments that are passed by value.

use ptx_gen::{Kind, bf16, f16};

use sealed::Sealed;

/// A type that consists of plain bytes, with the same layout on the host and on the device.
///
/// Numbers and arrays of elements are elements. To make your own struct an element, use
/// `#[derive(Element)]` (feature `derive`), which checks the requirements, or implement the trait:
///
/// ```
/// use warpwright_driver::memory::{Element, ElementType};
///
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Particle {
///     position: [f32; 3],
///     mass: f32,
/// }
///
/// // SAFETY: four floats, without padding.
/// unsafe impl Element for Particle {
///     const TYPE: ElementType = ElementType::new::<Self>("Particle");
/// }
/// ```
///
/// # Safety
/// - Every bit pattern must be a valid value of the type, and the type must have no padding.
/// - The type must not contain references or pointers to host memory.
/// - The bits must not carry a promise, because safe code can choose them. For example, an address
///   that a kernel uses without a check must not be an element. This is why
///   [`TensorMap`](crate::memory::TensorMap) is not one.
/// - [`TYPE`](Self::TYPE) must come from [`ElementType::new`]`::<Self>`. A type with the size, the
///   alignment and the bits of a number may use [`ElementType::number`] instead.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The name, the size and the alignment of the type.
    const TYPE: ElementType;

    /// Returns `len` elements whose bits are all zero.
    fn zeros(len: usize) -> Vec<Self> {
        zeroed(len)
    }
}

/// A type that a kernel takes by value: an [`Element`] or a
/// [`TensorMap`](crate::memory::TensorMap).
///
/// Unlike an element, such a value cannot be read from memory.
///
/// ```
/// use warpwright_driver::memory::{ByValue, TensorMap};
///
/// fn size<T: ByValue>() -> usize {
///     T::VALUE_TYPE.size()
/// }
///
/// assert_eq!((size::<f32>(), size::<[u32; 2]>(), size::<TensorMap>()), (4, 8, 128));
/// ```
///
/// The trait is sealed, so that a value with the type of a tensor map is always a tensor map.
pub trait ByValue: Copy + 'static + Sealed {
    /// The name, the size and the alignment of the type, which has no padding.
    const VALUE_TYPE: ElementType;
}

impl<T: Element> ByValue for T {
    const VALUE_TYPE: ElementType = T::TYPE;
}

impl<T: Element> Sealed for T {}

/// Seals [`ByValue`].
pub(crate) mod sealed {
    pub trait Sealed {}
}

/// The description of an element type: its name, size and alignment.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// assert_eq!((f64::TYPE.name(), f64::TYPE.size(), f64::TYPE.align()), ("f64", 8, 8));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ElementType {
    name: &'static str,
    size: u32,
    align: u32,
    sort: Sort,
}

/// The sort of a type. Types of different sorts are never equal, even if their names are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sort {
    /// A type that kernels of `ptx-gen` know.
    Number(Kind),
    /// A type with fields, or a number that kernels of `ptx-gen` do not know.
    Plain,
    /// A tensor map. No other type has this sort.
    TensorMap,
}

impl ElementType {
    /// Describes a type with fields. Two types with the same name, size and alignment count as
    /// equal.
    ///
    /// # Panics
    /// Panics if the type has 4 GiB or more. In a constant, such as [`Element::TYPE`], this is a
    /// compile error.
    pub const fn new<T>(name: &'static str) -> Self {
        Self::with_sort::<T>(name, Sort::Plain)
    }

    /// Describes a tensor map.
    pub(crate) const fn tensor_map<T>() -> Self {
        Self::with_sort::<T>("tensor map", Sort::TensorMap)
    }

    const fn with_sort<T>(name: &'static str, sort: Sort) -> Self {
        assert!(
            size_of::<T>() <= u32::MAX as usize,
            "an element has less than 4 GiB"
        );
        Self {
            name,
            size: size_of::<T>() as u32,
            align: align_of::<T>() as u32,
            sort,
        }
    }

    /// Describes a number that kernels of `ptx-gen` know.
    pub const fn number(kind: Kind, name: &'static str, size: u32) -> Self {
        Self {
            name,
            size,
            align: size,
            sort: Sort::Number(kind),
        }
    }

    /// Returns the name, for example `f32`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// Returns the alignment in bytes.
    pub fn align(&self) -> usize {
        self.align as usize
    }

    /// Returns the corresponding number type of `ptx-gen`, if there is one.
    pub fn kind(&self) -> Option<Kind> {
        match self.sort {
            Sort::Number(kind) => Some(kind),
            Sort::Plain | Sort::TensorMap => None,
        }
    }
}

impl From<Kind> for ElementType {
    fn from(kind: Kind) -> Self {
        Self::number(kind, kind.name(), kind.bytes())
    }
}

macro_rules! numbers {
    ($($t:ident: $kind:expr, $size:literal;)*) => {$(
        // SAFETY: a number has no padding and no pointer, and every bit pattern is a valid number.
        unsafe impl Element for $t {
            const TYPE: ElementType = {
                let kind: Option<Kind> = $kind;
                let sort = match kind {
                    Some(kind) => Sort::Number(kind),
                    None => Sort::Plain,
                };
                ElementType { name: name_of(kind, stringify!($t)), size: $size, align: $size, sort }
            };
        }
    )*};
}

/// Returns the name of a number, which is the name in `ptx-gen` if it has one there.
const fn name_of(kind: Option<Kind>, rust: &'static str) -> &'static str {
    match kind {
        Some(Kind::S8) => "s8",
        Some(Kind::S32) => "s32",
        Some(Kind::S64) => "s64",
        _ => rust,
    }
}

numbers! {
    u8: Some(Kind::U8), 1;
    i8: Some(Kind::S8), 1;
    u16: Some(Kind::U16), 2;
    i16: None, 2;
    u32: Some(Kind::U32), 4;
    i32: Some(Kind::S32), 4;
    u64: Some(Kind::U64), 8;
    i64: Some(Kind::S64), 8;
    f32: Some(Kind::F32), 4;
    f64: None, 8;
    f16: Some(Kind::F16), 2;
    bf16: Some(Kind::Bf16), 2;
}

// SAFETY: an array adds no padding between elements, and every element fulfills the obligations.
unsafe impl<T: Element, const N: usize> Element for [T; N] {
    const TYPE: ElementType = ElementType::new::<Self>(T::TYPE.name);
}

/// Returns `len` elements whose bits are all zero.
///
/// The crate does not call [`Element::zeros`], because an implementation can replace it.
pub(crate) fn zeroed<T: Element>(len: usize) -> Vec<T> {
    // SAFETY: the implementation of `Element` guarantees that every bit pattern is a valid value.
    vec![unsafe { std::mem::zeroed() }; len]
}

/// Returns the bytes of a value that is passed to a kernel.
pub(crate) fn bytes_of<T: ByValue>(value: &T) -> &[u8] {
    // SAFETY: `ByValue` is sealed, and its types have no padding, so all bytes are initialized.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Returns the bytes of elements.
pub(crate) fn as_bytes<T: Element>(from: &[T]) -> &[u8] {
    // SAFETY: the implementation of `Element` guarantees that there is no padding, so all bytes are
    // initialized.
    unsafe { std::slice::from_raw_parts(from.as_ptr().cast(), size_of_val(from)) }
}

/// Returns the bytes of elements for overwriting.
pub(crate) fn as_bytes_mut<T: Element>(to: &mut [T]) -> &mut [u8] {
    // SAFETY: the implementation of `Element` guarantees that there is no padding and that every
    // bit pattern is a valid value, so the bytes can be read and replaced.
    unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast(), size_of_val(to)) }
}
