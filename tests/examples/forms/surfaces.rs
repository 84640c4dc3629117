//! Loads from surfaces, stores to them, and reductions.

use super::case::{Case, Cases, Exact, expand, kernel, list};
use super::images::{self, Image, Shape};
use super::textures::texels;
use warpwright_driver::sys::CUarray_format;
use warpwright_kernels::Random;

/// The types of accesses, with a format whose texels have that size.
const ACCESSES: [(&str, CUarray_format, usize); 11] = [
    ("b8", CUarray_format::UNSIGNED_INT8, 1),
    ("b16", CUarray_format::UNSIGNED_INT16, 1),
    ("b32", CUarray_format::UNSIGNED_INT32, 1),
    ("b32", CUarray_format::UNSIGNED_INT8, 4),
    ("b64", CUarray_format::UNSIGNED_INT32, 2),
    ("v2.b8", CUarray_format::SIGNED_INT8, 2),
    ("v4.b16", CUarray_format::HALF, 4),
    ("v2.b32", CUarray_format::UNSIGNED_INT32, 2),
    ("v4.b32", CUarray_format::FLOAT, 4),
    ("v2.b64", CUarray_format::UNSIGNED_INT32, 4),
    ("v2.b16", CUarray_format::UNSIGNED_INT16, 2),
];

const GEOMETRIES: [(&str, Shape, [usize; 3]); 5] = [
    ("1d", Shape::D1, [2048, 1, 1]),
    ("2d", Shape::D2, [64, 32, 1]),
    ("3d", Shape::D3, [32, 16, 8]),
    ("a1d", Shape::Layers1, [512, 1, 6]),
    ("a2d", Shape::Layers2, [32, 16, 5]),
];

const OUTSIDE: [&str; 3] = ["trap", "clamp", "zero"];

/// Reductions: names in which a geometry replaces `@`, and the type of the access.
const REDUCTIONS: [(&str, &str, CUarray_format, usize); 7] = [
    (
        "sured.b{.add,.min,.max}@{.u32,.s32}",
        "b32",
        CUarray_format::UNSIGNED_INT32,
        1,
    ),
    (
        "sured.b{.and,.or}@.b32",
        "b32",
        CUarray_format::UNSIGNED_INT32,
        1,
    ),
    (
        "sured.b{.add,.min,.max}@.u64",
        "b64",
        CUarray_format::UNSIGNED_INT32,
        2,
    ),
    (
        "sured.b{.min,.max}@.s64",
        "b64",
        CUarray_format::UNSIGNED_INT32,
        2,
    ),
    (
        "sured.p{.add,.min,.max,.and,.or}@.b32",
        "b32",
        CUarray_format::UNSIGNED_INT32,
        1,
    ),
    (
        "sured.p{.add,.min,.max}@.b32",
        "b32",
        CUarray_format::SIGNED_INT32,
        1,
    ),
    (
        "sured.p{.and,.or}@.b32",
        "b32",
        CUarray_format::SIGNED_INT32,
        1,
    ),
];

/// An access, by its whole name.
struct Access {
    name: String,
    accessed: &'static str,
    format: CUarray_format,
    channels: usize,
    shape: Shape,
    extent: [usize; 3],
}

pub(crate) fn cases() -> Cases {
    let mut all = vec![];
    for ((geometry, shape, extent), outside) in
        GEOMETRIES.into_iter().flat_map(|g| OUTSIDE.map(|o| (g, o)))
    {
        for (accessed, format, channels) in ACCESSES {
            for act in ["suld", "sust"] {
                let name = format!("{act}.b.{geometry}.{accessed}.{outside}");
                all.push(Access {
                    name,
                    accessed,
                    format,
                    channels,
                    shape,
                    extent,
                });
            }
        }
        if geometry.starts_with('a') {
            continue;
        }
        for (pattern, accessed, format, channels) in REDUCTIONS {
            for name in expand(&format!(
                "{}.{outside}",
                pattern.replace('@', &format!(".{geometry}"))
            )) {
                all.push(Access {
                    name,
                    accessed,
                    format,
                    channels,
                    shape,
                    extent,
                });
            }
        }
    }

    // Instructions that a GPU may reject for a surface come last.
    all.sort_by_key(|access| access.name.starts_with("sured"));
    Box::new(all.into_iter().map(case))
}

/// Elements that are accessed at once, and the bits of each.
fn parts(accessed: &str) -> (usize, usize) {
    let (count, ty) = match accessed.split_once('.') {
        Some((count, ty)) => (count[1..].parse().unwrap_or(1), ty),
        None => (1, accessed),
    };
    (count, ty[1..].parse().unwrap_or(32))
}

fn threads(a: &Access) -> usize {
    a.extent.iter().product::<usize>()
}

fn case(a: Access) -> Case {
    let format = match a.format {
        CUarray_format::UNSIGNED_INT8 => "u8",
        CUarray_format::SIGNED_INT8 => "s8",
        CUarray_format::UNSIGNED_INT16 => "u16",
        CUarray_format::HALF => "f16",
        CUarray_format::SIGNED_INT32 => "s32",
        CUarray_format::FLOAT => "f32",
        _ => "u32",
    };
    let repeats = if a.name.starts_with("suld") { LOADS } else { 1 };
    let count = repeats * threads(&a);
    let image = Image {
        shape: a.shape,
        extent: a.extent,
        format: a.format,
        channels: a.channels,
        sampler: None,
        texels: texels(format, threads(&a) * a.channels),
    };
    Case {
        name: format!("{} of {format}x{} {:?}", a.name, a.channels, a.extent),
        text: text(&a),
        stored: 2 * count,
        geometry: ((count / 128) as u32, 128),
        inputs: Box::new(move || inputs(&a, repeats)),
        each: [READ, 2],
        result: "b64",
        exact: Exact::Bits,
        image: Some(image),
    }
}

/// Loads of each texel.
const LOADS: usize = 24;
/// Words that a thread reads: its place, 0 and three coordinates of 32 bits, and 16 bytes to store.
const READ: usize = 4;

/// Two words for the handle, then places and values. Of stores and reductions, no two have the same
/// place.
fn inputs(a: &Access, repeats: usize) -> Vec<u64> {
    let (mut words, mut random) = (vec![0; 2], Random(37));
    let texel = a.channels * images::bytes(a.format);

    // The coordinates of `sured.p` count texels, and all others count bytes.
    let step = if a.name.starts_with("sured.p") {
        1
    } else {
        texel as i32
    };
    let outside = a.name.rsplit('.').next().unwrap_or_default();
    for i in 0..repeats * threads(a) {
        let [w, h, _] = a.extent;
        let mut at = [i % w, i / w % h, i / w / h % a.extent[2]].map(|c| c as i32);
        let layered = matches!(a.shape, Shape::Layers1 | Shape::Layers2);
        let directions = match a.shape {
            Shape::D1 | Shape::Layers1 => 1,
            Shape::D2 | Shape::Layers2 => 2,
            _ => 3,
        };
        for (c, n) in at.iter_mut().zip(a.extent).take(directions) {
            *c = moved(*c, n as i32, outside, &mut random);
        }

        at[0] *= step;
        let layer = if layered { at[2] } else { 0 };
        let [x, y, z] = at.map(|c| u64::from(c.cast_unsigned()));
        words.extend([
            u64::from(layer.cast_unsigned()) | x << 32,
            y | z << 32,
            random.bits(),
            random.bits(),
        ]);
    }

    words
}

/// A coordinate that is accessed instead: at the edge, one that is clamped to it, and elsewhere, of
/// those that are dropped, sometimes one outside.
fn moved(at: i32, n: i32, outside: &str, random: &mut Random) -> i32 {
    let far = 1 + random.below(100) as i32;
    match outside {
        "clamp" if at == 0 && n > 1 => -far,
        "clamp" if at == n - 1 => at + far,
        "zero" if random.below(4) == 0 => [-far, n - 1 + far][random.below(2) as usize],
        _ => at,
    }
}

fn text(a: &Access) -> String {
    let (count, bits) = parts(a.accessed);

    // Registers have 16 bits at least.
    let width = bits.max(16);
    let place = match a.shape {
        Shape::D1 => "{%x}",
        Shape::D2 => "{%x, %y}",
        Shape::Layers1 => "{%layer, %x}",
        Shape::Layers2 => "{%layer, %x, %y, %y}",
        _ => "{%x, %y, %z, %z}",
    };
    let registers = if count == 1 {
        "%d0".to_owned()
    } else {
        list("d", 0, count)
    };
    let declared = format!(
        ".reg .b64 %handle, %v<2>, %w;\n.reg .b32 %layer, %x, %y, %z;\n.reg .b{width} %d<{count}>;"
    );
    let mut body = String::from(
        "ld.global.b64 %handle, [%in];\nmad.wide.u32 %at, %t, 32, %in;\nld.global.v4.b32 {%layer, %x, %y, %z}, [%at+16];\n\
         ld.global.v2.b64 {%v0, %v1}, [%at+32];\n",
    );
    for i in 0..count {
        let from = format!("shr.u64 %w, %v{}, {};\n", i * bits / 64, i * bits % 64);
        body += &from;
        body += &if width == 64 {
            format!("mov.b64 %d{i}, %w;\n")
        } else {
            format!("cvt.u{width}.u64 %d{i}, %w;\n")
        };
    }

    let loads = a.name.starts_with("suld");
    body += &if loads {
        format!("{} {registers}, [%handle, {place}];\n", a.name)
    } else {
        format!("{} [%handle, {place}], {registers};\n", a.name)
    };
    body += "mov.b64 %v0, 0;\nmov.b64 %v1, 0;\n";
    for i in (0..count).filter(|_| loads) {
        let (word, at) = (i * bits / 64, i * bits % 64);
        body += &if width == 64 {
            format!("mov.b64 %w, %d{i};\n")
        } else {
            format!("cvt.u64.u{width} %w, %d{i};\n")
        };
        body += &format!("shl.b64 %w, %w, {at};\nor.b64 %v{word}, %v{word}, %w;\n");
    }

    body += "mad.wide.u32 %at, %t, 16, %out;\nst.global.v2.b64 [%at], {%v0, %v1};";
    kernel(&declared, &body)
}
