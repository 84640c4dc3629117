//! Tests of matmuls of many tokens on the emulator: against the reference, under several schedules,
//! and with planted faults.

use ptx_emu::{
    Class, ElementKind, Fault, Launch, Memory, Module, Order, Schedule, TensorMap, Trace, run,
};
use ptx_gen::{AnyKernel, CpuArg, Program, ShapeArg, Target, f16, print};
use warpwright_kernels::matmul::Dense;
use warpwright_kernels::{ProductTile, Random};

/// The rows of `x`, the rows of `w`, and the row length.
type Shape = [u32; 3];

/// The maximum number of blocks of the grid, so that some blocks have two tiles.
const BLOCKS: u32 = 2;

/// A kernel and its text.
struct Built {
    kernel: Dense,
    program: Program,
    text: String,
}

fn build(kernel: Dense) -> Built {
    let program = kernel.build().unwrap_or_else(|e| panic!("{e}"));
    let text =
        print(&program, Target::named("sm_90a").expect("in the table")).expect("runs on sm_90a");
    Built {
        kernel,
        program,
        text,
    }
}

fn halves(n: u32, seed: u64) -> Vec<f16> {
    let mut random = Random(seed);
    (0..n).map(|_| f16::from_f32(random.unit())).collect()
}

fn bytes(v: &[f16]) -> Vec<u8> {
    v.iter().flat_map(|v| v.0.to_le_bytes()).collect()
}

/// Runs a text in place of the kernel's text and returns `y`.
fn launch(
    built: &Built,
    text: &str,
    [rows, n, k]: Shape,
    (order, seed): (Order, u64),
    trace: Trace,
) -> Result<Vec<f16>, Box<Fault>> {
    let module = Module::parse(text)
        .and_then(Module::complete)
        .unwrap_or_else(|e| panic!("{e}"));
    let code = module.kernels().next().expect("one kernel");
    let memory = Memory::new(1 << 28);
    let x = halves(rows * k, 1);
    let w = halves(n * k, 2);
    let upload = |name: &str, data: &[u8]| {
        let at = memory.alloc(data.len() as u64).expect("room");
        memory.set_label(at, name);
        memory.write(at, data).expect("allocated");
        at
    };
    let y = vec![0xff; (rows * n * 2) as usize];
    let places = [
        upload("x", &bytes(&x)),
        upload("w", &bytes(&w)),
        upload("y", &y),
    ];
    let map = |name: &str, address: u64, [columns, rows]: [u32; 2]| {
        let tile = built.program.tile(name).expect("it is used");
        let boxed = tile.box_dims().to_vec();
        let dims = vec![columns.into(), rows.into()];
        let strides = vec![2 * u64::from(columns)];
        let map = TensorMap {
            address,
            element: 2,
            kind: ElementKind::Unsigned,
            swizzle: tile.swizzle.bytes(),
            dims,
            strides,
            boxed,
        };
        map.encode()
            .unwrap_or_else(|e| panic!("{name}: {e}"))
            .to_vec()
    };
    let mut params = [
        map("x", places[0], [k, rows]),
        map("w", places[1], [k, n]),
        map("y", places[2], [n, rows]),
    ]
    .concat();
    for v in [rows, n, k, BLOCKS] {
        params.extend(v.to_le_bytes());
    }

    let shapes = [
        ShapeArg::Len((rows * k) as usize),
        ShapeArg::Len((n * k) as usize),
        ShapeArg::Len((rows * n) as usize),
        ShapeArg::Scalar(rows.into()),
        ShapeArg::Scalar(n.into()),
        ShapeArg::Scalar(k.into()),
        ShapeArg::Scalar(BLOCKS.into()),
    ];
    let geometry = built
        .kernel
        .geometry(&shapes)
        .unwrap_or_else(|e| panic!("{e}"));
    let launch = Launch {
        kernel: code,
        grid: geometry.grid,
        block: geometry.block,
        dynamic_shared: geometry.shared,
        params: &params,
    };
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
    let mut found = y;
    memory.read(places[2], &mut found).expect("allocated");
    Ok(found
        .as_chunks::<2>()
        .0
        .iter()
        .map(|b| f16(u16::from_le_bytes(*b)))
        .collect())
}

fn reference(kernel: &Dense, [rows, n, k]: Shape) -> Vec<f16> {
    let scalar = |v: u32| CpuArg::Scalar(v.into());
    let [x, w] = [halves(rows * k, 1), halves(n * k, 2)].map(CpuArg::F16);
    let y = CpuArg::F16(vec![f16(0); (rows * n) as usize]);
    let mut args = [x, w, y, scalar(rows), scalar(n), scalar(k), scalar(BLOCKS)];
    kernel
        .reference_on(&mut args)
        .unwrap_or_else(|e| panic!("{e}"));
    match args.into_iter().nth(2) {
        Some(CpuArg::F16(y)) => y,
        _ => unreachable!("y is of binary16"),
    }
}

/// Returns the error relative to the norm of all elements.
fn relative_error(found: &[f16], wanted: &[f16]) -> f64 {
    let square = |v: f64| v * v;
    let pairs = || {
        found
            .iter()
            .zip(wanted)
            .map(|(f, w)| (f64::from(f.to_f32()), f64::from(w.to_f32())))
    };
    let error: f64 = pairs().map(|(f, w)| square(f - w)).sum();
    (error / pairs().map(|(_, w)| square(w)).sum::<f64>()).sqrt()
}

const SCHEDULES: [(Order, u64); 4] = [
    (Order::InOrder, 0),
    (Order::Reversed, 1),
    (Order::Shuffled, 2),
    (Order::Shuffled, 3),
];

fn dense(columns: u32, paired: bool) -> Dense {
    let tile = ProductTile::new(columns).expect("a block computes it");
    Dense {
        tile: if paired { tile.in_pairs() } else { tile },
    }
}

#[test]
fn dense_products_are_those_of_the_reference() {
    let cases: [(Dense, &[Shape]); 4] = [
        (dense(64, false), &[[128, 64, 64], [200, 136, 392]]),
        (dense(192, false), &[[256, 256, 192], [1, 8, 8]]),
        (dense(256, false), &[[130, 264, 72]]),
        (dense(128, true), &[[256, 128, 256], [300, 200, 136]]),
    ];
    for (kernel, shapes) in cases {
        let built = build(kernel);
        for shape in shapes {
            let wanted = reference(&built.kernel, *shape);
            let mut first = None;
            for (i, schedule) in SCHEDULES.into_iter().enumerate() {
                let trace = if i == 0 { Trace::On } else { Trace::Off };
                let found = launch(&built, &built.text, *shape, schedule, trace);
                let found =
                    found.unwrap_or_else(|f| panic!("{} {shape:?}: {f}", built.program.name));
                let error = relative_error(&found, &wanted);
                assert!(error < 3e-4, "{} {shape:?}: {error:e}", built.program.name);
                assert!(
                    *first.get_or_insert_with(|| found.clone()) == found,
                    "{schedule:?} gives other bits"
                );
            }
        }
    }
}

/// An instruction without an effect here.
const NOTHING: &str = "fence.acq_rel.cta;";

/// Returns the text without the instructions that begin with a text, either all of them or the last
/// one.
fn without(text: &str, begins: &str, last_alone: bool) -> String {
    let found: Vec<usize> = text.match_indices(begins).map(|(at, _)| at).collect();
    let mut out = text.to_string();
    for at in found
        .iter()
        .rev()
        .take(if last_alone { 1 } else { found.len() })
    {
        let end = at + text[*at..].find(';').expect("it ends") + 1;
        out.replace_range(*at..end, NOTHING);
    }

    out
}

/// Returns the text with one passage replaced.
fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from}");
    text.replace(from, to)
}

/// Returns the text for a cluster of two in which copies to both blocks go to block 0 only.
fn to_block_0(text: &str) -> String {
    let at = text.find("cvt.u16.u32").expect("the blocks' bits");
    let register = text[at..]
        .split([',', ';'])
        .nth(1)
        .expect("what is converted")
        .trim();
    with(
        text,
        &format!("mov.u32 {register}, 3;"),
        &format!("mov.u32 {register}, 1;"),
    )
}

#[test]
fn planted_faults_are_named() {
    use Class::{
        AsyncCopy, AsyncUnfinished, ClusterExit, Deadlock, Descriptor, ProxyFence, SharedRace,
        Wgmma,
    };
    let one = build(dense(64, false));
    let two = build(dense(64, true));
    let descriptor = |swizzle: u64| (swizzle << 62 | 64 << 32 | 1 << 16).to_string();
    let all = |begins| without(&one.text, begins, false);
    let last = |begins| without(&one.text, begins, true);
    let exit = without(&two.text, "barrier.cluster.arrive.release.aligned", true);
    let cases: [(&Built, String, &[Class]); 11] = [
        (&one, all("wgmma.fence.sync.aligned"), &[Wgmma]),
        (&one, all("wgmma.wait_group.sync.aligned 0"), &[Wgmma]),
        // A stage is released while matmuls read it.
        (
            &one,
            with(
                &one.text,
                "wait_group.sync.aligned 1;",
                "wait_group.sync.aligned 2;",
            ),
            &[SharedRace, AsyncCopy],
        ),
        (&one, last("fence.proxy.async.shared::cta"), &[ProxyFence]),
        (
            &one,
            all("bar.sync 1, 128"),
            &[SharedRace, ProxyFence, AsyncCopy],
        ),
        (&one, last("cp.async.bulk.wait_group 0"), &[AsyncUnfinished]),
        // The swizzle of the descriptor is 64 bytes, and that of the map is 128.
        (
            &one,
            with(
                &one.text,
                &descriptor(1),
                &format!("0x{:x}", 2u64 << 62 | 64 << 32 | 1 << 16),
            ),
            &[Descriptor],
        ),
        (&one, all("mbarrier.arrive.shared.b64"), &[Deadlock]),
        // Only block 0 gets the halves of both.
        (&two, to_block_0(&two.text), &[Deadlock]),
        (
            &two,
            without(&exit, "barrier.cluster.wait.acquire.aligned", true),
            &[ClusterExit],
        ),
        // Stages are released only in the block of the reader.
        (
            &two,
            without(&two.text, "mbarrier.arrive.shared::cluster", false),
            &[Deadlock],
        ),
    ];
    for (i, (built, text, classes)) in cases.iter().enumerate() {
        assert!(*text != built.text, "case {i} plants nothing");
        for schedule in SCHEDULES {
            let fault = match launch(built, text, [256, 64, 640], schedule, Trace::Off) {
                Err(fault) => fault,
                Ok(_) => panic!("case {i} is not found under {schedule:?}"),
            };
            assert!(classes.contains(&fault.class), "case {i}: {fault}");
        }
    }
}

#[test]
fn only_tiles_that_a_block_computes_can_be_made() {
    let made = (0..1000)
        .filter_map(ProductTile::new)
        .map(ProductTile::columns);
    assert_eq!(made.collect::<Vec<_>>(), [64, 128, 192, 256]);
}
