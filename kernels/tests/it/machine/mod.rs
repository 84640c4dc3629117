//! The emulator for the cases of kernels.

use ptx_emu::{
    Accesses, ElementKind, Kernel, Launch, Memory, Module, Order, Schedule, TensorMap, Trace, run,
};
use ptx_gen::{CpuArg, Param, ParamKind, Target, bf16, f16, print};
use warpwright_kernels::{Case, Variant, compare};

/// The number of schedules of most kernels.
pub(crate) const FEW: u64 = 3;
/// The number of schedules of kernels whose warps have different work and wait for each other at
/// mbarriers.
#[allow(dead_code, reason = "not every test runs such kernels")]
pub(crate) const MANY: u64 = 5;

/// Returns a schedule: blocks and warps forwards, backwards and shuffled. The first one also
/// detects races between blocks.
fn numbered(number: u64) -> (Schedule, Trace) {
    let (order, trace) = match number {
        0 => (Order::InOrder, Trace::On),
        1 => (Order::Reversed, Trace::Off),
        _ => (Order::Shuffled, Trace::Off),
    };
    (
        Schedule {
            seed: number,
            order,
            ..Schedule::default()
        },
        trace,
    )
}

/// Runs a case under this number of schedules. Compares it with the reference, and the schedules
/// with each other.
pub(crate) fn check(
    kernel: &dyn Variant,
    code: &Kernel,
    case: &Case,
    schedules: u64,
) -> Result<(), String> {
    let params = kernel.params();
    let given = poisoned(&params, &case.args);
    let mut wanted = given.clone();
    kernel
        .reference_on(&mut wanted)
        .map_err(|e| e.to_string())?;
    let mut first: Option<Vec<CpuArg>> = None;
    for (schedule, trace) in (0..schedules).map(numbered) {
        let found = launch(kernel, code, &params, &given, &schedule, trace)?;
        let comparison = compare(&params, &found, &wanted);
        if comparison.error > case.bound {
            return Err(format!(
                "{comparison:?} exceeds {:e} under {schedule:?}",
                case.bound
            ));
        }

        if !same_bits(first.get_or_insert_with(|| found.clone()), &found) {
            return Err(format!(
                "{schedule:?} gives other bits than {:?}",
                numbered(0).0
            ));
        }
    }

    Ok(())
}

/// Runs a kernel once, in order.
#[allow(dead_code, reason = "not every test compares kernels")]
pub(crate) fn once(kernel: &dyn Variant, args: &[CpuArg]) -> Vec<CpuArg> {
    let program = kernel
        .build()
        .unwrap_or_else(|e| panic!("{}: {e}", kernel.name()));
    let text =
        print(&program, Target::named("sm_90a").expect("in the table")).expect("runs on sm_90a");
    let module = Module::parse(&text)
        .and_then(Module::complete)
        .unwrap_or_else(|e| panic!("{}: {e}", kernel.name()));
    let code = module
        .kernel(&kernel.name())
        .expect("the module holds the kernel");
    let (schedule, trace) = numbered(0);
    let found = launch(kernel, code, &kernel.params(), args, &schedule, trace);
    found.unwrap_or_else(|e| panic!("{}: {e}", kernel.name()))
}

fn launch(
    kernel: &dyn Variant,
    code: &Kernel,
    params: &[Param],
    args: &[CpuArg],
    schedule: &Schedule,
    trace: Trace,
) -> Result<Vec<CpuArg>, String> {
    let memory = Memory::new(1 << 30);
    let (values, _) = launch_in(&memory, kernel, code, params, args, schedule, trace)?;
    Ok(args
        .iter()
        .zip(values)
        .map(|(arg, value)| download(&memory, arg, value))
        .collect())
}

/// Uploads the arguments and runs a kernel. Returns the kernel's values for the arguments, and the
/// accesses of a traced launch.
fn launch_in(
    memory: &Memory,
    kernel: &dyn Variant,
    code: &Kernel,
    params: &[Param],
    args: &[CpuArg],
    schedule: &Schedule,
    trace: Trace,
) -> Result<(Vec<u64>, Option<Accesses>), String> {
    let shapes: Vec<_> = args.iter().map(CpuArg::shape).collect();
    let geometry = kernel.geometry(&shapes).map_err(|e| e.to_string())?;
    let values: Vec<u64> = params
        .iter()
        .zip(args)
        .map(|(param, arg)| upload(memory, param, arg))
        .collect();
    let mut bytes = vec![0; code.params.last().map_or(0, |p| p.offset + p.size) as usize];
    for (i, (place, value)) in code.params.iter().zip(&values).enumerate() {
        let given = match params[i].kind {
            ParamKind::TensorMap(..) => tensor_map(kernel, params[i].name, args, *value),
            _ => value.to_le_bytes().to_vec(),
        };
        bytes[place.offset as usize..][..place.size as usize]
            .copy_from_slice(&given[..place.size as usize]);
    }

    let launch = Launch {
        kernel: code,
        grid: geometry.grid,
        block: geometry.block,
        dynamic_shared: geometry.shared,
        params: &bytes,
    };
    let stats = run(memory, &launch, schedule, trace).map_err(|fault| fault.to_string())?;
    Ok((values, stats.accesses))
}

/// Runs a case after a launch that may still write every buffer except for `constant` ones. Returns
/// an access that does not wait for that launch, if there is one.
#[allow(dead_code, reason = "not every test runs kernels that overlap")]
pub(crate) fn early_access(
    kernel: &dyn Variant,
    code: &Kernel,
    case: &Case,
    constant: &[&str],
) -> Option<String> {
    let memory = Memory::new(1 << 30);
    let params = kernel.params();
    let (schedule, trace) = numbered(0);
    let args = &case.args;
    let (values, accesses) = launch_in(&memory, kernel, code, &params, args, &schedule, trace)
        .unwrap_or_else(|e| panic!("{}: {e}", kernel.name()));
    let written: Vec<(u64, u64)> = params
        .iter()
        .zip(args)
        .zip(values)
        .filter(|((param, arg), _)| {
            !matches!(arg, CpuArg::Scalar(_)) && !constant.contains(&param.name)
        })
        .map(|((_, arg), value)| (value, to_bytes(arg).len() as u64))
        .filter(|&(_, bytes)| bytes > 0)
        .collect();
    let earlier = Accesses::from_host(&memory, "the earlier launch", &[], &written);
    let accesses = accesses.expect("the launch was traced");
    let conflict = accesses.before_wait_conflict(&earlier)?;
    Some(format!("{conflict:?}"))
}

/// Returns the tensor map of a matrix of 16-bit numbers at this address, for the tile that the
/// kernel copies.
fn tensor_map(kernel: &dyn Variant, param: &str, args: &[CpuArg], address: u64) -> Vec<u8> {
    let program = kernel
        .build()
        .unwrap_or_else(|e| panic!("{}: {e}", kernel.name()));
    let copied = program
        .map_box(param)
        .unwrap_or_else(|| panic!("{}: {param} has no box", kernel.name()));
    let [rows, columns] = kernel
        .map_dims(param, args)
        .expect("the kernel says the shapes of its tensors");
    let map = TensorMap {
        address,
        element: 2,
        kind: ElementKind::Unsigned,
        swizzle: copied.swizzle.bytes(),
        dims: vec![columns.into(), rows.into()],
        strides: vec![2 * u64::from(columns)],
        boxed: copied.dims().to_vec(),
    };
    map.encode()
        .unwrap_or_else(|e| panic!("{} {param}: {e}", kernel.name()))
        .to_vec()
}

/// Returns a kernel's value for an argument: a scalar, or the address of a copy.
fn upload(memory: &Memory, param: &Param, arg: &CpuArg) -> u64 {
    if let CpuArg::Scalar(bits) = arg {
        return *bits;
    }

    let bytes = to_bytes(arg);
    let address = memory
        .alloc(bytes.len().max(1) as u64)
        .expect("the cases are small");
    memory.set_label(address, param.name);
    memory.write(address, &bytes).expect("allocated above");
    address
}

fn download(memory: &Memory, arg: &CpuArg, value: u64) -> CpuArg {
    if let CpuArg::Scalar(_) = arg {
        return arg.clone();
    }
    let mut bytes = to_bytes(arg);
    memory.read(value, &mut bytes).expect("allocated by upload");
    from_bytes(arg, &bytes)
}

/// Returns the arguments with unlikely values in the outputs: NaN, or bits that alternate.
fn poisoned(params: &[Param], args: &[CpuArg]) -> Vec<CpuArg> {
    let poison = |(param, arg): (&Param, &CpuArg)| match param.kind {
        ParamKind::Buffer(_, access) | ParamKind::TensorMap(_, access) if !access.reads() => {
            let byte = if matches!(arg, CpuArg::F32(_) | CpuArg::F16(_) | CpuArg::Bf16(_)) {
                0xff
            } else {
                0xaa
            };
            from_bytes(arg, &vec![byte; to_bytes(arg).len()])
        }
        _ => arg.clone(),
    };
    params.iter().zip(args).map(poison).collect()
}

fn same_bits(a: &[CpuArg], b: &[CpuArg]) -> bool {
    a.iter().zip(b).all(|(a, b)| to_bytes(a) == to_bytes(b))
}

fn to_bytes(arg: &CpuArg) -> Vec<u8> {
    match arg {
        CpuArg::U8(v) => v.clone(),
        CpuArg::S8(v) => v.iter().map(|x| *x as u8).collect(),
        CpuArg::U16(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        CpuArg::U32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        CpuArg::S32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        CpuArg::U64(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        CpuArg::F32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        CpuArg::F16(v) => v.iter().flat_map(|x| x.0.to_le_bytes()).collect(),
        CpuArg::Bf16(v) => v.iter().flat_map(|x| x.0.to_le_bytes()).collect(),
        CpuArg::Scalar(bits) => bits.to_le_bytes().to_vec(),
    }
}

/// Returns the bytes as elements with the type of `like`.
fn from_bytes(like: &CpuArg, bytes: &[u8]) -> CpuArg {
    fn of<const N: usize, T>(bytes: &[u8], f: impl Fn([u8; N]) -> T) -> Vec<T> {
        bytes
            .chunks_exact(N)
            .map(|c| f(c.try_into().expect("N bytes")))
            .collect()
    }
    match like {
        CpuArg::U8(_) => CpuArg::U8(bytes.to_vec()),
        CpuArg::S8(_) => CpuArg::S8(of(bytes, i8::from_le_bytes)),
        CpuArg::U16(_) => CpuArg::U16(of(bytes, u16::from_le_bytes)),
        CpuArg::U32(_) => CpuArg::U32(of(bytes, u32::from_le_bytes)),
        CpuArg::S32(_) => CpuArg::S32(of(bytes, i32::from_le_bytes)),
        CpuArg::U64(_) => CpuArg::U64(of(bytes, u64::from_le_bytes)),
        CpuArg::F32(_) => CpuArg::F32(of(bytes, f32::from_le_bytes)),
        CpuArg::F16(_) => CpuArg::F16(of(bytes, |b| f16(u16::from_le_bytes(b)))),
        CpuArg::Bf16(_) => CpuArg::Bf16(of(bytes, |b| bf16(u16::from_le_bytes(b)))),
        CpuArg::Scalar(_) => like.clone(),
    }
}
