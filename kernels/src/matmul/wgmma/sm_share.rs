//! The share of a multiprocessor that a matmul block takes: warpgroups, registers, and stages in
//! shared memory.

/// The division of a multiprocessor among blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SmShare {
    /// One block, which computes 128 rows of a matrix at a time.
    Whole,
    /// Two blocks of 128 rows each. One multiplies while the other begins or ends. Up to 64 tokens.
    Half,
    /// One block of 256 rows. Up to 64 tokens.
    Tall,
}

/// The bytes of shared memory of a block on sm_90.
const SHARED: u32 = 232_448;
/// The bytes of shared memory of each of two blocks on a multiprocessor.
const HALF_SHARED: u32 = 115_712;

impl SmShare {
    /// Returns the number of warpgroups that multiply.
    pub(crate) const fn groups(self) -> u32 {
        match self {
            SmShare::Whole | SmShare::Half => 2,
            SmShare::Tall => 4,
        }
    }

    /// Returns the number of blocks that fit on a multiprocessor.
    pub const fn resident(self) -> u32 {
        match self {
            SmShare::Whole | SmShare::Tall => 1,
            SmShare::Half => 2,
        }
    }

    /// Returns the registers of a thread that multiplies, and of a thread that copies
    /// (`setmaxnreg`).
    pub(crate) const fn registers(self) -> [u32; 2] {
        match self {
            SmShare::Whole => [232, 40],
            SmShare::Half => [104, 24],
            SmShare::Tall => [112, 24],
        }
    }

    /// Returns the largest number of tokens whose sums fit in the registers.
    pub(crate) const fn most_tokens(self) -> u32 {
        match self {
            SmShare::Whole => 256,
            SmShare::Half | SmShare::Tall => 64,
        }
    }

    /// Returns the maximum bytes of shared memory of a block.
    pub(crate) const fn shared(self) -> u32 {
        match self {
            SmShare::Whole | SmShare::Tall => SHARED,
            SmShare::Half => HALF_SHARED,
        }
    }

    /// Returns the part of a kernel's name.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            SmShare::Whole => "",
            SmShare::Half => "_half",
            SmShare::Tall => "_tall",
        }
    }
}
