//! Renders calls of tools by the chat templates of a folder, reads them back, and prints what came of it: `calls FOLDER`.

use std::path::Path;

#[path = "../tests/it/templates/round_trip.rs"]
mod round_trip;

use round_trip::Outcome;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (folder, verbose) = match &arguments[..] {
        [folder] => (folder, false),
        [flag, folder] if flag == "--verbose" => (folder, true),
        _ => panic!("calls [--verbose] FOLDER"),
    };
    println!(
        "| template | format | same | reported | left out | missed | other |\n|---|---|---|---|---|---|---|"
    );
    for file in round_trip::templates(Path::new(folder)) {
        let Some(report) = round_trip::report(&file) else {
            continue;
        };
        print!("{}", report.row());
        if verbose {
            for (outcome, cases) in report
                .results
                .iter()
                .filter(|(outcome, _)| **outcome != Outcome::Same)
            {
                for (case, reply, parts) in cases {
                    println!("  {outcome:?} {case}\n    {reply:?}\n    {parts:?}");
                }
            }
        }
    }
}
