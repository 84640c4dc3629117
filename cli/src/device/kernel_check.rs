//! Comparison of a kernel on a device with its CPU reference.

use std::fmt;

use ptx_gen::{CpuArg, Elem, Param, ParamKind};
use warpwright_driver::launch::{AnyFunction, HostArg};
use warpwright_driver::memory::{Buffer, Element};
use warpwright_driver::stream::{Queue, Stream};
use warpwright_driver::{Context, Error};
use warpwright_engine::{listed_map, load_listed};
use warpwright_kernels::{ALL, Case, Comparison, Variant, compare};

use crate::failure::{Failure, sentence};

/// The seed of the random inputs.
const SEED: u64 = 1;

/// Checks a device with one small kernel that every device can run.
///
/// # Errors
/// Returns the problem as a text if the kernel fails or its result is wrong.
pub(crate) fn smallest(context: &Context) -> Result<(), String> {
    let kernel = ALL
        .iter()
        .find(|kernel| kernel.name() == SMALLEST)
        .expect("the list contains the smallest kernel");
    let mut results = vec![];
    let end = check(context, *kernel, &mut results);
    end.map_err(|failure| failure.sentence().unwrap_or_default().to_owned())?;
    match results.iter().find(|result| !result.passed()) {
        Some(wrong) => Err(wrong.to_string()),
        None => Ok(()),
    }
}

/// The name of a kernel that every device can run.
const SMALLEST: &str = "swiglu_256";

/// The result of a case of a kernel.
pub(crate) struct CaseResult {
    pub(crate) kernel: String,
    /// The shapes of the case.
    pub(crate) label: String,
    /// The largest error that is accepted.
    pub(crate) bound: f64,
    pub(crate) found: Comparison,
}

impl CaseResult {
    /// Returns true if the error is within its bound. NaN never is.
    pub(crate) fn passed(&self) -> bool {
        self.found.error <= self.bound
    }
}

impl fmt::Display for CaseResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} on {}: error {:.1e}, bound {:.1e}",
            self.kernel, self.label, self.found.error, self.bound
        )?;
        let Some((name, index, found, wanted)) = &self.found.worst else {
            return Ok(());
        };
        write!(f, "; {name}[{index}] is {found}, not {wanted}")
    }
}

/// Runs all cases of a kernel and adds their results to `results`.
///
/// # Errors
/// Returns an error if the device fails. The check must end then, because a context is unusable
/// after a fault.
pub(crate) fn check(
    context: &Context,
    kernel: &dyn Variant,
    results: &mut Vec<CaseResult>,
) -> Result<(), Failure> {
    let name = kernel.name();
    let params = kernel.params();
    let function = load_listed(context, &name).map_err(|error| fault(&name, "loading", &error))?;
    let function = function.expect("the caller takes kernels from the list");
    for Case { label, args, bound } in kernel.cases(SEED) {
        let found = on_device(context, kernel, &function, &args)
            .map_err(|error| fault(&name, &label, &error))?;
        let mut wanted = args;
        kernel
            .reference_on(&mut wanted)
            .map_err(|error| fault(&name, &label, &error))?;
        results.push(CaseResult {
            kernel: name.clone(),
            label,
            bound,
            found: compare(&params, &found, &wanted),
        });
    }

    Ok(())
}

/// Returns the failure for an error of a kernel. `doing` is the step or the case.
fn fault(kernel: &str, doing: &str, error: &dyn std::error::Error) -> Failure {
    Failure::Runtime(format!("{kernel} ({doing}): {}", sentence(error)))
}

/// Runs the kernel on the device and returns its arguments afterwards.
fn on_device(
    context: &Context,
    kernel: &dyn Variant,
    function: &AnyFunction,
    args: &[CpuArg],
) -> Result<Vec<CpuArg>, Error> {
    let stream = Stream::new(context)?;
    let params = kernel.params();
    let uploaded = params
        .iter()
        .zip(args)
        .map(|(param, arg)| match (param.kind, arg) {
            // Tensor maps exist only for matrices of 16-bit floats. All other arguments are buffers
            // and scalars.
            (ParamKind::TensorMap(..), CpuArg::Bf16(values)) => {
                tensor(context, kernel, (param, args), values, CpuArg::Bf16)
            }
            (ParamKind::TensorMap(..), CpuArg::F16(values)) => {
                tensor(context, kernel, (param, args), values, CpuArg::F16)
            }
            _ => upload(context, param, arg),
        });
    let (host, fetch): (Vec<_>, Vec<_>) = uploaded
        .collect::<Result<Vec<_>, Error>>()?
        .into_iter()
        .unzip();
    (&stream).launch_any(function, &host)?;
    stream.synchronize()?;
    fetch.into_iter().map(|fetch| fetch()).collect()
}

/// A function that copies an argument back from the device.
type Fetch = Box<dyn Fn() -> Result<CpuArg, Error>>;

/// Copies an argument to the device.
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

/// Copies values to a buffer on the device.
fn buffer<T: Elem + Element>(
    context: &Context,
    param: &Param,
    values: &[T],
    wrap: fn(Vec<T>) -> CpuArg,
) -> Result<(HostArg, Fetch), Error> {
    let buffer = Buffer::from_slice(context, values)?.labelled(param.name);
    let view = buffer.view();
    Ok((
        HostArg::from(&view),
        Box::new(move || Ok(wrap(view.to_vec()?))),
    ))
}

/// Copies a matrix to the device and makes a tensor map of it.
fn tensor<T: Elem + Element>(
    context: &Context,
    kernel: &dyn Variant,
    (param, args): (&Param, &[CpuArg]),
    values: &[T],
    wrap: fn(Vec<T>) -> CpuArg,
) -> Result<(HostArg, Fetch), Error> {
    let matrix = Buffer::from_slice(context, values)?
        .labelled(param.name)
        .view();
    let map = listed_map(kernel, param.name, args, &matrix)?;
    // If the kernel describes no map for this argument, the launch reports the wrong type of the
    // argument.
    let arg = map.map_or_else(|| HostArg::from(&matrix), |map| HostArg::from(&map));
    Ok((arg, Box::new(move || Ok(wrap(matrix.to_vec()?)))))
}

/// Passes a scalar as it is.
fn scalar(param: &Param, bits: u64) -> Result<(HostArg, Fetch), Error> {
    Ok((
        HostArg::Scalar(param.kind.elem(), bits),
        Box::new(move || Ok(CpuArg::Scalar(bits))),
    ))
}
