//! `suld`, `sust` and `sured`: loads, stores and atomics of global memory, once it is known where
//! the bytes lie.

use crate::machine::device::images::descriptor::Image;
use crate::machine::device::images::texel_format::ChannelType;
use crate::machine::image::handles;
use crate::machine::memory::global::global_access;
use crate::machine::memory::lane_access;
use crate::machine::memory::lane_access::put;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::code::image::{OutsideAccess, SurfaceAccess, SurfaceAct};
use crate::module::lane_mask::lanes;
use crate::{Class, Fault};

pub(crate) fn access_surface(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    s: &SurfaceAccess,
) -> Checked<()> {
    let handles = handles::handles(block, w, mask, s.place.handle)?;
    let layers = s
        .place
        .layer
        .map(|slot| lane_access::words(block, w, mask, slot))
        .transpose()?;
    let mut at = [[0; 32]; 3];
    for (to, slot) in at.iter_mut().zip(&s.place.at) {
        *to = lane_access::words(block, w, mask, *slot)?;
    }

    // The masks of lanes inside their surface, and of lanes whose texels are signed.
    let mut inside = 0;
    let mut signed = 0;
    let mut addresses = [0; 32];
    for lane in lanes(mask) {
        let image = handles::surface(block, w, lane, handles[lane])?;
        handles::check_shape(block, w, lane, image, &s.place, "surface")?;
        let mut place = at.map(|c| i64::from(c[lane].cast_signed()));
        if let Some(layers) = &layers {
            place[2] = layers[lane].cast_signed().into();
        }

        if matches!(s.act, SurfaceAct::ReduceTexel(_)) {
            place[0] *= i64::from(s.bytes());
            signed |= u32::from(texels_are_signed(block, w, lane, image)?) << lane;
        }

        if let Some(address) = place_in(block, w, lane, image, s, place)? {
            addresses[lane] = address;
            inside |= 1 << lane;
        }
    }

    if let SurfaceAct::Load(transfer) = &s.act {
        let outside = mask & !inside;
        transfer
            .regs
            .iter()
            .flatten()
            .for_each(|to| put(w, *to, outside, &[0; 32]));
    }

    if inside == 0 {
        return Ok(());
    }

    let first = addresses[inside.trailing_zeros() as usize];
    (0..32)
        .filter(|lane| inside >> lane & 1 == 0)
        .for_each(|lane| addresses[lane] = first);
    match &s.act {
        SurfaceAct::Load(transfer) => {
            global_access::load_global(block, w, inside, transfer, &addresses)
        }
        SurfaceAct::Store(transfer) => {
            global_access::store_global(block, w, inside, transfer, &addresses)
        }
        SurfaceAct::Reduce(atomic) => {
            global_access::atomic_global(block, w, inside, atomic, &addresses)
        }
        SurfaceAct::ReduceTexel([of_unsigned, of_signed]) => {
            for (part, atomic) in [
                (inside & !signed, of_unsigned),
                (inside & signed, of_signed),
            ] {
                if part != 0 {
                    global_access::atomic_global(block, w, part, atomic, &addresses)?;
                }
            }
            Ok(())
        }
    }
}

/// Checks that `sured.p` supports the texels of a surface. Returns true if they are signed.
fn texels_are_signed(block: &Block<'_, '_>, w: &Warp, lane: usize, image: &Image) -> Checked<bool> {
    match (image.format.channel, image.format.channels) {
        (ChannelType::U32, 1) => Ok(false),
        (ChannelType::S32, 1) => Ok(true),
        (channel, n) => {
            let what = format!(
                "sured.p of a surface of {n} x {channel:?}: it changes texels of one integer of 32 bits"
            );
            let mut fault = block.fault(w, 1 << lane, Class::Descriptor, what);
            fault.instead = "use sured.b, whose x counts bytes and which says the type itself";
            lane_access::locate(block, &mut fault, image.address);
            Err(fault)
        }
    }
}

/// Returns the address of a place in a surface, or `None` if nothing is accessed.
fn place_in(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    image: &Image,
    s: &SurfaceAccess,
    place: [i64; 3],
) -> Checked<Option<u64>> {
    let bytes = i64::from(s.bytes());
    let x = place[0];
    if x % bytes != 0 {
        return Err(unaligned(block, w, lane, image, x, s.bytes()));
    }

    let last = image.row_bytes() as i64 / bytes * bytes - bytes;
    let [_, rows, slices] = image.extent.map(i64::from);
    let most = [last, rows - 1, slices - 1];
    let inside = place
        .iter()
        .zip(most)
        .all(|(at, most)| (0..=most).contains(at));
    let place = match s.outside {
        _ if inside => place,
        OutsideAccess::Zero => return Ok(None),
        OutsideAccess::Clamp if last >= 0 => std::array::from_fn(|i| place[i].clamp(0, most[i])),
        _ => return Err(outside_surface(block, w, lane, image, s.bytes(), place)),
    };
    Ok(Some(image.place(
        place[0] as u64,
        [place[1] as u32, place[2] as u32],
    )))
}

#[cold]
fn unaligned(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    image: &Image,
    x: i64,
    bytes: u32,
) -> Box<Fault> {
    let what = format!("{bytes} bytes of a surface at x = {x}, which is not a multiple of {bytes}");
    let mut fault = block.fault(w, 1 << lane, Class::Misaligned, what);
    fault.instead = "x counts bytes: multiply the index of a texel by its size";
    lane_access::locate(block, &mut fault, image.address);
    fault
}

#[cold]
fn outside_surface(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    image: &Image,
    bytes: u32,
    at: [i64; 3],
) -> Box<Fault> {
    let ([x, y, z], [_, rows, slices]) = (at, image.extent);
    let row = image.row_bytes();
    let name = image.shape.name();
    let size = format!("{row} bytes x {rows} x {slices}");
    let what =
        format!("{bytes} bytes at x = {x} bytes, y = {y}, z = {z} of a {name} surface of {size}");
    let mut fault = block.fault(w, 1 << lane, Class::OutOfBounds, what);
    fault.instead = if x >= 0 && x >= row as i64 {
        "x counts bytes; check the index against the width, or let the access clamp or be dropped"
    } else {
        "check the indices against the size, or let the access clamp or be dropped"
    };
    lane_access::locate(block, &mut fault, image.address);
    fault
}
