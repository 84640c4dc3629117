//! Numbers, addresses and buffers on the command line.

use std::path::PathBuf;
use std::str::FromStr;

use ptx_emu::check::{ElementType, Role, View};

/// A number or an address, which can also be a member of a structure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Member {
    Scalar {
        /// The name of the type on the command line.
        written: String,
        element: ElementType,
        bytes: Vec<u8>,
    },
    Pointer {
        buffer: String,
        offset: u64,
    },
}

/// The description of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BufferValue {
    pub(crate) role: Role,
    /// Type and number of the elements, or `None` if a file defines them.
    pub(crate) shape: Option<(ElementType, usize)>,
    /// The content before the launch, or `None` for an uninitialized buffer.
    pub(crate) fill: Option<Fill>,
    /// The texture or surface, if the buffer is one.
    pub(crate) view: Option<View>,
}

/// The content of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fill {
    Zeros,
    /// The numbers 0, 1, 2, and so on.
    Iota,
    Const(String),
    /// Uniformly distributed numbers in a range, or in the default range of the type.
    Random(Option<(f64, f64)>),
    /// A list of values.
    Values(Vec<String>),
    File(PathBuf),
}

/// Returns the message about a text that is not a value of a type.
pub(crate) fn no_value(text: &str, element: ElementType) -> String {
    format!("{text:?} is not a value of type {}", element.name())
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
            // A list of values begins with a number, and every other form begins with a letter.
            _ if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '.')) => {
                Ok(Fill::Values(text.split(',').map(str::to_owned).collect()))
            }
            _ => Err(format!(
                "invalid content {text:?}: expected zeros, iota, const:VALUE, rand, rand:LOW:HIGH, file:FILE.npy or \
                 VALUE,VALUE.."
            )),
        }
    }
}

/// Parses the range of random numbers.
fn range(text: &str) -> Result<(f64, f64), String> {
    let ends = text
        .split_once(':')
        .and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
    let ends =
        ends.filter(|(low, high): &(f64, f64)| low.is_finite() && high.is_finite() && low < high);
    ends.ok_or_else(|| format!("invalid range {text:?}: expected LOW:HIGH, such as rand:0:100"))
}

/// Returns the name of a role on the command line.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::In => "in",
        Role::Out => "out",
        Role::InOut => "inout",
    }
}
