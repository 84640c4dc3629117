//! Instructions on registers. Each thread applies them to different operands.

use std::fmt::Write as _;

use super::case::{Case, Cases, Exact, expand, kernel};
use super::{carries, comparisons, conversions, floats, integers, operands, video};

/// An instruction on registers: `%d` is its result, or `%p` and `%q` are, `%a`, `%b`, `%c` and `%e`
/// are its sources. `%x`, `%y`, `%z`, `%u`, `%v` and `%wide` are there for steps in between.
pub(crate) struct Form {
    pub(crate) text: String,
    /// `f64 = f64 f64`
    pub(crate) types: String,
    pub(crate) exact: Exact,
}

/// Names with alternatives in braces, types, and operands; where these are empty, the result and
/// the sources.
pub(crate) type Table = [(&'static str, &'static str, &'static str)];

/// Threads that apply a form, each to its own operands.
pub(crate) const THREADS: usize = 391 * 128;
/// Words of 64 bits that hold the operands of a thread.
pub(crate) const OPERANDS: usize = 4;

pub(crate) fn cases() -> Cases {
    let all = [
        floats::forms(),
        comparisons::forms(),
        conversions::forms(),
        integers::forms(),
        carries::forms(),
        video::forms(),
    ];
    Box::new(all.into_iter().flatten().map(case))
}

/// All forms of a table.
pub(crate) fn listed(table: &Table, exact: Exact) -> Vec<Form> {
    let one = |&(pattern, types, operands): &(&str, &str, &str)| {
        let operands = if operands.is_empty() {
            plain(types)
        } else {
            operands.to_owned()
        };
        let form = move |name| Form {
            text: format!("{name} {operands}"),
            types: types.to_owned(),
            exact,
        };
        expand(pattern).into_iter().map(form).collect::<Vec<_>>()
    };
    table.iter().flat_map(one).collect()
}

/// The result and the sources.
pub(crate) fn plain(types: &str) -> String {
    let (to, from) = types.split_once(" = ").unwrap_or((types, ""));
    let to = match to {
        "pq" => "%p|%q",
        "p" => "%p",
        "b32p" => "%d|%p",
        _ => "%d",
    };
    let sources = from
        .split(' ')
        .zip(["%a", "%b", "%c", "%e"])
        .map(|(_, name)| name);
    [to].into_iter()
        .chain(sources)
        .collect::<Vec<_>>()
        .join(", ")
}

fn width(ty: &str) -> usize {
    match ty {
        "f64" | "b64" | "n64" => 64,
        "f16" | "bf16" | "b16" | "n16" => 16,
        "p" => 1,
        _ => 32,
    }
}

pub(crate) fn case(form: Form) -> Case {
    let (exact, name) = (form.exact, form.text.replace('\n', " "));
    let result = match form.types.split(' ').next() {
        Some("f64") => "f64",
        Some("f32") => "f32",
        Some("f16" | "f16x2") => "f16",
        Some("bf16" | "bf16x2") => "bf16",
        _ => "b64",
    };
    Case {
        name,
        text: text(&form),
        inputs: Box::new(move || operands::scalars(&form.types)),
        stored: THREADS,
        geometry: (THREADS as u32 / 128, 128),
        each: [OPERANDS, 1],
        result,
        exact,
        image: None,
    }
}

/// The kernel that applies a form once in each thread.
fn text(form: &Form) -> String {
    let (to, from) = form.types.split_once(" = ").unwrap_or((&form.types, ""));
    let mut declared = String::from(
        ".reg .b64 %w<5>, %u, %v, %s;\n.reg .b32 %x, %y, %z;\n.reg .b128 %wide;\n.reg .pred %p, %q;\n",
    );
    let mut body = String::from(
        "mad.wide.u32 %at, %t, 32, %in;\nld.global.v2.b64 {%w0, %w1}, [%at];\nld.global.v2.b64 {%w2, %w3}, [%at+16];\n",
    );
    for (i, (ty, name)) in from.split(' ').zip(["a", "b", "c", "e"]).enumerate() {
        _ = match width(ty) {
            1 => writeln!(declared, ".reg .pred %{name};"),
            bits => writeln!(declared, ".reg .b{bits} %{name};"),
        };
        _ = match width(ty) {
            1 => writeln!(
                body,
                "and.b64 %w{i}, %w{i}, 1;\nsetp.ne.s64 %{name}, %w{i}, 0;"
            ),
            64 => writeln!(body, "mov.b64 %{name}, %w{i};"),
            bits => writeln!(body, "cvt.u{bits}.u64 %{name}, %w{i};"),
        };
    }

    if !matches!(to, "p" | "pq") {
        _ = writeln!(declared, ".reg .b{} %d;", width(to));
    }

    _ = writeln!(body, "{};", form.text);
    body += &match (to, width(to)) {
        ("p", _) => "selp.b64 %w4, 1, 0, %p;\n".to_string(),
        ("pq", _) => "selp.b64 %w4, 1, 0, %p;\n@%q or.b64 %w4, %w4, 2;\n".to_string(),
        ("b32p", _) => "cvt.u64.u32 %w4, %d;\n@%p or.b64 %w4, %w4, 0x100000000;\n".to_string(),
        (_, 64) => "mov.b64 %w4, %d;\n".to_string(),
        (_, bits) => format!("cvt.u64.u{bits} %w4, %d;\n"),
    };
    body += "mad.wide.u32 %at, %t, 8, %out;\nst.global.b64 [%at], %w4;";
    kernel(&declared, &body)
}
