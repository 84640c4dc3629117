//! `warpwright devices`: lists the devices that models can run on.

use std::io::{self, Write};

use comfy_table::{Table, presets};
use warpwright_driver::device::Device;

use crate::device::{self, DeviceChoice};
use crate::failure::Failure;
use warpwright_emu::terminal::{printable, say};

pub(crate) fn run() -> Result<(), Failure> {
    let mut table = Table::new();
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(["device", "name", "compute", "memory", "driver"]);
    let gpus = device::gpus();
    for gpu in gpus.iter().flatten() {
        table.add_row(row(DeviceChoice::Cuda(gpu.ordinal()), gpu));
    }

    table.add_row(row(DeviceChoice::Emu, &device::emulator()?.device(0)?));
    writeln!(io::stdout(), "{}", printable(&table.trim_fmt()))?;
    if let Err(reason) = gpus {
        say(format!("no GPU: {reason}"));
    }

    Ok(())
}

/// Returns the row of a device.
fn row(choice: DeviceChoice, device: &Device) -> [String; 5] {
    let (major, minor) = device.compute_capability();
    let (cuda, point) = device.driver().version();
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
