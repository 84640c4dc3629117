// Clusters and bulk copies of sm_90.
// arch sm_90a
#include "bug.h"
#include <cooperative_groups.h>
#include <cstdint>
#include <cuda/ptx>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

__device__ __forceinline__ void start(uint64_t* bar, int count) {
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(bar, count);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
}
__device__ __forceinline__ void expect(uint64_t* bar, unsigned bytes) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, bytes);
}
__device__ __forceinline__ void fetch(int* to, const int* from, unsigned bytes, uint64_t* bar) {
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, to, from, bytes, bar);
}
__device__ __forceinline__ void wait(uint64_t* bar, int parity) {
    while (!ptx::mbarrier_try_wait_parity(bar, parity)) {}
}

// bulk_without_wait: grid 1, block 32
KERNEL(bulk_without_wait) {
    __shared__ alignas(16) int s[32];
    __shared__ uint64_t bar;
    start(&bar, 1);
    if (threadIdx.x == 0) expect(&bar, sizeof s), fetch(s, x, sizeof s, &bar);  //!
    BUG(, wait(&bar, 0));
    y[threadIdx.x] = s[threadIdx.x];  //!
    BUG(wait(&bar, 0), );
}

// too_few_bytes_expected: grid 1, block 32
KERNEL(too_few_bytes_expected) {
    __shared__ alignas(16) int s[32];
    __shared__ uint64_t bar;
    start(&bar, 1);
    if (threadIdx.x == 0) expect(&bar, BUG(64, 128)), fetch(s, x, sizeof s, &bar);  //!
    wait(&bar, 0);  //!
    y[threadIdx.x] = s[threadIdx.x];  //!
}

// too_many_bytes_expected: grid 1, block 32, fuel 100000
KERNEL(too_many_bytes_expected) {
    __shared__ alignas(16) int s[32];
    __shared__ uint64_t bar;
    start(&bar, 1);
    if (threadIdx.x == 0) expect(&bar, BUG(256, 128)), fetch(s, x, sizeof s, &bar);
    wait(&bar, 0);  //!
    y[threadIdx.x] = s[threadIdx.x];
}

// bytes_not_expected: grid 1, block 32
KERNEL(bytes_not_expected) {
    __shared__ alignas(16) int s[32];
    __shared__ uint64_t bar;
    start(&bar, 1);
    if (threadIdx.x == 0) {
        BUG((void)ptx::mbarrier_arrive(&bar), expect(&bar, sizeof s));  //!
        fetch(s, x, sizeof s, &bar);  //!
    }
    wait(&bar, 0);
    y[threadIdx.x] = s[threadIdx.x];  //!
}

// store_without_proxy_fence: grid 1, block 32
KERNEL(store_without_proxy_fence) {
    __shared__ alignas(16) int s[32];
    s[threadIdx.x] = x[threadIdx.x];  //!
    BUG(, ptx::fence_proxy_async(ptx::space_shared));
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y, s, sizeof s);  //!
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}

// source_changed_before_it_was_read: grid 1, block 32
KERNEL(source_changed_before_it_was_read) {
    __shared__ alignas(16) int s[32];
    s[threadIdx.x] = x[threadIdx.x];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y, s, sizeof s);  //!
        ptx::cp_async_bulk_commit_group();
        BUG(, ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>()));
    }
    __syncthreads();
    s[threadIdx.x] = 0;  //!
    if (threadIdx.x == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
}

// block_ends_before_the_copy: grid 1, block 32
KERNEL(block_ends_before_the_copy) {
    __shared__ alignas(16) int s[32];
    s[threadIdx.x] = x[threadIdx.x];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y, s, sizeof s);  //!
        ptx::cp_async_bulk_commit_group();
        BUG(, ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>()));
    }
}

// bulk_beyond_the_end: grid 1, block 32
KERNEL(bulk_beyond_the_end) {
    __shared__ alignas(16) int s[36];
    __shared__ uint64_t bar;
    start(&bar, 1);
    if (threadIdx.x == 0) expect(&bar, BUG(144, 128)), fetch(s, x, BUG(144, 128), &bar);  //!
    wait(&bar, 0);  //!
    y[threadIdx.x] = s[threadIdx.x];
}

// bulk_misaligned: grid 1, block 16
KERNEL(bulk_misaligned) {
    __shared__ alignas(16) int s[36];
    __shared__ uint64_t bar;
    start(&bar, 1);
    if (threadIdx.x == 0) expect(&bar, 32), fetch(s + BUG(1, 4), x, 32, &bar);  //!
    wait(&bar, 0);
    if (threadIdx.x < 8) y[threadIdx.x] = s[threadIdx.x + 4];
}

// refilled_while_read: grid 1, block 64
KERNEL(refilled_while_read) {
    __shared__ alignas(16) int s[64];
    __shared__ uint64_t bar;
    start(&bar, 1);
    int sum = 0;
    for (int t = 0; t < 3; t++) {
        if (threadIdx.x == 0) expect(&bar, sizeof s), fetch(s, x, sizeof s, &bar);  //!
        wait(&bar, t & 1);
        sum += s[63 - threadIdx.x] * t;  //!
        BUG(, ptx::fence_proxy_async(ptx::space_shared); __syncthreads());
    }
    y[threadIdx.x] = sum;
}

// cluster_without_sync: grid 2, block 32, cluster 2
KERNEL(cluster_without_sync) {
    __shared__ int s[32];
    auto cluster = cg::this_cluster();
    s[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];  //!
    BUG(__syncthreads(), cluster.sync());
    y[blockIdx.x * 32 + threadIdx.x] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[threadIdx.x];  //!
    cluster.sync();
}

// block_gone_from_the_cluster: grid 2, block 32, cluster 2
KERNEL(block_gone_from_the_cluster) {
    __shared__ int s[32];
    auto cluster = cg::this_cluster();
    s[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
    cluster.sync();
    y[blockIdx.x * 32 + threadIdx.x] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[threadIdx.x];  //!
    BUG(, cluster.sync());
}

// remote_counter_not_atomic: grid 2, block 32, cluster 2
KERNEL(remote_counter_not_atomic) {
    __shared__ int total;
    auto cluster = cg::this_cluster();
    if (threadIdx.x == 0) total = 0;
    cluster.sync();
    int* first = cluster.map_shared_rank(&total, 0);
    if (threadIdx.x == 0) BUG(*first += x[blockIdx.x], atomicAdd(first, x[blockIdx.x]));  //!
    cluster.sync();
    if (threadIdx.x == 0 && cluster.block_rank() == 0) y[0] = total;
}

// atomic_before_the_store: grid 2, block 32, cluster 2
KERNEL(atomic_before_the_store) {
    __shared__ int s;
    auto cluster = cg::this_cluster();
    if (threadIdx.x == 0) s = 1;
    BUG(, cluster.sync());
    int* other = cluster.map_shared_rank(&s, cluster.block_rank() ^ 1);
    if (threadIdx.x == 0) atomicAdd(other, x[0]);  //!
    cluster.sync();
    if (threadIdx.x == 0) y[blockIdx.x] = s;
}
