//! Products of warpgroups, tiles and clusters: what is printed, and what is refused, with the whole message.

use ptx_gen::*;

args! {
    /// The arguments of every kernel here.
    pub struct TestArgs {
        /// `[rows, 64]`
        x: InMap<f16>,
        /// `[rows, 64]`
        y: OutMap<f16>,
        /// Elements.
        n: u32,
    }
}

type Written = for<'k> fn(Builder<'k>, TestArgs<Dev<'k>>);

struct Try(Written, u32);

impl KernelDef for Try {
    type Args<S: Side> = TestArgs<S>;
    fn name(&self) -> String {
        "t".into()
    }
    fn block(&self) -> u32 {
        384
    }
    fn blocks_per_sm(&self) -> Option<u32> {
        Some(1)
    }
    fn cluster(&self) -> u32 {
        self.1
    }
    fn grid(&self, _: &TestArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(2))
    }
    fn program<'k>(&self, k: Builder<'k>, a: TestArgs<Dev<'k>>) {
        (self.0)(k, a)
    }
    fn reference(&self, _: TestArgs<Cpu<'_>>) {}
}

/// The errors, without the file and its line.
fn errors(program: Written) -> Vec<String> {
    let Err(Errors(errors)) = Try(program, 1).build() else {
        return vec![];
    };

    let text = |e: &BuildError| match e.at {
        Some(_) => e
            .to_string()
            .split_once(": ")
            .expect("a place")
            .1
            .to_string(),
        None => e.to_string(),
    };

    // The lines that a message names are not what is tested.
    let plain = |text: String| match text.split_once("line ") {
        Some((before, after)) => {
            format!(
                "{before}line #{}",
                after.trim_start_matches(|c: char| c.is_ascii_digit())
            )
        }
        None => text,
    };
    errors.iter().map(text).map(plain).collect()
}

fn lines(program: Written, cluster: u32) -> Vec<String> {
    let program = Try(program, cluster).build().expect("valid");
    let text = print(&program, Target::named("sm_90a").expect("a target")).expect("printable");
    text.lines().map(|line| line.trim().to_string()).collect()
}

/// One row of 16-bit tiles, and its product with itself.
fn tile<'k>(k: Builder<'k>, a: &TestArgs<Dev<'k>>) -> Staged<'k, f16, ReadOnly> {
    a.x.tiles(64, 64, Swizzle::B128).at(k.tile_memory("stage"))
}

#[test]
fn a_tile_gives_map_layout_and_descriptor() {
    let text = lines(
        |k, a| {
            let (tile, bar) = (tile(k, &a), k.shared::<u64>("full", 1).mbarrier());
            k.when(k.tid().eq(0), || {
                bar.init(1);
                bar.arrive_expect(tile.tile().bytes());
                tile.load(k.val(0), a.n, bar);
            });
            k.barrier();
            bar.wait(0);
            let (mut sums, add) = (Accumulators::zero(k, 8), k.always());
            k.wgmma_fence();
            let x = tile.by_columns();
            sums.multiply(x, x, add);
            sums.multiply(x.inner(16), x.inner(16).outer(8), add);
            sums.multiply(tile.by_rows(), tile.by_rows().inner(16), add);
            k.wgmma_commit();
            k.wgmma_wait(0);
        },
        2,
    );
    for wanted in [
        ".param .align 64 .b8 x[128],",
        ".explicitcluster",
        ".reqnctapercluster 2, 1, 1",
        ".extern .shared .align 1024 .b8 stage[];",
        "mov.b64 %rd0, x;",
        "cvta.param.u64 %rd1, %rd0;",
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 8192;",
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1_0, %r0}], [%r2];",
        "or.b64 %rd5, %rd4, 4611686293305360384;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd5, %rd5, %p1, 1, 1, 0, 0;",
        "add.u64 %rd6, %rd5, 2;",
        "add.u64 %rd8, %rd7, 64;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd6, %rd8, %p1, 1, 1, 0, 0;",
        "add.u64 %rd13, %rd12, 128;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd10, %rd13, %p1, 1, 1, 1, 1;",
    ] {
        assert!(
            text.iter().any(|line| line == wanted),
            "{wanted}\n{}",
            text.join("\n")
        );
    }
}

#[test]
fn a_tile_without_a_map_is_described_alike() {
    let staged = lines(
        |k, a| {
            let tile =
                a.x.tiles::<f16>(64, 64, Swizzle::B128)
                    .at(k.tile_memory("stage"));
            let (mut sums, add) = (Accumulators::zero(k, 8), k.always());
            k.wgmma_fence();
            sums.multiply(tile.by_columns(), tile.by_rows().inner(16), add);
            k.wgmma_commit();
            k.wgmma_wait(0);
        },
        1,
    );
    let plain = lines(
        |k, _| {
            let at = k.tile_memory("stage");
            let (mut sums, add) = (Accumulators::zero(k, 8), k.always());
            k.wgmma_fence();
            let x = Descriptor::<f16>::by_columns(at, 64, 64, Swizzle::B128);
            sums.multiply(
                x,
                Descriptor::<f16>::by_rows(at, 64, 64, Swizzle::B128).inner(16),
                add,
            );
            k.wgmma_commit();
            k.wgmma_wait(0);
        },
        1,
    );
    let fixed = |text: &[String]| {
        let lines = text
            .iter()
            .filter(|line| line.starts_with("or.b64") || line.starts_with("wgmma.mma"));
        lines
            .map(|line| {
                line.rsplit_once("}, ")
                    .map_or(line.as_str(), |(_, rest)| rest)
                    .to_string()
            })
            .map(|line| line.split(", ").skip(2).collect::<Vec<_>>().join(", "))
            .collect::<Vec<_>>()
    };
    assert_eq!(fixed(&plain), fixed(&staged));
    let bytes = errors(|k, _| {
        let at = k.tile_memory("stage");
        Descriptor::<u8>::by_rows(at, 64, 128, Swizzle::B128);
    });
    assert_eq!(
        bytes,
        [
            "a tile of u8 can only be read along its columns: reading along rows needs 16-bit elements"
        ]
    );
}

#[test]
fn a_program_says_what_its_maps_copy() {
    let program = Try(|k, a| _ = tile(k, &a), 1).build().expect("valid");
    let tile = program.tile("x").expect("it is used");
    assert_eq!(
        (tile.box_dims(), tile.swizzle, tile.copies()),
        ([64, 64], Swizzle::B128, 1)
    );
    assert_eq!(program.tile("y"), None);
}

#[test]
fn sums_are_left_alone_while_they_are_summed() {
    let early = errors(|k, a| {
        let (x, mut sums, add) = (
            tile(k, &a).by_columns(),
            Accumulators::zero(k, 8),
            k.always(),
        );
        k.wgmma_fence();
        sums.multiply(x, x, add);
        k.wgmma_commit();
        let _ = sums.0[1].get();
        k.wgmma_wait(0);
    });
    assert_eq!(
        early,
        [
            "`mov.f32 %f4, %f1;`: %f1 is an accumulator of the matmul of line #, which may be in flight; `wgmma_wait` for its group first"
        ]
    );

    // With one group left under way, the last round's sums are not done when the loop has ended.
    let ring = errors(|k, a| {
        let (x, mut sums, add) = (
            tile(k, &a).by_columns(),
            Accumulators::zero(k, 8),
            k.always(),
        );
        k.for_each(0, a.n, 1, |_| {
            k.wgmma_fence();
            sums.multiply(x, x, add);
            k.wgmma_commit();
            k.wgmma_wait(1);
        });
        let _ = sums.0[0].get();
        k.wgmma_wait(0);
    });
    assert_eq!(
        ring,
        [
            "`mov.f32 %f4, %f0;`: %f0 is an accumulator of the matmul of line #, which may be in flight; `wgmma_wait` for its group first"
        ]
    );
    let fine = errors(|k, a| {
        let (x, mut sums, add) = (
            tile(k, &a).by_columns(),
            Accumulators::zero(k, 8),
            k.always(),
        );
        k.for_each(0, a.n, 1, |_| {
            k.wgmma_fence();
            sums.multiply(x, x, add);
            k.wgmma_commit();
            k.wgmma_wait(1);
        });
        k.wgmma_wait(0);
        let _ = sums.0[0].get();
    });
    assert_eq!(fine, [""; 0]);
}

#[test]
fn products_are_fenced_and_waited_for() {
    let never = errors(|k, a| {
        let (x, mut sums, add) = (
            tile(k, &a).by_columns(),
            Accumulators::zero(k, 8),
            k.always(),
        );
        sums.multiply(x, x, add);
        k.wgmma_commit();
    });
    let product = "`wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd5, %rd5, %p0, 1, 1, 0, 0;`";
    assert_eq!(
        never,
        [
            format!(
                "{product}: no `wgmma_fence` precedes this matmul; add one before the first matmul"
            ),
            format!(
                "{product}: the kernel may end while this matmul is in flight; call `wgmma_commit` and `wgmma_wait(0)`"
            ),
        ]
    );
    let again = errors(|k, a| {
        let (x, mut sums, add) = (
            tile(k, &a).by_columns(),
            Accumulators::zero(k, 8),
            k.always(),
        );
        k.wgmma_fence();
        sums.clear();
        sums.multiply(x, x, add);
        k.wgmma_commit();
        k.wgmma_wait(0);
    });
    assert_eq!(
        again,
        [format!(
            "{product}: %f0 was used in line #, and no `wgmma_fence` orders this matmul after that; add one in between"
        )]
    );
}

#[test]
fn a_left_matrix_in_registers_stays_as_it_is() {
    let changed = errors(|k, a| {
        let (x, mut sums, add) = (
            tile(k, &a).by_columns(),
            Accumulators::zero(k, 8),
            k.always(),
        );
        let mut left = [0u32; 4].map(|v| k.var(v));
        k.wgmma_fence();
        sums.multiply_registers::<f16, f16>(LeftFragment::of(&left), x, add);
        k.wgmma_commit();
        left[2].set(1);
        k.wgmma_wait(0);
    });
    assert_eq!(
        changed,
        [
            "`mov.u32 %r7, 1;`: %r7 is in the left matrix of the matmul of line #, which may be in flight; `wgmma_wait` for its \
          group, or use other registers"
        ]
    );
}

#[test]
fn a_warpgroup_stays_together() {
    let split = errors(|k, _| {
        k.when(k.warp().eq(0), || k.wgmma_fence());
    });
    assert_eq!(
        split,
        [
            "`wgmma.fence.sync.aligned` needs the whole warpgroup, but the branch of line # splits it; move it out, or branch \
          on a value that is the same in the whole warpgroup"
        ]
    );
    assert_eq!(
        errors(|k, _| _ = k.when(k.warpgroup().eq(0), || k.wgmma_fence())),
        [""; 0]
    );
}

#[test]
fn a_map_copies_one_box() {
    let two = errors(|_, a| {
        a.x.tiles::<f16>(64, 64, Swizzle::B128);
        a.x.tiles::<f16>(64, 32, Swizzle::B64);
    });
    assert_eq!(
        two,
        [
            "the tensor map `x` is used for tiles of different boxes or swizzles; a map copies one box: pass one map for each"
        ]
    );
    let odd = errors(|_, a| _ = a.x.tiles::<f16>(64, 60, Swizzle::B128));
    assert_eq!(
        odd,
        ["a tile has 60 columns: expected a multiple of 64, the f16 elements in 128 bytes"]
    );
}

#[test]
fn roles_share_the_registers_of_the_block() {
    // 384 threads are launched with 168 registers.
    assert_eq!(
        errors(|k, _| k.roles(vec![Role::new(1, 40, |_| {}), Role::new(2, 232, |_| {})])),
        [""; 0]
    );
    assert_eq!(
        errors(|k, _| k.roles(vec![Role::new(1, 40, |_| {}), Role::new(2, 240, |_| {})])),
        [
            "roles need 66560 registers, but 384 threads have 168 each at launch, 64512 in total: the last role would wait \
          forever"
        ]
    );
    assert_eq!(
        errors(|k, _| k.roles(vec![Role::new(2, 40, |_| {})])),
        ["roles for 256 threads: expected the 384 threads of the block"]
    );
    assert_eq!(
        errors(|k, _| k.roles(vec![Role::new(3, 100, |_| {})])),
        ["a role with 100 registers per thread: expected a multiple of 8 from 24 to 240"]
    );
    let text = lines(
        |k, _| k.roles(vec![Role::new(1, 40, |_| {}), Role::new(2, 232, |_| {})]),
        1,
    );
    for wanted in [
        "setmaxnreg.dec.sync.aligned.u32 40;",
        "setmaxnreg.inc.sync.aligned.u32 232;",
    ] {
        assert!(text.iter().any(|line| line == wanted), "{wanted}");
    }
}

const HALF_TILES: TileOf<f16> = TileOf::new(128, 64, Swizzle::B128).in_parts(2);
const CUBE: TensorBox<f16, 3> = TensorBox::new([32, 4, 2], Swizzle::B64);

#[test]
fn boxes_are_copied_by_as_many_coordinates_as_they_have_dimensions() {
    let text = lines(
        |k, a| {
            let memory = k.tile_memory("boxes");
            let (x, y) = (
                a.x.boxes(CUBE).at(memory),
                a.y.boxes(TensorBox::<f16, 5>::new([8; 5], Swizzle::None)),
            );
            let full = k.shared::<u64>("full", 1).mbarrier();
            k.when(k.tid().eq(0), || {
                full.init(1);
                full.arrive_expect(2 * CUBE.bytes());
                x.load([a.n, a.n, a.n], full);
                x.load_to([a.n, a.n, a.n], full, k.val(3));
                y.at(memory.at(1024)).store([a.n; 5]);
                k.commit_stores();
                k.wait_stores(0);
            });
            k.barrier();
            full.wait(0);
        },
        2,
    );
    let load = "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes";
    for wanted in [
        format!("{load} [%r1], [%rd1, {{%r0, %r0, %r0}}], [%r2];"),
        format!("{load}.multicast::cluster [%r1], [%rd1, {{%r0, %r0, %r0}}], [%r2], %h1_0;"),
        "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%rd3, {%r0, %r0, %r0, %r0, %r0}], [%r1+1024];".into(),
    ] {
        assert!(text.contains(&wanted), "{wanted}\n{}", text.join("\n"));
    }
}

#[test]
fn the_host_is_told_what_maps_copy() {
    let program: Written = |k, a| {
        let memory = k.tile_memory("tiles");
        _ = (a.x.of(HALF_TILES).at(memory), a.y.boxes(CUBE).at(memory));
    };
    let program = Try(program, 1).build().expect("valid");
    assert_eq!(program.map_box("x"), Some(HALF_TILES.into()));
    assert_eq!(program.tile("x"), Some(HALF_TILES.tile()));
    let cube = program.map_box("y").expect("it is used");
    assert_eq!(
        (cube.dims(), cube.swizzle, cube.elem),
        (&[32, 4, 2][..], Swizzle::B64, Kind::F16)
    );
    assert_eq!((program.tile("y"), program.map_box("z")), (None, None));
}

#[test]
fn parts_of_tiles_that_no_cluster_copies_are_refused() {
    fn copy<'k>(k: Builder<'k>, tile: Staged<'k, f16, ReadOnly>, n: U32<'k>) {
        let full = k.shared::<u64>("full", 1).mbarrier();
        tile.load(n, n, full);
        tile.load_for_cluster(n, n, full);
    }
    let none = errors(|k, a| {
        copy(
            k,
            a.x.of(HALF_TILES.in_parts(0)).at(k.tile_memory("tiles")),
            a.n,
        )
    });
    assert_eq!(
        none[0],
        "a box has 0 of 128 rows: expected a divisor that is a multiple of 8, at most 256"
    );
    let many = errors(|k, a| {
        let tile = TileOf::<f16>::new(256, 64, Swizzle::B128).in_parts(32);
        copy(k, a.x.of(tile).at(k.tile_memory("tiles")), a.n);
    });
    assert_eq!(
        many[0],
        "a tile has 32 parts, one for each block of the cluster: expected at most 8"
    );
}

#[test]
fn tiles_that_do_not_fit_together_are_refused() {
    let inner = errors(|k, a| {
        let memory = k.tile_memory("tiles");
        let (x, mut sums) = (a.x.of(HALF_TILES).at(memory), Accumulators::zero(k, 8));
        k.wgmma_fence();
        sums.multiply_tiles(x.by_columns(), x.by_rows(), k.always());
    });
    assert_eq!(
        inner,
        ["tiles have 64 and 128 elements along the inner dimension: expected the same number"]
    );
    let rows = errors(|k, a| {
        let out = a.y.of(HALF_TILES).at(k.tile_memory("tiles"));
        out.put(&Accumulators::zero(k, 64), 0);
    });
    assert_eq!(
        rows,
        [
            "cannot store columns 0 to 64 of 64 in a tile of 128 rows and 64 columns: expected 64 rows and multiples of 16 columns"
        ]
    );
    let operand = errors(|k, a| {
        let flat = TensorBox::<f16, 2>::new([24, 8], Swizzle::None);
        _ = a.x.boxes(flat).at(k.tile_memory("tiles")).by_columns();
    });
    assert_eq!(
        operand,
        [
            "a box with 8 rows of 48 bytes cannot be an operand of a matmul: expected a multiple of 8 rows of 16 bytes"
        ]
    );
    let two = errors(|_, a| _ = (a.x.of(HALF_TILES), a.x.boxes(CUBE)));
    assert!(
        two[0].starts_with("the tensor map `x` is used for tiles of different boxes"),
        "{two:?}"
    );
    let wrong = errors(|_, a| _ = a.x.boxes(TensorBox::<f16, 2>::new([12, 8], Swizzle::None)));
    assert_eq!(
        wrong,
        ["a box has rows of 24 bytes: expected a multiple of 16"]
    );
}

#[test]
fn a_ring_has_a_barrier_each_way() {
    let shape = RingShape {
        stages: 3,
        bytes: 2048,
        readers: 4,
        blocks: 2,
    };
    assert_eq!(shape.memory(), 6144);
    let text = lines(
        |k, a| {
            let shape = RingShape {
                stages: 3,
                bytes: 16384,
                readers: 4,
                blocks: 2,
            };
            let ring = k.ring(k.tile_memory("stages"), shape);
            k.when(k.tid().eq(0), || ring.init());
            k.cluster_barrier();
            let tiles = a.x.of(HALF_TILES);
            k.when(k.warp().eq(0), || {
                let mut at = ring.start();
                k.when(k.lane().eq(0), || {
                    k.for_each(0, a.n, 1, |i| {
                        ring.fill(&mut at, |stage, landed| {
                            tiles.at(stage).load_for_cluster(k.val(0), i, landed)
                        });
                    });
                });
            })
            .otherwise(|| {
                let mut at = ring.start();
                k.for_each(0, a.n, 1, |_| {
                    ring.wait(&at);
                    ring.advance(&mut at);
                    ring.release_before(&at);
                });
            });
            k.warp_barrier();
            k.cluster_barrier();
        },
        2,
    );
    let count = |part: &str| text.iter().filter(|line| line.contains(part)).count();
    assert_eq!(
        (
            count("mbarrier.init.shared.b64"),
            count(".multicast::cluster [")
        ),
        (6, 1)
    );
    assert_eq!(
        (
            count("mbarrier.try_wait"),
            count("mbarrier.arrive.shared::cluster.b64 _,")
        ),
        (2, 2)
    );
    let odd = errors(|k, _| {
        let shape = RingShape {
            stages: 3,
            bytes: 1000,
            readers: 4,
            blocks: 9,
        };
        _ = k.ring(k.tile_memory("stages"), shape);
    });
    assert!(
        odd[0].starts_with("invalid ring of 3 stages of 1000 bytes for 4 warps in 9 blocks:"),
        "{odd:?}"
    );
}
