//! Names of matrix products: their operands depend on shape and types.

use super::form::{InstructionForm, list};

/// Products, whose operands depend on shape and types.
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

/// `mma.m8n8k4` of halves: four products, each of eight lanes.
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
            // Eight sums in each lane.
            let [d, c] = [(sum, 1), (first, 10)].map(|(ty, from)| fragment(8 * 32, ty, from));
            forms.push(InstructionForm {
                line: format!("{name} {d}, {{%r20, %r21}}, {{%r30, %r31}}, {c};"),
                name,
            });
        }
    }
    forms
}

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

/// A fragment of so many elements, numbered from a register on.
fn fragment(elements: usize, ty: &str, from: usize) -> String {
    let (kind, size) = if ty == ".f64" { ('l', 64) } else { ('r', 32) };
    let count = (elements * bits(ty) / 32 / size).max(1);
    list(
        (from..from + count)
            .map(|i| format!("%{kind}{i}"))
            .collect(),
    )
}

fn product((m, n, k): (usize, usize, usize), ty: &str, sum: &str) -> Vec<InstructionForm> {
    let (a, b) = (fragment(m * k, ty, 20), fragment(k * n, ty, 30));
    let (c, d) = (fragment(m * n, sum, 10), fragment(m * n, sum, 1));
    let operation = if ty == ".b1" { ".xor.popc" } else { "" };
    let layout = ".row.col";
    let dense = format!("mma.sync.aligned.m{m}n{n}k{k}{layout}{sum}{ty}{ty}{sum}{operation}");
    let mut forms = vec![InstructionForm {
        line: format!("{dense} {d}, {a}, {b}, {c};"),
        name: dense,
    }];
    // Half of the left matrix of a sparse product is there.
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

fn warpgroup(n: usize, k: usize, ty: &str, sum: &str) -> [InstructionForm; 3] {
    let d = fragment(16 * n, sum, 1);
    let operation = if ty == ".b1" { ".and.popc" } else { "" };
    let scales = if sum == ".s32" { "" } else { ", 1, 1" };
    let turns = if matches!(ty, ".f16" | ".bf16") {
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
            format!("%l1, %l2, %p1{scales}{}", turns.concat()),
        ),
        form(
            name,
            format!(
                "{{%r300, %r301, %r302, %r303}}, %l2, %p1{scales}{}",
                turns[0]
            ),
        ),
        form(
            sparse,
            format!("%l1, %l2, %r300, 0, %p1{scales}{}", turns.concat()),
        ),
    ]
}
