//! Compares the project's readers of tool calls with those of the crate dynamo-parsers.
//!
//! Run it with `cargo run --manifest-path tests/outside/dynamo/Cargo.toml`. For each format that
//! both sides read, a chat template writes replies with random calls. So the right result is known,
//! and a reader that returns other calls is wrong:
//!
//! - The project must return the calls. In formats without quotes, it may report a problem instead
//!   if a string contains the marks of the format.
//! - The crate must return the calls, except where `formats` lists a difference.
//!
//! Then the replies are damaged. Whatever calls the project returns, the template must write the
//! same text for them.

mod calls;
mod damaged;
mod dynamo;
mod formats;
mod random;
mod template;

use std::collections::BTreeMap;
use std::error::Error;
use std::process::{Command, ExitCode};

use calls::{Call, equal, random_calls};
use damaged::DamagedCounts;
use dynamo::Dynamo;
use formats::{Around, FORMATS, Format, Reply, Values};
use random::Random;
use template::{Found, Writer};

/// The variable with the folder in which the crate looks for the vocabulary of gpt-oss.
const VOCABULARY: &str = "TIKTOKEN_ENCODINGS_BASE";

/// The number of replies for each format.
const REPLIES: usize = 600;

/// Texts around calls.
const TEXTS: [&str; 5] = [
    "",
    "",
    "I will check.",
    "Zoë: [1] {soon} \"now\"",
    "Two\nlines, a <b> tag",
];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // The crate reads the folder from the environment, which a program can only set for another
    // one.
    if std::env::var_os(VOCABULARY).is_none() {
        let folder = std::env::current_exe()?.with_file_name("vocabulary");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("o200k_base.tiktoken"), dynamo::vocabulary()?)?;
        let program = std::env::current_exe()?;
        let status = Command::new(program)
            .args(std::env::args_os().skip(1))
            .env(VOCABULARY, folder)
            .status()?;
        return Ok(if status.success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }

    let only = std::env::args().nth(1);
    let dynamo = Dynamo::new()?;
    let mut problems = 0;
    for format in FORMATS {
        if only.as_ref().is_none_or(|only| only == format.parser) {
            let found = check(format, &dynamo).unwrap_or_else(|error| vec![error.to_string()]);
            for problem in &found {
                eprintln!("{}: {problem}", format.parser);
            }
            problems += found.len();
        }
    }

    println!("{problems} problems");
    Ok(if problems == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The results of the replies of a format.
#[derive(Default)]
struct Counts {
    same: usize,
    reported: usize,
    /// The replies that each known difference explains.
    explained: BTreeMap<usize, usize>,
}

/// Compares both sides for a format, prints a line and returns the problems.
fn check(format: &Format, dynamo: &Dynamo) -> Result<Vec<String>, Box<dyn Error>> {
    let writer = Writer::new(format)?;
    let mut counts = Counts::default();
    let mut damaged = DamagedCounts::default();
    let mut problems = vec![];
    for number in 0..REPLIES {
        let mut random = Random::new(format.template, number);
        let reply = random_reply(&mut random, format, &writer)?;
        let ours = writer.read(&mut random, &reply.text);
        let theirs = dynamo.read(format.parser, &reply.text);
        check_judges(format, &writer, &reply)?;
        if let Err(problem) = judge(format, &reply, &ours, &theirs, &mut counts) {
            problems.push(format!(
                "reply {number}: {problem}\n  reply {:?}\n  wrote {}\n  ours  {} {:?}\n  crate {}",
                reply.text,
                listed(&reply.calls),
                listed(&ours.calls),
                ours.problem,
                theirs.as_deref().map_or_else(Clone::clone, listed),
            ));
        }

        problems.extend(damaged::check(
            &mut random,
            format,
            &writer,
            dynamo,
            &reply,
            &mut damaged,
        ));
    }

    for (number, difference) in format.differences.iter().enumerate() {
        if !counts.explained.contains_key(&number) {
            problems.push(format!(
                "no reply shows the difference {:?}",
                difference.reason
            ));
        }
    }

    println!(
        "{} ({}): {} of {REPLIES} replies are the same, {} are reported; {damaged}",
        format.parser,
        format.template.rsplit('/').next().unwrap_or_default(),
        counts.same,
        counts.reported,
    );
    for (number, count) in counts.explained {
        println!("  {count} differ: {}", format.differences[number].reason);
    }

    Ok(problems)
}

/// Writes a reply with random calls, and with text around them if the format allows it.
fn random_reply(
    random: &mut Random,
    format: &Format,
    writer: &Writer,
) -> Result<Reply, Box<dyn Error>> {
    let calls = random_calls(random, format.most, format.marks);
    let before = if format.around == Around::Nowhere {
        ""
    } else {
        random.one(&TEXTS)
    };
    let plain = writer.reply(before, &calls)?;
    let mut text = writer.styled_reply(random, before, &calls)?;
    if format.around == Around::BeforeAndAfter && random.once_in(4) {
        text.push_str("\nDone.");
    }

    Ok(Reply { calls, text, plain })
}

/// Compares the results for a reply.
fn judge(
    format: &Format,
    reply: &Reply,
    ours: &Found,
    theirs: &Result<Vec<Call>, String>,
    counts: &mut Counts,
) -> Result<(), &'static str> {
    if !equal(&ours.calls, &reply.calls) {
        let has_mark = reply
            .calls
            .iter()
            .flat_map(Call::strings)
            .any(|text| format.marks.iter().any(|mark| text.contains(mark)));
        if !(ours.calls.is_empty()
            && ours.problem.is_some()
            && has_mark
            && format.values == Values::Marked)
        {
            return Err("the project returns other calls than the template wrote");
        }
        counts.reported += 1;
    }

    if theirs
        .as_ref()
        .is_ok_and(|calls| equal(calls, &reply.calls))
    {
        counts.same += usize::from(!ours.calls.is_empty());
        return Ok(());
    }

    let known = format
        .differences
        .iter()
        .position(|difference| (difference.explains)(reply));
    let known = known.ok_or("the crate returns other calls than the template wrote")?;
    *counts.explained.entry(known).or_default() += 1;
    Ok(())
}

/// Returns an error if a wrong result passes one of the checks.
fn check_judges(format: &Format, writer: &Writer, reply: &Reply) -> Result<(), Box<dyn Error>> {
    let mut wrong = reply.calls.clone();
    wrong[0].name.pop();
    let found = |calls: &[Call]| Found {
        calls: calls.to_vec(),
        problem: None,
    };
    let judges = |ours, theirs| judge(format, reply, &ours, &Ok(theirs), &mut Counts::default());
    let is_different = format
        .differences
        .iter()
        .any(|known| (known.explains)(reply));
    if judges(found(&wrong), reply.calls.clone()).is_ok()
        || judges(found(&reply.calls), wrong.clone()).is_ok() && !is_different
        || damaged::has_calls(format, writer, reply, &reply.plain, &wrong)
    {
        return Err(format!("a wrong result passes for {:?}", reply.text).into());
    }

    Ok(())
}

/// Writes calls for a message.
fn listed(calls: &[Call]) -> String {
    let calls: Vec<String> = calls
        .iter()
        .map(|call| format!("{}{}", call.name, call.arguments))
        .collect();
    format!("[{}]", calls.join(", "))
}
