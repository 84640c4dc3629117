//! Every method of the language becomes the instruction that its documentation names.
//!
//! A case is a program, the methods that it calls, and lines that its text must contain. The last test reads the
//! names of all methods from the source and checks that each has a case. Rings and boxes are in `products.rs`.

use ptx_gen::*;
use std::collections::BTreeSet;

args! {
    /// The arguments of every kernel here.
    pub struct TestArgs {
        /// `[n]`
        x: InOut<f32>,
        /// `[n]`
        i: InOut<u32>,
        /// `[n]`
        s: InOut<i32>,
        /// `[n]`
        w: In<f32>,
        /// `[n]`
        h: In<f16>,
        /// `[n]`
        o: Out<u32>,
        /// `[rows, 64]`
        a: InMap<f16>,
        /// `[rows, 64]`
        b: OutMap<f16>,
        /// Elements.
        n: u32,
    }
}

type Written = for<'k> fn(Builder<'k>, TestArgs<Dev<'k>>);

struct Try(Written);

impl KernelDef for Try {
    type Args<S: Side> = TestArgs<S>;
    fn name(&self) -> String {
        "t".into()
    }
    fn block(&self) -> u32 {
        256
    }
    fn block_shape(&self) -> [u32; 3] {
        [64, 2, 2]
    }
    fn cluster(&self) -> u32 {
        2
    }
    fn grid(&self, _: &TestArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(2))
    }
    fn program<'k>(&self, k: Builder<'k>, a: TestArgs<Dev<'k>>) {
        (self.0)(k, a)
    }
    fn reference(&self, _: TestArgs<Cpu<'_>>) {}
}

struct Case {
    /// The methods that the program is about, separated by spaces.
    methods: &'static str,
    program: Written,
    /// Each of these must occur in the text.
    wanted: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        methods: "tid tid_y tid_z thread shape ctaid ctaid_y ctaid_z nctaid nctaid_y nctaid_z lane warp globaltimer \
                  clock smid note section val",
        program: |k, a| {
            k.note("indices");
            k.section("indices", "the same");
            assert_eq!(k.shape(), [64, 2, 2]);
            let blocks = k.ctaid() + k.ctaid_y() + k.ctaid_z() + k.nctaid() + k.nctaid_y();
            let threads = k.tid() + k.tid_y() + k.tid_z() + k.thread() + k.lane() + k.warp();
            let clocks = (k.globaltimer() + k.clock()).cvt::<u32>();
            let sum = blocks + threads + clocks + k.nctaid_z() + k.smid() + k.val(3u32);
            a.o.st(sum);
        },
        wanted: &[
            "// indices",
            "// the same",
            "%tid.x;",
            "%tid.y;",
            "%tid.z;",
            "%ctaid.x;",
            "%ctaid.y;",
            "%ctaid.z;",
            "%nctaid.x;",
            "%nctaid.y;",
            "%nctaid.z;",
            "%laneid;",
            "%globaltimer;",
            "%clock64;",
            "%smid;",
            ", 5;",
        ],
    },
    Case {
        methods: "var barrier warp_barrier fence trap nanosleep when otherwise for_each repeat repeat_with get set fma \
                  max_with",
        program: |k, a| {
            let mut sum = k.var(0.0f32);
            k.for_each(0, a.n, 1, |i| sum.fma(a.w.at(i).ld(), 2.0));
            sum.max_with(1.0);
            k.when(sum.get().gt(9.0), || k.trap())
                .otherwise(|| k.nanosleep(20));
            k.repeat(|| a.i.at(0).ld().eq(1), || k.fence());
            let mut i = k.var(0u32);
            k.repeat_with(&mut i, |i| i.get().ge(7), |i| i.set(i.get() + 1));
            k.warp_barrier();
            k.barrier();
            a.x.st(&sum);
            a.o.st(&i);
        },
        wanted: &[
            "fma.rn.f32 %f0, %f1_0, 0f40000000, %f0;",
            "max.f32 %f0, %f0, 0f3F800000;",
            "trap;",
            "nanosleep.u32 20;",
            "fence.acq_rel.gpu;",
            "bar.warp.sync 4294967295;",
            "bar.sync 0;",
            "$loop0:",
            "$else1:",
        ],
    },
    Case {
        methods: "cvt bits select eq ne lt le gt ge min max all any ballot pack unpack fma",
        program: |k, a| {
            let x = a.x.at(k.tid()).ld();
            let i: U32 = x.cvt();
            let found = x.eq(1.0) | x.ne(2.0) & x.lt(3.0) | x.le(4.0) & x.gt(5.0) | x.ge(6.0);
            let low: Val<f16> = x.cvt();
            let pair = low.pack(a.h.ld());
            let [low, _] = pair.fma(pair, pair).unpack();
            let bounded = i.min(7).max(2) + pair.bits::<u32>() + found.ballot();
            let chosen = found.all().select(bounded, i);
            a.o.st(found.any().select(chosen, 0));
            a.x.st(low.cvt::<f32>());
        },
        wanted: &[
            "cvt.rzi.u32.f32",
            "setp.eq.f32",
            "setp.neu.f32",
            "setp.lt.f32",
            "setp.le.f32",
            "setp.gt.f32",
            "setp.ge.f32",
            "cvt.rn.f16.f32",
            "{%h0, %h1};",
            "fma.rn.f16x2",
            "min.u32",
            "max.u32",
            "vote.sync.ballot.b32",
            "vote.sync.all.pred",
            "vote.sync.any.pred",
            "selp.u32",
            "cvt.f32.f16",
        ],
    },
    Case {
        methods: "fma abs rcp_rn rcp sqrt_rn rsqrt ex2 lg2 sin cos tanh floor round exp nearest pack_f16 pack_bf16",
        program: |k, a| {
            let x = a.x.at(k.tid()).ld();
            let first = x.fma(x, 1.0).abs() + x.rcp_rn() + x.rcp() + x.sqrt_rn() + x.rsqrt();
            let second = x.ex2() + x.lg2() + x.sin() + x.cos() + x.tanh() + x.floor();
            let sum = first + second + x.round() + x.exp() + x.nearest().cvt::<f32>();
            a.x.st(sum);
            a.o.st(x.pack_f16(sum) + x.pack_bf16(sum));
        },
        wanted: &[
            "fma.rn.f32",
            "abs.f32",
            "rcp.rn.f32",
            "rcp.approx.ftz.f32",
            "sqrt.rn.f32",
            "rsqrt.approx.ftz.f32",
            "ex2.approx.ftz.f32",
            "lg2.approx.ftz.f32",
            "sin.approx.ftz.f32",
            "cos.approx.ftz.f32",
            "tanh.approx.f32",
            "cvt.rmi.f32.f32",
            "cvt.rni.f32.f32",
            "0f3FB8AA3B",
            "cvt.rni.s32.f32",
            "cvt.rn.f16x2.f32",
            "cvt.rn.bf16x2.f32",
        ],
    },
    Case {
        methods: "bfe bfi prmt shf_l dp4a popc clz brev mul_hi mul_wide mad_wide mad abs dp4a_signed lop3",
        program: |k, a| {
            let i = a.i.at(k.tid()).ld();
            let s = a.s.at(k.tid()).ld();
            let bits = i.bfe(3, 4) + i.bfi(i, 1, 2) + i.prmt(i, 0x3210) + i.shf_l(i, 7);
            let counts = i.dp4a(i, i) + i.popc() + i.clz() + i.brev() + i.mul_hi(i);
            let wide = i.mad_wide(i, i.mul_wide(i));
            let signed = s.bfe(3, 4) + s.dp4a(s, s) + s.abs() + i.dp4a_signed(s, s);
            let long: Val<i64> = s.mul_wide(s);
            a.o.st(bits + counts + i.mad(i, 5) + i.lop3(i, i, 0xE8) + wide.cvt::<u32>());
            a.s.st(signed);
            a.x.st(long.cvt::<f32>());
        },
        wanted: &[
            "bfe.u32",
            "bfi.b32",
            "prmt.b32",
            "shf.l.wrap.b32",
            "dp4a.u32.u32",
            "popc.b32",
            "clz.b32",
            "brev.b32",
            "mul.hi.u32",
            "mad.wide.u32",
            "mul.wide.u32",
            "bfe.s32",
            "dp4a.s32.s32",
            "abs.s32",
            "dp4a.u32.s32",
            "mul.wide.s32",
            "mad.lo.u32",
            "lop3.b32",
        ],
    },
    Case {
        methods: "shfl_bfly shfl_down shfl_up shfl_idx broadcast redux_add redux_max elect movmatrix",
        program: |k, a| {
            let i = a.i.at(k.tid()).ld();
            let moved = i.shfl_bfly(1) + i.shfl_down(2) + i.shfl_up(3) + i.shfl_idx(4);
            let all = i.broadcast() + i.redux_add() + i.redux_max() + i.movmatrix();
            k.when(k.elect(), || a.o.st(moved + all));
        },
        wanted: &[
            "shfl.sync.bfly.b32",
            ", 1, 31, 4294967295;",
            "shfl.sync.down.b32",
            ", 2, 31, 4294967295;",
            "shfl.sync.up.b32",
            ", 3, 0, 4294967295;",
            "shfl.sync.idx.b32",
            ", 4, 31, 4294967295;",
            ", 0, 31, 4294967295;",
            "redux.sync.add.u32",
            "redux.sync.max.u32",
            "movmatrix.sync.aligned.m8n8.trans.b16",
            "elect.sync _|",
        ],
    },
    Case {
        methods: "at row cast stream fresh ld ld2 ld4 ld_if ld2_if ld4_if st st2 st4 st_relaxed prefetch_l2",
        program: |k, a| {
            let cond = k.tid().lt(a.n);
            let mut one = k.var(0.0f32);
            let mut two = [k.var(0.0f32), k.var(0.0f32)];
            let mut four = [0.0f32; 4].map(|v| k.var(v));
            a.w.at(k.tid()).ld_if(cond, &mut one);
            a.w.ld2_if(cond, &mut two);
            a.w.ld4_if(cond, &mut four);
            let [x, y] = a.w.row(3, 8).ld2();
            let [b, c, d, e] = a.w.stream().ld4();
            let words = a.w.cast::<u32>().ld();
            a.w.prefetch_l2();
            a.x.st(x + y + b + c + d + e + a.w.fresh().ld() + one.get() + two[1].get());
            a.x.at(2).st2([x, four[3].get()]);
            a.x.at(4).st4([b, c, d, e]);
            a.o.st_relaxed(words);
        },
        wanted: &[
            "@%p0 ld.global.nc.f32 %f0,",
            "ld.global.nc.v2.f32 {%f1, %f2}",
            "ld.global.nc.v4.f32 {%f3, %f4, %f5, %f6}",
            "+24];",
            "ld.global.nc.L1::no_allocate.v4.f32",
            "ld.global.nc.u32",
            "prefetch.global.L2",
            "ld.relaxed.gpu.global.f32",
            "st.global.v2.f32",
            "st.global.v4.f32",
            "st.relaxed.gpu.global.u32",
        ],
    },
    Case {
        methods: "atom_add atom_max atom_min atom_exch atom_cas red_add st_release_sys ld_acquire st_release ticket \
                  red_release",
        program: |_, a| {
            let i = a.i.at(1);
            let old = i.atom_add(1) + i.atom_max(2) + i.atom_min(3) + i.atom_exch(4);
            i.red_add(old + i.atom_cas(5, 6) + i.ticket(7) + i.ld_acquire());
            i.red_release(8);
            i.st_release(9);
            i.st_release_sys(10);
            a.s.red_add(a.s.atom_max(-1));
        },
        wanted: &[
            "atom.global.add.u32 %r1, [%rd3+4], 1;",
            "atom.global.max.u32 %r2, [%rd3+4], 2;",
            "atom.global.min.u32",
            "atom.global.exch.b32",
            "atom.global.cas.b32",
            "atom.acq_rel.gpu.global.inc.u32",
            "ld.acquire.gpu.global.u32",
            "red.global.add.u32",
            "red.release.gpu.global.add.u32 [%rd3+4], 8;",
            "st.release.gpu.global.u32 [%rd3+4], 9;",
            "st.release.sys.global.u32 [%rd3+4], 10;",
            "atom.global.max.s32",
            "red.global.add.s32",
        ],
    },
    Case {
        methods: "shared dynamic_shared tile_memory atom_add atom_max atom_min atom_exch atom_cas red_add",
        program: |k, a| {
            let s = k.shared::<u32>("words", 64);
            k.dynamic_shared::<u32>("d").at(k.tid()).st(0);
            k.tile_memory("tiles").st(0);
            let old =
                s.atom_add(1) + s.atom_max(2) + s.atom_min(3) + s.atom_exch(4) + s.atom_cas(5, 6);
            s.red_add(7);
            a.o.st(old);
        },
        wanted: &[
            ".shared .align 16 .b8 words[256];",
            ".extern .shared .align 16 .b8 d[];",
            ".extern .shared .align 1024 .b8 tiles[];",
            "atom.shared.add.u32",
            "atom.shared.max.u32",
            "atom.shared.min.u32",
            "atom.shared.exch.b32",
            "atom.shared.cas.b32",
            "red.shared.add.u32",
        ],
    },
    Case {
        methods: "mbarrier init arrive arrive_expect arrive_copied wait wait_for_cluster wait_polling bulk_copy \
                  bulk_prefetch_l2 copy16 fence_mbarriers evict_first evict_last commit_copies wait_copies",
        program: |k, a| {
            let memory = k.shared::<f32>("memory", 64);
            let landed = k.shared::<u64>("landed", 1).mbarrier();
            k.when(k.thread().eq(0), || {
                landed.init(257);
                k.fence_mbarriers();
                landed.arrive_expect(256);
                a.w.bulk_prefetch_l2(256);
                a.w.bulk_copy(memory, 128, landed, k.evict_first());
                a.w.bulk_copy(memory.at(32), 128, landed, k.evict_last());
            });
            k.barrier();
            a.w.copy16(memory);
            k.commit_copies();
            k.wait_copies(1);
            landed.arrive_copied();
            landed.arrive();
            landed.wait(0);
            landed.wait_polling(0);
            landed.wait_for_cluster(1);
        },
        wanted: &[
            "mbarrier.init.shared.b64",
            "fence.mbarrier_init.release.cluster;",
            "fence.proxy.async.shared::cta;",
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r",
            "cp.async.bulk.prefetch.L2.global",
            "createpolicy.fractional.L2::evict_first.b64",
            "createpolicy.fractional.L2::evict_last.b64",
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint",
            "cp.async.cg.shared.global",
            "cp.async.commit_group;",
            "cp.async.wait_group 1;",
            "cp.async.mbarrier.arrive.noinc.shared.b64",
            "mbarrier.arrive.shared.b64 _,",
            "mbarrier.try_wait.parity.shared::cta.b64",
            "mbarrier.test_wait.parity.shared.b64",
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64",
        ],
    },
    Case {
        methods: "grid_trigger grid_wait barrier_part barrier_arrive take_registers give_registers warpgroup roles new",
        program: |k, a| {
            k.grid_wait();
            k.grid_trigger();
            k.barrier_part(3, 256);
            k.barrier_arrive(4, 512);
            k.give_registers(40);
            k.take_registers(232);
            a.o.st(k.warpgroup());
            k.roles(vec![
                Role::new(1, 40, |_| {}),
                Role::new(1, 232, |own| a.o.st(own)),
            ]);
        },
        wanted: &[
            "griddepcontrol.wait;",
            "griddepcontrol.launch_dependents;",
            "bar.sync 3, 256;",
            "bar.arrive 4, 512;",
            "setmaxnreg.dec.sync.aligned.u32 40;",
            "setmaxnreg.inc.sync.aligned.u32 232;",
            ", 7;",
        ],
    },
    Case {
        methods: "cluster_rank cluster_blocks cluster_id clusters cluster_arrive cluster_arrive_relaxed cluster_wait \
                  cluster_barrier in_block arrive_in_block publish_to_block",
        program: |k, a| {
            let landed = k.shared::<u64>("landed", 1).mbarrier();
            let s = k.shared::<u32>("words", 64);
            k.when(k.thread().eq(0), || landed.init(512));
            k.cluster_arrive();
            k.cluster_wait();
            s.in_block(k.cluster_rank() ^ 1).at(k.tid()).st(5);
            landed.arrive_in_block(0);
            landed.publish_to_block(1);
            k.cluster_arrive_relaxed();
            k.cluster_wait();
            a.o.st(k.cluster_blocks() + k.cluster_id() + k.clusters());
            k.cluster_barrier();
        },
        wanted: &[
            "barrier.cluster.arrive.release.aligned;",
            "barrier.cluster.arrive.relaxed.aligned;",
            "barrier.cluster.wait.acquire.aligned;",
            "mapa.shared::cluster.u32",
            "st.shared::cluster.u32",
            "mbarrier.arrive.shared::cluster.b64 _,",
            "mbarrier.arrive.release.cluster.shared::cluster.b64 _,",
            "%cluster_ctarank;",
            "%cluster_nctarank;",
            "%clusterid.x;",
            "%nclusterid.x;",
        ],
    },
    Case {
        methods: "of zero add_f16 add_bf16 add_u8 add_i8 ldmatrix4 ldmatrix4_trans ldmatrix2 stmatrix stmatrix_trans",
        program: |k, a| {
            let s = k.shared::<u16>("words", 2048).at(k.lane() * 8);
            let mut left = [0u32; 4].map(|v| k.var(v));
            for (v, loaded) in left.iter_mut().zip(s.ldmatrix4()) {
                v.set(loaded);
            }

            let left = LeftFragment::of(&left);
            let right = RightFragment(s.ldmatrix2());
            let mut floats = Sums::<f32>::zero(k);
            floats.add_f16(left, right);
            floats.add_bf16(left, right);
            let mut ints = Sums::<i32>::zero(k);
            ints.add_u8(left, right);
            ints.add_i8(left, right);
            let [r0, r1, ..] = s.ldmatrix4_trans();
            s.stmatrix(&[r0]);
            s.stmatrix_trans(&[r0, r1]);
            a.x.st(&floats.0[0]);
            a.s.st(&ints.0[0]);
        },
        wanted: &[
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
            "ldmatrix.sync.aligned.m8n8.x2.shared.b16",
            "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
            "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32",
            "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
            "stmatrix.sync.aligned.m8n8.x1.shared.b16",
            "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16",
        ],
    },
    Case {
        methods: "of tiles tiles_in_parts prefetch tile at ptr load load_part_to load_for_cluster store in_parts bytes \
                  fence_async fence_async_in_cluster commit_stores wait_stores wait_stores_read bulk_store",
        program: |k, a| {
            const HALF: TileOf<f16> = TileOf::new(64, 64, Swizzle::B128).in_parts(2);
            let memory = k.tile_memory("tiles");
            let landed = k.shared::<u64>("landed", 1).mbarrier();
            let tile = a.a.of(HALF).at(memory);
            let out = a.b.tiles::<f16>(64, 64, Swizzle::B128).at(tile.ptr());
            _ = a.a.tiles_in_parts::<f16>(64, 64, Swizzle::B128, 2).tile();
            let zero = k.val(0u32);
            k.when(k.thread().eq(0), || {
                a.a.prefetch();
                landed.init(1);
                landed.arrive_expect(3 * HALF.bytes());
                tile.load(zero, zero, landed);
                tile.load_part_to(zero, a.n, 0, landed, k.val(3u32));
                tile.load_for_cluster(zero, zero, landed);
                k.fence_async();
                k.fence_async_in_cluster();
                out.store(zero, zero);
                k.shared::<f32>("row", 64).bulk_store(a.x, 256);
                k.commit_stores();
                k.wait_stores_read(1);
                k.wait_stores(0);
            });
        },
        wanted: &[
            "prefetch.tensormap",
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [",
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
            "fence.proxy.async.shared::cta;",
            "fence.proxy.async.shared::cluster;",
            "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group",
            "cp.async.bulk.global.shared::cta.bulk_group",
            "cp.async.bulk.commit_group;",
            "cp.async.bulk.wait_group.read 1;",
            "cp.async.bulk.wait_group 0;",
        ],
    },
    Case {
        methods: "by_columns by_rows inner outer zero clear columns multiply multiply_registers multiply_tiles put get \
                  wgmma_fence wgmma_commit wgmma_wait always",
        program: |k, a| {
            let memory = k.tile_memory("tiles");
            let tile = a.b.of(TileOf::<f16>::new(64, 64, Swizzle::B128)).at(memory);
            let right = Descriptor::<f16>::by_columns(memory, 64, 64, Swizzle::B128);
            let rows = Descriptor::<f16>::by_rows(memory, 64, 64, Swizzle::B128);
            let left = LeftFragment(tile.get()[0]);
            let mut sums = Accumulators::zero(k, 64);
            assert_eq!(sums.columns(), 64);
            sums.clear();
            let always = k.always();
            k.wgmma_fence();
            sums.multiply(tile.by_columns(), right.inner(16), always);
            sums.multiply(tile.by_rows(), rows.outer(0), always);
            sums.multiply_registers::<f16, f16>(left, right, always);
            sums.multiply_tiles(tile.by_columns(), right, always);
            k.wgmma_commit();
            k.wgmma_wait(0);
            tile.put(&sums, 0);
        },
        wanted: &[
            "wgmma.fence.sync.aligned;",
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {",
            "1, 1, 1, 1;",
            "wgmma.commit_group.sync.aligned;",
            "wgmma.wait_group.sync.aligned 0;",
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
            "stmatrix.sync.aligned.m8n8.x4.shared.b16",
        ],
    },
];

#[test]
fn methods_become_their_instructions() {
    let target = Target::named("sm_90a").expect("a target");
    let mut problems = vec![];
    for case in CASES {
        let program = match Try(case.program).build() {
            Ok(program) => program,
            Err(errors) => {
                problems.push(format!("{}:\n{errors}", case.methods));
                continue;
            }
        };
        let text = print(&program, target).expect("every row is allowed on sm_90a");
        let missing: Vec<_> = case
            .wanted
            .iter()
            .filter(|wanted| !text.contains(**wanted))
            .collect();
        if !missing.is_empty() {
            problems.push(format!("{missing:?} of\n{text}"));
        }
    }

    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The names of the public methods in a file of the crate: functions, and lines of the table `methods!`.
fn methods_of(file: &str) -> Vec<String> {
    let path = format!("{}/src/{file}.rs", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("a file of the crate");
    let name = |line: &str| {
        let rest = line.trim_start();
        let of_function = ["pub fn ", "pub const fn "]
            .into_iter()
            .find_map(|start| rest.strip_prefix(start));
        let of_row = Some(rest)
            .filter(|rest| rest.contains(") -> ") && rest.contains(" = ") && rest.ends_with(';'));
        let declared = of_function.or(of_row)?;
        let end = declared.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        Some(declared[..end].to_string()).filter(|name| !name.is_empty())
    };
    text.lines().filter_map(name).collect()
}

#[test]
fn every_method_has_a_case() {
    let covered: BTreeSet<&str> = CASES
        .iter()
        .flat_map(|case| case.methods.split_whitespace())
        .collect();
    let mut count = 0;
    for file in [
        "build",
        "ops",
        "fold",
        "mem",
        "asynchronous",
        "cluster",
        "mma",
        "tensor",
        "wgmma",
    ] {
        for method in methods_of(file) {
            assert!(
                covered.contains(method.as_str()),
                "{file}.rs: `{method}` has no case: add one"
            );
            count += 1;
        }
    }

    assert!(count > 180, "only {count} methods were found");
}
