//! `warpwright finetune`: trains a LoRA adapter on a frozen model.

mod args;
mod disk;
mod metrics;
mod plan;
mod plot;
mod progress;
mod samples;
mod session;

pub(crate) use args::Args;

use warpwright_kernels::pipeline::lora::MAX_RANK;
use warpwright_model::chat::ChatTemplate;
use warpwright_model::{Model, chat};
use warpwright_train::base::{self, Base};
use warpwright_train::data::Dataset;
use warpwright_train::peft::AdapterShapes;

use crate::device;
use crate::failure::Failure;
use crate::prompt::source;
use plan::TrainingPlan;
use samples::Samples;
use session::TrainingSession;
use warpwright_emu::interrupt;
use warpwright_emu::terminal::say;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    args.check()?;
    let model = Model::open(args.model.path()?)?;
    let config = base::config(&model)?;
    let tokenizer = source::tokenizer(&model)?;
    if tokenizer.eos().is_none() {
        say("warning: the model defines no end token, so samples end without one");
    }

    let template = template(args, &model)?;
    let samples = Samples::read(args, &tokenizer, template.as_ref())?;
    let mut plan = TrainingPlan::new(args, &model, config, &samples)?;
    warn_of_unlearned_ends(samples.training.data());
    if args.rank > MAX_RANK as usize {
        say(format!(
            "warning: only PEFT can use an adapter of rank {}; run, logits and merge support ranks up to {MAX_RANK}",
            args.rank
        ));
    }

    if !args.dry_run {
        plan.check_disk(args)?;
    }

    // A dry run only prints a table, so it needs no line about the choice of the device.
    let context = if args.dry_run {
        device::quiet(args.device)?
    } else {
        device::open(args.device)?
    };
    plan.settle(args, &model, &context)?;
    plan.show(&context, &samples)?;
    if args.dry_run {
        return Ok(());
    }

    plan.check(&context, args.insist, &samples)?;
    let base = Base::from_model(&model, args.quantization())?;
    let fingerprint = plan.fingerprint(args, &model, template.as_ref(), &samples)?;
    let shapes = AdapterShapes {
        config: &plan.settings.config,
        lora: &plan.settings.lora,
        pairing: base.pairing,
    };
    let session = TrainingSession::new(args, &context, &plan, &base, &shapes, &fingerprint)?;
    session.train(&samples)?;
    Ok(interrupt::check()?)
}

/// Prints a warning if the chat template excludes the token that ends a reply from training.
fn warn_of_unlearned_ends(data: &Dataset) {
    if data.unlearned_ends > 0 {
        say(format!(
            "warning: in {} of {} conversations, the token that ends a reply is not learned, so the model may not learn to stop; \
             move it into {{% generation %}} of the chat template",
            data.unlearned_ends, data.conversations
        ));
    }
}

/// Returns the model's chat template, with the date of `--date` or today.
fn template(args: &Args, model: &Model) -> Result<Option<ChatTemplate>, Failure> {
    let mut template = model.chat_template()?;
    if let Some(template) = &mut template {
        template.set_date(args.date.unwrap_or_else(chat::today));
    }
    Ok(template)
}
