//! Surfaces: bytes in and out, what lies outside, and races.

use ptx_emu::{ChannelType, Class, Fault, ImageShape, Memory, TexelFormat};

use crate::textures::{Words, image, launch};

/// Stores and loads of a 2D surface of 4 x 3 texels of 4 bytes; `%c0` is x in bytes, `%c1` y, `%c2` what is stored.
fn surface(body: &str, inputs: &[Words]) -> Result<(Vec<u32>, Vec<Words>), Box<Fault>> {
    let memory = Memory::new(1 << 20);
    let texels: Vec<u8> = (100..112u32).flat_map(u32::to_le_bytes).collect();
    let format = TexelFormat {
        channel: ChannelType::U8,
        channels: 4,
    };
    let image = image(&memory, format, ImageShape::D2, [4, 3, 1], &texels);
    let handle = memory.add_surface(&image).expect("a surface");
    let out = launch(&memory, handle, body, 1, inputs)?;
    let mut bytes = [0; 48];
    memory.read(image.address, &mut bytes).expect("it is there");
    Ok((
        bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| u32::from_le_bytes(*b))
            .collect(),
        out,
    ))
}

fn place(x: i32, y: i32, value: u32) -> Words {
    [x.cast_unsigned(), y.cast_unsigned(), value, 0]
}

#[test]
fn surfaces_are_loaded_and_stored_by_bytes() {
    let load = |end: &str, x, y| {
        let body = format!("suld.b.2d.b32.{end} {{%d0}}, [%t, {{%c0, %c1}}];");
        surface(&body, &[place(x, y, 0)])
            .map(|(_, out)| out[0][0])
            .map_err(|fault| fault.class)
    };
    let cases = [
        ((0, 0), [Ok(100), Ok(100), Ok(100)]),
        ((12, 2), [Ok(111), Ok(111), Ok(111)]),
        ((16, 1), [Err(Class::OutOfBounds), Ok(107), Ok(0)]),
        ((-4, 1), [Err(Class::OutOfBounds), Ok(104), Ok(0)]),
        ((4, 3), [Err(Class::OutOfBounds), Ok(109), Ok(0)]),
        ((4, -1), [Err(Class::OutOfBounds), Ok(101), Ok(0)]),
        (
            (i32::MAX - 3, i32::MIN),
            [Err(Class::OutOfBounds), Ok(103), Ok(0)],
        ),
        ((2, 0), [Err(Class::Misaligned); 3]),
    ];
    for ((x, y), wanted) in cases {
        assert_eq!(
            ["trap", "clamp", "zero"].map(|end| load(end, x, y)),
            wanted,
            "{x} {y}"
        );
    }

    let store = |end: &str, x, y| {
        let body = format!("sust.b.2d.b32.{end} [%t, {{%c0, %c1}}], {{%c2}}; mov.u32 %d0, 1;");
        let texels = surface(&body, &[place(x, y, 7)])
            .map(|(texels, _)| texels)
            .map_err(|fault| fault.class)?;
        Ok(texels.iter().position(|texel| *texel == 7))
    };
    assert_eq!(
        ["trap", "clamp", "zero"].map(|end| store(end, 8, 1)),
        [Ok(Some(6)); 3]
    );
    assert_eq!(
        ["trap", "clamp", "zero"].map(|end| store(end, 16, 9)),
        [Err(Class::OutOfBounds), Ok(Some(11)), Ok(None)]
    );
}

#[test]
fn vectors_and_parts_of_texels_are_accessed() {
    let body = "suld.b.2d.v4.b8.trap {%h0, %h1, %h2, %h3}, [%t, {%c0, %c1}]; add.u16 %h0, %h0, 1;\n\
                sust.b.2d.v4.b8.trap [%t, {%c0, %c1}], {%h3, %h2, %h1, %h0}; cvt.u32.u16 %d0, %h0;";
    let (texels, out) = surface(body, &[place(4, 0, 0)]).unwrap_or_else(|f| panic!("{f}"));
    assert_eq!((texels[1], out[0][0]), (102 << 24, 102));
    let fault = surface(body, &[place(16, 0, 0)]).expect_err("it is outside");
    assert_eq!(
        fault.what,
        "4 bytes at x = 16 bytes, y = 0, z = 0 of a 2D surface of 16 bytes x 3 x 1"
    );
    assert_eq!(
        fault.allocation.as_ref().map(|a| a.label.as_str()),
        Some("image")
    );
    let wide = "suld.b.2d.v4.b32.clamp {%d0, %d1, %d2, %d3}, [%t, {%c0, %c1}];";
    assert_eq!(
        surface(wide, &[place(64, 1, 0)]).expect("it clamps").1[0][0],
        104
    );
}

/// Every lane changes a texel: by bytes, and by texels of a format.
#[test]
fn texels_are_reduced() {
    let reduce = |name: &str, x: i32, y: i32, value: u32| {
        let body = format!("sured.{name} [%t, {{%c0, %c1}}], %c2; mov.u32 %d0, 1;");
        let texels = surface(&body, &[place(x, y, value)])
            .map_err(|fault| (fault.class, fault.what.clone()))?
            .0;
        let changed: Vec<_> = (100u32..)
            .zip(texels)
            .enumerate()
            .filter(|(_, (was, is))| was != is)
            .collect();
        Ok::<_, (Class, String)>(changed.first().map(|(i, (_, is))| (*i, *is)))
    };
    for (name, wanted) in [
        ("b.add.2d.u32.trap", Some((6, 110))),
        ("b.2d.add.s32.clamp", Some((6, 110))),
        ("b.min.2d.u32.zero", Some((6, 4))),
        ("b.max.2d.s32.trap", None),
        ("b.and.2d.b32.trap", Some((6, 4 & 106))),
        ("b.or.2d.b32.trap", Some((6, 4 | 106))),
    ] {
        assert_eq!(reduce(name, 8, 1, 4), Ok(wanted), "{name}");
    }

    assert_eq!(
        reduce("b.max.2d.s32.trap", 8, 1, u32::MAX),
        Ok(None),
        "-1 is less"
    );
    assert_eq!(
        reduce("b.max.2d.u32.trap", 8, 1, u32::MAX),
        Ok(Some((6, u32::MAX)))
    );
    assert_eq!(reduce("b.add.2d.u32.clamp", 160, 9, 1), Ok(Some((11, 112))));
    assert_eq!(reduce("b.add.2d.u32.zero", 16, 0, 1), Ok(None));
    assert_eq!(
        reduce("b.add.2d.u32.trap", 16, 0, 1)
            .expect_err("outside")
            .0,
        Class::OutOfBounds
    );
    assert_eq!(
        reduce("b.add.2d.u32.trap", 2, 0, 1).expect_err("between").0,
        Class::Misaligned
    );
    let other = reduce("p.add.2d.b32.trap", 2, 1, 1).expect_err("of bytes");
    let what = "sured.p of a surface of 4 x U8: it changes texels of one integer of 32 bits";
    assert_eq!(other, (Class::Descriptor, what.into()));
}

/// `sured.p` compares as the format says, and all lanes of a warp change one texel.
#[test]
fn reductions_of_texels_take_their_type() {
    let sum = |channel: ChannelType, name: &str, x: i32| {
        let memory = Memory::new(1 << 20);
        let format = TexelFormat {
            channel,
            channels: 1,
        };
        let texels: Vec<u8> = [5u32; 4]
            .iter()
            .flat_map(|texel| texel.to_le_bytes())
            .collect();
        let image = image(&memory, format, ImageShape::D1, [4, 1, 1], &texels);
        let handle = memory.add_surface(&image).expect("a surface");
        let body = format!("sured.p.{name} [%t, {{%c0}}], %c2; mov.u32 %d0, 1;");
        let inputs: Vec<Words> = (0..64)
            .map(|i| place(x, 0, 0u32.wrapping_sub(i % 8)))
            .collect();
        launch(&memory, handle, &body, 1, &inputs).map_err(|fault| fault.class)?;
        let mut bytes = [0; 16];
        memory.read(image.address, &mut bytes).expect("it is there");
        Ok(bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| i32::from_le_bytes(*b))
            .collect::<Vec<_>>())
    };
    assert_eq!(
        sum(ChannelType::S32, "add.1d.b32.trap", 2),
        Ok(vec![5, 5, 5 - 8 * 28, 5])
    );
    assert_eq!(
        sum(ChannelType::S32, "min.1d.b32.trap", 3),
        Ok(vec![5, 5, 5, -7])
    );
    assert_eq!(
        sum(ChannelType::U32, "min.1d.b32.trap", 0),
        Ok(vec![0, 5, 5, 5])
    );
    assert_eq!(
        sum(ChannelType::U32, "max.1d.b32.clamp", 99),
        Ok(vec![5, 5, 5, -1])
    );
    assert_eq!(
        sum(ChannelType::U32, "add.1d.b32.zero", i32::MIN),
        Ok(vec![5; 4])
    );
    assert_eq!(
        sum(ChannelType::U32, "add.1d.b32.trap", i32::MAX),
        Err(Class::OutOfBounds)
    );
}

/// Accesses of surfaces are traced as those of global memory.
#[test]
fn stores_to_surfaces_race() {
    let body = "sust.b.2d.b32.trap [%t, {%c0, %c1}], {%i}; mov.u32 %d0, 1;";
    let same: Vec<Words> = (0..64).map(|_| place(0, 0, 0)).collect();
    assert_eq!(
        surface(body, &same).expect_err("lanes differ").class,
        Class::LanesStoreDifferent
    );
    let two: Vec<Words> = (0..64).map(|i| place(4 * (i % 4), i / 4 % 3, 0)).collect();
    let body = "setp.eq.u32 %p, %c0, 64; shr.u32 %d1, %i, 5; @!%p sust.b.2d.b32.trap [%t, {%c0, %c1}], {%d1}; mov.u32 %d0, 1;";
    assert_eq!(
        surface(body, &two).expect_err("warps race").class,
        Class::GlobalRace
    );
}
