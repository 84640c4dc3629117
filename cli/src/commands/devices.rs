//! `warpwright devices`: what there is to run on.

use std::io::{self, Write};

use comfy_table::{Table, presets};
use warpwright_driver::Device;

use crate::device::{self, Choice};
use crate::failure::Failure;
use crate::terminal::{printable, say};

pub(crate) fn run() -> Result<(), Failure> {
    let mut table = Table::new();
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(["device", "name", "compute", "memory", "driver"]);
    let gpus = device::gpus();
    for gpu in gpus.iter().flatten() {
        table.add_row(row(Choice::Cuda(gpu.ordinal()), gpu));
    }
    table.add_row(row(Choice::Emu, &device::emulator()?.device(0)?));
    writeln!(io::stdout(), "{}", printable(&table.trim_fmt()))?;
    if let Err(reason) = gpus {
        say(format!("no GPU: {reason}"));
    }
    Ok(())
}

fn row(choice: Choice, device: &Device) -> [String; 5] {
    let ((major, minor), (cuda, point)) = (device.compute_capability(), device.driver().version());
    let memory = format!(
        "{:.1} GiB",
        device.total_memory() as f64 / f64::from(1 << 30)
    );
    let driver = format!("{}, CUDA {cuda}.{point}", device.driver().origin());
    [
        choice.to_string(),
        device.name().to_owned(),
        format!("{major}.{minor}"),
        memory,
        driver,
    ]
}
