//! Helpers: a machine that runs one kernel, and tables of single instructions.

use ptx_emu::{Fault, Launch, Memory, Module, Order, Schedule, Stats, Trace, run};

/// A module with one kernel `k(in, out)`: pointers in `%in` and `%out`, the thread's number in `%t`.
pub(crate) fn kernel(body: &str) -> String {
    let newer = ["e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2"]
        .iter()
        .any(|ty| body.contains(ty));
    let target = if newer { "sm_100a" } else { "sm_90" };
    format!(
        ".version 8.6\n.target {target}\n.address_size 64\n\
         .visible .entry k(.param .u64 in, .param .u64 out)\n{{\n\
         .reg .b64 %in, %out;\n.reg .b32 %t;\n\
         ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\n{body}\nret;\n}}\n"
    )
}

/// How a kernel runs.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) grid: u32,
    pub(crate) block: u32,
    pub(crate) shared: u32,
    pub(crate) order: Order,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) fuel: u64,
    pub(crate) trace: Trace,
}

pub(crate) const SETUP: Setup = Setup {
    grid: 1,
    block: 32,
    shared: 0,
    order: Order::InOrder,
    seed: 0,
    threads: 1,
    fuel: 1 << 20,
    trace: Trace::Off,
};

/// Runs kernel `k` of a module on `input` bytes and `room` bytes of output, which start uninitialised.
pub(crate) fn launch(
    text: &str,
    input: &[u8],
    room: u64,
    setup: Setup,
) -> Result<(Vec<u8>, Stats), Box<Fault>> {
    let module = Module::parse(text)
        .and_then(Module::complete)
        .unwrap_or_else(|e| panic!("{e}\n{text}"));
    let memory = Memory::new(1 << 24);
    let source = memory.alloc(input.len() as u64).expect("there is room");
    let target = memory.alloc(room).expect("there is room");
    memory.set_label(source, "in");
    memory.set_label(target, "out");
    memory.write(source, input).expect("it was just allocated");
    let params = [source.to_le_bytes(), target.to_le_bytes()].concat();
    let launch = Launch {
        kernel: module.kernel("k").expect("the kernel is called k"),
        grid: [setup.grid, 1, 1],
        block: [setup.block, 1, 1],
        dynamic_shared: setup.shared,
        params: &params,
    };
    let Setup {
        seed,
        order,
        threads,
        fuel,
        trace,
        ..
    } = setup;
    let stats = run(
        &memory,
        &launch,
        &Schedule {
            seed,
            order,
            threads,
            fuel,
        },
        trace,
    )?;
    let mut out = vec![0; room as usize];
    memory
        .read(target, &mut out)
        .expect("it was just allocated");
    Ok((out, stats))
}

/// The words that the body of a kernel leaves in the output.
pub(crate) fn words(body: &str, input: &[u32], room: usize, setup: Setup) -> Vec<u32> {
    let bytes: Vec<u8> = input.iter().flat_map(|w| w.to_le_bytes()).collect();
    let (out, _) = launch(&kernel(body), &bytes, room as u64 * 4, setup)
        .unwrap_or_else(|fault| panic!("{fault}"));
    out.as_chunks::<4>()
        .0
        .iter()
        .map(|w| u32::from_le_bytes(*w))
        .collect()
}

/// One instruction: widths of destination and sources (`32 = 32 32`), text, values of the sources, result.
pub(crate) type Row<'a> = (&'a str, &'a str, &'a [u64], u64);

/// Runs every row in every lane, with full and with partial warps, and lists the rows that are wrong.
pub(crate) fn check(rows: &[Row<'_>]) {
    let wrong: Vec<String> = rows.iter().filter_map(wrong).collect();
    assert!(
        wrong.is_empty(),
        "{} rows are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn wrong(row: &Row<'_>) -> Option<String> {
    let (widths, inst, inputs, wanted) = *row;
    let (to, from) = widths.split_once(" = ").expect("widths read `32 = 32 32`");
    let from: Vec<&str> = from.split_whitespace().collect();
    assert_eq!(from.len(), inputs.len(), "{inst}");
    let text = kernel(&body(to, &from, inst));
    let bytes: Vec<u8> = inputs.iter().flat_map(|x| x.to_le_bytes()).collect();
    for block in [32, 5] {
        let result = launch(
            &text,
            &bytes,
            u64::from(block) * 8,
            Setup { block, ..SETUP },
        );
        let (out, _) = match result {
            Ok(ok) => ok,
            Err(fault) => return Some(format!("{inst} on {inputs:x?}: {fault}")),
        };
        for lane in out.as_chunks::<8>().0 {
            let found = u64::from_le_bytes(*lane);
            if found != wanted {
                return Some(format!(
                    "{inst} on {inputs:x?} gives {found:#x}, not {wanted:#x}"
                ));
            }
        }
    }

    None
}

/// Loads `%a`, `%b`, ... of the given widths, executes the instruction, and stores `%d` as 64 bits.
fn body(to: &str, from: &[&str], inst: &str) -> String {
    let mut text = String::from(
        ".reg .b64 %at, %wide;\n.reg .b32 %word;\nmul.wide.u32 %at, %t, 8;\nadd.u64 %at, %out, %at;\n",
    );
    let declare = |name: char, width: &str| match width {
        "1" => format!(".reg .pred %{name};\n"),
        _ => format!(".reg .b{width} %{name};\n"),
    };
    text += &declare('d', to);
    for (i, width) in from.iter().enumerate() {
        let name = char::from(b"abcefg"[i]);
        text += &declare(name, width);
        text += &match *width {
            "1" => format!(
                "ld.global.b32 %word, [%in+{}];\nsetp.ne.b32 %{name}, %word, 0;\n",
                i * 8
            ),
            _ => format!("ld.global.b{width} %{name}, [%in+{}];\n", i * 8),
        };
    }

    text += &format!("{inst};\n");
    text += match to {
        "1" => "selp.u64 %wide, 1, 0, %d;\n",
        "16" => "cvt.u64.u16 %wide, %d;\n",
        "32" => "cvt.u64.u32 %wide, %d;\n",
        _ => "mov.b64 %wide, %d;\n",
    };
    text + "st.global.u64 [%at], %wide;\n"
}

/// The bits of a single.
pub(crate) const fn f(x: f32) -> u64 {
    x.to_bits() as u64
}

/// The bits of a double.
pub(crate) const fn g(x: f64) -> u64 {
    x.to_bits()
}

/// The bits of a negative 32-bit integer.
pub(crate) const fn s(x: i32) -> u64 {
    x as u32 as u64
}
