//! The formats that both sides read, and the replies that the crate reads differently.

use serde_json::Value;

use crate::calls::Call;

/// A format of calls.
pub(crate) struct Format {
    /// The name of the crate's reader.
    pub(crate) parser: &'static str,
    /// The template that writes the replies, relative to the folder of this project.
    pub(crate) template: &'static str,
    /// The text that the template writes after a reply, where a model writes a token.
    pub(crate) end: &'static str,
    /// The maximum number of calls in a reply.
    pub(crate) most: usize,
    pub(crate) values: Values,
    pub(crate) around: Around,
    /// The marks of the format, for strings.
    pub(crate) marks: &'static [&'static str],
    /// The replies that the crate reads differently although the template wrote them.
    pub(crate) differences: &'static [Difference],
}

/// The notation of strings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    /// Strings have quotes and escapes, so each reply has exactly one reading.
    Quoted,
    /// Strings stand between marks. If one of them contains a mark, the project may report a
    /// problem instead of returning calls.
    Marked,
}

/// The places for text that is not a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Around {
    Nowhere,
    Before,
    BeforeAndAfter,
}

/// A kind of reply that the crate reads differently.
pub(crate) struct Difference {
    /// The reason why the crate is wrong.
    pub(crate) reason: &'static str,
    pub(crate) explains: fn(&Reply) -> bool,
}

/// A reply and the calls that it contains.
pub(crate) struct Reply {
    pub(crate) calls: Vec<Call>,
    pub(crate) text: String,
    /// The reply in the style of the template.
    pub(crate) plain: String,
}

const DEFAULT: Format = Format {
    parser: "",
    template: "",
    end: "<|im_end|>",
    most: 3,
    values: Values::Quoted,
    around: Around::BeforeAndAfter,
    marks: &[],
    differences: &[],
};

/// The tags of Qwen3-Coder.
const FUNCTION_TAGS: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<function=run>",
    "</function>",
    "<parameter=note>",
    "</parameter>",
];

/// The tags of GLM.
const KEY_TAGS: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<arg_key>note</arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
];

const REFERENCES: Difference = Difference {
    reason: "the template writes strings unchanged, and the crate decodes HTML references in them",
    explains: |reply| contains(reply, &["&amp;", "&lt;", "&gt;", "&#39;", "&quot;"]),
};
const WHITE_SPACE: Difference = Difference {
    reason: "the template writes strings unchanged, and the crate removes white space around them",
    explains: |reply| strings(reply).any(|text| text != text.trim()),
};
const PYTHON_NULL: Difference = Difference {
    reason: "the template writes null as None, and the crate returns a string",
    explains: |reply| values(reply).any(Value::is_null),
};
const NULL_STRING: Difference = Difference {
    reason: "the schema allows only strings, and the crate returns null for the string \"null\"",
    explains: |reply| strings(reply).any(|text| text == "null"),
};

/// A string of JSON ends at its quote, so a mark in it has no meaning.
macro_rules! mark_in_json {
    ($($mark:literal),+) => {
        &[Difference {
            reason: "JSON has quotes, and the crate ends a call at a mark in a string",
            explains: |reply| contains(reply, &[$($mark),+]),
        }]
    };
}

/// A value ends at a closing tag only if the text after it continues as the template does.
macro_rules! tag_in_string {
    ($($mark:literal),+) => {
        Difference {
            reason: "the template writes strings unchanged, and the crate ends them at the first tag",
            explains: |reply| contains(reply, &[$($mark),+]),
        }
    };
}

const FUNCTION_DIFFERENCES: &[Difference] = &[
    tag_in_string!(
        "<function=",
        "<parameter=",
        "</parameter>",
        "</function>",
        "</tool_call>"
    ),
    WHITE_SPACE,
    REFERENCES,
    PYTHON_NULL,
    NULL_STRING,
];

const KEY_DIFFERENCES: &[Difference] = &[tag_in_string!("</arg_value>", "</tool_call>")];

pub(crate) const FORMATS: &[Format] = &[
    Format {
        parser: "hermes",
        template: "../../../model/tests/data/templates/Qwen-Qwen3-0.6B.jinja",
        marks: &[
            "<tool_call>",
            "</tool_call>",
            "\n</tool_call>\n<tool_call>\n",
        ],
        differences: mark_in_json!("</tool_call>"),
        ..DEFAULT
    },
    Format {
        parser: "qwen25",
        template: "../../../model/tests/data/templates/Qwen-Qwen2.5-7B-Instruct.jinja",
        marks: &[
            "<tool_call>",
            "</tool_call>",
            "\n</tool_call>\n<tool_call>\n",
        ],
        differences: mark_in_json!("</tool_call>"),
        ..DEFAULT
    },
    Format {
        parser: "qwen3_coder",
        template: "../../../model/tests/data/templates/Qwen3-Coder.jinja",
        values: Values::Marked,
        marks: FUNCTION_TAGS,
        differences: FUNCTION_DIFFERENCES,
        ..DEFAULT
    },
    Format {
        parser: "nemotron_nano",
        template: "../../../model/tests/data/templates/Qwen3.5-4B.jinja",
        values: Values::Marked,
        marks: FUNCTION_TAGS,
        differences: FUNCTION_DIFFERENCES,
        ..DEFAULT
    },
    Format {
        parser: "glm47",
        template: "../../../model/tests/data/templates/GLM-4.6.jinja",
        end: "",
        values: Values::Marked,
        marks: KEY_TAGS,
        differences: KEY_DIFFERENCES,
        ..DEFAULT
    },
    Format {
        parser: "glm47",
        template: "../../../model/tests/data/templates/GLM-4.7-Flash.jinja",
        end: "",
        values: Values::Marked,
        marks: KEY_TAGS,
        differences: KEY_DIFFERENCES,
        ..DEFAULT
    },
    Format {
        parser: "mistral",
        template: "../../../model/tests/data/templates/mistralai-Mistral-Nemo-Instruct-2407.jinja",
        end: "</s>",
        marks: &["[TOOL_CALLS]", "[/TOOL_CALLS]", "[TOOL_CALLS][{"],
        differences: mark_in_json!("[/TOOL_CALLS]"),
        ..DEFAULT
    },
    // The templates of Llama allow one call.
    Format {
        parser: "llama3_json",
        template: "templates/llama3-json.jinja",
        most: 1,
        around: Around::Nowhere,
        marks: &["<|python_tag|>", "; ", "};{"],
        differences: mark_in_json!("<|python_tag|>"),
        ..DEFAULT
    },
    Format {
        parser: "pythonic",
        template: "templates/pythonic.jinja",
        around: Around::Nowhere,
        marks: &[
            "<|python_start|>",
            "<|python_end|>",
            ")]",
            "), run(command=\"a\")",
        ],
        differences: &[
            Difference {
                reason: "the template writes negative numbers, and the crate drops such an argument",
                explains: |reply| values(reply).any(has_negative),
            },
            Difference {
                reason: "Python has quotes, and the crate ends a list at a mark in a string",
                explains: |reply| contains(reply, &["<|python_start|>", "<|python_end|>", ")]"]),
            },
        ],
        ..DEFAULT
    },
    Format {
        parser: "phi4",
        template: "templates/phi4.jinja",
        marks: &["functools", "functools["],
        differences: mark_in_json!("functools"),
        ..DEFAULT
    },
    Format {
        parser: "nemotron_deci",
        template: "../../../model/tests/data/calls/nemotron.jinja",
        marks: &["<TOOLCALL>", "</TOOLCALL>"],
        differences: mark_in_json!("</TOOLCALL>"),
        ..DEFAULT
    },
    Format {
        parser: "jamba",
        template: "templates/jamba.jinja",
        marks: &["<tool_calls>", "</tool_calls>"],
        differences: mark_in_json!("</tool_calls>"),
        ..DEFAULT
    },
    // This template writes text after the calls, as another reply.
    Format {
        parser: "deepseek_v3",
        template: "../../../model/tests/data/templates/deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja",
        end: "<｜end▁of▁sentence｜><｜Assistant｜><｜end▁of▁sentence｜>",
        around: Around::Nowhere,
        marks: &[
            "<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁begin｜>",
            "\n```",
        ],
        differences: mark_in_json!("<｜tool▁call▁end｜>", "```"),
        ..DEFAULT
    },
    Format {
        parser: "deepseek_v3_1",
        template: "../../../model/tests/data/templates/deepseek-ai-DeepSeek-V3.1.jinja",
        end: "<｜end▁of▁sentence｜>",
        marks: &[
            "<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁begin｜>",
        ],
        differences: mark_in_json!("<｜tool▁call▁end｜>"),
        ..DEFAULT
    },
    Format {
        parser: "deepseek_v3_2",
        template: "../../../model/tests/data/templates/deepseek-ai-DeepSeek-V3.2.jinja",
        end: "<｜end▁of▁sentence｜>",
        values: Values::Marked,
        marks: &[
            "</｜DSML｜parameter>",
            "</｜DSML｜invoke>",
            "<｜DSML｜invoke name=\"run\">",
            "</｜DSML｜function_calls>",
        ],
        differences: &[
            tag_in_string!(
                "</｜DSML｜parameter>",
                "</｜DSML｜invoke>",
                "<｜DSML｜invoke",
                "</｜DSML｜function_calls>"
            ),
            WHITE_SPACE,
        ],
        ..DEFAULT
    },
    Format {
        parser: "deepseek_v4",
        template: "templates/deepseek-v4.jinja",
        values: Values::Marked,
        marks: &[
            "</｜DSML｜parameter>",
            "</｜DSML｜invoke>",
            "<｜DSML｜invoke name=\"run\">",
            "</｜DSML｜tool_calls>",
        ],
        differences: &[
            tag_in_string!(
                "</｜DSML｜parameter>",
                "</｜DSML｜invoke>",
                "<｜DSML｜invoke",
                "</｜DSML｜tool_calls>"
            ),
            WHITE_SPACE,
        ],
        ..DEFAULT
    },
    Format {
        parser: "kimi_k2",
        template: "../../../model/tests/data/calls/kimi.jinja",
        marks: &[
            "<|tool_call_end|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
        ],
        differences: mark_in_json!("<|tool_calls_section_end|>"),
        ..DEFAULT
    },
    Format {
        parser: "minimax_m2",
        template: "templates/minimax-m2.jinja",
        values: Values::Marked,
        marks: &[
            "</parameter>",
            "</invoke>",
            "<invoke name=\"run\">",
            "</minimax:tool_call>",
            "<minimax:tool_call>",
        ],
        differences: &[
            tag_in_string!(
                "</parameter>",
                "<invoke",
                "</invoke>",
                "</minimax:tool_call>"
            ),
            WHITE_SPACE,
            REFERENCES,
            NULL_STRING,
        ],
        ..DEFAULT
    },
    // The project takes white space between two strings for the work of an imitation. So a key with
    // a space is a mark, too.
    Format {
        parser: "gemma4",
        template: "templates/gemma4.jinja",
        values: Values::Marked,
        marks: &[
            "<|\"|>",
            "<tool_call|>",
            "<|tool_call>call:",
            "}<tool_call|>",
            "two words",
        ],
        differences: &[
            Difference {
                reason: "the template writes strings unchanged, and the crate ends them at the first mark",
                explains: |reply| contains(reply, &["<|\"|>", "}<tool_call|>"]),
            },
            Difference {
                reason: "the template writes keys unchanged, and the crate accepts only some letters in them",
                explains: |reply| contains(reply, &["two words", "für"]),
            },
        ],
        ..DEFAULT
    },
    // The template writes one call.
    Format {
        parser: "harmony",
        template: "../../../model/tests/data/templates/openai-gpt-oss-120b.jinja",
        end: "",
        most: 1,
        around: Around::Before,
        marks: &[
            "<|call|>",
            "<|end|>",
            "<|channel|>",
            "<|message|>",
            "<|start|>assistant",
        ],
        differences: mark_in_json!("<|call|>", "<|end|>"),
        ..DEFAULT
    },
];

/// Returns true if a string or key in the calls contains one of the texts.
fn contains(reply: &Reply, texts: &[&str]) -> bool {
    let mut strings = reply.calls.iter().flat_map(Call::strings);
    strings.any(|string| texts.iter().any(|text| string.contains(text)))
}

/// Returns the arguments of all calls.
fn values(reply: &Reply) -> impl Iterator<Item = &Value> {
    let calls = reply.calls.iter();
    calls.flat_map(|call| {
        call.arguments
            .as_object()
            .into_iter()
            .flat_map(|all| all.values())
    })
}

/// Returns the arguments that are strings.
fn strings(reply: &Reply) -> impl Iterator<Item = &str> {
    values(reply).filter_map(Value::as_str)
}

fn has_negative(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|number| number < 0.0),
        Value::Array(values) => values.iter().any(has_negative),
        Value::Object(entries) => entries.values().any(has_negative),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}
