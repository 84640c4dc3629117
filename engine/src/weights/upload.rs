//! The upload of weights from a file to the device.
//!
//! Copies are fast only from pinned memory, and one thread fills pinned memory more slowly than the
//! bus empties it. We therefore use several threads, which share only the queue of chunks. Each
//! thread has a stream, two pinned buffers, and device memory for the rows of a chunk. It reads a
//! chunk of the file into a pinned buffer and queues the copy to the device. For tiles it also
//! queues the kernel that packs them. It continues with the next chunk while the device works.
//!
//! A request names the destination of a tensor as soon as the destination is allocated, and does
//! not wait for the upload.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{ScopedJoinHandle, available_parallelism, scope};
use std::time::Instant;

use warpwright_driver::Context;
use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::{Buffer, Staging, View};
use warpwright_driver::stream::Stream;
use warpwright_kernels::pipeline::PackArgs;
use warpwright_kernels::{Format, Pack, RowOrder};
use warpwright_model::{Model, Weight, WeightFormat};

use crate::Error;
use crate::kernel_terms::kernel_format;
use crate::signed;
use crate::weights::info::weight_bytes;
use crate::weights::padding::padded_len;
use crate::weights::stored::{StoredPart, UploadJob};

/// The sending end of the upload queue.
pub(crate) struct UploadQueue<'a> {
    chunks: Sender<Chunk<'a>>,
    chunk_bytes: usize,
}

/// A chunk of an upload job.
struct Chunk<'a> {
    part: StoredPart<'a>,
    /// The byte range in each weight.
    range: Range<usize>,
    to: View<u8>,
}

/// The bytes of a pinned buffer. A chunk has this many bytes of each weight, or one group of rows
/// if a group is larger.
const CHUNK_BYTES: usize = 2 << 20;
/// The number of pinned buffers per thread: one is filled while the other is copied.
const CHUNKS_PER_THREAD: usize = 2;
/// The maximum number of threads. More threads contend: on an H200 with 16 cores, 4.9 GB took 121
/// ms with 8 threads, 129 ms with 12 and 141 ms with 16.
const THREADS: usize = 8;

/// Calls `make` with an upload queue. Returns its result after all jobs are complete, and the time
/// at which they were.
///
/// `progress` is called with the number of bytes copied so far.
pub(crate) fn with_uploader<'a, T>(
    context: &Context,
    model: &'a Model,
    progress: impl FnMut(u64) + Send,
    make: impl FnOnce(UploadQueue<'a>) -> Result<T, Error>,
) -> Result<(T, Instant), Error> {
    in_chunks(CHUNK_BYTES, context, model, progress, make)
}

/// Runs `make` and the upload with chunks of this many bytes.
fn in_chunks<'a, T>(
    chunk_bytes: usize,
    context: &Context,
    model: &'a Model,
    progress: impl FnMut(u64) + Send,
    make: impl FnOnce(UploadQueue<'a>) -> Result<T, Error>,
) -> Result<(T, Instant), Error> {
    let (chunks, queue) = channel();
    let queue = Mutex::new(queue);
    let reported = Mutex::new((0, progress));
    let upload = Upload {
        context: context.clone(),
        model,
        chunk_bytes,
        queue,
        reported,
    };
    scope(|scope| {
        let done = scope.spawn(|| upload.run());

        // The sender is dropped with the queue at the end of `make`, which ends the upload threads.
        let made = make(UploadQueue {
            chunks,
            chunk_bytes,
        });
        let done = join(done);

        // An error of `make` is reported first, because it can be the cause of the other.
        let made = made?;
        let done = done?;

        // The file may have been overwritten while it was read.
        model.files.check()?;
        Ok((made, done))
    })
}

impl<'a> UploadQueue<'a> {
    /// Converts the queue into a closure that accepts jobs.
    pub(crate) fn sink(mut self) -> impl FnMut(UploadJob<'a>) -> Result<(), Error> {
        move |job| {
            self.push(job);
            Ok(())
        }
    }

    /// Splits a job into chunks and queues them.
    fn push(&mut self, job: UploadJob<'a>) {
        let UploadJob { part, to } = job;
        let count = part.weights().count();
        let len = part.weight.range.len();

        // Rows that become tiles together must be in one chunk.
        let group = part.tiles.map_or(1, |rows| group(rows, part.weight));
        let step = (self.chunk_bytes / group).max(1) * group;
        for start in (0..len).step_by(step) {
            let range = start..len.min(start + step);
            let padded = [range.start, range.end].map(|at| count * part.padded_bytes(at));
            let to = to.view_range(padded[0]..padded[1]);
            // The receiver is gone only after an error, which `with_uploader` returns.
            let _ = self.chunks.send(Chunk { part, range, to });
        }
    }
}

/// Returns the bytes of a group of rows that become tiles together.
fn group(rows: RowOrder, matrix: &Weight) -> usize {
    rows.stride as usize * matrix.format.row_bytes(matrix.row_len() as usize)
}

/// The state that the upload threads share.
struct Upload<'a, P> {
    context: Context,
    model: &'a Model,
    chunk_bytes: usize,
    queue: Mutex<Receiver<Chunk<'a>>>,
    /// The bytes copied so far, and the progress callback.
    reported: Mutex<(u64, P)>,
}

type Kernels = BTreeMap<Format, Kernel<Pack>>;

impl<'a, P: FnMut(u64) + Send> Upload<'a, P> {
    /// Processes chunks until the sender is dropped. Returns the time at which the last one was
    /// complete.
    fn run(&self) -> Result<Instant, Error> {
        let outline = &self.model.outline;
        scope(|scope| {
            // Pinned memory is slow to allocate, so the threads allocate it while this one compiles
            // the kernels.
            let workers = scope.spawn(|| {
                each(0..self.threads(), |_| {
                    UploadWorker::new(&self.context, self.chunk_bytes)
                })
            });
            let formats = outline
                .weights
                .iter()
                .map(|w| kernel_format(w.format))
                .filter(|format| format.tile().is_some());
            let formats: BTreeSet<Format> = formats.collect();
            let load = |format| Ok((format, signed::load(&self.context, Pack { format })?));
            let kernels = formats
                .into_iter()
                .map(load)
                .collect::<Result<_, Error>>()?;
            let ends = each(join(workers)?, |worker| self.work(worker, &kernels))?;
            Ok(ends.into_iter().max().expect("there is a thread"))
        })
    }

    /// Returns the number of threads: at most one per core and per chunk.
    fn threads(&self) -> usize {
        let cores = available_parallelism().map_or(1, usize::from);
        let chunks = weight_bytes(&self.model.outline).div_ceil(self.chunk_bytes as u64);
        THREADS.min(cores).min(chunks as usize).max(1)
    }

    /// Uploads chunks until the queue ends. Returns the time at which the last copy was complete.
    fn work(&self, mut worker: UploadWorker, kernels: &Kernels) -> Result<Instant, Error> {
        while let Some(chunk) = self.next() {
            worker.upload(self.model, kernels, &chunk)?;
            self.report(chunk.part.weights().count() * chunk.range.len());
        }
        worker.stream.synchronize()?;
        Ok(Instant::now())
    }

    /// Waits for the next chunk.
    fn next(&self) -> Option<Chunk<'a>> {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv()
            .ok()
    }

    fn report(&self, bytes: usize) {
        let (done, progress) = &mut *self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        *done += bytes as u64;
        progress(*done);
    }
}

/// Calls `f` for each item on its own thread. Returns the results in order, or the first error.
fn each<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    f: impl Fn(T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let f = &f;
    scope(|scope| {
        let threads: Vec<_> = items
            .into_iter()
            .map(|item| scope.spawn(move || f(item)))
            .collect();
        threads.into_iter().map(join).collect()
    })
}

/// Returns an error if a vector of norm weights or biases, or a router, has a value that is not
/// finite.
///
/// A NaN in a norm could vanish where activations are quantized by their maximum. A NaN in a router
/// could choose an expert, and the message about the logits would not name the router. In every other
/// weight it reaches the logits, which are checked.
fn check_vector(
    model: &Model,
    weight: &Weight,
    start: usize,
    bytes: &[u8],
) -> Result<(), warpwright_model::Error> {
    let is_vector = weight.dims.iter().skip(1).all(|&n| n == 1);
    if weight.format != WeightFormat::F32 || !(is_vector || is_router(model, weight)) {
        return Ok(());
    }

    let number = |b: &[u8]| f32::from_le_bytes(b.try_into().expect("chunks of 4"));
    let numbers: Vec<f32> = bytes.chunks_exact(4).map(number).collect();
    let Some(index) = numbers.iter().position(|x| !x.is_finite()) else {
        return Ok(());
    };

    let path = model.files.path().to_owned();
    let tensor = weight.name.clone();
    let value = numbers[index];
    Err(warpwright_model::Error::Weight {
        path,
        tensor,
        index: start / 4 + index,
        value,
    })
}

/// Returns true if a weight is the router of experts, or the biases of all experts of a layer.
fn is_router(model: &Model, weight: &Weight) -> bool {
    model.outline.weights.blocks.iter().any(|block| {
        let rows = [
            &block.router,
            &block.gate_experts_bias,
            &block.up_experts_bias,
            &block.down_experts_bias,
        ];
        rows.into_iter()
            .flatten()
            .any(|row| std::ptr::eq(row, weight))
    })
}

/// Returns the result of a thread, and propagates its panic.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The resources of one upload thread.
struct UploadWorker {
    stream: Stream,
    staging: Staging,
    /// The device memory of rows before they are packed into tiles.
    rows: Buffer<u8>,
}

impl UploadWorker {
    fn new(context: &Context, chunk_bytes: usize) -> Result<UploadWorker, Error> {
        Ok(UploadWorker {
            stream: Stream::new(context)?,
            staging: Staging::new(context, CHUNKS_PER_THREAD, chunk_bytes)?,
            rows: Buffer::uninit(context, 2 * chunk_bytes)?.labelled("rows"),
        })
    }

    /// Queues all work that uploads a chunk.
    fn upload(&mut self, model: &Model, kernels: &Kernels, chunk: &Chunk) -> Result<(), Error> {
        let to = if chunk.part.tiles.is_some() {
            self.rows(chunk.to.len())?
        } else {
            chunk.to.clone()
        };
        // Two weights of a part are uploaded one after the other and interleaved by the packing
        // kernel.
        let padded = chunk.part.padded_bytes(chunk.range.len());
        for (weight, at) in chunk.part.weights().zip((0..).step_by(padded)) {
            let to = to.view_range(at..at + padded);
            let mut read = Ok(());
            self.staging.write_with(&self.stream, &to, |range, bytes| {
                if let Some(rows) = chunk.part.padded_rows() {
                    let first = weight.range.start + chunk.range.start;
                    if read.is_ok() {
                        read = rows.read(range.start, bytes, |at, stored| {
                            model.files.read(first + at, stored)
                        });
                    }
                    return;
                }

                let start = chunk.range.start + range.start;
                if read.is_ok() {
                    read = model.files.read(weight.range.start + start, bytes);
                }
                if read.is_ok() {
                    read = check_vector(model, weight, start, bytes);
                }
            })?;
            read?;
        }
        match chunk.part.tiles {
            Some(rows) => self.pack(rows, &kernels[&chunk.part.format()], chunk, &to),
            None => Ok(()),
        }
    }

    /// Returns device memory for rows. It is reallocated if a group of rows is larger than a chunk.
    fn rows(&mut self, bytes: usize) -> Result<View<u8>, Error> {
        if self.rows.len() < bytes {
            self.rows = Buffer::uninit(self.stream.context(), bytes)?.labelled("rows");
        }
        Ok(self.rows.view_range(0..bytes))
    }

    /// Queues the kernel that packs rows into tiles.
    fn pack(
        &self,
        rows: RowOrder,
        kernel: &Kernel<Pack>,
        chunk: &Chunk,
        from: &View<u8>,
    ) -> Result<(), Error> {
        let weight = chunk.part.weight;
        let len = chunk.part.padded_bytes(chunk.range.len());
        let n = padded_len(chunk.part.format(), weight.row_len());
        let args = PackArgs::<Host> {
            lo: &from.view_range(0..len),
            hi: &from.view_range(from.len() - len..from.len()),
            y: &chunk.to,
            n,
            row_blocks: (chunk.to.len() / (16 * weight.format.row_bytes(n as usize))) as u32,
            per: rows.per,
            stride: rows.stride,
            step: rows.step,
            delta: rows.delta,
        };
        let stream = &self.stream;
        Ok(stream.launch(kernel, args)?)
    }
}

#[cfg(test)]
mod tests {
    use warpwright_driver::Driver;
    use warpwright_kernels::format::tile;

    use super::*;
    use crate::weights::packed::packed;

    #[test]
    fn threads_give_results_in_order() {
        let half = |n: u32| {
            if n.is_multiple_of(2) {
                Ok(n / 2)
            } else {
                Err(Error::NoPrompt)
            }
        };
        assert_eq!(each([8, 2, 4, 8], half).unwrap(), [4, 1, 2, 4]);
        assert!(matches!(each([8, 5, 4, 3], half), Err(Error::NoPrompt)));
    }

    #[test]
    fn a_file_is_packed_part_by_part() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../assets/rustdoc-7m-Q4_K_M.gguf"
        );
        let model = Model::open(path.as_ref()).unwrap();
        let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
        let context = Context::new(&driver.devices().unwrap()[0]).unwrap();

        // Longer than some groups of rows, and less than half as long as others.
        let (chunk_bytes, mut reported) = (2_000, 0);
        let report = |bytes| reported = bytes;
        let packed = in_chunks(chunk_bytes, &context, &model, report, |jobs| {
            packed(&model.outline).load(&context, jobs.sink())
        });
        let (packed, _) = packed.unwrap();
        assert_eq!(reported, weight_bytes(&model.outline));

        let (c, w) = (&model.outline.config, &model.outline.weights.blocks[3]);
        let tiles = |rows, lo: &Weight, hi: &Weight| {
            let [a, b] = [lo, hi].map(|weight| model.files.data(&weight.range).unwrap());
            tile::pack(kernel_format(lo.format), rows, &a, &b, lo.dims[0] as usize)
        };
        let pairs = RowOrder::interleaved(c.head_dim());
        let qkv = [
            tiles(pairs, &w.q, &w.q),
            tiles(pairs, &w.k, &w.k),
            tiles(RowOrder::PLAIN, &w.v, &w.v),
        ];
        let block = &packed.blocks[3];
        assert!(block.qkv.to_vec().unwrap() == qkv.concat());
        let [gate, up, down] = w.dense().unwrap();
        assert!(block.gate_up.to_vec().unwrap() == tiles(RowOrder::GATE_UP, gate, up));
        assert!(block.down.to_vec().unwrap() == tiles(RowOrder::PLAIN, down, down));
        let embed = &model.outline.weights.embed;
        assert!(packed.head.to_vec().unwrap() == tiles(RowOrder::PLAIN, embed, embed));
    }
}
