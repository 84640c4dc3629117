//! Runs one kernel of a PTX file as a JSON description on standard input specifies, and prints the
//! result as JSON. `tests/corpus/corpus.py` writes the descriptions.
//!
//! Each schedule has its own memory. The bytes of the buffers in `outputs` are written to the file
//! `OUT.0`. The bytes under schedule `i` are written to `OUT.i`, but only if they differ from the
//! first.

use std::io::{self, Read};
use std::{error, fs};

use ptx_emu::{
    AddressMode, ChannelType, Coordinates, ElementKind, Fault, Filter, Image, ImageShape, Kernel,
    KernelError, Launch, LaunchSite, Memory, Module, Order, ParseErrors, Print, ReadMode, Sampler,
    Schedule, SourcePlace, TensorMap, TexelFormat, Trace, Watch, run_watched,
};
use serde_json::{Value, json};

type Failure = Box<dyn error::Error>;

/// The capacity of the device in bytes.
const MEMORY: u64 = 1 << 28;

fn main() -> Result<(), Failure> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let job: Value = serde_json::from_str(&text)?;
    let ptx = fs::read_to_string(string(&job["ptx"])?)?;
    let answer = match Module::parse(&ptx) {
        Ok(module) => of_kernel(&job, &module)?,
        Err(errors) => refusal(&errors),
    };
    println!("{answer}");
    Ok(())
}

/// Returns the result of the job: its runs, or the reason why the kernel cannot run.
fn of_kernel(job: &Value, module: &Module) -> Result<Value, Failure> {
    match module.kernel(string(&job["kernel"])?) {
        Ok(kernel) => {
            let (runs, unwritten) = runs(job, module, kernel)?;
            Ok(json!({ "runs": runs, "unwritten": unwritten }))
        }
        Err(KernelError::Refused { errors, .. }) => Ok(refusal(&errors)),
        Err(error) => Err(error.into()),
    }
}

fn refusal(errors: &ParseErrors) -> Value {
    let messages: Vec<&String> = errors.0.iter().map(|e| &e.what).collect();
    json!({ "load": messages })
}

/// Returns the fault of each schedule or null, and whether one left an output partly uninitialized.
fn runs(job: &Value, module: &Module, kernel: &Kernel) -> Result<(Vec<Value>, bool), Failure> {
    let mut unwritten = false;
    let (mut answers, mut first) = (Vec::new(), None::<Vec<u8>>);
    for (i, schedule) in list(&job["schedules"]).iter().enumerate() {
        let Ended {
            outputs,
            whole,
            fault,
        } = launch(job, module, kernel, schedule)?;
        if first.as_ref() != Some(&outputs) {
            fs::write(format!("{}.{i}", string(&job["out"])?), &outputs)?;
        }

        unwritten |= !whole;
        answers.push(fault.map_or(Value::Null, |fault| finding(&fault)));
        first.get_or_insert(outputs);
    }

    Ok((answers, unwritten))
}

/// The result of a launch.
struct Ended {
    /// The bytes of all outputs.
    outputs: Vec<u8>,
    /// Whether all of them are initialized.
    whole: bool,
    fault: Option<Box<Fault>>,
}

/// Launches the kernel under one schedule.
fn launch(
    job: &Value,
    module: &Module,
    kernel: &Kernel,
    schedule: &Value,
) -> Result<Ended, Failure> {
    let memory = Memory::new(MEMORY);
    let buffers = list(&job["buffers"])
        .iter()
        .map(|b| buffer(&memory, b))
        .collect::<Result<Vec<_>, _>>()?;
    for symbol in list(&job["symbols"]) {
        let name = string(&symbol["name"])?;
        let at = module
            .address(&memory, name)?
            .ok_or_else(|| format!("no variable {name}"))?;
        memory.write(at, &fs::read(string(&symbol["data"])?)?)?;
    }

    let params = parameters(&memory, kernel, list(&job["args"]), &buffers)?;
    let launch = Launch {
        kernel,
        grid: triple(&job["grid"])?,
        block: triple(&job["block"])?,
        dynamic_shared: number(&job["shared"])? as u32,
        params: &params,
    };
    let site = LaunchSite {
        cooperative: job["cooperative"] == true,
        cluster: job["cluster"]
            .is_array()
            .then(|| triple(&job["cluster"]))
            .transpose()?,
        // Standard output is reserved for the answer.
        print: Some(Print(&|text| eprint!("{text}"))),
        ..LaunchSite::default()
    };
    let trace = if schedule["trace"] == true {
        Trace::On
    } else {
        Trace::Off
    };
    let (arithmetic, provenance) = (
        schedule["arithmetic"] == true,
        schedule["provenance"] == true,
    );
    let watch = Watch {
        arithmetic,
        provenance,
        ..Watch::default()
    };
    let schedule = parsed(schedule, number(&job["fuel"])?)?;
    let found = run_watched(&memory, &launch, &schedule, trace, &site, &watch).found;
    let fault = found.into_iter().next().map(|found| Box::new(found.fault));
    let (mut outputs, mut whole) = (Vec::new(), true);
    for index in list(&job["outputs"]) {
        let (address, bytes) = buffers[number(index)? as usize];
        let start = outputs.len();
        outputs.resize(start + bytes, 0);
        whole &= memory.uninitialised(address, bytes as u64)?.is_none();
        memory.read(address, &mut outputs[start..])?;
    }

    Ok(Ended {
        outputs,
        whole,
        fault,
    })
}

/// Returns the address and the size of a buffer, which is filled if it has data.
fn buffer(memory: &Memory, buffer: &Value) -> Result<(u64, usize), Failure> {
    let bytes = number(&buffer["bytes"])?;
    let address = memory.alloc(bytes)?;
    memory.set_label(address, string(&buffer["label"])?);
    if let Some(data) = buffer["data"].as_str() {
        memory.write(address, &fs::read(data)?)?;
    }
    Ok((address, bytes as usize))
}

/// Returns the parameter block: the bytes of each argument, with the addresses of buffers inserted.
fn parameters(
    memory: &Memory,
    kernel: &Kernel,
    args: &[Value],
    buffers: &[(u64, usize)],
) -> Result<Vec<u8>, Failure> {
    let params = &kernel.params;
    if params.len() != args.len() {
        return Err(format!(
            "{} has {} parameters, {} given",
            kernel.name,
            params.len(),
            args.len()
        )
        .into());
    }

    let mut block = vec![0; params.last().map_or(0, |p| p.offset + p.size) as usize];
    for (param, arg) in params.iter().zip(args) {
        let bytes = if arg["image"].is_object() {
            let handle = object(memory, &arg["image"], buffers)?;
            handle.to_le_bytes().to_vec()
        } else {
            argument(arg, buffers)?
        };
        if bytes.len() != param.size as usize {
            return Err(format!(
                "`{}` has {} bytes, {} given",
                param.name,
                param.size,
                bytes.len()
            )
            .into());
        }
        block[param.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }

    Ok(block)
}

fn argument(arg: &Value, buffers: &[(u64, usize)]) -> Result<Vec<u8>, Failure> {
    if arg["map"].is_object() {
        return Ok(tensor_map(&arg["map"], buffers)?.encode()?.to_vec());
    }

    let mut bytes = list(&arg["bytes"])
        .iter()
        .map(|b| number(b).and_then(|b| Ok(u8::try_from(b)?)))
        .collect::<Result<Vec<_>, _>>()?;
    for pointer in list(&arg["pointers"]) {
        let (at, index) = (number(&pointer[0])? as usize, number(&pointer[1])? as usize);
        bytes[at..at + 8].copy_from_slice(&buffers[index].0.to_le_bytes());
    }

    Ok(bytes)
}

/// Returns the handle of a texture or surface over a buffer.
fn object(memory: &Memory, given: &Value, buffers: &[(u64, usize)]) -> Result<u64, Failure> {
    let extent = triple(&given["extent"])?;
    let format = TexelFormat {
        channel: channel(&given["type"])?,
        channels: number(&given["channels"])? as u32,
    };
    let mut image = Image::new(format, shape(&given["shape"])?, extent);
    image.address = buffers[number(&given["buffer"])? as usize].0;
    if given["sampler"].is_object() {
        Ok(memory.add_texture(&image, &sampler(&given["sampler"])?)?)
    } else {
        Ok(memory.add_surface(&image)?)
    }
}

fn channel(name: &Value) -> Result<ChannelType, Failure> {
    Ok(match string(name)? {
        "u1" => ChannelType::U8,
        "u2" => ChannelType::U16,
        "u4" => ChannelType::U32,
        "i1" => ChannelType::S8,
        "i2" => ChannelType::S16,
        "i4" => ChannelType::S32,
        "f2" => ChannelType::F16,
        "f4" => ChannelType::F32,
        other => return Err(format!("no channels of {other}").into()),
    })
}

fn shape(name: &Value) -> Result<ImageShape, Failure> {
    Ok(match string(name)? {
        "1dfetch" => ImageShape::Linear,
        "1d" => ImageShape::D1,
        "2d" => ImageShape::D2,
        "3d" => ImageShape::D3,
        "1dlayered" => ImageShape::Layers1,
        "2dlayered" => ImageShape::Layers2,
        "cube" => ImageShape::Cube,
        other => return Err(format!("no image of shape {other}").into()),
    })
}

fn sampler(given: &Value) -> Result<Sampler, Failure> {
    let mode = match string(&given["address"])? {
        "clamp" => AddressMode::Clamp,
        "wrap" => AddressMode::Wrap,
        "mirror" => AddressMode::Mirror,
        "border" => AddressMode::Border,
        other => return Err(format!("no address mode {other}").into()),
    };
    let or = |name: &str, value: &str| given[name] == value;
    Ok(Sampler {
        address: [mode; 3],
        filter: if or("filter", "linear") {
            Filter::Linear
        } else {
            Filter::Point
        },
        read: if or("read", "float") {
            ReadMode::NormalizedFloat
        } else {
            ReadMode::Element
        },
        coordinates: if given["normalized"] == true {
            Coordinates::Normalized
        } else {
            Coordinates::Texels
        },
        ..Sampler::POINT
    })
}

fn tensor_map(map: &Value, buffers: &[(u64, usize)]) -> Result<TensorMap, Failure> {
    let numbers = |name: &str| {
        list(&map[name])
            .iter()
            .map(number)
            .collect::<Result<Vec<u64>, _>>()
    };
    Ok(TensorMap {
        address: buffers[number(&map["buffer"])? as usize].0,
        element: number(&map["element"])? as u32,
        kind: ElementKind::Unsigned,
        swizzle: number(&map["swizzle"])? as u32,
        dims: numbers("dims")?,
        strides: numbers("strides")?,
        boxed: numbers("boxed")?.iter().map(|n| *n as u32).collect(),
    })
}

fn parsed(schedule: &Value, fuel: u64) -> Result<Schedule, Failure> {
    let order = match string(&schedule["order"])? {
        "in order" => Order::InOrder,
        "reversed" => Order::Reversed,
        "shuffled" => Order::Shuffled,
        other => return Err(format!("no order {other}").into()),
    };
    Ok(Schedule {
        seed: number(&schedule["seed"])?,
        order,
        threads: 1,
        fuel,
    })
}

fn finding(fault: &Fault) -> Value {
    json!({
        "class": format!("{:?}", fault.class),
        "what": fault.what,
        "block": fault.block,
        "thread": fault.thread,
        "buffer": fault.allocation.as_ref().map(|a| &a.label),
        "at": fault.place.as_ref().map(place),
        "other": fault.other.as_ref().map(|other| place(&other.place)),
    })
}

fn place(place: &SourcePlace) -> Value {
    json!({
        "line": place.line,
        "text": place.text,
        "file": place.rust.as_ref().map(|r| &r.file),
        "source": place.rust.as_ref().map(|r| r.line),
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value) -> Result<&str, Failure> {
    value
        .as_str()
        .ok_or_else(|| format!("{value} is no string").into())
}

fn number(value: &Value) -> Result<u64, Failure> {
    value
        .as_u64()
        .ok_or_else(|| format!("{value} is no number").into())
}

fn triple(value: &Value) -> Result<[u32; 3], Failure> {
    let [x, y, z] = list(value) else {
        return Err(format!("{value} is not three numbers").into());
    };
    Ok([number(x)? as u32, number(y)? as u32, number(z)? as u32])
}
