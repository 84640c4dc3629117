//! Numbers that are part of a kernel's program.

/// An `f32` in a kernel's program. Two of them are equal if their bits are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Constant(u32);

impl Constant {
    /// Returns the constant with this value.
    pub fn new(value: f32) -> Constant {
        Constant(value.to_bits())
    }

    /// Returns the value.
    pub fn value(self) -> f32 {
        f32::from_bits(self.0)
    }

    /// Returns the value in a kernel's name: its bits.
    pub(crate) fn suffix(self) -> String {
        format!("{:08x}", self.0)
    }
}
