// Compiled by NVRTC 13.5 into sm_75.ptx (no options) and sm_90_fast.ptx (--use_fast_math -lineinfo).
// Kernels of the kinds that compilers make difficult: early exits, switches, local arrays, loops that break,
// double precision, 64-bit integers, warp and block reductions, atomics, constant tables.

__constant__ float coefficients[4] = {1.0f, -0.5f, 0.25f, -0.125f};
__device__ unsigned counter = 5;

extern "C" __global__ void rms_norm(const float* __restrict__ x, const float* __restrict__ w, float* y, int n, float eps) {
    __shared__ float part[8];
    float sum = 0;
    const float* row = x + (size_t)blockIdx.x * n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += row[i] * row[i];
    for (int m = 16; m; m >>= 1) sum += __shfl_xor_sync(~0u, sum, m);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < blockDim.x / 32; i++) sum += part[i];
    float scale = rsqrtf(sum / n + eps);
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[(size_t)blockIdx.x * n + i] = row[i] * scale * w[i];
}

extern "C" __global__ void collatz(const unsigned* in, unsigned* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long v = in[i];
    unsigned steps = 0;
    while (v != 1) {
        if (steps > 1000) break;
        v = v % 2 ? 3 * v + 1 : v / 2;
        steps++;
        if (v == 0) continue;
    }
    out[i] = steps;
}

extern "C" __global__ void choose(const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = in[i], r;
    switch (v & 7) {
        case 0: r = v * 3; break;
        case 1: r = v / 7; break;
        case 2: r = v % 11; break;
        case 3: r = __popc(v) - __clz(v); break;
        case 4: r = min(v, 100); break;
        case 5: r = v >> 3; break;
        case 6: r = __brev(v); break;
        default: r = -v;
    }
    out[i] = r;
}

extern "C" __global__ void sort8(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v[8];
    int order[8];
    for (int k = 0; k < 8; k++) { v[k] = in[i * 8 + k]; order[k] = k; }
    #pragma unroll 1
    for (int a = 1; a < 8; a++) {
        int o = order[a], b = a;
        #pragma unroll 1
        while (b > 0 && v[order[b - 1]] > v[o]) { order[b] = order[b - 1]; b--; }
        order[b] = o;
    }
    #pragma unroll 1
    for (int k = 0; k < 8; k++) out[i * 8 + k] = v[order[k]];
}

extern "C" __global__ void polynomial(const double* in, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = in[i], s = 0;
    for (int k = 3; k >= 0; k--) s = s * x + coefficients[k];
    out[i] = sqrt(fabs(s)) / (1.0 + x * x);
}

extern "C" __global__ void histogram(const unsigned char* in, unsigned* out, int n) {
    __shared__ unsigned bins[64];
    if (threadIdx.x < 64) bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[in[i] & 63], 1);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
    if (threadIdx.x == 0) atomicMax(&counter, blockIdx.x + 10);
}

extern "C" __global__ void dot_bytes(const int4* __restrict__ a, const int4* __restrict__ b, float* out, int n, float scale) {
    extern __shared__ int sums[];
    int sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int4 x = a[blockIdx.x * n + i], y = b[i];
        sum = __dp4a(x.x, y.x, sum); sum = __dp4a(x.y, y.y, sum); sum = __dp4a(x.z, y.z, sum); sum = __dp4a(x.w, y.w, sum);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) sums[threadIdx.x] += sums[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sums[0] * scale;
}
