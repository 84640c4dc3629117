//! The check that a batch fits into the free device memory.

use warpwright_driver::Context;
use warpwright_kernels::shared::cache::PAGE;
use warpwright_model::Outline;

use super::options::BatchOptions;
use super::{device, head, lone};
use crate::Error;
use crate::buffers;
use crate::chunked;
use crate::decode::needs::MemoryNeeds;
use crate::weights::info;

/// Returns the memory that a batch needs.
pub(super) fn needs(context: &Context, outline: &Outline, options: &BatchOptions) -> MemoryNeeds {
    let c = &outline.config;
    let sms = context.device().properties().multiprocessors;
    MemoryNeeds {
        weights: info::weight_bytes(outline),
        adapter: 0,
        cache: buffers::cache_bytes(c, options.pages() * PAGE),
        work: chunked::workspace::bytes(c)
            + head::bytes(c, options)
            + device::bytes(c, options, sms)
            + lone::bytes(c, options),
        draft: 0,
    }
}

/// Returns an error if the free memory is too small, before anything is allocated.
pub(super) fn check(
    context: &Context,
    outline: &Outline,
    options: &BatchOptions,
) -> Result<(), Error> {
    let (free, total) = context.memory()?;
    let free = free as u64;
    let total = total as u64;
    let needs = needs(context, outline, options);
    if needs.total() <= free {
        return Ok(());
    }

    let page = buffers::cache_bytes(&outline.config, PAGE);
    let rest = needs.weights + needs.work;
    let room = free.saturating_sub(rest) / page * u64::from(PAGE);
    Err(Error::BatchMemory {
        needs,
        positions: options.positions,
        room,
        free,
        total,
    })
}
