//! Random weights on a device, for decoding without a file.
//!
//! The host generates a pool of blocks or tiles for each format once, and they are copied on the device from random
//! offsets in the pool. Values repeat, but addresses, which determine memory traffic, do not.

use std::collections::BTreeMap;

use warpwright_driver::{Buffer, Context, Stream, View};
use warpwright_kernels::format::tile;
use warpwright_kernels::{Format, Random};

use crate::Error;
use crate::model::outline::{Outline, Weight};
use crate::weights::stored::Job;

/// Bytes of a pool: fast to generate, and few copies.
const POOL: usize = 1 << 20;

const SEED: u64 = 1;

/// The unit of a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unit {
    /// Blocks as in a file.
    Block(Format),
    /// Tiles.
    Tile(Format),
}

impl Unit {
    fn bytes(self) -> usize {
        match self {
            Unit::Block(format) => format.block_bytes() as usize,
            Unit::Tile(format) => format.tile().expect("what is packed has a tile").bytes as usize,
        }
    }

    fn random(self, count: usize, size: f32, random: &mut Random) -> Vec<u8> {
        match self {
            Unit::Block(format) => format.random(count, size, random),
            Unit::Tile(format) => tile::random(format, count, size, random),
        }
    }
}

/// Random blocks and tiles on a device.
pub(crate) struct Pools {
    stream: Stream,
    random: Random,
    /// The approximate magnitude of the largest weight.
    size: f32,
    pools: BTreeMap<Unit, Buffer<u8>>,
}

impl Pools {
    pub(crate) fn new(context: &Context, size: f32) -> Result<Pools, Error> {
        Ok(Pools {
            stream: Stream::new(context)?,
            random: Random(SEED),
            size,
            pools: BTreeMap::new(),
        })
    }

    /// For the weights of a model. A matrix roughly preserves the length of a normalized vector, so nothing
    /// overflows, not even in f16.
    pub(crate) fn of(context: &Context, outline: &Outline) -> Result<Pools, Error> {
        Pools::new(context, 2.0 / (outline.config.hidden as f32).sqrt())
    }

    /// Fills `to`, a whole number of units, without waiting.
    pub(crate) fn fill(&mut self, unit: Unit, to: &View<u8>) -> Result<(), Error> {
        let (block, pool) = (unit.bytes(), self.pool(unit)?);
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
    pub(crate) fn write(&mut self, job: &Job<'_>) -> Result<(), Error> {
        let (weight, to) = (job.part.weight, &job.to);
        match (job.part.tiles, weight.dims.len()) {
            (Some(_), _) => self.fill(Unit::Tile(weight.format), to),
            (None, 1) => Ok(to.write(&self.vector(weight))?),
            (None, _) => self.fill(Unit::Block(weight.format), to),
        }
    }

    /// Waits until everything is filled.
    pub(crate) fn finish(self) -> Result<(), Error> {
        Ok(self.stream.synchronize()?)
    }

    fn pool(&mut self, unit: Unit) -> Result<View<u8>, Error> {
        if let Some(pool) = self.pools.get(&unit) {
            return Ok(pool.view());
        }
        let bytes = unit.random(POOL / unit.bytes(), self.size, &mut self.random);
        let pool = Buffer::from_slice(self.stream.context(), &bytes)?.labelled("pool");
        Ok(self.pools.entry(unit).or_insert(pool).view())
    }

    /// Norm weights near 1, small biases.
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
