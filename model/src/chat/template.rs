//! A compiled chat template.

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::calls::{self, ArgumentsForm, CallFormats, CallStream, ForeignText, Tools};
use super::renderer::{Conversation, Rendered, Renderer, Then};
use super::reply_grammar::{self, ReplyForms, ReplyFrame};
use crate::tokenizer::codec::Tokenizer;

/// A model's chat template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    renderer: Renderer,
    /// The text of the template.
    source: Arc<str>,
    /// The formats of its calls of tools, once they have been looked for.
    formats: OnceLock<CallFormats>,
}

impl ChatTemplate {
    /// Compiles a template. `special` has the variables that contain the name of a token, such as
    /// `bos_token`.
    ///
    /// # Errors
    /// Returns an error with the line if the text is not a template in Jinja.
    pub fn new(
        text: &str,
        special: Vec<(&'static str, String)>,
    ) -> Result<ChatTemplate, crate::Error> {
        ChatTemplate::compiled(text, special).map_err(crate::Error::Chat)
    }

    pub(super) fn compiled(
        text: &str,
        special: Vec<(&'static str, String)>,
    ) -> Result<ChatTemplate, String> {
        Ok(ChatTemplate {
            renderer: Renderer::new(text, special)?,
            source: Arc::from(text),
            formats: OnceLock::new(),
        })
    }

    /// Returns the text of the template.
    pub fn text(&self) -> &str {
        &self.source
    }

    /// Returns true if the template marks the assistant's replies with `{% generation %}`.
    pub fn marks_replies(&self) -> bool {
        self.renderer.marks_replies()
    }

    /// Returns true if the template reads the date of the day.
    pub fn asks_date(&self) -> bool {
        self.renderer.asks_date()
    }

    /// Returns the date that was set.
    pub fn date(&self) -> Option<Date> {
        self.renderer.date
    }

    /// Sets the date that `strftime_now` returns. Without it, a template that reads the date fails.
    ///
    /// The time of the day is always midnight, because the text must not depend on the moment of
    /// rendering.
    pub fn set_date(&mut self, date: Date) {
        self.renderer.date = Some(date);
    }

    /// Returns the formats of the calls that the template writes, and finds them at the first call.
    fn formats(&self) -> &CallFormats {
        self.formats
            .get_or_init(|| calls::formats(&self.renderer, &self.source))
    }

    /// Finds the formats of calls and thoughts now, so that copies of the template have them too.
    /// This renders some conversations.
    pub fn find_formats(&self) {
        self.formats();
    }

    /// Returns true if the format of the calls that the template writes is known.
    pub fn knows_calls(&self) -> bool {
        !self.formats().syntaxes.is_empty()
    }

    /// Returns true if the template contains a text, for example the name of a variable.
    pub fn mentions(&self, text: &str) -> bool {
        self.source.contains(text)
    }

    /// Returns true if the template passes tools on to the model, without an additional variable.
    pub fn takes_tools(&self) -> bool {
        self.formats().takes_tools
    }

    /// Returns the form in which the template reads the arguments of earlier calls.
    pub fn arguments_form(&self) -> ArgumentsForm {
        self.formats().arguments
    }

    /// Returns the names of the formats of calls that models of this template use, the template's
    /// own first.
    pub fn call_formats(&self) -> Vec<&'static str> {
        let syntaxes = self.formats().syntaxes.iter();
        syntaxes.map(|syntax| syntax.name()).collect()
    }

    /// Returns true if a control token belongs in the text of a reply, because it may mark a call.
    /// If the format of calls is unknown, every control token may.
    pub fn shows_token(&self, spelling: &str) -> bool {
        let formats = &self.formats().syntaxes;
        formats.is_empty()
            || formats
                .iter()
                .any(|syntax| syntax.tokens().any(|token| token == spelling))
    }

    /// Returns a reader that finds calls of these tools in the reply to a conversation. `prompt` is
    /// the text of the conversation, as [`render`](ChatTemplate::render) returned it.
    ///
    /// The messages matter because a model may copy their text into a value. If a value without
    /// quotes contains the tags of its own format, this text shows that the tags do not belong to
    /// the reply.
    pub fn calls<'a>(
        &'a self,
        tools: &'a Tools,
        conversation: &Conversation,
        prompt: &str,
    ) -> CallStream<'a> {
        let foreign = ForeignText::new(&conversation.messages, conversation.tools.as_ref());
        CallStream::new(self.formats(), tools, foreign, prompt)
    }

    /// Returns a reader of the reply to a conversation that separates thoughts from text, and finds
    /// calls if there are tools. The other arguments are those of [`calls`](ChatTemplate::calls).
    ///
    /// The text of the reply must contain the control tokens that
    /// [`shows_in_reply`](ChatTemplate::shows_in_reply) accepts.
    pub fn reply<'a>(
        &'a self,
        tools: Option<&'a Tools>,
        conversation: &Conversation,
        prompt: &str,
    ) -> CallStream<'a> {
        let foreign = tools.map_or(ForeignText::default(), |_| {
            ForeignText::new(&conversation.messages, conversation.tools.as_ref())
        });
        CallStream::with_thoughts(self.formats(), tools, foreign, prompt)
    }

    /// Returns true if a control token belongs in the text that [`reply`](ChatTemplate::reply)
    /// reads, because it may mark a thought, or a call if there are tools.
    pub fn shows_in_reply(&self, tools: Option<&Tools>, spelling: &str) -> bool {
        self.formats().has_thought_token(spelling) || tools.is_some() && self.shows_token(spelling)
    }

    /// Returns the grammar of a reply to a prompt around the grammar of its answer: thoughts may come
    /// first, and calls may be allowed. Returns `None` if calls cannot be forced in the format of
    /// the template.
    ///
    /// [`GrammarCompiler::compile_framed`](crate::GrammarCompiler::compile_framed) compiles it.
    pub fn frame(
        &self,
        prompt: &str,
        forms: &ReplyForms<'_>,
        tokenizer: &Tokenizer,
    ) -> Option<ReplyFrame> {
        reply_grammar::frame(self.formats(), &self.source, prompt, forms, tokenizer)
    }

    /// Returns true if the text of a conversation depends on its tools.
    ///
    /// # Errors
    /// Returns the error of [`render`](ChatTemplate::render) with tools.
    pub fn tells_tools(&self, conversation: &Conversation) -> Result<bool, crate::Error> {
        let without = self.render(
            &Conversation {
                tools: None,
                ..conversation.clone()
            },
            Then::Reply,
        );
        let with = self.render(conversation, Then::Reply)?;
        Ok(without.map_or(true, |without| without != with))
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// Returns an error if the template refuses the conversation, or if it does something that is
    /// not supported.
    pub fn render(
        &self,
        conversation: &Conversation,
        then: Then,
    ) -> Result<Rendered, crate::Error> {
        self.renderer
            .render(conversation, then)
            .map_err(crate::Error::Chat)
    }
}

/// Returns the date of this day in UTC, because a local date would depend on the environment.
pub fn today() -> Date {
    TimeZone::UTC.to_datetime(Timestamp::now()).date()
}
