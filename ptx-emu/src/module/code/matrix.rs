//! Decoded matrix instructions whose matrices are spread over the registers of a warp: `mma`, its
//! rare forms, and `wmma`.
//!
//! Elements have the positions that the manual specifies for `mma`. The manual leaves them open for
//! `wmma`. Here, a larger `wmma` matrix consists of several `mma` fragments side by side, as on
//! devices from sm_75 on.

use crate::module::code::{Address, InstructionSpace};
use crate::syntax::types::Type;

/// `mma.sync`: `d = a * b + c` with 16 rows, 8 columns and an inner dimension of `depth`.
#[derive(Clone, Debug)]
pub(crate) struct Mma {
    pub(crate) left: Element,
    pub(crate) right: Element,
    pub(crate) depth: usize,
    pub(crate) d: Vec<u32>,
    pub(crate) a: Vec<u32>,
    pub(crate) b: Vec<u32>,
    pub(crate) c: Vec<u32>,
}

/// The element type of an operand of [`Mma`]. A register contains several elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    S8,
    U8,
    /// TF32, which uses the upper 19 bits of an `f32`.
    Tf32,
    E4m3,
    E5m2,
}

impl Element {
    /// Returns the number of elements per register.
    pub(crate) fn per_register(self) -> usize {
        4 / self.bytes()
    }

    /// Returns the size of an element in bytes.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Element::F16 | Element::Bf16 => 2,
            Element::Tf32 => 4,
            Element::S8 | Element::U8 | Element::E4m3 | Element::E5m2 => 1,
        }
    }

    /// Returns the smallest exponent of a normal float.
    pub(crate) fn least_exponent(self) -> i32 {
        match self {
            Element::F16 | Element::E5m2 => -14,
            Element::E4m3 => -6,
            _ => -126,
        }
    }

    /// Returns the same type as an [`MatrixElement`].
    pub(crate) fn item(self) -> MatrixElement {
        match self {
            Element::F16 => MatrixElement::F16,
            Element::Bf16 => MatrixElement::Bf16,
            Element::S8 => MatrixElement::S8,
            Element::U8 => MatrixElement::U8,
            Element::Tf32 => MatrixElement::Tf32,
            Element::E4m3 => MatrixElement::E4m3,
            Element::E5m2 => MatrixElement::E5m2,
        }
    }

    /// Returns the type of a register that contains such elements.
    pub(crate) fn packed(self) -> Type {
        match self {
            Element::F16 => Type::F16x2,
            Element::Bf16 => Type::Bf16x2,
            Element::S8 | Element::U8 => Type::U32,
            Element::Tf32 | Element::E4m3 | Element::E5m2 => Type::B32,
        }
    }
}

/// `ldmatrix`: one matrix of 8 by 8 16-bit values per destination register.
#[derive(Clone, Debug)]
pub(crate) struct LoadMatrix {
    pub(crate) space: InstructionSpace,
    pub(crate) address: Address,
    pub(crate) transposed: bool,
    pub(crate) d: Vec<u32>,
}

/// The element type of any matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatrixElement {
    F16,
    Bf16,
    /// TF32, which uses the upper 19 bits of an `f32`.
    Tf32,
    E4m3,
    E5m2,
    S8,
    U8,
    S4,
    U4,
    B1,
    F64,
    F32,
    S32,
}

impl MatrixElement {
    /// Returns the width of an element in bits.
    pub(crate) fn bits(self) -> usize {
        match self {
            MatrixElement::B1 => 1,
            MatrixElement::S4 | MatrixElement::U4 => 4,
            MatrixElement::S8 | MatrixElement::U8 | MatrixElement::E4m3 | MatrixElement::E5m2 => 8,
            MatrixElement::F16 | MatrixElement::Bf16 => 16,
            MatrixElement::Tf32 | MatrixElement::F32 | MatrixElement::S32 => 32,
            MatrixElement::F64 => 64,
        }
    }

    /// Returns the number of elements per register.
    pub(crate) fn each(self) -> usize {
        (32 / self.bits()).max(1)
    }
}

/// The role of a matrix in a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Left,
    Right,
    Sum,
}

/// The shape of a product: rows, columns and inner dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProductShape {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
}

impl ProductShape {
    /// Returns the number of rows and columns of a matrix.
    pub(crate) fn extent(self, role: Role) -> (usize, usize) {
        match role {
            Role::Left => (self.rows, self.depth),
            Role::Right => (self.depth, self.columns),
            Role::Sum => (self.rows, self.columns),
        }
    }

    /// Returns the shape with the inner dimension that a [sparse](Sparsity) left matrix stores.
    pub(crate) fn packed(self) -> ProductShape {
        ProductShape {
            depth: self.depth / 2,
            ..self
        }
    }

    /// Returns the number of registers per lane that contain a matrix once.
    pub(crate) fn registers(self, role: Role, item: MatrixElement) -> usize {
        let (rows, columns) = self.extent(role);
        rows * columns / 32 / item.each()
    }

    /// Returns the row and the column of element `i` of register `r` of a lane.
    ///
    /// As in the manual, `g` is `lane / 4` and `t` is `lane % 4`.
    pub(crate) fn place(
        self,
        role: Role,
        item: MatrixElement,
        (r, lane, i): (usize, usize, usize),
    ) -> (usize, usize) {
        let g = lane / 4;
        let t = lane % 4;
        let each = item.each();

        // The number of blocks of 8 rows in one fragment.
        let blocks = if self.rows >= 16 { 2 } else { 1 };
        let deep = self.depth / (4 * each).max(1);
        let r = r % self.registers(role, item);
        match role {
            Role::Left => {
                let tile = r / (blocks * deep);
                let r = r % (blocks * deep);
                (
                    8 * blocks * tile + 8 * (r % blocks) + g,
                    each * t + i + 4 * each * (r / blocks),
                )
            }
            Role::Right => (each * t + i + 4 * each * (r % deep), 8 * (r / deep) + g),
            Role::Sum => {
                let e = r * each + i;
                let across = self.columns / 8;
                let tile = e / (2 * blocks);
                let e = e % (2 * blocks);
                (
                    8 * blocks * (tile / across) + 8 * (e / 2) + g,
                    8 * (tile % across) + 2 * t + e % 2,
                )
            }
        }
    }
}

/// Returns the row and the column of element `i` of a lane for `mma.m8n8k4` on 16-bit floats.
///
/// Eight lanes compute each of the four products: lanes `4 q` to `4 q + 3`, which contain the first
/// half, and the lanes 16 above them (PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating
/// point type").
pub(crate) fn quad_place(
    f: &MatrixFragment,
    by_rows: bool,
    lane: usize,
    i: usize,
) -> (usize, usize) {
    let t = lane % 4;
    let half = lane / 16 * 4;
    match (f.role, by_rows) {
        (Role::Left, true) => (t + half, i),
        (Role::Left, false) => (i + half, t),
        (Role::Right, true) => (t, i + half),
        (Role::Right, false) => (i, t + half),
        // Accumulators of `f32` have a layout of their own, in which a lane has pairs of two rows.
        (Role::Sum, _) if f.item == MatrixElement::F32 => {
            ((t & 1) + (i & 2) + half, (i & 4) + (t & 2) + (i & 1))
        }
        (Role::Sum, _) => (t + half, i),
    }
}

/// A matrix in registers.
#[derive(Clone, Debug)]
pub(crate) struct MatrixFragment {
    pub(crate) role: Role,
    pub(crate) item: MatrixElement,
    pub(crate) slots: Vec<u32>,
}

/// The positions of the stored elements of a 2:4 sparse left matrix. The other elements are zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sparsity {
    /// The slot of the metadata.
    pub(crate) metadata: u32,
    /// The selector of the threads in each group of four that contain the metadata.
    pub(crate) selector: usize,
    /// Whether the indices must ascend.
    pub(crate) ordered: bool,
}

impl Sparsity {
    /// Returns the granularity of the manual: the number of elements of a row of which a half is
    /// stored.
    pub(crate) fn chunk(item: MatrixElement) -> usize {
        match item.bits() {
            4 => 8,
            32 => 2,
            _ => 4,
        }
    }

    /// Returns the number of threads in each group of four that contain metadata.
    pub(crate) fn threads(shape: ProductShape, item: MatrixElement) -> usize {
        shape.depth / Sparsity::chunk(item) / 4
    }
}

/// A matrix product `d = a * b + c` of any shape and type.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    pub(crate) shape: ProductShape,
    /// The positions of the stored elements of the left matrix, if it is sparse.
    pub(crate) sparsity: Option<Sparsity>,
    /// Whether the left and the right factors are row-major, if the instruction is four products of
    /// eight lanes each.
    pub(crate) quads: Option<[bool; 2]>,
    /// Whether integer sums saturate.
    pub(crate) saturate: bool,
    /// Whether a product of single bits counts the bits that differ (`.xor`) instead of those that
    /// are both set (`.and`).
    pub(crate) exclusive: bool,
    pub(crate) d: MatrixFragment,
    pub(crate) a: MatrixFragment,
    pub(crate) b: MatrixFragment,
    pub(crate) c: MatrixFragment,
}

/// `wmma.load` and `wmma.store`.
#[derive(Clone, Debug)]
pub(crate) struct WarpMatrix {
    pub(crate) shape: ProductShape,
    pub(crate) fragment: MatrixFragment,
    /// Whether the matrix is row-major.
    pub(crate) by_rows: bool,
    pub(crate) space: InstructionSpace,
    pub(crate) address: Address,
    /// The slot of the distance between rows, or columns, in elements.
    pub(crate) stride: u32,
    /// The slots of the address and of the value of one element.
    pub(crate) place: u32,
    pub(crate) value: u32,
    pub(crate) site: u32,
}
