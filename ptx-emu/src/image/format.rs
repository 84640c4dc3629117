//! What a texel is.

/// What a channel of a texel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelType {
    /// An unsigned integer of 8 bits.
    U8,
    /// An unsigned integer of 16 bits.
    U16,
    /// An unsigned integer of 32 bits.
    U32,
    /// A signed integer of 8 bits.
    S8,
    /// A signed integer of 16 bits.
    S16,
    /// A signed integer of 32 bits.
    S32,
    /// A float of 16 bits.
    F16,
    /// A float of 32 bits.
    F32,
}

/// What a texel is: channels of one type, side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TexelFormat {
    /// The type of each.
    pub channel: ChannelType,
    /// How many: 1, 2 or 4.
    pub channels: u32,
}

impl ChannelType {
    /// Its size.
    pub fn bytes(self) -> u32 {
        match self {
            Self::U8 | Self::S8 => 1,
            Self::U16 | Self::S16 | Self::F16 => 2,
            Self::U32 | Self::S32 | Self::F32 => 4,
        }
    }

    /// Whether it is a float in memory.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32)
    }

    /// Its number in what `txq.channel_data_type` gives (manual, "Channel Data Type and Channel Order Fields"), where the
    /// kernel reads it as it is, or as a normalized float.
    pub(crate) fn number(self, normalized: bool) -> u32 {
        match (self, normalized) {
            (Self::S8, true) => 0x10d0,
            (Self::S16, true) => 0x10d1,
            (Self::U8, true) => 0x10d2,
            (Self::U16, true) => 0x10d3,
            (Self::S8, false) => 0x10d7,
            (Self::S16, false) => 0x10d8,
            (Self::S32, _) => 0x10d9,
            (Self::U8, false) => 0x10da,
            (Self::U16, false) => 0x10db,
            (Self::U32, _) => 0x10dc,
            (Self::F16, _) => 0x10dd,
            (Self::F32, _) => 0x10de,
        }
    }
}

impl TexelFormat {
    /// Its size.
    pub fn bytes(self) -> u32 {
        self.channel.bytes().saturating_mul(self.channels)
    }

    /// Its number in what `txq.channel_order` gives: R, RG or RGBA.
    pub(crate) fn order(self) -> u32 {
        match self.channels {
            1 => 0x10b0,
            2 => 0x10b2,
            _ => 0x10b5,
        }
    }
}
