//! What a decoder is to be: decided before anything is allocated.

use warpwright_driver::Context;

use crate::Error;
use crate::chunked::kernels;
use crate::chunked::products::Cores;
use crate::chunked::prompt::Size;
use crate::decode::memory::Planned;
use crate::decode::options::{Options, Prefer, verified_at_once};
use crate::model::outline::Outline;
use crate::pipeline::Unsupported;
use crate::pipeline::path::Path;
use crate::pipeline::resolved::Resolved;
use crate::sampling::options::TokenChoice;

/// A decoder with these options, if the model can have them.
pub(super) fn planned<'a>(
    context: &Context,
    outline: &'a Outline,
    options: Options,
) -> Result<Planned<'a>, Error> {
    check_context(outline, options.ctx)?;
    options.choice.check()?;
    check_drafts(options, || {
        Path::from(&preferred(context, outline, options))
    })?;
    Ok(Planned {
        outline,
        options,
        chunks: chunks(context, outline, options).is_some(),
    })
}

/// The pipeline of a model, or why it is not used.
pub(super) fn preferred(
    context: &Context,
    outline: &Outline,
    options: Options,
) -> Result<Resolved, Unsupported> {
    match options.prefer {
        Prefer::Simple => Err(Unsupported::Requested),
        Prefer::Fast => resolve(context, outline, options),
    }
}

/// The same, whatever kernels are preferred.
pub(super) fn resolve(
    context: &Context,
    outline: &Outline,
    options: Options,
) -> Result<Resolved, Unsupported> {
    let (device, tuning) = (context.device(), options.tuning);
    let resolved = Resolved::of(outline, device, tuning, options.batch())?;
    resolved.with_drafts(outline, device, tuning, verified_at_once(options.drafts()))
}

/// What multiplies the chunks of prompts, and their size, if prompts are prefilled in chunks. The products of chunks add
/// no adapter, so prompts of a model with one go in by steps.
pub(super) fn chunks(
    context: &Context,
    outline: &Outline,
    options: Options,
) -> Option<(Cores, Size)> {
    let device = context.device();
    let size =
        size(options).filter(|_| options.prefer == Prefer::Fast && outline.adapter.is_none())?;
    let cores = kernels::check(device, &outline.config).ok()?;
    resolve(context, outline, options)
        .is_ok()
        .then_some((cores, size))
}

/// The size of chunks, if the options ask for them.
pub(super) fn size(options: Options) -> Option<Size> {
    options.chunk().map(|longest| Size {
        ctx: options.ctx,
        longest,
    })
}

/// Refuses drafts on a path that cannot verify them.
pub(super) fn check_drafts(options: Options, path: impl FnOnce() -> Path) -> Result<(), Error> {
    if options.drafts() == 0 {
        return Ok(());
    }
    if let TokenChoice::Within { .. } = options.choice {
        return Err(Error::DraftsWithin);
    }
    match path() {
        path @ Path::Simple { .. } => Err(Error::NoDrafts { path }),
        Path::Overlapped | Path::Sequential { .. } => Ok(()),
    }
}

/// Refuses more positions than the model has.
pub(super) fn check_context(outline: &Outline, ctx: u32) -> Result<(), Error> {
    let limit = outline.config.context;
    if (1..=limit).contains(&ctx) {
        Ok(())
    } else {
        Err(Error::Context { ctx, limit })
    }
}
