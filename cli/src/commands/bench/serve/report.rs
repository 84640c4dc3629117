//! The report of `bench serve`, as a table and as JSON.

use std::io::{self, Write};
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::client::MeasuredReply;
use super::load::LoadRound;
use crate::commands::bench::files::BenchReport;
use crate::failure::Failure;

/// The output of `bench serve`.
#[derive(Serialize)]
pub(super) struct ServeReport {
    pub(super) url: String,
    pub(super) model: String,
    /// Whether the replies were streamed.
    pub(super) streamed: bool,
    pub(super) prompt: u32,
    pub(super) new: u32,
    pub(super) rounds: Vec<ServeRound>,
}

/// The figures of a round.
#[derive(Serialize)]
pub(super) struct ServeRound {
    pub(super) users: u32,
    requests: usize,
    seconds: f64,
    output_tokens_per_s: f64,
    /// Prompt and generated tokens per second.
    total_tokens_per_s: f64,
    requests_per_s: f64,
    /// The time to the first token, if the replies were streamed.
    first_token_ms: Option<Percentiles>,
    /// The time between two events with tokens.
    between_tokens_ms: Option<Percentiles>,
    whole_reply_ms: Percentiles,
    /// The figures by turn, in conversations with several turns.
    turns: Vec<ServeTurn>,
}

/// The figures of all requests that are the same turn of their conversations.
#[derive(Serialize)]
struct ServeTurn {
    turn: usize,
    prompt: u32,
    cached_tokens: f64,
    first_token_ms: Option<Percentiles>,
    whole_reply_ms: Percentiles,
}

/// Percentiles of times, in milliseconds.
#[derive(Serialize, Clone, Copy, Debug, PartialEq)]
struct Percentiles {
    p50: f64,
    p95: f64,
    p99: f64,
    max: f64,
}

impl Percentiles {
    /// Returns the percentiles by the nearest rank, or `None` without times.
    fn of(times: impl Iterator<Item = Duration>) -> Option<Percentiles> {
        let mut ms: Vec<f64> = times.map(|time| time.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        let last = ms.len().checked_sub(1)?;
        let rank = |share: f64| ms[((share * ms.len() as f64).ceil() as usize).max(1) - 1];
        Some(Percentiles {
            p50: rank(0.5),
            p95: rank(0.95),
            p99: rank(0.99),
            max: ms[last],
        })
    }

    fn cell(times: Option<Percentiles>) -> String {
        times.map_or("-".to_owned(), |times| {
            format!("{:.1} / {:.1} / {:.1}", times.p50, times.p95, times.p99)
        })
    }
}

impl ServeRound {
    /// Computes the figures of a round whose first prompts have `prompt` tokens.
    pub(super) fn new(users: u32, round: &LoadRound, prompt: u32, more: u32) -> ServeRound {
        let replies: Vec<&MeasuredReply> = round.turns.iter().flatten().collect();
        let seconds = round.wall.as_secs_f64();
        let output: u64 = replies.iter().map(|reply| reply.tokens).sum();
        let prompt_of = |turn: usize| prompt + more * turn as u32;
        let prompts: u64 = (0..round.turns.len())
            .map(|turn| u64::from(prompt_of(turn)) * round.turns[turn].len() as u64)
            .sum();
        let turns = if round.turns.len() == 1 {
            vec![]
        } else {
            let numbered = round.turns.iter().enumerate();
            let figures = numbered.filter(|(_, replies)| !replies.is_empty());
            figures
                .map(|(turn, replies)| ServeTurn::new(turn, prompt_of(turn), replies))
                .collect()
        };
        ServeRound {
            users,
            requests: replies.len(),
            seconds,
            output_tokens_per_s: output as f64 / seconds,
            total_tokens_per_s: (output + prompts) as f64 / seconds,
            requests_per_s: replies.len() as f64 / seconds,
            first_token_ms: Percentiles::of(replies.iter().filter_map(|reply| reply.first)),
            between_tokens_ms: Percentiles::of(
                replies.iter().flat_map(|reply| reply.gaps.iter().copied()),
            ),
            whole_reply_ms: Percentiles::of(replies.iter().map(|reply| reply.whole))
                .expect("a round has at least one request"),
            turns,
        }
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.users.to_string(),
            self.requests.to_string(),
            format!("{:.3}", self.seconds),
            format!("{:.1}", self.output_tokens_per_s),
            format!("{:.1}", self.total_tokens_per_s),
            Percentiles::cell(self.first_token_ms),
            Percentiles::cell(self.between_tokens_ms),
            Percentiles::cell(Some(self.whole_reply_ms)),
        ]
    }
}

impl ServeTurn {
    fn new(turn: usize, prompt: u32, replies: &[MeasuredReply]) -> ServeTurn {
        let cached: u64 = replies.iter().map(|reply| reply.cached).sum();
        ServeTurn {
            turn: turn + 1,
            prompt,
            cached_tokens: cached as f64 / replies.len() as f64,
            first_token_ms: Percentiles::of(replies.iter().filter_map(|reply| reply.first)),
            whole_reply_ms: Percentiles::of(replies.iter().map(|reply| reply.whole))
                .expect("a turn has at least one request"),
        }
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.turn.to_string(),
            self.prompt.to_string(),
            format!("{:.0}", self.cached_tokens),
            Percentiles::cell(self.first_token_ms),
            Percentiles::cell(Some(self.whole_reply_ms)),
        ]
    }
}

/// Returns a table with right-aligned columns.
fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(header.to_vec());
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

impl BenchReport for ServeReport {
    fn print(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let form = if self.streamed {
            "streamed"
        } else {
            "not streamed"
        };
        writeln!(
            out,
            "{} at {}, prompts of {} tokens, {} new tokens each, {form}\n",
            self.model, self.url, self.prompt, self.new
        )?;
        let header = [
            "users",
            "requests",
            "seconds",
            "output tokens/s",
            "all tokens/s",
            "first token, ms: p50 / p95 / p99",
            "between tokens, ms: p50 / p95 / p99",
            "whole reply, ms: p50 / p95 / p99",
        ];
        let rounds = table(&header, self.rounds.iter().map(ServeRound::row));
        writeln!(out, "{}", rounds.trim_fmt())?;

        for round in self.rounds.iter().filter(|round| !round.turns.is_empty()) {
            let header = [
                "turn",
                "prompt",
                "in the cache",
                "first token, ms: p50 / p95 / p99",
                "whole reply, ms: p50 / p95 / p99",
            ];
            let turns = table(&header, round.turns.iter().map(ServeTurn::row));
            writeln!(out, "\n{} users, by turn", round.users)?;
            writeln!(out, "{}", turns.trim_fmt())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let of = |count: u64| Percentiles::of((1..=count).map(Duration::from_millis));
        assert_eq!(of(0), None);
        let one = of(1).unwrap();
        assert_eq!((one.p50, one.p99, one.max), (1.0, 1.0, 1.0));
        let all = of(200).unwrap();
        assert_eq!(
            (all.p50, all.p95, all.p99, all.max),
            (100.0, 190.0, 198.0, 200.0)
        );
    }
}
