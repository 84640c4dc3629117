//! Atomics: instructions that read, modify and write memory in one step.

use super::op::*;

const FETCH_GLOBAL: Form = form(&[T], &[Global, T]);
const FETCH_SHARED: Form = form(&[T], &[Shared, T]);

#[rustfmt::skip] // one row a line
table! {
    /// Atomics and reductions in memory.
    ATOMIC, "Atomic and Reduction Instructions";
    ATOM_ADD        = op("atom.global.add.$t",  &[U32, S32, U64, F32], FETCH_GLOBAL, ATOMIC_GLOBAL, "d = old value; memory += a");
    ATOM_MIN        = op("atom.global.min.$t",  INT32, FETCH_GLOBAL, ATOMIC_GLOBAL, "d = old value; memory = the smaller of it and a");
    ATOM_MAX        = op("atom.global.max.$t",  INT32, FETCH_GLOBAL, ATOMIC_GLOBAL, "d = old value; memory = the larger of it and a");
    ATOM_EXCH       = op("atom.global.exch.$b", &[U32, S32], FETCH_GLOBAL, ATOMIC_GLOBAL, "d = old value; memory = a");
    ATOM_CAS        = op("atom.global.cas.$b",  &[U32, S32], form(&[T], &[Global, T, T]), ATOMIC_GLOBAL, "d = old value; memory = b if it was a");
    ATOM_TICKET     = op("atom.acq_rel.gpu.global.inc.u32", &[], form(&[Is(U32)], &[Global, Is(U32)]), ATOMIC_ACQ_REL, "d = old value; memory = 0 if it was a, else one more; orders memory both ways").needs(70, 6, 0);
    RED_ADD         = op("red.global.add.$t",   &[U32, S32, U64, F32], form(&[], &[Global, T]), ATOMIC_GLOBAL, "memory += a; an f32 sum flushes denormals");
    RED_RELEASE     = op("red.release.gpu.global.add.$t", &[U32], form(&[], &[Global, T]), ATOMIC_RELEASE, "memory += a; publishes the earlier writes of this thread").needs(70, 6, 0);
    ATOM_SHARED_ADD = op("atom.shared.add.$t",  &[U32, S32, U64, F32], FETCH_SHARED, ATOMIC_SHARED, "d = old value; shared memory += a");
    ATOM_SHARED_MIN = op("atom.shared.min.$t",  INT32, FETCH_SHARED, ATOMIC_SHARED, "d = old value; shared memory = the smaller of it and a");
    ATOM_SHARED_MAX = op("atom.shared.max.$t",  INT32, FETCH_SHARED, ATOMIC_SHARED, "d = old value; shared memory = the larger of it and a");
    ATOM_SHARED_EXCH = op("atom.shared.exch.$b", &[U32, S32], FETCH_SHARED, ATOMIC_SHARED, "d = old value; shared memory = a");
    ATOM_SHARED_CAS = op("atom.shared.cas.$b",  &[U32, S32], form(&[T], &[Shared, T, T]), ATOMIC_SHARED, "d = old value; shared memory = b if it was a");
    RED_SHARED_ADD  = op("red.shared.add.$t",   &[U32, S32, U64, F32], form(&[], &[Shared, T]), ATOMIC_SHARED, "shared memory += a");
}
