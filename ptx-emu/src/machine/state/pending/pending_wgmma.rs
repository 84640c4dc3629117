//! Matmuls of warpgroups that have not completed, and the matrices that they multiply.

use crate::machine::state::pending::tensor_layout::swizzled;
use crate::machine::state::warp::Warp;
use crate::module::code::asynchronous::Wgmma;
use crate::module::code::matrix::Element;

/// The number of rows per warp.
pub(crate) const ROWS: usize = 16;

/// The size of the inner dimension of a left matrix in bytes.
pub(crate) const DEPTH: usize = 32;

/// A pending `wgmma`.
#[derive(Clone, Debug)]
pub(crate) struct PendingWgmma {
    pub(crate) pc: u32,
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) add: bool,
    /// The columns of the stored elements of each row, for a sparse left matrix.
    pub(crate) columns: Vec<Vec<usize>>,
    pub(crate) version: u64,
    /// The number of its group among the groups of the warp.
    pub(crate) group: u32,
    pub(crate) done: bool,
}

/// The pending `wgmma` of a warp.
#[derive(Clone, Debug, Default)]
pub(crate) struct WarpProducts {
    pub(crate) pending: Vec<PendingWgmma>,
    /// The number of committed groups.
    pub(crate) groups: u32,
    pub(crate) fenced: bool,
    /// The registers that were written and read since the last fence, with the instruction.
    pub(crate) written: Vec<(u32, u32)>,
    pub(crate) read: Vec<(u32, u32)>,
    /// The number of steps of the warpgroup that the warp has executed.
    pub(crate) steps: usize,
}

/// The pending `wgmma` of all warps of a cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterWgmmas {
    pub(crate) warps: Vec<WarpProducts>,
    /// The steps of each warpgroup as its first warp executed them: instruction, descriptors and
    /// warp.
    pub(crate) steps: Vec<Vec<(u32, u64, u64, u32)>>,
}

impl ClusterWgmmas {
    /// Resets the state for new blocks.
    pub(crate) fn start(&mut self, warps: usize) {
        self.warps.clear();
        self.warps.resize(warps, WarpProducts::default());
        self.steps.clear();
        self.steps.resize(warps.div_ceil(4), Vec::new());
    }

    /// Returns a `wgmma` that its warp has not waited for: the instruction and the thread.
    pub(crate) fn forgotten(&self, of: impl Fn(u32) -> bool) -> Option<(u32, u32)> {
        let warps = self
            .warps
            .iter()
            .enumerate()
            .filter(|(w, _)| of(*w as u32 * 32));
        warps
            .filter_map(|(w, own)| Some((own.pending.first()?.pc, w as u32 * 32)))
            .next()
    }
}

/// A matrix in shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    /// The address in the memory of the block.
    pub(crate) start: u64,
    leading: u64,
    stride: u64,
    pub(crate) swizzle: u32,
    /// Whether the inner dimension is not contiguous.
    pub(crate) transposed: bool,
    /// The size of the inner dimension of a product in bytes.
    pub(crate) bytes: usize,
}

impl Matrix {
    /// Decodes a descriptor (PTX ISA, "Matrix Descriptor Format").
    fn new(bits: u64, transposed: bool, bytes: usize) -> Matrix {
        let field = |at: u32| (bits >> at & 0x3fff) << 4;
        let swizzle = [0, 128, 64, 32][(bits >> 62) as usize];
        Matrix {
            start: field(0),
            leading: field(16),
            stride: field(32),
            swizzle,
            transposed,
            bytes,
        }
    }

    /// Returns the left operand of a product.
    pub(crate) fn left(bits: u64, p: &Wgmma) -> Matrix {
        Matrix::new(bits, p.transposed[0], DEPTH)
    }

    /// Returns the right operand of a product.
    pub(crate) fn right(bits: u64, p: &Wgmma) -> Matrix {
        let times = if p.sparsity.is_some() { 2 } else { 1 };
        Matrix::new(bits, p.transposed[1], times * DEPTH)
    }

    /// Returns the error of the descriptor, if it has one.
    pub(crate) fn problem(&self, bits: u64, element: Element) -> Option<String> {
        let repeats = 8 * u64::from(self.swizzle.max(16));
        let within = self.start % repeats;
        match () {
            _ if bits >> 49 & 7 != 0 => {
                Some("unsupported in ptx-emu: a descriptor with a base offset".into())
            }
            _ if self.transposed && element.bytes() != 2 => {
                Some("a matrix is read along its rows whose elements do not have 16 bits".into())
            }
            _ if self.swizzle != 0 && within >= u64::from(self.swizzle) => Some(format!(
                "a matrix at 0x{:x}: with a swizzle of {} bytes, it begins in the first row of {repeats} bytes",
                self.start, self.swizzle
            )),
            _ if !self.transposed && self.bytes > DEPTH && self.leaves_row(within) => {
                Some(format!(
                    "unsupported in ptx-emu: {} bytes of the inner dimension from byte {within} of a row of {} on",
                    self.bytes, self.swizzle
                ))
            }
            _ => None,
        }
    }

    /// Returns true if a product would leave a row of the swizzle pattern.
    fn leaves_row(&self, within: u64) -> bool {
        self.swizzle != 0 && within + self.bytes as u64 > u64::from(self.swizzle)
    }

    /// Returns the address of a unit of 16 bytes.
    ///
    /// If the inner dimension is contiguous, it starts at byte `16 * unit` of row `outer`.
    /// Otherwise it starts at byte `16 * unit` of row `outer` of the inner dimension.
    fn unit(&self, outer: u64, unit: u64) -> u64 {
        let span = u64::from(self.swizzle);
        let plain = match (self.transposed, self.swizzle) {
            (false, 0) => {
                self.start + outer / 8 * self.stride + outer % 8 * 16 + unit * self.leading
            }
            (false, _) => self.start + outer / 8 * self.stride + outer % 8 * span + 16 * unit,
            // Here the two distances stand the other way round.
            (true, 0) => {
                self.start + unit * self.stride + outer / 8 * self.leading + outer % 8 * 16
            }
            (true, _) => {
                let panel = 16 * unit / span;
                let within = 16 * unit % span;
                self.start
                    + panel * self.leading
                    + outer / 8 * self.stride
                    + outer % 8 * span
                    + within
            }
        };
        swizzled(plain, self.swizzle)
    }

    /// Returns the units of `outer` rows or columns, starting at `first`.
    pub(crate) fn units(&self, first: usize, outer: usize, element: Element) -> Vec<u64> {
        let first = first as u64;
        let outer = outer as u64;
        let bytes = element.bytes() as u64;
        let depth = self.bytes as u64 / bytes;
        let across = self.bytes as u64 / 16;
        if self.transposed {
            let units = first * bytes / 16..(first + outer) * bytes / 16;
            (0..depth)
                .flat_map(|k| units.clone().map(move |u| self.unit(k, u)))
                .collect()
        } else {
            (first..first + outer)
                .flat_map(|r| (0..across).map(move |u| self.unit(r, u)))
                .collect()
        }
    }
}

/// Returns the number of rows of the left matrix that belong to earlier warps of the group.
pub(crate) fn rows_above(w: &Warp) -> usize {
    ROWS * (w.number as usize % 4)
}
