//! Instructions that the lanes of a warp execute together: shuffles, votes, matches, reductions,
//! and matrices in shared memory.

use super::case::{Case, Cases, Exact, expand};
use super::scalar::{Form, case};

/// A predicate `%q` that in some warps holds for all lanes or for none, in others for some.
const SOME: &str = "shr.u32 %x, %t, 5;\nand.b32 %x, %x, 7;\nshl.b32 %y, 1, %x;\nsub.u32 %y, %y, 1;\nand.b32 %y, %a, %y;\n\
                    setp.eq.u32 %q, %y, 0;\nand.b32 %y, %t, 256;\nsetp.ne.xor.u32 %q, %y, 0, %q";
/// Masks of the lanes for which `%b` holds, and of the others.
const HALVES: &str = "vote.sync.ballot.b32 %z, %b, -1;\nnot.b32 %y, %z";

/// Instructions that all lanes execute together: names, the result, and the operands after it.
const TOGETHER: [(&str, &str, &str); 8] = [
    ("vote.sync{.all,.any,.uni}.pred", "p", "%q"),
    ("vote.sync.ballot.b32", "b32", "%q"),
    ("redux.sync{.add,.min,.max}{.u32,.s32}", "b32", "%a"),
    ("redux.sync{.and,.or,.xor}.b32", "b32", "%x"),
    ("match.any.sync.b32", "b32", "%x"),
    ("match.any.sync.b64", "b32", "%u"),
    ("match.all.sync.b32", "b32p", "%x"),
    ("match.all.sync.b64", "b32p", "%u"),
];

pub(crate) fn cases() -> Cases {
    let mut all = vec![];
    let form = |text: String, types: String| Form {
        text,
        types,
        exact: Exact::Bits,
    };
    for name in expand("shfl.sync{.up,.down,.bfly,.idx}.b32") {
        all.push(form(
            format!("{name} %d|%p, %a, %b, %c, -1"),
            "b32p = b32 b32 segment".into(),
        ));
    }

    for (names, result, source) in TOGETHER {
        let to = match result {
            "p" => "%p",
            "b32p" => "%d|%p",
            _ => "%d",
        };
        let before = format!(
            "{SOME};\nselp.b32 %x, 5, %a, %q;\nand.b32 %x, %x, 7;\ncvt.u64.u32 %u, %x;\nneg.s64 %u, %u"
        );
        for name in expand(names) {
            all.push(form(
                format!("{before};\n{name} {to}, {source}, -1"),
                format!("{result} = b32"),
            ));
            let parts = format!("@%b {name} {to}, {source}, %z;\n@!%b {name} {to}, {source}, %y");
            all.push(form(
                format!("{before};\n{HALVES};\n{parts}"),
                format!("{result} = b32 p"),
            ));
        }
    }

    for (name, result, to) in [
        ("popc.u32", "b32", "%d"),
        ("and.pred", "p", "%p"),
        ("or.pred", "p", "%p"),
    ] {
        // The predicate is a block's own.
        let before = SOME
            .replace("%t, 5", "%t, 7")
            .replace("%t, 256", "%t, 1024");
        let text = format!("{before};\nbarrier.red.{name} {to}, 0, %q");
        all.push(form(text, format!("{result} = b32")));
    }

    all.extend(loads());
    all.extend(stores());
    Box::new(all.into_iter().map(named))
}

/// Returns a case that is named after its instruction, without the instructions before it.
fn named(form: Form) -> Case {
    let before = ["ld.", "mov.", "bar.warp"];
    let mut lines = form.text.rsplit("\n");
    let last = lines
        .find(|line| !before.iter().any(|b| line.starts_with(b)))
        .unwrap_or("");
    let name = last.to_owned();
    Case { name, ..case(form) }
}

/// Four matrices of a warp in shared memory at `%x`, a lane's row of one at `%y`, and its 16 bytes
/// at `%z`.
const PLACES: &str = ".shared .align 16 .b8 s[2048];\n.reg .b32 %m<4>;\nmov.u32 %x, s;\nshr.u32 %y, %i, 5;\n\
                      mad.lo.u32 %x, %y, 512, %x;\nand.b32 %z, %i, 31;\nmul.lo.u32 %y, %z, 7;\nand.b32 %y, %y, 31;\n\
                      mad.lo.u32 %y, %y, 16, %x;\nmad.lo.u32 %z, %z, 16, %x";
const WORDS: &str = "b64 = b32 b32 b32 b32";

fn registers(count: usize, of: [&str; 4]) -> String {
    format!("{{{}}}", of[..count].join(", "))
}

/// Returns loads of matrices whose rows are at arbitrary places, from memory that lanes have
/// stored.
fn loads() -> Vec<Form> {
    let mut all = vec![];
    for (count, turn) in [1, 2, 4]
        .into_iter()
        .flat_map(|count| [(count, ""), (count, ".trans")])
    {
        let to = registers(count, ["%m0", "%m1", "%m2", "%m3"]);
        for half in (0..count).step_by(2) {
            let second = if count == 1 { 0 } else { half + 1 };
            let text = format!(
                "{PLACES};\nst.shared.v4.b32 [%z], {{%a, %b, %c, %e}};\nbar.warp.sync -1;\n\
                 ldmatrix.sync.aligned.m8n8.x{count}{turn}.shared.b16 {to}, [%y];\nmov.b64 %d, {{%m{half}, %m{second}}}"
            );
            all.push(Form {
                text,
                types: WORDS.into(),
                exact: Exact::Bits,
            });
        }
    }
    all
}

/// Matrices stored over zeros, read back by lanes.
fn stores() -> Vec<Form> {
    let mut all = vec![];
    for (count, turn) in [1, 2, 4]
        .into_iter()
        .flat_map(|count| [(count, ""), (count, ".trans")])
    {
        let from = registers(count, ["%a", "%b", "%c", "%e"]);
        for half in [0, 8] {
            let text = format!(
                "{PLACES};\nst.shared.v4.b32 [%z], {{0, 0, 0, 0}};\nbar.warp.sync -1;\n\
                 stmatrix.sync.aligned.m8n8.x{count}{turn}.shared.b16 [%y], {from};\nbar.warp.sync -1;\nld.shared.b64 %d, [%z+{half}]"
            );
            all.push(Form {
                text,
                types: WORDS.into(),
                exact: Exact::Bits,
            });
        }
    }
    all
}
