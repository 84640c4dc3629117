//! Variables of modules: their initial bytes, and the addresses among them.

/// A `.global` or `.const` variable of a module.
#[derive(Debug)]
pub(crate) struct Static {
    pub(crate) name: String,
    pub(crate) constant: bool,
    /// Whether it is a `.shared` one, which only keeps its number: it has no bytes and no address here.
    pub(crate) shared: bool,
    pub(crate) bytes: u64,
    /// Initial bytes; shorter than the variable when the rest is zero.
    pub(crate) init: Vec<u8>,
    /// Addresses of variables among the initial bytes.
    pub(crate) addresses: Vec<Relocation>,
}

/// An address among the initial bytes of a variable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    /// Where it goes, and how many bytes of it.
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    /// The variable, by number; without one only the offset counts, as for a function.
    pub(crate) variable: Option<u32>,
    /// What is added to its address.
    pub(crate) added: u64,
    /// The bits of it that count, moved down.
    pub(crate) mask: u64,
}

impl Relocation {
    /// The bytes, when the variables lie at these addresses.
    pub(crate) fn value(&self, addresses: &[u64]) -> u64 {
        let base = self.variable.map_or(0, |i| addresses[i as usize]);
        let masked = base.wrapping_add(self.added) & self.mask;
        masked >> self.mask.trailing_zeros().min(63)
    }
}
