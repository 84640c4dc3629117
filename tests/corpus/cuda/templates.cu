// Templates, functors, lambdas, classes without virtual functions.
#include <climits>
#include <cuda/std/array>
#include <cuda/std/limits>
#include <cuda/std/tuple>

template <typename T, int UNROLL>
__global__ void axpy(T alpha, const T* x, T* y, int n) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * UNROLL;
#pragma unroll
    for (int k = 0; k < UNROLL; k++)
        if (i + k < n) y[i + k] = alpha * x[i + k] + y[i + k];
}
template __global__ void axpy<float, 4>(float, const float*, float*, int);
template __global__ void axpy<double, 1>(double, const double*, double*, int);
template __global__ void axpy<long long, 2>(long long, const long long*, long long*, int);

struct Add {
    static constexpr int identity = 0;
    __device__ int operator()(int a, int b) const { return a + b; }
};
struct Max {
    static constexpr int identity = INT_MIN;
    __device__ int operator()(int a, int b) const { return a > b ? a : b; }
};

template <typename Op, int BLOCK>
__global__ void reduce(const int* x, int* y, int n, Op op) {
    __shared__ int s[BLOCK];
    int v = Op::identity;
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK) v = op(v, x[i]);
    s[threadIdx.x] = v;
    __syncthreads();
    if constexpr (BLOCK >= 128) {
        if (threadIdx.x < 64) s[threadIdx.x] = op(s[threadIdx.x], s[threadIdx.x + 64]);
        __syncthreads();
    }
    if (threadIdx.x < 32) {
        v = op(s[threadIdx.x], s[threadIdx.x + 32]);
        for (int o = 16; o > 0; o /= 2) v = op(v, __shfl_down_sync(~0u, v, o));
        if (threadIdx.x == 0) y[blockIdx.x] = v;
    }
}
template __global__ void reduce<Add, 64>(const int*, int*, int, Add);
template __global__ void reduce<Max, 128>(const int*, int*, int, Max);

template <typename F, typename... Rest>
__device__ float apply(float v, F f, Rest... rest) {
    if constexpr (sizeof...(rest) == 0) return f(v);
    else return apply(f(v), rest...);
}

extern "C" __global__ void chain_of_lambdas(const float* x, float* y, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = apply(x[i], [=](float v) { return v * scale; }, [](float v) { return v > 0 ? v : 0.01f * v; },
                 [=](float v) { return v + scale; });
}

// Recursion in types: a polynomial by Horner's rule with its coefficients as arguments of the template.
template <int... C> struct Polynomial;
template <int C> struct Polynomial<C> {
    static __device__ int at(int) { return C; }
};
template <int C, int... Rest> struct Polynomial<C, Rest...> {
    static __device__ int at(int x) { return C + x * Polynomial<Rest...>::at(x); }
};
extern "C" __global__ void polynomial(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = Polynomial<7, -3, 0, 2, 1>::at(x[i]);
}

// A matrix class with operators, and a library tuple.
struct Mat2 {
    cuda::std::array<float, 4> v;
    __device__ Mat2 operator*(const Mat2& o) const {
        return {{v[0] * o.v[0] + v[1] * o.v[2], v[0] * o.v[1] + v[1] * o.v[3], v[2] * o.v[0] + v[3] * o.v[2],
                 v[2] * o.v[1] + v[3] * o.v[3]}};
    }
};
__device__ cuda::std::tuple<float, float> eigen_sum_product(const Mat2& m) {
    return {m.v[0] + m.v[3], m.v[0] * m.v[3] - m.v[1] * m.v[2]};
}
extern "C" __global__ void powers_of_matrices(const Mat2* m, float* trace, float* det, int power, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Mat2 p = {{1.0f, 0.0f, 0.0f, 1.0f}}, base = m[i];
    for (int e = power; e > 0; e >>= 1, base = base * base)
        if (e & 1) p = p * base;
    auto [sum, product] = eigen_sum_product(p);
    trace[i] = sum, det[i] = product;
}
