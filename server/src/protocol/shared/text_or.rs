//! A string, or a list of something else.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use utoipa::PartialSchema;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};

/// A string, or a list of values. Errors inside the list have the index of their element in their
/// path, unlike errors of an untagged enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextOr<T> {
    /// A string.
    Text(String),
    /// A list.
    List(Vec<T>),
}

impl<T: PartialSchema> TextOr<T> {
    /// Returns the schema, for the attribute `schema_with` of a field. `utoipa` has no public trait
    /// for types with parameters.
    pub fn schema() -> RefOr<Schema> {
        let string = ObjectBuilder::new().schema_type(Type::String);
        let list = ArrayBuilder::new().items(T::schema());
        OneOfBuilder::new().item(string).item(list).into()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TextOr<T>, D::Error> {
        deserializer.deserialize_any(TextOrVisitor(PhantomData))
    }
}

struct TextOrVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrVisitor<T> {
    type Value = TextOr<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or a list")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<TextOr<T>, E> {
        Ok(TextOr::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<TextOr<T>, A::Error> {
        let mut list = vec![];
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(TextOr::List(list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_or_a_list_is_read() {
        let read = |json| serde_json::from_str::<TextOr<u32>>(json).map_err(|e| e.to_string());
        assert_eq!(read("\"a\""), Ok(TextOr::Text("a".to_owned())));
        assert_eq!(read("[1, 2]"), Ok(TextOr::List(vec![1, 2])));
        assert_eq!(
            read("{}").unwrap_err(),
            "invalid type: map, expected a string or a list at line 1 column 2"
        );
    }
}
