//! Dispatches the instructions on textures and surfaces.

use crate::machine::image::{fetch, query, surface};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::code::image::OfImage;

pub(crate) fn operate_on_image(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    of: &OfImage,
) -> Checked<()> {
    match of {
        OfImage::Fetch(fetch) => fetch::fetch(block, w, mask, fetch),
        OfImage::Surface(access) => surface::access_surface(block, w, mask, access),
        OfImage::Query(query) => query::query_image(block, w, mask, query),
    }
}
