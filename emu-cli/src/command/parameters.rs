//! The names of parameters on the command line.

use ptx_emu::{Kernel, Param};

/// Returns the number of a parameter, given its name or its number.
///
/// The name may lack the prefix that nvcc and Triton add to it (see [`short`]).
pub(crate) fn position(kernel: &Kernel, name: &str) -> Option<usize> {
    let by_name = |param: &Param| param.name == name || short(kernel, &param.name) == name;
    let found = kernel.params.iter().position(by_name);
    found.or_else(|| name.parse().ok().filter(|i| *i < kernel.params.len()))
}

/// Returns the name of a parameter without the name of its kernel.
///
/// For example, `_Z5saxpyPf_param_0` of kernel `_Z5saxpyPf` becomes `param_0`.
pub(crate) fn short(kernel: &Kernel, name: &str) -> String {
    let rest = name
        .strip_prefix(&kernel.name)
        .and_then(|rest| rest.strip_prefix('_'));
    rest.filter(|rest| rest.starts_with("param"))
        .unwrap_or(name)
        .to_owned()
}

/// Returns a parameter's number, name and type, for messages.
pub(crate) fn named(kernel: &Kernel, number: usize, param: &Param) -> String {
    format!(
        "parameter {number} `{}` ({})",
        short(kernel, &param.name),
        param.ty
    )
}
