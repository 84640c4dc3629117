// Half precision, bfloat16, fp8, packed bytes.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void half_axpy(half a, const half2* x, half2* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 2) y[i] = __hfma2(__half2half2(a), x[i], y[i]);
}

extern "C" __global__ void half_compare(const half2* x, const half2* y, half2* least, half2* equal, unsigned* above, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    least[i] = __hmin2(x[i], y[i]), equal[i] = __heq2(x[i], y[i]), above[i] = __hgt2_mask(x[i], y[i]);
}

extern "C" __global__ void half_functions(const half* x, half* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    half v = __habs(x[i]);
    y[i] = hsqrt(v), y[n + i] = hexp(x[i]), y[2 * n + i] = hlog2(v), y[3 * n + i] = htanh(x[i]);
    y[4 * n + i] = hrcp(v), y[5 * n + i] = hfloor(x[i]), y[6 * n + i] = x[i] / __float2half(3.0f);
}

extern "C" __global__ void bf16_layer_norm(const __nv_bfloat16* x, const __nv_bfloat16* gain, __nv_bfloat16* y, int n, float eps) {
    __shared__ float sums[2][4];
    const __nv_bfloat162* row = (const __nv_bfloat162*)(x + blockIdx.x * n);
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < n / 2; i += blockDim.x) {
        float2 v = __bfloat1622float2(row[i]);
        sum += v.x + v.y, squares += v.x * v.x + v.y * v.y;
    }
    for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(~0u, sum, o), squares += __shfl_xor_sync(~0u, squares, o);
    if (threadIdx.x % 32 == 0) sums[0][threadIdx.x / 32] = sum, sums[1][threadIdx.x / 32] = squares;
    __syncthreads();
    sum = squares = 0.0f;
    for (int w = 0; w < blockDim.x / 32; w++) sum += sums[0][w], squares += sums[1][w];
    float mean = sum / n, scale = rsqrtf(squares / n - mean * mean + eps);
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        y[blockIdx.x * n + i] = __float2bfloat16((__bfloat162float(x[blockIdx.x * n + i]) - mean) * scale * __bfloat162float(gain[i]));
}

extern "C" __global__ void bf16_arithmetic(const __nv_bfloat16* x, const __nv_bfloat16* y, __nv_bfloat16* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = __hfma(x[i], y[i], __hmax(x[i], y[i])) - __hneg(y[i]);
}

extern "C" __global__ void half_atomics(const half2* x, half2* y, __nv_bfloat16* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(y, x[i]), atomicAdd(z, __float2bfloat16(1.0f));
}

// Rows to fp8 with a scale, and back.
extern "C" __global__ void fp8_round_trip(const float* x, __nv_fp8_e4m3* packed, float* scales, float* back, int n) {
    int row = blockIdx.x;
    float most = 0.0f;
    for (int i = threadIdx.x; i < n; i += 32) most = fmaxf(most, fabsf(x[row * n + i]));
    for (int o = 16; o > 0; o /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
    float scale = most / 448.0f;
    if (threadIdx.x == 0) scales[row] = scale;
    for (int i = threadIdx.x; i < n; i += 32) {
        __nv_fp8_e4m3 v(x[row * n + i] / scale);
        packed[row * n + i] = v, back[row * n + i] = float(v) * scale;
    }
}

extern "C" __global__ void fp8_e5m2_pairs(const float2* x, unsigned short* packed, half2* wide, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    packed[i] = __nv_cvt_float2_to_fp8x2(x[i], __NV_SATFINITE, __NV_E5M2);
    wide[i] = half2(__nv_cvt_fp8x2_to_halfraw2(packed[i], __NV_E5M2));
}

extern "C" __global__ void dot_bytes(const int* a, const int* b, const unsigned* u, int* y, unsigned* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int sum = 0;
    unsigned usum = 0;
    for (int k = 0; k < 4; k++) sum = __dp4a(a[i * 4 + k], b[i * 4 + k], sum), usum = __dp4a(u[i * 4 + k], u[i * 4 + k], usum);
    y[i] = __dp2a_lo(a[i], b[i], sum), z[i] = usum;
}

extern "C" __global__ void simd_in_words(const unsigned* a, const unsigned* b, unsigned* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = __vadd4(a[i], b[i]), y[n + i] = __vabsdiffu4(a[i], b[i]), y[2 * n + i] = __vmaxs2(a[i], b[i]);
    y[3 * n + i] = __vcmpgtu4(a[i], b[i]), y[4 * n + i] = __sad(a[i], b[i], 5u), y[5 * n + i] = __vsubss2(a[i], b[i]);
}

// Four-bit weights with a scale for every 32, times a vector of halves.
extern "C" __global__ void gemv_int4(const uint4* w, const half* scale, const half* x, float* y, int columns) {
    int row = blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x;
    float sum = 0.0f;
    for (int g = lane; g < columns / 32; g += 32) {
        uint4 v = w[row * (columns / 32) + g];
        unsigned words[4] = {v.x, v.y, v.z, v.w};
        float s = __half2float(scale[row * (columns / 32) + g]), part = 0.0f;
#pragma unroll
        for (int k = 0; k < 32; k++) part += (float)((int)(words[k / 8] >> k % 8 * 4 & 15) - 8) * __half2float(x[g * 32 + k]);
        sum += s * part;
    }
    for (int o = 16; o > 0; o /= 2) sum += __shfl_down_sync(~0u, sum, o);
    if (lane == 0) y[row] = sum;
}
