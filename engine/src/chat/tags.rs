//! `{% generation %}`, which transformers adds to Jinja, as a block that Jinja has.
//!
//! There it is a call of a function with a body (`AssistantTracker.parse`), and so it is here: the tag becomes
//! `{% call .. %}` with the same marks of white space, and `{% endgeneration %}` becomes `{% endcall %}`.

use std::ops::Range;

/// The function that is called with the body.
pub(super) const FUNCTION: &str = "__generation__";

/// A template whose tags are those of Jinja, and whether there was one of generation.
pub(super) fn replaced(template: &str) -> (String, bool) {
    let mut text = String::with_capacity(template.len());
    let (mut at, mut any) = (0, false);
    for name in names(template) {
        let new = match &template[name.clone()] {
            "generation" => format!("call {FUNCTION}()"),
            "endgeneration" => "endcall".to_owned(),
            _ => continue,
        };
        any = true;
        text += &template[at..name.start];
        text += &new;
        at = name.end;
    }
    text += &template[at..];
    (text, any)
}

/// All tags and expressions, outside comments and raw text.
pub(super) fn all(template: &str) -> Vec<Range<usize>> {
    parts(template).into_iter().map(|(part, _)| part).collect()
}

/// The names of all tags, outside comments, expressions and raw text.
fn names(template: &str) -> impl Iterator<Item = Range<usize>> {
    parts(template).into_iter().filter_map(|(_, name)| name)
}

/// Tags and expressions, and the names of tags.
fn parts(template: &str) -> Vec<(Range<usize>, Option<Range<usize>>)> {
    let (mut parts, mut at, mut raw) = (vec![], 0, false);
    while let Some(found) = template[at..].find('{') {
        let open = at + found;
        let rest = &template[open..];
        at = match rest.get(..2) {
            Some("{#") if !raw => rest.find("#}").map_or(template.len(), |end| open + end + 2),
            Some("{{") if !raw => {
                let end = end(template, open + 2, "}}");
                parts.push((open..end, None));
                end
            }
            Some("{%") => {
                let name = name(template, open + 2);
                match (&template[name.clone()], raw) {
                    ("raw", false) => raw = true,
                    ("endraw", true) => raw = false,
                    _ => {}
                }
                let end = if raw { name.end } else { end(template, name.end, "%}") };
                if !raw {
                    parts.push((open..end, Some(name)));
                }
                end
            }
            _ => open + 1,
        };
    }
    parts
}

/// The name of a tag, behind its mark of white space.
fn name(template: &str, at: usize) -> Range<usize> {
    let rest = &template[at..];
    let marked = rest.strip_prefix(['-', '+']).unwrap_or(rest).trim_start();
    let len = marked.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(marked.len());
    let start = template.len() - marked.len();
    start..start + len
}

/// Where a tag or an expression ends, which begins at `at`; strings in it may hold anything.
fn end(template: &str, mut at: usize, close: &str) -> usize {
    let mut quote = None;
    let bytes = template.as_bytes();
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, byte @ (b'\'' | b'"')) => quote = Some(byte),
            (None, _) if bytes[at..].starts_with(close.as_bytes()) => return at + close.len(),
            _ => {}
        }
        at += 1;
    }
    template.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tags_are_replaced() {
        let call = "{% call __generation__() %}x{% endcall %}";
        let cases = [
            ("{% generation %}x{% endgeneration %}", call.to_owned(), true),
            (
                "{%- generation -%}\n{{ 'a' }}{%-endgeneration+%}",
                "{%- call __generation__() -%}\n{{ 'a' }}{%-endcall+%}".to_owned(),
                true,
            ),
            ("{# {% generation %} #}", "{# {% generation %} #}".to_owned(), false),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}".to_owned(), false),
            (
                "{% set a = \"%} {% generation %}\" %}",
                "{% set a = \"%} {% generation %}\" %}".to_owned(),
                false,
            ),
            (
                "{% raw %}{% generation %}{% endraw %}{% generation %}",
                "{% raw %}{% generation %}{% endraw %}{% call __generation__() %}".to_owned(),
                true,
            ),
            ("{% if generation %}{ {% endif", "{% if generation %}{ {% endif".to_owned(), false),
            ("{% generations %}{", "{% generations %}{".to_owned(), false),
            ("{%", "{%".to_owned(), false),
        ];
        for (template, wanted, any) in cases {
            assert_eq!(replaced(template), (wanted, any), "{template}");
        }
    }
}
