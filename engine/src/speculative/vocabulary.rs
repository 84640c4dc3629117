//! The check that a draft model has the vocabulary of the model that verifies.

use warpwright_model::Tokenizer;

use crate::Error;

/// Checks that a draft model has the same tokens as the model that verifies.
///
/// One vocabulary may be longer than the other, because model files pad them. The additional tokens
/// are never guessed, or never accepted.
///
/// # Errors
/// Returns [`Error::DraftVocabulary`] with the first token that differs, and its text in both
/// vocabularies.
pub fn same_vocabulary(model: &Tokenizer, draft: &Tokenizer) -> Result<(), Error> {
    let ids = 0..model.size().min(draft.size()) as u32;
    let token = |words: &Tokenizer, id| {
        (
            words.piece(id).to_vec(),
            words.control(id).map(str::to_owned),
        )
    };
    match ids
        .into_iter()
        .find(|id| token(model, *id) != token(draft, *id))
    {
        None => Ok(()),
        Some(id) => Err(Error::DraftVocabulary {
            id,
            draft: shown(draft, id),
            model: shown(model, id),
        }),
    }
}

/// Returns a readable form of a token, which marks control tokens as such.
fn shown(words: &Tokenizer, id: u32) -> String {
    match (words.control(id), std::str::from_utf8(words.piece(id))) {
        (Some(name), _) => format!("the control token {name:?}"),
        (None, Ok(text)) => format!("{text:?}"),
        (None, Err(_)) => format!("the bytes \"{}\"", words.piece(id).escape_ascii()),
    }
}
