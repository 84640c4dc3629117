// What neural networks are made of.

extern "C" __global__ void softmax_online(const float* x, float* y, int columns) {
    __shared__ float most[4], total[4];
    const float* row = x + blockIdx.x * columns;
    float m = -INFINITY, sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        float v = row[c], next = fmaxf(m, v);
        sum = sum * __expf(m - next) + __expf(v - next);
        m = next;
    }
    for (int o = 16; o > 0; o /= 2) {
        float m2 = __shfl_xor_sync(~0u, m, o), s2 = __shfl_xor_sync(~0u, sum, o), next = fmaxf(m, m2);
        sum = sum * __expf(m - next) + s2 * __expf(m2 - next);
        m = next;
    }
    if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = m, total[threadIdx.x / 32] = sum;
    __syncthreads();
    m = most[0], sum = total[0];
    for (int w = 1; w < blockDim.x / 32; w++) {
        float next = fmaxf(m, most[w]);
        sum = sum * __expf(m - next) + total[w] * __expf(most[w] - next);
        m = next;
    }
    for (int c = threadIdx.x; c < columns; c += blockDim.x) y[blockIdx.x * columns + c] = __expf(row[c] - m) / sum;
}

extern "C" __global__ void rms_norm(const float4* x, const float4* gain, float4* y, int n, float eps) {
    __shared__ float warps[8];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n / 4; i += blockDim.x) {
        float4 v = x[blockIdx.x * (n / 4) + i];
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0.0f;
        for (int o = 4; o > 0; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
        if (threadIdx.x == 0) warps[0] = rsqrtf(sum / n + eps);
    }
    __syncthreads();
    float s = warps[0];
    for (int i = threadIdx.x; i < n / 4; i += blockDim.x) {
        float4 v = x[blockIdx.x * (n / 4) + i], g = gain[i];
        y[blockIdx.x * (n / 4) + i] = make_float4(v.x * s * g.x, v.y * s * g.y, v.z * s * g.z, v.w * s * g.w);
    }
}

extern "C" __global__ void rope(float* x, const int* position, int heads, int dim, float base) {
    int pair = threadIdx.x, head = blockIdx.y, token = blockIdx.x;
    float* v = x + (token * heads + head) * dim;
    float angle = position[token] * powf(base, -2.0f * pair / dim), s, c;
    sincosf(angle, &s, &c);
    float a = v[pair], b = v[pair + dim / 2];
    v[pair] = a * c - b * s, v[pair + dim / 2] = a * s + b * c;
}

// Attention of one query row a warp, keys in tiles, causal.
extern "C" __global__ void attention(const float* q, const float* k, const float* v, float* o, int n, float scale) {
    __shared__ float ks[32][33], vs[32][32];
    int lane = threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y;
    float mine = row < n ? q[row * 32 + lane] * scale : 0.0f, m = -INFINITY, sum = 0.0f, acc = 0.0f;
    int last = min(n, (int)((blockIdx.x + 1) * blockDim.y));
    for (int start = 0; start < last; start += 32) {
        for (int r = threadIdx.y; r < 32; r += blockDim.y) {
            ks[r][lane] = start + r < n ? k[(start + r) * 32 + lane] : 0.0f;
            vs[r][lane] = start + r < n ? v[(start + r) * 32 + lane] : 0.0f;
        }
        __syncthreads();
        float score = 0.0f;
        for (int d = 0; d < 32; d++) score += __shfl_sync(~0u, mine, d) * ks[lane][d];
        if (start + lane > row) score = -INFINITY;
        float most = score;
        for (int x = 16; x > 0; x /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, x));
        float next = fmaxf(m, most), shrink = __expf(m - next), p = __expf(score - next), all = p;
        for (int x = 16; x > 0; x /= 2) all += __shfl_xor_sync(~0u, all, x);
        sum = sum * shrink + all, acc *= shrink, m = next;
        for (int j = 0; j < 32; j++) acc += __shfl_sync(~0u, p, j) * vs[j][lane];
        __syncthreads();
    }
    if (row < n) o[row * 32 + lane] = acc / sum;
}

extern "C" __global__ void embedding(const int* token, const float4* table, float4* y, int dim4, int vocabulary) {
    int t = token[blockIdx.x];
    for (int i = threadIdx.x; i < dim4; i += blockDim.x)
        y[blockIdx.x * dim4 + i] = t >= 0 && t < vocabulary ? table[t * dim4 + i] : make_float4(0, 0, 0, 0);
}

extern "C" __global__ void swiglu(const float* gate, const float* up, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

extern "C" __global__ void gelu_bias(const float* x, const float* bias, float* y, int n, int columns) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float v = x[i] + bias[i % columns];
        y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
    }
}

extern "C" __global__ void cross_entropy(const float* logits, const int* label, float* loss, float* gradient, int classes) {
    int row = blockIdx.x, lane = threadIdx.x;
    float m = -INFINITY, sum = 0.0f;
    for (int c = lane; c < classes; c += 32) m = fmaxf(m, logits[row * classes + c]);
    for (int o = 16; o > 0; o /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
    for (int c = lane; c < classes; c += 32) sum += expf(logits[row * classes + c] - m);
    for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    for (int c = lane; c < classes; c += 32)
        gradient[row * classes + c] = expf(logits[row * classes + c] - m) / sum - (c == label[row]);
    if (lane == 0) atomicAdd(loss, logf(sum) + m - logits[row * classes + label[row]]);
}

extern "C" __global__ void adam(float* w, const float* g, float* m, float* v, float rate, float b1, float b2, float c1, float c2, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    m[i] = b1 * m[i] + (1.0f - b1) * g[i], v[i] = b2 * v[i] + (1.0f - b2) * g[i] * g[i];
    w[i] -= rate * (m[i] / c1) / (sqrtf(v[i] / c2) + 1e-8f);
}

extern "C" __global__ void max_pool(const float* x, float* y, unsigned char* from, int h, int w) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c >= w / 2 || r >= h / 2) return;
    float best = -INFINITY;
    int at = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float v = x[(r * 2 + k / 2) * w + c * 2 + k % 2];
        if (v > best) best = v, at = k;
    }
    y[r * (w / 2) + c] = best, from[r * (w / 2) + c] = at;
}
