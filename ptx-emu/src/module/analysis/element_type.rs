//! Types of the elements of buffers.

use ElementType::*;
use half::{bf16, f16};

/// The type of the elements of a buffer, or of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ElementType {
    U8,
    S8,
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
    F16,
    Bf16,
    F32,
    F64,
}

impl ElementType {
    /// Returns the type with this name in PTX or Rust, for example `s32` or `i32`.
    pub fn parse(name: &str) -> Option<ElementType> {
        TYPES
            .iter()
            .find(|(_, known, others)| *known == name || others.contains(&name))
            .map(|row| row.0)
    }

    /// Returns the names of all types, from `u8` to `f64`.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TYPES.iter().map(|row| row.1)
    }

    /// Returns the PTX name without its dot, for example `bf16`.
    pub fn name(self) -> &'static str {
        TYPES[self as usize].1
    }

    /// Returns the size of an element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            U8 | S8 => 1,
            U16 | S16 | F16 | Bf16 => 2,
            U32 | S32 | F32 => 4,
            U64 | S64 | F64 => 8,
        }
    }

    /// Returns true for a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, F16 | Bf16 | F32 | F64)
    }

    /// Parses a value and returns its bytes.
    ///
    /// Integers may be decimal or hexadecimal (`0x..`) and must fit the type. Returns `None` for
    /// invalid text.
    pub fn encode(self, text: &str) -> Option<Vec<u8>> {
        if self.is_float() {
            return text.parse().ok().map(|value| self.encode_float(value));
        }

        let value = integer(text)?;
        let bits = 8 * self.bytes() as u32;
        let (low, high) = match self {
            S8 | S16 | S32 | S64 => (-(1i128 << (bits - 1)), (1 << (bits - 1)) - 1),
            _ => (0, (1i128 << bits) - 1),
        };
        (low..=high)
            .contains(&value)
            .then(|| value.to_le_bytes()[..self.bytes()].to_vec())
    }

    /// Returns the bytes of a number, rounded to a float or truncated to an integer.
    pub fn encode_float(self, value: f64) -> Vec<u8> {
        match self {
            F16 => f16::from_f64(value).to_le_bytes().to_vec(),
            Bf16 => bf16::from_f64(value).to_le_bytes().to_vec(),
            F32 => (value as f32).to_le_bytes().to_vec(),
            F64 => value.to_le_bytes().to_vec(),
            _ => (value as i128).to_le_bytes()[..self.bytes()].to_vec(),
        }
    }

    /// Returns the value of an element, from its bytes in little-endian order. A value with more
    /// than 53 bits is rounded.
    pub fn value(self, bytes: &[u8]) -> f64 {
        let raw = raw(bytes);
        match self {
            F16 => f16::from_bits(raw as u16).to_f64(),
            Bf16 => bf16::from_bits(raw as u16).to_f64(),
            F32 => f32::from_bits(raw as u32).into(),
            F64 => f64::from_bits(raw),
            _ => self.whole(raw) as f64,
        }
    }

    /// Formats the value of an element in decimal, from its bytes in little-endian order.
    pub fn show(self, bytes: &[u8]) -> String {
        match self {
            F16 | Bf16 => (self.value(bytes) as f32).to_string(),
            F32 => f32::from_bits(raw(bytes) as u32).to_string(),
            F64 => self.value(bytes).to_string(),
            _ => self.whole(raw(bytes)).to_string(),
        }
    }

    fn whole(self, raw: u64) -> i128 {
        match self {
            S8 => (raw as i8).into(),
            S16 => (raw as i16).into(),
            S32 => (raw as i32).into(),
            S64 => (raw as i64).into(),
            _ => raw.into(),
        }
    }

    /// Returns true if two elements differ by more than `tolerance` times the larger of 1 and
    /// `|wanted|`.
    ///
    /// With a tolerance of 0, integers must have the same bits and floats the same value. All NaN
    /// are equal.
    pub(crate) fn differ(self, found: &[u8], wanted: &[u8], tolerance: f64) -> bool {
        if found == wanted {
            return false;
        }
        if !self.is_float() && tolerance == 0.0 {
            return true;
        }

        let found = self.value(found);
        let wanted = self.value(wanted);
        if found.is_nan() || wanted.is_nan() {
            return found.is_nan() != wanted.is_nan();
        }

        // The difference of equal infinities is NaN, so equality is tested separately. An infinity
        // is never near another value, even though its own tolerance is infinite.
        let near = (found - wanted).abs() <= tolerance * wanted.abs().max(1.0);
        found != wanted && !(near && found.is_finite() && wanted.is_finite())
    }
}

pub(crate) fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = text
        .strip_prefix('-')
        .map_or((false, text), |rest| (true, rest));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => i128::from(u64::from_str_radix(hex, 16).ok()?),
        None => digits.parse::<u64>().ok()?.into(),
    };
    Some(if negative { -value } else { value })
}

/// Every type with its name and its aliases.
pub(crate) const TYPES: &[(ElementType, &str, &[&str])] = &[
    (U8, "u8", &["b8", "bool"]),
    (S8, "s8", &["i8"]),
    (U16, "u16", &["b16"]),
    (S16, "s16", &["i16"]),
    (U32, "u32", &["b32"]),
    (S32, "s32", &["i32"]),
    (U64, "u64", &["b64"]),
    (S64, "s64", &["i64"]),
    (F16, "f16", &[]),
    (Bf16, "bf16", &[]),
    (F32, "f32", &[]),
    (F64, "f64", &[]),
];

pub(crate) fn raw(bytes: &[u8]) -> u64 {
    let mut raw = [0; 8];
    raw[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(raw)
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
