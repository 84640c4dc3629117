//! `warpwright info`: prints the contents of a model without loading its weights.

mod facts;

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use warpwright_model::Model;

use crate::device::{self, DeviceChoice};
use crate::failure::Failure;
use crate::model::adapter::{self, AdapterArgs};
use crate::model::options::ModelArg;
use facts::{
    ExpertFacts, ModelFact, ModelFacts, RopeFacts, SamplingFacts, SpecialToken, TemplateFacts,
    TensorRole, TokenizerFacts,
};
use warpwright_emu::terminal::printable;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    adapter: AdapterArgs,
    /// Device to select kernels for: auto, cuda:N or emu (the CPU emulator)
    #[arg(help_heading = "Device", long, value_name = "DEVICE", default_value_t = DeviceChoice::Auto, hide_possible_values = true)]
    device: DeviceChoice,
    /// Print a JSON object (without the rows about --adapter)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let model = args.adapter.open(args.model.path()?)?;
    let facts = ModelFacts::new(&model, &device::find(args.device, |_| ())?);
    let text = if args.json {
        serde_json::to_string_pretty(&facts).expect("keys are strings")
    } else {
        let tensors = tensors(&facts.tensors).trim_fmt();
        let facts = table(&facts, &model).trim_fmt();
        printable(&format!("{facts}\n\n{tensors}")).into_owned()
    };
    writeln!(io::stdout().lock(), "{text}")?;
    Ok(())
}

/// Returns the table of facts.
fn table(facts: &ModelFacts, model: &Model) -> Table {
    let mut table = Table::new();
    let row = |(name, text): (&str, String)| [name.to_owned(), text];
    table.load_style(presets::NOTHING);
    table.add_rows(about(facts).into_iter().map(row));
    table.add_rows(sizes(facts).into_iter().map(row));
    table.add_rows(words(&facts.tokenizer).into_iter().map(row));
    table.add_row(row(("chat template", template(&facts.chat_template))));
    table.add_rows(sampling(&facts.sampling).into_iter().map(row));
    table.add_rows(work(facts).into_iter().map(row));
    table.add_rows(adapter::rows(&model.outline));
    table
}

/// Rows of the table, each with a name and a text.
type Rows = Vec<(&'static str, String)>;

/// Returns the rows about the file and its formats.
fn about(facts: &ModelFacts) -> Rows {
    let named = [("name", &facts.name), ("license", &facts.license)];
    let named = named
        .into_iter()
        .filter_map(|(row, text)| Some((row, text.clone()?)));
    let share = |bytes: u64| {
        100.0 * bytes as f64 / facts.formats.values().map(|mix| mix.bytes).sum::<u64>() as f64
    };
    let mix = facts
        .formats
        .iter()
        .map(|(format, mix)| format!("{format} {:.1} %", share(mix.bytes)));
    let mix = mix.collect::<Vec<_>>().join(", ");
    let rest = [
        ("architecture", facts.architecture.to_owned()),
        ("parameters", parameters(facts)),
        ("formats", format!("{mix} of the bytes")),
    ];
    [("file", facts.file.clone())]
        .into_iter()
        .chain(named)
        .chain(rest)
        .collect()
}

/// Returns the number of parameters, and how many of them a token uses if it does not use all.
fn parameters(facts: &ModelFacts) -> String {
    let number = |parameters: u64| format!("{parameters} ({})", rounded(parameters));
    let all = number(facts.parameters);
    if facts.parameters_per_token == facts.parameters {
        return all;
    }
    format!("{all}, {} per token", number(facts.parameters_per_token))
}

/// Rounds a number to one decimal and a unit, for example `7.3 M`.
fn rounded(number: u64) -> String {
    let units = [(1e9, "B"), (1e6, "M"), (1e3, "K")];
    let (unit, name) = units
        .into_iter()
        .find(|(unit, _)| number as f64 >= *unit)
        .unwrap_or((1.0, ""));
    format!("{:.1} {name}", number as f64 / unit)
}

/// Returns the rows about the layers and their sizes.
fn sizes(facts: &ModelFacts) -> Rows {
    let ModelFacts {
        heads,
        kv_heads,
        head_dim,
        layers,
        ..
    } = facts;
    let head = if facts.own_head {
        "a separate matrix"
    } else {
        "the embedding"
    };
    let experts = facts
        .experts
        .as_ref()
        .map(|experts| ("experts", experts_text(experts, *layers)));
    let window = facts.window.as_ref().map(|window| {
        (
            "window",
            format!(
                "{} positions, in {} of {layers} layers",
                window.positions, window.layers
            ),
        )
    });
    let rope = facts
        .rope
        .iter()
        .zip(["RoPE", ""])
        .map(|(rope, name)| (name, rope_text(rope, *head_dim)));
    let sizes = [
        ("layers", layers.to_string()),
        ("hidden", facts.hidden.to_string()),
        ("feed-forward", facts.feed_forward.to_string()),
        (
            "heads",
            format!("{heads} query, {kv_heads} key and value, of {head_dim}"),
        ),
        ("vocabulary", facts.vocabulary.to_string()),
        ("context", facts.context.to_string()),
        ("LM head", head.to_owned()),
    ];
    let rows = sizes.into_iter().chain(experts);
    rows.chain(window).chain(rope).collect()
}

/// Returns the text about a mixture of experts.
fn experts_text(experts: &ExpertFacts, layers: u32) -> String {
    let ExpertFacts {
        count,
        per_token,
        feed_forward,
        shared_feed_forward,
        layers: with_experts,
    } = experts;
    let shared = shared_feed_forward.map_or(String::new(), |width| {
        format!(", and a shared one of feed-forward {width}")
    });
    let some = if *with_experts == layers as usize {
        String::new()
    } else {
        format!(", in {with_experts} of {layers} layers")
    };
    format!("{count} experts of feed-forward {feed_forward}, {per_token} per token{shared}{some}")
}

/// Returns the text about a rotary embedding.
fn rope_text(rope: &RopeFacts, head_dim: u32) -> String {
    let RopeFacts {
        dim,
        base,
        scaling,
        factor,
        original_context,
        own_factors,
    } = rope;
    let part = if *dim == head_dim {
        String::new()
    } else {
        format!(", {dim} of {head_dim} elements of a head")
    };
    let scaled = if *scaling == "none" {
        String::new()
    } else {
        format!(", {scaling} scaling by {factor}")
    };
    let context = original_context.map_or(String::new(), |context| {
        format!(" of a context of {context}")
    });
    let own = if *own_factors {
        ", divided by factors in the file"
    } else {
        ""
    };
    format!("base {base}{part}{scaled}{context}{own}")
}

/// Returns the rows about the tokenizer.
fn words(tokenizer: &ModelFact<TokenizerFacts>) -> Rows {
    let words = match tokenizer {
        ModelFact::Some(words) => words,
        ModelFact::Error(error) => return vec![("tokenizer", format!("cannot be used: {error}"))],
        ModelFact::None => return vec![],
    };
    let begins = words
        .begins_with
        .as_ref()
        .map_or("no special token".to_owned(), token);
    let ends = words
        .ends_with
        .iter()
        .map(token)
        .collect::<Vec<_>>()
        .join(", ");
    let ends = if ends.is_empty() {
        "no token".to_owned()
    } else {
        ends
    };
    let warnings = words
        .warnings
        .iter()
        .map(|warning| ("", format!("warning: {warning}")));
    [(
        "tokenizer",
        format!("texts begin with {begins} and end with {ends}"),
    )]
    .into_iter()
    .chain(warnings)
    .collect()
}

/// Returns a token as its spelling and its id.
fn token(token: &SpecialToken) -> String {
    match &token.spelling {
        Some(spelling) => format!("{spelling} ({})", token.id),
        None => token.id.to_string(),
    }
}

/// Returns the text about the chat template.
fn template(template: &ModelFact<TemplateFacts>) -> String {
    match template {
        ModelFact::None => "none".to_owned(),
        ModelFact::Error(error) => error.clone(),
        ModelFact::Some(TemplateFacts {
            asks_date,
            marks_replies,
        }) => {
            let date = if *asks_date {
                ", contains the date"
            } else {
                ""
            };
            let marks = if *marks_replies {
                ", marks replies"
            } else {
                ""
            };
            format!("yes{date}{marks}")
        }
    }
}

/// Returns the rows about generation_config.json.
fn sampling(sampling: &ModelFact<SamplingFacts>) -> Rows {
    match sampling {
        ModelFact::None => vec![],
        ModelFact::Error(error) => vec![("sampling", format!("cannot be used: {error}"))],
        ModelFact::Some(SamplingFacts { says, warning }) => {
            let says = says.iter().map(|(key, value)| format!("{key} {value}"));
            let says = says.collect::<Vec<_>>().join(", ");
            let says = if says.is_empty() {
                "no supported setting".to_owned()
            } else {
                says
            };
            let warning = warning
                .as_ref()
                .map(|warning| ("", format!("warning: {warning}")));
            [("sampling", format!("{says} (generation_config.json)"))]
                .into_iter()
                .chain(warning)
                .collect()
        }
    }
}

/// Returns the rows about the work per token.
fn work(facts: &ModelFacts) -> Rows {
    vec![
        (
            "read per token",
            format!("{} bytes of weights", facts.weight_bytes_per_token),
        ),
        (
            "",
            format!(
                "{} bytes of KV cache per position",
                facts.kv_bytes_per_position
            ),
        ),
        ("decoded by", facts.path.clone()),
        ("", format!("on {}", facts.device)),
    ]
}

/// Returns the table of tensors, with a row for each role.
fn tensors(classes: &[TensorRole]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(["tensor", "shape", "format", "bytes"]);
    table.add_rows(classes.iter().map(row));
    table
        .column_mut(3)
        .expect("the table has four columns")
        .set_cell_alignment(CellAlignment::Right);
    table
}

/// Returns the row of a role.
fn row(class: &TensorRole) -> [String; 4] {
    let formats = class
        .formats
        .iter()
        .map(|(format, count)| format!("{count} x {format}"));
    let shape = class.shape.iter().map(u64::to_string).collect::<Vec<_>>();
    [
        class.name.clone(),
        shape.join(" x "),
        formats.collect::<Vec<_>>().join(", "),
        class.bytes.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_are_described_with_what_a_token_uses() {
        let experts = |layers, shared_feed_forward| ExpertFacts {
            count: 128,
            per_token: 8,
            feed_forward: 768,
            shared_feed_forward,
            layers,
        };
        assert_eq!(
            experts_text(&experts(48, None), 48),
            "128 experts of feed-forward 768, 8 per token"
        );
        assert_eq!(
            experts_text(&experts(47, Some(2048)), 48),
            "128 experts of feed-forward 768, 8 per token, and a shared one of feed-forward 2048, in 47 of 48 layers"
        );
    }
}
