//! The counts of a soak, and the problems that it found.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};

use super::actions::{ACTIONS, Action};

/// The counts of the requests of all clients.
#[derive(Default)]
pub(super) struct Tally {
    counts: Vec<(Action, ActionCount)>,
    problems: Vec<String>,
}

/// The counts of the requests of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct ActionCount {
    complete: u64,
    refused: u64,
    problems: u64,
    longest: Duration,
    total: Duration,
}

/// The outcome of a request without a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The server did what it must do.
    Complete,
    /// The queue was full, and the server said when to try again.
    Refused,
}

impl Tally {
    /// Counts a request.
    pub(super) fn count(&mut self, action: Action, outcome: Option<Outcome>, time: Duration) {
        let known = self.counts.iter().position(|(known, _)| *known == action);
        let index = known.unwrap_or_else(|| {
            self.counts.push((action, ActionCount::default()));
            self.counts.len() - 1
        });
        let (_, count) = &mut self.counts[index];
        match outcome {
            Some(Outcome::Complete) => {
                count.complete += 1;
                count.longest = count.longest.max(time);
                count.total += time;
            }
            Some(Outcome::Refused) => count.refused += 1,
            None => count.problems += 1,
        }
    }

    /// Records a problem.
    pub(super) fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    pub(super) fn problems(&self) -> &[String] {
        &self.problems
    }

    pub(super) fn requests(&self) -> u64 {
        let counts = self.counts.iter();
        counts
            .map(|(_, count)| count.complete + count.refused + count.problems)
            .sum()
    }

    /// Returns the kinds of requests of which none was complete.
    pub(super) fn missing_kinds(&self) -> Vec<Action> {
        let is_complete = |action: &Action| {
            let mut counts = self.counts.iter();
            counts.any(|(known, count)| known == action && count.complete > 0)
        };
        let kinds = ACTIONS.iter().map(|(action, _)| *action);
        kinds.filter(|action| !is_complete(action)).collect()
    }

    /// Returns the table of the counts.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header([
            "request",
            "complete",
            "queue full",
            "problems",
            "mean seconds",
            "longest",
        ]);
        for (action, _) in ACTIONS {
            let mut counts = self.counts.iter();
            let count = counts.find(|(known, _)| *known == action);
            let count = count.map(|(_, count)| *count).unwrap_or_default();
            let mean = count.total.as_secs_f64() / count.complete.max(1) as f64;
            table.add_row([
                action.name().to_owned(),
                count.complete.to_string(),
                count.refused.to_string(),
                count.problems.to_string(),
                format!("{mean:.2}"),
                format!("{:.2}", count.longest.as_secs_f64()),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_without_a_complete_request_are_missing() {
        let mut tally = Tally::default();
        assert_eq!(tally.missing_kinds().len(), ACTIONS.len());
        let second = Duration::from_secs(1);
        tally.count(Action::Whole, Some(Outcome::Refused), second);
        tally.count(Action::Malformed, None, second);
        assert_eq!(tally.missing_kinds().len(), ACTIONS.len());
        tally.count(Action::Whole, Some(Outcome::Complete), second);
        assert!(!tally.missing_kinds().contains(&Action::Whole));
        assert_eq!((tally.requests(), tally.problems().len()), (3, 0));
        assert!(tally.table().to_string().contains("malformed"));
    }
}
