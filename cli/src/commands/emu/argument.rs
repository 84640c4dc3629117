//! What `--arg`, `--expect` and `--const` say.

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use ptx_emu::check::{ElementType, Role, View};

use super::image::image;

/// How `--arg` is written, for those who wrote it in another way.
const FORMS: &str = "TYPE:VALUE, in:TYPE:COUNT[=FILL], inout:TYPE:COUNT[=FILL], out:TYPE:COUNT, file:FILE.npy, \
                     tex2d:FORMAT:SIZE, surf2d:FORMAT:SIZE, @BUFFER[+BYTES] or struct:MEMBER,MEMBER..";

/// `NAME=VALUE` of `--arg`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Argument {
    /// The parameter's name or number, or the name of a buffer that is no parameter.
    pub(crate) name: String,
    pub(crate) value: Value,
}

/// What an argument is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Buffer(BufferValue),
    Member(Member),
    Struct(Vec<Member>),
}

/// A number or an address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Member {
    Scalar {
        /// The type as it is written.
        written: String,
        element: ElementType,
        bytes: Vec<u8>,
    },
    Pointer {
        buffer: String,
        offset: u64,
    },
}

/// A buffer to make.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BufferValue {
    pub(crate) role: Role,
    /// Type and number of its elements, where the file does not say.
    pub(crate) shape: Option<(ElementType, usize)>,
    pub(crate) fill: Option<Fill>,
    /// The texture or surface that it is.
    pub(crate) view: Option<View>,
}

/// What elements are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fill {
    Zeros,
    /// 0, 1, 2, ..
    Iota,
    Const(String),
    /// Uniformly between two numbers, which are those of the type if nobody names them.
    Random(Option<(f64, f64)>),
    /// These, one after the other.
    Values(Vec<String>),
    File(PathBuf),
}

impl Argument {
    /// Bytes of the buffer that it makes, as far as they are known before a file is read.
    pub(crate) fn bytes(&self) -> u64 {
        let Value::Buffer(value) = &self.value else {
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

impl FromStr for Argument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = named(text)?;
        Ok(Argument {
            name,
            value: value.parse()?,
        })
    }
}

/// The two sides of the first `=`.
fn named(text: &str) -> Result<(String, &str), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value)),
        _ => Err("no NAME=VALUE; NAME is a parameter's name or its number, from 0".into()),
    }
}

impl FromStr for Value {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "in" => buffer(Role::In, rest).map(Value::Buffer),
            "inout" => buffer(Role::InOut, rest).map(Value::Buffer),
            "out" => buffer(Role::Out, rest).map(Value::Buffer),
            "file" => buffer(Role::In, text).map(Value::Buffer),
            "struct" => rest
                .split(',')
                .map(str::parse)
                .collect::<Result<_, _>>()
                .map(Value::Struct),
            _ => match image(kind, rest) {
                Some(image) => image.map(Value::Buffer),
                None => text.parse().map(Value::Member),
            },
        }
    }
}

/// `TYPE:COUNT[=FILL]` or `file:FILE`.
fn buffer(role: Role, text: &str) -> Result<BufferValue, String> {
    if let Some(file) = text.strip_prefix("file:").filter(|file| !file.is_empty()) {
        if role == Role::Out {
            return Err(
                "an out buffer holds nothing before the launch; use inout:file:FILE.npy".into(),
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
        (Role::Out, Some(_)) => {
            Err("an out buffer holds nothing before the launch; use inout:TYPE:COUNT=FILL".into())
        }
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

fn element(name: &str) -> Result<ElementType, String> {
    let names = || ElementType::names().collect::<Vec<_>>().join(", ");
    ElementType::parse(name).ok_or_else(|| format!("{name:?} is no type; there are {}", names()))
}

/// A number of elements: `1000`, or the product `10x100`.
fn count(text: &str) -> Result<usize, String> {
    let product = text
        .split('x')
        .try_fold(1usize, |all, n| all.checked_mul(n.parse().ok()?));
    product.ok_or_else(|| format!("{text:?} is no number of elements, such as 1000 or 10x100"))
}

impl FromStr for Member {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix('@') {
            let (buffer, offset) = rest.split_once('+').unwrap_or((rest, "0"));
            let offset = offset
                .parse()
                .map_err(|_| format!("{text:?} is no @BUFFER or @BUFFER+BYTES"))?;
            return Ok(Member::Pointer {
                buffer: buffer.into(),
                offset,
            });
        }
        let (written, value) = text
            .split_once(':')
            .ok_or_else(|| format!("{text:?} is none of {FORMS}"))?;
        let element =
            element(written).map_err(|error| format!("{error}; an argument is one of {FORMS}"))?;
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

/// What is said of text that is no value of a type.
pub(crate) fn no_value(text: &str, element: ElementType) -> String {
    format!("{text:?} is no value of type {}", element.name())
}

impl FromStr for Fill {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text
            .split_once(':')
            .map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        match (kind, rest) {
            ("zeros", None) => Ok(Fill::Zeros),
            ("iota", None) => Ok(Fill::Iota),
            ("const", Some(value)) => Ok(Fill::Const(value.into())),
            ("rand", None) => Ok(Fill::Random(None)),
            ("rand", Some(range)) => Ok(Fill::Random(Some(self::range(range)?))),
            ("file", Some(file)) if !file.is_empty() => Ok(Fill::File(file.into())),
            _ if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '.')) => {
                Ok(Fill::Values(text.split(',').map(str::to_owned).collect()))
            }
            _ => Err(format!(
                "{text:?} fills no buffer: zeros, iota, const:VALUE, rand, rand:LOW:HIGH, file:FILE.npy or VALUE,VALUE.."
            )),
        }
    }
}

fn range(text: &str) -> Result<(f64, f64), String> {
    let ends = text
        .split_once(':')
        .and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
    let ends =
        ends.filter(|(low, high): &(f64, f64)| low.is_finite() && high.is_finite() && low < high);
    ends.ok_or_else(|| format!("{text:?} is no range LOW:HIGH, such as rand:0:100"))
}

/// `NAME=FILL[~TOLERANCE]` of `--expect`.
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
                "random numbers are nothing to expect; use file:FILE.npy, const:VALUE or values"
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

fn tolerance(text: &str) -> Result<f64, String> {
    // What may be off by any amount is not compared.
    let value = text
        .parse()
        .ok()
        .filter(|value: &f64| *value >= 0.0 && value.is_finite());
    value.ok_or_else(|| format!("{text:?} behind ~ is no tolerance, such as 1e-4"))
}

/// `NAME=TYPE:VALUE,VALUE..` of `--const`, or `NAME=file:FILE.npy`, or `NAME=@BUFFER`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Constant {
    pub(crate) name: String,
    pub(crate) value: ConstantValue,
}

/// What a variable holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ConstantValue {
    Values(Vec<String>, ElementType),
    File(String),
    /// The address of a buffer, or the handle of its texture or surface.
    Pointer(Member),
}

impl FromStr for Constant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = named(text)?;
        if value.starts_with('@') {
            return Ok(Constant {
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
        Ok(Constant { name, value })
    }
}

/// Three numbers of `--grid`, `--block` or `--cluster`: `4`, `4,2` or `4x2x1`.
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
            ("x", "no NAME=VALUE; NAME is"),
            ("=u32:1", "no NAME=VALUE; NAME is"),
            ("x=", "\"\" is none of TYPE:VALUE, in:TYPE"),
            ("x=1000", "\"1000\" is none of TYPE:VALUE"),
            (
                "x=u33:1",
                "\"u33\" is no type; there are u8, s8, u16, s16, u32, s32, u64, s64, f16, bf16, f32, f64;",
            ),
            ("x=u32:-1", "\"-1\" is no value of type u32"),
            (
                "x=in:f32",
                "a buffer needs a type and a count, such as in:f32:1000",
            ),
            ("x=in:f33:4", "\"f33\" is no type; there are"),
            ("x=in:f32:ten", "\"ten\" is no number of elements"),
            (
                "x=in:f32:99999999999x99999999999",
                "is no number of elements",
            ),
            ("x=in:f32:4=ones", "\"ones\" fills no buffer: zeros, iota"),
            ("x=in:f32:4=rand:5", "\"5\" is no range LOW:HIGH"),
            ("x=in:f32:4=rand:5:1", "\"5:1\" is no range LOW:HIGH"),
            (
                "x=out:f32:4=zeros",
                "an out buffer holds nothing before the launch; use inout:TYPE",
            ),
            (
                "x=out:file:a.npy",
                "an out buffer holds nothing before the launch; use inout:file",
            ),
            ("x=struct:@y,5", "\"5\" is none of"),
            ("x=@y+four", "is no @BUFFER or @BUFFER+BYTES"),
        ];
        for (text, message) in cases {
            let error = text.parse::<Argument>().unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn arguments_are_read() {
        let value = |text: &str| {
            text.parse::<Argument>()
                .unwrap_or_else(|error| panic!("{text}: {error}"))
                .value
        };
        let buffer = |role, count, fill| {
            Value::Buffer(BufferValue {
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
            Value::Buffer(BufferValue {
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
        assert_eq!(value("x=@y"), Value::Member(pointer(0)));
        let Value::Struct(members) = value("x=struct:@y+8,i32:-3") else {
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
        assert!(read("y=zeros~x").unwrap_err().contains("is no tolerance"));
        assert!(read("y=zeros~-1").unwrap_err().contains("is no tolerance"));
        assert!(read("y=zeros~inf").unwrap_err().contains("is no tolerance"));
        assert!(read("y=rand").unwrap_err().contains("nothing to expect"));
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
