//! The instruction table is whole: walked row by row.

use ptx_gen::{Target, isa, print, samples};
use std::collections::BTreeSet;

#[test]
fn rows_are_unique_documented_and_typed() {
    let (mut ids, mut forms) = (BTreeSet::new(), BTreeSet::new());
    for op in isa::all() {
        assert!(ids.insert(op.id), "{} stands twice", op.id);
        let form = format!("{} {:?} {:?} {:?}", op.template, op.types, op.from, op.form);
        assert!(forms.insert(form), "{} repeats {}", op.id, op.template);
        assert!(!op.doc.is_empty() && op.doc.len() <= 100, "{}: {}", op.id, op.doc);
        assert!(op.doc.is_ascii() && !op.doc.ends_with('.'), "{}: {}", op.id, op.doc);
        assert_eq!(op.template.contains("$s"), !op.from.is_empty() && *op != isa::BITS, "{}", op.id);
        let typed = ["$t", "$m", "$b"].iter().any(|s| op.template.contains(s));
        assert_eq!(typed, !op.types.is_empty(), "{}", op.id);
    }
}

#[test]
fn every_row_has_samples_for_every_type() {
    let samples = samples();
    for op in isa::all() {
        let of_row = samples.iter().filter(|s| s.op == op).count();
        assert_eq!(of_row, op.instances().count(), "{}", op.id);
    }
    let names: BTreeSet<&str> = samples.iter().map(|s| s.program.name.as_str()).collect();
    assert_eq!(names.len(), samples.len(), "two samples of one name");
}

#[test]
fn samples_print_where_their_row_allows() {
    for s in samples() {
        for target in Target::ALL {
            match print(&s.program, target) {
                Ok(text) => {
                    assert!(text.is_ascii());
                    assert!(text.contains(s.op.template.split(['$', ' ']).next().expect("one part")));
                }
                Err(e) => assert!(
                    target.sm < e.needs && e.needs <= 120 || e.specific && target.name != "sm_90a",
                    "{e}"
                ),
            }
        }
    }
}

#[test]
fn printing_twice_gives_the_same_bytes() {
    let text = |t| samples().iter().map(|s| print(&s.program, t).unwrap_or_default()).collect::<String>();
    let target = Target::named("sm_90").expect("a target");
    assert_eq!(text(target), text(target));
}

#[test]
fn targets_of_devices() {
    let cases = [
        ((7, 0), None),
        ((7, 5), Some("sm_75")),
        ((8, 0), Some("sm_80")),
        ((8, 7), Some("sm_86")),
        ((8, 9), Some("sm_89")),
        ((9, 0), Some("sm_90a")),
        ((10, 0), Some("sm_100")),
        ((10, 3), Some("sm_100")),
        ((12, 1), Some("sm_120")),
    ];
    for ((major, minor), want) in cases {
        assert_eq!(Target::for_device(major, minor).map(|t| t.name), want, "{major}.{minor}");
    }
}
