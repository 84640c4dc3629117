//! Conversations on their way to a model: its chat template, or another one.

use std::path::{Path, PathBuf};

use warpwright_engine::chat::{
    self, CallStream, ChatTemplate, Conversation, Date, Then, Tools, Value,
};
use warpwright_engine::{Model, Tokenizer, unique_keys};

use crate::failure::Failure;
use crate::limited;
use crate::message::{Message, USER};
use crate::terminal::say;

#[derive(clap::Args)]
#[command(next_help_heading = "Conversations")]
pub(crate) struct TemplateArgs {
    /// System message, the first message of the conversation
    #[arg(
        long,
        alias = "system-prompt",
        value_name = "TEXT",
        allow_hyphen_values = true
    )]
    system: Option<String>,
    /// Chat template to use instead of the model's: a file in Jinja, or chatml
    #[arg(long, alias = "chat-template-file", value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// JSON file with the tools that the model may call: a list of functions, as in OpenAI's API
    ///
    /// The list has the form [{"type": "function", "function": {"name": "..", "description": "..", "parameters": {..}}}],
    /// where parameters is a JSON schema. The chat template decides how the model writes calls. If that format is unknown,
    /// a warning says so, and calls appear as text together with their control tokens.
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Additional variables of the template, such as '{"enable_thinking": false}'
    #[arg(long, value_name = "JSON", value_parser = variables)]
    chat_template_kwargs: Option<Variables>,
    /// Date for templates that ask for it, as YYYY-MM-DD [default: today in UTC]
    #[arg(long, value_name = "DATE", value_parser = date)]
    date: Option<Date>,
}

#[derive(Clone, Debug, Default)]
struct Variables(Vec<(String, Value)>);

/// A date, as `--date` has it.
pub(crate) fn date(text: &str) -> Result<Date, String> {
    text.parse()
        .map_err(|_| "no date; 2026-11-23 is one".to_owned())
}

fn variables(text: &str) -> Result<Variables, String> {
    let wrong = |error: serde_json::Error| {
        format!("no JSON object, such as {{\"enable_thinking\": false}}: {error}")
    };
    let names: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(wrong)?;
    unique_keys(text.as_bytes()).map_err(|problem| format!("it {problem}"))?;
    if names.contains_key("messages") {
        return Err("messages are the conversation; say it with --prompt or --system".to_owned());
    }
    // Templates see the keys of an object in the order of the text.
    let ordered: Value = serde_json::from_str(text).map_err(wrong)?;
    Ok(Variables(
        names
            .into_iter()
            .filter_map(|(name, _)| Some((name.clone(), ordered.get(&name)?.clone())))
            .collect(),
    ))
}

impl TemplateArgs {
    /// What the system says.
    pub(crate) fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// The tools, checked.
    fn tools(&self) -> Result<Option<Tools>, Failure> {
        let Some(file) = &self.tools else {
            return Ok(None);
        };
        let tools = Tools::new(&limited::read("tools", file)?);
        tools
            .map(Some)
            .map_err(|problem| Failure::Input(format!("{} {problem}", file.display())))
    }

    /// An option that was given.
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

/// A template with its variables.
pub(crate) struct Template {
    template: ChatTemplate,
    variables: Vec<(String, Value)>,
    tools: Option<Tools>,
    /// The file that it is in.
    path: PathBuf,
}

/// The template that many models have, by the name of its format: what is said is between `<|im_start|>`, with who says
/// it, and `<|im_end|>`.
const CHATML: &str = "{%- for message in messages -%}\
     {{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\
     {%- endfor -%}\
     {%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

impl Template {
    /// The template that the arguments ask for.
    pub(crate) fn open(args: &TemplateArgs, model: &Model) -> Result<Template, Failure> {
        let tools = args.tools()?;
        let path = args.chat_template.as_deref().unwrap_or(model.files.path());
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
        template.set_date(args.date.unwrap_or_else(chat::today));
        let variables = args.chat_template_kwargs.clone().unwrap_or_default().0;
        let template = Template {
            template,
            variables,
            tools,
            path: path.to_owned(),
        };
        template.check_tools()?;
        Ok(template)
    }

    /// Refuses tools of which the template would not tell the model.
    fn check_tools(&self) -> Result<(), Failure> {
        if self.tools.is_none() {
            return Ok(());
        }
        let asked = self.conversation([&Message::new(USER, "x")]);
        if !self
            .template
            .tells_tools(&asked)
            .map_err(|error| self.fault(&error))?
        {
            return Err(Failure::Input(format!(
                "{}: the chat template leaves out what --tools gives, and the model would not know of it; give another \
                 with --chat-template FILE, or leave --tools out",
                self.path.display()
            )));
        }
        if !self.template.knows_calls() {
            say(
                "warning: it is not known how this template writes calls of tools: they are shown as text",
            );
        }
        Ok(())
    }

    fn conversation<'m>(&self, messages: impl IntoIterator<Item = &'m Message>) -> Conversation {
        Conversation {
            messages: messages.into_iter().map(Message::value).collect(),
            tools: self.tools.as_ref().map(Tools::value),
            more: self.variables.clone(),
        }
    }

    /// The text of a conversation that the assistant is to continue.
    pub(crate) fn text<'m>(
        &self,
        messages: impl IntoIterator<Item = &'m Message>,
    ) -> Result<String, Failure> {
        let rendered = self
            .template
            .render(&self.conversation(messages), Then::Reply);
        let text = rendered.map_err(|error| self.fault(&error))?.text;
        match text.is_empty() {
            true => Err(Failure::Input(format!(
                "{}: the chat template makes no text of the conversation; {INSTEAD}",
                self.path.display()
            ))),
            false => Ok(text),
        }
    }

    fn fault(&self, error: &warpwright_engine::Error) -> Failure {
        Failure::Input(format!("{}: {error}; {INSTEAD}", self.path.display()))
    }

    /// The tokens of such a text. The template has put BOS where it belongs.
    pub(crate) fn tokens<'m>(
        &self,
        messages: impl IntoIterator<Item = &'m Message>,
        words: &Tokenizer,
    ) -> Result<Vec<u32>, Failure> {
        Ok(words.encode_rendered(&self.text(messages)?)?)
    }

    /// Returns a reader that finds calls in the reply to a conversation, if there are tools. `prompt` is its text.
    pub(crate) fn calls<'m>(
        &self,
        messages: impl IntoIterator<Item = &'m Message>,
        prompt: &str,
    ) -> Option<CallStream<'_>> {
        let tools = self.tools.as_ref()?;
        let conversation = self.conversation(messages);
        Some(self.template.calls(tools, &conversation, prompt))
    }

    /// Returns true if a control token belongs in the text of a reply, because there are tools and it may mark a call.
    pub(crate) fn shows_token(&self, spelling: &str) -> bool {
        self.tools.is_some() && self.template.shows_token(spelling)
    }

    /// Whether there is no such tool.
    pub(crate) fn lacks(&self, tool: &str) -> bool {
        self.tools
            .as_ref()
            .is_none_or(|tools| tools.names().all(|name| name != tool))
    }
}

/// How to go on without a template.
const INSTEAD: &str = "give another with --chat-template FILE, or --chat-template chatml; `warpwright run MODEL TEXT` \
                       continues a text without one";
