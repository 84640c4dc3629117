// Integers: 128 bits, carries, hashes, random numbers, bits.

typedef unsigned __int128 u128;

extern "C" __global__ void multiply_mod_128(const unsigned long long* a, const unsigned long long* b,
                                            const unsigned long long* m, unsigned long long* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (unsigned long long)((u128)a[i] * b[i] % m[i]);
}

// Modular powers by Montgomery's method.
extern "C" __global__ void montgomery_power(const unsigned long long* x, unsigned long long* y, unsigned long long m,
                                            unsigned long long inverse, unsigned long long one, unsigned e) {
    auto mul = [=](unsigned long long a, unsigned long long b) {
        u128 t = (u128)a * b;
        unsigned long long q = (unsigned long long)t * inverse;
        unsigned long long high = (unsigned long long)(t >> 64), sub = __umul64hi(q, m);
        return high >= sub ? high - sub : high - sub + m;
    };
    unsigned long long r = one, base = x[threadIdx.x];
    for (; e; e >>= 1, base = mul(base, base))
        if (e & 1) r = mul(r, base);
    y[threadIdx.x] = r;
}

// Numbers of 256 bits added with the carry flag.
extern "C" __global__ void add_256(const uint4* a, const uint4* b, uint4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint4 p = a[2 * i], q = a[2 * i + 1], r = b[2 * i], s = b[2 * i + 1];
    asm("add.cc.u32 %0, %0, %8;\n\taddc.cc.u32 %1, %1, %9;\n\taddc.cc.u32 %2, %2, %10;\n\taddc.cc.u32 %3, %3, %11;\n\t"
        "addc.cc.u32 %4, %4, %12;\n\taddc.cc.u32 %5, %5, %13;\n\taddc.cc.u32 %6, %6, %14;\n\taddc.u32 %7, %7, %15;"
        : "+r"(p.x), "+r"(p.y), "+r"(p.z), "+r"(p.w), "+r"(q.x), "+r"(q.y), "+r"(q.z), "+r"(q.w)
        : "r"(r.x), "r"(r.y), "r"(r.z), "r"(r.w), "r"(s.x), "r"(s.y), "r"(s.z), "r"(s.w));
    y[2 * i] = p, y[2 * i + 1] = q;
}

extern "C" __global__ void crc32_rows(const unsigned char* x, unsigned* y, int length) {
    __shared__ unsigned table[256];
    for (unsigned b = threadIdx.x; b < 256; b += blockDim.x) {
        unsigned c = b;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
        table[b] = c;
    }
    __syncthreads();
    unsigned crc = ~0u;
    for (int k = 0; k < length; k++) crc = table[(crc ^ x[threadIdx.x * length + k]) & 255] ^ crc >> 8;
    y[threadIdx.x] = ~crc;
}

// SHA-256 of messages of one block.
__constant__ unsigned sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
__device__ __forceinline__ unsigned rotate(unsigned x, int n) { return __funnelshift_r(x, x, n); }
extern "C" __global__ void sha256_blocks(const unsigned* x, unsigned* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned w[64], h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned s[8];
    for (int k = 0; k < 8; k++) s[k] = h[k];
    for (int k = 0; k < 16; k++) w[k] = __byte_perm(x[i * 16 + k], 0, 0x0123);
    for (int k = 16; k < 64; k++) {
        unsigned a = rotate(w[k - 15], 7) ^ rotate(w[k - 15], 18) ^ w[k - 15] >> 3;
        unsigned b = rotate(w[k - 2], 17) ^ rotate(w[k - 2], 19) ^ w[k - 2] >> 10;
        w[k] = w[k - 16] + a + w[k - 7] + b;
    }
    for (int k = 0; k < 64; k++) {
        unsigned e = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25), f = (s[4] & s[5]) ^ (~s[4] & s[6]);
        unsigned t = s[7] + e + f + sha_k[k] + w[k];
        unsigned a = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
        unsigned m = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        for (int j = 7; j > 0; j--) s[j] = s[j - 1];
        s[4] += t, s[0] = t + a + m;
    }
    for (int k = 0; k < 8; k++) y[i * 8 + k] = __byte_perm(h[k] + s[k], 0, 0x0123);
}

// Philox of ten rounds, four numbers a thread.
extern "C" __global__ void philox(uint4* y, unsigned k0, unsigned k1) {
    uint4 c = make_uint4(blockIdx.x * blockDim.x + threadIdx.x, 0, 0, 0);
    for (int round = 0; round < 10; round++) {
        unsigned h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x, h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
        c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = c;
}

extern "C" __global__ void bits(const unsigned* x, int* ones, int* leading, int* first, unsigned* turned, int* field, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ones[i] = __popc(x[i]), leading[i] = __clz(x[i]), first[i] = __ffs(x[i]), turned[i] = __brev(x[i]);
    int f;
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(f) : "r"(x[i]), "r"(5), "r"(9));
    field[i] = f;
}

extern "C" __global__ void gcd_and_division(const long long* a, const long long* b, long long* g, long long* q, int* r, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long x = llabs(a[i]), y = llabs(b[i]);
    while (y) {
        long long t = x % y;
        x = y, y = t;
    }
    g[i] = x, q[i] = a[i] / b[i], r[i] = (int)a[i] % 1000;
}

extern "C" __global__ void collatz(const unsigned* x, unsigned* steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long v = x[i];
    unsigned count = 0;
    for (; v != 1; count++) v = v & 1 ? 3 * v + 1 : v / 2;
    steps[i] = count;
}
