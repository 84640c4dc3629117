//! The commands of `chat`: lines that begin with a slash.

use std::path::{Path, PathBuf};

use serde_json::Value;
use warpwright_model::unique_keys;

use super::parameter::{self, Setting};
use super::session::Session;
use crate::failure::Failure;
use crate::prompt::limited;
use crate::prompt::message::Message;
use warpwright_emu::output::{Output, OutputContent};
use warpwright_emu::terminal::{counted, say};

/// A parsed command with its operands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChatCommand {
    /// Sets the system message, or shows it without a text.
    System(Option<String>),
    Reset,
    Save(PathBuf, Existing),
    Load(PathBuf),
    /// Returns the result of a tool that the model has called.
    Tool {
        name: String,
        result: String,
    },
    Set(Setting),
    Show,
    Regenerate,
    Undo,
    Statistics,
    Help,
    Exit,
}

/// The behavior of `/save` if the file exists.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Existing {
    Refused,
    Replaced,
}

/// The kind of text that follows the name of a command.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum CommandOperand {
    None,
    /// An optional text.
    Text,
    File,
    Tool,
    Setting,
}

/// A command without its operands.
#[derive(Clone, Copy)]
enum CommandKind {
    System,
    Reset,
    Save(Existing),
    Load,
    Tool,
    Set,
    Show,
    Regenerate,
    Undo,
    Statistics,
    Help,
    Exit,
}

/// A row of the table of commands.
struct CommandRow {
    kind: CommandKind,
    /// The name, followed by its aliases.
    names: &'static [&'static str],
    operand: CommandOperand,
    /// The operand as `/help` shows it.
    operand_name: &'static str,
    /// The end of the line in `/help`.
    help: &'static str,
}

const fn row(
    kind: CommandKind,
    names: &'static [&'static str],
    (operand, operand_name): (CommandOperand, &'static str),
    help: &'static str,
) -> CommandRow {
    CommandRow {
        kind,
        names,
        operand,
        operand_name,
        help,
    }
}

const FILE: (CommandOperand, &str) = (CommandOperand::File, "FILE");
const NOTHING: (CommandOperand, &str) = (CommandOperand::None, "");

const COMMANDS: [CommandRow; 13] = [
    row(
        CommandKind::Regenerate,
        &["/regenerate", "/regen"],
        NOTHING,
        "replaces the last answer, with another seed",
    ),
    row(
        CommandKind::Undo,
        &["/undo"],
        NOTHING,
        "removes your last message and its answer",
    ),
    row(
        CommandKind::Reset,
        &["/clear", "/reset"],
        NOTHING,
        "removes all messages except the system message",
    ),
    row(
        CommandKind::System,
        &["/system"],
        (CommandOperand::Text, "[TEXT]"),
        "sets the system message, or shows it without a text",
    ),
    row(
        CommandKind::Set,
        &["/set"],
        (CommandOperand::Setting, "NAME VALUE"),
        "sets a parameter, such as temperature, seed or n; /set verbose shows statistics, /set quiet hides them",
    ),
    row(
        CommandKind::Show,
        &["/show"],
        NOTHING,
        "shows the system message, the parameters and the size of the conversation",
    ),
    row(
        CommandKind::Statistics,
        &["/stats"],
        NOTHING,
        "shows the statistics of the last answer",
    ),
    row(
        CommandKind::Save(Existing::Refused),
        &["/save"],
        FILE,
        "writes the conversation to a new file, as JSON: a list of messages with role and content",
    ),
    row(
        CommandKind::Save(Existing::Replaced),
        &["/save!"],
        FILE,
        "writes the conversation, and replaces a file that exists",
    ),
    row(
        CommandKind::Load,
        &["/load"],
        FILE,
        "continues the conversation in a file",
    ),
    row(
        CommandKind::Tool,
        &["/tool"],
        (CommandOperand::Tool, "NAME RESULT"),
        "returns the result of a tool that the model has called",
    ),
    row(
        CommandKind::Help,
        &["/help", "/?"],
        NOTHING,
        "shows this list",
    ),
    row(
        CommandKind::Exit,
        &["/exit", "/bye", "/quit"],
        NOTHING,
        "ends the program, as Ctrl-D does",
    ),
];

/// Returns the names of all commands, with their aliases.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().flat_map(|row| row.names.iter().copied())
}

/// Returns the kind of operand that a command takes, or `None` if the command is unknown.
pub(super) fn operand(name: &str) -> Option<CommandOperand> {
    COMMANDS
        .iter()
        .find(|row| row.names.contains(&name))
        .map(|row| row.operand)
}

/// Parses a line as a command, or returns `None` if it is a message.
///
/// A space in front makes a message of a line that begins with a slash.
///
/// # Errors
/// Returns an error if the command is unknown, or if its operand is missing or wrong.
pub(super) fn parse(line: &str) -> Result<Option<ChatCommand>, String> {
    if !line.starts_with('/') {
        return Ok(None);
    }

    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let Some(row) = COMMANDS.iter().find(|row| row.names.contains(&name)) else {
        return Err(format!(
            "there is no command {name}: /help lists the commands, and a space in front makes this a message"
        ));
    };

    // The operand is checked here, so that the constructors below need not check it again.
    match (row.operand, rest) {
        (CommandOperand::None, rest) if !rest.is_empty() => {
            return Err(format!("{name} takes no operand, not {rest:?}"));
        }
        (CommandOperand::File, "") => return Err(format!("{name} takes the name of a file")),
        (
            CommandOperand::None
            | CommandOperand::Text
            | CommandOperand::File
            | CommandOperand::Tool
            | CommandOperand::Setting,
            _,
        ) => {}
    }

    Ok(Some(match row.kind {
        CommandKind::System => {
            ChatCommand::System(Some(rest.to_owned()).filter(|rest| !rest.is_empty()))
        }
        CommandKind::Reset => ChatCommand::Reset,
        CommandKind::Save(existing) => ChatCommand::Save(rest.into(), existing),
        CommandKind::Load => ChatCommand::Load(rest.into()),
        CommandKind::Tool => tool(rest)?,
        CommandKind::Set => ChatCommand::Set(parameter::parse(rest)?),
        CommandKind::Show => ChatCommand::Show,
        CommandKind::Regenerate => ChatCommand::Regenerate,
        CommandKind::Undo => ChatCommand::Undo,
        CommandKind::Statistics => ChatCommand::Statistics,
        CommandKind::Help => ChatCommand::Help,
        CommandKind::Exit => ChatCommand::Exit,
    }))
}

/// Parses the operands of `/tool`.
fn tool(rest: &str) -> Result<ChatCommand, String> {
    let (name, result) = rest
        .split_once(char::is_whitespace)
        .ok_or("/tool takes a name and a result")?;
    Ok(ChatCommand::Tool {
        name: name.to_owned(),
        result: result.trim_start().to_owned(),
    })
}

impl ChatCommand {
    /// Executes the command.
    ///
    /// # Errors
    /// Returns an error if the command cannot be executed in this state of the conversation.
    pub(super) fn run(self, session: &mut Session<'_>) -> Result<(), Failure> {
        match self {
            ChatCommand::System(Some(text)) => session.set_system(&text),
            ChatCommand::System(None) => say(session
                .system()
                .unwrap_or("there is no system message; /system TEXT sets one")),
            ChatCommand::Reset => session.reset(),
            ChatCommand::Save(file, existing) => save(session.messages(), &file, existing)?,
            ChatCommand::Load(file) => {
                let messages = load(&file)?;
                say(counted(messages.len(), "message"));
                session.load(messages)?;
            }
            ChatCommand::Tool { name, result } => session.tool(&name, &result)?,
            ChatCommand::Set(setting) => session.set(setting)?,
            ChatCommand::Show => session.show()?,
            ChatCommand::Regenerate => session.regenerate()?,
            ChatCommand::Undo => session.undo()?,
            ChatCommand::Statistics => session.print_statistics(),
            ChatCommand::Help => help(),
            ChatCommand::Exit => {}
        }
        Ok(())
    }
}

/// Prints the list of commands.
fn help() {
    for row in &COMMANDS {
        let aliases = match &row.names[1..] {
            [] => String::new(),
            aliases => format!(" ({})", aliases.join(", ")),
        };
        let usage = format!("{} {}", row.names[0], row.operand_name);
        say(format!("{usage:20} {}{aliases}", row.help));
    }
    say("\"\"\"                  begins and ends a message of several lines");
}

/// Writes the conversation to a file. An existing file is replaced only on request.
fn save(messages: &[Message], file: &Path, existing: Existing) -> Result<(), Failure> {
    if existing == Existing::Refused && file.is_file() {
        let file = file.display();
        return Err(Failure::Input(format!(
            "{file} exists; /save! {file} replaces it"
        )));
    }

    let text = serde_json::to_string_pretty(messages).expect("strings are JSON") + "\n";
    let out = Output {
        option: "/save",
        path: file,
        inputs: vec![],
        content: OutputContent::Text,
    };
    let written: Result<(), Failure> = out.write(|sink| Ok(sink.write(text.as_bytes())?));
    match written {
        // A full disk must not end the conversation, so the error becomes one that the user can
        // correct.
        Err(Failure::Runtime(sentence)) => return Err(Failure::Input(sentence)),
        written => written?,
    }

    say(counted(messages.len(), "message"));
    Ok(())
}

/// Reads the messages of a file.
fn load(file: &Path) -> Result<Vec<Message>, Failure> {
    let text = limited::read("conversation", file)?;
    // Some programs begin a file with a byte-order mark, which JSON does not have.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let wrong = |problem: String| Failure::Input(format!("{} {problem}", file.display()));
    let value: Value =
        serde_json::from_str(text).map_err(|error| wrong(format!("is not JSON: {error}")))?;
    unique_keys(text.as_bytes()).map_err(wrong)?;
    messages(&value).map_err(wrong)
}

/// Returns the messages of a list, or of an object with a list under `messages`.
fn messages(value: &Value) -> Result<Vec<Message>, String> {
    let list = value.get("messages").unwrap_or(value).as_array();
    let list =
        list.ok_or("is neither a list of messages nor an object with one under \"messages\"")?;
    let message = |(number, value): (usize, &Value)| {
        let read = serde_json::from_value::<Message>(value.clone());
        read.map_err(|error| format!("has an invalid message {number}: {error}"))
    };
    (1..).zip(list).map(message).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::chat::parameter::Statistics;

    #[test]
    fn lines_with_a_slash_are_commands() {
        let cases: [(&str, Result<Option<ChatCommand>, &str>); 23] = [
            ("a /save", Ok(None)),
            (" /save", Ok(None)),
            (
                "/system  Be brief. ",
                Ok(Some(ChatCommand::System(Some("Be brief.".into())))),
            ),
            ("/system", Ok(Some(ChatCommand::System(None)))),
            ("/reset", Ok(Some(ChatCommand::Reset))),
            (
                "/save a b",
                Ok(Some(ChatCommand::Save("a b".into(), Existing::Refused))),
            ),
            (
                "/save! a",
                Ok(Some(ChatCommand::Save("a".into(), Existing::Replaced))),
            ),
            ("/clear", Ok(Some(ChatCommand::Reset))),
            ("/regen", Ok(Some(ChatCommand::Regenerate))),
            ("/?", Ok(Some(ChatCommand::Help))),
            ("/bye", Ok(Some(ChatCommand::Exit))),
            ("/quit", Ok(Some(ChatCommand::Exit))),
            (
                "/set quiet",
                Ok(Some(ChatCommand::Set(Setting::Statistics(
                    Statistics::Hidden,
                )))),
            ),
            ("/save!", Err("/save! takes the name of a file")),
            ("/undo 2", Err("/undo takes no operand, not \"2\"")),
            ("/set seed", Err("/set seed takes a value")),
            ("/load x", Ok(Some(ChatCommand::Load("x".into())))),
            ("/exit", Ok(Some(ChatCommand::Exit))),
            (
                "/tool now  12 h ",
                Ok(Some(ChatCommand::Tool {
                    name: "now".into(),
                    result: "12 h".into(),
                })),
            ),
            ("/tool now", Err("/tool takes a name and a result")),
            ("/save ", Err("/save takes the name of a file")),
            ("/reset all", Err("/reset takes no operand, not \"all\"")),
            (
                "/sing",
                Err(
                    "there is no command /sing: /help lists the commands, and a space in front makes this a message",
                ),
            ),
        ];
        for (line, wanted) in cases {
            assert_eq!(parse(line), wanted.map_err(str::to_owned), "{line}");
        }
    }

    #[test]
    fn messages_of_other_programs_are_loaded() {
        let read = |text: &str| {
            messages(&serde_json::from_str(&format!("[{text}]")).unwrap())
                .unwrap()
                .remove(0)
        };
        let plain = Message::new("assistant", "yes");
        let thought = Message {
            reasoning_content: Some("think".into()),
            ..plain.clone()
        };
        let named = Message {
            name: Some("Ann".into()),
            ..plain.clone()
        };
        let empty = Message {
            content: String::new(),
            ..thought.clone()
        };
        let cases = [
            (
                r#"{"role": "assistant", "content": "yes", "refusal": null, "annotations": []}"#,
                &plain,
            ),
            (
                r#"{"role": "assistant", "content": "yes", "audio": null, "function_call": null, "tool_calls": null}"#,
                &plain,
            ),
            (
                r#"{"role": "assistant", "content": "yes", "tool_calls": [], "name": "", "tool_call_id": null}"#,
                &plain,
            ),
            (
                r#"{"role": "assistant", "content": "yes", "images": [], "refusal": "", "id": "m1"}"#,
                &plain,
            ),
            (
                r#"{"role": "assistant", "content": [{"type": "text", "text": "yes"}]}"#,
                &plain,
            ),
            (
                r#"{"role": "assistant", "content": [{"type": "output_text", "text": "y"}, {"text": "e"}, "s"]}"#,
                &plain,
            ),
            (
                r#"{"role": "assistant", "content": {"type": "text", "text": "yes"}, "timestamp": 17}"#,
                &plain,
            ),
            (
                r#"{"role": "assistant", "content": "yes", "reasoning_content": "think"}"#,
                &thought,
            ),
            (
                r#"{"role": "assistant", "content": "yes", "reasoning": "think", "reasoning_content": "think"}"#,
                &thought,
            ),
            (
                r#"{"role": "assistant", "content": "yes", "thinking": "think", "reasoning": null}"#,
                &thought,
            ),
            (
                r#"{"role": "assistant", "content": null, "reasoning_content": "think"}"#,
                &empty,
            ),
            (
                r#"{"role": "assistant", "content": "yes", "name": "Ann", "reasoning_content": ""}"#,
                &named,
            ),
        ];
        for (text, wanted) in cases {
            assert_eq!(read(text), *wanted, "{text}");
        }

        let call = read(
            r#"{"role": "assistant", "content": null, "tool_calls":
            [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]}"#,
        );
        assert!(call.tool_calls[0].function.arguments.is_empty());
    }

    #[test]
    fn only_messages_are_loaded() {
        let read = |text: &str| messages(&serde_json::from_str(text).unwrap());
        let one = vec![Message::new("user", "a")];
        assert_eq!(
            read(r#"[{"role": "user", "content": "a"}]"#),
            Ok(one.clone())
        );
        assert_eq!(
            read(r#"{"model": "m", "messages": [{"content": "a", "role": "user"}]}"#),
            Ok(one)
        );
        let none = "is neither a list of messages nor an object with one under \"messages\"";
        let cases = [
            ("1", none),
            (r#"{"messages": "a"}"#, none),
            (
                r#"[{"role": "user", "content": "a"}, {"role": "assistant", "content": null}]"#,
                "has an invalid message 2: it has no content",
            ),
            (
                r#"[{"role": "user", "content": "a", "tool_call_id": "b"}]"#,
                "has an invalid message 1: it has a tool_call_id, which only a tool can have",
            ),
            (
                r#"[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]"#,
                "has an invalid message 1: its content has a part of the type \"image_url\", and only text is supported",
            ),
            (
                r#"[{"role": "user", "content": [{"type": "text"}]}]"#,
                "has an invalid message 1: a part of its content has no text",
            ),
            (
                r#"[{"role": "user", "content": 1}]"#,
                "has an invalid message 1: its content is neither a string nor a list of parts",
            ),
            (
                r#"[{"role": "user", "content": "a", "images": ["x"]}]"#,
                "has an invalid message 1: it has the key images, which is not supported; leave it out",
            ),
            (
                r#"[{"role": "assistant", "content": null, "audio": {"id": "x"}}]"#,
                "has an invalid message 1: it has the key audio, which is not supported; leave it out",
            ),
            (
                r#"[{"role": "assistant", "content": "a", "function_call": {"name": "f", "arguments": "{}"}}]"#,
                "has an invalid message 1: it has the key function_call, which is not supported; leave it out",
            ),
            (
                r#"[{"role": "assistant", "content": null, "refusal": "no"}]"#,
                "has an invalid message 1: it has a refusal, which templates do not know; move its text to content",
            ),
            (
                r#"[{"role": "assistant", "content": "a", "reasoning": "b", "thinking": "c"}]"#,
                "has an invalid message 1: its thinking differs from the reasoning under another key",
            ),
            (
                r#"[{"content": "a"}]"#,
                "has an invalid message 1: it has no role",
            ),
            (
                r#"["a"]"#,
                "has an invalid message 1: invalid type: string \"a\", expected a map",
            ),
            (
                r#"[{"role": "user", "content": "a", "tool_calls": [{"function": {"name": "b", "arguments": {}}}]}]"#,
                "has an invalid message 1: it has tool_calls, which only the assistant can have",
            ),
            (
                r#"[{"role": "assistant", "tool_calls": [{"function": {"name": "b", "arguments": 1}}]}]"#,
                "has an invalid message 1: arguments are neither an object nor the text of an object",
            ),
        ];
        for (text, wanted) in cases {
            assert_eq!(read(text), Err(wanted.to_owned()), "{text}");
        }
    }
}
