//! The argument that is proposed for a parameter.

use ptx_emu::{Kernel, Param, ParameterUse};

use crate::command::parameters::short;

/// The number of elements in each buffer at first.
const ELEMENTS: usize = 1024;
/// The value of integer parameters. It is a plausible length, and a matrix with this many rows and
/// columns fits into a buffer.
const INTEGER: u32 = 32;

/// An argument of the proposed command.
#[derive(Clone)]
pub(super) enum ProposedArgument {
    Buffer {
        name: String,
        role: ProposedRole,
        element: &'static str,
        count: usize,
    },
    Other(String),
}

/// The role of a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ProposedRole {
    In,
    Out,
    InOut,
}

impl ProposedRole {
    /// Returns the name of the role on the command line.
    fn name(self) -> &'static str {
        match self {
            ProposedRole::In => "in",
            ProposedRole::Out => "out",
            ProposedRole::InOut => "inout",
        }
    }
}

impl ProposedArgument {
    pub(super) fn text(&self) -> String {
        match self {
            ProposedArgument::Buffer {
                name,
                role,
                element,
                count,
            } => {
                format!("{name}={}:{element}:{count}", role.name())
            }
            ProposedArgument::Other(text) => text.clone(),
        }
    }
}

/// Returns an example of an argument for a parameter, for messages.
pub(crate) fn example(kernel: &Kernel, number: usize) -> String {
    let uses = kernel.parameter_uses();
    let arguments = propose(kernel, number, &kernel.params[number], &uses[number]);
    let texts: Vec<String> = arguments.iter().map(ProposedArgument::text).collect();
    texts.join(" --arg ")
}

/// Returns the argument for a parameter, after the buffers that it refers to.
pub(super) fn propose(
    kernel: &Kernel,
    number: usize,
    param: &Param,
    usage: &ParameterUse,
) -> Vec<ProposedArgument> {
    if param.ty.contains('[') {
        return structure(kernel, number, param);
    }
    vec![propose_one(short(kernel, &param.name), param, usage)]
}

/// Returns a structure with the members that the kernel loads, and zeros between them.
fn structure(kernel: &Kernel, number: usize, param: &Param) -> Vec<ProposedArgument> {
    let name = short(kernel, &param.name);
    let mut arguments = Vec::new();
    let mut members = Vec::new();
    let mut at = 0;
    for (field, usage) in kernel.parameter_fields(number) {
        pad(&mut members, &mut at, field.offset);
        match propose_one(format!("{name}_{}", field.offset), &field, &usage) {
            ProposedArgument::Other(text) => {
                members.extend(text.split_once('=').map(|(_, value)| value.to_owned()))
            }
            buffer @ ProposedArgument::Buffer { .. } => {
                members.push(format!("@{name}_{}", field.offset));
                arguments.push(buffer);
            }
        }
        at = field.offset + field.size;
    }

    pad(&mut members, &mut at, param.size);
    arguments.push(ProposedArgument::Other(format!(
        "{name}=struct:{}",
        members.join(",")
    )));
    arguments
}

/// Appends zeros up to an offset, in the largest members that are aligned to their size.
fn pad(members: &mut Vec<String>, at: &mut u32, to: u32) {
    while *at < to {
        let fits = |size: &u32| at.is_multiple_of(*size) && *at + size <= to;
        let size = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
        members.push(format!("u{}:0", 8 * size));
        *at += size;
    }
}

/// Returns the argument for a parameter, or for a member of a structure.
fn propose_one(name: String, param: &Param, usage: &ParameterUse) -> ProposedArgument {
    let role = match (usage.loads, usage.stores) {
        (true, true) => Some(ProposedRole::InOut),
        (true, false) => Some(ProposedRole::In),
        (false, true) => Some(ProposedRole::Out),
        (false, false) => None,
    };
    if let Some(role) = role {
        let element = usage.element.map_or("f32", |element| element.name());
        return ProposedArgument::Buffer {
            name,
            role,
            element,
            count: ELEMENTS,
        };
    }

    let bits = 8 * param.size;
    ProposedArgument::Other(match (param.ty.as_str(), usage.element) {
        (".f32" | ".f64" | ".f16", _) => format!("{name}={}:1.0", &param.ty[1..]),
        (".f16x2", _) => format!("{name}=struct:f16:1.0,f16:1.0"),
        (ty, Some(element)) if ty.starts_with(".b") && element.is_float() => {
            format!("{name}={}:1.0", element.name())
        }
        // The kernel does not read this parameter, for example the scratch memory of Triton's
        // kernels.
        (_, _) if !usage.reads => format!("{name}=u{bits}:0"),
        (ty, _) if ty.starts_with(".s") => format!("{name}=s{bits}:{INTEGER}"),
        (_, _) => format!("{name}=u{bits}:{INTEGER}"),
    })
}
