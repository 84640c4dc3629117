//! The forms: an instruction's text, the types of its operands, and how exact its result is.

use super::Exact;

/// An instruction on registers: `%d` is its result, or `%p` and `%q` are, `%a` to `%e` are its sources.
pub(crate) struct Form {
    pub(crate) text: String,
    /// `f64 = f64 f64`
    pub(crate) types: &'static str,
    pub(crate) exact: Exact,
}

/// A product: its instruction, registers of d, a, b and c, and their types.
pub(crate) struct Product {
    pub(crate) text: String,
    pub(crate) types: [&'static str; 4],
    pub(crate) registers: [usize; 4],
}

/// A product that loads and stores its matrices itself: the names of `wmma`.
pub(crate) struct Whole {
    pub(crate) shape: &'static str,
    /// The types of sums and of factors.
    pub(crate) types: [&'static str; 2],
    /// Whether a, b and the sums lie in memory by rows.
    pub(crate) by_rows: [bool; 3],
}

const DIRECTED: [&str; 3] = ["rz", "rm", "rp"];

/// Forms of all lists, each name with each of its middles.
fn each(
    all: &mut Vec<Form>,
    types: &'static str,
    operands: &str,
    names: &[&str],
    middles: &[&str],
    end: &str,
) {
    for name in names {
        for middle in middles {
            let text = format!("{name}{middle}{end} {operands}");
            all.push(Form { text, types, exact: Exact::Bits });
        }
    }
}

pub(crate) fn forms() -> Vec<Form> {
    let mut all = vec![];
    doubles(&mut all);
    singles(&mut all);
    halves(&mut all);
    comparisons(&mut all);
    conversions(&mut all);
    integers(&mut all);
    video(&mut all);
    all
}

fn doubles(all: &mut Vec<Form>) {
    for round in DIRECTED {
        let end = format!(".{round}.f64");
        each(all, "f64 = f64 f64", "%d, %a, %b", &["add", "sub", "mul", "div"], &[""], &end);
        each(all, "f64 = f64 f64 f64", "%d, %a, %b, %c", &["fma"], &[""], &end);
        each(all, "f64 = f64", "%d, %a", &["rcp", "sqrt"], &[""], &end);
    }
    for name in ["rcp", "rsqrt"] {
        let text = format!("{name}.approx.ftz.f64 %d, %a");
        // The last of its 20 bits is not documented.
        all.push(Form { text, types: "f64 = f64", exact: Exact::Relative(2f64.powi(-19)) });
    }
}

fn singles(all: &mut Vec<Form>) {
    const FLAGS: [&str; 4] = ["", ".ftz", ".sat", ".ftz.sat"];
    for round in ["rn", "rz", "rm", "rp"] {
        for flags in FLAGS {
            let end = format!(".{round}{flags}.f32");
            each(all, "f32 = f32 f32", "%d, %a, %b", &["add", "sub", "mul"], &[""], &end);
            each(all, "f32 = f32 f32 f32", "%d, %a, %b, %c", &["fma"], &[""], &end);
        }
        let end = format!(".{round}.ftz.f32");
        each(all, "f32 = f32 f32", "%d, %a, %b", &["div"], &[""], &end);
        each(all, "f32 = f32", "%d, %a", &["rcp", "sqrt"], &[""], &end);
    }
    let least = ["", ".ftz", ".NaN", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs", ".ftz.NaN.xorsign.abs"];
    each(all, "f32 = f32 f32", "%d, %a, %b", &["min", "max"], &least, ".f32");
}

fn halves(all: &mut Vec<Form>) {
    const FLAGS: [&str; 4] = ["", ".ftz", ".sat", ".ftz.sat"];
    const LEAST: [&str; 8] = [
        "",
        ".ftz",
        ".NaN",
        ".ftz.NaN",
        ".xorsign.abs",
        ".NaN.xorsign.abs",
        ".ftz.xorsign.abs",
        ".ftz.NaN.xorsign.abs",
    ];
    let least = |ftz: bool| LEAST.into_iter().filter(|m| ftz || !m.contains("ftz")).collect::<Vec<_>>();
    let types = [
        (".f16", "f16 = f16", "f16 = f16 f16", "f16 = f16 f16 f16", true),
        (".f16x2", "f16x2 = f16x2", "f16x2 = f16x2 f16x2", "f16x2 = f16x2 f16x2 f16x2", true),
        (".bf16", "bf16 = bf16", "bf16 = bf16 bf16", "bf16 = bf16 bf16 bf16", false),
        (".bf16x2", "bf16x2 = bf16x2", "bf16x2 = bf16x2 bf16x2", "bf16x2 = bf16x2 bf16x2 bf16x2", false),
    ];
    for (end, one, two, three, f16) in types {
        let flags = if f16 { &FLAGS[..] } else { &FLAGS[..1] };
        each(all, two, "%d, %a, %b", &["add", "sub", "mul"], flags, end);
        each(all, three, "%d, %a, %b, %c", &["fma.rn"], flags, end);
        each(all, three, "%d, %a, %b, %c", &["fma.rn"], &[".relu", ".ftz.relu"][..1 + usize::from(f16)], end);
        each(all, one, "%d, %a", &["neg", "abs"], &["", ".ftz"][..1 + usize::from(f16)], end);
        each(all, two, "%d, %a, %b", &["min", "max"], &least(f16), end);
    }
}

const COMPARISONS: [&str; 14] = [
    ".eq", ".ne", ".lt", ".le", ".gt", ".ge", ".equ", ".neu", ".ltu", ".leu", ".gtu", ".geu", ".num", ".nan",
];

fn comparisons(all: &mut Vec<Form>) {
    each(all, "pq = f16x2 f16x2", "%p|%q, %a, %b", &["setp"], &COMPARISONS, ".f16x2");
    each(all, "pq = bf16x2 bf16x2", "%p|%q, %a, %b", &["setp"], &[".lt", ".neu", ".nan"], ".bf16x2");
    each(
        all,
        "pq = f16x2 f16x2 p",
        "%p|%q, %a, %b, %c",
        &["setp.lt"],
        &[".and", ".or", ".xor"],
        ".ftz.f16x2",
    );
    let alone = "setp.ne.s32 %q, %t, %t;\nsetp.gt";
    each(all, "pq = f16 f16 p", "%p, %a, %b, !%c", &[alone], &[".and", ".or", ".xor"], ".f16");
    each(all, "f16 = f16 f16", "%d, %a, %b", &["set"], &COMPARISONS, ".f16.f16");
    each(all, "f16x2 = f16x2 f16x2", "%d, %a, %b", &["set"], &COMPARISONS, ".f16x2.f16x2");
    each(all, "b32 = f16x2 f16x2", "%d, %a, %b", &["set"], &[".lt", ".geu.ftz", ".num"], ".u32.f16x2");
    each(all, "b16 = f16 f16", "%d, %a, %b", &["set"], &[".le", ".nan"], ".u16.f16");
    each(all, "b16 = bf16 bf16", "%d, %a, %b", &["set"], &[".le", ".gtu"], ".s16.bf16");
    each(all, "bf16x2 = bf16x2 bf16x2", "%d, %a, %b", &["set"], &[".le", ".gtu"], ".bf16x2.bf16x2");
    each(all, "f16 = f32 f32 p", "%d, %a, %b, %c", &["set.lt"], &[".and", ".xor"], ".ftz.f16.f32");
}

fn conversions(all: &mut Vec<Form>) {
    let small = [".e4m3x2", ".e5m2x2"];
    for relu in ["", ".relu"] {
        let satfinite = format!("cvt.rn.satfinite{relu}");
        each(all, "b16 = f32 f32", "%d, %a, %b", &[&satfinite], &small, ".f32");
        each(all, "b16 = f16x2", "%d, %a", &[&satfinite], &small, ".f16x2");
        each(all, "f16x2 = b16", "%d, %a", &[&format!("cvt.rn{relu}.f16x2")], &small, "");
        for round in ["rn", "rz"] {
            let name = format!("cvt.{round}{relu}");
            each(all, "f16x2 = f32 f32", "%d, %a, %b", &[&name], &["", ".satfinite"], ".f16x2.f32");
            each(all, "bf16x2 = f32 f32", "%d, %a, %b", &[&name], &["", ".satfinite"], ".bf16x2.f32");
            each(all, "f32 = f32", "%d, %a", &[&name], &[""], ".tf32.f32");
            each(all, "f16 = f32", "%d, %a", &[&name], &[".satfinite"], ".f16.f32");
        }
    }
    each(all, "f32 = f32", "%d, %a", &["cvt.rna"], &["", ".satfinite"], ".tf32.f32");
    for round in [".rn", ".rz", ".rm", ".rp"] {
        let name = format!("cvt{round}");
        each(all, "bf16 = f64", "%d, %a", &[&name], &[""], ".bf16.f64");
        each(all, "bf16 = f16", "%d, %a", &[&name], &[""], ".bf16.f16");
        each(all, "f16 = bf16", "%d, %a", &[&name], &[""], ".f16.bf16");
        each(all, "f16 = f64", "%d, %a", &[&name], &[""], ".f16.f64");
        each(all, "f32 = f64", "%d, %a", &[&name], &["", ".ftz", ".sat", ".ftz.sat"], ".f32.f64");
        each(all, "f64 = b64", "%d, %a", &[&name], &[""], ".f64.s64");
        each(all, "f32 = b64", "%d, %a", &[&name], &[""], ".f32.u64");
        each(all, "bf16 = b32", "%d, %a", &[&name], &[""], ".bf16.s32");
        let whole = format!("cvt{round}i");
        each(all, "b64 = f64", "%d, %a", &[&whole], &[""], ".s64.f64");
        each(all, "b64 = f32", "%d, %a", &[&whole], &["", ".ftz"], ".u64.f32");
        each(all, "b32 = f16", "%d, %a", &[&whole], &[""], ".s32.f16");
        each(all, "b16 = bf16", "%d, %a", &[&whole], &[""], ".u16.bf16");
        each(all, "f64 = f64", "%d, %a", &[&whole], &["", ".sat"], ".f64.f64");
        each(all, "f16 = f16", "%d, %a", &[&whole], &[""], ".f16.f16");
    }
    each(all, "b32 = b32 b32", "%d, %a, %b", &["cvt.pack.sat"], &[".u16", ".s16"], ".s32");
    let packed = [".u8", ".s8", ".u4", ".s4", ".u2", ".s2"];
    each(all, "b32 = b32 b32 b32", "%d, %a, %b, %c", &["cvt.pack.sat"], &packed, ".s32.b32");
}

fn integers(all: &mut Vec<Form>) {
    each(all, "b32 = b32 b32 b32", "%d, %a, %b, %c", &["mad24.hi"], &[".u32", ".s32", ".sat.s32"], "");
    each(all, "b32 = b32 b5 b32", "%d, %a, %b, %c", &["fns.b32"], &[""], "");
    let extended = [".clamp.u32", ".clamp.s32", ".wrap.u32", ".wrap.s32"];
    each(all, "b32 = b32 b32", "%d, %a, %b", &["szext"], &extended, "");
    let mixed = [".u32.u32", ".u32.s32", ".s32.u32", ".s32.s32"];
    each(all, "b32 = b32 b32 b32", "%d, %a, %b, %c", &["dp2a.lo", "dp2a.hi", "dp4a"], &mixed, "");
    each(all, "b32 = b32 b32", "%d, %a, %b", &["add", "min", "max"], &[".u16x2", ".s16x2"], "");
    each(all, "b32 = b32 b32", "%d, %a, %b", &["min", "max"], &[".relu.s16x2", ".relu.s32"], "");
}

fn video(all: &mut Vec<Form>) {
    let scalar = ["vadd", "vsub", "vabsdiff", "vmin", "vmax"];
    let types = [".u32.u32.u32", ".s32.s32.s32", ".s32.u32.s32", ".u32.s32.u32"];
    for end in ["", ".sat"] {
        each(all, "b32 = b32 b32", "%d, %a, %b", &scalar, &types, end);
    }
    each(all, "b32 = b32 b32 b32", "%d, %a.h1, %b.b2, %c", &scalar, &types, ".sat.add");
    each(all, "b32 = b32 b32 b32", "%d.b1, %a.h0, %b.h1, %c", &scalar, &types[..2], "");
    each(all, "b32 = b32 b32", "%d, %a, %b", &["vshl", "vshr"], &[".u32.u32", ".s32.s32"], ".u32.clamp");
    each(all, "b32 = b32 b32 b32", "%d, %a, %b, %c", &["vshl", "vshr"], &[".s32.s32"], ".u32.sat.wrap.max");
    each(all, "b32 = b32 b32 b32", "%d, %a, %b, %c", &["vmad"], &types, ".shr7");
    each(all, "b32 = b32 b32 b32", "%d, %a.h0, %b.h1, %c", &["vmad"], &types[..3], ".po.sat.shr15");
    each(all, "b32 = b32 b32", "%d, %a, %b", &["vset.u32.s32", "vset.s32.s32"], &[".lt", ".ne", ".ge"], "");
    for count in ["2", "4"] {
        let names: Vec<String> = ["vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"]
            .iter()
            .map(|n| format!("{n}{count}"))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for end in ["", ".sat", ".add"] {
            each(all, "b32 = b32 b32 b32", "%d, %a, %b, %c", &names, &types, end);
        }
        let set = format!("vset{count}.s32.u32");
        each(all, "b32 = b32 b32 b32", "%d, %a, %b, %c", &[&set], &[".lt", ".ge"], ".add");
    }
    each(all, "b32 = b32 b32 b32", "%d.b20, %a.b7310, %b.b0246, %c", &["vmax4"], &types, "");
    each(all, "b32 = b32 b32 b32", "%d.h1, %a.h03, %b.h21, %c", &["vadd2"], &types, ".sat");
}

pub(crate) fn products() -> Vec<Product> {
    let plain: [(&str, [&'static str; 3], [usize; 3]); 29] = [
        ("m16n8k8", ["f16x2", "f16x2", "f16x2"], [2, 2, 1]),
        ("m16n8k16", ["f16x2", "f16x2", "f16x2"], [2, 4, 2]),
        ("m16n8k8", ["f32", "f16x2", "f16x2"], [4, 2, 1]),
        ("m16n8k16", ["f32", "f16x2", "f16x2"], [4, 4, 2]),
        ("m16n8k8", ["f32", "bf16x2", "bf16x2"], [4, 2, 1]),
        ("m16n8k16", ["f32", "bf16x2", "bf16x2"], [4, 4, 2]),
        ("m16n8k4", ["f32", "tf32", "tf32"], [4, 2, 1]),
        ("m16n8k8", ["f32", "tf32", "tf32"], [4, 4, 2]),
        ("m8n8k4", ["f64", "f64", "f64"], [2, 1, 1]),
        ("m16n8k4", ["f64", "f64", "f64"], [4, 2, 1]),
        ("m16n8k8", ["f64", "f64", "f64"], [4, 4, 2]),
        ("m16n8k16", ["f64", "f64", "f64"], [4, 8, 4]),
        ("m16n8k16", ["f32", "e4m3", "e4m3"], [4, 2, 1]),
        ("m16n8k32", ["f32", "e4m3", "e5m2"], [4, 4, 2]),
        ("m16n8k32", ["f32", "e5m2", "e5m2"], [4, 4, 2]),
        ("m16n8k32", ["f16x2", "e4m3", "e4m3"], [2, 4, 2]),
        ("m8n8k16", ["s32", "s8", "u8"], [2, 1, 1]),
        ("m16n8k16", ["s32", "u8", "s8"], [4, 2, 1]),
        ("m16n8k32", ["s32", "s8", "s8"], [4, 4, 2]),
        ("m8n8k32", ["s32", "s4", "s4"], [2, 1, 1]),
        ("m16n8k32", ["s32", "u4", "s4"], [4, 2, 1]),
        ("m16n8k64", ["s32", "s4", "u4"], [4, 4, 2]),
        ("m8n8k16.sat", ["s32", "s8", "s8"], [2, 1, 1]),
        ("m16n8k32.sat", ["s32", "u8", "u8"], [4, 4, 2]),
        ("m16n8k64.sat", ["s32", "s4", "s4"], [4, 4, 2]),
        ("m8n8k128", ["s32", "b1", "b1"], [2, 1, 1]),
        ("m16n8k128", ["s32", "b1", "b1"], [4, 2, 1]),
        ("m16n8k256", ["s32", "b1", "b1"], [4, 4, 2]),
        ("m16n8k256.and", ["s32", "b1", "b1"], [4, 4, 2]),
    ];
    plain
        .into_iter()
        .map(|(shape, [d, a, b], [rd, ra, rb])| product(shape, [d, a, b], [rd, ra, rb]))
        .collect()
}

fn product(shape: &str, [d, a, b]: [&'static str; 3], [rd, ra, rb]: [usize; 3]) -> Product {
    let (shape, flag) = shape.split_once('.').unwrap_or((shape, ""));
    let name = |ty: &str| ty.trim_end_matches("x2").to_string();
    let clamp = if flag == "sat" { ".satfinite" } else { "" };
    let op = match (a, flag) {
        ("b1", "and") => ".and.popc",
        ("b1", _) => ".xor.popc",
        _ => "",
    };
    let (sum, left, right) = (name(d), name(a), name(b));
    let text = format!("mma.sync.aligned.{shape}.row.col{clamp}.{sum}.{left}.{right}.{sum}{op}");
    Product { text, types: [d, a, b, d], registers: [rd, ra, rb, rd] }
}

pub(crate) fn wholes() -> Vec<Whole> {
    let mut all = vec![];
    let layouts = [[true, false, true], [false, true, false]];
    for shape in ["m16n16k16", "m32n8k16", "m8n32k16"] {
        for types in [["f16", "f16"], ["f32", "f16"], ["f32", "bf16"], ["s32", "s8"], ["s32", "u8"]] {
            all.extend(layouts.map(|by_rows| Whole { shape, types, by_rows }));
        }
    }
    all.extend(layouts.map(|by_rows| Whole { shape: "m16n16k8", types: ["f32", "tf32"], by_rows }));
    all.extend(layouts.map(|by_rows| Whole { shape: "m8n8k4", types: ["f64", "f64"], by_rows }));
    all
}
