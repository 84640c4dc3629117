//! The execution of a planned step.

use std::mem;

use super::plan::StepPlan;
use super::sequence::RunningSequence;
use crate::engine::{ChosenToken, Engine, EngineError, SequenceKey, StepWork, Stepped};

/// The results of a step.
pub(super) enum StepResults {
    /// Those of [`Engine::step`], in the order of the planned rows.
    Stepped(Vec<Stepped>),
    /// Those of [`Engine::decode`], in the order of the running sequences.
    Decoded(Vec<Vec<ChosenToken>>),
}

/// Executes a planned step of the running sequences, and calls `meanwhile` at most once, if possible
/// while the device computes. After an error, the sequences have not changed.
pub(super) fn execute(
    engine: &mut dyn Engine,
    running: &mut [RunningSequence],
    plan: &StepPlan,
    meanwhile: &mut dyn FnMut(),
) -> Result<StepResults, EngineError> {
    let rows = match plan {
        StepPlan::Idle => return Ok(StepResults::Stepped(vec![])),
        StepPlan::Decode { steps } => {
            meanwhile();
            let work: Vec<(SequenceKey, u32)> = running
                .iter()
                .map(|sequence| (sequence.key, sequence.request.tokens[sequence.processed]))
                .collect();
            return Ok(StepResults::Decoded(engine.decode(&work, *steps)?));
        }
        StepPlan::Step(rows) => rows,
    };

    // Drafts are not tokens of the sequence yet.
    let with_drafts = rows.iter().map(|row| {
        let sequence = &running[row.index];
        let end = sequence.processed + row.tokens;
        let known = &sequence.request.tokens[sequence.processed..end];
        [known, &sequence.drafts[..row.drafts]].concat()
    });
    let given: Vec<Vec<u32>> = with_drafts.collect();

    let mut work = vec![];
    let mut rest = running;
    let mut first = 0;
    for (row, tokens) in rows.iter().zip(&given) {
        // Splitting the list gives each row its own reference to its sequence.
        let (before, after) = mem::take(&mut rest).split_at_mut(row.index + 1 - first);
        let sequence = before.last_mut().expect("planned rows are ordered");
        rest = after;
        first = row.index + 1;

        let matcher = sequence
            .request
            .grammar
            .as_deref_mut()
            .filter(|_| row.wanted.chooses());
        work.push(StepWork {
            key: sequence.key,
            tokens,
            origin: row.origin,
            wanted: row.wanted,
            matcher,
        });
    }
    Ok(StepResults::Stepped(
        engine.step_with(&mut work, meanwhile)?,
    ))
}
