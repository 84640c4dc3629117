//! Provokes the error codes 900 to 908 of the driver, by raw calls on streams and an event that the
//! program created and the crate adopted.
//!
//! After each code, the program ends the captures and checks that every stream accepts work,
//! captures and replays again. It prints a table, and exits with 1 if a code differs from `cuda.h`
//! or an object did not recover.

use std::process::ExitCode;

use linked::{Kernels, blocks};
use warpwright_driver::prelude::*;
use warpwright_driver::sys::{
    Api, CUevent, CUevent_flags, CUgraph, CUresult, CUstream, CUstream_flags, CUstreamCaptureMode,
    CUstreamCaptureStatus,
};

/// Elements.
const N: u32 = 1000;

/// An error code, the way to provoke it, and the reason why a program without raw calls cannot get
/// it.
struct Row {
    code: CUresult,
    provoked_by: &'static str,
    provoke: fn(&Outside) -> CUresult,
    prevented_by: &'static str,
}

const ROWS: [Row; 9] = [
    Row {
        code: CUresult::STREAM_CAPTURE_UNSUPPORTED,
        provoked_by: "waiting for a stream that captures",
        provoke: unsupported,
        prevented_by: "Stream: Error::Capturing; Buffer, Module, GraphExec: Error::Forbidden",
    },
    Row {
        code: CUresult::STREAM_CAPTURE_INVALIDATED,
        provoked_by: "work for a capture that such a wait has ended",
        provoke: invalidated,
        prevented_by: "follows from the others; capture: Error::Capture tells the first",
    },
    Row {
        code: CUresult::STREAM_CAPTURE_MERGE,
        provoked_by: "a capture that waits for the event of another",
        provoke: merge,
        prevented_by: "Stream::wait, Capture::fork: Error::Capturing",
    },
    Row {
        code: CUresult::STREAM_CAPTURE_UNMATCHED,
        provoked_by: "ending a capture on the stream that joined it",
        provoke: unmatched,
        prevented_by: "capture: ends on the stream that it began on",
    },
    Row {
        code: CUresult::STREAM_CAPTURE_UNJOINED,
        provoked_by: "ending a capture whose fork is open",
        provoke: unjoined,
        prevented_by: "Capture::fork: joins, also after an error",
    },
    Row {
        code: CUresult::STREAM_CAPTURE_ISOLATION,
        provoked_by: "a capture that waits for an event from before it",
        provoke: isolation,
        prevented_by: "Stream::wait: Error::Capturing",
    },
    Row {
        code: CUresult::STREAM_CAPTURE_IMPLICIT,
        provoked_by: "work of the legacy stream while a blocking stream captures",
        provoke: implicit,
        prevented_by: "Stream: never blocking, and nothing uses the legacy stream",
    },
    Row {
        code: CUresult::CAPTURED_EVENT,
        provoked_by: "asking for an event that a capture recorded",
        provoke: captured_event,
        prevented_by: "Event: Error::CapturedEvent",
    },
    Row {
        code: CUresult::STREAM_CAPTURE_WRONG_THREAD,
        provoked_by: "ending a capture on another thread",
        provoke: wrong_thread,
        prevented_by: "capture: ends on the thread that it began on",
    },
];

fn main() -> Result<ExitCode, Error> {
    let driver = Driver::load()?;
    let device = driver.device(0)?;
    println!("{} on {device}\n", driver.origin());
    let context = Context::new(&device)?;
    let _current = context.enter()?;
    let outside = Outside::new(&context)?;
    println!("| code | name | provoked by | recovered | prevented by |\n|---|---|---|---|---|");
    let wrong = ROWS.iter().filter(|row| !outside.shows(row)).count();
    println!(
        "\n{} of {} codes were provoked and recovered from",
        ROWS.len() - wrong,
        ROWS.len()
    );
    Ok(if wrong == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Objects created by raw calls and adopted, and objects that the crate created.
struct Outside {
    context: Context,
    kernels: Kernels,
    x: Buffer<f32>,
    y: Buffer<f32>,
    first: Stream,
    second: Stream,
    /// Waits for the legacy stream, and the legacy stream for it.
    blocking: Stream,
    event: Event,
}

impl Outside {
    fn new(context: &Context) -> Result<Self, Error> {
        let stream = |flags| {
            let mut raw = CUstream::NULL;
            // SAFETY: `raw` is ours to write, and the context is current.
            must(unsafe { (context.driver().api().cuStreamCreate)(&mut raw, flags) });
            // SAFETY: the stream is never destroyed: it goes with the process.
            unsafe { Stream::from_raw(context, raw) }
        };
        let mut event = CUevent::NULL;

        // SAFETY: `event` is ours to write, and the context is current.
        must(unsafe {
            (context.driver().api().cuEventCreate)(&mut event, CUevent_flags::DISABLE_TIMING)
        });
        Ok(Self {
            context: context.clone(),
            kernels: Kernels::load(context)?,
            x: Buffer::from_slice(context, &[1.0; N as usize])?,
            y: Buffer::zeroed(context, N as usize)?,
            first: stream(CUstream_flags::NON_BLOCKING)?.labelled("first"),
            second: stream(CUstream_flags::NON_BLOCKING)?.labelled("second"),
            blocking: stream(CUstream_flags::empty())?.labelled("blocking"),
            // SAFETY: nor is the event destroyed.
            event: unsafe { Event::from_raw(context, event) },
        })
    }

    /// Provokes a code, prints its line, and says whether all of it went as it should.
    fn shows(&self, row: &Row) -> bool {
        let got = (row.provoke)(self);
        let recovered = self.recover();
        let name = row.code.name().unwrap_or_default();
        let code = if got == row.code {
            name.to_string()
        } else {
            format!("NOT {name}, but {got}")
        };
        let told = recovered
            .as_ref()
            .map_or_else(|problem| format!("NO: {problem}"), |()| "yes".into());
        println!(
            "| {} | {code} | {} | {told} | {} |",
            row.code.0, row.provoked_by, row.prevented_by
        );
        got == row.code && recovered.is_ok()
    }

    /// No stream captures any more, and each computes, captures and replays; so do the event and
    /// memory work.
    fn recover(&self) -> Result<(), String> {
        let streams = [&self.first, &self.second, &self.blocking];
        if let Some(stream) = streams.iter().find(|stream| self.captures(stream.raw())) {
            return Err(format!("{} still captures", stream.name()));
        }

        for stream in streams {
            let y = self
                .compute(stream)
                .map_err(|error| format!("{}: {error}", stream.name()))?;
            if y != [5.0; N as usize] {
                return Err(format!("{} computed something else", stream.name()));
            }
        }

        Ok(())
    }

    /// `y = y + 2x` at once, then `y = y + 3x` captured and replayed.
    fn compute(&self, stream: &Stream) -> Result<Vec<f32>, Error> {
        let saxpy = |factor| {
            self.kernels
                .saxpy
                .with(blocks(N), &self.x, &self.y, N, factor)
        };
        self.y.write(&[0.0; N as usize])?;
        stream.run_launch(&saxpy(2.0)?)?;
        let later = Work::from(saxpy(3.0)?);
        let graph = capture(stream, CaptureMode::Global, |queue| queue.push(later))?;
        graph.instantiate()?.launch(stream)?;
        self.event.record(stream)?;
        self.event.synchronize()?;
        drop(Buffer::<f32>::zeroed(&self.context, N as usize)?);
        self.context.synchronize()?;
        self.y.to_vec()
    }

    fn api(&self) -> &'static Api {
        self.context.driver().api()
    }

    fn captures(&self, stream: CUstream) -> bool {
        let mut status = CUstreamCaptureStatus::NONE;
        let ask = self.api().cuStreamIsCapturing.expect("cuStreamIsCapturing");
        // SAFETY: `status` is ours to write; the stream is alive.
        must(unsafe { ask(stream, &mut status) });
        status != CUstreamCaptureStatus::NONE
    }

    fn begin(&self, stream: &Stream) {
        let begin = self
            .api()
            .cuStreamBeginCapture_v2
            .expect("cuStreamBeginCapture_v2");
        // SAFETY: the stream is alive.
        must(unsafe { begin(stream.raw(), CUstreamCaptureMode::THREAD_LOCAL) });
    }

    /// Ends a capture, and destroys the graph if there is one.
    fn end(&self, stream: &Stream) -> CUresult {
        let (mut graph, api) = (CUgraph::NULL, self.api());

        // SAFETY: `graph` is ours to write; the stream is alive.
        let code = unsafe {
            api.cuStreamEndCapture.expect("cuStreamEndCapture")(stream.raw(), &mut graph)
        };
        if code == CUresult::SUCCESS {
            // SAFETY: the capture gave the graph to us.
            must(unsafe { api.cuGraphDestroy.expect("cuGraphDestroy")(graph) });
        }

        code
    }

    /// Ends a capture and ignores errors of the driver.
    fn leave(&self, stream: &Stream) {
        let _ = self.end(stream);
    }

    fn record(&self, stream: &Stream) -> CUresult {
        // SAFETY: event and stream are alive.
        unsafe { (self.api().cuEventRecord)(self.event.raw(), stream.raw()) }
    }

    fn wait(&self, stream: &Stream) -> CUresult {
        // SAFETY: event and stream are alive.
        unsafe { (self.api().cuStreamWaitEvent)(stream.raw(), self.event.raw(), 0) }
    }

    fn fill(&self, stream: CUstream) -> CUresult {
        // SAFETY: the buffer is alive and has that many bytes, and no other work uses it now.
        unsafe { (self.api().cuMemsetD8Async)(self.y.address(), 0, 4 * N as usize, stream) }
    }

    /// The first stream captures and draws the second one in.
    fn fork(&self) {
        self.begin(&self.first);
        must(self.fill(self.first.raw()));
        must(self.record(&self.first));
        must(self.wait(&self.second));
        must(self.fill(self.second.raw()));
    }
}

fn unsupported(outside: &Outside) -> CUresult {
    outside.begin(&outside.first);
    // SAFETY: the stream is alive.
    let code = unsafe { (outside.api().cuStreamSynchronize)(outside.first.raw()) };
    outside.leave(&outside.first);
    code
}

fn invalidated(outside: &Outside) -> CUresult {
    outside.begin(&outside.first);

    // SAFETY: the stream is alive.
    let _refused = unsafe { (outside.api().cuStreamSynchronize)(outside.first.raw()) };
    let code = outside.fill(outside.first.raw());
    let end = outside.end(&outside.first);
    if end == CUresult::STREAM_CAPTURE_INVALIDATED {
        code
    } else {
        end
    }
}

fn merge(outside: &Outside) -> CUresult {
    outside.begin(&outside.first);
    outside.begin(&outside.second);
    must(outside.fill(outside.first.raw()));
    must(outside.record(&outside.first));
    let code = outside.wait(&outside.second);
    outside.leave(&outside.first);
    outside.leave(&outside.second);
    code
}

fn unmatched(outside: &Outside) -> CUresult {
    outside.fork();
    let code = outside.end(&outside.second);
    outside.leave(&outside.first);
    code
}

fn unjoined(outside: &Outside) -> CUresult {
    outside.fork();
    outside.end(&outside.first)
}

fn isolation(outside: &Outside) -> CUresult {
    must(outside.record(&outside.second));
    outside.begin(&outside.first);
    let code = outside.wait(&outside.first);
    outside.leave(&outside.first);
    code
}

fn implicit(outside: &Outside) -> CUresult {
    outside.begin(&outside.blocking);
    let code = outside.fill(CUstream::NULL);
    outside.leave(&outside.blocking);
    code
}

fn captured_event(outside: &Outside) -> CUresult {
    outside.begin(&outside.first);
    must(outside.record(&outside.first));
    // SAFETY: the event is alive; a query changes nothing.
    let code = unsafe { (outside.api().cuEventQuery)(outside.event.raw()) };
    outside.leave(&outside.first);
    code
}

fn wrong_thread(outside: &Outside) -> CUresult {
    outside.begin(&outside.first);
    let elsewhere = || {
        outside
            .context
            .run(|| outside.end(&outside.first))
            .expect("the context is current")
    };
    let code = std::thread::scope(|scope| scope.spawn(elsewhere).join().expect("the thread ends"));
    outside.leave(&outside.first);
    code
}

/// Ends the program where a call fails that has no reason to.
fn must(code: CUresult) {
    assert_eq!(code, CUresult::SUCCESS);
}
