//! The grammar of a reply, with the names of OpenAI, vLLM and llama.cpp.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;
use warpwright_model::GrammarText;

use super::gbnf::lark_from_gbnf;
use crate::error::RequestError;

/// The grammar of a reply. At most one field may be set.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct FormatRequest {
    /// The form of the reply as in OpenAI's protocol.
    pub response_format: Option<ResponseFormat>,
    /// A JSON schema (llama.cpp's name).
    pub json_schema: Option<Value>,
    /// A grammar in the notation of Lark, or in GBNF if it contains `::=`.
    pub grammar: Option<String>,
    /// A regular expression that the whole text matches.
    pub regex: Option<String>,
    /// A JSON schema, as an object or as its text (older vLLM).
    pub guided_json: Option<Value>,
    /// A regular expression (older vLLM).
    pub guided_regex: Option<String>,
    /// The texts of which the reply is one (older vLLM).
    pub guided_choice: Option<Vec<String>>,
    /// A grammar in the notation of Lark (older vLLM).
    pub guided_grammar: Option<String>,
    /// The grammar in vLLM's form.
    pub structured_outputs: Option<StructuredOutputs>,
}

/// The form of a reply: `{"type": "text"}`, `{"type": "json_object"}`, or `{"type": "json_schema",
/// "json_schema": {"schema": ..}}`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct ResponseFormat {
    /// `text`, `json_object` or `json_schema`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The schema of `json_schema`.
    pub json_schema: Option<NamedSchema>,
    /// The schema of `json_object` (llama.cpp's form).
    pub schema: Option<Value>,
}

/// A JSON schema with a name.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct NamedSchema {
    /// The schema. The name and other fields do not change the reply.
    pub schema: Option<Value>,
}

/// A grammar in vLLM's form.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct StructuredOutputs {
    /// A JSON schema, as an object or as its text.
    pub json: Option<Value>,
    /// Whether the text is a JSON object of any form.
    pub json_object: Option<bool>,
    /// A regular expression.
    pub regex: Option<String>,
    /// The texts of which the reply is one.
    pub choice: Option<Vec<String>>,
    /// A grammar in the notation of Lark.
    pub grammar: Option<String>,
    /// Not supported.
    pub structural_tag: Option<Value>,
}

/// A grammar and the path of the field that has it.
type Found = (&'static str, GrammarText);

impl FormatRequest {
    /// Returns the grammar, if there is one.
    ///
    /// # Errors
    /// Returns an error if a field is wrong, or if several fields have a grammar.
    pub fn grammar(&self) -> Result<Option<GrammarText>, RequestError> {
        let mut found: Vec<Found> = vec![];
        if let Some(format) = &self.response_format {
            found.extend(format.grammar()?);
        }
        let schemas = [
            ("json_schema", &self.json_schema),
            ("guided_json", &self.guided_json),
        ];
        let grammars = [
            ("grammar", &self.grammar),
            ("guided_grammar", &self.guided_grammar),
        ];
        let patterns = [("regex", &self.regex), ("guided_regex", &self.guided_regex)];
        for (path, schema) in schemas {
            if let Some(schema) = schema {
                found.push((path, json_schema(path, schema)?));
            }
        }
        for (path, text) in grammars {
            found.extend(lark(path, text.as_deref())?);
        }
        for (path, pattern) in patterns {
            found.extend(regex(path, pattern.as_deref()));
        }
        if let Some(texts) = &self.guided_choice {
            found.push(("guided_choice", one_of("guided_choice", texts)?));
        }
        if let Some(structured) = &self.structured_outputs {
            found.extend(structured.grammar()?);
        }

        if let [(first, _), (second, _), ..] = &*found {
            let message = format!("`{first}` and `{second}` exclude each other: set one of them");
            return Err(RequestError::invalid(*second, message));
        }
        Ok(found.pop().map(|(_, grammar)| grammar))
    }
}

impl ResponseFormat {
    fn grammar(&self) -> Result<Option<Found>, RequestError> {
        let path = "response_format";
        let named = self.json_schema.as_ref();
        let schema = named.and_then(|named| named.schema.as_ref());
        match &*self.kind {
            "text" => Ok(None),
            "json_object" => {
                let grammar = match &self.schema {
                    Some(schema) => json_schema("response_format.schema", schema)?,
                    None => any_object(),
                };
                Ok(Some((path, grammar)))
            }
            "json_schema" => {
                let field = "response_format.json_schema.schema";
                let Some(schema) = schema.or(self.schema.as_ref()) else {
                    return Err(RequestError::invalid(
                        field,
                        format!("`{field}` is missing"),
                    ));
                };
                Ok(Some((path, json_schema(field, schema)?)))
            }
            other => Err(RequestError::invalid(
                "response_format.type",
                format!(
                    "`response_format.type` is \"{other}\": expected \"text\", \"json_object\" or \"json_schema\""
                ),
            )),
        }
    }
}

impl StructuredOutputs {
    fn grammar(&self) -> Result<Vec<Found>, RequestError> {
        if self.structural_tag.is_some() {
            return Err(RequestError::invalid(
                "structured_outputs.structural_tag",
                "`structured_outputs.structural_tag` is not supported: use `grammar`",
            ));
        }

        let mut found = vec![];
        if let Some(schema) = &self.json {
            let path = "structured_outputs.json";
            found.push((path, json_schema(path, schema)?));
        }
        if self.json_object == Some(true) {
            found.push(("structured_outputs.json_object", any_object()));
        }
        found.extend(regex("structured_outputs.regex", self.regex.as_deref()));
        if let Some(texts) = &self.choice {
            let path = "structured_outputs.choice";
            found.push((path, one_of(path, texts)?));
        }
        if let Some(text) = &self.grammar {
            let path = "structured_outputs.grammar";
            // The client wants a constraint, so a reply without one would be wrong.
            if text.trim().is_empty() {
                let message = format!("`{path}` is empty: write a grammar, or leave it out");
                return Err(RequestError::invalid(path, message));
            }
            found.extend(lark(path, Some(text))?);
        }
        Ok(found)
    }
}

/// Returns the grammar of a JSON schema, which is an object, a boolean, or the text of one.
///
/// # Errors
/// Returns an error that names `path` if the value is something else.
pub fn json_schema(path: &str, schema: &Value) -> Result<GrammarText, RequestError> {
    match schema {
        Value::Object(_) | Value::Bool(_) => Ok(GrammarText::JsonSchema(schema.to_string())),
        Value::String(text) => Ok(GrammarText::JsonSchema(text.clone())),
        Value::Null | Value::Number(_) | Value::Array(_) => Err(RequestError::invalid(
            path,
            format!("`{path}` is not a JSON schema: expected an object"),
        )),
    }
}

/// Returns the grammar of a JSON object with any members.
pub fn any_object() -> GrammarText {
    GrammarText::JsonSchema(r#"{"type": "object"}"#.to_owned())
}

/// Returns a grammar. A text with `::=` is written in GBNF, the notation of llama.cpp, and any other
/// in that of Lark. An empty text means that there is none, as in llama.cpp.
fn lark(path: &'static str, text: Option<&str>) -> Result<Option<Found>, RequestError> {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
        return Ok(None);
    };
    let grammar = if text.contains("::=") {
        lark_from_gbnf(text).map_err(|problem| {
            let message = format!("`{path}` is not valid GBNF: {problem}");
            RequestError::invalid(path, message)
        })?
    } else {
        text.to_owned()
    };
    Ok(Some((path, GrammarText::Lark(grammar))))
}

fn regex(path: &'static str, pattern: Option<&str>) -> Option<Found> {
    pattern.map(|pattern| (path, GrammarText::Regex(pattern.to_owned())))
}

/// Returns the grammar of a reply that is one of some texts.
fn one_of(path: &str, texts: &[String]) -> Result<GrammarText, RequestError> {
    if texts.is_empty() {
        let message = format!("`{path}` is empty: expected at least one text");
        return Err(RequestError::invalid(path, message));
    }

    // Strings of Lark have the escapes of JSON.
    let strings: Vec<String> = texts
        .iter()
        .map(|text| Value::from(text.as_str()).to_string())
        .collect();
    Ok(GrammarText::Lark(format!("start: {}", strings.join(" | "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::shared::body::Body;

    fn grammar(json: &str) -> Result<Option<GrammarText>, RequestError> {
        let body = Body::parse(json.as_bytes())?;
        body.read::<FormatRequest>()?.grammar()
    }

    #[test]
    fn all_forms_of_grammars_are_read() {
        let schema = |text: &str| Some(GrammarText::JsonSchema(text.to_owned()));
        let lark = |text: &str| Some(GrammarText::Lark(text.to_owned()));
        let regex = |text: &str| Some(GrammarText::Regex(text.to_owned()));
        for (json, expected) in [
            ("{}", None),
            (r#"{"response_format": null}"#, None),
            (r#"{"response_format": {"type": "text"}}"#, None),
            (
                r#"{"response_format": {"type": "json_object"}}"#,
                schema(r#"{"type": "object"}"#),
            ),
            (
                r#"{"response_format": {"type": "json_object", "schema": {"const": "42"}}}"#,
                schema(r#"{"const":"42"}"#),
            ),
            (
                r#"{"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": {"b": 1, "a": 2}}}}"#,
                schema(r#"{"b":1,"a":2}"#),
            ),
            (r#"{"json_schema": {"const": 1}}"#, schema(r#"{"const":1}"#)),
            (r#"{"guided_json": "{}"}"#, schema("{}")),
            (r#"{"grammar": ""}"#, None),
            (r#"{"grammar": "start: \"a\""}"#, lark("start: \"a\"")),
            (
                r#"{"grammar": "root ::= \"a\"{5,5}"}"#,
                lark("start: \"a\"{5,5}\n"),
            ),
            (r#"{"regex": "[0-9]+"}"#, regex("[0-9]+")),
            (r#"{"guided_regex": "a"}"#, regex("a")),
            (
                r#"{"guided_choice": ["yes", "a \"b\""]}"#,
                lark(r#"start: "yes" | "a \"b\"""#),
            ),
            (
                r#"{"structured_outputs": {"choice": ["x"]}}"#,
                lark("start: \"x\""),
            ),
            (
                r#"{"structured_outputs": {"json_object": true}}"#,
                schema(r#"{"type": "object"}"#),
            ),
        ] {
            assert_eq!(grammar(json), Ok(expected), "{json}");
        }
    }

    #[test]
    fn wrong_forms_are_errors_by_name() {
        for (json, param) in [
            (
                r#"{"response_format": {"type": "sound"}}"#,
                "response_format.type",
            ),
            (r#"{"response_format": {}}"#, "response_format"),
            (r#"{"response_format": "json"}"#, "response_format"),
            (
                r#"{"response_format": {"type": "json_object", "schema": 123}}"#,
                "response_format.schema",
            ),
            (
                r#"{"response_format": {"type": "json_schema"}}"#,
                "response_format.json_schema.schema",
            ),
            (r#"{"json_schema": 5}"#, "json_schema"),
            (r#"{"grammar": "root ::= \"a"}"#, "grammar"),
            (r#"{"guided_choice": []}"#, "guided_choice"),
            (r#"{"regex": "a", "grammar": "start: \"a\""}"#, "regex"),
            (
                r#"{"structured_outputs": {"structural_tag": {}}}"#,
                "structured_outputs.structural_tag",
            ),
            (
                r#"{"structured_outputs": {"grammar": " "}}"#,
                "structured_outputs.grammar",
            ),
        ] {
            let error = grammar(json).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{json}");
        }
    }
}
