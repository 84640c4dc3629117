//! What buffers hold, and what kernels take by value: plain types.

use ptx_gen::{Kind, bf16, f16};

/// A type that is plain bytes, on the host and on the device alike.
///
/// Numbers and arrays of elements are elements. A type of one's own becomes one by `#[derive(Element)]`, with the feature
/// `derive`, which checks what is to be kept, or by an implementation:
///
/// ```
/// use warpwright_driver::{Element, ElementType};
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
///     const TYPE: ElementType = ElementType::of::<Self>("Particle");
/// }
/// ```
///
/// # Safety
/// - Every pattern of bits is a value of the type, and it has no padding.
/// - It holds no reference or pointer to memory of the host.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// What errors and checks say of it.
    const TYPE: ElementType;

    /// So many elements of all bits zero.
    fn zeros(len: usize) -> Vec<Self> {
        // SAFETY: every pattern of bits is a value.
        vec![unsafe { std::mem::zeroed() }; len]
    }
}

/// The type of an element: its name, its size and its alignment.
///
/// ```
/// # use warpwright_driver::*;
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
    kind: Option<Kind>,
}

impl ElementType {
    /// A type with fields. Two types of one name and size count as the same.
    pub const fn of<T>(name: &'static str) -> Self {
        Self { name, size: size_of::<T>() as u32, align: align_of::<T>() as u32, kind: None }
    }

    /// A type that kernels of `ptx-gen` know.
    pub const fn number(kind: Kind, name: &'static str, size: u32) -> Self {
        Self { name, size, align: size, kind: Some(kind) }
    }

    /// Its name: `f32`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// Its alignment in bytes.
    pub fn align(&self) -> usize {
        self.align as usize
    }

    /// What `ptx-gen` calls it, if it has it.
    pub fn kind(&self) -> Option<Kind> {
        self.kind
    }
}

impl From<Kind> for ElementType {
    fn from(kind: Kind) -> Self {
        Self::number(kind, kind.name(), kind.bytes())
    }
}

macro_rules! numbers {
    ($($t:ident: $kind:expr, $size:literal;)*) => {$(
        // SAFETY: a number has no padding, and every pattern of bits is one.
        unsafe impl Element for $t {
            const TYPE: ElementType = {
                let kind: Option<Kind> = $kind;
                ElementType { name: name_of(kind, stringify!($t)), size: $size, align: $size, kind }
            };
        }
    )*};
}

/// The name of a type, in `ptx-gen` if it has one there.
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

// SAFETY: elements without padding lie side by side.
unsafe impl<T: Element, const N: usize> Element for [T; N] {
    const TYPE: ElementType = ElementType::of::<Self>(T::TYPE.name);
}

/// The bytes of elements.
pub(crate) fn as_bytes<T: Element>(from: &[T]) -> &[u8] {
    // SAFETY: an element has no padding.
    unsafe { std::slice::from_raw_parts(from.as_ptr().cast(), size_of_val(from)) }
}

/// The bytes of elements, to be overwritten.
pub(crate) fn as_bytes_mut<T: Element>(to: &mut [T]) -> &mut [u8] {
    // SAFETY: an element has no padding, and every pattern of bits is one.
    unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast(), size_of_val(to)) }
}
