//! What `bench --tune` prints.

use std::io::{self, Write};
use std::iter;
use std::path::Path;

use comfy_table::{CellAlignment, Column, Table, presets};

use super::*;

impl Shown for Report {
    fn print(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        self.header.print(&mut out, &format!("{}, tunings in whole tokens", self.launch))?;
        let Search { tried, tries, left_out, .. } = &self.search;
        if let Some(other) = &self.instead_of {
            writeln!(out, "The search starts from the built-in plans, not from {other}.\n")?;
        }
        let median = |spread: &Spread| format!("{:.1}", spread.median);
        writeln!(out, "{}\n", self.lines(tries, "of what is there", median).trim_fmt())?;
        writeln!(
            out,
            "Medians of {}, on the device, in turn.\n*: taken: the fastest if it gains more than {} %, else what is \
             there. Plans are tried over what was taken before.",
            tried.said(),
            100.0 * NOISE
        )?;
        if !left_out.is_empty() {
            writeln!(out, "do not fit the model: {}", left_out.join(", "))?;
        }
        let last = iter::once(&self.built_in).chain(&self.result);
        writeln!(out, "\nIn the end, {}, in turn:\n", self.compared.said())?;
        writeln!(out, "{}\n", self.lines(last, "of the built-in", Spread::to_string).trim_fmt())?;
        writeln!(out, "{}", verdict(self.result.as_ref(), self.kept.as_deref(), self.stays.as_deref()))?;
        Ok(())
    }
}

impl Report {
    fn lines<'a>(
        &self,
        rows: impl IntoIterator<Item = &'a Row>,
        share: &str,
        time: impl Fn(&Spread) -> String,
    ) -> Table {
        let contexts = self.contexts.iter().map(|ctx| format!("us/token, ctx {ctx}"));
        let head = ["product", "tuning"].map(String::from).into_iter().chain(contexts);
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header(head.chain([share.into()]));
        table.add_rows(rows.into_iter().map(|row| row.cells(&time)));
        let right = |column: &mut Column| column.set_cell_alignment(CellAlignment::Right);
        table.column_iter_mut().skip(2).for_each(right);
        table
    }
}

/// What came of it: whether there is a result, where it was kept, and the file that stays if it was not.
fn verdict(result: Option<&Row>, kept: Option<&Path>, stays: Option<&Path>) -> String {
    let noise = 100.0 * NOISE;
    let found = match (result, kept) {
        (Some(row), Some(kept)) => format!(
            "The result takes {:.1} % less time. It is kept in {}: run and bench use it from now on.",
            100.0 * (1.0 - row.share),
            kept.display()
        ),
        (Some(_), None) => {
            format!(
                "The result is not faster than the built-in plans by more than {noise} %: it is not kept."
            )
        }
        (None, _) => {
            format!("No plan is faster than the built-in one by more than {noise} %: nothing is kept.")
        }
    };
    let stays = stays
        .map(|file| format!("\nWhat was kept before stays in force until you delete {}.", file.display()));
    found + &stays.unwrap_or_default()
}

impl Row {
    fn cells(&self, time: impl Fn(&Spread) -> String) -> Vec<String> {
        let tuning = match (self.product, &self.plan) {
            (Some(_), Some(plan)) => plan,
            (Some(_), None) => "what is there",
            (None, _) if self.tuning.is_empty() => "built-in",
            (None, _) => &self.tuning,
        };
        let mark = if self.chosen { " *" } else { "" };
        let first = [self.product.unwrap_or("all").to_owned(), format!("{tuning}{mark}")];
        let last = format!("{:.1} %", 100.0 * self.share);
        first.into_iter().chain(self.us.iter().map(time)).chain([last]).collect()
    }
}

impl Turns {
    fn said(self) -> String {
        format!("{} x {} tokens", self.turns, self.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_came_of_it() {
        let us = |micros| vec![Spread::of(1, iter::once(Duration::from_micros(micros)))];
        let rows = rows(&[Tuning::default(); 2], vec![us(1000), us(960)]);
        let (row, file) = (Some(&rows[1]), Some(Path::new("a.json")));
        let cases = [
            (
                verdict(row, file, None),
                "The result takes 4.0 % less time. It is kept in a.json: run and bench use it from now on.",
            ),
            (
                verdict(row, None, None),
                "The result is not faster than the built-in plans by more than 0.5 %: it is not kept.",
            ),
            (
                verdict(None, None, file),
                "No plan is faster than the built-in one by more than 0.5 %: nothing is kept.\nWhat was kept before stays in force until you delete a.json.",
            ),
        ];
        for (said, wanted) in cases {
            assert_eq!(said, wanted);
        }
    }
}
