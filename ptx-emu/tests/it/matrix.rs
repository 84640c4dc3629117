//! Manual, "Warp-Level Matrix Multiply-Accumulate Instructions": every form against a plain product.
//!
//! The layouts are those the manual prints for each shape, element by element.

use half::{bf16, f16};
use ptx_emu::{Class, Module};

use crate::machine::{SETUP, Setup, kernel, launch};

/// Where element i of a lane's fragment lies, with g = lane / 4 and t = lane % 4: row and column.
type Layout = fn(g: usize, t: usize, i: usize) -> (usize, usize);

/// A form: shape, types, depth, elements a lane has of a and of b, their layouts.
struct Form {
    shape: &'static str,
    types: &'static str,
    depth: usize,
    counts: [usize; 2],
    a: Layout,
    b: Layout,
}

const A16: Layout = |g, t, i| (g + 8 * (i >> 1 & 1), 2 * t + (i & 1) + 8 * (i >> 2));
const B16: Layout = |g, t, i| (2 * t + (i & 1) + 8 * (i >> 1), g);
const A8: Layout = |g, t, i| (g + 8 * (i >> 2 & 1), 4 * t + (i & 3) + 16 * (i >> 3));
const B8: Layout = |g, t, i| (4 * t + (i & 3) + 16 * (i >> 2), g);

const FORMS: &[Form] = &[
    Form {
        shape: "m16n8k8",
        types: "f32.f16.f16.f32",
        depth: 8,
        counts: [4, 2],
        a: A16,
        b: B16,
    },
    Form {
        shape: "m16n8k16",
        types: "f32.f16.f16.f32",
        depth: 16,
        counts: [8, 4],
        a: A16,
        b: B16,
    },
    Form {
        shape: "m16n8k8",
        types: "f32.bf16.bf16.f32",
        depth: 8,
        counts: [4, 2],
        a: A16,
        b: B16,
    },
    Form {
        shape: "m16n8k16",
        types: "f32.bf16.bf16.f32",
        depth: 16,
        counts: [8, 4],
        a: A16,
        b: B16,
    },
    Form {
        shape: "m16n8k16",
        types: "s32.s8.s8.s32",
        depth: 16,
        counts: [8, 4],
        a: A8,
        b: B8,
    },
    Form {
        shape: "m16n8k16",
        types: "s32.u8.s8.s32",
        depth: 16,
        counts: [8, 4],
        a: A8,
        b: B8,
    },
    Form {
        shape: "m16n8k32",
        types: "s32.s8.s8.s32",
        depth: 32,
        counts: [16, 8],
        a: A8,
        b: B8,
    },
    Form {
        shape: "m16n8k32",
        types: "s32.u8.s8.s32",
        depth: 32,
        counts: [16, 8],
        a: A8,
        b: B8,
    },
    Form {
        shape: "m16n8k32",
        types: "s32.s8.u8.s32",
        depth: 32,
        counts: [16, 8],
        a: A8,
        b: B8,
    },
    Form {
        shape: "m16n8k32",
        types: "s32.u8.u8.s32",
        depth: 32,
        counts: [16, 8],
        a: A8,
        b: B8,
    },
];

/// A small number, different everywhere.
fn value(i: usize, j: usize) -> i32 {
    ((i * 7 + j * 13 + i * j) % 23) as i32 - 9
}

/// The bits of a number as a type has them, and what they stand for there.
fn encode(ty: &str, x: i32) -> (u64, f64) {
    match ty {
        "f16" => (
            f16::from_f32(x as f32 / 4.0).to_bits().into(),
            f64::from(x) / 4.0,
        ),
        "bf16" => (
            bf16::from_f32(x as f32 / 4.0).to_bits().into(),
            f64::from(x) / 4.0,
        ),
        "u8" => (u64::from(x as u8), f64::from(x as u8)),
        "s8" => (u64::from(x as i8 as u8), x.into()),
        "f32" => (u64::from((x as f32).to_bits()), x.into()),
        _ => (u64::from(x as u32), x.into()),
    }
}

/// A lane's fragment as words.
fn pack(ty: &str, count: usize, at: impl Fn(usize) -> (usize, usize)) -> Vec<u32> {
    let bits = if ty.ends_with("16") { 16 } else { 8 };
    let mut words = vec![0; count * bits / 32];
    for i in 0..count {
        let (row, column) = at(i);
        words[i * bits / 32] |= (encode(ty, value(row, column)).0 as u32) << (i * bits % 32);
    }
    words
}

/// Loads `registers` words a lane, executes `inst`, and stores the four of `%d`.
fn body(registers: usize, inst: &str) -> String {
    let mut text = format!(
        ".reg .b32 %r<{registers}>, %d<4>; .reg .b64 %at;\nmad.wide.u32 %at, %t, {}, %in;\n",
        registers * 4
    );
    for r in 0..registers {
        text += &format!("ld.global.b32 %r{r}, [%at+{}];\n", 4 * r);
    }

    text += inst;
    text += "\nmad.wide.u32 %at, %t, 16, %out;\nst.global.v4.b32 [%at], {%d0, %d1, %d2, %d3};";
    text
}

fn list(from: usize, count: usize) -> String {
    let names: Vec<String> = (from..from + count).map(|r| format!("%r{r}")).collect();
    format!("{{{}}}", names.join(", "))
}

fn d_at(g: usize, t: usize, i: usize) -> (usize, usize) {
    (g + 8 * (i >> 1), 2 * t + (i & 1))
}

#[test]
fn products_of_all_forms() {
    for form in FORMS {
        let types: Vec<&str> = form.types.split('.').collect();
        let words = |ty: &str, count: usize| count * (if ty.ends_with("16") { 16 } else { 8 }) / 32;
        let (na, nb) = (
            words(types[1], form.counts[0]),
            words(types[2], form.counts[1]),
        );
        let mut input = Vec::new();
        for lane in 0..32 {
            let (g, t) = (lane / 4, lane % 4);
            input.extend(pack(types[1], form.counts[0], |i| (form.a)(g, t, i)));
            input.extend(pack(types[2], form.counts[1], |i| (form.b)(g, t, i)));
            input.extend(
                (0..4)
                    .map(|i| d_at(g, t, i))
                    .map(|(r, c)| encode(types[3], value(c, r)).0 as u32),
            );
        }

        let inst = format!(
            "mma.sync.aligned.{}.row.col.{} {{%d0, %d1, %d2, %d3}}, {}, {}, {};",
            form.shape,
            form.types,
            list(0, na),
            list(na, nb),
            list(na + nb, 4)
        );
        let bytes: Vec<u8> = input.iter().flat_map(|w| w.to_le_bytes()).collect();
        let (out, _) = launch(&kernel(&body(na + nb + 4, &inst)), &bytes, 512, SETUP)
            .unwrap_or_else(|fault| panic!("{inst}: {fault}"));
        for (n, word) in out.as_chunks::<4>().0.iter().enumerate() {
            let (row, column) = d_at(n / 16, n / 4 % 4, n % 4);
            let product =
                |k| encode(types[1], value(row, k)).1 * encode(types[2], value(k, column)).1;
            let sum: f64 =
                (0..form.depth).map(product).sum::<f64>() + f64::from(value(column, row));
            let wanted = if types[0] == "f32" {
                (sum as f32).to_bits()
            } else {
                sum as i32 as u32
            };
            assert_eq!(
                u32::from_le_bytes(*word),
                wanted,
                "{inst} row {row} column {column}"
            );
        }
    }
}

/// Products and c are added at once: none of them is rounded to a sum of others.
#[test]
fn halves_are_added_at_once() {
    // Row 0 of a is 2048, 1, -2048, 0 ...; column 0 of b is 4096, 0.25, 4096, 0 ...
    let a = [
        (0, f16::from_f32(2048.0)),
        (1, f16::ONE),
        (2, f16::from_f32(-2048.0)),
    ];
    let b = [
        f16::from_f32(4096.0),
        f16::from_f32(0.25),
        f16::from_f32(4096.0),
    ];
    let mut input = vec![0u32; 32 * 10];
    for ((k, a), b) in a.into_iter().zip(b) {
        // Element k of row 0 is in lane k / 2, register 0; of column 0 likewise.
        let lane = k / 2 * 10;
        input[lane] |= u32::from(a.to_bits()) << (16 * (k % 2));
        input[lane + 4] |= u32::from(b.to_bits()) << (16 * (k % 2));
    }

    let inst = format!(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%d0, %d1, %d2, %d3}}, {}, {}, {};",
        list(0, 4),
        list(4, 2),
        list(6, 4)
    );
    let bytes: Vec<u8> = input.iter().flat_map(|w| w.to_le_bytes()).collect();
    let (out, _) = launch(&kernel(&body(10, &inst)), &bytes, 512, SETUP)
        .unwrap_or_else(|fault| panic!("{fault}"));

    // 2^23 + 0.25 would lose the quarter as a single.
    assert_eq!(f32::from_le_bytes([out[0], out[1], out[2], out[3]]), 0.25);
}

#[test]
fn the_whole_warp_takes_part() {
    let inst = "setp.lt.u32 %p, %t, 8;\n@%p mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%d0, %d1, %d2, %d3}, {%r0, %r1}, {%r2}, {%r3, %r4, %r5, %r6};";
    let text = kernel(&format!(".reg .pred %p;\n{}", body(7, inst)));
    let fault = launch(&text, &[0; 32 * 28], 512, SETUP).expect_err("24 lanes are missing");
    assert_eq!(fault.class, Class::InactiveLane);
    assert_eq!(
        fault.what,
        "an .aligned instruction is executed by lanes 0-7 alone"
    );
    let never = text
        .replace("%t, 8", "%t, 0")
        .replace("st.global.v4.b32", "@%p st.global.v4.b32");
    assert!(launch(&never, &[0; 32 * 28], 512, SETUP).is_ok());
    let short = Setup { block: 40, ..SETUP };
    let text = text.replace("@%p mma", "mma");
    assert!(
        launch(&text, &[0; 40 * 28], 640, short).is_err(),
        "a warp of 8 threads"
    );
}

#[test]
fn mistakes_in_the_text() {
    let rows = [
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r0,%r1,%r2,%r3}, {%r0,%r1}, {%r0,%r1}, {%r0,%r1,%r2,%r3};",
            "a vector of 4 .f16x2 registers was expected, not of 2",
        ),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r0,%r1,%r2,%r3}, {%f0,%r1}, {%r0}, {%r0,%r1,%r2,%r3};",
            "`%f0` is a .f32 register where .f16x2 was expected",
        ),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r0,%r1,%r2,%r3}, {%r0,%r1}, {%r0}, {0,%r1,%r2,%r3};",
            "unsupported in ptx-emu: this element of a vector of mma",
        ),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r0,%r1,%r2,%r3}, {_,%r1}, {%r0}, {%r0,%r1,%r2,%r3};",
            ".f16x2 registers were expected",
        ),
        (
            "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r0,%r1,%r2,%r3}, {%r0,%r1}, {%r0}, {%r0,%r1,%r2,%r3};",
            "a vector of 8 .f32 registers was expected, not of 4",
        ),
        (
            "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f32 {%r0,%r1,%r2,%r3}, {%r0,%r1}, {%r0,%r1}, {%r0,%r1,%r2,%r3};",
            "unsupported in ptx-emu: mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f32",
        ),
    ];
    for (inst, wanted) in rows {
        let text = kernel(&format!(".reg .b32 %r<8>; .reg .f32 %f<2>;\n{inst}"));
        assert_eq!(
            Module::parse(&text)
                .and_then(Module::complete)
                .expect_err(inst)
                .0[0]
                .what,
            wanted
        );
    }
}
