//! Whether a draft model has the vocabulary of the model that verifies.

use crate::Error;
use crate::model::tokenizer::Tokenizer;

/// Refuses a draft model whose tokens are others than those of the model that verifies. One of the two may have more of
/// them, as files pad vocabularies; those are never guessed, or never accepted.
///
/// # Errors
/// The first token that is not the same, and what it is in both.
pub fn same_vocabulary(model: &Tokenizer, draft: &Tokenizer) -> Result<(), Error> {
    let ids = 0..model.size().min(draft.size()) as u32;
    let of = |words: &Tokenizer, id| {
        (
            words.piece(id).to_vec(),
            words.control(id).map(str::to_owned),
        )
    };
    match ids.into_iter().find(|id| of(model, *id) != of(draft, *id)) {
        None => Ok(()),
        Some(id) => Err(Error::DraftVocabulary {
            id,
            draft: shown(draft, id),
            model: shown(model, id),
        }),
    }
}

/// A token as people read it; a control token says that it is one.
fn shown(words: &Tokenizer, id: u32) -> String {
    match (words.control(id), std::str::from_utf8(words.piece(id))) {
        (Some(name), _) => format!("the control token {name:?}"),
        (None, Ok(text)) => format!("{text:?}"),
        (None, Err(_)) => format!("the bytes \"{}\"", words.piece(id).escape_ascii()),
    }
}
