//! Checkpoints: a folder from which training goes on to the same bits.
//!
//! It holds the adapter as PEFT has it, `optimizer.safetensors` with both moments, and `trainer_state.json`. Random numbers
//! are functions of counters, so the counters are all there is to their state.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use warpwright_engine::adapter::Formats;

use crate::peft::{self, Shapes};
use crate::reference::Moments;
use crate::step::Snapshot;
use crate::{Error, files};

const OPTIMIZER: &str = "optimizer.safetensors";
/// The file by which a folder is a checkpoint.
pub const STATE: &str = "trainer_state.json";
const MOMENTS: [&str; 2] = ["first.", "second."];

/// The version of the state. It rises when training from an older checkpoint would not continue to the same bits.
///
/// Version 2 computes learning rates as transformers does. Checkpoints before it have no version: their schedules were one
/// step ahead, so that the last step had the least rate.
const VERSION: u64 = 2;

/// What decides what training computes, bit for bit, by the names under which users know it: settings, and hashes of
/// what is read.
pub type Fingerprint = BTreeMap<String, String>;

/// Writes a checkpoint: all of it or nothing. `formats` are those of the base's projections.
///
/// # Errors
///
/// A file that cannot be written.
pub fn write(
    folder: &Path,
    shapes: &Shapes<'_>,
    snapshot: &Snapshot,
    fingerprint: &Fingerprint,
    base: &str,
    formats: &Formats,
) -> Result<(), Error> {
    let Snapshot {
        adapters,
        moments,
        step,
        skipped,
        micro,
        corrections,
    } = snapshot;
    let state = json!({
        "version": VERSION,
        "step": step,
        "skipped": skipped,
        "micro_batch": micro,
        "bias_correction_bits": corrections.map(f32::to_bits),
        "fingerprint": fingerprint,
    });
    files::folder(folder, |folder| {
        peft::write(folder, shapes, adapters, base)?;
        peft::write_base_formats(folder, formats)?;
        let moments = [(MOMENTS[0], &moments.first), (MOMENTS[1], &moments.second)];
        peft::write_tensors(&folder.join(OPTIMIZER), shapes, &moments)?;
        files::write(&folder.join(STATE), format!("{state:#}\n").as_bytes())
    })
}

/// Reads a checkpoint of a training with the same fingerprint.
///
/// # Errors
///
/// Files that cannot be read or are wrong; a fingerprint that has changed, by the name of what changed first.
pub fn read(
    folder: &Path,
    shapes: &Shapes<'_>,
    fingerprint: &Fingerprint,
) -> Result<Snapshot, Error> {
    let path = folder.join(STATE);
    let fault = |problem: String| Error::Checkpoint {
        path: path.clone(),
        problem,
    };
    let bytes = std::fs::read(&path).map_err(|source| Error::Read {
        path: path.clone(),
        source,
    })?;
    let state: Value =
        serde_json::from_slice(&bytes).map_err(|error| fault(files::damaged(&error)))?;
    check_version(&state).map_err(&fault)?;
    let before: Fingerprint =
        serde_json::from_value(state["fingerprint"].clone()).map_err(|_| {
            fault(
                "has no \"fingerprint\", by which it could be told whether settings have changed"
                    .into(),
            )
        })?;
    if let Some(change) = changed(&before, fingerprint) {
        return Err(fault(change));
    }
    let word = |value: &Value, key: &str| {
        let word = value.as_u64().and_then(|word| u32::try_from(word).ok());
        word.ok_or_else(|| fault(format!("{key:?} is no count below 2^32")))
    };
    let count = |key: &str| word(&state[key], key);
    let bits = &state["bias_correction_bits"];
    let correction = |i: usize| {
        let correction = f32::from_bits(word(&bits[i], "bias_correction_bits")?);
        let right = (0.0..=1.0).contains(&correction);
        right
            .then_some(correction)
            .ok_or_else(|| fault(format!("has a bias correction of {correction}")))
    };
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

/// Returns the reason why a checkpoint of another version cannot be resumed.
fn check_version(state: &Value) -> Result<(), String> {
    match state.get("version") {
        None => Err("was written by a version of warpwright that computed learning rates differently (the rate of each step \
                     was one step ahead, and the last step had the least rate), so training would not continue to the same \
                     bits; finish it with that version, or start again without --resume"
            .into()),
        Some(version) if *version == json!(VERSION) => Ok(()),
        Some(version) => Err(format!(
            "has version {version} of the state, and this program reads version {VERSION}; resume it with the program that \
             wrote it, or start again without --resume"
        )),
    }
}

/// What is another one now, or missing on either side.
fn changed(before: &Fingerprint, now: &Fingerprint) -> Option<String> {
    let mut names: Vec<&String> = before.keys().chain(now.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let name = names
        .into_iter()
        .find(|name| before.get(*name) != now.get(*name))?;
    let of = |fingerprint: &Fingerprint| {
        fingerprint
            .get(name)
            .cloned()
            .unwrap_or_else(|| "not set".into())
    };
    Some(format!(
        "the training had {name} = {}, and now it is {}: it would not go on to the same bits; give what it had, or begin \
         anew without --resume",
        of(before),
        of(now)
    ))
}
