//! The sums of a lane, as the epilogues get them.

use super::definition::MatmulArgs;
use ptx_gen::*;

/// A lane's sums: of rows `g` and `g + 8` of a row block, for the tokens `8 j + 2 t` and `8 j + 2 t
/// + 1`.
pub(super) struct LaneSums<'a, 'k> {
    pub(super) k: Builder<'k>,
    pub(super) row_block: U32<'k>,
    /// The first token.
    pub(super) token: U32<'k>,
    pub(super) sums: &'a Accumulators<'k, f32>,
    /// The scales of both of the lane's tokens in each group of eight tokens. They were loaded
    /// while the sums were computed. The slice is empty where registers are short.
    pub(super) loaded: &'a [[F32<'k>; 2]],
    /// Whether other kernels may still write their results while this one starts.
    pub(super) overlap: bool,
}

/// The number of groups of eight tokens whose loads are in flight together.
pub(super) const AT_ONCE: u32 = 4;

impl<'k> LaneSums<'_, 'k> {
    /// Loads a value that an earlier kernel has written.
    pub(super) fn load<T: Elem>(&self, from: Ptr<'k, T, ReadOnly>) -> Val<'k, T::Reg> {
        if self.overlap {
            from.fresh().ld()
        } else {
            from.ld()
        }
    }

    /// Loads two adjacent values that an earlier kernel has written.
    pub(super) fn load_two<T: Elem>(&self, from: Ptr<'k, T, ReadOnly>) -> [Val<'k, T::Reg>; 2] {
        if self.overlap {
            from.fresh().ld2()
        } else {
            from.ld2()
        }
    }

    /// Loads the values of a token and the next.
    pub(super) fn of_two(&self, numbers: Ptr<'k, f32, ReadOnly>, token: U32<'k>) -> [F32<'k>; 2] {
        self.load_two(numbers.at(token))
    }

    /// Loads the scales of all tokens of the job.
    pub(super) fn load_scales(&self, a: &MatmulArgs<Dev<'k>>) -> Vec<[F32<'k>; 2]> {
        (0..self.sums.columns() / 8)
            .map(|group| self.scales(a, group))
            .collect()
    }

    /// Returns the scales of the lane's tokens of a group of eight.
    pub(super) fn scales(&self, a: &MatmulArgs<Dev<'k>>, group: u32) -> [F32<'k>; 2] {
        let token = self.token + (self.k.lane() & 3) * 2 + 8 * group;
        self.loaded
            .get(group as usize)
            .copied()
            .unwrap_or_else(|| self.of_two(a.x_scale, token))
    }
}
