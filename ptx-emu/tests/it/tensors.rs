//! Manual, "cp.async.bulk.tensor", "cp.async.bulk", "stmatrix" and "movmatrix": boxes of tensors into and out of shared
//! memory.

use ptx_emu::{
    Class, ElementKind, Fault, Launch, Memory, Module, Order, Schedule, TensorMap, Trace, run,
};

/// Elements of the matrix: rows of 72, of which 70 count.
const COLUMNS: u64 = 70;
const PITCH: u64 = 72;
const ROWS: u64 = 20;

/// A program that begins with `%map`, shared memory at `%s`, a full barrier of one arrival at `%bar`, and `%first` in
/// one thread.
fn program(body: &str) -> String {
    format!(
        ".version 8.3\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 s[]; .global .align 128 .b8 g[128];\n\
         .visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .u64 x)\n{{\n\
         .reg .b64 %map, %out, %d<4>; .reg .b32 %t, %s, %bar, %r<12>; .reg .pred %first, %p; .shared .b64 bar;\n\
         mov.b64 %map, map; cvta.param.u64 %map, %map; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %s, s;\n\
         mov.u32 %bar, bar; setp.eq.u32 %first, %t, 0; mad.wide.u32 %out, %t, 16, %out; mad.lo.u32 %r0, %t, 16, %s;\n\
         @%first mbarrier.init.shared.b64 [%bar], 1;\n@%first fence.mbarrier_init.release.cluster;\nbar.sync 0;\n\
         {body}\nret;\n}}\n"
    )
}

/// The matrix that the map is of.
fn matrix() -> Vec<u16> {
    (0..ROWS * PITCH).map(|i| i as u16 + 1).collect()
}

/// Runs a program of 128 threads on a box; gives the matrix and the 4 KiB of `out` after it.
fn launch(
    body: &str,
    boxed: &[u32],
    swizzle: u32,
    schedule: (Order, u64),
) -> Result<(Vec<u16>, Vec<u16>), Box<Fault>> {
    launch_with(
        body,
        |map| TensorMap {
            boxed: boxed.to_vec(),
            swizzle,
            ..map
        },
        schedule,
    )
}

/// The same with a map that is changed before.
fn launch_with(
    body: &str,
    changed: impl Fn(TensorMap) -> TensorMap,
    (order, seed): (Order, u64),
) -> Result<(Vec<u16>, Vec<u16>), Box<Fault>> {
    let text = program(body);
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let memory = Memory::new(1 << 24);
    let (x, out) = (
        memory.alloc(2 * ROWS * PITCH).expect("room"),
        memory.alloc(4096).expect("room"),
    );
    memory.set_label(x, "x");
    memory
        .write(
            x,
            &matrix()
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<_>>(),
        )
        .expect("allocated");
    memory.fill(out, &[0], 4096).expect("allocated");
    let (dims, strides) = (vec![COLUMNS, ROWS], vec![2 * PITCH]);
    let map = TensorMap {
        address: x,
        element: 2,
        kind: ElementKind::Unsigned,
        swizzle: 0,
        dims,
        strides,
        boxed: vec![8, 1],
    };
    let params = [
        &changed(map).encode().expect("a map")[..],
        &out.to_le_bytes(),
        &x.to_le_bytes(),
    ]
    .concat();
    let kernel = module.kernel("k").expect("it is in the text");
    let launch = Launch {
        kernel,
        grid: [1; 3],
        block: [128, 1, 1],
        dynamic_shared: 8192,
        params: &params,
    };
    for trace in [Trace::On, Trace::Off] {
        run(
            &memory,
            &launch,
            &Schedule {
                order,
                seed,
                ..Schedule::default()
            },
            trace,
        )?;
    }

    let words = |at: u64, n: u64| {
        let mut bytes = vec![0; 2 * n as usize];
        memory.read(at, &mut bytes).expect("allocated");
        bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|b| u16::from_le_bytes(*b))
            .collect::<Vec<_>>()
    };
    Ok((words(x, ROWS * PITCH), words(out, 2048)))
}

const SCHEDULES: [(Order, u64); 4] = [
    (Order::InOrder, 0),
    (Order::Reversed, 1),
    (Order::Shuffled, 2),
    (Order::Shuffled, 3),
];

/// Loads a box to `%s` and waits.
fn load(column: i32, row: i32, bytes: u32) -> String {
    format!(
        "mov.u32 %r1, {column}; mov.u32 %r2, {row};
         @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {bytes};
         @%first cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%map, {{%r1, %r2}}], [%bar];
         WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0; @!%p bra WAIT;\n"
    )
}

/// Each thread shows its 16 bytes.
const SHOW: &str =
    "ld.shared.v4.b32 {%r4,%r5,%r6,%r7}, [%r0]; st.global.v4.b32 [%out], {%r4,%r5,%r6,%r7};\n";

/// The element at a place of the tensor; 0 outside.
fn at(column: i64, row: i64) -> u16 {
    let inside = (0..COLUMNS as i64).contains(&column) && (0..ROWS as i64).contains(&row);
    if inside {
        matrix()[(row * PITCH as i64 + column) as usize]
    } else {
        0
    }
}

/// Where an element of a box lies, in elements: the units of 16 bytes exchanged by the manual's figures.
fn element(swizzle: u32, row: u32, column: u32) -> usize {
    let unit = match swizzle {
        128 => (column / 8) ^ (row % 8),
        64 => (column / 8) ^ (row / 2 % 4),
        32 => (column / 8) ^ (row / 4 % 2),
        _ => column / 8,
    };
    (unit * 8 + column % 8) as usize
}

#[test]
fn boxes_land_swizzled_and_end_with_the_tensor() {
    let clear = [WRITE, FENCE, "bar.sync 0;\n"].concat();
    for (swizzle, width) in [(128, 64), (64, 32), (32, 16), (0, 24)] {
        for (column, row) in [(0, 0), (16, 13), (-8, -3), (64, 19), (80, 0)] {
            let bytes = width * 16 * 2;
            for schedule in SCHEDULES {
                let (_, out) = launch(
                    &(clear.clone() + &load(column, row, bytes) + SHOW),
                    &[width, 16],
                    swizzle,
                    schedule,
                )
                .unwrap_or_else(|fault| panic!("{fault}"));
                for (r, c) in (0..16)
                    .flat_map(|r| (0..width).map(move |c| (r, c)))
                    .take(1024)
                {
                    let found = out[(r * width) as usize + element(swizzle, r, c)];
                    let wanted = at(
                        i64::from(column) + i64::from(c),
                        i64::from(row) + i64::from(r),
                    );
                    if (r * width) as usize + element(swizzle, r, c) < 1024 {
                        assert_eq!(
                            found, wanted,
                            "swizzle {swizzle}, box at {column}, {row}: row {r} column {c}"
                        );
                    }
                }
            }
        }
    }
}

/// Stores the box at `%s`.
fn store_at(column: i32, row: i32) -> String {
    format!(
        "mov.u32 %r1, {column}; mov.u32 %r2, {row};
        @%first cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {{%r1, %r2}}], [%s];
        @%first cp.async.bulk.commit_group; @%first cp.async.bulk.wait_group 0;"
    )
}

fn f16(bits: u32) -> f32 {
    half::f16::from_bits(bits as u16).to_f32()
}

fn bf16(bits: u32) -> f32 {
    half::bf16::from_bits(bits as u16).to_f32()
}

/// The box at the beginning is combined with the one at 40, 10, by the type of the map; what is outside is left out.
#[test]
fn boxes_are_reduced() {
    use ElementKind::{BFloat, Float, Signed, Unsigned};
    type Update = fn(u32, u32) -> u32;
    let run = |op: &str, (kind, element): (ElementKind, u32), schedule| {
        let [width, at] = [64, 80].map(|bytes| bytes / element);
        let reduce = format!(
            "mov.u32 %r1, {at}; mov.u32 %r2, 10;
            @%first cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}.bulk_group [%map, {{%r1, %r2}}], [%s];
            @%first cp.async.bulk.commit_group; @%first cp.async.bulk.wait_group 0;"
        );
        let dims = vec![2 * COLUMNS / u64::from(element), ROWS];
        let map = |map| TensorMap {
            element,
            kind,
            swizzle: 64,
            dims: dims.clone(),
            boxed: vec![width, 16],
            ..map
        };
        launch_with(&(load(0, 0, 1024) + &reduce), map, schedule).map(|(x, _)| x)
    };
    let cases: &[(&str, (ElementKind, u32), Update)] = &[
        ("add", (Unsigned, 4), |m, b| m.wrapping_add(b)),
        ("max", (Signed, 4), |m, b| (m as i32).max(b as i32) as u32),
        ("inc", (Unsigned, 4), |m, b| if m >= b { 0 } else { m + 1 }),
        ("xor", (Signed, 4), |m, b| m ^ b),
        ("add", (Float, 2), |m, b| {
            half::f16::from_f32(f16(m) + f16(b)).to_bits().into()
        }),
        (
            "min.tile",
            (Float, 2),
            |m, b| if f16(m) < f16(b) { m } else { b },
        ),
        ("add", (BFloat, 2), |m, b| {
            half::bf16::from_f32(bf16(m) + bf16(b)).to_bits().into()
        }),
    ];
    for (i, (op, of, update)) in cases.iter().enumerate() {
        let x = run(op, *of, SCHEDULES[i % 4]).unwrap_or_else(|fault| panic!("{op}: {fault}"));
        let words = |x: &[u16]| match of.1 {
            2 => x.iter().map(|v| u32::from(*v)).collect::<Vec<_>>(),
            _ => x
                .as_chunks::<2>()
                .0
                .iter()
                .map(|v| u32::from(v[0]) | u32::from(v[1]) << 16)
                .collect(),
        };
        let (before, after, pitch) = (
            words(&matrix()),
            words(&x),
            (2 * PITCH as u32 / of.1) as usize,
        );
        let [width, at, columns] =
            [64, 80, 2 * COLUMNS as u32].map(|bytes| (bytes / of.1) as usize);
        for (i, found) in after.iter().enumerate() {
            let (row, column) = (i / pitch, i % pitch);
            let within = row >= 10 && (at..(at + width).min(columns)).contains(&column);
            let copied = |before: &[u32]| before[(row - 10) * pitch + column - at];

            // A program runs twice, traced and not.
            let twice = |b| update(update(before[i], b), b);
            let wanted = if within {
                twice(copied(&before))
            } else {
                before[i]
            };
            assert_eq!(*found, wanted, "{op} {of:?} row {row} column {column}");
        }
    }

    let fault = run("min", (Unsigned, 2), SCHEDULES[0]).expect_err("there is no such reduction");
    let what = "`.min` of a tensor of Unsigned elements of 2 bytes";
    assert_eq!(
        (fault.class, fault.what.as_str()),
        (Class::Descriptor, what)
    );
    let fault = run("inc", (Float, 4), SCHEDULES[0]).expect_err("nor this");
    assert_eq!(
        fault.what,
        "`.inc` of a tensor of Float elements of 4 bytes"
    );
}

#[test]
fn prefetched_boxes_exist() {
    let prefetch = |column: i32, map: &str| {
        let body = format!(
            "mov.u32 %r1, {column}; mov.u32 %r2, 3;
            @%first cp.async.bulk.prefetch.tensor.2d.L2.global.tile [{map}, {{%r1, %r2}}];"
        );
        launch(&body, &[32, 16], 64, SCHEDULES[0])
            .map(drop)
            .map_err(|fault| fault.class)
    };
    assert_eq!(prefetch(8, "%map"), Ok(()));
    assert_eq!(prefetch(3, "%map"), Err(Class::Misaligned));
    assert_eq!(prefetch(8, "%out"), Err(Class::Descriptor));
}

/// Loads a box, waits, changes nothing, and stores it elsewhere: what is outside is left out.
#[test]
fn boxes_are_stored_and_clipped() {
    let store = "mov.u32 %r1, 40; mov.u32 %r2, 10;
        @%first cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {%r1, %r2}], [%s];
        @%first cp.async.bulk.commit_group; @%first cp.async.bulk.wait_group 0;";
    for schedule in SCHEDULES {
        let (x, _) = launch(&(load(0, 0, 1024) + store), &[32, 16], 64, schedule)
            .unwrap_or_else(|fault| panic!("{fault}"));
        for (row, column) in (0..ROWS as i64).flat_map(|r| (0..PITCH as i64).map(move |c| (r, c))) {
            let stored = (40..70).contains(&column) && row >= 10;
            let wanted = if stored {
                at(column - 40, row - 10)
            } else {
                matrix()[(row * PITCH as i64 + column) as usize]
            };
            assert_eq!(
                x[(row * PITCH as i64 + column) as usize],
                wanted,
                "row {row} column {column}"
            );
        }
    }
}

const WRITE: &str = "mov.b32 %r4, 0x00050004; st.shared.v4.b32 [%r0], {%r4,%r4,%r4,%r4};\n";
const FENCE: &str = "fence.proxy.async.shared::cta;\n";
const STORE: &str = "@%first cp.async.bulk.global.shared::cta.bulk_group [%out], [%s], 1024; @%first cp.async.bulk.commit_group;\n";
const WAIT: &str = "@%first cp.async.bulk.wait_group.read 0;\n";

#[test]
fn bytes_are_stored() {
    for schedule in SCHEDULES {
        let body = [WRITE, FENCE, "bar.sync 0;", STORE, WAIT].concat();
        let (_, out) =
            launch(&body, &[16, 8], 32, schedule).unwrap_or_else(|fault| panic!("{fault}"));
        let wanted = |i: usize| if i < 512 { 4 + (i % 2) as u16 } else { 0 };
        assert!(out.iter().enumerate().all(|(i, v)| *v == wanted(i)));
    }
}

/// Two reductions to one place, which both read and write it, in each of the two launches.
#[test]
fn bytes_are_reduced() {
    type Reduced = fn(u32) -> u32;
    let cases: [(&str, Reduced); 3] = [
        ("add.u32", |x| x + 0x0005_0004),
        ("max.s32", |x| x.max(0x0005_0004)),
        // Subnormal halves add as integers do.
        ("add.noftz.f16", |x| x + 0x0005_0004),
    ];
    for (op, of) in cases {
        for schedule in SCHEDULES {
            let reduce = format!(
                "@%first cp.reduce.async.bulk.global.shared::cta.bulk_group.{op} [%out], [%s], 1024; @%first cp.async.bulk.commit_group;\n"
            );
            let body = [WRITE, FENCE, "bar.sync 0;", &reduce, &reduce, WAIT].concat();
            let (_, out) = launch(&body, &[16, 8], 32, schedule)
                .unwrap_or_else(|fault| panic!("{op}: {fault}"));
            let wanted = (0..4).fold(0, |x, _| of(x));
            let word = |i: usize| u32::from(out[2 * i]) | u32::from(out[2 * i + 1]) << 16;
            assert!(
                (0..256).all(|i| word(i) == wanted),
                "{op}: {:#x}, not {wanted:#x}",
                word(0)
            );
            assert!((256..512).all(|i| word(i) == 0), "{op}");
        }
    }
}

#[test]
fn mistakes_with_tensors() {
    use Class::{
        AsyncCopy, AsyncUnfinished, Deadlock, Descriptor, Misaligned, OutOfBounds, ProxyFence,
        SharedRace,
    };
    let good = load(0, 0, 512);
    let few = load(0, 0, 256);
    let rows: &[(&[&str], Class, &str)] = &[
        (
            &[WRITE, "bar.sync 0;", STORE, WAIT],
            ProxyFence,
            "that an ordinary store wrote",
        ),
        (
            &[WRITE, FENCE, STORE, WAIT],
            SharedRace,
            "nothing orders the two",
        ),
        (
            &[WRITE, FENCE, "bar.sync 0;", STORE],
            AsyncUnfinished,
            "a copy may still read its shared memory",
        ),
        (
            &[
                WRITE,
                FENCE,
                "bar.sync 0;",
                STORE,
                "bar.sync 0;",
                WRITE,
                WAIT,
            ],
            AsyncCopy,
            "was written while this",
        ),
        (
            &[
                WRITE,
                FENCE,
                "bar.sync 0;",
                STORE,
                "bar.sync 0;",
                WRITE,
                FENCE,
                "bar.sync 0;",
                WAIT,
            ],
            AsyncCopy,
            "was written while this",
        ),
        (
            &[&good.replace("WAIT: mbarrier", "exit; WAIT: mbarrier")],
            AsyncUnfinished,
            "nothing has waited for a copy",
        ),
        (
            &[&few.replace("[%s], [%map", "[%s+64], [%map")],
            Misaligned,
            "not a multiple of 128",
        ),
        (
            &[&load(4, 0, 512)],
            Misaligned,
            "a box that begins 8 bytes into its row, which is not a multiple of 16",
        ),
        (
            &[WRITE, FENCE, "bar.sync 0;", &store_at(0, -1)],
            OutOfBounds,
            "a box is stored to [0, -1], which is before the tensor",
        ),
        (
            &[WRITE, FENCE, "bar.sync 0;", &store_at(-8, 0)],
            OutOfBounds,
            "a box is stored to [-8, 0]",
        ),
        (
            &[WRITE, FENCE, "bar.sync 0;", &store_at(1, 0)],
            Misaligned,
            "a box that begins 2 bytes into its row",
        ),
        (&[&few], Deadlock, "-256 bytes are missing"),
        (
            &["add.u64 %map, %map, 32;", &good],
            Misaligned,
            "a tensor map at",
        ),
        (
            &[&good.replace("[%map,", "[%out,")],
            Descriptor,
            "are not a tensor map",
        ),
        (
            &["ld.param.u64 %map, [out];", &good],
            Descriptor,
            "are not a tensor map",
        ),
        (
            &[&good
                .replace("{%r1, %r2}", "{%r1, %r2, %r2}")
                .replace("2d", "3d")],
            Descriptor,
            "3 coordinates for a tensor map of 2",
        ),
        (
            &[&good.replace("[%s], [%map", "[%s+7936], [%map")],
            OutOfBounds,
            "outside every variable",
        ),
        (
            &["or.b64 %map, %map, 64;", &good],
            Descriptor,
            "are not a tensor map",
        ),
    ];
    for (body, class, part) in rows {
        for schedule in SCHEDULES {
            let fault = launch(&body.concat(), &[16, 16], 32, schedule).expect_err(&body.concat());
            assert_eq!(fault.class, *class, "{body:?}: {fault}");
            assert!(fault.what.contains(part), "{body:?}: {fault}");
        }
    }
}

/// A product of the tile at `%s` with itself, by descriptors with a swizzle.
fn product(code: u64) -> String {
    format!(
        "shr.u32 %r1, %s, 4; cvt.u64.u32 %d0, %r1; or.b64 %d0, %d0, {};
             .reg .f32 %f<4>; mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
             wgmma.fence.sync.aligned; setp.ge.u32 %p, %t, 0;
             wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0,%f1,%f2,%f3}}, %d0, %d0, %p, 1, 1, 0, 0;
             wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        code << 62 | 64 << 32 | 1 << 16
    )
}

/// A tile that a map brought with one swizzle is read with another.
#[test]
fn a_wrong_swizzle_is_named() {
    for schedule in SCHEDULES {
        launch(&(load(0, 0, 8192) + &product(1)), &[64, 64], 128, schedule)
            .unwrap_or_else(|fault| panic!("{fault}"));
        let fault = launch(&(load(0, 0, 8192) + &product(2)), &[64, 64], 128, schedule)
            .expect_err("64 bytes");
        assert_eq!(fault.class, Class::Descriptor, "{fault}");
        let wanted = "a tile is read with a swizzle of 64 bytes, and a tensor map brought it here with one of 128 bytes";
        assert_eq!(fault.what, wanted);
    }
}

/// Parts of a program, and the fault: its class, and a part of what is said.
type Row<'a> = (&'a [&'a str], Option<(Class, &'a str)>);

const READ: &str = "ld.shared.v4.b32 {%r4,%r5,%r6,%r7}, [%r0];\n";

/// What was read of a tile, and the next copy to its place: loads must be fenced, what copies and products read need not.
#[test]
fn copies_overtake_loads_alone() {
    let again = load(0, 0, 8192)
        .replace("WAIT", "AGAIN")
        .replace("[%bar], 0;", "[%bar], 1;");
    let again = ["bar.sync 0;\n", &again].concat();
    let (first, product) = (load(0, 0, 8192), product(1));
    let fence_by_one = ["bar.sync 0; @%first ", FENCE].concat();
    let unfenced = Some((Class::ProxyFence, "that an ordinary load reads"));
    let one_warp = "setp.ge.u32 %p, %t, 32; @%p bra END;";
    let rows: &[Row<'_>] = &[
        (&[&first, READ, &again], unfenced),
        (&[&first, READ, FENCE, &again], None),
        (&[&first, READ, &fence_by_one, &again], None),
        (&[&first, &product, &again], None),
        (&[&first, STORE, WAIT, &again], None),
        // A later product or copy does not hide the load.
        (&[&first, READ, &product, &again], unfenced),
        (&[&first, READ, STORE, WAIT, &again], unfenced),
        (&[&first, READ, FENCE, &product, STORE, WAIT, &again], None),
        // What one thread wrote, and others read.
        (
            &[WRITE, "bar.sync 0;", &first],
            Some((Class::ProxyFence, "that an ordinary store wrote")),
        ),
        (&[WRITE, FENCE, "bar.sync 0;", &first], None),
        (
            &[WRITE, FENCE, "bar.sync 0;", READ, "bar.sync 0;", &first],
            unfenced,
        ),
        (
            &[
                WRITE,
                FENCE,
                "bar.sync 0;",
                READ,
                FENCE,
                "bar.sync 0;",
                &first,
            ],
            None,
        ),
        // Lanes beside the one that has waited for its copy.
        (
            &[&first, one_warp, STORE, WAIT, WRITE, "END:"],
            Some((Class::SharedRace, "nothing orders the two")),
        ),
        (
            &[
                &first,
                one_warp,
                STORE,
                WAIT,
                "bar.warp.sync -1;",
                WRITE,
                "END:",
            ],
            None,
        ),
    ];
    for (body, wanted) in rows {
        for schedule in SCHEDULES {
            let found = launch(&body.concat(), &[64, 64], 128, schedule).err();
            match (wanted, &found) {
                (None, None) => {}
                (Some((class, part)), Some(fault))
                    if fault.class == *class && fault.what.contains(part) => {}
                _ => panic!("{body:?}: {found:?} where {wanted:?} was to be found"),
            }
        }
    }
}

/// Lane l holds elements 2 l and 2 l + 1 of a matrix: what `stmatrix` stores, `ldmatrix` loads.
#[test]
fn matrices_are_stored_and_moved() {
    let fill = "mad.lo.u32 %r8, %t, 0x00020002, 0x00010000; add.u32 %r9, %r8, 0x01000100; add.u32 %r10, %r8, 0x02000200; add.u32 %r11, %r8, 0x03000300;";
    for (n, registers) in [(1, "{%r8}"), (2, "{%r8,%r9}"), (4, "{%r8,%r9,%r10,%r11}")] {
        for trans in ["", ".trans"] {
            let store = format!(
                "stmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 [%r0], {registers}; bar.sync 0;"
            );
            let body =
                format!("setp.lt.u32 %p, %t, 32; @!%p bra END; {fill} {WRITE} {store} {SHOW} END:");
            let (_, out) = launch(
                &body.replace("bar.sync 0;", "bar.warp.sync -1;"),
                &[16, 8],
                32,
                SCHEDULES[0],
            )
            .unwrap_or_else(|fault| panic!("{fault}"));
            for (matrix, row, column) in
                (0..n).flat_map(|m| (0..64).map(move |i| (m, i / 8, i % 8)))
            {
                let (r, c) = if trans.is_empty() {
                    (row, column)
                } else {
                    (column, row)
                };
                let found = out[64 * matrix + 8 * row + column];
                assert_eq!(
                    usize::from(found),
                    256 * matrix + 8 * r + c,
                    "x{n}{trans}: {matrix} {row} {column}"
                );
            }
        }
    }

    let moved = format!(
        "setp.lt.u32 %p, %t, 32; @!%p bra END; {fill} movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r8; st.global.b32 [%out], %r4; END:"
    );
    let (_, out) =
        launch(&moved, &[16, 8], 32, SCHEDULES[0]).unwrap_or_else(|fault| panic!("{fault}"));
    for (lane, half) in (0..32).flat_map(|l| [(l, 0), (l, 1)]) {
        let (row, column) = (lane / 4, 2 * (lane % 4) + half);
        assert_eq!(usize::from(out[8 * lane + half]), 8 * column + row);
    }
}

/// Copies the map to shared memory, lets a thread change it there, and puts it at `g`, from where a box is loaded.
fn changed(changes: &[&str], fence: &str, bytes: u32) -> String {
    let changes: String = changes
        .iter()
        .map(|change| {
            let (field, values) = change.split_once(' ').expect("a field and values");
            let bits = if values.ends_with("%v") { 64 } else { 32 };
            format!(
                "@%first tensormap.replace.tile.{field}.shared::cta.b1024.b{bits} [%m], {values};\n"
            )
        })
        .collect();
    format!(
        ".reg .b64 %g, %v; .reg .b32 %m; .reg .pred %part; .shared .align 128 .b8 m[128];
         ld.param.u64 %v, [x]; add.u64 %v, %v, {}; setp.lt.u32 %part, %t, 16; mad.wide.u32 %d0, %t, 8, %map;
         mov.u32 %m, m; mad.lo.u32 %r8, %t, 8, %m; @%part ld.u64 %d1, [%d0]; @%part st.shared.u64 [%r8], %d1;
         mov.u64 %g, g; bar.sync 0;\n{changes}bar.sync 0;
         setp.lt.u32 %part, %t, 32;
         @%part tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%g], [%m], 128;
         {fence} bar.sync 0; mov.u64 %map, %g;\n{}{SHOW}",
        3 * 2 * PITCH,
        load(8, 1, bytes)
    )
}

const ACQUIRE: &str = "fence.proxy.tensormap::generic.acquire.gpu [%g], 128;";

/// Manual, "tensormap.replace" and "tensormap.cp_fenceproxy".
#[test]
fn maps_are_changed() {
    type Element = fn(i64, i64) -> u16;
    let changed = |changes: &[&str], bytes: u32| {
        [
            WRITE,
            FENCE,
            "bar.sync 0;\n",
            &changed(changes, ACQUIRE, bytes),
        ]
        .concat()
    };

    // The changes of a map with boxes of 24 by 16, the new box, and its elements from 8, 1 on.
    let rows: &[(&[&str], [u32; 2], Element)] = &[
        (
            &[
                "rank 1",
                "fill_mode 0",
                "interleave_layout 0",
                "element_stride 0, 1",
            ],
            [24, 16],
            at,
        ),
        (
            &["global_address %v", "global_dim 1, 17"],
            [24, 16],
            |c, r| if r < 17 { at(c, r + 3) } else { 0 },
        ),
        (&["box_dim 0, 32", "box_dim 1, 8"], [32, 8], at),
        (&["global_dim 0, 16"], [24, 16], |c, r| {
            if c < 16 { at(c, r) } else { 0 }
        }),
    ];
    for (changes, boxed, element) in rows {
        for schedule in SCHEDULES {
            let body = changed(changes, 2 * boxed[0] * boxed[1]);
            let (_, out) = launch(&body, &[24, 16], 0, schedule)
                .unwrap_or_else(|fault| panic!("{changes:?}: {fault}"));
            for (i, found) in out.iter().enumerate().take((boxed[0] * boxed[1]) as usize) {
                let (c, r) = (
                    i as i64 % i64::from(boxed[0]),
                    i as i64 / i64::from(boxed[0]),
                );
                assert_eq!(
                    *found,
                    element(c + 8, r + 1),
                    "{changes:?}: row {r} column {c}"
                );
            }
        }
    }

    // Elements of four bytes, half as many; and each second row, swizzled.
    let words = ["elemtype 2", "global_dim 0, 35", "box_dim 0, 12"];
    let (_, out) =
        launch(&changed(&words, 768), &[24, 16], 0, SCHEDULES[2]).unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(out[..4], [at(16, 1), at(17, 1), at(18, 1), at(19, 1)]);
    let stride = [
        "global_stride 0, %v",
        "global_dim 1, 10",
        "box_dim 0, 32",
        "box_dim 1, 8",
        "swizzle_mode 2",
    ];
    let body = changed(&stride, 512).replace(
        "ld.param.u64 %v, [x]; add.u64 %v, %v, 432",
        "mov.u64 %v, 288",
    );
    let (_, out) = launch(&body, &[24, 16], 0, SCHEDULES[1]).unwrap_or_else(|f| panic!("{f}"));
    for (r, c) in (0..8).flat_map(|r| (0..32).map(move |c| (r, c))) {
        let found = out[(32 * r) as usize + self::element(64, r, c)];
        assert_eq!(
            found,
            at(i64::from(c) + 8, 2 * (i64::from(r) + 1)),
            "row {r} column {c}"
        );
    }
}

#[test]
fn mistakes_with_changed_maps() {
    let plain = |change: &str| changed(&[change], ACQUIRE, 768);
    let whole = changed(&["rank 1"], ACQUIRE, 768);
    let cases: &[(String, Class, &str)] = &[
        (
            changed(&["rank 1"], "", 768),
            Class::ProxyFence,
            "a copy may not see that the tensor map at 0x",
        ),
        (
            whole.replace(
                "mov.u64 %map, %g;",
                "@%first tensormap.replace.tile.rank.b1024.b32 [%g], 1; mov.u64 %map, %g;",
            ),
            Class::ProxyFence,
            "was changed",
        ),
        (
            plain("rank 0"),
            Class::Descriptor,
            "2 coordinates for a tensor map of 1 dimensions",
        ),
        (
            plain("rank 5"),
            Class::Descriptor,
            "tensormap.replace: a rank of 6 dimensions: 1 to 5",
        ),
        (
            plain("box_dim 1, 300"),
            Class::Descriptor,
            "has a box of 300 elements in a dimension: 1 to 256",
        ),
        (
            plain("box_dim 1, 70000"),
            Class::Descriptor,
            "a box of 70000 elements in a dimension",
        ),
        (
            plain("element_stride 0, 2"),
            Class::Descriptor,
            "unsupported in ptx-emu: a value of 2",
        ),
        (
            plain("fill_mode 1"),
            Class::Descriptor,
            "unsupported in ptx-emu: a value of 1",
        ),
        (
            whole.replace("b1024.b32 [%m]", "b1024.b32 [%m+32]"),
            Class::Misaligned,
            "not a multiple of 64",
        ),
        (
            whole.replace("@%part st.shared.u64 [%r8], %d1;", ""),
            Class::UninitialisedShared,
            "has written",
        ),
        (
            whole.replace(
                "@%part st.shared.u64 [%r8], %d1;",
                "@%part st.shared.u64 [%r8], 5;",
            ),
            Class::Descriptor,
            "tensormap.replace: these bytes are not a tensor map",
        ),
        (
            whole
                .replace("{changes}bar.sync 0", "")
                .replace("setp.lt.u32 %part, %t, 32", "setp.lt.u32 %part, %t, 16"),
            Class::InactiveLane,
            "aligned",
        ),
    ];
    for (body, class, part) in cases {
        for schedule in SCHEDULES {
            let fault = launch(body, &[24, 16], 0, schedule).expect_err(body);
            assert!(
                fault.class == *class && fault.what.contains(part),
                "{body}: {fault}"
            );
        }
    }

    let refused = |text: &str| {
        Module::parse(text)
            .and_then(Module::complete)
            .expect_err(text)
            .to_string()
    };
    let text = program(&whole);
    assert!(
        refused(&text.replace(".target sm_90a", ".target sm_90"))
            .contains("needs a target such as sm_90a")
    );
    assert!(refused(&text.replace(".version 8.3", ".version 8.2")).contains("8.3"));
    assert!(
        refused(&text.replace("[%g], [%m], 128", "[%g], [%m], 64"))
            .contains("128, the size of a tensor map")
    );
    let most = refused(&text.replace(
        "tile.rank.shared::cta.b1024.b32 [%m], 1",
        "tile.swizzle_mode.shared::cta.b1024.b32 [%m], 4",
    ));
    assert!(most.contains("an integer literal from 0 to 3"), "{most}");
}
