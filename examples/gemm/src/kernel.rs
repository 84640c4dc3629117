//! `y = x w^T`: f16 in and out, f32 sums, on the tensor cores of sm_90a.
//!
//! Tensor cores are faster than memory, so the main task of the kernel is to keep data coming. The
//! kernel is persistent: every multiprocessor runs one block of three warpgroups (384 threads),
//! which computes one tile of `y` after another, each 128 by 256:
//!
//! - One thread of the first warpgroup requests copies of the rows of `x` and `w` that a tile
//!   needs. It copies 64 elements of `k` at a time (a stage), up to four stages ahead.
//! - The other two warpgroups multiply, each 64 rows of `x` by all 256 rows of `w`. Each thread
//!   holds 128 sums in registers.
//!
//! Two neighboring blocks form a cluster. They use the same rows of `w`, so each copies half of
//! them to both blocks (multicast).

use ptx_gen::*;

/// A stage: two tiles of 64 rows of `x`, and one of 256 rows of `w`, each row 64 elements of `k`.
/// These constants are all that says how a tile lies in shared memory: the tensor map that the host
/// makes, the copies, and the operands of products follow from them. The swizzle spreads the 128
/// bytes of a row so that eight rows are read without bank conflicts.
pub const X: TileOf<f16> = TileOf::new(64, DEPTH, Swizzle::B128);
pub const W: TileOf<f16> = TileOf::new(256, DEPTH, Swizzle::B128).in_parts(CLUSTER);
/// The tile of `y` that is stored at a time: 64 rows and 64 columns.
pub const Y: TileOf<f16> = TileOf::new(64, 64, Swizzle::B128);

const DEPTH: u32 = 64;
const CLUSTER: u32 = 2;
/// Rows of `x` and of `w` for which a cluster computes `y` at a time.
const ROWS: u32 = 128 * CLUSTER;
const COLUMNS: u32 = 256;
/// Eight warps read a stage of 48 KiB. Four stages leave room for a tile of `y` of each warpgroup.
const RING: RingShape = RingShape {
    stages: 4,
    bytes: 2 * X.bytes() + W.bytes(),
    readers: 8,
    blocks: CLUSTER,
};

args! {
    /// `y = x w^T`
    pub struct GemmArgs {
        /// `[m, k]`
        x: InMap<f16>,
        /// `[n, k]`
        w: InMap<f16>,
        /// `[m, n]`
        y: OutMap<f16>,
        m: u32,
        n: u32,
        k: u32,
    }
}

pub struct Gemm {
    /// Clusters of the grid: half as many as there are multiprocessors.
    pub clusters: u32,
}

impl KernelDef for Gemm {
    type Args<S: Side> = GemmArgs<S>;

    fn name(&self) -> String {
        "gemm".into()
    }
    fn block(&self) -> u32 {
        384
    }
    fn blocks_per_sm(&self) -> Option<u32> {
        Some(1)
    }
    fn cluster(&self) -> u32 {
        CLUSTER
    }

    /// Checks the sizes. Tensor maps need rows of whole 16 bytes. The edges may cut off tiles.
    fn grid(&self, a: &GemmArgs<Shape>) -> Result<Grid, ShapeError> {
        let [m, n, k] = [a.m, a.n, a.k].map(|v| v as usize);
        self.require(m > 0 && n > 0 && k > 0, || {
            format!("{m} x {n} x {k}: nothing to multiply")
        })?;
        self.require(n % 8 == 0 && k % 8 == 0, || {
            format!("n = {n} and k = {k} must be multiples of 8")
        })?;
        self.require([a.x, a.w, a.y] == [m * k, n * k, m * n], || {
            format!(
                "x, w, y have {}, {}, {} elements; {m} x {n} x {k} is another shape",
                a.x, a.w, a.y
            )
        })?;
        Ok(Grid {
            shared: RING.memory() + 2 * Y.bytes(),
            ..Grid::line(self.clusters * CLUSTER)
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: GemmArgs<Dev<'k>>) {
        let memory = k.tile_memory("tiles");
        let ring = k.ring(memory, RING);
        k.when(k.tid().eq(0), || ring.init());
        k.cluster_barrier();

        // Registers are shared out by role: one thread that asks for copies needs few.
        k.roles(vec![
            Role::new(1, 40, |_| _ = k.when(k.tid().eq(0), || load(k, &a, &ring))),
            Role::new(2, 232, |group| {
                multiply(k, &a, &ring, memory.at(RING.memory()), group)
            }),
        ]);

        // A block must not exit while the other block may still write to its shared memory.
        k.warp_barrier();
        k.cluster_barrier();
    }

    fn reference(&self, a: GemmArgs<Cpu<'_>>) {
        for (y, x) in
            a.y.chunks_exact_mut(a.n as usize)
                .zip(a.x.chunks_exact(a.k as usize))
        {
            for (y, w) in y.iter_mut().zip(a.w.chunks_exact(a.k as usize)) {
                *y = f16::from_f32(x.iter().zip(w).map(|(x, w)| x.to_f32() * w.to_f32()).sum());
            }
        }
    }
}

/// Runs `body` with the first row of `x` and of `w` for each tile of this block.
///
/// Tiles are processed in bands of 8 clusters of rows, column by column within a band. The tiles in
/// progress then form nearly a square, so that most of their data comes from the L2 cache.
fn each_tile<'k>(k: Builder<'k>, a: &GemmArgs<Dev<'k>>, body: impl FnOnce(U32<'k>, U32<'k>)) {
    const BAND: u32 = 8;
    let (down, across) = ((a.m + (ROWS - 1)) / ROWS, (a.n + (COLUMNS - 1)) / COLUMNS);
    k.for_each(k.cluster_id(), down * across, k.clusters(), |tile| {
        let band = tile / (across * BAND);
        let (first, within) = (band * BAND, tile - band * (across * BAND));
        let height = (down - first).min(BAND);
        let row = (first + within % height) * ROWS + k.cluster_rank() * (ROWS / CLUSTER);
        body(row, within / height * COLUMNS);
    })
}

/// Requests the copies, from one thread.
///
/// `fill` waits until a stage has been released, and sets the number of bytes that the mbarrier of
/// the stage expects. The copy engine counts them when they arrive. Elements outside of a matrix
/// arrive as zeros.
fn load<'k>(k: Builder<'k>, a: &GemmArgs<Dev<'k>>, ring: &Ring<'k>) {
    let (x, w) = (a.x.of(X), a.w.of(W));
    let mut at = ring.start();
    each_tile(k, a, |row, column| {
        k.for_each(0, a.k, DEPTH, |depth| {
            ring.fill(&mut at, |stage, landed| {
                x.at(stage).load(depth, row, landed);
                x.at(stage.at(X.bytes())).load(depth, row + 64, landed);
                w.at(stage.at(2 * X.bytes()))
                    .load_for_cluster(depth, column, landed);
            })
        })
    })
}

/// A warpgroup that multiplies.
fn multiply<'k>(
    k: Builder<'k>,
    a: &GemmArgs<Dev<'k>>,
    ring: &Ring<'k>,
    out: Ptr<'k, u8, Shared>,
    group: U32<'k>,
) {
    let (x, w, y) = (
        a.x.of(X),
        a.w.of(W),
        a.y.of(Y).at(out.row(group, Y.bytes())),
    );
    let mut at = ring.start();
    let mut sums = Accumulators::zero(k, COLUMNS);
    let first = (k.tid() & 127).eq(0);

    // A barrier of the 128 threads of this warpgroup.
    let together = || {
        k.when(group.eq(0), || k.barrier_part(1, 128))
            .otherwise(|| k.barrier_part(2, 128))
    };
    each_tile(k, a, |row, column| {
        k.for_each(0, a.k, DEPTH, |depth| {
            let stage = ring.wait(&at);
            let x = x.at(stage.row(group, X.bytes())).by_columns();
            let w = w.at(stage.at(2 * X.bytes())).by_columns();

            // The tensor cores run asynchronously. Each of the four matmuls has 16 elements of k.
            // The first matmul of a tile starts from zero instead of the sums.
            k.wgmma_fence();
            sums.multiply_tiles(x, w, depth.ne(0));
            k.wgmma_commit();

            // All but these four are done, so the stage before has been read. Tensor cores never
            // wait for a release.
            k.wgmma_wait(1);
            k.when(depth.ne(0), || ring.release_before(&at));
            ring.advance(&mut at);
        });
        k.wgmma_wait(0);
        ring.release_before(&at);

        // Sums leave through shared memory, 64 columns at a time, while the next stages are already
        // landing.
        for from in (0..COLUMNS).step_by(64) {
            k.when(first, || k.wait_stores_read(0));
            together();
            y.put(&sums, from);
            k.fence_async(); // Let the copy engine see what was put.
            together();
            k.when(first, || {
                y.store(column + from, row + group * 64);
                k.commit_stores();
            });
        }
    });
    k.when(first, || k.wait_stores(0));
}
