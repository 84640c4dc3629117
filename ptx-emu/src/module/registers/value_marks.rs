//! Marks that lanes of registers carry in addition to their values, for checks that follow values.
//! Few registers are marked at a time, so they are stored by register number.
//!
//! A mark is valid only as long as the register has the value for which it was set. Instructions
//! that do not handle marks therefore need not remove them.

use rustc_hash::FxHashMap;

/// The mark of a lane: the value for which it was set, and a number other than 0.
#[derive(Clone, Copy, Debug, Default)]
struct LaneMark {
    bits: u64,
    of: u32,
}

/// The marks of registers, by register.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks(FxHashMap<u64, [LaneMark; 32]>);

impl Marks {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the mark of a lane of a register with the value `bits`, or 0 if there is none.
    pub(crate) fn of(&self, key: u64, lane: usize, bits: u64) -> u32 {
        self.0
            .get(&key)
            .map(|marks| marks[lane])
            .filter(|mark| mark.bits == bits)
            .map_or(0, |mark| mark.of)
    }

    /// Sets the mark of a lane of a register with the value `bits`. 0 removes the mark.
    pub(crate) fn set(&mut self, key: u64, lane: usize, bits: u64, of: u32) {
        match of {
            0 => {
                _ = self
                    .0
                    .get_mut(&key)
                    .map(|marks| marks[lane] = LaneMark::default())
            }
            _ => self.0.entry(key).or_default()[lane] = LaneMark { bits, of },
        }
    }

    /// Copies the marks of some lanes.
    pub(crate) fn take_lanes(&mut self, other: &Marks, lanes: u32) {
        let in_lanes = |lane: usize| lanes >> lane & 1 != 0;
        for marks in self.0.values_mut() {
            (0..32)
                .filter(|lane| in_lanes(*lane))
                .for_each(|lane| marks[lane] = LaneMark::default());
        }
        for (key, marks) in &other.0 {
            let own = self.0.entry(*key).or_default();
            (0..32)
                .filter(|lane| in_lanes(*lane))
                .for_each(|lane| own[lane] = marks[lane]);
        }
    }
}
