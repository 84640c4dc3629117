//! Test cases of [`MatmulExperts`] and [`MatmulSyncExperts`].

use super::matmul::{MatmulExperts, MatmulSyncExperts};
use super::sort::NONE;
use crate::format::tile::{self, ROWS};
use crate::harness::{Case, Variant};
use crate::matmul::case::{MatmulShape, Shape, powers_of_two};
use crate::matmul::definition::Matmul;
use crate::matmul::expert_table::entry;
use crate::matmul::sync::definition::MatmulSync;
use crate::shared::Random;
use ptx_gen::*;

/// The number of experts of a case.
const COUNT: u32 = 3;

/// The experts of the groups of rows. The second expert has no rows, and the last has two groups. A
/// last group is not in use.
const GROUPS: [u32; 3] = [0, 2, 2];

/// The indices of arguments of the matmul.
const W: usize = 0;
const UNIT: usize = 1;

impl Variant for MatmulExperts {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let Matmul {
            format,
            epilogue,
            rows,
            tokens,
            ..
        } = self.matmul;
        let matmul = MatmulShape {
            format,
            epilogue,
            rows,
            tokens,
        };
        cases(seed, &matmul, self.matmul.row_blocks())
    }
}

impl Variant for MatmulSyncExperts {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let MatmulSync {
            format,
            epilogue,
            rows,
            tokens,
            ..
        } = self.matmul;
        let matmul = MatmulShape {
            format,
            epilogue,
            rows,
            tokens,
        };
        cases(seed, &matmul, self.matmul.job_blocks())
    }
}

/// Returns the cases of a matmul whose jobs have `job` row blocks: several jobs per block and fewer
/// row blocks than a job has, then a job for each block and more row blocks than a job has. No block
/// has a job in the last case, where no group is in use.
fn cases(seed: u64, matmul: &MatmulShape, job: u32) -> Vec<Case> {
    let per = matmul.rows.per;
    let more = (job + 1).next_multiple_of(per);
    vec![
        case(seed, matmul, [per, 2], 2, 3),
        case(seed, matmul, [more, 1], 64, 3),
        case(seed, matmul, [per, 1], 2, 0),
    ]
}

/// Creates a case with this number of row blocks and tiles, blocks, and groups that are in use.
fn case(
    seed: u64,
    matmul: &MatmulShape,
    [row_blocks, tiles]: [u32; 2],
    blocks: u32,
    used: usize,
) -> Case {
    let groups = GROUPS.len() as u32 + 1;
    let shape = Shape {
        row_blocks,
        tiles,
        tokens: groups * matmul.tokens,
        room: groups,
        blocks,
    };
    let Case {
        label,
        mut args,
        bound,
    } = matmul.case(seed, &shape, |_, _| [0, 0]);

    // The matrices of all experts.
    let random = &mut Random(seed + 1);
    let CpuArg::U8(one) = &args[W] else {
        panic!("the first argument is the matrix")
    };
    let tiles = one.len() as u32 / tile::of(matmul.format).bytes * COUNT;
    args[W] = CpuArg::U8(tile::random(matmul.format, tiles as usize, 0.5, random));
    args[UNIT] = CpuArg::F32(powers_of_two(row_blocks * ROWS * COUNT, random));

    // The first group is full, and the others have padding.
    let width = matmul.tokens;
    let rows = [width, width - 3, 1];
    let entries = GROUPS.iter().zip(rows).take(used);
    let mut entries: Vec<u32> = entries.map(|(&expert, rows)| entry(expert, rows)).collect();
    entries.resize(groups as usize, NONE);
    args.extend([
        CpuArg::U32(entries),
        CpuArg::U32(vec![used as u32 * matmul.tokens]),
        CpuArg::scalar(COUNT),
    ]);
    Case {
        label: format!("{label} groups={used}"),
        args,
        bound,
    }
}
