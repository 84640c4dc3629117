//! A check that logits are finite.

use crate::Error;

/// Returns an error if the row of logits after `position` has a value that is not finite.
pub(crate) fn check_logits(position: u32, row: &[f32]) -> Result<(), Error> {
    match row.iter().position(|x| !x.is_finite()) {
        Some(token) => Err(Error::Logit {
            position,
            token,
            value: row[token],
        }),
        None => Ok(()),
    }
}
