//! `perplexity` and `embed`, held to what NumPy gives in float64: `tests/outside/perplexity`.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::input::refused;
use crate::program::{End, MODEL, command, run};

const TEXT: &str = "tests/outside/perplexity/text.txt";

/// The oracle's tokens, their log-likelihoods in short windows, and the vectors of the first ones.
fn oracle() -> Value {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/outside/perplexity/cases.json"
    );
    serde_json::from_str(&fs::read_to_string(path).expect("it is there")).expect("JSON")
}

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .expect("a list")
        .iter()
        .map(|x| x.as_f64().expect("a number"))
        .collect()
}

fn ids(oracle: &Value, count: usize) -> String {
    let ids = oracle["ids"].as_array().expect("a list").iter().take(count);
    ids.map(Value::to_string).collect::<Vec<_>>().join(",")
}

fn perplexity(arguments: &[&str]) -> End {
    run(&[
        &["perplexity", "-m", MODEL, "--device", "emu", "--ctx", "32"],
        arguments,
    ]
    .concat())
}

/// The JSON that a run printed.
fn json(end: &End) -> Value {
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    serde_json::from_str(&end.out).expect("JSON")
}

#[test]
fn log_likelihoods_are_the_oracles() {
    let (oracle, folder) = (oracle(), tempfile::tempdir().expect("a temporary folder"));
    let [given, out] =
        ["ids", "out"].map(|name| folder.path().join(name).to_str().expect("UTF-8").to_owned());
    fs::write(&given, ids(&oracle, usize::MAX).replace(",1", "\n 1")).expect("a file");
    let found = json(&perplexity(&[
        "--ids-file",
        &given,
        "--json",
        "--out",
        &out,
    ]));
    let wanted = numbers(&oracle["log_likelihoods"]);
    let lines = fs::read_to_string(&out).expect("it was written");
    let (head, rows) = lines.split_once('\n').expect("lines");
    assert_eq!(
        (head, rows.lines().count()),
        ("# window\tposition\ttoken\tlog-likelihood", wanted.len())
    );
    let mut sum = 0.0;
    for ((row, wanted), i) in rows.lines().zip(&wanted).zip(0..) {
        let row: Vec<f64> = row
            .split('\t')
            .map(|number| number.parse().expect("a number"))
            .collect();
        let [window, position] = [i / 15, 17 + i % 15];
        let id = oracle["ids"][32 * window + position]
            .as_f64()
            .expect("a token");
        assert_eq!(row[..3], [window as f64, position as f64, id]);

        // The text is hard, and logits are steep: in f64, keys and values in f16 alone give 0.02.
        assert!((row[3] - wanted).abs() < 0.05, "{row:?} {wanted}");
        sum += row[3];
    }

    let mean = found["log_likelihood"].as_f64().expect("a number");
    assert!((mean - sum / 30.0).abs() < 1e-6, "{found}");
    let perplexity = found["perplexity"].as_f64().expect("a number");
    assert!(
        (perplexity - (-mean).exp()).abs() < 1e-9 * perplexity,
        "{found}"
    );
    for (key, wanted) in [
        ("scored", 30),
        ("tokens", 64),
        ("windows", 2),
        ("ctx", 32),
        ("bos", 0),
    ] {
        assert_eq!(found[key], wanted, "{key}");
    }
}

/// A text from both places; its tokens are the oracle's, which begin with BOS by themselves.
#[test]
fn a_text_is_tokenized_and_cut() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder
        .path()
        .join("out")
        .to_str()
        .expect("UTF-8")
        .to_owned();
    let place = [
        "perplexity",
        "--device",
        "emu",
        "--ctx",
        "12",
        "--windows",
        "1",
    ];
    let ends = [
        &["-m", MODEL, "-f", TEXT, "--out", &out][..],
        &[MODEL, TEXT, "--no-bos", "--fast"][..],
    ]
    .map(|arguments| run(&[&place[..], arguments].concat()));
    let [first, second] = ends.map(|end| {
        assert_eq!((end.code, end.err.as_str()), (Some(0), ""), "{}", end.out);
        end.out.lines().map(str::to_owned).collect::<Vec<_>>()
    });

    // So few tokens are no chunk.
    assert_eq!(first[..2], second[..2]);
    assert!(
        first[0].starts_with("perplexity ") && first[0].contains(" +/- "),
        "{first:?}"
    );
    assert!(first[1].starts_with("mean log-likelihood -"), "{first:?}");
    assert!(
        first[2].starts_with("5 tokens scored in 1 window of 12, "),
        "{first:?}"
    );
    assert_eq!(first.len(), 3);
    let lines = fs::read_to_string(&out).expect("it was written");
    let scored: Vec<&str> = lines
        .lines()
        .skip(1)
        .filter_map(|line| line.split('\t').nth(2))
        .collect();
    assert_eq!(
        scored.join(","),
        ids(&oracle(), 12)
            .split(',')
            .skip(7)
            .collect::<Vec<_>>()
            .join(",")
    );
}

fn no_utf8(file: &str) -> String {
    format!("cannot read the text from {file}: it is not valid UTF-8 at byte 1")
}

#[test]
fn what_cannot_be_scored_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let few = "too few for a window of 32: use a longer text or a smaller --ctx";
    let (empty, short) = (file("empty", b""), file("short", b"The borrow checker\n"));
    let (bytes, words) = (file("bytes", b"a\xff"), file("words", b"1,2,x"));
    let outside = file("outside", &b"4096 ".repeat(32));
    let cases = [
        (vec!["-f", &empty], format!("the text has 1 token, {few}")),
        (vec!["-f", &short], format!("the text has 5 tokens, {few}")),
        (
            vec!["--ids-file", &empty],
            format!("the text has 0 tokens, {few}"),
        ),
        (vec!["-f", &bytes], no_utf8(&bytes)),
        (
            vec!["--ids-file", &words],
            "\"x\" is not a token id: expected a whole number, as in 1,5,9".to_owned(),
        ),
        (
            vec!["--ids-file", &outside],
            "token 0 is 4096; the vocabulary ends before 4096".to_owned(),
        ),
        (
            vec!["-f", TEXT, "--out", TEXT],
            format!("--out {TEXT} is the text that the command reads; name another file"),
        ),
        (
            vec!["-f", TEXT, "--out", MODEL],
            format!("--out {MODEL} is the model that the command reads; name another file"),
        ),
        (
            vec!["-f", TEXT, "--out", "-"],
            "--out - would mix with the table on standard output; name a file".to_owned(),
        ),
    ];
    for (arguments, sentence) in cases {
        assert_eq!(
            perplexity(&arguments),
            refused(2, &sentence),
            "{arguments:?}"
        );
    }

    let end = run(&[
        "perplexity",
        MODEL,
        TEXT,
        "--device",
        "emu",
        "--ctx",
        "2049",
    ]);
    assert_eq!(
        end,
        refused(
            2,
            "invalid context of 2049 positions: this model supports 1 to 2048"
        )
    );
    for (arguments, message) in [
        (
            vec!["--ctx", "2"],
            "error: invalid value '2' for '--ctx <TOKENS>': 2 is not in 3..",
        ),
        (
            vec!["--windows", "0"],
            "error: invalid value '0' for '--windows <N>'",
        ),
        (
            vec!["-f", TEXT],
            "error: the argument '[FILE]' cannot be used with",
        ),
    ] {
        let end = run(&[&["perplexity", MODEL, TEXT], &arguments[..]].concat());
        assert!(
            end.code == Some(2) && end.err.starts_with(message),
            "{end:?}"
        );
    }

    let end = run(&["perplexity", MODEL]);
    assert!(
        end.err
            .starts_with("error: the following required arguments were not provided:"),
        "{end:?}"
    );
}

fn embed(arguments: &[&str], input: &str) -> End {
    let mut command = command(&[&["embed", MODEL, "--device", "emu"], arguments].concat());
    let mut child = command
        .stdin(Stdio::piped())
        .spawn()
        .expect("the program starts");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes())
        .expect("it reads");
    child.wait_with_output().expect("it ends").into()
}

/// The numbers of each line.
fn vectors(end: &End) -> Vec<Vec<f64>> {
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    let line = |line: &str| {
        line.split(' ')
            .map(|x| x.parse().expect("a number"))
            .collect()
    };
    end.out.lines().map(line).collect()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).powi(2))
        .sum::<f64>()
        .sqrt()
}

#[test]
fn embeddings_are_the_oracles() {
    let oracle = oracle();
    let ids = ids(&oracle, 20);
    for pooling in ["mean", "last"] {
        let found = json(&embed(
            &["--prompt-ids", &ids, "--pooling", pooling, "--json"],
            "",
        ));
        let vector = numbers(&found["embeddings"][0]["embedding"]);
        let off = distance(&vector, &numbers(&oracle["embeddings"][pooling]));
        assert!(off < 5e-3, "{pooling}: {off}");
        assert_eq!(
            (
                &found["pooling"],
                &found["normalized"],
                &found["dimensions"]
            ),
            (&pooling.into(), &true.into(), &256.into())
        );
        assert_eq!(numbers(&found["embeddings"][0]["tokens"]).len(), 20);
    }
}

#[test]
fn texts_come_from_everywhere() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("texts");
    fs::write(&file, "The borrow checker\r\nA trait\n").expect("a file");
    let file = file.to_str().expect("UTF-8");
    let wanted = embed(&["-p", "The borrow checker", "-p", "A trait"], "");
    let [first, second] = &vectors(&wanted)[..] else {
        panic!("{wanted:?}")
    };

    assert_eq!((first.len(), second.len()), (256, 256));
    assert!((distance(first, &[0.0; 256]) - 1.0).abs() < 1e-6 && distance(first, second) > 0.1);
    assert_eq!(embed(&["-f", file], ""), wanted);
    assert_eq!(embed(&[], "The borrow checker\nA trait"), wanted);

    // A text by itself is what it is beside others; without its length it has the same direction.
    let alone = embed(&["-p", "-", "--no-normalize"], "A trait\n");
    let [alone] = &vectors(&alone)[..] else {
        panic!("{alone:?}")
    };

    let length = distance(alone, &[0.0; 256]);
    let scaled: Vec<f64> = alone.iter().map(|x| x / length).collect();
    assert!(length > 1.1 && distance(&scaled, second) < 1e-6, "{length}");
}

/// A blank line does not reject the list, and the note and the JSON output keep the numbers of the lines.
#[test]
fn blank_lines_of_a_list_are_skipped() {
    let wanted = embed(&["-p", "The borrow checker", "-p", "A trait"], "");
    let list = "\nThe borrow checker\n  \r\nA trait\n\n";
    let found = embed(&[], list);
    assert_eq!(found.out, wanted.out);
    assert_eq!(
        (found.code, found.err.as_str()),
        (Some(0), "note: skipped 2 blank lines: 1, 3\n")
    );
    let object: Value = serde_json::from_str(&embed(&["--json"], list).out).expect("JSON");
    let lines = [0, 1].map(|at| object["embeddings"][at]["line"].clone());
    assert_eq!(lines, [2, 4]);
    let long = embed(&["--ctx", "3"], "a\n\na b c\n");
    let sentence = "error: line 3 has 4 tokens, and the context has room for 3: shorten it, or use a larger --ctx\n";
    assert!(
        long.code == Some(2) && long.err.ends_with(sentence),
        "{long:?}"
    );
}

#[test]
fn what_cannot_be_embedded_is_refused() {
    let cases: [(&[&str], &str, &str); 5] = [
        (
            &[],
            "",
            "there is no text: pass -p TEXT, or one text per line in -f FILE",
        ),
        (
            &[],
            "\n \n",
            "there is no text: pass -p TEXT, or one text per line in -f FILE",
        ),
        (
            &["-p", "a", "-p", ""],
            "",
            "text 2 is empty: leave this -p out",
        ),
        (
            &["--ctx", "3", "-p", "a", "-p", "a b c"],
            "",
            "text 2 has 4 tokens, and the context has room for 3: shorten it, or use a larger --ctx",
        ),
        (
            &["--prompt-ids", "4096"],
            "",
            "token 0 of the prompt is 4096, but the vocabulary has 4096 tokens",
        ),
    ];
    for (arguments, input, sentence) in cases {
        assert_eq!(
            embed(arguments, input),
            refused(2, sentence),
            "{arguments:?}"
        );
    }

    let end = run(&["embed", MODEL, "-p", "a", "-f", "b"]);
    assert!(
        end.err
            .starts_with("error: the argument '--prompt <TEXT>' cannot be used with"),
        "{end:?}"
    );
}
