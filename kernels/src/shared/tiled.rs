//! Tiled matmuls of 16-bit matrices for training: one thread fills a ring of stages through tensor
//! maps, and two warpgroups multiply with `wgmma`.
//!
//! A block has three warpgroups. One thread of the first copies tiles into the ring, 64 elements of
//! the inner dimension per stage. Each of the other two multiplies 64 rows of the left operand by
//! all columns of a tile. Elements outside of a matrix read as 0. A block computes one tile of `y`
//! after another. Tiles are ordered in bands of 8 rows of tiles, column by column. The blocks that
//! run at the same time thus cover a nearly square area, and their operands come from the L2 cache.
//! The operands of the epilogue are added to the sums or multiply them. They also come through the
//! ring, after the last stage of the tile and while `wgmma` is still running.
//!
//! The blocks of a cluster have neighboring rows of `y` and the same columns. Each copies its share
//! of the right operand and multicasts it to all.
//!
//! The structure follows the producer and consumer kernels of CUTLASS for Hopper.

use std::fmt;

use ptx_gen::*;

/// The number of rows that a warpgroup multiplies.
const GROUP_ROWS: u32 = 64;
/// The number of elements of the inner dimension in a stage.
const DEPTH: u32 = 64;
/// The number of columns that an epilogue reads or stores at once.
pub(crate) const OUT: u32 = 64;
/// The bytes of 64 rows of 64 columns: the share of a warpgroup in a stage, and the unit that the
/// epilogue stores.
pub(crate) const PART: u32 = GROUP_ROWS * DEPTH * 2;
/// The number of warpgroups that multiply.
pub(crate) const GROUPS: u32 = 2;
/// The number of rows of a block's tile.
const ROWS: u32 = GROUPS * GROUP_ROWS;
/// The number of threads of the first warpgroup that issue no copies.
pub(crate) const IDLE: u32 = 96;
/// The number of rows of tiles in a band.
const BAND: u32 = 8;
/// The bytes of shared memory of a block on sm_90, less the space of the barriers.
const SHARED: u32 = 231_424;

/// The tile of `y` that a block computes: 128 rows and a number of columns, and whether blocks form
/// pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProductTile {
    columns: u32,
    /// The number of blocks of a cluster.
    cluster: u32,
}

impl ProductTile {
    /// The tiles of 256, 192, 128 and 64 columns, without pairs of blocks.
    pub const ALL: [ProductTile; 4] = [Self::of(256), Self::of(192), Self::of(128), Self::of(64)];

    /// The number of columns from which pairs of blocks were measured to be faster.
    pub const PAIRED: u32 = 192;

    const fn of(columns: u32) -> ProductTile {
        ProductTile {
            columns,
            cluster: 1,
        }
    }

    /// Returns the tile of [`ALL`](ProductTile::ALL) with this number of columns, or `None` if
    /// there is none.
    pub fn new(columns: u32) -> Option<ProductTile> {
        Self::ALL.into_iter().find(|tile| tile.columns == columns)
    }

    /// Returns this tile for clusters of two blocks. The two have neighboring rows and read the
    /// right operand once for both.
    pub const fn in_pairs(self) -> ProductTile {
        ProductTile { cluster: 2, ..self }
    }

    /// Returns the number of columns.
    pub const fn columns(self) -> u32 {
        self.columns
    }

    /// Returns the number of blocks of a cluster.
    pub(crate) const fn cluster(self) -> u32 {
        self.cluster
    }

    /// Returns the part of a kernel's name that identifies the tile.
    pub(crate) fn suffix(self) -> String {
        match self.cluster {
            1 => self.columns.to_string(),
            blocks => format!("{}_c{blocks}", self.columns),
        }
    }

    /// Returns the number of threads of a block.
    pub(crate) const fn block(self) -> u32 {
        128 * (1 + GROUPS)
    }

    /// Returns the number of tiles of a matmul with `rows` rows and `columns` columns. It includes
    /// the tiles of a cluster beyond the last row.
    pub const fn count(self, rows: u32, columns: u32) -> u32 {
        rows.div_ceil(ROWS * self.cluster) * self.cluster * columns.div_ceil(self.columns)
    }

    /// Returns a grid of at most `blocks` blocks. `beside` is the shared memory that the kernel
    /// uses in addition to the ring.
    pub(crate) fn grid(self, [rows, columns]: [u32; 2], blocks: u32, beside: u32) -> Grid {
        self.grid_of(self.count(rows, columns).min(blocks), beside)
    }

    /// Returns a grid of `blocks` blocks, even if there are fewer tiles.
    pub(crate) fn grid_of(self, blocks: u32, beside: u32) -> Grid {
        let clusters = (blocks / self.cluster).max(1);
        Grid {
            shared: self.ring(beside).memory() + beside,
            ..Grid::line(clusters * self.cluster)
        }
    }

    /// Returns the tile of a left operand, whose inner dimension is its columns. Epilogues read the
    /// same tile.
    pub(crate) const fn left<E: TileElem>() -> TileOf<E> {
        TileOf::new(GROUP_ROWS, DEPTH, Swizzle::B128)
    }

    /// Returns the tile of a right operand. If `by_rows` is true, its inner dimension is its rows.
    pub(crate) const fn right<E: TileElem>(self, by_rows: bool) -> TileOf<E> {
        let tile = if by_rows {
            TileOf::new(DEPTH, self.columns, Swizzle::B128)
        } else {
            TileOf::new(self.columns, DEPTH, Swizzle::B128)
        };
        tile.in_parts(self.cluster)
    }

    /// Returns the tile that an epilogue stores at once.
    pub(crate) const fn out<E: TileElem>() -> TileOf<E> {
        TileOf::new(GROUP_ROWS, OUT, Swizzle::B128)
    }

    /// Returns the shape of the ring if the kernel uses `beside` bytes of shared memory for itself.
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

/// A tiled matmul under construction.
pub(crate) struct Tiled<'k, E: TileElem> {
    k: Builder<'k>,
    shape: OutputShape<'k>,
    ring: Ring<'k>,
    tile: ProductTile,
    /// The pairs of operands, whose matmuls are added into the same sums. The first pair has a
    /// depth above 0.
    pairs: Vec<Pair<'k, E>>,
    /// The operands of the epilogue, `[rows, columns]` each. They come through the ring in units of
    /// 64 rows and 64 columns, alternating between the operands.
    extras: Vec<Tiles<'k, E, ReadOnly>>,
}

/// The size of `y`.
#[derive(Clone, Copy)]
pub(crate) struct OutputShape<'k> {
    pub(crate) rows: U32<'k>,
    pub(crate) columns: U32<'k>,
}

/// A left and a right operand. The inner dimension of the right one is its columns or its rows.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'k, E: TileElem> {
    pub(crate) left: Tiles<'k, E, ReadOnly>,
    pub(crate) right: Tiles<'k, E, ReadOnly>,
    /// Whether the inner dimension of the right operand is its rows.
    pub(crate) by_rows: bool,
    pub(crate) depth: U32<'k>,
}

/// A tile whose sums are complete, with access to the epilogue's operands.
pub(crate) struct Summed<'a, 'k, E: TileElem> {
    tiled: &'a Tiled<'k, E>,
    group: U32<'k>,
    at: &'a mut RingAt<'k>,
    pub(crate) sums: &'a mut Accumulators<'k, f32>,
    /// The first row of the warpgroup.
    pub(crate) row: U32<'k>,
    pub(crate) column: U32<'k>,
}

impl<'k, E: TileElem> Summed<'_, 'k, E> {
    /// Returns the next 64 columns of an epilogue operand (see [`Staged::get`]). All operands take
    /// turns for the first 64 columns, then for the next.
    pub(crate) fn extra(&mut self) -> Vec<[U32<'k>; 4]> {
        let ring = &self.tiled.ring;
        let stage = ring.wait(self.at);

        // All operands have the same shape, so the first stands for any.
        let words = self.tiled.extras[0].at(stage.row(self.group, PART)).get();

        // The next copy into this stage is an access of the async proxy. Without the fence it can
        // overtake these loads.
        self.tiled.k.fence_async();
        self.tiled.k.warp_barrier();
        ring.advance(self.at);
        ring.release_before(self.at);
        words
    }
}

impl<'k, E: Times<E, Sum = f32>> Tiled<'k, E> {
    /// Creates the ring in `memory`. `beside` is the shared memory that the kernel uses for itself.
    /// All threads of the block must call it.
    pub(crate) fn new(
        k: Builder<'k>,
        memory: Ptr<'k, u8, Shared>,
        tile: ProductTile,
        beside: u32,
        shape: OutputShape<'k>,
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

    /// Emits the roles of the warps: one thread issues copies, and each multiplying warpgroup
    /// computes its rows of each tile and calls `finish`. At the end, a warpgroup waits for its
    /// stores.
    pub(crate) fn run(&self, finish: impl Fn(&Leaving<'k>, Summed<'_, 'k, E>)) {
        self.run_with_idle(finish, None);
    }

    /// Emits the roles as [`run`](Tiled::run) does. The [`IDLE`] threads that issue no copies run
    /// `idle`, which gets their index.
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

        // One copying thread needs few registers (`setmaxnreg`), so the multiplying warpgroups get
        // more. With work for the idle threads, the first warpgroup needs more itself.
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
                "no block may exit while another may still multicast to it or release its stages",
            );
            k.warp_barrier();
            k.cluster_barrier();
        }
    }

    /// Runs `body` with the first row and column of each tile of the block.
    fn each_tile(&self, body: impl FnOnce(U32<'k>, U32<'k>)) {
        let k = self.k;
        let OutputShape { rows, columns } = self.shape;
        let ProductTile {
            columns: wide,
            cluster,
        } = self.tile;
        let down = (rows + (ROWS * cluster - 1)) / (ROWS * cluster);
        let across = (columns + (wide - 1)) / wide;
        let (start, step) = match cluster {
            1 => (k.ctaid(), k.nctaid()),
            _ => (k.cluster_id(), k.clusters()),
        };
        k.for_each(start, down * across, step, |tile| {
            // Tiles go down the rows of a band before they go to the next column. The blocks that
            // run at one time then share few rows and few columns of the operands.
            let band = tile / (across * BAND);
            let first = band * BAND;
            let within = tile - band * (across * BAND);
            let height = (down - first).min(BAND);
            let mut row = (first + within % height) * (ROWS * cluster);
            if cluster > 1 {
                row = row + k.cluster_rank() * ROWS;
            }

            body(row, within / height * wide);
        })
    }

    /// Emits the loop of the thread that issues the copies.
    fn load(&self) {
        let mut at = self.ring.start();
        self.each_tile(|row, column| {
            for pair in &self.pairs {
                self.k.for_each(0, pair.depth, DEPTH, |depth| {
                    self.ring.fill(&mut at, |stage, landed| {
                        self.load_rows(pair.left, stage, [depth, row], landed);

                        // The blocks of a cluster have the same columns, and share the copies of
                        // the right operand.
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

    /// Copies 64 columns of the rows of all warpgroups.
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

    /// Emits the loop of a warpgroup that multiplies.
    fn multiply(&self, group: U32<'k>, finish: impl Fn(Summed<'_, 'k, E>)) {
        let k = self.k;
        let ring = &self.ring;
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

                    // The first matmul of a tile overwrites the sums instead of adding to them.
                    let later = if i == 0 { depth.ne(0) } else { k.always() };
                    sums.multiply_tiles(x, w, later);
                    k.wgmma_commit();

                    // All groups but the last are complete, so the previous stage has been read and
                    // can be released.
                    k.wgmma_wait(1);
                    if i == 0 {
                        // The stage before the first one belongs to the previous tile, which has
                        // released it after its last `wgmma`.
                        k.when(depth.ne(0), || ring.release_before(&at));
                    } else {
                        ring.release_before(&at);
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

/// The stores of a warpgroup's sums to global memory.
pub(crate) struct Leaving<'k> {
    k: Builder<'k>,
    pub(crate) group: U32<'k>,
    /// Whether this thread issues the copies.
    first: Pred<'k>,
}

/// 64 columns of sums, starting at the given column, and the shared-memory tile through which they
/// are stored.
type Leaves<'a, 'k, E> = (Staged<'k, E, WriteOnly>, &'a Accumulators<'k, f32>, u32);

impl<'k> Leaving<'k> {
    /// Rounds the sums and stores them at this position of each matrix.
    pub(crate) fn store<E: Packed>(&self, all: &[Leaves<'_, 'k, E>], [column, row]: [U32<'k>; 2]) {
        let k = self.k;

        // The previous stores must have read the tiles before this call overwrites them.
        k.when(self.first, || k.wait_stores_read(0));
        self.together();
        for (y, sums, from) in all {
            y.put(sums, *from);
        }

        // The bulk stores read shared memory through the async proxy, so every thread fences its
        // writes before the barrier.
        k.fence_async();
        self.together();
        k.when(self.first, || {
            for (y, ..) in all {
                y.store(column, row);
            }
            k.commit_stores();
        });
    }

    /// Waits at a barrier of the threads of the warpgroup.
    fn together(&self) {
        let k = self.k;
        k.when(self.group.eq(0), || k.barrier_part(1, 128))
            .otherwise(|| k.barrier_part(2, 128));
    }
}
