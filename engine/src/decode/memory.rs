//! The check that a decoder fits into the free device memory.

use warpwright_driver::Context;
use warpwright_model::Outline;

use crate::Error;
use crate::buffers;
use crate::chunked;
use crate::decode::needs::MemoryNeeds;
use crate::decode::options::Options;
use crate::weights::info;
use crate::weights::lora_tiles;

impl MemoryNeeds {
    /// Returns the memory that a model needs with `ctx` positions. `chunks` is true if prompts are
    /// prefilled in chunks.
    pub fn for_model(outline: &Outline, ctx: u32, chunks: bool) -> MemoryNeeds {
        let mut work = buffers::work_bytes(&outline.config, ctx);
        if chunks {
            work += chunked::workspace::bytes(&outline.config);
        }
        MemoryNeeds {
            weights: info::weight_bytes(outline) + info::padding_bytes(outline),
            adapter: lora_tiles::bytes(outline),
            cache: buffers::cache_bytes(&outline.config, ctx),
            work,
            draft: 0,
        }
    }
}

/// The plan of a decoder that does not exist yet.
#[derive(Clone, Copy)]
pub(crate) struct Planned<'a> {
    pub(crate) outline: &'a Outline,
    pub(crate) options: Options,
    /// Whether prompts are prefilled in chunks.
    pub(crate) chunks: bool,
}

impl Planned<'_> {
    /// Returns the memory that the decoder needs with `ctx` positions.
    fn needs(&self, ctx: u32) -> MemoryNeeds {
        let needs = MemoryNeeds::for_model(self.outline, ctx, self.chunks);
        MemoryNeeds {
            work: needs.work + buffers::draft_bytes(&self.outline.config, self.options),
            ..needs
        }
    }
}

/// Checks that a model, and a draft model if there is one, fit into the free memory.
pub(crate) fn check(
    context: &Context,
    model: Planned,
    draft: Option<Planned>,
) -> Result<(), Error> {
    let (free, total) = context.memory()?;
    compare(model, draft, free as u64, total as u64)
}

/// Returns an error with the longest context that would fit, if the models need more than `free`
/// bytes.
fn compare(model: Planned, draft: Option<Planned>, free: u64, total: u64) -> Result<(), Error> {
    // A draft model may have a shorter context. It needs no more than that however long the model's
    // context is.
    let draft = |ctx: u32| draft.map_or(0, |draft| draft.needs(ctx.min(draft.options.ctx)).total());
    let needs_at = |ctx: u32| MemoryNeeds {
        draft: draft(ctx),
        ..model.needs(ctx)
    };
    let ctx = model.options.ctx;
    let needs = needs_at(ctx);
    if needs.total() <= free {
        return Ok(());
    }

    Err(Error::Memory {
        needs,
        ctx,
        room: room(ctx, free, |ctx| needs_at(ctx).total()),
        free,
        total,
    })
}

/// Returns the longest context below `over` that needs at most `free` bytes, or 0 if even one
/// position needs more. A context of `over` positions must need more than `free` bytes.
fn room(mut over: u32, free: u64, needed: impl Fn(u32) -> u64) -> u32 {
    let mut room = 0;
    // Binary search: `room` always fits and `over` never does.
    while over - room > 1 {
        let middle = room + (over - room) / 2;
        if needed(middle) <= free {
            room = middle;
        } else {
            over = middle;
        }
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::options::Launch;
    use warpwright_model::shape::{QUANTIZATIONS, SHAPES};

    #[test]
    fn the_room_is_the_longest_context_that_fits() {
        let outline = Outline::of(&SHAPES[0], QUANTIZATIONS[0]).unwrap();
        let need = |ctx| MemoryNeeds::for_model(&outline, ctx, true).total();
        for ctx in [1, 31, 32, 33, 2048, 2049, 99_999] {
            assert_eq!(room(100_000, need(ctx), need), ctx);
            assert_eq!(room(100_000, need(ctx + 1) - 1, need), ctx);
        }
        assert_eq!(room(100_000, need(1) - 1, need), 0);
        assert_eq!(room(1, 0, need), 0);
    }

    /// Both models and the verifying steps are counted, and the error names them.
    #[test]
    fn a_draft_model_needs_memory_too() {
        let outline = Outline::of(&SHAPES[0], QUANTIZATIONS[0]).unwrap();
        let options = Options {
            drafts: 7,
            ..Options::new(1024, Launch::Graph)
        };
        let planned = |options| Planned {
            outline: &outline,
            options,
            chunks: true,
        };
        let plain = Options {
            drafts: 0,
            ..options
        };
        let [verifying, alone] =
            [options, plain].map(|options| planned(options).needs(1024).total());
        assert!(
            verifying > alone && verifying < alone + alone / 4,
            "{verifying} {alone}"
        );
        let all = verifying + alone;
        let short = Options { ctx: 256, ..plain };
        let fits = |draft, free| compare(planned(options), Some(planned(draft)), free, all);
        fits(plain, all).unwrap();
        fits(short, all - 1).unwrap();
        let Err(Error::Memory { needs, room, .. }) = fits(plain, all - 1) else {
            panic!("it is too much")
        };

        assert_eq!((needs.total(), needs.draft, room), (all, alone, 1023));
        let sentence = fits(plain, all - 1).unwrap_err().to_string();
        assert!(
            sentence.contains(", draft model ") && sentence.ends_with("context of 1023"),
            "{sentence}"
        );
    }
}
