//! The kernel's fields, its arguments, and the sizes that follow from them.

use crate::format::dequantize::ColumnOrder;
use crate::prompt::attention::definition::PromptAttention;

/// Kernel that computes causal attention with `wgmma`. Arguments and contract are equal to
/// [`PromptAttention`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PromptAttentionWgmma {
    /// The number of dimensions of a head: 64 or 128.
    pub head_dim: u32,
    /// The size of the window in positions, including the token's own. `None` attends to all
    /// positions.
    pub window: Option<u32>,
    /// The order of the result's columns.
    pub order: ColumnOrder,
}

/// The number of warpgroups that multiply.
pub(super) const GROUPS: u32 = 2;

/// The number of queries of a warpgroup.
pub(super) const GROUP_QUERIES: u32 = 64;

/// The maximum number of queries of a block.
pub(super) const QUERIES: u32 = GROUPS * GROUP_QUERIES;

/// The number of queries of a warp.
pub(super) const WARP_QUERIES: u32 = GROUP_QUERIES / 4;

/// The number of positions of a step.
pub(super) const KEYS: u32 = 128;

/// The bytes of a row of a panel of a tile.
pub(super) const PANEL_BYTES: u32 = 128;

/// The number of tiles of the ring: as many as fit with 128 dimensions.
pub(super) const TILES: u32 = 6;

/// The number of registers of a thread that copies.
pub(super) const FEW: u32 = 40;

/// The number of registers of a thread that multiplies.
pub(super) const MANY: u32 = 232;

impl PromptAttentionWgmma {
    /// The maximum number of queries of a work item.
    pub const QUERIES: u32 = QUERIES;

    /// Returns the kernel without a window.
    pub const fn new(head_dim: u32, order: ColumnOrder) -> Self {
        PromptAttentionWgmma {
            head_dim,
            window: None,
            order,
        }
    }

    /// Returns this kernel for a window of the latest positions.
    pub const fn with_window(self, window: u32) -> Self {
        PromptAttentionWgmma {
            window: Some(window),
            ..self
        }
    }

    /// Returns the equivalent kernel with `mma.sync`.
    pub const fn plain(self) -> PromptAttention {
        let PromptAttentionWgmma {
            head_dim,
            window,
            order,
        } = self;
        PromptAttention {
            head_dim,
            queries: QUERIES,
            window,
            order,
        }
    }

    /// Returns the bytes of the queries of a warpgroup.
    pub(super) fn group_bytes(self) -> u32 {
        GROUP_QUERIES * 2 * self.head_dim
    }

    /// Returns the bytes of the keys, or of the values, of a step.
    pub(super) fn tile_bytes(self) -> u32 {
        KEYS * 2 * self.head_dim
    }
}
