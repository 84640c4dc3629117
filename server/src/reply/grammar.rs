//! The grammar of a reply: the format that the client demands, forced calls, and thoughts in front
//! of both.

use warpwright_model::chat::{AnswerForm, CallCount, CallForms, ReplyForms, ReplyFrame};
use warpwright_model::{Grammar, GrammarText};

use super::prompt::{RenderedChat, ReplyBegin};
use super::request::{CallLimit, ToolChoice};
use crate::error::RequestError;
use crate::models::ServedModel;

/// Compiles the grammar of a reply, if it has one. This can take seconds.
///
/// # Errors
/// Returns an error if the format cannot be compiled, or if calls are forced for a template whose
/// format of calls a grammar cannot force.
pub(super) fn compile(
    model: &ServedModel,
    chat: Option<&RenderedChat>,
    format: Option<&GrammarText>,
) -> Result<Option<Grammar>, RequestError> {
    let Some(chat) = chat else {
        return plain(model, format);
    };
    let forced = is_forced(&chat.tool_choice);
    if !forced && format.is_none() {
        return Ok(None);
    }
    if chat.begin == ReplyBegin::Continued {
        if forced {
            return Err(RequestError::invalid(
                "tool_choice",
                "a call cannot be forced where the reply continues a message of the assistant",
            ));
        }
        return plain(model, format);
    }

    // A forced call comes in place of an answer. Otherwise the model may also call tools.
    let answer = if forced {
        AnswerForm::None
    } else {
        AnswerForm::Grammar
    };
    let calls = chat.tools.as_ref().map(|tools| CallForms {
        tools,
        function: match &chat.tool_choice {
            ToolChoice::Function(name) => Some(name),
            ToolChoice::None | ToolChoice::Auto | ToolChoice::Required => None,
        },
        count: match chat.call_limit {
            CallLimit::One => CallCount::One,
            CallLimit::Many => CallCount::Many,
        },
    });
    let forms = ReplyForms { answer, calls };
    let frame = chat.template.frame(&chat.text, &forms, &model.tokenizer);
    let frame = frame.ok_or_else(|| no_frame(&chat.tool_choice))?;
    let text = if forced { None } else { format };
    match frame {
        ReplyFrame::Answer => plain(model, text),
        ReplyFrame::Lark(frame) => {
            let grammar = model.grammars.compile_framed(&frame, text);
            let field = if forced { "tools" } else { FORMAT };
            grammar
                .map(Some)
                .map_err(|error| RequestError::invalid(field, error.to_string()))
        }
    }
}

/// The field whose grammar a client most likely has set.
const FORMAT: &str = "response_format";

fn is_forced(choice: &ToolChoice) -> bool {
    match choice {
        ToolChoice::Required | ToolChoice::Function(_) => true,
        ToolChoice::None | ToolChoice::Auto => false,
    }
}

fn plain(
    model: &ServedModel,
    format: Option<&GrammarText>,
) -> Result<Option<Grammar>, RequestError> {
    let grammar = format.map(|format| model.grammars.compile(format));
    grammar
        .transpose()
        .map_err(|error| RequestError::invalid(FORMAT, error.to_string()))
}

/// Returns the error about calls that a grammar cannot contain.
fn no_frame(choice: &ToolChoice) -> RequestError {
    if is_forced(choice) {
        return RequestError::invalid(
            "tool_choice",
            "a call cannot be forced with the chat template of this model, because it does not write the arguments of \
             calls in JSON; use the tool_choice auto or none",
        );
    }
    RequestError::invalid(
        FORMAT,
        "a format cannot be combined with tools for the chat template of this model, because it does not write the \
         arguments of calls in JSON; leave one of them out, or use the tool_choice none",
    )
}
