//! Notes about buffers whose elements have another type than the kernel accesses.
//!
//! A wrong type in `--arg` is not an error, because memory has no type. But random elements of one
//! type are rarely useful values of another, and the number of elements is a wrong number of bytes.

use ptx_emu::check::Check;
use ptx_emu::{FloatAccess, Kernel};

use super::parameters::{position, short};
use super::values::argument::{ArgumentValue, EmuArgument};

/// Returns a note for each buffer whose type differs from the type of the kernel's accesses.
pub(crate) fn notes(kernel: &Kernel, given: &[EmuArgument], check: &Check<'_>) -> Vec<String> {
    let buffers = given
        .iter()
        .filter(|argument| matches!(&argument.value, ArgumentValue::Buffer(_)));
    // The buffers of the check are in the order of the arguments.
    buffers
        .zip(&check.buffers)
        .filter(|(_, buffer)| buffer.view.is_none())
        .filter_map(|(argument, buffer)| {
            let number = position(kernel, &argument.name)?;
            let access = kernel.float_access(number)?;
            (access.element != buffer.element).then(|| {
                format!(
                    "{} is {}, but the kernel {} it as {} (PTX line {})",
                    short(kernel, &kernel.params[number].name),
                    buffer.element.name(),
                    verb(&access),
                    access.element.name(),
                    access.line
                )
            })
        })
        .collect()
}

/// Returns the verb for an access.
fn verb(access: &FloatAccess) -> &'static str {
    match (access.loads, access.stores) {
        (true, false) => "loads",
        (false, true) => "stores",
        (_, _) => "accesses",
    }
}
