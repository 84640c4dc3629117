//! Rendering of conversations with a chat template: the model's own, a file, or ChatML.

use std::path::{Path, PathBuf};

use warpwright_model::chat::{CallStream, ChatTemplate, Conversation, Date, Then, Tools, Value};
use warpwright_model::{Model, Tokenizer, chat, unique_keys};

use crate::failure::Failure;
use crate::prompt::limited;
use crate::prompt::message::{Message, USER};
use warpwright_emu::terminal::say;

/// Options about how a conversation is rendered.
#[derive(clap::Args)]
#[command(next_help_heading = "Conversations")]
pub(crate) struct TemplateArgs {
    /// System message, which comes first in the conversation
    #[arg(
        long,
        alias = "system-prompt",
        value_name = "TEXT",
        allow_hyphen_values = true
    )]
    system: Option<String>,
    /// Chat template to use instead of the model's: a Jinja file, or chatml
    #[arg(long, alias = "chat-template-file", value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// JSON file with the tools that the model may call, as in OpenAI's API
    ///
    /// The file is a list of functions: [{"type": "function", "function": {"name": "..",
    /// "description": "..", "parameters": {..}}}], where parameters is a JSON schema. The chat
    /// template decides how the model writes calls. If that format is not supported, there is a
    /// warning, and calls appear as text with their control tokens.
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Additional variables for the template, such as '{"enable_thinking": false}'
    #[arg(long, value_name = "JSON", value_parser = variables)]
    chat_template_kwargs: Option<Variables>,
    /// Date for templates that contain the current date, as YYYY-MM-DD [default: today in UTC]
    #[arg(long, value_name = "DATE", value_parser = date)]
    date: Option<Date>,
}

/// The variables of `--chat-template-kwargs`.
#[derive(Clone, Debug, Default)]
struct Variables(Vec<(String, Value)>);

/// Parses the value of `--date`.
pub(crate) fn date(text: &str) -> Result<Date, String> {
    text.parse()
        .map_err(|_| "expected a date, such as 2026-11-23".to_owned())
}

/// Parses the value of `--chat-template-kwargs`.
fn variables(text: &str) -> Result<Variables, String> {
    let wrong = |error: serde_json::Error| {
        format!("expected a JSON object, such as {{\"enable_thinking\": false}}: {error}")
    };
    let names: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(wrong)?;
    unique_keys(text.as_bytes()).map_err(|problem| format!("it {problem}"))?;
    if names.contains_key("messages") {
        return Err(
            "messages is the conversation itself: use --prompt and --system instead".to_owned(),
        );
    }

    // serde_json's map sorts the keys. The values are read again, because templates must see the
    // keys of an object in the order of the text.
    let ordered: Value = serde_json::from_str(text).map_err(wrong)?;
    let mut variables = vec![];
    for name in names.into_iter().map(|(name, _)| name) {
        if let Some(value) = ordered.get(&name) {
            variables.push((name, value.clone()));
        }
    }

    Ok(Variables(variables))
}

impl TemplateArgs {
    /// Returns the system message, if there is one.
    pub(crate) fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Reads and checks the tools.
    fn tools(&self) -> Result<Option<Tools>, Failure> {
        let Some(file) = &self.tools else {
            return Ok(None);
        };
        let tools = Tools::new(&limited::read("tools", file)?);
        tools
            .map(Some)
            .map_err(|problem| Failure::Input(format!("{} {problem}", file.display())))
    }

    /// Returns the first of these options that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--system", self.system.is_some()),
            ("--chat-template", self.chat_template.is_some()),
            ("--tools", self.tools.is_some()),
            (
                "--chat-template-kwargs",
                self.chat_template_kwargs.is_some(),
            ),
            ("--date", self.date.is_some()),
        ];
        given
            .into_iter()
            .find(|(_, given)| *given)
            .map(|(option, _)| option)
    }
}

/// A chat template with its variables and tools.
pub(crate) struct ConfiguredTemplate {
    template: ChatTemplate,
    variables: Vec<(String, Value)>,
    tools: Option<Tools>,
    /// The file of the template, for messages.
    path: PathBuf,
}

/// The ChatML template: each message is between `<|im_start|>ROLE` and `<|im_end|>`.
pub(crate) const CHATML: &str = "{%- for message in messages -%}\
     {{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\
     {%- endfor -%}\
     {%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

impl ConfiguredTemplate {
    /// Opens the template that the options select.
    ///
    /// # Errors
    /// Returns an error if there is no template, if it is not valid, or if it ignores the tools of
    /// `--tools`.
    pub(crate) fn open(args: &TemplateArgs, model: &Model) -> Result<ConfiguredTemplate, Failure> {
        let tools = args.tools()?;
        let path = args.chat_template.as_deref().unwrap_or(model.files.path());

        // A model may have a separate template for tools.
        let found = match &args.chat_template {
            None if tools.is_some() => model.chat_template_with_tools(),
            None => model.chat_template(),
            Some(name) if name == Path::new("chatml") => {
                model.chat_template_from(name, CHATML).map(Some)
            }
            Some(file) => model
                .chat_template_from(file, &limited::read("chat template", file)?)
                .map(Some),
        };
        let found = found.map_err(|error| Failure::Input(format!("{error}; {INSTEAD}")))?;
        let none = || {
            Failure::Input(format!(
                "{} has no chat template; {INSTEAD}",
                path.display()
            ))
        };
        let mut template = found.ok_or_else(none)?;
        // Any text is a template, for example a file of another kind that was named by mistake.
        if !template.mentions("messages") {
            return Err(Failure::Input(format!(
                "{}: the chat template does not use `messages`, so the model would not see the conversation; {INSTEAD}",
                path.display()
            )));
        }
        template.set_date(args.date.unwrap_or_else(chat::today));
        let variables = args.chat_template_kwargs.clone().unwrap_or_default().0;
        let template = ConfiguredTemplate {
            template,
            variables,
            tools,
            path: path.to_owned(),
        };
        template.check_tools()?;
        Ok(template)
    }

    /// Checks that the template passes the tools on to the model.
    fn check_tools(&self) -> Result<(), Failure> {
        if self.tools.is_none() {
            return Ok(());
        }

        let probe = self.conversation([&Message::new(USER, "x")]);
        let shows_tools = self
            .template
            .tells_tools(&probe)
            .map_err(|error| self.fault(&error))?;

        // The model would answer as if there were no tools, and the user would not see why.
        if !shows_tools {
            return Err(Failure::Input(format!(
                "{}: the chat template ignores the tools of --tools; use another one with --chat-template FILE, or leave \
                 --tools out",
                self.path.display()
            )));
        }

        if !self.template.knows_calls() {
            say(
                "warning: the format of tool calls in this template is not supported: calls are shown as text",
            );
        }

        Ok(())
    }

    /// Returns the input of the template.
    fn conversation<'m>(&self, messages: impl IntoIterator<Item = &'m Message>) -> Conversation {
        Conversation {
            messages: messages.into_iter().map(Message::value).collect(),
            tools: self.tools.as_ref().map(Tools::value),
            more: self.variables.clone(),
        }
    }

    /// Renders a conversation up to the point where the assistant continues.
    ///
    /// # Errors
    /// Returns an error if the template fails or renders nothing.
    pub(crate) fn text<'m>(
        &self,
        messages: impl IntoIterator<Item = &'m Message>,
    ) -> Result<String, Failure> {
        let rendered = self
            .template
            .render(&self.conversation(messages), Then::Reply);
        let text = rendered.map_err(|error| self.fault(&error))?.text;
        if text.is_empty() {
            return Err(Failure::Input(format!(
                "{}: the chat template renders the conversation as an empty text; {INSTEAD}",
                self.path.display()
            )));
        }

        Ok(text)
    }

    fn fault(&self, error: &warpwright_model::Error) -> Failure {
        Failure::Input(format!("{}: {error}; {INSTEAD}", self.path.display()))
    }

    /// Returns the tokens of a conversation. BOS is not added, because the template contains it
    /// where it belongs.
    ///
    /// # Errors
    /// Returns an error if the template fails or renders nothing.
    pub(crate) fn tokens<'m>(
        &self,
        messages: impl IntoIterator<Item = &'m Message>,
        words: &Tokenizer,
    ) -> Result<Vec<u32>, Failure> {
        Ok(words.encode_rendered(&self.text(messages)?)?)
    }

    /// Returns a parser for the tool calls in the reply to a conversation, if there are tools.
    ///
    /// `prompt` is the text that the template renders from `messages`.
    pub(crate) fn calls<'m>(
        &self,
        messages: impl IntoIterator<Item = &'m Message>,
        prompt: &str,
    ) -> Option<CallStream<'_>> {
        let tools = self.tools.as_ref()?;
        let conversation = self.conversation(messages);
        Some(self.template.calls(tools, &conversation, prompt))
    }

    /// Returns true if a control token belongs in the text of a reply, because there are tools and
    /// it may mark a call.
    pub(crate) fn shows_token(&self, spelling: &str) -> bool {
        self.tools.is_some() && self.template.shows_token(spelling)
    }

    /// Returns true if `tool` is not the name of a tool.
    pub(crate) fn lacks(&self, tool: &str) -> bool {
        self.tools
            .as_ref()
            .is_none_or(|tools| tools.names().all(|name| name != tool))
    }
}

/// The end of error messages about a template.
const INSTEAD: &str = "select a template with --chat-template FILE or --chat-template chatml; `warpwright run \
                       MODEL TEXT` continues a text without one";
