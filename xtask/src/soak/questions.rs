//! Questions with short answers, and the references that the server computes alone.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::http;
use super::protocol::{ENDPOINTS, ReplyForm, TextEndpoint};
use super::question::Question;

/// Prompts of different lengths. Two of them share a prefix that is longer than a page of the cache.
/// The answers are short, because the emulator takes a second for a token.
fn questions() -> Vec<Question> {
    let shared = "A reference is a pointer that is always valid, and the compiler checks this for \
                  every path through the program. A slice has a pointer and a length. "
        .repeat(2);
    let question = |prompt: String, temperature, tokens| Question {
        prompt,
        temperature,
        tokens,
    };
    vec![
        question("The borrow checker".to_owned(), 1.0, 4),
        question("x".to_owned(), 0.0, 3),
        question("An iterator over äöü 東京".to_owned(), 1.0, 5),
        question(format!("{shared}A string"), 0.0, 2),
        question(format!("{shared}An array"), 1.0, 3),
    ]
}

/// An endpoint, a question and its answer.
pub(super) struct Reference {
    pub(super) endpoint: TextEndpoint,
    pub(super) question: Question,
    pub(super) answer: String,
}

/// The answers to all questions by all endpoints.
pub(super) struct References {
    pub(super) all: Vec<Reference>,
}

impl References {
    /// Asks every question of every endpoint, one at a time.
    pub(super) fn compute(port: u16) -> Result<References> {
        let mut all = vec![];
        for endpoint in ENDPOINTS {
            for question in questions() {
                let answer = ask(port, endpoint, &question)
                    .with_context(|| format!("{}: {:?}", endpoint.path(), question.prompt))?;
                all.push(Reference {
                    endpoint,
                    question,
                    answer,
                });
            }
        }
        // Mixed-up answers are only noticed if the answers differ.
        let mut answers: Vec<&str> = all.iter().map(|one| one.answer.as_str()).collect();
        answers.sort_unstable();
        answers.dedup();
        ensure!(
            answers.len() >= questions().len(),
            "the model has only {} different answers to {} questions",
            answers.len(),
            questions().len()
        );
        Ok(References { all })
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Asks one question of each endpoint again, one at a time, and returns the differences.
    pub(super) fn differences(&self, port: u16) -> Vec<String> {
        let mut differences = vec![];
        for Reference {
            endpoint,
            question,
            answer,
        } in self.all.iter().step_by(questions().len() + 1)
        {
            let path = endpoint.path();
            let prompt = &question.prompt;
            match ask(port, *endpoint, question) {
                Ok(found) if found == *answer => {}
                Ok(found) => differences.push(format!(
                    "{path} answers {prompt:?} with {found:?} instead of {answer:?}"
                )),
                Err(error) => differences.push(format!("{path} to {prompt:?}: {error:#}")),
            }
        }
        differences
    }
}

fn ask(port: u16, endpoint: TextEndpoint, question: &Question) -> Result<String> {
    let body = endpoint
        .request(question, ReplyForm::Whole, None)
        .to_string();
    let mut response = http::request(port, "POST", endpoint.path(), &body)?;
    let text = response.text()?;
    if response.status != 200 {
        bail!("status {}: {text}", response.status);
    }
    let json: Value = serde_json::from_str(&text)?;
    endpoint
        .text(&json)
        .with_context(|| format!("no text in {text}"))
}
