//! The list of steps.

/// A step of the round.
pub(super) struct RoundStep {
    /// The name in the table, from which the name of the log is made.
    pub(super) name: &'static str,
    pub(super) on: On,
    pub(super) work: RoundAction,
}

/// The models on which a step runs.
pub(super) enum On {
    /// Only the first model, if the step uses a model at all.
    Once,
    /// Every model.
    EachModel,
}

/// The work of a step.
///
/// Arguments are separated by spaces. The words `{model}`, `{device}`, `{prompt}` and `{ids}` are
/// replaced.
pub(super) enum RoundAction {
    /// Runs the program.
    Program(&'static str),
    /// Runs the program under a tool of compute-sanitizer.
    Sanitized(&'static str, &'static str),
    /// Runs the program under racecheck several times, each on a part of its launches. racecheck
    /// keeps data about all launches until the end, so a single run would need too much memory.
    RacecheckInParts(&'static str),
    /// Compares every instruction on the GPU with the emulator.
    Rows,
    /// Compares training steps with their reference, with these arguments.
    Gates(&'static str),
    /// Checks that a graph, a graph without overlap, single launches and the emulator generate the
    /// same tokens.
    SameTokens,
    /// Checks that a graph, a graph without overlap and single launches compute the same bits of
    /// logits, and that the emulator's logits are close.
    SameLogits,
}

use RoundAction::{Gates, Program, RacecheckInParts, Rows, SameLogits, SameTokens, Sanitized};

/// A prompt after which the small models generate many tokens.
pub(super) const PROMPT: &str = "The borrow checker";

/// Token ids that are in the vocabulary of every model.
pub(super) const IDS: &str = "0,389,1166,882,261,1680,260,2366,13,2818";

const CHECK: &str = "check --device {device}";
const EAGER: &str = "run {model} --device {device} --launch eager --prompt The -n 16";

/// Returns a step that runs once.
const fn once(name: &'static str, work: RoundAction) -> RoundStep {
    RoundStep {
        name,
        on: On::Once,
        work,
    }
}

/// Returns a step that runs with every model.
const fn each(name: &'static str, work: RoundAction) -> RoundStep {
    RoundStep {
        name,
        on: On::EachModel,
        work,
    }
}

/// All steps, in the order in which they run.
///
/// Two tools cannot handle longer graphs: racecheck is killed, and synccheck reports that it cannot
/// allocate memory.
#[rustfmt::skip] // one step a line
pub(super) const STEPS: [RoundStep; 23] = [
    once("devices",                                Program("devices")),
    once("check",                                  Program(CHECK)),
    once("rows against the emulator",              Rows),
    once("gates of training",                      Gates("--device {device}")),
    once("gates of training in bf16",              Gates("--device {device} --precision bf16")),
    once("losses of 100 steps in bf16",            Gates("--device {device} --losses")),
    once("faults of training",                     Gates("--device {device} --faults")),
    each("run graph",                              Program("run {model} --device {device} --launch graph --prompt {prompt} -n 48")),
    each("run eager",                              Program("run {model} --device {device} --launch eager --prompt {prompt} -n 48")),
    each("tokens equal",                           SameTokens),
    each("logits equal",                           SameLogits),
    once("memcheck check",                         Sanitized("memcheck", CHECK)),
    once("memcheck run graph, 16 tokens",          Sanitized("memcheck", "run {model} --device {device} --prompt The -n 16")),
    once("memcheck run eager, 16 tokens",          Sanitized("memcheck", EAGER)),
    once("racecheck check",                        Sanitized("racecheck", CHECK)),
    once("racecheck run graph, 2 tokens",          Sanitized("racecheck", "run {model} --device {device} --prompt The -n 2")),
    once("racecheck run eager, 16 tokens in parts", RacecheckInParts(EAGER)),
    once("initcheck check",                        Sanitized("initcheck", CHECK)),
    once("initcheck run graph, 16 tokens",         Sanitized("initcheck", "run {model} --device {device} --prompt The -n 16")),
    once("initcheck run eager, 16 tokens",         Sanitized("initcheck", EAGER)),
    once("synccheck check",                        Sanitized("synccheck", CHECK)),
    once("synccheck run graph, 6 tokens",          Sanitized("synccheck", "run {model} --device {device} --prompt The -n 6")),
    once("synccheck run eager, 16 tokens",         Sanitized("synccheck", EAGER)),
];
