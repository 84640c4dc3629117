//! A decoder's memory requirements, itemized, compared with the free device memory.

use warpwright_driver::Context;

use crate::Error;
use crate::adapter::tiles;
use crate::buffers;
use crate::chunked;
use crate::decode::needs::Needs;
use crate::decode::options::Options;
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
                + if chunks {
                    chunked::workspace::bytes(&outline.config)
                } else {
                    0
                },
            draft: 0,
        }
    }
}

/// A decoder that is to be.
#[derive(Clone, Copy)]
pub(crate) struct Planned<'a> {
    pub(crate) outline: &'a Outline,
    pub(crate) options: Options,
    /// Whether prompts are prefilled in chunks.
    pub(crate) chunks: bool,
}

impl Planned<'_> {
    /// What it needs with room for `ctx` positions.
    fn needs(&self, ctx: u32) -> Needs {
        let needs = Needs::of(self.outline, ctx, self.chunks);
        Needs {
            work: needs.work + buffers::draft_bytes(&self.outline.config, self.options),
            ..needs
        }
    }
}

/// Compares the required memory with the free memory, before anything is allocated: that of a model, and of a draft model
/// beside it.
pub(crate) fn check(
    context: &Context,
    model: Planned,
    draft: Option<Planned>,
) -> Result<(), Error> {
    let (free, total) = context.memory()?;
    compare(model, draft, free as u64, total as u64)
}

fn compare(model: Planned, draft: Option<Planned>, free: u64, total: u64) -> Result<(), Error> {
    // A draft model may have fewer positions than there are.
    let draft = |ctx: u32| draft.map_or(0, |draft| draft.needs(ctx.min(draft.options.ctx)).total());
    let of = |ctx: u32| Needs {
        draft: draft(ctx),
        ..model.needs(ctx)
    };
    let ctx = model.options.ctx;
    let needs = of(ctx);
    if needs.total() <= free {
        return Ok(());
    }
    Err(Error::Memory {
        needs,
        ctx,
        room: room(ctx, free, |ctx| of(ctx).total()),
        free,
        total,
    })
}

/// The longest context that needs at most `free` bytes, of those shorter than `over`, which needs more; 0 if none
/// does.
fn room(mut over: u32, free: u64, needed: impl Fn(u32) -> u64) -> u32 {
    let mut room = 0;
    while over - room > 1 {
        let middle = room + (over - room) / 2;
        let side = if needed(middle) <= free {
            &mut room
        } else {
            &mut over
        };
        *side = middle;
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::options::Launch;
    use crate::model::shape::{QUANTIZATIONS, SHAPES};

    #[test]
    fn the_room_is_the_longest_context_that_fits() {
        let outline = Outline::of(&SHAPES[0], QUANTIZATIONS[0]).unwrap();
        let need = |ctx| Needs::of(&outline, ctx, true).total();
        for ctx in [1, 31, 32, 33, 2048, 2049, 99_999] {
            assert_eq!(room(100_000, need(ctx), need), ctx);
            assert_eq!(room(100_000, need(ctx + 1) - 1, need), ctx);
        }
        assert_eq!(room(100_000, need(1) - 1, need), 0);
        assert_eq!(room(1, 0, need), 0);
    }

    /// Both models and what verifies are counted, and said.
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
