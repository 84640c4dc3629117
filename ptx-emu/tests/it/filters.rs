//! Fetches that an H100 made: the bits of what it gave.

use super::textures::{Words, bits, image, launch};
use ptx_emu::{
    AddressMode, ChannelType, Class, Coordinates, Filter, ImageShape, Memory, ReadMode, Sampler,
    TexelFormat,
};

/// The bytes of texels of a type, one channel each.
fn texels(channel: ChannelType, values: &[i64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|v| v.to_le_bytes()[..channel.bytes() as usize].to_vec())
        .collect()
}

/// The bodies for one to three dimensions.
const BODIES: [&str; 3] = [
    "tex.1d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%c0}];",
    "tex.2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%c0, %c1}];",
    "tex.3d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%c0, %c1, %c2, %c2}];",
];
const SHAPES: [ImageShape; 3] = [ImageShape::D1, ImageShape::D2, ImageShape::D3];

/// What a texture of two texels in each direction gives between them, by weights of 256ths of the second ones.
fn between(channel: ChannelType, values: &[i64], weights: &[u16]) -> u32 {
    let memory = Memory::new(1 << 20);
    let format = TexelFormat {
        channel,
        channels: 1,
    };
    let extent = std::array::from_fn(|i| if i < weights.len() { 2 } else { 1 });
    let shape = SHAPES[weights.len() - 1];
    let image = image(&memory, format, shape, extent, &texels(channel, values));
    let sampler = Sampler {
        filter: Filter::Linear,
        read: ReadMode::NormalizedFloat,
        address: [AddressMode::Clamp; 3],
        coordinates: Coordinates::Texels,
        ..Sampler::POINT
    };
    let handle = memory.add_texture(&image, &sampler).expect("a texture");
    let at: Vec<f32> = weights
        .iter()
        .map(|w| 0.5 + f32::from(*w) / 256.0)
        .collect();
    let found = launch(&memory, handle, BODIES[weights.len() - 1], 1, &[bits(&at)]);
    found.unwrap_or_else(|f| panic!("{f}"))[0][0]
}

/// Weights of 256ths, texels, and what a card gave.
const FLOATS: &[(&[u16], &[i64], u32)] = &[
    (&[51], &[0x40d5_8b4a, 0x3df2_8413], 0x40ab_c1cb),
    (&[165], &[0x40a5_668d, 0xbe54_63a3], 0x3fda_114a),
    (&[15], &[0xbdd3_21f5, 0x4000_c38f], 0x3caa_aed6),
    // Weights of two directions are whole 256ths.
    (
        &[229, 128],
        &[0xbdf8_a3c1, 0x3f60_80bf, 0xc0f1_c97a, 0x3e21_3c97],
        0x3d91_3f56,
    ),
    (
        &[81, 128],
        &[0x3e62_3e89, 0xc0dd_228c, 0x404c_7789, 0xbedc_1121],
        0x3c56_53f2,
    ),
    (
        &[183, 111],
        &[0xc04e_3edd, 0xbe1d_8187, 0x40a5_38b9, 0x3f20_160d],
        0x3e85_0034,
    ),
    (
        &[241, 63, 249],
        &[
            0x3e93_289a,
            0x3dd4_e52f,
            0x40f6_7df2,
            0xbf74_b928,
            0x3fcc_1660,
            0xbd93_494d,
            0xc090_c2cc,
            0x3dc1_5549,
        ],
        0xbd12_1729,
    ),
    (
        &[90, 126, 203],
        &[
            0x3fef_a0dc,
            0xc0ce_d8a0,
            0xc0c5_d093,
            0xc0e9_569a,
            0x40f6_7df2,
            0xbf74_b928,
            0xc08a_1452,
            0x3de3_d7d9,
        ],
        0x3bc8_da51,
    ),
    (
        &[147, 58, 113],
        &[
            0x4080_4a5a,
            0x3ee1_80b4,
            0xbee0_9697,
            0xbff7_ccb6,
            0xc054_b444,
            0x3df2_8413,
            0xc0d2_cf47,
            0x3e7a_c548,
        ],
        0xbd49_7515,
    ),
];

/// Texels are cut off 4 bits below the largest one's last bit, and means rounded half away from zero.
#[test]
fn means_of_floats_are_those_of_a_card() {
    for (weights, values, wanted) in FLOATS {
        let found = between(ChannelType::F32, values, weights);
        assert_eq!(found, *wanted, "{weights:?}: {found:#x} {wanted:#x}");
    }
}

/// Halves have a mean of 11 bits, and integers one of 16.
#[test]
fn means_of_small_texels_are_those_of_a_card() {
    use ChannelType::{F16, S8, S16, U8, U16};
    let cases = [
        (U8, [168, 12], [235, 153, 207, 98], 0x3f33_bbb4),
        (U8, [168, 12], [175, 121, 67, 170], 0x3f0b_f38c),
        (S8, [168, 12], [-21, -103, -49, 98], 0xbf0b_0716),
        (S8, [168, 12], [-81, 121, 67, -86], 0x3ebf_1d7e),
        // The smallest integer is more than -1 away from 0.
        (S8, [171, 137], [14, -126, 12, -128], 0xbf22_7145),
        (
            U16,
            [168, 12],
            [41_161, 45_124, 22_976, 54_884],
            0x3f2b_07ab,
        ),
        (
            S16,
            [168, 12],
            [-24_375, -20_412, 22_976, -10_652],
            0xbf21_f344,
        ),
        (
            S16,
            [168, 12],
            [16_136, 9_261, 22_638, -12_176],
            0x3eac_c15a,
        ),
        // 6.918, 2.799, -0.976 and 3.691.
        (
            F16,
            [168, 12],
            [0x46eb, 0x4199, 0xbbcf, 0x4362],
            0x4083_e000,
        ),
        (
            F16,
            [168, 12],
            [0xc0f1, 0xb0e1, 0xb017, 0x33df],
            0xbf66_8000,
        ),
    ];
    for (channel, weights, values, wanted) in cases {
        let found = between(channel, &values, &weights);
        assert_eq!(
            found, wanted,
            "{channel:?} {values:?}: {found:#x} {wanted:#x}"
        );
    }
}

/// What bodies give of textures whose texels are their own numbers.
fn numbered(
    shape: ImageShape,
    extent: [u32; 3],
    sampler: &Sampler,
    body: &str,
    inputs: &[Words],
) -> Vec<f32> {
    let memory = Memory::new(1 << 20);
    let format = TexelFormat {
        channel: ChannelType::F32,
        channels: 1,
    };
    let values: Vec<u8> = (0..extent.iter().product())
        .flat_map(|i| (i as f32).to_le_bytes())
        .collect();
    let image = image(&memory, format, shape, extent, &values);
    let handle = memory.add_texture(&image, sampler).expect("a texture");
    let found = launch(&memory, handle, body, 1, inputs).unwrap_or_else(|f| panic!("{f}"));
    found.iter().map(|w| f32::from_bits(w[0])).collect()
}

/// A normalized coordinate is rounded down to a multiple of 2^-21, and mirrored by texels.
#[test]
fn normalized_coordinates_have_steps() {
    let found = |n: u32, mode: AddressMode, x: u32| {
        let sampler = Sampler {
            address: [mode; 3],
            coordinates: Coordinates::Normalized,
            filter: Filter::Point,
            ..Sampler::POINT
        };
        numbered(
            ImageShape::D1,
            [n, 1, 1],
            &sampler,
            BODIES[0],
            &[[x, 0, 0, 0]],
        )[0]
    };

    // 3/53 and 43/53 as floats, which are both above these.
    assert_eq!(found(53, AddressMode::Clamp, 0x3d67_d95c), 2.0);
    assert_eq!(found(53, AddressMode::Clamp, 0x3f4f_b2b8), 43.0);

    // 81/64, where the texel behind the border of texels 46 and 47 is the first one.
    assert_eq!(found(64, AddressMode::Mirror, 0x3fa2_0000), 46.0);
}

/// A direction whose quotient as a float would lead to a weight of 217/256 in x; a card has 216/256.
#[test]
fn quotients_of_directions_are_no_floats() {
    let sampler = Sampler {
        coordinates: Coordinates::Normalized,
        filter: Filter::Linear,
        ..Sampler::POINT
    };
    let body = "tex.cube.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%c0, %c1, %c2, %c2}];";
    let direction = [0x3f74_5e8a, 0x3f18_43a8, 0x3eca_2134, 0];
    let found = numbered(ImageShape::Cube, [8, 8, 6], &sampler, body, &[direction]);
    assert_eq!(found, [1.0 + 216.0 / 256.0 + 8.0 * (1.0 + 2.0 / 256.0)]);
}

/// A linear filter of one dimension takes half of the border, where the second direction has one.
#[test]
fn one_dimension_is_a_row_beside_the_border() {
    let mut sampler = Sampler {
        address: [AddressMode::Border; 3],
        coordinates: Coordinates::Texels,
        filter: Filter::Linear,
        border: [100f32.to_bits(); 4],
        ..Sampler::POINT
    };
    let found = |sampler: &Sampler| {
        numbered(
            ImageShape::D1,
            [8, 1, 1],
            sampler,
            BODIES[0],
            &[bits(&[3.5])],
        )[0]
    };
    assert_eq!(found(&sampler), 51.5);
    sampler.address[1] = AddressMode::Clamp;
    assert_eq!(found(&sampler), 3.0);
    sampler.address = [AddressMode::Border; 3];
    sampler.filter = Filter::Point;
    assert_eq!(found(&sampler), 3.0);
}

/// Beyond an array that is read by whole numbers there is 0, whatever the sampler says.
#[test]
fn whole_numbers_outside_give_nothing() {
    let body = "tex.2d.v4.f32.s32 {%d0, %d1, %d2, %d3}, [%t, {%c0, %c1}];";
    for mode in [AddressMode::Clamp, AddressMode::Border] {
        let sampler = Sampler {
            address: [mode; 3],
            border: [9f32.to_bits(); 4],
            ..Sampler::POINT
        };
        let inputs = [
            [3, 1, 0, 0],
            [4, 1, 0, 0],
            [3, u32::MAX, 0, 0],
            [0, 2, 0, 0],
        ];
        assert_eq!(
            numbered(ImageShape::D2, [4, 2, 1], &sampler, body, &inputs),
            [7.0, 0.0, 0.0, 0.0]
        );
    }
}

/// A card gives 0 for any index of a 1D array, so that is a finding.
#[test]
fn arrays_of_one_dimension_have_no_index() {
    let memory = Memory::new(1 << 20);
    let format = TexelFormat {
        channel: ChannelType::F32,
        channels: 1,
    };
    let image = image(&memory, format, ImageShape::D1, [4, 1, 1], &[0; 16]);
    let handle = memory
        .add_texture(&image, &Sampler::POINT)
        .expect("a texture");
    let body = BODIES[0].replace("f32.f32", "f32.s32");
    let fault = launch(&memory, handle, &body, 1, &[[1, 0, 0, 0]]).expect_err("an index");
    let what = "an integer coordinate of a texture over a 1D array";
    assert_eq!(
        (fault.class, fault.what.as_str()),
        (Class::Descriptor, what)
    );
}

/// What a card's descriptors hold where there is no such direction.
#[test]
fn queries_answer_as_a_card() {
    let answers = |shape, extent| {
        ["height", "depth"].map(|of| {
            numbered(
                shape,
                extent,
                &Sampler::POINT,
                &format!("txq.{of}.b32 %d0, [%t];"),
                &[[0; 4]],
            )[0]
            .to_bits()
        })
    };
    assert_eq!(answers(ImageShape::D1, [8, 1, 1]), [1, 0]);
    assert_eq!(answers(ImageShape::D2, [8, 4, 1]), [4, 0]);
    assert_eq!(answers(ImageShape::D3, [8, 4, 2]), [4, 2]);
    assert_eq!(answers(ImageShape::Layers1, [8, 1, 5]), [5, 0]);
    assert_eq!(answers(ImageShape::Layers2, [8, 4, 3]), [4, 3]);
}
