//! `y = x w^T` in binary16 with `f32` sums: a ring of tiles that one thread fills and two warpgroups multiply.
//!
//! A block has three warpgroups. One thread of the first asks for tiles of 64 elements of `k`, into a ring of stages;
//! each of the others multiplies 64 rows of `x` with all rows of a tile of `w`, by `wgmma`. Two mbarriers a stage: `full`
//! counts the bytes that have landed, `empty` the warps that have done with them. A stage is released when the products
//! of the next one have been asked for, so that the tensor cores have work meanwhile. Sums leave as binary16 through
//! shared memory, 64 columns at a time.
//!
//! Blocks of a cluster have neighbouring rows of `x` and the same rows of `w`: each asks for its part of a tile of `w`
//! and sends it to all, and a stage is released in all.
//!
//! A block takes tile after tile, rows first. Tiles end with the matrices: what is outside is read as 0 and not written.

use ptx_gen::*;

args! {
    /// `y = x w^T`
    pub struct DenseArgs {
        /// `[rows, k]`
        x: InMap<f16>,
        /// `[n, k]`
        w: InMap<f16>,
        /// `[rows, n]`
        y: OutMap<f16>,
        /// Rows of `x`: tokens.
        rows: u32,
        /// Rows of `w`.
        n: u32,
        /// Row length, a multiple of 8.
        k: u32,
    }
}

/// The kernel.
pub struct Dense {
    /// Rows of `w` in a tile: a multiple of 64 up to 256.
    pub columns: u32,
    /// Stages of the ring.
    pub stages: u32,
    /// Blocks that share tiles of `w`.
    pub cluster: u32,
    /// Clusters of the grid at most.
    pub clusters: u32,
}

/// Rows of `x` in a tile, those of a warpgroup, and elements of `k` in a stage.
const ROWS: u32 = 128;
const GROUP_ROWS: u32 = 64;
const DEPTH: u32 = 64;
/// Columns that leave at a time.
const OUT: u32 = 64;
/// Warpgroups that multiply.
const GROUPS: u32 = 2;

impl KernelDef for Dense {
    type Args<S: Side> = DenseArgs<S>;

    fn name(&self) -> String {
        format!("dense_{}_{}_c{}", self.columns, self.stages, self.cluster)
    }
    fn block(&self) -> u32 {
        128 * (1 + GROUPS)
    }
    fn blocks_per_sm(&self) -> Option<u32> {
        Some(1)
    }
    fn cluster(&self) -> u32 {
        self.cluster
    }
    fn grid(&self, a: &DenseArgs<Shape>) -> Result<Grid, ShapeError> {
        let [rows, n, k] = [a.rows, a.n, a.k].map(|v| v as usize);
        self.require(rows > 0 && n > 0 && k > 0, || format!("{rows} x {n} x {k}: nothing to multiply"))?;
        self.require(k % 8 == 0 && n % 8 == 0, || format!("k = {k} and n = {n} must be multiples of 8"))?;
        self.require(a.x == rows * k, || format!("x has {} elements, not rows * k = {}", a.x, rows * k))?;
        self.require(a.w == n * k, || format!("w has {} elements, not n * k = {}", a.w, n * k))?;
        self.require(a.y == rows * n, || format!("y has {} elements, not rows * n = {}", a.y, rows * n))?;
        let tiles = a.rows.div_ceil(ROWS * self.cluster) * a.n.div_ceil(self.columns);
        let shared = self.stages * self.stage_bytes() + GROUPS * GROUP_ROWS * OUT * 2;
        Ok(Grid { shared, ..Grid::line(tiles.min(self.clusters) * self.cluster) })
    }

    fn program<'k>(&self, k: Builder<'k>, a: DenseArgs<Dev<'k>>) {
        let ring = self.ring(k, &a);
        k.when(k.tid().eq(0), || {
            for stage in 0..self.stages {
                ring.full.at(stage).mbarrier().init(1);
                ring.empty.at(stage).mbarrier().init(4 * GROUPS * self.cluster);
            }
            k.fence_mbarriers();
        });
        self.everybody(k);
        k.roles(vec![
            Role::new(1, 40, |_| _ = k.when(k.tid().eq(0), || self.produce(k, &a, &ring))),
            Role::new(GROUPS, 232, |group| self.consume(k, &a, &ring, group)),
        ]);
        // Nobody leaves while others may release a stage of it.
        if self.cluster > 1 {
            k.warp_barrier();
            k.cluster_barrier();
        }
    }

    fn reference(&self, a: DenseArgs<Cpu<'_>>) {
        let (n, k) = (a.n as usize, a.k as usize);
        for (y, x) in a.y.chunks_exact_mut(n).zip(a.x.chunks_exact(k)) {
            for (y, w) in y.iter_mut().zip(a.w.chunks_exact(k)) {
                let sum: f32 = x.iter().zip(w).map(|(x, w)| x.to_f32() * w.to_f32()).sum();
                *y = f16::from_f32(sum);
            }
        }
    }
}

/// The ring in shared memory, and the maps that fill it.
struct Ring<'k> {
    memory: Ptr<'k, u8, Shared>,
    full: Ptr<'k, u64, Shared>,
    empty: Ptr<'k, u64, Shared>,
    x: Tiles<'k, f16, Read>,
    w: Tiles<'k, f16, Read>,
    y: Tiles<'k, f16, Write>,
}

/// Where a role is in the ring.
struct At<'k> {
    stage: Var<'k, u32>,
    parity: Var<'k, u32>,
}

impl<'k> At<'k> {
    fn start(k: Builder<'k>) -> Self {
        At { stage: k.var(0), parity: k.var(0) }
    }

    /// Goes on to the next stage, which after the last is the first in the next phase.
    fn advance(&mut self, stages: u32) {
        let next = self.stage.get() + 1;
        let wraps = next.eq(stages);
        self.stage.set(wraps.select(0, next));
        let parity = self.parity.get();
        self.parity.set(wraps.select(parity ^ 1, parity));
    }
}

impl Dense {
    fn stage_bytes(&self) -> u32 {
        (ROWS + self.columns) * DEPTH * 2
    }

    fn ring<'k>(&self, k: Builder<'k>, a: &DenseArgs<Dev<'k>>) -> Ring<'k> {
        Ring {
            memory: k.tile_memory("tiles"),
            full: k.shared("full", self.stages),
            empty: k.shared("empty", self.stages),
            x: a.x.tiles(ROWS, DEPTH, Swizzle::B128),
            w: a.w.tiles_in_parts(self.columns, DEPTH, Swizzle::B128, self.cluster),
            y: a.y.tiles(GROUP_ROWS, OUT, Swizzle::B128),
        }
    }

    /// Waits until every thread that shares the ring is here.
    fn everybody(&self, k: Builder<'_>) {
        match self.cluster {
            1 => k.barrier(),
            _ => k.cluster_barrier(),
        }
    }

    /// Runs `body` with the first row of `x` and of `w` of each tile of this block.
    fn each_tile<'k>(&self, k: Builder<'k>, a: &DenseArgs<Dev<'k>>, body: impl FnOnce(U32<'k>, U32<'k>)) {
        let (rank, first, step) = match self.cluster {
            1 => (k.val(0), k.ctaid(), k.nctaid()),
            _ => (k.cluster_rank(), k.cluster_id(), k.clusters()),
        };
        let down = (a.rows + (ROWS * self.cluster - 1)) / (ROWS * self.cluster);
        let across = (a.n + (self.columns - 1)) / self.columns;
        k.for_each(first, down * across, step, |tile| {
            let row = (tile % down * self.cluster + rank) * ROWS;
            body(row, tile / down * self.columns)
        })
    }

    /// The thread that asks for tiles.
    fn produce<'k>(&self, k: Builder<'k>, a: &DenseArgs<Dev<'k>>, ring: &Ring<'k>) {
        a.x.prefetch();
        a.w.prefetch();
        let rank = if self.cluster > 1 { k.cluster_rank() } else { k.val(0) };
        let blocks = k.val((1 << self.cluster) - 1);
        let mut at = At::start(k);
        self.each_tile(k, a, |row, column| {
            k.for_each(0, a.k, DEPTH, |depth| {
                let (stage, parity) = (at.stage.get(), at.parity.get());
                ring.empty.at(stage).mbarrier().wait(parity ^ 1);
                let full = ring.full.at(stage).mbarrier();
                full.arrive_expect(self.stage_bytes());
                let x = ring.x.at(ring.memory.row(stage, self.stage_bytes()));
                x.load(depth, row, full);
                let w = ring.w.at(x.ptr().at(x.tile().bytes()));
                match self.cluster {
                    1 => w.load(depth, column, full),
                    _ => (0..self.cluster).for_each(|part| {
                        k.when(rank.eq(part), || w.load_part_to(depth, column, part, full, blocks));
                    }),
                }
                at.advance(self.stages);
            });
        });
    }

    /// A warpgroup that multiplies.
    fn consume<'k>(&self, k: Builder<'k>, a: &DenseArgs<Dev<'k>>, ring: &Ring<'k>, group: U32<'k>) {
        let (mut at, mut before) = (At::start(k), k.var(0u32));
        let mut sums = Accumulators::zero(k, self.columns);
        let add = k.always();
        let out = self.out(k, ring, group);
        self.each_tile(k, a, |row, column| {
            sums.clear();
            k.for_each(0, a.k, DEPTH, |depth| {
                let stage = at.stage.get();
                ring.full.at(stage).mbarrier().wait(&at.parity);
                let x = ring.x.at(ring.memory.row(stage, self.stage_bytes()));
                let w = ring.w.at(x.ptr().at(x.tile().bytes()));
                // The rows of the warpgroup.
                let x = ring.x.at(x.ptr().row(group, GROUP_ROWS * DEPTH * 2)).by_columns();
                let w = w.by_columns();
                k.wgmma_fence();
                (0..DEPTH).step_by(16).for_each(|from| sums.multiply(x.inner(from), w.inner(from), add));
                k.wgmma_commit();
                k.wgmma_wait(1);
                k.when(depth.ne(0), || self.release(k, ring, before.get()));
                before.set(stage);
                at.advance(self.stages);
            });
            k.wgmma_wait(0);
            self.release(k, ring, before.get());
            self.put(k, &sums, &out, (row + group * GROUP_ROWS, column));
        });
        k.when(out.first, || k.wait_stores_read(0));
    }

    /// Tells whoever fills a stage that this warp has done with it.
    fn release<'k>(&self, k: Builder<'k>, ring: &Ring<'k>, stage: U32<'k>) {
        let (empty, lane) = (ring.empty.at(stage).mbarrier(), k.lane());
        match self.cluster {
            1 => k.when(lane.eq(0), || empty.arrive()),
            blocks => k.when(lane.lt(blocks), || empty.arrive_in_block(lane)),
        };
    }

    fn out<'k>(&self, k: Builder<'k>, ring: &Ring<'k>, group: U32<'k>) -> Leaving<'k> {
        let memory = ring.memory.at(self.stages * self.stage_bytes());
        let tile = ring.y.at(memory.row(group, GROUP_ROWS * OUT * 2));
        let (thread, lane) = (k.tid() % 128, k.lane());
        let row = thread / 32 * 16 + lane % 16;
        let swizzle = (lane % 8) << 4;
        let half = (lane / 16) << 4;
        Leaving { first: thread.eq(0), group, row: tile.ptr().row(row, 2 * OUT), swizzle, half, tile }
    }

    /// Writes the sums of 64 rows as binary16, some columns at a time.
    fn put<'k>(
        &self,
        k: Builder<'k>,
        sums: &Accumulators<'k, f32>,
        out: &Leaving<'k>,
        (row, column): (U32<'k>, U32<'k>),
    ) {
        for from in (0..self.columns).step_by(OUT as usize) {
            k.when(out.first, || k.wait_stores_read(0));
            out.together(k);
            for sixteen in 0..OUT / 16 {
                let first = ((from + 16 * sixteen) / 2) as usize;
                let pair = |i: usize| sums.0[first + 2 * i].get().pack_f16(sums.0[first + 2 * i + 1].get());
                let at = (out.half + 32 * sixteen) ^ out.swizzle;
                out.row.at(at).cast::<u16>().stmatrix(&[0, 1, 2, 3].map(pair));
            }
            k.fence_async();
            out.together(k);
            k.when(out.first, || {
                out.tile.store(column + from, row);
                k.commit_stores();
            });
        }
    }
}

/// What a warpgroup writes its sums with.
struct Leaving<'k> {
    /// One thread of the warpgroup.
    first: Pred<'k>,
    group: U32<'k>,
    /// The row of the tile that this lane gives the address of, how its bytes are exchanged, and where it begins.
    row: Ptr<'k, u8, Shared>,
    swizzle: U32<'k>,
    half: U32<'k>,
    tile: Staged<'k, f16, Write>,
}

impl<'k> Leaving<'k> {
    /// Waits for the threads of the warpgroup.
    fn together(&self, k: Builder<'k>) {
        k.when(self.group.eq(0), || k.barrier_part(1, 128)).otherwise(|| k.barrier_part(2, 128));
    }
}
