//! Exchange between the lanes of a warp.

use super::op::*;

const SHUFFLED: &[Kind] = &[U32, S32, F16x2, F32];
/// The operands of a shuffle: value, lane or distance, clamp and segment, member mask.
const SHUFFLE: Form = form(&[T], &[T, Is(U32), Lit(0, 0x1f1f), Is(U32)]);
const VOTE: Form = form(&[Is(Pred)], &[Is(Pred), Is(U32)]);

#[rustfmt::skip] // one row a line
table! {
    /// Exchange between lanes.
    WARP, "Warp-Level Communication Instructions";
    SHFL_UP     = op("shfl.sync.up.$b",      SHUFFLED, SHUFFLE, Effect::Exchange(Uniformity::Differs), "d = a of the lane b below").together(Level::Warp);
    SHFL_DOWN   = op("shfl.sync.down.$b",    SHUFFLED, SHUFFLE, Effect::Exchange(Uniformity::Differs), "d = a of the lane b above").together(Level::Warp);
    SHFL_BFLY   = op("shfl.sync.bfly.$b",    SHUFFLED, SHUFFLE, Effect::Exchange(Uniformity::AsOperands), "d = a of the lane whose index is this lane's XOR b").together(Level::Warp);
    SHFL_IDX    = op("shfl.sync.idx.$b",     SHUFFLED, SHUFFLE, Effect::Exchange(Uniformity::AsOperands), "d = a of lane b").together(Level::Warp);
    VOTE_ALL    = op("vote.sync.all.pred",   &[], VOTE, Effect::Exchange(Uniformity::Same(Level::Warp)), "p = a holds in every lane").together(Level::Warp);
    VOTE_ANY    = op("vote.sync.any.pred",   &[], VOTE, Effect::Exchange(Uniformity::Same(Level::Warp)), "p = a holds in some lane").together(Level::Warp);
    VOTE_BALLOT = op("vote.sync.ballot.b32", &[], form(&[Is(U32)], &[Is(Pred), Is(U32)]), Effect::Exchange(Uniformity::Same(Level::Warp)), "d = a mask with one bit per lane, set where a holds").together(Level::Warp);
    ELECT       = op("elect.sync _|",        &[], form(&[Is(Pred)], &[Is(U32)]), Effect::Exchange(Uniformity::Differs), "p = this is the elected lane of the mask, always the same one").together(Level::Warp).needs(90, 8, 0);
    REDUX_ADD   = op("redux.sync.add.$t",    INT32, form(&[T], &[T, Is(U32)]), Effect::Exchange(Uniformity::Same(Level::Warp)), "d = the sum of a over the lanes").together(Level::Warp).needs(80, 7, 0);
    REDUX_MAX   = op("redux.sync.max.$t",    INT32, form(&[T], &[T, Is(U32)]), Effect::Exchange(Uniformity::Same(Level::Warp)), "d = the largest a of the lanes").together(Level::Warp).needs(80, 7, 0);
}
