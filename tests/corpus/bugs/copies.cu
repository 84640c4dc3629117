// Asynchronous copies of sm_80, and mbarriers.
#include "bug.h"
#include <cuda_pipeline.h>

#define INIT(bar, count) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory")
#define ARRIVE(bar) asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(bar) : "memory")
#define WAIT(bar, parity)                                                                                             \
    asm volatile("{ .reg .pred p;\nL%=:\nmbarrier.test_wait.parity.shared.b64 p, [%0], %1;\n@!p bra L%=;\n}" ::"r"(bar), \
                 "r"(parity)                                                                                           \
                 : "memory")

// no_wait: grid 1, block 32
KERNEL(no_wait) {
    __shared__ int s[32];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);  //!
    __pipeline_commit();
    BUG(, __pipeline_wait_prior(0));
    y[threadIdx.x] = s[threadIdx.x];  //!
}

// no_barrier_after_wait: grid 1, block 64
KERNEL(no_barrier_after_wait) {
    __shared__ int s[64];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);  //!
    __pipeline_commit();
    __pipeline_wait_prior(0);
    BUG(, __syncthreads());
    y[threadIdx.x] = s[63 - threadIdx.x];  //!
}

// waits_for_the_older_one: grid 1, block 32
KERNEL(waits_for_the_older_one) {
    __shared__ int s[2][32];
    for (int k = 0; k < 2; k++) {
        __pipeline_memcpy_async(&s[k][threadIdx.x], &x[threadIdx.x], 4);  //!
        __pipeline_commit();
    }
    __pipeline_wait_prior(BUG(1, 0));
    y[threadIdx.x] = s[1][threadIdx.x];  //!
}

// barrier_before_wait: grid 1, block 64
KERNEL(barrier_before_wait) {
    __shared__ int s[64];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);  //!
    __pipeline_commit();
    BUG(__syncthreads(), (void)0);
    __pipeline_wait_prior(0);
    BUG((void)0, __syncthreads());
    y[threadIdx.x] = s[63 - threadIdx.x];  //!
}

// overwritten_while_read: grid 1, block 64
KERNEL(overwritten_while_read) {
    __shared__ int s[64];
    int sum = 0;
    for (int t = 0; t < 3; t++) {
        __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);  //!
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        sum += s[63 - threadIdx.x] * t;  //!
        BUG(, __syncthreads());
    }
    y[threadIdx.x] = sum;
}

// store_into_the_destination: grid 1, block 32
KERNEL(store_into_the_destination) {
    __shared__ int s[32];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);  //!
    BUG(s[threadIdx.x] = 7, (void)0);  //!
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[threadIdx.x];
}

// never_waited_for: grid 1, block 32
KERNEL(never_waited_for) {
    __shared__ int s[32];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);  //!
    __pipeline_commit();
    BUG(, __pipeline_wait_prior(0));
    y[threadIdx.x] = x[threadIdx.x];
}

// copy_beyond_the_end: grid 1, block 32
KERNEL(copy_beyond_the_end) {
    __shared__ int s[32];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x BUG(+ 1, )], 4);  //!
    __pipeline_commit();
    __pipeline_wait_prior(0);  //!
    y[threadIdx.x] = s[threadIdx.x];
}

// copy_misaligned: grid 1, block 8, n 64
KERNEL(copy_misaligned) {
    __shared__ __align__(16) int s[32];
    __pipeline_memcpy_async(&s[threadIdx.x * 4], &x[threadIdx.x * 4 BUG(+ 1, )], 16);  //!
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[threadIdx.x * 4];
}

// mbarrier_not_initialised: grid 1, block 32
KERNEL(mbarrier_not_initialised) {
    __shared__ unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
    BUG(, if (threadIdx.x == 0) INIT(at, 32));
    __syncthreads();
    ARRIVE(at);  //!
    WAIT(at, 0);
    y[threadIdx.x] = x[threadIdx.x];
}

// mbarrier_used_too_early: grid 1, block 64
KERNEL(mbarrier_used_too_early) {
    __shared__ unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) INIT(at, 64);  //!
    BUG(, __syncthreads());
    ARRIVE(at);  //!
    WAIT(at, 0);
    y[threadIdx.x] = x[threadIdx.x];
}

// one_arrival_too_few: grid 1, block 64, fuel 100000
KERNEL(one_arrival_too_few) {
    __shared__ unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) INIT(at, BUG(65, 64));
    __syncthreads();
    ARRIVE(at);
    WAIT(at, 0);  //!
    y[threadIdx.x] = x[threadIdx.x];
}

// one_arrival_too_many: grid 1, block 64
KERNEL(one_arrival_too_many) {
    __shared__ unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) INIT(at, BUG(63, 64));
    __syncthreads();
    ARRIVE(at);  //!
    WAIT(at, 0);  //!
    y[threadIdx.x] = x[threadIdx.x];
}

// other_parity: grid 1, block 64
KERNEL(other_parity) {
    __shared__ int s[64];
    __shared__ unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) INIT(at, 64);
    __syncthreads();
    s[threadIdx.x] = x[threadIdx.x];  //!
    ARRIVE(at);
    WAIT(at, BUG(1, 0));  //!
    y[threadIdx.x] = s[63 - threadIdx.x];  //!
}

// parity_not_toggled: grid 1, block 64
KERNEL(parity_not_toggled) {
    __shared__ int s[64];
    __shared__ unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) INIT(at, 64);
    __syncthreads();
    int v = x[threadIdx.x];
    for (int k = 0; k < 4; k++) {
        s[threadIdx.x] = v;  //!
        ARRIVE(at);  //!
        WAIT(at, BUG(0, k & 1));  //!
        v = s[63 - threadIdx.x] + 1;  //!
        __syncthreads();
    }
    y[threadIdx.x] = v;
}

// arrival_before_the_store: grid 1, block 64
KERNEL(arrival_before_the_store) {
    __shared__ int s[64];
    __shared__ unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) INIT(at, 64);
    __syncthreads();
    BUG(ARRIVE(at), (void)0);
    s[threadIdx.x] = x[threadIdx.x];  //!
    BUG((void)0, ARRIVE(at));
    WAIT(at, 0);
    y[threadIdx.x] = s[63 - threadIdx.x];  //!
}
