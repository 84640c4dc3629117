//! Conversion of `--arg`, `--const` and `--expect` into the buffers and arguments of a check.

use ptx_emu::check;
use ptx_emu::check::{Buffer, Check, Expected, Field};
use ptx_emu::{Kernel, Param};

use super::parameters::{named, position, short};
use super::proposal::argument::example;
use super::values::argument::{
    ArgumentValue, ConstantValue, EmuArgument, EmuConstant, Expectation,
};
use super::values::value::{BufferValue, Fill, Member};
use super::values::{fill, npy};

/// The buffers of a check, by their names on the command line.
#[derive(Default)]
pub(crate) struct NamedBuffers {
    /// Names on the command line, with the numbers of the buffers.
    names: Vec<(String, usize)>,
    /// The numbers of buffers that are textures or surfaces.
    handles: Vec<usize>,
}

/// Adds the buffers, the arguments of the kernel and the content of variables to a check.
///
/// # Errors
/// Returns a message if an argument does not suit its parameter, or if a parameter has no argument.
pub(crate) fn bind(
    check: &mut Check<'_>,
    given: &[EmuArgument],
    constants: &[EmuConstant],
    seed: u64,
) -> Result<NamedBuffers, String> {
    let kernel = check.kernel;
    let mut slots: Vec<Option<&EmuArgument>> = vec![None; kernel.params.len()];
    let mut buffers = NamedBuffers::default();

    // All buffers are made first. An argument may refer to a buffer that comes after it.
    for argument in given {
        let wrong = |what: String| format!("--arg {}: {what}", argument.name);
        let param = position(kernel, &argument.name);
        match param {
            Some(i) if slots[i].is_some() => {
                return Err(wrong(format!("parameter {i} has an argument already")));
            }
            Some(i) => slots[i] = Some(argument),
            None if is_member(given, constants, &argument.name) => {}
            None => return Err(wrong(unknown(kernel))),
        }

        if let ArgumentValue::Buffer(value) = &argument.value {
            let label = param.map_or(&argument.name, |i| &kernel.params[i].name);
            let number = buffers.names.len();
            let buffer = buffer(
                &short(kernel, label),
                value,
                seed.wrapping_add(number as u64),
            )
            .map_err(wrong)?;
            buffers.names.push((argument.name.clone(), number));
            buffers.handles.extend(value.view.as_ref().map(|_| number));
            check.buffer(buffer);
        }
    }

    let missing = slots
        .iter()
        .zip(&kernel.params)
        .enumerate()
        .filter(|(_, (slot, _))| slot.is_none());
    let missing: Vec<String> = missing
        .map(|(i, (_, param))| named(kernel, i, param))
        .collect();
    if !missing.is_empty() {
        return Err(format!(
            "no --arg for {}; write for example --arg {}",
            missing.join(", "),
            example(kernel, slots.iter().position(Option::is_none).unwrap_or(0))
        ));
    }

    let arguments = slots.into_iter().flatten().enumerate();
    check.args = arguments
        .map(|(i, argument)| packed(kernel, i, argument, &buffers))
        .collect::<Result<_, _>>()?;
    check.variables = variables(constants, &buffers)?;
    Ok(buffers)
}

/// Returns the message about an argument for an unknown parameter.
fn unknown(kernel: &Kernel) -> String {
    if kernel.params.is_empty() {
        return "the kernel has no parameters".into();
    }
    let params: Vec<String> = kernel
        .params
        .iter()
        .enumerate()
        .map(|(i, param)| named(kernel, i, param))
        .collect();
    format!(
        "the kernel has no such parameter, and no argument refers to a buffer @NAME; its parameters are {}",
        params.join(", ")
    )
}

/// Returns true if another argument refers to the buffer as `@NAME`.
fn is_member(given: &[EmuArgument], constants: &[EmuConstant], name: &str) -> bool {
    let is = |member: &Member| matches!(member, Member::Pointer { buffer, .. } if buffer == name);
    if constants
        .iter()
        .any(|c| matches!(&c.value, ConstantValue::Pointer(member) if is(member)))
    {
        return true;
    }
    given.iter().any(|argument| match &argument.value {
        ArgumentValue::Buffer(_) => false,
        ArgumentValue::Member(member) => is(member),
        ArgumentValue::Struct(members) => members.iter().any(is),
    })
}

/// Makes a buffer with its content.
fn buffer(label: &str, value: &BufferValue, seed: u64) -> Result<Buffer, String> {
    let (element, count, contents) = match (value.shape, &value.fill) {
        (None, Some(Fill::File(path))) => {
            let array = npy::read(path)?;
            (array.element, array.count(), Some(array.bytes))
        }
        (Some((element, count)), None) => (element, count, None),
        (Some((element, count)), Some(fill)) => (
            element,
            count,
            Some(fill::fill(fill, element, count, seed)?),
        ),
        (None, _) => return Err("a buffer needs a type and a count".into()),
    };
    let view = value.view.clone();
    Ok(Buffer {
        role: value.role,
        contents,
        view,
        ..Buffer::empty(label, element, count)
    })
}

/// Returns the bytes of an argument, or an error if the parameter has another size.
fn packed(
    kernel: &Kernel,
    number: usize,
    argument: &EmuArgument,
    buffers: &NamedBuffers,
) -> Result<check::Argument, String> {
    let param = &kernel.params[number];
    let packed = match &argument.value {
        ArgumentValue::Buffer(_) => check::Argument::pointer(buffers.find(&argument.name)?, 0),
        ArgumentValue::Member(member) => {
            fits(param, member).map_err(|what| format!("--arg {}: {what}", argument.name))?;
            member_of(member, buffers)?
        }
        ArgumentValue::Struct(members) => {
            let members = members.iter().map(|member| member_of(member, buffers));
            check::Argument::structure(members.collect::<Result<Vec<_>, _>>()?)
        }
    };
    if packed.bytes() == param.size as usize {
        return Ok(packed);
    }

    Err(format!(
        "--arg {}: {} bytes for {}, which has {}; an address has 8 bytes, and the members of a struct are aligned to their \
         sizes",
        argument.name,
        packed.bytes(),
        named(kernel, number, param),
        param.size,
    ))
}

/// Checks that a float is not passed as an integer or the other way around.
fn fits(param: &Param, member: &Member) -> Result<(), String> {
    let Member::Scalar {
        written, element, ..
    } = member
    else {
        return Ok(());
    };

    let is_float = [".f16", ".bf16", ".f32", ".f64"].contains(&param.ty.as_str());
    let is_integer = param.ty.starts_with(".u") || param.ty.starts_with(".s");
    let differs = is_float && !element.is_float() || is_integer && element.is_float();
    if differs && !written.starts_with('b') {
        return Err(format!(
            "the parameter is {}, not {}; b{} passes the bits of any type",
            param.ty,
            element.name(),
            8 * element.bytes()
        ));
    }

    Ok(())
}

/// Converts a number or an address.
fn member_of(member: &Member, buffers: &NamedBuffers) -> Result<check::Argument, String> {
    match member {
        Member::Scalar { bytes, .. } => Ok(check::Argument(vec![Field::Bytes(bytes.clone())])),
        Member::Pointer { buffer, offset } => {
            let number = buffers.find(buffer)?;
            if buffers.handles.contains(&number) && *offset > 0 {
                return Err(format!(
                    "@{buffer}+{offset}: a texture or surface is a handle, and an offset has no meaning"
                ));
            }
            Ok(check::Argument::pointer(number, *offset))
        }
    }
}

impl NamedBuffers {
    /// Returns the number of the buffer with this name on the command line.
    fn find(&self, name: &str) -> Result<usize, String> {
        if let Some((_, number)) = self.names.iter().find(|(known, _)| known == name) {
            return Ok(*number);
        }

        if self.names.is_empty() {
            return Err(format!(
                "there is no buffer {name}; --arg {name}=in:f32:1000 defines one"
            ));
        }

        let names: Vec<&str> = self.names.iter().map(|(known, _)| known.as_str()).collect();
        Err(format!(
            "there is no buffer {name}; there are {}",
            names.join(", ")
        ))
    }

    /// Sets the content that buffers must have after the launch.
    ///
    /// # Errors
    /// Returns a message if the kernel has no buffer of this name, or if the content does not suit it.
    pub(crate) fn expect(
        &self,
        check: &mut Check<'_>,
        expected: &[Expectation],
    ) -> Result<(), String> {
        for Expectation {
            name,
            fill,
            tolerance,
        } in expected
        {
            let wrong = |what: String| format!("--expect {name}: {what}");

            // The name of a parameter works too, even if --arg used its number.
            let number = self.find(name).or_else(|error| {
                let param = position(check.kernel, name)
                    .map(|i| short(check.kernel, &check.kernel.params[i].name));
                let found = check
                    .buffers
                    .iter()
                    .position(|buffer| Some(&buffer.name) == param.as_ref());
                found.ok_or(wrong(error))
            })?;
            let buffer = &mut check.buffers[number];
            if buffer.expected.is_some() {
                return Err(wrong("the buffer has an expectation already".into()));
            }

            let bytes = fill::fill(fill, buffer.element, buffer.count, 0).map_err(wrong)?;
            buffer.expected = Some(Expected {
                bytes,
                tolerance: *tolerance,
            });
        }
        Ok(())
    }
}

/// Returns the content of variables.
fn variables(
    constants: &[EmuConstant],
    buffers: &NamedBuffers,
) -> Result<Vec<(String, check::Argument)>, String> {
    let value = |constant: &EmuConstant| match &constant.value {
        ConstantValue::Values(values, element) => fill::values(values, *element).map(of_bytes),
        ConstantValue::File(path) => npy::read(path.as_ref()).map(|array| of_bytes(array.bytes)),
        ConstantValue::Pointer(member) => member_of(member, buffers),
    };
    let one = |constant: &EmuConstant| {
        let wrong = |what: String| format!("--const {}: {what}", constant.name);
        Ok((constant.name.clone(), value(constant).map_err(wrong)?))
    };

    // Of two values for one variable, the second would silently win.
    let twice = |i: usize| {
        constants[..i]
            .iter()
            .any(|before| before.name == constants[i].name)
    };
    match (0..constants.len()).find(|i| twice(*i)) {
        Some(i) => Err(format!(
            "--const {}: it has a value already",
            constants[i].name
        )),
        None => constants.iter().map(one).collect(),
    }
}

/// Returns an argument that consists of these bytes.
fn of_bytes(bytes: Vec<u8>) -> check::Argument {
    check::Argument(vec![Field::Bytes(bytes)])
}
