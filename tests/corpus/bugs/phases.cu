// Phases and counts of mbarriers, stages of asynchronous copies.
#include "bug.h"
#include <cuda_pipeline.h>

#define INIT(bar, count) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory")
#define ARRIVE(bar) asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(bar) : "memory")
#define WAIT(bar, parity)                                                                                             \
    asm volatile("{ .reg .pred p;\nL%=:\nmbarrier.test_wait.parity.shared.b64 p, [%0], %1;\n@!p bra L%=;\n}" ::"r"(bar), \
                 "r"(parity)                                                                                           \
                 : "memory")

// counts_warps_and_all_arrive: grid 1, block 64
KERNEL(counts_warps_and_all_arrive) {
    __shared__ int s[64];
    __shared__ unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) INIT(at, BUG(2, 64));
    __syncthreads();
    s[threadIdx.x] = x[threadIdx.x];  //!
    ARRIVE(at);  //!
    WAIT(at, 0);  //!
    y[threadIdx.x] = s[63 - threadIdx.x];  //!
}

// thread_leaves_without_arriving: grid 1, block 64, n 60, fuel 100000
KERNEL(thread_leaves_without_arriving) {
    __shared__ unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) INIT(at, 64);
    __syncthreads();
    if (BUG(threadIdx.x >= n, false)) return;
    ARRIVE(at);
    WAIT(at, 0);  //!
    if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
}

// one_phase_bit_for_two_stages: grid 1, block 64, fuel 100000
KERNEL(one_phase_bit_for_two_stages) {
    __shared__ int s[2][64];
    __shared__ unsigned long long bars[2];
    unsigned at = (unsigned)__cvta_generic_to_shared(bars);
    if (threadIdx.x < 2) INIT(at + threadIdx.x * 8, 64);
    __syncthreads();
    int v = x[threadIdx.x];
    for (int k = 0; k < 6; k++) {
        int stage = k & 1;
        s[stage][threadIdx.x] = v;  //!
        ARRIVE(at + stage * 8);
        WAIT(at + stage * 8, BUG(k, k / 2) & 1);  //!
        v = s[stage][63 - threadIdx.x] + 1;  //!
        __syncthreads();
    }
    y[threadIdx.x] = v;
}

// initialised_again: grid 1, block 64
KERNEL(initialised_again) {
    __shared__ int s[64];
    __shared__ unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
    int v = x[threadIdx.x];
    BUG(, if (threadIdx.x == 0) INIT(at, 64); __syncthreads());
    for (int k = 0; k < 3; k++) {
        BUG(if (threadIdx.x == 0) INIT(at, 64), );  //!
        BUG(__syncthreads(), );
        s[threadIdx.x] = v;  //!
        ARRIVE(at);  //!
        WAIT(at, BUG(0, k & 1));  //!
        v = s[63 - threadIdx.x];  //!
        __syncthreads();
    }
    y[threadIdx.x] = v;
}

// prefetch_into_the_stage_in_use: grid 1, block 64, n 256
KERNEL(prefetch_into_the_stage_in_use) {
    __shared__ int s[2][64];
    int sum = 0;
    __pipeline_memcpy_async(&s[0][threadIdx.x], &x[threadIdx.x], 4);
    __pipeline_commit();
    for (int t = 0; t < 4; t++) {
        if (t < 3) __pipeline_memcpy_async(&s[(t BUG(, + 1)) & 1][threadIdx.x], &x[(t + 1) * 64 + threadIdx.x], 4);  //!
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        sum += s[t & 1][63 - threadIdx.x];  //!
        __syncthreads();
    }
    y[threadIdx.x] = sum;
}

// no_commit_in_the_last_rounds: grid 1, block 32, n 128
KERNEL(no_commit_in_the_last_rounds) {
    __shared__ int s[2][32];
    int sum = 0;
    __pipeline_memcpy_async(&s[0][threadIdx.x], &x[threadIdx.x], 4);  //!
    __pipeline_commit();
    for (int t = 0; t < 4; t++) {
        if (t < 3) {
            __pipeline_memcpy_async(&s[(t + 1) & 1][threadIdx.x], &x[(t + 1) * 32 + threadIdx.x], 4);  //!
            BUG(__pipeline_commit(), );
        }
        BUG(, __pipeline_commit());
        __pipeline_wait_prior(1);
        sum += s[t & 1][threadIdx.x];  //!
    }
    y[threadIdx.x] = sum;
}

// copy_longer_than_the_row: grid 1, block 8, n 32
KERNEL(copy_longer_than_the_row) {
    __shared__ __align__(16) int s[BUG(31, 32)];
    __pipeline_memcpy_async(&s[threadIdx.x * 4], &x[threadIdx.x * 4], 16);  //!
    __pipeline_commit();
    __pipeline_wait_prior(0);  //!
    y[threadIdx.x] = s[threadIdx.x * 4];
}

// warp_waits_for_the_block: grid 1, block 64
KERNEL(warp_waits_for_the_block) {
    __shared__ __align__(16) int s[64];
    if (threadIdx.x < 16) __pipeline_memcpy_async(&s[threadIdx.x * 4], &x[threadIdx.x * 4], 16);  //!
    __pipeline_commit();
    __pipeline_wait_prior(0);
    BUG(__syncwarp(), __syncthreads());
    y[threadIdx.x] = s[threadIdx.x];  //!
}

// barrier_on_both_sides_of_an_if: grid 1, block 64
KERNEL(barrier_on_both_sides_of_an_if) {
    __shared__ int s[64];
    s[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x BUG(% 2, < 32)) {
        __syncthreads();  //!
        y[threadIdx.x] = s[63 - threadIdx.x];
    } else {
        __syncthreads();  //!
        y[threadIdx.x] = -s[63 - threadIdx.x];
    }
}

// rounds_of_the_longest_thread: grid 1, block 64
KERNEL(rounds_of_the_longest_thread) {
    int rounds = x[threadIdx.x] % 4, more = 0;
    BUG(, rounds = 4);
    for (int k = 0; k < rounds; k++) more += __syncthreads_count(x[threadIdx.x] > k * 20);  //!
    y[threadIdx.x] = more;
}
