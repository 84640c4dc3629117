//! `wmma`, and the forms of `mma` that are seldom, against plain products.

use ptx_emu::Class;

use crate::machine::{SETUP, kernel, launch};

/// A small number, different everywhere.
pub(crate) fn value(i: usize, j: usize) -> i32 {
    ((i * 7 + j * 13 + i * j) % 15) as i32 - 7
}

/// Bits of an element of a type, and the bits of a number in it.
pub(crate) fn encode(ty: &str, x: i32) -> (usize, u64) {
    let x16 = |x: i32| half::f16::from_f32(x as f32);
    match ty {
        "f16" => (16, x16(x).to_bits().into()),
        "bf16" => (16, half::bf16::from_f32(x as f32).to_bits().into()),
        "f32" | "tf32" => (32, (x as f32).to_bits().into()),
        "f64" => (64, f64::from(x).to_bits()),
        "s8" | "u8" => (8, u64::from(stands_for(ty, x) as u8)),
        "s4" | "u4" => (4, (stands_for(ty, x) & 15) as u64),
        "b1" => (1, (x & 1) as u64),
        // Sign, exponent and mantissa of an f16 whose upper byte it is; small integers have two bits of mantissa.
        "e5m2" => (8, u64::from(x16(stands_for(ty, x)).to_bits() >> 8)),
        "e4m3" => (8, e4m3(x)),
        _ => (32, x as u32 as u64),
    }
}

fn e4m3(x: i32) -> u64 {
    let bits = (x as f32).to_bits();
    let magnitude = if x == 0 {
        0
    } else {
        (bits >> 20 & 0x7ff) - (120 << 3)
    };
    u64::from(bits >> 31 << 7 | magnitude)
}

/// The number that the type makes of one.
pub(crate) fn stands_for(ty: &str, x: i32) -> i32 {
    match ty {
        "u8" | "u4" => x.abs(),
        "b1" => x & 1,
        "e5m2" => x.clamp(-4, 4),
        _ => x,
    }
}

/// A matrix in memory, row by row or column by column, with `stride` elements from one to the next.
fn lay(
    ty: &str,
    (rows, columns): (usize, usize),
    by_rows: bool,
    stride: usize,
    at: impl Fn(usize, usize) -> i32,
) -> Vec<u8> {
    let bits = encode(ty, 0).0;
    let lines = if by_rows { rows } else { columns };
    let mut bytes = vec![0u8; lines * stride * bits / 8];
    for row in 0..rows {
        for column in 0..columns {
            let place = if by_rows {
                row * stride + column
            } else {
                column * stride + row
            };
            for b in 0..bits {
                let set = encode(ty, at(row, column)).1 >> b & 1;
                bytes[(place * bits + b) / 8] |= (set as u8) << ((place * bits + b) % 8);
            }
        }
    }

    bytes
}

fn names(of: &str, count: usize) -> String {
    let all: Vec<String> = (0..count).map(|i| format!("%{of}{i}")).collect();
    format!("{{{}}}", all.join(", "))
}

/// Shape, types of sums, left and right matrix, registers of a, b and sums.
type Form = (
    (usize, usize, usize),
    &'static str,
    &'static str,
    [usize; 3],
);

const FORMS: &[Form] = &[
    ((16, 16, 16), "f16", "f16", [8, 8, 4]),
    ((16, 16, 16), "f32", "f16", [8, 8, 8]),
    ((32, 8, 16), "f32", "f16", [8, 8, 8]),
    ((8, 32, 16), "f16", "f16", [8, 8, 4]),
    ((16, 16, 16), "f32", "bf16", [4, 4, 8]),
    ((32, 8, 16), "f32", "bf16", [8, 2, 8]),
    ((8, 32, 16), "f32", "bf16", [2, 8, 8]),
    ((16, 16, 16), "s32", "s8", [2, 2, 8]),
    ((32, 8, 16), "s32", "u8", [4, 1, 8]),
    ((8, 32, 16), "s32", "s8", [1, 4, 8]),
    ((16, 16, 8), "f32", "tf32", [4, 4, 8]),
    ((8, 8, 4), "f64", "f64", [1, 1, 2]),
    ((8, 8, 32), "s32", "s4", [1, 1, 2]),
    ((8, 8, 32), "s32", "u4", [1, 1, 2]),
    ((8, 8, 128), "s32", "b1", [1, 1, 2]),
];

/// The text of a product that loads its matrices, and the memory that it loads them from.
fn program(form: &Form, [of_a, of_b, of_c]: [bool; 3], space: &str) -> (String, Vec<u8>, usize) {
    let ((m, n, k), sum, item, [ra, rb, rc]) = *form;
    let layout = |rows: bool| if rows { "row" } else { "col" };
    let (wide, small) = (
        if sum == "f64" { 64 } else { 32 },
        if item == "b1" || item.ends_with('4') {
            k
        } else {
            0
        },
    );
    let stride = |rows: bool, r: usize, c: usize| {
        (if rows { c } else { r }) + if small > 0 { small } else { 16 }
    };
    let (sa, sb, sc) = (stride(of_a, m, k), stride(of_b, k, n), stride(of_c, m, n));
    let mut memory = lay(item, (m, k), of_a, sa, value);
    let at_b = memory.len();
    memory.extend(lay(item, (k, n), of_b, sb, |r, c| value(c + 3, r)));
    let at_c = memory.len();
    memory.extend(lay(sum, (m, n), of_c, sc, |r, c| value(r, c + 5) * 3));
    let shape = format!("m{m}n{n}k{k}");
    let types = match item {
        "f16" => format!("{sum}.{sum}"),
        _ => format!("{sum}.{item}.{item}.{sum}"),
    };
    let op = if item == "b1" { ".xor.popc" } else { "" };
    let (la, lb, lc) = (layout(of_a), layout(of_b), layout(of_c));
    let (a, b, c) = (names("a", ra), names("b", rb), names("c", rc));
    let text = format!(
        ".reg .b{wide} %a<{ra}>, %b<{rb}>, %c<{rc}>; .reg .b32 %s;
        mov.u32 %s, {sa};
        wmma.load.a.sync.aligned.{la}.{shape}{space}.{item} {a}, [%in], %s;
        wmma.load.b.sync.aligned.{shape}.{lb}.{item} {b}, [%in+{at_b}], {sb};
        wmma.load.c.sync.aligned.{lc}.{shape}.{sum} {c}, [%in+{at_c}], {sc};
        wmma.mma{op}.sync.aligned.{la}.{lb}.{shape}.{types} {c}, {a}, {b}, {c};
        wmma.store.d.sync.aligned.{lc}.{shape}.{sum} [%out], {c};"
    );
    (kernel(&text), memory, m * n * encode(sum, 0).0 / 8)
}

fn product(form: &Form, row: usize, column: usize) -> i32 {
    let ((_, _, k), _, item, _) = *form;
    let term = |i: usize| {
        let (a, b) = (
            stands_for(item, value(row, i)),
            stands_for(item, value(column + 3, i)),
        );
        if item == "b1" { a ^ b } else { a * b }
    };
    (0..k).map(term).sum::<i32>() + value(row, column + 5) * 3
}

#[test]
fn wmma_of_all_shapes_and_layouts() {
    for form in FORMS {
        let small = form.2 == "b1" || form.2.ends_with('4') && form.2 != "f64" && form.2 != "f32";
        for bits in 0..8 {
            let layouts = [bits & 1 == 0, bits & 2 == 0, bits & 4 == 0];
            if small && (!layouts[0] || layouts[1]) || form.2 == "f64" && bits == 5 {
                continue;
            }

            let space = if bits & 1 == 0 { ".global" } else { "" };
            let (text, memory, room) = program(form, layouts, space);
            let (out, _) = launch(&text, &memory, room as u64, SETUP)
                .unwrap_or_else(|f| panic!("{form:?}: {f}\n{text}"));
            let ((m, n, _), sum, ..) = *form;
            let wanted = lay(
                sum,
                (m, n),
                layouts[2],
                if layouts[2] { n } else { m },
                |r, c| product(form, r, c),
            );
            assert!(out == wanted, "{form:?} with rows {layouts:?}");
        }
    }
}

#[test]
fn wmma_checks_its_matrix() {
    let load = |address: &str, stride: &str| {
        kernel(&format!(
            ".reg .b32 %a<4>, %s; .reg .b64 %p; add.u64 %p, %in, 0; mov.u32 %s, 16;
            setp.eq.u32 %q, %t, 5; {address} {stride}
            wmma.load.a.sync.aligned.row.m16n16k16.bf16 {{%a0, %a1, %a2, %a3}}, [%p], %s;"
        ))
        .replace(".reg .b32 %t;", ".reg .b32 %t; .reg .pred %q;")
    };
    let class = |text: &str, bytes: usize| {
        launch(text, &vec![0; bytes], 4, SETUP)
            .map(|_| ())
            .map_err(|f| f.class)
    };
    assert_eq!(class(&load("", ""), 512), Ok(()));
    assert_eq!(class(&load("", ""), 510), Err(Class::OutOfBounds));
    assert_eq!(
        class(&load("@%q add.u64 %p, %p, 16;", ""), 600),
        Err(Class::Descriptor)
    );
    assert_eq!(
        class(&load("", "mov.u32 %s, 8;"), 600),
        Err(Class::Descriptor)
    );
    assert_eq!(
        class(&load("add.u64 %p, %p, 2;", ""), 600),
        Err(Class::Misaligned)
    );
    let part = load("", "").replace("wmma", "@%q wmma");
    assert_eq!(class(&part, 512), Err(Class::InactiveLane));
}

/// Products in registers: fragments laid out as the manual says, element by element.
#[test]
fn products_of_seldom_forms() {
    // Name, shape, types of sums, of a, of b, suffix.
    let forms: &[(usize, usize, &str, &str, &str, &str)] = &[
        (16, 8, "f16", "f16", "f16", ""),
        (16, 16, "f16", "f16", "f16", ""),
        (16, 4, "f32", "tf32", "tf32", ""),
        (16, 8, "f32", "tf32", "tf32", ""),
        (8, 4, "f64", "f64", "f64", ""),
        (16, 4, "f64", "f64", "f64", ""),
        (16, 8, "f64", "f64", "f64", ""),
        (16, 16, "f64", "f64", "f64", ""),
        (16, 32, "f32", "e4m3", "e5m2", ""),
        (16, 32, "f16", "e5m2", "e4m3", ""),
        (16, 16, "f32", "e4m3", "e4m3", ""),
        (8, 16, "s32", "s8", "u8", ""),
        (16, 32, "s32", "s4", "u4", ""),
        (16, 64, "s32", "u4", "s4", ""),
        (8, 32, "s32", "s4", "s4", ""),
        (8, 128, "s32", "b1", "b1", ".xor.popc"),
        (16, 256, "s32", "b1", "b1", ".and.popc"),
    ];
    for &(m, k, sum, left, right, op) in forms {
        let (bits_a, bits_c) = (encode(left, 0).0, encode(sum, 0).0);
        let (each, each_c) = (32usize.div_ceil(bits_a), 32usize.div_ceil(bits_c));
        let (ra, rb, rc) = (m * k / 32 / each, k * 8 / 32 / each, m * 8 / 32 / each_c);
        let word = if bits_a == 64 { 8 } else { 4 };
        let mut memory: Vec<u8> = vec![];
        let mut push = |bits: u64| memory.extend(&bits.to_le_bytes()[..word]);
        for lane in 0..32 {
            let (g, t) = (lane / 4, lane % 4);
            let pack = |ty: &str, each: usize, at: &dyn Fn(usize) -> i32| {
                (0..each)
                    .map(|i| encode(ty, at(i)).1 << (i * encode(ty, 0).0 % 64))
                    .sum::<u64>()
            };

            // With 16 rows, every other register of a has the lower eight.
            let (over, wide) = (m / 8, 4 * each);
            (0..ra).for_each(|r| {
                push(pack(left, each, &|i| {
                    value(g + 8 * (r % over), each * t + i + wide * (r / over))
                }))
            });
            (0..rb).for_each(|r| {
                push(pack(right, each, &|i| {
                    value(g + 3, each * t + i + wide * r)
                }))
            });
            let c_at = |e: usize| value(g + 8 * (e / 2), 2 * t + e % 2 + 5) * 3;
            (0..rc).for_each(|r| push(pack(sum, each_c, &|i| c_at(each_c * r + i))));
        }

        let count = ra + rb + rc;
        let loads: String = (0..count)
            .map(|r| format!("ld.global.b{0} %r{r}, [%at+{1}];\n", 8 * word, word * r))
            .collect();
        let list = |from: usize, n: usize| {
            format!(
                "{{{}}}",
                (from..from + n)
                    .map(|r| format!("%r{r}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        };
        let inst = format!(
            "mma.sync.aligned.m{m}n8k{k}.row.col.{sum}.{left}.{right}.{sum}{op} {0}, {1}, {2}, {0};",
            list(ra + rb, rc),
            list(0, ra),
            list(ra, rb)
        );
        let stores: String = (0..rc)
            .map(|r| {
                format!(
                    "st.global.b{0} [%at+{1}], %r{2};\n",
                    8 * word,
                    word * r,
                    ra + rb + r
                )
            })
            .collect();
        let text = kernel(&format!(
            ".reg .b{0} %r<{count}>; .reg .b64 %at; mad.wide.u32 %at, %t, {1}, %in;\n{loads}{inst}\nmad.wide.u32 %at, %t, {2}, %out;\n{stores}",
            8 * word,
            word * count,
            word * rc
        ));
        let text = text.replace(".version 8.6", ".version 8.7");
        let (out, _) = launch(&text, &memory, (32 * word * rc) as u64, SETUP)
            .unwrap_or_else(|f| panic!("{inst}: {f}"));
        let element = |lane: usize, e: usize| {
            let at = (lane * rc + e / each_c) * word;
            let bits = out[at..at + word]
                .iter()
                .rev()
                .fold(0u64, |bits, b| bits << 8 | u64::from(*b));
            bits >> (bits_c * (e % each_c)) & u64::MAX >> (64 - bits_c)
        };
        for lane in 0..32 {
            for e in 0..rc * each_c {
                let (row, column) = (lane / 4 + 8 * (e / 2), 2 * (lane % 4) + e % 2);
                let term = |i: usize| {
                    let (a, b) = (
                        stands_for(left, value(row, i)),
                        stands_for(right, value(column + 3, i)),
                    );
                    match op {
                        ".xor.popc" => a ^ b,
                        ".and.popc" => a & b,
                        _ => a * b,
                    }
                };
                let wanted = (0..k).map(term).sum::<i32>() + value(row, column + 5) * 3;
                assert_eq!(
                    element(lane, e),
                    encode(sum, wanted).1,
                    "{inst} row {row} column {column}"
                );
            }
        }
    }
}

/// `mma.m8n8k4` of halves: lanes 4 q to 4 q + 3 and 4 q + 16 to 4 q + 19 hold product q.
#[test]
fn four_products_of_eight_lanes_each() {
    let layouts = [
        ("row", "row"),
        ("row", "col"),
        ("col", "row"),
        ("col", "col"),
    ];
    for (of_a, of_b) in layouts {
        for (of_d, of_c) in [("f16", "f16"), ("f32", "f16"), ("f32", "f32")] {
            let inst = format!("mma.sync.aligned.m8n8k4.{of_a}.{of_b}.{of_d}.f16.f16.{of_c}");

            // Row and column of element i of a lane, in its product.
            let factor = |by: &str, lane: usize, i: usize| {
                let upper = if lane < 16 { 0 } else { 4 };
                if by == "row" {
                    (lane % 4 + upper, i)
                } else {
                    (i + upper, lane % 4)
                }
            };
            let sum = |ty: &str, lane: usize, i: usize| {
                let upper = if lane < 16 { 0 } else { 4 };
                match ty {
                    "f16" => (lane % 4 + upper, i),
                    _ => ((lane & 1) + (i & 2) + upper, (i & 4) + (lane & 2) + (i & 1)),
                }
            };
            let a = |quad: usize, row: usize, k: usize| value(row + 9 * quad, k);
            let b = |quad: usize, column: usize, k: usize| value(column + 5, k + 4 * quad);
            let c = |quad: usize, row: usize, column: usize| value(row, column + quad);
            let mut memory: Vec<u8> = vec![];
            for lane in 0..32 {
                let quad = lane / 4 % 4;
                for i in 0..4 {
                    let (row, k) = factor(of_a, lane, i);
                    memory.extend(&encode("f16", a(quad, row, k)).1.to_le_bytes()[..2]);
                }

                for i in 0..4 {
                    // By columns, b lies as a does by rows.
                    let (column, k) = factor(if of_b == "col" { "row" } else { "col" }, lane, i);
                    memory.extend(&encode("f16", b(quad, column, k)).1.to_le_bytes()[..2]);
                }

                for i in 0..8 {
                    let (row, column) = sum(of_c, lane, i);
                    let (bits, element) = encode(of_c, c(quad, row, column));
                    memory.extend(&element.to_le_bytes()[..bits / 8]);
                }
            }

            let registers = |ty: &str| if ty == "f16" { 4 } else { 8 };
            let (rc, rd) = (registers(of_c), registers(of_d));
            let loads: String = (0..4 + rc)
                .map(|r| format!("ld.global.b32 %r{r}, [%at+{}];\n", 4 * r))
                .collect();
            let list = |name: &str, from: usize, n: usize| {
                format!(
                    "{{{}}}",
                    (from..from + n)
                        .map(|r| format!("%{name}{r}"))
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            };
            let stores: String = (0..rd)
                .map(|r| format!("st.global.b32 [%at+{}], %d{r};\n", 4 * r))
                .collect();
            let text = kernel(&format!(
                ".reg .b32 %r<12>, %d<8>; .reg .b64 %at; mad.wide.u32 %at, %t, {}, %in;\n{loads}{inst} {}, {}, {}, {};\n\
                 mad.wide.u32 %at, %t, {}, %out;\n{stores}",
                4 * (4 + rc),
                list("d", 0, rd),
                list("r", 0, 2),
                list("r", 2, 2),
                list("r", 4, rc),
                4 * rd,
            ));
            let (out, _) = launch(&text, &memory, 128 * rd as u64, SETUP)
                .unwrap_or_else(|f| panic!("{inst}: {f}"));
            let bytes = encode(of_d, 0).0 / 8;
            for (at, found) in out.chunks(bytes).enumerate() {
                let (lane, i) = (at / 8, at % 8);
                let (quad, (row, column)) = (lane / 4 % 4, sum(of_d, lane, i));
                let products: i32 = (0..4).map(|k| a(quad, row, k) * b(quad, column, k)).sum();
                let wanted = encode(of_d, products + c(quad, row, column)).1;
                assert_eq!(
                    found,
                    &wanted.to_le_bytes()[..bytes],
                    "{inst} lane {lane} element {i}"
                );
            }
        }
    }
}

#[test]
fn sums_of_integers_are_clamped_when_told() {
    let text = kernel(
        ".reg .b32 %r<4>; mov.u32 %r0, 0x7f7f7f7f; mov.s32 %r1, 0x7fffffff; mov.s32 %r2, -5;
        mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.s8.s32 {%r1, %r2}, {%r0}, {%r0}, {%r1, %r2};
        st.global.v2.b32 [%out], {%r1, %r2};",
    );
    let (out, _) = launch(&text, &[], 8, SETUP).unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(
        out,
        [
            0x7fff_ffffu32.to_le_bytes(),
            (16u32 * 127 * 127 - 5).to_le_bytes()
        ]
        .concat()
    );
}
