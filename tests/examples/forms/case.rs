//! A test case: a kernel, its inputs, and the accuracy of its results.

use std::fmt::Write as _;

use warpwright_driver::Context;
use warpwright_driver::launch::{Geometry, HostArg, Launch};
use warpwright_driver::memory::Buffer;
use warpwright_driver::module::{Module, Parameter};
use warpwright_driver::ordering::Access;
use warpwright_driver::stream::{Queue, Stream};

use super::Failure;
use super::images::Image;

/// The accuracy that is required of a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Exact {
    /// All bits are equal, except for the bits of NaN.
    Bits,
    /// As near as this, relative to the result, and this.
    Near(f64, f64),
}

/// Cases of a kind, one at a time.
pub(crate) type Cases = Box<dyn Iterator<Item = Case>>;

/// A kernel `k` that reads words of 64 bits and writes others.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) text: String,
    /// Returns the inputs.
    pub(crate) inputs: Box<dyn Fn() -> Vec<u64>>,
    pub(crate) stored: usize,
    /// Blocks, and threads of each.
    pub(crate) geometry: (u32, u32),
    /// Words that a thread reads before any others, and that it writes.
    pub(crate) each: [usize; 2],
    /// The type of the results. Several share a word if they are smaller.
    pub(crate) result: &'static str,
    pub(crate) exact: Exact,
    /// The texture or surface. Its handle is the first word of the inputs.
    pub(crate) image: Option<Image>,
}

impl Case {
    /// Returns the results of the kernel. If it changes a surface, the contents of the surface
    /// follow.
    pub(crate) fn run(&self, context: &Context, inputs: &[u64]) -> Result<Vec<u64>, Failure> {
        let Some(image) = &self.image else {
            return self.launch(context, inputs);
        };

        let object = image.on(context)?;
        let mut inputs = inputs.to_vec();
        inputs[0] = object.handle;
        let mut written = self.launch(context, &inputs)?;
        if image.is_surface() {
            written.extend(object.texels()?);
        }

        Ok(written)
    }

    fn launch(&self, context: &Context, inputs: &[u64]) -> Result<Vec<u64>, Failure> {
        let module = Module::load(context, &self.text)?;
        let params = [
            Parameter::buffer::<u64>("in", Access::Read),
            Parameter::buffer::<u64>("out", Access::Write),
        ];

        // SAFETY: the kernel reads its part of the first buffer and writes its part of the second
        // one.
        let function = unsafe { module.function("k", &params) }?;
        let stream = Stream::new(context)?;
        let source = Buffer::from_slice(context, inputs)?;
        let target = Buffer::<u64>::zeroed(context, self.stored)?;
        let (blocks, threads) = self.geometry;
        let geometry = Geometry {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared: 0,
        };
        let args = vec![HostArg::from(source.view()), HostArg::from(target.view())];
        Queue::push(&mut &stream, Launch::new(&function, geometry, args)?.into())?;
        Ok(stream.read(&target)?)
    }

    /// Describes a difference: the inputs of the thread and both results.
    pub(crate) fn describe(&self, inputs: &[u64], i: usize, [found, wanted]: [u64; 2]) -> String {
        if i >= self.stored {
            return format!(
                "word {} of the surface is {found:#x}, emulated {wanted:#x}",
                i - self.stored
            );
        }

        let [read, written] = self.each;
        let skipped = if self.image.is_some() { 2 } else { 0 };
        let from = (skipped + i / written.max(1) * read).min(inputs.len());
        let mut text = String::new();
        for word in inputs[from..].iter().take(read.min(8)) {
            _ = write!(text, "{word:#x} ");
        }

        let of = if read == 0 {
            String::new()
        } else {
            format!(" of {text}")
        };
        format!("result {i}{of}is {found:#x}, emulated {wanted:#x}").replace("  ", " ")
    }
}

/// Returns a kernel with the index of its thread in `%t`, the index within the block in `%i`, and
/// the index of the block in `%n`.
pub(crate) fn kernel(declared: &str, body: &str) -> String {
    kernel_for("sm_90", declared, body)
}

/// Returns a kernel as [`kernel`] does, for a target with architecture-specific instructions.
pub(crate) fn kernel_for(target: &str, declared: &str, body: &str) -> String {
    format!(
        ".version 8.7\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n\
         .reg .b64 %in, %out, %at;\n.reg .b32 %t, %n, %i;\n{declared}\n\
         ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nmov.u32 %t, %ctaid.x;\nmov.u32 %n, %ntid.x;\n\
         mul.lo.u32 %t, %t, %n;\nmov.u32 %i, %tid.x;\nadd.u32 %t, %t, %i;\nmov.u32 %n, %ctaid.x;\n{body}\nret;\n}}\n"
    )
}

/// Returns `count` registers in braces, numbered from `from`.
pub(crate) fn list(name: &str, from: usize, count: usize) -> String {
    let all: Vec<String> = (from..from + count)
        .map(|r| format!("%{name}{r}"))
        .collect();
    format!("{{{}}}", all.join(", "))
}

/// A pattern with each of its alternatives in braces.
pub(crate) fn expand(pattern: &str) -> Vec<String> {
    let Some((head, rest)) = pattern.split_once('{') else {
        return vec![pattern.to_owned()];
    };
    let (choices, tail) = rest.split_once('}').unwrap_or((rest, ""));
    let tails = expand(tail);
    choices
        .split(',')
        .flat_map(|c| tails.iter().map(move |t| format!("{head}{c}{t}")))
        .collect()
}
