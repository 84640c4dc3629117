//! A cache of the tensor maps of a step.
//!
//! A trainer launches the same kernels on the same buffers in every step, so each map is encoded
//! once, on first use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ptx_gen::{MapBox, TileOf, bf16};
use warpwright_driver::{Error, MapArg, View};

use crate::signed::map;

/// The address and length of a matrix, its rows and columns, and the box that a copy transfers.
type Key = (u64, usize, [u32; 2], MapBox);

/// A cache of tensor maps.
#[derive(Default)]
pub(super) struct Maps(Mutex<HashMap<Key, Arc<MapArg>>>);

impl Maps {
    /// Returns the map of a matrix of `shape` rows and columns, for a parameter that copies `tile`.
    pub(super) fn of(
        &self,
        matrix: &View<bf16>,
        shape: [u32; 2],
        tile: TileOf<bf16>,
    ) -> Result<Arc<MapArg>, Error> {
        let key = (matrix.address(), matrix.len(), shape, MapBox::from(tile));
        let mut maps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = maps.get(&key) {
            return Ok(known.clone());
        }
        let made = Arc::new(map(matrix, shape, tile)?);
        maps.insert(key, made.clone());
        Ok(made)
    }
}
