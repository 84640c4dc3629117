//! A model's weights on a device as the chain reads them: matrices as tiles, those read together in one buffer.
//!
//! Packing moves bits and adds none. A file's rows go through a little memory beside the weights, from where the
//! device packs them to their place.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use warpwright_driver::{Buffer, Context, Kernel, Queue, Staging, Stream, View};
use warpwright_kernels::tiled::PackArgs;
use warpwright_kernels::{Format, Pack, Pairing, Rows};

use crate::Error;
use crate::config::Config;
use crate::gguf::Tensor;
use crate::kernels::pairing;
use crate::model::{self, Model, Outline};
use crate::weights::{Loaded, format};

/// All weights.
pub(crate) struct Packed {
    /// Tiles if it is the LM head as well, else the file's rows.
    pub(crate) embed: Loaded,
    pub(crate) blocks: Vec<Block>,
    pub(crate) norm: View<f32>,
    /// Tiles.
    pub(crate) head: Loaded,
}

/// Those of a transformer block. All matrices are tiles.
#[derive(Clone)]
pub(crate) struct Block {
    pub(crate) attn_norm: View<f32>,
    pub(crate) qkv: View<u8>,
    /// Of q, k and v.
    pub(crate) formats: [Format; 3],
    /// Of q, k and v, in one.
    pub(crate) bias: Option<View<f32>>,
    /// Of the norms of q's and k's heads, in one.
    pub(crate) qk_norm: Option<View<f32>>,
    pub(crate) o: Loaded,
    pub(crate) ffn_norm: View<f32>,
    pub(crate) gate_up: Loaded,
    pub(crate) down: Loaded,
}

/// Where weights come from.
pub(crate) trait Source {
    /// Writes a tensor as it is.
    fn copy(&mut self, tensor: &Tensor, to: &View<u8>) -> Result<(), Error>;

    /// Writes a matrix, or two of the same shape, as tiles.
    fn pack(&mut self, rows: Rows, lo: &Tensor, hi: &Tensor, to: &View<u8>) -> Result<(), Error>;
}

/// Loads the weights of a model for which the chain is made.
pub(crate) fn load(context: &Context, outline: &Outline, source: &mut impl Source) -> Result<Packed, Error> {
    let w = &outline.weights;
    let mut load = Load { context, config: &outline.config, source };
    let (embed, head) = match &w.head {
        Some(head) => (load.raw(&[&w.embed])?, load.tiles(Rows::PLAIN, &[head])?),
        None => {
            let both = load.tiles(Rows::PLAIN, &[&w.embed])?;
            (both.clone(), both)
        }
    };
    let blocks = w.blocks.iter().map(|b| load.block(b)).collect::<Result<_, _>>()?;
    let norm = load.floats(&[&w.norm])?;
    let loaded = |bytes, tensor| Loaded { bytes, format: format(tensor) };
    let (embed, head) = (loaded(embed, &w.embed), loaded(head, w.head()));
    Ok(Packed { embed, blocks, norm, head })
}

struct Load<'a, S> {
    context: &'a Context,
    config: &'a Config,
    source: &'a mut S,
}

impl<S: Source> Load<'_, S> {
    fn block(&mut self, b: &model::Block<Tensor>) -> Result<Block, Error> {
        Ok(Block {
            attn_norm: self.floats(&[&b.attn_norm])?,
            qkv: self.qkv(b)?,
            formats: [&b.q, &b.k, &b.v].map(format),
            bias: b.bias.as_ref().map(|bias| self.floats(&bias.each_ref())).transpose()?,
            qk_norm: b.qk_norm.as_ref().map(|norms| self.floats(&norms.each_ref())).transpose()?,
            o: self.matrix(&b.o)?,
            ffn_norm: self.floats(&[&b.ffn_norm])?,
            gate_up: Loaded { bytes: self.tiles(Rows::GATE_UP, &[&b.gate, &b.up])?, format: format(&b.gate) },
            down: self.matrix(&b.down)?,
        })
    }

    fn qkv(&mut self, b: &model::Block<Tensor>) -> Result<View<u8>, Error> {
        let c = self.config;
        let pairs = match pairing(c.architecture) {
            Pairing::Interleaved => Rows::interleaved(c.head_dim),
            Pairing::HalfSplit => Rows::half_split(c.head_dim),
        };
        let (buffer, parts) = self.buffer(&[&b.q, &b.k, &b.v])?;
        for ((tensor, rows), part) in
            [(&b.q, pairs), (&b.k, pairs), (&b.v, Rows::PLAIN)].into_iter().zip(parts)
        {
            self.source.pack(rows, tensor, tensor, &buffer.view_range(part))?;
        }
        Ok(buffer)
    }

    fn matrix(&mut self, tensor: &Tensor) -> Result<Loaded, Error> {
        Ok(Loaded { bytes: self.tiles(Rows::PLAIN, &[tensor])?, format: format(tensor) })
    }

    fn tiles(&mut self, rows: Rows, matrices: &[&Tensor]) -> Result<View<u8>, Error> {
        let (buffer, _) = self.buffer(matrices)?;
        let (lo, hi) = (matrices[0], matrices[matrices.len() - 1]);
        self.source.pack(rows, lo, hi, &buffer)?;
        Ok(buffer)
    }

    fn floats(&mut self, tensors: &[&Tensor]) -> Result<View<f32>, Error> {
        Ok(self.raw(tensors)?.cast()?)
    }

    fn raw(&mut self, tensors: &[&Tensor]) -> Result<View<u8>, Error> {
        let (buffer, parts) = self.buffer(tensors)?;
        for (tensor, part) in tensors.iter().zip(parts) {
            self.source.copy(tensor, &buffer.view_range(part))?;
        }
        Ok(buffer)
    }

    /// A buffer for all of the tensors, and where each is in it.
    fn buffer(&self, tensors: &[&Tensor]) -> Result<(View<u8>, Vec<Range<usize>>), Error> {
        let mut end = 0;
        let parts = tensors.iter().map(|tensor| {
            let start = end;
            end += tensor.range.len();
            start..end
        });
        let parts: Vec<Range<usize>> = parts.collect();
        let buffer = Buffer::uninit(self.context, end)?.labelled(&tensors[0].name);
        Ok((buffer.view(), parts))
    }
}

/// Bytes of rows on their way at once, of each of two matrices.
const CHUNK: usize = 32 << 20;
/// Pinned pieces through which they go, and the most bytes of each.
const PIECES: usize = 3;
const PIECE: usize = 8 << 20;
/// Threads that fill a piece, at most: one copies slower than the bus.
const THREADS: usize = 8;
/// Bytes for which a thread is worth its start.
const SHARE: usize = 1 << 20;

/// The weights of a file. What it wrote is there once its stream is idle.
pub(crate) struct Packer<'a, P> {
    model: &'a Model,
    stream: Stream,
    staging: Staging,
    /// Rows of one matrix, and of the other.
    rows: [Buffer<u8>; 2],
    /// The most bytes of each, but for a group of rows that has more.
    chunk: usize,
    kernels: BTreeMap<Format, Kernel<Pack>>,
    progress: P,
    done: u64,
}

/// Packs the weights of a file, telling after each part how many bytes are on their way.
pub(crate) fn upload(context: &Context, model: &Model, progress: impl FnMut(u64)) -> Result<Packed, Error> {
    let mut packer = Packer::new(context, model, CHUNK, progress)?;
    let packed = load(context, &model.outline, &mut packer)?;
    packer.stream.synchronize()?;
    Ok(packed)
}

impl<'a, P: FnMut(u64)> Packer<'a, P> {
    fn new(context: &Context, model: &'a Model, chunk: usize, progress: P) -> Result<Packer<'a, P>, Error> {
        let tensors = || model.outline.weights.iter();
        let largest = tensors().map(|t| t.range.len()).max().unwrap_or(0);
        let rows = || Buffer::uninit(context, largest.min(CHUNK)).map(|b| b.labelled("rows"));
        let formats: BTreeSet<Format> = tensors().map(format).filter(|f| f.tile().is_some()).collect();
        let kernels = formats.into_iter().map(|f| Ok((f, Kernel::load(context, Pack { format: f })?)));
        Ok(Packer {
            model,
            stream: Stream::new(context)?,
            staging: Staging::new(context, PIECES, largest.min(PIECE).next_multiple_of(8))?,
            rows: [rows()?, rows()?],
            chunk,
            kernels: kernels.collect::<Result<_, Error>>()?,
            progress,
            done: 0,
        })
    }

    fn write(&mut self, to: &View<u8>, from: &[u8]) -> Result<(), Error> {
        self.staging.write_with(&self.stream, to, |range, piece| copy(&from[range], piece))?;
        self.done += from.len() as u64;
        (self.progress)(self.done);
        Ok(())
    }
}

/// Copies with several threads: the first touch of a mapped file's pages takes most of the time.
fn copy(from: &[u8], to: &mut [u8]) {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(THREADS));
    let share = from.len().div_ceil(threads).max(SHARE);
    if from.len() <= share {
        return to.copy_from_slice(from);
    }
    std::thread::scope(|scope| {
        for (from, to) in from.chunks(share).zip(to.chunks_mut(share)) {
            scope.spawn(move || to.copy_from_slice(from));
        }
    });
}

impl<P: FnMut(u64)> Source for Packer<'_, P> {
    fn copy(&mut self, tensor: &Tensor, to: &View<u8>) -> Result<(), Error> {
        self.write(to, self.model.gguf.data(tensor))
    }

    fn pack(&mut self, rows: Rows, lo: &Tensor, hi: &Tensor, to: &View<u8>) -> Result<(), Error> {
        let matrices = if lo.name == hi.name { vec![lo] } else { vec![lo, hi] };
        let group = rows.stride as usize * format(lo).row_bytes(lo.dims[0] as usize);
        let (mut start, total) = (0, lo.range.len());
        while start < total {
            let end = total.min(start + (self.chunk / group).max(1) * group);
            for (i, matrix) in matrices.iter().enumerate() {
                let part = self.rows[i].view_range(0..end - start);
                self.write(&part, &self.model.gguf.data(matrix)[start..end])?;
            }
            let tiles = to.view_range(matrices.len() * start..matrices.len() * end);
            self.tile(rows, lo, [0, matrices.len() - 1].map(|i| self.rows[i].view()), tiles)?;
            start = end;
        }
        Ok(())
    }
}

impl<P: FnMut(u64)> Packer<'_, P> {
    /// Packs the rows on the device that fill these tiles.
    fn tile(&self, rows: Rows, matrix: &Tensor, [lo, hi]: [View<u8>; 2], y: View<u8>) -> Result<(), Error> {
        let n = matrix.dims[0] as u32;
        let row_blocks = (y.len() / (16 * format(matrix).row_bytes(n as usize))) as u32;
        let bytes = (row_blocks / rows.per * rows.stride) as usize * format(matrix).row_bytes(n as usize);
        let args = PackArgs {
            lo: lo.view_range(0..bytes),
            hi: hi.view_range(0..bytes),
            y,
            n,
            row_blocks,
            per: rows.per,
            stride: rows.stride,
            step: rows.step,
            delta: rows.delta,
        };
        let mut stream = &self.stream;
        Ok(stream.launch(&self.kernels[&format(matrix)], args)?)
    }
}

#[cfg(test)]
mod tests {
    use warpwright_driver::Driver;
    use warpwright_kernels::tiled::tile;

    use super::*;

    #[test]
    fn a_file_is_packed_chunk_by_chunk() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../assets/rustdoc-7m-Q4_K_M.gguf");
        let model = Model::open(path.as_ref()).unwrap();
        let driver = Driver::from_api(warpwright_cuda_emu::api(), "emulator").unwrap();
        let context = Context::new(&driver.devices().unwrap()[0]).unwrap();
        let mut told = 0;
        let mut packer = Packer::new(&context, &model, 10_000, |bytes| told = bytes).unwrap();
        let packed = load(&context, &model.outline, &mut packer).unwrap();
        packer.stream.synchronize().unwrap();
        assert_eq!(told, crate::info::weight_bytes(&model.outline));

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
