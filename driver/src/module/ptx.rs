//! Reads facts from PTX text: its header, its kernels and their parameters, and its source lines.
//!
//! This is not a parser. It finds the few directives that error messages and checks need, and
//! leaves everything unusual to the driver.

use crate::error::PtxLine;

/// The `.version` and `.target` of PTX, as far as it contains them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Header {
    pub(crate) version: Option<(u32, u32)>,
    pub(crate) target: Option<String>,
}

impl Header {
    pub(crate) fn parse(ptx: &str) -> Self {
        let mut header = Self::default();
        for line in ptx.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix(".version") {
                header.version = rest
                    .trim()
                    .split_once('.')
                    .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
            } else if let Some(rest) = line.strip_prefix(".target") {
                header.target = rest
                    .split([',', ' ', '\t'])
                    .find(|t| !t.is_empty())
                    .map(str::to_string);
                break;
            }
        }
        header
    }

    pub(crate) fn describe(&self) -> String {
        let version = self
            .version
            .map_or("no .version".into(), |(a, b)| format!(".version {a}.{b}"));
        let target = self
            .target
            .as_ref()
            .map_or("no .target".into(), |t| format!(".target {t}"));
        format!("{version}, {target}")
    }
}

/// Returns the first CUDA version whose driver loads a PTX version, if it is known.
pub(crate) fn cuda_of((major, minor): (u32, u32)) -> Option<(u32, u32)> {
    match (major, minor) {
        (7, minor) => Some((11, minor)),
        (8, 0..=5) => Some((12, minor)),
        (8, 6..=8) => Some((12, minor + 1)),
        (9, minor) => Some((13, minor)),
        _ => None,
    }
}

/// Returns true if PTX for `target` runs on a device with this compute capability.
///
/// For example, `sm_80` runs on 8.0 and everything newer, `sm_90a` only on 9.0, and `sm_100f` on
/// newer devices of its family. A target of another form returns true, so that the driver decides.
pub(crate) fn runs_on(target: &str, (major, minor): (u32, u32)) -> bool {
    let number = target.trim_start_matches("sm_");
    let digits = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let Ok(sm) = digits.parse::<u32>() else {
        return true;
    };

    let device = 10 * major + minor;
    match &number[digits.len()..] {
        "" => sm <= device,
        "a" => sm == device,
        "f" => sm / 10 == major && sm <= device,
        _ => true,
    }
}

/// Returns the names of the kernels that the PTX defines.
pub(crate) fn entries(ptx: &str) -> Vec<&str> {
    let after = ptx
        .match_indices(".entry")
        .map(|(at, word)| ptx[at + word.len()..].trim_start());
    let name = |text: &str| {
        text.find(|c: char| !(c.is_ascii_alphanumeric() || "_$%".contains(c)))
            .unwrap_or(text.len())
    };
    after
        .map(|text| &text[..name(text)])
        .filter(|n| !n.is_empty())
        .collect()
}

/// Returns true if the code of a kernel contains an instruction outside comments.
pub(crate) fn has_instruction(ptx: &str, kernel: &str, instruction: &str) -> bool {
    let Some(entry) = entries(ptx).into_iter().find(|name| *name == kernel) else {
        return false;
    };

    let after = &ptx[entry.as_ptr().addr() - ptx.as_ptr().addr()..];
    let body = &after[..after.find(".entry").unwrap_or(after.len())];
    body.lines().any(|line| {
        line.split("//")
            .next()
            .unwrap_or(line)
            .contains(instruction)
    })
}

/// A declared parameter, for example `.param .f32 a` or `.param .align 8 .b8 point[16]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parameter {
    /// The type without the dot. For an array it is the element type.
    pub(crate) ty: String,
    /// The size in bytes.
    pub(crate) bytes: usize,
    /// The alignment in bytes.
    pub(crate) align: usize,
    /// Whether it is an array, which is how structs are declared.
    pub(crate) array: bool,
}

impl std::fmt::Display for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.array {
            return write!(f, "{} bytes aligned to {}", self.bytes, self.align);
        }
        write!(f, ".{}", self.ty)
    }
}

impl Parameter {
    /// Parses one declaration of a parameter list.
    fn parse(declaration: &str) -> Option<Self> {
        let words: Vec<&str> = declaration.split_whitespace().skip(1).collect();
        let after = |word| {
            words
                .iter()
                .position(|w| *w == word)
                .and_then(|i| words.get(i + 1))
        };

        // With `.ptr`, an `.align` describes the memory that the pointer refers to.
        let pointer = words.contains(&".ptr");
        let ty = words
            .iter()
            .find_map(|word| word.strip_prefix('.').filter(|t| size_of_type(t).is_some()))?;
        let size = size_of_type(ty)?;
        let count = match declaration.split_once('[') {
            Some((_, rest)) => Some(rest.split(']').next()?.trim().parse::<usize>().ok()?),
            None => None,
        };
        let align = after(".align")
            .filter(|_| !pointer)
            .and_then(|n| n.parse().ok())
            .unwrap_or(size);
        let bytes = size.checked_mul(count.unwrap_or(1))?;
        Some(Self {
            ty: ty.to_string(),
            bytes,
            align,
            array: count.is_some(),
        })
    }
}

/// Returns the size in bytes of a fundamental type such as `u32`.
fn size_of_type(ty: &str) -> Option<usize> {
    let bits = ty
        .strip_prefix(['u', 's', 'b', 'f'])?
        .parse::<usize>()
        .ok()?;
    matches!(bits, 8 | 16 | 32 | 64 | 128).then_some(bits / 8)
}

/// Returns the parameters of a kernel, or `None` if its list is missing or cannot be parsed.
pub(crate) fn parameters(ptx: &str, kernel: &str) -> Option<Vec<Parameter>> {
    let list = parameter_list(ptx, kernel)?;
    let declarations = list.split(',').map(str::trim).filter(|d| !d.is_empty());
    declarations
        .map(|d| {
            d.starts_with(".param")
                .then(|| Parameter::parse(d))
                .flatten()
        })
        .collect()
}

/// Returns the number of parameters of a kernel, or `None` if its list is missing.
pub(crate) fn param_count(ptx: &str, kernel: &str) -> Option<usize> {
    parameter_list(ptx, kernel).map(|list| list.matches(".param").count())
}

/// Returns the text between the parentheses after a kernel's name, without comments.
fn parameter_list(ptx: &str, kernel: &str) -> Option<String> {
    let entry = entries(ptx).into_iter().find(|name| *name == kernel)?;

    // `entry` is a slice of `ptx`, so the difference of the addresses is its offset in the text.
    let after = &ptx[entry.as_ptr().addr() - ptx.as_ptr().addr() + entry.len()..];
    let list = after.trim_start().strip_prefix('(')?;
    let code = list
        .lines()
        .map(|line| line.split("//").next().unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n");
    Some(code[..code.find(')')?].to_string())
}

/// Returns the first line that a log of the compiler names, for example `ptxas application ptx
/// input, line 12; error ...`.
pub(crate) fn line_named_by(log: &str, ptx: &str) -> Option<PtxLine> {
    let digits = log
        .split("line ")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    let number = digits.flatten().find_map(|d| d.parse::<usize>().ok())?;
    let text = ptx.lines().nth(number.checked_sub(1)?)?.trim().to_string();
    Some(PtxLine {
        number,
        text,
        source: source_of(ptx, number),
    })
}

/// Returns the position of the last `.loc` before a line as `file:line`.
fn source_of(ptx: &str, number: usize) -> Option<String> {
    let before: Vec<_> = ptx.lines().take(number).collect();
    let loc = before
        .iter()
        .rev()
        .find_map(|l| l.trim().strip_prefix(".loc"))?;
    let mut words = loc.split_whitespace();
    let file = words.next()?;
    let line = words.next()?;

    // `.loc` refers to its file by the index that a `.file` directive declares.
    let named = |l: &str| {
        let (index, name) = l.trim().strip_prefix(".file")?.trim().split_once('"')?;
        (index.trim() == file).then(|| name.split('"').next().unwrap_or(name).to_string())
    };
    Some(format!("{}:{line}", ptx.lines().find_map(named)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "// made by hand\n.version 8.6\n.target sm_90a, debug\n.address_size 64\n\
        .file 1 \"src/axpy.rs\"\n.visible .entry axpy(\n)\n{\n.loc 1 42 7\nfoo.bar %r1;\n}\n.entry second () { ret; }\n";

    #[test]
    fn headers_and_entries() {
        let header = Header::parse(PTX);
        assert_eq!(header.describe(), ".version 8.6, .target sm_90a");
        assert_eq!(Header::parse("ret;").describe(), "no .version, no .target");
        assert_eq!(entries(PTX), ["axpy", "second"]);
    }

    #[test]
    fn parameters_are_counted() {
        let list = ".entry e (.param .u64 a, // .param .u32 gone\n .param .u32 b) { ld.param.u32 %r1, [b]; }";
        let counts = [
            (PTX, "axpy", Some(0)),
            (PTX, "second", Some(0)),
            (PTX, "third", None),
            (list, "e", Some(2)),
        ];
        for (text, kernel, count) in counts {
            assert_eq!(param_count(text, kernel), count, "{kernel}");
        }
    }

    #[test]
    fn parameters_are_understood() {
        let list = ".entry e(\n .param .u64 .ptr .global .align 16 p, .param .f32 a,\n\
            .param .align 8 .b8 point[24], .param .align 64 .b8 map[128]) { ret; }";
        let found: Vec<_> = parameters(list, "e").unwrap();
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                ".u64",
                ".f32",
                "24 bytes aligned to 8",
                "128 bytes aligned to 64"
            ]
        );
        assert_eq!((found[0].bytes, found[0].align), (8, 8));
        assert_eq!(parameters(".entry e(.param .texref t) { ret; }", "e"), None);
    }

    #[test]
    fn instructions_are_found_in_their_kernel_alone() {
        let text = ".entry a()\n{ // griddepcontrol.wait\nret;\n}\n.entry b()\n{\n@p1 griddepcontrol.wait;\nret;\n}\n";
        let waits = |kernel| has_instruction(text, kernel, "griddepcontrol.wait");
        assert_eq!([waits("a"), waits("b"), waits("c")], [false, true, false]);
    }

    #[test]
    fn the_line_of_a_log_is_quoted_with_its_source() {
        let log = "ptxas application ptx input, line 10; error   : Not a name of any known instruction: 'foo'";
        let line = line_named_by(log, PTX).unwrap();
        assert_eq!((line.number, line.text.as_str()), (10, "foo.bar %r1;"));
        assert_eq!(line.source.as_deref(), Some("src/axpy.rs:42"));
        assert_eq!(line_named_by("no place", PTX), None);
        assert_eq!(line_named_by("line 999; beyond", PTX), None);
    }

    #[test]
    fn targets_run_where_the_manual_says() {
        for (target, device, runs) in [
            ("sm_75", (9, 0), true),
            ("sm_90", (8, 9), false),
            ("sm_90a", (9, 0), true),
            ("sm_90a", (10, 0), false),
            ("sm_100f", (10, 3), true),
            ("sm_100f", (12, 0), false),
            ("sm_120", (12, 1), true),
            ("texmode_unified", (9, 0), true),
        ] {
            assert_eq!(runs_on(target, device), runs, "{target} on {device:?}");
        }
    }

    #[test]
    fn versions_need_the_driver_that_knows_them() {
        for (ptx, cuda) in [
            ((6, 3), None),
            ((7, 8), Some((11, 8))),
            ((8, 5), Some((12, 5))),
            ((8, 7), Some((12, 8))),
            ((9, 1), Some((13, 1))),
        ] {
            assert_eq!(cuda_of(ptx), cuda, "{ptx:?}");
        }
    }
}
