//! A cache of the tensor maps of a step.
//!
//! A trainer launches the same kernels on the same buffers in every step, so each map is encoded
//! once, on first use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ptx_gen::{MapBox, TileOf, bf16};
use warpwright_driver::Error;
use warpwright_driver::launch::MapArg;
use warpwright_driver::memory::View;

use crate::signed::map;

/// The properties that distinguish one tensor map from another.
#[derive(PartialEq, Eq, Hash)]
struct MapKey {
    address: u64,
    len: usize,
    /// The rows and columns of the matrix.
    shape: [u32; 2],
    /// The box that a copy transfers.
    tile: MapBox,
}

/// A cache of tensor maps.
#[derive(Default)]
pub(super) struct MapCache(Mutex<HashMap<MapKey, Arc<MapArg>>>);

impl MapCache {
    /// Returns the map of a matrix of `shape` rows and columns, for a parameter that copies `tile`.
    pub(super) fn of(
        &self,
        matrix: &View<bf16>,
        shape: [u32; 2],
        tile: TileOf<bf16>,
    ) -> Result<Arc<MapArg>, Error> {
        let key = MapKey {
            address: matrix.address(),
            len: matrix.len(),
            shape,
            tile: MapBox::from(tile),
        };
        let mut maps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = maps.get(&key) {
            return Ok(known.clone());
        }

        let made = Arc::new(map(matrix, shape, tile)?);
        maps.insert(key, made.clone());
        Ok(made)
    }
}
