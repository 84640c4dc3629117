//! Data movement: moves, loads and stores.

use super::op::*;

const REGISTERS: &[Kind] = &[Pred, F16, Bf16, U32, S32, F16x2, F32, U64, S64];
const SCALARS: &[Kind] = &[U32, S32, F32, U64];
const ONE: &[Kind] = &[U8, S8, U16, F16, Bf16, U32, S32, F16x2, F32, U64, S64];
const UP_TO_32: &[Kind] = &[U8, S8, U16, F16, Bf16, U32, S32, F16x2, F32];
const ALL_32: &[Kind] = &[U32, S32, F16x2, F32];

#[rustfmt::skip] // one row a line
table! {
    /// Moves, loads and stores.
    MOVEMENT, "Data Movement Instructions";
    MOV            = pure("mov.$m",               REGISTERS, form(&[T], &[Any]), "d = a");
    BITS           = pure("mov.$b",               ALL_32,    CONVERT, "d = the bits of a").from(ALL_32);
    PACK           = pure("mov.$b",               &[F16x2], form(&[T], &[Halves]), "d = a in the low half, b in the high half");
    UNPACK         = pure("mov.$b",               &[F16x2], form(&[Halves], &[T]), "d = low half of a, e = high half of a");
    LD_PARAM       = op("ld.param.$m",          SCALARS,   form(&[T], &[Param]), LOAD_PARAM, "d = a kernel argument");
    LD_GLOBAL      = op("ld.global.$m",         ONE,       form(&[T], &[Global]), LOAD_GLOBAL, "load from global memory");
    LD_GLOBAL_V2   = op("ld.global.v2.$m",      ONE,       form(&[Vec(2)], &[Global]), LOAD_GLOBAL, "load two elements from global memory");
    LD_GLOBAL_V4   = op("ld.global.v4.$m",      UP_TO_32,  form(&[Vec(4)], &[Global]), LOAD_GLOBAL, "load four elements from global memory");
    LD_NC          = op("ld.global.nc.$m",      ONE,       form(&[T], &[Global]), LOAD_NONCOHERENT, "load an element that no thread of the kernel writes");
    LD_NC_V2       = op("ld.global.nc.v2.$m",   ONE,       form(&[Vec(2)], &[Global]), LOAD_NONCOHERENT, "load two elements that no thread of the kernel writes");
    LD_NC_V4       = op("ld.global.nc.v4.$m",   UP_TO_32,  form(&[Vec(4)], &[Global]), LOAD_NONCOHERENT, "load four elements that no thread of the kernel writes");
    LD_STREAM      = op("ld.global.nc.L1::no_allocate.$m",    ONE, form(&[T], &[Global]), LOAD_NONCOHERENT, "load an element that is read once, without allocating in the L1 cache").needs(70, 7, 4);
    LD_STREAM_V2   = op("ld.global.nc.L1::no_allocate.v2.$m", ONE, form(&[Vec(2)], &[Global]), LOAD_NONCOHERENT, "load two elements that are read once, without allocating in the L1 cache").needs(70, 7, 4);
    LD_STREAM_V4   = op("ld.global.nc.L1::no_allocate.v4.$m", UP_TO_32, form(&[Vec(4)], &[Global]), LOAD_NONCOHERENT, "load four elements that are read once, without allocating in the L1 cache").needs(70, 7, 4);
    LD_RELAXED     = op("ld.relaxed.gpu.global.$m",    ONE, form(&[T], &[Global]), LOAD_RELAXED, "load an element that another kernel may write concurrently, past the L1 cache").needs(70, 6, 0);
    LD_RELAXED_V2  = op("ld.relaxed.gpu.global.v2.$m", ONE, form(&[Vec(2)], &[Global]), LOAD_RELAXED, "load two elements that another kernel may write concurrently, past the L1 cache").needs(70, 6, 0);
    LD_RELAXED_V4  = op("ld.relaxed.gpu.global.v4.$m", UP_TO_32, form(&[Vec(4)], &[Global]), LOAD_RELAXED, "load four elements that another kernel may write concurrently, past the L1 cache").needs(70, 6, 0);
    LD_ACQUIRE     = op("ld.acquire.gpu.global.$m", ALL_32, form(&[T], &[Global]), LOAD_ACQUIRE, "load and acquire the earlier writes of a releasing thread of the device").needs(70, 6, 0);
    LD_SHARED      = op("ld.shared.$m",         ONE,       form(&[T], &[Shared]), LOAD_SHARED, "load from shared memory");
    LD_SHARED_V2   = op("ld.shared.v2.$m",      ONE,       form(&[Vec(2)], &[Shared]), LOAD_SHARED, "load two elements from shared memory");
    LD_SHARED_V4   = op("ld.shared.v4.$m",      UP_TO_32,  form(&[Vec(4)], &[Shared]), LOAD_SHARED, "load four elements from shared memory");
    ST_GLOBAL      = op("st.global.$m",         ONE,       form(&[], &[Global, T]), STORE_GLOBAL, "store to global memory");
    ST_GLOBAL_V2   = op("st.global.v2.$m",      ONE,       form(&[], &[Global, Vec(2)]), STORE_GLOBAL, "store two elements to global memory");
    ST_GLOBAL_V4   = op("st.global.v4.$m",      UP_TO_32,  form(&[], &[Global, Vec(4)]), STORE_GLOBAL, "store four elements to global memory");
    ST_RELAXED     = op("st.relaxed.gpu.global.$m", ALL_32, form(&[], &[Global, T]), STORE_RELAXED, "store for kernels that load it with ld.relaxed while this one runs").needs(70, 6, 0);
    ST_RELEASE     = op("st.release.gpu.global.$m", ALL_32, form(&[], &[Global, T]), STORE_RELEASE, "store and publish the earlier writes of this thread to the device").needs(70, 6, 0);
    ST_RELEASE_SYS = op("st.release.sys.global.$m", ALL_32, form(&[], &[Global, T]), STORE_RELEASE, "store and publish the earlier writes of this thread to the device and the host").needs(70, 6, 0);
    ST_SHARED      = op("st.shared.$m",         ONE,       form(&[], &[Shared, T]), STORE_SHARED, "store to shared memory");
    ST_SHARED_V2   = op("st.shared.v2.$m",      ONE,       form(&[], &[Shared, Vec(2)]), STORE_SHARED, "store two elements to shared memory");
    ST_SHARED_V4   = op("st.shared.v4.$m",      UP_TO_32,  form(&[], &[Shared, Vec(4)]), STORE_SHARED, "store four elements to shared memory");
    LD_CLUSTER     = op("ld.shared::cluster.$m",    ONE,      form(&[T], &[Cluster]), LOAD_CLUSTER, "load from shared memory of a block of the cluster").needs(90, 7, 8);
    LD_CLUSTER_V2  = op("ld.shared::cluster.v2.$m", ONE,      form(&[Vec(2)], &[Cluster]), LOAD_CLUSTER, "load two elements from shared memory of a block of the cluster").needs(90, 7, 8);
    LD_CLUSTER_V4  = op("ld.shared::cluster.v4.$m", UP_TO_32, form(&[Vec(4)], &[Cluster]), LOAD_CLUSTER, "load four elements from shared memory of a block of the cluster").needs(90, 7, 8);
    ST_CLUSTER     = op("st.shared::cluster.$m",    ONE,      form(&[], &[Cluster, T]), STORE_CLUSTER, "store to shared memory of a block of the cluster").needs(90, 7, 8);
    ST_CLUSTER_V2  = op("st.shared::cluster.v2.$m", ONE,      form(&[], &[Cluster, Vec(2)]), STORE_CLUSTER, "store two elements to shared memory of a block of the cluster").needs(90, 7, 8);
    ST_CLUSTER_V4  = op("st.shared::cluster.v4.$m", UP_TO_32, form(&[], &[Cluster, Vec(4)]), STORE_CLUSTER, "store four elements to shared memory of a block of the cluster").needs(90, 7, 8);
    MAPA           = pure("mapa.shared::cluster.u32", &[],    form(&[Is(U32)], &[Is(U32), Is(U32)]), "d = the address in block b of the cluster that corresponds to a in this block").needs(90, 7, 8);
    PARAM_ADDRESS  = pure("mov.b64",                &[],      form(&[Is(U64)], &[ParamName]), "d = the address of a kernel argument");
    CVTA_PARAM     = pure("cvta.param.u64",         &[],      form(&[Is(U64)], &[Is(U64)]), "d = the address of a kernel argument as a generic one").needs(70, 7, 7);
    PREFETCH_L2    = op("prefetch.global.L2",   &[],       form(&[], &[Global]), PREFETCH, "prefetch a line of global memory into the L2 cache");
    CVTA_TO_GLOBAL = pure("cvta.to.global.$t",    &[U64],    UNARY, "d = a generic address as one of global memory");
}
