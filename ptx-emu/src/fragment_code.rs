//! Decoded matrix instructions whose matrices are spread over the registers of a warp: `mma`, its forms that are seldom,
//! and `wmma`.
//!
//! Where an element of [`Shape`] lies is that of `mma`. Of `wmma` the manual leaves it open; here a matrix with more rows or columns is
//! several of those of `mma` side by side, as on devices from sm_75 on.

use crate::code::{Address, Space};
use crate::parse::types::Type;

/// `mma.sync`: `d = a * b + c` with 16 rows, 8 columns and `depth` products each.
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

/// What the elements of a matrix are; a register holds several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    S8,
    U8,
    /// The upper 19 bits of a single.
    Tf32,
    E4m3,
    E5m2,
}

impl Element {
    /// Elements that one register holds.
    pub(crate) fn per_register(self) -> usize {
        4 / self.bytes()
    }

    /// Bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Element::F16 | Element::Bf16 => 2,
            Element::Tf32 => 4,
            Element::S8 | Element::U8 | Element::E4m3 | Element::E5m2 => 1,
        }
    }

    /// The least exponent of a float.
    pub(crate) fn least_exponent(self) -> i32 {
        match self {
            Element::F16 | Element::E5m2 => -14,
            Element::E4m3 => -6,
            _ => -126,
        }
    }

    /// The same as what a matrix has of any type.
    pub(crate) fn item(self) -> Item {
        match self {
            Element::F16 => Item::F16,
            Element::Bf16 => Item::Bf16,
            Element::S8 => Item::S8,
            Element::U8 => Item::U8,
            Element::Tf32 => Item::Tf32,
            Element::E4m3 => Item::E4m3,
            Element::E5m2 => Item::E5m2,
        }
    }

    /// The type of a register that holds them.
    pub(crate) fn packed(self) -> Type {
        match self {
            Element::F16 => Type::F16x2,
            Element::Bf16 => Type::Bf16x2,
            Element::S8 | Element::U8 => Type::U32,
            Element::Tf32 | Element::E4m3 | Element::E5m2 => Type::B32,
        }
    }
}

/// `ldmatrix`: as many matrices of 8 by 8 halves as there are registers.
#[derive(Clone, Debug)]
pub(crate) struct LoadMatrix {
    pub(crate) space: Space,
    pub(crate) address: Address,
    pub(crate) transposed: bool,
    pub(crate) d: Vec<u32>,
}

/// What the elements of a matrix are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    F16,
    Bf16,
    /// The upper 19 bits of a single.
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

impl Item {
    /// Bits of an element.
    pub(crate) fn bits(self) -> usize {
        match self {
            Item::B1 => 1,
            Item::S4 | Item::U4 => 4,
            Item::S8 | Item::U8 | Item::E4m3 | Item::E5m2 => 8,
            Item::F16 | Item::Bf16 => 16,
            Item::Tf32 | Item::F32 | Item::S32 => 32,
            Item::F64 => 64,
        }
    }

    /// Elements that a register holds.
    pub(crate) fn each(self) -> usize {
        (32 / self.bits()).max(1)
    }
}

/// Which matrix of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Left,
    Right,
    Sum,
}

/// Rows and columns of the sums, and the products that each adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
}

impl Shape {
    /// Rows and columns of a matrix.
    pub(crate) fn extent(self, role: Role) -> (usize, usize) {
        match role {
            Role::Left => (self.rows, self.depth),
            Role::Right => (self.depth, self.columns),
            Role::Sum => (self.rows, self.columns),
        }
    }

    /// With as many elements of a row as a [sparse](Sparsity) left matrix stores.
    pub(crate) fn packed(self) -> Shape {
        Shape {
            depth: self.depth / 2,
            ..self
        }
    }

    /// Registers of a lane that hold a matrix once.
    pub(crate) fn registers(self, role: Role, item: Item) -> usize {
        let (rows, columns) = self.extent(role);
        rows * columns / 32 / item.each()
    }

    /// Row and column of element `i` of register `r` of a lane, with g = lane / 4 and t = lane mod 4.
    pub(crate) fn place(
        self,
        role: Role,
        item: Item,
        (r, lane, i): (usize, usize, usize),
    ) -> (usize, usize) {
        let (g, t, each) = (lane / 4, lane % 4, item.each());
        // Blocks of 8 rows that belong together.
        let blocks = if self.rows >= 16 { 2 } else { 1 };
        let deep = self.depth / (4 * each).max(1);
        let r = r % self.registers(role, item);
        match role {
            Role::Left => {
                let (tile, r) = (r / (blocks * deep), r % (blocks * deep));
                (
                    8 * blocks * tile + 8 * (r % blocks) + g,
                    each * t + i + 4 * each * (r / blocks),
                )
            }
            Role::Right => (each * t + i + 4 * each * (r % deep), 8 * (r / deep) + g),
            Role::Sum => {
                let (e, across) = (r * each + i, self.columns / 8);
                let (tile, e) = (e / (2 * blocks), e % (2 * blocks));
                (
                    8 * blocks * (tile / across) + 8 * (e / 2) + g,
                    8 * (tile % across) + 2 * t + e % 2,
                )
            }
        }
    }
}

/// `mma.m8n8k4` of halves: row and column of element `i` of a lane, in the product that its eight lanes compute. These are
/// lanes `4 q` to `4 q + 3`, which have the first half, and those 16 behind them (manual, "Matrix Fragments for
/// mma.m8n8k4 with .f16 floating point type").
pub(crate) fn quad_place(f: &Fragment, by_rows: bool, lane: usize, i: usize) -> (usize, usize) {
    let (t, half) = (lane % 4, lane / 16 * 4);
    match (f.role, by_rows) {
        (Role::Left, true) => (t + half, i),
        (Role::Left, false) => (i + half, t),
        (Role::Right, true) => (t, i + half),
        (Role::Right, false) => (i, t + half),
        (Role::Sum, _) if f.item == Item::F32 => {
            ((t & 1) + (i & 2) + half, (i & 4) + (t & 2) + (i & 1))
        }
        (Role::Sum, _) => (t + half, i),
    }
}

/// A matrix in registers.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub(crate) role: Role,
    pub(crate) item: Item,
    pub(crate) slots: Vec<u32>,
}

/// Where the elements of a left matrix belong of which half are stored, the others being zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sparsity {
    /// Slot of the metadata.
    pub(crate) metadata: u32,
    /// Which threads of each four hold it.
    pub(crate) selector: usize,
    /// Whether indices must ascend.
    pub(crate) ordered: bool,
}

impl Sparsity {
    /// Elements of a row of which two, or one, or two pairs are stored: the granularity of the manual.
    pub(crate) fn chunk(item: Item) -> usize {
        match item.bits() {
            4 => 8,
            32 => 2,
            _ => 4,
        }
    }

    /// Threads of each four that hold metadata: four bits for each chunk of two rows.
    pub(crate) fn threads(shape: Shape, item: Item) -> usize {
        shape.depth / Sparsity::chunk(item) / 4
    }
}

/// `d = a * b + c`
#[derive(Clone, Debug)]
pub(crate) struct Product {
    pub(crate) shape: Shape,
    /// Of which left elements are stored, if not all.
    pub(crate) sparsity: Option<Sparsity>,
    /// If it is four products, each by eight lanes: whether their left and right factors lie by rows in these.
    pub(crate) quads: Option<[bool; 2]>,
    /// Sums of integers are clamped.
    pub(crate) saturate: bool,
    /// Of bits: whether those are counted that differ, not those that are both set.
    pub(crate) exclusive: bool,
    pub(crate) d: Fragment,
    pub(crate) a: Fragment,
    pub(crate) b: Fragment,
    pub(crate) c: Fragment,
}

/// `wmma.load` and `wmma.store`
#[derive(Clone, Debug)]
pub(crate) struct WarpMatrix {
    pub(crate) shape: Shape,
    pub(crate) fragment: Fragment,
    /// Whether the elements of a row lie one after another, not those of a column.
    pub(crate) by_rows: bool,
    pub(crate) space: Space,
    pub(crate) address: Address,
    /// Slot of the number of elements from a row, or column, to the next.
    pub(crate) stride: u32,
    /// Slots for the address and the value of an element.
    pub(crate) place: u32,
    pub(crate) value: u32,
    pub(crate) site: u32,
}
