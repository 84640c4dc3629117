//! Matrix instructions, whose operands depend on shape and types.

use super::form::{InstructionForm, list};

/// Returns the forms of `mma` and `wgmma`.
pub(super) fn products() -> Vec<InstructionForm> {
    let floats = [".f16", ".bf16", ".tf32", ".f64", ".e4m3", ".e5m2"];
    let integers = [".s8", ".u8", ".s4", ".u4", ".b1"];
    let mut forms = Vec::new();
    for (m, n, k) in SHAPES {
        for ty in floats.iter().chain(&integers) {
            for sum in [".f16", ".f32", ".f64", ".s32"] {
                forms.extend(product((*m, *n, *k), ty, sum));
            }
        }
    }

    forms.extend(quads());
    forms.extend(warpgroups());
    forms
}

/// Returns the forms of `mma.m8n8k4` with `f16` values, in which each eight lanes multiply
/// separately.
fn quads() -> Vec<InstructionForm> {
    let mut forms = Vec::new();
    for layouts in [".row.row", ".row.col", ".col.row", ".col.col"] {
        for (sum, first) in [
            (".f16", ".f16"),
            (".f32", ".f16"),
            (".f32", ".f32"),
            (".f16", ".f32"),
        ] {
            let name = format!("mma.sync.aligned.m8n8k4{layouts}{sum}.f16.f16{first}");
            // Each lane has eight sums, which are 8 * 32 elements for the function below.
            let [d, c] = [(sum, 1), (first, 10)].map(|(ty, from)| fragment(8 * 32, ty, from));
            forms.push(InstructionForm {
                line: format!("{name} {d}, {{%r20, %r21}}, {{%r30, %r31}}, {c};"),
                name,
            });
        }
    }
    forms
}

/// The shapes of `mma`: m, n and k.
const SHAPES: &[(usize, usize, usize)] = &[
    (8, 8, 4),
    (8, 8, 16),
    (8, 8, 32),
    (8, 8, 128),
    (16, 8, 4),
    (16, 8, 8),
    (16, 8, 16),
    (16, 8, 32),
    (16, 8, 64),
    (16, 8, 128),
    (16, 8, 256),
];

/// Returns the number of bits in an element.
fn bits(ty: &str) -> usize {
    match ty {
        ".f64" => 64,
        ".f32" | ".s32" | ".tf32" => 32,
        ".f16" | ".bf16" => 16,
        ".s4" | ".u4" => 4,
        ".b1" => 1,
        _ => 8,
    }
}

/// Returns the registers of one lane's share of `elements` elements, numbered from `from`.
fn fragment(elements: usize, ty: &str, from: usize) -> String {
    let (kind, size) = if ty == ".f64" { ('l', 64) } else { ('r', 32) };
    let count = (elements * bits(ty) / 32 / size).max(1);
    list(
        (from..from + count)
            .map(|i| format!("%{kind}{i}"))
            .collect(),
    )
}

/// Returns the dense and the sparse forms of an `mma` of this shape.
fn product((m, n, k): (usize, usize, usize), ty: &str, sum: &str) -> Vec<InstructionForm> {
    let a = fragment(m * k, ty, 20);
    let b = fragment(k * n, ty, 30);
    let c = fragment(m * n, sum, 10);
    let d = fragment(m * n, sum, 1);
    let operation = if ty == ".b1" { ".xor.popc" } else { "" };
    let layout = ".row.col";
    let dense = format!("mma.sync.aligned.m{m}n{n}k{k}{layout}{sum}{ty}{ty}{sum}{operation}");
    let mut forms = vec![InstructionForm {
        line: format!("{dense} {d}, {a}, {b}, {c};"),
        name: dense,
    }];

    // A sparse matrix is stored with half of its elements.
    let half = fragment(m * k / 2, ty, 20);
    for ordered in ["", "::ordered_metadata"] {
        let name = format!("mma.sp{ordered}.sync.aligned.m{m}n{n}k{k}{layout}{sum}{ty}{ty}{sum}");
        forms.push(InstructionForm {
            line: format!("{name} {d}, {half}, {b}, {c}, %r50, 0;"),
            name,
        });
    }

    forms
}

/// Returns the forms of `wgmma`.
fn warpgroups() -> Vec<InstructionForm> {
    let types = [
        (16, ".f16"),
        (16, ".bf16"),
        (8, ".tf32"),
        (32, ".e4m3"),
        (32, ".e5m2"),
        (32, ".s8"),
        (32, ".u8"),
        (256, ".b1"),
    ];
    let mut forms = Vec::new();
    for (k, ty) in types {
        for sum in [".f16", ".f32", ".s32"] {
            for n in [8, 16, 24, 40, 64, 256] {
                forms.extend(warpgroup(n, k, ty, sum));
            }
        }
    }

    forms
}

/// Returns the forms of a `wgmma` with A in shared memory, with A in registers, and with a sparse
/// A.
fn warpgroup(n: usize, k: usize, ty: &str, sum: &str) -> [InstructionForm; 3] {
    let d = fragment(16 * n, sum, 1);
    let operation = if ty == ".b1" { ".and.popc" } else { "" };
    let scales = if sum == ".s32" { "" } else { ", 1, 1" };

    // Only 16-bit matrices can be transposed, so only these have the operands for it.
    let transposes = if matches!(ty, ".f16" | ".bf16") {
        [", 0", ", 0"]
    } else {
        ["", ""]
    };
    let form = |name: String, rest: String| InstructionForm {
        line: format!("{name} {d}, {rest};"),
        name,
    };
    let name = format!("wgmma.mma_async.sync.aligned.m64n{n}k{k}{sum}{ty}{ty}{operation}");
    let sparse = format!(
        "wgmma.mma_async.sp.sync.aligned.m64n{n}k{}{sum}{ty}{ty}",
        2 * k
    );
    [
        form(
            name.clone(),
            format!("%l1, %l2, %p1{scales}{}", transposes.concat()),
        ),
        form(
            name,
            format!(
                "{{%r300, %r301, %r302, %r303}}, %l2, %p1{scales}{}",
                transposes[0]
            ),
        ),
        form(
            sparse,
            format!("%l1, %l2, %r300, 0, %p1{scales}{}", transposes.concat()),
        ),
    ]
}
