//! Predicates: operands, comparisons and logic.

use crate::module::code::instruction::{Combine, PairTest, ResolvedGuard, SetP, Test};
use crate::module::code::operand::PredSource;
use crate::module::lane_mask::set_bit;
use crate::module::registers::{Regs, Undefined};

/// Returns the lanes of `mask` in which a predicate is true.
pub(crate) fn pred(regs: &Regs, source: PredSource, mask: u32) -> Result<u32, Undefined> {
    match source {
        PredSource::Register {
            slot,
            negated: false,
        } => Ok(regs.pred(slot, mask)? & mask),
        PredSource::Register {
            slot,
            negated: true,
        } => Ok(!regs.pred(slot, mask)? & mask),
        PredSource::Constant(true) => Ok(mask),
        PredSource::Constant(false) => Ok(0),
    }
}

pub(crate) fn guarded(regs: &Regs, guard: ResolvedGuard, mask: u32) -> Result<u32, Undefined> {
    pred(
        regs,
        PredSource::Register {
            slot: guard.pred,
            negated: guard.negated,
        },
        mask,
    )
}

pub(crate) fn combine(
    regs: &Regs,
    mask: u32,
    holds: u32,
    with: Option<(Combine, PredSource)>,
) -> Result<u32, Undefined> {
    let Some((how, source)) = with else {
        return Ok(holds);
    };
    let other = pred(regs, source, mask)?;
    Ok(match how {
        Combine::And => holds & other,
        Combine::Or => holds | other,
        Combine::Xor => holds ^ other,
    })
}

pub(crate) fn set_predicates(regs: &mut Regs, mask: u32, s: &SetP) -> Result<(), Undefined> {
    let t = &s.test;
    let holds = (t.compare)(regs, mask, t.a, t.b)?;
    let p = combine(regs, mask, holds, t.with)?;
    let q = combine(regs, mask, !holds, t.with)?;
    if let Some(slot) = s.p {
        regs.set_pred(slot, mask, p);
    }
    if let Some(slot) = s.q {
        regs.set_pred(slot, mask, q);
    }

    Ok(())
}

pub(crate) fn set_values(
    regs: &mut Regs,
    mask: u32,
    t: &Test,
    d: u32,
    one: u32,
) -> Result<(), Undefined> {
    let holds = (t.compare)(regs, mask, t.a, t.b)?;
    let holds = combine(regs, mask, holds, t.with)?;
    let out: [u32; 32] = std::array::from_fn(|i| if holds >> i & 1 != 0 { one } else { 0 });
    regs.set(d, mask, &out);
    Ok(())
}

/// Returns the lanes in which a comparison of pairs holds, for the low and for the high halves.
fn compare_pairs(regs: &Regs, mask: u32, t: &PairTest) -> Result<[u32; 2], Undefined> {
    let a = regs.get::<u32>(t.a, mask)?;
    let b = regs.get::<u32>(t.b, mask)?;
    let outcome = |a: f32, b: f32| a.partial_cmp(&b).map_or(3, |order| order as i8 + 1);
    let holds = |half: u32| {
        let of = |x: u32| (t.wide)((x >> (16 * half)) as u16);
        (0..32)
            .filter(|i| t.outcomes >> outcome(of(a[*i]), of(b[*i])) & 1 != 0)
            .fold(0, set_bit)
    };
    Ok([
        combine(regs, mask, holds(0), t.with)?,
        combine(regs, mask, holds(1), t.with)?,
    ])
}

pub(crate) fn set_pair_predicates(
    regs: &mut Regs,
    mask: u32,
    t: &PairTest,
    to: [Option<u32>; 2],
) -> Result<(), Undefined> {
    let holds = compare_pairs(regs, mask, t)?;
    to.into_iter().zip(holds).for_each(|(to, holds)| {
        if let Some(slot) = to {
            regs.set_pred(slot, mask, holds);
        }
    });
    Ok(())
}

pub(crate) fn set_pair(
    regs: &mut Regs,
    mask: u32,
    t: &PairTest,
    d: u32,
    one: u32,
) -> Result<(), Undefined> {
    let [low, high] = compare_pairs(regs, mask, t)?;
    let part = |holds: u32, i: usize, of: u32| if holds >> i & 1 != 0 { one & of } else { 0 };
    let out: [u32; 32] = std::array::from_fn(|i| part(low, i, 0xffff) | part(high, i, 0xffff_0000));
    regs.set(d, mask, &out);
    Ok(())
}

pub(crate) fn logic(
    regs: &mut Regs,
    mask: u32,
    table: u8,
    d: u32,
    a: PredSource,
    b: PredSource,
) -> Result<(), Undefined> {
    let a = pred(regs, a, mask)?;
    let b = pred(regs, b, mask)?;
    let cases = [!a & !b, !a & b, a & !b, a & b];
    let value = (0..4)
        .filter(|i| table >> i & 1 != 0)
        .fold(0, |value, i| value | cases[i]);
    regs.set_pred(d, mask, value);
    Ok(())
}
