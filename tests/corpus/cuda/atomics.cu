// Atomics, scopes, locks, queues.
#include <cuda/atomic>

extern "C" __global__ void each_atomic(const int* x, int* y, unsigned* u, unsigned long long* w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&y[0], x[i]), atomicSub(&y[1], x[i]), atomicMin(&y[2], x[i]), atomicMax(&y[3], x[i]);
    atomicAnd(&y[4], ~(1 << (x[i] & 31))), atomicOr(&y[5], 1 << (x[i] & 31)), atomicXor(&y[6], x[i]);
    atomicInc(&u[0], 9u), atomicDec(&u[1], 9u);
    atomicAdd(&w[0], 1ull << 33), atomicMax(&w[1], (unsigned long long)x[i] << 20);
}

extern "C" __global__ void float_atomics(const float* x, float* f, double* d, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(f, x[i]), atomicAdd(d, (double)x[i]), atomicAdd_block(&f[1 + blockIdx.x], x[i]);
}

// The maximum of floats by compare and swap, its first read plain.
__device__ float atomic_max(float* at, float v) {
    int* bits = (int*)at;
    int old = *bits, seen;
    do {
        seen = old;
        if (__int_as_float(seen) >= v) break;
        old = atomicCAS(bits, seen, __float_as_int(v));
    } while (old != seen);
    return __int_as_float(old);
}
extern "C" __global__ void max_by_cas(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomic_max(y, x[i]);
}

// A plain counter behind a lock; one thread of each block takes it.
__device__ int lock_word = 0;
extern "C" __global__ void spin_lock(const int* x, int* sum, int* turns) {
    if (threadIdx.x == 0) {
        while (atomicCAS(&lock_word, 0, 1) != 0) __nanosleep(32);
        __threadfence();
        *sum += x[blockIdx.x];
        *turns += 1;
        __threadfence();
        atomicExch(&lock_word, 0);
    }
}

// The same behind a ticket lock of the library, every thread in turn.
extern "C" __global__ void ticket_lock(unsigned* next, unsigned* serving, int* log, int* length) {
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> tickets(*next), now(*serving);
    for (int t = 0; t < blockDim.x; t++) {
        if (threadIdx.x == t) {
            unsigned mine = tickets.fetch_add(1, cuda::memory_order_relaxed);
            while (now.load(cuda::memory_order_acquire) != mine) __nanosleep(20);
            log[*length] = blockIdx.x * blockDim.x + t;
            *length += 1;
            now.store(mine + 1, cuda::memory_order_release);
        }
        __syncwarp();
    }
}

// Block 0 publishes, the others wait for the flag.
extern "C" __global__ void publish(const int* x, int* data, int* flag, int* y) {
    cuda::atomic_ref<int, cuda::thread_scope_device> ready(*flag);
    if (blockIdx.x == 0) {
        data[threadIdx.x] = x[threadIdx.x] * 2;
        __syncthreads();
        if (threadIdx.x == 0) ready.store(1, cuda::memory_order_release);
    } else {
        if (threadIdx.x == 0)
            while (!ready.load(cuda::memory_order_acquire)) __nanosleep(20);
        __syncthreads();
        y[(blockIdx.x - 1) * blockDim.x + threadIdx.x] = data[threadIdx.x] + blockIdx.x;
    }
}

// Warps of one block hand values on by flags of block scope.
extern "C" __global__ void warp_chain(const int* x, int* y) {
    __shared__ int value[4], ready[4];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x < 4) ready[threadIdx.x] = 0;
    __syncthreads();
    int sum = __reduce_add_sync(~0u, x[threadIdx.x]);
    if (lane == 0) {
        if (warp > 0) {
            cuda::atomic_ref<int, cuda::thread_scope_block> before(ready[warp - 1]);
            while (!before.load(cuda::memory_order_acquire)) __nanosleep(10);
            sum += value[warp - 1];
        }
        value[warp] = sum, y[warp] = sum;
        cuda::atomic_ref<int, cuda::thread_scope_block>(ready[warp]).store(1, cuda::memory_order_release);
    }
}

// A queue of work that threads fill and empty level by level: breadth-first search.
extern "C" __global__ void bfs_level(const int* start, const int* edge, const int* frontier, int size, int* depth, int* next,
                                     int* next_size, int level) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    int v = frontier[i];
    for (int e = start[v]; e < start[v + 1]; e++)
        if (atomicCAS(&depth[edge[e]], -1, level) == -1) next[atomicAdd(next_size, 1)] = edge[e];
}

// A hash table with open addressing.
extern "C" __global__ void hash_insert(const unsigned* keys, unsigned* slots, int* counts, int n, int capacity) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned key = keys[i], at = key * 2654435761u >> 16 & (capacity - 1);
    for (;; at = (at + 1) & (capacity - 1)) {
        unsigned seen = atomicCAS(&slots[at], 0xffffffffu, key);
        if (seen == 0xffffffffu || seen == key) break;
    }
    atomicAdd(&counts[at], 1);
}

// Dekker's kind of test: sequentially consistent fences and a system-scope counter.
extern "C" __global__ void scopes(int* system, int* device, int* block) {
    cuda::atomic_ref<int, cuda::thread_scope_system> s(*system);
    cuda::atomic_ref<int, cuda::thread_scope_device> d(*device);
    cuda::atomic_ref<int, cuda::thread_scope_block> b(block[blockIdx.x]);
    s.fetch_add(1, cuda::memory_order_seq_cst), d.fetch_max(threadIdx.x, cuda::memory_order_acq_rel);
    cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_device);
    b.fetch_xor(threadIdx.x, cuda::memory_order_relaxed);
    int expected = -1;
    b.compare_exchange_strong(expected, 0, cuda::memory_order_acquire);
}
