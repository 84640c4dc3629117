//! Random weights on a device, for decoding without a file.
//!
//! The host generates one pool of blocks or tiles per format. The device copies from random offsets
//! of the pool, so values repeat. Addresses do not repeat, and they determine the memory traffic
//! that benchmarks measure.

use std::collections::BTreeMap;

use warpwright_driver::Context;
use warpwright_driver::memory::{Buffer, View};
use warpwright_driver::stream::Stream;
use warpwright_kernels::format::tile;
use warpwright_kernels::{Format, Random};
use warpwright_model::{Outline, Weight};

use crate::Error;
use crate::kernel_terms::kernel_format;
use crate::weights::stored::UploadJob;

/// The bytes of a pool: small enough to be generated quickly, and large enough to need few copies.
const POOL: usize = 1 << 20;

const SEED: u64 = 1;

/// The element of a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RandomUnit {
    /// A quantization block, as a file stores it.
    Block(Format),
    /// A tile.
    Tile(Format),
}

impl RandomUnit {
    fn bytes(self) -> usize {
        match self {
            RandomUnit::Block(format) => format.block_bytes() as usize,
            RandomUnit::Tile(format) => {
                format.tile().expect("what is packed has a tile").bytes as usize
            }
        }
    }

    fn random(self, count: usize, size: f32, random: &mut Random) -> Vec<u8> {
        match self {
            RandomUnit::Block(format) => format.random(count, size, random),
            RandomUnit::Tile(format) => tile::random(format, count, size, random),
        }
    }
}

/// The pools of random blocks and tiles on a device.
pub(crate) struct RandomPools {
    stream: Stream,
    random: Random,
    /// The approximate magnitude of the largest weight.
    size: f32,
    pools: BTreeMap<RandomUnit, Buffer<u8>>,
}

impl RandomPools {
    pub(crate) fn new(context: &Context, size: f32) -> Result<RandomPools, Error> {
        Ok(RandomPools {
            stream: Stream::new(context)?,
            random: Random(SEED),
            size,
            pools: BTreeMap::new(),
        })
    }

    /// Creates pools for the weights of a model. A matrix roughly preserves the length of a
    /// normalized vector, so that nothing overflows, not even in f16.
    pub(crate) fn for_model(context: &Context, outline: &Outline) -> Result<RandomPools, Error> {
        RandomPools::new(context, 2.0 / (outline.config.hidden as f32).sqrt())
    }

    /// Queues copies that fill `to`, a whole number of units.
    pub(crate) fn fill(&mut self, unit: RandomUnit, to: &View<u8>) -> Result<(), Error> {
        let block = unit.bytes();
        let pool = self.pool(unit)?;
        let mut at = 0;
        while at < to.len() {
            let start = block * self.random.below((pool.len() / block) as u32) as usize;
            let bytes = (pool.len() - start).min(to.len() - at);
            let stream = &self.stream;
            stream.copy(
                &pool.view_range(start..start + bytes),
                &to.view_range(at..at + bytes),
            )?;
            at += bytes;
        }

        Ok(())
    }

    /// Fills the destination of a job.
    pub(crate) fn write(&mut self, job: &UploadJob<'_>) -> Result<(), Error> {
        let weight = job.part.weight;
        let to = &job.to;
        match (job.part.tiles, weight.dims.len()) {
            (Some(_), _) => self.fill(RandomUnit::Tile(kernel_format(weight.format)), to),
            (None, 1) => Ok(to.write(&self.vector(weight))?),
            (None, _) => self.fill(RandomUnit::Block(kernel_format(weight.format)), to),
        }
    }

    /// Waits until all copies are complete.
    pub(crate) fn finish(self) -> Result<(), Error> {
        Ok(self.stream.synchronize()?)
    }

    /// Returns the pool of a unit, and generates it first if necessary.
    fn pool(&mut self, unit: RandomUnit) -> Result<View<u8>, Error> {
        if let Some(pool) = self.pools.get(&unit) {
            return Ok(pool.view());
        }
        let bytes = unit.random(POOL / unit.bytes(), self.size, &mut self.random);
        let pool = Buffer::from_slice(self.stream.context(), &bytes)?.labelled("pool");
        Ok(self.pools.entry(unit).or_insert(pool).view())
    }

    /// Returns the values of a vector: norm weights near 1, or small biases.
    fn vector(&mut self, weight: &Weight) -> Vec<u8> {
        let middle = if weight.name.ends_with("bias") {
            0.0
        } else {
            1.0
        };
        let numbers = self.random.units(weight.range.len() / 4);
        numbers
            .into_iter()
            .flat_map(|x| (middle + x / 4.0).to_le_bytes())
            .collect()
    }
}
