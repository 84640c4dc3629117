//! `mma.sp`: every form against a plain product, with the fragments of the manual's text, "Matrix fragments for
//! multiply-accumulate operation with sparse matrix A", and metadata in the order of CUTLASS, `reorder_meta`.

use ptx_emu::{Class, Fault, Module};

use crate::fragments::{encode, stands_for, value};
use crate::machine::{SETUP, kernel, launch};

/// Depth, types of sums, of a and of b, and selector.
type Form = (usize, &'static str, &'static str, &'static str, usize);

const FORMS: &[Form] = &[
    (16, "f32", "f16", "f16", 0),
    (16, "f16", "f16", "f16", 3),
    (32, "f32", "f16", "f16", 1),
    (32, "f16", "f16", "f16", 0),
    (16, "f32", "bf16", "bf16", 2),
    (32, "f32", "bf16", "bf16", 0),
    (8, "f32", "tf32", "tf32", 1),
    (16, "f32", "tf32", "tf32", 1),
    (64, "f32", "e4m3", "e5m2", 0),
    (32, "s32", "s8", "u8", 0),
    (32, "s32", "u8", "s8", 1),
    (64, "s32", "s8", "s8", 0),
    (64, "s32", "s4", "u4", 1),
    (128, "s32", "u4", "s4", 0),
];

/// The metadata of a chunk of a row.
fn metadata(form: &Form, (row, chunk): (usize, usize), ordered: bool) -> u32 {
    let n = row * 5 + chunk * 3 + row * chunk;
    if form.2 == "tf32" {
        return [0b0100, 0b1110][n % 2];
    }

    let bits: u32 = [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110][n % 6];
    if ordered || n % 4 > 0 {
        bits
    } else {
        bits >> 2 | (bits & 3) << 2
    }
}

/// Columns of a chunk, and the columns in it of what is stored, in order.
fn stored(form: &Form, bits: u32) -> (usize, Vec<usize>) {
    let [low, high] = [bits & 3, bits >> 2].map(|index| index as usize);
    match form.2 {
        "tf32" => (2, vec![low / 2]),
        "s4" | "u4" => (8, vec![2 * low, 2 * low + 1, 2 * high, 2 * high + 1]),
        _ => (4, vec![low, high]),
    }
}

/// The metadata that each lane holds; those that are not selected hold what means nothing.
fn words(form: &Form, ordered: bool) -> Vec<u32> {
    let (k, .., selector) = *form;
    let bits = encode(form.2, 0).0;

    // Rows, and chunks of a word of metadata.
    let (chunks, group, interleave) = if bits >= 16 { (4, 32, 4) } else { (8, 16, 2) };
    let all = k / stored(form, 0).0;
    let word = |row: usize, column: usize| {
        let of = |i: usize| metadata(form, (row, column * chunks + i), ordered);
        (0..chunks).fold(0, |word, i| word | of(i) << (4 * i))
    };
    if all == chunks {
        let of_lane = |lane: usize| {
            if bits >= 16 && lane % 4 == selector {
                word(lane / 4, 0) | word(lane / 4 + 8, 0) << 16
            } else if bits < 16 && lane % 4 / 2 == selector {
                word(lane / 4 + lane % 2 * 8, 0)
            } else {
                u32::MAX
            }
        };
        return (0..32).map(of_lane).collect();
    }

    let mut bytes = [0xff; 128];
    for row in (0..group).filter(|row| row / 16 == selector) {
        for column in 0..2 {
            let (mut to, mut across) = (row % 8 * interleave + row / 8, column);
            match (to % 2, across) {
                (0, 1) => (to, across) = (to + 1, 0),
                (1, 0) => (to, across) = (to - 1, 1),
                _ => {}
            }
            let (word, size) = (word(row % 16, column), chunks / 2);
            bytes[(2 * to + across) * size..][..size].copy_from_slice(&word.to_le_bytes()[..size]);
        }
    }

    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word))
        .collect()
}

/// What the left matrix is at a place, which is zero where nothing is stored.
fn left(form: &Form, row: usize, column: usize, ordered: bool) -> i32 {
    let width = stored(form, 0).0;
    let (_, kept) = stored(form, metadata(form, (row, column / width), ordered));
    if kept.contains(&(column % width)) {
        stands_for(form.2, value(row, column))
    } else {
        0
    }
}

/// Registers of a lane: a, b, sums, and the metadata.
fn registers(form: &Form, lane: usize, ordered: bool) -> Vec<u32> {
    let (k, sum, a, b, _) = *form;
    let (g, t) = (lane / 4, lane % 4);
    let (each, each_c) = (32 / encode(a, 0).0, 32 / encode(sum, 0).0);
    let pack = |ty: &str, values: &[i32]| {
        let (bits, parts) = (encode(ty, 0).0, values.iter().enumerate());
        parts.fold(0, |all, (i, v)| {
            all | (encode(ty, *v).1 as u32) << (bits * i)
        })
    };
    let mut all = vec![];
    for r in 0..k / 4 / each {
        let (row, first) = (g + 8 * (r % 2), 2 * each * t + 8 * each * (r / 2));
        let width = stored(form, 0).0;
        let chunks = first / width..(first + 2 * each) / width;
        let of = |chunk: usize| {
            let columns = stored(form, metadata(form, (row, chunk), ordered)).1;
            columns
                .into_iter()
                .map(move |column| value(row, chunk * width + column))
        };
        all.push(pack(a, &chunks.flat_map(of).collect::<Vec<_>>()));
    }

    for r in 0..k / 4 / each {
        all.push(pack(
            b,
            &(0..each)
                .map(|i| value(g + 3, each * t + i + 4 * each * r))
                .collect::<Vec<_>>(),
        ));
    }

    let c = |e: usize| value(g + 8 * (e / 2), 2 * t + e % 2 + 5) * 3;
    (0..4 / each_c).for_each(|r| {
        all.push(pack(
            sum,
            &(0..each_c).map(|i| c(each_c * r + i)).collect::<Vec<_>>(),
        ))
    });
    all.push(words(form, ordered)[lane]);
    all
}

/// The instruction, and a kernel that loads its registers, each lane its own, and stores the sums.
fn program(form: &Form, ordered: bool) -> (String, String, usize) {
    let (k, sum, a, b, selector) = *form;
    let (left, sums) = (k * encode(a, 0).0 / 128, if sum == "f16" { 2 } else { 4 });
    let count = 2 * left + sums + 1;
    let list = |from: usize, n: usize| {
        format!(
            "{{{}}}",
            (from..from + n)
                .map(|r| format!("%r{r}"))
                .collect::<Vec<_>>()
                .join(", ")
        )
    };
    let (of_a, of_b, of_c) = (list(0, left), list(left, left), list(2 * left, sums));
    let name = if ordered {
        "sp::ordered_metadata"
    } else {
        "sp"
    };
    let inst = format!(
        "mma.{name}.sync.aligned.m16n8k{k}.row.col.{sum}.{a}.{b}.{sum} {of_c}, {of_a}, {of_b}, {of_c}, %r{}, {selector};",
        count - 1
    );
    let loads: String = (0..count)
        .map(|r| format!("ld.global.b32 %r{r}, [%at+{}];\n", 4 * r))
        .collect();
    let stores: String = (0..sums)
        .map(|r| format!("st.global.b32 [%at+{}], %r{};\n", 4 * r, 2 * left + r))
        .collect();
    let text = kernel(&format!(
        ".reg .b32 %r<{count}>; .reg .b64 %at; mad.wide.u32 %at, %t, {}, %in;\n{loads}{inst}\n\
         mad.wide.u32 %at, %t, {}, %out;\n{stores}",
        4 * count,
        4 * sums
    ));
    (inst, text, sums)
}

fn run(
    text: &str,
    registers: impl Fn(usize) -> Vec<u32>,
    sums: usize,
) -> Result<Vec<u32>, Box<Fault>> {
    let memory: Vec<u8> = (0..32)
        .flat_map(registers)
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let (out, _) = launch(text, &memory, 128 * sums as u64, SETUP)?;
    Ok(out
        .as_chunks::<4>()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word))
        .collect())
}

#[test]
fn sparse_products_of_all_forms() {
    for form in FORMS {
        for ordered in [false, true] {
            let (inst, text, sums) = program(form, ordered);
            let out = run(&text, |lane| registers(form, lane, ordered), sums)
                .unwrap_or_else(|f| panic!("{inst}: {f}"));
            let (k, sum, _, b, _) = *form;
            let (bits, each) = (encode(sum, 0).0, 4 / sums);
            for (lane, e) in (0..32).flat_map(|lane| (0..4).map(move |e| (lane, e))) {
                let (row, column) = (lane / 4 + 8 * (e / 2), 2 * (lane % 4) + e % 2);
                let term =
                    |i: usize| left(form, row, i, ordered) * stands_for(b, value(column + 3, i));
                let wanted = (0..k).map(term).sum::<i32>() + value(row, column + 5) * 3;
                let found = u64::from(out[lane * sums + e / each]) >> (bits * (e % each))
                    & u64::MAX >> (64 - bits);
                assert_eq!(
                    found,
                    encode(sum, wanted).1,
                    "{inst} row {row} column {column}"
                );
            }
        }
    }
}

/// What meets nothing that is stored takes no part: products with zero are not made.
#[test]
fn what_meets_nothing_stored_takes_no_part() {
    let form = &(8, "f32", "tf32", "tf32", 0);
    let (inst, text, sums) = program(form, true);

    // Of b, odd rows are infinite, and the metadata names even columns alone.
    let registers = |lane: usize| {
        let b = if lane.is_multiple_of(2) {
            2f32
        } else {
            f32::INFINITY
        };
        let [one, b, c] = [1f32, b, 0.5].map(f32::to_bits);
        [vec![one, one, b, b], vec![c; 4], vec![0x4444_4444]].concat()
    };
    let out = run(&text, registers, sums).unwrap_or_else(|f| panic!("{inst}: {f}"));
    assert!(
        out.iter().all(|sum| *sum == 8.5f32.to_bits()),
        "{inst}: {out:x?}"
    );
}

#[test]
fn metadata_and_selectors_are_checked() {
    let with = |form: &Form, ordered: bool, lane: usize, word: u32| {
        let (_, text, sums) = program(form, ordered);
        let spoilt = |l: usize| {
            let mut all = registers(form, l, ordered);
            if l == lane {
                *all.last_mut().expect("metadata") = word;
            }
            all
        };
        run(&text, spoilt, sums)
            .map(|_| ())
            .map_err(|fault| (fault.class, fault.what.clone()))
    };
    let says = |what: &str| Err((Class::Descriptor, what.to_owned()));
    let halves = &(16, "f32", "f16", "f16", 1);
    let (twice, down) = (0x8888_8858, 0x8886_8888);
    let first = "metadata 0b0101 of row 2 of a from column 4 on, which means nothing";
    assert_eq!(with(halves, false, 9, twice), says(first));
    assert_eq!(
        with(halves, true, 9, down),
        says("metadata 0b0110 of row 10 of a from column 0 on, which means nothing")
    );
    assert_eq!(
        (with(halves, false, 9, down), with(halves, false, 8, twice)),
        (Ok(()), Ok(()))
    );
    let singles = &(8, "f32", "tf32", "tf32", 0);
    let third = "metadata 0b1000 of row 0 of a from column 4 on, which means nothing";
    assert_eq!(with(singles, false, 0, 0x4444_4844), says(third));
    let pair = &(32, "s32", "s8", "s8", 2);
    let selector = "a sparsity selector of 2, where 2 threads of each four hold metadata: up to 1 was expected";
    assert_eq!(with(pair, true, 0, 0x4444_4444), says(selector));

    let refused = |text: &str| {
        Module::parse(text)
            .and_then(Module::complete)
            .expect_err("refused")
            .to_string()
    };
    let whole = program(&(64, "s32", "s8", "s8", 0), true).1;
    let other = refused(&whole.replace("%r12, 0;", "%r12, 1;"));
    assert!(
        other.contains("an integer literal from 0 to 0 was expected"),
        "{other}"
    );
    let older = refused(
        &whole
            .replace(".version 8.6", ".version 8.4")
            .replace("sm_90", "sm_80"),
    );
    assert!(older.contains("8.5"), "{older}");
    let dense = refused(&whole.replace(", %r12, 0;", ";"));
    assert!(dense.contains("6 operands"), "{dense}");
    let lacks = refused(&whole.replace(".row.col.", ".row.col.kind::f8f6f4."));
    assert!(
        lacks.contains("unsupported in ptx-emu: mma.sp::ordered_metadata"),
        "{lacks}"
    );
}
