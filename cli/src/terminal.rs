//! What people read: never a panic because nobody can, and no control character of a file or an argument.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};
#[cfg(unix)]
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::failure::Failure;

/// Writes a line to stderr. If nobody can read it, there is nobody to tell.
pub(crate) fn say(text: impl AsRef<str>) {
    let line = format!("{}\n", printable(text.as_ref()));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Writes a line to stdout, of work that is done whether or not somebody still reads: a closed pipe is no failure.
pub(crate) fn print(line: &dyn Display) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// The text with control characters as Rust writes them (`\u{1b}`), but for line breaks and tabs: a terminal would obey
/// them.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(obeyed) {
        return text.into();
    }
    let escape = |text: &mut String, c: char| {
        if obeyed(c) {
            text.extend(c.escape_default())
        } else {
            text.push(c)
        }
    };
    text.chars()
        .fold(String::new(), |mut text, c| {
            escape(&mut text, c);
            text
        })
        .into()
}

/// `1 message`, `2 messages`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Remembers how the terminal is, before lines are edited on it.
#[cfg(unix)]
pub(crate) fn remember() {
    *state() = rustix::termios::tcgetattr(io::stdin()).ok();
}

#[cfg(unix)]
fn state() -> MutexGuard<'static, Option<rustix::termios::Termios>> {
    static STATE: Mutex<Option<rustix::termios::Termios>> = Mutex::new(None);
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the terminal what it was when it was remembered, for a program that ends now.
#[cfg(unix)]
pub(crate) fn restore() {
    use rustix::termios::{OptionalActions, tcsetattr};
    if let Some(termios) = state().take() {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &termios);
        // An editor of lines also asks for marks around what is pasted. Another thread may hold the lock of stdout.
        let _ = rustix::io::write(io::stdout(), b"\x1b[?2004l\n");
    }
}

#[cfg(not(unix))]
pub(crate) fn remember() {}

#[cfg(not(unix))]
pub(crate) fn restore() {}

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
