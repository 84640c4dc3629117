//! Conversations on their way to a model: its chat template, or another one.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use warpwright_engine::chat::{self, ChatTemplate, Conversation, Date, Then, Value};
use warpwright_engine::{Model, Tokenizer};

use crate::failure::Failure;
use crate::limited;

#[derive(clap::Args)]
#[command(next_help_heading = "Conversations")]
pub(crate) struct TemplateArgs {
    /// What the system says before all others
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    system: Option<String>,
    /// Chat template in place of the model's: a file in Jinja, or chatml
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// More variables of the template, as JSON: '{"enable_thinking": false}'
    #[arg(long, value_name = "JSON", value_parser = variables)]
    chat_template_kwargs: Option<Variables>,
    /// Date of the day for templates that ask for it, YYYY-MM-DD [default: today, in UTC]
    #[arg(long, value_name = "DATE", value_parser = date)]
    date: Option<Date>,
}

#[derive(Clone, Debug, Default)]
struct Variables(Vec<(String, Value)>);

/// A date, as `--date` has it.
pub(crate) fn date(text: &str) -> Result<Date, String> {
    text.parse().map_err(|_| "no date; 2026-11-23 is one".to_owned())
}

fn variables(text: &str) -> Result<Variables, String> {
    let wrong =
        |error: serde_json::Error| format!("no JSON object, such as {{\"enable_thinking\": false}}: {error}");
    let names: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).map_err(wrong)?;
    // Templates see the keys of an object in the order of the text.
    let ordered: Value = serde_json::from_str(text).map_err(wrong)?;
    Ok(Variables(
        names
            .into_iter()
            .filter_map(|(name, _)| Some((name.clone(), ordered.get_attr(&name).ok()?)))
            .collect(),
    ))
}

impl TemplateArgs {
    /// What the system says.
    pub(crate) fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// An option that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--system", self.system.is_some()),
            ("--chat-template", self.chat_template.is_some()),
            ("--chat-template-kwargs", self.chat_template_kwargs.is_some()),
            ("--date", self.date.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }
}

/// What somebody says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Message {
    pub(crate) role: String,
    pub(crate) content: String,
}

impl Message {
    pub(crate) fn new(role: &str, content: &str) -> Message {
        Message { role: role.to_owned(), content: content.to_owned() }
    }
}

/// A template with its variables.
pub(crate) struct Template {
    template: ChatTemplate,
    variables: Vec<(String, Value)>,
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
        let path = args.chat_template.as_deref().unwrap_or(model.files.path());
        let found = match &args.chat_template {
            None => model.chat_template(),
            Some(name) if name == Path::new("chatml") => model.chat_template_from(name, CHATML).map(Some),
            Some(file) => model.chat_template_from(file, &limited::read("chat template", file)?).map(Some),
        };
        let found = found.map_err(|error| Failure::Input(format!("{error}; {INSTEAD}")))?;
        let none = || Failure::Input(format!("{} has no chat template; {INSTEAD}", path.display()));
        let mut template = found.ok_or_else(none)?;
        template.set_date(args.date.unwrap_or_else(chat::today));
        let variables = args.chat_template_kwargs.clone().unwrap_or_default().0;
        Ok(Template { template, variables, path: path.to_owned() })
    }

    /// The tokens of a conversation that the assistant is to continue.
    pub(crate) fn tokens<'m>(
        &self,
        messages: impl IntoIterator<Item = &'m Message>,
        words: &Tokenizer,
    ) -> Result<Vec<u32>, Failure> {
        let message =
            |Message { role, content }: &Message| Value::from_pairs([("role", role), ("content", content)]);
        let messages = messages.into_iter().map(message).collect();
        let conversation = Conversation { messages, tools: None, more: self.variables.clone() };
        let rendered = self.template.render(&conversation, Then::Reply);
        let path = self.path.display();
        let rendered = rendered.map_err(|error| Failure::Input(format!("{path}: {error}; {INSTEAD}")))?;
        // The template has put BOS where it belongs.
        Ok(words.encode_rendered(&rendered.text)?)
    }
}

/// How to go on without a template.
const INSTEAD: &str = "give another with --chat-template FILE, or --chat-template chatml, or continue texts without \
                       one: run without --chat";
