//! Copies between two GPUs, directly if the devices can access each other.

use linked::check;
use warpwright_driver::prelude::*;

const N: usize = 1000;

fn main() -> Result<(), Error> {
    let driver = Driver::load()?;
    let devices = driver.devices()?;
    let [one, two, ..] = &devices[..] else {
        println!("one device: nothing to copy to");
        return Ok(());
    };

    println!("{one} reaches {two}: {}", one.can_reach(two)?);
    let (here, there) = (Context::new(one)?, Context::new(two)?);
    let numbers: Vec<f32> = (0..N).map(|i| i as f32).collect();
    let (x, y) = (
        Buffer::from_slice(&here, &numbers)?,
        Buffer::zeroed(&there, N)?,
    );
    let stream = Stream::new(&there)?;
    stream.copy_from_peer(&x, &y)?;
    check("copied", &stream.read(&y)?, 1.0);
    if two.can_reach(one)? {
        there.reach(&here)?;
        stream.copy_from_peer(&x, &y)?;
        check("copied straight", &stream.read(&y)?, 1.0);
    }

    Ok(())
}
