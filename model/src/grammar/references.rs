//! Resolves the references of a JSON schema before llguidance reads it.
//!
//! llguidance looks up the segments of a `$ref` as they are written. RFC 6901 requires decoding
//! first: percent escapes of the fragment (section 6), then `~1` to `/` and `~0` to `~` (section
//! 4). A `$ref` may also name an `$anchor`, or start with the `$id` of a schema. `resolve`
//! therefore replaces each reference by a pointer with decoded segments. A segment with a slash
//! cannot be written that way, so the schema is copied to a key of `$defs` without a slash.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fault::GrammarFault;
use super::place::{NAMED, VALUES, escaped};

/// The path from the root of a schema to a part of it.
type Path = Vec<String>;

/// The identifiers and anchors that a schema defines.
#[derive(Default)]
struct Names {
    /// The paths of schemas by their `$id`, resolved against the identifiers around them. The root
    /// also has the key `""`.
    ids: BTreeMap<String, Path>,
    /// The paths of anchors. The key is the path of the enclosing schema with an `$id`, and the
    /// name of the anchor.
    anchors: BTreeMap<(Path, String), Path>,
}

/// A reference in a schema.
struct Reference {
    /// The path of the keyword, with `$ref` as the last segment.
    path: Path,
    /// The value of the keyword.
    text: String,
    /// The URI that the reference is relative to.
    base: String,
    /// The path of the enclosing schema with an `$id`, or of the root.
    resource: Path,
}

/// Replaces each `$ref` by one that the library reads as the specification demands.
///
/// # Errors
/// Returns an error if a reference leads to no schema of this document.
pub(super) fn resolve(schema: &mut Value) -> Result<(), GrammarFault> {
    let mut names = Names::default();
    let mut references = vec![];
    names.ids.insert(String::new(), vec![]);

    // Draft 4 has `id` in place of `$id`.
    let draft4 = schema["$schema"]
        .as_str()
        .is_some_and(|draft| draft.contains("draft-04"));
    let key = if draft4 { "id" } else { "$id" };
    let mut collector = Collector {
        key,
        names: &mut names,
        references: &mut references,
    };
    collector.schema(schema, &mut vec![], "", &[])?;
    let mut aliases: Vec<(Path, String)> = vec![];
    for reference in &references {
        let target = target(schema, &names, reference)?;

        // The library would split a segment at its slash, and would take the pointer `#/` for the
        // root.
        let readable = target.iter().all(|segment| !segment.contains('/')) && target != [""];
        let pointer = if target.is_empty() {
            "#".to_owned()
        } else if readable {
            format!("#/{}", target.join("/"))
        } else {
            format!("#/$defs/{}", alias(schema, &mut aliases, target))
        };
        if let Some(place) = at_mut(schema, &reference.path) {
            *place = Value::String(pointer);
        }
    }

    // The copies are made last, because the references in them must be replaced first.
    for (target, name) in aliases {
        let copy = at(schema, &target).cloned().unwrap_or_default();
        if let Some(definitions) = definitions(schema) {
            definitions.insert(name, copy);
        }
    }

    Ok(())
}

/// Returns the object under `$defs` and adds it if it is missing.
fn definitions(schema: &mut Value) -> Option<&mut Map<String, Value>> {
    schema
        .as_object_mut()?
        .entry("$defs")
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
}

/// Returns the name of the copy of a schema, which no other definition has.
fn alias(schema: &Value, aliases: &mut Vec<(Path, String)>, target: Path) -> String {
    if let Some((_, name)) = aliases.iter().find(|(known, _)| *known == target) {
        return name.clone();
    }

    let free = |name: &String| {
        schema["$defs"].get(name.as_str()).is_none()
            && aliases.iter().all(|(_, known)| known != name)
    };
    let last = target
        .last()
        .map_or("", |segment| segment.as_str())
        .replace('/', "-");
    let mut names = (0..).map(|number| {
        if number == 0 {
            last.clone()
        } else {
            format!("{last}-{number}")
        }
    });
    let name = names
        .find(|name| !name.is_empty() && free(name))
        .unwrap_or(last);
    aliases.push((target, name.clone()));
    name
}

/// A walk through a schema that collects its names and references.
struct Collector<'a> {
    /// The keyword that identifies a schema.
    key: &'static str,
    names: &'a mut Names,
    references: &'a mut Vec<Reference>,
}

impl Collector<'_> {
    /// Visits a schema at a path. `base` is the URI of the enclosing schema with an `$id`, and
    /// `resource` its path.
    fn schema(
        &mut self,
        schema: &Value,
        path: &mut Path,
        base: &str,
        resource: &[String],
    ) -> Result<(), GrammarFault> {
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    self.within(&i.to_string(), item, path, base, resource)?;
                }
                return Ok(());
            }
            _ => return Ok(()),
        };
        let mut base = base.to_owned();
        let mut resource = resource.to_vec();
        if let Some(id) = keywords.get(self.key).and_then(Value::as_str) {
            match id.strip_prefix('#') {
                // Until draft 7, this is how an anchor is written.
                Some(anchor) if !anchor.is_empty() => {
                    self.names
                        .anchors
                        .insert((resource.clone(), anchor.to_owned()), path.clone());
                }
                _ => {
                    base = joined(&base, id.trim_end_matches('#'));
                    resource = path.clone();
                    self.names.ids.insert(base.clone(), path.clone());
                }
            }
        }

        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(anchor) = keywords.get(keyword).and_then(Value::as_str) {
                self.names
                    .anchors
                    .insert((resource.clone(), anchor.to_owned()), path.clone());
            }
        }

        if let Some(Value::String(text)) = keywords.get("$ref") {
            path.push("$ref".to_owned());
            let reference = Reference {
                path: path.clone(),
                text: text.clone(),
                base: base.clone(),
                resource: resource.clone(),
            };
            self.references.push(reference);
            path.pop();
        }

        for (name, value) in keywords {
            if VALUES.contains(&&**name) {
                continue;
            }
            match value {
                Value::Object(named) if NAMED.contains(&&**name) => {
                    path.push(name.clone());
                    for (inner, value) in named {
                        self.within(inner, value, path, &base, &resource)?;
                    }
                    path.pop();
                }
                value => self.within(name, value, path, &base, &resource)?,
            }
        }

        Ok(())
    }

    /// Visits a schema one segment deeper.
    fn within(
        &mut self,
        segment: &str,
        schema: &Value,
        path: &mut Path,
        base: &str,
        resource: &[String],
    ) -> Result<(), GrammarFault> {
        path.push(segment.to_owned());
        self.schema(schema, path, base, resource)?;
        path.pop();
        Ok(())
    }
}

/// Resolves a URI against another one (RFC 3986, section 5.2), apart from segments `.` and `..`.
fn joined(base: &str, uri: &str) -> String {
    let has_scheme = uri
        .split(['/', '?'])
        .next()
        .is_some_and(|first| first.contains(':'));
    if uri.is_empty() {
        return base.to_owned();
    }
    if has_scheme || base.is_empty() {
        return uri.to_owned();
    }

    // The end of `scheme://authority`, which an absolute path keeps.
    let authority = base.find("//").map_or(0, |at| {
        base[at + 2..]
            .find('/')
            .map_or(base.len(), |slash| at + 2 + slash)
    });
    if uri.starts_with('/') {
        return format!("{}{uri}", &base[..authority]);
    }

    let folder = base.rfind('/').map_or(0, |slash| slash + 1).max(authority);
    let slash = if folder == base.len() && !base.ends_with('/') && folder > 0 {
        "/"
    } else {
        ""
    };
    format!("{}{slash}{uri}", &base[..folder])
}

/// Returns the path of the schema that a reference leads to.
fn target(schema: &Value, names: &Names, reference: &Reference) -> Result<Path, GrammarFault> {
    let Reference {
        path,
        text,
        base,
        resource,
    } = reference;
    let fault = |problem: String| {
        let place: String = path
            .iter()
            .map(|segment| format!("/{}", escaped(segment)))
            .collect();
        GrammarFault::Reference {
            reference: text.clone(),
            place: format!("#{place}"),
            problem,
        }
    };
    let (uri, fragment) = text.split_once('#').unwrap_or((text, ""));
    let mut target = if uri.is_empty() {
        resource.clone()
    } else {
        let uri = joined(base, uri);
        names.ids.get(&uri).cloned().ok_or_else(|| {
            fault(format!(
                "names another document, {uri}; copy the schema under $defs and refer to it there"
            ))
        })?
    };
    let fragment = percent_decoded(fragment).map_err(fault)?;
    if fragment.is_empty() {
        return Ok(target);
    }

    // A fragment that does not start with a slash is the name of an anchor and not a pointer.
    let Some(pointer) = fragment.strip_prefix('/') else {
        let anchor = names.anchors.get(&(target, fragment.clone())).cloned();
        return anchor.ok_or_else(|| {
            fault(format!(
                "names the anchor {fragment:?}, which no schema has"
            ))
        });
    };

    for segment in pointer.split('/') {
        let segment = unescaped(segment).map_err(fault)?;
        let here = at(schema, &target).unwrap_or(&Value::Null);
        let found = match here {
            Value::Object(object) => object.contains_key(&segment),
            Value::Array(items) => index(&segment).is_some_and(|index| index < items.len()),
            _ => false,
        };
        if !found {
            let place: String = target
                .iter()
                .map(|segment| format!("/{}", escaped(segment)))
                .collect();
            return Err(fault(format!(
                "leads to nothing, because #{place} has no {segment:?}"
            )));
        }

        target.push(segment);
    }

    match at(schema, &target) {
        Some(Value::Object(_) | Value::Bool(_)) => Ok(target),
        _ => Err(fault("leads to a value that is not a schema".to_owned())),
    }
}

/// Returns an index of a list as RFC 6901 writes it: without a leading zero.
fn index(segment: &str) -> Option<usize> {
    let plain =
        segment == "0" || !segment.starts_with('0') && segment.bytes().all(|b| b.is_ascii_digit());
    if plain { segment.parse().ok() } else { None }
}

/// Returns the value at a path.
fn at<'v>(schema: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(schema, |value, segment| match value {
        Value::Array(items) => items.get(index(segment)?),
        value => value.get(segment.as_str()),
    })
}

/// Returns the value at a path for changing it.
fn at_mut<'v>(schema: &'v mut Value, path: &[String]) -> Option<&'v mut Value> {
    path.iter().try_fold(schema, |value, segment| match value {
        Value::Array(items) => items.get_mut(index(segment)?),
        value => value.get_mut(segment.as_str()),
    })
}

/// Decodes the percent escapes of a fragment (RFC 3986, section 2.1).
fn percent_decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }

        let digits = after
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(
            code.ok_or("has a % without two hexadecimal digits; write %25 for the sign itself")?,
        );
        rest = &after[2..];
    }

    String::from_utf8(bytes).map_err(|_| "has percent escapes that are not UTF-8".to_owned())
}

/// Decodes a segment of a pointer. `~1` comes first, so that `~01` becomes `~1` and not a slash.
fn unescaped(segment: &str) -> Result<String, String> {
    let mut parts = segment.split('~');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let c = match part.chars().next() {
            Some('0') => '~',
            Some('1') => '/',
            _ => {
                return Err(
                    "has a ~ that is not followed by 0 or 1; write ~0 for the sign itself"
                        .to_owned(),
                );
            }
        };
        decoded.push(c);
        decoded += &part[1..];
    }

    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the references of a schema after they were resolved, in the order of the text.
    fn resolved(schema: &str) -> Result<Value, String> {
        let mut schema: Value = serde_json::from_str(schema).unwrap();
        resolve(&mut schema).map_err(|fault| fault.to_string())?;
        Ok(schema)
    }

    #[test]
    fn references_become_pointers_that_the_library_reads() {
        let cases = [
            (
                r##"{"$defs": {"a~b": {"const": 1}}, "$ref": "#/$defs/a~0b"}"##,
                "#/$defs/a~b",
            ),
            (
                r##"{"$defs": {"a~1b": {"const": 1}, "a/b": {}}, "$ref": "#/$defs/a~01b"}"##,
                "#/$defs/a~1b",
            ),
            (
                r##"{"$defs": {"a%b": {}, "a%25b": {}}, "$ref": "#/$defs/a%25b"}"##,
                "#/$defs/a%b",
            ),
            (
                r##"{"$defs": {"é": {}}, "$ref": "#/$defs/%C3%A9"}"##,
                "#/$defs/é",
            ),
            (
                r##"{"$defs": {"é": {}}, "$ref": "#/%24defs/é"}"##,
                "#/$defs/é",
            ),
            (
                r##"{"$defs": {"": {"const": 1}}, "$ref": "#/$defs/"}"##,
                "#/$defs/",
            ),
            (
                r##"{"anyOf": [{}, {"const": 1}], "$ref": "#/anyOf/1"}"##,
                "#/anyOf/1",
            ),
            (
                r##"{"$defs": {"a": {"$anchor": "x"}}, "$ref": "#x"}"##,
                "#/$defs/a",
            ),
            (
                r##"{"definitions": {"a": {"$id": "#x"}}, "$ref": "#x"}"##,
                "#/definitions/a",
            ),
            (
                r##"{"$id": "http://a.b/c", "$defs": {"x": {}}, "$ref": "http://a.b/c#/$defs/x"}"##,
                "#/$defs/x",
            ),
            (
                r##"{"$id": "http://a.b/c/d", "$defs": {"x": {"$id": "e"}}, "$ref": "e"}"##,
                "#/$defs/x",
            ),
            (
                r##"{"$id": "http://a.b/c", "$defs": {"x": {"$id": "/d/e"}}, "$ref": "http://a.b/d/e#"}"##,
                "#/$defs/x",
            ),
            (
                r##"{"items": {"$ref": "#"}, "$ref": "#/items"}"##,
                "#/items",
            ),
        ];
        for (schema, wanted) in cases {
            assert_eq!(resolved(schema).unwrap()["$ref"], wanted, "{schema}");
        }
    }

    #[test]
    fn a_schema_whose_key_has_a_slash_is_copied() {
        let schema =
            resolved(r##"{"definitions": {"a/b": {"const": 1}}, "$ref": "#/definitions/a~1b"}"##)
                .unwrap();
        assert_eq!(
            (&schema["$ref"], &schema["$defs"]["a-b"]["const"]),
            (&"#/$defs/a-b".into(), &1.into())
        );

        // Both spellings exist, and one of the copies refers to the other schema.
        let both = r##"{"$defs": {"a/b": {"items": {"$ref": "#/$defs/a~1b"}}, "a~1b": {}}, "$ref": "#/$defs/a~1b"}"##;
        let schema = resolved(both).unwrap();
        assert_eq!(schema["$ref"], "#/$defs/a-b");
        assert_eq!(schema["$defs"]["a-b"]["items"]["$ref"], "#/$defs/a-b");

        // A key that is empty at the root, which is not the root.
        let schema = resolved(r##"{"": {"const": 1}, "$ref": "#/"}"##).unwrap();
        let name = schema["$ref"].as_str().unwrap().rsplit_once('/').unwrap().1;
        assert_eq!(schema["$defs"][name]["const"], 1);
    }

    #[test]
    fn references_within_a_schema_with_an_id_start_there() {
        let schema = r##"{"$defs": {"a": {"$id": "x", "items": {"$ref": "#/$defs/b"}, "$defs": {"b": {}}}, "b": {}}}"##;
        assert_eq!(
            resolved(schema).unwrap()["$defs"]["a"]["items"]["$ref"],
            "#/$defs/a/$defs/b"
        );
    }

    #[test]
    fn references_that_lead_nowhere_are_rejected_with_the_reason() {
        let cases = [
            (
                r##"{"$ref": "#/a"}"##,
                r##"leads to nothing, because # has no "a""##,
            ),
            (
                r##"{"$defs": {}, "$ref": "#/$defs/x"}"##,
                r##"leads to nothing, because #/$defs has no "x""##,
            ),
            (
                r##"{"anyOf": [{}], "$ref": "#/anyOf/1"}"##,
                r##"leads to nothing, because #/anyOf has no "1""##,
            ),
            (
                r##"{"anyOf": [{}], "$ref": "#/anyOf/00"}"##,
                r##"leads to nothing, because #/anyOf has no "00""##,
            ),
            (
                r##"{"$ref": "#/a~2"}"##,
                "has a ~ that is not followed by 0 or 1; write ~0 for the sign itself",
            ),
            (
                r##"{"$ref": "#/a%2"}"##,
                "has a % without two hexadecimal digits; write %25 for the sign itself",
            ),
            (
                r##"{"$ref": "#/%FF"}"##,
                "has percent escapes that are not UTF-8",
            ),
            (
                r##"{"$ref": "#x"}"##,
                "names the anchor \"x\", which no schema has",
            ),
            (
                r##"{"title": "x", "$ref": "#/title"}"##,
                "leads to a value that is not a schema",
            ),
            (
                r##"{"$id": "http://a.b/c/d", "$ref": "e.json#/x"}"##,
                "names another document, http://a.b/c/e.json; copy the schema under $defs and refer to it there",
            ),
        ];
        for (schema, wanted) in cases {
            let reference: Value = serde_json::from_str(schema).unwrap();
            let wanted = format!("the $ref {} at #/$ref {wanted}", reference["$ref"]);
            assert_eq!(resolved(schema).unwrap_err(), wanted, "{schema}");
        }
    }

    #[test]
    fn a_reference_in_a_value_is_not_one() {
        for schema in [
            r##"{"const": {"$ref": "#/x"}}"##,
            r##"{"properties": {"$ref": {"type": "string"}}}"##,
        ] {
            assert_eq!(
                resolved(schema).unwrap(),
                serde_json::from_str::<Value>(schema).unwrap()
            );
        }
    }
}
