//! `tex` and `tld4`: fetches texels for a warp.
//!
//! A texture must not read memory that the same launch has written, not even by the same thread,
//! because its caches are not coherent with such writes (CUDA C++ Programming Guide, "Read/Write
//! Coherency"). Texels of weight 0 are not read. A channel that the texture does not have leaves
//! its register undefined.

use crate::fault::OtherPlace;
use crate::machine::async_copy::tensor_box;
use crate::machine::device::allocation::ShadowedAllocation;
use crate::machine::device::images::descriptor::{
    AddressMode, Coordinates, Filter, Image, ImageShape, ReadMode, Sampler,
};
use crate::machine::image::footprint::{
    Coordinate, Texel, TexelPair, TextureDirection, face, weighted,
};
use crate::machine::image::handles;
use crate::machine::image::mean::{WeightedTexel, border, mean};
use crate::machine::image::texel::channels;
use crate::machine::memory::global::global_checks;
use crate::machine::memory::lane_access;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::code::image::{CoordinateType, Fetch, ImageGeometry};
use crate::module::lane_mask::lanes;
use crate::sanitize::race::global::launch_accesses::MemoryOperation;
use crate::{Class, Fault};

/// The coordinates of a lane.
#[derive(Clone, Copy)]
struct LanePoint {
    layer: u32,
    at: [u32; 3],
    offset: [i32; 3],
}

/// The texels of a texture for a fetch.
struct Texels<'a> {
    image: &'a Image,
    read: ReadMode,
    /// The color of the border.
    border: [u32; 4],
    /// Whether the fetch averages. Integers then stay integers up to the mean.
    averages: bool,
}

impl<'a> Texels<'a> {
    fn of(image: &'a Image, sampler: &Sampler, f: &Fetch) -> Texels<'a> {
        let float = f.coordinates == CoordinateType::Float;
        let averages = float && f.gathers.is_none() && sampler.filter == Filter::Linear;
        let outside = if float && image.shape != ImageShape::Linear {
            sampler.border
        } else {
            [0; 4]
        };
        let format = image.format;
        Texels {
            image,
            read: if averages {
                ReadMode::Element
            } else {
                sampler.read
            },
            border: if averages {
                outside.map(|bits| border(format.channel, bits))
            } else {
                outside
            },
            averages,
        }
    }
}

/// The registers of all lanes.
struct Points {
    handles: [u64; 32],
    layers: [u32; 32],
    at: [[u32; 32]; 3],
    offset: [[u32; 32]; 3],
}

impl Points {
    fn of(&self, lane: usize) -> LanePoint {
        LanePoint {
            layer: self.layers[lane],
            at: self.at.map(|c| c[lane]),
            offset: self.offset.map(|c| c[lane].cast_signed()),
        }
    }
}

pub(crate) fn fetch(block: &mut Block<'_, '_>, w: &mut Warp, mask: u32, f: &Fetch) -> Checked<()> {
    let points = points(block, w, mask, f)?;
    let mut values = [[0; 32]; 4];
    let mut has = [0u32; 4];
    for lane in lanes(mask) {
        let (image, sampler) = handles::texture(block, w, lane, points.handles[lane])?;
        check_texture(block, w, lane, (image, sampler), f)?;
        let texel = sample(block, w, lane, (image, sampler), f, points.of(lane))?;
        let given = match f.gathers {
            Some(channel) => {
                if channel < image.format.channels as usize {
                    4
                } else {
                    0
                }
            }
            None => image.format.channels as usize,
        };
        for (i, value) in texel.into_iter().enumerate().take(given) {
            values[i][lane] = value;
            has[i] |= 1 << lane;
        }
    }

    for (i, to) in f.d.iter().enumerate() {
        let Some(to) = to else { continue };
        w.regs.forget(32, *to, mask);
        w.regs.set(*to, has[i], &values[i]);
    }

    if let Some(p) = f.resident {
        w.regs.set_pred(p, mask, mask);
    }

    Ok(())
}

fn points(block: &Block<'_, '_>, w: &Warp, mask: u32, f: &Fetch) -> Checked<Points> {
    let mut points = Points {
        handles: handles::handles(block, w, mask, f.place.handle)?,
        layers: [0; 32],
        at: [[0; 32]; 3],
        offset: [[0; 32]; 3],
    };
    if let Some(layer) = f.place.layer {
        points.layers = lane_access::words(block, w, mask, layer)?;
    }
    for (to, slot) in points.at.iter_mut().zip(&f.place.at) {
        *to = lane_access::words(block, w, mask, *slot)?;
    }
    for (to, slot) in points.offset.iter_mut().zip(&f.offset) {
        *to = lane_access::words(block, w, mask, *slot)?;
    }

    Ok(points)
}

/// Checks that a texture fits the instruction.
fn check_texture(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    (image, sampler): (&Image, &Sampler),
    f: &Fetch,
) -> Checked<()> {
    handles::check_shape(block, w, lane, image, &f.place, "texture")?;
    let gives = sampler.gives_floats(image.format);
    if gives != f.floats {
        let name = |floats: bool| if floats { "floats" } else { "integers" };
        let what = format!(
            "a texture gives {}, and this instruction takes {}",
            name(gives),
            name(f.floats)
        );
        return Err(other_class(block, w, lane, image, what));
    }

    let (what, instead) = match (image.shape, f.coordinates) {
        (ImageShape::Linear, CoordinateType::Float) => (
            "a float coordinate of a texture over linear memory",
            "read it with tex1Dfetch, by the index of a texel",
        ),
        // An H100 gives 0 for any index.
        (ImageShape::D1, CoordinateType::Integer) => (
            "an integer coordinate of a texture over a 1D array",
            "read it with tex1D, by a float, or make it of linear memory",
        ),
        _ => return Ok(()),
    };
    let mut fault = other_class(block, w, lane, image, what.to_string());
    fault.instead = instead;
    Err(fault)
}

#[cold]
fn other_class(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    image: &Image,
    what: String,
) -> Box<Fault> {
    let mut fault = block.fault(w, 1 << lane, Class::Descriptor, what);
    fault.instead = "read it as the type that its format and its read mode say";
    lane_access::locate(block, &mut fault, image.address);
    fault
}

/// Returns an instruction of a traced launch that has written a channel of a texel.
fn writer_of(
    block: &Block<'_, '_>,
    a: &ShadowedAllocation,
    offset: u64,
    image: &Image,
) -> Option<u32> {
    let recorder = block.recorder.as_ref()?;
    let format = image.format;
    let mut channels = (0..format.bytes()).step_by(format.channel.bytes() as usize);
    channels.find_map(|at| recorder.instruction_that(a.base, offset + u64::from(at), true))
}

#[cold]
fn written_before(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    pc: u32,
) -> Box<Fault> {
    let what =
        format!("a texture reads 0x{address:x}, which was written before in the same launch");
    let mut fault = block.fault(w, 1 << lane, Class::ReadOnlyWritten, what);
    fault.instead = "read it through its address or a surface, or in another launch";
    fault.other = Some(OtherPlace {
        place: block.place(pc),
        did: "wrote",
        who: "a thread".into(),
    });
    lane_access::locate(block, &mut fault, address);
    fault
}

/// Returns the four values of a lane.
fn sample(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    (image, sampler): (&Image, &Sampler),
    f: &Fetch,
    point: LanePoint,
) -> Checked<[u32; 4]> {
    let (z, pairs) = match f.place.geometry {
        ImageGeometry::Cube | ImageGeometry::ACube => {
            let (face, at) = face(point.at.map(f32::from_bits));
            let cube = match f.place.layer {
                Some(_) => handles::check_layer(block, w, lane, image, point.layer, "texture")?,
                None => 0,
            };
            (Some(cube + face), of_face(image, sampler, f, at))
        }
        ImageGeometry::A1 | ImageGeometry::A2 => {
            let z = handles::check_layer(block, w, lane, image, point.layer, "texture")?;
            (Some(z), pairs(image, sampler, f, point))
        }
        ImageGeometry::D1 | ImageGeometry::D2 | ImageGeometry::D3 => {
            (None, pairs(image, sampler, f, point))
        }
    };
    let texels = Texels::of(image, sampler, f);
    if let Some(channel) = f.gathers {
        return gather(block, w, lane, &texels, (&pairs, z, channel));
    }

    let mut parts = [WeightedTexel::default(); 8];
    let mut n = 0;
    for (mut at, weight, layer) in weighted(&pairs) {
        if let Some(z) = z {
            at[2] = Some(z);
        }
        parts[n] = WeightedTexel {
            channels: texel(block, w, lane, &texels, at)?,
            weight,
            layer,
        };
        n += 1;
    }

    Ok(if texels.averages {
        mean(image.format.channel, &parts[..n])
    } else {
        parts[0].channels
    })
}

/// Returns a channel of the four texels of a linear filter, counterclockwise from the lower
/// left one.
fn gather(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    texels: &Texels<'_>,
    (pairs, z, channel): (&[TexelPair; 3], Option<u32>, usize),
) -> Checked<[u32; 4]> {
    let [x, y, _] = pairs.map(|pair| pair.texels);
    let mut all = [0; 4];
    for (to, at) in all
        .iter_mut()
        .zip([(x[0], y[1]), (x[1], y[1]), (x[1], y[0]), (x[0], y[0])])
    {
        *to = texel(block, w, lane, texels, [at.0, at.1, z.or(Some(0))])?[channel];
    }
    Ok(all)
}

/// Returns the channels of a texel, or of the border.
fn texel(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    texels: &Texels<'_>,
    at: [Texel; 3],
) -> Checked<[u32; 4]> {
    let [Some(x), Some(y), Some(z)] = at else {
        return Ok(texels.border);
    };

    let image = texels.image;
    let size = image.format.bytes();
    let address = image.place(u64::from(x) * u64::from(size), [y, z]);
    let a = global_checks::lane_allocation(block, w, lane, address, size)?;
    global_checks::check_lane(block, w, lane, a, address, size)?;
    tensor_box::record_range(block, w, lane, MemoryOperation::Read, address, size)?;
    if let Some(pc) = writer_of(block, a, address - a.base, image) {
        return Err(written_before(block, w, lane, address, pc));
    }

    let mut bytes = [0; 16];
    let bytes = &mut bytes[..size as usize];
    a.read(address - a.base, bytes);
    Ok(channels(image.format, texels.read, bytes))
}

/// Returns the texels of a point in each direction.
fn pairs(image: &Image, sampler: &Sampler, f: &Fetch, point: LanePoint) -> [TexelPair; 3] {
    let filter = filter(sampler, f);
    let pair = |i: usize| {
        let float = f.coordinates == CoordinateType::Float;

        // Integer coordinates outside of the texture always read zero, for every address mode of
        // the sampler.
        let mode = if float {
            sampler.address[i]
        } else {
            AddressMode::Border
        };
        let direction = TextureDirection {
            texels: image.extent[i],
            mode,
            coordinates: sampler.coordinates,
        };
        let coordinate = match point.at.get(i).filter(|_| i < f.place.at.len()) {
            Some(x) if float => Coordinate::Float(f32::from_bits(*x).into()),
            Some(x) => Coordinate::Integer(x.cast_signed()),
            // A one-dimensional texture is a plane of one row. Its y is 0, halfway to the row
            // before.
            None => Coordinate::Float(0.0),
        };
        direction.pair(coordinate, point.offset[i], filter)
    };
    let row = f.place.geometry == ImageGeometry::D1 && sampler.address[1] == AddressMode::Border;
    std::array::from_fn(|i| {
        if i < f.place.at.len() || row && i == 1 {
            pair(i)
        } else {
            TexelPair::ONE
        }
    })
}

/// Returns the texels of a face of a cube.
fn of_face(image: &Image, sampler: &Sampler, f: &Fetch, at: [f64; 2]) -> [TexelPair; 3] {
    let mode = AddressMode::Clamp;
    let coordinates = Coordinates::Normalized;
    let direction = TextureDirection {
        texels: image.extent[0],
        mode,
        coordinates,
    };
    let [x, y] = at.map(|at| direction.pair(Coordinate::Float(at), 0, filter(sampler, f)));
    [x, y, TexelPair::ONE]
}

/// Returns the filter of a fetch. `tld4` gathers the texels of a linear filter.
fn filter(sampler: &Sampler, f: &Fetch) -> Filter {
    if f.gathers.is_some() {
        Filter::Linear
    } else {
        sampler.filter
    }
}
