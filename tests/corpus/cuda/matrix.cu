// Products of matrices, small systems, sparse rows.

extern "C" __global__ void sgemm_naive(const float* a, const float* b, float* c, int m, int n, int k) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + col];
    c[row * n + col] = sum;
}

extern "C" __global__ void sgemm_tiled(const float* a, const float* b, float* c, int m, int n, int k, float alpha,
                                       float beta) {
    __shared__ float as[16][16], bs[16][17];
    int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * 16 + tx, row = blockIdx.y * 16 + ty;
    float sum = 0.0f;
    for (int t = 0; t < k; t += 16) {
        as[ty][tx] = row < m && t + tx < k ? a[row * k + t + tx] : 0.0f;
        bs[ty][tx] = t + ty < k && col < n ? b[(t + ty) * n + col] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; i++) sum += as[ty][i] * bs[i][tx];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = alpha * sum + beta * c[row * n + col];
}

// 4 by 4 results a thread, two buffers in shared memory, loads of 16 bytes.
extern "C" __global__ void sgemm_registers(const float* __restrict__ a, const float* __restrict__ b,
                                           float* __restrict__ c, int n, int k) {
    __shared__ __align__(16) float as[2][8][32], bs[2][8][32];
    int t = threadIdx.x, tx = t % 8, ty = t / 8, row = blockIdx.y * 32, col = blockIdx.x * 32;
    float acc[4][4] = {};
    auto load = [&](int stage, int at) {
        float4 v = *(const float4*)&a[(row + t / 2) * k + at + t % 2 * 4];
        as[stage][t % 2 * 4 + 0][t / 2] = v.x, as[stage][t % 2 * 4 + 1][t / 2] = v.y;
        as[stage][t % 2 * 4 + 2][t / 2] = v.z, as[stage][t % 2 * 4 + 3][t / 2] = v.w;
        *(float4*)&bs[stage][t / 8][t % 8 * 4] = *(const float4*)&b[(at + t / 8) * n + col + t % 8 * 4];
    };
    load(0, 0);
    __syncthreads();
    for (int at = 0, stage = 0; at < k; at += 8, stage ^= 1) {
        if (at + 8 < k) load(stage ^ 1, at + 8);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float4 x = *(float4*)&as[stage][i][ty * 4], y = *(float4*)&bs[stage][i][tx * 4];
            float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int p = 0; p < 4; p++)
#pragma unroll
                for (int q = 0; q < 4; q++) acc[p][q] = fmaf(xs[p], ys[q], acc[p][q]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int p = 0; p < 4; p++)
        *(float4*)&c[(row + ty * 4 + p) * n + col + tx * 4] = make_float4(acc[p][0], acc[p][1], acc[p][2], acc[p][3]);
}

extern "C" __global__ void matvec_warp(const float* a, const float* x, float* y, int m, int n) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (row >= m) return;
    const float4* line = (const float4*)(a + (size_t)row * n);
    const float4* v = (const float4*)x;
    float sum = 0.0f;
    for (int i = lane; i < n / 4; i += 32) {
        float4 p = line[i], q = v[i];
        sum += p.x * q.x + p.y * q.y + p.z * q.z + p.w * q.w;
    }
#pragma unroll
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (!lane) y[row] = sum;
}

extern "C" __global__ void dgemm_small(const double* a, const double* b, double* c, int n) {
    int i = threadIdx.y, j = threadIdx.x, batch = blockIdx.x;
    const double *x = a + batch * n * n, *y = b + batch * n * n;
    double sum = 0.0;
    for (int k = 0; k < n; k++) sum = fma(x[i * n + k], y[k * n + j], sum);
    c[batch * n * n + i * n + j] = sum;
}

// Solves 4 by 4 systems with partial pivoting in local arrays, one a thread.
extern "C" __global__ void solve_4x4(const float* a, const float* b, float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float m[4][5];
    for (int r = 0; r < 4; r++) {
        for (int c = 0; c < 4; c++) m[r][c] = a[i * 16 + r * 4 + c];
        m[r][4] = b[i * 4 + r];
    }
    for (int p = 0; p < 4; p++) {
        int best = p;
        for (int r = p + 1; r < 4; r++)
            if (fabsf(m[r][p]) > fabsf(m[best][p])) best = r;
        for (int c = 0; c < 5; c++) {
            float swap = m[p][c];
            m[p][c] = m[best][c], m[best][c] = swap;
        }
        for (int r = p + 1; r < 4; r++) {
            float factor = m[r][p] / m[p][p];
            for (int c = p; c < 5; c++) m[r][c] -= factor * m[p][c];
        }
    }
    for (int r = 3; r >= 0; r--) {
        float sum = m[r][4];
        for (int c = r + 1; c < 4; c++) sum -= m[r][c] * x[i * 4 + c];
        x[i * 4 + r] = sum / m[r][r];
    }
}

// A sparse matrix in compressed rows times a vector.
extern "C" __global__ void spmv_csr(const int* start, const int* column, const float* value, const float* x, float* y,
                                    int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int i = start[row]; i < start[row + 1]; i++) sum += value[i] * x[column[i]];
    y[row] = sum;
}

// Cholesky of one matrix in one block, columns one after another.
extern "C" __global__ void cholesky_block(float* a, int n) {
    extern __shared__ float s[];
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) s[i] = a[i];
    for (int k = 0; k < n; k++) {
        __syncthreads();
        if (threadIdx.x == 0) s[k * n + k] = sqrtf(s[k * n + k]);
        __syncthreads();
        for (int r = k + 1 + threadIdx.x; r < n; r += blockDim.x) s[r * n + k] /= s[k * n + k];
        __syncthreads();
        for (int r = k + 1 + threadIdx.x; r < n; r += blockDim.x)
            for (int c = k + 1; c <= r; c++) s[r * n + c] -= s[r * n + k] * s[c * n + k];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) a[i] = i % n <= i / n ? s[i] : 0.0f;
}
