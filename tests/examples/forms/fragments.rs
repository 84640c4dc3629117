//! Matmuls of fragments in the registers of a warp: `wmma` and dense `mma`. Sparse `mma` is in
//! [`super::sparse`].

use std::fmt::Write as _;

use super::case::{Case, Cases, Exact, expand, kernel, list};
use super::operands::{self, Elements};
use warpwright_kernels::Random;

/// Warps that compute a product.
pub(crate) const WARPS: usize = 256;

/// A product whose registers are loaded and stored by each lane.
pub(crate) struct Product {
    pub(crate) name: String,
    /// Rows, columns, depth.
    pub(crate) shape: [usize; 3],
    /// Types of sums and factors.
    pub(crate) types: [&'static str; 3],
    /// For a sparse left matrix: whether its metadata ascends, and the selector.
    pub(crate) sparse: Option<(bool, usize)>,
}

/// Shapes, types of sums, of left and of right factors.
pub(crate) type Family = (&'static str, &'static str, &'static str, &'static str);

const DENSE: &[Family] = &[
    ("{m16n8k8,m16n8k16}", "{f16,f32}", "f16", ""),
    ("{m16n8k8,m16n8k16}", "f32", "bf16", ""),
    ("{m16n8k4,m16n8k8}", "f32", "tf32", ""),
    ("{m8n8k4,m16n8k4,m16n8k8,m16n8k16}", "f64", "f64", ""),
    (
        "{m16n8k16,m16n8k32}",
        "{f16,f32}",
        "{e4m3,e5m2}",
        "{e4m3,e5m2}",
    ),
    (
        "{m8n8k16,m16n8k16,m16n8k32}",
        "{s32,s32.sat}",
        "{s8,u8}",
        "{s8,u8}",
    ),
    (
        "{m8n8k32,m16n8k32,m16n8k64}",
        "{s32,s32.sat}",
        "{s4,u4}",
        "{s4,u4}",
    ),
    (
        "{m8n8k128,m16n8k128,m16n8k256}",
        "{s32.and,s32.xor}",
        "b1",
        "",
    ),
];

const TYPES: [&str; 14] = [
    "f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2", "s8", "u8", "s4", "u4", "b1", "s32", "",
];

/// Returns the names of a family: the shape, the type of the sums with modifiers, and the types of
/// the factors.
pub(crate) fn names(
    (shapes, sums, lefts, rights): &Family,
) -> Vec<(String, String, [&'static str; 3])> {
    let known = |name: &str| TYPES.iter().find(|ty| **ty == name).copied().unwrap_or("");
    let mut all = vec![];
    for shape in expand(shapes) {
        for sum in expand(sums) {
            for left in expand(lefts) {
                for right in expand(if rights.is_empty() { &left } else { rights }) {
                    let (ty, flag) = sum.split_once('.').unwrap_or((&sum, ""));
                    all.push((
                        shape.clone(),
                        flag.to_owned(),
                        [known(ty), known(&left), known(&right)],
                    ));
                }
            }
        }
    }

    all
}

/// The numbers in the name of a shape.
pub(crate) fn sizes(shape: &str) -> [usize; 3] {
    let mut numbers = shape[1..].split(['n', 'k']).filter_map(|n| n.parse().ok());
    std::array::from_fn(|_| numbers.next().unwrap_or_default())
}

pub(crate) fn cases() -> Cases {
    let all = DENSE
        .iter()
        .flat_map(names)
        .flat_map(|(shape, flag, types)| {
            let [sum, left, right] = types;
            let clamp = if flag == "sat" { ".satfinite" } else { "" };
            let op = if left == "b1" {
                format!(".{flag}.popc")
            } else {
                String::new()
            };
            let name =
                format!("mma.sync.aligned.{shape}.row.col{clamp}.{sum}.{left}.{right}.{sum}{op}");
            both(&Product {
                name,
                shape: sizes(&shape),
                types,
                sparse: None,
            })
        });
    let all = all.chain(quads().into_iter().flat_map(|product| both(&product)));
    Box::new(all.chain(wholes().into_iter().map(|whole| whole_case(&whole))))
}

/// `mma.m8n8k4` of halves, four products in one: each lane has as many elements as of one product
/// of this shape.
fn quads() -> Vec<Product> {
    let name =
        |layouts: &str, sum: &str| format!("mma.sync.aligned.m8n8k4.{layouts}.{sum}.f16.f16.{sum}");
    let of = |layouts: String| {
        ["f16", "f32"].map(|sum| Product {
            name: name(&layouts, sum),
            shape: [16, 16, 8],
            types: [sum, "f16", "f16"],
            sparse: None,
        })
    };
    expand("{row,col}.{row,col}")
        .into_iter()
        .flat_map(of)
        .collect()
}

/// A product on floats near one another and, where they are floats, on any.
pub(crate) fn both(p: &Product) -> Vec<Case> {
    let floats = !matches!(p.types[0], "s32");
    let all = [Elements::Near, Elements::Wild]
        .into_iter()
        .take(1 + usize::from(floats));
    all.map(|elements| case(p, elements)).collect()
}

/// Registers of d, a and b.
fn registers(p: &Product) -> [usize; 3] {
    let [m, n, k] = p.shape;
    let count = |elements: usize, ty: &str| {
        let bits = operands::bits(ty);
        (elements * bits / 32 / bits.max(32)).max(1)
    };
    let stored = if p.sparse.is_some() { m * k / 2 } else { m * k };
    [
        count(m * n, p.types[0]),
        count(stored, p.types[1]),
        count(k * n, p.types[2]),
    ]
}

/// Registers of a, b and the sums of each lane, and metadata.
fn inputs(
    types: [&str; 3],
    [rd, ra, rb]: [usize; 3],
    ordered: Option<bool>,
    elements: Elements,
) -> Vec<u64> {
    let (mut words, mut random) = (vec![], Random(3));
    for _ in 0..32 * WARPS {
        for (ty, count) in [(types[1], ra), (types[2], rb), (types[0], rd)] {
            words.extend(operands::registers(ty, count, elements, &mut random));
        }
        words.extend(ordered.map(|ordered| operands::metadata(types[1], ordered, &mut random)));
    }
    words
}

fn case(p: &Product, elements: Elements) -> Case {
    let (types, registers, ordered) = (p.types, registers(p), p.sparse.map(|(ordered, _)| ordered));
    let [rd, ..] = registers;
    let end = if elements == Elements::Wild {
        ", any operands"
    } else {
        ""
    };
    let selector = p.sparse.map_or(String::new(), |(_, selector)| {
        format!(", selector {selector}")
    });
    Case {
        name: format!("{}{selector}{end}", p.name),
        text: text(p),
        inputs: Box::new(move || inputs(types, registers, ordered, elements)),
        stored: 32 * WARPS * rd,
        geometry: (WARPS as u32, 32),
        each: [0, rd],
        result: p.types[0],
        exact: Exact::Bits,
        image: None,
    }
}

/// The kernel of a product whose registers are loaded and stored by each lane.
fn text(p: &Product) -> String {
    let [rd, ra, rb] = registers(p);
    let wide = p.types[0] == "f64";
    let bits = if wide { 64 } else { 32 };
    let count = ra + rb + rd + usize::from(p.sparse.is_some());
    let declared = format!(".reg .b{bits} %r<{count}>, %d<{rd}>;\n.reg .b64 %w;");
    let mut body = format!("mad.wide.u32 %at, %t, {}, %in;\n", 8 * count);
    for r in 0..count {
        _ = writeln!(body, "ld.global.b64 %w, [%at+{}];", 8 * r);
        body += &if wide {
            format!("mov.b64 %r{r}, %w;\n")
        } else {
            format!("cvt.u32.u64 %r{r}, %w;\n")
        };
    }

    let (d, a) = (list("d", 0, rd), list("r", 0, ra));
    let (b, c) = (list("r", ra, rb), list("r", ra + rb, rd));
    let end = p.sparse.map_or(String::new(), |(_, selector)| {
        format!(", %r{}, {selector}", count - 1)
    });
    _ = writeln!(
        body,
        "{} {d}, {a}, {b}, {c}{end};\nmad.wide.u32 %at, %t, {}, %out;",
        p.name,
        8 * rd
    );
    for r in 0..rd {
        body += &if wide {
            format!("mov.b64 %w, %d{r};\n")
        } else {
            format!("cvt.u64.u32 %w, %d{r};\n")
        };
        _ = writeln!(body, "st.global.b64 [%at+{}], %w;", 8 * r);
    }

    kernel(&declared, &body)
}

/// A product that loads and stores its matrices itself: the names of `wmma`.
struct Whole {
    shape: &'static str,
    /// The types of sums and of factors.
    types: [&'static str; 2],
    /// Whether a, b and the sums lie in memory by rows.
    by_rows: [bool; 3],
}

fn wholes() -> Vec<Whole> {
    let mut all = vec![];
    let layouts = [[true, false, true], [false, true, false]];
    for shape in ["m16n16k16", "m32n8k16", "m8n32k16"] {
        for types in [
            ["f16", "f16"],
            ["f32", "f16"],
            ["f32", "bf16"],
            ["s32", "s8"],
            ["s32", "u8"],
        ] {
            all.extend(layouts.map(|by_rows| Whole {
                shape,
                types,
                by_rows,
            }));
        }
    }

    all.extend(layouts.map(|by_rows| Whole {
        shape: "m16n16k8",
        types: ["f32", "tf32"],
        by_rows,
    }));
    all.extend(layouts.map(|by_rows| Whole {
        shape: "m8n8k4",
        types: ["f64", "f64"],
        by_rows,
    }));

    // Elements of less than a byte lie along the products that are summed.
    for types in [["s32", "s4"], ["s32", "u4"], ["s32", "b1"]] {
        let shape = if types[1] == "b1" {
            "m8n8k128"
        } else {
            "m8n8k32"
        };
        all.extend([true, false].map(|sums| Whole {
            shape,
            types,
            by_rows: [true, false, sums],
        }));
    }

    all
}

/// Elements and registers of a, b and the sums of a whole product.
fn whole_registers(w: &Whole) -> [usize; 3] {
    let [m, n, k] = sizes(w.shape);
    let [sum, item] = w.types;
    let registers = |rows: usize, columns: usize, ty: &str| {
        (rows * columns / 32 * operands::bits(ty)).div_ceil(operands::bits(ty).max(32))
    };
    let factor = |rows: usize, columns: usize| {
        if item == "f16" {
            8
        } else {
            registers(rows, columns, item)
        }
    };
    [factor(m, k), factor(k, n), registers(m, n, sum)]
}

/// Bytes of a, b and the sums of a whole product.
fn whole_bytes(w: &Whole) -> [usize; 3] {
    let [m, n, k] = sizes(w.shape);
    let bytes = |ty: &str, count: usize| count * operands::bits(ty) / 8;
    [
        bytes(w.types[1], m * k),
        bytes(w.types[1], k * n),
        bytes(w.types[0], m * n),
    ]
}

fn whole_case(w: &Whole) -> Case {
    let ([sum, item], [ba, bb, bc]) = (w.types, whole_bytes(w));
    let inputs = move || {
        let mut random = Random(5);
        let all = (0..WARPS).flat_map(|_| [(item, ba), (item, bb), (sum, bc)]);
        all.flat_map(|(ty, bytes)| operands::memory(ty, bytes, Elements::Near, &mut random))
            .collect()
    };
    Case {
        name: format!("wmma.{}.{sum}.{item} rows {:?}", w.shape, w.by_rows),
        text: whole_text(w),
        inputs: Box::new(inputs),
        stored: WARPS * bc / 8,
        geometry: (WARPS as u32, 32),
        each: [0, 1],
        result: sum,
        exact: Exact::Bits,
        image: None,
    }
}

/// The kernel of `wmma` on matrices in memory.
fn whole_text(w: &Whole) -> String {
    let ([m, n, k], [sum, item], shape) = (sizes(w.shape), w.types, w.shape);
    let ([ba, bb, bc], [ra, rb, rc]) = (whole_bytes(w), whole_registers(w));
    let layout = |i: usize| if w.by_rows[i] { "row" } else { "col" };
    let stride = |i: usize, r: usize, c: usize| if w.by_rows[i] { c } else { r };
    let width = operands::bits(item).max(32);
    let types = if item == "f16" {
        format!("{sum}.{sum}")
    } else {
        format!("{sum}.{item}.{item}.{sum}")
    };
    let op = if item == "b1" { ".xor.popc" } else { "" };
    let declared = format!(
        ".reg .b{width} %a<{ra}>, %b<{rb}>;\n.reg .b{} %c<{rc}>;",
        operands::bits(sum).max(32)
    );
    let (a, b, c) = (list("a", 0, ra), list("b", 0, rb), list("c", 0, rc));
    let (la, lb, lc) = (layout(0), layout(1), layout(2));
    let body = format!(
        "mad.wide.u32 %at, %n, {all}, %in;\n\
         wmma.load.a.sync.aligned.{la}.{shape}.global.{item} {a}, [%at], {sa};\n\
         wmma.load.b.sync.aligned.{lb}.{shape}.global.{item} {b}, [%at+{ba}], {sb};\n\
         wmma.load.c.sync.aligned.{lc}.{shape}.global.{sum} {c}, [%at+{at_c}], {sc};\n\
         wmma.mma{op}.sync.aligned.{la}.{lb}.{shape}.{types} {c}, {a}, {b}, {c};\n\
         mad.wide.u32 %at, %n, {bc}, %out;\n\
         wmma.store.d.sync.aligned.{lc}.{shape}.global.{sum} [%at], {c}, {sc};",
        all = ba + bb + bc,
        at_c = ba + bb,
        sa = stride(0, m, k),
        sb = stride(1, k, n),
        sc = stride(2, m, n),
    );
    kernel(&declared, &body)
}
