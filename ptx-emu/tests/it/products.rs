//! Manual, "Asynchronous Warpgroup Level Matrix Instructions": every form against a plain product, and what is in the way
//! of one.

use half::{bf16, f16};
use ptx_emu::{Class, Fault, Module, Order};

use crate::machine::{SETUP, Setup, kernel, launch};

/// How a matrix lies in shared memory: its swizzle in bytes, and whether the inner dimension is that of the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) swizzle: u32,
    pub(crate) transposed: bool,
}

pub(crate) const PLAIN: Layout = Layout {
    swizzle: 128,
    transposed: false,
};

/// A small number, different everywhere.
pub(crate) fn value(i: usize, j: usize) -> i32 {
    ((i * 7 + j * 13 + i * j) % 23) as i32 - 9
}

pub(crate) fn size(ty: &str) -> usize {
    match ty {
        "f16" | "bf16" => 2,
        "tf32" => 4,
        _ => 1,
    }
}

/// The bits of a number as a type has them, and what they stand for.
pub(crate) fn encode(ty: &str, x: i32) -> (u32, f64) {
    let x8 = x.clamp(-8, 8);
    match ty {
        "f16" => (
            f16::from_f32(x as f32 / 4.0).to_bits().into(),
            f64::from(x) / 4.0,
        ),
        "bf16" => (
            bf16::from_f32(x as f32 / 4.0).to_bits().into(),
            f64::from(x) / 4.0,
        ),
        "tf32" => ((x as f32 / 4.0).to_bits(), f64::from(x) / 4.0),
        "e4m3" => (float8(x8, 4), f64::from(x8)),
        "e5m2" => (float8(x8 / 2 * 2, 5), f64::from(x8 / 2 * 2)),
        "u8" => ((x as u8).into(), f64::from(x as u8)),
        "s8" => ((x as i8 as u8).into(), x.into()),
        _ => unreachable!("{ty}"),
    }
}

/// A whole number from -8 to 8 as an 8-bit float.
fn float8(x: i32, exponent_bits: u32) -> u32 {
    let fraction_bits = 7 - exponent_bits;
    let sign = if x < 0 { 0x80 } else { 0 };
    let Some(exponent) = x.unsigned_abs().checked_ilog2() else {
        return sign;
    };

    let bias = (1 << (exponent_bits - 1)) - 1;
    let fraction = (x.unsigned_abs() << fraction_bits >> exponent) & ((1 << fraction_bits) - 1);
    assert_eq!(
        (fraction | 1 << fraction_bits) << exponent >> fraction_bits,
        x.unsigned_abs(),
        "{x} is not exact"
    );
    sign | (exponent + bias) << fraction_bits | fraction
}

/// The bytes of a matrix of `outer` rows or columns by 32 bytes of the inner dimension, and its descriptor but for the
/// address. By the manual's figures: groups of eight rows of `swizzle` bytes, the 16-byte units of a row exchanged.
pub(crate) fn image(
    ty: &str,
    outer: usize,
    depth: usize,
    l: Layout,
    v: impl Fn(usize, usize) -> i32,
) -> (Vec<u8>, u64) {
    if l.swizzle == 0 {
        return tiles(ty, outer, depth, l, v);
    }

    let (bytes, span) = (size(ty), l.swizzle as usize);
    let (rows, columns) = if l.transposed {
        (depth, outer)
    } else {
        (outer, depth)
    };
    let panels = (columns * bytes).div_ceil(span);
    let panel = rows.next_multiple_of(8) * span;
    let mut out = vec![0; panels * panel];
    for o in 0..outer {
        for k in 0..depth {
            let (row, column) = if l.transposed { (k, o) } else { (o, k) };
            let at = column * bytes % span;
            let unit = match span {
                128 => (at / 16) ^ (row % 8),
                64 => (at / 16) ^ (row / 2 % 4),
                _ => (at / 16) ^ (row / 4 % 2),
            };
            let to = column * bytes / span * panel + row * span + unit * 16 + at % 16;
            out[to..to + bytes].copy_from_slice(&encode(ty, v(o, k)).0.to_le_bytes()[..bytes]);
        }
    }

    let code = match span {
        128 => 1u64,
        64 => 2,
        _ => 3,
    };
    let leading = if l.transposed { panel as u64 >> 4 } else { 1 };
    (
        out,
        code << 62 | ((8 * span as u64) >> 4) << 32 | leading << 16,
    )
}

/// The same without a swizzle: tiles of 8 by 16 bytes lie after each other, those of the inner dimension first.
fn tiles(
    ty: &str,
    outer: usize,
    depth: usize,
    l: Layout,
    v: impl Fn(usize, usize) -> i32,
) -> (Vec<u8>, u64) {
    let bytes = size(ty);
    let inner = if l.transposed {
        depth / 8
    } else {
        depth * bytes / 16
    };
    let mut out = vec![0; outer * depth * bytes];
    for o in 0..outer {
        for k in 0..depth {
            let (row, column, tile) = if l.transposed {
                (k % 8, o * bytes, o * bytes / 16 * inner + k / 8)
            } else {
                (o % 8, k * bytes, o / 8 * inner + k * bytes / 16)
            };
            let to = 128 * tile + 16 * row + column % 16;
            out[to..to + bytes].copy_from_slice(&encode(ty, v(o, k)).0.to_le_bytes()[..bytes]);
        }
    }

    // From tile to tile of the inner dimension, and of the other one.
    (out, 8 << 16 | (8 * inner as u64) << 32)
}

/// Bytes of shared memory that hold the left matrix.
pub(crate) const LEFT: usize = 16384;

/// A program that brings `bytes` of `in` to shared memory and fences them, with `%a` and `%b` as descriptors, `%x` as
/// registers of a left matrix, `%d` as sums, and then `body`. Registers of lanes come after the matrices.
pub(crate) fn program(
    bytes: usize,
    [a, b]: [u64; 2],
    sums: usize,
    float: bool,
    body: &str,
) -> String {
    let ty = if float { "f32" } else { "b32" };
    let zero = if float { "0f00000000" } else { "0" };
    let mut text = format!(
        ".reg .b32 %s, %at, %x<4>, %v<4>; .reg .{ty} %d<{sums}>; .reg .b64 %a, %b, %w, %from, %to; .reg .pred %p;
         mov.u32 %s, s; shr.u32 %at, %s, 4; cvt.u64.u32 %w, %at; or.b64 %a, %w, {a}; add.u64 %w, %w, {}; or.b64 %b, %w, {b};
         mad.wide.u32 %from, %t, 16, %in; mad.lo.u32 %at, %t, 16, %s;\n",
        LEFT / 16
    );
    for i in 0..bytes / 2048 {
        let at = 2048 * i;
        text += &format!(
            "ld.global.v4.b32 {{%v0,%v1,%v2,%v3}}, [%from+{at}]; st.shared.v4.b32 [%at+{at}], {{%v0,%v1,%v2,%v3}};\n"
        );
    }

    text += &format!("ld.global.v4.b32 {{%x0,%x1,%x2,%x3}}, [%from+{bytes}];\n");
    text += "fence.proxy.async.shared::cta;\nbar.sync 0;\nsetp.ge.u32 %p, %t, 0;\n";
    (0..sums).for_each(|i| text += &format!("mov.{ty} %d{i}, {zero};\n"));
    text += body;
    text += &format!("\nmad.wide.u32 %to, %t, {}, %out;\n", 4 * sums);
    (0..sums).for_each(|i| text += &format!("st.global.{ty} [%to+{}], %d{i};\n", 4 * i));
    kernel(&text)
        .replace(".target sm_90", ".target sm_90a")
        .replace(".visible", ".extern .shared .align 1024 .b8 s[];\n.visible")
}

pub(crate) const GROUP: Setup = Setup {
    block: 128,
    shared: 1 << 16,
    ..SETUP
};

pub(crate) fn list(prefix: &str, n: usize) -> String {
    format!(
        "{{{}}}",
        (0..n)
            .map(|i| format!("{prefix}{i}"))
            .collect::<Vec<_>>()
            .join(", ")
    )
}

/// A form: the type of sums, of the left and of the right matrix.
struct Form {
    sum: &'static str,
    left: &'static str,
    right: &'static str,
}

impl Form {
    fn depth(&self) -> usize {
        32 / size(self.left)
    }

    fn name(&self, columns: usize) -> String {
        let Form { sum, left, right } = self;
        format!(
            "wgmma.mma_async.sync.aligned.m64n{columns}k{}.{sum}.{left}.{right}",
            self.depth()
        )
    }

    /// What follows the descriptors.
    fn rest(&self, in_registers: bool, layouts: [Layout; 2]) -> String {
        let scales = if self.sum == "s32" { "" } else { ", 1, 1" };
        let turns = layouts.map(|l| u8::from(l.transposed));
        match (size(self.left), in_registers) {
            (2, true) => format!(", %p{scales}, {}", turns[1]),
            (2, false) => format!(", %p{scales}, {}, {}", turns[0], turns[1]),
            _ => format!(", %p{scales}"),
        }
    }
}

/// A left matrix as registers of `mma.sync`: four words of each lane, after each other.
pub(crate) fn registers(ty: &str, v: impl Fn(usize, usize) -> i32) -> Vec<u8> {
    let each = 4 / size(ty);
    let word = |thread: usize, r: usize| {
        let (warp, g, t) = (thread / 32, thread % 32 / 4, thread % 4);
        let row = 16 * warp + g + 8 * (r % 2);
        let element = |i: usize| encode(ty, v(row, each * t + i + 4 * each * (r / 2))).0;
        (0..each)
            .map(|i| element(i) << (8 * size(ty) * i))
            .sum::<u32>()
    };
    (0..512)
        .flat_map(|i| word(i / 4, i % 4).to_le_bytes())
        .collect()
}

/// Compares sums with what two equal products in a row add up to, of which each is rounded to the type of sums.
pub(crate) fn wanted(
    ty: &str,
    columns: usize,
    out: &[u8],
    what: &str,
    sum: impl Fn(usize, usize) -> f64,
) {
    let size = if ty == "f16" { 2 } else { 4 };
    for (i, found) in out.chunks(size).enumerate() {
        let (thread, r) = (i / (columns / 2), i % (columns / 2));
        let row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (r / 2 % 2);
        let column = 8 * (r / 4) + 2 * (thread % 4) + r % 2;
        let once = sum(row, column);
        let wanted = match ty {
            "f16" => f16::from_f64(f16::from_f64(once).to_f64() + once)
                .to_bits()
                .into(),
            "f32" => ((2.0 * once) as f32).to_bits(),
            _ => (2.0 * once) as i32 as u32,
        };
        let found = found
            .iter()
            .rev()
            .fold(0, |bits, byte| bits << 8 | u32::from(*byte));
        assert_eq!(found, wanted, "{what} row {row} column {column}");
    }
}

/// Runs a product twice, so that the second adds to the first, and compares each sum.
fn check(form: &Form, columns: usize, in_registers: bool, layouts: [Layout; 2], order: Order) {
    let depth = form.depth();
    let (mut bytes, a) = image(form.left, 64, depth, layouts[0], value);
    assert!(bytes.len() <= LEFT);
    bytes.resize(LEFT, 0);
    let (right, b) = image(form.right, columns, depth, layouts[1], |n, k| {
        value(k + 3, n)
    });
    bytes.extend(right);
    bytes.resize(bytes.len().next_multiple_of(2048), 0);
    let (sums, staged) = (columns / if form.sum == "f16" { 4 } else { 2 }, bytes.len());
    bytes.extend(registers(form.left, value));
    let left = if in_registers {
        list("%x", 4)
    } else {
        "%a".into()
    };
    let product = format!(
        "{} {}, {left}, %b{};",
        form.name(columns),
        list("%d", sums),
        form.rest(in_registers, layouts)
    );
    let body = format!(
        "wgmma.fence.sync.aligned;\n{product}\n{product}\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
    );
    let mut text = program(staged, [a, b], sums, form.sum == "f32", &body);
    if form.left != form.right && form.sum == "s32" {
        text = text.replace(".version 8.6", ".version 8.4");
    }

    let setup = Setup {
        order,
        seed: columns as u64,
        ..GROUP
    };
    let (out, _) = launch(&text, &bytes, 4 * (128 * sums) as u64, setup)
        .unwrap_or_else(|fault| panic!("{product}: {fault}"));
    let sum = |row: usize, column: usize| {
        let of =
            |k| encode(form.left, value(row, k)).1 * encode(form.right, value(k + 3, column)).1;
        (0..depth).map(of).sum::<f64>()
    };
    wanted(form.sum, columns, &out, &product, sum);
}

const FORMS: [Form; 14] = [
    Form {
        sum: "f32",
        left: "f16",
        right: "f16",
    },
    Form {
        sum: "f32",
        left: "bf16",
        right: "bf16",
    },
    Form {
        sum: "f32",
        left: "tf32",
        right: "tf32",
    },
    Form {
        sum: "s32",
        left: "s8",
        right: "s8",
    },
    Form {
        sum: "s32",
        left: "u8",
        right: "u8",
    },
    Form {
        sum: "s32",
        left: "u8",
        right: "s8",
    },
    Form {
        sum: "s32",
        left: "s8",
        right: "u8",
    },
    Form {
        sum: "f32",
        left: "e4m3",
        right: "e4m3",
    },
    Form {
        sum: "f32",
        left: "e4m3",
        right: "e5m2",
    },
    Form {
        sum: "f32",
        left: "e5m2",
        right: "e4m3",
    },
    Form {
        sum: "f32",
        left: "e5m2",
        right: "e5m2",
    },
    Form {
        sum: "f16",
        left: "f16",
        right: "f16",
    },
    Form {
        sum: "f16",
        left: "e4m3",
        right: "e5m2",
    },
    Form {
        sum: "f16",
        left: "e5m2",
        right: "e5m2",
    },
];

#[test]
fn products_of_all_forms() {
    for form in &FORMS {
        for in_registers in [false, true] {
            check(form, 16, in_registers, [PLAIN; 2], Order::InOrder);
            check(form, 8, in_registers, [PLAIN; 2], Order::Shuffled);
        }
    }
}

#[test]
fn products_of_every_width() {
    (8..=256)
        .step_by(8)
        .for_each(|columns| check(&FORMS[0], columns, false, [PLAIN; 2], Order::InOrder));
    for columns in [24, 96, 256] {
        check(&FORMS[3], columns, true, [PLAIN; 2], Order::Shuffled);
    }
}

#[test]
fn matrices_lie_in_every_layout() {
    for a in [128, 64, 32] {
        for b in [128, 64, 32] {
            for turns in 0..4 {
                let layout = |swizzle, bit: u32| Layout {
                    swizzle,
                    transposed: turns >> bit & 1 == 1,
                };
                check(
                    &FORMS[0],
                    128,
                    false,
                    [layout(a, 0), layout(b, 1)],
                    Order::InOrder,
                );
                check(&FORMS[1], 64, true, [PLAIN, layout(b, 1)], Order::Reversed);
            }
        }
    }
    for turns in 0..4 {
        let layout = |bit: u32| Layout {
            swizzle: 0,
            transposed: turns >> bit & 1 == 1,
        };
        check(&FORMS[0], 64, false, [layout(0), layout(1)], Order::InOrder);
    }
}

/// A body for the smallest product of halves, on matrices of ones; and how it ends.
fn run(body: &str, setup: Setup) -> Result<Vec<u8>, Box<Fault>> {
    let bytes: Vec<u8> = f16::ONE
        .to_bits()
        .to_le_bytes()
        .repeat((LEFT + 2048 + 2048) / 2);
    let descriptor = 1 << 62 | 64 << 32 | 1 << 16;
    let text = program(LEFT + 2048, [descriptor; 2], 4, true, body);
    launch(&text, &bytes, 4 * 64 * 8, setup).map(|(out, _)| out)
}

const FENCE: &str = "wgmma.fence.sync.aligned;\n";
const PRODUCT: &str = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0,%d1,%d2,%d3}, %a, %b, %p, 1, 1, 0, 0;\n";
pub(crate) const LEFT_PRODUCT: &str = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0,%d1,%d2,%d3}, {%x0,%x1,%x2,%x3}, %b, %p, 1, 1, 0;\n";
const COMMIT: &str = "wgmma.commit_group.sync.aligned;\n";
const WAIT: &str = "wgmma.wait_group.sync.aligned 0;\n";

/// What is in the way of a product, under every schedule.
#[test]
fn mistakes_with_products() {
    use Class::{AsyncUnfinished, Descriptor, ProxyFence, UninitialisedShared, Wgmma};
    let store = "st.shared.b32 [%at], %x0;\n";
    let fenced = "fence.proxy.async.shared::cta;\nbar.sync 0;\n";
    let rows: &[(&[&str], Class, &str)] = &[
        (
            &[PRODUCT, COMMIT, WAIT],
            Wgmma,
            "no wgmma.fence comes before this product",
        ),
        (
            &[FENCE, "mov.f32 %d1, 0f00000000;", PRODUCT, COMMIT, WAIT],
            Wgmma,
            "%d1 was used since the last wgmma.fence",
        ),
        (
            &[FENCE, "mov.b32 %x2, 0;", LEFT_PRODUCT, COMMIT, WAIT],
            Wgmma,
            "%x2 was used since",
        ),
        (
            &[FENCE, PRODUCT, COMMIT, "add.f32 %d0, %d0, %d0;", WAIT],
            Wgmma,
            "%d0 is a sum of a product that the warp has not waited for",
        ),
        (
            &[
                FENCE,
                PRODUCT,
                COMMIT,
                FENCE,
                PRODUCT,
                COMMIT,
                "wgmma.wait_group.sync.aligned 1;",
            ],
            Wgmma,
            "%d0 is a sum",
        ),
        (&[FENCE, PRODUCT, WAIT], Wgmma, "%d0 is a sum"),
        (
            &[FENCE, LEFT_PRODUCT, COMMIT, "mov.b32 %x3, 0;", WAIT],
            Wgmma,
            "%x3 is written, which a product reads",
        ),
        (
            &[store, FENCE, PRODUCT, COMMIT, WAIT],
            ProxyFence,
            "that an ordinary store wrote",
        ),
        (
            &[store, "bar.sync 0;", FENCE, PRODUCT, COMMIT, WAIT],
            ProxyFence,
            "no fence orders the two proxies",
        ),
        (
            &[FENCE, PRODUCT, COMMIT, "bar.sync 0;", store, WAIT],
            Class::AsyncCopy,
            "was written while this",
        ),
        (
            &[FENCE, PRODUCT, COMMIT, "bar.sync 0;", store, fenced, WAIT],
            Class::AsyncCopy,
            "was written while this",
        ),
        (
            &["add.u64 %b, %b, 0x400;", FENCE, PRODUCT, COMMIT, WAIT],
            UninitialisedShared,
            "before any thread has written it",
        ),
        (
            &["add.u64 %b, %b, 8;", FENCE, PRODUCT, COMMIT, WAIT],
            Descriptor,
            "it begins in the first row of 1024 bytes",
        ),
        (
            &[
                "or.b64 %b, %b, 0x2000000000000;",
                FENCE,
                PRODUCT,
                COMMIT,
                WAIT,
            ],
            Descriptor,
            "with a base offset",
        ),
        (
            &[
                "setp.lt.u32 %p, %t, 32; @%p add.u64 %b, %b, 2; setp.ge.u32 %p, %t, 0;",
                FENCE,
                PRODUCT,
                COMMIT,
                WAIT,
            ],
            Wgmma,
            "warps of a warpgroup execute different products",
        ),
        (
            &["setp.lt.u32 %p, %t, 5;", FENCE, PRODUCT, COMMIT, WAIT],
            Wgmma,
            "lanes of a warp disagree whether sums",
        ),
        (
            &["setp.lt.u32 %p, %t, 5; @%p ", FENCE],
            Class::InactiveLane,
            "an .aligned instruction is executed by lanes 0-4",
        ),
        (
            &[FENCE, PRODUCT, COMMIT, "exit;"],
            AsyncUnfinished,
            "a warp has not waited for a product",
        ),
    ];
    for (body, class, part) in rows {
        for (order, seed) in [
            (Order::InOrder, 0),
            (Order::Reversed, 1),
            (Order::Shuffled, 2),
            (Order::Shuffled, 3),
        ] {
            let fault = run(
                &body.concat(),
                Setup {
                    order,
                    seed,
                    ..GROUP
                },
            )
            .expect_err(&body.concat());
            assert_eq!(fault.class, *class, "{body:?}: {fault}");
            assert!(fault.what.contains(part), "{body:?}: {fault}");
        }
    }

    let short = run(FENCE, Setup { block: 64, ..GROUP }).expect_err("two warps are no warpgroup");
    assert!(short.what.contains("the block has 2 warps"), "{short}");
}

#[test]
fn products_without_mistakes() {
    let bodies: &[(&[&str], f32)] = &[
        (&[FENCE, PRODUCT, COMMIT, WAIT], 16.0),
        (
            &[
                FENCE,
                PRODUCT,
                COMMIT,
                FENCE,
                PRODUCT,
                COMMIT,
                "wgmma.wait_group.sync.aligned 1;",
                WAIT,
            ],
            32.0,
        ),
        (
            &[
                FENCE,
                LEFT_PRODUCT,
                PRODUCT,
                COMMIT,
                WAIT,
                "add.f32 %d0, %d0, %d0; mov.f32 %d0, %d1;",
            ],
            32.0,
        ),
        (
            &["setp.lt.u32 %p, %t, 0;", FENCE, PRODUCT, COMMIT, WAIT],
            16.0,
        ),
        // Memory may be written again after the wait.
        (
            &[
                FENCE,
                PRODUCT,
                COMMIT,
                WAIT,
                "bar.sync 0; st.shared.b32 [%at], %x0;",
            ],
            16.0,
        ),
        (
            &[
                "mov.f32 %d0, 0f3f800000; mov.f32 %d1, %d0; mov.f32 %d2, %d0; mov.f32 %d3, %d0;",
                FENCE,
                PRODUCT,
                COMMIT,
                WAIT,
            ],
            17.0,
        ),
    ];
    for (body, wanted) in bodies {
        for (order, seed) in [
            (Order::InOrder, 0),
            (Order::Reversed, 1),
            (Order::Shuffled, 2),
        ] {
            let out = run(
                &body.concat(),
                Setup {
                    order,
                    seed,
                    ..GROUP
                },
            )
            .unwrap_or_else(|fault| panic!("{body:?}: {fault}"));
            assert!(
                out.as_chunks::<4>()
                    .0
                    .iter()
                    .all(|w| f32::from_le_bytes(*w) == *wanted),
                "{body:?}: {out:?}"
            );
        }
    }
}

/// Integers wrap, or are clamped; ptxas takes the word in two places.
#[test]
fn integers_are_clamped_where_it_is_said() {
    let bytes: Vec<u8> = [60u8].repeat(LEFT + 2048 + 2048);
    let descriptor = 1 << 62 | 64 << 32 | 1 << 16;
    let sum = |name: &str| {
        let body = format!(
            "mov.b32 %d0, 0x7fffff00; mov.b32 %d1, 0x80000000;\n{FENCE}wgmma.mma_async.sync.aligned.m64n8k32{name} \
             {{%d0,%d1,%d2,%d3}}, %a, %b, %p;\n{COMMIT}{WAIT}"
        );
        let text = program(LEFT + 2048, [descriptor; 2], 4, false, &body);
        let out = launch(&text, &bytes, 4 * 64 * 8, GROUP)
            .unwrap_or_else(|fault| panic!("{name}: {fault}"))
            .0;
        out.as_chunks::<4>().0[..3]
            .iter()
            .map(|word| i32::from_le_bytes(*word))
            .collect::<Vec<_>>()
    };
    let product = 32 * 60 * 60;
    let [first, second] = [0x7fff_ff00i32, i32::MIN].map(|sum| sum.wrapping_add(product));
    assert_eq!(sum(".s32.s8.s8"), [first, second, product]);
    assert_eq!(sum(".satfinite.s32.s8.s8"), [i32::MAX, second, product]);
    assert_eq!(sum(".s32.u8.u8.satfinite"), [i32::MAX, second, product]);
}

/// The message names the product and the instruction in its way.
#[test]
fn the_product_is_named() {
    let fault = run(
        &[FENCE, PRODUCT, COMMIT, "add.f32 %d0, %d0, %d0;", WAIT].concat(),
        GROUP,
    )
    .expect_err("too early");
    let text = fault.to_string();
    for wanted in [
        "Wgmma: %d0 is a sum of a product that the warp has not waited for\n  in k, block (0,0,0), thread (96,0,0)",
        "`add.f32 %d0, %d0, %d0`\n  warp 3 lane 0 issued it at line",
        "`wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0,%d1,%d2,%d3}, %a, %b, %p, 1, 1, 0, 0`",
        "execute wgmma.wait_group first",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
}

#[test]
fn mistakes_in_the_text() {
    let rows = [
        (
            PRODUCT.replace("m64n8k16", "m64n12k16"),
            "unsupported in ptx-emu: wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16",
        ),
        (
            PRODUCT.replace("m64n8k16", "m64n16k16"),
            "a vector of 8 .f32 registers was expected, not of 4",
        ),
        (
            PRODUCT.replace("1, 1, 0, 0", "1, 2, 0, 0"),
            "1 or -1 was expected",
        ),
        (
            PRODUCT.replace(".f16.f16", ".f16.bf16"),
            "unsupported in ptx-emu: wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16",
        ),
        (
            PRODUCT.replace("1, 1, 0, 0", "1, 1"),
            "takes 8 operands, not 6",
        ),
    ];
    for (inst, wanted) in rows {
        let text = program(2048, [0; 2], 4, true, &inst);
        let error = Module::parse(&text)
            .and_then(Module::complete)
            .expect_err(&inst);
        assert!(error.0[0].what.contains(wanted), "{inst}: {error}");
    }
}
