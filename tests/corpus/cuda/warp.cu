// What the lanes of a warp do together.

extern "C" __global__ void shuffles(const int* x, int* down, int* up, int* exchanged, int* given, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = x[i];
    down[i] = __shfl_down_sync(0xffffffffu, v, 3, 8), up[i] = __shfl_up_sync(0xffffffffu, v, 5);
    exchanged[i] = __shfl_xor_sync(0xffffffffu, v, 17), given[i] = __shfl_sync(0xffffffffu, v, v & 31, 16);
}

extern "C" __global__ void shuffle_wide(const double* x, double* y, const long long* a, long long* b) {
    int i = threadIdx.x;
    y[i] = __shfl_xor_sync(~0u, x[i], 1) + __shfl_down_sync(~0u, x[i], 2);
    b[i] = __shfl_sync(~0u, a[i], 31 - (i & 31));
}

extern "C" __global__ void votes(const int* x, unsigned* ballot, int* all, int* any, int* uniform) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    unsigned b = __ballot_sync(~0u, x[i] > 0);
    int a = __all_sync(~0u, x[i] > -50), o = __any_sync(~0u, x[i] > 95);
    int u = 0;
    __match_all_sync(~0u, x[i] / 200, &u);
    if (lane == 0) ballot[i / 32] = b, all[i / 32] = a, any[i / 32] = o, uniform[i / 32] = u;
}

// Lanes of odd warps work in two groups with masks of their own.
extern "C" __global__ void divergent_groups(const int* x, int* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i];
    unsigned even = __ballot_sync(~0u, (v & 1) == 0);
    if ((v & 1) == 0) {
        int first = __shfl_sync(even, v, __ffs(even) - 1);
        y[i] = __reduce_add_sync(even, v) * 1000 + first;
    } else {
        y[i] = __reduce_max_sync(~even, v);
    }
}

// One atomic for the lanes that want a place.
extern "C" __global__ void aggregated(const int* x, int* out, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || x[i] % 3) return;
    unsigned mask = __activemask();
    int leader = __ffs(mask) - 1, lane = threadIdx.x & 31, base;
    if (lane == leader) base = atomicAdd(count, __popc(mask));
    base = __shfl_sync(mask, base, leader);
    out[base + __popc(mask & ((1u << lane) - 1))] = x[i];
}

// 32 numbers sorted in registers.
extern "C" __global__ void warp_sort(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    float v = x[i];
    for (int size = 2; size <= 32; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            float other = __shfl_xor_sync(~0u, v, stride);
            bool low = (lane & stride) == 0, ascending = (lane & size) == 0;
            v = low == ascending ? fminf(v, other) : fmaxf(v, other);
        }
    y[i] = v;
}

// Lanes pass values through shared memory with __syncwarp between.
extern "C" __global__ void through_shared(const int* x, int* y) {
    __shared__ int s[2][32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    s[warp][lane] = x[threadIdx.x];
    __syncwarp();
    int v = s[warp][(lane * 5) & 31];
    __syncwarp();
    s[warp][lane] = v * 2;
    __syncwarp();
    y[threadIdx.x] = s[warp][31 - lane];
}

// Polymorphic reductions by value of a key.
extern "C" __global__ void sum_by_key(const int* key, const unsigned* value, unsigned* total) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned peers = __match_any_sync(~0u, key[i]), sum = 0;
    for (unsigned rest = ~0u; rest;) {
        int lane = __ffs(rest) - 1;
        unsigned v = __shfl_sync(~0u, value[i], lane);
        if (peers >> lane & 1) sum += v;
        rest &= rest - 1;
    }
    if ((threadIdx.x & 31) == __ffs(peers) - 1) atomicAdd(&total[key[i]], sum);
}
