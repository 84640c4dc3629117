//! The matmuls of two matrices with the same tokens as one kernel: queries and keys in one format,
//! and values in another.
//!
//! Values have few rows. A separate kernel for them would take longer to begin and to end than to
//! multiply. In this kernel, some blocks process the values while the others process the rest.

use super::kernel;
use super::sm_share::SmShare;
use super::stages::Stages;
use crate::format::tile;
use crate::matmul::Epilogue;
use crate::matmul::definition::{Matmul, MatmulArgs};
use crate::shared::Contract;
use ptx_gen::*;

/// Kernel that multiplies two matrices. Both matmuls must have the same
/// [epilogue](Epilogue::Append) and overlap, one block per multiprocessor, and tiles with equally
/// many columns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MatmulPair {
    /// The matmul of the first rows.
    pub first: Matmul,
    /// The matmul of the rows after them.
    pub second: Matmul,
}

args! {
    /// Arguments of [`MatmulPair`]. `first` contains the arguments that both share. Its `y_rows`
    /// are the rows of both, and its `append` describes all results.
    pub struct MatmulPairArgs {
        /// The arguments of the first matmul.
        first: MatmulArgs,
        /// `[rows2, n]`: the second matrix as tiles
        w2: In<u8>,
        /// `[rows2]`: the powers of two of the second matrix, see `unit`
        unit2: In<f32>,
        /// `[n / 64, capacity, 64]`: the activations in the second matrix's column order
        x2: In<f16>,
        /// The number of rows of the second matrix, which follow the rows of the first.
        rows2: u32,
        /// The partial sums of the second matmul, separate from `partials`.
        partials2: InOut<f32>,
        /// The tickets of the second matmul, separate from `tickets`.
        tickets2: InOut<u32>,
    }
}

/// Creates the arguments of the second matmul.
macro_rules! second {
    ($a:expr) => {
        MatmulArgs {
            w: $a.w2,
            unit: $a.unit2,
            x: $a.x2,
            rows: $a.rows2,
            y_first: $a.first.y_first + $a.first.rows,
            partials: $a.partials2,
            tickets: $a.tickets2,
            ..$a.first
        }
    };
}

impl MatmulPair {
    /// Returns the pair, or `None` if one kernel cannot process both.
    pub fn of(first: Matmul, second: Matmul) -> Option<MatmulPair> {
        let columns = |matmul: &Matmul| tile::of(matmul.format).columns;
        let whole = [first, second]
            .iter()
            .all(|matmul| matmul.form == SmShare::Whole);
        let same = first.epilogue == second.epilogue && first.overlap == second.overlap;
        let appends = matches!(first.epilogue, Epilogue::Append(_));
        if whole && same && appends && columns(&first) == columns(&second) {
            Some(MatmulPair { first, second })
        } else {
            None
        }
    }

    /// Returns the number of items of the blocks.
    pub fn items(&self, [rows, rows2]: [u32; 2], tokens: u32) -> u32 {
        self.first
            .items(rows, tokens)
            .saturating_add(self.second.items(rows2, tokens))
    }
}

impl KernelDef for MatmulPair {
    type Args<S: Side> = MatmulPairArgs<S>;

    fn name(&self) -> String {
        format!(
            "{}_and_{}",
            KernelDef::name(&self.first),
            self.second.name_of_matrix().concat()
        )
    }

    fn block(&self) -> u32 {
        KernelDef::block(&self.first)
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        KernelDef::blocks_per_sm(&self.first)
    }

    fn grid(&self, a: &MatmulPairArgs<Shape>) -> Result<Grid, ShapeError> {
        let fits = MatmulPair::of(self.first, self.second).is_some();
        self.require(fits, || {
            "the kernel's matmuls differ in epilogue, overlap or tile width, or do not append"
                .into()
        })?;
        self.range("rows", a.first.rows, 1, u32::MAX - a.first.y_first)?;
        let named = |which: &str, e: ShapeError| ShapeError {
            kernel: KernelDef::name(self),
            what: format!("the {which} matmul: {}", e.what),
        };
        self.first
            .check_all(&a.first)
            .map_err(|e| named("first", e))?;
        self.second
            .check_all(&second!(a))
            .map_err(|e| named("second", e))?;
        let blocks = a
            .first
            .blocks
            .min(self.items([a.first.rows, a.rows2], a.first.tokens_given));
        Ok(Grid {
            shared: self.stages().shared(),
            ..Grid::line(blocks)
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: MatmulPairArgs<Dev<'k>>) {
        kernel::program(
            k,
            self.stages(),
            &[(self.first, a.first), (self.second, second!(a))],
        );
    }

    fn reference(&self, a: MatmulPairArgs<Cpu<'_>>) {
        let mut args = a.first;
        self.first.add_reference(&mut args);
        args.y_first += args.rows;
        (args.w, args.unit, args.x, args.rows) = (a.w2, a.unit2, a.x2, a.rows2);
        (args.partials, args.tickets) = (a.partials2, a.tickets2);
        self.second.add_reference(&mut args);
    }
}

impl MatmulPair {
    fn stages(&self) -> Stages {
        Stages::of_both(&self.first, &self.second)
    }
}
