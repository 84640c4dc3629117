//! The command line that reproduces a finding.

use crate::command::invocation::Invocation;
use crate::shell::quoted;

/// The options that a replay leaves out, because the seed selects a single schedule. The flag is
/// true for an option with a value.
const DROPPED: &[(&str, bool)] = &[
    ("--schedules", true),
    ("--seed", true),
    ("--json", true),
    ("--trace", true),
    ("--stats", false),
];

/// Returns the command line of this process with the schedule of one seed.
pub(crate) fn command(invocation: Invocation, seed: u64) -> String {
    let given: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    of(invocation, &given, seed)
}

/// Returns the command line with these arguments and the schedule of one seed.
fn of(invocation: Invocation, given: &[String], seed: u64) -> String {
    let mut words = vec![invocation.program().to_owned()];
    let mut skip = false;
    for argument in given {
        let (name, value) = argument
            .split_once('=')
            .map_or((argument.as_str(), false), |(name, _)| (name, true));
        match DROPPED.iter().find(|(dropped, _)| *dropped == name) {
            _ if skip => skip = false,
            Some((_, has_value)) => skip = *has_value && !value,
            None => words.push(quoted(argument)),
        }
    }

    words.extend(["--seed".to_owned(), seed.to_string()]);
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_has_one_seed() {
        let given = [
            "emu",
            "a b.ptx",
            "--schedules",
            "32",
            "--all",
            "--json=x",
            "-k",
            "f$1",
            "--seed=4",
            "--race",
            "--stats",
        ];
        let given = given.map(str::to_owned);
        assert_eq!(
            of(Invocation::Subcommand, &given, 7),
            "warpwright emu 'a b.ptx' --all -k 'f$1' --race --seed 7"
        );
    }
}
