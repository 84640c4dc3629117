// Textures and surfaces.

// A picture turned by an angle about its middle, repeated beyond its edges.
extern "C" __global__ void turned(cudaTextureObject_t picture, float* y, int w, int h, float c, float s) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= w || j >= h) return;
    float u = (i + 0.5f) / w - 0.5f, v = (j + 0.5f) / h - 0.5f;
    y[j * w + i] = tex2D<float>(picture, u * c - v * s + 0.5f, v * c + u * s + 0.5f);
}

// A function by a table of its values, between which the texture is linear.
extern "C" __global__ void looked_up(cudaTextureObject_t table, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = tex1D<float>(table, x[i]);
}

// The mean of a volume along rays, zero outside.
extern "C" __global__ void rays(cudaTextureObject_t volume, float* y, int w, int h, int steps, float slope) {
    int i = threadIdx.x, j = blockIdx.x;
    float sum = 0;
    for (int k = 0; k < steps; k++) sum += tex3D<float>(volume, i + slope * k, j + 0.5f, k * 0.5f);
    y[j * w + i] = sum / steps;
}

// A sparse matrix times a vector, which is read through a texture over linear memory.
extern "C" __global__ void sparse(const int* rows, const int* columns, const float* values, cudaTextureObject_t x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int k = rows[i]; k < rows[i + 1]; k++) sum += values[k] * tex1Dfetch<float>(x, columns[k]);
    y[i] = sum;
}

// Colours of 8 bits as floats from 0 to 1, and as they are.
extern "C" __global__ void grey(cudaTextureObject_t smooth, cudaTextureObject_t raw, float* y, unsigned* sums, int w, int h) {
    int i = threadIdx.x, j = blockIdx.x;
    if (i >= w) return;
    float4 a = tex2D<float4>(smooth, i + 0.5f, j + 0.5f);
    uchar4 b = tex2D<uchar4>(raw, i + 0.5f, j + 0.5f);
    y[j * w + i] = 0.25f * a.x + 0.5f * a.y + 0.25f * a.z;
    sums[j * w + i] = b.x + b.y + b.z + b.w;
}

// The largest of four neighbours, fetched at once.
extern "C" __global__ void pooled(cudaTextureObject_t t, float* y, int w) {
    int i = threadIdx.x, j = blockIdx.x;
    float4 four = tex2Dgather<float4>(t, 2 * i + 1, 2 * j + 1, 1);
    y[j * w + i] = fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w));
}

// Layers added up; signed integers of 16 bits.
extern "C" __global__ void layers(cudaTextureObject_t t, int* y, int w, int n) {
    int i = threadIdx.x, j = blockIdx.x, sum = 0;
    for (int k = 0; k < n; k++) sum += tex2DLayered<short>(t, i + 0.5f, j + 0.5f, k);
    y[j * w + i] = sum;
}

// A cube map along directions.
extern "C" __global__ void sky(cudaTextureObject_t cube, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = texCubemap<float>(cube, x[3 * i], x[3 * i + 1], x[3 * i + 2]);
}

// A surface transposed into another one.
extern "C" __global__ void surface_transposed(cudaSurfaceObject_t x, cudaSurfaceObject_t y, int w, int h) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < w && j < h) surf2Dwrite(surf2Dread<float2>(x, i * 8, j), y, j * 8, i);
}

// Neighbours along z in a volume of colours: the nearest slice beyond its ends, and nothing stored there.
extern "C" __global__ void shifted(cudaSurfaceObject_t x, cudaSurfaceObject_t y, int up) {
    int i = threadIdx.x, j = threadIdx.y, k = blockIdx.x;
    uchar4 a = surf3Dread<uchar4>(x, i * 4, j, k + up, cudaBoundaryModeClamp);
    surf3Dwrite(a, y, i * 4, j, k, cudaBoundaryModeTrap);
    surf3Dwrite(a, y, i * 4 + 1024, j, k, cudaBoundaryModeZero);
}

// A row of halves of each layer, reversed.
extern "C" __global__ void rows_reversed(cudaSurfaceObject_t t, unsigned short* y, int w) {
    int i = threadIdx.x, layer = blockIdx.x;
    y[layer * w + i] = surf1DLayeredread<unsigned short>(t, 2 * (w - 1 - i), layer);
}
