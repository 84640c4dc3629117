//! Runs every row of the instruction table on the emulator, which does not use the table.

use ptx_emu::{Class, ElementKind, Launch, Memory, Module, Schedule, TensorMap, Trace, run};
use ptx_gen::{Sample, Target, Tile, isa, print, samples};

/// Bytes of memory that a sample uses.
const MEMORY: usize = Sample::MEMORY as usize;

#[test]
fn every_row_runs() {
    for sample in samples() {
        let result = execute(&sample, newest(&sample));
        let trap = *sample.op == isa::TRAP;
        match result {
            Ok(()) => assert!(!trap, "trap did not"),
            Err(e) => {
                assert!(
                    trap && e.contains(&format!("{:?}", Class::Trap)),
                    "{}: {e}",
                    sample.program.name
                )
            }
        }
    }
}

/// The newest target that a sample can be printed for: some rows are one chip's own.
fn newest(sample: &Sample) -> Target {
    let has = |target: &Target| print(&sample.program, *target).is_ok();
    Target::ALL
        .into_iter()
        .rev()
        .find(has)
        .expect("some target has every row")
}

/// Runs a sample on operands whose every byte is 1: none is zero, a NaN, or far from the others.
fn execute(sample: &Sample, target: Target) -> Result<(), String> {
    let text = print(&sample.program, target).map_err(|e| e.to_string())?;
    let module = Module::parse(&text)
        .and_then(Module::complete)
        .map_err(|e| e.to_string())?;
    let kernel = module.kernels().next().ok_or("no kernel")?;
    let memory = Memory::new(1 << 20);
    let p = memory.alloc(MEMORY as u64).map_err(|e| e.to_string())?;
    memory.write(p, &[1; MEMORY]).map_err(|e| e.to_string())?;
    let last = kernel
        .params
        .last()
        .map_or(0, |p| (p.offset + p.size) as usize);
    let mut params = vec![0; last];
    params[..8].copy_from_slice(&p.to_le_bytes());
    if let (Some(tile), Some(x)) = (sample.program.tile("x"), kernel.params.get(2)) {
        params[x.offset as usize..].copy_from_slice(&map(p, tile)?);
    }

    let block = sample.program.shape;
    let launch = Launch {
        kernel,
        grid: [1; 3],
        block,
        dynamic_shared: 0,
        params: &params,
    };
    run(&memory, &launch, &Schedule::default(), Trace::Off)
        .map(drop)
        .map_err(|e| e.to_string())
}

/// The map of a matrix that is one tile.
fn map(address: u64, tile: Tile) -> Result<[u8; 128], String> {
    let (boxed, element) = (tile.box_dims(), tile.elem.bytes());
    let strides = vec![u64::from(boxed[0] * element)];
    let dims = boxed.map(u64::from).to_vec();
    TensorMap {
        address,
        element,
        kind: ElementKind::Unsigned,
        swizzle: tile.swizzle.bytes(),
        dims,
        strides,
        boxed: boxed.to_vec(),
    }
    .encode()
}
