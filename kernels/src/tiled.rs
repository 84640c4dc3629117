//! Products of matrices of 16-bit numbers, tile by tile: a ring of stages that one thread fills by tensor maps, and two
//! warpgroups that multiply what is there.
//!
//! A block has three warpgroups. One thread of the first asks for tiles of 64 elements of the inner dimension, into a ring of
//! stages; each of the others multiplies 64 rows of the left operand with all columns of a tile. What is outside of a matrix
//! is read as 0. A block takes tile after tile of `y`, in bands of 8 tiles of rows, column after column, so that what is
//! multiplied at a time is nearly square and comes from the L2 cache. What an epilogue adds or multiplies sums with comes
//! through the ring as well, after the last stage of the tile, while the products still run.
//!
//! Blocks of a cluster have neighbouring rows of `y` and the same columns: each asks for its part of the right operand and
//! sends it to all.

use std::fmt;

use ptx_gen::*;

/// Rows that a warpgroup multiplies, and elements of the inner dimension in a stage.
const GROUP_ROWS: u32 = 64;
const DEPTH: u32 = 64;
/// Columns that an epilogue reads, and that leave, at a time.
pub(crate) const OUT: u32 = 64;
/// Bytes of 64 rows and columns: of a warpgroup's part of a stage, and of what leaves at a time.
pub(crate) const PART: u32 = GROUP_ROWS * DEPTH * 2;
/// Warpgroups that multiply.
pub(crate) const GROUPS: u32 = 2;
const ROWS: u32 = GROUPS * GROUP_ROWS;
/// Threads of the first warpgroup that ask for no copies.
pub(crate) const IDLE: u32 = 96;
/// Tiles of rows in a band.
const BAND: u32 = 8;
/// Shared memory of a block of sm_90 less what the barriers take, in bytes.
const SHARED: u32 = 231_424;

/// The tile of `y` that a block computes, 128 rows of some columns, and whether blocks go in pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProductTile {
    columns: u32,
    /// Blocks of a cluster.
    cluster: u32,
}

impl ProductTile {
    /// Those of 256, 192, 128 and 64 columns, without pairs.
    pub const ALL: [ProductTile; 4] = [Self::of(256), Self::of(192), Self::of(128), Self::of(64)];

    /// Columns from which pairs of blocks were measured to help.
    pub const PAIRED: u32 = 192;

    const fn of(columns: u32) -> ProductTile {
        ProductTile {
            columns,
            cluster: 1,
        }
    }

    /// The tile of so many columns of [`ALL`](ProductTile::ALL); none if no block computes that many.
    pub fn new(columns: u32) -> Option<ProductTile> {
        Self::ALL.into_iter().find(|tile| tile.columns == columns)
    }

    /// The same, two blocks being a cluster: they have neighbouring rows, and read the right operand once for both.
    pub const fn in_pairs(self) -> ProductTile {
        ProductTile { cluster: 2, ..self }
    }

    /// Its columns.
    pub const fn columns(self) -> u32 {
        self.columns
    }

    /// Blocks of a cluster.
    pub(crate) const fn cluster(self) -> u32 {
        self.cluster
    }

    /// What names it in a kernel's name.
    pub(crate) fn suffix(self) -> String {
        match self.cluster {
            1 => self.columns.to_string(),
            blocks => format!("{}_c{blocks}", self.columns),
        }
    }

    /// Threads of a block.
    pub(crate) const fn block(self) -> u32 {
        128 * (1 + GROUPS)
    }

    /// Tiles of a product of so many rows and columns, with those of a cluster that are beyond the last row.
    pub const fn count(self, rows: u32, columns: u32) -> u32 {
        rows.div_ceil(ROWS * self.cluster) * self.cluster * columns.div_ceil(self.columns)
    }

    /// A grid of at most so many blocks.
    pub(crate) fn grid(self, [rows, columns]: [u32; 2], blocks: u32, beside: u32) -> Grid {
        self.grid_of(self.count(rows, columns).min(blocks), beside)
    }

    /// A grid of so many blocks, also if there are fewer tiles.
    pub(crate) fn grid_of(self, blocks: u32, beside: u32) -> Grid {
        let clusters = (blocks / self.cluster).max(1);
        Grid {
            shared: self.ring(beside).memory() + beside,
            ..Grid::line(clusters * self.cluster)
        }
    }

    /// The tile of a left operand, whose inner dimension is that of its columns; also of what an epilogue reads.
    pub(crate) const fn left<E: TileElem>() -> TileOf<E> {
        TileOf::new(GROUP_ROWS, DEPTH, Swizzle::B128)
    }

    /// The tile of a right operand, whose inner dimension may be that of its rows.
    pub(crate) const fn right<E: TileElem>(self, by_rows: bool) -> TileOf<E> {
        let tile = match by_rows {
            true => TileOf::new(DEPTH, self.columns, Swizzle::B128),
            false => TileOf::new(self.columns, DEPTH, Swizzle::B128),
        };
        tile.in_parts(self.cluster)
    }

    /// What leaves at a time.
    pub(crate) const fn out<E: TileElem>() -> TileOf<E> {
        TileOf::new(GROUP_ROWS, OUT, Swizzle::B128)
    }

    /// Stages beside so many bytes.
    pub(crate) const fn ring(self, beside: u32) -> RingShape {
        let bytes = GROUPS * PART + self.columns * DEPTH * 2;
        let most = (SHARED - beside) / bytes;
        let stages = if most < 6 { most } else { 6 };
        RingShape {
            stages,
            bytes,
            readers: 4 * GROUPS,
            blocks: self.cluster,
        }
    }
}

impl fmt::Display for ProductTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = if self.cluster == 2 { " in pairs" } else { "" };
        write!(f, "tiles of {} columns{pairs}", self.columns)
    }
}

/// A product by tiles.
pub(crate) struct Tiled<'k, E: TileElem> {
    k: Builder<'k>,
    shape: Product<'k>,
    ring: Ring<'k>,
    tile: ProductTile,
    /// What is multiplied, one after another into the same sums. The first has a depth above 0.
    pairs: Vec<Pair<'k, E>>,
    /// What the epilogue reads, `[rows, columns]` each: 64 rows and columns of one after the other, through the ring.
    extras: Vec<Tiles<'k, E, ReadOnly>>,
}

/// The sizes of `y`.
#[derive(Clone, Copy)]
pub(crate) struct Product<'k> {
    pub(crate) rows: U32<'k>,
    pub(crate) columns: U32<'k>,
}

/// Operands, of which the inner dimension may be that of the columns or of the rows.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'k, E: TileElem> {
    pub(crate) left: Tiles<'k, E, ReadOnly>,
    pub(crate) right: Tiles<'k, E, ReadOnly>,
    /// Whether the inner dimension of the right one is that of its rows.
    pub(crate) by_rows: bool,
    pub(crate) depth: U32<'k>,
}

/// A tile whose products are summed, and the way to what the epilogue reads of it.
pub(crate) struct Summed<'a, 'k, E: TileElem> {
    tiled: &'a Tiled<'k, E>,
    group: U32<'k>,
    at: &'a mut RingAt<'k>,
    pub(crate) sums: &'a mut Accumulators<'k, f32>,
    /// The first of the warpgroup's rows.
    pub(crate) row: U32<'k>,
    pub(crate) column: U32<'k>,
}

impl<'k, E: TileElem> Summed<'_, 'k, E> {
    /// The next 64 columns of what the epilogue reads: see [`Staged::get`]. Each of the first 64, then each of the next.
    pub(crate) fn extra(&mut self) -> Vec<[U32<'k>; 4]> {
        let ring = &self.tiled.ring;
        let stage = ring.wait(self.at);
        // All have the same shape.
        let words = self.tiled.extras[0].at(stage.row(self.group, PART)).get();
        // The next copy into the stage is of the async proxy: without a fence it overtakes these loads, though seldom.
        self.tiled.k.fence_async();
        self.tiled.k.warp_barrier();
        ring.advance(self.at);
        ring.release_before(self.at);
        words
    }
}

impl<'k, E: Times<E, Sum = f32>> Tiled<'k, E> {
    /// Makes the ring in this memory, beside which the kernel has so many bytes. All threads of the block.
    pub(crate) fn new(
        (memory, k): (Ptr<'k, u8, Shared>, Builder<'k>),
        (tile, beside): (ProductTile, u32),
        shape: Product<'k>,
        pairs: Vec<Pair<'k, E>>,
        extras: Vec<Tiles<'k, E, ReadOnly>>,
    ) -> Self {
        let ring = k.ring(memory, tile.ring(beside));
        k.when(k.tid().eq(0), || ring.init());
        match tile.cluster {
            1 => k.barrier(),
            _ => k.cluster_barrier(),
        }
        Tiled {
            k,
            shape,
            ring,
            tile,
            pairs,
            extras,
        }
    }

    /// The warps: one thread asks for copies, and each of the warpgroups multiplies its rows of each tile and finishes them.
    /// At the end a warpgroup waits for what it stored.
    pub(crate) fn run(&self, finish: impl Fn(&Leaving<'k>, Summed<'_, 'k, E>)) {
        self.run_with_idle(finish, None);
    }

    /// The same; the [`IDLE`] threads that would have nothing to do run this, given their number.
    pub(crate) fn run_with_idle(
        &self,
        finish: impl Fn(&Leaving<'k>, Summed<'_, 'k, E>),
        idle: Option<&dyn Fn(U32<'k>)>,
    ) {
        let k = self.k;
        let multiply = |group: U32<'k>| {
            let leaving = Leaving {
                k,
                group,
                first: (k.tid() & 127).eq(0),
            };
            self.multiply(group, |summed| finish(&leaving, summed));
            k.when(leaving.first, || k.wait_stores(0));
        };
        let load = || _ = k.when(k.tid().eq(0), || self.load());
        k.roles(match idle {
            None => vec![
                Role::new(1, 40, |_| load()),
                Role::new(GROUPS, 232, multiply),
            ],
            Some(idle) => {
                let first = |_| {
                    k.when(k.warp().eq(0), load)
                        .otherwise(|| idle(k.tid() - 32))
                };
                vec![Role::new(1, 72, first), Role::new(GROUPS, 216, multiply)]
            }
        });
        if self.tile.cluster > 1 {
            k.section(
                "train/tiled/cluster_exit",
                "nobody leaves while others may send or release a stage of it",
            );
            k.warp_barrier();
            k.cluster_barrier();
        }
    }

    /// Runs `body` with the first row and column of each tile of the block.
    fn each_tile(&self, body: impl FnOnce(U32<'k>, U32<'k>)) {
        let Product { rows, columns, .. } = self.shape;
        let (
            k,
            ProductTile {
                columns: wide,
                cluster,
            },
        ) = (self.k, self.tile);
        let (down, across) = (
            (rows + (ROWS * cluster - 1)) / (ROWS * cluster),
            (columns + (wide - 1)) / wide,
        );
        let (start, step) = match cluster {
            1 => (k.ctaid(), k.nctaid()),
            _ => (k.cluster_id(), k.clusters()),
        };
        k.for_each(start, down * across, step, |tile| {
            let band = tile / (across * BAND);
            let (first, within) = (band * BAND, tile - band * (across * BAND));
            let height = (down - first).min(BAND);
            let mut row = (first + within % height) * (ROWS * cluster);
            if cluster > 1 {
                row = row + k.cluster_rank() * ROWS;
            }
            body(row, within / height * wide);
        })
    }

    /// The thread that asks for copies.
    fn load(&self) {
        let mut at = self.ring.start();
        self.each_tile(|row, column| {
            for pair in &self.pairs {
                self.k.for_each(0, pair.depth, DEPTH, |depth| {
                    self.ring.fill(&mut at, |stage, landed| {
                        self.load_rows(pair.left, stage, [depth, row], landed);
                        let right = pair.right.at(stage.at(GROUPS * PART));
                        let [first, second] = if pair.by_rows {
                            [column, depth]
                        } else {
                            [depth, column]
                        };
                        right.load_for_cluster(first, second, landed);
                    })
                });
            }
            for from in (0..self.tile.columns).step_by(OUT as usize) {
                for extra in &self.extras {
                    self.ring
                        .fill_part(&mut at, GROUPS * PART, |stage, landed| {
                            self.load_rows(*extra, stage, [column + from, row], landed);
                        });
                }
            }
        })
    }

    /// 64 columns of the rows of all warpgroups.
    fn load_rows(
        &self,
        from: Tiles<'k, E, ReadOnly>,
        stage: Ptr<'k, u8, Shared>,
        [column, row]: [U32<'k>; 2],
        landed: Mbarrier<'k>,
    ) {
        for group in 0..GROUPS {
            from.at(stage.at(group * PART))
                .load(column, row + GROUP_ROWS * group, landed);
        }
    }

    /// A warpgroup that multiplies.
    fn multiply(&self, group: U32<'k>, finish: impl Fn(Summed<'_, 'k, E>)) {
        let (k, ring) = (self.k, &self.ring);
        let mut at = ring.start();
        let mut sums = Accumulators::zero(k, self.tile.columns);
        self.each_tile(|row, column| {
            for (i, pair) in self.pairs.iter().enumerate() {
                k.for_each(0, pair.depth, DEPTH, |depth| {
                    let stage = ring.wait(&at);
                    let x = pair.left.at(stage.row(group, PART)).by_columns();
                    let w = pair.right.at(stage.at(GROUPS * PART));
                    let w = if pair.by_rows {
                        w.by_rows()
                    } else {
                        w.by_columns()
                    };
                    k.wgmma_fence();
                    let later = if i == 0 { depth.ne(0) } else { k.always() };
                    sums.multiply_tiles(x, w, later);
                    k.wgmma_commit();
                    // All but these are done, so the stage before has been read.
                    k.wgmma_wait(1);
                    match i {
                        0 => _ = k.when(depth.ne(0), || ring.release_before(&at)),
                        _ => ring.release_before(&at),
                    }
                    ring.advance(&mut at);
                });
            }
            k.wgmma_wait(0);
            ring.release_before(&at);
            let row = row + group * GROUP_ROWS;
            finish(Summed {
                tiled: self,
                group,
                at: &mut at,
                sums: &mut sums,
                row,
                column,
            });
        });
    }
}

/// The way of a warpgroup's sums to memory.
pub(crate) struct Leaving<'k> {
    k: Builder<'k>,
    pub(crate) group: U32<'k>,
    /// Whether this thread asks for the copies.
    first: Pred<'k>,
}

/// 64 columns of sums, from a column on, and the tile of shared memory through which they leave.
type Leaves<'a, 'k, E> = (Staged<'k, E, WriteOnly>, &'a Accumulators<'k, f32>, u32);

impl<'k> Leaving<'k> {
    /// Rounds sums and stores them at this place of each matrix.
    pub(crate) fn store<E: Packed>(&self, all: &[Leaves<'_, 'k, E>], [column, row]: [U32<'k>; 2]) {
        let k = self.k;
        k.when(self.first, || k.wait_stores_read(0));
        self.together();
        all.iter().for_each(|(y, sums, from)| y.put(sums, *from));
        k.fence_async();
        self.together();
        k.when(self.first, || {
            all.iter().for_each(|(y, ..)| y.store(column, row));
            k.commit_stores();
        });
    }

    /// A barrier of the threads of the warpgroup.
    fn together(&self) {
        let k = self.k;
        k.when(self.group.eq(0), || k.barrier_part(1, 128))
            .otherwise(|| k.barrier_part(2, 128));
    }
}
