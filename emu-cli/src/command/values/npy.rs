//! Reader of `.npy` files, as `numpy.save` writes them.
//!
//! A file has ten or twelve bytes, a header that is a Python dictionary, and the elements
//! (`numpy/lib/format.py`). The crate `npyz` is not used, because it needs a parser generator, big
//! integers and a C compiler, and only three keys of the header matter.

use std::fs;
use std::path::Path;

use ptx_emu::check::ElementType;

/// An array in C order.
#[derive(Debug, PartialEq)]
pub(crate) struct NpyArray {
    pub(crate) element: ElementType,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl NpyArray {
    /// Returns the number of elements.
    pub(crate) fn count(&self) -> usize {
        self.bytes.len() / self.element.bytes()
    }
}

/// Reads a file.
///
/// # Errors
/// Returns a message with the path if the file cannot be read or has an unsupported format.
pub(crate) fn read(path: &Path) -> Result<NpyArray, String> {
    let wrong = |what: String| format!("{}: {what}", path.display());
    let bytes = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    parse(&bytes).map_err(wrong)
}

/// Parses the content of a file.
fn parse(file: &[u8]) -> Result<NpyArray, String> {
    let not = "not a .npy file, as numpy.save writes it";
    let rest = file.strip_prefix(b"\x93NUMPY").ok_or(not)?;
    let (header, data) = split(rest).ok_or("the file ends within its header")?;
    if !(1..=3).contains(&rest[0]) {
        return Err(format!(
            "unsupported version {}: versions 1, 2 and 3 are supported",
            rest[0]
        ));
    }

    let header = str::from_utf8(header).map_err(|_| "the header is not valid UTF-8")?;

    // The search below takes the first of two equal keys and Python the last, so such a header is
    // refused.
    if let Some(key) = ["descr", "shape", "fortran_order"]
        .into_iter()
        .find(|key| twice(header, key))
    {
        return Err(format!("the header has {key:?} twice"));
    }

    let element = element(value(header, "descr").ok_or(not)?)?;
    let shape = shape(value(header, "shape").ok_or(not)?).ok_or("the shape cannot be read")?;
    if value(header, "fortran_order").is_some_and(|order| order.starts_with("True"))
        && shape.len() > 1
    {
        return Err("the elements are in Fortran order: save numpy.ascontiguousarray(a)".into());
    }

    let size = shape
        .iter()
        .try_fold(element.bytes(), |all, n| all.checked_mul(*n));
    match size {
        Some(size) if size == data.len() => Ok(NpyArray {
            element,
            shape,
            bytes: data.to_vec(),
        }),
        _ => Err(format!(
            "{} bytes of elements do not fit the shape {shape:?}",
            data.len()
        )),
    }
}

/// Splits the file into header and elements. The length of the header has two bytes in version 1
/// and four in later ones.
fn split(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (version, rest) = rest.split_first_chunk::<2>()?;
    let (length, rest) = match version[0] {
        1 => rest
            .split_first_chunk()
            .map(|(n, rest)| (u32::from(u16::from_le_bytes(*n)), rest))?,
        _ => rest
            .split_first_chunk()
            .map(|(n, rest)| (u32::from_le_bytes(*n), rest))?,
    };
    rest.split_at_checked(length as usize)
}

/// Returns the text after a key of the header.
fn value<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{key}':"))?;
    Some(rest.trim_start())
}

/// Returns true if the header has a key twice. Python would use the last one.
fn twice(header: &str, key: &str) -> bool {
    value(header, key).is_some_and(|rest| value(rest, key).is_some())
}

/// Parses the type of the elements.
fn element(descr: &str) -> Result<ElementType, String> {
    let name = descr
        .strip_prefix('\'')
        .and_then(|rest| rest.split('\'').next());
    let name = name.ok_or("the elements are structures; save each field by itself")?;
    let (order, name) = name.split_at_checked(1).unwrap_or((name, ""));
    if order == ">" {
        return Err("the elements are big-endian; save a.astype(a.dtype.newbyteorder('<'))".into());
    }

    let found = match name {
        "b1" | "u1" => ElementType::U8,
        "i1" => ElementType::S8,
        "u2" => ElementType::U16,
        "i2" => ElementType::S16,
        "u4" => ElementType::U32,
        "i4" => ElementType::S32,
        "u8" => ElementType::U64,
        "i8" => ElementType::S64,
        "f2" => ElementType::F16,
        "f4" => ElementType::F32,
        "f8" => ElementType::F64,
        // `ml_dtypes` saves bfloat16 as two bytes without a type.
        "V2" => ElementType::Bf16,
        _ => {
            return Err(format!(
                "unsupported elements of type {order}{name}: convert them to numbers of 1 to 8 bytes"
            ));
        }
    };
    Ok(found)
}

/// Parses a shape such as `(2, 3)`.
fn shape(text: &str) -> Option<Vec<usize>> {
    let (inside, _) = text.strip_prefix('(')?.split_once(')')?;
    let parts = inside
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts.map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let mut file = b"\x93NUMPY".to_vec();
        file.extend([version, 0]);
        match version {
            1 => file.extend((header.len() as u16).to_le_bytes()),
            _ => file.extend((header.len() as u32).to_le_bytes()),
        }
        [file, header.into(), data.into()].concat()
    }

    #[test]
    fn arrays_are_read() {
        for version in [1, 2] {
            let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }          \n";
            let array = parse(&file(version, header, &[1, 2, 3, 4, 5, 6, 7, 8])).unwrap();
            assert_eq!(
                (array.element, array.count(), array.shape),
                (ElementType::F32, 2, vec![2, 1])
            );
        }
        let scalar = parse(&file(
            1,
            "{'descr': '|i1', 'fortran_order': True, 'shape': (), }",
            &[7],
        ))
        .unwrap();
        assert_eq!((scalar.element, scalar.count()), (ElementType::S8, 1));
    }

    #[test]
    fn what_is_no_array_is_named() {
        let of = |descr: &str, order: &str, shape: &str| {
            file(
                1,
                &format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"),
                &[0; 8],
            )
        };
        let cases: &[(Vec<u8>, &str)] = &[
            (b"PK\x03\x04".to_vec(), "not a .npy file"),
            (b"\x93NUMPY\x01".to_vec(), "ends within its header"),
            (
                b"\x93NUMPY\x01\x00\xff\xff{".to_vec(),
                "ends within its header",
            ),
            (of("'>f4'", "False", "(2,)"), "big-endian"),
            (
                of("'<c8'", "False", "(1,)"),
                "unsupported elements of type <c8",
            ),
            (of("[('a', '<f4')]", "False", "(2,)"), "are structures"),
            (of("'<f4'", "True", "(1, 2)"), "Fortran"),
            (
                of("'<f4'", "False", "(3,)"),
                "8 bytes of elements do not fit the shape [3]",
            ),
            (
                of("'<f4'", "False", "(99999999999, 99999999999)"),
                "do not fit the shape",
            ),
            (of("'<f4'", "False", "2"), "the shape cannot be read"),
            (
                of("'<f4', 'descr': '<i4'", "False", "(2,)"),
                "the header has \"descr\" twice",
            ),
            (file(9, "{}", &[]), "unsupported version 9"),
        ];
        for (file, message) in cases {
            let error = parse(file).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
