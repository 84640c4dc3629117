//! What grammars cost the host with a vocabulary, without a model or a device:
//!
//! ```sh
//! cargo run --release -p warpwright-model --example masks -- MODEL [WALKS]
//! ```
//!
//! `MODEL` is a GGUF file or a folder with a `tokenizer.json`. Each grammar is followed along a text, as a model that
//! knows what to write would, and on random walks, each token one of those that are allowed: these come to places that no
//! text comes to. A walk begins anew with the grammar, as each answer does. The figures are those of [`Matcher`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpwright_model::Error;
use warpwright_model::grammar::percentile;
use warpwright_model::{Grammar, GrammarCompiler, GrammarText, Matcher, Tokenizer};

/// Tokens of a random walk, at most.
const LONGEST: usize = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().ok_or("usage: masks MODEL [WALKS]")?;
    let walks = arguments.next().map_or(Ok(20), |walks| walks.parse())?;
    let start = Instant::now();
    let tokenizer = Arc::new(Tokenizer::open(model.as_ref())?);
    println!(
        "{} tokens, read in {:.0?}",
        tokenizer.size(),
        start.elapsed()
    );
    let start = Instant::now();
    let end: Vec<u32> = tokenizer.eos().into_iter().collect();
    let compiler =
        GrammarCompiler::from_vocabulary(Arc::clone(&tokenizer), tokenizer.size() as u32, &end)?;
    println!("prepared in {:.0?}", start.elapsed());
    println!(
        "| grammar | compiled | followed | chosen | forced | mask p50 | p99 | largest | taken p50 | p99 |"
    );
    for (name, grammar, text) in grammars() {
        let start = Instant::now();
        let grammar = compiler.compile(&grammar)?;
        let row = format!("| {name} | {:.1?}", start.elapsed());
        let along = (0..walks)
            .map(|_| follow(&grammar, &tokenizer, text))
            .collect::<Result<_, _>>()?;
        print(&format!("{row} | a text"), along);
        let random = (0..walks)
            .map(|seed| walk(&grammar, seed))
            .collect::<Result<_, _>>()?;
        print(&format!("{row} | random walks"), random);
    }

    Ok(())
}

/// One grammar of each kind, and a text that is within it.
pub(crate) fn grammars() -> [(&'static str, GrammarText, &'static str); 3] {
    let schema = r##"{"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 80}, "version": {"type": "string", "pattern": "^[0-9]+\\.[0-9]+\\.[0-9]+$"},
        "published": {"type": "string", "format": "date-time"}, "downloads": {"type": "integer", "minimum": 0},
        "kind": {"enum": ["library", "binary", "macro"]}, "license": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "authors": {"type": "array", "items": {"$ref": "#/$defs/person"}, "minItems": 1, "maxItems": 8},
        "metadata": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}},
        "required": ["name", "version", "kind", "authors"], "additionalProperties": false,
        "$defs": {"person": {"type": "object", "properties": {"name": {"type": "string"},
            "mail": {"type": "string", "format": "email"}}, "required": ["name"], "additionalProperties": false}}}"##;
    let json = r#"{"name": "A borrow checker for everyone, größer als 2 GB", "version": "1.20.3",
  "published": "2026-11-24T10:15:00Z", "downloads": 1048576, "kind": "library", "license": null,
  "authors": [{"name": "Ada Lovelace", "mail": "ada@example.org"}, {"name": "Charles \"Babbage\" é"}],
  "metadata": {"stars": 12.5, "edition": "2024, and whatever comes after that", "wasm": true}}"#;
    let regex = r"(INFO|WARN|ERROR) \[[0-9]{4}-[0-9]{2}-[0-9]{2}\] [a-z_]+(::[a-z_]+)*: [^\n]{1,200} \([0-9]+ms\)";
    let line = "WARN [2026-11-24] engine::grammar::matcher: the text of naïve users goes on for a while, and says: \
         (nothing) of any importance to you (125ms)";
    let lark = "start: statement (\" \" statement)*\nstatement: \"let \" NAME \" = \" sum \";\"\n\
         sum: product ((\" + \" | \" - \") product)*\nproduct: atom ((\" * \" | \" / \") atom)*\n\
         atom: NUMBER | NAME | \"(\" sum \")\" | NAME \"(\" sum (\", \" sum)* \")\" | STRING\n\
         NAME: /[a-z][a-z0-9_]*/\nNUMBER: /[0-9]+(\\.[0-9]+)?/\nSTRING: /\"[^\"\\n]*\"/\n";
    let code = "let total = price * (1 + rate) - round(discount / 3, 2); let label_2 = concat(\"Summe, größer\", \
         name, (((total)))); let x = 3.25 * y;";
    [
        ("JSON schema", GrammarText::JsonSchema(schema.into()), json),
        ("regular expression", GrammarText::Regex(regex.into()), line),
        ("Lark", GrammarText::Lark(lark.into()), code),
    ]
}

/// Along a text: after what is forced, the first token of the rest as the tokenizer divides it.
pub(crate) fn follow(
    grammar: &Grammar,
    tokenizer: &Tokenizer,
    text: &str,
) -> Result<Matcher, Error> {
    let (mut matcher, mut rest) = (grammar.matcher(), text.as_bytes());
    loop {
        for token in matcher.forced(LONGEST)? {
            rest = rest
                .strip_prefix(tokenizer.piece(token))
                .expect("the text is within the grammar");
        }

        if rest.is_empty() {
            assert!(matcher.is_complete(), "the text is not whole");
            return Ok(matcher);
        }

        let mask = matcher.allowed()?;
        let token = match std::str::from_utf8(rest) {
            Ok(text) => tokenizer.encode_rest(text)?[0],
            // Tokens may divide a character, and the tokenizer has none for its second half.
            Err(_) => {
                longest(tokenizer, mask, rest).expect("the vocabulary has a token for each byte")
            }
        };
        rest = rest
            .strip_prefix(tokenizer.piece(token))
            .expect("tokens are the text that they are of");
        matcher.take_chosen(token)?;
    }
}

/// The longest token of a mask that these bytes begin with.
fn longest(tokenizer: &Tokenizer, mask: &[u32], bytes: &[u8]) -> Option<u32> {
    let tokens = tokens_of(mask).into_iter().filter(|token| {
        let piece = tokenizer.piece(*token);
        !piece.is_empty() && bytes.starts_with(piece)
    });
    tokens.max_by_key(|token| tokenizer.piece(*token).len())
}

/// Along tokens that are drawn with equal chances.
fn walk(grammar: &Grammar, seed: u64) -> Result<Matcher, Error> {
    let mut matcher = grammar.matcher();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for _ in 0..LONGEST {
        matcher.forced(LONGEST)?;
        if matcher.is_over() {
            break;
        }
        let tokens = tokens_of(matcher.allowed()?);
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        matcher.take_chosen(tokens[(state >> 33) as usize % tokens.len()])?;
    }

    Ok(matcher)
}

/// The tokens of a mask.
fn tokens_of(mask: &[u32]) -> Vec<u32> {
    (0..32 * mask.len() as u32)
        .filter(|token| mask[*token as usize / 32] >> (token % 32) & 1 == 1)
        .collect()
}

fn print(row: &str, walks: Vec<Matcher>) {
    let all = |times: fn(&Matcher) -> &Vec<Duration>| -> Vec<Duration> {
        walks.iter().flat_map(times).copied().collect()
    };
    let (masks, taken) = (
        all(|walk| &walk.costs().masks),
        all(|walk| &walk.costs().taken),
    );
    let forced: u32 = walks.iter().map(|walk| walk.costs().forced).sum();
    let at = |times: &[Duration], share| {
        percentile(times, share).map_or("-".to_owned(), |time| {
            format!("{:.0}", 1e6 * time.as_secs_f64())
        })
    };
    let [m50, m99, most] = [0.5, 0.99, 1.0].map(|share| at(&masks, share));
    let [t50, t99] = [0.5, 0.99].map(|share| at(&taken, share));
    println!(
        "{row} | {} | {forced} | {m50} | {m99} | {most} | {t50} | {t99} |",
        masks.len()
    );
}
