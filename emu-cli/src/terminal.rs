//! Output for people.
//!
//! A stream that cannot be written never causes a panic, and a terminal never receives control
//! characters that came from a file or an argument.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};

/// Writes a line to stderr. An error is ignored, because there is no other place to report it.
pub fn say(text: impl AsRef<str>) {
    let line = format!("{}\n", printable(text.as_ref()));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Writes a line to stdout, and succeeds if the pipe is closed.
///
/// Use it in commands whose work is done by the time they print, for example after a file is
/// written.
///
/// # Errors
/// Returns an error if the line cannot be written for another reason than a closed pipe.
pub fn print(line: &dyn Display) -> io::Result<()> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Returns the text with control characters escaped as in Rust (`\u{1b}`), except line breaks and
/// tabs.
///
/// A terminal would interpret them, for example to clear the screen.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_interpreted = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_interpreted) {
        return text.into();
    }

    let mut escaped = String::new();
    for c in text.chars() {
        if is_interpreted(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }

    escaped.into()
}

/// Returns a number with its noun, for example `1 message` or `2 messages`.
pub fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn a_terminal_is_told_nothing() {
        let cases = [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\u{1b}[2Jgone\r", "\\u{1b}[2Jgone\\r"),
            ("\u{7}\u{9b}1m\u{7f}", "\\u{7}\\u{9b}1m\\u{7f}"),
            ("größer 日本", "größer 日本"),
        ];
        for (text, shown) in cases {
            assert_eq!(printable(text), shown);
        }
    }
}
