//! The option `--device`, and how the device is found and opened.

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser, ValueParserFactory};
use warpwright_driver::device::Device;
use warpwright_driver::{Context, Driver};

use crate::failure::{Failure, sentence};
use warpwright_emu::terminal::say;

/// The value of `--device`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeviceChoice {
    /// The first GPU, or the emulator if there is none.
    Auto,
    /// The GPU with this number, counted from 0.
    Cuda(usize),
    /// The CPU emulator.
    Emu,
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(DeviceChoice::Auto),
            "emu" => return Ok(DeviceChoice::Emu),
            "cuda" => return Ok(DeviceChoice::Cuda(0)),
            _ => {}
        }

        // llama.cpp writes CUDA0.
        let ordinal = text
            .strip_prefix("cuda:")
            .or_else(|| text.strip_prefix("CUDA"));
        let ordinal = ordinal.and_then(|number| number.parse().ok());
        ordinal
            .map(DeviceChoice::Cuda)
            .ok_or_else(|| "use auto, cuda:N or emu".into())
    }
}

/// The names that a shell completes. A completion script cannot know how many GPUs a machine has.
const COMPLETED: [&str; 10] = [
    "auto", "emu", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7",
];

/// A parser of devices that also lists names for shell completion.
#[derive(Clone)]
pub(crate) struct DeviceChoiceParser;

impl ValueParserFactory for DeviceChoice {
    type Parser = DeviceChoiceParser;

    fn value_parser() -> DeviceChoiceParser {
        DeviceChoiceParser
    }
}

impl TypedValueParser for DeviceChoiceParser {
    type Value = DeviceChoice;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<DeviceChoice, clap::Error> {
        StringValueParser::new()
            .try_map(|text| text.parse::<DeviceChoice>())
            .parse_ref(command, arg, value)
    }

    /// Returns the names that a shell completes.
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(COMPLETED.into_iter().map(PossibleValue::new)))
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            DeviceChoice::Emu => f.write_str("emu"),
        }
    }
}

/// Opens the device. If `auto` falls back to the emulator, a line on stderr says so and gives the
/// reason.
///
/// # Errors
/// Returns an error if the device does not exist or the driver fails.
pub(crate) fn open(choice: DeviceChoice) -> Result<Context, Failure> {
    let device = find(choice, |reason| {
        // The first line is the reason. `warpwright devices` lists everything that was tried.
        say(format!(
            "no GPU, running on the emulator: {}",
            reason.lines().next().unwrap_or_default()
        ));
    })?;
    Ok(Context::new(&device)?)
}

/// Opens the device like [`open`], without a line on stderr.
///
/// # Errors
/// Returns an error if the device does not exist or the driver fails.
pub(crate) fn quiet(choice: DeviceChoice) -> Result<Context, Failure> {
    Ok(Context::new(&find(choice, |_| ())?)?)
}

/// Finds the device. If `auto` falls back to the emulator, `on_fallback` is called with the reason.
///
/// # Errors
/// Returns an error if the device does not exist or the driver fails.
pub(crate) fn find(
    choice: DeviceChoice,
    on_fallback: impl FnOnce(&str),
) -> Result<Device, Failure> {
    match choice {
        DeviceChoice::Auto => first_gpu().or_else(|reason| {
            on_fallback(&reason);
            emulator()?.device(0).map_err(Failure::from)
        }),
        DeviceChoice::Cuda(ordinal) => gpu(ordinal),
        DeviceChoice::Emu => Ok(emulator()?.device(0)?),
    }
}

/// Returns true if the device is the emulator: the linked one, or its library loaded in place of
/// the driver.
pub(crate) fn is_emulator(context: &Context) -> bool {
    context.driver().api().emuMemSetLabel.is_some()
}

/// Returns the driver of the emulator that is linked into this program.
///
/// # Errors
/// Returns an error if the emulator cannot be initialized.
pub(crate) fn emulator() -> Result<Driver, Failure> {
    let started = Driver::from_library(warpwright_cuda_emu::library());
    started.map_err(|error| Failure::Runtime(sentence(&error)))
}

/// Returns the GPUs of this machine.
///
/// # Errors
/// Returns the reason as a text if there is no driver, or if it fails.
pub(crate) fn gpus() -> Result<Vec<Device>, String> {
    let driver = Driver::load().map_err(|error| sentence(&error))?;
    driver.devices().map_err(|error| sentence(&error))
}

/// Returns the first GPU, or the reason why there is none.
fn first_gpu() -> Result<Device, String> {
    gpus()?
        .into_iter()
        .next()
        .ok_or_else(|| "the driver lists no device".into())
}

/// Returns the GPU with this number.
fn gpu(ordinal: usize) -> Result<Device, Failure> {
    let devices = gpus().map_err(|reason| {
        Failure::Runtime(format!(
            "no device cuda:{ordinal}; --device emu runs on the emulator: {reason}"
        ))
    })?;
    let count = devices.len();
    let missing = || {
        Failure::Input(format!(
            "no device cuda:{ordinal}: the driver lists {count}, counted from 0"
        ))
    };
    devices.into_iter().nth(ordinal).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::DeviceChoice;

    #[test]
    fn devices_are_named_as_they_are_printed() {
        for choice in [
            DeviceChoice::Auto,
            DeviceChoice::Cuda(0),
            DeviceChoice::Cuda(12),
            DeviceChoice::Emu,
        ] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
    }

    #[test]
    fn other_names_are_refused() {
        assert_eq!("CUDA3".parse(), Ok(DeviceChoice::Cuda(3)));
        for text in [
            "", "gpu", "CUDA", "CUDA:0", "cuda:", "cuda:-1", "cuda:x", "EMU",
        ] {
            assert_eq!(
                text.parse::<DeviceChoice>(),
                Err("use auto, cuda:N or emu".to_owned())
            );
        }
    }
}
