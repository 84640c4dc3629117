//! Parser of textures and surfaces in `--arg`: `KIND:FORMAT:SIZE[:OPTION..][=FILL]`.

use ptx_emu::check::{ElementType, Role, View};
use ptx_emu::{
    AddressMode, ChannelType, Coordinates, Filter, Image, ImageShape, ReadMode, Sampler,
    TexelFormat,
};

use super::value::{BufferValue, Fill};

/// The kinds of textures and surfaces: the name, the shape, and the form of the size.
const KINDS: &[(&str, ImageShape, &str)] = &[
    ("1dfetch", ImageShape::Linear, "WIDTH"),
    ("1d", ImageShape::D1, "WIDTH"),
    ("2d", ImageShape::D2, "WIDTHxHEIGHT"),
    ("3d", ImageShape::D3, "WIDTHxHEIGHTxDEPTH"),
    ("1dlayered", ImageShape::Layers1, "WIDTHxLAYERS"),
    ("2dlayered", ImageShape::Layers2, "WIDTHxHEIGHTxLAYERS"),
    ("cube", ImageShape::Cube, "WIDTH"),
    ("cubelayered", ImageShape::Cubes, "WIDTHxCUBES"),
];

/// The types that the channels of a texel can have.
const CHANNELS: &[(ElementType, ChannelType)] = &[
    (ElementType::U8, ChannelType::U8),
    (ElementType::S8, ChannelType::S8),
    (ElementType::U16, ChannelType::U16),
    (ElementType::S16, ChannelType::S16),
    (ElementType::U32, ChannelType::U32),
    (ElementType::S32, ChannelType::S32),
    (ElementType::F16, ChannelType::F16),
    (ElementType::F32, ChannelType::F32),
];

/// The effect of an option on the sampler.
type Change = fn(&mut Sampler);

/// The options of a texture. By default, a texture clamps coordinates and returns the nearest
/// texel.
const OPTIONS: &[(&str, Change)] = &[
    ("point", |s| s.filter = Filter::Point),
    ("linear", |s| s.filter = Filter::Linear),
    ("wrap", |s| s.address = [AddressMode::Wrap; 3]),
    ("clamp", |s| s.address = [AddressMode::Clamp; 3]),
    ("mirror", |s| s.address = [AddressMode::Mirror; 3]),
    ("border", |s| s.address = [AddressMode::Border; 3]),
    ("normalized", |s| s.coordinates = Coordinates::Normalized),
    ("float", |s| s.read = ReadMode::NormalizedFloat),
];

/// Parses a texture or surface such as `tex2d:f32:16x8:linear=rand`, where `kind` is the part
/// before the first colon.
///
/// Returns `None` if `kind` does not begin with `tex` or `surf`.
pub(super) fn image(kind: &str, rest: &str) -> Option<Result<BufferValue, String>> {
    let (name, sampler) = match kind.strip_prefix("tex") {
        Some(name) => (name, Some(Sampler::POINT)),
        None => (kind.strip_prefix("surf")?, None),
    };
    let known = KINDS.iter().find(|(known, shape, _)| {
        *known == name && (sampler.is_some() || *shape != ImageShape::Linear)
    });
    Some(match known {
        Some((_, shape, size)) => view(*shape, size, sampler, rest),
        None => {
            let kinds: Vec<&str> = KINDS.iter().map(|(known, ..)| *known).collect();
            let kinds = kinds.join(", ");
            Err(format!(
                "unknown texture or surface {kind:?}: expected tex or surf followed by one of {kinds} (the first one only \
                 after tex)"
            ))
        }
    })
}

/// Parses the part after the kind: `FORMAT:SIZE[:OPTION..][=FILL]`.
fn view(
    shape: ImageShape,
    written: &str,
    sampler: Option<Sampler>,
    text: &str,
) -> Result<BufferValue, String> {
    let (what, fill) = text
        .split_once('=')
        .map_or((text, None), |(what, fill)| (what, Some(fill)));
    let mut parts = what.split(':');
    let (Some(format), Some(size)) = (parts.next(), parts.next()) else {
        return Err(format!(
            "a texture or surface needs a format and a size, such as f32x4:{written}"
        ));
    };

    let (element, format) = self::format(format)?;
    let extent = extent(shape, written, size)?;
    let sampler = options(sampler, parts)?;
    let fill: Option<Fill> = fill.map(str::parse).transpose()?;

    // Kernels cannot write textures. A surface without content is an output, and reading it first
    // is a finding.
    let (role, fill) = match (&sampler, fill) {
        (Some(_), fill) => (Role::In, fill.or(Some(Fill::Random(None)))),
        (None, Some(fill)) => (Role::InOut, Some(fill)),
        (None, None) => (Role::Out, None),
    };
    let all = extent
        .iter()
        .chain([&format.channels])
        .try_fold(1usize, |all, n| all.checked_mul(*n as usize));
    let count = all.ok_or_else(|| format!("{size:?} has more texels than there are addresses"))?;
    let image = Image::new(format, shape, extent);
    image.check().map_err(|error| error.to_string())?;
    let view = Some(View { image, sampler });
    Ok(BufferValue {
        role,
        shape: Some((element, count)),
        fill,
        view,
    })
}

/// Parses a type and a number of channels: `u8x4`, or `f32` for a single channel.
fn format(text: &str) -> Result<(ElementType, TexelFormat), String> {
    let (ty, channels) = text.split_once('x').unwrap_or((text, "1"));
    let element = ElementType::parse(ty);
    let found = CHANNELS.iter().find(|(known, _)| Some(*known) == element);
    let channels = channels.parse().ok().filter(|n| matches!(n, 1 | 2 | 4));
    match (found, channels) {
        (Some((element, channel)), Some(channels)) => Ok((
            *element,
            TexelFormat {
                channel: *channel,
                channels,
            },
        )),
        _ => {
            let names: Vec<&str> = CHANNELS.iter().map(|(element, _)| element.name()).collect();
            Err(format!(
                "invalid texel format {text:?}: expected one of {}, alone or with x2 or x4",
                names.join(", ")
            ))
        }
    }
}

/// Parses a size. `written` is the form that the shape expects.
fn extent(shape: ImageShape, written: &str, text: &str) -> Result<[u32; 3], String> {
    let numbers = text
        .split('x')
        .map(|n| n.parse().ok().filter(|n: &u32| *n > 0))
        .collect::<Option<Vec<_>>>();
    let found = match (shape, numbers.as_deref()) {
        (ImageShape::Linear | ImageShape::D1, Some([w])) => Some([*w, 1, 1]),
        (ImageShape::D2, Some([w, h])) => Some([*w, *h, 1]),
        (ImageShape::D3 | ImageShape::Layers2, Some([w, h, d])) => Some([*w, *h, *d]),
        (ImageShape::Layers1, Some([w, layers])) => Some([*w, 1, *layers]),
        // The six faces of a cube are stored like layers.
        (ImageShape::Cube, Some([w])) => Some([*w, *w, 6]),
        (ImageShape::Cubes, Some([w, cubes])) => cubes.checked_mul(6).map(|faces| [*w, *w, faces]),
        _ => None,
    };
    found.ok_or_else(|| format!("invalid size {text:?}: expected {written}, each at least 1"))
}

/// Applies the options to the sampler. A surface has no sampler.
fn options<'a>(
    sampler: Option<Sampler>,
    given: impl Iterator<Item = &'a str>,
) -> Result<Option<Sampler>, String> {
    let mut sampler = sampler;
    for option in given {
        let Some(sampler) = &mut sampler else {
            return Err(format!(
                "unexpected {option:?} after the size: a surface has no options"
            ));
        };
        match OPTIONS.iter().find(|(known, _)| *known == option) {
            Some((_, set)) => set(sampler),
            None => {
                let known: Vec<&str> = OPTIONS.iter().map(|(known, _)| *known).collect();
                return Err(format!(
                    "unknown texture option {option:?}: expected one of {}",
                    known.join(", ")
                ));
            }
        }
    }
    Ok(sampler)
}

#[cfg(test)]
mod tests {
    use super::super::argument::{ArgumentValue, EmuArgument};
    use super::*;

    #[test]
    fn textures_and_surfaces_are_read() {
        let read = |text: &str| match text.parse::<EmuArgument>() {
            Ok(EmuArgument {
                value: ArgumentValue::Buffer(value),
                ..
            }) => value,
            other => panic!("{text}: {other:?}"),
        };
        let value = read("t=tex2d:u8x4:16x8:linear:wrap:normalized:float=rand:0:9");
        let format = TexelFormat {
            channel: ChannelType::U8,
            channels: 4,
        };
        let sampler = Sampler {
            address: [AddressMode::Wrap; 3],
            filter: Filter::Linear,
            coordinates: Coordinates::Normalized,
            read: ReadMode::NormalizedFloat,
            ..Sampler::POINT
        };
        let image = Image::new(format, ImageShape::D2, [16, 8, 1]);
        assert_eq!(
            value.view,
            Some(View {
                image,
                sampler: Some(sampler)
            })
        );
        assert_eq!(
            (value.role, value.shape),
            (Role::In, Some((ElementType::U8, 512)))
        );
        assert_eq!(value.fill, Some(Fill::Random(Some((0.0, 9.0)))));
        let value = read("s=surfcubelayered:f32:4x2");
        let image = Image::new(
            TexelFormat {
                channel: ChannelType::F32,
                channels: 1,
            },
            ImageShape::Cubes,
            [4, 4, 12],
        );
        assert_eq!((value.role, value.fill), (Role::Out, None));
        assert_eq!(
            value.view,
            Some(View {
                image,
                sampler: None
            })
        );
        assert_eq!(read("s=surf1d:f32:4=iota").role, Role::InOut);
    }

    #[test]
    fn what_is_no_texture_is_named() {
        let cases = [
            (
                "t=tex4d:f32:4",
                "unknown texture or surface \"tex4d\": expected tex or surf followed by one of 1dfetch, 1d,",
            ),
            (
                "t=surf1dfetch:f32:4",
                "unknown texture or surface \"surf1dfetch\"",
            ),
            (
                "t=tex2d:f32",
                "a texture or surface needs a format and a size, such as f32x4:WIDTHxHEIGHT",
            ),
            (
                "t=tex2d:f64:4x4",
                "invalid texel format \"f64\": expected one of u8, s8, u16, s16, u32, s32, f16, f32, alone",
            ),
            ("t=tex2d:u8x3:4x4", "invalid texel format \"u8x3\""),
            (
                "t=tex2d:f32:4",
                "invalid size \"4\": expected WIDTHxHEIGHT, each at least 1",
            ),
            ("t=tex2d:f32:4x0", "invalid size \"4x0\""),
            ("t=tex1d:f32:4294967295", "which has at most 131072 x 1 x 1"),
            (
                "t=tex2d:f32:4x4:bilinear",
                "unknown texture option \"bilinear\": expected one of point, linear, wrap,",
            ),
            (
                "t=surf2d:f32:4x4:linear",
                "unexpected \"linear\" after the size: a surface has no options",
            ),
            (
                "t=tex2d:f32:4x4=ones",
                "invalid content \"ones\": expected zeros, iota",
            ),
        ];
        for (text, message) in cases {
            let error = text.parse::<EmuArgument>().unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
