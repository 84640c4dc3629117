//! The ways to write calls.

use super::call::ToolCall;
use super::tools::Tools;
use super::{body, elements};

/// Reads what stands between the marks: nothing if that is no whole call.
pub(super) type Body = fn(&str, &Tools) -> Option<Vec<ToolCall>>;

/// A way to write calls.
#[derive(Debug)]
pub(crate) struct Syntax {
    /// Texts of which a template of this way has one.
    pub(super) told_by: &'static [&'static str],
    /// What calls begin with.
    pub(super) opens: &'static str,
    /// What they end with; if nothing does, the reply ends with them.
    pub(super) closes: Option<&'static str>,
    /// Where they may begin.
    pub(super) place: Place,
    pub(super) body: Body,
    /// Tokens without a text that stand between the marks, beside the marks themselves.
    pub(super) tokens: &'static [&'static str],
}

/// Where calls may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Anywhere,
    /// Nothing but white space stands before them. The opening belongs to the body, which is a text like any other: it
    /// is a call if it names tools that there are.
    Start,
}

const ANYWHERE: Syntax =
    Syntax { told_by: &[], opens: "", closes: None, place: Place::Anywhere, body: body::json, tokens: &[] };

/// All that are known.
static SYNTAXES: [Syntax; 16] = [
    // Hermes, Qwen 2.5 and 3, SmolLM3, Granite 4: JSON. Qwen3-Coder, Qwen 3.5, Step: elements. GLM: keys and values.
    Syntax {
        told_by: &["<tool_call>"],
        opens: "<tool_call>",
        closes: Some("</tool_call>"),
        body: body::tagged,
        ..ANYWHERE
    },
    Syntax {
        told_by: &["<seed:tool_call>"],
        opens: "<seed:tool_call>",
        closes: Some("</seed:tool_call>"),
        body: elements::functions,
        ..ANYWHERE
    },
    // MiniMax-M1, Apriel.
    Syntax { told_by: &["<tool_calls>"], opens: "<tool_calls>", closes: Some("</tool_calls>"), ..ANYWHERE },
    // Functionary 3.1, and Qwen3-Coder where it forgets the tag around a function.
    Syntax {
        told_by: &["<function="],
        opens: "<function=",
        closes: Some("</function>"),
        body: elements::function,
        ..ANYWHERE
    },
    // Mistral.
    Syntax {
        told_by: &["[TOOL_CALLS]"],
        opens: "[TOOL_CALLS]",
        body: body::mistral,
        tokens: &["[ARGS]", "[CALL_ID]"],
        ..ANYWHERE
    },
    // Llama 3.1 and later.
    Syntax {
        told_by: &["<|python_tag|>", "<|start_header_id|>ipython"],
        opens: "<|python_tag|>",
        body: body::python,
        ..ANYWHERE
    },
    Syntax { told_by: &["<|start_header_id|>ipython"], opens: "{", place: Place::Start, ..ANYWHERE },
    // Granite 3, Phi-4-mini.
    Syntax { told_by: &["<|tool_call|>"], opens: "<|tool_call|>", tokens: &["<|/tool_call|>"], ..ANYWHERE },
    Syntax { told_by: &["functools["], opens: "functools", ..ANYWHERE },
    // Granite of code.
    Syntax { told_by: &["<function_call>"], opens: "<function_call>", body: body::split, ..ANYWHERE },
    Syntax {
        told_by: &["<｜tool▁calls▁begin｜>"],
        opens: "<｜tool▁calls▁begin｜>",
        closes: Some("<｜tool▁calls▁end｜>"),
        body: body::deepseek,
        tokens: &["<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"],
        ..ANYWHERE
    },
    // DeepSeek since 3.2.
    Syntax {
        told_by: &["｜DSML｜"],
        opens: "<｜DSML｜function_calls>",
        closes: Some("</｜DSML｜function_calls>"),
        body: elements::invocations,
        tokens: &["｜DSML｜"],
        ..ANYWHERE
    },
    Syntax {
        told_by: &["<|tools_prefix|>"],
        opens: "<|tools_prefix|>",
        closes: Some("<|tools_suffix|>"),
        body: body::apertus,
        ..ANYWHERE
    },
    // InternLM 2.
    Syntax {
        told_by: &["<|action_start|>"],
        opens: "<|action_start|><|plugin|>",
        closes: Some("<|action_end|>"),
        tokens: &["<|action_start|>", "<|plugin|>"],
        ..ANYWHERE
    },
    // Command R7B and A.
    Syntax {
        told_by: &["<|START_ACTION|>"],
        opens: "<|START_ACTION|>",
        closes: Some("<|END_ACTION|>"),
        ..ANYWHERE
    },
    // xLAM, whose template has a list as an example.
    Syntax { told_by: &["[{\"name\": \"tool_call_name\""], opens: "[", place: Place::Start, ..ANYWHERE },
];

/// Those that a template tells.
pub(crate) fn told(template: &str) -> Vec<&'static Syntax> {
    SYNTAXES.iter().filter(|syntax| syntax.told_by.iter().any(|text| template.contains(text))).collect()
}

impl Syntax {
    /// Names of tokens that belong to the text here.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &'static str> {
        [self.opens].into_iter().chain(self.closes).chain(self.tokens.iter().copied())
    }
}
