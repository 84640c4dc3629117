//! A device, kernels and buffers.

use std::sync::MutexGuard;

use warpwright_driver::prelude::*;

use crate::emulator::alone;
use crate::kernels::{Add, AddArgs};

pub(crate) const N: usize = 64;

/// A kernel `add`, buffers `a` of ones and `b` and `c` of noughts. Tests with it run one after
/// another, because a global capture of one would meet the allocations of the others.
pub(crate) struct Bench {
    pub(crate) context: Context,
    pub(crate) stream: Stream,
    pub(crate) add: Kernel<Add>,
    pub(crate) a: Buffer<f32>,
    pub(crate) b: Buffer<f32>,
    pub(crate) c: Buffer<f32>,
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let alone = alone();
        let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
        let context = Context::new(&driver.device(0).unwrap()).unwrap();
        Self {
            stream: Stream::new(&context).unwrap(),
            // SAFETY: the program stays within its contract.
            add: unsafe { Kernel::load(&context, Add) }.unwrap(),
            a: Buffer::from_slice(&context, &[1.0; N])
                .unwrap()
                .labelled("a"),
            b: Buffer::zeroed(&context, N).unwrap().labelled("b"),
            c: Buffer::zeroed(&context, N).unwrap().labelled("c"),
            context,
            _alone: alone,
        }
    }

    pub(crate) fn graph(&self) -> Graph {
        Graph::new(&self.context).unwrap()
    }

    /// `y = x + add`
    pub(crate) fn add<'a>(
        &self,
        x: &'a View<f32>,
        y: &'a View<f32>,
        add: f32,
    ) -> AddArgs<Host<'a>> {
        AddArgs {
            x,
            y,
            n: N as u32,
            add,
        }
    }

    pub(crate) fn launch(&self, x: &View<f32>, y: &View<f32>, add: f32) -> Launch {
        self.add.with(self.add(x, y, add)).unwrap()
    }

    /// Instantiates the graph, runs it once and waits.
    pub(crate) fn run(&self, graph: &Graph) {
        graph.instantiate().unwrap().launch(&self.stream).unwrap();
        self.stream.synchronize().unwrap();
    }

    /// The first element.
    pub(crate) fn first(&self, view: &View<f32>) -> f32 {
        self.stream.read(view).unwrap()[0]
    }
}

pub(crate) fn text<T>(result: Result<T, Error>) -> String {
    result.err().expect("refused").to_string()
}
