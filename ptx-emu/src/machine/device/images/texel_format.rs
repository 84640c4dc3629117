//! The format of a texel: channel type and number of channels.

/// The type of a channel in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelType {
    /// An unsigned 8-bit integer.
    U8,
    /// An unsigned 16-bit integer.
    U16,
    /// An unsigned 32-bit integer.
    U32,
    /// A signed 8-bit integer.
    S8,
    /// A signed 16-bit integer.
    S16,
    /// A signed 32-bit integer.
    S32,
    /// A 16-bit float.
    F16,
    /// A 32-bit float.
    F32,
}

/// The format of a texel, which consists of adjacent channels of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TexelFormat {
    /// The type of the channels.
    pub channel: ChannelType,
    /// The number of channels: 1, 2 or 4.
    pub channels: u32,
}

impl ChannelType {
    /// Returns the size of a channel in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Self::U8 | Self::S8 => 1,
            Self::U16 | Self::S16 | Self::F16 => 2,
            Self::U32 | Self::S32 | Self::F32 => 4,
        }
    }

    /// Returns true if the channel is a float in memory.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32)
    }

    /// Returns the result of `txq.channel_data_type` (PTX ISA, "Channel Data Type and Channel Order
    /// Fields").
    ///
    /// `normalized` selects the number of the type as a normalized float.
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
    /// Returns the size of a texel in bytes.
    pub fn bytes(self) -> u32 {
        self.channel.bytes().saturating_mul(self.channels)
    }

    /// Returns the result of `txq.channel_order`: R, RG or RGBA.
    pub(crate) fn order(self) -> u32 {
        match self.channels {
            1 => 0x10b0,
            2 => 0x10b2,
            _ => 0x10b5,
        }
    }
}
