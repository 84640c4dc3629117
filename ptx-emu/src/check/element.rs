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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_types() {
        for (i, (ty, name, others)) in TYPES.iter().enumerate() {
            assert_eq!((*ty as usize, ty.name()), (i, *name));
            for name in std::iter::once(name).chain(*others) {
                assert_eq!(ElementType::parse(name), Some(*ty));
            }
        }
    }

    #[test]
    fn values_must_fit() {
        let cases: &[(ElementType, &str, Option<&str>)] = &[
            (U8, "255", Some("255")),
            (U8, "256", None),
            (U8, "-1", None),
            (S8, "-128", Some("-128")),
            (S8, "128", None),
            (U64, "0xffffffffffffffff", Some("18446744073709551615")),
            (U32, "1.5", None),
            (F32, "1.5", Some("1.5")),
            (F32, "nan", Some("NaN")),
            (F16, "0.1", Some("0.099975586")),
            (Bf16, "-3", Some("-3")),
            (F64, "x", None),
        ];
        for (ty, text, wanted) in cases {
            let found = ty.encode(text).map(|bytes| ty.show(&bytes));
            assert_eq!(found.as_deref(), *wanted, "{} {text}", ty.name());
        }
    }

    #[test]
    fn a_tolerance_is_of_the_larger_of_one_and_the_value() {
        let cases = [
            (F32, "1", "1.00005", 1e-4, false),
            (F32, "1", "1.0005", 1e-4, true),
            (F32, "1000", "1000.05", 1e-4, false),
            (F32, "0", "0.00005", 1e-4, false),
            (F32, "0", "-0", 0.0, false),
            (F32, "nan", "nan", 0.0, false),
            (F32, "nan", "1", 1e9, true),
            (F32, "inf", "1", 1e9, true),
            (F32, "inf", "inf", 0.0, false),
            (F32, "inf", "-inf", 1e9, true),
            (
                U64,
                "18446744073709551615",
                "18446744073709551614",
                0.0,
                true,
            ),
            (S32, "-1", "1", 2.0, false),
        ];
        for (ty, found, wanted, tolerance, differs) in cases {
            let [a, b] = [found, wanted].map(|text| ty.encode(text).unwrap());
            assert_eq!(
                ty.differ(&a, &b, tolerance),
                differs,
                "{} {found} {wanted}",
                ty.name()
            );
        }
    }
}
