//! `wgmma.mma_async.sp`: every form against a plain product, with metadata where CUTLASS has it (`ELayout_64x32`,
//! `ELayout_64x16`, `ELayout_64x64`), and what is in the way of one.

use ptx_emu::{Class, Fault, Module, Order};

use crate::machine::{Setup, launch};
use crate::products::{
    GROUP, LEFT, Layout, PLAIN, encode, image, list, program, registers, size, value, wanted,
};

/// Types of sums, of the left and of the right matrix, and the selector.
type Form = (&'static str, &'static str, &'static str, usize);

const FORMS: &[Form] = &[
    ("f32", "f16", "f16", 0),
    ("f16", "f16", "f16", 1),
    ("f32", "bf16", "bf16", 1),
    ("f32", "tf32", "tf32", 0),
    ("f32", "tf32", "tf32", 1),
    ("f32", "e4m3", "e5m2", 0),
    ("f16", "e5m2", "e4m3", 0),
    ("s32", "s8", "u8", 0),
    ("s32", "u8", "u8", 0),
];

/// Elements of the inner dimension.
fn depth(form: &Form) -> usize {
    64 / size(form.1)
}

/// Columns of a chunk, and those of them whose elements are stored.
fn chunk(form: &Form, row: usize, chunk: usize) -> (u32, usize, Vec<usize>) {
    let n = row * 5 + chunk * 3 + row * chunk;
    if form.1 == "tf32" {
        let bits = [0b0100, 0b1110][n % 2];
        return (bits, 2, vec![bits as usize & 1 | bits as usize >> 1 & 1]);
    }
    let bits: u32 = [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110][n % 6];
    (bits, 4, vec![bits as usize & 3, bits as usize >> 2])
}

/// What is stored at a place of a row.
fn packed(form: &Form, row: usize, i: usize) -> i32 {
    let each = chunk(form, 0, 0).2.len();
    let (_, width, kept) = chunk(form, row, i / each);
    value(row, i / each * width + kept[i % each])
}

/// What the left matrix is: zero where nothing is stored.
fn left(form: &Form, row: usize, k: usize) -> f64 {
    let width = chunk(form, 0, 0).1;
    let kept = chunk(form, row, k / width).2.contains(&(k % width));
    if kept {
        encode(form.1, value(row, k)).1
    } else {
        0.0
    }
}

/// The metadata of a thread. Its index is that of two bits, of eight rows and of four warps; the elements that it has
/// metadata of lie in a matrix of 64 rows, column by column.
fn metadata(form: &Form, thread: usize) -> u32 {
    let (first, second, g, warp) = (thread % 2, thread / 2 % 2, thread % 32 / 4, thread / 32);
    let (size, k) = (size(form.1), depth(form));
    if size > 1 && second != form.3 {
        return u32::MAX;
    }

    let (of_bits, counts) = match size {
        1 => ([8, 2048], [32, 1]),
        2 => ([1024, 0], [16, 2]),
        _ => ([512, 0], [8, 2]),
    };
    let base = first * of_bits[0] + second * of_bits[1] + g + 16 * warp;
    let width = chunk(form, 0, 0).1;
    let mut word = 0;
    for v in (0..counts[0] * counts[1]).step_by(width) {
        let index = base + v % counts[0] * 64 + v / counts[0] * 8;
        let (row, column) = (index % 64, index / 64);
        assert!(column < k);
        word |= chunk(form, row, column / width).0 << (4 * (v / width));
    }

    word
}

fn name(form: &Form, columns: usize) -> String {
    let (sum, left, right, _) = form;
    format!(
        "wgmma.mma_async.sp.sync.aligned.m64n{columns}k{}.{sum}.{left}.{right}",
        depth(form)
    )
}

/// A program with a product that is asked for twice, and its input; the metadata of each thread stands last.
fn twice(
    form: &Form,
    columns: usize,
    in_registers: bool,
    layouts: [Layout; 2],
) -> (String, Vec<u8>) {
    let (mut bytes, a) = image(form.1, 64, depth(form) / 2, layouts[0], |row, i| {
        packed(form, row, i)
    });
    bytes.resize(LEFT, 0);
    let (right, b) = image(form.2, columns, depth(form), layouts[1], |n, k| {
        value(k + 3, n)
    });
    bytes.extend(right);
    bytes.resize(bytes.len().next_multiple_of(2048), 0);
    let staged = bytes.len();
    bytes.extend(registers(form.1, |row, i| packed(form, row, i)));
    bytes.extend((0..128).flat_map(|thread| metadata(form, thread).to_le_bytes()));
    let turns = layouts.map(|l| u8::from(l.transposed));
    let rest = match (form.0, size(form.1), in_registers) {
        ("s32", ..) => String::new(),
        (_, 2, true) => format!(", 1, 1, {}", turns[1]),
        (_, 2, false) => format!(", 1, 1, {}, {}", turns[0], turns[1]),
        _ => ", 1, 1".into(),
    };
    let sums = if form.0 == "f16" {
        columns / 4
    } else {
        columns / 2
    };
    let left = if in_registers {
        list("%x", 4)
    } else {
        "%a".into()
    };
    let product = format!(
        "{} {}, {left}, %b, %m, {}, %p{rest};",
        name(form, columns),
        list("%d", sums),
        form.3
    );
    let body = format!(
        ".reg .b32 %m;\nmad.wide.u32 %to, %t, 4, %in;\nld.global.b32 %m, [%to+{}];\nwgmma.fence.sync.aligned;\n{product}\n\
         {product}\nmov.b32 %m, 0;\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;",
        staged + 2048
    );
    let text = program(staged, [a, b], sums, form.0 == "f32", &body);
    (
        if form.1 != form.2 && form.0 == "s32" {
            text.replace("8.6", "8.4")
        } else {
            text
        },
        bytes,
    )
}

/// Compares each sum.
fn check(form: &Form, columns: usize, in_registers: bool, layouts: [Layout; 2], order: Order) {
    let (text, bytes) = twice(form, columns, in_registers, layouts);
    let size = if form.0 == "f16" { 2 } else { 4 };
    let (out, _) = launch(
        &text,
        &bytes,
        (size * 64 * columns) as u64,
        Setup {
            order,
            seed: 3,
            ..GROUP
        },
    )
    .unwrap_or_else(|fault| panic!("{}: {fault}", name(form, columns)));
    let sum = |row: usize, column: usize| {
        (0..depth(form))
            .map(|k| left(form, row, k) * encode(form.2, value(k + 3, column)).1)
            .sum::<f64>()
    };
    wanted(form.0, columns, &out, &name(form, columns), sum);
}

#[test]
fn sparse_products_of_all_forms() {
    for form in FORMS {
        check(form, 16, false, [PLAIN; 2], Order::InOrder);
        check(form, 8, true, [PLAIN; 2], Order::Shuffled);
    }
}

#[test]
fn sparse_matrices_lie_in_every_layout() {
    let layout = |swizzle, transposed| Layout {
        swizzle,
        transposed,
    };
    for (a, b) in [(128, 64), (64, 128), (32, 64), (0, 0)] {
        check(
            &FORMS[0],
            64,
            false,
            [layout(a, false), layout(b, false)],
            Order::InOrder,
        );
        check(
            &FORMS[0],
            64,
            false,
            [layout(a, true), layout(b, true)],
            Order::InOrder,
        );
    }
    check(
        &FORMS[2],
        32,
        true,
        [PLAIN, layout(32, true)],
        Order::InOrder,
    );
}

#[test]
fn mistakes_with_sparse_products() {
    let run = |text: &str, bytes: &[u8]| -> Result<(), Box<Fault>> {
        launch(text, bytes, 4 * 64 * 8, GROUP).map(|_| ())
    };
    let form = &FORMS[0];
    let (text, mut bytes) = twice(form, 8, false, [PLAIN; 2]);
    let word = bytes.len() - 512 + 4 * 37;
    bytes[word..word + 4].copy_from_slice(&0x4444_4494u32.to_le_bytes());
    assert_eq!(
        run(&text, &bytes).err().map(|f| f.what.clone()),
        None,
        "0b1001 ascends"
    );
    bytes[word..word + 4].copy_from_slice(&0x4446_4444u32.to_le_bytes());
    let fault = run(&text, &bytes).expect_err("descending");
    let what = "metadata 0b0110 of row 25 of a from column 16 on, which means nothing";
    assert_eq!(
        (fault.class, fault.what.as_str()),
        (Class::Descriptor, what)
    );

    let narrow = Layout {
        swizzle: 32,
        transposed: false,
    };
    let (text, bytes) = twice(form, 8, false, [PLAIN, narrow]);
    let fault = run(&text, &bytes).expect_err("rows of 32 bytes");
    let what =
        "unsupported in ptx-emu: 64 bytes of the inner dimension from byte 0 of a row of 32 on";
    assert_eq!(
        (fault.class, fault.what.as_str()),
        (Class::Descriptor, what)
    );

    let refused = |from: &str, to: &str| {
        let text = twice(form, 8, false, [PLAIN; 2]).0.replace(from, to);
        Module::parse(&text)
            .and_then(Module::complete)
            .expect_err(to)
            .to_string()
    };
    for (from, to, what) in [
        (
            "%m, 0, %p",
            "%m, 2, %p",
            "an integer literal from 0 to 1 was expected",
        ),
        (
            "%m, 0, %p",
            "5, 0, %p",
            "a register with metadata was expected",
        ),
        ("%m, 0, %p", "%p", "takes 10 operands, not 8"),
        (
            "n8k32",
            "n8k16",
            "unsupported in ptx-emu: wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.f16.f16",
        ),
        (
            "k32.f32",
            "k32.satfinite.f32",
            "unsupported in ptx-emu: wgmma.mma_async.sp",
        ),
        (".version 8.6", ".version 8.1", "8.2"),
    ] {
        let said = refused(from, to);
        assert!(said.contains(what), "{to}: {said}");
    }
}
