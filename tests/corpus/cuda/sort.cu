// Sorting and searching.

extern "C" __global__ void bitonic_shared(int* x) {
    __shared__ int s[256];
    int t = threadIdx.x, base = blockIdx.x * 256;
    s[t] = x[base + t];
    for (int size = 2; size <= 256; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            int other = t ^ stride;
            if (other > t) {
                int a = s[t], b = s[other];
                if ((a > b) == ((t & size) == 0)) s[t] = b, s[other] = a;
            }
        }
    __syncthreads();
    x[base + t] = s[t];
}

// One step of a bitonic sort of keys with values in global memory.
extern "C" __global__ void bitonic_step(float* keys, unsigned* values, int stride, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ stride;
    if (other <= i) return;
    bool ascending = (i & size) == 0;
    if ((keys[i] > keys[other]) == ascending) {
        float key = keys[i];
        unsigned value = values[i];
        keys[i] = keys[other], values[i] = values[other];
        keys[other] = key, values[other] = value;
    }
}

// A radix sort of one block, a bit at a time, places by ballots.
extern "C" __global__ void radix_block(const unsigned* x, unsigned* y, int bits) {
    __shared__ unsigned keys[128];
    __shared__ int zeros[4];
    int t = threadIdx.x, warp = t / 32, lane = t % 32;
    keys[t] = x[blockIdx.x * 128 + t];
    for (int bit = 0; bit < bits; bit++) {
        __syncthreads();
        unsigned key = keys[t];
        bool one = key >> bit & 1;
        unsigned ones = __ballot_sync(0xffffffffu, one);
        if (lane == 0) zeros[warp] = 32 - __popc(ones);
        __syncthreads();
        int zeros_before = 0, all_zeros = 0;
        for (int w = 0; w < 4; w++) {
            if (w < warp) zeros_before += zeros[w];
            all_zeros += zeros[w];
        }
        unsigned below = (1u << lane) - 1;
        zeros_before += __popc(~ones & below);
        keys[one ? all_zeros + t - zeros_before : zeros_before] = key;
    }
    __syncthreads();
    y[blockIdx.x * 128 + t] = keys[t];
}

// Digits of four bits counted by block and digit: the first half of a radix pass.
extern "C" __global__ void radix_count(const unsigned* x, unsigned* counts, int shift, int n) {
    __shared__ unsigned s[16];
    if (threadIdx.x < 16) s[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&s[x[i] >> shift & 15], 1u);
    __syncthreads();
    if (threadIdx.x < 16) counts[threadIdx.x * gridDim.x + blockIdx.x] = s[threadIdx.x];
}

// Merges two sorted arrays: each element finds its place in the other by binary search.
__device__ int lower_bound(const int* x, int n, int value) {
    int low = 0, high = n;
    while (low < high) {
        int mid = (low + high) / 2;
        if (x[mid] < value) low = mid + 1;
        else high = mid;
    }
    return low;
}
__device__ int upper_bound(const int* x, int n, int value) {
    int low = 0, high = n;
    while (low < high) {
        int mid = (low + high) / 2;
        if (x[mid] <= value) low = mid + 1;
        else high = mid;
    }
    return low;
}
extern "C" __global__ void merge_ranks(const int* a, int na, const int* b, int nb, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < na) out[i + lower_bound(b, nb, a[i])] = a[i];
    else if (i < na + nb) out[i - na + upper_bound(a, na, b[i - na])] = b[i - na];
}

// Each thread sorts a row of its own with a stack in local memory.
extern "C" __global__ void quicksort_rows(short* x, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    short* v = x + row * columns;
    int stack[64], top = 0;
    stack[top++] = 0, stack[top++] = columns - 1;
    while (top > 0) {
        int high = stack[--top], low = stack[--top], i = low;
        if (low >= high) continue;
        short pivot = v[high];
        for (int j = low; j < high; j++)
            if (v[j] < pivot) {
                short swap = v[i];
                v[i++] = v[j], v[j] = swap;
            }
        v[high] = v[i], v[i] = pivot;
        stack[top++] = low, stack[top++] = i - 1;
        stack[top++] = i + 1, stack[top++] = high;
    }
}

// The four greatest of each row: every thread keeps its own, then a tree of merges.
struct Best { float v[4]; };
__device__ void insert(Best& best, float v) {
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (v > best.v[k]) {
            float swap = best.v[k];
            best.v[k] = v, v = swap;
        }
}
extern "C" __global__ void top_four(const float* x, float* y, int columns) {
    __shared__ Best s[64];
    Best mine = {{-1e30f, -1e30f, -1e30f, -1e30f}};
    for (int c = threadIdx.x; c < columns; c += 64) insert(mine, x[blockIdx.x * columns + c]);
    s[threadIdx.x] = mine;
    for (int half = 32; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            for (int k = 0; k < 4; k++) insert(s[threadIdx.x], s[threadIdx.x + half].v[k]);
    }
    __syncthreads();
    if (threadIdx.x < 4) y[blockIdx.x * 4 + threadIdx.x] = s[0].v[threadIdx.x];
}
