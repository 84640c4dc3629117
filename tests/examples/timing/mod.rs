//! Timing of kernels on a GPU: the best of five launches of a graph, each after a pause.

#![allow(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use ptx_gen::KernelDef;
use warpwright_driver::Context;
use warpwright_driver::graph::Recorder;
use warpwright_driver::launch::Kernel;
use warpwright_driver::ordering::Event;
use warpwright_driver::stream::Stream;

pub(crate) type Failure = Box<dyn std::error::Error>;

/// The number of launches of a graph.
const ROUNDS: usize = 5;
/// The rest before each.
const REST: Duration = Duration::from_millis(25);

/// Reports an error, and returns the exit code.
pub(crate) fn end(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

/// Loads a kernel of `warpwright_kernels`.
pub(crate) fn load<K: KernelDef>(context: &Context, kernel: K) -> Result<Kernel<K>, Failure> {
    // SAFETY: the contract checks lengths, and the program stays inside of them.
    Ok(unsafe { Kernel::load(context, kernel) }?)
}

/// Returns the microseconds of one launch, from a graph to which `record` adds `launches` launches.
pub(crate) fn microseconds(
    mut recorder: Recorder,
    launches: usize,
    mut record: impl FnMut(&mut Recorder, usize) -> Result<(), warpwright_driver::Error>,
) -> Result<f64, Failure> {
    (0..launches).try_for_each(|launch| record(&mut recorder, launch))?;
    let mut exec = recorder.finish().instantiate()?;
    let stream = Stream::new(exec.context())?;
    let (begin, end) = (Event::new(stream.context())?, Event::new(stream.context())?);
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        std::thread::sleep(REST);
        begin.record(&stream)?;
        exec.launch(&stream)?;
        end.record(&stream)?;
        end.synchronize()?;
        best = best.min(end.since(&begin)?);
    }

    Ok(best.as_secs_f64() * 1e6 / launches as f64)
}
