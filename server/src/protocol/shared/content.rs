//! The content of a message: a string, or a list of parts.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// The content of a message. In JSON it is a string, or a list of parts such as `{"type": "text",
/// "text": ".."}`. Parts that are not texts are errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A string.
    Text(String),
    /// A list of parts.
    Parts(Vec<TextPart>),
}

/// The characters between two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joint {
    /// A line break, as in llama.cpp and vLLM. Parts are usually paragraphs or documents.
    Line,
    /// Nothing, for a text that the model continues.
    Nothing,
}

impl Content {
    /// Returns the text.
    pub fn joined(&self, joint: Joint) -> String {
        let between = match joint {
            Joint::Line => "\n",
            Joint::Nothing => "",
        };
        match self {
            Content::Text(text) => text.clone(),
            Content::Parts(parts) => {
                let texts: Vec<&str> = parts.iter().map(|part| &*part.0).collect();
                texts.join(between)
            }
        }
    }
}

impl PartialSchema for Content {
    fn schema() -> RefOr<Schema> {
        let string = || ObjectBuilder::new().schema_type(Type::String);
        let part = ObjectBuilder::new()
            .property("type", string().enum_values(Some(["text"])))
            .property("text", string())
            .required("text");
        let parts = ArrayBuilder::new().items(part);
        OneOfBuilder::new().item(string()).item(parts).into()
    }
}

impl ToSchema for Content {}

/// The text of a part with the type `text`, `input_text`, `output_text` or `refusal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPart(pub String);

/// The fields of a part that are needed to read it, or to name it in an error.
#[derive(Deserialize)]
#[serde(expecting = "a part such as {\"type\": \"text\", \"text\": \"..\"}")]
struct PartFields {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    refusal: Option<String>,
}

impl<'de> Deserialize<'de> for TextPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TextPart, D::Error> {
        let part = PartFields::deserialize(deserializer)?;
        let kind = part.kind.as_deref().unwrap_or("text");
        let text = match kind {
            "text" | "input_text" | "output_text" => part.text,
            "refusal" => part.refusal,
            other => {
                return Err(D::Error::custom(format!(
                    "a part of type \"{other}\" is not supported: this model reads only text"
                )));
            }
        };
        match text {
            Some(text) => Ok(TextPart(text)),
            None => Err(D::Error::custom(format!(
                "a part of type \"{kind}\" has no text"
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or a list of parts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Content, E> {
        Ok(Content::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        let mut parts = vec![];
        while let Some(part) = items.next_element()? {
            parts.push(part);
        }
        Ok(Content::Parts(parts))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Content, A::Error> {
        // A single part without the list around it.
        let part = TextPart::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        Ok(Content::Parts(vec![part]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::shared::body::Body;

    #[derive(Debug, Deserialize)]
    struct Message {
        content: Option<Content>,
    }

    fn read(json: &str) -> Result<Option<Content>, String> {
        let body = Body::parse(format!("{{\"content\": {json}}}").as_bytes()).unwrap();
        body.read::<Message>()
            .map(|message| message.content)
            .map_err(|error| error.message)
    }

    #[test]
    fn content_is_a_string_or_parts() {
        let cases = [
            ("null", None),
            ("\"a\"", Some("a")),
            ("[]", Some("")),
            (r#"[{"type": "text", "text": "a"}]"#, Some("a")),
            (
                r#"[{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}]"#,
                Some("a\nb"),
            ),
            (r#"[{"type": "refusal", "refusal": "no"}]"#, Some("no")),
            (r#"{"type": "text", "text": "a"}"#, Some("a")),
        ];
        for (json, text) in cases {
            let content = read(json).unwrap();
            let joined = content.map(|content| content.joined(Joint::Line));
            assert_eq!(joined.as_deref(), text, "{json}");
        }

        let parts = Content::Parts(vec![TextPart("Wh".into()), TextPart("ill".into())]);
        assert_eq!(parts.joined(Joint::Nothing), "Whill");
    }

    #[test]
    fn other_parts_are_errors_with_their_path() {
        let cases = [
            (
                "123",
                "`content`: invalid type: integer `123`, expected a string or a list of parts",
            ),
            (
                r#"[{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]"#,
                "`content[1]`: a part of type \"image_url\" is not supported: this model reads only text",
            ),
            (
                r#"[{"type": "text"}]"#,
                "`content[0]`: a part of type \"text\" has no text",
            ),
            (
                r#"[{"type": "text", "text": 5}]"#,
                "`content[0].text`: invalid type: integer `5`, expected a string",
            ),
            (
                "[5]",
                "`content[0]`: invalid type: integer `5`, expected a part such as {\"type\": \"text\", \"text\": \"..\"}",
            ),
        ];
        for (json, message) in cases {
            assert_eq!(read(json).unwrap_err(), message, "{json}");
        }
    }
}
