// Stencils and convolutions.

// One step of the heat equation, with a halo in shared memory.
extern "C" __global__ void heat_1d(const float* u, float* next, float k, int n) {
    __shared__ float s[128 + 2];
    int i = blockIdx.x * 128 + threadIdx.x, t = threadIdx.x + 1;
    if (i < n) s[t] = u[i];
    if (threadIdx.x == 0) s[0] = i > 0 ? u[i - 1] : 0.0f;
    if (threadIdx.x == 127 || i == n - 1) s[t + 1] = i + 1 < n ? u[i + 1] : 0.0f;
    __syncthreads();
    if (i < n) next[i] = s[t] + k * (s[t - 1] - 2.0f * s[t] + s[t + 1]);
}

#define TILE 16
extern "C" __global__ void jacobi_2d(const float* u, const float* f, float* next, int w, int h) {
    __shared__ float s[TILE + 2][TILE + 2];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int dy = threadIdx.y; dy < TILE + 2; dy += TILE)
        for (int dx = threadIdx.x; dx < TILE + 2; dx += TILE) {
            int gx = blockIdx.x * TILE + dx - 1, gy = blockIdx.y * TILE + dy - 1;
            s[dy][dx] = gx >= 0 && gx < w && gy >= 0 && gy < h ? u[gy * w + gx] : 0.0f;
        }
    __syncthreads();
    if (x < w && y < h) {
        int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
        next[y * w + x] = 0.25f * (s[ty - 1][tx] + s[ty + 1][tx] + s[ty][tx - 1] + s[ty][tx + 1] - f[y * w + x]);
    }
}

// Seven points; planes move through registers.
extern "C" __global__ void stencil_3d(const double* u, double* next, int nx, int ny, int nz) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= nx - 1 || y >= ny - 1) return;
    size_t plane = (size_t)nx * ny, at = (size_t)y * nx + x;
    double below = u[at], here = u[at + plane];
    for (int z = 1; z < nz - 1; z++) {
        double above = u[at + (z + 1) * plane], c = u[at + z * plane - 1] + u[at + z * plane + 1];
        next[at + z * plane] = below + above + c + u[at + z * plane - nx] + u[at + z * plane + nx] - 6.0 * here;
        below = here, here = above;
    }
}

__constant__ float taps[9];

extern "C" __global__ void fir_constant(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 9; k++) sum += taps[k] * (i >= k ? x[i - k] : 0.0f);
    y[i] = sum;
}

// Rows of a separable filter, radius given at launch, dynamic shared memory.
extern "C" __global__ void filter_rows(const float* x, const float* filter, float* y, int w, int radius) {
    extern __shared__ float line[];
    float* weights = line + blockDim.x + 2 * radius;
    const float* row = x + blockIdx.y * w;
    int start = blockIdx.x * blockDim.x;
    for (int k = threadIdx.x; k < blockDim.x + 2 * radius; k += blockDim.x)
        line[k] = row[min(max(start + k - radius, 0), w - 1)];
    for (int k = threadIdx.x; k <= 2 * radius; k += blockDim.x) weights[k] = filter[k];
    __syncthreads();
    int c = start + threadIdx.x;
    if (c >= w) return;
    float sum = 0.0f;
    for (int k = 0; k <= 2 * radius; k++) sum = fmaf(weights[k], line[threadIdx.x + k], sum);
    y[blockIdx.y * w + c] = sum;
}

// A 3x3 median of bytes.
__device__ __forceinline__ void order(unsigned char& a, unsigned char& b) {
    unsigned char low = min(a, b);
    b = max(a, b), a = low;
}
extern "C" __global__ void median_3x3(const unsigned char* x, unsigned char* y, int w, int h) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c >= w || r >= h) return;
    unsigned char v[9];
    for (int k = 0; k < 9; k++) v[k] = x[min(max(r + k / 3 - 1, 0), h - 1) * w + min(max(c + k % 3 - 1, 0), w - 1)];
#pragma unroll
    for (int i = 0; i < 5; i++)
#pragma unroll
        for (int j = i + 1; j < 9; j++) order(v[i], v[j]);
    y[r * w + c] = v[4];
}

// Convolution of images with several channels in and out, weights in shared memory.
extern "C" __global__ void conv2d_nchw(const float* x, const float* weight, const float* bias, float* y, int cin,
                                       int h, int w) {
    __shared__ float k[8 * 9];
    int out = blockIdx.z, c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < cin * 9; i += blockDim.x * blockDim.y)
        k[i] = weight[out * cin * 9 + i];
    __syncthreads();
    if (c >= w - 2 || r >= h - 2) return;
    float sum = bias[out];
    for (int ci = 0; ci < cin; ci++)
        for (int dy = 0; dy < 3; dy++)
            for (int dx = 0; dx < 3; dx++) sum += k[ci * 9 + dy * 3 + dx] * x[(ci * h + r + dy) * w + c + dx];
    y[(out * (h - 2) + r) * (w - 2) + c] = fmaxf(sum, 0.0f);
}

// Conway's game on a torus.
extern "C" __global__ void life(const unsigned char* x, unsigned char* y, int w, int h) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= w * h) return;
    int c = i % w, r = i / w, n = 0;
    for (int dy = h - 1; dy <= h + 1; dy++)
        for (int dx = w - 1; dx <= w + 1; dx++) n += x[(r + dy) % h * w + (c + dx) % w];
    n -= x[i];
    y[i] = n == 3 || (n == 2 && x[i]);
}
