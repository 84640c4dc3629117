//! Checks of ranges, with errors that name the field and the allowed range.

use std::ops::RangeInclusive;

use super::whole::Whole;
use crate::error::RequestError;

/// Returns an integer field if it is in a range.
///
/// # Errors
/// Returns an error that names the field, its value and the range.
pub fn whole_in<T>(
    field: &str,
    value: Option<Whole>,
    range: RangeInclusive<T>,
) -> Result<Option<T>, RequestError>
where
    T: TryFrom<i128> + Copy + PartialOrd + std::fmt::Display,
{
    let Some(Whole(value)) = value else {
        return Ok(None);
    };
    match T::try_from(value) {
        Ok(found) if range.contains(&found) => Ok(Some(found)),
        Ok(_) | Err(_) => Err(RequestError::invalid(
            field,
            format!(
                "`{field}` is {value}: expected an integer from {} to {}",
                range.start(),
                range.end()
            ),
        )),
    }
}

/// Returns a number if it is in a range.
///
/// # Errors
/// Returns an error that names the field, its value and the range.
pub fn number_in(
    field: &str,
    value: Option<f64>,
    range: RangeInclusive<f64>,
) -> Result<Option<f64>, RequestError> {
    match value {
        Some(value) if !range.contains(&value) => Err(RequestError::invalid(
            field,
            format!(
                "`{field}` is {value}: expected a number from {} to {}",
                range.start(),
                range.end()
            ),
        )),
        Some(_) | None => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_out_of_range_is_an_error_with_the_range() {
        assert_eq!(whole_in("n", Some(Whole(3)), 1..=8_u32), Ok(Some(3)));
        assert_eq!(whole_in("n", None, 1..=8_u32), Ok(None));
        for value in [0, 9, -1, i128::from(u64::MAX)] {
            let error = whole_in("n", Some(Whole(value)), 1..=8_u32).unwrap_err();
            let message = format!("`n` is {value}: expected an integer from 1 to 8");
            assert_eq!(error, RequestError::invalid("n", message));
        }

        assert_eq!(number_in("top_p", Some(0.5), 0.0..=1.0), Ok(Some(0.5)));
        assert_eq!(
            number_in("top_p", Some(1.5), 0.0..=1.0),
            Err(RequestError::invalid(
                "top_p",
                "`top_p` is 1.5: expected a number from 0 to 1"
            ))
        );
    }
}
