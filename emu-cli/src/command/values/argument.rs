//! Parsers of `--arg`, `--expect` and `--const`.

use std::fs;
use std::str::FromStr;

use ptx_emu::check::{ElementType, Role};

use super::image::image;
use super::value::{BufferValue, Fill, Member, no_value};

/// The forms of a value in `--arg`, for error messages.
const FORMS: &str = "TYPE:VALUE, in:TYPE:COUNT[=FILL], inout:TYPE:COUNT[=FILL], out:TYPE:COUNT, file:FILE.npy, \
                     tex2d:FORMAT:SIZE, surf2d:FORMAT:SIZE, @BUFFER[+BYTES] or struct:MEMBER,MEMBER..";

/// The value of `--arg`, `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EmuArgument {
    /// The name or the number of a parameter, or the name of a buffer that only other arguments
    /// refer to.
    pub(crate) name: String,
    pub(crate) value: ArgumentValue,
}

/// The part of `--arg` after the `=`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ArgumentValue {
    Buffer(BufferValue),
    Member(Member),
    Struct(Vec<Member>),
}

impl EmuArgument {
    /// Returns the size of the buffer in bytes, or 0 for another kind of argument.
    ///
    /// The size of a file is only an estimate, because the file is not read.
    pub(crate) fn bytes(&self) -> u64 {
        let ArgumentValue::Buffer(value) = &self.value else {
            return 0;
        };

        let shaped = value
            .shape
            .map(|(element, count)| count.saturating_mul(element.bytes()) as u64);
        let of_file = || match &value.fill {
            Some(Fill::File(path)) => fs::metadata(path).map_or(0, |file| file.len()),
            _ => 0,
        };
        shaped.unwrap_or_else(of_file)
    }
}

impl FromStr for EmuArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = named(text)?;
        Ok(EmuArgument {
            name,
            value: value.parse()?,
        })
    }
}

/// Splits a text at its first `=`.
fn named(text: &str) -> Result<(String, &str), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value)),
        _ => Err(
            "expected NAME=VALUE, where NAME is the name of a parameter or its number, from 0"
                .into(),
        ),
    }
}

impl FromStr for ArgumentValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "in" => buffer(Role::In, rest).map(ArgumentValue::Buffer),
            "inout" => buffer(Role::InOut, rest).map(ArgumentValue::Buffer),
            "out" => buffer(Role::Out, rest).map(ArgumentValue::Buffer),
            "file" => buffer(Role::In, text).map(ArgumentValue::Buffer),
            "struct" => rest
                .split(',')
                .map(str::parse)
                .collect::<Result<_, _>>()
                .map(ArgumentValue::Struct),
            _ => match image(kind, rest) {
                Some(image) => image.map(ArgumentValue::Buffer),
                None => text.parse().map(ArgumentValue::Member),
            },
        }
    }
}

/// Parses a buffer: `TYPE:COUNT[=FILL]` or `file:FILE`.
fn buffer(role: Role, text: &str) -> Result<BufferValue, String> {
    // A file defines the type and the number of its elements, so they are not part of the text.
    if let Some(file) = text.strip_prefix("file:").filter(|file| !file.is_empty()) {
        if role == Role::Out {
            return Err(
                "an out buffer is uninitialized before the launch: use inout:file:FILE.npy".into(),
            );
        }
        return Ok(BufferValue {
            role,
            shape: None,
            fill: Some(Fill::File(file.into())),
            view: None,
        });
    }

    let (shape, fill) = text
        .split_once('=')
        .map_or((text, None), |(shape, fill)| (shape, Some(fill)));
    let (ty, count) = shape
        .split_once(':')
        .ok_or("a buffer needs a type and a count, such as in:f32:1000")?;
    let shape = Some((element(ty)?, self::count(count)?));
    let fill = fill.map(str::parse).transpose()?;
    match (role, &fill) {
        (Role::Out, Some(_)) => Err(
            "an out buffer is uninitialized before the launch: use inout:TYPE:COUNT=FILL".into(),
        ),
        (Role::Out, None) => Ok(BufferValue {
            role,
            shape,
            fill: None,
            view: None,
        }),
        (_, fill) => Ok(BufferValue {
            role,
            shape,
            fill: fill.clone().or(Some(Fill::Random(None))),
            view: None,
        }),
    }
}

/// Parses the type of an element.
fn element(name: &str) -> Result<ElementType, String> {
    ElementType::parse(name).ok_or_else(|| {
        let names = ElementType::names().collect::<Vec<_>>().join(", ");
        format!("unknown type {name:?}: expected one of {names}")
    })
}

/// Parses a number of elements: `1000`, or the product `10x100`.
fn count(text: &str) -> Result<usize, String> {
    let product = text
        .split('x')
        .try_fold(1usize, |all, n| all.checked_mul(n.parse().ok()?));
    product
        .ok_or_else(|| format!("invalid count {text:?}: expected a number such as 1000 or 10x100"))
}

impl FromStr for Member {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix('@') {
            let (buffer, offset) = rest.split_once('+').unwrap_or((rest, "0"));
            let offset = offset.parse().map_err(|_| {
                format!("invalid address {text:?}: expected @BUFFER or @BUFFER+BYTES")
            })?;
            return Ok(Member::Pointer {
                buffer: buffer.into(),
                offset,
            });
        }

        let (written, value) = text
            .split_once(':')
            .ok_or_else(|| format!("invalid value {text:?}: expected one of {FORMS}"))?;
        let element = element(written)
            .map_err(|error| format!("{error}; the forms of an argument are {FORMS}"))?;
        let bytes = element
            .encode(value)
            .ok_or_else(|| no_value(value, element))?;
        Ok(Member::Scalar {
            written: written.into(),
            element,
            bytes,
        })
    }
}

/// The value of `--expect`, `NAME=FILL[~TOLERANCE]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expectation {
    pub(crate) name: String,
    pub(crate) fill: Fill,
    pub(crate) tolerance: f64,
}

impl FromStr for Expectation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = named(text)?;
        let (fill, tolerance) = match value.rsplit_once('~') {
            None => (value, 0.0),
            Some((fill, tolerance)) => (fill, self::tolerance(tolerance)?),
        };
        let fill = fill.parse()?;
        if matches!(fill, Fill::Random(_)) {
            return Err(
                "random numbers cannot be expected: use file:FILE.npy, const:VALUE or a list of values"
                    .into(),
            );
        }

        Ok(Expectation {
            name,
            fill,
            tolerance,
        })
    }
}

/// Parses a tolerance. Infinity is refused, because nothing would be compared.
fn tolerance(text: &str) -> Result<f64, String> {
    let value = text
        .parse()
        .ok()
        .filter(|value: &f64| *value >= 0.0 && value.is_finite());
    value.ok_or_else(|| {
        format!("invalid tolerance {text:?} after ~: expected a number such as 1e-4")
    })
}

/// The value of `--const`: `NAME=TYPE:VALUE,VALUE..`, `NAME=file:FILE.npy` or `NAME=@BUFFER`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EmuConstant {
    pub(crate) name: String,
    pub(crate) value: ConstantValue,
}

/// The content of a variable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ConstantValue {
    Values(Vec<String>, ElementType),
    File(String),
    /// The address of a buffer, or the handle of its texture or surface.
    Pointer(Member),
}

impl FromStr for EmuConstant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = named(text)?;
        if value.starts_with('@') {
            return Ok(EmuConstant {
                name,
                value: ConstantValue::Pointer(value.parse()?),
            });
        }

        let (ty, values) = value
            .split_once(':')
            .ok_or("a variable needs a type and values, such as f32:1,2,3, or a @BUFFER")?;
        let value = match ty {
            "file" => ConstantValue::File(values.into()),
            _ => {
                ConstantValue::Values(values.split(',').map(str::to_owned).collect(), element(ty)?)
            }
        };
        Ok(EmuConstant { name, value })
    }
}

/// Parses the three numbers of `--grid`, `--block` or `--cluster`: `4`, `4,2` or `4x2x1`.
pub(crate) fn extent(text: &str) -> Result<[u32; 3], String> {
    let mut extent = [1; 3];
    let parts: Vec<&str> = text.split([',', 'x']).collect();
    let numbers = parts
        .iter()
        .map(|part| part.parse().ok().filter(|n: &u32| *n > 0));
    let numbers: Option<Vec<u32>> = numbers.collect();
    match numbers.filter(|numbers| numbers.len() <= 3) {
        Some(numbers) => extent[..numbers.len()].copy_from_slice(&numbers),
        None => return Err("one to three numbers from 1 on, such as 4 or 4,2,1".into()),
    }

    Ok(extent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_argument_is_named() {
        let cases = [
            ("x", "expected NAME=VALUE, where NAME is"),
            ("=u32:1", "expected NAME=VALUE, where NAME is"),
            (
                "x=",
                "invalid value \"\": expected one of TYPE:VALUE, in:TYPE",
            ),
            (
                "x=1000",
                "invalid value \"1000\": expected one of TYPE:VALUE",
            ),
            (
                "x=u33:1",
                "unknown type \"u33\": expected one of u8, s8, u16, s16, u32, s32, u64, s64, f16, bf16, f32, f64;",
            ),
            ("x=u32:-1", "\"-1\" is not a value of type u32"),
            (
                "x=in:f32",
                "a buffer needs a type and a count, such as in:f32:1000",
            ),
            ("x=in:f33:4", "unknown type \"f33\": expected one of"),
            ("x=in:f32:ten", "invalid count \"ten\""),
            ("x=in:f32:99999999999x99999999999", "invalid count"),
            (
                "x=in:f32:4=ones",
                "invalid content \"ones\": expected zeros, iota",
            ),
            (
                "x=in:f32:4=rand:5",
                "invalid range \"5\": expected LOW:HIGH",
            ),
            (
                "x=in:f32:4=rand:5:1",
                "invalid range \"5:1\": expected LOW:HIGH",
            ),
            (
                "x=out:f32:4=zeros",
                "an out buffer is uninitialized before the launch: use inout:TYPE",
            ),
            (
                "x=out:file:a.npy",
                "an out buffer is uninitialized before the launch: use inout:file",
            ),
            ("x=struct:@y,5", "invalid value \"5\": expected one of"),
            ("x=@y+four", "expected @BUFFER or @BUFFER+BYTES"),
        ];
        for (text, message) in cases {
            let error = text.parse::<EmuArgument>().unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn arguments_are_read() {
        let value = |text: &str| {
            text.parse::<EmuArgument>()
                .unwrap_or_else(|error| panic!("{text}: {error}"))
                .value
        };
        let buffer = |role, count, fill| {
            ArgumentValue::Buffer(BufferValue {
                role,
                shape: Some((ElementType::F32, count)),
                fill,
                view: None,
            })
        };
        assert_eq!(
            value("x=in:f32:2x3"),
            buffer(Role::In, 6, Some(Fill::Random(None)))
        );
        assert_eq!(value("x=out:f32:0"), buffer(Role::Out, 0, None));
        let values = Fill::Values(vec!["-1".into(), "2".into()]);
        assert_eq!(
            value("x=inout:f32:2=-1,2"),
            buffer(Role::InOut, 2, Some(values))
        );
        let file = |role| {
            ArgumentValue::Buffer(BufferValue {
                role,
                shape: None,
                fill: Some(Fill::File("a=b:c.npy".into())),
                view: None,
            })
        };
        assert_eq!(value("x=file:a=b:c.npy"), file(Role::In));
        assert_eq!(value("x=inout:file:a=b:c.npy"), file(Role::InOut));
        let pointer = |offset| Member::Pointer {
            buffer: "y".into(),
            offset,
        };
        assert_eq!(value("x=@y"), ArgumentValue::Member(pointer(0)));
        let ArgumentValue::Struct(members) = value("x=struct:@y+8,i32:-3") else {
            panic!()
        };

        let scalar = Member::Scalar {
            written: "i32".into(),
            element: ElementType::S32,
            bytes: vec![253, 255, 255, 255],
        };
        assert_eq!(members, [pointer(8), scalar]);
    }

    #[test]
    fn expectations_have_a_tolerance() {
        let read = |text: &str| text.parse::<Expectation>();
        let y = read("y=file:y~1.npy~1e-4").unwrap();
        assert_eq!((y.fill, y.tolerance), (Fill::File("y~1.npy".into()), 1e-4));
        assert_eq!(read("y=1,2").unwrap().tolerance, 0.0);
        assert!(read("y=zeros~x").unwrap_err().contains("invalid tolerance"));
        assert!(
            read("y=zeros~-1")
                .unwrap_err()
                .contains("invalid tolerance")
        );
        assert!(
            read("y=zeros~inf")
                .unwrap_err()
                .contains("invalid tolerance")
        );
        assert!(read("y=rand").unwrap_err().contains("cannot be expected"));
    }

    #[test]
    fn extents_have_one_to_three_numbers() {
        assert_eq!(
            (extent("4"), extent("4,2"), extent("4x2x3")),
            (Ok([4, 1, 1]), Ok([4, 2, 1]), Ok([4, 2, 3]))
        );
        for text in ["", "0", "1,0", "1,2,3,4", "-1", "a"] {
            assert!(extent(text).is_err(), "{text}");
        }
    }
}
