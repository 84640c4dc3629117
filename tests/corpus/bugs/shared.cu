// Mistakes with shared memory. Each kernel: name, launch; BUG(a, b) is a with the mistake and b without.
#include "bug.h"

// missing_barrier: grid 1, block 64
KERNEL(missing_barrier) {
    __shared__ int s[64];
    s[threadIdx.x] = x[threadIdx.x];  //!
    BUG(, __syncthreads());
    y[threadIdx.x] = s[63 - threadIdx.x];  //!
}

// tile_reused_too_early: grid 1, block 64
KERNEL(tile_reused_too_early) {
    __shared__ int s[64];
    int sum = 0;
    for (int t = 0; t < 4; t++) {
        s[threadIdx.x] = x[threadIdx.x] * t;  //!
        __syncthreads();
        for (int k = 0; k < 64; k++) sum += s[k] * k;  //!
        BUG(, __syncthreads());
    }
    y[threadIdx.x] = sum;
}

// reduction_without_barrier: grid 1, block 128
KERNEL(reduction_without_barrier) {
    __shared__ int s[128];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];  //!
        BUG(, __syncthreads());
    }
    if (threadIdx.x == 0) y[0] = s[0];
}

// last_warp_without_syncwarp: grid 1, block 64
KERNEL(last_warp_without_syncwarp) {
    __shared__ int s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) {
        int v = s[threadIdx.x];
        for (int half = 32; half > 0; half /= 2) {
            v += s[threadIdx.x + half];  //!
            BUG(, __syncwarp());
            s[threadIdx.x] = v;  //!
            BUG(, __syncwarp());
        }
        if (threadIdx.x == 0) y[0] = v;
    }
}

// last_warp_volatile: grid 1, block 64
KERNEL(last_warp_volatile) {
    __shared__ int s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) {
        volatile int* v = s;
        int sum = v[threadIdx.x];
        for (int half = 32; half > 0; half /= 2) {
            sum += v[threadIdx.x + half];  //!
            BUG(, __syncwarp());
            v[threadIdx.x] = sum;  //!
            BUG(, __syncwarp());
        }
        if (threadIdx.x == 0) y[0] = sum;
    }
}

// scan_in_place: grid 1, block 128
KERNEL(scan_in_place) {
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int d = 1; d < 128; d *= 2) {
        int v = t >= d ? s[t - d] : 0;  //!
        BUG(, __syncthreads());
        s[t] += v;  //!
        __syncthreads();
    }
    y[t] = s[t];
}

// same_stage_of_two: grid 1, block 64
KERNEL(same_stage_of_two) {
    __shared__ int s[2][64];
    int sum = 0;
    s[0][threadIdx.x] = x[threadIdx.x];
    for (int t = 0; t < 3; t++) {
        __syncthreads();
        s[BUG(t, t + 1) & 1][threadIdx.x] = x[threadIdx.x] + t;  //!
        sum += s[t & 1][63 - threadIdx.x];  //!
    }
    y[threadIdx.x] = sum;
}

// histogram_not_atomic: grid 1, block 64
KERNEL(histogram_not_atomic) {
    __shared__ int bins[8];
    if (threadIdx.x < 8) bins[threadIdx.x] = 0;
    __syncthreads();
    BUG(bins[x[threadIdx.x] & 7]++, atomicAdd(&bins[x[threadIdx.x] & 7], 1));  //!
    __syncthreads();
    if (threadIdx.x < 8) y[threadIdx.x] = bins[threadIdx.x];
}

// zeroed_too_late: grid 1, block 64
KERNEL(zeroed_too_late) {
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;  //!
    BUG(, __syncthreads());
    atomicAdd(&total, x[threadIdx.x]);  //!
    __syncthreads();
    if (threadIdx.x == 0) y[0] = total;
}

// broadcast_without_barrier: grid 1, block 96
KERNEL(broadcast_without_barrier) {
    __shared__ int pivot;
    if (threadIdx.x == 0) pivot = x[n / 2];  //!
    BUG(__syncwarp(), __syncthreads());
    y[threadIdx.x] = x[threadIdx.x] > pivot;  //!
}

// parts_overlap: grid 1, block 64, shared 1024
KERNEL(parts_overlap) {
    extern __shared__ int s[];
    int *a = s, *b = s + BUG(32, 64);
    a[threadIdx.x] = x[threadIdx.x];  //!
    b[threadIdx.x] = x[threadIdx.x] * 2;  //!
    __syncthreads();
    y[threadIdx.x] = a[63 - threadIdx.x] + b[63 - threadIdx.x];
}

// barrier_of_the_wrong_half: grid 1, block 128
KERNEL(barrier_of_the_wrong_half) {
    __shared__ int s[128];
    int half = threadIdx.x / 64;
    s[threadIdx.x] = x[threadIdx.x];  //!
    asm volatile("bar.sync %0, 64;" ::"r"(1 + half) : "memory");
    y[threadIdx.x] = s[threadIdx.x ^ BUG(64, 32)];  //!
}

// syncwarp_of_half: grid 1, block 32
KERNEL(syncwarp_of_half) {
    __shared__ int s[32];
    s[threadIdx.x] = x[threadIdx.x];  //!
    if (threadIdx.x < 16) __syncwarp(BUG(0x00ff, 0xffff) | (1u << threadIdx.x));  //!
    __syncwarp(0xffffffffu);
    y[threadIdx.x] = s[threadIdx.x ^ 15];
}

// column_and_row: grid 1, block 256
KERNEL(column_and_row) {
    __shared__ int s[16][16];
    int r = threadIdx.x / 16, c = threadIdx.x % 16;
    s[r][c] = x[threadIdx.x];  //!
    BUG(__syncwarp(), __syncthreads());
    y[threadIdx.x] = s[c][r];  //!
}

// halo_without_barrier: grid 1, block 64
KERNEL(halo_without_barrier) {
    __shared__ int s[66];
    s[threadIdx.x + 1] = x[threadIdx.x];  //!
    if (threadIdx.x == 0) s[0] = 0, s[65] = 0;
    BUG(if (threadIdx.x < 32) __syncwarp(), __syncthreads());
    y[threadIdx.x] = s[threadIdx.x] + s[threadIdx.x + 2];  //!
}

// warp_sums_read_too_early: grid 1, block 128
KERNEL(warp_sums_read_too_early) {
    __shared__ int sums[4];
    int sum = __reduce_add_sync(~0u, x[threadIdx.x]);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;  //!
    BUG(, __syncthreads());
    if (threadIdx.x == 0) y[0] = sums[0] + sums[1] + sums[2] + sums[3];  //!
}

// flag_without_order: grid 1, block 64
KERNEL(flag_without_order) {
    __shared__ int data, ready;
    if (threadIdx.x == 0) ready = 0;
    __syncthreads();
    if (threadIdx.x == 32) {
        data = x[5];  //!
        BUG(, __threadfence_block());
        atomicExch(&ready, 1);
    }
    if (threadIdx.x == 0) {
        while (atomicAdd(&ready, 0) == 0) __nanosleep(20);
        BUG(, __threadfence_block());
        y[0] = data;  //!
    }
}
