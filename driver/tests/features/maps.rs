//! Tensor maps as typed arguments of kernels.

use ptx_gen::{
    Builder, Cpu, Dev, Grid, InMap, KernelDef, Out, Shape, ShapeError, Side, Swizzle as Layout, Tile, args,
};
use warpwright_driver::*;

use crate::{context, text};

args! {
    pub struct CopyArgs {
        n: u32,
        x: InMap<f16>,
        y: Out<u32>,
        add: u32,
    }
}

/// Copies a tile of 64 by 64 as it lies in shared memory, and adds to each word.
struct CopyTile;

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
        self.require(a.x == LEN as usize, || format!("x has {} elements, must have {LEN}", a.x))?;
        self.require(a.y == a.n as usize && a.n == LEN / 2, || "y is not half as long".into())?;
        Ok(Grid { shared: 2 * LEN + 8, ..Grid::line(1) })
    }

    fn program<'k>(&self, k: Builder<'k>, a: CopyArgs<Dev<'k>>) {
        let memory = k.tile_memory("tile");
        let tile = a.x.tiles::<f16>(64, 64, Layout::B128).at(memory);
        let landed = memory.at(2 * LEN).cast::<u64>().mbarrier();
        k.when(k.tid().eq(0), || {
            landed.init(1);
            k.fence_mbarriers();
            landed.arrive_expect(2 * LEN);
            tile.load(k.val(0), k.val(0), landed);
        });
        k.barrier();
        landed.wait(0);
        k.for_each(k.tid(), a.n, 32, |i| a.y.at(i).st(memory.row(i, 4).cast::<u32>().ld() + a.add));
    }

    fn reference(&self, _: CopyArgs<Cpu<'_>>) {}
}

#[test]
fn a_map_stands_among_other_arguments() {
    let context = context();
    let stream = Stream::new(&context).unwrap();
    let numbers: Vec<f16> = (0..LEN as u16).map(f16).collect();
    let x = Buffer::from_slice(&context, &numbers).unwrap();
    let y = Buffer::<u32>::zeroed(&context, LEN as usize / 2).unwrap();
    let tiles = TensorMapBuilder::new(&x, &[64, 64]).boxed(&[64, 64]).swizzle(Swizzle::B128);
    // SAFETY: `x` outlives the launches, which are all work on it.
    let map = unsafe { tiles.encode() }.unwrap();
    let [map, short] = [LEN as usize, 1].map(|elements| MapArg::new(map, elements));
    // SAFETY: the program writes the words that the contract asks for, and reads the tile.
    let copy = unsafe { Kernel::load(&context, CopyTile) }.unwrap();
    let args = |x, add| CopyArgs::<Host<'_>> { n: LEN / 2, x, y: &y, add };
    let refused = copy.with(args(&short, 0)).map(drop);
    assert!(text(refused).ends_with("x has 1 elements, must have 4096"));
    stream.launch(&copy, args(&map, 0)).unwrap();
    let found = stream.read(&y).unwrap();
    let tile = Tile { elem: Kind::F16, rows: 64, columns: 64, swizzle: Layout::B128, box_rows: 64 };
    for i in 0..LEN {
        let at = tile.offset(i / 64, i % 64) / 2;
        assert_eq!(found[at as usize / 2] >> (16 * (at % 2)) & 0xffff, i, "element {i}");
    }
    // In a graph the arguments are kept.
    let mut graph = Graph::new(&context).unwrap();
    graph.add(&[], Work::from(copy.with(args(&map, 7)).unwrap())).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    let added = stream.read(&y).unwrap();
    assert!(added.iter().zip(found).all(|(added, word)| *added == word.wrapping_add(7)));
}
