// Warps, barriers in divergent code, programs that do not end.
#include "bug.h"

// shuffle_in_a_branch: grid 1, block 32
KERNEL(shuffle_in_a_branch) {
    int v = x[threadIdx.x];
    if (threadIdx.x < 16) v += __shfl_xor_sync(BUG(0xffffffffu, 0xffffu), v, 1);  //!
    y[threadIdx.x] = v;
}

// shuffle_after_exit: grid 1, block 32
KERNEL(shuffle_after_exit) {
    if (threadIdx.x >= 20) return;
    y[threadIdx.x] = __shfl_sync(BUG(0xffffffffu, 0xfffffu), x[threadIdx.x], 0);  //!
}

// shuffle_from_outside: grid 1, block 32
KERNEL(shuffle_from_outside) {
    int v = x[threadIdx.x];
    if (threadIdx.x < 16) v = __shfl_sync(0xffffu, v, BUG(20, 10));  //!
    y[threadIdx.x] = v;  //!
}

// ballot_of_half: grid 1, block 32
KERNEL(ballot_of_half) {
    y[threadIdx.x] = __ballot_sync(BUG(0xffffu, 0xffffffffu), x[threadIdx.x] > 50);  //!
}

// vote_in_a_loop: grid 1, block 32
KERNEL(vote_in_a_loop) {
    int rounds = 0;
    for (int k = 0; k < BUG(x[threadIdx.x] % 5, 5); k++) rounds += __any_sync(0xffffffffu, x[k] > 10);  //!
    y[threadIdx.x] = rounds;
}

// match_with_the_wrong_mask: grid 1, block 32
KERNEL(match_with_the_wrong_mask) {
    if (threadIdx.x < 24) y[threadIdx.x] = __match_any_sync(BUG(0xffffffffu, 0xffffffu), x[threadIdx.x] & 3);  //!
}

// reduce_with_the_wrong_mask: grid 1, block 32
KERNEL(reduce_with_the_wrong_mask) {
    if (threadIdx.x & 1) y[threadIdx.x] = __reduce_add_sync(BUG(0x55555555u, 0xaaaaaaaau), x[threadIdx.x]);  //!
}

// syncwarp_in_a_branch: grid 1, block 32
KERNEL(syncwarp_in_a_branch) {
    if (x[threadIdx.x] > 50) {
        BUG(__syncwarp(), __syncwarp(__activemask()));  //!
        y[threadIdx.x] = 1;
    }
}

// barrier_in_a_branch: grid 1, block 64
KERNEL(barrier_in_a_branch) {
    if (x[threadIdx.x] > 50) {
        y[threadIdx.x] = 1;
        BUG(__syncthreads(), (void)0);  //!
    }
}

// barrier_of_one_warp: grid 1, block 96
KERNEL(barrier_of_one_warp) {
    if (threadIdx.x < 32) {
        y[threadIdx.x] = x[threadIdx.x];
        BUG(__syncthreads(), __syncwarp());  //!
    }
    __syncthreads();  //!
}

// barrier_after_exit: grid 1, block 64, n 50
KERNEL(barrier_after_exit) {
    __shared__ int s[64];
    if (BUG(threadIdx.x >= n, false)) return;
    s[threadIdx.x] = threadIdx.x < n ? x[threadIdx.x] : 0;
    __syncthreads();  //!
    if (threadIdx.x < n) y[threadIdx.x] = s[n - 1 - threadIdx.x];
}

// barrier_in_a_loop: grid 1, block 64
KERNEL(barrier_in_a_loop) {
    int sum = 0;
    for (int k = 0; k < BUG(1 + threadIdx.x / 32, 2); k++) {
        sum += x[k];
        __syncthreads();  //!
    }
    __syncthreads();  //!
    y[threadIdx.x] = sum;
}

// two_barriers_of_one_number: grid 1, block 64
KERNEL(two_barriers_of_one_number) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");  //!
    else asm volatile("bar.sync " BUG("2", "1") ", 64;" ::: "memory");  //!
    y[threadIdx.x] = x[threadIdx.x];
}

// count_that_never_comes: grid 1, block 64
KERNEL(count_that_never_comes) {
    asm volatile("bar.sync 1, " BUG("96", "64") ";" ::: "memory");  //!
    y[threadIdx.x] = x[threadIdx.x];
}

// waits_for_ever: grid 2, block 32, zero, fuel 100000
KERNEL(waits_for_ever) {
    if (threadIdx.x == 0 && blockIdx.x == 1) {
        while (atomicAdd(&y[0], 0) != BUG(2, 1)) __nanosleep(20);  //!
    } else if (threadIdx.x == 0) {
        atomicAdd(&y[0], 1);  //!
    }
    y[1 + blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x];
}

// loop_without_progress: grid 1, block 32, fuel 100000
KERNEL(loop_without_progress) {
    int low = 0, high = n;
    while (low < high) {  //!
        int mid = (low + high) / 2;  //!
        if (mid * mid <= n) low = mid BUG(, + 1);  //!
        else high = mid;  //!
    }
    y[threadIdx.x] = low + x[0];
}

// trapped: grid 1, block 32
KERNEL(trapped) {
    if (x[threadIdx.x] BUG(>= 0, < 0)) __trap();  //!
    y[threadIdx.x] = x[threadIdx.x];
}

// arrive_without_sync: grid 1, block 64
KERNEL(arrive_without_sync) {
    __shared__ int s;
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) s = x[0];  //!
        asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else {
        BUG(asm volatile("bar.arrive 1, 64;" ::: "memory"), asm volatile("bar.sync 1, 64;" ::: "memory"));
        y[threadIdx.x] = s;  //!
    }
}
