// Histograms: atomics in global memory, in shared memory, aggregated by match, private copies.

extern "C" __global__ void histogram_global(const unsigned char* x, unsigned* bins, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i]], 1u);
}

extern "C" __global__ void histogram_shared(const unsigned char* x, unsigned* bins, int n) {
    __shared__ unsigned s[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x) s[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&s[x[i]], 1u);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        if (s[b]) atomicAdd(&bins[b], s[b]);
}

// Lanes that hold the same value add once.
extern "C" __global__ void histogram_match(const int* x, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned active = __ballot_sync(0xffffffffu, i < n);
    if (i >= n) return;
    unsigned same = __match_any_sync(active, x[i]);
    if ((threadIdx.x & 31) == __ffs(same) - 1) atomicAdd(&bins[x[i]], __popc(same));
}

// A counter of 8 bits for every thread and bin, so that no atomics are needed.
extern "C" __global__ void histogram_private(const unsigned char* x, unsigned* bins, int per_thread) {
    __shared__ unsigned char count[16][64];
    for (int b = 0; b < 16; b++) count[b][threadIdx.x] = 0;
    const unsigned char* mine = x + (blockIdx.x * blockDim.x + threadIdx.x) * per_thread;
    for (int i = 0; i < per_thread; i++) count[mine[i] >> 4][threadIdx.x]++;
    __syncthreads();
    if (threadIdx.x < 16) {
        unsigned sum = 0;
        for (int t = 0; t < 64; t++) sum += count[threadIdx.x][(t + threadIdx.x * 4) & 63];
        atomicAdd(&bins[threadIdx.x], sum);
    }
}
