//! Random numbers on a device, for decoding without a file.
//!
//! Blocks are made on the host once, a pool for each format, and copied on the device from a new place in the pool
//! each time. Values repeat; addresses, which are what reading memory is about, do not.

use std::collections::BTreeMap;

use warpwright_driver::{Buffer, Context, Queue, Stream, View};
use warpwright_kernels::{Format, Random};

use crate::Error;
use crate::gguf::Tensor;
use crate::model::{Outline, Weights};
use crate::weights::{Loaded, format};

/// Bytes of a pool: quickly made, and copied in few pieces.
const POOL: usize = 1 << 20;

const SEED: u64 = 1;

/// A model's weights, all random. What a matrix makes of a normed vector is about as long as the vector, so that
/// nothing overflows, in f16 neither.
pub(crate) fn weights(context: &Context, outline: &Outline) -> Result<Weights<Loaded>, Error> {
    let mut pools = Pools::new(context, 2.0 / (outline.config.hidden as f32).sqrt())?;
    let loaded = outline.weights.try_map(|tensor| -> Result<Loaded, Error> {
        let buffer = Buffer::uninit(context, tensor.range.len())?.labelled(&tensor.name);
        match tensor.dims.len() {
            1 => buffer.write(&pools.vector(tensor))?,
            _ => pools.fill(format(tensor), &buffer)?,
        }
        Ok(Loaded { bytes: buffer.view(), format: format(tensor) })
    })?;
    pools.finish()?;
    Ok(loaded)
}

/// Random blocks on a device.
pub(crate) struct Pools {
    stream: Stream,
    random: Random,
    /// The largest weight, about.
    size: f32,
    pools: BTreeMap<Format, Buffer<u8>>,
}

impl Pools {
    pub(crate) fn new(context: &Context, size: f32) -> Result<Pools, Error> {
        Ok(Pools { stream: Stream::new(context)?, random: Random(SEED), size, pools: BTreeMap::new() })
    }

    /// Fills `to`, a whole number of blocks, without waiting.
    pub(crate) fn fill(&mut self, format: Format, to: &View<u8>) -> Result<(), Error> {
        let (block, pool) = (format.block_bytes() as usize, self.pool(format)?);
        let mut at = 0;
        while at < to.len() {
            let start = block * self.random.below((pool.len() / block) as u32) as usize;
            let bytes = (pool.len() - start).min(to.len() - at);
            let mut stream = &self.stream;
            stream.copy(&pool.view_range(start..start + bytes), &to.view_range(at..at + bytes))?;
            at += bytes;
        }
        Ok(())
    }

    /// Waits until everything is filled.
    pub(crate) fn finish(self) -> Result<(), Error> {
        Ok(self.stream.synchronize()?)
    }

    fn pool(&mut self, format: Format) -> Result<View<u8>, Error> {
        if let Some(pool) = self.pools.get(&format) {
            return Ok(pool.view());
        }
        let bytes = format.random(POOL / format.block_bytes() as usize, self.size, &mut self.random);
        let pool = Buffer::from_slice(self.stream.context(), &bytes)?.labelled("pool");
        Ok(self.pools.entry(format).or_insert(pool).view())
    }

    /// A norm's weights are near 1, a bias is small.
    fn vector(&mut self, tensor: &Tensor) -> Vec<u8> {
        let middle = if tensor.name.ends_with("bias") { 0.0 } else { 1.0 };
        let numbers = self.random.units(tensor.range.len() / 4);
        numbers.into_iter().flat_map(|x| (middle + x / 4.0).to_le_bytes()).collect()
    }
}
