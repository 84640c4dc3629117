// Indices and addresses beyond what is there.
#include "bug.h"

// one_too_many: grid 2, block 64, n 100
KERNEL(one_too_many) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i BUG(<=, <) n) y[i] = x[i];  //!
}

// no_guard: grid 2, block 64, n 100
KERNEL(no_guard) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (BUG(true, i < n)) y[i] = x[i] * 2;  //!
}

// left_neighbour: grid 1, block 64
KERNEL(left_neighbour) {
    int i = threadIdx.x;
    y[i] = BUG(x[i - 1], i > 0 ? x[i - 1] : 0) + x[i];  //!
}

// right_neighbour: grid 1, block 64
KERNEL(right_neighbour) {
    int i = threadIdx.x;
    y[i] = x[i] + (i + 1 BUG(<=, <) n ? x[i + 1] : 0);  //!
}

// shared_overflow: grid 1, block 64
KERNEL(shared_overflow) {
    __shared__ int s[BUG(60, 64)];
    s[threadIdx.x] = x[threadIdx.x];  //!
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}

// dynamic_shared_too_small: grid 1, block 64, shared 256
KERNEL(dynamic_shared_too_small) {
    extern __shared__ int s[];
    s[threadIdx.x] = x[threadIdx.x];
    s[threadIdx.x + BUG(64, 0)] = x[threadIdx.x] + 1;  //!
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}

// local_overflow: grid 1, block 32
KERNEL(local_overflow) {
    int v[8];
    for (int k = 0; k < 8; k++) v[k] = x[k];
    int at = x[threadIdx.x] % 8;
    for (int k = 0; k < n; k++) v[(at + k) BUG(% 9, % 8)] ^= k;  //!
    y[threadIdx.x] = v[at];
}

// misaligned_vector: grid 1, block 16, n 80
KERNEL(misaligned_vector) {
    const int4* v = (const int4*)(x + BUG(1, 4));
    int4 w = v[threadIdx.x];  //!
    y[threadIdx.x] = w.x + w.y + w.z + w.w;
}

// misaligned_pair: grid 1, block 16, n 80
KERNEL(misaligned_pair) {
    int at = threadIdx.x * BUG(3, 2);
    int2 w = *(const int2*)(x + at);  //!
    y[threadIdx.x] = w.x + w.y;
}

// stride_in_bytes: grid 1, block 64
KERNEL(stride_in_bytes) {
    y[threadIdx.x] = x[threadIdx.x * BUG(sizeof(int), 1)];  //!
}

// product_overflows: grid 1, block 64
KERNEL(product_overflows) {
    BUG(unsigned, unsigned long long) pitch = n << 16, at = (threadIdx.x + pitch) * pitch / pitch;
    y[threadIdx.x] = x[(long long)at - pitch];  //!
}

// vector_tail: grid 1, block 32, n 102
KERNEL(vector_tail) {
    for (int i = threadIdx.x * 4; i < n; i += 128)
        if (BUG(true, i + 4 <= n)) *(int4*)(y + i) = *(const int4*)(x + i);  //!
}

// rows_and_columns: grid 1, block 60
KERNEL(rows_and_columns) {
    int r = threadIdx.x / 10, c = threadIdx.x % 10;
    y[c * 6 + r] = x[BUG(c * 10 + r, r * 10 + c)];  //!
}

__constant__ int lookup[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
// constant_beyond_the_table: grid 1, block 32
KERNEL(constant_beyond_the_table) {
    y[threadIdx.x] = lookup[(threadIdx.x + x[threadIdx.x] * 0) BUG(& 31, & 15)];  //!
}

__device__ int module_table[32];
// module_variable_overflow: grid 1, block 64
KERNEL(module_variable_overflow) {
    if (threadIdx.x < BUG(64, 32)) module_table[threadIdx.x] = 1;  //!
    y[threadIdx.x] = x[threadIdx.x];
}

// other_allocation: grid 1, block 32
KERNEL(other_allocation) {
    long long apart = y - x;
    y[threadIdx.x] = x[threadIdx.x BUG(+ apart + 32, )];  //!
}

// last_block: grid 3, block 32, n 70
KERNEL(last_block) {
    int base = blockIdx.x * blockDim.x;
    int count = BUG(blockDim.x, min((int)blockDim.x, n - base));
    for (int k = threadIdx.x; k < count; k += 32) y[base + k] = x[base + k];  //!
}

// unsigned_wrap: grid 1, block 64
KERNEL(unsigned_wrap) {
    unsigned i = threadIdx.x;
    y[i] = x[BUG(i - 1u, (i + 63u) % 64u)];  //!
}

// null_pointer: grid 1, block 32
KERNEL(null_pointer) {
    const int* p = BUG((const int*)(size_t)(n - 32), x);
    y[threadIdx.x] = p[threadIdx.x];  //!
}
