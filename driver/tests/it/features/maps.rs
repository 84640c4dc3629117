//! Tensor maps as typed arguments of kernels, made of the same tiles and boxes as the kernels'
//! copies.
//!
//! With `WARPWRIGHT_LIBCUDA` set, on the device of that driver: then these tests say what hardware
//! does.

use ptx_gen::{
    Accumulators, Builder, Cpu, Dev, Grid, InMap, KernelDef, Out, OutMap, Shape, ShapeError, Side,
    Swizzle as Layout, TensorBox, Tile, TileOf, args,
};
use warpwright_driver::memory::{Kind, Swizzle};
use warpwright_driver::prelude::*;

use super::{Alone, context, text};

/// A context of the device of the driver that is named, or of the emulator's.
fn device() -> Alone {
    let mut alone = context();
    if std::env::var_os("WARPWRIGHT_LIBCUDA").is_some() {
        alone.context = Context::new(&Driver::load().unwrap().device(0).unwrap()).unwrap();
    }
    alone
}

args! {
    pub struct CopyArgs {
        n: u32,
        x: InMap<f16>,
        y: Out<u32>,
        add: u32,
    }
}

/// Copies a tile of 64 by 64 as it lies in shared memory, and adds to each word.
struct CopyTile(TileOf<f16>);

const LEN: u32 = 64 * 64;

impl KernelDef for CopyTile {
    type Args<S: Side> = CopyArgs<S>;

    fn name(&self) -> String {
        "copy_tile".into()
    }

    fn block(&self) -> u32 {
        32
    }

    fn grid(&self, a: &CopyArgs<Shape>) -> Result<Grid, ShapeError> {
        self.require(a.x == LEN as usize, || {
            format!("x has {} elements, must have {LEN}", a.x)
        })?;
        self.require(a.y == a.n as usize && a.n == LEN / 2, || {
            "y is not half as long".into()
        })?;
        Ok(Grid {
            shared: 2 * LEN + 8,
            ..Grid::line(1)
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: CopyArgs<Dev<'k>>) {
        let memory = k.tile_memory("tile");
        let tile = a.x.of(self.0).at(memory);
        let landed = memory.at(2 * LEN).cast::<u64>().mbarrier();
        k.when(k.tid().eq(0), || {
            landed.init(1);
            k.fence_mbarriers();
            landed.arrive_expect(2 * LEN);
            tile.load(k.val(0), k.val(0), landed);
        });
        k.barrier();
        landed.wait(0);
        k.for_each(k.tid(), a.n, 32, |i| {
            a.y.at(i).st(memory.row(i, 4).cast::<u32>().ld() + a.add)
        });
    }

    fn reference(&self, _: CopyArgs<Cpu<'_>>) {}
}

#[test]
fn a_map_stands_among_other_arguments() {
    const TILE: TileOf<f16> = TileOf::new(64, 64, Layout::B128);
    let context = device();
    let stream = Stream::new(&context).unwrap();
    let numbers: Vec<f16> = (0..LEN as u16).map(f16).collect();
    let x = Buffer::from_slice(&context, &numbers).unwrap();
    let y = Buffer::<u32>::zeroed(&context, LEN as usize / 2).unwrap();
    let tiles = TensorMapBuilder::matrix(&x, 64, 64).tile(TILE);

    // SAFETY: `x` outlives the launches, which are all work on it.
    let (map, short) = unsafe {
        (
            tiles.arg().unwrap(),
            MapArg::new(tiles.encode().unwrap(), 1),
        )
    };

    // SAFETY: the program writes the words that the contract asks for, and reads the tile.
    let copy = unsafe { Kernel::load(&context, CopyTile(TILE)) }.unwrap();
    let args = |x, add| CopyArgs::<Host<'_>> {
        n: LEN / 2,
        x,
        y: &y,
        add,
    };
    let refused = copy.with(args(&short, 0)).map(drop);
    assert!(text(refused).ends_with("x has 1 elements, must have 4096"));
    stream.launch(&copy, args(&map, 0)).unwrap();
    let found = stream.read(&y).unwrap();
    for i in 0..LEN {
        let at = TILE.tile().offset(i / 64, i % 64) / 2;
        assert_eq!(
            found[at as usize / 2] >> (16 * (at % 2)) & 0xffff,
            i,
            "element {i}"
        );
    }

    // In a graph the arguments are kept.
    let mut graph = Graph::new(&context).unwrap();
    graph
        .add(&[], Work::from(copy.with(args(&map, 7)).unwrap()))
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    let added = stream.read(&y).unwrap();
    assert!(
        added
            .iter()
            .zip(found)
            .all(|(added, word)| *added == word.wrapping_add(7))
    );
}

/// A map that knows its tensor is an argument like a buffer: launches are ordered by it, and keep
/// it alive.
#[test]
fn the_tensor_of_a_map_is_an_argument() {
    const TILE: TileOf<f16> = TileOf::new(64, 64, Layout::B128);
    let context = device();
    let stream = Stream::new(&context).unwrap();

    // SAFETY: as above.
    let copy = unsafe { Kernel::load(&context, CopyTile(TILE)) }.unwrap();
    let x = Buffer::<f16>::zeroed(&context, LEN as usize).unwrap();
    let y = Buffer::<u32>::zeroed(&context, LEN as usize / 2).unwrap();

    // SAFETY: the tile is the kernel's.
    let map = unsafe { TensorMapBuilder::matrix(&x, 64, 64).tile(TILE).arg() }.unwrap();
    let args = |add| CopyArgs::<Host<'_>> {
        n: LEN / 2,
        x: &map,
        y: &y,
        add,
    };
    let mut recorder = Recorder::new(&context).unwrap();
    recorder.fill(&x, f16(3)).unwrap();
    recorder.launch(&copy, args(1)).unwrap();
    let graph = recorder.finish();
    let uses = graph.nodes().last().unwrap().uses();
    let uses: Vec<_> = uses.iter().map(|used| (used.name, used.access)).collect();
    assert_eq!(uses, [("y", Access::Write), ("x", Access::Read)]);
    assert_eq!(graph.edges().len(), 1, "the launch reads what was filled");

    // The buffer is dropped; graph and map keep the memory.
    drop(x);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert!(
        stream
            .read(&y)
            .unwrap()
            .iter()
            .all(|word| *word == 0x3_0003 + 1)
    );

    // What a kernel writes may not be what it reads through a map.
    let both = Buffer::<u32>::zeroed(&context, LEN as usize / 2).unwrap();
    let halves = both.view().cast::<f16>().unwrap();

    // SAFETY: as above.
    let map = unsafe { TensorMapBuilder::matrix(&halves, 64, 64).tile(TILE).arg() }.unwrap();
    let refused = text(
        copy.with(CopyArgs::<Host<'_>> {
            n: LEN / 2,
            x: &map,
            y: &both,
            add: 0,
        })
        .map(drop),
    );
    assert!(
        refused.starts_with("kernel copy_tile: arguments x and y overlap"),
        "{refused}"
    );
}

/// A map that is not of the kernel's tile cannot be made of it.
#[test]
fn a_tile_says_the_box_the_swizzle_and_the_type() {
    let context = context();
    let halves = Buffer::<f16>::zeroed(&context, 64 * 64).unwrap();
    let floats = Buffer::<f32>::zeroed(&context, 64 * 64).unwrap();
    let tile = TileOf::<f16>::new(64, 64, Layout::B128);

    // SAFETY: no kernel takes the maps.
    let encode = |builder: TensorMapBuilder<f32>| unsafe { builder.encode() }.map(drop);
    let other = text(encode(TensorMapBuilder::matrix(&floats, 64, 64).tile(tile)));
    assert_eq!(
        other,
        "tensor map: the kernel's tile contains f16 elements, but the view contains f32"
    );
    encode(
        TensorMapBuilder::matrix(&floats, 64, 64).tile(TileOf::<ptx_gen::tf32>::new(
            64,
            32,
            Layout::B128,
        )),
    )
    .unwrap();
    let cube = TensorBox::<ptx_gen::tf32, 3>::new([8, 8, 2], Layout::B32);
    let flat = text(encode(TensorMapBuilder::matrix(&floats, 64, 64).tile(cube)));
    assert!(
        flat.starts_with("tensor map: 2 dimensions, 1 strides and a box of 3;"),
        "{flat}"
    );

    // By hand the same map.
    let by_hand = TensorMapBuilder::new(&halves, &[64, 64])
        .boxed(&[64, 32])
        .swizzle(Swizzle::B128);
    let of_tile = TensorMapBuilder::matrix(&halves, 64, 64).tile(tile.in_parts(2));
    assert_eq!(
        format!("{:?}", by_hand),
        format!("{of_tile:?}").replace("Some(F16)", "None")
    );
}

args! {
    pub struct ProductArgs {
        x: InMap<f16>,
        w: InMap<f16>,
        z: OutMap<f16>,
    }
}

/// `z = x w^T` of 64 by 64, either matrix transposed or not, all in tiles of one layout.
struct Product {
    layout: Layout,
    /// Whether rows of `x` and of `w` are of the inner dimension.
    transposed: [bool; 2],
}

impl Product {
    fn tile(&self) -> TileOf<f16> {
        TileOf::new(64, 64, self.layout)
    }
}

impl KernelDef for Product {
    type Args<S: Side> = ProductArgs<S>;

    fn name(&self) -> String {
        "product".into()
    }

    fn block(&self) -> u32 {
        128
    }

    fn grid(&self, _: &ProductArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid {
            shared: 3 * 2 * LEN + 8,
            ..Grid::line(1)
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: ProductArgs<Dev<'k>>) {
        let (memory, tile) = (k.tile_memory("tiles"), self.tile());
        let (x, w) = (
            a.x.of(tile).at(memory),
            a.w.of(tile).at(memory.at(tile.bytes())),
        );
        let z = a.z.of(tile).at(memory.at(2 * tile.bytes()));
        let landed = memory.at(3 * tile.bytes()).cast::<u64>().mbarrier();
        let first = k.tid().eq(0);
        k.when(first, || {
            landed.init(1);
            k.fence_mbarriers();
            landed.arrive_expect(2 * tile.bytes());
            x.load(k.val(0), k.val(0), landed);
            w.load(k.val(0), k.val(0), landed);
        });
        k.barrier();
        landed.wait(0);
        let mut sums = Accumulators::zero(k, 64);
        let [x, w] = [(x, self.transposed[0]), (w, self.transposed[1])].map(|(m, transposed)| {
            if transposed {
                m.by_rows()
            } else {
                m.by_columns()
            }
        });
        k.wgmma_fence();
        sums.multiply_tiles(x, w, k.val(0u32).ne(0));
        k.wgmma_commit();
        k.wgmma_wait(0);
        z.put(&sums, 0);
        k.fence_async();
        k.barrier();
        k.when(first, || {
            z.store(k.val(0), k.val(0));
            k.commit_stores();
            k.wait_stores(0);
        });
    }

    fn reference(&self, _: ProductArgs<Cpu<'_>>) {}
}

/// Small integers, whose products and sums are exact.
fn integers(n: usize, seed: usize) -> Vec<f16> {
    (0..n)
        .map(|i| f16::from_f32(((i * 7 + i / 64 * 5 + seed) % 9) as f32 - 4.0))
        .collect()
}

/// Multiplies tiles of a layout, either of them along its rows or its columns.
fn multiply_tiles(layout: Layout) {
    let context = device();
    let stream = Stream::new(&context).unwrap();
    let (x, w) = (integers(LEN as usize, 1), integers(LEN as usize, 5));
    let [xs, ws] = [&x, &w].map(|v| Buffer::from_slice(&context, v).unwrap());
    for transposed in [[false; 2], [true, false], [false, true], [true; 2]] {
        let product = Product { layout, transposed };
        let z = Buffer::<f16>::zeroed(&context, LEN as usize).unwrap();
        let [x_map, w_map, z_map] = [&xs, &ws, &z].map(|m| {
            // SAFETY: the matrices live until the kernel has run.
            unsafe {
                TensorMapBuilder::matrix(m, 64, 64)
                    .tile(product.tile())
                    .arg()
            }
            .unwrap()
        });

        // SAFETY: the program copies the tiles of the maps.
        let kernel = unsafe { Kernel::load(&context, product) }.unwrap();
        stream
            .launch(
                &kernel,
                ProductArgs {
                    x: &x_map,
                    w: &w_map,
                    z: &z_map,
                },
            )
            .unwrap();
        let found = stream.read(&z).unwrap();
        let at = |v: &[f16], transposed, outer: usize, inner: usize| {
            let (row, column) = if transposed {
                (inner, outer)
            } else {
                (outer, inner)
            };
            v[64 * row + column].to_f32()
        };
        for (m, n) in (0..64).flat_map(|m| (0..64).map(move |n| (m, n))) {
            let one = |i| at(&x, transposed[0], m, i) * at(&w, transposed[1], n, i);
            let wanted: f32 = (0..64).map(one).sum();
            assert_eq!(
                found[64 * m + n].to_f32(),
                wanted,
                "{layout:?} {transposed:?}: {m}, {n}"
            );
        }
    }
}

#[test]
fn tiles_without_a_swizzle_are_multiplied_either_way() {
    multiply_tiles(Layout::None);
}

#[test]
fn tiles_in_rows_of_32_are_multiplied_either_way() {
    multiply_tiles(Layout::B32);
}

#[test]
fn tiles_in_rows_of_64_are_multiplied_either_way() {
    multiply_tiles(Layout::B64);
}

#[test]
fn tiles_in_rows_of_128_are_multiplied_either_way() {
    multiply_tiles(Layout::B128);
}

args! {
    pub struct BoxArgs {
        x: InMap<f16>,
        z: OutMap<f16>,
        y: Out<u32>,
        from_inner: u32,
        from: u32,
        to_inner: u32,
        to: u32,
    }
}

/// Copies a box from `from_inner` in the innermost dimension and `from` in the others to shared
/// memory, to `y` as it lies there, and to `to_inner` and `to` in `z`.
struct CopyBox<const N: usize>(TensorBox<f16, N>);

impl<const N: usize> KernelDef for CopyBox<N> {
    type Args<S: Side> = BoxArgs<S>;

    fn name(&self) -> String {
        "copy_box".into()
    }

    fn block(&self) -> u32 {
        32
    }

    fn grid(&self, _: &BoxArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid {
            shared: self.0.bytes().next_multiple_of(8) + 8,
            ..Grid::line(1)
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: BoxArgs<Dev<'k>>) {
        let memory = k.tile_memory("box");
        let (x, z) = (a.x.boxes(self.0).at(memory), a.z.boxes(self.0).at(memory));
        let landed = memory
            .at(self.0.bytes().next_multiple_of(8))
            .cast::<u64>()
            .mbarrier();
        let first = k.tid().eq(0);
        let place =
            |inner, outer| std::array::from_fn::<_, N, _>(|i| if i == 0 { inner } else { outer });
        k.when(first, || {
            landed.init(1);
            k.fence_mbarriers();
            landed.arrive_expect(self.0.bytes());
            x.load(place(a.from_inner, a.from), landed);
        });
        k.barrier();
        landed.wait(0);
        k.for_each(k.tid(), k.val(self.0.bytes() / 4), 32, |i| {
            a.y.at(i).st(memory.row(i, 4).cast::<u32>().ld());
        });
        k.when(first, || {
            z.store(place(a.to_inner, a.to));
            k.commit_stores();
            k.wait_stores(0);
        });
    }

    fn reference(&self, _: BoxArgs<Cpu<'_>>) {}
}

fn box_args<'a>([x, z]: [&'a MapArg; 2], y: &'a View<u32>, round: [i32; 4]) -> BoxArgs<Host<'a>> {
    let [from_inner, from, to_inner, to] = round.map(|v| v as u32);
    BoxArgs {
        x,
        z,
        y,
        from_inner,
        from,
        to_inner,
        to,
    }
}

/// The first elements of boxes in each round: for the source and then the target, the innermost
/// dimension, which must be a multiple of 16 bytes, and the others. Only loads may begin before the
/// tensor.
const ROUNDS: [[i32; 4]; 3] = [[0, 0, 8, 1], [-8, -1, 0, 0], [8, 2, 0, 1]];

/// Copies boxes of a tensor, some of which stand over its edges, and compares every element.
fn copy_boxes<const N: usize>(context: &Context, dims: [u32; N], boxed: [u32; N], layout: Layout) {
    let shape = TensorBox::<f16, N>::new(boxed, layout);
    let stream = Stream::new(context).unwrap();
    let len = dims.iter().product::<u32>() as usize;
    let x: Vec<f16> = (0..len).map(|i| f16(i as u16 + 1)).collect();
    let xs = Buffer::from_slice(context, &x).unwrap();

    // SAFETY: the program copies boxes of the maps, and writes as many words of `y` as a box has.
    let kernel = unsafe { Kernel::load(context, CopyBox(shape)) }.unwrap();
    let sizes = dims.map(u64::from);
    for round in ROUNDS {
        let [from_inner, from, to_inner, to] = round;
        let (z, y) = (
            Buffer::<f16>::zeroed(context, len).unwrap(),
            Buffer::<u32>::zeroed(context, shape.bytes() as usize / 4).unwrap(),
        );

        // SAFETY: the tensors live until the kernel has run.
        let [x_map, z_map] = [&xs, &z]
            .map(|m| unsafe { TensorMapBuilder::new(m, &sizes).tile(shape).arg() }.unwrap());
        stream
            .launch(&kernel, box_args([&x_map, &z_map], &y, round))
            .unwrap();
        let (z, words) = (stream.read(&z).unwrap(), stream.read(&y).unwrap());

        // The number of the element so far from a place, if the tensor has it.
        let number = |inner: i32, outer: i32, offset: [u32; N]| {
            let at = |i: usize| if i == 0 { inner } else { outer } + offset[i] as i32;
            let inside = |i: usize| {
                usize::try_from(at(i))
                    .ok()
                    .filter(|at| *at < dims[i] as usize)
            };
            (0..N)
                .rev()
                .try_fold(0, |n, i| Some(n * dims[i] as usize + inside(i)?))
        };
        let mut wanted_z = vec![f16(0); len];
        for i in 0..boxed.iter().product::<u32>() {
            let mut rest = i;
            let offset = boxed.map(|n| {
                let at = rest % n;
                rest /= n;
                at
            });
            let value = number(from_inner, from, offset).map_or(f16(0), |n| x[n]);
            let at = shape.offset(offset) / 2;
            let found = (words[at as usize / 2] >> (16 * (at % 2))) as u16;
            assert_eq!(found, value.0, "{boxed:?} {layout:?} {round:?}: {offset:?}");
            if let Some(n) = number(to_inner, to, offset) {
                wanted_z[n] = value;
            }
        }

        assert!(z == wanted_z, "{boxed:?} {layout:?} {round:?}");
    }
}

/// Boxes of one to five dimensions, copied both ways.
mod boxes {
    use super::*;

    macro_rules! boxes {
        ($($name:ident: $boxed:expr, $layout:ident of $dims:expr;)*) => {$(
            #[test]
            fn $name() {
                copy_boxes(&device(), $dims, $boxed, Layout::$layout);
            }
        )*};
    }
    boxes! {
        line_in_rows_of_128: [64], B128 of [100];
        line: [24], None of [100];
        plane_in_rows_of_64: [32, 8], B64 of [72, 9];
        cube_in_rows_of_32: [16, 3, 4], B32 of [40, 5, 6];
        cube: [24, 2, 3], None of [40, 5, 6];
        four_in_rows_of_128: [64, 2, 3, 2], B128 of [72, 3, 4, 3];
        five_in_rows_of_64: [32, 2, 3, 2, 2], B64 of [40, 3, 4, 3, 3];
        five: [8, 1, 3, 2, 2], None of [16, 2, 3, 3, 2];
    }
}

/// What a box and a tile have in common is one thing.
#[test]
fn a_box_with_rows_of_the_swizzle_is_a_tile() {
    let shape = TensorBox::<f16, 3>::new([64, 4, 6], Layout::B128);
    let tile = Tile {
        elem: Kind::F16,
        rows: 24,
        columns: 64,
        swizzle: Layout::B128,
        box_rows: 24,
    };
    for (row, column) in (0..24).flat_map(|row| (0..64).map(move |column| (row, column))) {
        assert_eq!(
            shape.offset([column, row % 4, row / 4]),
            tile.offset(row, column)
        );
    }
}
