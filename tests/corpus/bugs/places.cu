// Pointers: neighbours, alignment, the heap, frames that are gone.
#include "bug.h"
#include <cstdio>

__device__ int first_table[32], second_table[32];
// neighbouring_tables: grid 1, block 32
KERNEL(neighbouring_tables) {
    first_table[threadIdx.x] = x[threadIdx.x];
    second_table[threadIdx.x] = x[threadIdx.x] + 1;
    y[threadIdx.x] = first_table[threadIdx.x BUG(+ 32, )];  //!
}

// neighbouring_shared_arrays: grid 1, block 32
KERNEL(neighbouring_shared_arrays) {
    __shared__ int a[32], b[32];
    a[threadIdx.x] = x[threadIdx.x];
    b[threadIdx.x] = x[threadIdx.x] + 1;
    __syncwarp();
    y[threadIdx.x] = a[threadIdx.x BUG(+ 1, )] + b[31 - threadIdx.x];  //!
}

// neighbouring_local_arrays: grid 1, block 32
KERNEL(neighbouring_local_arrays) {
    int a[8], b[8];
    for (int k = 0; k < 8; k++) a[k] = x[k], b[k] = x[8 + k];
    int at = x[threadIdx.x] % 8;
    a[at BUG(+ 1, )]++;  //!
    b[at] += 2;
    y[threadIdx.x] = a[x[0] % 8] + b[x[1] % 8] + a[at];
}

struct Node { int key[4]; int next; };
// member_behind_the_array: grid 1, block 32
KERNEL(member_behind_the_array) {
    __shared__ Node nodes[32];
    Node& mine = nodes[threadIdx.x];
    mine.next = threadIdx.x;
    for (int k = 0; k BUG(<=, <) 4; k++) mine.key[k] = x[threadIdx.x] + k;  //!
    y[threadIdx.x] = mine.next + mine.key[0];
}

// misaligned_double: grid 1, block 16, n 64
KERNEL(misaligned_double) {
    const double* d = (const double*)(x + BUG(1, 2));
    y[threadIdx.x] = __double2int_rn(d[threadIdx.x] * 0.0);  //!
}

// misaligned_part_of_shared_memory: grid 1, block 32, shared 1024
KERNEL(misaligned_part_of_shared_memory) {
    extern __shared__ __align__(16) char bytes[];
    int* counts = (int*)bytes;
    int4* rows = (int4*)(bytes + BUG(33, 36) * sizeof(int));
    counts[threadIdx.x] = x[threadIdx.x];
    rows[threadIdx.x] = make_int4(x[threadIdx.x], 1, 2, 3);  //!
    y[threadIdx.x] = counts[threadIdx.x] + rows[threadIdx.x].x;
}

// misaligned_atomic: grid 1, block 8, n 64, zero
KERNEL(misaligned_atomic) {
    atomicAdd((unsigned long long*)(y + 2 * threadIdx.x BUG(+ 1, )), 1ull);  //!
    y[40 + threadIdx.x] = x[threadIdx.x];
}

// recursion_without_end: grid 1, block 32, n 32
__device__ __noinline__ int depth(const int* x, int n) {
    int v[4] = {x[0], x[1], x[2], x[3]};
    v[n & 3] += n;
    if (n == 0) return v[0];
    return depth(x, n - 1) + v[x[4] & 3];  //!
}
KERNEL(recursion_without_end) {
    y[threadIdx.x] = depth(x, threadIdx.x BUG(- 1, % 4));  //!
}

// used_after_free: grid 1, block 8
KERNEL(used_after_free) {
    int* p = (int*)malloc(4 * sizeof(int));
    if (!p) return;
    p[0] = x[threadIdx.x];
    BUG(free(p), (void)0);
    y[threadIdx.x] = *(volatile int*)p;  //!
    BUG((void)0, free(p));
}

// freed_twice: grid 1, block 8
KERNEL(freed_twice) {
    int* p = (int*)malloc(16);
    if (!p) return;
    p[0] = x[threadIdx.x];
    y[threadIdx.x] = p[0];
    free(p);
    BUG(free(p), (void)0);  //!
}

// heap_overflow: grid 1, block 8
KERNEL(heap_overflow) {
    int* p = (int*)malloc(x[8 % n] % 1 * 4 + 16);
    if (!p) return;
    for (int k = 0; k BUG(<= , <) 4; k++) ((volatile int*)p)[k] = k;  //!
    y[threadIdx.x] = ((volatile int*)p)[x[threadIdx.x] & 3];
    free(p);
}

// malloc_that_fails: grid 1, block 8
KERNEL(malloc_that_fails) {
    int* p = (int*)malloc((size_t)n << 40);
    BUG(, if (!p) return);
    p[0] = x[threadIdx.x];  //!
    y[threadIdx.x] = p[0];
    free(p);
}

__device__ __noinline__ int* frame_of(int v) {
    int local[4];
    local[v & 3] = v;
    asm volatile("" ::"l"(local) : "memory");
    return &local[v & 3];
}
// frame_that_is_gone: grid 1, block 32
KERNEL(frame_that_is_gone) {
    int own = x[threadIdx.x];
    int* p = BUG(frame_of(own), &own);
    asm volatile("" : "+l"(p));
    y[threadIdx.x] = *(volatile int*)p;  //!
}

// local_of_another_thread: grid 1, block 32
KERNEL(local_of_another_thread) {
    __shared__ int* where;
    int own[2] = {x[threadIdx.x], x[0]};
    __shared__ int copy;
    if (threadIdx.x == 3) copy = own[0], where = BUG(own, &copy);
    __syncthreads();
    y[threadIdx.x] = *(volatile int*)where + own[x[1] & 1];  //!
}

// printed_pointer: grid 1, block 1, n 32
KERNEL(printed_pointer) {
    const char* name = BUG((const char*)(size_t)x[threadIdx.x], "thread");
    printf("%s\n", name);  //!
    y[threadIdx.x] = x[threadIdx.x];
}

// printed_local_buffer: grid 1, block 1, n 32
KERNEL(printed_local_buffer) {
    char name[16];
    for (int k = 0; k < BUG(4, 3); k++) name[k] = 'a' + x[k] % 26;
    BUG(, name[3] = 0);
    printf("%s\n", name);  //!
    y[threadIdx.x] = x[threadIdx.x];
}
