//! Conversations: through pipes, and at a terminal as a person has them.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::input::refused;
use crate::program::{End, MODEL, SHORTER, command, run};

/// With a template that adds few tokens.
const CHAT: [&str; 6] = [
    "chat",
    SHORTER,
    "--device",
    "emu",
    "--chat-template",
    "cli/tests/it/brief.jinja",
];

/// Says these lines through a pipe.
fn piped(arguments: &[&str], lines: &[&str]) -> End {
    // Without chance, unless there is another temperature.
    let temperature: &[&str] = if arguments.contains(&"--temp") {
        &[]
    } else {
        &["--temp", "0"]
    };
    let mut child = command(&[&CHAT[..], temperature, arguments].concat())
        .stdin(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();

    // A program that ends before has closed the pipe.
    let _ = child
        .stdin
        .take()
        .expect("piped")
        .write_all(text.as_bytes());
    child.wait_with_output().expect("it ends").into()
}

fn messages(file: &Path) -> Vec<(String, String)> {
    let read: Vec<Value> =
        serde_json::from_slice(&fs::read(file).expect("a conversation")).expect("JSON");
    let text = |message: &Value, key: &str| message[key].as_str().expect("a string").to_owned();
    read.iter()
        .map(|message| (text(message, "role"), text(message, "content")))
        .collect()
}

#[test]
fn a_conversation_is_saved_and_goes_on_as_it_was() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [one, two] = ["one.json", "two.json"].map(|name| folder.path().join(name));
    let [save, again, load] = [("/save", &one), ("/save", &two), ("/load", &one)]
        .map(|(what, file)| format!("{what} {}", file.display()));
    let lines = [
        &save,
        "Traits",
        "/system Be brief.",
        " /not a command",
        &save.replace("/save", "/save!"),
        "/reset",
        &load,
        "Boxes",
        &again,
        "/exit",
        "x",
    ];
    let end = piped(
        &["-n", "2", "--system", "You are kind.", "--ctx", "64"],
        &lines,
    );
    assert_eq!(end.code, Some(0), "{end:?}");
    let (said, then) = (messages(&one), messages(&two));
    let roles: Vec<&str> = said.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    assert_eq!(
        [&said[0].1, &said[1].1, &said[3].1],
        ["Be brief.", "Traits", " /not a command"]
    );
    assert_eq!(
        (&then[..5], then[5].1.as_str(), then.len()),
        (&said[..], "Boxes", 7)
    );
    assert_eq!(
        end.out,
        [2, 4, 6]
            .map(|index| format!("{}\n", then[index].1))
            .concat()
    );
    let heard: Vec<&str> = end
        .err
        .lines()
        .filter(|line| *line != "(limit of -n)")
        .collect();
    let counts = ["1 message", "5 messages", "5 messages", "7 messages"];
    assert!(heard.ends_with(&counts), "{end:?}");

    // The same words to a decoder that has nothing of them: a conversation that ends with a user's is answered.
    let question = folder.path().join("question.json");
    let all: Vec<Value> = then[..6]
        .iter()
        .map(|(role, content)| json!({ "role": role, "content": content }))
        .collect();
    fs::write(&question, json!({ "messages": all }).to_string()).expect("a file");
    let end = piped(&["-n", "2"], &[&format!("/load {}", question.display())]);
    assert_eq!((end.code, end.out), (Some(0), format!("{}\n", then[6].1)));
}

#[test]
fn a_full_context_drops_the_oldest_turns_or_refuses() {
    let long = "one two three four five six seven";
    let arguments = ["-n", "4", "--ctx", "24"];
    let end = piped(&arguments, &[long, long]);
    assert_eq!(end.code, Some(0), "{end:?}");
    let dropped = "(the context of 24 positions is full: the oldest 2 messages are dropped)";
    assert!(end.err.contains(dropped), "{end:?}");
    let end = piped(
        &[&arguments[..], &["--when-full", "refuse"]].concat(),
        &[long, long],
    );
    let sentence = "error: the conversation does not fit into the context of 24 positions: /reset removes the earlier messages; \
                    or start with a larger --ctx, or with --when-full drop\n";
    assert_eq!(
        (end.code, end.err.ends_with(sentence)),
        (Some(2), true),
        "{end:?}"
    );

    // What is too long alone drops no turn.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let before = folder.path().join("before.json");
    fs::write(
        &before,
        r#"[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]"#,
    )
    .expect("a file");
    let end = piped(
        &["--ctx", "32"],
        &[
            &format!("/load {}", before.display()),
            &"word ".repeat(5000),
        ],
    );
    let sentence = "the conversation does not fit into the context of 32 positions: shorten your message, or start with a larger --ctx";
    let said = format!("2 messages\nerror: {sentence}\n");
    assert_eq!(
        (end.code, end.out.as_str(), end.err.ends_with(&said)),
        (Some(2), "", true),
        "{end:?}"
    );
}

#[test]
fn what_is_no_conversation_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("a file");
        path.display().to_string()
    };
    let cases = [
        (
            file("garbage", b"\xff\xfe{"),
            "cannot read the conversation {}: it is not valid UTF-8",
        ),
        (
            file("half", b"[{"),
            "{} is not JSON: EOF while parsing an object at line 1 column 2",
        ),
        (
            file("deep", "[".repeat(1000).as_bytes()),
            "{} is not JSON: recursion limit exceeded at line 1 column 128",
        ),
        (
            file("other", b"[{\"role\": \"user\", \"content\": [1]}]"),
            "{} has an invalid message 1: a part of its content has no text",
        ),
        (
            file(
                "twice",
                b"[{\"role\": \"user\", \"content\": \"a\", \"content\": \"b\"}]",
            ),
            "{} has the key \"content\" twice in one object",
        ),
        (
            "/no-such-file".to_owned(),
            "cannot read the conversation {}: No such file or directory (os error 2)",
        ),
        (
            folder.path().display().to_string(),
            "cannot read the conversation {}: Is a directory (os error 21)",
        ),
    ];
    for (path, sentence) in cases {
        let sentence = sentence.replace("{}", &path);
        assert_eq!(
            piped(&["--ctx", "32"], &[&format!("/load {path}")]),
            refused(2, &sentence)
        );
    }

    let unknown = "there is no command /sing: /help lists the commands, and a space in front makes this a message";
    assert_eq!(piped(&["--ctx", "32"], &["/sing"]), refused(2, unknown));
}

#[test]
fn a_template_that_fails_says_where_and_how_to_go_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let instead = "select a template with --chat-template FILE or --chat-template chatml; `warpwright run MODEL TEXT` \
                   continues a text without one";
    let cases = [
        (
            "\n{% for %}",
            "the chat template fails in line 2: syntax error: expected a name to assign to, found `%}`",
        ),
        (
            "{{ raise_exception('no') }}{# messages #}",
            "the chat template refuses the conversation in line 1: no",
        ),
        (
            "\n\n{{ messages[7].a.b }}",
            "the chat template fails in line 3: undefined value: a list has no item 7",
        ),
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{# messages #}",
            "the chat template fails in line 1: the template takes too many steps or too much memory",
        ),
        (
            "{\"samples\": []}",
            "the chat template does not use `messages`, so the model would not see the conversation",
        ),
    ];
    for (text, problem) in cases {
        let path = folder.path().join("template.jinja");
        fs::write(&path, text).expect("a file");
        let path = path.to_str().expect("UTF-8");
        let end = run(&[
            "run",
            MODEL,
            "--device",
            "emu",
            "--chat",
            "-p",
            "x",
            "--chat-template",
            path,
        ]);
        assert_eq!(end, refused(2, &format!("{path}: {problem}; {instead}")));
    }

    let none = format!("{MODEL} has no chat template; {instead}");
    assert_eq!(run(&["chat", MODEL, "--device", "emu"]), refused(2, &none));
    let end = run(&["run", MODEL, "--device", "emu", "-p", "x", "--system", "y"]);
    assert_eq!(end, refused(2, "--system needs a conversation: add --chat"));
}

#[test]
fn a_reply_ends_before_a_stop_string_and_is_told_as_json() {
    let arguments = [
        "run",
        "-m",
        MODEL,
        "--device",
        "emu",
        "-p",
        "The borrow checker",
        "-n",
        "8",
    ];
    let end = run(&[
        &arguments[..],
        &["--stop", "-level w", "--stop", "never", "--json=lines"],
    ]
    .concat());
    assert_eq!((end.code, end.err.lines().count()), (Some(0), 0), "{end:?}");
    let lines: Vec<Value> = end
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let (last, tokens) = lines.split_last().expect("lines");
    assert_eq!(last["text"], " uses a low");
    assert_eq!(
        last["end"],
        json!({ "reason": "stop_string", "string": "-level w" })
    );
    assert_eq!(last["prompt_tokens"], json!([0, 389, 1166, 882, 261]));
    let texts: String = tokens
        .iter()
        .filter_map(|line| line["text"].as_str())
        .collect();
    let ids: Vec<&Value> = tokens.iter().map(|line| &line["token"]).collect();
    assert_eq!(
        (texts.as_str(), json!(ids)),
        (" uses a low", last["tokens"].clone())
    );
    assert!(
        last["times"]["first_token_s"].as_f64() > last["times"]["prompt_given_s"].as_f64(),
        "{last}"
    );
    let end = run(&[&arguments[..], &["--stop", ""]].concat());
    assert_eq!(
        end,
        refused(
            2,
            "a stop string is empty: it would end every text before its first character"
        )
    );
    let end = run(&[&arguments[..], &["--stop", "x", "--print", "ids"]].concat());
    assert_eq!(
        end,
        refused(
            2,
            "--stop compares text, and --print ids makes none: leave one of them out"
        )
    );
}

/// Commands of other programs, parameters, and messages of several lines, with wrong ones at the end.
#[test]
fn parameters_can_be_set_during_a_conversation() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let saved = folder.path().join("saved.json");
    let save = format!("/save {}", saved.display());
    let lines = [
        "/set parameter num_predict 2",
        "/set system Be kind.",
        "\"\"\"The borrow",
        "/not a command",
        "checker\"\"\"",
        "/set top_k 3",
        "/show",
        "/stats",
        "/undo",
        "\"\"\"Traits\"\"\"",
        &save,
        "/?",
        "/bye",
        "never read",
    ];
    let end = piped(&["--ctx", "64"], &lines);
    assert_eq!(end.code, Some(0), "{end:?}");
    let said = messages(&saved);
    assert_eq!([&said[0].1, &said[1].1], ["Be kind.", "Traits"], "{said:?}");
    for wanted in [
        "(no effect at temperature 0, which takes the most likely token; /set temperature 0.8 samples)\n",
        "system             Be kind.\n",
        "top_k              3\n",
        "n                  2\n",
        "messages           3\n",
        "(2 tokens, ",
        "removed 2 messages\n",
        "/exit                ends the program, as Ctrl-D does (/bye, /quit)\n",
    ] {
        assert!(end.err.contains(wanted), "{wanted}: {}", end.err);
    }

    let cases = [
        (
            "/set mood x",
            "there is no parameter \"mood\"; there are temperature, top_k, ",
        ),
        (
            "/set temperature hot",
            "temperature takes a number, not \"hot\"",
        ),
        (
            "/set temperature -1",
            "the temperature is -1, but must be 0 (greedy)",
        ),
        (
            "/set top_p 2",
            "the sampling option top_p is 2, but must be from ",
        ),
        ("/set n -2", "n takes a whole number, not \"-2\""),
        ("/set seed x", "seed \"x\": it can be 0 to "),
        ("/set", "/set takes a name and a value; there are "),
        ("/regenerate", "there is no answer to regenerate"),
        ("/undo", "there is no message to undo"),
        ("/bye now", "/bye takes no operand, not \"now\""),
        (
            &save,
            &format!("{0} exists; /save! {0} replaces it", saved.display()),
        ),
        (
            "\"\"\"never ended",
            "the last message begins with \"\"\" and has no \"\"\" at its end",
        ),
    ];
    for (line, sentence) in cases {
        let end = piped(&["--ctx", "32"], &[line]);
        assert_eq!(
            (end.code, end.out.as_str()),
            (Some(2), ""),
            "{line}: {end:?}"
        );
        assert!(
            end.err.starts_with(&format!("error: {sentence}")),
            "{line}: {end:?}"
        );
    }

    assert_eq!(messages(&saved), said);
}

/// The answer that is written again is that of a new conversation with its seed, and the cached prefix changes nothing.
#[test]
fn an_answer_is_written_again_with_the_next_seed() {
    let sampled = ["-n", "6", "--ctx", "64", "--temp", "1"];
    let answers = |options: &[&str], lines: &[&str]| {
        let end = piped(&[&sampled[..], options].concat(), lines);
        assert_eq!(end.code, Some(0), "{end:?}");
        end
    };
    let again = answers(
        &["--seed", "5"],
        &["Traits", "/regen", "/set seed 5", "/regen", "Boxes"],
    );
    let [five, six] = ["5", "6"].map(|seed| answers(&["--seed", seed], &["Traits"]).out);
    assert_ne!(five, six);
    assert!(
        again.out.starts_with(&format!("{five}{six}{five}")),
        "{again:?}"
    );
    assert!(again.err.contains("(seed 6)\n"), "{again:?}");

    // The next answer follows the one that stayed.
    assert_eq!(
        again.out,
        format!(
            "{five}{six}{}",
            answers(&["--seed", "5"], &["Traits", "Boxes"]).out
        )
    );

    // Without a temperature at first, the model is loaded again with the kernels that sample.
    let later = piped(
        &["-n", "6", "--ctx", "64"],
        &["/set temperature 1", "/set seed 6", "Traits"],
    );
    assert_eq!((later.code, later.out), (Some(0), six), "{}", later.err);
    assert!(
        later
            .err
            .contains("(the model is loaded again, with the kernels that sample)\n"),
        "{}",
        later.err
    );
}

/// A template that tells of tools, and shows who was called and what was answered.
const WITH_TOOLS: &str = "{% for t in tools %}<tool_call>{{ t.function.name }}{% endfor %}{% for m in messages %}\
                          {{ m.role }}: {{ m.content }}{% for c in m.tool_calls %}{{ c.id }}{% endfor %}\n{% endfor %}";

/// Checks that a text which only begins as a call is shown as text, with a problem.
fn check_no_call(options: &[&str]) {
    let run_chat = [
        "run", SHORTER, "--device", "emu", "--chat", "-p", "Hi", "--quiet",
    ];
    let end = run(&[&run_chat[..], options, &["--regex", "<tool_call>wea"]].concat());
    assert_eq!(end.out, "<tool_call>wea\n", "{end:?}");
    let said = "<tool_call> does not begin a tool call: it is not closed; it is shown as text\n";
    assert!(end.err.contains(said), "{end:?}");
}

#[test]
fn tools_are_called_and_answer() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let tools = file(
        "tools",
        r#"[{"type": "function", "function": {"name": "weather"}}]"#,
    );
    let template = file("template", WITH_TOOLS);
    let call = r#"Hm\.<tool_call>\{"name": "weather", "arguments": \{"a": 1\}\}</tool_call>"#;
    let options = [
        "--tools",
        &tools,
        "--chat-template",
        &template,
        "--regex",
        call,
        "--device",
        "emu",
    ];
    let end = run(&[
        &["run", SHORTER, "--chat", "-p", "Hi", "--json"],
        &options[..],
    ]
    .concat());
    let found: Value = serde_json::from_str(&end.out).expect("JSON");
    assert_eq!(found["content"], "Hm.");
    let function = json!({ "name": "weather", "arguments": { "a": 1 } });
    assert_eq!(
        found["tool_calls"],
        json!([{ "type": "function", "function": function }])
    );
    check_no_call(&options[..4]);

    // The model calls again when it has the answer.
    let saved = folder.path().join("saved");
    let save = format!("/save {}", saved.display());
    let all = [
        &["chat", SHORTER, "--temp", "0", "--ctx", "256"],
        &options[..],
    ]
    .concat();
    let mut child = command(&all)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let lines = format!("Hi\n/tool weather 21 C\n{save}\n/tool time 12\n");
    let _ = child
        .stdin
        .take()
        .expect("piped")
        .write_all(lines.as_bytes());
    let end: End = child.wait_with_output().expect("it ends").into();
    assert_eq!(
        end.out,
        "Hm.\n[calls weather {\"a\":1}]\n".repeat(2),
        "{end:?}"
    );
    assert!(
        end.err
            .contains("(waits for weather: /tool weather RESULT)\n"),
        "{end:?}"
    );
    let refused_last = "error: the model does not wait for time: it waits for weather\n";
    assert_eq!(
        (end.code, end.err.ends_with(refused_last)),
        (Some(2), true),
        "{end:?}"
    );
    let said: Value = serde_json::from_slice(&fs::read(&saved).expect("a file")).expect("JSON");
    let answer = json!({ "role": "tool", "content": "21 C", "tool_call_id": "call00001", "name": "weather" });
    assert_eq!(
        (&said[2], &said[3]["tool_calls"][0]["id"]),
        (&answer, &json!("call00002"))
    );
    let with = |template: &str| {
        let start = [
            "run", SHORTER, "--device", "emu", "--chat", "-p", "x", "--ctx", "2", "--tools", &tools,
        ];
        run(&[&start[..], &["--chat-template", template]].concat())
    };
    let unknown = file(
        "unknown",
        "{% for t in tools %}{{ t.function.name }}{% endfor %}{{ messages[0].content }}",
    );
    let end = with(&unknown);
    let warning = "warning: the format of tool calls in this template is not supported: calls are shown as text\n";
    assert!(
        end.code == Some(2) && end.err.starts_with(warning),
        "{end:?}"
    );
    let end = run(&[
        "run",
        SHORTER,
        "--device",
        "emu",
        "--chat",
        "-p",
        "x",
        "--chat-template",
        "/dev/null",
    ]);
    let sentence = "error: /dev/null: the chat template does not use `messages`, so the model would not see the \
                    conversation; select a template";
    assert!(
        end.code == Some(2) && end.err.starts_with(sentence),
        "{end:?}"
    );
    let end = with("chatml");
    let sentence = "chatml: the chat template ignores the tools of --tools; use another one with --chat-template \
                    FILE, or leave --tools out";
    assert_eq!(end, refused(2, sentence));
}

/// Talks with a program at a terminal. Each step waits for a text that the terminal shows after what was shown before,
/// and types another or some bytes, resizes the terminal or sends a signal. Prints as JSON the exit code, all that was shown, and
/// whether the terminal is as it was.
#[cfg(unix)]
const AT_A_TERMINAL: &str = r#"
import fcntl, json, os, pty, select, signal, struct, subprocess, sys, termios, time

leader, follower = pty.openpty()
size = lambda columns: fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
size(80)
before = termios.tcgetattr(follower)
start = lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0))
child = subprocess.Popen(sys.argv[2:], stdin=follower, stdout=follower, stderr=follower, preexec_fn=start)
shown, end = b"", time.monotonic() + 90

def read():
    global shown
    if select.select([leader], [], [], 0.1)[0]:
        shown += os.read(leader, 4096)

at = 0
for wanted, does in json.loads(sys.argv[1]):
    while (found := shown.find(wanted.encode(), at)) < 0 and time.monotonic() < end:
        read()
    at = found + len(wanted.encode())
    if does.startswith("SIG"):
        child.send_signal(getattr(signal, does))
    elif does.startswith("BYTES"):
        os.write(leader, bytes.fromhex(does[5:]))
    elif does.startswith("SIZE"):
        size(int(does[4:]))
        child.send_signal(signal.SIGWINCH)
    else:
        os.write(leader, does.encode())
while child.poll() is None and time.monotonic() < end:
    read()
child.kill()
read()
print(json.dumps([child.wait(), shown.decode(errors="replace"), termios.tcgetattr(follower) == before]))
"#;

/// How it ended, what was shown, and whether the terminal is as it was.
#[cfg(unix)]
fn at_a_terminal(arguments: &[&str], steps: &[(&str, &str)]) -> (i32, String, bool) {
    let mut python = Command::new("python3");
    python.args([
        "-c",
        AT_A_TERMINAL,
        &json!(steps).to_string(),
        env!("CARGO_BIN_EXE_warpwright"),
    ]);
    // The steps wait for the texts of the whole model.
    let mut chat = CHAT;
    chat[1] = MODEL;
    python
        .args([&chat[..], &["--temp", "0"], arguments].concat())
        .env("TERM", "xterm")
        .env_remove("NO_COLOR");
    python.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let found = python.output().expect("Python runs");
    serde_json::from_slice(&found.stdout).unwrap_or_else(|error| panic!("{error}: {found:?}"))
}

#[test]
#[cfg(unix)]
fn a_person_talks_at_a_terminal() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [saved, history] = ["saved.json", "lines"].map(|name| folder.path().join(name));
    let save = format!("/save {}\r", saved.display());
    let steps = [
        // A typing error is mended; the answer is interrupted, and the line comes back with the up arrow.
        ("> ", "The borrow checkee\u{7f}r\r"),
        ("- type", "\u{3}"),
        ("(interrupted)", "SIZE40"),
        ("> ", "\u{1b}[A again\r"),
        ("(limit of -n)", "/nothing\r"),
        ("there is no command /nothing", ""),
        ("> ", "BYTESff"),
        ("error: the line is not valid UTF-8 and is ignored", ""),
        // Only at the prompt are these keys and no signal, nor the end of the input.
        ("> ", "half a line\u{3}"),
        ("Ctrl-D or /exit leaves", ""),
        ("> ", &save),
        ("4 messages", ""),
        ("> ", "\u{4}"),
    ];
    let arguments = [
        "--history",
        history.to_str().expect("UTF-8"),
        "-n",
        "16",
        "--ctx",
        "64",
    ];
    let (code, shown, restored) = at_a_terminal(&arguments, &steps);
    assert_eq!((code, restored), (0, true), "{shown}");
    let said = messages(&saved);
    assert_eq!(
        [&said[0].1, &said[2].1],
        ["The borrow checker", "The borrow checker again"],
        "{shown}"
    );
    assert!(
        said[1].1.starts_with("\n- type") && said[1].1.len() < said[3].1.len(),
        "{said:?}"
    );
    let lines = fs::read_to_string(&history).expect("the lines");
    let lines: Vec<&str> = lines
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(
        lines[..3],
        ["The borrow checker", "The borrow checker again", "/nothing"]
    );
}

#[test]
#[cfg(unix)]
fn a_signal_while_a_line_is_edited_restores_the_terminal() {
    // At the end, two lines are typed at once, and the second waits.
    let steps = [
        // A message of several lines may be given up, and Tab completes a command.
        ("> ", "\"\"\"a\r"),
        (
            "warning: typed lines are not kept in /proc/none/lines: ",
            "",
        ),
        ("... ", "b\u{3}"),
        ("Ctrl-D or /exit leaves", ""),
        ("> ", "/sho\t\r"),
        ("0 of 32", ""),
        ("> ", "/help\r/sing\r"),
        ("error: there is no command /sing", ""),
        ("> ", "SIGTERM"),
    ];
    let (code, shown, restored) =
        at_a_terminal(&["--history", "/proc/none/lines", "--ctx", "32"], &steps);
    assert_eq!((code, restored), (143, true), "{shown}");
    assert!(
        shown.contains("/load FILE") && shown.ends_with("\u{1b}[?2004l\r\n"),
        "{shown:?}"
    );
}
