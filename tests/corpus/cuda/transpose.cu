// Transposes and copies.

extern "C" __global__ void transpose_naive(const float* x, float* y, int rows, int columns) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < rows && c < columns) y[c * rows + r] = x[r * columns + c];
}

// Through a padded tile, so that both sides are coalesced.
extern "C" __global__ void transpose_tiled(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (r + k < rows && c < columns) tile[threadIdx.y + k][threadIdx.x] = x[(r + k) * columns + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (r + k < columns && c < rows) y[(r + k) * rows + c] = tile[threadIdx.x][threadIdx.y + k];
}

// The tile is swizzled instead of padded; 16-bit elements.
extern "C" __global__ void transpose_swizzled(const unsigned short* x, unsigned short* y, int n) {
    __shared__ unsigned short tile[32][32];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32;
    for (int k = threadIdx.y; k < 32; k += blockDim.y) tile[k][threadIdx.x ^ k] = x[(r + k) * n + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32;
    for (int k = threadIdx.y; k < 32; k += blockDim.y) y[(r + k) * n + c] = tile[threadIdx.x][k ^ threadIdx.x];
}

// 16 bytes at a time, and the rest alone.
extern "C" __global__ void copy_vectors(const char* x, char* y, int n) {
    const float4* from = reinterpret_cast<const float4*>(x);
    float4* to = reinterpret_cast<float4*>(y);
    int i = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    for (int k = i; k < n / 16; k += stride) to[k] = __ldg(&from[k]);
    for (int k = n / 16 * 16 + i; k < n; k += stride) y[k] = x[k];
}

// Structures of arrays out of an array of structures of 12 bytes.
struct Point { float x, y, z; };
extern "C" __global__ void split_points(const Point* p, float* x, float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Point q = p[i];
    x[i] = q.x, y[i] = q.y, z[i] = q.z;
}
