//! Control flow, and instructions without an effect here (PTX ISA, "Control Flow Instructions",
//! "Miscellaneous Instructions").

use crate::module::code::Op;
use crate::module::context::operands::{Decode, Decoder};
use crate::syntax::Parsed;
use crate::syntax::types::Type;

pub(crate) const DECODERS: &[(&str, Decoder)] = &[
    ("bra", bra),
    ("brx", brx),
    ("exit", exit),
    ("ret", ret),
    ("trap", trap),
    ("nanosleep", nanosleep),
    ("prefetch", prefetch),
    ("prefetchu", prefetch),
    ("griddepcontrol", griddepcontrol),
    ("setmaxnreg", setmaxnreg),
];

/// The reconvergence point before `flow` has computed it.
const UNKNOWN: u32 = u32::MAX;

fn bra(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.eat(".uni");
    d.operands(1, 1)?;
    Ok(Op::Branch {
        target: d.label(0)?,
        join: UNKNOWN,
    })
}

fn brx(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.require(&[(".idx", ())])?;
    d.eat(".uni");
    d.operands(2, 2)?;
    let targets = d.label_list(1)?.into_boxed_slice();
    Ok(Op::BranchIndexed {
        index: d.src(0, Type::U32)?,
        targets,
        join: UNKNOWN,
    })
}

/// Decodes `ret`. At the top level of a kernel it ends the thread, as `exit` does.
fn ret(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    exit(d).map(|end| if d.in_function() { Op::Return } else { end })
}

fn exit(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.eat(".uni");
    d.operands(0, 0)?;
    Ok(Op::Exit)
}

fn trap(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.operands(0, 0)?;
    Ok(Op::Trap)
}

fn nanosleep(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.ty(&[Type::U32])?;
    d.operands(1, 1)?;
    d.src(0, Type::U32)?;
    Ok(Op::Sleep)
}

/// Decodes `prefetch`. It is a hint whose address may be invalid, so the address is not checked.
fn prefetch(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    if d.inst.opcode == "prefetchu" {
        d.require(&[(".L1", ())])?;
        d.operands(1, 1)?;
        d.address(0, false)?;
        return Ok(Op::Nothing);
    }

    // `.const` and `.param` are valid only in front of `.tensormap`.
    let maps = matches!(
        d.inst.mods[..],
        [(".const" | ".param", _), (".tensormap", _)]
    );
    if maps {
        d.choose(&[(".const", ()), (".param", ())]);
    }

    if d.eat(".tensormap") {
        d.operands(1, 1)?;
        d.address(0, false)?;
        return Ok(Op::Nothing);
    }

    d.choose(&[(".global", ()), (".local", ())]);
    d.require(&[
        (".L1", ()),
        (".L2", ()),
        (".L2::evict_last", ()),
        (".L2::evict_normal", ()),
    ])?;
    d.operands(1, 1)?;
    d.address(0, false)?;
    Ok(Op::Nothing)
}

/// Decodes `griddepcontrol`. It has no effect within a launch, but a traced launch records it.
fn griddepcontrol(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let waits = d.require(&[(".launch_dependents", false), (".wait", true)])?;
    d.operands(0, 0)?;
    Ok(if waits { Op::GridWait } else { Op::GridTrigger })
}

fn setmaxnreg(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.require(&[(".inc", ()), (".dec", ())])?;
    d.require(&[(".sync", ())])?;
    d.require(&[(".aligned", ())])?;
    d.ty(&[Type::U32])?;
    d.operands(1, 1)?;
    let count = d.immediate(0, 256)?;
    if count < 24 || count % 8 != 0 {
        return d.error(format!(
            "setmaxnreg to {count} registers: a multiple of 8 from 24 to 256 was expected"
        ));
    }

    Ok(Op::SetMaxRegisters {
        count: count as u32,
    })
}
