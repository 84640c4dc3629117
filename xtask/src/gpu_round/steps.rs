//! The steps, as data.

/// A step of the round.
pub(super) struct RoundStep {
    /// In the table and in the name of its log.
    pub(super) name: &'static str,
    pub(super) on: On,
    pub(super) work: RoundAction,
}

/// How often a step runs.
pub(super) enum On {
    /// With the first model, where it has to do with a model.
    Once,
    /// With each model.
    EachModel,
}

/// What a step does. Arguments are words; `{model}`, `{device}`, `{prompt}` and `{ids}` are filled in.
pub(super) enum RoundAction {
    /// Runs the program.
    Program(&'static str),
    /// Runs the program under a tool of compute-sanitizer.
    Sanitized(&'static str, &'static str),
    /// Likewise under racecheck, some launches at a time: it keeps what it has seen of all of them until the end.
    RacecheckInParts(&'static str),
    /// Every instruction on the GPU and on the emulator.
    Rows,
    /// Training steps against their reference, with these arguments.
    Gates(&'static str),
    /// The same tokens as a graph, without overlap, launch by launch, and on the emulator.
    SameTokens,
    /// The same bits of logits as a graph, without overlap and launch by launch, close to those of the emulator.
    SameLogits,
}

use RoundAction::{Gates, Program, RacecheckInParts, Rows, SameLogits, SameTokens, Sanitized};

/// A prompt for which the small models give many tokens.
pub(super) const PROMPT: &str = "The borrow checker";

/// Token numbers that every model has.
pub(super) const IDS: &str = "0,389,1166,882,261,1680,260,2366,13,2818";

const CHECK: &str = "check --device {device}";
const EAGER: &str = "run {model} --device {device} --launch eager --prompt The -n 16";

const fn once(name: &'static str, work: RoundAction) -> RoundStep {
    RoundStep {
        name,
        on: On::Once,
        work,
    }
}

const fn each(name: &'static str, work: RoundAction) -> RoundStep {
    RoundStep {
        name,
        on: On::EachModel,
        work,
    }
}

/// In the order in which they run. Of longer graphs two tools lose track: racecheck is killed, and synccheck cannot
/// allocate and says so.
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
