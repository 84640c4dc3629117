//! Tensor maps: 128-byte descriptors by which bulk copies find boxes of a tensor.
//!
//! The layout of NVIDIA's driver is not public, so this crate has its own: 8 bytes that mark a map
//! of the emulator, the address, and then numbers of 32 and 64 bits in the order of the fields.
//! Interleaved layouts, the fill with NaN and element strides within a box are not supported.

use crate::syntax::types::Type;

/// A tensor map, which describes a tensor in global memory and the box that one copy moves.
///
/// The rules are those of `cuTensorMapEncodeTiled` in the CUDA driver API.
///
/// # Example: boxes of 8 by 16 elements in a matrix of 32 by 64 `f16` elements
/// ```
/// use ptx_emu::{ElementKind, TensorMap};
///
/// let map = TensorMap {
///     address: 0x1000,
///     element: 2,
///     kind: ElementKind::Float,
///     swizzle: 0,
///     dims: vec![64, 32],
///     strides: vec![128],
///     boxed: vec![16, 8],
/// };
/// assert_eq!(TensorMap::decode(&map.encode()?), Some(map));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// The address of the first element, a multiple of 16.
    pub address: u64,
    /// The size of an element in bytes: 1, 2, 4 or 8.
    pub element: u32,
    /// The type of an element, which only reductions use.
    pub kind: ElementKind,
    /// The width of the swizzle pattern in bytes: 32, 64 or 128, or 0 for none.
    pub swizzle: u32,
    /// The number of elements in each of the one to five dimensions, innermost first.
    pub dims: Vec<u64>,
    /// The distance of neighboring elements in bytes for each dimension except the innermost.
    /// Multiples of 16.
    pub strides: Vec<u64>,
    /// The size of the box in elements, 1 to 256 for each dimension.
    pub boxed: Vec<u32>,
}

/// The type of an element for `cp.reduce.async.bulk.tensor`. Copies ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ElementKind {
    /// An unsigned integer.
    #[default]
    Unsigned,
    /// A signed integer.
    Signed,
    /// A float of 16, 32 or 64 bits. TF32 counts as 32 bits.
    Float,
    /// A bfloat16.
    BFloat,
}

/// A field that `tensormap.replace` changes. A number selects the dimension, 0 being the innermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapField {
    Address,
    /// The number of dimensions minus one.
    Rank,
    Dim(usize),
    Stride(usize),
    Boxed(usize),
    /// The size of an element in bytes, and its kind from bit 8 on.
    Element,
    Swizzle,
    /// A field that must have this value, because no other value is supported.
    Only(u32),
}

/// The kinds by number.
const KINDS: [ElementKind; 4] = [
    ElementKind::Unsigned,
    ElementKind::Signed,
    ElementKind::Float,
    ElementKind::BFloat,
];

/// The first 8 bytes of a map of the emulator.
const MARK: u64 = u64::from_le_bytes(*b"emulated");
/// The maximum number of dimensions.
const MOST: usize = 5;

/// The part of a row of a box that lies inside the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TensorRow {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    /// The bytes of the row before this part, which lie outside of the tensor.
    pub(crate) before: u32,
}

impl TensorMap {
    /// Returns the map as the 128 bytes that a kernel receives.
    ///
    /// # Errors
    /// Returns the reason if the map breaks a rule of `cuTensorMapEncodeTiled`.
    pub fn encode(&self) -> Result<[u8; 128], String> {
        self.check()?;
        let mut words = vec![MARK, self.address];
        let rank = self.dims.len() as u64;
        words.push(
            rank | u64::from(self.element) << 8
                | (self.kind as u64) << 16
                | u64::from(self.swizzle) << 24,
        );
        let at = |list: &[u64], i: usize| list.get(i).copied().unwrap_or(0);
        words.extend((0..MOST).map(|i| at(&self.dims, i)));
        words.extend((0..MOST - 1).map(|i| at(&self.strides, i)));
        let boxed = |i: usize| self.boxed.get(i).map_or(0, |n| u64::from(*n));

        // Four sizes of 16 bits fill one word, because a size is at most 256. The fifth has a word
        // of its own.
        words.push((0..4).map(|i| boxed(i) << (16 * i)).sum());
        words.push(boxed(4));
        let mut bytes = [0; 128];
        for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }

        Ok(bytes)
    }

    /// Returns the map of 128 bytes, or `None` if [`encode`](TensorMap::encode) did not write them.
    pub fn decode(bytes: &[u8; 128]) -> Option<TensorMap> {
        TensorMap::of(bytes).filter(|map| map.check().is_ok())
    }

    /// Returns the broken rule if the bytes are an invalid map.
    pub(crate) fn wrong(bytes: &[u8; 128]) -> Option<String> {
        TensorMap::of(bytes)?.check().err()
    }

    /// Changes a field without checking the map as a whole.
    ///
    /// Zeros are a map without elements, as on a device. Triton begins with zeros and replaces the
    /// fields that it needs.
    ///
    /// # Errors
    /// Returns the reason if the bytes are not a map or the value is invalid.
    pub(crate) fn replace(
        bytes: &mut [u8; 128],
        field: MapField,
        value: u64,
    ) -> Result<(), String> {
        if *bytes == [0; 128] {
            bytes[..8].copy_from_slice(&MARK.to_le_bytes());
            // One dimension with elements of one byte.
            bytes[16..18].copy_from_slice(&[1, 1]);
        }

        if TensorMap::of(bytes).is_none() {
            return Err("these bytes are not a tensor map".into());
        }

        // The index of the word, its first bit, and the number of bits.
        let (word, from, bits) = match field {
            MapField::Address => (1, 0, 64),
            MapField::Rank if value >= MOST as u64 => {
                return Err(format!(
                    "a rank of {} dimensions: 1 to 5",
                    u128::from(value) + 1
                ));
            }
            MapField::Rank => (2, 0, 8),
            MapField::Element => (2, 8, 16),
            MapField::Swizzle => (2, 24, 40),
            MapField::Dim(i) => (3 + i, 0, 64),
            MapField::Stride(i) => (3 + MOST + i, 0, 64),
            MapField::Boxed(_) if value > 0xffff => {
                return Err(format!(
                    "a box of {value} elements in a dimension: 1 to 256"
                ));
            }
            MapField::Boxed(i) if i < 4 => (2 + 2 * MOST, 16 * i, 16),
            MapField::Boxed(_) => (3 + 2 * MOST, 0, 16),
            MapField::Only(wanted) if value != u64::from(wanted) => {
                return Err(format!(
                    "unsupported in ptx-emu: a value of {value} where others have {wanted}"
                ));
            }
            MapField::Only(_) => return Ok(()),
        };
        let value = if field == MapField::Rank {
            value + 1
        } else {
            value
        };
        let to = &mut bytes.as_chunks_mut::<8>().0[word];
        let mask = u64::MAX >> (64 - bits) << from;
        *to = (u64::from_le_bytes(*to) & !mask | value << from & mask).to_le_bytes();
        Ok(())
    }

    /// Reads the fields of a map without checking them.
    fn of(bytes: &[u8; 128]) -> Option<TensorMap> {
        let words: Vec<u64> = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|w| u64::from_le_bytes(*w))
            .collect();
        let [MARK, address, shape, rest @ ..] = &words[..] else {
            return None;
        };

        let (dims, rest) = rest.split_at(MOST);
        let (strides, boxed) = rest.split_at(MOST - 1);
        let rank = (shape & 0xff) as usize;

        // A word holds the first four sizes of the box with 16 bits each. The fifth is in the next
        // word.
        let of = |i: usize| if i < 4 { boxed[0] >> (16 * i) & 0xffff } else { boxed[1] } as u32;
        let map = TensorMap {
            address: *address,
            element: (shape >> 8 & 0xff) as u32,
            kind: *KINDS.get((shape >> 16 & 0xff) as usize)?,
            swizzle: u32::try_from(shape >> 24).ok()?,
            dims: dims.get(..rank)?.to_vec(),
            strides: strides.get(..rank.checked_sub(1)?)?.to_vec(),
            boxed: (0..rank).map(of).collect(),
        };
        Some(map)
    }

    /// Returns the type of the elements, if reductions support it.
    pub(crate) fn element_type(&self) -> Option<Type> {
        use ElementKind::{BFloat, Float, Signed, Unsigned};
        Some(match (self.kind, self.element) {
            (Unsigned, 4) => Type::U32,
            (Unsigned, 8) => Type::U64,
            (Signed, 4) => Type::S32,
            (Signed, 8) => Type::S64,
            (Float, 2) => Type::F16,
            (Float, 4) => Type::F32,
            (Float, 8) => Type::F64,
            (BFloat, 2) => Type::Bf16,
            _ => return None,
        })
    }

    /// Returns the size of a row of the box in bytes.
    pub(crate) fn row_bytes(&self) -> u32 {
        self.boxed[0] * self.element
    }

    /// Returns the size of the box in bytes.
    pub(crate) fn box_bytes(&self) -> u32 {
        self.boxed.iter().product::<u32>() * self.element
    }

    /// Returns the rows of the box at a position. A row outside of the tensor is `None`.
    pub(crate) fn rows(&self, place: &[i32]) -> Vec<Option<TensorRow>> {
        let rows: u32 = self.boxed[1..].iter().product();
        (0..rows).map(|row| self.row(place, row)).collect()
    }

    fn row(&self, place: &[i32], mut row: u32) -> Option<TensorRow> {
        let mut address = self.address;
        let outer = self
            .dims
            .iter()
            .zip(&self.boxed)
            .zip(place)
            .skip(1)
            .zip(&self.strides);

        // The index of the row has one digit per outer dimension of the box, the innermost first.
        for (((dim, boxed), place), stride) in outer {
            let at = i64::from(*place) + i64::from(row % boxed);
            row /= boxed;
            let inside = u64::try_from(at).ok().filter(|at| at < dim)?;
            address += inside * stride;
        }

        let start = i64::from(place[0]);
        let end = (start + i64::from(self.boxed[0])).min(self.dims[0] as i64);

        // Elements before the tensor and after it are not copied, and read as zeros.
        let first = start.max(0);
        let element = i64::from(self.element);
        if first >= end {
            return None;
        }

        Some(TensorRow {
            address: address + (first * element) as u64,
            bytes: ((end - first) * element) as u32,
            before: ((first - start) * element) as u32,
        })
    }

    fn check(&self) -> Result<(), String> {
        let rank = self.dims.len();
        if !(1..=MOST).contains(&rank) || self.strides.len() + 1 != rank || self.boxed.len() != rank
        {
            return Err(format!(
                "{rank} dimensions, {} strides and a box of {} dimensions: 1 to 5 dimensions, \
                 one stride less, and a box of as many dimensions",
                self.strides.len(),
                self.boxed.len()
            ));
        }

        if !matches!(self.element, 1 | 2 | 4 | 8) || !matches!(self.swizzle, 0 | 32 | 64 | 128) {
            return Err(format!(
                "elements of {} bytes with a swizzle of {} bytes: 1, 2, 4 or 8 bytes, and a swizzle of 0, \
                 32, 64 or 128",
                self.element, self.swizzle
            ));
        }

        if !self.address.is_multiple_of(16) {
            return Err(format!(
                "the address 0x{:x} is not a multiple of 16",
                self.address
            ));
        }

        if let Some(n) = self.dims.iter().find(|n| **n == 0 || **n > 1 << 32) {
            return Err(format!("a dimension of {n} elements: 1 to 2^32"));
        }

        if let Some(n) = self
            .strides
            .iter()
            .find(|n| !n.is_multiple_of(16) || **n >= 1 << 40)
        {
            return Err(format!(
                "a stride of {n} bytes: a multiple of 16 below 2^40"
            ));
        }

        if let Some(n) = self.boxed.iter().find(|n| !(1..=256).contains(*n)) {
            return Err(format!("a box of {n} elements in a dimension: 1 to 256"));
        }

        let row = self.row_bytes();
        if !row.is_multiple_of(16) || self.swizzle != 0 && row > self.swizzle {
            return Err(format!(
                "rows of {row} bytes in a box: a multiple of 16, and no more than the {} of the swizzle",
                self.swizzle
            ));
        }

        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> TensorMap {
        let (dims, strides, boxed) = (vec![100, 50, 3], vec![208, 10400], vec![16, 8, 1]);
        TensorMap {
            address: 0x1000,
            element: 2,
            kind: ElementKind::BFloat,
            swizzle: 32,
            dims,
            strides,
            boxed,
        }
    }

    #[test]
    fn bytes_give_the_map_again() {
        let bytes = map().encode().expect("it is right");
        assert_eq!(TensorMap::decode(&bytes), Some(map()));
        assert_eq!(TensorMap::decode(&[0; 128]), None);
    }

    #[test]
    fn zeros_become_a_map_field_by_field() {
        let mut bytes = [0; 128];
        let fields = [
            (MapField::Address, 0x1000),
            (MapField::Rank, 2),
            (MapField::Swizzle, 32),
            (MapField::Element, 2 | (ElementKind::BFloat as u64) << 8),
        ];
        for (field, value) in fields {
            TensorMap::replace(&mut bytes, field, value).expect("it is right");
        }

        assert_eq!(TensorMap::decode(&bytes), None, "dimensions are missing");
        for i in 0..3 {
            TensorMap::replace(&mut bytes, MapField::Dim(i), map().dims[i]).expect("it is right");
            TensorMap::replace(&mut bytes, MapField::Boxed(i), map().boxed[i].into())
                .expect("it is right");
        }

        for i in 0..2 {
            TensorMap::replace(&mut bytes, MapField::Stride(i), map().strides[i])
                .expect("it is right");
        }

        assert_eq!(TensorMap::decode(&bytes), Some(map()));
    }

    #[test]
    fn rows_end_with_the_tensor() {
        let rows = map().rows(&[96, 48, 2]);
        let start = 0x1000 + 2 * 10400 + 96 * 2;
        let row = |address, bytes, before| {
            Some(TensorRow {
                address,
                bytes,
                before,
            })
        };
        let expected = [
            row(start + 48 * 208, 8, 0),
            row(start + 49 * 208, 8, 0),
            None,
        ];
        assert_eq!(rows[..3], expected);
        assert_eq!(map().rows(&[-4, 0, 0])[0], row(0x1000, 24, 8));
        assert_eq!(map().rows(&[0, 0, 3]), vec![None; 8]);
    }

    #[test]
    fn what_a_driver_refuses_is_refused() {
        let cases = [
            (
                TensorMap {
                    address: 8,
                    ..map()
                },
                "the address 0x8 is not a multiple of 16",
            ),
            (
                TensorMap {
                    strides: vec![200, 10400],
                    ..map()
                },
                "a stride of 200 bytes: a multiple of 16 below 2^40",
            ),
            (
                TensorMap {
                    boxed: vec![32, 8, 1],
                    ..map()
                },
                "rows of 64 bytes in a box: a multiple of 16, and no more than the 32 of the swizzle",
            ),
            (
                TensorMap {
                    boxed: vec![16, 257, 1],
                    ..map()
                },
                "a box of 257 elements in a dimension: 1 to 256",
            ),
        ];
        for (map, wanted) in cases {
            assert_eq!(map.encode().expect_err("refused"), wanted);
        }
    }
}
