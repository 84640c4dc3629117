//! A template is a program that a stranger wrote: what it may cost.
//!
//! minijinja counts instructions and memory, and knows how deep tags are nested. What it does not count is bounded here:
//! operators of one tag, each of which is a level of its compiler's recursion, and the time of a run. A value may be
//! nested [`DEEPEST`] deep where it is written.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::Builder;
use std::time::Duration;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

use super::tags;

/// What a template may cost at most: instructions, and memory of 64 bytes each. A message takes some hundreds.
pub(super) const FUEL: u64 = 10_000_000;

/// How long compiling a template, or rendering a conversation, may take: far longer than the fuel lasts.
pub(super) const TIME: Duration = Duration::from_secs(10);

/// Operators of a tag, at most. Those of published templates have up to fifty.
const OPERATORS: usize = 1000;

/// How deep a value may be nested that is written.
pub(super) const DEEPEST: usize = 200;

/// Enough for an expression of so many operators in a build without optimization.
const STACK: usize = 256 << 20;

/// What the work gives, done on a stack that is large enough. Work that takes longer goes on until the program ends:
/// nothing can stop it.
pub(super) fn run<T: Send + 'static>(
    most: Duration,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (sender, receiver) = mpsc::channel();
    let done = move || drop(sender.send(work()));
    let thread = Builder::new().name("chat template".to_owned()).stack_size(STACK).spawn(done);
    thread.map_err(|error| format!("cannot be run, as there is no memory for its stack: {error}"))?;
    receiver.recv_timeout(most).unwrap_or_else(|error| {
        Err(match error {
            RecvTimeoutError::Timeout => format!("takes more than {} s", most.as_secs_f64()),
            RecvTimeoutError::Disconnected => "fails: the program that renders templates gave up".to_owned(),
        })
    })
}

/// Refuses a tag with too many operators.
pub(super) fn check(template: &str) -> Result<(), String> {
    for tag in tags::all(template) {
        let operators = operators(&template[tag.clone()]);
        if operators > OPERATORS {
            let line = 1 + template[..tag.start].matches('\n').count();
            return Err(format!(
                "fails in line {line}: the tag has {operators} operators, more than {OPERATORS}"
            ));
        }
    }
    Ok(())
}

/// Signs and words of a tag that join or follow expressions, outside strings.
fn operators(tag: &str) -> usize {
    let (mut quote, mut escaped, mut plain) = (None, false, String::new());
    for c in tag.chars() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if matches!(c, '\'' | '"') => quote = Some(c),
            None => plain.push(c),
        }
    }
    let words = plain.split(|c: char| !c.is_alphanumeric() && c != '_');
    let words = words.filter(|word| matches!(*word, "and" | "or" | "not" | "in" | "is" | "if")).count();
    words + plain.matches(['.', '|', '+', '-', '*', '/', '%', '~', '<', '>', '=', '(', '[']).count()
}

/// Pays for writing a value; one that is nested too deeply is refused.
pub(super) fn pay(state: &State<'_, '_>, value: &Value, depth: usize) -> Result<(), Error> {
    state.consume_fuel(1)?;
    if depth > DEEPEST {
        let problem = format!("a value is nested more than {DEEPEST} deep");
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    match value.kind() {
        ValueKind::Seq => value.try_iter()?.try_for_each(|item| pay(state, &item, depth + 1)),
        ValueKind::Map => value.try_iter()?.try_for_each(|key| {
            pay(state, &key, depth + 1)?;
            pay(state, &value.get_item(&key)?, depth + 1)
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_those_outside_of_strings() {
        let cases = [
            ("{{ a.b | c }}", 2),
            ("{{ 'a.b' ~ \"\\\" + \" }}", 1),
            ("{% if not a and b in c %}", 6),
            ("{{ f(x)[0] }}", 2),
            ("{{ [1, 2, {'a': 3}] }}", 1),
        ];
        for (tag, wanted) in cases {
            assert_eq!(operators(tag), wanted, "{tag}");
        }
    }

    #[test]
    fn what_takes_too_long_is_given_up() {
        let slow = || {
            std::thread::sleep(Duration::from_secs(3));
            Ok(())
        };
        assert_eq!(run(Duration::from_millis(10), slow), Err("takes more than 0.01 s".to_owned()));
        assert_eq!(run(TIME, || Ok(7)), Ok(7));
    }
}
