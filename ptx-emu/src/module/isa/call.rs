//! Calls and the stack (PTX ISA, "Control Flow Instructions: call", "Stack Manipulation
//! Instructions").

use crate::module::code::{Call, CallTarget, Op, Passed, RegisterOperand, SystemCall};
use crate::module::context::operands::{Decode, Decoder};
use crate::module::context::symbols::layout;
use crate::syntax::ast::{DeclaredVariable, Number, OperandKind, ParsedOperand};
use crate::syntax::types::{Type, TypeKind};
use crate::syntax::{Parsed, error, unsupported};

pub(crate) const DECODERS: &[(&str, Decoder)] = &[
    ("call", call),
    ("alloca", alloca),
    ("stacksave", stacksave),
    ("stackrestore", stackrestore),
];

/// A function of the device: its name, and the sizes of its parameters and results in bytes.
type System = (&'static str, SystemCall, &'static [u32], &'static [u32]);

/// The functions of the device (CUDA C++ Programming Guide, "Formatted Output", "Assertion",
/// "Dynamic Global Memory Allocation and Operations").
const SYSTEM: &[System] = &[
    ("vprintf", SystemCall::Print, &[8, 8], &[4]),
    (
        "__assertfail",
        SystemCall::AssertFail,
        &[8, 8, 4, 8, 8],
        &[],
    ),
    ("malloc", SystemCall::Malloc, &[8], &[8]),
    ("free", SystemCall::Free, &[8], &[]),
    (
        "cudaGraphSetConditional",
        SystemCall::SetCondition,
        &[8, 4],
        &[],
    ),
];

/// Decodes `call{.uni} {(ret),} target {, (args)} {, list};`.
fn call(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.eat(".uni");
    d.end()?;
    let operands = &d.inst.operands[..];

    // A list before the target contains the results, and a list after it the arguments.
    let (returns, rest) = match operands {
        [
            ParsedOperand {
                kind: OperandKind::List(returns),
                ..
            },
            rest @ ..,
        ] => (&returns[..], rest),
        _ => (&[][..], operands),
    };
    let [target, rest @ ..] = rest else {
        return d.error("a call names a function or a register");
    };

    let (arguments, rest) = match rest {
        [
            ParsedOperand {
                kind: OperandKind::List(arguments),
                ..
            },
            rest @ ..,
        ] => (&arguments[..], rest),
        _ => (&[][..], rest),
    };
    let returns: Vec<Passed> = returns
        .iter()
        .map(|o| passed(d, o))
        .collect::<Parsed<_>>()?;
    let arguments: Vec<Passed> = arguments
        .iter()
        .map(|o| passed(d, o))
        .collect::<Parsed<_>>()?;
    if let Some(o) = d
        .inst
        .operands
        .first()
        .filter(|_| returns.iter().any(|p| p.bytes().is_none()))
    {
        return error(
            o.at,
            "a result of a call needs a .param variable or a register",
        );
    }

    let OperandKind::Name(name) = target.kind else {
        return error(target.at, "a call names a function or a register");
    };

    // A register hides a function of the same name, because its declaration is in an inner scope.
    let target = match d.register(name, target.at) {
        Some(register) if register.ty.bits() == 64 && register.ty.kind() != TypeKind::Float => {
            CallTarget::Register {
                slot: register.slot,
                list: callees(d, rest)?,
            }
        }
        Some(register) => {
            return d.error(format!(
                "`{name}` is a {} register: an address has 64 bits",
                register.ty
            ));
        }
        None => named(d, name, &arguments, &returns)?,
    };
    Ok(Op::Call(Box::new(Call {
        target,
        arguments,
        returns,
    })))
}

/// Decodes an argument, or the destination of a result.
fn passed<'a>(d: &mut Decode<'_, 'a>, o: &ParsedOperand<'a>) -> Parsed<Passed> {
    match o.kind {
        OperandKind::Name(name) => {
            if let Some((offset, bytes)) = d.passed_variable(name) {
                return Ok(Passed::Local { offset, bytes });
            }

            let Some(register) = d.register(name, o.at) else {
                return error(
                    o.at,
                    format!("`{name}` is not declared as a .param variable or a register"),
                );
            };

            if register.ty == Type::B128 {
                return unsupported(o.at, ".b128 registers as arguments");
            }

            Ok(Passed::Register(RegisterOperand {
                slot: register.slot,
                bits: register.ty.bits(),
            }))
        }
        OperandKind::Number(Number::Int(n)) => Ok(Passed::Literal(n as u64)),
        OperandKind::Number(Number::F32(bits)) => Ok(Passed::Literal(bits.into())),
        OperandKind::Number(Number::F64(bits)) => Ok(Passed::Literal(bits)),
        OperandKind::Sink => unsupported(o.at, "`_` as an argument"),
        _ => error(
            o.at,
            "a .param variable, a register or a literal was expected",
        ),
    }
}

/// Returns the functions in the list of an indirect call, or `None` if the call has a prototype.
fn callees(d: &Decode<'_, '_>, rest: &[ParsedOperand<'_>]) -> Parsed<Option<Box<[u32]>>> {
    match rest {
        [
            ParsedOperand {
                kind: OperandKind::Name(name),
                ..
            },
        ] => Ok(d.callees(name).map(Vec::into_boxed_slice)),
        _ => d.error("a call through a register needs a prototype or a list of targets"),
    }
}

/// Returns a function of the module or of the device.
fn named(
    d: &Decode<'_, '_>,
    name: &str,
    arguments: &[Passed],
    returns: &[Passed],
) -> Parsed<CallTarget> {
    if let Some(number) = d.functions().number(name) {
        let function = d.functions().defined[number as usize];
        if function.params.iter().any(|v| v.count.is_none()) {
            return unsupported(
                d.inst.at,
                format!("call of `{name}`, which takes any number of arguments"),
            );
        }

        fits(
            d,
            name,
            (arguments, &sizes(&function.params)),
            (returns, &sizes(&function.returns)),
        )?;
        return Ok(CallTarget::Function(number));
    }

    // Even the functions of the device must be declared, because the text has to state their
    // parameters.
    if d.functions().declared(name).is_none() {
        return d.error(format!("`{name}` is not declared as a function"));
    }

    let Some((_, system, takes, gives)) = SYSTEM.iter().find(|(known, ..)| *known == name) else {
        return unsupported(
            d.inst.at,
            format!("call of `{name}`, which this text declares and does not define"),
        );
    };

    fits(d, name, (arguments, takes), (returns, gives))?;
    Ok(CallTarget::System(*system))
}

fn sizes(variables: &[DeclaredVariable<'_>]) -> Vec<u32> {
    let size = |v: &DeclaredVariable<'_>| layout(v).map_or(0, |(bytes, _)| bytes as u32);
    // Predicates are passed in registers and have no size in bytes.
    variables
        .iter()
        .map(|v| if v.ty == Type::Pred { 0 } else { size(v) })
        .collect()
}

/// Checks the number and the sizes of the arguments and results of a call.
fn fits(
    d: &Decode<'_, '_>,
    name: &str,
    arguments: (&[Passed], &[u32]),
    returns: (&[Passed], &[u32]),
) -> Parsed<()> {
    for (what, (passed, wanted)) in [("takes", arguments), ("gives", returns)] {
        let sizes: Vec<Option<u32>> = passed.iter().map(|p| p.bytes()).collect();
        // A literal has no size and fits every parameter.
        let same = |(size, wanted): (&Option<u32>, &u32)| size.is_none_or(|size| size == *wanted);
        if sizes.len() != wanted.len() || !sizes.iter().zip(wanted).all(same) {
            let list = |sizes: Vec<String>| {
                if sizes.is_empty() {
                    "nothing".into()
                } else {
                    sizes.join(", ") + " bytes"
                }
            };
            let found = list(
                sizes
                    .iter()
                    .map(|s| s.map_or("any".into(), |s| s.to_string()))
                    .collect(),
            );
            let wanted = list(wanted.iter().map(u32::to_string).collect());
            return d.error(format!("`{name}` {what} {wanted}, not {found}"));
        }
    }
    Ok(())
}

/// Decodes `alloca.type d, size {, align};`.
fn alloca(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let ty = d.ty(&[Type::U32, Type::U64])?;
    let n = d.operands(2, 3)?;
    let align = if n == 3 {
        d.immediate(2, 1 << 16)? as u32
    } else {
        8
    };
    if !align.is_power_of_two() {
        return d.error(format!("alignment {align} is not a power of two"));
    }

    let to = d.dst(0, ty)?;
    let size = d.word(1, ty)?;
    Ok(Op::Alloca {
        d: RegisterOperand {
            slot: to,
            bits: ty.bits(),
        },
        size,
        align,
    })
}

fn stacksave(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let ty = d.ty(&[Type::U32, Type::U64])?;
    d.operands(1, 1)?;
    Ok(Op::StackSave {
        d: RegisterOperand {
            slot: d.dst(0, ty)?,
            bits: ty.bits(),
        },
    })
}

fn stackrestore(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let ty = d.ty(&[Type::U32, Type::U64])?;
    d.operands(1, 1)?;
    Ok(Op::StackRestore { a: d.word(0, ty)? })
}
