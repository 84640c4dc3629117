// Blocks that disturb each other, fences and scopes.
#include "bug.h"
#include <cooperative_groups.h>
#include <cuda/atomic>

// stencil_in_place: grid 4, block 32
KERNEL(stencil_in_place) {
    int i = blockIdx.x * 32 + threadIdx.x;
    int v = x[i];
    y[i] = v;  //!
    if (i > 0) BUG(y[i - 1] = v, (void)v);  //!
}

// reads_a_neighbours_result: grid 4, block 32
KERNEL(reads_a_neighbours_result) {
    int i = blockIdx.x * 32 + threadIdx.x;
    y[i] = x[i];  //!
    if (threadIdx.x == 0 && blockIdx.x > 0) y[i] += BUG(y[i - 1], x[i - 1]);  //!
}

// counter_not_atomic: grid 4, block 32, zero
KERNEL(counter_not_atomic) {
    if (threadIdx.x == 0) BUG(y[0] += x[blockIdx.x], atomicAdd(&y[0], x[blockIdx.x]));  //!
}

// same_element: grid 4, block 32, n 128
KERNEL(same_element) {
    y[BUG(threadIdx.x, blockIdx.x * 32 + threadIdx.x)] = x[blockIdx.x * 32 + threadIdx.x];  //!
}

// published_without_fence: grid 2, block 32, zero
KERNEL(published_without_fence) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[0] = x[0];  //!
        BUG(, __threadfence());
        atomicExch(&y[1], 1);
    } else {
        while (atomicAdd(&y[1], 0) == 0) __nanosleep(20);
        BUG(, __threadfence());
        y[2] = y[0];  //!
    }
}

// consumer_without_fence: grid 2, block 32, zero
KERNEL(consumer_without_fence) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[0] = x[0];  //!
        __threadfence();
        atomicExch(&y[1], 1);
    } else {
        while (atomicAdd(&y[1], 0) == 0) __nanosleep(20);
        BUG(, __threadfence());
        y[2] = y[0];  //!
    }
}

// fence_of_the_block: grid 2, block 32, zero
KERNEL(fence_of_the_block) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[0] = x[0];  //!
        BUG(__threadfence_block(), __threadfence());
        atomicExch(&y[1], 1);
    } else {
        while (atomicAdd(&y[1], 0) == 0) __nanosleep(20);
        BUG(__threadfence_block(), __threadfence());
        y[2] = y[0];  //!
    }
}

// last_block_without_fence: grid 3, block 32, zero
KERNEL(last_block_without_fence) {
    __shared__ bool last;
    int sum = __reduce_add_sync(~0u, x[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x == 0) {
        y[1 + blockIdx.x] = sum;  //!
        BUG(, __threadfence());
        last = atomicAdd(&y[0], 1) == gridDim.x - 1;
    }
    __syncthreads();
    BUG(, __threadfence());
    if (last && threadIdx.x == 0) y[10] = y[1] + y[2] + y[3];  //!
}

// relaxed_flag: grid 2, block 32, zero
KERNEL(relaxed_flag) {
    cuda::atomic_ref<int, cuda::thread_scope_device> flag(y[1]);
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[0] = x[0];  //!
        flag.store(1, BUG(cuda::memory_order_relaxed, cuda::memory_order_release));
    } else {
        while (!flag.load(cuda::memory_order_acquire)) __nanosleep(20);
        y[2] = y[0];  //!
    }
}

// relaxed_reader: grid 2, block 32, zero
KERNEL(relaxed_reader) {
    cuda::atomic_ref<int, cuda::thread_scope_device> flag(y[1]);
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[0] = x[0];  //!
        flag.store(1, cuda::memory_order_release);
    } else {
        while (!flag.load(BUG(cuda::memory_order_relaxed, cuda::memory_order_acquire))) __nanosleep(20);
        y[2] = y[0];  //!
    }
}

// flag_of_block_scope: grid 2, block 32, zero
KERNEL(flag_of_block_scope) {
    cuda::atomic_ref<int, BUG(cuda::thread_scope_block, cuda::thread_scope_device)> flag(y[1]);  //!
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[0] = x[0];  //!
        flag.store(1, cuda::memory_order_release);  //!
    } else {
        while (!flag.load(cuda::memory_order_acquire)) __nanosleep(20);  //!
        y[2] = y[0];  //!
    }
}

// atomic_of_block_scope: grid 4, block 32, zero
KERNEL(atomic_of_block_scope) {
    if (threadIdx.x == 0) BUG(atomicAdd_block(&y[0], x[blockIdx.x]), atomicAdd(&y[0], x[blockIdx.x]));  //!
}

// plain_flag: grid 2, block 32, zero
KERNEL(plain_flag) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        BUG(y[1] = 1, atomicExch(&y[1], 1));  //!
    } else {
        while (atomicAdd(&y[1], 0) == 0) __nanosleep(20);  //!
        y[2] = x[0];
    }
}

// unlocked_too_early: grid 3, block 32, zero
KERNEL(unlocked_too_early) {
    if (threadIdx.x) return;
    while (atomicCAS(&y[1], 0, 1)) __nanosleep(20);
    __threadfence();
    BUG(atomicExch(&y[1], 0), (void)0);
    y[0] += x[blockIdx.x];  //!
    __threadfence();
    BUG((void)0, atomicExch(&y[1], 0));
}

// lock_without_fence: grid 3, block 32, zero
KERNEL(lock_without_fence) {
    if (threadIdx.x) return;
    while (atomicCAS(&y[1], 0, 1)) __nanosleep(20);
    BUG(, __threadfence());
    y[0] += x[blockIdx.x];  //!
    BUG(, __threadfence());
    atomicExch(&y[1], 0);
}

// read_only_data_written: grid 1, block 64, zero
KERNEL(read_only_data_written) {
    y[threadIdx.x] = x[threadIdx.x];  //!
    __syncthreads();
    y[64 + threadIdx.x] = BUG(__ldg(&y[63 - threadIdx.x]), y[63 - threadIdx.x]);  //!
}

// lanes_store_different: grid 1, block 32
KERNEL(lanes_store_different) {
    y[threadIdx.x BUG(/ 2, )] = x[threadIdx.x] + threadIdx.x;  //!
}

// first_come: grid 3, block 32, zero
KERNEL(first_come) {
    if (threadIdx.x) return;
    BUG(if (y[0] == 0) y[0] = blockIdx.x + 1, atomicCAS(&y[0], 0, blockIdx.x + 1));  //!
    y[1 + blockIdx.x] = x[blockIdx.x];
}

// warps_of_a_block: grid 1, block 64, zero
KERNEL(warps_of_a_block) {
    y[threadIdx.x] = x[threadIdx.x];  //!
    BUG(, __syncthreads());
    int v = y[63 - threadIdx.x];  //!
    __syncthreads();
    y[threadIdx.x] = v;  //!
}

// tree_in_global_memory: grid 1, block 64, zero
KERNEL(tree_in_global_memory) {
    y[threadIdx.x] = x[threadIdx.x];  //!
    for (int half = 32; half > 0; half /= 2) {
        BUG(__threadfence(), __syncthreads());
        if (threadIdx.x < half) y[threadIdx.x] += y[threadIdx.x + half];  //!
    }
}
