// Code that takes the lanes of a warp to go in step.
#include "bug.h"

// exchange_without_syncwarp: grid 1, block 32
KERNEL(exchange_without_syncwarp) {
    __shared__ int s[32];
    s[threadIdx.x] = x[threadIdx.x];  //!
    BUG(, __syncwarp());
    y[threadIdx.x] = s[threadIdx.x ^ 1];  //!
}

// volatile_exchange: grid 1, block 32
KERNEL(volatile_exchange) {
    __shared__ volatile int s[32];
    s[threadIdx.x] = x[threadIdx.x];  //!
    BUG(, __syncwarp());
    y[threadIdx.x] = s[31 - threadIdx.x];  //!
}

// volatile_scan_of_a_warp: grid 1, block 32
KERNEL(volatile_scan_of_a_warp) {
    __shared__ volatile int s[64];
    int t = threadIdx.x + 32, v = x[threadIdx.x];
    s[threadIdx.x] = 0;
    s[t] = v;
    __syncwarp();
    for (int d = 1; d < 32; d *= 2) {
        v += s[t - d];  //!
        BUG(, __syncwarp());
        s[t] = v;  //!
        BUG(, __syncwarp());
    }
    y[threadIdx.x] = v;
}

// scan_of_a_warp: grid 1, block 64
KERNEL(scan_of_a_warp) {
    __shared__ int s[2][32];
    int lane = threadIdx.x % 32, *mine = s[threadIdx.x / 32];
    mine[lane] = x[threadIdx.x];
    __syncwarp();
    for (int d = 1; d < 32; d *= 2) {
        int v = lane >= d ? mine[lane - d] : 0;  //!
        BUG(, __syncwarp());
        mine[lane] += v;  //!
        __syncwarp();
    }
    y[threadIdx.x] = mine[lane];
}

// leader_of_the_warp: grid 1, block 64
KERNEL(leader_of_the_warp) {
    __shared__ int base[2];
    int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) base[warp] = x[warp];  //!
    BUG(, __syncwarp());
    y[threadIdx.x] = base[warp] + x[threadIdx.x];  //!
}

// slice_used_again: grid 1, block 32
KERNEL(slice_used_again) {
    __shared__ int s[32];
    int sum = 0;
    for (int t = 0; t < 3; t++) {
        s[threadIdx.x] = x[threadIdx.x] + t;  //!
        __syncwarp();
        sum += s[(threadIdx.x + t) % 32];  //!
        BUG(, __syncwarp());
    }
    y[threadIdx.x] = sum;
}

// active_mask_without_the_leader: grid 1, block 32
KERNEL(active_mask_without_the_leader) {
    if (threadIdx.x >= 4) {
        unsigned active = __activemask();
        y[threadIdx.x] = __shfl_sync(active, x[threadIdx.x], BUG(0, __ffs(active) - 1));  //!
    }
}

// mask_from_before_the_branch: grid 1, block 32
KERNEL(mask_from_before_the_branch) {
    int v = x[threadIdx.x];
    unsigned mask = __ballot_sync(~0u, v > BUG(30, 60));
    if (v > 60) v = __reduce_max_sync(mask, v);  //!
    y[threadIdx.x] = v;
}

// last_warp_is_not_full: grid 1, block 48
KERNEL(last_warp_is_not_full) {
    int full = threadIdx.x < 32, v = x[threadIdx.x];
    unsigned mask = BUG(0xffffffffu, full ? 0xffffffffu : 0xffffu);
    for (int d = BUG(16, full ? 16 : 8); d; d /= 2) v += __shfl_xor_sync(mask, v, d);  //!
    y[threadIdx.x] = v;  //!
}

// tail_of_a_loop_over_lanes: grid 1, block 32, n 40
KERNEL(tail_of_a_loop_over_lanes) {
    for (int i = threadIdx.x; i < BUG(n, 64); i += 32) {
        int sum = __reduce_add_sync(0xffffffffu, i < n ? x[i] : 0);  //!
        if (i < n) y[i] = sum;
    }
}
