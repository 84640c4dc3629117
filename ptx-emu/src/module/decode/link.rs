//! Links a kernel and the functions that it may call into one code.
//!
//! Each function is decoded separately, with its own registers and local memory. Shared memory is
//! laid out for all of them first, because dynamic shared memory comes after it.

use std::collections::HashSet;

use crate::module::code::{ABSENT, KernelCode, Op};
use crate::module::context::unit::{DecodingUnit, ModuleContext};
use crate::module::control_flow;
use crate::module::decode::declarations::SharedLayout;
use crate::module::parameter::Param;
use crate::syntax::{Error, ast};

/// The result of decoding a kernel.
pub(crate) struct Decoded {
    pub(crate) code: KernelCode,
    /// The errors. A kernel with an error cannot run.
    pub(crate) errors: Vec<Error>,
    pub(crate) params: Vec<Param>,
    pub(crate) static_shared: u32,
    pub(crate) registers: u32,
    /// The functions that the kernel may call and that can run, by number.
    pub(crate) reached: Vec<u32>,
}

/// Decodes a kernel with the functions that it may call.
pub(crate) fn decode<'a>(common: &'a ModuleContext<'a>, entry: &'a ast::Entry<'a>) -> Decoded {
    let (reached, names) = common.functions.reached(entry);
    let function = |&(number, _): &(u32, bool)| common.functions.defined[number as usize];
    let entries: Vec<&ast::Entry<'_>> = std::iter::once(entry)
        .chain(reached.iter().map(function))
        .collect();
    let mut errors = Vec::new();
    let mut layout = SharedLayout::new(common.variables, &names, &mut errors);
    let mut units: Vec<DecodingUnit<'_>> = entries
        .iter()
        .map(|e| DecodingUnit::declared(common, e, &mut layout))
        .collect();

    // All units have declared their variables, so the end of the static memory is known now.
    let dynamic = layout.finish();
    errors.extend(layout.too_much(entry.at));
    let mut sites = 0;
    for (unit, entry) in units.iter_mut().zip(&entries) {
        unit.dynamic_shared = dynamic;
        unit.code.sites = sites;
        unit.instructions(entry);
        unit.errors.extend(entry.errors.iter().cloned());
        // Sites are numbered across the routines, because the caches of a worker are one array.
        sites = unit.code.sites;
    }

    for (unit, (number, by_address)) in units[1..].iter_mut().zip(&reached) {
        unit.routine.address = common.functions.address_of(*number);
        // Nothing calls this function by name, so its errors must not refuse the kernel.
        if *by_address {
            unit.spare();
        }
    }

    let params = units[0].params.drain(..).map(|(p, _)| p).collect();
    let incomplete = units.iter().any(|u| u.incomplete);
    errors.extend(units.iter_mut().flat_map(|u| u.errors.drain(..)));

    // The error was reported for another item. Without one of its own, the kernel would seem to be
    // complete.
    if incomplete && errors.is_empty() {
        let what = "an error before this prevents the kernel from running";
        errors.push(Error::ill_formed(entry.at, what));
    }

    let mut code = KernelCode {
        shared: layout.regions,
        sites,
        independent: common.target.schedules_lanes_independently(),
        ..KernelCode::default()
    };
    let whole: HashSet<u32> = units[1..]
        .iter()
        .zip(&reached)
        .filter(|(unit, _)| unit.routine.refused.is_none())
        .map(|(_, (number, _))| *number)
        .collect();
    let reached: Vec<u32> = reached.into_iter().map(|(number, _)| number).collect();
    if errors.is_empty() {
        code.routine_of = vec![ABSENT; common.functions.defined.len()];
        for (i, number) in (1..).zip(&reached) {
            code.routine_of[*number as usize] = i;
        }
        for unit in units {
            unit.append(&mut code);
        }
    }

    let registers = code
        .routines
        .first()
        .map_or(0, |r| r.slots[0] + 2 * r.slots[1]);
    let reached = reached
        .into_iter()
        .filter(|number| whole.contains(number))
        .collect();
    Decoded {
        code,
        errors,
        params,
        static_shared: layout.total as u32,
        registers,
        reached,
    }
}

impl<'a> DecodingUnit<'a> {
    /// Declares the names of a kernel or function.
    fn declared(
        common: &'a ModuleContext<'a>,
        entry: &'a ast::Entry<'a>,
        layout: &mut SharedLayout<'a>,
    ) -> DecodingUnit<'a> {
        let mut unit = DecodingUnit::new(common, entry);
        if entry.function {
            unit.routine.returns = unit.formals(&entry.returns);
            unit.routine.params = unit.formals(&entry.params);
            if unit.multiplies {
                unit.fail_unsupported(entry.at, "wgmma in a function");
            }
        } else {
            unit.parameters(&entry.params);
        }

        unit.declare(entry, layout);
        unit
    }

    /// Refuses only the calls of a function, instead of all kernels that may call it through its
    /// address.
    fn spare(&mut self) {
        if self.errors.iter().any(Error::is_ill_formed) || self.incomplete {
            return;
        }
        self.routine.refused = self.errors.first().map(|e| e.what.clone());
        if self.routine.refused.is_some() {
            self.errors.clear();
            self.code.ops.clear();
            self.code.places.clear();
            self.code.mentions.clear();
            self.code.mention_ends.clear();
            let end = ast::Entry {
                name: "",
                ..ast::Entry::default()
            };
            self.end(&end);
        }
    }

    /// Appends the code to `code`.
    fn append(mut self, code: &mut KernelCode) {
        self.watch();
        control_flow::join(&mut self.code.ops);

        // Branches were resolved within the routine, so they move by the code before it.
        let start = code.ops.len() as u32;
        for step in self.code.ops.iter_mut() {
            shift(&mut step.op, start);
        }

        self.routine.start = start;
        self.routine.names.sort();
        let mentioned = code.mentions.len() as u32;
        self.code
            .mention_ends
            .resize(self.code.ops.len(), self.code.mentions.len() as u32);
        code.mention_ends
            .extend(self.code.mention_ends.iter().map(|end| end + mentioned));
        code.mentions.append(&mut self.code.mentions);
        code.ops.append(&mut self.code.ops);
        code.places.append(&mut self.code.places);
        code.uses.append(&mut self.code.uses);
        code.routines.push(self.routine);
    }
}

/// Adds an offset to the targets of a branch.
fn shift(op: &mut Op, by: u32) {
    let moved = |join: &mut u32| {
        *join = if *join == control_flow::NEVER {
            control_flow::NEVER
        } else {
            *join + by
        }
    };
    match op {
        Op::Branch { target, join } => {
            *target += by;
            moved(join);
        }
        Op::BranchIndexed { targets, join, .. } => {
            for target in targets {
                *target += by;
            }
            moved(join);
        }
        _ => {}
    }
}
