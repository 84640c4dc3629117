// Prefix sums: Hillis and Steele, Blelloch, shuffles, decoupled look-back, segments, compaction.

extern "C" __global__ void scan_hillis(const int* x, int* y, int n) {
    extern __shared__ int s[];
    int t = threadIdx.x, from = 0, to = 1;
    s[t] = t < n ? x[t] : 0;
    __syncthreads();
    for (int offset = 1; offset < blockDim.x; offset <<= 1) {
        s[to * blockDim.x + t] = s[from * blockDim.x + t] + (t >= offset ? s[from * blockDim.x + t - offset] : 0);
        from ^= 1, to ^= 1;
        __syncthreads();
    }
    if (t < n) y[t] = s[from * blockDim.x + t];
}

#define PADDED(i) ((i) + ((i) >> 5))

// Exclusive, work-efficient, two elements a thread, padded against bank conflicts.
extern "C" __global__ void scan_blelloch(const float* x, float* y, int n) {
    __shared__ float s[PADDED(512)];
    int t = threadIdx.x, offset = 1;
    s[PADDED(2 * t)] = 2 * t < n ? x[2 * t] : 0.0f;
    s[PADDED(2 * t + 1)] = 2 * t + 1 < n ? x[2 * t + 1] : 0.0f;
    for (int d = 256; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) {
            int a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1;
            s[PADDED(b)] += s[PADDED(a)];
        }
        offset *= 2;
    }
    if (t == 0) s[PADDED(511)] = 0.0f;
    for (int d = 1; d < 512; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            int a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1;
            float v = s[PADDED(a)];
            s[PADDED(a)] = s[PADDED(b)];
            s[PADDED(b)] += v;
        }
    }
    __syncthreads();
    if (2 * t < n) y[2 * t] = s[PADDED(2 * t)];
    if (2 * t + 1 < n) y[2 * t + 1] = s[PADDED(2 * t + 1)];
}

__device__ __forceinline__ int warp_scan(int v) {
    int lane = threadIdx.x & 31;
    for (int offset = 1; offset < 32; offset *= 2) {
        int below = __shfl_up_sync(0xffffffffu, v, offset);
        if (lane >= offset) v += below;
    }
    return v;
}

__device__ int block_scan(int v, int* warps) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    v = warp_scan(v);
    if (lane == 31) warps[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int w = lane < (blockDim.x >> 5) ? warps[lane] : 0;
        w = warp_scan(w);
        if (lane < (blockDim.x >> 5)) warps[lane] = w;
    }
    __syncthreads();
    return v + (warp > 0 ? warps[warp - 1] : 0);
}

// One launch for the whole array: each block waits for the inclusive sum of the block before it.
extern "C" __global__ void scan_chained(const int* x, int* y, unsigned long long* state, unsigned* ticket, int n) {
    __shared__ int warps[32];
    __shared__ int before;
    __shared__ unsigned tile;
    if (threadIdx.x == 0) tile = atomicAdd(ticket, 1u);
    __syncthreads();
    int i = tile * blockDim.x + threadIdx.x;
    int v = block_scan(i < n ? x[i] : 0, warps);
    if (threadIdx.x == blockDim.x - 1) {
        int sum = 0;
        if (tile > 0) {
            unsigned long long word;
            while (((word = atomicAdd(&state[tile - 1], 0ull)) >> 32) == 0) __nanosleep(20);
            sum = (int)(unsigned)word;
        }
        before = sum;
        atomicExch(&state[tile], (1ull << 32) | (unsigned)(sum + v));
    }
    __syncthreads();
    if (i < n) y[i] = v + before;
}

// Sums that start anew where a flag is set.
extern "C" __global__ void scan_segments(const float* x, const unsigned char* head, float* y, int n) {
    __shared__ float value[128];
    __shared__ unsigned char flag[128];
    int t = threadIdx.x;
    value[t] = t < n ? x[t] : 0.0f;
    flag[t] = t < n ? head[t] : 1;
    __syncthreads();
    for (int offset = 1; offset < 128; offset *= 2) {
        float v = value[t];
        unsigned char f = flag[t];
        if (t >= offset && !f) {
            v += value[t - offset];
            f |= flag[t - offset];
        }
        __syncthreads();
        value[t] = v, flag[t] = f;
        __syncthreads();
    }
    if (t < n) y[t] = value[t];
}

// Keeps the elements above a threshold, in order within a block; blocks take places as they come.
extern "C" __global__ void compact(const int* x, int* y, int* count, int threshold, int n) {
    __shared__ int warps[32];
    __shared__ int base;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int keep = i < n && x[i] > threshold;
    int place = block_scan(keep, warps);
    if (threadIdx.x == blockDim.x - 1) base = atomicAdd(count, place);
    __syncthreads();
    if (keep) y[base + place - 1] = x[i];
}
