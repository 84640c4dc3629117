//! Decoded video instructions.

/// An operation of a video instruction on two elements.
pub(crate) type VideoOp = fn(i128, i128) -> i128;

/// A video instruction: an operation on elements of `b:a`, and what becomes of the results.
#[derive(Clone, Debug)]
pub(crate) struct Video {
    pub(crate) f: VideoOp,
    /// Whether d, a and b are signed.
    pub(crate) signed: [bool; 3],
    pub(crate) saturate: bool,
    /// Of a shift: whether the distance wraps, or is at most 32.
    pub(crate) wrap: Option<bool>,
    pub(crate) second: Second,
    /// Whether `.min` and `.max` see 32 bits of the result: `vadd`, `vsub`, and shifts with `.sat`.
    pub(crate) narrow: bool,
    pub(crate) d: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: Option<u32>,
    /// Where in d, and where in `b:a`, the elements of each operation are.
    pub(crate) elements: Vec<[VideoElement; 3]>,
}

/// Some bits of a register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VideoElement {
    pub(crate) place: u32,
    pub(crate) bits: u32,
}

/// What a video instruction does with its results and `c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    Nothing,
    /// The results replace elements of `c`.
    Merge,
    Add,
    Min,
    Max,
    /// `vmad`: `c` and one more is added to the product, which is then shifted right.
    Product {
        plus_one: bool,
        shift: u32,
    },
}
