// What nobody has written.
#include "bug.h"

// shared_half_filled: grid 1, block 64
KERNEL(shared_half_filled) {
    __shared__ int s[64];
    if (threadIdx.x < BUG(32, 64)) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];  //!
}

// shared_halo_not_filled: grid 1, block 64
KERNEL(shared_halo_not_filled) {
    __shared__ int s[66];
    s[threadIdx.x + 1] = x[threadIdx.x];
    if (threadIdx.x == 0) s[0] = 0;
    if (threadIdx.x == BUG(64, 63)) s[65] = 0;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x] + s[threadIdx.x + 2];  //!
}

// local_partly_filled: grid 1, block 32
KERNEL(local_partly_filled) {
    int v[8];
    for (int k = 0; k < BUG(x[threadIdx.x] % 8, 8); k++) v[k] = k;
    int sum = 0;
    for (int k = 0; k < 8; k++) sum += v[(k + x[threadIdx.x]) & 7];  //!
    y[threadIdx.x] = sum;
}

// accumulates_into_nothing: grid 1, block 64
KERNEL(accumulates_into_nothing) {
    y[threadIdx.x] BUG(+=, =) x[threadIdx.x];  //!
}

// atomic_into_nothing: grid 1, block 64
KERNEL(atomic_into_nothing) {
    BUG(, if (threadIdx.x == 0) y[0] = 0);
    __syncthreads();
    atomicAdd(&y[0], x[threadIdx.x]);  //!
}

// max_of_nothing: grid 1, block 64
KERNEL(max_of_nothing) {
    BUG(, if (threadIdx.x == 0) y[0] = -1);
    __syncthreads();
    if (threadIdx.x < 32) atomicMax(&y[0], x[threadIdx.x]);  //!
}

// shared_counter_not_set: grid 1, block 64
KERNEL(shared_counter_not_set) {
    __shared__ int count;
    BUG(, if (threadIdx.x == 0) count = 0);
    __syncthreads();
    int place = atomicAdd(&count, 1);  //!
    y[place & 63] = x[threadIdx.x];
}

// register_set_in_one_branch: grid 1, block 64
KERNEL(register_set_in_one_branch) {
    int v;
    BUG(, v = 0);
    if (x[threadIdx.x] > 50) asm volatile("mov.u32 %0, 7;" : "=r"(v));
    asm volatile("add.s32 %0, %0, 1;" : "+r"(v));  //!
    y[threadIdx.x] = v;
}

// output_read_back: grid 1, block 64
KERNEL(output_read_back) {
    if (threadIdx.x BUG(& 1, < 64)) y[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    int v = y[threadIdx.x ^ 1];  //!
    __syncthreads();
    y[threadIdx.x] = v;
}

// struct_padding_aside: grid 1, block 32
KERNEL(struct_padding_aside) {
    struct { int a, b, c; } v[2];
    v[0].a = x[0], v[0].b = x[1], v[0].c = x[2];
    v[1].a = x[3], v[1].b = x[4];
    BUG(, v[1].c = x[5]);
    int which = x[threadIdx.x] & 1;
    y[threadIdx.x] = v[which].a + v[which].c;  //!
}
