//! Forms that `ptx-gen` does not write, on a GPU and on the emulator: a small kernel applies each to random and corner
//! operands.

mod operands;
mod table;

use std::fmt::Write as _;

use operands::{Operands, random_elements};
use table::{Form, Product, Whole};
use warpwright_driver::{
    Access, Buffer, Context, Geometry, HostArg, Launch, Module, Parameter, Queue, Stream,
};

type Failure = Box<dyn std::error::Error>;

/// How exact a result is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Exact {
    /// All bits, but those of what is no number.
    Bits,
    /// As near as this, relative to the result.
    Relative(f64),
}

/// Threads that apply a form, each to its own operands.
const THREADS: usize = 391 * 128;
/// Words of 64 bits that hold the operands of a thread.
const OPERANDS: usize = 4;
/// Warps that compute a product.
const WARPS: usize = 256;

/// What came of one form.
struct Outcome {
    name: String,
    operands: usize,
    differing: usize,
    /// Results that are no number on both, with different bits.
    nans: usize,
    first: String,
}

/// Runs all forms on both and prints those that differ, last a count; gives the number of those that differ.
pub(crate) fn compare(real: &Context, emulated: &Context) -> Result<usize, Failure> {
    let mut outcomes = vec![];
    for form in table::forms() {
        let inputs = Operands::new(form.types);
        let run = |context: &Context| launch(context, &scalar(&form), &inputs.words, THREADS, (391, 128));
        let name = form.text.clone();
        outcomes.push(outcome(name, run(real), run(emulated), |f, w, i| judge(&form, &inputs, f, w, i)));
    }
    for product in table::products() {
        let inputs = matrices(&product);
        let stored = 32 * WARPS * product.registers[0];
        let run =
            |context: &Context| launch(context, &fragments(&product), &inputs, stored, (WARPS as u32, 32));
        outcomes.push(outcome(product.text.clone(), run(real), run(emulated), |f, w, i| {
            bits(product.types[0], f, w, i)
        }));
    }
    for whole in table::wholes() {
        let (text, inputs, stored) = whole_matrices(&whole);
        let run = |context: &Context| launch(context, &text, &inputs, stored, (WARPS as u32, 32));
        let name =
            format!("wmma.{}.{}.{} rows {:?}", whole.shape, whole.types[0], whole.types[1], whole.by_rows);
        let packed = if whole.types[0] == "f16" { "f16x2" } else { whole.types[0] };
        outcomes.push(outcome(name, run(real), run(emulated), |f, w, i| bits(packed, f, w, i)));
    }
    Ok(report(&outcomes))
}

fn report(outcomes: &[Outcome]) -> usize {
    let odd: Vec<&Outcome> = outcomes.iter().filter(|o| o.differing + o.nans > 0).collect();
    if !odd.is_empty() {
        println!("form | operands | differing | NaN bits | first difference");
    }
    for o in &odd {
        println!("{} | {} | {} | {} | {}", o.name, o.operands, o.differing, o.nans, o.first);
    }
    let differing = outcomes.iter().filter(|o| o.differing > 0).count();
    println!("{differing} of {} forms differ", outcomes.len());
    differing
}

/// How one result compares.
enum Verdict {
    Same,
    NanBits,
    Differs(String),
}

fn outcome(
    name: String,
    found: Result<Vec<u64>, Failure>,
    wanted: Result<Vec<u64>, Failure>,
    judge: impl Fn(u64, u64, usize) -> Verdict,
) -> Outcome {
    let short = |what: &str, e: &Failure| {
        let text = e.to_string().replace('\n', " ");
        format!("{what}: {}", text.chars().take(160).collect::<String>())
    };
    let (found, wanted) = match (found, wanted) {
        (Ok(found), Ok(wanted)) => (found, wanted),
        (Err(e), _) => {
            return Outcome { name, operands: 0, differing: 1, nans: 0, first: short("on the GPU", &e) };
        }
        (_, Err(e)) => {
            return Outcome { name, operands: 0, differing: 1, nans: 0, first: short("on the emulator", &e) };
        }
    };
    let mut o = Outcome { name, operands: found.len(), differing: 0, nans: 0, first: String::new() };
    for (i, (f, w)) in found.iter().zip(&wanted).enumerate() {
        match judge(*f, *w, i) {
            Verdict::Same => {}
            Verdict::NanBits => {
                o.nans += 1;
                if o.first.is_empty() {
                    o.first = format!("NaN is {f:#x}, emulated {w:#x}");
                }
            }
            Verdict::Differs(what) => {
                if o.differing == 0 {
                    o.first = what;
                }
                o.differing += 1;
            }
        }
    }
    o
}

fn judge(form: &Form, inputs: &Operands, f: u64, w: u64, i: usize) -> Verdict {
    let ty = form.types.split(' ').next().unwrap_or("b64");
    match (bits(ty, f, w, i), form.exact) {
        (Verdict::Differs(_), Exact::Relative(bound)) => {
            let (x, y) = (f64::from_bits(f), f64::from_bits(w));
            if (x - y).abs() <= bound * y.abs() {
                Verdict::Same
            } else {
                Verdict::Differs(inputs.describe(i, f, w))
            }
        }
        (Verdict::Differs(_), Exact::Bits) => Verdict::Differs(inputs.describe(i, f, w)),
        (verdict, _) => verdict,
    }
}

/// Compares results of a type bit by bit; what is no number on both is the same.
fn bits(ty: &str, f: u64, w: u64, i: usize) -> Verdict {
    if f == w {
        return Verdict::Same;
    }
    let width = match ty {
        "f64" => 64,
        "f32" => 32,
        "f16" | "f16x2" | "bf16" | "bf16x2" => 16,
        _ => 0,
    };
    let nan = |v: u64| match ty {
        "f64" => f64::from_bits(v).is_nan(),
        "f32" => f32::from_bits(v as u32).is_nan(),
        "bf16" | "bf16x2" => v as u16 & 0x7fff > 0x7f80,
        _ => v as u16 & 0x7fff > 0x7c00,
    };
    let same = |at: u32| {
        let (f, w) = (f >> at & u64::MAX >> (64 - width), w >> at & u64::MAX >> (64 - width));
        f == w || nan(f) && nan(w)
    };
    match width > 0 && (0..64 / width).all(|p| same(width * p)) {
        true => Verdict::NanBits,
        false => Verdict::Differs(format!("result {i} is {f:#x}, emulated {w:#x}")),
    }
}

/// Runs kernel `k` of a module on words, and gives the words that it wrote.
fn launch(
    context: &Context,
    text: &str,
    inputs: &[u64],
    stored: usize,
    (blocks, threads): (u32, u32),
) -> Result<Vec<u64>, Failure> {
    let module = Module::load(context, text)?;
    let params =
        [Parameter::buffer::<u64>("in", Access::Read), Parameter::buffer::<u64>("out", Access::Write)];
    // SAFETY: the kernel reads its part of the first buffer and writes its part of the second one.
    let function = unsafe { module.function("k", &params) }?;
    let stream = Stream::new(context)?;
    let (source, target) = (Buffer::from_slice(context, inputs)?, Buffer::<u64>::zeroed(context, stored)?);
    let geometry = Geometry { grid: [blocks, 1, 1], block: threads, shared: 0 };
    let args = vec![HostArg::from(source.view()), HostArg::from(target.view())];
    Queue::push(&mut &stream, Launch::new(&function, geometry, args)?.into())?;
    Ok(stream.read(&target)?)
}

/// A kernel with its thread's number in `%t`.
fn kernel(declared: &str, body: &str) -> String {
    format!(
        ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n\
         .reg .b64 %in, %out, %at;\n.reg .b32 %t, %n;\n{declared}\n\
         ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nmov.u32 %t, %ctaid.x;\nmov.u32 %n, %ntid.x;\n\
         mul.lo.u32 %t, %t, %n;\nmov.u32 %n, %tid.x;\nadd.u32 %t, %t, %n;\n{body}\nret;\n}}\n"
    )
}

fn width(ty: &str) -> usize {
    match ty {
        "f64" | "b64" => 64,
        "f16" | "bf16" | "b16" => 16,
        "p" => 1,
        _ => 32,
    }
}

/// The kernel that applies a form once in each thread.
fn scalar(form: &Form) -> String {
    let (to, from) = form.types.split_once(" = ").unwrap_or((form.types, ""));
    let (mut declared, mut body) = (String::from(".reg .b64 %w<5>;\n.reg .pred %p, %q;\n"), String::new());
    body += "mad.wide.u32 %at, %t, 32, %in;\nld.global.v2.b64 {%w0, %w1}, [%at];\nld.global.v2.b64 {%w2, %w3}, [%at+16];\n";
    for (i, (ty, name)) in from.split(' ').zip(["a", "b", "c", "e"]).enumerate() {
        _ = match width(ty) {
            1 => writeln!(declared, ".reg .pred %{name};"),
            bits => writeln!(declared, ".reg .b{bits} %{name};"),
        };
        _ = match width(ty) {
            1 => writeln!(body, "and.b64 %w{i}, %w{i}, 1;\nsetp.ne.s64 %{name}, %w{i}, 0;"),
            64 => writeln!(body, "mov.b64 %{name}, %w{i};"),
            bits => writeln!(body, "cvt.u{bits}.u64 %{name}, %w{i};"),
        };
    }
    if to != "pq" {
        _ = writeln!(declared, ".reg .b{} %d;", width(to));
    }
    _ = writeln!(body, "{};", form.text);
    body += &match (to, width(to)) {
        ("pq", _) => "selp.b64 %w4, 1, 0, %p;\n@%q or.b64 %w4, %w4, 2;\n".to_string(),
        (_, 64) => "mov.b64 %w4, %d;\n".to_string(),
        (_, bits) => format!("cvt.u64.u{bits} %w4, %d;\n"),
    };
    body += "mad.wide.u32 %at, %t, 8, %out;\nst.global.b64 [%at], %w4;";
    kernel(&declared, &body)
}

/// The kernel of a product whose registers are loaded and stored by each lane.
fn fragments(p: &Product) -> String {
    let [rd, ra, rb, rc] = p.registers;
    let wide = width(p.types[0]) == 64;
    let bits = if wide { 64 } else { 32 };
    let count = ra + rb + rc;
    let declared = format!(".reg .b{bits} %r<{count}>, %d<{rd}>;\n.reg .b64 %w;");
    let mut body = format!("mad.wide.u32 %at, %t, {}, %in;\n", 8 * count);
    for r in 0..count {
        _ = writeln!(body, "ld.global.b64 %w, [%at+{}];", 8 * r);
        _ = if wide {
            writeln!(body, "mov.b64 %r{r}, %w;")
        } else {
            writeln!(body, "cvt.u32.u64 %r{r}, %w;")
        };
    }
    let list = |name: &str, from: usize, n: usize| {
        let all: Vec<String> = (from..from + n).map(|r| format!("%{name}{r}")).collect();
        format!("{{{}}}", all.join(", "))
    };
    let (d, a) = (list("d", 0, rd), list("r", 0, ra));
    let (b, c) = (list("r", ra, rb), list("r", ra + rb, rc));
    _ = writeln!(body, "{} {d}, {a}, {b}, {c};\nmad.wide.u32 %at, %t, {}, %out;", p.text, 8 * rd);
    for r in 0..rd {
        _ = if wide {
            writeln!(body, "mov.b64 %w, %d{r};")
        } else {
            writeln!(body, "cvt.u64.u32 %w, %d{r};")
        };
        _ = writeln!(body, "st.global.b64 [%at+{}], %w;", 8 * r);
    }
    kernel(&declared, &body)
}

/// The registers of all lanes of a product, each in a word.
fn matrices(p: &Product) -> Vec<u64> {
    let [_, ra, rb, rc] = p.registers;
    let mut words = vec![];
    for lane in 0..32 * WARPS {
        for (ty, count) in [(p.types[1], ra), (p.types[2], rb), (p.types[3], rc)] {
            words.extend(random_elements(ty, count, lane as u64));
        }
    }
    words
}

/// The kernel of `wmma` on matrices in memory, what it reads, and how many words it writes.
fn whole_matrices(w: &Whole) -> (String, Vec<u64>, usize) {
    let sizes: Vec<usize> = w.shape[1..].split(['n', 'k']).filter_map(|n| n.parse().ok()).collect();
    let (m, n, k) = (sizes[0], sizes[1], sizes[2]);
    let [sum, item] = w.types;
    let bytes = |ty: &str, count: usize| count * operands::bits(ty) / 8;
    let (ba, bb, bc) = (bytes(item, m * k), bytes(item, k * n), bytes(sum, m * n));
    let registers = |rows: usize, columns: usize, ty: &str| {
        (rows * columns / 32 * operands::bits(ty)).div_ceil(operands::bits(ty).max(32))
    };
    let factor = |rows: usize, columns: usize| if item == "f16" { 8 } else { registers(rows, columns, item) };
    let layout = |i: usize| if w.by_rows[i] { "row" } else { "col" };
    let stride = |i: usize, r: usize, c: usize| if w.by_rows[i] { c } else { r };
    let list = |name: &str, count: usize| {
        let all: Vec<String> = (0..count).map(|r| format!("%{name}{r}")).collect();
        format!("{{{}}}", all.join(", "))
    };
    let (ra, rb, rc) = (factor(m, k), factor(k, n), registers(m, n, sum));
    let width = operands::bits(item).max(32);
    let types = if item == "f16" { format!("{sum}.{sum}") } else { format!("{sum}.{item}.{item}.{sum}") };
    let declared =
        format!(".reg .b{width} %a<{ra}>, %b<{rb}>;\n.reg .b{} %c<{rc}>;", operands::bits(sum).max(32));
    let (a, b, c) = (list("a", ra), list("b", rb), list("c", rc));
    let (la, lb, lc, shape) = (layout(0), layout(1), layout(2), w.shape);
    let body = format!(
        "mov.u32 %n, %ctaid.x;\nmad.wide.u32 %at, %n, {all}, %in;\n\
         wmma.load.a.sync.aligned.{la}.{shape}.global.{item} {a}, [%at], {sa};\n\
         wmma.load.b.sync.aligned.{lb}.{shape}.global.{item} {b}, [%at+{ba}], {sb};\n\
         wmma.load.c.sync.aligned.{lc}.{shape}.global.{sum} {c}, [%at+{at_c}], {sc};\n\
         wmma.mma.sync.aligned.{la}.{lb}.{shape}.{types} {c}, {a}, {b}, {c};\n\
         mad.wide.u32 %at, %n, {bc}, %out;\n\
         wmma.store.d.sync.aligned.{lc}.{shape}.global.{sum} [%at], {c}, {sc};",
        all = ba + bb + bc,
        at_c = ba + bb,
        sa = stride(0, m, k),
        sb = stride(1, k, n),
        sc = stride(2, m, n),
    );
    let mut words = vec![];
    for warp in 0..WARPS as u64 {
        for (ty, bytes) in [(item, ba), (item, bb), (sum, bc)] {
            words.extend(operands::memory(ty, bytes, warp));
        }
    }
    (kernel(&declared, &body), words, WARPS * bc / 8)
}
