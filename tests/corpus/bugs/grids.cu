// Grids, clusters, bulk copies and matrices of sm_90.
// arch sm_90a
#include "bug.h"
#include <cooperative_groups.h>
#include <cstdint>
#include <cuda/ptx>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

// block_leaves_before_the_grid: grid 3, block 32, cooperative, fuel 3000000
KERNEL(block_leaves_before_the_grid) {
    if (BUG(blockIdx.x == 2, false)) return;
    y[blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x];
    cg::this_grid().sync();  //!
}

// block_barrier_for_the_grid: grid 3, block 32, cooperative, fuel 50000000
KERNEL(block_barrier_for_the_grid) {
    int i = blockIdx.x * 32 + threadIdx.x;
    y[i] = x[i];  //!
    BUG(__syncthreads(), cg::this_grid().sync());
    int v = y[95 - i];  //!
    cg::this_grid().sync();
    y[i] = v;  //!
}

// grid_barrier_of_some_threads: grid 2, block 64, cooperative, fuel 50000000
KERNEL(grid_barrier_of_some_threads) {
    int i = blockIdx.x * 64 + threadIdx.x;
    y[i] = x[i];
    if (threadIdx.x < BUG(32, 64)) cg::this_grid().sync();  //!
}

// cluster_arrives_and_goes_on: grid 2, block 32, cluster 2
KERNEL(cluster_arrives_and_goes_on) {
    __shared__ int s[32];
    auto cluster = cg::this_cluster();
    s[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];  //!
    cluster.barrier_arrive();
    BUG(, cluster.barrier_wait());
    y[blockIdx.x * 32 + threadIdx.x] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[threadIdx.x];  //!
    BUG(cluster.barrier_wait(), );
    cluster.sync();
}

// rank_beyond_the_cluster: grid 4, block 32, cluster 2
KERNEL(rank_beyond_the_cluster) {
    __shared__ int s[32];
    auto cluster = cg::this_cluster();
    s[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
    cluster.sync();
    unsigned next = (cluster.block_rank() + 1) BUG(, % 2);  //!
    y[blockIdx.x * 32 + threadIdx.x] = cluster.map_shared_rank(s, next)[threadIdx.x];  //!
    cluster.sync();
}

// block_of_the_cluster_leaves: grid 2, block 32, cluster 2, fuel 100000
KERNEL(block_of_the_cluster_leaves) {
    __shared__ int s[32];
    auto cluster = cg::this_cluster();
    s[threadIdx.x] = x[threadIdx.x];
    cluster.sync();
    BUG(if (cluster.block_rank() == 1) return, );
    int v = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[31 - threadIdx.x];  //!
    y[blockIdx.x * 32 + threadIdx.x] = v;
    cluster.sync();
}

// fence_before_the_stores: grid 1, block 32
KERNEL(fence_before_the_stores) {
    __shared__ alignas(16) int s[32];
    BUG(ptx::fence_proxy_async(ptx::space_shared), );
    s[threadIdx.x] = x[threadIdx.x];  //!
    BUG(, ptx::fence_proxy_async(ptx::space_shared));
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y, s, sizeof s);  //!
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}

// bulk_group_not_committed: grid 1, block 32
KERNEL(bulk_group_not_committed) {
    __shared__ alignas(16) int s[32];
    s[threadIdx.x] = x[threadIdx.x];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y, s, sizeof s);  //!
        BUG(, ptx::cp_async_bulk_commit_group());
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
    __syncthreads();
    s[threadIdx.x] = 0;  //!
}

// bytes_expected_once: grid 1, block 32
KERNEL(bytes_expected_once) {
    __shared__ alignas(16) int s[32];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) ptx::mbarrier_init(&bar, 1), ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    __syncthreads();
    int sum = 0;
    for (int t = 0; t < 2; t++) {
        if (threadIdx.x == 0) {
            if (BUG(t == 0, true))
                ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, sizeof s);
            ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, s, x, sizeof s, &bar);  //!
        }
        while (!ptx::mbarrier_try_wait_parity(&bar, t)) {}  //!
        sum += s[31 - threadIdx.x];
        ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
    }
    y[threadIdx.x] = sum;
}

// odd_number_of_bytes: grid 1, block 32
KERNEL(odd_number_of_bytes) {
    __shared__ alignas(16) int s[32];
    __shared__ uint64_t bar;
    unsigned bytes = (n - BUG(1, 4)) * sizeof(int);
    if (threadIdx.x == 0) ptx::mbarrier_init(&bar, 1), ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, bytes);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, s, x, bytes, &bar);  //!
    }
    while (!ptx::mbarrier_try_wait_parity(&bar, 0)) {}
    if (threadIdx.x < 28) y[threadIdx.x] = s[threadIdx.x];
}

// The product of two tiles of halves without a swizzle, 64 x 16 and 16 x 8; the sums are D's.
__device__ __forceinline__ void multiply(float (&d)[4], uint64_t a, uint64_t b) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "l"(a), "l"(b));
}
__device__ __forceinline__ uint64_t tile(const void* p) {
    uint64_t at = (__cvta_generic_to_shared(p) & 0x3ffff) >> 4;
    return at | (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
}
#define WGMMA_FENCE(d)                                                                                               \
    asm volatile("wgmma.fence.sync.aligned;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory")
#define WGMMA_COMMIT() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WGMMA_WAIT(d)                                                                                                \
    asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory")

// product_read_without_wait: grid 1, block 128, n 640
KERNEL(product_read_without_wait) {
    __shared__ alignas(128) int a[512], b[64];
    for (int i = threadIdx.x; i < 512; i += 128) a[i] = x[i];
    if (threadIdx.x < 64) b[threadIdx.x] = x[512 + threadIdx.x];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    WGMMA_FENCE(d);
    multiply(d, tile(a), tile(b));  //!
    WGMMA_COMMIT();
    BUG(, WGMMA_WAIT(d));
    y[threadIdx.x] = __float_as_int(d[0] + d[3]);  //!
    BUG(WGMMA_WAIT(d), );
}

// sums_set_without_fence: grid 1, block 128, n 640
KERNEL(sums_set_without_fence) {
    __shared__ alignas(128) int a[512], b[64];
    for (int i = threadIdx.x; i < 512; i += 128) a[i] = x[i];
    if (threadIdx.x < 64) b[threadIdx.x] = x[512 + threadIdx.x];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    float d[4] = {0, 1, 2, __int_as_float(x[threadIdx.x])};
    BUG(, WGMMA_FENCE(d));
    multiply(d, tile(a), tile(b));  //!
    WGMMA_COMMIT();
    WGMMA_WAIT(d);
    y[threadIdx.x] = __float_as_int(d[0] + d[3]);
}

// factor_stored_without_proxy_fence: grid 1, block 128, n 640
KERNEL(factor_stored_without_proxy_fence) {
    __shared__ alignas(128) int a[512], b[64];
    for (int i = threadIdx.x; i < 512; i += 128) a[i] = x[i];  //!
    if (threadIdx.x < 64) b[threadIdx.x] = x[512 + threadIdx.x];  //!
    BUG(, ptx::fence_proxy_async(ptx::space_shared));
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    WGMMA_FENCE(d);
    multiply(d, tile(a), tile(b));  //!
    WGMMA_COMMIT();
    WGMMA_WAIT(d);
    y[threadIdx.x] = __float_as_int(d[0] + d[3]);
}

// factor_replaced_too_early: grid 1, block 128, n 640
KERNEL(factor_replaced_too_early) {
    __shared__ alignas(128) int a[512], b[64];
    for (int i = threadIdx.x; i < 512; i += 128) a[i] = x[i];
    if (threadIdx.x < 64) b[threadIdx.x] = x[512 + threadIdx.x];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    WGMMA_FENCE(d);
    multiply(d, tile(a), tile(b));  //!
    WGMMA_COMMIT();
    BUG(, WGMMA_WAIT(d));
    BUG(, __syncthreads());
    a[threadIdx.x] = x[threadIdx.x] + 1;  //!
    WGMMA_WAIT(d);
    y[threadIdx.x] = __float_as_int(d[0] + d[3]) + a[threadIdx.x];
}
