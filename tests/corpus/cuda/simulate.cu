// Simulation, geometry, signals, graphs, text.

extern "C" __global__ void n_body(const float4* p, float4* force, int n) {
    __shared__ float4 tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = i < n ? p[i] : make_float4(0, 0, 0, 0);
    float3 f = make_float3(0, 0, 0);
    for (int start = 0; start < n; start += 64) {
        int j = start + threadIdx.x;
        tile[threadIdx.x] = j < n ? p[j] : make_float4(0, 0, 0, 0);
        __syncthreads();
        for (int k = 0; k < 64; k++) {
            float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f), s = tile[k].w * inverse * inverse * inverse;
            f.x += dx * s, f.y += dy * s, f.z += dz * s;
        }
        __syncthreads();
    }
    if (i < n) force[i] = make_float4(f.x, f.y, f.z, 0);
}

extern "C" __global__ void mandelbrot(int* iterations, int w, int h, double x0, double y0, double step, int limit) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c >= w || r >= h) return;
    double cx = x0 + c * step, cy = y0 + r * step, x = 0, y = 0;
    int n = 0;
    while (n < limit && x * x + y * y <= 4.0) {
        double t = x * x - y * y + cx;
        y = 2 * x * y + cy, x = t, n++;
    }
    iterations[r * w + c] = n;
}

// A transform of 128 points in one block, radix 2.
extern "C" __global__ void fft_128(const float2* x, float2* y) {
    __shared__ float2 s[128];
    int t = threadIdx.x, base = blockIdx.x * 128;
    s[__brev(t) >> 25] = x[base + t], s[__brev(t + 64) >> 25] = x[base + t + 64];
    for (int half = 1; half < 128; half *= 2) {
        __syncthreads();
        int k = t & (half - 1), a = (t - k) * 2 + k, b = a + half;
        float sn, cs;
        sincospif(-(float)k / half, &sn, &cs);
        float2 u = s[a], v = make_float2(s[b].x * cs - s[b].y * sn, s[b].x * sn + s[b].y * cs);
        s[a] = make_float2(u.x + v.x, u.y + v.y), s[b] = make_float2(u.x - v.x, u.y - v.y);
    }
    __syncthreads();
    y[base + t] = s[t], y[base + t + 64] = s[t + 64];
}

// Hits of a ray and spheres, the nearest one.
struct Sphere { float x, y, z, r; int id; };
extern "C" __global__ void trace_spheres(const Sphere* spheres, int n, int* hit, float* depth, int w) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
    if (c >= w) return;
    float ox = c * 0.25f, oy = r * 0.25f, best = 1e9f;
    int who = -1;
    for (int i = 0; i < n; i++) {
        float dx = spheres[i].x - ox, dy = spheres[i].y - oy, d = spheres[i].r * spheres[i].r - dx * dx - dy * dy;
        if (d < 0.0f) continue;
        float z = spheres[i].z - __fsqrt_rn(d);
        if (z > 0.0f && z < best) best = z, who = spheres[i].id;
    }
    hit[r * w + c] = who, depth[r * w + c] = best;
}

// All shortest paths: one round of Floyd and Warshall on a block of 16.
extern "C" __global__ void floyd_block(int* d, int n) {
    __shared__ int s[16][16];
    int r = threadIdx.y, c = threadIdx.x;
    s[r][c] = d[r * n + c];
    for (int k = 0; k < 16; k++) {
        __syncthreads();
        int through = s[r][k] + s[k][c];
        __syncthreads();
        if (through < s[r][c]) s[r][c] = through;
    }
    d[r * n + c] = s[r][c];
}

// The edit distance of two words by diagonals.
extern "C" __global__ void edit_distance(const char* a, const char* b, int* y, int n) {
    __shared__ int diagonal[3][65];
    int t = threadIdx.x;
    const char *p = a + blockIdx.x * n, *q = b + blockIdx.x * n;
    for (int d = 0; d <= 2 * n; d++) {
        int* now = diagonal[d % 3];
        const int *last = diagonal[(d + 2) % 3], *before = diagonal[(d + 1) % 3];
        int i = t, j = d - t;
        if (i <= n && j >= 0 && j <= n) {
            if (i == 0 || j == 0) now[i] = d;
            else now[i] = min(min(last[i - 1], last[i]) + 1, before[i - 1] + (p[i - 1] != q[j - 1]));
        }
        __syncthreads();
    }
    if (t == n) y[blockIdx.x] = diagonal[2 * n % 3][n];
}

// A bilinear resize of pixels of four bytes.
extern "C" __global__ void resize(const uchar4* x, uchar4* y, int w, int h, int to_w, int to_h) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c >= to_w || r >= to_h) return;
    int fx = c * (w - 1) * 256 / (to_w - 1), fy = r * (h - 1) * 256 / (to_h - 1);
    int x0 = fx >> 8, y0 = fy >> 8, x1 = min(x0 + 1, w - 1), y1 = min(y0 + 1, h - 1), ax = fx & 255, ay = fy & 255;
    uchar4 p = x[y0 * w + x0], q = x[y0 * w + x1], s = x[y1 * w + x0], t = x[y1 * w + x1];
    auto mix = [&](int a, int b, int c, int d) {
        return (unsigned char)(((a * (256 - ax) + b * ax) * (256 - ay) + (c * (256 - ax) + d * ax) * ay + 32768) >> 16);
    };
    y[r * to_w + c] = make_uchar4(mix(p.x, q.x, s.x, t.x), mix(p.y, q.y, s.y, t.y), mix(p.z, q.z, s.z, t.z), mix(p.w, q.w, s.w, t.w));
}

// Random walks; each thread has a generator of its own.
extern "C" __global__ void random_walks(int* ends, int steps, unsigned seed) {
    unsigned s = (blockIdx.x * blockDim.x + threadIdx.x + 1) * seed;
    int at = 0;
    for (int k = 0; k < steps; k++) {
        s ^= s << 13, s ^= s >> 17, s ^= s << 5;
        at += (s & 1) ? 1 : -1;
    }
    ends[blockIdx.x * blockDim.x + threadIdx.x] = at;
}

// Arguments in a structure, with pointers and an array.
struct Scene { const float* x; float* y; int n; float weight[3]; short shift; };
extern "C" __global__ void structure_argument(const __grid_constant__ Scene scene, double extra) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < scene.n) scene.y[i] = scene.x[(i + scene.shift) % scene.n] * scene.weight[i % 3] + (float)extra;
}

// Words counted by where they begin.
extern "C" __global__ void count_words(const char* text, int* words, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool starts = i < n && text[i] != ' ' && (i == 0 || text[i - 1] == ' ');
    int count = __syncthreads_count(starts);
    if (threadIdx.x == 0 && count) atomicAdd(words, count);
}
