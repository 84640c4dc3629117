// sm_90: clusters, distributed shared memory, bulk copies, tensor maps.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda.h>
#include <cstdint>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
using barrier = cuda::barrier<cuda::thread_scope_block>;

// The first block of a cluster adds the others' sums.
extern "C" __global__ void __cluster_dims__(4) cluster_sum(const int* x, int* y) {
    __shared__ int sum;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[blockIdx.x * blockDim.x + threadIdx.x]);
    cluster.sync();
    if (cluster.block_rank() == 0 && threadIdx.x < cluster.num_blocks()) {
        int part = *cluster.map_shared_rank(&sum, threadIdx.x);
        part = __reduce_add_sync((1u << cluster.num_blocks()) - 1, part);
        if (threadIdx.x == 0) y[blockIdx.x / 4] = part;
    }
    cluster.sync();
}

// A histogram whose bins are spread over the blocks of a cluster.
extern "C" __global__ void cluster_histogram(const int* x, int* bins, int each, int n) {
    extern __shared__ int s[];
    cg::cluster_group cluster = cg::this_cluster();
    for (int b = threadIdx.x; b < each; b += blockDim.x) s[b] = 0;
    cluster.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(cluster.map_shared_rank(s, x[i] / each) + x[i] % each, 1);
    cluster.sync();
    int* mine = bins + cluster.block_rank() * each;
    for (int b = threadIdx.x; b < each; b += blockDim.x) atomicAdd(&mine[b], s[b]);
}

// Neighbours in a ring exchange halos.
extern "C" __global__ void __cluster_dims__(2) cluster_halo(const float* x, float* y) {
    __shared__ float s[64];
    cg::cluster_group cluster = cg::this_cluster();
    int t = threadIdx.x, rank = cluster.block_rank();
    s[t] = x[blockIdx.x * 64 + t];
    cluster.sync();
    const float* other = cluster.map_shared_rank(s, rank ^ 1);
    float left = t > 0 ? s[t - 1] : other[63], right = t < 63 ? s[t + 1] : other[0];
    y[blockIdx.x * 64 + t] = left + 2.0f * s[t] + right;
    cluster.sync();
}

// One thread fetches a row, everybody waits for its bytes.
extern "C" __global__ void bulk_load(const int* x, int* y) {
    __shared__ alignas(16) int s[256];
    __shared__ barrier bar;
    if (threadIdx.x == 0) {
        init(&bar, blockDim.x);
        ptx::fence_proxy_async(ptx::space_shared);
    }
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::memcpy_async(s, x + blockIdx.x * 256, cuda::aligned_size_t<16>(sizeof s), bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, 0);
    } else {
        token = bar.arrive();
    }
    bar.wait(std::move(token));
    for (int i = threadIdx.x; i < 256; i += blockDim.x) y[blockIdx.x * 256 + i] = s[255 - i] * 3;
}

// In and out again by bulk copies, a ring of two buffers with phases.
extern "C" __global__ void bulk_ring(const float* x, float* y, int tiles) {
    __shared__ alignas(16) float in[2][128], out[2][128];
    __shared__ uint64_t full[2];
    int t = threadIdx.x;
    if (t == 0) {
        ptx::mbarrier_init(&full[0], 1), ptx::mbarrier_init(&full[1], 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    auto fetch = [&](int tile) {
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[tile & 1], sizeof in[0]);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, in[tile & 1], x + tile * 128, sizeof in[0], &full[tile & 1]);
    };
    if (t == 0) fetch(0);
    for (int tile = 0; tile < tiles; tile++) {
        if (t == 0 && tile + 1 < tiles) fetch(tile + 1);
        while (!ptx::mbarrier_try_wait_parity(&full[tile & 1], tile >> 1 & 1)) {}
        if (t == 0) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<1>());
        __syncthreads();
        out[tile & 1][t] = in[tile & 1][127 - t] * 2.0f;
        ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
        if (t == 0) {
            ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y + tile * 128, out[tile & 1], sizeof out[0]);
            ptx::cp_async_bulk_commit_group();
        }
    }
    if (t == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
}

// Boxes of a matrix by tensor maps; what lies outside is zero.
extern "C" __global__ void tensor_load(const __grid_constant__ CUtensorMap map, float* y) {
    __shared__ alignas(128) float s[8][16];
    __shared__ barrier bar;
    if (threadIdx.x == 0) {
        init(&bar, blockDim.x);
        cuda::device::experimental::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::experimental::cp_async_bulk_tensor_2d_global_to_shared(s, &map, blockIdx.x * 16, blockIdx.y * 8, bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, sizeof s);
    } else {
        token = bar.arrive();
    }
    bar.wait(std::move(token));
    int at = (blockIdx.y * gridDim.x + blockIdx.x) * 128;
    y[at + threadIdx.x] = s[threadIdx.x / 16][threadIdx.x % 16];
}

// A tile changed in shared memory goes out through a tensor map.
extern "C" __global__ void tensor_store(const __grid_constant__ CUtensorMap map, const int* x) {
    __shared__ alignas(128) int s[4][8];
    s[threadIdx.x / 8][threadIdx.x % 8] = x[blockIdx.x * 32 + threadIdx.x] + 1;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        int at[2] = {(int)blockIdx.x * 8, 4};
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map, at, s);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}

// One block of a pair sends a tile to both.
extern "C" __global__ void __cluster_dims__(2) multicast(const int* x, int* y) {
    __shared__ alignas(16) int s[64];
    __shared__ uint64_t bar;
    unsigned rank = cg::this_cluster().block_rank();
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&bar, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, sizeof s);
    }
    cg::this_cluster().sync();
    if (threadIdx.x == 0 && rank == 0)
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, s, x + blockIdx.x / 2 * 64, sizeof s, &bar, (unsigned short)3);
    while (!ptx::mbarrier_try_wait_parity(&bar, 0)) {}
    y[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x] + rank;
    cg::this_cluster().sync();
}

// A bulk reduction into global memory.
extern "C" __global__ void bulk_reduce(const int* x, int* sums) {
    __shared__ alignas(16) int s[64];
    s[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add, sums, s, sizeof s);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}

// Stores to a neighbour's shared memory that complete on its barrier.
extern "C" __global__ void __cluster_dims__(2) remote_store(const int* x, int* y) {
    __shared__ alignas(16) int s[32];
    __shared__ uint64_t bar;
    auto cluster = cg::this_cluster();
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&bar, 1);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, sizeof s);
    }
    cluster.sync();
    int* there = cluster.map_shared_rank(&s[threadIdx.x], cluster.block_rank() ^ 1);
    uint64_t* its = cluster.map_shared_rank(&bar, cluster.block_rank() ^ 1);
    ptx::st_async(there, x[blockIdx.x * 32 + threadIdx.x], its);
    while (!ptx::mbarrier_try_wait_parity(&bar, 0)) {}
    y[blockIdx.x * 32 + threadIdx.x] = s[31 - threadIdx.x];
    cluster.sync();
}

// A dependent launch waits for what comes before it.
extern "C" __global__ void dependent(const int* x, int* y) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    cudaGridDependencySynchronize();
    y[at] = x[at] + 1;
    cudaTriggerProgrammaticLaunchCompletion();
}
