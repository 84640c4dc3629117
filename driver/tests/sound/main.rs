//! Safe code cannot make the device use what is gone, lose work without a word, or leave something
//! behind.
//!
//! Most tests run on the emulator, whose streams are threads. Those that must decide when the
//! device works, or look at what is released and when, run on a driver made for it (`sim`). With
//! smaller loops all of them run under Miri:
//! `cargo +nightly miri test -p warpwright-driver --test sound`.

#![allow(unsafe_code, unreachable_pub)]

#[path = "../fake/kernels.rs"]
mod kernels;

mod bodies;
mod capture;
mod drops;
mod events;
mod fault;
mod foreign;
mod host_functions;
mod last;
mod memory;
mod order;
mod panics;
mod races;
mod random_order;
// The tests of the locks use the rest of it.
#[allow(dead_code)]
mod sim;
mod sizes;
mod threads;
mod walk;

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use kernels::{Add, AddArgs};
use warpwright_cuda_emu::EmulatorConfig;
use warpwright_driver::prelude::*;

/// Elements of the tests' buffers.
const N: usize = 32;

/// So many rounds; under Miri, which is slow, a few.
const fn rounds(n: usize) -> usize {
    if cfg!(miri) { n.div_ceil(500) + 1 } else { n }
}

/// Runs a test on an emulator of its own. There is one emulator in the process, so one such test
/// runs at a time.
fn emulator(test: impl FnOnce(Context)) {
    on(EmulatorConfig::default(), test);
}

fn on(config: EmulatorConfig, test: impl FnOnce(Context)) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    warpwright_cuda_emu::configure(config);
    test(context());
}

/// The context of the emulator's only device.
fn context() -> Context {
    let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
    Context::new(&driver.device(0).unwrap()).unwrap()
}

fn add(context: &Context) -> Kernel<Add> {
    // SAFETY: the kernel stays within `n` elements, and its contract refuses shorter buffers.
    unsafe { Kernel::load(context, Add) }.unwrap()
}

fn args<'a>(x: &'a View<f32>, y: &'a View<f32>, add: f32) -> AddArgs<Host<'a>> {
    AddArgs {
        x,
        y,
        n: N as u32,
        add,
    }
}

fn text<T>(result: Result<T, Error>) -> String {
    result.err().expect("refused").to_string()
}

/// Keeps a stream busy until it is let go.
struct Hold(Arc<(Mutex<bool>, Condvar)>);

impl Hold {
    /// What is given to the stream from now on waits.
    fn new(stream: &Stream) -> Self {
        let hold = Self(Arc::default());
        let open = hold.0.clone();
        let mut graph = Graph::new(stream.context()).unwrap();
        graph
            .host(&[], move || {
                let guard = open.0.lock().unwrap();
                drop(open.1.wait_while(guard, |open| !*open).unwrap());
            })
            .unwrap();
        graph.instantiate().unwrap().launch(stream).unwrap();
        hold
    }

    /// Lets the stream go.
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.open();
    }
}
