//! The marks around the thoughts of models, a row each.
//!
//! A model that was trained to reason writes its thoughts in front of its reply. Some templates
//! begin the thought in the prompt, so that the reply only has the closing mark.

/// The marks around a thought.
#[derive(Debug)]
pub(crate) struct ThoughtMarks {
    pub(crate) open: &'static str,
    pub(crate) close: &'static str,
    /// The control tokens in the marks, by their names. In some vocabularies they are text.
    tokens: &'static [&'static str],
    /// Marks around the text after a thought, of which the source of the template contains the
    /// first one.
    pub(crate) answers: &'static [[&'static str; 2]],
}

const NO_ANSWER: &[[&str; 2]] = &[];

/// DeepSeek, Qwen, GLM, Kimi, MiniMax, Nemotron, and most others. Granite 3.3 and ERNIE write their
/// response between marks, and Hunyuan its answer.
static THINK: ThoughtMarks = ThoughtMarks {
    open: "<think>",
    close: "</think>",
    tokens: &["<think>", "</think>"],
    answers: &[["<response>", "</response>"], ["<answer>", "</answer>"]],
};

/// The marks that only models of some templates use.
static OTHERS: [ThoughtMarks; 8] = [
    // Magistral, Ministral.
    ThoughtMarks {
        open: "[THINK]",
        close: "[/THINK]",
        tokens: &["[THINK]", "[/THINK]"],
        answers: NO_ANSWER,
    },
    // Seed-OSS.
    ThoughtMarks {
        open: "<seed:think>",
        close: "</seed:think>",
        tokens: &["<seed:think>", "</seed:think>"],
        answers: NO_ANSWER,
    },
    // Apertus.
    ThoughtMarks {
        open: "<|inner_prefix|>",
        close: "<|inner_suffix|>",
        tokens: &["<|inner_prefix|>", "<|inner_suffix|>"],
        answers: NO_ANSWER,
    },
    // Gemma 4.
    ThoughtMarks {
        open: "<|channel>thought",
        close: "<channel|>",
        tokens: &["<|channel>", "<channel|>"],
        answers: NO_ANSWER,
    },
    // Command A Reasoning. The marks around its response are control tokens without text.
    ThoughtMarks {
        open: "<|START_THINKING|>",
        close: "<|END_THINKING|>",
        tokens: &["<|START_THINKING|>", "<|END_THINKING|>"],
        answers: NO_ANSWER,
    },
    // EXAONE Deep.
    ThoughtMarks {
        open: "<thought>",
        close: "</thought>",
        tokens: &["<thought>", "</thought>"],
        answers: NO_ANSWER,
    },
    // Kimi-VL.
    ThoughtMarks {
        open: "◁think▷",
        close: "◁/think▷",
        tokens: &["◁think▷", "◁/think▷"],
        answers: NO_ANSWER,
    },
    // Apriel.
    ThoughtMarks {
        open: "Here are my reasoning steps:",
        close: "[BEGIN FINAL RESPONSE]",
        tokens: &["[BEGIN FINAL RESPONSE]"],
        answers: &[],
    },
];

/// Returns the marks that models of a template may use. `source` is the text of the template, and
/// `quiet` are the marks around text in which its format of calls has no calls.
///
/// `<think>` is always among them, because many models reason although their template does not show
/// it.
pub(crate) fn marks(source: &str, quiet: &[[&str; 2]]) -> Vec<&'static ThoughtMarks> {
    let is_used = |marks: &&ThoughtMarks| {
        source.contains(marks.open)
            || source.contains(marks.close)
            || quiet.iter().any(|[_, close]| *close == marks.close)
    };
    let others = OTHERS.iter().filter(is_used);
    std::iter::once(&THINK).chain(others).collect()
}

impl ThoughtMarks {
    /// Returns true if a control token belongs to the marks.
    pub(crate) fn has_token(&self, spelling: &str) -> bool {
        self.tokens.contains(&spelling)
    }
}
