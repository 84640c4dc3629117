//! Products of 8-bit floats whose sums an H100 gave: of a row of the left matrix and a column of the right one, which stand
//! for all rows and columns here.

use crate::machine::{SETUP, Setup, kernel, launch};
use crate::products::GROUP;

/// Shape, type of sums, types of factors, words of the row and of the column, `c`, and what the card gave.
type Mma = (
    &'static str,
    &'static str,
    [&'static str; 2],
    &'static [u32],
    &'static [u32],
    u32,
    u32,
);

/// The two steps the other way round, or of other elements, give other bits for each of these.
const MMA: [Mma; 6] = [
    (
        "m16n8k16",
        "f16",
        ["e4m3", "e5m2"],
        &[0x42d0_d445, 0xb429_d0c2, 0x362a_4629, 0x2e34_473c],
        &[0x43c5_ad3a, 0xbbad_4340, 0xbaaf_b8be, 0x3633_c4c3],
        0x32da,
        0xc1a7,
    ),
    (
        "m16n8k32",
        "f16",
        ["e5m2", "e4m3"],
        &[
            0x3234_3f38,
            0x2db4_b2b8,
            0xbaaf_b8be,
            0xc4c4_b2c4,
            0xc345_b9ac,
            0xad32_443f,
            0xc532_3eac,
            0xbf31_38bc,
        ],
        &[
            0x522d_4b4b,
            0x4756_37d3,
            0x362b_d0cf,
            0xcca9_aad3,
            0x3a3e_ad49,
            0x3127_d4a5,
            0xb9a7_3342,
            0xafa0_d2a1,
        ],
        0x2f9d,
        0x5357,
    ),
    // The sum of the first step is infinite as a half.
    (
        "m16n8k32",
        "f16",
        ["e5m2", "e5m2"],
        &[
            0x58d6_11cf,
            0xf601_2197,
            0x7aac_c0db,
            0x9821_e485,
            0xc4bc_52ee,
            0x82c8_7830,
            0x7567_3380,
            0xc056_f165,
        ],
        &[
            0x99ba_b42e,
            0xea0d_b185,
            0x13aa_8cd0,
            0x20ec_6e04,
            0x5a99_6d29,
            0x021a_910a,
            0x8154_e2a7,
            0xb30b_cc93,
        ],
        0x2de5,
        0xfc00,
    ),
    (
        "m16n8k16",
        "f32",
        ["e4m3", "e4m3"],
        &[0x590d_ee86, 0x80a0_bcce, 0x69e6_baa2, 0xdf37_640a],
        &[0x5692_d2be, 0x05bd_63b7, 0x2048_9bbe, 0x45e1_2684],
        0x806a_c932,
        0x4474_5a9c,
    ),
    (
        "m16n8k32",
        "f32",
        ["e4m3", "e5m2"],
        &[
            0x5807_0587,
            0x96bf_3572,
            0x8f31_0793,
            0xf1cd_18c2,
            0xe3ad_5d84,
            0x6b3a_af24,
            0x0d82_0b0e,
            0x1e42_1ebb,
        ],
        &[
            0x2a78_a9ea,
            0xf10d_7b98,
            0x284c_9fba,
            0x7407_54e3,
            0x8061_8627,
            0x81de_69df,
            0x35b8_8d00,
            0xc8a0_b7e4,
        ],
        0x4771_4072,
        0xca09_3904,
    ),
    (
        "m16n8k32",
        "f32",
        ["e4m3", "e5m2"],
        &[
            0x2206_24a1,
            0x0021_4080,
            0x05bd_63b7,
            0x564b_9712,
            0x2704_1af7,
            0x1a06_5a4d,
            0x6584_1a86,
            0x2a2f_6959,
        ],
        &[
            0x99ba_b42e,
            0xea0d_b185,
            0x13aa_8cd0,
            0x20ec_6e04,
            0x5a99_6d29,
            0x021a_910a,
            0x8154_e2a7,
            0xb30b_cc93,
        ],
        0xbf04_7498,
        0xc6b8_a763,
    ),
];

/// The sums of a kernel that reads `row`, `column` and `c`.
fn sums(
    body: &str,
    target: &str,
    (row, column, c): (&[u32], &[u32], u32),
    setup: Setup,
) -> Vec<u8> {
    let text = kernel(body)
        .replace(".version 8.6", ".version 8.7")
        .replace("sm_90", target)
        .replace(".visible", ".shared .align 1024 .b8 s[512];\n.visible");

    // The end is read, and not used, by some threads.
    let words = row.iter().chain(column).chain([&c]).chain(&[0; 32]);
    let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
    let room = u64::from(8 * setup.block);
    launch(&text, &bytes, room, setup)
        .unwrap_or_else(|f| panic!("{f}\n{text}"))
        .0
}

/// `c` in a register, as often as it fits.
fn all(ty: &str, c: u32) -> u32 {
    if ty == "f16" { c << 16 | c } else { c }
}

#[test]
fn products_of_warps_have_the_bits_of_a_card() {
    for (shape, ty, [left, right], row, column, c, wanted) in MMA {
        let n = row.len();
        let (d, a, b) = match (ty, n) {
            ("f16", 4) => ("%d0, %d1", "%x0, %x0", "%y0"),
            ("f16", _) => ("%d0, %d1", "%x0, %x0, %x1, %x1", "%y0, %y1"),
            (_, 4) => ("%d0, %d1, %d2, %d3", "%x0, %x0", "%y0"),
            _ => ("%d0, %d1, %d2, %d3", "%x0, %x0, %x1, %x1", "%y0, %y1"),
        };
        let inst = format!("mma.sync.aligned.{shape}.row.col.{ty}.{left}.{right}.{ty}");
        let body = format!(
            ".reg .b32 %i, %x<2>, %y<2>, %d<4>; .reg .b64 %at; and.b32 %i, %t, 3; mad.wide.u32 %at, %i, 4, %in;
            ld.global.b32 %x0, [%at]; ld.global.b32 %x1, [%at+16];
            ld.global.b32 %y0, [%at+{}]; ld.global.b32 %y1, [%at+{}]; ld.global.b32 %d0, [%in+{}];
            mov.b32 %d1, %d0; mov.b32 %d2, %d0; mov.b32 %d3, %d0;
            {inst} {{{d}}}, {{{a}}}, {{{b}}}, {{{d}}};
            mad.wide.u32 %at, %t, 8, %out; st.global.v2.b32 [%at], {{%d0, %d1}};",
            4 * n,
            4 * n + 16,
            8 * n,
        );
        let found = sums(&body, "sm_90", (row, column, all(ty, c)), SETUP);
        let same = found
            .as_chunks::<4>()
            .0
            .iter()
            .all(|word| *word == all(ty, wanted).to_le_bytes());
        assert!(same, "{inst} gives {:x?}, not {wanted:x}", &found[..4]);
    }
}

/// Types of factors, words of the row and of the column, `c`, and what the card gave.
type Wgmma = ([&'static str; 2], [u32; 8], [u32; 8], u32, u32);

/// Sums of halves from 14 bits: above the middle between two halves by what these leave out, and in the middle.
const WGMMA: [Wgmma; 4] = [
    (
        ["e4m3", "e4m3"],
        [
            0x3aa4_28a5,
            0xbb52_bfa0,
            0xbc36_4dcc,
            0xcfa8_2aba,
            0x2433_c03b,
            0xd1bc_55c0,
            0xad57_42c6,
            0xa7b0_af4d,
        ],
        [
            0x2b31_31aa,
            0xc74a_41c0,
            0x48ba_37ba,
            0xaead_3547,
            0xced5_46b9,
            0xd1d7_c653,
            0xcb50_223e,
            0x3c34_4c4b,
        ],
        0x3bf6,
        0x5b01,
    ),
    (
        ["e4m3", "e4m3"],
        [
            0x4e24_d6ba,
            0xa8d1_a823,
            0xb4b1_c8c1,
            0xbc50_aeb3,
            0x40c3_2cb3,
            0x4842_d533,
            0x28a3_4bbe,
            0x31d4_ba45,
        ],
        [
            0x222b_acc4,
            0x362d_d6af,
            0x3ac5_b0a4,
            0xc145_25c0,
            0xcf3f_3020,
            0x333d_4d28,
            0xb7c7_af42,
            0x57c1_c452,
        ],
        0xaf08,
        0x4992,
    ),
    (
        ["e5m2", "e4m3"],
        [
            0xac03_0324,
            0x824d_b437,
            0xd9b0_fa26,
            0x15cb_0069,
            0xe470_9c04,
            0x0b00_f507,
            0x3f83_9ef0,
            0xcc02_0101,
        ],
        [
            0x230f_9445,
            0x132a_8352,
            0xd843_0bc6,
            0x59af_2287,
            0x9144_5385,
            0x830f_b5c6,
            0x86c4_5f17,
            0x634f_885d,
        ],
        0x8f97,
        0x7913,
    ),
    (
        ["e5m2", "e4m3"],
        [
            0x9e15_0099,
            0x1d48_05ac,
            0x0aba_5402,
            0x858b_0081,
            0xdf84_8936,
            0x0e80_3326,
            0xa306_d82f,
            0x8539_54aa,
        ],
        [
            0x000f_320b,
            0xa976_0085,
            0xddab_585b,
            0x0205_02cf,
            0x1ad5_35be,
            0xcf66_2002,
            0xbd6b_b32a,
            0x295a_72ea,
        ],
        0x2503,
        0x7268,
    ),
];

#[test]
fn products_of_warpgroups_have_the_bits_of_a_card() {
    for ([left, right], row, column, c, wanted) in WGMMA {
        let inst = format!("wgmma.mma_async.sync.aligned.m64n8k32.f16.{left}.{right}");

        // The right matrix is two tiles of eight columns, each with 16 bytes of the column.
        let body = format!(
            ".reg .b32 %i, %v, %x<2>, %d<2>; .reg .b64 %at, %b; .reg .pred %p; and.b32 %i, %t, 3;
            mad.wide.u32 %at, %i, 4, %in; ld.global.b32 %x0, [%at]; ld.global.b32 %x1, [%at+16];
            shr.u32 %v, %t, 5; mad.lo.u32 %i, %v, 4, %i; mad.wide.u32 %at, %i, 4, %in; ld.global.b32 %v, [%at+32];
            mov.u32 %i, s; mad.lo.u32 %i, %t, 4, %i; st.shared.b32 [%i], %v;
            ld.global.b32 %d0, [%in+64]; mov.b32 %d1, %d0;
            mov.u32 %i, s; shr.u32 %i, %i, 4; cvt.u64.u32 %b, %i; or.b64 %b, %b, {};
            setp.ge.u32 %p, %t, 0; fence.proxy.async.shared::cta; bar.sync 0; wgmma.fence.sync.aligned;
            {inst} {{%d0, %d1}}, {{%x0, %x0, %x1, %x1}}, %b, %p, 1, 1;
            wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
            mad.wide.u32 %at, %t, 8, %out; st.global.v2.b32 [%at], {{%d0, %d1}};",
            8u64 << 16 | 16 << 32,
        );
        let found = sums(&body, "sm_90a", (&row, &column, all("f16", c)), GROUP);
        let same = found
            .as_chunks::<4>()
            .0
            .iter()
            .all(|word| *word == all("f16", wanted).to_le_bytes());
        assert!(same, "{inst} gives {:x?}, not {wanted:x}", &found[..4]);
    }
}
