//! Imports both preludes, and runs a kernel of `ptx-gen` with the driver crate.

use ptx_gen::prelude::*;
use warpwright_driver::prelude::*;

/// An error of a program that uses both crates.
#[derive(Debug)]
enum MyError {
    Driver(Error),
    File(std::io::Error),
}

impl From<Error> for MyError {
    fn from(e: Error) -> Self {
        MyError::Driver(e)
    }
}

impl From<std::io::Error> for MyError {
    fn from(e: std::io::Error) -> Self {
        MyError::File(e)
    }
}

args! {
    /// The arguments of [`Block`].
    pub struct BlockArgs {
        /// `[WIDTH * HEIGHT * DEPTH]`
        x: In<f32>,
        /// `[WIDTH * HEIGHT * DEPTH]`: `e^x`
        y: Out<f32>,
        /// `[WIDTH * HEIGHT * DEPTH]`: three coordinates and the warp, a byte each
        places: Out<u32>,
        /// `[WORDS]`: results of atomic operations on shared memory
        words: Out<u32>,
        /// `[1]`
        sum: Out<u64>,
    }
}

/// A kernel whose block has three dimensions, with a row of each atomic operation on shared memory.
struct Block;

const WIDTH: u32 = 24;
const HEIGHT: u32 = 4;
const DEPTH: u32 = 2;
const THREADS: u32 = WIDTH * HEIGHT * DEPTH;
const WORDS: u32 = 8;

impl KernelDef for Block {
    type Args<S: Side> = BlockArgs<S>;
    fn name(&self) -> String {
        "block".into()
    }
    fn block(&self) -> u32 {
        THREADS
    }
    fn block_shape(&self) -> [u32; 3] {
        [WIDTH, HEIGHT, DEPTH]
    }
    fn grid(&self, a: &BlockArgs<Shape>) -> Result<Grid, ShapeError> {
        let n = THREADS as usize;
        self.require(
            [a.x, a.y, a.places, a.words, a.sum] == [n, n, n, WORDS as usize, 1],
            || format!("x, y and places must hold {n} elements, words {WORDS} and sum 1"),
        )?;
        Ok(Grid::line(1))
    }
    fn program<'k>(&self, k: Builder<'k>, a: BlockArgs<Dev<'k>>) {
        let words = k.shared::<u32>("shared_words", WORDS);
        let signed = k.shared::<i32>("shared_signed", 2);
        let sum = k.shared::<u64>("shared_sum", 1);
        let i = k.thread();
        k.when(i.lt(WORDS), || words.at(i).st(100u32));
        k.when(i.lt(2), || signed.at(i).st(0i32));
        k.when(i.eq(0), || sum.st(0u64));
        k.barrier();

        a.y.at(i).st(a.x.at(i).ld().exp());
        a.places
            .at(i)
            .st(k.tid() + k.tid_y() * 256 + k.tid_z() * 65536 + k.warp() * (1 << 24));
        _ = words.at(0).atom_max(i);
        _ = words.at(1).atom_min(i);
        words.at(2).red_add(i);
        _ = signed.at(0).atom_max(7 - i.bits::<i32>());
        _ = signed.at(1).atom_min(7 - i.bits::<i32>());

        // The first thread that comes replaces 100, and all others find its number.
        _ = words.at(3).atom_cas(100u32, i + 1000);

        // Each number is added when the next one replaces it, except for the last, which stays.
        words.at(4).red_add(words.at(5).atom_exch(i));
        _ = sum.atom_add(i.cvt::<u64>() * (1u64 << 33));
        sum.red_add(1u64);
        k.barrier();

        k.when(i.eq(0), || {
            (0..3).for_each(|word| a.words.at(word).st(words.at(word).ld()));
            let replaced = (words.at(3).ld() - 1000).lt(THREADS);
            a.words.at(3).st(replaced.select(1u32, 0u32));
            a.words.at(4).st(words.at(4).ld() + words.at(5).ld());
            a.words.at(5).st(signed.at(0).ld().bits::<u32>());
            a.words.at(6).st(signed.at(1).ld().bits::<u32>());
            let seven = words.at(1).ld().max(7u32) * k.nctaid_y() * k.nctaid_z();
            a.words
                .at(7)
                .st(1000 / seven + (1000 % seven) + (1u32 << seven) + (1u32 ^ seven));
            a.sum.st(sum.ld());
        });
    }
    fn reference(&self, a: BlockArgs<Cpu<'_>>) {
        for (i, (y, x)) in (0..THREADS).zip(a.y.iter_mut().zip(a.x)) {
            *y = x.exp();
            let [x, y, z] = [i % WIDTH, i / WIDTH % HEIGHT, i / (WIDTH * HEIGHT)];
            a.places[i as usize] = x | y << 8 | z << 16 | (i / 32) << 24;
        }

        let numbers: u32 = (0..THREADS).sum();
        let left = 1000 / 7 + 1000 % 7 + (1 << 7) + (1 ^ 7);
        let lowest = (7 - (THREADS as i32 - 1)) as u32;
        a.words.copy_from_slice(&[
            THREADS - 1,
            0,
            100 + numbers,
            1,
            200 + numbers,
            7,
            lowest,
            left,
        ]);
        a.sum[0] = (u64::from(numbers) << 33) + u64::from(THREADS);
    }
}

#[test]
fn both_preludes_can_be_imported_together() -> Result<(), Box<dyn std::error::Error>> {
    let read = || -> Result<String, MyError> { Ok(std::fs::read_to_string("no such file")?) };
    assert!(matches!(read(), Err(MyError::File(e)) if e.kind() == std::io::ErrorKind::NotFound));
    let build = Error::Build {
        kernel: "k".into(),
        text: "no target".into(),
    };
    assert!(matches!(
        MyError::from(build),
        MyError::Driver(Error::Build { .. })
    ));

    let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    let stream = Stream::new(&context)?;

    // SAFETY: the program uses one element of each buffer for each thread, and the contract has
    // their sizes. Threads share memory only by atomic operations and across barriers.
    let block = unsafe { Kernel::load(&context, Block) }?;
    let values: Vec<f32> = (0..THREADS).map(|i| i as f32 - 96.0 + 0.37).collect();
    let x = Buffer::from_slice(&context, &values)?;
    let y = Buffer::<f32>::zeroed(&context, THREADS as usize)?;
    let places = Buffer::<u32>::zeroed(&context, THREADS as usize)?;
    let words = Buffer::<u32>::zeroed(&context, WORDS as usize)?;
    let sum = Buffer::<u64>::zeroed(&context, 1)?;
    stream.launch(
        &block,
        BlockArgs {
            x: &x,
            y: &y,
            places: &places,
            words: &words,
            sum: &sum,
        },
    )?;

    let n = THREADS as usize;
    let mut expected = [
        CpuArg::F32(values.clone()),
        CpuArg::F32(vec![0.0; n]),
        CpuArg::U32(vec![0; n]),
        CpuArg::U32(vec![0; WORDS as usize]),
        CpuArg::U64(vec![0]),
    ];
    Block
        .reference_on(&mut expected)
        .expect("the arguments are those of the contract");
    let found = [
        CpuArg::U32(stream.read(&places)?),
        CpuArg::U32(stream.read(&words)?),
        CpuArg::U64(stream.read(&sum)?),
    ];
    assert_eq!(found, expected[2..]);
    for (x, y) in values.iter().zip(stream.read(&y)?) {
        let exact = f64::from(*x).exp();

        // Results below the smallest normal number count as 0, and the largest do not fit.
        let normal = exact >= f64::from(f32::MIN_POSITIVE) && exact < f64::from(f32::MAX);
        let ulp = exact * f64::from(f32::EPSILON);
        let bound = (2.0 + 1.2 * f64::from(x.abs())) * ulp;
        assert!(
            !normal || (f64::from(y) - exact).abs() <= bound,
            "e^{x} is {exact:e}, not {y:e}"
        );
        assert!(
            normal || y == 0.0 || y.is_infinite(),
            "e^{x} is {exact:e}, not {y:e}"
        );
    }

    Ok(())
}

#[test]
fn shapes_of_blocks_are_checked() {
    for (shape, block) in [
        ([16, 2, 1], 64),
        ([8, 1, 128], 1024),
        ([0, 1, 1], 32),
        ([u32::MAX, u32::MAX, u32::MAX], 32),
    ] {
        let errors = Shaped { shape, block }
            .build()
            .expect_err("the shape is refused")
            .to_string();
        let [x, y, z] = shape;
        assert!(
            errors.contains(&format!("a block of {x} x {y} x {z} threads")),
            "{errors}"
        );
    }

    let program = Shaped {
        shape: [8, 2, 64],
        block: 1024,
    }
    .build()
    .expect("the shape is one that every device has");
    let text = print(&program, Target::ALL[0]).expect("every target has the rows");
    assert!(text.contains(".reqntid 8, 2, 64"), "{text}");
}

/// A kernel that stores the index of each thread.
struct Shaped {
    shape: [u32; 3],
    block: u32,
}

args! {
    /// The arguments of [`Shaped`].
    pub struct ShapedArgs {
        /// `[threads]`
        y: Out<u32>,
    }
}

impl KernelDef for Shaped {
    type Args<S: Side> = ShapedArgs<S>;
    fn name(&self) -> String {
        "shaped".into()
    }
    fn block(&self) -> u32 {
        self.block
    }
    fn block_shape(&self) -> [u32; 3] {
        self.shape
    }
    fn grid(&self, _: &ShapedArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(1))
    }
    fn program<'k>(&self, k: Builder<'k>, a: ShapedArgs<Dev<'k>>) {
        a.y.at(k.thread()).st(k.thread());
    }
    fn reference(&self, a: ShapedArgs<Cpu<'_>>) {
        (0..).zip(a.y.iter_mut()).for_each(|(i, y)| *y = i);
    }
}
