//! From what `--arg`, `--const` and `--expect` say to the buffers and arguments of a check.

use ptx_emu::check;
use ptx_emu::check::{Buffer, Check, Expected, Field, Role};
use ptx_emu::{Kernel, Param};

use super::argument::{
    Argument, BufferValue, Constant, ConstantValue, Expectation, Fill, Member, Value,
};
use super::proposal::example;
use super::{fill, npy};

/// The buffers that have a name.
#[derive(Default)]
pub(crate) struct Buffers {
    /// The name on the command line, and the number of the buffer.
    names: Vec<(String, usize)>,
    /// The textures and surfaces among them.
    handles: Vec<usize>,
}

/// Makes the buffers, the arguments of a kernel, and what variables of the module hold.
pub(crate) fn bind(
    check: &mut Check<'_>,
    given: &[Argument],
    constants: &[Constant],
    seed: u64,
) -> Result<Buffers, String> {
    let kernel = check.kernel;
    let mut slots: Vec<Option<&Argument>> = vec![None; kernel.params.len()];
    let mut buffers = Buffers::default();
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
        if let Value::Buffer(value) = &argument.value {
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

/// The number of the parameter of a name: its own, without what nvcc and Triton put in front, or the number itself.
fn position(kernel: &Kernel, name: &str) -> Option<usize> {
    let by_name = |param: &Param| param.name == name || short(kernel, &param.name) == name;
    let found = kernel.params.iter().position(by_name);
    found.or_else(|| name.parse().ok().filter(|i| *i < kernel.params.len()))
}

/// `_Z5saxpyPf_param_0` of kernel `_Z5saxpyPf` is `param_0`.
pub(crate) fn short(kernel: &Kernel, name: &str) -> String {
    let rest = name
        .strip_prefix(&kernel.name)
        .and_then(|rest| rest.strip_prefix('_'));
    rest.filter(|rest| rest.starts_with("param"))
        .unwrap_or(name)
        .to_owned()
}

fn named(kernel: &Kernel, number: usize, param: &Param) -> String {
    format!(
        "parameter {number} `{}` ({})",
        short(kernel, &param.name),
        param.ty
    )
}

fn unknown(kernel: &Kernel) -> String {
    let params = kernel
        .params
        .iter()
        .enumerate()
        .map(|(i, param)| named(kernel, i, param));
    let params: Vec<String> = params.collect();
    match params.is_empty() {
        true => "the kernel has no parameters".into(),
        false => format!(
            "the kernel has no such parameter, and no @ names such a buffer; it has {}",
            params.join(", ")
        ),
    }
}

/// Whether an `@` names a buffer.
fn is_member(given: &[Argument], constants: &[Constant], name: &str) -> bool {
    let is = |member: &Member| matches!(member, Member::Pointer { buffer, .. } if buffer == name);
    if constants
        .iter()
        .any(|c| matches!(&c.value, ConstantValue::Pointer(member) if is(member)))
    {
        return true;
    }
    given.iter().any(|argument| match &argument.value {
        Value::Buffer(_) => false,
        Value::Member(member) => is(member),
        Value::Struct(members) => members.iter().any(is),
    })
}

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

/// The bytes of an argument, which must be those of its parameter.
fn packed(
    kernel: &Kernel,
    number: usize,
    argument: &Argument,
    buffers: &Buffers,
) -> Result<check::Argument, String> {
    let param = &kernel.params[number];
    let packed = match &argument.value {
        Value::Buffer(_) => check::Argument::pointer(buffers.find(&argument.name)?, 0),
        Value::Member(member) => {
            fits(param, member).map_err(|what| format!("--arg {}: {what}", argument.name))?;
            member_of(member, buffers)?
        }
        Value::Struct(members) => {
            let members = members.iter().map(|member| member_of(member, buffers));
            check::Argument::structure(members.collect::<Result<Vec<_>, _>>()?)
        }
    };
    match packed.bytes() == param.size as usize {
        true => Ok(packed),
        false => Err(format!(
            "--arg {}: {} bytes for {}, which has {}; {}",
            argument.name,
            packed.bytes(),
            named(kernel, number, param),
            param.size,
            "an address has 8 bytes, and the members of a struct lie at multiples of their sizes"
        )),
    }
}

/// A float is no integer of the same size.
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
    match differs && !written.starts_with('b') {
        true => Err(format!(
            "the parameter is {}, not {}; b{} gives bits of any kind",
            param.ty,
            element.name(),
            8 * element.bytes()
        )),
        false => Ok(()),
    }
}

fn member_of(member: &Member, buffers: &Buffers) -> Result<check::Argument, String> {
    match member {
        Member::Scalar { bytes, .. } => Ok(check::Argument(vec![Field::Bytes(bytes.clone())])),
        Member::Pointer { buffer, offset } => {
            let number = buffers.find(buffer)?;
            match buffers.handles.contains(&number) && *offset > 0 {
                true => Err(format!(
                    "@{buffer}+{offset}: a texture or surface is a handle, without bytes to point to"
                )),
                false => Ok(check::Argument::pointer(number, *offset)),
            }
        }
    }
}

impl Buffers {
    fn find(&self, name: &str) -> Result<usize, String> {
        let found = self
            .names
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, number)| *number);
        let known = || {
            self.names
                .iter()
                .map(|(known, _)| known.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        found.ok_or_else(|| match self.names.is_empty() {
            true => format!("there is no buffer {name}; --arg {name}=in:f32:1000 makes one"),
            false => format!("there is no buffer {name}; there are {}", known()),
        })
    }

    /// Sets what buffers must hold.
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

/// What variables hold.
fn variables(
    constants: &[Constant],
    buffers: &Buffers,
) -> Result<Vec<(String, check::Argument)>, String> {
    let value = |constant: &Constant| match &constant.value {
        ConstantValue::Values(values, element) => fill::values(values, *element).map(of_bytes),
        ConstantValue::File(path) => npy::read(path.as_ref()).map(|array| of_bytes(array.bytes)),
        ConstantValue::Pointer(member) => member_of(member, buffers),
    };
    let one = |constant: &Constant| {
        let wrong = |what: String| format!("--const {}: {what}", constant.name);
        Ok((constant.name.clone(), value(constant).map_err(wrong)?))
    };
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

fn of_bytes(bytes: Vec<u8>) -> check::Argument {
    check::Argument(vec![Field::Bytes(bytes)])
}

/// What a buffer is, as the command line has it.
pub(crate) fn role(role: Role) -> &'static str {
    match role {
        Role::In => "in",
        Role::Out => "out",
        Role::InOut => "inout",
    }
}
