//! Textures against formulas of the CUDA C++ Programming Guide, "Texture Fetching", written once more and as they stand there.

use ptx_emu::{
    AddressMode, ChannelType, Class, Coordinates, Fault, Filter, Image, Launch, Memory, Module, Read,
    Sampler, Schedule, Shape, TexelFormat, Trace, run,
};

/// A kernel whose threads have four words of input in `%c0` to `%c3`, run `body`, and store the first `outputs` of `%d0` to
/// `%d3`; the handle is in `%t`.
fn program(body: &str, outputs: usize) -> String {
    let store: String = (0..outputs).map(|i| format!("st.global.b32 [%out+{}], %d{i};\n", 4 * i)).collect();
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .visible .entry k(.param .u64 t, .param .u64 in, .param .u64 out)\n{{\n\
         .reg .b64 %t, %in, %out, %w; .reg .b32 %c<4>, %d<4>, %i; .reg .b16 %h<4>; .reg .pred %p;\n\
         ld.param.u64 %t, [t]; ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %i, %tid.x;\n\
         mad.wide.u32 %in, %i, 16, %in; mad.wide.u32 %out, %i, 16, %out;\n\
         ld.global.v4.b32 {{%c0, %c1, %c2, %c3}}, [%in];\n{body}\n{store}ret;\n}}\n"
    )
}

type Words = [u32; 4];

/// Runs a body for some inputs; gives the outputs.
fn launch(
    memory: &Memory,
    handle: u64,
    body: &str,
    n: usize,
    inputs: &[Words],
) -> Result<Vec<Words>, Box<Fault>> {
    let text = program(body, n);
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let bytes = 16 * inputs.len() as u64;
    let (input, out) = (memory.alloc(bytes).expect("room"), memory.alloc(bytes).expect("room"));
    memory
        .write(input, &inputs.iter().flatten().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>())
        .expect("it");
    let params: Vec<u8> = [handle, input, out].iter().flat_map(|p| p.to_le_bytes()).collect();
    let kernel = module.kernel("k").expect("it is in the text");
    let block = [inputs.len() as u32, 1, 1];
    let launch = Launch { kernel, grid: [1; 3], block, dynamic_shared: 0, params: &params };
    run(memory, &launch, &Schedule::default(), Trace::On)?;
    let mut bytes = vec![0; 16 * inputs.len()];
    memory.read(out, &mut bytes).expect("it");
    let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    Ok(bytes.chunks(16).map(|row| std::array::from_fn(|i| word(&row[4 * i..4 * i + 4]))).collect())
}

/// An image of bytes, row by row.
fn image(memory: &Memory, format: TexelFormat, shape: Shape, extent: [u32; 3], texels: &[u8]) -> Image {
    let mut image = Image::new(format, shape, extent);
    image.address = memory.alloc(image.bytes()).expect("room");
    memory.set_label(image.address, "image");
    for (i, row) in texels.chunks(image.row_bytes() as usize).enumerate() {
        memory.write(image.address + i as u64 * image.pitch, row).expect("it is there");
    }
    image
}

const FLOAT: TexelFormat = TexelFormat { channel: ChannelType::F32, channels: 1 };

/// The value of a texel.
fn value(i: u32) -> f32 {
    (i * 37 % 101) as f32 - 50.0
}

fn floats(memory: &Memory, shape: Shape, extent: [u32; 3]) -> Image {
    let bytes: Vec<u8> = (0..extent.iter().product()).flat_map(|i| value(i).to_le_bytes()).collect();
    image(memory, FLOAT, shape, extent, &bytes)
}

fn texture(memory: &Memory, image: &Image, sampler: &Sampler) -> u64 {
    memory.add_texture(image, sampler).unwrap_or_else(|e| panic!("{e}"))
}

const MODES: [AddressMode; 4] =
    [AddressMode::Wrap, AddressMode::Clamp, AddressMode::Mirror, AddressMode::Border];
const BORDER: f32 = 9.0;

/// The guide on one direction of `n` texels: the neighbours of a coordinate, which may lie outside, and alpha.
fn guide(x: f32, n: u32, s: &Sampler) -> ([i64; 2], f64) {
    let (mut x, n) = (f64::from(x), f64::from(n));
    if s.coordinates == Coordinates::Normalized {
        let frac = x - x.floor();
        x = match s.address[0] {
            AddressMode::Wrap => frac,
            AddressMode::Mirror if (x.floor() / 2.0).fract() == 0.0 => frac,
            AddressMode::Mirror => 1.0 - frac,
            _ => x,
        } * n;
    }
    let x = if x.is_nan() { 0.0 } else { x.min(1e9).max(-1e9) };
    match s.filter {
        Filter::Point => ([x.floor() as i64; 2], 0.0),
        Filter::Linear => {
            let b = x - 0.5;
            ([b.floor() as i64, b.floor() as i64 + 1], ((b - b.floor()) * 256.0).round() / 256.0)
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

/// tex(x, y, z) as the guide writes it: the sum over all neighbours.
fn expected(at: &[f32], extent: [u32; 3], s: &Sampler) -> f32 {
    let directions: Vec<_> = at.iter().zip(extent).map(|(x, n)| (guide(*x, n, s), i64::from(n))).collect();
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
    let plain = [-2.5, -1.0, -0.5, -0.25, -0.001, -0.0, 0.25, 0.5, 0.75, 1.0, 1.3, 1.5, 2.503, 3.499, 7.25];
    let ends = [n - 1.0, n - 0.5, n - 0.001, n, n + 0.5, 2.0 * n, 2.0 * n + 0.3, 3.0 * n - 0.7, -n, -1.6 * n];
    let scale = if coordinates == Coordinates::Normalized { n } else { 1.0 };
    let far = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, f32::MIN_POSITIVE];
    plain.iter().chain(&ends).map(|x| x / scale).chain(far).collect()
}

fn bits(all: &[f32]) -> Words {
    std::array::from_fn(|i| all.get(i).map_or(0, |x| x.to_bits()))
}

/// Fetches in one shape, with every sampler.
fn follows_the_guide(
    shape: Shape,
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
                assert_eq!(found, wanted, "{point:?} {mode:?} {filter:?} {coordinates:?}");
            }
        }
    }
}

#[test]
fn one_dimension_follows_the_guide() {
    let body = "tex.1d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%c0}];";
    for n in [1, 5, 8] {
        let points = move |c| corners(n, c).into_iter().map(|x| vec![x]).collect();
        follows_the_guide(Shape::D1, [n, 1, 1], body, &points);
    }
}

#[test]
fn two_dimensions_follow_the_guide() {
    let body = "tex.2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%c0, %c1}];";
    let points = |c| {
        let (x, y) = (corners(7, c), corners(4, c));
        (0..x.len() * 7).map(|i| vec![x[i % x.len()], y[(i * 5 + i / 31) % y.len()]]).collect()
    };
    follows_the_guide(Shape::D2, [7, 4, 1], body, &points);
}

#[test]
fn three_dimensions_follow_the_guide() {
    let body = "tex.level.3d.v4.f32.f32 {%d0, %d1, %d2, %d3}|%p, [%t, {%c0, %c1, %c2, %c2}], 0f40000000;";
    let points = |c| {
        let (x, y, z) = (corners(3, c), corners(4, c), corners(5, c));
        let at = |i: usize| vec![x[i % x.len()], y[(i * 7 + 3) % y.len()], z[(i * 11 + i / 31) % z.len()]];
        (0..x.len() * 7).map(at).collect()
    };
    follows_the_guide(Shape::D3, [3, 4, 5], body, &points);
}
