//! `--device`: which device a command works on.

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser, ValueParserFactory};
use warpwright_driver::{Context, Device, Driver};

use crate::failure::{Failure, sentence};
use crate::terminal::say;

/// What the user asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// The first GPU where there is one, else the emulator.
    Auto,
    /// This GPU.
    Cuda(usize),
    /// The emulator.
    Emu,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(Choice::Auto),
            "emu" => return Ok(Choice::Emu),
            "cuda" => return Ok(Choice::Cuda(0)),
            _ => {}
        }
        // llama.cpp writes CUDA0.
        let ordinal = text
            .strip_prefix("cuda:")
            .or_else(|| text.strip_prefix("CUDA"));
        let ordinal = ordinal.and_then(|number| number.parse().ok());
        ordinal
            .map(Choice::Cuda)
            .ok_or_else(|| "use auto, cuda:N or emu".into())
    }
}

/// Names that a shell completes.
const COMPLETED: [&str; 10] = [
    "auto", "emu", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7",
];

/// Parses a device, and tells shells the names to complete.
#[derive(Clone)]
pub(crate) struct ChoiceParser;

impl ValueParserFactory for Choice {
    type Parser = ChoiceParser;

    fn value_parser() -> ChoiceParser {
        ChoiceParser
    }
}

impl TypedValueParser for ChoiceParser {
    type Value = Choice;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Choice, clap::Error> {
        StringValueParser::new()
            .try_map(|text| text.parse::<Choice>())
            .parse_ref(command, arg, value)
    }

    /// Returns the devices of a machine with eight GPUs, because a completion script cannot know how many there are.
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(COMPLETED.into_iter().map(PossibleValue::new)))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Auto => f.write_str("auto"),
            Choice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            Choice::Emu => f.write_str("emu"),
        }
    }
}

/// The device, ready to work; says on stderr when `auto` falls back to the emulator.
pub(crate) fn open(choice: Choice) -> Result<Context, Failure> {
    let device = find(choice, |reason| {
        // One line here; `devices` shows all that was tried.
        say(format!(
            "no GPU, running on the emulator: {}",
            reason.lines().next().unwrap_or_default()
        ));
    })?;
    Ok(Context::new(&device)?)
}

/// As [`open`], without a word.
pub(crate) fn quiet(choice: Choice) -> Result<Context, Failure> {
    Ok(Context::new(&find(choice, |_| ())?)?)
}

/// The device; `fallen_back` hears why `auto` means the emulator.
pub(crate) fn find(choice: Choice, fallen_back: impl FnOnce(&str)) -> Result<Device, Failure> {
    match choice {
        Choice::Auto => first_gpu().or_else(|reason| {
            fallen_back(&reason);
            emulator()?.device(0).map_err(Failure::from)
        }),
        Choice::Cuda(ordinal) => gpu(ordinal),
        Choice::Emu => Ok(emulator()?.device(0)?),
    }
}

/// Whether the device is the emulator, the linked one or one that stands in for a driver.
pub(crate) fn is_emulator(context: &Context) -> bool {
    context.driver().api().emuMemSetLabel.is_some()
}

/// The driver of the emulator that is linked into this program.
pub(crate) fn emulator() -> Result<Driver, Failure> {
    let started = Driver::from_library(warpwright_cuda_emu::library());
    started.map_err(|error| Failure::Runtime(sentence(&error)))
}

/// The machine's GPUs, or why there are none.
pub(crate) fn gpus() -> Result<Vec<Device>, String> {
    let driver = Driver::load().map_err(|error| sentence(&error))?;
    driver.devices().map_err(|error| sentence(&error))
}

fn first_gpu() -> Result<Device, String> {
    gpus()?
        .into_iter()
        .next()
        .ok_or_else(|| "the driver lists no device".into())
}

fn gpu(ordinal: usize) -> Result<Device, Failure> {
    let devices =
        gpus().map_err(|reason| Failure::Runtime(format!("no device cuda:{ordinal}: {reason}")))?;
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
    use super::Choice;

    #[test]
    fn devices_are_named_as_they_are_printed() {
        for choice in [Choice::Auto, Choice::Cuda(0), Choice::Cuda(12), Choice::Emu] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
    }

    #[test]
    fn other_names_are_refused() {
        assert_eq!("CUDA3".parse(), Ok(Choice::Cuda(3)));
        for text in [
            "", "gpu", "CUDA", "CUDA:0", "cuda:", "cuda:-1", "cuda:x", "EMU",
        ] {
            assert_eq!(
                text.parse::<Choice>(),
                Err("use auto, cuda:N or emu".to_owned())
            );
        }
    }
}
