// Blocks that pass data on: orders of too small a scope, in the wrong place, or of no effect.
#include "bug.h"
#include <cuda/atomic>

// lock_of_block_scope: grid 3, block 32, zero
KERNEL(lock_of_block_scope) {
    cuda::atomic_ref<int, BUG(cuda::thread_scope_block, cuda::thread_scope_device)> lock(y[1]);  //!
    if (threadIdx.x) return;
    while (lock.exchange(1, cuda::memory_order_acquire)) __nanosleep(20);  //!
    y[0] += x[blockIdx.x];  //!
    lock.store(0, cuda::memory_order_release);  //!
}

// last_block_counted_in_block_scope: grid 3, block 32, zero
KERNEL(last_block_counted_in_block_scope) {
    if (threadIdx.x) return;
    y[1 + blockIdx.x] = x[blockIdx.x];  //!
    __threadfence();
    int before = BUG(atomicAdd_block(&y[0], 1), atomicAdd(&y[0], 1));  //!
    __threadfence();
    if (before == gridDim.x - 1) y[10] = y[1] + y[2] + y[3];  //!
}

// volatile_flag: grid 2, block 32, zero
KERNEL(volatile_flag) {
    volatile int* flag = &y[1];
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[0] = x[0];  //!
        BUG(*flag = 1, (__threadfence(), atomicExch(&y[1], 1)));  //!
    } else {
        while (BUG(*flag, atomicAdd(&y[1], 0)) == 0) __nanosleep(20);  //!
        BUG(, __threadfence());
        y[2] = y[0];  //!
    }
}

// volatile_counter: grid 4, block 32, zero
KERNEL(volatile_counter) {
    volatile int* count = &y[0];
    if (threadIdx.x == 0) BUG(*count = *count + 1, atomicAdd(&y[0], 1));  //!
    y[1 + blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x];
}

// fence_after_the_flag: grid 2, block 32, zero
KERNEL(fence_after_the_flag) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[0] = x[0];  //!
        BUG(, __threadfence());
        atomicExch(&y[1], 1);
        BUG(__threadfence(), );
    } else {
        while (atomicAdd(&y[1], 0) == 0) __nanosleep(20);
        __threadfence();
        y[2] = y[0];  //!
    }
}

// leader_publishes_for_all: grid 2, block 64, zero
KERNEL(leader_publishes_for_all) {
    if (blockIdx.x == 0) {
        y[2 + threadIdx.x] = x[threadIdx.x];  //!
        BUG(, __syncthreads());
        if (threadIdx.x == 0) __threadfence(), atomicExch(&y[0], 1);
    } else {
        if (threadIdx.x == 0) {
            while (atomicAdd(&y[0], 0) == 0) __nanosleep(20);
            __threadfence();
        }
        __syncthreads();
        y[66 + threadIdx.x] = y[65 - threadIdx.x];  //!
    }
}

// grid_barrier_used_twice: grid 2, block 32, zero, cooperative, fuel 50000000
KERNEL(grid_barrier_used_twice) {
    if (threadIdx.x) return;
    int other = blockIdx.x ^ 1, v = x[blockIdx.x];
    for (int round = 1; round <= 2; round++) {
        y[4 + blockIdx.x] = v;  //!
        __threadfence();
        atomicAdd(&y[round], 1);
        while (atomicAdd(&y[round], 0) < 2) __nanosleep(20);
        __threadfence();
        v += y[4 + other];  //!
        BUG(, __threadfence(); atomicAdd(&y[round + 6], 1); while (atomicAdd(&y[round + 6], 0) < 2) __nanosleep(20);
            __threadfence());
    }
    y[10 + blockIdx.x] = v;
}

// result_read_before_the_last_block: grid 3, block 32, zero
KERNEL(result_read_before_the_last_block) {
    if (threadIdx.x) return;
    atomicAdd(&y[0], x[blockIdx.x]);  //!
    __threadfence();
    int before = atomicAdd(&y[1], 1);
    __threadfence();
    if (before == BUG(0, gridDim.x - 1)) y[2] = y[0];  //!
}

// order_by_a_relaxed_counter: grid 2, block 32, zero
KERNEL(order_by_a_relaxed_counter) {
    cuda::atomic_ref<int, cuda::thread_scope_device> filled(y[64]);
    if (blockIdx.x == 0) {
        y[threadIdx.x] = x[threadIdx.x];  //!
        filled.fetch_add(1, BUG(cuda::memory_order_relaxed, cuda::memory_order_release));
    } else {
        while (filled.load(cuda::memory_order_acquire) < 32) __nanosleep(20);
        y[65 + threadIdx.x] = y[31 - threadIdx.x];  //!
    }
}
