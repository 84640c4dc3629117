//! Weights on their way from a file to the device.
//!
//! The bus is fast only from pinned memory, and one thread fills pinned memory more slowly than the bus empties it. So
//! there are several, which share nothing but the queue that gives each its next part: a thread has a stream, two
//! pinned pieces, and room on the device for the rows of a part. It copies a part of the mapped file into a piece,
//! queues the copy to the device and, where rows become tiles, the kernel that packs them, and goes on while the
//! device works.
//!
//! Whoever asks for weights gives out a place for each as soon as it is allocated, and does not wait for them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{ScopedJoinHandle, available_parallelism, scope};
use std::time::Instant;

use warpwright_driver::{Buffer, Context, Kernel, Queue, Staging, Stream, View};
use warpwright_kernels::tiled::PackArgs;
use warpwright_kernels::{Format, Pack, Rows};

use crate::Error;
use crate::gguf::Tensor;
use crate::info::weight_bytes;
use crate::kernels::by_key;
use crate::model::Model;
use crate::weights::format;

/// What is to be written to a place on the device.
pub(crate) struct Job<'a> {
    /// A tensor, or two matrices of the same shape that become tiles together.
    pub(crate) tensors: Vec<&'a Tensor>,
    /// How rows become tiles; else the tensor is written as it is.
    pub(crate) tiles: Option<Rows>,
    /// As many bytes as the tensors have.
    pub(crate) to: View<u8>,
}

/// Who takes jobs and gets them done by and by.
pub(crate) struct Jobs<'a> {
    parts: Sender<Part<'a>>,
    piece: usize,
}

/// As much of a job as fits a piece.
struct Part<'a> {
    tensors: Vec<&'a Tensor>,
    tiles: Option<Rows>,
    /// The bytes of each tensor.
    range: Range<usize>,
    to: View<u8>,
}

/// Bytes of a piece; a part has as many of each tensor, but for a group of rows that has more.
const PIECE: usize = 2 << 20;
/// Pieces of a thread: one is filled while the other is copied.
const PIECES: usize = 2;
/// Threads, at most. More wait for each other: 4.9 GB took 8 threads 121 ms, 12 threads 129 and 16 threads 141, on an
/// H200 with 16 cores.
const THREADS: usize = 8;

/// Calls `make` with somebody who takes jobs. Returns what it gives once they are done, and when they were.
/// `progress` hears how many bytes are on their way.
pub(crate) fn beside<'a, T>(
    context: &Context,
    model: &'a Model,
    progress: impl FnMut(u64) + Send,
    make: impl FnOnce(Jobs<'a>) -> Result<T, Error>,
) -> Result<(T, Instant), Error> {
    in_pieces(PIECE, context, model, progress, make)
}

fn in_pieces<'a, T>(
    piece: usize,
    context: &Context,
    model: &'a Model,
    progress: impl FnMut(u64) + Send,
    make: impl FnOnce(Jobs<'a>) -> Result<T, Error>,
) -> Result<(T, Instant), Error> {
    let (parts, queue) = channel();
    let (queue, told) = (Mutex::new(queue), Mutex::new((0, progress)));
    let upload = Upload { context: context.clone(), model, piece, queue, told };
    scope(|scope| {
        let done = scope.spawn(|| upload.run());
        let made = make(Jobs { parts, piece });
        let done = join(done);
        Ok((made?, done?))
    })
}

impl<'a> Jobs<'a> {
    /// Takes jobs for as long as it lives.
    pub(crate) fn taker(mut self) -> impl FnMut(Job<'a>) -> Result<(), Error> {
        move |job| {
            self.push(job);
            Ok(())
        }
    }

    fn push(&mut self, job: Job<'a>) {
        let Job { tensors, tiles, to } = job;
        let (count, len) = (tensors.len(), tensors[0].range.len());
        let group = tiles.map_or(1, |rows| group(rows, tensors[0]));
        let step = (self.piece / group).max(1) * group;
        for start in (0..len).step_by(step) {
            let range = start..len.min(start + step);
            let to = to.view_range(count * range.start..count * range.end);
            // Nobody takes it after an error, which `beside` returns.
            let _ = self.parts.send(Part { tensors: tensors.clone(), tiles, range, to });
        }
    }
}

/// Bytes of the rows of a matrix that become tiles together.
fn group(rows: Rows, matrix: &Tensor) -> usize {
    rows.stride as usize * format(matrix).row_bytes(matrix.dims[0] as usize)
}

/// What the threads share.
struct Upload<'a, P> {
    context: Context,
    model: &'a Model,
    piece: usize,
    queue: Mutex<Receiver<Part<'a>>>,
    /// Bytes, and who hears of them.
    told: Mutex<(u64, P)>,
}

type Kernels = BTreeMap<Format, Kernel<Pack>>;

impl<'a, P: FnMut(u64) + Send> Upload<'a, P> {
    /// Does all jobs, until nobody has more. Gives the time at which the last one was done.
    fn run(&self) -> Result<Instant, Error> {
        let outline = &self.model.outline;
        scope(|scope| {
            let workers = scope.spawn(|| each(0..self.threads(), |_| Worker::new(&self.context, self.piece)));
            let formats = outline.weights.iter().map(format).filter(|format| format.tile().is_some());
            let kernels = by_key(&self.context, formats, |format| Pack { format })?;
            let ends = each(join(workers)?, |worker| self.work(worker, &kernels))?;
            Ok(ends.into_iter().max().expect("there is a thread"))
        })
    }

    /// No more than there is work for.
    fn threads(&self) -> usize {
        let cores = available_parallelism().map_or(1, usize::from);
        let pieces = weight_bytes(&self.model.outline).div_ceil(self.piece as u64);
        THREADS.min(cores).min(pieces as usize).max(1)
    }

    fn work(&self, mut worker: Worker, kernels: &Kernels) -> Result<Instant, Error> {
        while let Some(part) = self.next() {
            worker.bring(self.model, kernels, &part)?;
            self.tell(part.to.len());
        }
        worker.stream.synchronize()?;
        Ok(Instant::now())
    }

    fn next(&self) -> Option<Part<'a>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    fn tell(&self, bytes: usize) {
        let (done, progress) = &mut *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        *done += bytes as u64;
        progress(*done);
    }
}

/// What `f` gives for each item, in their order, each on a thread of its own; or the first error.
fn each<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    f: impl Fn(T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let f = &f;
    scope(|scope| {
        let threads: Vec<_> = items.into_iter().map(|item| scope.spawn(move || f(item))).collect();
        threads.into_iter().map(join).collect()
    })
}

/// What a thread gave; its panic is the caller's.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What a thread has to itself.
struct Worker {
    stream: Stream,
    staging: Staging,
    /// Rows that become tiles.
    rows: Buffer<u8>,
}

impl Worker {
    fn new(context: &Context, piece: usize) -> Result<Worker, Error> {
        Ok(Worker {
            stream: Stream::new(context)?,
            staging: Staging::new(context, PIECES, piece)?,
            rows: Buffer::uninit(context, 2 * piece)?.labelled("rows"),
        })
    }

    /// Queues everything that brings a part to its place.
    fn bring(&mut self, model: &Model, kernels: &Kernels, part: &Part) -> Result<(), Error> {
        let to = if part.tiles.is_some() { self.rows(part.to.len())? } else { part.to.clone() };
        for (tensor, at) in part.tensors.iter().zip((0..).step_by(part.range.len())) {
            let bytes = &model.gguf.data(tensor)[part.range.clone()];
            self.staging.write(&self.stream, &to.view_range(at..at + bytes.len()), bytes)?;
        }
        match part.tiles {
            Some(rows) => self.pack(rows, &kernels[&format(part.tensors[0])], part, &to),
            None => Ok(()),
        }
    }

    /// Room for rows: more where a group of them is longer than a piece.
    fn rows(&mut self, bytes: usize) -> Result<View<u8>, Error> {
        if self.rows.len() < bytes {
            self.rows = Buffer::uninit(self.stream.context(), bytes)?.labelled("rows");
        }
        Ok(self.rows.view_range(0..bytes))
    }

    fn pack(&self, rows: Rows, kernel: &Kernel<Pack>, part: &Part, from: &View<u8>) -> Result<(), Error> {
        let (n, len) = (part.tensors[0].dims[0] as u32, part.range.len());
        let args = PackArgs {
            lo: from.view_range(0..len),
            hi: from.view_range(from.len() - len..from.len()),
            y: part.to.clone(),
            n,
            row_blocks: (part.to.len() / (16 * format(part.tensors[0]).row_bytes(n as usize))) as u32,
            per: rows.per,
            stride: rows.stride,
            step: rows.step,
            delta: rows.delta,
        };
        let mut stream = &self.stream;
        Ok(stream.launch(kernel, args)?)
    }
}

#[cfg(test)]
mod tests {
    use warpwright_driver::Driver;
    use warpwright_kernels::tiled::tile;

    use super::*;
    use crate::packed;

    #[test]
    fn threads_give_results_in_order() {
        let half = |n: u32| if n.is_multiple_of(2) { Ok(n / 2) } else { Err(Error::NoPrompt) };
        assert_eq!(each([8, 2, 4, 8], half).unwrap(), [4, 1, 2, 4]);
        assert!(matches!(each([8, 5, 4, 3], half), Err(Error::NoPrompt)));
    }

    #[test]
    fn a_file_is_packed_part_by_part() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../assets/rustdoc-7m-Q4_K_M.gguf");
        let model = Model::open(path.as_ref()).unwrap();
        let driver = Driver::from_api(warpwright_cuda_emu::api(), "emulator").unwrap();
        let context = Context::new(&driver.devices().unwrap()[0]).unwrap();
        // Longer than some groups of rows, and less than half as long as others.
        let (piece, mut told) = (2_000, 0);
        let tell = |bytes| told = bytes;
        let packed = in_pieces(piece, &context, &model, tell, |jobs| {
            packed::load(&context, &model.outline, jobs.taker())
        });
        let (packed, _) = packed.unwrap();
        assert_eq!(told, weight_bytes(&model.outline));

        let (c, w) = (&model.outline.config, &model.outline.weights.blocks[3]);
        let tiles = |rows, lo: &Tensor, hi: &Tensor| {
            tile::pack(format(lo), rows, model.gguf.data(lo), model.gguf.data(hi), lo.dims[0] as usize)
        };
        let pairs = Rows::interleaved(c.head_dim);
        let qkv = [tiles(pairs, &w.q, &w.q), tiles(pairs, &w.k, &w.k), tiles(Rows::PLAIN, &w.v, &w.v)];
        let block = &packed.blocks[3];
        assert!(block.qkv.to_vec().unwrap() == qkv.concat());
        assert!(block.gate_up.bytes.to_vec().unwrap() == tiles(Rows::GATE_UP, &w.gate, &w.up));
        assert!(block.down.bytes.to_vec().unwrap() == tiles(Rows::PLAIN, &w.down, &w.down));
        let embed = &model.outline.weights.embed;
        assert!(packed.head.bytes.to_vec().unwrap() == tiles(Rows::PLAIN, embed, embed));
    }
}
