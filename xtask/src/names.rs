//! Families of kernel names, and suggestions for misspelled names.

use std::collections::BTreeMap;

/// The maximum number of names that an error suggests.
const MOST: usize = 6;
/// The least similarity of a suggested name, from 0 to 1.
const ALIKE: f64 = 0.6;

/// Returns the error for a name that is not in `all`.
pub(crate) fn unknown<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> String {
    let meant = match suggestions(name, all).as_slice() {
        [] => String::new(),
        names if names.len() > MOST => {
            format!(
                "; did you mean {} or one of {} more?",
                names[..MOST].join(", "),
                names.len() - MOST
            )
        }
        [names @ .., last] if !names.is_empty() => {
            format!("; did you mean {} or {last}?", names.join(", "))
        }
        [only, ..] => format!("; did you mean {only}?"),
    };
    format!("no kernel {name:?}{meant} (`cargo xtask ptx --all` lists them)")
}

/// Returns the names that begin with `name`.
///
/// If there are none, returns the names that contain it, and if there are none either, the most
/// similar names.
fn suggestions<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = name.to_lowercase().replace('-', "_");
    let all: Vec<_> = all.collect();
    let matching = |fits: &dyn Fn(&str) -> bool| {
        all.iter()
            .copied()
            .filter(|name| fits(name))
            .collect::<Vec<_>>()
    };
    let beginning = matching(&|name| name.starts_with(&wanted));
    let inside = matching(&|name| name.contains(&wanted));
    if !beginning.is_empty() {
        beginning
    } else if !inside.is_empty() {
        inside
    } else {
        alike(&wanted, all)
    }
}

/// Returns the most similar names, by Damerau-Levenshtein distance.
fn alike<'a>(wanted: &str, all: Vec<&'a str>) -> Vec<&'a str> {
    let score = |name: &str| strsim::normalized_damerau_levenshtein(wanted, name);
    let mut scored: Vec<_> = all
        .into_iter()
        .map(|name| (score(name), name))
        .filter(|(score, _)| *score >= ALIKE)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored
        .into_iter()
        .take(MOST)
        .map(|(_, name)| name)
        .collect()
}

/// Returns the first word of a name.
pub(crate) fn family(name: &str) -> &str {
    name.split('_').next().unwrap_or(name)
}

/// Returns a line for each family: its name, its number of kernels, and the kernels that fit into
/// `width` columns.
pub(crate) fn families<'a>(all: impl Iterator<Item = &'a str>, width: usize) -> Vec<String> {
    let mut families: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in all {
        families.entry(family(name)).or_default().push(name);
    }

    let longest = families
        .keys()
        .map(|family| family.len())
        .max()
        .unwrap_or(0);
    let line = |(family, names): (&&str, &Vec<&str>)| {
        let head = format!("{family:longest$} {:>4}  ", names.len());
        let room = width.saturating_sub(head.len());
        head + &fitted(names, room)
    };
    families.iter().map(line).collect()
}

/// Returns the first names that fit into `room` columns, and at least one.
fn fitted(names: &[&str], room: usize) -> String {
    const REST: &str = " ...";
    let mut text = String::new();
    for (i, name) in names.iter().enumerate() {
        let rest = if i + 1 == names.len() { 0 } else { REST.len() };
        if text.len() + 1 + name.len() + rest > room && !text.is_empty() {
            return text + REST;
        }
        text += if text.is_empty() { "" } else { " " };
        text += name;
    }

    text
}

#[cfg(test)]
mod tests {
    use super::{families, unknown};

    const ALL: [&str; 5] = [
        "gemv_f16",
        "gemv_f32",
        "rms_norm_1024",
        "rms_norm_256",
        "swiglu_256",
    ];

    #[test]
    fn a_part_of_a_name_and_a_slip_suggest_names() {
        let said = |name| {
            unknown(name, ALL.into_iter()).replace(" (`cargo xtask ptx --all` lists them)", "")
        };
        assert_eq!(
            said("rms_norm"),
            "no kernel \"rms_norm\"; did you mean rms_norm_1024 or rms_norm_256?"
        );
        assert_eq!(
            said("RMS-norm-2"),
            "no kernel \"RMS-norm-2\"; did you mean rms_norm_256?"
        );
        assert_eq!(
            said("norm_256"),
            "no kernel \"norm_256\"; did you mean rms_norm_256?"
        );
        assert_eq!(
            said("swigul_256"),
            "no kernel \"swigul_256\"; did you mean swiglu_256?"
        );
        assert_eq!(said("flash"), "no kernel \"flash\"");
    }

    #[test]
    fn many_names_are_counted() {
        let all: Vec<String> = (0..9).map(|i| format!("gemv_{i}")).collect();
        let said = unknown("gemv", all.iter().map(String::as_str));
        let expected =
            "did you mean gemv_0, gemv_1, gemv_2, gemv_3, gemv_4, gemv_5 or one of 3 more?";
        assert!(said.contains(expected), "{said}");
    }

    #[test]
    fn a_family_is_a_line_that_fits() {
        let lines = families(ALL.into_iter(), 30);
        assert_eq!(
            lines,
            [
                "gemv      2  gemv_f16 gemv_f32",
                "rms       2  rms_norm_1024 ...",
                "swiglu    1  swiglu_256"
            ]
        );
    }
}
