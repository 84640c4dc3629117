//! Values of metadata.
//!
//! An array keeps its bytes from the file, which are checked once. A file can therefore never take
//! more memory than its length.

use std::fmt;

use crate::gguf::fault::{Fault, MAX_NESTING};
use crate::gguf::reader::ByteReader;

/// A metadata value. Integers and floats are widened to 64 bits.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An unsigned integer: `u8`, `u16`, `u32` or `u64` in the file.
    Unsigned(u64),
    /// A signed integer: `i8`, `i16`, `i32` or `i64` in the file.
    Signed(i64),
    /// A float: `f32` or `f64` in the file.
    Float(f64),
    /// A boolean: one byte, 0 or 1.
    Bool(bool),
    /// A UTF-8 string.
    String(String),
    /// An array of values of one type.
    Array(Array),
}

/// An array of values of one type, decoded on access.
#[derive(Clone, PartialEq)]
pub struct Array {
    /// The type's number.
    id: u32,
    len: u64,
    bytes: Box<[u8]>,
}

const STRING: u32 = 8;
const ARRAY: u32 = 9;

impl Value {
    /// Returns the value as an integer, or `None` if it has another type.
    pub fn integer(&self) -> Option<i128> {
        match self {
            Value::Unsigned(n) => Some((*n).into()),
            Value::Signed(n) => Some((*n).into()),
            _ => None,
        }
    }

    /// A number of any type.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Value::Float(x) => Some(*x),
            other => other.integer().map(|n| n as f64),
        }
    }

    /// The type and the value: `a string, "8"`.
    pub(crate) fn described(&self) -> String {
        let kind = match self {
            Value::Unsigned(_) => "an unsigned integer",
            Value::Signed(_) => "a signed integer",
            Value::Float(_) => "a floating-point number",
            Value::Bool(_) => "a bool",
            Value::String(_) => "a string",
            Value::Array(array) => return array.to_string(),
        };
        format!("{kind}, {self}")
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(n) => write!(f, "{n}"),
            Value::Signed(n) => write!(f, "{n}"),
            Value::Float(x) => write!(f, "{x}"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::String(s) => write!(f, "{}", Quoted(s)),
            Value::Array(array) => array.fmt(f),
        }
    }
}

/// A string of a file for messages: quoted, with control and invisible characters escaped, and
/// limited in length.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

/// The most characters of a file's string in a message.
const SHOWN: usize = 200;

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SHOWN) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}...", &self.0[..end]),
        }
    }
}

impl Array {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if the array is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the elements in order, or nothing if they are arrays themselves.
    pub fn values(&self) -> impl Iterator<Item = Value> {
        let mut reader = ByteReader::new(&self.bytes);
        (0..self.len).map_while(move |_| scalar(&mut reader, self.id, &String::new).ok())
    }

    /// Returns the elements if they are strings, or `None` otherwise.
    pub fn strings(&self) -> Option<impl Iterator<Item = &str>> {
        let mut reader = ByteReader::new(&self.bytes);
        let strings = (0..self.len).map_while(move |_| reader.string(String::new).ok());
        (self.id == STRING).then_some(strings)
    }
}

impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of {}", self.len)
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads a value of GGUF's type number `id`.
pub(crate) fn read(
    r: &mut ByteReader<'_>,
    id: u32,
    what: &dyn Fn() -> String,
) -> Result<Value, Fault> {
    match id {
        ARRAY => array(r, what).map(Value::Array),
        id => scalar(r, id, what),
    }
}

fn scalar(r: &mut ByteReader<'_>, id: u32, what: &dyn Fn() -> String) -> Result<Value, Fault> {
    Ok(match id {
        0 => Value::Unsigned(u8::from_le_bytes(r.array_of(what)?).into()),
        1 => Value::Signed(i8::from_le_bytes(r.array_of(what)?).into()),
        2 => Value::Unsigned(u16::from_le_bytes(r.array_of(what)?).into()),
        3 => Value::Signed(i16::from_le_bytes(r.array_of(what)?).into()),
        4 => Value::Unsigned(u32::from_le_bytes(r.array_of(what)?).into()),
        5 => Value::Signed(i32::from_le_bytes(r.array_of(what)?).into()),
        6 => Value::Float(f32::from_le_bytes(r.array_of(what)?).into()),
        7 => match r.array_of(what)? {
            [byte @ (0 | 1)] => Value::Bool(byte == 1),
            [byte] => return Err(Fault::NotBool { what: what(), byte }),
        },
        STRING => Value::String(r.string(what)?.to_owned()),
        10 => Value::Unsigned(u64::from_le_bytes(r.array_of(what)?)),
        11 => Value::Signed(i64::from_le_bytes(r.array_of(what)?)),
        12 => Value::Float(f64::from_le_bytes(r.array_of(what)?)),
        id => return Err(Fault::ValueType { what: what(), id }),
    })
}

fn array(r: &mut ByteReader<'_>, what: &dyn Fn() -> String) -> Result<Array, Fault> {
    let (id, len) = prefix(r, what)?;
    let mut ahead = r.clone();
    skip(&mut ahead, id, len, 1, what)?;
    let bytes = r.bytes((r.left() - ahead.left()) as u64, what)?;
    Ok(Array {
        id,
        len,
        bytes: bytes.into(),
    })
}

/// Reads the type and the length of an array, and checks that the rest of the file has enough
/// bytes.
fn prefix(r: &mut ByteReader<'_>, what: &dyn Fn() -> String) -> Result<(u32, u64), Fault> {
    let id = r.u32_of(what)?;
    let count = r.u64_of(what)?;
    let Some(least) = least(id) else {
        return Err(Fault::ValueType { what: what(), id });
    };

    let left = r.left();
    let most = left as u64 / least;
    if count > most {
        return Err(Fault::ArrayLength {
            what: what(),
            count,
            left,
            most,
        });
    }

    Ok((id, count))
}

/// The least bytes of a value: all of a number, the length of a string, the type and the length of
/// an array.
fn least(id: u32) -> Option<u64> {
    Some(match id {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        STRING | 10..=12 => 8,
        ARRAY => 12,
        _ => return None,
    })
}

/// Goes past the values of an array, inside `depth` arrays, and checks them.
fn skip(
    r: &mut ByteReader<'_>,
    id: u32,
    len: u64,
    depth: u32,
    what: &dyn Fn() -> String,
) -> Result<(), Fault> {
    match id {
        7 => {
            for _ in 0..len {
                scalar(r, id, what)?;
            }
        }
        STRING => {
            for _ in 0..len {
                r.string(what)?;
            }
        }
        ARRAY if depth == MAX_NESTING => return Err(Fault::Nesting { what: what() }),
        ARRAY => {
            for _ in 0..len {
                let (id, len) = prefix(r, what)?;
                skip(r, id, len, depth + 1, what)?;
            }
        }
        // There is room, as `prefix` has seen.
        id => {
            r.bytes(len * least(id).unwrap_or(1), what)?;
        }
    }
    Ok(())
}
