//! The elements of buffers: types, values in text, and comparison.

use crate::module::analysis::element_type::ElementType;

/// A Rust type for the elements of a buffer, or for a scalar argument.
///
/// The integers of 8 to 64 bits, `f32` and `f64` implement it.
pub trait Element: Copy {
    /// The corresponding [`ElementType`].
    const TYPE: ElementType;
    /// Returns the bytes of the element in device order, which is little-endian.
    fn encode(self) -> Vec<u8>;
    /// Returns the element with these bytes.
    fn decode(bytes: &[u8]) -> Self;
}

macro_rules! elements {
    ($($rust:ty => $ty:ident),* $(,)?) => {$(
        impl Element for $rust {
            const TYPE: ElementType = ElementType::$ty;
            fn encode(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn decode(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$rust>()];
                own.copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }
        }
    )*};
}

elements! {
    u8 => U8, i8 => S8, u16 => U16, i16 => S16, u32 => U32, i32 => S32, u64 => U64, i64 => S64,
    f32 => F32, f64 => F64,
}
