//! Textures against formulas of the CUDA C++ Programming Guide, "Texture Fetching", written once more and as they stand there;
//! in several directions weights are rounded more than once, so means are near those of the formulas.

use ptx_emu::{
    AddressMode, ChannelType, Class, Coordinates, Fault, Filter, Image, ImageShape, Launch, Memory,
    Module, ReadMode, Sampler, Schedule, TexelFormat, Trace, run,
};

/// A kernel whose threads have four words of input in `%c0` to `%c3`, run `body`, and store the first `outputs` of `%d0` to
/// `%d3`; the handle is in `%t`.
fn program(body: &str, outputs: usize) -> String {
    let store: String = (0..outputs)
        .map(|i| format!("st.global.b32 [%out+{}], %d{i};\n", 4 * i))
        .collect();
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .visible .entry k(.param .u64 t, .param .u64 in, .param .u64 out)\n{{\n\
         .reg .b64 %t, %in, %out, %w; .reg .b32 %c<4>, %d<4>, %i; .reg .b16 %h<4>; .reg .pred %p;\n\
         ld.param.u64 %t, [t]; ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %i, %tid.x;\n\
         mad.wide.u32 %in, %i, 16, %in; mad.wide.u32 %out, %i, 16, %out;\n\
         ld.global.v4.b32 {{%c0, %c1, %c2, %c3}}, [%in];\n{body}\n{store}ret;\n}}\n"
    )
}

pub(crate) type Words = [u32; 4];

/// Runs a body for some inputs; gives the outputs.
pub(crate) fn launch(
    memory: &Memory,
    handle: u64,
    body: &str,
    n: usize,
    inputs: &[Words],
) -> Result<Vec<Words>, Box<Fault>> {
    let text = program(body, n);
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let bytes = 16 * inputs.len() as u64;
    let (input, out) = (
        memory.alloc(bytes).expect("room"),
        memory.alloc(bytes).expect("room"),
    );
    memory
        .write(
            input,
            &inputs
                .iter()
                .flatten()
                .flat_map(|w| w.to_le_bytes())
                .collect::<Vec<_>>(),
        )
        .expect("it");
    let params: Vec<u8> = [handle, input, out]
        .iter()
        .flat_map(|p| p.to_le_bytes())
        .collect();
    let kernel = module.kernel("k").expect("it is in the text");
    let block = [inputs.len() as u32, 1, 1];
    let launch = Launch {
        kernel,
        grid: [1; 3],
        block,
        dynamic_shared: 0,
        params: &params,
    };
    run(memory, &launch, &Schedule::default(), Trace::On)?;
    let mut bytes = vec![0; 16 * inputs.len()];
    memory.read(out, &mut bytes).expect("it");
    let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    Ok(bytes
        .chunks(16)
        .map(|row| std::array::from_fn(|i| word(&row[4 * i..4 * i + 4])))
        .collect())
}

/// An image of bytes, row by row.
pub(crate) fn image(
    memory: &Memory,
    format: TexelFormat,
    shape: ImageShape,
    extent: [u32; 3],
    texels: &[u8],
) -> Image {
    let mut image = Image::new(format, shape, extent);
    image.address = memory.alloc(image.bytes()).expect("room");
    memory.set_label(image.address, "image");
    for (i, row) in texels.chunks(image.row_bytes() as usize).enumerate() {
        memory
            .write(image.address + i as u64 * image.pitch, row)
            .expect("it is there");
    }
    image
}

const FLOAT: TexelFormat = TexelFormat {
    channel: ChannelType::F32,
    channels: 1,
};

/// The value of a texel.
fn value(i: u32) -> f32 {
    (i * 37 % 101) as f32 - 50.0
}

fn floats(memory: &Memory, shape: ImageShape, extent: [u32; 3]) -> Image {
    let bytes: Vec<u8> = (0..extent.iter().product())
        .flat_map(|i| value(i).to_le_bytes())
        .collect();
    image(memory, FLOAT, shape, extent, &bytes)
}

fn texture(memory: &Memory, image: &Image, sampler: &Sampler) -> u64 {
    memory
        .add_texture(image, sampler)
        .unwrap_or_else(|e| panic!("{e}"))
}

const MODES: [AddressMode; 4] = [
    AddressMode::Wrap,
    AddressMode::Clamp,
    AddressMode::Mirror,
    AddressMode::Border,
];
const BORDER: f32 = 9.0;

/// The guide on one direction of `n` texels: the neighbours of a coordinate, which may lie outside, and alpha.
fn guide(x: f32, n: u32, s: &Sampler) -> ([i64; 2], f64) {
    let (mut x, n) = (f64::from(x), f64::from(n));
    if s.coordinates == Coordinates::Normalized {
        x = (x * 2f64.powi(21)).floor() / 2f64.powi(21);
        x = match s.address[0] {
            AddressMode::Wrap => x - x.floor(),
            // The second half of a turn is mirrored by texels.
            AddressMode::Mirror => x - 2.0 * (x / 2.0).floor(),
            _ => x,
        } * n;
    }

    let x = if x.is_nan() { 0.0 } else { x.clamp(-1e9, 1e9) };
    match s.filter {
        Filter::Point => ([x.floor() as i64; 2], 0.0),
        Filter::Linear => {
            let b = x - 0.5;
            (
                [b.floor() as i64, b.floor() as i64 + 1],
                ((b - b.floor()) * 256.0).round() / 256.0,
            )
        }
    }
}

/// The texel that an index outside stands for, step by step.
fn outside(mut i: i64, n: i64, s: &Sampler) -> Option<i64> {
    let repeats = s.coordinates == Coordinates::Normalized;
    match s.address[0] {
        AddressMode::Border => return (0..n).contains(&i).then_some(i),
        AddressMode::Wrap if repeats => {
            while i < 0 {
                i += n;
            }
            while i >= n {
                i -= n;
            }
        }
        AddressMode::Mirror if repeats => {
            while !(0..n).contains(&i) {
                i = if i < 0 { -1 - i } else { 2 * n - 1 - i };
            }
        }
        _ => i = i.max(0).min(n - 1),
    }
    Some(i)
}

/// tex(x, y, z) as the guide writes it: the sum over all neighbours. One dimension has y = 0.
fn expected(at: &[f32], extent: [u32; 3], s: &Sampler) -> f32 {
    let at = if let [x] = at { &[*x, 0.0] } else { at };
    let directions: Vec<_> = at
        .iter()
        .zip(extent)
        .map(|(x, n)| (guide(*x, n, s), i64::from(n)))
        .collect();
    let mut sum = 0.0;
    for corner in 0..1usize << at.len() {
        let (mut weight, mut index, mut stride, mut border) = (1.0, 0, 1, false);
        for (d, ((neighbours, alpha), n)) in directions.iter().enumerate() {
            let second = corner >> d & 1;
            weight *= if second == 1 { *alpha } else { 1.0 - alpha };
            match outside(neighbours[second], *n, s) {
                Some(i) => index += i * stride,
                None => border = true,
            }
            stride *= n;
        }
        sum += weight * f64::from(if border { BORDER } else { value(index as u32) });
    }

    sum as f32
}

/// Coordinates at texels' centres and borders, outside, far outside, and no numbers.
fn corners(n: u32, coordinates: Coordinates) -> Vec<f32> {
    let n = n as f32;
    let plain = [
        -2.5, -1.0, -0.5, -0.25, -0.001, -0.0, 0.25, 0.5, 0.75, 1.0, 1.3, 1.5, 2.503, 3.499, 7.25,
    ];
    let ends = [
        n - 1.0,
        n - 0.5,
        n - 0.001,
        n,
        n + 0.5,
        2.0 * n,
        2.0 * n + 0.3,
        3.0 * n - 0.7,
        -n,
        -1.6 * n,
    ];
    let scale = if coordinates == Coordinates::Normalized {
        n
    } else {
        1.0
    };
    let far = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        1e30,
        -1e30,
        f32::MIN_POSITIVE,
    ];
    plain
        .iter()
        .chain(&ends)
        .map(|x| x / scale)
        .chain(far)
        .collect()
}

pub(crate) fn bits(all: &[f32]) -> Words {
    std::array::from_fn(|i| all.get(i).map_or(0, |x| x.to_bits()))
}

/// Fetches in one shape, with every sampler.
fn follows_the_guide(
    shape: ImageShape,
    extent: [u32; 3],
    body: &str,
    points: &dyn Fn(Coordinates) -> Vec<Vec<f32>>,
) {
    let memory = Memory::new(1 << 24);
    let image = floats(&memory, shape, extent);
    for mode in MODES {
        for (filter, coordinates) in [Filter::Point, Filter::Linear]
            .into_iter()
            .flat_map(|f| [Coordinates::Texels, Coordinates::Normalized].map(|c| (f, c)))
        {
            let sampler = Sampler {
                address: [mode; 3],
                filter,
                coordinates,
                border: [BORDER.to_bits(); 4],
                ..Sampler::POINT
            };
            let handle = texture(&memory, &image, &sampler);
            let points = points(coordinates);
            let inputs: Vec<Words> = points.iter().map(|p| bits(p)).collect();
            let found = launch(&memory, handle, body, 1, &inputs).unwrap_or_else(|f| panic!("{f}"));
            for (point, found) in points.iter().zip(found) {
                let (found, wanted) = (f32::from_bits(found[0]), expected(point, extent, &sampler));

                // Half a 256th and one for each of the texels, which are 50 at most.
                let exact =
                    filter == Filter::Point || point.len() == 1 && mode != AddressMode::Border;
                let bound = if exact {
                    0.0
                } else {
                    [0.4, 0.4, 1.6][point.len() - 1]
                };
                assert!(
                    (found - wanted).abs() <= bound,
                    "{point:?} {mode:?} {filter:?} {coordinates:?}: {found}, not {wanted}"
                );
            }
        }
    }
}

#[test]
fn one_dimension_follows_the_guide() {
    let body = "tex.1d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%c0}];";
    for n in [1, 5, 8] {
        let points = move |c| corners(n, c).into_iter().map(|x| vec![x]).collect();
        follows_the_guide(ImageShape::D1, [n, 1, 1], body, &points);
    }
}

#[test]
fn two_dimensions_follow_the_guide() {
    let body = "tex.2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%c0, %c1}];";
    let points = |c| {
        let (x, y) = (corners(7, c), corners(4, c));
        (0..x.len() * 7)
            .map(|i| vec![x[i % x.len()], y[(i * 5 + i / 31) % y.len()]])
            .collect()
    };
    follows_the_guide(ImageShape::D2, [7, 4, 1], body, &points);
}

#[test]
fn three_dimensions_follow_the_guide() {
    let body =
        "tex.level.3d.v4.f32.f32 {%d0, %d1, %d2, %d3}|%p, [%t, {%c0, %c1, %c2, %c2}], 0f40000000;";
    let points = |c| {
        let (x, y, z) = (corners(3, c), corners(4, c), corners(5, c));
        let at = |i: usize| {
            vec![
                x[i % x.len()],
                y[(i * 7 + 3) % y.len()],
                z[(i * 11 + i / 31) % z.len()],
            ]
        };
        (0..x.len() * 7).map(at).collect()
    };
    follows_the_guide(ImageShape::D3, [3, 4, 5], body, &points);
}

/// A texel of a format, the fetch's type, the read mode, and what the kernel gets.
#[test]
fn channels_are_what_formats_say() {
    use ChannelType::{F16, F32, S8, S16, S32, U8, U16, U32};
    let f = |all: [f32; 4]| all.map(f32::to_bits);
    let cases: &[(ChannelType, u32, &[u8], ReadMode, Words)] = &[
        (
            U8,
            4,
            &[0, 1, 128, 255],
            ReadMode::Element,
            [0, 1, 128, 255],
        ),
        (
            U8,
            4,
            &[0, 51, 102, 255],
            ReadMode::NormalizedFloat,
            f([0.0, 0.2, 0.4, 1.0]),
        ),
        (
            S8,
            4,
            &[0x80, 0x81, 0xff, 127],
            ReadMode::Element,
            [-128, -127, -1, 127].map(i32::cast_unsigned),
        ),
        (
            S8,
            4,
            &[0x80, 0x81, 0, 127],
            ReadMode::NormalizedFloat,
            f([-1.0, -1.0, 0.0, 1.0]),
        ),
        (
            U16,
            2,
            &[0xff, 0xff, 1, 0],
            ReadMode::Element,
            [65_535, 1, 0, 0],
        ),
        (
            U16,
            2,
            &[0xff, 0xff, 0x33, 0x33],
            ReadMode::NormalizedFloat,
            f([1.0, 0.2, 0.0, 0.0]),
        ),
        (
            S16,
            2,
            &[0, 0x80, 0xff, 0x7f],
            ReadMode::Element,
            [-32_768, 32_767, 0, 0].map(i32::cast_unsigned),
        ),
        (
            S16,
            2,
            &[0, 0x80, 0xff, 0x7f],
            ReadMode::NormalizedFloat,
            f([-1.0, 1.0, 0.0, 0.0]),
        ),
        (
            U32,
            1,
            &[1, 2, 3, 0xff],
            ReadMode::Element,
            [0xff03_0201, 0, 0, 0],
        ),
        // Integers of 32 bits stay what they are.
        (
            S32,
            1,
            &[0xff; 4],
            ReadMode::NormalizedFloat,
            [u32::MAX, 0, 0, 0],
        ),
        (
            F16,
            2,
            &[0, 0x3c, 1, 0x80],
            ReadMode::Element,
            f([1.0, -5.960_464_5e-8, 0.0, 0.0]),
        ),
        (
            F32,
            1,
            &[0, 0, 0xc0, 0x7f],
            ReadMode::Element,
            [0x7fc0_0000, 0, 0, 0],
        ),
    ];
    for (channel, channels, texel, read, wanted) in cases {
        let memory = Memory::new(1 << 20);
        let format = TexelFormat {
            channel: *channel,
            channels: *channels,
        };
        let texels = [*texel, *texel].concat();
        let image = image(&memory, format, ImageShape::D2, [2, 1, 1], &texels);
        let handle = texture(
            &memory,
            &image,
            &Sampler {
                read: *read,
                ..Sampler::POINT
            },
        );
        let floats =
            channel.is_float() || *read == ReadMode::NormalizedFloat && channel.bytes() < 4;
        let ty = if floats { "f32" } else { "u32" };
        let body = format!("tex.2d.v4.{ty}.s32 {{%d0, %d1, %d2, %d3}}, [%t, {{%c0, %c1}}];");
        let found = launch(&memory, handle, &body, *channels as usize, &[[1, 0, 0, 0]]);
        assert_eq!(
            found.unwrap_or_else(|f| panic!("{f}"))[0],
            *wanted,
            "{channel:?} {read:?}"
        );
    }
}

/// Runs a body on floats of a shape, with a sampler, for one input.
fn one(
    shape: ImageShape,
    extent: [u32; 3],
    sampler: &Sampler,
    body: &str,
    n: usize,
    input: Words,
) -> Result<Words, Box<Fault>> {
    let memory = Memory::new(1 << 20);
    let image = floats(&memory, shape, extent);
    let handle = texture(&memory, &image, sampler);
    launch(&memory, handle, body, n, &[input]).map(|all| all[0])
}

fn at(x: f32, y: f32, z: f32) -> Words {
    bits(&[x, y, z])
}

#[test]
fn gathers_go_counter_clockwise_from_the_lower_left() {
    let body = "tld4.r.2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%c0, %c1}];";
    let found = one(
        ImageShape::D2,
        [4, 3, 1],
        &Sampler::POINT,
        body,
        4,
        at(1.7, 1.2, 0.0),
    )
    .expect("it reads");

    // The four texels around (1.7, 1.2) are those of columns 1 and 2 in rows 0 and 1.
    assert_eq!(found.map(f32::from_bits), [5, 6, 2, 1].map(value));
    let body = "tld4.g.2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%c0, %c1}];";
    let fault = one(
        ImageShape::D2,
        [4, 3, 1],
        &Sampler::POINT,
        body,
        1,
        at(1.7, 1.2, 0.0),
    )
    .expect_err("no green");
    assert_eq!(fault.class, Class::UninitialisedRegister);
}

#[test]
fn layers_are_chosen_by_their_index() {
    let body = "tex.a2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%c0, %c1, %c2, %c2}];";
    for layer in 0..3 {
        let input = [layer, 2.5f32.to_bits(), 1.5f32.to_bits(), 0];
        let found = one(
            ImageShape::Layers2,
            [4, 2, 3],
            &Sampler::POINT,
            body,
            1,
            input,
        )
        .expect("it reads");
        assert_eq!(f32::from_bits(found[0]), value(layer * 8 + 4 + 2));
    }

    let body = "tex.a1d.v4.f32.s32 {%d0, %d1, %d2, %d3}, [%t, {%c0, %c1}], {1};";
    let found = one(
        ImageShape::Layers1,
        [4, 1, 3],
        &Sampler::POINT,
        body,
        1,
        [2, 1, 0, 0],
    )
    .expect("it reads");
    assert_eq!(f32::from_bits(found[0]), value(2 * 4 + 1 + 1));
    let fault = one(
        ImageShape::Layers1,
        [4, 1, 3],
        &Sampler::POINT,
        body,
        1,
        [3, 1, 0, 0],
    )
    .expect_err("no layer");
    assert_eq!(
        (fault.class, fault.what.as_str()),
        (Class::OutOfBounds, "layer 3 of a texture of 3")
    );
}

/// The middle of each texel of each face of a cube from -1 to 1: x goes right and y down where one looks at the face from
/// within, with the axes of the guide's table.
#[test]
fn directions_lead_to_the_faces_of_cubes() {
    let n = 3;
    let middle = |i: u32| (2 * i + 1) as f32 / n as f32 - 1.0;
    let directions = |face: u32, s: f32, t: f32| match face {
        0 => [1.0, -t, -s],
        1 => [-1.0, -t, s],
        2 => [s, 1.0, t],
        3 => [s, -1.0, -t],
        4 => [s, -t, 1.0],
        _ => [-s, -t, -1.0],
    };
    let (memory, mut inputs, mut wanted) = (Memory::new(1 << 20), Vec::new(), Vec::new());
    for (face, row, column) in
        (0..6).flat_map(|f| (0..n).flat_map(move |r| (0..n).map(move |c| (f, r, c))))
    {
        let direction = directions(face, middle(column), middle(row)).map(|x| x * 1.5);
        inputs.push([
            1,
            direction[0].to_bits(),
            direction[1].to_bits(),
            direction[2].to_bits(),
        ]);
        wanted.push(value((6 + face) * n * n + row * n + column));
    }

    let image = floats(&memory, ImageShape::Cubes, [n, n, 12]);
    for filter in [Filter::Point, Filter::Linear] {
        let handle = texture(
            &memory,
            &image,
            &Sampler {
                filter,
                ..Sampler::POINT
            },
        );
        let body = "tex.acube.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%c0, %c1, %c2, %c3}];";
        let found = launch(&memory, handle, body, 1, &inputs).unwrap_or_else(|f| panic!("{f}"));
        assert_eq!(
            found
                .iter()
                .map(|w| f32::from_bits(w[0]))
                .collect::<Vec<_>>(),
            wanted
        );
    }
}

#[test]
fn linear_memory_is_read_by_index_and_is_nothing_beyond() {
    let body = "tex.1d.v4.f32.s32 {%d0, %d1, %d2, %d3}, [%t, {%c0}];";
    for (i, wanted) in [
        (0, value(0)),
        (6, value(6)),
        (7, 0.0),
        (-1, 0.0),
        (i32::MIN, 0.0),
        (i32::MAX, 0.0),
    ] {
        let input = [i.cast_unsigned(), 0, 0, 0];
        let found = one(
            ImageShape::Linear,
            [7, 1, 1],
            &Sampler::POINT,
            body,
            1,
            input,
        )
        .expect("it reads");
        assert_eq!(f32::from_bits(found[0]), wanted, "{i}");
    }
}

#[test]
fn queries_say_what_an_image_is() {
    let memory = Memory::new(1 << 20);
    let format = TexelFormat {
        channel: ChannelType::U8,
        channels: 4,
    };
    let image = image(
        &memory,
        format,
        ImageShape::Layers2,
        [5, 3, 2],
        &[1; 5 * 4 * 3 * 2],
    );
    let sampler = Sampler {
        read: ReadMode::NormalizedFloat,
        coordinates: Coordinates::Normalized,
        ..Sampler::POINT
    };
    let handles = [
        texture(&memory, &image, &sampler),
        memory.add_surface(&image).expect("a surface"),
    ];
    let cases = [
        ("txq.width", 5),
        ("txq.height", 3),
        ("txq.depth", 2),
        ("txq.array_size", 2),
        ("txq.channel_data_type", 0x10d2),
        ("txq.channel_order", 0x10b5),
        ("txq.normalized_coords", 1),
        ("txq.num_mipmap_levels", 1),
        ("suq.width", 5),
        ("suq.array_size", 2),
        ("suq.channel_data_type", 0x10da),
    ];
    for (question, wanted) in cases {
        let handle = handles[usize::from(question.starts_with("suq"))];
        let found = launch(
            &memory,
            handle,
            &format!("{question}.b32 %d0, [%t];"),
            1,
            &[[0; 4]],
        );
        assert_eq!(
            found.unwrap_or_else(|f| panic!("{f}"))[0][0],
            wanted,
            "{question}"
        );
    }
}

const TEX2: &str = "tex.2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%c0, %c1}];";

/// What is wrong with a fetch.
#[test]
fn fetches_of_what_is_not_there_are_findings() {
    let memory = Memory::new(1 << 20);
    let image = floats(&memory, ImageShape::D2, [4, 4, 1]);
    let whole = texture(&memory, &image, &Sampler::POINT);
    let surface = memory.add_surface(&image).expect("a surface");
    let gone = texture(&memory, &image, &Sampler::POINT);
    memory.remove_object(gone).expect("it was there");
    let missing = |handle: u64, body: &str, n: usize| {
        let fault = launch(&memory, handle, body, n, &[[0; 4]]).expect_err("a finding");
        (fault.class, fault.what.clone())
    };
    let text = |what: &str| what.to_string();
    assert_eq!(
        missing(7, TEX2, 1),
        (
            Class::Descriptor,
            text("0x7 is not the handle of a texture: it was never created")
        )
    );
    let what = format!("0x{surface:x} is the handle of a surface, not of a texture");
    assert_eq!(missing(surface, TEX2, 1), (Class::Descriptor, what));
    let what = format!("the texture 0x{gone:x} is used after it was destroyed");
    assert_eq!(missing(gone, TEX2, 1), (Class::AfterFree, what));
    let body = TEX2.replace("tex.2d", "tex.1d").replace(", %c1", "");
    let what = text("a texture is 2D, where this instruction is of a 1D one");
    assert_eq!(missing(whole, &body, 1), (Class::Descriptor, what));
    let what = text("a texture gives floats, and this instruction takes integers");
    assert_eq!(
        missing(whole, &TEX2.replace("v4.f32", "v4.s32"), 1),
        (Class::Descriptor, what)
    );
    let what = text("register %d1 is read before it is written");
    assert_eq!(
        missing(whole, TEX2, 2),
        (Class::UninitialisedRegister, what)
    );
    memory.free(image.address).expect("it was there");
    assert_eq!(missing(whole, TEX2, 1).0, Class::AfterFree);
}

#[test]
fn texels_that_nobody_wrote_or_that_the_launch_writes_are_findings() {
    let memory = Memory::new(1 << 20);
    let mut image = Image::new(FLOAT, ImageShape::D2, [4, 4, 1]);
    image.address = memory.alloc(image.bytes()).expect("room");
    let handle = texture(
        &memory,
        &image,
        &Sampler {
            filter: Filter::Linear,
            ..Sampler::POINT
        },
    );
    memory
        .write(image.address, &1f32.to_le_bytes())
        .expect("it is there");

    // The middle of the first texel is that texel alone.
    let found = launch(&memory, handle, TEX2, 1, &[at(0.5, 0.5, 0.0)]).expect("it reads");
    assert_eq!(f32::from_bits(found[0][0]), 1.0);
    let fault = launch(&memory, handle, TEX2, 1, &[at(0.75, 0.5, 0.0)])
        .expect_err("nobody wrote the second");
    assert_eq!(fault.class, Class::UninitialisedGlobal);
    let store = format!("mov.u64 %w, {}; st.global.b32 [%w], %c0;", image.address);
    let after = launch(
        &memory,
        handle,
        &format!("{TEX2}\n{store}"),
        1,
        &[at(0.5, 0.5, 0.0)],
    );
    assert_eq!(after.expect("it is read first")[0][0], 1f32.to_bits());
    let before = launch(
        &memory,
        handle,
        &format!("{store}\n{TEX2}"),
        1,
        &[at(0.5, 0.5, 0.0)],
    );
    let fault = before.expect_err("it is written first");
    assert_eq!(fault.class, Class::ReadOnlyWritten);
    let what = format!(
        "a texture reads 0x{:x}, which was written before in the same launch",
        image.address
    );
    assert_eq!(
        (fault.what.as_str(), fault.other.as_ref().map(|o| o.did)),
        (what.as_str(), Some("wrote"))
    );
    let racing =
        format!("setp.eq.u32 %p, %i, 32; @%p bra W; {TEX2} ret; W: {store} mov.b32 %d0, 0;");
    let fault = launch(&memory, handle, &racing, 1, &[at(0.5, 0.5, 0.0); 64])
        .expect_err("another warp writes it");
    assert_eq!(fault.class, Class::GlobalRace);
}

#[test]
fn images_and_samplers_that_do_not_exist_are_refused() {
    let memory = Memory::new(1 << 20);
    let plain = Image::new(FLOAT, ImageShape::D2, [4, 4, 1]);
    let refused = |image: Image, sampler: Sampler| {
        memory
            .add_texture(&image, &sampler)
            .expect_err("refused")
            .to_string()
    };
    let three = TexelFormat {
        channel: ChannelType::U8,
        channels: 3,
    };
    let integers = TexelFormat {
        channel: ChannelType::U8,
        channels: 4,
    };
    let linear = Sampler {
        filter: Filter::Linear,
        ..Sampler::POINT
    };
    let cases = [
        (
            refused(
                Image {
                    format: three,
                    ..plain.clone()
                },
                Sampler::POINT,
            ),
            "an image cannot have 3 channels: it has 1, 2 or 4",
        ),
        (
            refused(
                Image {
                    extent: [4, 0, 1],
                    ..plain.clone()
                },
                Sampler::POINT,
            ),
            "an image cannot have a size of 4 x 0 x 1 texels: each must be at least 1",
        ),
        (
            refused(
                Image {
                    pitch: 8,
                    ..plain.clone()
                },
                Sampler::POINT,
            ),
            "an image cannot have a pitch of 8 bytes: at least the 16 of a row, and a multiple of the 4 of a texel",
        ),
        (
            refused(
                Image {
                    address: 8,
                    ..plain.clone()
                },
                Sampler::POINT,
            ),
            "an image cannot have texels at 0x8, which is not a multiple of 16",
        ),
        (
            refused(
                Image {
                    address: u64::MAX - 15,
                    ..plain.clone()
                },
                Sampler::POINT,
            ),
            "an image cannot have 64 bytes at 0xfffffffffffffff0, because addresses have 64 bits",
        ),
        (
            refused(
                Image {
                    format: integers,
                    ..plain.clone()
                },
                linear.clone(),
            ),
            "a linear filter needs floats: read texels of 8-bit and 16-bit integers as normalized floats",
        ),
        (
            refused(
                Image {
                    shape: ImageShape::Linear,
                    extent: [4, 1, 1],
                    ..plain.clone()
                },
                linear,
            ),
            "texels in linear memory are read by their index, without a filter",
        ),
    ];
    for (found, wanted) in cases {
        assert_eq!(found, wanted);
    }

    assert_eq!(
        memory
            .remove_object(5)
            .expect_err("nobody made it")
            .to_string(),
        "0x5 is not the handle of a texture or surface"
    );
}

/// Shapes and sizes, those after the first in the order of the instructions that read them.
const SHAPES: [(ImageShape, [u32; 3]); 8] = [
    (ImageShape::Linear, [7, 1, 1]),
    (ImageShape::D1, [1, 1, 1]),
    (ImageShape::D2, [3, 5, 1]),
    (ImageShape::D3, [2, 3, 4]),
    (ImageShape::Layers1, [5, 1, 3]),
    (ImageShape::Layers2, [2, 2, 2]),
    (ImageShape::Cube, [2, 2, 6]),
    (ImageShape::Cubes, [1, 1, 12]),
];

const FETCHES: [&str; 7] = [
    "1d.v4.f32.TYPE D, [%t, {%c0}]",
    "2d.v4.f32.TYPE D, [%t, {%c0, %c1}]",
    "3d.v4.f32.TYPE D, [%t, {%c0, %c1, %c2, %c3}]",
    "a1d.v4.f32.TYPE D, [%t, {%i, %c1}]",
    "a2d.v4.f32.TYPE D, [%t, {%i, %c0, %c1, %c1}]",
    "cube.v4.f32.f32 D, [%t, {%c0, %c1, %c2, %c2}]",
    "acube.v4.f32.f32 D, [%t, {%i, %c0, %c1, %c2}]",
];

/// Words that are far away, no numbers, or anything.
fn words(next: &mut impl FnMut(u32) -> u32) -> Words {
    let far = [
        0,
        1 << 31,
        f32::NAN.to_bits(),
        f32::INFINITY.to_bits(),
        u32::MAX,
        0x7f7f_ffff,
        1,
        0x3f80_0000,
    ];
    std::array::from_fn(|_| {
        if next(3) == 0 {
            far[next(8) as usize]
        } else {
            next(u32::MAX)
        }
    })
}

/// Whatever shapes, samplers, instructions and coordinates meet, there is a result or a finding.
#[test]
fn everything_that_meets_is_survived() {
    let mut state = 1u32;
    let mut next = move |n: u32| {
        state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        (state >> 13 ^ state) % n
    };
    let (mut read, mut found) = (0, 0);
    for round in 0..400 {
        let (any, fetch) = (next(8) as usize, next(7) as usize);
        let (shape, extent) = SHAPES[if round % 4 == 0 { any } else { fetch + 1 }];
        let memory = Memory::new(1 << 20);
        let image = floats(&memory, shape, extent);
        let mut sampler = Sampler {
            address: [MODES[next(4) as usize]; 3],
            ..Sampler::POINT
        };
        if shape != ImageShape::Linear {
            sampler.filter = [Filter::Point, Filter::Linear][next(2) as usize];
            sampler.coordinates = [Coordinates::Texels, Coordinates::Normalized][next(2) as usize];
        }

        let handle = texture(&memory, &image, &sampler);
        let body = FETCHES[fetch].replace("TYPE", ["s32", "f32", "f32"][next(3) as usize]);
        let body = format!(
            "and.b32 %i, %i, 1; tex.{};",
            body.replace('D', "{%d0, %d1, %d2, %d3}")
        );
        let inputs: Vec<Words> = (0..40).map(|_| words(&mut next)).collect();
        match launch(&memory, handle, &body, 1, &inputs) {
            Ok(_) => read += 1,
            Err(fault) if matches!(fault.class, Class::Descriptor | Class::OutOfBounds) => {
                found += 1
            }
            Err(fault) => panic!("{fault}"),
        }
    }

    assert!(read > 100 && found > 50, "{read} {found}");
}
