//! A kernel that fails on the device, while memory waits for the end of its thread.

use std::cell::RefCell;
use std::process::Command;

use ptx_gen::*;
use warpwright_driver::launch::{Host, Kernel, Launch};
use warpwright_driver::memory::Buffer;
use warpwright_driver::stream::{Queue, Stream};

use super::*;

/// Writes beside its buffer, `by` elements on.
pub struct Beside {
    pub by: u32,
}

impl KernelDef for Beside {
    type Args<S: Side> = AddArgs<S>;

    fn name(&self) -> String {
        "beside".into()
    }

    fn block(&self) -> u32 {
        N as u32
    }

    fn grid(&self, _: &AddArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(1))
    }

    fn program<'k>(&self, k: Builder<'k>, a: AddArgs<Dev<'k>>) {
        a.y.at(k.tid() + self.by).st(a.x.at(k.tid()).ld() + a.add);
    }

    fn reference(&self, _: AddArgs<Cpu<'_>>) {}
}

thread_local! {
    /// Dropped at the end of the thread, when other such variables are gone already.
    static KEPT: RefCell<Option<(Buffer<f32>, Stream, Launch)>> = const { RefCell::new(None) };
}

/// Leaves a buffer, a stream and a launch to the end of the thread, and lets a kernel fail.
fn fail_and_keep(context: &Context, fails: bool) {
    let stream = Stream::new(context).unwrap();

    // SAFETY: it writes where it must not, which faults on the emulator.
    let kernel: Kernel<Beside> = unsafe {
        Kernel::load(
            context,
            Beside {
                by: if fails { N as u32 } else { 0 },
            },
        )
    }
    .unwrap();
    let (x, y) = (
        Buffer::from_slice(context, &[1.0; N]).unwrap(),
        Buffer::zeroed(context, N).unwrap(),
    );
    let arguments: AddArgs<Host<'_>> = args(&x, &y, 1.0);
    let launch = kernel.with(arguments).unwrap();
    (&stream).push(launch.clone().into()).unwrap();
    KEPT.with_borrow_mut(|kept| *kept = Some((y, stream, launch)));
}

/// Set in a process that is to run the scenario itself.
const CHILD: &str = "WARPWRIGHT_SOUND_CHILD";

#[test]
fn a_buffer_in_a_thread_local_survives_a_fault() {
    let Ok(child) = std::env::var(CHILD) else {
        return start_children();
    };
    emulator(|context| match child.as_str() {
        "thread" => {
            std::thread::scope(|scope| {
                scope
                    .spawn(|| fail_and_keep(&context, true))
                    .join()
                    .unwrap()
            });
            assert!(context.synchronize().is_err());
        }
        "gone" => {
            let stream = Stream::new(&context).unwrap();
            let x = Buffer::from_slice(&context, &[1.0; N]).unwrap();
            let y = Buffer::zeroed(&context, N).unwrap();

            // SAFETY: it writes where it must not, which faults on the emulator.
            let kernel: Kernel<Beside> =
                unsafe { Kernel::load(&context, Beside { by: N as u32 }) }.unwrap();
            stream.launch(&kernel, args(&x, &y, 1.0)).unwrap();
            assert!(stream.synchronize().is_err());
            drop(stream);
            assert!(
                context.synchronize().is_err(),
                "the fault of a stream that is gone is not told"
            );
        }
        "last thread" => {
            let thread = std::thread::spawn(move || fail_and_keep(&context, true));
            thread.join().unwrap();
        }
        "no fault" => {
            let thread = std::thread::spawn(move || fail_and_keep(&context, false));
            thread.join().unwrap();
        }
        _ => fail_and_keep(&context, true),
    });
}

fn start_children() {
    if cfg!(miri) {
        return; // Miri starts no processes.
    }
    for child in ["thread", "gone", "last thread", "no fault", "main"] {
        let run = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "fault::a_buffer_in_a_thread_local_survives_a_fault",
                "--test-threads=1",
            ])
            .env(CHILD, child)
            .output()
            .unwrap();
        assert!(
            run.status.success(),
            "{child}: {}\n{}",
            run.status,
            String::from_utf8_lossy(&run.stderr)
        );
    }
}
