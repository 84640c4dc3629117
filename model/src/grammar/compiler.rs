//! Compiles JSON schemas, Lark grammars and regular expressions for a vocabulary.

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{InferenceCapabilities, TokEnv};
use llguidance::{ParserFactory, panic_utils};
use serde_json::{Value, json};

use super::endless;
use super::excluded;
use super::fault::GrammarFault;
use super::masks::DividedTokens;
use super::matcher::Matcher;
use super::place;
use super::references;
use super::spellings;
use super::stays::FUEL;
use super::tokens::Tokens;
use crate::Error;
use crate::architecture::outline::Outline;
use crate::tokenizer::codec::Tokenizer;

/// The source of a grammar. A generated text matches it as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrammarText {
    /// A JSON schema. The text is JSON that the schema allows. Keywords that are not supported are
    /// errors.
    JsonSchema(String),
    /// A JSON schema, for JSON without white space between its tokens. Small models otherwise spend
    /// tokens on spaces and line breaks.
    CompactJsonSchema(String),
    /// A grammar in the notation of the Python package Lark, with the [extensions of
    /// llguidance](https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md). It starts
    /// with the rule `start`.
    Lark(String),
    /// A regular expression in the syntax of the crate `regex`, without assertions. It matches the
    /// whole text.
    Regex(String),
}

/// A compiler of grammars for the vocabulary of a model.
///
/// The engine's `Decoder::decode_constrained` does the last step of this example for every token.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use warpwright_model::{GrammarCompiler, GrammarText, Model};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = Model::open("model.gguf".as_ref())?;
/// let tokenizer = Arc::new(model.tokenizer()?);
/// let compiler = GrammarCompiler::new(Arc::clone(&tokenizer), &model.outline)?;
/// let grammar = compiler.compile(&GrammarText::Regex("[0-9]{4}-[0-9]{2}-[0-9]{2}".into()))?;
///
/// let mut matcher = grammar.matcher();
/// for token in tokenizer.encode_rest("2026-11-27")? {
///     matcher.take(token)?;
/// }
/// assert!(matcher.is_complete());
/// # Ok(())
/// # }
/// ```
pub struct GrammarCompiler {
    factory: ParserFactory,
    tokens: Arc<DividedTokens>,
    vocab: u32,
}

/// A compiled grammar. It can constrain any number of texts over the vocabulary that it was
/// compiled for.
pub struct Grammar {
    start: llguidance::Matcher,
    vocab: u32,
    warnings: Vec<String>,
}

impl GrammarCompiler {
    /// Prepares the vocabulary of a model. A large one takes about 0.1 s.
    ///
    /// # Errors
    /// Returns an error if the parser cannot use the vocabulary.
    pub fn new(tokenizer: Arc<Tokenizer>, outline: &Outline) -> Result<GrammarCompiler, Error> {
        GrammarCompiler::from_vocabulary(tokenizer, outline.config.vocab, &outline.stop)
    }

    /// Prepares the first `vocab` tokens of a tokenizer without a model. A text ends with a token
    /// in `end`.
    ///
    /// # Errors
    /// Returns an error if the parser cannot use the vocabulary.
    pub fn from_vocabulary(
        tokenizer: Arc<Tokenizer>,
        vocab: u32,
        end: &[u32],
    ) -> Result<GrammarCompiler, Error> {
        // The library panics where a vocabulary breaks its assumptions.
        let prepared = panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let tokens: TokEnv = Arc::new(Tokens::new(tokenizer, vocab, end));
            let factory = ParserFactory::new(&tokens, InferenceCapabilities::default(), &[])?;
            Ok((factory, Arc::new(DividedTokens::new(&tokens))))
        }));
        let (mut factory, tokens) = prepared
            .map_err(|error| error_of("vocabulary", GrammarFault::Other(format!("{error:#}"))))?;
        factory.quiet().limits_mut().verbose_errors = false;
        factory.limits_mut().step_lexer_fuel = FUEL;
        Ok(GrammarCompiler {
            factory,
            tokens,
            vocab,
        })
    }

    /// Compiles a grammar and checks that a text can start.
    ///
    /// # Errors
    /// Returns [`Error::Grammar`] if the source has a syntax error, if it uses a keyword that is
    /// not supported, if no text matches it, or if a part of it can never be completed. The error
    /// has the place where it is known.
    pub fn compile(&self, text: &GrammarText) -> Result<Grammar, Error> {
        let fault = |fault| error_of(text.name(), fault);
        let source = source(text).map_err(fault)?;
        let parser = self.factory.create_parser(source);

        // The checks of `endless` need a compiled grammar, because the library expands schemas into
        // rules.
        let mut parser = parser.map_err(|error| fault(text.fault(&format!("{error:#}"))))?;
        if let Some(part) = endless::part(parser.parser.grammar()) {
            return Err(fault(GrammarFault::Endless { part }));
        }

        if let GrammarText::JsonSchema(_) | GrammarText::CompactJsonSchema(_) = text
            && let Some(part) = endless::dead(parser.parser.grammar(), self.factory.limits())
        {
            return Err(fault(GrammarFault::Excluded { part }));
        }

        if let Some(rule) = endless::tempered(parser.parser.grammar()) {
            return Err(fault(GrammarFault::Tempered { rule }));
        }

        self.tokens.serve(&mut parser, self.factory.limits());
        let mut start = llguidance::Matcher::new(Ok(parser));
        if let Some(said) = problem_of(start.clone()) {
            return Err(fault(if said.starts_with("NoExtensionBias") {
                GrammarFault::Unsatisfiable("no token of the vocabulary can begin one".to_owned())
            } else {
                text.fault(&said)
            }));
        }

        let warnings = start.grammar_warnings();
        Ok(Grammar {
            start,
            vocab: self.vocab,
            warnings,
        })
    }
}

impl GrammarCompiler {
    /// Compiles a grammar in Lark's notation, in which `@answer` is another grammar. A text that is
    /// `None` is not used.
    ///
    /// # Errors
    /// Returns the errors of [`compile`](Self::compile) for either of them.
    pub fn compile_framed(
        &self,
        frame: &str,
        text: Option<&GrammarText>,
    ) -> Result<Grammar, Error> {
        // The checks of a grammar report places in it, so it is compiled alone first.
        let mut warnings = vec![];
        if let Some(text) = text {
            warnings = self.compile(text)?.warnings;
        }

        let outer = GrammarText::Lark(frame.to_owned());
        let fault = |fault| error_of(outer.name(), fault);
        let mut grammars = lark(frame).map_err(fault)?;
        if let Some(text) = text {
            for mut inner in source(text).map_err(fault)?.grammars {
                inner.name = Some("answer".to_owned());
                grammars.grammars.push(inner);
            }
        }

        let parser = self.factory.create_parser(grammars);
        let mut parser = parser.map_err(|error| fault(outer.fault(&format!("{error:#}"))))?;
        self.tokens.serve(&mut parser, self.factory.limits());
        let start = llguidance::Matcher::new(Ok(parser));
        if let Some(said) = problem_of(start.clone()) {
            return Err(fault(outer.fault(&said)));
        }

        Ok(Grammar {
            start,
            vocab: self.vocab,
            warnings,
        })
    }
}

impl Grammar {
    /// Returns a matcher at the start of a text.
    ///
    /// Matchers of one grammar are independent, but they share a cache of lexer states. Later texts
    /// are therefore faster.
    pub fn matcher(&self) -> Matcher {
        Matcher::new(self.start.clone(), self.vocab)
    }

    /// Returns a sentence for each part of the grammar that is not followed exactly.
    ///
    /// There are such parts only if the grammar itself permits them, for example with `"lenient":
    /// true` in a schema.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl GrammarText {
    /// Returns the kind of source for error messages.
    fn name(&self) -> &'static str {
        match self {
            GrammarText::JsonSchema(_) | GrammarText::CompactJsonSchema(_) => "JSON schema",
            GrammarText::Lark(_) => "grammar",
            GrammarText::Regex(_) => "regular expression",
        }
    }

    /// Converts an error message of the library.
    fn fault(&self, said: &str) -> GrammarFault {
        match self {
            GrammarText::JsonSchema(schema) | GrammarText::CompactJsonSchema(schema) => {
                GrammarFault::of_schema(said, |keyword| {
                    place::of_keyword(&serde_json::from_str(schema).ok()?, keyword)
                })
            }
            GrammarText::Lark(_) => GrammarFault::of_lark(said),
            GrammarText::Regex(_) => GrammarFault::of_regex(said),
        }
    }
}

/// Returns the reason why no text can start, if there is one. Tries the forced tokens and the first
/// choice.
fn problem_of(mut start: llguidance::Matcher) -> Option<String> {
    start.consume_ff_tokens();
    let mask = if start.is_stopped() {
        None
    } else {
        Some(start.compute_mask())
    };
    mask.map_or_else(
        || start.get_error(),
        |mask| mask.err().map(|error| error.to_string()),
    )
}

/// The white space that is allowed between the tokens of JSON: one space, or a line break and an
/// indentation.
///
/// It is bounded, because a model that cannot continue otherwise writes spaces until its context is
/// full.
pub(crate) const SPACE: &str = r" |\n( {0,20}|\t{0,8})";

/// Converts a source for the library.
fn source(text: &GrammarText) -> Result<TopLevelGrammar, GrammarFault> {
    match text {
        GrammarText::JsonSchema(schema) => Ok(TopLevelGrammar::from_json_schema(self::schema(
            schema,
            json!({ "whitespace_pattern": SPACE }),
        )?)),
        GrammarText::CompactJsonSchema(schema) => Ok(TopLevelGrammar::from_json_schema(
            self::schema(schema, json!({ "whitespace_flexible": false }))?,
        )),
        GrammarText::Lark(grammar) => lark(grammar),
        GrammarText::Regex(regex) => self::regex(regex),
    }
}

/// Reads and checks a schema and prepares it for the library. `settings` apply unless the schema
/// has its own.
fn schema(text: &str, settings: Value) -> Result<Value, GrammarFault> {
    let mut value =
        serde_json::from_str(text).map_err(|error| GrammarFault::Json(error.to_string()))?;
    super::schema::check(&value)?;
    if let Value::Object(keywords) = &mut value {
        keywords.entry("x-guidance").or_insert(settings);
    }
    prepare(&mut value)?;
    Ok(value)
}

/// Rewrites the parts of a schema that the library would read differently.
fn prepare(schema: &mut Value) -> Result<(), GrammarFault> {
    references::resolve(schema)?;
    excluded::fold(schema);
    if spellings::are_ambiguous(schema) {
        spellings::check_strings(schema, "#")?;
        allow_short_escapes_only(schema);
    }
    Ok(())
}

/// Forbids `\u` escapes, unless the schema's own settings for the library say something else.
fn allow_short_escapes_only(schema: &mut Value) {
    let Value::Object(keywords) = schema else {
        return;
    };
    let settings = keywords.entry("x-guidance").or_insert_with(|| json!({}));
    if let Value::Object(settings) = settings {
        settings
            .entry(spellings::SETTING)
            .or_insert(json!(spellings::SHORT_ESCAPES));
    }
}

fn lark(grammar: &str) -> Result<TopLevelGrammar, GrammarFault> {
    if grammar.trim().is_empty() {
        return Err(GrammarFault::Empty);
    }
    match grammar.lines().position(is_gbnf) {
        Some(line) => Err(GrammarFault::Gbnf { line: line + 1 }),
        None => {
            let mut parts = grammar.split("%json");
            let mut prepared = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                prepared += "%json";
                prepared += &embedded(part)?;
            }
            Ok(TopLevelGrammar::from_lark(prepared))
        }
    }
}

/// Prepares the schema at the start of the text after `%json`. Invalid JSON is left to the library,
/// which reports its line.
fn embedded(text: &str) -> Result<String, GrammarFault> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let Some(Ok(value)) = values.next() else {
        return Ok(text.to_owned());
    };

    let (schema, rest) = text.split_at(values.byte_offset());
    super::schema::check(&value)?;
    let mut prepared = value.clone();
    prepare(&mut prepared)?;
    if prepared == value {
        return Ok(text.to_owned());
    }

    // The number of lines stays, because errors after the schema are reported with their line.
    let lines = "\n".repeat(schema.matches('\n').count());
    let space = &schema[..schema.len() - schema.trim_start().len()];
    let json = prepared.to_string();
    let lines = &lines[space.matches('\n').count()..];
    Ok(format!("{space}{}{lines}{}{rest}", &json[..1], &json[1..]))
}

/// Returns true if a line is a rule of llama.cpp's GBNF: `name ::= ...`
fn is_gbnf(line: &str) -> bool {
    let rule = line.split_once("::=").map(|(name, _)| name.trim());
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    rule.is_some_and(|name| !name.is_empty() && name.chars().all(part))
}

/// Converts a regular expression. It is parsed here first, because the library does not report the
/// place of an error.
fn regex(regex: &str) -> Result<TopLevelGrammar, GrammarFault> {
    if regex.is_empty() {
        return Err(GrammarFault::Empty);
    }
    let (place, problem) = match regex_syntax::parse(regex) {
        Ok(_) => return Ok(TopLevelGrammar::from_regex(regex)),
        Err(regex_syntax::Error::Parse(error)) => (error.span().start, error.kind().to_string()),
        Err(regex_syntax::Error::Translate(error)) => {
            (error.span().start, error.kind().to_string())
        }
        Err(error) => return Err(GrammarFault::Other(error.to_string())),
    };
    Err(GrammarFault::At {
        line: place.line,
        column: place.column,
        problem,
    })
}

fn error_of(what: &'static str, fault: GrammarFault) -> Error {
    Error::Grammar {
        what,
        fault: Box::new(fault),
    }
}
