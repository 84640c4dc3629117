//! The formats of calls, a row each.

use super::body;
use super::call::ToolCall;
use super::cursor::{Cursor, Parsed};
use super::elements::{self, Elements};
use super::frame::CallFrame;
use super::marked::{self, MarkedFormat};
use super::python;
use super::thoughts::ThoughtMarks;

/// A format of calls.
#[derive(Debug)]
pub(crate) struct Syntax {
    pub(super) name: &'static str,
    /// The mark that calls begin with.
    pub(super) opens: &'static str,
    /// The end of calls.
    pub(super) ends: CallsEnd,
    /// The place where calls may begin.
    pub(super) place: CallsPlace,
    pub(super) body: CallBody,
    /// Control tokens of the format, in addition to its marks.
    pub(super) tokens: &'static [&'static str],
    /// Marks around text that contains no calls, in addition to `<think>` and `</think>`.
    pub(super) quiet: Option<[&'static str; 2]>,
    /// A text in the prompt that tells the model to use this format. It counts only for templates
    /// that leave earlier calls out of the prompt.
    pub(super) told_by: &'static [&'static str],
    /// Formats that models of the same family also use, each with a text that the template then
    /// contains.
    pub(super) also: &'static [(&'static str, &'static Syntax)],
}

/// The end of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallsEnd {
    /// A closing mark. It may be missing at the end of a reply if the body has an end of its own.
    Mark(&'static str),
    /// The end of the body.
    Body,
    /// The end of the reply, after an optional closing mark. Text after the calls is text.
    Reply(Option<&'static str>),
}

/// The place where calls may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallsPlace {
    Anywhere,
    /// The start of the reply. There is no opening mark, only a character that the body begins
    /// with. The whole reply is the body, and a call if all its functions are known.
    Start,
}

/// The reader of the text between the marks.
#[derive(Debug, Clone, Copy)]
pub(super) enum CallBody {
    Plain(fn(&mut Cursor<'_>) -> Parsed<Vec<ToolCall>>),
    /// Strings between marks without escapes. The reader takes all calls up to the end of the
    /// reply.
    Marked(&'static MarkedFormat),
    Elements(&'static Elements),
    /// After `<tool_call>`, the first character decides: JSON, functions, or a name with keys and
    /// values.
    ToolCall,
    /// Messages with a recipient. The stream reads their headers.
    Harmony,
}

const ANYWHERE: Syntax = Syntax {
    name: "",
    opens: "",
    ends: CallsEnd::Body,
    place: CallsPlace::Anywhere,
    body: CallBody::Plain(body::json),
    tokens: &[],
    quiet: None,
    told_by: &[],
    also: &[],
};

/// Hermes, Qwen 2.5 and 3, SmolLM3, Granite 4: JSON. Qwen3-Coder, Qwen 3.5, Nemotron 3, Step:
/// functions. GLM, Ling, Laguna: keys and values.
static TOOL_CALL: Syntax = Syntax {
    name: "tool_call",
    opens: "<tool_call>",
    ends: CallsEnd::Mark("</tool_call>"),
    body: CallBody::ToolCall,
    told_by: &["<tool_call>"],
    also: &[("<function=", &FUNCTION)],
    ..ANYWHERE
};
static SEED: Syntax = Syntax {
    name: "seed",
    opens: "<seed:tool_call>",
    ends: CallsEnd::Reply(None),
    body: CallBody::Elements(&elements::SEED),
    tokens: &["</seed:tool_call>"],
    told_by: &["<seed:tool_call>"],
    ..ANYWHERE
};
/// MiniMax-M1, Apriel, Hunyuan.
static TOOL_CALLS: Syntax = Syntax {
    name: "tool_calls",
    opens: "<tool_calls>",
    ends: CallsEnd::Mark("</tool_calls>"),
    told_by: &["<tool_calls>"],
    ..ANYWHERE
};
/// Functionary 3.1, and Qwen3-Coder where it omits the tag around a function.
static FUNCTION: Syntax = Syntax {
    name: "function",
    opens: "<function=",
    ends: CallsEnd::Reply(None),
    body: CallBody::Elements(&elements::BARE_FUNCTIONS),
    told_by: &["<function="],
    ..ANYWHERE
};
static MISTRAL: Syntax = Syntax {
    name: "mistral",
    opens: "[TOOL_CALLS]",
    body: CallBody::Plain(body::mistral),
    tokens: &["[ARGS]", "[CALL_ID]"],
    told_by: &["[TOOL_CALLS]"],
    ..ANYWHERE
};
/// Llama 3.1 to 3.3, for built-in tools, and sometimes for others.
static PYTHON_TAG: Syntax = Syntax {
    name: "python_tag",
    opens: "<|python_tag|>",
    ends: CallsEnd::Reply(None),
    body: CallBody::Plain(body::python_tag),
    ..ANYWHERE
};
/// Llama 3 and 4 with JSON.
static START_OBJECT: Syntax = Syntax {
    name: "json",
    opens: "{",
    ends: CallsEnd::Reply(None),
    place: CallsPlace::Start,
    also: &[
        ("<|python_tag|>", &PYTHON_TAG),
        ("<|start_header_id|>ipython", &PYTHON_TAG),
    ],
    ..ANYWHERE
};
/// xLAM.
static START_LIST: Syntax = Syntax {
    name: "json list",
    opens: "[",
    also: &[],
    ..START_OBJECT
};
/// Llama 3.2 and 4, ToolACE, and Gemma 3 with a template for calls.
static START_PYTHON: Syntax = Syntax {
    name: "pythonic",
    opens: "[",
    body: CallBody::Plain(python::list),
    also: &[
        ("<|python_tag|>", &PYTHON_TAG),
        ("<|start_header_id|>ipython", &PYTHON_TAG),
        ("<|header_start|>", &PYTHON_START),
    ],
    ..START_OBJECT
};
/// Llama 4.
static PYTHON_START: Syntax = Syntax {
    name: "python_start",
    opens: "<|python_start|>",
    ends: CallsEnd::Mark("<|python_end|>"),
    body: CallBody::Plain(body::python_tag),
    ..ANYWHERE
};
/// Granite 3, Phi-4-mini.
static GRANITE: Syntax = Syntax {
    name: "granite",
    opens: "<|tool_call|>",
    ends: CallsEnd::Reply(Some("<|/tool_call|>")),
    told_by: &["<|tool_call|>"],
    ..ANYWHERE
};
static FUNCTOOLS: Syntax = Syntax {
    name: "functools",
    opens: "functools",
    body: CallBody::Plain(body::one_json),
    told_by: &["functools["],
    ..ANYWHERE
};
/// Granite for code.
static FUNCTION_CALL: Syntax = Syntax {
    name: "function_call",
    opens: "<function_call>",
    body: CallBody::Plain(body::one_json),
    told_by: &["<function_call>"],
    ..ANYWHERE
};
/// GigaChat 3.1.
static GIGACHAT: Syntax = Syntax {
    name: "gigachat",
    opens: "<|function_call|>",
    body: CallBody::Plain(body::one_json),
    told_by: &["<|function_call|>"],
    ..ANYWHERE
};
static DEEPSEEK: Syntax = Syntax {
    name: "deepseek",
    opens: "<｜tool▁calls▁begin｜>",
    ends: CallsEnd::Mark("<｜tool▁calls▁end｜>"),
    body: CallBody::Plain(body::deepseek),
    tokens: &[
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
    ],
    told_by: &["<｜tool▁calls▁begin｜>"],
    ..ANYWHERE
};
static DSML: Syntax = Syntax {
    name: "dsml",
    opens: "<｜DSML｜function_calls>",
    ends: CallsEnd::Reply(None),
    body: CallBody::Elements(&elements::DSML),
    tokens: &["｜DSML｜"],
    told_by: &["<｜DSML｜function_calls>"],
    ..ANYWHERE
};
static DSML_4: Syntax = Syntax {
    name: "dsml 4",
    opens: "<｜DSML｜tool_calls>",
    body: CallBody::Elements(&elements::DSML_4),
    told_by: &["<｜DSML｜tool_calls>"],
    ..DSML
};
static APERTUS: Syntax = Syntax {
    name: "apertus",
    opens: "<|tools_prefix|>",
    ends: CallsEnd::Mark("<|tools_suffix|>"),
    body: CallBody::Plain(body::apertus),
    told_by: &["<|tools_prefix|>"],
    ..ANYWHERE
};
/// InternLM 2.
static INTERNLM: Syntax = Syntax {
    name: "internlm",
    opens: "<|action_start|><|plugin|>",
    ends: CallsEnd::Mark("<|action_end|>"),
    tokens: &["<|action_start|>", "<|plugin|>"],
    told_by: &["<|action_start|>"],
    ..ANYWHERE
};
/// Command R7B and A.
static COHERE: Syntax = Syntax {
    name: "cohere",
    opens: "<|START_ACTION|>",
    ends: CallsEnd::Mark("<|END_ACTION|>"),
    told_by: &["<|START_ACTION|>"],
    ..ANYWHERE
};
static KIMI: Syntax = Syntax {
    name: "kimi",
    opens: "<|tool_calls_section_begin|>",
    ends: CallsEnd::Mark("<|tool_calls_section_end|>"),
    body: CallBody::Plain(body::kimi),
    tokens: &[
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
    ],
    told_by: &["<|tool_calls_section_begin|>"],
    ..ANYWHERE
};
static SOLAR: Syntax = Syntax {
    name: "solar",
    opens: "<|tool_calls|>",
    ends: CallsEnd::Mark("<|calls|>"),
    body: CallBody::Plain(body::solar),
    tokens: &[
        "<|tool_call:begin|>",
        "<|tool_call:name|>",
        "<|tool_call:args|>",
        "<|tool_call:end|>",
    ],
    told_by: &["<|tool_calls|>"],
    ..ANYWHERE
};
static LFM2: Syntax = Syntax {
    name: "lfm2",
    opens: "<|tool_call_start|>",
    ends: CallsEnd::Mark("<|tool_call_end|>"),
    body: CallBody::Plain(body::lfm2),
    told_by: &["<|tool_call_start|>", "<|tool_list_start|>"],
    ..ANYWHERE
};
static GEMMA: Syntax = Syntax {
    name: "gemma",
    opens: "<|tool_call>",
    ends: CallsEnd::Reply(None),
    body: CallBody::Marked(&marked::GEMMA),
    tokens: &["<tool_call|>", "<|\"|>", "<|channel>", "<channel|>"],
    quiet: Some(["<|channel>", "<channel|>"]),
    told_by: &["<|tool_call>"],
    ..ANYWHERE
};
static FUNCTION_GEMMA: Syntax = Syntax {
    name: "functiongemma",
    opens: "<start_function_call>",
    ends: CallsEnd::Reply(None),
    body: CallBody::Marked(&marked::FUNCTION_GEMMA),
    tokens: &["<end_function_call>", "<escape>"],
    told_by: &["<start_function_call>"],
    ..ANYWHERE
};
static MINIMAX: Syntax = Syntax {
    name: "minimax",
    opens: "<minimax:tool_call>",
    ends: CallsEnd::Reply(None),
    body: CallBody::Elements(&elements::INVOKE),
    tokens: &["</minimax:tool_call>"],
    told_by: &["<minimax:tool_call>"],
    ..ANYWHERE
};
/// Nemotron Nano 2.
static NEMOTRON: Syntax = Syntax {
    name: "nemotron",
    opens: "<TOOLCALL>",
    ends: CallsEnd::Mark("</TOOLCALL>"),
    told_by: &["<TOOLCALL>"],
    ..ANYWHERE
};
static OLMO: Syntax = Syntax {
    name: "olmo",
    opens: "<function_calls>",
    ends: CallsEnd::Mark("</function_calls>"),
    body: CallBody::Plain(python::lines),
    told_by: &["<function_calls>"],
    ..ANYWHERE
};
/// gpt-oss.
static HARMONY: Syntax = Syntax {
    name: "harmony",
    opens: "<|channel|>",
    body: CallBody::Harmony,
    tokens: &[
        "<|start|>",
        "<|message|>",
        "<|constrain|>",
        "<|end|>",
        "<|call|>",
        "<|return|>",
    ],
    told_by: &["<|channel|>"],
    ..ANYWHERE
};

/// All formats. Where a template leaves calls out, the first one that its prompt tells of counts.
pub(super) static SYNTAXES: [&Syntax; 29] = [
    &SEED,
    &MINIMAX,
    &TOOL_CALLS,
    &TOOL_CALL,
    &FUNCTION,
    &MISTRAL,
    &START_OBJECT,
    &START_LIST,
    &START_PYTHON,
    &PYTHON_START,
    &PYTHON_TAG,
    &GRANITE,
    &FUNCTOOLS,
    &FUNCTION_CALL,
    &GIGACHAT,
    &DEEPSEEK,
    &DSML,
    &DSML_4,
    &APERTUS,
    &INTERNLM,
    &COHERE,
    &KIMI,
    &SOLAR,
    &LFM2,
    &GEMMA,
    &FUNCTION_GEMMA,
    &NEMOTRON,
    &OLMO,
    &HARMONY,
];

/// The formats of the calls of a template.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallFormats {
    /// The formats, the template's own first. There are none if they are unknown.
    pub(crate) syntaxes: Vec<&'static Syntax>,
    /// The texts that the template writes between two values without quotes. See `readings`.
    pub(super) separators: Vec<String>,
    /// True if the prompt of a conversation depends on its tools.
    pub(crate) takes_tools: bool,
    pub(crate) arguments: ArgumentsForm,
    /// The marks around thoughts.
    pub(super) thoughts: Vec<&'static ThoughtMarks>,
    /// The marks around answers after thoughts.
    pub(super) answers: Vec<[&'static str; 2]>,
    /// The text around calls, if the template writes their arguments in JSON.
    pub(super) frame: Option<CallFrame>,
}

/// The form in which a template reads the arguments of earlier calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArgumentsForm {
    /// An object.
    #[default]
    Object,
    /// The text of an object in JSON, as in OpenAI's API.
    Text,
}

/// Gpt-oss writes all of its text in messages, so its format also counts without tools.
static MESSAGES: [&Syntax; 1] = [&HARMONY];

/// Returns the formats that matter for a reply without calls.
pub(super) fn messages_only(syntaxes: &[&'static Syntax]) -> &'static [&'static Syntax] {
    let writes_messages = |syntax: &&Syntax| matches!(syntax.body, CallBody::Harmony);
    if syntaxes.iter().any(writes_messages) {
        &MESSAGES
    } else {
        &[]
    }
}

impl CallFormats {
    /// Returns true if all text is in messages with headers, as that of gpt-oss.
    pub(crate) fn writes_messages(&self) -> bool {
        !messages_only(&self.syntaxes).is_empty()
    }

    pub(crate) fn thoughts(&self) -> &[&'static ThoughtMarks] {
        &self.thoughts
    }

    pub(crate) fn frame(&self) -> Option<&CallFrame> {
        self.frame.as_ref()
    }

    /// Returns true if a control token belongs to a thought, or to the format of all messages.
    pub(crate) fn has_thought_token(&self, spelling: &str) -> bool {
        let is_of_message = |syntax: &&Syntax| syntax.tokens().any(|token| token == spelling);
        self.thoughts.iter().any(|marks| marks.has_token(spelling))
            || messages_only(&self.syntaxes).iter().any(is_of_message)
    }
}

impl Syntax {
    /// Returns the reader of the body, where `first` is the first character after the opening mark.
    pub(super) fn body_with(&self, first: char) -> CallBody {
        let CallBody::ToolCall = self.body else {
            return self.body;
        };
        match first {
            '{' | '[' => CallBody::Plain(body::json),
            '<' => CallBody::Elements(&elements::FUNCTIONS),
            _ => CallBody::Elements(&elements::KEYS_AND_VALUES),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the control tokens that belong to the text of a reply in this format.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &'static str> {
        let closes = match self.ends {
            CallsEnd::Mark(mark) | CallsEnd::Reply(Some(mark)) => Some(mark),
            CallsEnd::Body | CallsEnd::Reply(None) => None,
        };
        [self.opens]
            .into_iter()
            .chain(closes)
            .chain(self.tokens.iter().copied())
    }
}
