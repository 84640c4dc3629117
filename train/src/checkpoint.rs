//! Checkpoints: folders from which training resumes with the same bits.
//!
//! A checkpoint contains the adapter in PEFT's format, `optimizer.safetensors` with both moments,
//! and `trainer_state.json`. Random numbers are functions of counters, so the counters are their
//! whole state.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use warpwright_model::adapter::Formats;

use crate::peft::{self, AdapterShapes};
use crate::reference::Moments;
use crate::step::Snapshot;
use crate::{Error, files};

/// The file with the moments of AdamW.
const OPTIMIZER: &str = "optimizer.safetensors";
/// The state file. A folder with this file is a checkpoint.
pub const STATE: &str = "trainer_state.json";
/// The prefixes of the tensor names of the first and the second moments.
const MOMENTS: [&str; 2] = ["first.", "second."];

/// The version of the state. It increases when training from an older checkpoint would not continue
/// with the same bits.
///
/// Version 2 computes learning rates as the `transformers` library does. Earlier checkpoints have
/// no version. Their schedules were one step ahead, so that the last step had the minimum rate.
const VERSION: u64 = 2;

/// The inputs that determine the bits of a training run: settings and hashes of input files, by the
/// names that users know.
pub type Fingerprint = BTreeMap<String, String>;

/// Writes a checkpoint atomically. `base` names the model, and `formats` are the number formats of
/// its projections.
///
/// # Errors
/// Returns [`Error::Write`] if a file cannot be written.
pub fn write(
    folder: &Path,
    shapes: &AdapterShapes<'_>,
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
    // Bits, because a resumed run must continue with exactly these numbers.
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

/// Reads a checkpoint of a training run with the same fingerprint.
///
/// # Errors
/// Returns [`Error::Read`] if a file cannot be read. Returns [`Error::Checkpoint`] if a file is
/// damaged, was written by another version, or has another fingerprint. The message names the first
/// input that changed.
pub fn read(
    folder: &Path,
    shapes: &AdapterShapes<'_>,
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

    // The fingerprint is compared before the tensors are read. Changed settings also change the
    // shapes of tensors, and the error should name the setting.
    let missing = || fault("has no \"fingerprint\", so changed settings cannot be detected".into());
    let before: Fingerprint =
        serde_json::from_value(state["fingerprint"].clone()).map_err(|_| missing())?;
    if let Some(change) = changed(&before, fingerprint) {
        return Err(fault(change));
    }

    let word = |value: &Value, key: &str| {
        let word = value.as_u64().and_then(|word| u32::try_from(word).ok());
        word.ok_or_else(|| fault(format!("{key:?} is not a count below 2^32")))
    };
    let count = |key: &str| word(&state[key], key);
    let bits = &state["bias_correction_bits"];
    let correction = |i: usize| {
        let correction = f32::from_bits(word(&bits[i], "bias_correction_bits")?);
        if !(0.0..=1.0).contains(&correction) {
            return Err(fault(format!("has a bias correction of {correction}")));
        }
        Ok(correction)
    };
    let step = count("step")?;
    let skipped = count("skipped")?;
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
                     bits: finish it with that version, or start again without --resume"
            .into()),
        Some(version) if *version == json!(VERSION) => Ok(()),
        Some(version) => Err(format!(
            "has version {version} of the state, but this program reads version {VERSION}: resume it with the program that \
             wrote it, or start again without --resume"
        )),
    }
}

/// Returns the first input that differs or is missing on one side, or `None` if the fingerprints
/// are equal.
fn changed(before: &Fingerprint, now: &Fingerprint) -> Option<String> {
    let mut names: Vec<&String> = before.keys().chain(now.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let name = names
        .into_iter()
        .find(|name| before.get(*name) != now.get(*name))?;
    let value = |fingerprint: &Fingerprint| {
        fingerprint
            .get(name)
            .cloned()
            .unwrap_or_else(|| "not set".into())
    };
    Some(format!(
        "the training had {name} = {}, and now it is {}, so it would not continue with the same bits: restore the value, or \
         start again without --resume",
        value(before),
        value(now)
    ))
}
