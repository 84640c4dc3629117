//! `suld` and `sust`: loads and stores of global memory, once it is known where the bytes lie.

use super::super::block::{Checked, Worker};
use super::super::lanes;
use super::super::memory::put;
use super::super::warp::Warp;
use crate::image::Image;
use crate::image_code::{Outside, SurfaceAccess};
use crate::{Class, Fault};

impl Worker<'_, '_> {
    pub(super) fn access_surface(&mut self, w: &mut Warp, mask: u32, s: &SurfaceAccess) -> Checked<()> {
        let handles = self.handles(w, mask, s.place.handle)?;
        let layers = s.place.layer.map(|slot| self.words(w, mask, slot)).transpose()?;
        let mut at = [[0; 32]; 3];
        for (to, slot) in at.iter_mut().zip(&s.place.at) {
            *to = self.words(w, mask, *slot)?;
        }
        let (mut inside, mut addresses) = (0, [0; 32]);
        for lane in lanes(mask) {
            let image = self.surface(w, lane, handles[lane])?;
            self.check_shape(w, lane, image, &s.place, "surface")?;
            let mut place = at.map(|c| c[lane].cast_signed());
            if let Some(layers) = &layers {
                place[2] = layers[lane].cast_signed();
            }
            if let Some(address) = self.place_in(w, lane, image, s, place)? {
                addresses[lane] = address;
                inside |= 1 << lane;
            }
        }
        if !s.stores {
            let outside = mask & !inside;
            s.transfer.regs.iter().flatten().for_each(|to| put(w, *to, outside, &[0; 32]));
        }
        if inside == 0 {
            return Ok(());
        }
        let first = addresses[inside.trailing_zeros() as usize];
        (0..32).filter(|lane| inside >> lane & 1 == 0).for_each(|lane| addresses[lane] = first);
        match s.stores {
            true => self.store_global(w, inside, &s.transfer, &addresses),
            false => self.load_global(w, inside, &s.transfer, &addresses),
        }
    }

    /// The address of a place in a surface; none where nothing is accessed.
    fn place_in(
        &self,
        w: &Warp,
        lane: usize,
        image: &Image,
        s: &SurfaceAccess,
        [x, y, z]: [i32; 3],
    ) -> Checked<Option<u64>> {
        let bytes = i64::from(s.bytes());
        if i64::from(x) % bytes != 0 {
            return Err(self.unaligned(w, lane, image, x, s.bytes()));
        }
        let last = image.row_bytes() as i64 / bytes * bytes - bytes;
        let [_, rows, slices] = image.extent.map(i64::from);
        let most = [last, rows - 1, slices - 1];
        let place = [x, y, z].map(i64::from);
        let inside = place.iter().zip(most).all(|(at, most)| (0..=most).contains(at));
        let place = match s.outside {
            _ if inside => place,
            Outside::Zero => return Ok(None),
            Outside::Clamp if last >= 0 => std::array::from_fn(|i| place[i].clamp(0, most[i])),
            _ => return Err(self.outside_surface(w, lane, image, s.bytes(), [x, y, z])),
        };
        Ok(Some(image.place(place[0] as u64, [place[1] as u32, place[2] as u32])))
    }

    #[cold]
    fn unaligned(&self, w: &Warp, lane: usize, image: &Image, x: i32, bytes: u32) -> Box<Fault> {
        let what = format!("{bytes} bytes of a surface at x = {x}, which is no multiple of {bytes}");
        let mut fault = self.fault(w, 1 << lane, Class::Misaligned, what);
        fault.instead = "x counts bytes: multiply the index of a texel by its size";
        self.locate(&mut fault, image.address);
        fault
    }

    #[cold]
    fn outside_surface(&self, w: &Warp, lane: usize, image: &Image, bytes: u32, at: [i32; 3]) -> Box<Fault> {
        let ([x, y, z], [_, rows, slices]) = (at, image.extent);
        let row = image.row_bytes();
        let (name, size) = (image.shape.name(), format!("{row} bytes x {rows} x {slices}"));
        let what = format!("{bytes} bytes at x = {x} bytes, y = {y}, z = {z} of a {name} surface of {size}");
        let mut fault = self.fault(w, 1 << lane, Class::OutOfBounds, what);
        fault.instead = match x >= 0 && i64::from(x) >= row as i64 {
            true => {
                "x counts bytes; check the index against the width, or let the access clamp or be dropped"
            }
            false => "check the indices against the size, or let the access clamp or be dropped",
        };
        self.locate(&mut fault, image.address);
        fault
    }
}
