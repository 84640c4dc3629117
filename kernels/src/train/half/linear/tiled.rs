//! A product by tiles: what all kernels here share.

use ptx_gen::*;

/// Rows of `x` that a warpgroup multiplies, and elements of `depth` in a stage; 64 rows and columns of what is added.
pub(super) const X: TileOf<bf16> = TileOf::new(64, DEPTH, Swizzle::B128);
const DEPTH: u32 = 64;
/// What leaves at a time.
pub(super) const Y: TileOf<bf16> = TileOf::new(64, 64, Swizzle::B128);
/// Warpgroups that multiply.
pub(super) const GROUPS: u32 = 2;
pub(super) const ROWS: u32 = GROUPS * 64;
/// Tiles of rows in a band.
const BAND: u32 = 8;
/// Shared memory of a block of sm_90 less what the barriers take, in bytes.
const SHARED: u32 = 231_424;

/// A product by tiles.
pub(super) struct Tiled<'k> {
    pub(super) k: Builder<'k>,
    pub(super) shape: Product<'k>,
    ring: Ring<'k>,
    /// Columns of a tile.
    tile: u32,
    /// What is multiplied, one after another into the same sums. The first has a depth above 0.
    pairs: Vec<Pair<'k>>,
    /// What the epilogue reads, `[rows, columns]` each: 64 rows and columns of one after the other, through the ring.
    extras: Vec<Tiles<'k, bf16, Read>>,
}

/// The sizes of `y`.
#[derive(Clone, Copy)]
pub(super) struct Product<'k> {
    pub(super) rows: U32<'k>,
    pub(super) columns: U32<'k>,
}

/// Operands, of which the inner dimension may be that of the columns or of the rows.
#[derive(Clone, Copy)]
pub(super) struct Pair<'k> {
    pub(super) left: Tiles<'k, bf16, Read>,
    pub(super) right: Tiles<'k, bf16, Read>,
    /// Whether the inner dimension of the right one is that of its rows.
    pub(super) by_rows: bool,
    pub(super) depth: U32<'k>,
}

/// Stages of tiles with so many columns, beside so many bytes.
pub(super) const fn ring(tile: u32, beside: u32) -> RingShape {
    let bytes = GROUPS * X.bytes() + tile * DEPTH * 2;
    let most = (SHARED - beside) / bytes;
    RingShape { stages: if most < 6 { most } else { 6 }, bytes, readers: 4 * GROUPS, blocks: 1 }
}

/// The tile of a right operand of so many columns.
pub(super) const fn right(tile: u32, by_rows: bool) -> TileOf<bf16> {
    match by_rows {
        true => TileOf::new(DEPTH, tile, Swizzle::B128),
        false => TileOf::new(tile, DEPTH, Swizzle::B128),
    }
}

/// Tiles of a product of so many rows and columns.
pub(super) const fn tiles(tile: u32, rows: u32, columns: u32) -> u32 {
    rows.div_ceil(ROWS) * columns.div_ceil(tile)
}

/// A tile whose products are summed, and the way to what the epilogue reads of it.
pub(super) struct Summed<'a, 'k> {
    tiled: &'a Tiled<'k>,
    group: U32<'k>,
    at: &'a mut RingAt<'k>,
    pub(super) sums: &'a mut Accumulators<'k, f32>,
    /// The first of the warpgroup's rows.
    pub(super) row: U32<'k>,
    pub(super) column: U32<'k>,
}

impl<'k> Summed<'_, 'k> {
    /// The next 64 columns of what the epilogue reads: see [`Staged::get`]. Each of the first 64, then each of the next.
    pub(super) fn extra(&mut self) -> Vec<[U32<'k>; 4]> {
        let ring = &self.tiled.ring;
        let stage = ring.wait(self.at);
        // All have the same shape.
        let words = self.tiled.extras[0].at(stage.row(self.group, X.bytes())).get();
        // The next copy into the stage is of the async proxy: without a fence it overtakes these loads, though seldom.
        self.tiled.k.fence_async();
        self.tiled.k.warp_barrier();
        ring.advance(self.at);
        ring.release_before(self.at);
        words
    }
}

impl<'k> Tiled<'k> {
    /// Makes the ring in this memory, beside which the kernel has so many bytes. All threads of the block.
    pub(super) fn new(
        (memory, k): (Ptr<'k, u8, Shared>, Builder<'k>),
        [tile, beside]: [u32; 2],
        shape: Product<'k>,
        pairs: Vec<Pair<'k>>,
        extras: Vec<Tiles<'k, bf16, Read>>,
    ) -> Self {
        let ring = k.ring(memory, ring(tile, beside));
        k.when(k.tid().eq(0), || ring.init());
        k.barrier();
        Tiled { k, shape, ring, tile, pairs, extras }
    }

    /// The warps: one thread asks for copies, and each of the warpgroups multiplies its rows of each tile and finishes them.
    /// At the end a warpgroup waits for what it stored.
    pub(super) fn run(&self, finish: impl Fn(&Leaving<'k>, Summed<'_, 'k>)) {
        let k = self.k;
        let multiply = |group: U32<'k>| {
            let leaving = Leaving { k, group, first: (k.tid() & 127).eq(0) };
            self.multiply(group, |summed| finish(&leaving, summed));
            k.when(leaving.first, || k.wait_stores(0));
        };
        k.roles(vec![
            Role::new(1, 40, |_| _ = k.when(k.tid().eq(0), || self.load())),
            Role::new(GROUPS, 232, multiply),
        ]);
    }

    /// Runs `body` with the first row and column of each tile of the block.
    fn each_tile(&self, body: impl FnOnce(U32<'k>, U32<'k>)) {
        let Product { rows, columns, .. } = self.shape;
        let (down, across) = ((rows + (ROWS - 1)) / ROWS, (columns + (self.tile - 1)) / self.tile);
        let k = self.k;
        k.for_each(k.ctaid(), down * across, k.nctaid(), |tile| {
            let band = tile / (across * BAND);
            let (first, within) = (band * BAND, tile - band * (across * BAND));
            let height = (down - first).min(BAND);
            body((first + within % height) * ROWS, within / height * self.tile);
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
                        let right = pair.right.at(stage.at(GROUPS * X.bytes()));
                        let [first, second] = if pair.by_rows { [column, depth] } else { [depth, column] };
                        right.load(first, second, landed);
                    })
                });
            }
            for from in (0..self.tile).step_by(64) {
                for extra in &self.extras {
                    self.ring.fill_part(&mut at, GROUPS * X.bytes(), |stage, landed| {
                        self.load_rows(*extra, stage, [column + from, row], landed);
                    });
                }
            }
        })
    }

    /// 64 columns of the rows of all warpgroups.
    fn load_rows(
        &self,
        from: Tiles<'k, bf16, Read>,
        stage: Ptr<'k, u8, Shared>,
        [column, row]: [U32<'k>; 2],
        landed: Mbarrier<'k>,
    ) {
        for group in 0..GROUPS {
            from.at(stage.at(group * X.bytes())).load(column, row + 64 * group, landed);
        }
    }

    /// A warpgroup that multiplies.
    fn multiply(&self, group: U32<'k>, finish: impl Fn(Summed<'_, 'k>)) {
        let (k, ring) = (self.k, &self.ring);
        let mut at = ring.start();
        let mut sums = Accumulators::zero(k, self.tile);
        self.each_tile(|row, column| {
            for (i, pair) in self.pairs.iter().enumerate() {
                k.for_each(0, pair.depth, DEPTH, |depth| {
                    let stage = ring.wait(&at);
                    let x = pair.left.at(stage.row(group, X.bytes())).by_columns();
                    let w = pair.right.at(stage.at(GROUPS * X.bytes()));
                    let w = if pair.by_rows { w.by_rows() } else { w.by_columns() };
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
            let row = row + group * 64;
            finish(Summed { tiled: self, group, at: &mut at, sums: &mut sums, row, column });
        });
    }
}

/// The way of a warpgroup's sums to memory.
pub(super) struct Leaving<'k> {
    k: Builder<'k>,
    pub(super) group: U32<'k>,
    /// Whether this thread asks for the copies.
    first: Pred<'k>,
}

/// 64 columns of sums, from a column on, and the tile of shared memory through which they leave.
pub(super) type Leaves<'a, 'k> = (Staged<'k, bf16, Write>, &'a Accumulators<'k, f32>, u32);

impl<'k> Leaving<'k> {
    /// Rounds sums and stores them at this place of each matrix.
    pub(super) fn store(&self, all: &[Leaves<'_, 'k>], [column, row]: [U32<'k>; 2]) {
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
        k.when(self.group.eq(0), || k.barrier_part(1, 128)).otherwise(|| k.barrier_part(2, 128));
    }
}
