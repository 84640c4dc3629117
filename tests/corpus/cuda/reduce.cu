// Reductions: shared memory, shuffles, one pass with the last block, arg-max, double precision.
#include <cfloat>

// One partial sum a block, by halving in shared memory.
extern "C" __global__ void sum_shared(const float* x, float* partial, int n) {
    __shared__ float s[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half >>= 1) {
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = s[0];
}

__device__ __forceinline__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_down_sync(0xffffffffu, v, offset);
    return v;
}

// Grid-stride sums, shuffles within warps, shared memory between them, one atomic a block.
extern "C" __global__ void sum_shuffle(const float* x, float* total, int n) {
    __shared__ float warps[32];
    float v = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
    v = warp_sum(v);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane == 0) warps[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < (blockDim.x >> 5) ? warps[lane] : 0.0f;
        v = warp_sum(v);
        if (lane == 0) atomicAdd(total, v);
    }
}

__device__ unsigned int blocks_done = 0;

// The last block to finish adds the partial sums of all.
extern "C" __global__ void sum_last_block(const int* x, volatile int* partial, int* total, int n) {
    __shared__ int s[128];
    __shared__ bool last;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    for (int half = 64; half > 0; half >>= 1) {
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = s[0];
        __threadfence();
        last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        int v = 0;
        for (int b = threadIdx.x; b < gridDim.x; b += blockDim.x) v += partial[b];
        s[threadIdx.x] = v;
        __syncthreads();
        for (int half = 64; half > 0; half >>= 1) {
            if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
            __syncthreads();
        }
        if (threadIdx.x == 0) *total = s[0];
    }
}

// The greatest element of each row and its first index, a warp a row.
extern "C" __global__ void argmax_rows(const float* x, float* best, int* where, int rows, int columns) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float v = -FLT_MAX;
    int at = 0x7fffffff;
    for (int c = lane; c < columns; c += 32) {
        float y = x[row * columns + c];
        if (y > v) v = y, at = c;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, v, offset);
        int other_at = __shfl_xor_sync(0xffffffffu, at, offset);
        if (other > v || (other == v && other_at < at)) v = other, at = other_at;
    }
    if (lane == 0) best[row] = v, where[row] = at;
}

// A dot product in double precision with Kahan's compensation in every thread.
extern "C" __global__ void dot_kahan(const double* x, const double* y, double* total, int n) {
    __shared__ double s[64];
    double sum = 0.0, carry = 0.0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        double term = __dadd_rn(x[i] * y[i], -carry), next = __dadd_rn(sum, term);
        carry = __dadd_rn(__dadd_rn(next, -sum), -term);
        sum = next;
    }
    s[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) *total = s[0];
}

// Smallest, greatest and bitwise results of a warp in one instruction each.
extern "C" __global__ void redux_each_warp(const int* x, int* low, int* high, unsigned* either) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int least = __reduce_min_sync(0xffffffffu, x[i]), most = __reduce_max_sync(0xffffffffu, x[i]);
    unsigned bits = __reduce_or_sync(0xffffffffu, (unsigned)x[i]);
    if ((threadIdx.x & 31) == 0) low[i / 32] = least, high[i / 32] = most, either[i / 32] = bits;
}
