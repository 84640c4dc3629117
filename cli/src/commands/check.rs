//! `warpwright check`: every kernel against its CPU reference, to know whether a GPU and its driver work.

use std::io::{self, Write};

use comfy_table::{Table, presets};
use indicatif::ProgressIterator;
use ptx_gen::{CpuArg, Elem, Param};
use warpwright_driver::{AnyFunction, Buffer, Context, Error, HostArg, Queue, Stream, load_any};
use warpwright_kernels::{ALL, Case, Variant, compare};

use crate::device::{self, Choice};
use crate::failure::{Failure, sentence};
use crate::interrupt;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// auto, cuda:N or emu (the emulator)
    #[arg(long, value_name = "DEVICE", default_value_t = Choice::Auto)]
    device: Choice,
}

/// Which numbers the cases are filled with.
const SEED: u64 = 1;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    interrupt::install()?;
    let context = device::open(args.device)?;
    let mut rows = Vec::new();
    let end = ALL.iter().progress().try_for_each(|kernel| check_kernel(&context, *kernel, &mut rows));
    let mut out = io::stdout().lock();
    writeln!(out, "{}", table(&rows).trim_fmt())?;
    end?;
    let failed = rows.iter().filter(|row| !row.passed()).count();
    writeln!(out, "{}: {} of {} cases failed", context.device(), failed, rows.len())?;
    if failed > 0 { Err(Failure::Shown) } else { Ok(()) }
}

/// A case and what came of it.
struct Row {
    kernel: String,
    case: Case,
    error: f64,
    worst: Option<(String, usize, f64, f64)>,
}

impl Row {
    fn passed(&self) -> bool {
        self.error <= self.case.bound
    }
}

/// Runs all cases of a kernel. An error ends the check: after a fault the device is lost.
fn check_kernel(context: &Context, kernel: &dyn Variant, rows: &mut Vec<Row>) -> Result<(), Failure> {
    let name = kernel.name();
    let fault = |error: Error| Failure::Runtime(format!("{name}: {}", sentence(&error)));
    let function = load_any(context, kernel).map_err(fault)?;
    for case in kernel.cases(SEED) {
        interrupt::check()?;
        let found = on_device(context, &function, &kernel.params(), &case.args).map_err(fault)?;
        let mut wanted = case.args.clone();
        kernel.reference_on(&mut wanted).map_err(|error| Failure::Runtime(error.to_string()))?;
        let comparison = compare(&kernel.params(), &found, &wanted);
        rows.push(Row { kernel: name.clone(), case, error: comparison.error, worst: comparison.worst });
    }
    Ok(())
}

/// The arguments after the kernel ran on them.
fn on_device(
    context: &Context,
    function: &AnyFunction,
    params: &[Param],
    args: &[CpuArg],
) -> Result<Vec<CpuArg>, Error> {
    let stream = Stream::new(context)?;
    let uploaded = params.iter().zip(args).map(|(param, arg)| upload(context, param, arg));
    let (host, fetch): (Vec<_>, Vec<_>) = uploaded.collect::<Result<Vec<_>, Error>>()?.into_iter().unzip();
    (&stream).launch_any(function, &host)?;
    stream.synchronize()?;
    fetch.into_iter().map(|fetch| fetch()).collect()
}

/// Brings an argument back from the device.
type Fetch = Box<dyn Fn() -> Result<CpuArg, Error>>;

fn upload(context: &Context, param: &Param, arg: &CpuArg) -> Result<(HostArg, Fetch), Error> {
    match arg {
        CpuArg::U8(v) => buffer(context, param, v, CpuArg::U8),
        CpuArg::S8(v) => buffer(context, param, v, CpuArg::S8),
        CpuArg::U16(v) => buffer(context, param, v, CpuArg::U16),
        CpuArg::U32(v) => buffer(context, param, v, CpuArg::U32),
        CpuArg::S32(v) => buffer(context, param, v, CpuArg::S32),
        CpuArg::U64(v) => buffer(context, param, v, CpuArg::U64),
        CpuArg::F32(v) => buffer(context, param, v, CpuArg::F32),
        CpuArg::F16(v) => buffer(context, param, v, CpuArg::F16),
        CpuArg::Bf16(v) => buffer(context, param, v, CpuArg::Bf16),
        &CpuArg::Scalar(bits) => scalar(param, bits),
    }
}

fn buffer<T: Elem>(
    context: &Context,
    param: &Param,
    values: &[T],
    wrap: fn(Vec<T>) -> CpuArg,
) -> Result<(HostArg, Fetch), Error> {
    let buffer = Buffer::from_slice(context, values)?.labelled(param.name);
    let view = buffer.view();
    Ok((HostArg::from(&view), Box::new(move || Ok(wrap(view.to_vec()?)))))
}

fn scalar(param: &Param, bits: u64) -> Result<(HostArg, Fetch), Error> {
    Ok((HostArg::Scalar(param.kind.kind(), bits), Box::new(move || Ok(CpuArg::Scalar(bits)))))
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(["kernel", "shapes", "error", "bound", "result"]);
    table.add_rows(rows.iter().map(|row| {
        let (error, bound) = (format!("{:.1e}", row.error), format!("{:.1e}", row.case.bound));
        [row.kernel.clone(), row.case.label.clone(), error, bound, result(row)]
    }));
    table
}

fn result(row: &Row) -> String {
    match &row.worst {
        Some((name, index, found, wanted)) if !row.passed() => {
            format!("FAIL: {name}[{index}] is {found}, not {wanted}")
        }
        _ => "pass".to_owned(),
    }
}
