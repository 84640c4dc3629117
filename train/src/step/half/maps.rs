//! Tensor maps of the step's tensors, each made when it is first used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ptx_gen::{MapBox, TileOf, bf16};
use warpwright_driver::{Error, MapArg, View};

use crate::signed::map;

/// Where a matrix is and its numbers, its rows and columns, and what a copy of it brings.
type Key = (u64, usize, [u32; 2], MapBox);

#[derive(Default)]
pub(super) struct Maps(Mutex<HashMap<Key, Arc<MapArg>>>);

impl Maps {
    /// The map of a matrix of so many rows and columns, for a parameter that copies such tiles.
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
