//! Variables of modules: their initial bytes and the relocations in them.

/// A `.global` or `.const` variable of a module.
#[derive(Debug)]
pub(crate) struct Static {
    pub(crate) name: String,
    pub(crate) constant: bool,
    /// Whether it is a `.shared` variable. Such a variable only keeps its number, because it has
    /// neither initial bytes nor an address here.
    pub(crate) shared: bool,
    pub(crate) bytes: u64,
    /// The initial bytes. All further bytes of the variable are zero.
    pub(crate) init: Vec<u8>,
    /// The addresses of variables in the initial bytes.
    pub(crate) addresses: Vec<Relocation>,
}

/// An address in the initial bytes of a variable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    /// The offset and the size of the address in the initial bytes.
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    /// The number of the variable, or `None` for an absolute value such as the address of a
    /// function.
    pub(crate) variable: Option<u32>,
    /// The value that is added to the address of the variable.
    pub(crate) added: u64,
    /// The bits of the address that are stored, shifted down to bit 0.
    pub(crate) mask: u64,
}

impl Relocation {
    /// Returns the value to store if the variables have these addresses.
    pub(crate) fn value(&self, addresses: &[u64]) -> u64 {
        let base = self.variable.map_or(0, |i| addresses[i as usize]);
        let masked = base.wrapping_add(self.added) & self.mask;
        masked >> self.mask.trailing_zeros().min(63)
    }
}
