//! Moves, loads, stores and addresses (PTX ISA, "Data Movement and Conversion Instructions").

use crate::module::code::asynchronous::AsyncStore;
use crate::module::code::{
    AccessOrdering, ClockPart, InstructionSpace, LoadParam, MemoryScope, Op, RegisterOperand,
    Transfer, Unwritten, Width,
};
use crate::module::context::names::bank;
use crate::module::context::operands::{Decode, Decoder};
use crate::module::isa::memory::wide;
use crate::module::registers::{Alu, B16, B32, B64, Bank, OperandSlots, Regs, Undefined, map1};
use crate::syntax::ast::{OperandKind, ParsedOperand as Ast};
use crate::syntax::types::{Type, TypeKind};
use crate::syntax::{Parsed, error, unsupported};

pub(crate) const DECODERS: &[(&str, Decoder)] = &[
    ("mov", mov),
    ("ld", ld),
    ("ldu", ld),
    ("st", st),
    ("cvta", cvta),
    ("isspacep", isspacep),
    ("createpolicy", createpolicy),
];

/// The types of `mov`.
const MOVABLE: &[Type] = &[
    Type::Pred,
    Type::B16,
    Type::B32,
    Type::B64,
    Type::B128,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::S16,
    Type::S32,
    Type::S64,
    Type::F32,
    Type::F64,
];

/// The types of `ld` and `st`.
const LOADABLE: &[Type] = &[
    Type::B8,
    Type::B16,
    Type::B32,
    Type::B64,
    Type::B128,
    Type::U8,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::S8,
    Type::S16,
    Type::S32,
    Type::S64,
    Type::F32,
    Type::F64,
];

/// The state spaces of an address.
pub(crate) const SPACES: &[(&str, InstructionSpace)] = &[
    (".global", InstructionSpace::Global),
    (".shared", InstructionSpace::Shared),
    (".shared::cta", InstructionSpace::Shared),
    (".shared::cluster", InstructionSpace::Cluster),
    (".const", InstructionSpace::Const),
    (".local", InstructionSpace::Local),
];

/// The names of the space of kernel parameters.
const PARAMETERS: &[(&str, InstructionSpace)] = &[
    (".param", InstructionSpace::Param),
    (".param::entry", InstructionSpace::Param),
];

/// The scopes of memory ordering.
pub(crate) const SCOPES: &[(&str, MemoryScope)] = &[
    (".cta", MemoryScope::Block),
    (".cluster", MemoryScope::Block),
    (".gpu", MemoryScope::Device),
    (".sys", MemoryScope::Device),
];

/// Hints about the level and the priority of caching, which have no effect here.
const HINTS: &[(&str, ())] = &[
    (".ca", ()),
    (".cg", ()),
    (".cs", ()),
    (".lu", ()),
    (".cv", ()),
    (".wb", ()),
    (".wt", ()),
    (".L1::evict_normal", ()),
    (".L1::evict_unchanged", ()),
    (".L1::evict_first", ()),
    (".L1::evict_last", ()),
    (".L1::no_allocate", ()),
    (".L2::evict_normal", ()),
    (".L2::evict_first", ()),
    (".L2::evict_last", ()),
    (".L2::64B", ()),
    (".L2::128B", ()),
    (".L2::256B", ()),
];

fn copy32(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    map1(regs, mask, s, |a: B32| -> B32 { a })
}

fn copy64(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    map1(regs, mask, s, |a: B64| -> B64 { a })
}

fn narrow(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    map1(regs, mask, s, |a: u32| -> B16 { B16(a as u16) })
}

fn widen(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    map1(regs, mask, s, |a: u32| -> u64 { a.into() })
}

fn copy_pred(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let value = regs.pred(s.a, mask)?;
    regs.set_pred(s.d, mask, value);
    Ok(())
}

pub(crate) fn copy(ty: Type) -> Alu {
    match bank(ty) {
        Bank::Pred => copy_pred,
        Bank::W32 => copy32,
        Bank::W64 => copy64,
    }
}

fn mov(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    if let Some(count) = d.choose(&[(".v2", 2), (".v4", 4)]) {
        return crate::module::isa::memory::vector_moves::mov(d, count);
    }

    let ty = d.ty(MOVABLE)?;
    d.operands(2, 2)?;
    if ty == Type::B128 {
        return wide::mov(d);
    }

    let to = d.operand(0);
    let from = d.operand(1);

    // A vector on either side packs or unpacks a register of any type.
    if matches!(to.kind, OperandKind::Vector(_)) {
        return crate::module::isa::conversion::packing::unpack(d, ty);
    }

    match &from.kind {
        OperandKind::Vector(_) => crate::module::isa::conversion::packing::pack(d, ty),
        OperandKind::Name("%clock" | "%globaltimer_lo") => Ok(Op::Clock {
            d: d.dst(0, Type::U32)?,
            part: ClockPart::Low,
        }),
        OperandKind::Name("%clock_hi" | "%globaltimer_hi") => Ok(Op::Clock {
            d: d.dst(0, Type::U32)?,
            part: ClockPart::High,
        }),
        OperandKind::Name("%clock64" | "%globaltimer") => Ok(Op::Clock {
            d: d.dst(0, Type::U64)?,
            part: ClockPart::Whole,
        }),
        OperandKind::Number(_) | OperandKind::Not(_) if ty == Type::Pred => predicate(d),
        OperandKind::Name(name) => named(d, ty, name, 0),
        OperandKind::Sum(name, offset) => named(d, ty, name, *offset),
        _ => d.alu(copy(ty), ty, &[ty]),
    }
}

/// Decodes `mov.pred` of a constant or a negated predicate, as the conjunction of the operand with
/// itself.
fn predicate(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let a = d.pred(1)?;
    Ok(Op::Logic {
        table: 0b1000,
        d: d.dst(0, Type::Pred)?,
        a,
        b: a,
    })
}

/// Decodes `mov` from a special register, an address of a variable or function, or a register.
fn named(d: &mut Decode<'_, '_>, ty: Type, name: &str, offset: i64) -> Parsed<Op> {
    let int = !matches!(ty.kind(), TypeKind::Float | TypeKind::Predicate);
    if let Some(a) = d.special(name) {
        let run: Alu = match ty.bits() {
            64 => widen,
            16 => narrow,
            _ => copy32,
        };
        if !int {
            return d.error(format!("`{name}` is a 32-bit integer; use mov.u32"));
        }
        return Ok(Op::Alu(
            run,
            OperandSlots {
                d: d.dst(0, ty)?,
                a,
                ..OperandSlots::default()
            },
        ));
    }

    if int
        && ty.bits() >= 32
        && let Some(a) = d.variable(name, offset, ty.bits() == 64)
    {
        return Ok(Op::Alu(
            copy(ty),
            OperandSlots {
                d: d.dst(0, ty)?,
                a,
                ..OperandSlots::default()
            },
        ));
    }

    if let (32.., true, Some((param, _))) = (ty.bits(), int, d.param(name)) {
        // The address of a kernel parameter is its offset. Since 3.9, Triton also writes it into
        // 32-bit registers.
        let at = (i64::from(param.offset) + offset) as u64;
        let a = d.literal(bank(ty), at);
        return Ok(Op::Alu(
            copy(ty),
            OperandSlots {
                d: d.dst(0, ty)?,
                a,
                ..OperandSlots::default()
            },
        ));
    }

    if let (Type::B64 | Type::U64 | Type::S64, 0, Some(a)) = (ty, offset, d.function_address(name))
    {
        return Ok(Op::Alu(
            copy(ty),
            OperandSlots {
                d: d.dst(0, ty)?,
                a,
                ..OperandSlots::default()
            },
        ));
    }

    if int && d.functions().knows(name) {
        return unsupported(d.inst.at, format!("this move of the address of `{name}`"));
    }

    if let (true, 16, Some(a)) = (int, ty.bits(), d.variable(name, offset, false)) {
        return Ok(Op::Alu(
            narrow,
            OperandSlots {
                d: d.dst(0, ty)?,
                a,
                ..OperandSlots::default()
            },
        ));
    }

    d.alu(copy(ty), ty, &[ty])
}

/// The meaning of the suffixes between the opcode and the vector size.
struct MemorySuffixes {
    space: InstructionSpace,
    param: bool,
    order: AccessOrdering,
    scope: MemoryScope,
    read_only: bool,
    cache_hint: bool,
    ty: Type,
    count: usize,
}

/// Decodes `{.weak | .volatile | .relaxed.scope | .acquire.scope |
/// .release.scope}{.ss}{hints}{.nc}{hints}{.vec}.type`.
fn suffixes(d: &mut Decode<'_, '_>, ordered: &[(&str, AccessOrdering)]) -> Parsed<MemorySuffixes> {
    // `.mmio` is meant for device registers. On memory it is a relaxed access.
    let order = if d.eat(".mmio") {
        Some(d.require(&ordered[..1])?)
    } else {
        d.choose(ordered)
    };
    let scope = match order {
        Some(_) => d.require(SCOPES)?,
        None => {
            d.eat(".weak");
            MemoryScope::Device
        }
    };
    let volatile = order.is_none() && d.eat(".volatile");
    let order = if volatile {
        AccessOrdering::Relaxed
    } else {
        order.unwrap_or(AccessOrdering::Weak)
    };
    let param = d
        .choose(&[(".param", ()), (".param::entry", ()), (".param::func", ())])
        .is_some();
    let space = if param {
        InstructionSpace::Const
    } else {
        d.choose(SPACES).unwrap_or(InstructionSpace::Generic)
    };
    while d.choose(HINTS).is_some() {}
    let read_only = d.eat(".nc");
    let mut cache_hint = d.eat(".L2::cache_hint");
    while d.choose(HINTS).is_some() {}
    cache_hint = d.eat(".L2::cache_hint") || cache_hint;
    while d.choose(HINTS).is_some() {}
    let count = d.choose(&[(".v2", 2), (".v4", 4), (".v8", 8)]).unwrap_or(1);
    let ty = d.ty(LOADABLE)?;
    let most = if ty == Type::B128 { 16 } else { 32 };
    if count as u32 * ty.bytes() > most || count == 8 && ty.bytes() != 4 {
        return d.unknown_form(format!("`{}`: a vector has at most {most} bytes", d.name()));
    }

    Ok(MemorySuffixes {
        space,
        param,
        order,
        scope,
        read_only,
        cache_hint,
        ty,
        count,
    })
}

/// Returns the representation of an element in memory. An element of 128 bits counts as two.
fn width(ty: Type) -> Width {
    Width {
        bytes: ty.bytes().min(8),
        signed: ty.kind() == TypeKind::Signed,
    }
}

/// Returns a half of a 128-bit register.
fn half(slot: u32) -> Option<RegisterOperand> {
    Some(RegisterOperand { slot, bits: 64 })
}

/// Returns the elements of a vector operand, whose number the instruction states.
fn elements<'a>(d: &Decode<'_, 'a>, i: usize, count: usize) -> Parsed<&'a [Ast<'a>]> {
    let elements = d.elements(i);
    if elements.len() == count
        && (count == 1 || matches!(d.operand(i).kind, OperandKind::Vector(_)))
    {
        Ok(elements)
    } else {
        error(
            d.operand(i).at,
            format!("`{}` needs a vector of {count} elements", d.name()),
        )
    }
}

fn ld(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let s = suffixes(
        d,
        &[
            (".relaxed", AccessOrdering::Relaxed),
            (".acquire", AccessOrdering::Acquire),
        ],
    )?;
    let s = if s.param { of_parameter(d, s, 1) } else { s };
    if s.read_only && (s.space != InstructionSpace::Global || s.order != AccessOrdering::Weak) {
        return d.error("`.nc` loads from .global only, without an order");
    }

    operands(d, &s)?;
    let mut regs = Vec::new();
    for element in elements(d, 0, s.count)? {
        if s.ty == Type::B128 {
            regs.extend(d.halves_dst(element)?.map(half));
            continue;
        }
        regs.push(match element.kind {
            // The element is loaded and checked, but it is written to no register.
            OperandKind::Sink => None,
            _ => {
                let register = d.wider(element, s.ty)?;
                Some(RegisterOperand {
                    slot: register.slot,
                    bits: register.ty.bits(),
                })
            }
        });
    }

    if s.param {
        return load_param(d, &s, regs);
    }

    transfer(d, s, regs, 1).map(|t| Op::Load(Box::new(t)))
}

fn st(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    if d.eat(".async") {
        return store_async(d);
    }

    let s = suffixes(
        d,
        &[
            (".relaxed", AccessOrdering::Relaxed),
            (".release", AccessOrdering::Release),
        ],
    )?;
    let s = if s.param { of_parameter(d, s, 0) } else { s };
    if s.read_only
        || s.param
        || s.space == InstructionSpace::Param
        || s.space == InstructionSpace::Const
    {
        return d.error(format!("`{}`: this space can only be read", d.name()));
    }

    operands(d, &s)?;
    let mut regs = Vec::new();
    for element in elements(d, 1, s.count)? {
        if s.ty == Type::B128 {
            regs.extend(d.halves_src(element)?.map(half));
            continue;
        }
        regs.push(Some(match element.kind {
            OperandKind::Name(_) => {
                let register = d.wider(element, s.ty)?;
                RegisterOperand {
                    slot: register.slot,
                    bits: register.ty.bits(),
                }
            }
            _ => RegisterOperand {
                slot: d.element_src(element, s.ty)?,
                // A literal of 8 bits is placed in a register of 16 bits, because no register is
                // narrower.
                bits: s.ty.bits().max(16),
            },
        }));
    }

    transfer(d, s, regs, 0).map(|t| Op::Store(Box::new(t)))
}

/// Decodes `st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.vec}.type [a], b, [bar]`
/// after its first suffix (PTX ISA, "st.async").
fn store_async(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.eat(".weak");
    if !d.eat(".shared::cluster") || !d.eat(".mbarrier::complete_tx::bytes") {
        return d.unsupported(d.name());
    }

    let count = d.choose(&[(".v2", 2), (".v4", 4)]).unwrap_or(1);
    let four_bytes = [Type::B32, Type::U32, Type::S32, Type::F32];
    let eight_bytes = [Type::B64, Type::U64, Type::S64, Type::F64];
    let ty = d.ty(&[four_bytes, eight_bytes].concat())?;

    // The limit holds for the whole vector, as for ordinary vector stores.
    if count as u32 * ty.bytes() > 16 {
        return d.unknown_form(format!("`{}`: a vector has at most 16 bytes", d.name()));
    }

    d.operands(3, 3)?;
    let mut values = Vec::new();
    for element in elements(d, 1, count)? {
        values.push(RegisterOperand {
            slot: d.element_src(element, ty)?,
            bits: ty.bits(),
        });
    }

    let to = d.address(0, true)?;
    let barrier = d.address(2, true)?;
    Ok(Op::AsyncStore(Box::new(AsyncStore {
        space: InstructionSpace::Cluster,
        to,
        values,
        barrier,
        reduction: None,
    })))
}

/// Returns the space that `.param` stands for.
///
/// Arguments of calls and parameters of functions are memory of the thread. Parameters of kernels
/// are read directly if they are named, and are a separate space if they are accessed through a
/// register.
fn of_parameter(d: &mut Decode<'_, '_>, s: MemorySuffixes, at: usize) -> MemorySuffixes {
    let Some(o) = d.inst.operands.get(at) else {
        return s;
    };
    let OperandKind::Address(Some(name), _) = o.kind else {
        return s;
    };

    let local = d.is_local(name);
    match (local || d.in_function(), d.register(name, o.at).is_some()) {
        (true, _) => MemorySuffixes {
            param: false,
            space: InstructionSpace::Local,
            ..s
        },
        (false, true) => MemorySuffixes {
            param: false,
            space: InstructionSpace::Param,
            ..s
        },
        (false, false) => s,
    }
}

fn operands(d: &mut Decode<'_, '_>, s: &MemorySuffixes) -> Parsed<()> {
    let n = 2 + usize::from(s.cache_hint);
    d.operands(n, n)?;
    if s.cache_hint {
        d.src(2, Type::B64)?;
    }
    Ok(())
}

fn transfer(
    d: &mut Decode<'_, '_>,
    s: MemorySuffixes,
    regs: Vec<Option<RegisterOperand>>,
    at: usize,
) -> Parsed<Transfer> {
    if let (InstructionSpace::Const, OperandKind::Address(Some(name), _)) =
        (s.space, &d.operand(at).kind)
        && d.register(name, d.operand(at).at)
            .is_some_and(|r| r.ty.bits() == 32)
    {
        return unsupported(
            d.operand(at).at,
            format!("`{name}`, a 32-bit register, as an address in .const"),
        );
    }

    let address = d.address(
        at,
        matches!(
            s.space,
            InstructionSpace::Shared
                | InstructionSpace::Cluster
                | InstructionSpace::Local
                | InstructionSpace::Param
        ),
    )?;
    static_bounds(d, &s, at)?;

    // The address of a variable belongs to its space, even if the instruction does not name the
    // space.
    let space = d
        .local_by_name(at)
        .filter(|_| s.space == InstructionSpace::Generic)
        .unwrap_or(s.space);
    let width = width(s.ty);
    Ok(Transfer {
        space,
        address,
        width,
        regs,
        read_only: s.read_only,
        unwritten: Unwritten::Fault,
        order: s.order,
        scope: s.scope,
        site: d.site(),
    })
}

/// Checks that an access to a static shared variable by name is within it and aligned.
fn static_bounds(d: &Decode<'_, '_>, s: &MemorySuffixes, at: usize) -> Parsed<()> {
    let o = d.operand(at);
    let OperandKind::Address(Some(name), offset) = o.kind else {
        return Ok(());
    };

    let Some(bytes) = d
        .shared_bytes(name)
        .filter(|_| s.space == InstructionSpace::Shared)
    else {
        return Ok(());
    };

    let size = i64::from(s.ty.bytes()) * s.count as i64;
    if offset < 0 || offset + size > bytes.into() {
        return error(
            o.at,
            format!("{size} bytes at offset {offset} of `{name}`, which has {bytes} bytes"),
        );
    }

    Ok(())
}

fn load_param(
    d: &Decode<'_, '_>,
    s: &MemorySuffixes,
    regs: Vec<Option<RegisterOperand>>,
) -> Parsed<Op> {
    let o = d.operand(1);
    let OperandKind::Address(Some(name), offset) = o.kind else {
        return error(
            o.at,
            "ld.param reads a parameter by its name or through a register",
        );
    };

    let Some((param, _)) = d.param(name) else {
        return error(o.at, format!("there is no parameter `{name}`"));
    };

    let size = i64::from(s.ty.bytes()) * s.count as i64;
    if offset < 0 || offset + size > param.size.into() {
        return error(
            o.at,
            format!(
                "{size} bytes at offset {offset} of parameter `{name}`, which has {} bytes",
                param.size
            ),
        );
    }

    // Offsets are known now, so the error has a place in the text instead of occurring in every
    // launch.
    if offset % size != 0 || i64::from(param.offset) % size != 0 {
        return error(
            o.at,
            format!("offset {offset} of parameter `{name}` is not aligned to {size} bytes"),
        );
    }

    let load = LoadParam {
        offset: param.offset + offset as u32,
        width: width(s.ty),
        regs,
    };
    Ok(Op::LoadParam(Box::new(load)))
}

/// Decodes `cvta{.to}.space.u64`, which converts between addresses of a space and generic
/// addresses.
fn cvta(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let to = d.eat(".to");
    let window = d.require(&[SPACES, PARAMETERS].concat())?;
    d.ty(&[Type::U64])?;
    d.operands(2, 2)?;
    if window == InstructionSpace::Cluster {
        return unsupported(d.inst.at, d.name());
    }

    // The parameters of a function are in its local memory.
    let window = if window == InstructionSpace::Param && d.in_function() {
        InstructionSpace::Local
    } else {
        window
    };
    let a = match d.operand(1).kind {
        OperandKind::Name(name) if !to => address_of(d, name, 0),
        OperandKind::Sum(name, offset) if !to => address_of(d, name, offset),
        _ => None,
    };
    let a = match a {
        Some(slot) => slot,
        None => d.src(1, Type::U64)?,
    };
    let to_slot = d.dst(0, Type::U64)?;
    match window {
        InstructionSpace::Shared | InstructionSpace::Local | InstructionSpace::Param => {
            Ok(Op::Window {
                d: to_slot,
                a,
                window,
                to,
            })
        }
        _ => Ok(Op::Alu(
            copy64,
            OperandSlots {
                d: to_slot,
                a,
                ..OperandSlots::default()
            },
        )),
    }
}

/// Returns the register that contains the address of a variable or parameter in its own space.
fn address_of(d: &mut Decode<'_, '_>, name: &str, offset: i64) -> Option<u32> {
    if let Some(slot) = d.variable(name, offset, true) {
        return Some(slot);
    }
    let (param, _) = d.param(name)?;
    let at = (i64::from(param.offset) + offset) as u64;
    Some(d.literal(Bank::W64, at))
}

fn isspacep(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let space = d.require(&[SPACES, PARAMETERS].concat())?;
    d.operands(2, 2)?;
    if let OperandKind::Name(name) = d.operand(1).kind
        && d.register(name, d.operand(1).at)
            .is_some_and(|r| r.ty.bits() == 32)
    {
        return unsupported(
            d.inst.at,
            format!("isspacep of `{name}`, a 32-bit register"),
        );
    }

    Ok(Op::IsSpace {
        d: d.dst(0, Type::Pred)?,
        a: d.src(1, Type::U64)?,
        space,
    })
}

/// The form of a cache policy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PolicyForm {
    Fraction,
    Range,
    Property,
}

/// Decodes `createpolicy`. A cache policy is a hint, so its value does not matter.
fn createpolicy(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let form = d.require(&[
        (".fractional", PolicyForm::Fraction),
        (".range", PolicyForm::Range),
        (".cvt", PolicyForm::Property),
    ])?;
    let hint = &[
        (".L2::evict_first", ()),
        (".L2::evict_last", ()),
        (".L2::evict_normal", ()),
        (".L2::evict_unchanged", ()),
    ];
    if form == PolicyForm::Property {
        d.require(&[(".L2", ())])?;
    } else {
        d.eat(".global");
        d.require(hint)?;
        // The secondary priority, for accesses outside the range or fraction, is optional.
        d.choose(hint);
    }

    d.ty(&[Type::B64])?;
    match form {
        PolicyForm::Fraction if d.operands(1, 2)? == 2 => _ = d.src(1, Type::F32)?,
        PolicyForm::Fraction => {}
        PolicyForm::Range => {
            d.operands(4, 4)?;
            d.address(1, false)?;
            d.src(2, Type::U32)?;
            d.src(3, Type::U32)?;
        }
        PolicyForm::Property => {
            d.operands(2, 2)?;
            d.src(1, Type::B64)?;
        }
    }

    Ok(Op::Alu(
        copy64,
        OperandSlots {
            d: d.dst(0, Type::B64)?,
            a: d.literal(Bank::W64, 0),
            ..OperandSlots::default()
        },
    ))
}
