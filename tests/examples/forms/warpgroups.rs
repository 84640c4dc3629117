//! Matmuls of warpgroups (`wgmma`): dense and sparse, with the left matrix in shared memory or in
//! registers, in every layout.

use std::fmt::Write as _;

use super::case::{Case, Cases, Exact, kernel_for, list};
use super::fragments::{Family, names};
use super::operands::{self, Elements};
use warpwright_kernels::Random;

/// Blocks, each of a warpgroup.
const BLOCKS: usize = 16;
/// Bytes of shared memory in front of the right matrix.
const LEFT: usize = 8192;

/// The layout of a matrix in shared memory: its swizzle in bytes, and whether the inner dimension
/// is the dimension of the rows.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Layout {
    swizzle: usize,
    transposed: bool,
}

const PLAIN: Layout = Layout {
    swizzle: 128,
    transposed: false,
};

#[derive(Clone)]
struct Product {
    types: [&'static str; 3],
    saturate: bool,
    columns: usize,
    /// The selector of a sparse left matrix.
    sparse: Option<usize>,
    in_registers: bool,
    layouts: [Layout; 2],
    /// Whether the sums are added to, and 1 or -1 for each factor.
    adds: bool,
    signs: [i32; 2],
}

/// Types by sums; the shape says nothing.
const TYPES: &[Family] = &[
    ("m64", "{f16,f32}", "f16", ""),
    ("m64", "f32", "bf16", ""),
    ("m64", "f32", "tf32", ""),
    ("m64", "{f16,f32}", "{e4m3,e5m2}", "{e4m3,e5m2}"),
    ("m64", "{s32,s32.sat}", "{s8,u8}", "{s8,u8}"),
];

pub(crate) fn cases() -> Cases {
    let types = TYPES.iter().flat_map(names);
    let all = types.flat_map(|(_, flag, types)| products(types, flag == "sat"));
    let kinds = |p: Product| {
        let floats = p.types[0] != "s32" && p.layouts == [PLAIN; 2] && p.adds && p.signs == [1; 2];
        let kinds = [Elements::Near, Elements::Wild]
            .into_iter()
            .take(1 + usize::from(floats));
        kinds.map(move |elements| case(&p, elements))
    };
    Box::new(all.flat_map(kinds))
}

/// Returns the forms with factors of these types.
fn products(types: [&'static str; 3], saturate: bool) -> Vec<Product> {
    let mut all = vec![];
    let selectors = if operands::bits(types[1]) == 8 { 1 } else { 2 };
    for sparse in [None].into_iter().chain((0..selectors).map(Some)) {
        for in_registers in [false, true] {
            let (layouts, adds, signs) = ([PLAIN; 2], true, [1; 2]);
            let p = Product {
                types,
                saturate,
                columns: 16,
                sparse,
                in_registers,
                layouts,
                adds,
                signs,
            };
            all.push(p.clone());
            if !saturate {
                all.push(Product {
                    adds: false,
                    columns: 8,
                    ..p.clone()
                });
            }

            if types[0] != "s32" {
                all.push(Product {
                    signs: [-1, 1],
                    columns: 8,
                    ..p.clone()
                });
                all.push(Product {
                    signs: [1, -1],
                    columns: 24,
                    ..p
                });
            }
        }
    }

    let whole = all[0].clone();
    if !saturate {
        all.extend(arranged(&whole));
    }

    all
}

/// A product of matrices in every layout, once dense and once sparse.
fn arranged(whole: &Product) -> Vec<Product> {
    let turns: &[bool] = if operands::bits(whole.types[1]) == 16 {
        &[false, true]
    } else {
        &[false]
    };
    let mut all = vec![];
    for sparse in [None, Some(0)] {
        for (a, b) in [(128, 64), (64, 128), (32, 32), (0, 0)] {
            for (of_a, of_b) in turns.iter().flat_map(|a| turns.iter().map(|b| (*a, *b))) {
                // Rows of 32 bytes do not hold 64 of the inner dimension.
                let narrow = sparse.is_some() && b == 32 && !of_b;
                let layouts = [(a, of_a), (if narrow { 64 } else { b }, of_b)].map(
                    |(swizzle, transposed)| Layout {
                        swizzle,
                        transposed,
                    },
                );
                all.push(Product {
                    sparse,
                    columns: 64,
                    layouts,
                    ..whole.clone()
                });
            }
        }
    }

    all
}

/// Returns the number of stored elements in the inner dimension of a and of b.
fn depths(p: &Product) -> [usize; 2] {
    let stored = 32 * 8 / operands::bits(p.types[1]);
    [
        stored,
        if p.sparse.is_some() {
            2 * stored
        } else {
            stored
        },
    ]
}

/// The bytes that a matrix takes, and its descriptor but for the address.
fn placed(ty: &str, outer: usize, depth: usize, l: Layout) -> (usize, u64) {
    let bytes = operands::bits(ty) / 8;
    if l.swizzle == 0 {
        let inner = if l.transposed {
            depth / 8
        } else {
            depth * bytes / 16
        };
        // Tiles of 8 by 16 bytes. The inner dimension varies fastest.
        return (outer * depth * bytes, 8 << 16 | (8 * inner as u64) << 32);
    }

    let span = l.swizzle;
    let (rows, columns) = if l.transposed {
        (depth, outer)
    } else {
        (outer, depth)
    };
    let panel = rows.next_multiple_of(8) * span;
    let code = match span {
        128 => 1u64,
        64 => 2,
        _ => 3,
    };
    let leading = if l.transposed { panel as u64 >> 4 } else { 1 };
    let panels = (columns * bytes).div_ceil(span);
    (
        panels * panel,
        code << 62 | ((8 * span as u64) >> 4) << 32 | leading << 16,
    )
}

/// Registers of sums.
fn sums(p: &Product) -> usize {
    p.columns / if p.types[0] == "f16" { 4 } else { 2 }
}

/// Bytes of shared memory that are filled.
fn filled(p: &Product) -> usize {
    LEFT + placed(p.types[2], p.columns, depths(p)[1], p.layouts[1])
        .0
        .next_multiple_of(2048)
}

/// The instruction, with `%a` and `%b` as descriptors, `%x` as registers of a, `%m` as metadata,
/// `%d` as sums.
fn instruction(p: &Product) -> String {
    let [sum, left, right] = p.types;
    let (kind, clamp) = (
        if p.sparse.is_some() { ".sp" } else { "" },
        if p.saturate { ".satfinite" } else { "" },
    );
    let a = if p.in_registers {
        list("x", 0, 4)
    } else {
        "%a".into()
    };
    let mut text = format!(
        "wgmma.mma_async{kind}.sync.aligned.m64n{}k{}{clamp}.{sum}.{left}.{right} {}, {a}, %b",
        p.columns,
        depths(p)[1],
        list("d", 0, sums(p)),
    );
    text += &p
        .sparse
        .map_or(String::new(), |selector| format!(", %m, {selector}"));
    text += ", %p";
    if sum != "s32" {
        _ = write!(text, ", {}, {}", p.signs[0], p.signs[1]);
    }

    let turns = p.layouts.map(|l| u8::from(l.transposed));
    if operands::bits(left) == 16 {
        turns[usize::from(p.in_registers)..]
            .iter()
            .for_each(|turn| _ = write!(text, ", {turn}"));
    }

    text
}

fn case(p: &Product, elements: Elements) -> Case {
    let end = if elements == Elements::Wild {
        ", any operands"
    } else {
        ""
    };
    let (instruction, whole) = (instruction(p), p.clone());
    let short = instruction.replace(&list("d", 0, sums(p)), "%d");
    let layouts = p.layouts.map(|l| l.swizzle);
    let adds = if p.adds { "" } else { ", sums new" };
    Case {
        name: format!("{short}, swizzles {layouts:?}{adds}{end}"),
        text: text(p, &instruction),
        inputs: Box::new(move || inputs(&whole, elements)),
        stored: BLOCKS * 128 * sums(p),
        geometry: (BLOCKS as u32, 128),
        each: [0, sums(p)],
        result: p.types[0],
        exact: Exact::Bits,
        image: None,
    }
}

/// Returns the contents of shared memory, and then for each thread the registers of a, the metadata
/// and the sums.
fn inputs(p: &Product, elements: Elements) -> Vec<u64> {
    let (mut words, mut random) = (vec![], Random(7));
    let [sum, left, right] = p.types;
    for _ in 0..BLOCKS {
        words.extend(operands::memory(left, LEFT, elements, &mut random));
        words.extend(operands::memory(
            right,
            filled(p) - LEFT,
            elements,
            &mut random,
        ));
        for _ in 0..128 {
            words.extend(operands::registers(left, 4, elements, &mut random));
            words.push(operands::metadata(left, true, &mut random));
            words.extend(operands::registers(sum, sums(p), elements, &mut random));
        }
    }

    words
}

fn text(p: &Product, instruction: &str) -> String {
    let (sums, filled) = (sums(p), filled(p));
    let [a, b] = [0, 1].map(|i| {
        placed(
            p.types[1 + i],
            [64, p.columns][i],
            depths(p)[i],
            p.layouts[i],
        )
        .1
    });
    let own = 8 * (5 + sums);
    let declared = format!(
        ".shared .align 1024 .b8 s[{filled}];\n.reg .b32 %s, %m, %x<4>, %v<4>, %d<{sums}>;\n\
         .reg .b64 %a, %b, %w, %from, %to;\n.reg .pred %p;"
    );
    let mut body = format!(
        "mov.u32 %s, s;\nshr.u32 %m, %s, 4;\ncvt.u64.u32 %w, %m;\nor.b64 %a, %w, {a};\nadd.u64 %w, %w, {};\n\
         or.b64 %b, %w, {b};\nmad.wide.u32 %at, %n, {}, %in;\nmad.wide.u32 %from, %i, 16, %at;\n\
         mad.lo.u32 %s, %i, 16, %s;\nmad.wide.u32 %at, %i, {own}, %at;\nadd.u64 %at, %at, {filled};\n",
        LEFT / 16,
        filled + 128 * own,
    );
    let four = list("v", 0, 4);
    for at in (0..filled).step_by(2048) {
        _ = writeln!(
            body,
            "ld.global.v4.b32 {four}, [%from+{at}];\nst.shared.v4.b32 [%s+{at}], {four};"
        );
    }

    let registers = (0..4).map(|i| format!("x{i}")).chain(["m".into()]);
    for (i, register) in registers
        .chain((0..sums).map(|i| format!("d{i}")))
        .enumerate()
    {
        _ = writeln!(
            body,
            "ld.global.b64 %w, [%at+{}];\ncvt.u32.u64 %{register}, %w;",
            8 * i
        );
    }

    let adds = if p.adds { "ge" } else { "lt" };
    _ = writeln!(
        body,
        "fence.proxy.async.shared::cta;\nbar.sync 0;\nsetp.{adds}.u32 %p, %t, 0;\nwgmma.fence.sync.aligned;\n\
         {instruction};\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n\
         mad.wide.u32 %to, %t, {}, %out;",
        8 * sums
    );
    for i in 0..sums {
        _ = writeln!(
            body,
            "cvt.u64.u32 %w, %d{i};\nst.global.b64 [%to+{}], %w;",
            8 * i
        );
    }

    kernel_for("sm_90a", &declared, &body)
}
