//! Checkpoints: a folder from which training goes on to the same bits.
//!
//! It holds the adapter as PEFT has it, `optimizer.safetensors` with both moments, and `trainer_state.json`. Random numbers
//! are functions of counters, so the counters are all there is to their state.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::peft::{self, Shapes};
use crate::reference::Moments;
use crate::step::Snapshot;
use crate::{Error, files};

const OPTIMIZER: &str = "optimizer.safetensors";
const STATE: &str = "trainer_state.json";
const MOMENTS: [&str; 2] = ["first.", "second."];

/// What shapes the course of training, by the names under which users know it: settings, and hashes of what is read.
pub type Course = BTreeMap<String, String>;

/// Writes a checkpoint: all of it or nothing.
///
/// # Errors
///
/// A file that cannot be written.
pub fn write(
    folder: &Path,
    shapes: &Shapes<'_>,
    snapshot: &Snapshot,
    course: &Course,
    base: &str,
) -> Result<(), Error> {
    let Snapshot { adapters, moments, step, skipped, micro, corrections } = snapshot;
    let state = json!({
        "step": step,
        "skipped": skipped,
        "micro_batch": micro,
        "bias_correction_bits": corrections.map(f32::to_bits),
        "course": course,
    });
    files::folder(folder, |folder| {
        peft::write(folder, shapes, adapters, base)?;
        let moments = [(MOMENTS[0], &moments.first), (MOMENTS[1], &moments.second)];
        peft::write_tensors(&folder.join(OPTIMIZER), shapes, &moments)?;
        files::write(&folder.join(STATE), format!("{state:#}\n").as_bytes())
    })
}

/// Reads a checkpoint of the same course.
///
/// # Errors
///
/// Files that cannot be read or are wrong; a course that has changed, by the name of what changed first.
pub fn read(folder: &Path, shapes: &Shapes<'_>, course: &Course) -> Result<Snapshot, Error> {
    let path = folder.join(STATE);
    let fault = |problem: String| Error::Checkpoint { path: path.clone(), problem };
    let bytes = std::fs::read(&path).map_err(|source| Error::Read { path: path.clone(), source })?;
    let state: Value = serde_json::from_slice(&bytes).map_err(|error| fault(error.to_string()))?;
    let before: Course = serde_json::from_value(state["course"].clone()).map_err(|_| {
        fault("has no \"course\", by which it could be told whether settings have changed".into())
    })?;
    if let Some(change) = changed(&before, course) {
        return Err(fault(change));
    }
    let word = |value: &Value, key: &str| {
        let word = value.as_u64().and_then(|word| u32::try_from(word).ok());
        word.ok_or_else(|| fault(format!("{key:?} is no count below 2^32")))
    };
    let count = |key: &str| word(&state[key], key);
    let bits = &state["bias_correction_bits"];
    let correction = |i: usize| word(&bits[i], "bias_correction_bits").map(f32::from_bits);
    let (step, skipped) = (count("step")?, count("skipped")?);
    if step.checked_add(skipped).is_none() {
        return Err(fault(format!(
            "counts {step} steps and {skipped} that were skipped: together above 2^32"
        )));
    }
    let [first, second] = peft::read_tensors(&folder.join(OPTIMIZER), shapes, MOMENTS)?;
    Ok(Snapshot {
        adapters: peft::read(folder, shapes)?,
        moments: Moments { first, second },
        step,
        skipped,
        micro: count("micro_batch")?,
        corrections: [correction(0)?, correction(1)?],
    })
}

/// What is another one now, or missing on either side.
fn changed(before: &Course, now: &Course) -> Option<String> {
    let mut names: Vec<&String> = before.keys().chain(now.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let name = names.into_iter().find(|name| before.get(*name) != now.get(*name))?;
    let of = |course: &Course| course.get(name).cloned().unwrap_or_else(|| "not set".into());
    Some(format!(
        "the training had {name} = {}, and now it is {}: it would not go on to the same bits",
        of(before),
        of(now)
    ))
}
