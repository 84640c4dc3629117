//! A decoder's memory requirements, itemized, compared with the free device memory.

use warpwright_driver::Context;

use crate::Error;
use crate::adapter::tiles;
use crate::buffers;
use crate::chunked;
use crate::decode::needs::Needs;
use crate::model::outline::Outline;
use crate::weights::info;

impl Needs {
    /// What a model needs with room for `ctx` positions; `chunks` if prompts are prefilled in chunks.
    pub fn of(outline: &Outline, ctx: u32, chunks: bool) -> Needs {
        Needs {
            weights: info::weight_bytes(outline),
            adapter: tiles::bytes(outline),
            cache: buffers::cache_bytes(&outline.config, ctx),
            work: buffers::work_bytes(&outline.config, ctx)
                + if chunks { chunked::workspace::bytes(&outline.config) } else { 0 },
        }
    }
}

/// Compares the required memory with the free memory, before anything is allocated.
pub(crate) fn check(context: &Context, outline: &Outline, ctx: u32, chunks: bool) -> Result<(), Error> {
    let needs = Needs::of(outline, ctx, chunks);
    let (free, total) = context.memory()?;
    let (free, total) = (free as u64, total as u64);
    if needs.total() <= free {
        return Ok(());
    }
    Err(Error::Memory { needs, ctx, room: room(outline, ctx, chunks, free), free, total })
}

/// The longest context that needs at most `free` bytes, of those shorter than `over`, which needs more; 0 if none
/// does.
fn room(outline: &Outline, mut over: u32, chunks: bool, free: u64) -> u32 {
    let mut room = 0;
    while over - room > 1 {
        let middle = room + (over - room) / 2;
        let side = if Needs::of(outline, middle, chunks).total() <= free { &mut room } else { &mut over };
        *side = middle;
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::shape::{QUANTIZATIONS, SHAPES};

    #[test]
    fn the_room_is_the_longest_context_that_fits() {
        let outline = Outline::of(&SHAPES[0], QUANTIZATIONS[0]).unwrap();
        let need = |ctx| Needs::of(&outline, ctx, true).total();
        for ctx in [1, 31, 32, 33, 2048, 2049, 99_999] {
            assert_eq!(room(&outline, 100_000, true, need(ctx)), ctx);
            assert_eq!(room(&outline, 100_000, true, need(ctx + 1) - 1), ctx);
        }
        assert_eq!(room(&outline, 100_000, true, need(1) - 1), 0);
        assert_eq!(room(&outline, 1, true, 0), 0);
    }
}
