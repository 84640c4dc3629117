//! The decisions about a decoder that are made before anything is allocated.

use warpwright_driver::Context;
use warpwright_model::Outline;

use crate::Error;
use crate::chunked::kernels;
use crate::chunked::products::TensorCores;
use crate::chunked::prompt::ChunkSize;
use crate::decode::memory::Planned;
use crate::decode::options::{Options, Prefer, verified_at_once};
use crate::pipeline::Unsupported;
use crate::pipeline::path::KernelPath;
use crate::pipeline::resolved::{ResolvedPipeline, check_whole_rows};
use crate::sampling::options::TokenChoice;
use crate::simple::experts::too_many;

/// Checks the options and returns the plan of a decoder.
pub(super) fn planned<'a>(
    context: &Context,
    outline: &'a Outline,
    options: Options,
) -> Result<Planned<'a>, Error> {
    check_context(outline, options.ctx)?;
    check_experts(outline)?;
    options.choice.check()?;
    check_drafts(options, || {
        KernelPath::from_resolved(&preferred(context, outline, options))
    })?;
    Ok(Planned {
        outline,
        options,
        chunks: chunks(context, outline, options).is_some(),
    })
}

/// Returns an error if a layer has more experts than the kernels can choose from.
fn check_experts(outline: &Outline) -> Result<(), Error> {
    for (layer, described) in outline.config.layers.iter().enumerate() {
        match described.feed_forward.experts() {
            Some(experts) if too_many(experts) => {
                return Err(Error::Experts {
                    layer,
                    count: experts.count,
                    chosen: experts.chosen,
                });
            }
            Some(_) | None => {}
        }
    }

    Ok(())
}

/// Returns the pipeline of a model, or the reason why the simple kernels are used.
pub(super) fn preferred(
    context: &Context,
    outline: &Outline,
    options: Options,
) -> Result<ResolvedPipeline, Unsupported> {
    match options.prefer {
        Prefer::Simple => Err(Unsupported::Requested),
        Prefer::Fast => resolve(context, outline, options),
    }
}

/// Returns the pipeline of a model, or the reason why it does not support it, regardless of the
/// preferred kernels.
pub(super) fn resolve(
    context: &Context,
    outline: &Outline,
    options: Options,
) -> Result<ResolvedPipeline, Unsupported> {
    let device = context.device();
    let tuning = options.tuning;
    let resolved = ResolvedPipeline::for_model(outline, device, tuning, options.batch())?;
    resolved.with_drafts(outline, device, tuning, verified_at_once(options.drafts()))
}

/// Returns the tensor cores and the size of chunks, or `None` if prompts are prefilled in steps.
///
/// The matmuls of chunks do not apply adapters, so prompts of a model with an adapter are prefilled
/// in steps.
pub(super) fn chunks(
    context: &Context,
    outline: &Outline,
    options: Options,
) -> Option<(TensorCores, ChunkSize)> {
    let device = context.device();
    if options.prefer != Prefer::Fast || outline.adapter.is_some() {
        return None;
    }
    let size = size(options)?;
    let cores = kernels::check(device, &outline.config).ok()?;
    // Chunks end in the LM head of the pipeline, so they need one.
    resolve(context, outline, options).ok()?;
    check_whole_rows(outline).ok()?;
    Some((cores, size))
}

/// Returns the size of chunks, or `None` if the options disable them.
pub(super) fn size(options: Options) -> Option<ChunkSize> {
    options.chunk().map(|longest| ChunkSize {
        ctx: options.ctx,
        longest,
    })
}

/// Returns an error if the options request drafts and the kernels cannot verify them.
pub(super) fn check_drafts(
    options: Options,
    path: impl FnOnce() -> KernelPath,
) -> Result<(), Error> {
    if options.drafts() == 0 {
        return Ok(());
    }
    if let TokenChoice::Constrained { .. } = options.choice {
        return Err(Error::DraftsConstrained);
    }
    match path() {
        path @ KernelPath::Simple { .. } => Err(Error::NoDrafts { path }),
        KernelPath::Overlapped | KernelPath::Sequential { .. } => Ok(()),
    }
}

/// Returns an error if the model has fewer than `ctx` positions.
pub(super) fn check_context(outline: &Outline, ctx: u32) -> Result<(), Error> {
    let limit = outline.config.context;
    if (1..=limit).contains(&ctx) {
        Ok(())
    } else {
        Err(Error::Context { ctx, limit })
    }
}
