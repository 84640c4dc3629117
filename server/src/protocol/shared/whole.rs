//! Integers, which some clients write as floating-point numbers.

use std::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An integer. In JSON it may have a fraction of zero, such as `5.0`, because some languages have
/// only one type of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[schema(value_type = i64)]
pub struct Whole(pub i128);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Whole, D::Error> {
        deserializer.deserialize_any(WholeVisitor)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an integer")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Whole, E> {
        Ok(Whole(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Whole, E> {
        Ok(Whole(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Whole, E> {
        // Larger numbers are refused by every range anyway, and fit into 128 bits.
        if value.fract() == 0.0 && value.abs() < 1e30 {
            Ok(Whole(value as i128))
        } else {
            Err(E::invalid_type(Unexpected::Float(value), &self))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<i128, String> {
        serde_json::from_str::<Whole>(json)
            .map(|whole| whole.0)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn integers_may_have_a_fraction_of_zero() {
        assert_eq!(read("5"), Ok(5));
        assert_eq!(read("5.0"), Ok(5));
        assert_eq!(read("-1.0"), Ok(-1));
        assert_eq!(read("1e3"), Ok(1000));
        assert_eq!(read("18446744073709551615"), Ok(u64::MAX.into()));
    }

    #[test]
    fn other_values_are_errors() {
        for (json, message) in [
            (
                "5.5",
                "invalid type: floating point `5.5`, expected an integer",
            ),
            ("\"5\"", "invalid type: string \"5\", expected an integer"),
            ("true", "invalid type: boolean `true`, expected an integer"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
