//! Checks that a kernel uses `ld.global.nc` only for memory that no kernel writes which may still
//! be running.

#![allow(unsafe_code)]

use ptx_gen::*;
use warpwright_driver::graph::{EdgeKind, Graph, Recorder};
use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::{Buffer, View};
use warpwright_driver::stream::{Queue, Stream};
use warpwright_driver::sys::{Api, Library};
use warpwright_driver::{Context, Driver, Error};

const N: usize = 32;

args! {
    /// Arguments of [`Step`].
    pub struct StepArgs {
        /// `[32]`
        x: In<f32>,
        /// `[32]`: as weights are
        w: In<f32>,
        /// `[32]`
        y: Out<f32>,
    }
}

/// `y = x + w`, in a kernel that may overlap with others.
struct Step {
    /// Whether it reads `x` past the cache.
    fresh: bool,
}

impl KernelDef for Step {
    type Args<S: Side> = StepArgs<S>;
    fn name(&self) -> String {
        if self.fresh {
            "fresh".into()
        } else {
            "cached".into()
        }
    }
    fn block(&self) -> u32 {
        N as u32
    }
    fn grid(&self, _: &StepArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(1))
    }
    fn program<'k>(&self, k: Builder<'k>, a: StepArgs<Dev<'k>>) {
        k.grid_trigger();
        let w = a.w.at(k.tid()).ld();
        k.grid_wait();
        let x = a.x.at(k.tid());
        let x = if self.fresh { x.fresh().ld() } else { x.ld() };
        a.y.at(k.tid()).st(x + w);
    }
    fn reference(&self, a: StepArgs<Cpu<'_>>) {
        a.y.iter_mut()
            .zip(a.x.iter().zip(a.w))
            .for_each(|(y, (x, w))| *y = x + w);
    }
}

struct Bench {
    context: Context,
    fresh: Kernel<Step>,
    cached: Kernel<Step>,
    /// `w` holds ones.
    w: Buffer<f32>,
    a: Buffer<f32>,
    /// Twice as long.
    /// Of `b`.
    halves: [View<f32>; 2],
}

/// A step: from `a` to the first half of `b`, from that to `a`, or from the second half to `a`.
#[derive(Clone, Copy)]
enum From {
    A,
    Low,
    High,
}

impl Bench {
    fn new(api: Api) -> Self {
        // SAFETY: the functions are the emulator's, of which some are left out.
        let driver = Driver::from_library(unsafe { Library::from_api(api, "emulator") }).unwrap();
        let context = Context::new(&driver.device(0).unwrap()).unwrap();
        let zeroed = |len| Buffer::zeroed(&context, len).unwrap();
        let b = zeroed(2 * N).labelled("b");

        // SAFETY: the program stays within its buffers.
        let load = |fresh| unsafe { Kernel::load(&context, Step { fresh }) }.unwrap();
        Bench {
            fresh: load(true),
            cached: load(false),
            w: Buffer::from_slice(&context, &[1.0; N])
                .unwrap()
                .labelled("w"),
            a: zeroed(N).labelled("a"),
            halves: [0, N].map(|i| b.view_range(i..i + N)),
            context,
        }
    }

    fn args(&self, from: From) -> StepArgs<Host<'_>> {
        let (a, w, [low, high]) = (&self.a, &self.w, &self.halves);
        match from {
            From::A => StepArgs { x: a, w, y: low },
            From::Low => StepArgs { x: low, w, y: a },
            From::High => StepArgs { x: high, w, y: a },
        }
    }

    /// A chain of steps, each by one of the two kernels, parted where it says so.
    fn chain(&self, steps: &[(&Kernel<Step>, From, bool)]) -> Result<Graph, Error> {
        let mut recorder = Recorder::pipeline(&self.context)?;
        for &(kernel, from, parted) in steps {
            if parted {
                recorder.full_edge();
            }
            recorder.launch(kernel, self.args(from))?;
        }
        Ok(recorder.finish())
    }

    /// The sum that some steps leave in `a`.
    fn sum(&self, graph: &Graph) -> f32 {
        let stream = Stream::new(&self.context).unwrap();
        graph.instantiate().unwrap().launch(&stream).unwrap();
        stream.read(&self.a).unwrap()[0]
    }
}

fn text<T>(result: Result<T, Error>) -> String {
    result.err().expect("refused").to_string()
}

/// The table of a driver for CUDA 12.2, which has no programmatic edges.
fn older() -> Api {
    Api {
        cuGraphAddNode_v2: None,
        cuGraphAddDependencies_v2: None,
        ..warpwright_cuda_emu::api()
    }
}

#[test]
fn a_chain_is_refused_that_reads_past_coherence_what_it_writes() {
    let bench = Bench::new(warpwright_cuda_emu::api());
    let (fresh, cached) = (&bench.fresh, &bench.cached);
    assert!(cached.function().noncoherent().iter().eq(&["w", "x"]));
    assert!(fresh.function().noncoherent().iter().eq(&["w"]));
    let next = "node 1 (cached) reads bytes 0 to 128 of b with ld.global.nc as x, but node 0 (fresh), which writes them as \
                y, may still be running, so the values may be stale; read them with `fresh()`, or \
                add a full edge between the two nodes";
    assert_eq!(
        text(bench.chain(&[(fresh, From::A, false), (cached, From::Low, false)])),
        next
    );

    // The kernel before the previous one may still be running too.
    let later = "node 2 (cached) reads bytes 0 to 128 of a with ld.global.nc as x, but node 0 (fresh), which writes them \
                 as y, may still be running, so the values may be stale; read them with `fresh()`, \
                 or add a full edge between the two nodes";
    let steps = [
        (fresh, From::High, false),
        (fresh, From::A, false),
        (cached, From::A, false),
    ];
    assert_eq!(text(bench.chain(&steps)), later);
}

#[test]
fn a_chain_is_taken_that_reads_fresh_or_what_is_not_written_or_apart() {
    let bench = Bench::new(warpwright_cuda_emu::api());
    let (fresh, cached) = (&bench.fresh, &bench.cached);
    for (steps, programmatic, sum) in [
        // Fresh data, and weights that no kernel writes.
        (
            vec![
                (fresh, From::A, false),
                (fresh, From::Low, false),
                (fresh, From::A, false),
            ],
            2,
            2.0,
        ),
        // The half of the buffer that is not written.
        (
            vec![(fresh, From::A, false), (cached, From::High, false)],
            1,
            1.0,
        ),
        // The data is written later, and the writer waits.
        (
            vec![(cached, From::A, false), (fresh, From::Low, false)],
            1,
            2.0,
        ),
        // The reader waits for the writer, but it still overlaps with the next kernel.
        (
            vec![
                (fresh, From::A, false),
                (cached, From::Low, true),
                (fresh, From::A, false),
            ],
            1,
            2.0,
        ),
    ] {
        let graph = bench.chain(&steps).unwrap();
        bench.a.write(&[0.0; N]).unwrap();
        assert_eq!(
            (graph.programmatic_edges(), bench.sum(&graph)),
            (programmatic, sum)
        );
    }
}

#[test]
fn full_edges_let_it_pass() {
    let steps = |bench: &Bench| {
        bench.chain(&[
            (&bench.fresh, From::A, false),
            (&bench.cached, From::Low, false),
        ])
    };
    let bench = Bench::new(older());
    let graph = steps(&bench).unwrap();
    assert_eq!((graph.programmatic_edges(), bench.sum(&graph)), (0, 2.0));

    // The fewest edges, which are full on any driver.
    let bench = Bench::new(warpwright_cuda_emu::api());
    let mut recorder = Recorder::new(&bench.context).unwrap();
    recorder.launch(&bench.fresh, bench.args(From::A)).unwrap();
    recorder
        .launch(&bench.cached, bench.args(From::Low))
        .unwrap();
    assert_eq!(bench.sum(&recorder.finish()), 2.0);
}

#[test]
fn graphs_by_hand_are_held_to_it_too() {
    use EdgeKind::{Full, Programmatic};
    let bench = Bench::new(warpwright_cuda_emu::api());
    let launch = |kernel: &Kernel<Step>, from| kernel.with(bench.args(from)).unwrap();
    let refused = |from: usize, to: usize| {
        format!(
            "node {to} (cached) reads bytes 0 to 128 of b with ld.global.nc as x, but node {from} (fresh), which writes \
             them as y, may still be running, so the values may be stale; read them with \
             `fresh()`, or add a full edge between the two nodes"
        )
    };
    let mut graph = Graph::new(&bench.context).unwrap();
    let first = graph.add(&[], launch(&bench.fresh, From::A)).unwrap();
    let read = || launch(&bench.cached, From::Low);
    assert_eq!(
        text(graph.add_by(Programmatic, &[first], read())),
        refused(0, 1)
    );

    // An edge further up makes two overlap that did not.
    let second = graph.add(&[], launch(&bench.cached, From::High)).unwrap();
    let third = graph.add_by(Programmatic, &[second], read()).unwrap();
    assert_eq!(
        text(graph.add_edge_of(Programmatic, first, second)),
        refused(0, 2)
    );

    // A programmatic path in addition to a full one is safe.
    graph.add_edge_of(Full, first, third).unwrap();
    graph.add_edge_of(Programmatic, first, second).unwrap();

    let mut graph = Graph::new(&bench.context).unwrap();
    let first = graph.add(&[], launch(&bench.fresh, From::A)).unwrap();
    let second = graph
        .add_by(Programmatic, &[first], launch(&bench.fresh, From::Low))
        .unwrap();
    let mut exec = graph.instantiate().unwrap();
    assert_eq!(text(exec.set_launch(second, read())), refused(0, 1));
    exec.set_launch(second, launch(&bench.cached, From::High))
        .unwrap();
}
