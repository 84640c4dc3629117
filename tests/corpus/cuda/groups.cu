// Cooperative groups.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void tile_reduce(const int* x, int* sums, int* least) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = cg::reduce(tile, x[i], cg::plus<int>()), low = cg::reduce(tile, x[i], cg::less<int>());
    if (tile.thread_rank() == 0) sums[i / 8] = sum, least[i / 8] = low;
}

extern "C" __global__ void tile_scan(const int* x, int* inclusive, int* exclusive) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    inclusive[i] = cg::inclusive_scan(tile, x[i]), exclusive[i] = cg::exclusive_scan(tile, x[i]);
}

extern "C" __global__ void coalesced_filter(const int* x, int* y, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] >= 0) {
        cg::coalesced_group g = cg::coalesced_threads();
        int base;
        if (g.thread_rank() == 0) base = atomicAdd(count, g.size());
        y[g.shfl(base, 0) + g.thread_rank()] = x[i];
    }
}

extern "C" __global__ void labelled_partition(const int* label, const int* x, int* y) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto mine = cg::labeled_partition(warp, label[threadIdx.x]);
    y[threadIdx.x] = cg::reduce(mine, x[threadIdx.x], cg::plus<int>()) * 100 + mine.num_threads();
}

// Power iteration steps with the whole grid in step.
extern "C" __global__ void grid_jacobi(float* a, float* b, int n, int steps) {
    cg::grid_group grid = cg::this_grid();
    for (int s = 0; s < steps; s++) {
        for (int i = grid.thread_rank(); i < n; i += grid.size()) {
            float left = i > 0 ? a[i - 1] : 0.0f, right = i < n - 1 ? a[i + 1] : 0.0f;
            b[i] = 0.5f * a[i] + 0.25f * (left + right);
        }
        grid.sync();
        float* swap = a;
        a = b, b = swap;
    }
}

extern "C" __global__ void copy_collectively(const int* x, int* y, int n) {
    extern __shared__ int s[];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s, x + blockIdx.x * n, sizeof(int) * n);
    cg::wait(block);
    for (int i = block.thread_rank(); i < n; i += block.size()) y[blockIdx.x * n + i] = s[n - 1 - i];
}

// A group of 16 threads sums through shared memory, whatever else the block does.
__device__ int group_sum(cg::thread_group g, int* s, int v) {
    int rank = g.thread_rank();
    for (int half = g.size() / 2; half > 0; half /= 2) {
        s[rank] = v;
        g.sync();
        if (rank < half) v += s[rank + half];
        g.sync();
    }
    return v;
}
extern "C" __global__ void dynamic_groups(const int* x, int* y) {
    __shared__ int s[128];
    auto block = cg::this_thread_block();
    cg::thread_group tile = cg::tiled_partition(block, 16);
    int all = group_sum(block, s, x[blockIdx.x * 128 + threadIdx.x]);
    block.sync();
    int some = group_sum(tile, s + threadIdx.x / 16 * 16, x[blockIdx.x * 128 + threadIdx.x]);
    if (tile.thread_rank() == 0) y[blockIdx.x * 9 + threadIdx.x / 16] = some;
    if (block.thread_rank() == 0) y[blockIdx.x * 9 + 8] = all;
}
