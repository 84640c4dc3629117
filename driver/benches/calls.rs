//! Measures the overhead of this crate over the raw calls, on a driver whose functions do nothing.
//!
//! `cargo bench -p warpwright-driver --bench calls`

#![allow(unsafe_code, missing_docs)]

mod eight;
mod stub;

use std::ffi::c_void;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use warpwright_driver::prelude::*;
use warpwright_driver::sys::{CUresult, Library};

use eight::{Eight, EightArgs};

/// The number of graph nodes, as in a decoding step of a model with 1.5 billion parameters.
const NODES: usize = 280;

struct Bench {
    context: Context,
    stream: Stream,
    kernel: Kernel<Eight>,
    buffers: Vec<Buffer<f32>>,
}

impl Bench {
    fn new() -> Self {
        // SAFETY: the functions do nothing.
        let driver =
            Driver::from_library(unsafe { Library::from_api(stub::api(), "stub") }).unwrap();
        let context = Context::new(&driver.device(0).unwrap()).unwrap();
        let buffer = |_| Buffer::uninit(&context, 128).unwrap();
        Self {
            stream: Stream::new(&context).unwrap(),
            // SAFETY: the program stays below `n`, and nothing runs here.
            kernel: unsafe { Kernel::load(&context, Eight) }.unwrap(),
            buffers: (0..8).map(buffer).collect(),
            context,
        }
    }

    /// Reads two buffers and writes the next one.
    fn args(&self, i: usize) -> EightArgs<Host<'_>> {
        let at = |k: usize| &*self.buffers[(i + k) % self.buffers.len()];
        EightArgs {
            x: at(0),
            w: at(1),
            y: at(2),
            n: 128,
            a: 1,
            b: 2,
            c: 3.0,
            d: i as f32,
        }
    }

    fn chain(&self) -> (Graph, Vec<NodeId>) {
        let mut graph = Graph::new(&self.context).unwrap();
        let mut nodes: Vec<NodeId> = Vec::with_capacity(NODES);
        for i in 0..NODES {
            let after = nodes.last().copied();
            nodes.push(
                graph
                    .launch(after.as_slice(), &self.kernel, self.args(i))
                    .unwrap(),
            );
        }

        (graph, nodes)
    }
}

/// The launch that a program without any crate makes.
fn raw_launch(bench: &Bench) {
    let api = bench.context.driver().api();
    let mut values: [u64; 8] = [1, 2, 3, 128, 1, 2, 0, 0];
    let mut params: [*mut c_void; 8] =
        std::array::from_fn(|i| std::ptr::from_mut(&mut values[i]).cast());
    let function = bench.kernel.function().raw();
    let stream = bench.stream.raw();
    let params = black_box(params.as_mut_ptr());
    let extra = std::ptr::null_mut();

    // SAFETY: the function does nothing.
    let code =
        unsafe { (api.cuLaunchKernel)(function, 1, 1, 1, 128, 1, 1, 0, stream, params, extra) };
    assert_eq!(code, CUresult::SUCCESS);
}

fn launches(c: &mut Criterion) {
    let bench = Bench::new();
    let _current = bench.context.enter().unwrap();
    let mut group = c.benchmark_group("launch");
    group.bench_function("raw", |b| b.iter(|| raw_launch(&bench)));
    let launch = bench.kernel.with(bench.args(0)).unwrap();
    group.bench_function("prepared", |b| b.iter(|| bench.stream.run_launch(&launch)));
    group.bench_function("typed", |b| {
        b.iter(|| bench.stream.launch(&bench.kernel, bench.args(0)))
    });
    let second = Stream::new(&bench.context).unwrap();
    group.bench_function("prepared, two streams", |b| {
        b.iter(|| bench.stream.run_launch(&launch))
    });
    group.bench_function("typed, two streams", |b| {
        b.iter(|| bench.stream.launch(&bench.kernel, bench.args(0)))
    });
    drop(second);
    group.finish();
}

fn graphs(c: &mut Criterion) {
    let bench = Bench::new();
    let mut group = c.benchmark_group("graph");
    let (graph, nodes) = bench.chain();
    let mut exec = graph.instantiate().unwrap();
    group.bench_function("launch", |b| b.iter(|| exec.launch(&bench.stream)));
    group.bench_function("set a number", |b| {
        b.iter(|| exec.set_args(nodes[7], &bench.kernel, bench.args(7)))
    });
    let mut turn = 0;
    group.bench_function("set other buffers", |b| {
        b.iter(|| {
            turn += 1;
            exec.set_args(nodes[7], &bench.kernel, bench.args(turn % 8))
        })
    });
    group.bench_function("280 nodes by hand", |b| b.iter(|| bench.chain().0));
    group.bench_function("280 nodes and edges by hand", |b| {
        b.iter(|| {
            let mut graph = Graph::new(&bench.context).unwrap();
            let node =
                |graph: &mut Graph, i| graph.launch(&[], &bench.kernel, bench.args(i)).unwrap();
            let nodes: Vec<NodeId> = (0..NODES).map(|i| node(&mut graph, i)).collect();
            nodes
                .windows(2)
                .for_each(|w| graph.add_edge(w[0], w[1]).unwrap());
            graph
        })
    });
    group.bench_function("280 nodes recorded", |b| {
        b.iter(|| {
            let mut recorder = Recorder::new(&bench.context).unwrap();
            (0..NODES).for_each(|i| recorder.launch(&bench.kernel, bench.args(i)).unwrap());
            recorder.finish()
        })
    });
    let second = Stream::new(&bench.context).unwrap();
    group.bench_function("launch, two streams", |b| {
        b.iter(|| exec.launch(&bench.stream))
    });
    drop(second);
    group.finish();
}

criterion_group!(benches, launches, graphs);
criterion_main!(benches);
