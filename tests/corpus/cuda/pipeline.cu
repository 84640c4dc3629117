// Asynchronous copies of sm_80: groups, pipelines, barriers.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>

// Four stages of 16-byte copies ahead of their use.
extern "C" __global__ void stages_of_cp_async(const float* x, float* y, int tiles) {
    __shared__ __align__(16) float s[4][256];
    const float* from = x + blockIdx.x * tiles * 256;
    auto fetch = [&](int tile) {
        if (tile < tiles) __pipeline_memcpy_async(&s[tile % 4][threadIdx.x * 4], from + tile * 256 + threadIdx.x * 4, 16);
        __pipeline_commit();
    };
    for (int t = 0; t < 3; t++) fetch(t);
    float sum = 0.0f;
    for (int t = 0; t < tiles; t++) {
        __pipeline_wait_prior(2);
        __syncthreads();
        for (int k = 0; k < 4; k++) sum += s[t % 4][(threadIdx.x + k * 64 + 1) & 255] * (t + 1);
        fetch(t + 3);
    }
    y[blockIdx.x * 64 + threadIdx.x] = sum;
}

// The tail is filled with zeros by the copy.
extern "C" __global__ void zero_filled_tail(const float* x, float* y, int n) {
    __shared__ __align__(16) float s[128];
    int i = blockIdx.x * 128 + threadIdx.x * 4, rest = n - i;
    size_t zeros = rest >= 4 ? 0 : rest <= 0 ? 16 : 16 - rest * 4;
    __pipeline_memcpy_async(&s[threadIdx.x * 4], x + (rest > 0 ? i : 0), 16, zeros);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    for (int k = threadIdx.x; k < 128; k += 32) y[blockIdx.x * 128 + k] = s[127 - k];
}

// A matrix product whose tiles are copied ahead in two stages.
extern "C" __global__ void sgemm_cp_async(const float* a, const float* b, float* c, int n) {
    __shared__ __align__(16) float as[2][16][16], bs[2][16][16];
    int t = threadIdx.y * 16 + threadIdx.x, row = blockIdx.y * 16, col = blockIdx.x * 16;
    auto fetch = [&](int stage, int k) {
        if (t < 64) __pipeline_memcpy_async(&as[stage][t / 4][t % 4 * 4], &a[(row + t / 4) * n + k + t % 4 * 4], 16);
        else if (t < 128) __pipeline_memcpy_async(&bs[stage][t / 4 - 16][t % 4 * 4], &b[(k + t / 4 - 16) * n + col + t % 4 * 4], 16);
        __pipeline_commit();
    };
    fetch(0, 0);
    float sum = 0.0f;
    for (int k = 0, stage = 0; k < n; k += 16, stage ^= 1) {
        if (k + 16 < n) fetch(stage ^ 1, k + 16), __pipeline_wait_prior(1);
        else __pipeline_wait_prior(0);
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += as[stage][threadIdx.y][i] * bs[stage][i][threadIdx.x];
        __syncthreads();
    }
    c[(row + threadIdx.y) * n + col + threadIdx.x] = sum;
}

// The pipeline of the library, shared by the block.
extern "C" __global__ void library_pipeline(const int* x, int* y, int tiles) {
    constexpr int stages = 2;
    __shared__ int s[stages][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    auto block = cooperative_groups::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    int sum = 0;
    for (int tile = 0, fetched = 0; tile < tiles; tile++) {
        for (; fetched < tiles && fetched < tile + stages; fetched++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, s[fetched % stages], x + fetched * 64, sizeof(int) * 64, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        sum = sum * 3 + s[tile % stages][63 - threadIdx.x];
        pipe.consumer_release();
    }
    y[threadIdx.x] = sum;
}

// One warp fills, the other empties; barriers of the library say when.
extern "C" __global__ void producer_consumer(const int* x, int* y, int tiles) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ int s[2][32];
    __shared__ barrier full[2], empty[2];
    if (threadIdx.x < 2) init(&full[threadIdx.x], 64), init(&empty[threadIdx.x], 64);
    __syncthreads();
    int lane = threadIdx.x & 31;
    if (threadIdx.x < 32) {
        for (int t = 0; t < tiles; t++) {
            empty[t & 1].arrive_and_wait();
            s[t & 1][lane] = x[t * 32 + lane] * (t + 1);
            (void)full[t & 1].arrive();
        }
    } else {
        (void)empty[0].arrive(), (void)empty[1].arrive();
        int sum = 0;
        for (int t = 0; t < tiles; t++) {
            full[t & 1].arrive_and_wait();
            sum += s[t & 1][31 - lane];
            (void)empty[t & 1].arrive();
        }
        y[lane] = sum;
    }
}

// Copies arrive on a barrier.
extern "C" __global__ void copies_on_barrier(const int4* x, int* y) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ int4 s[64];
    __shared__ barrier bar;
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    cuda::memcpy_async(&s[threadIdx.x], &x[blockIdx.x * 64 + threadIdx.x], cuda::aligned_size_t<16>(16), bar);
    bar.arrive_and_wait();
    int4 v = s[63 - threadIdx.x];
    y[blockIdx.x * 64 + threadIdx.x] = v.x + v.y * 2 + v.z * 3 + v.w * 4;
}

// The same by hand: mbarrier instructions, phases by their parity.
extern "C" __global__ void mbarrier_by_hand(const int* x, int* y, int rounds) {
    __shared__ int s[64];
    __shared__ unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(64));
    __syncthreads();
    int v = x[threadIdx.x];
    auto meet = [&](int phase) {
        asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared.b64 state, [%0];\n\t}" ::"r"(at) : "memory");
        asm volatile("{\n\t.reg .pred done;\nL%=:\n\tmbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n\t@!done bra L%=;\n\t}" ::"r"(at),
                     "r"(phase & 1)
                     : "memory");
    };
    for (int r = 0; r < rounds; r++) {
        s[threadIdx.x] = v;
        meet(2 * r);
        v = s[(threadIdx.x + 33) & 63] + r;
        meet(2 * r + 1);
    }
    y[threadIdx.x] = v;
}

// Named barriers: two halves of the block in turn.
extern "C" __global__ void named_barriers(const int* x, int* y, int rounds) {
    __shared__ int s[64];
    bool producer = threadIdx.x < 64;
    int lane = threadIdx.x & 63, sum = 0;
    for (int r = 0; r < rounds; r++) {
        if (producer) {
            if (r > 0) asm volatile("bar.sync 2, 128;" ::: "memory");
            s[lane] = x[r * 64 + lane];
            asm volatile("bar.arrive 1, 128;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 128;" ::: "memory");
            sum = sum * 2 + s[lane ^ 32];
            if (r + 1 < rounds) asm volatile("bar.arrive 2, 128;" ::: "memory");
        }
    }
    if (!producer) y[lane] = sum;
}

// Barriers that vote.
extern "C" __global__ void voting_barriers(const int* x, int* y) {
    int v = x[blockIdx.x * blockDim.x + threadIdx.x];
    int count = __syncthreads_count(v > 50), all = __syncthreads_and(v >= 0), any = __syncthreads_or(v > 98);
    if (threadIdx.x == 0) y[blockIdx.x * 3] = count, y[blockIdx.x * 3 + 1] = all != 0, y[blockIdx.x * 3 + 2] = any != 0;
}
