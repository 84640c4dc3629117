//! Renders calls by the chat templates of a folder and reads them back.
//!
//! `calls [--verbose] FOLDER` prints a table of the conversations in `round_trip.rs`. `calls
//! --hostile COUNT FOLDER` reads COUNT random conversations per template, made by `hostile.rs`,
//! first with the values in the user's message and then without them.

use std::path::Path;

use warpwright_model::chat::{ChatTemplate, Tools, today};

#[path = "../tests/it/templates/hostile.rs"]
mod hostile;
#[path = "../tests/it/templates/round_trip.rs"]
mod round_trip;

use hostile::Asked;
use round_trip::Outcome;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--hostile", count, folder] => {
            let count = count.parse().expect("COUNT is a number");
            print_hostile(Path::new(folder), count);
        }
        ["--verbose", folder] => print_table(Path::new(folder), Details::Shown),
        [folder] => print_table(Path::new(folder), Details::Hidden),
        _ => panic!("calls [--verbose | --hostile COUNT] FOLDER"),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Details {
    Shown,
    Hidden,
}

fn print_table(folder: &Path, details: Details) {
    println!(
        "| template | format | same | reported | left out | missed | other |\n|---|---|---|---|---|---|---|"
    );
    for file in round_trip::templates(folder) {
        let Some(report) = round_trip::report(&file) else {
            continue;
        };

        print!("{}", report.row());
        if details == Details::Hidden {
            continue;
        }

        for (outcome, cases) in &report.results {
            if *outcome == Outcome::Same {
                continue;
            }
            for (case, reply, parts) in cases {
                println!("  {outcome:?} {case}\n    {reply:?}\n    {parts:?}");
            }
        }
    }
}

fn print_hostile(folder: &Path, count: usize) {
    let tools = include_str!("../tests/data/calls/tools.json");
    let tools = Tools::new(tools).expect("the file has tools");
    println!(
        "| template | values in the message | same | reported | identical | wrong |\n|---|---|---|---|---|---|"
    );
    for file in round_trip::templates(folder) {
        let source = std::fs::read_to_string(&file).expect("the template can be read");
        let special = vec![("eos_token", "</s>".to_owned())];
        let Ok(mut template) = ChatTemplate::new(&source, special) else {
            continue;
        };

        template.set_date(today());
        if !template.knows_calls() {
            continue;
        }

        for asked in [Asked::Values, Asked::Nothing] {
            let Some(tally) = hostile::hostile(&template, &tools, asked, 1, count) else {
                continue;
            };
            println!(
                "| {} | {} | {} | {} | {} | {} |",
                file.file_stem().unwrap_or_default().to_string_lossy(),
                if asked == Asked::Values { "yes" } else { "no" },
                tally.same,
                tally.reported,
                tally.identical,
                tally.wrong.len()
            );
            if let Some(wrong) = tally.wrong.first() {
                eprintln!("{wrong}");
            }
        }
    }
}
