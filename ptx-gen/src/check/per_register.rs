//! A table with one value for each register of a program.

use crate::ir::{Program, Reg};

/// A table with one value for each register of a program.
pub(super) struct PerRegister<T> {
    /// The index of the first register of each class.
    pub(super) starts: [usize; 5],
    pub(super) values: Vec<T>,
}

impl<T: Clone> PerRegister<T> {
    pub(super) fn new(p: &Program, value: T) -> Self {
        let mut starts = [0; 5];
        for class in 1..5 {
            starts[class] = starts[class - 1] + p.registers[class - 1] as usize;
        }
        let all = starts[4] + p.registers[4] as usize;
        PerRegister {
            starts,
            values: vec![value; all],
        }
    }

    #[inline]
    pub(super) fn at(&mut self, reg: &Reg) -> &mut T {
        &mut self.values[self.starts[reg.kind.class() as usize] + reg.n as usize]
    }
}
