//! Decoded video instructions.

/// The operation of a video instruction on two elements.
pub(crate) type VideoOp = fn(i128, i128) -> i128;

/// A video instruction: an operation on elements of `b:a`, followed by an operation with `c`.
#[derive(Clone, Debug)]
pub(crate) struct Video {
    pub(crate) f: VideoOp,
    /// Whether `d`, `a` and `b` are signed.
    pub(crate) signed: [bool; 3],
    pub(crate) saturate: bool,
    /// For a shift: whether the distance wraps instead of being clamped to 32.
    pub(crate) wrap: Option<bool>,
    pub(crate) second: Second,
    /// Whether `.min` and `.max` see 32 bits of the result. This holds for `vadd`, `vsub` and
    /// saturating shifts.
    pub(crate) narrow: bool,
    pub(crate) d: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: Option<u32>,
    /// The positions of the elements of each operation, in `d` and twice in `b:a`.
    pub(crate) elements: Vec<[VideoElement; 3]>,
}

/// A bit field of a register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VideoElement {
    pub(crate) place: u32,
    pub(crate) bits: u32,
}

/// The second operation of a video instruction, on its results and `c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    Nothing,
    /// The results replace elements of `c`.
    Merge,
    Add,
    Min,
    Max,
    /// `vmad`: adds `c` and a carry to the product, and then shifts it right.
    Product {
        plus_one: bool,
        shift: u32,
    },
}
