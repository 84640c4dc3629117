//! The instruction set: one row or one function per instruction, named as in the manual.
//!
//! Arithmetic is a table of rows. A row consists of a full name such as `mad.lo.s32`, in which
//! braces enclose alternatives, and a function that computes the result in one lane. Instructions
//! with state or structure have a decoding function each. They are memory, control flow, warps,
//! barriers, conversions and comparisons.

pub(crate) mod arithmetic;
pub(crate) mod async_copy;
pub(crate) mod call;
pub(crate) mod cluster;
pub(crate) mod control;
pub(crate) mod conversion;
pub(crate) mod hints;
pub(crate) mod image;
pub(crate) mod manual;
pub(crate) mod memory;
pub(crate) mod tensor_core;
pub(crate) mod warp;

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::module::context::operands::Decoder;
pub(crate) use crate::module::context::row::ArithmeticRow;
use crate::module::context::row::{expand, sorted};
use crate::syntax::At;

/// The instructions that need more than a row.
const DECODERS: &[&[(&str, Decoder)]] = &[
    crate::module::isa::memory::load_store::DECODERS,
    crate::module::isa::memory::atomic::DECODERS,
    crate::module::isa::call::DECODERS,
    crate::module::isa::control::DECODERS,
    crate::module::isa::warp::DECODERS,
    crate::module::isa::arithmetic::compare::DECODERS,
    crate::module::isa::conversion::cvt::DECODERS,
    crate::module::isa::arithmetic::logic::DECODERS,
    crate::module::isa::arithmetic::extended_precision::DECODERS,
    crate::module::isa::tensor_core::mma::DECODERS,
    crate::module::isa::async_copy::copy::DECODERS,
    crate::module::isa::async_copy::tensor::DECODERS,
    crate::module::isa::cluster::DECODERS,
    crate::module::isa::tensor_core::wgmma::DECODERS,
    crate::module::isa::arithmetic::video::DECODERS,
    crate::module::isa::tensor_core::wmma::DECODERS,
    crate::module::isa::hints::DECODERS,
    crate::module::isa::image::DECODERS,
    crate::module::isa::memory::multimem::DECODERS,
];

/// The arithmetic rows by chapter of the manual.
const ROWS: &[&[ArithmeticRow]] = &[
    crate::module::isa::arithmetic::integer::ROWS,
    crate::module::isa::arithmetic::integer::SELDOM,
    crate::module::isa::arithmetic::float::FUSED,
    crate::module::isa::arithmetic::float::ROWS,
    crate::module::isa::arithmetic::directed_rounding::SINGLES.as_flattened(),
    crate::module::isa::arithmetic::directed_rounding::DOUBLES.as_flattened(),
    crate::module::isa::arithmetic::directed_rounding::PAIRS.as_flattened(),
    crate::module::isa::arithmetic::directed_rounding::ROWS,
    crate::module::isa::arithmetic::half_floats::ROWS,
    crate::module::isa::arithmetic::packed_halves::F16.as_flattened(),
    crate::module::isa::arithmetic::packed_halves::BF16.as_flattened(),
    crate::module::isa::arithmetic::logic::ROWS,
    crate::module::isa::arithmetic::compare::ROWS,
];

/// Instructions of the manual that are parsed but not implemented.
const UNSUPPORTED: &[&str] = &["clusterlaunchcontrol", "istypep", "tcgen05"];

/// The result of looking up an opcode.
pub(crate) enum OpcodeLookup {
    Decoder(Decoder),
    Row(&'static ArithmeticRow),
    /// The rows of this opcode, of which none has these suffixes.
    Opcode(Vec<&'static str>),
    Unsupported,
    Unknown,
}

struct OpcodeIndex {
    rows: HashMap<String, &'static ArithmeticRow>,
    /// The rows by opcode and sorted suffixes, or `None` if several rows fit.
    sorted: HashMap<String, Option<&'static ArithmeticRow>>,
    decoders: HashMap<&'static str, Decoder>,
}

/// Returns the tables of instructions by name, which are built on the first use.
fn index() -> &'static OpcodeIndex {
    static INDEX: OnceLock<OpcodeIndex> = OnceLock::new();
    INDEX.get_or_init(|| {
        let named = |row: &'static ArithmeticRow| {
            expand(row.names).into_iter().map(move |name| (name, row))
        };
        let rows: HashMap<String, &'static ArithmeticRow> = ROWS
            .iter()
            .flat_map(|chapter| chapter.iter())
            .flat_map(named)
            .collect();
        let mut by_suffix = HashMap::new();
        for (name, row) in &rows {
            by_suffix
                .entry(crate::module::isa::manual::key(name))
                // Two rows whose names differ only in the order of suffixes cannot be told apart,
                // so neither is found in another order.
                .and_modify(|other| *other = None)
                .or_insert(Some(*row));
        }

        let decoders = DECODERS
            .iter()
            .flat_map(|chapter| chapter.iter().copied())
            .collect();
        OpcodeIndex {
            rows,
            sorted: by_suffix,
            decoders,
        }
    })
}

/// Returns true if the manual has an instruction with these suffixes.
pub(crate) fn is_in_manual(opcode: &str, suffixes: &[(&str, At)]) -> bool {
    crate::module::isa::manual::has(opcode, suffixes)
}

/// Looks up an instruction whose suffixes have another order than in the manual.
pub(crate) fn find_in_any_order(opcode: &str, suffixes: &[(&str, At)]) -> OpcodeLookup {
    let key = sorted(
        opcode,
        suffixes
            .iter()
            .map(|(s, _)| s.trim_start_matches('.'))
            .collect(),
    );
    match (index().sorted.get(&key), index().decoders.get(opcode)) {
        (Some(Some(row)), _) => OpcodeLookup::Row(row),
        (_, Some(decoder)) => OpcodeLookup::Decoder(*decoder),
        _ => OpcodeLookup::Unknown,
    }
}

/// Looks up an instruction by opcode and full name.
pub(crate) fn find(opcode: &str, name: &str) -> OpcodeLookup {
    if let Some(row) = index().rows.get(name) {
        return OpcodeLookup::Row(row);
    }
    if let Some(decoder) = index().decoders.get(opcode) {
        return OpcodeLookup::Decoder(*decoder);
    }

    let known: Vec<_> = ROWS
        .iter()
        .flat_map(|c| c.iter())
        .map(|r| r.names)
        .filter(|n| n.split(['.', '{']).next() == Some(opcode))
        .collect();
    if !known.is_empty() {
        OpcodeLookup::Opcode(known)
    } else if UNSUPPORTED.contains(&opcode) {
        OpcodeLookup::Unsupported
    } else {
        OpcodeLookup::Unknown
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::module::registers::{Bank, OperandSlots, Raw, RegisterFile, Regs};

    fn rows() -> impl Iterator<Item = &'static ArithmeticRow> {
        ROWS.iter()
            .chain(&[crate::module::isa::conversion::cvt::FAST])
            .flat_map(|chapter| chapter.iter())
    }

    /// The suffixes of a form may have any order.
    #[test]
    fn forms_of_the_manual_are_names() {
        let key = manual::key("cvt.rn.satfinite.relu.e4m3x2.f32");
        assert_eq!(key, "cvt e4m3x2 f32 relu rn satfinite");
        assert!(manual::has("dp2a", &[(".lo", 0), (".u32", 0), (".s32", 0)]));
        assert!(!manual::has("popc", &[(".u32", 0)]));
    }

    #[test]
    fn every_name_is_declared_once() {
        let mut seen = HashSet::new();
        let names = rows().flat_map(|row| expand(row.names));
        let decoders = DECODERS
            .iter()
            .flat_map(|d| d.iter())
            .map(|(name, _)| format!("{name} (decoded)"));
        let unsupported = UNSUPPORTED.iter().map(|name| format!("{name} (decoded)"));
        let twice: Vec<String> = names
            .chain(decoders)
            .chain(unsupported)
            .filter(|n| !seen.insert(n.clone()))
            .collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    fn fill<R: Raw>(file: &mut RegisterFile<R>, values: [R; 4]) {
        for slot in 0..4 {
            file.lanes
                .push(std::array::from_fn(|lane| values[lane >> (2 * slot) & 3]));
            file.defined.push(if slot < 3 { u32::MAX } else { 0 });
        }
    }

    /// Rows compute something for any operands, and write their destination only in the lanes of
    /// the mask.
    #[test]
    fn every_row_runs_on_extreme_operands() {
        for row in rows() {
            for values in [
                [0, u64::MAX, 1, 1 << 63],
                [0x7fc0_0000, 0x8000_0000, 0x7f80_0000, 31],
            ] {
                let mut regs = Regs::default();
                fill(&mut regs.w32, values.map(|v| v as u32));
                fill(&mut regs.w64, values);
                let slots = OperandSlots {
                    d: 3,
                    a: 0,
                    b: 1,
                    c: 2,
                    ..OperandSlots::default()
                };
                (row.run)(&mut regs, 0x8001, &slots)
                    .unwrap_or_else(|u| panic!("{}: {u:?}", row.names));
                let wide = crate::module::context::names::bank(row.dst) == Bank::W64;
                let defined = if wide {
                    regs.w64.defined[3]
                } else {
                    regs.w32.defined[3]
                };
                assert_eq!(defined, 0x8001, "{}", row.names);
            }
        }
    }
}
