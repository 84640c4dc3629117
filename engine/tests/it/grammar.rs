//! Texts within grammars, on the emulator: only what is allowed is chosen, and that as without a grammar.

use std::sync::Arc;

use warpwright_engine::{Decoder, GenerationEnd, Launch, Options, Prefer, Sampling, TokenChoice};
use warpwright_kernels::sample::reference;
use warpwright_model::{Grammar, GrammarCompiler, GrammarText, Matcher, Model, Tokenizer};

use crate::asset;
use crate::batch::small;
use crate::decode::emulator;
use crate::sampling::adjusted;
use crate::synth::{Q8_0, Synth, synth};

/// A model, its tokens, and what makes grammars for them.
pub(crate) struct Words {
    pub(crate) model: Model,
    pub(crate) tokenizer: Arc<Tokenizer>,
    compiler: GrammarCompiler,
}

/// The small model of the repository.
fn real() -> Words {
    let model = Model::open(&asset()).unwrap();
    let tokenizer = Arc::new(model.tokenizer().unwrap());
    let compiler = GrammarCompiler::new(Arc::clone(&tokenizer), &model.outline).unwrap();
    Words {
        model,
        tokenizer,
        compiler,
    }
}

/// Its tokens, and a model of random numbers that is faster. The file is named after the test.
pub(crate) fn random(test: &str) -> Words {
    let shape = Synth {
        arch: "llama",
        formats: &[Q8_0],
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        tied: true,
        scaled: false,
        vocab: 4096,
    };
    let mut model = Model::open(&synth(shape).save(&format!("grammar-{test}.gguf"))).unwrap();
    let Words {
        model: real,
        tokenizer,
        compiler,
    } = real();
    (model.outline.config.context, model.outline.stop) = (512, real.outline.stop);
    Words {
        model,
        tokenizer,
        compiler,
    }
}

impl Words {
    fn regex(&self, regex: &str) -> Grammar {
        self.compiler
            .compile(&GrammarText::Regex(regex.into()))
            .unwrap()
    }

    pub(crate) fn lark(&self, grammar: &str) -> Grammar {
        self.compiler
            .compile(&GrammarText::Lark(grammar.into()))
            .unwrap()
    }

    fn decoder(&self, options: Options) -> Decoder {
        let options = Options {
            choice: TokenChoice::Constrained { logprobs: 4 },
            ..options
        };
        Decoder::new(&emulator(), &self.model, options, |_| ()).unwrap()
    }

    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode(text).unwrap()
    }

    /// Why the grammar is refused.
    fn refusal(&self, text: GrammarText) -> String {
        match self.compiler.compile(&text) {
            Ok(_) => panic!("{text:?} is no mistake"),
            Err(error) => error.to_string(),
        }
    }
}

/// Without the kernels for long prompts, whose compilation takes time.
fn short(launch: Launch) -> Options {
    Options {
        tokens_per_launch: 1,
        prefill_batch: 1,
        chunk: 0,
        ..Options::new(96, launch)
    }
}

/// Tokens after a prompt, and why they ended.
fn write(
    decoder: &mut Decoder,
    prompt: &[u32],
    limit: u32,
    matcher: &mut Matcher,
) -> (Vec<u32>, GenerationEnd) {
    decoder.reset();
    decoder.prefill(prompt).unwrap();
    let mut generation = decoder.decode_constrained(limit, matcher).unwrap();
    let tokens = generation.by_ref().collect::<Result<_, _>>().unwrap();
    (tokens, generation.end())
}

/// High temperature and penalties: without a grammar, anything comes.
pub(crate) fn wild() -> Sampling {
    let base = Sampling {
        temperature: 1.5,
        top_k: 40,
        top_p: 0.95,
        seed: 7,
        logprobs: 4,
        ..Sampling::off()
    };
    Sampling {
        repeat_penalty: 1.2,
        presence_penalty: 0.3,
        penalty_window: 16,
        ..base
    }
}

#[test]
fn a_text_is_json_that_its_schema_allows() {
    let words = real();
    let schema = r##"{"type": "object", "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{2,6}$"},
        "unsafe": {"type": "boolean"},
        "sizes": {"type": "array", "items": {"enum": [8, 16, "huge"]}, "minItems": 1, "maxItems": 2},
        "next": {"$ref": "#/$defs/next"}},
        "required": ["name", "unsafe", "sizes", "next"], "additionalProperties": false,
        "$defs": {"next": {"anyOf": [{"type": "null"}, {"const": "end"}]}},
        "x-guidance": {"whitespace_flexible": false}}"##;
    let grammar = words
        .compiler
        .compile(&GrammarText::JsonSchema(schema.into()))
        .unwrap();
    let mut decoder = words.decoder(Options {
        prefill_batch: 8,
        ..short(Launch::Graph)
    });
    decoder.set_sampling(&wild()).unwrap();
    let mut matcher = grammar.matcher();
    let (tokens, end) = write(
        &mut decoder,
        &words.encode("A type as JSON: "),
        90,
        &mut matcher,
    );
    let text = words.tokenizer.decode(&tokens);
    assert_eq!(
        (end, matcher.is_complete()),
        (GenerationEnd::Grammar, true),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let name = json["name"].as_str().unwrap();
    assert!(
        (2..=6).contains(&name.len()) && name.bytes().all(|c| c.is_ascii_lowercase()),
        "{text}"
    );
    assert!(
        json["unsafe"].is_boolean() && json["next"].as_str().is_none_or(|next| next == "end"),
        "{text}"
    );
    let sizes = json["sizes"].as_array().unwrap();
    assert!((1..=2).contains(&sizes.len()), "{text}");
    assert!(
        sizes
            .iter()
            .all(|size| *size == 8 || *size == 16 || *size == "huge"),
        "{text}"
    );
    assert_eq!(json.as_object().unwrap().len(), 4, "{text}");
    let costs = matcher.costs();
    assert!(
        costs.forced > 5,
        "{text}: {} tokens were forced",
        costs.forced
    );
    assert_eq!(costs.forced as usize + costs.masks.len(), tokens.len());
}

/// The token that the reference draws of those that are allowed: what is forbidden is dropped last.
pub(crate) fn drawn(logits: &[f32], bits: &[u32], sampling: &Sampling, tokens: &[u32]) -> u32 {
    let allowed = |token: usize| bits[token / 32] >> (token % 32) & 1 == 1;
    let z = adjusted(logits, sampling, tokens).into_iter().enumerate();
    let z: Vec<f32> = z
        .map(|(token, z)| if allowed(token) { z } else { f32::MIN })
        .collect();
    reference::choose(&z, &sampling.params(), tokens.len() as u32 - 1).unwrap()
}

/// Token by token, with the logits read in between.
fn check_drawn(name: &str, words: &Words, options: Options, sampling: &Sampling, prompt: &str) {
    let grammar = words.regex("( [a-z]{3,9}){2}, [0-9]{2}\\.");
    let (mut decoder, mut matcher) = (words.decoder(options), grammar.matcher());
    decoder.set_sampling(sampling).unwrap();
    let mut tokens = words.encode(prompt);
    decoder.prefill(&tokens).unwrap();
    for _ in 0..5 {
        let (logits, bits) = (
            decoder.last_logits().unwrap(),
            matcher.allowed().unwrap().to_vec(),
        );
        let mut generation = decoder.decode_constrained(1, &mut matcher).unwrap();
        let token = generation.next().unwrap().unwrap();
        assert_eq!(
            token,
            drawn(&logits, &bits, sampling, &tokens),
            "{name}, after {} tokens",
            tokens.len()
        );
        if let Some(found) = generation.log_probabilities() {
            let allowed: u32 = bits.iter().map(|word| word.count_ones()).sum();
            assert_eq!(
                found.best.len() as u32,
                allowed.min(sampling.logprobs),
                "{name}"
            );
            assert!(
                found.best.iter().all(|(_, p)| (-100.0..=0.0).contains(p)),
                "{name}: {found:?}"
            );
        }

        tokens.push(token);
    }
}

#[test]
fn what_is_chosen_is_what_the_reference_chooses_of_what_is_allowed() {
    let words = random("chosen");
    let long =
        "The borrow checker uses a low-level limit to print new warnings of the compiler, and so";
    let greedy = Sampling {
        logprobs: 4,
        ..Sampling::greedy()
    };
    let chunks = Options {
        chunk: 16,
        ..short(Launch::Graph)
    };
    check_drawn("chunks", &words, chunks, &wild(), long);
    check_drawn("greedy", &words, short(Launch::Graph), &greedy, "The");
    let simple = Options {
        prefer: Prefer::Simple,
        ..short(Launch::Eager)
    };
    check_drawn(
        "simple kernels",
        &words,
        simple,
        &Sampling { top_k: 0, ..wild() },
        "The",
    );
}

#[test]
fn every_launch_gives_the_same_text() {
    let words = random("launches");
    let grammar = words
        .lark("start: \"fn \" NAME \"(x: u32) -> \" (\"u32\" | \"bool\")\nNAME: /[a-z_]{2,4}/\n");
    let prompt = words.encode("fn");
    let of = |options: Options| {
        let mut decoder = words.decoder(options);
        decoder.set_sampling(&wild()).unwrap();
        write(&mut decoder, &prompt, 24, &mut grammar.matcher())
    };
    let wanted = of(short(Launch::Eager));
    let text = words.tokenizer.decode(&wanted.0);
    assert!(
        text.starts_with("fn ")
            && text.contains("(x: u32) -> ")
            && wanted.1 == GenerationEnd::Grammar,
        "{text}"
    );
    for launch in [Launch::Graph, Launch::Plain, Launch::Capture] {
        assert_eq!(of(short(launch)), wanted, "{launch:?}");
    }

    assert_eq!(
        of(Options {
            prefill_batch: 4,
            ..short(Launch::Graph)
        }),
        wanted,
        "forced tokens together"
    );
}

#[test]
fn a_text_ends_with_its_grammar_and_is_incomplete_before() {
    let words = random("ends");
    let mut decoder = words.decoder(short(Launch::Graph));
    let prompt = words.encode("Version 1.");
    let mut run = |regex: &str, limit| {
        let mut matcher = words.regex(regex).matcher();
        let (tokens, end) = write(&mut decoder, &prompt, limit, &mut matcher);
        (words.tokenizer.decode(&tokens), end, matcher.is_complete())
    };
    assert_eq!(
        run("x{5}", 20),
        ("x".repeat(5), GenerationEnd::Grammar, true)
    );
    let (digits, end, complete) = run("[0-9]{60}", 3);
    assert!(
        digits.len() < 60 && end == GenerationEnd::Limit && !complete,
        "{digits}"
    );
    let (digits, end, complete) = run("[0-9]+", 3);
    assert!(!digits.is_empty() && complete, "{digits} {end:?}");
    let ctx = prompt.len() as u32 + 2;
    let mut decoder = words.decoder(Options {
        ctx,
        ..short(Launch::Graph)
    });
    let mut matcher = words.regex("[a-z]{60}").matcher();
    let (tokens, end) = write(&mut decoder, &prompt, 20, &mut matcher);
    assert_eq!(
        (tokens.len(), end, matcher.is_complete()),
        (3, GenerationEnd::ContextFull, false)
    );

    // Tokens that are forced end where the context does, too.
    let mut matcher = words
        .lark("start: \"a borrow checker, and another one\"")
        .matcher();
    let (tokens, end) = write(&mut decoder, &prompt, 20, &mut matcher);
    assert_eq!(
        (tokens.len(), end, matcher.is_complete()),
        (3, GenerationEnd::ContextFull, false)
    );
}

#[test]
fn a_decoder_goes_on_after_a_grammar() {
    let words = random("goes-on");
    let grammar = words.lark("start: \" the borrow checker of\" / [a-z]{2,5}/");
    let mut decoder = words.decoder(short(Launch::Graph));
    for read in [2, 40] {
        decoder.reset();
        let mut tokens = words.encode("It is");
        decoder.prefill(&tokens).unwrap();
        let mut matcher = grammar.matcher();
        let within = decoder
            .decode_constrained(40, &mut matcher)
            .unwrap()
            .take(read);
        tokens.extend(within.map(Result::unwrap));
        let rest: Vec<u32> = decoder.decode(2).unwrap().map(Result::unwrap).collect();
        decoder.reset();
        decoder.prefill(&tokens).unwrap();
        let wanted: Vec<u32> = decoder.decode(2).unwrap().map(Result::unwrap).collect();
        assert_eq!(rest, wanted, "after {read} tokens of the grammar");
    }
}

/// Whether some text of `[a-zé]{2,4}!` begins with these bytes.
fn may_begin(bytes: &[u8]) -> bool {
    let (text, rest) = match std::str::from_utf8(bytes) {
        Ok(text) => (text, &[][..]),
        Err(error) => (
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap(),
            &bytes[error.valid_up_to()..],
        ),
    };
    let letters = text.strip_suffix('!').unwrap_or(text);
    let count = letters.chars().count() + usize::from(!rest.is_empty());
    let known = letters.chars().all(|c| c.is_ascii_lowercase() || c == 'é');
    let ended = text.ends_with('!');
    known && matches!(rest, [] | [0xc3]) && count <= 4 && (!ended || count >= 2 && rest.is_empty())
}

#[test]
fn a_mask_has_the_tokens_that_a_naive_check_allows() {
    let words = real();
    let grammar = words.regex("[a-zé]{2,4}!");
    let (ids, size) = (
        |text: &str| words.tokenizer.encode_rest(text).unwrap(),
        words.tokenizer.size() as u32,
    );
    let half: Vec<u32> = (0..size)
        .filter(|id| words.tokenizer.piece(*id) == [0xc3])
        .collect();
    assert!(!half.is_empty(), "characters are never divided");
    for before in [vec![], ids("a"), ids("fn"), half, ids("done")] {
        let mut matcher = grammar.matcher();
        for token in &before {
            matcher.take(*token).unwrap();
        }

        let bits = matcher.allowed().unwrap();
        let begun: Vec<u8> = before
            .iter()
            .flat_map(|id| words.tokenizer.piece(*id))
            .copied()
            .collect();
        for id in 0..size {
            let piece = words.tokenizer.piece(id);
            let wanted = !piece.is_empty() && may_begin(&[&begun, piece].concat());
            let found = bits[id as usize / 32] >> (id % 32) & 1 == 1;
            assert_eq!(
                found,
                wanted,
                "{:?} after {begun:?}",
                String::from_utf8_lossy(piece)
            );
        }
    }
}

#[test]
fn white_space_of_json_is_bounded() {
    let words = real();
    let compile = |schema: &str| {
        words
            .compiler
            .compile(&GrammarText::JsonSchema(schema.into()))
            .unwrap()
    };
    let spaces = |schema: &str, before: &str| {
        let mut matcher = compile(schema).matcher();
        let begun = words.tokenizer.encode_rest(before).unwrap();
        for token in begun {
            matcher.take(token).unwrap();
        }
        let space = words.tokenizer.encode_rest(" ").unwrap()[0];
        matcher.allowed().unwrap()[space as usize / 32] >> (space % 32) & 1 == 1
    };
    let any = r#"{"type": "array", "x-guidance": {}}"#;
    for (schema, before, more) in [
        (r#"{"type": "array"}"#, "[1,", true),
        (r#"{"type": "array"}"#, "[1, ", false),
        (r#"{"type": "array"}"#, "[1,\n ", true),
        (any, "[1, ", true),
    ] {
        assert_eq!(spaces(schema, before), more, "{schema} after {before:?}");
    }
}

#[test]
fn what_is_no_grammar_is_named_before_the_first_token() {
    let words = real();
    let schema = |text: &str| words.refusal(GrammarText::JsonSchema(text.into()));
    assert_eq!(
        schema(
            r#"{"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}"#
        ),
        "the JSON schema cannot be used: the keyword uniqueItems at #/properties/a is not supported; remove it, or express \
         it with other keywords"
    );
    assert_eq!(
        schema("{\n\"type\": }"),
        "the JSON schema cannot be used: it is not valid JSON: expected value at line 2 column 9"
    );
    assert!(
        schema(r#"{"type": "integer", "minimum": 5, "maximum": 4}"#).contains("no text matches it")
    );
    assert!(schema("false").contains("no text matches it: schema is false"));
    assert!(schema(r#"{"type": "text"}"#).contains("Invalid type: text"));
    assert!(
        schema(r#"{"$ref": "http://example.org/a"}"#)
            .contains("names another document, http://example.org/a")
    );
    let regex = |text: &str| words.refusal(GrammarText::Regex(text.into()));
    assert_eq!(
        regex("a(b"),
        "the regular expression cannot be used: line 1, column 2: unclosed group"
    );
    assert_eq!(
        regex(""),
        "the regular expression cannot be used: it is empty"
    );
    assert!(
        regex("a(?=b)").contains("line 1, column 2: look-around"),
        "{}",
        regex("a(?=b)")
    );
    assert!(
        regex(r"a\bb").contains("is not supported"),
        "{}",
        regex(r"a\bb")
    );
    assert!(
        regex("[^\\s\\S]").contains("no text matches it"),
        "{}",
        regex("[^\\s\\S]")
    );
    let lark = |text: &str| words.refusal(GrammarText::Lark(text.into()));
    assert!(lark("root ::= \"a\"").contains("line 1 is GBNF, the notation of llama.cpp"));
    assert!(
        lark("start: A\n").contains("unknown name: \"A\""),
        "{}",
        lark("start: A\n")
    );
    assert!(
        lark("start: \"a\" |\n  | )\n").contains("line 2, column 5"),
        "{}",
        lark("start: \"a\" |\n  | )\n")
    );
    let said = schema(r#"{"type": "string", "pattern": "a(?=b)"}"#);
    assert!(said.contains("look-around"), "{said}");
    assert_eq!(lark(" \n"), "the grammar cannot be used: it is empty");
    let said = lark("start: a\na[temperature=0.5]: /x+/\n");
    assert!(
        said.contains("sets a temperature, which is supported only for the whole text"),
        "{said}"
    );
    let large = " is beyond 2^53 (9007199254740992)";

    // The library would run out of stack.
    let said = lark("start: %json {\"const\": -9223372036854775808}");
    assert!(
        said.contains("-9223372036854775808 at #/const") && said.contains(large),
        "{said}"
    );
    let said = schema(r#"{"enum": [18446744073709551615]}"#);
    assert!(said.contains(large), "{said}");
}

#[test]
fn what_never_ends_is_named_before_the_first_token() {
    let words = real();
    let schema = |text: &str| words.refusal(GrammarText::JsonSchema(text.into()));
    let lark = |text: &str| words.refusal(GrammarText::Lark(text.into()));
    let node = r##"{"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}"##;
    let endless = [
        schema(&format!(
            r##"{{"$ref": "#/$defs/node", "$defs": {{"node": {node}}}}}"##
        )),
        // A text can go around it, but a model that goes in never comes out.
        schema(&format!(
            r##"{{"properties": {{"a": {{"$ref": "#/$defs/node"}}}}, "$defs": {{"node": {node}}}}}"##
        )),
        schema(r##"{"type": "array", "items": {"$ref": "#"}, "minItems": 1}"##),
        lark("start: a\na: \"x\" a\n"),
        lark("start: \"(\" b | \"y\"\nb: /[ab]/ b\n"),
        lark("start: a\na: b \"x\"\nb: a | a b\n"),
    ];
    assert!(
        endless[2].contains("no text can complete #, because"),
        "{}",
        endless[2]
    );
    assert!(
        endless[3].contains("no text can complete start, because"),
        "{}",
        endless[3]
    );
    for said in &endless {
        assert!(
            said.contains(", because it always leads back to itself"),
            "{said}"
        );
        println!("{said}");
    }

    let ends = [
        GrammarText::JsonSchema(r##"{"type": "array", "items": {"$ref": "#"}}"##.into()),
        GrammarText::JsonSchema(
            r##"{"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]},
                "b": {"properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}}}"##
                .into(),
        ),
        GrammarText::JsonSchema(r#"{"type": "string"}"#.into()),
        GrammarText::Lark("start: \"(\" start \")\" | \"x\"\n".into()),
        GrammarText::Lark("start: (\"a\" | b)*\nb: start? \"c\"\n".into()),
    ];
    for text in ends {
        words.compiler.compile(&text).unwrap();
    }
}

#[test]
fn a_decoder_that_was_not_made_for_grammars_says_so() {
    let words = real();
    let grammar = words.regex("a+");
    let refusal = |model: &Model, choice| {
        let options = Options {
            choice,
            ..Options::new(8, Launch::Eager)
        };
        let mut decoder = Decoder::new(&emulator(), model, options, |_| ()).unwrap();
        decoder
            .decode_constrained(1, &mut grammar.matcher())
            .err()
            .unwrap()
            .to_string()
    };
    let within = TokenChoice::Constrained { logprobs: 0 };
    let other = small("grammar");
    assert_eq!(
        refusal(&other, TokenChoice::Greedy),
        "cannot apply a grammar: create the decoder or the batch with TokenChoice::Constrained"
    );
    assert_eq!(
        refusal(&other, within),
        "the grammar was compiled for a vocabulary of 4096 tokens, but the model has 160: compile it with the model's tokenizer"
    );
    assert_eq!(
        refusal(&words.model, within),
        "the prompt is empty: a model needs at least one token to continue from"
    );
    let mut matcher = grammar.matcher();
    let wrong = words.tokenizer.encode_rest("b").unwrap()[0];
    let error = matcher.take(wrong).unwrap_err().to_string();
    assert!(
        error.starts_with("the grammar failed after 0 tokens: "),
        "{error}"
    );
}

/// Also where tokens divide its characters.
#[test]
fn the_example_comes_to_the_end_of_its_texts() {
    let tokenizer = Arc::new(Tokenizer::open(&crate::asset()).unwrap());
    let end: Vec<u32> = tokenizer.eos().into_iter().collect();
    let compiler =
        GrammarCompiler::from_vocabulary(Arc::clone(&tokenizer), tokenizer.size() as u32, &end)
            .unwrap();
    for (name, grammar, text) in crate::masks::grammars() {
        let followed = crate::masks::follow(&compiler.compile(&grammar).unwrap(), &tokenizer, text);
        assert!(followed.unwrap().costs().masks.len() > 20, "{name}");
    }
}
