//! Texture fetches.

use std::fmt::Write as _;

use super::case::{Case, Cases, Exact, expand, kernel};
use super::images::{self, Image, Sampler, Shape};
use super::operands::{self, Elements};
use warpwright_driver::sys::{CUaddress_mode, CUarray_format, CUfilter_mode};
use warpwright_kernels::Random;

const THREADS: usize = 391 * 128;
/// Words that a thread reads: a layer and three coordinates of 32 bits.
const READ: usize = 2;

const MODES: [(CUaddress_mode, &str); 4] = [
    (CUaddress_mode::WRAP, "wrap"),
    (CUaddress_mode::CLAMP, "clamp"),
    (CUaddress_mode::MIRROR, "mirror"),
    (CUaddress_mode::BORDER, "border"),
];

const FORMATS: [(CUarray_format, &str, &str); 8] = [
    (CUarray_format::UNSIGNED_INT8, "u8", "u32"),
    (CUarray_format::UNSIGNED_INT16, "u16", "u32"),
    (CUarray_format::UNSIGNED_INT32, "u32", "u32"),
    (CUarray_format::SIGNED_INT8, "s8", "s32"),
    (CUarray_format::SIGNED_INT16, "s16", "s32"),
    (CUarray_format::SIGNED_INT32, "s32", "s32"),
    (CUarray_format::HALF, "f16", "f32"),
    (CUarray_format::FLOAT, "f32", "f32"),
];

/// Which coordinates are given.
#[derive(Clone, Copy, PartialEq)]
enum Coordinates {
    Float,
    Integer,
    /// NaN, infinity, and coordinates that are far away.
    Odd,
}

/// A fetch: the instruction with `V` for the four registers and `C` for the handle and coordinates,
/// and its texture.
struct Fetch {
    text: String,
    shape: Shape,
    extent: [usize; 3],
    /// The format's index, and channels.
    format: (usize, usize),
    sampler: Sampler,
    coordinates: Coordinates,
}

/// A fetch of pairs of floats with texels that count from their corner, clamped.
fn plain(text: &str, shape: Shape, extent: [usize; 3]) -> Fetch {
    let sampler = Sampler {
        mode: CUaddress_mode::CLAMP,
        filter: CUfilter_mode::POINT,
        normalized: false,
        integers: false,
    };
    Fetch {
        text: text.into(),
        shape,
        extent,
        format: (7, 2),
        sampler,
        coordinates: Coordinates::Float,
    }
}

const GEOMETRIES: [(&str, Shape, [usize; 3]); 5] = [
    ("1d", Shape::D1, [64, 1, 1]),
    ("2d", Shape::D2, [16, 8, 1]),
    ("3d", Shape::D3, [8, 8, 4]),
    ("a1d", Shape::Layers1, [32, 1, 5]),
    ("a2d", Shape::Layers2, [16, 8, 3]),
];

/// Geometries with sizes that are not powers of two.
const UNEVEN: [(&str, Shape, [usize; 3]); 3] = [
    ("1d", Shape::D1, [53, 1, 1]),
    ("2d", Shape::D2, [13, 7, 1]),
    ("3d", Shape::D3, [11, 5, 3]),
];

const CUBES: [(&str, Shape, [usize; 3]); 2] = [
    ("cube", Shape::Cube, [16, 16, 6]),
    ("acube", Shape::Cubes, [8, 8, 18]),
];

pub(crate) fn cases() -> Cases {
    let all = [
        modes(),
        cubes(),
        formats(),
        whole(),
        levels(),
        gathers(),
        queries(),
    ];
    Box::new(all.into_iter().flatten().map(case))
}

const FILTERS: [CUfilter_mode; 2] = [CUfilter_mode::POINT, CUfilter_mode::LINEAR];

/// Every shape, address mode and filter.
fn modes() -> Vec<Fetch> {
    let mut all = vec![];
    for (name, shape, extent) in GEOMETRIES.into_iter().chain(UNEVEN) {
        for ((mode, _), filter) in MODES
            .into_iter()
            .flat_map(|mode| FILTERS.map(|filter| (mode, filter)))
        {
            let fetch = |normalized, coordinates| {
                let whole = plain(&format!("tex.{name}.v4.T.f32 V, C"), shape, extent);
                let sampler = Sampler {
                    mode,
                    filter,
                    normalized,
                    ..whole.sampler
                };
                Fetch {
                    sampler,
                    coordinates,
                    ..whole
                }
            };
            all.push(fetch(true, Coordinates::Float));
            if matches!(mode, CUaddress_mode::CLAMP | CUaddress_mode::BORDER) {
                all.push(fetch(false, Coordinates::Float));
            }
            if name == "2d" && extent[0] == 16 {
                all.push(fetch(true, Coordinates::Odd));
            }
        }
    }
    all
}

fn cubes() -> Vec<Fetch> {
    let mut all = vec![];
    for ((name, shape, extent), filter) in CUBES
        .into_iter()
        .flat_map(|cube| FILTERS.map(|filter| (cube, filter)))
    {
        let whole = plain(&format!("tex.{name}.v4.T.f32 V, C"), shape, extent);
        all.push(Fetch {
            sampler: Sampler {
                filter,
                normalized: true,
                ..whole.sampler
            },
            ..whole
        });
    }
    all
}

/// Every format: read as it is, and integers as floats, also between texels.
fn formats() -> Vec<Fetch> {
    let mut all = vec![];
    for (i, channels) in (0..FORMATS.len()).flat_map(|i| [1, 2, 4].map(|channels| (i, channels))) {
        let (format, _, read) = FORMATS[i];
        let fetch = |filter, integers| {
            let whole = plain("tex.2d.v4.T.f32 V, C", Shape::D2, [16, 8, 1]);
            Fetch {
                format: (i, channels),
                sampler: Sampler {
                    filter,
                    integers,
                    ..whole.sampler
                },
                ..whole
            }
        };
        let floats = read == "f32";
        all.push(fetch(CUfilter_mode::POINT, !floats));
        if images::bytes(format) < 4 && !floats {
            all.push(fetch(CUfilter_mode::POINT, false));
        }
        if images::bytes(format) < 4 || floats {
            all.push(fetch(CUfilter_mode::LINEAR, false));
        }
    }
    all
}

/// Returns fetches with integer coordinates, from arrays and from linear memory in every format.
///
/// One-dimensional arrays are left out, because a GPU returns 0 for any index and the emulator
/// reports a finding.
fn whole() -> Vec<Fetch> {
    let mut all = vec![];
    for (name, shape, extent) in GEOMETRIES
        .into_iter()
        .filter(|(_, shape, _)| *shape != Shape::D1)
    {
        for (mode, _) in [MODES[1], MODES[3]] {
            let whole = plain(&format!("tex.{name}.v4.T.s32 V, C"), shape, extent);
            let sampler = Sampler {
                mode,
                ..whole.sampler
            };
            all.push(Fetch {
                sampler,
                coordinates: Coordinates::Integer,
                ..whole
            });
        }
    }

    for (i, channels) in (0..FORMATS.len()).flat_map(|i| [1, 2, 4].map(|channels| (i, channels))) {
        let (format, _, read) = FORMATS[i];
        for integers in [true, false] {
            if integers == (read == "f32")
                || !integers && images::bytes(format) == 4 && read != "f32"
            {
                continue;
            }

            let whole = plain("tex.1d.v4.T.s32 V, C", Shape::Linear, [256, 1, 1]);
            let sampler = Sampler {
                integers,
                ..whole.sampler
            };
            all.push(Fetch {
                format: (i, channels),
                sampler,
                coordinates: Coordinates::Integer,
                ..whole
            });
        }
    }

    all
}

/// Returns fetches that name the only level, and fetches that add an offset in texels.
fn levels() -> Vec<Fetch> {
    let texts = [
        ("tex.base.2d.v4.T.f32 V, C", 1),
        ("tex.level.2d.v4.T.f32 V, C, 0f00000000", 1),
        (
            "tex.grad.2d.v4.T.f32 V, C, {0f00000000, 0f00000000}, {0f00000000, 0f00000000}",
            1,
        ),
        ("tex.2d.v4.T.f32 V, C, {3, -2}", 1),
        ("tex.level.3d.v4.T.f32 V, C, 0f00000000, {1, -1, 2, 0}", 2),
        ("tex.level.a2d.v4.T.f32 V, C, 0f00000000", 4),
        ("tex.base.1d.v4.T.f32 V, C", 0),
    ];
    let fetch = |(text, geometry): (&str, usize), filter| {
        let (_, shape, extent) = GEOMETRIES[geometry];
        let whole = plain(text, shape, extent);
        Fetch {
            sampler: Sampler {
                filter,
                ..whole.sampler
            },
            ..whole
        }
    };
    texts
        .into_iter()
        .flat_map(|text| FILTERS.map(|filter| fetch(text, filter)))
        .collect()
}

/// A channel of four texels.
fn gathers() -> Vec<Fetch> {
    let mut all = vec![];
    for text in expand("tld4{.r,.g,.b,.a}.2d.v4.T.f32 V, C") {
        for (i, integers) in [(7, false), (0, true), (4, true)] {
            for ((mode, _), normalized) in [(MODES[0], true), (MODES[1], false), (MODES[3], true)] {
                let whole = plain(&text, Shape::D2, [16, 8, 1]);
                let sampler = Sampler {
                    mode,
                    normalized,
                    integers,
                    ..whole.sampler
                };
                all.push(Fetch {
                    format: (i, 4),
                    sampler,
                    ..whole
                });
            }
        }
    }

    all.push(Fetch {
        format: (7, 4),
        ..plain("tld4.g.2d.v4.T.f32 V, C, {2, -1}", Shape::D2, [16, 8, 1])
    });
    all
}

/// Returns queries of a texture. The assembler of the driver rejects the other queries.
fn queries() -> Vec<Fetch> {
    let names = "txq{.width,.height,.depth}.b32 V, C";
    let mut all = vec![];
    for text in expand(names) {
        for (_, shape, extent) in GEOMETRIES {
            all.push(plain(&text, shape, extent));
        }
        for (i, (_, _, read)) in FORMATS.iter().enumerate() {
            let whole = plain(&text, Shape::D2, [16, 8, 1]);
            let sampler = Sampler {
                integers: *read != "f32",
                normalized: true,
                ..whole.sampler
            };
            all.push(Fetch {
                format: (i, 4),
                sampler,
                ..whole
            });
        }
    }

    all
}

/// The coordinates that count, and whether there is a layer's index before them.
fn directions(shape: Shape) -> (usize, bool) {
    match shape {
        Shape::Linear | Shape::D1 => (1, false),
        Shape::Layers1 => (1, true),
        Shape::D2 => (2, false),
        Shape::Layers2 => (2, true),
        Shape::D3 | Shape::Cube => (3, false),
        Shape::Cubes => (3, true),
    }
}

fn case(f: Fetch) -> Case {
    let (format, name, read) = FORMATS[f.format.0];
    let read = if f.sampler.integers { read } else { "f32" };
    let sampler = f.sampler;
    let mode = MODES
        .iter()
        .find(|(mode, _)| *mode == sampler.mode)
        .map_or("", |(_, name)| name);
    let filter = if sampler.filter == CUfilter_mode::LINEAR {
        ", linear"
    } else {
        ""
    };
    let normalized = if sampler.normalized {
        ", normalized"
    } else {
        ""
    };
    let odd = if f.coordinates == Coordinates::Odd {
        ", odd"
    } else {
        ""
    };
    let result = if read == "f32" && !f.text.starts_with("txq") {
        "f32"
    } else {
        "b32"
    };
    let text = f.text.replace(".T.", &format!(".{read}."));
    let (w, channels) = (f.extent, f.format.1);
    let shape = if f.shape == Shape::Linear {
        " linear memory"
    } else {
        ""
    };
    let image = Image {
        shape: f.shape,
        extent: f.extent,
        format,
        channels,
        sampler: Some(sampler),
        texels: texels(name, w.iter().product::<usize>() * channels),
    };
    Case {
        name: format!("{text} of{shape} {name}x{channels} {w:?}, {mode}{filter}{normalized}{odd}"),
        text: kernel_of(&f, &text, read),
        inputs: Box::new(move || inputs(&f)),
        stored: 2 * THREADS,
        geometry: (THREADS as u32 / 128, 128),
        each: [READ, 2],
        result,
        exact: Exact::Bits,
        image: Some(image),
    }
}

/// Random texels.
pub(crate) fn texels(ty: &str, channels: usize) -> Vec<u8> {
    let (size, mut random) = (operands::bits(ty) / 8, Random(23));
    let bytes = (channels * size).next_multiple_of(8);
    let words = operands::memory(ty, bytes, Elements::Near, &mut random);
    words
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .take(channels * size)
        .collect()
}

/// Two words for the handle, then a layer and coordinates of each thread.
fn inputs(f: &Fetch) -> Vec<u64> {
    let (mut words, mut random) = (vec![0; 2], Random(31));
    let layers = if f.shape == Shape::Cubes {
        f.extent[2] / 6
    } else {
        f.extent[2]
    };
    for _ in 0..THREADS {
        let layer = random.below(layers as u32);
        let at: [u32; 3] = std::array::from_fn(|i| coordinate(f, f.extent[i], &mut random));
        words.push(u64::from(layer) | u64::from(at[0]) << 32);
        words.push(u64::from(at[1]) | u64::from(at[2]) << 32);
    }

    words
}

/// Returns a coordinate within or near `texels` texels.
fn coordinate(f: &Fetch, texels: usize, random: &mut Random) -> u32 {
    const ODD: [u32; 8] = [
        0x7fc0_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7f7f_ffff,
        0xff7f_ffff,
        1,
        0x8000_0000,
        0x4f00_0000,
    ];
    let n = texels as u32;
    let x = match random.below(4) {
        // Halves between the steps of weights, and the borders of texels.
        0 => (random.below(3 * n * 512) as f32) / 512.0 - n as f32,
        1 => random.below(6 * n) as f32 / 2.0 - n as f32,
        2 => (random.unit() + 0.5) * n as f32,
        _ => (random.unit() + 1.0) / 2.0 * n as f32,
    };
    let x = if matches!(f.shape, Shape::Cube | Shape::Cubes) {
        random.unit()
    } else {
        x
    };
    match f.coordinates {
        Coordinates::Integer => (random.below(3 * n)).wrapping_sub(n),
        Coordinates::Odd if random.below(2) == 0 => ODD[random.below(8) as usize],
        _ if f.sampler.normalized && !matches!(f.shape, Shape::Cube | Shape::Cubes) => {
            (x / n as f32).to_bits()
        }
        _ => x.to_bits(),
    }
}

fn kernel_of(f: &Fetch, text: &str, read: &str) -> String {
    let (count, layered) = directions(f.shape);
    let names = ["%c0", "%c1", "%c2"].map(|c| {
        if f.coordinates == Coordinates::Integer {
            c.replace('c', "r")
        } else {
            c.into()
        }
    });
    let mut list: Vec<String> = names[..count].to_vec();
    if layered {
        list.insert(0, "%layer".into());
    }

    // A third coordinate is followed by one that is ignored.
    if list.len() == 3 {
        list.push(list[2].clone());
    }

    let place = format!("[%handle, {{{}}}]", list.join(", "));
    let ty = if read == "f32" { "f32" } else { "b32" };
    let declared = format!(
        ".reg .b64 %handle;\n.reg .b32 %layer, %r<3>;\n.reg .f32 %c<3>;\n.reg .{ty} %d<4>;\n.reg .b32 %w<4>;"
    );
    let mut body = String::from(
        "ld.global.b64 %handle, [%in];\nmad.wide.u32 %at, %t, 16, %in;\nld.global.v4.b32 {%layer, %r0, %r1, %r2}, [%at+16];\n",
    );
    (0..3).for_each(|i| _ = writeln!(body, "mov.b32 %c{i}, %r{i};"));
    if text.starts_with("txq") {
        // A number that is not a channel's.
        _ = writeln!(body, "{};", text.replace(" V, C", " %w0, [%handle]"));
        body += "mad.wide.u32 %at, %t, 16, %out;\nst.global.v4.b32 [%at], {%w0, 0, 0, 0};";
        return kernel(&declared, &body);
    }

    let text = text.replace(" V, C", &format!(" {{%d0, %d1, %d2, %d3}}, {place}"));
    _ = writeln!(body, "{text};");

    // A channel that is not there has no value.
    let given = if text.starts_with("tld4") {
        4
    } else {
        f.format.1
    };
    for i in 0..4 {
        let from = if i < given {
            format!("%d{i}")
        } else {
            "0".into()
        };
        _ = writeln!(body, "mov.b32 %w{i}, {from};");
    }

    body += "mad.wide.u32 %at, %t, 16, %out;\nst.global.v4.b32 [%at], {%w0, %w1, %w2, %w3};";
    kernel(&declared, &body)
}
