//! PTX that a compiler wrote: `nvrtc/kernels.cu` as compiled by NVRTC, against the same algorithms in Rust.

use ptx_emu::{Launch, Memory, Module, Order, Schedule, Trace, run};

const TEXTS: [&str; 2] = [
    include_str!("nvrtc/sm_75.ptx"),
    include_str!("nvrtc/sm_90_fast.ptx"),
];

/// An argument: bytes that a pointer refers to, or a value.
enum Arg {
    In(Vec<u8>),
    Out(usize),
    Value(u32),
}

/// Runs a kernel of each text under two schedules, traced; gives the output's bytes for each text.
fn outputs(name: &str, grid: u32, block: u32, shared: u32, args: &[Arg]) -> Vec<Vec<u8>> {
    let orders = [Order::InOrder, Order::Shuffled];
    let both = |text: &&str| {
        let [first, second] =
            orders.map(|order| output(text, name, [grid, block, shared], args, order));
        assert_eq!(first, second, "{name}");
        first
    };
    TEXTS.iter().map(both).collect()
}

fn output(
    text: &str,
    name: &str,
    [grid, block, shared]: [u32; 3],
    args: &[Arg],
    order: Order,
) -> Vec<u8> {
    let module = Module::parse(text)
        .and_then(Module::complete)
        .unwrap_or_else(|e| panic!("{e}"));
    let kernel = module.kernel(name).unwrap_or_else(|e| panic!("{e}"));
    let memory = Memory::new(1 << 24);
    let (mut params, mut out) = (vec![0; 256], None);
    for (param, arg) in kernel.params.iter().zip(args) {
        let value = match arg {
            Arg::Value(v) => u64::from(*v),
            Arg::In(bytes) => {
                let address = memory.alloc(bytes.len() as u64).expect("there is room");
                memory.write(address, bytes).expect("it was just allocated");
                address
            }
            Arg::Out(bytes) => {
                let address = memory.alloc(*bytes as u64).expect("there is room");
                memory
                    .fill(address, &[0], *bytes as u64)
                    .expect("it was just allocated");
                out = Some((address, *bytes));
                address
            }
        };
        let bytes = &value.to_le_bytes()[..param.size as usize];
        params[param.offset as usize..][..param.size as usize].copy_from_slice(bytes);
    }

    let launch = Launch {
        kernel,
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        dynamic_shared: shared,
        params: &params,
    };
    let schedule = Schedule {
        seed: 3,
        order,
        threads: 1,
        fuel: 1 << 22,
    };
    run(&memory, &launch, &schedule, Trace::On).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    let (address, bytes) = out.expect("every kernel writes");
    let mut found = vec![0; bytes];
    memory.read(address, &mut found).expect("it was allocated");
    found
}

fn bytes<T: Copy, const N: usize>(values: &[T], f: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|v| f(*v)).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect()
}

/// Numbers that look random, from -8 to 8.
fn numbers(n: usize) -> Vec<f32> {
    (0..n as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 16) as f32 / 4096.0 - 8.0)
        .collect()
}

fn close(found: &[f32], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    for (i, (f, w)) in found.iter().zip(wanted).enumerate() {
        assert!(
            (f64::from(*f) - w).abs() <= 1e-5 * w.abs().max(1.0),
            "{i}: {f} is not {w}"
        );
    }
}

#[test]
fn rms_norm() {
    let (rows, n) = (3, 200);
    let (x, w) = (numbers(rows * n), numbers(n));
    let wanted: Vec<f64> = x
        .chunks(n)
        .flat_map(|row| {
            let mean = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n as f64;
            let scale = 1.0 / (mean + 1e-5).sqrt();
            row.iter()
                .zip(&w)
                .map(move |(x, w)| f64::from(*x) * f64::from(*w) * scale)
        })
        .collect();
    let args = [
        Arg::In(bytes(&x, f32::to_le_bytes)),
        Arg::In(bytes(&w, f32::to_le_bytes)),
        Arg::Out(rows * n * 4),
        Arg::Value(n as u32),
        Arg::Value(1e-5f32.to_bits()),
    ];
    for found in outputs("rms_norm", rows as u32, 128, 0, &args) {
        close(&floats(&found), &wanted);
    }
}

#[test]
fn collatz() {
    let input: Vec<u32> = (1..=300).collect();
    let steps = |mut v: u64| {
        let mut steps = 0u32;
        while v != 1 {
            v = if v.is_multiple_of(2) {
                v / 2
            } else {
                3 * v + 1
            };
            steps += 1;
        }
        steps
    };
    let wanted: Vec<u8> = input
        .iter()
        .flat_map(|v| steps((*v).into()).to_le_bytes())
        .collect();
    let args = [
        Arg::In(bytes(&input, u32::to_le_bytes)),
        Arg::Out(1200),
        Arg::Value(300),
    ];
    for found in outputs("collatz", 3, 128, 0, &args) {
        assert_eq!(found, wanted);
    }
}

#[test]
fn switch() {
    let input: Vec<i32> = (-200..200).map(|i| i * 7919).collect();
    let wanted = |v: i32| match v & 7 {
        0 => v.wrapping_mul(3),
        1 => v / 7,
        2 => v % 11,
        3 => v.count_ones() as i32 - v.leading_zeros() as i32,
        4 => v.min(100),
        5 => v >> 3,
        6 => v.reverse_bits(),
        _ => -v,
    };
    let wanted: Vec<u8> = input
        .iter()
        .flat_map(|v| wanted(*v).to_le_bytes())
        .collect();
    let args = [
        Arg::In(bytes(&input, i32::to_le_bytes)),
        Arg::Out(1600),
        Arg::Value(400),
    ];
    for found in outputs("choose", 4, 128, 0, &args) {
        assert_eq!(found, wanted);
    }
}

#[test]
fn local_arrays() {
    let input = numbers(8 * 100);
    let mut sorted = input.clone();
    sorted
        .chunks_mut(8)
        .for_each(|chunk| chunk.sort_by(f32::total_cmp));
    let args = [
        Arg::In(bytes(&input, f32::to_le_bytes)),
        Arg::Out(3200),
        Arg::Value(100),
    ];
    for found in outputs("sort8", 2, 64, 0, &args) {
        assert_eq!(floats(&found), sorted);
    }
}

#[test]
fn double_precision_and_constants() {
    let input: Vec<f64> = numbers(100).iter().map(|x| f64::from(*x)).collect();
    let value = |x: f64| {
        let s = [-0.125, 0.25, -0.5, 1.0]
            .iter()
            .fold(0.0, |s: f64, c| s.mul_add(x, *c));
        s.abs().sqrt() / x.mul_add(x, 1.0)
    };
    let wanted: Vec<u8> = input.iter().flat_map(|x| value(*x).to_le_bytes()).collect();
    let args = [
        Arg::In(bytes(&input, f64::to_le_bytes)),
        Arg::Out(800),
        Arg::Value(100),
    ];
    for found in outputs("polynomial", 1, 100, 0, &args) {
        assert_eq!(found, wanted);
    }
}

#[test]
fn atomics() {
    let input: Vec<u8> = (0..5000u32).map(|i| (i * i % 251) as u8).collect();
    let mut bins = [0u32; 64];
    for b in &input {
        bins[usize::from(b & 63)] += 1;
    }
    let args = [Arg::In(input), Arg::Out(256), Arg::Value(5000)];
    for found in outputs("histogram", 3, 96, 0, &args) {
        assert_eq!(found, bytes(&bins, u32::to_le_bytes));
    }
}

#[test]
fn dynamic_shared_memory() {
    let (rows, n) = (2, 70);
    let bytes_of =
        |count: usize, k: usize| (0..count).map(|i| (i * k % 256) as u8).collect::<Vec<u8>>();
    let (a, b) = (bytes_of(rows * n * 16, 37), bytes_of(n * 16, 101));
    let dot = |row: &[u8]| {
        row.iter()
            .zip(&b)
            .map(|(a, b)| i32::from(*a as i8) * i32::from(*b as i8))
            .sum::<i32>()
    };
    let wanted: Vec<f32> = a.chunks(n * 16).map(|row| dot(row) as f32 * 0.5).collect();
    let args = [
        Arg::In(a.clone()),
        Arg::In(b.clone()),
        Arg::Out(rows * 4),
        Arg::Value(n as u32),
        Arg::Value(0.5f32.to_bits()),
    ];
    for found in outputs("dot_bytes", rows as u32, 64, 256, &args) {
        assert_eq!(floats(&found), wanted);
    }
}
